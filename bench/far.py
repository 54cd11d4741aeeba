"""How long do reads take from a server that answers late? Many chunks, and a few of a shard, beside other readers; and netCDF beside Zarr.

    python bench/far.py [chunks inner references faults memory netcdf] [--latency-ms 30] [--chunks 10000] [--chunk-kib 256] [--repeat 3]
                        [--device cuda:0] [--record FOLDER]

`chunks` reads a whole uncompressed array over HTTP from the loopback interface, 64 requests at once. Each answer comes `--latency-ms` after
its request. `floor` is requests / 64 x latency, in seconds. `inner` reads one element of each of 20 random inner chunks of a shard of 64 MiB,
in milliseconds, with the requests and the dependent rounds of them that the server saw. `references` reads all chunks of 1 MiB of a file of
256 MiB by a table of references, also in milliseconds with requests and rounds. `faults` is `chunks` once more, by cuzarr alone, from a server
that refuses one request in twenty (503), with the ratio of the times. `memory` reads 100,000 chunks of 4 KiB with a memory limit of 64 MiB, in
seconds, and tells the most memory that the process took beside the result, in MiB. `netcdf` reads a netCDF-4 file (shuffle, zlib 4) by
its table of references, and its encoded chunks as files of a Zarr array, both from the page cache, in GB/s; `--device` says where to, for
this one alone. Best of the repeats; every answer is compared with the truth outside the clock. Arrays are opened inside the clock for `chunks` and `inner`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import pathlib
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import arrays
import engines
import numpy as np
import read

import cuzarr

AT_ONCE = 64
REFUSED = 20
SHARD, INNER, WANTED = 64 << 20, 256 << 10, 20


class Log:
    """The requests that a server got, with their rounds: one more than the largest round that was answered before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = self._answered = self.rounds = 0

    def begun(self) -> int:
        with self._lock:
            self.count += 1
            self.rounds = max(self.rounds, self._answered + 1)
            return self._answered + 1

    def ended(self, number: int) -> None:
        with self._lock:
            self._answered = max(self._answered, number)

    def taken(self) -> bytes:
        with self._lock:
            said = json.dumps([self.count, self.rounds]).encode()
            self.count = self._answered = self.rounds = 0
            return said


def answer(
    connection: socket.socket,
    find: Callable[[str], memoryview | None],
    latency: float,
    log: Log,
    refused: int,
) -> None:
    """Answers requests until the client closes. One in ``refused`` is refused, if that is not 0."""
    requests = connection.makefile("rb")
    while line := requests.readline():
        arrived = time.perf_counter()
        method, path = line.split()[:2]
        wanted = b""
        while (header := requests.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            if name.lower() == b"range":
                wanted = value.strip().removeprefix(b"bytes=")
        if path == b"/log":
            said = log.taken()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
            continue
        number, is_refused = log.begun(), refused and log.count % refused == 0
        found = find(path.decode().lstrip("/"))
        time.sleep(max(0.0, arrived + latency - time.perf_counter()))
        if is_refused:
            connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            log.ended(number)
            continue
        if found is None:
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            log.ended(number)
            continue
        first, _, last = wanted.partition(b"-")
        start = int(first) if first else max(len(found) - int(last or 0), 0) if wanted else 0
        stop = min(int(last) + 1, len(found)) if first and last else len(found)
        status = b"206 Partial Content" if wanted else b"200 OK"
        extent = b"Content-Range: bytes %d-%d/%d\r\n" % (start, stop - 1, len(found)) if wanted else b""
        head = b'HTTP/1.1 %s\r\nContent-Length: %d\r\nAccept-Ranges: bytes\r\nETag: "7"\r\n%s\r\n'
        connection.sendall(head % (status, stop - start, extent))
        if method == b"GET":
            connection.sendall(found[start:stop])
        log.ended(number)


def serve(port: int, find: Callable[[str], memoryview | None], latency: float, refused: int) -> None:
    """Accepts connections for ever, beside the other processes on this port."""
    log = Log()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(512)
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(
                target=answer,
                args=(connection, find, latency, log, refused),
                daemon=True,
            ).start()


class Server:
    """Processes that answer for a store."""

    def __init__(
        self,
        find: Callable[[str], memoryview | None],
        latency: float,
        processes: int,
        refused: int = 0,
    ) -> None:
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = self._reserved.getsockname()[1]
        fork = multiprocessing.get_context("fork")
        arguments = (self.port, find, latency, refused)
        self._processes = [fork.Process(target=serve, args=arguments, daemon=True) for _ in range(processes)]

    def __enter__(self) -> Server:
        for process in self._processes:
            process.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()
        self._reserved.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> tuple[int, int]:
        """The requests since the last call, and their rounds. Of a server of one process."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"GET /log HTTP/1.1\r\n\r\n")
            text = b""
            while b"]" not in text:
                text += connection.recv(1 << 12)
        count, rounds = json.loads(text.partition(b"\r\n\r\n")[2])
        return count, rounds


def by_cuzarr(url: str) -> Any:
    return cuzarr.open_array(url, mode="r")


def by_obstore(url: str) -> Any:
    import obstore
    import zarr

    zarr.config.set({"async.concurrency": AT_ONCE})
    store = obstore.store.HTTPStore(url, client_options={"allow_http": True})
    return zarr.open_array(zarr.storage.ObjectStore(store, read_only=True), mode="r")


class _Tensorstore:
    """An array of tensorstore's, whose selections are read at once."""

    def __init__(self, url: str) -> None:
        import tensorstore

        context = {"http_request_concurrency": {"limit": AT_ONCE}}
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "http", "base_url": url + "/"},
            "context": context,
        }
        self._array = tensorstore.open(spec, open=True, read=True).result()

    def __getitem__(self, selection: Any) -> Any:
        return self._array[selection].read().result()

    @property
    def vindex(self) -> Any:
        return self


def readers() -> dict[str, Callable[[str], Any]]:
    """What opens an array at a URL, for each engine that is here."""
    names = engines.available("cpu")
    found: dict[str, Callable[[str], Any]] = {"cuzarr": by_cuzarr}
    if "zarr" in names and importlib.util.find_spec("obstore"):
        found["obstore"] = by_obstore
    if "tensorstore" in names:
        found["tensorstore"] = _Tensorstore
    return found


class Chunks:
    """An array of uncompressed chunks. They repeat, so that the server needs little memory."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self._block = np.random.default_rng(7).integers(0, 256, (256, size), "u1")
        document = {
            "zarr_format": 3, "node_type": "array", "shape": [count * size], "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [size]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}],
        }  # fmt: skip
        self._text = memoryview(json.dumps(document).encode())

    def find(self, path: str) -> memoryview | None:
        name, _, number = path.partition("/")
        return self._text if path == "zarr.json" else memoryview(self._block[int(number) % 256]) if name == "c" else None

    def check(self, name: str, values: Any) -> None:
        for start in range(0, self.count, 256):
            part = values[start * self.size : (start + 256) * self.size].reshape(-1, self.size)
            if not np.array_equal(part, self._block[: len(part)]):
                raise AssertionError(f"{name}: wrong data")


def many_chunks(chosen: argparse.Namespace) -> dict[str, Any]:
    """Seconds for a whole array."""
    chunks = Chunks(chosen.chunks, chosen.chunk_kib << 10)
    row: dict[str, Any] = {
        "what": "chunks",
        "floor": round(chunks.count / AT_ONCE * chosen.latency_ms / 1e3, 2),
    }
    with Server(chunks.find, chosen.latency_ms / 1e3, chosen.servers) as server:
        # In turns, because other programs may slow any of them.
        for _ in range(chosen.repeat):
            for name, opened in readers().items():
                begun = time.perf_counter()
                values = opened(server.url)[:]
                row[name] = min(row.get(name, float("inf")), round(time.perf_counter() - begun, 2))
                chunks.check(name, values)
                del values
            print(row, flush=True)
    return row


def faults(chosen: argparse.Namespace) -> dict[str, Any]:
    """Seconds for a whole array, from a server that refuses no request, and from one that refuses some."""
    chunks = Chunks(chosen.chunks, chosen.chunk_kib << 10)
    row: dict[str, Any] = {"what": "faults"}
    latency = chosen.latency_ms / 1e3
    with (
        Server(chunks.find, latency, chosen.servers) as plain,
        Server(chunks.find, latency, chosen.servers, REFUSED) as refusing,
    ):
        for _ in range(chosen.repeat):
            for name, server in {"without": plain, "with": refusing}.items():
                begun = time.perf_counter()
                values = by_cuzarr(server.url)[:]
                row[name] = min(row.get(name, float("inf")), round(time.perf_counter() - begun, 2))
                chunks.check(name, values)
                del values
            row["ratio"] = round(row["with"] / row["without"], 2)
            print(row, flush=True)
    return row


def memory(chosen: argparse.Namespace) -> dict[str, Any]:
    """Seconds, and the most memory beside the result, for an array of very many chunks under a small limit."""
    chunks = Chunks(100_000, 4 << 10)
    limit = 64 << 20

    def resident(name: str) -> int:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

    with (
        Server(chunks.find, chosen.latency_ms / 1e3, chosen.servers) as server,
        cuzarr.config.set({"memory_limit": limit}),
    ):
        array = cuzarr.open_array(server.url, mode="r")
        array[: chunks.size]
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before, begun = resident("VmRSS"), time.perf_counter()
        values = array[:]
        taken, beside = (
            time.perf_counter() - begun,
            resident("VmHWM") - before - values.nbytes,
        )
        chunks.check("memory", values)
    row = {
        "what": "memory",
        "limit_MiB": limit >> 20,
        "cuzarr": [round(taken, 1), round(beside / (1 << 20), 1)],
    }
    print(row, flush=True)
    return row


def inner_chunks(chosen: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds, requests and rounds for one element of each of some inner chunks."""
    truth = np.random.default_rng(7).integers(0, 256, SHARD, "u1")
    values: dict[str, memoryview] = {}
    made = cuzarr.create_array(values, data=truth, chunks=(INNER,), shards=(SHARD,), compressors=None)
    files = {key: memoryview(bytes(made.store.get(key))) for key in made.store.list()}
    row: dict[str, Any] = {"what": "inner"}
    with Server(files.get, chosen.latency_ms / 1e3, 1) as server:
        for name, opened in readers().items():
            best: list[float] = []
            for turn in range(chosen.repeat):
                random = np.random.default_rng(turn)
                places = np.sort(random.choice(SHARD // INNER, WANTED, replace=False)) * INNER + random.integers(0, INNER, WANTED)
                array = opened(server.url)
                server.log()
                begun = time.perf_counter()
                got = array.vindex[places]
                taken = time.perf_counter() - begun
                if not np.array_equal(got, truth[places]):
                    raise AssertionError(f"{name}: wrong data")
                figures = [round(1e3 * taken, 1), *server.log()]
                best = min(best or figures, figures)
            row[name] = best
            print(row, flush=True)
    return row


def references(chosen: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds, requests and rounds for the neighbouring chunks of one file."""
    truth, size = np.random.default_rng(7).integers(0, 256, 256 << 20, "u1"), 1 << 20
    document = {
        "zarr_format": 2, "shape": [truth.size], "chunks": [size], "dtype": "|u1", "fill_value": 0, "order": "C",
        "compressor": None, "filters": None,
    }  # fmt: skip
    files = {"file": memoryview(truth)}
    server, best = Server(files.get, chosen.latency_ms / 1e3, 1), []
    parts = {f"t/{at}": [f"{server.url}/file", at * size, size] for at in range(truth.size // size)}
    table = {"version": 1, "refs": {"t/.zarray": json.dumps(document), **parts}}
    files["refs.json"] = memoryview(json.dumps(table).encode())
    with server:
        for _ in range(chosen.repeat):
            array = cuzarr.open_array(f"reference::{server.url}/refs.json", path="t", mode="r")
            server.log()
            begun = time.perf_counter()
            got = array[...]
            taken = time.perf_counter() - begun
            if not np.array_equal(got, truth):
                raise AssertionError("wrong data")
            figures = [round(1e3 * taken, 1), *server.log()]
            best = min(best or figures, figures)
    row = {"what": "references", "cuzarr": best}
    print(row, flush=True)
    return row


def netcdf(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """GB/s of a netCDF-4 file by references, and of the same elements in Zarr."""
    import h5py

    truth, rows, target = (
        arrays.temperature((32, 1024, 2048), 1),
        [],
        read.Place(chosen.device),
    )
    held = target.hold(truth)
    for mib in (1, 8):
        chunk = (mib, 256, 1024)
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            with h5py.File(place / "field.nc", "w") as file:
                file.create_dataset(
                    "t",
                    data=truth,
                    chunks=chunk,
                    shuffle=True,
                    compression="gzip",
                    compression_opts=4,
                )
            (place / "field.json").write_text(json.dumps(cuzarr.references.make_references(place / "field.nc")))
            # The encoded chunks are the same, because encoders of one level differ.
            (place / "field.zarr").mkdir()
            refs, file_bytes = (
                json.loads((place / "field.json").read_text())["refs"],
                (place / "field.nc").read_bytes(),
            )
            (place / "field.zarr" / ".zarray").write_text(refs["t/.zarray"])
            for key, part in refs.items():
                if isinstance(part, list):
                    (place / "field.zarr" / key.removeprefix("t/")).write_bytes(file_bytes[part[1] : part[1] + part[2]])
            row: dict[str, Any] = {"what": "netcdf", "chunk_MiB": mib}
            opened = {
                "references": cuzarr.open_array(
                    f"reference::{place}/field.json",
                    path="t",
                    mode="r",
                    device=chosen.device,
                ),
                "zarr": cuzarr.open_array(place / "field.zarr", mode="r", device=chosen.device),
                "h5py": h5py.File(place / "field.nc")["t"],
            }
            for _ in range(chosen.repeat):
                for name, array in opened.items():
                    target.wait()
                    begun = time.perf_counter()
                    values = target.hold(array[...]) if name == "h5py" else array[...]
                    target.wait()
                    row[name] = max(
                        row.get(name, 0.0),
                        round(truth.nbytes / 1e9 / (time.perf_counter() - begun), 2),
                    )
                    if not target.same(values, held):
                        raise AssertionError(f"{name}: wrong data")
            rows.append(row)
            print(row, flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what",
        nargs="*",
        default=["chunks", "inner", "references", "faults", "memory", "netcdf"],
    )
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--chunk-kib", type=int, default=256)
    parser.add_argument("--servers", type=int, default=2, help="processes of the server for `chunks`")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--record", help="the folder of a record")
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if "chunks" in chosen.what:
        rows.append(many_chunks(chosen))
    if "inner" in chosen.what:
        rows.append(inner_chunks(chosen))
    if "references" in chosen.what:
        rows.append(references(chosen))
    if "faults" in chosen.what:
        rows.append(faults(chosen))
    if "memory" in chosen.what:
        rows.append(memory(chosen))
    if "netcdf" in chosen.what:
        rows += netcdf(chosen)
    if chosen.record:
        unit = (
            "chunks, faults: seconds; inner, references: milliseconds, requests, rounds; memory: seconds, MiB; netcdf: GB/s of elements. "
            "Best of the repeats; every answer compared with the truth"
        )
        read.write_record(chosen.record, read.Place(chosen.device), rows, "far", unit)
    return 0


if __name__ == "__main__":
    sys.exit(main())

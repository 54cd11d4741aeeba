"""How fast do chunks come over HTTP from this machine's loopback interface, beside other readers?

    python bench/remote.py [--device cpu|cuda:0] [--codecs none zstd blosc-lz4] [--chunk-kib 64 1024 8192] [--mib 1024] [--repeat 3]
                           [--engines cuzarr ...] [--server PROGRAM] [--threads] [--record FOLDER]

GB/s of the whole array, and the client's CPU seconds for a GB of it; best of the repeats, in turns. Every answer is compared outside
the clock, where it is. The server is `cargo build --release -p cuzarr-remote --example serve`, with all files in memory (`--server ./serve`
in `dist/gpu/bench`). It has one half of the cores, and the readers the other half. Readers that know no GPU give a NumPy array, which is
copied to the GPU inside the clock. With `--threads`, the CPU seconds of cuzarr's threads are told by their names.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import importlib.util
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import arrays
import numpy as np
import read

AT_ONCE = 64
CODECS = ("none", "zstd", "blosc-lz4")

Read = Callable[[], Any]


@contextlib.contextmanager
def serving(program: str, files: dict[str, memoryview], cores: list[int]) -> Iterator[str]:
    """The address of a server that has these files, on these cores."""
    with tempfile.TemporaryDirectory() as folder:
        for name, value in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value)
        server = subprocess.Popen(
            [program, folder],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()
            server.wait()


def by_cuzarr(url: str, device: str) -> Read | None:
    import cuzarr

    array = cuzarr.open_array(url, mode="r", device=device)
    return lambda: array[:]


def by_obstore(url: str, device: str) -> Read | None:
    """zarr-python over obstore."""
    import obstore
    import zarr

    zarr.config.set({"async.concurrency": AT_ONCE})
    store = obstore.store.HTTPStore(url, client_options={"allow_http": True})
    array = zarr.open_array(zarr.storage.ObjectStore(store, read_only=True), mode="r")
    return lambda: array[:]


def by_tensorstore(url: str, device: str) -> Read | None:
    import tensorstore

    context = {"http_request_concurrency": {"limit": AT_ONCE}}
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "http", "base_url": url + "/"},
        "context": context,
    }
    array = tensorstore.open(spec, open=True, read=True).result()
    return lambda: array.read().result()


def by_kvikio(url: str, device: str) -> Read | None:
    """Every uncompressed chunk by a `RemoteFile` of KvikIO."""
    codec, kib, mib = url.rsplit("/", 3)[1:]
    if codec != "none":
        return None
    import kvikio

    importlib.import_module("kvikio.defaults").set({"num_threads": len(os.sched_getaffinity(0))})
    size, count = int(kib) << 10, (int(mib) << 10) // int(kib)
    make = np.empty if device == "cpu" else importlib.import_module("cupy").empty

    def whole() -> Any:
        values = make(count * size, "u1")
        files = [kvikio.RemoteFile.open_http(f"{url}/c/{number}", nbytes=size) for number in range(count)]
        for part in [file.pread(values[at * size : (at + 1) * size]) for at, file in enumerate(files)]:
            part.get()
        return values.view("f4")

    return whole


ENGINES = {
    "cuzarr": ("cuzarr", by_cuzarr),
    "obstore": ("obstore", by_obstore),
    "tensorstore": ("tensorstore", by_tensorstore),
    "kvikio": ("kvikio", by_kvikio),
}


def cpu_seconds() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def thread_seconds() -> collections.Counter[str]:
    """CPU seconds of this process's threads so far, in user and system mode, by their names."""
    found: collections.Counter[str] = collections.Counter()
    for task in pathlib.Path("/proc/self/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        user, system = rest.split()[11:13]
        found[f"{name} user"] += int(user) / os.sysconf("SC_CLK_TCK")
        found[f"{name} system"] += int(system) / os.sysconf("SC_CLK_TCK")
    return found


def files_of(codec: str, kib: int, truth: np.ndarray) -> dict[str, memoryview]:
    """The files of an array, by their paths."""
    import zarr

    import cuzarr

    values: dict[str, memoryview] = {}
    compressors = {
        "none": None,
        "zstd": [zarr.codecs.ZstdCodec(level=3)],
        "blosc-lz4": [zarr.codecs.BloscCodec(cname="lz4")],
    }[codec]
    cuzarr.create_array(
        values,
        data=truth,
        chunks=((kib << 10) // truth.itemsize,),
        compressors=compressors,
    )
    prefix = f"{codec}/{kib}/{truth.nbytes >> 20}"
    return {f"{prefix}/{key}": memoryview(bytes(value)) for key, value in values.items()}


def measure(url: str, size_bytes: int, truth: Any, place: read.Place, chosen: argparse.Namespace) -> dict[str, Any]:
    """GB/s and CPU seconds for a GB of each engine."""
    gigabytes, row, readers = size_bytes / 1e9, {}, {}
    for name in chosen.engines:
        library, prepare = ENGINES[name]
        if importlib.util.find_spec(library) is None:
            continue
        try:
            reader = prepare(url, place.device)
        except Exception as error:  # a reader that cannot is a result as well
            row[name] = f"{type(error).__name__}: {error}"[:90]
            continue
        if reader:
            readers[name] = reader
    threads: collections.Counter[str] = collections.Counter()
    for _ in range(chosen.repeat):
        for name, reader in readers.items():
            place.wait()
            before, begun, used = thread_seconds(), time.perf_counter(), cpu_seconds()
            values = reader()
            if place.cupy and isinstance(values, np.ndarray):
                values = place.cupy.asarray(values)
            place.wait()
            seconds, used = time.perf_counter() - begun, cpu_seconds() - used
            if name == "cuzarr":
                threads = thread_seconds()
                threads.subtract(before)
            if not place.same(values, truth):
                raise AssertionError(f"{name}: wrong data")
            del values
            best = [round(gigabytes / seconds, 2), round(used / gigabytes, 3)]
            row[name] = max(row.get(name, best), best)
    if chosen.threads:
        row["threads"] = {name: round(used / gigabytes, 3) for name, used in threads.items() if used > 0.01}
    place.free()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--codecs", nargs="+", default=list(CODECS))
    parser.add_argument("--chunk-kib", nargs="+", type=int, default=[64, 1024, 8192])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES))
    parser.add_argument("--server", default="target/release/examples/serve")
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--record", help="the folder of a record")
    chosen = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    half = max(len(cores) // 2, 1)
    # Before any thread begins, because threads keep the cores that they begin with.
    os.sched_setaffinity(0, cores[-half:])
    part = arrays.temperature((min(chosen.mib, 256) // 8, 1024, 2048), 1).ravel()
    values = np.tile(part, max(chosen.mib // 256, 1))
    cases = [(codec, kib) for codec in chosen.codecs for kib in chosen.chunk_kib]
    files, sizes = {}, {}
    for case in cases:
        made = files_of(*case, values)
        sizes[case] = sum(map(len, made.values()))
        files |= made
    with serving(chosen.server, files, cores[:half]) as address:
        place, rows = read.Place(chosen.device), []
        truth = place.hold(values)
        for codec, kib in cases:
            url = f"{address}/{codec}/{kib}/{chosen.mib}"
            row = {
                "codec": codec,
                "chunk_KiB": kib,
                "ratio": round(values.nbytes / sizes[codec, kib], 2),
            }
            row |= measure(url, values.nbytes, truth, place, chosen)
            rows.append(row)
            print(row, flush=True)
    if chosen.record:
        unit = "GB/s of decoded array, and CPU seconds of the client for a GB; best of the repeats, every answer compared with the truth"
        read.write_record(chosen.record, place, rows, "remote", unit)
    return 0


if __name__ == "__main__":
    sys.exit(main())

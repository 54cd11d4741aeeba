"""How fast do uncompressed chunks come over HTTP from this machine's loopback interface, beside other readers?

    python bench/remote.py [--device cpu cuda:0] [--chunk-kib 64 1024 8192] [--mib 1024] [--servers 8] [--json FILE]

Best of three, GB/s of the whole array, and the client's CPU seconds for a GB. Every answer is compared outside the clock. The
servers are processes that share one port and answer from memory. Other readers run where they are installed.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import pathlib
import resource
import socket
import threading
import time

import numpy as np

import cuzarr

SEED = 7


def metadata(values, chunk):
    """The document of the array of these values."""
    return json.dumps({
        "zarr_format": 3, "node_type": "array", "shape": list(values.shape), "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}],
    }).encode()  # fmt: skip


def answer(connection, values):
    """Answers requests for `/CHUNK/zarr.json` and `/CHUNK/c/NUMBER` until the client closes."""
    requests = connection.makefile("rb")
    while line := requests.readline():
        method, path = line.split()[:2]
        start, stop, status = 0, None, b"200 OK"
        while (header := requests.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            if name.lower() == b"range":
                first, _, last = value.strip().removeprefix(b"bytes=").partition(b"-")
                start, stop, status = int(first), int(last) + 1 if last else None, b"206 Partial Content"
        _, chunk, *rest = path.decode().split("/")
        size = int(chunk)
        if rest == ["zarr.json"]:
            value = memoryview(metadata(values, size))
        elif rest[0] == "c":
            value = memoryview(values)[int(rest[1]) * size : (int(rest[1]) + 1) * size]
        else:
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            continue
        part = value[start:stop]
        extent = (
            b"Content-Range: bytes %d-%d/%d\r\n" % (start, start + len(part) - 1, len(value)) if status[:3] == b"206" else b""
        )
        head = b'HTTP/1.1 %s\r\nContent-Length: %d\r\nAccept-Ranges: bytes\r\nETag: "%d"\r\n%s\r\n'
        connection.sendall(head % (status, len(part), SEED, extent))
        if method == b"GET":
            connection.sendall(part)


def serve(port, values):
    """Accepts connections for ever, beside the other processes on this port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(256)
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=answer, args=(connection, values), daemon=True).start()


def by_cuzarr(url, _count, device):
    """Reads by cuzarr's own store."""
    array = cuzarr.open_array(url, mode="r", device=device)
    return lambda: array[:]


def by_obstore(url, _count, device):
    """Reads by zarr-python over obstore."""
    if device != "cpu":
        return None
    import obstore
    import zarr

    store = zarr.storage.ObjectStore(obstore.store.HTTPStore(url, client_options={"allow_http": True}), read_only=True)
    zarr.config.set({"async.concurrency": 64})
    array = zarr.open_array(store, mode="r")
    return lambda: array[:]


def by_tensorstore(url, _count, device):
    """Reads by tensorstore."""
    if device != "cpu":
        return None
    import tensorstore

    context = {"http_request_concurrency": {"limit": 64}}
    spec = {"driver": "zarr3", "kvstore": {"driver": "http", "base_url": url + "/"}, "context": context}
    array = tensorstore.open(spec, open=True, read=True).result()
    return lambda: array.read().result()


def by_kvikio(url, count, device):
    """Reads every chunk by a `RemoteFile` of KvikIO."""
    import kvikio

    size = int(url.rpartition("/")[2])
    if device == "cpu":
        make = np.empty
    else:
        import cupy

        make = cupy.empty

    def read():
        values = make(count * size, "u1")
        files = [kvikio.RemoteFile.open_http(f"{url}/c/{number}", nbytes=size) for number in range(count)]
        parts = [file.pread(values[at * size : (at + 1) * size]) for at, file in enumerate(files)]
        for part in parts:
            part.get()
        return values

    return read


ENGINES = {
    "cuzarr": ("cuzarr", by_cuzarr),
    "obstore": ("obstore", by_obstore),
    "tensorstore": ("tensorstore", by_tensorstore),
    "kvikio": ("kvikio", by_kvikio),
}


def on_host(values):
    """NumPy's of what a read gives: its own, CuPy's, ours."""
    if isinstance(values, np.ndarray):
        return values
    return values.cpu() if isinstance(values, cuzarr.DeviceArray) else values.get()


def cpu_seconds():
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(read, truth):
    """GB/s and CPU seconds for a GB, of the best of three reads."""
    best, gigabytes = (0.0, 0.0), truth.nbytes / 1e9
    for _ in range(3):
        begun, used = time.perf_counter(), cpu_seconds()
        values = read()
        seconds, used = time.perf_counter() - begun, cpu_seconds() - used
        if not np.array_equal(on_host(values), truth):
            raise AssertionError("wrong data")
        best = max(best, (gigabytes / seconds, used / gigabytes))
    return best


def main():
    """Runs the servers, and every reader on every size of chunk."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", nargs="+", default=["cpu"])
    parser.add_argument("--chunk-kib", nargs="+", type=int, default=[64, 1024, 8192])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--json", type=pathlib.Path)
    chosen = parser.parse_args()
    values = np.random.default_rng(SEED).integers(0, 256, chosen.mib << 20, "u1")
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        fork = multiprocessing.get_context("fork")
        servers = [fork.Process(target=serve, args=(port, values), daemon=True) for _ in range(chosen.servers)]
        for server in servers:
            server.start()
        time.sleep(0.5)
        rows = []
        for device in chosen.device:
            for kib in chosen.chunk_kib:
                url, count = f"http://127.0.0.1:{port}/{kib << 10}", (chosen.mib << 10) // kib
                for name, (library, prepare) in ENGINES.items():
                    if importlib.util.find_spec(library) is None or (read := prepare(url, count, device)) is None:
                        continue
                    rate, used = measure(read, values)
                    rows.append({"device": device, "chunk_kib": kib, "engine": name, "gb_s": rate, "cpu_s_per_gb": used})
                    print(f"{device:8} {kib:6} KiB  {name:12} {rate:7.2f} GB/s  {used:6.3f} CPU s/GB", flush=True)
        for server in servers:
            server.terminate()
    if chosen.json:
        chosen.json.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

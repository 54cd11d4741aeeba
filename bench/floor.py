"""What a host lets through on the way from files to GPUs, without any reader: the floor under reads that are not decoded.

    python bench/floor.py [--devices cuda:0 cuda:1] [--threads 16] [--gib 16] [--repeat 3]

GB/s of files that are in memory already, best of the repeats: files into pinned memory, pinned memory into the GPU, and both, where each
thread copies one of two slabs of 16 MiB to the GPU while it reads the other. First one process with a GPU and its threads, then one
for each GPU, all at the same time and with cores of their own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import tempfile
import threading
import time
from typing import Any

SLAB = 16 << 20
FILE = 64 << 20
WAYS = ("files", "bus", "both")


def worker(
    device: str,
    cores: list[int],
    folder: str,
    start: Any,
    results: Any,
    chosen: argparse.Namespace,
) -> None:
    """Copies by this process's threads, each time the others are ready as well."""
    os.sched_setaffinity(0, cores)
    import cupy

    cupy.cuda.Device(int(device.rpartition(":")[2])).use()
    files = [os.open(path, os.O_RDONLY) for path in sorted(pathlib.Path(folder).iterdir())]
    count = chosen.threads
    slabs = [[cupy.cuda.alloc_pinned_memory(SLAB) for _ in range(2)] for _ in range(count)]
    targets = [cupy.empty(2 * SLAB, "u1") for _ in range(count)]
    pieces = [(number, offset) for number in range(len(files)) for offset in range(0, FILE, SLAB)]

    def copy(thread: int, way: str, ready: threading.Barrier) -> None:
        cupy.cuda.Device(int(device.rpartition(":")[2])).use()
        stream, memory = cupy.cuda.Stream(non_blocking=True), slabs[thread]
        events = [stream.record(), stream.record()]
        ready.wait()
        for turn, (number, offset) in enumerate(pieces[thread::count]):
            half = turn % 2
            if way != "files":
                events[half].synchronize()
            if way != "bus":
                os.preadv(files[number], [memoryview(memory[half]).cast("B")[:SLAB]], offset)
            if way != "files":
                target = targets[thread].data.ptr + half * SLAB
                cupy.cuda.runtime.memcpyAsync(target, memory[half].ptr, SLAB, 1, stream.ptr)
                events[half] = stream.record()
        stream.synchronize()

    for way in WAYS:
        for _ in range(chosen.repeat + 1):
            ready = threading.Barrier(count + 1)
            threads = [threading.Thread(target=copy, args=(number, way, ready)) for number in range(count)]
            for thread in threads:
                thread.start()
            start.wait()
            ready.wait()
            begun = time.perf_counter()
            for thread in threads:
                thread.join()
            results.put(len(pieces) * SLAB / (time.perf_counter() - begun) / 1e9)
            start.wait()


def together(devices: list[str], folder: str, chosen: argparse.Namespace) -> dict[str, float]:
    """GB/s of these processes together, by what they do."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(len(devices) + 1), context.Queue()
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // len(chosen.devices)
    processes = [
        context.Process(
            target=worker,
            args=(
                device,
                cores[at * share : (at + 1) * share],
                folder,
                start,
                results,
                chosen,
            ),
            daemon=True,
        )
        for at, device in enumerate(devices)
    ]
    for process in processes:
        process.start()
    best: dict[str, float] = {}
    for way in WAYS:
        for turn in range(chosen.repeat + 1):
            start.wait()
            speed = sum(results.get() for _ in devices)
            best[way] = round(max(best.get(way, 0.0), speed if turn else 0.0), 1)
            start.wait()
    for process in processes:
        process.join()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", nargs="+", default=["cuda:0", "cuda:1"])
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--gib", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        block = os.urandom(FILE)
        for number in range((chosen.gib << 30) // FILE):
            (pathlib.Path(folder) / f"{number:04}").write_bytes(block)
        for devices in dict.fromkeys([tuple(chosen.devices[:1]), tuple(chosen.devices)]):
            print(
                json.dumps(
                    {
                        "devices": devices,
                        "threads": chosen.threads,
                        **together(list(devices), folder, chosen),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()

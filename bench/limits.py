"""What does work out of core take of a GPU: as cuzarr counts it, and as the driver does?

    python bench/limits.py [--device cuda:0] [--gib 2] [--limits "128 MiB" "512 MiB" "1 GiB"] [--folder /dev/shm]

A float32 array in zstd chunks of 4 MiB is rechunked, copied, averaged and computed with within each limit. Each line says the
most bytes that cuzarr had in use (`memory.info().peak`), that its pool held and had pinned, and that the driver had lost,
another thread looking all the time. Run it on a GPU that nobody else uses; results of `compute` are not counted against a limit, and are small here.
"""

import argparse
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import cuzarr

MIB = 1 << 20


class Watched:
    """The least free memory of a device while a block runs, and the most that cuzarr's pool held."""

    def __init__(self, device):
        self.device, self.ended = device, threading.Event()

    def look(self):
        while not self.ended.is_set():
            info = cuzarr.memory.info(self.device)
            self.least = min(self.least, info.free)
            self.held = max(self.held, info.pools["cuzarr"].held)
            self.pinned = max(self.pinned, info.pinned)

    def __enter__(self):
        self.before = self.least = cuzarr.memory.info(self.device).free
        self.held = self.pinned = 0
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    @property
    def taken(self):
        return self.before - self.least


def work(source, folder, device, limit):
    """Names, and what is done."""
    how = {"device": device, "memory_limit": limit}

    def opened():
        return cuzarr.open_array(source, mode="r", device=device)

    def roots():
        array = opened()
        target = cuzarr.create_array(
            folder / "roots",
            shape=array.shape,
            chunks=array.chunks,
            dtype="f4",
            overwrite=True,
        )
        cuzarr.xp.sqrt(array).store(target, **how)

    gzip = [{"name": "gzip", "configuration": {"level": 1}}]
    yield (
        "rechunk",
        lambda: cuzarr.rechunk(source, folder / "series", chunks=(-1, 64, 64), overwrite=True, **how),
    )
    yield (
        "copy to gzip",
        lambda: cuzarr.copy(source, folder / "copy", compressors=gzip, overwrite=True, **how),
    )
    yield "mean over time", lambda: cuzarr.xp.mean(opened(), axis=0).compute(**how)
    yield "mean of all", lambda: cuzarr.xp.mean(opened()).compute(**how)
    yield "square roots", roots


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--limits", nargs="+", default=["128 MiB", "512 MiB", "1 GiB"])
    parser.add_argument("--folder", default="/dev/shm")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        times = max(round(args.gib * 256), 1)
        block = (np.arange(min(times, 64) << 20, dtype="f4") % 1009).reshape(-1, 1024, 1024)
        array = cuzarr.create_array(
            folder / "source",
            shape=(times, 1024, 1024),
            chunks=(1, 1024, 1024),
            dtype="f4",
        )
        for first in range(0, times, len(block)):
            array[first : first + len(block)] = block[: times - first]
        for limit in args.limits:
            for name, run in work(folder / "source", folder, args.device, limit):
                run()  # Loading kernels takes memory that stays.
                cuzarr.memory.empty_cache(args.device)
                cuzarr.memory.reset_peak(args.device)
                start, used = time.perf_counter(), cuzarr.memory.info(args.device).used
                with Watched(args.device) as watched:
                    run()
                peak = cuzarr.memory.info(args.device).peak - used
                seconds = time.perf_counter() - start
                taken = f"{watched.held / MIB:6.0f} held, {watched.taken / MIB:6.0f} of the driver's, {watched.pinned / MIB:6.0f} pinned"
                print(
                    f"{name:16} {limit:>8}: {peak / MIB:6.0f} MiB counted, {taken}, {seconds:5.2f} s",
                    flush=True,
                )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

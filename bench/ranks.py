"""Ranks of one host, each with a GPU and cores of its own, that read arrays at the same time: how much do they read together?

    python bench/ranks.py [--ranks 1 2] [--gib 2] [--threads 4 8 16] [--repeat 5] [--folder /dev/shm] [--record DIR]

Rank `n` is a process with `cuda:n` and its share of the cores, and reads an array of its own whole (float32, chunks of 1 MiB, uncompressed,
Blosc-LZ4 and zstd 3) in files that are in memory. All begin together. GB/s of elements of all ranks together, the best of the repeats, by
the number of threads of each rank (`threading.max_workers`). Every rank compares its last result with the truth. `--record DIR` writes a record.
"""

import argparse
import multiprocessing
import os
import pathlib
import tempfile
import time

import arrays
import numpy as np
from read import Place, write_record

import cuzarr
from cuzarr.codecs import BloscCodec, ZstdCodec

CODECS = {"none": None, "blosc-lz4": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4), "zstd": ZstdCodec(level=3)}


def truth(mib):
    return np.resize(arrays.temperature((256, 512, 512), 1), (mib, 512, 512))


def rank(number, folder, threads, cores, given, start, results):
    """Reads one array after the other, each time the other ranks are ready as well."""
    os.sched_setaffinity(0, cores)
    import cupy

    device = f"cuda:{number}"
    cupy.cuda.Device(number).use()
    expected = cupy.asarray(truth(given.gib << 10))
    with cuzarr.config.set({"threading.max_workers": threads}):
        for codec in CODECS:
            array = cuzarr.open_array(pathlib.Path(folder) / f"{codec}-{number}", mode="r", device=device)
            for turn in range(given.repeat + 1):
                start.wait()
                begun = time.perf_counter()
                result = array[...]
                cupy.cuda.Device(number).synchronize()
                spent = time.perf_counter() - begun
                if turn == given.repeat:
                    assert bool((result == expected).all())
                del result
                results.put((turn, spent))
                start.wait()


def together(ranks, threads, folder, given):
    """GB/s of all ranks together, by codec."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(ranks + 1), context.Queue()
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // max(given.ranks))
    processes = [
        context.Process(
            target=rank,
            args=(number, folder, threads, cores[number * share : (number + 1) * share], given, start, results),
            daemon=True,
        )
        for number in range(ranks)
    ]
    for process in processes:
        process.start()
    best = dict.fromkeys(CODECS, 0.0)
    for codec in CODECS:
        for turn in range(given.repeat + 1):
            start.wait(300)
            longest = max(results.get(timeout=300)[1] for _ in range(ranks))
            if turn:  # the first one starts the device
                best[codec] = max(best[codec], ranks * (given.gib << 30) / longest / 1e9)
            start.wait(300)
    for process in processes:
        process.join()
    return {codec: round(speed, 1) for codec, speed in best.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--gib", type=int, default=2)
    parser.add_argument("--threads", nargs="+", type=int, default=[4, 8, 16])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder")
    parser.add_argument("--record", type=pathlib.Path)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        values = truth(given.gib << 10)
        for codec, value in CODECS.items():
            for number in range(max(given.ranks)):
                cuzarr.create_array(f"{folder}/{codec}-{number}", data=values, chunks=(1, 512, 512), compressors=value)
        for ranks in given.ranks:
            for threads in given.threads:
                rows.append({"ranks": ranks, "threads": threads, **together(ranks, threads, folder, given)})
                print(rows[-1], flush=True)
    if given.record:
        unit = "GB/s of elements of all ranks together, best of the repeats; every last result compared with the truth"
        write_record(given.record, Place("cuda:0"), rows, "ranks", unit)


if __name__ == "__main__":
    main()

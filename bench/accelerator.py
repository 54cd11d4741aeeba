"""Reads into NumPy arrays and writes from them, by the host alone and by a GPU that decodes and encodes for it.

    python bench/accelerator.py [--accelerator cuda:0] [--jobs reads sizes writes] [--threads 16] [--repeat 7]
                                [--mib 512] [--folder DIR] [--record DIR]

`reads` reads arrays in chunks of 1 MiB into a given NumPy array (out) and into fresh memory. `sizes` reads parts of
64 KiB to 512 MiB with 2, 4, 8 and 16 threads, and shows the estimates of both ways. `writes` writes NumPy arrays. `host` has no accelerator, `device` the named
one, `auto` leaves the choice to the costs. The ways take turns. Times are milliseconds, medians of the repeats; every
answer is compared with the truth. `--record DIR` writes a record.
"""

import argparse
import os
import pathlib
import re
import statistics
import tempfile
import time

import arrays
import numpy as np
from read import Place, write_record

import cuzarr
from cuzarr.codecs import BloscCodec, GzipCodec, ZstdCodec

CODECS = {
    "none": None,
    "zstd 3": ZstdCodec(level=3),
    "gzip 5": GzipCodec(level=5),
    "blosc-lz4": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
    "blosc-zstd": BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle", typesize=4),
}
CHUNK = (1, 512, 512)
SIZES_KIB = (64, 1024, 4096, 16384, 65536)


def in_turns(ways, repeat):
    """Medians in milliseconds of several ways to do the same, which take turns."""
    times = {name: [] for name in ways}
    for turn in range(repeat + 1):
        # What runs after a way on the GPU finds the host's caches cold, so the order alternates.
        for name, work in list(ways.items())[:: 1 if turn % 2 else -1]:
            begun = time.perf_counter()
            work()
            if turn:
                times[name].append((time.perf_counter() - begun) * 1e3)
    return {name: statistics.median(of_way) for name, of_way in times.items()}


def opened(path, accelerator):
    ways = {"host": "none", "device": accelerator, "auto": "auto"}
    return {name: cuzarr.open_array(path, mode="r+", accelerator=way) for name, way in ways.items()}


def make(folder, codec, values, chunks=CHUNK):
    path = folder / re.sub(r"\W", "", f"{codec}{chunks}")
    if not path.exists():
        cuzarr.create_array(path, data=values, chunks=chunks, compressors=CODECS[codec])
    return path


def reads(folder, values, given):
    out = np.empty_like(values)
    for codec in CODECS:
        ways = opened(make(folder, codec, values), given.accelerator)
        for array in ways.values():
            np.testing.assert_array_equal(array[...], values)
            out[...] = 0
            array.get_basic_selection(..., out=out)
            np.testing.assert_array_equal(out, values)
        given_out = {name: lambda array=array: array.get_basic_selection(..., out=out) for name, array in ways.items()}
        yield f"{codec}, out", in_turns(given_out, given.repeat)
        fresh = {name: lambda array=array: array[...] for name, array in ways.items()}
        yield f"{codec}, fresh", in_turns(fresh, given.repeat)


def sizes(folder, values, given):
    small = (1, 128, 128)
    for threads in (2, 4, 8, 16):
        if threads > given.threads:
            continue
        with cuzarr.config.set({"threading.max_workers": threads}):
            for codec in CODECS:
                for kib in SIZES_KIB:
                    chunks = CHUNK if kib >= 1024 else small
                    ways = opened(make(folder, codec, values[: 1 if kib < 1024 else None], chunks), given.accelerator)
                    box = np.s_[: kib // 1024] if kib >= 1024 else np.s_[:1, :128, :128]
                    for array in ways.values():
                        np.testing.assert_array_equal(array[box], values[box])
                    jobs = {name: lambda array=array, box=box: array[box] for name, array in ways.items()}
                    yield f"{codec}, {kib} KiB, {threads} threads", in_turns(jobs, given.repeat)


def writes(folder, values, given):
    for codec in CODECS:
        path = make(folder, codec, values)
        jobs = {}
        for name, array in opened(path, given.accelerator).items():
            array[...] = 0
            array[...] = values
            np.testing.assert_array_equal(cuzarr.open_array(path, mode="r")[...], values)
            jobs[name] = lambda array=array: array.set_basic_selection(..., values)
        yield f"{codec}, written", in_turns(jobs, max(given.repeat // 2, 1))


JOBS = {"reads": reads, "sizes": sizes, "writes": writes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerator", default="cuda:0")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path)
    given = parser.parse_args()
    values, rows = arrays.temperature((given.mib, 512, 512), 1), []
    # The context exists from now on, so that `auto` weighs costs alone.
    cuzarr.xp.zeros(1, device=given.accelerator)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for job in given.jobs:
            for what, times in JOBS[job](pathlib.Path(folder), values, given):
                shown = "  ".join(f"{name} {milliseconds:8.2f}" for name, milliseconds in times.items())
                print(f"{what:34} {shown}  ratio {times['device'] / times['host']:.2f}", flush=True)
                rows.append({"job": what, **{name: round(one, 3) for name, one in times.items()}})
    if given.record:
        unit = "milliseconds, medians of the repeats; every answer compared with the truth"
        write_record(given.record, Place(given.accelerator), rows, "accelerator", unit)


if __name__ == "__main__":
    main()

"""Maps become time series: `cuzarr.rechunk` beside dask with zarr-python, and `rechunker` where it is installed.

    python bench/rechunk.py [--gib 8] [--rival-gib 1] [--memory-limit "8 GiB"] [--device cuda:0] [--directory /tmp/rechunk]

The array is float32, (time, 1024, 1024) in chunks of one time, zstd; the result has chunks of all times by 32 x 32, zstd. The
rivals get fewer times of the same maps, because they need so much longer; all are compared in GB/s of elements. Answers are
checked, element by element. Files are in the page cache.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

import numpy as np

import cuzarr

MAP = (1024, 1024)
CHUNK = (1, *MAP)
MAP_BYTES = MAP[0] * MAP[1] * 4


def make_source(place, times):
    """Eight kinds of maps, each shifted by its number, so that every element is known."""
    generator = np.random.default_rng(1)
    kinds = np.round(280 + 20 * generator.standard_normal((8, *MAP), dtype="f4"), 1)
    array = cuzarr.create_array(
        place,
        shape=(times, *MAP),
        chunks=CHUNK,
        dtype="float32",
        compressors=cuzarr.codecs.ZstdCodec(level=1),
        overwrite=True,
    )
    for first in range(0, times, 64):
        count = min(64, times - first)
        block = np.concatenate([kinds] * 8)[:count] + np.float32(first // 8)
        array[first : first + count] = block
    return kinds


def check(place, kinds, times):
    """Reads the result back, and compares all of it with what was made."""
    array = cuzarr.open_array(place, mode="r", device="cpu")
    assert array.shape == (times, *MAP) and array.chunks == (times, 32, 32), (
        array.shape,
        array.chunks,
    )
    shift = (np.arange(times) // 64 * 8).astype("f4")
    for row in range(0, MAP[0], 128):
        got = array[:, row : row + 128]
        for at in range(8):
            expected = kinds[at, row : row + 128] + shift[at::8, None, None]
            assert np.array_equal(got[at::8], expected), f"{place}: rows from {row}, maps {at}"


def by_cuzarr(source, target, times, args):
    cuzarr.rechunk(
        source,
        target,
        chunks=(-1, 32, 32),
        overwrite=True,
        memory_limit=args.memory_limit,
        device=args.device,
    )


def by_dask(source, target, times, args):
    import dask.array
    import zarr

    lazy = dask.array.from_zarr(zarr.open_array(source, mode="r")).rechunk((times, 32, 32))
    shutil.rmtree(target, ignore_errors=True)
    out = zarr.create_array(
        target,
        shape=lazy.shape,
        chunks=(times, 32, 32),
        dtype="f4",
        compressors=zarr.codecs.ZstdCodec(level=1),
    )
    dask.array.store(lazy, out, lock=False)


def by_rechunker(source, target, times, args):
    import rechunker
    import zarr

    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(f"{target}-between", ignore_errors=True)
    plan = rechunker.rechunk(
        zarr.open_array(source, mode="r"),
        (times, 32, 32),
        "1GB",
        str(target),
        temp_store=f"{target}-between",
    )
    plan.execute()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--rival-gib", type=float, default=1)
    parser.add_argument("--memory-limit", default="8 GiB")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--directory", type=Path, default=Path("/tmp/cuzarr-rechunk"))
    parser.add_argument("--no-rivals", action="store_true")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    rates = {}

    def clock(name, run, source, times, kinds):
        target = args.directory / name
        start = time.perf_counter()
        run(source, target, times, args)
        seconds = time.perf_counter() - start
        check(target, kinds, times)
        rates[name] = times * MAP_BYTES / 1e9 / seconds
        print(
            f"{name:10} {times * MAP_BYTES / 2**30:5.1f} GiB {seconds:7.2f} s {rates[name]:7.3f} GB/s",
            flush=True,
        )
        shutil.rmtree(target)

    rounded = {
        name: max(8, round(gib * 2**30 / MAP_BYTES / 64) * 64) for name, gib in (("own", args.gib), ("rival", args.rival_gib))
    }
    source = args.directory / "source"
    kinds = make_source(source, rounded["own"])
    plan = cuzarr.rechunk(
        source,
        args.directory / "cuzarr",
        chunks=(-1, 32, 32),
        memory_limit=args.memory_limit,
        device=args.device,
        dry_run=True,
    )
    print(plan)
    clock("cuzarr", by_cuzarr, source, rounded["own"], kinds)
    if not args.no_rivals:
        few = args.directory / "few"
        kinds = make_source(few, rounded["rival"])
        clock("dask", by_dask, few, rounded["rival"], kinds)
        try:
            import rechunker  # noqa: F401
        except ImportError:
            print("rechunker: not installed")
        else:
            clock("rechunker", by_rechunker, few, rounded["rival"], kinds)
        best = max(rate for name, rate in rates.items() if name != "cuzarr")
        print(f"cuzarr is {rates['cuzarr'] / best:.1f} times as fast as the best of the others")
    print(
        json.dumps(
            {
                "device": args.device,
                "cores": os.cpu_count(),
                "gigabytes_per_second": rates,
            }
        )
    )
    shutil.rmtree(args.directory)


if __name__ == "__main__":
    main()

"""One worker of a dask cluster, then several, each with a GPU (or cores) of its own: a read, a rechunk and a reduction.

    python bench/cluster.py [--gib 128] [--rechunk-gib 16] [--workers 1 2] [--cores 16] [--repeat 3] [--device cuda]
                            [--directory /dev/shm/cluster]

The array is float32, (time, 1024, 1024) in chunks of one time, zstd. Its maps repeat: files behind the first `--rechunk-gib` are links
to those. Every worker has as many cores as `--cores` says, so that two workers have twice what one has. A read brings every block to
the worker's device and lets it go. The reduction is the mean over time. The rechunk takes the array's first part into chunks of
64 x 128 x 128. Answers are checked. A line of JSON for each case and number of workers: seconds (the best of the turns, of which
the first one is not counted) and GB/s of elements. Files are in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Nanny, Scheduler, SpecCluster

import cuzarr
import cuzarr.dask

MAP = (1024, 1024)
MAP_BYTES = MAP[0] * MAP[1] * 4
BLOCK = 64


def make_part(place: Path, times: int) -> np.ndarray:
    """Eight kinds of maps, each shifted by its number, so that every element is known."""
    generator = np.random.default_rng(1)
    kinds = np.round(280 + 20 * generator.standard_normal((8, *MAP), dtype="f4"), 1)
    array = create(place, times)
    for first in range(0, times, BLOCK):
        array[first : first + BLOCK] = np.concatenate([kinds] * (BLOCK // 8)) + np.float32(first // 8)
    return kinds


def make_source(place: Path, times: int, part: Path, distinct: int) -> None:
    """The maps of the part, over and over, as links to its files."""
    create(place, times)
    for number in range(times):
        (place / f"c/{number}/0").mkdir(parents=True)
        os.link(part / f"c/{number % distinct}/0/0", place / f"c/{number}/0/0")


def create(place: Path, times: int) -> cuzarr.Array:
    codec = cuzarr.codecs.ZstdCodec(level=1)
    return cuzarr.create_array(place, shape=(times, *MAP), chunks=(1, *MAP), dtype="f4", compressors=codec)


def shifts(times: int, distinct: int) -> np.ndarray:
    """What the maps of each block are shifted by."""
    return np.arange(0, times, BLOCK) % distinct // 8


def last_of(block: Any) -> np.ndarray:
    """One element of a block that was read whole, so that nothing but the read takes time."""
    last = block[-1:, -1:, -1:]
    return last.get() if hasattr(last, "get") else np.asarray(last)


class Data(NamedTuple):
    """The arrays of a run, and what is known of them."""

    source: Path
    part: Path
    target: Path
    kinds: np.ndarray
    distinct: int
    device: str


def read(client: Client, data: Data) -> Callable[[], None]:
    stored = cuzarr.open_array(data.source, mode="r", device=data.device)
    lasts = cuzarr.dask.from_cuzarr(stored, chunks=(4 * BLOCK, *MAP)).map_blocks(
        last_of, chunks=(1, 1, 1), meta=np.empty((0, 0, 0), "f4")
    )
    got = client.compute(lasts).result()
    expected = data.kinds[7, -1, -1] + shifts(stored.shape[0], data.distinct)[3::4].astype("f4")
    return lambda: np.testing.assert_array_equal(got.ravel(), expected)


def rechunk(client: Client, data: Data) -> Callable[[], None]:
    cuzarr.rechunk(
        data.part,
        data.target,
        chunks=(BLOCK, 128, 128),
        device=data.device,
        client=client,
    )

    def check() -> None:
        old, new = (cuzarr.open_array(path, mode="r", device="cpu") for path in (data.part, data.target))
        assert new.chunks == (BLOCK, 128, 128)
        for first in range(0, old.shape[0], 8 * BLOCK):
            np.testing.assert_array_equal(new[first : first + 8], old[first : first + 8])

    return check


def mean(client: Client, data: Data) -> Callable[[], None]:
    array = cuzarr.open_array(data.source, mode="r", device=data.device)
    got = cuzarr.xp.mean(array, axis=0).compute(client=client)
    expected = data.kinds.mean(axis=0, dtype="f8") + shifts(array.shape[0], data.distinct).mean()
    return lambda: np.testing.assert_allclose(got, expected, rtol=1e-5)


CASES = {"read": read, "rechunk": rechunk, "mean": mean}


def cluster_of(workers: int, cores: int, device: str) -> SpecCluster:
    """Workers in processes of their own, each with a GPU that the others do not see, and its share of the cores."""

    def options(number: int) -> dict[str, Any]:
        own = {} if device == "cpu" else {"CUDA_VISIBLE_DEVICES": str(number)}
        return {
            "nthreads": 2,
            "memory_limit": 0,
            "env": {**own, "CUZARR_THREADING__MAX_WORKERS": str(cores)},
        }

    specs = {number: {"cls": Nanny, "options": options(number)} for number in range(workers)}
    return SpecCluster(workers=specs, scheduler={"cls": Scheduler, "options": {"dashboard": False}})


def maps(gib: float) -> int:
    """Maps of so many GiB, in whole blocks of a read."""
    return max(1, round(gib * 2**30 / MAP_BYTES / (4 * BLOCK))) * 4 * BLOCK


def measure(name: str, workers: int, client: Client, data: Data, repeat: int) -> None:
    """Runs a case several times, and prints its line."""
    seconds = []
    for turn in range(repeat + 1):
        shutil.rmtree(data.target, ignore_errors=True)
        begun = time.perf_counter()
        check = CASES[name](client, data)
        seconds.append(time.perf_counter() - begun)
        if turn == 0:
            check()
    best = min(seconds[1:])
    size = cuzarr.open_array(data.part if name == "rechunk" else data.source, mode="r").nbytes
    row = {
        "case": name,
        "workers": workers,
        "seconds": round(best, 3),
        "all": [round(one, 3) for one in seconds],
    }
    print(
        json.dumps(
            {
                **row,
                "gigabytes": round(size / 1e9, 1),
                "gigabytes_per_s": round(size / best / 1e9, 2),
            }
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=128)
    parser.add_argument("--rechunk-gib", type=float, default=16)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm/cuzarr-cluster"))
    args = parser.parse_args()
    distinct = maps(args.rechunk_gib)
    times = max(maps(args.gib), distinct)
    shutil.rmtree(args.directory, ignore_errors=True)
    args.directory.mkdir(parents=True)
    source, part, target = (args.directory / name for name in ("source", "part", "target"))
    try:
        kinds = make_part(part, distinct)
        make_source(source, times, part, distinct)
        data = Data(source, part, target, kinds, distinct, args.device)
        for workers in args.workers:
            with (
                cluster_of(workers, args.cores, args.device) as cluster,
                Client(cluster) as client,
            ):
                client.wait_for_workers(workers)
                for name in args.cases:
                    measure(name, workers, client, data, args.repeat)
    finally:
        shutil.rmtree(args.directory, ignore_errors=True)


if __name__ == "__main__":
    main()

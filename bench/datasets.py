"""Many arrays by one call beside the same bytes in one array: variables of a data set, crops of many volumes, small boxes, small arrays.

    python bench/datasets.py [--device cuda:0] [--jobs variables writes crops again boxes small streams] [--repeat 7] [--folder DIR] [--record DIR]

`variables` reads 8 MiB of each of 24 arrays: one by one, by 8 threads, by `Group.read`, and as one box of as many bytes; `writes` writes them. `crops` reads 256 boxes of
48³ from 64 volumes of unequal shapes by `cuzarr.read_many`, and from one volume by `Array.read_many`. `again` reads 200 crops of 4 × 64 × 64 one by one,
whose chunks overlap, without the chunk cache, with an empty one, and with one that has the chunks. `boxes` reads 4,096 boxes of 500 elements
in 64 chunks of one array by `Array.read_many`, `Array.read_boxes` and `Array.read_ragged`. `small` reads 1,000 scalars and small coordinates by `Group.read`, and one by one. `streams` takes an epoch of 512
crops of 64³ in batches of 32 from 64 stores of zstd and Blosc-zstd with volumes of unequal shapes: by `cuzarr.loader.SampleStream`, and, where they are installed, by
tensorstore and by 16 threads over zarr-python's fused pipeline, which read two batches ahead as well and upload them. Chunks are about
1 MiB of float32 (of uint16 in `streams`), zstd 3, in files that are in the page cache. Times are milliseconds, medians of the repeats; every answer is compared with the truth.
`--record DIR` writes a record.
"""

import argparse
import importlib.util
import pathlib
import random
import statistics
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import arrays
import numpy as np
from read import Place, write_record

import cuzarr
from cuzarr.codecs import BloscCodec, ZstdCodec
from cuzarr.loader import SampleStream

ZSTD = ZstdCodec(level=3)


def measured(place, repeat, work):
    """Milliseconds of some work, and its result."""
    times = []
    result = work()
    for _ in range(repeat):
        place.wait()
        begun = time.perf_counter()
        result = work()
        place.wait()
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times), result


def check(results, truths):
    for result, truth in zip(results, truths, strict=True):
        np.testing.assert_array_equal(cuzarr.xp.asnumpy(result), truth)


def variables(folder, place, repeat):
    values = arrays.temperature((24 * 8, 512, 512), 1)
    group = cuzarr.create_group(folder / "variables")
    names = [f"v{number:02}" for number in range(24)]
    for number, name in enumerate(names):
        part = values[8 * number : 8 * number + 8]
        group.create_array(
            name,
            data=part,
            chunks=(1, 512, 512),
            compressors=[ZSTD],
            dimension_names=("time", "y", "x"),
        )
    group.create_array("all", data=values, chunks=(1, 512, 512), compressors=[ZSTD])
    group = cuzarr.open_group(folder / "variables", device=place.device)
    opened, whole = [group[name] for name in names], group["all"]
    truths = np.split(values, 24)
    with ThreadPoolExecutor(8) as pool:
        jobs = {
            "one box": lambda: [whole[...]],
            "one by one": lambda: [array[...] for array in opened],
            "by 8 threads": lambda: list(pool.map(lambda array: array[...], opened)),
            "read_many": lambda: cuzarr.read_many([(array, ...) for array in opened]),
            "Group.read": lambda: list(group.read(names, {"time": slice(None)}).values()),
        }
        for name, work in jobs.items():
            milliseconds, results = measured(place, repeat, work)
            check(results, [values] if name == "one box" else truths)
            yield "24 variables of 8 MiB", name, milliseconds


def writes(folder, place, repeat):
    values = arrays.temperature((24 * 8, 512, 512), 1)
    group = cuzarr.create_group(folder / "written")
    made = [
        group.create_array(
            f"v{number:02}",
            shape=(8, 512, 512),
            dtype="f4",
            chunks=(1, 512, 512),
            compressors=[ZSTD],
        )
        for number in range(24)
    ]
    whole = group.create_array("all", shape=values.shape, dtype="f4", chunks=(1, 512, 512), compressors=[ZSTD])
    box = cuzarr.xp.asarray(values, device=place.device)
    parts = [box[8 * number : 8 * number + 8] for number in range(24)]

    def by_threads(pool):
        list(
            pool.map(
                lambda pair: pair[0].set_basic_selection(..., pair[1]),
                zip(made, parts, strict=True),
            )
        )

    def one_by_one():
        for array, part in zip(made, parts, strict=True):
            array[...] = part

    with ThreadPoolExecutor(8) as pool:
        jobs = {
            "one box": lambda: whole.set_basic_selection(..., box),
            "one by one": one_by_one,
            "by 8 threads": lambda: by_threads(pool),
            "write_many": lambda: cuzarr.write_many([(array, ..., part) for array, part in zip(made, parts, strict=True)]),
        }
        for name, work in jobs.items():
            milliseconds, _ = measured(place, repeat, work)
            check(
                [whole[...]] if name == "one box" else [array[...] for array in made],
                [values] if name == "one box" else np.split(values, 24),
            )
            for array in made:
                array[...] = 0
            yield "24 variables written", name, milliseconds


def crops(folder, place, repeat):
    dice = random.Random(2)
    group = cuzarr.create_group(folder / "volumes")
    truths, opened = [], []
    for number in range(64):
        shape = tuple(64 + 16 * dice.randrange(4) for _ in range(3))
        truths.append(arrays.temperature(shape, number))
        group.create_array(f"v{number}", data=truths[-1], chunks=(64, 64, 64), compressors=[ZSTD])
    group.create_array(
        "one",
        data=arrays.temperature((256, 256, 256), 64),
        chunks=(64, 64, 64),
        compressors=[ZSTD],
    )
    group = cuzarr.open_group(folder / "volumes", device=place.device)
    opened, one = [group[f"v{number}"] for number in range(64)], group["one"]
    boxes = []
    for _ in range(256):
        number = dice.randrange(64)
        boxes.append(
            (
                number,
                tuple(slice(at := dice.randrange(extent - 47), at + 48) for extent in truths[number].shape),
            )
        )
    of_one = [tuple(slice(at := dice.randrange(209), at + 48) for _ in range(3)) for _ in range(256)]
    milliseconds, _ = measured(place, repeat, lambda: one.read_many(of_one))
    yield "256 crops of 48³", "from one volume", milliseconds
    pairs = [(opened[number], box) for number, box in boxes]
    milliseconds, results = measured(place, repeat, lambda: cuzarr.read_many(pairs))
    check(results, [truths[number][box] for number, box in boxes])
    yield "256 crops of 48³", "from 64 volumes", milliseconds
    milliseconds, _ = measured(place, repeat, lambda: [array[box] for array, box in pairs])
    yield "256 crops of 48³", "one by one", milliseconds


def again(folder, place, repeat):
    values = arrays.temperature((64, 512, 512), 5)
    path = folder / "again"
    cuzarr.create_array(path, data=values, chunks=(8, 128, 256), compressors=[ZSTD])
    time.sleep(2.5)  # chunks that changed a moment ago are not kept
    rng = random.Random(6)
    starts = [(rng.randrange(61), rng.randrange(449), rng.randrange(449)) for _ in range(200)]
    boxes = [tuple(slice(at, at + extent) for at, extent in zip(start, (4, 64, 64), strict=True)) for start in starts]
    truths = [values[box] for box in boxes]

    def read(array):
        return [array[box] for box in boxes]

    def empty():
        cuzarr.memory.empty_cache(place.device)
        return read(kept)

    plain = cuzarr.open_array(path, mode="r", device=place.device)
    kept = cuzarr.open_array(path, mode="r", device=place.device, chunk_cache=True)
    jobs = {
        "without cache": lambda: read(plain),
        "with an empty one": empty,
        "with a full one": lambda: read(kept),
    }
    for name, job in jobs.items():
        milliseconds, results = measured(place, repeat, job)
        check(results, truths)
        yield "200 crops one by one", name, milliseconds


def small_boxes(folder, place, repeat):
    dice = random.Random(3)
    values = arrays.temperature((64, 512, 512), 3).ravel()
    cuzarr.create_array(folder / "row", data=values, chunks=(1 << 18,), compressors=[ZSTD])
    array = cuzarr.open_array(folder / "row", device=place.device)
    boxes = [slice(at := dice.randrange(values.size - 500), at + 500) for _ in range(4096)]
    milliseconds, results = measured(place, repeat, lambda: array.read_many(boxes))
    check(results, [values[box] for box in boxes])
    yield "4,096 boxes of 500", "read_many", milliseconds
    starts = np.array([box.start for box in boxes])
    milliseconds, results = measured(place, repeat, lambda: array.read_boxes(starts, 500))
    check(results, [values[box] for box in boxes])
    yield "4,096 boxes of 500", "read_boxes", milliseconds
    milliseconds, (results, _) = measured(place, repeat, lambda: array.read_ragged(starts, np.full(4096, 500)))
    check([results], [np.concatenate([values[box] for box in boxes])])
    yield "4,096 boxes of 500", "read_ragged", milliseconds


def small_arrays(folder, place, repeat):
    group = cuzarr.create_group(folder / "small")
    for number in range(1000):
        shape = () if number % 2 else (number % 50 + 1,)
        group.create_array(f"a{number}", data=np.full(shape, number, "f4"))
    group = cuzarr.open_group(folder / "small", device=place.device)
    opened = dict(group.arrays())
    truths = [np.full(array.shape, int(name[1:]), "f4") for name, array in opened.items()]
    pairs = [(array, ...) for array in opened.values()]
    for name, work in {
        "read_many": lambda: cuzarr.read_many(pairs),
        "one by one": lambda: [array[...] for array in opened.values()],
    }.items():
        milliseconds, results = measured(place, repeat, work)
        check(results, truths)
        yield "1,000 small arrays", name, milliseconds


CROP, BATCH, AHEAD, WORKERS = 64, 32, 2, 16


def stream_of_cuzarr(paths, crops, place):
    opened = [cuzarr.open_array(path, device=place.device) for path in paths]
    stream = SampleStream([{"crop": (opened[number], box)} for number, box in crops], BATCH, AHEAD)
    return lambda: (batch["crop"] for batch in stream)


def stream_of_tensorstore(paths, crops, place):
    import tensorstore

    specs = [{"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}} for path in paths]
    opened = [tensorstore.open(spec, read=True).result() for spec in specs]
    return lambda: read_ahead(crops, lambda number, box: opened[number][box].read(), place)


def stream_of_zarr(paths, crops, place):
    import zarr

    with zarr.config.set(
        {
            "codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline",
            "threading.max_workers": WORKERS,
        }
    ):
        opened = [zarr.open_array(path, mode="r") for path in paths]
    pool = ThreadPoolExecutor(WORKERS)
    return lambda: read_ahead(crops, lambda number, box: pool.submit(opened[number].__getitem__, box), place)


def read_ahead(crops, begin, place):
    """Batches of crops that a peer reads ahead, and that are uploaded."""
    begun = deque()
    for first in range(0, len(crops), BATCH):
        begun.append([begin(number, box) for number, box in crops[first : first + BATCH]])
        if len(begun) > AHEAD:
            yield place.hold(np.stack([one.result() for one in begun.popleft()]))
    while begun:
        yield place.hold(np.stack([one.result() for one in begun.popleft()]))


STREAMS = {
    "SampleStream": ("cuzarr", stream_of_cuzarr),
    "tensorstore": ("tensorstore", stream_of_tensorstore),
    "zarr-python fused": ("zarr", stream_of_zarr),
}


def streams(folder, place, repeat):
    dice = random.Random(4)
    paths, truths = [], []
    for number in range(64):
        shape = tuple(96 + 32 * dice.randrange(4) for _ in range(3))
        truths.append(arrays.counts(shape, number))
        paths.append(folder / f"stream-{number}.zarr")
        codec = ZSTD if number % 2 else BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle", typesize=2)
        cuzarr.create_array(paths[-1], data=truths[-1], chunks=(64, 64, 128), compressors=[codec])
    crops = []
    for _ in range(512):
        number = dice.randrange(64)
        starts = [dice.randrange(extent - CROP + 1) for extent in truths[number].shape]
        crops.append((number, tuple(slice(at, at + CROP) for at in starts)))
    for name, (package, make) in STREAMS.items():
        if importlib.util.find_spec(package) is None:
            continue
        epoch = make(paths, crops, place)
        for first, batch in zip(range(0, len(crops), BATCH), epoch(), strict=True):
            check(
                batch,
                [truths[number][box] for number, box in crops[first : first + BATCH]],
            )
        milliseconds, count = measured(place, repeat, lambda epoch=epoch: sum(len(batch) for batch in epoch()))
        assert count == len(crops)
        yield "512 crops of 64 stores", name, milliseconds


JOBS = {
    "variables": variables,
    "writes": writes,
    "crops": crops,
    "again": again,
    "boxes": small_boxes,
    "small": small_arrays,
    "streams": streams,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path)
    given = parser.parse_args()
    place, rows = Place(given.device), []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for job in given.jobs:
            for what, how, milliseconds in JOBS[job](pathlib.Path(folder), place, given.repeat):
                print(f"{what:24} {how:18} {milliseconds:9.2f} ms", flush=True)
                rows.append({"job": what, "by": how, "milliseconds": round(milliseconds, 3)})
    if given.record:
        unit = "milliseconds, medians of the repeats; every answer compared with the truth"
        write_record(given.record, place, rows, "datasets", unit)


if __name__ == "__main__":
    main()

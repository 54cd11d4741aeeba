"""How long does a viewer wait for a plane? Random planes of a sharded volume along each axis, as a person drags a slider.

    python bench/planes.py [--device cpu] [--shape 256,512,512] [--chunk 64] [--shard 256] [--turns 60] [--codecs blosc-lz4 zstd3 none] [--record FOLDER]

Milliseconds from the call to the plane in memory of the device, best, median and 90th percentile, every plane compared with the truth
outside the clock. The arrays are open, their files in the page cache, and no engine keeps decoded chunks. In each turn all engines read the same
plane, one after the other in changing order. Elements are uint16, like a microscope's.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
import time
from typing import Any

import arrays
import engines
import numpy as np
import read

import cuzarr
from cuzarr.codecs import BloscCodec, BytesCodec, ZstdCodec

CODECS = {
    "blosc-lz4": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=2),
    "zstd3": ZstdCodec(level=3),
    "none": None,
}
AXES = "zyx"


def opened(path: str, device: str) -> dict[str, Any]:
    """What reads one plane, for each engine that is here."""
    ours = cuzarr.open_array(path, mode="r", device=device)
    found = {"cuzarr": lambda place: ours[place]}
    names = engines.available("cpu")
    if "tensorstore" in names:
        import tensorstore

        theirs = tensorstore.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}, read=True).result()
        found["tensorstore"] = lambda place: engines._placed(theirs[place].read().result(), device)
    if "zarr" in names:
        import zarr

        plain = zarr.open_array(path, mode="r")
        found["zarr"] = lambda place: engines._placed(plain[place], device)
    return found


def measured(path: str, truth: np.ndarray[Any, Any], place: read.Place, turns: int) -> list[dict[str, Any]]:
    """A row for each axis."""
    readers, random, rows = opened(path, place.device), np.random.default_rng(3), []
    for axis, name in enumerate(AXES):
        seconds: dict[str, list[float]] = {engine: [] for engine in readers}
        for turn in range(turns + 3):
            number = int(random.integers(truth.shape[axis]))
            plane = (slice(None),) * axis + (number,)
            for engine in random.permutation(list(readers)):
                begun = time.perf_counter()
                values = readers[engine](plane)
                place.wait()
                taken = time.perf_counter() - begun
                if not place.same(values, place.hold(truth[plane])):
                    raise AssertionError(f"{engine}: wrong plane {name}={number}")
                if turn >= 3:  # the first read what all later ones keep: the indexes of shards
                    seconds[engine].append(taken)
        row: dict[str, Any] = {"axis": name}
        for engine, all_of_them in seconds.items():
            row[engine] = [round(1e3 * float(np.percentile(all_of_them, part)), 2) for part in (0, 50, 90)]
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", default="256,512,512")
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--shard", type=int, default=256)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--codecs", nargs="+", choices=list(CODECS), default=list(CODECS))
    parser.add_argument(
        "--directory",
        help="where the volume is written; by default among temporary files",
    )
    parser.add_argument("--record", help="the folder of a record")
    args = parser.parse_args()
    truth = arrays.counts(tuple(map(int, args.shape.split(","))), 1)
    place, rows = read.Place(args.device), []
    for codec in args.codecs:
        with tempfile.TemporaryDirectory(dir=args.directory) as folder:
            path = str(pathlib.Path(folder) / "volume.zarr")
            layout = {
                "chunks": (args.chunk,) * 3,
                "shards": tuple(min(args.shard, extent) for extent in truth.shape),
            }
            made = cuzarr.create_array(
                path,
                data=truth,
                compressors=CODECS[codec],
                serializer=BytesCodec(),
                device="cpu",
                **layout,
            )
            ratio = round(truth.nbytes / made.nbytes_stored(), 2)
            for row in measured(path, truth, place, args.turns):
                rows.append({"codec": codec, "ratio": ratio, **row})
                print(rows[-1], flush=True)
    if args.record:
        unit = "milliseconds from the call to the plane: best, median, 90th percentile; every plane compared with the truth"
        read.write_record(args.record, place, rows, "planes", unit)
    return 0


if __name__ == "__main__":
    sys.exit(main())

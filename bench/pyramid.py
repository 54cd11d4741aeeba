"""An image of a microscope becomes an OME-Zarr pyramid: `cuzarr.pyramid` on a GPU and on the host's cores, beside `ome-zarr`.

    python bench/pyramid.py [--shape 30 15000 15000] [--rival-planes 2] [--devices cuda cpu] [--directory /dev/shm/pyramid]

The image is uint16, (z, y, x) in chunks of 1 x 1024 x 1024, Blosc (LZ4, shuffle). Levels halve y and x until no side is above 256. The rival
gets fewer planes, because it needs so much longer; all are compared in GB/s of the image. The levels of cuzarr are compared with
means of whole boxes, computed by NumPy. Files are in memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import cuzarr

CHUNKS = (1, 1024, 1024)


def make_source(place: Path, shape: tuple[int, ...]) -> None:
    """Counts of photons around spots; planes differ by a shift."""
    generator = np.random.default_rng(3)
    y, x = (np.arange(extent, dtype="f4") for extent in shape[1:])
    light = 200 + 1500 * np.outer(np.sin(y / 300) ** 8, np.sin(x / 200) ** 8)
    noise = generator.standard_normal((1024, 1024), dtype="f4")
    rows, columns = (-(-extent // 1024) for extent in shape[1:])
    plane = light + np.tile(noise, (rows, columns))[: shape[1], : shape[2]] * np.sqrt(light)
    plane = plane.clip(0).astype("u2")
    codec = cuzarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=2)
    array = cuzarr.create_array(
        place,
        shape=shape,
        chunks=CHUNKS,
        dtype="u2",
        compressors=codec,
        dimension_names=("z", "y", "x"),
    )
    for number in range(shape[0]):
        array[number] = np.roll(plane, 37 * number, axis=1)


def halved(plane: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 elements, rounded half to even as those of integers are; what is over at the ends is left out."""
    rows, columns = (extent // 2 for extent in plane.shape)
    boxes = plane[: 2 * rows, : 2 * columns].reshape(rows, 2, columns, 2)
    return np.rint(boxes.mean(axis=(1, 3), dtype="f8")).astype(plane.dtype)


def check(target: Path, source: Path) -> int:
    """Compares the first two levels of a plane with NumPy's, and the first level with the source. Returns the number of levels."""
    group = cuzarr.open_group(target, mode="r")
    stored = cuzarr.open_array(source, mode="r", device="cpu")
    for number in (0, stored.shape[0] - 1):
        plane, first, second = (level[number] for level in (stored, group["0"], group["1"]))
        np.testing.assert_array_equal(first, plane)
        expected = halved(plane)
        part = second[: expected.shape[0], : expected.shape[1]]
        assert np.abs(part.astype("i4") - expected.astype("i4")).max() <= 1
    return len(list(group.array_keys()))


def by_cuzarr(device: str) -> Callable[[Path, Path], None]:
    def run(source: Path, target: Path) -> None:
        cuzarr.pyramid(source, target, factors={"y": 2, "x": 2}, device=device)

    return run


def by_ome_zarr(source: Path, target: Path) -> None:
    import dask.array
    import zarr
    from ome_zarr.scale import Scaler
    from ome_zarr.writer import write_image

    image = dask.array.from_zarr(zarr.open_array(source, mode="r"))
    levels = int(np.ceil(np.log2(max(image.shape[1:]) / 256)))
    codec = zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=2)
    write_image(
        image=image, group=zarr.open_group(target, mode="w"), scaler=Scaler(method="resize_image", max_layer=levels), axes="zyx",
        storage_options={"chunks": CHUNKS, "compressors": [codec]},
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=3, default=[30, 15000, 15000])
    parser.add_argument("--rival-planes", type=int, default=2)
    parser.add_argument("--devices", nargs="+", default=["cuda", "cpu"])
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm/cuzarr-pyramid"))
    args = parser.parse_args()
    shutil.rmtree(args.directory, ignore_errors=True)
    args.directory.mkdir(parents=True)

    def clock(
        name: str,
        run: Callable[[Path, Path], Any],
        source: Path,
        repeat: int,
        is_ours: bool,
    ) -> None:
        seconds, target = [], args.directory / "target"
        for _ in range(repeat):
            shutil.rmtree(target, ignore_errors=True)
            begun = time.perf_counter()
            run(source, target)
            seconds.append(time.perf_counter() - begun)
        stored = cuzarr.open_array(source, mode="r")
        levels = check(target, source) if is_ours else len(list(cuzarr.open_group(target, mode="r").array_keys()))
        row = {
            "engine": name,
            "shape": list(stored.shape),
            "levels": levels,
            "seconds": [round(one, 2) for one in seconds],
        }
        print(
            json.dumps({**row, "gigabytes_per_s": round(stored.nbytes / min(seconds) / 1e9, 2)}),
            flush=True,
        )

    try:
        source = args.directory / "source"
        make_source(source, tuple(args.shape))
        for device in args.devices:
            clock(f"cuzarr, {device}", by_cuzarr(device), source, args.repeat, True)
        if args.rival_planes:
            few = args.directory / "few"
            make_source(few, (args.rival_planes, *args.shape[1:]))
            try:
                clock("ome-zarr", by_ome_zarr, few, 1, False)
            except ImportError as error:
                print(json.dumps({"engine": "ome-zarr", "skipped": str(error)}))
    finally:
        shutil.rmtree(args.directory, ignore_errors=True)


if __name__ == "__main__":
    main()

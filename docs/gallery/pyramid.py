"""An OME-Zarr image of several scales

A microscope's image is too large to be looked at whole. `pyramid` makes smaller copies of it, each half as wide and high, and writes
them as OME-Zarr 0.5, which napari, Fiji and web viewers open. Bright spots survive with `method="max"`.
"""

import argparse
import tempfile

import numpy as np

import cuzarr


def make_image(folder, size):
    """Cells: bright rings and nuclei on a dark ground, as 16-bit integers."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:size, :size].astype("float32")
    image = rng.normal(300, 30, (size, size)).astype("float32")
    for _ in range(size // 6):
        cy, cx, radius = rng.uniform(0, size), rng.uniform(0, size), rng.uniform(8, 22)
        top, left = int(max(cy - 40, 0)), int(max(cx - 40, 0))
        part = np.s_[top : top + 80, left : left + 80]
        distance = np.hypot(y[part] - cy, x[part] - cx)
        image[part] += 3000 * np.exp(-(((distance - radius) / 2) ** 2)) + 1500 * np.exp(-((distance / (radius / 2.5)) ** 2))
    return cuzarr.create_array(
        f"{folder}/image.zarr", data=image.clip(0, 65535).astype("uint16"), chunks=(256, 256), dimension_names=("y", "x")
    )


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        image = make_image(folder, arguments.size)
        scales = cuzarr.pyramid(
            image,
            f"{folder}/image.ome.zarr",
            axes="yx",
            scale=(0.2, 0.2),
            units=("micrometer", "micrometer"),
            method="max",
            levels=4,
        )
        levels = [array for _, array in sorted(scales.arrays())]
        for number, level in enumerate(levels):
            print(f"level {number}: {level.shape[0]} x {level.shape[1]}, {level.nchunks} chunks")
        draw(arguments.picture, [cuzarr.xp.asnumpy(level[:]) for level in levels])


def draw(path, levels):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(levels), figsize=(3 * len(levels), 3.4), layout="constrained")
    for number, (axis, level) in enumerate(zip(np.atleast_1d(axes), levels, strict=True)):
        axis.imshow(level, cmap="magma", vmax=4500, interpolation="nearest")
        axis.set_title(f"level {number}: {level.shape[1]} x {level.shape[0]}")
        axis.axis("off")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="pixels of a side")
    parser.add_argument("--picture", default="pyramid.png")
    arguments = parser.parse_args()
    if arguments.size < 1:
        parser.error("--size must be 1 or more")
    main(arguments)

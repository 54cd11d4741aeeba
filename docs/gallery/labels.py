"""Segmentation labels, and crops of both for training

You have an image and its segmentation, and train on crops of both at the same places. `pyramid(..., labels=)` stores the labels inside the
OME-Zarr image, where viewers find them. A `CropDataset` of both arrays cuts the same random boxes out of them, each chunk decoded at most
once an epoch.

Cells are rare, so most crops would show background. The smallest level of the labels says where cells are: as `weights=` it draws crops
there. The program prints the share of crops with cells, without weights and with them.
"""

import argparse
import tempfile

import numpy as np

import cuzarr

CROP = {"y": 64, "x": 64}


def make_cells(size):
    """Groups of cells on a large dark slide: the image, and for each pixel the number of its cell."""
    rng = np.random.default_rng(13)
    image = rng.normal(200, 20, (size, size)).astype("float32")
    labels = np.zeros((size, size), "uint32")
    centres = [(cy + dy, cx + dx) for cy, cx in rng.uniform(80, size - 80, (6, 2)) for dy, dx in rng.normal(0, 26, (9, 2))]
    for number, (cy, cx) in enumerate(centres, start=1):
        radius = int(rng.uniform(9, 15))
        top, left = int(np.clip(cy - radius, 0, size - 32)), int(np.clip(cx - radius, 0, size - 32))
        y, x = np.mgrid[:32, :32]
        inside = np.hypot(y - radius, x - radius) < radius
        part = np.s_[top : top + 32, left : left + 32]
        image[part][inside] += 900 * (1 - (np.hypot(y - radius, x - radius)[inside] / radius) ** 2) + 150
        labels[part][inside] = number
    return image.clip(0, 65535).astype("uint16"), labels


def share_with_cells(crops):
    """Reads an epoch, and says how many of its crops have a cell in them, and the last batch."""
    has = []
    for batch in crops:
        has.append(cuzarr.xp.asnumpy(batch["cells"]).any(axis=(1, 2)))
    return float(np.concatenate(has).mean()), batch


def main(arguments):
    image, labels = make_cells(arguments.size)
    with tempfile.TemporaryDirectory() as folder:
        slide = f"{folder}/slide.ome.zarr"
        options = {"chunks": (128, 128), "levels": 5}
        cuzarr.pyramid(image, slide, axes="yx", scale=(0.3, 0.3), units=("micrometer", "micrometer"), **options)
        cuzarr.pyramid(labels, slide, labels="cells", **options)

        group = cuzarr.open_group(slide, mode="r")
        both = {"image": group["0"], "cells": group["labels/cells/0"]}
        plain = cuzarr.loader.CropDataset(both, CROP, size=32, samples=256, memory_limit="64 MiB")
        without, _ = share_with_cells(plain)

        foreground = cuzarr.xp.asnumpy(group["labels/cells/4"][:]) > 0
        weighted = cuzarr.loader.CropDataset(both, CROP, size=32, samples=256, weights=foreground, memory_limit="64 MiB")
        share, batch = share_with_cells(weighted)
        print(f"{labels.max()} cells on {foreground.mean():.1%} of the slide")
        print(f"crops with cells: {without:.0%} at random places, {share:.0%} with weights")
        print(f"each chunk was read {weighted.report()['reads_per_chunk']:.2f} times an epoch")
        assert share >= without
        draw(arguments.picture, {name: cuzarr.xp.asnumpy(values) for name, values in batch.items()})


def draw(path, batch):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 3, figsize=(5.4, 5.8), layout="constrained")
    for axis, crop, cells in zip(axes.flat, batch["image"], batch["cells"], strict=False):
        axis.imshow(crop, cmap="gray", vmin=100, vmax=1300)
        for number in np.unique(cells[cells > 0]):
            axis.contour(cells == number, levels=[0.5], colors=f"C{number % 10}", linewidths=1.2)
        axis.set(xticks=[], yticks=[])
    figure.suptitle("crops, and the outlines of their labels")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="pixels of a side")
    parser.add_argument("--picture", default="labels.png")
    arguments = parser.parse_args()
    if arguments.size < 256:
        parser.error("--size must be 256 or more")
    main(arguments)

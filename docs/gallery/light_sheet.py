"""From a light-sheet volume to a viewer

A light-sheet microscope delivers plane after plane. `image.writer` takes the planes while they come, makes the smaller levels of them, and
packs small chunks into shards, so that the store gets few objects and a viewer can still read small boxes. `pyramid` of an array without planes
makes the image to start from. The planes lie 2 µm apart and pixels are 0.5 µm wide, so the first levels halve y and x alone, until elements are
about as deep as wide.

The program prints a link for Neuroglancer and a command for napari, for an image in a bucket. Both read OME-Zarr as it is stored.
"""

import argparse
import json
import tempfile
import urllib.parse

import numpy as np

import cuzarr

SCALE = {"z": 2.0, "y": 0.5, "x": 0.5}


def planes(depth, side):
    """An embryo: a shell of bright nuclei, seen plane by plane, with the camera's noise."""
    rng = np.random.default_rng(11)
    y, x = np.mgrid[:side, :side].astype("float32") * SCALE["y"]
    middle, radius = side * SCALE["y"] / 2, side * SCALE["y"] * 0.4
    directions = rng.normal(size=(260, 3))
    directions *= (radius / np.linalg.norm(directions, axis=1))[:, None]
    for number in range(depth):
        z = (number - depth / 2) * SCALE["z"]
        plane = rng.normal(120, 8, (side, side)).astype("float32")
        for dz, dy, dx in directions:
            if abs(dz - z) < 12:
                distance = (y - middle - dy) ** 2 + (x - middle - dx) ** 2 + (dz - z) ** 2
                plane += 1500 * np.exp(-distance / 14)
        yield plane.clip(0, 65535).astype("uint16")


def neuroglancer(url):
    """A link that shows an image in Neuroglancer. The bucket must allow reads from other sites (CORS)."""
    state = {"layers": [{"name": "embryo", "type": "image", "source": f"{url}/|zarr3:"}], "layout": "4panel"}
    return "https://neuroglancer-demo.appspot.com/#!" + urllib.parse.quote(json.dumps(state, separators=(",", ":")), safe=",:/")


def main(arguments):
    depth, side = arguments.planes, arguments.side
    whole = -(-side // 64) * 64  # shards consist of whole chunks
    with tempfile.TemporaryDirectory() as folder:
        embryo = cuzarr.pyramid(
            np.zeros((0, side, side), "uint16"),
            f"{folder}/embryo.ome.zarr",
            axes="zyx",
            scale=SCALE,
            units=dict.fromkeys("zyx", "micrometer"),
            levels=4,
            chunks=(16, 64, 64),
            shards=(32, whole, whole),
            compressors=cuzarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle", typesize=2),
        )
        image = cuzarr.ome.open_image(embryo)
        with image.writer("z") as camera:
            for plane in planes(depth, side):
                camera.append(plane)
        stored = sum(array.nbytes_stored() for array in image.arrays())
        print(f"{depth} planes, {image.array().nbytes / 2**20:.0f} MiB; all levels are stored in {stored / 2**20:.0f} MiB")
        for level, array in zip(image.levels, image.arrays(), strict=True):
            print(f"level {level.path}: {array.shape}, elements of {' x '.join(f'{size:g}' for size in level.scale)} µm")

        url = "https://bucket.s3.amazonaws.com/embryo.ome.zarr"
        print(
            f"cuzarr copy embryo.ome.zarr s3://bucket/embryo.ome.zarr\n{neuroglancer(url)}\nnapari --plugin napari-ome-zarr {url}"
        )
        draw(arguments.picture, image)


def draw(path, image):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(5.6, 5.8), layout="constrained")
    for axis, level, array in zip(axes.flat, image.levels, image.arrays(), strict=True):
        # What a viewer asks for: one plane of one level.
        plane = cuzarr.xp.asnumpy(array[array.shape[0] // 2])
        axis.imshow(plane, cmap="magma", vmin=100, vmax=900, interpolation="nearest")
        axis.set(title=f"level {level.path}, {plane.shape[1]} x {plane.shape[0]}", xticks=[], yticks=[])
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planes", type=int, default=64)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--picture", default="light_sheet.png")
    arguments = parser.parse_args()
    if min(arguments.planes, arguments.side) < 1:
        parser.error("--planes and --side must be 1 or more")
    main(arguments)

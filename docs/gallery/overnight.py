"""Move 1,000 arrays to other codecs overnight

An archive of 1,000 arrays shall get other compressors, but the machine is yours only at night. `copy` takes the whole hierarchy, and the function
that you pass as `progress=` may end it: what it raises ends the copy. Arrays that are complete can be opened already; an array that is
not complete has no metadata, so nobody reads half of it. The next night, the same call with `resume=True` goes on and writes no finished
object again.

Until all is copied, the target says so: opening it warns, and `cuzarr info` shows it. Use `rechunk` in the same way to change chunks or
shards as well.
"""

import argparse
import tempfile
import warnings

import numpy as np

import cuzarr


def make_archive(path, count):
    """Arrays of ten stations, in gzip and in small chunks, as they were once written."""
    archive = cuzarr.create_group(path)
    rng = np.random.default_rng(31)
    walks = rng.integers(-3, 4, (count, 2, 2000), "int32").cumsum(axis=2, dtype="int32")
    for number, walk in enumerate(walks):
        name = f"station{number % 10}/v{number:04}"
        archive.create_array(name, data=walk, chunks=(1, 2000), compressors=cuzarr.codecs.GzipCodec(level=1))
    return archive


class Dawn(Exception):
    """The night is over."""


def night(archive, target, until=1.0):
    """Copies until dawn: here until a share of the work is done, in your program until a time of day."""

    def progress(done, total):
        if total and until * total <= done < total:  # or: datetime.now().hour >= 6
            raise Dawn

    codec = cuzarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle", typesize=4)
    try:
        cuzarr.copy(archive, target, compressors=codec, progress=progress, resume=True)
    except Dawn:
        print("dawn: the copy has stopped")


def arrays_below(group):
    """All arrays of a hierarchy, by their paths."""
    return {path: node for path, node in group.members(max_depth=None) if isinstance(node, cuzarr.Array)}


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        archive = make_archive(f"{folder}/archive.zarr", arguments.arrays)
        target = f"{folder}/moved.zarr"

        night(archive, target, until=0.4)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            finished = arrays_below(cuzarr.open_group(target, mode="r"))
        print(f"after the first night {len(finished)} of {arguments.arrays} arrays can be opened")
        for one in said:
            print(f"opening the copy warns: {str(one.message).split(': ', 1)[1]}")

        night(archive, target)
        old, new = arrays_below(archive), arrays_below(cuzarr.open_group(target, mode="r"))
        assert old.keys() == new.keys()
        pairs = zip(*(cuzarr.read_many([(array, ...) for _, array in sorted(side.items())]) for side in (old, new)), strict=True)
        assert all(np.array_equal(before, after) for before, after in pairs)
        sizes = [sum(array.nbytes_stored() for array in side.values()) for side in (old, new)]
        print(f"after the second all {len(new)} are there and equal: {sizes[0] / 2**20:.1f} MiB became {sizes[1] / 2**20:.1f}")
        draw(arguments.picture, finished, new, sizes)


def draw(path, first, second, sizes):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(5.6, 5), layout="constrained", height_ratios=(3, 1))
    for night, (arrays, color) in {"second": (second, "lightsteelblue"), "first": (first, "navy")}.items():
        stations, counts = np.unique([name.split("/")[0].removeprefix("station") for name in arrays], return_counts=True)
        axes[0].bar(stations.astype(int), counts, color=color, label=f"after the {night} night")
    axes[0].set(title="arrays that can be opened", xlabel="station", xticks=range(10))
    axes[0].legend(loc="upper center", ncols=2)
    axes[0].margins(y=0.3)
    axes[1].barh(["gzip", "Blosc zstd"], [size / 2**20 for size in sizes], color=["gray", "seagreen"])
    axes[1].set(title="MiB stored")
    axes[1].invert_yaxis()
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arrays", type=int, default=1000)
    parser.add_argument("--picture", default="overnight.png")
    arguments = parser.parse_args()
    if arguments.arrays < 1:
        parser.error("--arrays must be 1 or more")
    main(arguments)

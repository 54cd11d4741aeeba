"""An expression of arrays that are larger than memory

The speed of the wind is an expression of two arrays. Nothing is read until `store` works through it, chunk by chunk: the next chunks are
read while these are computed with and the ones before are written. The histogram reads the result once more, and both are exact.
"""

import argparse
import tempfile

import numpy as np

import cuzarr


def make_wind(group, name, times, phase):
    """One component of the wind in metres a second: waves that travel east."""
    array = group.create_array(name, shape=(times, 180, 360), chunks=(4, 90, 180), dtype="float32", attributes={"units": "m s-1"})
    y, x = np.radians(np.mgrid[-90:90, 0:360]).astype("float32")
    rng = np.random.default_rng(int(10 * phase))
    for first in range(0, times, 16):
        t = np.arange(first, min(first + 16, times), dtype="float32")[:, None, None]
        jet = 22 * np.cos(y) ** 2 * np.sin(4 * y) ** 2
        waves = jet * np.cos(5 * x - t / 6 + phase) + 6 * np.sin(3 * y + 2 * x + t / 9)
        array[first : first + len(t)] = (waves + rng.normal(0, 1, waves.shape)).astype("float32")
    return array


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        group = cuzarr.create_group(f"{folder}/wind.zarr")
        u = make_wind(group, "u", arguments.times, 0.0)
        v = make_wind(group, "v", arguments.times, 1.6)

        speed = np.sqrt(u**2 + v**2)
        print(speed)
        target = group.create_array("speed", shape=speed.shape, chunks=u.chunks, dtype="float32")
        speed.store(target, memory_limit=arguments.memory_limit)
        print(f"{3 * u.nbytes / 2**20:.0f} MiB read and written within {arguments.memory_limit}")

        counts, edges = cuzarr.xp.histogram(target, bins=60)
        mean = cuzarr.xp.asnumpy(target.mean(axis=0).compute(memory_limit=arguments.memory_limit))
        draw(
            arguments.picture, cuzarr.xp.asnumpy(target[0]), mean, *(cuzarr.xp.asnumpy(one.compute()) for one in (counts, edges))
        )


def draw(path, first, mean, counts, edges):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 2.9), layout="constrained")
    for axis, field, title in ((axes[0], first, "speed at one time, m/s"), (axes[1], mean, "mean speed, m/s")):
        figure.colorbar(axis.imshow(field, cmap="viridis", origin="lower"), ax=axis, shrink=0.7)
        axis.set_title(title)
    axes[2].stairs(counts, edges, fill=True)
    axes[2].set(title="histogram of all speeds", xlabel="m/s", yscale="log")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--memory-limit", default="16 MiB")
    parser.add_argument("--picture", default="wind.png")
    arguments = parser.parse_args()
    if arguments.times < 1:
        parser.error("--times must be 1 or more")
    try:
        main(arguments)
    except (cuzarr.errors.ConfigInvalidError, cuzarr.errors.BudgetExceededError) as error:
        parser.error(f"--memory-limit: {error}")

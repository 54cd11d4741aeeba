"""Write a forecast: 24 variables, step by step

A model, or a network that replaces one, makes 24 variables at each lead time. `Group.writer` takes them as they are made: `append` copies
the rows of all variables and returns, and the writer compresses and stores whole chunks behind the loop. It adds the rows of a step for all
variables or for none, so a reader never meets a step with only half of its variables.

On a GPU, make the group with `device="cuda"` and pass the arrays as they are there: only compressed bytes leave the GPU. The
[guide](../guide/writer.md) says what holds after a kill, and how `resume=True` goes on.
"""

import argparse
import tempfile
import time

import numpy as np

import cuzarr

LEVELS = (850, 700, 500, 250)
VARIABLES = ("t2m", "msl", "u10", "v10", *(f"{name}{level}" for name in ("t", "u", "v", "q", "z") for level in LEVELS))
ROWS, COLUMNS = 90, 180


def create_forecast(path):
    """An array for each variable, empty so far. A chunk has four lead times of half of the globe; eight chunks are a shard."""
    group = cuzarr.create_group(path, attributes={"Conventions": "CF-1.11", "forecast_reference_time": "2026-11-30T00:00"})
    for name in VARIABLES:
        group.create_array(
            name,
            shape=(0, ROWS, COLUMNS),
            chunks=(4, ROWS, COLUMNS // 2),
            shards=(16, ROWS, COLUMNS),
            dtype="float32",
            dimension_names=("step", "latitude", "longitude"),
            fill_value=np.nan,
        )
    group.create_array("step", shape=(0,), chunks=(64,), dtype="int32", dimension_names=("step",), attributes={"units": "hours"})
    return group


def model(steps):
    """Fields of each lead time: vortices that a jet carries east, one pattern for each variable."""
    y, x = np.mgrid[:ROWS, :COLUMNS].astype("float32")
    latitude = np.radians(90 - 2 * y)
    jet = np.cos(latitude) ** 2
    rng = np.random.default_rng(2)
    centres = rng.uniform((20, 0), (70, COLUMNS), (12, 2)).astype("float32")
    for step in range(steps):
        pattern = np.zeros((ROWS, COLUMNS), "float32")
        for row, column in centres:
            distance = (x - column - 2.5 * step + COLUMNS / 2) % COLUMNS - COLUMNS / 2
            pattern += np.exp(-((y - row) ** 2 + distance**2) / 60)
        yield 6 * step, {name: 280 + 0.1 * number + 20 * jet - 9 * pattern for number, name in enumerate(VARIABLES)}


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        forecast = create_forecast(f"{folder}/forecast.zarr")
        started = time.perf_counter()
        with forecast.writer(axis="step") as writer:
            for hours, fields in model(arguments.steps):
                writer.append(fields | {"step": hours})
        seconds = time.perf_counter() - started
        assert writer.position == arguments.steps

        size = sum(array.nbytes for _, array in forecast.arrays())
        print(f"{len(VARIABLES)} variables, {arguments.steps} lead times, {size / 2**20:.0f} MiB")
        print(f"the loop waited for the store {writer.waited / seconds:.0%} of its time")

        day_five = forecast.read(["t2m", "msl", "z500"], {"step": arguments.steps - 1})
        print(f"the last lead time has {', '.join(f'{name} {field.shape}' for name, field in day_five.items())}")
        draw(arguments.picture, forecast["t2m"], forecast["step"])


def draw(path, t2m, hours):
    from matplotlib import pyplot

    shown = np.linspace(0, len(t2m) - 1, 4).astype(int)
    figure, axes = pyplot.subplots(2, 2, figsize=(5.6, 3.8), layout="constrained")
    for axis, step in zip(axes.flat, shown, strict=True):
        image = axis.imshow(t2m[int(step)], cmap="inferno", vmin=272, vmax=300)
        axis.set(title=f"t2m, {int(hours[int(step)])} h", xticks=[], yticks=[])
    figure.colorbar(image, ax=axes, shrink=0.8, label="K")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--picture", default="forecast.png")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error("--steps must be 1 or more")
    main(arguments)

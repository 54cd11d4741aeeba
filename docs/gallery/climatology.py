"""A climatology of twenty years of daily temperatures

Daily maps are stored one map a chunk, as ERA5 is: a map is quick to read, a time series is not. `rechunk` copies them to columns of
time. Then `map_blocks` hands whole columns to a function, which takes the mean of every day of the year away. What is left is the
anomaly. No step holds the array in memory: `memory_limit` is smaller than the array.
"""

import argparse
import tempfile

import numpy as np

import cuzarr


def make_maps(folder, years, rows, columns):
    """Temperatures in kelvin: latitudes, seasons, warming, and weather that lasts some days."""
    days = int(365.25 * years)
    maps = cuzarr.create_array(
        f"{folder}/t2m.zarr",
        shape=(days, rows, columns),
        chunks=(1, rows, columns),
        dtype="float32",
        dimension_names=("time", "latitude", "longitude"),
        attributes={"units": "K"},
    )
    latitude = np.linspace(75, -75, rows)[:, None]
    rng = np.random.default_rng(1)
    weather = np.zeros((rows, columns))
    for first in range(0, days, 64):
        block = []
        for day in range(first, min(first + 64, days)):
            weather = 0.85 * weather + rng.normal(0, 1.2, (rows, columns))
            season = -12 * np.sin(np.radians(latitude)) * np.cos(2 * np.pi * day / 365.25)
            block.append(300 - 0.007 * latitude**2 + season + 1.5 * day / days + weather)
        maps[first : first + len(block)] = np.array(block, "float32")
    return maps


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        maps = make_maps(folder, arguments.years, 36, 72)
        print(f"{maps.nbytes / 2**20:.0f} MiB in {maps.nchunks} maps, memory limit {arguments.memory_limit}")

        columns = cuzarr.rechunk(maps, f"{folder}/columns.zarr", chunks=(-1, 9, 9), memory_limit=arguments.memory_limit)

        day_of_year = np.minimum((np.arange(maps.shape[0]) % 365.25).astype(int), 365)
        count = np.bincount(day_of_year, minlength=366)[:, None, None]

        def anomaly(block):
            sums = np.zeros((366, *block.shape[1:]))
            np.add.at(sums, day_of_year, block)
            return (block - (sums / np.maximum(count, 1))[day_of_year]).astype("float32")

        anomalies = cuzarr.map_blocks(
            anomaly, columns, out=f"{folder}/anomalies.zarr", device="cpu", memory_limit=arguments.memory_limit
        )
        spread = anomalies.std(axis=0).compute(device="cpu")
        print(f"anomalies of every place have a deviation of {spread.min():.2f} to {spread.max():.2f} K")
        draw(arguments.picture, maps[180], anomalies[180], columns[:, 9, 20], anomalies[:, 9, 20])


def draw(path, map_, anomaly, series, series_anomaly):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 5), layout="constrained")
    for axis, field, title, colours in (
        (axes[0, 0], map_, "one day, K", "inferno"),
        (axes[0, 1], anomaly, "its anomaly, K", "RdBu_r"),
    ):
        limit = abs(field).max()
        limits = {"vmin": -limit, "vmax": limit} if colours == "RdBu_r" else {}
        figure.colorbar(axis.imshow(field, extent=(0, 360, -75, 75), cmap=colours, **limits), ax=axis)
        axis.set_title(title)
    axes[1, 0].plot(series[: 3 * 365], linewidth=0.7)
    axes[1, 0].set(title="three years at one place, K", xlabel="day")
    axes[1, 1].plot(series_anomaly, linewidth=0.4)
    axes[1, 1].set(title="the anomaly there: warming is seen", xlabel="day")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=int, default=20)
    parser.add_argument("--memory-limit", default="8 MiB")
    parser.add_argument("--picture", default="climatology.png")
    arguments = parser.parse_args()
    if arguments.years < 2:
        parser.error("--years must be 2 or more")
    try:
        main(arguments)
    except (cuzarr.errors.ConfigInvalidError, cuzarr.errors.BudgetExceededError) as error:
        parser.error(f"--memory-limit: {error}")

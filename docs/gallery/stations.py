"""Time series at 1,000 stations, out of maps

You have maps, one for each time step, and want the series at the places of 1,000 stations. `vindex` takes the indices of points, and reads
and decodes each chunk once, however many stations lie in it. But maps hold each moment in a chunk of its own, so all of them are read. If
you ask more than once, `rechunk` copies the maps to columns of time first. Then a single station costs one chunk.

`explain` and `last_report` say what a read takes. The program prints the bytes that were fetched both ways, and compares the values.
"""

import argparse
import tempfile

import numpy as np

import cuzarr


def make_maps(path, times, rows, columns):
    """Hourly temperatures in degrees Celsius: days, latitudes, and weather fronts."""
    maps = cuzarr.create_array(
        path,
        shape=(0, rows, columns),
        chunks=(1, rows, columns),
        dtype="float32",
        dimension_names=("time", "y", "x"),
        attributes={"units": "degree_Celsius"},
    )
    y, x = np.mgrid[:rows, :columns]
    rng = np.random.default_rng(6)
    with maps.writer("time") as writer:
        for hour in range(times):
            day = 6 * np.sin((hour - 8) * 2 * np.pi / 24 + x / columns)
            front = 5 * np.tanh((x - columns * (hour % 120) / 120) / 9)
            field = 22 - 18 * y / rows + day + front + rng.normal(0, 0.3, (rows, columns))
            writer.append(np.round(field.astype("float32"), 2))
    return maps


def series(array, rows, columns):
    """All times at every station: (times, stations). Broadcasting makes the index of each point."""
    times = np.arange(array.shape[0])[:, None]
    return cuzarr.xp.asnumpy(array.vindex[times, rows, columns])


def fetched(array):
    """The bytes and chunks that the last read took from the store."""
    stages = {stage["stage"]: stage for stage in array.last_report()["stages"]}
    return f"{stages['fetch']['size_bytes'] / 2**20:6.2f} MiB fetched, {stages['decode']['count']} chunks decoded"


def main(arguments):
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        maps = make_maps(f"{folder}/maps.zarr", arguments.times, 120, 180)
        rows, columns = rng.integers(0, 120, 1000), rng.integers(0, 180, 1000)
        print(f"{maps.nbytes / 2**20:.0f} MiB of maps, 1000 stations")

        from_maps = series(maps, rows, columns)
        print(f"maps,    1000 stations: {fetched(maps)}")
        maps[:, rows[0], columns[0]]
        print(f"maps,       1 station:  {fetched(maps)}")

        by_time = cuzarr.rechunk(maps, f"{folder}/columns.zarr", chunks={"time": -1, "y": 12, "x": 12}, memory_limit="32 MiB")
        from_columns = series(by_time, rows, columns)
        print(f"columns, 1000 stations: {fetched(by_time)}")
        by_time[:, rows[0], columns[0]]
        print(f"columns,    1 station:  {fetched(by_time)}")
        assert np.array_equal(from_maps, from_columns)
        draw(arguments.picture, maps[-1], rows, columns, from_maps)


def draw(path, last, rows, columns, values):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(5.6, 6), layout="constrained")
    figure.colorbar(axes[0].imshow(last, cmap="coolwarm"), ax=axes[0])
    axes[0].scatter(columns, rows, s=3, color="black")
    axes[0].set(title="last map, °C, and 1,000 stations", xticks=[], yticks=[])
    for number in range(3):
        axes[1].plot(values[:, number], linewidth=1, label=f"station {number}")
    axes[1].set(title="series at three stations, °C", xlabel="hour")
    axes[1].legend(loc="lower left")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=240)
    parser.add_argument("--picture", default="stations.png")
    arguments = parser.parse_args()
    if arguments.times < 1:
        parser.error("--times must be 1 or more")
    main(arguments)

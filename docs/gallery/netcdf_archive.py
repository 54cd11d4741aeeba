"""Read an archive of netCDF files as one array

An archive holds a netCDF-4 file for each month. You want one array of all times, and the archive has to stay as it is.
`make_references` scans the files once and writes a small table: which bytes of which file each chunk is. Opened by `reference::`, the table
is a Zarr group, and reads go straight to the files' chunks, without the HDF5 library. On a GPU the chunks are decompressed there.

The table is made once. When a month is added, make it again: only headers are read, not the data.
"""

import argparse
import json
import os
import pathlib
import tempfile
from datetime import date

import h5py
import numpy as np
import xarray

import cuzarr

ROWS, COLUMNS = 60, 120


def write_month(path, year, month):
    """A netCDF-4 file as models write it: compressed, shuffled, with times since the first day of its own month."""
    first = date(year, month, 1)
    days = (date(year + month // 12, month % 12 + 1, 1) - first).days
    day = np.arange(days)[:, None, None]
    y, x = np.mgrid[:ROWS, :COLUMNS]
    season = np.cos(2 * np.pi * ((month - 1) * 30.4 + day) / 365)
    noise = np.random.default_rng(month).normal(0, 0.5, (days, ROWS, COLUMNS))
    field = 285 - 12 * season * np.cos(np.pi * y / ROWS) + 3 * np.sin(x / 10 + day / 4) + noise
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "t2m", data=field.astype("float32").round(1), chunks=(1, ROWS, COLUMNS), shuffle=True, compression="gzip"
        )
        file.create_dataset("time", data=np.arange(days, dtype="int32"))
        file["t2m"].attrs["units"] = "K"
        file["time"].attrs["units"] = f"days since {first}"
        file["time"].make_scale("time")
        file["t2m"].dims[0].attach_scale(file["time"])
        for axis, name in ((1, "lat"), (2, "lon")):
            file["t2m"].dims[axis].label = name


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/t2m_2025-{month:02}.nc" for month in range(1, arguments.months + 1)]
        for month, path in enumerate(files, start=1):
            write_month(path, 2025, month)

        table = pathlib.Path(folder, "t2m.json")
        table.write_text(json.dumps(cuzarr.references.make_references(files, join="time")))
        stored = sum(os.path.getsize(path) for path in files)
        print(f"{len(files)} files, {stored / 2**20:.1f} MiB; the table has {table.stat().st_size / 2**10:.0f} KiB")

        url = f"reference::{table}"
        t2m = cuzarr.open_group(url, mode="r")["t2m"]
        print(f"one array: {t2m.shape}, {t2m.nchunks} chunks")

        # Any job over all files: a mean within a memory limit, a map, or xarray with its labels.
        mean = cuzarr.xp.asnumpy(t2m.mean(axis="time").compute(memory_limit="4 MiB"))
        with h5py.File(files[-1]) as last:
            assert np.array_equal(cuzarr.xp.asnumpy(t2m[-1]), last["t2m"][-1])
        dataset = xarray.open_dataset(url, engine="cuzarr")
        monthly = dataset.t2m.mean(("lat", "lon")).groupby("time.month").mean()
        print(
            f"from {str(dataset.time.values[0])[:10]} to {str(dataset.time.values[-1])[:10]}; month means, K: {monthly.values.round(1)}"
        )
        draw(arguments.picture, mean, dataset.t2m[:, 10, 20])


def draw(path, mean, series):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(5.6, 5.2), layout="constrained")
    figure.colorbar(axes[0].imshow(mean, cmap="inferno"), ax=axes[0], shrink=0.9)
    axes[0].set(title="mean over all files, K", xticks=[], yticks=[])
    axes[1].plot(series.time, series, linewidth=0.9)
    for start in series.time[series.time.dt.day == 1].values:
        axes[1].axvline(start, color="lightgray", linewidth=0.8, zorder=0)
    axes[1].set_title("one place; a gray line where a file begins")
    axes[1].tick_params(axis="x", rotation=30)
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=12, choices=range(1, 13))
    parser.add_argument("--picture", default="netcdf_archive.png")
    main(parser.parse_args())

"""Anomalies and percentiles of a CMIP model

A model's monthly temperatures come packed: 16-bit integers with `scale_factor`, `add_offset` and `_FillValue`, and times as "days since".
Two ways lead to numbers. xarray's engine `cuzarr` decodes them and makes labels of time, so anomalies are one `groupby`. For arrays larger
than memory, `Array.decoded` is a plan that decodes by the same rule; percentiles, means and maps of it are computed in pieces within
`memory_limit`, and are exact.

The program computes the anomaly of every month against 1850–1900, the year in which the warming passes 1.5 K, and the 5th, 50th and 95th
percentile of every place. It checks both ways against each other.
"""

import argparse
import tempfile

import numpy as np
import xarray

import cuzarr


def make_model(path, years, rows, columns):
    """Monthly maps from 1850: latitudes, seasons, warming, weather, and land where the model has no values."""
    group = cuzarr.create_group(path)
    rng = np.random.default_rng(8)
    latitude, longitude = np.linspace(-85, 85, rows), np.linspace(0, 357.5, columns)
    months = np.arange(12 * years)[:, None, None]
    slope = np.radians(latitude)[:, None]
    season = -14 * np.sin(slope) * np.cos(2 * np.pi * months / 12)
    warming = 3.2 * (months / (12 * years)) ** 3 * (1 + np.sin(slope) ** 2)
    kelvin = 301 - 45 * np.sin(slope) ** 2 + season + warming + rng.normal(0, 0.7, (12 * years, rows, columns))
    packed = np.round((kelvin - 280) / 0.01).clip(-32000, 32000).astype("int16")
    packed[:, (rng.random((rows, columns)) < 0.05)] = -32768
    group.create_array(
        "tas",
        data=packed,
        chunks=(24, rows, columns),
        dimension_names=("time", "lat", "lon"),
        attributes={"scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768, "units": "K"},
    )
    days = np.arange(f"{1850}-01", f"{1850 + years}-01", dtype="datetime64[M]").astype("datetime64[D]") - np.datetime64(
        "1850-01-01"
    )
    group.create_array(
        "time", data=days.astype("int64"), dimension_names=("time",), attributes={"units": "days since 1850-01-01"}
    )
    group.create_array("lat", data=latitude, dimension_names=("lat",))
    group.create_array("lon", data=longitude, dimension_names=("lon",))
    return group


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/tas_Amon.zarr"
        model = make_model(path, arguments.years, 15, 30)

        # Labels: a data set of xarray, decoded while it is read.
        dataset = xarray.open_dataset(path, engine="cuzarr", consolidated=False)
        tas = dataset.tas
        monthly = tas.sel(time=slice("1850", "1900")).groupby("time.month").mean("time")
        anomaly = tas.groupby("time.month") - monthly
        weights = np.cos(np.radians(dataset.lat))
        curve = anomaly.weighted(weights).mean(("lat", "lon")).groupby("time.year").mean()
        above = curve.year[curve.rolling(year=20, center=True).mean() > 1.5].values
        said = f"the mean of the 20 years around {above[0]} is the first above" if len(above) else "no mean of 20 years is above"
        print(f"{tas.sizes['time']} months; {said} 1.5 K")

        # Any size: plans of cuzarr, computed in pieces.
        decoded = model["tas"].decoded("float32")
        low, median, high = cuzarr.xp.asnumpy(
            cuzarr.xp.nanpercentile(decoded, [5, 50, 95], axis="time").compute(memory_limit=arguments.memory_limit)
        )
        mean = cuzarr.xp.asnumpy(cuzarr.xp.nanmean(decoded, axis="time").compute(memory_limit=arguments.memory_limit))
        print(f"{decoded.size * 4 / 2**20:.0f} MiB of decoded numbers, computed within {arguments.memory_limit}")
        print(f"places with values: {np.isfinite(mean).mean():.0%}; median {np.nanmin(median):.1f} to {np.nanmax(median):.1f} K")
        assert np.allclose(mean, tas.mean("time"), equal_nan=True)
        land = np.isnan(mean)
        assert np.allclose(high[~land], tas.fillna(0).quantile(0.95, "time").values[~land])
        draw(arguments.picture, curve, above[:1], high - low)


def draw(path, curve, passed, spread):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(5.6, 6), layout="constrained")
    axes[0].axhline(1.5, color="gray", linewidth=0.8, linestyle="--")
    for year in passed:
        axes[0].axvline(year, color="gray", linewidth=0.8, linestyle="--")
    axes[0].plot(curve.year, curve, color="firebrick")
    axes[0].set(title="global anomaly against 1850–1900, K", xlabel="year")
    image = axes[1].imshow(spread, origin="lower", extent=(0, 360, -87.5, 87.5), cmap="viridis")
    figure.colorbar(image, ax=axes[1], shrink=0.8)
    axes[1].set(title="95th minus 5th percentile, K; white: no values", xlabel="longitude", ylabel="latitude")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=int, default=170)
    parser.add_argument("--memory-limit", default="2 MiB")
    parser.add_argument("--picture", default="cmip.png")
    arguments = parser.parse_args()
    if not 1 <= arguments.years <= 290:
        parser.error("--years must be 1 to 290")
    try:
        main(arguments)
    except (cuzarr.errors.ConfigInvalidError, cuzarr.errors.BudgetExceededError) as error:
        parser.error(f"--memory-limit: {error}")

"""Append every month, also when two jobs run at once

A cron job appends each month to a data set in a shared folder or bucket. One night the job of last month still hangs, and two append at the
same time. `dataset.cuzarr.to_zarr(append_dim="time")` starts from the stored shape, and writes the new shape on condition that nobody else
has changed it. The job that loses gets a `ShapeMismatchError` and has written no rows, so it opens the data set again and repeats the call.

Here two processes append at the same time, each with months of its own. At the end every month is there once, and no row is torn.
[Append, resize, many writers](../guide/appending.md) says which calls need this, and in which stores it holds.
"""

import argparse
import multiprocessing
import tempfile
import time

import numpy as np
import xarray

import cuzarr
import cuzarr.xarray


def month(number):
    """The map of one month: a wave, and the number of the month in every element of `month`."""
    phase = np.linspace(0, 6, 60) + number / 3
    field = (15 + 5 * np.sin(phase) * np.cos(np.linspace(-1.5, 1.5, 40))[:, None]).astype("float32")
    return xarray.Dataset(
        {"t2m": (("time", "lat", "lon"), field[None]), "month": (("time", "lat", "lon"), np.full((1, 40, 60), number, "int16"))},
        coords={"time": [np.datetime64("2020-01", "ns") + np.timedelta64(30 * number, "D")]},
    )


def job(path, numbers, start, answers):
    """The cron job: appends its months, and repeats an append that another job has outrun."""
    start.wait()
    refused = 0
    for number in numbers:
        while True:
            try:
                month(number).cuzarr.to_zarr(path, append_dim="time", consolidated=False)
                break
            except cuzarr.errors.ShapeMismatchError:
                refused += 1  # nothing was written
                time.sleep(0.01)
    answers.put((numbers, refused))


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/monthly.zarr"
        month(0).cuzarr.to_zarr(
            path, consolidated=False, encoding={"t2m": {"chunks": (1, 40, 60)}, "month": {"chunks": (1, 40, 60)}}
        )

        context = multiprocessing.get_context("fork")
        start, answers = context.Barrier(2), context.Queue()
        split = [range(1, arguments.months, 2), range(2, arguments.months, 2)]
        jobs = [context.Process(target=job, args=(path, mine, start, answers)) for mine in split]
        for one in jobs:
            one.start()
        answered = [answers.get(timeout=60 + arguments.months) for _ in jobs]
        for numbers, refused in sorted(answered, key=lambda answer: answer[0][0]):
            print(f"the job that begins with month {numbers[0]}: {len(numbers)} appends, {refused} refused and repeated")
        for one in jobs:
            one.join()

        group = cuzarr.open_group(path, mode="r")
        rows = cuzarr.xp.asnumpy(group["month"][:])
        order = rows[:, 0, 0]
        assert (rows == order[:, None, None]).all(), "no row is torn"
        assert sorted(order) == list(range(arguments.months)), "each month is there once"
        print(f"{len(order)} rows, each month once, stored in the order in which the appends won")

        # Rows are in the order of the appends. A reader sorts by time.
        dataset = xarray.open_dataset(path, engine="cuzarr", consolidated=False).sortby("time")
        assert list(dataset.month[:, 0, 0]) == list(range(arguments.months))
        draw(arguments.picture, order, dataset.t2m[:, 20, 30])


def draw(path, order, series):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(5.6, 5), layout="constrained")
    for name, is_job in (("one job", order % 2 == 1), ("the other", (order % 2 == 0) & (order > 0))):
        axes[0].bar(np.flatnonzero(is_job), order[is_job], label=name)
    axes[0].set(title="which month each row holds", xlabel="row in the store", ylabel="month")
    axes[0].legend()
    axes[1].plot(series, "o-", markersize=3, color="black")
    axes[1].set(title="t2m at one place, sorted by time, °C", xlabel="month")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=25)
    parser.add_argument("--picture", default="appends.png")
    arguments = parser.parse_args()
    if arguments.months < 3:
        parser.error("--months must be 3 or more: one to begin with, and one for each job")
    main(arguments)

"""Train a forecast on many variables and lead times

You train on a reanalysis such as ERA5: six variables, two times as input, and targets 6 to 24 hours later. `WindowDataset` moves a window
along time. Each variable is a `Variable` with its own scaling, and the targets are the same arrays with another window. Chunks are read in
random order, each once an epoch, by a thread that reads ahead. The last part of time is kept for validation. The scaling comes from
`Group.read`, which reads all variables by one call.

Here the model is a linear one, fitted by gradient descent in NumPy, so the program needs no framework. For a network take the data sets of
[`cuzarr.torch`](../guide/pytorch.md), which have the same arguments, and open the group with `device="cuda"`.
"""

import argparse
import tempfile

import numpy as np

import cuzarr
from cuzarr.loader import Variable, WindowDataset

VARIABLES = ("t2m", "msl", "u10", "v10", "z500", "q700")
LEADS = 4  # of six hours each
SHIFTS = (-2, -1, 0, 1, 2)  # grid points to the west and east that the model sees


def make_reanalysis(path, times, rows, columns):
    """Waves of six variables that travel east, at a speed that depends on the latitude. One map of all places is a chunk of 8 times."""
    group = cuzarr.create_group(path)
    rng = np.random.default_rng(4)
    longitude = np.arange(columns) * 2 * np.pi / columns
    speed = 0.12 + 0.1 * np.cos(np.linspace(-1.2, 1.2, rows))[:, None]
    waves = [(number, rng.uniform(0, 6.3), rng.uniform(0.5, 1.5)) for number in range(1, 6)]
    t = np.arange(times)[:, None, None]
    for number, name in enumerate(VARIABLES):
        mean, spread = 50.0 * number, 2.0 + number
        field = sum(size * np.sin(k * (longitude - speed * t) + phase + 0.4 * number) for k, phase, size in waves)
        values = mean + spread * (field + rng.normal(0, 0.05, (times, rows, columns)))
        group.create_array(
            name, data=values.astype("float32"), chunks=(8, rows, columns), dimension_names=("time", "latitude", "longitude")
        )
    return group


def scales(group, stop):
    """Mean and deviation of each variable, of every eighth time before `stop`. One call reads all variables."""
    sample = group.read(VARIABLES, {"time": slice(0, stop, 8)})
    return {name: {"mean": float(values.mean()), "std": float(values.std())} for name, values in sample.items()}


def windows(group, scale, within, **options):
    """Samples: two times of every variable as input, and the next four of every variable as the target."""
    parts = {}
    for name in VARIABLES:
        scaled = scale[name] | {"dtype": "float32"}
        parts[f"input {name}"] = Variable(group[name], **scaled)
        parts[f"target {name}"] = Variable(group[name], window={"time": (1, 1 + LEADS)}, **scaled)
    return WindowDataset(parts, {"time": (-1, 1)}, 16, within={"time": within}, memory_limit="64 MiB", **options)


def split(batch):
    """(samples, variables x times x shifts, places) and (samples, variables, leads, places)."""
    inputs = np.stack([cuzarr.xp.asnumpy(batch[f"input {name}"]) for name in VARIABLES], axis=1)
    seen = np.stack([np.roll(inputs, shift, axis=-1) for shift in SHIFTS], axis=3)
    targets = np.stack([cuzarr.xp.asnumpy(batch[f"target {name}"]) for name in VARIABLES], axis=1)
    return seen.reshape(len(seen), -1, *seen.shape[-2:]), targets


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        era = make_reanalysis(f"{folder}/era.zarr", arguments.times, 16, 32)
        cut = arguments.times * 4 // 5
        scale = scales(era, cut)
        training = windows(era, scale, (0, cut), shuffle=True)
        validation = windows(era, scale, (cut, arguments.times), shuffle=False)

        inputs = len(VARIABLES) * 2 * len(SHIFTS)
        weights = np.zeros((len(VARIABLES), LEADS, inputs), "float32")
        for epoch in range(arguments.epochs):
            training.set_epoch(epoch)
            for batch in training:
                seen, targets = split(batch)
                errors = np.einsum("vli,biyx->bvlyx", weights, seen, optimize=True) - targets
                weights -= 0.02 * np.einsum("bvlyx,biyx->vli", errors, seen, optimize=True) / errors[:, 0, 0].size
        report = training.report()
        print(f"an epoch: {report['samples']} samples of {len(VARIABLES)} variables in {report['batches']} batches")
        print(f"each chunk was read {report['reads_per_chunk']:.2f} times an epoch")

        model, persistence = np.zeros(LEADS), np.zeros(LEADS)
        for batch in validation:
            seen, targets = split(batch)
            forecast = np.einsum("vli,biyx->bvlyx", weights, seen, optimize=True)
            now = np.stack([cuzarr.xp.asnumpy(batch[f"input {name}"])[:, -1] for name in VARIABLES], axis=1)
            model += ((forecast - targets) ** 2).mean(axis=(1, 3, 4)).sum(axis=0) / validation.samples
            persistence += ((now[:, :, None] - targets) ** 2).mean(axis=(1, 3, 4)).sum(axis=0) / validation.samples
        for lead in range(LEADS):
            print(f"{6 * (lead + 1):2} h: error {model[lead] ** 0.5:.2f}, of persistence {persistence[lead] ** 0.5:.2f}")
        assert (model < persistence).all()
        draw(arguments.picture, model**0.5, persistence**0.5, targets[-1, 0, -1], forecast[-1, 0, -1])


def draw(path, model, persistence, truth, forecast):
    from matplotlib import pyplot

    figure, axes = pyplot.subplot_mosaic("EE;TF", figsize=(5.6, 5), layout="constrained", height_ratios=(3, 2))
    hours = 6 * np.arange(1, LEADS + 1)
    axes["E"].plot(hours, persistence, "o--", label="persistence")
    axes["E"].plot(hours, model, "o-", label="model")
    axes["E"].set(title="error, in standard deviations", xlabel="lead time, hours", ylim=(0, None), xticks=hours)
    axes["E"].legend()
    for name, field, title in (("T", truth, "t2m in 24 h: truth"), ("F", forecast, "forecast")):
        axes[name].imshow(field, cmap="RdBu_r", vmin=-2, vmax=2)
        axes[name].set(title=title, xticks=[], yticks=[])
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=320)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--picture", default="weather_training.png")
    arguments = parser.parse_args()
    if arguments.times < 26 or arguments.epochs < 1:
        parser.error("--times must be 26 or more, --epochs 1 or more")
    main(arguments)

"""Train on random crops

Training reads many small boxes at random places. `read_many` takes all crops of a batch in one call: each chunk is decoded once,
whatever number of crops lie in it. Here a filter of 5 x 5 weights learns to take noise out of an image, by plain gradient descent. For
models of PyTorch, `cuzarr.torch.BatchDataset` reads batches ahead, as tensors.
"""

import argparse
import time

import numpy as np

import cuzarr

SIDE, TAPS = 32, 5


def make_images(size):
    """A smooth image, and the same with noise, in shards of many small chunks."""
    rng = np.random.default_rng(5)
    y, x = np.mgrid[:size, :size] / 24
    clean = (np.sin(x + 2 * np.sin(y / 3)) + np.cos(y * 1.3)).astype("float32")
    noisy = clean + rng.normal(0, 0.6, clean.shape).astype("float32")
    group = cuzarr.create_group({})
    kwargs = {"chunks": (64, 64), "shards": (512, 512), "compressors": cuzarr.codecs.BloscCodec(cname="lz4")}
    return group.create_array("clean", data=clean, **kwargs), group.create_array("noisy", data=noisy, **kwargs)


def windows(crops):
    """Every 5 x 5 window of each crop: (crops, positions, 25)."""
    found = np.lib.stride_tricks.sliding_window_view(crops, (TAPS, TAPS), axis=(1, 2))
    return found.reshape(len(crops), -1, TAPS * TAPS)


def main(arguments):
    clean, noisy = make_images(arguments.size)
    rng = np.random.default_rng(7)
    weights = np.zeros(TAPS * TAPS, "float32")
    edge = TAPS // 2
    losses, seconds = [], 0.0
    for _ in range(arguments.steps):
        corners = rng.integers(0, arguments.size - SIDE, (arguments.batch, 2))
        boxes = [np.s_[row : row + SIDE, column : column + SIDE] for row, column in corners]
        started = time.perf_counter()
        inputs = np.stack([cuzarr.xp.asnumpy(crop) for crop in noisy.read_many(boxes)])
        targets = np.stack([cuzarr.xp.asnumpy(crop) for crop in clean.read_many(boxes)])
        seconds += time.perf_counter() - started
        features = windows(inputs)
        errors = features @ weights - targets[:, edge:-edge, edge:-edge].reshape(len(boxes), -1)
        losses.append(float((errors**2).mean()))
        weights -= 0.02 * np.einsum("bp,bpk->k", errors, features) / errors.size
    print(f"{arguments.steps} batches of {arguments.batch} crops: loss {losses[0]:.2f}, at the end {losses[-1]:.2f}")
    assert losses[-1] < losses[0] / 5
    part = cuzarr.xp.asnumpy(noisy[:200, :200])
    draw(arguments.picture, losses, part, (windows(part[None]) @ weights).reshape(len(part) - TAPS + 1, -1))


def draw(path, losses, before, after):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    axes[0].plot(losses)
    axes[0].set(title="loss", xlabel="batch", yscale="log")
    for axis, image, title in ((axes[1], before, "with noise"), (axes[2], after, "filtered")):
        axis.imshow(image, cmap="viridis", vmin=-2.2, vmax=2.2)
        axis.set_title(title)
        axis.axis("off")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="pixels of a side")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--picture", default="training.png")
    arguments = parser.parse_args()
    if arguments.size <= SIDE or arguments.batch < 1 or arguments.steps < 10:
        parser.error("--size must be 33 or more, --batch 1 or more, --steps 10 or more")
    main(arguments)

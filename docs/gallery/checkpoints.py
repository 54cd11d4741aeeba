"""Checkpoints of a simulation, written by four ranks

Four processes simulate a part of the domain each. All write into one array of a known shape, each through a writer for its own region. A
region consists of whole chunks, so the ranks need no lock and no message; the writer stores frames behind the loop. At a checkpoint each
rank flushes, all meet at a barrier, and one of them notes in the attributes how many frames are complete.

In the middle of the run, all ranks are killed. The second run reads the note, takes the last complete frame as its start, and goes on. At
the end, every frame equals that of a run without the accident. Ranks of MPI do the same with `MPI_Barrier`; from C, C++ and Fortran call
[`libcuzarr`](../guide/c.md).
"""

import argparse
import multiprocessing
import os
import signal
import tempfile

import numpy as np

import cuzarr

SIDE, RANKS, EVERY = 128, 4, 8  # points of a side, processes, frames between checkpoints
ROWS = SIDE // RANKS


def start_field():
    """Warm spots on a cold plate."""
    y, x = np.mgrid[:SIDE, :SIDE]
    spots = np.random.default_rng(29).uniform(15, SIDE - 15, (8, 2))
    return sum(np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / 30) for cy, cx in spots).astype("float32")


def diffuse(field):
    """The next time of all inner rows. `field` has a row of the neighbours above and below."""
    wide = np.pad(field, ((0, 0), (1, 1)), mode="edge")
    for _ in range(10):
        inner = wide[1:-1, 1:-1]
        around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2]
        wide[1:-1, 1:-1] = inner + np.float32(0.02) * (around - 4 * inner)
    return wide[1:-1, 1:-1]


def rank(number, path, shared, barrier, frames, dies_at):
    """One process: its rows of every frame, from the last checkpoint to the end."""
    run = cuzarr.open_array(path)
    first = run.attrs["complete"]
    state = np.frombuffer(shared, "float32").reshape(SIDE + 2, SIDE)
    mine = slice(number * ROWS, (number + 1) * ROWS)
    with run.writer(region=(slice(first, frames), mine)) as writer:
        for frame in range(first, frames):
            rows = diffuse(state[mine.start : mine.stop + 2].copy())
            barrier.wait()  # all have read their neighbours' rows
            state[mine.start + 1 : mine.stop + 1] = rows
            writer.append(rows)
            barrier.wait()
            if (frame + 1) % EVERY == 0 or frame + 1 == frames:
                writer.flush()
                barrier.wait()  # all have stored their frames
                if number == 0:
                    run.attrs["complete"] = frame + 1
            if frame + 1 == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)


def simulate(path, frames, dies_at=None):
    """Starts the ranks, with the last complete frame as their state."""
    run = cuzarr.open_array(path)
    complete = run.attrs["complete"]
    context = multiprocessing.get_context("fork")
    shared, barrier = context.RawArray("f", (SIDE + 2) * SIDE), context.Barrier(RANKS)
    state = np.frombuffer(shared, "float32").reshape(SIDE + 2, SIDE)
    state[1:-1] = cuzarr.xp.asnumpy(run[complete - 1]) if complete else start_field()
    ranks = [context.Process(target=rank, args=(number, path, shared, barrier, frames, dies_at)) for number in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    print(f"started at frame {complete}, ranks ended with {[one.exitcode for one in ranks]}, ", end="")
    print(f"{cuzarr.open_array(path).attrs['complete']} frames are complete")


def main(arguments):
    frames = arguments.frames
    with tempfile.TemporaryDirectory() as folder:
        paths = f"{folder}/run.zarr", f"{folder}/quiet.zarr"
        for path in paths:
            shape, chunks = (frames, SIDE, SIDE), (EVERY, ROWS, SIDE)
            cuzarr.create_array(path, shape=shape, chunks=chunks, dtype="float32", fill_value=np.nan, attributes={"complete": 0})
        simulate(paths[0], frames, dies_at=frames * 5 // 8 - 1)
        simulate(paths[0], frames)
        simulate(paths[1], frames)
        run, quiet = (cuzarr.open_array(path, mode="r") for path in paths)
        assert np.array_equal(run[:], quiet[:])
        print(f"{run.nbytes / 2**20:.0f} MiB in {run.nchunks} chunks; all frames equal those of the run without the accident")
        draw(arguments.picture, run)


def draw(path, run):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(5.6, 5.8), layout="constrained")
    for axis, frame in zip(axes.flat, np.linspace(0, len(run) - 1, 4).astype(int), strict=True):
        axis.imshow(run[int(frame)], cmap="inferno", vmin=0, vmax=0.5)
        for number in range(1, RANKS):
            axis.axhline(number * ROWS - 0.5, color="white", linewidth=0.6, linestyle=":")
        axis.set(title=f"frame {frame}", xticks=[], yticks=[])
    figure.suptitle("one array; dotted: where the ranks' regions meet")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--picture", default="checkpoints.png")
    arguments = parser.parse_args()
    if arguments.frames < 4:
        parser.error("--frames must be 4 or more, so that the ranks can be killed in the middle")
    main(arguments)

"""Samples for training, into GPU memory: cuzarr's data sets beside zarr-python with worker processes, and tensorstore with a copy.

    python bench/train.py [--size GIB] [--workers N] [--steps N] [--engines cuzarr] [--device cuda] [--directory PATH]

Two data sets: fields like ERA5's (float32, zstd, one chunk for each time step, windows of history and forecast), and a volume like a
microscope's (uint16, Blosc, crops at random positions). Every engine's samples are compared with the elements that were stored. A
line of JSON for each engine: samples and gigabytes per second of samples, reads per chunk, the share of a loop of steps of 10 ms
that waits for batches, which of its steps waited longest, and what a step waits where there are no batches. As a training step does,
the loop waits for the batch on its own stream, not for what is read ahead on others.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import cuzarr
from cuzarr.torch import CropDataset, WindowDataset

STEP_SECONDS = 0.010


class Samples(Dataset[Any]):
    """Samples at given positions, read by zarr-python in worker processes."""

    def __init__(self, path: str, positions: np.ndarray, shape: tuple[int, ...]) -> None:
        self.path, self.positions, self.shape, self.array = path, positions, shape, None

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        import zarr

        if self.array is None:
            self.array = zarr.open_array(self.path, mode="r")
        start = self.positions[number]
        region = tuple(slice(one, one + length) for one, length in zip(start, self.shape, strict=False))
        return torch.from_numpy(self.array[region]), torch.from_numpy(start)


def by_zarr(
    path: str,
    positions: np.ndarray,
    shape: tuple[int, ...],
    size: int,
    workers: int,
    device: str,
) -> Iterator[Any]:
    loader = DataLoader(
        Samples(path, positions, shape),
        batch_size=size,
        num_workers=workers,
        pin_memory=device != "cpu",
        multiprocessing_context="spawn" if workers else None,
    )
    for batch, places in loader:
        yield batch.to(device, non_blocking=True), places


def by_tensorstore(
    path: str,
    positions: np.ndarray,
    shape: tuple[int, ...],
    size: int,
    _workers: int,
    device: str,
) -> Iterator[Any]:
    import tensorstore

    array = tensorstore.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}, read=True).result()

    def ask(first: int) -> Any:
        places = positions[first : first + size]
        regions = [tuple(slice(one, one + n) for one, n in zip(start, shape, strict=False)) for start in places]
        return places, [array[region].read() for region in regions]

    asked = [ask(first) for first in range(0, min(2 * size, len(positions)), size)]
    for first in range(0, len(positions), size):
        places, futures = asked.pop(0)
        if first + 2 * size < len(positions):
            asked.append(ask(first + 2 * size))
        batch = torch.from_numpy(np.stack([one.result() for one in futures]))
        yield (
            (batch.pin_memory() if device != "cpu" else batch).to(device, non_blocking=True),
            torch.from_numpy(places),
        )


def check(truth: np.ndarray, batch: torch.Tensor, places: torch.Tensor, shape: tuple[int, ...]) -> None:
    for row in (0, len(batch) - 1):
        region = tuple(slice(one, one + n) for one, n in zip(places[row].tolist(), shape, strict=False))
        np.testing.assert_array_equal(batch[row].cpu().numpy(), truth[region])


def settle(device: str) -> None:
    """Waits for what the caller's stream has to do, which includes the batch that it got."""
    if device != "cpu":
        torch.cuda.current_stream().synchronize()


def wait_of_an_idle_step(device: str) -> float:
    """Seconds that a step waits when there is nothing to wait for."""
    time.sleep(STEP_SECONDS)
    asked = time.perf_counter()
    settle(device)
    return time.perf_counter() - asked


def measure(
    make: Callable[[], Any],
    truth: np.ndarray,
    shape: tuple[int, ...],
    samples: int,
    device: str,
    batches: int,
) -> dict[str, Any]:
    """The rate of a whole epoch, and how much a loop of steps of 10 ms waits after its first batch."""
    count, size_bytes = 0, 0
    begun = time.perf_counter()
    first = None
    for batch, places in make():
        count += len(batch)
        size_bytes += batch.nbytes
        if first is None:
            settle(device)
            first = time.perf_counter() - begun
            check(truth, batch, places, shape)
    settle(device)
    seconds = time.perf_counter() - begun
    check(truth, batch, places, shape)
    assert count == samples, (count, samples)
    waits: list[float] = []
    iterator = iter(make())
    next(iterator)
    time.sleep(STEP_SECONDS)
    for _ in range(batches):
        asked = time.perf_counter()
        got = next(iterator, None)
        if got is None:
            break
        settle(device)
        waits.append(time.perf_counter() - asked)
        time.sleep(STEP_SECONDS)
    waited, steps = sum(waits), len(waits)
    share = waited / (waited + steps * STEP_SECONDS) if steps else None
    floor = [wait_of_an_idle_step(device) for _ in range(20)]
    longest = sorted(range(steps), key=waits.__getitem__, reverse=True)[:6]
    return {
        "seconds": round(seconds, 3),
        "first_batch_s": round(first or 0.0, 3),
        "samples_per_s": round(count / seconds, 1),
        "gigabytes_per_s": round(size_bytes / seconds / 1e9, 3),
        "waiting_share_of_10_ms_steps": None if share is None else round(share, 4),
        "steps": steps,
        "median_wait_ms": round(float(np.median(waits)) * 1e3, 3) if steps else None,
        "median_wait_without_batches_ms": round(float(np.median(floor)) * 1e3, 3),
        "longest_waits_ms": {step: round(waits[step] * 1e3, 2) for step in longest},
    }


def field(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Smooth values with some noise in their last bits, as of a reanalysis."""
    y, x = (
        np.linspace(0, 9, shape[-2], dtype="f4")[:, None],
        np.linspace(0, 17, shape[-1], dtype="f4"),
    )
    noise = [rng.normal(0, 0.05, shape[1:]).astype("f4").round(2) for _ in range(16)]
    out = np.empty(shape, "f4")
    for number in range(shape[0]):
        out[number] = 280 + 20 * np.sin(y + number / 7) * np.cos(x) + noise[number % 16]
    return out


def stack(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Counts of photons over a background that grows with depth."""
    noise = [rng.poisson(200, shape[1:]).astype("u2") for _ in range(16)]
    out = np.empty(shape, "u2")
    for number in range(shape[0]):
        np.add(noise[number % 16], number, out=out[number], casting="unsafe")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=float, default=2.0, help="GiB of each data set")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument(
        "--steps",
        type=int,
        default=200,
        help="steps of 10 ms of the loop that waits for batches",
    )
    parser.add_argument("--engines", nargs="+", help="beginnings of the engines' names; by default all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--directory")
    parser.add_argument("--limit", default="8 GiB")
    given = parser.parse_args()
    place = pathlib.Path(given.directory or tempfile.mkdtemp())
    rng = np.random.default_rng(0)
    steps = max(int(given.size * 2**30 / (721 * 1440 * 4)), 32)
    depth = max(int(given.size * 2**30 / (1024 * 1024 * 2)) // 64 * 64, 128)
    era5 = field(rng, (steps, 721, 1440))
    volume = stack(rng, (depth, 1024, 1024))
    cases = {
        "era5-like": (era5, (1, 721, 1440), ("time", "lat", "lon"), cuzarr.codecs.ZstdCodec(level=3), {"time": 6}, 8),
        "microscopy-like": (
            volume, (64, 64, 64), ("z", "y", "x"), cuzarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=2),
            {"z": 32, "y": 64, "x": 64}, 32,
        ),
    }  # fmt: skip
    try:
        for name, (truth, chunks, names, codec, window, size) in cases.items():
            path = str(place / f"{name}.zarr")
            cuzarr.create_array(
                path,
                data=truth,
                chunks=chunks,
                dimension_names=names,
                compressors=[codec],
            )
            array = cuzarr.open_array(path, mode="r", device=given.device)
            kind = WindowDataset if name == "era5-like" else CropDataset
            ours = kind(array, window, size, memory_limit=given.limit, positions=True)
            shape = tuple(window.values())
            if kind is WindowDataset:
                shape = (*shape, *truth.shape[1:])
                positions = rng.permutation(truth.shape[0] - shape[0] + 1)[:, None]
            else:
                ends = [extent - length + 1 for extent, length in zip(truth.shape, shape, strict=True)]
                positions = np.stack([rng.integers(end, size=ours.samples) for end in ends], axis=1)
            engines: dict[str, Callable[[], Any]] = {
                "cuzarr": lambda: ours,
                "tensorstore + copy": lambda: by_tensorstore(path, positions, shape, size, 0, given.device),
                f"zarr-python, {given.workers} workers": lambda: by_zarr(
                    path, positions, shape, size, given.workers, given.device
                ),
            }
            list(ours)  # kernels are compiled, and the files are in the page cache
            for engine, make in engines.items():
                if given.engines and not engine.startswith(tuple(given.engines)):
                    continue
                try:
                    row = measure(make, truth, shape, ours.samples, given.device, given.steps)
                except ImportError as error:
                    row = {"skipped": str(error)}
                if engine == "cuzarr":
                    report = ours.report() or {}
                    row |= {
                        key: report[key]
                        for key in (
                            "chunks",
                            "chunk_reads",
                            "reads_per_chunk",
                            "peak_bytes",
                        )
                    }
                print(
                    json.dumps(
                        {
                            "data": name,
                            "array_bytes": truth.nbytes,
                            "engine": engine,
                            **row,
                        }
                    ),
                    flush=True,
                )
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()

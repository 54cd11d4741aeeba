"""How an epoch is divided: batches among ranks, and those of a rank among worker processes.

Every part is a stretch of the samples in the order of their cells, so that each part reads cells of its own. Every rank gets
equally many batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cuzarr.errors import InvalidArgumentError
from cuzarr.loader._cells import Cells
from cuzarr.loader._plan import Ints


@dataclass(frozen=True)
class Share:
    """The part of an epoch that one worker of one rank gets.

    Attributes
    ----------
    number : int
        Which part of the rank's batches it is.
    start : int
        Its first sample, in the order of cells; 0 for a stream, whose order is the caller's.
    sizes : tuple of int
        The number of samples of each of its batches; none for a stream.
    skipped : int
        How many of its batches were taken before, and are left out.
    """

    number: int
    start: int = 0
    sizes: tuple[int, ...] = ()
    skipped: int = 0

    @property
    def count(self) -> int:
        """Number of samples."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Order:
    """The samples of an epoch in the order in which it is divided.

    Attributes
    ----------
    starts : array of int, shape (samples, axes)
        Their positions.
    lowest, highest : array of int, shape (samples, axes)
        The first and the last cell that each of them touches along each axis.
    are_apart : bool
        Whether each of them lies inside one cell.
    """

    starts: Ints
    lowest: Ints
    highest: Ints
    are_apart: bool

    def part(self, start: int, count: int) -> Order:
        """A stretch of the samples."""
        own = slice(start, start + count)
        return Order(self.starts[own], self.lowest[own], self.highest[own], self.are_apart)


def in_order(cells: Cells, starts: Ints, window: tuple[tuple[int, int], ...], random: np.random.Generator | None) -> Order:
    """Samples in the order of their cells.

    Where no sample crosses cells, the cells are in random order: stretches of samples then come from everywhere. Samples that
    cross cells stay beside each other, because stretches that come from everywhere would read most cells several times; where
    the first stretch begins is random.
    """
    lowest, highest = cells.touched(starts, window)
    are_apart = bool((lowest == highest).all())
    keys = cells.flat(lowest)
    if random is not None and are_apart:
        keys = random.permutation(len(cells.sizes))[keys]
    order = np.argsort(keys, kind="stable")
    if random is not None and not are_apart:
        order = np.roll(order, int(random.integers(len(order))))
    return Order(starts[order], lowest[order], highest[order], are_apart)


def batch_count(samples: int, size: int, world_size: int, *, drop_last: bool) -> int:
    """Batches of each rank.

    Raises
    ------
    InvalidArgumentError
        There are fewer samples than ranks.
    """
    if drop_last:
        return samples // world_size // size
    if 0 < samples < world_size:
        raise InvalidArgumentError(f"got {samples} samples for {world_size} ranks, expected at least one for each")
    largest = -(-samples // world_size)
    return -(-largest // size)


def batch_sizes(samples: int, size: int, world_size: int, rank: int, *, drop_last: bool) -> tuple[int, tuple[int, ...]]:
    """The first sample of a rank, and the number of samples of each of its batches."""
    count = batch_count(samples, size, world_size, drop_last=drop_last)
    if drop_last:
        return rank * count * size, (size,) * count
    start = samples * rank // world_size
    own = samples * (rank + 1) // world_size - start
    sizes = [size] * count
    # Ranks have equally many batches, so one with a sample less than another may need it for its last batch.
    surplus = size * count - own
    for at in reversed(range(count)):
        taken = min(surplus, size - 1)
        sizes[at] -= taken
        surplus -= taken
    return start, tuple(sizes)


def shares_of_workers(start: int, sizes: tuple[int, ...], workers: int, done: int = 0) -> list[Share]:
    """What each worker of a rank gets after ``done`` of the rank's batches.

    Workers take stretches of batches, and PyTorch asks them in turn. The first worker goes on where the next batch would have
    come from, so that the order stays as it would have been.
    """
    count = len(sizes)
    cuts = [count * worker // workers for worker in range(workers + 1)]
    taken = [0] * workers
    turn = 0
    for _ in range(min(done, count)):
        while taken[turn] == cuts[turn + 1] - cuts[turn]:
            turn = (turn + 1) % workers
        taken[turn] += 1
        turn = (turn + 1) % workers
    shares = []
    for worker in range(workers):
        own = (worker + turn) % workers
        first, last = cuts[own], cuts[own + 1]
        shares.append(Share(own, start + sum(sizes[:first]), sizes[first:last], taken[own]))
    return shares

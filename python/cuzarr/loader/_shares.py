"""Divides an epoch: its batches among ranks, and the batches of a rank among worker processes.

Every part is a stretch of the samples in the order of their cells, so that each part reads its own cells. Every rank gets the same number
of batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cuzarr.errors import InvalidArgumentError
from cuzarr.loader._cells import Cells
from cuzarr.loader._plan import Ints


@dataclass(frozen=True)
class Share:
    """The batches of an epoch that one worker process of one rank reads.

    Attributes
    ----------
    number : int
        The number of this share among the shares of the rank.
    start : int
        The first sample of the share, in the order of cells; 0 for a stream, whose order the caller chooses.
    sizes : tuple of int
        The number of samples of each batch; empty for a stream.
    skipped : int
        The number of batches of the share that were already taken, and are left out.
    """

    number: int
    start: int = 0
    sizes: tuple[int, ...] = ()
    skipped: int = 0

    @property
    def count(self) -> int:
        """Number of samples in this worker's share of an epoch."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Order:
    """The samples of an epoch, in the order in which they are divided among ranks and workers.

    Attributes
    ----------
    starts : array of int, shape (samples, axes)
        The positions of the samples.
    lowest, highest : array of int, shape (samples, axes)
        The first and the last cell that each sample touches along each axis.
    are_apart : bool
        Whether each sample lies inside one cell.
    """

    starts: Ints
    lowest: Ints
    highest: Ints
    are_apart: bool

    def part(self, start: int, count: int) -> Order:
        """The part of this order that has ``count`` samples, from the one with index ``start`` on."""
        own = slice(start, start + count)
        return Order(self.starts[own], self.lowest[own], self.highest[own], self.are_apart)


def in_order(cells: Cells, starts: Ints, window: tuple[tuple[int, int], ...], random: np.random.Generator | None) -> Order:
    """Sorts samples by the cells (blocks of whole chunks) that they touch, so that samples of the same cell are neighbours.

    If no sample crosses cells, the cells are in random order, so that stretches of samples come from everywhere. Samples that cross cells
    keep their order, because stretches that come from everywhere would read most cells several times. Only the start of the first stretch
    is then random.
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
    """The number of batches that each rank gets in an epoch.

    Raises
    ------
    InvalidArgumentError
        There are fewer samples than ranks, or batches of one sample cannot be divided evenly among the ranks.
    """
    if drop_last:
        return samples // world_size // size
    if 0 < samples < world_size:
        raise InvalidArgumentError(f"got {samples} samples for {world_size} ranks, expected at least one for each")
    if size == 1 and samples % world_size:
        message = f"{samples} samples in batches of one do not make equally many batches for {world_size} ranks"
        raise InvalidArgumentError(message, hint="pass drop_last=True, which leaves out the last samples, or larger batches")
    largest = -(-samples // world_size)
    return -(-largest // size)


def batch_sizes(samples: int, size: int, world_size: int, rank: int, *, drop_last: bool) -> tuple[int, tuple[int, ...]]:
    """The index of a rank's first sample, and the number of samples in each of the rank's batches."""
    count = batch_count(samples, size, world_size, drop_last=drop_last)
    if drop_last:
        return rank * count * size, (size,) * count
    start = samples * rank // world_size
    own = samples * (rank + 1) // world_size - start
    sizes = [size] * count
    # All ranks have the same number of batches, so a rank with fewer samples makes its last batches smaller, but not empty.
    surplus = size * count - own
    for at in reversed(range(count)):
        taken = min(surplus, size - 1)
        sizes[at] -= taken
        surplus -= taken
    return start, tuple(sizes)


def shares_of_workers(start: int, sizes: tuple[int, ...], workers: int, done: int = 0) -> list[Share]:
    """Divides a rank's batches among its worker processes, if ``done`` of the batches were already taken.

    Workers read stretches of batches, and PyTorch takes batches from them in turn. The first worker gets the stretch from which the next
    batch would have come, so that the order stays the same.
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

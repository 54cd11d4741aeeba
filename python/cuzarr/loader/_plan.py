"""Plans the order of an epoch: when cells are read, and when samples are cut out of them.

A sample is a box that touches at most two cells along each axis. Samples that touch the same cells are a *group*. A group is ready when
its last cell was read. Each of its samples then comes at a random time while the next ``mixed_bytes`` are read, so samples of all cells
of that stretch are mixed. A cell is held until its last sample has come. Samples that would come before ``first_bytes`` were read are
mixed among themselves, and so are samples that would come after everything was read. Otherwise the first and the last batches would come
from one cell each.

Cells are read in random order. Cells with groups that wait for a neighbour must be held; they are the *frontier*. While the frontier is
at its limit, only cells beside it are read. With one axis, the frontier then does not grow, so each cell is read once for any limit. With
several axes it can grow. Then the oldest cell of the frontier is dropped, and read again when its last neighbour has been read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True)
class Limits:
    """Memory limits, in bytes, for the cells (blocks of chunks) of an epoch: for those whose samples are mixed, and for those that wait for
    a neighbour.

    ``mixed_bytes`` are for mixing samples, and ``frontier_bytes`` for cells that wait for a neighbour. ``first_bytes`` of the mixed bytes
    are read before the first sample comes.
    """

    mixed_bytes: int
    frontier_bytes: int
    first_bytes: int = 0


@dataclass(frozen=True)
class EpochPlan:
    """The planned order of an epoch: the order of samples, and when each cell (block of whole chunks) is read and dropped.

    Attributes
    ----------
    order : array of int
        Numbers of samples, in the order of the samples in the epoch.
    cells : array of int
        Flat numbers of cells, in the order in which they are read.
    first, last : array of int
        For each entry of ``cells``, the position in ``order`` before which the cell must be read, and the position of the last sample
        that needs it.
    """

    order: Ints
    cells: Ints
    first: Ints
    last: Ints


def plan_epoch(
    lowest: Ints,
    highest: Ints,
    grid: tuple[int, ...],
    cell_bytes: Ints,
    limits: Limits,
    random: np.random.Generator | None,
) -> EpochPlan:
    """Plans in which order an epoch reads cells (blocks of whole chunks) and returns samples.

    Parameters
    ----------
    lowest, highest : array of int, shape (samples, axes)
        The first and the last cell that each sample touches along each axis; they differ by 0 or 1.
    grid : tuple of int
        Number of cells along each axis.
    cell_bytes : array of int
        Bytes of each cell, by its flat number.
    limits : Limits
        The bytes that may be held.
    random : numpy.random.Generator, optional
        The generator for a random order. Without it, cells and samples come in C order.
    """
    if not len(lowest):
        empty = np.empty(0, np.int64)
        return EpochPlan(empty, empty, empty, empty)
    groups, group_of_sample = _groups(lowest, highest, grid)
    growth = _Growth(groups, cell_bytes, limits, random)
    growth.run()
    times = np.asarray(growth.ready, np.float64)[group_of_sample]
    if random is not None:
        times += random.random(len(times)) * limits.mixed_bytes
        first_bytes = min(limits.first_bytes, limits.mixed_bytes, growth.time)
        is_early, is_late = times < first_bytes, times > growth.time
        times[is_early] = first_bytes * random.random(int(is_early.sum()))
        times[is_late] = growth.time + random.random(int(is_late.sum()))
    order = np.argsort(times, kind="stable").astype(np.int64)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    group_first = np.full(len(groups), len(order), np.int64)
    group_last = np.zeros(len(groups), np.int64)
    np.minimum.at(group_first, group_of_sample, places)
    np.maximum.at(group_last, group_of_sample, places)
    first = np.full(len(growth.entries), len(order), np.int64)
    last = np.zeros(len(growth.entries), np.int64)
    for group, entries in enumerate(growth.entries_of):
        for entry in entries:
            first[entry] = min(first[entry], group_first[group])
            last[entry] = max(last[entry], group_last[group])
    # Cells are read in order, so each cell must be read before the cells behind it.
    first = np.minimum.accumulate(first[::-1])[::-1]
    return EpochPlan(order, np.asarray(growth.entries, np.int64), first, last)


def _groups(lowest: Ints, highest: Ints, grid: tuple[int, ...]) -> tuple[list[list[int]], Ints]:
    """Groups samples that touch the same cells (blocks of whole chunks): returns the cells of each group, and the group of each sample."""
    axes = len(grid)
    flat = np.ravel_multi_index(tuple(lowest.T), grid).astype(np.int64)
    spans = (highest - lowest) @ (1 << np.arange(axes, dtype=np.int64))
    codes, group_of_sample = np.unique(flat * (1 << axes) + spans, return_inverse=True)
    strides = [int(np.prod(grid[axis + 1 :])) for axis in range(axes)]
    groups = []
    for code in codes.tolist():
        cells = [code >> axes]
        for axis in range(axes):
            if code >> axis & 1:
                cells += [cell + strides[axis] for cell in cells]
        groups.append(cells)
    return groups, group_of_sample.reshape(-1)


class _Growth:
    """The order in which an epoch reads cells (blocks of whole chunks), while it is chosen by adding one cell after the other. A time is
    the number of bytes read so far."""

    def __init__(self, groups: list[list[int]], cell_bytes: Ints, limits: Limits, random: np.random.Generator | None) -> None:
        self.groups, self.cell_bytes, self.limits, self.random = groups, cell_bytes, limits, random
        self.groups_of: dict[int, list[int]] = {}
        for group, cells in enumerate(groups):
            for cell in cells:
                self.groups_of.setdefault(cell, []).append(group)
        self.unread = [len(cells) for cells in groups]
        self.ready = [0] * len(groups)
        self.entries: list[int] = []
        self.entries_of: list[list[int]] = [[] for _ in groups]
        self.entry_of_cell: dict[int, int] = {}
        self.time = 0
        self.was_read: set[int] = set()
        # Cells of the frontier, the oldest first, and the number of waiting groups of each.
        self.frontier: dict[int, int] = {}
        self.frontier_size = 0
        self.dropped: set[int] = set()
        self.largest = int(max(cell_bytes[cell] for cell in self.groups_of))

    def run(self) -> None:
        """Chooses the reading order of all cells (blocks of whole chunks) that samples touch."""
        cells = sorted(self.groups_of)
        if self.random is not None:
            cells = self.random.permutation(cells).tolist()
        at = 0
        while len(self.was_read) < len(cells):
            beside = self._beside_frontier()
            if beside is None:
                while cells[at] in self.was_read:
                    at += 1
                beside = cells[at]
            self._read(beside)

    def _beside_frontier(self) -> int | None:
        """Draws an unread cell (block of whole chunks) that shares samples with a cell in memory, so that these samples can soon be cut
        out. The frontier is the set of read cells that wait for a neighbour. ``None`` if the frontier may grow or is empty, or the order is
        not random."""
        if self.random is None or not self.frontier:
            return None
        # A new cell waits for both neighbours, and becomes two ends of a run.
        if (sum(self.frontier.values()) + 2) * self.largest <= self.limits.frontier_bytes:
            return None
        held = list(self.frontier)
        cell = held[int(self.random.integers(len(held)))]
        waiting = [group for group in self.groups_of[cell] if self.unread[group]]
        group = min(waiting, key=self.unread.__getitem__)
        missing = [one for one in self.groups[group] if one not in self.was_read]
        return missing[int(self.random.integers(len(missing)))]

    def _read(self, cell: int) -> None:
        self._enter(cell)
        self.was_read.add(cell)
        own = self.groups_of[cell]
        for group in own:
            self.unread[group] -= 1
        for group in own:
            if not self.unread[group]:
                self._finish(group)
        waiting = sum(self.unread[group] > 0 for group in own)
        if waiting:
            self.frontier[cell] = waiting
            self.frontier_size += int(self.cell_bytes[cell])
        most = self.limits.frontier_bytes + 2 * self.largest
        while self.frontier_size > most and len(self.frontier) > 1:
            self._drop(next(iter(self.frontier)))

    def _enter(self, cell: int) -> None:
        self.entry_of_cell[cell] = len(self.entries)
        self.entries.append(cell)
        self.time += int(self.cell_bytes[cell])

    def _finish(self, group: int) -> None:
        """Marks a group of samples as ready to be cut out, because all cells (blocks of whole chunks) that they touch have been read. Cells
        that were dropped are read again."""
        for cell in self.groups[group]:
            if cell in self.dropped:
                self._enter(cell)
        self.ready[group] = self.time
        self.entries_of[group] = [self.entry_of_cell[cell] for cell in self.groups[group]]
        for cell in self.groups[group]:
            if cell in self.frontier:
                self.frontier[cell] -= 1
                if not self.frontier[cell]:
                    self._leave(cell)

    def _leave(self, cell: int) -> None:
        del self.frontier[cell]
        self.frontier_size -= int(self.cell_bytes[cell])

    def _drop(self, cell: int) -> None:
        self._leave(cell)
        self.dropped.add(cell)

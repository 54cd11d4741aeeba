"""Reads cells (blocks of whole chunks) ahead, holds them in memory, and makes batches of the samples in them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cuzarr import _core
from cuzarr.loader._cells import Cells
from cuzarr.loader._library import Library
from cuzarr.loader._plan import EpochPlan, Ints
from cuzarr.loader._shares import Order


@dataclass
class Taken:
    """Numbers that every kind of data set counts while it reads an epoch: samples, batches and times.

    Attributes
    ----------
    samples, batches : int
        Number of samples and batches that the pass has returned.
    waited_seconds : float
        How long the caller waited for batches.
    seconds : float
        How long the pass has taken.
    """

    samples: int = 0
    batches: int = 0
    waited_seconds: float = 0.0
    seconds: float = 0.0


@dataclass
class Counts(Taken):
    """Numbers that a data set with a planned order also counts while it reads an epoch: chunks, reads and bytes. Chunks are counted as they
    are read and decoded.

    Attributes
    ----------
    chunks : int
        Number of different chunks that were read.
    chunk_reads : int
        Number of reads of chunks; equal to ``chunks`` if each chunk was read once.
    read_bytes : int
        Bytes of elements that were read.
    peak_bytes : int
        Largest number of bytes of elements that were held or being read at one time, without batches.
    """

    chunks: int = 0
    chunk_reads: int = 0
    read_bytes: int = 0
    peak_bytes: int = 0
    seen: set[tuple[int, tuple[int, ...]]] = field(default_factory=set, repr=False)

    def to_dict(self, limit_bytes: int) -> dict[str, int | float]:
        """The counts as a dictionary, with ``reads_per_chunk`` and the memory limit added."""
        per_chunk = self.chunk_reads / self.chunks if self.chunks else 0.0
        counts = {name: value for name, value in vars(self).items() if name != "seen"}
        return {**counts, "reads_per_chunk": per_chunk, "memory_limit": limit_bytes}


class Held:
    """Base class of the objects that hold cells (blocks of whole chunks) in memory while an epoch is read. It holds cells until their last
    sample was copied to a batch.

    Parameters
    ----------
    cells, plan
        The cells to read, and their order.
    counts : Counts
        The counts to which reads are added.
    library : Library
        The library that makes batches.

    Attributes
    ----------
    until : dict of int to int
        The held cells, each with the position of its last sample in the plan's order.
    bytes : int
        Bytes of elements that are held or being read.
    """

    def __init__(self, cells: Cells, plan: EpochPlan, counts: Counts, library: Library) -> None:
        self.cells, self.plan, self.counts, self.library = cells, plan, counts, library
        self.until: dict[int, int] = {}
        self.bytes = 0

    # Overridden by the kinds of samples.

    def enter(self, cells: Sequence[int]) -> Any:
        """Registers cells (blocks of whole chunks) that are not in memory yet, and counts their bytes, before they are read. Returns the
        parts to read, for :meth:`read`."""
        raise NotImplementedError

    def read(self, wanted: Any) -> None:
        """Reads the elements of the cells (blocks of whole chunks) that one call of :meth:`enter` registered. A thread calls it, while
        samples may be copied from other cells."""
        raise NotImplementedError

    def leave(self, cell: int) -> None:
        """Drops the elements of one cell (block of whole chunks) from memory."""
        raise NotImplementedError

    def batch(self, first: int, size: int) -> Any:
        """Allocates a batch for the ``size`` samples that begin at position ``first`` of the plan's order."""
        raise NotImplementedError

    def copy(self, batch: Any, row: int, samples: Ints) -> None:
        """Copies samples to the rows of a batch from ``row`` on; the cells that contain the samples must be in memory."""
        raise NotImplementedError

    def formed(self, batch: Any) -> Any:
        """Converts a batch, after all its samples were copied into it, to the arrays that the user gets."""
        raise NotImplementedError

    # How long cells are held.

    def reserve(self, entries: Sequence[int]) -> Any:
        """Marks cells (blocks of chunks), given as indices into the plan's reading order, as needed until their last sample is copied to a
        batch. Returns the parts to read."""
        new = []
        for entry in entries:
            cell = int(self.plan.cells[entry])
            if cell not in self.until:
                new.append(cell)
            self.until[cell] = max(self.until.get(cell, 0), int(self.plan.last[entry]))
        wanted = self.enter(new)
        self.counts.peak_bytes = max(self.counts.peak_bytes, self.bytes)
        return wanted

    def expired(self, place: int) -> list[int]:
        """The cells (blocks of chunks) in memory that no sample at position ``place`` of the plan's order, or later, needs."""
        return [cell for cell, last in self.until.items() if last < place]

    def release(self, cells: Sequence[int]) -> None:
        """Drops ``cells`` (blocks of chunks), which no further sample needs, from memory."""
        for cell in cells:
            del self.until[cell]
            self.leave(cell)


class Source:
    """Base class of the stored data from which samples are read: arrays, or a sparse matrix.

    Attributes
    ----------
    device : str
        The device that the source is read to.
    window : tuple of (int, int)
        For each sample axis the offsets of a sample's elements from its position.
    """

    device: str
    window: tuple[tuple[int, int], ...]

    def check(self, library: Library) -> None:
        """Refuses stored elements of a type that the array library of the batches does not support.

        Raises
        ------
        DTypeMismatchError
        """
        raise NotImplementedError

    def held(self, order: Order, cells: Cells, plan: EpochPlan, counts: Counts, library: Library) -> Held:
        """Makes the object that holds cells (blocks of whole chunks) in memory while the samples ``order`` of an epoch are read."""
        raise NotImplementedError


class Pass:
    """One worker's reading of its part of an epoch: reads chunks in the planned order, and makes batches of samples. A thread reads the
    next cells.

    Parameters
    ----------
    held : Held
        The cells in memory.
    limit_bytes, group_bytes : int
        The number of bytes that may be held, and the number read at once.
    """

    def __init__(self, held: Held, limit_bytes: int, group_bytes: int) -> None:
        self.held, self.limit_bytes, self.group_bytes, self.library = held, limit_bytes, group_bytes, held.library
        self.watch = _core.Watch()
        self.next_entry = 0
        self.reading: tuple[list[int], Future[None]] | None = None

    def batch(self, first: int, size: int, pool: ThreadPoolExecutor) -> Any:
        """Makes a batch of the ``size`` samples that begin at position ``first`` of the plan's order."""
        batch = self.held.batch(first, size)
        plan, place, row, stop = self.held.plan, first, 0, first + size
        while place < stop:
            while self.next_entry < len(plan.cells) and int(plan.first[self.next_entry]) <= place:
                self._take(pool)
            upcoming = int(plan.first[self.next_entry]) if self.next_entry < len(plan.cells) else stop
            end = min(stop, upcoming)
            self.held.copy(batch, row, plan.order[place:end])
            row, place = row + end - place, end
            expired = self.held.expired(place)
            if expired:
                self.library.settle()  # running copies may still read the released cells
                self.held.release(expired)
            self._read_ahead(pool)
        return batch

    def _group(self) -> list[int]:
        """The cells (blocks of chunks) to read next in one call, as indices into the plan's reading order: as many as fit into
        ``group_bytes``."""
        plan, sizes = self.held.plan, self.held.cells.sizes
        entries: list[int] = []
        total = 0
        for entry in range(self.next_entry, len(plan.cells)):
            total += int(sizes[plan.cells[entry]])
            if entries and total > self.group_bytes:
                break
            entries.append(entry)
        return entries

    def _start(self, pool: ThreadPoolExecutor) -> None:
        entries = self._group()
        wanted = self.held.reserve(entries)
        self.reading = entries, pool.submit(self._read, wanted)

    def _read(self, wanted: Any) -> None:
        with self.watch:
            self.held.read(wanted)

    def _take(self, pool: ThreadPoolExecutor) -> None:
        """Waits until the next cells (blocks of chunks) have been read into memory."""
        if self.reading is None:
            self._start(pool)
        assert self.reading is not None
        entries, future = self.reading
        future.result()
        self.next_entry, self.reading = entries[-1] + 1, None
        self._read_ahead(pool)

    def _read_ahead(self, pool: ThreadPoolExecutor) -> None:
        """Begins to read the next cells (blocks of chunks) on a thread, if the memory limit allows it."""
        if self.reading is not None or self.next_entry >= len(self.held.plan.cells):
            return
        size = sum(int(self.held.cells.sizes[self.held.plan.cells[entry]]) for entry in self._group())
        if self.held.bytes + size <= self.limit_bytes:
            self._start(pool)


class Clock:
    """A context manager that adds the time spent in its body to the time for which the training loop waited for batches."""

    def __init__(self, counts: Taken) -> None:
        self.counts = counts

    def __enter__(self) -> Clock:
        self.begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.counts.waited_seconds += time.perf_counter() - self.begun

"""Cells in memory, and the samples that are cut out of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._node.many import read_many
from cuzarr.loader.cells import Cells
from cuzarr.loader.library import Library, is_run
from cuzarr.loader.plan import EpochPlan, Ints
from cuzarr.loader.variables import Part, Parts


@dataclass
class Taken:
    """The counts of every pass.

    Attributes
    ----------
    samples, batches : int
        How many were given.
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
    """The counts of a pass: chunks, reads and bytes. Chunks are counted as they are read and decoded.

    Attributes
    ----------
    chunks : int
        How many different chunks were read.
    chunk_reads : int
        How many times a chunk was read; as many as ``chunks`` where each was read once.
    read_bytes : int
        Bytes of elements that were read.
    peak_bytes : int
        The most bytes of elements that were held or being read at once, without batches.
    """

    chunks: int = 0
    chunk_reads: int = 0
    read_bytes: int = 0
    peak_bytes: int = 0
    seen: set[tuple[int, tuple[int, ...]]] = field(default_factory=set, repr=False)

    def to_dict(self, limit_bytes: int) -> dict[str, Any]:
        """The counts by name, with ``reads_per_chunk`` and the limit of memory."""
        per_chunk = self.chunk_reads / self.chunks if self.chunks else 0.0
        counts = {name: value for name, value in vars(self).items() if name != "seen"}
        return {**counts, "reads_per_chunk": per_chunk, "memory_limit": limit_bytes}


Key = tuple[int, tuple[int, ...]]
"""An array by its number, and the begin of a piece of it along the sample axes it has."""


@dataclass
class _Piece:
    """Elements of one array, ``None`` while they are being read, with the number of cells that hold them."""

    size: int
    elements: Any = None
    holders: int = 0


class Held:
    """The cells of a pass that are in memory, or about to be.

    Parameters
    ----------
    parts, cells, plan
        What is read, and when.
    counts : Counts
        Where reads are counted.
    library : Library
        What samples are cut with.
    """

    def __init__(self, parts: Parts, cells: Cells, plan: EpochPlan, counts: Counts, library: Library) -> None:
        self.parts, self.cells, self.plan, self.counts, self.library = parts, cells, plan, counts, library
        self.pieces: dict[Key, _Piece] = {}
        self.until: dict[int, int] = {}
        self.bytes = 0

    def keys(self, cell: int) -> list[tuple[Key, Part]]:
        """The pieces of the arrays that a cell needs."""
        starts, _ = self.cells.box(cell)
        found = []
        for number, part in enumerate(self.parts.parts):
            if self.parts.sources[number] != number:
                continue
            begins = (0,) * len(starts) if number in self.cells.whole else starts
            own = tuple(start for start, axis in zip(begins, part.axes, strict=True) if axis is not None)
            found.append(((number, own), part))
        return found

    def edges(self, number: int) -> tuple[Ints, ...]:
        """Along each axis, where pieces of an array begin, and where the last one ends."""
        if self.parts.sources[number] in self.cells.whole:
            return tuple(edge[[0, -1]] for edge in self.cells.edges)
        return self.cells.edges

    def elements(self, number: int, begins: tuple[int, ...]) -> Any:
        """The elements of the piece of an array that begins there."""
        return self.pieces[self.parts.sources[number], begins].elements

    def reserve(self, entries: Sequence[int]) -> dict[Key, tuple[slice, ...]]:
        """Holds the cells of these entries of the plan until their last sample. Returns the regions that have to be read."""
        wanted: dict[Key, tuple[slice, ...]] = {}
        for entry in entries:
            cell = int(self.plan.cells[entry])
            if cell not in self.until:
                for key, part in self.keys(cell):
                    if key not in self.pieces:
                        is_whole = key[0] in self.cells.whole
                        box = ((0,) * len(self.parts.extents), self.parts.extents) if is_whole else self.cells.box(cell)
                        wanted[key] = part.region(*box)
                        # What is held whole has one more holder: the pass.
                        self.pieces[key] = _Piece(part.region_bytes(wanted[key]), holders=int(is_whole))
                        self.bytes += self.pieces[key].size
                    self.pieces[key].holders += 1
            self.until[cell] = max(self.until.get(cell, 0), int(self.plan.last[entry]))
        self.counts.peak_bytes = max(self.counts.peak_bytes, self.bytes)
        return wanted

    def read(self, wanted: dict[Key, tuple[slice, ...]]) -> None:
        """Reads reserved regions of all arrays by one call."""
        parts = [self.parts.parts[number] for number, _ in wanted]
        reads = [(part.array, region) for part, region in zip(parts, wanted.values(), strict=True)]
        elements = read_many(reads, dtype=[part.held for part in parts])
        for (key, region), part, one in zip(wanted.items(), parts, elements, strict=True):
            piece, chunks = self.pieces[key], part.chunk_count(region)
            piece.elements = self.library.held(one)
            self.counts.chunk_reads += chunks
            self.counts.read_bytes += piece.size
            if key not in self.counts.seen:
                self.counts.seen.add(key)
                self.counts.chunks += chunks

    def expired(self, place: int) -> list[int]:
        """Cells that no sample from ``place`` on needs."""
        return [cell for cell, last in self.until.items() if last < place]

    def release(self, cells: Sequence[int]) -> None:
        """Lets go of cells."""
        for cell in cells:
            del self.until[cell]
            for key, _ in self.keys(cell):
                piece = self.pieces[key]
                piece.holders -= 1
                if not piece.holders:
                    self.bytes -= piece.size
                    del self.pieces[key]

    def cut(
        self, number: int, start: Sequence[int], lowest: Sequence[int], highest: Sequence[int]
    ) -> Iterator[tuple[Any, Any, Any]]:
        """The parts of a sample of an array: where each lies in the sample, and the elements it is copied from."""
        part, edges = self.parts.parts[number], self.edges(number)
        axes = [axis for axis in range(len(start)) if part.axes[axis] is not None]
        is_whole = edges is not self.cells.edges
        spans = [range(1) if is_whole else range(lowest[axis], highest[axis] + 1) for axis in axes]
        for places in itertools.product(*spans):
            target = [slice(None)] * part.array.ndim
            source = [slice(None)] * part.array.ndim
            begins = tuple(int(edges[axis][place]) for axis, place in zip(axes, places, strict=True))
            is_empty = False
            for axis, place, begin in zip(axes, places, begins, strict=True):
                first, stop = (start[axis] + offset for offset in part.window[axis])
                low, high = max(first, begin), min(stop, int(edges[axis][place + 1]))
                is_empty = is_empty or low >= high
                own = part.axes[axis]
                assert own is not None
                target[own], source[own] = slice(low - first, high - first), slice(low - begin, high - begin)
            if not is_empty:
                yield tuple(target), tuple(source), self.elements(number, begins)


class Pass:
    """One pass over the samples of a plan, with the next cells read by a thread.

    Parameters
    ----------
    held : Held
        What is in memory.
    starts : array of int, shape (samples, axes)
        Positions of the samples.
    touched : (array, array)
        The first and the last cell that each of them touches.
    limit_bytes, group_bytes : int
        How much may be held, and how much is read at once.
    """

    def __init__(
        self,
        held: Held,
        starts: Ints,
        touched: tuple[Ints, Ints],
        limit_bytes: int,
        group_bytes: int,
    ) -> None:
        self.held, self.starts, self.touched = held, starts, touched
        self.limit_bytes, self.group_bytes, self.library = limit_bytes, group_bytes, held.library
        self.watch = _core.Watch()
        self.next_entry = 0
        self.reading: tuple[list[int], Future[None]] | None = None

    def fill(self, batch: Batch, pool: ThreadPoolExecutor, first: int) -> None:
        """Cuts the samples of one batch, those from place ``first`` of the order on."""
        plan, place, row, stop = self.held.plan, first, 0, first + batch.size
        while place < stop:
            while self.next_entry < len(plan.cells) and int(plan.first[self.next_entry]) <= place:
                self._take(pool)
            upcoming = int(plan.first[self.next_entry]) if self.next_entry < len(plan.cells) else stop
            end = min(stop, upcoming)
            self._copy(batch, row, plan.order[place:end])
            row, place = row + end - place, end
            expired = self.held.expired(place)
            if expired:
                self.library.settle()  # copies may still read what is let go of
                self.held.release(expired)
            self._read_ahead(pool)

    def _copy(self, batch: Batch, row: int, samples: Ints) -> None:
        """Copies samples to the rows of a batch from ``row`` on."""
        if not self.held.parts.are_rows:
            for at, sample in enumerate(samples.tolist(), row):
                self._cut(batch, at, sample)
            return
        starts = self.starts[samples, 0]
        for number, out in enumerate(batch.raw):
            part = self.held.parts.parts[number]
            own = part.axes[0]
            if own is None:
                self.library.put(out[row : row + len(samples)], self.held.elements(number, ())[None])
                continue
            places, (edges,) = starts + part.window[0][0], self.held.edges(number)
            pieces = np.searchsorted(edges, places, side="right") - 1
            order = np.argsort(pieces, kind="stable")
            for rows in np.split(order, np.flatnonzero(np.diff(pieces[order])) + 1):
                begin = int(edges[pieces[rows[0]]])
                elements = self.held.elements(number, (begin,))
                self._copy_rows(out, row + rows, elements, places[rows] - begin, own)

    def _copy_rows(self, out: Any, rows: Ints, elements: Any, places: Ints, axis: int) -> None:
        """Copies the elements at these places along an axis to rows of a batch, which have one place along it."""
        target = self.library.moved(out, 1 + axis, 1)[:, 0]
        source = self.library.moved(elements, axis, 0)
        if is_run(rows) and is_run(places):
            first_row, first, count = int(rows[0]), int(places[0]), len(rows)
            self.library.put(target[first_row : first_row + count], source[first : first + count])
        else:
            self.library.put_rows(target, rows, source, places)

    def _cut(self, batch: Batch, row: int, sample: int) -> None:
        start = self.starts[sample].tolist()
        lowest, highest = (cells[sample].tolist() for cells in self.touched)
        for number, out in enumerate(batch.raw):
            for target, source, elements in self.held.cut(number, start, lowest, highest):
                self.library.put(out[row][target], elements[source])

    def _group(self) -> list[int]:
        """The next entries of the plan that are read at once."""
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

    def _read(self, wanted: dict[Key, tuple[slice, ...]]) -> None:
        with self.watch:
            self.held.read(wanted)

    def _take(self, pool: ThreadPoolExecutor) -> None:
        """Waits for the next cells."""
        if self.reading is None:
            self._start(pool)
        assert self.reading is not None
        entries, future = self.reading
        future.result()
        self.next_entry, self.reading = entries[-1] + 1, None
        self._read_ahead(pool)

    def _read_ahead(self, pool: ThreadPoolExecutor) -> None:
        """Begins to read the next cells if there is room for them."""
        if self.reading is not None or self.next_entry >= len(self.held.plan.cells):
            return
        size = sum(int(self.held.cells.sizes[self.held.plan.cells[entry]]) for entry in self._group())
        if self.held.bytes + size <= self.limit_bytes:
            self._start(pool)


@dataclass
class Batch:
    """Memory that samples are copied to.

    Attributes
    ----------
    size : int
        Number of samples.
    memory : list of array
        Memory for each array's samples.
    raw : list of array
        What elements are copied to: this memory, or a view of it.
    """

    size: int
    memory: list[Any]
    raw: list[Any]


class Clock:
    """Measures how long the training loop waits for batches."""

    def __init__(self, counts: Taken) -> None:
        self.counts = counts

    def __enter__(self) -> Clock:
        self.begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.counts.waited_seconds += time.perf_counter() - self.begun

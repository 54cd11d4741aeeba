"""Holds cells (blocks of whole chunks) of arrays in memory, and cuts box-shaped samples out of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzarr._node.many import read_many
from cuzarr.loader._cells import Cells
from cuzarr.loader._library import Library, is_run
from cuzarr.loader._plan import EpochPlan, Ints
from cuzarr.loader._reading import Counts, Held, Source
from cuzarr.loader._scaling import finished, gathered_type
from cuzarr.loader._shares import Order
from cuzarr.loader._variables import Part, Parts


class Boxes(Source):
    """Arrays from which samples are cut as boxes: each sample has one box of each array."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.device, self.window = parts, parts.device, parts.window

    def check(self, library: Library) -> None:
        for part in self.parts.parts:
            library.check(part.held)
            library.check(part.dtype)

    def held(self, order: Order, cells: Cells, plan: EpochPlan, counts: Counts, library: Library) -> HeldBoxes:
        return HeldBoxes(self.parts, order, cells, plan, counts, library)


@dataclass
class Batch:
    """The memory of one batch of boxes, to which samples are copied.

    Attributes
    ----------
    memory : list of array
        Memory for each array's samples.
    raw : list of array
        The targets of copies: this memory, or a view of it.
    """

    memory: list[Any]
    raw: list[Any]


Key = tuple[int, tuple[int, ...]]
"""Identifies the part of an array that lies in one cell (block of whole chunks): the array's number, and the start along the array's sample
axes."""


@dataclass
class _Piece:
    """A part of one array in memory: its elements (``None`` while they are read), and the number of cells (blocks of chunks) that still
    need it."""

    size: int
    elements: Any = None
    holders: int = 0


class HeldBoxes(Held):
    """The parts of arrays that are in memory or being read while an epoch is read, from which samples are cut.

    Parameters
    ----------
    parts : Parts
        The arrays.
    order : Order
        The samples.
    cells, plan, counts, library
        As for :class:`Held`.
    """

    def __init__(self, parts: Parts, order: Order, cells: Cells, plan: EpochPlan, counts: Counts, library: Library) -> None:
        super().__init__(cells, plan, counts, library)
        self.parts, self.order = parts, order
        self.pieces: dict[Key, _Piece] = {}

    def keys(self, cell: int) -> list[tuple[Key, Part]]:
        """The parts of arrays that must be in memory for samples in ``cell`` (a block of whole chunks): the key and the array of each
        part."""
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
        """The positions along each sample axis at which array ``number`` is divided into parts, each of which is read and held by
        itself."""
        if self.parts.sources[number] in self.cells.whole:
            return tuple(edge[[0, -1]] for edge in self.cells.edges)
        return self.cells.edges

    def elements(self, number: int, begins: tuple[int, ...]) -> Any:
        """The elements, which have been read, of the part of array ``number`` that begins at the position ``begins``."""
        return self.pieces[self.parts.sources[number], begins].elements

    def enter(self, cells: Sequence[int]) -> dict[Key, tuple[slice, ...]]:
        wanted: dict[Key, tuple[slice, ...]] = {}
        for cell in cells:
            for key, part in self.keys(cell):
                if key not in self.pieces:
                    is_whole = key[0] in self.cells.whole
                    box = ((0,) * len(self.parts.extents), self.parts.extents) if is_whole else self.cells.box(cell)
                    wanted[key] = part.region(*box)
                    # An array that is held whole has one more holder: the pass.
                    self.pieces[key] = _Piece(part.region_bytes(wanted[key]), holders=int(is_whole))
                    self.bytes += self.pieces[key].size
                self.pieces[key].holders += 1
        return wanted

    def read(self, wanted: dict[Key, tuple[slice, ...]]) -> None:
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

    def leave(self, cell: int) -> None:
        for key, _ in self.keys(cell):
            piece = self.pieces[key]
            piece.holders -= 1
            if not piece.holders:
                self.bytes -= piece.size
                del self.pieces[key]

    def batch(self, first: int, size: int) -> Batch:
        memory = [self.library.empty((size, *part.sample_shape), gathered_type(part)) for part in self.parts.parts]
        return Batch(memory, [self.library.target(one) for one in memory])

    def formed(self, batch: Batch) -> Any:
        values = [finished(raw, part, self.library) for raw, part in zip(batch.memory, self.parts.parts, strict=True)]
        return self.parts.form.of([self.library.delivered(one) for one in values])

    def copy(self, batch: Batch, row: int, samples: Ints) -> None:
        if not self.parts.are_rows:
            for at, sample in enumerate(samples.tolist(), row):
                self._cut(batch, at, sample)
            return
        starts = self.order.starts[samples, 0]
        for number, out in enumerate(batch.raw):
            part = self.parts.parts[number]
            own = part.axes[0]
            if own is None:
                self.library.put(out[row : row + len(samples)], self.elements(number, ())[None])
                continue
            places, (edges,) = starts + part.window[0][0], self.edges(number)
            pieces = np.searchsorted(edges, places, side="right") - 1
            order = np.argsort(pieces, kind="stable")
            for rows in np.split(order, np.flatnonzero(np.diff(pieces[order])) + 1):
                begin = int(edges[pieces[rows[0]]])
                elements = self.elements(number, (begin,))
                self._copy_rows(out, row + rows, elements, places[rows] - begin, own)

    def _copy_rows(self, out: Any, rows: Ints, elements: Any, places: Ints, axis: int) -> None:
        """Copies the elements at the indices ``places`` along ``axis`` of ``elements`` to the rows ``rows`` of the batch memory ``out``. A
        row has one place along that axis."""
        target = self.library.moved(out, 1 + axis, 1)[:, 0]
        source = self.library.moved(elements, axis, 0)
        if is_run(rows) and is_run(places):
            first_row, first, count = int(rows[0]), int(places[0]), len(rows)
            self.library.put(target[first_row : first_row + count], source[first : first + count])
        else:
            self.library.put_rows(target, rows, source, places)

    def _cut(self, batch: Batch, row: int, sample: int) -> None:
        start = self.order.starts[sample].tolist()
        lowest, highest = (cells[sample].tolist() for cells in (self.order.lowest, self.order.highest))
        for number, out in enumerate(batch.raw):
            for target, source, elements in self.cut(number, start, lowest, highest):
                self.library.put(out[row][target], elements[source])

    def cut(
        self, number: int, start: Sequence[int], lowest: Sequence[int], highest: Sequence[int]
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Yields the copies that build one array's sample from parts of the array in memory. Each has the slices of the sample to fill, the
        slices of a part to copy, and the part's elements."""
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

"""Converts the rows or columns that a user selects to ranges of elements in stored arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzarr._node.indexing import as_arrays, axis_selector

Ints = np.ndarray[Any, np.dtype[np.int64]]
Places = range | Ints
"""Numbers of rows or columns, from 0 on: a range, or any numbers in any order."""


def places_of(selection: Any, extent: int) -> Places:
    """The numbers of the rows or columns that an integer, a slice, a list, an index array or a mask selects. ``None`` chooses all.

    Raises
    ------
    SelectionInvalidError
        The selection does not fit, or is not a selection.
    """
    if selection is None or selection is Ellipsis:
        return range(extent)
    if isinstance(selection, list) and not selection:
        return np.empty(0, np.int64)
    (item,) = as_arrays((selection,))
    selector = axis_selector(item, extent)
    if isinstance(selector, np.ndarray):
        return selector.astype(np.int64, copy=False)
    start, count, step, _ = selector
    return range(start, start + count * step, step) if count else range(0)


@dataclass(frozen=True)
class Ranges:
    """The ranges of stored elements that belong to selected rows.

    Attributes
    ----------
    starts, lengths : array of int64
        The starts of the ranges, and their numbers of elements. Neighbours are joined, and no range is empty.
    borders : array of int64
        For each chosen row the start of its elements among the elements of all ranges, and the end of the last row.
    """

    starts: Ints
    lengths: Ints
    borders: Ints

    @property
    def count(self) -> int:
        """The number of elements in all of these ranges together."""
        return int(self.borders[-1])

    def part(self, first: int, stop: int) -> tuple[Ints, Ints]:
        """Starts and lengths of the ranges, cut to the elements ``first`` to ``stop`` (excluded), counted over all ranges."""
        ends = np.cumsum(self.lengths)
        begins = ends - self.lengths
        own = slice(np.searchsorted(ends, first, "right"), np.searchsorted(begins, stop, "left"))
        low, high = np.maximum(begins[own], first), np.minimum(ends[own], stop)
        return self.starts[own] + low - begins[own], high - low


def ranges_of(pointer: Ints, rows: Places) -> Ranges:
    """The ranges of stored elements that belong to the given rows of a matrix. Row ``i`` has the elements from ``pointer[i]`` to
    ``pointer[i + 1]``, the end excluded."""
    if isinstance(rows, range) and rows.step == 1:
        own = pointer[rows.start : rows.stop + 1]
        return _joined(own[:1], own[-1:], own - own[0])
    numbers = np.asarray(rows, np.int64)
    starts, ends = pointer[numbers], pointer[numbers + 1]
    return _joined(starts, ends, np.concatenate(([0], np.cumsum(ends - starts))))


def single_ranges(rows: Places) -> Ranges:
    """The ranges of elements that belong to rows in a stored array with one element for each row, such as a column."""
    if isinstance(rows, range) and rows.step == 1:
        return _joined(np.array([rows.start]), np.array([rows.stop]), np.arange(len(rows) + 1))
    numbers = np.asarray(rows, np.int64)
    return _joined(numbers, numbers + 1, np.arange(len(numbers) + 1))


def _joined(starts: Ints, ends: Ints, borders: Ints) -> Ranges:
    filled = np.flatnonzero(ends > starts)
    starts, ends = starts[filled], ends[filled]
    is_first = np.ones(len(starts), bool)
    is_first[1:] = starts[1:] != ends[:-1]
    starts, ends = starts[is_first], ends[np.roll(is_first, -1)]  # the range before the first of a run ends the run before
    return Ranges(starts, ends - starts, borders)

"""Reads elements of a stored matrix by ranges, checks them, and chooses them by their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzarr._checks import refusing
from cuzarr._memory import convert
from cuzarr._memory.device_array import DeviceArray
from cuzarr._node.array import Array
from cuzarr._node.array_read import read_ranges
from cuzarr.sparse._encoding import broken
from cuzarr.sparse._places import Ints, Places, Ranges
from cuzarr.xp import arange, asnumpy, concatenate, cumsum, zeros
from cuzarr.xp.arguments import in_memory

# An array of NumPy, or a DeviceArray.
Held = Any


@dataclass(frozen=True)
class Elements:
    """The stored elements of a sparse matrix and their indices, in the arrays ``data`` and ``indices``, for reading by ranges.

    Attributes
    ----------
    data, indices : Array
        The stored arrays, opened for the device of the result.
    extent : int
        The number of columns of a CSR matrix. All indices must be smaller.
    dtype : numpy.dtype, optional
        Another type of elements.
    """

    data: Array
    indices: Array
    extent: int
    dtype: np.dtype[Any] | None

    def read(self, starts: Ints, lengths: Ints, kind: np.dtype[Any]) -> tuple[Any, Any]:
        """Reads the elements of the matrix in some ranges, and the elements' indices, which are converted to the type ``kind``.

        Raises
        ------
        EncodingValidationError
            An index is out of bounds.
        """
        # Wider integers are not converted before the check, which could turn wrong indices into valid ones.
        wanted = kind if np.can_cast(self.indices.dtype, kind) else None
        reads = [(self.data, starts, lengths, self.dtype), (self.indices, starts, lengths, wanted)]
        data, indices = read_ranges(reads)
        self._check(indices)
        return data, indices if indices.dtype == kind else indices.astype(kind)

    def _check(self, indices: Any) -> None:
        if not indices.size:
            return
        # Read as unsigned integers, negative indices are the largest.
        highest = asnumpy(indices.view(f"u{indices.dtype.itemsize}").max())
        if highest >= self.extent:
            found = highest.view(indices.dtype)
            raise broken(self.indices, f"an index is {found}, expected one from 0 to {self.extent - 1}")


def choose_columns(elements: Elements, ranges: Ranges, columns: Places, kind: np.dtype[Any], block: int) -> tuple[Any, Any, Ints]:
    """Reads some columns of a CSR matrix, and returns their data, indices and pointer. All elements of the ranges are read once, ``block``
    of them at a time, and chosen on their device."""
    chosen = _Columns(columns, elements.extent, elements.indices.device, kind)
    borders = np.zeros_like(ranges.borders)
    parts: list[tuple[Held, Held]] = []
    kept = 0
    for first in range(0, max(ranges.count, 1), block):
        stop = min(first + block, ranges.count)
        data, indices = (in_memory(part, "read") for part in elements.read(*ranges.part(first, stop), kind))
        places = chosen.table[indices]
        is_chosen = places >= 0
        (found,) = is_chosen.nonzero()
        parts.append((data[found], places[found]))
        own = slice(np.searchsorted(ranges.borders, first, "right"), np.searchsorted(ranges.borders, stop, "right"))
        if own.start < own.stop:
            counts = cumsum(is_chosen, dtype=np.int64)
            borders[own] = kept + asnumpy(counts[ranges.borders[own] - first - 1])
        kept += len(found)
    data, indices = (concatenate(each) if len(each) > 1 else each[0] for each in zip(*parts, strict=True))
    if chosen.repeated is not None:
        data, indices, borders = chosen.repeated.apply(data, indices, borders)
    return delivered(data), delivered(indices), borders


def delivered(elements: Held) -> Any:
    return convert.result_array(elements._buffer, elements.dtype) if isinstance(elements, DeviceArray) else elements


class _Columns:
    """The columns that a read selects, prepared for selecting elements on a device.

    Attributes
    ----------
    table : array
        For each column its place among the chosen columns, without repetitions; -1 for columns that are not chosen.
    repeated : _Repeated, optional
        The step that is needed if a column is chosen several times.
    """

    def __init__(self, columns: Places, extent: int, device: str, kind: np.dtype[Any]) -> None:
        numbers = np.asarray(columns, np.int64)
        with refusing(f"a table of {extent} columns"):
            table = np.full(extent, -1, kind)
        different, counts = np.unique(numbers, return_counts=True)
        is_once = len(different) == len(numbers)
        if is_once:
            table[numbers] = np.arange(len(numbers))
        else:
            table[different] = np.arange(len(different))
        self.table = _on(device, table)
        self.repeated = None if is_once else _Repeated(np.argsort(numbers, kind="stable"), counts, device, kind)


class _Repeated:
    """The number of times that each selected column of a sparse matrix is in the result of a read, to repeat columns that are selected
    several times.

    Parameters
    ----------
    order : array of int
        The places of the result, sorted by their columns.
    counts : array of int
        The number of places of each column.
    """

    def __init__(self, order: Ints, counts: Ints, device: str, kind: np.dtype[Any]) -> None:
        self.order, self.counts = _on(device, order.astype(kind)), _on(device, counts.astype(np.int64))
        self.firsts = _on(device, np.cumsum(counts) - counts)
        self.device = device

    def apply(self, data: Held, columns: Held, borders: Ints) -> tuple[Held, Held, Ints]:
        """Repeats elements, and returns the data, indices and pointer of the result. ``columns`` counts each selected column once."""
        if not len(columns):
            return data, columns, borders
        counts = self.counts[columns]
        ends = in_memory(cumsum(counts), "read")
        total = int(asnumpy(ends[-1:])[0])
        is_next = in_memory(zeros(total, np.int64, device=self.device), "read")
        is_next[ends[:-1]] = 1
        source = in_memory(cumsum(is_next), "read")
        nth = in_memory(arange(total, device=self.device), "read") - (ends - counts)[source]
        places = self.order[self.firsts[columns[source]] + nth]
        stops = np.concatenate(([0], asnumpy(ends)))
        return data[source], places, stops[borders]


def _on(device: str, array: np.ndarray[Any, Any]) -> Held:
    return array if device == "cpu" else DeviceArray.from_host(array, device)

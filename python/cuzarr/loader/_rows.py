"""Holds blocks of rows of a stored sparse matrix in memory, and gathers batches from them.

A block consists of the rows whose elements begin in certain neighbouring chunks of ``data`` and ``indices``. So a block is one range of
both arrays. The last row of a block may end in the next chunk, which is then read with both blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import refusing
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.foreign import wrap_host
from cuzarr._node.array import Array
from cuzarr.loader._cells import Cells, chunk_starts, common_edges
from cuzarr.loader._library import Library
from cuzarr.loader._plan import EpochPlan, Ints
from cuzarr.loader._reading import Counts, Held, Source
from cuzarr.loader._shares import Order
from cuzarr.sparse._columns import Column, StoredColumns
from cuzarr.sparse._dataset import CSRDataset
from cuzarr.sparse._elements import Elements, delivered
from cuzarr.sparse._matrix import index_type, matrix_of
from cuzarr.sparse._places import ranges_of
from cuzarr.xp import asnumpy, cumsum, sort, zeros
from cuzarr.xp.arguments import in_memory

# A block has this many chunks, if it then takes at most this share of the memory limit, and the matrix has at least this many blocks.
# With n chunks per block, a chunk is read 1 + 1/n times per epoch.
_MOST_CHUNKS = 8
_SMALL_SHARE = 64
_MANY_BLOCKS = 64

# Bytes that a block takes for each row, in addition to its elements.
_ROW_BYTES = 8


class StoredRows(Source):
    """A source of samples that are rows: of a stored sparse matrix, and of columns of a data frame. A sample is a row of both.

    Parameters
    ----------
    matrix : CSRDataset
        The matrix.
    columns : StoredColumns, optional
        The columns. A pass holds them whole.
    dtype : numpy.dtype
        The type of elements in batches.
    is_dense : bool
        Whether batches are dense.
    """

    window = ((0, 1),)

    def __init__(self, matrix: CSRDataset, columns: StoredColumns | None, dtype: np.dtype[Any], is_dense: bool) -> None:
        self.matrix, self.columns, self.is_dense, self.device = matrix, columns, is_dense, matrix.device
        self.elements = Elements(matrix._data, matrix._indices, matrix.shape[1], dtype)
        self.dtype, self.index_type = dtype, index_type(0, (matrix.shape[1], 0))

    def check(self, library: Library) -> None:
        library.check(self.dtype)
        for array in self.column_arrays:
            library.check(array.dtype)

    def held(self, order: Order, cells: Cells, plan: EpochPlan, counts: Counts, library: Library) -> HeldRows:
        return HeldRows(self, order, cells, plan, counts, library)

    @property
    def column_arrays(self) -> list[Array]:
        """The stored arrays of the columns that have one element for each row, such as values, codes and masks."""
        stored = () if self.columns is None else self.columns.columns.values()
        return [array for column in stored for array in column.arrays]

    def cells(self, limit_bytes: int) -> Cells:
        """Divides the rows of the matrix into blocks that are read at once, for an epoch with at most ``limit_bytes`` in memory.

        Raises
        ------
        EncodingValidationError
            The index pointer is damaged.
        """
        pointer, arrays = self.matrix._pointer, (self.matrix._data, self.matrix._indices)
        grids = dict.fromkeys(array._chunk_grid.axes[0] for array in arrays)
        chunks = common_edges(list(grids), self.matrix.nnz)
        element_bytes = self.dtype.itemsize + self.index_type.itemsize
        chunk_bytes = max(int(np.diff(chunks).max(initial=0)), 1) * element_bytes
        most = min(limit_bytes // _SMALL_SHARE // chunk_bytes, (len(chunks) - 1) // _MANY_BLOCKS, _MOST_CHUNKS)
        rows = len(pointer) - 1
        firsts = np.searchsorted(pointer, chunks[: -1 : max(most, 1)], "left")
        edges = np.unique(np.clip([0, *firsts, rows], 0, rows)).astype(np.int64)
        sizes = np.diff(pointer[edges]) * element_bytes + np.diff(edges) * _ROW_BYTES
        whole_bytes = sum(array.shape[0] * array.dtype.itemsize for array in self.column_arrays)
        return Cells((edges,), sizes, whole_bytes=whole_bytes, are_chunks=True)


@dataclass
class _Piece:
    """Matrix elements in memory that one call has read: those of several blocks of rows, and how many of these blocks are still needed.

    Their memory is one array, because gathering from few arrays takes few launches on a GPU.
    """

    size: int
    holders: int
    data: Any = None
    indices: Any = None


@dataclass(frozen=True)
class RowBatch:
    """The memory of one batch of sparse rows, to which rows are copied.

    Attributes
    ----------
    numbers : array of int
        The rows.
    borders : array of int
        The start of the elements of each row, and the end of the last row.
    data, indices : array
        The elements and their columns: NumPy arrays on the host, else :class:`cuzarr.DeviceArray` objects.
    """

    numbers: Ints
    borders: Ints
    data: Any
    indices: Any


class HeldRows(Held):
    """The blocks of rows of a sparse matrix that are in memory or being read while an epoch is read, from which batches are gathered.

    Parameters
    ----------
    rows : StoredRows
        The matrix and the columns.
    order : Order
        The samples.
    cells, plan, counts, library
        As for :class:`Held`.
    """

    def __init__(self, rows: StoredRows, order: Order, cells: Cells, plan: EpochPlan, counts: Counts, library: Library) -> None:
        super().__init__(cells, plan, counts, library)
        self.rows, self.pointer = rows, rows.matrix._pointer
        self.numbers, self.cell_of = order.starts[:, 0], order.lowest[:, 0]
        self.cell_pointer = self.pointer[cells.edges[0]]
        # By number, in the order in which they were read.
        self.pieces: dict[int, _Piece] = {}
        self.next_piece = 0
        # For each held block, the number of its piece.
        self.piece_of = np.zeros(len(cells.sizes), np.int64)
        # For each held block, the distance from a position in the stored arrays to the same element's position in the piece.
        self.shifts = np.zeros(len(cells.sizes), np.int64)
        self.columns: dict[str, Column] | None = None
        self.tallies = [_Tally(array) for array in (rows.matrix._data, rows.matrix._indices)]
        self.bytes = cells.whole_bytes

    # Blocks.

    def enter(self, cells: Sequence[int]) -> tuple[_Piece, Ints]:
        own = np.sort(np.asarray(cells, np.int64))
        piece, number = _Piece(int(self.cells.sizes[own].sum()), len(own)), self.next_piece
        self.pieces[number], self.piece_of[own], self.next_piece = piece, number, number + 1
        self.bytes += piece.size
        return piece, own

    def read(self, wanted: tuple[_Piece, Ints]) -> None:
        if self.columns is None:
            self.columns = self._read_columns()
        piece, cells = wanted
        ranges = ranges_of(self.cell_pointer, cells)
        read = self.rows.elements.read(ranges.starts, ranges.lengths, self.rows.index_type)
        piece.data, piece.indices = (in_memory(each, "read") for each in read)
        self.shifts[cells] = ranges.borders[:-1] - self.cell_pointer[cells]
        self.counts.read_bytes += piece.data.nbytes + piece.indices.nbytes
        for tally in self.tallies:
            tally.add(ranges.starts, ranges.lengths, self.counts)

    def _read_columns(self) -> dict[str, Column]:
        """Reads the columns of the data frame, all rows at once."""
        if self.rows.columns is None:
            return {}
        for array in self.rows.column_arrays:
            everything = np.array([0]), np.array([array.shape[0]])
            _Tally(array).add(*everything, self.counts)
        self.counts.read_bytes += self.cells.whole_bytes
        return self.rows.columns.read(None, self.rows.device)

    def leave(self, cell: int) -> None:
        number = int(self.piece_of[cell])
        piece = self.pieces[number]
        piece.holders -= 1
        if not piece.holders:
            self.bytes -= piece.size
            del self.pieces[number]

    # Batches.

    def batch(self, first: int, size: int) -> RowBatch:
        numbers = self.numbers[self.plan.order[first : first + size]]
        borders = np.concatenate(([0], np.cumsum(self.pointer[numbers + 1] - self.pointer[numbers])))
        shape = (int(borders[-1]),)
        with refusing(f"a batch of {shape[0]} elements"):
            data, indices = (self._empty(shape, dtype) for dtype in (self.rows.dtype, self.rows.index_type))
        return RowBatch(numbers, borders, data, indices)

    @property
    def _is_on_host(self) -> bool:
        return self.rows.device == "cpu"

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.empty(shape, dtype) if self._is_on_host else DeviceArray.empty(shape, dtype, self.rows.device)

    def copy(self, batch: RowBatch, row: int, samples: Ints) -> None:
        numbers, cells = self.numbers[samples], self.cell_of[samples]
        starts = self.pointer[numbers] + self.shifts[cells]
        lengths = self.pointer[numbers + 1] - self.pointer[numbers]
        if not (filled := np.flatnonzero(lengths)).size:
            return
        used, sources = np.unique(self.piece_of[cells[filled]], return_inverse=True)
        pieces = [self.pieces[number] for number in used.tolist()]
        ranges = np.stack([sources, starts[filled], batch.borders[row + filled], lengths[filled]], axis=1)
        listed = wrap_host(ranges.astype(np.uint64))
        for target, name in ((batch.data, "data"), (batch.indices, "indices")):
            _memory(target).copy_ranges([_memory(getattr(piece, name)) for piece in pieces], listed)

    def formed(self, batch: RowBatch) -> Any:
        columns = self.rows.matrix.shape[1]
        if self.rows.is_dense:
            matrix = self._dense(batch, (len(batch.numbers), columns))
        else:
            elements = delivered(batch.data), delivered(batch.indices)
            matrix = self.library.matrix(matrix_of("csr", (len(batch.numbers), columns), *elements, batch.borders))
        if self.rows.columns is None:
            return matrix
        assert self.columns is not None
        return matrix, {name: self._column(column, batch.numbers) for name, column in self.columns.items()}

    def _column(self, column: Column, numbers: Ints) -> Any:
        """The values (or the codes of categories) in some rows of one column of the data frame. For a column with a mask, a pair with the
        mask."""
        arrays = (column.values,) if column.mask is None else (column.values, column.mask)
        own = tuple(self.library.converted(delivered(in_memory(array, "read")[numbers])) for array in arrays)
        return own[0] if column.mask is None else own

    def _dense(self, batch: RowBatch, shape: tuple[int, int]) -> Any:
        """Converts a batch of sparse rows to a dense matrix. Elements at the same place are added up."""
        with refusing(f"a dense batch of {shape[0]} x {shape[1]} elements"):
            places = _flat_places(batch, shape[1], self.rows.device)
            if not self._is_on_host:
                return self.library.converted(delivered(_dense_on_device(places, batch.data, shape)))
            memory = self.library.empty(shape, self.rows.dtype)
        target = self.library.target(memory)
        target.fill(0)
        _add_up(target.reshape(-1), places, batch.data)
        return self.library.delivered(memory)


class _Tally:
    """A counter for one array: how many chunks an epoch reads, and how many different chunks these are."""

    def __init__(self, array: Array) -> None:
        self.edges = chunk_starts(array._chunk_grid.axes[0], array.shape[0])
        self.seen = np.zeros(len(self.edges) - 1, bool)

    def add(self, starts: Ints, lengths: Ints, counts: Counts) -> None:
        """Adds to ``counts`` the chunks of the array that one read of some ranges of elements touches. No range is empty."""
        is_read = np.zeros(len(self.edges), np.int64)
        filled = lengths > 0
        np.add.at(is_read, np.searchsorted(self.edges, starts[filled], "right") - 1, 1)
        np.add.at(is_read, np.searchsorted(self.edges, (starts + lengths)[filled], "left"), -1)
        chunks = np.cumsum(is_read[:-1]) > 0
        counts.chunk_reads += int(chunks.sum())
        counts.chunks += int((chunks & ~self.seen).sum())
        self.seen |= chunks


# ------------------------------------------------------------------------------------------------------------ elements


def _memory(elements: Any) -> _core.NdBuffer:
    """Wraps the memory of a NumPy array or :class:`cuzarr.DeviceArray` as a buffer of the Rust side, without copying."""
    return elements._buffer if isinstance(elements, DeviceArray) else wrap_host(elements)


def _flat_places(batch: RowBatch, columns: int, device: str) -> Any:
    """For each stored element of a sparse batch, its flat index in the dense matrix, in C order."""
    lengths = np.diff(batch.borders)
    if device == "cpu":
        return np.repeat(np.arange(len(lengths)) * columns, lengths) + batch.indices
    if not batch.data.size:
        return DeviceArray.empty((0,), np.int64, device)
    steps = in_memory(zeros(batch.data.size, np.int64, device=device), "read")
    filled = np.flatnonzero(lengths)
    steps[batch.borders[filled]] = np.diff(filled, prepend=0) * columns
    return in_memory(cumsum(steps), "read") + batch.indices


def _dense_on_device(places: Any, data: Any, shape: tuple[int, int]) -> Any:
    """Makes a dense matrix on a GPU from elements and their flat indices."""
    dense = DeviceArray.empty((shape[0] * shape[1],), data.dtype, data.device)
    dense.fill(0)
    if _ascend(places) or _ascend(in_memory(sort(places), "read")):
        dense[places] = data
        return dense.reshape(shape)
    # If several elements had the same place, kernels would keep any one of them.
    on_host = np.zeros(dense.shape, data.dtype)
    _add_up(on_host, asnumpy(places), asnumpy(data))
    return DeviceArray.from_host(on_host.reshape(shape), data.device)


def _add_up(dense: np.ndarray[Any, Any], places: Ints, data: np.ndarray[Any, Any]) -> None:
    """Adds elements to a matrix of zeros at their flat indices, so that elements with equal indices are summed."""
    if _ascend(places):
        dense[places] = data
    else:
        np.add.at(dense, places, data)


def _ascend(places: Any) -> bool:
    """Whether the indices ascend: each is larger than the one before, so that none occurs twice."""
    return bool(asnumpy((places[1:] > places[:-1]).all()))

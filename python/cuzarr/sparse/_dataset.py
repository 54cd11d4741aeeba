"""Stored compressed sparse matrices, and reads of their rows and columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from cuzarr._checks import element_type
from cuzarr._compute.blocks import memory_limit_bytes
from cuzarr._compute.display import Explanation
from cuzarr._config import config
from cuzarr._docstrings import documented
from cuzarr._memory import convert
from cuzarr._memory.box import ensure_tuple, is_integer
from cuzarr._node.array import Array
from cuzarr._node.array_read import converted
from cuzarr._node.group import Group
from cuzarr._numpy import is_number, is_small
from cuzarr.errors import ArgumentTypeError, SelectionInvalidError, UnsupportedError
from cuzarr.sparse._elements import Elements, choose_columns
from cuzarr.sparse._encoding import broken, encoding_of, group_of, trail
from cuzarr.sparse._matrix import Format, Matrix, check_cupy, index_type, matrix_of, scipy_for
from cuzarr.sparse._places import Ints, Places, Ranges, places_of, ranges_of

if TYPE_CHECKING:
    from cuzarr.typing import DTypeLike, Selection, StoreLike, SupportsStorePath

ENCODINGS = {"csr_matrix": "0.1.0", "csc_matrix": "0.1.0"}

# Bytes of the memory limit that an element needs while columns are chosen, and the largest and smallest number of elements read at once.
_BYTES_PER_ELEMENT = 64
_LARGEST_BLOCK = 1 << 24
_SMALLEST_BLOCK = 1 << 16


@documented(
    """
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.create_group({}, attributes={"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [2, 3]})
    >>> for name, values in {"data": [1.0, 2.0, 3.0], "indices": [0, 2, 2], "indptr": [0, 2, 3]}.items():
    ...     _ = group.create_array(name, data=np.array(values))
    >>> dataset = cuzarr.sparse.CSRDataset(group)
    """,
)
class CompressedDataset:
    """A compressed sparse matrix in a store: the base class of :class:`CSRDataset` and :class:`CSCDataset`.

    The arrays ``data`` and ``indices`` stay in the store. ``indptr`` is read and checked when rows are first read, and then kept on the host.

    Parameters
    ----------
    group : Group or StoreLike
        The group of the matrix, or its path. Rows are read to its device.

    Raises
    ------
    UnsupportedFeatureError
        The group has another encoding.
    EncodingValidationError
        The arrays contradict each other or the group's ``shape``.
    ArrayNotFoundError
        One of the three arrays is missing.
    """

    format: ClassVar[Format]
    _major: ClassVar[int]

    def __init__(self, group: Group | SupportsStorePath | StoreLike) -> None:
        self._group = group_of(group)
        kind = encoding_of(self._group, ENCODINGS)
        if kind != f"{self.format}_matrix":
            raise ArgumentTypeError(f"the group holds a {kind}", hint="open it with cuzarr.sparse.sparse_dataset")
        self._shape = _shape_of(self._group)
        arrays = self._group._arrays_at(["data", "indices", "indptr"])
        self._data, self._indices = arrays["data"], arrays["indices"]
        self._indptr = arrays["indptr"].with_device("cpu")
        _check_arrays(self._data, self._indices, self._indptr)

    @property
    def group(self) -> Group:
        """The Zarr group in which the matrix is stored."""
        return self._group

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of columns of the matrix."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the matrix's stored elements."""
        return self._data.dtype

    @property
    def nnz(self) -> int:
        """The number of stored elements of the sparse matrix; all other elements are 0."""
        return self._data.shape[0]

    @property
    def backend(self) -> Literal["zarr"]:
        """The kind of file, always ``"zarr"``, under the name that anndata's data sets use."""
        return "zarr"

    @property
    def device(self) -> str:
        """The device to which elements of the matrix are read."""
        return self._data.device

    def with_device(self, device: str) -> Self:
        """Returns the same matrix, for reading to another device.

        Parameters
        ----------
        device : str
            ``"cpu"``, ``"cuda"`` or, to choose among GPUs, ``"cuda:1"``.

        Returns
        -------
        CSRDataset or CSCDataset
            The same matrix. It shares ``indptr``, if this was already read.

        >>> dataset.with_device("cpu").device
        'cpu'
        """
        other = type(self).__new__(type(self))
        other.__dict__ |= self.__dict__
        other._group = Group(self._group.store_path, self._group.metadata, device)
        other._data, other._indices = self._data.with_device(device), self._indices.with_device(device)
        return other

    def __getitem__(self, index: Selection) -> Any:
        """Read rows, columns or both: ``dataset[10:20]``, ``dataset[[7, 3]]``, ``dataset[mask, :100]``.

        Parameters
        ----------
        index : int, slice, list of int, array of int or bool, or a pair of them
            Rows, or rows and columns. Two lists choose all combinations of their rows and columns. Two integers choose one element.

        Returns
        -------
        matrix
            A SciPy matrix on the host. On a GPU, a CuPy matrix if CuPy is installed, else a :class:`Matrix`. One element is a number.

        Raises
        ------
        SelectionInvalidError, BoundsCheckError
            The selection does not fit.
        DTypeMismatchError, OutOfRangeError
            CuPy has no such matrix. :func:`read` can convert elements, and returns a :class:`Matrix`.
        EncodingValidationError
            The matrix is damaged.

        >>> dataset[1, 2]
        np.float64(3.0)
        """
        keys = ensure_tuple(index)
        if len(keys) > 2:
            raise SelectionInvalidError(f"too many indices: got {len(keys)} for a matrix of 2 dimensions")
        rows, columns = (*keys, None, None)[:2]
        if is_integer(rows) and is_integer(columns):
            data = self._read(rows, columns, None).data
            return data.sum().astype(self.dtype)
        return self._as_library(rows, columns)

    def to_memory(self) -> Any:
        """Read the whole matrix into memory.

        Returns
        -------
        matrix
            A SciPy matrix on the host. On a GPU, a CuPy matrix if CuPy is installed, else a :class:`Matrix`.

        Raises
        ------
        LibraryMissingError
            SciPy is not installed. :func:`read` returns a :class:`Matrix` without it.
        DTypeMismatchError, OutOfRangeError
            CuPy has no such matrix. :func:`read` can convert elements, and returns a :class:`Matrix`.
        EncodingValidationError
            The matrix is damaged.

        >>> dataset.to_memory().shape  # doctest: +SKIP
        (2, 3)
        """
        return self._as_library(None, None)

    def explain(self, rows: Selection = None, columns: Selection = None) -> Explanation:
        """Explain what reading rows and columns would do. The index pointer is read, but no elements.

        Parameters
        ----------
        rows, columns : int, slice, list of int, array of int or bool, optional
            As for :func:`read`.

        Returns
        -------
        Explanation
            The number of ranges and elements that are read, and whether columns are chosen after the read. ``print`` shows it as text.

        >>> print(dataset.explain([1]))
        read 1 x 3 of a csr matrix of 2 x 3 into cpu
          ranges     1 of data and of indices: 1 of 3 elements
        """
        chosen = self._chosen(rows, columns)
        report: dict[str, Any] = {
            "format": self.format,
            "shape": list(self.shape),
            "result": list(chosen.shape),
            "device": self.device,
            "ranges": len(chosen.ranges.starts),
            "elements": chosen.ranges.count,
            "stored_elements": self.nnz,
            "scanned": not chosen.is_whole,
            "blocks": 1 if chosen.is_whole else max(-(-chosen.ranges.count // self._block), 1),
        }
        return Explanation(_explained(report), json.dumps(report))

    def __repr__(self) -> str:
        return f"{type(self).__name__}: backend {self.backend}, shape {self.shape}, data_dtype {self.dtype}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._group,)

    # ---------------------------------------------------------------------------------------------------------- reading

    @cached_property
    def _pointer(self) -> Ints:
        stored = np.asarray(self._indptr[...])
        return _checked_pointer(self._indptr, stored, self._shape[self._major], self.nnz)

    @property
    def _block(self) -> int:
        """The number of elements that one call reads while columns are selected: whole chunks, so that a scan decodes each chunk once."""
        most = min(max(memory_limit_bytes(None) // _BYTES_PER_ELEMENT, _SMALLEST_BLOCK), _LARGEST_BLOCK)
        chunk = self._data.metadata._inner_chunks[0]
        return max(most // chunk, 1) * chunk

    def _chosen(self, rows: Any, columns: Any) -> _Chosen:
        places = places_of(rows, self._shape[0]), places_of(columns, self._shape[1])
        major, minor = places[self._major], places[1 - self._major]
        is_whole = isinstance(minor, range) and minor == range(self._shape[1 - self._major])
        return _Chosen((len(places[0]), len(places[1])), ranges_of(self._pointer, major), minor, is_whole)

    def _read(self, rows: Any, columns: Any, dtype: Any) -> Matrix:
        return self._elements_of(self._chosen(rows, columns), None if dtype is None else converted(self._data, dtype))

    def _elements_of(self, chosen: _Chosen, dtype: np.dtype[Any] | None) -> Matrix:
        extent, ranges = self._shape[1 - self._major], chosen.ranges
        elements = Elements(self._data, self._indices, extent, dtype)
        if chosen.is_whole:
            data, indices = elements.read(ranges.starts, ranges.lengths, index_type(ranges.count, chosen.shape))
            borders = ranges.borders
        else:
            data, indices, borders = choose_columns(elements, ranges, chosen.minor, index_type(0, (extent, 0)), self._block)
        return matrix_of(self.format, chosen.shape, data, indices, borders)

    def _as_library(self, rows: Any, columns: Any) -> Any:
        chosen = self._chosen(rows, columns)
        is_gpu = self.device.partition(":")[0] in ("cuda", "gpu")
        is_cupys = is_gpu and config.get("array_type") != "device" and convert.cupy_holds(np.dtype("f4"))
        is_scipys = self.device == "cpu"
        # A matrix that the library cannot hold is refused before anything is read.
        if is_cupys:
            check_cupy(self.dtype, chosen.ranges.count if chosen.is_whole else 0, chosen.shape)
        elif is_scipys:
            scipy_for(self.dtype)
        matrix = self._elements_of(chosen, None)
        return matrix.to_cupy() if is_cupys else matrix.to_scipy() if is_scipys else matrix


@dataclass(frozen=True)
class _Chosen:
    """The rows and columns of a stored matrix that one read selects.

    Attributes
    ----------
    shape : (int, int)
        The shape of the result.
    ranges : Ranges
        The ranges of the chosen rows (in CSC matrices, of the columns).
    minor : Places
        The chosen places along the other dimension.
    is_whole : bool
        Whether ``minor`` is all places in their order.
    """

    shape: tuple[int, int]
    ranges: Ranges
    minor: Places
    is_whole: bool


class CSRDataset(CompressedDataset):
    """A compressed sparse row matrix in a store, of anndata's encoding ``csr_matrix``. Reading rows is fast.

    For a choice of columns, all elements of the rows are read, and chosen on the device.

    Parameters
    ----------
    group : Group or StoreLike
        The group of the matrix, or its path. Rows are read to its device.

    Raises
    ------
    UnsupportedFeatureError, ArgumentTypeError
        The group has another encoding.
    EncodingValidationError
        The arrays contradict each other or the group's ``shape``.
    ArrayNotFoundError
        One of the three arrays is missing.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.create_group({}, attributes={"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [2, 3]})
    >>> for name, values in {"data": [1.0, 2.0, 3.0], "indices": [0, 2, 2], "indptr": [0, 2, 3]}.items():
    ...     _ = group.create_array(name, data=np.array(values))
    >>> cuzarr.sparse.CSRDataset(group)
    CSRDataset: backend zarr, shape (2, 3), data_dtype float64
    """

    format = "csr"
    _major = 0


class CSCDataset(CompressedDataset):
    """A compressed sparse column matrix in a store, of anndata's encoding ``csc_matrix``. Reading columns is fast.

    For a choice of rows, all elements of the columns are read, and chosen on the device.

    Parameters
    ----------
    group : Group or StoreLike
        The group of the matrix, or its path. Columns are read to its device.

    Raises
    ------
    UnsupportedFeatureError, ArgumentTypeError
        The group has another encoding.
    EncodingValidationError
        The arrays contradict each other or the group's ``shape``.
    ArrayNotFoundError
        One of the three arrays is missing.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.create_group({}, attributes={"encoding-type": "csc_matrix", "encoding-version": "0.1.0", "shape": [3, 2]})
    >>> for name, values in {"data": [1.0, 2.0, 3.0], "indices": [0, 2, 2], "indptr": [0, 2, 3]}.items():
    ...     _ = group.create_array(name, data=np.array(values))
    >>> cuzarr.sparse.CSCDataset(group).shape
    (3, 2)
    """

    format = "csc"
    _major = 1


def sparse_dataset(group: Group | SupportsStorePath | StoreLike, *, device: str | None = None) -> CSRDataset | CSCDataset:
    """Open a stored sparse matrix without reading it, like ``anndata.io.sparse_dataset``.

    Parameters
    ----------
    group : Group or StoreLike
        The group of the matrix, or its path.
    device : str, optional
        The device to read to; by default the group's device.

    Returns
    -------
    CSRDataset or CSCDataset
        The class that the group's encoding names.

    Raises
    ------
    UnsupportedFeatureError
        The group is neither a ``csr_matrix`` nor a ``csc_matrix``.
    EncodingValidationError
        The arrays contradict each other or the group's ``shape``.
    ArrayNotFoundError
        One of the three arrays is missing.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.create_group({}, attributes={"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [2, 3]})
    >>> for name, values in {"data": [1.0, 2.0, 3.0], "indices": [0, 2, 2], "indptr": [0, 2, 3]}.items():
    ...     _ = group.create_array(name, data=np.array(values))
    >>> cuzarr.sparse.sparse_dataset(group).nnz
    3
    """
    opened = group_of(group)
    made = CSRDataset if encoding_of(opened, ENCODINGS) == "csr_matrix" else CSCDataset
    dataset = made(opened)
    return dataset if device is None else dataset.with_device(device)


def read(
    matrix: CSRDataset | CSCDataset | Group | SupportsStorePath | StoreLike,
    rows: Selection = None,
    columns: Selection = None,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Matrix:
    """Read rows, columns or both of a stored sparse matrix: anndata's ``X``, its layers, ``obsp`` and ``varp``.

    Rows of a CSR matrix and columns of a CSC matrix are ranges of the stored arrays. They are read together. Neighbouring ranges are
    joined, and each chunk is decoded once. For a choice along the other dimension, all elements of these ranges are read, block by block,
    and chosen on the device.

    Parameters
    ----------
    matrix : CSRDataset, CSCDataset, Group or StoreLike
        A matrix, its group, or the path of the group. A data set keeps its index pointer for the next call.
    rows, columns : int, slice, list of int, array of int or bool, optional
        The rows and columns to read, in this order; by default all. Slices have steps of at least 1.
    dtype : dtype, optional
        The type of elements; by default the stored type. Elements are converted during the read.
    device : str, optional
        The device of the result; by default the group's device.

    Returns
    -------
    Matrix
        The result. Its ``to_scipy``, ``to_cupy`` and ``to_torch`` return matrices of these libraries.

    Raises
    ------
    SelectionInvalidError, BoundsCheckError
        ``rows`` or ``columns`` do not fit the matrix.
    UnsupportedFeatureError
        The group is neither a ``csr_matrix`` nor a ``csc_matrix``.
    EncodingValidationError
        The matrix is damaged: the index pointer descends, an index is out of bounds, or an array has a wrong length.
    DTypeMismatchError
        Elements cannot be converted to ``dtype``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.create_group({}, attributes={"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [2, 3]})
    >>> for name, values in {"data": [1, 2, 3], "indices": [0, 2, 2], "indptr": [0, 2, 3]}.items():
    ...     _ = group.create_array(name, data=np.array(values))
    >>> cuzarr.sparse.read(group, [1, 0], dtype="float32").data
    array([3., 1., 2.], dtype=float32)
    """
    dataset = matrix if isinstance(matrix, CompressedDataset) else sparse_dataset(matrix)
    if device is not None:
        dataset = dataset.with_device(device)
    return dataset._read(rows, columns, None if dtype is None else element_type(dtype))


def _explained(report: dict[str, Any]) -> str:
    """Formats the report about a planned read as text."""
    (height, width), (rows, columns) = report["shape"], report["result"]
    lines, others = ("rows", "columns") if report["format"] == "csr" else ("columns", "rows")
    text = f"read {rows} x {columns} of a {report['format']} matrix of {height} x {width} into {report['device']}\n"
    text += (
        f"  ranges     {report['ranges']} of data and of indices: {report['elements']} of {report['stored_elements']} elements"
    )
    if report["scanned"]:
        blocks = "1 block" if report["blocks"] == 1 else f"{report['blocks']} blocks"
        text += f"\n  {others:10} all elements of these {lines} are scanned once, in {blocks}, and chosen on {report['device']}"
    return text


# ------------------------------------------------------------------------------------------------------------ checks


def _shape_of(group: Group) -> tuple[int, int]:
    shape = group.attrs.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or not all(is_integer(extent) and 0 <= extent < 1 << 63 for extent in shape)
    ):
        raise broken(group, f"the attribute 'shape' is {shape!r}, expected two numbers of at least 0")
    rows, columns = shape
    return int(rows), int(columns)


def _check_arrays(data: Array, indices: Array, indptr: Array) -> None:
    for array in (data, indices, indptr):
        if array.ndim != 1:
            raise broken(array, f"the shape is {array.shape}, expected one dimension")
    for array in (indices, indptr):
        if array.dtype.kind not in "iu":
            raise broken(array, f"elements are of {array.dtype}, expected integers")
    if is_small(data.dtype) and not is_number(data.dtype):
        raise UnsupportedError(f"elements are of {data.dtype}, which sparse matrices do not have here", trail=trail(data))
    if not is_number(data.dtype):
        raise broken(data, f"elements are of {data.dtype}, expected numbers")
    if data.shape != indices.shape:
        raise broken(indices, f"there are {indices.shape[0]} indices for {data.shape[0]} elements of data")


def _checked_pointer(array: Array, stored: np.ndarray[Any, Any], extent: int, count: int) -> Ints:
    """Checks a stored index pointer, and converts it to int64.

    Raises
    ------
    EncodingValidationError
        The pointer has a wrong length, does not begin with 0, descends, or points past the end.
    """
    if fault := pointer_fault(stored, extent, count):
        raise broken(array, fault)
    return stored.astype(np.int64)


def pointer_fault(pointer: np.ndarray[Any, Any], extent: int, count: int) -> str | None:
    """What is wrong with an index pointer of one dimension, for ``extent`` rows (or columns) with ``count`` elements in all; ``None`` if it is
    right."""
    if len(pointer) != extent + 1:
        return f"the length is {len(pointer)}, expected {extent + 1}"
    if pointer[0] != 0:
        return f"it begins with {pointer[0]}, expected 0"
    falls = np.flatnonzero(pointer[1:] < pointer[:-1])
    if falls.size:
        place = int(falls[0])
        return f"it descends from {pointer[place]} to {pointer[place + 1]} at {place + 1}"
    if int(pointer[-1]) > count:
        return f"it points to {pointer[-1]}, past the end of {count} elements"
    return None

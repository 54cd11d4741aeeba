"""Writes sparse matrices in memory to groups of anndata's format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cuzarr._memory.box import is_integer
from cuzarr._metadata.array import AnyArrayMetadata
from cuzarr._metadata.create import DEFAULT_FILL_VALUE, new_metadata
from cuzarr._metadata.documents import write_new
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._metadata.group import GroupMetadata
from cuzarr._node.array import Array
from cuzarr._node.group import Group
from cuzarr._numpy import is_number, is_small
from cuzarr.errors import ArgumentTypeError, DTypeMismatchError, InvalidArgumentError
from cuzarr.sparse._dataset import ENCODINGS, CompressedDataset, CSCDataset, CSRDataset, pointer_fault, sparse_dataset
from cuzarr.sparse._encoding import group_of
from cuzarr.sparse._matrix import Matrix
from cuzarr.storage.zip import finishing
from cuzarr.xp import asnumpy
from cuzarr.xp.arguments import in_memory

if TYPE_CHECKING:
    import cupyx.scipy.sparse
    import scipy.sparse
    import torch

    from cuzarr.typing import Chunks, Codecs, MemoryArray, Shards, StoreLike, SupportsStorePath


def write(
    group: Group | SupportsStorePath | StoreLike,
    name: str,
    matrix: Matrix | scipy.sparse.csr_matrix | scipy.sparse.csc_matrix | cupyx.scipy.sparse.spmatrix | torch.Tensor,
    *,
    overwrite: bool = False,
    chunks: Chunks = "auto",
    shards: Shards = None,
    compressors: Codecs = "auto",
) -> CSRDataset | CSCDataset:
    """Write a sparse matrix to a new group, in the format of ``anndata.io.write_elem``.

    Elements and indices in the memory of a GPU are encoded there. Readers find the matrix when all its elements are stored. A matrix or
    options that do not fit are refused before anything is written or replaced.

    Parameters
    ----------
    group : Group or StoreLike
        The group above the matrix, or its path. It is created if it is missing.
    name : str
        The path of the matrix below ``group``, such as ``"X"`` or ``"layers/counts"``.
    matrix : sparse matrix
        A CSR or CSC matrix of SciPy or CuPy, a sparse CSR or CSC tensor of PyTorch, or a :class:`Matrix`.
    overwrite : bool
        Replace what is there.
    chunks, shards : int, optional
        Numbers of elements in a chunk and in a shard of the arrays ``data`` and ``indices``; by default cuzarr chooses.
    compressors : optional
        Compressors of all three arrays, as in :func:`cuzarr.create_array`.

    Returns
    -------
    CSRDataset or CSCDataset
        The stored matrix.

    Raises
    ------
    ArgumentTypeError
        ``matrix`` is no compressed sparse matrix.
    InvalidArgumentError
        The three arrays of the matrix contradict each other, or options do not fit.
    DTypeMismatchError, DataTypeValidationError
        Elements are not numbers that Zarr can store, or indices are not integers.
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> matrix = cuzarr.sparse.Matrix("csr", (2, 3), np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2], "i4"), np.array([0, 2, 3], "i4"))
    >>> stored = cuzarr.sparse.write({}, "X", matrix)
    >>> stored, cuzarr.sparse.read(stored, [1]).data
    (CSRDataset: backend zarr, shape (2, 3), data_dtype float64, array([3.]))
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name is {name!r}, expected a path below the group, such as 'X'")
    own = _checked(_matrix_of(matrix))
    parent = group_of(group, "a")
    with finishing(parent.store, group):
        return _stored(parent, name, own, overwrite, chunks=chunks, shards=shards, compressors=compressors)


def _stored(parent: Group, name: str, matrix: Matrix, overwrite: bool, **layout: Any) -> CSRDataset | CSCDataset:
    """Creates the group and its three arrays. What does not fit is refused before a matrix that is there is deleted."""
    kind, place, zarr_format = f"{matrix.format}_matrix", parent.store_path / name, parent.metadata.zarr_format
    encoding = {"encoding-type": kind, "encoding-version": ENCODINGS[kind], "shape": list(matrix.shape)}
    values = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    arrays = {
        part: Array(place / part, _metadata_of(part, elements, zarr_format, layout), device=parent._own_device)
        for part, elements in values.items()
    }
    # A transactional store has the nodes before their elements, so its group gets the encoding last.
    is_transactional = place.store._handle.is_transactional()
    nodes: dict[str, Any] = {"": GroupMetadata({} if is_transactional else encoding, zarr_format)}

    def fill() -> None:
        for part, array in arrays.items():
            if array.size:
                array[...] = values[part]

    write_new(place, nodes | {part: array.metadata for part, array in arrays.items()}, overwrite=overwrite, fill=fill)
    made = Group(place, nodes[""], parent._own_device, parent._chunk_cache)
    if is_transactional:
        made.update_attributes(encoding)
    parent._note(name, made.metadata)
    for part, array in arrays.items():
        parent._note(f"{name}/{part}", array.metadata)
    return sparse_dataset(made)


def _metadata_of(part: str, elements: MemoryArray, zarr_format: ZarrFormat, layout: dict[str, Any]) -> AnyArrayMetadata:
    own = layout if part != "indptr" else layout | {"chunks": "auto", "shards": None}
    return new_metadata(
        shape=elements.shape,
        dtype=elements.dtype,
        filters="auto",
        serializer="auto",
        fill_value=DEFAULT_FILL_VALUE,
        order=None,
        zarr_format=zarr_format,
        attributes=None,
        chunk_key_encoding=None,
        dimension_names=None,
        **own,
    )


def _matrix_of(given: Any) -> Matrix:
    """The three arrays of a matrix of any library.

    Raises
    ------
    ArgumentTypeError
    """
    if isinstance(given, CompressedDataset):
        raise ArgumentTypeError("the matrix is in a store", hint="copy its group: cuzarr.copy(dataset.group, target)")
    if isinstance(given, Matrix) or getattr(given, "format", None) in ("csr", "csc"):
        return _made(given.format, given.shape, data=given.data, indices=given.indices, indptr=given.indptr)
    layout = str(getattr(given, "layout", None))
    if layout == "torch.sparse_csr":
        own = {"indices": given.col_indices(), "indptr": given.crow_indices()}
        return _made("csr", given.shape, data=given.values().detach(), **own)
    if layout == "torch.sparse_csc":
        own = {"indices": given.row_indices(), "indptr": given.ccol_indices()}
        return _made("csc", given.shape, data=given.values().detach(), **own)
    message = f"the matrix is a {type(given).__name__}, expected a CSR or CSC matrix of SciPy, CuPy or PyTorch"
    hint = "convert it by its method tocsr()" if hasattr(given, "tocsr") else "convert it: scipy.sparse.csr_matrix(matrix)"
    raise ArgumentTypeError(message, hint=hint)


def _made(form: Any, shape: Any, **arrays: Any) -> Matrix:
    if form not in ("csr", "csc"):
        raise InvalidArgumentError(f"the matrix has the format {form!r}, expected 'csr' or 'csc'")
    extents = tuple(shape) if isinstance(shape, Iterable) else ()
    if len(extents) != 2 or not all(is_integer(extent) and extent >= 0 for extent in extents):
        raise InvalidArgumentError(f"the matrix has the shape {shape!r}, expected two numbers of at least 0")
    held: dict[str, Any] = {name: in_memory(one, "write") for name, one in arrays.items()}
    return Matrix(form, (int(extents[0]), int(extents[1])), **held)


def _checked(matrix: Matrix) -> Matrix:
    """Checks what reads of the stored matrix will check, and cuts off unused elements, which matrices of SciPy may have.

    Raises
    ------
    InvalidArgumentError, DTypeMismatchError
    """
    data, indices = matrix.data, matrix.indices
    if is_small(data.dtype) or not is_number(data.dtype):
        raise DTypeMismatchError(f"data has elements of {data.dtype}, expected numbers")
    for name, array in (("indices", indices), ("indptr", matrix.indptr)):
        if array.dtype.kind not in "iu":
            raise DTypeMismatchError(f"{name} has elements of {array.dtype}, expected integers")
    if matrix.indptr.ndim != 1 or data.ndim != 1 or data.shape != indices.shape:
        shapes = ", ".join(f"{name} {getattr(matrix, name).shape}" for name in ("data", "indices", "indptr"))
        raise InvalidArgumentError(f"the shapes are {shapes}; expected one dimension each, and as many indices as data")
    rows, columns = matrix.shape
    major, minor, others = (rows, columns, "columns") if matrix.format == "csr" else (columns, rows, "rows")
    pointer = asnumpy(matrix.indptr)
    if fault := pointer_fault(pointer, major, len(data)):
        raise InvalidArgumentError(f"indptr: {fault}")
    count = int(pointer[-1])
    data, indices = data[:count], indices[:count]
    if count:
        lowest, highest = (int(asnumpy(bound())) for bound in (indices.min, indices.max))
        if lowest < 0 or highest >= minor:
            raise InvalidArgumentError(f"indices go from {lowest} to {highest}, and the matrix has {minor} {others}")
    return replace(matrix, data=data, indices=indices)

"""Writes sparse matrices in memory to groups of anndata's format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cuzarr._node.group import Group
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError
from cuzarr.sparse._dataset import ENCODINGS, CompressedDataset, CSCDataset, CSRDataset, sparse_dataset
from cuzarr.sparse._encoding import group_of
from cuzarr.sparse._matrix import Format, Matrix
from cuzarr.xp import asnumpy
from cuzarr.xp.arguments import in_memory

if TYPE_CHECKING:
    import cupyx.scipy.sparse
    import scipy.sparse
    import torch

    from cuzarr.typing import Chunks, Codecs, Shards, StoreLike, SupportsStorePath


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

    Elements and indices in the memory of a GPU are encoded there. The group gets its encoding when all elements are stored, so readers
    refuse a matrix that was not finished.

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
        The three arrays of the matrix contradict each other.
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
    own = _checked(_matrix_of(matrix))
    kind = f"{own.format}_matrix"
    made = group_of(group, "a").create_group(name, overwrite=overwrite)
    made.create_array("data", data=own.data, chunks=chunks, shards=shards, compressors=compressors)
    made.create_array("indices", data=own.indices, chunks=chunks, shards=shards, compressors=compressors)
    made.create_array("indptr", data=own.indptr, compressors=compressors)
    made.update_attributes({"encoding-type": kind, "encoding-version": ENCODINGS[kind], "shape": list(own.shape)})
    return sparse_dataset(made)


def _matrix_of(given: Any) -> Matrix:
    """The three arrays of a matrix of any library.

    Raises
    ------
    ArgumentTypeError
    """
    if isinstance(given, Matrix):
        return given
    if isinstance(given, CompressedDataset):
        raise ArgumentTypeError("the matrix is in a store", hint="copy its group: cuzarr.copy(dataset.group, target)")
    if (form := getattr(given, "format", None)) in ("csr", "csc"):
        return _made(form, given.shape, given.data, given.indices, given.indptr)
    layout = str(getattr(given, "layout", None))
    if layout == "torch.sparse_csr":
        return _made("csr", given.shape, given.values().detach(), given.col_indices(), given.crow_indices())
    if layout == "torch.sparse_csc":
        return _made("csc", given.shape, given.values().detach(), given.row_indices(), given.ccol_indices())
    message = f"the matrix is a {type(given).__name__}, expected a CSR or CSC matrix of SciPy, CuPy or PyTorch"
    hint = "convert it by its method tocsr()" if hasattr(given, "tocsr") else "convert it: scipy.sparse.csr_matrix(matrix)"
    raise ArgumentTypeError(message, hint=hint)


def _made(form: Format, shape: Any, *arrays: Any) -> Matrix:
    extents = tuple(map(int, shape))
    if len(extents) != 2:
        raise ArgumentTypeError(f"the matrix has {len(extents)} dimensions, expected 2")
    held: list[Any] = [in_memory(one, "write") for one in arrays]
    return Matrix(form, extents, *held)


def _checked(matrix: Matrix) -> Matrix:
    """Checks what reads of the stored matrix will check, and cuts off unused elements, which matrices of SciPy may have.

    Raises
    ------
    InvalidArgumentError
    """
    major, minor = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
    pointer = asnumpy(matrix.indptr)
    if pointer.shape != (major + 1,) or pointer[0] != 0 or (pointer[1:] < pointer[:-1]).any():
        raise InvalidArgumentError(f"indptr of shape {pointer.shape} does not rise from 0, with {major + 1} elements")
    count = int(pointer[-1])
    if matrix.data.ndim != 1 or matrix.data.shape != matrix.indices.shape or len(matrix.data) < count:
        shapes = f"data of shape {matrix.data.shape} and indices of shape {matrix.indices.shape}"
        raise InvalidArgumentError(f"{shapes} are not {count} elements, to which indptr points")
    data, indices = matrix.data[:count], matrix.indices[:count]
    if count:
        lowest, highest = (int(asnumpy(bound())) for bound in (indices.min, indices.max))
        if lowest < 0 or highest >= minor:
            raise InvalidArgumentError(f"indices are {lowest} to {highest}, expected 0 to {minor - 1}")
    return replace(matrix, data=data, indices=indices)

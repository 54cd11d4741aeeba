"""A compressed sparse matrix in memory, and its conversion to matrices of other libraries."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cuzarr._memory import convert, foreign
from cuzarr.errors import DTypeMismatchError, LibraryMissingError, MemorySpaceError, OutOfRangeError
from cuzarr.sparse._places import Ints
from cuzarr.xp import asnumpy, nonzero

if TYPE_CHECKING:
    import cupyx.scipy.sparse
    import scipy.sparse
    import torch

    from cuzarr.typing import MemoryArray

Format = Literal["csr", "csc"]
LARGEST_INT32 = np.iinfo(np.int32).max


def index_type(count: int, shape: tuple[int, int]) -> np.dtype[Any]:
    """The type of ``indices`` and ``indptr`` of a matrix with ``count`` elements: int32 if this is large enough, else int64."""
    return np.dtype(np.int32 if max(count, *shape) <= LARGEST_INT32 else np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Matrix:
    """A compressed sparse matrix in the memory of a device: the same three arrays as in SciPy, CuPy and PyTorch.

    The elements of row ``i`` of a CSR matrix are ``data[indptr[i]:indptr[i + 1]]``, and their columns are ``indices`` at the same places.
    For a CSC matrix, exchange rows and columns in this sentence. Elements keep their stored order. A place may have several elements; its
    value is then their sum.

    Parameters
    ----------
    format : {"csr", "csc"}
        Whether rows or columns are compressed.
    shape : (int, int)
        Rows and columns.
    data : array
        The elements.
    indices, indptr : array
        The columns of the elements, and the starts of the rows. Both are int32 if this is large enough, else int64, and on the device of
        ``data``.

    Raises
    ------
    LibraryMissingError, DTypeMismatchError, MemorySpaceError
        From ``to_scipy``, ``to_cupy`` and ``to_torch``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> data, indices, indptr = np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2], "i4"), np.array([0, 2, 3], "i4")
    >>> cuzarr.sparse.Matrix("csr", (2, 3), data, indices, indptr)
    <csr matrix of shape (2, 3) with 3 elements of float64 on cpu>
    """

    format: Format
    shape: tuple[int, int]
    data: MemoryArray
    indices: MemoryArray
    indptr: MemoryArray

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the matrix's elements."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """The number of stored elements of the sparse matrix; all other elements are 0. Stored zeros and repeated elements at one place are
        counted."""
        return self.data.size

    @property
    def device(self) -> str:
        """The device whose memory holds the matrix: ``"cpu"`` or ``"cuda:0"``."""
        return foreign.device_of(self.data)

    @cached_property
    def has_sorted_indices(self) -> bool:
        """Whether the column indices of each row ascend. This is computed at the first access."""
        (falls,) = nonzero(self.indices[1:] < self.indices[:-1])
        if falls.size >= len(self.indptr):
            return False
        # From one row to the next, columns may descend.
        return bool(np.isin(asnumpy(falls) + 1, asnumpy(self.indptr)).all())

    def to_scipy(self) -> scipy.sparse.csr_matrix | scipy.sparse.csc_matrix:
        """This matrix as a SciPy matrix. From a GPU, the data are copied to the host. On the host, both matrices share memory.

        Returns
        -------
        scipy.sparse.csr_matrix or scipy.sparse.csc_matrix

        Raises
        ------
        LibraryMissingError
            SciPy is not installed.
        DTypeMismatchError
            SciPy has no matrices of this element type, for example float16.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> matrix = cuzarr.sparse.Matrix("csr", (1, 3), np.array([5.0]), np.array([2], "i4"), np.array([0, 1], "i4"))
        >>> matrix.to_scipy().toarray()  # doctest: +SKIP
        array([[0., 0., 5.]])
        """
        sparse = scipy_for(self.dtype)
        kind = sparse.csr_matrix if self.format == "csr" else sparse.csc_matrix
        return kind(tuple(map(asnumpy, self._arrays)), shape=self.shape)

    def to_cupy(self) -> cupyx.scipy.sparse.csr_matrix | cupyx.scipy.sparse.csc_matrix:
        """This matrix as a CuPy matrix, which shares its memory.

        Returns
        -------
        cupyx.scipy.sparse.csr_matrix or cupyx.scipy.sparse.csc_matrix

        Raises
        ------
        DTypeMismatchError
            The elements are not of type bool, float32, float64, complex64 or complex128.
        OutOfRangeError
            There are more than 2³¹ - 1 elements, rows or columns. Use :meth:`to_torch`.
        MemorySpaceError
            The matrix is on the host.
        LibraryMissingError
            CuPy is not installed.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> matrix = cuzarr.sparse.Matrix("csr", (1, 3), np.array([5]), np.array([2], "i4"), np.array([0, 1], "i4"))
        >>> matrix.to_cupy()
        Traceback (most recent call last):
        cuzarr.errors.DTypeMismatchError: CuPy has no sparse matrices of int64
        hint: read with dtype='float32'
        """
        check_cupy(self.dtype, self.nnz, self.shape)
        kind, _, number = self.device.partition(":")
        if kind != "cuda":
            message = f"the matrix is on {self.device}, and CuPy's are on a GPU"
            raise MemorySpaceError(message, hint="read it with device='cuda'")
        cupy = _library("cupy", "pip install cupy-cuda12x")
        sparse = _library("cupyx.scipy.sparse", "pip install cupy-cuda12x")
        made = sparse.csr_matrix if self.format == "csr" else sparse.csc_matrix
        with cupy.cuda.Device(int(number)):
            return made(tuple(map(cupy.asarray, self._arrays)), shape=self.shape)

    def to_torch(self) -> torch.Tensor:
        """This matrix as a sparse tensor of PyTorch on the same device, which shares its memory.

        Some PyTorch functions need ascending columns without repetitions in each row. This method does not sort; see
        :attr:`has_sorted_indices`.

        Returns
        -------
        torch.Tensor
            A tensor with the layout ``torch.sparse_csr`` or ``torch.sparse_csc``.

        Raises
        ------
        LibraryMissingError
            PyTorch is not installed.
        DTypeMismatchError
            PyTorch does not support the element type.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> matrix = cuzarr.sparse.Matrix("csr", (1, 3), np.array([5.0]), np.array([2], "i4"), np.array([0, 1], "i4"))
        >>> matrix.to_torch().to_dense()  # doctest: +SKIP
        tensor([[0., 0., 5.]], dtype=torch.float64)
        """
        torch = _library("torch", "pip install torch")
        make = torch.sparse_csr_tensor if self.format == "csr" else torch.sparse_csc_tensor
        # NumPy cannot export all types by DLPack; for example not bfloat16.
        shared = (foreign.wrap_host(one) if isinstance(one, np.ndarray) else one for one in self._arrays)
        try:
            data, indices, indptr = map(torch.from_dlpack, shared)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            message = f"PyTorch takes no elements of {self.dtype}: {error}"
            raise DTypeMismatchError(message, hint="read with dtype='float32'") from error
        return make(indptr, indices, data, size=self.shape, check_invariants=False)

    def __repr__(self) -> str:
        return f"<{self.format} matrix of shape {self.shape} with {self.nnz} elements of {self.dtype} on {self.device}>"

    @property
    def _arrays(self) -> tuple[MemoryArray, MemoryArray, MemoryArray]:
        return self.data, self.indices, self.indptr


def matrix_of(form: Format, shape: tuple[int, int], data: MemoryArray, indices: MemoryArray, indptr: Ints) -> Matrix:
    """Makes a matrix from elements and indices on a device, and an index pointer on the host."""
    kind, device = index_type(data.size, shape), foreign.device_of(data)
    pointer = indptr.astype(kind)
    on_device: Any = pointer if device == "cpu" else convert.to_device(pointer, device)
    return Matrix(form, shape, data, indices if indices.dtype == kind else indices.astype(kind), on_device)


def scipy_for(dtype: np.dtype[Any]) -> Any:
    """Imports SciPy's module of sparse matrices, after a check that it supports an element type.

    Raises
    ------
    DTypeMismatchError
        SciPy has no matrices of this element type.
    LibraryMissingError
        SciPy is not installed.
    """
    if dtype.kind not in "biufc" or dtype == np.float16:
        raise DTypeMismatchError(f"SciPy has no matrices of {dtype}", hint="read with dtype='float32'")
    return _library("scipy.sparse", "pip install scipy")


def check_cupy(dtype: np.dtype[Any], count: int, shape: tuple[int, int]) -> None:
    """Refuses elements and shapes that CuPy's matrices cannot hold.

    Raises
    ------
    DTypeMismatchError, OutOfRangeError
    """
    if dtype.char not in "?fdFD":
        raise DTypeMismatchError(f"CuPy has no sparse matrices of {dtype}", hint="read with dtype='float32'")
    if index_type(count, shape) != np.int32:
        message = f"a matrix of shape {shape} with {count} elements is more than CuPy's indices of int32 can count"
        raise OutOfRangeError(message, hint="read it with cuzarr.sparse.read, and use to_torch(), or choose rows")


def _library(name: str, hint: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LibraryMissingError(f"{name} is not installed", hint=hint) from error

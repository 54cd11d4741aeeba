"""Reads and writes sparse matrices and reads data frames of anndata's format, such as single-cell data, in the memory of a device.

:func:`read` returns rows or columns of a stored matrix as a :class:`Matrix`, which can be converted to a matrix of SciPy, CuPy or PyTorch.
:func:`sparse_dataset` opens a matrix without reading it. :func:`read_column` and :func:`read_frame` read ``obs`` and ``var``: numbers and
codes are read to the device, labels to the host. :func:`write` stores a matrix that is in memory. anndata and SciPy need not be installed.

>>> import cuzarr, numpy as np
>>> matrix = cuzarr.sparse.Matrix("csr", (2, 3), np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2], "i4"), np.array([0, 2, 3], "i4"))
>>> cuzarr.sparse.read(cuzarr.sparse.write({}, "X", matrix), [1])
<csr matrix of shape (1, 3) with 1 elements of float64 on cpu>

Data pass through the modules of this package as follows:

==============  ==================================================================================
``_encoding``   attributes → what a group holds
``_places``     a selection and an index pointer → ranges of elements, neighbours joined
``_elements``   ranges → elements in memory, checked; columns are chosen there
``_matrix``     elements → a matrix, and matrices of other libraries
``_dataset``    the stored matrix that callers use
``_write``      a matrix in memory → a stored one
``_columns``    stored data frames and their columns
==============  ==================================================================================
"""

from __future__ import annotations

from cuzarr import _names
from cuzarr.sparse._columns import Column, Frame, read_column, read_frame
from cuzarr.sparse._dataset import CSCDataset, CSRDataset, read, sparse_dataset
from cuzarr.sparse._matrix import Matrix
from cuzarr.sparse._write import write

__all__ = [
    "CSCDataset",
    "CSRDataset",
    "Column",
    "Frame",
    "Matrix",
    "read",
    "read_column",
    "read_frame",
    "sparse_dataset",
    "write",
]

_names.publish(globals())

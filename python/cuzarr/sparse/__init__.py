"""Reads sparse matrices and data frames of anndata's format, such as single-cell data, straight into the memory of a device.

:func:`read` returns rows or columns of a stored matrix as a :class:`Matrix`, which can be converted to a matrix of SciPy, CuPy or PyTorch.
:func:`sparse_dataset` opens a matrix without reading it. :func:`read_column` and :func:`read_frame` read ``obs`` and ``var``: numbers and
codes are read to the device, labels to the host. anndata and SciPy need not be installed.

>>> import cuzarr, numpy as np
>>> group = cuzarr.create_group({}, attributes={"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [2, 3]})
>>> for name, values in {"data": [1.0, 2.0, 3.0], "indices": [0, 2, 2], "indptr": [0, 2, 3]}.items():
...     _ = group.create_array(name, data=np.array(values))
>>> cuzarr.sparse.read(group, [1])
<csr matrix of shape (1, 3) with 1 elements of float64 on cpu>

Data pass through the modules of this package as follows:

==============  ==================================================================================
``_encoding``   attributes → what a group holds
``_places``     a selection and an index pointer → ranges of elements, neighbours joined
``_elements``   ranges → elements in memory, checked; columns are chosen there
``_matrix``     elements → a matrix, and matrices of other libraries
``_dataset``    the stored matrix that callers use
``_columns``    stored data frames and their columns
==============  ==================================================================================
"""

from __future__ import annotations

from cuzarr import _names
from cuzarr.sparse._columns import Column, Frame, read_column, read_frame
from cuzarr.sparse._dataset import CSCDataset, CSRDataset, read, sparse_dataset
from cuzarr.sparse._matrix import Matrix

__all__ = ["CSCDataset", "CSRDataset", "Column", "Frame", "Matrix", "read", "read_column", "read_frame", "sparse_dataset"]

_names.publish(globals())

"""Reading of anndata's objects whose matrices are on a GPU, through anndata's own registry of readers.

:func:`read_elem` is ``anndata.io.read_elem``, but matrices go from the store to the device. To read matrices and data frames without
anndata, use :mod:`cuzarr.sparse`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import anndata
import zarr
from anndata.experimental import read_dispatched

from cuzarr import _names, sparse
from cuzarr._node.open import open_array, open_group

if TYPE_CHECKING:
    from cuzarr.typing import DTypeLike

__all__ = ["read_elem"]

Element: TypeAlias = "zarr.Array[Any] | zarr.Group"
# Where AnnData has matrices. Other arrays, such as columns of `obs`, stay on the host.
_OF_MATRICES = ("X", "layers", "obsm", "varm", "obsp", "varp")


def read_elem(elem: zarr.Group, *, device: str | None = None, dtype: DTypeLike | None = None) -> anndata.AnnData | Any:
    """Read a stored object of anndata, like ``anndata.io.read_elem``, with its matrices on a device.

    ``X``, layers, ``obsm``, ``varm``, ``obsp`` and ``varp`` are read by cuzarr: on a GPU they are CuPy's matrices and arrays, on the host
    SciPy's and NumPy's. anndata reads all else to the host.

    Parameters
    ----------
    elem : zarr.Group
        The group of the object, as zarr-python opens it: an ``AnnData``, or a matrix.
    device : str, optional
        Where matrices are read to, for example ``"cuda"``; by default where cuzarr's settings say.
    dtype : dtype, optional
        The type of elements of sparse matrices; by default the stored one. CuPy has none of integers, so counts need ``"float32"``.

    Returns
    -------
    anndata.AnnData or matrix
        The object.

    Raises
    ------
    LibraryMissingError
        The device is a GPU, and CuPy is not installed.
    DTypeMismatchError
        CuPy or SciPy has no sparse matrices of this type.
    CuzarrError
        A matrix cannot be read.

    Examples
    --------
    >>> import anndata, numpy as np, scipy.sparse, zarr
    >>> from cuzarr.stacks.anndata import read_elem
    >>> store = zarr.storage.MemoryStore()
    >>> anndata.AnnData(scipy.sparse.csr_matrix(np.eye(3, 2)), layers={"dense": np.ones((3, 2))}).write_zarr(store)
    >>> cells = read_elem(zarr.open_group(store, mode="r"), device="cpu")
    >>> cells.X.nnz, cells.layers["dense"].shape
    (2, (3, 2))
    """

    def read(func: Callable[[Element], Any], name: str, part: Element, *, iospec: Any) -> Any:
        kind = iospec.encoding_type
        if kind in ("csr_matrix", "csc_matrix"):
            matrix = sparse.read(open_group(part.store_path, mode="r", device=device), dtype=dtype)
            return matrix.to_scipy() if matrix.device == "cpu" else matrix.to_cupy()
        if kind == "dataframe":
            return anndata.io.read_elem(part)
        inside = part.path.removeprefix(elem.path).strip("/").split("/")
        if kind == "array" and isinstance(part, zarr.Array) and inside[0] in _OF_MATRICES:
            return open_array(part.store_path, mode="r", device=device)[...]
        return func(part)

    return read_dispatched(elem, read)


_names.publish(globals())

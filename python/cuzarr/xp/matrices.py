"""Matrices in memory: products, triangles, coordinates of grids. Products are NumPy's, on the host.

>>> import cuzarr, numpy as np
>>> cuzarr.xp.matmul(np.eye(2), np.array([3.0, 4.0]))
array([3., 4.])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from cuzarr import _names
from cuzarr._checks import refusing, whole
from cuzarr._compute.evaluate import apply
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.foreign import is_on_device
from cuzarr._operators.numpy_protocol import missing
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError
from cuzarr.xp.arguments import in_memory, like
from cuzarr.xp.creation import asarray
from cuzarr.xp.elementwise import where
from cuzarr.xp.shapes import broadcast_to

__all__ = ["eye", "matmul", "meshgrid", "tensordot", "tril", "triu"]


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = float, device: str | None = None) -> Any:
    """A matrix of zeros with ones on one diagonal.

    Parameters
    ----------
    n_rows, n_cols : int
        Its extents; as many columns as rows, unless given.
    k : int
        The diagonal: above the main one where positive, below where negative.
    dtype : dtype-like
        Element type.
    device : str, optional
        Where the memory is; by default the device of the configuration.

    Returns
    -------
    array
        NumPy's on the host; on a GPU CuPy's where it is installed, else a :class:`cuzarr.DeviceArray`.

    Raises
    ------
    DeviceUnavailableError
        There is no such device, or it cannot be used.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.eye(2, 3, k=1, device="cpu")
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    with refusing("eye"):
        matrix = np.eye(whole(n_rows, "n_rows", 0), None if n_cols is None else whole(n_cols, "n_cols", 0), k)
    return asarray(matrix, float if dtype is None else dtype, device=device)


def tril(x: Any, /, *, k: int = 0) -> Any:
    """Matrices with zeros above a diagonal.

    Parameters
    ----------
    x : array
        Matrices in memory of any device: the last two dimensions.
    k : int
        The diagonal: above the main one where positive, below where negative.

    Returns
    -------
    array
        New memory, on the device of ``x``.

    Raises
    ------
    InvalidArgumentError
        There are fewer than two dimensions.
    UnsupportedError
        The elements are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.tril(np.array([[1, 2], [3, 4]]))
    array([[1, 0],
           [3, 4]])
    """
    return _triangle(x, whole(k, "k"), True, "tril")


def triu(x: Any, /, *, k: int = 0) -> Any:
    """Matrices with zeros below a diagonal.

    Parameters
    ----------
    x : array
        Matrices in memory of any device: the last two dimensions.
    k : int
        The diagonal: above the main one where positive, below where negative.

    Returns
    -------
    array
        New memory, on the device of ``x``.

    Raises
    ------
    InvalidArgumentError
        There are fewer than two dimensions.
    UnsupportedError
        The elements are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.triu(np.array([[1, 2], [3, 4]]))
    array([[1, 2],
           [0, 4]])
    """
    return _triangle(x, whole(k, "k"), False, "triu")


def _triangle(x: Any, diagonal: int, is_lower: bool, name: str) -> Any:
    own = in_memory(x, name)
    if own.ndim < 2:
        raise InvalidArgumentError(f"{name}: x has {own.ndim} dimensions, expected at least 2")
    if isinstance(own, np.ndarray):
        return np.tril(own, diagonal) if is_lower else np.triu(own, diagonal)
    rows, columns = (DeviceArray.from_host(np.arange(extent), own.device) for extent in own.shape[-2:])
    kept = apply("less_equal" if is_lower else "greater_equal", columns, rows[:, None] + diagonal)
    return like(where(kept, own, DeviceArray.from_host(np.zeros((), own.dtype), own.device)), x)


def meshgrid(*arrays: Any, indexing: Literal["xy", "ij"] = "xy") -> tuple[Any, ...]:
    """The coordinates of each point of a grid, from those along its dimensions.

    Parameters
    ----------
    *arrays : array
        Coordinates of one dimension, in memory of any device.
    indexing : {"xy", "ij"}
        Which dimension comes first: of two, that of the second array, or that of the first one.

    Returns
    -------
    tuple of array
        An array of the grid's shape for each, on its device.

    Raises
    ------
    InvalidArgumentError
        There is no such order, or an array has more dimensions.
    UnsupportedError
        The coordinates are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.meshgrid(np.arange(2), np.arange(2))
    (array([[0, 1],
           [0, 1]]), array([[0, 0],
           [1, 1]]))
    """
    if indexing not in ("xy", "ij"):
        raise InvalidArgumentError(f"indexing is {indexing!r}, expected 'xy' or 'ij'")
    own = [in_memory(x, "meshgrid") for x in arrays]
    if any(one.ndim > 1 for one in own):
        raise InvalidArgumentError("meshgrid: arrays have several dimensions, expected coordinates in a row")
    places = list(range(len(own)))
    if indexing == "xy" and len(own) > 1:
        places[:2] = [1, 0]
    shape = [0] * len(own)
    for one, place in zip(own, places, strict=True):
        shape[place] = one.size
    grids = (
        broadcast_to(one.reshape([-1 if at == place else 1 for at in range(len(own))]), shape)
        for one, place in zip(own, places, strict=True)
    )
    return tuple(like(grid, x) for grid, x in zip(grids, arrays, strict=True))


def matmul(x1: Any, x2: Any, /) -> Any:
    """The product of matrices: of the last two dimensions, the others broadcast. NumPy makes it, on the host.

    Parameters
    ----------
    x1, x2 : array
        Elements in memory of the host.

    Returns
    -------
    array

    Raises
    ------
    UnsupportedError
        Elements are on a GPU, in a store, or yet to be computed.
    ShapeMismatchError
        Shapes do not fit together.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.matmul(np.array([[1, 2]]), np.array([[3], [4]]))
    array([[11]])
    """
    return _product("matmul", x1, x2, np.matmul)


def tensordot(x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Any:
    """The sums of products over dimensions of two arrays. NumPy makes it, on the host.

    Parameters
    ----------
    x1, x2 : array
        Elements in memory of the host.
    axes : int or pair of sequence of int
        How many of the last dimensions of ``x1`` and the first of ``x2``; or which of each.

    Returns
    -------
    array

    Raises
    ------
    UnsupportedError
        Elements are on a GPU, in a store, or yet to be computed.
    ShapeMismatchError
        Shapes do not fit together.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.tensordot(np.array([1, 2]), np.array([3, 4]), axes=1)
    array(11)
    """
    return _product("tensordot", x1, x2, lambda first, second: np.tensordot(first, second, axes))


def _product(name: str, x1: Any, x2: Any, product: Callable[[Any, Any], Any]) -> Any:
    own = [in_memory(x, name) for x in (x1, x2)]
    for one in own:
        if is_on_device(one):
            raise missing(name, one, " for arrays on a GPU")
    try:
        return product(*own)
    except (ValueError, IndexError) as error:
        raise ShapeMismatchError(f"{name}: {error}") from error


_names.list_public(globals())

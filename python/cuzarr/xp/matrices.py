"""Matrices in memory: products, triangles, coordinates of grids. NumPy computes products on the host, and cuBLAS on a GPU.

>>> import cuzarr, numpy as np
>>> cuzarr.xp.matmul(np.eye(2), np.array([3.0, 4.0]))
array([3., 4.])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cuzarr import _names
from cuzarr._checks import axis_number, refusing, whole
from cuzarr._compute.evaluate import apply
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.foreign import is_on_device
from cuzarr._operators.numpy_protocol import missing
from cuzarr.errors import (
    CuzarrError,
    DTypeMismatchError,
    InvalidArgumentError,
    LibraryMissingError,
    MemorySpaceError,
    ShapeMismatchError,
)
from cuzarr.xp.arguments import in_memory, like
from cuzarr.xp.creation import asarray
from cuzarr.xp.elementwise import where
from cuzarr.xp.shapes import broadcast_to
from cuzarr.xp.standard import result_type

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DTypeLike, MemoryArray

__all__ = ["eye", "matmul", "meshgrid", "tensordot", "tril", "triu"]


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DTypeLike = float, device: str | None = None
) -> MemoryArray:
    """A matrix of zeros with ones on one diagonal.

    Parameters
    ----------
    n_rows, n_cols : int
        Its extents; by default there are as many columns as rows.
    k : int
        The diagonal: above the main one if positive, below if negative.
    dtype : dtype-like
        Element type.
    device : str, optional
        The device of the memory; by default the configured device.

    Returns
    -------
    array
        NumPy's on the host; on a GPU CuPy's if it is installed, else a :class:`cuzarr.DeviceArray`.

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


def tril(x: ArrayLike, /, *, k: int = 0) -> MemoryArray:
    """Matrices with the elements above a diagonal replaced by zeros.

    Parameters
    ----------
    x : array
        Matrices in memory of any device, in the last two dimensions.
    k : int
        The diagonal: above the main one if positive, below if negative.

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
    return _triangle(x, whole(k, "k"), True, "tril")  # type: ignore[no-any-return]


def triu(x: ArrayLike, /, *, k: int = 0) -> MemoryArray:
    """Matrices with the elements below a diagonal replaced by zeros.

    Parameters
    ----------
    x : array
        Matrices in memory of any device, in the last two dimensions.
    k : int
        The diagonal: above the main one if positive, below if negative.

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
    return _triangle(x, whole(k, "k"), False, "triu")  # type: ignore[no-any-return]


def _triangle(x: Any, diagonal: int, is_lower: bool, name: str) -> Any:
    own = in_memory(x, name)
    if own.ndim < 2:
        raise InvalidArgumentError(f"{name}: x has {own.ndim} dimensions, expected at least 2")
    if isinstance(own, np.ndarray):
        return np.tril(own, diagonal) if is_lower else np.triu(own, diagonal)
    rows, columns = (DeviceArray.from_host(np.arange(extent), own.device) for extent in own.shape[-2:])
    kept = apply("less_equal" if is_lower else "greater_equal", columns, rows[:, None] + diagonal)
    return like(where(kept, own, DeviceArray.from_host(np.zeros((), own.dtype), own.device)), x)


def meshgrid(*arrays: ArrayLike, indexing: Literal["xy", "ij"] = "xy") -> tuple[Any, ...]:
    """The coordinates of every point of a grid, from the coordinates along its dimensions.

    Parameters
    ----------
    *arrays : array
        Coordinates of one dimension, in memory of any device.
    indexing : {"xy", "ij"}
        Order of the first two dimensions: ``"xy"`` begins with the dimension of the second array, ``"ij"`` with that of the first.

    Returns
    -------
    tuple of array
        One array of the grid's shape for each argument, on the argument's device.

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
    return tuple(like(grid, x) for grid, x in zip(grids, arrays, strict=True))  # type: ignore[arg-type]


def matmul(x1: ArrayLike, x2: ArrayLike, /) -> MemoryArray:
    """The product of matrices: the last two dimensions of each array are its matrices. Other dimensions are broadcast.

    NumPy computes it on the host. On a GPU, cuBLAS computes it for floats and complex numbers, and a kernel for integers and bools. An
    array of one dimension counts as a row on the left, and as a column on the right.

    Parameters
    ----------
    x1, x2 : array
        Numbers or bools in memory, on one device.

    Returns
    -------
    array
        New memory, on the device of the arrays.

    Raises
    ------
    UnsupportedError
        Elements are in a store, or yet to be computed; or they are floats on a GPU, and cuBLAS is missing.
    ShapeMismatchError
        Shapes do not fit together.
    MemorySpaceError
        The arrays are on different devices.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.matmul(np.array([[1, 2]]), np.array([[3], [4]]))
    array([[11]])
    """
    return _product("matmul", x1, x2, np.matmul, _matmul)  # type: ignore[no-any-return]


def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> MemoryArray:
    """The tensor product of two arrays, summed over the dimensions ``axes``, computed by the same libraries as :func:`matmul`.

    Parameters
    ----------
    x1, x2 : array
        Numbers or bools in memory, on one device.
    axes : int or pair of sequence of int
        Number of the last dimensions of ``x1`` and the first of ``x2``; or lists of dimensions for each.

    Returns
    -------
    array
        New memory, on the device of the arrays.

    Raises
    ------
    UnsupportedError
        Elements are in a store, or yet to be computed; or they are floats on a GPU, and cuBLAS is missing.
    ShapeMismatchError
        Shapes do not fit together.
    MemorySpaceError
        The arrays are on different devices.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.tensordot(np.array([1, 2]), np.array([3, 4]), axes=1)
    array(11)
    """

    def on_host(first: Any, second: Any) -> Any:
        return np.tensordot(first, second, axes)

    def on_device(first: DeviceArray, second: DeviceArray) -> DeviceArray:
        ours, theirs = _paired(axes, first.ndim, second.ndim)
        kept, others = ([axis for axis in range(x.ndim) if axis not in own] for x, own in ((first, ours), (second, theirs)))
        if [first.shape[axis] for axis in ours] != [second.shape[axis] for axis in theirs]:
            raise ValueError(f"dimensions {ours} of {first.shape} do not fit dimensions {theirs} of {second.shape}")
        inner = math.prod(first.shape[axis] for axis in ours)
        shape = [first.shape[axis] for axis in kept] + [second.shape[axis] for axis in others]
        rows = math.prod(first.shape[axis] for axis in kept)
        columns = math.prod(second.shape[axis] for axis in others)
        left = first.transpose([*kept, *ours]).reshape((rows, inner)) if first.ndim else first.reshape((1, 1))
        right = second.transpose([*theirs, *others]).reshape((inner, columns)) if second.ndim else second.reshape((1, 1))
        return _matmul(left, right).reshape(shape)

    return _product("tensordot", x1, x2, on_host, on_device)  # type: ignore[no-any-return]


def _paired(axes: Any, ours: int, theirs: int) -> tuple[list[int], list[int]]:
    """Parses the argument ``axes`` of ``tensordot``: returns, for each of the two arrays, the dimensions over which products are summed."""
    if not isinstance(axes, Iterable):
        count = whole(axes, "axes", 0)
        if count > min(ours, theirs):
            raise ValueError(f"axes is {count}, for arrays of {ours} and {theirs} dimensions")
        return list(range(ours - count, ours)), list(range(count))
    with refusing("axes"):
        pair = [list(own) if isinstance(own, Iterable) else [own] for own in axes]
    if len(pair) != 2 or len(pair[0]) != len(pair[1]):
        raise ValueError(f"axes is {axes!r}, expected a number or two lists of one length")
    first, second = ([axis_number(axis, ndim) for axis in own] for own, ndim in zip(pair, (ours, theirs), strict=True))
    if len(set(first)) != len(first) or len(set(second)) != len(second):
        raise ValueError(f"axes is {axes!r}, which names a dimension twice")
    return first, second


def _matmul(first: DeviceArray, second: DeviceArray) -> DeviceArray:
    if not first.ndim or not second.ndim:
        raise ValueError("an array has no dimensions")
    left = first if first.ndim > 1 else first.reshape((1, -1))
    right = second if second.ndim > 1 else second.reshape((-1, 1))
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"shapes {first.shape} and {second.shape} do not fit together")
    np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    product = DeviceArray(left._buffer.matmul(right._buffer), first.dtype)
    behind = product.shape[-1:] if second.ndim > 1 else ()
    return product.reshape((*product.shape[:-2], *(product.shape[-2:-1] if first.ndim > 1 else ()), *behind))


def _product(
    name: str,
    x1: Any,
    x2: Any,
    on_host: Callable[[Any, Any], Any],
    on_device: Callable[[DeviceArray, DeviceArray], DeviceArray],
) -> Any:
    own = [in_memory(x, name) for x in (x1, x2)]
    try:
        if not any(isinstance(one, DeviceArray) for one in own):
            return on_host(*own)
        first, second = _together(name, own)
        return like(on_device(first, second), x1 if is_on_device(x1) else x2)
    except LibraryMissingError as error:
        raise missing(name, x1 if is_on_device(x1) else x2, " for arrays on a GPU without cuBLAS") from error
    except (ValueError, IndexError) as error:
        if isinstance(error, CuzarrError) and not isinstance(error, InvalidArgumentError):
            raise
        raise ShapeMismatchError(f"{name}: {error}") from error


def _together(name: str, own: list[Any]) -> list[DeviceArray]:
    """Converts two arrays to one element type, and refuses arrays on different devices."""
    places = [one.device if isinstance(one, DeviceArray) else "cpu" for one in own]
    if places[0] != places[1]:
        place = places[0] if places[0] != "cpu" else places[1]
        raise MemorySpaceError(
            f"{name}: got arrays on {places[0]} and on {places[1]}", hint=f"move one: cuzarr.xp.asarray(x, device={place!r})"
        )
    dtype = result_type(*own)
    if dtype.kind not in "biufc" and dtype.name != "bfloat16":
        raise DTypeMismatchError(f"{name}: elements of {dtype} are no numbers")
    return [one.astype(dtype, copy=False) for one in own]


_names.list_public(globals())

"""Running sums and products of elements in memory. On a GPU, floats are summed in float64 and rounded once.

>>> import cuzarr, numpy as np
>>> cuzarr.xp.cumsum(np.array([1, 2, 3], "int8"))
array([1, 3, 6])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr import _names
from cuzarr._checks import element_type as _dtype
from cuzarr._memory.device_array import DeviceArray
from cuzarr.errors import DTypeMismatchError, InvalidArgumentError
from cuzarr.xp.arguments import along, in_memory, like
from cuzarr.xp.shapes import concatenate

__all__ = ["cumprod", "cumsum", "cumulative_prod", "cumulative_sum"]


def cumsum(x: Any, axis: int | str | None = None, dtype: Any = None) -> Any:
    """Running sums along a dimension, with NumPy's types: bools and small whole numbers are summed in 64 bits.

    Parameters
    ----------
    x : array
        Numbers or bools in memory of any device.
    axis : int, str or None
        The dimension; ``None`` takes all elements, in C order.
    dtype : dtype-like, optional
        The type of the elements and of the sums.

    Returns
    -------
    array
        New memory, on the device of ``x``.

    Raises
    ------
    DTypeMismatchError
        The elements are no numbers.
    InvalidArgumentError
        There is no such dimension.
    UnsupportedError
        The elements are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.cumsum(np.array([[1, 2], [3, 4]]), axis=0)
    array([[1, 2],
           [4, 6]])
    """
    return _cumulative(x, axis, dtype, "cumsum")


def cumprod(x: Any, axis: int | str | None = None, dtype: Any = None) -> Any:
    """Running products along a dimension, with NumPy's types: bools and small whole numbers are multiplied in 64 bits.

    Parameters
    ----------
    x : array
        Numbers or bools in memory of any device.
    axis : int, str or None
        The dimension; ``None`` takes all elements, in C order.
    dtype : dtype-like, optional
        The type of the elements and of the products.

    Returns
    -------
    array
        New memory, on the device of ``x``.

    Raises
    ------
    DTypeMismatchError
        The elements are no numbers.
    InvalidArgumentError
        There is no such dimension.
    UnsupportedError
        The elements are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.cumprod(np.array([1, 2, 3]))
    array([1, 2, 6])
    """
    return _cumulative(x, axis, dtype, "cumprod")


def cumulative_sum(x: Any, /, *, axis: int | str | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Running sums along a dimension, by the name and with the arguments of the array API standard.

    Parameters
    ----------
    x : array
        Numbers or bools in memory of any device.
    axis : int, str or None
        The dimension. It may be left out where there is only one.
    dtype : dtype-like, optional
        The type of the elements and of the sums.
    include_initial : bool
        Whether the sum of no elements, 0, comes first.

    Returns
    -------
    array
        New memory, on the device of ``x``.

    Raises
    ------
    DTypeMismatchError
        The elements are no numbers.
    InvalidArgumentError
        There is no such dimension, or several and ``axis`` is missing.
    UnsupportedError
        The elements are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.cumulative_sum(np.array([1, 2, 3]), include_initial=True)
    array([0, 1, 3, 6])
    """
    return _standard(x, axis, dtype, include_initial, "cumulative_sum")


def cumulative_prod(x: Any, /, *, axis: int | str | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Running products along a dimension, by the name and with the arguments of the array API standard.

    Parameters
    ----------
    x : array
        Numbers or bools in memory of any device.
    axis : int, str or None
        The dimension. It may be left out where there is only one.
    dtype : dtype-like, optional
        The type of the elements and of the products.
    include_initial : bool
        Whether the product of no elements, 1, comes first.

    Returns
    -------
    array
        New memory, on the device of ``x``.

    Raises
    ------
    DTypeMismatchError
        The elements are no numbers.
    InvalidArgumentError
        There is no such dimension, or several and ``axis`` is missing.
    UnsupportedError
        The elements are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.cumulative_prod(np.array([1, 2, 3]), include_initial=True)
    array([1, 1, 2, 6])
    """
    return _standard(x, axis, dtype, include_initial, "cumulative_prod")


def _standard(x: Any, axis: int | str | None, dtype: Any, include_initial: bool, name: str) -> Any:
    own = in_memory(x, name)
    if axis is None and own.ndim != 1:
        raise InvalidArgumentError(f"{name}: x has {own.ndim} dimensions and there is no axis", hint="say along which: axis=0")
    own, place = along(x, 0 if axis is None else axis, name)
    result = _scanned(own, place, dtype, name)
    if include_initial:
        initial = np.full((*result.shape[:place], 1, *result.shape[place + 1 :]), int(_is_product(name)), result.dtype)
        first = initial if isinstance(result, np.ndarray) else DeviceArray.from_host(initial, result.device)
        result = concatenate([first, result], place)
    return like(result, x)


def _cumulative(x: Any, axis: int | str | None, dtype: Any, name: str) -> Any:
    own, place = along(x, axis, name)
    return like(_scanned(own, place, dtype, name), x)


def _is_product(name: str) -> bool:
    return name.endswith("prod")


def _scanned(own: np.ndarray[Any, Any] | DeviceArray, axis: int, dtype: Any, name: str) -> Any:
    """Running sums or products as NumPy has them: of the type that is said, else in 64 bits where a type of whole numbers is shorter."""
    if own.dtype.kind not in "biufc" and own.dtype.name != "bfloat16":
        raise DTypeMismatchError(f"{name}: elements of {own.dtype} are no numbers")
    wanted = (np.cumprod if _is_product(name) else np.cumsum)(np.empty(0, own.dtype)).dtype if dtype is None else _dtype(dtype)
    if isinstance(own, np.ndarray):
        return (np.cumprod if _is_product(name) else np.cumsum)(own, axis=axis, dtype=wanted)
    numbers = own.astype(wanted, copy=False)
    return DeviceArray(numbers._buffer.scan(axis, _is_product(name)), wanted)


_names.list_public(globals())

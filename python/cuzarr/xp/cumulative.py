"""Running sums and products.

NumPy computes them for elements on the host. On a GPU, and in plans on every device, floats are added up or multiplied in float64
and rounded once. First 32 elements in a row are combined, then the totals of these groups.

>>> import cuzarr, numpy as np
>>> cuzarr.xp.cumsum(np.array([1, 2, 3], "int8"))
array([1, 3, 6])
>>> z = cuzarr.create_array({}, data=np.array([1, 2, 3]), chunks=(1,))
>>> cuzarr.xp.cumsum(z).compute()
array([1, 3, 6])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _names
from cuzarr._checks import axis_number, axis_of, element_type as _dtype
from cuzarr._compute.evaluate import finished, plan
from cuzarr._compute.expression import Expression
from cuzarr._compute.operands import dimension_names, made
from cuzarr._docstrings import completing
from cuzarr._memory.device_array import DeviceArray, device_array
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import DTypeMismatchError, InvalidArgumentError
from cuzarr.xp.arguments import LIKE_X, NO_DIMENSION, along, array, like, planned
from cuzarr.xp.elementwise import isnan, where
from cuzarr.xp.shapes import broadcast_to, concatenate

if TYPE_CHECKING:
    from cuzarr.typing import DTypeLike

__all__ = ["cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "nancumprod", "nancumsum"]

_documented = completing(
    {
        "x": "x : array\n    Numbers or bools in memory of any device, an array in a store, or a plan.",
        "axis": "axis : int, str or None\n    The dimension, by number or name; ``None`` takes all elements, in C order.",
        "dtype": "dtype : dtype-like, optional\n    The type of the elements and of the result.",
    },
    LIKE_X.replace("An array", "New memory"),
    f"DTypeMismatchError\n    The elements are not numbers.\n{NO_DIMENSION}",
)


@planned
@_documented
def cumsum(x: Any, axis: int | str | None = None, dtype: DTypeLike | None = None) -> Any:
    """Running sums along a dimension, with NumPy's types: bools and small integers are summed in 64 bits.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.cumsum(np.array([[1, 2], [3, 4]]), axis=0)
    array([[1, 2],
           [4, 6]])
    """
    return _cumulative(x, axis, dtype, "cumsum")


@planned
@_documented
def cumprod(x: Any, axis: int | str | None = None, dtype: DTypeLike | None = None) -> Any:
    """Running products along a dimension, with NumPy's types: bools and small integers are multiplied in 64 bits.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.cumprod(np.array([1, 2, 3]))
    array([1, 2, 6])
    """
    return _cumulative(x, axis, dtype, "cumprod")


@planned
@_documented
def cumulative_sum(
    x: Any, /, *, axis: int | str | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Any:
    """Running sums along a dimension, with the name and the arguments of the array API standard.

    Parameters
    ----------
    axis : int, str or None
        The dimension. It may be left out for an array of one dimension.
    include_initial : bool
        Whether the sum of no elements, 0, comes first.

    Raises
    ------
    DTypeMismatchError
        The elements are not numbers.
    InvalidArgumentError
        There is no such dimension, or ``axis`` is missing although ``x`` has several dimensions.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.cumulative_sum(np.array([1, 2, 3]), include_initial=True)
    array([0, 1, 3, 6])
    """
    return _standard(x, axis, dtype, include_initial, "cumulative_sum")


@planned
@_documented
def cumulative_prod(
    x: Any, /, *, axis: int | str | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Any:
    """Running products along a dimension, with the name and the arguments of the array API standard.

    Parameters
    ----------
    axis : int, str or None
        The dimension. It may be left out for an array of one dimension.
    include_initial : bool
        Whether the product of no elements, 1, comes first.

    Raises
    ------
    DTypeMismatchError
        The elements are not numbers.
    InvalidArgumentError
        There is no such dimension, or ``axis`` is missing although ``x`` has several dimensions.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.cumulative_prod(np.array([1, 2, 3]), include_initial=True)
    array([1, 1, 2, 6])
    """
    return _standard(x, axis, dtype, include_initial, "cumulative_prod")


@planned
@_documented
def nancumsum(x: Any, axis: int | str | None = None, dtype: DTypeLike | None = None) -> Any:
    """Running sums along a dimension, with NaN counted as 0.

    Returns
    -------
    array or Expression
        As for :func:`cumsum`.

    Raises
    ------
    DTypeMismatchError, InvalidArgumentError
        As for :func:`cumsum`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.nancumsum(np.array([1.0, np.nan, 2.0]))
    array([1., 1., 3.])
    """
    return _without_nan(x, axis, dtype, "nancumsum")


@planned
@_documented
def nancumprod(x: Any, axis: int | str | None = None, dtype: DTypeLike | None = None) -> Any:
    """Running products along a dimension, with NaN counted as 1.

    Returns
    -------
    array or Expression
        As for :func:`cumprod`.

    Raises
    ------
    DTypeMismatchError, InvalidArgumentError
        As for :func:`cumprod`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.nancumprod(np.array([2.0, np.nan, 3.0]))
    array([2., 2., 6.])
    """
    return _without_nan(x, axis, dtype, "nancumprod")


def _without_nan(x: Any, axis: int | str | None, dtype: Any, name: str) -> Any:
    x = plan(array(x, name))
    if not isinstance(x, Lazy) and not isinstance(x, np.ndarray):
        x = device_array(x)
    if x.dtype.kind in "fcV":
        neutral = np.full((), int(_is_product(name)), x.dtype)
        x = where(isnan(x), neutral, x)
    return _cumulative(x, axis, dtype, name)


def _standard(x: Any, axis: int | str | None, dtype: Any, include_initial: bool, name: str) -> Any:
    x = array(x, name)
    if axis is None and x.ndim != 1:
        raise InvalidArgumentError(f"{name}: x has {x.ndim} dimensions and there is no axis", hint="say along which: axis=0")
    axis = 0 if axis is None else axis
    result = _cumulative(x, axis, dtype, name)
    if not include_initial:
        return result
    place = axis_number(axis, x.ndim, dimension_names(x))
    shape = (*result.shape[:place], 1, *result.shape[place + 1 :])
    initial = np.full((), int(_is_product(name)), result.dtype)
    if not isinstance(result, Lazy | np.ndarray):
        first = DeviceArray.from_host(np.broadcast_to(initial, shape), device_array(result).device)
        return like(device_array(concatenate([first, device_array(result)], place)), x)
    return concatenate([broadcast_to(initial, shape), result], place)  # type: ignore[list-item]


def _cumulative(x: Any, axis: int | str | None, dtype: Any, name: str) -> Any:
    axis = axis_of(axis, len(array(x, name).shape))
    if isinstance(x, Lazy):
        return _planned(plan(x), axis, dtype, name)
    own, place = along(x, axis, name)
    wanted = _type(own.dtype, dtype, name)
    if isinstance(own, np.ndarray):
        return (np.cumprod if _is_product(name) else np.cumsum)(own, axis=place, dtype=wanted)
    numbers = own.astype(wanted, copy=False)
    return like(DeviceArray(numbers._buffer.scan(place, _is_product(name)), wanted), x)


def _planned(x: Expression, axis: int | str | None, dtype: Any, name: str) -> Any:
    wanted = _type(x.dtype, dtype, name)
    place = 0 if axis is None else axis_number(axis, x.ndim, x._names)
    numbers = x if x.dtype == wanted else x.astype(wanted)
    if axis is None:
        numbers = finished("flat", (), made("", (numbers,), ()), (numbers, "cpu"), x._names if x.ndim == 1 else None)
    arguments = place, _is_product(name)
    return finished("running", arguments, made("", (numbers,), ()), (numbers, "cpu"), numbers._names)


def _is_product(name: str) -> bool:
    return name.endswith("prod")


def _type(own: np.dtype[Any], dtype: Any, name: str) -> np.dtype[Any]:
    """The type of running sums or products, as in NumPy: ``dtype``, or else the element type, or 64 bits for smaller integers."""
    if own.kind not in "biufc" and own.name != "bfloat16":
        raise DTypeMismatchError(f"{name}: elements of {own} are no numbers")
    return (np.cumprod if _is_product(name) else np.cumsum)(np.empty(0, own)).dtype if dtype is None else _dtype(dtype)


_names.list_public(globals())

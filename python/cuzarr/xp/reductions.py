"""Reductions with NumPy's names and types, over all dimensions or some. Arrays in memory are reduced at once; stored arrays give a plan.

>>> import cuzarr, numpy as np
>>> z = cuzarr.array(np.arange(6.0).reshape(2, 3), store={}, chunks=(1, 3))
>>> z.mean(axis=0)
<Expression mean(array, axis=[0]) shape=(3,) dtype=float64>
>>> z.mean(axis=0).compute()
array([1.5, 2.5, 3.5])
>>> (z - z.mean()).compute()
array([[-2.5, -1.5, -0.5],
       [ 0.5,  1.5,  2.5]])
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _names
from cuzarr._checks import Axis, element_type as wanted_type
from cuzarr._compute.evaluate import reduce
from cuzarr._docstrings import completing
from cuzarr._memory.foreign import element_type
from cuzarr._numpy import element
from cuzarr._operators.numpy_protocol import into
from cuzarr._operators.signs import REDUCTION
from cuzarr.errors import DTypeMismatchError, InvalidArgumentError, ShapeMismatchError
from cuzarr.xp import elementwise
from cuzarr.xp.arguments import LIKE_X, NO_DIMENSION, X, array, planned
from cuzarr.xp.elementwise import astype
from cuzarr.xp.shapes import broadcast_to

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DTypeLike, Scalar

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min", "nanargmax", "nanargmin", "nanmax",
    "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "std", "sum", "var",
]  # fmt: skip

_documented = completing(
    {"x": X, **REDUCTION},
    LIKE_X,
    "DTypeMismatchError\n    The elements have a type that the reduction is not defined for.\n"
    + NO_DIMENSION.replace("dimension.", "dimension, or there are no elements to reduce."),
)


def _mask(x: Any, where: Any, name: str) -> Any:
    """Broadcasts the mask ``where`` to the shape of ``x``; ``None`` if all elements count.

    Raises
    ------
    DTypeMismatchError, ShapeMismatchError
        The mask does not hold bools, or has another shape.
    """
    if where is None or where is True:
        return None
    mask = array(where, name)
    if element_type(mask).kind != "b":
        hint = "compare them: where=x != 0"
        raise DTypeMismatchError(f"{name}: where has elements of {element_type(mask)}, expected bool", hint=hint)
    if tuple(mask.shape) == tuple(x.shape):
        return mask
    try:
        return broadcast_to(mask, tuple(x.shape))
    except ShapeMismatchError:
        message = f"{name}: where has shape {tuple(mask.shape)}, which does not broadcast to {tuple(x.shape)}"
        raise ShapeMismatchError(message) from None


def _counted(x: Any, where: Any, instead: Any, name: str) -> Any:
    """The elements, with those outside of the mask ``where`` replaced by ``instead``."""
    x = array(x, name)
    mask = _mask(x, where, name)
    return x if mask is None else elementwise.where(mask, x, instead)


def _total(
    name: str,
    x: Any,
    axis: Axis,
    dtype: Any,
    out: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
    skip_nan: bool = False,
) -> Any:
    """Computes ``sum`` or ``prod``, or their forms that skip NaN."""
    neutral, join = (0, elementwise.add) if name == "sum" else (1, elementwise.multiply)
    x = _counted(x, where, neutral, name)
    if dtype is not None:
        if skip_nan and _is_float(element_type(x)):
            x = elementwise.where(elementwise.isnan(x), neutral, x)  # the wanted type may be an integer
        x = astype(x, dtype, copy=False)
    result = reduce(name, x, axis, keepdims, skip_nan=skip_nan)
    if initial is not None:
        result = join(result, element(initial, result.dtype))
    return into(out, result if dtype is None else astype(result, dtype, copy=False), name)


def _extreme(name: str, x: Any, axis: Axis, keepdims: bool, initial: Any, where: Any, skip_nan: bool = False) -> Any:
    """Computes ``min`` or ``max``, or with ``skip_nan`` the forms that skip NaN."""
    x = array(x, name)
    if initial is None:
        if _mask(x, where, name) is not None:
            hint = "pass initial=, the result where no element counts"
            raise InvalidArgumentError(f"{name}: where needs initial, because there may be no element", hint=hint)
        return reduce(name, x, axis, keepdims, skip_nan=skip_nan)
    initial = element(initial, element_type(x))
    x = _counted(x, where, initial, name)
    if 0 in x.shape:
        of_none = reduce("any", x, axis, keepdims)  # false everywhere, in the result's shape
        return elementwise.where(of_none, initial, initial)
    found = reduce(name, x, axis, keepdims, skip_nan=skip_nan)
    both = {"min": ("minimum", "fmin"), "max": ("maximum", "fmax")}[name][skip_nan]
    return getattr(elementwise, both)(found, initial)


def _is_float(dtype: Any) -> bool:
    return dtype.kind in "fc" or dtype.name == "bfloat16"


def _mean(x: Any, axis: Axis, dtype: Any, keepdims: bool, where: Any, skip_nan: bool = False) -> Any:
    x = array(x, "mean")
    mask = _mask(x, where, "mean")
    if mask is None:
        result = reduce("mean", x if dtype is None else astype(x, dtype, copy=False), axis, keepdims, skip_nan=skip_nan)
        return result if dtype is None else astype(result, dtype, copy=False)
    own = element_type(x)
    if skip_nan:
        mask = elementwise.logical_and(mask, elementwise.logical_not(elementwise.isnan(x)))
    # The sum is divided before it is rounded to the type of the elements.
    wide = astype(x if dtype is None else astype(x, dtype), "complex128" if own.kind == "c" else "float64")
    total = reduce("sum", elementwise.where(mask, wide, 0), axis, keepdims)
    result = elementwise.divide(total, reduce("count_nonzero", mask, axis, keepdims))
    return astype(result, dtype if dtype is not None else own if _is_float(own) else "float64", copy=False)


def _spread(
    name: str,
    x: Any,
    axis: Axis,
    dtype: Any,
    ddof: float,
    keepdims: bool,
    where: Any,
    mean: Any,
    skip_nan: bool = False,
) -> Any:
    """Computes ``std`` or ``var``, or their forms that skip NaN."""
    x = array(x, name)
    if dtype is not None and np.can_cast(element_type(x), wanted_type(dtype)):
        x = astype(x, dtype, copy=False)  # so that deviations are not rounded to a smaller type
    mask, own = _mask(x, where, name), element_type(x)
    if mask is None and mean is None:
        result = reduce(name, x, axis, keepdims, ddof, skip_nan)
        return result if dtype is None else astype(result, dtype, copy=False)
    if skip_nan:
        there = elementwise.logical_not(elementwise.isnan(x))
        mask = there if mask is None else elementwise.logical_and(mask, there)
    wide = astype(x, "complex128" if own.kind == "c" else "float64")
    middle = _mean(wide, axis, None, True, mask) if mean is None else mean
    squares = elementwise.square(elementwise.absolute(elementwise.subtract(wide, middle)))
    if mask is None:
        total = reduce("sum", squares, axis, keepdims)
        count = math.prod(x.shape) // (math.prod(total.shape) or 1)
    else:
        total = reduce("sum", elementwise.where(mask, squares, 0), axis, keepdims)
        count = reduce("count_nonzero", mask, axis, keepdims)
    result = elementwise.divide(total, elementwise.maximum(elementwise.subtract(count, ddof), 0))
    result = elementwise.sqrt(result) if name == "std" else result
    if dtype is None:
        dtype = {"complex64": "float32", "complex128": "float64"}.get(own.name, own) if _is_float(own) else "float64"
    return astype(result, dtype, copy=False)


@planned
@_documented
def sum(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    initial: Scalar | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The sum of the elements. Bools and integers are summed in 64 bits; floats are summed in float64, and rounded once.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.xp.sum(np.array([1, 2, 3])))
    6
    >>> z = cuzarr.array(np.array([1, 2, 3]), store={})
    >>> int(cuzarr.xp.sum(z))
    6
    """
    return _total("sum", x, axis, dtype, out, keepdims, initial, where)


@planned
@_documented
def prod(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    initial: Scalar | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The product of the elements; bools and integers are multiplied in 64 bits.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.xp.prod(np.array([1, 2, 3])))
    6
    >>> z = cuzarr.array(np.array([1, 2, 3]), store={})
    >>> int(cuzarr.xp.prod(z))
    6
    """
    return _total("prod", x, axis, dtype, out, keepdims, initial, where)


@planned
@_documented
def mean(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Any:
    """The mean of the elements; the mean of integers is a float64.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.mean(np.array([1.0, 2.0, 6.0])))
    3.0
    >>> z = cuzarr.array(np.array([1.0, 2.0, 6.0]), store={})
    >>> float(cuzarr.xp.mean(z))
    3.0
    """
    return into(out, _mean(x, axis, dtype, keepdims, where), "mean")


@planned
@_documented
def std(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Any:
    """The standard deviation: the root of the sum of squared deviations, divided by the number of elements minus ``ddof``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.std(np.array([1.0, 3.0])))
    1.0
    >>> z = cuzarr.array(np.array([1.0, 3.0]), store={})
    >>> float(cuzarr.xp.std(z))
    1.0
    """
    freedom = ddof if correction is None else correction
    return into(out, _spread("std", x, axis, dtype, freedom, keepdims, where, mean), "std")


@planned
@_documented
def var(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Any:
    """The variance: the sum of squared deviations, divided by the number of elements minus ``ddof``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.var(np.array([1.0, 5.0])))
    4.0
    >>> z = cuzarr.array(np.array([1.0, 5.0]), store={})
    >>> float(cuzarr.xp.var(z))
    4.0
    """
    freedom = ddof if correction is None else correction
    return into(out, _spread("var", x, axis, dtype, freedom, keepdims, where, mean), "var")


@planned
@_documented
def min(
    x: Any,
    axis: Axis = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    initial: Scalar | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The smallest element; NaN if an element is NaN.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.xp.min(np.array([3, 1, 2])))
    1
    >>> z = cuzarr.array(np.array([3, 1, 2]), store={})
    >>> int(cuzarr.xp.min(z))
    1
    """
    return into(out, _extreme("min", x, axis, keepdims, initial, where), "min")


@planned
@_documented
def max(
    x: Any,
    axis: Axis = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    initial: Scalar | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The largest element; NaN if an element is NaN.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.xp.max(np.array([3, 1, 2])))
    3
    >>> z = cuzarr.array(np.array([3, 1, 2]), store={})
    >>> int(cuzarr.xp.max(z))
    3
    """
    return into(out, _extreme("max", x, axis, keepdims, initial, where), "max")


@planned
@_documented
def argmin(x: Any, axis: int | str | None = None, out: ArrayLike | None = None, *, keepdims: bool = False) -> Any:
    """The index of the first smallest element, or of the first NaN. Without ``axis``, elements are counted in C order.

    Parameters
    ----------
    axis : int or str, optional
        Dimensions to reduce, by number or name; by default all.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.xp.argmin(np.array([3, 1, 2])))
    1
    >>> z = cuzarr.array(np.array([3, 1, 2]), store={})
    >>> int(cuzarr.xp.argmin(z))
    1
    """
    return into(out, reduce("argmin", x, axis, keepdims), "argmin")


@planned
@_documented
def argmax(x: Any, axis: int | str | None = None, out: ArrayLike | None = None, *, keepdims: bool = False) -> Any:
    """The index of the first largest element, or of the first NaN. Without ``axis``, elements are counted in C order.

    Parameters
    ----------
    axis : int or str, optional
        Dimensions to reduce, by number or name; by default all.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.xp.argmax(np.array([3, 1, 2])))
    0
    >>> z = cuzarr.array(np.array([3, 1, 2]), store={})
    >>> int(cuzarr.xp.argmax(z))
    0
    """
    return into(out, reduce("argmax", x, axis, keepdims), "argmax")


@planned
@_documented
def any(
    x: Any, axis: Axis = None, out: ArrayLike | None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Any:
    """Whether at least one element is not 0.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> bool(cuzarr.xp.any(np.array([0, 2])))
    True
    >>> z = cuzarr.array(np.array([0, 2]), store={})
    >>> bool(cuzarr.xp.any(z))
    True
    """
    return into(out, reduce("any", _counted(x, where, False, "any"), axis, keepdims), "any")


@planned
@_documented
def all(
    x: Any, axis: Axis = None, out: ArrayLike | None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Any:
    """Whether no element is 0.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> bool(cuzarr.xp.all(np.array([0, 2])))
    False
    >>> z = cuzarr.array(np.array([0, 2]), store={})
    >>> bool(cuzarr.xp.all(z))
    False
    """
    return into(out, reduce("all", _counted(x, where, True, "all"), axis, keepdims), "all")


@planned
@_documented
def count_nonzero(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The number of elements that are not 0.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.xp.count_nonzero(np.array([0, 2, 3])))
    2
    >>> z = cuzarr.array(np.array([0, 2, 3]), store={})
    >>> int(cuzarr.xp.count_nonzero(z))
    2
    """
    return reduce("count_nonzero", x, axis, keepdims)


@planned
@_documented
def nansum(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    initial: Scalar | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The sum of the elements that are not NaN. Otherwise like :func:`sum`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nansum(np.array([1.0, np.nan, 3.0])))
    4.0
    """
    return _total("sum", x, axis, dtype, out, keepdims, initial, where, skip_nan=True)


@planned
@_documented
def nanprod(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    initial: Scalar | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The product of the elements that are not NaN. Otherwise like :func:`prod`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nanprod(np.array([1.0, np.nan, 3.0])))
    3.0
    """
    return _total("prod", x, axis, dtype, out, keepdims, initial, where, skip_nan=True)


@planned
@_documented
def nanmean(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Any:
    """The mean of the elements that are not NaN; NaN if all are NaN. Otherwise like :func:`mean`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nanmean(np.array([1.0, np.nan, 3.0])))
    2.0
    """
    return into(out, _mean(x, axis, dtype, keepdims, where, skip_nan=True), "nanmean")


@planned
@_documented
def nanstd(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Any:
    """The standard deviation of the elements that are not NaN; NaN if all are NaN. Otherwise like :func:`std`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nanstd(np.array([1.0, np.nan, 3.0])))
    1.0
    """
    freedom = ddof if correction is None else correction
    return into(out, _spread("std", x, axis, dtype, freedom, keepdims, where, mean, skip_nan=True), "nanstd")


@planned
@_documented
def nanvar(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Any:
    """The variance of the elements that are not NaN; NaN if all are NaN. Otherwise like :func:`var`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nanvar(np.array([1.0, np.nan, 3.0])))
    1.0
    """
    freedom = ddof if correction is None else correction
    return into(out, _spread("var", x, axis, dtype, freedom, keepdims, where, mean, skip_nan=True), "nanvar")


@planned
@_documented
def nanmin(
    x: Any,
    axis: Axis = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    initial: Scalar | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The smallest element that is not NaN; NaN if all are NaN. Otherwise like :func:`min`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nanmin(np.array([1.0, np.nan, 3.0])))
    1.0
    """
    return into(out, _extreme("min", x, axis, keepdims, initial, where, skip_nan=True), "nanmin")


@planned
@_documented
def nanmax(
    x: Any,
    axis: Axis = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
    initial: Scalar | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The largest element that is not NaN; NaN if all are NaN. Otherwise like :func:`max`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nanmax(np.array([1.0, np.nan, 3.0])))
    3.0
    """
    return into(out, _extreme("max", x, axis, keepdims, initial, where, skip_nan=True), "nanmax")


@planned
@_documented
def nanargmin(x: Any, axis: int | str | None = None, out: ArrayLike | None = None, *, keepdims: bool = False) -> Any:
    """The index of the smallest element that is not NaN. It is an error if all elements are NaN. Otherwise like :func:`argmin`.

    Parameters
    ----------
    axis : int or str, optional
        Dimensions to reduce, by number or name; by default all.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.xp.nanargmin(np.array([1.0, np.nan, 3.0])))
    0
    """
    return into(out, reduce("argmin", x, axis, keepdims, skip_nan=True), "nanargmin")


@planned
@_documented
def nanargmax(x: Any, axis: int | str | None = None, out: ArrayLike | None = None, *, keepdims: bool = False) -> Any:
    """The index of the largest element that is not NaN. It is an error if all elements are NaN. Otherwise like :func:`argmax`.

    Parameters
    ----------
    axis : int or str, optional
        Dimensions to reduce, by number or name; by default all.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.xp.nanargmax(np.array([1.0, np.nan, 3.0])))
    2
    """
    return into(out, reduce("argmax", x, axis, keepdims, skip_nan=True), "nanargmax")


_names.list_public(globals())

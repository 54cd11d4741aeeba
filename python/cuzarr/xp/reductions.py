"""Reductions with NumPy's names and types: over all dimensions or some, of what is in memory (at once) or in stores (a plan).

>>> import cuzarr, numpy as np
>>> z = cuzarr.array(np.arange(6.0).reshape(2, 3), store={}, chunks=(1, 3))
>>> z.mean(axis=0)
<Expression mean(/, axis=[0]) shape=(3,) dtype=float64>
>>> z.mean(axis=0).compute()
array([1.5, 2.5, 3.5])
>>> (z - z.mean()).compute()
array([[-2.5, -1.5, -0.5],
       [ 0.5,  1.5,  2.5]])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cuzarr import _core
from cuzarr._checks import axis_number, host_array, refusing
from cuzarr._compute.operands import deliver, device_among, dimension_names, is_lazy, names_left, operand, plan_device, settings

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min", "nanargmax", "nanargmin", "nanmax",
    "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "std", "sum", "var",
]  # fmt: skip

Axis = int | str | tuple[int | str, ...] | None


def axes_of(axis: Axis | Iterable[int | str], ndim: int, names: Sequence[str | None] | None = None) -> list[int] | None:
    """Dimensions counted from the first, given by their numbers or names; ``None`` for all.

    Raises
    ------
    InvalidArgumentError
        There is no such dimension.
    """
    if axis is None:
        return None
    several = isinstance(axis, Iterable) and not isinstance(axis, str | bytes)
    return [axis_number(one, ndim, names) for one in (axis if several else (axis,))]  # type: ignore[union-attr]


def reduce(
    name: str, x: Any, axis: Axis, keepdims: bool = False, ddof: float = 0, skip_nan: bool = False
) -> Any:
    """A reduction by NumPy's name: computed at once, unless the elements are in a store or a plan."""
    from cuzarr._compute.expression import Expression

    device = device_among((x,))
    own = operand(x if hasattr(x, "shape") else host_array(x, name), device, name)
    assert isinstance(own, _core.Expr)
    names = dimension_names(x)
    axes = axes_of(axis, len(own.shape), names)
    with refusing("ddof"):
        freedom = float(ddof)
    reduced = own.reduced(name, axes, bool(keepdims), freedom, skip_nan)
    if is_lazy(x):
        return Expression(reduced, plan_device((x,)), names_left(names, axes, keepdims))
    _, limit, threads = settings(device, None)
    zeros = (0,) * len(reduced.shape)
    return deliver(reduced.compute(zeros, reduced.shape, device, limit, threads), (x,))


def sum(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The sum; of bools and whole numbers in 64 bits, of floats made in float64 and rounded once."""
    return reduce("sum", x, axis, keepdims)


def prod(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The product; of bools and whole numbers in 64 bits."""
    return reduce("prod", x, axis, keepdims)


def mean(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The mean; of whole numbers in float64."""
    return reduce("mean", x, axis, keepdims)


def std(x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """The standard deviation, by squared distances that are divided by their number less ``ddof``."""
    return reduce("std", x, axis, keepdims, ddof)


def var(x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """The variance, by squared distances that are divided by their number less ``ddof``."""
    return reduce("var", x, axis, keepdims, ddof)


def min(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The least element; NaN where one is NaN."""
    return reduce("min", x, axis, keepdims)


def max(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The greatest element; NaN where one is NaN."""
    return reduce("max", x, axis, keepdims)


def argmin(x: Any, axis: int | str | None = None, *, keepdims: bool = False) -> Any:
    """Where the least element first is, or the first NaN; without ``axis`` in the array as one row."""
    return reduce("argmin", x, axis, keepdims)


def argmax(x: Any, axis: int | str | None = None, *, keepdims: bool = False) -> Any:
    """Where the greatest element first is, or the first NaN; without ``axis`` in the array as one row."""
    return reduce("argmax", x, axis, keepdims)


def any(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Whether one element is not 0."""
    return reduce("any", x, axis, keepdims)


def all(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Whether no element is 0."""
    return reduce("all", x, axis, keepdims)


def count_nonzero(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """How many elements are not 0."""
    return reduce("count_nonzero", x, axis, keepdims)


def nansum(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """As :func:`sum`, without elements that are NaN."""
    return reduce("sum", x, axis, keepdims, skip_nan=True)


def nanprod(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """As :func:`prod`, without elements that are NaN."""
    return reduce("prod", x, axis, keepdims, skip_nan=True)


def nanmean(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """As :func:`mean`, without elements that are NaN; NaN where there are no others."""
    return reduce("mean", x, axis, keepdims, skip_nan=True)


def nanstd(x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """As :func:`std`, without elements that are NaN."""
    return reduce("std", x, axis, keepdims, ddof, True)


def nanvar(x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """As :func:`var`, without elements that are NaN."""
    return reduce("var", x, axis, keepdims, ddof, True)


def nanmin(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """As :func:`min`, without elements that are NaN; NaN where there are no others."""
    return reduce("min", x, axis, keepdims, skip_nan=True)


def nanmax(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """As :func:`max`, without elements that are NaN; NaN where there are no others."""
    return reduce("max", x, axis, keepdims, skip_nan=True)


def nanargmin(x: Any, axis: int | str | None = None, *, keepdims: bool = False) -> Any:
    """As :func:`argmin`, without elements that are NaN; refused where there are no others."""
    return reduce("argmin", x, axis, keepdims, skip_nan=True)


def nanargmax(x: Any, axis: int | str | None = None, *, keepdims: bool = False) -> Any:
    """As :func:`argmax`, without elements that are NaN; refused where there are no others."""
    return reduce("argmax", x, axis, keepdims, skip_nan=True)

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

from typing import Any

from cuzarr import _names
from cuzarr._checks import Axis
from cuzarr._compute.evaluate import reduce

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min", "nanargmax", "nanargmin", "nanmax",
    "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "std", "sum", "var",
]  # fmt: skip


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


_names.list_public(globals())

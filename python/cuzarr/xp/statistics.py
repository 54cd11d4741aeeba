"""Quantiles and histograms with NumPy's names, types and edges, exact for arrays of any size.

For arrays in memory, the result is computed at once; for stored arrays it is a plan. Elements are counted by value, not sorted or sampled.

>>> import cuzarr, numpy as np
>>> z = cuzarr.array(np.arange(12.0).reshape(3, 4), store={}, chunks=(1, 4))
>>> cuzarr.xp.median(z, axis=0)
<Expression quantile(array, [0.5], axis=[0]) shape=(4,) dtype=float64>
>>> cuzarr.xp.quantile(z, [0.25, 0.5]).compute()
array([2.75, 5.5 ])
>>> counts, edges = cuzarr.xp.histogram(z, bins=3)
>>> counts.compute(), edges.compute()
(array([4, 4, 4]), array([ 0.        ,  3.66666667,  7.33333333, 11.        ]))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core, _names
from cuzarr._checks import Axis, axes_of, refusing, whole
from cuzarr._compute.decoded import tell_of_packed
from cuzarr._compute.evaluate import finished, reduce
from cuzarr._compute.operands import (
    device_among,
    dimension_names,
    names_left,
    operand,
)
from cuzarr._docstrings import completing
from cuzarr._memory.element_types import core_dtype, dtype_of
from cuzarr._memory.foreign import host_array
from cuzarr._numpy import check_dtype
from cuzarr._operators.signs import REDUCTION
from cuzarr.errors import InvalidArgumentError, UnsupportedError
from cuzarr.xp.arguments import LIKE_X, planned
from cuzarr.xp.elementwise import astype
from cuzarr.xp.shapes import broadcast_to

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike

__all__ = [
    "histogram", "histogram_bin_edges", "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile",
]  # fmt: skip

_documented = completing(
    {
        "x": "x : array\n    Real numbers in memory of any device, an array in a store, or a plan.",
        "q": "q : float or sequence of float\n    From 0 to 1.",
        "axis": REDUCTION["axis"],
        "method": 'method : str\n    NumPy\'s: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"``, ``"nearest"``, ``"hazen"``, ….',
        "keepdims": REDUCTION["keepdims"],
    },
    LIKE_X,
    "InvalidArgumentError\n    ``q`` is out of range, or there is no such dimension or method.\n"
    "DTypeMismatchError\n    The elements are complex numbers.",
)

DISCRETE = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")


def _source(x: Any, name: str) -> tuple[_core.Expr, str]:
    tell_of_packed(x, name)
    device = device_among((x,))
    own = operand(x if hasattr(x, "shape") else host_array(x, name), device, name)
    assert isinstance(own, _core.Expr)
    return own, device


def _quantile(name: str, x: Any, q: Any, axis: Axis, method: str, keepdims: bool, skip_nan: bool, divisor: float = 1) -> Any:
    expr, device = _source(x, name)
    own = dtype_of(expr.dtype)
    asked = host_array(q, "q")
    if asked.ndim > 1 or asked.dtype.kind not in "biuf":
        raise InvalidArgumentError(f"{name}: got {asked.ndim} dimensions of {asked.dtype}, expected a number or a row of them")
    if asked.dtype.kind != "f" and divisor == 1 and method == "linear":
        method = "lower"  # As in NumPy, the quantiles 0 and 1 are elements.
    # As in NumPy, a Python number takes the type of the elements.
    is_weak = type(q) in (int, float)
    is_float = own.kind == "f" or own.name == "bfloat16"
    between = np.dtype("f8") if not is_float else own if is_weak else np.result_type(own, asked.dtype)
    if method == "median":
        between = own if is_float else np.dtype("f8")
    probabilities = (asked.astype("f8") / divisor).reshape(-1).tolist()
    names = dimension_names(x)
    axes = axes_of(axis, len(expr.shape), names)
    if (
        (skip_nan or method == "median")
        and own.kind != "c"
        and 0 in (expr.shape if axes is None else [expr.shape[axis] for axis in axes])
    ):
        # As in NumPy, the result for no elements is their mean, NaN.
        nothing = reduce("mean", astype(x, between), axis, keepdims)
        return nothing if asked.ndim == 0 else broadcast_to(nothing, (asked.size, *nothing.shape))
    arguments = probabilities, str(method), axes, bool(keepdims), skip_nan, asked.ndim == 0, core_dtype(between)
    left = names_left(names, axes, keepdims)
    return finished("quantile", arguments, expr, (x, device), left if left is None or asked.ndim == 0 else (None, *left))


@planned
@_documented
def quantile(x: Any, q: float | Sequence[float], axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """Quantiles of the elements, exact for arrays of any size.

    ``q`` is a fraction from 0 to 1; several fractions add a first dimension to the result. Values between two elements are computed in
    float64 and rounded once, so the result is the same for every device and memory limit. Elements of 1 and 2 bytes are read once,
    elements of 4 bytes twice, and elements of 8 bytes four times. If all elements for one result fit into the memory limit, they are read
    only once.

    Parameters
    ----------
    x : array
        Real numbers. Bools are only allowed with methods whose results are elements.
    axis : int, tuple of int, optional
        Dimensions to reduce; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with an extent of 1.

    Raises
    ------
    InvalidArgumentError
        There are no elements, ``q`` is outside of 0 to 1, or there is no such method.
    DTypeMismatchError
        The elements are complex numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.quantile(np.array([1.0, 2.0, 3.0]), [0.0, 0.5])
    array([1., 2.])
    """
    return _quantile("quantile", x, q, axis, method, keepdims, False)


@planned
@_documented
def percentile(x: Any, q: float | Sequence[float], axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """Percentiles of the elements: :func:`quantile` with ``q`` from 0 to 100.

    Parameters
    ----------
    q : float or sequence of float
        Percentages from 0 to 100.

    Raises
    ------
    InvalidArgumentError
        There are no elements, ``q`` is out of range, or there is no such method.
    DTypeMismatchError
        The elements are complex numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.percentile(np.array([1.0, 2.0, 3.0]), 50))
    2.0
    """
    return _quantile("percentile", x, q, axis, method, keepdims, False, 100)


@planned
@_documented
def median(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The exact median: the middle element, or the mean of the two in the middle. NaN if an element is NaN, or if there are no elements.

    Raises
    ------
    InvalidArgumentError
        There is no such dimension.
    DTypeMismatchError
        The elements are complex numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.median(np.array([1.0, 5.0, 3.0])))
    3.0
    """
    return _quantile("median", x, 0.5, axis, "median", keepdims, False)


@planned
@_documented
def nanquantile(x: Any, q: float | Sequence[float], axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """Quantiles of the elements that are not NaN; NaN if there are none. Otherwise like :func:`quantile`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nanquantile(np.array([1.0, np.nan, 3.0]), 0.5))
    2.0
    """
    return _quantile("nanquantile", x, q, axis, method, keepdims, True)


@planned
@_documented
def nanpercentile(
    x: Any, q: float | Sequence[float], axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """Percentiles of the elements that are not NaN; NaN if there are none. Otherwise like :func:`percentile`.

    Parameters
    ----------
    q : float or sequence of float
        Percentages from 0 to 100.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nanpercentile(np.array([1.0, np.nan, 3.0]), 50))
    2.0
    """
    return _quantile("nanpercentile", x, q, axis, method, keepdims, True, 100)


@planned
@_documented
def nanmedian(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The median of the elements that are not NaN; NaN if there are none.

    Raises
    ------
    InvalidArgumentError
        There is no such dimension.
    DTypeMismatchError
        The elements are complex numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.xp.nanmedian(np.array([1.0, np.nan, 3.0])))
    2.0
    """
    return _quantile("nanmedian", x, 0.5, axis, "median", keepdims, True)


def _histogram(x: Any, bins: Any, range: tuple[Any, Any] | None, density: bool) -> Callable[[int], Any]:
    """Prepares a histogram of ``x``: returns a function that computes the counts if called with 0, or the edges of the bins with 1."""
    expr, device = _source(x, "histogram")
    if isinstance(bins, str):
        raise UnsupportedError(
            f"histogram: the rule {bins!r} for bins is not supported",
            hint="pass the number of bins, or numpy.histogram_bin_edges of a part",
        )

    def both(how: str, *arguments: Any) -> Callable[[int], Any]:
        return lambda place: finished(f"{how}:{place}", arguments, expr, (x, device))

    density = bool(density)
    edges = np.ascontiguousarray(host_array(bins, "bins"))
    if np.ndim(bins):
        check_dtype(edges.dtype, "histogram")
        return both("histogram_between", edges, density)
    count = whole(bins, "bins", 1, "give their number, or the edges between them")
    if range is None:
        return both("histogram", count, None, None, density)
    with refusing("range", "pass two numbers: range=(0, 1)"):
        first, last = range
        # As in NumPy, Python numbers take the type of the elements.
        joint = np.result_type(first, last, dtype_of(expr.dtype))
        dtype = np.result_type(joint, float) if joint.kind in "biu" else joint
        ends = float(first), float(last)
    return both("histogram", count, ends, core_dtype(dtype), density)


def histogram(
    x: ArrayLike, bins: int | Sequence[float] = 10, range: tuple[float, float] | None = None, density: bool = False
) -> tuple[Any, Any]:
    """The number of elements in each bin, and the edges of the bins.

    A bin contains its lower edge but not its upper one; the last bin contains both, as in NumPy. NaN is in no bin. Without ``range``,
    the bins reach from the smallest to the largest element, which needs another pass over the elements.

    Parameters
    ----------
    x : array
        Real numbers.
    bins : int or sequence of float
        The number of bins of equal width, or the edges of the bins.
    range : tuple of float, optional
        The lowest and the highest edge of bins of equal width.
    density : bool
        Whether each count is divided by the sum of the counts and by the width of its bin.

    Returns
    -------
    tuple of (array or Expression)
        The number of elements in each bin (a density with ``density``), and the edges of the bins. For stored arrays, both are plans.

    Raises
    ------
    InvalidArgumentError
        Edges or the range do not increase, or elements are not finite and there is no ``range``.
    UnsupportedError
        ``bins`` is the name of a rule that finds bins.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> counts, edges = cuzarr.xp.histogram(np.array([1, 2, 2, 4]), bins=[0, 2, 4])
    >>> counts, edges
    (array([1, 3]), array([0, 2, 4]))
    """
    given = _histogram(x, bins, range, density)
    return given(0), given(1)


def histogram_bin_edges(x: ArrayLike, bins: int | Sequence[float] = 10, range: tuple[float, float] | None = None) -> Any:
    """The edges of the bins that :func:`histogram` counts in.

    Parameters
    ----------
    x : array
        Real numbers in memory of any device, an array in a store, or a plan.
    bins : int or sequence of float
        The number of bins of equal width, or their edges.
    range : tuple of float, optional
        The lowest and the highest edge of bins of equal width.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan if ``x`` is a stored array or a plan.

    Raises
    ------
    InvalidArgumentError
        The edges or the range do not increase, or elements are not finite and there is no ``range``.
    UnsupportedError
        ``bins`` is the name of a rule.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.histogram_bin_edges(np.array([0.0, 1.0]), bins=2)
    array([0. , 0.5, 1. ])
    """
    return _histogram(x, bins, range, False)(1)


_names.list_public(globals())

"""Functions that combine others: closeness and equality of arrays, replacement of NaN, weighted means.

Arrays in memory, of any library, are computed at once on their device. For a stored array, or a plan, the result is a plan.

>>> import cuzarr, numpy as np
>>> z = cuzarr.array(np.array([1.0, np.nan, 3.0]), store={}, chunks=2)
>>> cuzarr.xp.nan_to_num(z).compute()
array([1., 0., 3.])
>>> bool(cuzarr.xp.allclose(z, [1, np.nan, 3], equal_nan=True))
True
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _names
from cuzarr._checks import Axis, axes_of
from cuzarr._compute.decoded import tell_of_packed
from cuzarr._compute.evaluate import apply
from cuzarr._compute.expression import Expression
from cuzarr._compute.operands import dimension_names, is_lazy
from cuzarr._memory.foreign import element_type, host_array
from cuzarr.errors import DTypeMismatchError, ShapeMismatchError
from cuzarr.xp import elementwise, reductions
from cuzarr.xp.arguments import planned, planned_pair

if TYPE_CHECKING:
    pass

__all__ = ["allclose", "array_equal", "average", "isclose", "nan_to_num"]

_LARGEST_BFLOAT16 = (2 - 2**-7) * 2.0**127


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _array(x: Any, name: str) -> Any:
    return x if _is_array(x) else host_array(x, name)


@planned_pair
def isclose(x1: Any, x2: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """Whether elements differ by at most ``atol + rtol * abs(x2)``. Infinities are close to themselves.

    Parameters
    ----------
    x1, x2 : array or number
        Elements that broadcast: in memory of any device, an array in a store, or a plan.
    rtol, atol : float
        Tolerances: relative to ``x2``, and absolute.
    equal_nan : bool
        Whether NaN is close to NaN.

    Returns
    -------
    array or Expression
        Bools; a plan if an operand is a stored array or a plan.

    Raises
    ------
    ShapeMismatchError
        Shapes do not broadcast.
    DTypeMismatchError
        Elements are complex numbers, or have no arithmetic.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.array(np.array([1.0, 2.0]), store={})
    >>> cuzarr.xp.isclose(z, [1 + 1e-9, 2.1]).compute()
    array([ True, False])
    """
    x1, x2 = _array(x1, "isclose"), _array(x2, "isclose")
    # As in NumPy, x2 gets an inexact type, whose abs does not overflow.
    inexact = np.result_type(element_type(x2), 1.0)
    x2 = x2 if element_type(x2) == inexact else elementwise.astype(x2, inexact)
    difference = elementwise.abs(apply("subtract", x1, x2))
    tolerated = apply("add", apply("multiply", elementwise.abs(x2), float(rtol)), float(atol))
    is_near = apply("logical_and", apply("less_equal", difference, tolerated), apply("isfinite", x2))
    near = apply("logical_or", is_near, apply("equal", x1, x2))
    return apply("logical_or", near, _both_nan(x1, x2)) if equal_nan else near


def _both_nan(x1: Any, x2: Any) -> Any:
    return apply("logical_and", apply("not_equal", x1, x1), apply("not_equal", x2, x2))


@planned_pair
def allclose(x1: Any, x2: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """Whether all elements are close, in the sense of :func:`isclose`.

    Parameters
    ----------
    x1, x2, rtol, atol, equal_nan
        As for :func:`isclose`.

    Returns
    -------
    bool or Expression
        A plan of one bool if an operand is a stored array or a plan. ``bool(…)`` and ``if`` compute it.

    Raises
    ------
    ShapeMismatchError, DTypeMismatchError
        As for :func:`isclose`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.array(np.array([1.0, 2.0]), store={})
    >>> bool(cuzarr.xp.allclose(z, z + 1e-12))
    True
    """
    return reductions.all(isclose(x1, x2, rtol, atol, equal_nan))


@planned_pair
def array_equal(x1: Any, x2: Any, equal_nan: bool = False) -> Any:
    """Whether two arrays have the same shape and the same elements.

    Parameters
    ----------
    x1, x2 : array
        In memory of any device, in a store, or plans.
    equal_nan : bool
        Whether NaN equals NaN.

    Returns
    -------
    bool or Expression
        A plan of one bool if an operand is a stored array or a plan. ``bool(…)`` and ``if`` compute it.

    Raises
    ------
    DTypeMismatchError
        Elements have no arithmetic.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.array(np.array([1.0, np.nan]), store={})
    >>> bool(cuzarr.xp.array_equal(z, z)), bool(cuzarr.xp.array_equal(z, z, equal_nan=True))
    (False, True)
    """
    x1, x2 = _array(x1, "array_equal"), _array(x2, "array_equal")
    if tuple(x1.shape) != tuple(x2.shape):
        no = np.array(False)
        return Expression._rebuilt(("", (no,), ()), None, None) if is_lazy(x1) or is_lazy(x2) else no[()]
    same = apply("equal", x1, x2)
    return reductions.all(apply("logical_or", same, _both_nan(x1, x2)) if equal_nan else same)


@planned
def nan_to_num(x: Any, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """The elements, with NaN and infinities replaced by numbers.

    Parameters
    ----------
    x : array or number
        Elements in memory of any device, an array in a store, or a plan.
    nan : float
        The replacement for NaN.
    posinf, neginf : float, optional
        The replacements for infinities; by default the greatest and the least number of the type.

    Returns
    -------
    array or Expression
        New elements of the type of ``x``; a plan if ``x`` is a stored array or a plan.

    Raises
    ------
    DTypeMismatchError
        Elements are complex numbers, or have no arithmetic.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.nan_to_num(np.array([np.nan, np.inf]), posinf=9)
    array([0., 9.])
    """
    x = _array(x, "nan_to_num")
    dtype = element_type(x)
    if dtype.kind in "biu":
        return apply("logical_or", x, False) if dtype.kind == "b" else apply("add", x, 0)
    if dtype.kind == "c":
        message = "nan_to_num takes real numbers, got complex ones"
        raise DTypeMismatchError(message, hint="convert x.real and x.imag")
    largest = _LARGEST_BFLOAT16 if dtype.name == "bfloat16" else float(np.finfo(dtype).max)
    made = apply("where", apply("isnan", x), float(nan), x)
    made = apply("where", apply("equal", x, math.inf), largest if posinf is None else float(posinf), made)
    return apply("where", apply("equal", x, -math.inf), -largest if neginf is None else float(neginf), made)


@planned
def average(x: Any, axis: Axis = None, weights: Any = None, *, keepdims: bool = False) -> Any:
    """The weighted mean of the elements: their weighted sum, divided by the sum of the weights.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, str or tuple of them, optional
        Dimensions to reduce; by default all.
    weights : array, optional
        Weights with the shape of ``x``, or with the extents along ``axis``. By default all elements have the same weight.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        A plan if ``x`` or ``weights`` is a stored array or a plan. If the weights are read later, a sum of 0 gives NaN or infinity.

    Raises
    ------
    ShapeMismatchError
        Weights have another shape.
    InvalidArgumentError
        There is no such dimension.
    ZeroDivisionError
        The sum of weights in memory is 0.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.array(np.array([[1.0, 2.0], [5.0, 6.0]]), store={})
    >>> cuzarr.xp.average(z, axis=0, weights=[3, 1]).compute()
    array([2., 3.])
    """
    x = _array(x, "average")
    if weights is None:
        return reductions.mean(x, axis, keepdims=keepdims)
    tell_of_packed(x, "average")
    weights = _array(weights, "average")
    axes = axes_of(axis, len(x.shape), dimension_names(x))
    kind = np.result_type(element_type(x), element_type(weights))
    if element_type(x).kind in "biu":
        kind = np.result_type(kind, "f8")
    if tuple(weights.shape) != tuple(x.shape):
        along = axes or []
        expected = tuple(x.shape[one] for one in along)
        if axis is None or tuple(weights.shape) != expected:
            message = f"average: weights have shape {tuple(weights.shape)}, expected {tuple(x.shape)}"
            raise ShapeMismatchError(message + (f" or {expected}" if axis is not None else ""))
        if is_lazy(weights):
            weights = weights._elements_on(None)  # at most as many as in a row
        order = sorted(range(len(along)), key=along.__getitem__)
        shape = [x.shape[one] if one in along else 1 for one in range(len(x.shape))]
        weights = weights.transpose(order).reshape(shape)
    weights = weights if element_type(weights) == kind else elementwise.astype(weights, kind)
    numbers = None if axes is None else tuple(axes)
    total = reductions.sum(apply("multiply", x, weights), numbers, keepdims=keepdims)
    whole = reductions.sum(weights, numbers, keepdims=keepdims)
    if not is_lazy(whole) and bool(reductions.any(apply("equal", whole, 0))):
        raise ZeroDivisionError("average: the sum of the weights is 0")
    return apply("divide", total, whole)


_names.list_public(globals())

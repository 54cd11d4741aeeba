"""Applies functions and reductions to arrays of any kind. The result is a plan if one is in a store; else it is computed immediately."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import Axis, axes_of, axis_of, refusing
from cuzarr._compute.decoded import tell_of_packed
from cuzarr._compute.expression import Expression
from cuzarr._compute.operands import (
    deliver,
    device_among,
    dimension_names,
    is_lazy,
    joint_names,
    made,
    made_of,
    names_left,
    operand,
    plan_device,
    settings,
)
from cuzarr._memory.element_types import dtype_of
from cuzarr._memory.foreign import host_array
from cuzarr._operators import dispatch
from cuzarr._operators.dispatch import Lazy
from cuzarr._operators.numpy_stored import by_numpy, of_elements_alone

_MEANS = ("mean", "std", "var")


def plan(value: Any) -> Any:
    """Converts a stored array, or a view of one, to a plan that reads it. Any other value is returned unchanged."""
    if not isinstance(value, Lazy) or value._is_plan:
        return value
    return Expression(operand(value, "cpu", "an array"), plan_device((value,)), dimension_names(value), ("", (value,), ()))  # type: ignore[arg-type]


def apply(name: str, *values: Any) -> Any:
    """Applies an element-wise function, given by NumPy's name, to operands of any kind.

    The result is computed at once, unless an operand is a plan or in a store. Dates and text are computed by NumPy.
    """
    if any(is_lazy(value) for value in values):
        if of_elements_alone(values):
            return by_numpy(name, getattr(np, name), values)
        # Operands in memory are moved to the device when the plan runs.
        expr = made("apply", values, (name,))
        return Expression(expr, plan_device(values), joint_names(values, len(expr.shape)), ("apply", values, (name,)))
    device = device_among(values)
    expr = _core.Expr.apply(name, [operand(value, device, name) for value in values])
    return deliver(expr.evaluate(device), values)


def reduce(name: str, x: Any, axis: Axis, keepdims: bool = False, ddof: float = 0, skip_nan: bool = False) -> Any:
    """Reduces the elements of an array of any kind, by the reduction that NumPy calls ``name``.

    The result is computed at once, unless ``x`` is a plan or in a store. Dates and text are reduced by NumPy.
    """
    full_name = f"nan{name}" if skip_nan else name
    if of_elements_alone((x,)):
        axes = axes_of(axis, len(x.shape), dimension_names(x))
        options = {"ddof": ddof} if name in ("std", "var") else {}
        chosen = axes[0] if axes is not None and len(axes) == 1 else axes and tuple(axes)
        return by_numpy(full_name, getattr(np, full_name), (x,), axis=chosen, keepdims=bool(keepdims), **options)
    tell_of_packed(x, full_name)
    device = device_among((x,))
    own = operand(x if hasattr(x, "shape") else host_array(x, name), device, name)
    assert isinstance(own, _core.Expr)
    names = dimension_names(x)
    # For an array without dimensions, NumPy's means and variances refuse an axis; its other reductions accept 0 and -1. For integers,
    # `nanmean` is `mean`.
    has_nans = dtype_of(own.dtype).kind not in "biu"
    axes = axes_of(
        axis if name in _MEANS and not (skip_nan and has_nans) else axis_of(axis, len(own.shape)), len(own.shape), names
    )
    with refusing("ddof"):
        freedom = float(ddof)
    arguments = name, axes, bool(keepdims), freedom, skip_nan
    return finished("reduced", arguments, own, (x, device), names_left(names, axes, keepdims))


def joined(arrays: tuple[Any, ...], axis: int) -> Any:
    """Concatenates arrays and plans along ``axis``. The result is computed at once, unless one of them is a plan or in a store."""
    if any(is_lazy(value) for value in arrays):
        expr = made("concatenated", arrays, (axis,))
        names = joint_names(arrays, len(expr.shape))
        return Expression(expr, plan_device(arrays), names, ("concatenated", arrays, (axis,)))
    device = device_among(arrays)
    parts = [operand(value, device, "concatenate") for value in arrays]
    expr = _core.Expr.concatenated(parts, axis)  # type: ignore[arg-type]
    _, limit, threads = settings(device, None)
    return deliver(expr.compute((0,) * len(expr.shape), expr.shape, device, limit, threads), arrays)


def finished(
    how: str, arguments: tuple[Any, ...], own: _core.Expr, source: tuple[Any, str], names: tuple[str | None, ...] | None = None
) -> Any:
    """Makes a new expression by the method named ``how`` of the Rust expression ``own``, and returns it as a plan, or its computed
    elements. The result is a plan if ``source`` is one or is in a store, else elements."""
    (x, device), expr = source, made_of(how, own, arguments)
    if is_lazy(x):
        return Expression(expr, plan_device((x,)), names, (how, (x,), arguments))
    _, limit, threads = settings(device, None)
    return deliver(expr.compute((0,) * len(expr.shape), expr.shape, device, limit, threads), (x,))


dispatch.apply = apply

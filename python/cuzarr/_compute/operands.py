"""Converts operands of any kind to expressions of the Rust side, and results to the kind of array of the operands."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._config import config, parse_size
from cuzarr._config.keys import DEFAULT_MEMORY_LIMIT_BYTES
from cuzarr._memory.convert import result_array
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.element_types import dtype_of
from cuzarr._memory.foreign import device_buffer, device_of, host_array, is_on_device, numpy_view, wrap_host
from cuzarr._numpy import check_dtype
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import MemorySpaceError, OutOfRangeError

Number = bool | int | float | complex
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_NUMBERS = (bool, int, float, complex)  # faster to test than `Number`: it takes half as long

_cpu_count = functools.cache(os.cpu_count)  # cached, because a call takes as long as a small kernel


def is_lazy(value: Any) -> bool:
    """Whether the elements of ``value`` are still to be read or computed: it is a stored array, a view of one, or a plan."""
    return isinstance(value, Lazy)


def dimension_names(value: Any) -> tuple[str | None, ...] | None:
    """Names of the dimensions of an array or a plan; ``None`` if the array or plan has no names. In format 2 they are stored as xarray
    stores them."""
    return value._dimension_names if isinstance(value, Lazy) else None


def names_left(names: tuple[str | None, ...] | None, axes: list[int] | None, keepdims: Any) -> tuple[str | None, ...] | None:
    """Names of the dimensions that a reduction over ``axes`` leaves in its result."""
    if names is None or keepdims:
        return names
    return () if axes is None else tuple(name for axis, name in enumerate(names) if axis not in axes)


def joint_names(values: tuple[Any, ...], ndim: int) -> tuple[str | None, ...] | None:
    """Names of the ``ndim`` dimensions of a result, if all of ``values`` with as many dimensions have the same names."""
    found = {dimension_names(value) for value in values if is_lazy(value) and value.ndim == ndim} - {None}
    return found.pop() if len(found) == 1 else None


def _is_number(value: Any) -> bool:
    # NumPy's float64 derives from Python's float, but is another element type.
    return isinstance(value, _NUMBERS) and not isinstance(value, np.generic)


def _host_expr(array: np.ndarray[Any, Any], device: str, what: str) -> _core.Expr:
    check_dtype(array.dtype, what)
    if device != "cpu" and array.ndim:
        raise MemorySpaceError(
            f"{what}: got a NumPy array of shape {array.shape} beside one on {device}",
            hint=f"move it first: cuzarr.xp.asarray(x, device={device!r}); or bring the other to the host with .cpu()",
        )
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return _core.Expr.buffer(wrap_host(native))


def operand(value: Any, device: str, what: str) -> _core.Expr | Number:
    """Converts an operand to the form that an expression of the Rust side needs, for computing on ``device``.

    Raises
    ------
    MemorySpaceError, DTypeMismatchError
    """
    if _is_number(value):
        if isinstance(value, int) and not -(1 << 127) <= value < 1 << 127:
            if what in _COMPARISONS and value.bit_length() < 1024:
                return float(value)  # compared with whole numbers, the float gives the same result
            raise OutOfRangeError(f"{what}: {value} fits into no type of whole numbers", hint="write it as a float")
        return value  # type: ignore[no-any-return]
    if isinstance(value, Lazy):
        return value._as_expression(what)
    if is_on_device(value):
        if isinstance(value, DeviceArray):
            check_dtype(value.dtype, what)
        buffer = device_buffer(value)
        if buffer.device != device:
            raise MemorySpaceError(f"{what}: got arrays on {buffer.device} and on {device}", hint=f"move one: .to({device!r})")
        return _core.Expr.buffer(buffer)
    return _host_expr(host_array(value, what), device, what)


def made(how: str, operands: tuple[Any, ...], arguments: tuple[Any, ...]) -> _core.Expr:
    """Makes an expression of the Rust side from operands of any kind, by the Rust method named ``how``.

    ``"apply"`` and ``"concatenated"`` take several operands, all other methods take one. A number behind a colon chooses one of
    a pair of results: ``"histogram:1"``.
    """
    if how == "apply":
        (name,) = arguments
        return _core.Expr.apply(name, [operand(value, lazy_device(value), name) for value in operands])
    if how == "concatenated":
        return _core.Expr.concatenated([_elements_of(value, how) for value in operands], *arguments)
    (value,) = operands
    return made_of(how, _elements_of(value, how), arguments)


def _elements_of(value: Any, how: str) -> _core.Expr:
    """An array or a plan as an expression of the Rust side."""
    own = operand(value, lazy_device(value), how)
    assert isinstance(own, _core.Expr)
    return own


def _as_memory(argument: Any) -> Any:
    """Converts an argument for the Rust side: NumPy arrays, also those in a list, become buffers."""
    if isinstance(argument, list):
        return [_as_memory(one) for one in argument]
    return wrap_host(argument) if isinstance(argument, np.ndarray) else argument


def made_of(how: str, own: _core.Expr, arguments: tuple[Any, ...]) -> _core.Expr:
    """Calls the method named ``how`` of the Rust expression ``own``, and returns the expression that this method makes."""
    method, _, place = how.partition(":")
    if not method:
        return own
    given = map(_as_memory, arguments)
    result = getattr(own, method)(*given)
    return result[int(place)] if place else result  # type: ignore[no-any-return]


def device_among(values: tuple[Any, ...]) -> str:
    """The device of operands in memory: the first GPU among them, else ``"cpu"``."""
    for value in values:
        if not _is_number(value) and not is_lazy(value) and is_on_device(value):
            return device_of(value)
    return "cpu"


def deliver(buffer: _core.NdBuffer, like: tuple[Any, ...], dtype: np.dtype[Any] | None = None) -> Any:
    """Converts a result to the kind of array that the operands ``like`` are: NumPy's, :class:`DeviceArray`, or the kind that reads return.

    ``dtype`` is the type of dates, which the Rust side holds as integers.
    """
    dtype = dtype_of(buffer.dtype) if dtype is None else dtype
    if buffer.device == "cpu":
        array = numpy_view(buffer, dtype)
        return array if array.ndim else array[()]
    if any(isinstance(value, DeviceArray) for value in like):
        return DeviceArray(buffer, dtype)
    return result_array(buffer, dtype)


def settings(device: str | None, memory_limit: int | str | None) -> tuple[str, int, int]:
    """The device, memory limit in bytes and number of threads with which a plan is computed: the arguments, else the configured values."""
    where = str(config.get("device")) if device is None else str(device)
    asked = config.get("memory_limit") if memory_limit is None else parse_size(memory_limit)
    threads = config.get("threading.max_workers") or _cpu_count() or 1
    return where, DEFAULT_MEMORY_LIMIT_BYTES if asked is None else int(asked), int(threads)


def plan_device(values: tuple[Any, ...]) -> str | None:
    """The device that a plan with the operands ``values`` computes on, unless the caller names one; ``None`` for the configured one.

    It is the GPU whose memory holds an operand, else the device that was chosen for an array or a plan; ``None`` if there is neither.

    Raises
    ------
    MemorySpaceError
        An operand is in a GPU's memory, and the plan runs elsewhere.
    """
    devices = (getattr(value, "_own_device", None) for value in values if is_lazy(value))
    named = next((device for device in devices if device is not None), None)
    memory = device_among(values)
    if memory == "cpu":
        return named
    if named not in (None, memory, memory.removesuffix(":0")):
        raise MemorySpaceError(
            f"got an array on {memory} and one that is read to {named}",
            hint=f"read that one to {memory}: .with_device({memory!r}); or move this one: cuzarr.xp.asarray(x, device={named!r})",
        )
    return memory


def lazy_device(value: Any) -> str:
    """The device whose memory holds an operand of a plan: a GPU for an array in its memory, else ``"cpu"``, also for stored arrays."""
    if _is_number(value) or is_lazy(value) or not is_on_device(value):
        return "cpu"
    return device_buffer(value).device

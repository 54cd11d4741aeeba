"""From operands of any kind to the Rust side's expressions, and back: eager where all elements are in memory, a plan where
some are in a store."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import host_array as host_array_of
from cuzarr._config import config
from cuzarr._memory.convert import device_buffer, device_of, dtype_of, host_array, is_on_device, result_array, wrap_host
from cuzarr._metadata.array import ArrayV3Metadata
from cuzarr._numpy import check_type
from cuzarr._memory.device_array import DeviceArray
from cuzarr.errors import DTypeMismatchError, MemorySpaceError, OutOfRangeError

Number = bool | int | float | complex
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_NUMBERS = (bool, int, float, complex)  # which takes half as long to look through

_cpu_count = functools.cache(os.cpu_count)  # it takes as long as a small kernel


def is_computable(dtype: np.dtype[Any]) -> bool:
    """Whether elements have arithmetic: not dates, strings, structures and objects."""
    return (dtype.kind in "biufc" or dtype.name == "bfloat16") and dtype.itemsize <= 16


def check_dtype(dtype: np.dtype[Any], what: str) -> None:
    """Refuses elements without arithmetic.

    Raises
    ------
    DTypeMismatchError
        Dates, strings, structures, objects.
    DataTypeValidationError
        Types of other libraries.
    """
    check_type(dtype)
    if not is_computable(dtype):
        raise DTypeMismatchError(
            f"{what}: elements of {dtype} have no arithmetic here",
            hint="read the array and use NumPy" + (", or view dates as int64" if dtype.kind in "mM" else ""),
        )


def is_lazy(value: Any) -> bool:
    """Whether these elements are yet to be read or computed."""
    from cuzarr._node.array import Array
    from cuzarr._compute.expression import Expression

    return isinstance(value, Array | Expression)


def dimension_names(value: Any) -> tuple[str | None, ...] | None:
    """The names of an array's or a plan's dimensions, if they have any; format 2 keeps them as xarray does."""
    from cuzarr._node.array import Array
    from cuzarr._compute.expression import Expression

    if isinstance(value, Expression):
        return value._names
    if not isinstance(value, Array):
        return None
    if isinstance(value.metadata, ArrayV3Metadata):
        return value.metadata.dimension_names
    names = value.metadata.attributes.get("_ARRAY_DIMENSIONS")
    return tuple(names) if isinstance(names, list | tuple) and len(names) == value.ndim else None


def names_left(names: tuple[str | None, ...] | None, axes: list[int] | None, keepdims: Any) -> tuple[str | None, ...] | None:
    """Names of the dimensions that a reduction leaves."""
    if names is None or keepdims:
        return names
    return () if axes is None else tuple(name for axis, name in enumerate(names) if axis not in axes)


def _joint_names(values: tuple[Any, ...], ndim: int) -> tuple[str | None, ...] | None:
    """Names of the dimensions of what is computed of these, where those that have as many dimensions agree."""
    found = {dimension_names(value) for value in values if is_lazy(value) and value.ndim == ndim} - {None}
    return found.pop() if len(found) == 1 else None


def _is_number(value: Any) -> bool:
    # NumPy's float64 derives from float, and has a type of its own all the same.
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
    """What an expression on this device is made of.

    Raises
    ------
    MemorySpaceError, DTypeMismatchError
    """
    from cuzarr._node.array import Array
    from cuzarr._compute.expression import Expression

    if _is_number(value):
        if isinstance(value, int) and not -(1 << 127) <= value < 1 << 127:
            if what in _COMPARISONS and value.bit_length() < 1024:
                return float(value)  # which compares with whole numbers as the value itself
            raise OutOfRangeError(f"{what}: {value} fits into no type of whole numbers", hint="write it as a float")
        return value  # type: ignore[no-any-return]
    if isinstance(value, Expression):
        return value._expr
    if isinstance(value, Array):
        check_dtype(value.dtype, what)
        return _core.Expr.array(value._handle())
    if is_on_device(value):
        if isinstance(value, DeviceArray):
            check_dtype(value.dtype, what)
        buffer = device_buffer(value)
        if buffer.device != device:
            raise MemorySpaceError(
                f"{what}: got arrays on {buffer.device} and on {device}", hint=f"move one: .to({device!r})"
            )
        return _core.Expr.buffer(buffer)
    return _host_expr(host_array_of(value, what), device, what)


def lazy(value: Any) -> Any:
    """A plan of an array in a store; anything else as it is."""
    from cuzarr._node.array import Array
    from cuzarr._compute.expression import Expression

    if not isinstance(value, Array):
        return value
    return Expression(operand(value, "cpu", "an array"), plan_device((value,)), dimension_names(value))  # type: ignore[arg-type]


def device_among(values: tuple[Any, ...]) -> str:
    """Where elements in memory are: the first GPU's name, else ``"cpu"``."""
    for value in values:
        if not _is_number(value) and not is_lazy(value) and is_on_device(value):
            return device_of(value)
    return "cpu"


def native_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type for an expression's."""
    return dtype_of(name)


def deliver(buffer: _core.NdBuffer, like: tuple[Any, ...]) -> Any:
    """A result as the caller's operands are: NumPy, :class:`DeviceArray`, or what reads give."""
    dtype = native_dtype(buffer.dtype)
    if buffer.device == "cpu":
        array = host_array(buffer, dtype)
        return array if array.ndim else array[()]
    if any(isinstance(value, DeviceArray) for value in like):
        return DeviceArray(buffer, dtype)
    return result_array(buffer, dtype)


# What is in flight where the configuration leaves the limit to the library.
_DEFAULT_LIMIT_BYTES = 4 << 30


def settings(device: str | None, memory_limit: int | str | None) -> tuple[str, int, int]:
    """Device, bytes in flight and threads of a plan: as asked for, else as configured."""
    from cuzarr._config import parse_size

    where = str(config.get("device")) if device is None else str(device)
    asked = config.get("memory_limit") if memory_limit is None else parse_size(memory_limit)
    threads = config.get("threading.max_workers") or _cpu_count() or 1
    return where, _DEFAULT_LIMIT_BYTES if asked is None else int(asked), int(threads)


def apply(name: str, *values: Any) -> Any:
    """A function by NumPy's name: computed at once, unless an operand is in a store or a plan itself."""
    from cuzarr._compute.expression import Expression

    if any(is_lazy(value) for value in values):
        # Memory that takes part is moved when the plan runs.
        expr = _core.Expr.apply(name, [operand(value, _lazy_device(value), name) for value in values])
        return Expression(expr, plan_device(values), _joint_names(values, len(expr.shape)))
    device = device_among(values)
    expr = _core.Expr.apply(name, [operand(value, device, name) for value in values])
    return deliver(expr.evaluate(device), values)


def plan_device(values: tuple[Any, ...]) -> str | None:
    """Where a plan of these runs unless it is told: on the GPU that has the memory of one, or as an array or plan was given by name.

    Raises
    ------
    MemorySpaceError
        Memory of a GPU takes part in a plan that runs elsewhere.
    """
    devices = (getattr(value, "_own_device", None) for value in values if is_lazy(value))
    named = next((device for device in devices if device is not None), None)
    memory = device_among(values)
    if memory == "cpu":
        return named
    if named not in (None, memory, memory.removesuffix(":0")):
        raise MemorySpaceError(
            f"got an array on {memory} beside one that is read to {named}",
            hint=f"read that one to {memory}: .with_device({memory!r}); or move this one: cuzarr.xp.asarray(x, device={named!r})",
        )
    return memory


def _lazy_device(value: Any) -> str:
    if _is_number(value) or is_lazy(value) or not is_on_device(value):
        return "cpu"
    return device_buffer(value).device

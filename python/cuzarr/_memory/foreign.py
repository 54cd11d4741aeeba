"""Arrays of any library as buffers for the Rust side, without copying."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cuzarr import _core, _numpy
from cuzarr._checks import refusing
from cuzarr._memory.element_types import core_dtype, dtype_of, memory_type
from cuzarr._numpy import SMALL_NUMBERS
from cuzarr.errors import InvalidArgumentError

_OF_THE_HOST = (np.ndarray, np.generic, int, float, complex, str, bytes, list, tuple)

_DLPACK_CPU = 1
_DLPACK_CUDA = 2


class OnDevice:
    """Base class of cuzarr's arrays in a GPU's memory."""

    _buffer: _core.NdBuffer
    dtype: np.dtype[Any]


def numpy_view(buffer: _core.NdBuffer, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A NumPy array over a buffer in host memory, which the array keeps alive."""
    if buffer.nbytes == 0:
        return np.empty(buffer.shape, dtype)
    return np.ndarray(buffer.shape, dtype, buffer=buffer, offset=buffer.offset_bytes, strides=buffer.strides)


def refuse_masked(value: Any) -> None:
    """Refuses NumPy's masked arrays, also in a list, because their elements mean something else without the mask.

    Raises
    ------
    InvalidArgumentError
    """
    if isinstance(value, np.ma.MaskedArray) or (
        type(value) in (list, tuple) and any(isinstance(one, np.ma.MaskedArray) for one in value)
    ):
        raise InvalidArgumentError("got a masked array, whose mask would be lost", hint="fill it first: x.filled(value)")


def wrap_host(array: np.ndarray[Any, Any]) -> _core.NdBuffer:
    """The memory of a NumPy array as a buffer, which keeps the array alive."""
    refuse_masked(array)
    # Uses the element size of the array itself. A size that the caller expects may reach beyond the array's memory.
    name, is_fixed = core_dtype(array.dtype), not array.flags.writeable
    return _core.NdBuffer.wrap(array.ctypes.data, array.shape, array.strides, name, is_fixed, array)


def is_cupys(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "cupy"


def is_on_device(value: Any) -> bool:
    """Whether an array is in a GPU's memory."""
    if isinstance(value, OnDevice) or is_cupys(value):  # the tests below take microseconds
        return True
    if isinstance(value, _OF_THE_HOST):
        return False
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) != _DLPACK_CPU
    try:
        return hasattr(value, "__cuda_array_interface__")
    except Exception:  # noqa: BLE001, PyTorch raises for tensors of the CPU that require gradients
        return False


def device_of(value: Any) -> str:
    """The device of an array's memory, such as ``"cpu"`` or ``"cuda:0"``."""
    if not is_on_device(value):
        return "cpu"
    if is_cupys(value):
        return f"cuda:{value.device.id}"
    if not isinstance(value, OnDevice) and hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        if int(kind) == _DLPACK_CUDA:
            # Does not make a buffer of the array's memory, which would take longer than a small kernel.
            return f"cuda:{int(number)}"
    return device_buffer(value).device


def on_host(value: Any) -> Any:
    """Copies a GPU array to a NumPy array. Any other value is returned unchanged."""
    if not is_on_device(value):
        return value
    buffer = device_buffer(value)
    dtype = value.dtype if isinstance(getattr(value, "dtype", None), np.dtype) else dtype_of(buffer.dtype)
    return numpy_view(buffer.to("cpu"), dtype)


def device_buffer(value: Any, *, waits: bool = True) -> _core.NdBuffer:
    """The memory of a GPU array of any library as a buffer, without copying. Without ``waits``, the library's work on it may still run."""
    if isinstance(value, OnDevice):
        return value._buffer
    dtype = getattr(value, "dtype", None)
    is_plain = not isinstance(dtype, np.dtype) or dtype.kind in "biufc" or not is_cupys(value)
    # CuPy's interface takes less time than DLPack, where the stream that it names is not waited for.
    if hasattr(value, "__dlpack__") and is_plain and (waits or not is_cupys(value)):
        return shared_buffer(value, waits=waits)
    # CuPy's arrays name their device. For other libraries, the driver finds the device of the memory.
    device = f"cuda:{value.device.id}" if is_cupys(value) else None
    interface = dict(value.__cuda_array_interface__)
    if not waits:
        interface["stream"] = None
    buffer = _core.NdBuffer.from_cuda_array_interface(interface, device, value)
    return buffer if is_plain else buffer.reinterpret(memory_type(np.dtype(dtype)))


def shared_buffer(value: Any, *, waits: bool = True) -> _core.NdBuffer:
    """The memory of an array with ``__dlpack__`` as a buffer, without copying. The memory may be on any device."""
    # PyTorch's tensors refuse the export while they record gradients. Some tensors mean the negative or the conjugate of their memory.
    for name in ("detach", "resolve_conj", "resolve_neg"):
        if hasattr(value, name):
            value = getattr(value, name)()
    if (float8 := _torch_float8(value)) is not None:
        # Not every version of PyTorch exports these types by DLPack.
        return _core.NdBuffer.from_dlpack(value.view(sys.modules["torch"].uint8), waits).reinterpret(float8)
    return _core.NdBuffer.from_dlpack(value, waits)


def _torch_float8(value: Any) -> str | None:
    """Name of the element type of a PyTorch tensor with 8-bit floats; ``None`` for any other value."""
    if type(value).__module__ != "torch":
        return None
    name = str(value.dtype).removeprefix("torch.")
    return name if name.startswith("float8_") and name in SMALL_NUMBERS else None


def foreign_view(value: Any) -> np.ndarray[Any, Any] | None:
    """A NumPy view of another library's host memory, if NumPy cannot make one by itself; else ``None``."""
    is_numpys = hasattr(value, "__array__") and isinstance(getattr(value, "dtype", np.dtype("V")), np.dtype)
    if is_numpys or not hasattr(value, "__dlpack__"):
        return None
    try:
        buffer = shared_buffer(value)
    except Exception:  # elements that the library does not export by DLPack, such as strings
        if hasattr(value, "__array__"):
            return None
        raise
    return numpy_view(buffer, dtype_of(buffer.dtype))


def as_numpy(value: Any) -> np.ndarray[Any, Any]:
    """Converts numbers, lists, or an array of any library in host memory to a NumPy array.

    Raises
    ------
    InvalidArgumentError
        The value is a masked array.
    """
    refuse_masked(value)
    view = foreign_view(value)
    return np.asarray(value) if view is None else view


def to_native_host(value: Any, native: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Converts a value that a caller writes to a NumPy array of type ``native``. It is copied only if it must be converted.

    Raises
    ------
    ConversionError
        NumPy refuses to assign the value.
    InvalidArgumentError
        The value is a masked array.
    """
    refuse_masked(value)
    if np.isscalar(value):
        return _numpy.element(value, native)
    if not hasattr(value, "dtype") and not hasattr(value, "__dlpack__"):
        with _numpy.conversion(native):
            _numpy.check_range(value, native)
            return np.asarray(value, native)
    array = as_numpy(value)
    if array.dtype == native:
        return array
    with _numpy.conversion(native):  # any type is converted to any other, as in NumPy's assignments
        return array.astype(native, order="A")


def element_type(out: Any) -> np.dtype[Any]:
    """The NumPy dtype of the elements of a caller's array, which may be of any library."""
    out = getattr(out, "as_ndarray_like", lambda: out)()
    if not hasattr(out, "dtype") and not hasattr(out, "__dlpack__"):
        raise InvalidArgumentError(f"out is {type(out).__name__}, expected an array")
    dtype = getattr(out, "dtype", None)
    return dtype if isinstance(dtype, np.dtype) else dtype_of(device_buffer(out).dtype)


def host_view(array: np.ndarray[Any, Any]) -> _core.NdBuffer:
    """The memory of a NumPy array of any element type, as a buffer."""
    name, is_fixed = memory_type(array.dtype), not array.flags.writeable
    return _core.NdBuffer.wrap(array.ctypes.data, array.shape, array.strides, name, is_fixed, array)


def host_array(value: Any, what: str, dtype: Any = None) -> np.ndarray[Any, Any]:
    """Converts a list, a number, host memory of another library, or anything else that NumPy accepts to a NumPy array.

    Raises
    ------
    ArgumentTypeError, OutOfRangeError, InvalidArgumentError
    """
    if type(value) is np.ndarray and dtype is None:  # the rest takes as long as computing a small array
        return value
    refuse_masked(value)
    with refusing(what):
        return as_numpy(value) if dtype is None else np.asarray(value, dtype)


def to_bytes(value: Any) -> bytes:
    """Converts a value to be stored, such as a bytes-like object, an array or zarr-python's buffer, to bytes."""
    if hasattr(value, "to_bytes") and not isinstance(value, int):
        return bytes(value.to_bytes())
    return bytes(memoryview(value).cast("B")) if not isinstance(value, bytes) else value

"""Converts between buffers of the Rust side and arrays of Python's libraries. Arrays on a GPU are passed without copying,
unless their elements must be converted.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._config import config
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.element_types import DataType, are_known_apart, core_dtype, dtype_of
from cuzarr._memory.foreign import device_buffer, device_of, element_type, is_cupys, is_on_device, numpy_view, wrap_host
from cuzarr._numpy import is_small
from cuzarr.errors import (
    DTypeMismatchError,
    InvalidArgumentError,
    LibraryMissingError,
    MemorySpaceError,
    ShapeMismatchError,
    UnsupportedError,
)


def _is_aligned(dtype: np.dtype[Any]) -> bool:
    """Whether the fields of a structured dtype have the offsets that a C compiler would choose."""
    assert dtype.names is not None and dtype.fields is not None
    fields = [dtype.fields[name] for name in dtype.names]
    if any(field[0].names is not None and not _is_aligned(field[0]) for field in fields):
        return False
    aligned = np.dtype({"names": list(dtype.names), "formats": [field[0] for field in fields]}, align=True)
    assert aligned.fields is not None
    offsets = [aligned.fields[name][1] for name in dtype.names]
    return aligned.itemsize == dtype.itemsize and offsets == [field[1] for field in fields]


@functools.cache
def cupy_holds(dtype: np.dtype[Any]) -> bool:
    """Whether CuPy is installed, and supports this element type."""
    try:
        import cupy
    except ImportError:
        return False
    if is_small(dtype):
        return False  # CuPy's kernels would take such a number for raw bytes, or for one of CuPy's own floats
    if dtype.kind in "biufc":
        return dtype.isnative and dtype.itemsize <= 16
    if dtype.names is not None and not _is_aligned(dtype):
        return False  # CuPy can make such arrays, but runs no kernel on them: not even a copy
    try:  # structures and bfloat16 need a newer version of CuPy
        cupy.empty((0,), dtype)
    except (TypeError, ValueError):
        return False
    return True


def _cupy_array(buffer: _core.NdBuffer, dtype: np.dtype[Any]) -> Any | None:
    kind, number = buffer.device.partition(":")[::2]
    if config.get("array_type") == "device" or kind != "cuda":
        return None
    if not cupy_holds(dtype):
        if config.get("array_type") == "cupy" and importlib.util.find_spec("cupy") is None:
            raise LibraryMissingError("array_type is 'cupy', but CuPy is not installed", hint="pip install cupy-cuda12x")
        return None
    import cupy

    device = int(number or 0)
    if not buffer.nbytes:
        with cupy.cuda.Device(device):
            return cupy.empty(buffer.shape, dtype)
    # Not by DLPack, which has no structures, and takes twice as long.
    memory = cupy.cuda.UnownedMemory(buffer.address, buffer.nbytes, buffer, device)
    return cupy.ndarray(buffer.shape, dtype, cupy.cuda.MemoryPointer(memory, 0), buffer.strides)


def result_array(buffer: _core.NdBuffer, dtype: np.dtype[Any]) -> Any:
    """The array that a caller gets: NumPy's on the CPU; on a GPU CuPy's or a :class:`DeviceArray`, as the setting ``array_type`` says."""
    if buffer.device == "cpu":
        return numpy_view(buffer, dtype)
    on_device = _cupy_array(buffer, dtype)
    return DeviceArray(buffer, dtype) if on_device is None else on_device


def empty_beside(like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A new array on the device of the array ``like``, of the array type in which elements are read to that device. Its elements are not
    set."""
    if not is_on_device(like):
        return np.empty(shape, dtype)
    return result_array(_core.NdBuffer.empty(shape, core_dtype(dtype), device_of(like), "C"), dtype)


def to_device(array: np.ndarray[Any, Any], device: str) -> Any:
    """Copies a NumPy array to a device. The result is an array of the kind that reads return."""
    moved = DeviceArray.from_host(array, device)
    return result_array(moved._buffer, moved.dtype)


def wrap_device(value: Any, data_type: DataType) -> _core.NdBuffer:
    """The memory of a GPU array as a buffer, without copying.

    Raises
    ------
    DTypeMismatchError
        The array's elements have another type.
    """
    buffer = device_buffer(value)
    if not _has_elements_of(data_type.native, value, buffer):
        raise DTypeMismatchError(
            f"got elements of {getattr(value, 'dtype', buffer.dtype)} on {buffer.device}, expected {data_type}",
            hint="convert them on the GPU first, with astype",
        )
    return buffer


def device_elements(value: Any, data_type: DataType) -> _core.NdBuffer:
    """The elements of a GPU array that a caller writes, as a buffer of the stored array's element type.

    It is the array's own memory, or new memory if the GPU had to convert the elements, as NumPy's assignments do.

    Raises
    ------
    DTypeMismatchError
        GPUs cannot convert the elements: strings, structures, other units of time.
    """
    buffer = device_buffer(value)
    if _has_elements_of(data_type.native, value, buffer):
        return buffer
    own = element_type(value)
    try:
        if data_type.is_variable:
            raise UnsupportedError("device memory cannot hold elements of variable length")
        return DeviceArray(buffer, own).astype(data_type.native.newbyteorder("="))._buffer
    except UnsupportedError as error:
        message = f"got elements of {own} on {buffer.device}, the array holds {data_type}: {error.message}"
        raise DTypeMismatchError(message, hint="convert on the host: array[...] = x.cpu(), or x.get() for CuPy") from error


def _has_elements_of(native: np.dtype[Any], value: Any, buffer: _core.NdBuffer) -> bool:
    """Whether the memory of a GPU array has elements of type ``native``, in the machine's byte order."""
    if native.kind in "OT":
        return False
    native, dtype = native.newbyteorder("="), getattr(value, "dtype", None)
    return buffer.dtype == core_dtype(native) and (not isinstance(dtype, np.dtype) or are_known_apart(dtype, native))


def read_into(
    read: Callable[[_core.NdBuffer], None], out: Any, shape: tuple[int, ...], native: np.dtype[Any], device: str
) -> Any:
    """Calls ``read`` to fill the caller's array ``out``, whose byte order may not be the machine's, and returns ``out``.

    Raises
    ------
    ShapeMismatchError, DTypeMismatchError
        ``out`` does not have the shape or type of the selection.
    """
    memory, finish = memory_for(out, shape, native, device)
    read(memory)
    finish()
    return out


def memory_for(out: Any, shape: tuple[int, ...], native: np.dtype[Any], device: str) -> tuple[_core.NdBuffer, Callable[[], None]]:
    """The buffer to read into for a caller's array ``out``, and a function that afterwards copies the elements to ``out``, if they are not
    there already.

    Raises
    ------
    ShapeMismatchError, DTypeMismatchError
        ``out`` does not have the shape or type of the selection.
    """
    target = getattr(out, "as_ndarray_like", lambda: out)()  # zarr-python's NDBuffer
    if isinstance(target, np.ndarray) and target.dtype != native == target.dtype.newbyteorder("="):
        check_writable(target)
        swapped = np.empty(target.shape, native)
        return check_out(swapped, shape, native, device), lambda: np.copyto(target, swapped)
    return check_out(target, shape, native, device), lambda: None


def check_out(out: Any, shape: tuple[int, ...], native: np.dtype[Any], device: str) -> _core.NdBuffer:
    """Checks shape, type and device of a caller's array ``out``, and returns its memory as a buffer.

    Raises
    ------
    ShapeMismatchError, DTypeMismatchError
        ``out`` does not have the shape or type of the selection.
    """
    if not hasattr(out, "shape"):
        raise InvalidArgumentError(f"out is {type(out).__name__}, expected an array")
    if tuple(out.shape) != shape:
        raise ShapeMismatchError(f"out has shape {tuple(out.shape)}, the selection {shape}")
    is_numpys, is_on_gpu = isinstance(out, np.ndarray), is_on_device(out)
    if not is_numpys and not is_on_gpu and not hasattr(out, "__dlpack__"):
        raise InvalidArgumentError(f"out is {type(out).__name__}, expected an array of NumPy, on a GPU, or with __dlpack__")
    if not is_on_gpu and device != "cpu":
        hint = f"make out with cuzarr.xp.empty(shape, dtype, device={device!r}), or read with device='cpu'"
        raise MemorySpaceError(f"out is in host memory, but elements are read to {device}", hint=hint)
    buffer = None if is_numpys else _writable_buffer(out)
    if out.dtype != native if buffer is None else not _has_elements_of(native, out, buffer):
        raise DTypeMismatchError(f"out has elements of {out.dtype}, the result of {native}")
    if buffer is None:
        check_writable(out)
        return wrap_host(out)
    return buffer


def _writable_buffer(out: Any) -> _core.NdBuffer:
    """The memory of a caller's array that is not NumPy's, as a buffer. Refuses read-only memory."""
    if any(getattr(out, name, bool)() for name in ("is_conj", "is_neg")):
        raise InvalidArgumentError("out is a conjugate or negative view", hint="pass out=torch.empty(...)")
    buffer = device_buffer(out)
    if buffer.is_read_only:
        raise InvalidArgumentError("out is read-only", hint="pass a writable array")
    if any(extent > 1 and stride == 0 for extent, stride in zip(buffer.shape, buffer.strides, strict=True)):
        raise InvalidArgumentError(f"out repeats its elements (strides {buffer.strides})", hint="pass out=torch.empty(...)")
    return buffer


def writable_view(out: Any) -> Any:
    """An array over the memory of a caller's array ``out``, to which elements can be assigned.

    Raises
    ------
    InvalidArgumentError
        The array is read-only.
    """
    if isinstance(out, np.ndarray):
        check_writable(out)
    if isinstance(out, np.ndarray | DeviceArray) or is_cupys(out) or not hasattr(out, "__dlpack__"):
        return out
    buffer = _writable_buffer(out)
    dtype = dtype_of(buffer.dtype)
    return numpy_view(buffer, dtype) if buffer.device == "cpu" else DeviceArray(buffer, dtype)


def check_writable(out: np.ndarray[Any, Any]) -> None:
    """Refuses a read-only array."""
    if not out.flags.writeable:
        raise InvalidArgumentError("out is read-only", hint="pass a writable array")

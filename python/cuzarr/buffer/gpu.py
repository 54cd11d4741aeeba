"""Buffers in a GPU's memory, over CuPy's arrays if CuPy is installed, else over :class:`cuzarr.DeviceArray`.

The setting ``array_type`` chooses between them. Importing this module uses no GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from cuzarr import _names, _numpy
from cuzarr._config import config
from cuzarr._memory import convert as _convert, element_types as _element_types, foreign as _foreign
from cuzarr._memory.device_array import DeviceArray
from cuzarr.buffer import _classes, cpu
from cuzarr.buffer._classes import ArrayLike, BufferPrototype, BytesLike, NDArrayLike, element_bits
from cuzarr.errors import CuzarrUserWarning, MemorySpaceError

if TYPE_CHECKING:
    import numpy.typing as npt

    from cuzarr.typing import AnyBuffer, DTypeLike, Scalar, Selection

__all__ = ["Buffer", "NDBuffer", "buffer_prototype"]


def _current_device() -> str:
    device = str(config.get("device"))
    return "cuda:0" if device == "cpu" else device


def _result(array: DeviceArray) -> Any:
    return _convert.result_array(array._buffer, array.dtype)


def _adopt(array: Any, what: str) -> Any:
    """Returns a GPU array of CuPy or cuzarr unchanged, and converts a GPU array of another library to one, without copying. An array in
    host memory is copied to the device, with a warning."""
    if not _foreign.is_on_device(array):
        message = f"{what} was made from host memory, which is copied to {_current_device()}"
        if config.get("strict"):
            raise MemorySpaceError(message, hint="copy it explicitly: from_bytes, from_buffer or from_numpy_array")
        warnings.warn(message, CuzarrUserWarning, stacklevel=4)
        return _result(DeviceArray.from_host(array, _current_device()))
    if isinstance(array, DeviceArray) or type(array).__module__.partition(".")[0] == "cupy":
        return array
    return _result(_device_array(array))


def _device_array(array: Any) -> DeviceArray:
    if isinstance(array, DeviceArray):
        return array
    buffer = _foreign.device_buffer(array)
    try:
        dtype = np.dtype(array.dtype)
    except TypeError:  # a type of PyTorch, which NumPy does not know
        dtype = _element_types.dtype_of(buffer.dtype)
    return DeviceArray(buffer, dtype)


def _to_host(array: Any) -> np.ndarray[Any, Any]:
    return _device_array(array).cpu()


class DeviceMemory(_classes.Memory):
    """Base class of the buffers in GPU memory, ``Buffer`` and ``NDBuffer``, whose memory an array of CuPy or cuzarr holds."""

    is_host_accessible: ClassVar[bool] = False

    @classmethod
    def default_device(cls) -> str:
        return _current_device()

    def as_numpy_array(self) -> np.ndarray[Any, Any]:
        return _to_host(self._data)


class Buffer(DeviceMemory, _classes.Buffer):
    """A buffer of flat, untyped bytes in a GPU's memory. The setting ``device`` chooses the GPU; if it is the CPU, the first GPU is used.

    Parameters
    ----------
    array_like : ArrayLike
        A flat array of unsigned bytes in this memory. It is kept, not copied.

    Raises
    ------
    InvalidArgumentError
        The array is in other memory, or has other dimensions or elements.

    Examples
    --------
    >>> from cuzarr.buffer import gpu
    >>> gpu.Buffer.from_bytes(b"zarr").to_bytes()  # doctest: +SKIP
    b'zarr'
    """

    def __init__(self, array_like: ArrayLike) -> None:
        super().__init__(array_like)
        self._data = _adopt(array_like, "a gpu.Buffer")

    @classmethod
    def create_zero_length(cls) -> Self:
        return cls(_result(DeviceArray.empty((0,), "B", _current_device())))

    @classmethod
    def from_buffer(cls, buffer: AnyBuffer) -> Self:
        if _foreign.is_on_device(array := buffer.as_array_like()):
            return cls(array)
        return cls.from_bytes(buffer.as_numpy_array())  # type: ignore[arg-type]

    @classmethod
    def from_bytes(cls, bytes_like: BytesLike) -> Self:
        return cls(_result(DeviceArray.from_host(np.frombuffer(bytes_like, "B"), _current_device())))

    def __setitem__(self, key: slice, value: Any) -> None:
        if isinstance(value, _classes.Buffer):
            value = value.as_array_like()
        elif isinstance(value, bytes | bytearray | memoryview):
            value = np.frombuffer(value, "B")
        _device_array(self._data)[_classes._contiguous(key)] = value

    def combine(self, others: Iterable[Any]) -> Self:
        parts = [self, *others]
        ends = np.cumsum([len(part) for part in parts]).tolist()
        joined = DeviceArray.empty((ends[-1],), "B", self.device)
        for part, end in zip(parts, ends, strict=True):
            array = part.as_array_like()
            joined[end - len(part) : end] = array if _foreign.is_on_device(array) else part.as_numpy_array()
        return self.__class__(_result(joined))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Buffer):
            return _device_array(self._data)._buffer.all_equal(_device_array(other._data)._buffer, True)
        return super().__eq__(other)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]


class NDBuffer(DeviceMemory, _classes.NDBuffer):
    """A buffer of N-dimensional elements in a GPU's memory. Elements cannot be Python objects.

    Parameters
    ----------
    array : NDArrayLike
        An array in this memory. It is kept, not copied.

    Raises
    ------
    InvalidArgumentError
        The array is in other memory, or has other dimensions or elements.

    Examples
    --------
    >>> from cuzarr.buffer import gpu
    >>> gpu.NDBuffer.create(shape=(2,), dtype="int16").shape  # doctest: +SKIP
    (2,)
    """

    def __init__(self, array: NDArrayLike) -> None:
        if array.dtype == np.dtype("O"):
            raise TypeError("device memory cannot hold Python objects")
        super().__init__(_adopt(array, "a gpu.NDBuffer"))

    @classmethod
    def create(
        cls, *, shape: Iterable[int], dtype: DTypeLike, order: Literal["C", "F"] = "C", fill_value: Scalar | None = None
    ) -> Self:
        array = DeviceArray.empty(tuple(shape), dtype, _current_device(), order)
        array.fill(np.zeros((), array.dtype) if fill_value is None else fill_value)
        return cls(_result(array))

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: DTypeLike, order: Literal["C", "F"] = "C") -> Self:
        return cls(_result(DeviceArray.empty(tuple(shape), dtype, _current_device(), order)))

    @classmethod
    def from_numpy_array(cls, array_like: npt.ArrayLike) -> Self:
        return cls(_result(DeviceArray.from_host(array_like, _current_device())))  # type: ignore[arg-type]  # refused there

    def __setitem__(self, key: Selection, value: Any) -> None:
        if isinstance(value, _classes.NDBuffer):
            value = value.as_ndarray_like()
        if isinstance(self._data, DeviceArray):
            self._data[key] = value
            return
        if isinstance(value, np.ndarray) and value.ndim:
            value = _result(DeviceArray.from_host(value.astype(self.dtype, copy=False), self.device))
        elif isinstance(value, DeviceArray):
            value = _convert.result_array(value._buffer, value.dtype)
        elif np.isscalar(value):
            value = _numpy.element(value, self.dtype)[()]  # CuPy would wrap a number that does not fit
        elif not hasattr(value, "dtype"):
            value = _result(DeviceArray.from_host(_foreign.to_native_host(value, self.dtype), self.device))
        self._data[key] = value

    def fill(self, value: Scalar) -> None:
        _device_array(self._data).fill(value)

    def all_equal(self, other: Any, equal_nan: bool = True) -> bool:
        if other is None:
            return False
        own = _device_array(self._data)
        if isinstance(other, _classes.NDBuffer):
            other = other.as_ndarray_like()
        elif not hasattr(other, "dtype") and np.ndim(other):
            other = np.asarray(other)
        if not own.size:
            return True
        if not _foreign.is_on_device(other) and np.ndim(other) == 0:
            bits = element_bits(other, own.dtype)
            return bits is not None and own._buffer.all_equal_element(bits, equal_nan)
        if other.dtype != own.dtype:  # no conversion may hide this difference
            return cpu.NDBuffer(own.cpu()).all_equal(other if isinstance(other, np.ndarray) else _to_host(other), equal_nan)
        same = DeviceArray.empty(own.shape, own.dtype, own.device)
        same[...] = other
        return own._buffer.all_equal(same._buffer, equal_nan)


buffer_prototype: BufferPrototype = BufferPrototype(buffer=Buffer, nd_buffer=NDBuffer)
"""The pair of buffer classes (prototype) for a GPU's memory."""

_names.list_public(globals())

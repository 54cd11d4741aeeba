"""Buffers in host memory, over NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from cuzarr import _names, _numpy
from cuzarr._checks import element_type, refusing
from cuzarr._memory import foreign as _foreign
from cuzarr._memory.foreign import host_view
from cuzarr.buffer import _classes
from cuzarr.buffer._classes import ArrayLike, BufferPrototype, BytesLike, NDArrayLike, Order, element_bits
from cuzarr.errors import ImplicitHostCopyError

if TYPE_CHECKING:
    import numpy.typing as npt

    from cuzarr.typing import AnyBuffer, DTypeLike, Scalar, Selection

__all__ = ["Buffer", "NDBuffer", "as_numpy_array_wrapper", "buffer_prototype", "numpy_buffer_prototype"]


def _refuse_device(array: Any, instead: str) -> None:
    if _foreign.is_on_device(array):
        raise ImplicitHostCopyError(
            f"an array on {_foreign.device_of(array)} was given for memory of the host", hint=f"copy it there by {instead}"
        )


class HostMemory(_classes.Memory):
    """Base class of the buffers in host memory, ``Buffer`` and ``NDBuffer``, whose memory a NumPy array holds."""

    is_host_accessible: ClassVar[bool] = True

    @classmethod
    def default_device(cls) -> str:
        return "cpu"

    def as_numpy_array(self) -> np.ndarray[Any, Any]:
        return np.asanyarray(self._data)


class Buffer(HostMemory, _classes.Buffer):
    """A buffer of flat, untyped bytes in host memory.

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
    >>> from cuzarr.buffer import cpu
    >>> buffer = cpu.Buffer.from_bytes(b"zarr") + cpu.Buffer.from_bytes(b"!")
    >>> buffer[1:].to_bytes(), len(buffer)
    (b'arr!', 5)
    """

    def __init__(self, array_like: ArrayLike) -> None:
        _refuse_device(array_like, "Buffer.from_buffer")
        super().__init__(array_like)

    @classmethod
    def create_zero_length(cls) -> Self:
        return cls(np.empty(0, "B"))

    @classmethod
    def from_buffer(cls, buffer: AnyBuffer) -> Self:
        return cls(buffer.as_numpy_array())

    @classmethod
    def from_bytes(cls, bytes_like: BytesLike) -> Self:
        with refusing("bytes_like"):
            return cls(np.frombuffer(bytes_like, "B"))

    def combine(self, others: Iterable[Any]) -> Self:
        return self.__class__(np.concatenate([self.as_numpy_array(), *(other.as_numpy_array() for other in others)]))


class NDBuffer(HostMemory, _classes.NDBuffer):
    """A buffer of N-dimensional elements in host memory.

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
    >>> from cuzarr.buffer import cpu
    >>> buffer = cpu.NDBuffer.create(shape=(2, 2), dtype="int16", fill_value=7)
    >>> buffer[0, 1] = 3
    >>> buffer.as_numpy_array()
    array([[7, 3],
           [7, 7]], dtype=int16)
    """

    def __init__(self, array: NDArrayLike) -> None:
        _refuse_device(array, "NDBuffer.from_numpy_array(array.cpu())")
        super().__init__(array)

    @classmethod
    def create(
        cls, *, shape: Iterable[int], dtype: DTypeLike, order: Literal["C", "F"] = "C", fill_value: Scalar | None = None
    ) -> Self:
        dtype = element_type(dtype)
        with refusing("create"):
            array = np.zeros(tuple(shape), dtype, order)
        if fill_value is not None and not (isinstance(fill_value, int) and fill_value == 0):
            array[...] = _numpy.element(fill_value, dtype)
        return cls(array)

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: DTypeLike, order: Literal["C", "F"] = "C") -> Self:
        return cls(np.empty(shape, _numpy.parse_type(dtype), order))

    @classmethod
    def from_numpy_array(cls, array_like: npt.ArrayLike) -> Self:
        return cls(np.asanyarray(array_like))

    def astype(self, dtype: DTypeLike, order: Order = "K") -> Self:
        dtype = _numpy.parse_type(dtype)
        own = self.as_numpy_array()
        # NumPy refuses to convert dates without a unit, even if only the byte order changes.
        generic = own.dtype.kind in "mM" and own.dtype.kind == dtype.kind and np.datetime_data(own.dtype)[0] == "generic"
        if generic and np.datetime_data(dtype) == np.datetime_data(own.dtype):
            counts = own.view(f"{own.dtype.byteorder}i8").astype(f"{dtype.byteorder}i8", order=order)
            return self.__class__(counts.view(dtype))
        return super().astype(dtype, order)

    def __getitem__(self, key: Selection) -> Self:
        # Without the ellipsis, NumPy returns a scalar for a single element, which is a copy.
        if isinstance(key, tuple) and not any(item is Ellipsis for item in key):
            key = (*key, Ellipsis)
        return self.__class__(np.asanyarray(self._data[key]))

    def __setitem__(self, key: Selection, value: _classes.NDBuffer | ArrayLike) -> None:
        if isinstance(value, _classes.NDBuffer):
            value = value.as_numpy_array()
        elif self.dtype.kind not in "OT" and (np.isscalar(value) or not hasattr(value, "dtype")):
            value = _foreign.to_native_host(value, self.dtype)
        self._data[key] = value

    def all_equal(self, other: Any, equal_nan: bool = True) -> bool:
        if other is None:
            return False
        array = self.as_numpy_array()
        plain = array.dtype.kind in "biufc" and array.dtype.isnative and array.dtype.name in _COMPARED
        if plain and np.ndim(other) == 0:
            bits = element_bits(other, array.dtype)
            return not array.size or (bits is not None and host_view(array).all_equal_element(bits, equal_nan))
        array, other = np.broadcast_arrays(array, other)
        return bool(np.array_equal(array, other, equal_nan=equal_nan and array.dtype.kind not in "USTOV"))


_COMPARED = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)


def as_numpy_array_wrapper(
    func: Callable[[np.ndarray[Any, Any]], bytes], buf: _classes.Buffer, prototype: BufferPrototype
) -> _classes.Buffer:
    """Call a function that needs host memory with the bytes of a buffer on any device. ``prototype`` decides the memory of the result.

    Parameters
    ----------
    func : callable
        A function that takes a NumPy array and returns bytes.
    buf : Buffer
        Bytes on any device.
    prototype : BufferPrototype
        The prototype that decides the memory of the result.

    Returns
    -------
    Buffer
        The result of ``func``.

    Raises
    ------
    None
        Errors of ``func`` are raised unchanged.

    Examples
    --------
    >>> from cuzarr.buffer import cpu
    >>> buffer = cpu.Buffer.from_bytes(b"ab")
    >>> cpu.as_numpy_array_wrapper(lambda array: bytes(array[::-1]), buffer, cpu.buffer_prototype).to_bytes()
    b'ba'
    """
    return prototype.buffer.from_bytes(func(buf.as_numpy_array()))


buffer_prototype: BufferPrototype = BufferPrototype(buffer=Buffer, nd_buffer=NDBuffer)
"""The pair of buffer classes (prototype) for host memory."""


def numpy_buffer_prototype() -> BufferPrototype:
    """The pair of buffer classes (prototype) for host memory, independent of the configuration.

    Returns
    -------
    BufferPrototype
        The pair.

    Raises
    ------
    None
        It cannot fail.

    Examples
    --------
    >>> from cuzarr.buffer import cpu
    >>> cpu.numpy_buffer_prototype() == cpu.buffer_prototype
    True
    """
    return buffer_prototype


_names.list_public(globals())

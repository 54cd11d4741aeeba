"""Base classes of the buffers of every device."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, SupportsIndex, runtime_checkable

import numpy as np

from cuzarr import _numpy
from cuzarr._memory import foreign as _foreign
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError

BytesLike = bytes | bytearray | memoryview
Order = Literal["K", "A", "C", "F"]


@runtime_checkable
class ArrayLike(Protocol):
    """What a :class:`Buffer` can be made of: a flat array of bytes, NumPy's, CuPy's or a :class:`cuzarr.DeviceArray`."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __getitem__(self, key: slice) -> Self: ...
    def __setitem__(self, key: slice, value: Any) -> None: ...
    def copy(self) -> Self: ...


@runtime_checkable
class NDArrayLike(Protocol):
    """What an :class:`NDBuffer` can be made of: NumPy's and CuPy's arrays, and :class:`cuzarr.DeviceArray`."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice) -> Self: ...
    def __setitem__(self, key: slice, value: Any) -> None: ...
    def __array__(self) -> np.ndarray[Any, Any]: ...
    def reshape(
        self, shape: tuple[int, ...], /, *, order: Literal["A", "C", "F"] | None = ..., copy: bool | None = ...
    ) -> NDArrayLike: ...
    def view(self, dtype: Any) -> Self: ...
    def astype(self, dtype: Any, order: Order = ..., *, copy: bool = ...) -> Self: ...
    def fill(self, value: Any) -> None: ...
    def copy(self) -> Self: ...
    def transpose(self, axes: SupportsIndex | Sequence[SupportsIndex] | None) -> Self: ...
    def ravel(self, order: Order = ...) -> Self: ...
    def all(self) -> np.bool_: ...


class Memory(ABC):
    """What bytes and elements have in common."""

    is_host_accessible: ClassVar[bool]
    """Whether plain pointers of the host reach the memory."""

    _data: Any

    @classmethod
    @abstractmethod
    def default_device(cls) -> str:
        """Where new memory of this class is."""

    @property
    def device(self) -> str:
        """Where the memory is: ``"cpu"``, ``"cuda:0"``."""
        return _foreign.device_of(self._data)

    @abstractmethod
    def as_numpy_array(self) -> np.ndarray[Any, Any]:
        """A NumPy array of it in host memory; copied there when it is elsewhere."""


class Buffer(Memory):
    """Flat, contiguous, untyped bytes on a device; sizes and slices are in bytes.

    Parameters
    ----------
    array_like : ArrayLike
        A flat array of unsigned bytes in this class's kind of memory. It is kept, not copied.

    Raises
    ------
    InvalidArgumentError
        It has other dimensions or other elements.

    Examples
    --------
    >>> from cuzarr.buffer import cpu
    >>> cpu.Buffer.from_bytes(b"zarr")[1:].to_bytes()
    b'arr'
    """

    def __init__(self, array_like: ArrayLike) -> None:
        if not hasattr(array_like, "ndim"):
            raise ArgumentTypeError(
                f"a buffer is made of a flat array of bytes, got {type(array_like).__name__}", hint="use from_bytes"
            )
        if array_like.ndim != 1:
            raise InvalidArgumentError(f"a buffer has one dimension, got {array_like.ndim}")
        if array_like.dtype != np.dtype("B"):
            raise InvalidArgumentError(f"a buffer has elements of uint8, got {array_like.dtype}")
        self._data = array_like

    @classmethod
    @abstractmethod
    def create_zero_length(cls) -> Self:
        """A buffer of no bytes."""

    @classmethod
    def from_array_like(cls, array_like: ArrayLike) -> Self:
        """A buffer over an array's own memory."""
        return cls(array_like)

    @classmethod
    @abstractmethod
    def from_buffer(cls, buffer: Any) -> Self:
        """A buffer of this class with another's bytes, which are copied only when they are in another kind of memory."""

    @classmethod
    @abstractmethod
    def from_bytes(cls, bytes_like: BytesLike) -> Self:
        """A buffer with bytes of the host; shares memory when it is host memory itself."""

    def as_array_like(self) -> Any:
        """The array below, without copying."""
        return self._data

    def as_buffer_like(self) -> memoryview:
        """The bytes under Python's buffer protocol; copied to the host when they are elsewhere."""
        return memoryview(self.as_numpy_array())  # type: ignore[arg-type]

    def to_bytes(self) -> bytes:
        """A copy of the bytes."""
        return self.as_numpy_array().tobytes()

    def __getitem__(self, key: slice) -> Self:
        """A view of consecutive bytes."""
        return self.__class__(self._data[_contiguous(key)])

    def __setitem__(self, key: slice, value: Any) -> None:
        if isinstance(value, Buffer):
            value = value.as_array_like()
        elif isinstance(value, bytes | bytearray | memoryview):
            value = np.frombuffer(value, "B")
        self._data[_contiguous(key)] = value

    def __len__(self) -> int:
        return int(self._data.size)

    @abstractmethod
    def combine(self, others: Iterable[Any]) -> Self:
        """New memory with this buffer's bytes and those of the others, one behind the other."""

    def __add__(self, other: Any) -> Self:
        return self.combine([other])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Buffer):
            return NotImplemented
        return bool(np.array_equal(self.as_numpy_array(), other.as_numpy_array()))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # bytes can be written

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Buffer of {len(self)} bytes on {self.device}>"


def _contiguous(key: Any) -> slice:
    if not isinstance(key, slice):
        raise TypeError(f"bytes of a buffer are selected by slices, got {type(key).__name__}")
    if key.step not in (None, 1):
        raise InvalidArgumentError(f"slices of a buffer have a step of 1, got {key.step}")
    return key


class NDBuffer(Memory):
    """Typed, strided, N-dimensional elements on a device.

    Parameters
    ----------
    array : NDArrayLike
        An array in this class's kind of memory. It is kept, not copied.

    Raises
    ------
    InvalidArgumentError
        The array is in another kind of memory.

    Examples
    --------
    >>> from cuzarr.buffer import cpu
    >>> cpu.NDBuffer.create(shape=(2,), dtype="int16", fill_value=7).as_numpy_array()
    array([7, 7], dtype=int16)
    """

    def __init__(self, array: NDArrayLike) -> None:
        self._data = array

    @classmethod
    @abstractmethod
    def create(cls, *, shape: Iterable[int], dtype: Any, order: Literal["C", "F"] = "C", fill_value: Any | None = None) -> Self:
        """New memory, every element ``fill_value``, or zero."""

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: Any, order: Literal["C", "F"] = "C") -> Self:
        """New memory whose elements have no meaning yet: what :meth:`create` makes, unless a class has a faster way."""
        return cls.create(shape=shape, dtype=dtype, order=order)

    @classmethod
    def from_ndarray_like(cls, ndarray_like: NDArrayLike) -> Self:
        """A buffer over an array's own memory."""
        return cls(ndarray_like)

    @classmethod
    @abstractmethod
    def from_numpy_array(cls, array_like: Any) -> Self:
        """A buffer with a NumPy array's elements; shares memory when it is host memory itself."""

    def as_ndarray_like(self) -> Any:
        """The array below, without copying."""
        return self._data

    def as_scalar(self) -> Any:
        """The single element, as a scalar of NumPy's.

        Raises
        ------
        InvalidArgumentError
            There are none or several.
        """
        if self._data.size != 1:
            raise InvalidArgumentError(f"a scalar is one element, got {self._data.size}")
        return self.as_numpy_array().reshape(())[()]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._data.dtype  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, in elements."""
        return tuple(self._data.shape)

    @property
    def byteorder(self) -> Literal["little", "big"]:
        """Order of the bytes of an element."""
        return {"<": "little", ">": "big"}.get(self.dtype.byteorder, sys.byteorder)  # type: ignore[return-value]

    def reshape(self, newshape: tuple[int, ...] | Literal[-1]) -> Self:
        """The elements under another shape; shares memory where that is possible."""
        return self.__class__(self._data.reshape((newshape,) if isinstance(newshape, int) else tuple(newshape)))

    def squeeze(self, axis: tuple[int, ...]) -> Self:
        """A view without these dimensions, of extent 1."""
        return self.__class__(self._data.reshape(tuple(extent for place, extent in enumerate(self.shape) if place not in axis)))

    def astype(self, dtype: Any, order: Order = "K") -> Self:
        """A copy with converted elements."""
        return self.__class__(self._data.astype(_numpy.parse_type(dtype), order=order))

    def __getitem__(self, key: Any) -> Self:
        return self.__class__(self._data[key])

    @abstractmethod
    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"<NDBuffer shape={self.shape} dtype={self.dtype} {self._data!r}>"

    @abstractmethod
    def all_equal(self, other: Any, equal_nan: bool = True) -> bool:
        """Whether every element equals ``other``, which broadcasts. A zero is told from a negative zero, so that an
        element of either kind is never taken for the other; ``None`` equals nothing."""

    def fill(self, value: Any) -> None:
        """Sets every element."""
        self._data.fill(_numpy.element(value, self.dtype)[()])

    def copy(self) -> Self:
        """New memory with the same elements."""
        return self.__class__(self._data.copy())

    def transpose(self, axes: SupportsIndex | Sequence[SupportsIndex] | None) -> Self:
        """A view with its dimensions in another order."""
        return self.__class__(self._data.transpose(axes))


class BufferPrototype(NamedTuple):
    """The pair of classes that an operation uses. It can be pickled when they can.

    Parameters
    ----------
    buffer : type[Buffer]
        The class of flat memory.
    nd_buffer : type[NDBuffer]
        The class of typed memory.

    Raises
    ------
    None
        The classes are checked when they are used.

    Examples
    --------
    >>> from cuzarr.buffer import BufferPrototype, cpu
    >>> BufferPrototype(cpu.Buffer, cpu.NDBuffer) == cpu.buffer_prototype
    True
    """

    buffer: type[Buffer]
    nd_buffer: type[NDBuffer]


def element_bits(value: Any, dtype: np.dtype[Any]) -> bytes | None:
    """The bytes of an element that equals a scalar; ``None`` when no element of that type does."""
    value = np.asarray(value)
    with np.errstate(all="ignore"):
        try:
            element = value.astype(dtype)
        except (ValueError, TypeError):
            return None
    same = value.dtype == dtype or bool(element == value) or (bool(element != element) and bool(value != value))
    return element.tobytes() if same else None

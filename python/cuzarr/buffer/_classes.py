"""Base classes of the buffers of every device."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, SupportsIndex, runtime_checkable

import numpy as np

from cuzarr import _numpy
from cuzarr._docstrings import documented
from cuzarr._memory import foreign as _foreign
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError

if TYPE_CHECKING:
    import numpy.typing as npt

    from cuzarr.typing import AnyBuffer, DTypeLike, MemoryOperand, Scalar, Selection

BytesLike = bytes | bytearray | memoryview
Order = Literal["K", "A", "C", "F"]


@runtime_checkable
class ArrayLike(Protocol):
    """Arrays that a :class:`Buffer` can hold: one-dimensional arrays of bytes, of NumPy, CuPy or :class:`cuzarr.DeviceArray`."""

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
    """Arrays that an :class:`NDBuffer` can hold: NumPy's and CuPy's arrays, and :class:`cuzarr.DeviceArray`."""

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


@documented(">>> from cuzarr.buffer import cpu")
class Memory(ABC):
    """The common base class of :class:`Buffer` and :class:`NDBuffer`."""

    is_host_accessible: ClassVar[bool]
    """Whether the host can read the memory through plain pointers."""

    _data: Any

    @classmethod
    @abstractmethod
    def default_device(cls) -> str:
        """The device on which this class makes new memory.

        Returns
        -------
        str
            ``"cpu"`` or ``"cuda:N"``.

        >>> cpu.Buffer.default_device()
        'cpu'
        """

    @property
    def device(self) -> str:
        """The device that holds the memory: ``"cpu"``, ``"cuda:0"``."""
        return _foreign.device_of(self._data)

    @abstractmethod
    def as_numpy_array(self) -> np.ndarray[Any, Any]:
        """The contents of the buffer as a NumPy array. Memory of a GPU is copied to the host; memory of the host is shared.

        Returns
        -------
        numpy.ndarray
            An array of this shape and type.

        >>> cpu.Buffer.from_bytes(b"ab").as_numpy_array()
        array([97, 98], dtype=uint8)
        """


@documented(">>> from cuzarr.buffer import cpu", results={"Self": "A buffer of this class."})
class Buffer(Memory):
    """A buffer of flat, contiguous, untyped bytes in the memory of a device; sizes and slices are in bytes.

    Parameters
    ----------
    array_like : ArrayLike
        A flat array of unsigned bytes in this class's kind of memory. It is kept, not copied.

    Raises
    ------
    InvalidArgumentError
        The array has other dimensions or other elements.

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
        """A buffer without bytes.

        Returns
        -------
        Buffer
            A buffer of this class, of length 0.

        >>> len(cpu.Buffer.create_zero_length())
        0
        """

    @classmethod
    def from_array_like(cls, array_like: ArrayLike) -> Self:
        """A buffer that shares memory with an array.

        Parameters
        ----------
        array_like : ArrayLike
            An array of ``uint8`` with one dimension, in this class's kind of memory.

        Raises
        ------
        InvalidArgumentError
            The array has another number of dimensions or another type.

        >>> import numpy as np
        >>> from cuzarr.buffer import cpu
        >>> array = np.zeros(2, "uint8")
        >>> buffer = cpu.Buffer.from_array_like(array)
        >>> array[0] = 97
        >>> buffer[:1].to_bytes()
        b'a'
        """
        return cls(array_like)

    @classmethod
    @abstractmethod
    def from_buffer(cls, buffer: AnyBuffer) -> Self:
        """A buffer of this class with the bytes of another buffer. The bytes are copied only if the other buffer is in another kind of
        memory.

        Parameters
        ----------
        buffer : Buffer
            A buffer of any device.

        >>> cpu.Buffer.from_buffer(cpu.Buffer.from_bytes(b"ab")).to_bytes()
        b'ab'
        """

    @classmethod
    @abstractmethod
    def from_bytes(cls, bytes_like: BytesLike) -> Self:
        """A buffer that holds the given bytes of host memory. A buffer of host memory shares them; others hold a copy.

        Parameters
        ----------
        bytes_like : bytes, bytearray or memoryview
            The bytes.

        Raises
        ------
        TypeError
            The value is not bytes.

        >>> len(cpu.Buffer.from_bytes(b"bytes"))
        5
        """

    def as_array_like(self) -> Any:
        """The array that holds the bytes of this buffer, without copying.

        Returns
        -------
        array of uint8
            NumPy's array on the CPU; CuPy's or a :class:`cuzarr.DeviceArray` on a GPU.

        >>> cpu.Buffer.from_bytes(b"ab").as_array_like()
        array([97, 98], dtype=uint8)
        """
        return self._data

    def as_buffer_like(self) -> memoryview:
        """The bytes of this buffer as a ``memoryview``. Bytes of a GPU are copied to the host.

        >>> cpu.Buffer.from_bytes(b"ab").as_buffer_like().nbytes
        2
        """
        return memoryview(self.as_numpy_array())  # type: ignore[arg-type]

    def to_bytes(self) -> bytes:
        """A copy of the buffer's bytes in host memory.

        >>> cpu.Buffer.from_bytes(b"bytes")[1:].to_bytes()
        b'ytes'
        """
        return self.as_numpy_array().tobytes()

    def __getitem__(self, key: slice) -> Self:
        """A view of consecutive bytes of this buffer. It shares memory with the buffer.

        Parameters
        ----------
        key : slice
            The bytes, with a step of 1.

        Raises
        ------
        TypeError
            The key is not a slice.
        InvalidArgumentError
            The step is not 1.

        >>> cpu.Buffer.from_bytes(b"bytes")[1:3].to_bytes()
        b'yt'
        """
        return self.__class__(self._data[_contiguous(key)])

    def __setitem__(self, key: slice, value: Buffer | BytesLike | MemoryOperand) -> None:
        if isinstance(value, Buffer):
            value = value.as_array_like()
        elif isinstance(value, bytes | bytearray | memoryview):
            value = np.frombuffer(value, "B")
        self._data[_contiguous(key)] = value

    def __len__(self) -> int:
        return int(self._data.size)

    @abstractmethod
    def combine(self, others: Iterable[Any]) -> Self:
        """A new buffer with the bytes of this buffer, followed by the bytes of other buffers.

        Parameters
        ----------
        others : iterable of Buffer
            Buffers of any device.

        Returns
        -------
        Buffer
            A buffer of this class. Its length is the sum of all lengths.

        >>> a, b, c = map(cpu.Buffer.from_bytes, (b"a", b"b", b"c"))
        >>> a.combine([b, c]).to_bytes()
        b'abc'
        """

    def __add__(self, other: AnyBuffer) -> Self:
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


@documented(
    """
    dtype : dtype-like
        Type of the elements.
    order : {"C", "F"}
        Which dimension changes fastest in memory: the last (``"C"``) or the first.
    >>> from cuzarr.buffer import cpu
    """,
    results={"Self": "A buffer of this class."},
)
class NDBuffer(Memory):
    """A buffer of typed, strided, N-dimensional elements in the memory of a device.

    Parameters
    ----------
    array : NDArrayLike
        An array in this class's kind of memory. It is kept, not copied.

    Raises
    ------
    InvalidArgumentError
        The array is in another kind of memory.

    >>> cpu.NDBuffer.create(shape=(2,), dtype="int16", fill_value=7).as_numpy_array()
    array([7, 7], dtype=int16)
    """

    def __init__(self, array: NDArrayLike) -> None:
        self._data = array

    @classmethod
    @abstractmethod
    def create(
        cls, *, shape: Iterable[int], dtype: DTypeLike, order: Literal["C", "F"] = "C", fill_value: Scalar | None = None
    ) -> Self:
        """A new buffer in which every element has one value.

        Parameters
        ----------
        shape : iterable of int
            Extents, in elements.
        fill_value : scalar, optional
            The value; by default 0.

        Raises
        ------
        ConversionError
            ``dtype`` cannot hold ``fill_value``.

        >>> cpu.NDBuffer.create(shape=(2,), dtype="int16", fill_value=7).as_numpy_array()
        array([7, 7], dtype=int16)
        """

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: DTypeLike, order: Literal["C", "F"] = "C") -> Self:
        """A new buffer whose elements are not set: they hold whatever the memory held.

        Parameters
        ----------
        shape : tuple of int
            Extents, in elements.

        >>> cpu.NDBuffer.empty((2, 3), "int16").shape
        (2, 3)
        """
        return cls.create(shape=shape, dtype=dtype, order=order)

    @classmethod
    def from_ndarray_like(cls, ndarray_like: NDArrayLike) -> Self:
        """A buffer that shares memory with an array.

        Parameters
        ----------
        ndarray_like : NDArrayLike
            An array in this class's kind of memory.

        Raises
        ------
        ImplicitHostCopyError
            The array is on a GPU, and the class is one of host memory.

        >>> import numpy as np
        >>> from cuzarr.buffer import cpu
        >>> cpu.NDBuffer.from_ndarray_like(np.zeros((2, 3), "int16")).dtype
        dtype('int16')
        """
        return cls(ndarray_like)

    @classmethod
    @abstractmethod
    def from_numpy_array(cls, array_like: npt.ArrayLike) -> Self:
        """A buffer with the elements of a NumPy array. A buffer of host memory shares them; others hold a copy.

        Parameters
        ----------
        array_like : numpy.ndarray
            The array.

        >>> import numpy as np
        >>> from cuzarr.buffer import cpu
        >>> cpu.NDBuffer.from_numpy_array(np.arange(3)).as_numpy_array().tolist()
        [0, 1, 2]
        """

    def as_ndarray_like(self) -> Any:
        """The array that holds the elements of this buffer, without copying.

        Returns
        -------
        array
            NumPy's array on the CPU; CuPy's or a :class:`cuzarr.DeviceArray` on a GPU.

        >>> cpu.NDBuffer.create(shape=(2,), dtype="int16").as_ndarray_like()
        array([0, 0], dtype=int16)
        """
        return self._data

    def as_scalar(self) -> Any:
        """The only element of a buffer of one element, as a NumPy scalar.

        Returns
        -------
        numpy scalar
            The element, in host memory.

        Raises
        ------
        InvalidArgumentError
            The buffer has no element, or more than one.

        >>> cpu.NDBuffer.create(shape=(1, 1), dtype="int16", fill_value=7).as_scalar().item()
        7
        """
        if self._data.size != 1:
            raise InvalidArgumentError(f"a scalar is one element, got {self._data.size}")
        return self.as_numpy_array().reshape(())[()]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the buffer's elements."""
        return self._data.dtype  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the buffer along each dimension, in elements."""
        return tuple(self._data.shape)

    @property
    def byteorder(self) -> Literal["little", "big"]:
        """Byte order of the buffer's elements."""
        return {"<": "little", ">": "big"}.get(self.dtype.byteorder, sys.byteorder)  # type: ignore[return-value]

    def reshape(self, newshape: tuple[int, ...] | Literal[-1]) -> Self:
        """The elements of this buffer in another shape. The result shares memory if possible; else it is a copy.

        Parameters
        ----------
        newshape : tuple of int, or -1
            The new extents. One of them may be -1; it is computed from the others. -1 alone makes one dimension.

        Raises
        ------
        ValueError
            The shape has another number of elements.

        >>> cpu.NDBuffer.create(shape=(2, 3), dtype="int16").reshape((3, 2)).shape
        (3, 2)
        """
        return self.__class__(self._data.reshape((newshape,) if isinstance(newshape, int) else tuple(newshape)))

    def squeeze(self, axis: tuple[int, ...]) -> Self:
        """A view of this buffer without some dimensions of extent 1.

        Parameters
        ----------
        axis : tuple of int
            The dimensions to drop.

        Returns
        -------
        NDBuffer
            A buffer of this class that shares the memory.

        Raises
        ------
        ValueError
            A dimension to drop has another extent than 1.

        >>> cpu.NDBuffer.create(shape=(1, 3, 1), dtype="int16").squeeze((0,)).shape
        (3, 1)
        """
        return self.__class__(self._data.reshape(tuple(extent for place, extent in enumerate(self.shape) if place not in axis)))

    def astype(self, dtype: DTypeLike, order: Order = "K") -> Self:
        """A copy of this buffer whose elements are converted to another type, as NumPy converts them.

        Parameters
        ----------
        dtype : dtype-like
            The new type of the elements.
        order : {"K", "A", "C", "F"}
            Order of the copy in memory, as in NumPy; ``"K"`` keeps it.

        Raises
        ------
        UnsupportedError
            The elements are strings, structures or dates on a GPU, which cannot convert them.

        >>> cpu.NDBuffer.create(shape=(2,), dtype="int16").astype("float32").dtype
        dtype('float32')
        """
        return self.__class__(self._data.astype(_numpy.parse_type(dtype), order=order))

    def __getitem__(self, key: Selection) -> Self:
        return self.__class__(self._data[key])

    @abstractmethod
    def __setitem__(self, key: Selection, value: NDBuffer | ArrayLike) -> None: ...

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"<NDBuffer shape={self.shape} dtype={self.dtype} {self._data!r}>"

    @abstractmethod
    def all_equal(self, other: NDBuffer | ArrayLike | None, equal_nan: bool = True) -> bool:
        """Whether all elements of this buffer equal a value. ``0.0`` and ``-0.0`` are different.

        Parameters
        ----------
        other : scalar or array
            The value; an array is broadcast. ``None`` equals nothing.
        equal_nan : bool
            Whether NaN equals NaN.

        Returns
        -------
        bool
            ``True`` if all elements equal the value, or if there are no elements.

        >>> buffer = cpu.NDBuffer.create(shape=(2,), dtype="float32")
        >>> buffer.all_equal(0.0), buffer.all_equal(-0.0)
        (True, False)
        """

    def fill(self, value: Scalar) -> None:
        """Set every element of this buffer to one value.

        Parameters
        ----------
        value : scalar
            The value. It must fit the type of the elements.

        Raises
        ------
        ConversionError
            The type of the elements cannot hold the value.

        >>> buffer = cpu.NDBuffer.empty((2,), "int16")
        >>> buffer.fill(7)
        >>> buffer.as_numpy_array()
        array([7, 7], dtype=int16)
        """
        self._data.fill(_numpy.element(value, self.dtype)[()])

    def copy(self) -> Self:
        """A copy of this buffer in new memory on the same device.

        >>> buffer = cpu.NDBuffer.create(shape=(2,), dtype="int16")
        >>> other = buffer.copy()
        >>> other.fill(7)
        >>> buffer.as_numpy_array()
        array([0, 0], dtype=int16)
        """
        return self.__class__(self._data.copy())

    def transpose(self, axes: SupportsIndex | Sequence[SupportsIndex] | None) -> Self:
        """A view of this buffer with its dimensions in another order.

        Parameters
        ----------
        axes : sequence of int, or None
            Dimension ``axes[i]`` becomes dimension ``i``; ``None`` reverses all.

        Returns
        -------
        NDBuffer
            A buffer of this class that shares the memory.

        Raises
        ------
        ValueError
            A dimension is missing in ``axes`` or is named twice.

        >>> cpu.NDBuffer.create(shape=(2, 3, 4), dtype="int16").transpose((2, 0, 1)).shape
        (4, 2, 3)
        """
        return self.__class__(self._data.transpose(axes))


class BufferPrototype(NamedTuple):
    """The pair of buffer classes, flat and typed, in whose memory an operation puts its results. It can be pickled if the classes can be
    pickled.

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
    """Converts ``value`` to the bytes of an element of type ``dtype``; ``None`` if no such element equals it."""
    value = np.asarray(value)
    with np.errstate(all="ignore"):
        try:
            element = value.astype(dtype)
        except (ValueError, TypeError):
            return None
    same = value.dtype == dtype or bool(element == value) or (bool(element != element) and bool(value != value))
    return element.tobytes() if same else None

"""The stores of the Rust side, as Python holds them: directories and memory, of the host and of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self, overload

import numpy as np

from cuzarr import _core
from cuzarr._checks import refusing
from cuzarr._config import config
from cuzarr._memory import convert as _convert, element_types as _element_types, foreign as _foreign
from cuzarr._text import printable
from cuzarr.buffer import Buffer, BufferPrototype
from cuzarr.buffer._prototype import prototype_device
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError, LibraryMissingError, ReadOnlyError, StoreFailedError

ByteBounds = tuple[int | None, int | None]
"""Which bytes: from where (negative: the last ones) and up to where; ``(None, None)`` is all of them."""

Keys = list[str]
Parts = list[bytes | None]


def byte_bounds(byte_range: Any) -> ByteBounds:
    """Which bytes one of zarr-python's requests names."""
    if hasattr(byte_range, "suffix"):
        return -byte_range.suffix, None
    if hasattr(byte_range, "offset"):
        return byte_range.offset, None
    if hasattr(byte_range, "start") and hasattr(byte_range, "end"):
        return byte_range.start, byte_range.end
    hint = "pass a RangeByteRequest, an OffsetByteRequest or a SuffixByteRequest of zarr.abc.store, or start= and stop="
    raise ArgumentTypeError(f"Unexpected byte_range, got {byte_range}.", hint=hint)


def _stored(value: Any) -> bytes | _core.NdBuffer:
    """What is written for a value: its bytes, or its memory on a device."""
    for name in ("as_array_like", "as_ndarray_like"):
        value = getattr(value, name)() if hasattr(value, name) else value
    if isinstance(value, bytes):
        return value
    if _foreign.is_on_device(value):
        return _foreign.device_buffer(value)
    array = _foreign.foreign_view(value)
    if array is None and hasattr(value, "__array__"):
        array = np.asarray(value)
    if array is not None and (array.dtype.hasobject or array.dtype.kind == "T"):
        hint = "write it to an array in the store, or encode it"
        raise ArgumentTypeError(f"value is an array of {array.dtype}, whose elements are not plain bytes", hint=hint)
    with refusing("value", "pass bytes, an array or a buffer"):
        return memoryview(value).tobytes() if array is None else array.tobytes()


def _bytes_of(value: Any) -> bytes:
    stored = _stored(value)
    if isinstance(stored, bytes):
        return stored
    return _foreign.numpy_view(stored.copy("C").to("cpu"), _element_types.dtype_of(stored.dtype)).tobytes()


class Store:
    """Keys and their bytes. Keys are ``/``-separated, without a leading ``/`` and without ``..``.

    Parameters
    ----------
    handle
        Internal; use a class of a kind of store.
    read_only : bool
        Whether writing is refused.

    Raises
    ------
    KeyInvalidError
        A key begins with ``/`` or leaves the store.
    ReadOnlyError
        The store is read-only.
    StoreFailedError
        The system or the server failed.

    Examples
    --------
    >>> import cuzarr
    >>> store = cuzarr.storage.MemoryStore()
    >>> store.set("a/b", b"bytes")
    >>> store.get("a/b"), store.exists("c")
    (b'bytes', False)
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True
    supports_consolidated_metadata = True

    _in_zarr_form: ClassVar[Callable[[Store], Any]]
    """Gives a store in zarr-python's form; set where all kinds of stores are known."""

    def __init__(self, handle: _core.Store, *, read_only: bool = False) -> None:
        self._handle = handle
        self._read_only = read_only

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self._read_only

    def with_read_only(self, read_only: bool = False) -> Self:
        """This store, with writing refused or allowed."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._read_only = read_only
        return twin

    def check_writable(self) -> None:
        """Raises ``ReadOnlyError`` when writing is refused."""
        if self._read_only:
            raise ReadOnlyError(f"{self} was opened for reading only", hint="open it with mode 'r+', 'a' or 'w'")

    @property
    def handle(self) -> _core.Store:
        """The Rust side of this store."""
        return self._handle

    @property
    def zarr_store(self) -> Any:
        """This store in zarr-python's form, over the same values: one of the classes of :mod:`cuzarr.zarr`.

        Raises
        ------
        LibraryMissingError
            zarr-python 3.1 or newer is not installed.
        """
        try:
            return self._in_zarr_form()
        except ImportError as error:
            raise LibraryMissingError(f"zarr_store needs zarr-python: {error}", hint="pip install 'zarr>=3.1'") from error

    @overload
    def get(
        self, key: str, prototype: None = None, byte_range: Any = None, *, start: int | None = None, stop: int | None = None
    ) -> bytes | None: ...
    @overload
    def get(
        self, key: str, prototype: BufferPrototype, byte_range: Any = None, *, start: int | None = None, stop: int | None = None
    ) -> Buffer | None: ...
    @overload
    def get(
        self, key: str, prototype: Any, byte_range: Any = None, *, start: int | None = None, stop: int | None = None
    ) -> Any: ...
    def get(
        self, key: str, prototype: Any = None, byte_range: Any = None, *, start: int | None = None, stop: int | None = None
    ) -> Any:
        """The bytes of ``key``, or of part of it; ``None`` when missing.

        Parameters
        ----------
        key
            Which value.
        prototype
            Gives a buffer of this prototype's class, in its kind of memory, instead of bytes.
        byte_range
            Which part, as zarr-python says it: ``RangeByteRequest``, ``OffsetByteRequest`` or ``SuffixByteRequest``. It is cut off
            at the end of the value.
        start, stop
            Which part, from where (negative: the last bytes) and up to where. A value that is shorter than ``stop`` is an error.

        >>> import cuzarr
        >>> store = cuzarr.storage.MemoryStore()
        >>> store.set("a", b"bytes")
        >>> store.get("a", stop=2), store.get("a", prototype=cuzarr.buffer.cpu.buffer_prototype).to_bytes()
        (b'by', b'bytes')
        """
        if byte_range is None:
            return self._get(key, prototype, start, stop)
        start, stop = byte_bounds(byte_range)
        try:
            return self._get(key, prototype, start, stop)
        except StoreFailedError:
            size = self._handle.getsize(key)
            if size is None or start is None or start < 0 or (stop or start) <= size:
                raise
            return self._get(key, prototype, min(start, size), size)

    def _get(self, key: str, prototype: Any, start: int | None, stop: int | None) -> Any:
        if prototype is None:
            return self._handle.get(key, start, stop)
        device = prototype_device(prototype.buffer, config.get("device"))
        if device != "cpu":
            array = self.get_on(key, device, start=start, stop=stop)
            return None if array is None else prototype.buffer.from_array_like(array)
        value = self._handle.get(key, start, stop)
        return None if value is None else prototype.buffer.from_bytes(value)

    def get_partial_values(self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, Any]]) -> list[Buffer | None]:
        """Parts of values, each as :meth:`get` gives it."""
        return [self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    def get_parts(self, key: str, parts: Sequence[ByteBounds]) -> Parts:
        """Several parts of one value, which is opened once."""
        return self._handle.get_parts(key, parts)

    def get_on(self, key: str, device: str, *, start: int | None = None, stop: int | None = None) -> Any:
        """The bytes of ``key`` as a new array of ``uint8`` on a device: NumPy's, CuPy's or a :class:`cuzarr.DeviceArray`."""
        buffer = self._handle.get_on(key, device, start, stop)
        return None if buffer is None else _convert.result_array(buffer, np.dtype("u1"))

    def is_on(self, device: str) -> bool:
        """Whether values go to and come from memory of this device without a way through the host's."""
        return self._handle.is_on(device)

    def set(self, key: str, value: Any) -> None:
        """Writes a value, whole: readers see the old one or the new one.

        Parameters
        ----------
        key
            Which value.
        value
            Bytes, or an array or buffer (of :mod:`cuzarr.buffer`, or zarr-python's) on any device. It is copied, elements in the order
            of rows.

        Raises
        ------
        ArgumentTypeError
            It is none of these, or an array of Python's objects.
        """
        self.check_writable()
        stored = _stored(value)
        if isinstance(stored, bytes):
            self._handle.set(key, stored)
        else:
            self._handle.set_from(key, stored)

    def set_if_not_exists(self, key: str, value: Any) -> bool:
        """Writes a value, as :meth:`set` takes it, unless the key exists; says whether it wrote."""
        self.check_writable()
        return self._handle.set_if_not_exists(key, _bytes_of(value))

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, Any]]) -> None:
        """Replaces bytes of values from where each one says; a value grows where they reach beyond its end. Each value is read,
        changed and written whole.

        Raises
        ------
        FileNotFoundError
            A key does not exist.
        InvalidArgumentError
            Bytes would begin behind the end of their value.
        """
        self.check_writable()
        for key, start, value in key_start_values:
            old, new = self._handle.get(key), _bytes_of(value)
            if old is None:
                raise FileNotFoundError(key)
            if not 0 <= start <= len(old):
                raise InvalidArgumentError(f"'{key}' has {len(old)} bytes, and none can be written from byte {start}")
            self._handle.set(key, old[:start] + new + old[start + len(new) :])

    def delete(self, key: str) -> None:
        """Deletes a value; a missing key is no error."""
        self.check_writable()
        self._handle.delete(key)

    def delete_dir(self, prefix: str) -> None:
        """Deletes everything below a prefix."""
        self.check_writable()
        self._handle.delete_dir(prefix)

    def clear(self) -> None:
        """Deletes everything."""
        self.delete_dir("")

    def exists(self, key: str) -> bool:
        """Whether the key exists."""
        return self._handle.getsize(key) is not None

    def getsize(self, key: str) -> int:
        """Size of a value in bytes."""
        size = self._handle.getsize(key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    def getsize_prefix(self, prefix: str) -> int:
        """Size of everything below a prefix in bytes."""
        return sum(self._handle.getsize(key) or 0 for key in self._handle.list_prefix(prefix))

    def list(self) -> Keys:
        """Every key, sorted."""
        return self._handle.list_prefix("")

    def list_prefix(self, prefix: str) -> Keys:
        """Every key below a prefix, sorted."""
        return self._handle.list_prefix(prefix)

    def list_dir(self, prefix: str) -> Keys:
        """Names of what is directly below a prefix, sorted."""
        keys, prefixes = self._handle.list_dir(prefix)
        return sorted(name.rpartition("/")[2] for name in (*keys, *prefixes))

    def is_empty(self, prefix: str) -> bool:
        """Whether nothing is below a prefix."""
        keys, prefixes = self._handle.list_dir(prefix)
        return not keys and not prefixes

    def close(self) -> None:
        """Does nothing; stores of cuzarr hold nothing open."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{printable(str(self))}')"

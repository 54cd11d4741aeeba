"""``Store``, the base class of stores, which are implemented on the Rust side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np

from cuzarr import _core
from cuzarr._checks import refusing
from cuzarr._config import config
from cuzarr._docstrings import documented
from cuzarr._memory import convert as _convert, element_types as _element_types, foreign as _foreign
from cuzarr._text import printable
from cuzarr.buffer import Buffer, BufferPrototype
from cuzarr.buffer._prototype import prototype_device
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError, LibraryMissingError, ReadOnlyError, StoreFailedError

if TYPE_CHECKING:
    from cuzarr.typing import ByteRequest, BytesValue, MemoryArray, Prototype

ByteBounds = tuple[int | None, int | None]
"""A range of a value's bytes: start (negative: counted from the end) and stop. ``(None, None)`` is the whole value."""

Keys = list[str]
Parts = list[bytes | None]


def byte_bounds(byte_range: Any) -> ByteBounds:
    """Converts a byte request of zarr-python to the start and stop of the requested bytes."""
    if hasattr(byte_range, "suffix"):
        return (-byte_range.suffix, None) if byte_range.suffix else (0, 0)
    if hasattr(byte_range, "offset"):
        return byte_range.offset, None
    if hasattr(byte_range, "start") and hasattr(byte_range, "end"):
        return byte_range.start, byte_range.end
    hint = "pass a RangeByteRequest, an OffsetByteRequest or a SuffixByteRequest of zarr.abc.store, or start= and stop="
    raise ArgumentTypeError(f"Unexpected byte_range, got {byte_range}.", hint=hint)


def _stored(value: Any) -> bytes | _core.NdBuffer:
    """Converts a caller's value to the form in which stores write values: bytes, or a buffer in a GPU's memory."""
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


@documented(
    """
    key : str
        The key of the value.
    prefix : str
        A path such as ``"maps/t2m"``; ``""`` is the whole store.
    device : str
        ``"cpu"`` or ``"cuda:N"``.
    >>> import cuzarr
    >>> store = cuzarr.storage.MemoryStore()
    """,
    errors={"value": "ReadOnlyError\n    The store is read-only."},
)
class Store:
    """A store: for each key, a value of bytes. Keys are ``/``-separated, without a leading ``/`` and without ``..``.

    Parameters
    ----------
    handle
        Internal; use a subclass such as :class:`LocalStore`.
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

    >>> store = cuzarr.storage.MemoryStore()
    >>> store.set("a/b", b"bytes")
    >>> store.get("a/b"), store.exists("c")
    (b'bytes', False)
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True
    supports_consolidated_metadata = True

    _is_near: ClassVar[bool] = False
    """Whether values are on this machine, so that listing them and reading documents sends no request to a server."""

    _in_zarr_form: ClassVar[Callable[[Store], Any]]
    """Converts a store to its zarr-python form. The module that knows all kinds of stores sets this function."""

    def __init__(self, handle: _core.Store, *, read_only: bool = False) -> None:
        self._handle = handle
        self._read_only = read_only

    @property
    def read_only(self) -> bool:
        """Whether the store refuses writing."""
        return self._read_only

    def with_read_only(self, read_only: bool = False) -> Self:
        """Returns a store over the same values that refuses or allows writing.

        Parameters
        ----------
        read_only : bool
            Whether the result refuses writing.

        Returns
        -------
        Store
            A store of this class over the same values.

        >>> shown = store.with_read_only(True)
        >>> store.set("a", b"bytes")
        >>> shown.read_only, shown.get("a")
        (True, b'bytes')
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._read_only = read_only
        return twin

    def check_writable(self) -> None:
        """Raise ``ReadOnlyError`` if the store refuses writing; else do nothing.

        Raises
        ------
        ReadOnlyError
            The store is read-only.

        >>> import cuzarr
        >>> cuzarr.storage.MemoryStore().check_writable()
        >>> try:
        ...     cuzarr.storage.MemoryStore(read_only=True).check_writable()
        ... except cuzarr.errors.ReadOnlyError as error:
        ...     print(error.hint)
        open it with mode 'r+', 'a' or 'w'
        """
        if self._read_only:
            raise ReadOnlyError(f"{self} was opened for reading only", hint="open it with mode 'r+', 'a' or 'w'")

    @property
    def handle(self) -> _core.Store:
        """The Rust object that does the work of this store."""
        return self._handle

    @property
    def zarr_store(self) -> Any:
        """The zarr-python form of this store, over the same values: an object of a class of :mod:`cuzarr.zarr`.

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
        self,
        key: str,
        prototype: None = None,
        byte_range: ByteRequest = None,
        *,
        start: int | None = None,
        stop: int | None = None,
    ) -> bytes | None: ...
    @overload
    def get(
        self,
        key: str,
        prototype: BufferPrototype,
        byte_range: ByteRequest = None,
        *,
        start: int | None = None,
        stop: int | None = None,
    ) -> Buffer | None: ...
    @overload
    def get(
        self, key: str, prototype: Prototype, byte_range: ByteRequest = None, *, start: int | None = None, stop: int | None = None
    ) -> Any: ...
    def get(
        self, key: str, prototype: Any = None, byte_range: Any = None, *, start: int | None = None, stop: int | None = None
    ) -> Any:
        """The value of ``key``, or a part of the value's bytes; ``None`` if the key is missing.

        Parameters
        ----------
        prototype : BufferPrototype, optional
            Its buffer class decides the class and the memory of the result. By default the result is ``bytes``.
        byte_range : RangeByteRequest, OffsetByteRequest or SuffixByteRequest, optional
            The part to read, as zarr-python describes it. It is cut off at the end of the value.
        start, stop : int, optional
            The part to read, in bytes: from ``start`` (negative: counted from the end) up to, but not including, ``stop``.

        Returns
        -------
        bytes, Buffer or None
            The bytes; a buffer if ``prototype`` is given; ``None`` if the key is missing.

        Raises
        ------
        StoreFailedError
            The value is shorter than ``stop``, or the store failed.
        ArgumentTypeError
            ``byte_range`` is not a byte request.

        >>> store.set("a", b"bytes")
        >>> store.get("a", stop=2), store.get("a", start=-3), store.get("b")
        (b'by', b'tes', None)
        >>> store.get("a", prototype=cuzarr.buffer.cpu.buffer_prototype).to_bytes()
        b'bytes'
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

    def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest]]
    ) -> list[Buffer | None]:
        """Read parts of several values, each as :meth:`get` reads it.

        Parameters
        ----------
        prototype : BufferPrototype
            Its buffer class is the class of the results.
        key_ranges : iterable of (str, byte request)
            For each part its key, and its ``byte_range`` as in :meth:`get`; ``None`` for the whole value.

        Returns
        -------
        list of Buffer or None
            The parts in the order given; ``None`` for a missing key.

        Raises
        ------
        ArgumentTypeError
            A ``byte_range`` is not a byte request of zarr-python.

        >>> store.set("a", b"bytes")
        >>> found = store.get_partial_values(cuzarr.buffer.cpu.buffer_prototype, [("a", None), ("b", None)])
        >>> found[0].to_bytes(), found[1]
        (b'bytes', None)
        """
        return [self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    def get_parts(self, key: str, parts: Sequence[ByteBounds]) -> Parts:
        """Read several parts of one value, which is opened once.

        Parameters
        ----------
        parts : sequence of (int or None, int or None)
            Start and stop of each part, in bytes, as for :meth:`get`. ``(None, None)`` is the whole value.

        Returns
        -------
        list of bytes or None
            The parts in the order given; every one is ``None`` if the key is missing.

        Raises
        ------
        StoreFailedError
            A part ends behind the end of the value, or the store failed.

        >>> store.set("a", b"bytes")
        >>> store.get_parts("a", [(0, 2), (-1, None)])
        [b'by', b's']
        """
        return self._handle.get_parts(key, parts)

    def get_on(self, key: str, device: str, *, start: int | None = None, stop: int | None = None) -> MemoryArray | None:
        """Read a value, or a part of it, into a new array on a device.

        Parameters
        ----------
        start, stop : int, optional
            The part to read, in bytes, as for :meth:`get`.

        Returns
        -------
        array of uint8, or None
            An array of one dimension: NumPy's on the CPU; CuPy's or a :class:`cuzarr.DeviceArray` on a GPU. ``None`` if the key is missing.

        Raises
        ------
        StoreFailedError
            The value is shorter than ``stop``, or the store failed.
        DeviceUnavailableError
            There is no such GPU.

        >>> store.set("a", b"abc")
        >>> store.get_on("a", "cpu")
        array([97, 98, 99], dtype=uint8)
        """
        buffer = self._handle.get_on(key, device, start, stop)
        return None if buffer is None else _convert.result_array(buffer, np.dtype("u1"))

    def is_on(self, device: str) -> bool:
        """Whether values pass between the store and the GPU ``device`` without going through host memory.

        Returns
        -------
        bool
            ``True`` for a :class:`GpuMemoryStore` and its GPU, and for a :class:`GDSStore` where cuFile works.

        >>> import cuzarr
        >>> cuzarr.storage.LocalStore("values").is_on("cuda:0")
        False
        """
        return self._handle.is_on(device)

    def set(self, key: str, value: BytesValue) -> None:
        """Write the whole value of a key. Readers see the old value or the new one, never a mixture.

        Parameters
        ----------
        value : bytes, array or buffer
            The bytes; or an array or buffer on any device, whose elements are copied in C order.

        Raises
        ------
        ReadOnlyError
            The store is read-only.
        ArgumentTypeError
            The value is not bytes, an array or a buffer; or it is an array of Python objects.

        >>> import cuzarr, numpy as np
        >>> store = cuzarr.storage.MemoryStore()
        >>> store.set("a", np.array([97, 98], "uint8"))
        >>> store.get("a")
        b'ab'
        """
        self.check_writable()
        stored = _stored(value)
        if isinstance(stored, bytes):
            self._handle.set(key, stored)
        else:
            self._handle.set_from(key, stored)

    def set_if_not_exists(self, key: str, value: BytesValue) -> bool:
        """Write a value, unless the key exists already.

        Parameters
        ----------
        value : bytes, array or buffer
            The value, as for :meth:`set`.

        Returns
        -------
        bool
            ``True`` if the value was written, ``False`` if the key existed.

        >>> store.set_if_not_exists("a", b"first"), store.set_if_not_exists("a", b"second")
        (True, False)
        >>> store.get("a")
        b'first'
        """
        self.check_writable()
        return self._handle.set_if_not_exists(key, _bytes_of(value))

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, Any]]) -> None:
        """Replace ranges of bytes inside the stored values of keys. Each value is read, changed and written whole; new bytes beyond the end
        make the value longer.

        Parameters
        ----------
        key_start_values : iterable of (str, int, bytes)
            For each change the key, the first byte to replace, and the new bytes.

        Raises
        ------
        ReadOnlyError
            The store is read-only.
        FileNotFoundError
            A key does not exist.
        InvalidArgumentError
            The first byte lies behind the end of the value.

        >>> store.set("a", b"bytes")
        >>> store.set_partial_values([("a", 1, b"it")])
        >>> store.get("a")
        b'bites'
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
        """Delete the value of a key. Nothing happens if the key is missing.

        Raises
        ------
        ReadOnlyError
            The store is read-only.
        UnsupportedError
            The store cannot delete, such as a ZIP file of zarr-python.

        >>> store.set("a", b"bytes")
        >>> store.delete("a")
        >>> store.list()
        []
        """
        self.check_writable()
        self._handle.delete(key)

    def delete_dir(self, prefix: str) -> None:
        """Delete every value below a prefix.

        Raises
        ------
        ReadOnlyError
            The store is read-only.
        UnsupportedError
            The store cannot delete, such as a ZIP file of zarr-python.

        >>> for key in ("a/b", "a/c", "d"):
        ...     store.set(key, b"bytes")
        >>> store.delete_dir("a")
        >>> store.list()
        ['d']
        """
        self.check_writable()
        self._handle.delete_dir(prefix)

    def clear(self) -> None:
        """Delete every value of the store.

        Raises
        ------
        ReadOnlyError
            The store is read-only.

        >>> store.set("a", b"bytes")
        >>> store.clear()
        >>> store.list()
        []
        """
        self.delete_dir("")

    def exists(self, key: str) -> bool:
        """Whether the store has a value for a key.

        Parameters
        ----------
        key : str
            The key of a value, not a prefix.

        >>> store.set("a/b", b"bytes")
        >>> store.exists("a/b"), store.exists("a")
        (True, False)
        """
        return self._handle.getsize(key) is not None

    def getsize(self, key: str) -> int:
        """Size of a key's value in bytes.

        Raises
        ------
        FileNotFoundError
            The key does not exist.

        >>> store.set("a", b"bytes")
        >>> store.getsize("a")
        5
        """
        size = self._handle.getsize(key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    def getsize_prefix(self, prefix: str) -> int:
        """Size in bytes of all values below a prefix.

        Returns
        -------
        int
            The sum of the sizes in bytes; 0 if there are no values.

        >>> store.set("a/b", b"bytes")
        >>> store.set("a/c", b"more")
        >>> store.getsize_prefix("a")
        9
        """
        return sum(self._handle.getsize(key) or 0 for key in self._handle.list_prefix(prefix))

    def list(self) -> Keys:
        """Every key of the store, sorted.

        Returns
        -------
        list of str
            The keys.

        >>> store.set("b", b"bytes")
        >>> store.set("a/b", b"bytes")
        >>> store.list()
        ['a/b', 'b']
        """
        return self._handle.list_prefix("")

    def list_prefix(self, prefix: str) -> Keys:
        """Every key below a prefix, sorted.

        Returns
        -------
        list of str
            The keys, each from the root of the store.

        >>> for key in ("a/b", "a/c/d", "e"):
        ...     store.set(key, b"bytes")
        >>> store.list_prefix("a")
        ['a/b', 'a/c/d']
        """
        return self._handle.list_prefix(prefix)

    def list_dir(self, prefix: str) -> Keys:
        """Names of the values and folders directly below a prefix, sorted.

        Returns
        -------
        list of str
            The names, without the prefix.

        >>> for key in ("a/b", "a/c/d", "e"):
        ...     store.set(key, b"bytes")
        >>> store.list_dir("a"), store.list_dir("")
        (['b', 'c'], ['a', 'e'])
        """
        keys, prefixes = self._handle.list_dir(prefix)
        return sorted(name.rpartition("/")[2] for name in (*keys, *prefixes))

    def is_empty(self, prefix: str) -> bool:
        """Whether the store has no value below a prefix.

        >>> store.set("a/b", b"bytes")
        >>> store.is_empty("a"), store.is_empty("c")
        (False, True)
        """
        # A local directory may contain no files. In other stores, each folder contains a key.
        folders = [prefix]
        while folders:
            keys, prefixes = self._handle.list_dir(folders.pop())
            if keys:
                return False
            folders += prefixes
        return True

    def close(self) -> None:
        """Close the store, so that a ZIP file gets its final form. Only a :class:`ZipStore` needs this; other stores do nothing.

        >>> store.close()
        >>> store.list()
        []
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{printable(str(self))}')"

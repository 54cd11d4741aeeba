"""The stores of the Rust side, as Python holds them: directories and memory, of the host and of GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np

from cuzarr import _core
from cuzarr._checks import refusing
from cuzarr._config import config
from cuzarr._memory import convert as _convert
from cuzarr._memory import element_types as _element_types
from cuzarr._memory import foreign as _foreign
from cuzarr._text import printable
from cuzarr.buffer import Buffer, BufferPrototype
from cuzarr.buffer._prototype import prototype_device
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError, LibraryMissingError, ReadOnlyError, StoreFailedError
from cuzarr.storage.adapters import DeviceMappingAdapter, FsspecAdapter, adapt_store

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
    hint = "give a RangeByteRequest, an OffsetByteRequest or a SuffixByteRequest of zarr.abc.store, or start= and stop="
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
        hint = "write it through an array of a store, or encode it"
        raise ArgumentTypeError(f"value is an array of {array.dtype}, whose elements are no bytes", hint=hint)
    with refusing("value", "give bytes, an array or a buffer"):
        return memoryview(value).tobytes() if array is None else array.tobytes()


def _bytes_of(value: Any) -> bytes:
    stored = _stored(value)
    if isinstance(stored, bytes):
        return stored
    return _foreign.numpy_view(stored.copy("C").to("cpu"), _element_types.dtype_of(stored.dtype)).tobytes()


class Store:
    """Keys and their bytes. Keys are ``/``-separated, without a leading ``/`` and without ``..``."""

    supports_writes = True
    supports_deletes = True
    supports_listing = True
    supports_consolidated_metadata = True

    def __init__(self, handle: _core.Store, *, read_only: bool = False) -> None:
        self._handle = handle
        self._read_only = read_only

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self._read_only

    def with_read_only(self, read_only: bool = False) -> Self:
        """The same store, with writing refused or allowed."""
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
            from cuzarr.storage.zarr_form import in_zarr_form
        except ImportError as error:
            raise LibraryMissingError(f"zarr_store needs zarr-python: {error}", hint="pip install 'zarr>=3.1'") from error
        return in_zarr_form(self)

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


class LocalStore(Store):
    """A directory. Values are replaced atomically, and no key leaves the directory.

    What a write waits for is the configuration key ``fsync`` when the store is made: ``"none"``, as zarr-python; ``"data"``,
    so that a power cut leaves the old value or the new one; ``"full"``, so that it leaves the new one.
    """

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        if not isinstance(root, str | os.PathLike):
            raise TypeError(f"root is a path, got {root!r}")
        self.root = Path(root)
        super().__init__(self._open(os.path.abspath(os.fspath(self.root))), read_only=read_only)

    def _open(self, root: str) -> _core.Store:
        return _core.Store.local(root, config.get("fsync"), config.get("direct_io"))

    def __str__(self) -> str:
        return f"file://{self.root.as_posix()}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, LocalStore) and self.root == other.root

    def __hash__(self) -> int:
        return hash(self.root)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_path, (type(self), str(self.root), {"read_only": self._read_only})


def _open_path(cls: type[LocalStore], root: str, options: dict[str, Any]) -> LocalStore:
    return cls(root, **options)


class GDSStore(LocalStore):
    """A directory whose values go between files and GPU memory by cuFile (GPUDirect Storage).

    For arrays on a GPU; on the CPU it is a :class:`LocalStore`. Writes are atomic, and a file stays registered with cuFile
    while it is among the last that were used.

    Parameters
    ----------
    root
        The directory.
    gds
        ``"auto"`` uses cuFile where drives can write to GPU memory (the kernel module ``nvidia-fs`` is loaded), and pinned
        host memory, which is faster than cuFile's own compatibility mode, everywhere else. ``"on"`` always uses cuFile, and
        reading to a GPU fails where it is not installed. ``"off"`` never does. ``None``: what the configuration key ``gds``
        says.
    """

    def __init__(
        self, root: Path | str, *, read_only: bool = False, gds: Literal["auto", "on", "off"] | None = None
    ) -> None:
        self.gds: str = config.get("gds") if gds is None else gds
        super().__init__(root, read_only=read_only)

    def _open(self, root: str) -> _core.Store:
        return _core.Store.gds(root, self.gds, config.get("fsync"), config.get("direct_io"))

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_path, (type(self), str(self.root), {"read_only": self._read_only, "gds": self.gds})


class MemoryStore(Store):
    """This process's memory; with ``store_dict`` a mapping of the caller's, from keys to bytes."""

    def __init__(self, store_dict: MutableMapping[str, Any] | None = None, *, read_only: bool = False) -> None:
        self._store_dict = store_dict
        handle = _core.Store.memory() if store_dict is None else _core.Store.python(adapt_store(store_dict))
        super().__init__(handle, read_only=read_only)

    def __str__(self) -> str:
        return f"memory://{id(self._store_dict if self._store_dict is not None else self._handle)}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryStore):
            return False
        same_dict = self._store_dict is not None and self._store_dict is other._store_dict
        return same_dict or self._handle is other._handle

    def __hash__(self) -> int:
        return id(self._handle)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process gets a copy, as with any object in memory.
        values = self._store_dict if self._store_dict is not None else {key: self.get(key) for key in self.list()}
        return _fill_memory, (values, self._store_dict is not None, self._read_only)


def _fill_memory(values: MutableMapping[str, Any], keep: bool, read_only: bool) -> MemoryStore:
    store = MemoryStore(values if keep else None)
    for key, value in () if keep else values.items():
        store.set(key, value)
    return store.with_read_only(read_only)


class GpuMemoryStore(Store):
    """Memory of a GPU: chunks stay where they were computed. Keys, listings and metadata documents are the host's.

    What an array on that GPU writes uncompressed is handed over, and what it reads is taken from where it lies, neither by
    way of the host; compressed chunks are decoded there where the GPU has a decoder for them. :meth:`set` copies to the GPU, or on
    it; :meth:`get` copies to the host.

    Parameters
    ----------
    store_dict
        The caller's mapping from keys to buffers, which the store keeps using: what is written is there, as
        :class:`cuzarr.buffer.gpu.Buffer`, documents included. :meth:`from_dict` copies instead.
    device
        ``"cuda:N"``; ``None``: the configured device if that is a GPU, else ``"cuda:0"``. On ``"cpu"`` it is a
        :class:`MemoryStore`.
    """

    def __init__(
        self,
        store_dict: MutableMapping[str, Any] | None = None,
        *,
        device: str | None = None,
        read_only: bool = False,
    ) -> None:
        configured = str(config.get("device"))
        self.device = device or ("cuda:0" if configured == "cpu" else configured)
        if store_dict is not None and not isinstance(store_dict, MutableMapping):
            hint = "GpuMemoryStore.from_dict copies the values of any mapping"
            raise ArgumentTypeError(f"store_dict is a {type(store_dict).__name__}, expected a mutable mapping", hint=hint)
        self._store_dict = store_dict
        handle = (
            _core.Store.device_memory(self.device)
            if store_dict is None
            else _core.Store.python(DeviceMappingAdapter(store_dict, self.device))
        )
        super().__init__(handle, read_only=read_only)

    @classmethod
    def from_dict(cls, store_dict: Mapping[str, Any], *, device: str | None = None) -> Self:
        """A store with copies of these values, which may be anywhere."""
        store = cls(device=device)
        for key, value in store_dict.items():
            store.set(key, value)
        return store

    def __str__(self) -> str:
        return f"gpumemory://{id(self._handle if self._store_dict is None else self._store_dict)}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GpuMemoryStore):
            return False
        same_dict = self._store_dict is not None and self._store_dict is other._store_dict
        return same_dict or self._handle is other._handle

    def __hash__(self) -> int:
        return id(self._handle if self._store_dict is None else self._store_dict)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {key: self.get(key) for key in self.list()}
        return _fill_gpu_memory, (values, self.device, self._read_only)


def _fill_gpu_memory(values: dict[str, bytes], device: str, read_only: bool) -> GpuMemoryStore:
    return GpuMemoryStore.from_dict(values, device=device).with_read_only(read_only)


class SplitStore(Store):
    """Two stores as one: the metadata documents of arrays and groups live in the second, chunks in the first.

    >>> import cuzarr
    >>> chunks, documents = cuzarr.storage.MemoryStore(), cuzarr.storage.MemoryStore()
    >>> array = cuzarr.create_array(chunks, metadata_store=documents, data=cuzarr.ones((2,), store={})[:])
    >>> chunks.list(), documents.list()
    (['c/0'], ['zarr.json'])
    """

    def __init__(self, data: Store, metadata: Store, *, read_only: bool = False) -> None:
        for store in (data, metadata):
            if not isinstance(store, Store):
                raise ArgumentTypeError(f"got {type(store).__name__}, expected a store", hint="make one: cuzarr.storage.make_store(…)")
        self.data = data
        self.metadata = metadata
        self.supports_deletes = data.supports_deletes and metadata.supports_deletes
        read_only = read_only or data.read_only or metadata.read_only
        super().__init__(_core.Store.split(data.handle, metadata.handle), read_only=read_only)

    def __str__(self) -> str:
        return f"{self.data} with metadata in {self.metadata}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SplitStore) and (self.data, self.metadata) == (other.data, other.metadata)

    def __hash__(self) -> int:
        return hash((self.data, self.metadata))

    def __reduce__(self) -> tuple[Any, ...]:
        return _split, (self.data, self.metadata, self._read_only)


def _split(data: Store, metadata: Store, read_only: bool) -> SplitStore:
    return SplitStore(data, metadata, read_only=read_only)


class ForeignStore(Store):
    """A store written in Python: zarr-python's, obstore's, fsspec's, or any object with ``get``, ``set``, ``delete`` and
    ``list``."""

    def __init__(self, store: Any, *, read_only: bool = False) -> None:
        self.wrapped = store
        self._adapter = adapt_store(store)
        self.supports_deletes = self._adapter.supports_deletes
        super().__init__(
            _core.Store.python(self._adapter), read_only=read_only or bool(getattr(store, "read_only", False))
        )

    def with_read_only(self, read_only: bool = False) -> Self:
        """The same store, with writing refused or allowed."""
        twin = super().with_read_only(read_only)
        if not read_only and getattr(self.wrapped, "read_only", False) and hasattr(self.wrapped, "with_read_only"):
            # zarr-python's stores refuse writes themselves.
            twin.wrapped = self.wrapped.with_read_only(False)
            twin._adapter = adapt_store(twin.wrapped)
            twin._handle = _core.Store.python(twin._adapter)
        return twin

    def __str__(self) -> str:
        return self._adapter.describe()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ForeignStore) or self.wrapped is other.wrapped:
            return isinstance(other, ForeignStore)
        if isinstance(self._adapter, FsspecAdapter):
            return isinstance(other._adapter, FsspecAdapter) and self._adapter.place == other._adapter.place
        # Mappings would compare all of their values.
        return not isinstance(self.wrapped, MutableMapping) and bool(self.wrapped == other.wrapped)

    def __hash__(self) -> int:
        return hash(self._adapter.place) if isinstance(self._adapter, FsspecAdapter) else id(self.wrapped)

    def __reduce__(self) -> tuple[Any, ...]:
        return _wrap_foreign, (type(self), self.wrapped, self._read_only)


def _wrap_foreign(cls: type[ForeignStore], store: Any, read_only: bool) -> ForeignStore:
    return cls(store, read_only=read_only)

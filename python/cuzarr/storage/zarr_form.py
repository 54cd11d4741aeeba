"""The stores of :mod:`cuzarr.storage` as stores of zarr-python. The classes have the same names; ``cuzarr.zarr`` re-exports them.

zarr-python's methods differ in parameters and results, so these are separate classes. Each one holds one of our stores
(``cuzarr_store``), and every call goes to it: synchronous calls directly, asynchronous ones in a thread. Values are read to the
memory that the prototype asks for. From a :class:`GpuMemoryStore`, or a :class:`GDSStore` with cuFile, they reach a GPU without
passing through the host.

Importing this needs zarr-python.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from zarr.abc.store import ByteRequest, Store as ZarrStore
from zarr.core.buffer import Buffer, BufferPrototype, gpu as zarr_gpu
from zarr.core.buffer.core import default_buffer_prototype
from zarr.core.buffer.cpu import Buffer as CpuBuffer

from cuzarr._config import config
from cuzarr._docstrings import complete_class, documented, follow
from cuzarr._text import printable
from cuzarr.buffer import Buffer as OwnBuffer
from cuzarr.buffer._prototype import prototype_device
from cuzarr.errors import StoreFailedError
from cuzarr.storage.gds import GDSStore as OwnGDSStore
from cuzarr.storage.local import LocalStore as OwnLocalStore
from cuzarr.storage.memory import GpuMemoryStore as OwnGpuMemoryStore, MemoryStore as OwnMemoryStore
from cuzarr.storage.store import Store as OwnStore, byte_bounds
from cuzarr.storage.zip import ZipStore as OwnZipStore

__all__ = ["GDSStore", "GpuMemoryStore", "LocalStore", "MemoryStore", "ZipStore"]

T = TypeVar("T")


@documented(
    """
    key : str
        The key of the value.
    prototype : BufferPrototype
        Its buffer class, and so the memory, of the results.
    >>> import asyncio, cuzarr.zarr
    >>> from zarr.core.buffer import cpu
    >>> store = cuzarr.zarr.MemoryStore()
    """,
)
class NativeStore(ZarrStore):
    """A cuzarr store in zarr-python's form: methods are awaited, and return zarr-python's buffers. ``cuzarr_store`` is the store inside."""

    supports_writes: bool = True
    supports_deletes: bool = True
    supports_listing: bool = True

    _blocks = True
    """Whether the methods of this store class may wait for a disk. Such methods are not called on an event loop."""

    def __init_subclass__(cls) -> None:
        complete_class(cls, "ValueError\n    From writing to a store that is read-only.", ">>> import cuzarr.zarr, zarr")

    def __init__(self, store: OwnStore, *, read_only: bool = False) -> None:
        super().__init__(read_only=read_only)
        self.cuzarr_store: OwnStore = store.with_read_only(read_only)

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

        Raises
        ------
        NotImplementedError
            The store is a ZIP file.

        >>> import cuzarr.zarr
        >>> cuzarr.zarr.MemoryStore().with_read_only(True).read_only
        True
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._is_open, twin._read_only = False, read_only
        twin.cuzarr_store = self.cuzarr_store.with_read_only(read_only)
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NativeStore) and type(other) is type(self) and self.cuzarr_store == other.cuzarr_store

    def __hash__(self) -> int:
        return hash(self.cuzarr_store)

    def __reduce__(self) -> tuple[Any, ...]:
        if type(self) is NativeStore:
            return operator.attrgetter("zarr_store"), (self.cuzarr_store,)
        return type(self)._holding, (self.cuzarr_store, self.read_only)

    @classmethod
    def _holding(cls, store: OwnStore, read_only: bool) -> Self:
        twin = object.__new__(cls)
        NativeStore.__init__(twin, store, read_only=read_only)
        return twin

    def __str__(self) -> str:
        return str(self.cuzarr_store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{printable(str(self))}')"

    async def _run(self, call: Callable[[], T]) -> T:
        await self._ensure_open()
        return await asyncio.to_thread(call) if self._blocks else call()

    # reading

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Read a value, or a range of its bytes, without an event loop; ``None`` if the key is missing.

        Parameters
        ----------
        prototype : BufferPrototype, optional
            Its buffer class decides the class and the memory of the result; by default zarr-python's.
        byte_range : ByteRequest, optional
            The part to read, as zarr-python describes it.

        Raises
        ------
        StoreFailedError
            The store failed.

        >>> import cuzarr.zarr
        >>> from zarr.core.buffer import cpu
        >>> store = cuzarr.zarr.MemoryStore()
        >>> store.set_sync("a", cpu.Buffer.from_bytes(b"bytes"))
        >>> store.get_sync("a").to_bytes()
        b'bytes'
        """
        wanted: Any = prototype or default_buffer_prototype()
        return self.cuzarr_store.get(key, wanted, byte_range)  # type: ignore[no-any-return]

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Read a value, or a range of its bytes; ``None`` if the key is missing."""
        return await self._run(lambda: self.get_sync(key, prototype=prototype, byte_range=byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read parts of several values.

        Parameters
        ----------
        key_ranges : iterable of (str, ByteRequest or None)
            For each part its key and its range; ``None`` for the whole value.

        Returns
        -------
        list of Buffer or None
            The parts in the order given; ``None`` for a missing key.

        >>> asyncio.run(store.set("a", cpu.Buffer.from_bytes(b"bytes")))
        >>> found = asyncio.run(store.get_partial_values(cpu.buffer_prototype, [("a", None), ("b", None)]))
        >>> found[0].to_bytes(), found[1]
        (b'bytes', None)
        """
        wanted = list(key_ranges)
        return await self._run(lambda: [self.get_sync(key, prototype=prototype, byte_range=part) for key, part in wanted])

    def get_ranges_sync(
        self, key: str, byte_ranges: Sequence[ByteRequest | None], *, prototype: BufferPrototype, **limits: int
    ) -> Sequence[tuple[int, Buffer | None]]:
        """Read several parts of one value, without an event loop. The value is opened once.

        Parameters
        ----------
        byte_ranges : sequence of ByteRequest or None
            The parts; ``None`` for the whole value.
        **limits
            zarr-python's limits for joining neighbouring parts. They are not used.

        Returns
        -------
        sequence of (int, Buffer)
            The number of each part, and its bytes.

        Raises
        ------
        BaseExceptionGroup
            The key is missing; it holds a ``FileNotFoundError``.

        >>> import cuzarr.zarr
        >>> from zarr.abc.store import RangeByteRequest
        >>> from zarr.core.buffer import cpu
        >>> store = cuzarr.zarr.MemoryStore()
        >>> store.set_sync("a", cpu.Buffer.from_bytes(b"bytes"))
        >>> parts = store.get_ranges_sync("a", [RangeByteRequest(0, 2), None], prototype=cpu.buffer_prototype)
        >>> [part.to_bytes() for _, part in parts]
        [b'by', b'bytes']
        """
        if prototype_device(prototype.buffer, config.get("device")) != "cpu":
            found = [self.get_sync(key, prototype=prototype, byte_range=part) for part in byte_ranges]
        else:
            try:
                parts = self.cuzarr_store.get_parts(
                    key, [(None, None) if part is None else byte_bounds(part) for part in byte_ranges]
                )
                found = [None if part is None else prototype.buffer.from_bytes(part) for part in parts]
            except StoreFailedError:  # a range beyond the end
                found = [self.get_sync(key, prototype=prototype, byte_range=part) for part in byte_ranges]
        if any(part is None for part in found):
            raise BaseExceptionGroup("chunk read failed", [FileNotFoundError(key)])
        return list(enumerate(found))

    async def get_ranges(
        self, key: str, byte_ranges: Sequence[ByteRequest | None], *, prototype: BufferPrototype, **limits: int
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        """Read several parts of one value. The value is opened once.

        Returns
        -------
        asynchronous iterator of sequences of (int, Buffer)
            The number of each part, and its bytes.

        >>> import asyncio, cuzarr.zarr
        >>> from zarr.abc.store import RangeByteRequest
        >>> from zarr.core.buffer import cpu
        >>> async def main():
        ...     store = cuzarr.zarr.MemoryStore()
        ...     await store.set("a", cpu.Buffer.from_bytes(b"bytes"))
        ...     async for parts in store.get_ranges("a", [RangeByteRequest(0, 2)], prototype=cpu.buffer_prototype):
        ...         return [part.to_bytes() for _, part in parts]
        >>> asyncio.run(main())
        [b'by']
        """
        if byte_ranges:
            yield await self._run(lambda: self.get_ranges_sync(key, byte_ranges, prototype=prototype, **limits))

    async def exists(self, key: str) -> bool:
        return await self._run(lambda: self.cuzarr_store.exists(key))

    async def getsize(self, key: str) -> int:
        return await self._run(lambda: self.cuzarr_store.getsize(key))

    async def getsize_prefix(self, prefix: str) -> int:
        return await self._run(lambda: self.cuzarr_store.getsize_prefix(prefix.rstrip("/")))

    # writing

    def _value(self, value: Buffer) -> Any:
        if not isinstance(value, Buffer | OwnBuffer):
            name = type(self).__name__
            raise TypeError(f"{name}.set(): `value` must be a Buffer instance. Got an instance of {type(value)} instead.")
        return value

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write the whole value of a key, without an event loop.

        Parameters
        ----------
        value : Buffer
            The bytes: a buffer of zarr-python or of :mod:`cuzarr.buffer`, on any device.

        Raises
        ------
        ValueError
            The store is read-only.
        TypeError
            The value is not a buffer.

        >>> import cuzarr.zarr
        >>> from zarr.core.buffer import cpu
        >>> store = cuzarr.zarr.MemoryStore()
        >>> store.set_sync("a", cpu.Buffer.from_bytes(b"bytes"))
        >>> store.cuzarr_store.list()
        ['a']
        """
        self._check_writable()
        self.cuzarr_store.set(key, self._value(value))

    async def set(self, key: str, value: Buffer) -> None:
        """Write the whole value of a key. Readers see the old value or the new one, never a mixture."""
        await self._run(lambda: self.set_sync(key, value))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a value, unless the key exists already.

        Parameters
        ----------
        value : Buffer
            The bytes, as for :meth:`set`.

        Raises
        ------
        ValueError
            The store is read-only.
        TypeError
            The value is not a buffer.

        >>> for value in (b"first", b"second"):
        ...     asyncio.run(store.set_if_not_exists("a", cpu.Buffer.from_bytes(value)))
        >>> store.cuzarr_store.get("a")
        b'first'
        """
        self._check_writable()
        await self._run(lambda: self.cuzarr_store.set_if_not_exists(key, self._value(value)))

    def delete_sync(self, key: str) -> None:
        """Delete the value of a key, without an event loop. Nothing happens if the key is missing.

        Raises
        ------
        ValueError
            The store is read-only.
        UnsupportedError
            The store cannot delete.

        >>> import cuzarr.zarr
        >>> store = cuzarr.zarr.MemoryStore()
        >>> store.cuzarr_store.set("a", b"bytes")
        >>> store.delete_sync("a")
        >>> store.cuzarr_store.list()
        []
        """
        self._check_writable()
        self.cuzarr_store.delete(key)

    async def delete(self, key: str) -> None:
        await self._run(lambda: self.delete_sync(key))

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        await self._run(lambda: self.cuzarr_store.delete_dir(prefix.rstrip("/")))

    async def clear(self) -> None:
        self._check_writable()
        await self._run(lambda: self.cuzarr_store.clear())

    # listing

    async def is_empty(self, prefix: str) -> bool:
        return await self._run(lambda: self.cuzarr_store.is_empty(prefix.rstrip("/")))

    async def list(self) -> AsyncIterator[str]:
        for key in await self._run(self.cuzarr_store.list):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Every key that begins with a prefix, sorted.

        Parameters
        ----------
        prefix : str
            Any beginning of keys, as in zarr-python; it need not end at a ``/``.

        Returns
        -------
        asynchronous iterator of str
            The keys, each from the root of the store.

        >>> import asyncio, cuzarr.zarr
        >>> async def main():
        ...     store = cuzarr.zarr.MemoryStore()
        ...     for key in ("maps/a", "mass/b", "other"):
        ...         store.cuzarr_store.set(key, b"bytes")
        ...     return [key async for key in store.list_prefix("ma")]
        >>> asyncio.run(main())
        ['maps/a', 'mass/b']
        """
        # In zarr-python, a prefix may be any beginning of keys, not only whole segments.
        folder = prefix.rpartition("/")[0]
        for key in await self._run(lambda: self.cuzarr_store.list_prefix(folder)):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._run(lambda: self.cuzarr_store.list_dir(prefix.rstrip("/"))):
            yield name


class LocalStore(NativeStore):
    """A store in a directory, for zarr-python; see :class:`cuzarr.storage.LocalStore`.

    Parameters
    ----------
    root : path
        The directory.
    read_only : bool
        Whether writing is refused.

    >>> store = cuzarr.zarr.LocalStore("values.zarr")
    >>> zarr.zeros(store=store, shape=(2,))[:].tolist()
    [0.0, 0.0]
    """

    cuzarr_store: OwnLocalStore

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        super().__init__(OwnLocalStore(root), read_only=read_only)

    @property
    def root(self) -> Path:
        """The directory of the store."""
        return self.cuzarr_store.root

    @classmethod
    async def open(cls, root: Path | str, *, read_only: bool = False, mode: str | None = None, **kwargs: Any) -> Self:
        """Open the store in a directory.

        Parameters
        ----------
        root : path
            The directory.
        read_only : bool
            Whether writing is refused.
        mode : {"r", "r+", "a", "w", "w-"}, optional
            With ``"r"`` and ``"r+"`` the directory must exist; with the others it is created if it is missing. Without a mode it is
            created unless the store is read-only.
        **kwargs
            As for the class.

        Returns
        -------
        LocalStore
            The store, opened.

        Raises
        ------
        FileNotFoundError
            The directory does not exist, and the arguments do not allow to create it.

        Examples
        --------
        >>> import asyncio, cuzarr.zarr, os
        >>> store = asyncio.run(cuzarr.zarr.LocalStore.open("opened.zarr"))
        >>> os.path.isdir("opened.zarr")
        True
        """
        makes = not read_only if mode is None else mode not in ("r", "r+")
        folder = Path(root)
        if makes:
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        elif not await asyncio.to_thread(folder.exists):
            raise FileNotFoundError(f"{printable(str(folder))} does not exist")
        store = cls(root, read_only=read_only, **kwargs)
        await store._open()
        return store


class GDSStore(LocalStore):
    """A store in a directory whose files cuFile reads and writes, for zarr-python; see :class:`cuzarr.storage.GDSStore`.

    Parameters
    ----------
    root : path
        The directory.
    read_only : bool
        Whether writing is refused.
    gds : {"auto", "on", "off"}, optional
        When cuFile is used.

    >>> store = cuzarr.zarr.GDSStore("values.zarr", gds="off")
    """

    cuzarr_store: OwnGDSStore

    def __init__(self, root: Path | str, *, read_only: bool = False, gds: Literal["auto", "on", "off"] | None = None) -> None:
        NativeStore.__init__(self, OwnGDSStore(root, gds=gds), read_only=read_only)


class _InMemory(NativeStore):
    _blocks = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NativeStore) or type(other) is not type(self):
            return False
        mine, others = self.cuzarr_store, other.cuzarr_store
        if mine == others:
            return self.read_only == other.read_only
        # As in zarr-python, stores with the same contents are equal.
        same = mine.list() == others.list() and all(mine.get(key) == others.get(key) for key in mine.list())
        return same and self.read_only == other.read_only

    __hash__ = NativeStore.__hash__


class MemoryStore(_InMemory):
    """A store in the memory of this process. With ``store_dict``, the values are zarr-python's buffers in the caller's mapping.

    Parameters
    ----------
    store_dict : mutable mapping of str to Buffer, optional
        A mapping of the caller; by default a new one.
    read_only : bool
        Whether writing is refused.

    >>> zarr.zeros(store=cuzarr.zarr.MemoryStore(), shape=(2,))[:].tolist()
    [0.0, 0.0]
    """

    cuzarr_store: OwnMemoryStore

    def __init__(self, store_dict: MutableMapping[str, Buffer] | None = None, *, read_only: bool = False) -> None:
        self._store_dict = store_dict
        given = None if store_dict is None else _Buffers(store_dict)
        super().__init__(OwnMemoryStore(given), read_only=read_only)


class _Buffers(MutableMapping[str, Any]):
    """A wrapper of the user's mapping for a store in memory: cuzarr's store puts bytes, and the mapping gets zarr-python's buffers."""

    def __init__(self, values: MutableMapping[str, Buffer]) -> None:
        self.values_below = values

    def __getitem__(self, key: str) -> Any:
        return self.values_below[key]

    def __setitem__(self, key: str, value: bytes) -> None:
        self.values_below[key] = CpuBuffer.from_bytes(value)

    def __delitem__(self, key: str) -> None:
        del self.values_below[key]

    def __iter__(self) -> Any:
        return iter(self.values_below)

    def __len__(self) -> int:
        return len(self.values_below)


class _GpuBuffers(_Buffers):
    """A wrapper of the user's mapping for a store in GPU memory: it converts cuzarr's buffers over CuPy's arrays to zarr-python's
    buffers."""

    def __setitem__(self, key: str, value: Any) -> None:
        array = value.as_array_like()
        is_cupys = type(array).__module__.partition(".")[0] == "cupy"  # zarr-python's GPU buffers accept CuPy's arrays only
        self.values_below[key] = zarr_gpu.Buffer.from_array_like(array) if is_cupys else value


class GpuMemoryStore(_InMemory):
    """A store in a GPU's memory; see :class:`cuzarr.storage.GpuMemoryStore`. With ``store_dict``, the values are zarr-python's buffers
    in the caller's mapping.

    Parameters
    ----------
    store_dict : mutable mapping of str to Buffer, optional
        A mapping of the caller; by default a new one.
    device : str, optional
        The GPU; by default the configured one, else the first.
    read_only : bool
        Whether writing is refused.

    >>> store = cuzarr.zarr.GpuMemoryStore()  # doctest: +SKIP
    """

    cuzarr_store: OwnGpuMemoryStore

    def __init__(
        self,
        store_dict: MutableMapping[str, Buffer] | None = None,
        *,
        device: str | None = None,
        read_only: bool = False,
    ) -> None:
        self._store_dict = store_dict
        given = None if store_dict is None else _GpuBuffers(store_dict)
        super().__init__(OwnGpuMemoryStore(given, device=device), read_only=read_only)

    @classmethod
    def from_dict(cls, store_dict: Mapping[str, Buffer], *, device: str | None = None) -> Self:
        """A new store in GPU memory with copies of the values in a mapping, which may be in host or GPU memory.

        Parameters
        ----------
        store_dict : mapping of str to Buffer
            The values by their keys.
        device : str, optional
            The GPU that holds the copies; by default as for the class.

        Returns
        -------
        GpuMemoryStore
            The store.

        Raises
        ------
        DeviceUnavailableError
            There is no such GPU.

        Examples
        --------
        >>> import cuzarr.zarr
        >>> from zarr.core.buffer import cpu
        >>> values = {"a": cpu.Buffer.from_bytes(b"bytes")}
        >>> store = cuzarr.zarr.GpuMemoryStore.from_dict(values, device="cpu")  # "cuda:0" on a GPU
        >>> store.cuzarr_store.list()
        ['a']
        """
        store = cls(device=device)
        for key, value in store_dict.items():
            store.set_sync(key, value)
        return store


class ZipStore(NativeStore):
    """A store in a ZIP file, for zarr-python; see :class:`cuzarr.storage.ZipStore`.

    Parameters
    ----------
    path : path
        The file.
    mode : {"r", "w", "a", "x"}
        ``"r"`` reads, ``"w"`` starts a new file, ``"a"`` adds, ``"x"`` creates.
    read_only : bool
        Whether writing is refused.
    compression : int
        Compression of new members, as in :mod:`zipfile`.
    allowZip64 : bool
        Whether the file may become larger than 2 GiB.

    >>> with cuzarr.zarr.ZipStore("values.zip", mode="w") as store:
    ...     array = zarr.zeros(store=store, shape=(2,))
    """

    cuzarr_store: OwnZipStore

    def __init__(
        self,
        path: Path | str,
        *,
        mode: Literal["r", "w", "a", "x"] = "r",
        read_only: bool | None = None,
        compression: int = 0,
        allowZip64: bool = True,  # noqa: N803 (zarr-python's name)
    ) -> None:
        store = OwnZipStore(path, mode=mode, compression=compression, allowZip64=allowZip64)
        super().__init__(store, read_only=mode == "r" if read_only is None else read_only)

    def with_read_only(self, read_only: bool = False) -> Self:
        """Returns a store over the same file that refuses or allows writing.

        Parameters
        ----------
        read_only : bool
            Whether writing is refused.

        Returns
        -------
        ZipStore
            A store of the same file. Writes and :meth:`close` of either one apply to both.

        Raises
        ------
        NotImplementedError
            The file was opened for reading. Open it again with another ``mode``.

        Examples
        --------
        >>> import cuzarr.zarr
        >>> store = cuzarr.zarr.ZipStore("kept.zip", mode="w")
        >>> store.with_read_only(True).read_only
        True
        """
        if not read_only and not self.cuzarr_store.supports_writes:
            raise NotImplementedError(f"with_read_only is not implemented for the {type(self)} store type.")
        return super().with_read_only(read_only)

    @property
    def path(self) -> Path:
        """The path of the ZIP file."""
        return self.cuzarr_store.path

    def close(self) -> None:
        """Finish the ZIP file: write its list of members and close it.

        Examples
        --------
        >>> import cuzarr.zarr, zarr
        >>> store = cuzarr.zarr.ZipStore("closed.zip", mode="w")
        >>> array = zarr.zeros(store=store, shape=(2,))
        >>> store.close()
        >>> zarr.open_array(store=cuzarr.zarr.ZipStore("closed.zip"))[:].tolist()
        [0.0, 0.0]
        """
        self.cuzarr_store.close()
        super().close()


_FORMS: dict[type[OwnStore], type[NativeStore]] = {
    OwnGDSStore: GDSStore,
    OwnGpuMemoryStore: GpuMemoryStore,
    OwnLocalStore: LocalStore,
    OwnMemoryStore: MemoryStore,
    OwnZipStore: ZipStore,
}


def in_zarr_form(store: OwnStore) -> NativeStore:
    """Converts a store of cuzarr to its zarr-python form."""
    cls = next((_FORMS[base] for base in type(store).__mro__ if base in _FORMS), NativeStore)
    return cls._holding(store, store.read_only)


# Methods that call our store's method of the same name, and asynchronous forms of the synchronous methods above.
for _name in ("exists", "getsize", "getsize_prefix", "delete", "delete_dir", "clear", "is_empty", "list", "list_dir"):
    _own, _path = vars(OwnStore)[_name], f"cuzarr.storage.Store.{_name}"
    follow(vars(NativeStore)[_name], _own, _path, "{}.zarr_store", errors=("ReadOnlyError", "ValueError"))
for _name in ("get", "get_ranges", "set"):
    follow(vars(NativeStore)[_name], vars(NativeStore)[f"{_name}_sync"], f"{_name}_sync", "{}")
for _class in _FORMS.values():
    _class.__module__ = "cuzarr.zarr"  # users import the class from there, and pickles name this path

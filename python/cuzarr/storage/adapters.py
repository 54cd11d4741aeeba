"""Stores written in Python, as the Rust side calls them.

The Rust side knows one small set of methods; everything that differs between a dictionary, fsspec's mappings, the stores
of zarr-python and obstore, and somebody's own object ends here.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import re
import secrets
import sys
import threading
from collections.abc import Iterable, MutableMapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from cuzarr import _core
from cuzarr._memory.convert import result_array, to_device
from cuzarr._memory.foreign import device_buffer, is_on_device
from cuzarr.buffer import cpu, gpu

Request = tuple[str, int | None, int | None]
"""A key, and which of its bytes: from where (negative: the last ones) and up to where."""

CONCURRENCY = 256
"""Requests under way at once to a store that is asynchronous: what is not fast enough by then is not for its distance."""
AT_ONCE = 64
"""Requests handed at once to such a store whose values all have to be there before any is used."""


class StoreAdapter(Protocol):
    """What the Rust side calls."""

    requests_at_once: int
    is_asynchronous: bool
    supports_deletes: bool
    is_transactional: bool
    has_sizes: bool
    device: str | None
    """Where values are: what is asked for is brought as a ``_core.NdBuffer`` of bytes there, and set by ``set_buffer``."""

    def get(self, key: str, start: int | None, stop: int | None) -> Any: ...
    def get_many(self, requests: Sequence[Request]) -> list[Any]: ...
    def set(self, key: str, value: bytes) -> None: ...
    def set_if_not_exists(self, key: str, value: bytes) -> bool: ...
    def delete(self, key: str) -> None: ...
    def delete_many(self, keys: Sequence[str]) -> None: ...
    def delete_dir(self, prefix: str) -> None: ...
    def getsize(self, key: str) -> int | None: ...
    def list_prefix(self, prefix: str) -> list[str]: ...
    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]: ...
    def describe(self) -> str: ...


_SECRETS = re.compile(r"(?<=://)[^/@\s]+@|\?[^\s'\")]*")


def without_secrets(text: str) -> str:
    """A text for messages: its URLs without user, password and query, which may be a signature."""
    return _SECRETS.sub("", text)


def adapt_store(store: Any) -> StoreAdapter:
    """The adapter for a mapping, a store of zarr-python's or obstore's, or an object with ``get``, ``set``, ``delete``,
    ``list``.

    Raises
    ------
    TypeError
        It is none of them.
    """
    if isinstance(store, MutableMapping):
        fs = getattr(store, "fs", None)
        return FsspecAdapter(fs, str(getattr(store, "root", ""))) if hasattr(fs, "cat_file") else MappingAdapter(store)
    if type(store).__module__.partition(".")[0] == "obstore":
        return ObstoreAdapter(store)
    if inspect.iscoroutinefunction(getattr(store, "get", None)) and hasattr(store, "list_prefix"):
        return _adapt_zarr_store(store)
    missing = [name for name in ("get", "set", "delete", "list") if not callable(getattr(store, name, None))]
    if missing:
        hint = "\nhint: give its store_path" if hasattr(store, "store_path") else ""
        raise TypeError(f"{type(store).__name__} is no store: it has no {', '.join(missing)}{hint}")
    return ObjectAdapter(store)


def _adapt_zarr_store(store: Any) -> StoreAdapter:
    """The adapter for a store of zarr-python's interface."""
    inner = _unwrapped(store)
    if type(inner).__module__.partition(".")[0] == "icechunk":
        return IcechunkAdapter(store)
    zarr_storage = sys.modules.get("zarr.storage")
    if zarr_storage is not None and type(store) is zarr_storage.ObjectStore:
        return ObstoreAdapter(store.store)
    if zarr_storage is not None and type(store) is zarr_storage.FsspecStore:
        return ZarrFsspecAdapter(store)
    return ZarrStoreAdapter(store)


def _unwrapped(store: Any) -> Any:
    """The store inside zarr-python's wrappers, such as the one that logs."""
    while any(cls.__module__ == "zarr.storage._wrapper" for cls in type(store).__mro__):
        store = store._store
    return store


def to_bytes(value: Any) -> bytes:
    """The bytes of what a store holds: bytes-like objects, arrays, zarr-python's buffers."""
    if hasattr(value, "to_bytes") and not isinstance(value, int):
        return bytes(value.to_bytes())
    return bytes(memoryview(value).cast("B")) if not isinstance(value, bytes) else value


def cut(value: Any, start: int | None, stop: int | None) -> bytes:
    """Part of a value; a negative ``start`` counts from the end, and all of a shorter value."""
    raw = to_bytes(value)
    return raw if start is None and stop is None else raw[start:stop]


def one_by_one(adapter: Any, requests: Sequence[Request]) -> list[Any]:
    """Values, missing ones (``None``) and failures, in the order of the requests."""
    found: list[Any] = []
    for request in requests:
        try:
            found.append(adapter.get(*request))
        except Exception as error:
            found.append(error)
    return found


class OneByOne:
    """Requests that are served one after the other."""

    requests_at_once = 1
    is_asynchronous = False
    supports_deletes = True
    is_transactional = False
    has_sizes = False
    device: str | None = None

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        raise NotImplementedError  # each adapter has its own

    def get_many(self, requests: Sequence[Request]) -> list[Any]:
        return one_by_one(self, requests)

    def delete(self, key: str) -> None:
        raise NotImplementedError  # each adapter has its own

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)


class ListingAdapter(OneByOne):
    """Whatever can be told from a list of keys."""

    def keys(self) -> Iterable[str]:
        raise NotImplementedError  # each adapter has its own

    def set(self, key: str, value: bytes) -> None:
        raise NotImplementedError  # each adapter has its own

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        if self.getsize(key) is not None:
            return False
        self.set(key, value)
        return True

    def getsize(self, key: str) -> int | None:
        value = self.get(key, None, None)
        return None if value is None else len(value)

    def list_prefix(self, prefix: str) -> list[str]:
        lead = f"{prefix}/" if prefix else ""
        return sorted(key for key in list(self.keys()) if key.startswith(lead))

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        lead = len(prefix) + 1 if prefix else 0
        keys: list[str] = []
        prefixes: dict[str, None] = {}
        for key in self.list_prefix(prefix):
            name, below, _ = key[lead:].partition("/")
            if below:
                prefixes[key[:lead] + name] = None
            else:
                keys.append(key)
        return keys, list(prefixes)

    def delete_dir(self, prefix: str) -> None:
        for key in self.list_prefix(prefix):
            self.delete(key)


class MappingAdapter(ListingAdapter):
    """A mapping from keys to bytes. New values are of zarr-python's buffer class when the mapping holds those."""

    def __init__(self, mapping: MutableMapping[str, Any]) -> None:
        self.mapping = mapping

    def keys(self) -> Iterable[str]:
        return list(self.mapping)

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        value = self.mapping.get(key)
        return None if value is None else cut(value, start, stop)

    def set(self, key: str, value: bytes) -> None:
        self.mapping[key] = value

    def delete(self, key: str) -> None:
        self.mapping.pop(key, None)

    def describe(self) -> str:
        return f"{type(self.mapping).__name__} at {id(self.mapping):#x}"


class DeviceMappingAdapter(MappingAdapter):
    """A mapping from keys to buffers in a GPU's memory. What is in host memory, or on another GPU, is read as well."""

    def __init__(self, mapping: MutableMapping[str, Any], device: str) -> None:
        super().__init__(mapping)
        self.device = device
        self._buffer = cpu.Buffer if device == "cpu" else gpu.Buffer

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        value: Any = self.mapping.get(key)
        array = value.as_array_like() if hasattr(value, "as_array_like") else value
        if array is None or not is_on_device(array):
            return None if array is None else cut(array, start, stop)
        memory = device_buffer(array)
        if len(memory.shape) != 1 or memory.dtype != "uint8":
            memory = memory.copy("C").reshape((-1,)).reinterpret("uint8")
        first, end, _ = slice(start, stop).indices(memory.nbytes)
        return memory.region([first], [max(0, end - first)], [1], [])

    def getsize(self, key: str) -> int | None:
        value = self.get(key, None, None)
        return None if value is None else value.nbytes if isinstance(value, _core.NdBuffer) else len(value)

    def set(self, key: str, value: bytes) -> None:
        self.mapping[key] = self._buffer.from_array_like(to_device(np.frombuffer(value, "u1"), str(self.device)))

    def set_buffer(self, key: str, value: _core.NdBuffer) -> None:
        self.mapping[key] = self._buffer.from_array_like(result_array(value, np.dtype("u1")))

    def describe(self) -> str:
        return f"gpumemory://{id(self.mapping)}"


class ObjectAdapter(ListingAdapter):
    """Any object with ``get(key)``, ``set(key, value)``, ``delete(key)`` and ``list()``."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def keys(self) -> Iterable[str]:
        return list(self.store.list())

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            value = self.store.get(key)
        except KeyError:
            return None
        return None if value is None else cut(value, start, stop)

    def set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)

    def delete(self, key: str) -> None:
        try:
            self.store.delete(key)
        except KeyError:
            pass

    def describe(self) -> str:
        return without_secrets(str(self.store))


class Loop:
    """One event loop in a thread of its own, for stores that are asynchronous."""

    _lock = threading.Lock()
    _loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def start(cls, coroutine: Any) -> Future[Any]:
        with cls._lock:
            if cls._loop is None:
                cls._loop = asyncio.new_event_loop()
                threading.Thread(target=cls._loop.run_forever, name="cuzarr-stores", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, cls._loop)

    @classmethod
    def forget(cls) -> None:
        """In a child of a fork, where the thread does not exist, and the lock may be held by one that does not."""
        cls._loop, cls._lock = None, threading.Lock()

    @classmethod
    def run(cls, coroutine: Any) -> Any:
        return cls.start(coroutine).result()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Loop.forget)

_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


async def _all(coroutines: Iterable[Any]) -> list[Any]:
    """Runs coroutines, some at a time; gives results and failures in their order."""
    free = asyncio.Semaphore(CONCURRENCY)

    async def one(coroutine: Any) -> Any:
        async with free:
            return await coroutine

    return await asyncio.gather(*map(one, coroutines), return_exceptions=True)


def _raise_first(results: Iterable[Any]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


class Asynchronous:
    """A store whose ``_get`` is a coroutine: many requests are under way, of several batches beside each other."""

    requests_at_once = AT_ONCE
    is_asynchronous = True
    supports_deletes = True
    has_sizes = False
    is_transactional = False
    device: str | None = None
    """Whether nobody sees what is written before the caller commits it, and only Zarr's own keys can be written."""

    def __init__(self) -> None:
        self._free = (os.getpid(), asyncio.Semaphore(CONCURRENCY))
        self._under_way: set[Future[Any]] = set()

    def _places(self) -> asyncio.Semaphore:
        # A child of a fork waits for none of its parent's requests.
        if self._free[0] != os.getpid():
            self._free = (os.getpid(), asyncio.Semaphore(CONCURRENCY))
        return self._free[1]

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        raise NotImplementedError  # each adapter has its own

    def _begin(self, coroutine: Any) -> Future[Any]:
        return Loop.start(coroutine)

    async def _answer(self, index: int, request: Request, reply: Any) -> None:
        async with self._places():
            if not reply.is_wanted():
                return  # what is not replied to ends with the reply
            try:
                value = await self._get(*request)
            except Exception as error:
                value = error
        reply(index, value)

    async def _answer_all(self, requests: Sequence[Request], reply: Any) -> None:
        await asyncio.gather(*(self._answer(index, request, reply) for index, request in enumerate(requests)))

    def start(self, requests: Sequence[Request], reply: Any) -> None:
        """Asks for values, which ``reply`` is called with, one by one, as they come."""
        answers = self._begin(self._answer_all(requests, reply))
        self._under_way.add(answers)
        answers.add_done_callback(self._under_way.discard)

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        return self._begin(self._get(key, start, stop)).result()

    def get_many(self, requests: Sequence[Request]) -> list[Any]:
        return list(self._begin(_all(self._get(*request) for request in requests)).result())


# Names of metadata documents, which are keys wherever they are listed.
_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class ZarrStoreAdapter(Asynchronous):
    """A store of zarr-python's: its methods are coroutines and its values buffers."""

    def __init__(self, store: Any) -> None:
        from zarr.core.buffer.cpu import Buffer, buffer_prototype
        from zarr.storage import LocalStore, MemoryStore, ZipStore

        super().__init__()
        self.store = store
        self.supports_deletes = bool(getattr(store, "supports_deletes", True))
        self._buffer = Buffer
        # Values are wanted in host memory, whatever zarr-python is configured to.
        self._prototype = buffer_prototype
        # In other stores, those of fsspec among them, directories may "exist" as well.
        self._only_keys_exist = isinstance(_unwrapped(store), LocalStore | MemoryStore | ZipStore)

    def _begin(self, coroutine: Any) -> Future[Any]:
        from zarr.core.sync import _get_loop

        # On zarr-python's own loop, to which a store's connections belong once zarr-python has used it.
        loop = _get_loop()
        try:
            is_inside = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_inside = False
        return Loop.start(coroutine) if is_inside else asyncio.run_coroutine_threadsafe(coroutine, loop)

    def _wait(self, coroutine: Any) -> Any:
        return self._begin(coroutine).result()

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

        request: Any = None
        if start is not None and start < 0:
            request = SuffixByteRequest(-start)
        elif stop is not None:
            request = RangeByteRequest(start or 0, stop)
        elif start is not None:
            request = OffsetByteRequest(start)
        value = await self.store.get(key, self._prototype, request)
        return None if value is None else to_bytes(value)

    def set(self, key: str, value: bytes) -> None:
        self._wait(self.store.set(key, self._buffer.from_bytes(value)))

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        if self._wait(self._exists(key)):
            return False
        self._wait(self.store.set_if_not_exists(key, self._buffer.from_bytes(value)))
        return True

    def delete(self, key: str) -> None:
        self._wait(self.store.delete(key))

    def delete_many(self, keys: Sequence[str]) -> None:
        _raise_first(self._wait(_all(self.store.delete(key) for key in keys)))

    def delete_dir(self, prefix: str) -> None:
        self._wait(self.store.delete_dir(prefix))

    async def _exists(self, key: str) -> bool:
        return bool(await self.store.exists(key))

    async def _getsize(self, key: str) -> int | None:
        if self._only_keys_exist and not await self._exists(key):
            return None  # directories have sizes, too
        try:
            return int(await self.store.getsize(key))
        except (FileNotFoundError, KeyError):
            return None

    def getsize(self, key: str) -> int | None:
        return self._wait(self._getsize(key))  # type: ignore[no-any-return]

    async def _list_prefix(self, prefix: str) -> list[str]:
        return sorted([key async for key in self.store.list_prefix(f"{prefix}/" if prefix else "")])

    def list_prefix(self, prefix: str) -> list[str]:
        return self._wait(self._list_prefix(prefix))  # type: ignore[no-any-return]

    async def _has_below(self, prefix: str) -> bool:
        async for _ in self.store.list_dir(prefix):
            return True
        return False

    async def _is_key(self, key: str) -> bool:
        if key.rpartition("/")[2] in _DOCUMENTS:
            return True
        try:
            exists = await self._exists(key)
        except Exception:
            # A store may refuse to be asked for what is no key of Zarr's.
            if await self._has_below(key):
                return False
            raise
        return exists and (self._only_keys_exist or not await self._has_below(key))

    async def _list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        lead = f"{prefix}/" if prefix else ""
        names = sorted([lead + name async for name in self.store.list_dir(prefix)])
        # zarr-python does not say which names are keys.
        are_keys = await _all(self._is_key(name) for name in names)
        if failures := [answer for answer in are_keys if isinstance(answer, BaseException)]:
            raise failures[0]
        keys = [name for name, is_key in zip(names, are_keys, strict=True) if is_key]
        return keys, [name for name, is_key in zip(names, are_keys, strict=True) if not is_key]

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        return self._wait(self._list_dir(prefix))  # type: ignore[no-any-return]

    def describe(self) -> str:
        return without_secrets(" ".join(str(self.store).split()))


class IcechunkAdapter(ZarrStoreAdapter):
    """The store of a session of Icechunk's. It takes the keys of Zarr's documents and of chunks of arrays that are there, and
    nobody sees what is written before the session is committed."""

    is_transactional = True

    _NOTHING_THERE = (
        "bad-key-prefix", "invalid-chunk-index", "invalid-key", "key-not-found", "node-not-found", "not-an-array"
    )  # fmt: skip

    def _raise_unless_absent(self, error: Exception) -> None:
        if getattr(error, "kind", None) not in self._NOTHING_THERE:
            raise error

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            if key.rpartition("/")[2] in _DOCUMENTS:  # of which Icechunk gives other ends than those that are asked for
                value = await super()._get(key, None, None)
                return None if value is None else cut(value, start, stop)
            return await super()._get(key, start, stop)
        except Exception as error:
            self._raise_unless_absent(error)
            return None

    def delete(self, key: str) -> None:
        try:
            super().delete(key)
        except Exception as error:
            self._raise_unless_absent(error)

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def delete_dir(self, prefix: str) -> None:
        if self._wait(self._is_node(prefix)):
            super().delete_dir(prefix)
        else:
            self.delete_many(self.list_prefix(prefix))

    async def _is_node(self, prefix: str) -> bool:
        return await self._exists(f"{prefix}/zarr.json" if prefix else "zarr.json")

    async def _exists(self, key: str) -> bool:
        try:
            return await super()._exists(key)
        except Exception as error:
            self._raise_unless_absent(error)
            return False

    async def _getsize(self, key: str) -> int | None:
        # Chunks that are not there have a size of 0.
        return await super()._getsize(key) if await self._exists(key) else None

    async def _list_prefix(self, prefix: str) -> list[str]:
        # Only nodes can be listed.
        node = prefix
        while node and not await self._is_node(node):
            node = node.rpartition("/")[0]
        found = await super()._list_prefix(node)
        return found if node == prefix else [key for key in found if key.startswith(f"{prefix}/")]


class _Folder:
    """A directory of a file system of fsspec's: keys as paths, and paths as keys."""

    def __init__(self, fs: Any, root: str) -> None:
        self.fs = fs
        self.root = root.rstrip("/") or root
        # Some file systems have roots of their own, and in others paths begin with names.
        self._lead = f"{self.root}/" if self.root.rstrip("/") else self.root or str(fs.root_marker)

    def path(self, key: str) -> str:
        return f"{self._lead}{key}" if key else self.root

    def key(self, path: str) -> str:
        # Whether paths begin with a slash differs between what a file system takes and what it lists.
        return str(self.fs._strip_protocol(path)).strip("/").removeprefix(self._stripped_lead)

    @property
    def _stripped_lead(self) -> str:
        lead = str(self.fs._strip_protocol(self.root)).strip("/")
        return f"{lead}/" if lead else ""

    def keys_below(self, paths: Iterable[str], prefix: str) -> list[str]:
        """Keys of files below a prefix, sorted."""
        lead = f"{prefix}/" if prefix else ""
        return sorted(key for key in map(self.key, paths) if key.startswith(lead))

    def listing(self, entries: Iterable[dict[str, Any]], prefix: str) -> tuple[list[str], list[str]]:
        """Keys and prefixes directly below a prefix."""
        lead = f"{prefix}/" if prefix else ""
        found: dict[str, bool] = {}
        for entry in entries:
            key = self.key(entry["name"])
            name = key.removeprefix(lead)
            # Servers list what a page links to, other pages included, and file systems a file as what is below it.
            if key.startswith(lead) and name not in ("", ".", "..") and not set("/?#") & set(name):
                found[key] = entry["type"] == "directory"
        keys = sorted(key for key, is_directory in found.items() if not is_directory)
        return keys, sorted(key for key, is_directory in found.items() if is_directory)


class ZarrFsspecAdapter(ZarrStoreAdapter):
    """zarr-python's store of a file system of fsspec's, which is itself asked what is a directory."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._folder = _Folder(store.fs, store.path.rstrip("/"))

    def _path(self, key: str) -> str:
        root = self._folder.root
        return f"{root}/{key}".strip("/") if not root else f"{root}/{key}".rstrip("/")

    async def _getsize(self, key: str) -> int | None:
        try:
            found = await self.store.fs._info(self._path(key))
        except self.store.allowed_exceptions:
            return None
        return None if found["type"] == "directory" else await super()._getsize(key)

    async def _exists(self, key: str) -> bool:
        return await self._getsize(key) is not None

    async def _list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        try:
            entries = await self.store.fs._ls(self._path(prefix), detail=True)
        except self.store.allowed_exceptions:
            return [], []
        return self._folder.listing(entries, prefix)

    async def _list_prefix(self, prefix: str) -> list[str]:
        return self._folder.keys_below(await self.store.fs._find(self._path(prefix)), prefix)


def _waiting(fs: Any) -> Any:
    """A file system of fsspec's whose methods wait, for one that may be made for somebody's own event loop."""
    fs = getattr(fs, "sync_fs", fs)  # of the wrapper that zarr-python wants around others
    if not getattr(fs, "asynchronous", False):
        return fs
    # What refers to files of another file system holds that one, or its options.
    options = {name: _of_waiting(value) for name, value in fs.storage_options.items()}
    return type(fs)(*map(_of_waiting, fs.storage_args), **{**options, "asynchronous": False})


def _of_waiting(value: Any) -> Any:
    """One of the arguments that a file system was made of, for one whose methods wait."""
    if isinstance(value, dict) and "asynchronous" in value:
        return {**value, "asynchronous": False}
    if isinstance(value, dict) and any(hasattr(below, "async_impl") for below in value.values()):
        return {name: _of_waiting(below) for name, below in value.items()}
    if hasattr(value, "sync_fs"):
        return type(value)(value.sync_fs, asynchronous=False)
    return _waiting(value) if hasattr(value, "async_impl") else value


class FsspecAdapter(Asynchronous):
    """A directory of a file system of fsspec's."""

    def __init__(self, fs: Any, root: str) -> None:
        super().__init__()
        self.fs = _waiting(fs)
        self._folder = _Folder(self.fs, root)
        # Only file systems that are asynchronous below have many requests under way.
        below = getattr(self.fs, "fs", self.fs)  # of a directory's view
        self.is_asynchronous = (
            bool(getattr(self.fs, "async_impl", False) and getattr(below, "async_impl", True)) and self.fs.loop is not None
        )
        self.requests_at_once = AT_ONCE if self.is_asynchronous else 1
        archive = sys.modules.get("fsspec.archive")
        self.supports_deletes = archive is None or not isinstance(self.fs, archive.AbstractArchiveFileSystem)
        protocols = (self.fs.protocol,) if isinstance(self.fs.protocol, str) else self.fs.protocol
        self._is_local = type(self.fs).__name__ == "LocalFileSystem" and "file" in protocols

    def _begin(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.fs.loop)

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            return await self.fs._cat_file(self._folder.path(key), start=start, end=stop)
        except _ABSENT:
            return None

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        if start is not None and start < 0 and not self.is_asynchronous:
            # Files of caches do not say their sizes, from which fsspec would count.
            start = max(0, (self.getsize(key) or 0) + start)
        try:
            return self.fs.cat_file(self._folder.path(key), start=start, end=stop)
        except _ABSENT:
            return None

    def get_many(self, requests: Sequence[Request]) -> list[Any]:
        return super().get_many(requests) if self.is_asynchronous else one_by_one(self, requests)

    def set(self, key: str, value: bytes) -> None:
        path = self._folder.path(key)
        if self.is_asynchronous:
            # References forget what they have listed by the coroutine only.
            self._begin(self.fs._pipe_file(path, value)).result()
            return
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        if self._is_local:
            self._replace(str(self.fs._strip_protocol(path)), value)
        else:
            self.fs.pipe_file(path, value)

    @staticmethod
    def _replace(path: str, value: bytes) -> None:
        """Writes a file under another name and renames it: fsspec would write into the old one, which is lost when the process dies."""
        partial = os.path.join(os.path.dirname(path), f".cuzarr-{secrets.token_hex(8)}.partial")
        try:
            with open(partial, "xb") as file:
                file.write(value)
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(partial)
            raise

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        if self.getsize(key) is not None:
            return False
        self.set(key, value)
        return True

    def delete(self, key: str) -> None:
        try:
            self.fs.rm_file(self._folder.path(key))
        except _ABSENT:
            pass

    def delete_many(self, keys: Sequence[str]) -> None:
        if not self.is_asynchronous:
            for key in keys:
                self.delete(key)
            return
        gone = self._begin(_all(self.fs._rm_file(self._folder.path(key)) for key in keys)).result()
        _raise_first(result for result in gone if not isinstance(result, _ABSENT))

    def delete_dir(self, prefix: str) -> None:
        path = self._folder.path(prefix)
        if path.strip("/") and self.fs.isdir(path):
            self.fs.rm(path, recursive=True)
            return
        self.delete_many(self.list_prefix(prefix))

    def getsize(self, key: str) -> int | None:
        try:
            found = self.fs.info(self._folder.path(key))
        except _ABSENT:
            return None
        if found["type"] == "directory":
            return None
        if found["size"] is None:  # a server may not say it
            value = self.get(key, None, None)
            return None if value is None else len(value)
        return int(found["size"])

    def list_prefix(self, prefix: str) -> list[str]:
        return self._folder.keys_below(self.fs.find(self._folder.path(prefix)), prefix)

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        try:
            entries = self.fs.ls(self._folder.path(prefix), detail=True)
        except _ABSENT:
            return [], []
        return self._folder.listing(entries, prefix)

    @property
    def place(self) -> tuple[Any, str]:
        """The file system, and the directory in it."""
        return self.fs, self._folder.root

    def describe(self) -> str:
        return without_secrets(self.fs.unstrip_protocol(self._folder.root))


class ObstoreAdapter(Asynchronous):
    """A store of obstore's."""

    def __init__(self, store: Any) -> None:
        import obstore.exceptions

        super().__init__()
        self.store, self._obstore = store, obstore

    async def _get(self, key: str, start: int | None, stop: int | None) -> bytes | None:
        try:
            if stop is not None and stop <= (start or 0):  # which obstore refuses
                await self._obstore.head_async(self.store, key)
                return b""
            if stop is not None:
                return bytes(await self._obstore.get_range_async(self.store, key, start=start or 0, end=stop))
            if start is None:
                found = await self._obstore.get_async(self.store, key)
            elif start < 0:
                found = await self._obstore.get_async(self.store, key, options={"range": {"suffix": -start}})
            elif start == 0:
                found = await self._obstore.get_async(self.store, key)
            else:
                found = await self._obstore.get_async(self.store, key, options={"range": {"offset": start}})
            return bytes(await found.bytes_async())
        except FileNotFoundError:
            return None

    def set(self, key: str, value: bytes) -> None:
        self._obstore.put(self.store, key, value)

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        try:
            self._obstore.put(self.store, key, value, mode="create")
        except self._obstore.exceptions.AlreadyExistsError:
            return False
        return True

    def delete(self, key: str) -> None:
        try:
            self._obstore.delete(self.store, key)
        except FileNotFoundError:
            pass

    def delete_many(self, keys: Sequence[str]) -> None:
        try:
            self._obstore.delete(self.store, list(keys))
        except FileNotFoundError:
            # Some stores end a batch at a key that is missing.
            for key in keys:
                self.delete(key)

    def delete_dir(self, prefix: str) -> None:
        self.delete_many(self.list_prefix(prefix))

    def getsize(self, key: str) -> int | None:
        try:
            return int(self._obstore.head(self.store, key)["size"])
        except FileNotFoundError:
            return None

    def list_prefix(self, prefix: str) -> list[str]:
        pages = self._obstore.list(self.store, prefix=f"{prefix}/" if prefix else None)
        return sorted(entry["path"] for page in pages for entry in page)

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        found = self._obstore.list_with_delimiter(self.store, prefix=f"{prefix}/" if prefix else None)
        return sorted(entry["path"] for entry in found["objects"]), sorted(found["common_prefixes"])

    def describe(self) -> str:
        return without_secrets(repr(self.store))

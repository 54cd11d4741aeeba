"""Stores written in Python, as the Rust side calls them.

The Rust side knows one small set of methods; everything that differs between a dictionary, fsspec's mappings, the stores
of zarr-python and obstore, and somebody's own object ends here.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
import threading
from collections.abc import Iterable, MutableMapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

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

    def get(self, key: str, start: int | None, stop: int | None) -> Any: ...
    def get_many(self, requests: Sequence[Request]) -> list[Any]: ...
    def set(self, key: str, value: bytes) -> None: ...
    def set_if_not_exists(self, key: str, value: bytes) -> bool: ...
    def delete(self, key: str) -> None: ...
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
        return ZarrStoreAdapter(store)
    missing = [name for name in ("get", "set", "delete", "list") if not callable(getattr(store, name, None))]
    if missing:
        hint = "\nhint: give its store_path" if hasattr(store, "store_path") else ""
        raise TypeError(f"{type(store).__name__} is no store: it has no {', '.join(missing)}{hint}")
    return ObjectAdapter(store)


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

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        raise NotImplementedError  # each adapter has its own

    def get_many(self, requests: Sequence[Request]) -> list[Any]:
        return one_by_one(self, requests)


class ListingAdapter(OneByOne):
    """Whatever can be told from a list of keys."""

    def keys(self) -> Iterable[str]:
        raise NotImplementedError  # each adapter has its own

    def set(self, key: str, value: bytes) -> None:
        raise NotImplementedError  # each adapter has its own

    def delete(self, key: str) -> None:
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


class Asynchronous:
    """A store whose ``_get`` is a coroutine: many requests are under way, of several batches beside each other."""

    requests_at_once = AT_ONCE
    is_asynchronous = True
    supports_deletes = True

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


class ZarrStoreAdapter(Asynchronous):
    """A store of zarr-python's: its methods are coroutines and its values buffers."""

    def __init__(self, store: Any) -> None:
        from zarr.core.buffer import cpu

        super().__init__()
        self.store = store
        self.supports_deletes = bool(getattr(store, "supports_deletes", True))
        self._buffer = cpu.Buffer
        # Values are wanted in host memory, whatever zarr-python is configured to.
        self._prototype = cpu.buffer_prototype

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
        Loop.run(self.store.set(key, self._buffer.from_bytes(value)))

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        if Loop.run(self.store.exists(key)):
            return False
        Loop.run(self.store.set_if_not_exists(key, self._buffer.from_bytes(value)))
        return True

    def delete(self, key: str) -> None:
        Loop.run(self.store.delete(key))

    def delete_dir(self, prefix: str) -> None:
        Loop.run(self.store.delete_dir(prefix))

    def getsize(self, key: str) -> int | None:
        try:
            return int(Loop.run(self.store.getsize(key)))
        except (FileNotFoundError, KeyError):
            return None

    async def _collect(self, names: Any) -> list[str]:
        return [name async for name in names]

    def list_prefix(self, prefix: str) -> list[str]:
        found = Loop.run(self._collect(self.store.list_prefix(f"{prefix}/" if prefix else "")))
        return sorted(found)

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        keys: list[str] = []
        prefixes: list[str] = []
        for name in sorted(Loop.run(self._collect(self.store.list_dir(prefix)))):
            full = f"{prefix}/{name}" if prefix else name
            # zarr-python does not say which names are keys.
            (keys if Loop.run(self.store.exists(full)) else prefixes).append(full)
        return keys, prefixes

    def describe(self) -> str:
        return without_secrets(str(self.store))


class FsspecAdapter(Asynchronous):
    """A directory of a file system of fsspec's."""

    def __init__(self, fs: Any, root: str) -> None:
        super().__init__()
        self.fs, self.root = fs, root.rstrip("/")
        # Only file systems that are asynchronous below have many requests under way.
        self.is_asynchronous = bool(getattr(fs, "async_impl", False)) and fs.loop is not None
        self.requests_at_once = AT_ONCE if self.is_asynchronous else 1
        archive = sys.modules.get("fsspec.archive")
        self.supports_deletes = archive is None or not isinstance(fs, archive.AbstractArchiveFileSystem)

    def _path(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    def _begin(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.fs.loop)

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            return await self.fs._cat_file(self._path(key), start=start, end=stop)
        except _ABSENT:
            return None

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            return self.fs.cat_file(self._path(key), start=start, end=stop)
        except _ABSENT:
            return None

    def get_many(self, requests: Sequence[Request]) -> list[Any]:
        return super().get_many(requests) if self.is_asynchronous else one_by_one(self, requests)

    def set(self, key: str, value: bytes) -> None:
        path = self._path(key)
        if not getattr(self.fs, "async_impl", False):
            self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.fs.pipe_file(path, value)

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        if self.getsize(key) is not None:
            return False
        self.set(key, value)
        return True

    def delete(self, key: str) -> None:
        try:
            self.fs.rm_file(self._path(key))
        except FileNotFoundError:
            pass

    def delete_dir(self, prefix: str) -> None:
        if self.fs.isdir(self._path(prefix)):
            self.fs.rm(self._path(prefix), recursive=True)

    def getsize(self, key: str) -> int | None:
        try:
            found = self.fs.info(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if found["type"] == "directory" else int(found["size"])

    def _relative(self, path: str) -> str:
        start = self.fs._strip_protocol(self.root).rstrip("/")
        return str(self.fs._strip_protocol(path)).removeprefix(start).lstrip("/")

    def list_prefix(self, prefix: str) -> list[str]:
        if not self.fs.isdir(self._path(prefix)):
            return []
        return sorted(self._relative(path) for path in self.fs.find(self._path(prefix)))

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        try:
            entries = self.fs.ls(self._path(prefix), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        found = [(self._relative(entry["name"]), entry["type"] == "directory") for entry in entries]
        below = [(name, is_directory) for name, is_directory in found if name not in ("", prefix)]
        keys = sorted(name for name, is_directory in below if not is_directory)
        return keys, sorted(name for name, is_directory in below if is_directory)

    def describe(self) -> str:
        return without_secrets(self.fs.unstrip_protocol(self.root))


class ObstoreAdapter(Asynchronous):
    """A store of obstore's."""

    def __init__(self, store: Any) -> None:
        import obstore.exceptions

        super().__init__()
        self.store, self._obstore = store, obstore

    async def _get(self, key: str, start: int | None, stop: int | None) -> bytes | None:
        try:
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

    def delete_dir(self, prefix: str) -> None:
        for key in self.list_prefix(prefix):
            self.delete(key)

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

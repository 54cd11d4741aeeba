"""Makes zarr-python's stores accessible to the Rust engine, which reads and writes chunks in them.

Known stores of zarr-python are read without their code: our own store reads a directory, and a dictionary is read
directly. Other stores are read through their own methods.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu
from zarr.core.common import concurrent_map
from zarr.core.config import config as zarr_config
from zarr.core.sync import _get_loop, sync
from zarr.storage import LocalStore, MemoryStore, StorePath

from cuzarr import _core
from cuzarr._config import config
from cuzarr.storage.adapters.asynchronous import answer_all
from cuzarr.storage.adapters.base import Request, one_by_one, raised
from cuzarr.zarr._chunks import Chunks


@lru_cache(maxsize=64)
def _directory(root: str, direct_io: str) -> _core.ChunkStore:
    return _core.ChunkStore.local(root, direct_io)


def is_numbered(batch: list[Any]) -> bool:
    """Whether zarr-python's store methods must be called for the chunks of a batch, so that requests name chunks by number, not by key."""
    first = batch[0][0]
    if type(first) is not StorePath:
        return True
    return type(first.store) not in (LocalStore, MemoryStore) and _own(first.store) is None


def _own(store: Any) -> _core.Store | None:
    """The cuzarr store inside ``store``, if ``store`` is the zarr-python form of a cuzarr store."""
    own = getattr(store, "cuzarr_store", None) if type(store).__module__.startswith("cuzarr.") else None
    return None if own is None else own.handle


async def open_source(batch: list[Any], chunks: Chunks, *, writing: bool, on_device: bool) -> _core.ChunkStore:
    """Makes the store object by which the Rust engine accesses the chunks of one zarr-python call; for coroutines on the running event
    loop."""
    first = batch[0][0]
    if not is_numbered(batch):
        if not first.store._is_open:
            await first.store._ensure_open()
        return _known(first.store, writing)
    return _core.ChunkStore.python(_getters(batch, chunks, asyncio.get_running_loop(), on_device))


def open_source_sync(batch: list[Any], chunks: Chunks, *, writing: bool, on_device: bool) -> _core.ChunkStore:
    """Makes the store object by which the Rust engine accesses the chunks of one zarr-python call; for threads other than the event
    loop's."""
    first = batch[0][0]
    if not is_numbered(batch):
        if not first.store._is_open:
            sync(first.store._ensure_open())
        return _known(first.store, writing)
    return _core.ChunkStore.python(_getters(batch, chunks, _get_loop(), on_device))


def ready_source(store: Any, *, here: bool = False) -> _core.ChunkStore | None:
    """Makes the store object by which the Rust engine accesses the chunks in an open store of zarr-python. ``None`` if the store is not
    open, or zarr-python's code must read it. A store in memory is read ``here`` only: on the calling thread, not beside it."""
    known = (LocalStore, MemoryStore) if here else (LocalStore,)
    if not getattr(store, "_is_open", False) or (type(store) not in known and _own(store) is None):
        return None
    return _known(store, writing=False)


def _known(store: Any, writing: bool) -> _core.ChunkStore:
    if writing:
        store._check_writable()
    own = _own(store)
    if own is not None:
        return _core.ChunkStore.of(own)
    if type(store) is LocalStore:
        return _directory(os.path.abspath(store.root), config.get("direct_io"))
    return _core.ChunkStore.python(_Dictionary(store._store_dict))


def _getters(batch: list[Any], chunks: Chunks, loop: asyncio.AbstractEventLoop, on_device: bool) -> Any:
    getters = [item[0] for item in batch]
    spec = batch[0][1]
    if isinstance(getters[0], StorePath):
        # Encoded bytes are read to the host. The Rust side copies them to the GPU.
        prototype = cpu.buffer_prototype if on_device else spec.prototype
        if chunks.core.is_sharded and hasattr(getters[0].store, "get_ranges"):
            return _Shards(getters, prototype, loop, chunks, spec.config)
        return _Coroutines(getters, prototype, loop)
    # Inner chunks of a shard, which zarr-python's sharding codec holds in memory.
    if hasattr(getters[0], "get_sync"):
        return _InMemory(getters, spec.prototype)
    return _Coroutines(getters, spec.prototype, loop)


def given_values(values: list[Any]) -> _core.ChunkStore:
    """Makes a store over encoded chunks in memory, from which the Rust engine reads them by number. A missing chunk is ``None``."""
    return _core.ChunkStore.python(_Dictionary({str(at): value for at, value in enumerate(values) if value is not None}))


def _part(value: Any, start: int | None, stop: int | None) -> Any:
    if value is None:
        return None
    raw = np.ascontiguousarray(value.as_numpy_array())
    return raw if start is None and stop is None else raw[start:stop]


class _Dictionary:
    """An adapter by which the Rust engine reads and writes a zarr-python ``MemoryStore``, or any mapping from keys to zarr-python's
    buffers."""

    def __init__(self, values: MutableMapping[str, Any]) -> None:
        self.values = values

    def start(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        one_by_one(self._answer, requests, reply)

    def _answer(self, key: str, start: int | None, stop: int | None) -> tuple[Any]:
        return (_part(self.values.get(key), start, stop),)

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = cpu.Buffer.from_bytes(value)

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


def _byte_request(start: int | None, stop: int | None) -> Any:
    if start is not None and start < 0:
        return SuffixByteRequest(-start)
    if stop is not None:
        return RangeByteRequest(start or 0, stop)
    return None if start is None else OffsetByteRequest(start)


class _InMemory:
    """An adapter by which the Rust engine reads and writes values through zarr-python's byte getters that have synchronous methods."""

    def __init__(self, getters: list[Any], prototype: Any) -> None:
        self.getters = getters
        self.prototype = prototype

    def start(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        one_by_one(self._answer, requests, reply)

    def _answer(self, key: str, start: int | None, stop: int | None) -> tuple[Any]:
        return (_part(self.getters[int(key)].get_sync(prototype=self.prototype), start, stop),)

    def set(self, key: str, value: bytes) -> None:
        self.getters[int(key)].set_sync(self.prototype.buffer.from_bytes(value))

    def delete(self, key: str) -> None:
        self.getters[int(key)].delete_sync()


class _Coroutines:
    """An adapter by which the Rust engine reads and writes values through zarr-python's byte getters that have coroutines, run by an event
    loop."""

    def __init__(self, getters: list[Any], prototype: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.getters = getters
        self.prototype = prototype
        self.loop = loop
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        self.loop.call_soon_threadsafe(self._begin, requests, reply)

    def _begin(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        task = self.loop.create_task(self._answer_all(requests, reply))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer_all(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        most = zarr_config.get("async.concurrency") or len(requests)
        await answer_all(self._get, requests, reply, asyncio.Semaphore(most), most)

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        request = _byte_request(start, stop)
        getter = self.getters[int(key)]
        value = await (getter.get(self.prototype) if request is None else getter.get(self.prototype, request))
        return _part(value, None, None)

    def _wait(self, coroutine: Awaitable[Any]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()  # type: ignore[arg-type]

    def set(self, key: str, value: bytes) -> None:
        self._wait(self.getters[int(key)].set(self.prototype.buffer.from_bytes(value)))

    def delete(self, key: str) -> None:
        self._wait(self.getters[int(key)].delete())


class _Shards(_Coroutines):
    """An adapter like ``_Coroutines``, for reading shards from a store with ``get_ranges``, which joins neighbouring byte ranges of a
    shard."""

    def __init__(self, getters: list[Any], prototype: Any, loop: Any, chunks: Chunks, settings: Any) -> None:
        super().__init__(getters, prototype, loop)
        self._index_is_first = chunks.core.index_is_first
        self._limits = {
            "max_gap_bytes": settings.sharding_coalesce_max_gap_bytes,
            "max_coalesced_bytes": settings.sharding_coalesce_max_bytes,
        }

    def _is_inner_chunk(self, start: int | None, stop: int | None) -> bool:
        return start is not None and stop is not None and not (self._index_is_first and start == 0)

    async def _answer_all(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        plain: list[Any] = []
        ranges: dict[str, list[tuple[int, Any]]] = {}
        for index, (key, start, stop) in enumerate(requests):
            if self._is_inner_chunk(start, stop):
                ranges.setdefault(key, []).append((index, _byte_request(start, stop)))
            else:
                plain.append((self._answer, index, (key, start, stop), reply))
        joined = [(self._get_ranges, key, wanted, reply) for key, wanted in ranges.items()]
        await concurrent_map([*plain, *joined], _call, zarr_config.get("async.concurrency"))

    async def _answer(self, index: int, request: Request, reply: _core.ChunkReply) -> None:
        try:
            reply(index, await self._get(*request))
        except Exception as error:
            reply(index, raised(error))

    async def _get_ranges(self, key: str, wanted: list[tuple[int, Any]], reply: _core.ChunkReply) -> None:
        getter = self.getters[int(key)]
        byte_ranges = [request for _, request in wanted]
        try:
            values = getter.store.get_ranges(getter.path, byte_ranges, prototype=self.prototype, **self._limits)
            async for part in values:
                for at, value in part:
                    reply(wanted[at][0], _part(value, None, None))
        except BaseExceptionGroup as errors:
            # The shard was deleted in the meantime. Missing chunks read as the fill value.
            gone = errors.subgroup(FileNotFoundError) is not None and errors.split(FileNotFoundError)[1] is None
            for index, _ in wanted:
                reply(index, None if gone else errors)
        except Exception as error:
            for index, _ in wanted:
                reply(index, error)


async def _call(function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    await function(*arguments)

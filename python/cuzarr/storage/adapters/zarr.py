"""Adapters for stores of zarr-python and Icechunk, whose methods are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from cuzarr._runtime import Loop
from cuzarr.errors import ArgumentTypeError
from cuzarr.storage.adapters.asynchronous import Asynchronous, gather, raise_first
from cuzarr.storage.adapters.base import Place, cut, file_address, own_identity, unwrapped, without_secrets

# Names of metadata documents. A listed entry with one of these names is always a key.
_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class ZarrStoreAdapter(Asynchronous):
    """Adapter for a store of zarr-python, whose methods are coroutines, and whose values are buffers."""

    def __init__(self, store: Any) -> None:
        from zarr.core.buffer.cpu import Buffer, buffer_prototype
        from zarr.storage import LocalStore, MemoryStore, ZipStore

        super().__init__()
        self.store = store
        self._local, self._memory, self._zip = LocalStore, MemoryStore, ZipStore
        self.supports_deletes: bool = bool(getattr(store, "supports_deletes", True))
        self._buffer = Buffer
        # Values are read to host memory, whatever zarr-python's configuration says.
        self._prototype = buffer_prototype
        # In other stores, such as those of fsspec, directories may "exist", too.
        self._only_keys_exist = isinstance(unwrapped(store), LocalStore | MemoryStore | ZipStore)

    def _begin(self, coroutine: Any) -> Future[Any]:
        from zarr.core.sync import _get_loop

        # Runs on zarr-python's own loop: connections of a store that zarr-python has used belong to that loop.
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
        return None if value is None else np.ascontiguousarray(value.as_numpy_array())

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
        raise_first(self._wait(gather(self.store.delete(key) for key in keys)))

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
            # A store may refuse requests for names that are not keys of Zarr.
            if await self._has_below(key):
                return False
            raise
        return exists and (self._only_keys_exist or not await self._has_below(key))

    async def _list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        lead = f"{prefix}/" if prefix else ""
        names = sorted([lead + name async for name in self.store.list_dir(prefix)])
        # zarr-python's listing does not show which names are keys.
        are_keys = await gather(self._is_key(name) for name in names)
        if failures := [answer for answer in are_keys if isinstance(answer, BaseException)]:
            raise failures[0]
        keys = [name for name, is_key in zip(names, are_keys, strict=True) if is_key]
        return keys, [name for name, is_key in zip(names, are_keys, strict=True) if not is_key]

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        return self._wait(self._list_dir(prefix))  # type: ignore[no-any-return]

    def identity(self) -> Place:
        inner = unwrapped(self.store)
        if isinstance(inner, self._local):
            return file_address(inner.root)
        if isinstance(inner, self._zip):
            return file_address(inner.path)
        return inner._store_dict if isinstance(inner, self._memory) else own_identity(inner)

    def describe(self) -> str:
        return without_secrets(" ".join(str(self.store).split()))


class IcechunkAdapter(ZarrStoreAdapter):
    """Adapter for the store of an Icechunk session.

    It only accepts keys of Zarr's documents, and of chunks of existing arrays. Readers see no writes before the session is committed.
    """

    is_transactional = True

    _NOTHING_THERE = (
        "bad-key-prefix", "invalid-chunk-index", "invalid-key", "key-not-found", "node-not-found", "not-an-array"
    )  # fmt: skip

    def check_sent(self) -> None:
        session = unwrapped(self.store).session
        if not session.read_only and type(session).__name__ != "ForkSession":
            raise ArgumentTypeError(
                "a session of Icechunk that can be written does not go to another process",
                hint="commit, and pass repository.readonly_session(…).store; or pass session.fork().store and merge the fork",
            )

    def _raise_unless_absent(self, error: Exception) -> None:
        if getattr(error, "kind", None) not in self._NOTHING_THERE:
            raise error

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            if key.rpartition("/")[2] in _DOCUMENTS:  # Icechunk ends parts of documents at another position than requested
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
        # Icechunk gives missing chunks the size 0.
        return await super()._getsize(key) if await self._exists(key) else None

    async def _list_prefix(self, prefix: str) -> list[str]:
        # Icechunk can list nodes only.
        node = prefix
        while node and not await self._is_node(node):
            node = node.rpartition("/")[0]
        found = await super()._list_prefix(node)
        return found if node == prefix else [key for key in found if key.startswith(f"{prefix}/")]

"""A store far away that counts rounds of requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import zarr


class Rounds(zarr.storage.MemoryStore):
    """A store each of whose requests takes a while. A round begins with a request that finds no other under way.

    Set ``wait_seconds`` to 0 while a test writes what it needs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wait_seconds = 0.1
        self.rounds, self.reads, self._under_way, self._lock = 0, 0, 0, threading.Lock()

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        with self._lock:
            self.rounds += self._under_way == 0
            self._under_way += 1
        try:
            await asyncio.sleep(self.wait_seconds)
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    async def get(self, *args: Any, **kwargs: Any) -> Any:
        self.reads += 1
        async with self.request():
            return await super().get(*args, **kwargs)

    async def exists(self, key: str) -> bool:
        async with self.request():
            return await super().exists(key)

    async def set(self, *args: Any, **kwargs: Any) -> None:
        async with self.request():
            await super().set(*args, **kwargs)

    async def set_if_not_exists(self, *args: Any, **kwargs: Any) -> None:
        async with self.request():
            await super().set_if_not_exists(*args, **kwargs)

    async def delete(self, key: str) -> None:
        async with self.request():
            await super().delete(key)

    async def delete_dir(self, prefix: str) -> None:
        async with self.request():
            await super().delete_dir(prefix)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async with self.request():
            keys = [key async for key in super().list_prefix(prefix)]
        for key in keys:
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        async with self.request():
            names = [name async for name in super().list_dir(prefix)]
        for name in names:
            yield name

    def count(self, call: Callable[[], Any]) -> tuple[Any, int]:
        """What a call gives, and in how many rounds of requests."""
        self.rounds = 0
        return call(), self.rounds

"""Base class of adapters for stores whose methods are coroutines. Many of their requests run at once."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from cuzarr import _core
from cuzarr._runtime import Loop
from cuzarr.storage.adapters.base import Request, raised

CONCURRENCY = 256
"""Largest number of requests to an asynchronous store that run at once; further ones wait. More would not be faster."""


async def gather(coroutines: Iterable[Any]) -> list[Any]:
    """Runs coroutines, a limited number at a time. Returns each result or exception, in the order of the coroutines."""
    free = asyncio.Semaphore(CONCURRENCY)

    async def one(coroutine: Any) -> Any:
        async with free:
            return await coroutine

    return await asyncio.gather(*map(one, coroutines), return_exceptions=True)


async def answer_all(
    get: Callable[..., Awaitable[Any]],
    requests: Sequence[Request],
    reply: _core.ChunkReply,
    places: asyncio.Semaphore,
    most: int,
) -> None:
    """Reads the values that requests to an asynchronous store name, and passes each to the reader. At most ``most`` run at once, each in one
    of ``places``. ``get`` reads one value.

    A task reads one value after the other. Further tasks start when those that run wait for the store. So a store that never waits, such
    as one in memory, answers all requests in one turn of the event loop.
    """
    waiting = deque(enumerate(requests))

    async def answer() -> None:
        async with places:
            while waiting:
                index, request = waiting.popleft()
                if not reply.wants(index):
                    continue
                try:
                    reply(index, await get(*request))
                except Exception as error:
                    reply(index, raised(error))

    async with asyncio.TaskGroup() as tasks:
        started = 0
        while waiting and started < most:
            # Doubled in each turn, so that a busy event loop has all requests soon.
            for _ in range(min(started or 1, most - started, len(waiting))):
                tasks.create_task(answer())
                started += 1
            await asyncio.sleep(0)


def raise_first(results: Iterable[Any]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


class Asynchronous:
    """Base class of adapters whose ``_get`` is a coroutine. Many requests run at once, even if they belong to different batches."""

    is_asynchronous = True
    supports_deletes = True
    is_transactional = False
    """Whether the store is transactional, such as Icechunk's: writes become visible by a commit only, and only Zarr's own keys can be
    written."""
    device: str | None = None
    """Device in whose memory the store keeps its values; ``None`` for host memory."""

    def __init__(self) -> None:
        self._free = (os.getpid(), asyncio.Semaphore(CONCURRENCY))
        self._under_way: set[Future[Any]] = set()

    def check_sent(self) -> None:
        """Raises an error if a copy of the store in another process would not be the same store. By default, none is raised."""

    def _places(self) -> asyncio.Semaphore:
        # The child of a fork does not wait for its parent's requests.
        if self._free[0] != os.getpid():
            self._free = (os.getpid(), asyncio.Semaphore(CONCURRENCY))
        return self._free[1]

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        raise NotImplementedError  # each adapter has its own

    def _begin(self, coroutine: Any) -> Future[Any]:
        return Loop.start(coroutine)

    async def _answer_all(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        await answer_all(self._get, requests, reply, self._places(), CONCURRENCY)

    def start(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        """Requests values from the store, without waiting. ``reply`` is called with each value when it arrives."""
        answers = self._begin(self._answer_all(requests, reply))
        self._under_way.add(answers)
        answers.add_done_callback(self._under_way.discard)

"""Base class of adapters for stores whose methods are coroutines. Many of their requests run at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from cuzarr._runtime import Loop
from cuzarr.storage.adapters.base import Request

CONCURRENCY = 256
"""Largest number of requests to an asynchronous store that run at once; further ones wait. More would not be faster."""


AT_ONCE = 64
"""Number of requests that one call passes to an asynchronous store, for a read that needs all values before it uses the first."""


async def gather(coroutines: Iterable[Any]) -> list[Any]:
    """Runs coroutines, a limited number at a time. Returns each result or exception, in the order of the coroutines."""
    free = asyncio.Semaphore(CONCURRENCY)

    async def one(coroutine: Any) -> Any:
        async with free:
            return await coroutine

    return await asyncio.gather(*map(one, coroutines), return_exceptions=True)


def raise_first(results: Iterable[Any]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


class Asynchronous:
    """Base class of adapters whose ``_get`` is a coroutine. Many requests run at once, even if they belong to different batches."""

    requests_at_once = AT_ONCE
    is_asynchronous = True
    supports_deletes = True
    has_sizes = False
    has_versions = False
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

    async def _answer(self, index: int, request: Request, reply: Any) -> None:
        async with self._places():
            if not reply.is_wanted():
                return  # the end of the reply ends requests without a value
            try:
                value = await self._get(*request)
            except Exception as error:
                value = error
        reply(index, value)

    async def _answer_all(self, requests: Sequence[Request], reply: Any) -> None:
        await asyncio.gather(*(self._answer(index, request, reply) for index, request in enumerate(requests)))

    def start(self, requests: Sequence[Request], reply: Any) -> None:
        """Requests values from the store, without waiting. ``reply`` is called with each value when it arrives."""
        answers = self._begin(self._answer_all(requests, reply))
        self._under_way.add(answers)
        answers.add_done_callback(self._under_way.discard)

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        return self._begin(self._get(key, start, stop)).result()

    def get_many(self, requests: Sequence[Request]) -> list[Any]:
        return list(self._begin(gather(self._get(*request) for request in requests)).result())

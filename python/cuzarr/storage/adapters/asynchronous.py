"""Stores whose methods are coroutines, as the Rust side calls them: many requests are under way at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from cuzarr._runtime import Loop
from cuzarr.storage.adapters.base import Request

CONCURRENCY = 256
"""Requests under way at once to a store that is asynchronous: what is not fast enough by then is not for its distance."""


AT_ONCE = 64
"""Requests handed at once to such a store whose values all have to be there before any is used."""


async def gather(coroutines: Iterable[Any]) -> list[Any]:
    """Runs coroutines, some at a time; gives results and failures in their order."""
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
    """A store whose ``_get`` is a coroutine: many requests are under way, of several batches beside each other."""

    requests_at_once = AT_ONCE
    is_asynchronous = True
    supports_deletes = True
    has_sizes = False
    is_transactional = False
    device: str | None = None
    """Whether readers see nothing that is written before the caller commits it, and only Zarr's own keys can be written."""

    def __init__(self) -> None:
        self._free = (os.getpid(), asyncio.Semaphore(CONCURRENCY))
        self._under_way: set[Future[Any]] = set()

    def check_sent(self) -> None:
        """Refuses stores whose copy in another process would not be this one."""

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
        return list(self._begin(gather(self._get(*request) for request in requests)).result())

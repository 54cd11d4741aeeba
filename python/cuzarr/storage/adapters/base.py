"""Stores written in Python, as the Rust side calls them.

The Rust side knows one small set of methods; everything that differs between a dictionary, fsspec's mappings, the stores
of zarr-python and obstore, and somebody's own object ends here.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from cuzarr._memory.foreign import to_bytes
from cuzarr._runtime import Loop

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


def unwrapped(store: Any) -> Any:
    """The store inside zarr-python's wrappers, such as the one that logs."""
    while any(cls.__module__ == "zarr.storage._wrapper" for cls in type(store).__mro__):
        store = store._store
    return store


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


ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


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
        return list(self._begin(gather(self._get(*request) for request in requests)).result())

"""Adapters for stores written in Python, with the methods that the Rust side calls.

The Rust side knows one small set of methods. Adapters hide the differences between a dictionary, fsspec's mappings, the stores
of zarr-python and obstore, and a program's own object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from cuzarr import _core
from cuzarr._memory.foreign import to_bytes

Request = tuple[str, int | None, int | None]
"""A request to read a key's value, or a range of the value's bytes: key, start (negative: counted from the end) and stop."""


Place = Any
"""The identity of a store's values: an address such as ``file:///data/a``, the object that holds the values, or a tuple of either and a
path in it. Stores with equal identities share write locks and caches, and copies treat them as one store.
"""


class StoreAdapter(Protocol):
    """Interface of adapters for stores written in Python: the methods that the Rust side calls."""

    is_asynchronous: bool
    supports_deletes: bool
    is_transactional: bool
    device: str | None
    """The GPU whose memory holds the store's values, if any. Values are then read as a ``_core.NdBuffer`` there, and written by
    ``set_buffer``."""

    def check_sent(self) -> None: ...
    def start(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None: ...
    def set(self, key: str, value: bytes) -> None: ...
    def set_if_not_exists(self, key: str, value: bytes) -> bool: ...
    def delete(self, key: str) -> None: ...
    def delete_many(self, keys: Sequence[str]) -> None: ...
    def delete_dir(self, prefix: str) -> None: ...
    def getsize(self, key: str) -> int | None: ...
    def list_prefix(self, prefix: str) -> list[str]: ...
    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]: ...
    def describe(self) -> str: ...
    def identity(self) -> Place: ...


_SECRETS = re.compile(r"(?<=://)[^/@\s]+@|\?[^\s'\")]*")


def without_secrets(text: str) -> str:
    """Removes user, password and query from the URLs in a text for messages. A query may be a signature."""
    return _SECRETS.sub("", text)


def own_identity(store: Any) -> Place:
    """The identity of a store that the user's program defines: the result of its method ``identity``, else the object itself."""
    identity = getattr(store, "identity", None)
    place = identity() if callable(identity) else None
    return store if place is None else place


def file_address(path: Any) -> str:
    """The address of a file or directory as a ``file://`` URL, which identifies it."""
    return f"file://{os.path.abspath(os.fspath(path))}"


def unwrapped(store: Any) -> Any:
    """The store inside zarr-python's wrapper stores, such as ``LoggingStore``."""
    while any(cls.__module__ == "zarr.storage._wrapper" for cls in type(store).__mro__):
        store = store._store
    return store


def cut(value: Any, start: int | None, stop: int | None) -> bytes | memoryview:
    """The bytes of a stored value from ``start`` to ``stop``, copied unless they can never change. A negative ``start`` counts from the
    end; a shorter value is returned whole."""
    raw = to_bytes(value)
    return raw if start is None and stop is None else memoryview(raw)[start:stop]


def raised(error: BaseException) -> BaseException:
    """An exception that the calling function caught, without this function in its traceback. The function's frame would keep the reply
    alive, and with it all values of a batch."""
    traceback = error.__traceback__
    return error.with_traceback(traceback.tb_next if traceback is not None else None)


def one_by_one(answer: Callable[..., tuple[Any, ...]], requests: Sequence[Request], reply: _core.ChunkReply) -> None:
    """Reads the values that requests to a store name, one after the other, and passes each to the reader, while the reader waits for
    them. ``answer`` returns the value of a request, ``None`` if it is missing, and the value's version if that is known."""
    for index, request in enumerate(requests):
        if not reply.wants(index):
            continue
        try:
            reply(index, *answer(*request))
        except BaseException as error:
            reply(index, raised(error))


class OneByOne:
    """Base class of adapters that serve requests one after the other."""

    is_asynchronous = False
    supports_deletes = True
    is_transactional = False
    device: str | None = None

    def check_sent(self) -> None:
        """Raises an error if a copy of the store in another process would not be the same store. By default, none is raised."""

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        raise NotImplementedError  # each adapter has its own

    def get_versioned(self, key: str, start: int | None, stop: int | None) -> tuple[Any, int | None]:
        """Reads a value, with the version of the whole value if only a part is requested and the version is known."""
        return self.get(key, start, stop), None

    def start(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        """Reads values from the store, and calls ``reply`` with each."""
        one_by_one(self.get_versioned, requests, reply)

    def delete(self, key: str) -> None:
        raise NotImplementedError  # each adapter has its own

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)


class ListingAdapter(OneByOne):
    """Base class of adapters for stores that cannot list folders or tell sizes: these are found from all keys, and from whole values."""

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

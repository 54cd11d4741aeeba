"""Stores written in Python, as the Rust side calls them.

The Rust side knows one small set of methods; everything that differs between a dictionary, fsspec's mappings, the stores
of zarr-python and obstore, and an object of a program ends here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from cuzarr._memory.foreign import to_bytes

Request = tuple[str, int | None, int | None]
"""A key, and which of its bytes: from where (negative: the last ones) and up to where."""


Place = Any
"""Which values a store is about: an address as text (``file:///data/a``), the object that holds them, or a tuple of either and of a
path in it. Stores that say the same are the same to write locks, caches and copies."""


class StoreAdapter(Protocol):
    """The methods that the Rust side calls."""

    requests_at_once: int
    is_asynchronous: bool
    supports_deletes: bool
    is_transactional: bool
    has_sizes: bool
    device: str | None
    """Where values are: what is asked for is brought as a ``_core.NdBuffer`` of bytes there, and set by ``set_buffer``."""

    def check_sent(self) -> None: ...
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
    def identity(self) -> Place: ...


_SECRETS = re.compile(r"(?<=://)[^/@\s]+@|\?[^\s'\")]*")


def without_secrets(text: str) -> str:
    """A text for messages: its URLs without user, password and query, which may be a signature."""
    return _SECRETS.sub("", text)


def own_identity(store: Any) -> Place:
    """The identity of a program's store: the result of its method ``identity``, else the object itself."""
    identity = getattr(store, "identity", None)
    place = identity() if callable(identity) else None
    return store if place is None else place


def file_address(path: Any) -> str:
    """The address of a file or directory."""
    return f"file://{os.path.abspath(os.fspath(path))}"


def unwrapped(store: Any) -> Any:
    """The store inside zarr-python's wrappers, such as the one that logs."""
    while any(cls.__module__ == "zarr.storage._wrapper" for cls in type(store).__mro__):
        store = store._store
    return store


def cut(value: Any, start: int | None, stop: int | None) -> bytes:
    """A part of a value. A negative ``start`` counts from the end, and gives all of a shorter value."""
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

    def check_sent(self) -> None:
        """Refuses stores whose copy in another process would not be this one."""

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

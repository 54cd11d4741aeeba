"""Stores: where keys and their bytes are.

A path is a :class:`LocalStore`, ``None`` a :class:`MemoryStore`. A dictionary, another mutable mapping, a store of
zarr-python's, or any object with ``get``, ``set``, ``delete`` and ``list`` works as well.

>>> from cuzarr.storage import MemoryStore
>>> store = MemoryStore()
>>> store.set("a/b", b"bytes")
>>> store.get("a/b"), store.exists("a/c")
(b'bytes', False)
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Literal, Self

from cuzarr import _core
from cuzarr._adapters import adapt_store
from cuzarr.errors import InvalidArgumentError, KeyInvalidError, ReadOnlyError, UnsupportedError

__all__ = ["ForeignStore", "LocalStore", "MemoryStore", "Store", "StoreLike", "StorePath"]

AccessMode = Literal["r", "r+", "a", "w", "w-"]
MODES: tuple[AccessMode, ...] = ("r", "r+", "a", "w", "w-")


class Store:
    """Keys and their bytes. Keys are ``/``-separated, without a leading ``/`` and without ``..``."""

    supports_writes = True
    supports_deletes = True
    supports_listing = True
    supports_consolidated_metadata = True

    def __init__(self, handle: _core.Store, *, read_only: bool = False) -> None:
        self._handle = handle
        self._read_only = read_only

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self._read_only

    def with_read_only(self, read_only: bool = False) -> Self:
        """The same store, with writing refused or allowed."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._read_only = read_only
        return twin

    def check_writable(self) -> None:
        """Raises ``ReadOnlyError`` when writing is refused."""
        if self._read_only:
            raise ReadOnlyError(f"{self} was opened for reading only", hint="open it with mode 'r+', 'a' or 'w'")

    def get(self, key: str, *, start: int | None = None, stop: int | None = None) -> bytes | None:
        """The bytes of ``key``, or of part of it; a negative ``start`` counts from the end. ``None`` when missing."""
        return self._handle.get(key, start, stop)

    def set(self, key: str, value: Any) -> None:
        """Writes a value, whole: readers see the old one or the new one."""
        self.check_writable()
        self._handle.set(key, bytes(memoryview(value)))

    def set_if_not_exists(self, key: str, value: Any) -> bool:
        """Writes a value unless the key exists; says whether it wrote."""
        self.check_writable()
        return self._handle.set_if_not_exists(key, bytes(memoryview(value)))

    def delete(self, key: str) -> None:
        """Deletes a value; a missing key is no error."""
        self.check_writable()
        self._handle.delete(key)

    def delete_dir(self, prefix: str) -> None:
        """Deletes everything below a prefix."""
        self.check_writable()
        self._handle.delete_dir(prefix)

    def clear(self) -> None:
        """Deletes everything."""
        self.delete_dir("")

    def exists(self, key: str) -> bool:
        """Whether the key exists."""
        return self._handle.getsize(key) is not None

    def getsize(self, key: str) -> int:
        """Size of a value in bytes."""
        size = self._handle.getsize(key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    def getsize_prefix(self, prefix: str) -> int:
        """Size of everything below a prefix in bytes."""
        return sum(self._handle.getsize(key) or 0 for key in self._handle.list_prefix(prefix))

    def list(self) -> list[str]:
        """Every key, sorted."""
        return self._handle.list_prefix("")

    def list_prefix(self, prefix: str) -> builtins.list[str]:
        """Every key below a prefix, sorted."""
        return self._handle.list_prefix(prefix)

    def list_dir(self, prefix: str) -> builtins.list[str]:
        """Names of what is directly below a prefix, sorted."""
        keys, prefixes = self._handle.list_dir(prefix)
        return sorted(name.rpartition("/")[2] for name in (*keys, *prefixes))

    def is_empty(self, prefix: str) -> bool:
        """Whether nothing is below a prefix."""
        keys, prefixes = self._handle.list_dir(prefix)
        return not keys and not prefixes

    def close(self) -> None:
        """Does nothing; stores of cuzarr hold nothing open."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self}')"


class LocalStore(Store):
    """A directory. Values are replaced atomically, and no key leaves the directory."""

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        if not isinstance(root, str | os.PathLike):
            raise TypeError(f"root is a path, got {root!r}")
        self.root = Path(root)
        super().__init__(_core.Store.local(os.path.abspath(os.fspath(self.root))), read_only=read_only)

    def __str__(self) -> str:
        return f"file://{self.root.as_posix()}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStore) and self.root == other.root

    def __hash__(self) -> int:
        return hash(self.root)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_local, (str(self.root), self._read_only)


def _open_local(root: str, read_only: bool) -> LocalStore:
    return LocalStore(root, read_only=read_only)


class MemoryStore(Store):
    """This process's memory; with ``store_dict`` a mapping of the caller's, from keys to bytes."""

    def __init__(self, store_dict: MutableMapping[str, Any] | None = None, *, read_only: bool = False) -> None:
        self._store_dict = store_dict
        handle = _core.Store.memory() if store_dict is None else _core.Store.python(adapt_store(store_dict))
        super().__init__(handle, read_only=read_only)

    def __str__(self) -> str:
        return f"memory://{id(self._store_dict if self._store_dict is not None else self._handle)}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryStore):
            return False
        same_dict = self._store_dict is not None and self._store_dict is other._store_dict
        return same_dict or self._handle is other._handle

    def __hash__(self) -> int:
        return id(self._handle)


class ForeignStore(Store):
    """A store written in Python: zarr-python's, or any object with ``get``, ``set``, ``delete`` and ``list``."""

    def __init__(self, store: Any, *, read_only: bool = False) -> None:
        self.wrapped = store
        super().__init__(
            _core.Store.python(adapt_store(store)), read_only=read_only or bool(getattr(store, "read_only", False))
        )

    def __str__(self) -> str:
        return str(self.wrapped)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForeignStore) and bool(self.wrapped == other.wrapped)

    def __hash__(self) -> int:
        return id(self.wrapped)


def normalize_path(path: object) -> str:
    """A path inside a store: no empty segments, no ``.`` or ``..``."""
    if path is None:
        return ""
    if isinstance(path, bytes):
        path = path.decode("ascii")
    segments = [segment for segment in str(path).replace("\\", "/").split("/") if segment]
    if any(segment in (".", "..") for segment in segments):
        raise KeyInvalidError(f"path '{path}' has a '.' or '..' segment")
    return "/".join(segments)


class StorePath:
    """A place in a store."""

    def __init__(self, store: Store, path: str = "") -> None:
        self.store = store
        self.path = normalize_path(path)

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self.store.read_only

    def key(self, name: str) -> str:
        """The key of ``name`` below this place."""
        return f"{self.path}/{name}" if self.path else name

    def get(self, name: str) -> bytes | None:
        """The bytes of ``name`` below this place."""
        return self.store.get(self.key(name))

    def write(self, documents: Mapping[str, bytes]) -> None:
        """Writes values below this place."""
        for name, value in documents.items():
            self.store.set(self.key(name), value)

    def __truediv__(self, other: str) -> StorePath:
        return StorePath(self.store, f"{self.path}/{other}")

    def __str__(self) -> str:
        return f"{self.store}/{self.path}" if self.path else str(self.store)

    def __repr__(self) -> str:
        return f"StorePath({type(self.store).__name__}, '{self}')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and self.store == other.store and self.path == other.path

    def __hash__(self) -> int:
        return hash((self.store, self.path))


StoreLike = Store | StorePath | Path | str | Mapping[str, Any] | Any


def make_store(store: Any, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None) -> Store:
    """A store from whatever a caller may write.

    Raises
    ------
    UnsupportedError
        A URL whose scheme has no store here.
    TypeError
        The object is no store.
    """
    scheme, _, rest = str(store).partition("://") if isinstance(store, str) else ("", "", "")
    is_remote = bool(rest) and scheme not in ("file", "memory")
    if storage_options is not None and not is_remote:
        raise TypeError("storage_options only serve URLs of remote stores")
    if is_remote:
        return _open_url(str(store), storage_options, read_only)
    if isinstance(store, StorePath):
        store = store.store
    if isinstance(store, Store):
        return store.with_read_only(True) if read_only and not store.read_only else store
    if store is None:
        return MemoryStore(read_only=read_only)
    if isinstance(store, str) and scheme == "memory" and rest:
        return _named_memory(rest, read_only)
    if isinstance(store, str | os.PathLike):
        return LocalStore(rest if scheme == "file" and rest else store, read_only=read_only)  # type: ignore[arg-type]
    if isinstance(store, dict):
        return MemoryStore(store, read_only=read_only)
    return ForeignStore(store, read_only=read_only)


_NAMED: dict[str, MemoryStore] = {}


def _named_memory(name: str, read_only: bool) -> Store:
    store = _NAMED.setdefault(name, MemoryStore())
    return store.with_read_only(read_only)


def _open_url(url: str, storage_options: Mapping[str, Any] | None, read_only: bool) -> Store:
    try:
        from zarr.storage import FsspecStore
    except ImportError:
        hint = "install zarr and fsspec, or pass a store object"
        raise UnsupportedError(f"no store for '{url}' is built in", hint=hint) from None
    return ForeignStore(FsspecStore.from_url(url, storage_options=dict(storage_options or {}), read_only=read_only))


def make_store_path(
    store: Any,
    *,
    path: object = None,
    mode: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StorePath:
    """A place in a store, opened as ``mode`` says.

    Raises
    ------
    FileExistsError
        The mode is ``"w-"`` and something is there.
    """
    if mode is not None and mode not in MODES:
        raise InvalidArgumentError(f"mode is {mode!r}, expected one of {', '.join(MODES)}")
    prefix = ""
    if isinstance(store, StorePath):
        prefix = store.path
    elif hasattr(store, "store") and hasattr(store, "path") and type(store).__name__ == "StorePath":
        store, prefix = store.store, store.path  # zarr-python's
    opened = make_store(store, read_only=mode == "r", storage_options=storage_options)
    if opened.read_only and mode not in (None, "r"):
        raise ReadOnlyError(f"{opened} is read-only, but mode is {mode!r}", hint="use mode 'r' or a writable store")
    place = StorePath(opened, f"{prefix}/{normalize_path(path)}")
    if mode == "w-" and not opened.is_empty(place.path):
        raise FileExistsError(f"{place} holds data already, and mode 'w-' only creates")
    return place


def iterate_parents(path: str) -> Iterator[str]:
    """The paths of all groups that a node at ``path`` is in, the root first."""
    if path:
        yield ""
        segments = path.split("/")[:-1]
        for end in range(1, len(segments) + 1):
            yield "/".join(segments[:end])

"""Converts callers' arguments, such as paths, URLs and mappings, to stores and to paths in stores."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from cuzarr._docstrings import documented
from cuzarr._text import printable
from cuzarr.errors import InvalidArgumentError, KeyInvalidError, ReadOnlyError
from cuzarr.storage import schemes
from cuzarr.storage.foreign import ForeignStore, open_url
from cuzarr.storage.local import LocalStore
from cuzarr.storage.memory import MemoryStore
from cuzarr.storage.split import SplitStore
from cuzarr.storage.store import Store
from cuzarr.storage.url import UrlStore
from cuzarr.storage.zip import ZipStore, is_zip_file

if TYPE_CHECKING:
    from zarr.storage import StorePath as ZarrStorePath

    from cuzarr.typing import AccessMode, ForeignStoreLike

MODES: tuple[AccessMode, ...] = ("r", "r+", "a", "w", "w-")


def normalize_path(path: object) -> str:
    """Normalises a path inside a store: empty segments are dropped, ``.`` and ``..`` are refused.

    Parameters
    ----------
    path : str, bytes, path or None
        A path from a caller; ``None`` is the root.

    Returns
    -------
    str
        The path without a leading or trailing ``/``.

    Raises
    ------
    InvalidArgumentError
        The path has ``.`` or ``..``.

    >>> cuzarr.storage.normalize_path("/a//b/")
    'a/b'
    """
    if path is None:
        return ""
    if isinstance(path, bytes):
        path = path.decode("ascii")
    segments = [segment for segment in str(path).replace("\\", "/").split("/") if segment]
    if "." in segments or ".." in segments:
        raise KeyInvalidError(f"path '{path}' has a '.' or '..' segment")
    return "/".join(segments)


@documented(
    """
    name : str
        A name, or a path with ``/``.
    >>> import cuzarr
    """,
)
class StorePath:
    """A store and a path in the store, which together name an array or a group.

    Parameters
    ----------
    store : Store
        The store.
    path : str
        The path in it; ``""`` is its root.

    Raises
    ------
    InvalidArgumentError
        The path leaves the store.

    >>> place = cuzarr.storage.StorePath(cuzarr.storage.MemoryStore(), "a")
    >>> (place / "b").path
    'a/b'
    """

    def __init__(self, store: Store, path: str = "") -> None:
        self.store = store
        self.path: str = normalize_path(path) if not isinstance(path, str) or path else ""

    @property
    def read_only(self) -> bool:
        """Whether the store refuses writing."""
        return self.store.read_only

    def key(self, name: str) -> str:
        """The key in the store of the value ``name`` below this path.

        >>> cuzarr.storage.StorePath(cuzarr.storage.MemoryStore(), "maps").key("zarr.json")
        'maps/zarr.json'
        """
        return f"{self.path}/{name}" if self.path else name

    def get(self, name: str) -> bytes | None:
        """Reads the value ``name`` below this path; ``None`` if it is missing.

        >>> place = cuzarr.storage.StorePath(cuzarr.storage.MemoryStore({"maps/a": b"bytes"}), "maps")
        >>> place.get("a"), place.get("b")
        (b'bytes', None)
        """
        return self.store.get(self.key(name))

    def write(self, documents: Mapping[str, bytes]) -> None:
        """Write values below this path, given by their names.

        Parameters
        ----------
        documents : mapping of str to bytes
            The values, by their names below this place.

        Raises
        ------
        ReadOnlyError
            The store is read-only.

        >>> place = cuzarr.storage.StorePath(cuzarr.storage.MemoryStore(), "maps")
        >>> place.write({"a": b"bytes"})
        >>> place.store.list()
        ['maps/a']
        """
        for name, value in documents.items():
            self.store.set(self.key(name), value)

    def __truediv__(self, other: str) -> StorePath:
        return StorePath(self.store, f"{self.path}/{other}")

    def __str__(self) -> str:
        return f"{self.store}/{self.path}" if self.path else str(self.store)

    def __repr__(self) -> str:
        return f"StorePath({type(self.store).__name__}, '{printable(str(self))}')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and self.store == other.store and self.path == other.path

    def __hash__(self) -> int:
        return hash((self.store, self.path))


StoreLike: TypeAlias = Union[
    Store, StorePath, os.PathLike[str], str, MutableMapping[str, Any], "ForeignStoreLike", "ZarrStorePath"
]
"""Type of arguments that say where data is stored: a path, a URL, a store, a ``StorePath``, a mapping, or a store of another library."""


def make_store(
    store: StoreLike | None,
    *,
    read_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    mode: AccessMode | None = None,
) -> Store:
    """Converts a caller's argument to a store: a path, a URL, a mapping, or a store of another library.

    Parameters
    ----------
    store : StoreLike
        A path, a URL, a store of any library, or a dictionary; ``None`` is new memory.
    read_only : bool
        Whether writing is refused.
    mode : str, optional
        The mode for a ZIP file. Other stores have no modes.

    Raises
    ------
    UnsupportedError, InvalidArgumentError
        No store knows the URL's scheme, or the URL does not name a place.
    TypeError
        The object is no store.

    >>> type(cuzarr.storage.make_store({})).__name__, type(cuzarr.storage.make_store("a.zarr")).__name__
    ('MemoryStore', 'LocalStore')
    """
    scheme, mark, rest = str(store).partition("://") if isinstance(store, str) else ("", "", "")
    # A chain of URLs names a file inside another one: zip://inner::https://…
    is_remote = bool(mark) and (scheme not in schemes.LOCAL or (scheme == "zip" and "::" in rest))
    if isinstance(store, str) and not is_remote and "::" in store:
        is_remote = _is_chain_of_known(store)
    if mark and not rest and not (storage_options and scheme.rpartition("::")[2] in schemes.PLACELESS):
        raise InvalidArgumentError(f"'{store}' is a URL without a place", hint=_place_hint(scheme))
    if is_remote:
        known = UrlStore.known(str(store), storage_options=storage_options, read_only=read_only)
        if known is not None:
            return known
    if storage_options is not None and not is_remote:
        raise TypeError("storage_options only serve URLs of remote stores")
    if is_remote:
        return open_url(str(store), storage_options, read_only)
    if isinstance(store, StorePath):
        store = store.store
    # The zarr-python form of a cuzarr store holds the store itself.
    store = getattr(store, "cuzarr_store", store)
    if isinstance(store, Store):
        return store.with_read_only(True) if read_only and not store.read_only else store
    if store is None:
        return MemoryStore(read_only=read_only)
    if isinstance(store, str) and scheme == "memory" and rest:
        return MemoryStore.at(store, read_only=read_only)
    if isinstance(store, str | os.PathLike):
        path = rest if scheme in ("file", "zip") and rest else os.fspath(store)
        if scheme == "zip" or is_zip_file(path):
            return ZipStore(path, mode=_zip_mode(path, mode, read_only))
        return LocalStore(path, read_only=read_only)
    if isinstance(store, dict):
        return MemoryStore(store, read_only=read_only)
    return _known_of_zarr(store, read_only) or ForeignStore(store, read_only=read_only)  # type: ignore[arg-type]  # refused there


def _is_chain_of_known(text: str) -> bool:
    """Whether text with ``::`` is a chain of stores with built-in schemes, such as ``zip::a.zip``. Otherwise it is a path."""
    # A single letter before the colons is a drive.
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+::.", text) is not None and UrlStore.knows(text)


def _place_hint(scheme: str) -> str | None:
    if scheme == "reference":
        return "say where the references are: storage_options={'fo': 'references.json', …}"
    return schemes.near(scheme)


def _zip_mode(path: str, mode: str | None, read_only: bool) -> Any:
    if read_only or (mode is None and os.path.exists(path)):
        return "r"
    return {"w": "w", "w-": "x"}.get(mode or "a", "a")


def _known_of_zarr(store: Any, read_only: bool) -> Store | None:
    """A store of cuzarr for the files of a zarr-python store; ``None`` if it would read them differently."""
    zarr_storage = sys.modules.get("zarr.storage")
    if zarr_storage is None:
        return None
    if type(store) is getattr(zarr_storage, "LocalStore", None):
        return LocalStore(store.root, read_only=read_only or store.read_only)
    if type(store) is getattr(zarr_storage, "DirectoryStore", None):  # zarr-python 2 has this class
        return LocalStore(store.path, read_only=read_only)
    return None


def make_store_path(
    store: StoreLike | None,
    *,
    path: object = None,
    mode: AccessMode | None = None,
    storage_options: Mapping[str, Any] | None = None,
    metadata_store: StoreLike | None = None,
) -> StorePath:
    """Converts a caller's argument to a store, opened in ``mode``, and a path in the store. With ``metadata_store``, metadata documents are
    in that store.

    Parameters
    ----------
    store : StoreLike
        A path, a URL, a store of any library, a dictionary, or a :class:`StorePath`.
    path : str, optional
        A path in the store.
    mode : {"r", "r+", "a", "w", "w-"}, optional
        ``"w"`` removes an existing node.
    metadata_store : StoreLike, optional
        Another store, in which metadata documents live.

    Raises
    ------
    FileExistsError
        The mode is ``"w-"``, and there are values at the place.

    >>> cuzarr.storage.make_store_path({}, path="a/b").path
    'a/b'
    """
    if mode is not None and (not isinstance(mode, str) or mode not in MODES):
        raise InvalidArgumentError(f"mode is {mode!r}, expected one of {', '.join(MODES)}")
    prefix = ""
    if isinstance(store, StorePath):
        prefix = store.path
    elif hasattr(store, "store") and hasattr(store, "path") and type(store).__name__ == "StorePath":
        store, prefix = store.store, store.path  # type: ignore[union-attr]  # zarr-python's
    opened = make_store(store, read_only=mode == "r", storage_options=storage_options, mode=mode)
    if metadata_store is not None:
        opened = SplitStore(opened, make_store(metadata_store, read_only=mode == "r"), read_only=opened.read_only)
    if opened.read_only and mode not in (None, "r"):
        raise ReadOnlyError(f"{opened} is read-only, but mode is {mode!r}", hint="use mode 'r' or a writable store")
    if prefix or path is not None:
        prefix = f"{prefix}/{normalize_path(path)}"
    place = StorePath(opened, prefix)
    if mode == "w-" and not opened.is_empty(place.path):
        hint = "hint: open it with mode='a', or replace it with mode='w'"
        raise FileExistsError(f"{printable(str(place))} holds data already, and mode 'w-' only creates\n{hint}")
    return place


def iterate_parents(path: str) -> Iterator[str]:
    """The paths of all groups above an array or group at ``path``, the root first.

    Parameters
    ----------
    path : str
        A path inside a store.

    Returns
    -------
    iterator of str
        Paths, from the root ``""`` on.

    Raises
    ------
    InvalidArgumentError
        The path leaves the store.

    >>> list(cuzarr.storage.iterate_parents("a/b"))
    ['', 'a']
    """
    if path:
        yield ""
        segments = path.split("/")[:-1]
        for end in range(1, len(segments) + 1):
            yield "/".join(segments[:end])


def _in_zarr_form(store: Store) -> Any:
    from cuzarr.storage.zarr_form import in_zarr_form

    return in_zarr_form(store)


Store._in_zarr_form = _in_zarr_form


documented(
    """
    storage_options : dict, optional
        Options for URLs of remote stores.
    >>> import cuzarr
    """,
)(globals())

"""Stores of other libraries by the names that zarr-python has for them; their own objects and URLs are taken as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from cuzarr.errors import InvalidArgumentError, LibraryMissingError
from cuzarr.storage.resolve import open_url
from cuzarr.storage.stores import ForeignStore


class FsspecStore(ForeignStore):
    """A directory of a file system of fsspec's, which may be asynchronous or not.

    Parameters
    ----------
    fs
        The file system.
    read_only
        Whether writing is refused.
    path
        The directory, without a scheme.

    >>> import cuzarr, fsspec
    >>> store = cuzarr.storage.FsspecStore(fsspec.filesystem("memory"), path="/field")
    >>> cuzarr.zeros((2,), store=store)[:].tolist()
    [0.0, 0.0]
    """

    def __init__(self, fs: Any, read_only: bool = False, path: str = "/") -> None:
        if "://" in path:
            raise InvalidArgumentError(f"path argument to FsspecStore must not include scheme ({path})")
        try:
            from fsspec.mapping import FSMap
        except ImportError as error:
            raise LibraryMissingError("FsspecStore needs fsspec", hint="pip install fsspec") from error
        self.fs, self.path = fs, path
        super().__init__(FSMap(path, fs), read_only=read_only)

    @classmethod
    def from_mapper(cls, fs_map: Any, read_only: bool = False) -> Self:
        """The store of a mapping of fsspec's."""
        return cls(fs_map.fs, read_only, fs_map.root)

    @classmethod
    def from_upath(cls, upath: Any, read_only: bool = False) -> Self:
        """The store at a path of universal-pathlib's."""
        return cls(upath.fs, read_only, upath.path.rstrip("/") or "/")

    @classmethod
    def from_url(cls, url: str, storage_options: Mapping[str, Any] | None = None, read_only: bool = False) -> Self:
        """The store at a URL, whose settings are those of its file system.

        Raises
        ------
        UnsupportedError
            fsspec is not installed, or the package for this scheme is not.
        """
        return cls.from_mapper(open_url(url, storage_options, read_only).wrapped, read_only)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.fs, self._read_only, self.path)


class ObjectStore(ForeignStore):
    """A store of obstore's."""

    def __init__(self, store: Any, *, read_only: bool = False) -> None:
        super().__init__(store, read_only=read_only)

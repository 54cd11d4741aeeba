"""Stores of other libraries, as classes with zarr-python's names. Functions also accept the libraries' own objects and URLs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from cuzarr import _core
from cuzarr._docstrings import documented
from cuzarr._names import did_you_mean
from cuzarr.errors import (
    InvalidArgumentError,
    LibraryMissingError,
    UnsupportedError,
)
from cuzarr.storage import schemes
from cuzarr.storage.adapters.base import without_secrets
from cuzarr.storage.adapters.choice import adapt_store
from cuzarr.storage.apart import taken_apart
from cuzarr.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from cuzarr.typing import ForeignStoreLike

# Options that every fsspec file system takes.
_TUNING = {
    "asynchronous", "loop", "batch_size", "skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths",
    "block_size", "default_block_size", "default_cache_type", "default_fill_cache", "cache_type",
}  # fmt: skip


class ForeignStore(Store):
    """A store of another library: of zarr-python, obstore or fsspec, or any object with ``get``, ``set``, ``delete`` and ``list``.

    Parameters
    ----------
    store : object
        The store, with ``get``, ``set``, ``delete`` and ``list``.
    read_only : bool
        Whether writing is refused.

    Raises
    ------
    TypeError
        The object is not a store.

    Examples
    --------
    >>> import cuzarr
    >>> import zarr
    >>> store = cuzarr.storage.ForeignStore(zarr.storage.MemoryStore())
    >>> cuzarr.zeros((2,), store=store)[:].tolist()
    [0.0, 0.0]
    """

    def __init__(self, store: ForeignStoreLike | MutableMapping[str, Any], *, read_only: bool = False) -> None:
        self.wrapped = store
        self._adapter = adapt_store(store)
        self.supports_deletes: bool = self._adapter.supports_deletes
        self.supports_consolidated_metadata: bool = bool(getattr(store, "supports_consolidated_metadata", True))
        read_only = read_only or bool(getattr(store, "read_only", False))
        self._through_python = _core.Store.python(self._adapter)
        super().__init__(taken_apart(store, self._through_python, read_only) or self._through_python, read_only=read_only)

    def with_read_only(self, read_only: bool = False) -> Self:
        """Returns a store over the same values that refuses or allows writing.

        Parameters
        ----------
        read_only : bool
            Whether the result refuses writing. With ``False``, a store of zarr-python that refuses writing is replaced by its writable form.

        Returns
        -------
        ForeignStore
            A store of this class over the same values.

        Examples
        --------
        >>> import cuzarr, zarr
        >>> store = cuzarr.storage.ForeignStore(zarr.storage.MemoryStore(read_only=True))
        >>> store.read_only, store.with_read_only(False).read_only
        (True, False)
        """
        twin = super().with_read_only(read_only)
        if not read_only and getattr(self.wrapped, "read_only", False) and hasattr(self.wrapped, "with_read_only"):
            # zarr-python's read-only stores refuse writes themselves.
            twin.wrapped = self.wrapped.with_read_only(False)
            twin._adapter = adapt_store(twin.wrapped)
            twin._handle = twin._through_python = _core.Store.python(twin._adapter)
        if not read_only and twin._handle.is_read_only():
            twin._handle = twin._through_python
        return twin

    def __str__(self) -> str:
        return self._adapter.describe()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForeignStore) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __reduce__(self) -> tuple[Any, ...]:
        self._adapter.check_sent()
        return type(self)._rebuilt, (self.wrapped, self._read_only)

    @classmethod
    def _rebuilt(cls, store: Any, read_only: bool) -> Self:
        return cls(store, read_only=read_only)


def open_url(url: str, storage_options: Mapping[str, Any] | None, read_only: bool) -> ForeignStore:
    """Opens the store at a URL of fsspec, such as ``ftp://…``.

    Raises
    ------
    UnsupportedError
        fsspec is not installed, or the package for this scheme is not.
    InvalidArgumentError
        The file system has no such option.
    """
    try:
        import fsspec
    except ImportError:
        hint = "install fsspec, or pass a store object, such as one of obstore's"
        raise UnsupportedError(f"no store for '{without_secrets(url)}' is built in", hint=hint) from None
    try:
        mapping = fsspec.get_mapper(url, **(storage_options or {}))
    except (ImportError, ValueError) as error:
        scheme = url.partition("://")[0].partition("::")[0]
        raise UnsupportedError(
            f"fsspec has no store for '{without_secrets(url)}': {without_secrets(str(error))}", hint=schemes.near(scheme)
        ) from error
    check_options(mapping.fs, url, storage_options or {})
    return ForeignStore(mapping, read_only=read_only)


def check_options(fs: Any, url: str, options: Mapping[str, Any]) -> None:
    """Refuses options that an fsspec file system would ignore, because it has neither a parameter of the option's name nor an attribute
    that keeps the option.

    Raises
    ------
    InvalidArgumentError
        There is such an option.
    """
    named = {
        name
        for above in type(fs).__mro__
        if "__init__" in vars(above)
        for name, parameter in inspect.signature(vars(above)["__init__"]).parameters.items()
        if name != "self" and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    if named <= _TUNING:
        return  # the file system declares no options, so it may use any option
    # In a chain of URLs, each part has its options under its scheme.
    links = {link.partition("://")[0] for link in url.split("::")}
    attributes = object.__getattribute__(fs, "__dict__")
    kept = [value for name, value in attributes.items() if name != "storage_options" and isinstance(value, Mapping)]
    for name in options:
        if name in named | _TUNING | links | attributes.keys() or any(name in value for value in kept):
            continue
        near = did_you_mean(name, named)
        hint = near or f"known options: {', '.join(sorted(named))}"
        raise InvalidArgumentError(f"unknown storage option '{name}' for '{without_secrets(url)}'", hint=hint)


@documented(
    """
    read_only : bool
        Whether writing is refused.
    >>> import cuzarr
    """,
)
class FsspecStore(ForeignStore):
    """A directory of an fsspec file system, asynchronous or not.

    Parameters
    ----------
    fs
        The file system.
    read_only
        Whether writing is refused.
    path
        The directory, without a scheme.

    Raises
    ------
    ReadOnlyError
        From writing to a store that is read-only.

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
        self.fs: Any = fs
        self.path: str = path
        super().__init__(FSMap(path, fs), read_only=read_only)

    @classmethod
    def from_mapper(cls, fs_map: Any, read_only: bool = False) -> Self:
        """The store of a mapping that ``fsspec.get_mapper`` or ``fs.get_mapper`` made.

        Parameters
        ----------
        fs_map : fsspec.mapping.FSMap
            The mapping. Its file system and directory are used.

        >>> import cuzarr, fsspec
        >>> store = cuzarr.storage.FsspecStore.from_mapper(fsspec.get_mapper("memory://mapped"))
        >>> store.set("a", b"bytes")
        >>> store.path, store.list()
        ('/mapped', ['a'])
        """
        return cls(fs_map.fs, read_only, fs_map.root)

    @classmethod
    def from_upath(cls, upath: Any, read_only: bool = False) -> Self:
        """The store at a path of the package ``universal_pathlib``.

        Parameters
        ----------
        upath : upath.UPath
            The directory. Its file system is used.

        >>> from upath import UPath  # doctest: +SKIP
        >>> store = cuzarr.storage.FsspecStore.from_upath(UPath("memory://values"))  # doctest: +SKIP
        """
        return cls(upath.fs, read_only, upath.path.rstrip("/") or "/")

    @classmethod
    def from_url(cls, url: str, storage_options: Mapping[str, Any] | None = None, read_only: bool = False) -> Self:
        """Opens the store at a URL of fsspec, such as ``ftp://…``.

        Parameters
        ----------
        url : str
            The URL, with its scheme: ``"memory://values"``, ``"s3://bucket/data.zarr"``.
        storage_options : dict, optional
            Settings of the file system, by fsspec's names.

        Raises
        ------
        UnsupportedError
            fsspec is not installed, or the package for this scheme is not.

        >>> store = cuzarr.storage.FsspecStore.from_url("memory://from-url")
        >>> store.set("a", b"bytes")
        >>> store.list()
        ['a']
        """
        return cls.from_mapper(open_url(url, storage_options, read_only).wrapped, read_only)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.fs, self._read_only, self.path)


class ObjectStore(ForeignStore):
    """A store of the library obstore.

    Parameters
    ----------
    store : obstore store
        The store.
    read_only : bool
        Whether writing is refused.

    Raises
    ------
    TypeError
        The object is not a store of obstore.

    Examples
    --------
    >>> import cuzarr
    >>> import obstore.store  # doctest: +SKIP
    >>> store = cuzarr.storage.ObjectStore(obstore.store.MemoryStore())  # doctest: +SKIP
    >>> cuzarr.zeros((2,), store=store)[:].tolist()  # doctest: +SKIP
    [0.0, 0.0]
    """

    def __init__(self, store: ForeignStoreLike, *, read_only: bool = False) -> None:
        super().__init__(store, read_only=read_only)

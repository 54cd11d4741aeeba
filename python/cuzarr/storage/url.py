"""Stores that URLs name, opened by the Rust side's registry of schemes."""

from __future__ import annotations

from typing import Any

from cuzarr import _core
from cuzarr._text import printable
from cuzarr.errors import UnsupportedError
from cuzarr.storage.store import Store


class UrlStore(Store):
    """What a URL or a chain of URLs names, opened without another library: ``zip://inner::file:///data/a.zip``.

    Raises
    ------
    UnsupportedError
        A scheme of the URL is not built in.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        handle = _core.Store.open_url(url)
        if handle is None:
            raise UnsupportedError(
                f"'{printable(url)}': a scheme is not built in", hint="use make_store, which asks fsspec as well"
            )
        self.url = url
        self.supports_writes: bool = not handle.is_read_only()
        self.supports_deletes: bool = self.supports_writes
        super().__init__(handle, read_only=read_only)

    @classmethod
    def known(cls, url: str, *, read_only: bool) -> UrlStore | None:
        """The store at a URL; ``None`` when one of its schemes is not built in."""
        return cls(url, read_only=read_only) if _core.Store.knows_url(url) else None

    def __str__(self) -> str:
        return self.url

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlStore) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._rebuilt, (self.url, self._read_only)

    @classmethod
    def _rebuilt(cls, url: str, read_only: bool) -> UrlStore:
        return cls(url, read_only=read_only)

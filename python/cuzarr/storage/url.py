"""``UrlStore``, a store at a URL that the Rust side opens."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cuzarr import _core
from cuzarr._config import config
from cuzarr._docstrings import documented
from cuzarr._text import printable
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from cuzarr.storage.adapters.base import without_secrets
from cuzarr.storage.parquet import PARQUET_TABLE, open_table
from cuzarr.storage.store import Store

CREDENTIALS = "credential_provider"

_QUERY = re.compile(r"((?:^|.*::)https?://[^?]*)\?.*", re.DOTALL)
"""Matches a URL of a web server (or a chain that ends in one) with a query, such as ``https://host/a.zarr?key=1``. The matched group is the
URL without its query."""


@documented(
    ">>> import cuzarr",
)
class UrlStore(Store):
    """A store at a URL, such as ``s3://bucket/data.zarr``. It needs no other library.

    A chain of URLs names a store inside another: ``zip://inner::https://host/a.zip``.

    Parameters
    ----------
    url
        The URL.
    Credentials, endpoints and timeouts of remote stores, by their names in fsspec, obstore or object_store. They take precedence
    over the section ``storage`` of the configuration. ``credential_provider`` is a function that returns new credentials as a
    dictionary, with their expiry time as ``expires_at``.
    read_only
        Whether writing is refused.

    Raises
    ------
    UnsupportedError
        A scheme of the URL is not built in.
    InvalidArgumentError
        An option is not known.

    >>> store = cuzarr.storage.UrlStore("memory://notes")
    >>> store.set("a", b"bytes")
    >>> cuzarr.storage.UrlStore("memory://notes").get("a")
    b'bytes'
    """

    def __init__(self, url: str, *, storage_options: Mapping[str, Any] | None = None, read_only: bool = False) -> None:
        url = _with_whole_path(url)
        given = dict(storage_options or {})
        self._credentials: Callable[[], Any] | None = given.pop(CREDENTIALS, None)
        self._options = flat_options(given)
        provider = None if self._credentials is None else Credentials(self._credentials)
        options = [*flat_options(config.get("storage", {})), *self._options]
        table = PARQUET_TABLE.fullmatch(url)
        handle = _core.Store.open_url(url, options, provider) if table is None else open_table(table[1], given, options)
        if handle is None:
            raise UnsupportedError(
                f"'{printable(without_secrets(url))}': a scheme is not built in",
                hint="use make_store, which asks fsspec as well",
            )
        self.url = url
        self.supports_writes: bool = not handle.is_read_only()
        self.supports_deletes: bool = self.supports_writes
        super().__init__(handle, read_only=read_only)

    @staticmethod
    def knows(url: str) -> bool:
        """Whether cuzarr itself can open a URL, or a chain of URLs: all of its schemes are built in.

        Parameters
        ----------
        url : str
            The URL. Nothing is opened.

        Returns
        -------
        bool
            ``True`` if :class:`UrlStore` opens such URLs.

        >>> knows = cuzarr.storage.UrlStore.knows
        >>> knows("s3://bucket/data.zarr"), knows("zip::https://host/a.zip"), knows("ftp://host/a")
        (True, True, False)
        """
        return bool(_core.Store.knows_url(url))

    @classmethod
    def known(cls, url: str, *, storage_options: Mapping[str, Any] | None = None, read_only: bool) -> UrlStore | None:
        """Opens the store at a URL; ``None`` if :class:`UrlStore` cannot open it, but fsspec may.

        Parameters
        ----------
        url : str
            The URL.
        storage_options : dict, optional
            Options as for :class:`UrlStore`.
        read_only : bool
            Whether writing is refused.

        Returns
        -------
        UrlStore or None
            ``None`` if a scheme is not built in, or an option is an object of another library.

        Raises
        ------
        InvalidArgumentError
            An option is not known.

        >>> cuzarr.storage.UrlStore.known("memory://notes", read_only=True)
        UrlStore('memory://notes')
        >>> cuzarr.storage.UrlStore.known("ftp://host/a", read_only=True) is None
        True
        """
        options = {name: value for name, value in (storage_options or {}).items() if name != CREDENTIALS}
        # With the option "fo", and for a URL without a place such as "reference://", fsspec's options locate the data.
        if url.endswith("://") or "fo" in options or not cls.knows(url):
            return None
        if not all(map(_is_plain, options.values())):
            return None
        return cls(url, storage_options=storage_options, read_only=read_only)

    def __str__(self) -> str:
        return without_secrets(self.url)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlStore) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __reduce__(self) -> tuple[Any, ...]:
        secrets = [name for name, _ in self._options if _core.Store.is_secret_option(name)]
        if secrets:
            raise ArgumentTypeError(
                f"{self} cannot be pickled: its storage_options hold secrets ({', '.join(secrets)})",
                hint="put the credentials into the environment of each process, and leave them out of storage_options",
            )
        provider = {} if self._credentials is None else {CREDENTIALS: self._credentials}
        # The query may be a signature, so it is not pickled.
        signed = _QUERY.fullmatch(self.url)
        url = self.url if signed is None else signed[1]
        return type(self)._rebuilt, (url, self._read_only, dict(self._options) | provider, signed is not None)

    @classmethod
    def _rebuilt(cls, url: str, read_only: bool, options: Mapping[str, Any] | None = None, had_query: bool = False) -> UrlStore:
        names = {name for name, _ in flat_options(config.get("storage", {}))}
        if had_query and not names & {"query", "http.query"}:
            raise InvalidArgumentError(
                f"'{printable(without_secrets(url))}' was pickled without the query of its URL, which may be a signature",
                hint="set CUZARR_STORAGE__HTTP__QUERY in the environment of each process to the text behind the '?'",
            )
        return cls(url, storage_options=options, read_only=read_only)


class Credentials:
    """The user's function that gives credentials for a store, wrapped so that its result has the form that the Rust side needs."""

    def __init__(self, provider: Callable[[], Any]) -> None:
        if not callable(provider):
            raise ArgumentTypeError(
                f"storage option '{CREDENTIALS}' is a {type(provider).__name__}",
                hint="pass a function that returns a dictionary",
            )
        self._provider = provider

    def __call__(self) -> tuple[dict[str, str], float | None]:
        given = self._provider()
        if inspect.isawaitable(given):
            given = asyncio.run(_awaited(given))
        if not isinstance(given, Mapping):
            raise ArgumentTypeError(f"{CREDENTIALS} returned a {type(given).__name__}, expected a dictionary")
        values = {str(name): str(value) for name, value in given.items() if name != "expires_at" and value is not None}
        return values, _seconds(given.get("expires_at"))


async def _awaited(given: Any) -> Any:
    return await given


def _seconds(end: Any) -> float | None:
    """The time at which credentials expire in seconds since 1970, from a datetime, an ISO text or a number."""
    if isinstance(end, str):
        end = datetime.datetime.fromisoformat(end)
    if isinstance(end, datetime.datetime):
        # A time without a zone is in UTC, as in the answers of cloud services.
        return (end if end.tzinfo else end.replace(tzinfo=datetime.UTC)).timestamp()
    return None if end is None else float(end)


def _with_whole_path(url: str) -> str:
    """Makes the path at the end of a chain such as ``zip::a.zip`` absolute, so that it names the same file in every working directory."""
    chain = re.fullmatch(r"((?:[A-Za-z][A-Za-z0-9+.-]+(?:://(?:(?!::).)*)?::)+)(.+)", url, re.DOTALL)
    if chain is None or "://" in chain[2]:
        return url
    return f"{chain[1]}file://{os.path.abspath(chain[2])}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, str | int | float)


def flat_options(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Converts the user's ``storage_options`` to the Rust side's form: pairs of name and text. Names of nested options are joined by dots:
    ``client_kwargs.endpoint_url``.

    Raises
    ------
    ArgumentTypeError
        A value is an object of another library.
    """
    return list(_flat(options, ""))


def _flat(options: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}.")
        elif not _is_plain(value):
            hint = "pass text, numbers and mappings, or use cuzarr.storage.FsspecStore.from_url"
            # The text in place of a header's name may be the whole header.
            shown = path.partition("headers.")[0] + "headers" if "headers." in path else path
            raise ArgumentTypeError(f"storage option '{shown}' is a {type(value).__name__}", hint=hint)
        elif value is not None:
            yield path, str(value).lower() if isinstance(value, bool) else str(value)

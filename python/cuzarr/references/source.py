"""Opens files to which a table of references refers: on this machine, or in a store at a URL."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cuzarr._text import printable
from cuzarr.errors import InvalidArgumentError, StoreFailedError, UnsupportedError
from cuzarr.storage import schemes
from cuzarr.storage.adapters.base import without_secrets
from cuzarr.storage.resolve import make_store
from cuzarr.storage.store import Store

_BLOCK_BYTES = 1 << 20
_BLOCKS = 64

# Schemes of URLs that a table may contain, and the names they get there.
_SCHEMES = schemes.BUCKETS | {name: name for name in (*schemes.SERVERS, "memory")}
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_OTHERS = (
    (b"CDF", "is a netCDF-3 file, which is no HDF5 file", "copy it to netCDF-4: nccopy -k nc4 FROM TO"),
    (b"\x0e\x03\x13\x01", "is an HDF4 file", "convert it to HDF5: h4toh5convert FROM TO"),
    (b"GRIB", "is a GRIB file", "make the table with kerchunk or gribberish"),
    (b"PK\x03\x04", "is a ZIP file", "open it as a store, if it holds Zarr: zip::FILE"),
)


class Source:
    """A file to which a table of references refers: its bytes, and its URL in the table.

    Parameters
    ----------
    file : path or str
        A path, or a URL.
    storage_options : dict, optional
        Options for URLs, as for :func:`cuzarr.storage.make_store`.

    Raises
    ------
    StoreFailedError
        The file cannot be read.
    UnsupportedError
        The file is not an HDF5 file, or a table cannot name it.
    """

    name: str
    url: str
    size_bytes: int

    def __init__(self, file: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> None:
        text = os.fspath(file)
        scheme, mark, rest = text.partition("://") if isinstance(text, str) else ("", "", "")
        self.store: Store | None = None
        if mark and scheme.lower() not in ("file", "local"):
            self._open_remote(text, scheme.lower(), rest, storage_options)
        else:
            self.name = os.path.abspath(rest if mark else text)
            self.url = f"file://{self.name}"
            self._open_local()
        self._check_url()
        self._check_signature()

    def _open_local(self) -> None:
        try:
            if os.path.isdir(self.name):
                raise UnsupportedError(f"'{printable(self.name)}' is a folder, expected a netCDF-4 or HDF5 file")
            self.size_bytes = os.stat(self.name).st_size
        except (OSError, ValueError) as error:
            if isinstance(error, UnsupportedError):
                raise
            reason = getattr(error, "strerror", None) or error
            raise StoreFailedError(f"'{printable(self.name)}' cannot be read: {reason}") from error

    def _open_remote(self, url: str, scheme: str, rest: str, options: Mapping[str, Any] | None) -> None:
        self.name, self.url = without_secrets(url), url
        folder, _, self._key = rest.partition("?")[0].rpartition("/")
        if scheme not in _SCHEMES or "::" in url:
            known = ", ".join(sorted({*_SCHEMES.values(), "file"}))
            raise UnsupportedError(f"a table cannot name '{printable(self.name)}'", hint=f"use a URL of one of {known}")
        if not folder or not self._key:
            raise InvalidArgumentError(f"'{printable(self.name)}' names no file")
        query = "".join(url.partition("?")[1:])
        self._key = unquote(self._key) if scheme.startswith("http") else self._key
        self.store = make_store(f"{scheme}://{folder}{query}", read_only=True, storage_options=options)
        size = self.store.handle.getsize(self._key)
        if size is None:
            raise StoreFailedError(f"'{printable(self.name)}' cannot be read: there is no such file")
        self.size_bytes = size

    def _check_url(self) -> None:
        if not is_unicode(self.url) or re.search(r"[\x00-\x1f\x7f\\]|::", self.url):
            raise UnsupportedError(f"a table cannot name '{printable(self.name)}'", hint="rename the file or its folder")

    def _check_signature(self) -> None:
        if not self.size_bytes:
            raise UnsupportedError(f"'{printable(self.name)}' is empty, expected a netCDF-4 or HDF5 file")
        first = self.read(0, min(8, self.size_bytes))
        for begins, what, hint in _OTHERS:
            if first.startswith(begins):
                raise UnsupportedError(f"'{printable(self.name)}' {what}", hint=hint)
        # The HDF5 part may begin behind a user block, whose size is 512 bytes times a power of two.
        place = 0
        while place + 8 <= self.size_bytes:
            if self.read(place, 8) == _SIGNATURE:
                return
            place = place * 2 or 512
        raise UnsupportedError(f"'{printable(self.name)}' is no netCDF-4 or HDF5 file: it has no signature of HDF5")

    def open(self) -> Any:
        """The argument to pass to ``h5py.File`` for this file: a path, or a file object."""
        return self.name if self.store is None else io.BufferedReader(_Ranges(self), _BLOCK_BYTES // 8)

    def read(self, offset: int, size: int) -> bytes:
        """Reads ``size`` bytes of this file from ``offset`` on.

        Raises
        ------
        StoreFailedError
            The file ends before the end of the range.
        """
        if offset < 0 or offset + size > self.size_bytes:
            raise StoreFailedError(f"'{printable(self.name)}' ends at byte {self.size_bytes}, before byte {offset + size}")
        if self.store is not None:
            part = self.store.handle.get(self._key, offset, offset + size)
            if part is None:
                raise StoreFailedError(f"'{printable(self.name)}' is gone")
            return part
        try:
            with Path(self.name).open("rb") as file:
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            raise StoreFailedError(f"'{printable(self.name)}' cannot be read: {error.strerror}") from error


def is_unicode(text: str) -> bool:
    """Whether text is valid Unicode. Python keeps bytes of other encodings as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Ranges(io.RawIOBase):
    """A Python file object for a file in a store. It reads in blocks, and keeps the last ones."""

    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0
        self._block = lru_cache(_BLOCKS)(self._read_block)

    def _read_block(self, number: int) -> bytes:
        start = number * _BLOCK_BYTES
        return self._source.read(start, min(_BLOCK_BYTES, self._source.size_bytes - start))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.size_bytes}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._source.size_bytes:
            return 0
        number, begin = divmod(self._at, _BLOCK_BYTES)
        part = self._block(number)[begin : begin + len(buffer)]
        memoryview(buffer).cast("B")[: len(part)] = part
        self._at += len(part)
        return len(part)

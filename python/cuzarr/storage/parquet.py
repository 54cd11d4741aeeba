"""Opens kerchunk's tables of references that are stored in Parquet files, with the help of fsspec. The references of an array are read when
its first chunk is needed."""

from __future__ import annotations

import base64
import json
import math
import posixpath
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr.errors import LibraryMissingError, StoreFailedError, UnsupportedError
from cuzarr.storage import schemes

PARQUET_TABLE = re.compile(r"reference:(?::|//(?=/))((?:(?!::).)+\.parq(?:uet)?)/?", re.DOTALL)
"""Matches URLs of tables of references in Parquet: ``reference::s3://bucket/table.parq``, ``reference:///data/table.parq``."""

# Options that are not passed to the table's own file system.
_OWN = ("allow", "remote_protocol", "remote_options", "target_protocol", "target_options", "lazy")

Columns = tuple[list[str], list[str], list[int], list[int], list[int]]
"""Columns of a table of references: keys, URLs of files, and for each key its file, first byte and number of bytes (0: the whole file)."""


def open_table(url: str, given: Mapping[str, Any], options: list[tuple[str, str]]) -> _core.Store:
    """Opens the store that a table of references at a URL or path describes.

    The table may refer to files in its own bucket or folder and, like other tables, to files that the options allow.

    Raises
    ------
    LibraryMissingError
        fsspec, or the library with which it reads Parquet, is not installed.
    StoreFailedError
        There is no such table.
    """
    try:
        import fsspec
        from fsspec.implementations.reference import LazyReferenceMapper
    except ImportError as error:
        raise LibraryMissingError(f"tables in Parquet need fsspec: {error}", hint="pip install fsspec fastparquet") from error
    plain = {name: value for name, value in given.items() if name not in _OWN and "." not in name}
    fs, root = fsspec.core.url_to_fs(url, **plain, **given.get("target_options", {}))
    scheme, _, place = str(fs.unstrip_protocol(root)).partition("://")
    mapper = LazyReferenceMapper(root, fs=fs)
    try:
        table = ParquetTable(mapper, "")
    except (OSError, LookupError, ValueError) as error:
        raise StoreFailedError(f"'{scheme}://{place}' is no table in Parquet: {error!r}") from error
    own = place.partition("/")[0] if scheme in schemes.BUCKETS else posixpath.dirname(place.rstrip("/"))
    if any(mark in own for mark in ", \n"):
        raise UnsupportedError(
            f"'{scheme}://{place}': the path of a table in Parquet has a space or a comma", hint="rename the folder"
        )
    allowed = ",".join([value for name, value in options if name == "allow"] + [f"{scheme}://{own}"])
    like = _core.Store.open_url(f"{scheme}://{place}", [pair for pair in options if pair[0].partition(".")[0] not in _OWN])
    if like is None:
        raise StoreFailedError(f"'{scheme}://{place}': the scheme is not built in")
    chosen = [*(pair for pair in options if pair[0] != "allow"), ("allow", allowed)]
    return _core.Store.references(
        ReferenceColumns().columns(), table.documents, chosen, like, "", (table.arrays, table.references)
    )


class ReferenceColumns:
    """A table of references in the Rust side's form: values that the table holds itself, and columns of byte ranges in files."""

    def __init__(self) -> None:
        self.inline: list[tuple[str, bytes]] = []
        self.urls: dict[str, int] = {}
        self._keys: list[str] = []
        self._files: list[int] = []
        self._offsets: list[int] = []
        self._sizes: list[int] = []

    def add(self, key: str, url: str, offset: int = 0, size: int = 0) -> None:
        """Adds a key whose value is a range of a file, or the whole file if ``size`` is 0."""
        self._keys.append(key)
        self._files.append(self.urls.setdefault(url, len(self.urls)))
        self._offsets.append(offset)
        self._sizes.append(size)

    def add_inline(self, key: str, value: bytes | str) -> None:
        """Adds a key whose value is in the table of references itself."""
        plain = value if isinstance(value, bytes) else value.encode()
        self.inline.append((key, base64.b64decode(plain[7:]) if plain.startswith(b"base64:") else plain))

    def columns(self) -> Columns:
        """The keys whose values are in files, and the byte ranges of these values, as columns."""
        return self._keys, list(self.urls), self._files, self._offsets, self._sizes


class ParquetTable:
    """The references of a ``LazyReferenceMapper`` of fsspec, which reads a Parquet table, for one array at a time."""

    def __init__(self, mapper: Any, target: str) -> None:
        self._mapper, self._target = mapper, target
        self.documents = [(key, json.dumps(document).encode()) for key, document in mapper.zmetadata.items()]
        # The mapper finds an array's chunks by its folder. The root has no folder.
        self.arrays = [key.removesuffix("/.zarray") for key in mapper.zmetadata if key.endswith("/.zarray")]
        # Some values were set and not yet flushed.
        self.is_changed: bool = set(mapper._items) != {".zmetadata"}

    def references(self, array: str) -> tuple[Columns, list[tuple[str, bytes]]]:
        """The references of an array's chunks: columns of byte ranges in files, and values inside the table."""
        document = self._mapper.zmetadata[f"{array}/.zarray"]
        extents = zip(document["shape"], document["chunks"], strict=True)
        counts = [-(-extent // chunk) for extent, chunk in extents] or [1]
        found = ReferenceColumns()
        for record in self._records(array):
            columns = self._mapper.open_refs(array, record)
            if columns is None:
                raise OSError(f"{array}/refs.{record}.parq cannot be read")
            size = len(next(iter(columns.values()))) if columns else 0
            first = record * self._mapper.record_size
            size = max(min(size, math.prod(counts) - first), 0)
            places = np.stack(np.unravel_index(np.arange(first, first + size), counts), -1).tolist() if size else []
            parts = zip(places, *(columns[name][:size] if name in columns else [None] * size for name in _COLUMNS), strict=True)
            for place, url, offset, length, raw in parts:
                key = f"{array}/{'.'.join(map(str, place))}"
                if isinstance(raw, bytes | str):
                    found.add_inline(key, raw)
                elif isinstance(url, str) and offset and not length:
                    found.add_inline(key, b"")
                elif isinstance(url, str):
                    found.add(key, url or self._target, int(offset or 0), int(length or 0))
        return found.columns(), found.inline

    def _records(self, array: str) -> list[int]:
        """The numbers of the Parquet files that hold the references of one array's chunks. They are listed, because the array's shape could
        claim any number of files."""
        try:
            names = self._mapper.fs.ls(f"{self._mapper.root}/{array}", detail=False)
        except FileNotFoundError:
            return []
        found = (re.fullmatch(r"refs\.(\d+)\.parq", str(name).rpartition("/")[2]) for name in names)
        return sorted(int(match[1]) for match in found if match)


_COLUMNS = ("path", "offset", "size", "raw")

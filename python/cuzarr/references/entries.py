"""Entries of a table of references in kerchunk's JSON format: a key of Zarr format 2, and its value or where the value lies in a file."""

from __future__ import annotations

import base64
import json
import posixpath
from collections.abc import Iterator
from typing import Any

import numpy as np

Reference = str | list[str | int]
"""The entry of a key in a table of references: the key's value as text, or the range of a file (URL, first byte, size) that has the value.
Text that begins with ``base64:`` stands for bytes."""

Document = dict[str, Any]
"""The parsed contents of ``.zarray``, ``.zgroup`` or ``.zattrs``."""


def inline(value: bytes) -> str:
    """Converts the bytes of a key's value to the text that stands for them in a table of references."""
    return "base64:" + base64.b64encode(value).decode()


def framed_texts(values: Any) -> bytes:
    """Encodes texts in the format of numcodecs' codec ``vlen-utf8``."""
    texts = np.atleast_1d(np.asarray(values, object)).reshape(-1)
    encoded = [text if isinstance(text, bytes) else str(text).encode() for text in texts]
    return len(encoded).to_bytes(4, "little") + b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def documents(path: str, array: Document | None, attributes: Document) -> Iterator[tuple[str, Reference]]:
    """Yields the keys and the metadata documents of an array, or of a group if ``array`` is ``None``."""
    if array is None:
        yield posixpath.join(path, ".zgroup"), json.dumps({"zarr_format": 2})
    else:
        yield posixpath.join(path, ".zarray"), json.dumps(array)
    if attributes:
        yield posixpath.join(path, ".zattrs"), json.dumps(attributes)

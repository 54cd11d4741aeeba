"""Entries of a table in kerchunk's JSON format: a key of Zarr format 2, with its value or with the place of its bytes."""

from __future__ import annotations

import base64
import json
import posixpath
from collections.abc import Iterator
from typing import Any

import numpy as np

Reference = str | list[str | int]
"""The value of a key, as text or ``base64:…``; or its place in a file: URL, first byte and number of bytes."""

Document = dict[str, Any]
"""The contents of ``.zarray``, ``.zgroup`` or ``.zattrs``."""


def inline(value: bytes) -> str:
    """A value in the form in which the table itself holds it."""
    return "base64:" + base64.b64encode(value).decode()


def framed_texts(values: Any) -> bytes:
    """Texts in the format of numcodecs' ``vlen-utf8``."""
    texts = np.atleast_1d(np.asarray(values, object)).reshape(-1)
    encoded = [text if isinstance(text, bytes) else str(text).encode() for text in texts]
    return len(encoded).to_bytes(4, "little") + b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def documents(path: str, array: Document | None, attributes: Document) -> Iterator[tuple[str, Reference]]:
    """The metadata documents of an array, or of a group (``array`` is ``None``), with their keys."""
    if array is None:
        yield posixpath.join(path, ".zgroup"), json.dumps({"zarr_format": 2})
    else:
        yield posixpath.join(path, ".zarray"), json.dumps(array)
    if attributes:
        yield posixpath.join(path, ".zattrs"), json.dumps(attributes)

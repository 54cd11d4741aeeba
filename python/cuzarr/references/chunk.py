"""Decodes and encodes single chunks, as readers of a table of references do."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._memory import convert, foreign, strings
from cuzarr.references.entries import Document

_OPTIONS = {"device": "cpu", "write_empty_chunks": True}


def _key(document: Document) -> str:
    return ".".join("0" for _ in document["chunks"]) or "0"


def _array(store: _core.Store, document: Document) -> tuple[_core.Array, Any]:
    """Makes a temporary array with one chunk, encoded as the ``.zarray`` in ``document`` says, and a selection of the whole chunk."""
    shape = tuple(document["chunks"])
    array = _core.Array(store, "", {".zarray": document | {"shape": list(shape)}}, _OPTIONS)
    return array, ((0,) * len(shape), shape, (1,) * len(shape), ())


def decoded(document: Document, chunk: bytes | None, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Decodes a chunk by the ``.zarray`` in ``document``. Without ``chunk``, returns the elements of a chunk that is not stored.

    Raises
    ------
    CuzarrError
        The document's filters cannot decode the chunk, or the document does not describe an array.
    """
    store = _core.Store.memory()
    if chunk is not None:
        store.set(_key(document), chunk)
    array, everything = _array(store, document)
    if dtype.hasobject:
        return np.asarray(strings.to_array(array.read_variable(everything, True), document["chunks"], dtype), dtype)
    elements = convert.result_array(array.read(everything), dtype.newbyteorder("="))
    return np.asarray(elements).astype(dtype)


def encoded(document: Document, elements: np.ndarray[Any, Any]) -> bytes:
    """Encodes elements as a chunk, by the ``.zarray`` in ``document``."""
    store = _core.Store.memory()
    array, everything = _array(store, document)
    array.write(everything, foreign.wrap_host(np.ascontiguousarray(elements, elements.dtype.newbyteorder("="))))
    chunk = store.get(_key(document))
    assert chunk is not None, "chunks of fill values are written too"
    return chunk

"""HDF5 files, netCDF-4 among them, as arrays and groups of Zarr's format 2 whose chunks lie in the file."""

from __future__ import annotations

import base64
import json
import math
import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from cuzarr._text import printable
from cuzarr.errors import UnsupportedError

INLINE_BYTES = 512
"""Values of up to this size are put into the table."""

LONGEST_PART = 64 << 20
"""Contiguous elements are cut into chunks of about this size."""

# What netCDF keeps in attributes for itself.
_OWN = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_NCProperties", "_nc3_strict", "_Netcdf4Dimid",
        "_Netcdf4Coordinates")  # fmt: skip
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"

# Filters by their numbers in HDF5.
_DEFLATE, _SHUFFLE, _FLETCHER32, _BLOSC, _ZSTD = 1, 2, 3, 32001, 32015
_NAMES = {4: "szip", 5: "n-bit", 6: "scale-offset", 32000: "LZF", 32004: "LZ4", 32008: "bitshuffle", 32013: "ZFP"}


@dataclass
class Variable:
    """A dataset as an array of a table. Its path begins at the root of the table."""

    path: str
    dataset: Any
    layout: Layout
    attributes: dict[str, Any]
    fill: Any

    @property
    def dimensions(self) -> list[str]:
        """The names of its dimensions."""
        return self.attributes["_ARRAY_DIMENSIONS"]  # type: ignore[no-any-return]


class Hdf5:
    """A file that is open.

    Parameters
    ----------
    h5py
        The library.
    file : path
        The file.
    above : str
        The path of the file's root in the table.
    whole_rows : int
        What the number of rows in a piece of contiguous elements must divide; 0: any number.
    """

    def __init__(self, h5py: Any, file: str | os.PathLike[str], above: str = "", whole_rows: int = 0) -> None:
        self._h5py, self._above, self._whole_rows = h5py, above, whole_rows
        self.path = os.path.abspath(file)
        self._file: Any = None

    def __enter__(self) -> Self:
        self._file = self._h5py.File(self.path, "r")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def nodes(self) -> Iterator[tuple[str, dict[str, Any]] | Variable]:
        """Groups, by path and attributes, and variables."""
        return self._nodes(self._file)

    def references(self) -> Iterator[tuple[str, Any]]:
        """Keys and what they refer to."""
        for node in self.nodes():
            if isinstance(node, Variable):
                yield from documents(node.path, node.attributes, node.layout.document(fill_value(node.fill)))
                yield from self.chunks(node)
            else:
                yield from documents(*node, {"zarr_format": 2}, ".zgroup")

    def chunks(self, variable: Variable, shift: tuple[int, int] = (0, 0)) -> Iterator[tuple[str, Any]]:
        """The chunks of a variable, moved in one axis by a number of chunks."""
        axis, by = shift
        for place, (offset, size) in variable.layout.parts.items():
            key = posixpath.join(
                variable.path, ".".join(str(at + by * (axis == number)) for number, at in enumerate(place)) or "0"
            )
            if size <= INLINE_BYTES:
                with open(self.path, "rb") as file:
                    file.seek(offset)
                    yield key, inline(file.read(size))
            else:
                yield key, [f"file://{self.path}", offset, size]
        if (value := variable.layout.held_value()) is not None:
            yield posixpath.join(variable.path, ".".join("0" for _ in variable.dataset.shape) or "0"), inline(value)

    def _path(self, node: Any) -> str:
        return posixpath.join(self._above, node.name.strip("/")).strip("/")

    def _nodes(self, group: Any) -> Iterator[tuple[str, dict[str, Any]] | Variable]:
        yield self._path(group), _attributes(group)
        for name in group:
            # Links to other files are no members.
            if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
                continue
            node = group[name]
            if isinstance(node, self._h5py.Group):
                yield from self._nodes(node)
            elif isinstance(node, self._h5py.Dataset) and not bytes(node.attrs.get("NAME", b"")).startswith(_NO_VARIABLE):
                try:
                    yield self._variable(node)
                except UnsupportedError as error:
                    error.trail = (self.path, f"dataset '{printable(node.name)}'")
                    raise

    def _variable(self, dataset: Any) -> Variable:
        attributes = _attributes(dataset)
        attributes["_ARRAY_DIMENSIONS"] = _dimension_names(dataset)
        texts = self._h5py.check_string_dtype(dataset.dtype)
        is_text = texts is not None and texts.length is None
        layout = Layout(dataset, np.dtype(object) if is_text else _plain(dataset.dtype), is_text, self._whole_rows)
        missing, fill = attributes.pop("_FillValue", None), dataset.fillvalue if layout.has_gaps else None
        if fill is None or _is_same(fill, missing):
            fill = missing
        elif missing is not None:
            # Elements that were never written have another value than those that are marked as missing.
            attributes.setdefault("missing_value", missing)
        return Variable(self._path(dataset), dataset, layout, attributes, fill)


def documents(
    path: str, attributes: dict[str, Any], document: dict[str, Any], name: str = ".zarray"
) -> Iterator[tuple[str, Any]]:
    """The documents of a node."""
    yield posixpath.join(path, name), json.dumps(document)
    if attributes:
        yield posixpath.join(path, ".zattrs"), json.dumps(attributes)


class Layout:
    """How a dataset lies in its file, as an array of Zarr's format 2."""

    def __init__(self, dataset: Any, dtype: np.dtype[Any], is_text: bool, whole_rows: int) -> None:
        self._dataset, self.dtype, self.is_text, self._whole_rows = dataset, dtype, is_text, whole_rows
        self._filters: list[dict[str, Any]] = [{"id": "vlen-utf8"}] if is_text else []
        self.chunks = tuple(max(extent, 1) for extent in dataset.shape)
        self.parts: dict[tuple[int, ...], tuple[int, int]] = {}
        """Chunks by their places in the grid, each with its first byte in the file and its size."""
        # Elements in the object header, and texts, which lie in heaps.
        self.is_held = is_text or not dataset.shape and dataset.id.get_offset() is None
        count = 1
        if not self.is_held and dataset.chunks:
            self.chunks = dataset.chunks
            self._filters = _filters(dataset)
            self._find_chunks()
            count = math.prod(-(-extent // chunk) for extent, chunk in zip(dataset.shape, self.chunks, strict=True))
        elif not self.is_held:
            offset = dataset.id.get_offset()
            if offset is None and dataset.id.get_storage_size():
                self.is_held = True
            elif offset is not None and dataset.size:
                self._cut(offset)
                count = len(self.parts)
        self.has_gaps = not self.is_held and bool(dataset.size) and len(self.parts) < count

    def _find_chunks(self) -> None:
        def note(chunk: Any) -> None:
            if chunk.filter_mask:
                raise UnsupportedError(f"the chunk at {chunk.chunk_offset} leaves out filters, which Zarr's chunks cannot")
            place = tuple(offset // extent for offset, extent in zip(chunk.chunk_offset, self.chunks, strict=True))
            self.parts[place] = chunk.byte_offset, chunk.size

        chunks = self._dataset.id
        if hasattr(chunks, "chunk_iter"):
            chunks.chunk_iter(note)
        else:
            for number in range(chunks.get_num_chunks()):
                note(chunks.get_chunk_info(number))

    def _cut(self, offset: int) -> None:
        """Cuts contiguous elements into whole rows of the first dimension: as many as divide it, because chunks at the edge are whole."""
        shape, row = self._dataset.shape, self._dataset.dtype.itemsize * math.prod(self._dataset.shape[1:])
        rows = shape[0] if shape else 1
        most, divided = max(1, LONGEST_PART // row), math.gcd(rows, self._whole_rows)
        step = next(step for step in range(min(divided, most), 0, -1) if divided % step == 0)
        self.chunks = (step, *shape[1:]) if shape else ()
        for number in range(rows // step):
            self.parts[(number,) + (0,) * (len(shape) - 1) if shape else ()] = offset + number * step * row, step * row

    def document(self, fill: Any) -> dict[str, Any]:
        """The document ``.zarray``."""
        compressor = None
        filters = list(self._filters)
        if filters and filters[-1]["id"] in ("zlib", "zstd", "blosc"):
            compressor = filters.pop()
        return {
            "zarr_format": 2,
            "shape": list(self._dataset.shape),
            "chunks": list(self.chunks),
            "dtype": _v2_dtype(self.dtype),
            "compressor": compressor,
            "fill_value": fill,
            "order": "C",
            "filters": filters or None,
        }

    def held_value(self) -> bytes | None:
        """The one chunk of a dataset whose bytes do not lie in the file as Zarr has them."""
        if not self.is_held or not self._dataset.size:
            return None
        if not self.is_text:
            return np.ascontiguousarray(self._dataset[...], self.dtype).tobytes()
        return framed_texts(self._dataset[...])


def framed_texts(values: Any) -> bytes:
    """Texts as numcodecs' ``vlen-utf8`` has them."""
    texts = np.atleast_1d(np.asarray(values, object)).reshape(-1)
    encoded = [text if isinstance(text, bytes) else str(text).encode() for text in texts]
    return len(encoded).to_bytes(4, "little") + b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def _filters(dataset: Any) -> list[dict[str, Any]]:
    """The pipeline of filters, in the order of writing."""
    listed = dataset.id.get_create_plist()
    found = []
    for number in range(listed.get_nfilters()):
        code, _, settings, name = listed.get_filter(number)
        if code == _DEFLATE:
            found.append({"id": "zlib", "level": int(settings[0])})
        elif code == _SHUFFLE:
            found.append({"id": "shuffle", "elementsize": int(settings[0]) if settings else dataset.dtype.itemsize})
        elif code == _FLETCHER32:
            found.append({"id": "fletcher32"})
        elif code == _ZSTD:
            found.append({"id": "zstd", "level": int(settings[0]) if settings else 3})
        elif code == _BLOSC:
            # The frame says the rest; these are for writers.
            found.append({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0})
        else:
            what = _NAMES.get(code) or name.decode(errors="replace") or str(code)
            hint = "copy the variable to a compressor that Zarr has, such as deflate: nccopy -d 4 FROM TO"
            raise UnsupportedError(f"the filter {printable(what)} has no codec", hint=hint)
    return found


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of elements, without what h5py notes of it."""
    if dtype.kind in "biufcSV" and not dtype.hasobject and dtype.subdtype is None:
        return np.dtype([(name, _plain(dtype[name])) for name in dtype.names]) if dtype.names else np.dtype(dtype.str)
    raise UnsupportedError(f"elements of type {dtype} have no type in Zarr")


def _v2_dtype(dtype: np.dtype[Any]) -> Any:
    return [[name, _v2_dtype(dtype[name])] for name in dtype.names] if dtype.names else dtype.str


def _dimension_names(dataset: Any) -> list[str]:
    if dataset.is_scale and dataset.ndim == 1:
        return [posixpath.basename(dataset.name)]
    names = []
    for number, dimension in enumerate(dataset.dims):
        scale = posixpath.basename(dimension[0].name) if len(dimension) else ""
        names.append(scale or dimension.label or f"phony_dim_{number}")
    return names


def _attributes(node: Any) -> dict[str, Any]:
    attributes = {}
    for name, value in node.attrs.items():
        if name not in _OWN and (plain := _json(value)) is not None:
            attributes[name] = plain
    return attributes


def _json(value: Any) -> Any:
    """An attribute as JSON; ``None`` for what is no value, such as references."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "OS":
            values = [_json(one) for one in np.asarray(value).reshape(-1).tolist()]
            return None if None in values else values if isinstance(value, np.ndarray) and value.size != 1 else values[0]
        if value.dtype.kind not in "biuf":
            return None
        plain = value.tolist()
        return plain[0] if isinstance(plain, list) and len(plain) == 1 else plain
    return value if isinstance(value, str | int | float | bool) else None


def _is_same(fill: Any, missing: Any) -> bool:
    return missing is not None and (fill == missing or (fill != fill and missing != missing))


def fill_value(fill: Any) -> Any:
    """A fill value as ``.zarray`` has it."""
    if isinstance(fill, bytes | np.bytes_ | np.void):
        return base64.b64encode(bytes(fill)).decode()
    fill = fill.item() if isinstance(fill, np.generic) else fill
    if isinstance(fill, float) and not math.isfinite(fill):
        return "NaN" if math.isnan(fill) else "Infinity" if fill > 0 else "-Infinity"
    return fill


def inline(value: bytes) -> str:
    return "base64:" + base64.b64encode(value).decode()

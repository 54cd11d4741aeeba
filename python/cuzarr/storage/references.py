"""Tables of references to the chunks of HDF5 files, netCDF-4 among them."""

from __future__ import annotations

import base64
import json
import math
import os
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuzarr._text import printable
from cuzarr.errors import InvalidArgumentError, LibraryMissingError, UnsupportedError

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


def make_references(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """Makes a table of references to the chunks of HDF5 files, such as netCDF-4. It needs h5py.

    The table is kerchunk's JSON format, version 1. ``reference::TABLE.json`` opens it, and chunks are then read from the files where they
    are. Compressors are deflate, zstd and Blosc; filters are shuffle and fletcher32. Small values are put into the table.

    Parameters
    ----------
    files : path or list of paths
        One file becomes the root of the hierarchy. Of several, each becomes a group with the name of the file.

    Returns
    -------
    dict
        The table, ready for :func:`json.dump`.

    Raises
    ------
    LibraryMissingError
        h5py is not installed.
    UnsupportedError
        A dataset has a filter or a type of elements that Zarr has not.
    InvalidArgumentError
        Two files have one name.

    Examples
    --------
    >>> import cuzarr, json
    >>> table = cuzarr.storage.make_references("field.nc")  # doctest: +SKIP
    >>> _ = open("field.json", "w").write(json.dumps(table))  # doctest: +SKIP
    >>> cuzarr.open_group("reference::field.json", mode="r")["t2m"][0]  # doctest: +SKIP
    """
    try:
        import h5py
    except ImportError as error:
        raise LibraryMissingError(f"references to HDF5 files need h5py: {error}", hint="pip install h5py") from error
    if isinstance(files, str | os.PathLike):
        return {"version": 1, "refs": dict(_Hdf5(h5py, files, "").references())}
    refs: dict[str, Any] = {".zgroup": json.dumps({"zarr_format": 2})}
    for file in files:
        name = Path(file).stem
        if f"{name}/.zgroup" in refs:
            raise InvalidArgumentError(f"two files have the name '{printable(name)}', which is that of their group")
        refs.update(_Hdf5(h5py, file, name).references())
    return {"version": 1, "refs": refs}


class _Hdf5:
    """One file."""

    def __init__(self, h5py: Any, file: str | os.PathLike[str], above: str) -> None:
        self._h5py, self._above = h5py, above
        self._path = os.path.abspath(file)

    def references(self) -> Iterator[tuple[str, Any]]:
        """Keys and what they refer to."""
        with self._h5py.File(self._path, "r") as file:
            yield from self._group(file)

    def _key(self, node: Any, name: str) -> str:
        return posixpath.join(self._above, node.name.strip("/"), name).lstrip("/")

    def _group(self, group: Any) -> Iterator[tuple[str, Any]]:
        yield self._key(group, ".zgroup"), json.dumps({"zarr_format": 2})
        attributes = _attributes(group)
        if attributes:
            yield self._key(group, ".zattrs"), json.dumps(attributes)
        for name in group:
            # Links to other files are no members.
            if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
                continue
            node = group[name]
            if isinstance(node, self._h5py.Group):
                yield from self._group(node)
            elif isinstance(node, self._h5py.Dataset) and not bytes(node.attrs.get("NAME", b"")).startswith(_NO_VARIABLE):
                try:
                    yield from self._dataset(node)
                except UnsupportedError as error:
                    error.trail = (self._path, f"dataset '{printable(node.name)}'")
                    raise

    def _dataset(self, dataset: Any) -> Iterator[tuple[str, Any]]:
        attributes = _attributes(dataset)
        attributes["_ARRAY_DIMENSIONS"] = _dimension_names(dataset)
        texts = self._h5py.check_string_dtype(dataset.dtype)
        is_text = texts is not None and texts.length is None
        dtype = np.dtype(object) if is_text else _plain(dataset.dtype)
        array = _Layout(dataset, dtype, is_text)
        missing, fill = attributes.pop("_FillValue", None), dataset.fillvalue if array.has_gaps else None
        if fill is None or _is_same(fill, missing):
            fill = missing
        elif missing is not None:
            # Elements that were never written have another value than those that are marked as missing.
            attributes.setdefault("missing_value", missing)
        yield self._key(dataset, ".zarray"), json.dumps(array.document(_fill_value(fill)))
        yield self._key(dataset, ".zattrs"), json.dumps(attributes)
        for chunk, (offset, size) in array.parts():
            if size <= INLINE_BYTES:
                with open(self._path, "rb") as file:
                    file.seek(offset)
                    yield self._key(dataset, chunk), _inline(file.read(size))
            else:
                yield self._key(dataset, chunk), [f"file://{self._path}", offset, size]
        for chunk, value in array.values():
            yield self._key(dataset, chunk), _inline(value)


class _Layout:
    """How a dataset lies in its file, as an array of Zarr's format 2."""

    def __init__(self, dataset: Any, dtype: np.dtype[Any], is_text: bool) -> None:
        self._dataset, self._dtype, self._is_text = dataset, dtype, is_text
        self._filters: list[dict[str, Any]] = [{"id": "vlen-utf8"}] if is_text else []
        self._chunks = tuple(max(extent, 1) for extent in dataset.shape)
        self._parts: dict[str, tuple[int, int]] = {}
        # Elements in the object header, and texts, which lie in heaps.
        self._is_held = is_text or not dataset.shape and dataset.id.get_offset() is None
        count = 1
        if not self._is_held and dataset.chunks:
            self._chunks = dataset.chunks
            self._filters = _filters(dataset)
            self._find_chunks()
            count = math.prod(-(-extent // chunk) for extent, chunk in zip(dataset.shape, self._chunks, strict=True))
        elif not self._is_held:
            offset = dataset.id.get_offset()
            if offset is None and dataset.id.get_storage_size():
                self._is_held = True
            elif offset is not None and dataset.size:
                self._cut(offset)
                count = len(self._parts)
        self.has_gaps = not self._is_held and bool(dataset.size) and len(self._parts) < count

    def _find_chunks(self) -> None:
        def note(chunk: Any) -> None:
            if chunk.filter_mask:
                raise UnsupportedError(f"the chunk at {chunk.chunk_offset} leaves out filters, which Zarr's chunks cannot")
            place = [offset // extent for offset, extent in zip(chunk.chunk_offset, self._chunks, strict=True)]
            self._parts[".".join(map(str, place))] = chunk.byte_offset, chunk.size

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
        most = max(1, LONGEST_PART // row)
        step = next(step for step in range(min(rows, most), 0, -1) if rows % step == 0)
        self._chunks = (step, *shape[1:]) if shape else ()
        rest = [0] * (len(shape) - 1)
        for number in range(rows // step):
            chunk = ".".join(map(str, (number, *rest))) if shape else "0"
            self._parts[chunk] = offset + number * step * row, step * row

    def document(self, fill: Any) -> dict[str, Any]:
        """The document ``.zarray``."""
        compressor = None
        filters = list(self._filters)
        if filters and filters[-1]["id"] in ("zlib", "zstd", "blosc"):
            compressor = filters.pop()
        return {
            "zarr_format": 2,
            "shape": list(self._dataset.shape),
            "chunks": list(self._chunks),
            "dtype": _v2_dtype(self._dtype),
            "compressor": compressor,
            "fill_value": fill,
            "order": "C",
            "filters": filters or None,
        }

    def parts(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Chunks, each with its first byte in the file and its size."""
        yield from self._parts.items()

    def values(self) -> Iterator[tuple[str, bytes]]:
        """Chunks whose bytes do not lie in the file as Zarr has them."""
        if not self._is_held or not self._dataset.size:
            return
        key = ".".join("0" for _ in self._dataset.shape) or "0"
        if not self._is_text:
            yield key, np.ascontiguousarray(self._dataset[...], self._dtype).tobytes()
            return
        texts = np.atleast_1d(np.asarray(self._dataset[...], object)).reshape(-1)
        encoded = [text if isinstance(text, bytes) else str(text).encode() for text in texts]
        framed = b"".join(len(text).to_bytes(4, "little") + text for text in encoded)
        yield key, len(encoded).to_bytes(4, "little") + framed


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


def _fill_value(fill: Any) -> Any:
    """A fill value as ``.zarray`` has it."""
    if isinstance(fill, bytes | np.bytes_ | np.void):
        return base64.b64encode(bytes(fill)).decode()
    fill = fill.item() if isinstance(fill, np.generic) else fill
    if isinstance(fill, float) and not math.isfinite(fill):
        return "NaN" if math.isnan(fill) else "Infinity" if fill > 0 else "-Infinity"
    return fill


def _inline(value: bytes) -> str:
    return "base64:" + base64.b64encode(value).decode()


def references_as_json(files: Sequence[str | os.PathLike[str]]) -> str:
    """What ``cuzarr references make`` writes: the table of one file, or of several."""
    return json.dumps(make_references(files[0] if len(files) == 1 else files))

"""Metadata documents, and those of arrays as values: what is in ``zarr.json``, ``.zarray`` and ``.zattrs``.

A value keeps the document it was read from, so that members this package does not know survive a rewrite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from cuzarr import _core
from cuzarr._checks import parse_shape
from cuzarr._config import config
from cuzarr._metadata.chunk_grid import ChunkGrid, require_rectilinear
from cuzarr._metadata.dtype import DataType, ZarrFormat, from_json_v2, from_json_v3
from cuzarr.codecs.chain import ShardingCodec, parse_codec
from cuzarr.codecs.numcodecs import NumcodecsCodec, from_numcodecs_config
from cuzarr.codecs.values import Codec
from cuzarr.errors import MetadataValidationError, NoChunkShapeError, NodeTypeValidationError, UnsupportedFeatureError

ZARR_JSON = "zarr.json"
ZARRAY = ".zarray"
ZGROUP = ".zgroup"
ZATTRS = ".zattrs"


def _plain_json(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def parse_attributes(attributes: Any) -> dict[str, Any]:
    """Attributes as they come back from a store: names are text, tuples and NumPy's arrays are lists, NumPy's numbers are Python's.

    Raises
    ------
    TypeError, InvalidArgumentError
        They are no dictionary, or a value has no JSON form.
    """
    if attributes is None:
        return {}
    if not isinstance(attributes, Mapping):
        raise TypeError(f"attributes is {attributes!r}, expected a dictionary")
    return _core.plain_json(dict(attributes)) if attributes else {}


def as_mapping(value: Any, what: str) -> Mapping[str, Any]:
    """A JSON object.

    Raises
    ------
    MetadataValidationError
        It is something else.
    """
    if not isinstance(value, Mapping):
        raise MetadataValidationError(f"{what}: expected a JSON object, got {type(value).__name__}")
    return value


Documents = dict[str, dict[str, Any]]
"""What is stored of a node, by the key relative to it."""


class NodeMetadata:
    """What metadata of arrays and of groups have."""

    def to_dict(self) -> dict[str, Any]:
        """The metadata document as a dictionary, with the attributes inside.

        Returns
        -------
        dict
            What JSON can hold.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.GroupMetadata(attributes={"title": "maps"}).to_dict()
        {'attributes': {'title': 'maps'}, 'zarr_format': 3, 'node_type': 'group'}
        """
        raise NotImplementedError  # each kind has its own

    def stored(self) -> tuple[Documents, dict[str, Documents] | None]:
        """The stored documents, as dictionaries: of this node, and of the nodes that are consolidated below it.

        Returns
        -------
        documents : dict of str to dict
            The documents of this node, by file name: ``"zarr.json"``, or ``".zarray"``, ``".zgroup"`` and ``".zattrs"``.
        consolidated : dict of str to documents, or None
            The documents of each node below a group, by its path; ``None`` without consolidated metadata.

        Examples
        --------
        >>> import cuzarr
        >>> documents, below = cuzarr.GroupMetadata(attributes={"title": "maps"}, zarr_format=2).stored()
        >>> documents, below
        ({'.zgroup': {'zarr_format': 2}, '.zattrs': {'title': 'maps'}}, None)
        """
        raise NotImplementedError  # each kind has its own

    def documents(self) -> dict[str, bytes]:
        """The stored documents as bytes of JSON, by file name.

        Returns
        -------
        dict of str to bytes
            What a store holds under each name: ``"zarr.json"``, or ``".zarray"``, ``".zgroup"`` and ``".zattrs"``.

        Examples
        --------
        >>> import cuzarr
        >>> list(cuzarr.GroupMetadata().documents()), list(cuzarr.GroupMetadata(zarr_format=2).documents())
        (['zarr.json'], ['.zgroup', '.zattrs'])
        """
        return _core.lay_out_node(*self.stored(), config.get("json_indent"))

    def same_as(self, other: object) -> bool:
        """Whether two metadata say the same. ``==`` does the same.

        Parameters
        ----------
        other : object
            What to compare with.

        Returns
        -------
        bool
            ``True`` if ``other`` is metadata with an equal document. NaN equals NaN here.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.GroupMetadata().same_as(cuzarr.GroupMetadata(attributes={"title": "maps"}))
        False
        """
        # Compared as JSON text, not-a-number equals itself, and a tuple equals a list.
        return isinstance(other, NodeMetadata) and canonical_json(self.to_dict()) == canonical_json(other.to_dict())

    def __eq__(self, other: object) -> bool:
        return self.same_as(other)

    def __hash__(self) -> int:
        return hash(canonical_json(self.to_dict()))


class ArrayMetadata(NodeMetadata):
    """What both formats' array metadata have."""

    zarr_format: ClassVar[ZarrFormat]

    document: dict[str, Any]
    attributes: dict[str, Any]
    shape: tuple[int, ...]
    data_type: DataType

    @property
    def dtype(self) -> DataType:
        """The data type."""
        return self.data_type

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk: the unit that is decoded."""
        raise NotImplementedError  # each format has its own

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Shape of a shard, the stored object that holds many chunks; ``None`` without sharding."""
        return None

    @property
    def _inner_chunks(self) -> tuple[int, ...]:
        """Shape of a chunk, the unit that is decoded; in a rectilinear grid of the largest one."""
        return self.chunks

    @property
    def _stored_chunks(self) -> tuple[int, ...]:
        """Shape of what one stored object holds: of a shard, or of a chunk; in a rectilinear grid of the largest one."""
        return self.shards or self.chunks

    @property
    def _grid(self) -> ChunkGrid:
        """The stored objects."""
        return ChunkGrid.regular(self._stored_chunks)

    def encode_chunk_key(self, chunk_coords: Iterable[int]) -> str:
        """The key, relative to the array, of the stored object at a place of the chunk grid.

        Parameters
        ----------
        chunk_coords : iterable of int
            The place, one number per dimension. With sharding it counts shards, else chunks.

        Returns
        -------
        str
            The key.

        Examples
        --------
        >>> import cuzarr
        >>> array = cuzarr.create_array({}, shape=(4, 4), chunks=(2, 2), dtype="int16")
        >>> array.metadata.encode_chunk_key((0, 1))
        'c/0/1'
        """
        name, separator = self.chunk_key
        text = separator.join(map(str, chunk_coords))
        if name == "v2":
            return text or "0"
        return f"c{separator}{text}" if text else "c"

    def _decode_chunk_keys(self, keys: Iterable[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Those keys, relative to the array, that are stored objects of it, with their places in the grid."""
        name, separator = self.chunk_key
        numbers = re.escape(separator).join([r"(\d+)"] * self.ndim)
        lead = "" if name == "v2" else "c" + (re.escape(separator) if self.ndim else "")
        pattern = re.compile(lead + (numbers or ("0" if name == "v2" else "")))
        grid = self._grid.counts(self.shape)
        for key in keys:
            if match := pattern.fullmatch(key):
                coords = tuple(map(int, match.groups()))
                if all(place < count for place, count in zip(coords, grid, strict=True)):
                    yield key, coords

    @property
    def chunk_key(self) -> tuple[str, str]:
        """Name and separator of the chunk key encoding."""
        raise NotImplementedError  # each format has its own

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The metadata that a document describes.

        Parameters
        ----------
        data : mapping
            The document, with the attributes inside.

        Returns
        -------
        ArrayV2Metadata or ArrayV3Metadata
            A value of this class.

        Raises
        ------
        MetadataValidationError
            The document is no metadata of an array of this format.

        Examples
        --------
        >>> import cuzarr
        >>> document = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16").metadata.to_dict()
        >>> cuzarr.ArrayV3Metadata.from_dict(document).shape
        (4,)
        """
        document = dict(as_mapping(data, "an array"))
        attributes = dict(as_mapping(document.pop("attributes", None) or {}, "attributes"))
        return cls(document, attributes)  # type: ignore[call-arg]

    def to_dict(self) -> dict[str, Any]:
        """The metadata document as a dictionary, with the attributes inside.

        Returns
        -------
        dict
            What JSON can hold.

        Examples
        --------
        >>> import cuzarr
        >>> document = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16").metadata.to_dict()
        >>> document["shape"], document["data_type"], document["attributes"]
        ([4], 'int16', {})
        """
        # Attributes keep their place among the members.
        return {**self.document, "attributes": self.attributes}

    def described(self) -> Documents:
        """The stored document without the attributes.

        Returns
        -------
        dict of str to dict
            The document, by its file name: ``"zarr.json"`` or ``".zarray"``.

        Examples
        --------
        >>> import cuzarr
        >>> array = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16", attributes={"units": "K"})
        >>> documents = array.metadata.described()
        >>> list(documents), "attributes" in documents["zarr.json"]
        (['zarr.json'], False)
        """
        name = ZARR_JSON if self.zarr_format == 3 else ZARRAY
        return {name: {key: value for key, value in self.document.items() if key != "attributes"}}

    def update_shape(self, shape: Iterable[int]) -> Self:
        """This metadata with another shape. The array itself is not changed; :meth:`cuzarr.Array.resize` does that.

        Parameters
        ----------
        shape : iterable of int
            The new extents, in elements.

        Returns
        -------
        ArrayV2Metadata or ArrayV3Metadata
            New metadata of the same format.

        Examples
        --------
        >>> import cuzarr
        >>> metadata = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16").metadata
        >>> metadata.update_shape((8,)).shape, metadata.shape
        ((8,), (4,))
        """
        extents = tuple(shape)
        return type(self)({**self._resized_document(extents), "shape": list(extents)}, self.attributes)  # type: ignore[call-arg]

    def _resized_document(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """The document, with a chunk grid for another shape."""
        return self._whole_document()

    def _whole_document(self) -> dict[str, Any]:
        """The document, with the chunk sizes that are used in the place of zeros."""
        raise NotImplementedError  # each format has its own

    def update_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """This metadata with other attributes. The array itself is not changed; :meth:`cuzarr.Array.update_attributes` does that.

        Parameters
        ----------
        attributes : mapping
            All new attributes. They become what JSON holds: tuples and NumPy's arrays become lists. The old ones are dropped.

        Returns
        -------
        ArrayV2Metadata or ArrayV3Metadata
            New metadata of the same format.

        Examples
        --------
        >>> import cuzarr
        >>> metadata = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16").metadata
        >>> metadata.update_attributes({"units": "K"}).attributes
        {'units': 'K'}
        """
        return type(self)(self.document, dict(attributes))  # type: ignore[call-arg]


def canonical_json(document: Mapping[str, Any]) -> str:
    """The same text for documents that say the same."""
    return json.dumps(document, sort_keys=True, default=_plain_json)


def _required(document: Mapping[str, Any], name: str) -> Any:
    if name not in document:
        raise MetadataValidationError(f"member '{name}' is missing")
    return document[name]


def _check_format(document: Mapping[str, Any], expected: int) -> None:
    if _required(document, "zarr_format") != expected:
        raise MetadataValidationError(f"zarr_format is {document['zarr_format']!r}, expected {expected}")


def _parse_shape(document: Mapping[str, Any], name: str) -> tuple[int, ...]:
    try:
        return parse_shape(_required(document, name))
    except (TypeError, ValueError) as error:
        if isinstance(error, MetadataValidationError | UnsupportedFeatureError):
            raise
        raise MetadataValidationError(f"member '{name}': {error}") from error


def _real_chunks(stored: tuple[int, ...], shape: tuple[int, ...], inner: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Chunk sizes from stored ones. Older writers stored 0 for empty dimensions; like zarr-python that is read as 1, or as the size
    of an inner chunk, since no chunk can have been stored."""
    if len(stored) != len(shape):
        raise MetadataValidationError(f"chunks have {len(stored)} dimensions, the shape {len(shape)}")
    if 0 not in stored:
        return stored
    if any(size == 0 < extent for size, extent in zip(stored, shape, strict=True)):
        raise MetadataValidationError(f"chunk sizes are at least 1, got {stored}")
    least = inner if inner is not None and len(inner) == len(shape) else (1,) * len(shape)
    return tuple(size or max(1, other) for size, other in zip(stored, least, strict=True))


@dataclass(frozen=True, eq=False)
class ArrayV3Metadata(ArrayMetadata):
    """Metadata of an array of Zarr format 3.

    Parameters
    ----------
    document : dict
        The metadata document, as JSON.
    attributes : dict
        The attributes, as JSON.

    Raises
    ------
    MetadataValidationError
        The document is no metadata of such an array.

    Examples
    --------
    >>> import cuzarr
    >>> array = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16", zarr_format=3)
    >>> array.metadata.shape, array.metadata.zarr_format
    ((4,), 3)
    """

    zarr_format: ClassVar[ZarrFormat] = 3
    node_type: ClassVar[Literal["array"]] = "array"

    document: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", parse_attributes(self.attributes))
        _check_format(self.document, 3)
        if self.document.get("node_type") != "array":
            got = self.document.get("node_type")
            hint = "open it with open_group or open" if got == "group" else None
            raise NodeTypeValidationError(f"node_type is {got!r}, expected 'array'", hint=hint)
        grid = _required(self.document, "chunk_grid")
        name = grid.get("name") if isinstance(grid, Mapping) else grid
        if not isinstance(grid, Mapping) or name not in ("regular", "rectilinear"):
            raise UnsupportedFeatureError(f"chunk grid {name!r} is not supported, only 'regular' and 'rectilinear'")
        if name == "rectilinear":
            require_rectilinear()
            _ = self._grid  # checked
        else:
            _real_chunks(self._stored_grid_shape, self.shape)
        names = self.dimension_names
        if names is not None and len(names) != len(self.shape):
            raise MetadataValidationError(f"got {len(names)} dimension names for {len(self.shape)} dimensions")

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return _parse_shape(self.document, "shape")

    @cached_property
    def data_type(self) -> DataType:  # type: ignore[override]
        return from_json_v3(_required(self.document, "data_type"))

    @cached_property
    def codecs(self) -> tuple[Codec, ...]:
        """The codec chain, as stored."""
        codecs = _required(self.document, "codecs")
        if not isinstance(codecs, list | tuple):
            raise MetadataValidationError(f"codecs is {codecs!r}, expected a list")
        return tuple(map(parse_codec, codecs))

    @property
    def sharding_codec(self) -> ShardingCodec | None:
        """The sharding codec, when it is the whole chain."""
        codecs = self.codecs
        return codecs[0] if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec) else None

    @property
    def inner_codecs(self) -> tuple[Codec, ...]:
        """The chain that encodes a chunk, inside its shard if there are any."""
        sharding = self.sharding_codec
        return self.codecs if sharding is None else sharding.codecs

    def _with_role(self, role: str) -> tuple[Codec, ...]:
        return tuple(codec for codec in self.inner_codecs if codec.role == role)

    @property
    def filters(self) -> tuple[Codec, ...]:
        """The codecs from elements to elements."""
        return self._with_role("array_array")

    @property
    def serializer(self) -> Codec | None:
        """The codec from elements to bytes."""
        return next(iter(self._with_role("array_bytes")), None)

    @property
    def compressors(self) -> tuple[Codec, ...]:
        """The codecs from bytes to bytes."""
        return self._with_role("bytes_bytes")

    @cached_property
    def _stored_grid_shape(self) -> tuple[int, ...]:
        return _parse_shape(as_mapping(self.document["chunk_grid"].get("configuration") or {}, "chunk_grid"), "chunk_shape")

    @property
    def is_rectilinear(self) -> bool:
        """Whether chunks, or shards, have lengths of their own along each dimension."""
        return self.document["chunk_grid"]["name"] == "rectilinear"  # type: ignore[no-any-return]

    @cached_property
    def _grid(self) -> ChunkGrid:
        if not self.is_rectilinear:
            return ChunkGrid.regular(self._grid_shape)
        configuration = as_mapping(self.document["chunk_grid"].get("configuration") or {}, "chunk_grid")
        return ChunkGrid.from_json(configuration, self.shape)

    def _resized_document(self, shape: tuple[int, ...]) -> dict[str, Any]:
        if not self.is_rectilinear or len(shape) != len(self.shape):
            return self._whole_document()
        sharding = self.sharding_codec
        grown = self._grid.grown(shape, None if sharding is None else sharding.chunk_shape)
        return self.document if grown == self._grid else {**self.document, "chunk_grid": grown.to_json()}

    @cached_property
    def _grid_shape(self) -> tuple[int, ...]:
        if self.is_rectilinear:
            return self._grid.largest
        sharding = self.sharding_codec
        return _real_chunks(self._stored_grid_shape, self.shape, None if sharding is None else sharding.chunk_shape)

    def _whole_document(self) -> dict[str, Any]:
        if self.is_rectilinear or self._grid_shape == self._stored_grid_shape:
            return self.document
        grid = self.document["chunk_grid"]
        configuration = {**grid["configuration"], "chunk_shape": list(self._grid_shape)}
        return {**self.document, "chunk_grid": {**grid, "configuration": configuration}}

    @property
    def chunk_grid(self) -> dict[str, Any]:
        """The chunk grid, as stored."""
        return dict(self.document["chunk_grid"])

    def _require_regular(self, what: str, instead: str) -> None:
        if self.is_rectilinear:
            raise NoChunkShapeError(f"an array with a rectilinear chunk grid has no '{what}'", hint=f"use {instead}")

    @property
    def chunks(self) -> tuple[int, ...]:
        self._require_regular("chunks", "read_chunk_sizes")
        return self._inner_chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        if self.sharding_codec is None:
            return None
        self._require_regular("shards", "write_chunk_sizes")
        return self._grid_shape

    @property
    def _inner_chunks(self) -> tuple[int, ...]:
        sharding = self.sharding_codec
        return self._grid_shape if sharding is None else sharding.chunk_shape

    @property
    def _stored_chunks(self) -> tuple[int, ...]:
        return self._grid_shape

    @property
    def chunk_key_encoding(self) -> dict[str, Any]:
        """The chunk key encoding, as stored."""
        return _named_document(_required(self.document, "chunk_key_encoding"))

    @cached_property
    def chunk_key(self) -> tuple[str, str]:  # type: ignore[override]
        encoding = self.chunk_key_encoding
        name = encoding["name"]
        if name not in ("default", "v2"):
            raise UnsupportedFeatureError(f"unknown chunk key encoding {name!r}")
        default = "/" if name == "default" else "."
        return name, (encoding.get("configuration") or {}).get("separator", default)

    @cached_property
    def fill_value(self) -> Any:
        """The value of elements that were never written."""
        return self.data_type.fill_from_json(_required(self.document, "fill_value"), 3)

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of the dimensions, as far as they have any."""
        names = self.document.get("dimension_names")
        if not isinstance(names, list | tuple | None):
            raise MetadataValidationError(f"dimension_names is {names!r}, expected a list")
        return None if names is None else tuple(names)

    @property
    def storage_transformers(self) -> tuple[Any, ...]:
        """Storage transformers; none are supported."""
        return tuple(self.document.get("storage_transformers") or ())

    def stored(self) -> tuple[Documents, None]:
        return {ZARR_JSON: self.to_dict()}, None


def _named_document(spec: Any) -> dict[str, Any]:
    document = {"name": spec} if isinstance(spec, str) else spec
    if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
        raise MetadataValidationError(f"expected a name with a configuration, got {spec!r}")
    return dict(document)


@dataclass(frozen=True, eq=False)
class ArrayV2Metadata(ArrayMetadata):
    """Metadata of an array of Zarr format 2.

    Parameters
    ----------
    document : dict
        The metadata document, as JSON.
    attributes : dict
        The attributes, as JSON.

    Raises
    ------
    MetadataValidationError
        The document is no metadata of such an array.

    Examples
    --------
    >>> import cuzarr
    >>> array = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16", zarr_format=2)
    >>> array.metadata.shape, array.metadata.zarr_format
    ((4,), 2)
    """

    zarr_format: ClassVar[ZarrFormat] = 2

    document: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", parse_attributes(self.attributes))
        _check_format(self.document, 2)
        _ = self.chunks  # checked
        if self.order not in ("C", "F"):
            raise MetadataValidationError(f"order is {self.order!r}, expected 'C' or 'F'")
        if self.dimension_separator not in (".", "/"):
            raise MetadataValidationError(f"dimension_separator is {self.dimension_separator!r}, expected '.' or '/'")

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return _parse_shape(self.document, "shape")

    @cached_property
    def chunks(self) -> tuple[int, ...]:  # type: ignore[override]
        return _real_chunks(_parse_shape(self.document, "chunks"), self.shape)

    def _whole_document(self) -> dict[str, Any]:
        return {**self.document, "chunks": list(self.chunks)}

    @cached_property
    def data_type(self) -> DataType:  # type: ignore[override]
        codecs = [*(self.filters or ()), *([self.compressor] if self.compressor is not None else [])]
        return from_json_v2(_required(self.document, "dtype"), [codec.get_config()["id"] for codec in codecs])

    @cached_property
    def filters(self) -> tuple[NumcodecsCodec, ...] | None:
        """The filters, first to last on writing."""
        filters = self.document.get("filters")
        return tuple(map(from_numcodecs_config, filters)) if filters else None

    @cached_property
    def compressor(self) -> NumcodecsCodec | None:
        """The compressor."""
        compressor = self.document.get("compressor")
        return None if compressor is None else from_numcodecs_config(compressor)

    @property
    def serializer(self) -> None:
        """Always ``None``: in format 2 the data type alone says how elements become bytes."""
        return None

    @property
    def compressors(self) -> tuple[NumcodecsCodec, ...]:
        """The compressor, if there is one."""
        return () if self.compressor is None else (self.compressor,)

    @property
    def order(self) -> Literal["C", "F"]:
        """Order of the elements inside a chunk."""
        return _required(self.document, "order")  # type: ignore[no-any-return]

    @property
    def dimension_separator(self) -> Literal[".", "/"]:
        """The separator between the numbers of a chunk's key."""
        return self.document.get("dimension_separator") or "."

    @property
    def chunk_key(self) -> tuple[str, str]:
        return "v2", self.dimension_separator

    @cached_property
    def fill_value(self) -> Any:
        """The value of elements that were never written; ``None`` leaves it open."""
        return self.data_type.fill_from_json(self.document.get("fill_value"), 2)

    def stored(self) -> tuple[Documents, None]:
        return {ZARRAY: self.document, ZATTRS: self.attributes}, None


AnyArrayMetadata = ArrayV2Metadata | ArrayV3Metadata

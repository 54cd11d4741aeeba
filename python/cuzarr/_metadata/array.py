"""Metadata of arrays as objects: the contents of ``zarr.json``, ``.zarray`` and ``.zattrs``.

An object keeps the document that it was read from, so that unknown members survive a rewrite.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from cuzarr import _core
from cuzarr._config import config
from cuzarr._metadata.chunk_grid import ChunkGrid, require_rectilinear
from cuzarr._metadata.dtype import DataType, ZarrFormat, from_description
from cuzarr.codecs.chain import ShardingCodec, parse_codec
from cuzarr.codecs.numcodecs import NumcodecsCodec, from_numcodecs_config
from cuzarr.codecs.values import Codec
from cuzarr.errors import MetadataValidationError, NoChunkShapeError, NodeTypeValidationError

ZARR_JSON = "zarr.json"
ZARRAY = ".zarray"
ZGROUP = ".zgroup"
ZATTRS = ".zattrs"


def _plain_json(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def as_attributes(attributes: Any) -> dict[str, Any]:
    """A copy of the attributes that a caller gave. They need not be valid JSON yet; the Rust side converts them.

    Raises
    ------
    TypeError
        The attributes are not a dictionary.
    """
    if attributes is None:
        return {}
    if not isinstance(attributes, Mapping):
        raise TypeError(f"attributes is {attributes!r}, expected a dictionary")
    return dict(attributes)


def parse_attributes(attributes: Any) -> dict[str, Any]:
    """Converts attributes to what a store would return: names are text, tuples and NumPy arrays are lists, NumPy's numbers are Python's.

    Raises
    ------
    TypeError, InvalidArgumentError
        The attributes are not a dictionary, or a value has no JSON form.
    """
    given = as_attributes(attributes)
    return _core.plain_json(given) if given else {}


def as_mapping(value: Any, what: str) -> Mapping[str, Any]:
    """Returns a parsed JSON value unchanged if it is an object; refuses any other value.

    Raises
    ------
    MetadataValidationError
        The value is not a JSON object.
    """
    if not isinstance(value, Mapping):
        raise MetadataValidationError(f"{what}: expected a JSON object, got {type(value).__name__}")
    return value


Documents = dict[str, dict[str, Any]]
"""The stored metadata documents of an array or group, by their file names."""


class NodeMetadata:
    """Base class of metadata objects, of arrays and of groups, in both Zarr formats."""

    def to_dict(self) -> dict[str, Any]:
        """The metadata document as a dictionary, with the attributes inside.

        Returns
        -------
        dict
            A document of JSON values.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.GroupMetadata(attributes={"title": "maps"}).to_dict()
        {'attributes': {'title': 'maps'}, 'zarr_format': 3, 'node_type': 'group'}
        """
        raise NotImplementedError  # each kind of node has its own

    def _given(self) -> tuple[Any, Any]:
        """The metadata of this array or group in the form that the Rust side writes, with the consolidated metadata of the nodes below."""
        return self.stored()

    def stored(self) -> tuple[Documents, dict[str, Documents] | None]:
        """The stored metadata documents of this array or group, as dictionaries, and the documents of the nodes consolidated below it.

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
        raise NotImplementedError  # each kind of node has its own

    def documents(self) -> dict[str, bytes]:
        """The stored documents of this array or group as bytes of JSON, by file name.

        Returns
        -------
        dict of str to bytes
            The content of the store under each name: ``"zarr.json"``, or ``".zarray"``, ``".zgroup"`` and ``".zattrs"``.

        Examples
        --------
        >>> import cuzarr
        >>> list(cuzarr.GroupMetadata().documents()), list(cuzarr.GroupMetadata(zarr_format=2).documents())
        (['zarr.json'], ['.zgroup', '.zattrs'])
        """
        return _core.lay_out_node(*self._given(), config.get("json_indent"))

    def same_as(self, other: object) -> bool:
        """Whether two metadata objects are equal. ``==`` does the same.

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
        # As JSON text, NaN equals NaN, and a tuple equals a list.
        return isinstance(other, NodeMetadata) and canonical_json(self.to_dict()) == canonical_json(other.to_dict())

    def __eq__(self, other: object) -> bool:
        return self.same_as(other)

    def __hash__(self) -> int:
        return hash(canonical_json(self.to_dict()))


class ArrayMetadata(NodeMetadata):
    """Base class of the metadata of arrays, for both Zarr formats."""

    zarr_format: ClassVar[ZarrFormat]

    _documents: _core.ArrayMetadata

    def __init__(self, document: Mapping[str, Any], attributes: Mapping[str, Any] | None = None) -> None:
        given = {} if attributes is None else as_attributes(attributes)
        self._take(_core.ArrayMetadata.from_documents(self._named(as_mapping(document, "an array"), given)))

    @staticmethod
    def _named(document: Mapping[str, Any], attributes: dict[str, Any]) -> Documents:
        """Divides a metadata document and attributes into the documents to store, by file name, such as ``.zarray`` and ``.zattrs``."""
        raise NotImplementedError  # each format has its own

    def _take(self, core: _core.ArrayMetadata) -> Self:
        if core.is_rectilinear:
            require_rectilinear()
        self.__dict__["_documents"] = core
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to '{name}': metadata does not change", name=name, obj=self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(document={self.document!r}, attributes={self.attributes!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.document, self.attributes)

    @property
    def document(self) -> dict[str, Any]:
        """The array's metadata document as a dictionary, without the attributes."""
        return self._documents.document()

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the array."""
        return self._documents.attributes()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each dimension."""
        return self._documents.shape

    @cached_property
    def data_type(self) -> DataType:
        """The data type of the array's elements."""
        return from_description(*self._documents.data_type())

    @cached_property
    def fill_value(self) -> Any:
        """The value of elements that were never written. In format 2, ``None`` means that there is no fill value."""
        element = self._documents.fill_element()
        return None if element is None else self.data_type._of_element(element)

    @property
    def dtype(self) -> DataType:
        """The data type of the array's elements."""
        return self.data_type

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk: the unit that is decoded."""
        return self._inner_chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Shape of a shard, the stored object that holds many chunks; ``None`` without sharding."""
        return None if self._documents.inner_chunks is None else self._stored_chunks

    @property
    def _inner_chunks(self) -> tuple[int, ...]:
        """Shape of a chunk, the unit that is decoded. In a rectilinear grid, the shape of the largest chunk."""
        return self._documents.inner_chunks or self._stored_chunks

    @property
    def _stored_chunks(self) -> tuple[int, ...]:
        """Shape of a shard, or of a chunk without sharding. In a rectilinear grid, the shape of the largest one."""
        return self._documents.stored_chunks

    @cached_property
    def _grid(self) -> ChunkGrid:
        """The grid of the stored objects: of the shards, or of the chunks if there are no shards."""
        return self._documents.grid

    def encode_chunk_key(self, chunk_coords: Iterable[int]) -> str:
        """The key, relative to the array, of the chunk or shard at a position in the grid of stored objects.

        Parameters
        ----------
        chunk_coords : iterable of int
            The position, one number per dimension. With sharding it counts shards, else chunks.

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
        return self._documents.encode_chunk_key(list(chunk_coords))

    def _decode_chunk_keys(self, keys: Iterable[str]) -> list[tuple[str, tuple[int, ...]]]:
        """Those of ``keys`` that name chunks or shards of this array, each with its position in the grid."""
        return self._documents.decode_chunk_keys(keys)

    @property
    def chunk_key(self) -> tuple[str, str]:
        """Name and separator of the chunk key encoding, such as ``("default", "/")``."""
        return self._documents.chunk_key

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Makes the metadata object from a metadata document.

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
            The document is not metadata of an array of this format.

        Examples
        --------
        >>> import cuzarr
        >>> document = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16").metadata.to_dict()
        >>> cuzarr.ArrayV3Metadata.from_dict(document).shape
        (4,)
        """
        document = dict(as_mapping(data, "an array"))
        return cls(document, as_mapping(document.pop("attributes", None) or {}, "attributes"))

    def to_dict(self) -> dict[str, Any]:
        """The metadata document as a dictionary, with the attributes inside.

        Returns
        -------
        dict
            A document of JSON values.

        Examples
        --------
        >>> import cuzarr
        >>> document = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16").metadata.to_dict()
        >>> document["shape"], document["data_type"], document["attributes"]
        ([4], 'int16', {})
        """
        # The attributes keep their position among the members.
        document = next(iter(self._documents.stored().values()))
        return {**document, "attributes": self.attributes}

    def described(self) -> Documents:
        """The stored metadata document without the attributes, by its file name.

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
        return {ZARR_JSON if self.zarr_format == 3 else ZARRAY: self.document}

    def stored(self) -> tuple[Documents, None]:
        return self._documents.stored(), None

    def _given(self) -> tuple[_core.ArrayMetadata, None]:
        return self._documents, None

    def update_shape(self, shape: Iterable[int]) -> Self:
        """A copy of this metadata with another shape. The array itself is not changed; :meth:`cuzarr.Array.resize` does that.

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
        return object.__new__(type(self))._take(self._documents.with_shape(list(shape)))

    def update_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """A copy of this metadata with other attributes. The array itself is not changed; :meth:`cuzarr.Array.update_attributes` does that.

        Parameters
        ----------
        attributes : mapping
            All new attributes. They are converted to JSON values: tuples and NumPy's arrays become lists. Old attributes are dropped.

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
        return object.__new__(type(self))._take(self._documents.with_attributes(as_attributes(attributes)))


def canonical_json(document: Mapping[str, Any]) -> str:
    """Writes a metadata document as JSON text. Equal documents have the same text."""
    return json.dumps(document, sort_keys=True, default=_plain_json)


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
        The document is not metadata of an array of this format.

    Examples
    --------
    >>> import cuzarr
    >>> array = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16", zarr_format=3)
    >>> array.metadata.shape, array.metadata.zarr_format
    ((4,), 3)
    """

    zarr_format: ClassVar[ZarrFormat] = 3
    node_type: ClassVar[Literal["array"]] = "array"

    @staticmethod
    def _named(document: Mapping[str, Any], attributes: dict[str, Any]) -> Documents:
        if (got := document.get("node_type")) != "array":
            hint = "open it with open_group or open" if got == "group" else None
            raise NodeTypeValidationError(f"node_type is {got!r}, expected 'array'", hint=hint)
        return {ZARR_JSON: {**document, "attributes": attributes}}

    @cached_property
    def codecs(self) -> tuple[Codec, ...]:
        """The codecs that the metadata document lists, in the order in which they encode."""
        codecs = self.document.get("codecs")
        if not isinstance(codecs, list | tuple):
            raise MetadataValidationError(f"codecs is {codecs!r}, expected a list")
        return tuple(map(parse_codec, codecs))

    @property
    def sharding_codec(self) -> ShardingCodec | None:
        """The sharding codec, if it is the array's only codec; else ``None``."""
        codecs = self.codecs
        return codecs[0] if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec) else None

    @property
    def inner_codecs(self) -> tuple[Codec, ...]:
        """The codecs with which the array's chunks are encoded; with sharding, those inside the sharding codec."""
        sharding = self.sharding_codec
        return self.codecs if sharding is None else sharding.codecs

    def _with_role(self, role: str) -> tuple[Codec, ...]:
        return tuple(codec for codec in self.inner_codecs if codec.role == role)

    @property
    def filters(self) -> tuple[Codec, ...]:
        """The array-to-array codecs with which the array's chunks are encoded."""
        return self._with_role("array_array")

    @property
    def serializer(self) -> Codec | None:
        """The array-to-bytes codec with which the array's chunks are encoded."""
        return next(iter(self._with_role("array_bytes")), None)

    @property
    def compressors(self) -> tuple[Codec, ...]:
        """The bytes-to-bytes codecs with which the array's chunks are encoded."""
        return self._with_role("bytes_bytes")

    @property
    def is_rectilinear(self) -> bool:
        """Whether the chunk grid is rectilinear: chunks (or shards) may differ in length along a dimension."""
        return self._documents.is_rectilinear

    @property
    def chunk_grid(self) -> dict[str, Any]:
        """The chunk grid, as the metadata document describes it."""
        return self.document["chunk_grid"]  # type: ignore[no-any-return]

    def _require_regular(self, what: str, instead: str) -> None:
        if self.is_rectilinear:
            raise NoChunkShapeError(f"an array with a rectilinear chunk grid has no '{what}'", hint=f"use {instead}")

    @property
    def chunks(self) -> tuple[int, ...]:
        self._require_regular("chunks", "read_chunk_sizes")
        return self._inner_chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        if super().shards is not None:
            self._require_regular("shards", "write_chunk_sizes")
        return super().shards

    @property
    def chunk_key_encoding(self) -> dict[str, Any]:
        """The chunk key encoding, as the metadata document describes it."""
        encoding = self.document["chunk_key_encoding"]
        return {"name": encoding} if isinstance(encoding, str) else dict(encoding)

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of the array's dimensions; ``None`` if the metadata document names none."""
        return self._documents.dimension_names

    @property
    def storage_transformers(self) -> tuple[Any, ...]:
        """The storage transformers that the metadata document lists; empty, because cuzarr supports none."""
        return tuple(self.document.get("storage_transformers") or ())


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
        The document is not metadata of an array of this format.

    Examples
    --------
    >>> import cuzarr
    >>> array = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16", zarr_format=2)
    >>> array.metadata.shape, array.metadata.zarr_format
    ((4,), 2)
    """

    zarr_format: ClassVar[ZarrFormat] = 2

    @staticmethod
    def _named(document: Mapping[str, Any], attributes: dict[str, Any]) -> Documents:
        return {ZARRAY: dict(document), ZATTRS: attributes}

    @cached_property
    def filters(self) -> tuple[NumcodecsCodec, ...] | None:
        """The filters, in the order in which they encode."""
        filters = self.document.get("filters")
        return tuple(map(from_numcodecs_config, filters)) if filters else None

    @cached_property
    def compressor(self) -> NumcodecsCodec | None:
        """The array's compressor, if it has one."""
        compressor = self.document.get("compressor")
        return None if compressor is None else from_numcodecs_config(compressor)

    @property
    def serializer(self) -> None:
        """Always ``None``: in format 2, the data type alone decides how elements become bytes."""
        return None

    @property
    def compressors(self) -> tuple[NumcodecsCodec, ...]:
        """The array's compressor, as a tuple of one codec; empty if the array has none."""
        return () if self.compressor is None else (self.compressor,)

    @property
    def order(self) -> Literal["C", "F"]:
        """Order of the elements inside a chunk: row-major (``"C"``) or column-major (``"F"``)."""
        return self._documents.order

    @property
    def dimension_separator(self) -> Literal[".", "/"]:
        """The separator between the numbers of a chunk's key, as in ``0.1`` or ``0/1``."""
        return self.chunk_key[1]  # type: ignore[return-value]


AnyArrayMetadata = ArrayV2Metadata | ArrayV3Metadata


def of_core(core: _core.ArrayMetadata) -> AnyArrayMetadata:
    """The metadata object of Python for array metadata that the Rust side read or made.

    Raises
    ------
    MetadataValidationError, UnsupportedFeatureError
        The shape or the chunks are not valid, or the configuration does not allow the chunk grid.
    """
    if core.zarr_format == 3:
        return object.__new__(ArrayV3Metadata)._take(core)
    return object.__new__(ArrayV2Metadata)._take(core)

"""Chains of codecs: the sharding codec, codecs of other registries, and parsing of callers' arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cuzarr._checks import dictionary, items, parse_shape
from cuzarr.codecs.numcodecs import NumcodecsCodec, from_numcodecs_config
from cuzarr.codecs.values import (
    BloscCodec,
    BytesCodec,
    CastValue,
    Codec,
    Crc32cCodec,
    DataType,
    GzipCodec,
    Role,
    ScaleOffset,
    TransposeCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
    choice,
    replace_codec,
)
from cuzarr.errors import InvalidArgumentError, MetadataValidationError

if TYPE_CHECKING:
    from enum import Enum

    from cuzarr.typing import CodecLike, ShapeLike


@dataclass(frozen=True, init=False)
class ShardingCodec(Codec):
    """The sharding codec: stores many chunks in one object (a shard), with an index at its start or end.

    ``codecs`` encode the inner chunks, which have the shape ``chunk_shape``; ``index_codecs`` encode the index.

    Parameters
    ----------
    chunk_shape : tuple of int
        Shape of the inner chunks, in elements.
    codecs : iterable of codec
        The codecs of the inner chunks.
    index_codecs : iterable of codec
        The codecs of the index.
    index_location : {"start", "end"}
        Location of the index.
    subchunk_write_order : str
        The order in which chunks are written.

    Raises
    ------
    MetadataValidationError
        A setting is not allowed.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.codecs.ShardingCodec(chunk_shape=(2, 2)).to_dict()["configuration"]["chunk_shape"]
    [2, 2]
    """

    name: ClassVar[str] = "sharding_indexed"
    role: ClassVar[Role] = "array_bytes"
    chunk_shape: tuple[int, ...]
    codecs: tuple[Codec, ...]
    index_codecs: tuple[Codec, ...]
    index_location: str
    subchunk_write_order: str

    def __init__(
        self,
        *,
        chunk_shape: ShapeLike,
        codecs: Iterable[CodecLike] = (BytesCodec(),),
        index_codecs: Iterable[CodecLike] = (BytesCodec(), Crc32cCodec()),
        index_location: Literal["start", "end"] | Enum = "end",
        subchunk_write_order: Literal["morton", "unordered", "lexicographic", "colexicographic"] = "morton",
    ) -> None:
        orders = ("morton", "unordered", "lexicographic", "colexicographic")
        object.__setattr__(self, "chunk_shape", parse_shape(chunk_shape))
        if 0 in self.chunk_shape:
            raise InvalidArgumentError(f"chunks of a shard have extents of at least 1, got {self.chunk_shape}")
        object.__setattr__(self, "codecs", tuple(map(parse_codec, items(codecs, "codecs", "a list of codecs"))))
        object.__setattr__(self, "index_codecs", tuple(map(parse_codec, items(index_codecs, "index_codecs", "a list of codecs"))))
        object.__setattr__(self, "index_location", choice("index_location", index_location, ("start", "end")))
        object.__setattr__(self, "subchunk_write_order", choice("subchunk_write_order", subchunk_write_order, orders))

    def configuration(self) -> dict[str, Any]:
        return {
            "chunk_shape": list(self.chunk_shape),
            "codecs": [codec.to_dict() for codec in self.codecs],
            "index_codecs": [codec.to_dict() for codec in self.index_codecs],
            "index_location": self.index_location,
        }

    def for_dtype(self, data_type: DataType) -> Codec:
        return replace_codec(self, codecs=chain_for_dtype(self.codecs, data_type))


@dataclass(frozen=True, init=False)
class ExtensionCodec(Codec):
    """A codec that neither Zarr nor numcodecs defines. It is looked up in Python's codec registries when it is used.

    Parameters
    ----------
    document : dict or str
        The codec's metadata, or its name.
    role : {"array_array", "array_bytes", "bytes_bytes"}
        Whether it maps elements to elements, elements to bytes, or bytes to bytes.

    Raises
    ------
    UnknownCodecError
        From reading: no registry has a codec of that name.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.codecs.ExtensionCodec({"name": "mine", "configuration": {}}).to_dict()["name"]
    'mine'
    """

    name: str  # type: ignore[misc]
    role: Role  # type: ignore[misc]
    document: dict[str, Any]

    def __init__(self, document: Mapping[str, Any] | str, role: Role = "bytes_bytes") -> None:
        parsed = {"name": document} if isinstance(document, str) else dictionary(document, "a codec")
        if not isinstance(parsed.get("name"), str):
            raise MetadataValidationError(f"a codec has a name, got {document!r}")
        object.__setattr__(self, "name", parsed["name"])
        object.__setattr__(self, "role", role)
        object.__setattr__(self, "document", parsed)

    def configuration(self) -> dict[str, Any]:
        return dict(self.document.get("configuration") or {})

    def to_dict(self) -> dict[str, Any]:
        return dict(self.document)

    def __hash__(self) -> int:
        return hash(self.name)


BUILT_IN: dict[str, type[Codec]] = {
    cls.name: cls
    for cls in (
        BytesCodec,
        BloscCodec,
        ZstdCodec,
        GzipCodec,
        Crc32cCodec,
        TransposeCodec,
        VLenUTF8Codec,
        VLenBytesCodec,
        ScaleOffset,
        CastValue,
        ShardingCodec,
    )
}


def parse_codec(spec: Any) -> Codec:
    """Converts a codec of cuzarr, zarr-python or numcodecs, its metadata, or its name to a codec object of cuzarr.

    Raises
    ------
    MetadataValidationError
        The codec has no name, or the configuration of a known codec is not valid.
    """
    if isinstance(spec, Codec):
        return spec
    if isinstance(spec, type):
        raise TypeError(f"{spec.__name__} is a class, expected a codec: call {spec.__name__}()")
    tuned = getattr(spec, "_tunable_attrs", ())  # settings that zarr-python's BloscCodec has not decided yet
    role = _foreign_role(spec)
    if hasattr(spec, "to_dict"):
        spec = spec.to_dict()
    elif hasattr(spec, "get_config"):
        return from_numcodecs_config(spec.get_config())
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping):
        raise TypeError(f"codec is {spec!r}, expected a codec object, a dictionary or a name")
    if "id" in spec and "name" not in spec:
        return from_numcodecs_config(spec)
    name = spec.get("name")
    if name == "endian":
        spec, name = {**spec, "name": "bytes"}, "bytes"
    if isinstance(name, str) and name.startswith("numcodecs."):
        return NumcodecsCodec.from_dict(spec)
    if name in BUILT_IN:
        codec = BUILT_IN[name].from_dict(spec)
        return replace_codec(codec, **dict.fromkeys(tuned)) if tuned else codec
    return ExtensionCodec(spec, role)


def _foreign_role(spec: Any) -> Role:
    bases = {base.__name__ for base in type(spec).__mro__}
    if "ArrayArrayCodec" in bases:
        return "array_array"
    return "array_bytes" if "ArrayBytesCodec" in bases else "bytes_bytes"


def chain_for_dtype(codecs: Iterable[Codec], data_type: DataType) -> tuple[Codec, ...]:
    """Fills in settings that codecs of a chain left open, by the element type. Each codec gets the type that the previous one outputs."""
    decided: list[Codec] = []
    for codec in codecs:
        codec = codec.for_dtype(data_type)
        decided.append(codec)
        data_type = codec._handed_on(data_type)
    return tuple(decided)

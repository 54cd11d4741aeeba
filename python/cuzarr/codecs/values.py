"""The codecs of Zarr format 3 as values."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from cuzarr._checks import dictionary, items, whole
from cuzarr.errors import InvalidArgumentError, MetadataValidationError

if TYPE_CHECKING:
    from cuzarr._metadata.dtype import DataType

Role = Literal["array_array", "array_bytes", "bytes_bytes"]


class Codec:
    """One step of a codec chain: a name and its configuration."""

    name: ClassVar[str]
    role: ClassVar[Role]

    def configuration(self) -> dict[str, Any]:
        """The members of ``configuration`` in the metadata."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """What metadata says of this codec."""
        configuration = self.configuration()
        return {"name": self.name, "configuration": configuration} if configuration else {"name": self.name}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`.

        Raises
        ------
        MetadataValidationError
            The name is another codec's, or a member has no meaning.
        """
        if data.get("name") != cls.name:
            raise MetadataValidationError(f"expected codec '{cls.name}', got {data.get('name')!r}")
        try:
            return cls(**(data.get("configuration") or {}))
        except TypeError as error:
            raise MetadataValidationError(f"codec '{cls.name}' has no such configuration: {error}") from error

    def for_dtype(self, data_type: DataType) -> Codec:
        """This codec with what it left open decided for elements of ``data_type``."""
        return self


def _choice(what: str, value: Any, choices: tuple[str, ...]) -> str:
    text = getattr(value, "value", value)  # zarr-python's enumerations
    if not isinstance(text, str) or text not in choices:
        raise InvalidArgumentError(f"{what} is {value!r}, expected one of {', '.join(choices)}")
    return str(text)


def _number(what: str, value: Any, low: int, high: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{what} is a whole number, got {value!r}") from error
    if number < low or (high is not None and number > high):
        raise InvalidArgumentError(f"{what} is {number}, expected {low} to {high}" if high else f"{what} is below {low}")
    return number


@dataclass(frozen=True, init=False)
class BytesCodec(Codec):
    """Elements as their bytes, little or big end first; ``None`` for elements of single bytes."""

    name: ClassVar[str] = "bytes"
    role: ClassVar[Role] = "array_bytes"
    endian: Literal["little", "big"] | None

    def __init__(self, *, endian: Any = sys.byteorder) -> None:
        parsed = None if endian is None else _choice("endian", endian, ("little", "big"))
        object.__setattr__(self, "endian", parsed)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        configuration = data.get("configuration") or {}
        return cls(endian=configuration.get("endian"))

    def configuration(self) -> dict[str, Any]:
        return {} if self.endian is None else {"endian": self.endian}

    def for_dtype(self, data_type: DataType) -> Codec:
        if not data_type.has_byte_order:
            return replace_codec(self, endian=None)
        if self.endian is None:
            raise InvalidArgumentError(f"the bytes codec needs endian='little' or 'big' for elements of {data_type}")
        return self


@dataclass(frozen=True, init=False)
class BloscCodec(Codec):
    """Blosc: shuffled blocks, compressed by one of five compressors.

    ``typesize`` is the size of the elements in bytes and ``shuffle`` ``"shuffle"`` (``"bitshuffle"`` for single bytes)
    unless given. ``blocksize`` 0 lets Blosc choose.
    """

    name: ClassVar[str] = "blosc"
    role: ClassVar[Role] = "bytes_bytes"
    typesize: int | None
    cname: str
    clevel: int
    shuffle: str | None
    blocksize: int

    def __init__(
        self,
        *,
        typesize: int | None = None,
        cname: Any = "zstd",
        clevel: int = 5,
        shuffle: Any = None,
        blocksize: int = 0,
    ) -> None:
        compressors = ("lz4", "lz4hc", "blosclz", "snappy", "zlib", "zstd")
        shuffles = ("noshuffle", "shuffle", "bitshuffle")
        object.__setattr__(self, "typesize", None if typesize is None else _number("typesize", typesize, 1))
        object.__setattr__(self, "cname", _choice("cname", cname, compressors))
        object.__setattr__(self, "clevel", _number("clevel", clevel, 0, 9))
        object.__setattr__(self, "shuffle", None if shuffle is None else _choice("shuffle", shuffle, shuffles))
        object.__setattr__(self, "blocksize", _number("blocksize", blocksize, 0))

    def configuration(self) -> dict[str, Any]:
        return {
            "typesize": self.typesize or 1,
            "cname": self.cname,
            "clevel": self.clevel,
            "shuffle": self.shuffle or "bitshuffle",
            "blocksize": self.blocksize,
        }

    def for_dtype(self, data_type: DataType) -> Codec:
        size = data_type.item_bytes
        shuffle = self.shuffle or ("bitshuffle" if size == 1 else "shuffle")
        return replace_codec(self, typesize=self.typesize or size, shuffle=shuffle)


@dataclass(frozen=True, init=False)
class ZstdCodec(Codec):
    """Zstandard; ``level`` -131072 to 22, 0 is zstd's own default."""

    name: ClassVar[str] = "zstd"
    role: ClassVar[Role] = "bytes_bytes"
    level: int
    checksum: bool

    def __init__(self, *, level: int = 0, checksum: bool = False) -> None:
        object.__setattr__(self, "level", _number("level", level, -131072, 22))
        if not isinstance(checksum, bool):
            raise TypeError(f"checksum is True or False, got {checksum!r}")
        object.__setattr__(self, "checksum", checksum)

    def configuration(self) -> dict[str, Any]:
        return {"level": self.level, "checksum": self.checksum}


@dataclass(frozen=True, init=False)
class GzipCodec(Codec):
    """gzip; ``level`` 0 to 9."""

    name: ClassVar[str] = "gzip"
    role: ClassVar[Role] = "bytes_bytes"
    level: int

    def __init__(self, *, level: int = 5) -> None:
        object.__setattr__(self, "level", _number("level", level, 0, 9))

    def configuration(self) -> dict[str, Any]:
        return {"level": self.level}


@dataclass(frozen=True)
class Crc32cCodec(Codec):
    """A CRC-32C checksum behind the bytes, checked on reading."""

    name: ClassVar[str] = "crc32c"
    role: ClassVar[Role] = "bytes_bytes"


@dataclass(frozen=True, init=False)
class TransposeCodec(Codec):
    """Dimensions in another order: ``order[i]`` is the array's dimension that is stored as dimension ``i``."""

    name: ClassVar[str] = "transpose"
    role: ClassVar[Role] = "array_array"
    order: tuple[int, ...]

    def __init__(self, *, order: Iterable[int]) -> None:
        axes = tuple(whole(axis, "order") for axis in items(order, "order", "dimensions"))
        if sorted(axes) != list(range(len(axes))):
            raise InvalidArgumentError(f"order {axes} is no permutation of {len(axes)} dimensions")
        object.__setattr__(self, "order", axes)

    def configuration(self) -> dict[str, Any]:
        return {"order": list(self.order)}


@dataclass(frozen=True)
class VLenUTF8Codec(Codec):
    """Strings of variable length."""

    name: ClassVar[str] = "vlen-utf8"
    role: ClassVar[Role] = "array_bytes"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configuration": {}}


@dataclass(frozen=True)
class VLenBytesCodec(Codec):
    """Bytes of variable length."""

    name: ClassVar[str] = "vlen-bytes"
    role: ClassVar[Role] = "array_bytes"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configuration": {}}


@dataclass(frozen=True, init=False)
class ScaleOffset(Codec):
    """Stores ``(x - offset) * scale``, in the element's own type."""

    name: ClassVar[str] = "scale_offset"
    role: ClassVar[Role] = "array_array"
    offset: int | float | str
    scale: int | float | str

    def __init__(self, *, offset: Any = 0, scale: Any = 1) -> None:
        for what, value in (("offset", offset), ("scale", scale)):
            if not isinstance(value, int | float | str):
                raise TypeError(f"{what} is a number or a string, got {value!r}")
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "scale", scale)

    def configuration(self) -> dict[str, Any]:
        return ({"offset": self.offset} if self.offset != 0 else {}) | ({"scale": self.scale} if self.scale != 1 else {})


@dataclass(frozen=True, init=False)
class CastValue(Codec):
    """Stores elements as another integer or float type; ``data_type`` is the stored one."""

    name: ClassVar[str] = "cast_value"
    role: ClassVar[Role] = "array_array"
    data_type: str
    rounding: str
    out_of_range: str | None
    scalar_map: Any

    def __init__(
        self,
        *,
        data_type: Any,
        rounding: Any = "nearest-even",
        out_of_range: Any = None,
        scalar_map: Any = None,
    ) -> None:
        roundings = ("nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away")
        if not isinstance(data_type, str):
            from cuzarr._metadata.dtype import parse_dtype

            data_type = parse_dtype(data_type, 3).to_json(3)
        object.__setattr__(self, "data_type", data_type)
        object.__setattr__(self, "rounding", _choice("rounding", rounding, roundings))
        range_choice = None if out_of_range is None else _choice("out_of_range", out_of_range, ("clamp", "wrap"))
        object.__setattr__(self, "out_of_range", range_choice)
        object.__setattr__(self, "scalar_map", scalar_map)

    def configuration(self) -> dict[str, Any]:
        configuration: dict[str, Any] = {"data_type": self.data_type}
        if self.rounding != "nearest-even":
            configuration["rounding"] = self.rounding
        if self.out_of_range is not None:
            configuration["out_of_range"] = self.out_of_range
        if self.scalar_map is not None:
            configuration["scalar_map"] = {
                direction: [list(pair) for pair in (pairs.items() if isinstance(pairs, Mapping) else pairs)]
                for direction, pairs in self.scalar_map.items()
            }
        return configuration


@dataclass(frozen=True, init=False)
class ShardingCodec(Codec):
    """Many chunks in one stored object, with an index at its start or end.

    ``chunk_shape`` is the shape of the chunks inside, which ``codecs`` encode; ``index_codecs`` encode the index.
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
        chunk_shape: Any,
        codecs: Iterable[Any] = (BytesCodec(),),
        index_codecs: Iterable[Any] = (BytesCodec(), Crc32cCodec()),
        index_location: Any = "end",
        subchunk_write_order: Any = "morton",
    ) -> None:
        from cuzarr._checks import parse_shape

        orders = ("morton", "unordered", "lexicographic", "colexicographic")
        object.__setattr__(self, "chunk_shape", parse_shape(chunk_shape))
        if 0 in self.chunk_shape:
            raise InvalidArgumentError(f"chunks of a shard have extents of at least 1, got {self.chunk_shape}")
        object.__setattr__(self, "codecs", tuple(map(parse_codec, items(codecs, "codecs", "a list of codecs"))))
        object.__setattr__(self, "index_codecs", tuple(map(parse_codec, items(index_codecs, "index_codecs", "a list of codecs"))))
        object.__setattr__(self, "index_location", _choice("index_location", index_location, ("start", "end")))
        object.__setattr__(self, "subchunk_write_order", _choice("subchunk_write_order", subchunk_write_order, orders))

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
    """A codec that is neither Zarr's nor numcodecs' own, by its metadata: found in Python's codec registries when used."""

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


def replace_codec(codec: Codec, **changes: Any) -> Codec:
    """A copy of a codec's value with other members."""
    return replace(codec, **changes)  # type: ignore[type-var]


def parse_codec(spec: Any) -> Codec:
    """A codec from a value of ours, of zarr-python's or of numcodecs', from metadata, or from a name.

    Raises
    ------
    MetadataValidationError
        It has no name, or a known codec's configuration has no meaning.
    """
    from cuzarr.codecs.numcodecs import NumcodecsCodec, from_numcodecs_config

    if isinstance(spec, Codec):
        return spec
    if isinstance(spec, type):
        raise TypeError(f"{spec.__name__} is a class, and a codec is made by calling it: {spec.__name__}()")
    tuned = getattr(spec, "_tunable_attrs", ())  # zarr-python's BloscCodec: what it would still decide itself
    role = _foreign_role(spec)
    if hasattr(spec, "to_dict"):
        spec = spec.to_dict()
    elif hasattr(spec, "get_config"):
        return from_numcodecs_config(spec.get_config())
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping):
        raise TypeError(f"a codec is a codec object, a dictionary or a name, got {spec!r}")
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
    """A chain with everything its codecs left open decided; each codec sees the type that the one before hands on."""
    from cuzarr._metadata.dtype import DataType, from_json_v3

    decided: list[Codec] = []
    for codec in codecs:
        codec = codec.for_dtype(data_type)
        decided.append(codec)
        if isinstance(codec, CastValue):
            data_type = from_json_v3(codec.data_type)
        elif (stored := getattr(codec, "stored_dtype", None)) is not None:
            data_type = DataType(stored)
    return tuple(decided)

"""The codecs of Zarr format 3 as plain objects that hold their settings."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np

from cuzarr._checks import element_type, items, whole
from cuzarr._docstrings import complete_class, documented
from cuzarr._memory import element_types
from cuzarr.errors import InvalidArgumentError, MetadataValidationError

if TYPE_CHECKING:
    from enum import Enum

    from cuzarr.typing import DTypeLike

Role = Literal["array_array", "array_bytes", "bytes_bytes"]


class DataType(element_types.DataType, Protocol):
    """The part of a Zarr data type's interface that is needed to set up codecs."""

    @property
    def item_bytes(self) -> int: ...
    @property
    def has_byte_order(self) -> bool: ...
    def _of_json(self, spec: Any) -> Self:
        """Makes the data type that format 3 metadata describes."""
        ...

    def _of_native(self, native: np.dtype[Any]) -> Self:
        """Makes the data type for a NumPy dtype."""
        ...


AnyDataType = TypeVar("AnyDataType", bound=DataType)


@documented(
    ">>> import cuzarr",
)
class Codec:
    """Base class of codecs: one step of a codec chain, given by its name and settings.

    Raises
    ------
    MetadataValidationError
        A setting is not allowed.

    >>> isinstance(cuzarr.codecs.GzipCodec(), cuzarr.codecs.Codec)
    True
    """

    name: ClassVar[str]
    role: ClassVar[Role]

    def __init_subclass__(cls) -> None:
        complete_class(cls, "MetadataValidationError\n    A setting is not allowed.", ">>> import cuzarr")

    def configuration(self) -> dict[str, Any]:
        """The settings of this codec, in the form of ``configuration`` in format 3 metadata.

        Returns
        -------
        dict
            Names and values of settings; empty if the codec has none.

        >>> cuzarr.codecs.GzipCodec(level=1).configuration()
        {'level': 1}
        """
        return {}

    def to_dict(self) -> dict[str, Any]:
        """The description of this codec in format 3 metadata.

        Returns
        -------
        dict
            ``name`` and, if there are settings, ``configuration``. Codecs of numcodecs always have both.

        >>> cuzarr.codecs.GzipCodec(level=1).to_dict()
        {'name': 'gzip', 'configuration': {'level': 1}}
        """
        configuration = self.configuration()
        return {"name": self.name, "configuration": configuration} if configuration else {"name": self.name}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Makes the codec that format 3 metadata describes.

        Parameters
        ----------
        data : mapping
            ``name`` and ``configuration``, as :meth:`to_dict` gives them.

        Raises
        ------
        MetadataValidationError
            The name belongs to another codec, or there is no such setting.

        >>> cuzarr.codecs.GzipCodec.from_dict({"name": "gzip", "configuration": {"level": 1}})
        GzipCodec(level=1)
        """
        if data.get("name") != cls.name:
            raise MetadataValidationError(f"expected codec '{cls.name}', got {data.get('name')!r}")
        try:
            return cls(**(data.get("configuration") or {}))
        except TypeError as error:
            raise MetadataValidationError(f"codec '{cls.name}' has no such configuration: {error}") from error

    def for_dtype(self, data_type: DataType) -> Codec:
        """Returns this codec for elements of one type: settings that were left open, such as ``typesize``, get their values.

        Parameters
        ----------
        data_type : DataType
            The type of the elements, such as ``cuzarr.dtype.Float32()``.

        Returns
        -------
        Codec
            A codec of this class; the codec itself if nothing was left open.

        Raises
        ------
        InvalidArgumentError
            The codec needs a setting for elements of this type.

        >>> cuzarr.codecs.BloscCodec(cname="lz4").for_dtype(cuzarr.dtype.Float32()).typesize
        4
        """
        return self

    def _handed_on(self, data_type: AnyDataType) -> AnyDataType:
        """The data type of the elements that this codec passes to the next codec of a chain, if it gets elements of ``data_type``."""
        return data_type


def choice(what: str, value: Any, choices: tuple[str, ...]) -> str:
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
    """The codec ``bytes``, which stores elements as their bytes, in little or big endian order.

    Parameters
    ----------
    endian : {"little", "big"} or None
        Byte order; ``None`` for elements of one byte.

    >>> cuzarr.codecs.BytesCodec(endian="big").to_dict()
    {'name': 'bytes', 'configuration': {'endian': 'big'}}
    """

    name: ClassVar[str] = "bytes"
    role: ClassVar[Role] = "array_bytes"
    endian: Literal["little", "big"] | None

    def __init__(self, *, endian: Literal["little", "big"] | Enum | None = sys.byteorder) -> None:
        parsed = None if endian is None else choice("endian", endian, ("little", "big"))
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
    """The Blosc compressor: shuffles blocks, and compresses them with one of five compressors.

    By default, ``typesize`` is the size of the elements in bytes, and ``shuffle`` is ``"shuffle"`` (``"bitshuffle"`` for elements of
    one byte). With ``blocksize`` 0, Blosc chooses.

    Parameters
    ----------
    typesize : int, optional
        Size of an element in bytes; by default that of the array's elements.
    cname : {"zstd", "lz4", "lz4hc", "zlib", "blosclz", "snappy"}
        The compressor inside Blosc.
    clevel : int
        Level, 0 to 9.
    shuffle : {"noshuffle", "shuffle", "bitshuffle"}, optional
        Shuffling before compression; by default chosen by the size of the elements.
    blocksize : int
        Size of a block in bytes; 0 lets Blosc choose.

    >>> cuzarr.codecs.BloscCodec(cname="lz4", typesize=4).to_dict()["configuration"]["cname"]
    'lz4'
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
        cname: Literal["zstd", "lz4", "lz4hc", "zlib", "blosclz", "snappy"] | Enum = "zstd",
        clevel: int = 5,
        shuffle: Literal["noshuffle", "shuffle", "bitshuffle"] | Enum | None = None,
        blocksize: int = 0,
    ) -> None:
        compressors = ("lz4", "lz4hc", "blosclz", "snappy", "zlib", "zstd")
        shuffles = ("noshuffle", "shuffle", "bitshuffle")
        object.__setattr__(self, "typesize", None if typesize is None else _number("typesize", typesize, 1))
        object.__setattr__(self, "cname", choice("cname", cname, compressors))
        object.__setattr__(self, "clevel", _number("clevel", clevel, 0, 9))
        object.__setattr__(self, "shuffle", None if shuffle is None else choice("shuffle", shuffle, shuffles))
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
    """The Zstandard compressor; ``level`` is -131072 to 22, 0 is zstd's own default.

    Parameters
    ----------
    level : int
        -131072 to 22; 0 is zstd's own default.
    checksum : bool
        Whether each frame carries a checksum.

    >>> cuzarr.codecs.ZstdCodec(level=3).to_dict()
    {'name': 'zstd', 'configuration': {'level': 3, 'checksum': False}}
    """

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
    """The gzip compressor; ``level`` is 0 to 9.

    Parameters
    ----------
    level : int
        0 to 9.

    >>> cuzarr.codecs.GzipCodec(level=1).to_dict()
    {'name': 'gzip', 'configuration': {'level': 1}}
    """

    name: ClassVar[str] = "gzip"
    role: ClassVar[Role] = "bytes_bytes"
    level: int

    def __init__(self, *, level: int = 5) -> None:
        object.__setattr__(self, "level", _number("level", level, 0, 9))

    def configuration(self) -> dict[str, Any]:
        return {"level": self.level}


@dataclass(frozen=True)
class Crc32cCodec(Codec):
    """The codec ``crc32c``, which adds a CRC-32C checksum behind the bytes, and checks it on reading.

    Raises
    ------
    ChecksumMismatchError
        From reading a chunk whose checksum is wrong.

    >>> cuzarr.codecs.Crc32cCodec().to_dict()["name"]
    'crc32c'
    """

    name: ClassVar[str] = "crc32c"
    role: ClassVar[Role] = "bytes_bytes"


@dataclass(frozen=True, init=False)
class TransposeCodec(Codec):
    """The codec ``transpose``, which reorders dimensions: dimension ``order[i]`` of the array is stored as dimension ``i``.

    Parameters
    ----------
    order : sequence of int
        Dimension ``order[i]`` of the array is stored as dimension ``i``.

    >>> cuzarr.codecs.TransposeCodec(order=(1, 0)).to_dict()
    {'name': 'transpose', 'configuration': {'order': [1, 0]}}
    """

    name: ClassVar[str] = "transpose"
    role: ClassVar[Role] = "array_array"
    order: tuple[int, ...]

    def __init__(self, *, order: Iterable[int]) -> None:
        axes = tuple(whole(axis, "order") for axis in items(order, "order", "dimensions"))
        if sorted(axes) != list(range(len(axes))):
            raise InvalidArgumentError(f"order {axes} is not a permutation of {len(axes)} dimensions")
        object.__setattr__(self, "order", axes)

    def configuration(self) -> dict[str, Any]:
        return {"order": list(self.order)}


@dataclass(frozen=True)
class VLenUTF8Codec(Codec):
    """The codec ``vlen-utf8``, which encodes strings of variable length.

    Raises
    ------
    ChunkCorruptError
        From reading a damaged chunk.

    >>> cuzarr.codecs.VLenUTF8Codec().to_dict()["name"]
    'vlen-utf8'
    """

    name: ClassVar[str] = "vlen-utf8"
    role: ClassVar[Role] = "array_bytes"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configuration": {}}


@dataclass(frozen=True)
class VLenBytesCodec(Codec):
    """The codec ``vlen-bytes``, which encodes bytes of variable length.

    Raises
    ------
    ChunkCorruptError
        From reading a damaged chunk.

    >>> cuzarr.codecs.VLenBytesCodec().to_dict()["name"]
    'vlen-bytes'
    """

    name: ClassVar[str] = "vlen-bytes"
    role: ClassVar[Role] = "array_bytes"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configuration": {}}


@dataclass(frozen=True, init=False)
class ScaleOffset(Codec):
    """The codec ``scale_offset``, which stores each element ``x`` as ``(x - offset) * scale``, in the same type.

    Parameters
    ----------
    offset : number
        The number to subtract first.
    scale : number
        The factor for the difference.

    >>> cuzarr.codecs.ScaleOffset(offset=10, scale=2).to_dict()["name"]
    'scale_offset'
    """

    name: ClassVar[str] = "scale_offset"
    role: ClassVar[Role] = "array_array"
    offset: int | float | str
    scale: int | float | str

    def __init__(self, *, offset: float | str = 0, scale: float | str = 1) -> None:
        for what, value in (("offset", offset), ("scale", scale)):
            if not isinstance(value, int | float | str):
                raise TypeError(f"{what} is a number or a string, got {value!r}")
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "scale", scale)

    def configuration(self) -> dict[str, Any]:
        return ({"offset": self.offset} if self.offset != 0 else {}) | ({"scale": self.scale} if self.scale != 1 else {})


@dataclass(frozen=True, init=False)
class CastValue(Codec):
    """The codec ``cast_value``, which converts elements to the integer or float type ``data_type`` for storing.

    Parameters
    ----------
    data_type : dtype-like
        The stored type.
    rounding : str
        The rounding of floats: ``"nearest-even"``, ``"towards-zero"``, ….
    out_of_range : {"clamp", "wrap"} or None
        Treatment of values that do not fit; with ``None`` they are an error.
    scalar_map : dict, optional
        Values that are replaced by others: ``{"encode": [["NaN", 0]]}``.

    >>> cuzarr.codecs.CastValue(data_type="int16").to_dict()["name"]
    'cast_value'
    """

    name: ClassVar[str] = "cast_value"
    role: ClassVar[Role] = "array_array"
    data_type: str
    rounding: str
    out_of_range: str | None
    scalar_map: Any

    def __init__(
        self,
        *,
        data_type: DTypeLike,
        rounding: Literal[
            "nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"
        ] = "nearest-even",
        out_of_range: Literal["clamp", "wrap"] | None = None,
        scalar_map: Mapping[str, Any] | None = None,
    ) -> None:
        roundings = ("nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away")
        if not isinstance(data_type, str):
            data_type = data_type if isinstance(data_type, Mapping) else _type_name(data_type)
        object.__setattr__(self, "data_type", data_type)
        object.__setattr__(self, "rounding", choice("rounding", rounding, roundings))
        range_choice = None if out_of_range is None else choice("out_of_range", out_of_range, ("clamp", "wrap"))
        object.__setattr__(self, "out_of_range", range_choice)
        object.__setattr__(self, "scalar_map", scalar_map)

    def _handed_on(self, data_type: AnyDataType) -> AnyDataType:
        return data_type._of_json(self.data_type)

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


def _type_name(data_type: Any) -> str:
    """The Zarr name of a number type, which is given by NumPy's type, or by an object with ``native`` or ``to_native_dtype``."""
    native = getattr(data_type, "native", None)
    if native is None:
        native = data_type.to_native_dtype() if hasattr(data_type, "to_native_dtype") else element_type(data_type)
    return str(native.name)


def replace_codec(codec: Codec, **changes: Any) -> Codec:
    """A copy of a codec with other settings."""
    return replace(codec, **changes)  # type: ignore[type-var]

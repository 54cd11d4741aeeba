"""Codecs of numcodecs as plain objects that hold their settings.

One object serves both formats: in format 3 its name is ``numcodecs.<id>``, in format 2 its ``id`` stands beside its
settings.

>>> from cuzarr.codecs.numcodecs import LZ4
>>> LZ4(acceleration=2).to_dict()
{'name': 'numcodecs.lz4', 'configuration': {'acceleration': 2}}
>>> LZ4(acceleration=2).get_config()
{'id': 'lz4', 'acceleration': 2}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from cuzarr import _names
from cuzarr._docstrings import clean, documented
from cuzarr.codecs.values import AnyDataType, Codec, DataType, Role
from cuzarr.errors import MetadataValidationError

__all__ = [
    "BZ2",
    "CRC32",
    "CRC32C",
    "LZ4",
    "LZMA",
    "ZFPY",
    "Adler32",
    "AsType",
    "BitRound",
    "Blosc",
    "Delta",
    "FixedScaleOffset",
    "Fletcher32",
    "GZip",
    "JenkinsLookup3",
    "NumcodecsCodec",
    "PCodec",
    "PackBits",
    "Quantize",
    "Shuffle",
    "Zlib",
    "Zstd",
]

PREFIX = "numcodecs."
# The common part of all codecs' docstrings. It is filled in with the name of the class, its settings, and the name in metadata.
_SHARED = """

Raises
------
MetadataValidationError
    A setting is not allowed.

Examples
--------
>>> import cuzarr
>>> codec = cuzarr.codecs.numcodecs.{}({})
>>> codec.name
'{}'
"""


@documented(
    ">>> from cuzarr.codecs.numcodecs import LZ4",
)
class NumcodecsCodec(Codec):
    """A codec of numcodecs, given by its settings. ``codec_id`` is its name in numcodecs.

    Parameters
    ----------
    id : str
        Name of the codec.
    **codec_config
        Its settings.

    Raises
    ------
    MetadataValidationError
        A setting is not allowed.

    >>> import cuzarr
    >>> codec = cuzarr.codecs.numcodecs.NumcodecsCodec(id="zlib", level=1)
    >>> codec.name
    'numcodecs.zlib'
    """

    codec_id: ClassVar[str] = ""
    role: ClassVar[Role] = "bytes_bytes"
    # numcodecs' own defaults, which format 2 metadata contain
    defaults: ClassVar[dict[str, Any]] = {}
    # settings that default to the array's element type
    from_dtype: ClassVar[tuple[str, ...]] = ()

    # settings of the class's example
    _example: ClassVar[str] = ""

    codec_config: dict[str, Any]

    def __init_subclass__(cls) -> None:
        if cls.__doc__ and cls.codec_id:
            cls.__doc__ = clean(cls.__doc__).rstrip() + _SHARED.format(cls.__name__, cls._example, PREFIX + cls.codec_id)

    def __init__(self, **codec_config: Any) -> None:
        given_id = codec_config.pop("id", self.codec_id)
        if self.codec_id and given_id != self.codec_id:
            raise MetadataValidationError(f"expected codec '{self.codec_id}', got '{given_id}'")
        self._id = given_id
        self.codec_config = {key: _plain(value) for key, value in codec_config.items()}

    @property
    def name(self) -> str:  # type: ignore[override]
        """The codec's name in format 3 metadata."""
        return PREFIX + str(self._id)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Makes the codec that format 3 metadata describes, as an object of the class for the codec's name.

        Parameters
        ----------
        data : mapping
            ``name`` and ``configuration``, as :meth:`to_dict` gives them.

        >>> from cuzarr.codecs.numcodecs import NumcodecsCodec
        >>> NumcodecsCodec.from_dict({"name": "numcodecs.lz4", "configuration": {"acceleration": 2}})
        LZ4(acceleration=2)
        """
        identifier = str(data["name"]).removeprefix(PREFIX)
        return _make(identifier, dict(data.get("configuration") or {}))  # type: ignore[return-value]

    def configuration(self) -> dict[str, Any]:
        """The settings of this codec, in the form of ``configuration`` in format 3 metadata.

        Returns
        -------
        dict
            Names and values. Settings that were not given are left out.

        >>> LZ4(acceleration=2).configuration()
        {'acceleration': 2}
        """
        return {key: value for key, value in self.codec_config.items() if key != "id"}

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configuration": self.configuration()}

    def get_config(self) -> dict[str, Any]:
        """The settings of this codec, in the form of format 2 metadata and of numcodecs.

        Returns
        -------
        dict
            ``id``, which is the name of the codec, and all settings, with their defaults.

        >>> LZ4().get_config()
        {'id': 'lz4', 'acceleration': 1}
        """
        return {"id": self._id, **self.defaults, **self.codec_config}

    def for_dtype(self, data_type: DataType) -> Codec:
        missing = [key for key in self.from_dtype if self.codec_config.get(key) is None]
        if not missing:
            return self
        native = data_type.native
        decided = {key: native.itemsize if key == "elementsize" else native.str for key in missing}
        return _make(self._id, {**self.codec_config, **decided})

    @property
    def stored_dtype(self) -> np.dtype[Any] | None:
        """The element type of this codec's output, if it differs from the type of the input."""
        return None

    def _handed_on(self, data_type: AnyDataType) -> AnyDataType:
        return data_type if self.stored_dtype is None else data_type._of_native(self.stored_dtype)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumcodecsCodec):
            return self.get_config() == other.get_config()
        if getattr(other, "codec_id", None) != self._id or not hasattr(other, "from_config"):
            return NotImplemented
        try:  # numcodecs' own codec, whose settings are complete
            twin = other.from_config({key: value for key, value in self.get_config().items() if key != "id"})
        except TypeError:
            return False
        return bool(twin.get_config() == other.get_config())  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self.codec_config.items())
        return f"{type(self).__name__}({settings})"


def _plain(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return value.str
    return value.item() if isinstance(value, np.generic) else value


class BZ2(NumcodecsCodec):
    """The bzip2 compressor; ``level`` is 1 to 9.

    Parameters
    ----------
    level : int
        1 to 9.
    """

    codec_id = "bz2"
    _example = "level=1"
    defaults: ClassVar[dict[str, Any]] = {"level": 1}


class LZ4(NumcodecsCodec):
    """The LZ4 compressor. The decoded size precedes the data.

    Parameters
    ----------
    acceleration : int
        From 1; larger is faster and compresses less.
    """

    codec_id = "lz4"
    _example = "acceleration=2"
    defaults: ClassVar[dict[str, Any]] = {"acceleration": 1}


class LZMA(NumcodecsCodec):
    """The LZMA compressor. A list of ``filters``, and the format without a header, need the library numcodecs.

    Parameters
    ----------
    preset : int
        Level, 0 to 9. ``format``, ``check`` and ``filters`` are those of :mod:`lzma`.
    """

    codec_id = "lzma"
    _example = "preset=1"
    defaults: ClassVar[dict[str, Any]] = {"format": 1, "check": -1, "preset": None, "filters": None}


class Blosc(NumcodecsCodec):
    """The Blosc compressor; ``shuffle`` is 0 for none, 1 for bytes, 2 for bits, -1 to choose by the size of the elements.

    Parameters
    ----------
    cname : str
        The compressor inside Blosc.
    clevel : int
        Level, 0 to 9.
    shuffle : int
        0 for none, 1 for bytes, 2 for bits, -1 to choose by the size of the elements.
    blocksize : int
        Size of a block in bytes; 0 lets Blosc choose.
    """

    codec_id = "blosc"
    _example = 'cname="lz4"'
    defaults: ClassVar[dict[str, Any]] = {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}


class GZip(NumcodecsCodec):
    """The gzip compressor; ``level`` is 0 to 9.

    Parameters
    ----------
    level : int
        0 to 9.
    """

    codec_id = "gzip"
    _example = "level=1"
    defaults: ClassVar[dict[str, Any]] = {"level": 1}


class Zlib(NumcodecsCodec):
    """The zlib compressor; ``level`` is 0 to 9.

    Parameters
    ----------
    level : int
        0 to 9.
    """

    codec_id = "zlib"
    _example = "level=1"
    defaults: ClassVar[dict[str, Any]] = {"level": 1}


class Zstd(NumcodecsCodec):
    """The Zstandard compressor; ``level`` is up to 22.

    Parameters
    ----------
    level : int
        Up to 22.
    checksum : bool
        Whether each frame carries a checksum.
    """

    codec_id = "zstd"
    _example = "level=3"
    defaults: ClassVar[dict[str, Any]] = {"level": 0}


class Shuffle(NumcodecsCodec):
    """A filter that rearranges bytes: first byte of every element, then the second byte of every element, and so on.

    Parameters
    ----------
    elementsize : int
        Size of an element in bytes.
    """

    codec_id = "shuffle"
    _example = "elementsize=4"
    defaults: ClassVar[dict[str, Any]] = {"elementsize": 4}
    from_dtype: ClassVar[tuple[str, ...]] = ("elementsize",)


class CRC32(NumcodecsCodec):
    """A codec that adds a CRC-32 checksum in front of the bytes, or behind them with ``location="end"``.

    Parameters
    ----------
    location : {"start", "end"}
        Position of the checksum.
    """

    codec_id = "crc32"


class CRC32C(NumcodecsCodec):
    """A codec that adds a CRC-32C checksum behind the bytes, or in front of them with ``location="start"``.

    Parameters
    ----------
    location : {"start", "end"}
        Position of the checksum.
    """

    codec_id = "crc32c"


class Adler32(NumcodecsCodec):
    """A codec that adds an Adler-32 checksum in front of the bytes.

    Parameters
    ----------
    location : {"start", "end"}
        Position of the checksum.
    """

    codec_id = "adler32"


class Fletcher32(NumcodecsCodec):
    """A codec that adds a Fletcher-32 checksum behind the bytes, as HDF5 does.

    Parameters
    ----------
    **codec_config
        There are no settings.
    """

    codec_id = "fletcher32"


class JenkinsLookup3(NumcodecsCodec):
    """A codec that adds a Jenkins lookup3 checksum to the bytes; the library numcodecs computes it.

    Parameters
    ----------
    initval, prefix
        Settings of the checksum.
    """

    codec_id = "jenkins_lookup3"


class _DtypeCodec(NumcodecsCodec):
    role: ClassVar[Role] = "array_array"
    from_dtype: ClassVar[tuple[str, ...]] = ("dtype",)

    @property
    def stored_dtype(self) -> np.dtype[Any] | None:
        stored = self.codec_config.get("astype") or self.codec_config.get("dtype")
        return None if stored is None else np.dtype(stored)


class Delta(_DtypeCodec):
    """A filter that stores the difference of each element from the one before; ``astype`` is the type of stored differences.

    Parameters
    ----------
    dtype : dtype-like
        The type of the elements.
    astype : dtype-like
        The stored type.
    """

    codec_id = "delta"
    _example = 'dtype="<i4"'


class FixedScaleOffset(_DtypeCodec):
    """A filter that stores each element ``x`` as ``round((x - offset) * scale)``, of type ``astype``.

    Parameters
    ----------
    offset, scale : float
        ``round((x - offset) * scale)`` is stored.
    dtype, astype : dtype-like
        The type of the elements, and the stored type.
    """

    codec_id = "fixedscaleoffset"
    _example = 'offset=0, scale=10, dtype="<f4", astype="<i2"'


class Quantize(_DtypeCodec):
    """A filter that rounds floats to ``digits`` decimal digits before they are compressed.

    Parameters
    ----------
    digits : int
        Decimal digits that are kept.
    dtype, astype : dtype-like
        The type of the elements, and the stored type.
    """

    codec_id = "quantize"
    _example = 'digits=2, dtype="<f4"'


class BitRound(NumcodecsCodec):
    """A filter that rounds floats to ``keepbits`` bits of mantissa before they are compressed.

    Parameters
    ----------
    keepbits : int
        Bits of the mantissa that are kept.
    """

    codec_id = "bitround"
    _example = "keepbits=8"
    role: ClassVar[Role] = "array_array"


class PackBits(NumcodecsCodec):
    """A filter that packs booleans as single bits, eight to a byte.

    Parameters
    ----------
    **codec_config
        There are no settings.
    """

    codec_id = "packbits"
    role: ClassVar[Role] = "array_array"

    @property
    def stored_dtype(self) -> np.dtype[Any] | None:
        return np.dtype("uint8")


class AsType(NumcodecsCodec):
    """A filter that converts elements to the type ``encode_dtype`` before they are stored.

    Parameters
    ----------
    encode_dtype : dtype-like
        The stored type.
    decode_dtype : dtype-like
        The type of the elements.
    """

    codec_id = "astype"
    _example = 'encode_dtype="<i2", decode_dtype="<f4"'
    role: ClassVar[Role] = "array_array"
    from_dtype: ClassVar[tuple[str, ...]] = ("decode_dtype",)

    @property
    def stored_dtype(self) -> np.dtype[Any] | None:
        stored = self.codec_config.get("encode_dtype")
        return None if stored is None else np.dtype(stored)


class PCodec(NumcodecsCodec):
    """The pcodec compressor, for numbers of 16 to 64 bits.

    Parameters
    ----------
    level, mode_spec, delta_spec, …
        Settings of pcodec.
    """

    codec_id = "pcodec"
    _example = "level=8"
    role: ClassVar[Role] = "array_bytes"


class ZFPY(NumcodecsCodec):
    """The zfp compressor, run by the library numcodecs.

    Parameters
    ----------
    mode, tolerance, rate, precision
        Settings of zfp.
    """

    codec_id = "zfpy"
    _example = "mode=4, tolerance=0.01"
    role: ClassVar[Role] = "array_bytes"


_BY_ID: dict[str, type[NumcodecsCodec]] = {
    cls.codec_id: cls
    for cls in (
        BZ2,
        CRC32,
        CRC32C,
        LZ4,
        LZMA,
        ZFPY,
        Adler32,
        AsType,
        BitRound,
        Blosc,
        Delta,
        FixedScaleOffset,
        Fletcher32,
        GZip,
        JenkinsLookup3,
        PCodec,
        PackBits,
        Quantize,
        Shuffle,
        Zlib,
        Zstd,
    )
}


def _make(identifier: str, settings: dict[str, Any]) -> NumcodecsCodec:
    cls = _BY_ID.get(identifier)
    return cls(**settings) if cls is not None else NumcodecsCodec(id=identifier, **settings)


def from_numcodecs_config(config: Mapping[str, Any]) -> NumcodecsCodec:
    """Makes the codec object from settings in the form of format 2 metadata (and of numcodecs' ``get_config()``).

    Raises
    ------
    MetadataValidationError
        There is no ``id``.
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
        raise MetadataValidationError(f"a codec of format 2 has an 'id', got {config!r}")
    settings = {key: value for key, value in config.items() if key != "id"}
    return _make(config["id"], settings)


_names.list_public(globals())

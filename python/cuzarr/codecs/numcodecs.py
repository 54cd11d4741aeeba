"""Codecs of numcodecs, as plain values.

One value serves both formats: in format 3 its name is ``numcodecs.<id>``, in format 2 its ``id`` stands beside its
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
# What is the same in the docstrings of all codecs: the class's name, settings, and the name in metadata fill it in.
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
    # numcodecs' own defaults, which format 2 metadata spells out
    defaults: ClassVar[dict[str, Any]] = {}
    # settings that are the array's element type unless given
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
        """The name in format 3 metadata."""
        return PREFIX + str(self._id)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The codec that format 3 metadata describes, of the class of that name.

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
        """The settings of this codec, as ``configuration`` in format 3 metadata has them.

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
        """The settings of this codec, as format 2 metadata and the library numcodecs have them.

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
        """The element type this codec hands on, when it is another one."""
        return None

    def _handed_on(self, data_type: AnyDataType) -> AnyDataType:
        return data_type if self.stored_dtype is None else data_type._of_native(self.stored_dtype)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumcodecsCodec):
            return self.get_config() == other.get_config()
        if getattr(other, "codec_id", None) != self._id or not hasattr(other, "from_config"):
            return NotImplemented
        try:  # numcodecs' own, whose settings are complete
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
    """bzip2; ``level`` 1 to 9.

    Parameters
    ----------
    level : int
        1 to 9.
    """

    codec_id = "bz2"
    _example = "level=1"
    defaults: ClassVar[dict[str, Any]] = {"level": 1}


class LZ4(NumcodecsCodec):
    """LZ4, with the decoded size in front of the data.

    Parameters
    ----------
    acceleration : int
        From 1; larger is faster and compresses less.
    """

    codec_id = "lz4"
    _example = "acceleration=2"
    defaults: ClassVar[dict[str, Any]] = {"acceleration": 1}


class LZMA(NumcodecsCodec):
    """LZMA. A list of ``filters``, and the format without a header, need the library numcodecs.

    Parameters
    ----------
    preset : int
        Level, 0 to 9. ``format``, ``check`` and ``filters`` are those of :mod:`lzma`.
    """

    codec_id = "lzma"
    _example = "preset=1"
    defaults: ClassVar[dict[str, Any]] = {"format": 1, "check": -1, "preset": None, "filters": None}


class Blosc(NumcodecsCodec):
    """Blosc; ``shuffle`` 0 none, 1 bytes, 2 bits, -1 by the element's size.

    Parameters
    ----------
    cname : str
        The compressor inside.
    clevel : int
        Level, 0 to 9.
    shuffle : int
        0 none, 1 bytes, 2 bits, -1 by the size of the elements.
    blocksize : int
        Bytes of a block; 0 lets Blosc choose.
    """

    codec_id = "blosc"
    _example = 'cname="lz4"'
    defaults: ClassVar[dict[str, Any]] = {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}


class GZip(NumcodecsCodec):
    """gzip; ``level`` 0 to 9.

    Parameters
    ----------
    level : int
        0 to 9.
    """

    codec_id = "gzip"
    _example = "level=1"
    defaults: ClassVar[dict[str, Any]] = {"level": 1}


class Zlib(NumcodecsCodec):
    """zlib; ``level`` 0 to 9.

    Parameters
    ----------
    level : int
        0 to 9.
    """

    codec_id = "zlib"
    _example = "level=1"
    defaults: ClassVar[dict[str, Any]] = {"level": 1}


class Zstd(NumcodecsCodec):
    """Zstandard; ``level`` up to 22.

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
    """Bytes rearranged: first the first byte of every element, then the second, and so on.

    Parameters
    ----------
    elementsize : int
        Bytes of an element.
    """

    codec_id = "shuffle"
    _example = "elementsize=4"
    defaults: ClassVar[dict[str, Any]] = {"elementsize": 4}
    from_dtype: ClassVar[tuple[str, ...]] = ("elementsize",)


class CRC32(NumcodecsCodec):
    """A CRC-32 checksum in front of the bytes, or behind them with ``location="end"``.

    Parameters
    ----------
    location : {"start", "end"}
        Where the checksum is.
    """

    codec_id = "crc32"


class CRC32C(NumcodecsCodec):
    """A CRC-32C checksum behind the bytes, or in front of them with ``location="start"``.

    Parameters
    ----------
    location : {"start", "end"}
        Where the checksum is.
    """

    codec_id = "crc32c"


class Adler32(NumcodecsCodec):
    """An Adler-32 checksum in front of the bytes.

    Parameters
    ----------
    location : {"start", "end"}
        Where the checksum is.
    """

    codec_id = "adler32"


class Fletcher32(NumcodecsCodec):
    """A Fletcher-32 checksum behind the bytes, as HDF5 writes it.

    Parameters
    ----------
    **codec_config
        None.
    """

    codec_id = "fletcher32"


class JenkinsLookup3(NumcodecsCodec):
    """A Jenkins lookup3 checksum, through numcodecs.

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
    """Differences of neighbours; ``astype`` is the stored type.

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
    """``round((x - offset) * scale)``, stored as ``astype``.

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
    """Floats with ``digits`` decimal digits kept.

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
    """Floats with ``keepbits`` bits of mantissa kept.

    Parameters
    ----------
    keepbits : int
        Bits of the mantissa that are kept.
    """

    codec_id = "bitround"
    _example = "keepbits=8"
    role: ClassVar[Role] = "array_array"


class PackBits(NumcodecsCodec):
    """Booleans as single bits.

    Parameters
    ----------
    **codec_config
        None.
    """

    codec_id = "packbits"
    role: ClassVar[Role] = "array_array"

    @property
    def stored_dtype(self) -> np.dtype[Any] | None:
        return np.dtype("uint8")


class AsType(NumcodecsCodec):
    """Elements stored as ``encode_dtype``.

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
    """pcodec, for numbers of 16 to 64 bits.

    Parameters
    ----------
    level, mode_spec, delta_spec, …
        Settings of pcodec.
    """

    codec_id = "pcodec"
    _example = "level=8"
    role: ClassVar[Role] = "array_bytes"


class ZFPY(NumcodecsCodec):
    """zfp, through numcodecs.

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
    """The value for settings as format 2 metadata (and ``get_config()`` of numcodecs) has them.

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

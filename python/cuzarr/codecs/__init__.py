"""Codecs as plain objects, which hold the settings by which an array's chunks are encoded.

Names and arguments are zarr-python's. Codec objects hold settings and do no work. Instead of a codec object, functions also accept a
dictionary, or a codec of zarr-python or numcodecs. :class:`Decoder` and :class:`Encoder` do the work of a codec, or of a chain, on frames
and chunks that a program holds itself.

>>> from cuzarr.codecs import BloscCodec
>>> BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4).to_dict()["name"]
'blosc'
"""

from __future__ import annotations

from cuzarr import _names
from cuzarr.codecs import numcodecs
from cuzarr.codecs.chain import ExtensionCodec, ShardingCodec
from cuzarr.codecs.choices import BloscCname, BloscShuffle, Endian, ShardingCodecIndexLocation, SubchunkWriteOrder
from cuzarr.codecs.decoder import Batch, Decoder
from cuzarr.codecs.encoder import Encoder, EncodingBatch
from cuzarr.codecs.values import (
    BloscCodec,
    BytesCodec,
    CastValue,
    Codec,
    Crc32cCodec,
    GzipCodec,
    ScaleOffset,
    TransposeCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
)

__all__ = [
    "Batch",
    "BloscCname",
    "BloscCodec",
    "BloscShuffle",
    "BytesCodec",
    "CastValue",
    "Codec",
    "Crc32cCodec",
    "Decoder",
    "Encoder",
    "EncodingBatch",
    "Endian",
    "ExtensionCodec",
    "GzipCodec",
    "ScaleOffset",
    "ShardingCodec",
    "ShardingCodecIndexLocation",
    "SubchunkWriteOrder",
    "TransposeCodec",
    "VLenBytesCodec",
    "VLenUTF8Codec",
    "ZstdCodec",
    "numcodecs",
]

_names.publish(globals())

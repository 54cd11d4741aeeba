"""Converts filters of HDF5 to codecs of numcodecs."""

from __future__ import annotations

from typing import Any

from cuzarr._text import printable
from cuzarr.errors import UnsupportedError

COMPRESSORS = ("zlib", "zstd", "blosc")
"""Codecs that can be the ``compressor`` of an array of Zarr format 2. All others go into its list ``filters``."""

# Numbers of filters in HDF5.
_DEFLATE, _SHUFFLE, _FLETCHER32, _BLOSC, _ZSTD = 1, 2, 3, 32001, 32015
_NAMES = {4: "szip", 5: "n-bit", 6: "scale-offset", 32000: "LZF", 32004: "LZ4", 32008: "bitshuffle", 32013: "ZFP"}


def codec(code: int, settings: tuple[int, ...], name: bytes, item_bytes: int) -> dict[str, Any]:
    """The codec of numcodecs for a filter of HDF5, whose ``code``, ``settings`` and ``name`` are in the file.

    Raises
    ------
    UnsupportedError
        Zarr has no codec for the filter.
    """
    if code == _DEFLATE:
        return {"id": "zlib", "level": int(settings[0]) if settings else 6}
    if code == _SHUFFLE:
        return {"id": "shuffle", "elementsize": int(settings[0]) if settings else item_bytes}
    if code == _FLETCHER32:
        return {"id": "fletcher32"}
    if code == _ZSTD:
        # HDF5's settings are unsigned, but levels may be negative.
        level = int(settings[0]) if settings else 3
        return {"id": "zstd", "level": level - (1 << 32) if level >= 1 << 31 else level}
    if code == _BLOSC:
        # Readers find the settings in the frame. These values are only for writers.
        return {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
    what = _NAMES.get(code) or name.decode(errors="replace") or str(code)
    hint = "copy the variable to a compressor that Zarr has, such as deflate: nccopy -d 4 FROM TO"
    raise UnsupportedError(f"the filter {printable(what)} has no codec", hint=hint)

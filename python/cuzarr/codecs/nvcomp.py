"""nvCOMP's own formats, which KvikIO's helpers stored, read by NVIDIA's package ``nvidia.nvcomp`` on a GPU.

No Zarr reader but KvikIO 25.08 and older knew them, so they are read and never written.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from cuzarr.errors import ChunkCorruptError, UnsupportedError

# The codecs of KvikIO's by their names in metadata. What they stored says itself which algorithm it is of.
_NATIVE = ("nvcomp_ANS", "nvcomp_Bitcomp", "nvcomp_Cascaded", "nvcomp_Gdeflate", "nvcomp_LZ4", "nvcomp_Snappy")
# The algorithms of its `nvcomp_batch`: names that nvCOMP has for them, or codecs of numcodecs that read the same bytes.
_RAW = {"snappy": "Snappy", "deflate": "Deflate", "gdeflate": "GDeflate"}
COMMON = ("lz4", "zstd")
# Filters before the codec may have made elements wider, up to those of the widest type.
_WIDEST_BYTES = 16

INSTALL = "pip install nvidia-nvcomp-cu12 (or -cu13), or write the array anew with LZ4 where KvikIO is installed"


class Host:
    """One of the formats, chunk by chunk."""

    def __init__(self, nvcomp: Any, options: dict[str, Any], limit_bytes: int) -> None:
        self._nvcomp = nvcomp
        self._options = options
        self._limit_bytes = limit_bytes
        self._codecs = threading.local()

    def _codec(self) -> Any:
        # Each has a stream and memory of its own.
        if not hasattr(self._codecs, "codec"):
            self._codecs.codec = self._nvcomp.Codec(**self._options)
        return self._codecs.codec

    def decode(self, encoded: bytes) -> bytes:
        codec = self._codec()
        source = self._nvcomp.as_array(np.frombuffer(encoded, "u1")).cuda()
        size_bytes = codec.get_uncomp_buffer_size(source)
        if size_bytes > self._limit_bytes:
            raise ChunkCorruptError(f"the chunk says that it holds {size_bytes} bytes, expected at most {self._limit_bytes}")
        return np.asarray(codec.decode(source).cpu()).tobytes()

    def encode(self, decoded: bytes) -> bytes:
        raise UnsupportedError("nvCOMP's own formats can be read, but not written", hint="write to an array with LZ4 or zstd")


def open_host(identifier: str, settings: dict[str, Any], shape: tuple[int, ...], itemsize: int) -> Any:
    """The decoder for chunks of ``shape`` of a codec ``nvcomp_…``, or ``None`` if it is unknown or nvCOMP is not installed.

    A codec of numcodecs' where that reads the same bytes.
    """
    options: dict[str, Any] = {}
    if identifier == "nvcomp_batch":
        algorithm = str(settings.get("algorithm")).lower()
        # Only `nvcomp_batch` with a header, which is its default, is what numcodecs' LZ4 is.
        if algorithm in COMMON and (settings.get("options") or {}).get("has_header", True):
            try:
                import numcodecs
            except ImportError:
                return None
            return numcodecs.get_codec({"id": algorithm})
        if algorithm not in _RAW:
            return None
        options["algorithm"] = _RAW[algorithm]
    elif identifier not in _NATIVE:
        return None
    try:
        from nvidia import nvcomp
    except ImportError:
        return None
    if options:
        options["bitstream_kind"] = nvcomp.BitstreamKind.RAW
    return Host(nvcomp, options, math.prod(shape) * max(itemsize, _WIDEST_BYTES))

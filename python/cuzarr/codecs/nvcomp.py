"""Decodes chunks that KvikIO stored in nvCOMP's own formats, on a GPU, by NVIDIA's package ``nvidia.nvcomp``.

Only KvikIO up to 25.08 knew these formats, so they are read and never written.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from cuzarr.errors import ChunkCorruptError, UnsupportedError

# KvikIO's codecs, by their names in metadata. The algorithm is found in the stored bytes.
_NATIVE = ("nvcomp_ANS", "nvcomp_Bitcomp", "nvcomp_Cascaded", "nvcomp_Gdeflate", "nvcomp_LZ4", "nvcomp_Snappy")
# Algorithms of KvikIO's `nvcomp_batch`: nvCOMP's names for them, or codecs of numcodecs that read the same bytes.
_RAW = {"snappy": "Snappy", "deflate": "Deflate", "gdeflate": "GDeflate"}
COMMON = ("lz4", "zstd")
# Size of the widest type, because filters before the codec may have made elements of this size.
_WIDEST_BYTES = 16

INSTALL = "pip install nvidia-nvcomp-cu12 (or -cu13), or write the array anew with LZ4 where KvikIO is installed"


class Host:
    """A decoder for chunks in one of nvCOMP's own formats, which the Rust side calls."""

    def __init__(self, nvcomp: Any, options: dict[str, Any], limit_bytes: int) -> None:
        self._nvcomp = nvcomp
        self._options = options
        self._limit_bytes = limit_bytes
        self._codecs = threading.local()

    def _codec(self) -> Any:
        # One for each thread, because each codec has its own stream and memory.
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
    """The decoder for chunks of ``shape`` that a codec ``nvcomp_…`` encoded; ``None`` if it is unknown or nvCOMP is not installed.

    If a codec of numcodecs reads the same bytes, that codec is the decoder.
    """
    options: dict[str, Any] = {}
    if identifier == "nvcomp_batch":
        algorithm = str(settings.get("algorithm")).lower()
        # Only `nvcomp_batch` with a header, which is its default, has the format of numcodecs' LZ4.
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

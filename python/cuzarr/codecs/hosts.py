"""Wraps codecs that are written in Python, in objects with the methods that the Rust side calls.

The Rust side knows one small set of methods. This module hides the differences between numcodecs and zarr-python's codecs.
``cuzarr.storage.adapters`` does the same for stores.
"""

from __future__ import annotations

import functools
import json
import lzma
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from cuzarr._config import config
from cuzarr._memory.foreign import to_bytes
from cuzarr._runtime import Loop
from cuzarr.codecs import nvcomp
from cuzarr.codecs.values import DataType
from cuzarr.errors import BudgetExceededError, PickleCodecDisabledError, UnknownCodecError

# Codecs of numcodecs that need the shape and type of arrays. Its other codecs, unless they are built in, take bytes.
_ARRAY_CODECS = ("zfpy", "pcodec", "pickle")


class NumcodecsHost:
    """A codec that is registered with numcodecs, wrapped so that the Rust side can decode and encode chunks with it."""

    def __init__(self, codec: Any, role: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._codec = codec
        self._role = role
        self._dtype = dtype
        self._shape = shape

    def decode(self, encoded: bytes) -> bytes:
        decoded = self._codec.decode(encoded)
        return self._elements(decoded) if self._role == "array_bytes" else to_bytes(decoded)

    def _elements(self, decoded: Any) -> bytes:
        # The elements in memory order, as zarr-python expects them: its pickles keep arrays in F order.
        return np.asarray(decoded, self._dtype).reshape(-1, order="A").tobytes()

    def encode(self, decoded: bytes) -> bytes:
        value: Any = decoded
        if self._role == "array_bytes":
            value = np.frombuffer(decoded, self._dtype).reshape(self._shape)
        return to_bytes(self._codec.encode(value))


class LzmaHost(NumcodecsHost):
    """The LZMA codec in Python, by which the Rust side decodes and encodes chunks. Refuses to decode more than ``limit_bytes`` bytes.

    A few encoded bytes can decode to a thousand times more bytes, and numcodecs has no limit.
    """

    def __init__(self, codec: Any, limit_bytes: int | None) -> None:
        super().__init__(codec, "bytes_bytes", np.dtype("u1"), ())
        self._limit_bytes = limit_bytes

    def decode(self, encoded: bytes) -> bytes:
        limit_bytes = config.get("array.variable_chunk_max_bytes") if self._limit_bytes is None else self._limit_bytes
        parts: list[bytes] = []
        left, rest = limit_bytes, bytes(encoded)
        # Streams may follow each other. Other bytes behind them are ignored, as by Python's lzma.decompress.
        while rest or not parts:
            stream = lzma.LZMADecompressor(self._codec.format, None, self._codec.filters)
            try:
                while not stream.eof:
                    part = stream.decompress(rest, max_length=left + 1)
                    parts.append(part)
                    left, rest = left - len(part), b""
                    if left < 0:
                        raise BudgetExceededError(f"decodes to more than {limit_bytes} bytes")
                    if stream.needs_input and not stream.eof:
                        raise lzma.LZMAError("the stream is cut off")
            except lzma.LZMAError:
                if not any(parts):
                    raise
                break
            rest = stream.unused_data
        return b"".join(parts)


class PickleHost(NumcodecsHost):
    """The codec by which the Rust side decodes chunks of pickled Python objects. It is used only if the configuration allows it, and does
    not need numcodecs' own permission."""

    def decode(self, encoded: bytes) -> bytes:
        return self._elements(pickle.loads(encoded))


class ZarrHost:
    """A codec that is registered with zarr-python, wrapped so that the Rust side can decode and encode chunks with it."""

    def __init__(self, codec: Any, role: str, spec: Any, encoded_spec: Any) -> None:
        self._codec = codec
        self._role = role
        self._spec = spec
        self._encoded_spec = encoded_spec

    def _array(self, raw: bytes, spec: Any) -> Any:
        elements = np.frombuffer(raw, spec.dtype.to_native_dtype()).reshape(spec.shape)
        return spec.prototype.nd_buffer.from_numpy_array(elements.copy())

    def _bytes(self, raw: bytes) -> Any:
        return self._spec.prototype.buffer.from_bytes(raw)

    def decode(self, encoded: bytes) -> bytes:
        value = self._array(encoded, self._encoded_spec) if self._role == "array_array" else self._bytes(encoded)
        (decoded,) = Loop.run(self._codec.decode([(value, self._spec)]))
        return to_bytes(decoded) if self._role == "bytes_bytes" else decoded.as_numpy_array().tobytes()

    def encode(self, decoded: bytes) -> bytes:
        value = self._bytes(decoded) if self._role == "bytes_bytes" else self._array(decoded, self._spec)
        (encoded,) = Loop.run(self._codec.encode([(value, self._spec)]))
        return encoded.as_numpy_array().tobytes() if self._role == "array_array" else to_bytes(encoded)


# The result for the Rust side: role, codec, and for array-to-array codecs the shape and the data type after encoding.
OpenedCodec = tuple[str, Any, list[int] | None, str | None]


def open_codec(
    name: str,
    configuration: str,
    zarr_format: int,
    shape: tuple[int, ...],
    data_type: str,
    parse: Callable[[Any], DataType],
) -> OpenedCodec | None:
    """Opens a codec in the registries of zarr-python and numcodecs; ``None`` if there is none. The Rust side calls this for unknown names.

    ``configuration`` and ``data_type`` are JSON. ``parse`` reads ``data_type``, which has the form of format 3. ``shape`` is the
    shape of the chunk.

    Raises
    ------
    PickleCodecDisabledError
        The codec is pickle, and ``allow_pickle`` is off.
    UnknownCodecError
        No registry has the codec, but a known package has it.
    """
    found = _found_codec(name, json.loads(configuration), zarr_format, shape, data_type, parse)
    if found is None and (package := _package_with(name.removeprefix("numcodecs."), zarr_format)):
        raise UnknownCodecError(f"codec '{name}' is not known", hint=f"install the package that has it: pip install {package}")
    return found


# Packages by the names of their codecs. For zarr-python 3, another package registers imagecodecs' codecs.
_PACKAGES = {
    "FITSAscii": "kerchunk",
    "FITSVarBintable": "kerchunk",
    "fill_hdf_strings": "kerchunk",
    "flac": "flac-numcodecs",
    "grib": "kerchunk",
    "gribberish": "gribberish",
    "record_member": "kerchunk",
    "wavpack": "wavpack-numcodecs",
}


def _package_with(name: str, zarr_format: int) -> str | None:
    if name.startswith("imagecodecs_"):
        return "imagecodecs" if zarr_format == 2 else "imagecodecs-zarr"
    return _PACKAGES.get(name)


def _found_codec(
    name: str,
    settings: dict[str, Any],
    zarr_format: int,
    shape: tuple[int, ...],
    data_type: str,
    parse: Callable[[Any], DataType],
) -> OpenedCodec | None:
    identifier = name.removeprefix("numcodecs.")
    if identifier == "pickle" and not (config.get("allow_pickle") or config.get("array.allow_unsafe_pickle_decode")):
        raise PickleCodecDisabledError(
            "data is pickled, and unpickling can run any code",
            hint="if you trust it: cuzarr.config.set({'allow_pickle': True})",
        )
    if zarr_format == 3 and not name.startswith("numcodecs."):
        return _open_zarr(name, settings, shape, json.loads(data_type))
    if identifier.startswith("nvcomp_") and (
        found := _open_nvcomp(identifier, settings, shape, parse(json.loads(data_type)).native.itemsize)
    ):
        return found
    try:
        import numcodecs
    except ImportError:
        return None
    if identifier.startswith("imagecodecs_"):
        _register_imagecodecs()
    try:
        codec = numcodecs.get_codec({"id": identifier, **settings})
    except ValueError as error:
        if type(error).__name__ == "UnknownCodecError" or "not available" in str(error):
            return None
        raise
    role = "array_bytes" if identifier in _ARRAY_CODECS else "bytes_bytes"
    dtype = parse(json.loads(data_type)).native if role == "array_bytes" else np.dtype("u1")
    if identifier == "lzma":
        known = parse(json.loads(data_type))
        # Includes the margin that the Rust side allows for several compressors in a row.
        fixed = None if known.is_variable else 4 * math.prod(shape) * known.item_bytes + (1 << 20)
        return role, LzmaHost(codec, fixed), None, None
    host = PickleHost if identifier == "pickle" else NumcodecsHost
    return role, host(codec, role, dtype, tuple(shape)), None, None


@functools.cache
def _register_imagecodecs() -> None:
    """Registers imagecodecs' codecs with numcodecs. imagecodecs does not do this by itself."""
    try:
        from imagecodecs.numcodecs import register_codecs
    except ImportError:
        return
    register_codecs(verbose=False)


def _open_nvcomp(identifier: str, settings: dict[str, Any], shape: tuple[int, ...], item_bytes: int) -> OpenedCodec | None:
    codec = nvcomp.open_host(identifier, settings, tuple(shape), item_bytes)
    if codec is None:
        return None
    host = codec if isinstance(codec, nvcomp.Host) else NumcodecsHost(codec, "bytes_bytes", np.dtype("u1"), tuple(shape))
    return "bytes_bytes", host, None, None


def _open_zarr(name: str, settings: dict[str, Any], shape: tuple[int, ...], data_type: Any) -> OpenedCodec | None:
    try:
        from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
        from zarr.core.array_spec import ArrayConfig, ArraySpec
        from zarr.core.buffer.cpu import buffer_prototype
        from zarr.dtype import parse_dtype as parse_zarr_dtype
        from zarr.registry import get_codec_class
    except ImportError:
        return None
    try:
        cls = get_codec_class(name)
    except KeyError:
        return None
    except Exception as error:
        if type(error).__name__ in ("UnknownCodecError", "BadConfigError"):
            return None
        raise
    dtype = parse_zarr_dtype(data_type, zarr_format=3)
    settled = ArrayConfig(order="C", write_empty_chunks=False)
    spec = ArraySpec(tuple(shape), dtype, dtype.default_scalar(), settled, buffer_prototype)
    document: dict[str, Any] = {"name": name, "configuration": settings} if settings else {"name": name}
    codec = cls.from_dict(document).evolve_from_array_spec(spec)
    encoded = codec.resolve_metadata(spec)
    if isinstance(codec, ArrayArrayCodec):
        encoded_type = json.dumps(encoded.dtype.to_json(zarr_format=3))
        return "array_array", ZarrHost(codec, "array_array", spec, encoded), list(encoded.shape), encoded_type
    role = "array_bytes" if isinstance(codec, ArrayBytesCodec) else "bytes_bytes"
    return role, ZarrHost(codec, role, spec, encoded), None, None

"""Translates the codecs and the ``ArraySpec`` of zarr-python's chunks to one document for the Rust engine, or refuses them with a
reason."""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from zarr.codecs import ShardingCodec
from zarr.codecs._v2 import V2Codec
from zarr.codecs.sharding import _ShardIndex
from zarr.core import indexing

from cuzarr import _core
from cuzarr._metadata.dtype import DataType
from cuzarr.errors import CuzarrError
from cuzarr.zarr._fallbacks import Fallback

# For each level of shards, the order in which the inner chunks are written, as numbers in C order.
WriteOrders = tuple[tuple[int, ...], ...]
_NO_ORDERS: WriteOrders = ()

# Modules whose codec classes do what their names say. A class from another module, chosen by the setting `codecs` or registered
# by a program, must be called instead.
_CODEC_MODULES = ("zarr.codecs.", "numcodecs.")


@dataclass(frozen=True)
class Chunks:
    """The Rust engine's codecs for all chunks that share one zarr-python ``ArraySpec``, with their shape, fill value and type."""

    core: _core.Chunks
    shape: tuple[int, ...]
    fill_value: Any
    data_type: DataType

    @property
    def native(self) -> np.dtype[Any]:
        """The type of the elements, in the machine's byte order."""
        return self.data_type.native

    @property
    def is_variable(self) -> bool:
        """Whether the elements of the chunks have variable length, such as strings."""
        return self.data_type.is_variable

    @property
    def nbytes(self) -> int:
        """The size of a decoded chunk in bytes. For elements of variable length, the number of elements."""
        return math.prod(map(int, self.shape)) * self.data_type.item_bytes

    def request(self, batch: list[Any], out_shape: tuple[int, ...], *, numbered: bool) -> _core.ChunkRequest | None:
        """Makes the Rust engine's request for the batch of chunks that zarr-python passes. ``None`` if the selected elements are not a
        box."""
        # zarr-python keeps a shard's elements beyond the array's edge. In other chunks it overwrites such elements.
        return _core.ChunkRequest.of_batch(batch, self.shape, out_shape, numbered, self.core.is_sharded)


# Tests and programs may replace these methods, and then expect calls of them.
_SHARD_CODE = {name: getattr(_ShardIndex, name) for name in ("get_chunk_slice", "set_chunk_slice")}


def shards_are_patched() -> bool:
    """Whether a program replaced the methods of zarr-python's sharding codec, and so expects that zarr-python calls them."""
    return any(getattr(_ShardIndex, name) is not code for name, code in _SHARD_CODE.items())


# The chunks that were opened last, with their codecs and specification. The next array is often of the same kind.
_opened: deque[tuple[tuple[Any, ...], Any, Chunks]] = deque(maxlen=16)


def open_chunks(codecs: tuple[Any, ...], spec: Any) -> Chunks:
    """Translates codecs and an ``ArraySpec`` of zarr-python for the Rust engine.

    Raises
    ------
    Fallback
        cuzarr cannot encode and decode these chunks.
    """
    for known_codecs, known_spec, found in tuple(_opened):
        if _are_same(known_spec, spec) and _are_equal(known_codecs, codecs):
            return found
    found = _open_chunks(codecs, spec)
    _opened.appendleft((codecs, spec, found))
    return found


def _are_same(known: Any, spec: Any) -> bool:
    left, right = known.fill_value, spec.fill_value
    # Compared bit by bit: -0.0 is a different fill value from 0.0, and NaN is equal to itself.
    if type(left) is not type(right) or not isinstance(left, np.bool_ | np.number) or left.tobytes() != right.tobytes():
        return False
    return bool(known.shape == spec.shape and known.dtype == spec.dtype and known.order == spec.order)


def _are_equal(known: tuple[Any, ...], codecs: tuple[Any, ...]) -> bool:
    return len(known) == len(codecs) and all(
        type(left) is type(right) and _compares_all(left) and left == right for left, right in zip(known, codecs, strict=True)
    )


def _compares_all(codec: Any) -> bool:
    """Whether ``==`` of codecs of this class compares the class and the whole configuration. For numcodecs' codecs, it does not."""
    return is_dataclass(codec) and not isinstance(codec, V2Codec)


def _open_chunks(codecs: tuple[Any, ...], spec: Any) -> Chunks:
    fill_value = spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value
    data_type = _data_type(spec.dtype)
    if len(codecs) == 1 and type(codecs[0]) is V2Codec:
        zarr_format, document, orders = 2, _document_v2(codecs[0], spec, fill_value), _NO_ORDERS
    else:
        zarr_format = 3
        document, orders = _document_v3(codecs, spec, fill_value, data_type)
    try:
        text = json.dumps(document, default=_plain)
    except TypeError as error:
        raise Fallback(f"a codec's configuration is not JSON: {error}") from None
    try:
        core = _open(text.encode(), zarr_format, orders)
    except CuzarrError as error:
        raise Fallback(f"not supported: {error.message}") from None
    if (core.dtype is None) != data_type.is_variable:
        raise Fallback("elements of variable length are not what NumPy holds")
    return Chunks(core, spec.shape, fill_value, data_type)


@lru_cache(maxsize=256)
def _open(document: bytes, zarr_format: int, orders: WriteOrders) -> _core.Chunks:
    return _core.Chunks(document, zarr_format, [list(order) for order in orders])


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r}")


def _data_type(dtype: Any) -> DataType:
    name = getattr(type(dtype), "_zarr_v3_name", "")
    native = dtype.to_native_dtype()
    if name in ("string", "variable_length_utf8"):
        return DataType(native, "string")
    if name in ("variable_length_bytes", "bytes"):
        return DataType(native, "variable_length_bytes")
    if native.kind not in "biufcmMSUV":
        raise Fallback(f"cuzarr does not know elements of {native}")
    return DataType(native.newbyteorder("="))


def _check_class(codec: Any) -> None:
    if not type(codec).__module__.startswith(_CODEC_MODULES):
        raise Fallback(f"codec class {type(codec).__module__}.{type(codec).__qualname__} is a program's own")


def _check_name(name: str, zarr_format: int) -> None:
    if not _core.has_codec(name, zarr_format):
        raise Fallback(f"codec '{name}' is not built in")


def _document_v2(codec: V2Codec, spec: Any, fill_value: Any) -> dict[str, Any]:
    steps = [*(codec.filters or ()), *([codec.compressor] if codec.compressor is not None else [])]
    for step in steps:
        _check_class(step)
    configurations = [step.get_config() for step in steps]
    for configuration in configurations:
        _check_name(configuration["id"], 2)
    filters = configurations[: len(codec.filters or ())]
    data_type = spec.dtype.to_json(zarr_format=2)
    return {
        "zarr_format": 2,
        "shape": list(spec.shape),
        "chunks": list(spec.shape),
        "dtype": data_type["name"] if isinstance(data_type, dict) else data_type,
        "fill_value": spec.dtype.to_json_scalar(fill_value, zarr_format=2),
        "order": spec.order,
        "filters": filters or None,
        "compressor": configurations[-1] if codec.compressor is not None else None,
    }


def _document_v3(codecs: tuple[Any, ...], spec: Any, fill_value: Any, data_type: DataType) -> tuple[dict[str, Any], WriteOrders]:
    evolved = []
    shapes = []
    current = spec
    for codec in codecs:
        codec = codec.evolve_from_array_spec(current)
        evolved.append(codec)
        shapes.append(current.shape)
        current = codec.resolve_metadata(current)
    _check_v3(evolved, data_type)
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.shape),
        "data_type": data_type.to_json(3),
        "fill_value": spec.dtype.to_json_scalar(fill_value, zarr_format=3),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(spec.shape)}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [codec.to_dict() for codec in evolved],
    }
    return document, _write_orders(evolved, shapes)


def _check_v3(codecs: Any, data_type: DataType) -> None:
    for codec in codecs:
        _check_class(codec)
        name = codec.to_dict()["name"]
        _check_name(name, 3)
        if name == "scale_offset" and data_type.native.kind in "iu":
            raise Fallback("codec 'scale_offset' on integers: zarr-python refuses what overflows")
        if isinstance(codec, ShardingCodec):
            _check_v3(codec.codecs, data_type)
            _check_v3(codec.index_codecs, data_type)


def _write_orders(codecs: Any, shapes: list[tuple[int, ...]]) -> WriteOrders:
    """The order in which zarr-python writes the inner chunks of each level of shards, as numbers in C order.

    ``shapes`` has the shape of the chunk before each codec.
    """
    for codec, shape in zip(codecs, shapes, strict=False):
        if isinstance(codec, ShardingCodec):
            grid = tuple(extent // inner for extent, inner in zip(shape, codec.chunk_shape, strict=True))
            order = _write_order(grid, getattr(codec, "subchunk_write_order", "morton"))
            deeper = [codec.chunk_shape] if isinstance(codec.codecs[0], ShardingCodec) else []
            return (order, *_write_orders(codec.codecs, deeper))
    return ()


@lru_cache(maxsize=64)
def _write_order(grid: tuple[int, ...], name: str) -> tuple[int, ...]:
    numbers = np.arange(int(np.prod(grid))).reshape(grid)
    if name == "colexicographic":
        return tuple(numbers.ravel(order="F").tolist())
    if name == "morton":
        places: Any = getattr(indexing, "morton_order_coords", None) or getattr(indexing, "morton_order_iter")  # noqa: B009, older ones have it
        return tuple(int(numbers[tuple(place)]) for place in places(grid))
    return tuple(numbers.ravel().tolist())

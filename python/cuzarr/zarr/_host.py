"""Runs zarr-python's own pipeline in host memory, because most of its codecs fail on arrays on a GPU.

The configured buffers must not be used there, but zarr-python uses them in two places: its codec for format 2 returns them, and its codec
for shards accepts no others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from zarr.codecs._v2 import V2Codec
from zarr.core.buffer import BufferPrototype, cpu

from cuzarr.zarr._memory import is_host


class _HostPrototype(BufferPrototype):
    """A pair of zarr-python's buffer classes for host memory, by which zarr-python's own code reads and writes. It equals every prototype,
    because zarr-python's codec for shards accepts only the configured one."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BufferPrototype)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = BufferPrototype.__hash__


_HOST = _HostPrototype(*cpu.buffer_prototype)


class _HostV2Codec(V2Codec):
    """zarr-python's codec for arrays of format 2, changed so that decoded chunks are always in host memory."""

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return _on_cpu(super()._decode_sync(chunk_bytes, chunk_spec))

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return _on_cpu(await super()._decode_single(chunk_bytes, chunk_spec))


def _on_cpu(decoded: Any) -> Any:
    return decoded if is_host(decoded.as_ndarray_like()) else cpu.NDBuffer.from_numpy_array(decoded.as_numpy_array())


def _pipeline_on_host(pipeline: Any) -> Any:
    codec = pipeline.array_bytes_codec
    return (
        replace(pipeline, array_bytes_codec=_HostV2Codec(codec.filters, codec.compressor)) if type(codec) is V2Codec else pipeline
    )


def _on_host(batch: list[Any]) -> list[Any]:
    specs: dict[int, Any] = {}
    for _, spec, *_ in batch:
        if id(spec) not in specs:
            specs[id(spec)] = replace(spec, prototype=_HOST)
    return [(getter, specs[id(spec)], *rest) for getter, spec, *rest in batch]


async def read_by_zarr(pipeline: Any, batch: list[Any], out: Any, drop_axes: tuple[int, ...]) -> tuple[Any, ...]:
    """Reads a batch by zarr-python's own code into host memory, and copies the result to ``out``."""
    place = out.as_ndarray_like()
    if is_host(place):
        return tuple(await pipeline.read(batch, out, drop_axes) or ())
    elements = np.empty(place.shape, place.dtype)
    results = await _pipeline_on_host(pipeline).read(_on_host(batch), cpu.NDBuffer.from_numpy_array(elements), drop_axes)
    out[...] = type(out).from_numpy_array(elements)
    return tuple(results or ())


async def write_by_zarr(pipeline: Any, batch: list[Any], value: Any, drop_axes: tuple[int, ...]) -> None:
    """Copies ``value`` to host memory, and writes it by zarr-python's own code."""
    if is_host(value.as_ndarray_like()):
        await pipeline.write(batch, value, drop_axes)
        return
    elements = cpu.NDBuffer.from_numpy_array(value.as_numpy_array())
    await _pipeline_on_host(pipeline).write(_on_host(batch), elements, drop_axes)

"""zarr-python's own pipeline, always in host memory: most of its codecs fail on arrays of a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from zarr.core.buffer import cpu

from cuzarr.zarr._memory import is_host


def _on_host(batch: list[Any]) -> list[Any]:
    specs: dict[int, Any] = {}
    for _, spec, *_ in batch:
        if id(spec) not in specs:
            specs[id(spec)] = replace(spec, prototype=cpu.buffer_prototype)
    return [(getter, specs[id(spec)], *rest) for getter, spec, *rest in batch]


async def read_by_zarr(pipeline: Any, batch: list[Any], out: Any, drop_axes: tuple[int, ...]) -> tuple[Any, ...]:
    """Reads with zarr-python's code, on the host."""
    place = out.as_ndarray_like()
    if is_host(place):
        return tuple(await pipeline.read(batch, out, drop_axes) or ())
    elements = np.empty(place.shape, place.dtype)
    results = await pipeline.read(_on_host(batch), cpu.NDBuffer.from_numpy_array(elements), drop_axes)
    out[...] = type(out).from_numpy_array(elements)
    return tuple(results or ())


async def write_by_zarr(pipeline: Any, batch: list[Any], value: Any, drop_axes: tuple[int, ...]) -> None:
    """Writes with zarr-python's code, on the host."""
    if is_host(value.as_ndarray_like()):
        await pipeline.write(batch, value, drop_axes)
        return
    elements = cpu.NDBuffer.from_numpy_array(value.as_numpy_array())
    await pipeline.write(_on_host(batch), elements, drop_axes)

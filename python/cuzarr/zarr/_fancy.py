"""Reads and writes selections that are not boxes: decodes or encodes whole chunks, and moves their elements by NumPy or CuPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._memory.device_array import DeviceArray
from cuzarr.zarr._chunks import Chunks
from cuzarr.zarr._fallbacks import Fallback
from cuzarr.zarr._memory import empty_like, is_host, read_box, write_box
from cuzarr.zarr._sources import _Dictionary

# Decoded bytes of chunks in one group.
_GROUP_BYTES = 64 << 20

# A shard above this size is not decoded whole for a part of its elements. zarr-python's sharding codec then finds the inner chunks, and
# this pipeline decodes them.
_WHOLE_SHARD_BYTES = 16 << 20


@dataclass(frozen=True)
class Group:
    """A group of chunks in one call of zarr-python that share an ``ArraySpec`` and are decoded together."""

    chunks: Chunks
    items: list[int]
    request: _core.ChunkRequest

    @property
    def stacked_shape(self) -> tuple[int, ...]:
        """The shape of an array that holds all chunks of the group, joined along the first dimension."""
        shape = self.chunks.shape
        return (shape[0] * len(self.items), *shape[1:]) if shape else ()

    def chunk(self, elements: Any, rank: int) -> Any:
        """A view of the elements of chunk number ``rank`` in ``elements``, which holds all chunks of the group."""
        if not self.chunks.shape:
            return elements
        extent = self.chunks.shape[0]
        return elements[rank * extent : (rank + 1) * extent]


def group(batch: list[Any], chunks_of: Callable[[Any], Chunks], *, numbered: bool) -> list[Group]:
    """Divides the chunks that zarr-python passes in one call into groups of limited size, which are decoded together."""
    keys = [str(at) if numbered else item[0].path for at, item in enumerate(batch)]
    return _groups(list(range(len(batch))), [item[1] for item in batch], keys, chunks_of)


def group_specs(specs: list[Any], chunks_of: Callable[[Any], Chunks], values: list[Any]) -> list[Group]:
    """Divides chunks to decode into groups of limited size, without those whose value in ``values`` is ``None``; chunks are named by
    number."""
    items = [at for at, value in enumerate(values) if value is not None]
    return _groups(items, specs, [str(at) for at in range(len(specs))], chunks_of)


def _groups(items: list[int], specs: list[Any], keys: list[str], chunks_of: Callable[[Any], Chunks]) -> list[Group]:
    gathered: list[tuple[Chunks, list[int]]] = []
    for item in items:
        chunks = chunks_of(specs[item])
        room = max(1, _GROUP_BYTES // max(1, chunks.nbytes)) if chunks.shape else 1
        if gathered and gathered[-1][0] is chunks and len(gathered[-1][1]) < room:
            gathered[-1][1].append(item)
        else:
            gathered.append((chunks, [item]))
    return [
        Group(chunks, members, _core.ChunkRequest.stacked([keys[item] for item in members], chunks.shape))
        for chunks, members in gathered
    ]


def check(groups: list[Group], place: Any) -> None:
    """Raises ``Fallback`` if whole shards would have to be decoded into host memory that are larger than ``_WHOLE_SHARD_BYTES``."""
    if is_host(place) and any(part.chunks.core.is_sharded and part.chunks.nbytes > _WHOLE_SHARD_BYTES for part in groups):
        raise Fallback("some elements of large shards: zarr-python finds the inner chunks, which are decoded here")


def needs_host(array: Any) -> str:
    """The reason why elements of an array on a GPU must pass through the host to be selected; an empty text if they need not."""
    return "index arrays on a GPU need CuPy" if isinstance(array, DeviceArray) else ""


def read(
    groups: list[Group],
    batch: list[Any],
    place: Any,
    drop_axes: tuple[int, ...],
    source: _core.ChunkStore,
    options: dict[str, Any],
) -> list[int]:
    """Decodes each chunk of ``groups``, and copies the chunk's selected elements into the array ``place``. Returns the numbers of missing
    chunks."""
    if needs_host(place):
        host = np.empty(place.shape, place.dtype)
        missing = read(groups, batch, host, drop_axes, source, options)
        place[...] = host
        return missing
    missing = []
    for part in groups:
        elements = empty_like(place, part.stacked_shape, part.chunks)
        absent = {part.items[rank] for rank in read_box(part.request, part.chunks, source, elements, options)}
        for rank, item in enumerate(part.items):
            _, _, chunk_selection, out_selection, _ = batch[item]
            if item in absent:
                # The chunk was filled already. An assignment of the fill value would be wrong, because CuPy takes -0.0 for 0.0.
                missing.append(item)
            selected = part.chunk(elements, rank)[chunk_selection]
            if isinstance(elements, np.ndarray):
                selected = np.asanyarray(selected)  # a single element would be a scalar
            place[out_selection] = selected.squeeze(axis=drop_axes) if drop_axes else selected
    return missing


def write(
    groups: list[Group],
    batch: list[Any],
    value: Any,
    drop_axes: tuple[int, ...],
    source: _core.ChunkStore,
    options: dict[str, Any],
) -> None:
    """Replaces the selected elements in each chunk of ``groups`` by elements of ``value``; the chunk's other elements stay."""
    value = value.cpu() if needs_host(value) else value
    for part in groups:
        elements = empty_like(value, part.stacked_shape, part.chunks)
        # Missing chunks get the fill value.
        read_box(part.request, part.chunks, source, elements, options)
        for rank, item in enumerate(part.items):
            _, spec, chunk_selection, out_selection, _ = batch[item]
            selected = _selected(value, chunk_selection, out_selection, drop_axes, len(spec.shape))
            # NumPy cannot assign an array of one element to a single element. zarr-python allows this if the element is the whole chunk.
            part.chunk(elements, rank)[chunk_selection] = selected.reshape(()) if selected.size == 1 else selected
        write_box(part.request, part.chunks, source, elements, options)


def _selected(value: Any, chunk_selection: Any, out_selection: Any, drop_axes: tuple[int, ...], ndim: int) -> Any:
    if value.shape == () or (isinstance(chunk_selection, tuple) and chunk_selection == ()):
        return value
    selected = value[out_selection]
    if not drop_axes:
        return selected
    return selected[tuple(None if axis in drop_axes else slice(None) for axis in range(ndim))]


def collect(values: dict[str, Any]) -> _core.ChunkStore:
    """Makes a store into which the Rust engine writes encoded chunks, and which puts them into the dictionary ``values``."""
    return _core.ChunkStore.python(_Dictionary(values))

"""Chunks and shards of arrays: what a caller may write, and the boxes that they cover."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, SupportsIndex

from cuzarr import _core
from cuzarr._config import config
from cuzarr.errors import CuzarrUserWarning, InvalidArgumentError, UnsupportedFeatureError

AxisGrid = _core.AxisGrid
ChunkGrid = _core.ChunkGrid

ChunksLike = SupportsIndex | Iterable[SupportsIndex | Iterable[SupportsIndex]] | bool
ShardsLike = ChunksLike | Mapping[str, Any] | Literal["auto"]


def parse_shards(shards: object, stacklevel: int) -> tuple[object, str, int | None]:
    """The shape of shards, the place of their index, and how many bytes a shard of our choice has at most."""
    index_location = "end"
    if isinstance(shards, Mapping):
        if unknown := set(shards) - {"shape", "index_location"}:
            raise InvalidArgumentError(
                f"unknown settings of shards {sorted(map(str, unknown))}, expected shape and index_location"
            )
        if (shape := shards.get("shape")) is None:
            raise InvalidArgumentError(f"shards are {dict(shards)!r}, which have no shape")
        index_location, shards = shards.get("index_location") or "end", shape
    if isinstance(shards, str) and shards == "auto":
        warnings.warn("the choice of shards='auto' may change", CuzarrUserWarning, stacklevel=stacklevel + 1)
    return shards, index_location, config._values()["array.target_shard_size_bytes"]


def resolve_chunks(
    shape: tuple[int, ...], chunks: object, shards: object, item_bytes: int
) -> tuple[tuple[int, ...], tuple[int, ...] | None, str]:
    """Chunks, shards (or none) and the place of a shard's index, from what the caller wrote.

    With sizes of their own along each axis, these are the largest of them.
    """
    shards, index_location, target_bytes = parse_shards(shards, 5)
    inner, stored, is_sharded = _core.choose_chunks(shape, item_bytes, chunks, shards, target_bytes)
    if not stored.is_regular:
        require_rectilinear()
    return inner, stored.largest if is_sharded else None, index_location


def regions(grid: ChunkGrid, shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The boxes of the chunks in C order. ``itertools.product`` would first list those of each dimension."""
    return _regions(grid.axes, shape)


def _regions(axes: tuple[AxisGrid, ...], shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    if not shape:
        yield ()
        return
    axis, extent = axes[0], shape[0]
    for chunk in range(axis.count(extent)):
        first = slice(start := axis.start(chunk), min(start + axis.size(chunk), extent))
        for others in _regions(axes[1:], shape[1:]):
            yield (first, *others)


def require_rectilinear() -> None:
    """Refuses rectilinear grids, unless the configuration allows them; zarr-python does as well."""
    if not config.get("array.rectilinear_chunks") and not _zarr_python_allows():
        raise UnsupportedFeatureError(
            "rectilinear chunk grids are experimental in zarr-python, and off",
            hint="call cuzarr.config.set({'array.rectilinear_chunks': True})",
        )


def _zarr_python_allows() -> bool:
    """Whether zarr-python's own configuration allows rectilinear grids, if that library is in use."""
    theirs = getattr(sys.modules.get("zarr"), "config", None)
    return theirs is not None and bool(theirs.get("array.rectilinear_chunks", False))

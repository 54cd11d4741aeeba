"""Parses callers' arguments for chunks and shards, and lists the boxes that chunks cover."""

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
    """Parses the argument ``shards``: the shape of shards, the location of their index, and a size in bytes if cuzarr chooses the shape."""
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
    """Parses the arguments ``chunks`` and ``shards``: the shape of chunks, that of shards or ``None``, and the location of a shard's index.

    If lengths differ along a dimension, the shapes have the largest ones.
    """
    shards, index_location, target_bytes = parse_shards(shards, 5)
    inner, stored, is_sharded = _core.choose_chunks(shape, item_bytes, chunks, shards, target_bytes)
    if not stored.is_regular:
        require_rectilinear()
    return inner, stored.largest if is_sharded else None, index_location


def regions(grid: ChunkGrid, shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yields the box that each chunk covers, in C order. Unlike ``itertools.product``, it lists no dimension's chunks in advance."""
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
    """Refuses rectilinear grids, unless the configuration of cuzarr or of zarr-python allows them."""
    if not config.get("array.rectilinear_chunks") and not _zarr_python_allows():
        raise UnsupportedFeatureError(
            "rectilinear chunk grids are experimental in zarr-python, and off",
            hint="call cuzarr.config.set({'array.rectilinear_chunks': True})",
        )


def _zarr_python_allows() -> bool:
    """Whether zarr-python is imported, and its configuration allows rectilinear grids."""
    theirs = getattr(sys.modules.get("zarr"), "config", None)
    return theirs is not None and bool(theirs.get("array.rectilinear_chunks", False))

"""Shapes of chunks and shards: what a caller may write, and what is chosen when nothing was written.

The choices give the numbers zarr-python 3.4 gives (which has them from h5py and PyTables), so that changing the import
does not change the files; tests compare.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex

from cuzarr._config import config
from cuzarr.errors import CuzarrUserWarning, InvalidArgumentError, UnsupportedError, UnsupportedFeatureError

_MIB = 1 << 20
_PLAIN_MAX_BYTES = 64 * _MIB
_SHARDED_MAX_BYTES = _MIB
_MIN_BYTES = 128 * 1024
_TARGET_AT_ONE_MIB = 256 * 1024

ChunksLike = SupportsIndex | Iterable[SupportsIndex] | bool
ShardsLike = ChunksLike | Mapping[str, Any] | Literal["auto"]


def guess_chunks(shape: tuple[int, ...], item_bytes: int, *, sharded: bool = False) -> tuple[int, ...]:
    """Chunks for an array for which none were chosen.

    Bytes grow with the logarithm of the array's size around 256 KiB for 1 MiB, between 128 KiB and 64 MiB (1 MiB in
    shards); axes are halved in turn, the first first, until the chunk is near enough.
    """
    chunks = [max(extent, 1) for extent in shape]
    if item_bytes == 0 or not shape:
        return tuple(chunks)
    max_bytes = _SHARDED_MAX_BYTES if sharded else _PLAIN_MAX_BYTES
    total_bytes = math.prod(map(float, chunks)) * item_bytes
    target_bytes = min(max(_TARGET_AT_ONE_MIB * 2 ** math.log10(total_bytes / _MIB), _MIN_BYTES), max_bytes)
    axis = 0
    while math.prod(chunks) > 1:
        size_bytes = math.prod(map(float, chunks)) * item_bytes
        near = size_bytes < target_bytes or abs(size_bytes - target_bytes) / target_bytes < 0.5
        if near and size_bytes < max_bytes:
            break
        chunks[axis] = -(-chunks[axis] // 2)
        axis = (axis + 1) % len(chunks)
    return tuple(chunks)


def _axis_size(size: object, extent: int, unit: int) -> int:
    if isinstance(size, Iterable):
        raise UnsupportedFeatureError(
            f"chunks of different sizes along one axis are not supported, got {size!r}", hint="pass one size per axis"
        )
    try:
        number = operator.index(size)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f"chunk size is {size!r}, expected an integer") from error
    if number == -1:
        return unit * max(1, -(-extent // unit))
    if number < 1:
        raise InvalidArgumentError(f"chunk size is {number}, expected a positive number, or -1 for the whole axis")
    return number


def parse_chunks(chunks: object, shape: tuple[int, ...], unit: Sequence[int] | None = None) -> tuple[int, ...]:
    """Chunk sizes: a number for every axis, one for all, ``-1`` for a whole axis, ``False`` for one single chunk.

    ``unit`` are sizes that whole-axis chunks must be multiples of (the chunks inside a shard).
    """
    if chunks is None or chunks is True:
        raise InvalidArgumentError(f"chunks is {chunks!r}, expected sizes, False or 'auto'")
    if chunks is False:
        chunks = -1
    if isinstance(chunks, SupportsIndex) and not hasattr(chunks, "__len__"):
        chunks = (chunks,) * len(shape)
    if isinstance(chunks, str | Mapping) or not isinstance(chunks, Iterable):
        raise TypeError(f"chunks is {chunks!r}, expected an integer or an iterable of integers")
    sizes = tuple(chunks)
    if len(sizes) != len(shape):
        raise InvalidArgumentError(f"got chunks for {len(sizes)} dimensions, the shape has {len(shape)}")
    units = unit or (1,) * len(shape)
    return tuple(_axis_size(*axis) for axis in zip(sizes, shape, units, strict=True))


def _auto_shards(shape: tuple[int, ...], chunks: tuple[int, ...], item_bytes: int) -> tuple[int, ...]:
    warnings.warn("the choice of shards='auto' may change", CuzarrUserWarning, stacklevel=6)
    target_bytes = config.get("array.target_shard_size_bytes")
    if target_bytes is None:
        return tuple(chunk * 2 if extent // chunk > 8 else chunk for extent, chunk in zip(shape, chunks, strict=True))
    chunk_bytes = math.prod(chunks) * item_bytes
    factor = 1
    if chunks and chunk_bytes:
        while chunk_bytes * (factor + 1) ** len(chunks) <= target_bytes and all(
            chunk * (factor + 1) <= extent for chunk, extent in zip(chunks, shape, strict=True)
        ):
            factor += 1
    return tuple(chunk * factor for chunk in chunks)


def resolve_chunks(
    shape: tuple[int, ...], chunks: object, shards: object, item_bytes: int
) -> tuple[tuple[int, ...], tuple[int, ...] | None, str]:
    """Chunks, shards (or none) and the place of a shard's index, from what the caller wrote."""
    if isinstance(chunks, str) and chunks == "auto":
        inner = guess_chunks(shape, item_bytes, sharded=shards is not None)
    else:
        inner = parse_chunks(chunks, shape)
    if shards is None:
        return inner, None, "end"
    index_location = "end"
    if isinstance(shards, Mapping):
        if unknown := set(shards) - {"shape", "index_location"}:
            raise InvalidArgumentError(
                f"unknown settings of shards {sorted(map(str, unknown))}, expected shape and index_location"
            )
        index_location = shards.get("index_location") or "end"
        shards = shards["shape"]
    if isinstance(shards, str) and shards == "auto":
        outer = _auto_shards(shape, inner, item_bytes)
    else:
        outer = parse_chunks(shards, shape, unit=inner)
    if any(shard % chunk for shard, chunk in zip(outer, inner, strict=True)):
        raise InvalidArgumentError(f"shards {outer} are not multiples of their chunks {inner}")
    return inner, outer, index_location


def grid_shape(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-extent // chunk) for extent, chunk in zip(shape, chunks, strict=True))


# Extents that are listed for one dimension: as many as fit into 80 MB, more than a person looks at.
_MOST_EXTENTS = 10_000_000


def axis_extents(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    if (most := max(grid_shape(shape, chunks), default=0)) > _MOST_EXTENTS:
        raise UnsupportedError(
            f"a dimension has {most} chunks, at most {_MOST_EXTENTS} are listed",
            hint="use chunks, shards and cdata_shape instead",
        )
    # One number that is repeated takes no memory but its places.
    return tuple(
        (chunk,) * (extent // chunk) + ((extent % chunk,) if extent % chunk else ())
        for extent, chunk in zip(shape, chunks, strict=True)
    )


def regions(shape: tuple[int, ...], chunks: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The boxes of a grid in C order. ``itertools.product`` would first list those of each dimension."""
    if not shape:
        yield ()
        return
    for start in range(0, shape[0], chunks[0]):
        first = slice(start, min(start + chunks[0], shape[0]))
        for rest in regions(shape[1:], chunks[1:]):
            yield (first, *rest)

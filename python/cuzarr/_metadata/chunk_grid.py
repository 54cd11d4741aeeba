"""Shapes of chunks and shards: what a caller may write, and what is chosen when nothing was written.

The choices give the numbers zarr-python 3.4 gives (which has them from h5py and PyTables), so that changing the import
does not change the files; tests compare.
"""

from __future__ import annotations

import bisect
import itertools
import math
import operator
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, SupportsIndex

from cuzarr._config import config
from cuzarr.errors import (
    CuzarrUserWarning,
    InvalidArgumentError,
    MetadataValidationError,
    UnsupportedError,
    UnsupportedFeatureError,
)

_MIB = 1 << 20
_PLAIN_MAX_BYTES = 64 * _MIB
_SHARDED_MAX_BYTES = _MIB
_MIN_BYTES = 128 * 1024
_TARGET_AT_ONE_MIB = 256 * 1024

# Extents that are listed for one dimension: as many as fit into 80 MB, more than a person looks at.
_MOST_EXTENTS = 10_000_000

ChunksLike = SupportsIndex | Iterable[SupportsIndex | Iterable[SupportsIndex]] | bool
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
        raise InvalidArgumentError(
            f"got chunks of different sizes along one axis, {size!r}, expected one size per axis",
            hint="for shards, give the sizes of shards instead: shards=[[...], ...]",
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
    """Chunks, shards (or none) and the place of a shard's index, from what the caller wrote.

    With sizes of their own along each axis, which :func:`parse_edges` reads, these are the largest of them.
    """
    if shards is None and (grid := parse_edges(chunks, shape)) is not None:
        return grid.largest, None, "end"
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
    if (grid := parse_edges(shards, shape, inner)) is not None:
        outer = grid.largest
        if any(size % chunk for axis, chunk in zip(grid.axes, inner, strict=True) for size in axis.distinct):
            lengths = [axis.to_json() for axis in grid.axes]
            raise InvalidArgumentError(f"shards {lengths} are not multiples of their chunks {inner}", hint="set shards= too")
    elif isinstance(shards, str) and shards == "auto":
        outer = _auto_shards(shape, inner, item_bytes)
    else:
        outer = parse_chunks(shards, shape, unit=inner)
    if any(shard % chunk for shard, chunk in zip(outer, inner, strict=True)):
        raise InvalidArgumentError(f"shards {outer} are not multiples of their chunks {inner}")
    return inner, outer, index_location


@dataclass(frozen=True)
class AxisGrid:
    """The chunks along one dimension: one length, or runs of lengths, each with a count."""

    edge: int | None = None
    runs: tuple[tuple[int, int], ...] = ()

    @cached_property
    def _ends(self) -> list[int]:
        """The index behind each run."""
        return list(itertools.accumulate(size * count for size, count in self.runs))

    @cached_property
    def _numbers(self) -> list[int]:
        """The number of chunks up to the end of each run."""
        return list(itertools.accumulate(count for _, count in self.runs))

    @property
    def end(self) -> int | None:
        """The index behind the last chunk; ``None`` when there are as many as an array needs."""
        return None if self.edge is not None else self._ends[-1]

    @property
    def distinct(self) -> tuple[int, ...]:
        """The different lengths."""
        return (self.edge,) if self.edge is not None else tuple(dict.fromkeys(size for size, _ in self.runs))

    @property
    def largest(self) -> int:
        return max(self.distinct)

    def chunk_of(self, index: int) -> int:
        """The number of the chunk that holds an element. Behind the last chunk it is the next one."""
        if self.edge is not None:
            return index // self.edge
        run = bisect.bisect_right(self._ends, index)
        if run == len(self.runs):
            return self._numbers[-1]
        size, count = self.runs[run]
        return self._numbers[run] - count + (index - (self._ends[run] - size * count)) // size

    def start(self, chunk: int) -> int:
        """The index of a chunk's first element; behind the last chunk, its end."""
        if self.edge is not None:
            return chunk * self.edge
        run = bisect.bisect_right(self._numbers, chunk)
        if run == len(self.runs):
            return self._ends[-1]
        size, _ = self.runs[run]
        return self._ends[run] - size * (self._numbers[run] - chunk)

    def size(self, chunk: int) -> int:
        """The length of a chunk, beyond the array's end too."""
        if self.edge is not None:
            return self.edge
        return self.runs[bisect.bisect_right(self._numbers, chunk)][0]

    def count(self, extent: int) -> int:
        """The number of chunks that an array of this extent has."""
        return self.chunk_of(extent - 1) + 1 if extent else 0

    def sizes(self, extent: int) -> tuple[int, ...]:
        """The lengths of the chunks, the last one cut off at the array's end."""
        if (count := self.count(extent)) > _MOST_EXTENTS:
            raise UnsupportedError(
                f"a dimension has {count} chunks, at most {_MOST_EXTENTS} are listed",
                hint="use chunks, shards and cdata_shape instead",
            )
        if self.edge is not None:
            # One number that is repeated takes no memory but its places.
            rest = extent % self.edge
            return (self.edge,) * (extent // self.edge) + ((rest,) if rest else ())
        listed = itertools.chain.from_iterable(itertools.repeat(size, times) for size, times in self.runs)
        sizes = tuple(itertools.islice(listed, count))
        return (*sizes[:-1], extent - sum(sizes[:-1])) if sizes else ()

    def grown(self, extent: int, unit: int) -> AxisGrid:
        """With one more chunk, a multiple of ``unit``, where an array of this extent has elements behind the last one."""
        if self.end is None or extent <= self.end:
            return self
        return AxisGrid(runs=_joined([*self.runs, (-(-(extent - self.end) // unit) * unit, 1)]))

    def to_json(self) -> Any:
        if self.edge is not None:
            return self.edge
        return [size if count == 1 else [size, count] for size, count in self.runs]


def _joined(runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Runs whose neighbours have different lengths."""
    groups = itertools.groupby(runs, operator.itemgetter(0))
    return tuple((size, sum(count for _, count in group)) for size, group in groups)


@dataclass(frozen=True)
class ChunkGrid:
    """The chunks, or shards, of an array: of one shape, or with lengths of their own along each dimension."""

    axes: tuple[AxisGrid, ...]
    is_regular: bool = True

    @classmethod
    def regular(cls, sizes: Iterable[int]) -> ChunkGrid:
        return cls(tuple(AxisGrid(edge=size) for size in sizes))

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any], shape: tuple[int, ...]) -> ChunkGrid:
        """A rectilinear grid, from its configuration in a document."""
        if (kind := configuration.get("kind")) != "inline":
            raise UnsupportedFeatureError(f"the kind of a rectilinear chunk grid is {kind!r}, expected 'inline'")
        shapes = configuration.get("chunk_shapes")
        if not isinstance(shapes, list | tuple) or len(shapes) != len(shape):
            raise MetadataValidationError(f"chunk_shapes is {shapes!r}, expected {len(shape)} entries, as many as dimensions")
        grid = cls(tuple(map(_axis_from_json, shapes)), is_regular=False)
        for dimension, (axis, extent) in enumerate(zip(grid.axes, shape, strict=True)):
            if axis.end is not None and axis.end < extent:
                raise MetadataValidationError(
                    f"chunk_shapes has {axis.end} elements along dimension {dimension}, expected at least {extent}"
                )
        return grid

    def to_json(self) -> dict[str, Any]:
        """The ``chunk_grid`` of a document."""
        if self.is_regular:
            return {"name": "regular", "configuration": {"chunk_shape": [axis.edge for axis in self.axes]}}
        shapes = [axis.to_json() for axis in self.axes]
        return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}

    @property
    def largest(self) -> tuple[int, ...]:
        """The shape of the largest chunk."""
        return tuple(axis.largest for axis in self.axes)

    def counts(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The number of chunks per dimension."""
        return tuple(axis.count(extent) for axis, extent in zip(self.axes, shape, strict=True))

    def sizes(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Per dimension the extents of the chunks, cut off at the array's end."""
        return tuple(axis.sizes(extent) for axis, extent in zip(self.axes, shape, strict=True))

    def blocks(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """The chunks as dask and xarray want them: per dimension one length, or all of them where they differ; ``(0,)`` when there is
        none."""
        return self.largest if self.is_regular else tuple(map(_compact, self.sizes(shape)))

    def chunk_shape(self, chunk: Sequence[int]) -> tuple[int, ...]:
        """The shape of a chunk."""
        return tuple(axis.size(number) for axis, number in zip(self.axes, chunk, strict=True))

    def grown(self, shape: tuple[int, ...], unit: tuple[int, ...] | None) -> ChunkGrid:
        """The grid for another shape; see :meth:`AxisGrid.grown`."""
        axes = zip(self.axes, shape, unit or (1,) * len(shape), strict=True)
        return ChunkGrid(tuple(axis.grown(extent, one) for axis, extent, one in axes), self.is_regular)

    def regions(self, shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
        """The boxes of the chunks in C order. ``itertools.product`` would first list those of each dimension."""
        if not shape:
            yield ()
            return
        axis, rest = self.axes[0], ChunkGrid(self.axes[1:], self.is_regular)
        for chunk in range(axis.count(shape[0])):
            first = slice(start := axis.start(chunk), min(start + axis.size(chunk), shape[0]))
            for others in rest.regions(shape[1:]):
                yield (first, *others)


def _positive(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise MetadataValidationError(f"a chunk length is {value!r}, expected a whole number of at least 1")
    return value


def _axis_from_json(axis: Any) -> AxisGrid:
    if not isinstance(axis, list | tuple):
        return AxisGrid(edge=_positive(axis))
    runs = []
    for entry in axis:
        pair = entry if isinstance(entry, list | tuple) else (entry, 1)
        if len(pair) != 2:
            raise MetadataValidationError(f"chunk lengths hold {entry!r}, expected a length or [length, count]")
        runs.append((_positive(pair[0]), _positive(pair[1])))
    if not runs:
        raise MetadataValidationError("a dimension has no chunks, expected at least one length")
    return AxisGrid(runs=_joined(runs))


def _is_nested(chunks: object) -> bool:
    """Whether some axis has a list of sizes."""
    if isinstance(chunks, str | Mapping) or not isinstance(chunks, Sequence | Iterable):
        return False
    return any(isinstance(size, Iterable) and not isinstance(size, str) for size in chunks)


def _edges(sizes: object, extent: int, unit: int) -> AxisGrid:
    """The chunks along one axis, from a list of their sizes or one size for all."""
    if isinstance(sizes, str | Mapping):
        raise TypeError(f"chunk sizes are {sizes!r}, expected an integer or a list of integers")
    if not isinstance(sizes, Iterable):
        return AxisGrid(edge=_axis_size(sizes, extent, unit))
    try:
        listed = [operator.index(size) for size in sizes]
    except TypeError as error:
        raise TypeError(f"chunk sizes are {sizes!r}, expected integers") from error
    if not listed or min(listed) < 1:
        raise InvalidArgumentError(f"chunk sizes are {listed}, expected at least one, and positive numbers")
    # Chunks of an axis without elements are those that it grows into.
    if extent and sum(listed) != extent:
        raise InvalidArgumentError(f"chunk sizes {listed} add up to {sum(listed)}, expected {extent} as in the shape")
    return AxisGrid(runs=_joined((size, 1) for size in listed))


def parse_edges(chunks: object, shape: tuple[int, ...], unit: Sequence[int] | None = None) -> ChunkGrid | None:
    """A rectilinear grid from lists of sizes, or sizes and lists, one for each axis; ``None`` when there is no list.

    ``unit`` are sizes that whole-axis chunks must be multiples of (the chunks inside a shard).

    Raises
    ------
    UnsupportedFeatureError
        The configuration ``array.rectilinear_chunks`` is off.
    """
    if isinstance(chunks, ChunkGrid):
        return chunks
    if not _is_nested(chunks):
        return None
    axes: tuple[object, ...] = tuple(chunks)  # type: ignore[arg-type]
    if len(axes) != len(shape):
        raise InvalidArgumentError(f"got chunks for {len(axes)} dimensions, the shape has {len(shape)}")
    require_rectilinear()
    units = unit or (1,) * len(shape)
    return ChunkGrid(tuple(_edges(*axis) for axis in zip(axes, shape, units, strict=True)), is_regular=False)


def _compact(sizes: tuple[int, ...]) -> int | tuple[int, ...]:
    """The length of all chunks along a dimension, of which the last one may be shorter; else all lengths."""
    if not sizes:
        return (0,)
    return sizes[0] if set(sizes[:-1]) <= {sizes[0]} and sizes[-1] <= sizes[0] else sizes


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

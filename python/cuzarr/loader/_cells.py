"""Divides arrays along their sample axes into cells: boxes of whole chunks. An epoch reads cell by cell."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cuzarr._metadata.chunk_grid import AxisGrid
from cuzarr.errors import BudgetExceededError
from cuzarr.loader._plan import Ints
from cuzarr.loader._variables import Part, Parts

# Cells of several arrays end at common multiples of their chunks, if a multiple has at most this many of the largest chunks.
_MOST_CHUNKS = 4

# An array of at most this share of the memory limit may be held whole. Up to 16 workers share the limit.
_SMALL_SHARE = 64


@dataclass(frozen=True)
class Cells:
    """The division of arrays into cells: boxes of whole chunks along the sample axes.

    Attributes
    ----------
    edges : tuple of array
        Along each axis, the starts of the cells, and the end of the last one.
    sizes : array of int
        Bytes of each cell, by its flat number.
    whole : frozenset of int
        Numbers of the arrays that are not in the cells, because a pass holds them whole.
    whole_bytes : int
        Bytes of these arrays.
    are_chunks : bool
        Whether each cell is one chunk, or one common multiple of the arrays' chunks.
    """

    edges: tuple[Ints, ...]
    sizes: Ints
    whole: frozenset[int] = frozenset()
    whole_bytes: int = 0
    are_chunks: bool = False

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of cells (blocks of whole chunks) along each sample axis."""
        return tuple(len(edge) - 1 for edge in self.edges)

    def touched(self, starts: Ints, window: tuple[tuple[int, int], ...]) -> tuple[Ints, Ints]:
        """For samples at the positions ``starts``, the first and the last cell (block of whole chunks) that each touches along each
        axis."""
        lowest, highest = np.empty_like(starts), np.empty_like(starts)
        for axis, ((first, stop), edge) in enumerate(zip(window, self.edges, strict=True)):
            lowest[:, axis] = np.searchsorted(edge, starts[:, axis] + first, side="right") - 1
            highest[:, axis] = np.searchsorted(edge, starts[:, axis] + stop - 1, side="right") - 1
        return lowest, highest

    def flat(self, places: Ints) -> Ints:
        """Converts grid indices of cells (blocks of whole chunks), with one number for each axis, to flat numbers in C order."""
        if not len(places):
            return np.empty(0, np.int64)
        numbers: Ints = np.ravel_multi_index(tuple(places.T), self.grid).astype(np.int64)
        return numbers

    def box(self, cell: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The start and the end, along each sample axis, of the cell (block of whole chunks) with a flat number."""
        places = np.unravel_index(cell, self.grid)
        starts = tuple(int(edge[place]) for edge, place in zip(self.edges, places, strict=True))
        return starts, tuple(int(edge[place + 1]) for edge, place in zip(self.edges, places, strict=True))


@dataclass(frozen=True)
class ChunkEdges:
    """The positions along the sample axes at which chunks begin, so that cells (blocks of whole chunks) may begin there.

    Attributes
    ----------
    edges : tuple of array
        Along each axis, the positions at which chunks of all arrays begin, and the end of the axis. If these positions are too far apart,
        those of the array with the largest chunks.
    whole : frozenset of int
        Numbers of small arrays whose chunks do not begin at these positions. A pass reads them once and holds them whole. For example,
        these are labels in long chunks beside images in short ones.
    """

    edges: tuple[Ints, ...]
    whole: frozenset[int]


def chunk_edges(parts: Parts, limit_bytes: int) -> ChunkEdges:
    """Finds the positions along the sample axes at which chunks begin, for reading an epoch with at most ``limit_bytes`` in memory."""
    own = sorted(set(parts.sources))
    large = [number for number in own if _bytes(parts.parts[number]) > limit_bytes // _SMALL_SHARE] or own
    edges = tuple(_axis_edges(parts, large, own, axis) for axis in range(len(parts.extents)))
    whole = frozenset(number for number in own if number not in large and not _begins_at(parts.parts[number], edges))
    return ChunkEdges(edges, whole)


def _bytes(part: Part) -> int:
    elems: int = math.prod(part.array.shape)
    return elems * part.held.itemsize


def _axis_edges(parts: Parts, large: Sequence[int], own: Sequence[int], axis: int) -> Ints:
    return common_edges(_grids(parts, large, axis) or _grids(parts, own, axis), parts.extents[axis])


def common_edges(grids: Sequence[AxisGrid], extent: int) -> Ints:
    """The positions along an axis at which chunks of all grids begin, and the end of the axis. If these are too far apart, the positions
    for the grid with the largest chunks."""
    largest = max(grids, key=lambda grid: grid.largest)
    if all(grid.edge is not None for grid in grids):
        common = math.lcm(*(grid.largest for grid in grids))
        step = common if common <= _MOST_CHUNKS * largest.largest else largest.largest
        return np.append(np.arange(0, extent, step, dtype=np.int64), extent)
    shared: Ints = functools.reduce(np.intersect1d, [chunk_starts(grid, extent) for grid in grids])
    is_close = int(np.diff(shared).max(initial=0)) <= _MOST_CHUNKS * largest.largest
    return shared if is_close else chunk_starts(largest, extent)


def _grids(parts: Parts, numbers: Sequence[int], axis: int) -> list[AxisGrid]:
    given = [parts.parts[number] for number in numbers]
    return list(dict.fromkeys(part.grid[own] for part in given if (own := part.axes[axis]) is not None))


def chunk_starts(grid: AxisGrid, extent: int) -> Ints:
    """The positions along an axis at which the chunks of a grid begin, and the end of the axis."""
    return np.cumsum([0, *grid.sizes(extent)], dtype=np.int64)


def _begins_at(part: Part, edges: tuple[Ints, ...]) -> bool:
    """Whether chunks of an array begin at every position in ``edges``, along those sample axes that the array has."""
    axes = [(edge, part.grid[own]) for edge, own in zip(edges, part.axes, strict=True) if own is not None]
    return all(np.isin(edge, chunk_starts(grid, int(edge[-1]))).all() for edge, grid in axes)


def joined(edges: Ints, least: int) -> Ints:
    """Joins neighbouring chunks along an axis to cells of at least ``least`` elements, and returns the edges of the cells. The last cell
    may be shorter."""
    if int(np.diff(edges[:-1]).min(initial=least)) >= least:
        return edges
    chosen, end = [0], int(edges[-1])
    while (at := int(np.searchsorted(edges, chosen[-1] + least))) < len(edges) - 1:
        chosen.append(int(edges[at]))
    return np.asarray([*chosen, end], np.int64)


def cells_of(parts: Parts, edges: tuple[Ints, ...], chunks: ChunkEdges) -> Cells:
    """Makes the cells (blocks of whole chunks) whose edges along each axis are given; all of them are edges of chunks."""
    whole_bytes = sum(_bytes(parts.parts[number]) for number in chunks.whole)
    are_chunks = all(len(own) == len(given) for own, given in zip(edges, chunks.edges, strict=True))
    return Cells(edges, _sizes(parts, edges, chunks.whole), chunks.whole, whole_bytes, are_chunks)


def _sizes(parts: Parts, edges: tuple[Ints, ...], whole: frozenset[int]) -> Ints:
    sizes = np.zeros(tuple(len(edge) - 1 for edge in edges), np.int64)
    for part in (parts.parts[number] for number in sorted(set(parts.sources) - whole)):
        own = np.full((1,) * len(edges), part.held.itemsize, np.int64)
        for axis, extent in enumerate(part.array.shape):
            if axis not in part.axes:
                own = own * extent
        for number, (dimension, edge) in enumerate(zip(part.axes, edges, strict=True)):
            if dimension is not None:
                own = own * np.diff(edge).reshape([-1 if one == number else 1 for one in range(len(edges))])
        sizes = sizes + own
    return sizes.reshape(-1)


def check_limit(cells: Cells, limit_bytes: int, mixed: int, workers: int) -> None:
    """Refuses a memory limit too small for ``mixed`` cells (blocks of whole chunks), whose samples are mixed, and the cells that are read
    meanwhile. A limit that holds all cells is enough.

    Raises
    ------
    BudgetExceededError
    """
    count = max(4, mixed + 4 if mixed > 1 else 0)
    largest = int(cells.sizes.max(initial=0))
    if limit_bytes < cells.whole_bytes + min(count * largest, int(cells.sizes.sum())):
        shape = "x".join(str(int(np.diff(edge).max(initial=0))) for edge in cells.edges)
        what = f"{count} cells of {shape} elements along the sample axes"
        whole = f", and {cells.whole_bytes} bytes of arrays that are held whole" if cells.whole_bytes else ""
        share = f", a share of {workers} worker processes" if workers > 1 else ""
        raise BudgetExceededError(
            f"memory_limit is {limit_bytes} bytes{share}, expected at least {count * largest + cells.whole_bytes}: {what}{whole}",
            hint="raise memory_limit, read fewer variables, or rechunk the arrays",
        )

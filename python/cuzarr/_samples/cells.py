"""Cells: boxes of whole chunks along the sample axes, the unit in which an epoch reads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cuzarr._samples.plan import Ints
from cuzarr._samples.variables import Parts
from cuzarr.errors import BudgetExceededError

# Chunks of several arrays meet at common multiples, where those are not much larger than the chunks.
_MOST_CHUNKS = 4


@dataclass(frozen=True)
class Cells:
    """Cells along the sample axes.

    Attributes
    ----------
    edges : tuple of array
        Along each axis, where cells begin, and where the last one ends.
    sizes : array of int
        Bytes of each cell, by its flat number.
    """

    edges: tuple[Ints, ...]
    sizes: Ints

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of cells along each axis."""
        return tuple(len(edge) - 1 for edge in self.edges)

    def touched(self, starts: Ints, window: tuple[tuple[int, int], ...]) -> tuple[Ints, Ints]:
        """The first and the last cell that samples at these positions touch along each axis."""
        lowest, highest = np.empty_like(starts), np.empty_like(starts)
        for axis, ((first, stop), edge) in enumerate(zip(window, self.edges, strict=True)):
            lowest[:, axis] = np.searchsorted(edge, starts[:, axis] + first, side="right") - 1
            highest[:, axis] = np.searchsorted(edge, starts[:, axis] + stop - 1, side="right") - 1
        return lowest, highest

    def box(self, cell: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where a cell begins and ends along each axis."""
        places = np.unravel_index(cell, self.grid)
        starts = tuple(int(edge[place]) for edge, place in zip(self.edges, places, strict=True))
        return starts, tuple(int(edge[place + 1]) for edge, place in zip(self.edges, places, strict=True))


def chunk_extents(parts: Parts) -> tuple[int, ...]:
    """Along each sample axis, the extent at which chunks of all arrays begin, as far as there is a small one."""
    found = []
    for number in range(len(parts.extents)):
        own = [part.array.chunks[axis] for part in parts.parts if (axis := part.axes[number]) is not None]
        common = math.lcm(*own)
        found.append(common if common <= _MOST_CHUNKS * max(own) else max(own))
    return tuple(found)


def cells_of(parts: Parts, extents: tuple[int, ...], shift: tuple[int, ...], least: tuple[int, ...]) -> Cells:
    """Cells of these extents that begin at ``shift``, with a smaller one in front; cells at the ends have at least ``least``
    elements along each axis, as far as there are so many."""
    edges = tuple(_edges(*axis) for axis in zip(parts.extents, extents, shift, least, strict=True))
    return Cells(edges, _sizes(parts, edges))


def _edges(extent: int, step: int, shift: int, least: int) -> Ints:
    inner = [edge for edge in range(shift if shift else step, extent, step) if least <= edge and least <= extent - edge]
    return np.asarray([0, *inner, extent], np.int64)


def _sizes(parts: Parts, edges: tuple[Ints, ...]) -> Ints:
    sizes = np.zeros(tuple(len(edge) - 1 for edge in edges), np.int64)
    for part in (parts.parts[number] for number in sorted(set(parts.sources))):
        own = np.full((1,) * len(edges), part.held.itemsize, np.int64)
        for axis, extent in enumerate(part.array.shape):
            if axis not in part.axes:
                own = own * extent
        for number, (dimension, edge) in enumerate(zip(part.axes, edges, strict=True)):
            if dimension is not None:
                own = own * np.diff(edge).reshape([-1 if one == number else 1 for one in range(len(edges))])
        sizes = sizes + own
    return sizes.reshape(-1)


def check_limit(cells: Cells, limit_bytes: int) -> None:
    """Refuses a limit in which four cells do not fit, unless all fit.

    Raises
    ------
    BudgetExceededError
    """
    largest = int(cells.sizes.max(initial=0))
    if limit_bytes < min(4 * largest, int(cells.sizes.sum())):
        shape = "x".join(str(int(np.diff(edge).max(initial=0))) for edge in cells.edges)
        raise BudgetExceededError(
            f"memory_limit is {limit_bytes} bytes, expected at least {4 * largest}: four cells of {shape} elements along the sample axes",
            hint="raise memory_limit=, read fewer variables, or rechunk the arrays",
        )

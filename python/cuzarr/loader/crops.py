"""Crops at random positions that are uniform over the epochs, although no crop of an epoch crosses a block.

Along an axis, a block has a number of chunks, and an epoch shifts the blocks by whole chunks. Not every crop lies inside one block
under a shift: crops that cross a border of chunks do so under fewer shifts. Let A(p) be the share of shifts under which the crop
at position p lies inside one block. An epoch draws its shift in proportion to the sum of 1/A over the positions that it has, and
positions in proportion to 1/A. The probability of p is then the sum of 1/A(p) over the shifts that have it, divided by a number
that does not depend on p: it is the same for all positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuzarr.loader.plan import Ints

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class CropAxis:
    """Shifts of blocks, and positions of crops, along one axis.

    Parameters
    ----------
    edges : array of int
        Where chunks begin, and where the last one ends.
    length : int
        Elements of a crop.
    chunks : int
        Chunks of a block. There are more where a crop would lie inside no block.

    Attributes
    ----------
    weights : array of float
        For each position, 1/A: the number of shifts divided by the number of those under which the crop lies inside one block.
    shift_shares : array of float
        The probability of each shift.
    """

    def __init__(self, edges: Ints, length: int, chunks: int) -> None:
        self.extent, self.length = int(edges[-1]), length
        inner = edges[1:-1]
        # A block at an end that is shorter than a crop would be read for nothing: it belongs to its neighbour.
        self.borders = inner[(length <= inner) & (inner <= self.extent - length)]
        positions = np.arange(self.extent - length + 1)
        first = np.searchsorted(self.borders, positions, side="right")
        crossed = np.searchsorted(self.borders, positions + length - 1, side="right") - first
        # A border is an edge of blocks under one shift: each `chunks`-th border under the same one.
        self.chunks = max(chunks, int(crossed.max(initial=0)) + 1)
        self.weights: Floats = self.chunks / (self.chunks - crossed)
        cut = np.zeros(len(self.borders) + 1)
        np.add.at(cut, first, self.weights)
        np.add.at(cut, first + crossed, -self.weights)
        lost = np.bincount(np.arange(len(self.borders)) % self.chunks, cut.cumsum()[:-1], self.chunks)
        sums = np.maximum(self.weights.sum() - lost, 0)
        self.shift_shares: Floats = sums / sums.sum()

    def edges(self, shift: int) -> Ints:
        """Where blocks begin under a shift, and where the last one ends."""
        return np.asarray([0, *self.borders[shift :: self.chunks], self.extent], np.int64)

    def position_weights(self, edges: Ints) -> Floats:
        """For each position its weight, 0 where the crop lies inside no block."""
        positions = np.arange(len(self.weights))
        blocks = np.searchsorted(edges, positions, side="right")
        is_inside = blocks == np.searchsorted(edges, positions + self.length - 1, side="right")
        return np.where(is_inside, self.weights, 0.0)


def draw(axes: Sequence[CropAxis], samples: int, random: np.random.Generator) -> tuple[tuple[Ints, ...], Ints]:
    """The blocks of an epoch, and its crops.

    Returns
    -------
    edges : tuple of array
        Along each axis, where blocks begin, and where the last one ends.
    corners : array of int, shape (samples, axes)
        Where crops begin, block by block.
    """
    edges = tuple(axis.edges(int(random.choice(axis.chunks, p=axis.shift_shares))) for axis in axes)
    sums = [np.append(0.0, axis.position_weights(edge).cumsum()) for axis, edge in zip(axes, edges, strict=True)]
    # The weights of a block's positions are those between its edges.
    limits = [one[np.minimum(edge, len(one) - 1)] for one, edge in zip(sums, edges, strict=True)]
    volumes = np.ones((1,) * len(axes))
    for number, limit in enumerate(limits):
        volumes = volumes * np.diff(limit).reshape([-1 if one == number else 1 for one in range(len(axes))])
    # Evenly spaced in the volume, so that each block gets its share.
    blocks = np.unravel_index(_found(np.cumsum(volumes), (np.arange(samples) + random.random()) / samples), volumes.shape)
    corners = np.empty((samples, len(axes)), np.int64)
    for number, (own, limit, places) in enumerate(zip(sums, limits, blocks, strict=True)):
        low, high = limit[places], limit[places + 1]
        chosen = np.minimum(random.uniform(low, high), np.nextafter(high, low))
        corners[:, number] = np.searchsorted(own, chosen, side="right") - 1
    return edges, corners


def _found(sums: Floats, shares: Floats) -> Ints:
    """Which entries of cumulated weights lie at these shares of all."""
    total = sums[-1]
    found: Ints = np.searchsorted(sums, np.minimum(shares * total, np.nextafter(total, 0)), side="right").astype(np.int64)
    return found

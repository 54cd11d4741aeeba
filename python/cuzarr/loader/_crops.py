"""Draws crops at random positions. No crop of an epoch crosses a block, but over many epochs all positions are equally likely.

Along an axis, a block has a number of chunks, and an epoch shifts the blocks by whole chunks. A crop that crosses a border of chunks lies
inside one block only under some of the shifts. Let A(p) be the share of shifts under which the crop at position p lies inside one block.
An epoch draws its shift in proportion to the sum of 1/A over the positions possible under that shift, and positions in proportion to 1/A.
The probability of p is then the sum of 1/A(p) over the shifts under which p is possible, divided by a number that does not depend on p.
So it is the same for all positions.

With weights, a position has the weight w(p) of the part of the axes in which the middle of its crop lies. Positions are then drawn in
proportion to w/A, and the shifts of all axes together in proportion to the sum of w/A over the positions possible under them. By the same
argument, the probability of p is w(p) divided by the sum of all weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from cuzarr.errors import InvalidArgumentError
from cuzarr.loader._plan import Ints
from cuzarr.loader._weights import Floats


class CropAxis:
    """The probabilities, along one axis of an array, of the shift of an epoch's blocks of chunks and of the positions of the crops.

    Parameters
    ----------
    edges : array of int
        The starts of the chunks, and the end of the last one.
    length : int
        Elements of a crop.
    chunks : int
        Number of chunks of a block. It is raised if some crops would otherwise not fit inside any block.

    Attributes
    ----------
    weights : array of float
        For each position 1/A: the number of all shifts, divided by the number of shifts under which the crop lies inside one block.
    shift_shares : array of float
        The probability of each shift.
    """

    def __init__(self, edges: Ints, length: int, chunks: int) -> None:
        self.extent, self.length = int(edges[-1]), length
        inner = edges[1:-1]
        # A block at an end that is shorter than a crop would be read in vain, so it is joined to its neighbour.
        self.borders = inner[(length <= inner) & (inner <= self.extent - length)]
        positions = np.arange(self.extent - length + 1)
        first = np.searchsorted(self.borders, positions, side="right")
        crossed = np.searchsorted(self.borders, positions + length - 1, side="right") - first
        # Each border is an edge of blocks under exactly one shift. Every `chunks`-th border belongs to the same shift.
        self.chunks = max(chunks, int(crossed.max(initial=0)) + 1)
        self.weights: Floats = self.chunks / (self.chunks - crossed)
        cut = np.zeros(len(self.borders) + 1)
        np.add.at(cut, first, self.weights)
        np.add.at(cut, first + crossed, -self.weights)
        lost = np.bincount(np.arange(len(self.borders)) % self.chunks, cut.cumsum()[:-1], self.chunks)
        sums = np.maximum(self.weights.sum() - lost, 0)
        self.shift_shares: Floats = sums / sums.sum()

    def edges(self, shift: int) -> Ints:
        """The positions at which the blocks of chunks start if they are shifted by ``shift`` chunks, and the end of the last block."""
        return np.asarray([0, *self.borders[shift :: self.chunks], self.extent], np.int64)

    def position_weights(self, edges: Ints) -> Floats:
        """The weight with which a crop is drawn at each position; 0 if the crop would cross an edge of blocks."""
        positions = np.arange(len(self.weights))
        blocks = np.searchsorted(edges, positions, side="right")
        is_inside = blocks == np.searchsorted(edges, positions + self.length - 1, side="right")
        return np.where(is_inside, self.weights, 0.0)


class CropWeights:
    """The user's weights for parts of an array: a crop is drawn more often if its middle lies in a part with a larger weight.

    Parameters
    ----------
    axes : sequence of CropAxis
        The axes.
    weights : array of float
        One weight for each part. Along each axis, the parts divide the array into as many equal stretches as ``weights`` has entries.

    Raises
    ------
    InvalidArgumentError
        All parts in which the middle of a crop can lie have the weight 0.
    """

    def __init__(self, axes: Sequence[CropAxis], weights: Floats) -> None:
        self.weights = weights
        # Along each axis, the positions at which the middle of a crop enters the next part.
        self.edges = [_part_edges(axis, count) for axis, count in zip(axes, weights.shape, strict=True)]
        masses = [_masses_of_parts(axis, edges) for axis, edges in zip(axes, self.edges, strict=True)]
        self._shifts = tuple(len(one) for one in masses)
        # The sum of w/A over the positions possible under each shift. One axis after the other, sums over parts become sums over shifts.
        shares = reduce(lambda left, mass: np.tensordot(left, mass, axes=(0, 1)), masses, weights).reshape(-1)
        if not shares.sum() > 0:
            raise InvalidArgumentError(
                "weights are 0 wherever a crop can have its middle",
                hint="give a weight to parts farther from the ends of the axes",
            )
        self._shift_shares = shares / shares.sum()

    def shifts(self, random: np.random.Generator) -> list[int]:
        """Draws at random by how many chunks the blocks of an epoch are shifted along each axis."""
        drawn = int(random.choice(len(self._shift_shares), p=self._shift_shares))
        return [int(one) for one in np.unravel_index(drawn, self._shifts)]


def _part_edges(axis: CropAxis, count: int) -> Ints:
    edges = -(-np.arange(count + 1) * axis.extent // count) - axis.length // 2
    edges[0], edges[-1] = 0, len(axis.weights)
    return np.clip(edges, 0, len(axis.weights))


def _masses_of_parts(axis: CropAxis, edges: Ints) -> Floats:
    """Sums the weights of crop positions in each part of an axis between two ``edges``: one row for each number of chunks by which blocks
    may be shifted."""
    sums = [np.append(0.0, axis.position_weights(axis.edges(shift)).cumsum()) for shift in range(axis.chunks)]
    return np.stack([np.diff(one[edges]) for one in sums])


def draw(
    axes: Sequence[CropAxis], samples: int, random: np.random.Generator, weights: CropWeights | None = None
) -> tuple[tuple[Ints, ...], Ints]:
    """Draws how an epoch divides the array into blocks of chunks, and where its crops lie.

    Returns
    -------
    edges : tuple of array
        Along each axis, the starts of the blocks, and the end of the last one.
    corners : array of int, shape (samples, axes)
        The starts of the crops, block by block. With weights, they are drawn with replacement.
    """
    shifts = (
        [int(random.choice(axis.chunks, p=axis.shift_shares)) for axis in axes] if weights is None else weights.shifts(random)
    )
    edges = tuple(axis.edges(shift) for axis, shift in zip(axes, shifts, strict=True))
    sums = [np.append(0.0, axis.position_weights(edge).cumsum()) for axis, edge in zip(axes, edges, strict=True)]
    # The weights of a block's positions lie between the block's edges.
    cuts = [np.minimum(edge, len(one) - 1) for one, edge in zip(sums, edges, strict=True)]
    if weights is not None:
        cuts = [np.union1d(cut, own) for cut, own in zip(cuts, weights.edges, strict=True)]
    volumes = math.prod(np.ix_(*(np.diff(one[cut]) for one, cut in zip(sums, cuts, strict=True))), start=np.ones(()))
    if weights is None:
        # Evenly spaced in the volume, so that each block gets its share.
        shares = (np.arange(samples) + random.random()) / samples
    else:
        parts = [np.searchsorted(own, cut[:-1], side="right") - 1 for own, cut in zip(weights.edges, cuts, strict=True)]
        volumes = volumes * weights.weights[np.ix_(*parts)]
        shares = np.sort(random.random(samples))
    blocks = np.unravel_index(_found(np.cumsum(volumes), shares), volumes.shape)
    corners = np.empty((samples, len(axes)), np.int64)
    for number, (own, cut, places) in enumerate(zip(sums, cuts, blocks, strict=True)):
        low, high = own[cut[places]], own[cut[places + 1]]
        chosen = np.minimum(random.uniform(low, high), np.nextafter(high, low))
        corners[:, number] = np.searchsorted(own, chosen, side="right") - 1
    return edges, corners


def _found(sums: Floats, shares: Floats) -> Ints:
    """For each share (0 to 1) of the total weight, the index of the first cumulative weight in ``sums`` that is larger."""
    total = sums[-1]
    found: Ints = np.searchsorted(sums, np.minimum(shares * total, np.nextafter(total, 0)), side="right").astype(np.int64)
    return found

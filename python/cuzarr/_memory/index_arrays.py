"""Parses keys with index arrays and masks, as in NumPy. A key becomes one list of numbers along one dimension.

To this end, the dimensions that are indexed by arrays are joined into one.

The numbers are a NumPy array, or an array in a device's memory with NumPy's arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cuzarr._memory.box import is_integer, normalize_index
from cuzarr.errors import BoundsCheckError, SelectionInvalidError

# An int64 array, of NumPy or on a device.
Numbers = Any


@dataclass(frozen=True)
class Chosen:
    """The result of parsing a key with index arrays or masks: slices to take first, then flat indices along the dimensions that the arrays
    select from.

    Attributes
    ----------
    basic : list of slice
        Slices of all dimensions of the array. They are taken first.
    order : list of int
        Order of the dimensions after the slices. In this order, the dimensions that index arrays choose from (the listed ones) are
        neighbours.
    first, listed : int
        Place of the first listed dimension, and number of the listed dimensions.
    numbers : array
        Chosen elements of the listed dimensions, counted in C order; of any shape. The numbers of a single index array may be negative;
        they then count from the end.
    before, behind : list of int
        Dimensions of the result before and behind those of ``numbers``: 1 for a new dimension, -1 for one of the array.
    """

    basic: list[slice]
    order: list[int]
    first: int
    listed: int
    numbers: Numbers
    before: list[int]
    behind: list[int]

    def shape(self, extents: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the selected elements. ``extents`` are those of the array after the slices, in the order ``order``."""
        own = iter(extents[: self.first] + extents[self.first + self.listed :])
        before, behind = ([next(own) if extent < 0 else extent for extent in part] for part in (self.before, self.behind))
        return (*before, *self.numbers.shape, *behind)


@dataclass
class _Group:
    """One index array of an indexing key, and the array dimensions from which it selects elements. Its numbers count the elements of these
    dimensions in C order."""

    axes: list[int]
    numbers: Numbers
    extent: int


@dataclass
class _Walk:
    """The state of the parser for keys with index arrays: the items that it has parsed, and the array dimension that the next item selects
    from."""

    shape: tuple[int, ...]
    axis: int = 0
    basic: list[slice] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=list)
    # Dimensions of the result: -1 for one of the array, 1 for a new one. `before` is the number of those before the first index array.
    kept: list[int] = field(default_factory=list)
    before: int = 0
    was_listed: bool = False
    is_split: bool = False

    def keep(self, item: slice) -> None:
        self.part()
        self.kept.append(-1)
        self.basic.append(item)
        self.axis += 1

    def new(self) -> None:
        self.part()
        self.kept.append(1)

    def choose(self, numbers: Numbers, ndim: int) -> None:
        axes = list(range(self.axis, self.axis + ndim))
        if not self.groups:
            self.before = len(self.kept)
        elif not self.was_listed:
            self.is_split = True
        self.was_listed = True
        self.groups.append(_Group(axes, numbers, math.prod(self.shape[axis] for axis in axes)))
        self.basic.extend(slice(None) for _ in axes)
        self.axis += ndim

    def part(self) -> None:
        """Records that the current item of the key, such as a slice, separates the index arrays before it from later ones."""
        self.was_listed = False


def parse(
    key: tuple[Any, ...], shape: tuple[int, ...], nonzero: Callable[[Any], Numbers], where: Callable[[Any, Any, Any], Any]
) -> Chosen:
    """Parses an indexing key with index arrays or masks, as in ``array[key]``. Returns the elements that it selects.

    Parameters
    ----------
    nonzero
        Returns the positions of a mask's true elements, counted in C order.
    where
        NumPy's ``where`` for such arrays.

    Raises
    ------
    BoundsCheckError, SelectionInvalidError
        An index lies outside the array, there are too many indices, a mask or index arrays do not fit, or an item cannot be in a key.
    """
    taken = sum(item.ndim if _is_mask(item) else item is not None and item is not Ellipsis for item in key)
    if taken > len(shape):
        raise SelectionInvalidError(f"too many indices: got {taken} for an array of {len(shape)} dimensions")
    ellipses = sum(item is Ellipsis for item in key)
    if ellipses > 1:
        raise SelectionInvalidError("a selection can have one ellipsis only")
    walk = _Walk(shape)
    # A single list on a device is compared with the extent later, by the function that takes the elements.
    is_alone = sum(_is_array(item) or is_integer(item) for item in key) == 1
    for item in key if ellipses else (*key, Ellipsis):
        if item is None:
            walk.new()
        elif item is Ellipsis:
            walk.part()
            for _ in range(len(shape) - taken):
                walk.keep(slice(None))
        elif isinstance(item, slice):
            walk.keep(item)
        elif _is_mask(item):
            extents = shape[walk.axis : walk.axis + item.ndim]
            if item.shape != extents:
                raise SelectionInvalidError(f"a mask of shape {item.shape} does not fit extents {extents}")
            walk.choose(nonzero(item), item.ndim)
        elif is_integer(item):
            walk.choose(np.asarray(normalize_index(item, shape[walk.axis]), "i8"), 1)
        elif _is_array(item) and (item.dtype.kind in "iu" or not item.size):
            is_compared = is_alone and not isinstance(item, np.ndarray) and item.dtype.kind == "i"
            walk.choose(item.astype("i8") if is_compared else _counted(item, shape[walk.axis], where), 1)
        else:
            kind = f"an array of {item.dtype}" if _is_array(item) else type(item).__name__
            raise SelectionInvalidError(f"selections take integers, slices, index arrays and masks, got {kind}")
    return _finished(walk)


def _is_mask(item: Any) -> bool:
    return getattr(getattr(item, "dtype", None), "kind", None) == "b"


def _is_array(item: Any) -> bool:
    return hasattr(item, "dtype") and not isinstance(item, np.generic)


def _counted(item: Any, extent: int, where: Callable[[Any, Any, Any], Any]) -> Numbers:
    """Converts indices, which may be negative, to ones that count from the start of the dimension. Refuses indices out of bounds."""
    numbers = item.astype("i8")
    outside = (numbers < -extent) | (numbers >= extent)
    if bool(outside.any()):
        found = numbers[outside][0]
        raise BoundsCheckError(f"index {int(found)} is out of bounds for a dimension of {extent}")
    return where(numbers < 0, numbers + extent, numbers)


def _finished(walk: _Walk) -> Chosen:
    try:
        np.broadcast_shapes(*(group.numbers.shape for group in walk.groups))
    except ValueError:
        shapes = [group.numbers.shape for group in walk.groups]
        raise SelectionInvalidError(f"index arrays of shapes {shapes} do not fit together") from None
    numbers = walk.groups[0].numbers
    for group in walk.groups[1:]:
        numbers = numbers * group.extent + group.numbers
    listed = [axis for group in walk.groups for axis in group.axes]
    others = [axis for axis in range(len(walk.shape)) if axis not in listed]
    # If index arrays do not stand side by side, NumPy puts their dimensions first.
    place = 0 if walk.is_split else walk.before
    before, behind = walk.kept[:place], walk.kept[place:]
    first = sum(extent < 0 for extent in before)
    order = others[:first] + listed + others[first:]
    return Chosen(walk.basic, order, first, len(listed), numbers, before, behind)

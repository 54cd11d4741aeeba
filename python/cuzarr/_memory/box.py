"""Boxes: a start, a count and a step for each dimension, as integers and slices between brackets select them."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzarr.errors import (
    BoundsCheckError,
    NegativeStepError,
    SelectionInvalidError,
)


def is_integer(value: object) -> bool:
    """Whether ``value`` is one index: an integer, but not a bool."""
    # Testing an abstract class takes longer than the rest of a selection.
    return type(value) is int or (isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_))


def ensure_tuple(value: Any) -> tuple[Any, ...]:
    """Wraps a selection that is not a tuple in a tuple."""
    return value if isinstance(value, tuple) else (value,)


def expand_ellipsis(selection: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Completes a selection to one item for every dimension: the ellipsis and missing items become whole slices."""
    items = ensure_tuple(selection)
    places = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise SelectionInvalidError("a selection can have one ellipsis only")
    if places:
        missing = max(len(shape) - (len(items) - 1), 0)
        items = items[: places[0]] + (slice(None),) * missing + items[places[0] + 1 :]
    if len(items) > len(shape):
        raise SelectionInvalidError(f"too many indices: got {len(items)} for an array of {len(shape)} dimensions")
    return items + (slice(None),) * (len(shape) - len(items))


def normalize_index(index: Any, extent: int) -> int:
    """Converts an index, which may be negative, to one that counts from the start of the dimension. Refuses one that is out of bounds."""
    number = int(index)
    if number < 0:
        number += extent
    if not 0 <= number < extent:
        raise BoundsCheckError(f"index {int(index)} is out of bounds for a dimension of {extent}")
    return number


@dataclass(frozen=True)
class Box:
    """A selection of elements by a start, a count and a step for each dimension. The result lacks the dimensions ``dropped``."""

    start: tuple[int, ...]
    count: tuple[int, ...]
    step: tuple[int, ...]
    dropped: tuple[int, ...] = ()

    @property
    def lists(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The box as the Rust side takes it: starts, counts, steps, and dropped dimensions."""
        return self.start, self.count, self.step, self.dropped

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the selected elements."""
        return tuple(count for axis, count in enumerate(self.count) if axis not in self.dropped)


def slice_indices(item: slice, extent: int) -> tuple[int, int, int]:
    try:
        return item.indices(extent)
    except (TypeError, ValueError) as error:  # a bound that is not an integer, or a step of 0
        raise SelectionInvalidError(f"invalid slice {item}: {error}") from error


def signed_range(own: range) -> tuple[int, int, int]:
    """Converts a range of indices, which may descend, to a start, a count and a step."""
    return own.start if own else 0, len(own), own.step if len(own) > 1 else 1


def slice_bounds(item: slice, extent: int) -> tuple[int, int, int]:
    start, stop, step = slice_indices(item, extent)
    if step < 1:
        raise NegativeStepError(f"slices have a step of at least 1, got {step}")
    # A step is limited to the extent: a larger one also selects one element.
    return start, max(0, -(-(stop - start) // step)), min(step, max(extent, 1))


def basic_box(selection: Any, shape: tuple[int, ...]) -> Box:
    """Converts a selection of integers, slices and an ellipsis to a box.

    Raises
    ------
    BoundsCheckError
        An index is outside the array.
    NegativeStepError
        A slice has a step below 1.
    SelectionInvalidError
        The selection has other items, or too many dimensions.
    """
    start: list[int] = []
    count: list[int] = []
    step: list[int] = []
    dropped: list[int] = []
    for axis, (item, extent) in enumerate(zip(expand_ellipsis(selection, shape), shape, strict=True)):
        if isinstance(item, slice):
            first, length, stride = slice_bounds(item, extent)
        elif is_integer(item):
            first, length, stride = normalize_index(item, extent), 1, 1
            dropped.append(axis)
        elif item is None:
            raise SelectionInvalidError("basic selection takes no new axes", hint="index the result: array[...][None]")
        else:
            raise SelectionInvalidError(f"basic selection takes integers and slices, got {type(item).__name__}")
        start.append(first)
        count.append(length)
        step.append(stride)
    return Box(tuple(start), tuple(count), tuple(step), tuple(dropped))

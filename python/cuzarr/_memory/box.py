"""Boxes: per dimension a start, a count and a step, as integers and slices between brackets select them."""

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
    """Whether this is one index."""
    # Asking an abstract class takes longer than the rest of a selection.
    return type(value) is int or (isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_))


def ensure_tuple(value: Any) -> tuple[Any, ...]:
    """The selection, one item for each dimension it names."""
    return value if isinstance(value, tuple) else (value,)


def expand_ellipsis(selection: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """One item for every dimension."""
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
    """An index counted from the start, checked."""
    number = int(index)
    if number < 0:
        number += extent
    if not 0 <= number < extent:
        raise BoundsCheckError(f"index {int(index)} is out of bounds for a dimension of {extent}")
    return number


@dataclass(frozen=True)
class Box:
    """Per dimension a first element, a count and a step; dimensions chosen by one index are dropped from the result."""

    start: tuple[int, ...]
    count: tuple[int, ...]
    step: tuple[int, ...]
    dropped: tuple[int, ...] = ()

    @property
    def lists(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The four lists by which the Rust side takes it."""
        return self.start, self.count, self.step, self.dropped

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is selected."""
        return tuple(count for axis, count in enumerate(self.count) if axis not in self.dropped)


def slice_indices(item: slice, extent: int) -> tuple[int, int, int]:
    try:
        return item.indices(extent)
    except (TypeError, ValueError) as error:  # a bound that is no integer, a step of 0
        raise SelectionInvalidError(f"invalid slice {item}: {error}") from error


def signed_range(own: range) -> tuple[int, int, int]:
    """The start, count and step of a range."""
    return own.start if own else 0, len(own), own.step if len(own) > 1 else 1


def slice_bounds(item: slice, extent: int) -> tuple[int, int, int]:
    start, stop, step = slice_indices(item, extent)
    if step < 1:
        raise NegativeStepError(f"slices have a step of at least 1, got {step}")
    # Beyond the extent a step leads nowhere, however large it is.
    return start, max(0, -(-(stop - start) // step)), min(step, max(extent, 1))


def basic_box(selection: Any, shape: tuple[int, ...]) -> Box:
    """The box of integers, slices and an ellipsis.

    Raises
    ------
    BoundsCheckError
        An index is outside the array.
    NegativeStepError
        A slice has a step below 1.
    SelectionInvalidError
        Something else was selected with, or too many dimensions.
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

"""Reads and writes elements of an array, selected by brackets or by one of zarr-python's kinds of selection."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr._compute.expression import Expression
from cuzarr._compute.sources import is_array
from cuzarr._memory import foreign
from cuzarr._memory.box import basic_box, ensure_tuple
from cuzarr._node import array_io
from cuzarr._node.array_io import broadcast, into, without_ones
from cuzarr._node.indexing import (
    CoordinateSelection,
    Fields,
    MaskSelection,
    OrthogonalSelection,
    VIndex,
    check_fields,
    is_pure_fancy,
    is_pure_orthogonal,
    pop_fields,
)


def _as_index(selection: Any) -> Any:
    """Returns the elements of a selection that is a stored array of cuzarr or zarr-python, and any other selection unchanged."""
    return np.asarray(selection) if is_array(selection) else selection


def get(array: Any, selection: Any, prototype: Any) -> Any:
    """Reads the elements that ``array[selection]`` selects."""
    selection = _as_index(selection)
    fields, rest = pop_fields(selection)
    if is_pure_fancy(rest, array.ndim):
        fields, points, is_mask = VIndex(array).parse(selection)
        get_points = array.get_mask_selection if is_mask else array.get_coordinate_selection
        return get_points(points, fields=fields, prototype=prototype)
    if is_pure_orthogonal(rest, array.ndim):
        return array.get_orthogonal_selection(rest, fields=fields, prototype=prototype)
    if array.ndim and all(isinstance(item, int | slice) for item in ensure_tuple(rest)):
        # For zarr-python these are orthogonal selections, whose single elements are arrays of no dimensions.
        return array_io.get_box(array, basic_box(rest, array.shape), None, prototype, fields)
    return array.get_basic_selection(rest, fields=fields, prototype=prototype)


def put(array: Any, selection: Any, value: Any, prototype: Any) -> None:
    """Writes the elements that ``array[selection]`` selects."""
    selection = _as_index(selection)
    fields, rest = pop_fields(selection)
    if isinstance(value, Expression) and fields is None and prototype is None:
        array.lazy[rest].write(value)
    elif is_pure_fancy(rest, array.ndim):
        fields, points, is_mask = VIndex(array).parse(selection)
        set_points = array.set_mask_selection if is_mask else array.set_coordinate_selection
        set_points(points, value, fields=fields, prototype=prototype)
    elif is_pure_orthogonal(rest, array.ndim):
        array.set_orthogonal_selection(rest, value, fields=fields, prototype=prototype)
    else:
        array.set_basic_selection(rest, value, fields=fields, prototype=prototype)


def count_objects(array: Any, selection: Any) -> int | None:
    """The number of chunks or shards that a selection touches, or ``None`` if the selection is not a box."""
    fields, rest = pop_fields(selection)
    try:
        box = basic_box(rest, array.shape)
    except IndexError:
        return None
    if fields is not None or array.metadata.data_type.is_variable:
        return None
    return int(array.explain(rest).to_dict()["objects"]) if all(box.count) else 0


def get_orthogonal(array: Any, selection: Any, out: Any, fields: Fields | None, prototype: Any) -> Any:
    """Reads the outer product of one selector for each dimension."""
    return array_io.get_box(array, OrthogonalSelection(selection, array.shape), out, prototype, fields)


def set_orthogonal(array: Any, selection: Any, value: Any, fields: Fields | None, prototype: Any) -> None:
    """Writes the outer product of one selector for each dimension."""
    array_io.set_box(array, OrthogonalSelection(selection, array.shape), value, fields, prototype)


def get_coordinates(array: Any, selection: Any, out: Any, fields: Fields | None, prototype: Any) -> Any:
    """Reads single elements, whose positions are given by one index array for each dimension."""
    chosen = CoordinateSelection(selection, array.shape)
    if out is not None and tuple(getattr(out, "shape", ())) == chosen.shape:
        return array_io.get_box(array, chosen, out, prototype, fields)
    result = array_io.get_box(array, chosen, None, prototype, fields).reshape(chosen.selection_shape)
    return into(out, result)


def set_coordinates(array: Any, selection: Any, value: Any, fields: Fields | None, prototype: Any) -> None:
    """Writes single elements, whose positions are given by one index array for each dimension.

    The value has the shape of the index arrays, or one element for each point: in one dimension, or with further dimensions of 1.
    """
    chosen = CoordinateSelection(selection, array.shape)
    value = array_io.computed(getattr(value, "as_ndarray_like", lambda: value)())
    is_flat = [without_ones(chosen.selection_shape), without_ones(chosen.shape)].__contains__
    if not (foreign.is_on_device(value) and is_flat(without_ones(tuple(value.shape)))):
        value = foreign.to_native_host(foreign.on_host(value), check_fields(fields, array.dtype))
    if is_flat(without_ones(tuple(value.shape))):
        value = value.reshape(chosen.shape)
    elif value.ndim:
        value = broadcast(value, chosen.selection_shape).reshape(chosen.shape)
    array_io.set_box(array, chosen, value, fields, prototype)


def get_mask(array: Any, mask: Any, out: Any, fields: Fields | None, prototype: Any) -> Any:
    """Reads the elements where a mask is true."""
    return array_io.get_box(array, MaskSelection(mask, array.shape), out, prototype, fields)


def set_mask(array: Any, mask: Any, value: Any, fields: Fields | None, prototype: Any) -> None:
    """Writes the elements where a mask is true."""
    array_io.set_box(array, MaskSelection(mask, array.shape), value, fields, prototype)

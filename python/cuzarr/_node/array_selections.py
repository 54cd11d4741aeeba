"""Elements of an array by each kind of selection that zarr-python has, and by what brackets hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr._compute.sources import is_array
from cuzarr._memory.box import basic_box, ensure_tuple
from cuzarr._node import array_io
from cuzarr._node.array_io import into
from cuzarr._node.indexing import (
    CoordinateSelection,
    Fields,
    OrthogonalSelection,
    VIndex,
    is_pure_fancy,
    is_pure_orthogonal,
    mask_selection,
    pop_fields,
)


def _as_index(selection: Any) -> Any:
    """A selection, read from its store if it is an array of one: ours or zarr-python's."""
    return np.asarray(selection) if is_array(selection) else selection


def get(array: Any, selection: Any, prototype: Any) -> Any:
    """Elements by what brackets hold."""
    selection = _as_index(selection)
    fields, rest = pop_fields(selection)
    if is_pure_fancy(rest, array.ndim):
        fields, points, is_mask = VIndex(array).parse(selection)
        get_points = array.get_mask_selection if is_mask else array.get_coordinate_selection
        return get_points(points, fields=fields, prototype=prototype)
    if is_pure_orthogonal(rest, array.ndim):
        return array.get_orthogonal_selection(rest, fields=fields, prototype=prototype)
    if array.ndim and all(isinstance(item, int | slice) for item in ensure_tuple(rest)):
        # zarr-python counts these to orthogonal selections, whose single elements are arrays of no dimensions.
        return array_io.get_box(array, basic_box(rest, array.shape), None, prototype, fields)
    return array.get_basic_selection(rest, fields=fields, prototype=prototype)


def put(array: Any, selection: Any, value: Any, prototype: Any) -> None:
    """Writes elements by what brackets hold."""
    selection = _as_index(selection)
    fields, rest = pop_fields(selection)
    if is_pure_fancy(rest, array.ndim):
        fields, points, is_mask = VIndex(array).parse(selection)
        set_points = array.set_mask_selection if is_mask else array.set_coordinate_selection
        set_points(points, value, fields=fields, prototype=prototype)
    elif is_pure_orthogonal(rest, array.ndim):
        array.set_orthogonal_selection(rest, value, fields=fields, prototype=prototype)
    else:
        array.set_basic_selection(rest, value, fields=fields, prototype=prototype)


def count_objects(array: Any, selection: Any) -> int | None:
    """Stored objects that a box touches; ``None`` for what is no box."""
    fields, rest = pop_fields(selection)
    try:
        box = basic_box(rest, array.shape)
    except IndexError:
        return None
    if fields is not None or array.metadata.data_type.is_variable:
        return None
    return int(array.explain(rest).to_dict()["objects"]) if all(box.count) else 0


def get_orthogonal(array: Any, selection: Any, out: Any, fields: Fields | None, prototype: Any) -> Any:
    """The outer product of one selector for each dimension."""
    chosen = OrthogonalSelection(selection, array.shape, array.chunks)
    result = array_io.get_fancy(array, chosen, chosen.full_shape, prototype, fields).reshape(chosen.shape)
    return array_io.delivered(array, result, prototype) if out is None else into(out, result)


def set_orthogonal(array: Any, selection: Any, value: Any, fields: Fields | None, prototype: Any) -> None:
    """Writes the outer product of one selector for each dimension."""
    chosen = OrthogonalSelection(selection, array.shape, array.chunks)
    array_io.set_fancy(array, chosen, chosen.shape, chosen.full_shape, value, fields, prototype=prototype)


def get_coordinates(array: Any, selection: Any, out: Any, fields: Fields | None, prototype: Any) -> Any:
    """Points, by one index array for each dimension."""
    chosen = CoordinateSelection(selection, array.shape, array.chunks)
    result = array_io.get_fancy(array, chosen, chosen.shape, prototype, fields)
    if out is None:
        return array_io.delivered(array, result, prototype).reshape(chosen.selection_shape)
    is_flat = tuple(getattr(out, "shape", ())) == chosen.shape
    return into(out, result if is_flat else result.reshape(chosen.selection_shape))


def set_coordinates(array: Any, selection: Any, value: Any, fields: Fields | None, prototype: Any) -> None:
    """Writes points, by one index array for each dimension."""
    chosen = CoordinateSelection(selection, array.shape, array.chunks)
    array_io.set_fancy(array, chosen, chosen.selection_shape, chosen.shape, value, fields, flat=True, prototype=prototype)


def get_mask(array: Any, mask: Any, out: Any, fields: Fields | None, prototype: Any) -> Any:
    """The elements where a mask is true."""
    chosen = mask_selection(mask, array.shape, array.chunks)
    result = array_io.get_fancy(array, chosen, chosen.shape, prototype, fields)
    return array_io.delivered(array, result, prototype) if out is None else into(out, result)


def set_mask(array: Any, mask: Any, value: Any, fields: Fields | None, prototype: Any) -> None:
    """Writes the elements where a mask is true."""
    chosen = mask_selection(mask, array.shape, array.chunks)
    array_io.set_fancy(array, chosen, chosen.shape, chosen.shape, value, fields, prototype=prototype)

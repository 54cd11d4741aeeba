"""Divides NumPy's selections into two steps: read the needed indices of each dimension, then select from the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import refusing
from cuzarr._memory import foreign
from cuzarr._memory.box import ensure_tuple, is_integer, normalize_index, signed_range, slice_indices
from cuzarr._operators.numpy_protocol import host_elements
from cuzarr.errors import ArrayIndexError, BoundsCheckError, SelectionInvalidError

Along = list[int | tuple[int, int, int] | _core.NdBuffer]


def crossings(selection: Any, shape: tuple[int, ...]) -> tuple[Along, tuple[Any, ...]]:
    """Divides a selection into the range or list of indices to read along each dimension, and a key that selects the wanted elements from
    the elements read.

    Raises
    ------
    BoundsCheckError, ArrayIndexError
        An index is outside the array, or index arrays cannot be broadcast together.
    SelectionInvalidError
        The selection does not fit, or is not a selection.
    """
    items = [_item(item) for item in ensure_tuple(selection)]
    used = sum(item.ndim if isinstance(item, np.ndarray) and item.dtype == bool else item is not None for item in items)
    ellipses = sum(item is Ellipsis for item in items)
    used -= ellipses
    if ellipses > 1:
        raise SelectionInvalidError("a selection can have one ellipsis only")
    if used > len(shape):
        raise SelectionInvalidError(f"too many indices: got {used} for an array of {len(shape)} dimensions")
    along: Along = []
    key: list[Any] = []
    for item in items if ellipses else [*items, Ellipsis]:
        extents = shape[len(along) :]
        if item is None:
            key.append(None)
        elif item is Ellipsis:
            missing = extents[: len(shape) - used]
            along += [(0, extent, 1) for extent in missing]
            key += [slice(None)] * len(missing)
        elif isinstance(item, np.ndarray) and item.dtype == bool:
            if item.shape != extents[: item.ndim]:
                raise SelectionInvalidError(f"mask has shape {item.shape}, expected {extents[: item.ndim]}")
            for places, extent in zip(np.nonzero(item), extents, strict=False):
                _list(places, extent, along, key)
        elif isinstance(item, np.ndarray):
            _list(item, extents[0], along, key)
        elif isinstance(item, slice):
            along.append(signed_range(range(*slice_indices(item, extents[0]))))
            key.append(slice(None))
        else:
            along.append((normalize_index(item, extents[0]), 1, 1))
            key.append(0)
    try:
        np.broadcast_shapes(*(item.shape for item in key if isinstance(item, np.ndarray)))
    except ValueError as error:
        raise ArrayIndexError(f"the index arrays have no common shape: {error}") from error
    return along, tuple(key)


def _item(item: Any) -> Any:
    """Converts one item of a selection to a form that NumPy understands: index arrays and masks become NumPy arrays in host memory."""
    if item is None or item is Ellipsis or isinstance(item, slice) or is_integer(item):
        return item
    if not isinstance(item, list | tuple) and not hasattr(item, "shape"):
        message = f"got {type(item).__name__} between brackets, expected integers, slices, index arrays and masks"
        raise SelectionInvalidError(message)
    with refusing("an index array"):
        array = foreign.as_numpy(foreign.on_host(host_elements(item)))
    if not array.size and isinstance(item, list | tuple):
        array = array.astype(np.intp)
    if array.dtype.kind not in "iub" or array.dtype.kind == "b" and not array.ndim:
        raise SelectionInvalidError(f"index arrays hold integers, and masks bools; got {array.dtype} of shape {array.shape}")
    return array


def _list(places: np.ndarray[Any, Any], extent: int, along: Along, key: list[Any]) -> None:
    """Prepares reading by the index array of one dimension: adds the distinct indices, sorted, to ``along``, and where each index is among
    them to ``key``."""
    outside = places[(places < -extent) | (places >= extent)] if places.dtype.kind == "i" else places[places >= extent]
    if outside.size:
        raise BoundsCheckError(f"index {outside.flat[0]} is out of bounds for a dimension of {extent}")
    counted = places.astype(np.int64)
    needed, inverse = np.unique(np.where(counted < 0, counted + extent, counted), return_inverse=True)
    along.append(foreign.wrap_host(needed.astype(np.uint64)))
    key.append(inverse.reshape(places.shape))

"""Converts selections, as callers write them between brackets, to the form that the Rust side takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cuzarr import _core, _numpy
from cuzarr._compute.expression import Expression
from cuzarr._memory import foreign
from cuzarr._memory.box import (
    Box,
    ensure_tuple,
    expand_ellipsis,
    is_integer,
    normalize_index,
    slice_bounds as _slice_bounds,
    slice_indices as _slice_indices,
)
from cuzarr._metadata.chunk_grid import ChunkGrid
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import (
    ArrayIndexError,
    BoundsCheckError,
    SelectionInvalidError,
    VindexInvalidSelectionError,
)

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, MemoryArray, Selection


Fields = str | list[str] | tuple[str, ...]


def _kind(dtype: Any) -> str:
    """NumPy's kind letter of an element type of any library; ``V`` if there is none."""
    return getattr(_numpy.of_library(dtype), "kind", "V")


def _is_index_array(value: Any, kinds: str) -> bool:
    if isinstance(value, slice | int):
        return False
    if isinstance(value, list):
        if not value:
            return False
        scalar = is_integer if "i" in kinds else lambda item: isinstance(item, bool | np.bool_)
        return all(scalar(item) for item in value)
    return not np.isscalar(value) and hasattr(value, "shape") and _kind(getattr(value, "dtype", None)) in kinds


def is_integer_array(value: Any) -> bool:
    """Whether ``value`` is a list or an array of integers."""
    return _is_index_array(value, "iu")


def is_mask(value: Any) -> bool:
    """Whether ``value`` is a list or an array of booleans."""
    return _is_index_array(value, "b")


def _described(item: Any) -> str:
    """Describes an item of a selection in an error message. Arrays are shown by type and shape."""
    return f"{item.dtype}{list(item.shape)}" if isinstance(item, np.ndarray) else repr(item)


def as_arrays(selection: Sequence[Any]) -> tuple[Any, ...]:
    """Converts the lists in a selection to arrays, and plans (such as the mask ``array > 0``) and stored arrays to their elements."""
    try:
        return tuple(map(_as_array, selection))
    except ValueError as error:
        raise SelectionInvalidError(f"cannot make an index array of a list: {error}") from error


def _as_array(item: Any) -> Any:
    if isinstance(item, Expression):
        if _kind(item.dtype) not in "biu":
            raise SelectionInvalidError(f"a plan of {item.dtype} chooses no elements, expected bools or integers")
        return item._within_limit("select a part at a time, or raise the limit: cuzarr.config.set(memory_limit=...)")
    if isinstance(item, Lazy):
        return item._elements_on(None)
    return np.asarray(item) if isinstance(item, list) else item


def _index_array(indices: Any) -> np.ndarray[Any, Any]:
    """Converts an index array to a NumPy array in host memory, in the machine's byte order."""
    array = foreign.as_numpy(foreign.on_host(indices))
    if array.dtype.kind not in "iu":
        raise SelectionInvalidError(f"index arrays hold integers, got {array.dtype}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def normalize_indices(indices: Any, extent: int) -> np.ndarray[Any, Any]:
    """Copies an index array to host memory, refuses indices out of bounds, and counts negative ones from the start of the dimension."""
    array = _index_array(indices)
    if not array.size:
        return array.astype(np.intp)
    low, high = int(array.min()), int(array.max())
    if high >= extent or low < -extent:
        outside = array[(array >= extent) | (array < -extent if low < 0 else False)]
        raise BoundsCheckError(f"index {outside.flat[0]} is out of bounds for a dimension of {extent}")
    array = array.astype(np.intp, copy=False)
    return np.where(array < 0, array + extent, array) if low < 0 else array


def block_box(selection: Any, shape: tuple[int, ...], chunks: ChunkGrid) -> Box:
    """The box of elements in whole chunks, which are selected by their positions in the grid of chunks."""
    start, count = [], []
    for item, extent, axis in zip(expand_ellipsis(selection, shape), shape, chunks.axes, strict=True):
        grid = axis.count(extent)
        if is_integer(item):
            index = int(item) + grid if item < 0 else int(item)
            if not 0 <= index < grid:
                raise BoundsCheckError(f"block {int(item)} is out of bounds for a dimension of {grid} chunks")
            first, last = index, index + 1
        elif isinstance(item, slice):
            if item.step not in (None, 1):
                raise SelectionInvalidError(f"block slices have a step of 1, got {item.step}")
            _, last, _ = _slice_indices(item, grid)
            first = 0 if item.start is None else int(item.start)
            first += grid if first < 0 else 0
            if not 0 <= first < grid:
                raise BoundsCheckError(f"block slice {item} starts outside a dimension of {grid} chunks")
        else:
            raise SelectionInvalidError(f"block selection takes integers and slices, got {type(item).__name__}")
        low = min(axis.start(first), extent)
        start.append(low)
        count.append(max(min(axis.start(last), extent) - low, 0))
    return Box(tuple(start), tuple(count), (1,) * len(shape))


class Chosen(Protocol):
    """Interface of parsed selections: which elements to read or write, in the form that the Rust side takes, and the shape of the
    result."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def lists(self) -> _core._Lists | _core.Selection: ...


class OrthogonalSelection:
    """A selection of the outer product of one selector for every dimension: an integer, a slice, an index array or a mask."""

    def __init__(self, selection: Any, shape: tuple[int, ...]) -> None:
        items = as_arrays(expand_ellipsis(selection, shape))
        axes = [axis_selector(item, extent) for item, extent in zip(items, shape, strict=True)]
        counts = [(len(axis), False) if isinstance(axis, np.ndarray) else (axis[1], axis[3]) for axis in axes]
        self.shape = tuple(count for count, is_dropped in counts if not is_dropped)
        self.lists = _core.Selection.orthogonal([index_list(axis) if isinstance(axis, np.ndarray) else axis for axis in axes])


def index_list(indices: np.ndarray[Any, Any]) -> _core.NdBuffer:
    """A buffer with the indices of a dimension, for the Rust side. They must not be negative."""
    return foreign.wrap_host(np.ascontiguousarray(indices, np.uint64))


def axis_selector(item: Any, extent: int) -> tuple[int, int, int, bool] | np.ndarray[Any, Any]:
    """Converts the selector of one dimension: to start, count, step and whether the dimension is dropped, or to an array of indices."""
    if is_integer(item):
        return normalize_index(item, extent), 1, 1, True
    if isinstance(item, slice):
        return *_slice_bounds(item, extent), False
    if is_mask(item):
        if item.ndim != 1 or item.shape[0] != extent:
            raise SelectionInvalidError(f"mask has shape {item.shape}, expected ({extent},)")
        return np.flatnonzero(foreign.on_host(item))
    if is_integer_array(item):
        if item.ndim != 1:
            raise SelectionInvalidError(f"index arrays of an orthogonal selection have 1 dimension, got {item.ndim}")
        return normalize_indices(item, extent)
    name = type(item).__name__
    raise SelectionInvalidError(f"orthogonal selection takes integers, slices, index arrays and masks, got {name}")


class CoordinateSelection:
    """A selection of points: index arrays, broadcast together, with one array for each dimension."""

    def __init__(self, selection: Any, shape: tuple[int, ...]) -> None:
        items = as_arrays(ensure_tuple(selection))
        items = tuple(np.asarray([item]) if is_integer(item) else item for item in items)
        if not shape:
            raise SelectionInvalidError("an array of 0 dimensions has no coordinates", hint="select its element by [()]")
        if len(items) != len(shape) or not all(map(is_integer_array, items)):
            raise SelectionInvalidError(
                f"coordinate selection takes one integer array for each of {len(shape)} dimensions, "
                f"got {', '.join(map(_described, items))}"
            )
        arrays = [_index_array(item) for item in items]
        try:
            self.selection_shape = np.broadcast_shapes(*(array.shape for array in arrays)) or (1,)
            points = [np.broadcast_to(array, self.selection_shape) for array in arrays]
        except ValueError as error:
            raise ArrayIndexError(f"the index arrays have no common shape: {error}") from error
        self.shape = (math.prod(self.selection_shape),)
        lists = [foreign.wrap_host(np.ascontiguousarray(axis).reshape(-1)) for axis in points]
        chosen, axis, outside = _core.Selection.points(lists, shape)
        if chosen is None:
            raise BoundsCheckError(f"index {outside} is out of bounds for a dimension of {shape[axis]}")
        self.lists = chosen


class MaskSelection:
    """A selection of the points where a mask of the array's shape is true, in C order."""

    def __init__(self, mask: Any, shape: tuple[int, ...]) -> None:
        items = as_arrays(ensure_tuple(mask))
        if len(items) != 1 or not is_mask(items[0]) or tuple(items[0].shape) != shape:
            raise SelectionInvalidError(f"mask selection takes one boolean array of shape {shape}")
        if not shape:
            raise SelectionInvalidError("an array of 0 dimensions has no coordinates", hint="select its element by [()]")
        item = items[0]
        buffer = foreign.device_buffer(item) if foreign.is_on_device(item) else foreign.wrap_host(foreign.as_numpy(item))
        self.lists = _core.Selection.mask(buffer)
        self.shape = self.lists.shape


def is_pure_fancy(selection: Any, ndim: int) -> bool:
    """Whether brackets select points: by a mask, or by integers and index arrays only."""
    if not isinstance(selection, list) and is_mask(selection):
        return True
    if ndim == 1 and (is_integer_array(selection) or is_mask(selection)):
        return True
    return (
        isinstance(selection, tuple)
        and len(selection) == ndim
        and all(is_integer(item) or is_integer_array(item) for item in selection)
        and any(is_integer_array(item) for item in selection)
    )


def is_pure_orthogonal(selection: Any, ndim: int) -> bool:
    """Whether brackets select an outer product: index arrays only, or one index array beside integers and slices."""
    items = ensure_tuple(selection)
    arrays = [is_integer_array(item) or is_mask(item) for item in items]
    if not ndim or len(items) > ndim:
        return False
    if len(items) == ndim and all(arrays):
        return True
    return sum(arrays) == 1 and all(array or isinstance(item, int | slice) for array, item in zip(arrays, items, strict=True))


def pop_fields(selection: Any) -> tuple[Fields | None, Any]:
    """Splits a selection into field names of structured elements, and the rest."""
    if isinstance(selection, str):
        return selection, ()
    if not isinstance(selection, tuple):
        return None, selection
    fields = [item for item in selection if isinstance(item, str)]
    rest = tuple(item for item in selection if not isinstance(item, str))
    chosen: Fields | None = (fields[0] if len(fields) == 1 else fields) if fields else None
    return chosen, rest[0] if len(rest) == 1 else rest


def check_fields(fields: Fields | None, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a result with the selected fields. Refuses fields that the array's dtype lacks.

    Raises
    ------
    SelectionInvalidError
        There is no such field.
    """
    if fields is None or (not isinstance(fields, str) and not fields):
        return dtype
    if not isinstance(fields, str | list | tuple):
        raise SelectionInvalidError(f"fields are a name or a list of names, got {fields!r}")
    if dtype.names is None:
        raise SelectionInvalidError(f"elements of {dtype} have no fields")
    names = [fields] if isinstance(fields, str) else list(fields)
    missing = [name for name in names if name not in dtype.names]
    if missing:
        raise SelectionInvalidError(f"no field {missing[0]!r}, there are {', '.join(dtype.names)}")
    if len(set(names)) < len(names):
        raise SelectionInvalidError(f"a field is named twice: {', '.join(names)}")
    return dtype[fields] if isinstance(fields, str) else np.dtype([(name, dtype[name]) for name in fields])


def one_field(fields: Fields | None) -> str | None:
    """The name of the field of structured elements that an assignment writes, if a selection names one. Refuses several fields."""
    if fields is None or isinstance(fields, str):
        return fields
    if len(fields) > 1:
        raise SelectionInvalidError("only one field can be written at a time")
    return fields[0] if fields else None


@dataclass(frozen=True)
class OIndex:
    """The object behind ``array.oindex``: selects the outer product of one selector for every dimension."""

    array: Any

    def __getitem__(self, selection: Selection) -> MemoryArray:
        fields, rest = pop_fields(selection)
        return self.array.get_orthogonal_selection(as_arrays(ensure_tuple(rest)), fields=fields)  # type: ignore[no-any-return]

    def __setitem__(self, selection: Selection, value: ArrayLike) -> None:
        fields, rest = pop_fields(selection)
        self.array.set_orthogonal_selection(as_arrays(ensure_tuple(rest)), value, fields=fields)


@dataclass(frozen=True)
class VIndex:
    """The object behind ``array.vindex``: selects points, by coordinates or by a mask."""

    array: Any

    def parse(self, selection: Any) -> tuple[Fields | None, Any, bool]:
        """Splits a selection of points into field names, the index arrays or the mask, and whether the points are given by a mask."""
        fields, rest = pop_fields(selection)
        items = as_arrays(ensure_tuple(rest))
        if len(items) == len(self.array.shape) and all(is_integer(item) or is_integer_array(item) for item in items):
            return fields, items, False
        if len(items) == 1 and is_mask(items[0]) and items[0].shape == self.array.shape:
            return fields, items[0], True
        raise VindexInvalidSelectionError(
            f"vectorized selection takes one integer array for each of {len(self.array.shape)} dimensions, or one mask of "
            f"shape {self.array.shape}; got {', '.join(map(_described, items))}"
        )

    def __getitem__(self, selection: Selection) -> MemoryArray:
        fields, rest, is_a_mask = self.parse(selection)
        get = self.array.get_mask_selection if is_a_mask else self.array.get_coordinate_selection
        return get(rest, fields=fields)  # type: ignore[no-any-return]

    def __setitem__(self, selection: Selection, value: ArrayLike) -> None:
        fields, rest, is_a_mask = self.parse(selection)
        set_ = self.array.set_mask_selection if is_a_mask else self.array.set_coordinate_selection
        set_(rest, value, fields=fields)


@dataclass(frozen=True)
class BlockIndex:
    """The object behind ``array.blocks``: selects whole chunks, by their positions in the grid."""

    array: Any

    def __getitem__(self, selection: Selection) -> MemoryArray:
        fields, rest = pop_fields(selection)
        return self.array.get_block_selection(as_arrays(ensure_tuple(rest)), fields=fields)  # type: ignore[no-any-return]

    def __setitem__(self, selection: Selection, value: ArrayLike) -> None:
        fields, rest = pop_fields(selection)
        self.array.set_block_selection(as_arrays(ensure_tuple(rest)), value, fields=fields)

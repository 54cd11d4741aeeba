"""Changes of an array's shape."""

from __future__ import annotations

from typing import Any, Protocol, Self

from cuzarr._checks import axis_number, parse_shape
from cuzarr._compute.operands import dimension_names, is_lazy
from cuzarr._memory.foreign import host_array
from cuzarr._metadata.array import ZATTRS, AnyArrayMetadata
from cuzarr._node.array_io import OpenArray
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError
from cuzarr.storage import StorePath


class ResizableArray(OpenArray, Protocol):
    """An array of a store, as far as changing its shape is concerned."""

    _store_path: StorePath

    def _reopened(self, metadata: AnyArrayMetadata) -> Self: ...
    def __setitem__(self, selection: Any, value: Any) -> None: ...


def resize(array: ResizableArray, new_shape: Any, *, delete_outside_chunks: bool = True) -> None:
    """Changes the shape; see :meth:`cuzarr.Array.resize`. Chunks that fall outside may also be left behind."""
    shape = parse_shape(new_shape)
    if len(shape) != array.ndim:
        raise InvalidArgumentError(f"the new shape has {len(shape)} dimensions, the array {array.ndim}")
    array.store.check_writable()
    before = array.shape
    metadata = array._metadata.update_shape(shape)
    if delete_outside_chunks:
        array._handle().delete_left_over(shape)
    is_transactional = array.store._handle.is_transactional()
    if delete_outside_chunks and is_transactional:
        array._handle().delete_outside(before, shape)
    _write_shape(array, metadata)
    # Now that no shape has them any more.
    if delete_outside_chunks and not is_transactional:
        array._handle().delete_outside(before, shape)


def _write_shape(array: ResizableArray, metadata: AnyArrayMetadata) -> None:
    # In format 2 attributes have a document of their own, which others may have changed.
    documents = {name: value for name, value in metadata.documents().items() if name != ZATTRS}
    array._store_path.write(documents)
    array._metadata = metadata
    array._handles, array._plain = {}, None


def append(array: ResizableArray, data: Any, axis: int | str) -> tuple[int, ...]:
    """Adds elements behind the last ones; see :meth:`cuzarr.Array.append`."""
    if not hasattr(data, "shape"):
        data = host_array(data, "data")
    axis = axis_number(axis, array.ndim, dimension_names(array))
    others = [tuple(extent for place, extent in enumerate(shape) if place != axis) for shape in (array.shape, data.shape)]
    if others[0] != others[1]:
        raise ShapeMismatchError(f"data of shape {tuple(data.shape)} does not fit shape {array.shape} along axis {axis}")
    if is_lazy(data):
        data = data._elements_on(None)  # while it has the shape that was looked at, should it be this array
    before = array.shape
    after = tuple(extent + (data.shape[axis] if place == axis else 0) for place, extent in enumerate(before))
    array.store.check_writable()
    metadata = array._metadata.update_shape(after)
    array._handle().delete_left_over(after)
    longer = array._reopened(metadata)
    region = tuple(slice(before[axis], after[axis]) if place == axis else slice(None) for place in range(array.ndim))
    is_transactional = array.store._handle.is_transactional()
    if is_transactional:
        _write_shape(array, metadata)
    longer[region] = data
    if not is_transactional:
        _write_shape(array, metadata)
    return after

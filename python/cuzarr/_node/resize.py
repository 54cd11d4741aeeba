"""Functions that change an array's shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, Self

from cuzarr import _core
from cuzarr._checks import axis_number, parse_shape
from cuzarr._compute.operands import dimension_names, is_lazy
from cuzarr._config import config as global_config
from cuzarr._metadata.array import AnyArrayMetadata
from cuzarr._metadata.documents import value_of
from cuzarr._node.array_io import OpenArray, taken_apart
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError
from cuzarr.storage import StorePath


class ResizableArray(OpenArray, Protocol):
    """The part of an array's interface that is needed to change its shape."""

    _store_path: StorePath

    def _locked(self, *, for_shape: bool = False) -> _core.NodeLock: ...
    def _reopened(self, metadata: AnyArrayMetadata) -> Self: ...
    def __setitem__(self, selection: Any, value: Any) -> None: ...


def resize(array: ResizableArray, new_shape: Any, *, delete_outside_chunks: bool = True) -> None:
    """Changes the shape of an array; see :meth:`cuzarr.Array.resize`. Chunks outside of the new shape may also be kept."""
    resize_many([(array, new_shape)], delete_outside_chunks=delete_outside_chunks)


def resize_many(
    resizes: Iterable[tuple[ResizableArray, Any]], *, delete_outside_chunks: bool = True, expects_known_shapes: bool = False
) -> None:
    """Changes the shapes of several arrays. Arrays of one store together need as few rounds of requests as one array.

    With ``expects_known_shapes``, the call is refused if another writer has changed a shape since its array was opened here.
    """
    wanted = [(array, parse_shape(new_shape)) for array, new_shape in resizes]
    for array, shape in wanted:
        if len(shape) != array.ndim:
            raise InvalidArgumentError(f"the new shape has {len(shape)} dimensions, the array {array.ndim}")
        array.store.check_writable()
    handles, shapes = [array._handle() for array, _ in wanted], [shape for _, shape in wanted]
    indent = global_config.get("json_indent")
    found, failure = _core.resize_many(handles, shapes, delete_outside_chunks, expects_known_shapes, indent)
    for (array, _), documents in zip(wanted, found, strict=True):
        _remember(array, value_of(array._store_path, (documents, None, [])))  # type: ignore[arg-type]  # an array stays one
    if failure is not None:
        raise failure


def _stored(array: ResizableArray, node: _core.NodeLock) -> AnyArrayMetadata:
    """Reads an array's metadata again from the store, under a lock, before its shape is changed. Other objects for the array may have
    changed them."""
    return value_of(array._store_path, (node.read(), None, []))  # type: ignore[return-value]  # the lock is that of an array


def _remember(array: ResizableArray, metadata: AnyArrayMetadata) -> None:
    if metadata != array._metadata:
        array._metadata = metadata
        array._handles, array._plain = {}, None


def _write(array: ResizableArray, node: _core.NodeLock, metadata: AnyArrayMetadata) -> bool:
    """Stores an array's new metadata, unless another writer has changed the stored metadata since they were read. Returns whether they were
    stored."""
    if not node.replace(metadata._given()[0], global_config.get("json_indent")):
        return False
    _remember(array, metadata)
    return True


def append(array: ResizableArray, data: Any, axis: int | str) -> tuple[int, ...]:
    """Adds elements behind the last ones of an array; see :meth:`cuzarr.Array.append`. Other changes of the shape wait until it ends."""
    if not hasattr(data, "shape"):
        data = taken_apart(array, data)
    axis = axis_number(axis, array.ndim, dimension_names(array))
    _check_fits(array, data, axis)
    array.store.check_writable()
    # Computed before the node is locked: it may take long, and a plan may read this very array.
    data = data._elements_on(None) if is_lazy(data) else taken_apart(array, data)
    is_transactional = array.store._handle.is_transactional()
    with array._locked(for_shape=True) as node:
        while True:
            _remember(array, _stored(array, node))
            _check_fits(array, data, axis)
            before = array.shape
            after = tuple(extent + (data.shape[axis] if place == axis else 0) for place, extent in enumerate(before))
            metadata = array._metadata.update_shape(after)
            # Each chunk behind the old end is written whole, or deleted if it only holds the fill value. Otherwise bytes that a killed
            # call left there could become elements.
            longer = array._reopened(metadata)
            region = tuple(slice(before[axis], after[axis]) if place == axis else slice(None) for place in range(array.ndim))
            if is_transactional and not _write(array, node, metadata):
                continue
            longer[region] = data
            if is_transactional or _write(array, node, metadata):
                return after


def _check_fits(array: ResizableArray, data: Any, axis: int) -> None:
    others = [tuple(extent for place, extent in enumerate(shape) if place != axis) for shape in (array.shape, data.shape)]
    if others[0] != others[1]:
        raise ShapeMismatchError(f"data of shape {tuple(data.shape)} does not fit shape {array.shape} along axis {axis}")

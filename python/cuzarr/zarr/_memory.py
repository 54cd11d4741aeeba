"""Passes arrays of zarr-python to the Rust engine: as they are, or converted if the engine does not use their form."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._memory import strings
from cuzarr._memory.convert import wrap_device
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.foreign import is_on_device, wrap_host
from cuzarr.zarr._chunks import Chunks


def is_host(array: Any) -> bool:
    """Whether an array's elements are in host memory."""
    return isinstance(array, np.ndarray) or not is_on_device(array)


def box(array: Any, start: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """A view of the box of an array that begins at ``start`` and has the shape ``shape``."""
    if tuple(array.shape) == shape:
        return array
    return array[(*(slice(at, at + extent) for at, extent in zip(start, shape, strict=True)), ...)]


def is_native(array: Any, chunks: Chunks) -> bool:
    """Whether the Rust engine can use an array's elements as they are: in the machine's byte order and of fixed size."""
    return bool(array.dtype == chunks.native) and not chunks.is_variable


def wrap(array: Any, chunks: Chunks) -> _core.NdBuffer:
    """Wraps the memory of an array as a buffer of the Rust engine, without copying. :func:`is_native` must hold for the array."""
    if isinstance(array, np.ndarray):
        return wrap_host(array)
    return wrap_device(array, chunks.data_type)


def empty_like(array: Any, shape: tuple[int, ...], chunks: Chunks) -> Any:
    """Allocates an array in the machine's byte order, on the device of ``array``."""
    if is_host(array):
        return np.empty(shape, chunks.native)
    if isinstance(array, DeviceArray):
        return DeviceArray.empty(shape, chunks.native, array.device)
    import cupy

    return cupy.empty(shape, chunks.native)


def read_box(
    request: _core.ChunkRequest, chunks: Chunks, store: _core.ChunkStore, place: Any, options: dict[str, Any]
) -> list[int]:
    """Reads the elements that ``request`` names into ``place``, which has the request's shape. Returns the numbers of missing chunks."""
    if chunks.is_variable:
        read, missing = request.read_variable(chunks.core, store, options, chunks.data_type.is_text)
        place[...] = strings.to_array(read, tuple(request.out_shape), chunks.data_type.native)
        return missing
    if (isinstance(place, np.ndarray) or not is_host(place)) and is_native(place, chunks):
        return request.read(chunks.core, store, wrap(place, chunks), options)
    # For another byte order, one field of a structure, or an unknown kind of memory.
    elements = empty_like(place, tuple(request.out_shape), chunks)
    missing = request.read(chunks.core, store, wrap(elements, chunks), options)
    _assign(place, elements)
    return missing


def _assign(place: Any, elements: Any) -> None:
    # Assigned as integers, because NumPy confuses the byte order of dates without a unit.
    if place.dtype.kind in "mM" and elements.dtype.kind == place.dtype.kind:
        place, elements = _as_integers(place), _as_integers(elements)
    place[...] = elements


def _as_integers(array: Any) -> Any:
    return array.view(np.dtype("i8").newbyteorder(array.dtype.byteorder))


def _in_native_order(value: Any, native: np.dtype[Any]) -> Any:
    if value.dtype == native:
        return value
    if native.kind in "mM" and value.dtype.kind == native.kind:
        return _as_integers(value).astype("i8").view(native)
    return value.astype(native)


def write_box(request: _core.ChunkRequest, chunks: Chunks, store: _core.ChunkStore, value: Any, options: dict[str, Any]) -> None:
    """Writes ``value``, broadcast to the request's shape, to the elements that ``request`` names."""
    if chunks.is_variable:
        elements = np.broadcast_to(np.asarray(value), tuple(request.out_shape))
        request.write_variable(chunks.core, store, strings.to_list(elements), options, chunks.data_type.is_text)
        return
    if is_host(value):
        value = np.asarray(value)
    request.write(chunks.core, store, wrap(_in_native_order(value, chunks.native), chunks), options)

"""Reads and writes the elements of an array, in the memory that the caller or the configuration chooses."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np

from cuzarr import _core, _numpy
from cuzarr._compute.expression import Expression
from cuzarr._compute.sources import StoredArray
from cuzarr._config import DEFAULTS, config as global_config, resolve_class
from cuzarr._memory import convert, foreign, strings
from cuzarr._memory.element_types import core_dtype
from cuzarr._metadata.array import AnyArrayMetadata, canonical_json
from cuzarr._node.array_config import ArrayConfig
from cuzarr._node.indexing import Chosen, Fields, check_fields, one_field
from cuzarr._text import printable
from cuzarr.buffer import NDBuffer, cpu, gpu
from cuzarr.buffer._prototype import prototype_device
from cuzarr.errors import (
    CuzarrRuntimeWarning,
    FallbackRefusedError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    ShapeMismatchError,
    UnsupportedError,
)
from cuzarr.storage import Store


class Opened(NamedTuple):
    """The Rust object that reads and writes an array for one device, and the configuration with which it was opened."""

    # The objects that the configuration's values came from, and the values that the array was opened with.
    origins: tuple[object, ...]
    settings: tuple[Any, ...]
    handle: _core.Array


class Plain(NamedTuple):
    """The Rust object with which ``array[...]`` quickly reads integers and slices, if the result is a plain NumPy array."""

    origins: tuple[object, ...]
    # ``None`` if results are not plain NumPy arrays.
    handle: _core.Array | None
    dtype: np.dtype[Any]


class OpenArray(StoredArray, Protocol):
    """The part of an array's interface that is needed to read and write elements."""

    _metadata: AnyArrayMetadata
    _config: ArrayConfig
    _own_device: str | None
    # One for each device.
    _handles: dict[str, Opened]
    _plain: Plain | None

    @property
    def store(self) -> Store: ...
    @property
    def path(self) -> str: ...
    @property
    def order(self) -> Literal["C", "F"]: ...
    def with_device(self, device: str) -> Self: ...


_told: set[tuple[str, str]] = set()
# Settings of the process that an array is opened with.
_SETTINGS = (
    "strict",
    "memory_limit",
    "threading.max_workers",
    "array.variable_chunk_max_bytes",
    "chunk_cache.size",
    "chunk_cache.max_age",
    "accelerator",
)

# Arrays (by their documents), devices and memory limits for which warnings about fall-backs were given, up to a maximum number.
_looked_at: set[tuple[str, str, int]] = set()
_LOOKED_AT_MOST = 1024


def open_handle(array: OpenArray, device: str | None = None) -> _core.Array:
    """The Rust object for an array, opened once for each device, until the configuration changes."""
    device = device or array._own_device or global_config._values()["device"]
    opened, origins = array._handles.get(device), global_config.origins()
    if opened is not None and opened.origins == origins:
        return opened.handle
    settings = tuple(map(global_config._values().__getitem__, _SETTINGS))
    handle = None if opened is None or opened.settings != settings else opened.handle
    if handle is None:
        store, path, documents = array.store, array.path, array._metadata._documents
        options = {
            "device": device,
            "accelerator": array._config.accelerator or settings[6],
            "strict": settings[0],
            "memory_limit_bytes": settings[1],
            "threads": settings[2],
            "variable_limit_bytes": settings[3],
            "chunk_cache": array._config.chunk_cache,
            "chunk_cache_bytes": settings[4],
            "chunk_cache_max_age": settings[5],
            "write_empty_chunks": array._config.write_empty_chunks,
            "read_missing_chunks": array._config.read_missing_chunks,
            "coalesce_gap_bytes": array._config.sharding_coalesce_max_gap_bytes,
            "coalesce_max_bytes": array._config.sharding_coalesce_max_bytes,
        }
        # In a read-only store, the array may have been opened from its group's consolidated metadata.
        handle = _core.Array(store._handle, path, documents, options, store.read_only)
        # Kept before the warning below, which a program may turn into an error.
        array._handles[device] = Opened(origins, settings, handle)
        if device != "cpu" and not options["strict"]:
            looked_at = canonical_json(array._metadata.document), device, settings[1]
            if looked_at not in _looked_at:
                strict = _core.Array(store._handle, path, documents, {**options, "strict": True})
                _warn_of_fallbacks(strict, array.ndim, device)
                if len(_looked_at) < _LOOKED_AT_MOST:
                    _looked_at.add(looked_at)
    array._handles[device] = Opened(origins, settings, handle)
    return handle


def placement(array: OpenArray, prototype: Any) -> tuple[str, Any]:
    """The device of the elements that are read or written, and the caller's own class of nd-buffers, if there is one.

    A prototype takes precedence over the array's device, and the array's device over the configuration.
    """
    own: Any = None
    if prototype is not None:
        device, own = prototype_device(prototype, array.device), _own_class(prototype)
    else:
        device = array.device
        if array._own_device is None and (configured := global_config.get("ndbuffer")) != DEFAULTS["ndbuffer"]:
            own = _own_class(resolve_class(configured))
    if array._metadata.data_type.is_variable:  # strings and bytes of variable length are Python objects
        return "cpu", own if device == "cpu" else None
    return device, own


def read_plain(array: OpenArray, selection: Any) -> np.ndarray[Any, Any] | None:
    """Quickly reads ``array[...]`` for integers and slices; ``None`` if the selection or the array needs the slower, general code.

    Most reads of small arrays are of this kind. For them, each step in Python would take as long as a step of reading.
    """
    plain = array._plain
    if plain is None or plain.origins != global_config.origins():
        plain = array._plain = _look_if_plain(array)
    buffer = None if plain.handle is None else plain.handle.read_plain(selection)
    return None if buffer is None else np.ndarray(buffer.shape, plain.dtype, buffer)


def _look_if_plain(array: OpenArray) -> Plain:
    origins, data_type = global_config.origins(), array._metadata.data_type
    native = data_type.native
    is_as_given = not data_type.is_variable and native.isnative and native.names is None and native.kind not in "OT"
    is_plain = is_as_given and array.order == "C" and placement(array, None) == ("cpu", None)
    return Plain(origins, open_handle(array, "cpu") if is_plain else None, native)


def get_box(array: OpenArray, box: Chosen, out: Any, prototype: Any, fields: Fields | None) -> Any:
    """Reads a box into memory that ``prototype`` or ``out`` chooses."""
    device, nd_buffer = placement(array, prototype)
    if out is not None or nd_buffer is None:
        return _get_box_on(array, device, box, out, fields)
    out_dtype = check_fields(fields, array.dtype)
    memory = new_memory(array, nd_buffer, device, box.shape, out_dtype)
    place = foreign.device_of(memory)
    if place != "cpu" or isinstance(memory, np.ndarray):
        return _get_box_on(array, place, box, memory, fields)
    return into(memory, _get_box_on(array, device, box, None, fields))  # another library's array, which only assigns


def _get_box_on(array: OpenArray, device: str, box: Chosen, out: Any, fields: Fields | None) -> Any:
    out_dtype = check_fields(fields, array.dtype)
    if out is not None:
        if not _reads_into(array, out, out_dtype):
            return into(out, _get_box_on(array, device, box, None, fields))
        native = native_type(array.dtype)
        handle, selection = array._handle(device), box.lists
        return convert.read_into(lambda memory: handle.read_into(selection, memory), out, box.shape, native, device)
    if out_dtype == array.dtype:
        return read_box(array, box, device)
    elements = _take_fields(read_box(array, box, "cpu"), fields, out_dtype)
    if device != "cpu":
        _tell_of_host("fields of structures", device)
        elements = convert.to_device(elements, device)
    return elements


def new_memory(array: OpenArray, nd_buffer: Any, device: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """New memory for a result, from the caller's own buffer class. The class is called as zarr-python calls it."""
    buffer = nd_buffer.empty(shape=shape, dtype=dtype if device == "cpu" else native_type(dtype), order=array.order)
    return buffer.as_ndarray_like()


def delivered(array: OpenArray, elements: Any, prototype: Any) -> Any:
    """Copies elements, after they were read, into memory of the caller's own buffer class. Without such a class, returns them unchanged."""
    device, nd_buffer = placement(array, prototype)
    if nd_buffer is None:
        return elements
    memory = new_memory(array, nd_buffer, device, tuple(elements.shape), elements.dtype)
    if foreign.is_on_device(memory) and not foreign.is_on_device(elements):
        elements = convert.to_device(elements, foreign.device_of(memory))
    return into(memory, elements)


def taken(array: OpenArray, value: Any, prototype: Any, dtype: np.dtype[Any]) -> Any:
    """Copies a value to be written to a stored array into memory of the caller's own buffer class, if there is one. Without such a class,
    returns it unchanged."""
    if isinstance(value, NDBuffer):
        value = value.as_ndarray_like()
    _, nd_buffer = placement(array, prototype)
    if nd_buffer is None:
        return value
    elements = value if foreign.is_on_device(value) else foreign.to_native_host(value, dtype)
    return nd_buffer.from_ndarray_like(elements).as_ndarray_like()


def _reads_into(array: OpenArray, out: Any, out_dtype: np.dtype[Any]) -> bool:
    """Whether elements can be read directly into a caller's memory without a conversion."""
    if out_dtype is not array.dtype or array._metadata.data_type.is_variable:
        return False
    memory = getattr(out, "as_ndarray_like", lambda: out)()
    return not isinstance(memory, np.ndarray) or native_type(memory.dtype) == native_type(array.dtype)


def read_box(array: OpenArray, box: Chosen, device: str) -> Any:
    data_type = array._metadata.data_type
    handle = array._handle(device)
    selection = box.lists
    if data_type.is_variable:
        return strings.to_array(handle.read_variable(selection, data_type.is_text), box.shape, data_type.native)
    if array.order == "F" and len(box.shape) > 1:
        buffer = _core.NdBuffer.empty(box.shape, core_dtype(data_type.native), device, "F")
        handle.read_into(selection, buffer)
    else:
        buffer = handle.read(selection)
    return in_own_order(array, convert.result_array(buffer, native_type(data_type.native)))


def in_own_order(array: OpenArray, elements: Any) -> Any:
    """Converts elements that were read to the array's byte order, if they are a NumPy array. Other libraries have no other byte order."""
    own = array._metadata.data_type.native
    if isinstance(elements, np.ndarray) and elements.dtype != own:
        return elements.astype(own) if own.names is not None else elements.byteswap(inplace=True).view(own)
    return elements


def read_arrow(array: OpenArray, box: Chosen, ndim: int) -> tuple[Any, Any]:
    """The elements of a box as two capsules of Arrow's C data interface: the schema and the array.

    Raises
    ------
    UnsupportedError
        The box does not have exactly one dimension, or Arrow has no such type.
    ImplicitHostCopyError
        The array reads to a GPU.
    """
    data_type = array._metadata.data_type
    device, _ = placement(array, None)
    if ndim != 1:
        message = f"an array of Arrow has one dimension, this one has {ndim}"
        raise UnsupportedError(message, hint="view a row: array.lazy[0], or the elements: array[...].ravel()")
    if data_type.is_variable:
        return array._handle(device).read_arrow(box.lists, data_type.is_text)
    if data_type.native.kind not in "biuf":
        message = f"elements of {data_type.native} are not handed over to Arrow"
        raise UnsupportedError(message, hint="convert the elements: pyarrow.array(array[...])")
    if device != "cpu":
        message = f"this array reads to {device}, and a copy to the host has to be asked for"
        raise ImplicitHostCopyError(message, hint="use array.with_device('cpu')")
    return array._handle(device).read(box.lists).arrow()


def computed(value: Any) -> Any:
    """Computes a plan and returns its elements. Any other value is returned unchanged.

    Raises
    ------
    BudgetExceededError
        The elements take more memory than the limit.
    """
    if not isinstance(value, Expression):
        return value
    return value._within_limit("store it into a view, part by part: plan.store(array.lazy[...])")


def set_box(array: OpenArray, box: Chosen, value: Any, fields: Fields | None, prototype: Any = None) -> None:
    array.store.check_writable()
    value = computed(value)
    check_fields(fields, array.dtype)
    field = one_field(fields)
    value = taken(array, value, prototype, array.dtype if field is None else array.dtype[field])
    if field is None:
        write_box(array, box, value)
        return
    values = broadcast(foreign.to_native_host(foreign.on_host(value), array.dtype[field]), box.shape)
    with turn(array, box) as update:
        elements = read_box(array, box, "cpu")
        elements[field] = values
        write_box(array, box, elements, update)


def turn(array: OpenArray, box: Chosen) -> _core.Update:
    """Begins an update of the elements in ``box``: until it ends, other threads cannot write to the stored objects that hold them."""
    return array._handle().update(box.lists)


def taken_apart(array: OpenArray, value: Any) -> Any:
    """Converts a caller's value to a NumPy array, before it is written to a stored array. Arrays in a GPU's memory, and Python strings,
    stay as they are."""
    if isinstance(value, NDBuffer):
        value = value.as_ndarray_like()
    data_type = array._metadata.data_type
    if foreign.is_on_device(value) or (data_type.is_text and strings.holds_text(value)):
        return value
    return foreign.to_native_host(value, native_type(data_type.native))


def write_box(array: OpenArray, box: Chosen, value: Any, update: _core.Update | None = None) -> None:
    elements = written(array, box.shape, value)
    handle, selection = array._handle(), box.lists
    if isinstance(elements, tuple):
        write_variable = partial(handle.write_variable, selection) if update is None else update.write_variable
        with encoded_text(array):
            write_variable(*elements)
    elif elements is not None:
        (partial(handle.write, selection) if update is None else update.write)(elements)


def written(array: OpenArray, shape: tuple[int, ...], value: Any) -> _core.NdBuffer | tuple[list[Any], bool] | None:
    """Converts a value that is written to a selection of shape ``shape`` to the form that the Rust side takes.

    The result is a buffer. For elements of variable length, it is a list, and whether they are text. ``None`` if a value in host memory
    has no elements.

    Raises
    ------
    ShapeMismatchError
        The value does not broadcast to the shape.
    """
    value = taken_apart(array, value)
    data_type = array._metadata.data_type
    if foreign.is_on_device(value):
        buffer = convert.device_elements(value, data_type)
        more = len(buffer.shape) - len(shape)
        if more > 0 and set(buffer.shape[:more]) == {1}:  # as `_strip` does in host memory
            buffer = buffer.reshape(buffer.shape[more:])
        return buffer
    elements = broadcast(value, shape)
    if data_type.is_variable:
        return strings.to_list(elements), data_type.is_text
    return foreign.wrap_host(elements) if elements.size else None


@contextmanager
def encoded_text(array: OpenArray) -> Iterator[None]:
    """Inside the ``with`` block, turns Python's error for strings that UTF-8 cannot encode into ``ConversionError``."""
    try:
        yield
    except UnicodeEncodeError:
        with _numpy.conversion(array._metadata.data_type.native):
            raise


def _warn_of_fallbacks(strict: _core.Array, ndim: int, device: str) -> None:
    # Warns once per process for each codec that `strict` would refuse. A codec that runs on the host because it is faster there is no
    # fall-back.
    _, explanation = strict.explain(((0,) * ndim, (0,) * ndim, (1,) * ndim, ()), False)
    fallen = {(item["codec"], item["reason"]) for item in json.loads(explanation)["codecs"] if "reason" in item}
    for codec, reason in sorted(fallen - _told):
        message = f"codec '{codec}' runs via host although arrays are read to {device}: {reason}"
        warnings.warn(printable(message), CuzarrRuntimeWarning, stacklevel=6)
    _told.update(fallen)


def native_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # The Rust side holds every element in the machine's byte order. Python's objects and strings have no byte order.
    return dtype if dtype.kind in "OT" else dtype.newbyteorder("=")


def _own_class(prototype: Any) -> Any:
    """The caller's own class for the memory of results; ``None`` for a class of cuzarr or zarr-python."""
    nd_buffer = getattr(prototype, "nd_buffer", prototype)
    plain = nd_buffer in (cpu.NDBuffer, gpu.NDBuffer) or not hasattr(nd_buffer, "from_ndarray_like")
    return None if plain or nd_buffer.__module__ in ("zarr.core.buffer.cpu", "zarr.core.buffer.gpu") else nd_buffer


def _tell_of_host(what: str, device: str) -> None:
    """Warns once that ``what`` was done in host memory, although the elements go to a GPU.

    Raises
    ------
    FallbackRefusedError
        The configuration is ``strict``.
    """
    reason = f"{what} are served in host memory, because CuPy, which could do it on {device}, is missing or has no such elements"
    if global_config.get("strict"):
        raise FallbackRefusedError(reason, hint="install cupy-cuda12x, or use with_device('cpu')")
    if (what, reason) not in _told:
        _told.add((what, reason))
        warnings.warn(reason, CuzarrRuntimeWarning, stacklevel=6)


def _take_fields(elements: Any, fields: Fields | None, out_dtype: np.dtype[Any]) -> Any:
    if isinstance(fields, str):
        return elements[fields].copy()
    result = np.empty(elements.shape, out_dtype)
    for name in out_dtype.names or ():
        result[name] = elements[name]
    return result


def into(out: Any, result: Any) -> Any:
    """Copies elements that were read into the caller's array ``out``, converted as NumPy converts, and returns ``out``. Without ``out``,
    returns the result.

    Raises
    ------
    ShapeMismatchError, ConversionError
        The result does not fit.
    """
    if out is None:
        return result
    target = getattr(out, "as_ndarray_like", lambda: out)()  # zarr-python's NDBuffer
    if not hasattr(target, "shape"):
        raise InvalidArgumentError(f"out is {type(out).__name__}, expected an array")
    if tuple(target.shape) != tuple(result.shape):
        raise ShapeMismatchError(f"out has shape {tuple(target.shape)}, the selection {tuple(result.shape)}")
    target = convert.writable_view(target)
    if math.prod(target.shape):
        with _numpy.conversion(target.dtype):
            target[...] = result
    return out


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)


def _strip(value: Any, shape: tuple[int, ...]) -> Any:
    # As in NumPy's assignments, leading dimensions of 1 that the selection lacks are dropped.
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0, ...]  # keeps an array even without dimensions: a single NumPy string would have its own size
    return value


def broadcast(value: Any, shape: tuple[int, ...]) -> Any:
    try:
        return np.broadcast_to(_strip(value, shape), shape)
    except ValueError as error:
        raise ShapeMismatchError(f"a value of shape {value.shape} does not broadcast to the selection {shape}") from error

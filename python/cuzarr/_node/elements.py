"""How elements come out of an array and go in, box by box, in the memory that was chosen."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np

from cuzarr import _core, _numpy
from cuzarr._checks import MAX_NDIM
from cuzarr._config import config as global_config
from cuzarr._config import resolve_class
from cuzarr._memory import convert as _convert
from cuzarr._memory import element_types as _element_types
from cuzarr._memory import foreign as _foreign
from cuzarr._memory import strings as _strings
from cuzarr._memory.box import Box, basic_box
from cuzarr._memory.device_array import DeviceArray
from cuzarr._metadata.array import AnyArrayMetadata, ArrayMetadata, encode_document
from cuzarr._node.array_config import ArrayConfig, ArrayConfigLike, parse_array_config, parse_changes
from cuzarr._node.described import ArrayDescription
from cuzarr._node.display import Explanation
from cuzarr._node.indexing import FancySelection, Fields, check_fields, one_field
from cuzarr._text import printable
from cuzarr.buffer import NDBuffer, cpu, gpu
from cuzarr.buffer._prototype import prototype_device
from cuzarr.errors import (
    ArgumentTypeError,
    CuzarrError,
    CuzarrRuntimeWarning,
    FallbackRefusedError,
    InvalidArgumentError,
    ShapeMismatchError,
    UnsupportedError,
)
from cuzarr.storage import StorePath


class ArrayElements(ArrayDescription):
    """Reads and writes boxes, and what is gathered from boxes; users select by what :class:`ArraySelections` has."""

    def __init__(
        self,
        store_path: StorePath,
        metadata: AnyArrayMetadata,
        config: ArrayConfigLike | None = None,
        device: str | None = None,
    ) -> None:
        if not isinstance(store_path, StorePath):
            hint = "use open_array; or give cuzarr.storage.StorePath(store, path)"
            raise ArgumentTypeError(f"store_path is {store_path!r}, expected a place in a store", hint=hint)
        if not isinstance(metadata, ArrayMetadata):
            hint = "use create_array; or give ArrayV3Metadata.from_dict(document)"
            raise ArgumentTypeError(f"metadata is {metadata!r}, expected an array's metadata", hint=hint)
        self._store_path = store_path
        self._metadata = metadata
        self._config = parse_array_config(config)
        self._own_device = None if device is None else str(device)
        self._handles = {}
        # The Rust side checks what this side does not: a document it refuses is refused before anything is written.
        try:
            self._handle()
        except CuzarrError as error:
            if not any("array '" in place for place in error.trail):
                error.trail = (f"{store_path.store}: array '/{store_path.path}'", *error.trail)
            raise

    def with_config(self, config: ArrayConfigLike) -> Self:
        """The same array with other settings; those not named stay."""
        chosen = config if isinstance(config, ArrayConfig) else replace(self._config, **parse_changes(config))
        return type(self)(self._store_path, self._metadata, chosen, self._own_device)

    def with_device(self, device: str) -> Self:
        """The same array, reading to another device.

        >>> import cuzarr
        >>> cuzarr.zeros((2,), store={}).with_device("cpu").device
        'cpu'
        """
        return type(self)(self._store_path, self._metadata, self._config, device)

    # ------------------------------------------------------------------------------------------- what is done, and why

    def explain(self, selection: Any = Ellipsis, *, writing: bool = False) -> Explanation:
        """What reading a box would do, stage by stage, and why: where each codec runs, and if on the host, for which reason.
        ``writing`` asks the same of writing elements that are on the array's device. Reads and writes no elements."""
        box = basic_box(selection, self.shape)
        return Explanation(*self._handle().explain(box.start, box.count, box.step, box.dropped, writing))

    def last_report(self) -> dict[str, Any] | None:
        """Bytes, seconds and counts of each stage of the last read or write, or ``None`` before the first."""
        report = self._handle().last_report()
        return None if report is None else json.loads(report)

    def placements(self) -> list[tuple[str, str]]:
        """Each codec, in order of encoding, and where reading runs it: ``"native"``, or ``"via host: <reason>"``.

        >>> import cuzarr
        >>> cuzarr.zeros((4,), store={}).placements()
        [('bytes', 'native'), ('zstd', 'native')]
        """
        axes = [0] * self.ndim
        _, document = self._handle().explain(axes, axes, [1] * self.ndim, [], False)
        codecs = json.loads(document)["codecs"]
        return [
            (item["codec"], item["placement"] + (f": {item['reason']}" if "reason" in item else "")) for item in codecs
        ]

    # ------------------------------------------------------------------------------------------ reading and writing

    def _handle(self, device: str | None = None) -> _core.Array:
        device = device or self.device
        settings = tuple(map(global_config.get, _SETTINGS))
        is_new = device not in self._handles
        if is_new or self._handles[device][0] != settings:
            document = {key: value for key, value in self._metadata.document.items() if key != "attributes"}
            options = {
                "device": device,
                "strict": settings[0],
                "memory_limit_bytes": settings[1],
                "threads": settings[2],
                "variable_limit_bytes": settings[3],
                "write_empty_chunks": self._config.write_empty_chunks,
                "read_missing_chunks": self._config.read_missing_chunks,
                "coalesce_gap_bytes": self._config.sharding_coalesce_max_gap_bytes,
                "coalesce_max_bytes": self._config.sharding_coalesce_max_bytes,
            }
            raw, zarr_format = encode_document(document, compact=True), self._metadata.zarr_format
            self._handles[device] = settings, _core.Array(self.store._handle, self.path, raw, zarr_format, options)
            if is_new and device != "cpu" and not options["strict"] and (raw, device) not in _looked_at:
                strict = _core.Array(self.store._handle, self.path, raw, zarr_format, {**options, "strict": True})
                _warn_of_fallbacks(strict, self.ndim, device)
                if len(_looked_at) < _LOOKED_AT_MOST:
                    _looked_at.add((raw, device))
        return self._handles[device][1]

    def _placement(self, prototype: Any) -> tuple[str, Any]:
        """Where an operation's memory is, and the class of it when it is one of the caller's own: a prototype counts more
        than the array's device, which counts more than the configuration."""
        own: Any = None
        if prototype is not None:
            device, own = prototype_device(prototype, self.device), _own_class(prototype)
        else:
            device = self.device
            if self._own_device is None:
                own = _own_class(resolve_class(global_config.get("ndbuffer")))
        if self._metadata.data_type.is_variable:  # strings and bytes of variable length are Python objects
            return "cpu", own if device == "cpu" else None
        return device, own

    def _get_box(self, box: Box, out: Any, prototype: Any, fields: Fields | None) -> Any:
        device, nd_buffer = self._placement(prototype)
        if out is not None or nd_buffer is None:
            return self._get_box_on(device, box, out, fields)
        out_dtype = check_fields(fields, self.dtype)
        memory = self._new_memory(nd_buffer, device, box.shape, out_dtype)
        place = _foreign.device_of(memory)
        if place != "cpu" or isinstance(memory, np.ndarray):
            return self._get_box_on(place, box, memory, fields)
        return into(memory, self._get_box_on(device, box, None, fields))  # an array of another library, which only assigns

    def _get_box_on(self, device: str, box: Box, out: Any, fields: Fields | None) -> Any:
        out_dtype = check_fields(fields, self.dtype)
        if out is not None:
            if not self._reads_into(out, out_dtype):
                return into(out, self._get_box_on(device, box, None, fields))
            native = _native(self.dtype)
            handle, selection = self._handle(device), (box.start, box.count, box.step, box.dropped)
            return _convert.read_into(lambda memory: handle.read_into(*selection, memory), out, box.shape, native, device)
        if out_dtype == self.dtype:
            return self._read(box, device)
        elements = _take_fields(self._read(box, "cpu"), fields, out_dtype)
        if device != "cpu":
            _tell_of_host("fields of structures", device)
            elements = _convert.to_device(elements, device)
        return elements

    def _new_memory(self, nd_buffer: Any, device: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """New memory for a result, made by a buffer class of the caller's own as zarr-python has it made."""
        buffer = nd_buffer.empty(shape=shape, dtype=dtype if device == "cpu" else _native(dtype), order=self.order)
        return buffer.as_ndarray_like()

    def _delivered(self, elements: Any, prototype: Any) -> Any:
        """Elements in memory of the caller's own buffer class, if there is one."""
        device, nd_buffer = self._placement(prototype)
        if nd_buffer is None:
            return elements
        memory = self._new_memory(nd_buffer, device, tuple(elements.shape), elements.dtype)
        if _foreign.is_on_device(memory) and not _foreign.is_on_device(elements):
            elements = _convert.to_device(elements, _foreign.device_of(memory))
        return into(memory, elements)

    def _taken(self, value: Any, prototype: Any, dtype: np.dtype[Any]) -> Any:
        """A value to be written, by way of the caller's own buffer class, if there is one."""
        if isinstance(value, NDBuffer):
            value = value.as_ndarray_like()
        _, nd_buffer = self._placement(prototype)
        if nd_buffer is None:
            return value
        array = value if _foreign.is_on_device(value) else _foreign.to_native_host(value, dtype)
        return nd_buffer.from_ndarray_like(array).as_ndarray_like()

    def _reads_into(self, out: Any, out_dtype: np.dtype[Any]) -> bool:
        """Whether elements can go right into a caller's memory; if not, they are converted on their way there."""
        if out_dtype is not self.dtype or self._metadata.data_type.is_variable:
            return False
        memory = getattr(out, "as_ndarray_like", lambda: out)()
        return not isinstance(memory, np.ndarray) or _native(memory.dtype) == _native(self.dtype)

    def _read(self, box: Box, device: str) -> Any:
        data_type = self._metadata.data_type
        handle = self._handle(device)
        selection = (box.start, box.count, box.step, box.dropped)
        if data_type.is_variable:
            offsets, data = handle.read_variable(*selection)
            return _strings.decode_variable(offsets, data, box.shape, data_type)
        if self.order == "F" and len(box.shape) > 1:
            buffer = _core.NdBuffer.empty(box.shape, _element_types.core_dtype(data_type.native), device, "F")
            handle.read_into(*selection, buffer)
        else:
            buffer = handle.read(*selection)
        elements = _convert.result_array(buffer, _native(data_type.native))
        if isinstance(elements, np.ndarray) and elements.dtype != data_type.native:
            if data_type.native.names is not None:
                return elements.astype(data_type.native)
            elements = elements.byteswap(inplace=True).view(data_type.native)
        return elements

    def _set_box(self, box: Box, value: Any, fields: Fields | None, prototype: Any = None) -> None:
        self.store.check_writable()
        check_fields(fields, self.dtype)
        field = one_field(fields)
        value = self._taken(value, prototype, self.dtype if field is None else self.dtype[field])
        if field is None:
            self._write(box, value)
            return
        values = _broadcast(_foreign.to_native_host(_foreign.on_host(value), self.dtype[field]), box.shape)
        with self._update(box) as update:
            elements = self._read(box, "cpu")
            elements[field] = values
            self._write(box, elements, update)

    def _update(self, box: Box) -> _core.Update:
        """The turn of the objects that a box touches: what other threads write to them comes before it or after it."""
        return self._handle().update(box.start, box.count, box.step, box.dropped)

    def _write(self, box: Box, value: Any, update: _core.Update | None = None) -> None:
        if isinstance(value, NDBuffer):
            value = value.as_ndarray_like()
        data_type = self._metadata.data_type
        handle, selection = self._handle(), (box.start, box.count, box.step, box.dropped)
        write = partial(handle.write, *selection) if update is None else update.write
        if _foreign.is_on_device(value):
            buffer = _convert.device_elements(value, data_type)
            more = len(buffer.shape) - len(box.shape)
            if more > 0 and set(buffer.shape[:more]) == {1}:  # as `_strip` in host memory
                buffer = buffer.reshape(buffer.shape[more:])
            write(buffer)
            return
        native = _native(data_type.native)
        elements = _broadcast(_foreign.to_native_host(value, native), box.shape)
        if data_type.is_variable:
            write_variable = partial(handle.write_variable, *selection) if update is None else update.write_variable
            write_variable(*_strings.encode_variable(elements, data_type))
        elif elements.size:
            write(_foreign.wrap_host(elements))

    def _get_fancy(
        self, chosen: FancySelection, shape: tuple[int, ...], prototype: Any, fields: Fields | None
    ) -> Any:
        out_dtype = check_fields(fields, self.dtype)
        device, _ = self._placement(prototype)
        module = _array_module(device, out_dtype if out_dtype == self.dtype else None)
        if module is None:
            elements = self._get_fancy(chosen, shape, cpu.buffer_prototype, fields)
            return _convert.to_device(elements, device)
        result = module.empty(shape, self.dtype if device == "cpu" else _native(self.dtype))
        for piece in chosen:
            block = module.asarray(self._read(piece.box, device))
            result[_indices(module, piece.target)] = block[_indices(module, piece.inside)]
        if module is not np and global_config.get("array_type") == "device":
            result = _convert.result_array(_foreign.device_buffer(result), result.dtype)
        return result if out_dtype == self.dtype else _take_fields(result, fields, out_dtype)

    def _set_fancy(
        self,
        chosen: FancySelection,
        shape: tuple[int, ...],
        full_shape: tuple[int, ...],
        value: Any,
        fields: Fields | None,
        flat: bool = False,
        prototype: Any = None,
    ) -> None:
        """Writes to a selection of ``shape``, which has ``full_shape`` inside. ``flat`` takes one element for each point, too,
        in one dimension or with dimensions of 1 between."""
        self.store.check_writable()
        check_fields(fields, self.dtype)
        field = one_field(fields)
        value = self._taken(value, prototype, self.dtype if field is None else self.dtype[field])
        device = _foreign.device_of(value)
        module = _array_module(device, self.dtype if field is None else None)
        if module is None:
            value, device, module = _foreign.on_host(value), "cpu", np
        if device == "cpu":
            value = _foreign.to_native_host(value, self.dtype if field is None else self.dtype[field])
        elif field is None:
            value = module.asarray(DeviceArray(_convert.device_elements(value, self._metadata.data_type), _native(self.dtype)))
        if flat and _without_ones(value.shape) in (_without_ones(shape), _without_ones(full_shape)):
            value = value.reshape(shape)
        values = _broadcast(value, shape, module).reshape(full_shape)
        for piece in chosen:
            part = values[_indices(module, piece.target)]
            with self._update(piece.box) as update:
                block = module.asarray(self._read(piece.box, device))
                if field is None:
                    block[_indices(module, piece.inside)] = part
                else:
                    block[field][piece.inside] = part
                self._write(piece.box, block, update)


_told: set[tuple[str, str]] = set()
# What arrays are opened with of the process's configuration.
_SETTINGS = ("strict", "memory_limit", "threading.max_workers", "array.variable_chunk_max_bytes")

# Documents of arrays, and devices, for which that was asked; no more than so many are kept.
_looked_at: set[tuple[bytes, str]] = set()
_LOOKED_AT_MOST = 1024


def _warn_of_fallbacks(strict: _core.Array, ndim: int, device: str) -> None:
    # Once a process for each codec: what `strict` would refuse. What the host merely does faster is no fall-back.
    _, explanation = strict.explain([0] * ndim, [0] * ndim, [1] * ndim, [], False)
    fallen = {(item["codec"], item["reason"]) for item in json.loads(explanation)["codecs"] if "reason" in item}
    for codec, reason in sorted(fallen - _told):
        message = f"codec '{codec}' runs via host although arrays are read to {device}: {reason}"
        warnings.warn(printable(message), CuzarrRuntimeWarning, stacklevel=6)
    _told.update(fallen)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # The Rust side holds every element in the machine's byte order; Python's objects and strings have none.
    return dtype if dtype.kind in "OT" else dtype.newbyteorder("=")


def _own_class(prototype: Any) -> Any:
    """The class that results' memory is made by, when it is the caller's own: neither one of ours nor one of zarr-python's."""
    nd_buffer = getattr(prototype, "nd_buffer", prototype)
    plain = nd_buffer in (cpu.NDBuffer, gpu.NDBuffer) or not hasattr(nd_buffer, "from_ndarray_like")
    return None if plain or nd_buffer.__module__ in ("zarr.core.buffer.cpu", "zarr.core.buffer.gpu") else nd_buffer


def _array_module(device: str, dtype: np.dtype[Any] | None) -> Any:
    """NumPy or CuPy; ``None`` where index arrays have to be served in host memory. ``dtype`` is that of the elements,
    ``None`` for parts of structures."""
    if device == "cpu":
        return np
    if device.startswith("cuda") and dtype is not None and dtype.kind in "biufc" and _convert.cupy_holds(dtype):
        import cupy

        return cupy
    _tell_of_host("index arrays", device)
    return None


def _tell_of_host(what: str, device: str) -> None:
    """Says once that something was done in host memory although elements go to a device.

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


def _indices(module: Any, items: Any) -> Any:
    if isinstance(items, tuple) and (count := sum(not isinstance(item, slice) for item in items)) >= MAX_NDIM:
        raise UnsupportedError(
            f"got indices along {count} dimensions, NumPy takes at most {MAX_NDIM - 1}", hint="select a range along one of them"
        )
    if module is np:
        return items
    return tuple(map(module.asarray, items)) if isinstance(items, tuple) else module.asarray(items)


def _take_fields(elements: Any, fields: Fields | None, out_dtype: np.dtype[Any]) -> Any:
    if isinstance(fields, str):
        return elements[fields].copy()
    result = np.empty(elements.shape, out_dtype)
    for name in out_dtype.names or ():
        result[name] = elements[name]
    return result


def into(out: Any, result: Any) -> Any:
    """The caller's own memory with a result copied into it, converted as NumPy converts; or the result, if there is none.

    Raises
    ------
    ShapeMismatchError, ConversionError
        The result does not fit.
    """
    if out is None:
        return result
    target = getattr(out, "as_ndarray_like", lambda: out)()  # zarr-python's NDBuffer
    if not hasattr(target, "shape"):
        raise InvalidArgumentError(f"out is no array: {type(out).__name__}")
    if tuple(target.shape) != tuple(result.shape):
        raise ShapeMismatchError(f"out has shape {tuple(target.shape)}, the selection {tuple(result.shape)}")
    target = _convert.writable_view(target)
    if math.prod(target.shape):
        with _numpy.conversion(target.dtype):
            target[...] = result
    return out


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)


def _strip(value: Any, shape: tuple[int, ...]) -> Any:
    # As in NumPy's assignments, leading dimensions of 1 that the selection has not are dropped.
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0, ...]  # an array even without dimensions: NumPy's strings alone have a size of their own
    return value


def _broadcast(value: Any, shape: tuple[int, ...], module: Any = np) -> Any:
    try:
        return module.broadcast_to(_strip(value, shape), shape)
    except ValueError as error:
        raise ShapeMismatchError(f"a value of shape {value.shape} does not broadcast to the selection {shape}") from error

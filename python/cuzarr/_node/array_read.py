"""Reads boxes of elements: into a caller's memory, as another element type, or many boxes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core, _numpy
from cuzarr._checks import element_type, items
from cuzarr._memory import convert, element_types, foreign
from cuzarr._memory.box import Box, basic_box
from cuzarr._metadata.chunk_grid import ChunkGrid
from cuzarr._node.array_io import OpenArray, delivered, get_box, in_own_order, native_type, new_memory, placement
from cuzarr.errors import (
    BoundsCheckError,
    CuzarrError,
    DTypeMismatchError,
    InvalidArgumentError,
    SelectionInvalidError,
    ShapeMismatchError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from cuzarr.typing import MemoryArray


def converted(array: OpenArray, dtype: Any) -> np.dtype[Any]:
    """The element type of a result that is read as ``dtype``, in the machine's byte order; ``None`` stands for the array's type.

    Raises
    ------
    DTypeMismatchError
        The two types differ, and at least one of them is not a type of numbers.
    """
    own = native_type(array.dtype)
    wanted = own if dtype is None else native_type(element_type(dtype))
    if wanted != own and not (_is_number(own) and _is_number(wanted)):
        raise DTypeMismatchError(f"cannot read {own} as {wanted}", hint="read the array, and convert the result on the host")
    return wanted


def _is_number(dtype: np.dtype[Any]) -> bool:
    return _numpy.is_number(dtype)


def check_fixed(array: OpenArray) -> None:
    if array._metadata.data_type.is_variable:
        raise UnsupportedError("read does not support elements of variable length", hint="use brackets: array[...]")


def read(array: OpenArray, selection: Any, out: Any, dtype: Any, prototype: Any) -> Any:
    """Reads one box of a stored array's elements; see :meth:`cuzarr.Array.read`."""
    return _read_box(array, basic_box(selection, array.shape), dtype, out, prototype)


def _read_box(array: OpenArray, box: Box, dtype: Any, out: Any = None, prototype: Any = None) -> Any:
    if out is None and dtype is None:
        return get_box(array, box, None, prototype, None)
    check_fixed(array)
    device, nd_buffer = placement(array, prototype)
    native = converted(array, dtype if out is None or dtype is not None else foreign.element_type(out))
    if out is not None:
        handle = array._handle(device)
        return convert.read_into(lambda memory: handle.read_into(box.lists, memory), out, box.shape, native, device)
    order = array.order if len(box.shape) > 1 else "C"
    if nd_buffer is not None:
        memory = new_memory(array, nd_buffer, device, box.shape, native)
        place = foreign.device_of(memory)
        handle = array._handle(place)
        return convert.read_into(lambda part: handle.read_into(box.lists, part), memory, box.shape, native, place)
    buffer = _core.NdBuffer.empty(box.shape, element_types.core_dtype(native), device, order)
    array._handle(device).read_into(box.lists, buffer)
    return convert.result_array(buffer, native)


def read_to(array: OpenArray, selection: Any, out: Any, dtype: Any, prototype: Any, device: str | Sequence[str]) -> Any:
    """Reads one box to a device that is not the array's, or to several devices; see :meth:`cuzarr.Array.read`."""
    if isinstance(device, str):
        return read(array.with_device(device), selection, out, dtype, prototype)
    device = items(device, "device", "the name of one, or of several")
    if out is not None or prototype is not None or not device:
        raise InvalidArgumentError("device is a list, which must not be empty and allows neither out nor prototype")
    parts = split(basic_box(selection, array.shape), array._metadata._grid, len(device))
    with ThreadPoolExecutor(len(device), thread_name_prefix="cuzarr-split") as pool:
        reads = [pool.submit(_read_box, array.with_device(one), part, dtype) for one, part in zip(device, parts, strict=True)]
        return [one.result() for one in reads]


def split(box: Box, chunks: ChunkGrid, count: int) -> list[Box]:
    """Divides a box along its first dimension into ``count`` parts that begin at borders of stored chunks.

    Parts are as even as possible. If there are fewer chunks than parts, some parts have no elements.
    """
    kept = [axis for axis in range(len(box.count)) if axis not in box.dropped]
    if not kept:
        raise SelectionInvalidError("a single element cannot be divided")
    axis = kept[0]
    start, total, step = box.start[axis], box.count[axis], box.step[axis]
    cuts = [0]
    for number in range(1, count):
        element = start + total * number // count * step
        chunk = chunks.axes[axis].chunk_of(element)
        borders = (chunks.axes[axis].start(chunk), chunks.axes[axis].start(chunk + 1))
        border = max(min(borders, key=lambda border: abs(border - element)) - start, 0)
        cuts.append(min(max(-(-border // step), cuts[-1]), total))
    parts = []
    for low, high in zip(cuts, [*cuts[1:], total], strict=True):
        starts, counts = list(box.start), list(box.count)
        # The start of a part without elements does not matter.
        starts[axis], counts[axis] = (start + low * step, high - low) if high > low else (start, 0)
        parts.append(Box(tuple(starts), tuple(counts), box.step, box.dropped))
    return parts


def read_boxes(array: OpenArray, starts: Any, extent: Any, out: Any, dtype: Any) -> MemoryArray:
    """Reads many boxes of one extent; see :meth:`cuzarr.Array.read_boxes`."""
    extents = _integers("extent", extent)
    if extents.ndim == 0 and array.ndim == 1:
        extents = extents[None]
    begins = _starts(array, starts)
    if extents.shape != (array.ndim,):
        raise SelectionInvalidError(f"got an extent of shape {np.shape(extent)} for {array.ndim} dimensions")
    _check_inside(array, begins, np.broadcast_to(extents, begins.shape), extents)
    shape = (len(begins), *extents.tolist())

    def read(handle: _core.Array, memory: _core.NdBuffer) -> None:
        if len(begins):
            handle.read_boxes_into(foreign.wrap_host(begins), shape[1:], memory)

    return _read_rows(array, shape, out, dtype, read)


def read_ragged(array: OpenArray, starts: Any, extents: Any, out: Any, dtype: Any) -> tuple[MemoryArray, np.ndarray[Any, Any]]:
    """Reads boxes of unequal extents; see :meth:`cuzarr.Array.read_ragged`."""
    begins, sizes = _starts(array, starts), _integers("extents", extents)
    sizes = np.ascontiguousarray(sizes[:, None] if sizes.ndim == array.ndim == 1 else sizes)
    if sizes.shape != begins.shape:
        raise SelectionInvalidError(f"got starts of shape {np.shape(starts)} and extents of shape {np.shape(extents)}")
    _check_inside(array, begins, sizes, sizes)
    offsets = np.concatenate(([0], np.cumsum(sizes.prod(1, dtype=np.int64))))

    def read(handle: _core.Array, memory: _core.NdBuffer) -> None:
        if array.ndim == 1:
            _core.read_many([(handle, _ranges(begins, sizes), None, memory)])
            return
        boxes = zip(begins.tolist(), sizes.tolist(), offsets.tolist(), strict=False)  # there is one more offset than boxes
        ones, no_axes = [1] * array.ndim, list[int]()
        reads = [
            (handle, (start, extent, ones, no_axes), None, memory.part(at, extent)) for start, extent, at in boxes if all(extent)
        ]
        _core.read_many(reads)

    return _read_rows(array, (int(offsets[-1]),), out, dtype, read), offsets


def _ranges(begins: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> tuple[_core.NdBuffer, _core.NdBuffer]:
    return foreign.wrap_host(begins[:, 0].copy()), foreign.wrap_host(sizes[:, 0].copy())


def read_ranges(reads: Sequence[tuple[OpenArray, Any, Any, Any]]) -> list[MemoryArray]:
    """Reads many ranges of several 1-D arrays in one call. Each read is an array, starts, lengths, and an element type or ``None``.

    Returns
    -------
    list of arrays
        One result for each array, on its device. It holds the array's ranges, one behind the other.

    Raises
    ------
    BoundsCheckError
        A range lies outside of its array.
    """
    calls, types = [], []
    for array, starts, lengths, dtype in reads:
        check_fixed(array)
        begins, sizes = _starts(array, starts), _integers("lengths", lengths)[:, None]
        _check_inside(array, begins, sizes, sizes)
        types.append(converted(array, dtype))
        handle = array._handle(placement(array, None)[0])
        calls.append((handle, _ranges(begins, sizes), element_types.core_dtype(types[-1]), None))
    results = zip(reads, _core.read_many(calls), types, strict=True)
    return [delivered(array, convert.result_array(buffer, dtype), None) for (array, *_), buffer, dtype in results]


def _read_rows(
    array: OpenArray, shape: tuple[int, ...], out: Any, dtype: Any, read: Callable[[_core.Array, _core.NdBuffer], None]
) -> MemoryArray:
    """Calls ``read`` on memory of shape ``shape``, and returns this memory: the caller's ``out``, or new memory."""
    check_fixed(array)
    device = placement(array, None)[0]
    native = converted(array, dtype if out is None or dtype is not None else foreign.element_type(out))
    handle = array._handle(device)
    if out is not None:
        filled: MemoryArray = convert.read_into(lambda memory: read(handle, memory), out, shape, native, device)
        return filled
    buffer = _core.NdBuffer.empty(shape, element_types.core_dtype(native), device, "C")
    read(handle, buffer)
    made: MemoryArray = delivered(array, new_result(array, buffer, native, dtype), None)
    return made


def new_result(array: OpenArray, buffer: _core.NdBuffer, native: np.dtype[Any], dtype: Any) -> Any:
    """Makes the array that a caller gets from the buffer into which elements were read. Without a ``dtype``, it has the type of
    ``array[...]``."""
    elements = convert.result_array(buffer, native)
    return elements if dtype is not None else in_own_order(array, elements)


def _integers(what: str, given: Any) -> np.ndarray[Any, Any]:
    """Converts the argument ``starts`` or ``extents`` of a read of many boxes to an array of 64-bit integers.

    Raises
    ------
    SelectionInvalidError
        The values are not integers.
    BoundsCheckError
        An integer needs more than 63 bits.
    """
    integers = np.asarray(given)
    if integers.dtype.kind not in "iu" and integers.size:
        raise SelectionInvalidError(f"{what} must be integers, got {integers.dtype}")
    if integers.dtype.kind == "u" and integers.size and (largest := int(integers.max())) > np.iinfo(np.int64).max:
        raise BoundsCheckError(f"{what} contain {largest}, which is outside of any array")
    return integers.astype(np.int64)


def _starts(array: OpenArray, starts: Any) -> np.ndarray[Any, Any]:
    """Converts the argument ``starts`` of a read of many boxes to an array with one row for each box and one column for each dimension.

    Raises
    ------
    SelectionInvalidError
        The starts are not integers, or not one for each dimension.
    """
    begins = _integers("starts", starts)
    begins = np.ascontiguousarray(begins[:, None] if begins.ndim == array.ndim == 1 else begins)
    if array.ndim == 0:
        raise SelectionInvalidError("an array without dimensions has no boxes", hint="read it with array[()]")
    if begins.ndim != 2 or begins.shape[1] != array.ndim:
        message = f"got starts of shape {np.shape(starts)} for {array.ndim} dimensions"
        raise SelectionInvalidError(message, hint="give a row for each box, with a number for each dimension")
    return begins


def _check_inside(
    array: OpenArray, begins: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any], given: np.ndarray[Any, Any]
) -> None:
    if (given < 0).any():
        raise BoundsCheckError(f"a box cannot extend {given.min()}")
    outside = (begins < 0) | (sizes > np.array(array.shape) - begins)
    if outside.any():
        row = int(outside.any(1).argmax())
        raise BoundsCheckError(
            f"box {row} begins at {begins[row].tolist()} and extends {sizes[row].tolist()} in an array of shape {array.shape}"
        )


def read_many(array: OpenArray, selections: Sequence[Any], out: Any, dtype: Any, prototype: Any) -> Any:
    """Reads many boxes; see :meth:`cuzarr.Array.read_many`."""
    boxes: list[Box] = []
    given = items(selections, "selections", "a list of them")
    try:
        for selection in given:
            boxes.append(basic_box(selection, array.shape))
    except CuzarrError as error:
        error.trail = (f"selection {len(boxes)}", *error.trail)
        raise
    device, _ = placement(array, prototype)
    if array._metadata.data_type.is_variable and out is None and dtype is None:
        return [get_box(array, box, None, prototype, None) for box in boxes]
    check_fixed(array)
    if out is None:
        native = converted(array, dtype)
        lists = [box.lists for box in boxes]
        buffers = array._handle(device).read_many(lists, element_types.core_dtype(native))
        return [delivered(array, new_result(array, buffer, native, dtype), prototype) for buffer in buffers]
    native = converted(array, dtype if dtype is not None else foreign.element_type(out))
    shapes = {box.shape for box in boxes}
    if len(shapes) > 1:
        raise ShapeMismatchError(f"got selections of shapes {sorted(shapes)}, out needs selections of one shape")
    shape = (len(boxes), *shapes.pop()) if shapes else tuple(out.shape)
    handle, lists = array._handle(device), [box.lists for box in boxes]
    read = (lambda memory: handle.read_stack_into(lists, memory)) if boxes else (lambda memory: None)
    return convert.read_into(read, out, shape, native, device)

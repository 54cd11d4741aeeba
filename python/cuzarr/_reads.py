"""Reading boxes into a caller's memory, with other element types, and many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _convert, _core
from cuzarr._indexing import Box, basic_box
from cuzarr.errors import DTypeMismatchError, ShapeMismatchError, UnsupportedError

if TYPE_CHECKING:
    from cuzarr._array import Array


def _lists(box: Box) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return box.start, box.count, box.step, box.dropped


def _converted(array: Array, dtype: Any) -> np.dtype[Any]:
    """The element type of the result, in the machine's byte order.

    Raises
    ------
    DTypeMismatchError
        The array's elements, or the wanted ones, are no numbers, and differ.
    """
    own = array.dtype
    wanted = own if dtype is None else np.dtype(dtype)
    if wanted != own and not (_is_number(own) and _is_number(wanted)):
        raise DTypeMismatchError(f"cannot read {own} as {wanted}")
    return wanted.newbyteorder("=")


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or dtype.name == "bfloat16"


def _check_fixed(array: Array) -> None:
    if array.metadata.data_type.is_variable:
        raise UnsupportedError("elements of variable length are read by brackets: they have no memory of their own")


def read(array: Array, selection: Any, out: Any, dtype: Any, prototype: Any) -> Any:
    """One box; see :meth:`cuzarr.Array.read`."""
    box = basic_box(selection, array.shape)
    if out is None and dtype is None:
        return array._get_box(box, None, prototype, None)
    _check_fixed(array)
    device, nd_buffer = array._placement(prototype)
    native = _converted(array, dtype if out is None or dtype is not None else _convert.element_type(out))
    if out is not None:
        array._handle(device).read_into(*_lists(box), _convert.check_out(out, box.shape, native, device))
        return out
    order = array.order if len(box.shape) > 1 else "C"
    buffer = _core.NdBuffer.empty(box.shape, _convert.core_dtype(native), device, order)
    array._handle(device).read_into(*_lists(box), buffer)
    return _convert.hand_over(_convert.result_array(buffer, native), nd_buffer)


def read_many(array: Array, selections: Sequence[Any], out: Any, dtype: Any, prototype: Any) -> Any:
    """Many boxes; see :meth:`cuzarr.Array.read_many`."""
    boxes = [basic_box(selection, array.shape) for selection in selections]
    device, nd_buffer = array._placement(prototype)
    if array.metadata.data_type.is_variable and out is None and dtype is None:
        return [array._get_box(box, None, prototype, None) for box in boxes]
    _check_fixed(array)
    if out is None:
        native = _converted(array, dtype)
        lists = [_lists(box) for box in boxes]
        buffers = array._handle(device).read_many(lists, _convert.core_dtype(native))
        return [_convert.hand_over(_convert.result_array(buffer, native), nd_buffer) for buffer in buffers]
    native = _converted(array, dtype if dtype is not None else _convert.element_type(out))
    shapes = {box.shape for box in boxes}
    if len(shapes) > 1:
        raise ShapeMismatchError(f"out holds selections of one shape, got {sorted(shapes)}")
    shape = (len(boxes), *shapes.pop()) if shapes else tuple(out.shape)
    buffer = _convert.check_out(out, shape, native, device)
    if boxes:
        array._handle(device).read_stack_into([_lists(box) for box in boxes], buffer)
    return out

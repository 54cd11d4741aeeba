"""Reads and writes many arrays in one call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import dictionary, items
from cuzarr._compute.display import Explanation
from cuzarr._memory import convert, element_types, foreign
from cuzarr._memory.box import Box, basic_box
from cuzarr._node.array import Array
from cuzarr._node.array_io import OpenArray, computed, delivered, encoded_text, get_box, placement, taken, written
from cuzarr._node.array_read import check_fixed, converted, new_result
from cuzarr._runtime import run_beside
from cuzarr.errors import ArgumentTypeError, CuzarrError, InvalidArgumentError, SelectionInvalidError

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DTypeLike, MemoryArray, Selection


def read_many(
    reads: Iterable[tuple[Array, Selection]],
    *,
    out: Sequence[ArrayLike | None] | None = None,
    dtype: DTypeLike | Sequence[DTypeLike | None] | None = None,
) -> list[MemoryArray]:
    """Read boxes of many arrays in one call, which is faster than many calls: one plan, one pipeline, one set of kernel launches.

    Arrays may differ in store, shape, codecs, type and device. For arrays on one device, the smallest of their memory limits and
    numbers of threads is used. A chunk that several boxes of one array object need is decoded once. ``array.last_report()`` covers
    the whole call. Arrays with elements of variable length, such as strings, are read at the same time, but each one by a call of its own.

    Parameters
    ----------
    reads : iterable of (Array, selection)
        Each selection is as for :meth:`Array.get_basic_selection`. An array may occur several times.
    out : sequence of arrays, optional
        Arrays to read into, one for each read, on any device; ``None`` for new memory. They must not overlap.
    dtype : dtype, or sequence of one for each read, optional
        Element types of the results, in the machine's byte order; elements are converted on the way. ``None`` for the array's own.

    Returns
    -------
    list of arrays
        One result for each read, on its array's device, as ``array[selection]`` returns it; of a single element an array without
        dimensions. Results of one shape from one array share memory.

    Raises
    ------
    InvalidArgumentError
        Arrays of ``out`` overlap; ``out`` or ``dtype`` has another length than ``reads``.
    SelectionInvalidError, BoundsCheckError
        A selection does not fit its array. The error names the read: ``read 6: array '/t2m': index 7 is out of bounds for a
        dimension of 5``.
    CuzarrError
        The first failure of any read, with the array's name. There is no result then, and the contents of ``out`` are undefined.

    Examples
    --------
    >>> import cuzarr
    >>> a, b = cuzarr.ones((4, 6), store={}), cuzarr.zeros((3,), store={})
    >>> [part.shape for part in cuzarr.read_many([(a, (slice(0, 2), 5)), (b, ...), (a, 3)])]
    [(2,), (3,), (6,)]
    """
    given = items(reads, "reads", "a list of arrays and selections")
    wanted = [_checked(number, read) for number, read in enumerate(given)]
    outs = _one_each(out, "out", len(wanted))
    dtypes = _one_each(dtype if isinstance(dtype, list | tuple) else [dtype] * len(wanted), "dtype", len(wanted))
    return read_parts(wanted, outs, dtypes)


def read_parts(wanted: Sequence[tuple[OpenArray, Box]], outs: Sequence[Any], dtypes: Sequence[Any]) -> list[Any]:
    """Reads boxes of many arrays; see :func:`cuzarr.read_many`. ``outs`` and ``dtypes`` have one entry for each box."""
    _refuse_overlaps(outs)
    calls: dict[int, _Call] = {}
    variable: dict[int, Callable[[], Any]] = {}
    for number, ((array, box), target, as_type) in enumerate(zip(wanted, outs, dtypes, strict=True)):
        if as_type is not None or not array._metadata.data_type.is_variable:
            with _Entry("read", number, array):
                calls[number] = _Call(array, box, target, as_type)
        else:
            variable[number] = partial(_read_alone, number, array, box, target)
    buffers, elements = run_beside(lambda: _core.read_many([call.native for call in calls.values()]), list(variable.values()))
    results = dict(zip(variable, elements, strict=True))
    results |= {number: call.result(buffer) for (number, call), buffer in zip(calls.items(), buffers, strict=True)}
    return [results[number] for number in range(len(wanted))]


def explain(boxes: Mapping[str, tuple[Array, Selection]]) -> Explanation:
    """Explains a read of several arrays. Arrays with elements of variable length are read at the same time, each by its own call."""
    checked = {path: _checked(number, box) for number, (path, box) in enumerate(boxes.items())}
    fixed = {path: read for path, read in checked.items() if not read[0]._metadata.data_type.is_variable}
    paths, told = list(fixed), _core.explain_many([(array._handle(), box.lists) for array, box in fixed.values()])
    groups = [([paths[number] for number in numbers], text, document) for numbers, text, document in told]
    groups += [
        ([path], *array._handle().explain(box.lists, False)) for path, (array, box) in checked.items() if path not in fixed
    ]
    text = "\n".join(f"{len(names)} arrays: {', '.join(names)}\n{text}" for names, text, _ in groups)
    documents = [{"arrays": names} | json.loads(document) for names, _, document in groups]
    return Explanation(text or "no arrays", json.dumps({"action": "read", "groups": documents}))


def write_many(writes: Iterable[tuple[Array, Selection, ArrayLike]]) -> None:
    """Write boxes of many arrays in one call. Nothing is written if one of the values does not fit.

    Arrays may differ in store, shape, codecs, type and device. For arrays on one device, the smallest of their memory limits and
    numbers of threads is used. Other writes of this process to the same chunks come before all of these writes or after them.

    Parameters
    ----------
    writes : iterable of (Array, selection, value)
        Each selection and value is as for :meth:`Array.set_basic_selection`. An array may occur several times, with boxes that have no
        stored object in common.

    Returns
    -------
    None
        The elements are stored when the call returns.

    Raises
    ------
    InvalidArgumentError
        Two boxes touch the same chunk or shard, so the order of their writes would be undefined.
    SelectionInvalidError, BoundsCheckError
        A selection does not fit its array. The error names the write, like the error of :func:`read_many`.
    ShapeMismatchError, ConversionError
        A value does not fit.
    ReadOnlyError
        A store is read-only.
    CuzarrError
        The first failure of any write, with the array's name. Chunks that were written before it keep their new elements.

    Examples
    --------
    >>> import cuzarr
    >>> a, b = cuzarr.zeros((4, 6), store={}), cuzarr.zeros((3,), store={})
    >>> cuzarr.write_many([(a, (slice(0, 2), 5), 1), (b, ..., [1, 2, 3])])
    >>> a[:, 5].tolist(), b[:].tolist()
    ([1.0, 1.0, 0.0, 0.0], [1.0, 2.0, 3.0])
    """
    calls, text = [], None
    for number, write in enumerate(items(writes, "writes", "a list of arrays, selections and values")):
        if not isinstance(write, tuple) or len(write) != 3 or not isinstance(write[0], Array):
            raise ArgumentTypeError(f"write {number}: expected an array, a selection and a value, got {write!r}")
        array, selection, value = write
        with _Entry("write", number, array):
            array.store.check_writable()
            box = basic_box(selection, array.shape)
            elements = written(array, box.shape, taken(array, computed(value), None, array.dtype))
        if elements is not None:
            calls.append((array._handle(), box.lists, elements))
        if isinstance(elements, tuple):
            text = array
    with nullcontext() if text is None else encoded_text(text):
        _core.write_many(calls)


class _Entry:
    """A context manager for work on one of several arrays: it adds the array's number in the call, and its path, to errors."""

    def __init__(self, kind: str, number: int, array: OpenArray) -> None:
        self.kind, self.number, self.array = kind, number, array

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, CuzarrError) and not any("array '" in place for place in error.trail):
            error.trail = (f"{self.kind} {self.number}", f"array '/{self.array.path}'", *error.trail)


def _checked(number: int, read: Any) -> tuple[OpenArray, Box]:
    if not isinstance(read, tuple) or len(read) != 2 or not isinstance(read[0], Array):
        raise ArgumentTypeError(f"read {number}: expected a pair of an array and a selection, got {read!r}")
    with _Entry("read", number, read[0]):
        return read[0], basic_box(read[1], read[0].shape)


def _read_alone(number: int, array: OpenArray, box: Box, target: Any) -> Any:
    with _Entry("read", number, array):
        return get_box(array, box, target, None, None)


def _one_each(given: Any, name: str, count: int) -> list[Any]:
    if given is None:
        return [None] * count
    each = list(items(given, name, "a list with one for each read"))
    if len(each) != count:
        raise InvalidArgumentError(f"{name} has {len(each)} entries for {count} reads")
    return each


def _refuse_overlaps(outs: Sequence[Any]) -> None:
    """Refuses result arrays that overlap each other in memory, if elements for one of them pass through other memory because of a byte
    order.

    The Rust side checks only the memory that it fills itself.
    """
    on_host = [(number, out) for number, out in enumerate(outs) if isinstance(out, np.ndarray)]
    for number, out in on_host:
        if out.dtype.isnative and not out.dtype.hasobject:
            continue
        for other, another in on_host:
            if other != number and np.may_share_memory(out, another) and np.shares_memory(out, another):
                raise InvalidArgumentError(f"the memory for results {min(number, other)} and {max(number, other)} overlaps")


class _Call:
    """The read of one array in a call that reads many: arguments for the Rust side, and conversion of the result for the caller."""

    def __init__(self, array: OpenArray, box: Box, target: Any, as_type: Any) -> None:
        check_fixed(array)
        self.array, self.target, self.as_type = array, target, as_type
        device = placement(array, None)[0] if target is None else foreign.device_of(target)
        self.dtype = converted(array, as_type if target is None or as_type is not None else foreign.element_type(target))
        memory, self.finish = None, _nothing
        if target is not None:
            memory, self.finish = convert.memory_for(target, box.shape, self.dtype, device)
        elif array.order == "F" and len(box.shape) > 1:
            memory = _core.NdBuffer.empty(box.shape, element_types.core_dtype(self.dtype), device, "F")
        name = None if memory is not None or self.dtype == array.dtype else element_types.core_dtype(self.dtype)
        self.native = array._handle(device), box.lists, name, memory

    def result(self, buffer: _core.NdBuffer) -> Any:
        """Converts the buffer that was read to the array that the caller gets."""
        self.finish()
        if self.target is not None:
            return self.target
        return delivered(self.array, new_result(self.array, buffer, self.dtype, self.as_type), None)


def _nothing() -> None:
    """Does nothing after a read into new memory; after a read into the caller's array, another function copies elements if necessary."""


def boxes_of(
    arrays: Mapping[str, Array], selection: Mapping[str, int | slice] | None
) -> dict[str, tuple[Array, tuple[int | slice, ...]]]:
    """Pairs each array with the indices and slices that ``selection``, a dictionary by dimension name, gives for its dimensions. Other
    dimensions are read whole.

    Raises
    ------
    SelectionInvalidError
        No array has a dimension with one of these names.
    """
    positions = {} if selection is None else dictionary(selection, "selection")
    names = {path: array._dimension_names or (None,) * array.ndim for path, array in arrays.items()}
    known = {name for own in names.values() for name in own if name is not None}
    if unknown := [name for name in positions if name not in known]:
        raise SelectionInvalidError(
            f"no array has a dimension {unknown[0]!r}",
            hint=f"there are {', '.join(map(repr, sorted(known))) or 'none with a name'}",
        )
    whole = slice(None)
    return {
        path: (array, tuple(whole if name is None else positions.get(name, whole) for name in names[path]))
        for path, array in arrays.items()
    }

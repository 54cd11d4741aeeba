"""Stored arrays in the form that xarray reads from. Reads that belong together are made by one call."""

from __future__ import annotations

import asyncio
import functools
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.coding import variables
from xarray.core import indexing

from cuzarr._locks import ProcessLock
from cuzarr._memory.box import Box, basic_box, is_integer
from cuzarr._node.arguments import check_shape
from cuzarr._node.array import Array
from cuzarr._node.many import read_many
from cuzarr._runtime import run
from cuzarr.errors import CuzarrError

if TYPE_CHECKING:
    from cuzarr.typing import Scalar


class LazyArray(BackendArray):
    """A stored array that xarray reads from when it needs elements.

    Parameters
    ----------
    array : Array
        The array to read from.

    Raises
    ------
    IndexError
        From indexing outside the array.
    ShapeMismatchError
        From indexing an array that was resized after the data set was opened.

    Examples
    --------
    >>> import cuzarr, cuzarr.xarray
    >>> cuzarr.xarray.LazyArray(cuzarr.zeros((4,), store={})).shape
    (4,)
    """

    def __init__(self, array: Array) -> None:
        self._array = array  # not named `array`: xarray would read an attribute of that name
        self.shape: tuple[int, ...] = array.shape
        self._expected: tuple[Expected, ...] = ()
        self.dtype: np.dtype[Any] = np.dtype("O") if array.dtype.kind == "T" and not _keeps_text(array) else array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read elements by an awaited call. xarray calls it for ``load_async``.

        Parameters
        ----------
        key : xarray.core.indexing.ExplicitIndexer
            The selection, in xarray's form.

        Returns
        -------
        array
            The elements, on the array's device.

        Raises
        ------
        IndexError
            The selection lies outside of the array.

        Examples
        --------
        >>> import asyncio, cuzarr, cuzarr.xarray
        >>> from xarray.core.indexing import BasicIndexer
        >>> lazy = cuzarr.xarray.LazyArray(cuzarr.ones((4,), store={}))
        >>> asyncio.run(lazy.async_getitem(BasicIndexer((slice(0, 2),)))).tolist()
        [1.0, 1.0]
        """
        return await indexing.async_explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read_async)

    async def _read_async(self, key: tuple[Any, ...]) -> Any:
        return await _turn().read(self, key)

    def _read(self, key: tuple[Any, ...]) -> Any:
        if self._expected and self._is_box(key):
            box = basic_box(key, self.shape)
            for expected in self._expected:
                if (elements := expected.take(self, box)) is not None:
                    return elements
        return self._read_alone(key)

    def _read_alone(self, key: tuple[Any, ...]) -> Any:
        check_shape(self._array, self.shape)
        if any(isinstance(item, slice) and (item.step or 1) < 0 for item in key):
            key = tuple(_as_indices(item, extent) for item, extent in zip(key, self.shape, strict=True))
        elements = self._array.oindex[key] if any(isinstance(item, np.ndarray) for item in key) else self._array[key]
        return self._finished(elements)

    def _is_box(self, key: tuple[Any, ...]) -> bool:
        """Whether :func:`cuzarr.read_many` can read the selection ``key`` of this array, together with selections of other arrays."""
        return (self._array.dtype.kind in "biufcmMSU" or self._array.metadata.data_type.is_variable) and all(
            (item.step or 1) > 0 if isinstance(item, slice) else is_integer(item) for item in key
        )

    def _finished(self, elements: Any) -> Any:
        """Converts elements that were read from the stored array to the type and memory that xarray needs."""
        if isinstance(elements, str | bytes):  # from an array without dimensions
            return np.array(elements, self.dtype)
        return elements.astype(self.dtype, copy=False) if elements.dtype.kind == "T" else elements


class MaskedArray(LazyArray):
    """A stored array whose elements become floats, with NaN in place of one value. xarray does this with NumPy; this class does it on any
    device.

    Parameters
    ----------
    array : Array
        The array to read from.
    fill_value : scalar
        The value to replace by NaN.
    dtype : numpy.dtype
        The float type of the results.

    Raises
    ------
    IndexError
        From indexing outside the array.

    Examples
    --------
    >>> import cuzarr, cuzarr.xarray, numpy as np
    >>> cuzarr.xarray.MaskedArray(cuzarr.zeros((4,), store={}), 0, np.dtype("float32")).dtype
    dtype('float32')
    """

    def __init__(self, array: Array, fill_value: Scalar, dtype: np.dtype[Any]) -> None:
        super().__init__(array)
        self._fill_value = fill_value
        self.dtype = dtype

    def _finished(self, elements: Any) -> Any:
        elements = super()._finished(elements).astype(self.dtype, copy=True)
        elements = np.asarray(elements) if isinstance(elements, np.generic) else elements
        listed = elements.reshape(1) if elements.ndim == 0 else elements
        listed[listed == self._fill_value] = np.nan
        return elements


class Expected:
    """The list of reads that xarray will make one after the other while it opens a data set. The first of them reads the elements of all,
    by one call."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._waiting: list[tuple[LazyArray, tuple[slice, ...]]] = []
        # Elements that were read and not taken yet.
        self._found: dict[_Place, list[Any]] = {}

    def add(self, lazy: LazyArray, key: tuple[slice, ...]) -> None:
        """Adds the read of a part of a stored array, which xarray will make soon, to the list."""
        self._waiting.append((lazy, key))

    def take(self, lazy: LazyArray, box: Box) -> Any:
        """Returns the elements of an expected read of ``box``; ``None`` if the read was not expected, or its elements were already taken.

        Raises
        ------
        CuzarrError
            The elements cannot be read.
        """
        place = lazy, box.start, box.count
        with self._lock:
            waiting = [_place(*read) for read in self._waiting]
            if place in waiting:
                reads, self._waiting = self._waiting, []
                for one, elements in zip(waiting, _read_together(reads), strict=True):
                    self._found.setdefault(one, []).append(elements)
            found = self._found.get(place)
            if not found:
                return None
            elements = found.pop()
        if isinstance(elements, Exception):
            raise elements
        return np.asarray(elements).reshape(box.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return Expected, ()  # another process does not open the data set, so it expects no reads


# A part of an array: where it starts, and its extents.
_Place = tuple[LazyArray, tuple[int, ...], tuple[int, ...]]


def _place(lazy: LazyArray, key: tuple[Any, ...]) -> _Place:
    box = basic_box(key, lazy.shape)
    return lazy, box.start, box.count


class Opening:
    """A prediction of what xarray reads while it opens a data set: the variables that become indexes, and the first and last elements of
    times.

    One call makes all reads of one of these two kinds, when xarray asks for the first of them. So xarray may also open without indexes.
    """

    def __init__(self) -> None:
        self._ends = Expected()
        self._indexes = Expected()
        self._index_bytes = 0

    def expect(self, lazy: LazyArray, *, is_index: bool, is_time: bool) -> None:
        """Adds to the expected reads those that xarray will make of a variable while it opens the data set."""
        if not all(lazy.shape):
            return
        lazy._expected = self._ends, self._indexes
        if is_time:
            self._ends.add(lazy, (slice(0, 1),) * len(lazy.shape))
            self._ends.add(lazy, (slice(-1, None),) * len(lazy.shape))
        if is_index:
            self._index_bytes += lazy._array.nbytes
            if self._index_bytes <= _MOST_INDEX_BYTES:
                self._indexes.add(lazy, (slice(None),))


# Largest number of bytes of indexes that one call reads, because each index is kept until xarray asks for it. Other indexes are read when
# xarray asks for them.
_MOST_INDEX_BYTES = 16 << 20


class _Turn:
    """The reads that begin in one iteration of an event loop, such as those of ``load_async`` for all variables. One call reads them
    all."""

    def __init__(self) -> None:
        self.reads: list[tuple[LazyArray, tuple[Any, ...]]] = []
        self.waiting: list[asyncio.Future[Any]] = []
        self.task: asyncio.Task[None] | None = None

    async def read(self, lazy: LazyArray, key: tuple[Any, ...]) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.reads.append((lazy, key))
        self.waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            # When the last waiting caller is cancelled, the call is cancelled, too, so that nothing keeps running.
            if self.task is not None and all(one.done() for one in self.waiting):
                self.task.cancel()
                await asyncio.wait([self.task])
            raise

    def begin(self) -> None:
        if not all(future.done() for future in self.waiting):
            self.task = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        results = await run(_read_together, self.reads)
        for future, result in zip(self.waiting, results, strict=True):
            if not future.done():
                future.set_exception(result) if isinstance(result, Exception) else future.set_result(result)


# The current turn of each loop.
_turns: dict[asyncio.AbstractEventLoop, _Turn] = {}


def _turn() -> _Turn:
    """Returns the object that collects the reads which begin in the current iteration of the running event loop. Its reads begin when all
    tasks that are ready now have added theirs."""
    loop = asyncio.get_running_loop()
    if loop not in _turns:
        _turns[loop] = _Turn()
        loop.call_soon(lambda: _turns.pop(loop).begin())
    return _turns[loop]


def _read_together(reads: list[tuple[LazyArray, tuple[Any, ...]]]) -> list[Any]:
    """Reads parts of several stored arrays, in one call if possible, and returns for each its elements or its exception. Boxes are read in
    one call."""
    together = {number: read for number, read in enumerate(reads) if read[0]._is_box(read[1])} if len(reads) > 1 else {}
    boxes: dict[int, Any] = {}
    with suppress(CuzarrError):  # after an error, each box is read alone, so that only the failing one has an error
        for lazy, _ in together.values():
            check_shape(lazy._array, lazy.shape)
        boxes = dict(zip(together, read_many([(lazy._array, key) for lazy, key in together.values()]), strict=True))
    results: list[Any] = []
    for number, (lazy, key) in enumerate(reads):
        try:
            results.append(lazy._finished(boxes[number]) if number in boxes else lazy._read_alone(key))
        except Exception as error:  # noqa: BLE001, whoever waits for it raises it
            results.append(error)
    return results


def _keeps_text(array: Array) -> bool:
    """Whether xarray gets strings of variable length as strings, not as Python objects. Only for format 3, to which newer versions can
    write strings."""
    return array.metadata.zarr_format == 3 and _xarray_keeps_text(array.dtype)


@functools.cache
def _xarray_keeps_text(dtype: np.dtype[Any]) -> bool:
    coder = getattr(variables, "Numpy2StringDTypeCoder", None)
    if coder is None:
        return False
    variable = xarray.Variable(("x",), np.array([""], dtype), encoding={"dtype": dtype})
    return bool(coder().decode(variable).dtype.kind == "T")


def _as_indices(item: Any, extent: int) -> Any:
    # xarray reverses with negative steps, which Zarr's selections do not have.
    backwards = isinstance(item, slice) and (item.step or 1) < 0
    return np.arange(extent)[item] if backwards else item

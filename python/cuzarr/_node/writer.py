"""Writers, which take rows from a running program and store them in the background."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cuzarr import _core
from cuzarr._checks import axis_number, items, whole
from cuzarr._compute.operands import dimension_names
from cuzarr._memory import foreign
from cuzarr._memory.handing import on_its_stream
from cuzarr._node import resize
from cuzarr._node.array_io import taken_apart
from cuzarr._node.resize import ResizableArray
from cuzarr.errors import (
    ArgumentTypeError,
    CuzarrError,
    CuzarrUserWarning,
    InvalidArgumentError,
    OutOfRangeError,
    ShapeMismatchError,
)

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, Stream


class _Writing:
    """What the writers of one array and of several share."""

    def __init__(
        self,
        arrays: Sequence[tuple[ResizableArray, int]],
        slots: int,
        *,
        resume: bool,
        region: Sequence[slice] | None = None,
        levels: Iterable[tuple[ResizableArray, Sequence[int]]] = (),
        method: str = "mean",
    ) -> None:
        self._arrays = [array for array, _ in arrays]
        pairs = [_level(level) for level in items(levels, "levels", "pairs of an array and its factors")]
        self._levels = [array for array, _ in pairs]
        for array in self._arrays + self._levels:
            array.store.check_writable()
        begin = None if region is None else _box(self._arrays[0], region)
        coarser = [(array._handle(), factors) for array, factors in pairs]
        handles = [(array._handle(), axis, coarser, method) for array, axis in arrays]
        self._keeps_shape = region is not None
        self._is_open = False
        self._writer = _core.Writer(handles, whole(slots, "slots", 1), resume, begin)
        self._is_open = True

    @property
    def position(self) -> int:
        """The first row that is not stored yet; of several arrays the smallest."""
        return self._writer.position()

    @property
    def waited(self) -> float:
        """Seconds that calls waited for memory, because rows came faster than they were stored."""
        return self._writer.waited()

    def flush(self) -> None:
        """Store all rows that were added, and wait until they are stored.

        Chunks that are not whole are written now, and again when they are.

        Raises
        ------
        CuzarrError
            Rows could not be stored.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, shape=(0, 2), chunks=(4, 2), dtype="i4")
        >>> with array.writer() as writer:
        ...     writer.append([1, 2])
        ...     writer.flush()
        ...     writer.position
        1
        """
        try:
            self._writer.flush()
        finally:
            self._remember()

    def close(self) -> None:
        """Store all rows that were added, wait until they are stored, and end the writer. A second call does nothing.

        Raises
        ------
        CuzarrError
            Rows could not be stored.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, shape=(0, 2), chunks=(4, 2), dtype="i4")
        >>> writer = array.writer()
        >>> writer.append([1, 2])
        >>> writer.close()
        >>> array.shape
        (1, 2)
        """
        if self._is_open:
            self._is_open = False
            try:
                self._writer.close()
                self._tell_of_gaps()
            finally:
                self._remember()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except CuzarrError as failure:
            if error is None:
                raise
            if str(error) != str(failure):  # else the writer raised it before
                error.add_note(f"rows that were added before could not be stored: {failure}")

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            self._writer.abandon()
            message = "a writer was not closed, so its last rows are not stored"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    def _tell_of_gaps(self) -> None:
        """Warns of rows that are lost, because rows before them did not come."""
        if (end := self._writer.end()) > (position := self.position) and not self._keeps_shape:
            message = f"row {position} did not come, so rows from {position + 1} to {end - 1} are not in the array"
            warnings.warn(message, CuzarrUserWarning, stacklevel=3)

    def _remember(self) -> None:
        """Lets the arrays of this program have the new shapes, as far as they can be read."""
        for array in () if self._keeps_shape else self._arrays + self._levels:
            with contextlib.suppress(CuzarrError), array._locked() as node:
                resize._remember(array, resize._stored(array, node))

    def _add(self, rows: Sequence[tuple[int, Any]], row: int | None, stream: Stream, *, copy: bool) -> None:
        self._writer.add([self._given(number, values, stream) for number, values in rows], row, not copy)

    def _given(self, number: int, value: Any, stream: Stream) -> tuple[int, _core.NdBuffer, int | None]:
        rows = taken_apart(self._arrays[number], value)
        if foreign.is_on_device(rows):
            return number, *on_its_stream(rows, stream)
        return number, foreign.wrap_host(rows), None


class Writer(_Writing):
    """Takes rows of an array from a running program, and stores them on a thread of its own: see :meth:`cuzarr.Array.writer`.

    Parameters
    ----------
    array, axis, slots, resume, region, levels, method
        As for :meth:`cuzarr.Array.writer`.

    Raises
    ------
    InvalidArgumentError
        As for :meth:`cuzarr.Array.writer`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, shape=(0, 3), chunks=(8, 3), dtype="f4")
    >>> with array.writer() as writer:
    ...     for step in range(10):
    ...         writer.append(np.full(3, step, "f4"))
    >>> array.shape
    (10, 3)
    """

    def __init__(
        self,
        array: ResizableArray,
        axis: int | str = 0,
        *,
        slots: int = 2,
        resume: bool = False,
        region: Sequence[slice] | None = None,
        levels: Iterable[tuple[ResizableArray, Sequence[int]]] = (),
        method: str = "mean",
    ) -> None:
        number = axis_number(axis, array.ndim, dimension_names(array))
        super().__init__([(array, number)], slots, resume=resume, region=region, levels=levels, method=method)

    def append(self, rows: ArrayLike, *, copy: bool = True, stream: Stream = None) -> None:
        """Add rows behind the last ones. Returns when their copy is on its way.

        Parameters
        ----------
        rows : array
            One row, or several: the array's shape without the writer's dimension, or with any number of rows along it. Elements are
            converted to the array's type. After the call the program may change them, on the same CUDA stream at once.
        copy : bool
            ``False`` if the program leaves ``rows`` as they are. They are then kept, and whole blocks of them are stored without a copy.
        stream : CUDA stream, optional
            The stream on which the program makes and changes ``rows``. By default the current stream of CuPy or PyTorch, the stream that
            the array's interface names, or the legacy default stream.

        Raises
        ------
        ShapeMismatchError
            The rows do not fit; the writer goes on.
        CuzarrError
            Earlier rows could not be stored; every later call fails, too.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, shape=(0, 2), chunks=(4, 2), dtype="i4")
        >>> with array.writer() as writer:
        ...     writer.append([1, 2])
        ...     writer.append([[3, 4], [5, 6]])
        >>> array[1:]
        array([[3, 4],
               [5, 6]], dtype=int32)
        """
        self._add([(0, rows)], None, stream, copy=copy)

    def write(self, row: int, rows: ArrayLike, *, copy: bool = True, stream: Stream = None) -> None:
        """Add rows from ``row`` on. They may come out of order as far as there is memory for them, and again.

        The array ends before the first row that did not come.

        Parameters
        ----------
        row : int
            The number of the first row, counted from the beginning of the array.
        rows, copy, stream
            As for :meth:`append`.

        Raises
        ------
        InvalidArgumentError
            Too many blocks of rows would be incomplete; the writer goes on.
        OutOfRangeError
            The rows lie outside of the writer's region.
        CuzarrError
            As for :meth:`append`.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, shape=(0, 2), chunks=(4, 2), dtype="i4")
        >>> with array.writer() as writer:
        ...     writer.write(1, [3, 4])
        ...     writer.write(0, [1, 2])
        >>> array[...]
        array([[1, 2],
               [3, 4]], dtype=int32)
        """
        self._add([(0, rows)], whole(row, "row", 0), stream, copy=copy)


class GroupWriter(_Writing):
    """Takes rows of several arrays of a group, and stores them together: see :meth:`cuzarr.Group.writer`.

    Parameters
    ----------
    arrays, axis, slots, resume, region
        As for :meth:`cuzarr.Group.writer`; ``arrays`` are the arrays by their names.

    Raises
    ------
    InvalidArgumentError, ShapeMismatchError
        As for :meth:`cuzarr.Group.writer`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.create_group({})
    >>> for name in ("u", "v"):
    ...     _ = group.create_array(name, shape=(0, 3), chunks=(8, 3), dtype="f4", dimension_names=("time", "x"))
    >>> with group.writer() as writer:
    ...     for step in range(10):
    ...         writer.append({"u": np.ones(3, "f4"), "v": np.zeros(3, "f4")})
    >>> group["u"].shape
    (10, 3)
    """

    def __init__(
        self,
        arrays: Mapping[str, ResizableArray],
        axis: int | str = "time",
        *,
        slots: int = 2,
        resume: bool = False,
        region: Sequence[slice] | None = None,
    ) -> None:
        if not arrays:
            raise InvalidArgumentError("a writer needs at least one array")
        if region is not None and len(shapes := {array.shape for array in arrays.values()}) > 1:
            found = " and ".join(map(str, sorted(shapes)))
            raise ShapeMismatchError(f"got arrays of shapes {found}, expected one shape for a region of all")
        numbered = [(array, axis_number(axis, array.ndim, dimension_names(array))) for array in arrays.values()]
        if region is not None and len({number for _, number in numbered}) > 1:
            raise InvalidArgumentError(f"{axis!r} is not the same dimension of all arrays, so they have no common region")
        self._numbers = {name: number for number, name in enumerate(arrays)}
        super().__init__(numbered, slots, resume=resume, region=region)

    def append(self, rows: Mapping[str, ArrayLike], *, copy: bool = True, stream: Stream = None) -> None:
        """Add rows of all arrays behind the last ones. Returns when their copies are on their way.

        Parameters
        ----------
        rows : mapping of str to array
            The rows of each array, as for :meth:`Writer.append`; as many of each. Either all are added or none.
        copy, stream
            As for :meth:`Writer.append`.

        Raises
        ------
        InvalidArgumentError
            The writer has no array of a name, or rows of an array are missing.
        CuzarrError
            As for :meth:`Writer.append`.

        >>> import cuzarr
        >>> group = cuzarr.create_group({})
        >>> for name in ("u", "v"):
        ...     _ = group.create_array(name, shape=(0,), chunks=(4,), dtype="i4", dimension_names=("time",))
        >>> with group.writer() as writer:
        ...     writer.append({"u": 1, "v": [2]})
        >>> group["v"][:]
        array([2], dtype=int32)
        """
        named = self._named(rows)
        if missing := [name for name in self._numbers if name not in rows]:
            hint = "write rows of some arrays with `write`, which says where they go"
            raise InvalidArgumentError(f"rows of array {missing[0]!r} are missing", hint=hint)
        self._add(named, None, stream, copy=copy)

    def write(self, row: int, rows: Mapping[str, ArrayLike], *, copy: bool = True, stream: Stream = None) -> None:
        """Add rows of each named array from ``row`` on, as :meth:`Writer.write` does.

        Parameters
        ----------
        row : int
            The number of the first row.
        rows, copy, stream
            As for :meth:`append`.

        Raises
        ------
        InvalidArgumentError
            The writer has no array of a name, or too many blocks of rows would be incomplete.
        CuzarrError
            As for :meth:`Writer.append`.

        >>> import cuzarr
        >>> group = cuzarr.create_group({})
        >>> for name in ("u", "v"):
        ...     _ = group.create_array(name, shape=(0,), chunks=(4,), dtype="i4", dimension_names=("time",))
        >>> with group.writer() as writer:
        ...     writer.write(1, {"u": 4, "v": 5})
        ...     writer.write(0, {"u": 1, "v": 2})
        >>> group["u"][:]
        array([1, 4], dtype=int32)
        """
        self._add(self._named(rows), whole(row, "row", 0), stream, copy=copy)

    def _named(self, rows: Mapping[str, Any]) -> list[tuple[int, Any]]:
        if not isinstance(rows, Mapping):
            raise ArgumentTypeError(f"got {type(rows).__name__}, expected a mapping of names of arrays to rows")
        unknown = [name for name in rows if name not in self._numbers]
        if unknown:
            known = ", ".join(map(repr, self._numbers))
            raise InvalidArgumentError(f"the writer has no array {unknown[0]!r}", hint=f"its arrays are {known}")
        return [(self._numbers[name], values) for name, values in rows.items()]


def _level(given: Any) -> tuple[ResizableArray, list[int]]:
    if not (isinstance(given, tuple | list) and len(given) == 2 and hasattr(given[0], "_store_path")):
        raise ArgumentTypeError(f"a level is {given!r}, expected a pair of an array and its factors")
    factors = items(given[1], "factors", "numbers of elements that become one")
    return given[0], [whole(factor, "a factor", 1) for factor in factors]


def _box(array: ResizableArray, region: Sequence[slice]) -> tuple[list[int], list[int]]:
    """The first element and the extent of a region along each dimension."""
    given: list[Any] = list(region) if isinstance(region, tuple | list) else [region]
    if not all(isinstance(one, slice) for one in given) or len(given) > array.ndim:
        raise ArgumentTypeError(f"got the region {region!r}, expected up to {array.ndim} slices")
    given += [slice(None)] * (array.ndim - len(given))
    if not all(
        bound is None or isinstance(bound, int | np.integer) for one in given for bound in (one.start, one.stop, one.step)
    ):
        raise ArgumentTypeError(f"got the region {region!r}, expected slices of integers")
    for axis, (one, extent) in enumerate(zip(given, array.shape, strict=True)):
        if any(bound is not None and not -extent <= bound <= extent for bound in (one.start, one.stop)):
            raise OutOfRangeError(f"the region {one} along dimension {axis} leaves its {extent} elements")
    ranges = [range(*one.indices(extent)) for one, extent in zip(given, array.shape, strict=True)]
    if any(one.step != 1 for one in ranges):
        raise InvalidArgumentError("a writer's region has no steps")
    return [one.start for one in ranges], [len(one) for one in ranges]

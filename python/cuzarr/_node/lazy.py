"""Lazy views of stored arrays. They can be selected from repeatedly, and read nothing until elements are requested."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import numpy as np

from cuzarr import _checks, _core
from cuzarr._compute.decoded import decoded
from cuzarr._compute.display import Explanation, steps_html
from cuzarr._compute.evaluate import plan
from cuzarr._compute.expression import Expression
from cuzarr._compute.operands import settings
from cuzarr._config import config, parse_size
from cuzarr._memory import foreign
from cuzarr._memory.box import Box, ensure_tuple, expand_ellipsis, is_integer, normalize_index, signed_range, slice_indices
from cuzarr._memory.device_array import DeviceArray
from cuzarr._node import array_io
from cuzarr._node.indexing import (
    Chosen,
    CoordinateSelection,
    as_arrays,
    axis_selector,
    index_list,
    is_integer_array,
    is_mask,
    is_pure_fancy,
    is_pure_orthogonal,
    normalize_indices,
)
from cuzarr._numpy import check_dtype
from cuzarr._operators import dispatch
from cuzarr._operators.dispatch import Lazy
from cuzarr._operators.numpy_stored import StoredProtocol
from cuzarr._operators.signs import OneElement, Operators, Reductions
from cuzarr._progress import shown
from cuzarr._text import Info, human_bytes, printable
from cuzarr.errors import (
    ArrayIndexError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    SelectionInvalidError,
    ShapeMismatchError,
    VindexInvalidSelectionError,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from cuzarr.typing import Array, ArrayLike, Client, DTypeLike, MemoryArray, Progress, Selection

__all__ = ["LazyArray"]

Indices = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True)
class _Product:
    """A lazy view's selection, as one selector for each dimension of the array: an index, a range, or a list of indices.

    ``order`` lists the array's dimensions in the order of the view. Dimensions with a single index are left out.
    """

    along: tuple[int | range | Indices, ...]
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(self.along[axis]) for axis in self.order)  # type: ignore[arg-type]

    def select(self, items: tuple[Any, ...]) -> _Product:
        """The selection that results from selecting in the view again, by an integer, a slice or a list of indices for each dimension of
        the view."""
        along, order = list(self.along), []
        for axis, item in zip(self.order, items, strict=True):
            own = along[axis]
            assert not isinstance(own, int)
            along[axis] = int(own[item]) if isinstance(item, int) else _part(own, item)
            if not isinstance(item, int):
                order.append(axis)
        return _Product(tuple(along), tuple(order))

    def points(self, indices: list[Indices], shape: tuple[int, ...]) -> _Points:
        """Converts points, given by index arrays for the dimensions of this view, to points of the stored array."""
        found: list[Any] = list(self.along)
        for axis, chosen in zip(self.order, indices, strict=True):
            found[axis] = _part(found[axis], chosen)
        return _Points(tuple(np.broadcast_to(np.asarray(one, np.intp), shape) for one in found))

    def is_whole(self, shape: tuple[int, ...]) -> bool:
        """Whether the view is the whole stored array, with its dimensions in order."""
        everything = zip(self.along, shape, strict=True)
        return self.order == tuple(range(len(shape))) and all(
            isinstance(own, range) and own == range(extent) for own, extent in everything
        )

    def transpose(self, axes: tuple[int, ...]) -> _Product:
        return _Product(self.along, tuple(self.order[axis] for axis in axes))

    def chosen(self, shape: tuple[int, ...]) -> Chosen:
        """The selection to read from the stored array, with dimensions in the array's order."""
        kept = tuple(len(one) for one in self.along if not isinstance(one, int))
        if all(isinstance(one, int) or _is_even(one) for one in self.along):
            start, count, step, dropped = [], [], [], []
            for axis, one in enumerate(self.along):
                if isinstance(one, int):
                    dropped.append(axis)
                first, length, stride = (one, 1, 1) if isinstance(one, int) else _even(one)
                start.append(first)
                count.append(length)
                step.append(stride)
            return Box(tuple(start), tuple(count), tuple(step), tuple(dropped))
        axes: list[Any] = []
        for one in self.along:
            if isinstance(one, int):
                axes.append((one, 1, 1, True))
            else:
                axes.append((*_even(one), False) if _is_even(one) else index_list(np.asarray(one)))
        return _Listed(kept, _core.Selection.orthogonal(axes))

    def picked(self) -> tuple[list[Any], list[tuple[int | None, int]]]:
        """The arguments that make an expression of the view: a selector for each dimension of the array, and the dimensions of the view."""
        along = [
            own if isinstance(own, int) else signed_range(own) if isinstance(own, range) else index_list(own)
            for own in self.along
        ]
        return along, [(axis, 0) for axis in self.order]

    def read_order(self) -> tuple[int, ...]:
        """For each dimension of the view, its position in the elements that are read, whose dimensions are in the array's order."""
        kept = sorted(self.order)
        return tuple(kept.index(axis) for axis in self.order)

    def __str__(self) -> str:
        def shown(one: int | range | Indices) -> str:
            if isinstance(one, int):
                return str(one)
            if isinstance(one, range):
                return f"{one.start}:{one.stop if one.stop >= 0 else ''}" + ("" if one.step == 1 else f":{one.step}")
            return f"{len(one)} indices"

        text = f"[{', '.join(map(shown, self.along))}]"
        return text if self.order == tuple(sorted(self.order)) else f"{text}.transpose{self.read_order()}"


@dataclass(frozen=True)
class _Points:
    """A lazy view's selection of points: an index array for each dimension of the stored array. Each index array has the view's shape."""

    along: tuple[Indices, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.along[0].shape)

    def select(self, items: tuple[Any, ...]) -> _Points:
        grid = [item if isinstance(item, int | slice) else np.asarray(item) for item in items]
        found = []
        for own in self.along:
            # Lists are applied one after the other, because NumPy would take several of them as points.
            for axis, item in enumerate(grid):
                if isinstance(item, np.ndarray):
                    own = own.take(item, axis)
            found.append(own[tuple(slice(None) if isinstance(item, np.ndarray) else item for item in grid)])
        return _Points(tuple(np.asarray(one) for one in found))

    def points(self, indices: list[Indices], shape: tuple[int, ...]) -> _Points:
        return _Points(tuple(np.broadcast_to(own[tuple(indices)], shape) for own in self.along))

    def is_whole(self, shape: tuple[int, ...]) -> bool:
        return False

    def transpose(self, axes: tuple[int, ...]) -> _Points:
        return _Points(tuple(own.transpose(axes) for own in self.along))

    def chosen(self, shape: tuple[int, ...]) -> Chosen:
        return CoordinateSelection(self.along, shape)

    def __str__(self) -> str:
        return f"[{math.prod(self.shape)} points]"


@dataclass(frozen=True)
class _Listed:
    shape: tuple[int, ...]
    lists: _core.Selection


def _part(own: Any, item: Any) -> range | Indices:
    """Selects from a range or a list of indices, by a slice or a list of positions. Returns the selected part of it."""
    if isinstance(item, slice):
        return own[item]  # type: ignore[no-any-return]
    places = np.asarray(item, np.intp)
    return own.start + own.step * places if isinstance(own, range) else own[places]


def _is_even(one: range | Indices) -> bool:
    """Whether indices rise by a constant step, so that the Rust side can read them by start, count and step."""
    return isinstance(one, range) and (one.step > 0 or len(one) <= 1)


def _even(one: Any) -> tuple[int, int, int]:
    count = len(one)
    return (one.start, count, one.step) if count > 1 else (one[0] if count else 0, count, 1)


class LazyArray(Lazy, StoredProtocol, OneElement, Operators["ArrayLike", Expression], Reductions[Expression]):
    """A view of a part of a stored array. Making it reads nothing; selecting from it gives another view; :meth:`result` reads.

    ``view[...]``, ``view.oindex[...]``, ``view.vindex[...]`` and :meth:`transpose` compose without reading. Indices are NumPy's:
    negative ones count from the end, and slices have steps of either sign. ``view[...] = value`` writes to the array.
    Views are operands of expressions: ``array.lazy[1:] - array.lazy[:-1]`` is an :class:`Expression`, for arrays of any size.
    Views whose boxes lie side by side are read together. Names and behaviour are those of ``zarr-indexing``, the zarr-python project's
    library for lazy views.

    Parameters
    ----------
    array : Array
        The array that the view shows.

    Raises
    ------
    SelectionInvalidError
        A selection does not fit the view.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.array(np.arange(12).reshape(3, 4), store={}, chunks=(1, 4))
    >>> view = array.lazy[1:].T[::-1]
    >>> view.shape
    (4, 2)
    >>> view[:2].result()
    array([[ 7, 11],
           [ 6, 10]])
    >>> view[0] = 0
    >>> array[1:, 3]
    array([0, 0])
    >>> steps = array.lazy[:, 1:] - array.lazy[:, :-1]
    >>> steps.max().compute()
    np.int64(1)
    """

    _in_memory = _on_host = ".result()"
    _what: _Product | _Points

    def __init__(self, array: Array) -> None:
        self._array = array
        self._what = _Product(tuple(map(range, array.shape)), tuple(range(array.ndim)))

    def _of(self, what: _Product | _Points) -> LazyArray:
        view = LazyArray.__new__(LazyArray)
        view._array, view._what = self._array, what
        return view

    @property
    def array(self) -> Array:
        """The stored array that this view belongs to."""
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements of the view along each dimension."""
        return self._what.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements of the view."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements, as a NumPy dtype."""
        return self._array.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> str:
        """The device that elements are read to, which is the stored array's."""
        return self._array.device  # type: ignore[no-any-return]

    @property
    def lazy(self) -> LazyArray:
        """This view itself, so that ``view.lazy[...]`` means the same as ``view[...]``."""
        return self

    @property
    def oindex(self) -> LazyIndex:
        """Views by one selector for each dimension: ``view.oindex[[0, 3], ::2]``."""
        return LazyIndex(self, False)

    @property
    def vindex(self) -> LazyIndex:
        """Views of points, by coordinates or by a mask: ``view.vindex[[0, 3], [1, 1]]``."""
        return LazyIndex(self, True)

    @property
    def T(self) -> LazyArray:  # noqa: N802, NumPy's name
        """This view with its dimensions in reverse order."""
        return self.transpose()

    def decoded(self, dtype: DTypeLike | None = None, times: bool = False) -> Expression:
        """A plan that decodes the elements of the view into the numbers that they stand for; see :meth:`Array.decoded`.

        Parameters
        ----------
        dtype, times
            As for :meth:`Array.decoded`.

        Returns
        -------
        Expression
            A plan. Nothing is read.

        Raises
        ------
        InvalidArgumentError, MetadataValidationError, UnsupportedError, DTypeMismatchError
            As for :meth:`Array.decoded`.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> z = cuzarr.create_array({}, data=np.array([4, 5, 6], "int16"), attributes={"scale_factor": 0.5})
        >>> z.lazy[1:].decoded().compute()
        array([2.5, 3. ])
        """
        return decoded(self, dtype, times)

    def transpose(self, *axes: SupportsIndex | str | Sequence[SupportsIndex | str] | None) -> LazyArray:
        """This view with its dimensions in another order.

        Parameters
        ----------
        *axes : int
            The dimensions in their new order; by default the reverse order.

        Returns
        -------
        LazyArray

        Raises
        ------
        InvalidArgumentError
            A dimension is missing or occurs twice.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.zeros((2, 3, 4), store={}).lazy.transpose(1, 2, 0).shape
        (3, 4, 2)
        """
        given = axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else axes
        wanted = () if given is None else _checks.items(given, "axes", "whole numbers")
        chosen = tuple(_checks.axis_number(axis, self.ndim) for axis in wanted) if wanted else tuple(range(self.ndim)[::-1])
        if sorted(chosen) != list(range(self.ndim)):
            raise InvalidArgumentError(f"axes {chosen} do not name each of {self.ndim} dimensions once")
        return self._of(self._what.transpose(chosen))

    def __getitem__(self, selection: Selection) -> LazyArray:
        """A view of the selected elements of this view. Nothing is read.

        Parameters
        ----------
        selection : int, slice, Ellipsis, index array, mask, or tuple of them
            A selection, as in brackets of an array. Slices may have negative steps.

        Returns
        -------
        LazyArray
            The view.

        Raises
        ------
        SelectionInvalidError
            The selection does not fit.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(12).reshape(3, 4))
        >>> array.lazy[1:][::-1, 0].result()
        array([8, 4])
        """
        if is_pure_fancy(selection, self.ndim):
            return self.vindex[selection]
        if is_pure_orthogonal(selection, self.ndim):
            return self.oindex[selection]
        items: list[int | slice] = []
        for item, extent in zip(expand_ellipsis(selection, self.shape), self.shape, strict=True):
            if isinstance(item, slice):
                items.append(_checked_slice(item, extent))
            elif is_integer(item):
                items.append(normalize_index(item, extent))
            else:
                _refuse(item)
        return self._of(self._what.select(tuple(items)))

    def __setitem__(self, selection: Selection, value: ArrayLike) -> None:
        """Write the selected elements of this view to the stored array.

        Parameters
        ----------
        selection : int, slice, Ellipsis, index array, mask, or tuple of them
            A selection, as in brackets of the view.
        value : array or scalar
            The elements, on any device. They are broadcast to the selection and converted to the array's type.

        Raises
        ------
        SelectionInvalidError
            The selection does not fit.
        ReadOnlyError
            The array was opened for reading only.

        Examples
        --------
        >>> import cuzarr
        >>> array = cuzarr.zeros((4,), dtype="int8", store={})
        >>> array.lazy[::-1][:2] = [7, 8]
        >>> array[:].tolist()
        [0, 0, 8, 7]
        """
        self[selection].write(value)

    def __iter__(self) -> Iterator[LazyArray]:
        """Yields a view for each index along the first dimension."""
        return (self[place] for place in range(len(self)))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a view of 0 dimensions has no length")
        return self.shape[0]

    def compute(
        self,
        *,
        out: ArrayLike | None = None,
        device: str | None = None,
        memory_limit: int | str | None = None,
        progress: Progress = None,
        client: Client | None = None,
    ) -> MemoryArray:
        """Reads the elements of the view. Each chunk is read once.

        Parameters
        ----------
        out : array, optional
            Memory for the result, as for :meth:`Expression.compute`. The elements must be numbers.
        device : str, optional
            The device to read to: ``"cpu"`` or ``"cuda:N"``; by default the array's device.
        memory_limit : int or str, optional
            Memory for chunks in flight, in bytes or as ``"512 MiB"``; by default the configured limit.
        progress : bool, callable or object, optional
            As in :meth:`Array.getitem`; the total number of objects is unknown.
        client : distributed.Client, optional
            As for :meth:`Expression.compute`. The elements must be numbers.

        Returns
        -------
        array
            ``out`` if it is given. Else a NumPy array on the CPU, and the array type of reads on a GPU. A single element is a scalar on
            the CPU.

        Raises
        ------
        ChunkCorruptError, ChecksumMismatchError
            A chunk cannot be decoded.
        ShapeMismatchError, DTypeMismatchError
            The elements do not fit into ``out``, or have no arithmetic.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.array(np.arange(10), store={}, chunks=4)
        >>> array.lazy[2:].oindex[[0, -1]].compute()
        array([2, 9])
        """
        if out is not None or client is not None:
            return plan(self).compute(out=out, device=device, memory_limit=memory_limit, progress=progress, client=client)  # type: ignore[no-any-return]
        array = self._array if device is None else self._array.with_device(device)
        limited = nullcontext() if memory_limit is None else config.local({"memory_limit": parse_size(memory_limit)})
        with limited, shown(progress, "reading", None):
            elements = array_io.get_box(array, self._what.chosen(array.shape), None, None, None)
        if isinstance(self._what, _Points):
            elements = elements.reshape(self.shape)
        elif (order := self._what.read_order()) != tuple(range(self.ndim)):
            elements = elements.transpose(order)
        is_scalar = isinstance(elements, np.ndarray) and not elements.ndim
        return elements[()] if is_scalar else elements  # type: ignore[no-any-return]

    result = compute

    def write(self, value: ArrayLike) -> None:
        """Write the elements of this view to the stored array. An element that occurs in the view several times gets the last value.

        Parameters
        ----------
        value : array or number
            The elements, on any device. They are broadcast to the view's shape. A plan is computed and written part by part. A plan that
            reads the array itself is computed completely first, within the memory limit.

        Raises
        ------
        ShapeMismatchError, ConversionError
            The value does not fit.
        ReadOnlyError
            The store, or the array, is read-only.

        Examples
        --------
        >>> import cuzarr
        >>> array = cuzarr.zeros((2, 3), store={}, dtype="int8")
        >>> array.lazy.T[0].write([1, 2])
        >>> array[...]
        array([[1, 0, 0],
               [2, 0, 0]], dtype=int8)
        """
        if isinstance(value, Expression):
            return self._assign_plan(value)
        chosen = self._what.chosen(self._array.shape)
        value = getattr(value, "as_ndarray_like", lambda: value)()
        array_io.set_box(self._array, chosen, self._as_read(value, chosen.shape), None)

    def _assign_plan(self, plan: Expression) -> None:
        """Computes a plan, broadcasts the result to this view's shape, and writes it to the elements of the stored array that the view
        selects. A plan that reads this array gets the old elements."""
        self._array._check_writable()
        if plan.shape != self.shape:
            plan = dispatch.functions["broadcast_to"](plan, self.shape)
        try:
            plan._expr.refuse_overlap(self._array.store._handle, self._array.path)
        except InvalidArgumentError:
            self.write(array_io.computed(plan))
        else:
            self._store_plan(plan, None, None, None)

    def _store_plan(self, plan: Expression, device: str | None, memory_limit: int | str | None, progress: Any) -> None:
        """Computes a plan part by part, and writes each part to this view; parts begin where stored objects (chunks or shards) begin.

        Raises
        ------
        ShapeMismatchError, InvalidArgumentError, DTypeMismatchError, ReadOnlyError
        """
        if plan.shape != self.shape:
            raise ShapeMismatchError(f"the view has shape {self.shape}, the result has {plan.shape}")
        if self._what.is_whole(self._array.shape):
            plan.store(self._array, device=device, memory_limit=memory_limit, progress=progress)
            return
        self._array._check_writable()
        plan._check_target(self.dtype)
        plan._expr.refuse_overlap(self._array.store._handle, self._array.path)
        _, limit, _ = settings(device, memory_limit)
        # Memory holds the part's elements, and the elements that they are computed from.
        most = max(limit // (4 * plan.dtype.itemsize), 1)
        with shown(progress, "writing", None):
            for start, extent in _parts([self._borders(axis) for axis in range(self.ndim)], (0,) * self.ndim, self.shape, most):
                part = tuple(slice(first, first + count) for first, count in zip(start, extent, strict=True))
                self[part].write(plan._compute(start, extent, device, memory_limit, None))

    def _borders(self, axis: int) -> Sequence[int]:
        """The positions along a dimension of the view at which another stored object begins. For lists of indices, all positions."""
        what = self._what
        own = what.along[what.order[axis]] if isinstance(what, _Product) else None
        if not isinstance(own, range):
            return range(1, self.shape[axis])
        rising = own if own.step > 0 else own[::-1]
        assert isinstance(what, _Product)
        edges = itertools.accumulate(self._array.write_chunk_sizes[what.order[axis]])
        found = {bisect.bisect_left(rising, edge) for edge in edges}
        return sorted(found if own.step > 0 else {len(own) - place for place in found})

    def _as_read(self, value: Any, shape: tuple[int, ...]) -> Any:
        """Broadcasts a value to be written to this view's shape, and puts the value's dimensions in the order of the stored array."""
        order = None if isinstance(self._what, _Points) else self._what.read_order()
        if order == tuple(range(self.ndim)) or not getattr(value, "shape", np.shape(value)):
            return value
        if foreign.is_on_device(value) and tuple(value.shape) == self.shape:
            moved = DeviceArray(foreign.device_buffer(value), foreign.element_type(value))
            return moved.reshape(shape) if order is None else moved.transpose(np.argsort(order).tolist())
        native = foreign.to_native_host(foreign.on_host(value), self.dtype)
        whole = array_io.broadcast(native, self.shape)
        return whole.reshape(shape) if order is None else whole.transpose(np.argsort(order))

    def astype(self, dtype: DTypeLike) -> Expression:
        """A plan that converts the view's elements to another type, as NumPy does. Nothing is read.

        Parameters
        ----------
        dtype : dtype
            The new type.

        Returns
        -------
        Expression

        Raises
        ------
        DTypeMismatchError
            There is no conversion between the types.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.full((3,), fill_value=1.7, store={}).lazy[1:].astype("int8").compute()
        array([1, 1], dtype=int8)
        """
        return plan(self).astype(dtype)  # type: ignore[no-any-return]

    def explain(self, *, writing: bool = False) -> Explanation:
        """Explain what reading or writing the view would do, stage by stage, and why. No elements are read or written.

        Parameters
        ----------
        writing : bool
            Explain a write instead: of elements that are on the array's device.

        Returns
        -------
        Explanation

        Raises
        ------
        UnsupportedError
            A codec is not supported.

        Examples
        --------
        >>> import cuzarr
        >>> array = cuzarr.zeros((8, 8), chunks=(4, 8), store={})
        >>> array.lazy[::2].oindex[[0, 1]].explain().to_dict()["chunks"]
        1
        """
        return self._array._explain(self._what.chosen(self._array.shape).lists, writing)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, np.dtype[Any]]:
        """Reads all elements of the view into a NumPy array.

        Raises
        ------
        ImplicitHostCopyError
            The array reads to a GPU, and a copy to the host must be requested explicitly.
        """
        if copy is False:
            raise ValueError("copy=False is not possible: the elements are in a store")
        if self.device != "cpu":
            raise ImplicitHostCopyError(
                f"this view reads to {self.device}, and a copy to the host has to be asked for",
                hint="use array.with_device('cpu').lazy[...], or .result() and copy that",
            )
        return np.asarray(self.compute(), dtype)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        """Reads the elements as an Apache Arrow array, by the PyCapsule interface: for ``pyarrow.array``, ``polars.Series`` and others.

        Parameters
        ----------
        requested_schema : object, optional
            Ignored: the receiving library converts.

        Returns
        -------
        tuple
            Capsules of the schema and of the array. Strings are ``large_string``, bytes ``large_binary``.

        Raises
        ------
        UnsupportedError
            The view does not have exactly one dimension, or Arrow has no such type.
        ImplicitHostCopyError
            The array reads to a GPU, and a copy to the host must be requested explicitly.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> names = cuzarr.array(np.array(["Aare", "Emme"], "T"), store={})
        >>> len(names.lazy[1:].__arrow_c_array__())  # pyarrow.array(names.lazy[1:]) takes both
        2
        """
        return array_io.read_arrow(self._array, self._what.chosen(self._array.shape), self.ndim)

    def __dlpack__(self, **options: Any) -> Any:
        """Reads the elements of this view into memory, and hands the memory to another library as a DLPack capsule."""
        elements: Any = self.result()
        whole: Any = np.asarray(elements) if isinstance(elements, np.generic) else elements
        return whole.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the elements in DLPack's numbers: its type and its number."""
        name, _, number = self.device.partition(":")
        return (1, 0) if name == "cpu" else (2, int(number or 0))

    @property
    def _own_device(self) -> str | None:  # type: ignore[override]
        return self._array._own_device  # type: ignore[no-any-return]

    @property
    def _dimension_names(self) -> tuple[str | None, ...] | None:
        names = self._array._dimension_names
        return None if names is None or isinstance(self._what, _Points) else tuple(names[axis] for axis in self._what.order)

    def _as_expression(self, what: str) -> _core.Expr:
        check_dtype(self.dtype, what)
        handle = self._array._handle()
        if isinstance(self._what, _Points):
            return _core.Expr.points(handle, self._what.chosen(self._array.shape).lists, self.shape)  # type: ignore[arg-type]
        along, dims = self._what.picked()
        return _core.Expr.array(handle).picked(along, dims)

    def _elements(self) -> Any:
        return self.result()

    def _elements_on(self, device: str | None) -> Any:
        return self.compute(device=device)

    def _repr_html_(self) -> str:
        lines: list[tuple[str, object]] = [
            ("Type", "LazyArray"),
            ("Array", self._array.store_path),
            ("Selection", self._what),
            ("Data type", self.dtype),
            ("Shape", self.shape),
            ("Bytes", human_bytes(math.prod(self.shape) * self.dtype.itemsize)),
            ("Device", self.device),
        ]
        return f"{Info.of(lines)._repr_html_()}{steps_html(self.explain)}"

    def __repr__(self) -> str:
        place = "" if self.device == "cpu" else f" device={self.device}"
        where = printable(str(self._array.store_path))
        return f"<LazyArray {where} {self._what} shape={self.shape} dtype={self.dtype}{place}>"


@dataclass(frozen=True)
class LazyIndex:
    """The object behind ``view.oindex`` and ``view.vindex``, whose brackets select from a lazy view."""

    view: LazyArray
    is_points: bool

    def __getitem__(self, selection: Any) -> LazyArray:
        return self._points(selection) if self.is_points else self._product(selection)

    def __setitem__(self, selection: Any, value: Any) -> None:
        self[selection].write(value)

    def _product(self, selection: Any) -> LazyArray:
        items: list[Any] = []
        shape = self.view.shape
        for item, extent in zip(as_arrays(expand_ellipsis(selection, shape)), shape, strict=True):
            if isinstance(item, slice):
                items.append(_checked_slice(item, extent))
            elif is_integer(item):
                items.append(normalize_index(item, extent))
            elif is_mask(item) or is_integer_array(item):
                items.append(axis_selector(item, extent))
            else:
                _refuse(item)
        return self.view._of(self.view._what.select(tuple(items)))

    def _points(self, selection: Any) -> LazyArray:
        view, items = self.view, as_arrays(ensure_tuple(selection))
        if len(items) == 1 and is_mask(items[0]) and tuple(items[0].shape) == view.shape:
            places = list(np.nonzero(foreign.as_numpy(foreign.on_host(items[0]))))
            return view._of(view._what.points(places, places[0].shape))
        if len(items) != view.ndim or not all(is_integer(item) or is_integer_array(item) for item in items) or not items:
            raise VindexInvalidSelectionError(
                f"vectorized selection takes one integer array for each of {view.ndim} dimensions, or one mask of shape {view.shape}"
            )
        arrays = [np.asarray([item]) if is_integer(item) else item for item in items]
        counted = [normalize_indices(item, extent) for item, extent in zip(arrays, view.shape, strict=True)]
        try:
            shape = np.broadcast_shapes(*(array.shape for array in counted)) or (1,)
        except ValueError as error:
            raise ArrayIndexError(f"the index arrays have no common shape: {error}") from error
        return view._of(view._what.points(counted, shape))


def _parts(
    borders: list[Sequence[int]], start: tuple[int, ...], extent: tuple[int, ...], most: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Divides a box at ``borders``, and yields the start and the extents of each part. Parts without borders inside may exceed ``most``
    elements."""
    if math.prod(extent) <= most:
        if 0 not in extent:
            yield start, extent
        return
    for axis, (first, count) in enumerate(zip(start, extent, strict=True)):
        low, high = bisect.bisect_right(borders[axis], first), bisect.bisect_left(borders[axis], first + count)
        if low < high:
            cut = borders[axis][(low + high) // 2]
            for begin, end in ((first, cut), (cut, first + count)):
                starts, extents = list(start), list(extent)
                starts[axis], extents[axis] = begin, end - begin
                yield from _parts(borders, tuple(starts), tuple(extents), most)
            return
    yield start, extent


def _checked_slice(item: slice, extent: int) -> slice:
    slice_indices(item, extent)  # raises an error for a bound that is not an integer, or a step of 0
    return item


def _refuse(item: Any) -> NoReturn:
    hint = "index the result: view.result()[None]" if item is None else "use .oindex[...] or .vindex[...]"
    raise SelectionInvalidError(f"a view takes integers and slices between brackets, got {type(item).__name__}", hint=hint)

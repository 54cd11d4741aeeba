"""``Expression``, the plan of a computation whose inputs are in stores."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, Unpack, overload

import numpy as np

from cuzarr import _core
from cuzarr._checks import check_keywords, element_type, parameters
from cuzarr._compute import parts, sources as _sources
from cuzarr._compute.display import Explanation, steps_html
from cuzarr._compute.operands import deliver, made, settings
from cuzarr._compute.results import completed, continued, marked, named
from cuzarr._config import config
from cuzarr._memory import foreign
from cuzarr._memory.box import basic_box
from cuzarr._memory.crossings import crossings
from cuzarr._memory.element_types import core_dtype, dtype_of
from cuzarr._numpy import check_dtype
from cuzarr._operators import dispatch
from cuzarr._operators.dispatch import Lazy, Stored
from cuzarr._operators.numpy_protocol import NumpyProtocol, host_elements, inside_numpy
from cuzarr._operators.signs import OneElement, Operators, Reductions, Shaped
from cuzarr._progress import shown
from cuzarr._text import Info, human_bytes, names_text, printable, shortened
from cuzarr.errors import (
    BoundsCheckError,
    BudgetExceededError,
    DTypeMismatchError,
    InvalidArgumentError,
    SelectionInvalidError,
)
from cuzarr.storage import make_store_path
from cuzarr.storage.zip import finishing

if TYPE_CHECKING:
    import numpy.typing as npt

    from cuzarr.typing import (
        Array,
        ArrayLike,
        BlockOptions,
        Chunks,
        Client,
        DTypeLike,
        MemoryArray,
        Progress,
        Selection,
        Shards,
        StoreLike,
        SupportsStorePath,
        TargetT,
    )

__all__ = ["Expression"]

# Largest number of arrays that the HTML view of a plan lists.
_MOST_SHOWN = 10

DATES_OF = "decoded_times"
"""Name of the Rust method that decodes dates and durations, which the Rust side holds as 8-byte integers."""
_DATES = np.dtype("datetime64[ns]")
_DURATIONS = np.dtype("timedelta64[ns]")


class Expression(Lazy, NumpyProtocol, OneElement, Operators["ArrayLike", "Expression"], Reductions["Expression"], Shaped):
    """A plan of a computation on stored arrays. :meth:`compute` or :meth:`store` carries it out.

    Operators and functions of arrays make plans: ``(a - b) / 2``, ``np.sqrt(a)``.

    Parameters
    ----------
    expr, device, names, made_of
        Internal; expressions are made by operators and functions of arrays.

    Attributes
    ----------
    shape : tuple of int
        Extents of the result.
    dtype : numpy.dtype
        Element type of the result.

    Raises
    ------
    ShapeMismatchError
        From :meth:`store`: the target has another shape.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.create_array({}, data=np.arange(4.0), chunks=(2,))
    >>> plan = (z + 1) * 2
    >>> plan.shape, plan.compute().tolist()
    ((4,), [2.0, 4.0, 6.0, 8.0])
    """

    _in_memory = _on_host = ".compute()"
    _is_plan = True

    def __init__(
        self, expr: _core.Expr, device: str | None, names: tuple[str | None, ...] | None, made_of: tuple[str, Any, Any]
    ) -> None:
        self._expr = expr
        self._own_device = device
        self._names = names
        # The method, its operands and its arguments, from which other processes make the expression again.
        self._made_of = made_of

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements of the result along each dimension."""
        return tuple(self._expr.shape)

    @property
    def device(self) -> str:
        """The device that computes the result, unless :meth:`compute` is given another one.

        It is the GPU whose memory holds an operand, else the device that was chosen for an array or a plan, else the configured device.
        """
        return config.get("device") if self._own_device is None else self._own_device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the result."""
        if not self._is_dates:
            return dtype_of(self._expr.dtype)
        (attributes,) = self._made_of[2]
        return _DURATIONS if "dtype" in json.loads(attributes) else _DATES

    @property
    def _is_dates(self) -> bool:
        """Whether this plan computes dates or durations, not numbers."""
        return self._made_of[0] == DATES_OF

    def astype(self, dtype: DTypeLike) -> Expression:
        """This plan, extended by a conversion of the result's elements to another type, as NumPy converts them.

        Parameters
        ----------
        dtype : dtype
            The new type.

        Returns
        -------
        Expression
            A plan. Nothing is read.

        Raises
        ------
        UnsupportedError
            Elements cannot be converted to the type. This applies to strings, structures and dates.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.array([0.5, 1.5]))
        >>> (array * 3).astype("int32").compute()
        array([1, 4], dtype=int32)
        """
        dtype = element_type(dtype)
        check_dtype(dtype, "astype")
        self._as_expression("astype")
        name = core_dtype(dtype)
        return Expression(self._expr.astype(name), self._own_device, self._names, ("astype", (self,), (name,)))

    @property
    def T(self) -> Expression:  # noqa: N802, NumPy's name
        """This plan with its dimensions in reverse order."""
        return self.transpose()

    def transpose(self, *axes: SupportsIndex | str | Sequence[SupportsIndex | str] | None) -> Expression:
        """This plan with its dimensions in another order.

        Parameters
        ----------
        *axes : int or str
            The dimensions in their new order, by number or name; by default the reverse order.

        Returns
        -------
        Expression

        Raises
        ------
        InvalidArgumentError
            A dimension is missing or is named twice.

        Examples
        --------
        >>> import cuzarr
        >>> (cuzarr.zeros((2, 3, 4), store={}) + 1).transpose(1, 2, 0).shape
        (3, 4, 2)
        """
        given = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)) else axes or None
        return dispatch.functions["transpose"](self, given)  # type: ignore[no-any-return]

    def compute(
        self,
        *,
        out: ArrayLike | None = None,
        device: str | None = None,
        memory_limit: int | str | None = None,
        progress: Progress = None,
        client: Client | None = None,
    ) -> MemoryArray:
        """Compute the elements of the result. While chunks are processed, the next chunks are read.

        Parameters
        ----------
        out : array, optional
            Memory for the result, of the same shape: NumPy's, or on a GPU of any library. Elements are converted as by NumPy's
            ``casting="same_kind"``. Operands may use the same memory.
        device : str, optional
            The device that computes: ``"cpu"`` or ``"cuda:N"``. By default the device of ``out``, or of the first stored array among the
            inputs, or else the configured one.
        memory_limit : int or str, optional
            Memory for chunks in flight, in bytes or as ``"512 MiB"``; by default the configured limit. The result needs memory in addition.
        progress : bool, callable or object with ``update``, optional
            ``True`` shows a line on the terminal or in the notebook. A function is called with the number of objects read and the total
            number.
        client : distributed.Client, optional
            Run the computation as tasks of a dask cluster. Workers compute regions, and this process gathers them, or merges the partial
            results of reductions. ``memory_limit`` applies to one task. The result is the same as on one machine with the same
            ``memory_limit``. Each quantile or histogram is a single task. ``progress`` counts tasks.

        Returns
        -------
        array
            ``out`` if it is given. Else a NumPy array on the CPU and from a cluster, and a CuPy array or a :class:`cuzarr.DeviceArray` on
            a GPU.

        Raises
        ------
        BudgetExceededError
            Work on one chunk needs more memory than the limit.
        ShapeMismatchError, DTypeMismatchError, InvalidArgumentError
            The result does not fit into ``out``, or ``out`` is read-only or on another device.
        ShapeMismatchError, DTypeMismatchError, InvalidArgumentError, ArrayNotFoundError
            A stored array among the inputs was resized, replaced or deleted after the plan was made. To check this, one document is read
            for each array.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(4), chunks=(2,))
        >>> (array * 2 + 1).compute(memory_limit="64 MiB")
        array([1, 3, 5, 7])
        >>> room = np.zeros(4)
        >>> (array / 2).compute(out=room) is room, room
        (True, array([0. , 0.5, 1. , 1.5]))
        """
        if client is not None:
            if out is not None:
                raise InvalidArgumentError("out= takes no part in work on a cluster", hint="leave out client=, or out=")
            return parts.compute(self, client, settings(device or self._own_device, memory_limit), progress)  # type: ignore[no-any-return]
        if out is not None:
            return self._compute_into(out, device, memory_limit, progress)  # type: ignore[no-any-return]
        return self._compute((0,) * self.ndim, self.shape, device, memory_limit, progress)  # type: ignore[no-any-return]

    def _compute_into(self, out: Any, device: str | None, memory_limit: int | str | None, progress: Any) -> Any:
        if isinstance(out, Lazy) or not hasattr(out, "shape") or not hasattr(out, "dtype"):
            raise InvalidArgumentError(f"out is {type(out).__name__}, expected an array in memory", hint="call .store(array)")
        is_there = foreign.is_on_device(out)
        if not is_there and not isinstance(out, np.ndarray):
            raise InvalidArgumentError(f"out is {type(out).__name__}, expected an array of NumPy or on a GPU")
        dtype = foreign.element_type(out)
        if not self._is_dates:
            check_dtype(dtype, "compute")
        if dtype != self.dtype if self._is_dates else not np.can_cast(self.dtype, dtype, "same_kind"):
            message = f"compute: out has elements of {dtype}, the result of {self.dtype}"
            hint = "pass an array of the plan's own type" if self._is_dates else "convert the plan: plan.astype(dtype)"
            raise DTypeMismatchError(message, hint=hint)
        if not dtype.isnative:
            raise DTypeMismatchError(f"compute: out has elements of {dtype}, expected the machine's byte order")
        buffer = foreign.device_buffer(out) if is_there else foreign.wrap_host(out)
        where, limit, threads = settings(device or self._own_device, memory_limit)
        given = device is not None or self._own_device is not None
        if given and where not in (buffer.device, buffer.device.removesuffix(":0")):
            raise InvalidArgumentError(
                f"out is on {buffer.device}, and the plan is computed on {where}", hint="leave out device="
            )
        with shown(progress, "reading", None):
            self._expr.compute_into(buffer, limit, threads)
        return out

    def explain(self, *, device: str | None = None, memory_limit: int | str | None = None) -> Explanation:
        """Explains what computing the result would do, stage by stage. No elements are read.

        Parameters
        ----------
        device, memory_limit
            As for :meth:`compute`.

        Returns
        -------
        Explanation
            The regions, the parts of arrays to read, and where each codec runs. ``str()`` returns text, ``to_dict()`` plain values, and
            notebooks show it.

        Raises
        ------
        BudgetExceededError
            Work on one chunk needs more memory than the limit.
        UnsupportedError
            A codec is not supported.

        Examples
        --------
        >>> import cuzarr
        >>> u = cuzarr.zeros((8, 8), chunks=(2, 8), store={})
        >>> stages = (u.lazy[1:] - u.lazy[:-1]).explain().to_dict()["stages"]
        >>> stages[0]["operations"], [one["read"]["chunks"] for one in stages[0]["reads"]]
        (1, [4, 4])
        """
        return Explanation(*self._expr.explain(*settings(device or self._own_device, memory_limit)))

    def __getitem__(self, selection: Selection) -> MemoryArray:
        """Compute a part of the result, selected as in NumPy. The rest is neither read nor computed.

        Parameters
        ----------
        selection : int, slice, Ellipsis, None, index array, mask or tuple of them
            Slices have steps of either sign. Several index arrays select points; the plan is then computed for all combinations of their
            indices.

        Returns
        -------
        array
            The elements, as :meth:`compute` gives them.

        Raises
        ------
        SelectionInvalidError
            The selection does not fit.
        BudgetExceededError
            All combinations of the indices, which can be many more than the points, need more memory than the limit.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(12).reshape(3, 4))
        >>> (array * 2)[1:, 0]
        array([ 8, 16])
        >>> (array * 2)[::-1, [0, 3]]
        array([[16, 22],
               [ 8, 14],
               [ 0,  6]])
        """
        try:
            box = basic_box(selection, self.shape)
        except BoundsCheckError:
            raise
        except SelectionInvalidError:
            return self._picked(selection)  # type: ignore[no-any-return]
        extent = tuple((count - 1) * step + 1 if count else 0 for count, step in zip(box.count, box.step, strict=True))
        elements = self._compute(box.start, extent, None, None, None)
        steps = (0 if axis in box.dropped else slice(None, None, step) for axis, step in enumerate(box.step))
        return elements[tuple(steps)]  # type: ignore[no-any-return]

    def _picked(self, selection: Any) -> Any:
        """Computes the elements that NumPy's brackets select.

        Along each dimension, only the needed elements are computed. NumPy then chooses among them.
        """
        along, key = crossings(selection, self.shape)
        expr = self._expr.picked(along, [(axis, 0) for axis in range(self.ndim)])
        where, limit, threads = settings(self._own_device, None)
        needed = math.prod(expr.shape) * self.dtype.itemsize
        lists = [item for item in key if isinstance(item, np.ndarray)]
        if len(lists) > 1 and needed > limit:
            message = f"the crossings of these indices are {needed} bytes, the memory limit is {limit}"
            raise BudgetExceededError(message, hint="select fewer points at a time")
        buffer = expr.compute((0,) * self.ndim, expr.shape, where, limit, threads)
        elements = deliver(buffer, (), self.dtype if self._is_dates else None)
        return elements[key] if key else elements

    def _compute(
        self, start: tuple[int, ...], extent: tuple[int, ...], device: str | None, memory_limit: int | str | None, progress: Any
    ) -> Any:
        where, limit, threads = settings(device or self._own_device, memory_limit)
        with shown(progress, "reading", None):
            buffer = self._expr.compute(start, extent, where, limit, threads)
        return deliver(buffer, (), self.dtype if self._is_dates else None)

    @overload
    def store(self, target: TargetT, **options: Unpack[BlockOptions]) -> TargetT: ...
    @overload
    def store(self, target: StoreLike | SupportsStorePath, **options: Unpack[BlockOptions]) -> Array: ...
    def store(
        self,
        target: Any,
        *,
        device: str | None = None,
        memory_limit: int | str | None = None,
        progress: Progress = None,
        resume: bool = False,
        client: Client | None = None,
        chunks: Chunks | None = None,
        shards: Shards = None,
        **kwargs: Any,
    ) -> Any:
        """Compute the result and write it to an array in a store. Elements are converted as in an assignment.

        Each stored object of the target is written once and as a whole, while the next objects are read and computed.

        Parameters
        ----------
        target : Array or StoreLike
            An array of the same shape, or a view of an array (``array.lazy[2:4]``), but none of the sources. Or the place of a new array:
            a path, a URL, a store, a dictionary.
        device, memory_limit, progress
            As for :meth:`compute`; ``progress`` gets the number of objects written.
        resume : bool
            Record the progress beside the target's chunks, and continue where an earlier call with the same arrays and memory limit
            ended or was killed. The call does not check whether elements of the arrays have changed.
        client : distributed.Client, optional
            As for :meth:`compute`: workers write stored objects. They must be able to reach the target.
        chunks, shards : optional
            The chunk grid of a new array, as for :func:`create_array`. By default cuzarr chooses it from the shape and the type.
        **kwargs
            Other arguments of :func:`create_array`, for a new array: ``name``, ``compressors``, ``overwrite``, ….

        Returns
        -------
        Array or LazyArray
            The target. A new one has the plan's element type and dimension names.

        Raises
        ------
        ShapeMismatchError, InvalidArgumentError
            The target has another shape, or is one of the sources.
        BudgetExceededError
            Work on one stored object needs more memory than the limit.
        ReadOnlyError
            The target was opened for reading.
        ContainsArrayError
            There is already an array at the place. ``overwrite=True`` replaces it.
        InvalidArgumentError
            ``resume`` or ``client`` is given with a view.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(4), chunks=(2,))
        >>> target = cuzarr.zeros((4,), chunks=(2,), store={})
        >>> (array + 0.5).store(target)[:]
        array([0.5, 1.5, 2.5, 3.5])
        >>> (array * 2).store({}, name="doubled", chunks=(2,)).path
        'doubled'
        >>> view = (array[:2] * array.lazy[2:]).store(target.lazy[:2])
        >>> target[:]
        array([0. , 3. , 2.5, 3.5])
        """
        grid = {"chunks": chunks, "shards": shards}
        given = {name: value for name, value in grid.items() if value is not None} | kwargs
        if isinstance(target, Stored) and given:
            raise TypeError(f"these arguments are for a new array, so pass its place as target: {', '.join(given)}")
        check_keywords("create_array", given, parameters(_sources.nodes.create_array))
        if hasattr(target, "_store_plan"):
            if resume or client is not None or given:
                message = "a view takes no resume, no client and nothing that is for a new array"
                raise InvalidArgumentError(message, hint="store into the array as a whole")
            target._store_plan(self, device, memory_limit, progress)
            return target
        if isinstance(target, Stored):
            self._check_target(target.dtype)
            target._check_writable()
        place = target if isinstance(target, Stored) else self._place(target, given)
        work = settings(device or self._own_device, memory_limit)
        if client is not None:
            parts.check_store(self, place, client, work[0], bool(resume))
        with finishing(getattr(place, "store", None), target):
            array = place if isinstance(place, Stored) else self._created(place, bool(resume), given)
            if client is not None:
                parts.store(self, array, client, work, progress)
            else:
                with shown(progress, "writing", math.prod(len(sizes) for sizes in array.write_chunk_sizes)):
                    self._expr.store(array._handle(), *work, bool(resume))
            completed(array)
        return array

    def _check_target(self, dtype: np.dtype[Any]) -> None:
        """Refuses a target array whose element type cannot hold the result: dates and durations need their own type and unit."""
        if not self._is_dates:
            check_dtype(dtype, "store")
        elif dtype.newbyteorder("=") != self.dtype:
            raise DTypeMismatchError(f"store: the target has elements of {dtype}, the result of {self.dtype}")

    def _place(self, given: Any, options: dict[str, Any]) -> Any:
        """The store and path at which ``store`` creates an array for the result."""
        if given is None or isinstance(given, Lazy) or hasattr(given, "__array__"):
            raise InvalidArgumentError(
                f"got {type(given).__name__} to store into, expected an array of cuzarr or the place of a new one",
                hint="for elements in memory, call .compute(out=array)",
            )
        self._check_target(self.dtype)
        of_place = {name: options.pop(name, None) for name in ("storage_options", "metadata_store")}
        place = make_store_path(given, path=options.pop("name", None), mode="a", **of_place)
        # Checked before anything is replaced.
        self._expr.refuse_overlap(place.store._handle, place.path)
        return place

    def _created(self, place: Any, resume: bool, options: dict[str, Any]) -> Any:
        """The array to which the result is written: a new one, or the existing one if interrupted work is resumed."""
        if resume and (begun := continued(place)) is not None:
            return begun
        settings = marked(named(options, self._names), place, "store")
        return _sources.nodes.create_array(place, shape=self.shape, dtype=self.dtype, **settings)

    result = compute

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Computes the elements, and returns them as a NumPy array.

        Raises
        ------
        ImplicitHostCopyError
            The plan is computed on a GPU, and a copy to the host must be requested explicitly.
        InvalidArgumentError
            A NumPy function that this library does not have needs the elements.
        """
        if copy is False:
            raise ValueError("copy=False is not possible: the elements are yet to be computed")
        if inside_numpy.get():
            raise InvalidArgumentError("an expression has no elements yet", hint="call .compute() for the elements in memory")
        return np.asarray(host_elements(self), dtype)

    def _within_limit(self, hint: str) -> Any:
        """Computes all elements of the plan into memory, but refuses results larger than the memory limit.

        Raises
        ------
        BudgetExceededError
            The elements need more memory than the limit.
        """
        _, limit, _ = settings(None, None)
        if self.nbytes > limit:
            message = f"the elements of the plan take {self.nbytes} bytes, the memory limit is {limit}"
            raise BudgetExceededError(message, hint=hint)
        return self.compute()

    @property
    def _dimension_names(self) -> tuple[str | None, ...] | None:
        return self._names

    def _as_expression(self, what: str) -> _core.Expr:
        if self._is_dates:
            check_dtype(self.dtype, what)
        return self._expr

    def _elements(self) -> Any:
        return self.compute()

    def _elements_on(self, device: str | None) -> Any:
        return self.compute(device=device)

    def __copy__(self) -> Expression:
        return self

    def __deepcopy__(self, memo: object) -> Expression:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression._rebuilt, (self._made_of, self._own_device, self._names)

    @classmethod
    def _rebuilt(cls, made_of: tuple[str, Any, Any], device: str | None, names: tuple[str | None, ...] | None) -> Expression:
        return cls(made(*made_of), device, names, made_of)

    def _with_operands(self, operands: tuple[Any, ...]) -> Expression:
        """A copy of this plan that computes with other operands, which have the shapes and types of the present ones."""
        how, _, arguments = self._made_of
        return Expression._rebuilt((how, operands, arguments), self._own_device, self._names)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an expression of 0 dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<Expression {printable(repr(self._expr))} shape={self.shape} dtype={self.dtype}>"

    def _repr_html_(self) -> str:
        read: dict[int, Any] = {id(value): value for value in parts.sources(self) if isinstance(value, Lazy)}
        lines: list[tuple[str, object]] = [
            ("Type", "Expression"),
            ("Computes", shortened(repr(self._expr))),
            ("Data type", self.dtype),
            ("Shape", self.shape),
            ("Dimensions", names_text(self._names)),
            ("Bytes", human_bytes(math.prod(self.shape) * self.dtype.itemsize)),
            ("Device", self.device),
        ]
        lines += [("Reads", shortened(repr(value))) for value in itertools.islice(read.values(), _MOST_SHOWN)]
        lines += [("Reads", f"and {len(read) - _MOST_SHOWN} more")] if len(read) > _MOST_SHOWN else []
        # An explanation reads a document of each array, to see whether it has changed.
        if not (is_near := parts.are_near(self)):
            lines.append(("Steps", "call explain(), which asks the server for metadata"))
        return f"{Info.of(lines)._repr_html_()}{steps_html(self.explain) if is_near else ''}"

"""The function ``reduce``: reduces arrays of any size block by block, with a user's functions."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import numpy as np

from cuzarr import _core
from cuzarr._checks import Axis, axes_of, element_type, function
from cuzarr._compute import cluster, workers as _workers
from cuzarr._compute.blocks import BlockInfo, ReadAhead, Sources, call, cut, memory_limit_bytes, naming, regular_shards
from cuzarr._compute.operands import dimension_names, names_left
from cuzarr._compute.results import Results, Target
from cuzarr._progress import listener
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError

if TYPE_CHECKING:
    from cuzarr.typing import (
        Array,
        ArrayLike,
        BlockOptions,
        Chunks,
        Client,
        DTypeLike,
        MemoryArray,
        Progress,
        RunOptions,
        Shards,
        StoreLike,
        SupportsStorePath,
    )


PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")


@overload
def reduce(
    map_block: Callable[..., PartT],
    combine: Callable[[PartT, PartT], PartT],
    *arrays: ArrayLike,
    axis: None = None,
    finish: None = None,
    initial: PartT | None = None,
    **options: Unpack[RunOptions],
) -> PartT: ...
@overload
def reduce(
    map_block: Callable[..., PartT],
    combine: Callable[[PartT, PartT], PartT],
    *arrays: ArrayLike,
    axis: None = None,
    finish: Callable[[PartT], ResultT],
    initial: PartT | None = None,
    **options: Unpack[RunOptions],
) -> ResultT: ...
@overload
def reduce(
    map_block: Callable[..., PartT],
    combine: Callable[[PartT, PartT], PartT],
    *arrays: ArrayLike,
    axis: int | str | tuple[int | str, ...],
    keepdims: bool = False,
    finish: Callable[[PartT], Any] | None = None,
    initial: PartT | None = None,
    out: None = None,
    dtype: DTypeLike | None = None,
    **options: Unpack[BlockOptions],
) -> MemoryArray: ...
@overload
def reduce(
    map_block: Callable[..., PartT],
    combine: Callable[[PartT, PartT], PartT],
    *arrays: ArrayLike,
    axis: int | str | tuple[int | str, ...],
    keepdims: bool = False,
    finish: Callable[[PartT], Any] | None = None,
    initial: PartT | None = None,
    out: Array | SupportsStorePath | StoreLike,
    dtype: DTypeLike | None = None,
    **options: Unpack[BlockOptions],
) -> Array: ...
def reduce(
    map_block: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    *arrays: Any,
    axis: Axis = None,
    keepdims: bool = False,
    finish: Callable[[Any], Any] | None = None,
    initial: Any = None,
    out: Any = None,
    dtype: DTypeLike | None = None,
    chunks: Chunks | None = None,
    shards: Shards = None,
    device: str | None = None,
    memory_limit: int | str | None = None,
    progress: Progress = None,
    resume: bool = False,
    client: Client | None = None,
    **kwargs: Any,
) -> Any:
    """Compute ``map_block(block, …)`` for each block of arrays of any size, and merge the partial results with ``combine``.

    While one block is processed, the next block is read. Blocks are merged one after the other in C order, so every run with the same
    memory limit gives the same result. ``combine`` must be able to merge results one by one, so a median cannot be computed. NumPy's
    reductions are built in, and faster (:mod:`cuzarr.xp`).

    Parameters
    ----------
    map_block : callable
        Called with one block of each array, like the function of :func:`map_blocks`. It returns a partial result: a number, an
        array on any device, a tuple of them, a dictionary.
    combine : callable
        Called with two partial results: the result of all earlier blocks, and that of the next block. It returns the merged result, and
        may change the first argument.
    *arrays
        As for :func:`map_blocks`.
    axis : int or tuple of int, optional
        Dimensions to reduce. Other dimensions are kept: blocks at different places along them are not merged. Without ``axis``, all
        blocks are merged into one result of any kind.
    keepdims : bool
        Whether reduced dimensions are kept, with the extent 1.
    finish : callable, optional
        Called with the last partial result; it returns the final result. For a mean, for example, it divides a sum by a count.
    initial : optional
        A partial result to begin with. It is copied. It is needed if the arrays have no elements.
    out, dtype, chunks, shards, resume, **kwargs
        As for :func:`map_blocks`. They need ``axis``; the result has the extents of the remaining dimensions.
    device, memory_limit, progress
        As for :func:`map_blocks`.
    client : distributed.Client, optional
        Use a dask cluster. Without ``axis``, ``map_block`` of each block is a task, and this process merges their results.
        Along an axis, each object of ``out`` is a task, which merges its blocks. The result is the same as on one machine with the
        same memory limit; if a worker dies, its task runs again. Workers must be able to reach the arrays and ``out``.

    Returns
    -------
    Array, array or object
        ``out``, opened, or the result in memory. Without ``axis``, the value that ``combine`` or ``finish`` returned.

    Raises
    ------
    ShapeMismatchError
        Shapes cannot be broadcast, or the result along ``axis`` does not have the extents of the remaining dimensions.
    InvalidArgumentError
        There are no elements, and no ``initial``.
    BudgetExceededError
        One chunk, or one object of ``out``, takes more than the memory limit allows.

    An error that a function raises is passed on, with a note that names the block.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.create_array({}, data=np.arange(12.0).reshape(3, 4), chunks=(1, 2))
    >>> cuzarr.reduce(lambda block: np.sum(block**2, axis=0), np.add, z, axis=0, finish=np.sqrt).round(1)
    array([ 8.9, 10.3, 11.8, 13.4])
    >>> def spread(block):
    ...     return block.min(), block.max()
    >>> cuzarr.reduce(spread, lambda a, b: (min(a[0], b[0]), max(a[1], b[1])), z, finish=lambda both: float(both[1] - both[0]))
    11.0
    """
    function(map_block, "map_block")
    function(combine, "combine")
    if finish is not None:
        function(finish, "finish")
    sources = Sources("reduce", arrays, device)
    fold = _Fold(map_block, combine, finish, initial, progress)
    limit, watch = memory_limit_bytes(memory_limit) // 2, _core.Watch()
    if client is not None:
        cluster.check("reduce", client, sources, resume)
    axes = axes_of(
        axis, len(sources.shape), dimension_names(sources.stored) if sources.stored.shape == sources.shape else sources.names
    )
    if axes is None:
        given = {
            "out": out,
            "dtype": dtype,
            "chunks": chunks,
            "shards": shards,
            "keepdims": keepdims or None,
            "resume": resume or None,
        }
        if said := [name for name, value in (given | kwargs).items() if value is not None]:
            hint = f"to reduce all dimensions, pass axis={tuple(range(len(sources.shape)))} too"
            raise InvalidArgumentError(f"these arguments are only for reductions along an axis: {', '.join(said)}", hint=hint)
        blocks = cut(sources.shape, sources.region(sources.chunks(), 0, limit)[0])
        if not blocks:
            return fold.of_nothing()
        if client is not None:
            _workers.check(client, sources.device, sources.places())
            workers = cluster.Cluster(client, "reduce", functools.partial(_partial, map_block, sources), limit)
            return fold.merged(blocks, workers.results(blocks))
        with ReadAhead(sources, blocks, limit, watch) as reader:
            return fold.result(blocks, reader)
    stays = _Stays(axes, keepdims)
    if client is not None:
        cluster.check_out("reduce", out)
    if chunks is None and sources.stored.shape == sources.shape and out is not None:
        own = regular_shards(sources.stored)
        chunks, shards = stays.of(sources.stored.metadata._inner_chunks), shards or (own and stays.of(own))
    shape = stays.of(sources.shape)
    target = Target(out, shape, dtype, sources, (chunks, shards), resume, kwargs, names_left(sources.names, axes, keepdims))
    region, at_once = sources.region(stays.spread(target.unit, sources.chunks()), target.item_bytes, limit)
    blocks = cut(sources.shape, region, inner=axes)
    if not blocks:
        return _of_nothing(fold, target, shape)
    groups = [list(group) for _, group in groupby(blocks, lambda block: stays.of(block.start))]
    if client is not None:
        _workers.check(client, sources.device, sources.places(), target.place())
        places = [stays.place(group[0], number, len(groups), shape) for number, group in enumerate(groups)]
        quiet = _Fold(map_block, combine, finish, initial, None)
        workers = cluster.Cluster(client, "reduce", functools.partial(_along, quiet, sources, stays, groups), limit)
        tell = listener(progress, "computing", "blocks")
        with target.finishing():
            if target.array is None:
                target.open(np.empty((), workers.type_of(places[0]) if dtype is None else element_type(dtype)))
            workers.write(target, places, lambda count: tell(count, len(places)))
        return target.array
    origin = sources.origin([map_block, combine, finish, axes, keepdims]) if resume else None
    with target.finishing(), Results(target, stays.of(region), origin, limit, at_once, watch) as results:
        left = groups[results.finished :]
        with ReadAhead(sources, [block for group in left for block in group], limit, watch) as reader:
            for number, group in enumerate(left, results.finished):
                place = stays.place(group[0], number, len(groups), shape)
                results.put(place, stays.fitted(fold.result(group, reader), group[0], place))
    return target.array


def _of_nothing(fold: _Fold, target: Target, shape: tuple[int, ...]) -> Any:
    """The result for inputs without elements: an empty array, or an array filled with the result for ``initial`` alone."""
    is_empty = not math.prod(shape)
    nothing = 0 if is_empty else fold.of_nothing()
    with target.finishing():
        target.open(np.asarray(nothing))
        if not is_empty:
            target.array[...] = nothing
    return target.array


def _computed(map_block: Callable[..., Any], block: BlockInfo, given: list[Any]) -> Any:
    """Calls the user's ``map_block`` for one block that was read, and returns the block's partial result."""
    with naming(block, "reduce"):
        partial = call(map_block, block, given)
        if partial is None:
            raise InvalidArgumentError("map_block returned nothing")
        return partial


def _partial(map_block: Callable[..., Any], sources: Sources, block: BlockInfo) -> Any:
    """Reads one block of the inputs, and returns the result of the user's ``map_block`` for it."""
    return _computed(map_block, block, sources.read(block))


def _along(fold: _Fold, sources: Sources, stays: _Stays, groups: Sequence[Sequence[BlockInfo]], place: BlockInfo) -> Any:
    """Reads and reduces all blocks that belong to one block of the output, and returns their merged result."""
    blocks = groups[place.number]
    return stays.fitted(fold.of_sources(blocks, sources), blocks[0], place)


class _Fold:
    """The user's functions of one reduction (``map_block``, ``combine``, ``finish``), to be applied to blocks."""

    def __init__(
        self,
        map_block: Callable[..., Any],
        combine: Callable[[Any, Any], Any],
        finish: Callable[[Any], Any] | None,
        initial: Any,
        progress: Any,
    ) -> None:
        self._map_block, self._combine, self._finish, self._initial = map_block, combine, finish, initial
        self._tell = listener(progress, "computing", "blocks")

    def result(self, blocks: Sequence[BlockInfo], reader: ReadAhead) -> Any:
        """Reduces several blocks, which ``reader`` yields next: merges their partial results, and applies the user's ``finish``."""
        return self.merged(blocks, (_computed(self._map_block, block, reader.take()) for block in blocks))

    def merged(self, blocks: Sequence[BlockInfo], partials: Iterable[Any]) -> Any:
        """Merges the partial results of blocks in their order, and applies the user's ``finish``, if there is one, to the merged result."""
        total = copy.deepcopy(self._initial)
        for block, partial in zip(blocks, partials, strict=True):
            with naming(block, "reduce"):
                merged = partial if total is None else self._combine(total, partial)
                if merged is None:
                    raise InvalidArgumentError("combine returned nothing")
                total = merged
            self._tell(block.number + 1, block.count)
        return self._finished(total)

    def of_sources(self, blocks: Sequence[BlockInfo], sources: Sources) -> Any:
        """Reads blocks one after the other, merges their partial results, and applies the user's ``finish``."""
        return self.merged(blocks, (_partial(self._map_block, sources, block) for block in blocks))

    def of_nothing(self) -> Any:
        """The result of the reduction if its inputs have no blocks: ``finish`` applied to the initial value."""
        if self._initial is None:
            raise InvalidArgumentError("there are no elements to reduce", hint="pass initial=, the result for no elements")
        return self._finished(copy.deepcopy(self._initial))

    def _finished(self, total: Any) -> Any:
        if self._finish is None:
            return total
        with naming("finish", "reduce"):
            return self._finish(total)


class _Stays:
    """The rule that converts shapes of a reduction's inputs to shapes of its result: reduced dimensions are dropped, or get the extent
    1."""

    def __init__(self, axes: Sequence[int], keepdims: bool) -> None:
        self._axes, self._keepdims = axes, keepdims

    def of(self, extents: Sequence[int], reduced: int = 1) -> tuple[int, ...]:
        """Converts extents or starts of a reduction's inputs, one for each dimension, to extents or starts of the reduction's result. A
        reduced dimension that is kept gets the value ``reduced``."""
        along = ((reduced if axis in self._axes else extent, axis) for axis, extent in enumerate(extents))
        return tuple(extent for extent, axis in along if self._keepdims or axis not in self._axes)

    def spread(self, extents: Sequence[int] | None, others: Sequence[int]) -> list[int]:
        """Converts extents of a reduction's result to extents of its inputs; the extents of reduced dimensions are taken from ``others``.

        Without ``extents``, all of ``others``.
        """
        if extents is None:
            return list(others)
        own = iter(extents)
        result = [next(own) if self._keepdims or axis not in self._axes else 1 for axis in range(len(others))]
        return [other if axis in self._axes else result[axis] for axis, other in enumerate(others)]

    def place(self, block: BlockInfo, number: int, count: int, shape: tuple[int, ...]) -> BlockInfo:
        """Describes the region of a reduction's result that the result of one input block fills."""
        extents = self.of(block.shape)
        return BlockInfo(number, count, self.of(block.start, 0), extents, ((0, 0),) * len(extents), shape)

    def fitted(self, result: Any, block: BlockInfo, place: BlockInfo) -> Any:
        """Reshapes the result of a block to the shape of the region that it fills in the output. The result may lack the reduced
        dimensions, or have them with extent 1."""
        if not hasattr(result, "shape"):
            result = np.asarray(result)
        gone, with_ones = (_Stays(self._axes, keeps).of(block.shape) for keeps in (False, True))
        if tuple(result.shape) not in (gone, with_ones):
            message = f"the result has shape {tuple(result.shape)}, expected {gone} or {with_ones}"
            raise ShapeMismatchError(f"{message}, of blocks of shape {block.shape}")
        return result if tuple(result.shape) == place.shape else result.reshape(place.shape)

"""The function ``map_blocks``: applies a user's function block by block, to arrays of any size."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from cuzarr import _core
from cuzarr._checks import element_type, function, items, whole
from cuzarr._compute import cluster, workers as _workers
from cuzarr._compute.blocks import BlockInfo, ReadAhead, Sources, call, cut, memory_limit_bytes, naming, regular_shards
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
        Shards,
        StoreLike,
        SupportsStorePath,
    )


@overload
def map_blocks(
    f: Callable[..., Any],
    *arrays: ArrayLike,
    out: None = None,
    dtype: DTypeLike | None = None,
    overlap: int | Sequence[int] = 0,
    **options: Unpack[BlockOptions],
) -> MemoryArray: ...
@overload
def map_blocks(
    f: Callable[..., Any],
    *arrays: ArrayLike,
    out: Array | SupportsStorePath | StoreLike,
    dtype: DTypeLike | None = None,
    overlap: int | Sequence[int] = 0,
    **options: Unpack[BlockOptions],
) -> Array: ...
def map_blocks(
    f: Callable[..., Any],
    *arrays: Any,
    out: Any = None,
    dtype: DTypeLike | None = None,
    chunks: Chunks | None = None,
    shards: Shards = None,
    overlap: int | Sequence[int] = 0,
    device: str | None = None,
    memory_limit: int | str | None = None,
    progress: Progress = None,
    resume: bool = False,
    client: Client | None = None,
    **kwargs: Any,
) -> Any:
    """Compute ``f(block, …)`` for each block of arrays of any size, and put the results together.

    The arrays are cut into blocks. While ``f`` works on one block, the next blocks are read and the previous result is written. A block
    covers whole stored objects of the result, as many as the memory limit allows. The result of ``f`` must not depend on where the blocks
    begin, except through ``block_info`` and ``overlap``.

    Parameters
    ----------
    f : callable
        Called with one block of each array. Blocks are NumPy's arrays on the CPU. On a GPU they are CuPy arrays if CuPy is installed,
        else :class:`DeviceArray`. Numba's ``cuda.jit`` functions, CuPy's kernels and :class:`cuzarr.kernels.Module` accept both. ``f``
        returns a new array of the block's shape, on any device. It must not change that array later, because the array is written while
        ``f`` works on the next block. If ``f`` has a parameter ``block_info``, it gets a :class:`BlockInfo`.
    *arrays
        Stored arrays, arrays in memory, and numbers. Shapes are broadcast; numbers are passed unchanged. At least one argument is an
        :class:`Array` of cuzarr or zarr-python. Blocks of arrays in host memory are moved to the device of the others. On the CPU, they
        are read-only views of NumPy arrays.
    out : Array or StoreLike, optional
        The target of the results: a stored array of the right shape, or the place of a new array. Without ``out``, the result is in
        memory, on the device of the blocks.
    dtype : optional
        Type of the results, to which they are converted. By default it is the type of the first block's result, which the results of
        other blocks must fit.
    chunks, shards : optional
        Chunks and shards of a new array at ``out``. By default those of the first array, if that has the shape of the result; otherwise
        cuzarr chooses them.
    overlap : int or tuple of int
        Number of elements of the neighbouring blocks to add on each side, for each dimension; fewer at the array's edges. The result of
        ``f`` includes them, and they are cut off.
    device : str, optional
        The device of the blocks; by default that of the first array.
    memory_limit : int or str, optional
        Memory for blocks, in bytes or as ``"8 GiB"``; by default the configured limit, else 4 GiB. ``f`` may need more memory in
        addition.
    progress : bool, callable or object with ``update``, optional
        ``True`` shows a line on the terminal or in the notebook. A function is called with the number of blocks done and the total
        number. An object with ``update``, such as tqdm's or rich's ``Progress``, is updated.
    resume : bool
        Record the progress beside the chunks of ``out``, and continue where an earlier call with the same arrays, memory limit and
        function name ended or was killed. The call does not check whether the elements of the arrays or the code of the function have
        changed.
    client : distributed.Client, optional
        Run each block as a task of a dask cluster. The workers read the arrays and write ``out`` themselves, so they must be able to
        reach both. ``memory_limit`` then applies to one task. The result is the same as on one machine with that limit. If a worker dies,
        its task runs again. Arrays in host memory are sent to every worker.
    **kwargs
        Arguments of :func:`create_array`, if ``out`` is created. By default, ``dimension_names`` are those of the arrays.

    Returns
    -------
    Array or array
        ``out``, opened; or the result in memory.

    Raises
    ------
    ShapeMismatchError
        Shapes cannot be broadcast, or a result of ``f`` does not have the shape of its block.
    DTypeMismatchError
        No ``dtype`` was given, and a block's result does not fit the type of the first result.
    InvalidArgumentError
        An array is masked.
    ArrayNotFoundError, ShapeMismatchError, DTypeMismatchError
        A stored array was deleted, resized or replaced through another handle after it was opened.
    MemorySpaceError
        The result is in memory, and ``f`` returned some blocks on the host and others on a GPU; or blocks are on the CPU, and an
        array is in GPU memory.
    BudgetExceededError
        One object of the result takes more than the memory limit allows.

    An error that ``f`` raises is passed on, with a note that names the block.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> u = cuzarr.create_array({}, data=np.arange(6.0), chunks=(2,))
    >>> speed = cuzarr.map_blocks(lambda u, v: np.hypot(u, v), u, 1.0, out={}, chunks=(3,))
    >>> speed.chunks, float(speed[0])
    ((3,), 1.0)
    >>> def number(block, block_info):
    ...     return np.full_like(block, block_info.number)
    >>> cuzarr.map_blocks(number, u, memory_limit=2048)
    array([0., 0., 0., 0., 0., 0.])
    """
    function(f, "f")
    sources = Sources("map_blocks", arrays, device)
    shape = sources.shape
    halo = _halo(overlap, len(shape))
    if client is not None:
        cluster.check("map_blocks", client, sources, resume)
        cluster.check_out("map_blocks", out)
    if chunks is None and sources.stored.shape == shape and out is not None:
        chunks, shards = sources.stored.metadata._inner_chunks, shards or regular_shards(sources.stored)
    target = Target(out, shape, dtype, sources, (chunks, shards), resume, kwargs, sources.names)
    limit = memory_limit_bytes(memory_limit) // 2
    region, at_once = sources.region(target.unit or sources.chunks(), target.item_bytes, limit)
    blocks = cut(shape, region, halo)
    if not blocks:
        with target.finishing():
            target.open(np.empty(shape, element_type(sources.stored.dtype if dtype is None else dtype)))
        return target.array
    tell = listener(progress, "computing", "blocks")

    def written(count: int) -> None:
        tell(count, len(blocks))

    if client is not None:
        _workers.check(client, sources.device, sources.places(), target.place())
        workers = cluster.Cluster(client, "map_blocks", functools.partial(_block, f, sources), limit)
        with target.finishing():
            if target.array is None:
                target.open(np.empty((), workers.type_of(blocks[0]) if dtype is None else element_type(dtype)))
            workers.write(target, blocks, written)
        return target.array
    watch, origin = _core.Watch(), sources.origin([f, halo]) if resume else None
    with target.finishing(), Results(target, blocks[0].shape, origin, limit, at_once, watch, written) as results:
        left = blocks[results.finished :]
        with ReadAhead(sources, left, limit, watch) as reader:
            for block in left:
                results.put(block, _computed(f, block, reader.take()))
    return target.array


def _block(f: Callable[..., Any], sources: Sources, block: BlockInfo) -> Any:
    """Reads a block, and returns the result of the user's function for it."""
    return _computed(f, block, sources.read(block))


def _computed(f: Callable[..., Any], block: BlockInfo, given: list[Any]) -> Any:
    """Calls the user's function for a block that was read, and cuts off the margin that ``overlap`` added."""
    with naming(block, "map_blocks"):
        result = call(f, block, given)
        if not hasattr(result, "shape"):
            result = np.asarray(result)
        shape = tuple(result.shape)
        if shape == block.shape:
            return result
        with_halo = tuple(sum(halo) + extent for halo, extent in zip(block.overlap, block.shape, strict=True))
        if shape != with_halo:
            raise ShapeMismatchError(f"the function returned shape {shape} for a block of shape {with_halo}")
        inner = zip(block.overlap, block.shape, strict=True)
        return result[tuple(slice(before, before + extent) for (before, _), extent in inner)]


def _halo(overlap: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    given = (
        (overlap,) * ndim if isinstance(overlap, int) else items(overlap, "overlap", "a whole number, or one for each dimension")
    )
    halo = tuple(whole(width, "overlap") for width in given)
    if len(halo) != ndim or min(halo, default=0) < 0:
        raise InvalidArgumentError(f"overlap is {overlap!r}, expected {ndim} numbers of at least 0")
    return halo

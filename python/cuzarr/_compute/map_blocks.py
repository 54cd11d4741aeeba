"""A function of the user's, block by block over arrays of any size."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import element_type, function, items, whole
from cuzarr._compute import cluster
from cuzarr._compute.blocks import BlockInfo, ReadAhead, Sources, call, cut, memory_limit_bytes, naming, regular_shards
from cuzarr._compute.results import Results, Target
from cuzarr._progress import listener
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError


def map_blocks(
    f: Callable[..., Any],
    *arrays: Any,
    out: Any = None,
    dtype: Any = None,
    chunks: Any = None,
    shards: Any = None,
    overlap: int | Sequence[int] = 0,
    device: str | None = None,
    memory_limit: int | str | None = None,
    progress: Any = None,
    resume: bool = False,
    client: Any = None,
    **kwargs: Any,
) -> Any:
    """Computes ``f(block, …)`` for every block of arrays of any size, the next blocks being read and the former result being
    written meanwhile.

    Blocks are whole stored objects of the result, as many as the memory limit allows; ``f`` must not depend on where they
    are cut, but by ``block_info`` and ``overlap``.

    Parameters
    ----------
    f : callable
        Gets one block of each array: NumPy's on the CPU; on a GPU CuPy's where it is installed, else a
        :class:`DeviceArray`, which Numba's ``cuda.jit`` functions, CuPy's kernels and :class:`cuzarr.Module` take. Returns a
        new array of the block's shape, on any device, which it must not change later: it is written while ``f`` works on the
        next block. A parameter called ``block_info`` gets a :class:`BlockInfo`.
    *arrays
        Arrays of stores or in memory, whose shapes broadcast, and numbers, which are handed over as they are. At least one is an
        :class:`Array`, or one of zarr-python's. Blocks of arrays in host memory are moved to where the others are.
    out : Array or StoreLike, optional
        Where results go: an array of the right shape, or where to create one. In memory unless given, where ``f`` computes.
    dtype : optional
        Type of the results; that of the first block's unless given.
    chunks, shards : optional
        Of a new array ``out``; those of the first array, or chosen where its shape is not the result's, unless given.
    overlap : int or tuple of int
        So many elements of the neighbouring blocks are added on each side, fewer at the array's edges. ``f`` returns them too,
        and they are cut off.
    device : str, optional
        Where blocks are; the first array's device unless given.
    memory_limit : int or str, optional
        Bytes, or as in ``"8 GiB"``; the configuration's unless given. What ``f`` allocates itself is on top.
    progress : bool, callable or object, optional
        ``True`` shows a line on the terminal; a function hears of blocks done and blocks in all; anything with ``update`` is used
        as tqdm is.
    resume : bool
        Notes how far it came beside the chunks of ``out``, and goes on where another such call ended, or was killed, if arrays,
        memory limit and the function's name are the same; that elements and function are is trusted.
    client : distributed.Client, optional
        Makes each block a task of a dask cluster. Workers read the arrays and write whole objects of ``out`` themselves, so all must
        be able to reach them. ``memory_limit`` is that of one task. The result is the same as on one machine with the same limit; a
        task whose worker dies runs again. Arrays in host memory are sent to every worker.
    **kwargs
        For :func:`create_array`, when ``out`` is created. Its ``dimension_names`` are those of the arrays unless given.

    Returns
    -------
    Array or array
        ``out``, opened; or the result in memory.

    Raises
    ------
    ShapeMismatchError
        Shapes do not broadcast, or ``f`` returned another shape than its block's.
    MemorySpaceError
        Of a result in memory, ``f`` returned some blocks on the host and others on a GPU; blocks are on the CPU, and an array is in
        a GPU's memory.
    BudgetExceededError
        One object of the result takes more than the memory limit allows.

    What ``f`` raises comes as it is, with a note that names the block.

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
    limit = memory_limit_bytes(memory_limit)
    region = sources.region(target.unit or sources.chunks(), target.item_bytes, limit // 2)
    blocks = cut(shape, region, halo)
    if not blocks:
        target.open(np.empty(shape, element_type(sources.stored.dtype if dtype is None else dtype)))
        return target.array
    tell = listener(progress, "computing", "blocks") if progress else None
    written = (lambda count: tell(count, len(blocks))) if tell else lambda count: None
    if client is not None:
        workers = cluster.Cluster(client, functools.partial(_block, f, sources), limit // 2)
        if target.array is None:
            target.open(np.empty((), workers.type_of(blocks[0]) if dtype is None else element_type(dtype)))
        workers.write(target.array, blocks, written)
        return target.array
    watch, origin = _core.Watch(), sources.origin([f, halo]) if resume else None
    with Results(target, blocks[0].shape, origin, limit // 2, watch, written) as results:
        left = blocks[results.finished :]
        with ReadAhead(sources, left, limit // 2, watch) as reader:
            for block in left:
                results.put(block, _computed(f, block, reader.take()))
    return target.array


def _block(f: Callable[..., Any], sources: Sources, block: BlockInfo) -> Any:
    """What the function makes of a block that this process reads."""
    return _computed(f, block, sources.read(block))


def _computed(f: Callable[..., Any], block: BlockInfo, given: list[Any]) -> Any:
    """What the function makes of a block, without what ``overlap`` added."""
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

"""Conversion of stored arrays to dask arrays, and writing of dask arrays to stores.

>>> import cuzarr, cuzarr.dask
>>> array = cuzarr.ones((6, 4), chunks=(2, 4), store={})
>>> lazy = cuzarr.dask.from_cuzarr(array)
>>> lazy.chunks, float(lazy.sum().compute(scheduler="threads"))
(((2, 2, 2), (4,)), 24.0)

An array is sent to other processes as its store, path and metadata, and each process opens it again. ``device="cuda"`` is the first GPU
that a process sees; under dask-cuda that is the worker's own GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dask
import dask.array
import numpy as np

from cuzarr import _names
from cuzarr._checks import axis_number
from cuzarr._compute.operands import dimension_names
from cuzarr._memory import convert as _convert
from cuzarr._metadata.chunk_grid import AxisGrid
from cuzarr._node.arguments import check_shape
from cuzarr._node.array import Array
from cuzarr._node.open import array_of, open_array
from cuzarr.errors import ArgumentTypeError, ArrayNotFoundError, InvalidArgumentError, ShapeMismatchError

if TYPE_CHECKING:
    from dask.delayed import Delayed

    from cuzarr.typing import Chunks, MemoryArray, StoreLike, SupportsStorePath


__all__ = ["from_cuzarr", "meta", "to_cuzarr"]


def from_cuzarr(
    array: Array | SupportsStorePath | StoreLike,
    chunks: Chunks | Mapping[int | str, int] | tuple[tuple[int, ...], ...] | None = None,
    *,
    name: str | None = None,
    inline_array: bool = True,
) -> dask.array.Array:
    """A dask array that reads from a stored array.

    Parameters
    ----------
    array : Array or StoreLike
        The array, or its path. Its ``device`` decides where dask's blocks are.
    chunks : optional
        Extents of dask's chunks, or a dictionary of them by dimension number or name. By default the extents of the stored objects, so
        that each object is read once.
    name : str, optional
        Name of the dask array; by default a name that equal arrays share.
    inline_array : bool
        Whether each task includes the array, which is small: its store, path and metadata.

    Returns
    -------
    dask.array.Array
        A lazy array. Its blocks have the array type of ``array``'s device.

    Raises
    ------
    ArrayNotFoundError
        There is no array at the path.
    ShapeMismatchError
        From reading blocks: ``array`` was resized after this call.

    Examples
    --------
    >>> import cuzarr, cuzarr.dask, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(6), chunks=(2,))
    >>> int(cuzarr.dask.from_cuzarr(array).sum().compute())
    15
    """
    array = array_of(array)
    chosen = _stored(array) if chunks is None else _named(chunks, array)
    return dask.array.from_array(  # type: ignore[no-untyped-call,no-any-return]
        _Sized(array),
        chunks=chosen,
        name=name or f"cuzarr-{dask.base.tokenize(array, chunks)}",
        asarray=False,
        fancy=True,
        inline_array=inline_array,
        meta=meta(array),
    )


class _Sized:
    """A stored array from which dask reads blocks, with the array's shape at the time when dask's graph was made. Reads fail after a
    resize, because blocks would be shorter than dask expects."""

    def __init__(self, array: Array) -> None:
        self._array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim

    def __getitem__(self, selection: Any) -> Any:
        check_shape(self._array, self.shape)
        return self._array[selection]


def _stored(array: Array) -> tuple[Any, ...]:
    """The extents of stored objects (shards, or chunks), as dask takes them: one number for each dimension, or a list of all lengths."""
    return array.metadata._grid.blocks(array.shape)


def _named(chunks: Any, array: Array) -> Any:
    """Converts the argument ``chunks``, if it is a dictionary of block extents by dimension, to the tuple that dask takes. Dimensions that
    are not named get the extents of the stored objects."""
    if not isinstance(chunks, dict):
        return chunks
    names = dimension_names(array)
    named = {axis_number(axis, array.ndim, names): extents for axis, extents in chunks.items()}
    return tuple(named.get(axis, extent) for axis, extent in enumerate(_stored(array)))


def meta(array: Array) -> MemoryArray:
    """An array without elements, of the array type that reads return: dask takes it as ``meta``.

    Parameters
    ----------
    array : Array
        An array in a store.

    Returns
    -------
    array
        An array with extents of 0, on the device of ``array``.

    Raises
    ------
    DeviceUnavailableError
        There is no such device, or it cannot be used.

    Examples
    --------
    >>> import cuzarr, cuzarr.dask
    >>> cuzarr.dask.meta(cuzarr.zeros((4, 4), store={})).shape
    (0, 0)
    """
    empty = np.empty((0,) * array.ndim, array.dtype)
    if array.device == "cpu" or array.metadata.data_type.is_variable:
        return empty  # type: ignore[return-value]
    if _convert.cupy_holds(array.dtype):
        import cupy

        return cupy.empty(empty.shape, array.dtype)  # type: ignore[no-any-return]
    raise InvalidArgumentError(
        f"dask on {array.device} needs CuPy, which is not installed or has no elements of {array.dtype}",
        hint="install cupy-cuda12x, or use array.with_device('cpu')",
    )


def to_cuzarr(
    lazy: dask.array.Array, array: Array | SupportsStorePath | StoreLike, *, compute: bool = True, **kwargs: Any
) -> Delayed | None:
    """Write a dask array to a stored array. One task writes each stored object.

    Blocks that do not end where stored objects end are merged first, so that no two tasks write one object.

    Parameters
    ----------
    lazy : dask.array.Array
        The dask array to write, with blocks on any device.
    array : Array or StoreLike
        The target: an array of the same shape, or the path, URL or store of one. A missing array is created with the shape and element
        type of the dask array. Its chunks have the extents of the largest blocks.
    compute : bool
        Whether to write now. Otherwise the elements are written when the result is computed.
    **kwargs
        Arguments for ``dask.array.store``, such as ``scheduler``.

    Returns
    -------
    None or dask.delayed.Delayed
        ``None``; with ``compute=False``, an object that writes the elements when it is computed.

    Raises
    ------
    ShapeMismatchError
        The shapes differ.
    InvalidArgumentError
        The extents of blocks are unknown.

    Examples
    --------
    >>> import cuzarr, cuzarr.dask, dask.array, numpy as np
    >>> cuzarr.dask.to_cuzarr(dask.array.arange(4, chunks=2), "numbers.zarr")
    >>> cuzarr.open_array("numbers.zarr").chunks
    (2,)
    >>> target = cuzarr.zeros((4,), chunks=(2,), dtype="int64", store={})
    >>> cuzarr.dask.to_cuzarr(dask.array.arange(4, chunks=2), target)
    >>> target[:].tolist()
    [0, 1, 2, 3]
    """
    if not isinstance(lazy, dask.array.Array):
        raise ArgumentTypeError(f"got {type(lazy).__name__} to write, expected a dask array", hint="use array[...] = x")
    if any(math.isnan(extent) for extent in lazy.shape):
        raise InvalidArgumentError("blocks of unknown extents cannot be written", hint="call compute_chunk_sizes() first")
    try:
        array = array_of(array, "r+")
    except ArrayNotFoundError:
        chunks = tuple(max(int(extent), 1) for extent in lazy.chunksize)
        array = open_array(array, mode="a", shape=lazy.shape, chunks=chunks, dtype=lazy.dtype)  # type: ignore[arg-type]
    if tuple(lazy.shape) != array.shape:
        raise ShapeMismatchError(f"a dask array of shape {tuple(lazy.shape)} does not fit an array of {array.shape}")
    stored = array.metadata._grid.axes
    aligned = tuple(_aligned(*axis) for axis in zip(lazy.chunks, stored, array.shape, strict=True))
    lazy = lazy.rechunk(aligned)  # type: ignore[no-untyped-call]
    return dask.array.store(lazy, array, lock=False, compute=compute, **kwargs)  # type: ignore[no-any-return]


def _aligned(blocks: tuple[int, ...], stored: AxisGrid, extent: int) -> tuple[int, ...]:
    """Adjusts the extents of dask's blocks along one dimension so that each block ends where a stored object ends."""
    ends: list[int] = []
    for end in np.cumsum(blocks).tolist():
        whole = min(stored.start(stored.count(end)), extent)
        if whole and (not ends or whole > ends[-1]):
            ends.append(whole)
    return tuple(end - start for start, end in zip([0, *ends], ends, strict=False)) or (0,)


_names.list_public(globals())

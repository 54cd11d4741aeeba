"""A function of the user's, block by block over arrays of any size."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from cuzarr import _api, _convert, _core
from cuzarr._array import Array
from cuzarr._config import config, parse_size
from cuzarr._indexing import Box
from cuzarr._progress import listener
from cuzarr.errors import ArrayNotFoundError, InvalidArgumentError, ShapeMismatchError, UnsupportedError
from cuzarr.storage._resolve import make_store_path

# What work takes when neither the caller nor the configuration says it.
_DEFAULT_LIMIT = 1 << 30


@dataclass(frozen=True)
class BlockInfo:
    """Which block a function was given.

    Attributes
    ----------
    number, count : int
        Its place in C order, and how many blocks there are.
    start, shape : tuple of int
        Where it begins in the result, and its extents there, without what ``overlap`` adds.
    overlap : tuple of (int, int)
        How many elements were added before and behind it, per dimension; fewer at the array's edges.
    array_shape : tuple of int
        Extents of the whole result.
    """

    number: int
    count: int
    start: tuple[int, ...]
    shape: tuple[int, ...]
    overlap: tuple[tuple[int, int], ...]
    array_shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The block's place in the result, to index other arrays with."""
        return tuple(slice(start, start + extent) for start, extent in zip(self.start, self.shape, strict=True))

    def __str__(self) -> str:
        places = ", ".join(f"{one.start}:{one.stop}" for one in self.slices)
        return f"block {self.number} of {self.count}, [{places}]"


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
        :class:`Array`.
    out : Array or StoreLike, optional
        Where results go: an array of the right shape, or where to create one. In memory unless given, where ``f`` computes.
    dtype : optional
        Type of the results; that of the first block's unless given.
    chunks, shards : optional
        Of a new array ``out``; those of the first array unless given.
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
    **kwargs
        For :func:`create_array`, when ``out`` is created.

    Returns
    -------
    Array or array
        ``out``, opened; or the result in memory.

    Raises
    ------
    ShapeMismatchError
        Shapes do not broadcast, or ``f`` returned another shape than its block's.
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
    sources = [array for array in arrays if hasattr(array, "shape") and hasattr(array, "__getitem__")]
    stored = next((array for array in sources if isinstance(array, Array)), None)
    if stored is None:
        raise InvalidArgumentError("map_blocks needs an array of a store", hint="call the function on arrays in memory itself")
    if any(isinstance(array, Array) and array.metadata.data_type.is_variable for array in sources):
        raise UnsupportedError("blocks have elements of one size, not strings of variable length")
    try:
        shape = np.broadcast_shapes(*(tuple(array.shape) for array in sources))
    except ValueError as error:
        raise ShapeMismatchError(f"shapes {[tuple(array.shape) for array in sources]} do not broadcast") from error
    if out is not None and not isinstance(out, Array):
        place = {name: kwargs.pop(name, None) for name in ("storage_options", "metadata_store")}
        out = make_store_path(out, path=kwargs.pop("name", None), mode="a", **place)
        if resume:
            with contextlib.suppress(ArrayNotFoundError):
                out = _api.open_array(out, mode="r+")
    if resume and out is None:
        raise InvalidArgumentError("resume needs an array of a store to go on with", hint="give out")
    _refuse_overlap(out, sources)
    work = _Work(f, arrays, shape, device or stored.device, _halo(overlap, len(shape)))
    limit = parse_size(memory_limit) or config.get("memory_limit") or _DEFAULT_LIMIT
    grid = _result_grid(out, stored, shape, chunks, shards)
    # Blocks of each array are read and worked on at once, results made and written.
    item_bytes = [np.dtype(array.dtype).itemsize for array in sources if isinstance(array, Array)]
    result_bytes = np.dtype(out.dtype if isinstance(out, Array) else dtype or stored.dtype).itemsize
    units = [array.chunks for array in sources if isinstance(array, Array) and tuple(array.shape) == shape]
    region = _core.region_shape(shape, 2 * (sum(item_bytes) + result_bytes), grid, units, limit // 2)
    work.blocks = _blocks(shape, region, work.halo)
    if resume:
        work.origin = _origin(f, arrays, work.halo)
    settings = {"chunks": chunks, "shards": shards, "stored": stored, **kwargs}
    return work.run(_Target(out, dtype, shape, settings), limit // 2, progress)


class _Target:
    """Where results go; made when the first one tells its type."""

    def __init__(self, out: Any, dtype: Any, shape: tuple[int, ...], settings: dict[str, Any]) -> None:
        self.out, self.dtype, self.shape, self.settings = out, dtype, shape, settings
        self.array: Any = out if isinstance(out, Array) else None

    def open(self, like: Any) -> None:
        """Makes the array for results like this one."""
        if self.array is not None:
            return
        dtype = np.dtype(self.dtype) if self.dtype is not None else _convert.element_type(like)
        if self.out is None:
            self.array = _convert.empty_beside(like, self.shape, dtype)
            return
        kept = dict(self.settings)
        stored, chunks, shards = kept.pop("stored"), kept.pop("chunks"), kept.pop("shards")
        if chunks is None:
            same = stored.shape == self.shape
            chunks, shards = (stored.chunks, stored.shards) if same else ("auto", shards)
        self.array = _api.create_array(self.out, shape=self.shape, dtype=dtype, chunks=chunks, shards=shards, **kept)

    def take(self, block: BlockInfo, result: Any) -> Any:
        """The result, ready on every stream, in the target's element type; put into its place at once, in memory."""
        if not isinstance(self.array, Array):
            self.array[block.slices] = result
            return None
        dtype = self.array.dtype
        if not _convert.is_on_device(result):
            return np.asarray(result)
        if _convert.element_type(result) != dtype and hasattr(result, "astype"):
            result = result.astype(dtype)
        return _convert.wrap_device(result, self.array.metadata.data_type)

    def write(self, block: BlockInfo, result: Any) -> None:
        """Writes a result that was taken."""
        if not isinstance(self.array, Array):
            return
        box = _box(block.start, block.shape)
        if isinstance(result, _core.NdBuffer):
            self.array._handle().write(box.start, box.count, box.step, box.dropped, result)
        else:
            self.array._write(box, result)


class _Work:
    """One call of :func:`map_blocks`."""

    def __init__(
        self, f: Callable[..., Any], arrays: Sequence[Any], shape: tuple[int, ...], device: str, halo: tuple[int, ...]
    ) -> None:
        self.f, self.arrays, self.shape, self.device, self.halo = f, arrays, shape, device, halo
        self.tells = _takes_block_info(f)
        self.blocks: list[BlockInfo] = []
        self.origin: str | None = None
        self.noted: Any = None
        self.watch = _core.Watch()

    def run(self, target: _Target, limit: int, progress: Any) -> Any:
        tell = listener(progress, "computing") if progress else None
        if not self.blocks:
            target.open(np.empty(self.shape, target.dtype or self.arrays[0].dtype))
        self._look_back(target)
        first = self.noted.finished if self.noted else 0
        with ThreadPoolExecutor(1, "cuzarr-read") as reader, ThreadPoolExecutor(1, "cuzarr-write") as writer:
            writing: Future[None] | None = None
            try:
                reading = reader.submit(self._read, first, limit)
                for block in self.blocks[first:]:
                    given = reading.result()
                    reading = reader.submit(self._read, block.number + 1, limit)
                    result = self._compute(block, given)
                    del given
                    target.open(result)
                    self._look_back(target)
                    result = target.take(block, result)
                    if writing is not None:
                        writing.result()
                        self._tell(tell, block.number)
                    writing = writer.submit(self._write, target, block, result, limit)
                if writing is not None:
                    writing.result()
                    self._tell(tell, len(self.blocks))
                if self.noted:
                    self.noted.end()
            except BaseException:
                self.watch.cancel()
                raise
        return target.array

    def _look_back(self, target: _Target) -> None:
        """Looks how far the same work came before, once there is an array that could tell."""
        if self.noted is not None or not self.blocks or not isinstance(target.array, Array):
            return
        if self.origin:
            self.noted = _core.Resumption(target.array._handle(), self.origin, self.blocks[0].shape)
        else:
            _core.Resumption.forget(target.array._handle())
            self.noted = False

    def _tell(self, tell: Any, done: int) -> None:
        if tell is not None:
            tell(done, len(self.blocks))

    def _read(self, number: int, limit: int) -> list[Any]:
        if number >= len(self.blocks):
            return []
        block = self.blocks[number]
        with config.local({"memory_limit": limit}), self.watch:
            return [self._part(array, block) for array in self.arrays]

    def _part(self, array: Any, block: BlockInfo) -> Any:
        if not (hasattr(array, "shape") and hasattr(array, "__getitem__")) or not array.shape:
            return array
        skipped = len(self.shape) - len(array.shape)
        start, extent = [], []
        for axis, whole in enumerate(array.shape, skipped):
            before, behind = block.overlap[axis]
            single = whole == 1 and self.shape[axis] != 1
            start.append(0 if single else block.start[axis] - before)
            extent.append(1 if single else block.shape[axis] + before + behind)
        if isinstance(array, Array):
            return array._read(_box(start, extent), self.device)
        return array[tuple(slice(first, first + count) for first, count in zip(start, extent, strict=True))]

    def _compute(self, block: BlockInfo, given: list[Any]) -> Any:
        try:
            result = self.f(*given, block_info=block) if self.tells else self.f(*given)
            return self._trimmed(block, result)
        except Exception as error:
            error.add_note(f"in {block} of map_blocks")
            raise

    def _trimmed(self, block: BlockInfo, result: Any) -> Any:
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

    def _write(self, target: _Target, block: BlockInfo, result: Any, limit: int) -> None:
        with config.local({"memory_limit": limit}), self.watch:
            target.write(block, result)
            if self.noted:
                self.noted.note(block.number + 1)


def _box(start: Sequence[int], extent: Sequence[int]) -> Box:
    return Box(tuple(start), tuple(extent), (1,) * len(start), ())


def _origin(f: Callable[..., Any], arrays: Sequence[Any], halo: tuple[int, ...]) -> str:
    """What is computed of what: a text that other work seldom has."""
    name = f"{getattr(f, '__module__', '')}.{getattr(f, '__qualname__', type(f).__qualname__)}"
    places = [str(array.store_path) if isinstance(array, Array) else "" for array in arrays]
    kinds = [(getattr(array, "shape", None), str(getattr(array, "dtype", array))) for array in arrays]
    return f"{name} with {halo} of {list(zip(places, kinds, strict=True))}"


def _takes_block_info(f: Callable[..., Any]) -> bool:
    try:
        return "block_info" in inspect.signature(f).parameters
    except (TypeError, ValueError):  # NumPy's functions have no signature
        return False


def _halo(overlap: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    halo = (overlap,) * ndim if isinstance(overlap, int) else tuple(overlap)
    if len(halo) != ndim or min(halo, default=0) < 0:
        raise InvalidArgumentError(f"overlap is {overlap!r}, expected {ndim} numbers of at least 0")
    return halo


def _result_grid(out: Any, stored: Array, shape: tuple[int, ...], chunks: Any, shards: Any) -> tuple[int, ...]:
    """Extents of the objects that results are written to."""
    if isinstance(out, Array):
        if out.shape != shape:
            raise ShapeMismatchError(f"out has shape {out.shape}, the arrays broadcast to {shape}")
        return out.shards or out.chunks
    given = shards if isinstance(shards, tuple | list) else chunks
    if given is None:
        own = stored.shards or stored.chunks
        return own if stored.shape == shape else (1,) * (len(shape) - len(own)) + tuple(own)
    extents = (given,) * len(shape) if isinstance(given, int) else tuple(given)
    if len(extents) != len(shape):
        raise InvalidArgumentError(f"chunks {given!r} have {len(extents)} dimensions, the result has {len(shape)}")
    return tuple(max(whole, 1) if extent == -1 else extent for extent, whole in zip(extents, shape, strict=True))


def _blocks(shape: tuple[int, ...], region: Sequence[int], halo: tuple[int, ...]) -> list[BlockInfo]:
    starts = list(product(*(range(0, whole, step) for whole, step in zip(shape, region, strict=True))))

    def block(number: int, start: tuple[int, ...]) -> BlockInfo:
        axes = list(zip(start, region, shape, halo, strict=True))
        extent = tuple(min(step, whole - first) for first, step, whole, _ in axes)
        overlap = tuple(
            (min(width, first), min(width, whole - first - count))
            for (first, _, whole, width), count in zip(axes, extent, strict=True)
        )
        return BlockInfo(number, len(starts), start, extent, overlap, shape)

    return [block(number, start) for number, start in enumerate(starts)]


def _refuse_overlap(out: Any, sources: Sequence[Any]) -> None:
    if out is None:
        return
    target = out.store_path if isinstance(out, Array) else out
    for source in sources:
        if isinstance(source, Array):
            _core.refuse_overlap((source.store_path.store._handle, source.path), (target.store._handle, target.path))

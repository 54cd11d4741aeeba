"""Cuts arrays of any size into blocks, and reads the next block while the previous one is processed."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np

from cuzarr import _core
from cuzarr._checks import refusing
from cuzarr._compute import sources as _sources
from cuzarr._compute.operands import is_lazy, joint_names
from cuzarr._compute.sources import is_array, is_stored, place_of
from cuzarr._config import config, parse_size
from cuzarr._memory import convert, foreign
from cuzarr._memory.box import Box
from cuzarr.errors import BudgetExceededError, InvalidArgumentError, MemorySpaceError, ShapeMismatchError, UnsupportedError
from cuzarr.storage import StorePath

# Number of results that are written at a time, if blocks need not be smaller for it. A write begins and ends with work that not all threads
# share, which another write fills.
_WRITTEN_AT_ONCE = 2
# Default memory limit in bytes, if neither the caller nor the configuration sets one: that of the engine.
_DEFAULT_LIMIT = 4 << 30


def regular_shards(array: Any) -> tuple[int, ...] | None:
    """The shape of the shards of ``array``, for a new array like it; ``None`` if it has no shards, or shards of different lengths."""
    return array.shards if array.metadata._grid.is_regular else None


@dataclass(frozen=True)
class BlockInfo:
    """One block of a computation that works block by block on arrays of any size: its number, and where it lies in the arrays. Functions of
    :func:`cuzarr.map_blocks` and :func:`cuzarr.reduce` get this.

    Parameters
    ----------
    number, count : int
        The number of the block, in the order of work, and the number of blocks.
    start, shape : tuple of int
        The start of the block in the broadcast arrays, and its extents, in elements, without the elements that ``overlap`` adds.
    overlap : tuple of (int, int)
        Numbers of elements that were added before and behind the block, for each dimension. They are smaller at the array's edges.
    array_shape : tuple of int
        The shape to which the arrays are broadcast.

    Raises
    ------
    None
        cuzarr makes these objects.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(6.0), chunks=(2,))
    >>> def shifted(block: np.ndarray, block_info: cuzarr.BlockInfo) -> np.ndarray:
    ...     return block + block_info.start[0]
    >>> cuzarr.map_blocks(shifted, array)
    array([0., 1., 2., 3., 4., 5.])
    """

    number: int
    count: int
    start: tuple[int, ...]
    shape: tuple[int, ...]
    overlap: tuple[tuple[int, int], ...]
    array_shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The region that the block covers in the arrays, as slices that can index other arrays."""
        return tuple(slice(start, start + extent) for start, extent in zip(self.start, self.shape, strict=True))

    def __str__(self) -> str:
        places = ", ".join(f"{one.start}:{one.stop}" for one in self.slices)
        return f"block {self.number} of {self.count}, [{places}]"


def cut(
    shape: tuple[int, ...], region: Sequence[int], halo: Sequence[int] | None = None, inner: Sequence[int] = ()
) -> list[BlockInfo]:
    """The blocks that cover an array of shape ``shape``, in C order. Each block has the shape ``region``, or a smaller one at the edge.

    Blocks that differ only along the dimensions ``inner`` follow each other directly.
    """

    def outer_start(start: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(first for axis, first in enumerate(start) if axis not in inner)

    starts = sorted(product(*(range(0, whole, step) for whole, step in zip(shape, region, strict=True))), key=outer_start)
    widths = halo or (0,) * len(shape)

    def block(number: int, start: tuple[int, ...]) -> BlockInfo:
        axes = list(zip(start, region, shape, widths, strict=True))
        extent = tuple(min(step, whole - first) for first, step, whole, _ in axes)
        overlap = tuple(
            (min(width, first), min(width, whole - first - count))
            for (first, _, whole, width), count in zip(axes, extent, strict=True)
        )
        return BlockInfo(number, len(starts), start, extent, overlap, shape)

    return [block(number, start) for number, start in enumerate(starts)]


def box(start: Sequence[int], extent: Sequence[int]) -> Box:
    return Box(tuple(start), tuple(extent), (1,) * len(start), ())


def _has_elements(array: Any) -> bool:
    return hasattr(array, "shape") and hasattr(array, "__getitem__")


def _read_only(elements: Any) -> Any:
    """A read-only view of a caller's NumPy array, so that the user's function cannot change it. Any other value is returned unchanged."""
    if not isinstance(elements, np.ndarray):
        return elements
    view = elements.view()
    view.flags.writeable = False
    return view


class Sources:
    """The inputs of a user's function that is called block by block: arrays in stores or in memory, and numbers.

    Attributes
    ----------
    what : str
        Name of the call that the inputs are for.
    stored : Array
        The first array that is in a store.
    shape : tuple of int
        The shape to which all inputs broadcast.
    device : str
        The device that blocks are on.

    Raises
    ------
    InvalidArgumentError
        No array is in a store.
    ShapeMismatchError
        The shapes cannot be broadcast together.
    MemorySpaceError
        Blocks are on the CPU, and an array is in a GPU's memory.
    UnsupportedError
        Elements are strings of any length, or yet to be computed.
    """

    def __init__(self, what: str, arrays: Sequence[Any], device: str | None) -> None:
        self.what = what
        arrays = [
            _sources.nodes.open_array(place_of(one), mode="r", zarr_format=one.metadata.zarr_format)
            if is_array(one) and not is_stored(one)
            else one
            for one in arrays
        ]
        if any(is_lazy(one) and not is_array(one) for one in arrays):
            hint = "pass its arrays and compute it inside the function, or store it first; of a view pass view.result()"
            raise UnsupportedError(f"{what}: got an expression or a view, expected arrays and numbers", hint=hint)
        own = [array for array in arrays if _has_elements(array)]
        for array in own:
            foreign.refuse_masked(array)
        in_stores = [array for array in own if is_stored(array)]
        if not in_stores:
            hint = "for arrays in memory, call the function directly"
            raise InvalidArgumentError(f"{what} needs an array in a store", hint=hint)
        if any(array.metadata.data_type.is_variable for array in in_stores):
            raise UnsupportedError(f"{what} does not support elements of variable length")
        shapes = [tuple(array.shape) for array in own]
        try:
            self.shape = np.broadcast_shapes(*shapes)
        except ValueError as error:
            raise ShapeMismatchError(f"shapes {shapes} do not broadcast") from error
        _core.check_unchanged([array._handle() for array in in_stores])
        self.arrays, self._in_stores, self.stored = arrays, in_stores, in_stores[0]
        self.device = self.stored.device if device is None else str(device)
        on_gpu = next((array for array in own if self.device == "cpu" and foreign.is_on_device(array)), None)
        if on_gpu is not None:
            where = foreign.device_of(on_gpu)
            hint = f"pass device={where!r}, or move the array: cuzarr.xp.asarray(x, device='cpu')"
            raise MemorySpaceError(f"{what}: got an array on {where}, but blocks are on the CPU", hint=hint)

    def places(self) -> list[StorePath]:
        """The store and the path of each input array that is stored."""
        return [array.store_path for array in self._in_stores]

    def chunks(self) -> tuple[int, ...]:
        """The shape of the chunks or shards of the first stored input, with extents of 1 in front for the dimensions that broadcasting
        adds."""
        own = self.stored.metadata._stored_chunks
        return own if self.stored.shape == self.shape else (1,) * (len(self.shape) - len(own)) + tuple(own)

    @property
    def names(self) -> tuple[str | None, ...] | None:
        """Names of the dimensions of the shape to which all inputs broadcast, if the stored inputs with as many dimensions have the same
        names."""
        return joint_names(tuple(self._in_stores), len(self.shape))

    def region(self, unit: Sequence[int], result_bytes: int, limit: int) -> tuple[list[int], int]:
        """Chooses the shape of the blocks that are computed one by one: multiples of ``unit`` within ``limit``, half of the memory
        limit, with few chunks read twice. Also returns how many results are written at a time."""
        grids = [array.metadata._inner_chunks for array in self._in_stores if array.shape == self.shape]
        read_bytes = sum(array.dtype.itemsize for array in self._in_stores)
        moved_bytes = read_bytes + result_bytes

        def held_bytes(written: int) -> int:
            # Two blocks of each array (one is read while the other is processed), a result, and those that are written.
            return 2 * read_bytes + (1 + written) * result_bytes

        def shape(written: int) -> list[int]:
            most = limit * moved_bytes // max(held_bytes(written), 1)
            return _core.region_shape(self.shape, moved_bytes, list(unit), grids, most)

        least = math.prod(min(own, whole) for own, whole in zip(unit, self.shape, strict=True)) * held_bytes(1)
        if least > limit:
            message = f"blocks of shape {tuple(unit)} take {least} bytes at once, the memory limit leaves {limit} for them"
            raise BudgetExceededError(
                message, hint=f"raise memory_limit to at least {2 * least} bytes, or write smaller chunks or shards"
            )
        with refusing("chunks"):
            alone = shape(1)
            try:
                at_once = _WRITTEN_AT_ONCE if shape(_WRITTEN_AT_ONCE) == alone else 1
            except BudgetExceededError:
                at_once = 1
            return alone, at_once

    def refuse_overlap(self, out: Any) -> None:
        """Refuses to write to ``out`` if it is one of the input arrays, lies inside of one, or contains one."""
        target = out.store_path if is_stored(out) else out
        for source in self._in_stores:
            ends = [(place.store._handle, place.path) for place in (source.store_path, target)]
            _core.refuse_overlap(*ends)

    def origin(self, work: Sequence[Any]) -> str:
        """A text that identifies a computation by its functions and inputs, so that an interrupted run can be continued. Other computations
        rarely have the same text."""
        names = [_name(one) if callable(one) else str(one) for one in work]
        places = [str(array.store_path) if is_stored(array) else "" for array in self.arrays]
        kinds = [(getattr(array, "shape", None), str(getattr(array, "dtype", array))) for array in self.arrays]
        return f"{', '.join(names)} of {list(zip(places, kinds, strict=True))}"

    def read(self, block: BlockInfo) -> list[Any]:
        """Reads, for one block, the part of each input array that the user's function gets."""
        return [self._part(array, block) for array in self.arrays]

    def _part(self, array: Any, block: BlockInfo) -> Any:
        if not _has_elements(array):
            return array
        if not (array.shape or is_stored(array)):
            return _read_only(array)
        skipped = len(self.shape) - len(array.shape)
        start, extent = [], []
        for axis, whole in enumerate(array.shape, skipped):
            before, behind = block.overlap[axis]
            single = whole == 1 and self.shape[axis] != 1
            start.append(0 if single else block.start[axis] - before)
            extent.append(1 if single else block.shape[axis] + before + behind)
        if is_stored(array):
            return array._read_box(box(start, extent), self.device)
        part = array[tuple(slice(first, first + count) for first, count in zip(start, extent, strict=True))]
        if self.device == "cpu" or foreign.is_on_device(part):
            return _read_only(part)
        return convert.to_device(foreign.as_numpy(part), self.device)


class ReadAhead:
    """A reader that reads the input elements of each block on a thread, while the block before it is processed."""

    def __init__(self, sources: Sources, blocks: Sequence[BlockInfo], limit: int, watch: _core.Watch) -> None:
        self._sources, self._blocks, self._limit, self._watch = sources, iter(blocks), limit, watch
        self._reader = ThreadPoolExecutor(1, "cuzarr-read")
        self._reading: Future[list[Any]] | None = None

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._watch.cancel()
        self._reader.shutdown()

    def _begin(self) -> None:
        block = next(self._blocks, None)
        self._reading = None if block is None else self._reader.submit(self._read, block)

    def _read(self, block: BlockInfo) -> list[Any]:
        with config.local({"memory_limit": self._limit}), self._watch:
            return self._sources.read(block)

    def take(self) -> list[Any]:
        """Returns the inputs of the next block, and starts reading those of the block after it."""
        assert self._reading is not None, "all blocks were taken"
        given = self._reading.result()
        self._begin()
        return given


def call(f: Callable[..., Any], block: BlockInfo, given: Sequence[Any]) -> Any:
    """Calls the user's function for one block. A function with a parameter ``block_info`` also gets the block's description."""
    return f(*given, block_info=block) if _takes_block_info(f) else f(*given)


@contextlib.contextmanager
def naming(place: object, what: str) -> Iterator[None]:
    """Adds a note to errors inside the ``with`` block: the ``place`` (a block, or a function's name) and the call ``what``."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {place} of {what}")
        raise


def _takes_block_info(f: Callable[..., Any]) -> bool:
    try:
        return "block_info" in inspect.signature(f).parameters
    except (TypeError, ValueError):  # NumPy's functions have no signature
        return False


def memory_limit_bytes(asked: int | str | None, default: int = _DEFAULT_LIMIT) -> int:
    """The memory limit in bytes of a call that works block by block: the given one, else the configured one, else the default."""
    return parse_size(asked) or config.get("memory_limit") or default


def _name(f: Any) -> str:
    return f"{getattr(f, '__module__', '')}.{getattr(f, '__qualname__', type(f).__qualname__)}"

"""Data sets with a planned order, and their subclasses whose samples are boxes of arrays: rows, windows, and crops at random places."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr._checks import whole
from cuzarr._compute.blocks import memory_limit_bytes
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError
from cuzarr.loader._ahead import ahead
from cuzarr.loader._boxes import Boxes
from cuzarr.loader._cells import Cells, cells_of, check_limit, chunk_edges, joined
from cuzarr.loader._crops import CropAxis, CropWeights, draw
from cuzarr.loader._epochs import EpochDataset
from cuzarr.loader._library import Library
from cuzarr.loader._plan import Ints, Limits, plan_epoch
from cuzarr.loader._progress import Progress
from cuzarr.loader._reading import Clock, Counts, Pass, Source
from cuzarr.loader._shares import Share, batch_count, batch_sizes, in_order, shares_of_workers
from cuzarr.loader._variables import Form, Given, Parts, Variable, Window, parse_window
from cuzarr.loader._weights import Floats, check_shape, fingerprint, parse_weights

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike

# Largest number of bytes that one call reads, because the first batches wait for the first call.
_GROUP_BYTES = 512 << 20

# Default memory limit in bytes, if neither the caller nor the configuration sets one: a part of the host's memory for each worker.
_DEFAULT_LIMIT = 1 << 30

# If samples lie inside chunks, at least this many chunks are mixed.
_LEAST_MIXED = 8


@dataclass(frozen=True)
class _Epoch:
    """The positions of an epoch's samples, and the cells (blocks of whole chunks) from which the samples are cut."""

    cells: Cells
    starts: Ints


class SampleDataset(EpochDataset):
    """Base class of data sets that plan the order of their samples, so that few chunks are read twice."""

    def __init__(
        self,
        source: Source,
        size: int,
        *,
        shuffle: bool,
        seed: int,
        memory_limit: int | str | None,
        drop_last: bool,
        transform: Callable[[Any], Any] | None,
        positions: bool,
        prefetch: int,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        super().__init__(rank, world_size)
        self._source = source
        source.check(self._library(source.device))
        self.size, self.prefetch = whole(size, "size", 1), whole(prefetch, "prefetch", 1)
        self.shuffle, self.seed, self.drop_last = bool(shuffle), whole(seed, "seed", 0), bool(drop_last)
        self.memory_limit: int = memory_limit_bytes(memory_limit, _DEFAULT_LIMIT)
        self.transform, self.positions = transform, bool(positions)
        self._counts: Counts | None = None
        self._weights: Floats | None = None

    # Overridden by the kinds of data sets.

    @property
    def samples(self) -> int:
        """Number of samples in an epoch, over all ranks."""
        raise NotImplementedError

    def _epoch_of(self, random: np.random.Generator | None) -> _Epoch:
        raise NotImplementedError

    def _random(self, epoch: int, *more: int) -> np.random.Generator | None:
        return np.random.default_rng((self.seed, epoch, *more)) if self.shuffle else None

    # Batches.

    def __len__(self) -> int:
        _, world_size = self._place()
        count = batch_count(self.samples, self.size, world_size, drop_last=self.drop_last)
        return max(count - self._taken_before(), 0)

    def __iter__(self) -> Iterator[Any]:
        worker = self._worker()
        rank, world_size = self._place()
        start, sizes = batch_sizes(self.samples, self.size, world_size, rank, drop_last=self.drop_last)
        # Called here, not in the generator, because the state may be requested before the first batch.
        progress, share = self._begin(partial(shares_of_workers, start, sizes))
        workers = worker.count if worker is not None else 1
        return self._batches(progress, share, workers, rank * workers + share.number)

    def _batches(self, progress: Progress, share: Share, workers: int, part: int) -> Iterator[Any]:
        """Yields the batches of one worker's share of an epoch, which a thread reads ahead."""
        counts = self._counts = Counts()
        library = self._library(self._source.device)
        begun = time.perf_counter()
        opened: list[Pass] = []
        left = threading.Event()

        def make() -> Generator[Any, None, None]:
            with ThreadPoolExecutor(1, thread_name_prefix="cuzarr-cells") as pool, library.working():
                reading, starts = self._prepared(progress.epoch, share, workers, part, counts, library)
                opened.append(reading)
                place = 0
                for number, size in enumerate(share.sizes):
                    if left.is_set():
                        return
                    batch = reading.batch(place, size, pool)
                    if number >= share.skipped:
                        formed = reading.held.formed(batch)
                        if self.transform is not None:
                            formed = self.transform(formed)
                        if self.positions:
                            formed = formed, library.of_host(starts[place : place + size])
                        library.settle()
                        yield formed
                    place += size

        def cancel() -> None:
            for reading in opened:
                reading.watch.cancel()

        with contextlib.closing(ahead(make, self.prefetch, left, cancel)) as batches:
            for size in share.sizes[share.skipped :]:
                with Clock(counts):
                    batch = next(batches)
                counts.seconds = time.perf_counter() - begun
                progress.batches += 1
                counts.batches += 1
                counts.samples += size
                library.hand_over(batch)
                yield batch

    def _prepared(self, epoch: int, share: Share, workers: int, part: int, counts: Counts, library: Library) -> tuple[Pass, Ints]:
        """Plans the part of an epoch that one worker reads: returns the object that reads the part, and the samples' positions in their
        final order."""
        random = self._random(epoch, 0)
        found = self._epoch_of(random)
        order = in_order(found.cells, found.starts, self._source.window, random).part(share.start, share.count)
        is_mixed = random is not None and order.are_apart and found.cells.are_chunks
        limit, least = self.memory_limit // workers, _LEAST_MIXED if is_mixed else 1
        check_limit(found.cells, limit, least, workers)
        limits, group = _limits(found.cells, limit - found.cells.whole_bytes, least, order.are_apart)
        touched = order.lowest, order.highest
        plan = plan_epoch(*touched, found.cells.grid, found.cells.sizes, limits, self._random(epoch, 1 + part))
        held = self._source.held(order, found.cells, plan, counts, library)
        return Pass(held, limit, group), order.starts[plan.order]

    def report(self) -> dict[str, int | float] | None:
        """Numbers about the last pass over the data set in this process: samples, batches, bytes read and time waited.

        Returns
        -------
        dict or None
            ``samples``, ``batches``, ``chunks``, ``chunk_reads``, ``reads_per_chunk``, ``read_bytes``, ``peak_bytes`` (held elements,
            without batches), ``memory_limit``, ``waited_seconds`` and ``seconds``. ``None`` before the first pass, and if worker
            processes read.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> from cuzarr.loader import WindowDataset
        >>> array = cuzarr.create_array({}, data=np.arange(8.0), chunks=(4,))
        >>> dataset = WindowDataset(array, {0: 1}, 4)
        >>> batches = list(dataset)
        >>> dataset.report()["samples"]
        8
        """
        return None if self._counts is None else self._counts.to_dict(self.memory_limit)

    def _identity(self) -> dict[str, int]:
        _, world_size = self._place()
        names = ("samples", "size", "shuffle", "seed", "drop_last", "memory_limit")
        weights = {} if self._weights is None else {"weights": fingerprint(self._weights)}
        return {**{name: int(getattr(self, name)) for name in names}, "world_size": world_size, **weights}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_counts": None}


def _limits(cells: Cells, limit: int, least: int, are_apart: bool) -> tuple[Limits, int]:
    """Divides the memory limit of an epoch: into bytes for cells (blocks of chunks) whose samples are mixed, and for cells that wait for a
    neighbour. Returns the parts, and the bytes that one call reads; at least ``least`` cells are mixed."""
    largest, whole_size = int(cells.sizes.max(initial=0)), int(cells.sizes.sum())
    frontier = 0 if are_apart else max(largest, limit // 4)
    room = limit - frontier - 2 * largest
    group = max(largest, min(limit // 8, _GROUP_BYTES, (room - least * largest) // 2))
    mixed = max(room - 2 * group, largest if limit < whole_size else whole_size)
    return Limits(mixed, frontier, max(_LEAST_MIXED * largest, group)), group


class PlacedDataset(SampleDataset):
    """Base class of data sets whose samples lie at the same positions of the arrays in each epoch: rows and windows."""

    _cells: Cells
    _draws: int | None = None

    def _place_samples(
        self, positions: Sequence[Ints], extents: tuple[int, ...], weights: ArrayLike | None, samples: int | None
    ) -> None:
        """Sets at which positions along each sample axis samples lie, and the weights by which epochs draw samples, if there are any.
        ``weights`` have the shape ``extents``."""
        self._positions = list(positions)
        if weights is None:
            if samples is not None:
                raise InvalidArgumentError("samples is given without weights", hint="pass weights=, or leave samples out")
            return
        if not self.shuffle:
            hint = "pass shuffle=True, or leave weights out"
            raise InvalidArgumentError("weights draw samples in random order, but shuffle is False", hint=hint)
        own = parse_weights(weights)
        check_shape(own, extents, "one for each position along the sample axes")
        # The position of a sample may lie outside of the arrays, for example if its window lies in the future.
        padded = np.pad(own, 1)
        places = [np.clip(axis, -1, extent) + 1 for axis, extent in zip(positions, own.shape, strict=True)]
        self._weights = parse_weights(padded[np.ix_(*places)])
        self._draws = self._count if samples is None else whole(samples, "samples", 1)

    @property
    def _count(self) -> int:
        """Number of different samples, from which an epoch with weights draws."""
        return math.prod(map(len, self._positions))

    @property
    def samples(self) -> int:
        """Number of samples of an epoch, over all ranks."""
        return self._count if self._draws is None else self._draws

    def _epoch_of(self, random: np.random.Generator | None) -> _Epoch:
        if self._weights is None:
            chosen = np.arange(self._count)
        else:
            assert random is not None
            chosen = random.choice(self._count, self.samples, p=self._weights.reshape(-1))
        places = np.unravel_index(chosen, [len(axis) for axis in self._positions])
        return _Epoch(self._cells, np.stack([axis[own] for axis, own in zip(self._positions, places, strict=True)], axis=1))


class BatchDataset(PlacedDataset):
    """A data set of batches of rows along the first dimension of one or several arrays.

    Each stored chunk is read and decoded once per epoch. With ``shuffle``, chunks are read in random order, and the rows of at least
    eight chunks are mixed; a larger ``memory_limit`` mixes more. In each epoch, ranks and workers get different chunks, from everywhere
    in the arrays. Small arrays with longer chunks than the others, such as labels beside images, are read once and held whole.

    A thread of the same process reads ahead. Ranks share the rows: each row comes once, every rank gets equally many batches, and
    the last batches may be smaller.

    Parameters
    ----------
    arrays : array, Variable, or list, tuple or dictionary of them
        Arrays of equal length, or their paths, URLs or stores, or :class:`Variable` for another element type or scaling. Batches of
        several arrays are tuples; with a dictionary, they are dictionaries.
    size : int
        Number of rows of a batch.
    shuffle : bool
        Whether rows come in random order. Otherwise they come in stored order; with several workers, each worker returns its own stretch.
    weights : array_like, optional
        Weights of the rows, not negative. An epoch draws ``samples`` rows with replacement, in proportion to their weights. So some rows
        come several times, and others not at all. Needs ``shuffle=True``.
    samples : int, optional
        Number of rows that an epoch draws by ``weights``, over all ranks; by default the number of rows. All ranks draw the same rows
        from their common seed, and share the draws.
    seed, memory_limit, drop_last, transform, positions, prefetch, rank, world_size
        As for :class:`WindowDataset`. With ``positions=True``, positions are the numbers of rows, of shape (rows, 1).

    Raises
    ------
    BudgetExceededError
        Twelve chunks (four without shuffling) do not fit into the limit. Raised when a pass begins.
    InvalidArgumentError, ShapeMismatchError
        The arrays have different lengths, or a number is not allowed.
    UnsupportedError, DTypeMismatchError
        The elements are not numbers, or the batches' library does not support their type.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(6.0).reshape(3, 2))
    >>> [batch.shape for batch in cuzarr.loader.BatchDataset(array, 2)]
    [(2, 2), (1, 2)]
    """

    def __init__(
        self,
        arrays: Given,
        size: int,
        *,
        shuffle: bool = False,
        weights: ArrayLike | None = None,
        samples: int | None = None,
        seed: int = 0,
        memory_limit: int | str | None = None,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        positions: bool = False,
        prefetch: int = 2,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        form = Form(arrays)
        self.parts = Parts(form.of([_row_of(one) for one in form.given]), {0: (0, 1)})
        super().__init__(
            Boxes(self.parts),
            size,
            shuffle=shuffle,
            seed=seed,
            memory_limit=memory_limit,
            drop_last=drop_last,
            transform=transform,
            positions=positions,
            prefetch=prefetch,
            rank=rank,
            world_size=world_size,
        )
        chunks = chunk_edges(self.parts, self.memory_limit)
        self._cells = cells_of(self.parts, chunks.edges, chunks)
        self._place_samples([np.arange(self.parts.extents[0], dtype=np.int64)], self.parts.extents, weights, samples)


def _row_of(array: Any) -> Variable:
    """Makes a variable whose samples are single rows of an array, without the first dimension."""
    return replace(array, at={0: 0}) if isinstance(array, Variable) else Variable(array, at={0: 0})


class WindowDataset(PlacedDataset):
    """A data set of windows: boxes of a fixed shape that slide along the sample axes. Each position of the window along the sample axes is
    a sample, and comes once per epoch.

    Reads are shuffled in blocks. Cells of whole chunks are read in random order, and samples of many cells are mixed within
    ``memory_limit``. With one sample axis, each stored chunk is read and decoded once per epoch, for any limit. With several axes and a
    small limit, some chunks may be read twice for overlapping windows; :meth:`report` counts them.

    A thread of the same process reads ahead.

    Parameters
    ----------
    variables : array, Variable, or list, tuple or dictionary of them
        The parts of a sample: arrays, their paths, URLs or stores, or a :class:`Variable` for an array with another window or element
        type. Batches of several arrays are tuples; with a dictionary, they are dictionaries.
    window : dict
        For each sample axis the number of elements of a sample, or offsets ``(start, stop)`` from its position: ``{"time": (-3, 1)}`` is
        three earlier time steps and the present one. Along other dimensions, samples have all elements.
    size : int
        Samples of a batch.
    stride : int or dict
        Distance between positions along the sample axes.
    within : dict, optional
        For some sample axes the part ``(start, stop)`` in which samples lie, for example to divide training from validation.
    shuffle : bool
        Whether positions come in random order. Otherwise they come cell by cell, in C order.
    weights : array_like, optional
        Weights of the positions along the sample axes, not negative; the shape is that of the arrays' extents along these axes. An epoch
        draws ``samples`` possible positions with replacement, in proportion to their weights. So some samples come several times, and
        others not at all. Positions outside of the arrays are not drawn. Needs ``shuffle=True``.
    samples : int, optional
        Number of samples that an epoch draws by ``weights``, over all ranks; by default the number of positions. All ranks draw the same
        samples from their common seed, and share the draws.
    seed : int
        Determines the order, together with the epoch of :meth:`set_epoch`.
    memory_limit : int or str, optional
        Memory for elements, in bytes or as ``"4 GiB"``; by default the configured limit, else 1 GiB. Batches need memory in addition.
    drop_last : bool
        Whether samples that do not fill a batch of every rank are left out. Otherwise each sample comes once over all ranks, and
        the last batches are smaller.
    transform : function, optional
        Applied to each batch, in the thread or worker that reads. A loop that is left early waits for the running call.
    positions : bool
        Whether batches are pairs ``(batch, positions)``, with positions of shape (samples, sample axes).
    prefetch : int
        Largest number of batches that are made ahead.
    rank, world_size : int, optional
        The number of this rank, and the number of ranks. The data sets for PyTorch and JAX take them from their framework.

    Raises
    ------
    BudgetExceededError
        Four cells do not fit into the limit. If windows lie inside chunks, twelve chunks must fit, because eight are mixed. Raised when a
        pass begins.
    InvalidArgumentError, ShapeMismatchError
        A window does not fit the arrays, or the arrays do not fit each other.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> t2m = cuzarr.create_array({}, data=np.arange(24.0).reshape(12, 2), chunks=(3, 2), dimension_names=("time", "x"))
    >>> past, future = t2m, cuzarr.loader.Variable(t2m, window={"time": (1, 3)})
    >>> windows = cuzarr.loader.WindowDataset({"past": past, "future": future}, {"time": (-3, 1)}, size=4, seed=7)
    >>> batch = next(iter(windows))
    >>> batch["past"].shape, batch["future"].shape, windows.samples
    ((4, 4, 2), (4, 2, 2), 7)
    """

    def __init__(
        self,
        variables: Given,
        window: Window,
        size: int,
        *,
        stride: int | Mapping[int | str, int] = 1,
        within: Mapping[int | str, tuple[int, int]] | None = None,
        shuffle: bool = True,
        weights: ArrayLike | None = None,
        samples: int | None = None,
        seed: int = 0,
        memory_limit: int | str | None = None,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        positions: bool = False,
        prefetch: int = 2,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.parts = Parts(variables, parse_window(window, "window"))
        super().__init__(
            Boxes(self.parts),
            size,
            shuffle=shuffle,
            seed=seed,
            memory_limit=memory_limit,
            drop_last=drop_last,
            transform=transform,
            positions=positions,
            prefetch=prefetch,
            rank=rank,
            world_size=world_size,
        )
        axes = self.parts.sample_axes
        strides = _by_axis(stride if isinstance(stride, Mapping) else dict.fromkeys(axes, stride), axes, "stride", 1)
        bounds = [_bounds(extent, (within or {}).get(axis), axis) for axis, extent in zip(axes, self.parts.extents, strict=True)]
        _by_axis(dict.fromkeys(within or {}, 1), axes, "within", 1)
        places = [
            np.arange(low - first, high - stop + 1, step, dtype=np.int64)
            for (low, high), (first, stop), step in zip(bounds, self.parts.window, strides, strict=True)
        ]
        if not all(len(axis) for axis in places):
            shape = [stop - first for first, stop in self.parts.window]
            raise InvalidArgumentError(f"no window of {shape} elements fits in {bounds} along {list(axes)}")
        least = [max(stop - first - 1, 1) for first, stop in self.parts.window]
        # The last cell may be smaller, because no window extends beyond it.
        chunks = chunk_edges(self.parts, self.memory_limit)
        edges = tuple(joined(edge, one) for edge, one in zip(chunks.edges, least, strict=True))
        self._cells = cells_of(self.parts, edges, chunks)
        self._place_samples(places, self.parts.extents, weights, samples)


class CropDataset(SampleDataset):
    """A data set of crops at random positions. Each epoch has different crops.

    Each epoch the arrays are divided into blocks of whole chunks, at a random shift of whole chunks. Within an epoch, no crop crosses a
    block, so each stored chunk is read and decoded at most once per epoch. Shifts and positions are drawn so that over many epochs all
    positions are equally likely. Blocks are read in random order, and the crops of many blocks are mixed within ``memory_limit``.

    Parameters
    ----------
    variables, size, seed, memory_limit, drop_last, transform, positions, prefetch, rank, world_size
        As for :class:`WindowDataset`.
    crop : dict
        For each sample axis the number of elements of a crop: ``{"z": 32, "y": 64, "x": 64}``. Other dimensions are whole.
    samples : int, optional
        Number of crops of an epoch, over all ranks; by default as many as cover the arrays once.
    weights : array_like, optional
        Weights of parts of the arrays, not negative, with a dimension for each sample axis: each axis is divided into as many equal
        stretches as ``weights`` has entries along it. Crops are drawn with replacement, in proportion to the weight of the part in which
        their middle lies. So an epoch does not cover everything. All ranks draw the same crops from their common seed, and share the
        draws.
    block : dict, optional
        Extents of a block along some sample axes, in elements, rounded up to whole chunks; by default two crops and two chunks. Blocks
        get more chunks if some crops would otherwise not fit inside any block.

    Raises
    ------
    BudgetExceededError
        Four blocks do not fit into the limit. Raised when a pass begins.
    InvalidArgumentError, ShapeMismatchError
        A crop does not fit the arrays, or the arrays do not fit each other.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> volume = cuzarr.create_array({}, data=np.ones((32, 32), "uint8"), chunks=(8, 8), dimension_names=("y", "x"))
    >>> crops = cuzarr.loader.CropDataset(volume, {"y": 4, "x": 4}, size=16)
    >>> len(crops), next(iter(crops)).shape
    (4, (16, 4, 4))
    """

    def __init__(
        self,
        variables: Given,
        crop: Mapping[int | str, int],
        size: int,
        *,
        samples: int | None = None,
        weights: ArrayLike | None = None,
        block: Mapping[int | str, int] | None = None,
        seed: int = 0,
        memory_limit: int | str | None = None,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        positions: bool = False,
        prefetch: int = 2,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.parts = Parts(variables, parse_window(crop, "crop"))
        super().__init__(
            Boxes(self.parts),
            size,
            shuffle=True,
            seed=seed,
            memory_limit=memory_limit,
            drop_last=drop_last,
            transform=transform,
            positions=positions,
            prefetch=prefetch,
            rank=rank,
            world_size=world_size,
        )
        axes, extents = self.parts.sample_axes, self.parts.extents
        self._lengths = tuple(stop - first for first, stop in self.parts.window)
        for axis, length, extent in zip(axes, self._lengths, extents, strict=True):
            if length > extent:
                raise InvalidArgumentError(f"a crop of {length} elements does not fit in {extent} along {axis!r}")
        counts = [-(-extent // length) for extent, length in zip(extents, self._lengths, strict=True)]
        self._samples = int(np.prod(counts)) if samples is None else whole(samples, "samples", 1)
        blocks = _by_axis(block or {}, axes, "block", 1, missing=0)
        self._chunks = chunk_edges(self.parts, self.memory_limit)
        self._axes = [
            CropAxis(edges, length, _chunks_of_block(edges, length, extent))
            for edges, length, extent in zip(self._chunks.edges, self._lengths, blocks, strict=True)
        ]
        self._crop_weights: CropWeights | None = None
        if weights is not None:
            self._weights = parse_weights(weights)
            if self._weights.ndim != len(axes):
                raise ShapeMismatchError(f"weights has {self._weights.ndim} dimensions for {len(axes)} sample axes")
            self._crop_weights = CropWeights(self._axes, self._weights)

    @property
    def samples(self) -> int:
        """Number of samples of an epoch, over all ranks."""
        return self._samples

    def _epoch_of(self, random: np.random.Generator | None) -> _Epoch:
        assert random is not None
        edges, corners = draw(self._axes, self._samples, random, self._crop_weights)
        first = [start for start, _ in self.parts.window]
        return _Epoch(cells_of(self.parts, edges, self._chunks), corners - np.asarray(first, np.int64))


def _chunks_of_block(edges: Ints, length: int, block: int) -> int:
    """The number of chunks along an axis that make a block of at least ``block`` elements. For 0, a block has at least two crops and two
    chunks."""
    chunk = float(np.diff(edges[:-1]).mean()) if len(edges) > 2 else float(edges[-1])
    if block:
        return max(math.ceil(max(block, length) / chunk), 1)
    return max(2, math.ceil(2 * length / chunk))


def _by_axis(given: Mapping[int | str, int], axes: tuple[int | str, ...], what: str, least: int, missing: int = 1) -> list[int]:
    """Returns one number for each sample axis: the one in ``given``, or else ``missing``.

    Raises
    ------
    InvalidArgumentError
        A number is given for an axis that is not a sample axis.
    """
    for axis in given:
        if axis not in axes:
            known = ", ".join(map(repr, axes))
            raise InvalidArgumentError(f"{what} names {axis!r}, which is no sample axis", hint=f"the sample axes are {known}")
    return [whole(given[axis], f"{what}[{axis!r}]", least) if axis in given else missing for axis in axes]


def _bounds(extent: int, given: Any, axis: int | str) -> tuple[int, int]:
    if given is None:
        return 0, extent
    with contextlib.suppress(TypeError, ValueError):
        low, high = (whole(one, f"within[{axis!r}]") for one in given)
        if 0 <= low < high <= extent:
            return low, high
    raise InvalidArgumentError(f"within[{axis!r}] is {given!r}, expected (start, stop) between 0 and {extent}")

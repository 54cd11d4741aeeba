"""Data sets of samples that are boxes of arrays: rows, windows, and crops at random places."""

from __future__ import annotations

import contextlib
import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from cuzarr._checks import element_type, whole
from cuzarr._compute.blocks import memory_limit_bytes
from cuzarr._compute.decoded import Decoding
from cuzarr._numpy import OF_TORCH
from cuzarr.errors import InvalidArgumentError
from cuzarr.loader.cells import Cells, cells_of, check_limit, chunk_edges, joined
from cuzarr.loader.crops import CropAxis, draw
from cuzarr.loader.plan import EpochPlan, Ints, Limits, plan_epoch
from cuzarr.loader.progress import Progress
from cuzarr.loader.reading import Batch, Clock, Counts, Held, Pass
from cuzarr.loader.shares import Share, batch_count, batch_sizes, in_order
from cuzarr.loader.variables import Form, Given, Part, Parts, Variable, Window, parse_window
from cuzarr.torch._epochs import EpochDataset, refuse_collation
from cuzarr.torch._tensors import to_tensor, torch_type

# What is read by one call, at most: the first batches wait for it.
_GROUP_BYTES = 512 << 20

# Where samples lie inside chunks, so many chunks are mixed at least.
_LEAST_MIXED = 8

# How often the thread that makes batches looks whether one was taken. A training loop that woke it by taking one would then wait for
# the interpreter, 0.5 ms a batch.
_PAUSE_SECONDS = 1e-3


@dataclass(frozen=True)
class _Epoch:
    """The samples of an epoch, and the cells that they are cut out of."""

    cells: Cells
    starts: Ints


class SampleDataset(EpochDataset):
    """The base of :class:`BatchDataset`, :class:`WindowDataset` and :class:`CropDataset`."""

    def __init__(
        self,
        variables: Given,
        window: Window,
        size: int,
        *,
        what: str,
        shuffle: bool,
        seed: int,
        memory_limit: int | str | None,
        drop_last: bool,
        transform: Callable[[Any], Any] | None,
        positions: bool,
        prefetch: int,
        pin_memory: bool,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        super().__init__(rank, world_size)
        self.parts: Parts = Parts(variables, parse_window(window, what))
        for part in self.parts.parts:
            torch_type(part.held), torch_type(part.dtype)
        self.size, self.prefetch = whole(size, "size", 1), whole(prefetch, "prefetch", 1)
        self.shuffle, self.seed, self.drop_last = bool(shuffle), whole(seed, "seed", 0), bool(drop_last)
        self.memory_limit: int = memory_limit_bytes(memory_limit)
        self.transform, self.positions, self.pin_memory = transform, bool(positions), bool(pin_memory)
        self._chunks = chunk_edges(self.parts, self.memory_limit)
        self._counts: Counts | None = None

    # What the kinds of data sets say.

    @property
    def samples(self) -> int:
        """Number of samples of an epoch, over all ranks."""
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
        refuse_collation(sys._getframe(1))
        worker = get_worker_info()
        workers = worker.num_workers if worker is not None else 1
        rank, world_size = self._place()
        start, sizes = batch_sizes(self.samples, self.size, world_size, rank, drop_last=self.drop_last)
        # Here, not in the generator: the state is asked for before the first batch.
        progress, share = self._begin(start, sizes)
        return self._batches(progress, share, workers, rank * workers + share.number)

    def _batches(self, progress: Progress, share: Share, workers: int, part: int) -> Iterator[Any]:
        """The batches of one share of an epoch, read ahead by a thread."""
        counts = self._counts = Counts()
        ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        left = threading.Event()
        begun = time.perf_counter()
        device = torch.device(self.parts.device)
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        opened: list[Pass] = []

        def put(item: Any) -> bool:
            while ready.qsize() >= self.prefetch:
                if left.wait(_PAUSE_SECONDS):
                    return False
            ready.put(item)
            return not left.is_set()

        def work() -> None:
            # PyTorch sets CUDA up for a missing stream, too, which a forked worker cannot do.
            on_stream = contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)
            try:
                with ThreadPoolExecutor(1, thread_name_prefix="cuzarr-cells") as pool, on_stream:
                    reading, plan = self._prepared(progress.epoch, share, workers, part, counts, stream)
                    opened.append(reading)
                    place = 0
                    for number, size in enumerate(share.sizes):
                        if left.is_set():
                            return
                        batch = self._batch(size, device)
                        reading.fill(batch, pool, place)
                        if number >= share.skipped:
                            rows = reading.starts[plan.order[place : place + size]] if self.positions else None
                            formed = self._formed(batch, rows)
                            if stream is not None:
                                stream.synchronize()
                            if not put((formed, None)):
                                return
                        place += size
                put((None, None))
            except BaseException as error:  # noqa: BLE001, it is raised where the batches are awaited
                put((None, error))

        thread = threading.Thread(target=work, name="cuzarr-samples", daemon=True)
        thread.start()
        try:
            sizes = iter(share.sizes[share.skipped :])
            while True:
                with Clock(counts):
                    batch, error = ready.get()
                counts.seconds = time.perf_counter() - begun
                if error is not None:
                    raise error
                if batch is None:
                    return
                progress.batches += 1
                counts.batches += 1
                counts.samples += next(sizes)
                if stream is not None:
                    _record(batch, torch.cuda.current_stream(device))
                yield batch
        finally:
            left.set()
            for reading in opened:
                reading.watch.cancel()
            thread.join()

    def _prepared(self, epoch: int, share: Share, workers: int, part: int, counts: Counts, stream: Any) -> tuple[Pass, EpochPlan]:
        """The plan of one share of an epoch, ready to be carried out."""
        random = self._random(epoch, 0)
        found = self._epoch_of(random)
        order = in_order(found.cells, found.starts, self.parts.window, random).part(share.start, share.count)
        is_mixed = random is not None and order.are_apart and found.cells.are_chunks
        limit, least = self.memory_limit // workers, _LEAST_MIXED if is_mixed else 1
        check_limit(found.cells, limit, least, workers)
        limits, group = _limits(found.cells, limit - found.cells.whole_bytes, least, order.are_apart)
        touched = order.lowest, order.highest
        plan = plan_epoch(*touched, found.cells.grid, found.cells.sizes, limits, self._random(epoch, 1 + part))
        held = Held(self.parts, found.cells, plan, counts, np.asarray if stream is None else to_tensor)
        settle = (lambda: None) if stream is None else stream.synchronize
        return Pass(held, order.starts, touched, limit, group, settle), plan

    def _batch(self, size: int, device: torch.device) -> Batch:
        pinned = self.pin_memory and device.type == "cpu"
        shapes = [(size, *part.sample_shape) for part in self.parts.parts]
        tensors = [
            torch.empty(shape, dtype=_gathered(part), device=device, pin_memory=pinned)
            for shape, part in zip(shapes, self.parts.parts, strict=True)
        ]
        return Batch(size, tensors, tensors if device.type == "cuda" else list(map(_as_array, tensors)))

    def _formed(self, batch: Batch, rows: Ints | None) -> Any:
        """A batch as the caller gets it."""
        values = [_finished(raw, part) for raw, part in zip(batch.tensors, self.parts.parts, strict=True)]
        formed = self.parts.form.of(values)
        if self.transform is not None:
            formed = self.transform(formed)
        return formed if rows is None else (formed, torch.from_numpy(rows))

    def report(self) -> dict[str, Any] | None:
        """A report of the last pass in this process.

        Returns
        -------
        dict or None
            ``samples``, ``batches``, ``chunks``, ``chunk_reads``, ``reads_per_chunk``, ``read_bytes``, ``peak_bytes`` (elements
            that were held, without batches), ``memory_limit``, ``waited_seconds`` and ``seconds``. ``None`` before the first pass,
            and where worker processes read.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> from cuzarr.torch import WindowDataset
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
        return {**{name: int(getattr(self, name)) for name in names}, "world_size": world_size}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_counts": None}


def _limits(cells: Cells, limit: int, least: int, are_apart: bool) -> tuple[Limits, int]:
    """What an epoch may hold, and how much is read by one call, if at least ``least`` cells are to be mixed."""
    largest, whole_size = int(cells.sizes.max(initial=0)), int(cells.sizes.sum())
    frontier = 0 if are_apart else max(largest, limit // 4)
    room = limit - frontier - 2 * largest
    group = max(largest, min(limit // 8, _GROUP_BYTES, (room - least * largest) // 2))
    mixed = max(room - 2 * group, largest if limit < whole_size else whole_size)
    return Limits(mixed, frontier, max(_LEAST_MIXED * largest, group)), group


_SIGNED = {16: torch.int16, 32: torch.int32, 64: torch.int64}


def _gathered(part: Part) -> torch.dtype:
    """The type in which samples are put together: what has to be scaled, as it is stored."""
    return torch_type(part.dtype if part.is_plain else part.held)


def _as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """NumPy's view of a tensor in host memory."""
    native = element_type(tensor.dtype)
    if native.name in OF_TORCH:
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[native.itemsize]
        array: np.ndarray[Any, Any] = tensor.view(bits).numpy().view(native)
        return array
    return tensor.numpy()  # type: ignore[no-any-return]


def _finished(raw: torch.Tensor, part: Part) -> torch.Tensor:
    """The samples of one array, decoded, scaled and converted."""
    if part.decoding is not None:
        raw = _decoded(raw, part.decoding)
    for dimension in sorted(part.dropped, reverse=True):
        raw = raw.squeeze(1 + dimension)
    if not part.scaling.is_plain:
        raw = _scaled(raw, part)
    return raw if part.is_plain else raw.to(torch_type(part.dtype))


def _scaled(raw: torch.Tensor, part: Part) -> torch.Tensor:
    """Scaled samples. Each step is an operation of its own, so that the CPU and the GPU round alike."""
    scaling = part.scaling
    held = part.held if part.decoding is None else part.decoding.dtype
    work = torch_type(scaling.work_type(held, part.dtype))

    def tensor(value: Any) -> torch.Tensor:
        return torch.as_tensor(value, dtype=torch.float64, device=raw.device)

    values = raw.to(work, copy=True)
    if scaling.is_scaled:
        values = values.mul_(tensor(scaling.factor).to(work)).add_(tensor(scaling.shift).to(work))
    if np.any(scaling.mean):
        # A mean may have more digits than float32 keeps: what it loses is subtracted, too.
        mean = tensor(scaling.mean)
        values = values.sub_(mean.to(work)).sub_((mean - mean.to(work)).to(work))
    return values.div_(tensor(scaling.std).to(work))


def _decoded(raw: torch.Tensor, decoding: Decoding) -> torch.Tensor:
    """Stored elements as the numbers that they stand for, in the type of the rule."""
    if decoding.read_as is not None:
        raw = raw.view(torch_type(decoding.read_as))
    if decoding.dtype.kind in "iu":
        return raw
    # Truths are made of what the other attributes leave.
    work = torch.float64 if decoding.dtype.kind == "b" else torch_type(decoding.dtype)
    numbers = raw.to(work, copy=True)
    if decoding.scale is not None:
        numbers *= decoding.scale
    if decoding.offset is not None:
        numbers += decoding.offset
    # PyTorch has few operators of unsigned integers of 2 to 8 bytes, but compares all as binary64 or as signed ones.
    is_wide = raw.dtype in (torch.uint16, torch.uint32, torch.uint64)
    for mark in decoding.missing:
        bits = 8 * raw.element_size()
        stored = raw.view(_SIGNED[bits]) if is_wide else raw
        wrapped = mark - (1 << bits) if is_wide and mark >= 1 << (bits - 1) else mark
        numbers.masked_fill_(stored == wrapped, torch.nan)
    return numbers.ne(0) if decoding.dtype.kind == "b" else numbers


def _record(value: Any, stream: Any) -> None:
    """Says which stream uses the tensors of a batch, so that their memory is not given away too early."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            value.record_stream(stream)
    elif isinstance(value, Mapping):
        for one in value.values():
            _record(one, stream)
    elif isinstance(value, list | tuple):
        for one in value:
            _record(one, stream)


class BatchDataset(SampleDataset):
    """A data set of batches of rows along the first dimension of one or several arrays.

    Each stored chunk is read and decoded once an epoch. With ``shuffle``, chunks are read in random order, and the rows of at
    least eight chunks are mixed; a larger ``memory_limit`` mixes more. Ranks and workers get other chunks each epoch, from
    everywhere in the arrays. Small arrays whose chunks are longer than those of the others are read once and held whole: labels
    beside images.

    Hand it to a ``DataLoader`` with ``batch_size=None``, or iterate it. A thread of the same process reads ahead. The ranks of
    ``torch.distributed`` share the rows: each row comes once, every rank gets equally many batches, and the last batches may be
    smaller.

    Parameters
    ----------
    arrays : array, Variable, or list, tuple or dictionary of them
        Arrays of equal length, or their paths, URLs or stores, or :class:`Variable` for another element type or scaling. Several
        give tuples; a dictionary gives dictionaries.
    size : int
        Rows of a batch.
    shuffle : bool
        Whether rows come in random order. Without it, they come in their order; each of several workers gives its own stretch.
    seed, memory_limit, drop_last, transform, positions, prefetch, pin_memory, rank, world_size
        As for :class:`WindowDataset`. With ``positions=True``, positions are the numbers of rows, of shape (rows, 1).

    Raises
    ------
    BudgetExceededError
        Twelve chunks do not fit in the limit; without shuffling, four. Raised when a pass begins.
    InvalidArgumentError, ShapeMismatchError
        The arrays are not equally long, or a number is not allowed.
    UnsupportedError, DTypeMismatchError
        The elements are no numbers, or PyTorch has no such numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(6.0).reshape(3, 2))
    >>> [batch.shape for batch in cuzarr.torch.BatchDataset(array, 2)]
    [torch.Size([2, 2]), torch.Size([1, 2])]
    """

    def __init__(
        self,
        arrays: Given,
        size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        memory_limit: int | str | None = None,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        positions: bool = False,
        prefetch: int = 2,
        pin_memory: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        form = Form(arrays)
        super().__init__(
            form.of([_row_of(one) for one in form.given]),
            {0: 1},
            size,
            what="window",
            shuffle=shuffle,
            seed=seed,
            memory_limit=memory_limit,
            drop_last=drop_last,
            transform=transform,
            positions=positions,
            prefetch=prefetch,
            pin_memory=pin_memory,
            rank=rank,
            world_size=world_size,
        )
        self._cells = cells_of(self.parts, self._chunks.edges, self._chunks)

    @property
    def samples(self) -> int:
        """Number of rows, over all ranks."""
        return self.parts.extents[0]

    def _epoch_of(self, random: np.random.Generator | None) -> _Epoch:
        return _Epoch(self._cells, np.arange(self.samples, dtype=np.int64)[:, None])


def _row_of(array: Any) -> Variable:
    """An array of which a sample has one row, without its dimension."""
    return replace(array, at={0: 0}) if isinstance(array, Variable) else Variable(array, at={0: 0})


class WindowDataset(SampleDataset):
    """A data set of windows. Each position of the window along the sample axes is a sample, and comes once an epoch.

    Reads are shuffled in blocks. Cells of whole chunks are read in random order, and samples of many cells are mixed within
    ``memory_limit``. Along one sample axis each stored chunk is read and decoded once an epoch, whatever the limit. Along several
    axes, windows that overlap may need some chunks twice when the limit is small; :meth:`report` counts them.

    Hand it to a ``DataLoader`` with ``batch_size=None``, or iterate it. On a GPU a thread of the same process reads ahead, and no
    workers are needed. With ``num_workers``, each worker reads cells of its own, within its part of the limit.

    Parameters
    ----------
    variables : array, Variable, or list, tuple or dictionary of them
        What a sample consists of: arrays, their paths, URLs or stores, or :class:`Variable` for arrays of which a sample has
        another window or element type. Several give tuples, and by name dictionaries.
    window : dict
        For each sample axis the number of elements of a sample, or offsets ``(start, stop)`` from its position:
        ``{"time": (-3, 1)}`` is three steps of history and the present one. Other dimensions are whole.
    size : int
        Samples of a batch.
    stride : int or dict
        Distance between positions along the sample axes.
    within : dict, optional
        For some sample axes the part ``(start, stop)`` that samples lie in, as for training and validation.
    shuffle : bool
        Whether positions come in random order. Without it, they come cell by cell, in C order.
    seed : int
        Determines the order, together with the epoch of :meth:`set_epoch`.
    memory_limit : int or str, optional
        Memory for elements, in bytes or as ``"4 GiB"``; by default the configured limit, else 1 GiB. Batches come on top.
    drop_last : bool
        Whether samples that do not fill a batch of every rank are left out. Otherwise each sample comes once over all ranks, and
        the last batches are smaller.
    transform : function, optional
        Applied to each batch, in the thread or worker that reads.
    positions : bool
        Whether batches are pairs ``(batch, positions)``, with positions of shape (samples, sample axes).
    prefetch : int
        Batches that are made ahead, at most.
    pin_memory : bool
        Whether batches in host memory are pinned, so that ``tensor.to("cuda", non_blocking=True)`` does not wait.
    rank, world_size : int, optional
        The number of this rank, and how many there are. By default as ``torch.distributed`` says when a pass begins, if it is
        initialised.

    Raises
    ------
    BudgetExceededError
        Four cells do not fit in the limit; or twelve chunks, where windows lie inside chunks and eight are mixed. Raised when a
        pass begins.
    InvalidArgumentError, ShapeMismatchError
        A window does not fit the arrays, or the arrays not each other.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> t2m = cuzarr.create_array({}, data=np.arange(24.0).reshape(12, 2), chunks=(3, 2), dimension_names=("time", "x"))
    >>> past, future = t2m, cuzarr.torch.Variable(t2m, window={"time": (1, 3)})
    >>> windows = cuzarr.torch.WindowDataset({"past": past, "future": future}, {"time": (-3, 1)}, size=4, seed=7)
    >>> batch = next(iter(windows))
    >>> batch["past"].shape, batch["future"].shape, windows.samples
    (torch.Size([4, 4, 2]), torch.Size([4, 2, 2]), 7)
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
        seed: int = 0,
        memory_limit: int | str | None = None,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        positions: bool = False,
        prefetch: int = 2,
        pin_memory: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(
            variables,
            window,
            size,
            what="window",
            shuffle=shuffle,
            seed=seed,
            memory_limit=memory_limit,
            drop_last=drop_last,
            transform=transform,
            positions=positions,
            prefetch=prefetch,
            pin_memory=pin_memory,
            rank=rank,
            world_size=world_size,
        )
        axes = self.parts.sample_axes
        strides = _by_axis(stride if isinstance(stride, Mapping) else dict.fromkeys(axes, stride), axes, "stride", 1)
        bounds = [_bounds(extent, (within or {}).get(axis), axis) for axis, extent in zip(axes, self.parts.extents, strict=True)]
        _by_axis(dict.fromkeys(within or {}, 1), axes, "within", 1)
        self._positions = [
            np.arange(low - first, high - stop + 1, step, dtype=np.int64)
            for (low, high), (first, stop), step in zip(bounds, self.parts.window, strides, strict=True)
        ]
        if not self.samples:
            shape = [stop - first for first, stop in self.parts.window]
            raise InvalidArgumentError(f"no window of {shape} elements fits in {bounds} along {list(axes)}")
        least = [max(stop - first - 1, 1) for first, stop in self.parts.window]
        # The last cell may be smaller: no window reaches across it.
        edges = tuple(joined(edge, one) for edge, one in zip(self._chunks.edges, least, strict=True))
        self._cells = cells_of(self.parts, edges, self._chunks)

    @property
    def samples(self) -> int:
        """Number of samples of an epoch, over all ranks."""
        return int(np.prod([len(axis) for axis in self._positions]))

    def _epoch_of(self, random: np.random.Generator | None) -> _Epoch:
        grid = np.meshgrid(*self._positions, indexing="ij")
        return _Epoch(self._cells, np.stack([axis.reshape(-1) for axis in grid], axis=1))


class CropDataset(SampleDataset):
    """A data set of crops at random positions. Every epoch has other crops.

    Each epoch the arrays are divided into blocks of whole chunks, at a random shift of whole chunks. Within an epoch, no crop
    crosses a block, so each stored chunk is read and decoded once an epoch at most. Shifts and positions are drawn so that over
    the epochs each position is equally likely. Blocks are read in random order, and the crops of many blocks are mixed within
    ``memory_limit``.

    Hand it to a ``DataLoader`` with ``batch_size=None``, or iterate it.

    Parameters
    ----------
    variables, size, seed, memory_limit, drop_last, transform, positions, prefetch, pin_memory, rank, world_size
        As for :class:`WindowDataset`.
    crop : dict
        For each sample axis the number of elements of a crop: ``{"z": 32, "y": 64, "x": 64}``. Other dimensions are whole.
    samples : int, optional
        Crops of an epoch; by default as many as cover the arrays once.
    block : dict, optional
        Elements of a block along some sample axes, rounded up to whole chunks; by default two crops and two chunks. Blocks get
        more chunks where crops at some positions would lie inside no block.

    Raises
    ------
    BudgetExceededError
        Four blocks do not fit in the limit. Raised when a pass begins.
    InvalidArgumentError, ShapeMismatchError
        A crop does not fit the arrays, or the arrays not each other.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> volume = cuzarr.create_array({}, data=np.ones((32, 32), "uint8"), chunks=(8, 8), dimension_names=("y", "x"))
    >>> crops = cuzarr.torch.CropDataset(volume, {"y": 4, "x": 4}, size=16)
    >>> len(crops), next(iter(crops)).shape
    (4, torch.Size([16, 4, 4]))
    """

    def __init__(
        self,
        variables: Given,
        crop: Mapping[int | str, int],
        size: int,
        *,
        samples: int | None = None,
        block: Mapping[int | str, int] | None = None,
        seed: int = 0,
        memory_limit: int | str | None = None,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        positions: bool = False,
        prefetch: int = 2,
        pin_memory: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(
            variables,
            crop,
            size,
            what="crop",
            shuffle=True,
            seed=seed,
            memory_limit=memory_limit,
            drop_last=drop_last,
            transform=transform,
            positions=positions,
            prefetch=prefetch,
            pin_memory=pin_memory,
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
        self._axes = [
            CropAxis(edges, length, _chunks_of_block(edges, length, extent))
            for edges, length, extent in zip(self._chunks.edges, self._lengths, blocks, strict=True)
        ]

    @property
    def samples(self) -> int:
        """Number of samples of an epoch, over all ranks."""
        return self._samples

    def _epoch_of(self, random: np.random.Generator | None) -> _Epoch:
        assert random is not None
        edges, corners = draw(self._axes, self._samples, random)
        first = [start for start, _ in self.parts.window]
        return _Epoch(cells_of(self.parts, edges, self._chunks), corners - np.asarray(first, np.int64))


def _chunks_of_block(edges: Ints, length: int, block: int) -> int:
    """How many chunks a block of at least ``block`` elements has along an axis; by default (0) two crops and two chunks."""
    chunk = float(np.diff(edges[:-1]).mean()) if len(edges) > 2 else float(edges[-1])
    if block:
        return max(math.ceil(max(block, length) / chunk), 1)
    return max(2, math.ceil(2 * length / chunk))


def _by_axis(given: Mapping[int | str, int], axes: tuple[int | str, ...], what: str, least: int, missing: int = 1) -> list[int]:
    """A number for each sample axis.

    Raises
    ------
    InvalidArgumentError
        One is for another axis.
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

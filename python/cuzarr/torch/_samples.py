"""Data sets of samples that are boxes of arrays: windows, and crops at random places."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from cuzarr._checks import element_type, whole
from cuzarr._compute.blocks import memory_limit_bytes
from cuzarr._compute.decoded import Decoding
from cuzarr._numpy import OF_TORCH
from cuzarr._samples.cells import Cells, cells_of, check_limit, chunk_extents
from cuzarr._samples.plan import Ints, Limits, plan_epoch
from cuzarr._samples.reading import Batch, Clock, Counts, Held, Pass
from cuzarr._samples.shares import Share, batch_count, batch_sizes, shares_of_workers
from cuzarr._samples.variables import Part, Parts, parse_window
from cuzarr.errors import InvalidArgumentError
from cuzarr.torch._epochs import EpochDataset
from cuzarr.torch._tensors import to_tensor, torch_type

# What is read by one call, at most: the first batches wait for it.
_GROUP_BYTES = 512 << 20

# How often the thread that makes batches looks whether one was taken. A training loop that woke it by taking one would then wait for
# the interpreter, 0.5 ms a batch.
_PAUSE_SECONDS = 1e-3


@dataclass(frozen=True)
class _Epoch:
    """The samples of an epoch, in the order of their cells."""

    cells: Cells
    starts: Ints


class SampleDataset(EpochDataset):
    """What :class:`WindowDataset` and :class:`CropDataset` have in common."""

    def __init__(
        self,
        variables: Any,
        window: Any,
        size: int,
        *,
        what: str,
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
        self.seed, self.drop_last = whole(seed, "seed", 0), bool(drop_last)
        self.memory_limit: int = memory_limit_bytes(memory_limit)
        self.transform, self.positions, self.pin_memory = transform, bool(positions), bool(pin_memory)
        self._taken = 0
        self._counts: Counts | None = None

    # What the two kinds of data sets say.

    @property
    def samples(self) -> int:
        """Number of samples of an epoch, over all ranks."""
        raise NotImplementedError

    def _epoch_of(self, epoch: int) -> _Epoch:
        raise NotImplementedError

    def _random(self, epoch: int, *more: int) -> np.random.Generator | None:
        return np.random.default_rng((self.seed, epoch, *more))

    # Batches.

    def __len__(self) -> int:
        _, world_size = self._place()
        count = batch_count(self.samples, self.size, world_size, drop_last=self.drop_last)
        return count - self._done(self.epoch)

    def _done(self, epoch: int) -> int:
        """Batches of an epoch that were taken before the data set's state was saved."""
        _, resumed, done = self._shared.tolist()
        return done if resumed == epoch else 0

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        rank, world_size = self._place()
        epoch = self.epoch
        done = self._done(epoch)
        start, sizes = batch_sizes(self.samples, self.size, world_size, rank, drop_last=self.drop_last)
        share = shares_of_workers(start, sizes, workers, done)[number]
        self._taken = done
        for batch in self._batches(epoch, share, self.memory_limit // workers, rank * workers + share.number):
            self._taken += 1
            yield batch

    def _batches(self, epoch: int, share: Share, limit: int, part: int) -> Iterator[Any]:
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
                    reading, plan, starts = self._prepared(epoch, share, limit, part, counts, stream)
                    opened.append(reading)
                    place = 0
                    for number, size in enumerate(share.sizes):
                        if left.is_set():
                            return
                        batch = self._batch(size, device)
                        reading.fill(batch, pool, place)
                        if number >= share.skipped:
                            rows = starts[plan.order[place : place + size]] if self.positions else None
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

    def _prepared(self, epoch: int, share: Share, limit: int, part: int, counts: Counts, stream: Any) -> tuple[Pass, Any, Ints]:
        """The plan of one share of an epoch, ready to be carried out, with its samples' positions."""
        found = self._epoch_of(epoch)
        check_limit(found.cells, limit)
        starts = found.starts[share.start : share.start + share.count]
        touched = found.cells.touched(starts, self.parts.window)
        largest, whole_size = int(found.cells.sizes.max(initial=0)), int(found.cells.sizes.sum())
        group = max(largest, min(limit // 8, _GROUP_BYTES))
        frontier = max(largest, limit // 4) if bool((touched[0] != touched[1]).any()) else 0
        mixed = max(limit - frontier - 2 * group - 2 * largest, largest if limit < whole_size else whole_size)
        limits = Limits(mixed, frontier)
        plan = plan_epoch(*touched, found.cells.grid, found.cells.sizes, limits, self._random(epoch, 1 + part))
        held = Held(self.parts, found.cells, plan, counts, np.asarray if stream is None else to_tensor)
        settle = (lambda: None) if stream is None else stream.synchronize
        return Pass(held, starts, touched, limit, group, settle), plan, starts

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
        formed = self.parts.form(values)
        if self.transform is not None:
            formed = self.transform(formed)
        return formed if rows is None else (formed, torch.from_numpy(rows))

    # Where a program was.

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

    def state_dict(self, batches: int | None = None) -> dict[str, int]:
        """The place where this rank is: the epoch, and how many of its batches were taken.

        Parameters
        ----------
        batches : int, optional
            Batches of this epoch that the program took. Pass it where worker processes read, because the data set of the main
            process does not see their batches.

        Returns
        -------
        dict of str to int
            The state, for :meth:`load_state_dict`.

        Raises
        ------
        InvalidArgumentError
            ``batches`` is negative.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> from cuzarr.torch import WindowDataset
        >>> array = cuzarr.create_array({}, data=np.arange(8.0), chunks=(4,))
        >>> dataset = WindowDataset(array, {0: 1}, 4)
        >>> batch = next(iter(dataset))
        >>> dataset.state_dict()["batches"]
        1
        """
        taken = self._taken if batches is None else whole(batches, "batches", 0)
        return {"epoch": self.epoch, "batches": taken, **self._identity()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where a program was: the next pass of that epoch gives the batches that were not taken, in their order.

        The number of ranks and worker processes must be the same.

        Parameters
        ----------
        state : mapping
            What :meth:`state_dict` returned.

        Raises
        ------
        InvalidArgumentError
            The state is that of another data set.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> from cuzarr.torch import WindowDataset
        >>> array = cuzarr.create_array({}, data=np.arange(8.0), chunks=(4,))
        >>> dataset = WindowDataset(array, {0: 1}, 4)
        >>> state = dataset.state_dict(batches=1)
        >>> again = WindowDataset(array, {0: 1}, 4)
        >>> again.load_state_dict(state)
        >>> len(again)
        1
        """
        own = self._identity()
        if missing := {"epoch", "batches", *own} - set(state):
            raise InvalidArgumentError(f"the state has no {sorted(missing)}", hint="pass what state_dict() gave")
        for name, value in own.items():
            if state[name] != value:
                raise InvalidArgumentError(f"the state has {name} {state[name]}, this data set {value}")
        epoch, batches = int(state["epoch"]), int(state["batches"])
        self._shared.copy_(torch.tensor([epoch, epoch, batches]))
        self._taken = batches

    def _identity(self) -> dict[str, int]:
        _, world_size = self._place()
        return {"samples": self.samples, "size": self.size, "seed": self.seed, "world_size": world_size}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_counts": None}


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
    scaling = part.scaling
    wanted = torch_type(part.dtype)
    if part.decoding is not None:
        raw = _decoded(raw, part.decoding)
    if not scaling.is_plain:
        work = torch.float64 if wanted == torch.float64 else torch.float32
        factor, shift = (torch.as_tensor(one, dtype=work, device=raw.device) for one in (scaling.factor, scaling.shift))
        raw = torch.addcmul(shift, raw.to(work), factor)
    if not part.is_plain:
        raw = raw.to(wanted)
    for dimension in sorted(part.dropped, reverse=True):
        raw = raw.squeeze(1 + dimension)
    return raw


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
        Four cells do not fit in the limit. Raised when a pass begins.
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
        variables: Any,
        window: Any,
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
        self.shuffle = bool(shuffle)
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
        least = tuple(max(stop - first - 1, 1) for first, stop in self.parts.window)
        chunks = chunk_extents(self.parts)
        extents = tuple(-(-one // chunk) * chunk for one, chunk in zip(least, chunks, strict=True))
        # Cells at the ends may be smaller: no window reaches across them.
        self._cells = cells_of(self.parts, extents, (0,) * len(extents), (1,) * len(extents))

    @property
    def samples(self) -> int:
        """Number of samples of an epoch, over all ranks."""
        return int(np.prod([len(axis) for axis in self._positions]))

    def _random(self, epoch: int, *more: int) -> np.random.Generator | None:
        return super()._random(epoch, *more) if self.shuffle else None

    def _epoch_of(self, epoch: int) -> _Epoch:
        grid = np.meshgrid(*self._positions, indexing="ij")
        starts = np.stack([axis.reshape(-1) for axis in grid], axis=1)
        if len(self._positions) > 1:
            lowest, _ = self._cells.touched(starts, self.parts.window)
            flat = np.ravel_multi_index(tuple(lowest.T), self._cells.grid)
            starts = starts[np.argsort(flat, kind="stable")]
        random = self._random(epoch, 0)
        if random is not None:
            # Ranks and workers get stretches of samples: others each epoch.
            starts = np.roll(starts, int(random.integers(len(starts))), axis=0)
        return _Epoch(self._cells, starts)


class CropDataset(SampleDataset):
    """A data set of crops at random positions. Every epoch has other crops.

    Each epoch the arrays are divided into blocks of whole chunks, at a random shift, and crops are taken within blocks. So each
    stored chunk is read and decoded once an epoch at most, and over the epochs crops come from everywhere. Blocks are read in
    random order, and the crops of many blocks are mixed within ``memory_limit``.

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
        Elements of a block along some sample axes, rounded up to whole chunks; by default two crops and two chunks.

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
        variables: Any,
        crop: Any,
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
        self._chunks = chunk_extents(self.parts)
        wanted = [max(2 * chunk, 2 * length) for chunk, length in zip(self._chunks, self._lengths, strict=True)]
        for axis, extent in zip(axes, _by_axis(block or {}, axes, "block", 1, missing=0), strict=True):
            at = axes.index(axis)
            wanted[at] = max(extent, self._lengths[at]) if extent else wanted[at]
        self._block = tuple(-(-one // chunk) * chunk for one, chunk in zip(wanted, self._chunks, strict=True))

    @property
    def samples(self) -> int:
        """Number of samples of an epoch, over all ranks."""
        return self._samples

    def _epoch_of(self, epoch: int) -> _Epoch:
        random = np.random.default_rng((self.seed, epoch, 0))
        shift = tuple(
            int(random.integers(block // chunk)) * chunk for block, chunk in zip(self._block, self._chunks, strict=True)
        )
        cells = cells_of(self.parts, self._block, shift, self._lengths)
        volumes = np.ones(cells.grid, np.float64)
        for axis, edge in enumerate(cells.edges):
            volumes *= np.diff(edge).reshape([-1 if one == axis else 1 for one in range(len(cells.edges))])
        # Evenly spaced in the volume, so that each block gets its share.
        shares = np.cumsum(volumes.reshape(-1)) / volumes.sum()
        chosen = np.searchsorted(shares, (np.arange(self._samples) + random.random()) / self._samples, side="right")
        blocks = np.unravel_index(np.minimum(chosen, len(shares) - 1), cells.grid)
        starts = np.empty((self._samples, len(cells.edges)), np.int64)
        for axis, (edge, places, length) in enumerate(zip(cells.edges, blocks, self._lengths, strict=True)):
            starts[:, axis] = random.integers(edge[places], edge[places + 1] - length + 1) - self.parts.window[axis][0]
        return _Epoch(cells, starts)


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

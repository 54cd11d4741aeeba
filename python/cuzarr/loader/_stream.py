"""A data set for training that takes samples from any arrays, in an order that the user chooses."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import math
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cuzarr import _core
from cuzarr._checks import whole
from cuzarr._memory.box import Box, basic_box
from cuzarr._node.array import Array
from cuzarr._node.many import read_parts
from cuzarr.errors import (
    ArgumentTypeError,
    BudgetExceededError,
    CancelledError,
    ConfigInvalidError,
    CuzarrError,
    CuzarrRuntimeWarning,
    DeviceFailedError,
    DeviceUnavailableError,
    FallbackRefusedError,
    InvalidArgumentError,
    KernelCompileFailedError,
    LibraryMissingError,
    OutOfMemoryError,
)
from cuzarr.loader._ahead import ahead
from cuzarr.loader._epochs import EpochDataset
from cuzarr.loader._handles import Handles
from cuzarr.loader._library import Library
from cuzarr.loader._progress import Progress
from cuzarr.loader._reading import Clock, Taken
from cuzarr.loader._shares import Share

if TYPE_CHECKING:
    from cuzarr.typing import Selection, StoreLike, SupportsStorePath

    Sample: TypeAlias = Mapping[str, tuple[Array | SupportsStorePath | StoreLike, Selection]]
    Samples: TypeAlias = Sequence[Sample] | Callable[[int], Iterable[Sample]]

# Failures whose cause is not the sample.
_NOT_OF_SAMPLES = (
    BudgetExceededError,
    CancelledError,
    ConfigInvalidError,
    DeviceFailedError,
    DeviceUnavailableError,
    FallbackRefusedError,
    KernelCompileFailedError,
    LibraryMissingError,
    OutOfMemoryError,
)

# Number of batches that are read at once: while one is decoded, the next one is planned.
_READ_AT_ONCE = 2

# Number of arrays that are opened at once.
_OPENED_AT_ONCE = 64


Numbered = tuple[int, Any]
"""The number of a sample in the epoch, and the sample as the user gave it."""


@dataclass(frozen=True)
class _Part:
    """One part of a sample: a box of an array, which is read from the store."""

    array: Array
    box: Box

    @property
    def dtype(self) -> np.dtype[Any]:
        # Text has no byte order.
        own = self.array.dtype
        return own if own.kind in "OT" else own.newbyteorder("=")

    @property
    def size_bytes(self) -> int:
        return math.prod(self.box.shape) * self.dtype.itemsize

    @property
    def form(self) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
        """The shape and element type of this part of a sample. Parts with equal forms are stacked. ``None`` for elements of variable
        length, which are not stacked."""
        return None if self.array.metadata.data_type.is_variable else (self.box.shape, self.dtype)


_Parts = dict[str, _Part]


@dataclass
class _Read:
    """One batch of a stream, from the start of its read until the user gets it.

    Attributes
    ----------
    samples : list
        Its samples, with their numbers.
    skipped : int
        How many bad samples were left out.
    failure : Exception, optional
        The reason why the read was not begun.
    stacks : dict
        Memory for the parts that are stacked.
    future : Future
        The result of the read: a list of the elements of all samples, part by part.
    batch : dict
        The batch in the form that the caller gets.
    """

    samples: list[tuple[int, _Parts]] = field(default_factory=list)
    skipped: int = 0
    failure: Exception | None = None
    stacks: dict[str, Any] = field(default_factory=dict)
    future: Future[list[Any]] | None = None
    batch: dict[str, Any] = field(default_factory=dict)

    def elements(self) -> list[Any]:
        """Waits until the batch has been read, and returns its elements."""
        assert self.future is not None
        return self.future.result()


@dataclass
class _Counts(Taken):
    """Numbers about one reading of a stream of samples, which :meth:`SampleStream.report` returns."""

    skipped: int = 0
    read_bytes: int = 0

    def add(self, read: _Read) -> None:
        """Adds one batch, which was returned to the user, to the counts of batches, samples, skipped samples and bytes."""
        self.batches += 1
        self.samples += len(read.samples)
        self.skipped += read.skipped
        self.read_bytes += sum(part.size_bytes for _, parts in read.samples for part in parts.values())


class SampleStream(EpochDataset):
    """A stream of samples of any arrays, in the order that the caller chooses: crops of many volumes, frames of many videos.

    A sample names, for each of its parts, an array and a selection. Arrays may differ in store, shape, codecs and element type. The
    samples of a batch are read by one call, ahead of the caller, so that their chunks share transfers and launches. A chunk that
    several samples of a batch need is decoded once.

    A batch is a dictionary. Parts of one shape and element type are stacked along a new first dimension. Parts that differ, and text,
    come as a list.

    Leaving the loop early ends the reads. It waits until ``samples`` has returned the last requested sample, so that no two passes use
    ``samples`` at once.

    Parameters
    ----------
    samples : sequence, or function
        The samples of an epoch: a sequence, or a function that returns them for the number of an epoch, for another order each time. Each
        sample is a dictionary of pairs: an array, or its path, URL or store, and a selection as for :meth:`Array.get_basic_selection
        <cuzarr.Array.get_basic_selection>`. The samples must be the same on every rank: sample ``k`` comes on rank ``k`` modulo the
        number of ranks. Samples at the end that would not reach every rank are left out.
    batch_size : int
        Number of samples of a batch. The last batch may have fewer, equally on all ranks.
    prefetch : int
        Largest number of batches that are ready for the caller. While fewer are ready, up to two more are read at once.
    skip_bad : bool
        Whether samples that cannot be read are left out. A warning names the first one, and :meth:`report` counts them. Their batch is
        smaller, so that all ranks have the same number of batches. A batch without any sample has an empty list for each part. Failures
        with another cause, such as a lack of memory, are always errors.
    drop_last : bool
        Whether a last batch that is not full is left out.
    rank, world_size : int, optional
        The number of this rank, and the number of ranks. The data sets for PyTorch and JAX take them from their framework.

    Raises
    ------
    ArgumentTypeError, InvalidArgumentError
        An argument is not allowed.
    CuzarrError
        From iterating: a sample of the batch cannot be read. The error names the sample.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> volumes = [cuzarr.create_array({}, data=np.full((8 + n, 8), n), chunks=(4, 4)) for n in range(3)]
    >>> samples = [{"image": (volume, np.s_[row : row + 2, 2:6])} for row in range(2) for volume in volumes]
    >>> stream = cuzarr.loader.SampleStream(samples, 4)
    >>> [batch["image"][:, 0, 0].tolist() for batch in stream]
    [[0, 1, 2, 0], [1, 2]]

    Another order each epoch:

    >>> def shuffled(epoch):
    ...     return (samples[k] for k in np.random.default_rng(epoch).permutation(len(samples)))
    >>> stream = cuzarr.loader.SampleStream(shuffled, 4)
    >>> stream.set_epoch(1)
    >>> sum(len(batch["image"]) for batch in stream)
    6
    """

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        prefetch: int = 2,
        *,
        skip_bad: bool = False,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(rank, world_size)
        if not callable(samples) and (not isinstance(samples, Sequence) or isinstance(samples, str | bytes)):
            hint = "pass a list, or a function from the number of an epoch to an iterable"
            raise ArgumentTypeError(f"samples is {type(samples).__name__}, expected a sequence or a function", hint=hint)
        self.samples = samples
        self.batch_size, self.prefetch = whole(batch_size, "batch_size", 1), whole(prefetch, "prefetch", 1)
        self.skip_bad, self.drop_last = bool(skip_bad), bool(drop_last)
        self._counts: _Counts | None = None

    def __len__(self) -> int:
        if callable(self.samples):
            raise ArgumentTypeError("a stream of a function's samples has no length", hint="pass a sequence of samples")
        _, world_size = self._place()
        full, rest = divmod(len(self.samples) // world_size, self.batch_size)
        return max(full + bool(rest and not self.drop_last) - self._taken_before(), 0)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = self._worker()
        rank, world_size = self._place()
        progress, share = self._begin(_shares_in_turn)
        step, left = 1 if worker is None else worker.count, threading.Event()
        wanted = self._wanted(progress.epoch, (rank, world_size), share.number + share.skipped * step, step, left)
        return self._batches(progress, wanted, left)

    def _wanted(
        self, epoch: int, place: tuple[int, int], first: int, step: int, left: threading.Event
    ) -> Iterator[list[Numbered]]:
        """Yields the samples of every ``step``-th batch of a rank, from batch ``first`` on: the batches that one worker reads.

        After the caller has left the loop, no further sample is requested.
        """
        size, given = self.batch_size, self.samples

        def is_awaited(_: Any) -> bool:
            return not left.is_set()

        wanted: Iterator[list[Numbered]]
        if callable(given):
            own = _own_of(given(epoch), *place, is_awaited)
            batches = iter(lambda: list(itertools.islice(own, size)), [])
            wanted = itertools.islice(batches, first, None, step)
        else:
            numbers = _own_numbers(len(given), *place)
            starts = range(first * size, len(numbers), step * size)
            batch_numbers = (itertools.takewhile(is_awaited, numbers[start : start + size]) for start in starts)
            wanted = ([(number, given[number]) for number in own_numbers] for own_numbers in batch_numbers)
        return (batch for batch in wanted if len(batch) == size or not self.drop_last)

    def _batches(
        self, progress: Progress, wanted: Iterator[list[Numbered]], left: threading.Event
    ) -> Generator[dict[str, Any], None, None]:
        """Yields the batches of samples of an epoch, which a thread reads ahead."""
        counts = self._counts = _Counts()
        started = time.perf_counter()
        reader = _Reader(self._library, self.skip_bad)

        def make() -> Generator[_Read, None, None]:
            begun: deque[_Read] = deque()
            with reader:
                for batch in _then_failure(wanted):
                    if left.is_set():
                        return
                    begun.append(reader.begin(batch))
                    if len(begun) == min(_READ_AT_ONCE, self.prefetch):
                        yield reader.finish(begun.popleft())
                while begun:
                    yield reader.finish(begun.popleft())

        with contextlib.closing(ahead(make, self.prefetch, left, reader.cancel)) as batches:
            while True:
                with Clock(counts):
                    read = next(batches, None)
                counts.seconds = time.perf_counter() - started
                if read is None:
                    return
                progress.batches += 1
                counts.add(read)
                batch = read.batch
                del read
                reader.library.hand_over(batch)
                yield batch
                del batch  # not kept while the next one is waited for

    def report(self) -> dict[str, int | float] | None:
        """Numbers about the last pass over the stream in this process: samples, batches, bad samples, bytes read and time waited.

        Returns
        -------
        dict or None
            ``samples``, ``batches``, ``skipped`` (bad samples that were left out), ``read_bytes`` (elements of batches),
            ``waited_seconds`` and ``seconds``. ``None`` before the first pass, and if worker processes read.

        Examples
        --------
        >>> import cuzarr
        >>> array = cuzarr.zeros((8, 4), store={}, dtype="u1")
        >>> stream = cuzarr.loader.SampleStream([{"x": (array, row)} for row in range(8)], 3)
        >>> batches = list(stream)
        >>> stream.report()["samples"], stream.report()["read_bytes"]
        (8, 32)
        """
        return None if self._counts is None else dict(vars(self._counts))

    def _identity(self) -> dict[str, int]:
        _, world_size = self._place()
        count = {} if callable(self.samples) else {"samples": len(self.samples)}
        return {**count, "batch_size": self.batch_size, "drop_last": int(self.drop_last), "world_size": world_size}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_counts": None}


def _own_numbers(count: int, rank: int, world_size: int) -> range:
    """The indices of the samples that belong to a rank, if the number of samples is known. An incomplete last round, which does not reach
    every rank, is left out."""
    return range(rank, count // world_size * world_size, world_size)


def _own_of(samples: Iterable[Any], rank: int, world_size: int, is_awaited: Callable[[Any], bool]) -> Iterator[Numbered]:
    """Yields the samples that belong to a rank, with their numbers, from an iterable of all samples. An incomplete last round, which does
    not reach every rank, is left out."""
    if isinstance(samples, str | bytes | Mapping) or not isinstance(samples, Iterable):
        raise ArgumentTypeError(f"the function of samples gave {type(samples).__name__}, expected an iterable of samples")
    numbered = itertools.takewhile(is_awaited, enumerate(samples))
    while len(turn := list(itertools.islice(numbered, world_size))) == world_size:
        yield turn[rank]


def _shares_in_turn(workers: int, done: int) -> list[Share]:
    """Divides a stream's batches among the worker processes of a rank, if ``done`` of the batches were already taken: PyTorch takes batches
    from the workers in turn."""
    own = [(worker + done) % workers for worker in range(workers)]
    return [Share(number, skipped=len(range(number, done, workers))) for number in own]


def _then_failure(batches: Iterator[list[Numbered]]) -> Iterator[list[Numbered] | Exception]:
    """Yields the user's batches, and at last the exception that the user's code raised, if any. The reader raises it after the batches
    before it."""
    try:
        yield from batches
    except Exception as error:  # noqa: BLE001, the reader raises it
        yield error


class _Reader:
    """The reader of a stream of samples, which reads a few batches at the same time. One thread calls its methods, apart from
    :meth:`cancel`.

    Attributes
    ----------
    library : Library
        The library that makes batches. Its device is that of the first array.
    """

    def __init__(self, library_of: Callable[[str], Library], skip_bad: bool) -> None:
        self._library_of, self._skip_bad = library_of, skip_bad
        self.library = library_of("cpu")
        self._device: str | None = None
        self._names: tuple[str, ...] | None = None
        self._handles = Handles()
        self._watch = _core.Watch()
        self._has_warned = False
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> _Reader:
        self._opening = self._exits.enter_context(ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="cuzarr-open"))
        self._reading = self._exits.enter_context(ThreadPoolExecutor(_READ_AT_ONCE, thread_name_prefix="cuzarr-reads"))
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def cancel(self) -> None:
        """Cancels all reads of samples, including those that begin later."""
        self._watch.cancel()

    def begin(self, batch: list[Numbered] | Exception) -> _Read:
        """Opens the arrays of a batch, and starts to read it in the background. :meth:`finish` raises errors, after the batches before this
        one."""
        if isinstance(batch, Exception):
            return _Read(failure=batch)
        self._handles.open_ahead((given for _, sample in batch for given in _arrays_of(sample)), self._opening)
        read = _Read()
        try:
            for number, sample in batch:
                self._add(read, number, sample)
        except Exception as error:  # noqa: BLE001, it is raised when the batch's turn has come
            return _Read(failure=error)
        return self._started(read)

    def finish(self, read: _Read) -> _Read:
        """Waits until a batch has been read, and converts it to the form that the user gets.

        Raises
        ------
        CuzarrError
        """
        if read.failure is not None:
            raise read.failure
        try:
            results = iter(read.elements())
        except CuzarrError as error:
            read = self._without_bad(read, error)
            results = iter(read.elements())
        for name in self._names or ():
            own = list(itertools.islice(results, len(read.samples)))
            stack = read.stacks.get(name)
            read.batch[name] = [self.library.converted(one) for one in own] if stack is None else self.library.delivered(stack)
        read.stacks.clear()
        self.library.settle()
        return read

    def _add(self, read: _Read, number: int, sample: Any) -> None:
        """Adds the boxes of arrays that one sample names to the reads of a batch. A bad sample (one that cannot be read) is left out or
        raises an error."""
        try:
            parts = self._parts(sample)
        except CuzarrError as error:
            self._leave_out(read, number, error)
        else:
            read.samples.append((number, parts))

    def _parts(self, sample: Any) -> _Parts:
        """Opens the arrays that a sample names, and checks the selections that the sample makes of them.

        Raises
        ------
        CuzarrError
            The sample is not a dictionary of pairs, an array cannot be opened, or a selection does not fit its array.
        """
        is_sample = isinstance(sample, Mapping) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in sample.values())
        if not is_sample or not sample:
            raise ArgumentTypeError(f"a sample is a dictionary of pairs of an array and a selection, got {sample!r}")
        if self._names is None:
            self._names = tuple(sample)
        parts = {name: self._part(*pair) for name, pair in sample.items()}
        if set(parts) != set(self._names):
            raise InvalidArgumentError(f"got parts named {sorted(map(str, parts))}, the first sample has {sorted(self._names)}")
        return parts

    def _part(self, given: Any, selection: Selection) -> _Part:
        array = self._handles.array(given)
        part = _Part(array, basic_box(selection, array.shape))
        if self._device is None:
            self._device, self.library = array.device, self._library_of(array.device)
            self._exits.enter_context(self.library.working())
        if array.device != self._device:
            hint = "open all arrays with one device="
            raise InvalidArgumentError(f"the array reads to {array.device}, those before it to {self._device}", hint=hint)
        self.library.check(part.dtype)
        return part

    def _started(self, read: _Read) -> _Read:
        """Starts to read all samples of a batch by one call, in the background."""
        reads: list[_Part] = []
        outs: list[Any] = []
        for name in self._names or () if read.samples else ():
            parts = [own[name] for _, own in read.samples]
            reads += parts
            form = parts[0].form
            if form is None or any(part.form != form for part in parts):
                outs += [None] * len(parts)
            else:
                read.stacks[name] = self.library.empty((len(parts), *form[0]), form[1])
                outs += self.library.rows(read.stacks[name])
        self.library.settle()
        read.future = self._reading.submit(contextvars.copy_context().run, self._read, reads, outs)
        return read

    def _read(self, reads: list[_Part], outs: list[Any]) -> list[Any]:
        boxes = [(part.array, part.box) for part in reads]
        with self._watch:
            return read_parts(boxes, outs, [None if part.form is None else part.dtype for part in reads])

    def _without_bad(self, read: _Read, error: CuzarrError) -> _Read:
        """Starts to read a failed batch again, without the samples that fail when they are read alone.

        Raises
        ------
        CuzarrError
            No single sample caused the failure, or bad samples are errors.
        """
        if isinstance(error, _NOT_OF_SAMPLES):
            raise error
        rest = _Read(skipped=read.skipped)
        for number, parts in read.samples:
            try:
                self._read(list(parts.values()), [None] * len(parts))
            except CuzarrError as own:
                self._leave_out(rest, number, own)
            else:
                rest.samples.append((number, parts))
        if len(rest.samples) == len(read.samples) and not self._skip_bad:
            raise error
        return self._started(rest)

    def _leave_out(self, read: _Read, number: int, error: CuzarrError) -> None:
        """Counts a sample that cannot be read as left out, or raises an error that names it.

        Raises
        ------
        CuzarrError
        """
        if not self._skip_bad or isinstance(error, _NOT_OF_SAMPLES):
            trail = (f"sample {number}", *error.trail)
            raise type(error)(error.message, trail=trail, hint=error.hint, others=error.others) from error
        read.skipped += 1
        if not self._has_warned:
            self._has_warned = True
            message = f"sample {number} is left out, and so are others that cannot be read: {error}"
            warnings.warn(message, CuzarrRuntimeWarning, stacklevel=2)


def _arrays_of(sample: Any) -> Iterator[Any]:
    """The arrays that a sample names: open ones, paths, URLs or stores. Anything invalid in the sample is ignored."""
    for pair in sample.values() if isinstance(sample, Mapping) else ():
        if isinstance(pair, tuple) and pair:
            yield pair[0]

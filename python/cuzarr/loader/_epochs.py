"""The base class of all data sets of batches: it counts epochs, divides batches among ranks, and saves how far an epoch was read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cuzarr._checks import whole
from cuzarr._docstrings import documented
from cuzarr.errors import CuzarrRuntimeWarning, InvalidArgumentError
from cuzarr.loader._library import Library
from cuzarr.loader._progress import Progress
from cuzarr.loader._shares import Share

# Numbers that the main process and its workers share; some workers live longer than a pass. The main process writes the epoch, how many
# states it has loaded, how many batches the last state counts (-1 without a state), and how many processes took them. Workers write how
# many they are, and the seed of the workers that continued from the state. All workers of a pass write the same numbers.
_EPOCH, _LOADS, _TAKEN, _TAKEN_BY, _READERS, _SEED = range(6)


@dataclass(frozen=True)
class Worker:
    """A worker process: one of several that read batches for one rank.

    Attributes
    ----------
    number, count : int
        The number of this worker, and the number of workers.
    seed : int
        A number that is equal for all workers of one loader, and differs between loaders.
    """

    number: int
    count: int
    seed: int


@documented(
    ">>> import cuzarr, numpy as np",
)
class EpochDataset:
    """Base class of all data sets of batches, which are divided among the ranks of a program. Each epoch has another order.

    Subclasses for frameworks override methods that return the library of batches, the rank of a process, and its worker.

    Parameters
    ----------
    rank, world_size
        As for :class:`WindowDataset`.
    """

    # The reason why the number of ranks is unknown, and a hint for the user.
    _unranked: ClassVar[tuple[str, str]] = ("the data set was not told its rank", "pass rank= and world_size=")

    def __init__(self, rank: int | None, world_size: int | None) -> None:
        if (rank is None) != (world_size is None):
            raise InvalidArgumentError("rank and world_size belong together", hint="pass both, or neither")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise InvalidArgumentError(f"rank is {rank}, expected 0 to {world_size - 1}")
        self._rank, self._world_size = rank, world_size
        self._shared: Any = self._shared_numbers([0, 0, -1, 1, 0, -1])
        # The last pass of this process; a state that a worker loaded; and the number of the last state from which a pass continued.
        self._progress: Progress | None = None
        self._loaded: Progress | None = None
        self._used_load = 0

    # Overridden for frameworks.

    def _library(self, device: str) -> Library:
        """The array library that makes batches on ``device``."""
        return Library(device)

    def _worker(self) -> Worker | None:
        """The number of this process among the worker processes of its rank, and how many there are; ``None`` if the rank has only one
        process."""
        return None

    def _ranks(self) -> tuple[int, int] | None:
        """The rank of this process and the number of ranks, as a framework such as PyTorch knows them; else ``None``."""
        return None

    def _shared_numbers(self, numbers: list[int]) -> Any:
        """Puts numbers into memory that all worker processes of a rank read and write."""
        return numbers

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches of one epoch that belong to this rank, or to this worker."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next pass reads; it decides the order of samples."""
        return int(self._shared[_EPOCH])

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next pass reads, and so the order of its samples. Worker processes follow.

        Parameters
        ----------
        epoch : int
            The number of the epoch, from 0 on. The seed and the epoch determine the order.

        Raises
        ------
        InvalidArgumentError
            The number is negative.

        >>> from cuzarr.loader import WindowDataset
        >>> array = cuzarr.create_array({}, data=np.arange(8.0), chunks=(4,))
        >>> dataset = WindowDataset(array, {0: 2}, 4)
        >>> dataset.set_epoch(3)
        >>> dataset.epoch
        3
        """
        epoch = whole(epoch, "epoch", 0)
        if epoch != self.epoch:
            self._shared[_EPOCH], self._shared[_TAKEN], self._shared[_READERS] = epoch, -1, 0
            self._progress = self._loaded = None

    def _place(self) -> tuple[int, int]:
        """The rank of this process and the number of ranks: as given, else as the framework knows them, else 0 and 1."""
        if self._rank is not None and self._world_size is not None:
            return self._rank, self._world_size
        if (found := self._ranks()) is not None:
            return found
        if self._worker() is None and int(os.environ.get("WORLD_SIZE") or 1) > 1:
            reason, hint = self._unranked
            message = f"WORLD_SIZE is set, but {reason}: every process reads all batches\nhint: {hint}"
            warnings.warn(message, CuzarrRuntimeWarning, stacklevel=4)
        return 0, 1

    # The position of a program in an epoch.

    def _pending(self) -> Progress | None:
        """The saved state from which the next pass of this process continues, if one was loaded. Only one pass continues from a state;
        later passes begin anew."""
        if self._loaded is not None:
            return self._loaded
        epoch, loads, taken, taken_by, _, seed = map(int, self._shared)
        if taken < 0 or loads == self._used_load or seed not in (-1, self._seed_of_workers()):
            return None
        return Progress(epoch, taken_by, taken)

    def _taken_before(self) -> int:
        """The number of batches that the next pass leaves out at the start of an epoch, because they were taken before the state was
        saved."""
        pending = self._pending()
        return 0 if pending is None else pending.batches

    def _begin(self, divide: Callable[[int, int], list[Share]]) -> tuple[Progress, Share]:
        """Begins to read an epoch in this process: from its start, or from the loaded state if there is one. Returns its progress, and this
        process's share of the rank's batches.

        ``divide`` returns the share of each worker, given the number of workers and the number of batches of the rank that were taken.
        """
        worker = self._worker()
        number, workers = (worker.number, worker.count) if worker is not None else (0, 1)
        pending = self._pending()
        if pending is not None:
            pending.check_workers(workers)
            if self._loaded is None:
                self._shared[_SEED] = self._seed_of_workers()
        if pending is None or not pending.batches and pending.worker is None:
            pending = Progress(self.epoch if pending is None else pending.epoch, workers)
        self._used_load, self._loaded = int(self._shared[_LOADS]), None
        self._shared[_READERS] = 0 if worker is None else workers
        share = pending.share(divide, number)
        self._progress = Progress(pending.epoch, workers, share.skipped, None if worker is None else share.number)
        return self._progress, share

    def _seed_of_workers(self) -> int:
        worker = self._worker()
        return -1 if worker is None else worker.seed

    def state_dict(self, batches: int | None = None) -> dict[str, int]:
        """The state to save in a checkpoint: the epoch, and how many of this rank's batches were taken.

        With PyTorch, torchdata's ``StatefulDataLoader`` calls this itself, in each worker process. The state of a worker counts only the
        batches of that worker.

        Parameters
        ----------
        batches : int, optional
            Number of batches that the program took in this epoch. Pass it if worker processes of a ``DataLoader`` read, because the data
            set of the main process does not see their batches.

        Returns
        -------
        dict of str to int
            The state, for :meth:`load_state_dict`.

        Raises
        ------
        InvalidArgumentError
            ``batches`` is negative, or it is left out although worker processes read.

        >>> from cuzarr.loader import WindowDataset
        >>> array = cuzarr.create_array({}, data=np.arange(8.0), chunks=(4,))
        >>> dataset = WindowDataset(array, {0: 1}, 4)
        >>> batch = next(iter(dataset))
        >>> dataset.state_dict()["batches"]
        1
        """
        worker, readers = self._worker(), int(self._shared[_READERS])
        progress = self._pending() or self._progress
        if batches is not None:
            workers = readers or (1 if progress is None else progress.workers)
            progress = Progress(self.epoch, workers, whole(batches, "batches", 0))
        elif worker is None and readers:
            raise InvalidArgumentError(
                f"{readers} worker processes read this epoch, so the data set of the main process does not know how much was taken",
                hint="pass batches=, or use torchdata's StatefulDataLoader",
            )
        elif progress is None:
            place = (1, None) if worker is None else (worker.count, worker.number)
            progress = Progress(self.epoch, place[0], 0, place[1])
        return {**progress.to_dict(), **self._identity()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from a saved state: the next pass returns the remaining batches of its epoch, in their order. Later passes are complete.

        The number of ranks and worker processes, the memory limit and the data set must be the same.

        Parameters
        ----------
        state : mapping
            A state that :meth:`state_dict` returned.

        Raises
        ------
        InvalidArgumentError
            The state belongs to another data set, memory limit, number of ranks or number of workers. The number of worker processes is
            compared when they begin.

        >>> from cuzarr.loader import WindowDataset
        >>> array = cuzarr.create_array({}, data=np.arange(8.0), chunks=(4,))
        >>> dataset = WindowDataset(array, {0: 1}, 4)
        >>> state = dataset.state_dict(batches=1)
        >>> again = WindowDataset(array, {0: 1}, 4)
        >>> again.load_state_dict(state)
        >>> len(again)
        1
        """
        loaded, worker = Progress.from_dict(state, self._identity()), self._worker()
        self._progress = None
        if worker is not None or loaded.worker is not None:
            # This state belongs to one process, so it is not written to the memory that workers share.
            loaded.check_workers(1 if worker is None else worker.count)
            self._loaded = loaded
        if worker is None:
            loads = int(self._shared[_LOADS]) + 1
            for place, number in enumerate((loaded.epoch, loads, loaded.batches, loaded.workers, 0, -1)):
                self._shared[place] = number

    def _identity(self) -> dict[str, int]:
        """The settings that must be equal in a saved state and in the data set that loads it."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes do not know the framework's ranks; they belong to the rank that starts them.
        rank, world_size = self._place()
        own = {"_rank": rank, "_world_size": world_size} if world_size > 1 else {}
        return {**self.__dict__, **own}

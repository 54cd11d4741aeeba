"""How far an epoch was read: a program saves this, and continues from it later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cuzarr._checks import whole
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError
from cuzarr.loader._shares import Share


@dataclass
class Progress:
    """The progress of a program in an epoch: how many of the epoch's batches were taken, by one worker process or by all.

    Attributes
    ----------
    epoch : int
        The epoch.
    workers : int
        Number of processes that share the batches of the rank; 1 without worker processes.
    batches : int
        Number of batches that were taken, by one of the processes or by all.
    worker : int, optional
        The worker whose batches are counted, by the number of its share. ``None`` if the batches of all workers are counted.
    """

    epoch: int
    workers: int = 1
    batches: int = 0
    worker: int | None = None

    def to_dict(self) -> dict[str, int]:
        """The progress as a dictionary that a program can save."""
        own = {} if self.worker is None else {"worker": self.worker}
        return {"epoch": self.epoch, **own, "workers": self.workers, "batches": self.batches}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], identity: Mapping[str, int]) -> Progress:
        """Reads the progress from a saved state. Refuses a state of another data set.

        Raises
        ------
        ArgumentTypeError, InvalidArgumentError
        """
        if not isinstance(state, Mapping):
            raise ArgumentTypeError(f"the state is {state!r}, expected a dictionary", hint="pass what state_dict() gave")
        if missing := {"epoch", "workers", "batches", *identity} - set(state):
            raise InvalidArgumentError(f"the state has no {sorted(missing)}", hint="pass what state_dict() gave")
        for name, value in identity.items():
            if state[name] != value:
                raise InvalidArgumentError(
                    f"the state has {name} {state[name]}, this data set {value}",
                    hint=f"make the data set with {name} {state[name]}, or begin the epoch anew",
                )
        epoch, workers, batches = (
            whole(state[name], name, least) for name, least in (("epoch", 0), ("workers", 1), ("batches", 0))
        )
        worker = whole(state["worker"], "worker", 0) if "worker" in state else None
        if worker is not None and worker >= workers:
            raise InvalidArgumentError(f"the state is that of worker {worker}, expected one of 0 to {workers - 1}")
        return cls(epoch, workers, batches, worker)

    def check_workers(self, workers: int) -> None:
        """Refuses to continue with another number of worker processes, which would read in another order.

        Raises
        ------
        InvalidArgumentError
        """
        # Before the first batch of the epoch, any order is possible.
        if self.workers != workers and (self.batches or self.worker is not None):
            raise InvalidArgumentError(
                f"the state is one of {_named(self.workers)}, this pass has {_named(workers)}",
                hint=f"pass num_workers={self.workers} to DataLoader, or begin the epoch anew",
            )

    def share(self, divide: Callable[[int, int], list[Share]], worker: int) -> Share:
        """The batches of an epoch that one worker process of a rank has still to read.

        ``divide`` gives the share of each worker, from their number, and from the number of batches of the rank that were taken.
        """
        if self.worker is None:
            return divide(self.workers, self.batches)[worker]
        return replace(divide(self.workers, 0)[self.worker], skipped=self.batches)


def _named(workers: int) -> str:
    return "1 process" if workers == 1 else f"{workers} worker processes"

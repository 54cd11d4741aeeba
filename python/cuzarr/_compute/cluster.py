"""Blocks as tasks of a dask cluster. Knows no dask: the client that the caller passes submits the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._compute.blocks import BlockInfo, Sources
from cuzarr._compute.results import Target
from cuzarr._compute.sources import is_stored
from cuzarr._config import config
from cuzarr._memory import foreign
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from cuzarr.storage import GpuMemoryStore, MemoryStore

Compute = Callable[[BlockInfo], Any]
"""What is made of a block, by the process that calls it."""


def check(what: str, client: Any, sources: Sources, resume: bool) -> None:
    """Refuses clients and sources that other processes cannot work with.

    Raises
    ------
    ArgumentTypeError, UnsupportedError
    """
    if not all(hasattr(client, name) for name in ("submit", "cancel", "scheduler_info")):
        message = f"client is {type(client).__name__}, expected one of dask.distributed"
        raise ArgumentTypeError(message, hint="pass distributed.Client(…)")
    if resume:
        raise UnsupportedError(f"{what} on a cluster cannot be resumed", hint="leave out resume=True, or client=")
    in_memory = [array for array in sources.arrays if hasattr(array, "shape") and not is_stored(array)]
    if any(map(foreign.is_on_device, in_memory)):
        raise UnsupportedError(f"{what} on a cluster takes no arrays in a GPU's memory", hint="write them to a store first")


def check_out(what: str, out: Any) -> None:
    """Refuses a place for results that other processes cannot write to.

    Raises
    ------
    InvalidArgumentError
    """
    hint = "pass out= with a path or URL that every worker reaches"
    if out is None:
        raise InvalidArgumentError(f"{what} on a cluster needs a store for its result", hint=hint)
    store = out.store_path.store if is_stored(out) else getattr(out, "store", out)
    if isinstance(store, dict | MemoryStore | GpuMemoryStore):
        raise InvalidArgumentError(f"{what} on a cluster cannot write to memory of this process", hint=hint)


class Cluster:
    """Tasks on the workers of a client. A task whose worker dies runs again on another one, and writes the same objects.

    Parameters
    ----------
    client : distributed.Client
    compute : callable
        What every task calls. It is sent to workers as the result of a task, which can be run again where it is lost.
    limit : int
        Bytes that a task may have in flight.
    """

    def __init__(self, client: Any, compute: Compute, limit: int) -> None:
        self._client, self._limit = client, limit
        self._compute = client.submit(_same, compute, pure=False)

    def type_of(self, block: BlockInfo) -> np.dtype[Any]:
        """The element type of a block's result."""
        return self._client.submit(_type_of, self._compute, self._limit, block, pure=False).result()  # type: ignore[no-any-return]

    def write(self, array: Any, blocks: Sequence[BlockInfo], tell: Callable[[int], None]) -> None:
        """Writes all blocks, each by one task. After a failure, those that wait are not begun."""
        for number, _ in enumerate(self._run(_write, blocks, array), 1):
            tell(number)

    def results(self, blocks: Sequence[BlockInfo]) -> Iterator[Any]:
        """What is made of each block, in their order. At most a few tasks for each thread of the cluster wait or hold results."""
        threads = sum(worker["nthreads"] for worker in self._client.scheduler_info(n_workers=-1)["workers"].values())
        step = max(1, 4 * threads)
        for first in range(0, len(blocks), step):
            yield from self._run(_compute, blocks[first : first + step])

    def _run(self, work: Callable[..., Any], blocks: Sequence[BlockInfo], *more: Any) -> Iterator[Any]:
        """The results of one task a block, in the order of blocks."""
        submit = self._client.submit
        tasks = [submit(work, self._compute, self._limit, block, *more, pure=False) for block in blocks]
        try:
            for number in range(len(tasks)):
                result = tasks[number].result()
                tasks[number] = None  # which lets the cluster forget it
                yield result
        except BaseException:
            self._client.cancel([task for task in tasks if task is not None])
            raise


def _same(compute: Compute) -> Compute:
    return compute


def _type_of(compute: Compute, limit: int, block: BlockInfo) -> np.dtype[Any]:
    with config.local({"memory_limit": limit}):
        return foreign.element_type(compute(block))


def _compute(compute: Compute, limit: int, block: BlockInfo) -> Any:
    with config.local({"memory_limit": limit}), _core.Watch():
        return compute(block)


def _write(compute: Compute, limit: int, block: BlockInfo, array: Any) -> None:
    with config.local({"memory_limit": limit}), _core.Watch():
        target = Target.opened(array)
        target.write(block, target.take(block, compute(block)))

"""Processes blocks and regions by tasks of a dask cluster. This module does not import dask: it uses the client that the caller passes."""

from __future__ import annotations

import itertools
import os
import pickle
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._compute.blocks import BlockInfo, Sources
from cuzarr._compute.results import Target
from cuzarr._compute.sources import is_stored
from cuzarr._config import config
from cuzarr._memory import foreign
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from cuzarr.storage import GpuMemoryStore, MemoryStore, Store, ZipStore, make_store
from cuzarr.storage.zip import is_zip_file

Compute = Callable[[BlockInfo], Any]
"""Type of functions that compute the result of a block, in the process that calls them."""


def check_client(client: Any) -> None:
    """Refuses a value that is not a client of a dask cluster.

    Raises
    ------
    ArgumentTypeError
    """
    if not all(hasattr(client, name) for name in ("submit", "run", "cancel", "scheduler_info")):
        message = f"client is {type(client).__name__}, expected one of dask.distributed"
        raise ArgumentTypeError(message, hint="pass distributed.Client(…)")


def check(what: str, client: Any, sources: Sources, resume: bool) -> None:
    """Refuses a call that a dask cluster cannot carry out: without a client, with ``resume``, or with sources that other processes cannot
    read.

    Raises
    ------
    ArgumentTypeError, UnsupportedError
    """
    check_client(client)
    if resume:
        raise UnsupportedError(f"{what} on a cluster cannot be resumed", hint="leave out resume=True, or client=")
    check_memory(what, sources.arrays)
    check_sent([array.store_path.store for array in sources.arrays if is_stored(array)])


def check_memory(what: str, operands: Iterable[Any]) -> None:
    """Refuses arrays in a GPU's memory as inputs of work on a cluster.

    Raises
    ------
    UnsupportedError
    """
    in_memory = [array for array in operands if hasattr(array, "shape") and not isinstance(array, Lazy)]
    if any(map(foreign.is_on_device, in_memory)):
        raise UnsupportedError(f"{what} on a cluster takes no arrays in a GPU's memory", hint="write them to a store first")


def check_sent(value: Any) -> None:
    """Refuses values that cannot be sent to other processes, such as stores with secrets, before anything is written or deleted.

    Raises
    ------
    ArgumentTypeError
    """
    pickle.dumps(value)


def check_out(what: str, out: Any, hint: str = "pass out= with a path or URL that every worker reaches") -> None:
    """Refuses an output in a store to which other processes cannot write.

    Raises
    ------
    InvalidArgumentError, UnsupportedError
    """
    if out is None:
        raise InvalidArgumentError(f"{what} on a cluster needs a store for its result", hint=hint)
    store = out.store_path.store if is_stored(out) else getattr(out, "store", out)
    if not isinstance(store, str | os.PathLike | dict | Store):
        store = make_store(store)
    path = os.fspath(store) if isinstance(store, str | os.PathLike) else ""
    if isinstance(store, dict | MemoryStore | GpuMemoryStore) or path.startswith("memory:"):
        raise InvalidArgumentError(f"{what} on a cluster cannot write to memory of this process", hint=hint)
    if isinstance(store, ZipStore) or (path and is_zip_file(path)):
        raise UnsupportedError(f"{what} on a cluster cannot write to a ZIP file, which one process writes", hint=hint)
    if isinstance(store, Store) and store._handle.is_transactional():
        message = f"{what} on a cluster cannot write to {store}, which commits all writes of one process at once"
        raise UnsupportedError(message, hint="leave out client=, or write to another store")


class Cluster:
    """A dask cluster on whose workers a call computes blocks, each by one task. If a worker dies, its task runs again on another one, and
    writes the same objects.

    Parameters
    ----------
    client : distributed.Client
    what : str
        Name of the operation, for the dashboard.
    compute : callable
        The function that every task calls. It reaches workers as the result of a task, so it can be recomputed if it is lost.
    limit : int
        Memory limit of one task, in bytes.
    """

    def __init__(self, client: Any, what: str, compute: Callable[[Any], Any], limit: int) -> None:
        self._client, self._limit = client, limit
        self._name = f"cuzarr.{what}-{uuid.uuid4().hex}"
        self._compute = client.submit(_same, compute, key=f"{self._name}-work")

    def type_of(self, block: BlockInfo) -> np.dtype[Any]:
        """The element type of a block's result, which one task finds by computing it."""
        return self._client.submit(_type_of, self._compute, self._limit, block, pure=False).result()  # type: ignore[no-any-return]

    def write(self, target: Target, blocks: Sequence[BlockInfo], tell: Callable[[int], None]) -> None:
        """Computes the results of all blocks and writes them to the output, with one task of the dask cluster for each block. After a
        failure, waiting tasks are not started."""
        for number, _ in enumerate(self._run(_write, blocks, target.array, target.is_inferred), 1):
            tell(number)

    def results(self, items: Sequence[Any]) -> Iterator[Any]:
        """Computes a result for each item by one dask task, and yields the results in the order of the items."""
        return self._run(_compute, items)

    def _run(self, work: Callable[..., Any], items: Sequence[Any], *more: Any) -> Iterator[Any]:
        """Submits one dask task, a call of ``work``, for each item, and yields the results in the order of the items.

        At most a few tasks for each thread of the cluster wait or hold results.
        """
        threads = sum(worker["nthreads"] for worker in self._client.scheduler_info(n_workers=-1)["workers"].values())
        most = max(_LEAST_TASKS, 4 * threads)
        tasks: deque[Any] = deque()
        left = enumerate(items)
        try:
            while True:
                for number, item in itertools.islice(left, most - len(tasks)):
                    key = f"{self._name}-{number}"
                    tasks.append(self._client.submit(work, self._compute, self._limit, item, *more, key=key))
                if not tasks:
                    return
                result = tasks[0].result()
                tasks.popleft()  # the cluster forgets the task when this reference is gone
                yield result
        finally:
            if tasks:
                self._client.cancel(list(tasks))


# Minimum number of tasks that are submitted at a time, even if the cluster has no workers yet.
_LEAST_TASKS = 64


def _same(compute: Any) -> Any:
    return compute


def _type_of(compute: Compute, limit: int, block: BlockInfo) -> np.dtype[Any]:
    with config.local({"memory_limit": limit}):
        return foreign.element_type(compute(block))


def _compute(compute: Callable[[Any], Any], limit: int, item: Any) -> Any:
    with config.local({"memory_limit": limit}), _core.Watch():
        return compute(item)


def _write(compute: Compute, limit: int, block: BlockInfo, array: Any, is_inferred: bool) -> None:
    with config.local({"memory_limit": limit}), _core.Watch():
        target = Target.opened(array, is_inferred)
        target.write(block, target.take(block, compute(block)))

"""Computes plans on a dask cluster. A task computes a region of elements, or a reduction's partial result for a region."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._compute import cluster, workers
from cuzarr._compute.operands import deliver, settings
from cuzarr._compute.sources import is_stored
from cuzarr._memory.foreign import numpy_view
from cuzarr._operators.dispatch import Lazy
from cuzarr._progress import listener
from cuzarr.errors import UnsupportedError
from cuzarr.storage import StorePath

Settings = tuple[str, int, int]
"""The device that workers compute on, the memory limit of a task in bytes, and the number of threads."""


def compute(expression: Any, client: Any, where: Settings, progress: Any) -> Any:
    """Computes the elements of a plan on a cluster, into host memory.

    Raises
    ------
    ArgumentTypeError, UnsupportedError
    """
    work = _Work("compute", expression, client, where, progress)
    workers.check(client, work.device, places(expression))
    final = work.without_summaries(expression)
    return work.summary(final) if final._expr.is_summary else work.elements(final)


def check_store(expression: Any, place: Any, client: Any, device: str, resume: bool) -> None:
    """Refuses a plan that a cluster cannot compute, or a target to which a cluster cannot write, before an array is created.

    Raises
    ------
    ArgumentTypeError, InvalidArgumentError, UnsupportedError
    CuzarrError
        A worker lacks something that its tasks need.
    """
    _check("store", expression, client)
    if resume:
        raise UnsupportedError("store on a cluster cannot be resumed", hint="leave out resume=True, or client=")
    cluster.check_out("store", place, "create the target at a path or URL that every worker reaches")
    cluster.check_sent(place)
    workers.check(client, device, places(expression), place.store_path if is_stored(place) else place)


def _check(what: str, expression: Any, client: Any) -> None:
    cluster.check_client(client)
    cluster.check_memory(what, sources(expression))
    cluster.check_sent(expression)


def store(expression: Any, target: Any, client: Any, where: Settings, progress: Any) -> None:
    """Writes the elements of a plan into a stored array by tasks of a dask cluster; one task alone writes each stored object (chunk or
    shard). Call :func:`check_store` first.

    Raises
    ------
    ArgumentTypeError
    """
    work = _Work("store", expression, client, where, progress)
    final = work.without_summaries(expression)
    handle = target._handle("cpu")
    regions = final._expr.regions(work.limit, handle)
    _core.Checkpoint.forget(handle)
    for _ in work.tasks(functools.partial(_store, final, target, work.device), range(len(regions))):
        pass


class _Work:
    """The computation of one plan on a dask cluster, which is divided into tasks whose progress is reported."""

    def __init__(self, what: str, expression: Any, client: Any, where: Settings, progress: Any) -> None:
        _check(what, expression, client)
        self.device, self.limit, _ = where
        self._what, self._client = what, client
        self._tell = listener(progress, "computing", "tasks")
        self._done = self._total = 0
        # By a plan's ``id``: the plan with its inner reductions replaced, and its result if it is a reduction itself.
        self._known: dict[int, Any] = {}
        self._results: dict[int, Any] = {}

    def tasks(self, compute: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Calls ``compute`` for each item on a worker of the cluster, and yields the results in the order of the items."""
        self._total += len(items)
        for result in cluster.Cluster(self._client, self._what, compute, self.limit).results(items):
            self._done += 1
            self._tell(self._done, self._total)
            yield result

    def without_summaries(self, expression: Any) -> Any:
        """Computes each reduction inside a plan, and returns the plan with their results in place of them. No task computes one again."""
        if id(expression) not in self._known:
            _, operands, _ = expression._made_of
            found = tuple(self._operand(value) for value in operands)
            is_same = all(one is other for one, other in zip(operands, found, strict=True))
            self._known[id(expression)] = expression if is_same else expression._with_operands(found)
        return self._known[id(expression)]

    def _operand(self, value: Any) -> Any:
        if not _is_plan(value):
            return value
        inner = self.without_summaries(value)
        if not inner._expr.is_summary:
            return inner
        if id(value) not in self._results:
            self._results[id(value)] = self.summary(inner)
        return self._results[id(value)]

    def summary(self, expression: Any) -> Any:
        """Computes a reduction on the dask cluster, with one task for each part, or a single task if the reduction cannot be divided."""
        count = expression._expr.summary_parts(self.limit)
        if count is None:
            whole = (0,) * len(expression.shape), expression.shape
            (result,) = self.tasks(functools.partial(_elements, expression, self.device), [whole])
            return result if result.ndim else result[()]
        tasks = self.tasks(functools.partial(_part, expression, self.device), range(count))
        return deliver(expression._expr.join_summary(tasks, self.limit), ())

    def elements(self, expression: Any) -> Any:
        """Computes the elements of a plan region by region, each region by one task of the dask cluster."""
        result = np.empty(expression.shape, expression.dtype)
        regions = expression._expr.regions(self.limit)
        tasks = self.tasks(functools.partial(_elements, expression, self.device), regions)
        for (start, extent), part in zip(regions, tasks, strict=True):
            result[tuple(slice(first, first + count) for first, count in zip(start, extent, strict=True))] = part
        return result if result.ndim else result[()]


def _is_plan(value: Any) -> bool:
    return isinstance(value, Lazy) and value._is_plan


def sources(expression: Any) -> Iterator[Any]:
    """The arrays and numbers that a plan, and the plans inside it, compute with."""
    seen, left = set(), [expression]
    while left:
        value = left.pop()
        if not _is_plan(value):
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            left.extend(value._made_of[1])


def places(expression: Any) -> list[StorePath]:
    """The store and the path of each stored array that a plan reads."""
    arrays = (value if is_stored(value) else getattr(value, "array", None) for value in sources(expression))
    return [array.store_path for array in arrays if is_stored(array)]


def are_near(expression: Any) -> bool:
    """Whether all stored arrays that a plan reads are on this machine, so that asking for their metadata is no request to a server."""
    return all(place.store._is_near for place in places(expression))


# Functions that tasks call, in the process of a worker. `cluster` configures their memory limit.


def _elements(expression: Any, device: str, box: tuple[Sequence[int], Sequence[int]]) -> np.ndarray[Any, Any]:
    buffer = expression._expr.compute(*box, *settings(device, None)).to("cpu")
    return numpy_view(buffer, expression.dtype)


def _part(expression: Any, device: str, number: int) -> bytes:
    return expression._expr.summary_part(number, *settings(device, None))  # type: ignore[no-any-return]


def _store(expression: Any, target: Any, device: str, number: int) -> None:
    expression._expr.store_region(target._handle(device), number, *settings(device, None))

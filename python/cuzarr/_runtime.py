"""State of cuzarr in a process: folders of libraries, threads for awaited calls, and an event loop for other libraries' coroutines.

An awaited call runs in a thread, releases Python's lock while the Rust side works, and can be cancelled. When the call ends, it wakes the
caller's loop, without polling.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from cuzarr import _core
from cuzarr._config import config
from cuzarr._locks import ProcessLock

if TYPE_CHECKING:
    import asyncio  # imported inside functions only, because it takes as long to import as half of this package

T = TypeVar("T")
U = TypeVar("U")


class _Threads:
    """The threads on which cuzarr runs the calls that asynchronous code awaits. Their number is the setting ``async.concurrency``."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._pool: ThreadPoolExecutor | None = None
        self._count = 0

    def submit(self, call: Callable[[], T]) -> Future[T]:
        count = max(int(config.get("async.concurrency") or 1), 1)
        with self._lock:
            if self._pool is None or self._count != count:
                if self._pool is not None:
                    self._pool.shutdown(wait=False)  # calls that are running or queued are finished
                self._pool, self._count = ThreadPoolExecutor(count, thread_name_prefix="cuzarr"), count
            return self._pool.submit(call)

    def forget(self) -> None:
        """Forgets the threads in the child process after a fork, where they do not exist."""
        self.__init__()  # type: ignore[misc]


_threads = _Threads()

# The watch of the awaited call to which this context belongs. It applies to one thread; threads that help with the call enter it, too.
_awaited: ContextVar[_core.Watch | None] = ContextVar("awaited", default=None)
# Threads that help with one call.
_MOST_HELPERS = 8

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)


async def run(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Runs a blocking call in another thread and awaits it, in the caller's context (including its ``config.local``).

    When cancelled, it stops the call at its next stored object, and waits until the call has ended.
    """
    import asyncio

    watch, context = _core.Watch(), contextvars.copy_context()
    context.run(_awaited.set, watch)

    def work() -> T:
        with watch:
            return context.run(call, *args, **kwargs)

    future = _threads.submit(work)
    waiting = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        watch.cancel()
        if not future.cancel():
            await _settle(waiting)
        raise


def run_beside(call: Callable[[], T], others: Sequence[Callable[[], U]]) -> tuple[T, list[U]]:
    """Runs calls at the same time: one in this thread, the others in separate threads with the same context. Returns all results.

    The first failure ends all calls. It is raised when all calls have ended.
    """
    if not others:
        return call(), []
    watch, failures = _core.Watch(), list[BaseException]()

    def guarded(work: Callable[[], Any]) -> Any:
        try:
            with watch, _awaited.get() or nullcontext():
                return work()
        except BaseException as error:
            failures.append(error)
            watch.cancel()
            raise

    with ThreadPoolExecutor(min(len(others), _MOST_HELPERS), thread_name_prefix="cuzarr-beside") as pool:
        futures = [pool.submit(contextvars.copy_context().run, guarded, other) for other in others]
        try:
            result = guarded(call)
            wait(futures)
        except BaseException as error:  # noqa: BLE001, also an interrupt while waiting
            first = failures[0] if failures else error
            watch.cancel()
            wait(futures)
            raise first  # noqa: B904, the others are of this one
    if failures:
        raise failures[0]
    return result, [future.result() for future in futures]


async def _settle(waiting: asyncio.Future[Any]) -> None:
    import asyncio

    # Waits even if the task is cancelled again: the call holds memory and files until it has ended.
    while not waiting.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([waiting])
    if not waiting.cancelled():
        waiting.exception()  # retrieves the error, so that asyncio does not report it


def announce() -> None:
    """Tells the Rust side where NVIDIA's libraries and cuzarr's compiled kernels are, and informs it when Python ends.

    This loads nothing: the Rust side looks into these folders when a GPU is first used.
    """
    # NVIDIA's wheels put their libraries into site-packages/nvidia/<library>/lib.
    nvidia = [folder for entry in sys.path if entry and os.path.isdir(folder := os.path.join(entry, "nvidia"))]
    cubins = os.path.join(os.path.dirname(__file__), "cubins")
    _core.set_library_paths(nvidia, cubins if os.path.isdir(cubins) else None)
    atexit.register(_core.begin_end)


class Loop:
    """An event loop in its own thread, for coroutines of other libraries."""

    _lock = ProcessLock()
    _loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def start(cls, coroutine: Any) -> Future[Any]:
        import asyncio

        with cls._lock:
            if cls._loop is None:
                cls._loop = asyncio.new_event_loop()
                threading.Thread(target=cls._loop.run_forever, name="cuzarr-stores", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, cls._loop)

    @classmethod
    def forget(cls) -> None:
        """Forgets the loop in the child process after a fork, where its thread does not exist."""
        cls._loop = None

    @classmethod
    def run(cls, coroutine: Any) -> Any:
        return cls.start(coroutine).result()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Loop.forget)

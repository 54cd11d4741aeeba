"""Threads on which requests wait for the Rust side, so that zarr-python's event loop does not.

They are ours: requests may wait for coroutines of the loop, which may themselves need one of the loop's own threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cuzarr import _core

# A request is a thread that waits; the work is done by the Rust side's threads.
_MOST_REQUESTS = 128

_lock = threading.Lock()
_executor: ThreadPoolExecutor | None = None


def _threads() -> ThreadPoolExecutor:
    global _executor
    with _lock:
        if _executor is None:
            _executor = ThreadPoolExecutor(_MOST_REQUESTS, thread_name_prefix="cuzarr-zarr")
        return _executor


def _forget() -> None:
    # Threads do not survive a fork, and the lock may have been held by one of them.
    global _executor, _lock
    _executor = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


async def run(call: Callable[[], Any], cancel: Callable[[], None]) -> Any:
    """Runs ``call`` on a thread. A cancelled caller leaves only after ``call`` has ended, which ``cancel`` hastens."""
    future = asyncio.get_running_loop().run_in_executor(_threads(), call)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancel()
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # no other code will look
        raise


async def until_over(read: _core.StartedRead, cancel: Callable[[], None]) -> None:
    """Waits for a read that has a thread already, which wakes the loop itself. Cancelled, as :func:`run`."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    read.when_over(lambda: _wake(loop, over))
    try:
        await over
    except asyncio.CancelledError:
        cancel()
        with contextlib.suppress(Exception):  # no other code will look
            await run(read.wait, cancel)
        raise
    read.wait()


def _wake(loop: asyncio.AbstractEventLoop, over: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # a loop that was closed waits for nothing
        loop.call_soon_threadsafe(_set, over)


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)

"""Runs blocking calls of the Rust engine on threads, so that zarr-python's event loop need not wait for them.

They are separate from the loop's threads: requests may wait for coroutines of the loop, and the coroutines may need one of the loop's
threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cuzarr import _core
from cuzarr._locks import ProcessLock

# Each request occupies a thread that waits. The Rust side's threads do the work.
_MOST_REQUESTS = 128

_lock = ProcessLock()
_executor: ThreadPoolExecutor | None = None


def _threads() -> ThreadPoolExecutor:
    global _executor
    with _lock:
        if _executor is None:
            _executor = ThreadPoolExecutor(_MOST_REQUESTS, thread_name_prefix="cuzarr-zarr")
        return _executor


def _forget() -> None:
    global _executor
    _executor = None  # threads do not survive a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


async def run(call: Callable[[], Any], cancel: Callable[[], None]) -> Any:
    """Runs a blocking call of the Rust engine on a thread, and awaits the result. When cancelled, it calls ``cancel`` and waits until
    ``call`` has ended."""
    future = asyncio.get_running_loop().run_in_executor(_threads(), call)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancel()
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # marks the exception as retrieved
        raise


async def until_over(read: _core.StartedRead, cancel: Callable[[], None]) -> None:
    """Awaits the end of a read that runs on a thread of the Rust engine. It is cancelled like :func:`run`."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    read.when_over(lambda: _wake(loop, over))
    try:
        await over
    except asyncio.CancelledError:
        cancel()
        with contextlib.suppress(Exception):  # no other code will see the exception
            await run(read.wait, cancel)
        raise
    read.wait()


def _wake(loop: asyncio.AbstractEventLoop, over: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # a closed loop waits for nothing
        loop.call_soon_threadsafe(_set, over)


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)

"""Batches that a thread makes ahead of the caller."""

from __future__ import annotations

import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from cuzarr.errors import UnsupportedError

T = TypeVar("T")

# How often the thread that makes batches looks whether one was taken. A training loop that woke it by taking one would then wait for
# the interpreter, 0.5 ms a batch.
_PAUSE_SECONDS = 1e-3


def ahead(
    make: Callable[[], Generator[T, None, None]], most: int, left: threading.Event, cancel: Callable[[], None]
) -> Generator[T, None, None]:
    """What ``make`` gives, made by a thread, ``most`` items ahead of the caller.

    A caller that leaves waits for the thread: code of the user's that it runs is never run by two passes at once.

    Parameters
    ----------
    make : function
        Gives a generator, which the thread runs in the settings of the caller.
    most : int
        How many items are made ahead, at most.
    left : threading.Event
        Set when the caller leaves. The generator looks at it, and ends.
    cancel : function
        Called when the caller leaves, before the thread is waited for: it ends reads.

    Raises
    ------
    UnsupportedError
        The process was forked since the first item: the child does not have the thread.
    """
    # Items are pairs with an error; without an item and an error, all were made.
    ready: queue.SimpleQueue[tuple[list[T], BaseException | None]] = queue.SimpleQueue()
    process = os.getpid()

    def put(item: list[T], error: BaseException | None) -> bool:
        while ready.qsize() >= most:
            if left.wait(_PAUSE_SECONDS):
                return False
        ready.put((item, error))
        return not left.is_set()

    def work() -> None:
        try:
            with contextlib.closing(make()) as items:
                for item in items:
                    if not put([item], None):
                        return
            put([], None)
        except BaseException as error:  # noqa: BLE001, it is raised where the items are awaited
            put([], error)

    context: Any = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), name="cuzarr-samples", daemon=True)
    thread.start()
    try:
        while True:
            _check_process(process)
            item, error = ready.get()
            if error is not None:
                raise error
            if not item:
                return
            # Not kept here while the caller works with it.
            yield item.pop()
    finally:
        # In a forked child, another thread may have held the locks of these.
        if os.getpid() == process:
            left.set()
            cancel()
            thread.join()


def _check_process(process: int) -> None:
    """Refuses to go on in another process than the one whose thread reads.

    Raises
    ------
    UnsupportedError
    """
    if (own := os.getpid()) != process:
        message = f"this iterator of batches belongs to process {process}, and cannot go on in its forked child {own}"
        raise UnsupportedError(message, hint="call iter() on the data set in the process that takes the batches")

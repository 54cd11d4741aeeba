"""Makes batches of a data set on a thread before the training loop needs them."""

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

# The thread that makes batches checks at this interval whether one was taken. If taking a batch woke the thread, the training loop would
# wait for the interpreter, 0.5 ms per batch.
_PAUSE_SECONDS = 1e-3


def ahead(
    make: Callable[[], Generator[T, None, None]], most: int, left: threading.Event, cancel: Callable[[], None]
) -> Generator[T, None, None]:
    """Yields the items of ``make``, which a thread makes up to ``most`` items ahead of the caller.

    A caller that stops early waits for the thread, so that two passes never run the user's code at once.

    Parameters
    ----------
    make : function
        Returns a generator, which the thread runs with the caller's settings.
    most : int
        Largest number of items made ahead.
    left : threading.Event
        Set when the caller stops. The generator checks it, and ends.
    cancel : function
        Called when the caller stops, before the wait for the thread. It ends running reads.

    Raises
    ------
    UnsupportedError
        The process was forked after the first item, and the thread does not exist in the child.
    """
    # Each entry is an item and an error. An entry with neither means that all items were made.
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
            # Popped, so that no reference to the item is kept here while the caller works with it.
            yield item.pop()
    finally:
        # Not in a forked child, where the locks of these objects may be held by a thread that does not exist there.
        if os.getpid() == process:
            left.set()
            cancel()
            thread.join()


def _check_process(process: int) -> None:
    """Refuses to continue in a process other than that of the reading thread.

    Raises
    ------
    UnsupportedError
    """
    if (own := os.getpid()) != process:
        message = f"this iterator of batches belongs to process {process}, and cannot go on in its forked child {own}"
        raise UnsupportedError(message, hint="call iter() on the data set in the process that takes the batches")

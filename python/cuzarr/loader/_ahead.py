"""Batches that a thread makes ahead of the caller."""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

# How often the thread that makes batches looks whether one was taken. A training loop that woke it by taking one would then wait for
# the interpreter, 0.5 ms a batch.
_PAUSE_SECONDS = 1e-3


def ahead(
    make: Callable[[threading.Event], Generator[T, None, None]], most: int, cancel: Callable[[], None]
) -> Generator[T, None, None]:
    """What ``make`` gives, made by a thread, ``most`` items ahead of the caller.

    Parameters
    ----------
    make : function
        Gives a generator, which the thread runs in the settings of the caller. Its argument is set once the caller has left.
    most : int
        How many items are made ahead, at most.
    cancel : function
        Called when the caller leaves, before the thread is waited for: it ends reads.
    """
    # Items are pairs with an error; without an item and an error, all were made.
    ready: queue.SimpleQueue[tuple[list[T], BaseException | None]] = queue.SimpleQueue()
    left = threading.Event()

    def put(item: list[T], error: BaseException | None) -> bool:
        while ready.qsize() >= most:
            if left.wait(_PAUSE_SECONDS):
                return False
        ready.put((item, error))
        return not left.is_set()

    def work() -> None:
        try:
            with contextlib.closing(make(left)) as items:
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
            item, error = ready.get()
            if error is not None:
                raise error
            if not item:
                return
            # Not kept here while the caller works with it.
            yield item.pop()
    finally:
        left.set()
        cancel()
        thread.join()

"""Writers of one array in one process: those that merge with what is stored go one after the other.

A stored object that is written in part is read, merged and replaced. Two threads that do so at once would lose one of the
two writes; those that replace whole objects need not wait for each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class Writers:
    """Whoever writes to one array: many that replace whole objects, or one that merges."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._change = threading.Condition()
        self._replacing = 0
        self._is_merging = False

    @contextmanager
    def at_work(self, *, merges: bool) -> Iterator[None]:
        """Waits until this writer may begin, and tells the others when it has ended. Does not nest."""
        if self._process != os.getpid():
            self._reset()  # forked: the threads that were at work are not here
        with self._change:
            self._change.wait_for(lambda: not self._is_merging and not (merges and self._replacing))
            self._is_merging = merges
            self._replacing += not merges
        try:
            yield
        finally:
            with self._change:
                self._is_merging = False
                self._replacing -= not merges
                self._change.notify_all()


_known: WeakValueDictionary[str, Writers] = WeakValueDictionary()
_guard = threading.Lock()


def _forked() -> None:
    global _guard
    _guard = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def writers_of(place: str) -> Writers:
    """The writers of the array at a place, the same for every object that stands for it."""
    with _guard:
        return _known.setdefault(place, Writers())


def replaces_whole_objects(
    start: tuple[int, ...], count: tuple[int, ...], step: tuple[int, ...], shape: tuple[int, ...], objects: tuple[int, ...]
) -> bool:
    """Whether a box of an array of that shape holds every element of each object that it touches.

    >>> replaces_whole_objects((4,), (6,), (1,), (10,), (4,)), replaces_whole_objects((4,), (5,), (1,), (10,), (4,))
    (True, False)
    """
    return all(
        stride == 1 and first % size == 0 and ((first + elems) % size == 0 or first + elems == extent)
        for first, elems, stride, extent, size in zip(start, count, step, shape, objects, strict=True)
    )

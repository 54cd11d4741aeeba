"""Locks of a process that may be forked."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class ProcessLock:
    """A lock that is free in each newly forked process, because the thread that held it does not exist there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


_LOCKS: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in _LOCKS:
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)

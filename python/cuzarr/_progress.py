"""Progress of long reads and writes, in objects of the store."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cuzarr import _core
from cuzarr.errors import ArgumentTypeError

_INTERVAL_S = 0.1
_BAR = 30


class _Bar:
    """A line on a terminal; nothing where standard error is none."""

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, unit
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int | None) -> None:
        if not self._is_terminal:
            return
        if total:
            filled = _BAR * min(done, total) // total
            text = f"{100 * min(done, total) // total:3d}% |{'#' * filled}{' ' * (_BAR - filled)}| {done}/{total}"
        else:
            text = str(done)
        sys.stderr.write(f"\r{self._what} {text} {self._unit}" + ("\n" if done == total else ""))
        sys.stderr.flush()


class _Meter:
    """Anything like tqdm: it has a ``total``, and hears of news by ``update``."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._said = 0

    def __call__(self, done: int, total: int | None) -> None:
        if total is not None and getattr(self._meter, "total", None) is None:
            self._meter.total = total
        self._meter.update(done - self._said)
        self._said = done


def listener(progress: Any, what: str, unit: str = "objects") -> Callable[[int, int | None], None]:
    """What tells of progress: a line on the terminal, a function, or anything like tqdm.

    Raises
    ------
    ArgumentTypeError
    """
    if progress is True:
        return _Bar(what, unit)
    if isinstance(progress, dict | set | type) or not (hasattr(progress, "update") or callable(progress)):
        raise ArgumentTypeError(f"progress is {progress!r}, expected True, a function, or an object with update() like tqdm's")
    return _Meter(progress) if hasattr(progress, "update") else progress  # type: ignore[no-any-return]


@contextmanager
def shown(progress: Any, what: str, total: int | None, watch: _core.Watch | None = None) -> Iterator[None]:
    """Tells ``progress`` of the objects that calls inside the block have read (``what`` is ``"reading"``) or written.

    ``progress`` is ``True`` (a line on the terminal), a function of the number done and the number in all (``None`` when
    that is not known), or an object with ``update``, as tqdm's. ``None`` and ``False`` cost nothing. ``watch`` is one that
    work which was planned before is under already.
    """
    if not progress:
        yield
        return
    tell, ended = listener(progress, what), threading.Event()
    watch = _core.Watch(counts=True) if watch is None else watch
    place = 0 if what == "reading" else 1
    failure: list[BaseException] = []

    def look() -> None:
        try:
            while not ended.wait(_INTERVAL_S):
                done = watch.counts()[place]
                tell(done if total is None else min(done, total), total)
        except BaseException as error:  # noqa: BLE001, it is raised in the caller's thread
            failure.append(error)
            watch.cancel()

    thread = threading.Thread(target=look, name="cuzarr-progress", daemon=True)
    thread.start()
    try:
        with watch:
            yield
    except BaseException as error:
        if failure:
            raise failure[0] from error
        raise
    finally:
        ended.set()
        thread.join()
    if failure:
        raise failure[0]
    tell(watch.counts()[place] if total is None else total, total)

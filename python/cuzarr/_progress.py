"""Progress of long reads and writes, in objects of the store."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr.errors import ArgumentTypeError

_INTERVAL_S = 0.1
_BAR = 30


def _shows_lines() -> bool:
    """Whether standard error shows a line that is written anew: a terminal, or the output of a notebook's cell, which is no terminal to
    Python."""
    # Jupyter's, and of its kind JupyterLab's, VS Code's and Colab's.
    kernels = ("ipykernel", "pyodide_kernel")
    return sys.stderr is not None and (sys.stderr.isatty() or type(sys.stderr).__module__.partition(".")[0] in kernels)


class _Bar:
    """A progress line on a terminal or in a notebook. Elsewhere nothing is shown."""

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, unit
        self._is_shown = _shows_lines()

    def __call__(self, done: int, total: int | None) -> None:
        if not self._is_shown:
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


class _Tasks:
    """Anything like rich's ``Progress``, which shows several tasks. A call is one of them."""

    def __init__(self, tasks: Any, what: str) -> None:
        self._tasks = tasks
        self._number = tasks.add_task(what, total=None)

    def __call__(self, done: int, total: int | None) -> None:
        self._tasks.update(self._number, completed=done, total=total)


def is_wanted(progress: Any) -> bool:
    """Whether a caller asked for reports. Objects are not asked whether they are true: tqdm's refuse, or say that they are not."""
    return bool(progress) if isinstance(progress, int | np.bool_) else progress is not None


def _silent(done: int, total: int | None) -> None:
    """Tells nobody."""


def listener(progress: Any, what: str, unit: str = "objects") -> Callable[[int, int | None], None]:
    """The function that is told of progress: it shows a line on the terminal or in the notebook, or passes the news on to a function of the caller,
    or to an object like tqdm's or rich's. It does nothing if the caller wants no reports.

    Raises
    ------
    ArgumentTypeError
    """
    if not is_wanted(progress):
        return _silent
    if progress is True or isinstance(progress, np.bool_):
        return _Bar(what, unit)
    has_update = hasattr(progress, "update")
    if isinstance(progress, dict | set | type) or not (has_update or callable(progress)):
        raise ArgumentTypeError(f"progress is {progress!r}, expected True, a function, or an object with update() like tqdm's")
    if has_update and hasattr(progress, "add_task"):
        return _Tasks(progress, what)
    return _Meter(progress) if has_update else progress  # type: ignore[no-any-return]


@contextmanager
def shown(progress: Any, what: str, total: int | None, watch: _core.Watch | None = None) -> Iterator[None]:
    """Tells ``progress`` of the objects that calls inside the block have read (``what`` is ``"reading"``) or written.

    ``progress`` is ``True`` (a line on the terminal or in the notebook), a function of the number done and the number in all (``None`` when
    that is not known), or an object with ``update``, as tqdm's and rich's. ``None`` and ``False`` cost nothing. ``watch`` is one that
    work which was planned before is under already.
    """
    if not is_wanted(progress):
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

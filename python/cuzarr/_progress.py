"""Progress of long reads and writes, counted in stored objects."""

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
    """Whether standard error can show a progress line that is overwritten again and again, because it is a terminal or a notebook cell."""
    # Jupyter's kernels; JupyterLab, VS Code and Colab use the same ones.
    kernels = ("ipykernel", "pyodide_kernel")
    return sys.stderr is not None and (sys.stderr.isatty() or type(sys.stderr).__module__.partition(".")[0] in kernels)


class _Bar:
    """A line of text that shows progress on a terminal or in a notebook, and nothing elsewhere."""

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
    """A function object that reports progress to the user's object like tqdm's, with ``total`` and ``update``."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._said = 0

    def __call__(self, done: int, total: int | None) -> None:
        if total is not None and getattr(self._meter, "total", None) is None:
            self._meter.total = total
        self._meter.update(done - self._said)
        self._said = done


class _Tasks:
    """A function object that reports progress to the user's object like rich's ``Progress``, which shows several tasks. Each call of cuzarr
    is one task."""

    def __init__(self, tasks: Any, what: str) -> None:
        self._tasks = tasks
        self._number = tasks.add_task(what, total=None)

    def __call__(self, done: int, total: int | None) -> None:
        self._tasks.update(self._number, completed=done, total=total)


def is_wanted(progress: Any) -> bool:
    """Whether a caller wants progress reports. Objects are not converted to bool, because tqdm's refuse this or are false."""
    return bool(progress) if isinstance(progress, int | np.bool_) else progress is not None


def _silent(done: int, total: int | None) -> None:
    """Reports no progress, for callers that did not ask for it."""


def listener(progress: Any, what: str, unit: str = "objects") -> Callable[[int, int | None], None]:
    """Converts a caller's argument ``progress`` to a function, which is called with the number of finished objects and the total.

    It shows a line on the terminal or in the notebook, or calls the caller's function, or updates an object like tqdm's or rich's.
    It does nothing if the caller wants no reports.

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
    """Reports to ``progress`` how many objects the calls inside the ``with`` block have read (``what`` is ``"reading"``) or written.

    ``progress`` is ``True`` (a line on the terminal or in the notebook), a function of the number done and the total (``None`` if it
    is unknown), or an object with ``update``, such as tqdm's and rich's. ``None`` and ``False`` cost nothing. Pass ``watch`` for work
    that was planned earlier under this watch.
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

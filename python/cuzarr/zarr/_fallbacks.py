"""Fall-backs to zarr-python's own code, and their reasons: counted, reported once for each array, or refused."""

from __future__ import annotations

import logging
import warnings
from collections import Counter

from cuzarr._config import config
from cuzarr._locks import ProcessLock
from cuzarr._text import printable
from cuzarr.errors import CuzarrRuntimeWarning, FallbackRefusedError

logger = logging.getLogger("cuzarr")

_lock = ProcessLock()
_native: Counter[str] = Counter()
_fallen: Counter[str] = Counter()


class FallbackWarning(CuzarrRuntimeWarning):
    """An array on a GPU is read or written on the host: by zarr-python's own code, or by this package if CuPy is missing."""


class Fallback(Exception):
    """An exception with the reason why cuzarr cannot carry out a call of zarr-python, whose own code then carries it out. It never leaves
    the package."""


def count_native(operation: str) -> None:
    """Counts one operation (``"read"``, ``"write"``, ``"decode"`` or ``"encode"``) that cuzarr carried out for zarr-python."""
    with _lock:
        _native[operation] += 1


def fall_back(reason: str, *, on_device: bool, told: set[tuple[str, bool]]) -> None:
    """Counts a fall-back to zarr-python's code, and warns or logs once for each array: ``told`` has the reasons already reported.

    Raises
    ------
    FallbackRefusedError
        The configuration is ``strict``.
    """
    _refuse_when_strict(f"this would be left to zarr-python's own code: {reason}")
    if not _is_new(reason, on_device, told):
        return
    if on_device:
        message = f"zarr-python's own code works on the host for this array: {printable(reason)}"
        warnings.warn(message, FallbackWarning, stacklevel=3)
    else:
        logger.info("zarr-python's own code works for this array: %s", printable(reason))


def go_by_host(reason: str, *, told: set[tuple[str, bool]]) -> None:
    """Counts a read or write of an array on a GPU whose elements pass through host memory, and warns like :func:`fall_back`."""
    _refuse_when_strict(f"elements would go by way of the host: {reason}")
    if _is_new(reason, True, told):
        warnings.warn(f"elements go by way of the host for this array: {printable(reason)}", FallbackWarning, stacklevel=3)


def _refuse_when_strict(message: str) -> None:
    if config.get("strict"):
        raise FallbackRefusedError(message, hint="set strict to False to allow it")


def _is_new(reason: str, on_device: bool, told: set[tuple[str, bool]]) -> bool:
    """Counts a reason for a fall-back, and adds it to ``told``, the reasons already reported for the array. Returns whether it was new
    there."""
    with _lock:
        _fallen[reason] += 1
    is_new = (reason, on_device) not in told
    told.add((reason, on_device))
    return is_new


def fallbacks(*, reset: bool = False) -> dict[str, int]:
    """The number of reads and writes that zarr-python's own code, or the host, had to do, by reason.

    Parameters
    ----------
    reset : bool
        Whether the counts restart at 0.

    Returns
    -------
    dict of str to int
        Counts by reason.

    Raises
    ------
    None
        Counting cannot fail.

    Examples
    --------
    >>> import cuzarr.zarr
    >>> isinstance(cuzarr.zarr.fallbacks(), dict)
    True
    """
    with _lock:
        found = dict(_fallen)
        if reset:
            _fallen.clear()
            _native.clear()
        return found


def calls() -> dict[str, int]:
    """The number of reads, writes, decodings and encodings that cuzarr carried out for zarr-python in this process.

    Returns
    -------
    dict of str to int
        Counts by kind: ``"read"``, ``"write"``, ``"decode"``, ``"encode"``. A kind that never happened is left out.

    Raises
    ------
    None
        Counting cannot fail.

    Examples
    --------
    >>> import cuzarr.zarr, zarr
    >>> with cuzarr.zarr.enable():
    ...     array = zarr.zeros(store={}, shape=(4,))
    ...     array[:].tolist()
    [0.0, 0.0, 0.0, 0.0]
    >>> cuzarr.zarr.calls()["read"] > 0
    True
    """
    with _lock:
        return dict(_native)

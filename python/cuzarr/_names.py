"""What a wrong name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable

from cuzarr import _core


def did_you_mean(name: object, known: Iterable[str]) -> str | None:
    """A hint that names the known name near to a wrong one; ``None`` when there is none.

    >>> from cuzarr._names import did_you_mean
    >>> did_you_mean("flaot32", ["float32", "float64"])
    "did you mean 'float32'?"
    """
    near = _core.nearest(name, list(known)) if isinstance(name, str) else None
    return None if near is None else f"did you mean '{near}'?"

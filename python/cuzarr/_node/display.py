"""What ``array.info``, ``group.info`` and ``array.explain`` show."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from cuzarr._text import printable, printable_lines


def human_bytes(size: int) -> str:
    """A size in bytes, with a short form beside it when it is long."""
    if size < 1024:
        return str(size)
    number, unit = Fraction(size), ""
    for unit in "KMGTP":
        number /= 1024
        if number < 1024:
            break
    # Arrays of metadata alone may be larger than any float.
    return f"{size} ({float(number):.1f}{unit})" if number < _MOST else f"more than {_MOST}{unit}"


def human_ratio(size: int, stored: int) -> str:
    """How many times as large as what is stored an array is."""
    ratio = Fraction(size, stored)
    return f"{float(ratio):.1f}" if ratio < _MOST else f"more than {_MOST}"


_LONGEST_VALUE = 200
_MOST = 10**15


def brief_repr(value: object) -> str:
    """``repr(value)``, or the beginning of a long one: a fill value may have megabytes."""
    # Cut before it is written: four characters a byte.
    if isinstance(value, bytes | str) and len(value) > _LONGEST_VALUE:
        value = value[:_LONGEST_VALUE]
    elif isinstance(value, np.void) and value.dtype.names is None and value.nbytes > _LONGEST_VALUE:
        value = np.void(np.frombuffer(value, "u1", _LONGEST_VALUE).tobytes())
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


@dataclass(frozen=True)
class Info:
    """Lines of a name and a value, as text and as HTML."""

    lines: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, items: Iterable[tuple[str, object]]) -> Info:
        """From names and values; what is ``None`` is left out."""
        return cls(tuple((name, printable(str(value))) for name, value in items if value is not None))

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.lines)
        return "\n".join(f"{name:<{width}} : {value}" for name, value in self.lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align: left'>{html.escape(name)}</th>"
            f"<td style='text-align: left'>{html.escape(value)}</td></tr>"
            for name, value in self.lines
        )
        return f"<table>{rows}</table>"


class Explanation:
    """What a read or write would do, and why. ``str()`` tells a person, ``to_dict()`` a program."""

    def __init__(self, text: str, document: str) -> None:
        self._text = text
        self._document = document

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        return json.loads(self._document)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return printable_lines(self._text)

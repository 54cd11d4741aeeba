"""What ``array.info``, ``group.info`` and ``array.explain`` show."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzarr._text import printable, printable_lines

_LONGEST_VALUE = 200


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

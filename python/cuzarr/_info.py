"""What ``array.info``, ``group.info`` and ``array.explain`` show."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cuzarr._text import printable, printable_lines


def human_bytes(size: int) -> str:
    """A size in bytes, with a short form beside it when it is long."""
    if size < 1024:
        return str(size)
    number, unit = float(size), ""
    for unit in "KMGTP":
        number /= 1024
        if number < 1024:
            break
    return f"{size} ({number:.1f}{unit})"


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

"""Makes text that is safe to print: it cannot control the terminal."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction


def printable(text: str) -> str:
    """Replaces characters in a text that control a terminal, end a line or change the direction of writing, by escapes.

    Names and attributes come from files that are not trusted.

    >>> printable("tas\\x1b]0;owned\\x07")
    'tas\\\\x1b]0;owned\\\\x07'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def printable_lines(text: str) -> str:
    """Replaces characters that control a terminal by escapes like :func:`printable`, but keeps line feeds, for text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def shortened(text: str) -> str:
    """Shortens a long text to its beginning."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def names_text(names: Sequence[str | None] | None) -> str | None:
    """Names of dimensions as text, with ``-`` for each dimension without a name."""
    return shortened(", ".join(name or "-" for name in names)) if names else None


def human_bytes(size: int) -> str:
    """Writes a size in bytes as text. A large number is followed by a short form, such as ``(1.2M)``."""
    if size < 1024:
        return str(size)
    number, unit = Fraction(size), ""
    for unit in "KMGTP":
        number /= 1024
        if number < 1024:
            break
    # The size of an array may be larger than any float, because metadata can claim any size.
    return f"{size} ({float(number):.1f}{unit})" if number < _MOST else f"more than {_MOST}{unit}"


def human_ratio(size: int, stored: int) -> str:
    """The ratio of an array's decoded size to its stored size, as text."""
    ratio = Fraction(size, stored)
    return f"{float(ratio):.1f}" if ratio < _MOST else f"more than {_MOST}"


def folded(title: str, markup: str) -> str:
    """HTML that shows a title, and ``markup`` when the user clicks on it."""
    return f"<details><summary>{html.escape(title)}</summary>{markup}</details>"


_MOST = 10**15
_LONGEST = 200


@dataclass(frozen=True)
class Info:
    """A summary of an array or group, with one line for each name and its value. It is shown as text or as HTML."""

    lines: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, items: Iterable[tuple[str, object]]) -> Info:
        """Makes a summary from names and values. Values that are ``None`` are left out."""
        return cls(tuple((name, printable(str(value))) for name, value in items if value is not None))

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.lines)
        return "\n".join(f"{name:<{width}} : {value}" for name, value in self.lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align: left'>{html.escape(name)}</th>"
            f"<td style='text-align: left; overflow-wrap: anywhere'>{html.escape(value)}</td></tr>"
            for name, value in self.lines
        )
        return f"<table>{rows}</table>"

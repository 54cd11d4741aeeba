"""Text that is safe to show to a person."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text in which characters that steer a terminal, end a line or turn the direction of writing are escapes. Names and
    attributes come from files that anybody may have written.

    >>> printable("tas\\x1b]0;owned\\x07")
    'tas\\\\x1b]0;owned\\\\x07'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def printable_lines(text: str) -> str:
    """Like :func:`printable`, but line feeds stay: for text that is made of several lines."""
    return "\n".join(map(printable, text.split("\n")))

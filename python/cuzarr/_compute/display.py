"""Descriptions of reads, writes and computations that have not been run, as text for people and as values for programs."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from typing import Any

from cuzarr._text import folded, printable_lines
from cuzarr.errors import CuzarrError


def steps_html(explain: Callable[[], Explanation]) -> str:
    """HTML that shows what work will do, step by step; or why it cannot be done."""
    try:
        return folded("Steps", explain()._repr_html_())
    except CuzarrError as error:
        return folded("Steps", f"<pre>{html.escape(printable_lines(str(error)))}</pre>")


class Explanation:
    """A description of what a read, a write or a computation would do, and why. ``str()`` returns text, and ``to_dict()`` plain values."""

    def __init__(self, text: str, document: str) -> None:
        self._text = text
        self._document = document

    def to_dict(self) -> dict[str, Any]:
        """The explanation as dictionaries, lists, text and numbers."""
        return json.loads(self._document)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(printable_lines(self._text))}</pre>"

    def __repr__(self) -> str:
        return printable_lines(self._text)

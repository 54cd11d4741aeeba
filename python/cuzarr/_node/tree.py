"""What ``group.tree()`` shows."""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence
from typing import Any

from cuzarr._text import printable


class Tree:
    """A hierarchy as text and as HTML."""

    def __init__(self, text: str, markup: str) -> None:
        self._text = text
        self._markup = markup

    def __repr__(self) -> str:
        return self._text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> dict[str, str]:
        style = "white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace"
        return {"text/plain": self._text, "text/html": f'<pre style="{style}">{self._markup}</pre>\n'}


def draw_tree(root: str, members: Sequence[tuple[str, str | None]], *, truncated: str = "", plain: bool = False) -> Tree:
    """The tree of ``members``: paths, sorted, each with a description (of an array) or ``None`` (a group)."""
    root = printable(root)
    children: dict[str, list[tuple[str, str | None]]] = {}
    for path, description in members:
        children.setdefault(path.rpartition("/")[0], []).append((path, description))
    bold_text = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() and not plain else ("", "")
    bold_markup = ("", "") if plain else ("<b>", "</b>")
    text: list[str] = [f"{bold_text[0]}{root}{bold_text[1]}"]
    markup: list[str] = [f"{bold_markup[0]}{html.escape(root)}{bold_markup[1]}"]

    def draw(parent: str, lead: str) -> None:
        inside = children.get(parent, [])
        for place, (path, description) in enumerate(inside):
            last = place == len(inside) - 1
            name = printable(path.rpartition("/")[2])
            branch, tail = lead + ("└── " if last else "├── "), "" if description is None else f" {printable(description)}"
            text.append(f"{branch}{bold_text[0]}{name}{bold_text[1]}{tail}")
            markup.append(f"{branch}{bold_markup[0]}{html.escape(name)}{bold_markup[1]}{html.escape(tail)}")
            draw(path, lead + ("    " if last else "│   "))

    draw("", "")
    return Tree(truncated + "\n".join(text) + "\n", truncated + "\n".join(markup) + "\n")

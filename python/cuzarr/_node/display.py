"""Texts and drawings of arrays and groups: ``info``, ``explain``, ``tree`` and the grid of chunks."""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuzarr._text import printable

_LONGEST_VALUE = 200


def brief_repr(value: object) -> str:
    """``repr(value)``, shortened if it is long: a fill value may have megabytes."""
    # Cut before `repr`: in its text, a byte takes up to four characters.
    if isinstance(value, bytes | str) and len(value) > _LONGEST_VALUE:
        value = value[:_LONGEST_VALUE]
    elif isinstance(value, np.void) and value.dtype.names is None and value.nbytes > _LONGEST_VALUE:
        value = np.void(np.frombuffer(value, "u1", _LONGEST_VALUE).tobytes())
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


_WIDTH = 200


_MOST_LINES = 48


def _lines(extent: int, chunk: int, length: float) -> list[float]:
    """The positions at which a drawing of an array shows borders between chunks, along a side of ``length`` units. Of many borders, only
    every n-th is listed."""
    if not extent:
        return [0.0, length]
    count = -(-extent // chunk)
    every = max(1, -(-count // _MOST_LINES))
    inner = [place * chunk * length / extent for place in range(0, count, every)]
    return [*inner, length]


def _sizes(height: int, width: int) -> tuple[float, float]:
    """Height and width of a drawing of an array. Their ratio is that of the array's extents, limited to between 1/4 and 4."""
    ratio = min(max((height or 1) / (width or 1), 0.25), 4.0)
    return (_WIDTH * ratio, float(_WIDTH)) if ratio <= 1 else (float(_WIDTH), _WIDTH / ratio)


def chunk_grid_svg(shape: tuple[int, ...], chunks: tuple[int, ...], shards: tuple[int, ...] | None) -> str:
    """An SVG drawing of an array's last two dimensions, with thin lines between chunks and thick ones between shards."""
    if not shape:
        return ""
    plane = shape[-2:] if len(shape) > 1 else (0, *shape)
    height, width = _sizes(*plane) if len(shape) > 1 else (20.0, float(_WIDTH))
    body: list[str] = []
    for sizes, stroke in ((chunks, 0.5), (shards, 1.5)):
        if sizes is None:
            continue
        for x in _lines(shape[-1], sizes[-1], width):
            body.append(f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height:.1f}" stroke-width="{stroke}"/>')
        for y in _lines(shape[-2], sizes[-2], height) if len(shape) > 1 else (0.0, height):
            body.append(f'<line x1="0" y1="{y:.1f}" x2="{width:.1f}" y2="{y:.1f}" stroke-width="{stroke}"/>')
    label = f'<text x="{width / 2:.1f}" y="{height + 16:.1f}" text-anchor="middle">{shape[-1]}</text>'
    if len(shape) > 1:
        label += f'<text x="{width + 6:.1f}" y="{height / 2:.1f}">{shape[-2]}</text>'
    if len(shape) > 2:
        leading = " × ".join(map(str, shape[:-2]))
        label += f'<text x="{width / 2:.1f}" y="{height + 32:.1f}" text-anchor="middle">{leading} such planes</text>'
    box = f"-2 -2 {width + 70:.0f} {height + 42:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" style="margin: 0 1em" width="{width + 70:.0f}" height="{height + 42:.0f}" viewBox="{box}" '
        f'font-size="12" fill="currentColor"><rect width="{width:.1f}" height="{height:.1f}" fill="#8884"/>'
        f'<g stroke="currentColor">{"".join(body)}</g>{label}</svg>'
    )


class Tree:
    """A drawing of a hierarchy of groups and arrays, as text and as HTML."""

    def __init__(self, text: str, markup: str) -> None:
        self._text = text
        self._markup = markup

    def __repr__(self) -> str:
        return self._text

    @property
    def markup(self) -> str:
        """The drawing as HTML."""
        style = "white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace"
        return f'<pre style="{style}">{self._markup}</pre>\n'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": self._text, "text/html": self.markup}


def draw_tree(root: str, members: Sequence[tuple[str, str | None]], *, truncated: str = "", plain: bool = False) -> Tree:
    """Draws the tree of ``members``, which are sorted paths, each with a description (for an array) or ``None`` (for a group)."""
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

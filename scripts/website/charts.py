"""Draws charts of records, once for light pages and once for dark ones.

Bars lie on their side, because names of codecs and engines are long, and so that a phone shows them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

INK = {"light": "#1f2933", "dark": "#e4e7eb"}
GRID = {"light": "#d5dbe1", "dark": "#3e4c59"}
# cuzarr is always first; the others are its peers.
COLOURS = ("#76b900", "#2a7ab9", "#c77700", "#8a63d2", "#b0413e", "#5f6c7b")


@dataclass(frozen=True)
class Chart:
    """Bars: a group for each label, and in it a bar for each series. `None` is a bar that was not measured."""

    slug: str
    unit: str
    labels: tuple[str, ...]
    series: dict[str, tuple[float | None, ...]]
    is_logarithmic: bool = False

    def markdown(self, prefix: str = "") -> str:
        """Both pictures; the theme shows one of them."""
        text = f"{self.unit}: " + ", ".join(self.series)
        return "\n".join(f"![{text}]({prefix}charts/{self.slug}-{theme}.svg#only-{theme}){{ .chart }}" for theme in INK)

    def draw(self, theme: str) -> str:
        """The picture as SVG, the same bytes from run to run."""
        height = 0.8 / len(self.series)
        rows = len(self.labels)
        with matplotlib.rc_context(
            {"svg.hashsalt": self.slug, "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 11}
        ):
            figure, axes = pyplot.subplots(figsize=(7.2, 0.7 + rows * (0.2 + 0.2 * len(self.series))))
            ink = INK[theme]
            most = max(value for values in self.series.values() for value in values if value is not None)
            for number, (name, values) in enumerate(self.series.items()):
                at = [row + (number - (len(self.series) - 1) / 2) * height for row in range(rows)]
                axes.barh(at, [value or 0 for value in values], height * 0.92, color=COLOURS[number], label=name)
                for place, value in zip(at, values, strict=True):
                    if value is not None:
                        axes.annotate(f" {value:.3g}", (value, place), va="center", fontsize=9, color=ink)
            axes.set_yticks(range(rows), self.labels)
            axes.invert_yaxis()
            axes.set_xlabel(self.unit, color=ink)
            if self.is_logarithmic:
                axes.set_xscale("log")
                axes.set_xlim(right=most * 3)
            else:
                axes.set_xlim(0, most * 1.12)
            axes.tick_params(colors=ink, length=0)
            axes.grid(axis="x", color=GRID[theme], linewidth=0.7)
            axes.set_axisbelow(True)
            for side in axes.spines.values():
                side.set_visible(False)
            axes.legend(
                frameon=False,
                labelcolor=ink,
                ncols=min(2, len(self.series)),
                loc="lower left",
                bbox_to_anchor=(-0.02, 1.0),
                fontsize=10,
            )
            out = io.StringIO()
            figure.savefig(out, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
            pyplot.close(figure)
        return out.getvalue()

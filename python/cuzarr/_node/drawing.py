"""The grid of an array's chunks, drawn as SVG."""

from __future__ import annotations

_WIDTH = 200
_MOST_LINES = 48


def _lines(extent: int, chunk: int, length: float) -> list[float]:
    """Where the borders of chunks are on ``length`` units; where they would run together, every so many of them."""
    if not extent:
        return [0.0, length]
    count = -(-extent // chunk)
    every = max(1, -(-count // _MOST_LINES))
    inner = [place * chunk * length / extent for place in range(0, count, every)]
    return [*inner, length]


def _sizes(height: int, width: int) -> tuple[float, float]:
    """Units of the drawing, true to the shape within 1 to 4."""
    ratio = min(max((height or 1) / (width or 1), 0.25), 4.0)
    return (_WIDTH * ratio, float(_WIDTH)) if ratio <= 1 else (float(_WIDTH), _WIDTH / ratio)


def chunk_grid_svg(shape: tuple[int, ...], chunks: tuple[int, ...], shards: tuple[int, ...] | None) -> str:
    """The last two dimensions, with thin lines between chunks and thick ones between shards."""
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
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 70:.0f}" height="{height + 42:.0f}" viewBox="{box}" '
        f'font-size="12" fill="currentColor"><rect width="{width:.1f}" height="{height:.1f}" fill="#8884"/>'
        f'<g stroke="currentColor">{"".join(body)}</g>{label}</svg>'
    )

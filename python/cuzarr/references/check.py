"""Checks a table of references: decodes chunks as readers of the table will, and compares the elements with those that h5py reads."""

from __future__ import annotations

import numpy as np

from cuzarr.errors import CuzarrError, UnsupportedError
from cuzarr.references.chunk import decoded
from cuzarr.references.element_types import ends_at_nul
from cuzarr.references.entries import Document
from cuzarr.references.layout import ChunkCoords, Layout


def check_elements(layout: Layout, document: Document) -> None:
    """Decodes chunks of an HDF5 dataset by the ``.zarray`` in ``document``, and compares their elements with those that h5py reads.

    Raises
    ------
    UnsupportedError
        The elements differ, or the filters cannot decode them.
    """
    chosen = list(layout.ranges)
    if chosen and not ends_at_nul(layout.dataset.id.get_type()):
        # The chunk with most bytes is the best sample. The last one may lie at the edge.
        chosen = [max(chosen, key=lambda coords: layout.ranges[coords].size_bytes), max(chosen)]
    chosen += list(layout.inline)[:1]
    for coords in dict.fromkeys(chosen):
        _check_chunk(layout, document, coords)
    if not chosen or layout.has_gaps:
        _check_gap(layout, document)


def _check_gap(layout: Layout, document: Document) -> None:
    """Compares an element of a chunk that is not in the HDF5 file, as h5py reads it, with the fill value of ``document``."""
    got = decoded(document | {"chunks": [1] * len(layout.shape)}, None, layout.dtype)
    if not layout.has_gaps or not layout.is_readable:
        return
    grid = layout.grid()
    # More candidates than stored chunks, so one of them is not stored.
    candidates = (_coords(number, grid) for number in range(len(layout.ranges) + len(layout.inline) + 1))
    gap = next(coords for coords in candidates if coords not in layout.ranges and coords not in layout.inline)
    first = [at * chunk for at, chunk in zip(gap, layout.chunks, strict=True)]
    is_inside = all(at < extent for at, extent in zip(first, layout.dataset.shape, strict=True))
    expected = layout.dataset[tuple(slice(at, at + 1) for at in first)] if is_inside else layout.dataset.fillvalue
    if got.tobytes() != np.asarray(expected).astype(layout.dtype).tobytes():
        raise UnsupportedError("its fill value in Zarr is another one than in HDF5")


def _check_chunk(layout: Layout, document: Document, coords: ChunkCoords) -> None:
    chunk, name = layout.inline.get(coords), ".".join(map(str, coords)) or "0"
    region = tuple(
        slice(at * chunk, min((at + 1) * chunk, extent))
        for at, chunk, extent in zip(coords, layout.chunks, layout.dataset.shape, strict=True)
    )
    if coords in layout.ranges:
        chunk = layout.read(layout.ranges[coords])
    try:
        got = decoded(document, chunk, layout.dtype)
    except CuzarrError as error:
        raise UnsupportedError(f"its chunk {name} cannot be decoded: {error.message}") from error
    if layout.is_inline:
        is_same = layout.is_text or got.tobytes() == layout.inline[coords]
    elif not layout.is_readable:
        return
    else:
        expected = np.asarray(layout.dataset[region]).astype(layout.dtype)
        inside = got[tuple(slice(max(part.stop - part.start, 0)) for part in region)]
        is_same = inside.tobytes() == expected.tobytes()
    if not is_same:
        raise UnsupportedError(f"its chunk {name} has other elements in Zarr than in HDF5")


def _coords(number: int, grid: tuple[int, ...]) -> ChunkCoords:
    """Converts the row-major number of a chunk to its position in the grid of chunks."""
    coords: list[int] = []
    for count in reversed(grid):
        number, at = divmod(number, count)
        coords.insert(0, at)
    return tuple(coords)

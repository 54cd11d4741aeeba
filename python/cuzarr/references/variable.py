"""Arrays and groups of a table of references, made from datasets and groups of an HDF5 file."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cuzarr.references.entries import Document, Reference, documents, inline
from cuzarr.references.fill import fill_value
from cuzarr.references.layout import Layout

SHORT_BYTES = 512
"""Chunks of at most this number of bytes are copied into the table of references, instead of referred to."""


@dataclass
class Group:
    """A Zarr group that a table of references describes, made from a group of an HDF5 file. ``path`` starts at the root of the table."""

    path: str
    attributes: Document

    def references(self) -> Iterator[tuple[str, Reference]]:
        """The keys that this group adds to a table of references, each with its entry."""
        return documents(self.path, None, self.attributes)


@dataclass
class Variable:
    """An HDF5 dataset as a Zarr array that a table of references describes. ``path`` starts at the root of the table."""

    path: str
    layout: Layout
    attributes: Document
    fill: Any

    @property
    def dimensions(self) -> list[str]:
        """The names of the variable's dimensions."""
        return self.attributes["_ARRAY_DIMENSIONS"]  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the variable's dimensions. Along an unlimited dimension, the HDF5 dataset may be shorter."""
        return self.layout.shape

    def document(self) -> Document:
        """The ``.zarray`` document by which the HDF5 dataset is read as a Zarr array."""
        return self.layout.document(fill_value(self.fill, self.layout.dtype))

    def references(self) -> Iterator[tuple[str, Reference]]:
        """The keys that this variable adds to a table of references, each with its entry."""
        yield from documents(self.path, self.document(), self.attributes)
        yield from self.chunk_references()

    def chunk_references(self, axis: int = 0, first: int = 0) -> Iterator[tuple[str, Reference]]:
        """The keys of the array's chunks, each with its entry in a table of references.

        Parameters
        ----------
        axis : int
            Dimension along which this variable follows other parts.
        first : int
            Number of chunks of the other parts along that dimension.
        """

        def key(coords: tuple[int, ...]) -> str:
            numbers = (str(at + first * (axis == number)) for number, at in enumerate(coords))
            return posixpath.join(self.path, ".".join(numbers) or "0")

        for coords, place in self.layout.ranges.items():
            is_short = place.size_bytes <= SHORT_BYTES
            yield key(coords), inline(self.layout.read(place)) if is_short else [self.layout.source.url, *place]
        for coords, value in self.layout.inline.items():
            yield key(coords), inline(value)

"""The chunks of an HDF5 dataset: where their bytes lie in the file, or bytes that a table of references itself must hold."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import h5py
import numpy as np

from cuzarr.errors import UnsupportedError
from cuzarr.references.chunk import decoded, encoded
from cuzarr.references.element_types import difference, plain_type, v2_type
from cuzarr.references.entries import Document, framed_texts
from cuzarr.references.filters import COMPRESSORS, codec
from cuzarr.references.source import Source

LONGEST_PART = 64 << 20
"""Approximate size in bytes that chunks do not exceed when an HDF5 dataset without chunks is divided into chunks."""

SHORTEST_PART = 1 << 16
"""Smallest size in bytes of the chunks into which a dataset without chunks is divided, if rows can be combined."""

INLINE_BYTES = 4 << 20
"""Largest number of bytes of a variable that are copied into a table of references because Zarr cannot decode them in the file. A variable
that needs more is refused."""

ChunkCoords = tuple[int, ...]
"""The position of a chunk of an HDF5 dataset in the grid of chunks: one number for each dimension."""


class ByteRange(NamedTuple):
    """A range of bytes in a file: its first byte and its length."""

    offset: int
    size_bytes: int


class StoredChunk(NamedTuple):
    """A chunk of an HDF5 dataset as stored in the file: its range of bytes, and the filters that it skips. In ``filter_mask``, the bits of
    the filters that this chunk skips are set."""

    place: ByteRange
    filter_mask: int


class Layout:
    """The chunks and filters with which an HDF5 dataset is stored, as those of an array of Zarr format 2.

    Parameters
    ----------
    source : Source
        The file.
    dataset : h5py.Dataset
        The dataset.
    shape : tuple of int
        The lengths of the array's dimensions, at least those of the dataset. Elements beyond the dataset are fill values.
    whole_rows : int
        The number of rows in a chunk of contiguous elements must divide this number; 0 allows any.

    Raises
    ------
    UnsupportedError
        The bytes in the file are not those of an array of Zarr.
    """

    def __init__(self, source: Source, dataset: h5py.Dataset, shape: tuple[int, ...], whole_rows: int) -> None:
        self.source: Source = source
        self.dataset: h5py.Dataset = dataset
        self.shape: tuple[int, ...] = shape
        texts = h5py.check_string_dtype(dataset.dtype)
        self.is_text: bool = texts is not None and texts.length is None
        self.dtype: np.dtype[Any] = np.dtype(object) if self.is_text else plain_type(dataset.dtype)
        self.chunks: tuple[int, ...] = tuple(max(extent, 1) for extent in shape)
        self.ranges: dict[ChunkCoords, ByteRange] = {}
        """For each chunk whose bytes in the file can be read as a Zarr chunk: the range of these bytes."""
        self.inline: dict[ChunkCoords, bytes] = {}
        """For each other stored chunk: the bytes of the Zarr chunk, which the table of references itself must hold."""
        self._filters: list[Document] = [{"id": "vlen-utf8"}] if self.is_text else []
        self.is_readable: bool = True
        """Whether h5py can decode the dataset's chunks, because it has all of the filters."""
        self._find()
        self._cut(whole_rows)
        stored = len(self.ranges) + len(self.inline)
        self.has_gaps: bool = not self.is_inline and bool(math.prod(shape)) and stored < math.prod(self.grid())

    def _find(self) -> None:
        created = self.dataset.id.get_create_plist()
        kind = created.get_layout()
        if kind == h5py.h5d.VIRTUAL:
            raise UnsupportedError("it is a virtual dataset: its elements are those of other datasets")
        if created.get_external_count():
            raise UnsupportedError("its elements lie in other files (external storage)")
        # Texts are stored in heaps, and compact elements in the dataset's header.
        self.is_inline: bool = self.is_text or kind == h5py.h5d.COMPACT
        other = None if self.is_inline else difference(self.dataset.id.get_type(), self.dataset.dtype)
        if other is not None:
            if self.dtype.kind != "S" or self._size_bytes() > INLINE_BYTES:
                raise UnsupportedError(other)
            self.is_inline = True
        if self.is_inline:
            self._put_inline()
        elif kind == h5py.h5d.CHUNKED:
            self._find_chunks()
        elif (offset := self.dataset.id.get_offset()) is not None and self.dataset.size:
            self.ranges = {(): self._range(offset, self._size_bytes())}

    def _size_bytes(self) -> int:
        return int(math.prod(self.shape) * self.dataset.dtype.itemsize)

    def grid(self) -> tuple[int, ...]:
        """The number of chunks of the HDF5 dataset along each dimension."""
        return tuple(-(-extent // chunk) for extent, chunk in zip(self.shape, self.chunks, strict=True))

    def _range(self, offset: int, size: int) -> ByteRange:
        if offset + size > self.source.size_bytes:
            raise UnsupportedError(f"its bytes end at {offset + size}, and the file at {self.source.size_bytes}")
        return ByteRange(offset, size)

    def read(self, place: ByteRange) -> bytes:
        """Reads a range of bytes of the HDF5 file."""
        return self.source.read(place.offset, place.size_bytes)

    def values(self) -> Any:
        """Reads all elements of the HDF5 dataset, in the shape that the Zarr array has. Elements beyond the dataset are its fill value, or
        empty text."""
        values = self.dataset[...]
        if self.shape == self.dataset.shape:
            return values
        whole = np.full(self.shape, "" if self.is_text else self.dataset.fillvalue, values.dtype)
        whole[tuple(map(slice, self.dataset.shape))] = values
        return whole

    def _put_inline(self) -> None:
        """Copies all elements of the dataset into one chunk inside the table of references."""
        if not math.prod(self.shape):
            return
        if self._size_bytes() > LONGEST_PART:
            raise UnsupportedError(f"{math.prod(self.shape)} texts are too many for the table")
        values = self.values()
        first = (0,) * len(self.shape)
        self.inline[first] = framed_texts(values) if self.is_text else np.asarray(values).astype(self.dtype).tobytes()

    def _find_chunks(self) -> None:
        self.chunks = self.dataset.chunks
        found: dict[ChunkCoords, StoredChunk] = {}

        def note(chunk: Any) -> None:
            if chunk.byte_offset is not None:
                place = self._range(chunk.byte_offset, chunk.size)
                at = tuple(offset // extent for offset, extent in zip(chunk.chunk_offset, self.chunks, strict=True))
                found[at] = StoredChunk(place, chunk.filter_mask)

        chunks = self.dataset.id
        if hasattr(chunks, "chunk_iter"):
            chunks.chunk_iter(note)
        else:
            for number in range(chunks.get_num_chunks()):
                note(chunks.get_chunk_info(number))
        # Each chunk may skip filters. The array gets the filters that are used for most bytes.
        weights: Counter[int] = Counter()
        for chunk in found.values():
            weights[chunk.filter_mask] += chunk.place.size_bytes
        mask = weights.most_common(1)[0][0] if weights else 0
        self._filters = self._listed_filters(mask)
        self.ranges = {at: chunk.place for at, chunk in found.items() if chunk.filter_mask == mask}
        self._encode_others({at: chunk for at, chunk in found.items() if chunk.filter_mask != mask})
        self._fill_beyond()

    def _listed_filters(self, skipped: int) -> list[Document]:
        """The dataset's filters as codecs, in the order in which they encode, without those whose bits are set in ``skipped``."""
        listed, found = self.dataset.id.get_create_plist(), []
        # Number of bytes at a filter's input; unknown behind a compressor.
        size: int | None = math.prod(self.chunks) * self.dtype.itemsize
        for number in range(listed.get_nfilters()):
            if skipped >> number & 1:
                continue
            code, _, settings, name = listed.get_filter(number)
            chosen = codec(code, settings, name, self.dtype.itemsize)
            unit = chosen.get("elementsize", 1)
            if unit > 1 and (size is None or size % unit):
                raise UnsupportedError(
                    f"its bytes are shuffled by {unit} where they are no whole elements, which Zarr's filter refuses"
                )
            size = None if chosen["id"] in COMPRESSORS or size is None else size + 4 * (chosen["id"] == "fletcher32")
            self.is_readable &= bool(h5py.h5z.filter_avail(code))
            found.append(chosen)
        return found

    def _encode_others(self, others: dict[ChunkCoords, StoredChunk]) -> None:
        """Handles chunks that skip other filters than most chunks do: encodes them again with the array's filters, to be held in the table
        of references."""
        size = len(others) * math.prod(self.chunks) * self.dtype.itemsize
        if size > INLINE_BYTES:
            raise UnsupportedError(
                f"{len(others)} of its {len(others) + len(self.ranges)} chunks leave out other filters than the rest, and "
                f"{size} bytes are too many for the table"
            )
        for at, chunk in others.items():
            other = self.document(None, self._listed_filters(chunk.filter_mask))
            self.inline[at] = encoded(self.document(None), decoded(other, self.read(chunk.place), self.dtype))

    def _fill_beyond(self) -> None:
        """Corrects chunks that extend beyond the dataset's end, if their elements there are not fill values in the file. They are encoded
        again, into the table."""
        for axis, (extent, had) in enumerate(zip(self.shape, self.dataset.shape, strict=True)):
            last, kept = divmod(had, self.chunks[axis])
            if extent == had or not kept:
                continue
            for coords in [coords for coords in self.ranges if coords[axis] == last]:
                elements = decoded(self.document(None), self.read(self.ranges[coords]), self.dtype)
                box = [slice(0, end - at * chunk) for end, at, chunk in zip(self.shape, coords, self.chunks, strict=True)]
                box[axis] = slice(kept, box[axis].stop)
                mended = elements.copy()
                mended[tuple(box)] = self.dataset.fillvalue
                if mended.tobytes() != elements.tobytes():
                    del self.ranges[coords]
                    self.inline[coords] = encoded(self.document(None), mended)
        if sum(map(len, self.inline.values())) > INLINE_BYTES:
            raise UnsupportedError(
                "it has fewer rows than its dimension, and what is behind them in its chunks is too much for the table"
            )

    def _cut(self, whole_rows: int) -> None:
        """Divides a dataset without chunks into chunks of equally many whole rows, because Zarr stores chunks at the edge whole."""
        if self.is_inline or self.dataset.chunks or not self.shape or not self.ranges:
            return
        whole, row = self.ranges[()], self.dataset.dtype.itemsize * math.prod(self.shape[1:])
        rows, most = self.shape[0], max(1, LONGEST_PART // row)
        steps = _divisors(math.gcd(rows, whole_rows))
        step = max(step for step in steps if step <= most)
        if step * row < min(SHORTEST_PART, LONGEST_PART // 8):
            # There is no better divisor, for example because the number of rows is prime.
            step = min((larger for larger in steps if larger > most), default=step)
        self.chunks = (step, *self.shape[1:])
        rest = (0,) * (len(self.shape) - 1)
        self.ranges = {
            (number, *rest): ByteRange(whole.offset + number * step * row, step * row) for number in range(rows // step)
        }

    def document(self, fill: Any, filters: list[Document] | None = None) -> Document:
        """The ``.zarray`` document by which the HDF5 dataset is read as a Zarr array. ``filters`` replace the array's own, if given."""
        compressor = None
        filters = list(self._filters if filters is None else filters)
        if filters and filters[-1]["id"] in COMPRESSORS:
            compressor = filters.pop()
        return {
            "zarr_format": 2,
            "shape": list(self.shape),
            "chunks": list(self.chunks),
            "dtype": v2_type(self.dtype),
            "compressor": compressor,
            "fill_value": fill,
            "order": "C",
            "filters": filters or None,
        }


def _divisors(number: int) -> list[int]:
    small = [step for step in range(1, math.isqrt(number) + 1) if number % step == 0]
    return sorted({*small, *(number // step for step in small)})

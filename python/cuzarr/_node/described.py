"""What an array is: its metadata, seen from all sides, and the changes of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from cuzarr import _core
from cuzarr._checks import parse_shape
from cuzarr._metadata.array import ZATTRS, AnyArrayMetadata, ArrayV2Metadata
from cuzarr._node.array_config import ArrayConfig
from cuzarr._node.display import Info, brief_repr
from cuzarr._node.node import Node
from cuzarr._text import human_bytes, human_ratio
from cuzarr.codecs.values import Codec
from cuzarr.errors import InvalidArgumentError, UnsupportedError


class ArrayDescription(Node):
    """What an array is, by its metadata and the listing of its store. Touches no element."""

    _metadata: AnyArrayMetadata
    _config: ArrayConfig
    # For each device the settings that it was opened with, and the array itself.
    _handles: dict[str, tuple[tuple[Any, ...], _core.Array]]

    def _handle(self, device: str | None = None) -> _core.Array:
        raise NotImplementedError  # what has elements has it

    @property
    def metadata(self) -> AnyArrayMetadata:
        """The metadata document, as a value."""
        return self._metadata

    @property
    def config(self) -> ArrayConfig:
        """How it behaves while it is open."""
        return self._config

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, in elements. Setting them resizes the array."""
        return self._metadata.shape

    @shape.setter
    def shape(self, value: Any) -> None:
        self.resize(value)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements as NumPy holds them."""
        return self._metadata.data_type.native

    @property
    def nbytes(self) -> int:
        """Bytes that the elements would fill, undecoded chunks and all."""
        return self.size * self.dtype.itemsize

    @property
    def fill_value(self) -> Any:
        """The value of elements that were never written."""
        return self._metadata.fill_value

    @property
    def order(self) -> Literal["C", "F"]:
        """Memory order of results."""
        return self._metadata.order if isinstance(self._metadata, ArrayV2Metadata) else self._config.order

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk: the unit that is decoded."""
        return self._metadata.chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Shape of a shard, the stored object, when it holds many chunks."""
        return self._metadata.shards

    @property
    def read_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Per dimension the extents of the chunks; the last may be smaller. Lists of tens of millions are refused."""
        return _extents(self.shape, self.chunks)

    @property
    def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Per dimension the extents of the stored objects."""
        return _extents(self.shape, self._stored_chunks)

    @property
    def _stored_chunks(self) -> tuple[int, ...]:
        return self.shards or self.chunks

    @property
    def cdata_shape(self) -> tuple[int, ...]:
        """Number of chunks per dimension."""
        return _grid(self.shape, self.chunks)

    @property
    def nchunks(self) -> int:
        """Number of chunks."""
        return math.prod(self.cdata_shape)

    @property
    def nchunks_initialized(self) -> int:
        """Number of chunks that are stored; a stored shard counts with all its chunks."""
        stored = sum(1 for _ in self._iterate_stored())
        per_shard = math.prod(a // b for a, b in zip(self._stored_chunks, self.chunks, strict=True))
        return stored * per_shard

    def nbytes_stored(self) -> int:
        """Bytes in the store, metadata included."""
        return self.store.getsize_prefix(self.path)

    @property
    def filters(self) -> tuple[Codec, ...]:
        """The codecs from elements to elements."""
        if isinstance(self._metadata, ArrayV2Metadata):
            return self._metadata.filters or ()
        return tuple(codec for codec in self._metadata.inner_codecs if codec.role == "array_array")

    @property
    def serializer(self) -> Codec | None:
        """The codec from elements to bytes; ``None`` in format 2."""
        if isinstance(self._metadata, ArrayV2Metadata):
            return None
        return next((codec for codec in self._metadata.inner_codecs if codec.role == "array_bytes"), None)

    @property
    def compressors(self) -> tuple[Codec, ...]:
        """The codecs from bytes to bytes."""
        if isinstance(self._metadata, ArrayV2Metadata):
            return () if self._metadata.compressor is None else (self._metadata.compressor,)
        return tuple(codec for codec in self._metadata.inner_codecs if codec.role == "bytes_bytes")

    @property
    def compressor(self) -> Codec | None:
        """The compressor of format 2."""
        if isinstance(self._metadata, ArrayV2Metadata):
            return self._metadata.compressor
        raise TypeError("format 3 has compressors, not a compressor")

    @property
    def info(self) -> Info:
        """What the array is, at a glance."""
        return self._info()

    def info_complete(self) -> Info:
        """The same with what is stored, for which the store is listed."""
        return self._info(sum(1 for _ in self._iterate_stored()), self.nbytes_stored())

    def _info(self, stored_count: int | None = None, stored_bytes: int | None = None) -> Info:
        ratio = human_ratio(self.nbytes, stored_bytes) if stored_bytes else None
        return Info.of(
            [
                ("Type", type(self).__name__),
                ("Zarr format", self._metadata.zarr_format),
                ("Data type", self._metadata.data_type),
                ("Fill value", brief_repr(self.fill_value)),
                ("Shape", self.shape),
                ("Shard shape", self.shards),
                ("Chunk shape", self.chunks),
                ("Order", self.order),
                ("Read-only", self.read_only),
                ("Store type", self._store_kind),
                ("Device", self.device),
                ("Filters", self.filters),
                ("Serializer", self.serializer),
                ("Compressors", self.compressors),
                ("No. bytes", human_bytes(self.nbytes)),
                ("No. bytes stored", None if stored_bytes is None else human_bytes(stored_bytes)),
                ("Storage ratio", ratio),
                ("Shards Initialized" if self.shards else "Chunks Initialized", stored_count),
            ]
        )

    # -------------------------------------------------------------------------------------------------- what is stored

    def _iterate_stored(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Keys of the stored objects, with their places in the grid."""
        name, separator = self._metadata.chunk_key
        numbers = re.escape(separator).join([r"(\d+)"] * self.ndim)
        lead = "" if name == "v2" else "c" + (re.escape(separator) if self.ndim else "")
        pattern = re.compile(lead + (numbers or ("0" if name == "v2" else "")))
        grid = _grid(self.shape, self._stored_chunks)
        skip = len(self.path) + 1 if self.path else 0
        for key in self.store.list_prefix(self.path):
            if match := pattern.fullmatch(key[skip:]):
                coords = tuple(map(int, match.groups()))
                if all(place < count for place, count in zip(coords, grid, strict=True)):
                    yield key, coords

    def _iterate_regions(self) -> Iterator[tuple[slice, ...]]:
        """The parts of the array that one stored object holds each."""
        return _regions(self.shape, self._stored_chunks)

    # ---------------------------------------------------------------------------------------------------- changing

    def resize(self, new_shape: Any) -> None:
        """Changes the shape. Chunks that fall outside are deleted, and come in again as the fill value. What a chunk at the edge
        holds beyond the shape stays stored, and is there again when the array grows over it. Whoever is killed meanwhile leaves the
        old array or the new one.

        >>> import cuzarr
        >>> array = cuzarr.zeros((4, 4), chunks=(2, 2), store={})
        >>> array.resize((2, 6))
        >>> array.shape
        (2, 6)
        """
        self._resize(new_shape, True)

    def _resize(self, new_shape: Any, delete_outside_chunks: bool) -> None:
        shape = parse_shape(new_shape)
        if len(shape) != self.ndim:
            raise InvalidArgumentError(f"the new shape has {len(shape)} dimensions, the array {self.ndim}")
        self.store.check_writable()
        before = self.shape
        metadata = self._metadata.update_shape(shape)
        if delete_outside_chunks:
            self._handle().delete_left_over(shape)
        is_transactional = self.store._handle.is_transactional()
        if delete_outside_chunks and is_transactional:
            self._handle().delete_outside(before, shape)
        self._write_shape(metadata)
        # Now that no shape has them any more.
        if delete_outside_chunks and not is_transactional:
            self._handle().delete_outside(before, shape)

    def _write_shape(self, metadata: AnyArrayMetadata) -> None:
        # In format 2 attributes have a document of their own, which others may have changed.
        documents = {name: value for name, value in metadata.documents().items() if name != ZATTRS}
        self._store_path.write(documents)
        self._metadata = metadata
        self._handles = {}


def _grid(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-extent // chunk) for extent, chunk in zip(shape, chunks, strict=True))


# Extents that are listed for one dimension: as many as fit into 80 MB, more than anybody looks at.
_MOST_EXTENTS = 10_000_000


def _extents(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    if (most := max(_grid(shape, chunks), default=0)) > _MOST_EXTENTS:
        raise UnsupportedError(
            f"a dimension has {most} chunks, at most {_MOST_EXTENTS} are listed",
            hint="use chunks, shards and cdata_shape, which say the same",
        )
    # One number that is repeated takes no memory but its places.
    return tuple(
        (chunk,) * (extent // chunk) + ((extent % chunk,) if extent % chunk else ())
        for extent, chunk in zip(shape, chunks, strict=True)
    )


def _regions(shape: tuple[int, ...], chunks: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The boxes of a grid in C order. ``itertools.product`` would first list those of each dimension."""
    if not shape:
        yield ()
        return
    for start in range(0, shape[0], chunks[0]):
        first = slice(start, min(start + chunks[0], shape[0]))
        for rest in _regions(shape[1:], chunks[1:]):
            yield (first, *rest)

"""HDF5 files, netCDF-4 among them, as arrays and groups of Zarr's format 2 whose chunks lie in the file."""

from __future__ import annotations

import base64
import json
import math
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from cuzarr._text import printable
from cuzarr.errors import CuzarrError, InvalidArgumentError, StoreFailedError, UnsupportedError
from cuzarr.storage.hdf5_check import decoded, encoded
from cuzarr.storage.hdf5_fill import fill_of, fill_value
from cuzarr.storage.hdf5_names import (
    ODD,
    Dimensions,
    attributes,
    is_placeholder,
    plain_name,
    unicode_text,
    why_no_key,
)
from cuzarr.storage.hdf5_source import Source
from cuzarr.storage.hdf5_types import difference, ends_at_nul, plain_type, v2_type

INLINE_BYTES = 512
"""Values of up to this size are put into the table."""

LONGEST_PART = 64 << 20
"""Contiguous elements are cut into chunks of about this size."""

SHORTEST_PART = 1 << 16
"""Contiguous elements are not cut into chunks that are smaller, if rows can be put together."""

ENCODED_BYTES = 4 << 20
"""Chunks of a variable of up to this size in all are encoded anew and put into the table, where their bytes in the file are others."""

# Filters by their numbers in HDF5.
_DEFLATE, _SHUFFLE, _FLETCHER32, _BLOSC, _ZSTD = 1, 2, 3, 32001, 32015
_NAMES = {4: "szip", 5: "n-bit", 6: "scale-offset", 32000: "LZF", 32004: "LZ4", 32008: "bitshuffle", 32013: "ZFP"}
_COMPRESSORS = ("zlib", "zstd", "blosc")

Place = tuple[int, ...]


@dataclass
class Choice:
    """Which variables are made.

    Parameters
    ----------
    strict : bool
        Whether a variable that cannot be made is an error.
    drop : iterable of str
        Paths, in the files, of variables and groups that are not looked at.
    """

    strict: bool = False
    drop: Iterable[str] = ()
    left_out: list[LeftOut] = field(default_factory=list, init=False)
    """What could not be made."""

    def __post_init__(self) -> None:
        drop = [self.drop] if isinstance(self.drop, str) else self.drop
        self._unknown = {name: name.strip("/") for name in drop}
        self._dropped = set(self._unknown.values())

    def is_dropped(self, path: str) -> bool:
        """Whether a path is one of those not to look at. Such a path counts as found."""
        if path not in self._dropped:
            return False
        self._unknown = {name: dropped for name, dropped in self._unknown.items() if dropped != path}
        return True

    def leave_out(self, file: str, path: str, shown: str, error: CuzarrError) -> None:
        """Notes that a variable is left out; with ``strict`` raises the error instead."""
        error.trail = (file, f"dataset '/{printable(path)}'", *error.trail)
        if self.strict:
            error.hint = error.hint or "leave it out with drop=, on the command line with --drop"
            raise error
        self.left_out.append(LeftOut(file, path, shown, error))

    def check(self) -> None:
        """Raises an error if a name to drop was never met."""
        for name in self._unknown:
            raise InvalidArgumentError(f"drop names '{printable(name)}', which is in none of the files")


@dataclass
class LeftOut:
    """A variable that is not in the table."""

    file: str
    path: str
    # The path that it would have in the table of its file.
    shown: str
    error: CuzarrError

    @property
    def reason(self) -> str:
        """Why, in one line."""
        return printable(": ".join((*self.error.trail[2:], self.error.message)))


@dataclass
class Variable:
    """A dataset as an array of a table. Its path begins at the root of the table."""

    path: str
    dataset: Any
    layout: Layout
    attributes: dict[str, Any]
    fill: Any

    @property
    def dimensions(self) -> list[str]:
        """The names of its dimensions."""
        return self.attributes["_ARRAY_DIMENSIONS"]  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its dimensions. The dataset may be shorter in those that grow."""
        return self.layout.shape

    def values(self) -> Any:
        """All its elements."""
        return self.layout.values()

    def document(self) -> dict[str, Any]:
        """The document ``.zarray``."""
        return self.layout.document(fill_value(self.fill, self.layout.dtype))


class Hdf5:
    """A file that is open.

    Parameters
    ----------
    h5py
        The library.
    source : Source
        The file.
    above : str
        The path of the file's root in the table.
    choice : Choice
        Which variables are made.
    """

    def __init__(self, h5py: Any, source: Source, above: str = "", choice: Choice | None = None) -> None:
        self._h5py, self._above, self._choice = h5py, above, choice or Choice()
        self.source = source
        self.path = source.name
        self._file: Any = None
        self._members: list[tuple[str, Any]] = []

    def __enter__(self) -> Self:
        try:
            self._file = self._h5py.File(self.source.open(), "r")
        except ODD as error:
            raise StoreFailedError(f"'{printable(self.path)}' cannot be opened: {error}") from error
        try:
            self._members = list(self._walk())
            self._dimensions = Dimensions((path, node) for path, node in self._members if not self._is_group(node))
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._members = []
        self._file.close()

    def _is_group(self, node: Any) -> bool:
        return isinstance(node, self._h5py.Group)

    def _walk(self) -> Iterator[tuple[str, Any]]:
        """Groups and datasets with their paths, each group before its members."""
        waiting = [("", self._file["/"])]
        groups: dict[Any, str] = {}
        while waiting:
            path, node = waiting.pop()
            if self._is_group(node):
                known = groups.setdefault(node.id, path)
                if known != path:
                    self._leave_out(path, UnsupportedError(f"it is the group '/{printable(known)}' by another name"))
                    continue
                waiting += reversed(list(self._members_of(path, node)))
            yield path, node

    def _members_of(self, path: str, group: Any) -> Iterator[tuple[str, Any]]:
        try:
            names = list(group)
        except ODD as error:
            self._leave_out(path, _unreadable(error))
            return
        for name in names:
            # h5py gives names of other encodings as bytes.
            text = name.decode(errors="surrogateescape") if isinstance(name, bytes) else name
            below = posixpath.join(path, text)
            if self._choice.is_dropped(below):
                continue
            try:
                if reason := why_no_key(text):
                    raise UnsupportedError(reason)
                link = group.get(name, getlink=True)
                if isinstance(link, self._h5py.ExternalLink):
                    raise UnsupportedError(f"it is a link to the file '{printable(unicode_text(link.filename))}'")
                if isinstance(link, self._h5py.SoftLink):
                    raise UnsupportedError(f"it is a link to '{printable(unicode_text(link.path))}'")
                if isinstance(link, self._h5py.HardLink):
                    node = group[name]
                    if isinstance(node, self._h5py.Group | self._h5py.Dataset):
                        yield below, node
            except CuzarrError as error:
                self._leave_out(below, error)
            except ODD as error:
                self._leave_out(below, _unreadable(error))

    def _leave_out(self, path: str, error: CuzarrError) -> None:
        self._choice.leave_out(self.path, path, self._shown(path), error)

    def _shown(self, path: str) -> str:
        """The path of a dataset in a table, without what netCDF puts before some names."""
        folder, name = posixpath.split(path)
        shown = posixpath.join(folder, plain_name(name))
        if shown == path:
            return path
        is_taken = any(shown == other and not is_placeholder(node) for other, node in self._members)
        return path if is_taken else shown

    def lengths(self, dimension: str) -> set[int]:
        """The lengths of a dimension in the datasets that have it."""
        return {extent for names, shape in self._axes() for name, extent in zip(names, shape, strict=True) if name == dimension}

    def dimensions(self) -> set[str]:
        """The names of all dimensions."""
        return {name for names, _ in self._axes() for name in names}

    def _datasets(self) -> Iterator[tuple[str, Any]]:
        return ((path, node) for path, node in self._members if not self._is_group(node) and not is_placeholder(node))

    def _axes(self) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        for path, node in self._datasets():
            if path in self._dimensions:
                yield self._dimensions.names(path, node), self._dimensions.shape(path, node)

    def nodes(self, whole_rows: int = 0) -> Iterator[tuple[str, dict[str, Any]] | Variable]:
        """Groups, by path and attributes, and variables.

        Parameters
        ----------
        whole_rows : int
            What the number of rows in a piece of contiguous elements must divide; 0: any number.
        """
        for path, node in self._members:
            if self._is_group(node):
                yield posixpath.join(self._above, path), attributes(node)
            elif not is_placeholder(node):
                try:
                    yield self._variable(path, node, whole_rows)
                except CuzarrError as error:
                    self._leave_out(path, error)
                except ODD as error:
                    self._leave_out(path, _unreadable(error))

    def _variable(self, path: str, dataset: Any, whole_rows: int) -> Variable:
        if dataset.shape is None:
            raise UnsupportedError("it has no elements: its dataspace is null")
        layout = Layout(self._h5py, self.source, dataset, self._dimensions.shape(path, dataset), whole_rows)
        described = attributes(dataset)
        described["_ARRAY_DIMENSIONS"] = self._dimensions.names(path, dataset)
        fill = fill_of(dataset, layout.dtype, described, layout.has_gaps)
        variable = Variable(posixpath.join(self._above, self._shown(path)), dataset, layout, described, fill)
        layout.verify(variable.document())
        return variable

    def references(self) -> Iterator[tuple[str, Any]]:
        """Keys and what they refer to."""
        for node in self.nodes():
            if isinstance(node, Variable):
                yield from documents(node.path, node.attributes, node.document())
                yield from self.chunks(node)
            else:
                yield from documents(*node, {"zarr_format": 2}, ".zgroup")

    def chunks(self, variable: Variable, shift: tuple[int, int] = (0, 0)) -> Iterator[tuple[str, Any]]:
        """The chunks of a variable, moved in one axis by a number of chunks."""
        axis, by = shift

        def key(place: Place) -> str:
            numbers = (str(at + by * (axis == number)) for number, at in enumerate(place))
            return posixpath.join(variable.path, ".".join(numbers) or "0")

        for place, (offset, size) in variable.layout.parts.items():
            is_short = size <= INLINE_BYTES
            yield key(place), inline(self.source.read(offset, size)) if is_short else [self.source.url, offset, size]
        for place, value in variable.layout.held.items():
            yield key(place), inline(value)


def _unreadable(error: BaseException) -> CuzarrError:
    """An error of h5py, or of NumPy below it."""
    return UnsupportedError(f"h5py does not read it: {error or type(error).__name__}")


def documents(
    path: str, attributes: dict[str, Any], document: dict[str, Any], name: str = ".zarray"
) -> Iterator[tuple[str, Any]]:
    """The documents of a node."""
    yield posixpath.join(path, name), json.dumps(document)
    if attributes:
        yield posixpath.join(path, ".zattrs"), json.dumps(attributes)


class Layout:
    """How a dataset lies in its file, as an array of Zarr's format 2.

    Parameters
    ----------
    h5py
        The library.
    source : Source
        The file.
    dataset : h5py.Dataset
        The dataset.
    shape : tuple of int
        The lengths of its dimensions, at least as long as the dataset. Elements that it has not are fill values.
    whole_rows : int
        What the number of rows in a piece of contiguous elements must divide; 0: any number.

    Raises
    ------
    UnsupportedError
        The bytes in the file are not those of an array of Zarr.
    """

    def __init__(self, h5py: Any, source: Source, dataset: Any, shape: tuple[int, ...], whole_rows: int) -> None:
        self._h5py, self._source, self._dataset, self.shape = h5py, source, dataset, shape
        texts = h5py.check_string_dtype(dataset.dtype)
        self.is_text = texts is not None and texts.length is None
        self.dtype: np.dtype[Any] = np.dtype(object) if self.is_text else plain_type(dataset.dtype)
        self.chunks = tuple(max(extent, 1) for extent in shape)
        self.parts: dict[Place, tuple[int, int]] = {}
        """Chunks by their places in the grid, each with its first byte in the file and its size."""
        self.held: dict[Place, bytes] = {}
        """Chunks whose bytes do not lie in the file as Zarr has them."""
        self._filters: list[dict[str, Any]] = [{"id": "vlen-utf8"}] if self.is_text else []
        self._is_readable = True
        self._find()
        self._cut(whole_rows)
        stored = len(self.parts) + len(self.held)
        self.has_gaps = not self.is_held and bool(math.prod(shape)) and stored < math.prod(self._grid())

    def _find(self) -> None:
        h5d, created = self._h5py.h5d, self._dataset.id.get_create_plist()
        kind = created.get_layout()
        if kind == h5d.VIRTUAL:
            raise UnsupportedError("it is a virtual dataset: its elements are those of other datasets")
        if created.get_external_count():
            raise UnsupportedError("its elements lie in other files (external storage)")
        # Texts lie in heaps, and compact elements in the header of the dataset.
        self.is_held = self.is_text or kind == h5d.COMPACT
        other = None if self.is_held else difference(self._h5py, self._dataset.id.get_type(), self._dataset.dtype)
        if other is not None:
            if self.dtype.kind != "S" or self._size_bytes() > ENCODED_BYTES:
                raise UnsupportedError(other)
            self.is_held = True
        if self.is_held:
            self._hold()
        elif kind == h5d.CHUNKED:
            self._find_chunks()
        elif (offset := self._dataset.id.get_offset()) is not None and self._dataset.size:
            self._check_end(offset, self._size_bytes())
            self.parts = {(): (offset, self._size_bytes())}

    def _size_bytes(self) -> int:
        return int(math.prod(self.shape) * self._dataset.dtype.itemsize)

    def _grid(self) -> tuple[int, ...]:
        return tuple(-(-extent // chunk) for extent, chunk in zip(self.shape, self.chunks, strict=True))

    def _check_end(self, offset: int, size: int) -> None:
        if offset + size > self._source.size_bytes:
            raise UnsupportedError(f"its bytes end at {offset + size}, and the file at {self._source.size_bytes}")

    def values(self) -> Any:
        """All elements, those that the dataset has not among them."""
        values = self._dataset[...]
        if self.shape == self._dataset.shape:
            return values
        whole = np.full(self.shape, "" if self.is_text else self._dataset.fillvalue, values.dtype)
        whole[tuple(map(slice, self._dataset.shape))] = values
        return whole

    def _hold(self) -> None:
        """Puts all elements into one chunk of the table."""
        if not math.prod(self.shape):
            return
        if self._size_bytes() > LONGEST_PART:
            raise UnsupportedError(f"{math.prod(self.shape)} texts are too many for the table")
        values = self.values()
        place = (0,) * len(self.shape)
        self.held[place] = framed_texts(values) if self.is_text else np.asarray(values).astype(self.dtype).tobytes()

    def _find_chunks(self) -> None:
        self.chunks = self._dataset.chunks
        found: dict[Place, tuple[int, int, int]] = {}

        def note(chunk: Any) -> None:
            if chunk.byte_offset is not None:
                self._check_end(chunk.byte_offset, chunk.size)
                place = tuple(offset // extent for offset, extent in zip(chunk.chunk_offset, self.chunks, strict=True))
                found[place] = chunk.byte_offset, chunk.size, chunk.filter_mask

        chunks = self._dataset.id
        if hasattr(chunks, "chunk_iter"):
            chunks.chunk_iter(note)
        else:
            for number in range(chunks.get_num_chunks()):
                note(chunks.get_chunk_info(number))
        # Filters are optional for each chunk. The table has those of most bytes.
        weights: Counter[int] = Counter()
        for _, size, skipped in found.values():
            weights[skipped] += size
        mask = weights.most_common(1)[0][0] if weights else 0
        self._filters = self._listed_filters(mask)
        self.parts = {place: (offset, size) for place, (offset, size, skipped) in found.items() if skipped == mask}
        self._encode_others({place: chunk for place, chunk in found.items() if chunk[2] != mask})
        self._fill_beyond()

    def _listed_filters(self, skipped: int) -> list[dict[str, Any]]:
        """The pipeline of filters, in the order of writing, without those whose bits are set."""
        listed, found = self._dataset.id.get_create_plist(), []
        # The number of bytes that a filter gets; after a compressor any.
        size: int | None = math.prod(self.chunks) * self.dtype.itemsize
        for number in range(listed.get_nfilters()):
            if skipped >> number & 1:
                continue
            code, _, settings, name = listed.get_filter(number)
            codec = _codec(code, settings, name, self.dtype.itemsize)
            unit = codec.get("elementsize", 1)
            if unit > 1 and (size is None or size % unit):
                raise UnsupportedError(
                    f"its bytes are shuffled by {unit} where they are no whole elements, which Zarr's filter refuses"
                )
            size = None if codec["id"] in _COMPRESSORS or size is None else size + 4 * (codec["id"] == "fletcher32")
            self._is_readable &= bool(self._h5py.h5z.filter_avail(code))
            found.append(codec)
        return found

    def _encode_others(self, others: dict[Place, tuple[int, int, int]]) -> None:
        """Encodes chunks that have other filters than most."""
        size = len(others) * math.prod(self.chunks) * self.dtype.itemsize
        if size > ENCODED_BYTES:
            raise UnsupportedError(
                f"{len(others)} of its {len(others) + len(self.parts)} chunks leave out other filters than the rest, and "
                f"{size} bytes are too many for the table"
            )
        for place, (offset, size, skipped) in others.items():
            other = self.document(None, self._listed_filters(skipped))
            self.held[place] = encoded(self.document(None), decoded(other, self._source.read(offset, size), self.dtype))

    def _fill_beyond(self) -> None:
        """Encodes chunks in which elements that the dataset has not, and the array has, are no fill values."""
        for axis, (extent, had) in enumerate(zip(self.shape, self._dataset.shape, strict=True)):
            last, kept = divmod(had, self.chunks[axis])
            if extent == had or not kept:
                continue
            for place in [place for place in self.parts if place[axis] == last]:
                elements = decoded(self.document(None), self._source.read(*self.parts[place]), self.dtype)
                box = [slice(0, end - at * chunk) for end, at, chunk in zip(self.shape, place, self.chunks, strict=True)]
                box[axis] = slice(kept, box[axis].stop)
                mended = elements.copy()
                mended[tuple(box)] = self._dataset.fillvalue
                if mended.tobytes() != elements.tobytes():
                    del self.parts[place]
                    self.held[place] = encoded(self.document(None), mended)
        if sum(map(len, self.held.values())) > ENCODED_BYTES:
            raise UnsupportedError(
                "it has fewer rows than its dimension, and what is behind them in its chunks is too much for the table"
            )

    def _cut(self, whole_rows: int) -> None:
        """Cuts contiguous elements into whole rows of the first dimension: as many as divide it, because chunks at the edge are whole."""
        if self.is_held or self._dataset.chunks or not self.shape or not self.parts:
            return
        (offset, _), row = next(iter(self.parts.values())), self._dataset.dtype.itemsize * math.prod(self.shape[1:])
        rows, most = self.shape[0], max(1, LONGEST_PART // row)
        divided = math.gcd(rows, whole_rows)
        steps = _divisors(divided)
        step = max(step for step in steps if step <= most)
        if step * row < min(SHORTEST_PART, LONGEST_PART // 8):
            # The number of rows is prime, for example.
            step = min((larger for larger in steps if larger > most), default=step)
        self.chunks = (step, *self.shape[1:])
        rest = (0,) * (len(self.shape) - 1)
        self.parts = {(number, *rest): (offset + number * step * row, step * row) for number in range(rows // step)}

    def document(self, fill: Any, filters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """The document ``.zarray``."""
        compressor = None
        filters = list(self._filters if filters is None else filters)
        if filters and filters[-1]["id"] in _COMPRESSORS:
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

    def verify(self, document: dict[str, Any]) -> None:
        """Decodes chunks as readers of the table will, and compares their elements with h5py's.

        Raises
        ------
        UnsupportedError
            They are others, or the filters do not decode them.
        """
        places = list(self.parts)
        if places and not ends_at_nul(self._h5py, self._dataset.id.get_type()):
            # The one with most bytes tells most; the last may lie at the edge.
            places = [max(places, key=lambda place: self.parts[place][1]), max(places)]
        places += list(self.held)[:1]
        for place in dict.fromkeys(places):
            self._verify_chunk(document, place)
        if not places or self.has_gaps:
            self._verify_gap(document)

    def _verify_gap(self, document: dict[str, Any]) -> None:
        """Compares an element that is not stored with the fill value."""
        got = decoded(document | {"chunks": [1] * len(self.shape)}, None, self.dtype)
        if not self.has_gaps or not self._is_readable:
            return
        grid = self._grid()
        # So many chunks cannot all be stored.
        places = (_place(number, grid) for number in range(len(self.parts) + len(self.held) + 1))
        gap = next(place for place in places if place not in self.parts and place not in self.held)
        first = [at * chunk for at, chunk in zip(gap, self.chunks, strict=True)]
        is_inside = all(at < extent for at, extent in zip(first, self._dataset.shape, strict=True))
        expected = self._dataset[tuple(slice(at, at + 1) for at in first)] if is_inside else self._dataset.fillvalue
        if got.tobytes() != np.asarray(expected).astype(self.dtype).tobytes():
            raise UnsupportedError("its fill value in Zarr is another one than in HDF5")

    def _verify_chunk(self, document: dict[str, Any], place: Place) -> None:
        chunk, name = self.held.get(place), ".".join(map(str, place)) or "0"
        region = tuple(
            slice(at * chunk, min((at + 1) * chunk, extent))
            for at, chunk, extent in zip(place, self.chunks, self._dataset.shape, strict=True)
        )
        if place in self.parts:
            chunk = self._source.read(*self.parts[place])
        try:
            got = decoded(document, chunk, self.dtype)
        except CuzarrError as error:
            raise UnsupportedError(f"its chunk {name} cannot be decoded: {error.message}") from error
        if self.is_held:
            is_same = self.is_text or got.tobytes() == self.held[place]
        elif not self._is_readable:
            return
        else:
            expected = np.asarray(self._dataset[region]).astype(self.dtype)
            inside = got[tuple(slice(max(part.stop - part.start, 0)) for part in region)]
            is_same = inside.tobytes() == expected.tobytes()
        if not is_same:
            raise UnsupportedError(f"its chunk {name} has other elements in Zarr than in HDF5")


def _place(number: int, grid: tuple[int, ...]) -> Place:
    """The place in a grid of the chunk of a number."""
    place: list[int] = []
    for count in reversed(grid):
        number, at = divmod(number, count)
        place.insert(0, at)
    return tuple(place)


def _divisors(number: int) -> list[int]:
    small = [step for step in range(1, math.isqrt(number) + 1) if number % step == 0]
    return sorted({*small, *(number // step for step in small)})


def framed_texts(values: Any) -> bytes:
    """Texts as numcodecs' ``vlen-utf8`` has them."""
    texts = np.atleast_1d(np.asarray(values, object)).reshape(-1)
    encoded = [text if isinstance(text, bytes) else str(text).encode() for text in texts]
    return len(encoded).to_bytes(4, "little") + b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def _codec(code: int, settings: tuple[int, ...], name: bytes, item_bytes: int) -> dict[str, Any]:
    """The codec of a filter."""
    if code == _DEFLATE:
        return {"id": "zlib", "level": int(settings[0]) if settings else 6}
    if code == _SHUFFLE:
        return {"id": "shuffle", "elementsize": int(settings[0]) if settings else item_bytes}
    if code == _FLETCHER32:
        return {"id": "fletcher32"}
    if code == _ZSTD:
        # HDF5 has settings without signs, and levels may be negative.
        level = int(settings[0]) if settings else 3
        return {"id": "zstd", "level": level - (1 << 32) if level >= 1 << 31 else level}
    if code == _BLOSC:
        # The frame says the rest; these are for writers.
        return {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
    what = _NAMES.get(code) or name.decode(errors="replace") or str(code)
    hint = "copy the variable to a compressor that Zarr has, such as deflate: nccopy -d 4 FROM TO"
    raise UnsupportedError(f"the filter {printable(what)} has no codec", hint=hint)


def inline(value: bytes) -> str:
    """A value that a table holds itself."""
    return "base64:" + base64.b64encode(value).decode()

"""Arrays."""

from __future__ import annotations

import itertools
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields as dataclass_fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from cuzarr import _convert, _core, _reads
from cuzarr._attributes import Attributes
from cuzarr._chunks import parse_shape
from cuzarr._drawing import chunk_grid_svg
from cuzarr._config import config as global_config, resolve_class
from cuzarr._indexing import (
    BlockIndex,
    Box,
    CoordinateSelection,
    FancySelection,
    Fields,
    OIndex,
    OrthogonalSelection,
    VIndex,
    basic_box,
    block_box,
    check_fields,
    is_pure_fancy,
    is_pure_orthogonal,
    mask_selection,
    one_field,
    pop_fields,
)
from cuzarr._info import Info, human_bytes
from cuzarr._metadata import AnyArrayMetadata, ArrayV2Metadata, ArrayV3Metadata, encode_document, parse_node
from cuzarr._nodes import read_array
from cuzarr._operators import Operators, Reductions
from cuzarr._progress import shown
from cuzarr.buffer import NDBuffer, cpu, gpu
from cuzarr.buffer._prototype import prototype_device
from cuzarr.codecs._values import Codec
from cuzarr.errors import (
    CuzarrError,
    CuzarrRuntimeWarning,
    FallbackRefusedError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    ShapeMismatchError,
    UnsupportedError,
)
from cuzarr.storage import Store, StorePath, make_store_path


if TYPE_CHECKING:
    from cuzarr._async_nodes import AsyncArray


@dataclass(frozen=True)
class ArrayConfig:
    """How an array behaves while it is open; nothing of it is stored.

    ``order`` is the memory order of results (of format 3), ``write_empty_chunks`` stores chunks of nothing but fill
    values too, ``read_missing_chunks`` turns missing chunks into fill values, else they are an error. Ranges of a shard
    that are at most ``sharding_coalesce_max_gap_bytes`` apart are read at once, up to
    ``sharding_coalesce_max_bytes``.
    """

    order: Literal["C", "F"] = "C"
    write_empty_chunks: bool = False
    read_missing_chunks: bool = True
    sharding_coalesce_max_gap_bytes: int = 1 << 20
    sharding_coalesce_max_bytes: int = 16 << 20

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ArrayConfig:
        """From some of the settings; the others are the global configuration's."""
        names = [field.name for field in dataclass_fields(cls)]
        if unknown := set(data) - set(names):
            raise TypeError(f"unknown array settings {sorted(unknown)}, there are {', '.join(names)}")
        chosen = cls(**{name: data.get(name, global_config.get(f"array.{name}")) for name in names})
        if chosen.order not in ("C", "F"):
            raise InvalidArgumentError(f"order is {chosen.order!r}, expected 'C' or 'F'")
        return chosen

    def to_dict(self) -> dict[str, Any]:
        """Every setting by its name."""
        return asdict(self)


ArrayConfigLike = ArrayConfig | Mapping[str, Any]


def parse_array_config(data: Any) -> ArrayConfig:
    """Settings from ``None``, a dictionary, or an object of ours or zarr-python's."""
    if isinstance(data, ArrayConfig):
        return data
    return ArrayConfig.from_dict(data.to_dict() if hasattr(data, "to_dict") else (data or {}))


class Explanation:
    """What a read or write would do, and why. ``str()`` tells a person, ``to_dict()`` a program."""

    def __init__(self, text: str, document: str) -> None:
        self._text = text
        self._document = document

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        return json.loads(self._document)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return self._text


class Array(Operators, Reductions):
    """An array of a store. Elements are read and written by indexing; nothing is read before.

    Parameters
    ----------
    store_path : StorePath
        Where it is.
    metadata : ArrayV2Metadata or ArrayV3Metadata
        What it is.
    config : ArrayConfig or dict, optional
        How it behaves while open.
    device : str, optional
        Where results go: ``"cpu"``, ``"cuda"``, ``"cuda:1"``. What the configuration says when elements are read, unless
        given.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, shape=(4, 6), chunks=(2, 3), dtype="int32")
    >>> array[1:3, ::2] = np.arange(6).reshape(2, 3)
    >>> array[1:3, ::2]
    array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    >>> array.shape, array.chunks, array.nchunks
    ((4, 6), (2, 3), 4)
    """

    def __init__(
        self,
        store_path: StorePath,
        metadata: AnyArrayMetadata,
        config: ArrayConfigLike | None = None,
        device: str | None = None,
    ) -> None:
        self._store_path = store_path
        self._metadata = metadata
        self._config = parse_array_config(config)
        self._own_device = None if device is None else str(device)
        self._handles: dict[str, tuple[tuple[Any, ...], _core.Array]] = {}
        # The Rust side checks what this side does not: a document it refuses is refused before anything is written.
        try:
            self._handle()
        except CuzarrError as error:
            if not any("array '" in place for place in error.trail):
                error.trail = (f"{store_path.store}: array '/{store_path.path}'", *error.trail)
            raise

    @classmethod
    def from_dict(cls, store_path: StorePath, data: dict[str, Any]) -> Self:
        """The array that a metadata document (attributes inside) describes; reads nothing."""
        metadata = parse_node(data)
        if not isinstance(metadata, ArrayV2Metadata | ArrayV3Metadata):
            raise InvalidArgumentError("the document describes a group, expected an array")
        return cls(store_path, metadata)

    @classmethod
    def open(cls, store: Any, *, config: ArrayConfigLike | None = None) -> Self:
        """Opens the array of format 3 at a store or path.

        Raises
        ------
        ArrayNotFoundError
            There is none.
        """
        place = make_store_path(store)
        return cls(place, read_array(place, 3), config)

    # ------------------------------------------------------------------------------------------------- what it is

    @property
    def store(self) -> Store:
        """The store it is in."""
        return self._store_path.store

    @property
    def store_path(self) -> StorePath:
        """The store and the path in it."""
        return self._store_path

    @property
    def path(self) -> str:
        """The path in the store, without a leading ``/``."""
        return self._store_path.path

    @property
    def name(self) -> str:
        """The path with a leading ``/``."""
        return f"/{self.path}"

    @property
    def basename(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]

    @property
    def metadata(self) -> AnyArrayMetadata:
        """The metadata document, as a value."""
        return self._metadata

    @property
    def config(self) -> ArrayConfig:
        """How it behaves while it is open."""
        return self._config

    @property
    def device(self) -> str:
        """Where results go: what was given when it was opened, else what the configuration says now."""
        return global_config.get("device") if self._own_device is None else self._own_device  # type: ignore[no-any-return]

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self._store_path.read_only

    @property
    def attrs(self) -> Attributes:
        """The attributes; changes are written."""
        return Attributes(self)

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
        """Per dimension the extents of the chunks; the last may be smaller."""
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
        ratio = f"{self.nbytes / stored_bytes:.1f}" if stored_bytes else None
        return Info.of(
            [
                ("Type", type(self).__name__),
                ("Zarr format", self._metadata.zarr_format),
                ("Data type", self._metadata.data_type),
                ("Fill value", repr(self.fill_value)),
                ("Shape", self.shape),
                ("Shard shape", self.shards),
                ("Chunk shape", self.chunks),
                ("Order", self.order),
                ("Read-only", self.read_only),
                ("Store type", type(getattr(self.store, "wrapped", self.store)).__name__),
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

    # -------------------------------------------------------------------------------------------------- selecting

    def __getitem__(self, selection: Any) -> Any:
        """Elements, selected as NumPy does: integers, slices, an ellipsis, index arrays and masks, field names."""
        return self.getitem(selection)

    def __setitem__(self, selection: Any, value: Any) -> None:
        """Writes elements; ``value`` broadcasts to what is selected, and may be on any device."""
        self.setitem(selection, value)

    def getitem(self, selection: Any, *, prototype: Any = None, progress: Any = None) -> Any:
        """As brackets, with buffers of one's own choice: the prototype decides where the elements go.

        Parameters
        ----------
        selection : optional
            What brackets take.
        prototype : BufferPrototype, optional
            Ours or zarr-python's.
        progress : bool, callable or object, optional
            ``True`` shows a line on the terminal; a function hears of objects read and objects in all (``None`` when that is
            not known); anything with ``update`` is used as tqdm is.

        Examples
        --------
        >>> import cuzarr
        >>> from cuzarr.buffer import cpu
        >>> cuzarr.ones((4,), store={}).getitem(slice(1, 3), prototype=cpu.buffer_prototype)
        array([1., 1.])
        """
        if progress:
            with shown(progress, "reading", self._count_objects(selection)):
                return self.getitem(selection, prototype=prototype)
        selection = _as_index(selection)
        chosen, rest = pop_fields(selection)
        if is_pure_fancy(rest, self.ndim):
            chosen, points, is_mask = VIndex(self).parse(selection)
            get = self.get_mask_selection if is_mask else self.get_coordinate_selection
            return get(points, fields=chosen, prototype=prototype)
        if is_pure_orthogonal(rest, self.ndim):
            return self.get_orthogonal_selection(rest, fields=chosen, prototype=prototype)
        return self.get_basic_selection(rest, fields=chosen, prototype=prototype)

    @property
    def async_array(self) -> AsyncArray:
        """The same array, with elements that are awaited."""
        from cuzarr._async_nodes import AsyncArray

        return AsyncArray.of(self)

    def _count_objects(self, selection: Any) -> int | None:
        """Stored objects that a box touches; ``None`` for what is no box."""
        fields, rest = pop_fields(selection)
        try:
            box = basic_box(rest, self.shape)
        except IndexError:
            return None
        if fields is not None or self._metadata.data_type.is_variable:
            return None
        return int(self.explain(rest).to_dict()["objects"]) if all(box.count) else 0

    def setitem(self, selection: Any, value: Any, prototype: Any = None, *, progress: Any = None) -> None:
        """As assigning to brackets. The prototype changes nothing: values are taken from wherever they are. ``progress`` is
        as in :meth:`getitem`."""
        if progress:
            with shown(progress, "writing", self._count_objects(selection)):
                return self.setitem(selection, value, prototype)
        selection = _as_index(selection)
        chosen, rest = pop_fields(selection)
        if is_pure_fancy(rest, self.ndim):
            chosen, points, is_mask = VIndex(self).parse(selection)
            set_ = self.set_mask_selection if is_mask else self.set_coordinate_selection
            set_(points, value, fields=chosen, prototype=prototype)
        elif is_pure_orthogonal(rest, self.ndim):
            self.set_orthogonal_selection(rest, value, fields=chosen, prototype=prototype)
        else:
            self.set_basic_selection(rest, value, fields=chosen, prototype=prototype)

    def read(
        self,
        selection: Any = Ellipsis,
        *,
        out: Any = None,
        dtype: Any = None,
        prototype: Any = None,
        device: str | Sequence[str] | None = None,
    ) -> Any:
        """A box, as brackets of integers and slices, in another element type, into memory of the caller, or to other devices.

        Elements are converted on the way, as NumPy's ``astype`` does it: to ``dtype``, or to what ``out`` holds. Of several
        devices each gets a part of the first dimension, and all read at once; the result is a list of arrays, whose parts
        begin where chunks do.

        >>> import cuzarr
        >>> cuzarr.full((4,), fill_value=7, dtype="int16", store={}).read(slice(1, 3), dtype="float32")
        array([7., 7.], dtype=float32)
        >>> array = cuzarr.zeros((10, 3), chunks=(4, 3), store={})
        >>> [part.shape for part in array.read(device=["cpu", "cpu"])]
        [(4, 3), (6, 3)]
        """
        if device is None:
            return _reads.read(self, selection, out, dtype, prototype)
        return _reads.read_to(self, selection, out, dtype, prototype, device)

    def read_many(
        self, selections: Sequence[Any], *, out: Any = None, dtype: Any = None, prototype: Any = None
    ) -> Any:
        """Many boxes by one plan and one pipeline, as random crops for training want it.

        Parameters
        ----------
        selections : sequence
            Each as for :meth:`get_basic_selection`.
        out : array, optional
            Where the elements go: a first dimension for the selections, which then have one shape.
        dtype : dtype, optional
            Element type of the results; elements are converted on the way.
        prototype : BufferPrototype, optional
            zarr-python's; decides the device.

        Returns
        -------
        list of arrays, or out
            One for each selection. Those of one shape share memory.

        >>> import cuzarr
        >>> array = cuzarr.ones((8, 8), store={})
        >>> [crop.shape for crop in array.read_many([(slice(0, 3), slice(2, 4)), (slice(5, 8), slice(6, 8))])]
        [(3, 2), (3, 2)]
        """
        return _reads.read_many(self, selections, out, dtype, prototype)

    def get_basic_selection(
        self,
        selection: Any = Ellipsis,
        *,
        out: Any = None,
        prototype: Any = None,
        fields: Fields | None = None,
    ) -> Any:
        """Elements of a box.

        Parameters
        ----------
        selection : int, slice, Ellipsis or tuple of them
            Per dimension; steps of slices are positive.
        out : array, optional
            Where the elements go, of the selection's shape and the array's dtype, on the device that reads.
        prototype : BufferPrototype, optional
            zarr-python's; decides the device.
        fields : str or list of str, optional
            Only these fields of a structured dtype.

        Returns
        -------
        array
            NumPy's on the CPU, CuPy's or :class:`cuzarr.DeviceArray` on a GPU; of no dimensions for a single element.

        Raises
        ------
        BoundsCheckError, NegativeStepError, SelectionInvalidError
            The selection does not fit.
        ChunkCorruptError, ChecksumMismatchError
            A chunk cannot be decoded.
        """
        return self._get_box(basic_box(selection, self.shape), out, prototype, fields)

    def set_basic_selection(
        self,
        selection: Any,
        value: Any,
        *,
        fields: Fields | None = None,
        prototype: Any = None,
    ) -> None:
        """Writes elements of a box; ``value`` broadcasts to it and may be on any device."""
        self._set_box(basic_box(selection, self.shape), value, fields)

    def get_block_selection(
        self, selection: Any, *, out: Any = None, fields: Fields | None = None, prototype: Any = None
    ) -> Any:
        """Whole stored chunks, selected by their places in the grid, by integers and slices."""
        return self._get_box(block_box(selection, self.shape, self._stored_chunks), out, prototype, fields)

    def set_block_selection(
        self, selection: Any, value: Any, *, fields: Fields | None = None, prototype: Any = None
    ) -> None:
        """Writes whole stored chunks, selected by their places in the grid."""
        self._set_box(block_box(selection, self.shape, self._stored_chunks), value, fields)

    def get_orthogonal_selection(
        self, selection: Any, *, out: Any = None, fields: Fields | None = None, prototype: Any = None
    ) -> Any:
        """The outer product of one selector for each dimension: integers, slices, index arrays, masks."""
        chosen = OrthogonalSelection(selection, self.shape, self.chunks)
        result = self._get_fancy(chosen, chosen.full_shape, prototype, fields).reshape(chosen.shape)
        return _into(out, result)

    def set_orthogonal_selection(
        self, selection: Any, value: Any, *, fields: Fields | None = None, prototype: Any = None
    ) -> None:
        """Writes the outer product of one selector for each dimension."""
        chosen = OrthogonalSelection(selection, self.shape, self.chunks)
        self._set_fancy(chosen, chosen.shape, chosen.full_shape, value, fields)

    def get_coordinate_selection(
        self, selection: Any, *, out: Any = None, fields: Fields | None = None, prototype: Any = None
    ) -> Any:
        """Points, by one index array for each dimension; they broadcast together."""
        chosen = CoordinateSelection(selection, self.shape, self.chunks)
        result = self._get_fancy(chosen, chosen.shape, prototype, fields).reshape(chosen.selection_shape)
        return _into(out, result)

    def set_coordinate_selection(
        self, selection: Any, value: Any, *, fields: Fields | None = None, prototype: Any = None
    ) -> None:
        """Writes points, by one index array for each dimension."""
        chosen = CoordinateSelection(selection, self.shape, self.chunks)
        self._set_fancy(chosen, chosen.selection_shape, chosen.shape, value, fields)

    def get_mask_selection(
        self, mask: Any, *, out: Any = None, fields: Fields | None = None, prototype: Any = None
    ) -> Any:
        """The elements where a mask of the array's shape is true, in C order."""
        chosen = mask_selection(mask, self.shape, self.chunks)
        return _into(out, self._get_fancy(chosen, chosen.shape, prototype, fields))

    def set_mask_selection(
        self, mask: Any, value: Any, *, fields: Fields | None = None, prototype: Any = None
    ) -> None:
        """Writes the elements where a mask of the array's shape is true."""
        chosen = mask_selection(mask, self.shape, self.chunks)
        self._set_fancy(chosen, chosen.shape, chosen.shape, value, fields)

    @property
    def oindex(self) -> OIndex:
        """Orthogonal selection by brackets: ``array.oindex[[0, 3], :]``."""
        return OIndex(self)

    @property
    def vindex(self) -> VIndex:
        """Selection of points by brackets: ``array.vindex[[0, 3], [1, 1]]``, or by a mask."""
        return VIndex(self)

    @property
    def blocks(self) -> BlockIndex:
        """Selection of whole chunks by brackets: ``array.blocks[0, 1:3]``."""
        return BlockIndex(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """All elements, as a NumPy array.

        Raises
        ------
        ImplicitHostCopyError
            The array reads to a GPU, and a copy to the host has to be asked for.
        """
        if copy is False:
            raise ValueError("copy=False is not possible: the elements are in a store")
        if self.device != "cpu":
            raise ImplicitHostCopyError(
                f"{self!r} reads to {self.device}, and a copy to the host has to be asked for",
                hint="use array.with_device('cpu'), or index it and call .cpu()",
            )
        elements = self[...]
        return elements if dtype is None else elements.astype(dtype, copy=False)

    # ------------------------------------------------------------------------------------------ reading and writing

    def _handle(self, device: str | None = None) -> _core.Array:
        device = device or self.device
        settings = tuple(global_config.get(key) for key in ("strict", "memory_limit", "threading.max_workers"))
        is_new = device not in self._handles
        if is_new or self._handles[device][0] != settings:
            document = {key: value for key, value in self._metadata.document.items() if key != "attributes"}
            options = {
                "device": device,
                "strict": settings[0],
                "memory_limit_bytes": settings[1],
                "threads": settings[2],
                "write_empty_chunks": self._config.write_empty_chunks,
                "read_missing_chunks": self._config.read_missing_chunks,
                "coalesce_gap_bytes": self._config.sharding_coalesce_max_gap_bytes,
                "coalesce_max_bytes": self._config.sharding_coalesce_max_bytes,
            }
            raw, zarr_format = encode_document(document, compact=True), self._metadata.zarr_format
            self._handles[device] = settings, _core.Array(self.store._handle, self.path, raw, zarr_format, options)
            if is_new and device != "cpu" and not options["strict"] and (raw, device) not in _looked_at:
                strict = _core.Array(self.store._handle, self.path, raw, zarr_format, {**options, "strict": True})
                _warn_of_fallbacks(strict, self.ndim, device)
                if len(_looked_at) < _LOOKED_AT_MOST:
                    _looked_at.add((raw, device))
        return self._handles[device][1]

    def _placement(self, prototype: Any) -> tuple[str, Any]:
        """Where an operation's memory is, and the class of it when it is one of the caller's own: a prototype counts more
        than the array's device, which counts more than the configuration."""
        if self._metadata.data_type.is_variable:
            return "cpu", None  # strings and bytes of variable length are Python objects
        if prototype is not None:
            return prototype_device(prototype, self.device), _own_class(prototype)
        return self.device, None if self._own_device is not None else _own_class(resolve_class(global_config.get("ndbuffer")))

    def _get_box(self, box: Box, out: Any, prototype: Any, fields: Fields | None) -> Any:
        out_dtype = check_fields(fields, self.dtype)
        device, nd_buffer = self._placement(prototype)
        if out is not None:
            if out_dtype is not self.dtype or self._metadata.data_type.is_variable:
                raise UnsupportedError(f"out takes whole elements of a fixed size, not {out_dtype}")
            native = _native(self.dtype)
            handle, selection = self._handle(device), (box.start, box.count, box.step, box.dropped)
            return _convert.read_into(lambda memory: handle.read_into(*selection, memory), out, box.shape, native, device)
        if out_dtype == self.dtype:
            return _convert.hand_over(self._read(box, device), nd_buffer)
        elements = _take_fields(self._read(box, "cpu"), fields, out_dtype)
        if device != "cpu":
            _tell_of_host("fields of structures", device)
            elements = _convert.to_device(elements, device)
        return _convert.hand_over(elements, nd_buffer)

    def _read(self, box: Box, device: str) -> Any:
        data_type = self._metadata.data_type
        handle = self._handle(device)
        selection = (box.start, box.count, box.step, box.dropped)
        if data_type.is_variable:
            offsets, data = handle.read_variable(*selection)
            return _convert.decode_variable(offsets, data, box.shape, data_type)
        if self.order == "F" and len(box.shape) > 1:
            buffer = _core.NdBuffer.empty(box.shape, _convert.core_dtype(data_type.native), device, "F")
            handle.read_into(*selection, buffer)
        else:
            buffer = handle.read(*selection)
        elements = _convert.result_array(buffer, _native(data_type.native))
        if isinstance(elements, np.ndarray) and elements.dtype != data_type.native:
            if data_type.native.names is not None:
                return elements.astype(data_type.native)
            elements = elements.byteswap(inplace=True).view(data_type.native)
        return elements

    def _set_box(self, box: Box, value: Any, fields: Fields | None) -> None:
        self.store.check_writable()
        check_fields(fields, self.dtype)
        if (field := one_field(fields)) is not None:
            elements = self._read(box, "cpu")
            elements[field] = _convert.on_host(value)
            value = elements
        self._write(box, value)

    def _write(self, box: Box, value: Any) -> None:
        if isinstance(value, NDBuffer):
            value = value.as_ndarray_like()
        data_type = self._metadata.data_type
        handle = self._handle()
        selection = (box.start, box.count, box.step, box.dropped)
        if _convert.is_on_device(value):
            handle.write(*selection, _convert.wrap_device(value, data_type))
            return
        native = _native(data_type.native)
        elements = _broadcast(_convert.to_native_host(value, native), box.shape)
        if data_type.is_variable:
            handle.write_variable(*selection, *_convert.encode_variable(elements, data_type))
        elif elements.size:
            handle.write(*selection, _convert.wrap_host(elements))

    def _get_fancy(
        self, chosen: FancySelection, shape: tuple[int, ...], prototype: Any, fields: Fields | None
    ) -> Any:
        out_dtype = check_fields(fields, self.dtype)
        device, nd_buffer = self._placement(prototype)
        module = _array_module(device, out_dtype if out_dtype == self.dtype else None)
        if module is None:
            elements = self._get_fancy(chosen, shape, cpu.buffer_prototype, fields)
            return _convert.hand_over(_convert.to_device(elements, device), nd_buffer)
        result = module.empty(shape, self.dtype if device == "cpu" else _native(self.dtype))
        for piece in chosen:
            block = module.asarray(self._read(piece.box, device))
            result[_indices(module, piece.target)] = block[_indices(module, piece.inside)]
        if module is not np and global_config.get("array_type") == "device":
            result = _convert.result_array(_convert.device_buffer(result), result.dtype)
        return _convert.hand_over(result if out_dtype == self.dtype else _take_fields(result, fields, out_dtype), nd_buffer)

    def _set_fancy(
        self,
        chosen: FancySelection,
        shape: tuple[int, ...],
        full_shape: tuple[int, ...],
        value: Any,
        fields: Fields | None,
    ) -> None:
        self.store.check_writable()
        check_fields(fields, self.dtype)
        field = one_field(fields)
        if isinstance(value, NDBuffer):
            value = value.as_ndarray_like()
        device = _convert.device_of(value)
        module = _array_module(device, self.dtype if field is None else None)
        if module is None:
            value, device, module = _convert.on_host(value), "cpu", np
        if device == "cpu":
            value = _convert.to_native_host(value, self.dtype if field is None else self.dtype[field])
        else:
            value = module.asarray(value)
        values = _broadcast(value, shape, module).reshape(full_shape)
        for piece in chosen:
            block = module.asarray(self._read(piece.box, device))
            part = values[_indices(module, piece.target)]
            if field is None:
                block[_indices(module, piece.inside)] = part
            else:
                block[field][piece.inside] = part
            self._write(piece.box, block)

    # ---------------------------------------------------------------------------------------------------- changing

    def resize(self, new_shape: Any) -> None:
        """Changes the shape. Chunks that fall outside are deleted, and come in again as the fill value. What a chunk at the edge
        holds beyond the shape stays stored, and is there again when the array grows over it.

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
        metadata = self._metadata.update_shape(shape)
        documents = metadata.documents()
        grid = _grid(shape, self._stored_chunks)
        for key, coords in list(self._iterate_stored()) if delete_outside_chunks else ():
            if any(place >= count for place, count in zip(coords, grid, strict=True)):
                self.store.delete(key)
        self._store_path.write(documents)
        self._replace_metadata(metadata)

    def append(self, data: Any, axis: int = 0) -> tuple[int, ...]:
        """Adds elements behind the last ones along ``axis``; the other extents must agree. Returns the new shape."""
        if not hasattr(data, "shape"):
            data = np.asanyarray(data)
        if not 0 <= axis < self.ndim:
            raise InvalidArgumentError(f"axis {axis} is not one of the array's {self.ndim}")
        others = [tuple(extent for place, extent in enumerate(shape) if place != axis) for shape in (self.shape, data.shape)]
        if others[0] != others[1]:
            raise ShapeMismatchError(f"data of shape {tuple(data.shape)} does not fit shape {self.shape} along axis {axis}")
        before = self.shape
        after = tuple(extent + (data.shape[axis] if place == axis else 0) for place, extent in enumerate(before))
        self.resize(after)
        region = tuple(slice(before[axis], after[axis]) if place == axis else slice(None) for place in range(self.ndim))
        self[region] = data
        return after

    def update_attributes(self, new_attributes: Mapping[str, Any]) -> Self:
        """Adds and replaces attributes, in one write."""
        self._replace_attributes({**self._metadata.attributes, **new_attributes})
        return self

    def _replace_attributes(self, attributes: dict[str, Any]) -> None:
        self.store.check_writable()
        metadata = self._metadata.update_attributes(attributes)
        self._store_path.write(metadata.documents())
        self._metadata = metadata

    def _replace_metadata(self, metadata: AnyArrayMetadata) -> None:
        self._metadata = metadata
        self._handles = {}

    def with_config(self, config: ArrayConfigLike) -> Self:
        """The same array with other settings; those not named stay."""
        chosen = config if isinstance(config, ArrayConfig) else replace(self._config, **parse_changes(config))
        return type(self)(self._store_path, self._metadata, chosen, self._own_device)

    def with_device(self, device: str) -> Self:
        """The same array, reading to another device.

        >>> import cuzarr
        >>> cuzarr.zeros((2,), store={}).with_device("cpu").device
        'cpu'
        """
        return type(self)(self._store_path, self._metadata, self._config, device)

    # ------------------------------------------------------------------------------------------------------- looking

    def explain(self, selection: Any = Ellipsis, *, writing: bool = False) -> Explanation:
        """What reading a box would do, stage by stage, and why: where each codec runs, and if on the host, for which reason.
        ``writing`` asks the same of writing elements that are on the array's device. Reads and writes no elements."""
        box = basic_box(selection, self.shape)
        return Explanation(*self._handle().explain(box.start, box.count, box.step, box.dropped, writing))

    def last_report(self) -> dict[str, Any] | None:
        """Bytes, seconds and counts of each stage of the last read or write, or ``None`` before the first."""
        report = self._handle().last_report()
        return None if report is None else json.loads(report)

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
        bounds = [
            [slice(start, min(start + size, extent)) for start in range(0, extent, size)]
            for extent, size in zip(self.shape, self._stored_chunks, strict=True)
        ]
        return itertools.product(*bounds)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of 0 dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Elements along the first dimension, one stored row of chunks read at a time."""
        if not self.shape:
            raise TypeError("an array of 0 dimensions cannot be iterated")
        rows = self._stored_chunks[0]
        for start in range(0, self.shape[0], rows):
            yield from self[start : start + rows]

    # Signs make plans (:class:`cuzarr.Expression`), also beside NumPy's arrays, which would read this one at once.
    __array_priority__ = 1000

    def __eq__(self, other: object) -> bool:
        """Whether it is the same array; element by element it is :func:`cuzarr.equal`."""
        if not isinstance(other, Array):
            return NotImplemented
        mine = (self._store_path, self._metadata, self._config, self.device)
        return mine == (other._store_path, other._metadata, other._config, other.device)

    __hash__ = None  # type: ignore[assignment]  # attributes and shape may change

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.store, self.path, self._metadata.to_dict(), self._config, self._own_device)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # The same for the same array in every process: dask names its tasks by it.
        document = encode_document(self._metadata.to_dict())
        return type(self).__name__, str(self.store), self.path, document, tuple(self._config.to_dict().items()), self.device

    def placements(self) -> list[tuple[str, str]]:
        """Each codec, in order of encoding, and where reading runs it: ``"native"``, or ``"via host: <reason>"``.

        >>> import cuzarr
        >>> cuzarr.zeros((4,), store={}).placements()
        [('bytes', 'native'), ('zstd', 'native')]
        """
        axes = [0] * self.ndim
        _, document = self._handle().explain(axes, axes, [1] * self.ndim, [], False)
        codecs = json.loads(document)["codecs"]
        return [
            (item["codec"], item["placement"] + (f": {item['reason']}" if "reason" in item else "")) for item in codecs
        ]

    def _repr_html_(self) -> str:
        lines: list[tuple[str, object]] = [
            ("Store", self._store_path),
            ("Data type", self._metadata.data_type),
            ("Shape", self.shape),
            ("Chunks", self.chunks),
            ("Shards", self.shards),
            ("Bytes", human_bytes(self.nbytes)),
            ("Device", self.device),
        ]
        lines += [(f"Codec {name}", place) for name, place in self.placements()]
        drawing = chunk_grid_svg(self.shape, self.chunks, self.shards)
        return f"<table><tr><td>{Info.of(lines)._repr_html_()}</td><td>{drawing}</td></tr></table>"

    def __repr__(self) -> str:
        place = "" if self.device == "cpu" else f" device={self.device}"
        return f"<Array {self._store_path} shape={self.shape} dtype={self.dtype}{place}>"


def _rebuild(store: Store, path: str, document: dict[str, Any], config: ArrayConfig, device: str | None) -> Array:
    return Array(StorePath(store, path), parse_node(document), config, device)  # type: ignore[arg-type]


def parse_changes(config: Any) -> dict[str, Any]:
    """Some settings, checked."""
    changes = dict(config.to_dict() if hasattr(config, "to_dict") else config)
    ArrayConfig.from_dict(changes)
    return changes


def _grid(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-extent // chunk) for extent, chunk in zip(shape, chunks, strict=True))


def _extents(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(min(chunk, extent - start) for start in range(0, extent, chunk))
        for extent, chunk in zip(shape, chunks, strict=True)
    )


_told: set[tuple[str, str]] = set()
# Documents of arrays, and devices, for which that was asked; no more than so many are kept.
_looked_at: set[tuple[bytes, str]] = set()
_LOOKED_AT_MOST = 1024


def _warn_of_fallbacks(strict: _core.Array, ndim: int, device: str) -> None:
    # Once a process for each codec: what `strict` would refuse. What the host merely does faster is no fall-back.
    _, explanation = strict.explain([0] * ndim, [0] * ndim, [1] * ndim, [], False)
    fallen = {(item["codec"], item["reason"]) for item in json.loads(explanation)["codecs"] if "reason" in item}
    for codec, reason in sorted(fallen - _told):
        message = f"codec '{codec}' runs via host although arrays are read to {device}: {reason}"
        warnings.warn(message, CuzarrRuntimeWarning, stacklevel=6)
    _told.update(fallen)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # The Rust side holds every element in the machine's byte order; Python's objects and strings have none.
    return dtype if dtype.kind in "OT" else dtype.newbyteorder("=")


def _as_index(selection: Any) -> Any:
    if isinstance(selection, Array) or (type(selection).__name__ == "Array" and hasattr(selection, "store_path")):
        return np.asarray(selection)
    return selection


def _own_class(prototype: Any) -> Any:
    """The class that results go through when it is not one of those that change nothing."""
    nd_buffer = getattr(prototype, "nd_buffer", prototype)
    plain = nd_buffer in (cpu.NDBuffer, gpu.NDBuffer) or not hasattr(nd_buffer, "from_ndarray_like")
    return None if plain else nd_buffer


def _array_module(device: str, dtype: np.dtype[Any] | None) -> Any:
    """NumPy or CuPy; ``None`` where index arrays have to be served in host memory. ``dtype`` is that of the elements,
    ``None`` for parts of structures."""
    if device == "cpu":
        return np
    if device.startswith("cuda") and dtype is not None and dtype.kind in "biufc" and _convert.cupy_holds(dtype):
        import cupy

        return cupy
    _tell_of_host("index arrays", device)
    return None


def _tell_of_host(what: str, device: str) -> None:
    """Says once that something was done in host memory although elements go to a device.

    Raises
    ------
    FallbackRefusedError
        The configuration is ``strict``.
    """
    reason = f"{what} are served in host memory, because CuPy, which could do it on {device}, is missing or has no such elements"
    if global_config.get("strict"):
        raise FallbackRefusedError(reason, hint="install cupy-cuda12x, or use with_device('cpu')")
    if (what, reason) not in _told:
        _told.add((what, reason))
        warnings.warn(reason, CuzarrRuntimeWarning, stacklevel=6)


def _indices(module: Any, items: Any) -> Any:
    if module is np:
        return items
    return tuple(map(module.asarray, items)) if isinstance(items, tuple) else module.asarray(items)


def _take_fields(elements: Any, fields: Fields | None, out_dtype: np.dtype[Any]) -> Any:
    if isinstance(fields, str):
        return elements[fields].copy()
    result = np.empty(elements.shape, out_dtype)
    for name in out_dtype.names or ():
        result[name] = elements[name]
    return result


def _strip(value: Any, shape: tuple[int, ...]) -> Any:
    # As in NumPy's assignments, leading dimensions of 1 that the selection has not are dropped.
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0, ...]  # an array even without dimensions: NumPy's strings alone have a size of their own
    return value


def _broadcast(value: Any, shape: tuple[int, ...], module: Any = np) -> Any:
    try:
        return module.broadcast_to(_strip(value, shape), shape)
    except ValueError as error:
        raise ShapeMismatchError(f"a value of shape {value.shape} does not broadcast to the selection {shape}") from error


def _into(out: Any, result: Any) -> Any:
    if out is None:
        return result
    target = getattr(out, "as_ndarray_like", lambda: out)()
    if tuple(target.shape) != tuple(result.shape):
        raise ShapeMismatchError(f"out has shape {tuple(target.shape)}, the selection {tuple(result.shape)}")
    target[...] = result
    return out

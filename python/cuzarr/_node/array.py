"""``Array``, an array in a store."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np

from cuzarr import _core
from cuzarr._compute.decoded import decoded
from cuzarr._compute.display import Explanation
from cuzarr._compute.evaluate import plan
from cuzarr._compute.expression import Expression
from cuzarr._docstrings import documented
from cuzarr._memory.box import Box, basic_box
from cuzarr._memory.convert import result_array
from cuzarr._metadata.array import AnyArrayMetadata, ArrayMetadata, ArrayV2Metadata, ArrayV3Metadata, canonical_json
from cuzarr._metadata.chunk_grid import ChunkGrid, regions
from cuzarr._metadata.documents import read_array
from cuzarr._metadata.group import parse_node
from cuzarr._node import array_io, array_read, array_selections, resize
from cuzarr._node.array_config import ArrayConfig, ArrayConfigLike, parse_array_config, parse_changes
from cuzarr._node.asynchronous import AsyncArray, complete
from cuzarr._node.descriptions import array_html, array_info
from cuzarr._node.indexing import (
    BlockIndex,
    Fields,
    OIndex,
    VIndex,
    block_box,
)
from cuzarr._node.lazy import LazyArray
from cuzarr._node.node import Node
from cuzarr._node.writer import Writer
from cuzarr._numpy import is_computable
from cuzarr._operators.dispatch import Stored
from cuzarr._operators.numpy_stored import StoredProtocol
from cuzarr._operators.signs import OneElement, Operators, Reductions
from cuzarr._progress import is_wanted, shown
from cuzarr._text import Info, printable
from cuzarr.codecs.values import Codec
from cuzarr.errors import ArgumentTypeError, CuzarrError, ImplicitHostCopyError, InvalidArgumentError, UnsupportedError
from cuzarr.storage import Store, StoreLike, StorePath, make_store_path

if TYPE_CHECKING:
    import numpy.typing as npt

    from cuzarr.typing import ArrayLike, Device, DTypeLike, MemoryArray, Progress, Prototype, Selection, ShapeLike


_IN_PLACE = "z[...] += 1 changes what memory holds; (z + 1).store(other) computes an array of any size"


@documented(
    """
    fields : str or list of str, optional
        Only these fields of a structured dtype.
    prototype : BufferPrototype, optional
        A prototype of cuzarr or zarr-python. It chooses the memory of the result, or the buffer class that written values pass through.
    out : array, optional
        The array to read into. It has the result's shape, and is on the device that reads.
    selection : int, slice, Ellipsis or tuple of them
        The box: a selector for each dimension. Steps of slices are positive.
    value : array or scalar
        The elements, on any device. They are broadcast to the selection.
    progress : bool, callable or object, optional
        As in :meth:`getitem`.
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(2, 2))
    """,
    errors=dict.fromkeys(("selection", "mask"), "BoundsCheckError, SelectionInvalidError\n    The selection does not fit."),
    results={"MemoryArray": "The elements, on the array's device."},
)
class Array(Node, StoredProtocol, Operators["ArrayLike", Expression], OneElement, Reductions[Expression], Stored):
    """An array in a store. Indexing reads and writes elements; opening reads only metadata.

    Parameters
    ----------
    store_path : StorePath
        The store, and the path of the array in it.
    metadata : ArrayV2Metadata or ArrayV3Metadata
        The metadata of the array.
    config : ArrayConfig or dict, optional
        Settings of the open array.
    device : str, optional
        The device that elements are read to: ``"cpu"``, ``"cuda"``, ``"cuda:1"``. By default the device that is configured at the time of
        the read.

    Raises
    ------
    MetadataValidationError
        The metadata cannot be used.

    >>> array = cuzarr.create_array({}, shape=(4, 6), chunks=(2, 3), dtype="int32")
    >>> array[1:3, ::2] = np.arange(6).reshape(2, 3)
    >>> array[1:3, ::2]
    array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    >>> array.shape, array.chunks, array.nchunks
    ((4, 6), (2, 3), 4)
    """

    _metadata: AnyArrayMetadata
    _config: ArrayConfig
    _handles: dict[str, array_io.Opened]
    _plain: array_io.Plain | None

    def __init__(
        self,
        store_path: StorePath,
        metadata: AnyArrayMetadata,
        config: ArrayConfigLike | None = None,
        device: str | None = None,
    ) -> None:
        if not isinstance(store_path, StorePath):
            hint = "use open_array, or pass cuzarr.storage.StorePath(store, path)"
            raise ArgumentTypeError(f"store_path is {store_path!r}, expected a place in a store", hint=hint)
        if not isinstance(metadata, ArrayMetadata):
            hint = "use create_array, or pass ArrayV3Metadata.from_dict(document)"
            raise ArgumentTypeError(f"metadata is {metadata!r}, expected an array's metadata", hint=hint)
        self._store_path = store_path
        self._metadata = metadata
        self._config = parse_array_config(config)
        self._own_device = None if device is None else str(device)
        self._handles, self._plain = {}, None
        # The Rust side checks the rest. A document that it refuses is refused before anything is written.
        try:
            self._handle()
        except CuzarrError as error:
            if not any("array '" in place for place in error.trail):
                error.trail = (f"{store_path.store}: array '/{store_path.path}'", *error.trail)
            raise

    @classmethod
    def from_dict(cls, store_path: StorePath, data: dict[str, Any]) -> Self:
        """The array at a path of a store, from its metadata document ``data``. Nothing is read.

        Parameters
        ----------
        store_path : StorePath
            Where the array is.
        data : dict
            The document, with attributes inside.

        Raises
        ------
        InvalidArgumentError
            The document describes a group.
        MetadataValidationError
            The document cannot be used.

        >>> import cuzarr
        >>> array = cuzarr.ones((4,), store={})
        >>> cuzarr.Array.from_dict(array.store_path, array.metadata.to_dict()).shape
        (4,)
        """
        metadata = parse_node(data)
        if not isinstance(metadata, ArrayV2Metadata | ArrayV3Metadata):
            raise InvalidArgumentError("the document describes a group, expected an array")
        return cls(store_path, metadata)

    @classmethod
    def open(cls, store: StoreLike, *, config: ArrayConfigLike | None = None) -> Self:
        """Open an array of Zarr format 3, given by store or path. :func:`cuzarr.open_array` opens both formats.

        Parameters
        ----------
        store : store, path or URL
            Where the array is.
        config : ArrayConfig or dict, optional
            Settings of the open array.

        Raises
        ------
        ArrayNotFoundError
            No array of format 3 is there.

        >>> import cuzarr
        >>> store = {}
        >>> _ = cuzarr.ones((4,), store=store)
        >>> cuzarr.Array.open(store).shape
        (4,)
        """
        place = make_store_path(store)
        return cls(place, read_array(place, 3), config)

    def with_config(self, config: ArrayConfigLike) -> Self:
        """Returns this array with other settings for reading and writing. Settings that are not named keep their values.

        Parameters
        ----------
        config : ArrayConfig or dict
            The settings, such as ``{"write_empty_chunks": True}``.

        Returns
        -------
        Array
            The same array, opened with these settings.

        Raises
        ------
        InvalidArgumentError
            There is no such setting, or it cannot have this value.

        >>> import cuzarr
        >>> cuzarr.zeros((2,), store={}).with_config({"write_empty_chunks": True}).config.write_empty_chunks
        True
        """
        chosen = config if isinstance(config, ArrayConfig) else replace(self._config, **parse_changes(config))
        return type(self)(self._store_path, self._metadata, chosen, self._own_device)

    def with_device(self, device: str) -> Self:
        """Returns this array with another device, to which elements are read.

        Parameters
        ----------
        device : str
            ``"cpu"``, ``"cuda"`` or, to choose among GPUs, ``"cuda:1"``.

        Returns
        -------
        Array
            The same array, opened for this device.

        >>> import cuzarr
        >>> cuzarr.zeros((2,), store={}).with_device("cpu").device
        'cpu'
        """
        return type(self)(self._store_path, self._metadata, self._config, device)

    @property
    def async_array(self) -> AsyncArray:
        """This array as an :class:`AsyncArray`, whose reads and writes are awaited."""
        return AsyncArray.of(self)

    # ----------------------------------------------------------------------------------------------------- what it is

    @property
    def metadata(self) -> AnyArrayMetadata:
        """The array's metadata document, as an object."""
        return self._metadata

    @property
    def config(self) -> ArrayConfig:
        """Settings for reading and writing this open array. They are not stored."""
        return self._config

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each dimension. Assigning to it resizes the array."""
        return self._metadata.shape

    @shape.setter
    def shape(self, value: ShapeLike) -> None:
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
        """Type of the elements, as a NumPy dtype."""
        return self._metadata.data_type.native

    @property
    def nbytes(self) -> int:
        """Size in bytes of all elements when they are decoded."""
        return self.size * self.dtype.itemsize

    @property
    def fill_value(self) -> Any:
        """The value of elements that were never written, as a scalar."""
        return self._metadata.fill_value

    @property
    def order(self) -> Literal["C", "F"]:
        """Memory order of arrays that reads return: row-major (``"C"``) or column-major (``"F"``)."""
        return self._metadata.order if isinstance(self._metadata, ArrayV2Metadata) else self._config.order

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk: the unit that is decoded."""
        return self._metadata.chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Shape of a shard, the stored object that holds many chunks; ``None`` without sharding."""
        return self._metadata.shards

    @property
    def read_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Extents of the chunks along each dimension. Lists of tens of millions of chunks are refused."""
        return self._chunk_grid.sizes(self.shape)

    @property
    def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Extents of the shards along each dimension; without sharding, of the chunks."""
        return self._metadata._grid.sizes(self.shape)

    @property
    def _chunk_grid(self) -> ChunkGrid:
        """The grid of chunks, the units that are decoded; with sharding, the chunks inside the shards."""
        is_sharded = isinstance(self._metadata, ArrayV3Metadata) and self._metadata.sharding_codec is not None
        return ChunkGrid.regular(self._metadata._inner_chunks) if is_sharded else self._metadata._grid

    @property
    def cdata_shape(self) -> tuple[int, ...]:
        """Number of chunks per dimension."""
        return self._chunk_grid.counts(self.shape)

    @property
    def nchunks(self) -> int:
        """Number of chunks."""
        return math.prod(self.cdata_shape)

    @property
    def nchunks_initialized(self) -> int:
        """Number of chunks that are stored. A stored shard counts with all its chunks."""
        inner, grid = self._metadata._inner_chunks, self._metadata._grid
        if grid.is_regular:
            return sum(1 for _ in self._iterate_stored()) * math.prod(a // b for a, b in zip(grid.largest, inner, strict=True))
        if self._chunk_grid is grid:
            return sum(1 for _ in self._iterate_stored())
        coords = self._metadata._decode_chunk_keys(self._iterate_stored())
        return sum(math.prod(a // b for a, b in zip(grid.chunk_shape(chunk), inner, strict=True)) for _, chunk in coords)

    def nbytes_stored(self) -> int:
        """Size of the stored array in bytes, metadata included.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(4), compressors=None)
        >>> array.nbytes_stored() > array.nbytes
        True
        """
        return self.store.getsize_prefix(self.path)

    @property
    def filters(self) -> tuple[Codec, ...]:
        """The array-to-array codecs with which the array's chunks are encoded."""
        return self._metadata.filters or ()

    @property
    def serializer(self) -> Codec | None:
        """The array-to-bytes codec with which the array's chunks are encoded; ``None`` in format 2."""
        return self._metadata.serializer

    @property
    def compressors(self) -> tuple[Codec, ...]:
        """The bytes-to-bytes codecs with which the array's chunks are encoded."""
        return self._metadata.compressors

    @property
    def compressor(self) -> Codec | None:
        """The array's compressor, in format 2."""
        if isinstance(self._metadata, ArrayV2Metadata):
            return self._metadata.compressor
        raise TypeError("format 3 has no compressor; use compressors")

    @property
    def info(self) -> Info:
        """A summary of the array: its type, shape, chunks and codecs."""
        return array_info(self)

    def info_complete(self) -> Info:
        """A summary like :attr:`info`, with the number and size of stored chunks. This lists the keys of the store.

        Returns
        -------
        Info
            The summary; ``print`` shows it.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(4), compressors=None)
        >>> "Chunks Initialized : 1" in str(array.info_complete())
        True
        """
        return array_info(self, sum(1 for _ in self._iterate_stored()), self.nbytes_stored())

    @property
    def meta_array(self) -> MemoryArray:
        """An empty array of the kind that reads return, as in zarr-python 2: NumPy's, CuPy's or a :class:`cuzarr.DeviceArray`."""
        return result_array(_core.NdBuffer.empty((), "float64", self.device, "C"), np.dtype("f8"))  # type: ignore[no-any-return]

    def decoded(self, dtype: DTypeLike | None = None, times: bool = False) -> Expression:
        """A plan that decodes the stored elements into the numbers that they stand for, by the array's attributes of the CF conventions.

        Elements equal to ``_FillValue`` or ``missing_value`` become NaN. The others are multiplied by ``scale_factor``, and
        ``add_offset`` is added. Before that, ``_Unsigned`` makes signed integers unsigned, or the reverse. In format 2, the fill value
        also marks missing elements if the array has the attribute ``_ARRAY_DIMENSIONS``. ``valid_range`` is not used. The result has the
        type that xarray reads. Scaled elements become float64. If elements may be missing, integers of 8 and 16 bits become float32, and
        larger ones float64. Floats without a scale, and all other elements, keep their type.

        Parameters
        ----------
        dtype : dtype, optional
            Another type of the result. Numbers are computed first and then converted.
        times : bool
            Whether elements with ``units`` such as ``"days since 2000-01-01"`` become datetime64[ns]; missing ones are NaT. The
            calendar must be ``standard``, ``gregorian`` or ``proleptic_gregorian``. Elements with ``units`` such as ``"hours"`` become
            timedelta64[ns] if the attribute ``dtype`` is ``timedelta64``, as xarray stores durations; without it they stay numbers.

        Returns
        -------
        Expression
            A plan, through which the array cannot be written. Nothing is read.

        Raises
        ------
        InvalidArgumentError
            Elements are scaled or may be missing, and ``dtype`` is not a float type; or ``dtype`` is given for dates.
        MetadataValidationError
            ``scale_factor`` or ``add_offset`` is not a number.
        UnsupportedError
            The calendar, the unit or the reference date is not supported.
        DTypeMismatchError
            The elements are strings, structures or dates already.

        >>> import cuzarr, numpy as np
        >>> packed = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -1}
        >>> z = cuzarr.create_array({}, data=np.array([4, -1, 6], "int16"), attributes=packed)
        >>> z.decoded().compute()
        array([12., nan, 13.])
        >>> float(cuzarr.xp.nanmean(z.decoded()).compute())
        12.5
        """
        return decoded(self, dtype, times)

    def explain(self, selection: Selection = Ellipsis, *, writing: bool = False) -> Explanation:
        """Explain what reading or writing a selection would do, stage by stage, and why. No elements are read or written.

        Parameters
        ----------
        writing : bool
            Explain a write instead: of elements that are on the array's device.

        Returns
        -------
        Explanation
            Where each codec runs, and the reason if that is the host. ``print`` shows it as text.

        >>> import cuzarr
        >>> print(cuzarr.zeros((4, 4), chunks=(2, 2), store={}).explain((slice(0, 2), slice(0, 4))))  # doctest: +ELLIPSIS
        read [0:2, 0:4] into cpu
        ...
          chunks               2 (64 B packed)
        ...
        """
        box = basic_box(selection, self.shape)
        return self._explain(box.lists, writing)

    def last_report(self) -> dict[str, Any] | None:
        """A report of the last read or write: bytes, seconds and counts of each stage. ``None`` before the first.

        Returns
        -------
        dict or None
            ``stages``, with bytes, seconds and counts of each, and totals.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(4))
        >>> _ = array[:]
        >>> [stage["stage"] for stage in array.last_report()["stages"]]
        ['fetch', 'decode']
        """
        report = self._handle().last_report()
        return None if report is None else json.loads(report)

    def placements(self) -> list[tuple[str, str]]:
        """Names of the codecs, in the order of encoding, and where each of them runs when the whole array is read.

        Returns
        -------
        list of (str, str)
            The codec's name, and ``"native"`` if the array's device decodes it, or ``"via host: <reason>"``. Reads of a few chunks may
            choose the host, because it is faster; ``explain`` with a selection says so.

        >>> import cuzarr
        >>> cuzarr.zeros((4,), store={}).placements()
        [('bytes', 'native'), ('zstd', 'native')]
        """
        codecs = self.explain().to_dict()["codecs"]
        return [(item["codec"], item["placement"] + (f": {item['reason']}" if "reason" in item else "")) for item in codecs]

    # --------------------------------------------------------------------------------------------------- its elements

    def __getitem__(self, selection: Selection) -> MemoryArray:
        """Read elements, selected as in NumPy: ``array[3, ::2, 100:200]``.

        Parameters
        ----------
        selection : int, slice, Ellipsis, index array, mask, field name, or tuple of them
            Slices have positive steps; :attr:`lazy` takes negative ones. An index array for each dimension selects points, like
            :attr:`vindex`. One index array beside slices selects rows, like :attr:`oindex`. For other combinations of index arrays, use
            these two attributes.

        Returns
        -------
        array
            A NumPy array on the CPU; a CuPy array or a :class:`cuzarr.DeviceArray` on a GPU. A single element is a scalar on the CPU.

        Raises
        ------
        BoundsCheckError, NegativeStepError, SelectionInvalidError
            The selection does not fit.
        ChunkCorruptError, ChecksumMismatchError
            A chunk cannot be decoded.

        >>> array[1:, ::2]
        array([[ 4,  6],
               [ 8, 10]])
        >>> array[[0, 2], [3, 1]]
        array([3, 9])
        """
        return self.getitem(selection)

    def __setitem__(self, selection: Selection, value: ArrayLike) -> None:
        """Write elements, selected as in NumPy: ``array[3, 100:200] = value``.

        Parameters
        ----------
        selection : int, slice, Ellipsis, index array, mask, field name, or tuple of them
            A selection, as for reading.
        value : array or scalar
            The elements, on any device. They are broadcast to the selection and converted to the array's type.

        Raises
        ------
        BoundsCheckError, NegativeStepError, SelectionInvalidError
            The selection does not fit.
        ShapeMismatchError
            The value cannot be broadcast to the selection.
        OutOfRangeError, ConversionError
            The array's type cannot hold the value.
        ReadOnlyError
            The array was opened for reading only.

        >>> import cuzarr
        >>> array = cuzarr.zeros((2, 3), dtype="int8", store={})
        >>> array[:, 1] = [7, 8]
        >>> array[:].tolist()
        [[0, 7, 0], [0, 8, 0]]
        """
        self.setitem(selection, value)

    def getitem(self, selection: Selection, *, prototype: Prototype | None = None, progress: Progress = None) -> MemoryArray:
        """Read a selection like ``array[selection]``, with a report of progress, and into memory of the prototype's kind.

        Parameters
        ----------
        selection : optional
            A selection, as in brackets.
        prototype : BufferPrototype, optional
            The kind of memory of the result: cuzarr's or zarr-python's prototype.
        progress : bool, callable or object with ``update``, optional
            ``True`` shows a line on the terminal or in the notebook. A function is called with the number of objects read and the total
            number (``None`` if unknown). An object with ``update``, such as tqdm's or rich's ``Progress``, is updated.

        Returns
        -------
        array
            The elements; with ``prototype``, in memory of the prototype's kind.

        >>> import cuzarr
        >>> from cuzarr.buffer import cpu
        >>> cuzarr.ones((4,), store={}).getitem(slice(1, 3), prototype=cpu.buffer_prototype)
        array([1., 1.])
        """
        if progress is not None and is_wanted(progress):
            with shown(progress, "reading", array_selections.count_objects(self, selection)):
                return self.getitem(selection, prototype=prototype)
        if prototype is None and (elements := array_io.read_plain(self, selection)) is not None:
            return elements  # type: ignore[return-value]  # NumPy annotates operands by their element types
        return array_selections.get(self, selection, prototype)  # type: ignore[no-any-return]

    def setitem(
        self, selection: Selection, value: ArrayLike, prototype: Prototype | None = None, *, progress: Progress = None
    ) -> None:
        """Write a selection like ``array[selection] = value``, with a report of progress.

        Parameters
        ----------
        selection : optional
            A selection, as in brackets.

        >>> import cuzarr
        >>> array = cuzarr.zeros((4,), store={})
        >>> array.setitem(slice(1, 3), [5, 6])
        >>> array[:]
        array([0., 5., 6., 0.])
        """
        if progress is not None and is_wanted(progress):
            with shown(progress, "writing", array_selections.count_objects(self, selection)):
                return self.setitem(selection, value, prototype)
        array_selections.put(self, selection, value, prototype)

    @overload
    def read(
        self,
        selection: Selection = ...,
        *,
        out: ArrayLike | None = None,
        dtype: DTypeLike | None = None,
        prototype: Prototype | None = None,
        device: Device | None = None,
        progress: Progress = None,
    ) -> MemoryArray: ...
    @overload
    def read(
        self,
        selection: Selection = ...,
        *,
        dtype: DTypeLike | None = None,
        prototype: Prototype | None = None,
        device: list[str] | tuple[str, ...],
        progress: Progress = None,
    ) -> list[MemoryArray]: ...
    def read(
        self,
        selection: Any = Ellipsis,
        *,
        out: Any = None,
        dtype: Any = None,
        prototype: Any = None,
        device: Any = None,
        progress: Any = None,
    ) -> Any:
        """Read a box of elements into the memory ``out`` or onto ``device``, converted to ``dtype``.

        Parameters
        ----------
        out : array, optional
            The array to read into, of the box's shape. Elements are converted to its type, as by NumPy's ``astype``.
        dtype : dtype, optional
            Element type of the result, if not the array's.
        device : str or sequence of str, optional
            The device to read to. Several devices read at the same time; each gets a part of the first dimension, which begins at a chunk
            border. This array's :meth:`last_report` does not cover such reads.

        Returns
        -------
        array, or list of arrays for several devices

        >>> import cuzarr
        >>> cuzarr.full((4,), fill_value=7, dtype="int16", store={}).read(slice(1, 3), dtype="float32")
        array([7., 7.], dtype=float32)
        >>> array = cuzarr.zeros((10, 3), chunks=(4, 3), store={})
        >>> [part.shape for part in array.read(device=["cpu", "cpu"])]
        [(4, 3), (6, 3)]
        """
        if device is None:
            read = partial(array_read.read, self, selection, out, dtype, prototype)
        else:
            read = partial(array_read.read_to, self, selection, out, dtype, prototype, device)
        if not is_wanted(progress):
            return read()
        with shown(progress, "reading", array_selections.count_objects(self, selection)):
            return read()

    @overload
    def read_many(
        self,
        selections: Sequence[Selection],
        *,
        out: None = None,
        dtype: DTypeLike | None = None,
        prototype: Prototype | None = None,
        progress: Progress = None,
    ) -> list[MemoryArray]: ...
    @overload
    def read_many(
        self,
        selections: Sequence[Selection],
        *,
        out: ArrayLike,
        dtype: DTypeLike | None = None,
        prototype: Prototype | None = None,
        progress: Progress = None,
    ) -> MemoryArray: ...
    def read_many(
        self,
        selections: Sequence[Any],
        *,
        out: ArrayLike | None = None,
        dtype: DTypeLike | None = None,
        prototype: Prototype | None = None,
        progress: Progress = None,
    ) -> Any:
        """Read many boxes in one call, such as random crops for training. Each chunk is read once.

        Parameters
        ----------
        selections : sequence
            Boxes, each as for :meth:`get_basic_selection`.
        out : array, optional
            The array to read into. Its first dimension counts the selections, which must all have one shape.
        dtype : dtype, optional
            Element type of the results, in the machine's byte order; elements are converted on the way.
        progress : bool, callable or object, optional
            As in :meth:`getitem`; the total number of objects is unknown.

        Returns
        -------
        list of arrays, or out
            One array for each selection, as ``array[selection]`` returns it. Arrays of one shape share memory.

        >>> import cuzarr
        >>> array = cuzarr.ones((8, 8), store={})
        >>> [crop.shape for crop in array.read_many([(slice(0, 3), slice(2, 4)), (slice(5, 8), slice(6, 8))])]
        [(3, 2), (3, 2)]
        """
        with shown(progress, "reading", None):
            return array_read.read_many(self, selections, out, dtype, prototype)

    def read_boxes(
        self, starts: ArrayLike, extent: ArrayLike, *, out: ArrayLike | None = None, dtype: DTypeLike | None = None
    ) -> MemoryArray:
        """Read many boxes of equal extent, whose starts are in an integer array. No Python object is made for each box.

        Each chunk is decoded once.

        Parameters
        ----------
        starts : array of int
            Where boxes begin: shape (boxes, dimensions), or (boxes,) for an array of one dimension.
        extent : sequence of int, or int
            How far each box extends along each dimension.
        out : array, optional
            The array to read into, of the result's shape.
        dtype : dtype, optional
            Element type of the result, in the machine's byte order; elements are converted on the way.

        Returns
        -------
        array
            The boxes along a new first dimension.

        Raises
        ------
        BoundsCheckError
            A box lies outside of the array.
        SelectionInvalidError
            ``starts`` or ``extent`` are not integers, or not one for each dimension.

        >>> import cuzarr
        >>> array = cuzarr.from_array({}, data=[[0, 1, 2], [3, 4, 5]])
        >>> array.read_boxes([[0, 0], [1, 1]], (1, 2)).tolist()
        [[[0, 1]], [[4, 5]]]
        """
        return array_read.read_boxes(self, starts, extent, out, dtype)

    def read_ragged(
        self, starts: ArrayLike, extents: ArrayLike, *, out: ArrayLike | None = None, dtype: DTypeLike | None = None
    ) -> tuple[MemoryArray, np.ndarray[Any, Any]]:
        """Read many boxes of unequal extents, such as the rows of a sparse matrix. Integer arrays give the boxes' starts and extents.

        Each chunk is decoded once. For an array of one dimension, no Python object is made for each range. For more dimensions, one is
        made for each box.

        Parameters
        ----------
        starts, extents : array of int
            Where boxes begin and how far they extend: shape (boxes, dimensions), or (boxes,) for an array of one dimension.
        out : array, optional
            The array to read into, of one dimension.
        dtype : dtype, optional
            Element type of the result, in the machine's byte order; elements are converted on the way.

        Returns
        -------
        values : array
            The elements of all boxes, one box behind the other, in one dimension. Each box is in C order.
        offsets : numpy.ndarray
            Positions of the boxes in ``values``: box ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

        Raises
        ------
        BoundsCheckError
            A box lies outside of the array.
        SelectionInvalidError
            ``starts`` or ``extents`` are not integers, their shapes differ, or they do not have one number for each dimension.

        >>> import cuzarr
        >>> array = cuzarr.from_array({}, data=[[0, 1, 2], [3, 4, 5]])
        >>> values, offsets = array.read_ragged([[0, 0], [0, 2]], [[1, 3], [2, 1]])
        >>> values.tolist(), offsets.tolist()
        ([0, 1, 2, 2, 5], [0, 3, 5])
        """
        return array_read.read_ragged(self, starts, extents, out, dtype)

    def get_basic_selection(
        self,
        selection: Selection = Ellipsis,
        *,
        out: ArrayLike | None = None,
        prototype: Prototype | None = None,
        fields: Fields | None = None,
    ) -> MemoryArray:
        """Read the elements that integers and slices select.

        Parameters
        ----------
        out : array, optional
            The array to read into, of the selection's shape, on the device that reads. A NumPy array may have another type; the elements
            are converted to it.

        Returns
        -------
        array
            A NumPy array on the CPU; a CuPy array or a :class:`cuzarr.DeviceArray` on a GPU. A single element is a scalar on the CPU, and
            an array of no dimensions on a GPU.

        Raises
        ------
        BoundsCheckError, NegativeStepError, SelectionInvalidError
            The selection does not fit.
        ChunkCorruptError, ChecksumMismatchError
            A chunk cannot be decoded.

        >>> array.get_basic_selection((slice(1, 3), slice(None, None, 2)))
        array([[ 4,  6],
               [ 8, 10]])
        """
        elements = array_io.get_box(self, basic_box(selection, self.shape), out, prototype, fields)
        is_scalar = out is None and isinstance(elements, np.ndarray) and not elements.ndim
        return elements[()] if is_scalar else elements  # type: ignore[no-any-return]

    def set_basic_selection(
        self,
        selection: Selection,
        value: ArrayLike,
        *,
        fields: Fields | None = None,
        prototype: Prototype | None = None,
    ) -> None:
        """Write the elements that integers and slices select.

        Raises
        ------
        BoundsCheckError, NegativeStepError, SelectionInvalidError
            The selection does not fit.

        >>> import cuzarr
        >>> array = cuzarr.zeros((4,), store={})
        >>> array.set_basic_selection(slice(None, None, 2), 7)
        >>> array[:]
        array([7., 0., 7., 0.])
        """
        array_io.set_box(self, basic_box(selection, self.shape), value, fields, prototype)

    def get_block_selection(
        self,
        selection: Selection,
        *,
        out: ArrayLike | None = None,
        fields: Fields | None = None,
        prototype: Prototype | None = None,
    ) -> MemoryArray:
        """Read whole chunks, selected by their positions in the grid of chunks.

        Parameters
        ----------
        selection : int, slice or tuple of them
            Places of chunks in the grid; steps of slices are 1.

        >>> array.get_block_selection((0, 1))
        array([[2, 3],
               [6, 7]])
        """
        return array_io.get_box(self, block_box(selection, self.shape, self._metadata._grid), out, prototype, fields)  # type: ignore[no-any-return]

    def set_block_selection(
        self, selection: Selection, value: ArrayLike, *, fields: Fields | None = None, prototype: Prototype | None = None
    ) -> None:
        """Write whole chunks, selected by their positions in the grid of chunks.

        Parameters
        ----------
        selection : int, slice or tuple of them
            Places of chunks in the grid; steps of slices are 1.

        >>> array.set_block_selection((0, 0), -1)
        >>> array[0]
        array([-1, -1,  2,  3])
        """
        array_io.set_box(self, block_box(selection, self.shape, self._metadata._grid), value, fields, prototype)

    def get_orthogonal_selection(
        self,
        selection: Selection,
        *,
        out: ArrayLike | None = None,
        fields: Fields | None = None,
        prototype: Prototype | None = None,
    ) -> MemoryArray:
        """Read the outer product of one selector for each dimension.

        Parameters
        ----------
        selection : tuple
            A selector for each dimension: an integer, a slice, an index array or a mask of that dimension.

        >>> array.get_orthogonal_selection(([2, 0], slice(1, 3)))
        array([[ 9, 10],
               [ 1,  2]])
        """
        return array_selections.get_orthogonal(self, selection, out, fields, prototype)  # type: ignore[no-any-return]

    def set_orthogonal_selection(
        self, selection: Selection, value: ArrayLike, *, fields: Fields | None = None, prototype: Prototype | None = None
    ) -> None:
        """Write the outer product of one selector for each dimension.

        Parameters
        ----------
        selection : tuple
            A selector for each dimension: an integer, a slice, an index array or a mask of that dimension.

        >>> array.set_orthogonal_selection(([2, 0], [1]), 0)
        >>> array[:, 1]
        array([0, 5, 0])
        """
        array_selections.set_orthogonal(self, selection, value, fields, prototype)

    def get_coordinate_selection(
        self,
        selection: Selection,
        *,
        out: ArrayLike | None = None,
        fields: Fields | None = None,
        prototype: Prototype | None = None,
    ) -> MemoryArray:
        """Read single elements, whose positions are given by one index array for each dimension.

        ``out`` may have the shape of the index arrays, or one dimension.

        Parameters
        ----------
        selection : tuple of index arrays
            One array for each dimension; they are broadcast together.

        Returns
        -------
        array
            The elements, on the array's device, in the shape of the index arrays.

        >>> array.get_coordinate_selection(([2, 0, 2], [3, 1, 3]))
        array([11,  1, 11])
        """
        return array_selections.get_coordinates(self, selection, out, fields, prototype)  # type: ignore[no-any-return]

    def set_coordinate_selection(
        self, selection: Selection, value: ArrayLike, *, fields: Fields | None = None, prototype: Prototype | None = None
    ) -> None:
        """Write single elements, whose positions are given by one index array for each dimension.

        Parameters
        ----------
        selection : tuple of index arrays
            One array for each dimension; they are broadcast together.
        value : array or scalar
            The elements, on any device: broadcast to the points, or one element for each point.

        >>> array.set_coordinate_selection(([2, 0], [3, 1]), [-1, -2])
        >>> int(array[2, 3]), int(array[0, 1])
        (-1, -2)
        """
        array_selections.set_coordinates(self, selection, value, fields, prototype)

    def get_mask_selection(
        self, mask: ArrayLike, *, out: ArrayLike | None = None, fields: Fields | None = None, prototype: Prototype | None = None
    ) -> MemoryArray:
        """Read the elements where a mask is true, in C order.

        Parameters
        ----------
        mask : array of bool
            A mask of the array's shape.

        Returns
        -------
        array
            The elements, on the array's device, in one dimension.

        >>> array.get_mask_selection(np.arange(12).reshape(3, 4) % 5 == 0)
        array([ 0,  5, 10])
        """
        return array_selections.get_mask(self, mask, out, fields, prototype)  # type: ignore[no-any-return]

    def set_mask_selection(
        self, mask: ArrayLike, value: ArrayLike, *, fields: Fields | None = None, prototype: Prototype | None = None
    ) -> None:
        """Write the elements where a mask is true.

        Parameters
        ----------
        mask : array of bool
            A mask of the array's shape.
        value : array or scalar
            The elements in C order, on any device. They are broadcast to the selected elements.

        >>> array.set_mask_selection(np.arange(12).reshape(3, 4) > 9, 0)
        >>> array[2]
        array([8, 9, 0, 0])
        """
        array_selections.set_mask(self, mask, value, fields, prototype)

    @property
    def oindex(self) -> OIndex:
        """Reads and writes the outer product of one selector for each dimension, by brackets: ``array.oindex[[0, 3], :]``.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> array.oindex[[2, 0], 1:3]
        array([[ 9, 10],
               [ 1,  2]])
        """
        return OIndex(self)

    @property
    def vindex(self) -> VIndex:
        """Reads and writes points by brackets: ``array.vindex[[0, 3], [1, 1]]``, or the elements where a mask is true.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> array.vindex[[2, 0], [3, 1]]
        array([11,  1])
        """
        return VIndex(self)

    @property
    def lazy(self) -> LazyArray:
        """A view of all elements that reads nothing: ``array.lazy[1:].T[::2].result()``. See :class:`cuzarr.LazyArray`."""
        return LazyArray(self)

    @property
    def blocks(self) -> BlockIndex:
        """Reads and writes whole chunks by brackets, with their positions in the grid: ``array.blocks[0, 1:3]``.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> array.blocks[0, 1]
        array([[2, 3],
               [6, 7]])
        """
        return BlockIndex(self)

    # ------------------------------------------------------------------------------------------- changes of its shape

    def resize(self, new_shape: ShapeLike) -> None:
        """Change the shape of the array. New elements have the fill value.

        Chunks outside of the new shape are deleted. A chunk at the edge keeps its elements beyond the shape; they appear again when the
        array grows. If the process is killed during the call, readers find the old array or the new one.

        Parameters
        ----------
        new_shape : tuple of int
            The new extents, as many as before.

        Raises
        ------
        InvalidArgumentError
            The number of dimensions differs, or an extent is negative.

        >>> import cuzarr
        >>> array = cuzarr.zeros((4, 4), chunks=(2, 2), store={})
        >>> array.resize((2, 6))
        >>> array.shape
        (2, 6)
        """
        resize.resize(self, new_shape)

    def append(self, data: ArrayLike, axis: int | str = 0) -> tuple[int, ...]:
        """Append elements along an axis, behind the array's last element. This enlarges the array.

        Other readers see either none or all of the new elements, since the shape is written last. Other handles, threads and programs
        that append wait until this call ends; the guide says in which stores.

        Parameters
        ----------
        data : array
            The elements, on any device. Except along ``axis``, their extents are those of the array.
        axis : int or str
            A number, or the name of a dimension.

        Raises
        ------
        InvalidArgumentError
            The extents differ, or there is no such axis.
        ArrayNotFoundError
            Another program has deleted the array.

        >>> import cuzarr
        >>> array = cuzarr.zeros((2, 3), store={})
        >>> array.append([[1, 2, 3]])
        (3, 3)
        """
        return resize.append(self, data, axis)

    def writer(
        self,
        axis: int | str = 0,
        *,
        slots: int = 2,
        resume: bool = False,
        region: Sequence[slice] | None = None,
        levels: Iterable[tuple[Array, Sequence[int]]] = (),
        method: str = "mean",
    ) -> Writer:
        """Open a writer that takes rows along an axis from a running program, and stores them in the background.

        A call of the writer copies rows and returns. Rows are gathered until a chunk is whole, and chunks of a shard until the shard is, so
        each object is written once. The shape is stored after the rows: a killed program leaves the array as it was after its last whole block. Meanwhile, nothing else
        in this process may append to the array or resize it.

        Parameters
        ----------
        axis : int or str
            A number, or the name of a dimension.
        slots : int
            Number of blocks of rows for which there is memory, on the array's device. A block has the rows of one chunk; with levels, of as
            many chunks as give whole rows of the next level. The encoded chunks of as many shards wait in host memory.
        resume : bool
            Whether to delete chunks behind the array's end first, which a killed program may have left. No other program may have a writer.
        region : sequence of slice, optional
            The part of the array that this writer fills, in whole stored objects. The array then keeps its shape, so several programs
            can fill one array. By default the writer appends rows.
        levels : iterable of (Array, sequence of int), optional
            Coarser levels of an image, from the finest to the coarsest, that are made on the way. Each has the number of elements of the
            level before that become one, along each dimension. :meth:`cuzarr.ome.Image.writer` passes those of an image.
        method : {"mean", "gaussian", "max", "nearest", "mode"}
            How elements become one, as for :func:`cuzarr.pyramid`. ``"gaussian"`` needs levels that keep all rows.

        Returns
        -------
        Writer
            It is closed at the end of its ``with`` block. ``position`` is the first row that is not stored.

        Raises
        ------
        InvalidArgumentError
            Another writer has the array, or ``region`` shares stored objects with its neighbours. Or a level has more rows than belong to
            the array; ``resume`` makes its last rows again.
        ShapeMismatchError
            A level does not have the shape that its factors give.
        UnsupportedError
            Elements have variable length, chunks have several extents, or the method does not apply to the elements.
        OutOfMemoryError
            There is no memory for the blocks.

        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, shape=(0, 2), chunks=(4, 2), dtype="i4")
        >>> with array.writer() as writer:
        ...     for step in range(6):
        ...         writer.append([step, 10 * step])
        >>> array[-1]
        array([ 5, 50], dtype=int32)
        """
        return Writer(self, axis, slots=slots, resume=resume, region=region, levels=levels, method=method)

    # ---------------------------------------------------------------------------- as an object of Python and of NumPy

    def astype(self, dtype: DTypeLike) -> Expression:
        """A plan that converts the elements to another type, as NumPy does. Nothing is read.

        Parameters
        ----------
        dtype : dtype
            The new type.

        Returns
        -------
        Expression
                A plan. ``compute()`` gives its elements, ``store()`` writes them.

        >>> import cuzarr
        >>> cuzarr.full((2,), fill_value=1.7, store={}).astype("int8").compute()
        array([1, 1], dtype=int8)
        """
        return plan(self).astype(dtype)  # type: ignore[no-any-return]

    def _change(self, name: str, other: Any) -> Any:
        raise UnsupportedError("a stored array cannot be changed in place as a whole", hint=_IN_PLACE)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, np.dtype[Any]]:
        """Reads all elements into a NumPy array.

        Raises
        ------
        ImplicitHostCopyError
            The array reads to a GPU, and a copy to the host must be requested explicitly.
        """
        if copy is False:
            raise ValueError("copy=False is not possible: the elements are in a store")
        if self.device != "cpu":
            raise ImplicitHostCopyError(
                f"{self!r} reads to {self.device}, and a copy to the host has to be asked for",
                hint="use array.with_device('cpu'), or index it and call .cpu()",
            )
        elements = self._elements()
        return elements if dtype is None else elements.astype(dtype, copy=False)  # type: ignore[no-any-return]

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        """Reads all elements as an Apache Arrow array, by the PyCapsule interface: for ``pyarrow.array``, ``polars.Series`` and others.

        Parameters
        ----------
        requested_schema : object, optional
            Ignored: the receiving library converts.

        Returns
        -------
        tuple
            Capsules of the schema and of the array. Strings are ``large_string``, bytes ``large_binary``.

        Raises
        ------
        UnsupportedError
            The array does not have exactly one dimension, or Arrow has no such type.
        ImplicitHostCopyError
            The array reads to a GPU, and a copy to the host must be requested explicitly.

        >>> import cuzarr, numpy as np
        >>> names = cuzarr.array(np.array(["Aare", "Emme"], "T"), store={})
        >>> len(names.__arrow_c_array__())  # pyarrow.array(names) takes both
        2
        """
        return array_io.read_arrow(self, basic_box((), self.shape), self.ndim)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of 0 dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Yields the elements along the first dimension. One stored row of chunks is read at a time."""
        if not self.shape:
            raise TypeError("an array of 0 dimensions cannot be iterated")
        rows = self._metadata._grid.axes[0]
        for chunk in range(rows.count(self.shape[0])):
            yield from self[rows.start(chunk) : rows.start(chunk) + rows.size(chunk)]

    def __contains__(self, value: object) -> bool:
        if is_computable(self.dtype):
            return super().__contains__(value)
        return any(bool(np.any(self[region] == value)) for region in regions(self._metadata._grid, self.shape))

    def __bool__(self) -> bool:
        # Like a sequence, an array without elements along the first dimension is false. An array without dimensions has no length.
        return len(self) > 0 if self.shape else super().__bool__()

    def same_as(self, other: object) -> bool:
        """Whether two objects are the same array of the same store, with equal metadata, settings and device. ``==`` compares elements.

        Parameters
        ----------
        other : object
            What to compare with.

        >>> import cuzarr
        >>> store = {}
        >>> array = cuzarr.create_array(store, shape=(2,), dtype="int8")
        >>> array.same_as(cuzarr.open_array(store)), (array == 0).compute()
        (True, array([ True,  True]))
        """
        if not isinstance(other, Array):
            return False
        mine = (self._store_path, self._metadata, self._config, self.device)
        return mine == (other._store_path, other._metadata, other._config, other.device)

    def __reduce__(self) -> tuple[Any, ...]:
        return Array._rebuilt, (self.store, self.path, self._metadata.to_dict(), self._config, self._own_device)

    @classmethod
    def _rebuilt(cls, store: Store, path: str, document: dict[str, Any], config: ArrayConfig, device: str | None) -> Array:
        return cls(StorePath(store, path), parse_node(document), config, device)  # type: ignore[arg-type]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # Equal for the same array in every process, because dask names its tasks by it.
        document = canonical_json(self._metadata.to_dict())
        return type(self).__name__, str(self.store), self.path, document, tuple(self._config.to_dict().items()), self.device

    def _repr_html_(self) -> str:
        return array_html(self)

    @classmethod
    def _instead_of(cls, name: str) -> str | None:
        return f"x.lazy.{name}" if hasattr(LazyArray, name) else super()._instead_of(name)

    def __repr__(self) -> str:
        place = "" if self.device == "cpu" else f" device={self.device}"
        return f"<Array {printable(str(self._store_path))} shape={self.shape} dtype={self.dtype}{place}>"

    # ---------------------------------------------------------------------------------------------- for other modules

    @property
    def _dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of the array's dimensions; ``None`` if its metadata name none. In format 2 they are stored as xarray stores them."""
        if isinstance(self._metadata, ArrayV3Metadata):
            return self._metadata.dimension_names
        names = self._metadata.attributes.get("_ARRAY_DIMENSIONS")
        return tuple(names) if isinstance(names, list | tuple) and len(names) == self.ndim else None

    def _check_writable(self) -> None:
        self.store.check_writable()

    def _handle(self, device: str | None = None) -> _core.Array:
        return array_io.open_handle(self, device)

    def _explain(self, selection: Any, writing: bool) -> Explanation:
        """Explains a read or write of this array at ``selection``, which is already in the form that the Rust side takes."""
        return Explanation(*self._handle().explain(selection, writing))

    def _reopened(self, metadata: AnyArrayMetadata) -> Self:
        """Returns another object for the array at this path, with the metadata ``metadata``. The stored metadata stay."""
        return type(self)(self._store_path, metadata, self._config, self._own_device)

    def _read_box(self, box: Box, device: str) -> Any:
        return array_io.read_box(self, box, device)

    def _write_box(self, box: Box, value: Any) -> None:
        array_io.write_box(self, box, value)

    def _iterate_stored(self) -> Iterator[str]:
        """Keys of the array's stored chunks or shards, relative to the array's path."""
        skip = len(self.path) + 1 if self.path else 0
        keys = (key[skip:] for key in self.store.list_prefix(self.path))
        return (key for key, _ in self._metadata._decode_chunk_keys(keys))

    def _elements_on(self, device: str | None) -> Any:
        return (self if device is None else self.with_device(device))._elements()

    def _elements(self) -> Any:
        """Reads all elements of this array to the device that was chosen for it. For an array without dimensions, the result is an array,
        not a scalar."""
        return array_io.get_box(self, basic_box(..., self.shape), None, None, None)


complete(AsyncArray, Array)

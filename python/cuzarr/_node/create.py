"""Functions that create arrays in stores, with the arguments of zarr-python, of its older versions, or of NumPy."""

from __future__ import annotations

import copy as _copying
import warnings
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

from cuzarr import _core
from cuzarr._compute.sources import is_array, metadata_of, place_of
from cuzarr._docstrings import documented
from cuzarr._memory.foreign import host_array
from cuzarr._metadata.array import AnyArrayMetadata, ArrayV2Metadata, ArrayV3Metadata
from cuzarr._metadata.chunk_grid import regions
from cuzarr._metadata.create import DEFAULT_FILL_VALUE, is_auto, legacy_metadata, new_metadata
from cuzarr._metadata.documents import check_zarr_format, write_new
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._node.arguments import check_data, default_format, device_like, dtype_of, refuse_unfit, shape_and_chunks, warn_ignored
from cuzarr._node.array import Array
from cuzarr._node.array_config import ArrayConfigLike, parse_array_config
from cuzarr.errors import CuzarrRuntimeWarning, CuzarrUserWarning, DTypeMismatchError, InvalidArgumentError
from cuzarr.storage import StoreLike, StorePath, make_store_path
from cuzarr.storage.zip import finishing

if TYPE_CHECKING:
    from cuzarr.typing import (
        AccessMode,
        ArrayLike,
        ChunkKeyEncoding,
        Chunks,
        CodecLike,
        Codecs,
        CreateLikeOptions,
        CreateOptions,
        DTypeLike,
        FillValue,
        FullOptions,
        Order,
        ShapeLike,
        Shards,
    )


def create_array(
    store: StoreLike | None,
    *,
    name: str | None = None,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    data: ArrayLike | None = None,
    chunks: Chunks = "auto",
    shards: Shards = None,
    filters: Codecs = "auto",
    compressors: Codecs = "auto",
    serializer: CodecLike = "auto",
    fill_value: FillValue = DEFAULT_FILL_VALUE,
    order: Order | None = None,
    zarr_format: ZarrFormat | None = 3,
    attributes: dict[str, Any] | None = None,
    chunk_key_encoding: ChunkKeyEncoding | None = None,
    dimension_names: Iterable[str | None] | None = None,
    storage_options: dict[str, Any] | None = None,
    overwrite: bool = False,
    config: ArrayConfigLike | None = None,
    write_data: bool = True,
    device: str | None = None,
    metadata_store: StoreLike | None = None,
) -> Array:
    """Create an array in a store.

    Parameters
    ----------
    store : StoreLike
        A path, a store, a dictionary; ``None`` is new memory.
    name : str, optional
        Path in the store; the groups above it are created.
    shape : tuple of int, optional
        Extents, in elements. With ``data`` they are the data's.
    dtype : dtype-like, optional
        Type of the elements: a NumPy dtype, a name or JSON object of Zarr's, or a data type object of zarr-python.
    data : array, optional
        The elements to write, from any device. They replace ``shape`` and ``dtype``.
    chunks : tuple of int, int, bool or "auto"
        Shape of a chunk, in elements.
    shards : tuple of int, dict or "auto", optional
        Shape of a stored object that holds many chunks; a multiple of the chunk shape.
    filters, compressors : codec, iterable of them, "auto" or None
        Array-to-array codecs, and bytes-to-bytes codecs. By default none, and Zstandard at level 0. Compressors also have
        the short names of the command line: ``"zstd:5"``, ``"blosc:lz4"``, ``"lz4"``, ``"none"``.
    serializer : codec or "auto"
        The array-to-bytes codec.
    fill_value : scalar, optional
        Value of elements that were never written; by default zero.
    order : {"C", "F"}, optional
        Order of elements inside a chunk, of format 2.
    zarr_format : {2, 3}, optional
        The format, by default 3; ``None`` is the configured one.
    attributes : dict, optional
        Attributes, as JSON.
    chunk_key_encoding : dict, optional
        Names of the stored objects: ``{"name": "v2", "separator": "."}``.
    dimension_names : iterable of str, optional
        Names of the dimensions.
    storage_options : dict, optional
        Options for URLs of remote stores.
    overwrite : bool
        Replace whatever is there.
    config : ArrayConfig or dict, optional
        Settings of the open array.
    write_data : bool
        Whether ``data`` is written. Otherwise only its shape and dtype are used.
    device : str, optional
        The device that the array is read to.
    metadata_store : StoreLike, optional
        Another store, in which the metadata document lives; chunks stay in ``store``.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off.
    InvalidArgumentError
        An argument has no valid meaning, or contradicts another one.

    >>> array = cuzarr.create_array({}, shape=(100, 100), chunks=(10, 10), shards=(50, 50), dtype="float32")
    >>> array.chunks, array.shards, array.nchunks
    ((10, 10), (50, 50), 100)
    """
    arguments = dict(locals())
    if data is not None:
        if shape is not None or dtype is not None:
            raise InvalidArgumentError("data sets shape and dtype, so neither can be passed with it")
        del arguments["shape"], arguments["dtype"]
        return from_array(**arguments)
    if shape is None or dtype is None:
        raise InvalidArgumentError("a new array needs a shape and a dtype, or data")
    place = make_store_path(store, path=name, mode="a", storage_options=storage_options, metadata_store=metadata_store)
    metadata = new_metadata(
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        shards=shards,
        filters=filters,
        compressors=compressors,
        serializer=serializer,
        fill_value=fill_value,
        order=order,
        zarr_format=default_format(zarr_format),
        attributes=attributes,
        chunk_key_encoding=chunk_key_encoding,
        dimension_names=dimension_names,
    )
    return create_node(place, metadata, overwrite, config, device)


def create_node(
    place: StorePath, metadata: AnyArrayMetadata, overwrite: bool, config: Any, device: str | None, data: Any = None
) -> Array:
    """Writes a new array: first ``data``, if given, then the metadata of the array and of missing groups above it."""
    array = Array(place, metadata, config, device)  # raises an error here if the codecs do not fit
    write_new(place, metadata, overwrite=overwrite, fill=None if data is None else partial(fill, array, data))
    return array


def from_array(
    store: StoreLike,
    *,
    data: ArrayLike,
    write_data: bool = True,
    name: str | None = None,
    chunks: Chunks | Literal["keep"] = "keep",
    shards: Shards | Literal["keep"] = "keep",
    filters: Codecs = "keep",
    compressors: Codecs = "keep",
    serializer: CodecLike = "keep",
    fill_value: FillValue = DEFAULT_FILL_VALUE,
    order: Order | None = None,
    zarr_format: ZarrFormat | None = None,
    attributes: dict[str, Any] | None = None,
    chunk_key_encoding: ChunkKeyEncoding | None = None,
    dimension_names: Iterable[str | None] | None = None,
    storage_options: dict[str, Any] | None = None,
    overwrite: bool = False,
    config: ArrayConfigLike | None = None,
    device: str | None = None,
    metadata_store: StoreLike | None = None,
) -> Array:
    """Create an array with the elements of another array: a stored one, NumPy's, or one on a GPU.

    ``"keep"`` keeps a setting of a stored array; for other data it means ``"auto"``, and no shards. Stored arrays are copied
    region by region, within the memory limit.

    Parameters
    ----------
    store : StoreLike
        Where the new array is created.
    data : array
        The elements: an array in memory of any device, or in a store.
    write_data : bool
        Whether elements are copied, or only the shape and type.
    name : str, optional
        Path in the store.
    chunks, shards, filters, compressors, serializer : optional
        As for :func:`create_array`; ``"keep"`` uses those of ``data``.
    fill_value, order, zarr_format, attributes, chunk_key_encoding, dimension_names : optional
        As for :func:`create_array`; by default those of ``data``.
    **kwargs
        As for :func:`create_array`.

    >>> import cuzarr, numpy as np
    >>> source = cuzarr.create_array({}, data=np.arange(6), chunks=(2,))
    >>> copy = cuzarr.from_array({}, data=source)
    >>> copy.chunks, copy.shape
    ((2,), (6,))
    """
    if not hasattr(data, "shape") or not hasattr(data, "dtype"):
        data = host_array(data, "data")
    place = make_store_path(store, path=name, mode="a", storage_options=storage_options, metadata_store=metadata_store)
    arguments: dict[str, Any] = {
        "chunks": chunks,
        "shards": shards,
        "filters": filters,
        "compressors": compressors,
        "serializer": serializer,
        "fill_value": fill_value,
        "order": order,
        "zarr_format": check_zarr_format(zarr_format),
        "attributes": attributes,
        "chunk_key_encoding": chunk_key_encoding,
        "dimension_names": dimension_names,
    }
    if write_data:
        check_data(data, place, overwrite)
    if is_array(data):
        source = metadata_of(data)
        dtype: Any = source.data_type
        arguments = _keep(source, arguments)
    else:
        dtype = dtype_of(data)
        defaults = {"shards": None, "zarr_format": arguments["zarr_format"] or 3}
        kept = {key: "auto" for key, value in arguments.items() if isinstance(value, str) and value == "keep"}
        arguments |= kept | {key: value for key, value in defaults.items() if key != "shards" or shards == "keep"}
    metadata = new_metadata(shape=tuple(data.shape), dtype=dtype, **arguments)
    with finishing(place.store, store if write_data else None):
        return create_node(place, metadata, overwrite, config, device, data if write_data else None)


def _keep(source: AnyArrayMetadata, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments for a new array, with ``"keep"`` replaced by the source array's setting."""
    zarr_format = given["zarr_format"] or source.zarr_format
    same = zarr_format == source.zarr_format
    is_sharded = isinstance(source, ArrayV3Metadata) and source.sharding_codec is not None
    kept: dict[str, Any] = {
        "chunks": source._inner_chunks if is_sharded or source._grid.is_regular else source._grid,
        "shards": (source.shards if source._grid.is_regular else source._grid) if is_sharded else None,
        "filters": (source.filters or None) if same else "auto",
        "compressors": (source.compressors or None) if same else "auto",
        "serializer": source.serializer if same and zarr_format == 3 else "auto",
    }
    chosen = {key: kept[key] if isinstance(given[key], str) and given[key] == "keep" else given[key] for key in kept}
    if given["fill_value"] is DEFAULT_FILL_VALUE:
        chosen["fill_value"] = source.fill_value
    if isinstance(source, ArrayV2Metadata):
        if zarr_format == 2:
            chosen["order"] = given["order"] or source.order
        elif source.order == "F":
            message = "format 3 stores no order, so the source's order 'F' is not kept"
            warnings.warn(message, CuzarrUserWarning, stacklevel=4)
    elif given["dimension_names"] is None and zarr_format == 3:
        chosen["dimension_names"] = source.dimension_names
    if given["chunk_key_encoding"] is None and same:
        name, separator = source.chunk_key
        chosen["chunk_key_encoding"] = {"name": name, "separator": separator}
    if given["attributes"] is None:
        chosen["attributes"] = _copying.deepcopy(source.attributes)
    return given | chosen | {"zarr_format": zarr_format}


def fill(array: Array, data: Any) -> None:
    """Fills an array with ``data``. A stored array is copied in batches, and each stored object is written once."""
    if not is_array(data):
        if array.ndim == 0 or array.size:
            array[...] = data
        return
    source = data if isinstance(data, Array) else Array(place_of(data), metadata_of(data))
    _core.check_unchanged([source._handle()])
    try:
        _core.copy_elements(source._handle(), array._handle())
    except DTypeMismatchError:  # only NumPy knows how to convert elements that are not numbers
        source, array = source.with_device("cpu"), array.with_device("cpu")
        for region in regions(array.metadata._grid, array.shape):
            array[region] = source[region]


def create(
    shape: ShapeLike,
    *,
    chunks: Chunks | None = None,
    dtype: DTypeLike | None = None,
    compressor: CodecLike | None = "auto",
    fill_value: FillValue = DEFAULT_FILL_VALUE,
    order: Order | None = None,
    store: StoreLike | None = None,
    synchronizer: object = None,
    overwrite: bool = False,
    path: str | None = None,
    chunk_store: StoreLike | None = None,
    filters: Codecs = None,
    cache_metadata: bool | None = None,
    cache_attrs: bool | None = None,
    read_only: bool | None = None,
    object_codec: object = None,
    dimension_separator: Literal[".", "/"] | None = None,
    write_empty_chunks: bool | None = None,
    zarr_format: ZarrFormat | None = None,
    meta_array: ArrayLike | None = None,
    attributes: dict[str, Any] | None = None,
    chunk_shape: Chunks | None = None,
    chunk_key_encoding: ChunkKeyEncoding | None = None,
    codecs: Codecs = None,
    dimension_names: Iterable[str | None] | None = None,
    storage_options: dict[str, Any] | None = None,
    config: ArrayConfigLike | None = None,
    mode: AccessMode | None = None,
    data: ArrayLike | None = None,
    device: str | None = None,
    metadata_store: StoreLike | None = None,
) -> Array:
    """Create an array, with the arguments of older versions of zarr-python. New code uses :func:`create_array`.

    ``compressor``, ``filters`` and ``dimension_separator`` belong to format 2: if one of them is given without ``zarr_format``, the
    array is of format 2. Results go to the device of ``meta_array``, unless ``device`` is given. ``synchronizer``, ``chunk_store``,
    ``cache_metadata``, ``cache_attrs``, ``read_only`` and ``object_codec`` have no effect.

    Parameters
    ----------
    chunks : int, tuple of int, bool, optional
        Shape of a chunk, in elements. By default cuzarr chooses it; ``False`` makes one chunk.
    dtype : dtype-like, optional
        Element type; by default float64.
    compressor, filters : codec, optional
        Codecs of format 2.
    fill_value : scalar, optional
        Value of elements that were never written.
    order : {"C", "F"}, optional
        Order of elements inside a chunk, of format 2.
    store : StoreLike, optional
        A path, a URL, a store, a dictionary; ``None`` is new memory.
    overwrite : bool
        Replace whatever is there.
    path : str, optional
        Path in the store.
    zarr_format : {2, 3}, optional
        Format of the array.
    meta_array, device : array; str, optional
        The device that the array is read to.
    **kwargs
        Further arguments of :func:`create_array`, under the names of older versions.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off.
    InvalidArgumentError
        An argument has no valid meaning, or contradicts another one.

    >>> cuzarr.create((4, 4), chunks=(2, 2), dtype="int32", store={}).nchunks
    4
    """
    if zarr_format is None and (codecs, chunk_key_encoding, dimension_names) == (None, None, None):
        is_of_2 = not is_auto(compressor) or filters is not None or dimension_separator is not None
        zarr_format = 2 if is_of_2 else None
    warn_ignored(
        synchronizer=synchronizer,
        chunk_store=chunk_store,
        cache_metadata=cache_metadata,
        cache_attrs=cache_attrs,
        read_only=read_only,
        object_codec=object_codec,
    )
    if chunks is not None and chunk_shape is not None:
        raise InvalidArgumentError("chunks and chunk_shape mean the same; pass only one")
    mode = mode or "a"
    place = make_store_path(store, path=path, mode=mode, storage_options=storage_options, metadata_store=metadata_store)
    check_data(data, place, overwrite or mode == "w")
    settings = parse_array_config(config)
    if write_empty_chunks is not None:
        warnings.warn("write_empty_chunks is deprecated, use config", CuzarrRuntimeWarning, stacklevel=2)
        settings = parse_array_config(settings.to_dict() | {"write_empty_chunks": write_empty_chunks})
    metadata = legacy_metadata(
        shape=shape,
        dtype="float64" if dtype is None else dtype,
        chunks=chunk_shape if chunks is None else chunks,
        compressor=compressor,
        filters=filters,
        fill_value=fill_value,
        order=order,
        default_order=settings.order,
        dimension_separator=dimension_separator,
        chunk_key_encoding=chunk_key_encoding,
        codecs=codecs,
        dimension_names=dimension_names,
        attributes=attributes,
        zarr_format=default_format(zarr_format),
    )
    with finishing(place.store, None if data is None else store):
        return create_node(place, metadata, overwrite or mode == "w", settings, device_like(meta_array, device), data)


def array(data: ArrayLike, **kwargs: Unpack[CreateOptions]) -> Array:
    """Create an array in a store, with the given elements.

    Parameters
    ----------
    data : array
        Elements, in memory of any device, nested lists, or an array in a store.
    **kwargs
        As for :func:`create`; for arrays in stores as for :func:`from_array`.

    >>> cuzarr.array([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    options: dict[str, Any] = {**kwargs}
    if is_array(data):
        return from_array(options.pop("store", None), data=data, **options)
    if not hasattr(data, "shape") or not hasattr(data, "dtype"):
        data = host_array(data, "data")
    if options.pop("read_only", False):
        raise InvalidArgumentError("a new array cannot be read-only")
    refuse_unfit(data)
    options["dtype"] = dtype_of(data) if options.get("dtype") is None else options["dtype"]
    shape, chunks = shape_and_chunks(data)
    options["chunks"] = chunks if options.get("chunks") is None else options["chunks"]
    options.pop("shape", None)
    return create(shape, data=data, **options)


def empty(shape: tuple[int, ...], **kwargs: Unpack[CreateOptions]) -> Array:
    """Store an array without writing elements; for memory, use :func:`cuzarr.xp.empty`. The elements have the fill value.

    >>> cuzarr.empty((2, 2), store={}, fill_value=7).fill_value.item()
    7.0
    """
    return create(shape, **kwargs)


def zeros(shape: tuple[int, ...], **kwargs: Unpack[CreateOptions]) -> Array:
    """Store an array of zeros; for memory, use :func:`cuzarr.xp.zeros`. Zero is the fill value, and no element is written.

    >>> cuzarr.zeros((2,), store={}, dtype='int8').fill_value.item()
    0
    """
    kwargs.setdefault("fill_value", 0)
    return create(shape, **kwargs)


def ones(shape: tuple[int, ...], **kwargs: Unpack[CreateOptions]) -> Array:
    """Store an array of ones; for memory, use :func:`cuzarr.xp.ones`. One is the fill value, and no element is written.

    >>> cuzarr.ones((2,), store={}, dtype='int8').fill_value.item()
    1
    """
    kwargs.setdefault("fill_value", 1)
    return create(shape, **kwargs)


def full(shape: tuple[int, ...], fill_value: FillValue, **kwargs: Unpack[FullOptions]) -> Array:
    """Store an array of one value; for memory, use :func:`cuzarr.xp.full`. The value is the fill value, and no element is written.

    Parameters
    ----------
    fill_value : scalar
        Value of every element.

    >>> cuzarr.full((2,), 7, store={}, dtype="int8").fill_value.item()
    7
    """
    return create(shape, fill_value=fill_value, **kwargs)


def like_arguments(a: Any, zarr_format: ZarrFormat | None, *, fill: bool = True, **given: Any) -> dict[str, Any]:
    """The arguments of :func:`create` for an array like ``a``, overridden by ``given``. Codecs are copied within one Zarr format only."""
    shape, chunks = shape_and_chunks(a)
    arguments: dict[str, Any] = {"shape": shape}
    if chunks is not None:
        arguments["chunks"] = chunks
    if hasattr(a, "dtype"):
        arguments["dtype"] = dtype_of(a)
    if is_array(a):
        metadata = metadata_of(a)
        arguments["dtype"] = metadata.data_type
        if fill:
            arguments["fill_value"] = metadata.fill_value
        zarr_format = zarr_format or metadata.zarr_format
        if zarr_format == metadata.zarr_format:
            if isinstance(metadata, ArrayV2Metadata):
                arguments |= {
                    "order": metadata.order,
                    "compressor": metadata.compressor,
                    "filters": metadata.filters,
                }
            else:
                arguments["codecs"] = metadata.codecs
                arguments["chunks"] = metadata._stored_chunks if metadata._grid.is_regular else metadata._grid
    if zarr_format is not None:
        arguments["zarr_format"] = zarr_format
    return arguments | given


def empty_like(a: ArrayLike, *, zarr_format: ZarrFormat | None = None, **kwargs: Unpack[CreateLikeOptions]) -> Array:
    """Store an array like ``a`` without writing elements; for memory, use :func:`cuzarr.xp.empty_like`.

    Parameters
    ----------
    **kwargs
        As for :func:`create`; they override the settings of ``a``.

    >>> a = cuzarr.zeros((3,), chunks=(2,), dtype="int8", store={})
    >>> cuzarr.empty_like(a, store={}).chunks
    (2,)
    """
    return empty(**like_arguments(a, zarr_format, **kwargs))


def zeros_like(a: ArrayLike, *, zarr_format: ZarrFormat | None = None, **kwargs: Unpack[CreateLikeOptions]) -> Array:
    """Store an array of zeros like ``a``; for memory, use :func:`cuzarr.xp.zeros_like`.

    Parameters
    ----------
    **kwargs
        As for :func:`create`; they override the settings of ``a``.

    >>> a = cuzarr.zeros((3,), chunks=(2,), dtype="int8", store={})
    >>> cuzarr.zeros_like(a, store={}).fill_value.item()
    0
    """
    return zeros(**like_arguments(a, zarr_format, fill=False, **kwargs))


def ones_like(a: ArrayLike, *, zarr_format: ZarrFormat | None = None, **kwargs: Unpack[CreateLikeOptions]) -> Array:
    """Store an array of ones like ``a``; for memory, use :func:`cuzarr.xp.ones_like`.

    Parameters
    ----------
    **kwargs
        As for :func:`create`; they override the settings of ``a``.

    >>> a = cuzarr.zeros((3,), chunks=(2,), dtype="int8", store={})
    >>> cuzarr.ones_like(a, store={}).fill_value.item()
    1
    """
    return ones(**like_arguments(a, zarr_format, fill=False, **kwargs))


def full_like(a: ArrayLike, *, zarr_format: ZarrFormat | None = None, **kwargs: Unpack[CreateLikeOptions]) -> Array:
    """Store an array like ``a`` with one value; for memory, use :func:`cuzarr.xp.full_like`.

    The value is ``fill_value``, or the fill value of ``a``.

    Parameters
    ----------
    **kwargs
        As for :func:`create`; they override the settings of ``a``.

    >>> a = cuzarr.zeros((3,), chunks=(2,), dtype="int8", store={})
    >>> cuzarr.full_like(a, fill_value=7, store={}).fill_value.item()
    7
    """
    return full(**like_arguments(a, zarr_format, **kwargs))


documented(
    """
    shape : int or tuple of int
        Extents, in elements.
    **kwargs
        As for :func:`create`.
    a : Array or array
        The new array gets the shape, chunks, element type and codecs of this array.
    zarr_format : {2, 3}, optional
        Format of the new array; by default that of ``a``.
    >>> import cuzarr
    """,
    errors=dict.fromkeys(
        ("overwrite", "kwargs"),
        "ContainsArrayError, ContainsGroupError\n    A node is there, and ``overwrite`` is off.",
    ),
    results={"Array": "The new array, opened for reading and writing."},
)(globals())

"""Functions that create arrays by the names and arguments of NumPy and of older versions of zarr-python."""

from __future__ import annotations

import warnings
from typing import Any

from cuzarr._memory.foreign import host_array
from cuzarr._metadata.array import ArrayV2Metadata
from cuzarr._metadata.create import DEFAULT_FILL_VALUE, is_auto, legacy_metadata
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._node.arguments import (
    check_data,
    default_format,
    device_like,
    dtype_of,
    is_array,
    metadata_of,
    refuse_plan,
    shape_and_chunks,
    warn_ignored,
)
from cuzarr._node.array import Array
from cuzarr._node.array_config import ArrayConfigLike, parse_array_config
from cuzarr._node.create import create_node, from_array
from cuzarr.errors import CuzarrRuntimeWarning, InvalidArgumentError
from cuzarr.storage import make_store_path


def create(
    shape: Any,
    *,
    chunks: Any = None,
    dtype: Any = None,
    compressor: Any = "auto",
    fill_value: Any = DEFAULT_FILL_VALUE,
    order: Any = None,
    store: Any = None,
    synchronizer: Any = None,
    overwrite: bool = False,
    path: str | None = None,
    chunk_store: Any = None,
    filters: Any = None,
    cache_metadata: bool | None = None,
    cache_attrs: bool | None = None,
    read_only: bool | None = None,
    object_codec: Any = None,
    dimension_separator: Any = None,
    write_empty_chunks: bool | None = None,
    zarr_format: ZarrFormat | None = None,
    meta_array: Any = None,
    attributes: dict[str, Any] | None = None,
    chunk_shape: Any = None,
    chunk_key_encoding: Any = None,
    codecs: Any = None,
    dimension_names: Any = None,
    storage_options: dict[str, Any] | None = None,
    config: ArrayConfigLike | None = None,
    mode: Any = None,
    data: Any = None,
    device: str | None = None,
    metadata_store: Any = None,
) -> Array:
    """Creates an array, with the arguments that older versions of zarr-python had; new code uses :func:`create_array`.

    ``compressor``, ``filters`` and ``dimension_separator`` are format 2's: where one is given, and no ``zarr_format``, the array
    is of format 2. Results go where ``meta_array`` is, unless ``device`` says where. ``synchronizer``, ``chunk_store``, ``cache_metadata``,
    ``cache_attrs``, ``read_only`` and ``object_codec`` have no effect.
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
        raise InvalidArgumentError("chunks and chunk_shape are the same, give one")
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
    return create_node(place, metadata, overwrite or mode == "w", settings, device_like(meta_array, device), data)


def array(data: Any, **kwargs: Any) -> Array:
    """Creates an array with the given elements; ``kwargs`` are :func:`create`'s (for arrays of a store, :func:`from_array`'s).

    >>> import cuzarr
    >>> cuzarr.array([[1, 2], [3, 4]])[1].tolist()
    [3, 4]
    """
    if is_array(data):
        return from_array(kwargs.pop("store", None), data=data, **kwargs)
    if not hasattr(data, "shape") or not hasattr(data, "dtype"):
        data = host_array(data, "data")
    if kwargs.pop("read_only", False):
        raise InvalidArgumentError("a new array cannot be read-only")
    refuse_plan(data)
    kwargs["dtype"] = dtype_of(data) if kwargs.get("dtype") is None else kwargs["dtype"]
    shape, chunks = shape_and_chunks(data)
    kwargs["chunks"] = chunks if kwargs.get("chunks") is None else kwargs["chunks"]
    kwargs.pop("shape", None)
    return create(shape, data=data, **kwargs)


def empty(shape: tuple[int, ...], **kwargs: Any) -> Array:
    """Creates an array without writing elements; they have the fill value."""
    return create(shape, **kwargs)


def zeros(shape: tuple[int, ...], **kwargs: Any) -> Array:
    """Creates an array of zeros; nothing is written, zero is the fill value."""
    return create(shape, **{"fill_value": 0} | kwargs)


def ones(shape: tuple[int, ...], **kwargs: Any) -> Array:
    """Creates an array of ones; nothing is written, one is the fill value."""
    return create(shape, **{"fill_value": 1} | kwargs)


def full(shape: tuple[int, ...], fill_value: Any, **kwargs: Any) -> Array:
    """Creates an array of one value; nothing is written, it is the fill value."""
    return create(shape, fill_value=fill_value, **kwargs)


def like_arguments(a: Any, zarr_format: ZarrFormat | None, *, fill: bool = True) -> dict[str, Any]:
    """The arguments of :func:`create` that make an array like ``a``; codecs only within one format."""
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
                arguments["chunks"] = metadata.shards or metadata.chunks
    if zarr_format is not None:
        arguments["zarr_format"] = zarr_format
    return arguments


def empty_like(a: Any, *, zarr_format: ZarrFormat | None = None, **kwargs: Any) -> Array:
    """Creates an array like ``a``, without elements."""
    return empty(**like_arguments(a, zarr_format) | kwargs)


def zeros_like(a: Any, *, zarr_format: ZarrFormat | None = None, **kwargs: Any) -> Array:
    """Creates an array of zeros like ``a``."""
    return zeros(**like_arguments(a, zarr_format, fill=False) | kwargs)


def ones_like(a: Any, *, zarr_format: ZarrFormat | None = None, **kwargs: Any) -> Array:
    """Creates an array of ones like ``a``."""
    return ones(**like_arguments(a, zarr_format, fill=False) | kwargs)


def full_like(a: Any, *, zarr_format: ZarrFormat | None = None, **kwargs: Any) -> Array:
    """Creates an array of one value like ``a``: ``fill_value``, or the fill value of ``a``."""
    return full(**like_arguments(a, zarr_format) | kwargs)

"""Functions that create arrays and groups."""

from __future__ import annotations

import copy as _copying
import warnings
from collections.abc import Iterator
from typing import Any

from cuzarr._checks import dictionary
from cuzarr._memory.foreign import host_array
from cuzarr._metadata.array import AnyArrayMetadata, ArrayV2Metadata
from cuzarr._metadata.create import DEFAULT_FILL_VALUE, new_metadata
from cuzarr._metadata.documents import check_zarr_format, contains, hierarchy_with_parents, new_node, read_node, write_new
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._metadata.group import GroupMetadata, as_node
from cuzarr._node.arguments import check_data, default_format, dtype_of, is_array, metadata_of
from cuzarr._node.array import Array
from cuzarr._node.array_config import ArrayConfigLike
from cuzarr._node.group import Group
from cuzarr.errors import ContainsArrayError, ContainsGroupError, CuzarrUserWarning, InvalidArgumentError
from cuzarr.storage import Store, StorePath, make_store_path, normalize_path


def create_array(
    store: Any,
    *,
    name: str | None = None,
    shape: Any = None,
    dtype: Any = None,
    data: Any = None,
    chunks: Any = "auto",
    shards: Any = None,
    filters: Any = "auto",
    compressors: Any = "auto",
    serializer: Any = "auto",
    fill_value: Any = DEFAULT_FILL_VALUE,
    order: Any = None,
    zarr_format: ZarrFormat | None = 3,
    attributes: dict[str, Any] | None = None,
    chunk_key_encoding: Any = None,
    dimension_names: Any = None,
    storage_options: dict[str, Any] | None = None,
    overwrite: bool = False,
    config: ArrayConfigLike | None = None,
    write_data: bool = True,
    device: str | None = None,
    metadata_store: Any = None,
) -> Array:
    """Creates an array.

    Parameters
    ----------
    store : StoreLike
        A path, a store, a dictionary; ``None`` is new memory.
    name : str, optional
        Path in the store; the groups above it are created.
    shape : tuple of int, optional
        Extents, in elements. With ``data`` they are the data's.
    dtype : dtype-like, optional
        Type of the elements: NumPy's, Zarr's names and JSON, zarr-python's objects.
    data : array, optional
        What is written, from any device; instead of ``shape`` and ``dtype``.
    chunks : tuple of int, int, bool or "auto"
        Shape of a chunk, in elements.
    shards : tuple of int, dict or "auto", optional
        Shape of a stored object that holds many chunks, a multiple of theirs.
    filters, compressors : codec, iterable of them, "auto" or None
        Codecs from elements to elements, and from bytes to bytes. By default none, and Zstandard at level 0.
    serializer : codec or "auto"
        Codec from elements to bytes.
    fill_value : scalar, optional
        Value of elements that were never written; zero unless given.
    order : {"C", "F"}, optional
        Order of elements inside a chunk, of format 2.
    zarr_format : {2, 3}, optional
        3 unless given.
    attributes : dict, optional
        Attributes, as JSON.
    chunk_key_encoding : dict, optional
        Names of the stored objects: ``{"name": "v2", "separator": "."}``.
    dimension_names : iterable of str, optional
        Names of the dimensions.
    storage_options : dict, optional
        For URLs of remote stores.
    overwrite : bool
        Replace whatever is there.
    config : ArrayConfig or dict, optional
        How the array behaves while open.
    write_data : bool
        Whether ``data`` is written, or only its shape and dtype are used.
    device : str, optional
        Where the array is read to.
    metadata_store : StoreLike, optional
        Another store, in which the metadata document lives; chunks stay in ``store``.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off.
    InvalidArgumentError
        An argument has no meaning, or contradicts another.

    Examples
    --------
    >>> import cuzarr
    >>> array = cuzarr.create_array({}, shape=(100, 100), chunks=(10, 10), shards=(50, 50), dtype="float32")
    >>> array.chunks, array.shards, array.nchunks
    ((10, 10), (50, 50), 100)
    """
    arguments = dict(locals())
    if data is not None:
        if shape is not None or dtype is not None:
            raise InvalidArgumentError("data has a shape and a dtype, so neither can be given")
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
    """Writes a new array: its elements, if there are any yet, then its metadata and that of the groups above it."""
    array = Array(place, metadata, config, device)  # refused here, when the codecs do not fit
    with new_node(place, metadata, overwrite=overwrite):
        if not overwrite:
            array._handle().refuse_left_over()
        if data is not None:
            fill(array, data)
    return array


def from_array(
    store: Any,
    *,
    data: Any,
    write_data: bool = True,
    name: str | None = None,
    chunks: Any = "keep",
    shards: Any = "keep",
    filters: Any = "keep",
    compressors: Any = "keep",
    serializer: Any = "keep",
    fill_value: Any = DEFAULT_FILL_VALUE,
    order: Any = None,
    zarr_format: ZarrFormat | None = None,
    attributes: dict[str, Any] | None = None,
    chunk_key_encoding: Any = None,
    dimension_names: Any = None,
    storage_options: dict[str, Any] | None = None,
    overwrite: bool = False,
    config: ArrayConfigLike | None = None,
    device: str | None = None,
    metadata_store: Any = None,
) -> Array:
    """Creates an array with the elements of another: one of a store's, NumPy's, or any on a GPU.

    ``"keep"`` takes over what an array of a store has; for other data it means ``"auto"`` (``shards``: none). Stored
    arrays are copied one stored object at a time. The other arguments are :func:`create_array`'s.

    >>> import cuzarr, numpy as np
    >>> source = cuzarr.create_array({}, data=np.arange(6), chunks=(2,))
    >>> copy = cuzarr.from_array({}, data=source)
    >>> copy.chunks, copy[:].tolist()
    ((2,), [0, 1, 2, 3, 4, 5])
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
    return create_node(place, metadata, overwrite, config, device, data if write_data else None)


def _keep(source: AnyArrayMetadata, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with ``"keep"`` replaced by what the source has."""
    zarr_format = given["zarr_format"] or source.zarr_format
    same = zarr_format == source.zarr_format
    like = Array.__new__(Array)
    like._metadata = source
    kept: dict[str, Any] = {
        "chunks": source.chunks,
        "shards": source.shards,
        "filters": (like.filters or None) if same else "auto",
        "compressors": (like.compressors or None) if same else "auto",
        "serializer": like.serializer if same and zarr_format == 3 else "auto",
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
    """Writes all elements, those of arrays of a store one stored object at a time."""
    if not is_array(data):
        if array.ndim == 0 or array.size:
            array[...] = data
        return
    for region in array._iterate_regions():
        array[region] = data[region]


def create_group(
    store: Any,
    *,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    overwrite: bool = False,
    attributes: dict[str, Any] | None = None,
    storage_options: dict[str, Any] | None = None,
    metadata_store: Any = None,
) -> Group:
    """Creates a group.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off.
    """
    place = make_store_path(store, path=path, mode="a", storage_options=storage_options, metadata_store=metadata_store)
    return Group._new(place, attributes, default_format(zarr_format), overwrite=overwrite)


def create_hierarchy(
    *, store: Store, nodes: dict[str, GroupMetadata | AnyArrayMetadata], overwrite: bool = False
) -> Iterator[tuple[str, Group | Array]]:
    """Creates many nodes from their metadata by path, and the groups they are in; yields each with its path. Metadata may
    be zarr-python's own objects.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off; nothing was written.
    """
    place = make_store_path(store)
    nodes = {normalize_path(path): as_node(node) for path, node in dictionary(nodes, "nodes").items()}
    complete = hierarchy_with_parents(nodes)
    for path, node in complete.items():
        kind = contains(place / path, next(iter(nodes.values())).zarr_format)
        if kind == "array" and (node is None or not overwrite):
            raise ContainsArrayError(f"an array is in store {place.store} at path '{path}'")
        if kind == "group" and node is not None and not overwrite:
            raise ContainsGroupError(f"a group is in store {place.store} at path '{path}'")
    for path, node in complete.items():
        here = place / path
        if node is None:
            found = read_node(here, next(iter(nodes.values())).zarr_format)
            if found is not None:
                continue
            node = GroupMetadata(zarr_format=next(iter(nodes.values())).zarr_format)
        if isinstance(node, GroupMetadata):
            write_new(here, node, overwrite=overwrite)
            yield here.path, Group(here, node)
        else:
            yield here.path, create_node(here, node, overwrite, None, None)

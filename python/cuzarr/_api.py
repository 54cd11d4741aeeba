"""The functions of ``cuzarr``. Names, signatures and defaults are zarr-python's; ``device`` is ours."""

from __future__ import annotations

import copy as _copying
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from cuzarr import _core
from cuzarr._array import Array, ArrayConfigLike, parse_array_config
from cuzarr._config import config as _global_config
from cuzarr._create import DEFAULT_FILL_VALUE, legacy_metadata, new_metadata
from cuzarr._dtypes import parse_dtype
from cuzarr._group import Group
from cuzarr._metadata import AnyArrayMetadata, ArrayV2Metadata, ConsolidatedMetadata, GroupMetadata, as_node
from cuzarr._nodes import (
    check_zarr_format,
    contains,
    group_not_found,
    hierarchy_with_parents,
    nothing_found,
    read_array,
    read_group,
    read_node,
    write_new,
)
from cuzarr.errors import (
    ArrayNotFoundError,
    ContainsArrayError,
    ContainsGroupError,
    CuzarrDeprecationWarning,
    CuzarrRuntimeWarning,
    CuzarrUserWarning,
    GroupNotFoundError,
    InvalidArgumentError,
    NodeTypeValidationError,
    UnsupportedError,
)
from cuzarr.storage import Store, StorePath, make_store_path, normalize_path

ZarrFormat = Literal[2, 3]
_READ_MODES = ("r", "r+", "a")
_CREATE_MODES = ("a", "w", "w-")


def _default_format(zarr_format: Any) -> ZarrFormat:
    return check_zarr_format(zarr_format) or _global_config.get("default_zarr_format")  # type: ignore[no-any-return]


def _warn_ignored(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            warnings.warn(f"{name} has no effect", CuzarrRuntimeWarning, stacklevel=3)


def _is_array(value: Any) -> bool:
    """Whether this is an array of a store, ours or zarr-python's."""
    return isinstance(value, Array) or (type(value).__name__ == "Array" and hasattr(value, "store_path"))


def _metadata_of(value: Any) -> AnyArrayMetadata:
    """The metadata of an array of a store, as ours."""
    if isinstance(value, Array):
        return value.metadata
    place = StorePath(make_store_path(value.store_path.store).store, value.store_path.path)
    return read_array(place, value.metadata.zarr_format)


# ------------------------------------------------------------------------------------------------------------ opening


def open(
    store: Any = None,
    *,
    mode: Any = None,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: dict[str, Any] | None = None,
    config: ArrayConfigLike | None = None,
    device: str | None = None,
    metadata_store: Any = None,
    **kwargs: Any,
) -> Array | Group:
    """Opens the array or group at a store or path, or creates it.

    Parameters
    ----------
    store : StoreLike, optional
        A path, a store, a dictionary; ``None`` is new memory.
    mode : {"r", "r+", "a", "w", "w-"}, optional
        Read only; read and write; create when missing; replace; create only. ``"a"``, or ``"r"`` for read-only stores.
    zarr_format : {2, 3}, optional
        Only this format; what is there, or the configuration's default for a new node.
    path : str, optional
        Path in the store.
    storage_options : dict, optional
        For URLs of remote stores.
    config : ArrayConfig or dict, optional
        How an array behaves while open.
    device : str, optional
        Where arrays are read to: ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
    metadata_store : StoreLike, optional
        Another store, in which the metadata documents live; chunks stay in ``store``.
    **kwargs
        For :func:`open_array` or :func:`open_group`, when something is created.

    Raises
    ------
    ArrayNotFoundError, GroupNotFoundError
        Nothing is there, and ``mode`` does not create.

    Examples
    --------
    >>> import cuzarr
    >>> store = {}
    >>> array = cuzarr.create_array(store, shape=(3,), dtype="float32")
    >>> cuzarr.open(store, mode="r").shape
    (3,)
    """
    if mode is None:
        mode = "r" if getattr(store, "read_only", False) is True else "a"
    place = make_store_path(store, mode=mode, path=path, storage_options=storage_options, metadata_store=metadata_store)
    if "shape" not in kwargs and mode in (*_READ_MODES, "w"):
        if mode in _READ_MODES:
            try:
                return Array(place, read_array(place, check_zarr_format(zarr_format)), config, device)
            except (ArrayNotFoundError, NodeTypeValidationError):
                pass
        _refuse_config(config, place)
        try:
            return open_group(place, zarr_format=zarr_format, mode=mode, device=device, **kwargs)
        except GroupNotFoundError:
            raise nothing_found(place) from None
    try:
        return open_array(place, zarr_format=zarr_format, mode=mode, config=config, device=device, **kwargs)
    except (KeyError, NodeTypeValidationError):
        _refuse_config(config, place)
        return open_group(place, zarr_format=zarr_format, mode=mode, device=device, **kwargs)


def _refuse_config(config: Any, place: StorePath) -> None:
    if config is not None:
        raise TypeError(f"config is for arrays, and {place} is a group")


def open_array(
    store: Any = None,
    *,
    zarr_format: ZarrFormat | None = None,
    path: str = "",
    storage_options: dict[str, Any] | None = None,
    config: ArrayConfigLike | None = None,
    device: str | None = None,
    metadata_store: Any = None,
    **kwargs: Any,
) -> Array:
    """Opens the array at a store or path; ``mode`` and the arguments of :func:`create` are among ``kwargs``.

    Raises
    ------
    ArrayNotFoundError
        There is none, and ``mode`` does not create.
    MetadataValidationError, UnknownCodecError, UnknownDataTypeError
        Its metadata cannot be used.
    """
    mode = kwargs.pop("mode", None)
    place = make_store_path(store, path=path, mode=mode, storage_options=storage_options, metadata_store=metadata_store)
    if mode != "w":
        try:
            return Array(place, read_array(place, check_zarr_format(zarr_format)), config, device)
        except ArrayNotFoundError:
            if place.read_only or mode not in _CREATE_MODES:
                raise
    shape = kwargs.pop("shape", None)
    if shape is None:
        raise TypeError(f"there is no array at {place}, and no shape to create one with")
    return create(
        shape,
        store=place,
        zarr_format=_default_format(zarr_format),
        overwrite=mode == "w",
        config=config,
        device=device,
        **kwargs,
    )


def open_group(
    store: Any = None,
    *,
    mode: Any = "a",
    cache_attrs: bool | None = None,
    synchronizer: Any = None,
    path: str | None = None,
    chunk_store: Any = None,
    storage_options: dict[str, Any] | None = None,
    zarr_format: ZarrFormat | None = None,
    meta_array: Any = None,
    attributes: dict[str, Any] | None = None,
    use_consolidated: bool | str | None = None,
    device: str | None = None,
    metadata_store: Any = None,
) -> Group:
    """Opens the group at a store or path, or creates it as ``mode`` says.

    ``use_consolidated`` says whether consolidated metadata must (``True``), may (``None``) or must not (``False``) serve;
    in format 2 a string names its key. ``cache_attrs``, ``synchronizer``, ``chunk_store`` and ``meta_array`` have no
    effect.

    Raises
    ------
    GroupNotFoundError
        There is none, and ``mode`` does not create.
    ContainsArrayError
        An array is there.
    """
    _warn_ignored(cache_attrs=cache_attrs, synchronizer=synchronizer, meta_array=meta_array, chunk_store=chunk_store)
    place = make_store_path(store, mode=mode, storage_options=storage_options, path=path, metadata_store=metadata_store)
    try:
        if mode in _READ_MODES:
            return Group(place, read_group(place, check_zarr_format(zarr_format), use_consolidated), device)
    except GroupNotFoundError:
        if mode not in _CREATE_MODES:
            raise
    if mode not in _CREATE_MODES:
        raise group_not_found(place)
    metadata = GroupMetadata(dict(attributes or {}), _default_format(zarr_format))
    write_new(place, metadata, overwrite=mode == "w")
    return Group(place, metadata, device)


def open_consolidated(*args: Any, use_consolidated: Literal[True] = True, **kwargs: Any) -> Group:
    """Opens a group by its consolidated metadata."""
    if use_consolidated is not True:
        raise TypeError("open_consolidated uses consolidated metadata; open_group can do without")
    return open_group(*args, use_consolidated=use_consolidated, **kwargs)


def load(store: Any, path: str | None = None, zarr_format: ZarrFormat | None = None) -> Any:
    """All elements of the array at a store or path; of a group, its arrays by name.

    >>> import cuzarr, numpy as np
    >>> store = {}
    >>> cuzarr.save(store, np.arange(3))
    >>> cuzarr.load(store)
    array([0, 1, 2])
    """
    node = open(store, mode="r", path=path, zarr_format=zarr_format)
    if isinstance(node, Array):
        return node[...]
    return {name: array[...] for name, array in node.arrays()}


def tree(grp: Group, expand: bool | None = None, level: int | None = None) -> Any:
    """The hierarchy below a group as text; :meth:`Group.tree` has more options."""
    warnings.warn("cuzarr.tree is deprecated, use Group.tree", CuzarrDeprecationWarning, stacklevel=2)
    return grp.tree(expand=expand, level=level)


def consolidate_metadata(store: Any, path: str | None = None, zarr_format: ZarrFormat | None = None) -> Group:
    """Keeps the metadata of everything below a group with the group, so that opening it reads one object.

    Raises
    ------
    GroupNotFoundError
        There is no group.
    """
    place = make_store_path(store, path=path)
    before = read_group(place, check_zarr_format(zarr_format), use_consolidated=False)
    found = dict(Group(place, before)._walk(None))
    plain: dict[str, AnyArrayMetadata | GroupMetadata] = {
        name: GroupMetadata(node.attributes, node.zarr_format, None, node.extra) if isinstance(node, GroupMetadata) else node
        for name, node in found.items()
    }
    if before.zarr_format == 3:
        message = "consolidated metadata is not part of the Zarr format 3 specification yet"
        warnings.warn(message, CuzarrUserWarning, stacklevel=2)
    metadata = GroupMetadata(before.attributes, before.zarr_format, ConsolidatedMetadata(plain), before.extra)
    place.write(metadata.documents())
    return Group(place, metadata)


# ----------------------------------------------------------------------------------------------------------- creating


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
    if data is not None:
        if shape is not None or dtype is not None:
            raise InvalidArgumentError("data has a shape and a dtype, so neither can be given")
        return from_array(
            store,
            data=data,
            write_data=write_data,
            name=name,
            chunks=chunks,
            shards=shards,
            filters=filters,
            compressors=compressors,
            serializer=serializer,
            fill_value=fill_value,
            order=order,
            zarr_format=zarr_format,
            attributes=attributes,
            chunk_key_encoding=chunk_key_encoding,
            dimension_names=dimension_names,
            storage_options=storage_options,
            overwrite=overwrite,
            config=config,
            device=device,
            metadata_store=metadata_store,
        )
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
        zarr_format=_default_format(zarr_format),
        attributes=attributes,
        chunk_key_encoding=chunk_key_encoding,
        dimension_names=dimension_names,
    )
    return _create(place, metadata, overwrite, config, device)


def _create(place: StorePath, metadata: AnyArrayMetadata, overwrite: bool, config: Any, device: str | None) -> Array:
    array = Array(place, metadata, config, device)  # refused here, when the codecs do not fit
    write_new(place, metadata, overwrite=overwrite)
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
        data = np.asarray(data)
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
    if _is_array(data):
        source = _metadata_of(data)
        dtype: Any = source.data_type
        arguments = _keep(source, arguments)
        _refuse_overlap(data, place, overwrite and write_data)
    else:
        dtype = _dtype_of(data)
        defaults = {"shards": None, "zarr_format": arguments["zarr_format"] or 3}
        kept = {key: "auto" for key, value in arguments.items() if isinstance(value, str) and value == "keep"}
        arguments |= kept | {key: value for key, value in defaults.items() if key != "shards" or shards == "keep"}
    metadata = new_metadata(shape=tuple(data.shape), dtype=dtype, **arguments)
    array = _create(place, metadata, overwrite, config, device)
    if write_data:
        _fill(array, data)
    return array


def _dtype_of(data: Any) -> Any:
    """The element type of any library's array, as NumPy's."""
    if isinstance(data.dtype, np.dtype):
        return data.dtype
    return np.dtype(str(data.dtype).rpartition(".")[2]) if "bfloat16" not in str(data.dtype) else "bfloat16"


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


def _refuse_overlap(data: Any, place: StorePath, replaces: bool) -> None:
    if replaces and isinstance(data, Array):
        _core.refuse_overlap((data.store_path.store._handle, data.path), (place.store._handle, place.path))


def _fill(array: Array, data: Any) -> None:
    if not _is_array(data):
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
    metadata = GroupMetadata(dict(attributes or {}), _default_format(zarr_format))
    write_new(place, metadata, overwrite=overwrite)
    return Group(place, metadata)


def group(
    store: Any = None,
    *,
    overwrite: bool = False,
    chunk_store: Any = None,
    cache_attrs: bool | None = None,
    synchronizer: Any = None,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    meta_array: Any = None,
    attributes: dict[str, Any] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Group:
    """Opens a group, created when it is missing; ``overwrite=True`` creates it anyway."""
    return open_group(
        store,
        mode="w" if overwrite else "a",
        chunk_store=chunk_store,
        cache_attrs=cache_attrs,
        synchronizer=synchronizer,
        path=path,
        zarr_format=zarr_format,
        meta_array=meta_array,
        attributes=attributes,
        storage_options=storage_options,
    )


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
    nodes = {normalize_path(path): as_node(node) for path, node in nodes.items()}
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
            yield here.path, _create(here, node, overwrite, None, None)


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

    ``synchronizer``, ``chunk_store``, ``cache_metadata``, ``cache_attrs``, ``read_only``, ``object_codec`` and
    ``meta_array`` have no effect.
    """
    _warn_ignored(
        synchronizer=synchronizer,
        chunk_store=chunk_store,
        cache_metadata=cache_metadata,
        cache_attrs=cache_attrs,
        read_only=read_only,
        object_codec=object_codec,
        meta_array=meta_array,
    )
    if chunks is not None and chunk_shape is not None:
        raise InvalidArgumentError("chunks and chunk_shape are the same, give one")
    mode = mode or "a"
    place = make_store_path(store, path=path, mode=mode, storage_options=storage_options, metadata_store=metadata_store)
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
        zarr_format=_default_format(zarr_format),
    )
    array = _create(place, metadata, overwrite or mode == "w", settings, device)
    if data is not None:
        array[...] = data
    return array


def array(data: Any, **kwargs: Any) -> Array:
    """Creates an array with the given elements; ``kwargs`` are :func:`create`'s (for arrays of a store, :func:`from_array`'s).

    >>> import cuzarr
    >>> cuzarr.array([[1, 2], [3, 4]])[1].tolist()
    [3, 4]
    """
    if _is_array(data):
        return from_array(kwargs.pop("store", None), data=data, **kwargs)
    if not hasattr(data, "shape") or not hasattr(data, "dtype"):
        data = np.asanyarray(data)
    if kwargs.pop("read_only", False):
        raise InvalidArgumentError("a new array cannot be read-only")
    kwargs["dtype"] = _dtype_of(data) if kwargs.get("dtype") is None else kwargs["dtype"]
    shape, chunks = _shape_and_chunks(data)
    kwargs["chunks"] = chunks if kwargs.get("chunks") is None else kwargs["chunks"]
    kwargs.pop("shape", None)
    created = create(shape, **kwargs)
    created[...] = data
    return created


def _shape_and_chunks(a: Any) -> tuple[Any, Any]:
    shape = tuple(a.shape) if hasattr(a, "shape") else None
    chunks = getattr(a, "chunks", None)
    matches = isinstance(chunks, tuple) and shape is not None and len(chunks) == len(shape)
    return shape, chunks if matches and all(isinstance(size, int) for size in chunks) else None  # type: ignore[union-attr]


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


def _like(a: Any, zarr_format: ZarrFormat | None, *, fill: bool = True) -> dict[str, Any]:
    """The arguments of :func:`create` that make an array like ``a``; codecs only within one format."""
    shape, chunks = _shape_and_chunks(a)
    arguments: dict[str, Any] = {"shape": shape}
    if chunks is not None:
        arguments["chunks"] = chunks
    if hasattr(a, "dtype"):
        arguments["dtype"] = _dtype_of(a)
    if _is_array(a):
        metadata = _metadata_of(a)
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
    return empty(**_like(a, zarr_format) | kwargs)


def zeros_like(a: Any, *, zarr_format: ZarrFormat | None = None, **kwargs: Any) -> Array:
    """Creates an array of zeros like ``a``."""
    return zeros(**_like(a, zarr_format, fill=False) | kwargs)


def ones_like(a: Any, *, zarr_format: ZarrFormat | None = None, **kwargs: Any) -> Array:
    """Creates an array of ones like ``a``."""
    return ones(**_like(a, zarr_format, fill=False) | kwargs)


def full_like(a: Any, *, zarr_format: ZarrFormat | None = None, **kwargs: Any) -> Array:
    """Creates an array of one value like ``a``: ``fill_value``, or the fill value of ``a``."""
    return full(**_like(a, zarr_format) | kwargs)


def open_like(a: Any, path: str, *, zarr_format: ZarrFormat | None = None, **kwargs: Any) -> Array:
    """Opens the array at ``path``, created like ``a`` when it is missing."""
    arguments = _like(a, zarr_format or _default_format(None))
    arguments.pop("zarr_format")
    arguments |= kwargs
    if arguments.get("mode") is None:
        arguments["mode"] = "a"
    return open_array(path=path, zarr_format=zarr_format, **arguments)


# ------------------------------------------------------------------------------------------------------------- saving


def save(
    store: Any,
    *args: Any,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> None:
    """Stores one array, or several as a group: ``arr_0``, ``arr_1``, … and by keyword names."""
    if not args and not kwargs:
        raise InvalidArgumentError("there is no array to save")
    if len(args) == 1 and not kwargs:
        save_array(store, args[0], zarr_format=zarr_format, path=path, storage_options=storage_options)
    else:
        save_group(store, *args, zarr_format=zarr_format, path=path, storage_options=storage_options, **kwargs)


def _require_array(value: Any) -> Any:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise TypeError(f"expected an array, got {type(value).__name__}")
    return value


def save_array(
    store: Any,
    arr: Any,
    *,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> None:
    """Stores one array, from any device; ``kwargs`` are :func:`create`'s."""
    _require_array(arr)
    mode = kwargs.pop("mode", "a")
    place = make_store_path(store, path=path, mode=mode, storage_options=storage_options)
    overwrite = bool(kwargs.pop("overwrite", None)) or mode == "w"
    shape, chunks = _shape_and_chunks(arr)
    kwargs.setdefault("chunks", chunks)
    dtype = _metadata_of(arr).data_type if _is_array(arr) else _dtype_of(arr)
    created = create(
        shape, store=place, zarr_format=_default_format(zarr_format), dtype=dtype, overwrite=overwrite, **kwargs
    )
    _fill(created, arr)


def save_group(
    store: Any,
    *args: Any,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> None:
    """Stores several arrays as a group, which replaces what is there: ``arr_0``, ``arr_1``, … and by keyword names."""
    named = {f"arr_{place}": value for place, value in enumerate(args)} | kwargs
    if not named:
        raise InvalidArgumentError("there is no array to save")
    chosen = _default_format(zarr_format)
    for value in named.values():
        # Everything that could be refused is refused before anything is deleted.
        parse_dtype(_dtype_of(_require_array(value)), chosen)
    place = make_store_path(store, path=path, mode="w", storage_options=storage_options)
    write_new(place, GroupMetadata(zarr_format=chosen), overwrite=True)
    for name, value in named.items():
        save_array(place / name, value, zarr_format=chosen)


def copy_all(*args: Any, **kwargs: Any) -> tuple[int, int, int]:
    """Refuses, as zarr-python does: :func:`cuzarr.copy` copies whole groups."""
    raise UnsupportedError("copy_all is not available", hint="use cuzarr.copy(group, target)")


def copy_store(*args: Any, **kwargs: Any) -> tuple[int, int, int]:
    """Refuses, as zarr-python does: :func:`cuzarr.copy` copies whole hierarchies."""
    raise UnsupportedError("copy_store is not available", hint="use cuzarr.copy(source, target)")


def print_debug_info() -> None:
    """Prints versions, devices and what is missing, for a bug report."""
    print(f"cuzarr {_core.__version__}, numpy {np.__version__}")
    _core.cli(["cuzarr", "doctor"])


__all__ = [
    "array",
    "consolidate_metadata",
    "copy_all",
    "copy_store",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "empty",
    "empty_like",
    "from_array",
    "full",
    "full_like",
    "group",
    "load",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_like",
    "print_debug_info",
    "save",
    "save_array",
    "save_group",
    "tree",
    "zeros",
    "zeros_like",
]


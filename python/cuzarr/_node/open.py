"""Functions that open arrays and groups, or create them if they are missing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, Unpack

from cuzarr import _core
from cuzarr._checks import check_keywords, parameters
from cuzarr._compute import sources
from cuzarr._compute.sources import is_array, place_of
from cuzarr._config import config as global_config
from cuzarr._docstrings import documented
from cuzarr._metadata.documents import (
    check_zarr_format,
    find_node,
    group_not_found,
    nothing_found,
    read_array,
    read_group,
    value_of,
)
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._metadata.group import GroupMetadata
from cuzarr._node.arguments import default_format, device_like, one_format, warn_ignored
from cuzarr._node.array import Array
from cuzarr._node.array_config import ArrayConfigLike, with_settings
from cuzarr._node.create import create, create_array, like_arguments
from cuzarr._node.display import Tree
from cuzarr._node.group import Group
from cuzarr._operators.signs import is_operand
from cuzarr._text import printable
from cuzarr.errors import (
    ArgumentTypeError,
    ArrayNotFoundError,
    ContainsArrayError,
    ContainsGroupError,
    CuzarrDeprecationWarning,
    CuzarrUserWarning,
    GroupNotFoundError,
    NodeTypeValidationError,
)
from cuzarr.storage import StoreLike, StorePath, make_store_path

if TYPE_CHECKING:
    from cuzarr.typing import AccessMode, ArrayLike, MemoryArray, OpenGroupOptions, OpenLikeOptions, OpenOptions


_READ_MODES = ("r", "r+", "a")
_CREATE_MODES = ("a", "w", "w-")
# Arguments of :func:`create` that functions that open do not take: ``mode`` replaces them.
_SAID_BY_MODE = {"read_only": "r", "overwrite": "w"}
# Arguments of zarr-python 2 that :func:`create` does not have.
_FORMER_OPTIONS = ("zarr_version", "partial_decompress")
# Arguments without effect, both on new and on existing arrays.
_IGNORED = ("synchronizer", "chunk_store", "cache_metadata", "cache_attrs", "object_codec", "partial_decompress")


def open(
    store: StoreLike | None = None,
    *,
    mode: AccessMode | None = None,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: dict[str, Any] | None = None,
    config: ArrayConfigLike | None = None,
    device: str | None = None,
    chunk_cache: bool | None = None,
    metadata_store: StoreLike | None = None,
    **kwargs: Unpack[OpenOptions],
) -> Array | Group:
    """Open an array or group, given by store or path. Depending on ``mode``, create it.

    Parameters
    ----------
    store : StoreLike, optional
        A path, a store, a dictionary; ``None`` is new memory.
    mode : {"r", "r+", "a", "w", "w-"}, optional
        Read only; read and write; create if missing; replace; create only. By default ``"a"``, or ``"r"`` for read-only stores.
    zarr_format : {2, 3}, optional
        The format; by default that of the existing node, and for a new node the configured one.
    storage_options : dict, optional
        Options for URLs of remote stores.
    config : ArrayConfig or dict, optional
        Settings of an open array.
    device : str, optional
        The device that arrays are read to: ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
    chunk_cache : bool, optional
        Whether decoded chunks are kept for reads that need them again. By default the setting ``array.chunk_cache``.
    metadata_store : StoreLike, optional
        Another store, in which the metadata documents live; chunks stay in ``store``.
    **kwargs
        For :func:`open_array` or :func:`open_group`, if a node is created.

    Raises
    ------
    ArrayNotFoundError, GroupNotFoundError
        There is no node, and ``mode`` does not create one.

    >>> store = {}
    >>> array = cuzarr.create_array(store, shape=(3,), dtype="float32")
    >>> cuzarr.open(store, mode="r").shape
    (3,)
    """
    options: dict[str, Any] = {**kwargs}
    _check_options("open", options, open_array, open_group)
    zarr_format = one_format(zarr_format, options.pop("zarr_version", None))
    if mode is None:
        mode = "r" if getattr(store, "read_only", False) is True else "a"
    place = make_store_path(store, mode=mode, path=path, storage_options=storage_options, metadata_store=metadata_store)
    if "shape" not in options and mode in (*_READ_MODES, "w"):
        if mode in _READ_MODES:
            found = find_node(place, check_zarr_format(zarr_format))
            if found is not None and not isinstance(found, GroupMetadata):
                warn_ignored(**{name: options.get(name) for name in _IGNORED})
                settings = with_settings(config, chunk_cache=chunk_cache)
                return Array(place, found, settings, device_like(options.get("meta_array"), device))
            if found is not None and not options:
                _refuse_config(config, place)
                return Group(place, found, device, chunk_cache)
        _refuse_config(config, place)
        try:
            return open_group(place, zarr_format=zarr_format, mode=mode, device=device, chunk_cache=chunk_cache, **options)
        except GroupNotFoundError:
            raise nothing_found(place) from None
    try:
        settings = with_settings(config, chunk_cache=chunk_cache)
        return open_array(place, zarr_format=zarr_format, mode=mode, config=settings, device=device, **options)
    except (KeyError, NodeTypeValidationError):
        _refuse_config(config, place)
        return open_group(place, zarr_format=zarr_format, mode=mode, device=device, chunk_cache=chunk_cache, **options)


def _refuse_config(config: Any, place: StorePath) -> None:
    if config is not None:
        raise TypeError(f"config is for arrays, and {printable(str(place))} is a group")


def _check_options(function: str, given: dict[str, Any], *openers: Any) -> None:
    """Refuses keyword arguments that neither the opening function nor :func:`create` has, or for which ``mode`` is meant.

    Raises
    ------
    ArgumentTypeError
    """
    if not given:
        return
    for name in _SAID_BY_MODE.keys() & given:
        raise ArgumentTypeError(f"{function} has no argument '{name}'", hint=f"pass mode='{_SAID_BY_MODE[name]}'")
    known = parameters(*openers, create)
    check_keywords(function, given, [*(name for name in known if name not in _SAID_BY_MODE), *_FORMER_OPTIONS])


def open_array(
    store: StoreLike | None = None,
    *,
    mode: AccessMode | None = None,
    zarr_format: ZarrFormat | None = None,
    path: str = "",
    storage_options: dict[str, Any] | None = None,
    config: ArrayConfigLike | None = None,
    device: str | None = None,
    accelerator: str | None = None,
    chunk_cache: bool | None = None,
    metadata_store: StoreLike | None = None,
    **kwargs: Unpack[OpenOptions],
) -> Array:
    """Open an array, given by store or path. Depending on ``mode``, create it.

    Parameters
    ----------
    mode : {"r", "r+", "a", "w", "w-"}, optional
        Read only; read and write; create if missing; replace; create only. By default an array that exists is opened for reading
        and writing.
    path : str
        Path in the store.
    config : ArrayConfig or dict, optional
        Settings of the open array.
    device : str, optional
        The device that the array is read to: ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
    accelerator : {"none", "auto", "cuda:0", ...}, optional
        The GPU that decodes and encodes for results and values in host memory: none, the first one where that is faster, or this one.
        By default the setting ``accelerator``.
    chunk_cache : bool, optional
        Whether decoded chunks are kept for reads that need them again. By default the setting ``array.chunk_cache``.
    metadata_store : StoreLike, optional
        Another store, in which the metadata document lives; chunks stay in ``store``.
    **kwargs
        Arguments of :func:`create`, for an array that is created. They have no effect on one that exists.

    Raises
    ------
    ArgumentTypeError
        :func:`create` has no such argument.
    ArrayNotFoundError
        There is no array, and ``mode`` does not create one.
    MetadataValidationError, UnknownCodecError, UnknownDataTypeError
        Its metadata cannot be used.

    >>> store = {}
    >>> array = cuzarr.open_array(store, mode="w", shape=(4,), chunks=(2,), dtype="int32")
    >>> cuzarr.open_array(store, mode="r").chunks
    (2,)
    """
    options: dict[str, Any] = {**kwargs}
    _check_options("open_array", options, open_array)
    zarr_format = one_format(zarr_format, options.pop("zarr_version", None))
    device = device_like(options.pop("meta_array", None), device)
    config = with_settings(config, chunk_cache=chunk_cache, accelerator=accelerator)
    place = make_store_path(store, path=path, mode=mode, storage_options=storage_options, metadata_store=metadata_store)
    if mode != "w":
        try:
            array = Array(place, read_array(place, check_zarr_format(zarr_format)), config, device)
        except ArrayNotFoundError:
            if place.read_only or mode not in _CREATE_MODES:
                raise
        else:
            warn_ignored(**{name: options.get(name) for name in _IGNORED})
            return array
    warn_ignored(partial_decompress=options.pop("partial_decompress", None))
    shape = options.pop("shape", None)
    if shape is None:
        raise TypeError(f"there is no array at {printable(str(place))}, and no shape to create one with")
    try:
        return create(
            shape,
            store=place,
            zarr_format=check_zarr_format(zarr_format),
            overwrite=mode == "w",
            config=config,
            device=device,
            **options,
        )
    except ContainsArrayError:
        if mode != "a" or (found := find_node(place, check_zarr_format(zarr_format), arrays=True)) is None:
            raise
        # Another program created it in the meantime.
        return Array(place, found, config, device)  # type: ignore[arg-type]  # the error says that it is an array


def open_like(a: ArrayLike, path: str, *, zarr_format: ZarrFormat | None = None, **kwargs: Unpack[OpenLikeOptions]) -> Array:
    """Open the array at ``path``. If it is missing, create it with the shape, type and settings of ``a``.

    Parameters
    ----------
    a : Array or array
        A new array gets the shape, chunks and element type of this array.
    path : str
        Path of the array in the store.
    zarr_format : {2, 3}, optional
        Format of an array that is created.
    **kwargs
        As for :func:`open_array`; ``store`` says where.

    Raises
    ------
    ContainsGroupError
        A group is there.

    >>> a = cuzarr.zeros((4,), chunks=(2,), dtype="int16", store={})
    >>> cuzarr.open_like(a, "copy", store={}).dtype
    dtype('int16')
    """
    arguments = like_arguments(a, zarr_format or default_format(None), **kwargs)
    arguments.pop("zarr_format")
    if arguments.get("mode") is None:
        arguments["mode"] = "a"
    return open_array(path=path, zarr_format=zarr_format, **arguments)


def open_group(
    store: StoreLike | None = None,
    *,
    mode: AccessMode = "a",
    cache_attrs: bool | None = None,
    synchronizer: object = None,
    path: str | None = None,
    chunk_store: StoreLike | None = None,
    storage_options: dict[str, Any] | None = None,
    zarr_format: ZarrFormat | None = None,
    meta_array: ArrayLike | None = None,
    attributes: dict[str, Any] | None = None,
    use_consolidated: bool | str | None = None,
    device: str | None = None,
    chunk_cache: bool | None = None,
    metadata_store: StoreLike | None = None,
) -> Group:
    """Open a group, given by store or path. Depending on ``mode``, create it.

    ``use_consolidated`` says whether consolidated metadata must (``True``), may (``None``) or must not (``False``) be used;
    in format 2 a string names its key. A read-only group takes the shapes and attributes of its members from the consolidated metadata. A
    writable group takes only the names from there, and reads each member's own document when the member is opened. Arrays are read to the
    device of ``meta_array``, unless ``device`` is given. ``cache_attrs``, ``synchronizer`` and ``chunk_store`` have no effect.

    Parameters
    ----------
    mode : {"r", "r+", "a", "w", "w-"}
        Read only; read and write; create when missing; replace; create only.
    zarr_format : {2, 3}, optional
        The format; by default either, and for a new group the configured one.
    use_consolidated : bool or str, optional
        Whether consolidated metadata must (``True``), may (``None``) or must not (``False``) be used; in format 2, its key.
    device, meta_array : str; array, optional
        The device that arrays of the group are read to, or an array on that device.
    chunk_cache : bool, optional
        Whether decoded chunks of the group's arrays are kept for reads that need them again. By default the setting
        ``array.chunk_cache``.
    metadata_store : StoreLike, optional
        Another store, in which the metadata documents live.
    cache_attrs, synchronizer, chunk_store : optional
        Accepted for older programs, without effect.

    Raises
    ------
    GroupNotFoundError
        There is no group, and ``mode`` does not create one.
    ContainsArrayError
        An array is there.

    >>> root = cuzarr.open_group({}, mode="a", attributes={"title": "run 1"})
    >>> root.attrs["title"]
    'run 1'
    """
    warn_ignored(cache_attrs=cache_attrs, synchronizer=synchronizer, chunk_store=chunk_store)
    device = device_like(meta_array, device)
    place = make_store_path(store, mode=mode, storage_options=storage_options, path=path, metadata_store=metadata_store)
    try:
        if mode in _READ_MODES:
            return Group(place, read_group(place, check_zarr_format(zarr_format), use_consolidated), device, chunk_cache)
    except GroupNotFoundError:
        if mode not in _CREATE_MODES:
            raise
    if mode not in _CREATE_MODES:
        raise group_not_found(place)
    try:
        return Group._new(place, attributes, default_format(zarr_format), overwrite=mode == "w", device=device)
    except ContainsGroupError:
        if mode != "a":
            raise
        # Another program created it in the meantime.
        return Group(place, read_group(place, check_zarr_format(zarr_format), use_consolidated), device, chunk_cache)


def group(
    store: StoreLike | None = None,
    *,
    overwrite: bool = False,
    chunk_store: StoreLike | None = None,
    cache_attrs: bool | None = None,
    synchronizer: object = None,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    meta_array: ArrayLike | None = None,
    attributes: dict[str, Any] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Group:
    """Open a group, which is created if it is missing. With ``overwrite=True``, it is replaced.

    Parameters
    ----------
    overwrite : bool
        Replace an existing node by an empty group.
    zarr_format : {2, 3}, optional
        Format of a group that is created.
    meta_array : array, optional
        Arrays of the group are read to the device of this one.
    chunk_store, cache_attrs, synchronizer : optional
        Accepted for older programs, without effect.

    Raises
    ------
    ContainsArrayError
        An array is there.

    >>> cuzarr.group({}, attributes={"a": 1}).attrs["a"]
    1
    """
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


def array_of(value: Any, mode: AccessMode = "r", device: str | None = None) -> Array:
    """Converts a caller's argument to a stored array of cuzarr: an array of cuzarr or zarr-python, or the path, URL or store of one.

    Raises
    ------
    ArrayNotFoundError
        There is no array at the path.
    ArgumentTypeError
        The value is an array in memory, or not an array.
    """
    if isinstance(value, Array):
        return value if device is None else value.with_device(device)
    if isinstance(value, str):  # NumPy's, too, which is an operand as well
        return open_array(str(value), mode=mode, device=device)
    if is_array(value):
        return open_array(place_of(value), mode=mode, device=device)
    if is_operand(value):
        hint = "save it first: cuzarr.save_array(store, x)"
        raise ArgumentTypeError(f"got {type(value).__name__}, expected an array of a store, or its path", hint=hint)
    return open_array(value, mode=mode, device=device)


def open_consolidated(*args: StoreLike, use_consolidated: Literal[True] = True, **kwargs: Unpack[OpenGroupOptions]) -> Group:
    """Open a group by its consolidated metadata.

    Parameters
    ----------
    *args, **kwargs
        As for :func:`open_group`.
    use_consolidated : True
        Consolidated metadata must exist.

    Raises
    ------
    GroupNotFoundError
        There is no group, or it has no consolidated metadata.

    >>> store = {}
    >>> array = cuzarr.create_array(store, name="a", shape=(4,), dtype="int8")
    >>> root = cuzarr.consolidate_metadata(store)
    >>> list(cuzarr.open_consolidated(store, mode="r").metadata.consolidated_metadata.metadata)
    ['a']
    """
    if use_consolidated is not True:
        raise TypeError("open_consolidated uses consolidated metadata; open_group can do without")
    return open_group(*args, use_consolidated=use_consolidated, **kwargs)


def load(
    store: StoreLike, path: str | None = None, zarr_format: ZarrFormat | None = None
) -> MemoryArray | dict[str, MemoryArray]:
    """Read all elements of an array, or of all arrays directly in a group.

    Parameters
    ----------
    store : StoreLike
        A path, a URL, a store, a dictionary.

    Returns
    -------
    array or dict of str to array
        The elements, on the configured device.

    Raises
    ------
    NodeNotFoundError
        Nothing is there.

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


def tree(grp: Group, expand: bool | None = None, level: int | None = None) -> Tree:
    """The hierarchy below a group, as text. :meth:`Group.tree` has more options.

    Parameters
    ----------
    grp : Group
        The group at the top of the hierarchy.
    expand : bool, optional
        Accepted for older programs, without effect.
    level : int, optional
        How many levels are shown; by default all.

    Returns
    -------
    object
        Text when printed, and HTML in a notebook.

    Raises
    ------
    ArgumentTypeError
        ``grp`` is not a group.

    >>> root = cuzarr.create_group({})
    >>> array = root.create_array("a", shape=(4,), dtype="int8")
    >>> print(str(cuzarr.tree(root)).strip())
    /
    └── a (4,) int8
    """
    warnings.warn("cuzarr.tree is deprecated, use Group.tree", CuzarrDeprecationWarning, stacklevel=2)
    if not isinstance(grp, Group):
        raise ArgumentTypeError(f"got {type(grp).__name__}, expected a group", hint="open it with open_group")
    return grp.tree(expand=expand, level=level)


def consolidate_metadata(store: StoreLike, path: str | None = None, zarr_format: ZarrFormat | None = None) -> Group:
    """Store the metadata of all nodes below a group in the group's own document. Opening the group then reads one object.

    Parameters
    ----------
    store : StoreLike
        A path, a URL, a store, a dictionary.
    path : str, optional
        Path of the group in the store.

    Returns
    -------
    Group
        The group, with its consolidated metadata.

    Raises
    ------
    GroupNotFoundError
        There is no group.

    >>> store = {}
    >>> array = cuzarr.create_array(store, name="a/b", shape=(4,), dtype="int8")
    >>> sorted(cuzarr.consolidate_metadata(store).metadata.consolidated_metadata.metadata)
    ['a']
    """
    place = make_store_path(store, path=path)
    zarr_format = read_group(place, check_zarr_format(zarr_format), use_consolidated=False).zarr_format
    if zarr_format == 3:
        message = "consolidated metadata is not part of the Zarr format 3 specification yet"
        warnings.warn(message, CuzarrUserWarning, stacklevel=2)
    indent, most = global_config.get("json_indent"), global_config.get("metadata_max_bytes")
    place.store.check_writable()
    metadata: Any = value_of(place, _core.consolidate(place.store.handle, place.path, zarr_format, indent, most))
    return Group(place, metadata)


sources.nodes = sources.Nodes(open, open_array, open_group, create_array)


documented(
    """
    path : str, optional
        Path in the store.
    store : StoreLike, optional
        A path, a URL, a store, a dictionary; ``None`` is new memory.
    zarr_format : {2, 3}, optional
        The format; by default either.
    storage_options : dict, optional
        Options for URLs of remote stores.
    attributes : dict, optional
        Attributes of a group that is created, as JSON.
    >>> import cuzarr
    """,
)(globals())

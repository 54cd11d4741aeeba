"""Functions that store arrays in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from cuzarr._compute.sources import is_array, metadata_of
from cuzarr._docstrings import documented
from cuzarr._metadata.documents import write_new
from cuzarr._metadata.dtype import ZarrFormat, parse_dtype
from cuzarr._metadata.group import GroupMetadata
from cuzarr._node.arguments import check_data, default_format, dtype_of, require_array, shape_and_chunks
from cuzarr._node.create import create
from cuzarr.errors import InvalidArgumentError
from cuzarr.storage import StoreLike, make_store_path
from cuzarr.storage.zip import finishing

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, SaveOptions


def save(
    store: StoreLike,
    *args: ArrayLike,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: dict[str, Any] | None = None,
    **kwargs: ArrayLike,
) -> None:
    """Store one array, or several as a group with the names ``arr_0``, ``arr_1``, … and the keyword names.

    Parameters
    ----------
    *args : array
        Elements in memory of any device: one array, or several arrays, which become members of a group.

    Returns
    -------
    None
        The elements are stored when the call returns.

    Raises
    ------
    InvalidArgumentError
        No array was given.

    >>> store = {}
    >>> cuzarr.save(store, a=np.arange(3), b=np.zeros(2))
    >>> sorted(cuzarr.load(store))
    ['a', 'b']
    """
    if not args and not kwargs:
        raise InvalidArgumentError("there is no array to save")
    if len(args) == 1 and not kwargs:
        save_array(store, args[0], zarr_format=zarr_format, path=path, storage_options=storage_options)
    else:
        save_group(store, *args, zarr_format=zarr_format, path=path, storage_options=storage_options, **kwargs)


def save_array(
    store: StoreLike,
    arr: ArrayLike,
    *,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: dict[str, Any] | None = None,
    **kwargs: Unpack[SaveOptions],
) -> None:
    """Store one array, which may be on any device.

    Parameters
    ----------
    arr : array
        Elements, in memory of any device.
    **kwargs
        As for :func:`create`.

    Returns
    -------
    None
        The elements are stored when the call returns.

    Raises
    ------
    InvalidArgumentError
        ``arr`` is not an array.

    >>> store = {}
    >>> cuzarr.save_array(store, np.arange(3))
    >>> cuzarr.open_array(store, mode="r")[1:].tolist()
    [1, 2]
    """
    require_array(arr)
    options: dict[str, Any] = {**kwargs}
    mode = options.pop("mode", "a")
    place = make_store_path(store, path=path, mode=mode, storage_options=storage_options)
    overwrite = bool(options.pop("overwrite", None)) or mode == "w"
    check_data(arr, place, overwrite)
    shape, chunks = shape_and_chunks(arr)
    options.setdefault("chunks", chunks)
    if is_array(arr) and default_format(zarr_format) == 3:
        options.setdefault("dimension_names", getattr(metadata_of(arr), "dimension_names", None))
    dtype = metadata_of(arr).data_type if is_array(arr) else dtype_of(arr)
    with finishing(place.store, store):
        create(shape, store=place, zarr_format=zarr_format, dtype=dtype, overwrite=overwrite, data=arr, **options)


def save_group(
    store: StoreLike,
    *args: ArrayLike,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: dict[str, Any] | None = None,
    **kwargs: ArrayLike,
) -> None:
    """Store several arrays as a group, with the names ``arr_0``, ``arr_1``, … and the keyword names. An existing node is replaced.

    Parameters
    ----------
    *args : array
        Elements, in memory of any device.

    Returns
    -------
    None
        The elements are stored when the call returns.

    Raises
    ------
    InvalidArgumentError
        No array was given.

    >>> store = {}
    >>> cuzarr.save_group(store, np.arange(3), b=np.zeros(2))
    >>> sorted(cuzarr.open_group(store, mode="r"))
    ['arr_0', 'b']
    """
    named = {f"arr_{place}": value for place, value in enumerate(args)} | kwargs
    if not named:
        raise InvalidArgumentError("there is no array to save")
    chosen = default_format(zarr_format)
    for name, value in named.items():
        # Everything is checked before anything is deleted.
        parse_dtype(dtype_of(require_array(value, name)), chosen)
    place = make_store_path(store, path=path, mode="w", storage_options=storage_options)
    for value in named.values():
        check_data(value, place, True)
    with finishing(place.store, store):
        write_new(place, GroupMetadata(zarr_format=chosen), overwrite=True)
        for name, value in named.items():
            save_array(place / name, value, zarr_format=chosen)


documented(
    """
    store : StoreLike
        A path, a URL, a store, a dictionary.
    zarr_format : {2, 3}, optional
        Format of what is created.
    path : str, optional
        Path in the store.
    storage_options : dict, optional
        Options for URLs of remote stores.
    **kwargs : array
        Further arrays by name.
    >>> import cuzarr, numpy as np
    """,
)(globals())

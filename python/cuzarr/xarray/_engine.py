"""The engine behind ``xarray.open_dataset(…, engine="cuzarr")``: it finds the group, and xarray decodes its variables."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import xarray
from xarray.backends import AbstractDataStore, BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint

from cuzarr._compute.sources import format_of, is_node, place_of
from cuzarr._docstrings import documented
from cuzarr._names import did_you_mean
from cuzarr._node.arguments import one_format
from cuzarr._node.group import Group
from cuzarr._node.open import open_group
from cuzarr.errors import CuzarrRuntimeWarning, GroupNotFoundError, UnsupportedError
from cuzarr.storage import Store, make_store_path
from cuzarr.xarray._group import GroupStore
from cuzarr.xarray._tree import Members, members_of

if TYPE_CHECKING:
    from typing import Unpack

    from xarray.coders import CFDatetimeCoder, CFTimedeltaCoder

    from cuzarr.typing import AccessMode, DatasetOptions, DataTreeOptions, StoreLike, ZarrFormat


def opened_group(
    source: Any, path: str | None, *, mode: Any, consolidated: bool | None, storage_options: Any, zarr_format: Any
) -> Group:
    """Opens the group of a data set, as xarray's own engine does: it looks for consolidated metadata at the root of the store."""
    options = {"mode": "a" if mode == "a-" else mode, "storage_options": storage_options, "zarr_format": zarr_format}
    path = (path or "").strip("/")
    if isinstance(source, Group) and consolidated is None:
        return _group_below(source, path)
    if is_node(source):
        options |= {"storage_options": None, "zarr_format": zarr_format or format_of(source)}
        source = place_of(source)
    elif isinstance(source, str | os.PathLike):
        source = os.path.expanduser(source)
    if not getattr(getattr(source, "store", source), "supports_consolidated_metadata", True):
        consolidated = False  # for example Icechunk's stores, which have their own copy
    if consolidated is False:
        return open_group(source, path=path, use_consolidated=False, **options)
    try:
        root = open_group(source, use_consolidated=consolidated, **options)
    except GroupNotFoundError:
        if not path or consolidated:
            raise
        root, path = open_group(source, path=path, **options), ""
    # A table of references has all metadata in one object anyway.
    is_table = str(root.store).startswith("reference::")
    if root.metadata.consolidated_metadata is None and not is_table:
        _warn_unconsolidated()
    return _group_below(root, path)


def _warn_unconsolidated() -> None:
    """Warns that metadata was read node by node, as xarray's own engine does. The warning points to the user's line."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("cuzarr", "xarray"):
        frame, level = frame.f_back, level + 1
    message = (
        # The text begins like the warning of xarray's own engine, because programs filter that warning.
        "Failed to open Zarr store with consolidated metadata: there is none, so non-consolidated metadata was read, which takes "
        "longer. Call cuzarr.consolidate_metadata(store) once, or pass consolidated=False"
    )
    warnings.warn(message, CuzarrRuntimeWarning, stacklevel=level)


def _format(zarr_format: Any, zarr_version: Any, synchronizer: Any) -> Any:
    """The Zarr format, from the argument ``zarr_format`` or its former name ``zarr_version``. Refuses the locks of zarr-python 2."""
    if synchronizer is not None:
        raise UnsupportedError(
            f"synchronizer is {type(synchronizer).__name__}, expected None: locks are those of zarr-python 2",
            hint="leave it out: writes to one object wait for each other within a process, and readers see whole objects",
        )
    return one_format(zarr_format, zarr_version)


def _with_chunks(source: Any, chunk_store: Any, storage_options: Any) -> Any:
    """Returns the store or path from which a group is opened: ``source``, or with ``chunk_store`` a store that reads chunks from there, and
    metadata from ``source``."""
    if chunk_store is None:
        return source
    if is_node(source):
        place = place_of(source)
    else:
        place = make_store_path(
            os.path.expanduser(source) if isinstance(source, str) else source, storage_options=storage_options
        )
    return make_store_path(chunk_store, path=place.path, storage_options=storage_options, metadata_store=place.store)


def _group_below(root: Group, path: str) -> Group:
    if not path:
        return root
    node = root.get(path)
    if not isinstance(node, Group):
        raise GroupNotFoundError(f"no group at '{path}' in {root.store_path}", hint=did_you_mean(path, root.group_keys()))
    return node


@documented(
    """
    filename_or_obj : path, URL, store, or Group
        The place of the group.
    >>> import cuzarr, xarray
    """,
)
class CuzarrBackendEntrypoint(BackendEntrypoint):
    """The engine behind ``xarray.open_dataset(…, engine="cuzarr")``.

    It accepts the arguments of ``engine="zarr"``: a path, a URL, a store, or a :class:`cuzarr.Group` (also zarr-python's), and the
    same options. The argument ``device`` exists only here. It is the device that data variables are read to, by default the group's, else
    the configured one. ``cache_members`` has no effect: members are looked up once, when the dataset is opened.

    Raises
    ------
    GroupNotFoundError
        There is no group at the place.

    >>> group = cuzarr.create_group({})
    >>> _ = group.create_array("t", data=[1.0, 2.0], dimension_names=("x",))
    >>> float(xarray.open_dataset(group, engine="cuzarr").t.sum())
    3.0
    """

    description: ClassVar[str] = "Open Zarr groups, reading data variables straight to a GPU where one is chosen"
    supports_groups: ClassVar[bool] = True

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: Group | StoreLike,
        *,
        mask_and_scale: bool | Mapping[str, bool] = True,
        decode_times: bool | CFDatetimeCoder | Mapping[str, bool | CFDatetimeCoder] | None = True,
        concat_characters: bool | Mapping[str, bool] = True,
        decode_coords: bool | Literal["coordinates", "all"] | None = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: bool | None = None,
        decode_timedelta: bool | CFTimedeltaCoder | Mapping[str, bool | CFTimedeltaCoder] | None = None,
        group: str | None = None,
        mode: AccessMode = "r",
        consolidated: bool | None = None,
        storage_options: dict[str, Any] | None = None,
        zarr_format: ZarrFormat | None = None,
        store: AbstractDataStore | None = None,
        engine: object = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        cache_members: bool = True,
        device: str | None = None,
        zarr_version: ZarrFormat | None = None,
        chunk_store: object = None,
        synchronizer: object = None,
        strict: bool = True,
    ) -> xarray.Dataset:
        """Open a group as a dataset. It is called by ``xarray.open_dataset(…, engine="cuzarr")``.

        Parameters
        ----------
        mask_and_scale, decode_times, concat_characters, decode_coords, use_cftime, decode_timedelta
            How variables are decoded, as in :func:`xarray.open_dataset`.
        drop_variables : str or iterable of str, optional
            Variables to leave out.
        group : str, optional
            The path of the group below ``filename_or_obj``.
        mode : {"r", "r+", "a", "w", "w-"}
            The mode in which the store is opened.
        consolidated : bool, optional
            Whether to read consolidated metadata; ``None`` uses it if it is there.
        storage_options : dict, optional
            Options for URLs of remote stores.
        zarr_format : {2, 3}, optional
            The format; by default detected.
        store : AbstractDataStore, optional
            The store to read, in place of ``filename_or_obj``.
        engine, cache_members
            Not used.
        use_zarr_fill_value_as_mask : bool, optional
            Whether elements with the array's fill value are missing; by default in format 2 only.
        device : str, optional
            The device that data variables are read to: ``"cpu"`` or ``"cuda:N"``. By default the device of the group's arrays.
        zarr_version : {2, 3}, optional
            Former name of ``zarr_format``.
        chunk_store : path, URL or store, optional
            The store of the chunks, if they are not beside the metadata. It is opened with the same ``storage_options``.
        synchronizer : None
            Must be ``None``. zarr-python 2 had locks here.
        strict : bool
            Whether an array that cannot be opened, such as one with an unknown codec, is an error. With ``False`` it is left out, and a
            ``CuzarrUserWarning`` names it and the reason.

        Returns
        -------
        xarray.Dataset
            The dataset. Elements are read when they are needed.

        Raises
        ------
        GroupNotFoundError
            There is no group at the place.
        InvalidArgumentError
            ``zarr_format`` and ``zarr_version`` differ.
        UnsupportedError
            A ``synchronizer`` is given.

        >>> group = cuzarr.create_group({})
        >>> _ = group.create_array("t", data=[1.0, 2.0], dimension_names=("x",))
        >>> dict(xarray.open_dataset(group, engine="cuzarr").sizes)
        {'x': 2}
        """
        if store is None:
            opened: Group | Members
            if isinstance(filename_or_obj, Members):
                opened = filename_or_obj
            else:
                opened = opened_group(
                    _with_chunks(filename_or_obj, chunk_store, storage_options),
                    group,
                    mode=mode,
                    consolidated=consolidated,
                    storage_options=None if chunk_store is not None else storage_options,
                    zarr_format=_format(zarr_format, zarr_version, synchronizer),
                )
            store = GroupStore(
                opened,
                device,
                drop_variables,
                use_zarr_fill_value_as_mask,
                mask=mask_and_scale,
                times=decode_times is not False,
                strict=strict,
            )
        return StoreBackendEntrypoint().open_dataset(
            store,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(  # type: ignore[override]
        self,
        filename_or_obj: Group | StoreLike,
        *,
        group: str | None = None,
        mode: AccessMode = "r",
        consolidated: bool | None = None,
        storage_options: dict[str, Any] | None = None,
        zarr_format: ZarrFormat | None = None,
        zarr_version: ZarrFormat | None = None,
        chunk_store: object = None,
        synchronizer: object = None,
        **kwargs: Unpack[DatasetOptions],
    ) -> dict[str, xarray.Dataset]:
        """Open a group and every group below it, each as a dataset. It is called by ``xarray.open_groups(…, engine="cuzarr")``.

        Each level of an image, if the levels lie in one group as in OME-Zarr and GeoZarr, is a dataset of its own, with the variable
        ``image``. The axes of an OME-Zarr image name the dimensions of its levels, and its scales give their coordinates.

        Parameters
        ----------
        group, mode, consolidated, storage_options, zarr_format, zarr_version, chunk_store, synchronizer
            As for :meth:`open_dataset`.
        **kwargs
            Further options of :meth:`open_dataset`, used for every group.

        Returns
        -------
        dict of str to xarray.Dataset
            The datasets by path: ``"/"``, ``"/maps"``.

        Raises
        ------
        GroupNotFoundError
            There is no group at the place.

        >>> group = cuzarr.create_group({})
        >>> _ = group.create_array("maps/t", data=[1.0, 2.0], dimension_names=("x",))
        >>> list(xarray.open_groups(group, engine="cuzarr"))
        ['/', '/maps']
        """
        root = opened_group(
            _with_chunks(filename_or_obj, chunk_store, storage_options),
            group,
            mode=mode,
            consolidated=consolidated,
            storage_options=None if chunk_store is not None else storage_options,
            zarr_format=_format(zarr_format, zarr_version, synchronizer),
        )
        given = kwargs.get("drop_variables")
        dropped = {given} if isinstance(given, str) else set(given or ())
        found = members_of(root, dropped, kwargs.get("strict", True))
        return {f"/{path}": self.open_dataset(members, **kwargs) for path, members in found.items()}  # type: ignore[arg-type]

    def open_datatree(  # type: ignore[override]
        self, filename_or_obj: Group | StoreLike, **kwargs: Unpack[DataTreeOptions]
    ) -> xarray.DataTree:
        """Open a group and every group below it as a tree. It is called by ``xarray.open_datatree(…, engine="cuzarr")``.

        Parameters
        ----------
        **kwargs
            Options of :meth:`open_groups_as_dict`.

        Raises
        ------
        GroupNotFoundError
            There is no group at the place.

        >>> group = cuzarr.create_group({})
        >>> _ = group.create_array("maps/t", data=[1.0, 2.0], dimension_names=("x",))
        >>> xarray.open_datatree(group, engine="cuzarr")["maps/t"].dims
        ('x',)
        """
        return xarray.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **kwargs))

    def guess_can_open(self, filename_or_obj: object) -> bool:
        """Whether xarray should use this engine if none is named: for stores and groups of cuzarr, but not for paths.

        Parameters
        ----------
        filename_or_obj : object
            The object to open.

        Returns
        -------
        bool
            ``False`` for paths and URLs: xarray's own engine reads the same files.

        >>> import cuzarr, cuzarr.xarray
        >>> engine = cuzarr.xarray.CuzarrBackendEntrypoint()
        >>> engine.guess_can_open(cuzarr.create_group({})), engine.guess_can_open("values.zarr")
        (True, False)
        """
        return isinstance(filename_or_obj, Store | Group) and not isinstance(filename_or_obj, str | os.PathLike)

"""``engine="cuzarr"`` for xarray: data variables are read to the configuration's device, coordinates stay on the host.

>>> import cuzarr, numpy as np, xarray
>>> store = cuzarr.storage.MemoryStore()
>>> group = cuzarr.create_group(store)
>>> _ = group.create_array("t", data=np.arange(3.0), dimension_names=("x",))
>>> _ = group.create_array("x", data=np.array([10, 20, 30]), dimension_names=("x",))
>>> float(xarray.open_dataset(store, engine="cuzarr").t.sel(x=20))
1.0

xarray builds indexes from coordinates, which it can do in host memory only. On a GPU xarray computes with CuPy's arrays, so
CuPy has to be installed there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import xarray
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint
from xarray.backends.zarr import FillValueCoder
from xarray.core import indexing

from cuzarr._api import open_group
from cuzarr._array import Array
from cuzarr._group import Group
from cuzarr._metadata import ArrayV2Metadata
from cuzarr.errors import MetadataValidationError
from cuzarr.storage import Store

_DIMENSIONS = "_ARRAY_DIMENSIONS"


class LazyArray(BackendArray):
    """An array of a store that xarray reads from when it needs elements."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape = array.shape
        # Strings of variable length are objects to xarray.
        self.dtype = np.dtype("O") if array.dtype.kind == "T" else array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        if any(isinstance(item, slice) and (item.step or 1) < 0 for item in key):
            key = tuple(_as_indices(item, extent) for item, extent in zip(key, self.shape, strict=True))
        elements = self.array.oindex[key] if any(isinstance(item, np.ndarray) for item in key) else self.array[key]
        return elements.astype(self.dtype) if elements.dtype.kind == "T" else elements


def _as_indices(item: Any, extent: int) -> Any:
    # xarray reverses by negative steps, which Zarr's selections have not.
    backwards = isinstance(item, slice) and (item.step or 1) < 0
    return np.arange(extent)[item] if backwards else item


class GroupStore(AbstractDataStore):  # type: ignore[misc]
    """The arrays directly in a group, as variables."""

    def __init__(self, group: Group, device: str | None = None, dropped: str | Iterable[str] | None = None) -> None:
        self.group = group
        self.device = device
        self.dropped = {dropped} if isinstance(dropped, str) else set(dropped or ())

    def load(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Variables and attributes; no element is read."""
        arrays = {name: array for name, array in self.group.arrays() if name not in self.dropped}
        on_host = _coordinates(arrays, self.group.attrs)
        variables = {
            name: _variable(array.with_device("cpu") if name in on_host else self._placed(array), name)
            for name, array in arrays.items()
        }
        return variables, self.group.attrs.asdict()

    def _placed(self, array: Array) -> Array:
        return array if self.device is None else array.with_device(self.device)


def _dimensions(array: Array, name: str) -> tuple[str, ...]:
    if isinstance(array.metadata, ArrayV2Metadata):
        names = array.metadata.attributes.get(_DIMENSIONS)
    else:
        names = array.metadata.dimension_names
    names = [] if array.ndim == 0 and names is None else names
    if names is None or len(names) != array.ndim or not all(isinstance(one, str) for one in names):
        raise MetadataValidationError(
            f"array '{name}' does not name its {array.ndim} dimensions, as xarray wants, got {names!r}",
            hint=f"create it with dimension_names, or drop it: drop_variables={name!r}",
        )
    return tuple(names)


def _coordinates(arrays: Mapping[str, Array], attributes: Mapping[str, Any]) -> set[str]:
    """Names of what is a coordinate: variables of a dimension's name, and those that a ``coordinates`` attribute lists."""
    listed = [str(attributes.get("coordinates", ""))]
    listed += [str(array.metadata.attributes.get("coordinates", "")) for array in arrays.values()]
    names = {name for text in listed for name in text.split()}
    for name, array in arrays.items():
        dimensions = array.metadata.attributes.get(_DIMENSIONS) or getattr(array.metadata, "dimension_names", None) or ()
        names |= {one for one in dimensions if one == name or one in arrays}
    return names


def _variable(array: Array, name: str) -> xarray.Variable:
    attributes = dict(array.metadata.attributes)
    dimensions = _dimensions(array, name)
    attributes.pop(_DIMENSIONS, None)
    if isinstance(array.metadata, ArrayV2Metadata):
        if array.fill_value is not None:
            attributes["_FillValue"] = array.fill_value
    elif "_FillValue" in attributes:
        attributes["_FillValue"] = FillValueCoder.decode(attributes["_FillValue"], array.dtype)
    encoding = {
        "chunks": array.chunks,
        "shards": array.shards,
        "preferred_chunks": dict(zip(dimensions, array.shards or array.chunks, strict=True)),
        "compressors": array.compressors,
        "filters": array.filters,
        "serializer": array.serializer,
    }
    return xarray.Variable(dimensions, indexing.LazilyIndexedArray(LazyArray(array)), attributes, encoding)


class CuzarrBackendEntrypoint(BackendEntrypoint):
    """What ``xarray.open_dataset(…, engine="cuzarr")`` calls.

    ``device`` says where data variables are read to (the configuration's, unless given), ``group`` names a group inside
    the store, ``storage_options`` serves URLs.
    """

    description: ClassVar[str] = "Open Zarr groups, reading data variables straight to a GPU where one is chosen"
    supports_groups: ClassVar[bool] = True

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: bool | None = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        device: str | None = None,
        storage_options: dict[str, Any] | None = None,
        zarr_format: Any = None,
    ) -> xarray.Dataset:
        opened = open_group(
            filename_or_obj, mode="r", path=group, storage_options=storage_options, zarr_format=zarr_format
        )
        return StoreBackendEntrypoint().open_dataset(
            GroupStore(opened, device, drop_variables),
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(self, filename_or_obj: Any, *, group: str | None = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """Every group below one, each as a dataset."""
        root = open_group(filename_or_obj, mode="r", path=group)
        paths = ["", *(path for path, node in root.members(max_depth=None) if isinstance(node, Group))]
        lead = f"{group}/" if group else ""
        return {f"/{path}": self.open_dataset(filename_or_obj, group=lead + path, **kwargs) for path in paths}

    def open_datatree(self, filename_or_obj: Any, **kwargs: Any) -> xarray.DataTree:  # type: ignore[override]
        """The group and all below it."""
        return xarray.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **kwargs))

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """No path is claimed unasked: xarray's own engine reads the same files."""
        return isinstance(filename_or_obj, Store) and not isinstance(filename_or_obj, str | os.PathLike)

"""The arrays of a group as variables of xarray."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray
from xarray.backends import AbstractDataStore
from xarray.backends.zarr import FillValueCoder
from xarray.coding.variables import CFMaskCoder
from xarray.core import indexing

from cuzarr._metadata.array import ArrayV2Metadata
from cuzarr._node.array import Array
from cuzarr._node.group import Group
from cuzarr._node.members import warn_left_out
from cuzarr.errors import MetadataValidationError
from cuzarr.xarray._reads import LazyArray, MaskedArray, Opening
from cuzarr.xarray._tree import ImageLevel, Members

_DIMENSIONS = "_ARRAY_DIMENSIONS"
# xarray stores a variable whose name is None under this name.
_NAMELESS = "__values__"


class GroupStore(AbstractDataStore):  # type: ignore[misc]
    """The arrays directly in a group, as xarray variables.

    Parameters
    ----------
    group, device, …
        Internal; use ``xarray.open_dataset(…, engine="cuzarr")``.

    Raises
    ------
    GroupNotFoundError
        There is no group.

    Examples
    --------
    >>> import cuzarr, xarray
    >>> dataset = xarray.open_dataset(cuzarr.create_group({}), engine="cuzarr")
    """

    def __init__(
        self,
        group: Group | Members,
        device: str | None = None,
        dropped: str | Iterable[str] | None = None,
        fill_is_mask: bool | None = None,
        mask: bool | Mapping[str, bool] = True,
        times: bool = True,
        strict: bool = True,
    ) -> None:
        members = group if isinstance(group, Members) else Members(group)
        self.group = members.group
        self.arrays: dict[str, Array] | None = members.arrays
        self.levels: dict[str, ImageLevel] = members.levels
        self.attributes: Mapping[str, Any] = self.group.attrs if members.attributes is None else members.attributes
        self.strict: bool = strict
        self.device = device
        self.mask: bool | Mapping[str, bool] = mask
        self.times: bool = times
        # As in xarray's engine: in format 2 the fill value marks missing elements, in format 3 an attribute does.
        self.fill_is_mask: bool = self.group.metadata.zarr_format == 2 if fill_is_mask is None else fill_is_mask
        self.dropped: set[str] = {dropped} if isinstance(dropped, str) else set(dropped or ())

    def load(self) -> tuple[Mapping[Any, Any], Mapping[str, Any]]:
        """The arrays of the group as xarray variables, and the attributes of the group. No element is read.

        Returns
        -------
        variables : dict of str to xarray.Variable
            The arrays of the group. xarray reads their elements when it needs them.
        attributes : dict
            The attributes of the group.

        Examples
        --------
        >>> import cuzarr, cuzarr.xarray
        >>> group = cuzarr.create_group({}, attributes={"title": "maps"})
        >>> _ = group.create_array("t", data=[1.0, 2.0], dimension_names=("x",))
        >>> variables, attributes = cuzarr.xarray.GroupStore(group).load()
        >>> variables["t"].dims, attributes
        (('x',), {'title': 'maps'})
        """
        arrays = self.arrays
        if arrays is None:
            arrays = dict(self.group._nodes(0, kind=Array, dropped=self.dropped, strict=self.strict))
        opening = Opening()
        on_host = _coordinates(arrays, self.attributes)
        variables = {}
        for name, array in arrays.items():
            try:
                variable = self._variable(array, name, opening, on_host=name in on_host)
            except MetadataValidationError as error:
                if self.strict:
                    raise
                warn_left_out(name, error, stacklevel=4)
                continue
            variables[None if name == _NAMELESS else name] = variable
        for name, level in self.levels.items():
            if name in variables:
                variables |= {one: own for one, own in level.coordinates(variables[name]).items() if one not in variables}
        return variables, _shown(self.attributes)

    def _variable(self, array: Array, name: str, opening: Opening, *, on_host: bool) -> xarray.Variable:
        level, named, fill_is_mask = self.levels.get(name), None, self.fill_is_mask
        if level is not None and _named_dimensions(array) is None:
            # xarray did not write this array, so elements with the fill value are not missing.
            named, fill_is_mask = level.names(array), False
        if not on_host and not _needs_numpy(array, times=self.times):
            placed = array if self.device is None else array.with_device(self.device)
            stored = stored_variable(placed, name, fill_is_mask, dimensions=named)
            is_masked = self.mask.get(name, True) if isinstance(self.mask, Mapping) else bool(self.mask)
            decoded = _masked(stored, placed, name) if is_masked else stored
            if decoded is not None:
                return decoded
        host = array.with_device("cpu")
        return stored_variable(host, name, fill_is_mask, opening, times=self.times, dimensions=named)


def _named_dimensions(array: Array) -> Any:
    """The names of an array's dimensions, from the metadata in which xarray looks for them. In format 2 that is an attribute, or netCDF's
    own metadata."""
    metadata = array.metadata
    if not isinstance(metadata, ArrayV2Metadata):
        return metadata.dimension_names
    if _DIMENSIONS in metadata.attributes:
        return metadata.attributes[_DIMENSIONS]
    for noted in (metadata.document.get("_NCZARR_ARRAY"), metadata.attributes.get("_nczarr_array")):
        paths = noted.get("dimrefs") if isinstance(noted, Mapping) else None
        if isinstance(paths, list):
            return [path.rpartition("/")[2] if isinstance(path, str) else path for path in paths]
    return None


def _dimensions(array: Array, name: str) -> tuple[str, ...]:
    names = _named_dimensions(array)
    names = [] if array.ndim == 0 and names is None else names
    if names is None or len(names) != array.ndim or not all(isinstance(one, str) for one in names):
        raise MetadataValidationError(
            f"array '{name}' does not name its {array.ndim} dimensions, as xarray wants, got {names!r}",
            hint=f"create it with dimension_names=, or leave it out with drop_variables={name!r}",
        )
    return tuple(names)


def _shown(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an array or group that xarray shows: all but netCDF's own metadata (``_NCZARR_ATTR``, ``_NCProperties``)."""
    return {name: value for name, value in attributes.items() if not name.lower().startswith("_nc")}


def _coordinates(arrays: Mapping[str, Array], attributes: Mapping[str, Any]) -> set[str]:
    """Names of the coordinates: variables named like a dimension, and names in a ``coordinates`` attribute."""
    listed = [str(attributes.get("coordinates", ""))]
    listed += [str(array.metadata.attributes.get("coordinates", "")) for array in arrays.values()]
    names = {name for text in listed for name in text.split()}
    for name, array in arrays.items():
        names |= {one for one in _named_dimensions(array) or () if one == name or one in arrays}
    return names


# Units that xarray decodes as durations.
_DURATIONS = {"days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"}


def _needs_numpy(array: Array, *, times: bool) -> bool:
    """Whether a variable must be read to the host, because only NumPy can hold or decode its elements."""
    attributes = array.metadata.attributes
    units = str(attributes.get("units", ""))
    is_time = units in _DURATIONS or _is_date(units) or "timedelta" in str(attributes.get("dtype", ""))
    return array.dtype.kind not in "biufc" or "_Unsigned" in attributes or (times and is_time)


def _is_date(units: str) -> bool:
    return re.search(r"\bsince\b", units) is not None


def _masked(variable: xarray.Variable, array: Array, name: str) -> xarray.Variable | None:
    """Masks the missing elements of a variable: those that equal a fill value become NaN. ``None`` if only NumPy can mask them."""
    listed = [np.ravel(variable.attrs[key]) for key in ("_FillValue", "missing_value") if key in variable.attrs]
    fills = {fill for values in listed for fill in values.tolist() if fill == fill}
    if not fills:
        return variable
    # xarray decides the type, attributes and encoding of the result.
    trial = xarray.Variable(
        variable.dims, np.empty((0,) * array.ndim, array.dtype), dict(variable.attrs), dict(variable.encoding)
    )
    decoded = CFMaskCoder().decode(trial, name)
    if len(fills) > 1 or decoded.dtype.kind != "f":
        return None
    data = MaskedArray(array, fills.pop(), decoded.dtype)
    encoding = {**decoded.encoding, "dtype": array.dtype}
    return xarray.Variable(variable.dims, indexing.LazilyIndexedArray(data), decoded.attrs, encoding)


def stored_variable(
    array: Array,
    name: str,
    fill_is_mask: bool,
    opening: Opening | None = None,
    *,
    times: bool = True,
    dimensions: tuple[str, ...] | None = None,
) -> xarray.Variable:
    """Makes an xarray variable from an array, without decoding its elements. ``opening`` is told which of its elements xarray will read
    soon.

    ``dimensions`` are the names of its dimensions, if the array stores none.
    """
    is_of_2 = array.metadata.zarr_format == 2
    attributes = _shown(array.metadata.attributes) if is_of_2 else dict(array.metadata.attributes)
    dimensions = dimensions or _dimensions(array, name)
    attributes.pop(_DIMENSIONS, None)
    metadata, blocks = array.metadata, array.metadata._grid.blocks(array.shape)
    is_sharded = getattr(metadata, "sharding_codec", None) is not None
    encoding: dict[str, Any] = {
        "chunks": metadata._inner_chunks if is_sharded else blocks,
        "shards": blocks if is_sharded else None,
        "preferred_chunks": dict(zip(dimensions, blocks, strict=True)),
        **_codecs(array),
    }
    data = LazyArray(array)
    if opening is not None:
        opening.expect(data, is_index=dimensions == (name,), is_time=times and _is_date(str(attributes.get("units", ""))))
    if data.dtype.kind == "T":
        encoding["dtype"] = data.dtype  # tells xarray to keep the type
    if fill_is_mask:
        if array.fill_value is not None:
            attributes["_FillValue"] = array.fill_value
    else:
        if array.metadata.zarr_format == 3:
            encoding["fill_value"] = array.fill_value
        if "_FillValue" in attributes:
            attributes["_FillValue"] = FillValueCoder.decode(attributes["_FillValue"], array.dtype)
    return xarray.Variable(dimensions, indexing.LazilyIndexedArray(data), attributes, encoding)


def _codecs(array: Array) -> dict[str, Any]:
    """The codecs of an array as zarr-python's objects, which ``to_zarr`` needs. Empty if zarr-python is not installed."""
    try:
        from zarr import AsyncArray
        from zarr.storage import MemoryStore, StorePath
    except ImportError:
        return {}
    try:
        twin = AsyncArray.from_dict(StorePath(MemoryStore()), array.metadata.to_dict())
    except (TypeError, ValueError, KeyError):
        return {}  # a codec or an element type that zarr-python does not know
    codecs = {"compressors": twin.compressors, "filters": twin.filters}
    return codecs if array.metadata.zarr_format == 2 else codecs | {"serializer": twin.serializer}

"""``engine="cuzarr"`` for xarray: data variables are read to the configured device, coordinates stay on the host.

>>> import cuzarr, numpy as np, xarray
>>> store = cuzarr.storage.MemoryStore()
>>> group = cuzarr.create_group(store)
>>> _ = group.create_array("t", data=np.arange(3.0), dimension_names=("x",))
>>> _ = group.create_array("x", data=np.array([10, 20, 30]), dimension_names=("x",))
>>> float(xarray.open_dataset(store, engine="cuzarr").t.sel(x=20))
1.0

xarray builds indexes from coordinates, which needs host memory, and decodes times and strings with NumPy. Variables of these
kinds stay on the host. On a GPU, xarray computes with CuPy's arrays, so CuPy must be installed. Elements that a fill value marks
as missing are masked on the device.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import xarray
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint
from xarray.backends.zarr import FillValueCoder
from xarray.coding.variables import CFMaskCoder
from xarray.core import indexing

from cuzarr import _names
from cuzarr._compute.sources import format_of, is_node, place_of
from cuzarr._docstrings import documented
from cuzarr._memory.box import is_integer
from cuzarr._metadata.array import ArrayV2Metadata
from cuzarr._names import did_you_mean
from cuzarr._node.arguments import check_shape, one_format
from cuzarr._node.array import Array
from cuzarr._node.group import Group
from cuzarr._node.many import read_many
from cuzarr._node.members import warn_left_out
from cuzarr._node.open import open_group
from cuzarr._runtime import run
from cuzarr.errors import CuzarrError, CuzarrRuntimeWarning, GroupNotFoundError, MetadataValidationError, UnsupportedError
from cuzarr.storage import Store, make_store_path

if TYPE_CHECKING:
    from cuzarr.typing import AccessMode, Scalar, StoreLike, ZarrFormat


__all__ = ["CuzarrBackendEntrypoint", "DatasetAccessor", "GroupStore", "LazyArray", "MaskedArray"]

_DIMENSIONS = "_ARRAY_DIMENSIONS"
# xarray stores a variable whose name is None under this name.
_NAMELESS = "__values__"


class LazyArray(BackendArray):
    """A stored array that xarray reads from when it needs elements.

    Parameters
    ----------
    array : Array
        The array to read from.

    Raises
    ------
    IndexError
        From indexing outside of the array.
    ShapeMismatchError
        From indexing an array that was resized since.

    Examples
    --------
    >>> import cuzarr, cuzarr.xarray
    >>> cuzarr.xarray.LazyArray(cuzarr.zeros((4,), store={})).shape
    (4,)
    """

    def __init__(self, array: Array) -> None:
        self._array = array  # not named `array`: xarray would read an attribute of that name
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = np.dtype("O") if array.dtype.kind == "T" and not _keeps_text(array) else array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Awaited form of reading elements. xarray calls it for ``load_async``.

        Parameters
        ----------
        key : xarray.core.indexing.ExplicitIndexer
            The selection, in xarray's form.

        Returns
        -------
        array
            The elements, on the array's device.

        Raises
        ------
        IndexError
            The selection lies outside of the array.

        Examples
        --------
        >>> import asyncio, cuzarr, cuzarr.xarray
        >>> from xarray.core.indexing import BasicIndexer
        >>> lazy = cuzarr.xarray.LazyArray(cuzarr.ones((4,), store={}))
        >>> asyncio.run(lazy.async_getitem(BasicIndexer((slice(0, 2),)))).tolist()
        [1.0, 1.0]
        """
        return await indexing.async_explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read_async)

    async def _read_async(self, key: tuple[Any, ...]) -> Any:
        return await _turn().read(self, key)

    def _read(self, key: tuple[Any, ...]) -> Any:
        check_shape(self._array, self.shape)
        if any(isinstance(item, slice) and (item.step or 1) < 0 for item in key):
            key = tuple(_as_indices(item, extent) for item, extent in zip(key, self.shape, strict=True))
        elements = self._array.oindex[key] if any(isinstance(item, np.ndarray) for item in key) else self._array[key]
        return self._finished(elements)

    def _is_box(self, key: tuple[Any, ...]) -> bool:
        """Whether these elements can be read by :func:`cuzarr.read_many`, together with others."""
        return (
            self._array.dtype.kind in "biufc"
            and self._array.dtype.isnative
            and all((item.step or 1) > 0 if isinstance(item, slice) else is_integer(item) for item in key)
        )

    def _finished(self, elements: Any) -> Any:
        """The elements of a read, in the form that xarray needs."""
        if isinstance(elements, str | bytes):  # from an array without dimensions
            return np.array(elements, self.dtype)
        return elements.astype(self.dtype, copy=False) if elements.dtype.kind == "T" else elements


class MaskedArray(LazyArray):
    """A stored array whose elements become floats, with NaN in place of one value. xarray does this with NumPy; this class on any device.

    Parameters
    ----------
    array : Array
        The array to read from.
    fill_value : scalar
        The value to replace by NaN.
    dtype : numpy.dtype
        The float type of the results.

    Raises
    ------
    IndexError
        From indexing outside of the array.

    Examples
    --------
    >>> import cuzarr, cuzarr.xarray, numpy as np
    >>> cuzarr.xarray.MaskedArray(cuzarr.zeros((4,), store={}), 0, np.dtype("float32")).dtype
    dtype('float32')
    """

    def __init__(self, array: Array, fill_value: Scalar, dtype: np.dtype[Any]) -> None:
        super().__init__(array)
        self._fill_value = fill_value
        self.dtype = dtype

    def _finished(self, elements: Any) -> Any:
        elements = super()._finished(elements).astype(self.dtype, copy=True)
        elements = np.asarray(elements) if isinstance(elements, np.generic) else elements
        listed = elements.reshape(1) if elements.ndim == 0 else elements
        listed[listed == self._fill_value] = np.nan
        return elements


class _Turn:
    """Reads that begin in one iteration of an event loop, such as those of ``load_async`` for all variables. One call reads them all."""

    def __init__(self) -> None:
        self.reads: list[tuple[LazyArray, tuple[Any, ...]]] = []
        self.waiting: list[asyncio.Future[Any]] = []
        self.task: asyncio.Task[None] | None = None

    async def read(self, lazy: LazyArray, key: tuple[Any, ...]) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.reads.append((lazy, key))
        self.waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            # When the last waiting caller is cancelled, the call is cancelled, too, and nothing is left running.
            if self.task is not None and all(one.done() for one in self.waiting):
                self.task.cancel()
                await asyncio.wait([self.task])
            raise

    def begin(self) -> None:
        if not all(future.done() for future in self.waiting):
            self.task = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        results = await run(_read_together, self.reads)
        for future, result in zip(self.waiting, results, strict=True):
            if not future.done():
                future.set_exception(result) if isinstance(result, Exception) else future.set_result(result)


# The current turn of each loop.
_turns: dict[asyncio.AbstractEventLoop, _Turn] = {}


def _turn() -> _Turn:
    """The current turn of the running loop. Its reads begin when all tasks that are ready now have added theirs."""
    loop = asyncio.get_running_loop()
    if loop not in _turns:
        _turns[loop] = _Turn()
        loop.call_soon(lambda: _turns.pop(loop).begin())
    return _turns[loop]


def _read_together(reads: list[tuple[LazyArray, tuple[Any, ...]]]) -> list[Any]:
    """The elements of several reads, or an exception for each one that failed. Boxes are read in one call."""
    together = {number: read for number, read in enumerate(reads) if read[0]._is_box(read[1])} if len(reads) > 1 else {}
    boxes: dict[int, Any] = {}
    with suppress(CuzarrError):  # each box is then read alone, so that only the failing one has an error
        for lazy, _ in together.values():
            check_shape(lazy._array, lazy.shape)
        boxes = dict(zip(together, read_many([(lazy._array, key) for lazy, key in together.values()]), strict=True))
    results: list[Any] = []
    for number, (lazy, key) in enumerate(reads):
        try:
            results.append(lazy._finished(boxes[number]) if number in boxes else lazy._read(key))
        except Exception as error:  # noqa: BLE001, whoever waits for it raises it
            results.append(error)
    return results


@xarray.register_dataset_accessor("cuzarr")  # type: ignore[no-untyped-call]
class DatasetAccessor:
    """Methods that cuzarr adds to datasets, as ``dataset.cuzarr``.

    Parameters
    ----------
    dataset : xarray.Dataset
        A dataset of any engine.

    Raises
    ------
    CuzarrError
        From loading variables that cannot be read.

    Examples
    --------
    >>> import cuzarr, numpy as np, xarray
    >>> group = cuzarr.create_group({})
    >>> for name in "tu":
    ...     _ = group.create_array(name, data=np.arange(3.0), dimension_names=("x",))
    >>> float(xarray.open_dataset(group, engine="cuzarr").cuzarr.load().t.sum())
    3.0
    """

    def __init__(self, dataset: xarray.Dataset) -> None:
        self._dataset = dataset

    def load(self) -> xarray.Dataset:
        """Load all variables in one call, while ``dataset.load()`` reads them one after the other. Works in notebooks, too.

        With an xarray before 2025.8, which has no ``load_async``, variables are read one after the other, too.

        Returns
        -------
        xarray.Dataset
            The dataset itself, with its variables in memory. Variables of dask are computed first.

        Raises
        ------
        CuzarrError
            The first failure of any variable.

        Examples
        --------
        >>> import cuzarr, xarray
        >>> dataset = xarray.open_dataset(cuzarr.create_group({}), engine="cuzarr")
        >>> dataset.cuzarr.load() is dataset
        True
        """
        if not hasattr(self._dataset, "load_async"):
            return self._dataset.load()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._dataset.load_async())
        # The caller's loop is blocked meanwhile, as by any call that is not awaited.
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, asyncio.run, self._dataset.load_async()).result()


def _keeps_text(array: Array) -> bool:
    """Whether xarray gets strings of variable length as such, not as objects. Only for format 3, to which newer versions can write them."""
    return array.metadata.zarr_format == 3 and _xarray_keeps_text(array.dtype)


@functools.cache
def _xarray_keeps_text(dtype: np.dtype[Any]) -> bool:
    try:
        from xarray.coding.variables import Numpy2StringDTypeCoder
    except ImportError:
        return False
    variable = xarray.Variable(("x",), np.array([""], dtype), encoding={"dtype": dtype})
    return bool(Numpy2StringDTypeCoder().decode(variable).dtype.kind == "T")


def _as_indices(item: Any, extent: int) -> Any:
    # xarray reverses with negative steps, which Zarr's selections do not have.
    backwards = isinstance(item, slice) and (item.step or 1) < 0
    return np.arange(extent)[item] if backwards else item


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
        group: Group,
        device: str | None = None,
        dropped: str | Iterable[str] | None = None,
        fill_is_mask: bool | None = None,
        mask: bool | Mapping[str, bool] = True,
        times: bool = True,
        strict: bool = True,
    ) -> None:
        self.group = group
        self.strict: bool = strict
        self.device = device
        self.mask: bool | Mapping[str, bool] = mask
        self.times: bool = times
        # As in xarray's engine: in format 2 the fill value marks missing elements, in format 3 an attribute does.
        self.fill_is_mask: bool = group.metadata.zarr_format == 2 if fill_is_mask is None else fill_is_mask
        self.dropped: set[str] = {dropped} if isinstance(dropped, str) else set(dropped or ())

    def load(self) -> tuple[Mapping[Any, Any], Mapping[str, Any]]:
        """The variables and attributes of the group. No element is read.

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
        arrays = dict(self.group._nodes(0, kind=Array, dropped=self.dropped, strict=self.strict))
        on_host = _coordinates(arrays, self.group.attrs)
        variables = {}
        for name, array in arrays.items():
            try:
                variable = self._variable(array, name, on_host=name in on_host)
            except MetadataValidationError as error:
                if self.strict:
                    raise
                warn_left_out(name, error, stacklevel=4)
                continue
            variables[None if name == _NAMELESS else name] = variable
        return variables, _shown(self.group.attrs)

    def _variable(self, array: Array, name: str, *, on_host: bool) -> xarray.Variable:
        if not on_host and not _needs_numpy(array, times=self.times):
            placed = array if self.device is None else array.with_device(self.device)
            stored = _variable(placed, name, self.fill_is_mask)
            is_masked = self.mask.get(name, True) if isinstance(self.mask, Mapping) else bool(self.mask)
            decoded = _masked(stored, placed, name) if is_masked else stored
            if decoded is not None:
                return decoded
        return _variable(array.with_device("cpu"), name, self.fill_is_mask)


def _named_dimensions(array: Array) -> Any:
    """The names of an array's dimensions, where xarray looks for them. In format 2 that is an attribute, or netCDF's own metadata."""
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
    """The attributes that xarray shows: all but netCDF's own metadata (``_NCZARR_ATTR``, ``_NCProperties``)."""
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
    is_time = units in _DURATIONS or re.search(r"\bsince\b", units) is not None or "timedelta" in str(attributes.get("dtype", ""))
    return array.dtype.kind not in "biufc" or "_Unsigned" in attributes or (times and is_time)


def _masked(variable: xarray.Variable, array: Array, name: str) -> xarray.Variable | None:
    """The variable with missing elements masked, if a fill value marks them. ``None`` if only NumPy can mask them."""
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


def _variable(array: Array, name: str, fill_is_mask: bool) -> xarray.Variable:
    is_of_2 = array.metadata.zarr_format == 2
    attributes = _shown(array.metadata.attributes) if is_of_2 else dict(array.metadata.attributes)
    dimensions = _dimensions(array, name)
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
    """The codecs as zarr-python's objects, which ``to_zarr`` needs. Empty if zarr-python is not installed."""
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


def _opened_group(
    source: Any, path: str | None, *, mode: Any, consolidated: bool | None, storage_options: Any, zarr_format: Any
) -> Group:
    """The group to show, found as by xarray's own engine: consolidated metadata is looked for at the root of the store."""
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
        consolidated = False  # such as Icechunk's stores, which have their own copy
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
        # The beginning is that of the warning of xarray's own engine, which programs filter.
        "Failed to open Zarr store with consolidated metadata: there is none, so non-consolidated metadata was read, which takes "
        "longer. Call cuzarr.consolidate_metadata(store) once, or pass consolidated=False"
    )
    warnings.warn(message, CuzarrRuntimeWarning, stacklevel=level)


def _format(zarr_format: Any, zarr_version: Any, synchronizer: Any) -> Any:
    """The format, given by its current or its former name. Refuses the locks of zarr-python 2."""
    if synchronizer is not None:
        raise UnsupportedError(
            f"synchronizer is {type(synchronizer).__name__}, expected None: locks are those of zarr-python 2",
            hint="leave it out: writes to one object wait for each other within a process, and readers see whole objects",
        )
    return one_format(zarr_format, zarr_version)


def _with_chunks(source: Any, chunk_store: Any, storage_options: Any) -> Any:
    """The place of a group, with its chunks in another store if ``chunk_store`` is given."""
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
        Where the group is.
    >>> import cuzarr, xarray
    """,
)
class CuzarrBackendEntrypoint(BackendEntrypoint):
    """The engine behind ``xarray.open_dataset(…, engine="cuzarr")``.

    It accepts the arguments of ``engine="zarr"``: a path, a URL, a store, or a :class:`cuzarr.Group` (also zarr-python's), and the
    same options. Only cuzarr has ``device``, the device that data variables are read to; by default the group's, else the configured
    one. ``cache_members`` has no effect: members are looked up once, when the dataset is opened.

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
        decode_times: Any = True,
        concat_characters: bool | Mapping[str, bool] = True,
        decode_coords: bool | Literal["coordinates", "all"] | None = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: bool | None = None,
        decode_timedelta: Any = None,
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
            Where data variables are read to: ``"cpu"`` or ``"cuda:N"``. By default the device of the group's arrays.
        zarr_version : {2, 3}, optional
            Former name of ``zarr_format``.
        chunk_store : path, URL or store, optional
            Where chunks are, if not beside the metadata. It is opened with the same ``storage_options``.
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
            No group is there.
        InvalidArgumentError
            ``zarr_format`` and ``zarr_version`` differ.
        UnsupportedError
            There is a ``synchronizer``.

        >>> group = cuzarr.create_group({})
        >>> _ = group.create_array("t", data=[1.0, 2.0], dimension_names=("x",))
        >>> dict(xarray.open_dataset(group, engine="cuzarr").sizes)
        {'x': 2}
        """
        if store is None:
            opened = _opened_group(
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
        **kwargs: Any,
    ) -> dict[str, xarray.Dataset]:
        """Open a group and every group below it, each as a dataset. It is called by ``xarray.open_groups(…, engine="cuzarr")``.

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
            No group is there.

        >>> group = cuzarr.create_group({})
        >>> _ = group.create_array("maps/t", data=[1.0, 2.0], dimension_names=("x",))
        >>> list(xarray.open_groups(group, engine="cuzarr"))
        ['/', '/maps']
        """
        root = _opened_group(
            _with_chunks(filename_or_obj, chunk_store, storage_options),
            group,
            mode=mode,
            consolidated=consolidated,
            storage_options=None if chunk_store is not None else storage_options,
            zarr_format=_format(zarr_format, zarr_version, synchronizer),
        )
        members = {f"/{path}": node for path, node in root._nodes(None, kind=Group)}
        return {path: self.open_dataset(node, **kwargs) for path, node in ({"/": root} | members).items()}

    def open_datatree(self, filename_or_obj: Group | StoreLike, **kwargs: Any) -> xarray.DataTree:  # type: ignore[override]
        """Open a group and every group below it as a tree. It is called by ``xarray.open_datatree(…, engine="cuzarr")``.

        Parameters
        ----------
        **kwargs
            Options of :meth:`open_groups_as_dict`.

        Raises
        ------
        GroupNotFoundError
            No group is there.

        >>> group = cuzarr.create_group({})
        >>> _ = group.create_array("maps/t", data=[1.0, 2.0], dimension_names=("x",))
        >>> xarray.open_datatree(group, engine="cuzarr")["maps/t"].dims
        ('x',)
        """
        return xarray.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **kwargs))

    def guess_can_open(self, filename_or_obj: Any) -> bool:
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


_names.list_public(globals())

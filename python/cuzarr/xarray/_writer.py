"""Writes data sets to groups: xarray encodes and checks the variables, and one call writes all elements in memory.

xarray writes to a ``ZarrStore`` through an ``ArrayWriter``. Here the store uses a group of cuzarr. Arrays that xarray creates or resizes
wait in the writer together with their elements, until one batch creates them and one call writes them. The elements stay where they are:
xarray computes encodings with the library of each variable's array.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import xarray
from xarray.backends import ZarrStore
from xarray.backends.common import ArrayWriter
from xarray.namedarray.pycompat import is_chunked_array

from cuzarr._config import config
from cuzarr._config.keys import DEFAULT_MEMORY_LIMIT_BYTES
from cuzarr._memory.device_array import device_array
from cuzarr._memory.foreign import is_on_device
from cuzarr._metadata.array import AnyArrayMetadata
from cuzarr._metadata.create import new_metadata
from cuzarr._metadata.group import GroupMetadata
from cuzarr._node.array import Array
from cuzarr._node.group import Group
from cuzarr._node.many import write_many
from cuzarr._node.node import Attributes
from cuzarr._node.open import consolidate_metadata
from cuzarr._node.resize import resize_many
from cuzarr._text import printable
from cuzarr.errors import ArgumentTypeError, CuzarrError, InvalidArgumentError, UnsupportedError
from cuzarr.storage import make_store_path
from cuzarr.storage.zip import finishing
from cuzarr.xarray._engine import opened_group
from cuzarr.xarray._group import stored_variable
from cuzarr.xarray._reads import Opening

if TYPE_CHECKING:
    from dask.delayed import Delayed

    from cuzarr.typing import StoreLike, ZarrFormat

Mode = Literal["w", "w-", "a", "a-", "r+"]
Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"]

# The compressor that zarr-python's groups choose for format 2. Its function `create_array` chooses another one.
_COMPRESSOR_OF_GROUPS = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}


class _NewArray:
    """An array that xarray asked for: it is created later, together with others, before its elements are written."""

    array: Array

    def __init__(self, name: str, metadata: AnyArrayMetadata, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.metadata = metadata
        self.settings = settings

    @property
    def attrs(self) -> _NewArray:
        """This object itself in place of an attributes object: xarray sets attributes of a new array by ``array.attrs.put(…)``."""
        return self

    def put(self, attributes: Mapping[str, Any]) -> None:
        with _naming(self.name):
            self.metadata = self.metadata.update_attributes(attributes)


class _StoredArray:
    """An existing array that xarray writes to: its new shape is set later, before its elements are written."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape = array.shape

    def resize(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


class _Target:
    """A stand-in for zarr-python's group inside xarray's own Zarr store, over a group of cuzarr. Creations and changes of shape wait here,
    and are done in one batch."""

    def __init__(self, group: Group, *, is_new: bool) -> None:
        self.group = group
        self.is_new = is_new
        self.read_only: bool = group.read_only
        self.path: str = group.path
        self.metadata: GroupMetadata = group.metadata
        self.synchronizer = None  # versions of xarray before 2026 read this attribute
        self._new: list[_NewArray] = []
        self._opened: list[_StoredArray] = []

    @property
    def attrs(self) -> Attributes:
        return self.group.attrs

    def members(self) -> list[tuple[str, Array | Group]]:
        return [] if self.is_new else list(self.group.members())

    def create(self, name: str, *, config: Mapping[str, Any], overwrite: bool, **options: Any) -> _NewArray:
        """Registers an array to be created; xarray calls this with the arguments of zarr-python's ``Group.create``. With ``overwrite``, the
        group is already empty."""
        zarr_format = self.metadata.zarr_format
        defaults: dict[str, Any] = {
            **dict.fromkeys(("chunks", "filters", "serializer"), "auto"),
            **dict.fromkeys(("shards", "order", "attributes", "chunk_key_encoding", "dimension_names")),
            "compressors": "auto" if zarr_format == 3 else _COMPRESSOR_OF_GROUPS,
        }
        with _naming(name):
            metadata = new_metadata(zarr_format=zarr_format, **defaults | options)
        self._new.append(_NewArray(name, metadata, config))
        return self._new[-1]

    def open(self, array: Array, settings: Mapping[str, Any]) -> _StoredArray:
        self._opened.append(_StoredArray(array.with_config(settings)))
        return self._opened[-1]

    def settle(self) -> None:
        """Creates the arrays that xarray asked for so far, and gives existing arrays the new shapes that xarray asked for."""
        grown = [(stored.array, stored.shape) for stored in self._opened if stored.shape != stored.array.shape]
        resize_many(grown, expects_known_shapes=True)  # xarray chose the region to write by the shapes that it knows
        created = dict(self.group.create_hierarchy({new.name: new.metadata for new in self._new}))
        for new in self._new:
            new.array = created[new.name].with_config(new.settings)  # type: ignore[union-attr]  # of an array's metadata
        self._new, self._opened = [], []


class _Writes:
    """The elements that xarray writes, collected so that one call stores them. Elements in memory wait, up to the memory limit, for one
    call. dask's blocks are written one by one."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self._of_dask: Any = ArrayWriter()  # type: ignore[no-untyped-call]
        self._limit_bytes = config.get("memory_limit") or DEFAULT_MEMORY_LIMIT_BYTES
        self._waiting: list[tuple[_NewArray | _StoredArray, Any, Any]] = []
        self._waiting_bytes = 0

    def add(self, source: Any, target: _NewArray | _StoredArray, region: tuple[slice, ...] | None = None) -> None:
        if is_chunked_array(source):
            self._of_dask.add(source, target, region)
            return
        self._waiting.append((target, region or ..., source))
        self._waiting_bytes += source.size * source.dtype.itemsize
        if self._waiting_bytes > self._limit_bytes:
            self._write()

    def _write(self) -> None:
        """Creates the arrays that xarray asked for, and writes all elements that were collected, in one call."""
        self._target.settle()
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        write_many((target.array, region, source) for target, region, source in waiting)

    def finish(self, **options: Any) -> Any:
        """Writes all collected elements, and then dask's blocks, by ``ArrayWriter.sync`` with these options."""
        self._write()
        self._of_dask.targets = [target.array for target in self._of_dask.targets]
        return self._of_dask.sync(**options)


class _WritableStore(ZarrStore):
    """xarray's store for Zarr, over a group of cuzarr."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._opening = Opening()

    def array_keys(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.arrays())

    def arrays(self) -> tuple[tuple[str, Any], ...]:
        return tuple((name, node) for name, node in self.members.items() if isinstance(node, Array))

    def open_store_variable(self, name: str) -> xarray.Variable:
        array: Any = self.members[name]
        return stored_variable(array.with_device("cpu"), name, self._use_zarr_fill_value_as_mask, self._opening)

    def _open_existing_array(self, *, name: str) -> Any:
        settings = {} if self._write_empty is None else {"write_empty_chunks": self._write_empty}
        return self.zarr_group.open(self.members[name], settings)


def write_dataset(
    dataset: xarray.Dataset,
    store: StoreLike | None,
    *,
    mode: Mode | None,
    group: str | None,
    encoding: Mapping[str, Mapping[str, object]] | None,
    compute: bool,
    consolidated: bool | None,
    append_dim: Hashable | None,
    region: Region | None,
    storage_options: dict[str, Any] | None,
    zarr_format: ZarrFormat | None,
    safe_chunks: bool,
    align_chunks: bool,
    write_empty_chunks: bool | None,
    chunkmanager_store_kwargs: Mapping[str, object] | None,
) -> Group | Delayed:
    """Writes a data set; see :meth:`DatasetAccessor.to_zarr`."""
    if "align_chunks" not in signature(ZarrStore).parameters:
        raise UnsupportedError(f"xarray is {xarray.__version__}, expected 2025.6.1 or newer", hint="pip install --upgrade xarray")
    _check_names(dataset)
    for variable in dataset.variables.values():
        if not variable.size:
            variable.load()  # blocks of dask without elements would make chunks without elements
    mode = _chosen_mode(mode, append_dim, region)
    place = make_store_path(store, storage_options=storage_options, mode="r+" if mode == "r+" else "a")
    with finishing(place.store, store):
        opened = opened_group(
            place,
            group,
            mode=mode,
            consolidated=consolidated if mode == "r+" else False,
            storage_options=None,
            zarr_format=zarr_format,
        )
        target = _Target(opened, is_new=mode in ("w", "w-"))
        zarr_store = _WritableStore(
            target,
            mode,
            append_dim=append_dim,
            write_region=dict(region) if isinstance(region, Mapping) else region,
            safe_chunks=safe_chunks,
            write_empty=write_empty_chunks,
            use_zarr_fill_value_as_mask=opened.metadata.zarr_format == 2,
            align_chunks=align_chunks,
        )
        dataset = _on_devices(zarr_store._validate_and_autodetect_region(dataset))
        zarr_store._validate_encoding(encoding)
        writes = _Writes(target)
        with config.local({"array_type": "device"}):  # for results computed from elements on a device
            dataset.dump_to_store(zarr_store, writer=writes, encoding=encoding)
        stored = writes.finish(compute=compute, chunkmanager_store_kwargs=chunkmanager_store_kwargs)
        if mode != "r+" and consolidated is not False and getattr(store, "supports_consolidated_metadata", True):
            consolidate_metadata(place, zarr_format=opened.metadata.zarr_format)
    if compute:
        return opened
    from dask.delayed import delayed

    return delayed(_when_stored)(stored, opened)  # type: ignore[no-any-return]


def _on_devices(dataset: xarray.Dataset) -> xarray.Dataset:
    """Converts a data set's arrays on GPUs to arrays of cuzarr, which share their memory. xarray's encoding mixes arrays with NumPy's
    scalars, which CuPy refuses.
    """
    result = dataset.copy()
    for variable in result.variables.values():
        elements = variable._data
        if not is_chunked_array(elements) and is_on_device(elements):
            variable.data = device_array(elements)
    return result


def _when_stored(_: object, group: Group) -> Group:
    return group


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """A context manager that adds the name of a variable to errors."""
    try:
        yield
    except CuzarrError as error:
        error.trail = (f"variable '{printable(name)}'", *error.trail)
        raise


def _check_names(dataset: xarray.Dataset) -> None:
    for name in dataset.variables:
        if name is not None and (not isinstance(name, str) or not name):
            raise ArgumentTypeError(f"a variable is named {name!r}, expected a string or None")


def _chosen_mode(mode: Mode | None, append_dim: Hashable | None, region: Region | None) -> Mode:
    if mode is None:
        mode = "a" if append_dim is not None else "r+" if region is not None else "w-"
    if mode not in ("w", "w-", "a", "a-", "r+"):
        raise InvalidArgumentError(f"mode is {mode!r}, expected 'w', 'w-', 'a', 'a-' or 'r+'")
    if append_dim is not None and mode not in ("a", "a-"):
        raise InvalidArgumentError(f"mode is {mode!r}, and append_dim needs 'a' or 'a-'")
    if region is not None and mode not in ("a", "a-", "r+"):
        raise InvalidArgumentError(f"mode is {mode!r}, and region needs 'r+', 'a' or 'a-'")
    return mode

"""Groups."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from cuzarr import _create
from cuzarr._array import Array
from cuzarr._array_config import ArrayConfigLike
from cuzarr._attributes import Attributes
from cuzarr._chunks import parse_shape
from cuzarr._config import config as global_config
from cuzarr._dtypes import parse_dtype
from cuzarr._info import Info
from cuzarr._metadata import AnyArrayMetadata, ConsolidatedMetadata, GroupMetadata, as_node
from cuzarr._names import did_you_mean
from cuzarr._nodes import (
    AnyNodeMetadata,
    array_not_found,
    check_zarr_format,
    group_not_found,
    iterate_members,
    read_group,
    read_node,
    write_new,
)
from cuzarr._tree import Tree, draw_tree
from cuzarr.errors import (
    ContainsArrayError,
    ContainsGroupError,
    InvalidArgumentError,
    UnsupportedError,
)
from cuzarr.storage import LocalStore, MemoryStore, Store, StorePath, make_store_path, normalize_path

if TYPE_CHECKING:
    from cuzarr._async_nodes import AsyncGroup

DefaultT = TypeVar("DefaultT")


class Group:
    """A group of a store: arrays and groups by their names.

    Parameters
    ----------
    store_path : StorePath
        Where it is.
    metadata : GroupMetadata
        Its attributes, format and, where there is any, consolidated metadata.
    device : str, optional
        Where its arrays are read to; the configuration's ``device`` unless given.

    Examples
    --------
    >>> import cuzarr
    >>> group = cuzarr.create_group({})
    >>> array = group.create_array("a/b", shape=(4,), dtype="uint8")
    >>> sorted(group), [name for name, _ in group.members(max_depth=None)]
    (['a'], ['a', 'a/b'])
    >>> group["a/b"].shape
    (4,)
    """

    def __init__(self, store_path: StorePath, metadata: GroupMetadata, device: str | None = None) -> None:
        self._store_path = store_path
        self._metadata = metadata
        self._device = None if device is None else str(device)

    @classmethod
    def from_store(
        cls,
        store: Any,
        *,
        attributes: dict[str, Any] | None = None,
        zarr_format: Any = 3,
        overwrite: bool = False,
    ) -> Self:
        """Creates a group at a store or path.

        Raises
        ------
        ContainsArrayError, ContainsGroupError
            A node is there, and ``overwrite`` is off.
        """
        place = make_store_path(store)
        metadata = GroupMetadata(dict(attributes or {}), zarr_format)
        write_new(place, metadata, overwrite=overwrite)
        return cls(place, metadata)

    @classmethod
    def open(cls, store: Any, zarr_format: Any = 3) -> Self:
        """Opens the group at a store or path.

        Raises
        ------
        GroupNotFoundError
            There is none.
        """
        place = make_store_path(store)
        return cls(place, read_group(place, check_zarr_format(zarr_format)))

    # ------------------------------------------------------------------------------------------------- what it is

    @property
    def store(self) -> Store:
        """The store it is in."""
        return self._store_path.store

    @property
    def store_path(self) -> StorePath:
        """The store and the path in it."""
        return self._store_path

    @property
    def path(self) -> str:
        """The path in the store, without a leading ``/``."""
        return self._store_path.path

    @property
    def name(self) -> str:
        """The path with a leading ``/``."""
        return f"/{self.path}"

    @property
    def basename(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]

    @property
    def metadata(self) -> GroupMetadata:
        """The metadata document, as a value."""
        return self._metadata

    @property
    def device(self) -> str:
        """Where its arrays are read to: what was given when it was opened, else what the configuration says now."""
        return global_config.get("device") if self._device is None else self._device  # type: ignore[no-any-return]

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self._store_path.read_only

    @property
    def synchronizer(self) -> None:
        """Nothing; kept for zarr-python's sake."""
        return None

    @property
    def attrs(self) -> Attributes:
        """The attributes; changes are written."""
        return Attributes(self)

    @property
    def info(self) -> Info:
        """What the group is, at a glance; members are counted where that needs no listing."""
        consolidated = self._metadata.consolidated_metadata
        return self._info(None if consolidated is None else list(consolidated.flattened_metadata.values()))

    def info_complete(self) -> Info:
        """The same with every member counted, for which the store is listed."""
        return self._info([metadata for _, metadata in self._walk(None)])

    def _info(self, members: list[AnyNodeMetadata] | None) -> Info:
        groups = None if members is None else sum(isinstance(member, GroupMetadata) for member in members)
        return Info.of(
            [
                ("Name", self.path),
                ("Type", type(self).__name__),
                ("Zarr format", self._metadata.zarr_format),
                ("Read-only", self.read_only),
                ("Store type", type(getattr(self.store, "wrapped", self.store)).__name__),
                ("No. members", None if members is None else len(members)),
                ("No. arrays", None if members is None or groups is None else len(members) - groups),
                ("No. groups", groups),
            ]
        )

    # ---------------------------------------------------------------------------------------------------- members

    def _node(self, path: str, metadata: AnyNodeMetadata) -> Array | Group:
        place = self._store_path / path
        if isinstance(metadata, GroupMetadata):
            return Group(place, metadata, self._device)
        return Array(place, metadata, device=self._device)

    def _find(self, path: str) -> AnyNodeMetadata | None:
        consolidated = self._metadata.consolidated_metadata
        if consolidated is None:
            return read_node(self._store_path / path, self._metadata.zarr_format)
        name = normalize_path(path)
        return consolidated.below(name) if name in consolidated.flattened_metadata else None

    def __getitem__(self, path: str) -> Array | Group:
        """The array or group at ``path``, below this one.

        Raises
        ------
        KeyError
            Nothing is there.
        """
        metadata = self._find(path)
        if metadata is None:
            error = KeyError(path)
            if hint := did_you_mean(normalize_path(path), self._names_beside(normalize_path(path))):
                error.add_note(f"hint: {hint}")
            raise error
        return self._node(path, metadata)

    def _names_beside(self, path: str) -> list[str]:
        """What is in the same group as a path, where a listing is at hand: objects in other stores cost a request."""
        consolidated = self._metadata.consolidated_metadata
        if consolidated is not None:
            return list(consolidated.flattened_metadata)
        if not isinstance(self.store, LocalStore | MemoryStore):
            return []
        parent, slash, _ = path.rpartition("/")
        return [parent + slash + name for name in self.store.list_dir((self._store_path / parent).path)]

    def get(self, path: str, default: DefaultT | None = None) -> Array | Group | DefaultT | None:
        """The array or group at ``path``, or ``default``."""
        metadata = self._find(path)
        return default if metadata is None else self._node(path, metadata)

    def get_array(self, path: str) -> Array:
        """The array at ``path``.

        Raises
        ------
        ArrayNotFoundError, ContainsGroupError
            Nothing is there, or a group is.
        """
        node = self.get(path)
        if node is None:
            raise array_not_found(self._store_path / path)
        if isinstance(node, Group):
            raise ContainsGroupError(f"a group is in store {self.store} at path '{node.path}'")
        return node

    def get_group(self, path: str) -> Group:
        """The group at ``path``.

        Raises
        ------
        GroupNotFoundError, ContainsArrayError
            Nothing is there, or an array is.
        """
        node = self.get(path)
        if node is None:
            raise group_not_found(self._store_path / path)
        if isinstance(node, Array):
            raise ContainsArrayError(f"an array is in store {self.store} at path '{node.path}'")
        return node

    def __setitem__(self, key: str, value: Any) -> None:
        """Stores an array under a name, whatever was there."""
        from cuzarr._api import save_array

        save_array(self._store_path / key, value, zarr_format=self._metadata.zarr_format, overwrite=True)

    def __delitem__(self, key: str) -> None:
        """Deletes the array or group at a path, with all that is below it."""
        self.store.check_writable()
        path = (self._store_path / key).path
        if path == self.path:
            raise InvalidArgumentError("a group does not delete itself")
        self.store.delete_dir(path)
        consolidated = self._metadata.consolidated_metadata
        if consolidated is not None:
            self._save(consolidated=consolidated.without(normalize_path(key)))

    def __contains__(self, member: str) -> bool:
        return self._find(member) is not None

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __len__(self) -> int:
        return self.nmembers()

    def _walk(self, max_depth: int | None, prefix: str = "") -> Iterator[tuple[str, AnyNodeMetadata]]:
        """Paths and metadata of what is below, each group before its members."""
        consolidated = self._metadata.consolidated_metadata
        if consolidated is None:
            found = iterate_members(self._store_path, self._metadata.zarr_format)
        else:
            found = iter(sorted(consolidated.metadata.items()))
        for name, metadata in found:
            path = f"{prefix}{name}"
            yield path, metadata
            if isinstance(metadata, GroupMetadata) and (max_depth is None or max_depth > 0):
                inside = Group(self._store_path / name, metadata, self._device)
                yield from inside._walk(None if max_depth is None else max_depth - 1, f"{path}/")

    def members(
        self, max_depth: int | None = 0, *, use_consolidated_for_children: bool = True
    ) -> tuple[tuple[str, Array | Group], ...]:
        """Paths and nodes below this group: directly below it, deeper by ``max_depth``, or all (``None``)."""
        if max_depth is not None and max_depth < 0:
            raise InvalidArgumentError(f"max_depth is {max_depth}, expected at least 0 or None")
        return tuple((path, self._node(path, metadata)) for path, metadata in self._walk(max_depth))

    def nmembers(self, max_depth: int | None = 0) -> int:
        """Number of nodes below this group."""
        if max_depth is not None and max_depth < 0:
            raise InvalidArgumentError(f"max_depth is {max_depth}, expected at least 0 or None")
        return sum(1 for _ in self._walk(max_depth))

    def keys(self) -> Generator[str]:
        """Names of the arrays and groups directly below."""
        yield from (name for name, _ in self._walk(0))

    def arrays(self) -> Generator[tuple[str, Array], None]:
        """Names and arrays directly below."""
        for name, node in self.members():
            if isinstance(node, Array):
                yield name, node

    def array_keys(self) -> Generator[str, None]:
        """Names of the arrays directly below."""
        yield from (name for name, _ in self.arrays())

    def array_values(self) -> Generator[Array, None]:
        """The arrays directly below."""
        yield from (array for _, array in self.arrays())

    def groups(self) -> Generator[tuple[str, Group], None]:
        """Names and groups directly below."""
        for name, node in self.members():
            if isinstance(node, Group):
                yield name, node

    def group_keys(self) -> Generator[str, None]:
        """Names of the groups directly below."""
        yield from (name for name, _ in self.groups())

    def group_values(self) -> Generator[Group, None]:
        """The groups directly below."""
        yield from (group for _, group in self.groups())

    def tree(
        self,
        expand: bool | None = None,
        level: int | None = None,
        *,
        max_nodes: int = 500,
        plain: bool = False,
    ) -> Tree:
        """The hierarchy as text: ``level`` levels deep, at most ``max_nodes`` nodes, ``plain`` without bold names."""
        if expand is not None:
            raise UnsupportedError("tree has no expand")
        found: list[tuple[str, AnyNodeMetadata]] = []
        truncated = ""
        for item in self._walk(level):
            if len(found) == max_nodes:
                truncated = f"Only {max_nodes} nodes are shown (max_nodes={max_nodes})\n"
                break
            found.append(item)
        described = [
            (path, None if isinstance(node, GroupMetadata) else f"{node.shape} {node.data_type.native}")
            for path, node in sorted(found, key=lambda item: item[0])
        ]
        return draw_tree(self.name, described, truncated=truncated, plain=plain)

    # --------------------------------------------------------------------------------------------------- creating

    def create_group(self, name: str, **kwargs: Any) -> Group:
        """Creates a group below this one; ``overwrite`` and ``attributes`` as in :func:`cuzarr.create_group`."""
        overwrite, attributes = kwargs.pop("overwrite", False), kwargs.pop("attributes", None)
        if kwargs:
            raise TypeError(f"create_group has no {', '.join(kwargs)}")
        metadata = GroupMetadata(dict(attributes or {}), self._metadata.zarr_format)
        place = self._store_path / name
        write_new(place, metadata, overwrite=overwrite)
        return Group(place, metadata, self._device)

    def require_group(self, name: str, **kwargs: Any) -> Group:
        """The group at ``name``, created when it is missing; ``overwrite=True`` creates it anyway.

        Raises
        ------
        TypeError
            An array is there.
        """
        if kwargs.pop("overwrite", False):
            return self.create_group(name, overwrite=True, **kwargs)
        node = self.get(name)
        if isinstance(node, Array):
            raise TypeError(f"an array is at '{node.path}', expected a group")
        return self.create_group(name, **kwargs) if node is None else node

    def require_groups(self, *names: str) -> tuple[Group, ...]:
        """Several groups, created where they are missing."""
        return tuple(self.require_group(name) for name in names)

    def create_array(
        self,
        name: str,
        *,
        shape: Any = None,
        dtype: Any = None,
        data: Any = None,
        chunks: Any = "auto",
        shards: Any = None,
        filters: Any = "auto",
        compressors: Any = "auto",
        compressor: Any = "auto",
        serializer: Any = "auto",
        fill_value: Any = _create.DEFAULT_FILL_VALUE,
        order: Any = None,
        attributes: dict[str, Any] | None = None,
        chunk_key_encoding: Any = None,
        dimension_names: Any = None,
        storage_options: dict[str, Any] | None = None,
        overwrite: bool = False,
        config: ArrayConfigLike | None = None,
        write_data: bool = True,
    ) -> Array:
        """Creates an array below this group; see :func:`cuzarr.create_array`."""
        from cuzarr._api import create_array

        if not _create.is_auto(compressor):
            if not _create.is_auto(compressors):
                raise InvalidArgumentError("compressor and compressors are the same, give one")
            compressors = () if compressor is None else (compressor,)
        return create_array(
            self._store_path,
            name=name,
            shape=shape,
            dtype=dtype,
            data=data,
            chunks=chunks,
            shards=shards,
            filters=filters,
            compressors=compressors,
            serializer=serializer,
            fill_value=fill_value,
            order=order,
            zarr_format=self._metadata.zarr_format,
            attributes=attributes,
            chunk_key_encoding=chunk_key_encoding,
            dimension_names=dimension_names,
            storage_options=storage_options,
            overwrite=overwrite,
            config=config,
            write_data=write_data,
            device=self._device,
        )

    def create(
        self,
        name: str,
        *,
        shape: Any = None,
        dtype: Any = None,
        data: Any = None,
        chunks: Any = "auto",
        shards: Any = None,
        filters: Any = "auto",
        compressors: Any = "auto",
        compressor: Any = "auto",
        serializer: Any = "auto",
        fill_value: Any = _create.DEFAULT_FILL_VALUE,
        order: Any = None,
        attributes: dict[str, Any] | None = None,
        chunk_key_encoding: Any = None,
        dimension_names: Any = None,
        storage_options: dict[str, Any] | None = None,
        overwrite: bool = False,
        config: ArrayConfigLike | None = None,
        write_data: bool = True,
    ) -> Array:
        """Another name of :meth:`create_array`."""
        arguments = {key: value for key, value in locals().items() if key not in ("self", "name")}
        return self.create_array(name, **arguments)

    def require_array(self, name: str, *, shape: Any, config: ArrayConfigLike | None = None, **kwargs: Any) -> Array:
        """The array at ``name``, created when it is missing.

        ``dtype`` has to be one whose values the array can hold, or with ``exact=True`` its own.

        Raises
        ------
        TypeError
            Something else is there, or shape or dtype differ.
        """
        exact, dtype = kwargs.pop("exact", False), kwargs.pop("dtype", None)
        node = self.get(name)
        if node is None:
            created = "float64" if dtype is None else dtype
            return self.create_array(name, shape=shape, dtype=created, config=config, **kwargs)
        if isinstance(node, Group):
            raise TypeError(f"a group is at '{node.path}', expected an array")
        if node.shape != parse_shape(shape):
            raise TypeError(f"the array at '{node.path}' has shape {node.shape}, not {parse_shape(shape)}")
        native = parse_dtype("float64" if dtype is None else dtype, self._metadata.zarr_format).native
        if node.dtype != native if exact else not np.can_cast(node.dtype, native):
            raise TypeError(f"the array at '{node.path}' has elements of {node.dtype}, not {native}")
        return node if config is None else node.with_config(config)

    def create_hierarchy(
        self, nodes: dict[str, AnyArrayMetadata | GroupMetadata], *, overwrite: bool = False
    ) -> Iterator[tuple[str, Group | Array]]:
        """Creates many nodes below this group, from their metadata by path; yields each with its path."""
        from cuzarr._api import create_hierarchy

        nodes = {path: as_node(node) for path, node in nodes.items()}
        for path, node in nodes.items():
            if node.zarr_format != self._metadata.zarr_format:
                raise InvalidArgumentError(f"'{path}' is of format {node.zarr_format}, the group of {self._metadata.zarr_format}")
            if not normalize_path(path):
                raise InvalidArgumentError("the nodes name the group itself, which is there already")
        below = {(self._store_path / path).path: node for path, node in nodes.items()}
        skip = len(self.path) + 1 if self.path else 0
        for path, created in create_hierarchy(store=self.store, nodes=below, overwrite=overwrite):
            if path != self.path and path.startswith(self.path):
                yield path[skip:], created

    def _like(self, function: str, name: str, **kwargs: Any) -> Array:
        from cuzarr import _api

        zarr_format = kwargs.pop("zarr_format", None) or self._metadata.zarr_format
        if zarr_format != self._metadata.zarr_format:
            raise InvalidArgumentError(f"an array of format {zarr_format} cannot be in a group of {self._metadata.zarr_format}")
        kwargs.setdefault("device", self._device)
        create = getattr(_api, function)
        return create(store=self._store_path, path=name, zarr_format=zarr_format, **kwargs)  # type: ignore[no-any-return]

    def empty(self, *, name: str, shape: tuple[int, ...], **kwargs: Any) -> Array:
        """Creates an array without writing elements."""
        return self._like("empty", name, shape=shape, **kwargs)

    def zeros(self, *, name: str, shape: tuple[int, ...], **kwargs: Any) -> Array:
        """Creates an array of zeros."""
        return self._like("zeros", name, shape=shape, **kwargs)

    def ones(self, *, name: str, shape: tuple[int, ...], **kwargs: Any) -> Array:
        """Creates an array of ones."""
        return self._like("ones", name, shape=shape, **kwargs)

    def full(self, *, name: str, shape: tuple[int, ...], fill_value: Any, **kwargs: Any) -> Array:
        """Creates an array of one value."""
        return self._like("full", name, shape=shape, fill_value=fill_value, **kwargs)

    def empty_like(self, *, name: str, data: Any, **kwargs: Any) -> Array:
        """Creates an array like another one, without elements."""
        return self._like("empty_like", name, a=data, **kwargs)

    def zeros_like(self, *, name: str, data: Any, **kwargs: Any) -> Array:
        """Creates an array of zeros like another one."""
        return self._like("zeros_like", name, a=data, **kwargs)

    def ones_like(self, *, name: str, data: Any, **kwargs: Any) -> Array:
        """Creates an array of ones like another one."""
        return self._like("ones_like", name, a=data, **kwargs)

    def full_like(self, *, name: str, data: Any, **kwargs: Any) -> Array:
        """Creates an array of one value like another one."""
        return self._like("full_like", name, a=data, **kwargs)

    def move(self, source: str, dest: str) -> None:
        """Refuses: stores cannot rename."""
        raise UnsupportedError("stores cannot rename", hint="copy the array, then delete the source")

    # --------------------------------------------------------------------------------------------------- changing

    def update_attributes(self, new_attributes: dict[str, Any]) -> Group:
        """Adds and replaces attributes, in one write."""
        self._replace_attributes({**self._metadata.attributes, **new_attributes})
        return self

    async def update_attributes_async(self, new_attributes: dict[str, Any]) -> Group:
        """As :meth:`update_attributes`, awaited."""
        from cuzarr._async import run

        return await run(self.update_attributes, new_attributes)

    @property
    def async_group(self) -> AsyncGroup:
        """The same group, with members that are awaited."""
        from cuzarr._async_nodes import AsyncGroup

        return AsyncGroup.of(self)

    def _replace_attributes(self, attributes: dict[str, Any]) -> None:
        self._save(attributes=attributes)

    def _save(
        self, attributes: dict[str, Any] | None = None, consolidated: ConsolidatedMetadata | None = None
    ) -> None:
        self.store.check_writable()
        before = self._metadata
        metadata = GroupMetadata(
            before.attributes if attributes is None else attributes,
            before.zarr_format,
            before.consolidated_metadata if consolidated is None else consolidated,
            before.extra,
        )
        self._store_path.write(metadata.documents())
        self._metadata = metadata

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return self._store_path == other._store_path and self._metadata == other._metadata

    __hash__ = None  # type: ignore[assignment]  # attributes may change

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.store, self.path, self._metadata.to_dict(), self._device)

    def _repr_html_(self) -> str:
        return self.info._repr_html_()

    def __repr__(self) -> str:
        return f"<Group {self._store_path}>"


def _rebuild(store: Store, path: str, document: dict[str, Any], device: str) -> Group:
    return Group(StorePath(store, path), GroupMetadata.from_dict(document), device)

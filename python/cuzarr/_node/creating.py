"""Making arrays and groups in a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from cuzarr._checks import dictionary, parse_shape
from cuzarr._metadata import create as _create
from cuzarr._metadata.array import AnyArrayMetadata, parse_attributes
from cuzarr._metadata.documents import read_node, write_new
from cuzarr._metadata.dtype import ZarrFormat, parse_dtype
from cuzarr._metadata.group import GroupMetadata, as_node
from cuzarr._node.array import Array
from cuzarr._node.array_config import ArrayConfigLike
from cuzarr._node.members import GroupMembers
from cuzarr._text import printable
from cuzarr.errors import InvalidArgumentError
from cuzarr.storage import StorePath, normalize_path


class GroupCreation(GroupMembers):
    """A group in which arrays and groups are made; the functions of ``cuzarr`` do it, with the group's format and device."""

    @classmethod
    def _new(
        cls,
        place: StorePath,
        attributes: dict[str, Any] | None,
        zarr_format: ZarrFormat,
        *,
        overwrite: bool,
        device: str | None = None,
    ) -> Self:
        metadata = GroupMetadata(parse_attributes(attributes), zarr_format)
        write_new(place, metadata, overwrite=overwrite)
        return cls(place, metadata, device)

    def create_group(self, name: str, **kwargs: Any) -> Self:
        """Creates a group below this one; ``overwrite`` and ``attributes`` as in :func:`cuzarr.create_group`."""
        overwrite, attributes = kwargs.pop("overwrite", False), kwargs.pop("attributes", None)
        if kwargs:
            raise TypeError(f"create_group has no {', '.join(kwargs)}")
        place, zarr_format = self._store_path / name, self._metadata.zarr_format
        group = self._new(place, attributes, zarr_format, overwrite=overwrite, device=self._own_device)
        self._note(name, group._metadata)
        return group

    def require_group(self, name: str, **kwargs: Any) -> Self:
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
            raise TypeError(f"an array is at '{printable(node.path)}', expected a group")
        return self.create_group(name, **kwargs) if node is None else node

    def require_groups(self, *names: str) -> tuple[Self, ...]:
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
        arguments = dict(locals())
        del arguments["self"], arguments["compressor"]
        if not _create.is_auto(compressor):
            if not _create.is_auto(compressors):
                raise InvalidArgumentError("compressor and compressors are the same, give one")
            arguments["compressors"] = () if compressor is None else (compressor,)
        from cuzarr import _api

        zarr_format = self._metadata.zarr_format
        array = _api.create_array(self._store_path, **arguments, zarr_format=zarr_format, device=self._own_device)
        self._note(name, array.metadata)
        return array

    create = create_array  # zarr-python has both names

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
        if not isinstance(node, Array):
            raise TypeError(f"a group is at '{printable(node.path)}', expected an array")
        if node.shape != parse_shape(shape):
            raise TypeError(f"the array at '{printable(node.path)}' has shape {node.shape}, not {parse_shape(shape)}")
        native = parse_dtype("float64" if dtype is None else dtype, self._metadata.zarr_format).native
        if node.dtype != native if exact else not np.can_cast(node.dtype, native):
            raise TypeError(f"the array at '{printable(node.path)}' has elements of {node.dtype}, not {native}")
        return node if config is None else node.with_config(config)

    def create_hierarchy(
        self, nodes: dict[str, AnyArrayMetadata | GroupMetadata], *, overwrite: bool = False
    ) -> Iterator[tuple[str, Self | Array]]:
        """Creates many nodes below this group, from their metadata by path; yields each with its path."""
        from cuzarr._api import create_hierarchy

        nodes = {path: as_node(node) for path, node in dictionary(nodes, "nodes").items()}
        for path, node in nodes.items():
            if node.zarr_format != self._metadata.zarr_format:
                raise InvalidArgumentError(f"'{path}' is of format {node.zarr_format}, the group of {self._metadata.zarr_format}")
            if not normalize_path(path):
                raise InvalidArgumentError("the nodes name the group itself, which is there already")
        below = {(self._store_path / path).path: node for path, node in nodes.items()}
        skip = len(self.path) + 1 if self.path else 0
        for path, created in create_hierarchy(store=self.store, nodes=below, overwrite=overwrite):
            if path != self.path and path.startswith(self.path):
                self._note(path[skip:], created.metadata)
                yield path[skip:], self._node(path[skip:], created.metadata)

    def _like(self, function: str, name: str, **kwargs: Any) -> Array:
        from cuzarr import _api

        zarr_format = kwargs.pop("zarr_format", None) or self._metadata.zarr_format
        if zarr_format != self._metadata.zarr_format:
            raise InvalidArgumentError(f"an array of format {zarr_format} cannot be in a group of {self._metadata.zarr_format}")
        kwargs.setdefault("device", self._own_device)
        create = getattr(_api, function)
        array = create(store=self._store_path, path=name, zarr_format=zarr_format, **kwargs)
        self._note(name, array.metadata)
        return array  # type: ignore[no-any-return]

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

    def __setitem__(self, key: str, value: Any) -> None:
        """Stores an array under a name, whatever was there."""
        from cuzarr._api import save_array

        save_array(self._store_path / key, value, zarr_format=self._metadata.zarr_format, overwrite=True)
        if self._metadata.consolidated_metadata is not None:
            self._note(key, read_node(self._store_path / key, self._metadata.zarr_format))

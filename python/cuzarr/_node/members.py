"""What is in a group: finding a member by its path, listing members, and drawing them as a tree."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Self, TypeVar

from cuzarr._checks import whole
from cuzarr._metadata.documents import AnyNodeMetadata, array_not_found, group_not_found, iterate_members, read_node
from cuzarr._metadata.group import GroupMetadata
from cuzarr._names import did_you_mean
from cuzarr._node.array import Array
from cuzarr._node.node import Node
from cuzarr._node.tree import Tree, draw_tree
from cuzarr.errors import ContainsArrayError, ContainsGroupError, UnsupportedError
from cuzarr.storage import LocalStore, MemoryStore, StorePath, normalize_path

DefaultT = TypeVar("DefaultT")


class GroupMembers(Node):
    """A group by what is in it. Writes nothing."""

    _metadata: GroupMetadata

    def __init__(self, store_path: StorePath, metadata: GroupMetadata, device: str | None = None) -> None:
        self._store_path = store_path
        self._metadata = metadata
        self._own_device = None if device is None else str(device)

    def _node(self, path: str, metadata: AnyNodeMetadata) -> Array | Self:
        place = self._store_path / path
        if isinstance(metadata, GroupMetadata):
            return type(self)(place, metadata, self._own_device)
        return Array(place, metadata, device=self._own_device)

    def _find(self, path: str) -> AnyNodeMetadata | None:
        consolidated = self._metadata.consolidated_metadata
        if consolidated is None:
            return read_node(self._store_path / path, self._metadata.zarr_format)
        name = normalize_path(path)
        return consolidated.below(name) if name in consolidated.flattened_metadata else None

    def __getitem__(self, path: str) -> Array | Self:
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

    def _note(self, name: str, node: AnyNodeMetadata | None) -> None:
        """For a member that was replaced, or deleted (``None``): what was consolidated of it is no longer true."""
        consolidated, path = self._metadata.consolidated_metadata, normalize_path(name)
        if consolidated is None:
            return
        changed = consolidated.without(path)
        if node is not None and len(changed.flattened_metadata) < len(consolidated.flattened_metadata):
            changed.flattened_metadata[path] = node
        self._metadata = replace(self._metadata, consolidated_metadata=changed)

    def _names_beside(self, path: str) -> list[str]:
        """What is in the same group as a path, where a listing is at hand: objects in other stores cost a request."""
        consolidated = self._metadata.consolidated_metadata
        if consolidated is not None:
            return list(consolidated.flattened_metadata)
        if not isinstance(self.store, LocalStore | MemoryStore):
            return []
        parent, slash, _ = path.rpartition("/")
        return [parent + slash + name for name in self.store.list_dir((self._store_path / parent).path)]

    def get(self, path: str, default: DefaultT | None = None) -> Array | Self | DefaultT | None:
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
        if not isinstance(node, Array):
            raise ContainsGroupError(f"a group is in store {self.store} at path '{node.path}'")
        return node

    def get_group(self, path: str) -> Self:
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
                inside = type(self)(self._store_path / name, metadata, self._own_device)
                yield from inside._walk(None if max_depth is None else max_depth - 1, f"{path}/")

    def members(
        self, max_depth: int | None = 0, *, use_consolidated_for_children: bool = True
    ) -> tuple[tuple[str, Array | Self], ...]:
        """Paths and nodes below this group: directly below it, deeper by ``max_depth``, or all (``None``)."""
        _check_depth(max_depth)
        return tuple((path, self._node(path, metadata)) for path, metadata in self._walk(max_depth))

    def nmembers(self, max_depth: int | None = 0) -> int:
        """Number of nodes below this group."""
        _check_depth(max_depth)
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

    def groups(self) -> Generator[tuple[str, Self], None]:
        """Names and groups directly below."""
        for name, node in self.members():
            if not isinstance(node, Array):
                yield name, node

    def group_keys(self) -> Generator[str, None]:
        """Names of the groups directly below."""
        yield from (name for name, _ in self.groups())

    def group_values(self) -> Generator[Self, None]:
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


def _check_depth(max_depth: int | None) -> None:
    if max_depth is not None:
        whole(max_depth, "max_depth", 0, hint="give None for all members")

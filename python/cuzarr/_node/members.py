"""Members of a group: found by their paths, listed, and drawn as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cuzarr import _core
from cuzarr._config import config
from cuzarr._metadata.documents import AnyNodeMetadata, find_node, value_of
from cuzarr._metadata.group import ConsolidatedMetadata, GroupMetadata
from cuzarr._names import did_you_mean
from cuzarr._node.display import Tree, draw_tree
from cuzarr.errors import NodeTypeValidationError
from cuzarr.storage import LocalStore, MemoryStore, StorePath, normalize_path


def find(place: StorePath, group: GroupMetadata, path: str) -> AnyNodeMetadata | None:
    """The metadata of the node at a path below a group, or ``None``."""
    consolidated, name = group.consolidated_metadata, normalize_path(path)
    if consolidated is not None and is_trusted(place):
        return consolidated.below(name) if name in consolidated.flattened_metadata else None
    if consolidated is None or name not in consolidated.flattened_metadata:
        return find_node(place / path, group.zarr_format)
    return _with_copy(find_node(place / name, group.zarr_format, False), consolidated, name)


def is_trusted(place: StorePath) -> bool:
    """Whether the consolidated copy stands for the nodes' own documents. Where the store can be written, it only gives names."""
    return place.read_only or place.store.handle.is_read_only()


def _with_copy(node: AnyNodeMetadata | None, consolidated: ConsolidatedMetadata, name: str) -> AnyNodeMetadata | None:
    """A node's own metadata. A group gets that part of the copy above that is about its members."""
    if not isinstance(node, GroupMetadata):
        return node
    remembered = consolidated.below(name)
    below = remembered.consolidated_metadata if isinstance(remembered, GroupMetadata) else None
    return replace(node, consolidated_metadata=below)


def near_name(place: StorePath, group: GroupMetadata, path: str) -> str | None:
    """A hint that names a member whose name is near to a wrong one."""
    name = normalize_path(path)
    return did_you_mean(name, _names_beside(place, group, name))


def _names_beside(place: StorePath, group: GroupMetadata, path: str) -> list[str]:
    """What is in the same group as a path, where a listing is at hand: objects in other stores cost a request."""
    consolidated = group.consolidated_metadata
    if consolidated is not None:
        return list(consolidated.flattened_metadata)
    if not isinstance(place.store, LocalStore | MemoryStore):
        return []
    parent, slash, _ = path.rpartition("/")
    return [parent + slash + name for name in place.store.list_dir((place / parent).path)]


def walk(
    place: StorePath,
    group: GroupMetadata,
    max_depth: int | None,
    *,
    most: int | None = None,
    use_consolidated_for_children: bool = True,
) -> Iterator[tuple[str, AnyNodeMetadata]]:
    """Paths and metadata of what is below, each group before its members: of ``most`` nodes the first."""
    if (consolidated := group.consolidated_metadata) is not None:
        nodes = consolidated.nodes(max_depth)
        yield from nodes if is_trusted(place) else _read(place, group, [path for path, _ in nodes])
        return
    found = _core.walk_nodes(
        place.store.handle,
        place.path,
        group.zarr_format,
        max_depth,
        most,
        use_consolidated_for_children,
        config.get("metadata_max_bytes"),
    )
    for path, documents in found:
        try:
            metadata = value_of(place / path, documents)
        except NodeTypeValidationError:  # neither an array nor a group
            continue
        yield path, metadata
        if isinstance(metadata, GroupMetadata) and metadata.consolidated_metadata is not None:
            depth = None if max_depth is None else max_depth - path.count("/") - 1
            if depth is None or depth >= 0:
                yield from ((f"{path}/{below}", node) for below, node in walk(place / path, metadata, depth))


def _read(place: StorePath, group: GroupMetadata, paths: list[str]) -> Iterator[tuple[str, AnyNodeMetadata]]:
    """The nodes at some paths below a group with a consolidated copy, by their own documents, without those that are gone."""
    limit, absolute = config.get("metadata_max_bytes"), [(place / path).path for path in paths]
    found = _core.find_nodes(place.store.handle, absolute, group.zarr_format, limit)
    for path, documents in zip(paths, found, strict=True):
        if documents is not None and group.consolidated_metadata is not None:
            node = _with_copy(value_of(place / path, documents), group.consolidated_metadata, path)
            if node is not None:
                yield path, node


def names(place: StorePath, group: GroupMetadata, max_depth: int | None) -> Iterator[str]:
    """Paths of what is below, each group before its members. A consolidated copy gives them without a request."""
    consolidated = group.consolidated_metadata
    yield from (path for path, _ in (walk(place, group, max_depth) if consolidated is None else consolidated.nodes(max_depth)))


def noted(group: GroupMetadata, name: str, node: AnyNodeMetadata | None) -> GroupMetadata:
    """The group's metadata after a member was made or replaced, or deleted (``None``): its consolidated copy as it is stored now."""
    consolidated, path = group.consolidated_metadata, normalize_path(name)
    if consolidated is None:
        return group
    changed = dict(consolidated.without(path).flattened_metadata)
    if node is not None:
        for end in (place for place, character in enumerate(path) if character == "/"):
            changed.setdefault(path[:end], GroupMetadata(zarr_format=group.zarr_format))
        changed[path] = replace(node, consolidated_metadata=None) if isinstance(node, GroupMetadata) else node
    return replace(group, consolidated_metadata=ConsolidatedMetadata(changed))


def tree(name: str, nodes: Iterator[tuple[str, AnyNodeMetadata]], max_nodes: int, plain: bool) -> Tree:
    """The hierarchy of some nodes, each group before its members."""
    found: list[tuple[str, AnyNodeMetadata]] = []
    truncated = ""
    for item in nodes:
        if len(found) == max_nodes:
            truncated = f"Only {max_nodes} nodes are shown (max_nodes={max_nodes})\n"
            break
        found.append(item)
    described = [
        (path, None if isinstance(node, GroupMetadata) else f"{node.shape} {node.data_type.native}")
        for path, node in sorted(found, key=lambda item: item[0])
    ]
    return draw_tree(name, described, truncated=truncated, plain=plain)

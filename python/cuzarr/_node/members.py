"""Members of a group: finds them by path, lists them, and draws them as a tree."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cuzarr import _core
from cuzarr._config import config
from cuzarr._metadata.documents import UNFINISHED, AnyNodeMetadata, find_node, value_of
from cuzarr._metadata.group import ConsolidatedMetadata, GroupMetadata
from cuzarr._names import did_you_mean
from cuzarr._node.display import Tree, draw_tree
from cuzarr._text import printable
from cuzarr.errors import (
    CuzarrError,
    CuzarrUserWarning,
    DataTypeValidationError,
    MetadataValidationError,
    NodeTypeValidationError,
    UnknownCodecError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from cuzarr.storage import StorePath, normalize_path

UNREADABLE = (MetadataValidationError, UnknownCodecError, DataTypeValidationError, UnsupportedFeatureError, UnsupportedError)
"""Types of errors that concern one array or group only, because cuzarr cannot use the metadata document of that node."""

_MOST_DRAWN = 100

_MOST_DRAWN = 100
"""Largest number of members that the HTML of a group shows."""

FoundMember = AnyNodeMetadata | CuzarrError
"""Metadata of an array or group below a group, or the error that says why cuzarr cannot use them."""


def warn_left_out(path: str, error: CuzarrError, stacklevel: int) -> None:
    """Warns that an array or group was left out of a listing, and why."""
    hint = f" ({error.hint})" if error.hint else ""
    message = f"'{printable(path)}' is left out: {error.message}{hint}"
    warnings.warn(message, CuzarrUserWarning, stacklevel=stacklevel + 1)


def find(place: StorePath, group: GroupMetadata, path: str) -> AnyNodeMetadata | None:
    """The metadata of the array or group at a path below a group; ``None`` if there is none."""
    consolidated, name = group.consolidated_metadata, normalize_path(path)
    if consolidated is not None and is_trusted(place):
        return consolidated.below(name) if name in consolidated.flattened_metadata else None
    if consolidated is None or name not in consolidated.flattened_metadata:
        return find_node(place / path, group.zarr_format)
    return _remembering(consolidated, name, find_node(place / name, group.zarr_format, False))


def _remembering(consolidated: ConsolidatedMetadata, name: str, node: AnyNodeMetadata | None) -> AnyNodeMetadata | None:
    """Adds the consolidated metadata of a sub-group's members, found in a group above, to the metadata read from the sub-group's own
    document. Arrays are returned unchanged."""
    remembered = consolidated.below(name) if isinstance(node, GroupMetadata) and name in consolidated.flattened_metadata else None
    if isinstance(node, GroupMetadata) and isinstance(remembered, GroupMetadata):
        return replace(node, consolidated_metadata=remembered.consolidated_metadata)
    return node


def is_trusted(place: StorePath) -> bool:
    """Whether a group's members are opened from its consolidated metadata alone, without reading their own documents. In a writable store,
    only their names come from there."""
    return place.read_only or place.store.handle.is_read_only()


def near_name(place: StorePath, group: GroupMetadata, path: str) -> str | None:
    """A hint for an error message: the member of the group whose name is most similar to the wrong name in ``path``."""
    name = normalize_path(path)
    return did_you_mean(name, _names_beside(place, group, name))


def _names_beside(place: StorePath, group: GroupMetadata, path: str) -> list[str]:
    """The paths of the arrays and groups near a wrong path, from which a hint suggests the most similar one. Empty if finding them would
    need requests to a remote store."""
    consolidated = group.consolidated_metadata
    if consolidated is not None:
        return list(consolidated.flattened_metadata)
    if not place.store._is_near:
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
) -> Iterator[tuple[str, FoundMember]]:
    """Paths and metadata of the nodes below a group, each group before its members; at most ``most`` nodes.

    If the metadata of a node cannot be used, its error is yielded instead.
    """
    if (consolidated := group.consolidated_metadata) is not None:
        yield from _remembered(consolidated, max_depth) if is_trusted(place) else _read(place, group, consolidated, max_depth)
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
        if isinstance(documents, CuzarrError):
            if not isinstance(documents, UNREADABLE):
                raise documents
            yield path, documents
            continue
        try:
            metadata = value_of(place / path, documents)
        except NodeTypeValidationError:  # neither an array nor a group
            continue
        except UNREADABLE as error:
            yield path, error
            continue
        yield path, metadata
        if isinstance(metadata, GroupMetadata) and metadata.consolidated_metadata is not None:
            depth = None if max_depth is None else max_depth - path.count("/") - 1
            if depth is None or depth >= 0:
                yield from ((f"{path}/{below}", node) for below, node in walk(place / path, metadata, depth))


def _remembered(consolidated: ConsolidatedMetadata, max_depth: int | None) -> Iterator[tuple[str, FoundMember]]:
    """Yields the nodes that consolidated metadata list, with their metadata as consolidated."""
    for path, part in consolidated._parts(max_depth):
        try:
            node = consolidated.flattened_metadata[path]
        except UNREADABLE as error:
            yield path, error
            continue
        yield path, replace(node, consolidated_metadata=part) if isinstance(node, GroupMetadata) else node


def _read(
    place: StorePath, group: GroupMetadata, consolidated: ConsolidatedMetadata, max_depth: int | None
) -> Iterator[tuple[str, FoundMember]]:
    """Yields the nodes that consolidated metadata list, with metadata read from each node's own document. Nodes that no longer exist are
    left out."""
    parts = dict(consolidated._parts(max_depth))
    limit, absolute = config.get("metadata_max_bytes"), [(place / path).path for path in parts]
    found = _core.find_nodes(place.store.handle, absolute, group.zarr_format, limit)
    for (path, part), documents in zip(parts.items(), found, strict=True):
        if documents is not None:
            try:
                node = value_of(place / path, documents)
            except UNREADABLE as error:
                yield path, error
                continue
            yield path, replace(node, consolidated_metadata=part) if isinstance(node, GroupMetadata) else node


def at(place: StorePath, group: GroupMetadata, paths: Sequence[str]) -> list[AnyNodeMetadata | None]:
    """The metadata of the nodes at paths below a group, all requested at the same time; ``None`` for each path without a node."""
    consolidated, names = group.consolidated_metadata, [normalize_path(path) for path in paths]
    if consolidated is not None and is_trusted(place):
        return [find(place, group, name) for name in names]
    limit, absolute = config.get("metadata_max_bytes"), [(place / path).path for path in paths]
    found = _core.find_nodes(place.store.handle, absolute, group.zarr_format, limit)
    values = zip(paths, found, strict=True)
    nodes = [None if documents is None else value_of(place / path, documents) for path, documents in values]
    if consolidated is None:
        return nodes
    return [_remembering(consolidated, name, node) for name, node in zip(names, nodes, strict=True)]


def kinds(place: StorePath, group: GroupMetadata, max_depth: int | None) -> Iterator[tuple[str, bool]]:
    """Paths of the nodes below a group, in the order of :func:`walk`, and whether each is an array.

    A node with unusable metadata counts as an array. For consolidated metadata, no metadata objects are made.
    """
    if group.consolidated_metadata is not None:
        yield from group.consolidated_metadata._kinds(max_depth)
    else:
        yield from ((path, not isinstance(node, GroupMetadata)) for path, node in walk(place, group, max_depth))


def noted(group: GroupMetadata, name: str, node: AnyNodeMetadata | None) -> GroupMetadata:
    """A group's metadata, with its consolidated metadata updated after a member was created, replaced or deleted (``node`` is ``None``)."""
    consolidated, path = group.consolidated_metadata, normalize_path(name)
    if consolidated is None:
        return group
    changed = consolidated.without(path)
    if node is not None:
        for end in (place for place, character in enumerate(path) if character == "/"):
            if path[:end] not in changed.flattened_metadata:
                changed.flattened_metadata[path[:end]] = GroupMetadata(zarr_format=group.zarr_format)
        alone = replace(node, consolidated_metadata=None) if isinstance(node, GroupMetadata) else node
        changed.flattened_metadata[path] = alone
    return replace(group, consolidated_metadata=changed)


def near_tree(place: StorePath, group: GroupMetadata) -> Tree | CuzarrError | None:
    """Draws the first members of a group; ``None`` if this needs requests to a server. If they cannot be listed, the result is the error."""
    if group.consolidated_metadata is None and not place.store._is_near:
        return None
    try:
        return tree(f"/{place.path}", walk(place, group, None, most=_MOST_DRAWN + 1), _MOST_DRAWN, plain=False)
    except CuzarrError as error:
        return error


def tree(name: str, nodes: Iterator[tuple[str, FoundMember]], max_nodes: int, plain: bool) -> Tree:
    """Draws nodes below a group as a tree, at most ``max_nodes`` of them. Each group must come before its members."""
    found: list[tuple[str, FoundMember]] = []
    truncated = ""
    for item in nodes:
        if len(found) == max_nodes:
            truncated = f"Only {max_nodes} nodes are shown (max_nodes={max_nodes})\n"
            break
        found.append(item)
    described = [(path, _description(node)) for path, node in sorted(found, key=lambda item: item[0])]
    return draw_tree(name, described, truncated=truncated, plain=plain)


def _description(node: FoundMember) -> str | None:
    """The text behind a node's name in a drawn tree. Groups have none (``None``), unless they are unfinished."""
    if isinstance(node, CuzarrError):
        return f"cannot be used: {node.message}"
    mark = node.attributes.get(UNFINISHED)
    work = f"(unfinished {mark.get('work', 'work')})" if isinstance(mark, dict) else None
    if isinstance(node, GroupMetadata):
        return work
    try:
        return f"{node.shape} {node.data_type.native}{f' {work}' if work else ''}"
    except UNREADABLE as error:
        return f"{node.shape} cannot be used: {error.message}"

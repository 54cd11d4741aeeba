"""Functions that create groups, and hierarchies of them and of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cuzarr._checks import dictionary
from cuzarr._metadata.array import AnyArrayMetadata
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._metadata.group import GroupMetadata, as_node
from cuzarr._node.arguments import default_format
from cuzarr._node.array import Array
from cuzarr._node.group import Group
from cuzarr._node.hierarchy import create_nodes
from cuzarr.storage import Store, StoreLike, StorePath, make_store_path, normalize_path


def create_group(
    store: StoreLike,
    *,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    overwrite: bool = False,
    attributes: dict[str, Any] | None = None,
    storage_options: dict[str, Any] | None = None,
    metadata_store: StoreLike | None = None,
) -> Group:
    """Creates a group.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off.
    """
    place = make_store_path(store, path=path, mode="a", storage_options=storage_options, metadata_store=metadata_store)
    return Group._new(place, attributes, default_format(zarr_format), overwrite=overwrite)


def create_hierarchy(
    *, store: Store, nodes: dict[str, GroupMetadata | AnyArrayMetadata], overwrite: bool = False
) -> Iterator[tuple[str, Group | Array]]:
    """Creates many nodes from their metadata by path, and the groups they are in; yields each with its path. Metadata may
    be zarr-python's own objects.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off; nothing was written.
    """
    given = {normalize_path(path): as_node(node) for path, node in dictionary(nodes, "nodes").items()}
    place = make_store_path(store)
    for path, node in create_nodes(place, given, overwrite):
        yield path, Group(StorePath(place.store, path), node) if isinstance(node, GroupMetadata) else node

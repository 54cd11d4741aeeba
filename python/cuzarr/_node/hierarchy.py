"""Many arrays and groups, created at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cuzarr._metadata.documents import AnyNodeMetadata, contains, hierarchy_with_parents, read_node, write_new
from cuzarr._metadata.group import GroupMetadata
from cuzarr._node.array import Array
from cuzarr._node.create import create_node
from cuzarr.errors import ContainsArrayError, ContainsGroupError
from cuzarr.storage import StorePath


def create_nodes(
    place: StorePath, nodes: Mapping[str, AnyNodeMetadata], overwrite: bool
) -> Iterator[tuple[str, GroupMetadata | Array]]:
    """Creates nodes by their paths below a place, and the groups that they are in; gives each with its path in the store.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off; nothing was written.
    """
    if not nodes:
        return
    complete, zarr_format = hierarchy_with_parents(nodes), next(iter(nodes.values())).zarr_format
    for path, node in complete.items():
        kind = contains(place / path, zarr_format)
        if kind == "array" and (node is None or not overwrite):
            raise ContainsArrayError(f"an array is in store {place.store} at path '{path}'")
        if kind == "group" and node is not None and not overwrite:
            raise ContainsGroupError(f"a group is in store {place.store} at path '{path}'")
    for path, node in complete.items():
        here = place / path
        if node is None and read_node(here, zarr_format) is not None:
            continue
        node = GroupMetadata(zarr_format=zarr_format) if node is None else node
        if isinstance(node, GroupMetadata):
            write_new(here, node, overwrite=overwrite)
            yield here.path, node
        else:
            yield here.path, create_node(here, node, overwrite, None, None)

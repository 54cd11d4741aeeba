"""Functions that create groups, and hierarchies of groups and arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cuzarr._checks import dictionary
from cuzarr._docstrings import documented
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
    """Create a group in a store.

    Parameters
    ----------
    store : StoreLike
        A path, a URL, a store, a dictionary.
    path : str, optional
        Path in the store; the groups above it are created.
    zarr_format : {2, 3}, optional
        Format of the group.
    overwrite : bool
        Replace whatever is there.
    attributes : dict, optional
        Attributes, as JSON.
    storage_options : dict, optional
        Options for URLs of remote stores.
    metadata_store : StoreLike, optional
        Another store, in which the metadata document lives.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off.

    >>> group = cuzarr.create_group({}, path="run/1", attributes={"model": "toy"})
    >>> group.path, group.attrs["model"]
    ('run/1', 'toy')
    """
    place = make_store_path(store, path=path, mode="a", storage_options=storage_options, metadata_store=metadata_store)
    return Group._new(place, attributes, default_format(zarr_format), overwrite=overwrite)


def create_hierarchy(
    *, store: Store, nodes: dict[str, GroupMetadata | AnyArrayMetadata], overwrite: bool = False
) -> Iterator[tuple[str, Group | Array]]:
    """Create many arrays and groups in one call, from their metadata. Missing parent groups are created, too.

    Parameters
    ----------
    store : Store
        Where the nodes are created.
    nodes : dict of str to metadata
        Metadata of each node by its path. Metadata objects of zarr-python are accepted, too.
    overwrite : bool
        Replace what is at these paths.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node exists at one of the paths, and ``overwrite`` is off. Nothing was written.

    >>> store = cuzarr.storage.MemoryStore()
    >>> nodes = {"": cuzarr.GroupMetadata(), "a/b": cuzarr.GroupMetadata()}
    >>> sorted(path for path, node in cuzarr.create_hierarchy(store=store, nodes=nodes))
    ['', 'a', 'a/b']
    """
    given = {normalize_path(path): as_node(node) for path, node in dictionary(nodes, "nodes").items()}
    place = make_store_path(store)
    for path, node in create_nodes(place, given, overwrite):
        yield path, Group(StorePath(place.store, path), node) if isinstance(node, GroupMetadata) else node


documented(
    ">>> import cuzarr",
)(globals())

"""Creates many arrays and groups with one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cuzarr._metadata import documents
from cuzarr._metadata.documents import AnyNodeMetadata
from cuzarr._metadata.group import GroupMetadata
from cuzarr._node.array import Array
from cuzarr.errors import InvalidArgumentError
from cuzarr.storage import StorePath


def create_nodes(
    place: StorePath, nodes: Mapping[str, AnyNodeMetadata], overwrite: bool
) -> Iterator[tuple[str, GroupMetadata | Array]]:
    """Creates arrays and groups at paths below ``place``, and missing groups above them. Yields each one with its path in the store.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off; nothing was written.
    """
    if not nodes:
        return
    formats = {node.zarr_format for node in nodes.values()}
    if len(formats) > 1:
        raise InvalidArgumentError("the nodes are of both Zarr formats, and a hierarchy has one")
    places = {path: place / path for path in nodes}
    # Arrays with unusable metadata raise an error here.
    created: dict[str, GroupMetadata | Array] = {
        places[path].path: node if isinstance(node, GroupMetadata) else Array(places[path], node) for path, node in nodes.items()
    }
    implicit = GroupMetadata(zarr_format=formats.pop())
    with documents.create_nodes(place, nodes, overwrite=overwrite) as paths:
        pass
    lead = f"{place.path}/" if place.path else ""
    yield from ((path, created.get(path, implicit)) for path in paths if f"{path}/".startswith(lead))

"""Metadata of groups as objects, and functions that parse documents of arrays and groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from cuzarr import _core
from cuzarr._metadata.array import (
    ZARR_JSON,
    ZARRAY,
    ZATTRS,
    ZGROUP,
    AnyArrayMetadata,
    ArrayMetadata,
    ArrayV2Metadata,
    ArrayV3Metadata,
    Documents,
    NodeMetadata,
    as_mapping,
    of_core,
    parse_attributes,
)
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr.errors import ContainsArrayError, CuzarrError, MetadataValidationError, NodeTypeValidationError


class FoundNodes(MutableMapping[str, "AnyArrayMetadata | GroupMetadata"]):
    """Consolidated metadata of the nodes below a group, by their paths. Each metadata object is made on first access.

    ``paths`` maps each path to the path that the Rust side uses. Errors have the ``trail`` before the node.
    """

    def __init__(self, found: _core.Consolidated, paths: Mapping[str, str], trail: tuple[str, ...] = ()) -> None:
        self._found, self._trail = found, trail
        self._nodes: dict[str, str | AnyArrayMetadata | GroupMetadata] = dict(paths)

    def __getitem__(self, path: str) -> AnyArrayMetadata | GroupMetadata:
        node = self._nodes[path]
        if not isinstance(node, str):
            return node
        try:
            made = self._nodes[path] = node_of(self._found.documents(node) or {})
        except CuzarrError as error:
            error.trail = (*self._trail, f"consolidated metadata of '{node}'", *error.trail)
            raise
        return made

    def __setitem__(self, path: str, node: AnyArrayMetadata | GroupMetadata) -> None:
        self._nodes[path] = node

    def __delitem__(self, path: str) -> None:
        del self._nodes[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, path: object) -> bool:
        return path in self._nodes

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def is_array(self, path: str) -> bool:
        """Whether the node at a path below the group is an array; else it is a group."""
        node = self._nodes[path]
        return bool(self._found.is_array(node)) if isinstance(node, str) else isinstance(node, ArrayMetadata)

    def part(self, paths: Mapping[str, str]) -> FoundNodes:
        """A copy of this consolidated metadata that has only some of the nodes, under new paths. ``paths`` maps new paths to old ones."""
        part = FoundNodes(self._found, {}, self._trail)
        part._nodes = {new: self._nodes[old] for new, old in paths.items()}
        return part

    def unchanged(self) -> _core.Consolidated | None:
        """The Rust object from which this mapping of consolidated metadata was made; ``None`` if the mapping was changed later, and so
        differs."""
        paths = self._found.paths()
        nodes = self._nodes
        return self._found if len(nodes) == len(paths) and all(nodes.get(path) == path for path in paths) else None


@dataclass(frozen=True, eq=False)
class ConsolidatedMetadata:
    """Consolidated metadata: the metadata of everything below a group, stored in the group's own document.

    Parameters
    ----------
    flattened_metadata : mapping of str to metadata
        The metadata of each node, by its path below the group. A key without a name, such as ``""``, stands for the group itself
        and is left out. For a group that was opened, metadata objects are made on first access.

    Raises
    ------
    MetadataValidationError
        A value is not metadata.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.ConsolidatedMetadata({"a": cuzarr.GroupMetadata()}).metadata["a"].zarr_format
    3
    """

    flattened_metadata: MutableMapping[str, AnyArrayMetadata | GroupMetadata] = field(default_factory=dict)
    kind: ClassVar[Literal["inline"]] = "inline"
    must_understand: ClassVar[Literal[False]] = False

    def __post_init__(self) -> None:
        nodes = self.flattened_metadata
        # The Rust side has checked the paths of metadata that it found.
        if not isinstance(nodes, FoundNodes) and any(path != _normal(path) for path in nodes):
            kept = {_normal(path): node for path, node in nodes.items() if _normal(path)}
            object.__setattr__(self, "flattened_metadata", kept)

    @property
    def metadata(self) -> dict[str, AnyArrayMetadata | GroupMetadata]:
        """Metadata of the group's direct members, by name. Groups include the metadata of their own members."""
        return dict(self.nodes(0))

    def nodes(self, max_depth: int | None) -> Iterator[tuple[str, AnyArrayMetadata | GroupMetadata]]:
        """Paths and metadata of the nodes below the group. A group comes before its members.

        Parameters
        ----------
        max_depth : int or None
            How many levels to go below the direct children: 0 gives the children alone, ``None`` gives all nodes.

        Returns
        -------
        iterator of (str, metadata)
            Paths below the group, and metadata. Groups include the consolidated metadata of their own members.

        Examples
        --------
        >>> import cuzarr
        >>> below = cuzarr.ConsolidatedMetadata({"a": cuzarr.GroupMetadata(), "a/b": cuzarr.GroupMetadata()})
        >>> [path for path, _ in below.nodes(None)], [path for path, _ in below.nodes(0)]
        (['a', 'a/b'], ['a'])
        """
        for key, part in self._parts(max_depth):
            node = self.flattened_metadata[key]
            yield key, replace(node, consolidated_metadata=part) if isinstance(node, GroupMetadata) else node

    def _parts(self, max_depth: int | None) -> Iterator[tuple[str, ConsolidatedMetadata | None]]:
        """Paths of the nodes in the order of :meth:`nodes`, and for each group the consolidated metadata of the nodes below it."""
        # Each path is visited once, for any number of groups.
        inside: dict[str, dict[str, str]] = {}
        for key in self.flattened_metadata:
            for end in (place for place, character in enumerate(key) if character == "/"):
                inside.setdefault(key[:end], {})[key[end + 1 :]] = key
        for key, is_array in self._kinds(max_depth):
            yield key, None if is_array else self._part(inside.get(key, {}))

    def _kinds(self, max_depth: int | None) -> Iterator[tuple[str, bool]]:
        """Paths of the nodes in the order of :meth:`nodes`, and whether each is an array. No metadata objects are made."""
        nodes = self.flattened_metadata
        paths = [path for path in nodes if max_depth is None or path.count("/") <= max_depth]
        for path in sorted(paths, key=lambda path: path.split("/")):
            yield path, nodes.is_array(path) if isinstance(nodes, FoundNodes) else isinstance(nodes[path], ArrayMetadata)

    def _part(self, paths: Mapping[str, str]) -> ConsolidatedMetadata:
        """A copy of this consolidated metadata that has only some of the nodes, under new paths. ``paths`` maps new paths to old ones."""
        nodes = self.flattened_metadata
        part = nodes.part(paths) if isinstance(nodes, FoundNodes) else {new: nodes[old] for new, old in paths.items()}
        return ConsolidatedMetadata(part)

    def below(self, name: str) -> AnyArrayMetadata | GroupMetadata:
        """The metadata of the array or group at a path below this group, from consolidated metadata. A group includes the consolidated
        metadata of its own members.

        Parameters
        ----------
        name : str
            The path of the node, below the group.

        Returns
        -------
        ArrayV2Metadata, ArrayV3Metadata or GroupMetadata
            The metadata.

        Raises
        ------
        KeyError
            There is no such node.

        Examples
        --------
        >>> import cuzarr
        >>> below = cuzarr.ConsolidatedMetadata({"a": cuzarr.GroupMetadata(), "a/b": cuzarr.GroupMetadata()})
        >>> list(below.below("a").consolidated_metadata.metadata)
        ['b']
        """
        node = self.flattened_metadata[name]
        if not isinstance(node, GroupMetadata):
            return node
        inside = {key[len(name) + 1 :]: key for key in self.flattened_metadata if key.startswith(f"{name}/")}
        return replace(node, consolidated_metadata=self._part(inside))

    def without(self, name: str) -> ConsolidatedMetadata:
        """This consolidated metadata without one node and all nodes below it.

        Parameters
        ----------
        name : str
            The path of the node, below the group.

        Returns
        -------
        ConsolidatedMetadata
            New metadata.

        Examples
        --------
        >>> import cuzarr
        >>> below = cuzarr.ConsolidatedMetadata({"a": cuzarr.GroupMetadata(), "a/b": cuzarr.GroupMetadata()})
        >>> below.without("a").metadata
        {}
        """
        return self._part({key: key for key in self.flattened_metadata if key != name and not key.startswith(f"{name}/")})

    def to_dict(self) -> dict[str, Any]:
        """The member ``consolidated_metadata`` of a format 3 group document.

        Returns
        -------
        dict
            A document of JSON values.

        Examples
        --------
        >>> import cuzarr
        >>> document = cuzarr.ConsolidatedMetadata({"a": cuzarr.GroupMetadata()}).to_dict()
        >>> document["kind"], list(document["metadata"])
        ('inline', ['a'])
        """
        nodes = {key: node.to_dict() for key, node in sorted(self.flattened_metadata.items())}
        return {"kind": self.kind, "must_understand": self.must_understand, "metadata": nodes}


@dataclass(frozen=True, eq=False)
class GroupMetadata(NodeMetadata):
    """Metadata of a group.

    Parameters
    ----------
    attributes : dict
        The attributes, as JSON.
    zarr_format : {2, 3}
        The format of the group.
    consolidated_metadata : ConsolidatedMetadata, optional
        Metadata of everything below the group.
    extra : dict
        Further members of the document.

    Raises
    ------
    MetadataValidationError
        A value is not allowed.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.GroupMetadata(attributes={"a": 1}).to_dict()["attributes"]
    {'a': 1}
    """

    attributes: dict[str, Any] = field(default_factory=dict)
    zarr_format: ZarrFormat = 3
    consolidated_metadata: ConsolidatedMetadata | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    node_type: ClassVar[Literal["group"]] = "group"

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", parse_attributes(self.attributes))

    def to_dict(self) -> dict[str, Any]:
        """The metadata document as a dictionary, with attributes and consolidated metadata inside, for both formats.

        Returns
        -------
        dict
            A document of JSON values.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.GroupMetadata(attributes={"title": "maps"}).to_dict()
        {'attributes': {'title': 'maps'}, 'zarr_format': 3, 'node_type': 'group'}
        """
        document: dict[str, Any] = {"attributes": self.attributes, "zarr_format": self.zarr_format}
        if self.zarr_format == 3:
            document["node_type"] = "group"
        if self.consolidated_metadata is not None:
            document["consolidated_metadata"] = self.consolidated_metadata.to_dict()
        return document | self.extra

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GroupMetadata:
        """Makes the metadata object from a group's metadata document.

        Parameters
        ----------
        data : mapping
            The document, with attributes and consolidated metadata inside.

        Returns
        -------
        GroupMetadata
            The metadata.

        Raises
        ------
        ContainsArrayError
            The document describes an array.
        MetadataValidationError
            The document is not metadata of a group.

        Examples
        --------
        >>> import cuzarr
        >>> document = {"zarr_format": 3, "node_type": "group", "attributes": {"title": "maps"}}
        >>> cuzarr.GroupMetadata.from_dict(document).attributes
        {'title': 'maps'}
        """
        document = dict(as_mapping(data, "a group"))
        zarr_format = document.pop("zarr_format", None)
        if zarr_format not in (2, 3):
            raise MetadataValidationError(f"zarr_format is {zarr_format!r}, expected 2 or 3")
        node_type = document.pop("node_type", "group" if zarr_format == 2 else None)
        if node_type == "array":
            raise ContainsArrayError("got metadata of an array, expected a group", hint="open it with open_array or open")
        if node_type != "group":
            raise NodeTypeValidationError(f"node_type is {node_type!r}, expected 'group'")
        consolidated = document.pop("consolidated_metadata", None)
        attributes = dict(as_mapping(document.pop("attributes", None) or {}, "attributes"))
        return cls(attributes, zarr_format, _parse_consolidated(consolidated), document)

    def update_attributes(self, attributes: Mapping[str, Any]) -> GroupMetadata:
        """A copy of this metadata with other attributes. The group itself is not changed; :meth:`cuzarr.Group.update_attributes` does that.

        Parameters
        ----------
        attributes : mapping
            All new attributes. They are converted to JSON values: tuples and NumPy's arrays become lists. Old attributes are dropped.

        Returns
        -------
        GroupMetadata
            New metadata.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.GroupMetadata(attributes={"a": 1}).update_attributes({"b": 2}).attributes
        {'b': 2}
        """
        return replace(self, attributes=dict(attributes))

    def stored(self) -> tuple[Documents, dict[str, Documents] | None]:
        below = self.consolidated_metadata
        return self._own(), None if below is None else {path: node.stored()[0] for path, node in below.flattened_metadata.items()}

    def _own(self) -> Documents:
        return (
            {ZARR_JSON: {"attributes": self.attributes, "zarr_format": 3, "node_type": "group"} | self.extra}
            if self.zarr_format == 3
            else {ZGROUP: {"zarr_format": 2} | self.extra, ZATTRS: self.attributes}
        )

    def _given(self) -> tuple[Documents, Any]:
        if self.consolidated_metadata is None:
            return self._own(), None
        nodes = self.consolidated_metadata.flattened_metadata
        # Unchanged metadata are written as they were found, without making objects of them.
        found = nodes.unchanged() if isinstance(nodes, FoundNodes) else None
        return self._own(), found or {path: node._given()[0] for path, node in nodes.items()}


def parse_node(data: Mapping[str, Any]) -> AnyArrayMetadata | GroupMetadata:
    """Makes the metadata object from the document of an array or a group, which has the attributes inside."""
    as_mapping(data, "a node")
    if data.get("zarr_format") == 2:
        is_array = "shape" in data
        return ArrayV2Metadata.from_dict(data) if is_array else GroupMetadata.from_dict(data)
    return ArrayV3Metadata.from_dict(data) if data.get("node_type") == "array" else GroupMetadata.from_dict(data)


def node_of(
    documents: Mapping[str, Mapping[str, Any]] | _core.ArrayMetadata,
    consolidated: _core.Consolidated | None = None,
    trail: Callable[[], tuple[str, ...]] = tuple,
) -> AnyArrayMetadata | GroupMetadata:
    """Makes the metadata object of a stored array or group; that of a group has the consolidated metadata of everything below it. Later
    errors about the node name the ``trail``.

    Raises
    ------
    MetadataValidationError
        The document describes neither an array nor a group, or a required member is missing.
    """
    if isinstance(documents, _core.ArrayMetadata):
        return of_core(documents)
    if ZARR_JSON in documents:
        node = parse_node(documents[ZARR_JSON])
    elif ZARRAY in documents:
        return ArrayV2Metadata(dict(documents[ZARRAY]), dict(documents.get(ZATTRS, {})))
    else:
        node = GroupMetadata.from_dict({**documents[ZGROUP], "attributes": documents.get(ZATTRS, {})})
    if consolidated is None or not isinstance(node, GroupMetadata):
        return node
    below = FoundNodes(consolidated, {path: path for path in consolidated.paths()}, trail())
    return replace(node, consolidated_metadata=ConsolidatedMetadata(below))


def as_node(node: Any) -> AnyArrayMetadata | GroupMetadata:
    """Converts metadata to an object of cuzarr, from an object of cuzarr or zarr-python, or from a document.

    Raises
    ------
    TypeError
        The value is none of these.
    """
    if isinstance(node, ArrayMetadata | GroupMetadata):
        return node  # type: ignore[return-value]
    if isinstance(node, Mapping):
        return parse_node(node)
    if not hasattr(node, "to_buffer_dict"):
        raise TypeError(f"got {type(node).__name__}, expected metadata of an array or a group")
    from zarr.core.buffer.cpu import buffer_prototype

    # zarr-python's classes change between versions. The documents that they write do not.
    return node_of({name: json.loads(value.to_bytes()) for name, value in node.to_buffer_dict(buffer_prototype).items()})


def _normal(path: str) -> str:
    """Removes leading, trailing and repeated slashes from a path."""
    return "/".join(name for name in path.split("/") if name)


def _parse_consolidated(data: Any) -> ConsolidatedMetadata | None:
    if data is None:
        return None
    if not isinstance(data, Mapping) or not isinstance(data.get("metadata"), Mapping):
        raise MetadataValidationError(f"consolidated_metadata has no 'metadata', got {data!r}")
    if data.get("kind") != "inline":
        raise MetadataValidationError(f"consolidated_metadata is of kind {data.get('kind')!r}, expected 'inline'")
    return ConsolidatedMetadata({key: parse_node(node) for key, node in data["metadata"].items() if _normal(key)})

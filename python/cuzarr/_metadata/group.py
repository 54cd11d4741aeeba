"""Metadata of groups as values, and of whatever a document describes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

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
    parse_attributes,
)
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr.errors import ContainsArrayError, MetadataValidationError, NodeTypeValidationError


@dataclass(frozen=True, eq=False)
class ConsolidatedMetadata:
    """Metadata of everything below a group, kept with the group.

    Parameters
    ----------
    flattened_metadata : dict of str to metadata
        The metadata of each node, by its path below the group.

    Raises
    ------
    MetadataValidationError
        A value is no metadata.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.ConsolidatedMetadata({"a": cuzarr.GroupMetadata()}).metadata["a"].zarr_format
    3
    """

    flattened_metadata: dict[str, AnyArrayMetadata | GroupMetadata] = field(default_factory=dict)
    kind: ClassVar[Literal["inline"]] = "inline"
    must_understand: ClassVar[Literal[False]] = False

    @property
    def metadata(self) -> dict[str, AnyArrayMetadata | GroupMetadata]:
        """Metadata of the direct children, by name. Groups carry that of their own members."""
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
            Paths below the group, and metadata. Groups carry the consolidated metadata of their own members.

        Examples
        --------
        >>> import cuzarr
        >>> below = cuzarr.ConsolidatedMetadata({"a": cuzarr.GroupMetadata(), "a/b": cuzarr.GroupMetadata()})
        >>> [path for path, _ in below.nodes(None)], [path for path, _ in below.nodes(0)]
        (['a', 'a/b'], ['a'])
        """
        # By one look at every path, however many groups there are.
        inside: dict[str, dict[str, AnyArrayMetadata | GroupMetadata]] = {}
        for key, child in self.flattened_metadata.items():
            for end in (place for place, character in enumerate(key) if character == "/"):
                inside.setdefault(key[:end], {})[key[end + 1 :]] = child
        for key, node in sorted(self.flattened_metadata.items(), key=lambda item: item[0].split("/")):
            if max_depth is None or key.count("/") <= max_depth:
                if isinstance(node, GroupMetadata):
                    node = replace(node, consolidated_metadata=ConsolidatedMetadata(inside.get(key, {})))
                yield key, node

    def below(self, name: str) -> AnyArrayMetadata | GroupMetadata:
        """The metadata of one node. A group carries the consolidated metadata of its own members.

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
        inside = {key[len(name) + 1 :]: child for key, child in self.flattened_metadata.items() if key.startswith(f"{name}/")}
        return replace(node, consolidated_metadata=ConsolidatedMetadata(inside))

    def without(self, name: str) -> ConsolidatedMetadata:
        """This metadata without one node and all nodes below it.

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
        return ConsolidatedMetadata(
            {key: node for key, node in self.flattened_metadata.items() if key != name and not key.startswith(f"{name}/")}
        )

    def to_dict(self) -> dict[str, Any]:
        """The member ``consolidated_metadata`` of a format 3 group document.

        Returns
        -------
        dict
            What JSON can hold.

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
        """The metadata document as a dictionary, with attributes and consolidated metadata inside, in either format.

        Returns
        -------
        dict
            What JSON can hold.

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
        """The metadata that a document describes.

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
            The document is no metadata of a group.

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
        """This metadata with other attributes. The group itself is not changed; :meth:`cuzarr.Group.update_attributes` does that.

        Parameters
        ----------
        attributes : mapping
            All new attributes. They become what JSON holds: tuples and NumPy's arrays become lists. The old ones are dropped.

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
        documents = (
            {ZARR_JSON: {"attributes": self.attributes, "zarr_format": 3, "node_type": "group"} | self.extra}
            if self.zarr_format == 3
            else {ZGROUP: {"zarr_format": 2} | self.extra, ZATTRS: self.attributes}
        )
        return documents, None if below is None else {path: node.stored()[0] for path, node in below.flattened_metadata.items()}


def parse_node(data: Mapping[str, Any]) -> AnyArrayMetadata | GroupMetadata:
    """The value of an array's or a group's document, attributes inside."""
    as_mapping(data, "a node")
    if data.get("zarr_format") == 2:
        is_array = "shape" in data
        return ArrayV2Metadata.from_dict(data) if is_array else GroupMetadata.from_dict(data)
    return ArrayV3Metadata.from_dict(data) if data.get("node_type") == "array" else GroupMetadata.from_dict(data)


def node_of(
    documents: Mapping[str, Mapping[str, Any]], consolidated: Mapping[str, Documents] | None = None
) -> AnyArrayMetadata | GroupMetadata:
    """The value of what is stored of a node, and of what is consolidated below it.

    Raises
    ------
    MetadataValidationError
        It says that it is neither an array nor a group, or lacks something.
    """
    if ZARR_JSON in documents:
        node = parse_node(documents[ZARR_JSON])
    elif ZARRAY in documents:
        return ArrayV2Metadata(dict(documents[ZARRAY]), dict(documents.get(ZATTRS, {})))
    else:
        node = GroupMetadata.from_dict({**documents[ZGROUP], "attributes": documents.get(ZATTRS, {})})
    if consolidated is None or not isinstance(node, GroupMetadata):
        return node
    below = {path: node_of(below) for path, below in consolidated.items()}
    return replace(node, consolidated_metadata=ConsolidatedMetadata(below))


def as_node(node: Any) -> AnyArrayMetadata | GroupMetadata:
    """Metadata of ours from ours, from zarr-python's objects, or from a document.

    Raises
    ------
    TypeError
        It is none of these.
    """
    if isinstance(node, ArrayMetadata | GroupMetadata):
        return node  # type: ignore[return-value]
    if isinstance(node, Mapping):
        return parse_node(node)
    if not hasattr(node, "to_buffer_dict"):
        raise TypeError(f"got {type(node).__name__}, expected metadata of an array or a group")
    from zarr.core.buffer.cpu import buffer_prototype

    # What zarr-python would write is the one form of its metadata that it promises.
    return node_of({name: json.loads(value.to_bytes()) for name, value in node.to_buffer_dict(buffer_prototype).items()})


def _parse_consolidated(data: Any) -> ConsolidatedMetadata | None:
    if data is None:
        return None
    if not isinstance(data, Mapping) or not isinstance(data.get("metadata"), Mapping):
        raise MetadataValidationError(f"consolidated_metadata has no 'metadata', got {data!r}")
    if data.get("kind") != "inline":
        raise MetadataValidationError(f"consolidated_metadata is of kind {data.get('kind')!r}, expected 'inline'")
    return ConsolidatedMetadata({key: parse_node(node) for key, node in data["metadata"].items()})

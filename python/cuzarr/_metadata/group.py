"""Metadata of groups as values, and of whatever a document describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from cuzarr._metadata.array import (
    ZARR_JSON,
    ZARRAY,
    ZATTRS,
    ZGROUP,
    ZMETADATA,
    AnyArrayMetadata,
    ArrayMetadata,
    ArrayV2Metadata,
    ArrayV3Metadata,
    as_mapping,
    canonical_json,
    encode_document,
)
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr.errors import ContainsArrayError, MetadataValidationError, NodeTypeValidationError


@dataclass(frozen=True, eq=False)
class ConsolidatedMetadata:
    """Metadata of everything below a group, kept with the group."""

    flattened_metadata: dict[str, AnyArrayMetadata | GroupMetadata] = field(default_factory=dict)
    kind: ClassVar[Literal["inline"]] = "inline"
    must_understand: ClassVar[Literal[False]] = False

    @property
    def metadata(self) -> dict[str, AnyArrayMetadata | GroupMetadata]:
        """The direct children; groups among them know theirs."""
        # By one look at every path, however many groups there are.
        inside: dict[str, dict[str, AnyArrayMetadata | GroupMetadata]] = {}
        for key, child in self.flattened_metadata.items():
            name, slash, rest = key.partition("/")
            if slash:
                inside.setdefault(name, {})[rest] = child
        return {
            name: replace(node, consolidated_metadata=ConsolidatedMetadata(inside.get(name, {})))
            if isinstance(node, GroupMetadata)
            else node
            for name, node in self.flattened_metadata.items()
            if "/" not in name
        }

    def below(self, name: str) -> AnyArrayMetadata | GroupMetadata:
        """The node called ``name``, a group with all that is below it."""
        node = self.flattened_metadata[name]
        if not isinstance(node, GroupMetadata):
            return node
        inside = {key[len(name) + 1 :]: child for key, child in self.flattened_metadata.items() if key.startswith(f"{name}/")}
        return replace(node, consolidated_metadata=ConsolidatedMetadata(inside))

    def without(self, name: str) -> ConsolidatedMetadata:
        """The same without a node and what is below it."""
        return ConsolidatedMetadata(
            {key: node for key, node in self.flattened_metadata.items() if key != name and not key.startswith(f"{name}/")}
        )

    def to_dict(self) -> dict[str, Any]:
        """As format 3 stores it, inside the group's metadata."""
        nodes = {key: node.to_dict() for key, node in sorted(self.flattened_metadata.items())}
        return {"kind": self.kind, "must_understand": self.must_understand, "metadata": nodes}


@dataclass(frozen=True, eq=False)
class GroupMetadata:
    """Metadata of a group."""

    attributes: dict[str, Any] = field(default_factory=dict)
    zarr_format: ZarrFormat = 3
    consolidated_metadata: ConsolidatedMetadata | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    node_type: ClassVar[Literal["group"]] = "group"

    def to_dict(self) -> dict[str, Any]:
        """The document of format 3; of format 2 with attributes (and consolidated metadata) inside."""
        document: dict[str, Any] = {"attributes": self.attributes, "zarr_format": self.zarr_format}
        if self.zarr_format == 3:
            document["node_type"] = "group"
        if self.consolidated_metadata is not None:
            document["consolidated_metadata"] = self.consolidated_metadata.to_dict()
        return document | self.extra

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GroupMetadata:
        """The value of a document, attributes inside."""
        document = dict(as_mapping(data, "a group"))
        zarr_format = document.pop("zarr_format", None)
        if zarr_format not in (2, 3):
            raise MetadataValidationError(f"zarr_format is {zarr_format!r}, expected 2 or 3")
        node_type = document.pop("node_type", "group" if zarr_format == 2 else None)
        if node_type == "array":
            raise ContainsArrayError("the metadata is an array's, expected a group's", hint="open it with open_array or open")
        if node_type != "group":
            raise NodeTypeValidationError(f"node_type is {node_type!r}, expected 'group'")
        consolidated = document.pop("consolidated_metadata", None)
        attributes = dict(as_mapping(document.pop("attributes", None) or {}, "attributes"))
        return cls(attributes, zarr_format, _parse_consolidated(consolidated), document)

    def update_attributes(self, attributes: Mapping[str, Any]) -> GroupMetadata:
        """The same with other attributes."""
        return replace(self, attributes=dict(attributes))

    def documents(self) -> dict[str, bytes]:
        """What is stored, by the key relative to the group."""
        if self.zarr_format == 3:
            return {ZARR_JSON: encode_document(self.to_dict())}
        stored = {ZGROUP: encode_document({"zarr_format": 2} | self.extra), ZATTRS: encode_document(self.attributes)}
        if self.consolidated_metadata is not None:
            stored[ZMETADATA] = encode_document(self._consolidated_v2())
        return stored

    def _consolidated_v2(self) -> dict[str, Any]:
        assert self.consolidated_metadata is not None
        documents: dict[str, Any] = {ZATTRS: self.attributes, ZGROUP: {"zarr_format": 2} | self.extra}
        for path, node in sorted(self.consolidated_metadata.flattened_metadata.items()):
            documents[f"{path}/{ZATTRS}"] = node.attributes
            if isinstance(node, GroupMetadata):
                documents[f"{path}/{ZGROUP}"] = {"zarr_format": 2} | node.extra
            else:
                documents[f"{path}/{ZARRAY}"] = node.document
        return {"metadata": documents, "zarr_consolidated_format": 1}

    def same_as(self, other: object) -> bool:
        """Whether both say the same: what ``==`` says of metadata, too."""
        return isinstance(other, GroupMetadata) and canonical_json(self.to_dict()) == canonical_json(other.to_dict())

    def __eq__(self, other: object) -> bool:
        return self.same_as(other)

    def __hash__(self) -> int:
        return hash(canonical_json(self.to_dict()))


def parse_node(data: Mapping[str, Any]) -> AnyArrayMetadata | GroupMetadata:
    """The value of an array's or a group's document, attributes inside."""
    as_mapping(data, "a node")
    if data.get("zarr_format") == 2:
        is_array = "shape" in data
        return ArrayV2Metadata.from_dict(data) if is_array else GroupMetadata.from_dict(data)
    return ArrayV3Metadata.from_dict(data) if data.get("node_type") == "array" else GroupMetadata.from_dict(data)


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
        raise TypeError(f"metadata of an array or a group was expected, got {type(node).__name__}")
    from zarr.core.buffer.cpu import buffer_prototype

    # What zarr-python would write is the one form of its metadata that it promises.
    written = {name: json.loads(value.to_bytes()) for name, value in node.to_buffer_dict(buffer_prototype).items()}
    if ZARR_JSON in written:
        return parse_node(written[ZARR_JSON])
    attributes = written.get(ZATTRS, {})
    if ZARRAY in written:
        return ArrayV2Metadata(written[ZARRAY], attributes)
    return GroupMetadata.from_dict(written[ZGROUP] | {"attributes": attributes})


def _parse_consolidated(data: Any) -> ConsolidatedMetadata | None:
    if data is None:
        return None
    if not isinstance(data, Mapping) or not isinstance(data.get("metadata"), Mapping):
        raise MetadataValidationError(f"consolidated_metadata has no 'metadata', got {data!r}")
    if data.get("kind") != "inline":
        raise MetadataValidationError(f"consolidated_metadata is of kind {data.get('kind')!r}, expected 'inline'")
    return ConsolidatedMetadata({_checked_path(key): parse_node(node) for key, node in data["metadata"].items()})


# Names of the longest path. What lists a hierarchy follows it level by level, so a document must not say how deep it goes.
_MOST_NAMES = 128


def _checked_path(path: str) -> str:
    if (depth := path.count("/") + 1) > _MOST_NAMES:
        raise MetadataValidationError(
            f"consolidated metadata has a path of {depth} names, expected at most {_MOST_NAMES}: {path!r}"
        )
    return path


def parse_consolidated_v2(document: Mapping[str, Any]) -> ConsolidatedMetadata:
    """Consolidated metadata of format 2, from ``.zmetadata``."""
    stored = document.get("metadata")
    if not isinstance(stored, Mapping):
        raise MetadataValidationError(f"'{ZMETADATA}' has no 'metadata'")
    nodes: dict[str, dict[str, Any]] = {}
    for key, value in stored.items():
        path, _, name = _checked_path(key).rpartition("/")
        if path and name in (ZARRAY, ZGROUP):
            nodes.setdefault(path, {}).update(as_mapping(value, f"'{key}'"))
        elif path and name == ZATTRS:
            nodes.setdefault(path, {})["attributes"] = value
    return ConsolidatedMetadata({path: parse_node(node) for path, node in nodes.items() if "zarr_format" in node})

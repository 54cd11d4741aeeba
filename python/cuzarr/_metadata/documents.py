"""Reading and writing the metadata documents of arrays and groups."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from cuzarr._metadata.array import (
    ZARR_JSON,
    ZARRAY,
    ZATTRS,
    ZGROUP,
    ZMETADATA,
    AnyArrayMetadata,
    ArrayV2Metadata,
    ArrayV3Metadata,
    decode_document,
)
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._metadata.group import GroupMetadata, parse_consolidated_v2
from cuzarr._text import printable
from cuzarr.errors import (
    ArrayNotFoundError,
    ContainsArrayAndGroupError,
    ContainsArrayError,
    ContainsGroupError,
    CuzarrError,
    CuzarrUserWarning,
    GroupNotFoundError,
    InvalidArgumentError,
    MetadataValidationError,
    NodeTypeValidationError,
)
from cuzarr.storage import StorePath, iterate_parents

AnyNodeMetadata = AnyArrayMetadata | GroupMetadata


def check_zarr_format(zarr_format: Any) -> ZarrFormat | None:
    """A format given by a caller: 2, 3, or ``None`` for whichever is there."""
    if zarr_format is None or isinstance(zarr_format, int | np.integer) and zarr_format in (2, 3):
        return zarr_format  # type: ignore[return-value]
    raise MetadataValidationError(f"zarr_format is {zarr_format!r}, expected 2, 3 or None")


def _document(place: StorePath, name: str) -> dict[str, Any] | None:
    raw = place.get_document(name)
    return None if raw is None else _parse(place, name, decode_document, raw)  # type: ignore[no-any-return]


def _parse(place: StorePath, name: str, parse: Any, document: Any) -> Any:
    """Errors say which document they are about."""
    try:
        return parse(document)
    except CuzarrError as error:
        error.trail = (f"{place.store}", f"metadata '{place.key(name)}'", *error.trail)
        raise


def array_not_found(place: StorePath) -> ArrayNotFoundError:
    """The error for an array that is not there."""
    return ArrayNotFoundError(f"no array in store {_told(place)}", hint=_hint_of_absence(place))


def group_not_found(place: StorePath) -> GroupNotFoundError:
    """The error for a group that is not there."""
    return GroupNotFoundError(f"no group in store {_told(place)}", hint=_hint_of_absence(place))


def nothing_found(place: StorePath) -> GroupNotFoundError:
    """The error for a place where neither is."""
    return GroupNotFoundError(f"no array and no group in store {_told(place)}", hint=_hint_of_absence(place))


def _told(place: StorePath) -> str:
    return f"{place.store} at path '{place.path}'" if place.path else str(place.store)


def _hint_of_absence(place: StorePath) -> str | None:
    if (path := getattr(place.store, "root", None)) is None or os.path.exists(path):
        return None
    root = str(path)
    if os.path.isabs(root):
        return f"there is no '{root}'"
    absent = f"there is no '{root}' in {os.getcwd()}"
    if root.startswith("~"):
        return f"{absent}; '~' is not expanded, use os.path.expanduser"
    if likely := re.fullmatch(r"([a-z][a-z0-9]+):/*(.+)", root):
        return f"{absent}; if it is a URL, write '{likely[1]}://{likely[2]}'"
    return absent


def read_array(place: StorePath, zarr_format: ZarrFormat | None) -> AnyArrayMetadata:
    """Metadata of the array at a place.

    Raises
    ------
    ArrayNotFoundError
        Nothing is there.
    NodeTypeValidationError
        A group of format 3 is there.
    """
    document = _document(place, ZARR_JSON) if zarr_format != 2 else None
    old = _document(place, ZARRAY) if zarr_format == 2 or (zarr_format is None) else None
    if document is not None and old is not None:
        _warn_both_formats(place)
    if document is not None:
        return _parse(place, ZARR_JSON, ArrayV3Metadata.from_dict, document)  # type: ignore[no-any-return]
    if old is not None:
        attributes = _document(place, ZATTRS) or {}
        return _parse(place, ZARRAY, lambda raw: ArrayV2Metadata(raw, attributes), old)  # type: ignore[no-any-return]
    raise array_not_found(place)


def read_group(place: StorePath, zarr_format: ZarrFormat | None, use_consolidated: bool | str | None = None) -> GroupMetadata:
    """Metadata of the group at a place.

    Raises
    ------
    GroupNotFoundError
        Nothing is there.
    ContainsArrayError
        An array is there.
    """
    document = _document(place, ZARR_JSON) if zarr_format != 2 else None
    old = _document(place, ZGROUP) if zarr_format != 3 else None
    if document is not None and old is not None:
        _warn_both_formats(place)
    if document is not None:
        if isinstance(use_consolidated, str):
            raise TypeError("use_consolidated names a key, which only format 2 has")
        if use_consolidated is False:
            document.pop("consolidated_metadata", None)
        elif use_consolidated and document.get("consolidated_metadata") is None:
            raise InvalidArgumentError(f"no consolidated metadata in store {place.store} at path '{place.path}'")
        return _parse(place, ZARR_JSON, GroupMetadata.from_dict, document)  # type: ignore[no-any-return]
    if old is not None:
        return _read_group_v2(place, old, use_consolidated)
    raise group_not_found(place)


def _read_group_v2(place: StorePath, document: dict[str, Any], use_consolidated: bool | str | None) -> GroupMetadata:
    attributes = _document(place, ZATTRS) or {}
    metadata: GroupMetadata = _parse(place, ZGROUP, GroupMetadata.from_dict, document | {"attributes": attributes})
    if use_consolidated is False:
        return metadata
    key = use_consolidated if isinstance(use_consolidated, str) else ZMETADATA
    stored = _document(place, key)
    if stored is None:
        if use_consolidated:
            raise InvalidArgumentError(f"no consolidated metadata '{place.key(key)}' in store {place.store}")
        return metadata
    consolidated = _parse(place, key, parse_consolidated_v2, stored)
    return replace(metadata, consolidated_metadata=consolidated)


def read_node(place: StorePath, zarr_format: ZarrFormat | None) -> AnyNodeMetadata | None:
    """Metadata of whatever is at a place, or ``None``."""
    if zarr_format != 2:
        document = _document(place, ZARR_JSON)
        if document is not None:
            is_array = document.get("node_type") == "array"
            parse = ArrayV3Metadata.from_dict if is_array else GroupMetadata.from_dict
            return _parse(place, ZARR_JSON, parse, document)  # type: ignore[no-any-return]
    if zarr_format != 3:
        for name, read in ((ZARRAY, read_array), (ZGROUP, read_group)):
            if place.get_document(name) is not None:
                return read(place, 2)  # type: ignore[operator,no-any-return]
    return None


def _kind_at(place: StorePath, zarr_format: ZarrFormat) -> str | None:
    if zarr_format == 2:
        array, group = (place.store.exists(place.key(name)) for name in (ZARRAY, ZGROUP))
        if array and group:
            raise ContainsArrayAndGroupError(
                f"both '{ZARRAY}' and '{ZGROUP}' are in store {place.store} at path '{place.path}'",
                hint="remove one of them",
            )
        return "array" if array else "group" if group else None
    raw = place.get_document(ZARR_JSON)
    if raw is None:
        return None
    try:
        kind = decode_document(raw).get("node_type")
    except MetadataValidationError:
        return None
    return kind if kind in ("array", "group") else None


def contains(place: StorePath, zarr_format: ZarrFormat | None) -> str | None:
    """``"array"``, ``"group"`` or ``None``."""
    formats: tuple[ZarrFormat, ...] = (3, 2) if zarr_format is None else (zarr_format,)
    return next((kind for each in formats if (kind := _kind_at(place, each)) is not None), None)


def ensure_absent(place: StorePath, zarr_format: ZarrFormat) -> None:
    """Raises when an array or a group of that format is at a place."""
    kind = _kind_at(place, zarr_format)
    if kind == "array":
        raise ContainsArrayError(f"an array is in store {place.store} at path '{place.path}'")
    if kind == "group":
        raise ContainsGroupError(f"a group is in store {place.store} at path '{place.path}'")


@contextmanager
def new_node(place: StorePath, metadata: AnyNodeMetadata, *, overwrite: bool) -> Iterator[None]:
    """Creates a node, and the groups it is in where they are missing, when the block ends.

    Elements that the block writes are stored before a reader finds the node. A node that is replaced is deleted before the
    block begins. In transactional stores the node is created when the block begins: readers see nothing before the commit.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node is there, and ``overwrite`` is off.
    InvalidArgumentError
        It would be inside an array.
    """
    documents = metadata.documents()
    place.store.check_writable()
    if not overwrite:
        ensure_absent(place, metadata.zarr_format)
    parents = [StorePath(place.store, path) for path in iterate_parents(place.path)]
    for parent in parents:
        if _kind_at(parent, metadata.zarr_format) == "array":
            raise InvalidArgumentError(f"{place} would be inside the array at '{parent.path}'; only groups hold nodes")
    was_consolidated = overwrite and place.store._handle.delete_node(place.path)
    # Where readers see nothing before all is committed, chunks are taken only of arrays that are there.
    is_transactional = place.store._handle.is_transactional()
    if not is_transactional:
        yield
    empty = GroupMetadata(zarr_format=metadata.zarr_format).documents()
    for parent in parents:
        for name, value in empty.items():
            place.store.set_if_not_exists(parent.key(name), value)
    # The first document makes the node. It is written last, so the node is never without its attributes.
    place.write(dict(reversed(documents.items())))
    if was_consolidated:
        place.store._handle.refresh_consolidated(place.path, True)
    if is_transactional:
        yield


def write_new(place: StorePath, metadata: AnyNodeMetadata, *, overwrite: bool) -> None:
    """Creates a node that has no elements; see :func:`new_node`."""
    with new_node(place, metadata, overwrite=overwrite):
        pass


def iterate_members(place: StorePath, zarr_format: ZarrFormat) -> Iterator[tuple[str, AnyNodeMetadata]]:
    """Names and metadata of the nodes directly below a place, sorted by name."""
    _, prefixes = place.store._handle.list_dir(place.path)
    for prefix in sorted(prefixes):
        child = StorePath(place.store, prefix)
        try:
            node = read_node(child, zarr_format)
        except NodeTypeValidationError:
            node = None
        if node is not None:
            yield prefix.rpartition("/")[2], node


def hierarchy_with_parents(nodes: Mapping[str, AnyNodeMetadata]) -> dict[str, AnyNodeMetadata | None]:
    """Nodes by path, with ``None`` for groups that are not listed, but that a node is in; parents before children.

    Raises
    ------
    InvalidArgumentError
        Formats are mixed, or a node is inside an array.
    """
    formats = {node.zarr_format for node in nodes.values()}
    if len(formats) > 1:
        raise InvalidArgumentError("the nodes are of both Zarr formats, and a hierarchy has one")
    complete: dict[str, AnyNodeMetadata | None] = dict(nodes)
    for path in nodes:
        for parent in iterate_parents(path):
            node = complete.setdefault(parent, None)
            if node is not None and not isinstance(node, GroupMetadata):
                raise InvalidArgumentError(f"'{path}' is inside the array '{parent}'; only groups hold nodes")
    return dict(sorted(complete.items(), key=lambda item: (item[0].count("/") if item[0] else -1, item[0])))


def _warn_both_formats(place: object) -> None:
    """Says that a node exists in both formats."""
    message = f"{printable(str(place))} has metadata of Zarr format 2 and of format 3; format 3 is used"
    warnings.warn(message, CuzarrUserWarning, stacklevel=5)

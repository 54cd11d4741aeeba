"""Finds and creates arrays and groups, and converts between their stored metadata and objects."""

from __future__ import annotations

import os
import random
import re
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._config import config
from cuzarr._metadata.array import ZARR_JSON, AnyArrayMetadata, Documents
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._metadata.group import GroupMetadata, node_of
from cuzarr._text import printable
from cuzarr.errors import (
    ArrayNotFoundError,
    ContainsArrayError,
    ContainsGroupError,
    CuzarrError,
    CuzarrUserWarning,
    GroupNotFoundError,
    MetadataValidationError,
    NodeTypeValidationError,
)
from cuzarr.storage import StorePath

# Limits for overwriting a node that other programs overwrite at the same time: attempts, and the pause between two of them.
_MOST_RACES = 100
_LONGEST_PAUSE_SECONDS = 0.02

FoundNode = tuple[Documents | _core.ArrayMetadata, _core.Consolidated | None, list[str]]
"""The Rust side's result for a found node: an array's metadata or a group's documents, consolidated metadata, and warnings."""

AnyNodeMetadata = AnyArrayMetadata | GroupMetadata

UNFINISHED = "cuzarr_unfinished"
"""Name of the attribute by which an array or group is marked as unfinished while cuzarr writes it. Its value is an object whose member
``work`` names the work."""


def check_zarr_format(zarr_format: Any) -> ZarrFormat | None:
    """Checks the argument ``zarr_format``: 2, 3, or ``None`` for either."""
    if zarr_format is None or isinstance(zarr_format, int | np.integer) and zarr_format in (2, 3):
        return zarr_format  # type: ignore[return-value]
    raise MetadataValidationError(f"zarr_format is {zarr_format!r}, expected 2, 3 or None")


def find_node(
    place: StorePath, zarr_format: ZarrFormat | None, use_consolidated: bool | str | None = None, *, arrays: bool | None = None
) -> AnyNodeMetadata | None:
    """Reads the metadata of the array or group at a path of a store; ``None`` if there is none.

    ``arrays`` limits the search to arrays (``True``) or groups (``False``), if the format has different names for their documents.
    """
    most = config._values()["metadata_max_bytes"]
    found = _core.find_node(place.store.handle, place.path, zarr_format, arrays, use_consolidated, most)
    if found is None:
        return None
    for message in found[2]:
        warnings.warn(printable(message), CuzarrUserWarning, stacklevel=5)
    return value_of(place, found)


def value_of(place: StorePath, found: FoundNode) -> AnyNodeMetadata:
    """Converts the metadata documents that were found at a path of a store to a metadata object."""
    documents, consolidated, _ = found

    def trail() -> tuple[str, str]:
        name = next(iter(documents if isinstance(documents, dict) else documents.stored()))
        return f"{place.store}", f"metadata '{place.key(name)}'"

    try:
        return node_of(documents, consolidated, trail)
    except CuzarrError as error:
        error.trail = (*trail(), *error.trail)
        raise


def array_not_found(place: StorePath) -> ArrayNotFoundError:
    """The error to raise if there is no array at a path of a store."""
    return ArrayNotFoundError(f"no array in store {_told(place)}", hint=_hint_of_absence(place))


def group_not_found(place: StorePath) -> GroupNotFoundError:
    """The error to raise if there is no group at a path of a store."""
    return GroupNotFoundError(f"no group in store {_told(place)}", hint=_hint_of_absence(place))


def nothing_found(place: StorePath) -> GroupNotFoundError:
    """The error to raise if there is neither an array nor a group at a path of a store."""
    return GroupNotFoundError(f"no array and no group in store {_told(place)}", hint=_hint_of_absence(place))


def _told(place: StorePath) -> str:
    return f"{place.store} at path '{place.path}'" if place.path else str(place.store)


def _hint_of_absence(place: StorePath) -> str | None:
    if (path := getattr(place.store, "root", None)) is None or os.path.exists(path):
        return None
    root = str(path)
    if above := next((folder for folder in Path(root).parents if folder.is_file()), None):
        inner = Path(root).relative_to(above).as_posix()
        is_zip = zipfile.is_zipfile(above)
        return (
            f"write 'zip://{inner}::file://{above.absolute()}' for a path inside of the file"
            if is_zip
            else f"'{above}' is a file"
        )
    if os.path.isabs(root):
        return f"there is no '{root}'"
    absent = f"there is no '{root}' in {os.getcwd()}"
    if root.startswith("~"):
        return f"{absent}; '~' is not expanded, use os.path.expanduser"
    if chain := re.fullmatch(r"([a-z][a-z0-9]+)::(.+)", root):
        return f"{absent}; if it is a chain of URLs, write '{chain[1]}::file://{os.path.abspath(chain[2])}'"
    if likely := re.fullmatch(r"([a-z][a-z0-9]+):/*(.+)", root):
        return f"{absent}; if it is a URL, write '{likely[1]}://{likely[2]}'"
    return absent


def read_array(place: StorePath, zarr_format: ZarrFormat | None) -> AnyArrayMetadata:
    """Reads the metadata of the array at a path of a store.

    Raises
    ------
    ArrayNotFoundError
        There is no node.
    NodeTypeValidationError
        The node is a group of format 3.
    """
    node = find_node(place, zarr_format, False, arrays=True)
    if node is None:
        raise array_not_found(place)
    if isinstance(node, GroupMetadata):
        error = NodeTypeValidationError("node_type is 'group', expected 'array'", hint="open it with open_group or open")
        error.trail = (f"{place.store}", f"metadata '{place.key(ZARR_JSON)}'")
        raise error
    return node


def read_group(place: StorePath, zarr_format: ZarrFormat | None, use_consolidated: bool | str | None = None) -> GroupMetadata:
    """Reads the metadata of the group at a path of a store.

    Raises
    ------
    GroupNotFoundError
        There is no node.
    ContainsArrayError
        An array is there.
    """
    if isinstance(use_consolidated, str) and zarr_format != 2 and find_node(place, 3, False) is not None:
        raise TypeError("use_consolidated is a key, which only format 2 supports")
    node = find_node(place, zarr_format, use_consolidated, arrays=False)
    if node is None:
        raise group_not_found(place)
    if not isinstance(node, GroupMetadata):
        error = ContainsArrayError("got metadata of an array, expected a group", hint="open it with open_array or open")
        error.trail = (f"{place.store}", f"metadata '{place.key(ZARR_JSON)}'")
        raise error
    return node


@contextmanager
def create_nodes(place: StorePath, nodes: Mapping[str, AnyNodeMetadata], *, overwrite: bool) -> Iterator[Sequence[str]]:
    """Creates arrays and groups at paths below a path of a store, and missing groups above them, when the ``with`` block ends.

    Yields the paths in the store of all nodes to create. A group comes before its members.

    Elements that the block writes are stored before a reader finds the node. A node that is replaced is deleted before the block
    begins. In transactional stores, the nodes are created when the block begins: readers see nothing before the commit.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node exists there, and ``overwrite`` is off; or the new node would be inside an array.
    """
    place.store.check_writable()
    handle = place.store.handle
    new = _core.NewNodes(
        handle, [((place / path if path else place).path, *node._given()) for path, node in nodes.items()], overwrite
    )
    # Transactional stores accept chunks only for arrays that exist.
    is_transactional = handle.is_transactional()
    if not is_transactional:
        yield new.paths
    new.publish(config._values()["json_indent"])
    if is_transactional:
        yield new.paths


def write_new(
    place: StorePath,
    nodes: AnyNodeMetadata | Mapping[str, AnyNodeMetadata],
    *,
    overwrite: bool,
    fill: Callable[[], None] | None = None,
) -> None:
    """Creates one node, or several below a path, and calls ``fill`` to write the elements of arrays first; see :func:`create_nodes`.

    If several programs overwrite a node at the same time, all but the first start again. So the last node stays.
    """
    new = nodes if isinstance(nodes, Mapping) else {"": nodes}
    for attempts_left in reversed(range(_MOST_RACES)):
        try:
            with create_nodes(place, new, overwrite=overwrite):
                if fill is not None:
                    fill()
            return
        except (ContainsArrayError, ContainsGroupError):
            if not overwrite or not attempts_left:
                raise
            time.sleep(random.random() * _LONGEST_PAUSE_SECONDS)

"""Summaries of arrays and groups, as lines and tables: ``info``, and the view of arrays and groups in notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Literal

from cuzarr._node.display import Tree, brief_repr, chunk_grid_svg
from cuzarr._text import Info, folded, human_bytes, human_ratio, names_text, printable, shortened
from cuzarr.errors import CuzarrError

_MOST_ATTRIBUTES = 20


def array_info(array: Any, stored_count: int | None = None, stored_bytes: int | None = None) -> Info:
    """The summary of an array, with the number and the size of its stored chunks or shards if they are given."""
    metadata = array.metadata
    return Info.of(
        [
            ("Type", type(array).__name__),
            ("Zarr format", metadata.zarr_format),
            ("Data type", metadata.data_type),
            ("Fill value", brief_repr(array.fill_value)),
            ("Shape", array.shape),
            ("Shard shape", _shape_text(array, "shards")),
            ("Chunk shape", _shape_text(array, "chunks")),
            ("Order", array.order),
            ("Read-only", array.read_only),
            ("Store type", array._store_kind),
            ("Device", array.device),
            ("Filters", array.filters),
            ("Serializer", array.serializer),
            ("Compressors", array.compressors),
            ("No. bytes", human_bytes(array.nbytes)),
            ("No. bytes stored", None if stored_bytes is None else human_bytes(stored_bytes)),
            ("Storage ratio", human_ratio(array.nbytes, stored_bytes) if stored_bytes else None),
            ("Shards Initialized" if _shape_text(array, "shards") else "Chunks Initialized", stored_count),
        ]
    )


def _shape_text(array: Any, what: Literal["chunks", "shards"]) -> object:
    """The shape of chunks or shards, for a summary. For a rectilinear grid, the lengths along each dimension, as in the metadata."""
    metadata = array.metadata
    if metadata._grid.is_regular:
        return getattr(array, what)
    if what == "chunks" and metadata.sharding_codec is not None:
        return metadata._inner_chunks
    if what == "shards" and metadata.sharding_codec is None:
        return None
    return brief_repr(metadata._grid.to_json()["configuration"]["chunk_shapes"])


def group_info(group: Any, members: Mapping[str, bool] | None) -> Info:
    """The summary of a group. ``members`` are counted if they are known; each value says whether the member is an array."""
    groups = None if members is None else sum(not is_array for is_array in members.values())
    return Info.of(
        [
            ("Name", group.path),
            ("Type", type(group).__name__),
            ("Zarr format", group.metadata.zarr_format),
            ("Read-only", group.read_only),
            ("Store type", group._store_kind),
            ("No. members", None if members is None else len(members)),
            ("No. arrays", None if members is None or groups is None else len(members) - groups),
            ("No. groups", groups),
        ]
    )


def array_html(array: Any) -> str:
    """An HTML table that describes an array, with a drawing of its chunks."""
    lines: list[tuple[str, object]] = [
        ("Store", array.store_path),
        ("Data type", array.metadata.data_type),
        ("Shape", array.shape),
        ("Dimensions", names_text(array._dimension_names)),
        ("Chunks", _shape_text(array, "chunks")),
        ("Shards", _shape_text(array, "shards")),
        ("Bytes", human_bytes(array.nbytes)),
        ("Device", array.device),
    ]
    lines += [(f"Codec {name}", place) for name, place in array.placements()]
    lines += _attribute_lines(array.metadata.attributes)
    metadata = array.metadata
    shards = metadata._stored_chunks if _shape_text(array, "shards") else None
    drawing = chunk_grid_svg(array.shape, metadata._inner_chunks, shards) if metadata._grid.is_regular else ""
    # Side by side if there is room, else one below the other.
    return f"<div style='display: flex; flex-wrap: wrap; align-items: center'>{Info.of(lines)._repr_html_()}{drawing}</div>"


def group_html(group: Any, tree: Tree | CuzarrError | None) -> str:
    """An HTML table that describes a group: its kind, its store and path, its attributes, and a tree of its members if it is given, or the
    error for which there is none."""
    lines: list[tuple[str, object]] = [
        ("Type", type(group).__name__),
        ("Store", group.store_path),
        ("Zarr format", group.metadata.zarr_format),
        ("Read-only", group.read_only),
        ("Consolidated", group.metadata.consolidated_metadata is not None),
    ]
    lines += _attribute_lines(group.metadata.attributes)
    if isinstance(tree, CuzarrError):
        lines.append(("Members", f"cannot be listed: {printable(shortened(tree.message))}"))
    table = Info.of(lines)._repr_html_()
    return f"{table}{folded('Members', tree.markup)}" if isinstance(tree, Tree) else table


def _attribute_lines(attributes: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Lines about the attributes for a summary of an array or group: one for each of the first attributes, and one with the number of
    further ones."""
    first = list(islice(attributes.items(), _MOST_ATTRIBUTES))
    lines: list[tuple[str, object]] = [(f"Attribute {printable(shortened(name))}", brief_repr(value)) for name, value in first]
    more = len(attributes) - len(first)
    return [*lines, ("Attributes", f"and {more} more")] if more else lines

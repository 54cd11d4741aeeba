"""Finds the kind of data of a group or an array, from anndata's attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cuzarr._compute.sources import is_node, place_of
from cuzarr._node.array import Array
from cuzarr._node.group import Group
from cuzarr._node.open import open_group
from cuzarr.errors import EncodingValidationError, UnsupportedFeatureError

if TYPE_CHECKING:
    from cuzarr.typing import AccessMode, StoreLike, SupportsStorePath


def group_of(given: Group | SupportsStorePath | StoreLike, mode: AccessMode = "r") -> Group:
    """Opens the group that an argument names: a group of cuzarr or zarr-python, or the path, URL or store of a group. With mode ``"a"``
    it is created if it is missing."""
    if isinstance(given, Group):
        return given
    return open_group(place_of(given) if is_node(given) else given, mode=mode)  # type: ignore[arg-type]


def encoding_of(node: Array | Group, known: Mapping[str, str]) -> str:
    """The encoding of a node, such as ``"categorical"``, from its attribute ``encoding-type``. ``known`` has the version of each type that
    is read.

    Raises
    ------
    UnsupportedFeatureError
        The node has another encoding, another version of an encoding, or no encoding.
    """
    kind, version = (node.attrs.get(f"encoding-{what}") for what in ("type", "version"))
    if not isinstance(kind, str):
        message = "there is no attribute 'encoding-type'"
        hint = "read it with anndata, which knows older formats, and write it again"
        raise UnsupportedFeatureError(message, trail=trail(node), hint=hint)
    if known.get(kind) == version:
        return kind
    expected = ", ".join(f"{name} {number}" for name, number in known.items())
    raise UnsupportedFeatureError(f"the encoding is {kind} {version}, expected one of {expected}", trail=trail(node))


def trail(node: Array | Group) -> tuple[str]:
    """Names an array or a group for an error message, by its kind and its path."""
    return (f"{'array' if isinstance(node, Array) else 'group'} '{node.name}'",)


def broken(node: Array | Group, message: str) -> EncodingValidationError:
    """Makes the error for a node that breaks the encoding that its attributes name."""
    return EncodingValidationError(message, trail=trail(node), hint="write it again; this data is damaged")

"""Finds the datasets that become a tree in xarray: one for each group, and one for each resolution level of an image in one group."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray

from cuzarr._node.array import Array
from cuzarr._node.group import Group
from cuzarr.errors import CuzarrError
from cuzarr.ome import Axis, Image, Level, image_of

# The variable of a level that has a dataset of its own. Other libraries write levels under this name.
_IMAGE = "image"
# Axes whose positions become coordinates. Elements along other axes, such as channels, are only counted.
_MEASURED = ("space", "time")


@dataclass
class ImageLevel:
    """One resolution level of an OME-Zarr image, with the image's axes and channels."""

    axes: tuple[Axis, ...]
    channels: tuple[str, ...]
    level: Level

    def names(self, array: Array) -> tuple[str, ...] | None:
        """The names of the image's axes, to name the dimensions of an array of this level; ``None`` if the array has another number of
        dimensions."""
        return tuple(axis.name for axis in self.axes) if len(self.axes) == array.ndim else None

    def coordinates(self, variable: xarray.Variable) -> dict[str, xarray.Variable]:
        """Positions of the elements along the axes of an image, and the labels of its channels."""
        found = {}
        for number, axis in enumerate(self.axes):
            extent = dict(variable.sizes).get(axis.name)
            if extent is None:
                continue
            if axis.type == "channel" and len(set(self.channels)) == extent:
                found[axis.name] = xarray.Variable((axis.name,), np.array(self.channels))
            elif axis.type in _MEASURED and self.level.scale is not None:
                first = 0.0 if self.level.translation is None else self.level.translation[number]
                places = first + self.level.scale[number] * np.arange(extent)
                found[axis.name] = xarray.Variable((axis.name,), places, {} if axis.unit is None else {"units": axis.unit})
        return found


@dataclass
class Members:
    """The group from which an xarray dataset is made, and the arrays of the group that become variables.

    Attributes
    ----------
    arrays : dict of str to Array, optional
        The arrays by the names of variables. ``None`` for all arrays directly in the group.
    levels : dict of str to ImageLevel
        The level of each variable that is a level of an image.
    attributes : mapping, optional
        The attributes of the dataset; by default the group's.
    """

    group: Group
    arrays: dict[str, Array] | None = None
    levels: dict[str, ImageLevel] = field(default_factory=dict)
    attributes: Mapping[str, Any] | None = None


def members_of(root: Group, dropped: Container[str], strict: bool) -> dict[str, Members]:
    """Finds the datasets below a group, by their paths, in one walk through the hierarchy.

    Levels of an image that lie directly in the image's group get separate datasets, because they differ in size along the same dimensions.
    """
    found = {"": Members(root, {})}
    for path, node in root._nodes(None, dropped=dropped, strict=strict):
        parent, _, name = path.rpartition("/")
        if isinstance(node, Group):
            found[path] = Members(node, {})
        elif parent in found:
            found[parent].arrays[name] = node  # type: ignore[index]  # filled here
    for path, members in list(found.items()):
        image = _image_of(members.group)
        for level in () if image is None else image.levels:
            below = f"{path}/{level.path}".strip("/")
            parent, _, name = below.rpartition("/")
            if parent not in found or name not in (found[parent].arrays or {}):
                continue
            described = ImageLevel(image.axes, image.channels, level)  # type: ignore[union-attr]
            if parent == path:
                array = members.arrays.pop(name)  # type: ignore[union-attr]
                found[below] = Members(members.group, {_IMAGE: array}, {_IMAGE: described}, {})
            else:
                found[parent].levels[name] = described
    return found


def _image_of(group: Group) -> Image | None:
    """The OME-Zarr image that a group's attributes describe, or ``None``. Unusable attributes count as no image, because the arrays can be
    opened without them."""
    try:
        return image_of(group)
    except CuzarrError:
        return None

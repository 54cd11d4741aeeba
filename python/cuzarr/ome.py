"""Opens images and plates of OME-Zarr 0.1 to 0.6: levels, axes and scales of an image, and the fields of a plate's wells.

:func:`open_image` opens an image, and :func:`open_plate` a plate of high-content screening. Only metadata is read. The arrays are
ordinary arrays: select from them, or give them to :class:`cuzarr.loader.SampleStream`. :func:`cuzarr.pyramid` writes images.

>>> import cuzarr, numpy as np
>>> made = cuzarr.pyramid(np.zeros((512, 512), "u1"), {}, axes="yx", scale=(0.5, 0.5), units=("micrometer", "micrometer"))
>>> image = cuzarr.ome.open_image(made)
>>> [(level.path, level.scale) for level in image.levels]
[('0', (0.5, 0.5)), ('1', (1.0, 1.0))]
>>> image.array(1).shape
(256, 256)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cuzarr import _core, _names
from cuzarr._checks import axis_number, items, whole
from cuzarr._compute.sources import is_node, place_of
from cuzarr._metadata.documents import group_not_found
from cuzarr._metadata.group import GroupMetadata
from cuzarr._node import members
from cuzarr._node.array import Array
from cuzarr._node.group import Group
from cuzarr._node.open import open_group
from cuzarr._node.writer import Writer
from cuzarr.errors import BoundsCheckError, CuzarrError, InvalidArgumentError, MetadataValidationError, ReadOnlyError

if TYPE_CHECKING:
    from cuzarr.typing import StoreLike, SupportsStorePath

__all__ = ["Axis", "Field", "Image", "Level", "Plate", "open_image", "open_plate"]

# Attributes that describe an image, in all versions and in GeoZarr.
_OF_IMAGES = ("ome", "multiscales", "omero")


@dataclass(frozen=True)
class Axis:
    """A dimension of an image.

    Parameters
    ----------
    name : str
        Its name, such as ``"z"``.
    type : str, optional
        The kind of axis, such as ``"space"``, ``"time"`` or ``"channel"``.
    unit : str, optional
        The unit of its coordinates, such as ``"micrometer"``.

    Raises
    ------
    dataclasses.FrozenInstanceError
        An attribute is assigned: the values are those of the stored metadata.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.ome.Axis("y", "space", "micrometer").unit
    'micrometer'
    """

    name: str
    type: str | None = None
    unit: str | None = None


@dataclass(frozen=True)
class Level:
    """One resolution level of an image, stored as an array.

    Parameters
    ----------
    path : str
        Its path below the image's group.
    scale : tuple of float, optional
        Size of an element along each axis; ``None`` if the attributes do not have it.
    translation : tuple of float, optional
        Position of the middle of the first element; ``None`` if the attributes do not have it.

    Raises
    ------
    dataclasses.FrozenInstanceError
        An attribute is assigned: the values are those of the stored metadata.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.ome.Level("0", (0.5, 0.5)).scale
    (0.5, 0.5)
    """

    path: str
    scale: tuple[float, ...] | None = None
    translation: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Image:
    """An image that is stored at one or several resolutions.

    Parameters
    ----------
    group : Group
        The group of the image.
    name : str, optional
        The image's name.
    version : str, optional
        The version of OME-Zarr.
    axes : tuple of Axis
        The dimensions. In OME-Zarr 0.6 they are the axes of the coordinate system that the levels are mapped to. Empty if they have no
        names.
    levels : tuple of Level
        The arrays, from the largest to the smallest.
    channels : tuple of str
        The labels of the channels; empty if there are none.

    Raises
    ------
    BoundsCheckError, ArrayNotFoundError
        From :meth:`array`: the image has no such level, or the level has no array.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> image = cuzarr.ome.open_image(cuzarr.pyramid(np.zeros((2, 64, 64), "u1"), {}, axes="cyx", channels=["DAPI", "GFP"]))
    >>> image, [axis.name for axis in image.axes], image.channels
    (<image 'image' of 1 levels>, ['c', 'y', 'x'], ('DAPI', 'GFP'))
    """

    group: Group
    name: str | None
    version: str | None
    axes: tuple[Axis, ...]
    levels: tuple[Level, ...]
    channels: tuple[str, ...]

    def array(self, level: int = 0) -> Array:
        """Open the array of one level.

        Parameters
        ----------
        level : int
            The number of the level: 0 is the largest, and -1 the smallest.

        Returns
        -------
        Array
            The array. Its elements are read when they are selected.

        Raises
        ------
        BoundsCheckError
            The image has no such level.
        ArrayNotFoundError, ContainsGroupError
            Nothing is at the level's path, or a group is.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> cuzarr.ome.open_image(cuzarr.pyramid(np.zeros((512, 300), "u1"), {})).array(-1).shape
        (256, 150)
        """
        return self.group.get_array(self._path(level))

    def arrays(self) -> list[Array]:
        """Open the arrays of all levels, in one round of requests.

        Returns
        -------
        list of Array
            The arrays, from the largest to the smallest.

        Raises
        ------
        ArrayNotFoundError, ContainsGroupError
            Nothing is at a level's path, or a group is.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> [array.shape for array in cuzarr.ome.open_image(cuzarr.pyramid(np.zeros((512, 300), "u1"), {})).arrays()]
        [(512, 300), (256, 150)]
        """
        return list(self.group._arrays_at([level.path for level in self.levels]).values())

    def writer(self, axis: int | str = 0, *, method: str = "mean", slots: int = 2, resume: bool = False) -> Writer:
        """Open a writer that takes planes, or other rows along an axis, and makes the coarser levels on the way.

        The rows of all levels are stored together: level 0 counts, and the others never have more. After a kill, ``resume`` makes again
        what they lack.

        Parameters
        ----------
        axis : int or str
            A number, or the name of one of :attr:`axes`.
        method : {"mean", "gaussian", "max", "nearest", "mode"}
            How elements become one, as for :func:`cuzarr.pyramid`. ``"gaussian"`` needs levels that keep all rows.
        slots, resume
            As for :meth:`cuzarr.Array.writer`.

        Returns
        -------
        cuzarr.writer.Writer
            It takes rows of level 0.

        Raises
        ------
        ReadOnlyError
            The image was opened for reading, as :func:`open_image` does with a path.
        MetadataValidationError
            The attributes do not have the scales of the levels, or a scale is not a multiple of the one before.
        CuzarrError
            As for :meth:`cuzarr.Array.writer`.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> image = cuzarr.ome.open_image(cuzarr.pyramid(np.zeros((0, 512, 300), "u1"), {}, axes="tyx"))
        >>> with image.writer("t") as camera:
        ...     for time in range(3):
        ...         camera.append(np.full((512, 300), time, "u1"))
        >>> [array.shape for array in image.arrays()]
        [(3, 512, 300), (3, 256, 150)]
        """
        finest = self.array()
        if finest.store.read_only:
            hint = "open it by cuzarr.ome.open_image(cuzarr.open_group(path))"
            raise ReadOnlyError(f"the image '{self.group.path}' was opened for reading", hint=hint)
        number = axis_number(axis, finest.ndim, [one.name for one in self.axes] or None)
        levels = [(self.array(level), self._factors(level)) for level in range(1, len(self.levels))]
        return finest.writer(number, slots=slots, resume=resume, levels=levels, method=method)

    def _factors(self, level: int) -> list[int]:
        """The number of elements of the level before that become one element of ``level``, along each axis."""
        before, own = self.levels[level - 1].scale, self.levels[level].scale
        factors = []
        for one, other in zip(own or (), before or (), strict=False):
            ratio = one / other if other > 0 else 0.0
            if not 0.999 < ratio < 1e9 or abs(ratio - round(ratio)) > 1e-3 * ratio:
                break
            factors.append(round(ratio))
        if not own or len(factors) < len(own):
            message = f"level '{self.levels[level].path}' has the scale {own}, the level before {before}"
            hint = "each scale must be a multiple of the one before; else name the levels and their factors to Array.writer"
            raise MetadataValidationError(message, hint=hint)
        return factors

    def _path(self, level: int) -> str:
        try:
            return self.levels[level].path
        except IndexError:
            raise BoundsCheckError(f"level is {level}, the image '{self.group.path}' has {len(self.levels)} levels") from None

    def __repr__(self) -> str:
        return f"<image {self.name or self.group.path!r} of {len(self.levels)} levels>"


@dataclass(frozen=True, eq=False, repr=False)
class Field:
    """A field of view: one image of a well.

    Parameters
    ----------
    path : str
        The path of the image below the plate's group, such as ``"B/3/0"``.
    row, column : str
        The names of the well's row and column, such as ``"B"`` and ``"3"``.
    acquisition : int, optional
        The number of the acquisition, if the well names it.
    image : Image
        The image.
    array : Array
        The array of the level that the plate was opened with.

    Raises
    ------
    dataclasses.FrozenInstanceError
        An attribute is assigned: the values are those of the stored metadata.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.pyramid(np.zeros((64, 64), "u1"), {})
    >>> field = cuzarr.ome.Field("B/3/0", "B", "3", None, cuzarr.ome.open_image(group), group.get_array("0"))
    >>> field, field.well
    (<field 'B/3/0' of shape (64, 64)>, 'B/3')
    """

    path: str
    row: str
    column: str
    acquisition: int | None
    image: Image
    array: Array

    @property
    def well(self) -> str:
        """The path of the well below the plate's group, such as ``"B/3"``."""
        return f"{self.row}/{self.column}"

    def __repr__(self) -> str:
        return f"<field {self.path!r} of shape {self.array.shape}>"


@dataclass(frozen=True, eq=False, repr=False)
class Plate:
    """A plate of high-content screening: a grid of wells, each with one or several images.

    Parameters
    ----------
    group : Group
        The group of the plate.
    name : str, optional
        The plate's name.
    rows, columns : tuple of str
        The names of all rows and columns, those without wells included.
    acquisitions : dict of int to str
        The names of the acquisitions, by their numbers. The name is empty if there is none.
    fields : tuple of Field
        The fields of all wells that were opened, well by well, in the order of the attributes.

    Raises
    ------
    dataclasses.FrozenInstanceError
        An attribute is assigned: the values are those of the stored metadata.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.pyramid(np.zeros((64, 64), "u1"), {})
    >>> field = cuzarr.ome.Field("B/3/0", "B", "3", None, cuzarr.ome.open_image(group), group.get_array("0"))
    >>> plate = cuzarr.ome.Plate(group, "screen", ("A", "B"), ("3",), {}, (field,))
    >>> plate, plate.wells
    (<plate 'screen' of 1 wells, 1 fields>, {'B/3': [<field 'B/3/0' of shape (64, 64)>]})
    """

    group: Group
    name: str | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    acquisitions: dict[int, str]
    fields: tuple[Field, ...]

    @property
    def wells(self) -> dict[str, list[Field]]:
        """The fields of each well, by the well's path, such as ``"B/3"``."""
        wells: dict[str, list[Field]] = {}
        for field in self.fields:
            wells.setdefault(field.well, []).append(field)
        return wells

    def __repr__(self) -> str:
        return f"<plate {self.name or self.group.path!r} of {len(self.wells)} wells, {len(self.fields)} fields>"


def open_image(source: Group | SupportsStorePath | StoreLike) -> Image:
    """Open an image of OME-Zarr 0.1 to 0.6. If a group has several images, the first one is opened.

    Images of GeoZarr's ``multiscales`` are opened, too. They have no axes.

    Parameters
    ----------
    source : Group, or StoreLike
        The group of the image, or its path, URL or store. Open the group with ``device=`` to read the image to another device.

    Returns
    -------
    Image
        Its levels, axes and scales.

    Raises
    ------
    InvalidArgumentError
        The group is not an image.
    MetadataValidationError
        The attributes do not follow their version of the specification.
    UnsupportedError
        The version of OME-Zarr or a transformation of a level is not known.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> image = cuzarr.ome.open_image(cuzarr.pyramid(np.zeros((64, 64), "u1"), {}, version="0.6"))
    >>> image.version, image.levels
    ('0.6', (Level(path='0', scale=(1.0, 1.0), translation=(0.0, 0.0)),))
    """
    group = _group_of(source)
    image = image_of(group)
    if image is None:
        hint = "use open_plate" if "plate" in _ome(group) else "choose a group with the attribute 'multiscales'"
        raise InvalidArgumentError(f"the group '{group.path}' is no image of OME-Zarr", hint=hint)
    return image


def image_of(group: Group) -> Image | None:
    """The image that a group's attributes describe; ``None`` if they do not describe an image.

    Raises
    ------
    MetadataValidationError, UnsupportedError
    """
    attributes = group.metadata.attributes
    own = {name: attributes[name] for name in _OF_IMAGES if name in attributes}
    if not own:
        return None
    try:
        found = _core.multiscales(own)
    except CuzarrError as error:
        error.trail = (f"image '{group.path}'", *error.trail)
        raise
    if found is None:
        return None
    return Image(
        group,
        found["name"],
        found["version"],
        tuple(Axis(**axis) for axis in found["axes"]),
        tuple(
            Level(level["path"], tuple(level["scale"]) or None, tuple(level["translation"]) or None) for level in found["levels"]
        ),
        tuple(found["channels"]),
    )


def open_plate(source: Group | SupportsStorePath | StoreLike, level: int = 0, *, wells: Iterable[str] | None = None) -> Plate:
    """Open a plate of OME-Zarr, with the arrays of one level of all its fields.

    The metadata of all wells is read in one round of requests, then that of all fields, and then that of all arrays. A plate with
    consolidated metadata needs no request at all if it is opened with ``mode="r"``.

    Parameters
    ----------
    source : Group, or StoreLike
        The group of the plate, or its path, URL or store. Open the group with ``device=`` to read the images to another device.
    level : int
        The level whose arrays are opened: 0 is the largest of each image, and -1 the smallest.
    wells : iterable of str, optional
        The paths of the wells to open, such as ``["B/3"]``. By default all wells.

    Returns
    -------
    Plate
        The plate, with its fields.

    Raises
    ------
    InvalidArgumentError
        The group is not a plate, or the plate has no such well.
    MetadataValidationError
        The attributes of the plate, of a well or of an image cannot be used. The error names the group.
    GroupNotFoundError, ArrayNotFoundError
        A well, an image or an array that the attributes name is missing.
    BoundsCheckError
        An image has no such level.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> described = {"rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]}
    >>> group = cuzarr.create_group({}, attributes={"ome": {"version": "0.5", "plate": described}})
    >>> _ = group.create_group("A/1", attributes={"ome": {"version": "0.5", "well": {"images": [{"path": "0"}]}}})
    >>> _ = cuzarr.pyramid(np.zeros((64, 64), "u1"), group.store, path="A/1/0")
    >>> plate = cuzarr.ome.open_plate(group)
    >>> stream = cuzarr.loader.SampleStream([{"image": (field.array, ...)} for field in plate.fields], 8)
    >>> [batch["image"].shape for batch in stream]
    [(1, 64, 64)]
    """
    group, number = _group_of(source), whole(level, "level")
    described = _ome(group).get("plate")
    if described is None:
        raise InvalidArgumentError(
            f"the group '{group.path}' is no plate of OME-Zarr", hint="choose a group with the attribute 'plate'"
        )
    where = f"plate '{group.path}'"
    plate = _object(described, "plate", where)
    rows, columns = (_names_of(plate, name, where) for name in ("rows", "columns"))
    listed_wells = [_place(well, rows, columns, where) for well in _objects(plate, "wells", where)]
    places = dict(listed_wells)
    if len(places) < len(listed_wells):
        raise _damaged("wells", plate["wells"], "each well once", where)
    if wells is not None:
        wanted = list(items(wells, "wells", "a list of paths of wells"))
        if missing := [path for path in wanted if path not in places]:
            hint = _names.did_you_mean(missing[0], places) or f"there are {', '.join(map(repr, list(places)[:8]))}"
            raise InvalidArgumentError(f"the {where} has no well {missing[0]!r}", hint=hint)
        places = {path: places[path] for path in wanted}
    listed = _objects(plate, "acquisitions", where) if plate.get("acquisitions") else []
    acquisitions = {_number(one, "id", where): _text(one.get("name")) or "" for one in listed}
    if len(acquisitions) < len(listed):
        raise _damaged("acquisitions", listed, "each id once", where)
    named = {
        f"{path}/{name}": (row, column, acquisition)
        for (path, (row, column)), well in zip(places.items(), _groups_at(group, list(places), where), strict=True)
        for name, acquisition in _images_of(well, f"{where}, well '{path}'")
    }
    images = []
    for path, field in zip(named, _groups_at(group, list(named), where), strict=True):
        image = image_of(field)
        if image is None:
            raise MetadataValidationError("the attribute 'multiscales' is missing", trail=(where, f"field '{path}'"))
        images.append(image)
    arrays = group._arrays_at([f"{path}/{image._path(number)}" for path, image in zip(named, images, strict=True)])
    fields = tuple(
        Field(path, *named[path], image, array) for path, image, array in zip(named, images, arrays.values(), strict=True)
    )
    return Plate(group, _text(plate.get("name")), rows, columns, acquisitions, fields)


def _group_of(given: Group | SupportsStorePath | StoreLike) -> Group:
    if isinstance(given, Group):
        return given
    return open_group(place_of(given) if is_node(given) else given, mode="r")  # type: ignore[arg-type]


def _ome(group: Group) -> Mapping[str, Any]:
    """The OME-Zarr attributes of a group: the members of ``ome`` from version 0.5 on, else all attributes."""
    attributes = group.metadata.attributes
    own = attributes.get("ome")
    return own if isinstance(own, Mapping) else attributes


def _groups_at(group: Group, paths: Sequence[str], where: str) -> list[Group]:
    """Opens the groups at paths below the plate, by one round of requests.

    Raises
    ------
    GroupNotFoundError
        One of the groups is missing.
    """
    found = members.at(group._store_path, group._metadata, paths)
    for path, metadata in zip(paths, found, strict=True):
        if not isinstance(metadata, GroupMetadata):
            error = group_not_found(group._store_path / path)
            error.trail = (f"{where}, which names '{path}'", *error.trail)
            raise error
    return [group._node(path, metadata) for path, metadata in zip(paths, found, strict=True)]  # type: ignore[misc, arg-type]


def _images_of(well: Group, where: str) -> list[tuple[str, int | None]]:
    """For each field of a well, its path relative to the well, and the number of its acquisition."""
    described = _object(_ome(well).get("well"), "well", where)
    images = _objects(described, "images", where)
    found = {_path(one, where): None if one.get("acquisition") is None else _number(one, "acquisition", where) for one in images}
    if len(found) < len(images):
        raise _damaged("images", images, "a path once", where)
    return list(found.items())


def _place(well: Mapping[str, Any], rows: Sequence[str], columns: Sequence[str], where: str) -> tuple[str, tuple[str, str]]:
    """The path of a well, and the names of its row and column. Before version 0.4, only the path contained these names."""
    path = _path(well, where)
    named = tuple(path.split("/"))
    if "rowIndex" in well or "columnIndex" in well:
        row, column = _number(well, "rowIndex", where), _number(well, "columnIndex", where)
        is_right = row < len(rows) and column < len(columns) and named == (rows[row], columns[column])
    else:
        is_right = len(named) == 2 and named[0] in rows and named[1] in columns
    if not is_right:
        raise _damaged("wells", dict(well), "the path of a row and a column, such as 'A/1', with the numbers of both", where)
    return path, (named[0], named[1])


def _damaged(name: str, got: object, expected: str, where: str) -> MetadataValidationError:
    return MetadataValidationError(f"the attribute '{name}' is {got!r}, expected {expected}", trail=(where,))


def _object(value: object, name: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _damaged(name, value, "an object", where)
    return value


def _objects(described: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    value = described.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        raise _damaged(name, value, "a list of objects", where)
    return value


def _names_of(described: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    names = tuple(_text(one.get("name")) for one in _objects(described, name, where))
    if None in names or len(set(names)) < len(names):
        raise _damaged(name, described[name], "objects with a name each, no name twice", where)
    return names  # type: ignore[return-value]  # as was just seen


def _path(described: Mapping[str, Any], where: str) -> str:
    path = described.get("path")
    if not isinstance(path, str) or not path.strip("/") or {"", ".", ".."} & set(path.strip("/").split("/")):
        raise _damaged("path", path, "a path below the group", where)
    return path.strip("/")


def _number(described: Mapping[str, Any], name: str, where: str) -> int:
    number = described.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise _damaged(name, number, "a whole number of at least 0", where)
    return number


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


_names.publish(globals())

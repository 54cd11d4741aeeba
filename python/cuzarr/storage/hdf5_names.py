"""Names and attributes in HDF5 files, as netCDF-4 means them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

# What h5py raises for objects that it cannot read.
ODD = (OSError, RuntimeError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)

# What netCDF keeps in attributes for itself.
_OWN = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_NCProperties", "_nc3_strict", "_Netcdf4Dimid",
        "_Netcdf4Coordinates")  # fmt: skip
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
# How the name of a variable begins that has the name of a dimension and is not its coordinate.
_NO_COORDINATE = "_nc4_non_coord_"

_DOCUMENTS = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json")


def plain_name(name: str) -> str:
    """The name that netCDF shows of a dataset."""
    return name.removeprefix(_NO_COORDINATE) or name


def why_no_key(name: str) -> str | None:
    """Why Zarr can have no member of this name; ``None`` if it can."""
    if re.search(r"[\x00\\\ud800-\udfff]", name):
        return "its name has characters that a key of Zarr cannot have"
    return "its name is that of a document of Zarr" if name in _DOCUMENTS else None


def is_placeholder(dataset: Any) -> bool:
    """Whether a dataset stands for a dimension that has no variable."""
    try:
        return bytes(dataset.attrs.get("NAME", b"")).startswith(_NO_VARIABLE)
    except ODD:
        return False


class Dimensions:
    """The dimensions of a file's datasets: their names, and how long those are that grow.

    Parameters
    ----------
    datasets : iterable of (str, h5py.Dataset)
        All datasets of the file, with their paths in it.
    """

    def __init__(self, datasets: Iterable[tuple[str, Any]]) -> None:
        listed = [(path, dataset) for path, dataset in datasets if _has_shape(dataset)]
        # HDF5 searches the file for the name of an object that an attribute refers to.
        self._paths = {dataset.id: path for path, dataset in reversed(listed)}
        # Paths of scales by the numbers that netCDF gives dimensions.
        self._by_number: dict[int, str] = {}
        for path, dataset in listed:
            number = _attribute(dataset, "_Netcdf4Dimid")
            if number is not None and np.size(number) == 1 and _is_scale(dataset) and dataset.ndim:
                self._by_number[int(np.reshape(number, -1)[0])] = path
        self._scales = {path: self._find_scales(path, dataset) for path, dataset in listed}
        self._lengths: dict[str, int] = {}
        for path, dataset in listed:
            if dataset.ndim and _is_scale(dataset) and dataset.maxshape[0] is None:
                self._lengths[path] = dataset.shape[0]
        for path, dataset in listed:
            for axis, scale in enumerate(self._scales[path]):
                if scale in self._lengths and dataset.maxshape[axis] is None:
                    self._lengths[scale] = max(self._lengths[scale], dataset.shape[axis])
        # Lengths by names, for each group.
        self._known: dict[str, dict[str, int]] = {}
        for path, dataset in listed:
            known = self._known.setdefault(posixpath.dirname(path), {})
            for name, extent in zip(self._given(path, dataset), self.shape(path, dataset), strict=True):
                if name:
                    known.setdefault(name, extent)

    def __contains__(self, path: str) -> bool:
        return path in self._scales

    def _find_scales(self, path: str, dataset: Any) -> list[str]:
        """The path of the scale of each dimension; empty for one without."""
        numbers = _attribute(dataset, "_Netcdf4Coordinates")
        if numbers is not None and np.size(numbers) == dataset.ndim:
            found = [self._by_number.get(int(number), "") for number in np.reshape(numbers, -1)]
            if all(found):
                return found
        if _is_scale(dataset):
            # The first dimension of a coordinate of several is the coordinate's own.
            return [path, *[""] * (dataset.ndim - 1)] if dataset.ndim else []
        listed = _attribute(dataset, "DIMENSION_LIST")
        if listed is None or np.size(listed) != dataset.ndim:
            return [""] * dataset.ndim
        return [self._first_scale(dataset, scales) for scales in listed]

    def _first_scale(self, dataset: Any, scales: Any) -> str:
        try:
            return self._paths.get(dataset.file[scales[0]].id, "") if len(scales) else ""
        except ODD:
            return ""

    def _given(self, path: str, dataset: Any) -> list[str]:
        names = [plain_name(posixpath.basename(scale)) for scale in self._scales[path]]
        return [name or _label(dataset, axis) for axis, name in enumerate(names)]

    def shape(self, path: str, dataset: Any) -> tuple[int, ...]:
        """The lengths of a dataset's dimensions. One that grows is as long as in the dataset that has most of it."""
        grows = zip(self._scales[path], dataset.shape, dataset.maxshape, strict=True)
        return tuple(self._lengths.get(scale, extent) if most is None else extent for scale, extent, most in grows)

    def names(self, path: str, dataset: Any) -> list[str]:
        """The names of a dataset's dimensions. Those without one get ``phony_dim_N``; in one group, equal names are equally long."""
        names = self._given(path, dataset)
        known = self._known.setdefault(posixpath.dirname(path), {})
        for axis, extent in enumerate(self.shape(path, dataset)):
            number = axis
            while not names[axis]:
                name = f"phony_dim_{number}"
                if known.setdefault(name, extent) == extent and name not in names:
                    names[axis] = name
                number += 1
        return names


def _attribute(node: Any, name: str) -> Any:
    try:
        return node.attrs.get(name)
    except ODD:
        return None


def _has_shape(dataset: Any) -> bool:
    try:
        return dataset.shape is not None and dataset.maxshape is not None
    except ODD:
        return False


def _is_scale(dataset: Any) -> bool:
    try:
        return bool(dataset.is_scale)
    except ODD:
        return False


def _label(dataset: Any, axis: int) -> str:
    try:
        return unicode_text(dataset.dims[axis].label)
    except ODD:
        return ""


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of a group or dataset as JSON, without netCDF's own and those that are no values."""
    found: dict[str, Any] = {}
    try:
        names = list(node.attrs)
    except ODD:
        return found
    for name in names:
        try:
            plain = None if name in _OWN else as_json(node.attrs[name])
        except ODD:
            continue
        if plain is not None:
            found[unicode_text(name)] = plain
    return found


def unicode_text(text: str | bytes) -> str:
    """Text without bytes of other encodings."""
    return (text if isinstance(text, bytes) else text.encode(errors="surrogateescape")).decode(errors="replace")


def as_json(value: Any) -> Any:
    """A value as JSON; ``None`` for what is no value, such as references."""
    if isinstance(value, bytes | str):
        return unicode_text(value)
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "OSU":
            values = [as_json(one) for one in np.asarray(value).reshape(-1).tolist()]
            return None if None in values else values if isinstance(value, np.ndarray) and value.size != 1 else values[0]
        if value.dtype.kind not in "biuf":
            return None
        plain = value.tolist()
        return plain[0] if isinstance(plain, list) and len(plain) == 1 else plain
    return value if isinstance(value, int | float | bool) else None

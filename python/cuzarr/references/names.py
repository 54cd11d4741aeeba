"""Converts names and attributes in HDF5 files, as netCDF-4 defines them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

H5PY_ERRORS = (OSError, RuntimeError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""Errors that h5py raises for objects that it cannot read."""

# Attributes that netCDF and HDF5 use internally.
_OWN = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_NCProperties", "_nc3_strict", "_Netcdf4Dimid",
        "_Netcdf4Coordinates")  # fmt: skip
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
# Prefix of a variable that has the name of a dimension but is not its coordinate.
_NO_COORDINATE = "_nc4_non_coord_"

_DOCUMENTS = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json")


def plain_name(name: str) -> str:
    """The name that netCDF shows for a dataset with this name in HDF5."""
    return name.removeprefix(_NO_COORDINATE) or name


def why_no_key(name: str) -> str | None:
    """The reason why an array or group in Zarr cannot have this name; ``None`` if it can."""
    if re.search(r"[\x00\\\ud800-\udfff]", name):
        return "its name has characters that a key of Zarr cannot have"
    return "its name is that of a document of Zarr" if name in _DOCUMENTS else None


def is_placeholder(dataset: Any) -> bool:
    """Whether an HDF5 dataset has no data, and only stands for a netCDF dimension that has no variable."""
    try:
        return bytes(dataset.attrs.get("NAME", b"")).startswith(_NO_VARIABLE)
    except H5PY_ERRORS:
        return False


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of an HDF5 group or dataset as JSON, without netCDF's internal ones and those without a JSON form."""
    found: dict[str, Any] = {}
    try:
        names = list(node.attrs)
    except H5PY_ERRORS:
        return found
    for name in names:
        try:
            plain = None if name in _OWN else as_json(node.attrs[name])
        except H5PY_ERRORS:
            continue
        if plain is not None:
            found[unicode_text(name)] = plain
    return found


def unicode_text(text: str | bytes) -> str:
    """Converts text to valid Unicode: bytes of other encodings are replaced."""
    return (text if isinstance(text, bytes) else text.encode(errors="surrogateescape")).decode(errors="replace")


def as_json(value: Any) -> Any:
    """Converts an attribute's value to JSON; ``None`` for objects without a JSON form, such as references."""
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

"""Converts fill values of HDF5 and netCDF to fill values of Zarr format 2."""

from __future__ import annotations

import base64
import math
from typing import Any

import h5py
import numpy as np

from cuzarr.references.entries import Document
from cuzarr.references.names import unicode_text


def fill_of(dataset: h5py.Dataset, dtype: np.dtype[Any], described: Document, has_gaps: bool) -> Any:
    """The fill value of an HDF5 dataset, for its array in a table of references.

    If there are elements that were never written, it is HDF5's fill value, else the value that marks missing elements.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset.
    dtype : numpy.dtype
        The type of the array's elements.
    described : dict
        The attributes, which are changed. A ``_FillValue`` equal to the fill value is encoded as xarray does; other marks of missing
        elements become ``missing_value``.
    has_gaps : bool
        Whether there are elements that were never written.
    """
    marked = described.pop("_FillValue", None)
    raw = dataset.attrs["_FillValue"] if marked is not None else None
    missing = _as_element(raw, dtype, bool(described.get("_Unsigned")))
    fill = dataset.fillvalue if has_gaps else missing
    if missing is not None and _is_same(fill, missing):
        # For readers that do not use Zarr's fill value as the mark of missing elements.
        if dtype.kind in "biufc":
            described["_FillValue"] = _encoded(np.asarray(missing, dtype))
    elif marked is not None and not isinstance(marked, str):
        also = described.get("missing_value")
        marks = [*_listed(also), *(mark for mark in _listed(marked) if mark not in _listed(also))]
        described["missing_value"] = marks[0] if len(marks) == 1 else marks
    return fill


def _encoded(missing: Any) -> Any:
    """Encodes a value that marks missing elements as xarray does in attributes: floats as base64 of eight bytes.

    Source: <https://docs.xarray.dev/en/stable/internals/zarr-encoding-spec.html>
    """

    def packed(part: Any) -> str:
        return base64.b64encode(np.array(part, "<f8").tobytes()).decode()

    if missing.dtype.kind == "c":
        return [packed(missing.real), packed(missing.imag)]
    return packed(missing) if missing.dtype.kind == "f" else missing.item()


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _as_element(value: Any, dtype: np.dtype[Any], wraps: bool) -> Any:
    """Converts an attribute's value to an element of ``dtype``; ``None`` if this is impossible."""
    if value is None or isinstance(value, np.ndarray) and value.size != 1:
        return None
    value = value.reshape(-1)[0] if isinstance(value, np.ndarray) else value
    if dtype.hasobject:
        return unicode_text(value) if isinstance(value, str | bytes) else None
    if dtype.kind == "S":
        text = value.encode() if isinstance(value, str) else value
        return np.array(text, dtype)[()] if isinstance(text, bytes) and len(text) <= dtype.itemsize else None
    if isinstance(value, str | bytes) or dtype.names or np.asarray(value).dtype.kind not in "biufc":
        return None
    given = np.asarray(value)
    if given.dtype.kind in "fc" and dtype.kind in "iu" and not (np.isreal(given) and np.isfinite(given)):
        return None
    with np.errstate(all="ignore"):
        element = given.astype(dtype)
        is_same = element == given or (wraps and element.astype(given.dtype) == given)
    is_rounded = dtype.kind in "fc" and given.dtype.kind in "fc"
    return element[()] if is_same or is_rounded else None


def _is_same(fill: Any, missing: Any) -> bool:
    return bool(fill == missing or (fill != fill and missing != missing))


def fill_value(fill: Any, dtype: np.dtype[Any]) -> Any:
    """Converts a fill value to its form in ``.zarray``, for elements of type ``dtype``."""
    if fill is None:
        return None
    if dtype.hasobject:
        return unicode_text(fill)
    element = np.asarray(fill).astype(dtype)
    if dtype.kind in "SV":
        return base64.b64encode(element.tobytes()).decode()
    if dtype.kind == "c":
        return [_number(float(element.real)), _number(float(element.imag))]
    return _number(element.item())


def _number(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value

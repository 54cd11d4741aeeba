"""Converts between NumPy's element types and the Rust side's names of them."""

from __future__ import annotations

import functools
import math
from typing import Any, Protocol

import numpy as np

from cuzarr import _numpy
from cuzarr.errors import UnsupportedError


class DataType(Protocol):
    """The part of a Zarr data type's interface that is needed to convert elements in memory."""

    @property
    def native(self) -> np.dtype[Any]: ...
    @property
    def name(self) -> str: ...
    @property
    def is_variable(self) -> bool: ...


_ML_DTYPES = {"bfloat16": "bfloat16", **{ours: theirs for theirs, ours in _numpy.SMALL_NUMBERS.items()}}
"""Names of small number types in ``ml_dtypes``, by the Rust side's names."""
ORDERED = "iufcmMU"
"""NumPy's kind letters of element types that have a byte order."""


def reversals(own: np.dtype[Any], wanted: np.dtype[Any], start: int = 0) -> list[tuple[int, int]] | None:
    """The runs of bytes to reverse in an element, to convert it to a type that differs in byte order only: first byte and length of each
    run.

    ``None`` if the types differ in another way.
    """
    if own == wanted:
        return []
    if own.itemsize != wanted.itemsize or own.names != wanted.names or own.shape != wanted.shape:
        return None
    if own.subdtype is not None:
        parts = [(own.base, wanted.base, place * own.base.itemsize) for place in range(math.prod(own.shape))]
    elif own.names is not None:
        if any(own.fields[name][1] != wanted.fields[name][1] for name in own.names):  # type: ignore[index]
            return None
        parts = [(own[name], wanted[name], int(own.fields[name][1])) for name in own.names]  # type: ignore[index]
    elif own.kind in ORDERED and own.newbyteorder("S") == wanted:
        count = 4 if own.kind == "U" else own.itemsize // 2 if own.kind == "c" else own.itemsize
        return [(start + place, count) for place in range(0, own.itemsize, count)]
    else:
        return None
    found = [reversals(mine, other, start + offset) for mine, other, offset in parts]
    return None if None in found else [run for runs in found if runs is not None for run in runs]


def memory_type(dtype: np.dtype[Any]) -> str:
    """The Rust side's name for a type of elements in memory. Dates are 8-byte integers; types that it does not know are opaque bytes."""
    _numpy.check_type(dtype)
    if dtype.kind in "mM" and dtype.isnative:
        return "int64"
    if dtype.name == "bfloat16":
        return "bfloat16"
    if _numpy.is_small(dtype):
        return _numpy.SMALL_NUMBERS[dtype.name]
    if dtype.kind in "OT":
        what = "Python objects" if dtype.kind == "O" else "strings of variable length"
        raise UnsupportedError(f"device memory cannot hold {what}", hint="keep them on the CPU")
    return dtype.name if dtype.kind in "biufc" and dtype.isnative else f"opaque{dtype.itemsize}"


def is_opaque(dtype: np.dtype[Any]) -> bool:
    """Whether cuzarr's GPU kernels copy elements of this type, but cannot convert them to other types."""
    return memory_type(dtype).startswith("opaque") or _numpy.is_small(dtype)


def are_known_apart(own: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether two NumPy types are equal, or the Rust side's names for them show how they differ. The names do not show structures, strings,
    byte orders and units of time."""
    both_are_times = own.kind in "mM" and wanted.kind in "mM"
    return own == wanted or not (is_opaque(own) or is_opaque(wanted) or both_are_times)


@functools.lru_cache(maxsize=256)  # cached, because NumPy builds a type's name at each call
def core_dtype(native: np.dtype[Any]) -> str:
    """The Rust side's name of an element type. Dates are 8-byte integers; strings and structures are opaque bytes."""
    _numpy.check_type(native)
    if native.name == "bfloat16":
        return "bfloat16"
    if _numpy.is_small(native):
        return _numpy.SMALL_NUMBERS[native.name]
    if native.names is not None or native.kind in "SUV":
        return f"opaque{native.itemsize}"
    return "int64" if native.kind in "mM" else native.name


def dtype_of(element_type: str) -> np.dtype[Any]:
    """The NumPy dtype for a name of the Rust side. bfloat16 and smaller floats come from ``ml_dtypes``."""
    if element_type.startswith("opaque"):
        return np.dtype(f"V{element_type.removeprefix('opaque')}")
    name = _ML_DTYPES.get(element_type)
    return np.dtype(element_type) if name is None else _numpy.of_ml_dtypes(name)

"""Data types by zarr-python's names, for programs that import them; ``dtype=`` takes NumPy's types and Zarr's names as well.

>>> import cuzarr
>>> cuzarr.dtype.DateTime64(unit="ms").to_json(3)
{'name': 'numpy.datetime64', 'configuration': {'unit': 'ms', 'scale_factor': 1}}
>>> cuzarr.create_array({}, shape=(2,), dtype=cuzarr.dtype.VariableLengthUTF8())[:].tolist()
['', '']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from cuzarr import _names
from cuzarr._checks import element_type, refusing, whole
from cuzarr._metadata import dtype as _dtypes
from cuzarr._metadata.dtype import DataType, ZarrFormat
from cuzarr.errors import InvalidArgumentError

__all__ = [
    "Bool",
    "Complex64",
    "Complex128",
    "DataType",
    "DateTime64",
    "FixedLengthUTF32",
    "Float16",
    "Float32",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "NullTerminatedBytes",
    "RawBytes",
    "Struct",
    "Structured",
    "TimeDelta64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "VariableLengthBytes",
    "VariableLengthUTF8",
    "parse_dtype",
]

Endianness = Literal["little", "big"]


def _native(spec: str, endianness: Endianness = "little") -> DataType:
    if endianness not in ("little", "big"):
        raise InvalidArgumentError(f"endianness is {endianness!r}, expected little or big")
    return DataType(element_type(spec).newbyteorder("<" if endianness == "little" else ">"))


def _length(length: int) -> int:
    return whole(length, "length", 1)


def _of_one_byte(name: str) -> Callable[[], DataType]:
    def make() -> DataType:
        return _native(name)

    make.__doc__ = f"The type ``{name}``."
    return make


def _number(name: str) -> Callable[..., DataType]:
    def make(*, endianness: Endianness = "little") -> DataType:
        return _native(name, endianness)

    make.__doc__ = f"The type ``{name}``, stored with this byte order."
    return make


Bool, Int8, UInt8 = map(_of_one_byte, ("bool", "int8", "uint8"))
Int16, Int32, Int64 = map(_number, ("int16", "int32", "int64"))
UInt16, UInt32, UInt64 = map(_number, ("uint16", "uint32", "uint64"))
Float16, Float32, Float64 = map(_number, ("float16", "float32", "float64"))
Complex64, Complex128 = map(_number, ("complex64", "complex128"))


def DateTime64(*, endianness: Endianness = "little", scale_factor: int = 1, unit: str = "generic") -> DataType:  # noqa: N802
    """Dates, counted in ``scale_factor`` of a unit (``"ns"``, ``"D"``, …)."""
    return _native("M8" if unit == "generic" else f"M8[{scale_factor}{unit}]", endianness)


def TimeDelta64(*, endianness: Endianness = "little", scale_factor: int = 1, unit: str = "generic") -> DataType:  # noqa: N802
    """Times between dates, counted in ``scale_factor`` of a unit (``"ns"``, ``"D"``, …)."""
    return _native("m8" if unit == "generic" else f"m8[{scale_factor}{unit}]", endianness)


def FixedLengthUTF32(*, length: int, endianness: Endianness = "little") -> DataType:  # noqa: N802
    """Strings of at most ``length`` characters, each as four bytes."""
    return _native(f"U{_length(length)}", endianness)


def NullTerminatedBytes(*, length: int) -> DataType:  # noqa: N802
    """At most ``length`` bytes, without zeros at their end."""
    return _native(f"S{_length(length)}")


def RawBytes(*, length: int) -> DataType:  # noqa: N802
    """``length`` bytes."""
    return _native(f"V{_length(length)}")


def VariableLengthUTF8() -> DataType:  # noqa: N802
    """Strings of any length."""
    return _dtypes.parse_dtype("string", 3)


def VariableLengthBytes() -> DataType:  # noqa: N802
    """Bytes of any length."""
    return _dtypes.parse_dtype("variable_length_bytes", 3)


def Struct(*, fields: Iterable[tuple[str, Any]]) -> DataType:  # noqa: N802
    """Elements of several named fields, each with a type of its own."""
    with refusing("fields", "pass pairs of a name and a type"):
        return DataType(np.dtype([(name, _dtypes.parse_dtype(field, 3).native) for name, field in fields]))


Structured = Struct


def parse_dtype(dtype_spec: Any, *, zarr_format: ZarrFormat) -> DataType:
    """The data type that ``dtype=`` would take this for: a type or name of NumPy's, Zarr's name or document, zarr-python's object.

    Raises
    ------
    DataTypeValidationError
        Zarr cannot store it, or the name is not known.
    """
    return _dtypes.parse_dtype(dtype_spec, zarr_format)


_names.publish(globals())

"""Numbers that are moved, but not computed with: integers of less than 8 bits, floats of at most 8 bits, and complex numbers of
floats of at most 16 bits. NumPy has them with ``ml_dtypes``.

Even ``ml_dtypes`` has no complex numbers of 8-bit floats: they are structures with the fields ``real`` and ``imag``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cuzarr import _numpy

_NATIVE = {ours: theirs for theirs, ours in _numpy.SMALL_NUMBERS.items()}
# zarr-extensions registers no complex numbers of float8_e4m3fn, and not float8_e4m3fn itself, which tensorstore writes.
_PARTS = {f"complex_{name}": name for name in _NATIVE if name.startswith("float") and name != "float8_e4m3fn"}
NAMES = frozenset((*_NATIVE, *_PARTS))
"""The names of these numbers in Zarr."""
_HIGHEST_BITS = {"float4_e2m1fn": 0x7, "float6_e2m3fn": 0x1F, "float6_e3m2fn": 0x1F}
"""The largest numbers of the formats without infinity and NaN, as bits."""


def native(name: str) -> np.dtype[Any]:
    """NumPy's type for the name in Zarr.

    Raises
    ------
    LibraryMissingError
        ``ml_dtypes`` is not installed, or too old.
    """
    if name in _PARTS:
        part = _numpy.of_ml_dtypes(_PARTS[name])
        return np.dtype([("real", part), ("imag", part)])
    return _numpy.of_ml_dtypes(_NATIVE[name])


def cast(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value that a caller gave as a scalar of this type.

    Raises
    ------
    OverflowError, TypeError, ValueError
        The type cannot hold it.
    """
    if getattr(value, "dtype", None) == dtype and np.ndim(value) == 0:
        return np.asarray(value)[()]
    if isinstance(value, np.generic | np.ndarray):
        value = value.item()
    if isinstance(value, complex):
        value = [value.real, value.imag]
    return from_json(value, dtype)


def from_json(value: Any, dtype: np.dtype[Any]) -> Any:
    """A fill value from metadata as a scalar of this type.

    Raises
    ------
    OverflowError, TypeError, ValueError
        The type cannot hold it.
    """
    part, count = _parts(dtype)
    parts = list(value) if isinstance(value, list | tuple) else [value, 0] if count == 2 else [value]
    if len(parts) != count:
        raise ValueError(f"got {len(parts)} numbers, expected {count}")
    return np.concatenate([_part_from_json(one, part) for one in parts]).view("u1").view(dtype)[0]


def to_json(value: np.ndarray[Any, Any], zarr_format: int) -> Any:
    """A scalar of one of these types as metadata writes a fill value."""
    part, count = _parts(value.dtype)
    parts = [_part_to_json(one, zarr_format) for one in value.reshape((1,)).view("u1").view(part)]
    return parts if count == 2 else parts[0]


def _parts(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], int]:
    """The type of the parts of a number, and how many it has."""
    if dtype.names is not None:
        return dtype["real"], 2
    if dtype.name == "complex32":
        return np.dtype(np.float16), 2
    if dtype.name == "bcomplex32":
        return _numpy.of_ml_dtypes("bfloat16"), 2
    return dtype, 1


def _part_from_json(value: Any, part: np.dtype[Any]) -> np.ndarray[Any, Any]:
    is_integer = "int" in part.name
    if isinstance(value, str) and not is_integer:
        if value.startswith("0x"):
            return _of_bits(value, part)
        value = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value)
    if not isinstance(value, int | float):
        raise TypeError("not a number")
    return _integer(value, part) if is_integer else _float(float(value), part)


def _integer(value: float, part: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if value != int(value):
        raise ValueError("not a whole number")
    lowest, highest = _numpy.integer_limits(part)
    if not lowest <= value <= highest:
        raise OverflowError(f"expected {lowest} to {highest}")
    return np.array([int(value)]).astype(part)


def _float(value: float, part: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if value == 0 and part.name == "float8_e8m0fnu":
        return np.zeros(1, part)  # the smallest number, for which tensorstore writes 0
    with np.errstate(all="ignore"):
        result = np.array([value]).astype(part)
    if math.isnan(value) != math.isnan(float(result[0])) or math.isinf(value) > math.isinf(float(result[0])):
        raise OverflowError("the type has no such value")
    if part.name in _HIGHEST_BITS:  # whose conversions stop at the largest number
        bits = _HIGHEST_BITS[part.name]
        largest, below = (float(one) for one in np.array([bits, bits - 1], "u1").view(part))
        if math.isnan(value) or abs(value) >= largest + (largest - below) / 2:
            raise OverflowError(f"expected {-largest} to {largest}")
    return result


def _of_bits(text: str, part: np.dtype[Any]) -> np.ndarray[Any, Any]:
    bits, most = int(text, 16), _HIGHEST_BITS.get(part.name, -1) * 2 + 1
    if len(text) != 2 + 2 * part.itemsize or 0 <= most < bits:
        raise ValueError(f"expected 0x with {2 * part.itemsize} hexadecimal digits of {part}")
    return np.frombuffer(bits.to_bytes(part.itemsize, "little"), "u1").view(part)


def _part_to_json(value: Any, zarr_format: int) -> Any:
    if "int" in value.dtype.name:
        return int(value)
    number = float(value)
    if math.isnan(number):
        own, plain = np.asarray(value), np.array(math.nan).astype(value.dtype)
        is_plain = zarr_format == 2 or own.tobytes() == plain.tobytes()
        return "NaN" if is_plain else f"0x{int.from_bytes(own.tobytes(), 'little'):0{2 * value.dtype.itemsize}x}"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number

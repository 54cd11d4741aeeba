"""Checks the element types that callers pass, and converts single values to elements."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from cuzarr.errors import (
    ConversionError,
    CuzarrError,
    DataTypeValidationError,
    DTypeMismatchError,
    LibraryMissingError,
    OutOfRangeError,
)

_BITS = "keep their bits: x.view('uint8'), or convert them with astype"
_USER_DEFINED = 2
"""Value of ``numpy.dtype.isbuiltin`` for types that another library has registered."""
_OF_ML_DTYPES = re.compile(r"u?int[1-7]|float[468]_\w+|b?complex32")
SMALL_NUMBERS = {
    **{
        name: name
        for name in (
            "int2 int4 uint2 uint4 float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz "
            "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
        ).split()
    },
    "complex32": "complex_float16",
    "bcomplex32": "complex_bfloat16",
}
"""Types of ``ml_dtypes`` that cuzarr moves but does not compute with: their names in ``ml_dtypes``, and in Zarr and on the Rust side."""
OF_TORCH = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32", "bfloat16")
"""Names of number types, such as small floats, that PyTorch and ``ml_dtypes`` both have. An element of them takes at least one byte."""


def parse_type(spec: Any) -> np.dtype[Any]:
    """Converts a caller's argument to a NumPy dtype: NumPy's types and names, PyTorch's types, or names of ``ml_dtypes``.

    Raises
    ------
    DataTypeValidationError
        The type, or its name, belongs to another library and is not supported.
    LibraryMissingError
        The type is bfloat16 or a smaller number, and ml_dtypes, which NumPy needs for it, is not installed or too old.
    TypeError
        NumPy does not know the type.
    """
    spec = of_library(spec)
    if isinstance(spec, str) and (spec == "bfloat16" or spec in SMALL_NUMBERS):
        return of_ml_dtypes(spec)
    try:
        return check_type(np.dtype(spec))
    except TypeError:
        if isinstance(spec, str) and _OF_ML_DTYPES.fullmatch(spec.removeprefix("torch.")):
            raise DataTypeValidationError(f"elements of {spec} are not supported", hint=_BITS) from None
        raise


def check_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns a NumPy dtype unchanged, but refuses types that other libraries registered, except ``bfloat16`` and :data:`SMALL_NUMBERS`.

    Raises
    ------
    DataTypeValidationError
        The type, or the type of a field, is registered by another library, for example ``int1``.
    """
    if dtype.names is not None:
        for name in dtype.names:
            check_type(dtype[name])
    elif dtype.subdtype is not None:
        check_type(dtype.base)
    elif dtype.isbuiltin == _USER_DEFINED and dtype.name != "bfloat16" and dtype.name not in SMALL_NUMBERS:
        raise DataTypeValidationError(f"elements of {dtype.name} are not supported", hint=_BITS)
    return dtype


def of_ml_dtypes(name: str) -> np.dtype[Any]:
    """The NumPy dtype that ``ml_dtypes`` has under the given name.

    Raises
    ------
    LibraryMissingError
        ``ml_dtypes`` is not installed, or too old.
    """
    try:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        hint = "pip install --upgrade ml_dtypes"
        raise LibraryMissingError(f"elements of {name} in memory need ml_dtypes", hint=hint) from None
    return dtype


def is_small(dtype: np.dtype[Any]) -> bool:
    """Whether a type is one of :data:`SMALL_NUMBERS`. NumPy counts some of them among its floats."""
    return dtype.isbuiltin == _USER_DEFINED and dtype.name in SMALL_NUMBERS


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether elements are numbers that cuzarr converts and computes with."""
    # The kind comes first, because NumPy builds a type's name at each call.
    return dtype.kind in "biufc" and not is_small(dtype) or dtype.name == "bfloat16"


def of_library(dtype: Any) -> Any:
    """Converts an element type of PyTorch or TensorFlow to a NumPy dtype or its name. Any other value is returned unchanged.

    Raises
    ------
    DataTypeValidationError
        Neither NumPy nor Zarr has elements of this type, for example ``torch.qint8`` and ``torch.float4_e2m1fn_x2``.
    """
    if hasattr(dtype, "as_numpy_dtype"):
        return dtype.as_numpy_dtype
    if type(dtype).__module__ != "torch" or type(dtype).__name__ != "dtype":
        return dtype
    name = str(dtype).removeprefix("torch.")
    if name in OF_TORCH:
        return name
    if _OF_ML_DTYPES.fullmatch(name):
        hint = "keep their bits: x.view(torch.uint8), or convert them: x.to(torch.float32)"
        raise DataTypeValidationError(f"elements of {dtype} are not supported", hint=hint)
    try:
        return np.dtype(name)
    except TypeError:
        raise DataTypeValidationError(
            f"elements of {dtype} are not supported", hint="convert them first: x.to(torch.float32)"
        ) from None


@contextlib.contextmanager
def conversion(dtype: np.dtype[Any]) -> Iterator[None]:
    """Inside the ``with`` block, turns NumPy's errors about a value that does not fit the type into :class:`ConversionError`."""
    try:
        yield
    except CuzarrError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        message = f"the value cannot be converted to {dtype}: {error}"
        if isinstance(error, OverflowError):
            hint = "use a wider element type, or wrap it first: numpy.asarray(value).astype(dtype)"
            raise OutOfRangeError(message, hint=hint) from error
        raise ConversionError(message, hint="convert it first; for a complex number, take the real part") from error


def integer_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and the largest integer of a small type such as ``int4``."""
    count = 1 << int(dtype.name[-1])
    return (0, count - 1) if dtype.name.startswith("u") else (-count // 2, count // 2 - 1)


def check_range(value: Any, dtype: np.dtype[Any]) -> None:
    """Refuses Python integers that an integer type of less than 8 bits cannot hold, as NumPy does for its own types.

    Raises
    ------
    OverflowError
        A number is too large or too small. ``ml_dtypes`` would let it wrap.
    """
    if not is_small(dtype) or "int" not in dtype.name or hasattr(value, "dtype"):
        return
    (lowest, highest), numbers = integer_limits(dtype), np.asarray(value)
    if numbers.dtype.kind in "biu" and numbers.size and not lowest <= numbers.min() <= numbers.max() <= highest:
        raise OverflowError(f"integers of {dtype} are from {lowest} to {highest}")


def element(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Converts a value to one element of a type, as an assignment does. Returns it as an array without dimensions.

    Raises
    ------
    ConversionError
        NumPy refuses to assign the value.
    """
    result = np.empty((), dtype)
    with conversion(dtype):
        check_range(value, dtype)
        result[...] = value
    return result


def full(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Like ``numpy.full``, but a value that does not fit the type raises an error of cuzarr.

    Raises
    ------
    ConversionError
        ``numpy.full`` refuses the value.
    """
    with conversion(dtype):
        check_range(value, dtype)
        return np.full(shape, value, dtype)


def is_computable(dtype: np.dtype[Any]) -> bool:
    """Whether cuzarr computes with elements of this type: not with dates, strings, structures and objects."""
    return is_number(dtype) and dtype.itemsize <= 16


def check_dtype(dtype: np.dtype[Any], what: str) -> None:
    """Refuses types that cuzarr does not compute with.

    Raises
    ------
    DTypeMismatchError
        The elements are dates, strings, structures or objects.
    DataTypeValidationError
        The type belongs to another library.
    """
    check_type(dtype)
    if not is_computable(dtype):
        raise DTypeMismatchError(
            f"{what}: cuzarr does not compute with elements of {dtype}",
            hint="read the array and use NumPy" + (", or view dates as int64" if dtype.kind in "mM" else ""),
        )

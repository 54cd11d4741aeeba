"""NumPy's element types and values, where a caller hands them over: what is taken, and single values as elements."""

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
"""``numpy.dtype.isbuiltin`` of a type that another library has registered."""
_OF_ML_DTYPES = re.compile(r"u?int[124]|float[468]_\w+")


def parse_type(spec: Any) -> np.dtype[Any]:
    """NumPy's type for what a caller writes: NumPy's types and names, PyTorch's types, ``"bfloat16"``.

    Raises
    ------
    DataTypeValidationError
        It is one of another library that is not supported, also by a name that NumPy learns only with that library.
    LibraryMissingError
        It is bfloat16, and ml_dtypes, which NumPy needs for that, is not installed.
    TypeError
        NumPy does not know it.
    """
    spec = of_library(spec)
    if isinstance(spec, str) and spec == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise LibraryMissingError("elements of bfloat16 in memory need ml_dtypes", hint="pip install ml_dtypes") from None
        spec = ml_dtypes.bfloat16
    try:
        return check_type(np.dtype(spec))
    except TypeError:
        if isinstance(spec, str) and _OF_ML_DTYPES.fullmatch(spec.removeprefix("torch.")):
            raise DataTypeValidationError(f"elements of {spec} are not supported", hint=_BITS) from None
        raise


def check_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Refuses element types of other libraries, whose elements are raw bytes to all but these. Gives the type.

    Raises
    ------
    DataTypeValidationError
        It is one, or has a field of one: ``float8_e4m3fn``, ``int4``. ``bfloat16`` is taken.
    """
    if dtype.names is not None:
        for name in dtype.names:
            check_type(dtype[name])
    elif dtype.subdtype is not None:
        check_type(dtype.base)
    elif dtype.isbuiltin == _USER_DEFINED and dtype.name != "bfloat16":
        raise DataTypeValidationError(f"elements of {dtype.name} are not supported", hint=_BITS)
    return dtype


def of_library(dtype: Any) -> Any:
    """NumPy's type or name for an element type of PyTorch's or TensorFlow's; anything else as it is.

    Raises
    ------
    DataTypeValidationError
        Neither NumPy nor Zarr has such elements: ``torch.complex32``, ``torch.qint8``, ``torch.float8_e4m3fn``.
    """
    if hasattr(dtype, "as_numpy_dtype"):
        return dtype.as_numpy_dtype
    if type(dtype).__module__ != "torch" or type(dtype).__name__ != "dtype":
        return dtype
    name = str(dtype).removeprefix("torch.")
    if _OF_ML_DTYPES.fullmatch(name):
        hint = "keep their bits: x.view(torch.uint8), or convert them: x.to(torch.float32)"
        raise DataTypeValidationError(f"elements of {dtype} are not supported", hint=hint)
    try:
        return name if name == "bfloat16" else np.dtype(name)
    except TypeError:
        raise DataTypeValidationError(
            f"elements of {dtype} are not supported", hint="convert them first: x.to(torch.float32)"
        ) from None


@contextlib.contextmanager
def conversion(dtype: np.dtype[Any]) -> Iterator[None]:
    """Whatever NumPy raises inside for a value that is no element of this type becomes a :class:`ConversionError`."""
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


def element(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The element that assigning ``value`` leaves behind, as an array of no dimensions.

    Raises
    ------
    ConversionError
        NumPy refuses to assign it.
    """
    result = np.empty((), dtype)
    with conversion(dtype):
        result[...] = value
    return result


def full(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """What ``numpy.full`` makes.

    Raises
    ------
    ConversionError
        ``numpy.full`` refuses the value.
    """
    with conversion(dtype):
        return np.full(shape, value, dtype)


def is_computable(dtype: np.dtype[Any]) -> bool:
    """Whether elements have arithmetic: not dates, strings, structures and objects."""
    return (dtype.kind in "biufc" or dtype.name == "bfloat16") and dtype.itemsize <= 16


def check_dtype(dtype: np.dtype[Any], what: str) -> None:
    """Refuses elements without arithmetic.

    Raises
    ------
    DTypeMismatchError
        Dates, strings, structures, objects.
    DataTypeValidationError
        Types of other libraries.
    """
    check_type(dtype)
    if not is_computable(dtype):
        raise DTypeMismatchError(
            f"{what}: cuzarr does not compute with elements of {dtype}",
            hint="read the array and use NumPy" + (", or view dates as int64" if dtype.kind in "mM" else ""),
        )

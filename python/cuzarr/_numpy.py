"""NumPy's element types and values, where a caller hands them over: what is taken, and single values as elements."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from cuzarr.errors import ConversionError, CuzarrError, DataTypeValidationError, OutOfRangeError

_BITS = "keep their bits: x.view('uint8'), or convert them with astype"
_USER_DEFINED = 2
"""``numpy.dtype.isbuiltin`` of a type that another library has registered."""
_OF_ML_DTYPES = re.compile(r"u?int[124]|float[468]_\w+")


def parse_type(spec: Any) -> np.dtype[Any]:
    """NumPy's type for what a caller writes.

    Raises
    ------
    DataTypeValidationError
        It is one of another library, also by a name that NumPy learns only with that library.
    TypeError
        NumPy does not know it.
    """
    try:
        return check_type(np.dtype(spec))
    except TypeError:
        if isinstance(spec, str) and _OF_ML_DTYPES.fullmatch(spec):
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
        raise DataTypeValidationError(
            f"elements of {dtype.name} are not supported", hint=_BITS
        )
    return dtype


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
        raise ConversionError(message, hint="convert it first; of a complex number, take the real part") from error


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

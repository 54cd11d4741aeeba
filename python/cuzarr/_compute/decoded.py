"""Elements of stored arrays as the numbers and dates that they stand for. The rule is the Rust side's (`meta/cf.rs`)."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import element_type
from cuzarr._compute.expression import DATES_OF, Expression
from cuzarr._compute.operands import dimension_names, operand, plan_device
from cuzarr._compute.sources import StoredArray, is_stored
from cuzarr._memory.element_types import core_dtype, dtype_of
from cuzarr._numpy import check_dtype
from cuzarr._operators.dispatch import Lazy
from cuzarr._text import printable
from cuzarr.errors import CuzarrUserWarning, InvalidArgumentError

_PACKED = ("scale_factor", "add_offset")
_RULE = (*_PACKED, "_FillValue", "missing_value", "_Unsigned", "units", "calendar", "dtype", "_ARRAY_DIMENSIONS")
_told: set[str] = set()


def decoded(x: Any, dtype: Any, times: bool) -> Expression:
    """A plan of the numbers, or of the dates, that the elements of an array or of a view of one stand for.

    Raises
    ------
    DTypeMismatchError, InvalidArgumentError, MetadataValidationError, UnsupportedError
    """
    own = operand(x, "cpu", "decoded")
    assert isinstance(own, _core.Expr)
    device, names = plan_device((x,)), dimension_names(x)
    attributes = _attributes(x if is_stored(x) else x.array)
    dates = own.decoded_times(attributes) if times else None
    if dates is not None:
        if dtype is not None:
            hint = "leave out dtype=, or times=True"
            raise InvalidArgumentError(f"decoded: dtype is {dtype!r}, but times are datetime64[ns]", hint=hint)
        return Expression(dates, device, names, (DATES_OF, (x,), (attributes,)))
    name = None
    if dtype is not None:
        check_dtype(element_type(dtype), "decoded")
        name = core_dtype(element_type(dtype))
    return Expression(own.decoded(attributes, name), device, names, ("decoded", (x,), (attributes, name)))


def _attributes(array: StoredArray) -> str:
    """The attributes that say what elements stand for, as JSON. Plans keep them as they were when the plan was made."""
    own = array.metadata.attributes
    return json.dumps({name: own[name] for name in _RULE if name in own})


@dataclass(frozen=True)
class Decoding:
    """How stored elements become the numbers that they stand for.

    Attributes
    ----------
    read_as : numpy.dtype, optional
        The integers of the other sign that stored ones are read as.
    missing : tuple
        The elements that mark missing ones, after ``read_as``.
    scale, offset : float, optional
        What elements are multiplied by, and what is added then.
    dtype : numpy.dtype
        The type of decoded elements.
    """

    read_as: np.dtype[Any] | None
    missing: tuple[Any, ...]
    scale: float | None
    offset: float | None
    dtype: np.dtype[Any]


def decoding_of(array: StoredArray) -> Decoding | None:
    """How an array's elements are decoded; ``None`` where they are what they stand for.

    Raises
    ------
    MetadataValidationError, UnsupportedError
    """
    found = array._handle().decoding(_attributes(array))
    if found is None:
        return None
    read_as, missing, scale, offset, dtype = found
    own = array.dtype.newbyteorder("=") if dtype is None else dtype_of(dtype)
    return Decoding(None if read_as is None else dtype_of(read_as), tuple(missing), scale, offset, own)


def tell_of_packed(x: Any, name: str) -> None:
    """Warns once for each array in a store that a reduction is one of packed numbers."""
    while getattr(x, "_is_plan", False) and x._made_of[0] in ("", "astype"):
        x = x._made_of[1][0]
    array = x if is_stored(x) else getattr(x, "array", None)
    if not isinstance(x, Lazy) or not is_stored(array):
        return
    attributes = array.metadata.attributes
    packed = [f"{one} {attributes[one]}" for one in _PACKED if attributes.get(one) is not None]
    place = str(array.store_path)
    if not packed or place in _told:
        return
    _told.add(place)
    message = (
        f"{printable(place)}: {name} is computed of stored numbers, which are packed ({printable(', '.join(packed))})\n"
        "hint: decode them first, with array.decoded()"
    )
    warnings.warn(message, CuzarrUserWarning, stacklevel=_outside())


def _outside() -> int:
    """The level of the caller's line, for a warning that is raised by the function that asks."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "cuzarr":
        frame, level = frame.f_back, level + 1
    return level

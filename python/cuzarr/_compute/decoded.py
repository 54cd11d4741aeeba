"""Decodes stored elements to the numbers and dates that they stand for. The rules of decoding are on the Rust side (`meta/cf.rs`)."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
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
_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
_told: set[str] = set()


def decoded(x: Any, dtype: Any, times: bool) -> Expression:
    """A plan that decodes the elements of an array or a view into the numbers or dates that they stand for.

    Raises
    ------
    DTypeMismatchError, InvalidArgumentError, MetadataValidationError, UnsupportedError
    """
    own = operand(x, "cpu", "decoded")
    assert isinstance(own, _core.Expr)
    device, names = plan_device((x,)), dimension_names(x)
    attributes = _attributes(x if is_stored(x) else x.array)
    rule = _of_times(attributes)
    dates = own.decoded_times(rule) if times else None
    if dates is not None:
        plan = Expression(dates, device, names, (DATES_OF, (x,), (rule,)))
        if dtype is not None:
            hint = "leave out dtype=, or times=True"
            raise InvalidArgumentError(f"decoded: dtype is {dtype!r}, but times are {plan.dtype}", hint=hint)
        return plan
    name = None
    if dtype is not None:
        check_dtype(element_type(dtype), "decoded")
        name = core_dtype(element_type(dtype))
    return Expression(own.decoded(attributes, name), device, names, ("decoded", (x,), (attributes, name)))


def _attributes(array: StoredArray) -> str:
    """The attributes that define how an array's elements are decoded, as JSON. A plan keeps those from the time when it was made."""
    own = array.metadata.attributes
    return json.dumps({name: own[name] for name in _RULE if name in own})


def _of_times(attributes: str) -> str:
    """Prepares the JSON text of an array's attributes for decoding the array's elements to dates or durations.

    Durations become dates counted from 1970. As in xarray, elements are durations if ``units`` is a unit such as ``hours`` and
    the attribute ``dtype`` says so. Only for durations, the result has a ``dtype``.
    """
    rule = json.loads(attributes)
    dtype, units = str(rule.pop("dtype", "")), rule.get("units")
    if units in _UNITS and dtype.startswith("timedelta64"):
        rule |= {"units": f"{units} since 1970-01-01", "dtype": dtype}
        rule.pop("calendar", None)
    return json.dumps(rule)


@dataclass(frozen=True)
class Decoding:
    """The rule by which stored elements are decoded to numbers: scale, offset, and the values that mark missing elements.

    Attributes
    ----------
    read_as : numpy.dtype, optional
        The unsigned or signed integer type that stored integers are read as, if it differs from their own type.
    missing : tuple
        The values that mark missing elements, in the type ``read_as``.
    scale, offset : float, optional
        Elements are multiplied by ``scale``; then ``offset`` is added.
    dtype : numpy.dtype
        The type of decoded elements.
    """

    read_as: np.dtype[Any] | None
    missing: tuple[Any, ...]
    scale: float | None
    offset: float | None
    dtype: np.dtype[Any]


def decoding_of(array: StoredArray) -> Decoding | None:
    """The rule by which an array's attributes decode its elements to numbers; ``None`` if the stored elements are the numbers themselves.

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
    """Warns, once for each stored array, that a reduction uses the stored numbers, although attributes give them a scale or missing values.

    ``x`` may be an array, a view, or a plan that reads arrays.
    """
    for array in _read_as_stored(x):
        attributes = array.metadata.attributes
        packed = [f"{one} {attributes[one]}" for one in _PACKED if attributes.get(one) is not None]
        place = str(array.store_path)
        if not packed or place in _told:
            continue
        _told.add(place)
        message = (
            f"{printable(place)}: {name} is computed of stored numbers, which are packed ({printable(', '.join(packed))})\n"
            "hint: decode them first, with array.decoded()"
        )
        warnings.warn(message, CuzarrUserWarning, stacklevel=_outside())


def _read_as_stored(x: Any) -> Iterator[StoredArray]:
    """The stored arrays whose elements the plan or array ``x`` uses without decoding them."""
    left, seen = [x], set()
    while left:
        value = left.pop()
        if not isinstance(value, Lazy) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Expression):
            how, operands, _ = value._made_of
            left.extend(() if how in ("decoded", DATES_OF) else operands)
        elif is_stored(array := value if is_stored(value) else getattr(value, "array", None)):
            yield array


def _outside() -> int:
    """The stack level of the first caller outside of cuzarr, for a warning."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "cuzarr":
        frame, level = frame.f_back, level + 1
    return level

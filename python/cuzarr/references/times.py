"""Converts times since different dates to times since one date."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np

_TIME = re.compile(
    r"(days|hours|minutes|seconds) since (\d{4})-(\d\d?)-(\d\d?)(?:[ T](\d\d?):(\d\d)(?::(\d\d)(?:\.0+)?)?)?(?: ?(?:UTC|Z))?"
)
_SECONDS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
# Precision of converted times: an error above this makes the conversion fail.
_LEAST_SECONDS = 1e-3
# From this date on, ``standard``, ``gregorian`` and ``proleptic_gregorian`` are the same calendar.
_GREGORIAN = datetime.datetime(1582, 10, 15)


def difference(first: str, other: str, calendar: str, is_whole: bool) -> float | int:
    """The number to add to times in the units ``other``, such as ``days since 2000-01-01``, to get times in the units ``first``.

    Raises
    ------
    ValueError
        The units are not units of time. Or the times are whole numbers, and the dates do not differ by a whole number of units.
    """
    units = [_TIME.fullmatch(first), _TIME.fullmatch(other)]
    if units[0] is None or units[1] is None:
        raise ValueError("only days, hours, minutes and seconds since a date in UTC are, such as 'days since 2000-01-31 12:00'")
    if units[0][1] != units[1][1]:
        raise ValueError(f"the files count {units[1][1]} and {units[0][1]}")
    dates = [_date(found) for found in (units[0], units[1])]
    if calendar != "proleptic_gregorian" and min(dates) < _GREGORIAN:
        raise ValueError("dates before 1582-10-15 have another calendar")
    seconds = round((dates[1] - dates[0]).total_seconds())
    unit = _SECONDS[units[0][1]]
    if is_whole and seconds % unit:
        raise ValueError(f"the dates do not differ by whole {units[0][1]}, and the values are whole numbers")
    return seconds // unit if seconds % unit == 0 else seconds / unit


def _date(time: re.Match[str]) -> datetime.datetime:
    """The date in the units of times such as ``days since 2000-01-01``.

    Raises
    ------
    ValueError
        There is no such date.
    """
    year, month, day, hour, minute, second = (int(part or 0) for part in time.groups()[1:])
    return datetime.datetime(year, month, day, hour, minute, second)


def moved(values: Any, ahead: float | int, units: str, marks: list[Any]) -> Any:
    """Adds a number to an array of times; ``None`` if the element type cannot hold the sums with a precision of a millisecond.

    ``units`` are those of the result. Values in ``marks`` mark missing elements, and stay unchanged.
    """
    if values.dtype.kind in "iu" and not np.iinfo(values.dtype).min <= ahead <= np.iinfo(values.dtype).max:
        return None
    later = values + np.asarray(ahead, values.dtype)
    is_marked = np.isin(values, marks)
    if values.dtype.kind in "iu":
        is_wrong = later.astype(object) != values.astype(object) + ahead
    else:
        exact = values.astype("f8") + ahead
        is_wrong = abs(later - exact) * _SECONDS[units.partition(" ")[0]] > _LEAST_SECONDS
    return None if np.any(is_wrong & ~is_marked) else np.where(is_marked, values, later)

"""Signs and reductions of stored dates, durations, text and structures: NumPy's own, of the elements."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import BudgetExceededError, DTypeMismatchError

DATES = np.array(["2001-01-01", "2002-02-02", "1999-12-31"], "M8[s]")
DURATIONS = np.array([1, 20, 3], "m8[D]")
WORDS = np.array(["b", "a", "cc"], "T")
FIXED = WORDS.astype("U3")
DAY = np.datetime64("2001-01-01")
RECORDS = np.array([(1, 2.0), (3, 4.0)], [("a", "i4"), ("b", "f8")])

CASES: dict[str, tuple[np.ndarray[Any, Any], Callable[[Any], Any]]] = {
    "dates - dates": (DATES, lambda x: x - x),
    "dates - date": (DATES, lambda x: x - DAY),
    "date - dates": (DATES, lambda x: DAY - x),
    "dates + duration": (DATES, lambda x: x + np.timedelta64(1, "D")),
    "dates < Python's date": (DATES, lambda x: x < datetime.datetime(2001, 6, 1)),
    "dates == Python's date": (DATES, lambda x: x == datetime.datetime(2001, 1, 1)),
    "dates == date": (DATES, lambda x: x == DAY),
    "date == dates": (DATES, lambda x: DAY == x),
    "dates != date": (DATES, lambda x: x != DAY),
    "dates < date": (DATES, lambda x: x < DAY),
    "date < dates": (DATES, lambda x: DAY < x),
    "dates == number": (DATES, lambda x: x == 5),
    "date in dates": (DATES, lambda x: DAY in x),
    "max of dates": (DATES, lambda x: x.max()),
    "min along an axis": (DATES, lambda x: x.min(axis=0, keepdims=True)),
    "argmax of dates": (DATES, lambda x: x.argmax()),
    "durations": (DURATIONS, lambda x: x + x),
    "- durations": (DURATIONS, lambda x: -x),
    "abs of durations": (DURATIONS, lambda x: abs(-x)),
    "durations * 2": (DURATIONS, lambda x: x * 2),
    "durations / duration": (DURATIONS, lambda x: x / np.timedelta64(1, "h")),
    "sum of durations": (DURATIONS, lambda x: x.sum()),
    "mean of durations": (DURATIONS, lambda x: x.mean()),
    "words == word": (WORDS, lambda x: x == "a"),
    "word == words": (WORDS, lambda x: "a" == x),  # noqa: SIM300, the other side is asked
    "words != word": (WORDS, lambda x: x != "a"),
    "words < word": (WORDS, lambda x: x < "b"),
    "words == None": (WORDS, lambda x: x == None),  # noqa: E711, it is compared
    "words + words": (WORDS, lambda x: x + x),
    "words + word": (WORDS, lambda x: x + "!"),
    "word in words": (WORDS, lambda x: "cc" in x),
    "max of words": (WORDS, lambda x: x.max()),
    "words of one length == word": (FIXED, lambda x: x == "cc"),
    "words of one length == list": (FIXED, lambda x: x == ["b", "b", "cc"]),
    "structures == structures": (RECORDS, lambda x: x == RECORDS),
}


@pytest.mark.parametrize("name", CASES)
def test_signs_and_methods_are_numpys(name: str) -> None:
    data, call = CASES[name]
    expected = call(data)
    stored = cuzarr.create_array({}, data=data, chunks=(2,))
    for own in (stored, stored.lazy[...]):
        got = call(own)
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(got, expected)


def test_views_are_computed_with_beside_each_other() -> None:
    stored = cuzarr.create_array({}, data=DATES, chunks=(2,))
    np.testing.assert_array_equal(stored.lazy[1:] - stored.lazy[:-1], np.diff(DATES))
    np.testing.assert_array_equal(cuzarr.xp.maximum(stored, DAY), np.maximum(DATES, DAY))
    assert cuzarr.xp.max(stored) == DATES.max()


@pytest.mark.parametrize("sign", [operator.add, operator.mul, operator.truediv, operator.and_])
def test_what_numpy_has_not_is_refused_with_the_types(sign: Any) -> None:
    stored = cuzarr.create_array({}, data=DATES)
    with pytest.raises(DTypeMismatchError, match=r"datetime64\[s\]"):
        sign(stored, stored)
    words = cuzarr.create_array({}, data=WORDS)
    with pytest.raises(DTypeMismatchError, match="mean is not defined for elements of StringDType"):
        words.mean()


def test_elements_are_read_within_the_memory_limit() -> None:
    stored = cuzarr.create_array({}, data=np.zeros(100, "M8[s]"))
    with cuzarr.config.set({"memory_limit": 500}):
        for call in (lambda: stored - stored, lambda: stored == DAY, lambda: stored.max()):
            with pytest.raises(BudgetExceededError, match="800|1600"):
                call()


def test_plans_of_dates_are_still_refused() -> None:
    days = cuzarr.create_array({}, data=np.arange(3), attributes={"units": "days since 2000-01-01"})
    plan = days.decoded(times=True)
    with pytest.raises(DTypeMismatchError, match="does not compute with"):
        plan - plan

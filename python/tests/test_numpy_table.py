"""The guide's table of NumPy's functions, beside what they do."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
import re
from typing import Any

import numpy as np
import pytest
from numpy_calls import Arrays, arrays, call_of, functions

import cuzarr
from cuzarr.errors import BudgetExceededError, CuzarrError, UnsupportedError

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "guide" / "numpy.md"
if not PAGE.exists():
    pytest.skip("skipped: the page is where the sources are", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")

ROWS = re.findall(r"^\| ([a-z, ]+) \| ([a-z, ]+) \| (`.*`) \|$", PAGE.read_text(), re.MULTILINE)
TABLE = {name: (stored, plan) for stored, plan, names in ROWS for name in re.findall(r"`([^`]+)`", names)}
FUNCTIONS = functions()
# Memory that nobody wrote, and whether it is shared.
WITHOUT_ELEMENTS = {"empty_like", "may_share_memory", "shares_memory"}
OF_DATES = {"busday_count", "busday_offset", "datetime_as_string", "is_busday", "isnat"}
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def in_stores(values: Arrays) -> Arrays:
    def stored(value: Any) -> Any:
        return cuzarr.create_array({}, data=value, chunks=tuple(-(-extent // 8) for extent in value.shape))

    return Arrays(*(stored(getattr(values, field.name)) for field in dataclasses.fields(values)))


def views(values: Arrays) -> Arrays:
    return Arrays(*(getattr(values, field.name).lazy for field in dataclasses.fields(values)))


def plans(values: Arrays) -> Arrays:
    def plan(value: Any) -> Any:
        return value if value.dtype.kind == "M" else value & True if value.dtype.kind == "b" else value + 0

    return Arrays(*(plan(getattr(values, field.name)) for field in dataclasses.fields(values)))


SMALL, LARGE = arrays(4), arrays(64)
STORED, STORED_LARGE = in_stores(SMALL), in_stores(LARGE)


def parts(result: Any) -> list[Any]:
    """What a function gives, piece by piece."""
    if isinstance(result, tuple | list):
        return [part for one in result for part in parts(one)]
    return [result]


def check(name: str, result: Any, expected: Any, is_plan: bool) -> None:
    got, wanted = parts(result), parts(expected)
    assert len(got) == len(wanted), name
    for mine, numpys in zip(got, wanted, strict=True):
        assert isinstance(mine, cuzarr.Expression) == is_plan, name
        if name in WITHOUT_ELEMENTS:
            continue
        elements = mine.compute() if is_plan else np.asarray(mine) if isinstance(mine, cuzarr.LazyArray) else mine
        if isinstance(numpys, np.ndarray | np.generic) and numpys.dtype.kind in "fc":
            np.testing.assert_allclose(elements, numpys, **CLOSE, err_msg=name)
        else:
            np.testing.assert_array_equal(elements, numpys, err_msg=name)
        assert is_plan or isinstance(mine, cuzarr.LazyArray) or type(mine) is type(numpys), name


def test_the_table_has_every_function_once() -> None:
    listed = [name for _, _, names in ROWS for name in re.findall(r"`([^`]+)`", names)]
    assert len(listed) == len(set(listed))
    # Other versions of NumPy have other functions.
    missing = set(FUNCTIONS) - set(listed)
    assert not missing or np.lib.NumpyVersion(np.__version__) < "2.5.0", missing
    kinds = {"plan", "value, any size", "value, up to the limit", "value, nothing is read", "refused"}
    assert {kind for both in TABLE.values() for kind in both} == kinds


@pytest.mark.parametrize("name", sorted(set(TABLE) & set(FUNCTIONS)))
def test_a_function_does_what_the_table_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, call = FUNCTIONS[name], call_of(name)
    of_stored, of_plan = TABLE[name]
    if of_stored == of_plan == "refused":
        for kind in (STORED, views(STORED), plans(STORED)):
            with pytest.raises(UnsupportedError, match=f"numpy.{name} does not write"):
                call(function, kind)
        return
    expected = call(function, copy.deepcopy(SMALL))
    for kind in (STORED, views(STORED)):
        check(name, call(function, kind), expected, of_stored == "plan")
    if of_stored == "value, up to the limit":
        with (
            cuzarr.config.set({"memory_limit": 100}),
            pytest.raises(BudgetExceededError, match=r"numpy\.\S+ (reads all|makes an array)"),
        ):
            call(function, STORED_LARGE)
    if of_stored == "value, any size":
        with cuzarr.config.set({"memory_limit": "16 KiB"}):
            check(name, call(function, STORED_LARGE), call(function, copy.deepcopy(LARGE)), False)
    if of_stored == "value, nothing is read":
        monkeypatch.setattr(cuzarr.Array, "__array__", None)
        check(name, call(function, STORED_LARGE), call(function, LARGE), False)
    if name in OF_DATES:  # they have no plans
        return
    if of_plan == "refused":
        with pytest.raises(CuzarrError) as raised:
            call(function, plans(STORED))
        assert "numpy." in str(raised.value), raised.value
        assert "compute()" in str(raised.value), raised.value
    else:
        check(name, call(function, plans(STORED)), expected, of_plan == "plan")

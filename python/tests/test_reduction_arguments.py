"""What reductions take beside an axis: `dtype`, `out`, `initial`, `where` and `mean`, as functions, methods and NumPy's functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import CuzarrError, DTypeMismatchError, InvalidArgumentError, ShapeMismatchError, UnsupportedError

FLOATS = np.array([[1.5, np.nan, -2.0, 3.25], [0.5, 4.0, np.nan, 8.0], [2.0, 1.0, 0.25, -1.0]])
INTS = np.array([[3, 0, -2, 7], [5, 4, 1, 8], [2, 9, 6, -1]], "i4")
DATA = {"f8": FLOATS, "f4": FLOATS.astype("f4"), "i4": INTS, "bool": INTS > 2, "c16": FLOATS * (1 - 2j)}
MASK = np.array([[True, False, True, True], [False, False, False, False], [True, True, False, True]])
ROW = np.array([True, False, True, False])

TOTALS: list[dict[str, Any]] = [
    {"dtype": "f4"},
    {"dtype": "f8", "axis": 0},
    {"axis": 1, "initial": 5},
    {"where": MASK},
    {"where": ROW, "axis": 1, "keepdims": True, "initial": 2},
    {"dtype": "f4", "where": MASK, "axis": 0, "initial": 1.5},
]
WHOLE: list[dict[str, Any]] = [{"dtype": "i8"}, {"dtype": int, "initial": 2, "axis": 1}]
SPREADS: list[dict[str, Any]] = [
    {"dtype": "f8", "axis": 0},
    {"where": MASK, "axis": 1},
    {"where": ROW, "ddof": 1},
    {"mean": 1.0},
    {"mean": np.array([[1.0], [2.0], [0.5]], "f4"), "axis": 1, "keepdims": True, "where": MASK},
]
EXTREMES: list[dict[str, Any]] = [
    {"initial": 2},
    {"initial": 2, "axis": 0},
    {"initial": 100, "where": MASK, "axis": 1},
    {"initial": -100, "where": MASK, "axis": 1},
    {"initial": 3, "where": ROW, "keepdims": True},
]
CASES: dict[str, list[dict[str, Any]]] = {
    **{name: TOTALS for name in ("sum", "prod", "nansum", "nanprod")},
    **{
        name: [{"dtype": "f8"}, {"where": MASK}, {"where": ROW, "axis": 1}, {"where": MASK, "axis": 1}]
        for name in ("mean", "nanmean")
    },
    **{name: SPREADS for name in ("std", "var", "nanstd", "nanvar")},
    **{name: EXTREMES for name in ("min", "max", "nanmin", "nanmax")},
    **{
        name: [{"where": MASK}, {"where": MASK, "axis": 1}, {"where": ROW, "axis": 0, "keepdims": True}]
        for name in ("any", "all")
    },
}


# Others are not defined for complex numbers.
OF_COMPLEX = ("sum", "nansum", "mean", "nanmean", "any", "all")
PAIRS = [(name, kind) for name in CASES for kind in DATA if kind != "c16" or name in OF_COMPLEX]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_options_mean_what_they_mean_in_numpy(name: str, kind: str) -> None:
    data = DATA[kind]
    stored = cuzarr.create_array({}, data=data, chunks=(2, 3))
    plan = cuzarr.xp.where(True, stored, stored)
    cases = CASES[name] + (WHOLE if name in ("nansum", "nanprod") and kind in ("f8", "i4") else [])
    for options in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = getattr(np, name)(data, **options)
        ways: dict[str, Callable[[], Any]] = {
            "memory": lambda: getattr(cuzarr.xp, name)(data, **options),
            "stored": lambda: getattr(cuzarr.xp, name)(stored, **options).compute(),
            "NumPy's function of a plan": lambda: getattr(np, name)(plan, **options).compute(),
            "NumPy's function of an array": lambda: getattr(np, name)(stored, **options),
        }
        if not name.startswith("nan"):
            ways |= {
                "method": lambda: getattr(stored, name)(**options).compute(),
                "method of a view": lambda: getattr(stored.lazy[...], name)(**options).compute(),
                "method of a plan": lambda: getattr(plan, name)(**options).compute(),
            }
        for way, call in ways.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = call()
            where = f"{way}, {options}"
            assert np.asarray(got).dtype == np.asarray(expected).dtype, where
            assert np.shape(got) == np.shape(expected), where
            close = 1e-6 if kind == "f4" or np.asarray(expected).dtype in ("f4", "c8") else 1e-13  # NumPy's may be rounded twice
            np.testing.assert_allclose(got, expected, rtol=close, atol=close, err_msg=where)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "std", "var"])
def test_methods_take_dtype_and_out_by_their_places_as_numpys_do(name: str) -> None:
    stored = cuzarr.create_array({}, data=INTS, chunks=(2, 3))
    expected = getattr(INTS, name)(0, "f4")
    for own in (stored, stored + 0, stored.lazy[...]):
        got = getattr(own, name)(0, "f4").compute()
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        room = np.zeros(4)
        assert getattr(own, name)(0, None, room) is room
        np.testing.assert_allclose(room, getattr(INTS, name)(0), rtol=1e-13)


@pytest.mark.parametrize("name", ["min", "max", "argmin", "argmax", "any", "all"])
def test_methods_without_dtype_take_out_by_its_place(name: str) -> None:
    stored = cuzarr.create_array({}, data=INTS, chunks=(2, 3))
    expected = getattr(INTS, name)(0)
    room = np.zeros_like(expected)
    assert getattr(stored, name)(0, room) is room
    np.testing.assert_array_equal(room, expected)
    again = np.zeros_like(expected)
    assert getattr(np, name)(stored + 0, 0, again) is again
    np.testing.assert_array_equal(again, expected)


def test_other_methods_take_out_by_its_place() -> None:
    data = np.array([1.25, 2.5, 0.75])
    stored, room = cuzarr.create_array({}, data=data), np.zeros(3)
    assert stored.clip(1, 2, room).tolist() == data.clip(1, 2).tolist()
    assert stored.round(1, room).tolist() == data.round(1).tolist()
    assert stored.cumsum(0, None, room).tolist() == data.cumsum().tolist()
    assert stored.cumprod(0, None, room).tolist() == data.cumprod().tolist()


def test_extremes_of_no_elements_are_the_initial_value() -> None:
    none = cuzarr.create_array({}, shape=(0, 3), dtype="i2", chunks=(1, 3))
    got = none.max(axis=0, initial=-7).compute()
    assert got.dtype == "i2" and got.tolist() == [-7, -7, -7]
    assert cuzarr.xp.min(np.zeros((0, 3), "f4"), initial=2.5).dtype == "f4"


def test_a_mask_may_be_in_a_store_or_a_plan() -> None:
    stored = cuzarr.create_array({}, data=INTS, chunks=(2, 3))
    mask = cuzarr.create_array({}, data=MASK, chunks=(1, 4))
    assert stored.sum(where=mask).item() == INTS.sum(where=MASK)
    assert stored.mean(where=stored > 2).item() == INTS.mean(where=INTS > 2)


def test_variances_do_not_lose_digits_to_the_result_type() -> None:
    data = np.array([1e8, 1e8 + 1, 1e8 + 2])
    stored = cuzarr.create_array({}, data=data)
    assert stored.var(dtype="f4").compute() == np.float32(2 / 3)
    small = cuzarr.create_array({}, data=np.array([0.1, 0.2, 0.4], "f4"))
    assert small.std(dtype="f8").compute() == pytest.approx(np.array([0.1, 0.2, 0.4], "f4").astype("f8").std(), rel=1e-15)


WRONG: list[tuple[dict[str, Any], type[CuzarrError], str]] = [
    ({"where": [1, 0, 1, 0]}, DTypeMismatchError, "expected bool"),
    ({"where": [True, False]}, ShapeMismatchError, "does not broadcast"),
    ({"out": [0.0]}, UnsupportedError, "expected an array of NumPy"),
    ({"out": np.zeros(3)}, ShapeMismatchError, "out has shape"),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[CuzarrError], message: str) -> None:
    stored = cuzarr.create_array({}, data=INTS)
    with pytest.raises(error, match=message):
        stored.sum(**options)
    with pytest.raises(InvalidArgumentError, match="where needs initial"):
        stored.max(where=MASK)

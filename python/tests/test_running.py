"""Running sums and products of arrays in stores and of plans, region by region, beside NumPy's."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import BudgetExceededError, CuzarrError, DTypeMismatchError, InvalidArgumentError, UnsupportedError

xp: Any = cuzarr.xp
# Small enough for many regions of the arrays here.
LIMIT = 1 << 14
SHAPES = [((97,), (10,)), ((23, 31), (5, 7)), ((9, 4, 17), (2, 4, 5)), ((5, 1, 3), (1, 1, 1)), ((0,), (4,)), ((3, 0), (2, 1))]


def whole(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    choose = np.random.default_rng(seed)
    return choose.integers(0 if dtype[0] in "u?" else -9, 2 if dtype == "?" else 10, shape).astype(dtype)


def stored(values: np.ndarray[Any, Any], chunks: tuple[int, ...], **options: Any) -> cuzarr.Array:
    return cuzarr.create_array({}, data=values, chunks=chunks, **options)


def computed(plan: Any, limit: int = LIMIT) -> np.ndarray[Any, Any]:
    assert isinstance(plan, cuzarr.Expression)
    return np.asarray(xp.asnumpy(plan.compute(memory_limit=limit)))


def regions(plan: Any, limit: int = LIMIT) -> int:
    return int(plan.explain(memory_limit=limit).to_dict()["stages"][-1]["regions"])


def same(got: Any, expected: Any) -> None:
    assert got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", "? i1 i2 i4 i8 u1 u2 u4 u8".split())
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_results_of_whole_numbers_have_numpys_bits(device: str, dtype: str, name: str) -> None:
    function, numpys = getattr(cuzarr.xp, name), getattr(np, name)
    for shape, chunks in SHAPES:
        values = whole(dtype, shape)
        z = stored(values, chunks)
        for axis in range(-len(shape), len(shape)):
            same(computed(function(z, axis)), numpys(values, axis))
        same(computed(function(z), 1 << 16), numpys(values))
        if dtype != "?":
            same(computed(function(z, 0, dtype)), numpys(values, 0, dtype))
    assert regions(function(stored(whole(dtype, (23, 31)), (5, 7)), 0)) > 3


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_running_results_of_floats_are_near_to_numpys(device: str, dtype: str) -> None:
    tolerance = {"e": 2e-2, "f": 1e-5, "F": 1e-5}.get(np.dtype(dtype).char, 1e-13)
    for shape, chunks in SHAPES[:3]:
        values = (np.random.default_rng(1).random(shape) + 0.5).astype(dtype)
        if dtype[0] == "c":
            values = values * np.array(1j - 0.5, dtype)
        z = stored(values, chunks)
        for axis in (*range(len(shape)), None):
            for function, numpys in ((cuzarr.xp.cumsum, np.cumsum), (cuzarr.xp.cumprod, np.cumprod)):
                expected = numpys(values.astype("f8" if dtype[0] == "f" else "c16"), axis).astype(dtype)
                got = computed(function(z, axis), 1 << 17)
                assert got.dtype == expected.dtype
                np.testing.assert_allclose(got, expected, rtol=tolerance)
    odd = np.array([1, np.inf, 1, -np.inf, 1, np.nan, 2, -0.0] * 9, dtype)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(computed(cuzarr.xp.cumsum(stored(odd, (5,)))), np.cumsum(odd))


def test_floats_are_rounded_once_and_the_same_on_every_device(gpu: str) -> None:
    values = np.full(3000, 0.1, "f4")
    plan = cuzarr.xp.cumsum(stored(values, (100,)))
    there = computed(plan)
    assert regions(plan) > 3
    np.testing.assert_allclose(there, np.cumsum(values.astype("f8")).astype("f4"), rtol=6e-8)
    np.testing.assert_array_equal(there, plan.compute(device="cpu", memory_limit=LIMIT))


def test_axes_have_names_and_results_keep_them(device: str) -> None:
    values = whole("i4", (6, 8))
    z = stored(values, (2, 3), dimension_names=("time", "x"))
    plan = cuzarr.xp.cumsum(z, "time")
    same(computed(plan), np.cumsum(values, 0))
    assert plan._dimension_names == ("time", "x") and cuzarr.xp.cumsum(z)._dimension_names is None
    kept = plan.store({}, chunks=(2, 3))
    assert kept.metadata.dimension_names == ("time", "x")
    with pytest.raises(InvalidArgumentError, match="'y'"):
        cuzarr.xp.cumsum(z, "y")
    with pytest.raises(InvalidArgumentError, match="axis 2"):
        cuzarr.xp.cumsum(z, 2)


def test_numpys_functions_and_those_of_the_standard_are_these(device: str) -> None:
    values = whole("i2", (6, 8))
    z = stored(values, (2, 3))
    same(computed(np.cumsum(z + 0, axis=1)), np.cumsum(values, 1))
    same(computed(np.cumprod(z + 0)), np.cumprod(values))
    assert isinstance(np.cumsum(z, axis=0), np.ndarray if device == "cpu" else object)
    np.testing.assert_array_equal(xp.asnumpy(np.cumsum(z, axis=0)), np.cumsum(values, 0))
    initial = np.concatenate([np.zeros((6, 1), "i8"), np.cumsum(values, 1)], 1)
    same(computed(xp.cumulative_sum(z, axis=1, include_initial=True)), initial)
    same(computed(xp.cumulative_prod(stored(values[0], (3,)))), np.cumprod(values[0]))
    with pytest.raises(InvalidArgumentError, match="2 dimensions"):
        xp.cumulative_sum(z)
    gaps = np.where(values > 4, np.nan, values / 4)
    np.testing.assert_allclose(computed(cuzarr.xp.nancumsum(stored(gaps, (2, 3)), 0)), np.nancumsum(gaps, 0), rtol=1e-13)
    np.testing.assert_allclose(computed(cuzarr.xp.nancumprod(stored(gaps, (2, 3)))), np.nancumprod(gaps), rtol=1e-13)
    same(computed(cuzarr.xp.nancumsum(z, 0)), np.nancumsum(values, 0))
    with pytest.raises(DTypeMismatchError, match="does not compute"):
        cuzarr.xp.cumsum(stored(np.zeros(3, "S2"), (2,)))


def test_running_results_are_operands_and_take_any(device: str) -> None:
    a, b = whole("i4", (20, 12), 1), whole("i4", (20, 12), 2)
    x, y = stored(a, (3, 5)), stored(b, (4, 4))
    cases: list[tuple[Any, Any]] = [
        (cuzarr.xp.cumsum(x * 2 - y, 0) + y, np.cumsum(a * 2 - b, 0) + b),
        (cuzarr.xp.cumsum(cuzarr.xp.cumsum(x, 0), 1), np.cumsum(np.cumsum(a, 0, "i8"), 1)),
        (cuzarr.xp.cumsum(cuzarr.xp.cumsum(x, 1), 0) - cuzarr.xp.cumsum(y, 1), np.cumsum(np.cumsum(a, 1), 0) - np.cumsum(b, 1)),
        (cuzarr.xp.cumsum(x.lazy[3], 0) + y, np.cumsum(a[3]) + b),
        (cuzarr.xp.cumsum(x.lazy[:, 2:3], 0) + cuzarr.xp.cumsum(y, 1), np.cumsum(a[:, 2:3], 0) + np.cumsum(b, 1)),
        (cuzarr.xp.cumsum(x - x.mean(), 0).round(6), np.cumsum(a - a.mean(), 0).round(6)),
        (cuzarr.xp.cumsum(x, 0) - cuzarr.xp.cumsum(x, 0).max(), np.cumsum(a, 0) - np.cumsum(a, 0).max()),
        (cuzarr.xp.cumsum(cuzarr.xp.concatenate([x, y], 1), 1), np.cumsum(np.concatenate([a, b], 1), 1)),
        (cuzarr.xp.concatenate([cuzarr.xp.cumsum(x, 0), cuzarr.xp.cumsum(y, 1)], 0), np.concatenate([np.cumsum(a, 0), np.cumsum(b, 1)])),
        (cuzarr.xp.diff(cuzarr.xp.cumsum(x, 0), axis=0), a[1:].astype("i8")),
        (cuzarr.xp.cumsum(x, 0).transpose(), np.cumsum(a, 0).T),
        (cuzarr.xp.flip(cuzarr.xp.cumsum(x, 0), 1), np.cumsum(a, 0)[:, ::-1]),
        (cuzarr.xp.cumsum(cuzarr.xp.flip(x, 0), 0), np.cumsum(a[::-1], 0)),
        (cuzarr.xp.expand_dims(cuzarr.xp.cumsum(x, 1), 0), np.cumsum(a, 1)[None]),
        (cuzarr.xp.cumsum(x.lazy[7:8], 0).sum(axis=1), np.cumsum(a[7:8], 0).sum(1)),
        (cuzarr.xp.cumsum(x, 0).sum(axis=0), np.cumsum(a, 0).sum(0)),
        (cuzarr.xp.cumsum(x, 1).argmax(axis=1), np.cumsum(a, 1).argmax(1)),
        (cuzarr.xp.cumsum(x, 0) > 3, np.cumsum(a, 0) > 3),
        (cuzarr.xp.cumsum(cuzarr.xp.cumsum(x, 0)), np.cumsum(np.cumsum(a, 0))),
        (cuzarr.xp.squeeze(cuzarr.xp.cumsum(x.lazy[2:3], 0)), np.cumsum(a[2:3], 0)[0]),
    ]  # fmt: skip
    for number, (plan, expected) in enumerate(cases):
        got = computed(plan, 1 << 16)
        np.testing.assert_allclose(got, expected, atol=1e-9, err_msg=f"case {number}: {plan!r}")
    np.testing.assert_allclose(float(computed(cuzarr.xp.median(cuzarr.xp.cumsum(x, 0)), 1 << 16)), np.median(np.cumsum(a, 0)))


def test_parts_of_running_results_begin_with_what_lies_before(device: str) -> None:
    values = whole("i8", (60, 7))
    z = stored(values, (4, 3))
    sums, plan = np.cumsum(values, 0), cuzarr.xp.cumsum(z, 0)
    with cuzarr.config.set({"memory_limit": LIMIT}):
        for key in (np.s_[30:], np.s_[59], np.s_[3:50:7, 1:], np.s_[:4], np.s_[5:5]):
            np.testing.assert_array_equal(xp.asnumpy(plan[key]), sums[key])
        flat = cuzarr.xp.cumsum(z)
        np.testing.assert_array_equal(xp.asnumpy(flat[100:333]), np.cumsum(values)[100:333])
    last = cuzarr.xp.take(plan, np.array([59]), 0)
    same(computed(last), sums[[59]])
    for refused in (
        lambda: cuzarr.xp.flip(plan, 0),
        lambda: cuzarr.xp.take(plan, [5, 3], 0),
        lambda: cuzarr.xp.flip(cuzarr.xp.cumsum(z)),
    ):
        with pytest.raises(UnsupportedError, match="follow each other"):
            refused()


def test_plans_are_stored_continued_and_explained(device: str, tmp_path: Path) -> None:
    values = whole("i8", (40, 30))
    z = stored(values, (4, 6))
    plan = cuzarr.xp.cumsum(z * 2, 0)
    target = plan.store(tmp_path / "sums.zarr", chunks=(5, 7), memory_limit=LIMIT)
    np.testing.assert_array_equal(xp.asnumpy(target[...]), np.cumsum(values * 2, 0))
    sharded = plan.store(tmp_path / "shards.zarr", chunks=(5, 5), shards=(10, 10), memory_limit=1 << 16)
    np.testing.assert_array_equal(xp.asnumpy(sharded[...]), np.cumsum(values * 2, 0))
    out = np.zeros((40, 30), "f8")
    if device == "cpu":
        assert plan.compute(out=out, memory_limit=LIMIT) is out
        np.testing.assert_array_equal(out, np.cumsum(values * 2, 0))
    told = plan.explain(memory_limit=LIMIT)
    stage = told.to_dict()["stages"][-1]
    # The grid is read once: regions are of whole chunks.
    assert stage["reads"][0]["read"]["chunks"] == 50 and stage["regions"] > 1
    assert "cumsum(" in str(told) and "axis=0" in str(told) and "cumsum" in repr(plan)
    again = pickle.loads(pickle.dumps(cuzarr.xp.cumsum(cuzarr.open_array(target.store_path) + 1)))
    same(computed(again, 1 << 16), np.cumsum(np.cumsum(values * 2, 0) + 1))
    with pytest.raises(BudgetExceededError):
        plan.compute(memory_limit=500)
    with pytest.raises(CuzarrError, match="overlaps"):
        cuzarr.xp.cumsum(target, 0).store(target)

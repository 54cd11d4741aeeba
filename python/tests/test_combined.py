"""Functions made of others, beside NumPy's: of arrays in stores, views, plans and memory, with odd values and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import BudgetExceededError, DTypeMismatchError, InvalidArgumentError, ShapeMismatchError, UnsupportedError

SHAPES: list[tuple[int, ...]] = [(), (1,), (0,), (7,), (3, 0), (5, 6), (4, 1, 3)]
ODD = [0.0, -0.0, 1.0, 1.0 + 1e-9, 1.00002, np.nan, np.inf, -np.inf, 1e300, -7.5]


def host(value: Any) -> np.ndarray[Any, Any]:
    value = value.compute() if isinstance(value, cuzarr.Expression) else value
    return value.cpu() if isinstance(value, cuzarr.DeviceArray) else np.asarray(value)


def stored(values: np.ndarray[Any, Any]) -> cuzarr.Array:
    return cuzarr.create_array({}, data=values, chunks=tuple(max(1, -(-extent // 2)) for extent in values.shape))


def kinds(values: np.ndarray[Any, Any]) -> list[Any]:
    array = stored(values)
    return [values, array, array.lazy, np.logical_or(array, False) if values.dtype == bool else array * values.dtype.type(1)]


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "u1", "?"])
@pytest.mark.parametrize("shape", SHAPES)
def test_closeness_and_equality_are_numpys(shape: tuple[int, ...], dtype: str) -> None:
    choose = np.random.default_rng(len(shape) + 3)
    with np.errstate(all="ignore"):
        x, y = (
            np.asarray(choose.choice(ODD, shape), dtype) if dtype[0] == "f" else choose.integers(0, 2, shape).astype(dtype)
            for _ in "xy"
        )
    for options in ({}, {"equal_nan": True}, {"rtol": 0.5, "atol": 0}):
        with np.errstate(all="ignore"):
            close, is_all = np.isclose(x, y, **options), np.allclose(x, y, **options)
        for ours in kinds(x):
            for other in (y, stored(y)):
                np.testing.assert_array_equal(host(cuzarr.xp.isclose(ours, other, **options)), close)
                assert bool(cuzarr.xp.allclose(ours, other, **options)) == is_all
                if not isinstance(ours, cuzarr.Expression):
                    assert np.allclose(ours, other, **options) is is_all
            assert np.allclose(ours, ours, **options) == np.allclose(x, x, **options)
    for equal_nan in (False, True):
        for other in (x, y, np.zeros((9, 9))):
            expected = np.array_equal(x, other, equal_nan=equal_nan)
            for ours in kinds(x):
                assert bool(cuzarr.xp.array_equal(ours, other, equal_nan=equal_nan)) == expected
                assert isinstance(ours, cuzarr.Expression) or np.array_equal(ours, other, equal_nan=equal_nan) is expected


@pytest.mark.parametrize("shape", SHAPES)
def test_nan_becomes_numbers_as_numpys_does(shape: tuple[int, ...]) -> None:
    for dtype in ("f2", "f4", "f8", "i2", "?"):
        with np.errstate(all="ignore"):
            x = np.asarray(np.random.default_rng(4).choice(ODD[:5] if dtype[0] in "i?" else ODD, shape), dtype)
        for options in ({}, {"nan": 5.0, "posinf": 3.0}, {"neginf": -1.0}):
            expected = np.nan_to_num(x, **options)
            for ours in kinds(x):
                for got in (cuzarr.xp.nan_to_num(ours, **options), np.nan_to_num(ours, **options)):
                    assert host(got).dtype == expected.dtype
                    np.testing.assert_array_equal(host(got), expected)
    with pytest.raises(DTypeMismatchError, match="real numbers"):
        cuzarr.xp.nan_to_num(np.array([1j]))


def test_weighted_means_are_numpys() -> None:
    choose = np.random.default_rng(6)
    for dtype in ("f4", "f8", "i4"):
        x = (choose.random((5, 6, 3)) * 9).astype(dtype)
        weights = choose.random(x.shape)
        for axis, given in [(None, None), (1, None), (None, weights), ((0, 2), weights), (1, weights[0, :, 0]), (-1, [1, 2, 3]),
                            ((2, 0), weights[:, 0].T), ((0, 1), weights[..., 0].astype("f4"))]:  # fmt: skip
            expected = np.average(x, axis, given)
            for ours in kinds(x):
                for got in (cuzarr.xp.average(ours, axis, given), np.average(ours, axis, given)):
                    np.testing.assert_allclose(host(got), expected, rtol=1e-6)
                    assert host(got).dtype == expected.dtype
    array = cuzarr.create_array({}, data=np.arange(6.0).reshape(2, 3), dimension_names=("time", "x"))
    assert cuzarr.xp.average(array, "time", [1, 3]).compute().tolist() == [2.25, 3.25, 4.25]
    assert cuzarr.xp.average(array, "time", stored(np.array([1.0, 3.0]))).compute().tolist() == [2.25, 3.25, 4.25]
    for axis, wrong in [(0, [1, 2, 3]), (None, [1, 2]), ((0, 1), np.ones((3, 2)))]:
        with pytest.raises(ShapeMismatchError, match="weights have shape"):
            cuzarr.xp.average(array, axis, wrong)
    with pytest.raises(InvalidArgumentError):
        cuzarr.xp.average(array, "place")


def test_arrays_beyond_the_memory_limit_are_compared_and_not_sorted() -> None:
    values = np.random.default_rng(1).random((300, 200))
    array = cuzarr.create_array({}, data=values, chunks=(20, 20))
    with cuzarr.config.set({"memory_limit": "100 KiB"}):
        assert np.allclose(array, array) and np.array_equal(array, values)
        assert not np.array_equal(array, values[:-1])
        np.testing.assert_allclose(np.mean(array, axis=0), values.mean(axis=0))
        np.testing.assert_allclose(np.nanmedian(array), np.median(values))
        np.testing.assert_allclose(np.mean(array, where=values > 0.5), np.mean(values, where=values > 0.5))
        for call in (np.sort, np.argsort, np.fft.fft, np.add.reduce, np.linalg.norm):
            for x in (array, array.lazy):
                with pytest.raises(BudgetExceededError, match=r"reads all elements.*480000 bytes.*102400") as raised:
                    call(x)
                assert f"x{x._on_host}" in str(raised.value)
        np.testing.assert_array_equal(np.sort(array[...]), np.sort(values))
        np.testing.assert_array_equal(np.asarray(array), values)
        np.testing.assert_array_equal(np.sort(array.lazy[:40]), np.sort(values[:40]))
        with pytest.raises(BudgetExceededError):
            np.concatenate([values, array])


def test_an_array_is_read_once_for_a_function_of_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    array, reads = stored(np.arange(12.0).reshape(3, 4)), []
    own = cuzarr.Array._elements
    monkeypatch.setattr(cuzarr.Array, "_elements", lambda self: (reads.append(1), own(self))[1])
    for call in (np.sort, np.gradient, np.linalg.svd, lambda x: np.einsum("ij->j", x), lambda x: np.pad(x, 1)):
        reads.clear()
        call(array)
        assert len(reads) == 1


def test_xarray_and_dask_read_arrays_in_stores() -> None:
    xarray, dask_array = pytest.importorskip("xarray"), pytest.importorskip("dask.array")
    values = np.arange(12.0).reshape(3, 4)
    array = stored(values)
    for x in (array, array.lazy):
        assert not hasattr(x, "__array_function__")
        wrapped = xarray.DataArray(x, dims=("a", "b"))
        assert isinstance(wrapped.data, np.ndarray) and (wrapped.mean("a").values == values.mean(axis=0)).all()
        joined = np.concatenate([dask_array.from_array(values, chunks=2), x])
        assert isinstance(joined, dask_array.Array)
        np.testing.assert_array_equal(joined.compute(), np.concatenate([values, values]))
    lazy = dask_array.from_array(array, chunks=2)
    np.testing.assert_array_equal((lazy + 1).compute(), values + 1)


def test_functions_that_write_do_not_take_arrays_in_stores() -> None:
    array, values = stored(np.zeros((2, 3))), np.ones((2, 3))
    for call in (lambda x: np.copyto(x, values), lambda x: np.sum(values, axis=0, out=x), lambda x: np.add(values, 1, out=x)):
        for x in (array, array.lazy, array + 1):
            with pytest.raises((UnsupportedError, InvalidArgumentError), match=r"numpy\.|out is"):
                call(x)
    target = np.zeros(3)
    assert np.sum(array.lazy[...] + 1, axis=0, out=target) is target and (target == 2).all()
    assert np.max(array, axis=0, out=target) is target and not target.any()
    np.copyto(values, array)
    assert not values.any()


def test_weights_that_sum_to_zero_are_refused() -> None:
    x = np.array([[1.0, 2.0], [5.0, 6.0]])
    for values in kinds(x):
        for weights, axis in (([1, -1], 0), (np.array([[1.0, 1.0], [-1.0, 3.0]]), 0), (np.zeros((2, 2)), None)):
            with pytest.raises(ZeroDivisionError, match="the sum of the weights is 0"):
                cuzarr.xp.average(values, axis=axis, weights=weights)
        with pytest.raises(ZeroDivisionError):
            np.average(values, axis=0, weights=[1, -1])

"""Quantiles and histograms: NumPy's values, types and edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import gpu_device

import cuzarr

DEVICES = ["cpu", *filter(None, [gpu_device()[0]])]
METHODS = [
    "linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf", "averaged_inverted_cdf", "closest_observation",
    "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased", "normal_unbiased",
]  # fmt: skip


def values(dtype: str, shape: tuple[int, ...], seed: int = 1) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) < 0.4
    numbers = random.normal(20, 40, shape)
    return (np.abs(numbers) if dtype.startswith("u") else numbers).astype(dtype)


def ways(x: np.ndarray[Any, Any], device: str) -> list[tuple[Any, dict[str, Any]]]:
    """The elements in memory, and in a store that is read in one piece, in columns, or several times."""
    chunks = tuple(max(1, extent // 4) for extent in x.shape)
    stored = cuzarr.array(x, store={}, chunks=chunks)
    limits = [None, "64 KiB", "24 KiB"] if device == "cpu" else ["64 KiB"]
    return [(cuzarr.xp.asarray(x, device=device), {}), *((stored, {"device": device, "memory_limit": limit}) for limit in limits)]


def result(got: Any, how: dict[str, Any]) -> Any:
    return cuzarr.xp.asnumpy(got.compute(**how) if isinstance(got, cuzarr.Expression) else got)


def check(name: str, x: np.ndarray[Any, Any], *arguments: Any, device: str = "cpu", **options: Any) -> None:
    with np.errstate(all="ignore"):
        own = getattr(np, name)(x, *arguments, **options)
        # In float64, and rounded once: NumPy rounds after each step, in the elements' own type, where int8 may wrap.
        expected = np.asarray(getattr(np, name)(x.astype("f8"), *arguments, **options)).astype(own.dtype)
    for source, how in ways(x, device):
        got = getattr(cuzarr.xp, name)(source, *arguments, **options)
        assert (got.shape, got.dtype) == (own.shape, own.dtype), (name, options)
        got = result(got, how)
        assert (got.shape, got.dtype) == (own.shape, own.dtype), (name, options)
        np.testing.assert_array_equal(got, expected, err_msg=f"{name} {options} {how}")


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_of_every_method_are_numpys(method: str) -> None:
    for dtype in ("int8", "uint16", "int64", "float16", "float32", "float64"):
        for count in (1, 2, 5, 300):
            x = values(dtype, (count,))
            check("quantile", x, [0, 0.1, 1 / 3, 0.5, 0.75, 0.999, 1], method=method)
        check("quantile", x, 0.3, method=method)
        check("percentile", x, 70, method=method)


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)], ids=str)
def test_quantiles_over_axes_are_numpys(axis: Any, device: str) -> None:
    for dtype in ("uint8", "float32", "float64"):
        x = values(dtype, (17, 6, 20))
        check("median", x, axis=axis, device=device)
        check("quantile", x, [0.2, 0.9], axis=axis, keepdims=True, device=device)
        if dtype != "uint8":
            x[np.random.default_rng(2).random(x.shape) < 0.3] = np.nan
            x[:, 2, 3] = np.nan
            check("nanpercentile", x, [5, 50], axis=axis, device=device)
            check("nanmedian", x, axis=axis, keepdims=True, device=device)
            check("median", x, axis=axis, device=device)


def test_quantiles_of_special_numbers() -> None:
    x = np.array([-np.inf, -0.0, 0.0, 5e-324, 1.0, np.inf])
    assert cuzarr.xp.quantile(x, 1.0) == np.inf and cuzarr.xp.quantile(x, 0.0) == -np.inf
    assert cuzarr.xp.quantile(x, [0.4, 0.6]).tolist() == [0.0, 5e-324]
    # Where neighbours are equal, nothing lies between them: NumPy has NaN.
    assert cuzarr.xp.quantile(np.array([1.0, np.inf, np.inf]), 0.75) == np.inf
    edges = np.array([np.iinfo("i8").min, -1, np.iinfo("i8").max])
    assert cuzarr.xp.quantile(edges, 0.5, method="lower") == -1 and cuzarr.xp.median(edges) == -1
    assert cuzarr.xp.quantile(edges, 0.75) == np.float64(2**62)
    assert cuzarr.xp.quantile(np.array([True, False, True]), 0.5, method="lower")
    assert cuzarr.xp.median(np.array([True, False])) == 0.5
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert cuzarr.xp.median(np.array([1.5, -2, 7], bfloat16)) == 1.5


def test_selections_take_part_in_plans() -> None:
    x = values("float32", (12, 30))
    z = cuzarr.array(x, store={}, chunks=(5, 8))
    plan = (z - cuzarr.xp.median(z, axis=0)) * 2
    np.testing.assert_array_equal(plan.compute(memory_limit="16 KiB"), (x - np.median(x, axis=0)) * 2)
    counts, _ = cuzarr.xp.histogram(z * 2, bins=[0, 1, 50])
    np.testing.assert_array_equal((counts + 1).compute(), np.histogram(x * 2, [0, 1, 50])[0] + 1)
    target = cuzarr.create_array({}, shape=(30,), chunks=(7,), dtype="float64")
    cuzarr.xp.quantile(z, 0.25, axis=0).store(target)
    np.testing.assert_allclose(target[...], np.quantile(x, 0.25, axis=0), rtol=1e-6)
    assert repr(cuzarr.xp.median(z)) == "<Expression quantile(array, [0.5]) shape=() dtype=float32>"


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "uint64", "float16", "float32", "float64"])
def test_histograms_are_numpys(dtype: str, device: str) -> None:
    x = values(dtype, (40, 50))
    plain = x.astype("u1") if dtype == "bool" else x
    given: list[Any] = [
        10,
        1,
        37,
        [0, 1, 2, 40],
        np.array([-3.5, 0, 0, 7.25], "f4"),
        np.array([-5, 2, 90]),
        np.array([0, 9], "u1"),
    ]
    for bins in given:
        for options in (
            ({}, {"range": (-10, 33.3)}, {"range": (4, 4)}, {"density": True}) if np.ndim(bins) == 0 else ({}, {"density": True})
        ):
            expected = np.histogram(plain, bins, **options)
            assert cuzarr.xp.histogram_bin_edges(x, bins, options.get("range")).dtype == expected[1].dtype
            for source, how in ways(x, device)[: 2 if isinstance(bins, int) else 1]:
                counts, edges = (result(one, how) for one in cuzarr.xp.histogram(source, bins, **options))
                assert (counts.dtype, edges.dtype) == (expected[0].dtype, expected[1].dtype), (bins, options)
                np.testing.assert_array_equal(counts, expected[0], err_msg=f"{bins} {options}")
                np.testing.assert_array_equal(edges, expected[1], err_msg=f"{bins} {options}")


def test_histograms_without_meaning_are_refused() -> None:
    x = np.array([1.0, np.nan])
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="finite range"):
        cuzarr.xp.histogram(x)
    assert cuzarr.xp.histogram(x, 2, (0, 2))[0].tolist() == [0, 1]
    for bins in (0, -1, 1.5, [2, 1], [1], [[1, 2]], [0, np.nan]):
        with pytest.raises(cuzarr.errors.InvalidArgumentError):
            cuzarr.xp.histogram(x, bins)
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="does not increase"):
        cuzarr.xp.histogram(x, 3, (2, 1))
    with pytest.raises(cuzarr.errors.UnsupportedError, match="auto"):
        cuzarr.xp.histogram(x, "auto")
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="too many"):
        cuzarr.xp.histogram(np.array([1, 1 + 2e-16]), 1000)
    for wrong in (np.zeros(3, "c8"), np.zeros(3, "M8[s]")):
        with pytest.raises(cuzarr.errors.DTypeMismatchError):
            cuzarr.xp.histogram(wrong)
        with pytest.raises(cuzarr.errors.DTypeMismatchError):
            cuzarr.xp.median(wrong)


def test_quantiles_without_meaning_are_refused() -> None:
    x = np.arange(5.0)
    for q, options in (
        (1.5, {}),
        (-0.1, {}),
        (np.nan, {}),
        ([[0.5]], {}),
        ("a", {}),
        (0.5, {"method": "best"}),
        (0.5, {"axis": 1}),
    ):
        with pytest.raises(cuzarr.errors.InvalidArgumentError):
            cuzarr.xp.quantile(x, q, **options)
    assert np.isnan(cuzarr.xp.median(np.zeros((0, 3)), 0)).tolist() == [True] * 3  # as NumPy
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="no elements"):
        cuzarr.xp.quantile(np.zeros((0, 3)), 0.5, 0)
    assert cuzarr.xp.median(np.zeros((0, 3)), 1).shape == (0,)
    with pytest.raises(cuzarr.errors.DTypeMismatchError, match="uint8"):
        cuzarr.xp.quantile(np.array([True]), 0.5)
    many = cuzarr.array(np.zeros(64), store={}, chunks=8)
    with pytest.raises(cuzarr.errors.BudgetExceededError):
        cuzarr.xp.quantile(many, [0.5] * 9).compute(memory_limit=400)

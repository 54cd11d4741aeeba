"""Sorting, sets, searches, running sums and triangles of elements in memory, beside NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import (
    BoundsCheckError,
    BudgetExceededError,
    DTypeMismatchError,
    InvalidArgumentError,
    SelectionInvalidError,
    ShapeMismatchError,
    UnsupportedError,
)

REALS = "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8".split()
SHAPES = [((0,), 0), ((1,), 0), ((37,), 0), ((2, 0), 1), ((3, 5, 2), 1), ((40, 3), 0), ((1, 4), -1)]
xp: Any = cuzarr.xp


def some(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Elements of which many are equal, with NaN, infinities and zeros of both signs."""
    choose = np.random.default_rng(seed)
    values = choose.integers(-4, 5, shape)
    if np.dtype(dtype).kind not in "fc":
        return values.astype(dtype)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5])
    return np.where(choose.random(shape) < 0.3, choose.choice(special, shape), values).astype(dtype)


def there(values: np.ndarray[Any, Any], device: str) -> Any:
    return values if device == "cpu" else cuzarr.DeviceArray.from_host(values, device)


def same(got: Any, expected: Any, device: str, nearly: bool = False) -> None:
    assert isinstance(got, np.ndarray if device == "cpu" else cuzarr.DeviceArray)
    got, expected = xp.asnumpy(got), np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if nearly:
        np.testing.assert_allclose(got, expected, rtol={"e": 2e-2, "f": 1e-5, "F": 1e-5}.get(expected.dtype.char, 1e-12))
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", [*REALS, "M8[s]", "m8[ns]"])
def test_elements_are_sorted_as_numpy_sorts_them(device: str, dtype: str) -> None:
    for shape, axis in SHAPES:
        values = some("i8" if dtype[0] in "mM" else dtype, shape).astype(dtype)
        if dtype[0] in "mM" and values.size:
            values.flat[::3] = "NaT"
        x = there(values, device)
        order = np.argsort(values, axis, kind="stable")
        same(xp.argsort(x, axis), order, device)
        same(xp.sort(x, axis), np.take_along_axis(values, order, axis), device)
        same(xp.sort(x, None), np.sort(values, None), device)
        falling = xp.asnumpy(xp.argsort(x, axis, descending=True))
        same(xp.sort(x, axis, descending=True), np.take_along_axis(values, falling, axis), device)
        # Equal elements keep their order.
        places = np.take_along_axis(
            np.broadcast_to(
                np.expand_dims(np.arange(shape[axis]), list(range(1, len(shape)))), np.moveaxis(values, axis, 0).shape
            ),
            np.moveaxis(falling, axis, 0),
            0,
        )
        lines = np.take_along_axis(np.moveaxis(values, axis, 0), np.moveaxis(falling, axis, 0), 0)
        assert np.all((places[1:] > places[:-1]) | (lines[1:] != lines[:-1]))


def test_numpys_functions_of_device_memory_are_ours(gpu: str) -> None:
    values = some("f4", (4, 5))
    x = there(values, gpu)
    same(np.sort(x, axis=0), np.sort(values, axis=0), gpu)
    same(np.argsort(x), np.argsort(values, kind="stable"), gpu)
    same(np.cumsum(x[:, ::2], 1, "f8"), np.cumsum(values[:, ::2], 1, "f8"), gpu, nearly=True)
    same(np.tril(x), np.tril(values), gpu)
    same(np.take_along_axis(x, x.argmax(0)[None], 0), np.take_along_axis(values, values.argmax(0)[None], 0), gpu)
    for one in (x.T, x[::2, ::-1]):
        same(xp.sort(one, 0), np.sort(one.cpu(), 0), gpu)
        same(xp.argsort(one, 1), np.argsort(one.cpu(), 1, kind="stable"), gpu)


@pytest.mark.parametrize("dtype", [*REALS, "c8", "c16"])
@pytest.mark.filterwarnings("ignore:.*encountered in")
def test_running_sums_and_products_are_numpys(device: str, dtype: str) -> None:
    for shape, axis in SHAPES:
        values = (np.random.default_rng(1).random(shape) + 0.5).astype(dtype) if dtype[0] in "fc" else some(dtype, shape)
        x = there(values, device)
        nearly = dtype[0] in "fc"
        same(xp.cumsum(x, axis), np.cumsum(values, axis), device, nearly)
        same(xp.cumprod(x, axis), np.cumprod(values, axis), device, nearly)
        same(xp.cumsum(x), np.cumsum(values), device, nearly)
        same(
            xp.cumulative_sum(x, axis=axis, dtype="f8" if dtype[0] != "c" else "c16"),
            np.cumsum(values, axis, "f8" if dtype[0] != "c" else "c16"),
            device,
            True,
        )
        longer = np.concatenate(
            [
                np.ones_like(
                    values.take([0] * 1, axis)
                    if values.shape[axis]
                    else np.empty([1 if at == axis % len(shape) else extent for at, extent in enumerate(shape)], dtype)
                ),
                np.cumprod(values, axis),
            ],
            axis,
        )
        same(
            xp.cumulative_prod(x, axis=axis, include_initial=True), longer.astype(np.cumprod(values, axis).dtype), device, nearly
        )
    if dtype[0] in "iu":
        large = np.full(70, 3, dtype)
        same(xp.cumprod(there(large, device), dtype=dtype), np.cumprod(large, dtype=dtype), device)
    if dtype[0] == "f":
        odd = np.array([1, np.inf, 1, -np.inf, 1, np.nan, 2] * 7, dtype)
        same(xp.cumsum(there(odd, device)), np.cumsum(odd), device)
        zero = there(np.array([-0.0, -0.0], dtype), device)
        assert np.signbit(xp.asnumpy(xp.cumsum(zero))).all()


def test_running_sums_of_floats_are_rounded_once(gpu: str) -> None:
    values = np.full(3000, 0.1, "f4")
    exact = np.cumsum(values.astype("f8")).astype("f4")
    np.testing.assert_allclose(xp.cumsum(there(values, gpu)).cpu(), exact, rtol=1e-7)


@pytest.mark.filterwarnings("ignore:.*encountered in")
def test_methods_of_device_memory_are_numpys(device: str) -> None:
    values = some("f4", (4, 1, 5))
    x = cuzarr.DeviceArray.from_host(values, device)
    for call in (
        lambda x: x.argsort(0),
        lambda x: x.argsort(None),
        lambda x: x.cumsum(1),
        lambda x: x.cumprod(2, dtype="f8"),
        lambda x: x.take([2, -1], 2),
        lambda x: x.take([[3], [0]]),
        lambda x: x.squeeze(),
        lambda x: x.squeeze(1).swapaxes(0, 1),
        lambda x: x.flatten(),
        lambda x: x.flatten("F"),
        lambda x: x.nonzero()[2],
    ):
        got, expected = np.asarray(xp.asnumpy(call(x))), call(values)
        if "argsort" in call.__code__.co_names:
            expected = np.argsort(values, *([0] if expected.ndim > 1 else [None]), kind="stable")
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    ordered = np.array([0, 1, 3])
    same(cuzarr.DeviceArray.from_host(ordered, device).searchsorted(there(ordered, device), "right"), [1, 2, 3], device)
    row = x[1]
    row.sort(-1)
    values[1].sort(-1)
    np.testing.assert_array_equal(x.cpu(), values)
    assert x.sort(0) is None
    np.testing.assert_array_equal(x.cpu(), np.sort(values, 0))
    with pytest.raises(InvalidArgumentError):
        x.sort(3)


@pytest.mark.parametrize("dtype", REALS)
def test_sets_are_numpys(device: str, dtype: str) -> None:
    for shape in ((0,), (1,), (60,), (5, 2, 4), ()):
        values = some(dtype, shape)
        x = there(values, device)
        expected = np.unique(values, True, True, True, equal_nan=False)
        expected = (expected[0], expected[1], expected[2].reshape(shape), expected[3])
        for got, numpys in zip(xp.unique_all(x), expected, strict=True):
            same(got, numpys, device)
        same(xp.unique_values(x), expected[0], device)
        counted, inverse = xp.unique_counts(x), xp.unique_inverse(x)
        same(counted.counts, expected[3], device)
        same(inverse.inverse_indices, expected[2], device)
        same(inverse.values, expected[0], device)
    assert xp.unique_all(x)._fields == ("values", "indices", "inverse_indices", "counts")


@pytest.mark.parametrize("dtype", REALS)
def test_places_in_sorted_elements_are_numpys(device: str, dtype: str) -> None:
    asked = some(dtype, (4, 3), 2)
    for count in (0, 1, 30):
        values = some(dtype, (count,), 3)
        ordered, sorter = np.sort(values), np.argsort(values)
        for side in ("left", "right"):
            expected = np.searchsorted(ordered, asked, side)
            same(xp.searchsorted(there(ordered, device), there(asked, device), side=side), expected, device)
            same(xp.searchsorted(there(values, device), there(asked, device), side, there(sorter, device)), expected, device)
    numbers = there(np.array([1, 3, 5]), device)
    assert int(xp.asnumpy(xp.searchsorted(numbers, 3))) == 1 and int(xp.asnumpy(xp.searchsorted(numbers, 3, "right"))) == 2
    same(xp.searchsorted(numbers, there(np.array([2.5]), device)), np.array([1]), device)


def test_lines_are_taken_by_indices_of_their_own(device: str) -> None:
    choose = np.random.default_rng(5)
    for dtype in ("u1", "f2", "i4", "c16", "S3"):
        for shape, listed, axis in [
            ((3, 4), (3, 6), 1),
            ((3, 4), (1, 2), 1),
            ((1, 4), (5, 2), -1),
            ((4, 2, 3), (7, 2, 3), 0),
            ((5,), (0,), 0),
        ]:
            values = choose.integers(0, 100, shape).astype(dtype)
            by = choose.integers(-shape[axis], shape[axis], listed)
            expected = np.take_along_axis(values, by, axis)
            same(xp.take_along_axis(there(values, device), there(by, device), axis), expected, device)
            same(xp.take_along_axis(there(values, device), by.astype("i2"), axis), expected, device)
    x = there(np.arange(6).reshape(2, 3), device)
    same(xp.take_along_axis(x, there(np.array([5, -6]), device), None), np.array([5, 0]), device)
    for wrong in (3, -4):
        with pytest.raises(BoundsCheckError, match=f"index {wrong} "):
            xp.take_along_axis(x, there(np.array([[0], [wrong]]), device), 1)
    with pytest.raises(SelectionInvalidError, match="expected 2"):
        xp.take_along_axis(x, there(np.array([0]), device), 1)
    with pytest.raises(SelectionInvalidError, match="whole numbers"):
        xp.take_along_axis(x, there(np.array([[0.0]]), device), 1)
    with pytest.raises(ShapeMismatchError, match="do not fit"):
        xp.take_along_axis(x, there(np.zeros((3, 1), int), device), 1)


def test_index_arrays_and_masks_on_the_device_stay_there(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(60.0).reshape(3, 4, 5)
    by, bytes_, mask = np.array([[2, -1], [0, 2]]), np.array([[1, 0], [2, 2]], "u1"), values[:, :, 0] % 3 == 0
    keys: list[Any] = [
        by, np.s_[:, 1:, by], np.s_[..., by, ::-2], np.s_[None, :2, by], mask, np.s_[mask, ::-1], values > 30, bytes_,
        np.s_[:, np.zeros((0,), "i4")], np.s_[by, by], np.s_[by, :, by], np.s_[1, by], np.s_[by, 2, bytes_], np.s_[:, by, [[3], [0]]],
        np.s_[by[0], None, by[:1].T], np.s_[mask, bytes_.ravel()[:1]], np.s_[by, ..., -1], np.s_[by[:, None], ::2, by[None]],
    ]  # fmt: skip

    def on_device(key: Any) -> Any:
        if isinstance(key, tuple):
            return tuple(map(on_device, key))
        return there(key, gpu) if isinstance(key, np.ndarray) else key

    def refused(self: Any) -> Any:
        assert not self.shape, "indices came to the host"
        return cpu(self)

    cpu = cuzarr.DeviceArray.cpu
    x = there(values, gpu)
    for number, key in enumerate(keys):
        there_key, expected = on_device(key), values[key]
        new = np.arange(1000.0, 1000 + expected.size).reshape(expected.shape)
        target, other = there(values, gpu), there(np.asfortranarray(values), gpu)
        broadcast = there(values, gpu)
        there_new = there(new, gpu)
        with monkeypatch.context() as patch:
            patch.setattr(cuzarr.DeviceArray, "cpu", refused)
            got = x[there_key]
            target[there_key] = there_new
            other[there_key] = there_new
            broadcast[there_key] = -1
        same(got, expected, gpu)
        written, filled = values.copy(), values.copy()
        # An index may name an element several times. The last value stays then, as in NumPy.
        written[key], filled[key] = new, -1
        np.testing.assert_array_equal(target.cpu(), written, err_msg=f"key {number}")
        np.testing.assert_array_equal(other.cpu(), written, err_msg=f"key {number}")
        np.testing.assert_array_equal(broadcast.cpu(), filled, err_msg=f"key {number}")
    for wrong in (3, -4):
        outside = there(np.array([0, wrong]), gpu)
        for call in (lambda: x[outside], lambda: x[outside, outside], lambda: x.__setitem__(outside, 0)):  # noqa: B023
            with pytest.raises(BoundsCheckError, match=f"index {wrong} "):
                call()
    np.testing.assert_array_equal(x.cpu(), values)
    with pytest.raises(SelectionInvalidError, match="mask of shape"):
        x[there(np.ones((2, 4), bool), gpu)]
    with pytest.raises(SelectionInvalidError, match="do not fit together"):
        x[there(np.array([0, 1]), gpu), there(np.array([0, 1, 2]), gpu)]
    with pytest.raises(SelectionInvalidError, match="array of float64"):
        x[there(np.array([0.0]), gpu)]


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "c16", "S3", "i4,f8"])
def test_elements_of_any_size_are_written_by_indices_on_the_device(gpu: str, dtype: str) -> None:
    values = np.zeros((9, 4), dtype)
    choose = np.random.default_rng(5)
    rows = choose.integers(-9, 9, 40)
    new = np.frombuffer(choose.bytes(160 * values.dtype.itemsize), values.dtype).reshape(40, 4)
    x, y = there(values, gpu), there(np.zeros((4, 18), dtype), gpu)
    x[there(rows, gpu)] = new
    y[:, ::2][:, there(rows, gpu)] = there(new.T, gpu)
    values[rows] = new
    assert x.cpu().tobytes() == values.tobytes()
    assert np.ascontiguousarray(y.cpu()[:, ::2].T).tobytes() == values.tobytes()
    assert not any(np.ascontiguousarray(y.cpu()[:, 1::2]).tobytes())


def test_elements_are_taken_by_indices_on_the_device(gpu: str) -> None:
    values, by = np.arange(24.0).reshape(2, 3, 4), np.array([2, -1, 0, 2])
    for dtype in ("i8", "i2", "u1"):
        own = (by % 3).astype(dtype)
        same(xp.take(there(values, gpu), there(own, gpu), axis=1), np.take(values, own, 1), gpu)
    same(xp.take(there(values, gpu), there(by, gpu), axis=1), np.take(values, by, 1), gpu)
    same(xp.take(there(values, gpu), there(np.array(1), gpu), axis=-1), np.take(values, 1, -1), gpu)
    with pytest.raises(BoundsCheckError, match="index 3 "):
        xp.take(there(values, gpu), there(np.array([3]), gpu), axis=1)
    with pytest.raises(SelectionInvalidError, match="whole numbers"):
        xp.take(there(values, gpu), there(np.ones(2), gpu), axis=1)


def test_triangles_and_grids_are_numpys(device: str) -> None:
    for dtype in ("?", "i2", "f4", "c8"):
        values = some(dtype, (2, 3, 4))
        for k in (-4, -1, 0, 2, 9):
            same(xp.tril(there(values, device), k=k), np.tril(values, k), device)
            same(xp.triu(there(values, device), k=k), np.triu(values, k), device)
    with cuzarr.config.set({"array_type": "device"}):
        for shape in ((3, None), (2, 4), (0, 3)):
            same(xp.eye(*shape, k=1, dtype="i4", device=device), np.eye(*shape, 1, "i4"), device)
    coordinates = [np.arange(3), np.arange(4.0), np.arange(2)]
    for count in (0, 1, 2, 3):
        for indexing in ("xy", "ij"):
            grids = xp.meshgrid(*(there(one, device) for one in coordinates[:count]), indexing=indexing)
            for mine, numpys in zip(grids, np.meshgrid(*coordinates[:count], indexing=indexing), strict=True):
                same(mine, numpys, device)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.filterwarnings("ignore:overflow encountered in nextafter")
def test_next_floats_are_numpys(device: str, dtype: str) -> None:
    first, second = some(dtype, (30, 1), 7), some(dtype, (1, 30), 8)
    least = np.nextafter(np.zeros(1, dtype), np.ones(1, dtype))
    first[:4, 0] = [np.finfo(dtype).max, np.finfo(dtype).min, least[0], -least[0]]
    same(xp.nextafter(there(first, device), there(second, device)), np.nextafter(first, second), device)
    same(xp.nextafter(there(first, device), 1.0), np.nextafter(first, np.array(1, dtype)), device)
    got = xp.asnumpy(xp.nextafter(there(np.zeros(2, dtype), device), there(np.array([-1, -0.0], dtype), device)))
    assert np.signbit(got).all() and got[0] == -least[0] and got[1] == 0
    with pytest.raises(DTypeMismatchError, match="expected floats"):
        xp.nextafter(there(np.arange(3), device), there(np.arange(3), device))


@pytest.mark.filterwarnings("ignore:invalid value encountered in logaddexp")
def test_logarithms_of_sums_are_numpys_in_memory_and_plans(device: str) -> None:
    for dtype, tolerance in (("f4", 1e-6), ("f8", 1e-14), ("i2", 1e-6)):
        first, second = some(dtype, (30, 1), 7) * np.array(9, dtype), some(dtype, (1, 30), 8)
        got, expected = xp.logaddexp(there(first, device), there(second, device)), np.logaddexp(first, second)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(xp.asnumpy(got), expected, rtol=tolerance, atol=tolerance)
        stored = cuzarr.create_array({}, data=first, chunks=(7, 1))
        plan = xp.logaddexp(stored, 1.5)
        assert isinstance(plan, cuzarr.Expression)
        np.testing.assert_allclose(
            xp.asnumpy(plan.compute(device="cpu")),
            np.logaddexp(first, np.array(1.5, "f8" if dtype == "f8" else "f4")),
            rtol=tolerance,
            atol=tolerance,
        )
    with pytest.raises(DTypeMismatchError, match="no real numbers"):
        xp.logaddexp(there(np.zeros(2, "c8"), device), 1)


def test_wrong_calls_are_refused(gpu: str) -> None:
    stored = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3), chunks=(1, 3))
    for name in ("sort", "argsort", "unique_all", "unique_values", "tril", "meshgrid"):
        for lazy in (stored, stored + 1):
            with pytest.raises(UnsupportedError, match=f"{name} takes no arrays in stores"):
                getattr(xp, name)(lazy)
    x = there(np.ones((2, 3)), gpu)
    for call in (lambda: xp.sort(x, 2), lambda: xp.cumulative_sum(x), lambda: xp.searchsorted(x, x), lambda: xp.searchsorted(x[0], x, "middle"),
                 lambda: xp.tril(x[0]), lambda: xp.meshgrid(x), lambda: xp.meshgrid(x[0], indexing="x"), lambda: xp.sort(x[0, 0])):  # fmt: skip
        with pytest.raises(InvalidArgumentError):
            call()
    for dtype in ("c8", "S2", ">i4"):
        with pytest.raises(UnsupportedError, match=r"(?s)does not sort.*x.cpu"):
            xp.sort(there(np.zeros(3, dtype), gpu))
    with pytest.raises(DTypeMismatchError, match="no numbers"):
        xp.cumsum(there(np.zeros(3, "S2"), gpu))


@pytest.mark.parametrize("name", ["sort", "argsort", "unique", "tril"])
def test_numpys_functions_of_a_large_array_are_refused(name: str) -> None:
    stored = cuzarr.create_array({}, data=np.arange(600.0).reshape(20, 30), chunks=(5, 30))
    np.testing.assert_array_equal(getattr(np, name)(stored), getattr(np, name)(stored[...]))
    with cuzarr.config.set(memory_limit=4000), pytest.raises(BudgetExceededError, match=r"(?s)4800 bytes.*memory_limit"):
        getattr(np, name)(stored)

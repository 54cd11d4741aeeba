"""Lazy views: random programs of selections of selections, beside NumPy's arrays of the same elements."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import (
    BoundsCheckError,
    CuzarrError,
    DTypeMismatchError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    SelectionInvalidError,
)

LAYOUTS: list[dict[str, Any]] = [{}, {"compressors": None}, {"shards": (8, 6, 4)}]


def host(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, cuzarr.DeviceArray):
        return value.cpu()
    return np.asarray(value.get() if hasattr(value, "get") else value)


def an_item(choose: random.Random, extent: int) -> Any:
    if extent and choose.random() < 0.2:
        return choose.randint(-extent, extent - 1)
    ends = [choose.choice([None, choose.randint(-extent - 1, extent + 1)]) for _ in range(2)]
    return slice(*ends, choose.choice([None, None, 1, 2, -1, -3]))


def a_list(choose: random.Random, extent: int) -> Any:
    if choose.random() < 0.2:
        return np.array([choose.random() < 0.5 for _ in range(extent)], bool)
    count = choose.randint(0, 5) if extent else 0
    return np.array([choose.randint(-extent, extent - 1) for _ in range(count)], choose.choice(["i8", "i4", "i1"]))


def a_step(choose: random.Random, view: Any, truth: np.ndarray[Any, Any], places: Any) -> tuple[Any, Any, Any]:
    """The view, NumPy's elements and their places in the array, after one more selection."""
    kind = choose.choice(["brackets", "brackets", "oindex", "vindex", "transpose", "mask"])
    shape = truth.shape
    if kind == "brackets" or not shape:
        items = tuple(an_item(choose, extent) for extent in shape[: choose.randint(0, len(shape))])
        if choose.random() < 0.3 and len(items) < len(shape):
            items = (*items, ...)
        return view[items], truth[items], places[items]
    if kind == "transpose":
        axes = list(range(len(shape)))
        choose.shuffle(axes)
        return view.transpose(*axes), truth.transpose(axes), places.transpose(axes)
    if kind == "oindex":
        items = tuple(choose.choice([an_item, a_list])(choose, extent) for extent in shape)
        for axis in reversed(range(len(shape))):  # one after the other: their outer product
            one = (*[slice(None)] * axis, items[axis])
            truth, places = truth[one], places[one]
        return view.oindex[items], truth, places
    if kind == "mask":
        mask = np.array([choose.random() < 0.4 for _ in range(truth.size)], bool).reshape(shape)
        return view.vindex[mask], truth[mask], places[mask]
    if 0 in shape:
        return view, truth, places
    count = choose.choice([(0,), (1,), (4,), (2, 3)])
    points = tuple(np.array([choose.randint(-n, n - 1) for _ in range(int(np.prod(count)))], int).reshape(count) for n in shape)
    return view.vindex[points], truth[points], places[points]


@pytest.mark.parametrize("layout", LAYOUTS, ids=["zstd", "plain", "shards"])
@pytest.mark.parametrize("seed", range(40))
def test_views_of_views_are_numpys(seed: int, layout: dict[str, Any], device: str) -> None:
    choose = random.Random(seed)
    shape = (17, 11, 7)
    everything = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    array = cuzarr.create_array({}, shape=shape, chunks=(4, 3, 2), dtype="i4", fill_value=-1, **layout)
    array[...] = everything
    array = array.with_device(device)
    view, truth, places = array.lazy, everything, np.arange(everything.size).reshape(shape)
    for _ in range(choose.randint(1, 4)):
        view, truth, places = a_step(choose, view, truth, places)
        assert (view.shape, view.dtype, view.ndim, view.size) == (truth.shape, truth.dtype, truth.ndim, truth.size)
    got = view.result()
    assert np.array_equal(host(got), truth) and host(got).shape == truth.shape, view
    view.explain()
    # Written through: of elements that the view has several times, the last counts.
    value = np.asarray(np.arange(truth.size, dtype="i4").reshape(truth.shape) + 5000)
    expected = everything.copy().reshape(-1)
    expected[places.reshape(-1)] = value.reshape(-1)
    if len(np.unique(places)) == places.size:  # which one is the last depends on the order that is written in
        view[...] = value if choose.random() < 0.5 or device == "cpu" else cuzarr.xp.asarray(value, device=device)
        assert np.array_equal(host(array[...]), expected.reshape(shape)), view


def test_views_read_nothing_before_their_result() -> None:
    reads: list[str] = []

    class Counting(cuzarr.storage.MemoryStore):
        def get(self, *arguments: Any, **options: Any) -> Any:
            reads.append(str(arguments[0]))
            return super().get(*arguments, **options)

    array = cuzarr.create_array(Counting(), shape=(40, 6), chunks=(4, 6), dtype="i2")
    array[...] = np.arange(240).reshape(40, 6)
    reads.clear()
    view = array.lazy[::-1].oindex[[0, 1, 39]].T[2:4]
    assert (view.shape, reads) == ((2, 3), [])
    assert view.explain().to_dict()["chunks"] == 2
    assert view.result().tolist() == [[236, 230, 2], [237, 231, 3]]


def test_views_are_arrays_for_other_libraries(device: str) -> None:
    array = cuzarr.array(np.arange(12.0).reshape(3, 4), store={}, chunks=(2, 2)).with_device(device)
    view = array.lazy[1:, ::2]
    assert [host(one.result()).tolist() for one in view] == [[4, 6], [8, 10]]
    if device != "cpu":
        with pytest.raises(ImplicitHostCopyError, match="with_device"):
            np.asarray(view)
        return
    assert np.asarray(view).tolist() == [[4, 6], [8, 10]]
    assert np.from_dlpack(view).tolist() == [[4, 6], [8, 10]]
    assert np.sqrt(view).compute().tolist() == np.sqrt([[4, 6], [8, 10]]).tolist()
    assert view[0, 0].result() == 4 and isinstance(view[0, 0].result(), np.float64)
    assert view.lazy[0].T is not None and array.lazy.array is array


def test_strings_and_structures_have_views() -> None:
    words = np.array([f"word {number}" for number in range(12)], object).reshape(3, 4)
    strings = cuzarr.create_array({}, shape=(3, 4), chunks=(2, 2), dtype="string")
    strings[...] = words
    assert strings.lazy.T[::-1, 1].result().tolist() == words.T[::-1, 1].tolist()
    strings.lazy.T[0] = np.array(["a", "b", "c"], object)
    assert strings[:, 0].tolist() == ["a", "b", "c"]
    kind = np.dtype([("x", "i4"), ("y", "f8")])
    truth = np.zeros(6, kind)
    truth["x"] = np.arange(6)
    array = cuzarr.create_array({}, shape=(6,), chunks=(4,), dtype=kind, zarr_format=2)
    array[...] = truth
    assert np.array_equal(array.lazy[::-2].result(), truth[::-2])


def test_selections_that_do_not_fit_are_refused() -> None:
    view = cuzarr.zeros((4, 5), chunks=(2, 2), store={}).lazy[1:]
    for act, error in [
        (lambda: view[3], BoundsCheckError),
        (lambda: view.oindex[[0, -4]], BoundsCheckError),
        (lambda: view.vindex[[0], [5]], BoundsCheckError),
        (lambda: view[None], SelectionInvalidError),
        (lambda: view[0, 0, 0], SelectionInvalidError),
        (lambda: view[::0], SelectionInvalidError),
        (lambda: view.vindex[[0, 1]], SelectionInvalidError),
        (lambda: view.vindex[[0, 1], [0, 1, 2]], SelectionInvalidError),
        (lambda: view.transpose(0, 0), InvalidArgumentError),
        (lambda: view.write(np.zeros((9, 9))), CuzarrError),
    ]:
        with pytest.raises(error):
            act()


def test_many_points_are_read_and_written_in_order(device: str) -> None:
    """So many that they are grouped by several threads."""
    rng = np.random.default_rng(3)
    truth = np.arange(90 * 70, dtype="i4").reshape(90, 70)
    for layout in ({}, {"compressors": None}, {"shards": (24, 20)}):
        array = cuzarr.create_array({}, shape=truth.shape, chunks=(12, 10), dtype="i4", **layout)
        array[...] = truth
        reads = array.with_device(device)
        rows, columns = rng.integers(-90, 90, 150_000), rng.integers(-70, 70, 150_000).astype("i2")
        assert np.array_equal(host(reads.vindex[rows, columns]), truth[rows, columns])
        mask = rng.random(truth.shape) < 0.3
        assert np.array_equal(host(reads.vindex[mask]), truth[mask])
        assert np.array_equal(host(reads.vindex[np.asfortranarray(mask)]), truth[mask])
        on_device = mask if device == "cpu" else cuzarr.xp.asarray(mask, device=device)
        assert np.array_equal(host(reads.vindex[on_device]), truth[mask])
        value, expected = rng.integers(0, 1 << 30, 150_000).astype("i4"), truth.copy()
        expected[rows, columns] = value  # NumPy's last value counts, too
        array.vindex[rows, columns] = value
        assert np.array_equal(host(array[...]), expected)


def test_views_are_operands_of_expressions(device: str) -> None:
    truth = np.random.default_rng(5).integers(-99, 99, (26, 18, 5)).astype("f4")
    for layout in LAYOUTS:
        array = cuzarr.create_array({}, shape=truth.shape, chunks=(4, 3, 2), dtype="f4", **layout)
        array[...] = truth
        u = array.with_device(device).lazy
        for plan, expected in [
            (u[1:] - u[:-1], truth[1:] - truth[:-1]),
            (u[:, 2:] - 2 * u[:, 1:-1] + u[:, :-2], truth[:, 2:] - 2 * truth[:, 1:-1] + truth[:, :-2]),
            (u[::3, 1::2, 4] + u[1::3, ::2, 0], truth[::3, 1::2, 4] + truth[1::3, ::2, 0]),
            (u - u[7], truth - truth[7]),
            (np.sqrt(abs(u[3:, 2])), np.sqrt(abs(truth[3:, 2]))),
            (u[5:5] + 1, truth[5:5] + 1),
            ((u[1:] - u[:-1]).max(axis=0), (truth[1:] - truth[:-1]).max(axis=0)),
            (u[2:9].sum(axis=(1, 2)), truth[2:9].sum(axis=(1, 2))),
        ]:
            assert isinstance(plan, cuzarr.Expression) and plan.shape == expected.shape
            for memory_limit in ("256 KiB", None):
                np.testing.assert_array_equal(host(plan.compute(memory_limit=memory_limit)), expected)


def test_plans_of_views_can_be_stored_and_keep_names() -> None:
    truth = np.arange(60.0).reshape(6, 10) ** 2
    array = cuzarr.create_array({}, data=truth, chunks=(2, 3), dimension_names=("time", "x"))
    steps = array.lazy[1:] - array.lazy[:-1]
    target = cuzarr.create_array({}, shape=steps.shape, chunks=(2, 10), dtype="f8")
    steps.store(target)
    np.testing.assert_array_equal(target[...], np.diff(truth, axis=0))
    np.testing.assert_array_equal(steps.mean(axis="time").compute(), np.diff(truth, axis=0).mean(axis=0))
    np.testing.assert_array_equal(array.lazy[3].max(axis="x").compute(), truth[3].max())
    with pytest.raises(InvalidArgumentError):
        (array.lazy[::-1][::-1] * 2).store(array)


def test_numpy_s_functions_take_views_as_they_take_arrays() -> None:
    truth = np.arange(24.0).reshape(4, 6)
    array = cuzarr.create_array({}, data=truth, chunks=(2, 2))
    view = array.lazy[1:, ::2]
    part = truth[1:, ::2]
    assert isinstance(np.exp(view), cuzarr.Expression) and isinstance(1 + view, cuzarr.Expression)
    assert np.mean(view) == part.mean() and isinstance(np.mean(view), np.floating)
    np.testing.assert_array_equal(np.concatenate([view, view]), np.concatenate([part, part]))
    np.testing.assert_array_equal((part + view).compute(), part + part)
    np.testing.assert_array_equal(cuzarr.array(view, store={}, chunks=(2, 2))[...], part)
    assert float(view[1, 1]) == part[1, 1]
    assert (view == part).all().compute()


@pytest.mark.parametrize("layout", LAYOUTS, ids=["zstd", "plain", "shards"])
@pytest.mark.parametrize("seed", range(25))
def test_views_of_any_kind_are_operands(seed: int, layout: dict[str, Any], device: str) -> None:
    choose = random.Random(seed + 1000)
    shape = (17, 11, 7)
    everything = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    array = cuzarr.create_array({}, shape=shape, chunks=(4, 3, 2), dtype="i4", **layout)
    array[...] = everything
    array = array.with_device(device)
    view, truth, places = array.lazy, everything, everything
    for _ in range(choose.randint(1, 4)):
        view, truth, places = a_step(choose, view, truth, places)
        plan = view * 2 + 1
        assert isinstance(plan, cuzarr.Expression) and plan.shape == truth.shape
        for memory_limit in ("64 KiB", None):
            np.testing.assert_array_equal(host(plan.compute(memory_limit=memory_limit)), truth * 2 + 1)
        if truth.ndim and truth.shape[0] > 1:
            steps = (view[1:] - view[:-1]) + view[0]
            np.testing.assert_array_equal(host(steps.compute(memory_limit="64 KiB")), np.diff(truth, axis=0) + truth[0])
        np.testing.assert_array_equal(host((view + 0).sum().compute()), truth.sum())
        if truth.ndim > 1:
            np.testing.assert_array_equal(host(view.sum(axis=-1).compute()), truth.sum(axis=-1))


def test_operands_read_no_more_than_their_views() -> None:
    store = cuzarr.storage.MemoryStore()
    array = cuzarr.create_array(store, data=np.arange(400.0).reshape(20, 20), chunks=(2, 20))
    for number in range(20 // 2):
        if number not in (1, 7):
            store.set(f"c/{number}/0", b"nothing that decodes")
    rows = array.lazy.oindex[[15, 2, 3, 14], ::-2]
    np.testing.assert_array_equal((rows.T + 1).compute(), np.arange(400.0).reshape(20, 20)[[15, 2, 3, 14], ::-2].T + 1)
    points = array.lazy.vindex[[[3, 2], [14, 15]], [[0, 19], [5, 5]]]
    np.testing.assert_array_equal((points * 1).compute(), [[60.0, 59.0], [285.0, 305.0]])


def test_views_of_dates_are_computed_with_by_numpy() -> None:
    view = cuzarr.array(np.array([0, 1], "M8[s]"), store={}).lazy[:]
    np.testing.assert_array_equal(view + np.timedelta64(1, "s"), np.array([1, 2], "M8[s]"))
    with pytest.raises(DTypeMismatchError):
        view + view

"""Lazy views: random programs of selections of selections, beside NumPy's arrays of the same elements."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import BoundsCheckError, CuzarrError, ImplicitHostCopyError, InvalidArgumentError, SelectionInvalidError

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
    assert np.sqrt(view).tolist() == np.sqrt([[4, 6], [8, 10]]).tolist()
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

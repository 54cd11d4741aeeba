"""Brackets of plans: what NumPy's arrays take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import (
    ArrayIndexError,
    BoundsCheckError,
    BudgetExceededError,
    CuzarrError,
    ImplicitHostCopyError,
    SelectionInvalidError,
)

DATA = np.arange(5 * 6 * 4).reshape(5, 6, 4)
MASK = DATA % 7 == 2

SELECTIONS: list[Any] = [
    np.s_[::-1],
    np.s_[3:0:-2, ::-1, 1],
    np.s_[[0, 2]],
    np.s_[:, [5, 0, 5]],
    np.s_[1:, [5, -1], ::2],
    np.s_[[0, 4, -1], [1, 2, 3], [0, 0, 1]],
    np.s_[[[0, 4], [2, 2]]],
    np.s_[[[0], [4]], [1, 2]],
    np.s_[[0, 1], :, [2, 3]],
    np.s_[0, :, [2, 3]],
    np.s_[None],
    np.s_[..., None],
    np.s_[1, None, ::2, None],
    np.s_[None, [0, 2], ..., 0],
    MASK,
    np.s_[MASK[:, 0, 0]],
    np.s_[MASK[:, :, 0], 1:3],
    np.s_[:, MASK[0]],
    np.s_[[]],
    np.s_[[True, False, True, True, False]],
    np.s_[np.array([1, 2], "u1")],
    np.s_[np.array(3)],
    np.s_[5:2],
    np.s_[np.zeros(5, bool)],
]


@pytest.mark.parametrize("number", range(len(SELECTIONS)))
def test_plans_take_what_numpys_arrays_take(number: int) -> None:
    plan = cuzarr.create_array({}, data=DATA, chunks=(2, 3, 4)) * 3
    expected = (DATA * 3)[SELECTIONS[number]]
    got = plan[SELECTIONS[number]]
    assert np.shape(got) == expected.shape and np.asarray(got).dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def test_masks_and_indices_may_be_plans_and_stored_arrays() -> None:
    stored = cuzarr.create_array({}, data=DATA, chunks=(2, 3, 4))
    np.testing.assert_array_equal((stored * 3)[stored % 7 == 2], (DATA * 3)[MASK])
    np.testing.assert_array_equal((stored * 3)[cuzarr.create_array({}, data=np.array([4, 1]))], (DATA * 3)[[4, 1]])


def test_views_and_plans_agree() -> None:
    stored = cuzarr.create_array({}, data=DATA, chunks=(2, 3, 4))
    for selection in (np.s_[::-1], np.s_[:, [5, 0]], MASK, np.s_[[0, 1], [1, 2], [3, 3]]):
        np.testing.assert_array_equal((stored * 1)[selection], stored.lazy[selection].result())


def test_dates_are_selected_as_dates() -> None:
    days = cuzarr.create_array({}, data=np.arange(4), attributes={"units": "days since 2000-01-01"})
    plan = days.decoded(times=True)
    assert plan[::-1].tolist() == plan.compute()[::-1].tolist() and plan[[3, 0]].dtype == "M8[ns]"


def test_only_chosen_chunks_are_read() -> None:
    stored = cuzarr.create_array({}, data=np.arange(100), chunks=(10,))
    plan = stored + 1
    with cuzarr._core.Watch(counts=True) as watch:
        plan[[95, 3]]
        read = watch.counts()[0]
    assert read == 2


@pytest.mark.parametrize(
    ("selection", "error"),
    [
        (np.s_[[0, 5]], BoundsCheckError),
        (np.s_[None, 7], BoundsCheckError),
        (np.s_[::-1, -7], BoundsCheckError),
        (np.s_[[0.5]], SelectionInvalidError),
        (np.s_["a"], SelectionInvalidError),
        (np.s_[0, 0, 0, None, 0], SelectionInvalidError),
        (np.s_[..., None, ...], SelectionInvalidError),
        (np.s_[::0], SelectionInvalidError),
        (np.s_[True], SelectionInvalidError),
        (np.zeros((2, 2), bool), SelectionInvalidError),
        (np.s_[[0, 1], [0, 1, 2]], ArrayIndexError),
    ],
)
def test_what_does_not_fit_is_refused(selection: Any, error: type[Exception]) -> None:
    plan = cuzarr.create_array({}, data=DATA, chunks=(2, 3, 4)) * 3
    with pytest.raises(error):
        plan[selection]


def test_crossings_stay_within_the_memory_limit() -> None:
    plan = cuzarr.zeros((1000, 1000), chunks=(10, 10), store={}) + 1
    places = np.arange(500)
    with cuzarr.config.set({"memory_limit": "1 MiB"}), pytest.raises(BudgetExceededError, match="crossings"):
        plan[places, places]


def stored(data: Any, **options: Any) -> cuzarr.Array:
    return cuzarr.create_array({}, data=data, chunks=(2, 3, 4)[: data.ndim], **options)


CONDITIONS: list[Any] = [
    lambda x: x > 50,
    lambda x: (x > 20) & (x % 3 == 0),
    lambda x: x < 0,
    lambda x: x >= 0,
    lambda x: np.sqrt(x) > 4,
]


@pytest.mark.parametrize("number", range(len(CONDITIONS)))
def test_a_comparison_chooses_elements_as_numpys_mask_does(number: int, device: str) -> None:
    z, condition = stored(DATA).with_device(device), CONDITIONS[number]
    mask = condition(z)
    assert isinstance(mask, cuzarr.Expression)
    for got in (
        z[mask],
        z.vindex[mask],
        z.get_mask_selection(mask),
        z.lazy.vindex[mask].compute(),
        (z + 0)[mask.compute(device="cpu")],
    ):
        np.testing.assert_array_equal(cuzarr.xp.asnumpy(got), DATA[condition(DATA)])
    expected = DATA.copy()
    expected[condition(DATA)] = -1
    z[condition(z)] = -1
    np.testing.assert_array_equal(cuzarr.xp.asnumpy(z[...]), expected)
    z[z == -1] = np.arange((expected == -1).sum())
    expected[expected == -1] = np.arange((expected == -1).sum())
    np.testing.assert_array_equal(cuzarr.xp.asnumpy(z[...]), expected)


def test_plans_and_arrays_choose_along_one_dimension() -> None:
    z = stored(DATA)
    rows = z.max(axis=(1, 2)) > 50
    kept = DATA.max(axis=(1, 2)) > 50
    np.testing.assert_array_equal(z[rows, :, 1], DATA[kept, :, 1])
    np.testing.assert_array_equal(z.oindex[rows, [0, 2], :], DATA[kept][:, [0, 2]])
    np.testing.assert_array_equal(z.lazy.oindex[rows].compute(), DATA[kept])
    numbers = stored(np.array([4, 0]))
    np.testing.assert_array_equal(z.oindex[numbers + 0, :, :], DATA[[4, 0]])
    np.testing.assert_array_equal(z.oindex[numbers, :, :], DATA[[4, 0]])
    np.testing.assert_array_equal(z[stored(MASK)], DATA[MASK])


def test_a_mask_that_is_a_plan_fits_and_stays_within_the_limit() -> None:
    z = stored(DATA)
    before = z[...]
    with pytest.raises(SelectionInvalidError, match="chooses no elements, expected bools or integers"):
        z.vindex[z * 0.5]
    for wrong in (z[:1] > 3, z.lazy[:1] > 3, z.max(axis=0) > 3):
        with pytest.raises((SelectionInvalidError, IndexError)):
            z[wrong]
    with cuzarr.config.set(memory_limit=100):
        with pytest.raises(BudgetExceededError, match="the plan take 120 bytes, the memory limit is 100"):
            z[z > 1]
        with pytest.raises(BudgetExceededError):
            z[z > 1] = 0
    np.testing.assert_array_equal(z[...], before)


@pytest.mark.parametrize("kind", ["array", "view", "plan"])
def test_numpy_makes_arrays_of_what_is_in_a_store(kind: str) -> None:
    z = stored(DATA)
    given: Any = {"array": z, "view": z.lazy, "plan": z + 0}[kind]
    np.testing.assert_array_equal(np.asarray(given), DATA)
    np.testing.assert_array_equal(np.array(given, "f4", copy=True), DATA.astype("f4"))
    assert np.asarray(given, "f4").dtype == np.float32 and np.asarray(given[:0]).shape == (0, 6, 4)
    with pytest.raises(ValueError, match="copy=False is not possible"):
        np.asarray(given, copy=False)
    room = np.zeros(DATA.shape)
    room[...] = given
    np.testing.assert_array_equal(room, DATA)
    np.testing.assert_array_equal(DATA[given > 50], DATA[DATA > 50])
    assert np.asarray(given.sum()).shape == () and np.asarray(given.sum()) == DATA.sum()


def test_a_plan_for_a_gpu_is_not_copied_to_the_host_unasked(gpu: str) -> None:
    plan = stored(DATA).with_device(gpu) + 0
    with pytest.raises(ImplicitHostCopyError, match="compute"):
        np.asarray(plan)


@pytest.mark.parametrize("kind", ["view", "plan"])
def test_views_and_plans_compute_alike(kind: str, device: str) -> None:
    z = stored(DATA).with_device(device)
    given: Any = {"view": z.lazy[1:], "plan": z.lazy[1:] + 0}[kind]
    assert type(given).result is type(given).compute
    for options in ({}, {"memory_limit": "1 MiB"}, {"device": "cpu"}, {"progress": lambda done, total: None}):
        np.testing.assert_array_equal(cuzarr.xp.asnumpy(given.compute(**options)), DATA[1:])
    assert isinstance(given.result(device="cpu"), np.ndarray)
    room = np.zeros((4, 6, 4))
    assert given.compute(out=room, device="cpu") is room
    np.testing.assert_array_equal(room, DATA[1:])
    for wrong in ({"out": np.zeros(3)}, {"memory_limit": "many"}, {"out": room.astype(bool)}):
        with pytest.raises(CuzarrError):
            given.compute(**wrong)

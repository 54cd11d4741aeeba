"""Brackets of plans: what NumPy's arrays take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import ArrayIndexError, BoundsCheckError, BudgetExceededError, SelectionInvalidError

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

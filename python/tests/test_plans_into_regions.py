"""Plans that are stored into a part of an array: by assignment, and by `store` into a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import BudgetExceededError, DTypeMismatchError, InvalidArgumentError, ReadOnlyError, ShapeMismatchError

SOURCE = np.arange(6 * 7, dtype="f8").reshape(6, 7)


def target(**options: Any) -> cuzarr.Array:
    return cuzarr.create_array({}, shape=(9, 10), dtype="f4", chunks=(2, 3), fill_value=-1, **options)


def plan_of(elements: Any) -> cuzarr.Expression:
    return cuzarr.create_array({}, data=np.asarray(elements), chunks=(2,) * np.ndim(elements)) * 2 + 1  # type: ignore[no-any-return]


SELECTIONS: dict[str, tuple[Any, Any]] = {
    "a box": ((slice(2, 8), slice(1, 8)), SOURCE),
    "whole chunks": ((slice(2, 8), slice(3, 10)), SOURCE),
    "steps": ((slice(0, 9, 2), slice(9, 0, -2)), SOURCE[:5, :5]),
    "a row": (3, np.arange(10.0)),
    "a broadcast row": (slice(1, 4), np.arange(10.0)),
    "a list": ([5, 0, 8], np.arange(30.0).reshape(3, 10)),
    "points": (([5, 0, 8], [1, 2, 9]), np.arange(3.0)),
    "a mask": (np.arange(90).reshape(9, 10) % 11 == 3, np.arange(8.0)),
    "everything": (Ellipsis, np.arange(90.0).reshape(9, 10)),
    "nothing": (slice(3, 3), np.zeros((0, 10))),
}


@pytest.mark.parametrize("limit", ["1 GiB", "4 KiB"])
@pytest.mark.parametrize("name", SELECTIONS)
def test_brackets_take_plans_as_numpys_take_elements(name: str, limit: str) -> None:
    selection, elements = SELECTIONS[name]
    expected = np.full((9, 10), -1, "f4")
    expected[selection] = elements * 2 + 1
    ways: list[Callable[[cuzarr.Array, Any], None]] = [
        lambda array, plan: array.__setitem__(selection, plan),
        lambda array, plan: array.lazy.__setitem__(selection, plan),
        lambda array, plan: array.lazy[selection].write(plan),
    ]
    if name != "a broadcast row":
        ways.append(lambda array, plan: plan.store(array.lazy[selection], memory_limit=limit))
    for way in ways:
        array, plan = target(), plan_of(elements)
        with cuzarr.config.set({"memory_limit": limit}):
            way(array, plan)
        np.testing.assert_array_equal(array[...], expected)


def test_views_in_another_order_take_plans() -> None:
    array = target()
    view = array.lazy.T[1:8, 2:8]
    assert plan_of(SOURCE.T).store(view, memory_limit="2 KiB") is view
    np.testing.assert_array_equal(array[2:8, 1:8], (SOURCE * 2 + 1).astype("f4"))


def test_parts_are_cut_where_stored_objects_begin() -> None:
    source = cuzarr.ones((64, 64), chunks=(8, 8), store={})
    array = cuzarr.zeros((80, 64), chunks=(8, 64), store={})
    told: list[int] = []
    (source + 1).store(array.lazy[8:72], memory_limit="48 KiB", progress=lambda done, total: told.append(done))
    assert told[-1] == 8  # no object is written twice
    assert (array[8:72] == 2).all() and not array[:8].any() and not array[72:].any()


def test_other_methods_take_plans_too() -> None:
    array, plan = target(), plan_of(np.arange(3.0))
    array.vindex[[0, 1, 2], [0, 1, 2]] = plan
    array.set_basic_selection((3, slice(0, 3)), plan)
    array.oindex[[5], [1, 2, 3]] = plan
    assert array[[0, 1, 2], [0, 1, 2]].tolist() == array[3, :3].tolist() == array[5, 1:4].tolist() == [1, 3, 5]
    with cuzarr.config.set({"memory_limit": 16}), pytest.raises(BudgetExceededError, match=r"lazy\[...\]"):
        array.vindex[[0, 1, 2], [0, 1, 2]] = plan


def test_a_plan_of_the_array_itself_is_computed_first() -> None:
    array = cuzarr.create_array({}, data=np.arange(10), chunks=(3,))
    array[1:] = array.lazy[:-1] * 10
    assert array[...].tolist() == [0, *range(0, 90, 10)]
    with pytest.raises(InvalidArgumentError, match="source|read"):
        (array + 1).store(array.lazy[...])
    with cuzarr.config.set({"memory_limit": 40}), pytest.raises(BudgetExceededError):
        array[1:] = array.lazy[:-1] * 10


def test_what_does_not_fit_is_refused() -> None:
    plan = plan_of(SOURCE)
    with pytest.raises(ShapeMismatchError, match="view has shape"):
        plan.store(target().lazy[2:])
    with pytest.raises(ShapeMismatchError):
        target()[2:4] = plan
    with pytest.raises(InvalidArgumentError, match="resume"):
        plan.store(target().lazy[2:8, :7], resume=True)
    with pytest.raises(DTypeMismatchError):
        plan_of(np.arange(2.0)).store(cuzarr.create_array({}, data=np.array(["a", "b", "c"], "T")).lazy[:2])
    store: dict[str, Any] = {}
    cuzarr.create_array(store, shape=(3,), dtype="f8")
    with pytest.raises(ReadOnlyError):
        cuzarr.open_array(store, mode="r")[:2] = plan_of(np.arange(2.0))
    with pytest.raises(InvalidArgumentError, match=r"no elements yet\nhint: .* with .*x\.compute\(\)"):
        np.sort(plan)

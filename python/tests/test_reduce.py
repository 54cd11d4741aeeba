"""Reductions of the user's over blocks: equal to the same over the whole array, in a fixed order, within the memory limit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import on, to_host

import cuzarr
from cuzarr.errors import BudgetExceededError, InvalidArgumentError, MemorySpaceError, ShapeMismatchError

VALUES = np.random.default_rng(5).integers(-50, 50, (24, 30, 8)).astype("int32")
LIMIT = {"memory_limit": "24 KiB"}


@pytest.fixture
def source(tmp_path: Path) -> cuzarr.Array:
    return cuzarr.create_array(tmp_path / "source", data=VALUES, chunks=(5, 7, 8))


@pytest.mark.parametrize("axis", [0, -1, (0, 2), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_results_along_axes_are_those_of_the_whole(source: cuzarr.Array, axis: Any, keepdims: bool) -> None:
    expected = VALUES.max(axis=axis, keepdims=keepdims)
    for keeps in (False, True):  # in either shape
        got = cuzarr.reduce(
            lambda block: block.max(axis=axis, keepdims=keeps), np.maximum, source, axis=axis, keepdims=keepdims, **LIMIT
        )
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_partial_results_are_anything_and_are_finished_once(source: cuzarr.Array) -> None:
    def count(block: np.ndarray) -> Counter[int]:
        return Counter(dict(zip(*(part.tolist() for part in np.unique(block, return_counts=True)), strict=True)))

    def add(one: Counter[int], other: Counter[int]) -> Counter[int]:
        one.update(other)
        return one

    start = Counter({1000: 1})
    got = cuzarr.reduce(count, add, source, finish=lambda counts: sorted(counts.items()), initial=start, **LIMIT)
    assert got == [
        *((int(value), int(number)) for value, number in zip(*np.unique(VALUES, return_counts=True), strict=True)),
        (1000, 1),
    ]
    assert start == Counter({1000: 1}), "what was given is not changed"

    def moments(block: np.ndarray) -> tuple[int, np.ndarray]:
        return block.shape[1], block.sum(axis=1, dtype="float64")

    def both(one: Any, other: Any) -> Any:
        return tuple(mine + its for mine, its in zip(one, other, strict=True))

    mean = cuzarr.reduce(moments, both, source, axis=1, finish=lambda total: total[1] / total[0], **LIMIT)
    np.testing.assert_allclose(mean, VALUES.mean(axis=1), rtol=1e-15)


def test_blocks_are_merged_in_c_order_within_the_limit(source: cuzarr.Array) -> None:
    seen: list[Any] = []

    def note(block: Any, block_info: Any) -> Any:
        seen.append(block_info)
        return [block_info.number]

    assert cuzarr.reduce(note, lambda one, other: one + other, source, **LIMIT) == list(range(len(seen)))
    assert len(seen) > 4 and [info.start for info in seen] == sorted(info.start for info in seen)
    assert max(np.prod(info.shape) for info in seen) * 4 * 2 <= 12 << 10
    seen.clear()
    cuzarr.reduce(lambda block, block_info: seen.append(block_info) or block[:1], lambda one, _: one, source, axis=0, **LIMIT)
    kept = [info.start[1:] for info in seen]
    assert kept == sorted(kept) and [info.number for info in seen] == list(range(seen[0].count))
    assert all(one.start[0] < other.start[0] for one, other in zip(seen, seen[1:]) if one.start[1:] == other.start[1:])


def test_results_go_to_stores_in_whole_objects(source: cuzarr.Array) -> None:
    class Counting(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            written[key] += 1
            super().__setitem__(key, value)

    written: Counter[str] = Counter()
    told: list[tuple[int, int | None]] = []
    out = cuzarr.reduce(
        lambda block: block.sum(axis=0), np.add, source, axis=0,
        out=Counting(), chunks=(4, 4), shards=(12, 8), dtype="float64", progress=lambda *now: told.append(now), **LIMIT,
    )  # fmt: skip
    assert (out.chunks, out.shards, out.dtype) == ((4, 4), (12, 8), np.float64)
    np.testing.assert_array_equal(out[...], VALUES.sum(axis=0))
    assert {number for key, number in written.items() if "c/" in key} == {1}
    assert told[-1][0] == told[-1][1] == len(told)
    same = cuzarr.reduce(lambda block: block.sum(axis=0), np.add, source, axis=0, out={}, keepdims=True, **LIMIT)
    assert same.chunks == (1, 7, 8) and same.shape == (1, 30, 8)
    there = cuzarr.create_array({}, shape=(24, 8), chunks=(6, 8), dtype="int64")
    assert cuzarr.reduce(lambda block: block.sum(axis=1), np.add, source, axis=1, out=there, **LIMIT) is there
    np.testing.assert_array_equal(there[...], VALUES.sum(axis=1))


def test_several_arrays_are_reduced_together(source: cuzarr.Array, device: str) -> None:
    weights = np.arange(24, dtype="int32").reshape(24, 1, 1)
    got = cuzarr.reduce(
        lambda block, weight, factor: (block * weight).sum(axis=0) * factor, cuzarr.xp.add,
        source, cuzarr.create_array({}, data=weights, chunks=(24, 1, 1)), 3, axis=0, device=device, **LIMIT,
    )  # fmt: skip
    np.testing.assert_array_equal(to_host(got), (VALUES * weights).sum(axis=0) * 3)


def test_an_interrupted_reduction_goes_on_behind_what_is_finished(source: cuzarr.Array, tmp_path: Path) -> None:
    seen: list[tuple[int, ...]] = []

    def f(block: Any, block_info: Any) -> Any:
        seen.append(block_info.start[1:])
        if broken and len(set(seen)) == 3:
            raise RuntimeError("stop")
        return block.sum(axis=0)

    def run() -> cuzarr.Array:
        return cuzarr.reduce(f, np.add, source, axis=0, out=tmp_path / "out", resume=True, **LIMIT)

    broken = True
    with pytest.raises(RuntimeError, match="stop") as raised:
        run()
    assert raised.value.__notes__[0].startswith("in block ")
    begun, broken = list(dict.fromkeys(seen)), False
    seen.clear()
    np.testing.assert_array_equal(run()[...], VALUES.sum(axis=0))
    assert begun[0] not in seen and seen[0] in begun[1:], (begun, seen)
    assert not list((tmp_path / "out").glob(".cuzarr*"))


def test_an_array_without_elements_is_reduced_to_what_there_is_without_any() -> None:
    empty = cuzarr.create_array({}, shape=(0, 4), chunks=(1, 4), dtype="int8")
    assert cuzarr.reduce(np.sum, np.add, empty, initial=7) == 7
    np.testing.assert_array_equal(cuzarr.reduce(lambda block: block.sum(0), np.add, empty, axis=0, initial=7), [7] * 4)
    stored = cuzarr.reduce(lambda block: block.sum(0), np.add, empty, axis=0, initial=7, out={}, dtype="int16")
    assert stored[...].tolist() == [7] * 4 and stored.dtype == np.int16
    assert cuzarr.reduce(lambda block: block.sum(1), np.add, empty, axis=1).shape == (0,)
    for axis in (None, 0):
        with pytest.raises(InvalidArgumentError, match="no elements to reduce"):
            cuzarr.reduce(np.sum, np.add, empty, axis=axis)


def test_arguments_without_meaning_are_named(source: cuzarr.Array) -> None:
    with pytest.raises(ShapeMismatchError, match=r"has shape \(\), expected"):
        cuzarr.reduce(np.sum, np.add, source, axis=0)
    with pytest.raises(ShapeMismatchError, match="out has shape"):
        cuzarr.reduce(np.sum, np.add, source, axis=0, out=cuzarr.create_array({}, shape=(3,), dtype="i4"))
    with pytest.raises(InvalidArgumentError, match="axis 3"):
        cuzarr.reduce(np.sum, np.add, source, axis=3)
    with pytest.raises(InvalidArgumentError, match="along an axis"):
        cuzarr.reduce(np.sum, np.add, source, out={})
    with pytest.raises(InvalidArgumentError, match="needs an array in a store"):
        cuzarr.reduce(np.sum, np.add, VALUES)
    with pytest.raises(InvalidArgumentError, match="overlaps the source"):
        cuzarr.reduce(lambda block: block.sum(0), np.add, source, axis=0, out=source.store_path)
    with pytest.raises(BudgetExceededError):
        cuzarr.reduce(np.sum, np.add, source, memory_limit=1024)
    with pytest.raises(InvalidArgumentError, match="combine returned nothing"):
        cuzarr.reduce(lambda block: {block.size}, set.update, source, **LIMIT)
    with pytest.raises(ZeroDivisionError) as raised:
        cuzarr.reduce(np.sum, lambda one, other: 1 // 0, source, **LIMIT)
    assert raised.value.__notes__[0].startswith("in block 1 of ")


def test_results_of_two_memory_spaces_are_refused(source: cuzarr.Array, gpu: str) -> None:
    def f(block: Any, block_info: Any) -> Any:
        host = to_host(block).sum(axis=0)
        return on(gpu, host) if block_info.start[1] else host

    with pytest.raises(MemorySpaceError, match="those before on cpu"):
        cuzarr.reduce(f, lambda one, other: one, source, axis=0, device=gpu, **LIMIT)
    stored = cuzarr.reduce(f, lambda one, other: one + other, source, axis=0, device=gpu, out={}, **LIMIT)
    np.testing.assert_array_equal(stored.with_device("cpu")[...], VALUES.sum(axis=0))

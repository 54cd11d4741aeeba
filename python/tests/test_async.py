"""Awaiting arrays and groups: the same results, a loop that keeps running, and cancelling that leaves nothing behind."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import pathlib
import pickle
import threading
import time
from collections.abc import Awaitable, Iterator
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.api import asynchronous
from cuzarr.buffer import cpu, gpu as gpus

TRUTH = np.arange(48, dtype="i4").reshape(6, 8)


def make(**more: Any) -> cuzarr.Array:
    return cuzarr.create_array({}, data=TRUTH, chunks=(2, 3), **more)


class Gate(dict[str, Any]):
    """A store whose chunks are read only once the gate is open; it says when somebody stands before it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.open, self.reads, self.armed = threading.Event(), threading.Event(), 0, False

    def __getitem__(self, key: str) -> Any:
        if self.armed and not key.endswith("zarr.json"):
            self.reached.set()
            self.reads += 1
            assert self.open.wait(30), "nobody opened the gate"
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default


@pytest.fixture
def gate() -> Iterator[Gate]:
    """An open gate at the end, whatever the test does."""
    gate = Gate()
    yield gate
    gate.open.set()


def closed_array(gate: Gate) -> cuzarr.Array:
    array = cuzarr.create_array(gate, data=TRUTH, chunks=(2, 3))
    gate.armed = True
    return array


def run(awaitable: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(awaitable, 30)

    return asyncio.run(main())


SELECTIONS: list[Any] = [..., 3, (slice(1, 5, 2), slice(3)), ([0, 5], slice(None)), ([1, 1], [2, 7]), TRUTH % 3 == 0]


@pytest.mark.parametrize("place", range(len(SELECTIONS)))
def test_awaited_elements_are_those_of_brackets(place: int) -> None:
    selection = SELECTIONS[place]
    array = make()
    np.testing.assert_array_equal(run(array.async_array.getitem(selection)), TRUTH[selection])
    run(array.async_array.setitem(selection, -TRUTH[selection]))
    expected = TRUTH.copy()
    expected[selection] *= -1
    np.testing.assert_array_equal(array[:], expected)


def test_selections_by_name_are_awaited() -> None:
    array = make().async_array

    async def main() -> list[Any]:
        await array.set_mask_selection(TRUTH == 7, 100)
        await array.oindex.setitem(([0], slice(None)), 9)
        return [
            await array.get_orthogonal_selection(([0, 2], [1])),
            await array.get_coordinate_selection(([0, 5], [0, 7])),
            await array.get_mask_selection(TRUTH > 44),
            await array.get_block_selection((0, 0)),
            await array.oindex.getitem(([1, 0], [7])),
            await array.vindex.getitem(([1, 0], [7, 7])),
        ]

    expected: list[Any] = [[[9], [17]], [9, 47], [45, 46, 47], [[9, 9, 9], [8, 9, 10]], [[15], [9]], [15, 9]]
    assert [result.tolist() for result in run(main())] == expected


def test_a_prototype_decides_where_elements_go(device: str) -> None:
    prototype = cpu.buffer_prototype if device == "cpu" else gpus.buffer_prototype
    value = prototype.nd_buffer.from_numpy_array(TRUTH[:2] * 2)

    async def main() -> Any:
        array = await asynchronous.open_array(make().store)
        await array.setitem(slice(0, 2), value, prototype=prototype)
        return await array.getitem(slice(1, 3), prototype=prototype)

    result = prototype.nd_buffer.from_ndarray_like(run(main()))
    assert result.is_host_accessible == (device == "cpu")
    np.testing.assert_array_equal(result.as_numpy_array(), [TRUTH[1] * 2, TRUTH[2]])


def test_local_configuration_goes_with_the_call() -> None:
    async def main() -> Any:
        with cuzarr.config.local({"array.order": "F"}):
            return await (await asynchronous.open_array(make().store)).getitem(...)

    assert run(main()).flags.f_contiguous


def test_the_loop_runs_while_elements_are_awaited(gate: Gate) -> None:
    array = closed_array(gate).async_array

    async def main() -> tuple[Any, int]:
        reading = asyncio.create_task(array.getitem(...))
        turns = 0
        while not gate.reached.is_set():
            await asyncio.sleep(0)
        for turns in range(1, 101):  # the loop goes round while the read stands before the gate
            await asyncio.sleep(0)
        assert not reading.done()
        gate.open.set()
        return await reading, turns

    result, turns = run(main())
    np.testing.assert_array_equal(result, TRUTH)
    assert turns == 100


def test_many_calls_are_in_flight_at_once() -> None:
    barrier = threading.Barrier(6)

    class Meeting(dict[str, Any]):
        armed = False

        def __getitem__(self, key: str) -> Any:
            if self.armed and not key.endswith("zarr.json"):
                barrier.wait(30)  # passes only when six reads are here together
            return super().__getitem__(key)

        def get(self, key: str, default: Any = None) -> Any:
            return self[key] if key in self else default

    store = Meeting()
    array = cuzarr.create_array(store, data=np.arange(1, 7, dtype="i4"), chunks=(1,))
    store.armed = True

    async def main() -> list[Any]:
        return await asyncio.gather(*(array.async_array.getitem(n) for n in range(6)))

    assert [int(element) for element in run(main())] == list(range(1, 7))


def test_cancelling_ends_the_read_at_its_next_object_and_waits_for_it(gate: Gate) -> None:
    array = closed_array(gate)
    with cuzarr.config.set({"threading.max_workers": 1}):
        task_array = cuzarr.open_array(gate, mode="r").async_array

    async def main() -> None:
        reading = asyncio.create_task(task_array.getitem(...))
        while not gate.reached.is_set():
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.sleep(0)
        assert not reading.done()  # it still stands in the store, and holds its memory
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await reading

    run(main())
    assert array.nchunks == 9
    before = gate.reads
    assert before < 9
    time.sleep(0.05)
    assert gate.reads == before  # nothing goes on
    np.testing.assert_array_equal(array[:], TRUTH)  # and the array is none the worse


def test_a_cancelled_call_that_has_not_begun_never_begins(gate: Gate) -> None:
    array = closed_array(gate).async_array
    late = cuzarr.zeros((4,), chunks=(2,), store={}).async_array

    async def main() -> None:
        with cuzarr.config.set({"async.concurrency": 1}):
            first = asyncio.create_task(array.getitem(...))
            while not gate.reached.is_set():
                await asyncio.sleep(0)
            second = asyncio.create_task(late.setitem(..., 5))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            gate.open.set()
            await first

    run(main())
    assert late._node[:].tolist() == [0, 0, 0, 0]


def test_timeouts_end_what_they_time(gate: Gate) -> None:
    array = closed_array(gate).async_array
    threading.Timer(0.2, gate.open.set).start()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await array.getitem(...)

    run(main())


def test_errors_come_out_of_the_await() -> None:
    with pytest.raises(cuzarr.errors.BoundsCheckError):
        run(make().async_array.getitem(9))
    with pytest.raises(cuzarr.errors.ArrayNotFoundError):
        run(asynchronous.open_array({}, mode="r"))


def test_groups_and_their_members_are_awaited() -> None:
    async def main() -> None:
        group = await asynchronous.open_group({}, mode="w", attributes={"a": 1})
        array = await group.create_array("x/y", shape=(2,), dtype="i4")
        await group.require_array("x/y", shape=(2,), dtype="i4")
        other = await group.create_group("z")
        await group.setitem("w", np.arange(3))
        assert isinstance(array, cuzarr.AsyncArray) and isinstance(other, cuzarr.AsyncGroup)
        assert sorted([path async for path, _ in group.members(max_depth=None)]) == ["w", "x", "x/y", "z"]
        assert [key async for key in group.array_keys()] == ["w"]
        assert sorted([name async for name, node in group.groups() if isinstance(node, cuzarr.AsyncGroup)]) == ["x", "z"]
        assert await group.contains("w") and not await group.contains("nothing")
        assert (await (await group.getitem("w")).getitem(...)).tolist() == [0, 1, 2]
        assert await group.get("nothing", 5) == 5
        await group.delitem("w")
        assert await group.nmembers() == 2
        updated = await group.update_attributes({"b": 2})
        assert updated.attrs == {"a": 1, "b": 2} and group.attrs == updated.attrs
        await array.resize((4,), delete_outside_chunks=False)
        assert array.shape == (4,) and await array.append(np.ones(2, "i4")) == (6,)
        assert (await array.update_attributes({"unit": "m"})).attrs == {"unit": "m"}
        assert await array.nchunks_initialized() >= 1 and (await group.info_complete()) is not None
        nodes = {"new": cuzarr.GroupMetadata()}
        assert [path async for path, _ in group.create_hierarchy(nodes)] == ["new"]
        assert await asyncio.to_thread(
            lambda: group.same_as(asynchronous.AsyncGroup.of(cuzarr.open_group(group.store, mode="r+")))
        )

    run(main())


def test_asynchronous_nodes_are_pickled(tmp_path: pathlib.Path) -> None:
    group = cuzarr.open_group(tmp_path, mode="w")
    for node in (group.async_group, group.create_array("x", data=TRUTH).async_array):
        again = pickle.loads(pickle.dumps(node))
        assert type(again) is type(node) and again.same_as(node) and again == node
    assert repr(node).startswith("<AsyncArray file://")


def _sum_awaited(array: cuzarr.Array) -> float:
    return float(run(array.async_array.getitem(...)).sum())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_other_processes_await_too(tmp_path: pathlib.Path, start: str) -> None:
    array = cuzarr.create_array(tmp_path, data=TRUTH, chunks=(2, 3))
    assert _sum_awaited(array) == float(TRUTH.sum())  # this process has its threads already
    context = multiprocessing.get_context(start)
    with context.Pool(1) as pool:
        assert pool.apply_async(_sum_awaited, (array,)).get(60) == float(TRUTH.sum())


def test_every_function_of_the_package_has_a_twin() -> None:
    for name in asynchronous.__all__:
        function = getattr(asynchronous, name)
        if name.startswith("Async"):
            continue
        assert inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function), name
        assert inspect.signature(function) == inspect.signature(getattr(cuzarr.api.synchronous, name))

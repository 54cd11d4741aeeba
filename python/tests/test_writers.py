"""Threads that write to one array at once, also into the same objects, lose nothing."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cuzarr
from cuzarr import _core
from cuzarr._memory.box import basic_box
from cuzarr._node.array_io import turn


@pytest.mark.parametrize("kind", ["basic", "orthogonal", "field", "text"])
def test_threads_that_write_parts_of_one_chunk_lose_nothing(kind: str, tmp_path: Path) -> None:
    dtype: Any = {"field": [("a", "i4"), ("b", "i4")], "text": "string"}.get(kind, "i4")
    for store in (tmp_path / "x.zarr", cuzarr.storage.MemoryStore()):
        cuzarr.create_array(store, shape=(48, 20), chunks=(32, 20), dtype=dtype)

        def write(row: int, store: Any = store) -> None:
            array = cuzarr.open_array(store)
            match kind:
                case "basic":
                    array[row] = row
                case "orthogonal":
                    array.oindex[[row], :] = row
                case "text":
                    array[row] = str(row)
                case _:
                    array.set_basic_selection(row, row, fields="b")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(48)))
        got = cuzarr.open_array(store, mode="r")[...]
        found = got["b"] if kind == "field" else got
        assert found.tolist() == [[str(row) if kind == "text" else row] * 20 for row in range(48)]


def test_a_failed_write_lets_the_next_one_begin() -> None:
    array = cuzarr.create_array({}, shape=(4,), chunks=(4,), dtype="i4")
    for _ in range(2):
        with pytest.raises(cuzarr.errors.CuzarrError):
            array[:2] = [1, 2, 3]
    array[:2] = 5
    assert array[...].tolist() == [5, 5, 0, 0]


def test_a_write_that_waits_for_its_turn_can_be_cancelled() -> None:
    array, watch = cuzarr.create_array({}, shape=(4,), chunks=(4,), dtype="i4"), _core.Watch()

    def write() -> None:
        with watch:
            array[1:3] = 5

    with ThreadPoolExecutor(1) as pool, turn(array, basic_box(slice(0, 2), array.shape)):
        waiting = pool.submit(write)
        watch.cancel()
        with pytest.raises(cuzarr.errors.CuzarrError):
            waiting.result(timeout=20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="skipped: no fork here")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_children_do_not_wait_for_writers_of_their_parent(tmp_path: Path) -> None:
    array = cuzarr.create_array(tmp_path / "x.zarr", shape=(4,), chunks=(4,), dtype="i4")
    with turn(array, basic_box(slice(0, 2), array.shape)):
        child = os.fork()
        if child == 0:
            array[1:3] = 5
            os._exit(7 if array[2] == 5 else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

"""A process may be killed at any moment: arrays are whole before and after, or gone, and nothing old comes back.

``CRASH_TEST_KILLS=200`` kills each operation so many times; without it once, which takes seconds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashes import arrays, check, check_end, check_new, numbers, operations, same, work

import cuzarr
from cuzarr._node.resize import resize

NAMES = [(zarr_format, name) for zarr_format in (2, 3) for name in operations(zarr_format)]


class Died(RuntimeError):
    """What comes of every change after the last one that the process lives to make."""


class Mortal(dict[str, bytes]):
    """Values of a process that dies after some changes of them; each change is of one value."""

    def __init__(self, values: dict[str, bytes], changes: int | None = None) -> None:
        super().__init__(values)
        self.left = changes

    def _change(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise Died
            self.left -= 1

    def __setitem__(self, key: str, value: bytes) -> None:
        self._change()
        super().__setitem__(key, value)

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            self._change()
        return super().pop(key, *default)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Consolidated metadata of format 3 is no part of the specification, and nodes of both formats are beside each other here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cuzarr.errors.CuzarrUserWarning)
        yield


@pytest.mark.parametrize(("zarr_format", "name"), NAMES)
def test_an_operation_that_ends_after_any_change_leaves_old_or_new_arrays(zarr_format: int, name: str) -> None:
    operation = operations(zarr_format)[name]
    before: dict[str, bytes] = {}
    operation.prepare(before)
    for changes in range(1000):
        store = Mortal(before, changes)
        try:
            operation.run(store)
        except Exception:  # noqa: BLE001, whatever becomes of it on its way
            if store.left:
                raise
        else:
            break
        left = dict(store)
        check(operation, left)
        check_new(operation, left, zarr_format)
        operation.run(left)
        check_end(operation, left)
    else:
        pytest.fail("the operation does not end")
    assert changes > 0
    check_end(operation, dict(store))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_that_grows_after_a_shrink_that_died_has_the_fill_value(zarr_format: int) -> None:
    before: dict[str, bytes] = {}
    operations(zarr_format)["shrink"].prepare(before)

    def resize(store: dict[str, bytes], length: int) -> None:
        cuzarr.open_array(store, path="a", mode="r+").resize((length,))

    for first in range(8):
        shrunk = Mortal(before, first)
        with contextlib.suppress(Exception):
            resize(shrunk, 1)
        if cuzarr.open_array(dict(shrunk), path="a")[...].shape != (1,):
            continue
        for second in range(8):
            grown = Mortal(dict(shrunk), second)
            with contextlib.suppress(Exception):
                resize(grown, 6)
            elements = cuzarr.open_array(dict(grown), path="a")[...]
            # The chunk at the edge keeps its second element, as zarr-python leaves it.
            expected = [1] if elements.shape == (1,) else [1, 2, 0, 0, 0, 0]
            assert elements.tolist() == expected, (first, second)


def test_growing_an_array_that_others_have_grown_keeps_their_elements() -> None:
    store: dict[str, bytes] = {}
    mine = cuzarr.create_array(store, data=numbers(4), chunks=(2,))
    theirs = cuzarr.open_array(store, mode="r+")
    theirs.append(numbers(4, first=5))
    mine.resize((12,))
    assert mine[...].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0]


def test_chunks_that_are_to_be_left_behind_come_back() -> None:
    store: dict[str, bytes] = {}
    array = cuzarr.create_array(store, data=numbers(4), chunks=(2,))
    resize(array, (2,), delete_outside_chunks=False)
    resize(array, (4,), delete_outside_chunks=False)
    assert array[...].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_creating_an_array_over_chunks_without_metadata_says_so(zarr_format: int) -> None:
    store: dict[str, bytes] = {}
    cuzarr.create_array(store, name="a", data=numbers(4), chunks=(2,), zarr_format=zarr_format)
    del store["a/zarr.json" if zarr_format == 3 else "a/.zarray"]
    with pytest.raises(cuzarr.errors.ContainsArrayError, match="of a deleted array is still there"):
        cuzarr.create_array(store, name="a", shape=(4,), dtype="i4", chunks=(2,), zarr_format=zarr_format)
    with pytest.raises(cuzarr.errors.ContainsArrayError, match="of a deleted array is still there"):
        cuzarr.create_array(store, name="a", shape=(1,), dtype="i4", chunks=(1,), zarr_format=zarr_format)
    cuzarr.create_group(store, path="b", zarr_format=zarr_format).create_array("a", shape=(4,), dtype="i4")
    array = cuzarr.create_array(store, name="a", shape=(4,), dtype="i4", chunks=(2,), overwrite=True, zarr_format=zarr_format)
    assert array[...].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_group_that_was_opened_by_consolidated_metadata_knows_what_replaced_a_member(zarr_format: int) -> None:
    store: dict[str, bytes] = {}
    operations(zarr_format)["shrink what is consolidated"].prepare(store)
    group = cuzarr.open_group(store, mode="r+", use_consolidated=True)
    group.create_array("a", data=np.ones(2), overwrite=True)
    group["g/b"] = np.ones(3)
    assert group["a"][...].tolist() == [1, 1]
    assert group["g/b"][...].tolist() == [1, 1, 1]
    again = cuzarr.open_group(store, mode="r", use_consolidated=True)
    assert again["a"][...].tolist() == [1, 1]
    assert again["g/b"][...].tolist() == [1, 1, 1]
    assert sorted(dict(again.members(max_depth=None))) == ["a", "g", "g/b", "g/h", "g/h/c", "kept"]


def test_a_copy_that_died_while_it_deleted_is_not_taken_up_where_another_one_was() -> None:
    """What tells how far the other one came goes before the chunks that it tells of."""
    source = cuzarr.create_array({}, data=numbers(12), chunks=(2,))
    before: dict[str, bytes] = {}
    job = {"path": "a", "memory_limit": 2048, "progress": False}
    for changes in range(100):
        store = Mortal({}, changes)
        with contextlib.suppress(Exception):
            cuzarr.copy(source, store, **job)
        if any(key.endswith(".cuzarr-work.json") for key in store) and sum("/c/" in key for key in store) > 2:
            before = dict(store)
    assert before
    for changes in range(len(before)):
        store = Mortal(before, changes)
        with contextlib.suppress(Exception):
            cuzarr.copy(source, store, overwrite=True, **job)
        left = dict(store)
        try:
            cuzarr.copy(source, left, resume=True, **job)
        except cuzarr.errors.CuzarrError:
            cuzarr.copy(source, left, overwrite=True, **job)
        assert cuzarr.open_array(left, path="a")[...].tolist() == numbers(12).tolist(), changes


def test_a_write_to_a_directory_of_fsspec_leaves_the_old_value_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.get_mapper(str(tmp_path / "store"))
    array = cuzarr.create_array(store, data=numbers(4), chunks=(2,), compressors=None)

    def die(partial: str, path: str) -> None:
        assert Path(partial).stat().st_size == 8
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", die)
        with pytest.raises(Exception, match="Died"):
            array[:2] = 7
    assert array[...].tolist() == [1, 2, 3, 4]
    assert cuzarr.storage.make_store(store).list() == ["c/0", "c/1", "zarr.json"]
    array[:2] = 7
    assert array[...].tolist() == [7, 7, 3, 4]


# --------------------------------------------------------------------------------------------------- killed processes

KILLS = int(os.environ.get("CRASH_TEST_KILLS", "1"))
SCALE = 20 if KILLS > 1 else 8


def _killed(zarr_format: int, name: str, root: Path, after: float | None) -> float:
    """Runs an operation in a process of its own and kills that after some seconds; tells how long it took to its end."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "cuzarr", "crashes"])
    listen, tell = context.Pipe()
    process = context.Process(target=work, args=(zarr_format, SCALE, name, str(root), tell))
    process.start()
    tell.close()
    assert listen.recv() == "begins"
    begun = time.perf_counter()
    if after is None:
        assert listen.recv() == "ended"
    else:
        with contextlib.suppress(EOFError):
            listen.poll(after)
        process.kill()
    seconds = time.perf_counter() - begun
    process.join()
    return seconds


@pytest.mark.parametrize(("zarr_format", "name"), NAMES)
def test_a_killed_process_leaves_old_or_new_arrays(zarr_format: int, name: str, tmp_path: Path) -> None:
    operation = operations(zarr_format, SCALE)[name]
    before, store, again = tmp_path / "before", tmp_path / "store", tmp_path / "again"
    operation.prepare(str(before))
    shutil.copytree(before, store)
    seconds = _killed(zarr_format, name, store, None)
    check_end(operation, str(store))
    whole = dict(arrays(str(before)))
    outcomes = {"before": 0, "meanwhile": 0, "after": 0}
    for _ in range(KILLS):
        shutil.rmtree(store)
        shutil.copytree(before, store)
        _killed(zarr_format, name, store, random.uniform(0, seconds))
        check(operation, str(store))
        found = {str(path.relative_to(store)) for path in store.rglob("*")}
        untouched = found == {str(path.relative_to(before)) for path in before.rglob("*")} and all(
            same(content, whole[path]) for path, content in arrays(str(store))
        )
        shutil.copytree(store, again)
        check_new(operation, str(again), zarr_format)
        shutil.rmtree(again)
        with contextlib.suppress(AssertionError):
            check_end(operation, str(store))
            outcomes["after"] += 1
            continue
        outcomes["before" if untouched else "meanwhile"] += 1
        operation.run(str(store))
        check_end(operation, str(store))
    print(f"\nkilled {KILLS} times: format {zarr_format}, {name}: {outcomes}")

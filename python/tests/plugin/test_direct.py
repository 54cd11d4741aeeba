"""Reads of boxes on the calling thread: the same results and errors as by zarr-python's event loop, which they do without."""

from __future__ import annotations

import asyncio
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core import sync as zarr_sync

import cuzarr.zarr

pytest.importorskip("zarr", minversion="3.4")

TRUTH = np.arange(60, dtype="f4").reshape(6, 10)


class Loop:
    """Counts the coroutines that zarr-python gives to its event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.given = zarr_sync._runner
        monkeypatch.setattr(zarr_sync, "_runner", self.runner)

    def runner(self, coroutine: Any) -> Any:
        self.count += 1
        return self.given(coroutine)

    def of(self, call: Any) -> int:
        self.count = 0
        call()
        return self.count


def outcome(call: Any) -> Any:
    """What a call returns, or the class of its error."""
    try:
        found = call()
    except Exception as error:
        return type(error)
    return type(found), np.asarray(found).dtype, np.asarray(found).tolist()


BOXES: list[Any] = [..., 3, (2, 7), (slice(1, 5), slice(None, None, 4)), (slice(2, 2), slice(None)), (-1, slice(-4, None))]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("store", ["directory", "memory", "cuzarr"])
def test_boxes_are_read_without_the_event_loop(
    store: str, zarr_format: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cuzarr.zarr.enable() as enabled:
        assert "boxes are read on the calling thread" in enabled.patches
        places = {"directory": tmp_path, "memory": {}, "cuzarr": cuzarr.zarr.MemoryStore()}
        array = zarr.create_array(places[store], data=TRUTH, chunks=(2, 3), zarr_format=zarr_format)
        loop = Loop(monkeypatch)
        for box in BOXES:
            assert loop.of(lambda where=box: np.testing.assert_array_equal(array[where], TRUTH[where])) == 0
        assert loop.of(lambda: np.testing.assert_array_equal(array.blocks[1], TRUTH[2:4])) == 0
        assert loop.of(lambda: np.testing.assert_array_equal(array.oindex[[0, 5], :], TRUTH[[0, 5]])) == 1
        assert loop.of(lambda: np.testing.assert_array_equal(array.vindex[[0, 5], [1, 2]], TRUTH[[0, 5], [1, 2]])) == 1
    assert loop.of(lambda: array[:]) == 1, "zarr-python's own way again"


@pytest.mark.parametrize("dtype", ["i4", ">i4", "S3", "U2", "M8[s]", "bool", "complex64", [("a", "i2"), ("b", "f4")], str])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore")
def test_results_are_those_of_the_event_loop(dtype: Any, zarr_format: Any, tmp_path: Path) -> None:
    truth = np.arange(60).astype("U2").astype(object) if dtype is str else np.zeros(60, dtype)
    if dtype is not str and truth.dtype.names is None:
        truth[:] = np.arange(60) % 2 if dtype == "bool" else np.arange(60).astype(dtype)
    zarr.create_array(tmp_path, shape=(6, 10), chunks=(4, 3), dtype=dtype, zarr_format=zarr_format)[:5] = truth.reshape(6, 10)[:5]
    found = []
    for patch in (False, True):
        with cuzarr.zarr.enable(patch=patch):
            array = zarr.open_array(tmp_path, mode="r")
            found.append([outcome(lambda where=box: array[where]) for box in BOXES])
            if truth.dtype.names:
                found[-1].append(outcome(lambda: array["a"]))
            place = zarr.core.buffer.cpu.NDBuffer.from_numpy_array(np.empty((6, 10), array.dtype))
            found[-1].append(outcome(lambda: array.get_basic_selection(..., out=place)))
            found[-1].append(place.as_numpy_array().tolist())
            found[-1].append(outcome(lambda: array.get_basic_selection(0, out=place)))
            found[-1].append(outcome(lambda: array[7]))
    assert found[0] == found[1]


def test_arrays_without_dimensions_are_read(tmp_path: Path) -> None:
    with cuzarr.zarr.enable():
        array = zarr.create_array(tmp_path, shape=(), chunks=(), dtype="i4")
        array[...] = 7
        assert outcome(lambda: array[...]) == outcome(lambda: array[()])
        assert int(array[()]) == 7


def test_errors_are_those_of_the_event_loop(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path, data=TRUTH, chunks=(2, 3), compressors=zarr.codecs.ZstdCodec())
    (tmp_path / "c/1/1").write_bytes(b"damaged")
    (tmp_path / "c/0/0").unlink()
    found = []
    for patch in (False, True):
        with cuzarr.zarr.enable(patch=patch):
            array = zarr.open_array(tmp_path, mode="r")
            found.append([outcome(lambda: array[:]), outcome(lambda: array[:1])])
            with zarr.config.set({"array.read_missing_chunks": False}):
                strict = zarr.open_array(tmp_path, mode="r")
                found[-1].append(outcome(lambda strict=strict: strict[:1]))
    assert found[0] == found[1]
    assert issubclass(found[1][0], cuzarr.errors.ChunkCorruptError)
    assert found[1][2] is zarr.errors.ChunkNotFoundError


def test_a_program_may_read_inside_its_own_event_loop(tmp_path: Path) -> None:
    async def main() -> Any:
        return array[:], await array.async_array.getitem((slice(2), slice(None)))

    with cuzarr.zarr.enable():
        array = zarr.create_array(tmp_path, data=TRUTH, chunks=(2, 3))
        whole, rows = asyncio.run(main())
    np.testing.assert_array_equal(whole, TRUTH)
    np.testing.assert_array_equal(rows, TRUTH[:2])


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # zarr-python drops it
def test_zarr_pythons_event_loop_refuses_to_wait_for_itself(tmp_path: Path) -> None:
    async def inside() -> Any:
        return array[:]

    with cuzarr.zarr.enable():
        array = zarr.create_array(tmp_path, data=TRUTH, chunks=(2, 3))
        with pytest.raises(zarr_sync.SyncError) as raised:
            zarr_sync.sync(inside())
        del raised
        gc.collect()


def test_many_threads_read_at_once(tmp_path: Path) -> None:
    with cuzarr.zarr.enable():
        array = zarr.create_array(tmp_path, data=TRUTH, chunks=(2, 3))
        with ThreadPoolExecutor(8) as threads:
            for row, found in enumerate(threads.map(lambda number: array[number % 6], range(200))):
                np.testing.assert_array_equal(found, TRUTH[row % 6])


def test_a_read_after_a_failed_one_uses_the_event_loop_where_it_must(tmp_path: Path) -> None:
    """No mark of the calling thread is left behind."""
    with cuzarr.zarr.enable():
        array = zarr.create_array(tmp_path / "a", data=TRUTH, chunks=(2, 3))
        memory = zarr.create_array(zarr.storage.LoggingStore(zarr.storage.MemoryStore()), data=TRUTH, chunks=(2, 3))
        (tmp_path / "a/c/1/1").write_bytes(b"damaged")
        for _ in range(3):
            with pytest.raises(cuzarr.errors.CuzarrError):
                array[:]
            np.testing.assert_array_equal(memory[:], TRUTH)
            np.testing.assert_array_equal(array.vindex[[0, 1], [0, 1]], TRUTH[[0, 1], [0, 1]])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="skipped: no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_reads(tmp_path: Path) -> None:
    with cuzarr.zarr.enable():
        array = zarr.create_array(tmp_path, data=TRUTH, chunks=(2, 3))
        array[:]
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if np.array_equal(zarr.open_array(tmp_path, mode="r")[:], TRUTH) else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


def test_a_method_that_a_program_replaced_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def replaced(*args: Any, **kwargs: Any) -> str:
        return "replaced"

    with cuzarr.zarr.enable():
        array = zarr.create_array(tmp_path, data=TRUTH, chunks=(2, 3))
        monkeypatch.setattr(type(array.async_array), "_get_selection", replaced)
        assert array[:] == "replaced"

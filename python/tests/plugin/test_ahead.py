"""Reads that begin before zarr-python lists their chunks."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ZstdCodec
from zarr.core import indexing
from zarr.core.buffer.cpu import NDBuffer
from zarr.storage import LocalStore, MemoryStore

import cuzarr.zarr
from cuzarr.zarr import _ahead, _threads

if _ahead._READER is None:
    pytest.skip(f"skipped: zarr-python {zarr.__version__} reads with other variables", allow_module_level=True)

TRUTH = np.arange(40 * 30, dtype="i4").reshape(40, 30)


@pytest.fixture(autouse=True)
def pipeline() -> Any:
    with cuzarr.zarr.enable(patch=False):
        yield


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every read of zarr-python's, whether it began ahead."""
    found: list[bool] = []
    start = _ahead._start

    def noted(*arguments: Any) -> Any:
        started = start(*arguments)
        found.append(started is not None)
        return started

    monkeypatch.setattr(_ahead, "_start", noted)
    return found


def make(store: Any, **settings: Any) -> Any:
    return zarr.create_array(store, name="a/b", shape=TRUTH.shape, chunks=(7, 4), dtype="i4", fill_value=-1, **settings)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_boxes_of_a_directory_begin_ahead(tmp_path: Path, zarr_format: Any, begun: list[bool]) -> None:
    array = make(LocalStore(tmp_path), zarr_format=zarr_format)
    array[:] = TRUTH
    del begun[:]
    for selection in (..., (slice(3, 37), slice(1, None, 3)), (slice(None), slice(2, 20))):
        np.testing.assert_array_equal(array[selection], TRUTH[selection])
    out = np.zeros(TRUTH.shape, "i4")
    array.get_basic_selection(out=NDBuffer(out))
    np.testing.assert_array_equal(out, TRUTH)
    assert begun == [True] * 4


def test_others_begin_when_they_are_called(tmp_path: Path, begun: list[bool]) -> None:
    array = make(LocalStore(tmp_path))
    array[:] = TRUTH
    memory = make(MemoryStore())
    memory[:] = TRUTH
    del begun[:]
    rows = [0, 3, 39]
    np.testing.assert_array_equal(array.oindex[rows, :], TRUTH[rows])
    np.testing.assert_array_equal(array.vindex[rows, [1, 2, 3]], TRUTH[rows, [1, 2, 3]])
    np.testing.assert_array_equal(array[:5, :5], TRUTH[:5, :5])
    np.testing.assert_array_equal(memory[:], TRUTH)
    assert not any(begun)


@pytest.mark.parametrize("compressors", [None, ZstdCodec(level=1), BloscCodec(cname="lz4")], ids=["none", "zstd", "blosc"])
def test_boxes_go_to_a_gpu_ahead(tmp_path: Path, gpu: str, compressors: Any, begun: list[bool]) -> None:
    array = make(LocalStore(tmp_path), compressors=compressors)
    array[:] = TRUTH
    buffers = {"buffer": "cuzarr.zarr.Buffer", "ndbuffer": "cuzarr.zarr.NDBuffer"}
    with cuzarr.config.set({"array_type": "device"}), zarr.config.set(buffers):
        for selection in (..., (slice(3, 37), slice(1, None, 3))):
            found = array[selection]
            assert isinstance(found, cuzarr.DeviceArray) and begun[-1]
            np.testing.assert_array_equal(found.cpu(), TRUTH[selection])


def test_missing_chunks_are_filled_or_refused(tmp_path: Path, begun: list[bool]) -> None:
    array = make(LocalStore(tmp_path))
    array[:7] = TRUTH[:7]
    found = array[:]
    np.testing.assert_array_equal(found[:7], TRUTH[:7])
    assert (found[7:] == -1).all() and begun[-1]
    with zarr.config.set({"array.read_missing_chunks": False}):
        strict = zarr.open_array(LocalStore(tmp_path), path="a/b", mode="r")
        with pytest.raises(zarr.errors.ChunkNotFoundError):
            strict[:]
    assert not begun[-1]


def test_damage_is_told_by_the_call(tmp_path: Path, begun: list[bool]) -> None:
    array = make(LocalStore(tmp_path), serializer=BytesCodec(), compressors=Crc32cCodec())
    array[:] = TRUTH
    path = tmp_path / "a" / "b" / "c" / "2" / "3"
    stored = path.read_bytes()
    path.write_bytes(bytes([stored[0] ^ 1]) + stored[1:])
    with pytest.raises(cuzarr.errors.CuzarrError, match="c/2/3"):
        array[:]
    path.write_bytes(stored)
    np.testing.assert_array_equal(array[:], TRUTH)
    assert begun[-1]


async def test_what_is_looked_up_by_others_or_never_called_does_no_harm(tmp_path: Path) -> None:
    array = make(LocalStore(tmp_path))
    array[:] = TRUTH
    pipeline = array.async_array.codec_pipeline
    assert inspect.iscoroutinefunction(pipeline.read) and inspect.iscoroutinefunction(type(pipeline).read)
    read = Slow()
    request = type("Request", (), {"cancel": lambda self: read.ended.set()})()
    known = dict.fromkeys(("codec_pipeline", "indexer", "out_buffer"))
    started = _ahead.Started(known, request, read)  # type: ignore[arg-type]
    del started
    assert read.waited.is_set(), "the memory is its owner's again"
    np.testing.assert_array_equal(await array.async_array.getitem(...), TRUTH)


def test_a_read_begins_before_its_chunks_are_listed(tmp_path: Path, begun: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    array = make(LocalStore(tmp_path))
    array[:] = TRUTH
    listed = indexing.BasicIndexer.__iter__

    def noted(indexer: Any) -> Any:
        begun.append("listed")
        return listed(indexer)

    monkeypatch.setattr(indexing.BasicIndexer, "__iter__", noted)
    del begun[:]
    np.testing.assert_array_equal(array.get_basic_selection(), TRUTH)
    assert begun == [True, "listed"]


def test_what_began_for_a_call_that_failed_serves_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = make(LocalStore(tmp_path))
    array[:] = TRUTH
    out = NDBuffer(np.zeros((33, 30), "i4"))

    def fails(indexer: Any) -> Any:
        raise MemoryError("no room for a list")

    with monkeypatch.context() as patch:
        patch.setattr(indexing.BasicIndexer, "__iter__", fails)
        with pytest.raises(MemoryError, match="no room"):
            array.get_basic_selection(slice(7), out=NDBuffer(np.zeros((7, 30), "i4")))
        with pytest.raises(MemoryError, match="no room"):
            array.get_basic_selection(slice(7, None), out=out)
    array.get_basic_selection(slice(0, 33), out=out)
    np.testing.assert_array_equal(out.as_numpy_array(), TRUTH[:33])


class Slow:
    """A read that ends when it is cancelled."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.waited = threading.Event()
        self.callbacks: list[Any] = []
        self.when_over = self.callbacks.append

    def wait(self) -> None:
        self.ended.wait()
        self.waited.set()
        raise OSError("cancelled")


async def test_who_is_cancelled_leaves_after_the_read_has_ended() -> None:
    read = Slow()
    task = asyncio.create_task(_threads.until_over(read, read.ended.set))  # type: ignore[arg-type]
    while not read.callbacks:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert read.waited.is_set()
    read.callbacks[0]()  # nobody waits for it any more
    await asyncio.sleep(0)


async def test_a_read_wakes_its_loop_and_says_what_went_wrong_once() -> None:
    read = Slow()
    read.ended.set()
    task = asyncio.create_task(_threads.until_over(read, lambda: None))  # type: ignore[arg-type]
    while not read.callbacks:
        await asyncio.sleep(0)
    threading.Thread(target=read.callbacks[0]).start()
    with pytest.raises(OSError, match="cancelled"):
        await task


def test_the_end_of_a_read_is_told_before_and_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = make(LocalStore(tmp_path))
    array[:] = TRUTH
    reads: list[Any] = []
    until_over = _threads.until_over

    async def noted(read: Any, cancel: Any) -> None:
        reads.append(read)
        await until_over(read, cancel)

    monkeypatch.setattr(_threads, "until_over", noted)
    np.testing.assert_array_equal(array[:], TRUTH)
    told: list[int] = []
    reads[0].when_over(lambda: told.append(1))
    assert told == [1]
    reads[0].wait()


BESIDE_ANOTHER = """
import sys
import numpy as np, zarr, cuzarr.zarr
sys.monitoring.use_tool_id(sys.monitoring.OPTIMIZER_ID, "another")
cuzarr.zarr.enable(patch=False)
array = zarr.create_array(sys.argv[1], shape=(40, 30), chunks=(7, 4), dtype="i4")
array[:] = truth = np.arange(1200).reshape(40, 30)
from cuzarr.zarr import _ahead
started, begun = _ahead._start, []
_ahead._start = lambda known: begun.append("indexed_chunks" in known) or started(known)
assert (array[:] == truth).all() and begun == [True], begun
assert sys.monitoring.get_tool(sys.monitoring.OPTIMIZER_ID) == "another"
"""


MONITORED = """
import sys
import numpy as np, zarr, cuzarr.zarr
tool = lambda: sys.monitoring.get_tool(sys.monitoring.OPTIMIZER_ID)
zarr.config.set({"codec_pipeline.path": "cuzarr.zarr.CodecPipeline"})
array = zarr.create_array(sys.argv[1], shape=(40, 30), chunks=(7, 4), dtype="i4")
array[:] = truth = np.arange(1200).reshape(40, 30)
from cuzarr.zarr import _ahead
started, begun = _ahead._start, []
_ahead._start = lambda known: begun.append("indexed_chunks" in known) or started(known)
assert (array[:] == truth).all() and tool() is None and begun == [True], (tool(), begun)
for _ in range(2):
    with cuzarr.zarr.enable(patch=False), cuzarr.zarr.enable(patch=False):
        assert (array[:] == truth).all() and tool() == "cuzarr" and begun.pop() is False, (tool(), begun)
    assert (array[:] == truth).all() and tool() is None and begun.pop(), (tool(), begun)
"""


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="skipped: this Python has no sys.monitoring")
def test_nothing_is_monitored_unless_it_is_enabled(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MONITORED, str(tmp_path / "a")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_beside_another_optimizer_a_read_begins_when_it_is_looked_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_ANOTHER, str(tmp_path / "a")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def call_threads() -> set[str]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # one that ends meanwhile
            if (task / "comm").read_text().startswith("cuzarr-call"):
                found.add(task.name)
    return found


def test_the_next_read_has_the_thread_of_the_last(tmp_path: Path) -> None:
    array = make(LocalStore(tmp_path))
    array[:] = TRUTH
    array[:]
    threads = call_threads()
    assert threads
    for _ in range(5):
        np.testing.assert_array_equal(array[:], TRUTH)
    assert call_threads() == threads

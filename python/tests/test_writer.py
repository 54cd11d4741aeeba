"""Writers: rows of a running program reach their arrays, whatever happens to the program."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import devices
import numpy as np
import pytest

import cuzarr
from cuzarr.codecs import ZstdCodec
from cuzarr.errors import (
    ArgumentTypeError,
    CuzarrUserWarning,
    InvalidArgumentError,
    OutOfRangeError,
    ShapeMismatchError,
    StoreFailedError,
    UnsupportedError,
)


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    return "cpu" if request.param == "cpu" else devices.require()


def create(place: Any, rows: int = 0, chunk: int = 4, device: str = "cpu", **options: Any) -> cuzarr.Array:
    array = cuzarr.create_array(
        place, shape=(rows, 5, 3), chunks=(chunk, 5, 2), dtype="f4", compressors=ZstdCodec(level=1), **options
    )
    return array.with_device(device)


def row(number: int) -> np.ndarray[Any, Any]:
    return np.full((5, 3), number, "f4")


def on(device: str, value: np.ndarray[Any, Any]) -> Any:
    return value if device == "cpu" or not value.size else devices.on(device, value)


@pytest.mark.parametrize("sharded", [False, True])
def test_rows_of_any_number_and_type(device: str, tmp_path: Path, sharded: bool) -> None:
    array = create(tmp_path, chunk=2, device=device, **({"shards": (4, 5, 4)} if sharded else {}))
    truth = np.arange(23, dtype="f4")[:, None, None] * np.ones((5, 3), "f4")
    with array.writer(slots=3) as writer:
        at = 0
        for count in (1, 3, 0, 9, 2, 8):
            part = truth[at : at + count].astype("i2" if count == 3 else "f4")
            writer.append(on(device, part) if count != 2 else part, copy=count != 9)
            at += count
        writer.flush()
        assert writer.position == 23 and writer.waited >= 0
        assert array.shape == (23, 5, 3)
    np.testing.assert_array_equal(devices.to_host(array[...]), truth)


def test_memory_may_change_at_once(device: str, tmp_path: Path) -> None:
    array = create(tmp_path, chunk=8, device=device)
    values = on(device, row(0))
    with array.writer() as writer:
        for step in range(30):
            values[...] = step
            writer.append(values)
    np.testing.assert_array_equal(devices.to_host(array[...])[:, 4, 2], np.arange(30))


@pytest.mark.parametrize("kind", ["current", "given", "blocking", "per-thread"])
def test_cupys_streams(tmp_path: Path, kind: str) -> None:
    cupy = pytest.importorskip("cupy")
    device = devices.require()
    if device == "simt":
        pytest.skip("CuPy has no arrays on the emulated device")
    array = create(tmp_path, chunk=8, device=device)
    stream = cupy.cuda.Stream.ptds if kind == "per-thread" else cupy.cuda.Stream(non_blocking=kind != "blocking")
    busy = cupy.zeros((2048, 2048), "f4")
    with array.writer() as writer:
        for step in range(20):
            with stream:
                _ = busy @ busy  # the rows come late
                values = cupy.full((5, 3), step, "f4")
                if kind != "given":
                    writer.append(values)
            if kind == "given":
                writer.append(values, stream=stream)
            with stream:
                values[...] = -1
    np.testing.assert_array_equal(devices.to_host(array[...])[:, 0, 0], np.arange(20))


def test_torchs_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    device = devices.require()
    if device == "simt" or not torch.cuda.is_available():
        pytest.skip("PyTorch has no tensors on this device")
    array = create(tmp_path, chunk=8, device=device)
    stream = torch.cuda.Stream()
    with array.writer() as writer, torch.cuda.stream(stream):
        values = torch.zeros((5, 3), device="cuda", requires_grad=True)
        for step in range(20):
            with torch.no_grad():
                values.fill_(step)
            writer.append(values)
    np.testing.assert_array_equal(devices.to_host(array[...])[:, 0, 0], np.arange(20))


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_beside_a_model(device: str, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    array = create(tmp_path, rows=dice.randrange(6), chunk=dice.randrange(1, 5), device=device)
    array[...] = 7
    model = dict.fromkeys(range(array.shape[0]), 7.0)
    with array.writer(slots=dice.randrange(1, 4)) as writer:
        end = array.shape[0]
        for step in range(60):
            count, tag = dice.randrange(6), float(step)
            start = end if dice.random() < 0.7 else max(0, end - dice.randrange(5)) + dice.randrange(4)
            part = np.full((count, 5, 3), tag, "f4")
            try:
                writer.write(start, on(device, part)) if start != end else writer.append(part)
            except InvalidArgumentError as error:
                assert "have not come" in str(error)
                continue
            model.update(dict.fromkeys(range(start, start + count), tag))
            end = max(end, start + count if count else 0)
            if dice.random() < 0.1:
                writer.flush()
                check(array, model)
        if len(model) < end:
            with pytest.warns(CuzarrUserWarning, match="did not come"):
                writer.close()
    check(cuzarr.open_array(tmp_path), model)


def check(array: cuzarr.Array, model: dict[int, float]) -> None:
    end = next(number for number in range(10_000) if number not in model)
    assert array.shape[0] == end
    found = devices.to_host(array[...])
    for number in range(end):
        assert (found[number] == model[number]).all(), number


def test_rows_that_do_not_fit_leave_the_writer_open(tmp_path: Path) -> None:
    array = create(tmp_path)
    with array.writer(slots=1) as writer:
        for wrong in (np.zeros((5, 4)), np.zeros((2, 5, 3, 1)), 0):
            with pytest.raises(ShapeMismatchError):
                writer.append(wrong)
        with pytest.raises(InvalidArgumentError):
            writer.write(-1, row(0))
        writer.write(1, row(1))
        with pytest.raises(InvalidArgumentError, match="slots"):
            writer.write(4, row(4))
        writer.write(0, row(0))
    np.testing.assert_array_equal(array[:, 0, 0], [0, 1])
    for call in (lambda: writer.append(row(2)), lambda: writer.flush()):
        with pytest.raises(InvalidArgumentError, match="closed"):
            call()
    writer.close()
    with pytest.raises(InvalidArgumentError):
        array.writer(slots=0)
    with pytest.raises(InvalidArgumentError):
        array.writer("time")
    with pytest.raises(UnsupportedError):
        cuzarr.create_array({}, shape=(0,), dtype="str").writer()


def test_nothing_else_appends_meanwhile(tmp_path: Path) -> None:
    array, other = create(tmp_path), cuzarr.open_array(tmp_path, mode="r+")
    with array.writer() as writer:
        writer.append(row(0))
        for call in (lambda: other.append(np.zeros((1, 5, 3))), lambda: other.resize((9, 5, 3)), lambda: other.writer()):
            with pytest.raises(InvalidArgumentError, match="writer"):
                call()
        other.attrs["units"] = "K"
    assert array.shape == (1, 5, 3)
    assert dict(cuzarr.open_array(tmp_path).attrs) == {"units": "K"}
    other.append(np.ones((1, 5, 3), "f4"))
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path)[:, 0, 0], [0, 1])


def test_an_array_is_read_and_written_inside_of_the_loop(device: str, tmp_path: Path) -> None:
    array = create(tmp_path, chunk=2, device=device)
    with (
        cuzarr.config.set({"memory_limit": "1 MiB"}),
        cuzarr.open_array(tmp_path, mode="r+", device=device).writer(slots=1) as writer,
    ):
        for step in range(12):
            writer.append(row(step))
            stored = cuzarr.open_array(tmp_path, mode="r+", device=device)
            assert stored.shape[0] <= step + 1
            if stored.shape[0]:
                assert float(devices.to_host(stored[-1])[0, 0]) == stored.shape[0] - 1
                stored[0] = 0
    np.testing.assert_array_equal(devices.to_host(cuzarr.open_array(tmp_path)[:, 0, 0]), np.arange(12))
    del array


def test_an_exception_of_the_loop_goes_on_alone(tmp_path: Path) -> None:
    array = create(tmp_path)
    with pytest.raises(KeyError, match="mine"), array.writer() as writer:
        writer.append(row(5))
        raise KeyError("mine")
    np.testing.assert_array_equal(array[:, 0, 0], [5])
    (tmp_path / "full").mkdir()
    array = create(tmp_path / "full")
    with pytest.raises(KeyError, match="mine") as caught, array.writer() as writer:
        (tmp_path / "full" / "c").write_bytes(b"a file in the way of chunks")
        writer.append(np.ones((5, 5, 3)))
        raise KeyError("mine")
    assert "could not be stored" in caught.value.__notes__[0]
    with pytest.raises(StoreFailedError) as of_writer, array.writer() as writer:
        for _ in range(100):
            writer.append(np.ones((4, 5, 3)))
    assert not hasattr(of_writer.value, "__notes__")


def test_failures_come_with_the_next_call(tmp_path: Path) -> None:
    array = create(tmp_path)
    writer = array.writer()
    (tmp_path / "c").write_bytes(b"a file in the way of chunks")
    with pytest.raises(StoreFailedError, match="rows 0 to 3") as first:
        for step in range(1000):
            writer.append(row(step))
            time.sleep(0.001)
    with pytest.raises(StoreFailedError) as second:
        writer.append(row(0))
    assert str(second.value) == str(first.value)
    assert writer.position == 0
    with pytest.raises(StoreFailedError):
        writer.close()
    writer.close()
    assert cuzarr.open_array(tmp_path).shape == (0, 5, 3)


def test_a_writer_that_is_not_closed_warns(tmp_path: Path) -> None:
    array = create(tmp_path)
    writer = array.writer()
    writer.append(np.zeros((6, 5, 3)))
    with pytest.warns(ResourceWarning, match="not closed"):
        del writer
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array.writer().close()


ENDING = """
import sys, numpy as np, cuzarr
array = cuzarr.open_array(sys.argv[1], mode="r+")
writer = array.writer()
writer.append(np.zeros((50, 5, 3)))
print("end", flush=True)
"""


def test_a_program_ends_with_an_open_writer(tmp_path: Path) -> None:
    create(tmp_path)
    command = [sys.executable, "-c", ENDING, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "end\n"
    assert cuzarr.open_array(tmp_path).shape[0] % 4 == 0


def test_a_forked_child_refuses(tmp_path: Path) -> None:
    array = create(tmp_path)
    with array.writer() as writer:
        writer.append(row(0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                writer.append(row(1))
            except InvalidArgumentError as error:
                os._exit(0 if "forked child" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(array[:, 0, 0], [0])


KILLED = """
import sys, numpy as np, cuzarr
array = cuzarr.open_array(sys.argv[1], mode="r+")
print("begun", flush=True)
with array.writer(resume=True) as writer:
    for step in range(writer.position, 10**6):
        writer.append(np.full((5, 3), step, "f4"))
        if step % 7 == 0 and step % 21 == 0:
            writer.flush()
"""


@pytest.mark.parametrize("consolidated", [False, True])
def test_a_killed_process_leaves_whole_rows(tmp_path: Path, consolidated: bool) -> None:
    root = cuzarr.create_group(tmp_path)
    root.create_array("a", shape=(0, 5, 3), chunks=(4, 5, 2), dtype="f4")
    if consolidated:
        cuzarr.consolidate_metadata(tmp_path)
    dice, rows = random.Random(3), 0
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "a")], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05 + 0.3 * dice.random())
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stdout.close()
        array = cuzarr.open_array(tmp_path / "a")
        assert array.shape[0] >= rows
        rows = array.shape[0]
        assert (array[...] == np.arange(rows, dtype="f4")[:, None, None]).all()
    assert rows > 0
    with cuzarr.open_array(tmp_path / "a", mode="r+").writer(resume=True) as writer:
        assert writer.position == rows
    # Files that a killed process had not finished have other names.
    files = [path.relative_to(tmp_path / "a" / "c") for path in (tmp_path / "a" / "c").rglob("*") if path.is_file()]
    assert {int(file.parts[0]) for file in files if file.name.isdigit()} == set(range(-(-rows // 4)))


def fill(path: str, rank: int, extent: int) -> None:
    array = cuzarr.open_array(path, mode="r+")
    mine = slice(extent * rank, extent * (rank + 1))
    with array.writer(region=(slice(None), mine)) as writer:
        for step in range(array.shape[0]):
            writer.append(np.full((extent, 6), 100 * rank + step, "f4"))
        writer.flush()
        assert writer.position == array.shape[0]


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_fill_regions(tmp_path: Path, ranks: int) -> None:
    array = cuzarr.create_array(tmp_path, shape=(10, 4 * ranks, 6), chunks=(4, 2, 6), dtype="f4")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=fill, args=(str(tmp_path), rank, 4)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    truth = np.repeat(100.0 * np.arange(ranks), 4)[None, :, None] + np.arange(10.0)[:, None, None]
    np.testing.assert_array_equal(array[...], np.broadcast_to(truth, array.shape))
    with pytest.raises(InvalidArgumentError, match="such as 0..4"):
        array.writer(region=(slice(None), slice(1, 4)))
    with pytest.raises(OutOfRangeError), array.writer(region=(slice(0, 4),)) as writer:
        writer.write(4, np.zeros((4 * ranks, 6)))


def test_arrays_of_a_group_grow_together(device: str, tmp_path: Path) -> None:
    group = cuzarr.create_group(tmp_path)
    for name, chunk in (("t", 4), ("u", 4), ("w", 3)):
        group.create_array(name, shape=(0, 5), chunks=(chunk, 5), dtype="f8", dimension_names=("time", "x"))
    group.create_array("time", shape=(0,), chunks=(512,), dtype="i8", dimension_names=("time",))
    group.create_array("mask", shape=(5,), dtype="i1", dimension_names=("x",))
    cuzarr.consolidate_metadata(tmp_path)
    opened = cuzarr.open_group(tmp_path, mode="r+", device=device)
    with opened.writer() as writer:
        for step in range(10):
            fields = {name: on(device, np.full(5, step + place)) for place, name in enumerate("tuw")}
            writer.append({**fields, "time": step})
        with pytest.raises(InvalidArgumentError, match="'mask'"):
            writer.append({"mask": np.zeros(5)})
        with pytest.raises(InvalidArgumentError, match="are missing"):
            writer.append({"t": np.zeros(5)})
        with pytest.raises(ArgumentTypeError):
            writer.append([1])  # type: ignore[arg-type]
        for wrong in (np.zeros(6), np.zeros((2, 5)), np.ma.masked_array(np.zeros(5), True)):
            with pytest.raises((ShapeMismatchError, InvalidArgumentError)):
                writer.append({"t": np.zeros(5), "u": np.zeros(5), "w": wrong, "time": 3})
        writer.write(10, {"t": np.zeros(5)})
        with pytest.warns(CuzarrUserWarning, match="row 10 did not come"):
            writer.close()
    again = cuzarr.open_group(tmp_path)
    assert {name: array.shape[0] for name, array in again.arrays()} == {"t": 11, "u": 10, "w": 10, "time": 10, "mask": 5}
    np.testing.assert_array_equal(again["w"][:, 0], np.arange(10) + 2.0)
    np.testing.assert_array_equal(again["time"][:], np.arange(10))
    with pytest.raises(InvalidArgumentError):
        opened.writer(axis="depth")
    # Arrays that end at different rows go on at the smallest end.
    with cuzarr.open_group(tmp_path, mode="r+", device=device).writer(["t", "u"]) as writer:
        assert writer.position == 10
        writer.append({"t": on(device, np.full(5, 7.0)), "u": on(device, np.full(5, 8.0))})
    assert [float(again[name][10, 0]) for name in "tu"] == [7, 8]


@pytest.mark.parametrize("method", ["mean", "max"])
def test_levels_are_made_on_the_way(device: str, tmp_path: Path, method: str) -> None:
    truth = np.random.default_rng(3).integers(0, 1000, (21, 40, 36), "uint16")
    chunks: Any = {"chunks": (3, 16, 16), "shards": (12, 32, 32)}
    made = cuzarr.pyramid(truth[:0], tmp_path, axes="zyx", levels=3, **chunks)
    assert [array.shape for array in cuzarr.ome.open_image(made).arrays()] == [(0, 40, 36), (0, 20, 18), (0, 10, 9)]
    expected = cuzarr.pyramid(truth, {}, axes="zyx", levels=3, method=method)
    for part in (slice(0, 8), slice(8, 21)):
        image = cuzarr.ome.open_image(cuzarr.open_group(tmp_path, device=None if device == "cpu" else device))
        with image.writer("z", method=method) as camera:
            for number, plane in enumerate(truth[part]):
                camera.append(on(device, plane))
                if number % 5 == 2:
                    camera.flush()
        assert image.array(2).shape == ((part.stop + 3) // 4, 10, 9)
    for level, own in enumerate(image.arrays()):
        np.testing.assert_array_equal(devices.to_host(own[...]), expected[str(level)][...])
    with pytest.raises(UnsupportedError, match="gaussian"):
        image.writer("z", method="gaussian")
    with pytest.raises(InvalidArgumentError, match="unknown method 'middle'"):
        image.writer("z", method="middle")


def test_levels_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    array, level = create(tmp_path / "a"), create(tmp_path / "b")
    with pytest.raises(InvalidArgumentError, match="different stores"):
        array.writer(levels=[(level, (2, 2, 2))])
    group = cuzarr.create_group({})
    fine, coarse = (group.create_array(name, shape=(0, side), dtype="f4") for name, side in (("fine", 9), ("coarse", 3)))
    with pytest.raises(ShapeMismatchError, match=r"factors \[2, 2\]") as failure:
        fine.writer(levels=[(coarse, (2, 2))])
    assert "[0, 5]" in str(failure.value.hint)
    wrong: list[Any] = [[(coarse, "22")], [coarse], [(coarse,)], None, [("coarse", (2, 3))], [(np.ones(2), (2, 3))]]
    for levels in wrong:
        with pytest.raises(ArgumentTypeError):
            fine.writer(levels=levels)
    with pytest.raises(InvalidArgumentError, match="twice"):
        fine.writer(levels=[(fine, (1, 1))])
    with fine.writer(levels=[(coarse, [2, 3])]) as writer:
        writer.append(np.ones(9))
        with pytest.raises(InvalidArgumentError, match="writer"):
            coarse.append(np.ones((1, 3), "f4"))
    assert coarse[...].tolist() == [[1, 1, 1]]
    # Levels may come from an iterator.
    with fine.writer(levels=zip([coarse], [(2, 3)], strict=True)) as writer:
        writer.append(np.ones((3, 9)))
    assert coarse.shape == (2, 3)


def test_an_image_whose_scales_are_no_multiples_is_refused(tmp_path: Path) -> None:
    made = cuzarr.pyramid(np.zeros((0, 64, 64), "u1"), tmp_path, axes="zyx", levels=2)
    ome = made.attrs["ome"]
    for scale in ([1.5, 2.0, 2.0], [0.5, 2.0, 2.0], [1e300, 2.0, 2.0]):
        ome["multiscales"][0]["datasets"][1]["coordinateTransformations"][0]["scale"] = scale
        made.attrs["ome"] = ome
        with pytest.raises(cuzarr.errors.MetadataValidationError, match="scale"):
            cuzarr.ome.open_image(cuzarr.open_group(tmp_path)).writer("z")
    with pytest.raises(cuzarr.errors.ReadOnlyError, match="opened for reading") as failure:
        cuzarr.ome.open_image(tmp_path).writer("z")
    assert "open_group" in str(failure.value.hint)


def test_levels_have_no_rows_of_gaps(tmp_path: Path) -> None:
    for round_ in range(20):
        group = cuzarr.create_group({})
        options: Any = {"shape": (0,), "chunks": (4,), "dtype": "u1", "fill_value": 7}
        fine, coarse = group.create_array("0", shards=(12,), **options), group.create_array("1", **options)
        with (
            pytest.warns(CuzarrUserWarning, match="row 3 did not come"),
            fine.writer(levels=[(coarse, (2,))], method="max") as writer,
        ):
            writer.append([101, 102, 103])
            writer.write(4, 105)
        assert coarse[...].tolist() == [102, 103], round_


def test_resuming_waits_for_rows_that_another_program_stores(tmp_path: Path) -> None:
    array = cuzarr.create_array(tmp_path, shape=(0, 4), chunks=(1, 4), dtype="i4", fill_value=-1)
    opens = f"import cuzarr\nfor _ in range(40):\n    cuzarr.open_array({str(tmp_path)!r}).writer(resume=True).close()"
    other = subprocess.Popen([sys.executable, "-c", opens])
    count = 0
    while other.poll() is None:
        array.append(np.full((3, 4), count, "i4"))
        count += 1
    assert other.returncode == 0
    np.testing.assert_array_equal(array[:, 0], np.repeat(np.arange(count), 3))


def test_shards_larger_than_the_memory_limit(tmp_path: Path) -> None:
    rows = np.arange(64, dtype="f4")[:, None] * np.ones(1 << 14, "f4")
    array = cuzarr.create_array(tmp_path, shape=(0, 1 << 14), chunks=(1, 1 << 13), shards=(64, 1 << 14), dtype="f4")
    assert array.nbytes == 0
    # A shard has 4 MiB.
    with cuzarr.config.set({"memory_limit": "1 MiB"}), cuzarr.open_array(tmp_path).writer() as writer:
        for row in rows:
            writer.append(row)
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path)[...], rows)


def test_threads_share_a_writer(tmp_path: Path) -> None:
    array = create(tmp_path, chunk=3)
    with array.writer(slots=8) as writer:
        # Each thread has its own rows; together they keep few blocks incomplete.
        turn = threading.Barrier(4)

        def work(first: int) -> None:
            for step in range(first, 40, 4):
                turn.wait()
                writer.write(step, row(step))

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    np.testing.assert_array_equal(array[:, 0, 0], np.arange(40))


def test_a_writer_that_was_dropped_stores_nothing_more(tmp_path: Path) -> None:
    for _ in range(10):
        array = cuzarr.create_array(tmp_path, shape=(0, 1000), chunks=(50, 1000), dtype="f4", overwrite=True)
        writer = array.writer()
        writer.append(np.ones((50, 1000)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del writer
        stored = cuzarr.open_array(tmp_path).shape[0]
        assert stored in (0, 50)
        with array.writer() as writer:
            assert writer.position == stored
        array.append(np.zeros((5, 1000)))
        assert cuzarr.open_array(tmp_path).shape == (stored + 5, 1000)


def test_an_array_with_a_writer_is_not_replaced(tmp_path: Path) -> None:
    group = cuzarr.create_group(tmp_path)
    array = create(tmp_path / "a", rows=8)
    for options in ({}, {"region": (slice(0, 4),)}):
        with array.writer(**options) as writer:
            writer.append(row(3))
            for call in (
                lambda: create(tmp_path / "a", overwrite=True),
                lambda: group.__delitem__("a"),
                lambda: cuzarr.create_group(tmp_path, overwrite=True),
                lambda: cuzarr.open_array(tmp_path / "a", mode="r+").resize((1, 5, 3)),
                lambda: array.writer(region=(slice(0, 8),)),
            ):
                with pytest.raises(InvalidArgumentError, match="writer"):
                    call()
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "a")[:, 0, 0], [3, 0, 0, 0, 0, 0, 0, 0, 3])


def test_regions_keep_what_they_do_not_write(tmp_path: Path) -> None:
    array = cuzarr.create_array(tmp_path, shape=(8,), chunks=(4,), dtype="i4")
    array[:] = 7
    with array.writer(region=(slice(0, 4),)) as writer, array.writer(region=(slice(4, 8),)) as other:
        writer.write(0, 1)
        writer.write(3, 1)
        other.write(5, [2, 2])
    np.testing.assert_array_equal(array[:], [1, 7, 7, 1, 7, 2, 2, 7])
    for wrong in (..., 5, "a", (slice(0, 4), 3)):
        with pytest.raises(ArgumentTypeError):
            array.writer(region=wrong)
    for outside in (slice(8, 12), slice(4, 9), slice(-9, None)):
        with pytest.raises(OutOfRangeError):
            array.writer(region=(outside,))


def test_a_writer_of_a_group_fills_a_region_of_every_array(tmp_path: Path) -> None:
    group = cuzarr.create_group(tmp_path)
    for name in ("u", "v"):
        group.create_array(name, shape=(6, 8), chunks=(4, 4), dtype="i4", dimension_names=("time", "x"))
    with group.writer(region=(slice(None), slice(4, 8))) as writer, group.writer(region=(slice(0, 4), slice(0, 4))) as other:
        for step in range(6):
            writer.append({"u": np.full(4, step), "v": np.full(4, -step)})
        other.write(2, {"v": np.full(4, 9)})
    assert group["u"].shape == (6, 8)
    np.testing.assert_array_equal(group["u"][:], [[0] * 4 + [step] * 4 for step in range(6)])
    np.testing.assert_array_equal(group["v"][:, 3:5], [[9 * (step == 2), -step] for step in range(6)])
    group.create_array("w", shape=(6, 9), chunks=(4, 4), dtype="i4", dimension_names=("time", "x"))
    with pytest.raises(ShapeMismatchError, match="expected one shape"):
        group.writer(region=(slice(None),))


def test_rows_far_away_and_none(tmp_path: Path) -> None:
    array = cuzarr.create_array(tmp_path, shape=(0, 2), chunks=(4, 2), dtype="i4")
    with array.writer() as writer:
        writer.write(10, np.zeros((0, 2)))
        writer.append([1, 2])
        for far in (2**63, 2**63 - 1):
            with pytest.raises(OutOfRangeError):
                writer.write(far, [1, 2])
    np.testing.assert_array_equal(array[...], [[1, 2]])


INTERRUPTED = """
import sys, signal, threading, time, os, numpy as np, cuzarr

class Slow(dict):
    def __setitem__(self, key, value):
        if "c/" in key:
            time.sleep(30)
        super().__setitem__(key, value)

signal.signal(signal.SIGINT, signal.default_int_handler)  # programs in the background ignore it
array = cuzarr.create_array(Slow(), shape=(0, 4), chunks=(2, 4), dtype="i4")
writer = array.writer()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    for _ in range(100):
        writer.append(np.ones(4))
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begun < 5, flush=True)
os._exit(0)
"""


def test_a_call_that_waits_is_interrupted() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "interrupted True\n", ended.stderr

"""Copies and new chunks: what comes out equals what went in, in every format and store, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import to_host

import cuzarr
from cuzarr.errors import (
    BudgetExceededError,
    ChunkCorruptError,
    ContainsArrayError,
    ContainsGroupError,
    CuzarrUserWarning,
    InvalidArgumentError,
    UnsupportedError,
)

HAS_ZARR = importlib.util.find_spec("zarr") is not None

VALUES = np.arange(30 * 20 * 10, dtype="int32").reshape(30, 20, 10)


@pytest.fixture
def source(tmp_path: Path) -> cuzarr.Array:
    array = cuzarr.create_array(
        tmp_path / "source", shape=VALUES.shape, chunks=(1, 20, 10), dtype="int32", fill_value=3, attributes={"units": "m"}
    )
    array[...] = VALUES
    return array


@pytest.mark.parametrize(
    "how",
    [
        {"chunks": (-1, 4, 5)},
        {"chunks": (10, 5, 5), "shards": (30, 10, 10), "compressors": None},
        {"chunks": (10, 5, 5), "zarr_format": 2},
        {"chunks": 7, "compressors": [{"name": "gzip", "configuration": {"level": 1}}]},
        {"chunks": (30, 20, 10), "compressors": cuzarr.codecs.BloscCodec(cname="zstd", typesize=4)},
        {
            "chunks": (5, 20, 5),
            "shards": (30, 20, 10),
            "codecs": [cuzarr.codecs.TransposeCodec(order=(2, 0, 1)), "bytes", "crc32c"],
        },
    ],
    ids=str,
)
def test_rechunk_keeps_elements_and_attributes(source: cuzarr.Array, how: dict[str, Any], device: str) -> None:
    zarr = pytest.importorskip("zarr")
    place = source.store.root.parent / "target"  # type: ignore[attr-defined]
    result = cuzarr.rechunk(source, place, device=device, **how)
    assert isinstance(result, cuzarr.Array)
    np.testing.assert_array_equal(cuzarr.open_array(place, device="cpu")[...], VALUES)
    theirs = zarr.open_array(place, mode="r")
    np.testing.assert_array_equal(theirs[...], VALUES)
    assert theirs.attrs["units"] == "m"
    chunks = (
        (7, 7, 7) if how["chunks"] == 7 else tuple(a if b == -1 else b for a, b in zip(VALUES.shape, how["chunks"], strict=True))
    )
    assert theirs.chunks == chunks


def test_groups_are_copied_between_stores_and_formats(device: str) -> None:
    group = cuzarr.create_group({}, attributes={"title": "t"})
    group.create_array("a/b", shape=(4,), dtype="float64", chunks=(2,))[...] = 1.5
    group.create_array("names", shape=(2,), dtype=str, chunks=(1,))[...] = np.array(["é", "xyz"], object)
    target: dict[str, Any] = {}
    copied = cuzarr.copy(group, target, path="inside", zarr_format=2)
    assert isinstance(copied, cuzarr.Group)
    assert dict(copied.attrs) == {"title": "t"}
    again = cuzarr.copy(copied, {}, zarr_format=3)
    assert to_host(again["a/b"][...]).tolist() == [1.5] * 4
    assert again["names"][...].tolist() == ["é", "xyz"]


def test_sources_of_zarr_python_are_taken() -> None:
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array({}, data=np.arange(6), chunks=(2,))
    assert cuzarr.rechunk(array, {}, chunks=3)[:].tolist() == list(range(6))


def test_a_dry_run_tells_and_does_nothing(source: cuzarr.Array, tmp_path: Path) -> None:
    plan = cuzarr.rechunk(source, tmp_path / "target", chunks=(30, 5, 5), dry_run=True)
    (array,) = plan.to_dict()
    assert array["passes"][0]["objects"] == 8 and "8 objects" in str(plan)
    assert not (tmp_path / "target").exists()


def test_copies_of_damaged_chunks_say_how_all_of_them_are_found(source: cuzarr.Array) -> None:
    values: dict[str, bytes] = {}
    damaged = cuzarr.create_array(values, data=source[...], chunks=VALUES.shape, compressors=cuzarr.codecs.ZstdCodec())
    values["c/0/0/0"] = b"damaged"
    with pytest.raises(ChunkCorruptError) as raised:
        cuzarr.copy(damaged, {})
    assert raised.value.hint is not None and "cuzarr validate" in raised.value.hint


def test_overlap_existing_targets_and_small_budgets_are_refused(source: cuzarr.Array, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        cuzarr.copy(source, tmp_path, path="source/inside")
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        cuzarr.copy(source, tmp_path / "source", overwrite=True)
    memory = cuzarr.copy(source, {})
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        cuzarr.copy(memory, memory.store, overwrite=True)
    with pytest.raises(ContainsArrayError):
        cuzarr.copy(source, memory.store)
    with pytest.raises(BudgetExceededError) as raised:
        cuzarr.rechunk(source, {}, chunks=(30, 20, 10), memory_limit="64 KiB")
    assert "raise memory_limit" in str(raised.value.hint)
    np.testing.assert_array_equal(source[...], VALUES)


def test_codecs_are_all_of_them_or_named_as_wrong(source: cuzarr.Array) -> None:
    chain = [cuzarr.codecs.TransposeCodec(order=(2, 0, 1)), cuzarr.codecs.BytesCodec(), cuzarr.codecs.GzipCodec(level=1)]
    copied = cuzarr.copy(source, {}, codecs=chain)
    assert [codec["name"] for codec in copied.metadata.to_dict()["codecs"]] == ["transpose", "bytes", "gzip"]
    np.testing.assert_array_equal(copied[...], VALUES)
    assert [codec["name"] for codec in cuzarr.copy(copied, {}, compressors=None).metadata.to_dict()["codecs"]] == [
        "transpose",
        "bytes",
    ]
    scales = cuzarr.pyramid(source, {}, levels=2, codecs=chain)
    assert [codec["name"] for codec in scales["1"].metadata.to_dict()["codecs"]] == ["transpose", "bytes", "gzip"]
    target: dict[str, Any] = {}
    for wrong, message in [
        ({"codecs": chain, "compressors": None}, "codecs and compressors"),
        ({"codecs": chain, "zarr_format": 2}, "format 2 has no list of codecs"),
        ({"codecs": [cuzarr.codecs.GzipCodec()]}, "before the array→bytes codec"),
        ({"codecs": [cuzarr.codecs.ShardingCodec(chunk_shape=(1, 20, 10))]}, "set shards"),
        ({"codecs": ["nothing-such"]}, "nothing-such"),
    ]:
        with pytest.raises(cuzarr.errors.CuzarrError, match=message):
            cuzarr.copy(source, target, **wrong)
    assert not target


def test_an_interrupted_copy_is_resumed(source: cuzarr.Array) -> None:
    class Failing(dict[str, Any]):
        left = 4

        def __setitem__(self, key: str, value: Any) -> None:
            if "c/" in key:
                if self.left == 0:
                    raise OSError("the disk is gone")
                self.left -= 1
            super().__setitem__(key, value)

    target, how = Failing(), {"chunks": (5, 20, 10), "memory_limit": "128 KiB"}
    with pytest.raises(cuzarr.errors.CuzarrError, match="region"):
        cuzarr.rechunk(source, target, **how)
    there = {key: id(value) for key, value in target.items() if "c/" in key}
    assert 0 < len(there) < 6 and "zarr.json" not in target
    target.left = 100
    told: list[tuple[int, int | None]] = []
    resumed = cuzarr.rechunk(source, target, resume=True, progress=lambda done, total: told.append((done, total)), **how)
    np.testing.assert_array_equal(resumed[...], VALUES)
    assert all(id(target[key]) == value for key, value in there.items()) and told
    assert not any("cuzarr" in key for key in target)


@pytest.mark.parametrize("name", [".cuzarr-copy.json", ".cuzarr-work.json"])
def test_a_checkpoint_that_cannot_be_gone_on_with_is_only_overwritten(source: cuzarr.Array, name: str) -> None:
    target = {name: b'{"version": 1, "source": {}, "target": "", "between": null, "passes": []}'}
    for resume in (False, True):
        with pytest.raises(cuzarr.errors.CuzarrError) as raised:
            cuzarr.copy(source, target, resume=resume)
        assert raised.value.hint == "begin again with overwrite=True"
    np.testing.assert_array_equal(cuzarr.copy(source, target, overwrite=True)[...], VALUES)
    assert name not in target


def test_progress_hears_of_objects_while_they_are_written(source: cuzarr.Array) -> None:
    heard = threading.Event()

    class Waiting(dict[str, Any]):
        """Takes its last objects only when somebody heard of the first."""

        def __setitem__(self, key: str, value: Any) -> None:
            if sum("c/" in key for key in self) >= 3:
                assert heard.wait(60), "nobody hears of what was written"
            super().__setitem__(key, value)

    def progress(done: int, total: int | None) -> None:
        if 0 < done < 6 and total == 6:
            heard.set()

    cuzarr.rechunk(source, Waiting(), chunks=(5, 20, 10), progress=progress)
    assert heard.is_set()
    heard.clear()
    copied = cuzarr.copy(source, Waiting(), progress=lambda done, total: heard.set() if done > 0 else None)
    np.testing.assert_array_equal(copied[...], VALUES)


def test_progress_of_a_group_counts_chunks_alone() -> None:
    group = cuzarr.create_group({})
    for number in range(12):
        group.create_array(f"a{number}", data=np.ones(2, "f4"), chunks=(1,))
    chunks: set[str] = set()
    heard: list[tuple[int, int, int | None]] = []

    class Counted(dict[str, Any]):
        """Knows the chunks that are there, and is slow enough for words of progress."""

        def __setitem__(self, key: str, value: Any) -> None:
            chunks.update([key] if "/c/" in key else [])
            time.sleep(0.02)
            super().__setitem__(key, value)

    def progress(done: int, total: int | None) -> None:
        heard.append((done, len(chunks), total))

    cuzarr.copy(group, Counted(), progress=progress)
    assert heard[-1] == (24, 24, 24)
    assert all(done <= stored for done, stored, _ in heard), heard


def test_an_array_is_not_replaced_by_what_is_read_of_it(tmp_path: Path) -> None:
    group = cuzarr.open_group(tmp_path / "group", mode="w")
    array = group.create_array("a", data=VALUES, chunks=(5, 20, 10))
    for place in (tmp_path / "group" / "a", tmp_path / "group"):
        with pytest.raises(InvalidArgumentError, match="overlaps the source"):
            cuzarr.create_array(place, data=array, chunks=(6, 20, 10), overwrite=True)
    np.testing.assert_array_equal(array[...], VALUES)
    other = cuzarr.create_array(tmp_path / "group" / "b", data=array, chunks=(6, 20, 10), overwrite=True)
    np.testing.assert_array_equal(other[...], VALUES)


def test_signals_act_as_before_when_a_command_is_over() -> None:
    program = """
import os, signal, sys
from cuzarr import _core
from cuzarr.references.make import make_references_for_command

caught = []
signal.signal(signal.SIGHUP, lambda number, frame: caught.append(number))
for _ in range(2):
    assert _core.cli(["cuzarr", "completions", "bash"], make_references_for_command) == 0
os.kill(os.getpid(), signal.SIGHUP)
assert caught == [signal.SIGHUP]
child = os.fork()
if child == 0:
    signal.pause()
os.kill(child, signal.SIGTERM)
assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
"""
    ended = subprocess.run(
        ["env", "--default-signal=HUP,TERM", sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == -signal.SIGTERM, ended.stderr


def test_the_command_ends_at_control_c_and_its_copy_is_resumed(tmp_path: Path) -> None:
    values = np.arange(1, 1 << 13, dtype="int32")
    cuzarr.create_array(tmp_path / "source", data=values, chunks=values.shape)
    words = [sys.executable, "-m", "cuzarr", "rechunk", str(tmp_path / "source"), str(tmp_path / "target"), "--chunks", "1"]
    # Jobs in the background of a shell ignore the signal.
    command = subprocess.Popen(["env", "--default-signal=INT", *words])
    while not (tmp_path / "target" / "c").exists():
        assert command.poll() is None
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == -signal.SIGINT
    assert not (tmp_path / "target" / "zarr.json").exists()
    subprocess.run([*words, "--resume"], check=True)
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "target")[...], values)


def test_codecs_without_settings_are_copied_as_zarr_python_reads_them() -> None:
    zarr = pytest.importorskip("zarr", minversion="3.4")
    codecs = [cuzarr.codecs.numcodecs.Adler32(), cuzarr.codecs.Crc32cCodec()]
    source = cuzarr.create_array({}, shape=(6,), chunks=(4,), dtype="int16", compressors=codecs)
    source[:] = np.arange(6)
    store: dict[str, Any] = {}
    assert cuzarr.rechunk(source, store, chunks=(2,))[...].tolist() == list(range(6))
    theirs = zarr.storage.MemoryStore({key: zarr.core.buffer.cpu.Buffer.from_bytes(bytes(value)) for key, value in store.items()})
    assert zarr.open_array(theirs, mode="r")[...].tolist() == list(range(6))


def zip_targets(place: Path) -> dict[str, Any]:
    """Every way to name a ZIP file as a target; nothing is there yet."""
    return {
        "path": place,
        "text": str(place),
        "url": f"zip://{place}",
        "store": cuzarr.storage.ZipStore(place, mode="a"),
        "written": cuzarr.storage.ZipStore(place, mode="w"),
        "compressed": cuzarr.storage.ZipStore(place, mode="x", compression=zipfile.ZIP_DEFLATED),
        "ours in its form": cuzarr.storage.ZipStore(place, mode="a").zarr_store if HAS_ZARR else place,
    }


@pytest.mark.parametrize("name", ["path", "text", "url", "store", "written", "compressed", "ours in its form"])
def test_copies_go_into_zip_files(source: cuzarr.Array, tmp_path: Path, name: str, device: str) -> None:
    place = tmp_path / "back.zip"
    group = cuzarr.create_group({})
    group.create_array("a", data=VALUES)
    target = zip_targets(place)[name]
    is_closed_by_the_call = name in ("path", "text", "url")
    plan = cuzarr.copy(source, target, dry_run=True)
    assert len(plan.to_dict()) == 1 and not place.exists()
    copied = cuzarr.rechunk(group, target, chunks=(-1, 4, 5))
    assert place.exists() == is_closed_by_the_call
    np.testing.assert_array_equal(to_host(copied["a"][...]), VALUES)
    with pytest.raises(ContainsGroupError):
        cuzarr.copy(source, target)
    with pytest.raises(UnsupportedError, match="cannot be resumed"):
        cuzarr.copy(group, target, resume=True)
    scales = cuzarr.pyramid(source, target, path="image", axes="zyx", levels=2)
    np.testing.assert_array_equal(to_host(scales["0"][...]), VALUES)
    cuzarr.map_blocks(lambda block: block + 1, source, out=target, name="more")
    cuzarr.reduce(lambda block: block.sum(0), np.add, source, axis=0, out=target, name="sum")
    copied.store.close()
    scales.store.close()
    with zipfile.ZipFile(place) as file:
        assert file.testzip() is None and "a/zarr.json" in file.namelist()
        assert len(set(file.namelist())) == len(file.namelist())
    read = cuzarr.open_group(place, mode="r")
    assert sorted(read) == ["a", "image", "more", "sum"]
    np.testing.assert_array_equal(to_host(read["more"][...]), VALUES + 1)
    np.testing.assert_array_equal(to_host(read["sum"][...]), VALUES.sum(0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.zip", "source"]
    if HAS_ZARR:
        zarr = pytest.importorskip("zarr")
        theirs = zarr.open_group(zarr.storage.ZipStore(place), mode="r")
        np.testing.assert_array_equal(theirs["a"][...], VALUES)


def test_a_call_that_fails_leaves_the_old_archive(source: cuzarr.Array, tmp_path: Path) -> None:
    place = tmp_path / "back.zip"
    cuzarr.save_array(place, VALUES)
    before = place.read_bytes()

    def fails(block: Any) -> Any:
        raise RuntimeError("no")

    for write in (
        lambda: cuzarr.map_blocks(fails, source, out=place, name="b"),
        lambda: cuzarr.save_group(place, a=VALUES, b=np.array([object()])),
        lambda: cuzarr.rechunk(source, place, chunks=(-1, -1, -1), overwrite=True, memory_limit=1),
    ):
        with pytest.raises((RuntimeError, cuzarr.errors.CuzarrError, ValueError, TypeError)):
            write()
        gc.collect()
        assert place.read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["back.zip", "source"]


def test_archives_of_other_libraries_that_cannot_delete_are_refused(source: cuzarr.Array, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    archive = pytest.importorskip("fsspec.implementations.zip")
    group = cuzarr.create_group({})
    group.create_array("a", data=VALUES)
    for target in (
        zarr.storage.ZipStore(tmp_path / "back.zip", mode="w"),
        archive.ZipFileSystem(tmp_path / "back.other", mode="w").get_mapper(""),
    ):
        for write in (
            lambda target: cuzarr.copy(source, target),
            lambda target: cuzarr.copy(source, target, path="a", overwrite=True),
            lambda target: cuzarr.copy(group, target, resume=True),
            lambda target: cuzarr.copy(source, target, dry_run=True),
            lambda target: cuzarr.rechunk(group, target, chunks=(-1, 4, 5)),
            lambda target: cuzarr.pyramid(source, target, axes="zyx"),
            lambda target: cuzarr.map_blocks(lambda block: block, source, out=target, resume=True),
            lambda target: cuzarr.reduce(np.sum, np.add, source, axis=0, out=target, resume=True),
        ):
            with pytest.raises(UnsupportedError, match="cannot be deleted") as raised:
                write(target)
            assert "write to a directory, then pack that" in str(raised.value.hint)


def test_an_array_in_a_zip_file_takes_results_that_are_not_resumed(source: cuzarr.Array, tmp_path: Path) -> None:
    with cuzarr.storage.ZipStore(tmp_path / "back.zip", mode="w") as store:
        target = cuzarr.create_array(store, shape=VALUES.shape, chunks=(5, 20, 10), dtype="int32")
        with pytest.raises(UnsupportedError, match="cannot be resumed"):
            (source + 1).store(target, resume=True)
        assert store.list() == ["zarr.json"]
        (source + 1).store(target)
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "back.zip", mode="r")[...], VALUES + 1)


def test_a_packed_copy_opens_as_the_hint_says(source: cuzarr.Array, tmp_path: Path) -> None:
    cuzarr.copy(source, tmp_path / "back")
    packed = shutil.make_archive(str(tmp_path / "back"), "zip", tmp_path / "back")
    np.testing.assert_array_equal(cuzarr.open_array(packed, mode="r")[...], VALUES)


def test_a_copy_is_made_of_the_node_that_was_opened() -> None:
    # One place may hold both formats, as after a migration, and members that consolidated metadata does not know.
    store: dict[str, Any] = {}
    for zarr_format, values in ((2, [7, 8, 9]), (3, [0, 1, 2])):
        kept: dict[str, Any] = {}
        cuzarr.create_group(kept, zarr_format=zarr_format).create_array("a", data=np.array(values), chunks=(2,))
        store |= kept
    zarr = pytest.importorskip("zarr")
    buffer = zarr.core.buffer.cpu.Buffer
    theirs = zarr.storage.MemoryStore({key: buffer.from_bytes(bytes(value)) for key, value in store.items()})
    for group in (cuzarr.open_group(store, zarr_format=2), zarr.open_group(theirs, mode="r", zarr_format=2)):
        array = group["a"]
        for copied in (cuzarr.copy(array, {}), cuzarr.copy(group, {})["a"], cuzarr.rechunk(array, {}, chunks=(1,))):
            assert (copied[...].tolist(), copied.metadata.zarr_format) == ([7, 8, 9], 2)
        assert cuzarr.map_blocks(lambda block: block, array).tolist() == [7, 8, 9]
    consolidated: dict[str, Any] = {}
    cuzarr.create_group(consolidated, zarr_format=2).create_array("a", data=np.arange(3))
    cuzarr.consolidate_metadata(consolidated)
    later: dict[str, Any] = {}
    cuzarr.create_group(later, zarr_format=2).create_array("b", data=np.arange(4))
    consolidated |= {key: value for key, value in later.items() if key.startswith("b/")}
    # A copy reads the nodes' own documents, and names what the consolidated metadata does not know.
    with pytest.warns(CuzarrUserWarning, match="'b' is missing in the consolidated metadata"):
        copied = cuzarr.copy(cuzarr.open_group(consolidated), {})
    assert sorted(copied) == ["a", "b"] and "b" in copied.metadata.consolidated_metadata.metadata
    assert sorted(cuzarr.copy(cuzarr.open_group(consolidated, use_consolidated=False), {})) == ["a", "b"]


KINDS = [
    "int32",
    ">f8",
    "float16",
    "complex128",
    "bool",
    "datetime64[s]",
    "<U3",
    "S4",
    "string",
    [("a", "i2"), ("b", "f4")],
    "uint8",
]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("place", ["directory", "memory", "zip"])
def test_a_new_array_has_the_elements_of_a_stored_one(tmp_path: Path, dtype: Any, place: str, device: str) -> None:
    source = cuzarr.create_array({}, shape=(5, 7), chunks=(2, 3), dtype=dtype)
    if dtype == "string":
        source[...] = np.array([f"{number}é" for number in range(35)], object).reshape(5, 7)
    else:
        native = np.dtype(dtype)
        numbers = np.arange(35).reshape(5, 7) % 2 if dtype == "bool" else np.arange(35).reshape(5, 7)
        source[...] = [[(n, n) for n in row] for row in numbers.tolist()] if native.names else numbers.astype(native)
    store: Any = {"directory": tmp_path / "a", "memory": {}, "zip": cuzarr.storage.ZipStore(tmp_path / "a.zip", mode="w")}[place]
    made = cuzarr.from_array(store, data=source, chunks=(3, 2), shards=(6, 4))
    assert made.dtype == source.dtype and made.chunks == (3, 2) and made.shards == (6, 4)
    np.testing.assert_array_equal(to_host(made[...]), to_host(source[...]))


def test_numbers_become_another_type_on_their_way(source: cuzarr.Array, device: str) -> None:
    made = cuzarr.create(VALUES.shape, data=source, dtype="float32", chunks=(7, 20, 10))
    np.testing.assert_array_equal(to_host(made[...]), VALUES.astype("float32"))
    dates = cuzarr.create_array({}, data=np.array(["1970-01-02", "NaT"], "M8[D]"), chunks=(1,))
    made = cuzarr.create((2,), data=dates, dtype="M8[h]", chunks=(1,))
    np.testing.assert_array_equal(to_host(made[...]), np.array(["1970-01-02", "NaT"], "M8[h]"))


def test_an_array_without_dimensions_and_one_without_elements_are_made_of_stored_ones() -> None:
    number = cuzarr.create_array({}, data=np.array(7, "i4"))
    assert cuzarr.from_array({}, data=number)[...] == 7
    for dtype in ("i4", "string"):
        empty = cuzarr.create_array({}, shape=(0, 3), chunks=(1, 3), dtype=dtype)
        assert cuzarr.from_array({}, data=empty).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["int32", "string", [("a", "i2"), ("b", "f4")]], ids=str)
def test_chunks_of_a_store_far_away_are_read_and_written_many_at_a_time(dtype: Any) -> None:
    """Each request waits for as many others: a loop of single ones would wait in vain."""
    memory_store = pytest.importorskip("zarr.storage").MemoryStore
    values = np.arange(1, 97)
    if dtype == "string":
        values = values.astype(str).astype(object)
    elif not isinstance(dtype, str):
        values = np.array([(number, number) for number in range(1, 97)], dtype)

    class Far(memory_store):  # type: ignore[misc,valid-type]
        reads: asyncio.Barrier | None = None
        writes: asyncio.Barrier | None = None

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            if self.reads and key.startswith("c/"):
                await asyncio.wait_for(self.reads.wait(), 20)
            return await super().get(key, prototype, byte_range)

        async def set(self, key: str, value: Any, byte_range: Any = None) -> None:
            if self.writes and key.startswith("c/"):
                await asyncio.wait_for(self.writes.wait(), 20)
            await super().set(key, value)

    far, target = Far(), Far()
    source = cuzarr.create_array(far, shape=96, chunks=1, dtype=dtype)
    source[...] = values
    # A chunk of strings is read first, to see how long they are.
    far.reads, target.writes = asyncio.Barrier(1 if dtype == "string" else 96), asyncio.Barrier(48)
    with cuzarr.config.set({"threading.max_workers": 2}):
        made = cuzarr.from_array(target, data=source)
    np.testing.assert_array_equal(made[...], values)


def test_a_new_array_is_made_of_a_stored_one_within_the_memory_limit(source: cuzarr.Array) -> None:
    with cuzarr.config.set({"memory_limit": "16 KiB"}):
        made = cuzarr.from_array({}, data=source, chunks=(1, 20, 10))
        with pytest.raises(BudgetExceededError):
            cuzarr.from_array({}, data=source, chunks=VALUES.shape)
    np.testing.assert_array_equal(made[...], VALUES)
    assert made.attrs["units"] == "m" and made.fill_value == 3


def fields() -> cuzarr.Group:
    group = cuzarr.create_group({})
    for path in ("t2m", "surface/msl"):
        group.create_array(path, data=np.arange(24).reshape(6, 4), chunks=(2, 2), dimension_names=("time", "lat"))
    group.create_array("lat", data=np.arange(4.0), chunks=(2,), dimension_names=("lat",))
    return group


@pytest.mark.parametrize(
    ("chunks", "shards", "expected"),
    [
        ({"time": -1}, "keep", [((6, 2), None), ((6, 2), None), ((2,), None)]),
        ({"time": 3, "lat": 4}, "keep", [((3, 4), None), ((3, 4), None), ((4,), None)]),
        ({"t2m": {"time": -1}}, "keep", [((6, 2), None), ((2, 2), None), ((2,), None)]),
        ({"t2m": {0: 3}, "surface/msl": (1, -1)}, "keep", [((3, 2), None), ((1, 4), None), ((2,), None)]),
        ({"t2m": (3, 2)}, {"t2m": {"time": 6, "lat": 4}, "lat": (4,)}, [((3, 2), (6, 4)), ((2, 2), None), ((2,), (4,))]),
    ],
)
def test_groups_are_rechunked_by_names_and_the_rest_is_copied(chunks: Any, shards: Any, expected: Any, device: str) -> None:
    group = fields()
    copied = cuzarr.rechunk(group, {}, chunks=chunks, shards=shards)
    arrays = [copied[path] for path in ("t2m", "surface/msl", "lat")]
    assert [(array.chunks, array.shards) for array in arrays] == expected
    for array in arrays:
        np.testing.assert_array_equal(to_host(array[...]), to_host(group[array.path][...]))


def test_names_that_a_group_does_not_have_are_refused() -> None:
    target: dict[str, Any] = {}
    for chunks, message in [
        ({"tiem": -1}, "(?s)no array of the group has a dimension 'tiem'.*did you mean 'time'"),
        ({"t2n": {"time": -1}}, "(?s)the group has no array 't2n'.*did you mean 't2m'"),
        ({"surface": (1, 1)}, "the group has no array 'surface'"),
        ({"t2m": {"tiem": -1}}, "tiem"),
        ({"t2m": (0, 1)}, "an extent of chunks cannot be 0"),
    ]:
        with pytest.raises(cuzarr.errors.CuzarrError, match=message):
            cuzarr.rechunk(fields(), target, chunks=chunks)
    assert not target


def test_a_group_that_is_not_copied_whole_says_so_until_it_is(tmp_path: Path) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    group = cuzarr.create_group({}, attributes={"title": "all"})
    for name in ("a", "b"):
        group.create_array(name, data=np.arange(4), chunks=(2,))
    # A directory where a chunk belongs stops the copy.
    (target / "b" / "c" / "1").mkdir(parents=True)
    with pytest.raises(cuzarr.errors.CuzarrError):
        cuzarr.copy(group, target)
    with pytest.warns(CuzarrUserWarning, match="unfinished copy"):
        half = cuzarr.open_group(target, mode="r")
    assert list(half) == ["a"]
    assert half.attrs["cuzarr_unfinished"]["work"] == "copy"
    (target / "b" / "c" / "1").rmdir()
    with pytest.raises(ContainsGroupError, match=r"compressors is \[\], was not given"):
        cuzarr.copy(group, target, compressors=None, resume=True)
    whole = cuzarr.copy(group, target, resume=True)
    assert dict(whole.attrs) == {"title": "all"}
    assert whole["b"][:].tolist() == [0, 1, 2, 3]


def test_nodes_that_cannot_be_read_are_named_and_left_out_when_asked(tmp_path: Path) -> None:
    group = cuzarr.create_group(tmp_path / "source")
    group.create_array("good", data=np.arange(4))
    for name in ("broken", "worse"):
        (tmp_path / "source" / name).mkdir()
        (tmp_path / "source" / name / "zarr.json").write_text("{")
    with pytest.raises(cuzarr.errors.CuzarrError, match=r"(?s)/broken.*/worse"):
        cuzarr.copy(group, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    with pytest.warns(CuzarrUserWarning, match="/broken is left out"):
        copied = cuzarr.copy(group, tmp_path / "copy", skip_unreadable=True)
    assert list(copied) == ["good"]


@pytest.mark.parametrize("memory_limit", [None, "64 KiB"])
@pytest.mark.parametrize(
    ("select", "slices"),
    [
        ({"time": slice(1, 5)}, np.s_[1:5]),
        ({"time": slice(None, None, 2), "lat": slice(-3, None)}, np.s_[::2, -3:]),
        ({0: slice(2, 3), -1: slice(None, None, 3)}, np.s_[2:3, ::3]),
    ],
)
def test_a_part_of_an_array_is_copied(select: Any, slices: Any, memory_limit: Any, device: str) -> None:
    values = np.random.default_rng(0).standard_normal((60, 40)).astype("f4")
    array = cuzarr.create_array({}, data=values, chunks=(60, 1), dimension_names=("time", "lat"))
    for source in (array, cuzarr.create_array({}, data=values, chunks=(7, 9), dimension_names=("time", "lat"))):
        part = cuzarr.copy(source, {}, select=select, memory_limit=memory_limit)
        np.testing.assert_array_equal(to_host(part[...]), values[slices])


def test_a_part_of_an_array_of_the_earth_lies_where_its_first_element_lies(tmp_path: Path) -> None:
    group = cuzarr.create_group(
        tmp_path / "whole",
        attributes={"proj:code": "EPSG:32633", "spatial:dimensions": ["y", "x"], "spatial:bbox": [500, 500, 810, 900]},
    )
    attributes = {
        "proj:code": "EPSG:32633",
        "spatial:dimensions": ["y", "x"],
        "spatial:transform": [10.0, 0.0, 500.0, 0.0, -10.0, 900.0],
        "spatial:shape": [40, 31],
        "spatial:bbox": [500, 500, 810, 900],
        "units": "m",
    }
    array = group.create_array("height", data=np.zeros((2, 40, 31)), dimension_names=("time", "y", "x"), attributes=attributes)
    kept = {name: attributes[name] for name in ("proj:code", "spatial:dimensions", "units")}
    moved = {"spatial:transform": [10.0, 0.0, 530.0, 0.0, -10.0, 860.0], "spatial:shape": [36, 28]}
    select = {"y": slice(4, None), "x": slice(3, None)}
    assert dict(cuzarr.copy(array, {}, select=select).attrs) == kept | moved
    part = cuzarr.copy(group, tmp_path / "part", select=select)
    assert dict(part["height"].attrs) == kept | moved
    assert dict(part.attrs) == {"proj:code": "EPSG:32633", "spatial:dimensions": ["y", "x"]}
    for unmoved in (
        cuzarr.copy(array, {}, select={"time": slice(1, 2)}),
        cuzarr.copy(array, {}),
        cuzarr.rechunk(array, {}, chunks=(1, 8, 8)),
    ):
        assert dict(unmoved.attrs) == attributes
    assert dict(cuzarr.copy(group, {}, select={"time": slice(1, 2)}).attrs) == dict(group.attrs)


def test_a_part_of_a_group_is_copied(tmp_path: Path, device: str) -> None:
    group = fields()
    part = cuzarr.copy(group, tmp_path / "part", only=["/t2m/", "surface"], select={"time": slice(1, 4)})
    assert {path for path, _ in part.members(max_depth=None)} == {"t2m", "surface", "surface/msl"}
    np.testing.assert_array_equal(to_host(part["t2m"][...]), to_host(group["t2m"][1:4]))
    for arguments, message in [
        ({"only": ["t2n"]}, "(?s)t2n.*did you mean 't2m'"),
        ({"only": []}, "expected paths"),
        ({"only": "t2m"}, "expected paths"),
        ({"only": [""]}, "expected paths"),
        ({"select": {"tiem": slice(1)}}, "(?s)tiem.*did you mean 'time'"),
        ({"select": {"time": 1}}, "expected a slice"),
        ({"select": {"time": slice(4, 4)}}, "selects no range"),
        ({"select": {"time": slice(None, None, -1)}}, "step"),
        ({"select": slice(1)}, "dictionary"),
        ({"select": {0: slice(1)}}, "dimension '0'"),
    ]:
        with pytest.raises(cuzarr.errors.CuzarrError, match=message):
            cuzarr.copy(group, tmp_path / "wrong", **arguments)
    for arguments, message in [
        ({"select": {"time": slice(1), 0: slice(1)}}, "twice"),
        ({"only": ["t2m"]}, "expected a group with an array 't2m'"),
    ]:
        with pytest.raises(cuzarr.errors.CuzarrError, match=message):
            cuzarr.copy(group["t2m"], tmp_path / "wrong", **arguments)
    assert not (tmp_path / "wrong").exists()

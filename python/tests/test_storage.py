"""Stores: what each promises, and what is accepted where a store is expected."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import gpu_device
from devices import NAME, require, to_host

import cuzarr
import cuzarr.kvikio
from cuzarr import storage
from cuzarr.errors import (
    ArgumentTypeError,
    ArrayNotFoundError,
    ConfigInvalidError,
    ReadOnlyError,
    StoreFailedError,
    UnsupportedError,
)

DEVICES = [NAME, "cpu"]


def _device(name: str) -> str:
    return name if name == "cpu" else require()


Make = Callable[[Path], Any]

STORES: dict[str, Make] = {
    "local": lambda folder: storage.LocalStore(folder / "root"),
    "gds": lambda folder: storage.GDSStore(folder / "root"),
    "memory": lambda folder: storage.MemoryStore(),
    "dictionary": lambda folder: storage.MemoryStore({}),
    "gpu": lambda folder: storage.GpuMemoryStore(device="cpu"),
    "zip": lambda folder: storage.ZipStore(folder / "a.zip", mode="w"),
    "fsspec": lambda folder: storage.make_store(_mapper(folder)),
    "obstore": lambda folder: storage.make_store(_obstore(folder)),
    "zarr": lambda folder: storage.make_store(_zarr(folder)),
}


def _mapper(folder: Path) -> Any:
    return pytest.importorskip("fsspec").get_mapper(f"file://{folder}/root", create=True)


def _obstore(folder: Path) -> Any:
    (folder / "root").mkdir()
    return pytest.importorskip("obstore").store.LocalStore(folder / "root")


def _zarr(folder: Path) -> Any:
    return pytest.importorskip("zarr").storage.MemoryStore()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return STORES[request.param](tmp_path)


def test_values_come_back(store: storage.Store) -> None:
    assert store.is_empty("") and store.get("a/b") is None and not store.exists("a/b")
    for key, value in {"a/b": b"bytes", "a/c/0": b"", "zarr.json": b"{}"}.items():
        store.set(key, value)
    assert store.get("a/b") == b"bytes" and store.get("a/c/0") == b""
    assert store.get("a/b", start=1, stop=3) == b"yt" and store.get("a/b", start=-2) == b"es"
    assert store.get("a/b", start=2) == b"tes"
    assert store.get_parts("a/b", [(0, 2), (-1, None), (None, None)]) == [b"by", b"s", b"bytes"]
    assert store.get_parts("a/x", [(0, 2)]) == [None]
    assert store.list() == ["a/b", "a/c/0", "zarr.json"] and store.list_prefix("a") == ["a/b", "a/c/0"]
    assert store.list_dir("") == ["a", "zarr.json"] and store.list_dir("a") == ["b", "c"]
    assert store.getsize("a/b") == 5 and store.getsize_prefix("a") == 5
    assert not store.is_empty("a") and store.is_empty("b")
    assert not store.set_if_not_exists("a/b", b"other") and store.set_if_not_exists("a/d", b"new")
    assert store.get("a/b") == b"bytes" and store.get("a/d") == b"new"
    with pytest.raises(FileNotFoundError):
        store.getsize("a/x")
    with pytest.raises(StoreFailedError):
        store.get("a/b", start=4, stop=9)


def test_values_are_deleted(store: storage.Store) -> None:
    if not store.supports_deletes:
        with pytest.raises(UnsupportedError, match="cannot be deleted.*\\n.*write_empty_chunks"):
            store.set("a", b"1")
            store.delete("a")
        store.clear()
        assert store.list() == []
        return
    for key in ("a/b", "a/c/0", "ab/c", "zarr.json"):
        store.set(key, b"1")
    store.delete("a/b")
    store.delete("a/b")
    assert store.list() == ["a/c/0", "ab/c", "zarr.json"]
    store.delete_dir("a")
    assert store.list() == ["ab/c", "zarr.json"]
    store.clear()
    assert store.list() == []


def test_arrays_are_written_and_read(store: storage.Store) -> None:
    value = np.arange(60, dtype="int32").reshape(6, 10)
    for compressors in (None, "auto"):
        name = f"with {compressors}"
        array = cuzarr.create_array(store, name=name, shape=(6, 10), chunks=(4, 4), dtype="int32", compressors=compressors)
        array[:] = value
        np.testing.assert_array_equal(cuzarr.open_array(store, path=name, mode="r")[:], value)
        np.testing.assert_array_equal(cuzarr.open_array(store, path=name, mode="r")[1::2, 3], value[1::2, 3])


def test_a_store_for_reading_refuses_writes(store: storage.Store) -> None:
    reader = store.with_read_only(True)
    for write in (
        lambda: reader.set("a", b"1"),
        lambda: reader.set_if_not_exists("a", b"1"),
        lambda: reader.delete("a"),
        lambda: reader.clear(),
    ):
        with pytest.raises(ReadOnlyError):
            write()
    assert not store.read_only and reader.with_read_only(False).read_only is False


@pytest.mark.parametrize("name", ["local", "gds", "memory", "dictionary", "gpu", "zip"])
def test_stores_are_pickled(name: str, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    store.set("a/b", b"bytes")
    store.close()
    twin = pickle.loads(pickle.dumps(store))
    assert type(twin) is type(store) and twin.get("a/b") == b"bytes" and not twin.read_only
    if name in ("local", "gds", "zip"):
        assert twin == store and hash(twin) == hash(store)


def test_a_pickled_directory_is_the_same_one_in_a_process_that_works_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for store in (storage.LocalStore("values"), storage.GDSStore("values", gds="off")):
        store.set("a", b"1")
        pickled = pickle.dumps(store)
        with contextlib.chdir("/"):
            twin = pickle.loads(pickled)
            assert twin == store and hash(twin) == hash(store) and twin.get("a") == b"1"


def test_a_zip_file_keeps_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    value = np.arange(100.0)
    array = cuzarr.create_array(path, shape=100, chunks=30, dtype="float64", compressors=None)
    array[:] = value
    array.store.close()
    np.testing.assert_array_equal(cuzarr.open_array(path, mode="r")[:], value)
    np.testing.assert_array_equal(cuzarr.open_array(f"zip://{path}", mode="r")[10:40], value[10:40])
    with zipfile.ZipFile(path) as file:
        assert "zarr.json" in file.namelist() and "c/0" in file.namelist()
    zarr = pytest.importorskip("zarr")
    np.testing.assert_array_equal(zarr.open_array(zarr.storage.ZipStore(path), mode="r")[:], value)


def test_urls_go_to_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    store = storage.make_store(f"local://{tmp_path}/a")
    store.set("a/b", b"bytes")
    assert (tmp_path / "a/a/b").read_bytes() == b"bytes"
    with pytest.raises(UnsupportedError, match="nowhere"):
        storage.make_store("nowhere://bucket/key")


def test_messages_name_places_without_credentials() -> None:
    fsspec = pytest.importorskip("fsspec")

    class Vault(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]
        protocol = "vault"

        def __init__(self, key: str, secret: str, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    fsspec.register_implementation("vault", Vault, clobber=True)
    options = {"key": "name", "secret": "hush"}
    array = cuzarr.create_array("vault://bucket/a", shape=(4,), chunks=(2,), dtype="i4", storage_options=options)
    assert str(array.store) == "vault://bucket/a"
    with pytest.raises(ArrayNotFoundError, match="vault://bucket/b") as missing:
        cuzarr.open_array("vault://bucket/b", storage_options=options)
    with pytest.raises(UnsupportedError, match="nowhere://bucket/key'") as unknown:
        storage.make_store("nowhere://name:hush@bucket/key?signature=hush")
    for shown in (repr(array), str(array.info), array._repr_html_(), str(missing.value), str(unknown.value)):
        assert "hush" not in shown


def test_options_that_a_file_system_of_fsspec_does_not_know_are_refused() -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.get_filesystem_class("memory")

    class Named(memory):  # type: ignore[misc, valid-type]
        protocol = "named"

        def __init__(self, username: str | None = None, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    class Keeping(memory):  # type: ignore[misc, valid-type]
        protocol = "keeping"

        def __init__(self, host: str | None = None, **connection: Any) -> None:
            super().__init__()
            self.connection = connection

    fsspec.register_implementation("named", Named, clobber=True)
    fsspec.register_implementation("keeping", Keeping, clobber=True)
    with pytest.raises(
        cuzarr.errors.InvalidArgumentError, match=r"(?s)unknown storage option 'usrname'.*did you mean 'username'"
    ):
        storage.make_store("named://a", storage_options={"usrname": "hush"})
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match=r"(?s)'colour' for 'simplecache::named://a'"):
        storage.make_store("simplecache::named://a", storage_options={"colour": "red"})
    for url, options in (
        ("named://a", {"username": "name", "use_listings_cache": False, "block_size": 1}),
        ("keeping://a", {"host": "h", "password": "hush"}),
        ("simplecache::named://a", {"same_names": True, "named": {"username": "name"}}),
    ):
        assert storage.make_store(url, storage_options=options).list() == []


def test_stores_of_obstore_are_named_without_credentials() -> None:
    remote = pytest.importorskip("obstore").store.HTTPStore("https://name:hush@localhost/a")
    assert str(storage.make_store(remote)) == 'HTTPStore("https://localhost/a")'


def _far(chunks: int, fails: str = "") -> tuple[Any, list[int]]:
    """A store of ``chunks`` chunks that answers nothing before it was asked for 200; how many requests there were at most."""
    from zarr.storage import MemoryStore

    most = [0]

    class Far(MemoryStore):
        waiting, gate = 0, None

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            if key.startswith("c/"):
                self.gate = self.gate or asyncio.Event()
                self.waiting += 1
                most[0] = max(most[0], self.waiting)
                if self.waiting >= 200:
                    self.gate.set()
                await asyncio.wait_for(self.gate.wait(), 20)
                if key == fails:
                    raise PermissionError("not yours")
            return await super().get(key, prototype, byte_range)

    made = cuzarr.create_array(Far(), shape=(chunks * 4,), chunks=(4,), dtype="i4")
    made[:] = np.arange(chunks * 4)
    return made.store, most


@pytest.mark.parametrize("name", DEVICES)
def test_hundreds_of_requests_are_under_way_to_an_asynchronous_store(name: str) -> None:
    store, most = _far(300)
    with cuzarr.config.set({"threading.max_workers": 2}):
        array = cuzarr.open_array(store, mode="r", device=_device(name))
        assert np.array_equal(to_host(array[:]), np.arange(1200))
    assert most[0] >= 200


def test_a_request_that_an_asynchronous_store_refuses_is_told() -> None:
    store, _ = _far(300, fails="c/7")
    array = cuzarr.open_array(store, mode="r", device="cpu")
    with pytest.raises(StoreFailedError, match=r"get 'c/7': PermissionError\('not yours'\)"):
        array[:]
    assert array[32:].tolist() == list(range(32, 1200))


def test_an_asynchronous_file_system_is_asked_for_many_values_at_once() -> None:
    wrapper = pytest.importorskip("fsspec.implementations.asyn_wrapper").AsyncFileSystemWrapper
    import fsspec

    files = wrapper(fsspec.filesystem("memory"), asynchronous=False)
    store = storage.make_store(files.get_mapper("/cuzarr-many"))
    made = cuzarr.create_array(store, shape=(400,), chunks=(4,), dtype="i4", overwrite=True)
    made[:200] = np.arange(200)
    made[240:] = np.arange(240, 400)
    expected = np.arange(400) * ((np.arange(400) < 200) | (np.arange(400) >= 240))
    assert np.array_equal(cuzarr.open_array(store, mode="r")[:], expected)


@pytest.mark.parametrize("name", DEVICES)
def test_small_shards_of_a_store_far_away_take_one_request_each(name: str) -> None:
    from zarr.storage import MemoryStore

    asked: list[tuple[str, Any]] = []

    class Counted(MemoryStore):
        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            asked.append((key, byte_range))
            return await super().get(key, prototype, byte_range)

    device, truth = _device(name), np.arange(24 * 16, dtype="f4").reshape(24, 16)
    made = cuzarr.create_array(Counted(), shape=truth.shape, chunks=(4, 4), shards=(8, 16), dtype="f4")
    made[:16] = truth[:16]
    array = cuzarr.open_array(made.store, mode="r", device=device)
    asked.clear()
    assert np.array_equal(to_host(array[:]), np.where(np.arange(24)[:, None] < 16, truth, 0))
    assert sorted(asked) == [(f"c/{row}/0", None) for row in range(3)]
    asked.clear()
    assert np.array_equal(to_host(array[1, 1:9]), truth[1, 1:9])
    assert [key for key, part in asked if part is not None] == ["c/0/0"] * 2


def test_zarrs_directories_are_read_by_ours(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    opened = storage.make_store(zarr.storage.LocalStore(tmp_path, read_only=True))
    assert type(opened) is storage.LocalStore and opened.read_only


def test_gds_is_a_word(tmp_path: Path) -> None:
    assert storage.GDSStore(tmp_path).gds == "auto"
    with cuzarr.config.set({"gds": "off"}):
        assert storage.GDSStore(tmp_path).gds == "off"
    assert pickle.loads(pickle.dumps(storage.GDSStore(tmp_path, gds="on"))).gds == "on"
    with pytest.raises(ConfigInvalidError):
        storage.GDSStore(tmp_path, gds="perhaps")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DEVICES)
def test_device_memory_keeps_values(name: str) -> None:
    device = _device(name)
    store = storage.GpuMemoryStore.from_dict({"a": b"first"}, device=device)
    store.set("zarr.json", b"{}")
    store.set("c/0", bytearray(range(100)))
    assert store.get("a") == b"first" and store.get("c/0", start=3, stop=5) == b"\x03\x04"
    assert store.is_on(device) == (device != "cpu")
    part = store.get_on("c/0", device, start=10, stop=20)
    assert part.dtype == np.uint8 and part.shape == (10,)
    np.testing.assert_array_equal(to_host(part), np.arange(10, 20))
    assert store.get_on("missing", device) is None
    # What was read is no window into the store, and a device's array is taken as it is.
    store.set("copy", part)
    assert store.get("copy") == bytes(range(10, 20))


@pytest.mark.parametrize("name", DEVICES)
def test_arrays_live_in_device_memory(name: str) -> None:
    device = _device(name)
    store = storage.GpuMemoryStore(device=device)
    value = np.arange(1000, dtype="float32").reshape(20, 50)
    for compressors in (None, "auto"):
        array = cuzarr.create_array(
            store, name=f"{compressors}", shape=(20, 50), chunks=(7, 20), dtype="float32", compressors=compressors
        )
        array[:] = value
        np.testing.assert_array_equal(array[:], value)
        read = cuzarr.open_array(store, path=f"{compressors}", device=device)
        on_device = read[:]
        np.testing.assert_array_equal(to_host(on_device), value)
        read[:] = on_device
        np.testing.assert_array_equal(array[3:9, ::7], value[3:9, ::7])


@pytest.mark.parametrize("name", DEVICES)
def test_directories_are_read_to_devices(name: str, tmp_path: Path) -> None:
    device = _device(name)
    store = storage.GDSStore(tmp_path / "root")
    value = np.arange(1000, dtype="float32")
    cuzarr.create_array(store, shape=1000, chunks=300, dtype="float32")[:] = value
    with cuzarr.config.set({"array_type": "device"}):
        read = cuzarr.open_array(store, device=device)[:]
    np.testing.assert_array_equal(to_host(read), value)


def test_a_missing_cufile_is_told(tmp_path: Path) -> None:
    import subprocess
    import sys

    _device(DEVICES[0])
    program = f"""
import cuzarr, numpy as np
store = cuzarr.storage.GDSStore({str(tmp_path)!r}, gds="on")
cuzarr.create_array(store, shape=10, chunks=5, dtype="int8", compressors=None)[:] = np.arange(10)
try:
    cuzarr.open_array(store, device={DEVICES[0]!r})[:]
except cuzarr.errors.LibraryMissingError as error:
    print("told:", error)
"""
    environment = {**os.environ, "CUZARR_CUFILE_LIBRARY": "/nonexistent/libcufile.so"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert "told:" in ran.stdout and "/nonexistent/libcufile.so" in ran.stdout, ran.stderr


# ------------------------------------------------------------------------------------------ what stores take and give


def _stores_of_every_kind(folder: Path) -> dict[str, Any]:
    zarr = pytest.importorskip("zarr")
    device = _device(NAME) if gpu_device()[0] else "cpu"
    made = {name: make(folder / name) for name, make in STORES.items() if (folder / name).mkdir() is None}
    logged = zarr.storage.LoggingStore(zarr.storage.MemoryStore(), log_level="ERROR")
    return made | {
        "split": storage.SplitStore(storage.MemoryStore(), storage.LocalStore(folder / "documents")),
        "gpu memory": storage.GpuMemoryStore(device=device),
        "gpu dictionary": storage.GpuMemoryStore({}, device=device),
        "kvikio without zarr": cuzarr.kvikio._PlainGDSStore(folder / "kvikio"),
        "wrapper": storage.make_store(logged),
        "object": storage.make_store(_Objects()),
    }


class _Objects(dict[str, bytes]):
    """A mapping as an object that has no more than a store must have."""

    set = dict.__setitem__
    delete = dict.__delitem__
    list = dict.keys  # type: ignore[assignment]


_BYTES = bytes(range(24))


def _values() -> dict[str, Any]:
    flat = np.frombuffer(_BYTES, "u1")
    rows = flat.reshape(4, 6)
    values: dict[str, Any] = {
        "bytes": _BYTES,
        "bytearray": bytearray(_BYTES),
        "memoryview": memoryview(_BYTES),
        "strided memoryview": memoryview(bytes(byte for byte in _BYTES for _ in "ab"))[::2],
        "array": flat,
        "wide array": flat.view(">i4"),
        "columns": np.asfortranarray(rows),
        "view": np.repeat(flat, 2)[::2],
        "dates": flat.view("M8[ns]"),
        "cpu buffer": cuzarr.buffer.cpu.Buffer.from_bytes(_BYTES),
        "part of a cpu buffer": cuzarr.buffer.cpu.Buffer.from_bytes(b"ab" + _BYTES)[2:],
        "cpu elements": cuzarr.buffer.cpu.NDBuffer(rows),
        "zarr-python's buffer": pytest.importorskip("zarr.buffer.cpu").Buffer.from_bytes(_BYTES),
    }
    if gpu_device()[0] is not None:
        with cuzarr.config.set({"device": NAME}):
            on_device = cuzarr.DeviceArray.from_host(rows, NAME)
            values |= {
                "gpu buffer": cuzarr.buffer.gpu.Buffer.from_bytes(_BYTES),
                "part of a gpu buffer": cuzarr.buffer.gpu.Buffer.from_bytes(b"ab" + _BYTES)[2:],
                "gpu elements": cuzarr.buffer.gpu.NDBuffer(on_device),
                "device array": on_device,
                "wide device array": cuzarr.DeviceArray.from_host(flat.view("<f4"), NAME),
                "device columns": cuzarr.DeviceArray.from_host(np.ascontiguousarray(rows.T), NAME).T,
            }
    return values


@pytest.mark.parametrize("kind", [*STORES, "split", "gpu memory", "gpu dictionary", "kvikio without zarr", "wrapper", "object"])
def test_every_store_takes_bytes_arrays_and_buffers_of_every_device(kind: str, tmp_path: Path) -> None:
    store = _stores_of_every_kind(tmp_path)[kind]
    for name, value in _values().items():
        key = name.replace(" ", "-")
        store.set(f"set/{key}", value)
        assert store.get(f"set/{key}") == _BYTES, name
        assert store.set_if_not_exists(f"new/{key}", value) and store.get(f"new/{key}") == _BYTES, name
        assert not store.set_if_not_exists(f"set/{key}", value), name
        store.set(f"part/{key}", b"0123456789")
        store.set_partial_values([(f"part/{key}", 3, value), (f"part/{key}", 0, b"ab")])
        assert store.get(f"part/{key}") == b"ab2" + _BYTES, name
    for bad in (None, 5, "text", [b"1"], np.array([None]), np.array(["a"], np.dtypes.StringDType())):
        for write in (store.set, store.set_if_not_exists):
            with pytest.raises(ArgumentTypeError, match="value"):
                write("bad", bad)
    assert not store.exists("bad")
    with pytest.raises(FileNotFoundError):
        store.set_partial_values([("missing", 0, b"1")])
    with pytest.raises(ValueError, match="from byte 99"):
        store.set_partial_values([("set/bytes", 99, b"1")])
    with pytest.raises(ReadOnlyError):
        store.with_read_only(True).set_partial_values([("set/bytes", 0, b"1")])


@pytest.mark.parametrize("kind", [*STORES, "split", "gpu memory", "gpu dictionary", "kvikio without zarr", "wrapper", "object"])
def test_every_store_gives_buffers_of_a_prototype(kind: str, tmp_path: Path) -> None:
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.buffer import cpu as zarr_cpu

    store = _stores_of_every_kind(tmp_path)[kind]
    store.set("a", _BYTES)
    requests = {
        None: _BYTES, RangeByteRequest(2, 5): _BYTES[2:5], RangeByteRequest(20, 99): _BYTES[20:], RangeByteRequest(50, 60): b"",
        OffsetByteRequest(7): _BYTES[7:], SuffixByteRequest(3): _BYTES[-3:], SuffixByteRequest(99): _BYTES,
    }  # fmt: skip
    prototypes = [cuzarr.buffer.cpu.buffer_prototype, zarr_cpu.buffer_prototype]
    with cuzarr.config.set({"device": NAME if gpu_device()[0] else "cpu"}):
        if gpu_device()[0] is not None:
            prototypes.append(cuzarr.buffer.gpu.buffer_prototype)
        for prototype in prototypes:
            for request, expected in requests.items():
                for found in (store.get("a", prototype, request), store.get("a", prototype=prototype, byte_range=request)):
                    assert type(found) is prototype.buffer and found.to_bytes() == expected, request
            assert store.get("a", prototype, start=3, stop=5).to_bytes() == _BYTES[3:5]
            assert store.get("b", prototype) is None
            parts = store.get_partial_values(prototype, [("a", RangeByteRequest(0, 2)), ("b", None), ("a", None)])
            assert [part and part.to_bytes() for part in parts] == [_BYTES[:2], None, _BYTES]
    assert store.get("a", byte_range=RangeByteRequest(20, 99)) == _BYTES[20:]
    with pytest.raises(ArgumentTypeError, match="Unexpected byte_range"):
        store.get("a", prototypes[0], (1, 2))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_in_an_archive_shrinks(tmp_path: Path, zarr_format: Any) -> None:
    with storage.ZipStore(tmp_path / "a.zip", mode="w") as store:
        array = cuzarr.create_array(store, shape=8, chunks=2, dtype="u1", zarr_format=zarr_format)
        array[:] = 1
        array.resize(3)
        array.resize(8)
        np.testing.assert_array_equal(array[...], [1, 1, 1, 1, 0, 0, 0, 0])
        array.append(np.full(2, 7, "u1"))
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert len(file.namelist()) == len(set(file.namelist()))
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "a.zip")[...], [1, 1, 1, 1, 0, 0, 0, 0, 7, 7])


def test_an_archive_has_its_name_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with pytest.raises(FileNotFoundError):
        storage.ZipStore(path)
    store = storage.ZipStore(path, mode="x", compression=zipfile.ZIP_DEFLATED)
    store.set("a", bytes(1000))
    twin = store.with_read_only(True)
    assert twin.get("a") == bytes(1000) and not path.exists()
    with pytest.raises(UnsupportedError, match="not in the file yet") as raised:
        pickle.dumps(store)
    assert raised.value.hint == "close the store first"
    del raised  # it holds the store
    store.close()
    with pytest.raises(FileExistsError):
        storage.ZipStore(path, mode="x")
    with zipfile.ZipFile(path) as file:
        assert file.read("a") == bytes(1000) and file.getinfo("a").compress_size < 100
    # A store goes on where it was closed, and its twins keep it.
    store.set("b", b"2")
    store.delete("a")
    del store
    gc.collect()
    assert twin.list() == ["b"] and storage.ZipStore(path).list() == ["a"]
    del twin
    gc.collect()
    assert storage.ZipStore(path).list() == ["b"]
    dropped = storage.ZipStore(path, mode="w")
    dropped.set("c", b"3")
    dropped.discard()
    dropped.close()
    assert storage.ZipStore(path).list() == ["b"] and [file.name for file in tmp_path.iterdir()] == ["a.zip"]
    with pytest.raises(UnsupportedError, match="compression 14"):
        storage.ZipStore(path, mode="a", compression=zipfile.ZIP_LZMA)
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="mode is 'q'"):
        storage.ZipStore(path, mode="q")  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_program_that_ends_finishes_its_archives_and_one_that_is_killed_does_not(tmp_path: Path, end: str) -> None:
    cuzarr.save_array(tmp_path / "a.zip", np.zeros(3))
    program = f"import cuzarr; z = cuzarr.open_array('a.zip', mode='r+'); z[:] = 5; y = cuzarr.ones(3, store='b.ozx'); {end}"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=not end)
    assert cuzarr.open_array(tmp_path / "a.zip")[:].tolist() == ([0.0] * 3 if end else [5.0] * 3)
    assert (tmp_path / "b.ozx").exists() == (not end)
    if not end:
        assert cuzarr.open_array(tmp_path / "b.ozx")[:].tolist() == [1.0] * 3


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_block_that_fails_finishes_its_archive_unless_it_discards(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.zip"
    cuzarr.save_array(path, np.zeros(3))
    with pytest.raises(error), storage.ZipStore(path, mode="a") as store:
        cuzarr.open_array(store, mode="r+")[:] = 5
        raise error
    assert cuzarr.open_array(path)[:].tolist() == [5.0] * 3
    with pytest.raises(error), storage.ZipStore(path, mode="w") as store:
        store.set("a", b"1")
        raise error
    assert storage.ZipStore(path).list() == ["a"], "the new archive, as far as it was written, replaces the old one"
    with pytest.raises(error), storage.ZipStore(path, mode="w") as store:
        store.set("b", b"2")
        try:
            raise error
        except BaseException:
            store.discard()
            raise
    assert storage.ZipStore(path).list() == ["a"] and [file.name for file in tmp_path.iterdir()] == ["a.zip"]


def test_a_call_that_fails_leaves_the_archive_that_it_was_to_write(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    cuzarr.save_array(path, np.zeros(3))

    def fails(block: Any) -> Any:
        raise RuntimeError("a broken block")

    with pytest.raises(RuntimeError, match="a broken block"):
        cuzarr.map_blocks(fails, cuzarr.ones(3, store={}), out=path, dtype="f8", overwrite=True)
    source = cuzarr.create_array({}, data=np.arange(40.0), chunks=(4,))
    damaged = source.store.list_prefix("c")[-1]
    source.store.set(damaged, b"damaged")
    with pytest.raises(cuzarr.errors.CuzarrError, match="a chunk|chunk '|frame|zstd"):
        cuzarr.copy(source, path, overwrite=True)
    assert cuzarr.open_array(path)[:].tolist() == [0.0] * 3 and [file.name for file in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize("name", DEVICES)
def test_a_gpu_store_keeps_using_the_mapping_it_was_made_of(name: str) -> None:
    device = _device(name)
    buffer = cuzarr.buffer.cpu.Buffer if device == "cpu" else cuzarr.buffer.gpu.Buffer
    values: dict[str, Any] = {"old": b"bytes"}
    store = storage.GpuMemoryStore(values, device=device)
    assert store.list() == ["old"] and store.get("old") == b"bytes" and store.getsize("old") == 5
    store.set("a/b", b"written")
    assert (
        type(values["a/b"]) is buffer
        and values["a/b"].to_bytes() == b"written"
        and values["a/b"].device in (device, f"{device}:0")
    )
    values["mine"] = buffer.from_array_like(store.get_on("a/b", device))
    assert store.get("mine", start=-3) == b"ten" and store.list() == ["a/b", "mine", "old"]
    store.delete("old")
    assert set(values) == {"a/b", "mine"}
    store.delete_dir("a")
    assert set(values) == {"mine"}
    with cuzarr.config.set({"array_type": "device"}):
        truth = np.arange(60, dtype="f4").reshape(6, 10)
        for compressors in (None, "auto"):
            path = f"with-{compressors}"
            array = cuzarr.create_array(
                store, name=path, shape=(6, 10), chunks=(4, 4), dtype="f4", compressors=compressors, device=device
            )
            array[:] = truth
            array[1:3] = array[3:5]
            expected = truth.copy()
            expected[1:3] = truth[3:5]
            assert type(values[f"{path}/c/0/0"]) is buffer and values[f"{path}/c/0/0"].device in (device, f"{device}:0")
            again = storage.GpuMemoryStore(values, device=device)
            for read in (
                array,
                cuzarr.open_array(again, path=path, device=device),
                cuzarr.open_array(again, path=path, device="cpu"),
            ):
                np.testing.assert_array_equal(to_host(read[:]), expected)
                np.testing.assert_array_equal(to_host(read[1::2, 3]), expected[1::2, 3])
    assert again == store and hash(again) == hash(store) and store.is_on(device) == (device != "cpu")
    copied = pickle.loads(pickle.dumps(store))
    assert copied.list() == store.list() and copied != store
    copied.set("mine", b"other")
    assert store.get("mine") == b"written"
    taken = storage.GpuMemoryStore.from_dict(values, device=device)
    taken.set("new", b"1")
    assert "new" not in values and taken.get("mine") == b"written"
    with pytest.raises(ArgumentTypeError, match="mutable mapping"):
        storage.GpuMemoryStore(types.MappingProxyType(values), device=device)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DEVICES)
def test_zarr_pythons_form_of_a_gpu_store_keeps_using_its_mapping(name: str) -> None:
    zarr = pytest.importorskip("zarr")
    import cuzarr.zarr

    device, values = _device(name), {}
    store = cuzarr.zarr.GpuMemoryStore(values, device=device)
    truth = np.arange(20, dtype="i2")
    zarr.create_array(store, name="a", data=truth, chunks=(6,))
    assert set(values) >= {"a/zarr.json", "a/c/0"} and all(hasattr(value, "as_array_like") for value in values.values())
    assert np.array_equal(zarr.open_array(cuzarr.zarr.GpuMemoryStore(values, device=device), path="a", mode="r")[:], truth)


def test_zarr_pythons_form_takes_our_buffers_as_well(tmp_path: Path) -> None:
    zarr_cpu = pytest.importorskip("zarr.buffer.cpu")

    async def write(store: Any, value: Any) -> Any:
        await store.set("a", value)
        await store.set_if_not_exists("b", value)
        return [(await store.get(key, zarr_cpu.buffer_prototype)).to_bytes() for key in "ab"]

    for kind in ("local", "gds", "memory", "dictionary", "gpu"):
        (tmp_path / kind).mkdir()
        for name in ("cpu buffer", "gpu buffer", "zarr-python's buffer"):
            if (value := _values().get(name)) is not None:
                store = STORES[kind](tmp_path / kind).zarr_store
                assert asyncio.run(write(store, value)) == [_BYTES, _BYTES], (kind, name)


def test_metadata_lives_in_another_store(tmp_path: Path) -> None:
    places: dict[str, Any] = {"store": tmp_path / "chunks", "metadata_store": tmp_path / "documents"}
    group = cuzarr.open_group(**places, mode="w", attributes={"a": 1})
    group.create_array("x/y", data=np.arange(6), chunks=(2,))
    documents = [path.name for path in (tmp_path / "documents").rglob("*") if path.is_file()]
    chunks = [path.name for path in (tmp_path / "chunks").rglob("*") if path.is_file()]
    assert set(documents) == {"zarr.json"} and len(documents) == 3 and sorted(chunks) == ["0", "1", "2"]
    again = cuzarr.open_group(**places, mode="r")
    assert [path for path, _ in again.members(max_depth=None)] == ["x", "x/y"] and again.attrs["a"] == 1
    array = pickle.loads(pickle.dumps(again))["x/y"]
    assert array[:].tolist() == list(range(6)) and array.nchunks_initialized == 3 and array.read_only
    with pytest.raises(cuzarr.errors.GroupNotFoundError):
        cuzarr.open_group(tmp_path / "chunks", mode="r")
    cuzarr.create_array(**places, name="x/y", shape=(2,), dtype="i4", overwrite=True)
    assert not [path for path in (tmp_path / "chunks").rglob("*") if path.is_file()]


def _drop_from_page_cache(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system cannot be told to forget files")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", [{"chunks": (70, 701)}, {"chunks": (70, 101), "shards": (140, 606)}], ids=["chunks", "shards"])
@pytest.mark.parametrize("compressors", [None, "auto"])
def test_cold_files_are_read_around_the_page_cache_as_through_it(
    tmp_path: Path, device: str, layout: dict[str, Any], compressors: Any
) -> None:
    device = _device(device)
    truth = np.random.default_rng(1).integers(0, 1 << 20, (701, 1401), dtype="int64")
    cuzarr.create_array(str(tmp_path / "a"), shape=truth.shape, dtype="i8", compressors=compressors, **layout)[...] = truth
    for direct_io in ("auto", "on", "off"):
        with cuzarr.config.set({"direct_io": direct_io}):
            array = cuzarr.open_array(str(tmp_path / "a"), mode="r", device=device)
        for box in [(slice(None), slice(None)), (slice(69, 500), slice(3, 1400)), (slice(699, 701), slice(0, 1401, 5))]:
            _drop_from_page_cache(tmp_path)
            np.testing.assert_array_equal(to_host(array[box]), truth[box])
    with pytest.raises(ValueError, match="direct_io"):
        cuzarr.config.set({"direct_io": "perhaps"})


def test_a_shard_in_a_dictionary_that_is_replaced_during_a_read_is_an_error() -> None:
    stored: list[dict[str, bytes]] = [{}, {}]
    for store, scale in zip(stored, (1, 7), strict=True):
        array = cuzarr.create_array(store, shape=(64,), dtype="i4", chunks=(4,), shards=(64,), compressors=None)
        values = np.arange(64, dtype="i4") * scale
        if scale == 7:
            values[:32] = 0  # not stored, so the other chunks lie elsewhere in the shard
        array[:] = values

    class Replaced(dict):  # type: ignore[type-arg]
        reads = 0

        def get(self, key: str, default: bytes | None = None) -> bytes | None:
            value = super().get(key, default)
            if key == "c/0" and self.reads == 0:
                self.reads += 1
                self[key] = stored[1][key]
            return value

    array = cuzarr.open_array(Replaced(stored[0]), mode="r")
    with pytest.raises(cuzarr.errors.StoreFailedError, match="replaced by another writer"):
        array[40:48]
    assert np.array_equal(array[40:48], np.arange(40, 48) * 7)

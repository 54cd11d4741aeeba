"""Stores of other libraries: whatever zarr-python finds in one, cuzarr finds in it, and the other way round."""

from __future__ import annotations

import asyncio
import collections
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from plain_store import Objects

import cuzarr
from cuzarr import storage
from cuzarr.errors import CuzarrError, GroupNotFoundError, InvalidArgumentError, ReadOnlyError, UnsupportedError
from cuzarr.storage import schemes

zarr = pytest.importorskip("zarr")
fsspec = pytest.importorskip("fsspec")
obstore = pytest.importorskip("obstore")

from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper  # noqa: E402
from fsspec.implementations.dirfs import DirFileSystem  # noqa: E402
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402
from zarr.buffer import cpu  # noqa: E402
from zarr.storage import (  # noqa: E402
    FsspecStore,
    LocalStore,
    LoggingStore,
    MemoryStore,
    ObjectStore,
    WrapperStore,
    ZipStore,
)

FIELD = np.arange(24.0).reshape(4, 6)
LINE = np.arange(10, dtype="int16")


class Pair(NamedTuple):
    """A store as somebody hands it to cuzarr, and as zarr-python takes it."""

    given: Any
    zarr: Any
    zarr_format: int = 3
    writable: bool = True


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def collected(names: Callable[..., Any], *arguments: Any) -> list[str]:
    async def collect() -> list[str]:
        return [name async for name in names(*arguments)]

    return sorted(run(collect()))


def fill(store: Any, zarr_format: int = 3) -> None:
    """A group with an array, and with a group that has one."""
    root = zarr.open_group(store, mode="a", zarr_format=zarr_format, attributes={"title": "field"})
    root.create_array("t", data=FIELD, chunks=(2, 3))
    group = root.create_group("g", attributes={"depth": 1})
    group.create_array("x", data=LINE, chunks=(4,))
    group.create_group("empty")


def memory_files() -> Any:
    """A file system in memory that nobody else has."""
    return type("Files", (MemoryFileSystem,), {"store": {}, "pseudo_dirs": [""], "cachable": False})()


def one(store: Any, **more: Any) -> Pair:
    return Pair(store, store, **more)


def mapped(fs: Any, root: str, **more: Any) -> Pair:
    mapper = fsspec.FSMap(root, fs)
    return Pair(mapper, FsspecStore.from_mapper(mapper), **more)


class Bytes(MemoryStore):
    """A store of zarr-python's over a mapping of bytes, to compare with."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        value = self._store_dict.get(key)
        return None if value is None else await MemoryStore({key: cpu.Buffer.from_bytes(value)}).get(key, prototype, byte_range)

    async def set(self, key: str, value: Any, byte_range: Any = None) -> None:
        self._store_dict[key] = value.to_bytes()


def user_dict(folder: Path) -> Pair:
    values = collections.UserDict()
    return Pair(values, Bytes(values.data))


def objects(folder: Path) -> Pair:
    values: dict[str, bytes] = {}
    return Pair(Objects(values), Bytes(values))


def simple_cache(folder: Path) -> Pair:
    fill(LocalStore(folder / "root"))
    url, options = f"simplecache::file://{folder}/root", {"simplecache": {"cache_storage": str(folder / "cache")}}
    return Pair(storage.make_store(url, storage_options=options), LocalStore(folder / "root", read_only=True), writable=False)


def zip_files(folder: Path) -> Pair:
    fill(LocalStore(folder / "root"))
    with zipfile.ZipFile(folder / "a.zip", "w") as file:
        for path in sorted((folder / "root").rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder / "root"))
    return Pair(f"zip://::file://{folder}/a.zip", LocalStore(folder / "root", read_only=True), writable=False)


def references(folder: Path, **options: Any) -> Any:
    """A hierarchy of format 2 whose metadata is inline and whose chunks are parts of one file."""
    fill(LocalStore(folder / "root"), 2)
    refs: dict[str, Any] = {}
    with (folder / "all.bin").open("wb") as joined:
        for path in sorted((folder / "root").rglob("*")):
            if path.is_file():
                key, value = path.relative_to(folder / "root").as_posix(), path.read_bytes()
                if path.name.startswith("."):
                    refs[key] = value.decode()
                else:
                    refs[key] = [f"file://{folder}/all.bin", joined.tell(), len(value)]
                    joined.write(value)
    (folder / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    return fsspec.filesystem("reference", fo=str(folder / "refs.json"), remote_protocol="file", **options)


def referred(given: Any, folder: Path) -> Pair:
    # Of references zarr-python before 3.2 does not list everything, so what they were made of stands for it.
    return Pair(given, LocalStore(folder / "root", read_only=True), zarr_format=2, writable=False)


def reference_store(folder: Path) -> Pair:
    return referred(FsspecStore(references(folder, asynchronous=True), path=""), folder)


def reference_mapper(folder: Path) -> Pair:
    return referred(references(folder).get_mapper(""), folder)


def asynchronous_reference_mapper(folder: Path) -> Pair:
    references(folder)
    target = AsyncFileSystemWrapper(fsspec.filesystem("file"), asynchronous=True)
    fs = fsspec.filesystem("reference", fo=str(folder / "refs.json"), fs={"file": target}, asynchronous=True)
    return referred(fsspec.FSMap("", fs), folder)


def our_reference_store(folder: Path) -> Pair:
    return referred(storage.FsspecStore(references(folder)), folder)


def reference_url(folder: Path) -> Pair:
    references(folder)
    options = {"fo": str(folder / "refs.json"), "remote_protocol": "file"}
    return referred(storage.make_store("reference://", storage_options=options), folder)


def logged_files(folder: Path) -> Pair:
    return one(WrapperStore(FsspecStore(AsyncFileSystemWrapper(memory_files(), asynchronous=True), path="/root")))


def directory_files(folder: Path) -> Pair:
    (folder / "root").mkdir()
    fs = DirFileSystem(str(folder / "root"), fsspec.filesystem("file"))
    return Pair(fsspec.FSMap("", fs), LocalStore(folder / "root"))


def local_objects(folder: Path) -> Any:
    (folder / "root").mkdir()
    return obstore.store.LocalStore(folder / "root")


def repository() -> Any:
    icechunk = pytest.importorskip("icechunk")
    return icechunk.Repository.create(icechunk.in_memory_storage())


def session(folder: Path) -> Any:
    return repository().writable_session("main").store


def both_of_obstore(store: Any) -> Pair:
    return Pair(store, ObjectStore(store))


class MyLocalStore(LocalStore):
    """A subclass, which is not taken for what it may no longer be."""


KINDS: dict[str, Callable[[Path], Pair]] = {
    "zarr memory": lambda folder: one(MemoryStore()),
    "zarr local": lambda folder: one(LocalStore(folder / "root")),
    "zarr local subclass": lambda folder: one(MyLocalStore(folder / "root")),
    "zarr zip": lambda folder: one(ZipStore(folder / "a.zip", mode="w")),
    "zarr logging": lambda folder: one(LoggingStore(MemoryStore(), log_level="ERROR")),
    "zarr logging local": lambda folder: one(LoggingStore(LocalStore(folder / "root"), log_level="ERROR")),
    "zarr wrapper of files": logged_files,
    "zarr fsspec memory": lambda folder: one(
        FsspecStore(AsyncFileSystemWrapper(memory_files(), asynchronous=True), path="/root")
    ),
    "zarr fsspec local": lambda folder: one(
        FsspecStore(AsyncFileSystemWrapper(fsspec.filesystem("file", auto_mkdir=True), asynchronous=True), path=f"{folder}/root")
    ),
    "zarr object": lambda folder: one(ObjectStore(obstore.store.MemoryStore())),
    "zarr references": reference_store,
    "mapper": lambda folder: mapped(memory_files(), "/root"),
    "mapper of the root": lambda folder: mapped(memory_files(), "/"),
    "mapper without a root": lambda folder: mapped(memory_files(), ""),
    "mapper local": lambda folder: mapped(fsspec.filesystem("file", auto_mkdir=True), f"{folder}/root"),
    "mapper of a directory": directory_files,
    "mapper of references": reference_mapper,
    "mapper of asynchronous references": asynchronous_reference_mapper,
    "our store of references": our_reference_store,
    "URL of references": reference_url,
    "URL of a cache": simple_cache,
    "URL of a zip file": zip_files,
    "obstore memory": lambda folder: both_of_obstore(obstore.store.MemoryStore()),
    "obstore local": lambda folder: both_of_obstore(local_objects(folder)),
    "mapping": user_dict,
    "object": objects,
    "icechunk": lambda folder: one(session(folder)),
}


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    made = KINDS[request.param](tmp_path)
    if made.writable:
        fill(made.zarr)
    return made


def keys_of(pair: Pair) -> list[str]:
    return collected(pair.zarr.list_prefix, "")


def test_listings_are_those_of_zarr_python(pair: Pair) -> None:
    store, keys = storage.make_store(pair.given), keys_of(pair)
    assert store.list() == keys and len(keys) >= 10
    for prefix in ("", "g", "g/x", "g/empty", "t", "g/nothing"):
        assert store.list_dir(prefix) == collected(pair.zarr.list_dir, prefix), prefix
        below = [key for key in keys if key.startswith(f"{prefix}/" if prefix else "")]
        assert store.list_prefix(prefix) == below, prefix
        found, prefixes = store.handle.list_dir(prefix)
        assert set(found) <= set(keys) and not set(prefixes) & set(keys), prefix
        assert all(any(key.startswith(f"{name}/") for key in keys) for name in prefixes), prefix
        assert store.is_empty(prefix) == (not below), prefix


def test_values_are_those_of_zarr_python(pair: Pair) -> None:
    store = storage.make_store(pair.given)
    for key in keys_of(pair):
        value = run(pair.zarr.get(key, cpu.buffer_prototype)).to_bytes()
        assert store.get(key) == value and store.exists(key), key
        if len(value) > 3:
            assert store.get(key, start=1, stop=3) == value[1:3], key
        assert store.get(key, start=-2) == value[-2:], key
        assert store.get(key, start=2) == value[2:], key
        assert store.get_parts(key, [(0, 2), (-1, None), (None, None)]) == [value[:2], value[-1:], value], key
        assert store.getsize(key) == len(value), key
    for key in ("g", "t", "g/nothing", "nothing/zarr.json", "t/.cuzarr-work.json"):
        assert not store.exists(key) and store.get(key) is None and store.get(key, start=1, stop=2) is None, key


def test_groups_have_the_members_that_zarr_python_finds(pair: Pair) -> None:
    ours = cuzarr.open_group(pair.given, mode="r")
    mode = "r+" if isinstance(pair.zarr, ZipStore) else "r"
    theirs = zarr.open_group(pair.zarr, mode=mode, zarr_format=pair.zarr_format)
    found = sorted(path for path, _ in ours.members(max_depth=None))
    assert found == sorted(path for path, _ in theirs.members(max_depth=None)) == ["g", "g/empty", "g/x", "t"]
    assert ours.attrs.asdict() == theirs.attrs.asdict() == {"title": "field"}
    assert np.array_equal(ours["t"][:], FIELD) and np.array_equal(ours["g/x"][2:9:3], LINE[2:9:3])
    assert ours["t"].nchunks_initialized == 4


def test_what_is_written_is_what_zarr_python_reads(pair: Pair) -> None:
    if not pair.writable:
        with pytest.raises(CuzarrError):
            storage.make_store(pair.given).with_read_only(True).set("t/c/0/0", b"1")
        return
    group = cuzarr.open_group(pair.given, mode="a")
    group.create_array("u", data=FIELD, chunks=(3, 4))
    group["t"][1:3] = -1.0
    group.attrs["more"] = 2
    theirs = zarr.open_group(pair.zarr, mode="r+", zarr_format=pair.zarr_format)
    expected = FIELD.copy()
    expected[1:3] = -1.0
    assert np.array_equal(theirs["u"][:], FIELD) and np.array_equal(theirs["t"][:], expected)
    assert theirs.attrs["more"] == 2 and sorted(name for name, _ in theirs.members()) == ["g", "t", "u"]


def test_deletions_leave_what_zarr_python_leaves(pair: Pair) -> None:
    store, keys = storage.make_store(pair.given), keys_of(pair)
    document = ".zarray" if pair.zarr_format == 2 else "zarr.json"
    if not pair.writable or isinstance(pair.zarr, ZipStore):
        with pytest.raises(CuzarrError):
            store.with_read_only(store.read_only or not pair.writable).delete(f"t/{document}")
        assert keys_of(pair) == keys
        return
    assert not store.set_if_not_exists(f"t/{document}", b"{}")
    chunk = next(key for key in keys if key.startswith("t/") and key.endswith("0"))
    store.delete(chunk)
    store.delete(chunk)
    store.delete("t/nothing")
    keys.remove(chunk)
    assert store.list() == keys_of(pair) == keys
    for prefix in ("g/x", "g/nothing", "t/c"):
        store.delete_dir(prefix)
        keys = [key for key in keys if not key.startswith(f"{prefix}/")]
        assert store.list() == keys_of(pair) == keys, prefix
    store.clear()
    assert store.list() == [] == keys_of(pair)


def test_groups_are_copied_into_and_out_of(pair: Pair) -> None:
    source = cuzarr.open_group(pair.given, mode="r")
    copied = cuzarr.copy(source, {}, zarr_format=3)
    assert np.array_equal(copied["t"][:], FIELD) and copied["g"].attrs["depth"] == 1
    if not pair.writable or isinstance(pair.zarr, ZipStore):
        return
    back = cuzarr.copy(copied, pair.given, path="copied")
    assert np.array_equal(back["t"][:], FIELD) and np.array_equal(back["g/x"][:], LINE)
    theirs = zarr.open_group(pair.zarr, path="copied", mode="r+", zarr_format=3)
    assert np.array_equal(theirs["t"][:], FIELD) and theirs["g"].attrs["depth"] == 1
    assert not [key for key in keys_of(pair) if ".cuzarr" in key]


@pytest.mark.parametrize("kind", ["zarr memory", "zarr local", "zarr local subclass", "zarr logging", "zarr fsspec memory"])
def test_a_store_that_only_reads_stays_one(kind: str, tmp_path: Path) -> None:
    pair = KINDS[kind](tmp_path)
    fill(pair.zarr)
    reader = pair.zarr.with_read_only(True)
    store = storage.make_store(reader)
    assert store.read_only and cuzarr.open_group(reader, mode="r")["t"].shape == (4, 6)
    for write in (
        lambda: store.set("a", b"1"),
        lambda: store.set_if_not_exists("a", b"1"),
        lambda: store.delete("t/zarr.json"),
        lambda: store.delete_dir("t"),
        lambda: cuzarr.open_group(reader, mode="r+"),
        lambda: cuzarr.create_array(reader, name="a", shape=(1,), dtype="i4"),
    ):
        with pytest.raises(ReadOnlyError):
            write()
    store.with_read_only(False).set("a", b"1")
    assert run(pair.zarr.exists("a"))


def test_references_open_in_xarray(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    root = zarr.open_group(tmp_path / "named", mode="w", zarr_format=2)
    for name, value, names in (("t", FIELD, ["y", "x"]), ("x", LINE[:6], ["x"])):
        root.create_array(name, data=value, chunks=(2,) * value.ndim, attributes={"_ARRAY_DIMENSIONS": names})
    refs = {
        path.relative_to(tmp_path / "named").as_posix(): [str(path)]
        for path in (tmp_path / "named").rglob("*") if path.is_file()
    }  # fmt: skip
    options = {"fo": refs, "remote_protocol": "file"}
    fs = fsspec.filesystem("reference", asynchronous=True, **options)
    expected = xarray.open_dataset(tmp_path / "named", engine="zarr", consolidated=False)
    for given, more in (
        (FsspecStore(fs, path=""), {}),
        (FsspecStore(fs, path="/"), {}),
        (storage.FsspecStore(fs), {}),
        (fsspec.filesystem("reference", **options).get_mapper(""), {}),
        ("reference://", {"storage_options": options}),
    ):
        opened = xarray.open_dataset(given, engine="cuzarr", **more)
        assert opened.sizes == {"y": 4, "x": 6} and opened.identical(expected)


def test_references_without_a_place_ask_for_one() -> None:
    with pytest.raises(InvalidArgumentError, match=r"(?s)'reference://' is a URL without a place.*storage_options=\{'fo'"):
        storage.make_store("reference://")


def test_the_list_of_schemes_is_that_of_the_rust_side() -> None:
    assert all(storage.UrlStore.knows(f"{scheme}://host/a") for scheme in schemes.BUILT_IN)
    names = {*schemes.KNOWN, *fsspec.available_protocols()} - set(schemes.BUILT_IN)
    others = {name for name in names if "_" not in name}  # which no scheme of a URL has
    assert "ftp" in others and not any(storage.UrlStore.knows(f"{scheme}://host/a") for scheme in others)
    assert set(schemes.PLACELESS) <= set(schemes.KNOWN) and set(schemes.BUCKETS.values()) <= set(schemes.BUCKETS)


@pytest.mark.parametrize(
    ("wrong", "right"), [("s3b", "s3"), ("abfsss", "abfss"), ("icechnk", "icechunk"), ("htps", "https"), ("sftpp", "sftp")]
)
def test_misspelt_schemes_get_one_hint(wrong: str, right: str) -> None:
    for url in (f"{wrong}://", f"{wrong}://bucket/a.zarr"):
        with pytest.raises(CuzarrError) as caught:
            storage.make_store(url)
        assert caught.value.hint == f"did you mean '{right}'?"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "abfss", "icechunk", "http", "memory"])
def test_known_schemes_without_a_place_get_no_hint_to_themselves(scheme: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'{scheme}://' is a URL without a place") as caught:
        storage.make_store(f"{scheme}://")
    assert caught.value.hint is None


def test_a_reference_that_cannot_be_reached_is_an_error_and_no_fill_value(tmp_path: Path) -> None:
    fs = references(tmp_path)
    (tmp_path / "all.bin").unlink()
    with pytest.raises(CuzarrError, match=r"all\.bin"):
        cuzarr.open_array(fs.get_mapper(""), path="t", mode="r")[:]
    with pytest.raises(CuzarrError, match=r"all\.bin"):
        cuzarr.open_array(FsspecStore(references_again(tmp_path), path=""), path="t", mode="r")[:]


@pytest.mark.parametrize("how", ["mapper", "zarr", "URL", "mapper of a part"])
def test_references_that_are_only_read_do_not_pass_through_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    from fsspec.implementations.reference import ReferenceFileSystem

    fs = references(tmp_path)
    given: Any = {
        "mapper": lambda: fs.get_mapper(""),
        "zarr": lambda: FsspecStore(references_again(tmp_path), path="", read_only=True),
        "URL": lambda: "reference://",
        "mapper of a part": lambda: fs.get_mapper("t"),
    }[how]()
    options = {"fo": str(tmp_path / "refs.json"), "remote_protocol": "file"} if how == "URL" else None

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("bytes pass through Python")

    monkeypatch.setattr(ReferenceFileSystem, "cat_file", refuse)
    monkeypatch.setattr(ReferenceFileSystem, "_cat_file", refuse)
    store = storage.make_store(given, read_only=True, storage_options=options)
    if how == "mapper":
        assert store == storage.make_store(given, read_only=True)
    expected = zarr.open_group(tmp_path / "root", mode="r")
    if how == "mapper of a part":
        np.testing.assert_array_equal(cuzarr.open_array(store, mode="r")[...], expected["t"][...])
        return
    group = cuzarr.open_group(store, mode="r")
    assert sorted(name for name, _ in group.members(max_depth=None)) == sorted(
        name for name, _ in expected.members(max_depth=None)
    )
    np.testing.assert_array_equal(group["t"][...], expected["t"][...])
    assert "t" in str(group.tree())
    copied = cuzarr.copy(group, {})
    np.testing.assert_array_equal(copied["t"][...], expected["t"][...])
    with pytest.raises(ReadOnlyError):
        store.set("new", b"1")


def test_references_that_may_be_written_are_those_of_fsspec(tmp_path: Path) -> None:
    store = storage.make_store(references(tmp_path).get_mapper(""), read_only=True)
    writable = store.with_read_only(False)
    writable.set("new", b"1")
    assert writable.get("new") == b"1" and store == writable


def test_references_to_what_only_fsspec_opens_are_read_by_it(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/far", b"0123456789")
    fs = fsspec.filesystem("reference", fo={"a": ["memory://far", 2, 3], "b": "base64:Yg=="}, remote_protocol="memory")
    store = storage.make_store(fs.get_mapper(""), read_only=True)
    assert (store.get("a"), store.get("b")) == (b"234", b"b")


def references_again(folder: Path) -> Any:
    return fsspec.filesystem("reference", fo=str(folder / "refs.json"), remote_protocol="file", asynchronous=True)


def test_stores_are_equal_that_are_one_place(tmp_path: Path) -> None:
    fs = fsspec.filesystem("file", auto_mkdir=True)
    one, same, other = (storage.make_store(fs.get_mapper(str(tmp_path / name))) for name in ("a", "a", "b"))
    assert one == same and hash(one) == hash(same) and one != other
    values: dict[str, bytes] = {}
    mapping, twin = collections.UserDict(values), collections.UserDict(values)
    # Two mappings that hold the same are two stores.
    assert storage.make_store(mapping) == storage.make_store(mapping) != storage.make_store(twin)


def test_prefixes_of_references_are_whole_names(tmp_path: Path) -> None:
    store = storage.make_store(fsspec.filesystem("reference", fo={"t/.zarray": "{}", "time/.zarray": "{}"}).get_mapper(""))
    assert store.list_prefix("t") == ["t/.zarray"] and store.list_dir("") == ["t", "time"]
    store.set("t/0", b"1")
    assert store.list_dir("t") == [".zarray", "0"]
    store.delete_dir("t")
    assert store.list() == ["time/.zarray"]


class Wrapped(MemoryStore):
    """A store one of whose methods is a plain function that returns a coroutine, as wrappers make them."""

    def get(self, *arguments: Any, **options: Any) -> Any:
        return super().get(*arguments, **options)


def test_methods_of_a_store_of_zarr_python_may_be_wrapped() -> None:
    store = Wrapped()
    cuzarr.create_group(store).create_array("t", data=FIELD, chunks=(2, 3))
    for library in (cuzarr, zarr):
        assert (library.open_array(store, path="t", mode="r")[:] == FIELD).all()


# ----------------------------------------------------------------------------------------------------------- Icechunk


def test_a_session_of_icechunk_is_committed_with_all_that_was_written() -> None:
    place = repository()
    writing = place.writable_session("main")
    source = cuzarr.open_group({}, mode="w", attributes={"title": "field"})
    source.create_array("t", data=FIELD, chunks=(2, 3))
    source.create_group("g").create_array("x", data=LINE, chunks=(4,))
    cuzarr.copy(source, writing.store)
    group = cuzarr.open_group(writing.store, mode="r+")
    assert cuzarr.rechunk(source["t"], writing.store, path="columns", chunks=(-1, 1)).chunks == (4, 1)
    x = group["g/x"]
    x.append(LINE)
    x.resize((13,))
    del group["t"]
    group.create_array("t", data=FIELD + 1, chunks=(4, 2), overwrite=True)
    cuzarr.create_array(writing.store, name="t", data=FIELD + 2, chunks=(2, 2), overwrite=True)
    with pytest.raises(GroupNotFoundError):
        cuzarr.open_group(place.readonly_session("main").store, mode="r")
    writing.commit("all of it")
    reading = place.readonly_session("main").store
    for opened in (cuzarr.open_group(reading, mode="r"), zarr.open_group(reading, mode="r")):
        assert sorted(path for path, _ in opened.members(max_depth=None)) == ["columns", "g", "g/x", "t"]
        assert np.array_equal(opened["t"][:], FIELD + 2) and np.array_equal(opened["columns"][:], FIELD)
        assert np.array_equal(opened["g/x"][:], np.concatenate([LINE, LINE])[:13])
    assert storage.make_store(reading).read_only
    with pytest.raises(ReadOnlyError):
        cuzarr.open_group(reading, mode="r+")


def test_work_in_a_session_of_icechunk_is_not_resumed() -> None:
    store, source = session(Path()), cuzarr.create_array({}, data=FIELD, chunks=(2, 3))
    with pytest.raises(UnsupportedError, match=r"(?s)cannot be resumed.*leave out resume"):
        cuzarr.copy(source, store, path="t", resume=True)
    target = cuzarr.create_array(store, name="sum", shape=FIELD.shape, dtype="f8", chunks=(2, 3))
    with pytest.raises(UnsupportedError, match=r"(?s)cannot be resumed.*leave out resume"):
        (source + source).store(target, resume=True)
    (source + source).store(target)
    assert np.array_equal(target[:], FIELD * 2)


def test_two_sessions_of_icechunk_are_two_places() -> None:
    first, second = session(Path()), session(Path())
    fill(first)
    assert np.array_equal(cuzarr.copy(cuzarr.open_group(first, mode="r"), second)["t"][:], FIELD)
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        cuzarr.copy(cuzarr.open_group(first, mode="r"), first, path="below")


def test_icechunk_keeps_nothing_of_format_2() -> None:
    with pytest.raises(CuzarrError, match="v2|\\.zarray|format 2"):
        cuzarr.create_array(session(Path()), name="a", shape=(2,), dtype="i4", zarr_format=2)


# ------------------------------------------------------------------------------------------------- tables in Parquet


def parquet_table(folder: Path, record_size: int = 3) -> Any:
    """The options of fsspec for a table in Parquet: of chunks in one file, small ones in the table, and some that are nowhere."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("fastparquet")
    from fsspec.implementations.reference import LazyReferenceMapper

    root = zarr.open_group(folder / "root", mode="w", zarr_format=2, attributes={"title": "field"})
    root.create_array("t", data=FIELD, chunks=(2, 3))
    root.create_group("g").create_array("x", data=LINE, chunks=(4,))
    root.create_array("scalar", data=np.float64(3.5))
    root.create_array("never", shape=(10**7, 10**7), chunks=(1, 1), dtype="i2", fill_value=7)
    metadata: dict[str, Any] = {}
    mapper = LazyReferenceMapper.create(str(folder / "refs.parq"), record_size=record_size)
    body = b"head"
    for path in sorted((folder / "root").rglob("*")):
        if path.is_file() and path.name.startswith("."):
            metadata[path.relative_to(folder / "root").as_posix()] = json.loads(path.read_bytes())
    (folder / "refs.parq" / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": record_size}))
    for name, counts in (("t", (2, 2)), ("g/x", (3,)), ("scalar", ())):
        rows: list[tuple[Any, ...]] = []
        for place in np.ndindex(*counts):
            value = (folder / "root" / name / (".".join(map(str, place)) or "0")).read_bytes()
            if name == "g/x" and place == (1,):
                rows.append((None, 0, 0, value))
            elif name == "t" and place == (1, 0):
                rows.append((None, 0, 0, None))
            else:
                rows.append((f"file://{folder}/all.bin", len(body), len(value), None))
                body += value
        (folder / "refs.parq" / name).mkdir(parents=True)
        for record in range(0, len(rows), record_size):
            frame = pandas.DataFrame(rows[record : record + record_size], columns=["path", "offset", "size", "raw"], dtype=object)
            frame = frame.astype({"offset": "int64", "size": "int64"})
            encoding = {"path": "utf8", "raw": "bytes"}
            frame.to_parquet(
                folder / "refs.parq" / name / f"refs.{record // record_size}.parq",
                engine="fastparquet", object_encoding=encoding, has_nulls=["path", "raw"],
            )  # fmt: skip
    (folder / "all.bin").write_bytes(body)
    del mapper
    return {"fo": str(folder / "refs.parq"), "remote_protocol": "file"}


def test_tables_in_parquet_are_read_array_by_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.reference import ReferenceFileSystem

    options = parquet_table(tmp_path)
    expected = FIELD.copy()
    expected[2:, :3] = 0
    fs = fsspec.filesystem("reference", **options)
    opened: list[tuple[str, int]] = []
    read = fs.references.open_refs if fs.references.record_size else None
    monkeypatch.setattr(fs.references, "open_refs", lambda *which: opened.append(which) or read(*which))

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("bytes pass through Python")

    monkeypatch.setattr(ReferenceFileSystem, "cat_file", refuse)
    monkeypatch.setattr(ReferenceFileSystem, "_cat_file", refuse)
    group = cuzarr.open_group(storage.make_store(fs.get_mapper(""), read_only=True), mode="r")
    assert sorted(name for name, _ in group.members(max_depth=None)) == ["g", "g/x", "never", "scalar", "t"]
    assert group.attrs["title"] == "field" and opened == []
    np.testing.assert_array_equal(group["g/x"][2:9], LINE[2:9])
    assert opened == [("g/x", 0)]
    np.testing.assert_array_equal(group["t"][...], expected)
    np.testing.assert_array_equal(group["t"][1:3], expected[1:3])
    assert opened[1:] == [("t", 0), ("t", 1)] and group["scalar"][()] == 3.5 and group["never"][5, 9] == 7
    assert len(group["t"].store.list()) == 12 + 3 + 3 + 1 and group["t"].nchunks_initialized == 3
    del opened[:]
    np.testing.assert_array_equal(cuzarr.copy(group["t"], {})[...], expected)
    assert opened == []


@pytest.mark.parametrize("how", ["URL", "chain", "zarr"])
def test_tables_in_parquet_open_from_all_that_names_them(tmp_path: Path, how: str) -> None:
    options = parquet_table(tmp_path)
    if how == "URL":
        group = cuzarr.open_group("reference://", mode="r", storage_options=options)
    elif how == "chain":
        group = cuzarr.open_group(f"reference::{tmp_path}/refs.parq", mode="r")
        assert (
            str(group.store) == f"reference::file://{tmp_path}/refs.parq"
            or str(group.store) == f"reference::{tmp_path}/refs.parq"
        )
        assert pickle.loads(pickle.dumps(group)).store == group.store
        with pytest.raises(ReadOnlyError):
            group.store.set("a", b"1")
    else:
        store = FsspecStore(fsspec.filesystem("reference", asynchronous=True, **options), path="", read_only=True)
        group = cuzarr.open_group(store, mode="r")
    np.testing.assert_array_equal(group["g/x"][...], LINE)


def test_a_table_in_parquet_names_nothing_outside_of_its_folder(tmp_path: Path) -> None:
    parquet_table(tmp_path)
    (tmp_path / "table").mkdir()
    (tmp_path / "refs.parq").rename(tmp_path / "table" / "refs.parq")
    url = f"reference://{tmp_path}/table/refs.parq"
    group = cuzarr.open_group(url, mode="r")
    with pytest.raises(InvalidArgumentError, match=r"(?s)all\.bin' lies outside|all\.bin' is not allowed.*allow="):
        group["t"][...]
    allowed = cuzarr.open_group(url, mode="r", storage_options={"allow": str(tmp_path)})
    np.testing.assert_array_equal(allowed["g/x"][...], LINE)
    with pytest.raises(CuzarrError, match=r"none\.parq' is no table in Parquet"):
        cuzarr.open_group(f"reference::{tmp_path}/none.parq", mode="r")


def test_a_damaged_table_in_parquet_is_an_error(tmp_path: Path) -> None:
    options = parquet_table(tmp_path)
    (tmp_path / "refs.parq" / "t" / "refs.1.parq").write_bytes(b"damaged")
    group = cuzarr.open_group("reference://", mode="r", storage_options=options)
    np.testing.assert_array_equal(group["g/x"][...], LINE)
    for _ in range(2):
        with pytest.raises(CuzarrError):
            group["t"][...]

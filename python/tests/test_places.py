"""Stores know which values they are about: URLs name one store for Python and Rust, and wrappers of one place are one place."""

from __future__ import annotations

import gc
import json
import pickle
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_store import Objects

import cuzarr
from cuzarr import _core
from cuzarr.errors import InvalidArgumentError, UnsupportedError
from cuzarr.storage import FsspecStore, LocalStore, MemoryStore, UrlStore, ZipStore, make_store

zarr = pytest.importorskip("zarr")
fsspec = pytest.importorskip("fsspec")
obstore = pytest.importorskip("obstore")
pytest.importorskip("obstore.store")

from fsspec.implementations.dirfs import DirFileSystem  # noqa: E402

Wrap = Callable[[Any], Any]


class Values(Objects):
    """A store of a program, which says where its values are."""

    def __init__(self, place: Any) -> None:
        super().__init__({})
        self.place = place

    def identity(self) -> Any:
        return self.place


DIRECTORIES: dict[str, Wrap] = {
    "path": lambda path: str(path),
    "link": lambda path: path.parent / "link",
    "URL": lambda path: f"file://{path}",
    "zarr": lambda path: zarr.storage.WrapperStore(zarr.storage.LocalStore(path)),
    "zarr's of fsspec": lambda path: zarr.storage.FsspecStore.from_url(f"local://{path}"),
    "zarr's of obstore": lambda path: zarr.storage.ObjectStore(obstore.store.LocalStore(path)),
    "fsspec": lambda path: fsspec.get_mapper(str(path)),
    "fsspec, by its name": lambda path: FsspecStore.from_url(f"local://{path}"),
    "a view of fsspec": lambda path: FsspecStore(DirFileSystem(str(path.parent), fsspec.filesystem("file")), path=path.name),
    "obstore": lambda path: obstore.store.LocalStore(path),
    "a program": lambda path: Values(f"file://{path}"),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    return tmp_path / "a"


@pytest.mark.parametrize("kind", DIRECTORIES)
def test_a_directory_is_one_place_by_whatever_it_is_opened(kind: str, directory: Path) -> None:
    store, plain = make_store(DIRECTORIES[kind](directory)), LocalStore(directory)
    assert store.handle == plain.handle and hash(store.handle) == hash(plain.handle)
    assert store.handle != LocalStore(directory.parent).handle
    array = cuzarr.create_array(plain, shape=(4,), dtype="int8")
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        cuzarr.copy(array, store, overwrite=True)


def memories() -> dict[str, tuple[Any, Any, Any]]:
    """Two stores of one place, and one of another."""
    values: dict[str, Any] = {}
    table, name, other = zarr.storage.MemoryStore(values), object(), object()
    memory = fsspec.filesystem("memory")
    objects, own = obstore.store.MemoryStore(), Values(None)
    settings = {"access_key_id": "a", "secret_access_key": "b", "region": "r"}
    bucket: Any = obstore.store.S3Store
    cached = "simplecache::memory://place/in"
    return {
        "mapping": (values, MemoryStore(values), {}),
        "zarr's memory": (table, values, zarr.storage.MemoryStore()),
        "zarr's wrapper": (zarr.storage.LoggingStore(table), table, zarr.storage.MemoryStore()),
        "zarr's of obstore": (zarr.storage.ObjectStore(objects), objects, obstore.store.MemoryStore()),
        "named": ("memory://place", "memory://place/", "memory://place/other"),
        "part of named": ("memory://place/in", "memory://place//in/", "memory://place"),
        "fsspec": (fsspec.get_mapper("memory://place"), FsspecStore(memory, path="/place"), FsspecStore(memory, path="/other")),
        "fsspec's cache": (cached, fsspec.get_mapper(cached), fsspec.get_mapper("simplecache::memory://place/other")),
        "bucket": (
            bucket("bucket", prefix="x", **settings),
            bucket("bucket", prefix="x/", **(settings | {"access_key_id": "c"})),
            bucket("bucket", prefix="x", endpoint="http://localhost:9000", **settings),
        ),
        "object": (own, own, Values(None)),
        "shared by a program": (Values(name), Values(name), Values(other)),
    }


@pytest.mark.parametrize("kind", memories())
def test_wrappers_of_one_place_are_one_place(kind: str) -> None:
    one, another, other = (make_store(store) for store in memories()[kind])
    assert one.handle == another.handle and hash(one.handle) == hash(another.handle)
    assert one.handle != other.handle != another.handle
    assert one != other and (type(one) is not type(another) or (one == another and hash(one) == hash(another)))


def test_an_object_is_a_place_as_long_as_it_lives() -> None:
    values = Values(None)
    values.place = values
    first, number = hash(make_store(values).handle), len(gc.get_referrers(values))
    gc.collect()
    # No store of it is left, so it may be another place now, but is not kept alive.
    assert len(gc.get_referrers(values)) <= number
    held = make_store(values)
    assert make_store(values).handle == held.handle
    assert {hash(make_store(Values(None)).handle) for _ in range(50)}.isdisjoint({first, hash(held.handle)})


def test_writers_of_parts_of_a_chunk_by_different_wrappers_lose_nothing(directory: Path) -> None:
    cuzarr.create_array(directory, shape=(64,), chunks=(64,), dtype="int32", compressors=None)
    wrapped: list[Any] = [DIRECTORIES[kind](directory) for kind in ("path", "fsspec", "obstore", "zarr")]
    together = threading.Barrier(len(wrapped))

    def write(number: int) -> None:
        array = cuzarr.open_array(wrapped[number], mode="r+")
        together.wait()
        for place in range(number, 64, len(wrapped)):
            array[place] = place + 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(wrapped))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(cuzarr.open_array(directory, mode="r")[...], np.arange(64) + 1)


def test_a_name_in_memory_is_one_store_for_python_and_rust() -> None:
    store = make_store("memory://both-sides")
    assert isinstance(store, MemoryStore) and str(store) == "memory://both-sides"
    store.set("in/a", b"1")
    rust = _core.Store.open_url("memory://both-sides/in")
    assert rust is not None and rust.list_prefix("") == ["a"]
    assert make_store("memory://both-sides/in", read_only=True).read_only
    assert store == make_store("memory://both-sides") != make_store("memory://other-side")
    copied = pickle.loads(pickle.dumps(store))
    assert copied.list() == ["in/a"] and copied != store


def test_chains_take_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = np.arange(4, dtype="int32")
    cuzarr.save_array("data.zarr", values, chunks=(2,))
    files = {file.relative_to("data.zarr").as_posix(): file for file in Path("data.zarr").rglob("*") if file.is_file()}
    references = {
        key: file.read_text() if file.suffix == ".json" else [str(file.resolve()), 0, file.stat().st_size]
        for key, file in files.items()
    }
    Path("refs.json").write_text(json.dumps({"version": 1, "refs": references}))
    with zipfile.ZipFile("a.zip", "w") as archive:
        for key, file in files.items():
            archive.write(file, f"in/{key}")
    (tmp_path / "below").mkdir()
    for number, url in enumerate(("reference::refs.json", "reference::./below/../refs.json", "zip://in::a.zip", "zip::a.zip")):
        path = "in" if url == "zip::a.zip" else ""
        for opened in (cuzarr.open_array(url, path=path, mode="r"), cuzarr.open(url, path=path, mode="r")):
            assert isinstance(opened, cuzarr.Array)
            np.testing.assert_array_equal(opened[...], values)
        cuzarr.copy(opened, f"copy-{number}.zarr")
        np.testing.assert_array_equal(cuzarr.open_array(f"copy-{number}.zarr", mode="r")[...], values)
    cuzarr.copy("reference::refs.json", "copy.zarr")
    np.testing.assert_array_equal(cuzarr.open_array("copy.zarr", mode="r")[...], values)
    store = make_store("zip::a.zip")
    assert store.handle == make_store(f"zip::file://{tmp_path}/a.zip").handle
    stored = pickle.dumps(store)
    monkeypatch.chdir(tmp_path / "below")
    assert pickle.loads(stored).list() == store.list()


def test_text_with_colons_that_is_no_chain_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a::b", "of::mine", "in/zip::a", "zip::"):
        assert isinstance(make_store(name), LocalStore), name
    with pytest.raises(FileNotFoundError, match=f"write 'of::file://{tmp_path}/mine.json'"):
        cuzarr.open_array("of::mine.json", mode="r")


def test_chains_of_known_schemes_need_no_other_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("in/k", b"value")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    for url, key in ((f"zip::file://{tmp_path}/a.zip", "in/k"), (f"zip://in::file://{tmp_path}/a.zip", "k")):
        store = make_store(url)
        assert isinstance(store, UrlStore) and (store.list(), store.get(key)) == ([key], b"value")
        assert not store.supports_writes and pickle.loads(pickle.dumps(store)) == store
    assert store.handle != ZipStore(tmp_path / "a.zip").handle
    assert make_store(f"zip::file://{tmp_path}/a.zip").handle == ZipStore(tmp_path / "a.zip").handle
    for make in (make_store, UrlStore):
        with pytest.raises(UnsupportedError):
            make("zip::far://bucket/a.zip")

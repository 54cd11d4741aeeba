"""Stores, arrays and groups of zarr-python 2. That library does not fit beside zarr-python 3, so classes with its names and attributes stand for it."""

from __future__ import annotations

import collections
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.storage import LocalStore, MemoryStore, make_store

VALUES = np.arange(1.0, 7.0).reshape(2, 3)


class DirectoryStore(collections.UserDict[str, bytes]):
    """A folder, whose values are not asked for through the mapping."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path


class KVStore(collections.UserDict[str, bytes]):
    """Another mapping."""


class Node:
    """An array or a group."""

    def __init__(self, store: Any, path: str, chunk_store: Any = None) -> None:
        self.store, self.path, self.chunk_store = store, path, chunk_store or store


Array = type("Array", (Node,), {"__module__": "zarr.core"})
Group = type("Group", (Node,), {"__module__": "zarr.hierarchy"})


@pytest.fixture(autouse=True)
def zarr_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of zarr-python 2, which have no ``LocalStore`` and no ``ObjectStore``."""
    zarr, storage = types.ModuleType("zarr"), types.ModuleType("zarr.storage")
    storage.DirectoryStore, storage.KVStore = DirectoryStore, KVStore  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zarr", zarr)
    monkeypatch.setitem(sys.modules, "zarr.storage", storage)


def filled(store: Any) -> Any:
    group = cuzarr.create_group(store, zarr_format=2, path="a", attributes={"title": "maps"})
    group.create_array("t", data=VALUES, chunks=(1, 3), attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})
    return store


def test_its_stores_are_taken(tmp_path: Path) -> None:
    filled(tmp_path)
    folder = make_store(DirectoryStore(str(tmp_path)))
    assert isinstance(folder, LocalStore) and folder.root == tmp_path
    mapping = KVStore()
    filled(mapping)
    for store in (folder, mapping):
        assert cuzarr.open_array(store, path="a/t", mode="r")[:].tolist() == VALUES.tolist()
    assert "a/t/.zarray" in mapping


@pytest.mark.parametrize("is_apart", [False, True])
def test_its_arrays_and_groups_are_taken(is_apart: bool) -> None:
    documents, chunks = KVStore(), KVStore()
    filled(documents)
    if is_apart:
        for key in [key for key in documents if not key.rpartition("/")[2].startswith(".z")]:
            chunks[key] = documents.pop(key)
    array, group = (kind(documents, path, chunks if is_apart else None) for kind, path in ((Array, "a/t"), (Group, "a")))
    target = MemoryStore()
    cuzarr.copy(group, target)
    copied = cuzarr.open_group(target, mode="r")
    assert copied.attrs["title"] == "maps" and copied.get_array("t")[:].tolist() == VALUES.tolist()
    assert cuzarr.copy(array, MemoryStore())[:].tolist() == VALUES.tolist()


@pytest.mark.parametrize("kind", [Array, Group])
def test_an_array_or_group_of_it_is_no_store(kind: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"got {kind.__name__} of zarr-python 2, expected a store\nhint: pass its store, and path="
    ):
        cuzarr.open(kind(KVStore(), "a"), mode="r")


def test_xarray_opens_its_groups() -> None:
    pytest.importorskip("xarray")
    from cuzarr.xarray import CuzarrBackendEntrypoint

    dataset = CuzarrBackendEntrypoint().open_dataset(Group(filled(KVStore()), "a"), consolidated=False)
    assert dataset.attrs == {"title": "maps"} and dataset.t.dims == ("y", "x") and dataset.t.values.tolist() == VALUES.tolist()

"""Our stores as zarr-python's: its own tests of stores, and arrays of zarr-python's in them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import gpu_device

zarr = pytest.importorskip("zarr")

from zarr.buffer import cpu  # noqa: E402
from zarr.testing.store import StoreTests  # noqa: E402

import cuzarr.zarr  # noqa: E402
from cuzarr import kvikio  # noqa: E402
from cuzarr.storage.zarr_form import GDSStore, GpuMemoryStore, LocalStore, MemoryStore, NativeStore, ZipStore  # noqa: E402

DEVICE = gpu_device()[0] or "cpu"


class OurStoreTests(StoreTests[Any, Any]):
    buffer_cls = cpu.Buffer

    def test_store_supports_writes(self, store: Any) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: Any) -> None:
        assert store.supports_listing

    def test_store_repr(self, store: Any) -> None:
        assert repr(store) == f"{type(store).__name__}('{store}')"


class TestLocalStore(OurStoreTests):
    store_cls = LocalStore

    async def set(self, store: Any, key: str, value: Any) -> None:
        path = store.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value.to_bytes())

    async def get(self, store: Any, key: str) -> Any:
        return self.buffer_cls.from_bytes((store.root / key).read_bytes())

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        (tmp_path / "root").mkdir()
        return {"root": str(tmp_path / "root")}

    async def test_open_makes_the_directory_unless_it_only_reads(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            await self.store_cls.open(tmp_path / "absent", read_only=True)
        with pytest.raises(FileNotFoundError):
            await self.store_cls.open(tmp_path / "absent", mode="r+")
        assert (await self.store_cls.open(tmp_path / "made")).root.is_dir()


class TestGDSStore(TestLocalStore):
    store_cls = GDSStore


class TestKvikioStore(TestLocalStore):
    store_cls = kvikio.GDSStore

    def test_its_directory_has_the_names_of_both_versions(self, tmp_path: Path) -> None:
        for store in (self.store_cls(tmp_path), self.store_cls(root=tmp_path), self.store_cls(path=str(tmp_path))):
            assert store.root == tmp_path and not store.read_only
        assert self.store_cls(root=tmp_path, read_only=True).read_only
        with pytest.raises(ValueError, match="one directory"):
            self.store_cls()
        with pytest.raises(ValueError, match="one directory"):
            self.store_cls(tmp_path, path=tmp_path)

    async def test_it_is_opened_by_the_name_of_its_directory(self, tmp_path: Path) -> None:
        store = await self.store_cls.open(root=tmp_path / "made")
        assert isinstance(store, kvikio.GDSStore) and store.root.is_dir()
        await store.set("a", cpu.Buffer.from_bytes(b"1"))
        reader = await self.store_cls.open(root=tmp_path / "made", read_only=True)
        assert reader.read_only and reader["a"] == b"1" and reader.with_read_only(False)["a"] == b"1"


class InMemoryTests(OurStoreTests):
    async def set(self, store: Any, key: str, value: Any) -> None:
        store.cuzarr_store.handle.set(key, value.to_bytes())

    async def get(self, store: Any, key: str) -> Any:
        return self.buffer_cls.from_bytes(store.cuzarr_store.handle.get(key))


class TestMemoryStore(InMemoryTests):
    store_cls = MemoryStore

    @pytest.fixture(params=[None, {}])
    def store_kwargs(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        return {"store_dict": None if request.param is None else {}}

    async def test_a_mapping_gets_buffers(self) -> None:
        mapping: dict[str, Any] = {}
        await MemoryStore(mapping).set("a", cpu.Buffer.from_bytes(b"1"))
        assert isinstance(mapping["a"], cpu.Buffer) and mapping["a"].to_bytes() == b"1"


class TestGpuMemoryStore(InMemoryTests):
    store_cls = GpuMemoryStore

    @pytest.fixture
    def store_kwargs(self) -> dict[str, Any]:
        return {"device": DEVICE}


class TestZipStore(OurStoreTests):
    store_cls = ZipStore

    async def set(self, store: Any, key: str, value: Any) -> None:
        store.set_sync(key, value)

    async def get(self, store: Any, key: str) -> Any:
        return self.buffer_cls.from_bytes(store.cuzarr_store.get(key))

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        return {"path": str(tmp_path / "a.zip"), "mode": "w"}

    @pytest.fixture
    def open_kwargs(self, store_kwargs: dict[str, Any]) -> dict[str, Any]:
        return store_kwargs

    # A file that is opened for reading must be there.
    @pytest.mark.parametrize("read_only", [True, False])
    async def test_store_open_read_only(self, open_kwargs: dict[str, Any], read_only: bool) -> None:
        with zipfile.ZipFile(open_kwargs["path"], "w"):
            pass
        store = await self.store_cls.open(open_kwargs["path"], mode="r" if read_only else "a")
        assert store._is_open and store.read_only == read_only


def _stores(folder: Path) -> list[Any]:
    return [
        LocalStore(folder / "local"),
        GDSStore(folder / "gds"),
        MemoryStore(),
        MemoryStore({}),
        GpuMemoryStore(device=DEVICE),
        ZipStore(folder / "a.zip", mode="w"),
    ]


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("shards", [None, (8, 20)])
def test_arrays_of_zarr_python_live_in_our_stores(number: int, shards: Any, tmp_path: Path) -> None:
    store = _stores(tmp_path)[number]
    value = np.arange(600, dtype="int16").reshape(20, 30)
    array = zarr.create_array(store, name="a", shape=(20, 30), chunks=(4, 10), shards=shards, dtype="int16")
    array[:] = value
    # zarr-python makes a store for reading of one that can also write, which a ZIP file does not offer.
    mode = "r+" if isinstance(store, ZipStore) else "r"
    np.testing.assert_array_equal(zarr.open_array(store, path="a", mode=mode)[3:18:2, 5:], value[3:18:2, 5:])
    # And ours read them, through the store that is inside.
    assert isinstance(store, NativeStore)
    ours = cuzarr.open_array(store, path="a", mode="r")
    np.testing.assert_array_equal(ours[:], value)
    assert cuzarr.storage.make_store(store).handle is store.cuzarr_store.handle


async def test_many_ranges_of_one_value(tmp_path: Path) -> None:
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

    if not hasattr(zarr.abc.store.Store, "get_ranges"):
        pytest.skip("this zarr-python reads one range at a time")
    for store in _stores(tmp_path):
        store.set_sync("a", cpu.Buffer.from_bytes(b"0123456789"))
        wanted = [RangeByteRequest(2, 4), None, SuffixByteRequest(3), OffsetByteRequest(8), RangeByteRequest(8, 30)]
        wanted.append(SuffixByteRequest(0))
        expected = [b"23", b"0123456789", b"789", b"89", b"89", b""]
        found = dict(store.get_ranges_sync("a", wanted, prototype=cpu.buffer_prototype))
        assert [found[at].to_bytes() for at in range(6)] == expected
        found = {at: value async for part in store.get_ranges("a", wanted, prototype=cpu.buffer_prototype) for at, value in part}
        assert [found[at].to_bytes() for at in range(6)] == expected
        with pytest.raises(BaseExceptionGroup) as caught:
            store.get_ranges_sync("b", wanted, prototype=cpu.buffer_prototype)
        assert caught.group_contains(FileNotFoundError)


async def test_a_part_without_bytes_is_empty_and_one_of_a_missing_value_is_none(tmp_path: Path) -> None:
    from zarr.abc.store import SuffixByteRequest

    for store in _stores(tmp_path):
        store.set_sync("a", cpu.Buffer.from_bytes(b"0123456789"))
        found = await store.get("a", cpu.buffer_prototype, SuffixByteRequest(0))
        assert found is not None and found.to_bytes() == b""
        assert await store.get("b", cpu.buffer_prototype, SuffixByteRequest(0)) is None


async def test_a_folder_without_files_is_empty(tmp_path: Path) -> None:
    for store in (LocalStore(tmp_path), cuzarr.storage.LocalStore(tmp_path).zarr_store):
        await store.set("a/b/c", cpu.Buffer.from_bytes(b"1"))
        assert not await store.is_empty("") and not await store.is_empty("a") and await store.is_empty("c")
        await store.delete("a/b/c")
        assert (tmp_path / "a" / "b").is_dir() and await store.is_empty("") and await store.is_empty("a")


def _ours(folder: Path) -> list[cuzarr.storage.Store]:
    return [
        cuzarr.storage.LocalStore(folder / "local"),
        cuzarr.storage.GDSStore(folder / "gds"),
        cuzarr.storage.MemoryStore(),
        cuzarr.storage.MemoryStore({}),
        cuzarr.storage.GpuMemoryStore(device=DEVICE),
        cuzarr.storage.ZipStore(folder / "a.zip", mode="w"),
        cuzarr.storage.SplitStore(cuzarr.storage.MemoryStore(), cuzarr.storage.LocalStore(folder / "documents")),
    ]


@pytest.mark.parametrize("number", range(7))
def test_either_form_of_a_store_serves_both_libraries(number: int, tmp_path: Path) -> None:
    store = _ours(tmp_path)[number]
    value = np.arange(600, dtype="int16").reshape(20, 30)
    form = store.zarr_store
    assert isinstance(form, zarr.abc.store.Store) and form == store.zarr_store and form.cuzarr_store == store
    assert type(form).__name__ == ("NativeStore" if number == 6 else type(store).__name__)
    assert store.with_read_only(True).zarr_store.read_only and not form.read_only
    zarr.create_array(form, name="a", shape=(20, 30), chunks=(4, 10), dtype="int16")[:] = value
    for either in (store, form):
        np.testing.assert_array_equal(cuzarr.open_array(either, path="a", mode="r")[:], value)
    # zarr-python itself knows none but its own, unless it may be repaired.
    with pytest.raises(TypeError, match="store_like"):
        zarr.open_array(store, path="a", mode="r+")  # type: ignore[arg-type]
    with cuzarr.zarr.enable():
        for either in (store, form):
            np.testing.assert_array_equal(zarr.open_array(either, path="a", mode="r+")[:], value)
        assert zarr.open_group(store, mode="a")["a"].shape == (20, 30)  # type: ignore[arg-type]

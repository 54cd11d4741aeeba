"""The chunk cache: chunks that are read again come from memory, and are always those that are stored."""

from __future__ import annotations

import http.server
import multiprocessing
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import gpu_device
from devices import to_host

import cuzarr

Stored = Callable[..., tuple[str, np.ndarray[Any, Any]]]


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    yield
    for device in ("cpu", gpu_device()[0]):
        if device is not None:
            cuzarr.memory.empty_cache(device)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shards": {"shards": (32, 48)},
    "v2": {"zarr_format": 2},
    "uncompressed": {"compressors": None},
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """A function that gives an array in a folder, which is old enough to be kept. Many are made at once, and age together."""
    values = np.arange(64 * 48, dtype="f4").reshape(64, 48)
    ready: dict[str, list[str]] = {kind: [] for kind in KINDS}

    def take(kind: str = "plain") -> tuple[str, np.ndarray[Any, Any]]:
        if not ready[kind]:
            folder = tmp_path_factory.mktemp("aged")
            for one, settings in KINDS.items():
                for number in range(16 if one == "plain" else 4):
                    path = str(folder / f"{one}-{number}.zarr")
                    cuzarr.create_array(path, data=values, **{"chunks": (16, 24)} | settings)
                    ready[one].append(path)
            time.sleep(2.1)
        return ready[kind].pop(), values.copy()

    return take


def cached(array: cuzarr.Array) -> int:
    return (array.last_report() or {}).get("cached_chunks", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_that_is_read_again_is_not_decoded_again(stored: Stored, device: str, kind: str) -> None:
    path, values = stored(kind)
    array = cuzarr.open(path, mode="r", device=device, chunk_cache=True)
    uses = device != "cpu" or kind != "uncompressed"  # bytes of a file that need no decoding stay in the page cache
    for selection in (np.s_[:, :], np.s_[3, :], np.s_[3::5, 7:40], np.s_[60:, 47], np.s_[5:9, 1:2]):
        assert np.array_equal(to_host(array[selection]), values[selection])
    assert (cached(array) > 0) == uses
    assert np.array_equal(to_host(array.oindex[[60, 2, 2], :]), values[[60, 2, 2], :])
    assert np.array_equal(to_host(array.vindex[[60, 2], [1, 47]]), values[[60, 2], [1, 47]])
    many = array.read_many([np.s_[0:3, 0:3], np.s_[40:50, :]], dtype="f8")
    assert np.array_equal(to_host(many[1]), values[40:50].astype("f8"))
    assert (cached(array) > 0) == uses


def test_rows_one_by_one_decode_each_chunk_once(stored: Stored, device: str) -> None:
    path, values = stored()
    array = cuzarr.open_array(path, mode="r", device=device, chunk_cache=True)
    hits = 0
    for row in range(64):
        assert np.array_equal(to_host(array[row]), values[row])
        hits += cached(array)
    assert hits == 64 * 2 - 8


def test_writes_of_other_programs_are_seen(stored: Stored) -> None:
    path, values = stored()
    array = cuzarr.open_array(path, mode="r", chunk_cache=True)
    assert np.array_equal(array[...], values) and np.array_equal(array[...], values)
    assert cached(array) == 8
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=write, args=(path,))
    other.start()
    other.join()
    assert other.exitcode == 0
    values[:20] = -1
    assert np.array_equal(array[...], values)


def write(path: str) -> None:
    cuzarr.open_array(path)[:20] = -1


def test_own_writes_deletions_and_resizes_are_seen(stored: Stored) -> None:
    path, values = stored()
    array = cuzarr.open_array(path, chunk_cache=True)
    dice = random.Random(1)
    for _ in range(30):
        assert np.array_equal(array[...], values)
        row, column = dice.randrange(64), dice.randrange(48)
        match dice.randrange(3):
            case 0:
                array[row:, column] = values[row:, column] = dice.random()
            case 1:
                cuzarr.open_array(path)[row] = values[row] = dice.random()
            case _:
                array.resize((row + 1, 48))
                array.resize((64, 48))
                values[-(-(row + 1) // 16) * 16 :] = 0  # chunks outside the shape are deleted
    cuzarr.create_array(path, data=values + 1, chunks=(16, 24), overwrite=True)
    assert np.array_equal(cuzarr.open_array(path, chunk_cache=True)[...], values + 1)


def test_groups_pass_it_on_and_keep_it_when_they_travel(tmp_path: Path) -> None:
    group = cuzarr.create_group(str(tmp_path / "g.zarr"))
    group.create_array("below/a", data=np.arange(10))
    group = pickle.loads(pickle.dumps(cuzarr.open_group(str(tmp_path / "g.zarr"), chunk_cache=True)))
    assert group["below/a"].config.chunk_cache and group["below"]["a"].config.chunk_cache
    assert group.create_array("b", shape=(3,), dtype="i4").config.chunk_cache
    assert not cuzarr.open_group(str(tmp_path / "g.zarr"))["below/a"].config.chunk_cache
    array = pickle.loads(pickle.dumps(group["below/a"]))
    assert array.config.chunk_cache
    assert not array.with_config({"chunk_cache": False}).config.chunk_cache
    with cuzarr.config.set({"array.chunk_cache": True}):
        assert cuzarr.open_array(str(tmp_path / "g.zarr" / "below/a")).config.chunk_cache


def test_the_configured_size_holds_and_memory_shows_what_is_kept(stored: Stored) -> None:
    path, values = stored()
    array = cuzarr.open_array(path, mode="r", chunk_cache=True)
    assert np.array_equal(array[...], values)
    info = cuzarr.memory.info("cpu")
    assert values.nbytes <= info.chunk_cache <= 2 * values.nbytes + 8192 and info.in_flight == 0
    assert "of chunks" in str(info)
    assert "chunk cache" in str(array.explain()) and array.explain().to_dict()["chunk_cache"]["chunks"] == 8
    with cuzarr.config.set({"chunk_cache.size": 4096}):
        small = cuzarr.open_array(path, mode="r", chunk_cache=True)
        assert np.array_equal(small[...], values)
        assert cuzarr.memory.info("cpu").chunk_cache <= 4096
    cuzarr.memory.empty_cache("cpu")
    # A worker thread of the read before may still be about to let go of a chunk.
    until = time.monotonic() + 10
    while cuzarr.memory.info("cpu").chunk_cache and time.monotonic() < until:
        time.sleep(0.001)
    assert cuzarr.memory.info("cpu").chunk_cache == 0
    assert np.array_equal(array[...], values)
    for wrong in ("many", -1, 1.5, 2**64):
        with pytest.raises(cuzarr.errors.ConfigInvalidError):
            cuzarr.config.set({"chunk_cache.max_age": wrong})
    with pytest.raises(cuzarr.errors.ArgumentTypeError):
        cuzarr.open_array(path, chunk_cache="yes")  # type: ignore[arg-type]


def test_strings_are_kept() -> None:
    store = cuzarr.storage.MemoryStore()
    texts = np.array(["a", "", "ä" * 50, "end"] * 10, dtype=object)
    array = cuzarr.create_array(store, shape=(40,), chunks=(7,), dtype=str)
    array[...] = texts
    array = cuzarr.open_array(store, mode="r", chunk_cache=True)
    for _ in range(3):
        assert list(array[...]) == list(texts) and list(array[5:30:4]) == list(texts[5:30:4])
    assert cached(array) > 0


def test_threads_share_it(stored: Stored) -> None:
    path, values = stored()
    array = cuzarr.open_array(path, mode="r", chunk_cache=True)
    wrong = []

    def read(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(50):
            row, column = dice.randrange(63), dice.randrange(47)
            if not np.array_equal(array[row : row + 9, column:], values[row : row + 9, column:]):
                wrong.append((row, column))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_has_an_empty_one(stored: Stored) -> None:
    path, values = stored()
    array = cuzarr.open_array(path, mode="r", chunk_cache=True)
    assert np.array_equal(array[...], values)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child() -> None:
        before = cuzarr.memory.info("cpu").chunk_cache
        answers.put((before, bool(np.array_equal(array[...], values)), cuzarr.memory.info("cpu").chunk_cache > 0))

    process = context.Process(target=child)
    process.start()
    process.join(60)
    assert answers.get() == (0, True, True)


class _Tenants(http.server.BaseHTTPRequestHandler):
    """Values by query and header, with strong entity tags."""

    stores: ClassVar[dict[str, dict[str, bytes]]] = {}

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        value = self.stores[self.headers.get("x-tenant") or query or "1"].get(path.removeprefix("/a.zarr/"))
        self.send_response(404 if value is None else 200)
        if value is not None:
            self.send_header("ETag", f'"{hash(value):x}"')
        self.send_header("Content-Length", str(len(value or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(value or b"")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def tenants() -> Iterator[str]:
    for number, name in enumerate(("1", "2"), 1):
        _Tenants.stores[name] = {}
        cuzarr.create_array(_Tenants.stores[name], data=np.arange(10) * number, chunks=(5,))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Tenants) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a.zarr"
        server.shutdown()


def test_tenants_of_a_server_are_kept_apart(tenants: str) -> None:
    def read(query: str, **options: Any) -> list[int]:
        array = cuzarr.open_array(tenants + query, mode="r", chunk_cache=True, storage_options=options or None)
        values = list(array[:])
        assert list(array[:]) == values and cached(array) == 2
        return values

    assert read("?1") == list(range(10))
    assert read("?2") == [2 * at for at in range(10)]
    assert read("", headers={"x-tenant": "2"}) == [2 * at for at in range(10)]
    assert read("", headers={"x-tenant": "1"}) == list(range(10))


def test_a_server_is_asked_again_after_a_time(tenants: str) -> None:
    array = cuzarr.open_array(tenants, mode="r", chunk_cache=True)
    asking = array.with_config({})
    assert list(array[:]) == list(range(10))
    cuzarr.open_array(_Tenants.stores["1"])[:] = 7
    assert list(array[:]) == list(range(10)), "trusted for a minute"
    with cuzarr.config.set({"chunk_cache.max_age": 0}):
        assert list(asking[:]) == [7] * 10


def test_stores_without_versions_keep_nothing() -> None:
    zarr = pytest.importorskip("zarr")
    store = zarr.storage.MemoryStore()
    other = zarr.create_array(store, shape=(10,), chunks=(5,), dtype="i4")
    array = cuzarr.open_array(store, mode="r", chunk_cache=True)
    for value in (0, 7, 9):
        other[:] = value
        assert list(array[:]) == [value] * 10
    assert cached(array) == 0


def test_values_that_a_program_sets_are_seen(tmp_path: Path) -> None:
    store = cuzarr.storage.MemoryStore()
    array = cuzarr.create_array(store, data=np.arange(10), chunks=(5,), compressors=None)
    array = cuzarr.open_array(store, device=gpu_device()[0], chunk_cache=True) if gpu_device()[0] else array
    for _ in range(2):
        assert list(to_host(array[:])) == list(range(10))
    store.set("c/1", np.full(5, 3).tobytes())
    assert list(to_host(array[:])) == [0, 1, 2, 3, 4] + [3] * 5
    store.delete("c/1")
    assert list(to_host(array[:])) == [0, 1, 2, 3, 4] + [0] * 5

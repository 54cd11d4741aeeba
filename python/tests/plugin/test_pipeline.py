"""zarr-python's arrays through cuzarr's pipeline, compared with NumPy and with zarr-python's own pipeline."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import cpu
from zarr.storage import LocalStore, LoggingStore, MemoryStore, StorePath, ZipStore

import cuzarr.zarr
from cuzarr.errors import CuzarrError, FallbackRefusedError

PATH = "cuzarr.zarr.CodecPipeline"


@pytest.fixture(autouse=True)
def enabled() -> Any:
    """cuzarr's pipeline, and counters that begin at zero."""
    cuzarr.zarr.fallbacks(reset=True)
    with cuzarr.zarr.enable():
        yield


@pytest.fixture(params=["memory", "local", "zip", "logging"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Stores that are known exactly, and stores that are asked."""
    match request.param:
        case "memory":
            return MemoryStore()
        case "local":
            return LocalStore(tmp_path / "store")
        case "zip":
            return ZipStore(tmp_path / "store.zip", mode="w")
    return LoggingStore(MemoryStore(), log_level="ERROR")


def by_zarr(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The same array, through zarr-python's own pipeline."""
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
        return zarr.open_array(array.store_path, zarr_format=array.metadata.zarr_format)


ARRAYS: dict[str, dict[str, Any]] = {
    "v3": {"chunks": (3, 4)},
    "v3-none": {"chunks": (3, 4), "compressors": None},
    "v3-blosc": {"chunks": (5, 6), "compressors": BloscCodec(cname="lz4", shuffle="shuffle")},
    "v3-gzip-crc": {"chunks": (4, 4), "compressors": [GzipCodec(level=1), Crc32cCodec()]},
    "v3-big-transposed": {"chunks": (3, 5), "filters": [TransposeCodec(order=(1, 0))], "serializer": BytesCodec(endian="big")},
    "v3-shards": {"chunks": (2, 3), "shards": (4, 6), "compressors": ZstdCodec(level=1)},
    "v3-F": {"chunks": (3, 4), "config": {"order": "F"}},
    "v2": {"chunks": (3, 4), "zarr_format": 2},
    "v2-F": {"chunks": (3, 4), "zarr_format": 2, "order": "F"},
}

SELECTIONS: dict[str, tuple[str, Any]] = {
    "all": ("basic", ...),
    "inside": ("basic", (slice(2, 9), slice(1, 10))),
    "steps": ("basic", (slice(1, None, 2), slice(0, 11, 5))),
    "row": ("basic", 4),
    "element": ("basic", (3, 7)),
    "lists": ("oindex", ([9, 1, 4], [0, 10])),
    "list and integer": ("oindex", ([1, 2, 8], 3)),
    "mask": ("oindex", (np.arange(10) % 3 == 0, slice(None, None, 3))),
    "points": ("vindex", ([0, 9, 4, 4], [10, 0, 5, 6])),
    "points in 2-d": ("vindex", ([[0, 9], [4, 4]], [[10, 0], [5, 6]])),
    "block": ("blocks", (1, slice(0, 2))),
}


def select(array: Any, kind: str, selection: Any) -> Any:
    return array[selection] if kind == "basic" else getattr(array, kind)[selection]


def expected(truth: np.ndarray[Any, Any], kind: str, selection: Any, blocks: tuple[int, ...]) -> Any:
    match kind:
        case "oindex":
            axes = [np.atleast_1d(np.arange(extent)[part]) for part, extent in zip(selection, truth.shape, strict=True)]
            found = truth[np.ix_(*axes)]
            return found.squeeze(tuple(axis for axis, part in enumerate(selection) if isinstance(part, int)))
        case "vindex":
            return truth[tuple(map(np.asarray, selection))]
        case "blocks":
            rows, columns = blocks
            return truth[rows : 2 * rows, : 2 * columns]
    return truth[selection]


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_reads_every_selection(kind: str, selection: str) -> None:
    truth = np.arange(110, dtype="f4").reshape(10, 11)
    array = zarr.create_array({}, shape=truth.shape, dtype="f4", **ARRAYS[kind])
    by_zarr(array)[:] = truth
    how, what = SELECTIONS[selection]
    found = select(array, how, what)
    np.testing.assert_array_equal(found, expected(truth, how, what, array.shards or array.chunks))
    if ARRAYS[kind].get("order") == "F" or "config" in ARRAYS[kind]:
        assert found.ndim < 2 or how != "basic" or found.flags.f_contiguous
    assert cuzarr.zarr.fallbacks() == {}


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_writes_every_selection(kind: str, selection: str) -> None:
    truth = np.arange(110, dtype="f4").reshape(10, 11)
    array = zarr.create_array({}, shape=truth.shape, dtype="f4", **ARRAYS[kind])
    array[:] = truth
    how, what = SELECTIONS[selection]
    plain = dict(ARRAYS[kind])
    plain["chunks"] = plain.pop("shards", plain["chunks"])  # zarr-python 3.1 fails to write some masks to shards
    wanted = by_zarr(zarr.create_array({}, shape=truth.shape, dtype="f4", **plain))
    wanted[:] = truth
    value = -np.ones_like(select(wanted, how, what))
    for target in (array, wanted):
        if how == "basic":
            target[what] = value
        else:
            getattr(target, how)[what] = value
    np.testing.assert_array_equal(by_zarr(array)[:], wanted[:])
    assert cuzarr.zarr.fallbacks() == {}


def test_works_on_every_kind_of_store(store: Any) -> None:
    truth = np.arange(40 * 30, dtype="i8").reshape(40, 30)
    group = zarr.open_group(store)
    for name, extra in {"plain": {}, "shards": {"shards": (14, 14)}}.items():
        array = group.create_array(name, shape=truth.shape, chunks=(7, 7), dtype="i8", **extra)
        array[:30] = truth[:30]
        np.testing.assert_array_equal(array[5:35, ::2], np.where(np.arange(40)[:, None] < 30, truth, 0)[5:35, ::2])
        array[30:] = truth[30:]
        np.testing.assert_array_equal(array.oindex[[3, 33], :], truth[[3, 33]])
        np.testing.assert_array_equal(by_zarr(array)[:], truth)
    assert cuzarr.zarr.fallbacks() == {}
    store.close()


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (">i4", [1, -2, 3]),
        (">f8", [1.5, float("nan"), -0.0]),
        ("bool", [True, False, True]),
        ("c8", [1j, 2, -1]),
        ("M8[ns]", ["2020-01-01", "NaT", "1970-01-01"]),
        (">m8[3s]", [1, -2, "NaT"]),
        ("<U3", ["a", "", "äöü"]),
        ("S2", [b"a", b"", b"xy"]),
        ("V3", [b"abc", b"\0\0\1", b"   "]),
        ([("a", "<i2"), ("b", ">f4")], [(1, 2.5), (-1, 0), (3, 4)]),
        (str, ["one", "", "a longer string"]),
    ],
)
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:.*not have a Zarr V3")
def test_holds_every_data_type(dtype: Any, values: list[Any], zarr_format: Any) -> None:
    array = zarr.create_array({}, shape=(7,), chunks=(2,), dtype=dtype, zarr_format=zarr_format)
    given = np.array(values, array.dtype)
    array[1:4] = given
    array.oindex[[6]] = given[:1]
    for reader in (array, by_zarr(array)):
        np.testing.assert_array_equal(reader[1:4], given)
        np.testing.assert_array_equal(reader.vindex[[6, 2]], given[[0, 1]])
    assert array[:].dtype == array.dtype
    assert cuzarr.zarr.fallbacks() == {}


@pytest.mark.parametrize("order", ["C", "F"])
def test_fills_memory_of_any_layout(order: Any) -> None:
    truth = np.arange(60, dtype="i4").reshape(6, 10)
    array = zarr.create_array({}, shape=truth.shape, chunks=(4, 3), dtype="i4")
    array[:] = truth
    room = np.full((12, 10), -1, "i4", order=order)
    out = cpu.NDBuffer.from_numpy_array(room[::-2])
    array.get_basic_selection(..., out=out)
    np.testing.assert_array_equal(room[::-2], truth)
    assert (room[::2] == -1).all()


def test_tells_which_chunks_are_missing() -> None:
    array = zarr.create_array({}, shape=(8,), chunks=(2,), dtype="i4", fill_value=7)
    array[2:4] = [1, 2]
    pipeline = array._async_array.codec_pipeline
    spec = (
        array._async_array.metadata.get_chunk_spec((0,), array._async_array.config, cpu.buffer_prototype)
        if hasattr(array._async_array.metadata, "get_chunk_spec")
        else None
    )
    if spec is None:
        from zarr.core.array_spec import ArraySpec

        spec = ArraySpec((2,), array.metadata.dtype, array.metadata.fill_value, array._async_array.config, cpu.buffer_prototype)
    batch = [(array.store_path / f"c/{at}", spec, (slice(0, 2),), (slice(2 * at, 2 * at + 2),), True) for at in range(4)]
    out = np.zeros(8, "i4")
    results = asyncio.run(pipeline.read(batch, cpu.NDBuffer.from_numpy_array(out)))
    assert [result["status"] for result in results] == ["missing", "present", "missing", "missing"]
    assert out.tolist() == [7, 7, 1, 2, 7, 7, 7, 7]
    out[:] = 0
    assert [result["status"] for result in pipeline.read_sync(batch, cpu.NDBuffer.from_numpy_array(out))].count("missing") == 3
    assert out.tolist() == [7, 7, 1, 2, 7, 7, 7, 7]
    pipeline.write_sync(batch, cpu.NDBuffer.from_numpy_array(np.arange(8, dtype="i4")))
    assert array[:].tolist() == list(range(8))


@pytest.mark.skipif(not hasattr(zarr.errors, "ChunkNotFoundError"), reason="this zarr-python fills what is missing")
def test_missing_chunks_can_be_errors() -> None:
    with zarr.config.set({"array.read_missing_chunks": False}):
        array = zarr.create_array({}, shape=(8,), chunks=(2,), dtype="i4")
        array[:4] = 1
        with pytest.raises(zarr.errors.ChunkNotFoundError, match="2 chunk"):
            array[:]


@pytest.mark.parametrize("write_empty", [True, False])
def test_stores_empty_chunks_when_asked(write_empty: bool) -> None:
    array = zarr.create_array({}, shape=(8,), chunks=(2,), dtype="i4", fill_value=3, config={"write_empty_chunks": write_empty})
    array[:] = 3
    array.oindex[[0, 7]] = 3
    assert array.nchunks_initialized == (4 if write_empty else 0)
    array[0] = 4
    array[0] = 3
    assert array.nchunks_initialized == (4 if write_empty else 0)


def test_decodes_and_encodes_chunks_at_hand() -> None:
    from zarr.core.array_spec import ArrayConfig, ArraySpec
    from zarr.core.dtype import Int32

    spec = ArraySpec((2, 3), Int32(), np.int32(0), ArrayConfig.from_dict({}), cpu.buffer_prototype)
    codecs = [TransposeCodec(order=(1, 0)), BytesCodec(), ZstdCodec(level=1)]
    pipeline = cuzarr.zarr.CodecPipeline.from_codecs(codecs).evolve_from_array_spec(spec)
    chunks = [cpu.NDBuffer.from_numpy_array(np.arange(6, dtype="i4").reshape(2, 3) + at) for at in range(3)]
    given = [(chunks[0], spec), (None, spec), (chunks[1], spec), (chunks[2], spec)]
    encoded = list(asyncio.run(pipeline.encode(given)))
    decoded = list(asyncio.run(pipeline.decode([(chunk, spec) for chunk in encoded])))
    by_default = zarr.core.codec_pipeline.BatchedCodecPipeline.from_codecs(pipeline.codecs)
    theirs = list(asyncio.run(by_default.decode([(chunk, spec) for chunk in encoded])))
    assert encoded[1] is decoded[1] is theirs[1] is None
    for at, chunk in zip((0, 2, 3), chunks, strict=True):
        np.testing.assert_array_equal(decoded[at].as_numpy_array(), chunk.as_numpy_array())
        np.testing.assert_array_equal(theirs[at].as_numpy_array(), chunk.as_numpy_array())
    assert cuzarr.zarr.calls() == {"encode": 1, "decode": 1}


def test_pipelines_are_pickled_and_compared() -> None:
    array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="i4")
    pipeline = array._async_array.codec_pipeline
    assert type(pipeline) is cuzarr.zarr.CodecPipeline
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline
    assert pipeline != zarr.create_array({}, shape=(4,), chunks=(2,), dtype="f4", compressors=None)._async_array.codec_pipeline
    with pytest.raises(NotImplementedError):
        pipeline.compute_encoded_size(8, None)


class OwnBytes(BytesCodec):
    """A program's own codec."""


def test_calls_the_codecs_that_a_program_registered() -> None:
    zarr.registry.register_codec("bytes", OwnBytes)
    try:
        with zarr.config.set({"codecs.bytes": f"{OwnBytes.__module__}.{OwnBytes.__qualname__}"}):
            array = zarr.open_array(zarr.create_array({}, shape=(4,), chunks=(2,), dtype="i4").store_path)
            array[:] = 1
            assert array[:].tolist() == [1] * 4
        assert list(cuzarr.zarr.fallbacks()) == [f"codec class {OwnBytes.__module__}.OwnBytes is a program's own"]
        with cuzarr.config.set({"strict": True}), pytest.raises(FallbackRefusedError, match="OwnBytes"):
            array[:]
    finally:
        registries = vars(zarr.registry).get("_codec_registries") or vars(zarr.registry)["__codec_registries"]
        registries["bytes"].pop(f"{OwnBytes.__module__}.{OwnBytes.__qualname__}")


def test_decodes_inner_chunks_for_the_sharding_codec_of_zarr() -> None:
    truth = np.arange(600, dtype="i4")
    array = zarr.create_array({}, shape=(600,), chunks=(10,), shards=(300,), dtype="i4")
    array[:] = truth
    sharding = array.metadata.codecs[0]
    own = type("Own", (type(sharding),), {"__module__": "program"})
    object.__setattr__(
        array.metadata,
        "codecs",
        (own(**{name: getattr(sharding, name) for name in ("chunk_shape", "codecs", "index_codecs", "index_location")}),),
    )
    wrapped = zarr.Array(type(array._async_array)(array.metadata, array.store_path))
    cuzarr.zarr.fallbacks(reset=True)
    np.testing.assert_array_equal(wrapped.vindex[[3, 17, 599]], [3, 17, 599])
    wrapped[5:15] = 0
    assert wrapped[:].sum() == truth.sum() - truth[5:15].sum()
    assert cuzarr.zarr.calls().get("read", 0) > 0, "inner chunks are ours"
    assert cuzarr.zarr.fallbacks() == {"codec class program.Own is a program's own": 3}


def test_damaged_chunks_are_errors() -> None:
    store: dict[str, Any] = {}
    array = zarr.create_array(store, shape=(100,), chunks=(100,), dtype="i4", compressors=[ZstdCodec(), Crc32cCodec()])
    array[:] = np.arange(100)
    key = next(key for key in store if "c/" in key)
    raw = bytearray(store[key].to_bytes())
    raw[len(raw) // 2] ^= 1
    store[key] = cpu.Buffer.from_bytes(bytes(raw))
    with pytest.raises(CuzarrError, match="checksum"):
        array[:]


def test_errors_of_a_store_are_raised_as_they_are() -> None:
    class Broken(MemoryStore):
        async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
            if "c/" in key:
                raise ConnectionAbortedError("gone")
            return await super().get(key, *args, **kwargs)

    array = zarr.create_array(Broken(), shape=(4,), chunks=(2,), dtype="i4")
    with pytest.raises(ConnectionAbortedError, match="gone"):
        array[:]


def test_read_only_stores_are_refused() -> None:
    store = MemoryStore()
    zarr.create_array(store, shape=(4,), chunks=(2,), dtype="i4")
    array = zarr.open_array(store.with_read_only(True), mode="r")
    with pytest.raises(ValueError, match="read-only"):
        array[:] = 1


def test_a_cancelled_read_ends_and_leaves_nothing_running() -> None:
    class Slow(MemoryStore):
        running = 0

        async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
            if "c/" in key:
                Slow.running += 1
                try:
                    await gate.wait()
                finally:
                    Slow.running -= 1
            return await super().get(key, *args, **kwargs)

    async def story() -> None:
        global gate
        gate = asyncio.Event()
        array = await zarr.api.asynchronous.create_array(Slow(), shape=(64,), chunks=(1,), dtype="i4")
        reading = asyncio.create_task(array.getitem(...))
        while not Slow.running:
            await asyncio.sleep(0.001)
        reading.cancel()
        asyncio.get_running_loop().call_later(0.01, gate.set)
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(story())


gate: asyncio.Event


def _sum(path: str) -> int:
    return int(zarr.open_array(path, mode="r")[:].sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_works_in_processes_of_a_process_that_used_it(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZARR_CODEC_PIPELINE__PATH", PATH)
    array = zarr.create_array(tmp_path / "a", shape=(1000,), chunks=(10,), dtype="i8")
    array[:] = np.arange(1000)
    assert _sum(str(tmp_path / "a")) == 499500
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(_sum, [str(tmp_path / "a")] * 4).get(timeout=60) == [499500] * 4


def test_keeps_what_a_shard_holds_beyond_the_edge() -> None:
    array = zarr.create_array({}, shape=(4,), chunks=(1,), shards=(4,), dtype="i2", fill_value=0)
    array[:] = [1, 2, 3, 4]
    array.resize((2,))
    array[:] = [9, 9]
    array.resize((4,))
    assert array[:].tolist() == [9, 9, 3, 4]


def test_store_paths_of_other_arrays_do_not_mix(tmp_path: Path) -> None:
    group = zarr.open_group(LocalStore(tmp_path))
    for name in ("a", "b/c"):
        group.create_array(name, shape=(4,), chunks=(2,), dtype="i4")[:] = len(name)
    assert (group["a"][:] == 1).all() and (group["b/c"][:] == 3).all()
    assert isinstance(group["a"].store_path, StorePath)


def test_chunks_may_be_larger_than_the_memory_limit_unless_one_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuzarr.errors import BudgetExceededError
    from cuzarr.zarr import _boxes, _work

    array = zarr.create_array({}, shape=(10000,), chunks=(10000,), dtype="i4")
    limits = []
    real = _work.run_options
    monkeypatch.setattr(_work, "_MEMORY_LIMIT_BYTES", 50000)
    for module in (_boxes, _work):
        monkeypatch.setattr(module, "run_options", lambda *given: limits.append(real(*given)) or limits[-1])
    array[:] = 1
    assert array[:].sum() == 10000
    assert [limit["memory_limit_bytes"] for limit in limits] == [160000, 160000]
    with cuzarr.config.set({"memory_limit": 50000}), pytest.raises(BudgetExceededError):
        array[:5000] = 2


@pytest.mark.parametrize("arguments", [{}, {"shards": (4,)}])
@pytest.mark.parametrize("dtype", ["<i4", "<U3"])
def test_takes_an_array_of_one_element_for_an_element(dtype: str, arguments: dict[str, Any]) -> None:
    array = zarr.create_array({}, shape=(4,), chunks=(1,), dtype=dtype, **arguments)
    array[2] = np.array([5]).astype(dtype)
    assert by_zarr(array)[...].tolist() == ([0, 0, 5, 0] if dtype == "<i4" else ["", "", "5", ""])

"""zarr-python's arrays in GPU memory through cuzarr's pipeline, compared with the same arrays in host memory."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import LZ4, Blosc, Delta, GZip, Shuffle, Zlib, Zstd
from numcodecs.checksum32 import JenkinsLookup3
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec, numcodecs as own
from zarr.storage import GpuMemoryStore, LocalStore, MemoryStore, ZipStore

import cuzarr.zarr


def _problem() -> str | None:
    try:
        import cupy

        cupy.zeros(1).sum().get()
    except Exception as error:
        return f"no CuPy with a GPU: {error}"
    return None


PROBLEM = _problem()
if PROBLEM is not None and os.environ.get("CUZARR_REQUIRE_GPU") == "1":
    raise RuntimeError(PROBLEM)
pytestmark = [
    pytest.mark.skipif(PROBLEM is not None, reason=f"skipped: {PROBLEM}"),
    pytest.mark.filterwarnings("ignore:Creating a zarr.buffer.gpu", "ignore:Numcodecs codecs are not"),
]

FILTERS_V2 = [Delta(dtype="f4")]
CODECS: dict[str, dict[str, Any]] = {
    "none": {"compressors": None},
    "zstd": {"compressors": ZstdCodec(level=3)},
    "zstd checksum": {"compressors": ZstdCodec(level=1, checksum=True)},
    "gzip": {"compressors": GzipCodec(level=5)},
    "blosc lz4 shuffle": {"compressors": BloscCodec(cname="lz4", shuffle="shuffle")},
    "blosc zstd bitshuffle": {"compressors": BloscCodec(cname="zstd", shuffle="bitshuffle")},
    "blosc blosclz": {"compressors": BloscCodec(cname="blosclz", shuffle="noshuffle")},
    "crc32c": {"compressors": [ZstdCodec(level=1), Crc32cCodec()]},
    "big endian, transposed": {"filters": [TransposeCodec(order=(1, 0))], "serializer": BytesCodec(endian="big")},
    "numcodecs.lz4": {"compressors": own.LZ4()},
    "numcodecs.zlib": {"compressors": own.Zlib(level=2)},
    "numcodecs.bz2": {"compressors": own.BZ2(level=2)},
    "numcodecs.shuffle": {"compressors": [own.Shuffle(elementsize=4), own.Zstd(level=2)]},
    "numcodecs.fletcher32": {"compressors": [own.Fletcher32()]},
    "numcodecs.delta": {"filters": [own.Delta(dtype="<f4")]},
    "numcodecs.bitround": {"filters": [own.BitRound(keepbits=23)]},
    "numcodecs.jenkins_lookup3": {"compressors": own.JenkinsLookup3()},
    "shards": {"shards": (28, 36), "compressors": ZstdCodec(level=1)},
    "shards none": {"shards": (28, 36), "compressors": None},
    "shards jenkins": {"shards": (28, 36), "compressors": own.JenkinsLookup3()},
    "shards blosc": {"shards": (28, 36), "compressors": BloscCodec(cname="lz4")},
    "F": {"config": {"order": "F"}},
    "v2 default": {"zarr_format": 2},
    "v2 none": {"zarr_format": 2, "compressors": None},
    "v2 F": {"zarr_format": 2, "order": "F"},
    "v2 blosc": {"zarr_format": 2, "compressors": Blosc(cname="lz4")},
    "v2 lz4": {"zarr_format": 2, "compressors": LZ4()},
    "v2 gzip": {"zarr_format": 2, "compressors": GZip(level=1)},
    "v2 zlib": {"zarr_format": 2, "compressors": Zlib(level=1)},
    "v2 zstd": {"zarr_format": 2, "compressors": Zstd(level=1)},
    "v2 jenkins": {"zarr_format": 2, "compressors": JenkinsLookup3()},
    "v2 delta": {"zarr_format": 2, "filters": FILTERS_V2, "compressors": Zstd(level=1)},
    "v2 shuffle": {"zarr_format": 2, "filters": [Shuffle(elementsize=4)], "compressors": Zstd(level=1)},
}

SHAPE, CHUNKS = (60, 50), (7, 9)
SELECTIONS: dict[str, tuple[str, Any]] = {
    "all": ("basic", ...),
    "inside": ("basic", (slice(3, 44), slice(8, 31))),
    "steps": ("basic", (slice(1, None, 3), slice(0, 50, 20))),
    "row": ("basic", 31),
    "element": ("basic", (33, 7)),
    "lists": ("orthogonal", ([59, 1, 14, 2], [0, 49, 3])),
    "list and integer": ("orthogonal", ([1, 20, 58], 13)),
    "mask and step": ("orthogonal", (np.arange(60) % 7 == 0, slice(None, None, 3))),
    "points": ("coordinate", ([0, 59, 4, 4], [49, 0, 5, 6])),
    "points in 2-d": ("coordinate", ([[0, 59], [4, 4]], [[49, 0], [5, 6]])),
    "mask": ("mask", np.add.outer(np.arange(60), np.arange(50)) % 11 == 0),
    "blocks": ("block", (slice(1, 2), slice(0, 1))),
}
TRUTH = np.linspace(-3, 3, 3000, dtype="f4").reshape(SHAPE)


def create(store: Any, codecs: str, name: str) -> zarr.Array[Any]:
    return zarr.create_array(store, name=name, shape=SHAPE, chunks=CHUNKS, dtype="f4", **CODECS[codecs])


def prototype() -> Any:
    from zarr.buffer import gpu

    return gpu.buffer_prototype


@pytest.fixture(autouse=True)
def enabled() -> Any:
    """The pipeline and the repairs; buffers are chosen call by call."""
    cuzarr.zarr.fallbacks(reset=True)
    with cuzarr.zarr.enable(), warnings.catch_warnings():
        warnings.simplefilter("ignore", cuzarr.zarr.FallbackWarning)
        yield


@pytest.mark.parametrize("codecs", CODECS)
def test_reads_every_selection(codecs: str) -> None:
    import cupy

    array = create(MemoryStore(), codecs, "a")
    array[:] = TRUTH
    for name, (kind, selection) in SELECTIONS.items():
        call = getattr(array, f"get_{kind}_selection", None)
        expected, found = call(selection), call(selection, prototype=prototype())
        assert isinstance(found, cupy.ndarray) or np.ndim(expected) == 0, name
        np.testing.assert_array_equal(cupy.asnumpy(found), expected, err_msg=name)


@pytest.mark.parametrize("codecs", CODECS)
def test_writes_every_selection(codecs: str) -> None:
    import cupy

    for name, (kind, selection) in SELECTIONS.items():
        store = MemoryStore()
        on_host, on_device = create(store, codecs, "host"), create(store, codecs, "device")
        on_host[:] = on_device[:] = TRUTH
        value = -np.ones_like(getattr(on_host, f"get_{kind}_selection")(selection)) * 2.5
        getattr(on_host, f"set_{kind}_selection")(selection, value)
        getattr(on_device, f"set_{kind}_selection")(selection, cupy.asarray(value), prototype=prototype())
        np.testing.assert_array_equal(on_device[:], on_host[:], err_msg=name)


@pytest.mark.parametrize("kind", ["memory", "gpu memory", "local", "zip"])
@pytest.mark.parametrize(
    "codecs", ["none", "zstd", "numcodecs.jenkins_lookup3", "shards", "shards jenkins", "v2 default", "v2 jenkins"]
)
def test_works_on_every_kind_of_store_with_gpu_buffers_everywhere(kind: str, codecs: str, tmp_path: Path) -> None:
    import cupy

    store = {
        "memory": MemoryStore,
        "gpu memory": GpuMemoryStore,
        "local": lambda: LocalStore(tmp_path / "store"),
        "zip": lambda: ZipStore(tmp_path / "store.zip", mode="w"),
    }[kind]()
    with zarr.config.enable_gpu():
        array = create(store, codecs, "a")
        array[:] = cupy.asarray(TRUTH)
        array.oindex[[50, 3], 2:40] = cupy.asarray(TRUTH[[50, 3], 2:40])
        found = array[5:55:2]
        assert isinstance(found, cupy.ndarray)
        np.testing.assert_array_equal(found.get(), TRUTH[5:55:2])
        np.testing.assert_array_equal(array.vindex[[[1, 2]], [[3, 4]]].get(), TRUTH[[[1, 2]], [[3, 4]]])
        np.testing.assert_array_equal(np.asarray(array), TRUTH)
    if kind == "gpu memory":
        return
    np.testing.assert_array_equal(create_again(store, "a")[:], TRUTH)


def create_again(store: Any, name: str) -> zarr.Array[Any]:
    """The same array, read with buffers of the host."""
    return zarr.open_array(store, path=name)


@pytest.mark.parametrize("dtype", ["bool", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_holds_every_data_type_of_cupy(dtype: str) -> None:
    import cupy

    truth = (np.arange(300).reshape(20, 15) % 5).astype(dtype)
    array = zarr.create_array({}, shape=truth.shape, chunks=(7, 4), dtype=dtype)
    array.set_basic_selection(..., cupy.asarray(truth), prototype=prototype())
    found = array.get_basic_selection(..., prototype=prototype())
    assert found.dtype == truth.dtype
    np.testing.assert_array_equal(found.get(), truth)
    np.testing.assert_array_equal(array[:], truth)


def test_fills_memory_of_any_layout() -> None:
    import cupy
    from zarr.buffer import gpu

    array = zarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype="f4")
    array[:] = TRUTH
    for order in "CF":
        room = cupy.full((120, 50), -1, "f4", order=order)
        array.get_basic_selection(..., out=gpu.NDBuffer(room[::2]), prototype=prototype())
        np.testing.assert_array_equal(room[::2].get(), TRUTH)
        assert bool((room[1::2] == -1).all())


def test_a_write_follows_what_the_current_stream_computes() -> None:
    import cupy

    array = zarr.create_array({}, shape=(1 << 22,), chunks=(1 << 20,), dtype="f4", compressors=None)
    with cupy.cuda.Stream(non_blocking=True):
        value = cupy.zeros(1 << 22, "f4")
        for _ in range(20):
            value += 1
        array.set_basic_selection(..., value, prototype=prototype())
    assert (array[:] == 20).all()


def test_says_once_an_array_what_the_host_does() -> None:
    array = create(MemoryStore(), "numcodecs.jenkins_lookup3", "a")
    array[:] = TRUTH
    with pytest.warns(cuzarr.zarr.FallbackWarning, match="jenkins") as told:
        warnings.simplefilter("always", cuzarr.zarr.FallbackWarning)
        for _ in range(3):
            again = array.get_basic_selection(..., prototype=prototype())
    assert len([warning for warning in told if issubclass(warning.category, cuzarr.zarr.FallbackWarning)]) <= 1
    np.testing.assert_array_equal(again.get(), TRUTH)


@pytest.mark.parametrize("dtype", [">f4", "M8[s]", "S4", [("a", "<i4"), ("b", "<f8")], [("a", ">u2"), ("c", "U2")]], ids=str)
def test_elements_that_cupy_has_not_are_read_and_written_with_our_buffers(dtype: Any) -> None:
    truth = np.zeros((20, 6), dtype)
    truth["a" if truth.dtype.names else ...] = (
        np.arange(120).reshape(20, 6).astype(truth.dtype["a"] if truth.dtype.names else dtype)
    )
    array = zarr.create_array({}, shape=truth.shape, chunks=(7, 4), dtype=truth.dtype, zarr_format=2)
    with zarr.config.set({"buffer": "cuzarr.zarr.Buffer", "ndbuffer": "cuzarr.zarr.NDBuffer"}):
        array[:] = truth
        for same in (array, truth):
            same[3:9] = truth[1, 2]
            same[12:] = same[2:10]
        array.oindex[[11, 1], :] = truth[[11, 1]] = truth[0, 5]
        found = array.oindex[[1, 12, 19], 2:]
        assert isinstance(found, cuzarr.DeviceArray)
        np.testing.assert_array_equal(found.cpu(), truth[[1, 12, 19], 2:])
    np.testing.assert_array_equal(array[:], truth)

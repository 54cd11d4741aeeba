"""What the tests of KvikIO 25.08's Zarr helpers (``test_zarr.py``, 14 functions) asserted, of ``cuzarr.kvikio``.

==========================================  ========  =================================================================
function there                              here      what differs
==========================================  ========  =================================================================
test_direct_store_access                    ported
test_direct_store_access_getitems           ported
test_array                                  changed   zarr-python 2 has ``meta_array=``; here the device is given
test_group                                  changed   likewise
test_open_array                             changed   likewise
test_dask_read                              changed   likewise
test_dask_write                             changed   likewise
test_compressor                             changed   nvCOMP's own formats are read where it is installed, and not written
test_decompressor_config_overwrite          ported    nothing is overwritten: the CPU's codec is the GPU's (LZ4 and zstd)
test_compressor_config_overwrite            ported    likewise
test_open_cupy_array                        ported    the codec that is used is cuzarr's LZ4, not nvCOMP's
test_open_cupy_array_written_by_zarr        ported    zarr-python 3 writes the array, in format 2
test_open_cupy_array_incompatible_compr…    ported    likewise
test_open_cupy_array_unknown_mode           ported
==========================================  ========  =================================================================
"""

from __future__ import annotations

import json
import sys
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import NAME, is_on, on, require, to_host

import cuzarr
from cuzarr import kvikio
from cuzarr.errors import ArrayNotFoundError, UnknownCodecError

WHERE = ["cpu", NAME]


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    """The GPU of the tests is the configured one."""
    with cuzarr.config.set({"device": require()}):
        yield


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return kvikio.GDSStore(tmp_path / "test-file.zarr")


@pytest.fixture(params=WHERE)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_values_are_read_as_bytes(store: Any, device: str) -> None:
    store["a"] = on(device, np.arange(5, dtype="u1"))
    read = store["a"]
    assert isinstance(read, bytes)
    np.testing.assert_array_equal(np.frombuffer(read, "u1"), np.arange(5))


@pytest.mark.parametrize("written", WHERE)
@pytest.mark.parametrize("first", WHERE)
@pytest.mark.parametrize("second", WHERE)
def test_many_values_are_read_to_where_each_is_wanted(store: Any, written: str, first: str, second: str) -> None:
    value = np.arange(5, dtype="u1")
    store["a"] = on(written, value)
    store["b"] = on(written, value * 2)
    contexts = {"a": {"meta_array": on(first, value)}, "b": {"meta_array": on(second, value)}}
    found = store.getitems(keys=["a", "b", "missing"], contexts=contexts)
    assert is_on(first, found["a"]) and is_on(second, found["b"]) and set(found) == {"a", "b"}
    np.testing.assert_array_equal(to_host(found["a"]), value)
    np.testing.assert_array_equal(to_host(found["b"]), value * 2)


def test_an_array_is_made_of_another(store: Any, device: str) -> None:
    value = on(device, np.arange(100))
    array = cuzarr.array(value, chunks=10, compressor=None, store=store, zarr_format=2, device=device)
    assert is_on(device, array[:]) and array.device == device
    assert array.shape == value.shape and array.dtype == value.dtype
    np.testing.assert_array_equal(to_host(array[:]), np.arange(100))


def test_a_group_makes_arrays(store: Any, device: str) -> None:
    group = cuzarr.open_group(store, zarr_format=2)
    group.ones(name="data", shape=(10, 11), dtype=int, compressor=None)
    array = group["data"].with_device(device)
    assert array.shape == (10, 11) and array.dtype == int and isinstance(array, cuzarr.Array)
    assert is_on(device, array[:]) and (to_host(array[:]) == 1).all()


def test_an_array_is_opened(store: Any, device: str) -> None:
    value = on(device, np.arange(10))
    array = cuzarr.open_array(
        store, shape=value.shape, dtype=value.dtype, chunks=(10,), compressor=None, zarr_format=2, device=device, mode="a"
    )
    array[:] = value
    assert array.shape == value.shape and array.dtype == value.dtype and is_on(device, array[:])
    np.testing.assert_array_equal(to_host(array[:]), np.arange(10))


@pytest.mark.parametrize("inline_array", [True, False])
def test_dask_reads(store: Any, device: str, inline_array: bool) -> None:
    dask_array = pytest.importorskip("dask.array")
    if device == "simt":
        pytest.skip("no arithmetic on simt's arrays")
    array = cuzarr.array(np.arange(100), chunks=10, compressor=None, store=store, zarr_format=2, device=device)
    lazy = dask_array.from_array(array, chunks=10, inline_array=inline_array) + 1
    np.testing.assert_array_equal(to_host(lazy.compute()), np.arange(100) + 1)


def test_dask_writes(store: Any, device: str) -> None:
    dask_array = pytest.importorskip("dask.array")
    if device == "simt":
        pytest.skip("no arithmetic on simt's arrays")
    array = cuzarr.open_array(store, shape=100, dtype="i8", chunks=10, compressor=None, zarr_format=2, mode="a")
    dask_array.from_array(on(device, np.arange(100)), chunks=10).store(array, lock=False)
    np.testing.assert_array_equal(to_host(cuzarr.open_array(store, device=device)[:]), np.arange(100))


NVCOMP = ["LZ4", "Snappy", "ANS", "Bitcomp", "Cascaded", "Gdeflate"]


def store_encoded(folder: Path, compressor: dict[str, Any], chunks: list[bytes]) -> None:
    """An array of ten integers in two chunks, encoded by somebody else."""
    kvikio.open_cupy_array(folder, mode="w", shape=10, dtype="i4", chunks=5)
    document = json.loads((folder / ".zarray").read_bytes())
    (folder / ".zarray").write_text(json.dumps(document | {"compressor": compressor}))
    for number, chunk in enumerate(chunks):
        (folder / str(number)).write_bytes(chunk)


@pytest.mark.parametrize("algorithm", NVCOMP)
def test_formats_of_nvcomp_are_refused_by_name_where_it_is_missing(
    tmp_path: Path, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.nvcomp", None)
    store_encoded(tmp_path, {"id": f"nvcomp_{algorithm}"}, [])
    with pytest.raises(UnknownCodecError, match=f"(?s)nvcomp_{algorithm}.*pip install nvidia-nvcomp"):
        kvikio.open_cupy_array(tmp_path, mode="r")


class Stand:
    """In place of ``nvidia.nvcomp``: the calls that are made of it, with zlib's format and a size in front."""

    class Array:
        def __init__(self, value: Any) -> None:
            self.value = np.asarray(value)

        def cuda(self) -> Any:
            return self

        cpu = cuda

        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            return self.value

    class Codec:
        def get_uncomp_buffer_size(self, source: Any) -> int:
            return int(source.value[:8].view("<u8")[0])

        def decode(self, source: Any) -> Any:
            return Stand.Array(np.frombuffer(zlib.decompress(source.value[8:]), "u1"))

    as_array = Array

    @staticmethod
    def encode(value: Any) -> bytes:
        raw = np.asarray(value).tobytes()
        return np.uint64(len(raw)).tobytes() + zlib.compress(raw)


@pytest.mark.parametrize("algorithm", NVCOMP)
@pytest.mark.filterwarnings("ignore::cuzarr.errors.CuzarrRuntimeWarning")
def test_formats_of_nvcomp_are_read_and_not_written(
    tmp_path: Path, algorithm: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.nvcomp", Stand)
    monkeypatch.setattr(nvidia_package(), "nvcomp", Stand, raising=False)
    value = np.arange(10, dtype="i4")
    huge = np.uint64(1 << 40).tobytes()
    store_encoded(tmp_path, {"id": f"nvcomp_{algorithm}"}, [Stand.encode(value[:5]), Stand.encode(value[5:])])
    array = cuzarr.open_array(tmp_path, mode="r+", device=device)
    assert is_on(device, array[:]) and to_host(array[:]).tolist() == value.tolist()
    assert to_host(kvikio.open_cupy_array(tmp_path, mode="r")[3:7]).tolist() == [3, 4, 5, 6]
    with pytest.raises(cuzarr.errors.CuzarrError, match="can be read, but not written"):
        array[:] = on(device, value)
    (tmp_path / "1").write_bytes(huge + Stand.encode(value)[8:])
    with pytest.raises(cuzarr.errors.CuzarrError, match="says that it holds 1099511627776 bytes"):
        array[:]


@pytest.mark.parametrize("algorithm", [*NVCOMP, "batch snappy", "batch deflate", "batch gdeflate"])
@pytest.mark.filterwarnings("ignore::cuzarr.errors.CuzarrRuntimeWarning")
def test_what_nvcomp_itself_encoded_is_read(tmp_path: Path, algorithm: str) -> None:
    nvcomp = pytest.importorskip("nvidia.nvcomp")
    if not NAME.startswith("cuda"):
        pytest.skip("skipped: nvCOMP needs a GPU")
    value = np.arange(10, dtype="i4")
    kind, _, name = algorithm.rpartition(" ")
    options: dict[str, Any] = {
        "algorithm": {"snappy": "Snappy", "gdeflate": "GDeflate", "deflate": "Deflate"}.get(name.lower(), name)
    }
    compressor = {"id": f"nvcomp_{name}"}
    if kind:
        options["bitstream_kind"] = nvcomp.BitstreamKind.RAW
        compressor = {"id": "nvcomp_batch", "algorithm": name, "options": {}}  # type: ignore[dict-item]
    codec = nvcomp.Codec(**options)
    # nvCOMP's own copies are not aligned as its ANS wants them.
    given = [nvcomp.as_array(on(NAME, part.view("u1"))) for part in (value[:5], value[5:])]
    parts = [np.asarray(codec.encode(part).cpu()).tobytes() for part in given]
    store_encoded(tmp_path, compressor, parts)
    for array in (kvikio.open_cupy_array(tmp_path, mode="r"), cuzarr.open_array(tmp_path, mode="r", device="cpu")):
        assert to_host(array[:]).tolist() == value.tolist()


@pytest.mark.parametrize("algorithm", ["lz4", "zstd"])
@pytest.mark.filterwarnings("ignore::cuzarr.errors.CuzarrRuntimeWarning")
def test_frames_of_nvcomps_batches_that_numcodecs_knows_need_no_nvcomp(tmp_path: Path, algorithm: str) -> None:
    numcodecs = pytest.importorskip("numcodecs")
    value, codec = np.arange(10, dtype="i4"), numcodecs.get_codec({"id": algorithm})
    store_encoded(
        tmp_path, {"id": "nvcomp_batch", "algorithm": algorithm}, [bytes(codec.encode(value[:5])), bytes(codec.encode(value[5:]))]
    )  # fmt: skip
    assert to_host(kvikio.open_cupy_array(tmp_path, mode="r")[:]).tolist() == value.tolist()


def nvidia_package() -> Any:
    """NVIDIA's packages share this one; where none is installed it is made."""
    try:
        import nvidia
    except ImportError:
        nvidia = sys.modules["nvidia"] = types.ModuleType("nvidia")
    return nvidia


@pytest.mark.parametrize("algorithm", ["lz4", "zstd"])
def test_what_the_cpu_compressed_is_read_to_the_gpu(tmp_path: Path, device: str, algorithm: str) -> None:
    zarr, numcodecs = pytest.importorskip("zarr"), pytest.importorskip("numcodecs")
    codec = numcodecs.registry.get_codec({"id": algorithm})
    written = zarr.create_array(tmp_path, shape=(10,), dtype="i8", chunks=(10,), compressors=codec, zarr_format=2)
    written[:] = np.arange(10)
    array = cuzarr.open_array(kvikio.GDSStore(tmp_path), mode="r", device=device)
    assert array.compressor.get_config()["id"] == algorithm and is_on(device, array[:])
    np.testing.assert_array_equal(to_host(array[:]), np.arange(10))


def test_what_the_gpu_compressed_is_read_on_the_cpu(tmp_path: Path, device: str) -> None:
    zarr = pytest.importorskip("zarr")
    array = cuzarr.open_array(
        kvikio.GDSStore(tmp_path),
        mode="w",
        shape=10,
        dtype="i8",
        zarr_format=2,
        device=device,
        compressor=kvikio.CompatCompressor.lz4().gpu,
    )
    array[:] = on(device, np.arange(10))
    read = zarr.open_array(tmp_path, mode="r")
    assert isinstance(read[:], np.ndarray)
    np.testing.assert_array_equal(read[:], np.arange(10))


def test_nothing_is_overwritten_in_metadata(tmp_path: Path, device: str) -> None:
    for keyword in ("compressor_config_overwrite", "decompressor_config_overwrite"):
        with pytest.raises(ValueError, match="formats blosc, expected one format: lz4 or zstd"):
            kvikio.GDSStore(tmp_path, **{keyword: {"id": "blosc"}})
    both = {"compressor_config_overwrite": {"id": "lz4"}, "decompressor_config_overwrite": {"id": "zstd"}}
    with pytest.raises(ValueError, match="got codecs of the formats lz4 and zstd"):
        kvikio.GDSStore(tmp_path, **both)
    # What serves both sides needs no overwriting.
    both["decompressor_config_overwrite"] = {"id": "nvcomp_batch", "algorithm": "lz4", "options": {}}  # type: ignore[dict-item]
    array = cuzarr.open_array(
        kvikio.GDSStore(tmp_path, **both),
        mode="w",
        shape=10,
        dtype="i8",
        zarr_format=2,
        device=device,
        compressor=kvikio.CompatCompressor.lz4().gpu,
    )
    array[:] = on(device, np.arange(10))
    assert json.loads((tmp_path / ".zarray").read_bytes())["compressor"] == {"id": "lz4", "acceleration": 1}
    assert to_host(kvikio.open_cupy_array(tmp_path, mode="r")[:]).tolist() == [*range(10)]
    with pytest.raises(ValueError, match="normalize_keys is not supported"):
        kvikio.GDSStore(tmp_path, normalize_keys=True)


def test_codecs_are_equal_to_those_of_numcodecs_with_the_same_settings(tmp_path: Path) -> None:
    numcodecs = pytest.importorskip("numcodecs")
    for codec, other in (
        (numcodecs.LZ4(), numcodecs.LZ4(2)), (numcodecs.Zstd(3), numcodecs.Zstd(4)), (numcodecs.Blosc("zstd", 3), numcodecs.Blosc()),
        (numcodecs.GZip(2), numcodecs.Zlib(2)),
    ):  # fmt: skip
        array = cuzarr.create_array({}, shape=(4,), dtype="i4", compressors=codec, zarr_format=2)
        assert array.compressor == codec and array.compressor != other and array.compressor != codec.get_config()
    delta = cuzarr.create_array({}, shape=(4,), dtype="i4", filters=[numcodecs.Delta("i4")], zarr_format=2).filters
    assert delta == (numcodecs.Delta("i4"),) and delta != (numcodecs.Delta("i8"),)


@pytest.mark.parametrize("write_mode", ["w", "w-", "a"])
@pytest.mark.parametrize("read_mode", ["r", "r+", "a"])
def test_open_cupy_array(tmp_path: Path, write_mode: Any, read_mode: Any) -> None:
    zarr = pytest.importorskip("zarr")
    value, lz4 = on(NAME, np.arange(10)), kvikio.CompatCompressor.lz4()
    array = kvikio.open_cupy_array(tmp_path, mode=write_mode, shape=value.shape, dtype=value.dtype, chunks=(2,), compressor=lz4)
    array[:] = value
    for opened in (array, kvikio.open_cupy_array(tmp_path, mode=read_mode)):
        assert opened.shape == value.shape and opened.dtype == value.dtype
        assert isinstance(opened[:], type(value)) and is_on(NAME, opened[:])
        assert opened.compressor == lz4.gpu
        np.testing.assert_array_equal(to_host(opened[:]), np.arange(10))
    on_cpu = zarr.open_array(tmp_path, mode=read_mode)
    assert on_cpu.shape == value.shape and on_cpu.dtype == value.dtype and isinstance(on_cpu[:], np.ndarray)
    assert on_cpu.compressors == (lz4.cpu,) and on_cpu.metadata.zarr_format == 2
    np.testing.assert_array_equal(on_cpu[:], np.arange(10))


@pytest.mark.parametrize("compressor", [None, "lz4"])
def test_open_cupy_array_written_by_zarr(tmp_path: Path, compressor: Any) -> None:
    zarr = pytest.importorskip("zarr")
    compressor = kvikio.CompatCompressor.lz4().cpu if compressor else None
    written = zarr.create_array(tmp_path, shape=(100,), chunks=(30,), dtype="i8", compressors=compressor, zarr_format=2)
    written[:] = np.arange(100)
    array = kvikio.open_cupy_array(tmp_path, mode="r")
    assert is_on(NAME, array[:])
    np.testing.assert_array_equal(to_host(array[:]), np.arange(100))


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_open_cupy_array_incompatible_compressor(tmp_path: Path, mode: Any) -> None:
    zarr, numcodecs = pytest.importorskip("zarr"), pytest.importorskip("numcodecs")
    zarr.create_array(tmp_path, shape=(10,), dtype="i8", chunks=(10,), compressors=numcodecs.Blosc(), zarr_format=2)
    with pytest.raises(ValueError, match="non-CUDA compatible compressor"):
        kvikio.open_cupy_array(tmp_path, mode=mode)


def test_open_cupy_array_unknown_mode(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Unknown mode: x"):
        kvikio.open_cupy_array(tmp_path, mode="x", shape=10, dtype="i8", chunks=(2,))  # type: ignore[arg-type]


def test_what_open_cupy_array_refuses(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="store must be a path"):
        kvikio.open_cupy_array({}, mode="w", shape=10, dtype="i8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="meta_array must implement __cuda_array_interface__"):
        kvikio.open_cupy_array(tmp_path, mode="w", shape=10, dtype="i8", meta_array=np.empty(()))
    for mode in ("r", "r+"):
        with pytest.raises(ArrayNotFoundError):
            kvikio.open_cupy_array(tmp_path, mode=mode)  # type: ignore[arg-type]
    kvikio.open_cupy_array(tmp_path, mode="w-", shape=10, dtype="i8")
    with pytest.raises(FileExistsError):
        kvikio.open_cupy_array(tmp_path, mode="w-", shape=10, dtype="i8")


def test_the_default_compressor_is_one_that_every_reader_knows(tmp_path: Path) -> None:
    array = kvikio.open_cupy_array(tmp_path, shape=10, dtype="i8", meta_array=on(NAME, np.zeros(1)))
    assert json.loads((tmp_path / ".zarray").read_bytes())["compressor"]["id"] == "lz4"
    assert array.device.split(":")[0] == NAME.split(":")[0]


def test_stores_work_without_zarr_python(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = f"""
import sys
sys.modules["zarr"] = None
import cuzarr.kvikio
store = cuzarr.kvikio.GDSStore({str(tmp_path)!r})
store["a"] = b"1"
assert store["a"] == b"1" and list(store) == ["a"] and isinstance(store, cuzarr.storage.GDSStore)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_program_of_kvikios_needs_no_other_arguments(tmp_path: Path) -> None:
    path = str(tmp_path / "story.zarr")
    z = kvikio.zarr.open_cupy_array(store=path, mode="w", shape=(20,), chunks=(5,))
    assert z.dtype == np.dtype("float64")
    z[0:10] = np.arange(0, 10)
    z[10:20] = on(NAME, np.arange(10, 20))
    assert is_on(NAME, z[:]) and to_host(z[:]).tolist() == [*range(20)]

    z = kvikio.zarr.open_cupy_array(store=path, mode="w", shape=(20,), chunks=(5,), compressor=kvikio.zarr.CompatCompressor.lz4())
    z[:] = on(NAME, np.arange(20))
    z = cuzarr.open_array(path, device="cpu")
    assert isinstance(z[:], np.ndarray) and z[:].tolist() == [*range(20)]
    z[:] = np.arange(20, 40)
    z = kvikio.zarr.open_cupy_array(store=path, mode="r")
    assert is_on(NAME, z[:]) and to_host(z[:]).tolist() == [*range(20, 40)]

    for compressor in (None, kvikio.zarr.CompatCompressor.lz4().cpu):
        written = cuzarr.open(store=path, mode="w", shape=(10,), compressor=compressor, device="cpu")
        written[:] = np.arange(10)
        z = kvikio.zarr.open_cupy_array(store=path)
        assert is_on(NAME, z[:]) and to_host(z[:]).tolist() == [*range(10)]


def test_arguments_of_format_2_make_arrays_of_format_2(tmp_path: Path) -> None:
    numcodecs = pytest.importorskip("numcodecs")
    for place, (create, arguments) in enumerate([
        (cuzarr.create, {"compressor": numcodecs.LZ4()}), (cuzarr.zeros, {"compressor": None}),
        (cuzarr.open_array, {"filters": [numcodecs.Delta("f8")], "mode": "w"}), (cuzarr.open, {"dimension_separator": "/", "mode": "w"}),
    ]):  # fmt: skip
        made = create(shape=(4,), store=tmp_path / str(place), **arguments)  # type: ignore[operator]
        assert made.metadata.zarr_format == 2
        with pytest.raises(ValueError, match="format 3 has no"):
            create(shape=(4,), store=tmp_path / f"{place}-3", zarr_format=3, **arguments)  # type: ignore[operator]
    cuzarr.save_array(tmp_path / "saved", np.arange(3), compressor=None)
    assert cuzarr.open_array(tmp_path / "saved").metadata.zarr_format == 2
    assert cuzarr.zeros((4,), store={}).metadata.zarr_format == 3


def test_meta_array_says_where_results_go(tmp_path: Path) -> None:
    there = on(NAME, np.zeros(1))
    with cuzarr.config.set({"device": "cpu"}):
        made = cuzarr.create(4, dtype="i8", store=kvikio.GDSStore(tmp_path), meta_array=there)
        made[:] = on(NAME, np.arange(4))
        for array in (
            made, cuzarr.open_array(tmp_path, meta_array=there), cuzarr.array(np.arange(4), meta_array=there),
            cuzarr.group({}, meta_array=there).create_array("a", data=np.arange(4)),
        ):  # fmt: skip
            assert is_on(NAME, array[:]) and to_host(array[:]).tolist() == [*range(4)]
            assert is_on(NAME, array.meta_array) and array.meta_array.shape == ()
        on_cpu = cuzarr.open_array(tmp_path, meta_array=there, device="cpu")
        assert isinstance(on_cpu[:], np.ndarray) and isinstance(on_cpu.meta_array, np.ndarray)
    assert isinstance(cuzarr.open_array(tmp_path, meta_array=np.empty(()))[:], np.ndarray)

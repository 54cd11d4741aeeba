"""zarr-python's arrays through cuzarr's pipeline, with cuzarr's own buffers, which need no CuPy: on a GPU, or on the kernels
built for the CPU."""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import Delta
from numcodecs.checksum32 import JenkinsLookup3
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec, numcodecs as own

import cuzarr.zarr
from cuzarr import DeviceArray

TRUTH = np.arange(40 * 30, dtype="f4").reshape(40, 30)
CODECS: dict[str, dict[str, Any]] = {
    "none": {"compressors": None},
    "zstd": {"compressors": ZstdCodec(level=1)},
    "gzip": {"compressors": GzipCodec(level=1)},
    "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="shuffle")},
    "shards": {"shards": (14, 16)},
    "v2": {"zarr_format": 2},
    "v2 F": {"zarr_format": 2, "order": "F"},
}
# zarr-python's own code works for these.
FOREIGN: dict[str, dict[str, Any]] = {
    "jenkins": {"compressors": own.JenkinsLookup3()},
    "jenkins in shards": {"shards": (14, 16), "compressors": own.JenkinsLookup3()},
    "v2 jenkins": {"zarr_format": 2, "filters": [Delta(dtype="f4")], "compressors": JenkinsLookup3()},
}
BUFFERS = {"buffer": "cuzarr.zarr.Buffer", "ndbuffer": "cuzarr.zarr.NDBuffer"}
HOST = {"buffer": "zarr.buffer.cpu.Buffer", "ndbuffer": "zarr.buffer.cpu.NDBuffer"}


@pytest.fixture(autouse=True)
def enabled(gpu: str) -> Any:
    """The pipeline, and cuzarr's buffers over cuzarr's arrays for everything."""
    with cuzarr.config.set({"array_type": "device"}), cuzarr.zarr.enable(), zarr.config.set(BUFFERS):
        cuzarr.zarr.fallbacks(reset=True)
        yield


@pytest.mark.parametrize("codecs", CODECS)
@pytest.mark.parametrize("store", ["dict", "cuzarr memory", "gpu memory"])
def test_reads_and_writes_boxes_without_leaving_the_device(codecs: str, store: str, gpu: str) -> None:
    target: Any = {}
    if store == "cuzarr memory":
        target = cuzarr.zarr.MemoryStore()
    elif store == "gpu memory":
        target = cuzarr.zarr.GpuMemoryStore()
    array = zarr.create_array(target, shape=TRUTH.shape, chunks=(7, 8), dtype="f4", **CODECS[codecs])
    array[:] = DeviceArray.from_host(TRUTH, gpu)
    array[3:9, ::2] = DeviceArray.from_host(-TRUTH[3:9, ::2], gpu)
    wanted = TRUTH.copy()
    wanted[3:9, ::2] *= -1
    for selection in (..., (slice(2, 33, 3), slice(1, 20)), 5):
        found = array[selection]
        assert isinstance(found, DeviceArray)
        np.testing.assert_array_equal(found.cpu(), wanted[selection])
    np.testing.assert_array_equal(np.asarray(array), wanted)
    assert cuzarr.zarr.fallbacks() == {}


def test_index_arrays_go_through_the_host_with_a_warning(gpu: str) -> None:
    array = zarr.create_array({}, shape=TRUTH.shape, chunks=(7, 8), dtype="f4")
    array[:] = DeviceArray.from_host(TRUTH, gpu)
    with pytest.warns(cuzarr.zarr.FallbackWarning, match="need CuPy"):
        found = array.oindex[[3, 1], :]
    np.testing.assert_array_equal(found.cpu(), TRUTH[[3, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", cuzarr.zarr.FallbackWarning)
        np.testing.assert_array_equal(array.vindex[[[3, 1]], [[0, 29]]].cpu(), TRUTH[[[3, 1]], [[0, 29]]])
    assert cuzarr.zarr.fallbacks() == {"index arrays on a GPU need CuPy": 2}


@pytest.mark.parametrize("buffers", ["configured", "prototype"])
@pytest.mark.parametrize("codecs", [*CODECS, *FOREIGN])
def test_every_write_and_read_works_without_cupy(codecs: str, buffers: str, gpu: str) -> None:
    by_call: dict[str, Any] = {} if buffers == "configured" else {"prototype": cuzarr.zarr.buffer_prototype}
    if codecs == "jenkins in shards" and zarr.__version__.startswith("3.1."):
        pytest.skip("zarr-python 3.1 fails on lists of indices in shards itself")
    store: dict[str, Any] = {}
    wanted = TRUTH.copy()
    rows, mask = [11, 3, 30], TRUTH > 900
    with warnings.catch_warnings(), zarr.config.set(HOST) if by_call else contextlib.nullcontext():
        warnings.simplefilter("ignore")
        array = zarr.create_array(store, shape=TRUTH.shape, chunks=(7, 8), dtype="f4", **(CODECS | FOREIGN)[codecs])
        array.set_basic_selection(..., TRUTH, **by_call)
        array.set_basic_selection(slice(0, 2), 5, **by_call)
        array.set_orthogonal_selection((rows, slice(2, 20)), DeviceArray.from_host(-TRUTH[rows, 2:20], gpu), **by_call)
        array.set_mask_selection(mask, -1.5, **by_call)
        array.set_coordinate_selection(([1, 39], [2, 29]), np.array([8, 9], "f4"), **by_call)
        wanted[:2], wanted[rows, 2:20], wanted[mask], wanted[[1, 39], [2, 29]] = 5, -TRUTH[rows, 2:20], -1.5, [8, 9]
        for kind, selection, same in (
            ("basic", ..., ...),
            ("basic", (slice(2, 33, 3), 4), (slice(2, 33, 3), 4)),
            ("orthogonal", ([5, 1], [3, 29, 1]), np.ix_([5, 1], [3, 29, 1])),
            ("coordinate", ([5, 1], [3, 29]), ([5, 1], [3, 29])),
            ("mask", mask, mask),
        ):
            found = getattr(array, f"get_{kind}_selection")(selection, **by_call)
            assert isinstance(found, DeviceArray)
            np.testing.assert_array_equal(found.cpu(), wanted[same])
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline", **HOST}):
        np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], wanted)


def test_enabled_for_gpus_arrays_are_read_there_without_cupy(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # which stands for a module that cannot be imported
    with cuzarr.zarr.enable(gpu=True):
        array = zarr.create_array({}, shape=TRUTH.shape, chunks=(7, 8), dtype=">f4", zarr_format=2)
        array[:] = TRUTH
        assert isinstance(array[3], DeviceArray)
        np.testing.assert_array_equal(array[3].cpu(), TRUTH[3])


def test_strict_refuses_what_goes_by_way_of_the_host(gpu: str) -> None:
    array = zarr.create_array({}, shape=TRUTH.shape, chunks=(7, 8), dtype="f4", compressors=None)
    with cuzarr.config.set({"strict": True}):
        array[:] = DeviceArray.from_host(TRUTH, gpu)
        with pytest.raises(cuzarr.errors.FallbackRefusedError, match="way of the host: .* need CuPy"):
            array.oindex[[3, 1], :]


def test_missing_chunks_are_filled(gpu: str) -> None:
    array = zarr.create_array({}, shape=(20,), chunks=(4,), dtype="i4", fill_value=7)
    array[4:8] = DeviceArray.from_host(np.arange(4, dtype="i4"), gpu)
    assert array[:].cpu().tolist() == [7] * 4 + [0, 1, 2, 3] + [7] * 12
    array[4:8] = DeviceArray.from_host(np.full(4, 7, "i4"), gpu)
    assert array.nchunks_initialized == 0

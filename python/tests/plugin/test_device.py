"""zarr-python's arrays through cuzarr's pipeline, with cuzarr's own buffers, which need no CuPy: on a GPU, or on the kernels
built for the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

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


@pytest.fixture(autouse=True)
def enabled(gpu: str) -> Any:
    """The pipeline, and cuzarr's buffers over cuzarr's arrays for everything."""
    buffers = {"buffer": "cuzarr.zarr.Buffer", "ndbuffer": "cuzarr.zarr.NDBuffer"}
    with cuzarr.config.set({"array_type": "device"}), cuzarr.zarr.enable(), zarr.config.set(buffers):
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


def test_missing_chunks_are_filled(gpu: str) -> None:
    array = zarr.create_array({}, shape=(20,), chunks=(4,), dtype="i4", fill_value=7)
    array[4:8] = DeviceArray.from_host(np.arange(4, dtype="i4"), gpu)
    assert array[:].cpu().tolist() == [7] * 4 + [0, 1, 2, 3] + [7] * 12
    array[4:8] = DeviceArray.from_host(np.full(4, 7, "i4"), gpu)
    assert array.nchunks_initialized == 0

"""Turning the pipeline on and off, and the repairs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import zarr

import cuzarr.zarr

DEFAULT = "zarr.core.codec_pipeline.BatchedCodecPipeline"


def test_is_scoped_or_for_good() -> None:
    with cuzarr.zarr.enable(patch=False) as enabled:
        assert zarr.config.get("codec_pipeline.path") == "cuzarr.zarr.CodecPipeline"
        assert enabled.patches == ()
    assert zarr.config.get("codec_pipeline.path") == DEFAULT
    enabled = cuzarr.zarr.enable(gpu=True)
    assert zarr.config.get("buffer") == ("zarr.buffer.gpu.Buffer" if importlib.util.find_spec("cupy") else "cuzarr.zarr.Buffer")
    enabled.disable()
    enabled.disable()
    assert zarr.config.get("codec_pipeline.path") == DEFAULT
    assert zarr.config.get("buffer") == "zarr.buffer.cpu.Buffer"


def test_repairs_are_listed_shared_and_undone() -> None:
    from zarr.core import array, group

    before = (array.np, array.Array.__array__, group.default_buffer_prototype)
    with cuzarr.zarr.enable() as outer:
        assert len(outer.patches) >= 3
        with cuzarr.zarr.enable() as inner:
            assert inner.patches == outer.patches
        assert array.np is not np
    assert (array.np, array.Array.__array__, group.default_buffer_prototype) == before


class OnDevice:
    """An array that says it is in a GPU's memory."""

    def __init__(self, elements: Any) -> None:
        self.elements = np.asarray(elements)

    __cuda_array_interface__ = property(lambda self: self.elements.__array_interface__)
    shape = property(lambda self: self.elements.shape)
    dtype = property(lambda self: self.elements.dtype)

    def get(self) -> Any:
        return self.elements

    def reshape(self, *shape: Any) -> OnDevice:
        return OnDevice(self.elements.reshape(*shape))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("implicit conversion to a NumPy array is not allowed")


def test_coordinate_reads_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="i4")

    async def on_device(*args: Any, **kwargs: Any) -> OnDevice:
        return OnDevice([1, 2, 3, 4])

    monkeypatch.setattr(type(array._async_array), "_get_selection", on_device)
    with pytest.raises(TypeError, match="implicit"):
        array.vindex[[[0, 1], [2, 3]]]
    with cuzarr.zarr.enable():
        found = array.vindex[[[0, 1], [2, 3]]]
    assert isinstance(found, OnDevice) and found.shape == (2, 2)


def test_arrays_convert_to_the_host_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="i4")
    monkeypatch.setattr(type(array), "__getitem__", lambda self, selection: OnDevice([1, 2, 3, 4]))
    with pytest.raises(TypeError, match="implicit"):
        np.asarray(array)
    with cuzarr.zarr.enable():
        assert np.asarray(array).tolist() == [1, 2, 3, 4]
        assert np.asarray(array, dtype="f8").dtype == "f8"


class Names:
    """Counts the chunks whose keys zarr-python makes."""

    def __init__(self, array: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        encode = type(array.metadata).encode_chunk_key

        def counted(metadata: Any, coordinates: Any) -> str:
            self.count += 1
            return encode(metadata, coordinates)

        monkeypatch.setattr(type(array.metadata), "encode_chunk_key", counted)

    def of(self, call: Any) -> int:
        self.count = 0
        call()
        return self.count


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_boxes_are_read_and_written_without_listing_their_chunks(zarr_format: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zarr", minversion="3.4")
    truth = np.arange(60, dtype="f4").reshape(6, 10)
    with cuzarr.zarr.enable():
        array = zarr.create_array({}, name="a/b", shape=(6, 10), chunks=(2, 3), dtype="f4", zarr_format=zarr_format)
        names = Names(array, monkeypatch)
        assert names.of(lambda: array.__setitem__(slice(None), truth)) == 0
        for selection in (..., (slice(1, 5), slice(None, None, 4)), 3, (2, 7)):
            assert names.of(lambda where=selection: np.testing.assert_array_equal(array[where], truth[where])) == 0
        assert names.of(lambda: np.testing.assert_array_equal(array.blocks[1], truth[2:4])) == 0
        assert names.of(lambda: array.oindex[[0, 5], :]) > 0
        array[3:6, 1:9] = 7
        truth[3:6, 1:9] = 7
        np.testing.assert_array_equal(array[:], truth)
        with zarr.config.set({"array.read_missing_chunks": False}):
            sparse = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="f4", zarr_format=zarr_format)
            with pytest.raises(zarr.errors.ChunkNotFoundError):
                sparse[:]
    assert names.of(lambda: array[:]) == 12, "zarr-python's own way again"


def test_values_that_do_not_fit_a_box_do_what_they_did_before() -> None:
    outcomes = []
    for patch in (False, True):
        with cuzarr.zarr.enable(patch=patch):
            array = zarr.create_array({}, shape=(4, 4), chunks=(2, 2), dtype="i4")
            array[:, 1:3] = np.array([[5, 6]] * 4, "i8")
            for value in (np.zeros((3, 4), "i4"), np.ones((1, 4), "i4"), np.ones((9, 9), "i4"), np.full((4, 4), 2.5)):
                try:
                    array[:] = value
                    outcomes.append((patch, None, array[:].tolist()))
                except Exception as error:
                    outcomes.append((patch, type(error), array[:].tolist()))
    half = len(outcomes) // 2
    assert [outcome[1:] for outcome in outcomes[:half]] == [outcome[1:] for outcome in outcomes[half:]]


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_importing_without_zarr_python_does_not_raise_and_using_it_says_why() -> None:
    run(
        """
import sys
sys.modules["zarr"] = None
import cuzarr.zarr
assert cuzarr.zarr.fallbacks() == {}
for use in (lambda: cuzarr.zarr.enable(), lambda: cuzarr.zarr.CodecPipeline.from_codecs([])):
    try:
        use()
    except ImportError as error:
        assert "zarr-python 3.1" in str(error), error
    else:
        raise AssertionError("no error")
"""
    )


def test_zarr_python_finds_the_pipeline_by_its_entry_point() -> None:
    run(
        """
import zarr
with zarr.config.set({"codec_pipeline.path": "cuzarr.zarr.CodecPipeline"}):
    array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="i4")
    array[:] = 5
    assert type(array._async_array.codec_pipeline).__module__ == "cuzarr.zarr"
    assert array[:].tolist() == [5] * 4
"""
    )


def test_importing_uses_no_gpu() -> None:
    run(
        """
import sys
import zarr  # imports CuPy, which loads libraries of CUDA, wherever it is installed
def cuda():
    maps = open("/proc/self/maps").read().split()
    return {name for name in maps if "libcuda.so" in name or "nvrtc" in name}
before = cuda()
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in ("cupy", "torch"):
            import traceback
            own = [frame for frame in traceback.extract_stack() if "/cuzarr/" in frame.filename]
            theirs = [frame for frame in traceback.extract_stack() if "/zarr/core/" in frame.filename]
            assert not own or theirs, f"cuzarr imports {name}"
        return None
sys.meta_path.insert(0, Refuse())
import cuzarr.zarr
assert cuda() == before
"""
    )

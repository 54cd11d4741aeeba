"""Arrays in a GPU's memory. Without a GPU every test says why it is skipped; with CUZARR_REQUIRE_GPU=1 that is a failure."""

from __future__ import annotations

import os
import pathlib
import warnings
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import FallbackRefusedError, ImplicitHostCopyError, OutOfRangeError


def _problem() -> str | None:
    try:
        cuzarr.zeros((1,), store={}, device="cuda")[:]
    except cuzarr.errors.CuzarrError as error:
        return str(error)
    return None


PROBLEM = _problem()
if PROBLEM is not None and os.environ.get("CUZARR_REQUIRE_GPU") == "1":
    raise RuntimeError(f"CUZARR_REQUIRE_GPU=1, but the GPU cannot be used: {PROBLEM}")
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=f"skipped: {PROBLEM}")

TRUTH = np.arange(120 * 90, dtype="f4").reshape(120, 90)


@pytest.fixture(params=["device", "cupy"])
def array_type(request: pytest.FixtureRequest) -> Any:
    """Both kinds of results."""
    if request.param == "cupy":
        pytest.importorskip("cupy")
    with cuzarr.config.set({"array_type": request.param}):
        yield request.param


def make(path: pathlib.Path, **more: Any) -> cuzarr.Array:
    array = cuzarr.create_array(str(path), shape=TRUTH.shape, chunks=(50, 40), dtype="f4", **more)
    array[:] = TRUTH
    return array


def on_host(result: Any) -> np.ndarray[Any, Any]:
    return result.cpu() if hasattr(result, "cpu") else result.get()


@pytest.mark.parametrize("selection", [..., 7, (slice(3, 100, 7), 5), (slice(None), slice(80, 90)), (3, 4), slice(5, 5)])
def test_selections_equal_those_of_the_cpu(tmp_path: pathlib.Path, array_type: str, selection: Any) -> None:
    result = make(tmp_path / "a").with_device("cuda")[selection]
    np.testing.assert_array_equal(on_host(result), TRUTH[selection])


@pytest.mark.parametrize("shards", [None, (100, 80)])
@pytest.mark.parametrize("codec", [None, cuzarr.codecs.ZstdCodec(), cuzarr.codecs.BloscCodec(cname="lz4")])
def test_arrays_written_from_the_gpu_are_read_on_the_cpu(tmp_path: pathlib.Path, codec: Any, shards: Any) -> None:
    cupy = pytest.importorskip("cupy")
    array = cuzarr.create_array(
        str(tmp_path / "a"), shape=TRUTH.shape, chunks=(50, 40), shards=shards, dtype="f4", compressors=codec, device="cuda"
    )
    array[:] = cupy.asarray(TRUTH)
    array[10:20, 3::4] = cupy.full((10, 22), -1, "f4")
    expected = TRUTH.copy()
    expected[10:20, 3::4] = -1
    np.testing.assert_array_equal(array.with_device("cpu")[:], expected)
    np.testing.assert_array_equal(cupy.asnumpy(array[:]), expected)


def test_results_go_to_pytorch_and_back_without_a_copy(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    with cuzarr.config.set({"array_type": "device"}):
        array = make(tmp_path / "a").with_device("cuda")
        result = array[:]
        tensor = torch.from_dlpack(result)
        assert tensor.data_ptr() == result.__cuda_array_interface__["data"][0]
        tensor += 1
        array[:] = tensor
    np.testing.assert_array_equal(array.with_device("cpu")[:], TRUTH + 1)


def test_results_outlive_their_array(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    with cuzarr.config.set({"array_type": "device"}):
        tensors = [torch.from_dlpack(make(tmp_path / str(n)).with_device("cuda")[:]) for n in range(8)]
    assert all(bool((tensor.cpu().numpy() == TRUTH).all()) for tensor in tensors)


def test_nothing_is_copied_to_the_host_unasked(tmp_path: pathlib.Path) -> None:
    with cuzarr.config.set({"array_type": "device"}):
        array = make(tmp_path / "a").with_device("cuda")
        with pytest.raises(ImplicitHostCopyError):
            np.asarray(array)
        with pytest.raises(ImplicitHostCopyError):
            np.asarray(array[:])


def test_elements_of_cupys_other_types_are_converted(tmp_path: pathlib.Path) -> None:
    cupy = pytest.importorskip("cupy")
    array = make(tmp_path / "a").with_device("cuda")
    for dtype in ("f8", "i8", "bool", "f2"):
        values = cupy.arange(TRUTH.size).reshape(TRUTH.shape).astype(dtype)
        array[:] = values
        np.testing.assert_array_equal(cupy.asnumpy(array[:]), values.get().astype("f4"))
        array.oindex[[3, 1], :] = values[:2]
        array.vindex[[3, 1], [0, 5]] = values[0, 3:5]
        np.testing.assert_array_equal(cupy.asnumpy(array[3, 1:]), values[0, 1:].get().astype("f4"))
    with pytest.warns(np.exceptions.ComplexWarning):
        array[0] = cupy.full(TRUTH.shape[1], 1 + 2j)
    with pytest.raises(OutOfRangeError):
        cuzarr.buffer.gpu.NDBuffer.from_numpy_array(np.zeros(2, "u1")).fill(300)


def test_strict_refuses_the_host_and_takes_the_gpu(tmp_path: pathlib.Path) -> None:
    with cuzarr.config.set({"strict": True}):
        with pytest.raises(FallbackRefusedError):
            bz2 = {"name": "numcodecs.bz2", "configuration": {"level": 1}}
            make(tmp_path / "z", compressors=bz2).with_device("cuda")[:]
        for codec in (cuzarr.codecs.BloscCodec(cname="lz4"), cuzarr.codecs.ZstdCodec()):
            result = make(tmp_path / codec.name, compressors=codec).with_device("cuda")[:]
            np.testing.assert_array_equal(on_host(result), TRUTH)


def test_enable_gpu_is_a_default(tmp_path: pathlib.Path) -> None:
    make(tmp_path / "a")
    with cuzarr.config.enable_gpu():
        assert cuzarr.open_array(str(tmp_path / "a"), mode="r").device.startswith("cuda")
    assert cuzarr.open_array(str(tmp_path / "a"), mode="r").device == "cpu"


def test_falling_back_to_the_host_is_told_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuzarr._node.array_io._told", set())
    monkeypatch.setattr("cuzarr._node.array_io._looked_at", set())
    array = make(tmp_path / "a", compressors={"name": "numcodecs.bz2", "configuration": {"level": 1}})
    with pytest.warns(cuzarr.errors.CuzarrRuntimeWarning, match="'numcodecs.bz2' runs via host"):
        array.with_device("cuda")[:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array.with_device("cuda")[:]
        make(tmp_path / "b", compressors=cuzarr.codecs.BloscCodec(cname="lz4")).with_device("cuda")[:]

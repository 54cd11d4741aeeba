"""A GPU that decodes and encodes for NumPy arrays: elements, errors and limits are those of the host alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import devices
import numpy as np
import pytest

import cuzarr
from cuzarr.codecs import BloscCodec, GzipCodec, ZstdCodec

CODECS: dict[str, Any] = {
    "zstd": ZstdCodec(level=3),
    "gzip": GzipCodec(level=1),
    "blosc": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
    "shuffled": [{"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}, ZstdCodec(level=1)],
}


@pytest.fixture
def gpu() -> str:
    return devices.require()


def values(shape: tuple[int, ...], dtype: str = "f4", seed: int = 1) -> np.ndarray[Any, Any]:
    steps = np.random.default_rng(seed).integers(0, 7, shape)
    return np.cumsum(steps, axis=-1).astype(dtype)


def stages(array: cuzarr.Array) -> set[str]:
    report = array.last_report()
    assert report is not None
    return {stage["stage"] for stage in report["stages"]}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ["plain", "shards", "rectilinear", "v2", "big-endian", "F"])
def test_elements_are_those_of_the_host(gpu: str, tmp_path: Path, codec: str, layout: str) -> None:
    truth = values((37, 29, 11), ">f4" if layout == "big-endian" else "f4")
    grids: dict[str, Any] = {
        "plain": {"chunks": (8, 10, 11)},
        "shards": {"chunks": (4, 10, 11), "shards": (16, 20, 11)},
        "rectilinear": {"chunks": ([5, 9, 3, 20], [29], [4, 7])},
        "v2": {"chunks": (8, 10, 11), "zarr_format": 2},
        "big-endian": {"chunks": (8, 10, 11)},
        "F": {"chunks": (8, 10, 11), "order": "F", "zarr_format": 2},
    }
    compressors = CODECS[codec]
    if layout in ("v2", "F"):
        if codec == "shuffled":
            pytest.skip("format 2 has one compressor")
        compressors = {"zstd": "zstd", "gzip": "gzip", "blosc": "blosc"}[codec]
    path = tmp_path / "a"
    with cuzarr.config.set({"array.rectilinear_chunks": True}):
        cuzarr.create_array(path, shape=truth.shape, dtype=truth.dtype, compressors=compressors, **grids[layout])
        host, array = cuzarr.open_array(path), cuzarr.open_array(path, accelerator=gpu)
    array[...] = truth
    assert "encode" in stages(array) and "download" in stages(array)
    np.testing.assert_array_equal(host[...], truth)
    boxes: list[Any] = [
        ...,
        np.s_[3:30:4, 5],
        np.s_[10],
        np.s_[..., -1],
        np.s_[5:6, 7:8, 9:10],
        np.s_[4:4],
        np.s_[36:, ::28, ::-1][:2],
    ]
    for box in boxes:
        result = array[box]
        assert isinstance(result, np.ndarray | np.generic) and result.dtype == np.float32
        np.testing.assert_array_equal(result, truth[box])
    np.testing.assert_array_equal(array.oindex[[30, 3, 3], :, [0, 10]], truth[np.ix_([30, 3, 3], range(29), [0, 10])])
    np.testing.assert_array_equal(array.vindex[[30, 3], [28, 0], [0, 10]], truth[[30, 3], [28, 0], [0, 10]])
    for box, value in [
        (np.s_[3:30], 5),
        (np.s_[::7, ::3], truth[::7, ::3] + 1),
        (np.s_[5], truth[5].T[:, :1].T),
        (np.s_[1, 2, 3], 9),
    ]:
        truth[box] = value
        array[box] = value
        np.testing.assert_array_equal(host[...], truth)


def test_no_chunks_and_some_chunks_are_filled(gpu: str, tmp_path: Path) -> None:
    cuzarr.create_array(tmp_path / "a", shape=(40, 30), chunks=(16, 16), dtype="i4", fill_value=7, compressors=CODECS["zstd"])
    array = cuzarr.open_array(tmp_path / "a", accelerator=gpu)
    np.testing.assert_array_equal(array[...], np.full((40, 30), 7))
    array[20:24, 3:9] = 1
    truth = np.full((40, 30), 7)
    truth[20:24, 3:9] = 1
    np.testing.assert_array_equal(array[...], truth)
    array[20:24, 3:9] = 7
    assert array.nchunks_initialized == 0
    strict = cuzarr.open_array(tmp_path / "a", config={"accelerator": gpu, "read_missing_chunks": False})
    with pytest.raises(cuzarr.errors.CuzarrError, match="chunk"):
        strict[...]


@pytest.mark.parametrize("kind", ["F", "strided", "reversed", "padded", "converted"])
@pytest.mark.parametrize("is_pinned", [False, True])
def test_out_of_any_layout(gpu: str, tmp_path: Path, kind: str, is_pinned: bool) -> None:
    truth = values((60, 50))
    cuzarr.create_array(tmp_path / "a", data=truth, chunks=(16, 32), compressors=CODECS["zstd"])
    array = cuzarr.open_array(tmp_path / "a", accelerator=gpu)
    dtype = "f8" if kind == "converted" else "f4"
    memory = cuzarr.memory.empty_pinned((130, 140), dtype, device=gpu) if is_pinned else np.zeros((130, 140), dtype)
    memory = memory.T if kind == "F" else memory
    outs = {"strided": memory[1:121:2, 3:53], "reversed": memory[59::-1, 49::-1], "padded": memory[:60, 7:57]}
    out = outs.get(kind, memory[:60, :50])
    array.get_basic_selection(..., out=out)
    np.testing.assert_array_equal(out, truth)
    # Kernels write rows of neighbouring elements, threads everything else.
    assert ("download" in stages(array)) != (is_pinned and kind in ("strided", "padded"))
    assert np.count_nonzero(memory) == np.count_nonzero(truth)


@pytest.mark.parametrize("codec", CODECS)
def test_pinned_out_of_every_codec_and_selection(gpu: str, tmp_path: Path, codec: str) -> None:
    rng = np.random.default_rng(5)
    truth = values((37, 29, 71))
    cuzarr.create_array(tmp_path / "a", data=truth, chunks=(8, 16, 33), compressors=CODECS[codec])
    array = cuzarr.open_array(tmp_path / "a", accelerator=gpu)
    for _ in range(5):
        box = tuple(slice(*sorted(rng.integers(0, extent + 1, 2).tolist())) for extent in truth.shape)
        out = cuzarr.memory.empty_pinned(truth[box].shape, "f4", device=gpu)
        assert array.read(box, out=out) is out
        np.testing.assert_array_equal(out, truth[box])
    rows = rng.integers(0, 37, 20)
    for selection in ((rows,), (slice(None), slice(None), rows), (slice(None), 3, slice(1, 60, 2))):
        expected = truth[selection]
        out = cuzarr.memory.empty_pinned(expected.shape, "f4", device=gpu)
        array.get_orthogonal_selection(selection, out=out)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("library", ["cupyx", "torch"])
def test_pinned_memory_of_other_libraries_is_written_by_kernels(gpu: str, tmp_path: Path, library: str) -> None:
    if gpu == "simt":
        pytest.skip("other libraries pin memory through a CUDA driver")
    truth, other = values((64, 64)), pytest.importorskip(library)
    cuzarr.create_array(tmp_path / "a", data=truth, chunks=(16, 64), compressors=CODECS["zstd"])
    array = cuzarr.open_array(tmp_path / "a", accelerator=gpu)
    shape = truth.shape
    out = other.empty_pinned(shape, "f4") if library == "cupyx" else other.empty(shape, dtype=other.float32).pin_memory().numpy()
    array.read(out=out)
    np.testing.assert_array_equal(out, truth)
    assert "download" not in stages(array)


def test_pinned_out_of_a_damaged_array_is_free_afterwards(gpu: str, tmp_path: Path) -> None:
    truth = values((64, 64))
    array = cuzarr.create_array(tmp_path / "a", data=truth, chunks=(16, 64), compressors=CODECS["zstd"], fill_value=3)
    (tmp_path / "a" / "c" / "1" / "0").unlink()
    truth[16:32] = 3
    array = cuzarr.open_array(tmp_path / "a", accelerator=gpu)
    out = cuzarr.memory.empty_pinned((64, 64), "f4", device=gpu)
    array.read(out=out)
    np.testing.assert_array_equal(out, truth)
    (tmp_path / "a" / "c" / "2" / "0").write_bytes(b"damaged, and longer than any header")
    for _ in range(2):
        with pytest.raises(cuzarr.errors.CuzarrError, match="c/2/0"):
            array.read(out=out)
        out[:] = 0
    assert array.read(np.s_[:32], out=out[:32]) is not None
    np.testing.assert_array_equal(out[:32], truth[:32])


def test_pinned_memory_is_zeroed_and_survives_what_made_it(gpu: str) -> None:
    for dtype in ("f4", ">f8", "bool", "M8[s]", "c16"):
        out = cuzarr.memory.empty_pinned((3, 5), dtype, device=gpu)
        assert out.dtype == dtype and out.shape == (3, 5) and not out.view("u1").any() and out.flags.writeable
    assert cuzarr.memory.empty_pinned(4, device=gpu)[1:].base is not None
    assert (
        cuzarr.memory.empty_pinned((0, 4), device=gpu).shape == (0, 4) and cuzarr.memory.empty_pinned((), device=gpu).shape == ()
    )
    for wrong in (-1, (2, -3), "x"):
        with pytest.raises((cuzarr.errors.CuzarrError, TypeError)):
            cuzarr.memory.empty_pinned(wrong)
    with pytest.raises(cuzarr.errors.CuzarrError):
        cuzarr.memory.empty_pinned(3, object)
    with pytest.raises(cuzarr.errors.DeviceUnavailableError):
        cuzarr.memory.empty_pinned(3, device="cuda:77")


def test_out_that_cannot_be_written(gpu: str, tmp_path: Path) -> None:
    truth = values((60, 50))
    cuzarr.create_array(tmp_path / "a", data=truth, chunks=(16, 16), compressors=CODECS["zstd"])
    array = cuzarr.open_array(tmp_path / "a", accelerator=gpu)
    out = np.zeros((60, 50), "f4")
    out.flags.writeable = False
    with pytest.raises((cuzarr.errors.CuzarrError, ValueError), match="read-only"):
        array.get_basic_selection(..., out=out)
    assert not out.any()
    with pytest.raises((cuzarr.errors.CuzarrError, ValueError), match="overlap"):
        array.get_basic_selection(..., out=np.lib.stride_tricks.as_strided(np.zeros(2000, "f4"), (60, 50), (4, 4)))


def test_explanations_and_reasons(gpu: str, tmp_path: Path) -> None:
    truth = values((64, 64))
    kinds: dict[str, Any] = {"zstd": CODECS["zstd"], "plain": None, "bz2": {"name": "bz2", "configuration": {"level": 1}}}
    for name, compressors in kinds.items():
        cuzarr.create_array(tmp_path / name, data=truth, chunks=(32, 32), compressors=compressors)
    opened = {name: cuzarr.open_array(tmp_path / name, accelerator=gpu) for name in kinds}
    device = cuzarr.DeviceArray.empty((1,), "u1", gpu).device
    told = str(opened["zstd"].explain())
    assert f"accelerator          {device}\n" in told and "kernels, then host" in told
    assert "no codec compresses the chunks" in str(opened["plain"].explain())
    assert "is not used: 'numcodecs.bz2'" in str(opened["bz2"].explain())
    assert f"accelerator          {device}\n" in str(opened["zstd"].explain(writing=True))
    assert "one element" in str(opened["zstd"].explain(np.s_[:1, :1], writing=True))
    assert "accelerator" not in str(cuzarr.open_array(tmp_path / "zstd", accelerator="none").explain())
    cached = cuzarr.open_array(tmp_path / "zstd", accelerator=gpu, chunk_cache=True)
    assert "chunk cache" in str(cached.explain())
    for array in opened.values():
        np.testing.assert_array_equal(array[...], truth)


def test_strict_forbids_the_host(gpu: str, tmp_path: Path) -> None:
    truth = values((64, 64))
    cuzarr.create_array(tmp_path / "zstd", data=truth, chunks=(32, 32), compressors=CODECS["zstd"])
    cuzarr.create_array(tmp_path / "plain", data=truth, chunks=(32, 32), compressors=None)
    cuzarr.create_array(tmp_path / "bz2", data=truth, chunks=(32, 32), compressors={"name": "bz2", "configuration": {"level": 1}})
    with cuzarr.config.set({"strict": True, "accelerator": gpu}):
        array = cuzarr.open_array(tmp_path / "zstd")
        np.testing.assert_array_equal(array[...], truth)
        array[...] = truth + 1
        array[3, 4] = 5
        # There is nothing to decode, and nothing that a device could do better.
        np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "plain")[...], truth)
        with pytest.raises(cuzarr.errors.FallbackRefusedError, match=r"accelerator .* 'numcodecs.bz2'"):
            cuzarr.open_array(tmp_path / "bz2")[...]
        with pytest.raises(cuzarr.errors.FallbackRefusedError, match="accelerator"):
            cuzarr.open_array(tmp_path / "bz2")[...] = truth
        with pytest.raises(cuzarr.errors.FallbackRefusedError, match="index lists"):
            array.oindex[[1, 5], [2, 3]] = 1
    with (
        cuzarr.config.set({"strict": True, "accelerator": "auto"}),
        pytest.raises(cuzarr.errors.ConfigInvalidError, match="auto"),
    ):
        cuzarr.open_array(tmp_path / "zstd")[...]
    with cuzarr.config.set({"strict": True, "accelerator": "auto"}):
        # Nothing goes to host memory, so there is nothing to choose.
        cuzarr.open_array(tmp_path / "zstd", device=gpu)[...]
    expected = truth + 1
    expected[3, 4] = 5
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "zstd")[...], expected)


def test_names_that_are_no_accelerator(tmp_path: Path) -> None:
    for wrong in ("cpu", "fast", "cuda:x", "tpu:0"):
        with pytest.raises(cuzarr.errors.ConfigInvalidError, match=r"'none', 'auto' or 'cuda:N'"):
            cuzarr.config.set({"accelerator": wrong})
        with pytest.raises(cuzarr.errors.ConfigInvalidError, match=r"'none', 'auto' or 'cuda:N'"):
            cuzarr.ArrayConfig(accelerator=wrong)
    cuzarr.create_array(tmp_path / "a", data=values((8, 8)), chunks=(4, 4))
    with pytest.raises(cuzarr.errors.DeviceUnavailableError):
        cuzarr.open_array(tmp_path / "a", accelerator="cuda:77")[...]


def test_auto_leaves_small_work_to_the_host(tmp_path: Path) -> None:
    truth = values((64, 64))
    cuzarr.create_array(tmp_path / "a", data=truth, chunks=(32, 32), compressors=CODECS["zstd"])
    array = cuzarr.open_array(tmp_path / "a", accelerator="auto")
    array[...] = truth
    np.testing.assert_array_equal(array[...], truth)
    assert "is not used" in str(array.explain()) and "download" not in stages(array)


def test_damage_is_named(gpu: str, tmp_path: Path) -> None:
    truth = values((64, 64))
    cuzarr.create_array(tmp_path / "a", data=truth, chunks=(16, 16), compressors=CODECS["zstd"])
    chunk = tmp_path / "a" / "c" / "2" / "1"
    stored = bytearray(chunk.read_bytes())
    for keep in (len(stored) // 2, 3, 0):
        chunk.write_bytes(stored[:keep])
        with pytest.raises(cuzarr.errors.ChunkCorruptError, match="c/2/1"):
            cuzarr.open_array(tmp_path / "a", accelerator=gpu)[...]
    chunk.unlink()
    truth[32:48, 16:32] = 0
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "a", accelerator=gpu)[...], truth)


@pytest.mark.parametrize("limit", [1 << 14, 1 << 16, 1 << 20])
def test_small_limits(gpu: str, tmp_path: Path, limit: int) -> None:
    truth = values((200, 300))
    cuzarr.create_array(tmp_path / "a", data=truth, chunks=(16, 25), compressors=CODECS["zstd"])
    with cuzarr.config.set({"memory_limit": limit}):
        array = cuzarr.open_array(tmp_path / "a", accelerator=gpu)
        np.testing.assert_array_equal(array[...], truth)
        array[...] = truth[::-1]
        np.testing.assert_array_equal(array[...], truth[::-1])
        array[3:150, 7:290] = 1
    assert cuzarr.memory.info(gpu).in_flight == 0


def test_threads_share_a_small_limit(gpu: str, tmp_path: Path) -> None:
    truth = values((128, 96))
    cuzarr.create_array(tmp_path / "a", data=truth, chunks=(16, 16), compressors=CODECS["gzip"])
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            array = cuzarr.open_array(tmp_path / "a", accelerator=gpu)
            for _ in range(5):
                np.testing.assert_array_equal(array[number:], truth[number:])
        except BaseException as error:  # noqa: BLE001, told below
            failures.append(error)

    with cuzarr.config.set({"memory_limit": 1 << 17}):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not failures and not any(thread.is_alive() for thread in threads)


def test_many_arrays(gpu: str, tmp_path: Path) -> None:
    group = cuzarr.create_group(tmp_path / "g")
    truths = {f"v{number}": values((20 + number, 30), seed=number) for number in range(5)} | {"time": np.arange(50.0)}
    for name, truth in truths.items():
        compressors = None if name == "time" else CODECS["zstd"]
        group.create_array(name, data=truth, chunks=(8,) * truth.ndim, compressors=compressors)
    with cuzarr.config.set({"accelerator": gpu}):
        found = cuzarr.open_group(tmp_path / "g").read()
        for name, truth in truths.items():
            np.testing.assert_array_equal(found[name], truth)
        opened = cuzarr.open_group(tmp_path / "g")
        cuzarr.write_many([(opened[name], ..., truth + 1) for name, truth in truths.items()])
        reads = [(opened[name], np.s_[3:9]) for name in truths]
        for result, truth in zip(cuzarr.read_many(reads), truths.values(), strict=True):
            np.testing.assert_array_equal(result, truth[3:9] + 1)


def test_numpy_goes_up_before_it_is_encoded(gpu: str, tmp_path: Path) -> None:
    truth = values((256, 64, 16))
    cuzarr.create_array(tmp_path / "a", shape=truth.shape, dtype="f4", chunks=(32, 64, 16), compressors=CODECS["zstd"])
    # One thread of the host would take so long that costs speak for the device.
    with cuzarr.config.set({"threading.max_workers": 1}):
        array = cuzarr.open_array(tmp_path / "a", device=gpu)
        array[...] = truth
        assert {"upload", "encode", "download"} <= stages(array)
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "a")[...], truth)
    with cuzarr.config.set({"strict": True}):
        cuzarr.open_array(tmp_path / "a", device=gpu)[3] = truth[0]
    truth[3] = truth[0]
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "a")[...], truth)


def test_other_users_of_numpy(gpu: str, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    import zarr

    import cuzarr.zarr

    truth, before = values((40, 30)), cuzarr.config.get("accelerator")
    with cuzarr.zarr.enable(accelerator=gpu), cuzarr.config.set({"strict": True}):
        array = zarr.create_array(
            tmp_path / "z", shape=truth.shape, dtype="f4", chunks=(16, 16), compressors=zarr.codecs.ZstdCodec(level=1)
        )
        array[...] = truth
        np.testing.assert_array_equal(array[...], truth)
        assert cuzarr.config.get("accelerator") == gpu
    assert cuzarr.config.get("accelerator") == before
    data = xarray.Dataset({"v": (("y", "x"), truth)})
    data.to_zarr(tmp_path / "x", zarr_format=3)
    with cuzarr.config.set({"accelerator": gpu}):
        np.testing.assert_array_equal(xarray.open_dataset(tmp_path / "x", engine="cuzarr").v.values, truth)


def test_copies_and_pyramids_are_made_by_it(gpu: str, tmp_path: Path) -> None:
    truth = values((32, 64, 48))
    cuzarr.create_array(tmp_path / "a", data=truth, chunks=(8, 16, 48), compressors=CODECS["zstd"])
    for accelerator in ("none", gpu):
        cuzarr.memory.reset_peak(gpu)
        before = cuzarr.memory.info(gpu).peak
        with cuzarr.config.set({"accelerator": accelerator}):
            copy = cuzarr.rechunk(tmp_path / "a", tmp_path / f"copy-{accelerator}", chunks=(32, 8, 8))
            image = cuzarr.pyramid(tmp_path / "a", tmp_path / f"image-{accelerator}", levels=2)
        assert (cuzarr.memory.info(gpu).peak > before) == (accelerator != "none")
        assert copy.device == "cpu"
        np.testing.assert_array_equal(copy[...], truth)
        level = image["1"][...]
        assert isinstance(level, np.ndarray)
        np.testing.assert_allclose(level, truth.reshape(16, 2, 32, 2, 24, 2).mean(axis=(1, 3, 5)), rtol=1e-6)


FORKED = """
import os, sys
import numpy as np, cuzarr

path, device, used = sys.argv[1:]
array = cuzarr.open_array(path, accelerator=device)
if used == "used":
    array[...]
child = os.fork()
if child == 0:
    truth = cuzarr.open_array(path)[...]
    assert (array[...] == truth).all()
    array[:8] = truth[:8]
    assert "this process was forked" in str(array.explain())
    try:
        with cuzarr.config.set(strict=True):
            cuzarr.open_array(path, accelerator=device)[...]
    except cuzarr.errors.FallbackRefusedError as error:
        print("refused", "forked" in str(error), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("forked" in str(array.explain()))
"""


@pytest.mark.parametrize("used", ["used", "unused"])
def test_forked_children_leave_it_to_the_host(gpu: str, tmp_path: Path, used: str) -> None:
    cuzarr.create_array(tmp_path / "a", data=values((64, 64)), chunks=(16, 16), compressors=CODECS["zstd"])
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path / "a"), gpu, used]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["refused", "True", "False"]), done.stdout + done.stderr

"""Memory watched: what is said to be in use, limits, other libraries' pools."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr import _core
from cuzarr.errors import (
    CuzarrError,
    CuzarrRuntimeWarning,
    DeviceUnavailableError,
    FallbackRefusedError,
    InvalidArgumentError,
    LibraryMissingError,
)


def test_info_counts_what_is_held(device: str) -> None:
    before = cuzarr.memory.info(device)
    assert 0 < before.free <= before.total and before.device == device
    if device == "cpu":
        return
    held = cuzarr.DeviceArray.empty((1 << 20,), "uint8", device)
    during = cuzarr.memory.info(device)
    assert during.used >= before.used + held.nbytes and during.peak >= during.used
    del held
    cuzarr.memory.empty_cache(device)
    cuzarr.memory.reset_peak(device)
    after = cuzarr.memory.info(device)
    assert after.used <= before.used and after.peak == after.used
    assert "in flight" in str(after)


def test_a_limit_holds_inside_its_block() -> None:
    before = cuzarr.config.get("memory_limit")
    with cuzarr.memory.limit("8 KiB"):
        assert cuzarr.config.get("memory_limit") == 8192
        array = cuzarr.create_array({}, shape=(1 << 14,), chunks=(1 << 14,), dtype="float64")
        with pytest.raises(CuzarrError, match="memory limit"):
            array[...] = np.ones(1 << 14)
    assert cuzarr.config.get("memory_limit") == before
    with pytest.raises(CuzarrError):
        cuzarr.memory.limit("many")


def test_unknown_devices_and_allocators_are_named() -> None:
    with pytest.raises((DeviceUnavailableError, CuzarrError)):
        cuzarr.memory.info("cuda:99")
    with pytest.raises(InvalidArgumentError, match="one of cuzarr, cupy"):
        cuzarr.memory.use_allocator("malloc")  # type: ignore[arg-type]


@pytest.mark.parametrize("library", ["cupy", "torch", "rmm"])
def test_results_come_from_the_pool_that_was_chosen(library: str, gpu: str) -> None:
    try:
        cuzarr.memory.use_allocator(library)  # type: ignore[arg-type]
    except LibraryMissingError:
        assert cuzarr.memory.info("cpu").allocator == "cuzarr"
        pytest.skip(f"{library} is not installed")
    try:
        if not gpu.startswith("cuda"):
            pytest.skip("skipped: other libraries know real GPUs alone")
        array = cuzarr.create_array({}, data=np.arange(1 << 18), chunks=(1 << 14,))
        array[...]
        gc.collect()  # what other tests left in the pool would be freed meanwhile
        before = cuzarr.memory.info(gpu)
        result = array[...]
        during = cuzarr.memory.info(gpu)
        assert during.used <= before.used and during.allocator == library
        np.testing.assert_array_equal(result.get() if hasattr(result, "get") else result.cpu(), np.arange(1 << 18))
        if library in during.pools:  # RMM has to be told to count
            assert during.pools[library].used >= 8 << 18 > before.pools[library].used
            del result
            assert cuzarr.memory.info(gpu).pools[library].used < 8 << 18
    finally:
        cuzarr.memory.use_allocator("cuzarr")


class Lender:
    """Gives host memory for the kernels that run on the CPU, as another library's pool gives a GPU's."""

    def __init__(self) -> None:
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()

    def __call__(self, size: int, where: str) -> tuple[int, object]:
        memory = np.zeros(size + 256, "uint8").view(_Weak)
        self.alive.add(memory)
        return -(-memory.ctypes.data // 256) * 256, memory


class _Weak(np.ndarray):  # type: ignore[type-arg]
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__  # type: ignore[assignment]


def test_memory_goes_back_to_its_pool_with_the_last_array_over_it(gpu: str) -> None:
    if gpu.startswith("cuda"):
        pytest.skip("skipped: this lender's memory is the host's")
    lender, values = Lender(), np.arange(1 << 12, dtype="float32").reshape(64, 64)
    array = cuzarr.create_array({}, data=values, chunks=(8, 64), device=gpu)
    _core.set_allocator(lender)
    try:
        result = array[...]
        (size,) = cuzarr.memory.info(gpu).arrays.values()
        assert len(lender.alive) == 1 and size == values.nbytes
        view = result[3:5]
        del result
        assert len(lender.alive) == 1
        np.testing.assert_array_equal(view.cpu(), values[3:5])
        del view
        assert not lender.alive and not cuzarr.memory.info(gpu).arrays
        total = cuzarr.xp.add(array, 1).compute(memory_limit="256 KiB")
        np.testing.assert_array_equal(total.cpu(), values + 1)
        assert len(lender.alive) == 1
        del total
        assert not lender.alive
    finally:
        _core.set_allocator(None)


def test_results_are_known_by_the_array_that_was_read(gpu: str) -> None:
    array = cuzarr.create_array({}, data=np.arange(1 << 10), chunks=(1 << 7,), device=gpu)
    held = [array[...], array[: 1 << 8]]
    info = cuzarr.memory.info(gpu)
    assert list(info.arrays.values()) == [8 * (1 << 10) + 8 * (1 << 8)]
    assert info.pools["cuzarr"].held is not None and info.pools["cuzarr"].used == info.used
    assert "pool of cuzarr" in str(info) and "array '/'" in str(info)
    held.clear()
    assert not cuzarr.memory.info(gpu).arrays


def test_an_allocator_that_fails_says_what_to_lower(gpu: str) -> None:
    def refuse(size: int, where: str) -> tuple[int, object]:
        raise MemoryError(f"no {size} bytes on {where}")

    _core.set_allocator(refuse)
    try:
        with pytest.raises(CuzarrError, match="failed to allocate 64 bytes") as raised:
            cuzarr.DeviceArray.empty((64,), "uint8", gpu)
        assert "lower memory_limit" in str(raised.value.hint)
    finally:
        _core.set_allocator(None)


# ------------------------------------------------------------------------------------- the host decodes where memory is little


@pytest.fixture
def one_large_chunk(gpu: str) -> cuzarr.Array:
    """A chunk of 8 MiB that is much smaller in storage. Kernels need more than 16 MiB of memory to decode it."""
    zeros_and_one = np.zeros(1 << 21, "f4")
    zeros_and_one[-1] = 1
    array = cuzarr.create_array({}, data=zeros_and_one, chunks=zeros_and_one.shape, compressors=cuzarr.codecs.ZstdCodec(level=1))
    return array.with_device(gpu)


def uploaded_bytes(array: cuzarr.Array) -> int:
    array[:]
    report = array.last_report()
    assert report is not None
    return sum(stage["size_bytes"] for stage in report["stages"] if stage["stage"] == "upload")


def test_the_host_decodes_where_memory_is_too_little_for_kernels(one_large_chunk: cuzarr.Array) -> None:
    with cuzarr.config.set({"memory_limit": "16 MiB"}):
        assert uploaded_bytes(one_large_chunk) >= one_large_chunk.nbytes


def test_explain_tells_that_little_memory_leaves_decoding_to_the_host(one_large_chunk: cuzarr.Array) -> None:
    with cuzarr.config.set({"memory_limit": "16 MiB"}):
        codecs = one_large_chunk.explain().to_dict()["codecs"]
    assert [codec["placement"] for codec in codecs if codec["codec"] == "zstd"] == ["via host"]


def test_strict_refuses_that_the_host_decodes_for_want_of_memory(one_large_chunk: cuzarr.Array) -> None:
    with cuzarr.config.set({"memory_limit": "16 MiB", "strict": True}), pytest.raises(FallbackRefusedError, match="memory"):
        one_large_chunk[:]


def test_decoding_on_the_host_for_want_of_memory_is_told(one_large_chunk: cuzarr.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuzarr._node.array_io._told", set())
    monkeypatch.setattr("cuzarr._node.array_io._looked_at", set())
    with cuzarr.config.set({"memory_limit": "16 MiB"}), pytest.warns(CuzarrRuntimeWarning, match="memory"):
        one_large_chunk[:]

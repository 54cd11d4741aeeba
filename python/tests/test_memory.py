"""Memory watched: what is said to be in use, limits, other libraries' pools."""

from __future__ import annotations

import numpy as np
import pytest

import cuzarr
from cuzarr import _core
from cuzarr.errors import CuzarrError, DeviceUnavailableError, InvalidArgumentError, LibraryMissingError


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
        used = cuzarr.memory.info(gpu).used
        result = array[...]
        assert cuzarr.memory.info(gpu).used <= used and cuzarr.memory.info(gpu).allocator == library
        np.testing.assert_array_equal(result.get() if hasattr(result, "get") else result.cpu(), np.arange(1 << 18))
    finally:
        cuzarr.memory.use_allocator("cuzarr")


def test_an_allocator_that_fails_says_what_to_lower(gpu: str) -> None:
    def refuse(size: int, where: str) -> tuple[int, object]:
        raise MemoryError(f"no {size} bytes on {where}")

    _core.set_allocator(refuse)
    try:
        with pytest.raises(CuzarrError, match="gave no 64 bytes") as raised:
            cuzarr.DeviceArray.empty((64,), "uint8", gpu)
        assert "lower memory_limit" in str(raised.value.hint)
    finally:
        _core.set_allocator(None)

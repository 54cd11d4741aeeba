"""Two GPUs in one process: copies between them, arrays of each, reads divided among both. Skipped where there is one."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import numpy as np
import pytest
from devices import to_host

import cuzarr
from cuzarr.codecs import BloscCodec, ZstdCodec

TRUTH = np.arange(300 * 200, dtype="f4").reshape(300, 200)
PAIR = ["cuda:0", "cuda:1"]


def _problem() -> str | None:
    try:
        for device in PAIR:
            cuzarr.DeviceArray.empty((1,), "u1", device)
    except cuzarr.errors.CuzarrError as error:
        return str(error)
    return None


PROBLEM = _problem()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=f"skipped: no two GPUs: {PROBLEM}")


@pytest.fixture(params=[None, BloscCodec(cname="lz4", typesize=4), ZstdCodec(level=1)], ids=["none", "blosc", "zstd"])
def path(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> str:
    array = cuzarr.create_array(str(tmp_path), shape=TRUTH.shape, chunks=(40, 50), dtype="f4", compressors=request.param)
    array[...] = TRUTH
    return str(tmp_path)


@pytest.mark.parametrize("strict", [False, True])
def test_a_read_is_divided_among_both(path: str, strict: bool) -> None:
    with cuzarr.config.set({"array_type": "device", "strict": strict}):
        parts: Any = cuzarr.open_array(path, mode="r").read(device=PAIR)
        assert [part.device for part in parts] == PAIR
        np.testing.assert_array_equal(np.concatenate([to_host(part) for part in parts]), TRUTH)


def test_elements_are_copied_from_one_to_the_other_and_back() -> None:
    for count in (1, 5, 1 << 20, (64 << 20) // 4 + 77):
        truth = np.random.default_rng(count).integers(0, 1 << 30, count, dtype="i4")
        first = cuzarr.DeviceArray.from_host(truth, PAIR[0])
        second: Any = first.to(PAIR[1])
        back: Any = second.to(PAIR[0])
        assert (second.device, back.device) == (PAIR[1], PAIR[0])
        np.testing.assert_array_equal(second.cpu(), truth)
        np.testing.assert_array_equal(back.cpu(), truth)


def test_a_store_on_one_is_read_on_the_other() -> None:
    with cuzarr.config.set({"array_type": "device"}):
        store = cuzarr.storage.GpuMemoryStore(device=PAIR[1])
        array = cuzarr.create_array(store, shape=TRUTH.shape, chunks=(40, 50), dtype="f4", compressors=None)
        array[...] = TRUTH
        for device in PAIR:
            np.testing.assert_array_equal(to_host(array.with_device(device)[...]), TRUTH)


def test_arrays_of_each_are_read_at_once_and_do_not_meet(path: str) -> None:
    failures: list[BaseException] = []

    def work(device: str) -> None:
        try:
            array = cuzarr.open_array(path, mode="r", device=device)
            for turn in range(20):
                rows = slice(turn, 300 - 3 * turn)
                np.testing.assert_array_equal(to_host(array[rows]), TRUTH[rows])
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(device,)) for device in PAIR * 2]
    with cuzarr.config.set({"array_type": "device"}):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_what_the_second_wrote_the_first_reads(tmp_path: pathlib.Path) -> None:
    with cuzarr.config.set({"array_type": "device"}):
        array = cuzarr.create_array(str(tmp_path), shape=TRUTH.shape, chunks=(40, 50), dtype="f4", compressors=ZstdCodec())
        array[...] = cuzarr.DeviceArray.from_host(TRUTH, PAIR[1])
        np.testing.assert_array_equal(to_host(array.with_device(PAIR[0])[...]), TRUTH)

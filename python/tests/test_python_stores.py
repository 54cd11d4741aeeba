"""Stores whose code is Python: what their methods return, raise, do meanwhile and see of a read."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from plain_store import Objects

import cuzarr
from cuzarr import _core
from cuzarr.errors import CuzarrError
from cuzarr.storage.adapters.base import OneByOne
from cuzarr.storage.adapters.mapping import MappingAdapter

zarr = pytest.importorskip("zarr")

from zarr.core.buffer import cpu  # noqa: E402

import cuzarr.zarr  # noqa: E402

CHUNKS = 10
FIELD = np.arange(CHUNKS * 100, dtype="int32")


class Asked:
    """The chunks that a store was asked for, and a hook that each request for one passes first."""

    def __init__(self, before: Callable[[str], Any] = lambda key: None) -> None:
        self.before = before
        self.keys: list[str] = []

    def __call__(self, key: str) -> None:
        if "c/" in key:
            self.keys.append(key)
            self.before(key)


class Synchronous(Objects):
    """A store without a coroutine."""

    def __init__(self, values: dict[str, Any], *before: Callable[[str], Any]) -> None:
        super().__init__(values)
        self.asked = Asked(*before)

    def get(self, key: str) -> Any:
        self.asked(key)
        return super().get(key)


class NeverWaiting(zarr.storage.MemoryStore):  # type: ignore[misc, name-defined]
    """A store with coroutines that never wait."""

    def __init__(self, values: dict[str, Any], *before: Callable[[str], Any]) -> None:
        super().__init__({key: cpu.Buffer.from_bytes(value) for key, value in values.items()})
        self.asked = Asked(*before)

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        self.asked(key)
        return await super().get(key, *args, **kwargs)


class Waiting(NeverWaiting):
    """A store with coroutines that let others run first."""

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return await super().get(key, *args, **kwargs)


STORES = (Synchronous, NeverWaiting, Waiting)


def values_of(compressors: Any = None) -> dict[str, bytes]:
    """The stored values of an array of ten chunks."""
    values: dict[str, bytes] = {}
    cuzarr.create_array(values, shape=FIELD.shape, chunks=(100,), dtype=FIELD.dtype, compressors=compressors)[:] = FIELD
    return values


@pytest.fixture(params=STORES, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["array", "zarr"])
def open_array(request: pytest.FixtureRequest, kind: Any) -> Any:
    """Opens the array in a store by cuzarr, or by zarr-python through cuzarr's pipeline."""
    if request.param == "array":
        yield cuzarr.open_array
    elif kind is Synchronous:
        pytest.skip("skipped: zarr-python takes no such store")
    else:
        with cuzarr.zarr.enable():
            yield zarr.open_array


@pytest.mark.parametrize("compressors", [None, "auto"])
def test_values_are_read(kind: Any, open_array: Any, compressors: Any) -> None:
    store = kind(values_of(compressors))
    array = open_array(store)
    np.testing.assert_array_equal(array[:], FIELD)
    assert sorted(store.asked.keys) == [f"c/{at}" for at in range(CHUNKS)], "each is requested once"
    np.testing.assert_array_equal(array[150:420], FIELD[150:420])


def test_the_third_of_ten_requests_raises(kind: Any, open_array: Any) -> None:
    def third(key: str) -> None:
        if key == "c/2":
            raise ConnectionAbortedError("the third")

    store = kind(values_of(), third)
    array = open_array(store)
    with pytest.raises((CuzarrError, ConnectionAbortedError), match="the third"):
        array[:]
    if kind is not Waiting:
        assert set(store.asked.keys) == {"c/0", "c/1", "c/2"}, "after a failure, nothing further is requested"
    store.asked.before = lambda key: None
    np.testing.assert_array_equal(array[:], FIELD)


@pytest.mark.parametrize("missing", [("c/0",), ("c/9",), tuple(f"c/{at}" for at in range(CHUNKS))])
def test_missing_chunks_are_the_fill_value(kind: Any, open_array: Any, missing: Sequence[str]) -> None:
    values = values_of()
    expected = FIELD.copy()
    for key in missing:
        del values[key]
        expected[int(key[2:]) * 100 :][:100] = 0
    np.testing.assert_array_equal(open_array(kind(values))[:], expected)


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_program_ends_a_read(error: type[BaseException]) -> None:
    def last(key: str) -> None:
        if key == "c/9":
            raise error

    array = cuzarr.open_array(Synchronous(values_of(), last))
    with pytest.raises((CuzarrError, error)):
        array[:]


@pytest.mark.parametrize("kind", [NeverWaiting, Waiting], ids=lambda kind: kind.__name__)
def test_a_request_that_cancels_itself_is_an_error(kind: Any) -> None:
    def third(key: str) -> None:
        if key == "c/2":
            raise asyncio.CancelledError

    array = cuzarr.open_array(kind(values_of(), third))
    with pytest.raises(CuzarrError):
        array[:]


KINDS_OF_VALUES: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "memoryview of numbers": lambda raw: memoryview(raw + b"\0" * (-len(raw) % 4)).cast("i") if len(raw) % 4 == 0 else raw,
    "array": lambda raw: np.frombuffer(raw, "u1"),
    "array of int8": lambda raw: np.frombuffer(raw, "i1"),
    "zarr": lambda raw: cpu.Buffer.from_bytes(raw),
}


@pytest.mark.parametrize("made", KINDS_OF_VALUES)
@pytest.mark.parametrize("compressors", [None, "auto"])
def test_values_may_be_any_bytes(made: str, compressors: Any) -> None:
    values = {key: KINDS_OF_VALUES[made](value) for key, value in values_of(compressors).items()}
    for store in (values, Synchronous(values)):
        np.testing.assert_array_equal(cuzarr.open_array(store)[:], FIELD)


def test_parts_of_shards_may_be_any_bytes() -> None:
    plain: dict[str, bytes] = {}
    cuzarr.create_array(plain, shape=FIELD.shape, chunks=(50,), shards=(500,), dtype=FIELD.dtype, compressors=None)[:] = FIELD
    for make in KINDS_OF_VALUES.values():
        values = {key: make(value) for key, value in plain.items()}
        for store in (values, Synchronous(values)):
            array = cuzarr.open_array(store)
            np.testing.assert_array_equal(array[:], FIELD)
            np.testing.assert_array_equal(array[60:80], FIELD[60:80])


def test_values_with_gaps_are_read_from_stores_of_zarr_python(kind: Any, open_array: Any) -> None:
    if kind is Synchronous:
        pytest.skip("skipped: its values are bytes")
    store = kind(values_of())
    for key, value in store._store_dict.items():
        doubled = value.as_numpy_array().repeat(2)
        store._store_dict[key] = cpu.Buffer.from_array_like(doubled[::2])
    np.testing.assert_array_equal(open_array(store)[:], FIELD)


def test_a_store_may_return_one_buffer_again_and_again() -> None:
    class OneBuffer(Synchronous):
        buffer = bytearray(400)

        def get(self, key: str) -> Any:
            value = super().get(key)
            if "c/" not in key:
                return value
            self.buffer[:] = value
            return memoryview(self.buffer)

    np.testing.assert_array_equal(cuzarr.open_array(OneBuffer(values_of()))[:], FIELD)


@pytest.mark.parametrize("compressors", [None, "auto"])
def test_no_value_is_kept_after_a_read(compressors: Any) -> None:
    values = {key: bytes(bytearray(value)) for key, value in values_of(compressors).items()}
    array = cuzarr.open_array(values)
    array[:]
    before = [sys.getrefcount(values[f"c/{at}"]) for at in range(CHUNKS)]
    array[:]
    assert [sys.getrefcount(values[f"c/{at}"]) for at in range(CHUNKS)] == before


def test_values_larger_than_what_may_wait_are_read() -> None:
    values: dict[str, bytes] = {}
    field = np.arange(3 * 12 << 20, dtype="u4")  # three chunks of 48 MiB
    cuzarr.create_array(values, shape=field.shape, chunks=(12 << 20,), dtype="u4", compressors=None)[:] = field
    np.testing.assert_array_equal(cuzarr.open_array(values)[:], field)


def test_a_store_may_use_cuzarr_itself(kind: Any, open_array: Any) -> None:
    inner = cuzarr.open_array(NeverWaiting(values_of("auto")))
    sums: list[int] = []
    store = kind(values_of(), lambda key: sums.append(int(inner[:].sum())))
    np.testing.assert_array_equal(open_array(store)[:], FIELD)
    assert sums == [FIELD.sum()] * CHUNKS


def test_a_store_may_be_read_by_many_threads_at_once(kind: Any, open_array: Any) -> None:
    array = open_array(kind(values_of("auto")))
    with ThreadPoolExecutor(8) as threads:
        for read in threads.map(lambda _: array[:], range(40)):
            np.testing.assert_array_equal(read, FIELD)


def test_a_cancelled_read_makes_no_further_request(kind: Any) -> None:
    entered, go = threading.Event(), threading.Event()

    def wait(key: str) -> None:
        if key == "c/3":
            entered.set()
            assert go.wait(30)

    store = kind(values_of(), wait)
    array = cuzarr.open_array(store)

    async def main() -> None:
        reading = asyncio.create_task(array.async_array.getitem(...))
        await asyncio.to_thread(entered.wait, 30)
        reading.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(main())
    if kind is not Waiting:
        assert store.asked.keys == ["c/0", "c/1", "c/2", "c/3"]
    np.testing.assert_array_equal(array[:], FIELD)


def test_a_store_that_closes_meanwhile_is_an_error(kind: Any, open_array: Any) -> None:
    is_open = True

    def use(key: str) -> None:
        nonlocal is_open
        if not is_open:
            raise ValueError("the store is closed")
        is_open = key != "c/4"

    array = open_array(kind(values_of(), use))
    with pytest.raises((CuzarrError, ValueError), match="the store is closed"):
        array[:]


# ------------------------------------------------------------------------------------------------------------ adapters


class Late(MappingAdapter):
    """An adapter that leaves its answers to ``answer``, which runs in another thread."""

    def __init__(self, values: dict[str, bytes], answer: Callable[[Late, Sequence[Any], _core.ChunkReply], None]) -> None:
        super().__init__(values)
        self.answer = answer

    def start(self, requests: Sequence[Any], reply: _core.ChunkReply) -> None:
        if "c/" in requests[0][0]:
            threading.Thread(target=self.answer, args=(self, requests, reply)).start()
        else:
            super().start(requests, reply)


def opened(adapter: OneByOne) -> Any:
    store = cuzarr.storage.ForeignStore({})
    store._handle = store._through_python = _core.Store.python(adapter)
    return cuzarr.open_array(store)


def test_answers_may_come_in_any_order_and_twice() -> None:
    def backwards(adapter: Late, requests: Sequence[Any], reply: _core.ChunkReply) -> None:
        for index, request in reversed(list(enumerate(requests))):
            reply(index, adapter.get(*request))
            reply(index, ValueError("too late"))

    np.testing.assert_array_equal(opened(Late(values_of("auto"), backwards))[:], FIELD)


def test_an_answer_to_no_request_is_refused() -> None:
    refused: list[BaseException] = []

    def beyond(adapter: Late, requests: Sequence[Any], reply: _core.ChunkReply) -> None:
        for index in (len(requests), sys.maxsize):
            try:
                reply(index, b"")
            except IndexError as error:
                refused.append(error)
        adapter.start = None  # type: ignore[assignment, method-assign]
        OneByOne.start(adapter, requests, reply)

    np.testing.assert_array_equal(opened(Late(values_of(), beyond))[:], FIELD)
    assert len(refused) == 2


def test_requests_without_an_answer_are_errors() -> None:
    def half(adapter: Late, requests: Sequence[Any], reply: _core.ChunkReply) -> None:
        OneByOne.start(adapter, requests[:5], reply)

    with pytest.raises(CuzarrError, match="dropped the read"):
        opened(Late(values_of(), half))[:]


def test_answers_that_are_no_bytes_are_errors() -> None:
    def numbers(adapter: Late, requests: Sequence[Any], reply: _core.ChunkReply) -> None:
        for index, _ in enumerate(requests):
            reply(index, index)

    with pytest.raises(CuzarrError, match="c/"):
        opened(Late(values_of(), numbers))[:]


def test_an_adapter_that_raises_after_some_answers_ends_the_other_requests() -> None:
    class Raising(MappingAdapter):
        def start(self, requests: Sequence[Any], reply: _core.ChunkReply) -> None:
            super().start(requests[:4], reply)
            if "c/" in requests[0][0]:
                raise RuntimeError("out of order")

    with pytest.raises(CuzarrError, match="out of order"):
        opened(Raising(values_of("auto")))[:]

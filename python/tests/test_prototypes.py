"""Buffer classes of a program's own: results lie in memory that they make, as in zarr-python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import to_host

import cuzarr
from cuzarr.buffer import BufferPrototype, cpu, gpu as gpus

TRUTH = np.arange(30).reshape(5, 6)


def counting(base: Any) -> Any:
    """A class over another one that notes every call, fills new memory, and keeps it."""

    class Counting(base):
        calls: list[tuple[Any, ...]] = []
        made: list[Any] = []

        @classmethod
        def empty(cls, shape: Any, dtype: Any, order: Any = "C") -> Any:
            cls.calls.append(("empty", shape, np.dtype(dtype), order))
            new = super().empty(shape, dtype, order)
            if np.dtype(dtype).kind in "iuf":
                new.as_ndarray_like().fill(99)
            cls.made.append(new.as_ndarray_like())
            return new

        @classmethod
        def from_ndarray_like(cls, ndarray_like: Any) -> Any:
            cls.calls.append(("from", tuple(ndarray_like.shape), np.dtype(ndarray_like.dtype)))
            return super().from_ndarray_like(ndarray_like)

    return Counting


def reads(array: Any, **prototype: Any) -> list[Any]:
    """One result of each way to read."""
    return [
        array.get_basic_selection((slice(1, 4), slice(None, None, 2)), **prototype),
        array.get_basic_selection((slice(2, 2), 3), **prototype),
        array.get_basic_selection(..., **prototype),
        array.get_block_selection((0, 1), **prototype),
        array.get_orthogonal_selection(([0, 4, 2], 3), **prototype),
        array.get_coordinate_selection(([0, 4, 2], [5, 1, 0]), **prototype),
        array.get_coordinate_selection(([[0, 4]], [[5, 1]]), **prototype),
        array.get_mask_selection(TRUTH % 3 == 0, **prototype),
    ]


@pytest.mark.parametrize("dtype", ["i4", "f8"])
@pytest.mark.parametrize(("order", "zarr_format"), [("C", 3), ("C", 2), ("F", 2)])
def test_memory_is_asked_for_as_zarr_python_asks(dtype: str, order: Any, zarr_format: Any) -> None:
    zarr = pytest.importorskip("zarr", minversion="3.4")
    pytest.importorskip("zarr.buffer")
    settings: dict[str, Any] = {"shape": (5, 6), "chunks": (2, 4), "dtype": dtype, "zarr_format": zarr_format}
    if zarr_format == 2:
        settings["order"] = order
    results, calls = [], []
    for library, base in ((zarr, zarr.buffer.cpu.NDBuffer), (cuzarr, cpu.NDBuffer), (cuzarr, zarr.buffer.cpu.NDBuffer)):
        array = library.create_array({}, **settings)
        array[...] = TRUTH
        own = counting(base)
        prototype = type(zarr.buffer.cpu.buffer_prototype)(library.buffer.cpu.Buffer, own)
        results.append(reads(array, prototype=prototype))
        calls.append([call for call in own.calls if call[0] == "empty"])
        if library is cuzarr:  # zarr-python copies what coordinates gave
            assert all(np.shares_memory(*pair) or not pair[0].size for pair in zip(results[-1], own.made, strict=True))
    assert calls[0] == calls[1] == calls[2]
    for theirs, *ours in zip(*results, strict=True):
        for one in ours:
            np.testing.assert_array_equal(one, theirs)
            assert one.flags.f_contiguous == theirs.flags.f_contiguous and one.dtype == theirs.dtype


@pytest.mark.parametrize("way", ["argument", "configuration"])
def test_results_lie_in_memory_of_the_class_on_every_device(device: str, way: str) -> None:
    own = counting(cpu.NDBuffer if device == "cpu" else gpus.NDBuffer)
    prototype = BufferPrototype(cpu.Buffer if device == "cpu" else gpus.Buffer, own)
    array = cuzarr.create_array({}, shape=(5, 6), chunks=(2, 4), dtype="i8", fill_value=0)
    array.with_device("cpu")[...] = TRUTH
    with cuzarr.config.set({"buffer": prototype.buffer, "ndbuffer": own} if way == "configuration" else {}):
        found = reads(array, **({} if way == "configuration" else {"prototype": prototype}))
    for result, expected in zip(found, reads(array.with_device("cpu")), strict=True):
        np.testing.assert_array_equal(to_host(result), expected)
    assert [call[0] for call in own.calls] == ["empty"] * len(found)
    if device == "cpu":
        assert all(np.shares_memory(result, memory) or not result.size for result, memory in zip(found, own.made, strict=True))
    else:
        addresses = [memory.__cuda_array_interface__["data"] for memory in own.made]
        assert all(result.__cuda_array_interface__["data"] in addresses or not result.size for result in found)


def test_every_way_to_read_and_write_goes_through_the_class() -> None:
    own = counting(cpu.NDBuffer)
    prototype = BufferPrototype(cpu.Buffer, own)
    array = cuzarr.create_array({}, shape=(5, 6), chunks=(2, 4), dtype=">f4", zarr_format=2)
    ways: list[Any] = [
        lambda: array.set_basic_selection(..., TRUTH, prototype=prototype),
        lambda: array.set_basic_selection((0, 1), 7, prototype=prototype),
        lambda: array.set_orthogonal_selection(([0], [1]), [[1]], prototype=prototype),
        lambda: array.set_coordinate_selection(([0], [1]), 1, prototype=prototype),
        lambda: array.set_mask_selection(TRUTH == 1, 1, prototype=prototype),
        lambda: array.set_block_selection((0, 0), TRUTH[:2, :4], prototype=prototype),
        lambda: array.setitem((0, slice(0, 2)), [0, 1], prototype),
    ]
    for way in ways:
        own.calls.clear()
        way()
        assert [(call[0], call[2]) for call in own.calls] == [("from", np.dtype(">f4"))]
    own.calls.clear()
    many = array.read_many([0, (slice(1, 3), 2)], prototype=prototype)
    others = [array.getitem((slice(None), [0, 5]), prototype=prototype), array.read(0, dtype="i2", prototype=prototype)]
    assert [call[0] for call in own.calls] == ["empty"] * 4
    for result, expected in zip([*many, *others], [TRUTH[0], TRUTH[1:3, 2], TRUTH[:, [0, 5]], TRUTH[0]], strict=True):
        np.testing.assert_array_equal(result, expected)
        assert any(np.shares_memory(result, memory) for memory in own.made)


def test_fields_and_strings_lie_in_memory_of_the_class() -> None:
    own = counting(cpu.NDBuffer)
    prototype = BufferPrototype(cpu.Buffer, own)
    pairs = np.array([(1, 2.5), (3, 4.5), (5, 6.5)], [("a", "i2"), ("b", ">f8")])
    array = cuzarr.create_array({}, data=pairs, chunks=2, zarr_format=2)
    found = [
        array.get_basic_selection(..., prototype=prototype),
        array.get_basic_selection(slice(1, 3), fields="b", prototype=prototype),
    ]
    found += [array.get_coordinate_selection([2, 0], fields=["a"], prototype=prototype)]
    text = cuzarr.array(np.array(["one", "two", "three"], "T"), chunks=2)
    found += [text.get_basic_selection(slice(1, 3), prototype=prototype)]
    expected = [pairs, pairs[1:]["b"], pairs[[2, 0]][["a"]], np.array(["two", "three"])]
    for result, wanted, memory in zip(found, expected, own.made, strict=True):
        assert result.tolist() == wanted.tolist() and np.shares_memory(result, memory)


def test_memory_that_is_no_array_of_numpys_is_assigned_to() -> None:
    class Wrapped:
        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __setitem__(self, key: Any, value: Any) -> None:
            self.array[key] = value

    class Own(cpu.NDBuffer):
        @classmethod
        def empty(cls, shape: Any, dtype: Any, order: Any = "C") -> Any:
            return cls(Wrapped(np.empty(shape, dtype, order)))  # type: ignore[arg-type]

    array = cuzarr.array(TRUTH, chunks=(2, 4))
    result = array.get_basic_selection((slice(1, 3), 2), prototype=BufferPrototype(cpu.Buffer, Own))
    assert isinstance(result, Wrapped) and result.array.tolist() == TRUTH[1:3, 2].tolist()


def test_a_class_needs_nothing_but_create() -> None:
    class Own(cpu.HostMemory, cuzarr.buffer.NDBuffer):
        __setitem__, all_equal = cpu.NDBuffer.__setitem__, cpu.NDBuffer.all_equal
        from_numpy_array = cpu.NDBuffer.from_numpy_array

        @classmethod
        def create(cls, *, shape: Any, dtype: Any, order: Any = "C", fill_value: Any = None) -> Any:
            return cls(np.full(shape, 99 if fill_value is None else fill_value, dtype, order).view(Subclass))

    class Subclass(np.ndarray):  # type: ignore[type-arg]
        pass

    array = cuzarr.array(TRUTH, chunks=(2, 4))
    result = array.get_basic_selection(..., prototype=BufferPrototype(cpu.Buffer, Own))
    assert type(result) is Subclass
    np.testing.assert_array_equal(np.asarray(result), TRUTH)

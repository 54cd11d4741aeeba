"""Buffers: the same calls on host memory and on a GPU's, compared with NumPy and with zarr-python's own buffers."""

from __future__ import annotations

import gc
import operator
import pickle
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.buffer import ArrayLike, Buffer, BufferPrototype, NDArrayLike, NDBuffer, cpu, default_buffer_prototype, gpu as gpus
from cuzarr.errors import (
    CuzarrUserWarning,
    DTypeMismatchError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    MemorySpaceError,
    UnsupportedError,
)

TRUTH = np.arange(24, dtype="f4").reshape(4, 6) - 5


@pytest.fixture
def memory(device: str) -> ModuleType:
    """The module of buffers for a device."""
    return cpu if device == "cpu" else gpus


def host(value: Any) -> np.ndarray[Any, Any]:
    """Elements of a buffer or an array, on the host because the test asks for them."""
    if isinstance(value, NDBuffer | Buffer):
        return value.as_numpy_array()
    return value.get() if hasattr(value, "get") else value.cpu() if hasattr(value, "cpu") else np.asarray(value)


# --------------------------------------------------------------------------------------------------------------- bytes


def test_bytes_are_made_sliced_joined_and_compared(memory: ModuleType, device: str) -> None:
    buffer = memory.Buffer.from_bytes(b"abcdef")
    assert buffer.device.startswith(device) and buffer.is_host_accessible == (device == "cpu")
    assert (len(buffer), buffer.to_bytes(), bytes(buffer.as_buffer_like())) == (6, b"abcdef", b"abcdef")
    assert buffer[2:4].to_bytes() == b"cd" and buffer[-2:].to_bytes() == b"ef" and len(buffer[6:]) == 0
    assert (buffer + memory.Buffer.from_bytes(b"!")).to_bytes() == b"abcdef!"
    others = [cpu.Buffer.from_bytes(b"12"), memory.Buffer.create_zero_length(), memory.Buffer.from_bytes(b"3")]
    assert memory.Buffer.create_zero_length().combine([buffer, *others]).to_bytes() == b"abcdef123"
    assert buffer == memory.Buffer.from_bytes(b"abcdef") and buffer == cpu.Buffer.from_bytes(b"abcdef")
    assert buffer != memory.Buffer.from_bytes(b"abcdeg") and buffer != memory.Buffer.from_bytes(b"abcde") and buffer != b"abcdef"


def test_slices_of_bytes_share_memory(memory: ModuleType) -> None:
    buffer = memory.Buffer.from_buffer(cpu.Buffer.from_array_like(np.zeros(6, "B")))
    buffer[1:3][:] = memory.Buffer.from_bytes(b"xy")
    buffer[4:5] = b"z"
    assert buffer.to_bytes() == b"\0xy\0z\0"


def test_bytes_that_are_there_are_not_copied(memory: ModuleType) -> None:
    buffer = memory.Buffer.from_bytes(b"abc")
    array = buffer.as_array_like()
    assert isinstance(array, ArrayLike)
    again = memory.Buffer.from_array_like(array)
    assert again.as_array_like() is array
    assert memory.Buffer.from_buffer(again).as_array_like() is array or memory is cpu


def test_host_memory_under_bytes_is_shared() -> None:
    array = np.arange(4, dtype="B")
    assert cpu.Buffer.from_array_like(array).as_numpy_array() is array
    assert np.shares_memory(cpu.Buffer.from_buffer(cpu.Buffer(array)).as_numpy_array(), array)
    assert np.shares_memory(cpu.Buffer.from_bytes(memoryview(array)).as_numpy_array(), array)


@pytest.mark.parametrize("array", [np.zeros((2, 2), "B"), np.zeros(4, "i1"), np.zeros(4, "f4")])
def test_buffers_of_other_shapes_and_types_are_refused(memory: ModuleType, array: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="dimension|uint8"):
        memory.Buffer.from_array_like(array)


@pytest.mark.parametrize(("key", "error"), [(0, TypeError), ((slice(1),), TypeError), (slice(0, 4, 2), ValueError)])
def test_bytes_are_selected_by_slices_only(memory: ModuleType, key: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        memory.Buffer.from_bytes(b"abcd")[key]


# ------------------------------------------------------------------------------------------------------------ elements

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "the same": lambda array: array,
    "a row": lambda array: array[1],
    "a box": lambda array: array[1:3, ::2],
    "from the end": lambda array: array[-2:, -1],
    "an ellipsis": lambda array: array[..., 2],
    "one element": lambda array: array[2, 3],
    "nothing": lambda array: array[2:2],
    "reshape": lambda array: array.reshape((2, 12)),
    "reshape with -1": lambda array: array.reshape((3, -1)),
    "flat": lambda array: array.reshape(-1),
    "transpose": lambda array: array.transpose(None),
    "transpose axes": lambda array: array.transpose((1, 0)),
    "reshape of a transpose": lambda array: array.transpose((1, 0)).reshape((4, 6)),
    "a box of a transpose": lambda array: array.transpose((1, 0))[1:4, 2],
    "int16": lambda array: array.astype("i2"),
    "float64 of a transpose": lambda array: array.transpose((1, 0)).astype("f8"),
    "bool": lambda array: array.astype("?"),
    "complex": lambda array: array.astype("c8"),
    "copy": lambda array: array[:, 1:4].copy(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_numpys(memory: ModuleType, name: str) -> None:
    got = OPERATIONS[name](memory.NDBuffer.from_numpy_array(TRUTH))
    expected = OPERATIONS[name](TRUTH)
    assert isinstance(got, memory.NDBuffer)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(got.as_numpy_array(), expected)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("fill_value", [None, 0, 7, -1.5])
def test_new_elements_have_the_fill_value_and_the_order(memory: ModuleType, order: Any, fill_value: Any) -> None:
    buffer = memory.NDBuffer.create(shape=iter((3, 4)), dtype="f8", order=order, fill_value=fill_value)
    np.testing.assert_array_equal(buffer.as_numpy_array(), np.full((3, 4), fill_value or 0, "f8"))
    for made in (buffer, memory.NDBuffer.empty((3, 4), "f8", order), buffer.astype("f4")):
        item = made.dtype.itemsize
        assert made.as_ndarray_like().strides == ((4 * item, item) if order == "C" else (item, 3 * item))


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f2", "c16", "M8[ns]", "m8[s]", "S5", "U3", "V6", ">i4", "i2,f4"])
def test_every_fixed_type_is_held(memory: ModuleType, dtype: str) -> None:
    array = np.arange(6, dtype="u1").repeat(np.dtype(dtype).itemsize).view(dtype).reshape(2, 3)
    array = np.zeros((2, 3), dtype) if dtype == "U3" else array
    buffer = memory.NDBuffer.from_numpy_array(array)
    assert buffer.dtype == array.dtype and buffer.byteorder == ("big" if dtype[0] == ">" else "little")
    assert buffer.as_numpy_array().tobytes() == array.tobytes()
    buffer[0] = buffer[1]
    assert buffer.as_numpy_array()[0].tobytes() == array[1].tobytes()
    assert memory.NDBuffer.create(shape=(2,), dtype=dtype).as_numpy_array().tobytes() == bytes(2 * array.dtype.itemsize)


def test_elements_are_written_from_anywhere(memory: ModuleType) -> None:
    buffer, expected = memory.NDBuffer.create(shape=(4, 6), dtype="f4"), np.zeros((4, 6), "f4")
    writes: list[tuple[Any, Any]] = [
        (..., 3),
        (slice(1, 3), np.arange(6)),
        ((slice(None), 2), np.array([9.5, 8, 7, 6])),
        ((0, 0), np.float64(2.25)),
        ((slice(2), slice(0, 6, 3)), cpu.NDBuffer.from_numpy_array(np.array([[1, 2], [3, 4]], "i4"))),
        (3, memory.NDBuffer.from_numpy_array(np.full((1, 6), -1, "f4"))),
    ]
    for key, value in writes:
        buffer[key] = value
        expected[key] = value.as_numpy_array() if isinstance(value, NDBuffer) else value
    np.testing.assert_array_equal(buffer.as_numpy_array(), expected)


def test_views_share_memory_and_copies_do_not(memory: ModuleType) -> None:
    buffer = memory.NDBuffer.from_numpy_array(TRUTH.copy())
    copied = buffer.copy()
    buffer[1:3].reshape((12,)).transpose((0,)).fill(77)
    expected = TRUTH.copy()
    expected[1:3] = 77
    np.testing.assert_array_equal(buffer.as_numpy_array(), expected)
    np.testing.assert_array_equal(copied.as_numpy_array(), TRUTH)
    array = buffer.as_ndarray_like()
    assert isinstance(array, NDArrayLike)
    assert memory.NDBuffer.from_ndarray_like(array).as_ndarray_like() is array


def test_scalars_and_dimensions_of_one(memory: ModuleType) -> None:
    buffer = memory.NDBuffer.from_numpy_array(np.array([[[5]]], "i2"))
    assert buffer.squeeze((0, 2)).shape == (1,) and buffer.squeeze((0, 1, 2)).shape == ()
    assert buffer.as_scalar() == np.int16(5) and type(buffer.as_scalar()) is np.int16
    with pytest.raises(ValueError, match="scalar"):
        memory.NDBuffer.from_numpy_array(TRUTH).as_scalar()
    assert len(memory.NDBuffer.from_numpy_array(TRUTH)) == 4


VALUES: list[tuple[str, list[Any], Any]] = [
    ("f4", [0.0, 0.0], 0.0),
    ("f4", [0.0, -0.0], 0.0),
    ("f4", [-0.0, -0.0], -0.0),
    ("f4", [np.nan, np.nan], np.nan),
    ("f8", [1.5, np.nan], 1.5),
    ("f8", [0.1, 0.1], 0.1),
    ("f4", [0.1, 0.1], 0.1),
    ("i4", [3, 3], 3),
    ("i4", [3, 3], 3.5),
    ("u1", [44, 44], 300),
    ("i8", [2, 2], np.int8(2)),
    ("?", [True, True], True),
    ("?", [True, False], True),
    ("c8", [1 + 2j, 1 + 2j], 1 + 2j),
    ("S2", [b"ab", b"ab"], b"ab"),
    ("M8[s]", [5, 5], np.datetime64(5, "s")),
    ("i4", [3, 3], None),
    ("i4", [3, 4], [3, 4]),
    ("i4", [], 1),
]


@pytest.mark.parametrize(("dtype", "elements", "other"), VALUES)
@pytest.mark.parametrize("equal_nan", [True, False])
def test_equality_is_zarr_pythons(memory: ModuleType, dtype: str, elements: Any, other: Any, equal_nan: bool) -> None:
    theirs = pytest.importorskip("zarr.buffer.cpu")
    array = np.array(elements, dtype)
    expected = theirs.NDBuffer(array).all_equal(other, equal_nan)
    assert memory.NDBuffer.from_numpy_array(array).all_equal(other, equal_nan) == expected


# ------------------------------------------------------------------------------------------------ where memory comes from


def test_device_memory_is_no_host_memory(gpu: str) -> None:
    on_device = gpus.NDBuffer.from_numpy_array(TRUTH)
    with pytest.raises(ImplicitHostCopyError, match="NDBuffer.from_numpy_array"):
        cpu.NDBuffer.from_ndarray_like(on_device.as_ndarray_like())
    with pytest.raises(ImplicitHostCopyError, match=r"Buffer\.from_buffer"):
        cpu.Buffer.from_array_like(gpus.Buffer.from_bytes(b"ab").as_array_like())
    assert cpu.Buffer.from_buffer(gpus.Buffer.from_bytes(b"ab")).to_bytes() == b"ab"


def test_host_memory_given_as_a_gpus_is_copied_with_a_warning_and_refused_under_strict(gpu: str) -> None:
    with pytest.warns(CuzarrUserWarning, match="copied to"):
        assert gpus.Buffer.from_array_like(np.arange(3, dtype="B")).to_bytes() == b"\0\1\2"
    with pytest.warns(CuzarrUserWarning, match="copied to"):
        assert gpus.NDBuffer.from_ndarray_like(TRUTH).device.startswith(gpu)
    with cuzarr.config.set({"strict": True}), pytest.raises(MemorySpaceError, match="from_numpy_array"):
        gpus.NDBuffer.from_ndarray_like(TRUTH)


def test_python_objects_stay_on_the_host(gpu: str) -> None:
    with pytest.raises(TypeError, match="Python objects"):
        gpus.NDBuffer.from_ndarray_like(np.array([None]))
    with pytest.raises(UnsupportedError, match="Python objects"):
        gpus.NDBuffer.create(shape=(2,), dtype=object)


def test_prototypes_are_pairs_that_can_be_pickled() -> None:
    for prototype in (cpu.buffer_prototype, gpus.buffer_prototype, default_buffer_prototype()):
        assert isinstance(prototype, BufferPrototype) and pickle.loads(pickle.dumps(prototype)) == prototype
    assert cpu.numpy_buffer_prototype() == default_buffer_prototype() == (cpu.Buffer, cpu.NDBuffer)


def test_functions_of_host_memory_take_any_buffer(memory: ModuleType) -> None:
    def reverse(array: np.ndarray[Any, Any]) -> bytes:
        return array[::-1].tobytes()

    result = cpu.as_numpy_array_wrapper(reverse, memory.Buffer.from_bytes(b"abc"), memory.buffer_prototype)
    assert isinstance(result, memory.Buffer) and result.to_bytes() == b"cba"


def test_memory_outlives_its_buffer(memory: ModuleType) -> None:
    rows = [memory.NDBuffer.from_numpy_array(np.full((1000,), n, "i4"))[10:20].as_ndarray_like() for n in range(50)]
    gc.collect()
    again = [memory.NDBuffer.from_numpy_array(np.full((1000,), -1, "i4")) for _ in range(50)]
    assert all((host(row) == n).all() for n, row in enumerate(rows)) and len(again) == 50


def test_buffers_are_used_from_many_threads(memory: ModuleType) -> None:
    shared, failures = memory.NDBuffer.create(shape=(8, 1000), dtype="i4"), []

    def work(place: int) -> None:
        for round_ in range(20):
            shared[place] = np.full(1000, place * 100 + round_, "i4")
            joined = memory.Buffer.from_bytes(bytes([place])) + memory.Buffer.from_bytes(bytes([round_]))
            if not shared[place].all_equal(place * 100 + round_) or joined.to_bytes() != bytes([place, round_]):
                failures.append((place, round_))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_arrays_take_and_give_buffers(memory: ModuleType, device: str) -> None:
    array = cuzarr.create_array({}, shape=TRUTH.shape, chunks=(3, 4), dtype="f4")
    array[:] = memory.NDBuffer.from_numpy_array(TRUTH)
    got = array.getitem(..., prototype=memory.buffer_prototype)
    assert (isinstance(got, np.ndarray)) == (device == "cpu")
    np.testing.assert_array_equal(host(got), TRUTH)
    array.setitem((slice(None), [1, 4]), memory.NDBuffer.from_numpy_array(-TRUTH[:, [1, 4]]))
    expected = TRUTH.copy()
    expected[:, [1, 4]] *= -1
    np.testing.assert_array_equal(array.getitem(..., prototype=cpu.buffer_prototype), expected)
    out = memory.NDBuffer.create(shape=(2, 6), dtype="f4")
    array.get_basic_selection(slice(1, 3), out=out, prototype=memory.buffer_prototype)
    np.testing.assert_array_equal(out.as_numpy_array(), expected[1:3])


SELECTIONS: list[Any] = [
    ([0, 3], slice(None)),
    ([3, 0, 0], [1, 5, 5]),
    (slice(None, None, 2), [True, False, True, False, False, True]),
    TRUTH > 3,
    (2, [5, 0]),
]


@pytest.mark.parametrize("place", range(len(SELECTIONS)))
def test_index_arrays_give_the_same_on_every_device(device: str, place: int) -> None:
    selection = SELECTIONS[place]
    array = cuzarr.create_array({}, data=TRUTH, chunks=(3, 4), dtype=None)
    np.testing.assert_array_equal(host(array[selection]), TRUTH[selection])
    array[selection] = host(array[selection]) * 2
    expected = TRUTH.copy()
    expected[selection] *= 2
    np.testing.assert_array_equal(array.with_device("cpu")[:], expected)


def test_fields_of_structures_are_read_to_every_device(device: str) -> None:
    truth = np.array([(1, 2.5), (3, 4.5), (5, 6.5)], "i4,f8")
    array = cuzarr.create_array({}, data=truth, chunks=(2,))
    np.testing.assert_array_equal(host(array["f1"]), truth["f1"])
    np.testing.assert_array_equal(host(array.get_basic_selection(slice(1, 3), fields="f0")), truth["f0"][1:3])
    assert host(array[:]).tobytes() == truth.tobytes()
    array["f0"] = np.array([7, 8, 9])
    assert array.with_device("cpu")[:].tolist() == [(7, 2.5), (8, 4.5), (9, 6.5)]


# -------------------------------------------------------------------------------------------------------- device arrays


def test_device_arrays_are_pickled_through_the_host(gpu: str) -> None:
    array = cuzarr.DeviceArray.from_host(TRUTH, gpu)
    again = pickle.loads(pickle.dumps(array))
    assert again.device == array.device and (again.cpu() == TRUTH).all()


def test_device_arrays_say_what_they_cannot_do(gpu: str) -> None:
    array = cuzarr.DeviceArray.from_host(TRUTH, gpu)
    with pytest.raises(IndexError):
        array[[0, 9]]
    with pytest.raises(IndexError):
        array[9]
    with pytest.raises(InvalidArgumentError, match="shape"):
        array.reshape((5, -1))
    with pytest.raises(InvalidArgumentError, match="cannot be viewed as"):
        array[:, ::2].view("u1")
    with pytest.raises(InvalidArgumentError, match="without a copy"):
        array.T.reshape((24,), copy=False)


def test_device_arrays_are_viewed_as_elements_of_other_sizes(gpu: str) -> None:
    array = cuzarr.DeviceArray.from_host(TRUTH, gpu)
    for dtype in ("u1", "i4", "c8", "S12", [("a", "<u2"), ("b", "<u2")]):
        np.testing.assert_array_equal(array.view(dtype).cpu(), TRUTH.view(dtype))
    assert (array.view("u1").view(TRUTH.dtype).cpu() == TRUTH).all()
    with pytest.raises(InvalidArgumentError):
        array.view("u1").ravel()[1:17].view("u8")


def test_structures_are_converted_by_their_fields_or_not_at_all(gpu: str) -> None:
    inner: Any = [("p", "<c8"), ("q", ">u2", (2,))]
    dtype = np.dtype([("a", ">i4"), ("b", "<f8"), ("s", "S3"), ("x", inner)])
    truth = np.zeros((3, 4), dtype)
    for name in ("a", "b", "s"):
        truth[name] = np.arange(12).reshape(3, 4)
    truth["x"]["p"], truth["x"]["q"] = 1 + 2j, [3, 4]
    array = cuzarr.DeviceArray.from_host(truth, gpu)
    native = array.astype(dtype.newbyteorder("="))
    assert native.dtype == dtype.newbyteorder("=") and native.cpu().tobytes() == truth.astype(native.dtype).tobytes()
    native[1:] = array[:2]
    np.testing.assert_array_equal(native.cpu()[1:], truth[:2].astype(native.dtype))
    for other in ([("a", ">i4"), ("b", "<i8"), ("s", "S3"), ("x", inner)], f"V{dtype.itemsize}"):
        with pytest.raises(UnsupportedError, match="do not convert"):
            array.astype(other)
        with pytest.raises(UnsupportedError, match="do not convert"):
            cuzarr.DeviceArray.empty((3, 4), other, gpu)[:] = array


@pytest.mark.parametrize(
    "dtype", [">f4", ">M8[s]", [("a", ">i4"), ("x", [("p", ">f8"), ("q", "S3")])]], ids=["f4", "M8", "structure"]
)
def test_elements_of_the_other_byte_order_are_read_to_a_device_and_written_from_there(gpu: str, dtype: Any) -> None:
    array = cuzarr.create_array({}, shape=20, chunks=6, dtype=dtype, zarr_format=2, device=gpu)
    truth = np.zeros(20, dtype)
    truth["a" if truth.dtype.names else ...] = np.arange(20).astype(truth.dtype["a"] if truth.dtype.names else dtype)
    array[:] = truth
    found = array[2:9]
    np.testing.assert_array_equal(host(found), truth[2:9])
    array[10:17] = found
    truth[10:17] = truth[2:9]
    array[0:5] = cuzarr.DeviceArray.from_host(truth[12:17], gpu)  # in the other order still
    truth[0:5] = truth[12:17]
    np.testing.assert_array_equal(array.with_device("cpu")[:], truth)


@pytest.mark.parametrize(
    ("stored", "given"),
    [("M8[s]", "M8[ms]"), ([("a", "<i4")], [("c", "<i4")]), ("S4", "<U1")],
)
def test_arrays_refuse_device_memory_that_only_is_as_large(gpu: str, stored: Any, given: Any) -> None:
    array = cuzarr.create_array({}, shape=3, dtype=stored, device=gpu)
    value = cuzarr.DeviceArray.from_host(np.ones(3, "i4").astype(given), gpu)
    with pytest.raises(DTypeMismatchError, match="got elements of .* the array holds"):
        array[:] = value
    with pytest.raises(DTypeMismatchError, match="out has elements of"):
        array.get_basic_selection(out=gpus.NDBuffer(value))
    with pytest.raises(UnsupportedError):
        cuzarr.DeviceArray.empty((3,), stored, gpu)[:] = value


@pytest.mark.parametrize("dtype", [">i2", ">u8", ">f4", ">c16", ">M8[s]", ">U3"])
def test_device_arrays_are_converted_to_the_other_byte_order_and_back(gpu: str, dtype: str) -> None:
    truth = (TRUTH + 5).astype("i8").astype(dtype)
    native = truth.astype(truth.dtype.newbyteorder("="))
    for order in "CF":
        array = cuzarr.DeviceArray.from_host(np.asarray(native, order=order), gpu)
        swapped = array.astype(dtype)
        assert swapped.dtype == truth.dtype and swapped.cpu().tobytes() == truth.tobytes()
        np.testing.assert_array_equal(swapped.astype(native.dtype).cpu(), native)
        assert swapped.astype(native.dtype).strides == array.strides
    array[1:3, ::2] = swapped[:2, ::2]
    native[1:3, ::2] = native[:2, ::2]
    np.testing.assert_array_equal(array.cpu(), native)


def test_strings_of_any_length_have_no_place_on_a_device(gpu: str) -> None:
    array = cuzarr.create_array({}, shape=4, dtype="string", device=gpu)
    with pytest.raises(DTypeMismatchError, match="the array holds string"):
        array[:] = cuzarr.DeviceArray.from_host(TRUTH[0, :4], gpu)
    with pytest.raises(UnsupportedError, match="strings of variable length"):
        cuzarr.DeviceArray.empty((2,), np.dtypes.StringDType(), gpu)


def test_numpy_makes_arrays_like_those_of_a_device(gpu: str) -> None:
    array = cuzarr.DeviceArray.from_host(TRUTH, gpu)
    like: Any = array
    for made in (np.asanyarray(5, "i2", like=like), np.arange(3, like=like), np.ones((2, 2), like=like)):
        assert isinstance(made, cuzarr.DeviceArray) and made.device == array.device
    assert np.asanyarray(5, "i2", like=like).cpu() == np.array(5, "i2")
    assert np.shape(like) == TRUTH.shape
    other: Any = cuzarr.DeviceArray.from_host(TRUTH + 1, gpu)
    for compared, truth in ((like, True), (other, False), (like[:2], False)):
        same: Any = np.array_equal(like, compared)
        assert bool(same) is truth
    assert (np.concatenate([like, like]).cpu() == np.concatenate([TRUTH, TRUTH])).all()
    with pytest.raises(ImplicitHostCopyError):
        np.partition(like, 1)
    for mixed in ((like, TRUTH), (TRUTH, like)):
        with pytest.raises(MemorySpaceError):
            np.array_equal(*mixed)


@pytest.mark.parametrize("order", ["C", "F", "A"])
def test_device_arrays_reshape_in_every_order(gpu: str, order: Any) -> None:
    for truth in (TRUTH, np.asfortranarray(TRUTH)):
        array = cuzarr.DeviceArray.from_host(truth, gpu)
        assert (array.cpu() == truth).all()
        np.testing.assert_array_equal(array.reshape((6, 4), order=order).cpu(), truth.reshape((6, 4), order=order))
        np.testing.assert_array_equal(array.ravel(order).cpu(), truth.ravel(order))
    assert list(map(operator.attrgetter("shape"), array)) == [(6,)] * 4
    assert bool(array.all()) == bool(TRUTH.all()) and bool(array.astype("i8").view("u8").all()) == bool(TRUTH.all())

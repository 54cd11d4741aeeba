"""Memory that other libraries and ours hand to each other: what is read-only, odd or wrong is refused, and nothing is freed twice."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cuzarr
from cuzarr import _core
from cuzarr._memory.foreign import numpy_view, wrap_host
from cuzarr.errors import (
    DTypeMismatchError,
    ExportError,
    InvalidArgumentError,
    ShapeMismatchError,
    UnsupportedError,
)

TRUTH = np.arange(24, dtype="f4").reshape(4, 6)

CPU, CUDA, CUDA_HOST = 1, 2, 3
READ_ONLY, IS_COPIED = 1, 2


class Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


def api(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


make_capsule = api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
capsule_name = api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
capsule_pointer = api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)


class Producer:
    """An object with ``__dlpack__``, whose structure a test may spoil; counts how often it is deleted."""

    def __init__(self, array: np.ndarray[Any, Any], *, versioned: bool = True, has_strides: bool = True) -> None:
        self.array, self.deleted, self.requests = array, 0, list[dict[str, Any]]()
        self._deleter = DELETER(self._delete)
        self.structure: Any = (Versioned if versioned else Unversioned)()
        self.structure.deleter = self._deleter
        tensor = self.tensor = self.structure.tensor
        tensor.data, tensor.ndim = array.ctypes.data, array.ndim
        tensor.device = Device(CPU, 0)
        tensor.dtype = DataType({"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}[array.dtype.kind], array.itemsize * 8, 1)
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._strides = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
        tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        if has_strides:
            tensor.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))
        if versioned:
            self.structure.major, self.structure.minor = 1, 0
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        self.capsule = make_capsule(ctypes.addressof(self.structure), self.name, None)

    def _delete(self, _: int) -> None:
        self.deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.device.device_type, self.tensor.device.device_id

    def __dlpack__(self, **request: Any) -> Any:
        self.requests.append(request)
        return self.capsule


def values(buffer: _core.NdBuffer, dtype: Any) -> np.ndarray[Any, Any]:
    return numpy_view(buffer.to("cpu"), np.dtype(dtype))


# ------------------------------------------------------------------------------------------------------ DLPack, to us


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("view", [lambda a: a, lambda a: a.T, lambda a: a[::-1, ::2], lambda a: a[1:1], lambda a: a[2, 3, ...]])
def test_capsules_of_both_kinds_are_taken_without_a_copy_and_deleted_once(versioned: bool, view: Any) -> None:
    array = view(TRUTH.copy())
    producer = Producer(array, versioned=versioned)
    buffer = _core.NdBuffer.from_dlpack(producer)
    assert capsule_name(producer.capsule) == b"used_" + producer.name and producer.deleted == 0
    np.testing.assert_array_equal(values(buffer, "f4"), array)
    assert array.size == 0 or buffer.address == array.ctypes.data
    part = buffer.reshape((array.size,))
    del buffer
    gc.collect()
    assert producer.deleted in (0, 1)
    del part
    gc.collect()
    assert producer.deleted == 1


def test_a_structure_without_strides_is_in_c_order_from_its_offset() -> None:
    producer = Producer(TRUTH.copy(), has_strides=False)
    producer.tensor.byte_offset, producer._shape[0] = TRUTH.strides[0], 3
    np.testing.assert_array_equal(values(_core.NdBuffer.from_dlpack(producer), "f4"), TRUTH[1:])


def test_a_capsule_is_taken_once() -> None:
    producer = Producer(TRUTH.copy())
    first = _core.NdBuffer.from_dlpack(producer)
    with pytest.raises(InvalidArgumentError, match="another consumer has taken it"):
        _core.NdBuffer.from_dlpack(producer)
    assert producer.deleted == 0
    del first
    gc.collect()
    assert producer.deleted == 1


def test_what_is_no_capsule_of_dlpack_is_refused() -> None:
    for given in (None, 3, TRUTH, make_capsule(ctypes.addressof(ctypes.c_int(1)), b"something else", None)):
        producer = Producer(TRUTH.copy())
        producer.capsule = given
        with pytest.raises(InvalidArgumentError, match="capsule"):
            _core.NdBuffer.from_dlpack(producer)
        assert producer.deleted == 0


def _spoiled_shape(producer: Producer) -> None:
    producer._shape[0] = -4


def _spoiled_strides(producer: Producer) -> None:
    producer._strides[0] = 2**62


SPOILS: dict[str, tuple[Callable[[Producer], None], type[Exception], str]] = {
    "another major version": (lambda p: setattr(p.structure, "major", 2), UnsupportedError, "version 2.0, expected 1.x"),
    "a negative device": (lambda p: setattr(p.tensor, "device", Device(CUDA, -1)), UnsupportedError, "device -1"),
    "an unknown kind of device": (lambda p: setattr(p.tensor, "device", Device(7, 0)), UnsupportedError, "type 7"),
    "vectors": (lambda p: setattr(p.tensor.dtype, "lanes", 2), UnsupportedError, "2 lanes"),
    "half bytes": (lambda p: setattr(p.tensor.dtype, "bits", 4), UnsupportedError, "4 bits"),
    "negative dimensions": (lambda p: setattr(p.tensor, "ndim", -1), InvalidArgumentError, "-1 dimensions"),
    "no memory": (lambda p: setattr(p.tensor, "data", None), InvalidArgumentError, "without memory"),
    "an offset beyond all memory": (lambda p: setattr(p.tensor, "byte_offset", 2**64 - 1), InvalidArgumentError, "too large"),
    "a negative extent": (_spoiled_shape, InvalidArgumentError, "negative"),
    "strides beyond all memory": (_spoiled_strides, InvalidArgumentError, "too large"),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_structures_are_refused_and_given_back_with(spoil: str) -> None:
    producer = Producer(TRUTH.copy())
    change, error, message = SPOILS[spoil]
    change(producer)
    with pytest.raises(error, match=message):
        _core.NdBuffer.from_dlpack(producer)
    gc.collect()
    assert producer.deleted == 1


def test_read_only_memory_of_others_is_not_written() -> None:
    array = cuzarr.create_array({}, data=TRUTH, chunks=(2, 6))
    producer = Producer(np.zeros_like(TRUTH))
    producer.structure.flags = READ_ONLY
    buffer = _core.NdBuffer.from_dlpack(producer)
    assert buffer.is_read_only
    for write in (lambda: buffer.fill(bytes(4)), lambda: buffer.copy_from(wrap_host(TRUTH))):
        with pytest.raises(InvalidArgumentError, match="read-only"):
            write()
    assert not numpy_view(buffer, np.dtype("f4")).flags.writeable

    class Frozen(Producer):
        shape, dtype = TRUTH.shape, np.dtype("f4")

        def __init__(self) -> None:
            super().__init__(np.zeros_like(TRUTH))
            self.structure.flags = READ_ONLY

    for read in (
        lambda out: array.read(out=out),
        lambda out: array.get_basic_selection(out=out),
        lambda out: array.read_many([row for row in range(4)], out=out),
    ):
        frozen = Frozen()
        with pytest.raises(InvalidArgumentError, match="read-only"):
            read(frozen)
        assert not frozen.array.any()


def test_results_go_into_host_memory_of_any_library() -> None:
    array = cuzarr.create_array({}, data=TRUTH, chunks=(2, 6))

    class Writable(Producer):
        shape, dtype = TRUTH.shape, np.dtype("f4")

    out = Writable(np.zeros_like(TRUTH))
    assert array.read(out=out) is out
    np.testing.assert_array_equal(out.array, TRUTH)
    with pytest.raises(ShapeMismatchError):
        array.read(np.s_[:2], out=Writable(np.zeros_like(TRUTH)))
    with pytest.raises(InvalidArgumentError, match="repeats its elements"):
        array.read(out=Writable(np.lib.stride_tricks.as_strided(np.zeros(6, "f4"), (4, 6), (0, 4))))
    ints = Writable(np.zeros(TRUTH.shape, "i4"))
    ints.dtype = np.dtype("i4")
    with pytest.raises(DTypeMismatchError):
        array.get_basic_selection(out=ints)


def test_older_producers_are_asked_without_a_version() -> None:
    class Older(Producer):
        def __dlpack__(self, stream: int | None = None) -> Any:  # type: ignore[override]
            return super().__dlpack__(stream=stream)

    older = Older(TRUTH.copy(), versioned=False)
    np.testing.assert_array_equal(values(_core.NdBuffer.from_dlpack(older), "f4"), TRUTH)
    assert older.requests == [{"stream": None}]


# ---------------------------------------------------------------------------------------------------- DLPack, from us


@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_that_nobody_takes_let_go_of_the_memory(versioned: bool) -> None:
    class Counted(np.ndarray):  # type: ignore[type-arg]
        __hash__ = object.__hash__  # type: ignore[assignment]

    array = np.zeros(4).view(Counted)
    end = weakref.ref(array)
    capsule = wrap_host(array).__dlpack__(max_version=(1, 0) if versioned else None)
    del array
    gc.collect()
    assert end() is not None
    del capsule
    gc.collect()
    assert end() is None


def exported(capsule: Any) -> Any:
    """The structure in a capsule of ours, which the capsule keeps."""
    name = capsule_name(capsule)
    kind = Versioned if name == b"dltensor_versioned" else Unversioned
    return kind.from_address(capsule_pointer(capsule, name))


def test_strides_that_are_no_whole_elements_are_not_exported() -> None:
    records = np.zeros(4, [("x", "f8"), ("y", "i4")])
    records["x"] = range(4)
    buffer = wrap_host(records["x"])
    assert buffer.strides == (12,)
    for version in ((1, 0), None):
        with pytest.raises(BufferError, match="12 bytes is not a number of 8-byte elements"):
            buffer.__dlpack__(max_version=version)
    with pytest.raises(ExportError):
        np.from_dlpack(buffer)
    # One element has no next.
    np.testing.assert_array_equal(np.from_dlpack(wrap_host(records["x"][2:3])), [2])
    np.testing.assert_array_equal(np.from_dlpack(buffer, copy=True), range(4))


def test_elements_that_are_not_aligned_are_not_exported() -> None:
    odd = np.zeros(9, "u1")[1:].view("f8")
    with pytest.raises(ExportError, match="not aligned"):
        wrap_host(odd).__dlpack__(max_version=(1, 0))


def test_read_only_memory_leaves_as_such_or_not_at_all() -> None:
    array = TRUTH.copy()
    array.flags.writeable = False
    capsule = wrap_host(array).__dlpack__(max_version=(1, 1))
    assert exported(capsule).flags == READ_ONLY
    assert not np.from_dlpack(wrap_host(array)).flags.writeable
    with pytest.raises(ExportError, match="read-only"):
        wrap_host(array).__dlpack__()
    assert memoryview(wrap_host(array)).readonly and not memoryview(wrap_host(TRUTH.copy())).readonly


def test_copies_are_made_when_asked_for_and_say_so() -> None:
    array = TRUTH.copy()
    array.flags.writeable = False
    buffer = wrap_host(array)
    structure = exported(capsule := buffer.__dlpack__(max_version=(1, 0), copy=True))
    assert structure.flags == IS_COPIED and structure.tensor.data != array.ctypes.data
    del capsule
    assert exported(capsule := buffer.__dlpack__(copy=True)).tensor.data != array.ctypes.data
    del capsule
    structure = exported(capsule := buffer.__dlpack__(max_version=(1, 0), copy=False, dl_device=(CPU, 0)))
    assert structure.tensor.data == array.ctypes.data and structure.tensor.device.device_type == CPU
    del capsule
    for device in ((CUDA, 0), (CUDA_HOST, 0), (CPU, 1)):
        with pytest.raises(ExportError, match="not on the requested DLPack device"):
            buffer.__dlpack__(max_version=(1, 0), dl_device=device)


def test_elements_without_a_type_of_dlpack_are_not_exported() -> None:
    with pytest.raises(ExportError, match="opaque12"):
        np.from_dlpack(wrap_host(np.zeros(3, "S12")))


def test_a_stream_is_one_of_cudas() -> None:
    with pytest.raises(InvalidArgumentError, match="stream -2"):
        wrap_host(TRUTH).__dlpack__(stream=-2)


def test_bfloat16_has_its_own_code() -> None:
    array = np.arange(4).astype(ml_dtypes.bfloat16)
    capsule = wrap_host(array).__dlpack__(max_version=(1, 0))
    dtype = exported(capsule).tensor.dtype
    assert (dtype.code, dtype.bits, dtype.lanes) == (4, 16, 1)


# --------------------------------------------------------------------------------------- CUDA array interface, both ways


class Described:
    """An object with ``__cuda_array_interface__`` over host memory, for the kernels that run on the CPU."""

    def __init__(self, array: np.ndarray[Any, Any], **members: Any) -> None:
        self.array = array
        own = {"shape": array.shape, "strides": array.strides, "typestr": array.dtype.str, "version": 3}
        self.interface = {**own, "data": (array.ctypes.data, not array.flags.writeable), **members}

    def take(self, device: str | None = "cpu") -> _core.NdBuffer:
        return _core.NdBuffer.from_cuda_array_interface(self.interface, device, self)


@pytest.mark.parametrize(
    "array",
    [TRUTH, TRUTH.T, TRUTH[::-1, ::2], TRUTH[:0], np.arange(3).astype("M8[ns]"), np.zeros(2, "i4,f8"), np.array("ab", "S3")],
)
def test_described_memory_is_taken_without_a_copy(array: Any) -> None:
    described = Described(array.copy())
    end = weakref.ref(described)
    buffer = described.take()
    assert buffer.shape == array.shape and (not array.size or buffer.address == described.array.ctypes.data)
    assert values(buffer, array.dtype).tobytes() == array.tobytes()
    del described
    gc.collect()
    assert end() is not None
    del buffer
    gc.collect()
    assert end() is None


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a newer version": ({"version": 4}, UnsupportedError, "version 4"),
    "a mask": ({"mask": TRUTH}, UnsupportedError, "mask"),
    "no memory": ({"data": None}, InvalidArgumentError, "no 'data'"),
    "a null pointer": ({"data": (0, False)}, InvalidArgumentError, "without memory"),
    "a negative address": ({"data": (-8, False)}, InvalidArgumentError, "'data'"),
    "a negative extent": ({"shape": (-1, 6)}, InvalidArgumentError, "'shape'"),
    "an extent beyond all memory": ({"shape": (2**62, 6), "strides": None}, InvalidArgumentError, "too large"),
    "strides beyond all memory": ({"strides": (2**62, 4)}, InvalidArgumentError, "memory"),
    "another number of strides": ({"strides": (4,)}, InvalidArgumentError, "strides"),
    "the other byte order": ({"typestr": ">f4"}, UnsupportedError, "native byte order"),
    "half a type": ({"typestr": "<f3"}, UnsupportedError, "<f3"),
    "no type": ({"typestr": "é4"}, UnsupportedError, "é4"),
    "a type that is no text": ({"typestr": 4}, InvalidArgumentError, "typestr"),
    "an ambiguous stream": ({"stream": 0}, InvalidArgumentError, "stream 0"),
    "a negative stream": ({"stream": -1}, InvalidArgumentError, "'stream'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_descriptions_are_refused_with(what: str) -> None:
    members, error, message = WRONG[what]
    with pytest.raises(error, match=message):
        Described(TRUTH.copy(), **members).take()


def test_a_member_that_is_missing_is_named() -> None:
    for name in ("shape", "typestr", "data"):
        described = Described(TRUTH.copy())
        del described.interface[name]
        with pytest.raises(InvalidArgumentError, match=f"'{name}'"):
            described.take()


def test_described_memory_that_is_read_only_is_not_written() -> None:
    array = TRUTH.copy()
    array.flags.writeable = False
    buffer = Described(array).take()
    assert buffer.is_read_only
    with pytest.raises(InvalidArgumentError, match="read-only"):
        buffer.fill(bytes(4))


def test_host_memory_is_not_taken_for_a_gpus() -> None:
    with pytest.raises(cuzarr.errors.CuzarrError):  # where there is a GPU, its driver does not know the address
        Described(TRUTH.copy()).take(None)


def test_numbers_that_are_not_aligned_do_not_reach_a_gpu(gpu: str) -> None:
    odd = np.zeros(33, "u1")[1:].view("f8")
    with pytest.raises(InvalidArgumentError, match="not aligned"):
        Described(odd).take(gpu)
    apart = np.zeros(4, [("x", "f8"), ("y", "i4")])["x"]
    with pytest.raises(InvalidArgumentError, match="not aligned"):
        Described(apart).take(gpu)


def test_device_arrays_describe_themselves(gpu: str) -> None:
    array = cuzarr.DeviceArray.from_host(TRUTH, gpu)
    interface = array.__cuda_array_interface__
    assert interface["version"] == 3 and interface["shape"] == (4, 6) and interface["typestr"] == "<f4"
    assert interface["data"] == (array._buffer.address, False) and interface["stream"] is None
    assert interface["strides"] is None and array.T.__cuda_array_interface__["strides"] == (4, 24)
    empty = cuzarr.DeviceArray.empty((0, 3), "f8", gpu)
    assert empty.__cuda_array_interface__["data"][0] == 0
    bits = cuzarr.DeviceArray.from_host(np.zeros(2, ml_dtypes.bfloat16), gpu)
    assert bits.__cuda_array_interface__["typestr"] == "<V2"
    taken = _core.NdBuffer.from_cuda_array_interface(array.T.__cuda_array_interface__, gpu, array)
    np.testing.assert_array_equal(values(taken, "f4"), TRUTH.T)


def test_device_arrays_that_are_read_only_say_so(gpu: str) -> None:
    frozen = Producer(TRUTH.copy())
    frozen.structure.flags = READ_ONLY
    array = cuzarr.DeviceArray(_core.NdBuffer.from_dlpack(frozen), np.dtype("f4"))
    assert array.__cuda_array_interface__["data"][1] is True
    with pytest.raises(InvalidArgumentError, match="read-only"):
        array.fill(1)
    with pytest.raises(InvalidArgumentError, match="read-only"):
        array[1:] = 2


# --------------------------------------------------------------------------------------------------- NumPy's own memory


def test_numpy_arrays_that_are_read_only_or_odd_are_read_and_not_written() -> None:
    array = cuzarr.zeros((4, 6), store={}, dtype="f4", chunks=(3, 4))
    fixed = TRUTH.copy()
    fixed.flags.writeable = False
    assert wrap_host(fixed).is_read_only and not wrap_host(TRUTH.copy()).is_read_only
    odd = np.zeros(97, "u1")[1:].view("f4").reshape(4, 6)
    odd[...] = TRUTH
    for source in (
        fixed,
        odd,
        TRUTH[::-1, ::-1][::-1, ::-1],
        np.asfortranarray(TRUTH),
        TRUTH.astype(">f4"),
        TRUTH.astype("f8")[::-1][::-1],
    ):
        array[...] = 0
        array[...] = source
        np.testing.assert_array_equal(array[...], TRUTH)
    out = np.zeros(97, "u1")[1:].view("f4").reshape(4, 6)
    np.testing.assert_array_equal(array.read(out=out), TRUTH)
    out = np.zeros((4, 6), "f4")[::-1, ::-1]
    np.testing.assert_array_equal(array.read(out=out), TRUTH)
    with pytest.raises(InvalidArgumentError, match="read-only"):
        array.read(out=fixed)


# ------------------------------------------------------------------------------------------------ tensors and bfloat16


def test_bfloat16_goes_both_ways_through_ml_dtypes() -> None:
    bits = TRUTH.astype(ml_dtypes.bfloat16)
    array = cuzarr.create_array({}, data=bits, chunks=(2, 6))
    assert array.dtype == bits.dtype and array.metadata.data_type.name == "bfloat16"
    for result in (array[...], array.read(dtype="bfloat16"), cuzarr.xp.asarray(TRUTH, dtype="bfloat16")):
        assert result.dtype == bits.dtype and result.tobytes() == bits.tobytes()
    out = np.empty_like(bits)
    assert array.read(out=out) is out and out.tobytes() == bits.tobytes()
    assert cuzarr.xp.zeros(3, dtype="bfloat16").dtype == bits.dtype


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


NAMES = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128 bfloat16"


@pytest.mark.parametrize("name", NAMES.split())
def test_torch_types_are_taken_wherever_a_type_is(torch: Any, name: str) -> None:
    theirs, ours = getattr(torch, name), cuzarr.xp.zeros(1, dtype=name).dtype
    group = cuzarr.group({})
    taken = (
        cuzarr.zeros((2,), store={}, dtype=theirs),
        cuzarr.full((2,), 1, store={}, dtype=theirs),
        cuzarr.create_array({}, shape=(2,), dtype=theirs),
        group.create_array("x", shape=(2,), dtype=theirs),
        group.require_array("x", shape=(2,), dtype=theirs),
        cuzarr.array(torch.zeros(2, dtype=theirs), store={}),
        cuzarr.zeros_like(torch.zeros(2, dtype=theirs), store={}),
        cuzarr.xp.zeros(2, dtype=theirs),
        cuzarr.xp.asarray([0, 1], dtype=theirs),
        cuzarr.xp.zeros_like(torch.zeros(2, dtype=theirs)),
        cuzarr.zeros((2,), store={}).read(dtype=theirs),
        cuzarr.zeros((2,), store={}).read_many([np.s_[:1]], dtype=theirs)[0],
        cuzarr.zeros((2,), store={}).astype(theirs),
    )
    assert [array.dtype for array in taken] == [ours] * len(taken)


@pytest.mark.parametrize("name", ["qint8", "uint4", "float4_e2m1fn_x2"])
def test_torch_types_that_there_are_not_are_refused_by_name(torch: Any, name: str) -> None:
    for make in (lambda dtype: cuzarr.zeros((2,), store={}, dtype=dtype), lambda dtype: cuzarr.xp.zeros(2, dtype=dtype)):
        with pytest.raises(cuzarr.errors.DataTypeValidationError, match=f"{name} are not supported"):
            make(getattr(torch, name))


@pytest.mark.parametrize("name", NAMES.split())
def test_tensors_are_written_and_filled(torch: Any, name: str) -> None:
    from cuzarr.torch import to_tensor

    dtype = getattr(torch, name)
    truth = torch.arange(24).reshape(4, 6).to(dtype)
    array = cuzarr.create_array({}, shape=(4, 6), chunks=(3, 4), dtype=dtype)
    array[...] = truth
    array[1:3] = truth[1:3].requires_grad_() if name == "float32" else truth[1:3]
    assert torch.equal(to_tensor(array[...]), truth)
    outs = (
        (array.read(out=torch.zeros(4, 6, dtype=dtype)), truth),
        (array.read(np.s_[1:3], out=torch.zeros(2, 12, dtype=dtype)[:, ::2]), truth[1:3]),
        (array.read_many([np.s_[:2], np.s_[2:]], out=torch.zeros(2, 2, 6, dtype=dtype)), truth.reshape(2, 2, 6)),
        (array.get_basic_selection(1, out=torch.zeros(6, dtype=dtype)), truth[1]),
        (array.get_block_selection(0, out=torch.zeros(3, 6, dtype=dtype)), truth[:3]),
        (array.get_orthogonal_selection(([2, 0],), out=torch.zeros(2, 6, dtype=dtype)), truth[[2, 0]]),
        (array.get_coordinate_selection(([2, 0], [1, 5]), out=torch.zeros(2, dtype=dtype)), truth[[2, 0], [1, 5]]),
        (array.get_mask_selection(TRUTH > 7, out=torch.zeros(16, dtype=dtype)), truth[torch.from_numpy(TRUTH > 7)]),
    )
    for number, (out, expected) in enumerate(outs):
        assert torch.equal(out, expected), number


def test_tensors_convert_as_numpys_arrays_do(torch: Any) -> None:
    array = cuzarr.create_array({}, shape=(4, 6), chunks=(3, 4), dtype="f4")
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int8):
        array[...] = 0
        array[...] = torch.from_numpy(TRUTH).to(dtype)
        np.testing.assert_array_equal(array[...], TRUTH)
        assert array.read(out=torch.zeros(4, 6, dtype=dtype), dtype=dtype).tolist() == TRUTH.tolist()
    np.testing.assert_array_equal((array + torch.from_numpy(TRUTH)).compute(), TRUTH * 2)
    np.testing.assert_array_equal(array.oindex[torch.tensor([2, 0])], TRUTH[[2, 0]])
    np.testing.assert_array_equal(array[torch.from_numpy(TRUTH) > 7], TRUTH[TRUTH > 7])


def test_tensors_that_stand_for_other_values_than_their_memory(torch: Any) -> None:
    values = torch.tensor([1 + 2j, 3, 4j])
    array = cuzarr.create_array({}, shape=(3,), dtype="c8")
    array[...] = values.conj()
    np.testing.assert_array_equal(array[...], values.numpy().conj())
    parts = cuzarr.create_array({}, shape=(3,), dtype="f4")
    assert values.conj().imag.is_neg()
    parts[...] = values.conj().imag
    np.testing.assert_array_equal(parts[...], -values.numpy().imag)
    for out in (values.conj().imag, torch.zeros(1).expand(3)):
        with pytest.raises(InvalidArgumentError, match="out"):
            parts.read(out=out)
        with pytest.raises(InvalidArgumentError, match="out"):
            parts.get_orthogonal_selection(([0, 1, 2],), out=out)


def test_results_become_tensors_whatever_their_bytes(torch: Any) -> None:
    from cuzarr.torch import to_tensor

    bits = np.arange(6).astype(ml_dtypes.bfloat16)
    tensor = to_tensor(bits)
    assert tensor.dtype == torch.bfloat16 and tensor.tolist() == list(range(6)) and tensor.data_ptr() == bits.ctypes.data
    bits.flags.writeable = False
    assert to_tensor(bits).data_ptr() != bits.ctypes.data
    assert to_tensor(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    assert to_tensor(np.arange(3)[::-1]).tolist() == [2, 1, 0]
    assert to_tensor(np.float32(2)).item() == 2
    for wrong in (np.array(["a"]), np.zeros(1, "M8[s]"), np.zeros(1, "i4,f4")):
        with pytest.raises(DTypeMismatchError, match="PyTorch has no elements of"):
            to_tensor(wrong)


def test_blocks_may_come_back_as_tensors(torch: Any) -> None:
    from cuzarr.torch import to_tensor

    array = cuzarr.create_array({}, data=TRUTH.astype(ml_dtypes.bfloat16), chunks=(2, 6))
    doubled = cuzarr.map_blocks(lambda block: to_tensor(block) * 2, array, dtype=torch.bfloat16, out={})
    assert doubled.dtype == array.dtype
    np.testing.assert_array_equal(doubled[...].astype("f4"), TRUTH * 2)
    np.testing.assert_array_equal(
        np.asarray(cuzarr.map_blocks(lambda block: to_tensor(block) * 2, array)).astype("f4"), TRUTH * 2
    )


def test_device_arrays_and_tensors_of_bfloat16(gpu: str, torch: Any) -> None:
    truth = torch.arange(24).reshape(4, 6).to(torch.bfloat16)
    array = cuzarr.DeviceArray.from_host(truth, gpu)
    assert array.dtype == ml_dtypes.bfloat16
    back = torch.from_dlpack(array)  # of the kernels that run on the CPU, host memory
    assert back.dtype == torch.bfloat16 and torch.equal(back.cpu(), truth)
    array[1] = truth[0]
    assert back[1].tolist() == truth[0].tolist()
    stored = cuzarr.create_array({}, shape=(4, 6), chunks=(3, 4), dtype=torch.bfloat16, device=gpu)
    stored[...] = back
    assert torch.equal(torch.from_dlpack(cuzarr.xp.asarray(stored[...])).cpu(), back.cpu())

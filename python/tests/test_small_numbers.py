"""Numbers that are moved, but not computed with: integers of less than 8 bits, floats of at most 8 bits, complex numbers of small
floats. In NumPy's arrays they have ``ml_dtypes``' types."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorstore
from devices import NAME, on, require, to_host

import cuzarr
from cuzarr import xp
from cuzarr._metadata import small_numbers
from cuzarr.errors import ConversionError, CuzarrError, DataTypeValidationError, DTypeMismatchError, OutOfRangeError

ALL = sorted(small_numbers.NAMES)
COMPLEX = [name for name in ALL if name.startswith("complex")]
BITS = {"int2": 2, "int4": 4, "uint2": 2, "uint4": 4, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}
OF_TENSORSTORE = [
    "int2", "int4", "float4_e2m1fn", "float8_e3m4", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}


@pytest.fixture(params=["cpu", NAME])
def device(request: pytest.FixtureRequest) -> str:
    return request.param if request.param == "cpu" else require()


def numbers(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Elements of any bits that have a meaning."""
    dtype = small_numbers.native(name)
    bits = np.random.default_rng(1).integers(0, 256, (*shape, dtype.itemsize), "u1")
    return (bits & np.uint8(2 ** BITS.get(name.removeprefix("complex_"), 8) - 1)).view(dtype)[..., 0]


def assert_same(got: Any, expected: np.ndarray) -> None:
    got = to_host(got)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def document(name: str, fill_value: Any = 0, codecs: Any = ("bytes",)) -> dict[str, Any]:
    return {
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": name, "fill_value": fill_value, "codecs": list(codecs),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}, "chunk_key_encoding": {"name": "default"},
    }  # fmt: skip


# -------------------------------------------------------------------------------------------------------- reading and writing


@pytest.mark.parametrize("shards", [None, (6, 4)])
@pytest.mark.parametrize("name", ALL)
def test_elements_come_back_on_every_device(device: str, name: str, shards: Any) -> None:
    expected, store = numbers(name, (7, 9)), {}
    array = cuzarr.create_array(
        store, shape=(7, 9), chunks=(3, 2), shards=shards, dtype=expected.dtype if name not in COMPLEX else name
    )
    assert array.metadata.to_dict()["data_type"] == name
    array.with_device(device)[...] = on(device, expected)
    array = cuzarr.open_array(store, mode="r+", device=device)
    assert array.dtype == expected.dtype
    for selection in (..., np.s_[1:6, ::2], np.s_[3], np.s_[:, -1]):
        assert_same(array[selection], expected[selection])
    assert_same(array.oindex[[4, 0], [8, 1, 2]], expected[np.ix_([4, 0], [8, 1, 2])])
    assert_same(array.vindex[[4, 0], [8, 1]], expected[[4, 0], [8, 1]])
    array[2:4, 1:] = on(device, expected[:2, 1:])
    expected[2:4, 1:] = expected[:2, 1:]
    assert_same(array[...], expected)
    array.resize((8, 9))
    assert_same(array[7], np.zeros(9, expected.dtype))


@pytest.mark.parametrize("name", ALL)
def test_bits_are_packed_and_unpacked(device: str, name: str) -> None:
    expected = numbers(name, (5, 3))
    codecs = {"serializer": {"name": "packbits"}, "compressors": [ZSTD], "filters": None}
    array = cuzarr.create_array({}, shape=(5, 3), chunks=(2, 3), dtype=name, device=device, **codecs)
    array[...] = on(device, expected)
    assert_same(array[...], expected)
    store: dict[str, Any] = {}
    plain = cuzarr.create_array(store, shape=15, chunks=15, dtype=name, serializer={"name": "packbits"}, compressors=None)
    plain[...] = expected.reshape(15)
    bits_of_part, parts = BITS.get(name.removeprefix("complex_")), 2 if name in COMPLEX else 1
    bits = 8 * expected.dtype.itemsize if bits_of_part is None else bits_of_part * parts
    assert len(store["c/0"]) == -(-15 * bits // 8)


def test_packed_bits_begin_with_the_lowest() -> None:
    for name, values, expected in [
        ("int4", [1, -1, 7], b"\xf1\x07"),
        ("uint2", [0, 1, 2, 3, 2], b"\xe4\x02"),
        ("float4_e2m1fn", [-1.5, 6.0], b"\x7b"),
        ("float6_e2m3fn", [7.5, 0.0, 7.5, 0.0], b"\x1f\xf0\x01"),
    ]:
        store: dict[str, Any] = {}
        array = cuzarr.create_array(store, shape=len(values), dtype=name, serializer={"name": "packbits"}, compressors=None)
        array[...] = values
        assert bytes(memoryview(store["c/0"])) == expected, name
        assert array[...].astype("f4").tolist() == values


@pytest.mark.parametrize("name", OF_TENSORSTORE)
def test_tensorstore_reads_and_writes_the_same(tmp_path: pathlib.Path, name: str) -> None:
    expected, spec = numbers(name, (7, 9)), {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "a")}}
    array = cuzarr.create_array(str(tmp_path / "a"), shape=(7, 9), chunks=(3, 2), dtype=name)
    array[:5] = expected[:5]
    theirs = tensorstore.open(spec).result()
    assert_same(theirs[:5].read().result(), expected[:5])
    assert_same(theirs[5:].read().result(), np.zeros((2, 9), expected.dtype))
    theirs[5:] = expected[5:]
    assert_same(array[...], expected)

    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 4]}}
    metadata = {"shape": [7, 9], "data_type": name, "chunk_grid": grid, "codecs": ["bytes", ZSTD]}
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "b")}, "metadata": metadata}
    tensorstore.open(spec, create=True).result().write(expected).result()
    array = cuzarr.open_array(str(tmp_path / "b"), mode="r")
    assert_same(array[...], expected)
    assert np.asarray(array.fill_value).tobytes() == bytes(expected.dtype.itemsize)


@pytest.mark.parametrize("name", ["int4", "float8_e4m3fn"])
def test_format_2_is_read_as_tensorstore_writes_it(tmp_path: pathlib.Path, name: str) -> None:
    expected = numbers(name, (7,))
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(tmp_path / "a")},
        "metadata": {"shape": [7], "dtype": name},
    }
    tensorstore.open(spec, create=True, dtype=name).result().write(expected).result()
    assert_same(cuzarr.open_array(str(tmp_path / "a"), mode="r")[...], expected)
    with pytest.raises(DataTypeValidationError, match=f"{name} has no name in Zarr format 2"):
        cuzarr.create_array({}, shape=3, dtype=name, zarr_format=2)
    with pytest.raises(DataTypeValidationError, match=f"{name} has no name in Zarr format 2"):
        cuzarr.create_array({}, shape=3, dtype=[("a", "i4"), ("b", expected.dtype)], zarr_format=2)


def test_structures_keep_the_types_of_their_fields(device: str) -> None:
    dtype = np.dtype([("a", "<i2"), ("b", ml_dtypes.float8_e5m2), ("c", ml_dtypes.bfloat16), ("d", ml_dtypes.int4)])
    expected = np.array([(1, 1.5, -2.0, -3), (2, np.inf, 0.5, 7)], dtype)
    store: dict[str, Any] = {}
    array = cuzarr.create_array(store, shape=2, dtype=dtype, fill_value=expected[1], device=device)
    assert_same(array[...], expected[[1, 1]])
    array[...] = on(device, expected)
    array = cuzarr.open_array(store, mode="r")
    assert_same(array[...], expected)
    fields = array.metadata.to_dict()["data_type"]["configuration"]["fields"]
    assert [field["data_type"] for field in fields] == ["int16", "float8_e5m2", "bfloat16", "int4"]
    assert array.metadata.to_dict()["fill_value"] == {"a": 2, "b": "Infinity", "c": 0.5, "d": 7}


# ---------------------------------------------------------------------------------------------------------------- fill values


@pytest.mark.parametrize(
    ("name", "written", "bits", "spelled"),
    [
        ("int2", -2, b"\x02", -2),
        ("int4", -1, b"\x0f", -1),
        ("uint4", 15, b"\x0f", 15),
        ("float4_e2m1fn", -1.5, b"\x0b", -1.5),
        ("float6_e3m2fn", "0x3f", b"\x3f", -28.0),
        ("float8_e4m3", "NaN", b"\x7c", "NaN"),
        ("float8_e4m3", "-Infinity", b"\xf8", "-Infinity"),
        ("float8_e4m3fn", 0.1, b"\x1d", 0.1015625),
        ("float8_e4m3fn", "0xff", b"\xff", "0xff"),
        ("float8_e5m2fnuz", "NaN", b"\x80", "NaN"),
        ("float8_e8m0fnu", 0.0, b"\x00", 2.0**-127),
        ("complex_float16", [1.0, "NaN"], b"\x00\x3c\x00\x7e", [1.0, "NaN"]),
        ("complex_bfloat16", ["-Infinity", 2], b"\x80\xff\x00\x40", ["-Infinity", 2.0]),
        ("complex_float8_e5m2", ["0x7c", 0], b"\x7c\x00", ["Infinity", 0.0]),
    ],
)
def test_fill_values_are_read_and_written_as_registered(name: str, written: Any, bits: bytes, spelled: Any) -> None:
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
    array = cuzarr.open_array({"zarr.json": json.dumps(document(name, written, codecs)).encode()}, mode="r")
    assert array[...].tobytes() == 4 * bits
    assert np.asarray(array.fill_value, array.dtype).tobytes() == bits
    store: dict[str, Any] = {}
    made = cuzarr.create_array(store, shape=4, dtype=name, fill_value=array.fill_value)
    assert made.metadata.to_dict()["fill_value"] == spelled
    assert cuzarr.open_array(store, mode="r")[...].tobytes() == 4 * bits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int2", 2), ("int4", -9), ("uint2", -1), ("uint4", 0.5), ("float4_e2m1fn", "NaN"), ("float4_e2m1fn", 8), ("float4_e2m1fn", "0x1f"),
        ("float6_e2m3fn", "Infinity"), ("float8_e4m3fn", 1000), ("float8_e4m3fnuz", "Infinity"), ("float8_e8m0fnu", -1),
        ("float8_e5m2", "0x7"), ("complex_float6_e2m3fn", [1, 100]), ("complex_float16", [1]), ("int4", "x"), ("float8_e5m2", "x"),
    ],
)  # fmt: skip
def test_fill_values_that_the_type_cannot_hold_are_refused(name: str, value: Any) -> None:
    with pytest.raises(CuzarrError, match="fill"):
        cuzarr.open_array({"zarr.json": json.dumps(document(name, value)).encode()}, mode="r")
    with pytest.raises(CuzarrError, match="fill value"):
        cuzarr.create_array({}, shape=4, dtype=name, fill_value=value)


# ---------------------------------------------------------------------------------------------------------------- conversions


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4", "float4_e2m1fn", "complex_float16"])
def test_assignments_convert_on_the_host(device: str, name: str) -> None:
    array = cuzarr.create_array({}, shape=5, chunks=2, dtype=name, device=device)
    dtype = array.dtype
    array[...] = np.array([0, 1, 2, 3, -2], "f4")
    assert_same(array[...], np.array([0, 1, 2, 3, -2], "f4").astype(dtype))
    array[1] = 3
    array[2:4] = [1, -1]
    assert_same(array[...], np.array([0, 3, 1, -1, -2], "f4").astype(dtype))
    assert to_host(array[...]).astype("c8" if dtype.kind == "W" else "f4").tolist() == [0, 3, 1, -1, -2]
    with pytest.raises(ConversionError, match=dtype.name):
        array[0] = "x"


def test_integers_that_do_not_fit_are_refused(device: str) -> None:
    array = cuzarr.create_array({}, shape=3, dtype="int4", device=device)
    for value in (8, -9, [1, 2, 300]):
        with pytest.raises(OutOfRangeError, match="integers of int4 are from -8 to 7"):
            array[...] = value
    assert_same(array[...], np.zeros(3, "int4"))


def test_devices_move_but_neither_convert_nor_compute() -> None:
    gpu = require()
    values = numbers("float8_e4m3fn", (4, 6))
    array = cuzarr.DeviceArray.from_host(values, gpu)
    assert array.dtype == values.dtype and array[1:, ::2].dtype == values.dtype
    assert_same(array[1:, ::2].T.copy(), np.ascontiguousarray(values[1:, ::2].T))
    assert_same(array.view("u1"), values.view("u1"))
    assert_same(array.view("u1").view(values.dtype), values)
    array[0] = array[1]
    array[2, 3] = 1.5
    values[0], values[2, 3] = values[1], 1.5
    assert_same(array, values)
    for compute in (lambda: array + 1, lambda: xp.sqrt(array), lambda: array.sum(), lambda: array == array, lambda: -array):
        with pytest.raises(DTypeMismatchError, match="does not compute with elements of float8_e4m3fn"):
            compute()
    with pytest.raises(CuzarrError, match="devices do not convert float8_e4m3fn to float32"):
        array.astype("f4")
    stored = cuzarr.create_array({}, shape=(4, 6), dtype="float8_e4m3fn", device=gpu)
    with pytest.raises(DTypeMismatchError, match=r"devices do not convert float32 to float8_e4m3fn"):
        stored[...] = cuzarr.DeviceArray.from_host(np.zeros((4, 6), "f4"), gpu)
    with pytest.raises(CuzarrError, match="cannot read float8_e4m3fn as float32"):
        stored.read(dtype="f4")


@pytest.mark.parametrize("name", [name for name in ALL if name not in COMPLEX or name == "complex_float16"])
def test_dlpack_keeps_the_type(device: str, name: str) -> None:
    values = numbers(name, (3, 4))
    memory = cuzarr.DeviceArray.from_host(values, device)
    again = xp.from_dlpack(_OnlyDLPack(memory))
    assert_same(again, values)


class _OnlyDLPack:
    """An array of a library that hands its memory over by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_stored_arrays_do_not_compute(device: str) -> None:
    array = cuzarr.create_array({}, shape=3, dtype="float8_e5m2", device=device)
    for compute in (
        lambda: array + 1,
        lambda: cuzarr.xp.mean(array),
        lambda: cuzarr.xp.sqrt(array),
        lambda: cuzarr.xp.median(array),
    ):
        with pytest.raises(CuzarrError, match="float8_e5m2"):
            compute()


# ----------------------------------------------------------------------------------------------------------------- everything else


@pytest.mark.parametrize("name", ["int4", "float8_e5m2", "complex_bfloat16", "complex_float8_e4m3"])
def test_copies_keep_the_type(device: str, name: str) -> None:
    expected = numbers(name, (7, 5))
    source = cuzarr.create_array({}, shape=(7, 5), chunks=(2, 5), dtype=name, device=device)
    source[...] = on(device, expected)
    copied = cuzarr.rechunk(source, {}, chunks=(7, 2))
    assert copied.metadata.to_dict()["data_type"] == name
    assert_same(copied[...], expected)
    array = cuzarr.array(to_host(source[...]), store={})
    if name not in COMPLEX[3:]:
        assert array.metadata.to_dict()["data_type"] == name
    assert_same(array[...], expected)


def test_display_names_the_type() -> None:
    array = cuzarr.create_array({}, shape=3, dtype="float8_e4m3fn")
    assert "float8_e4m3fn" in repr(array.info) and "float8_e4m3fn" in repr(array)


def test_types_without_a_name_in_zarr_are_refused_by_name() -> None:
    for dtype in (ml_dtypes.int1, ml_dtypes.uint1):
        with pytest.raises(DataTypeValidationError, match=np.dtype(dtype).name):
            cuzarr.create_array({}, shape=3, dtype=dtype)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "complex32"])
def test_tensors_are_written_read_and_filled(name: str) -> None:
    torch = pytest.importorskip("torch")
    from cuzarr.torch import to_tensor

    tensor = torch.tensor([[1.0, -0.5, 2.0], [0.25, 4.0, -8.0]]).to(getattr(torch, name))
    array = cuzarr.create_array({}, data=tensor, chunks=(1, 2))
    assert array.dtype.name == name
    again = to_tensor(array[...])
    assert again.dtype == tensor.dtype and again.to(torch.complex64).tolist() == tensor.to(torch.complex64).tolist()
    out = torch.empty((2, 3), dtype=tensor.dtype)
    array.read(..., out=out)
    assert out.to(torch.complex64).tolist() == tensor.to(torch.complex64).tolist()
    array[0] = tensor[1]
    assert to_tensor(array[0]).to(torch.complex64).tolist() == tensor[1].to(torch.complex64).tolist()

"""Values on their way into elements of another type: as NumPy converts or refuses them, on every device."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from devices import NAME, on, require, to_host

import cuzarr
from cuzarr import xp
from cuzarr.buffer import cpu, gpu as gpus
from cuzarr.errors import (
    CuzarrError,
    DataTypeValidationError,
    DTypeMismatchError,
    InvalidArgumentError,
    OutOfRangeError,
    ShapeMismatchError,
)

PAIR = np.dtype([("a", "u1"), ("b", "f4")])

# What NumPy's own assignments refuse.
REFUSED: list[tuple[Any, Any]] = [
    ("u1", 300), ("u1", -1), ("i4", 2**40), ("i8", 2**70), (">i4", 2**40), ("i4", float("inf")), ("i4", float("nan")),
    ("i4", np.float64("nan")), ("f4", 1 + 2j), ("i2", 1j), ("u1", None), ("u1", "x"), ("M8[s]", "x"), (PAIR, 300), (PAIR, (300, 1)),
    (PAIR, (1, 2j)),
]  # fmt: skip
TAKEN: list[tuple[Any, Any]] = [
    ("u1", 255), ("u1", 7.9), ("u1", np.int64(300)), ("i4", np.array(2**40)), ("f4", 2**70), ("f4", np.complex64(1 + 2j)), ("?", 5),
    ("c8", 1 + 2j), (">i4", 7), ("M8[s]", 5), ("S3", b"abcdef"), (PAIR, 5), (PAIR, (1, 2)), ("f2", 0.1), ("i4", np.bool_(True)),
]  # fmt: skip


def filled(device: str, dtype: Any) -> dict[str, Any]:
    """Ways to make every element of two be one value, each with the array that it gives."""

    def memory() -> Any:
        return cuzarr.DeviceArray.from_host(np.zeros(2, dtype), device)  # CuPy's own arrays would wrap

    def fill(value: Any) -> Any:
        array = memory()
        array.fill(value)
        return array

    def item(value: Any) -> Any:
        array = memory()
        array[0] = array[1] = value
        return array

    def stored(assign: Any) -> Any:
        def assigned(value: Any) -> Any:
            array = cuzarr.create_array({}, shape=2, chunks=1, dtype=dtype, zarr_format=2, device=device)
            assign(array, value)
            return array[...]

        return assigned

    buffers = cpu.NDBuffer if device == "cpu" else gpus.NDBuffer

    def buffer(value: Any) -> Any:
        made = buffers.create(shape=(2,), dtype=dtype)
        made.fill(value)
        return made.as_ndarray_like()

    def buffer_item(value: Any) -> Any:
        made = buffers.create(shape=(2,), dtype=dtype)
        made[0] = made[1] = value
        return made.as_ndarray_like()

    ways = {
        "elements of an array": stored(lambda array, value: array.__setitem__(slice(None), value)),
        "one element after the other": stored(lambda array, value: [array.__setitem__(at, value) for at in (0, 1)]),
        "points": stored(lambda array, value: array.vindex.__setitem__(([0, 1],), value)),
        "a product": stored(lambda array, value: array.oindex.__setitem__([0, 1], value)),
        "a mask": stored(lambda array, value: array.vindex.__setitem__([True, True], value)),
        "a chunk": stored(lambda array, value: array.blocks.__setitem__(slice(0, 2), value)),
        "a new buffer": lambda value: buffers.create(shape=(2,), dtype=dtype, fill_value=value).as_ndarray_like(),
        "a buffer": buffer,
        "an item of a buffer": buffer_item,
    }
    # NumPy's own do it on the CPU.
    return ways if device == "cpu" else ways | {"fill": fill, "an item": item}


@pytest.mark.parametrize(("dtype", "value"), REFUSED)
def test_what_makes_no_element_is_refused_as_by_numpy(device: str, dtype: Any, value: Any) -> None:
    with pytest.raises((OverflowError, TypeError, ValueError)) as numpys:
        np.zeros(2, dtype)[...] = value
    for way, make in filled(device, dtype).items():
        if way == "a new buffer" and value is None:
            continue  # which is no fill value
        with pytest.raises(CuzarrError) as raised:
            make(value)
        assert isinstance(raised.value, type(numpys.value)) and raised.value.hint, (way, raised.value)


@pytest.mark.parametrize(("dtype", "value"), TAKEN)
def test_what_numpy_converts_is_converted(device: str, dtype: Any, value: Any) -> None:
    expected = np.zeros(2, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected[...] = value
        for way, make in filled(device, dtype).items():
            np.testing.assert_array_equal(to_host(make(value)), expected, err_msg=way)


@pytest.mark.parametrize(("dtype", "value"), [*REFUSED, *TAKEN, ("i4", [1, 2]), ("u1", [1, 300]), ("f4", np.ones((2, 1)))])
def test_full_is_what_numpys_full_is(device: str, dtype: Any, value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = np.full((2, 2), value, dtype)
        except (OverflowError, TypeError, ValueError) as error:
            with pytest.raises(CuzarrError) as raised:
                xp.full((2, 2), value, dtype, device=device)
            assert isinstance(raised.value, type(error))
            return
        for made in (xp.full((2, 2), value, dtype, device=device), xp.full_like(xp.zeros((2, 2), dtype, device=device), value)):
            np.testing.assert_array_equal(to_host(made), expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("u1", 300), ("u1", np.int64(300)), ("i4", 2**70), ("i4", np.inf), ("i8", np.uint64(2**63))],
)
def test_fill_values_beyond_the_type_are_out_of_range(dtype: str, value: Any) -> None:
    for make in (cuzarr.full, cuzarr.create):
        with pytest.raises(OutOfRangeError, match=f"is not a valid {np.dtype(dtype)}") as raised:
            make((2,), fill_value=value, dtype=dtype)
        assert isinstance(raised.value, OverflowError) and isinstance(raised.value, InvalidArgumentError)


@pytest.mark.parametrize("value", [np.complex64(1 + 2j), np.nan, 1.5, [1, 2], np.array([7])])
def test_fill_values_that_are_no_element_are_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="fill value"):
        cuzarr.full((2,), fill_value=value, dtype="int16")


def test_numbers_that_do_not_fit_take_no_part_in_arithmetic(device: str) -> None:
    array = on(device, np.arange(4, dtype="u1"))
    stored = cuzarr.create_array({}, data=np.arange(4, dtype="u1"), device=device)
    for operand in (array, stored):
        for refused in (
            lambda x: cuzarr.xp.add(x, 300), lambda x: cuzarr.xp.where(cuzarr.xp.less(x, 2), 300, x), lambda x: cuzarr.xp.maximum(x, -1),
            lambda x: cuzarr.xp.add(x, 2**70), lambda x: cuzarr.xp.multiply(x, 2**200),
        ):  # fmt: skip
            with pytest.raises(OutOfRangeError) as raised:
                refused(operand)
            assert isinstance(raised.value, OverflowError)


@pytest.mark.parametrize("bounds", [(0, 300), (-1, 2), (-(2**70), 2**70), (None, None), (1, 255)])
def test_clip_takes_bounds_that_no_element_passes(device: str, bounds: tuple[Any, Any]) -> None:
    values = np.arange(4, dtype="u1")
    array = on(device, values)
    clipped = cuzarr.xp.clip(array, *bounds)
    assert clipped is not array
    np.testing.assert_array_equal(to_host(clipped), np.clip(values, *bounds))


# ------------------------------------------------------------------------------------------------- types of other libraries


@pytest.mark.parametrize("name", ["int1", "uint1"])
def test_types_that_are_raw_bytes_to_numpy_are_refused_by_name(device: str, name: str) -> None:
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    values, buffers = np.zeros(3, dtype), cpu.NDBuffer if device == "cpu" else gpus.NDBuffer
    number = cuzarr.create_array({}, shape=3, dtype="f4", device=device)
    ways = [
        lambda: cuzarr.create_array({}, shape=3, dtype=dtype), lambda: cuzarr.create((3,), dtype=dtype, zarr_format=2),
        lambda: cuzarr.zeros((3,), dtype=dtype), lambda: cuzarr.array(values), lambda: cuzarr.create_array({}, data=values),
        lambda: cuzarr.save_array({}, values), lambda: cuzarr.create_array({}, shape=3, dtype=[("a", "i4"), ("b", dtype)]),
        lambda: cuzarr.create_array({}, shape=3, dtype=[("a", [("c", dtype)])]), lambda: cuzarr.zeros_like(values),
        lambda: number.read(dtype=dtype), lambda: number.astype(dtype), lambda: cuzarr.codecs.CastValue(data_type=dtype),
        lambda: xp.empty(3, dtype), lambda: xp.full(3, 1, dtype), lambda: xp.asarray(values), lambda: xp.asarray([1], dtype),
        lambda: xp.zeros_like(values), lambda: xp.arange(3, dtype=dtype), lambda: buffers.empty((3,), dtype),
        lambda: buffers.create(shape=(3,), dtype=dtype), lambda: buffers.empty((3,), "u1").astype(dtype),
        lambda: cuzarr.map_blocks(lambda x: x, number, dtype=dtype), lambda: cuzarr.xp.add(values, 1),
    ]  # fmt: skip
    if device != "cpu":
        array = cuzarr.DeviceArray.empty((3,), "u1", device)
        ways += [
            lambda: cuzarr.DeviceArray.empty((3,), dtype, device), lambda: cuzarr.DeviceArray.from_host(values, device),
            lambda: array.view(dtype), lambda: array.astype(dtype),
        ]  # fmt: skip
    for number_of_way, way in enumerate(ways):
        with pytest.raises(DataTypeValidationError, match=name):
            way()
            pytest.fail(f"way {number_of_way}")


@pytest.mark.parametrize("name", ["int1", "uint3", "float8_e9m9"])
def test_names_of_such_types_are_refused_by_name(name: str) -> None:
    class Foreign:
        dtype, shape = f"torch.{name}", (3,)

    for way in (
        lambda: cuzarr.create_array({}, shape=3, dtype=name), lambda: cuzarr.xp.zeros(3, name), lambda: cuzarr.array(Foreign()),
        lambda: cuzarr.create_array({}, shape=3, dtype="f4", filters=cuzarr.codecs.CastValue(data_type=name)),
    ):  # fmt: skip
        with pytest.raises(DataTypeValidationError, match=name):
            way()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4", "complex32"])
def test_numbers_that_only_move_are_not_computed_or_cast(device: str, name: str) -> None:
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    number, values = cuzarr.create_array({}, shape=3, dtype="f4", device=device), np.zeros(3, dtype)
    ways = [
        lambda: number.read(dtype=dtype), lambda: number.astype(dtype), lambda: cuzarr.xp.add(values, 1),
        lambda: cuzarr.create_array({}, shape=3, dtype="f4", filters=cuzarr.codecs.CastValue(data_type=name)),
        lambda: cuzarr.create_array({}, shape=3, dtype=dtype, filters=[cuzarr.codecs.ScaleOffset(offset=0, scale=1)]),
        lambda: cuzarr.create_array({}, shape=3, dtype=dtype, filters=[cuzarr.codecs.numcodecs.Delta(dtype="f4")]),
    ]  # fmt: skip
    for number_of_way, way in enumerate(ways):
        with pytest.raises(CuzarrError):
            way()
            pytest.fail(f"way {number_of_way}")


def test_bfloat16_is_taken(device: str) -> None:
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    array = cuzarr.create_array({}, shape=3, dtype=dtype, device=device)
    array[:] = on(device, np.array([1, 2.5, -3], "f4"))
    np.testing.assert_array_equal(to_host(array[...]).astype("f4"), [1, 2.5, -3])
    assert array.dtype == dtype


# ----------------------------------------------------------------------------------------------------- arrays of other types

SELECTIONS: dict[str, Any] = {
    "a box": lambda array: (array, (slice(1, 5), slice(0, 6, 2))),
    "everything": lambda array: (array, ...),
    "a product": lambda array: (getattr(array, "oindex", array), np.ix_([0, 4, 2], [5, 1])),
    "points": lambda array: (getattr(array, "vindex", array), ([0, 4, 2], [5, 1, 0])),
    "a mask": lambda array: (getattr(array, "vindex", array), np.arange(30).reshape(5, 6) % 3 == 0),
}
CASTS = [
    ("i8", "f8"), ("f8", "i8"), ("f4", "f8"), ("f8", "f2"), ("?", "f4"), ("f4", "?"), ("i8", "u1"), ("u1", "i8"), ("i4", "c16"),
    ("f8", ">f4"), (">i4", "f8"), (">i2", "i2"), ("i8", "M8[s]"), ("c8", "c16"), ("u2", ">u4"),
]  # fmt: skip


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(("given", "stored"), CASTS)
@pytest.mark.parametrize("shards", [None, (4, 6)])
def test_assignments_convert_elements_of_other_types(device: str, given: str, stored: str, selection: str, shards: Any) -> None:
    expected = np.zeros((5, 6), stored)
    array = cuzarr.create_array(
        {}, shape=(5, 6), chunks=(2, 3), shards=shards, dtype=np.dtype(stored).newbyteorder("="), fill_value=0, device=device
    )
    if np.dtype(stored).byteorder == ">":
        array = cuzarr.create_array({}, shape=(5, 6), chunks=(2, 3), dtype=stored, zarr_format=2, device=device)
    target, place = SELECTIONS[selection](expected)
    values = (np.arange(target[place].size).reshape(target[place].shape) - 3).astype(given)
    target[place] = values
    target, place = SELECTIONS[selection](array)
    if selection == "a product":
        place = tuple(index.ravel() for index in place)
    target[place] = cuzarr.DeviceArray.from_host(values, device) if device != "cpu" else values
    np.testing.assert_array_equal(to_host(array[...]).astype(stored), expected)


def test_every_way_to_write_converts(device: str) -> None:
    values = np.arange(6)
    array = cuzarr.create_array({}, shape=6, chunks=4, dtype="float32", device=device)
    ways: dict[str, Any] = {
        "set_basic_selection": lambda value: array.set_basic_selection(slice(None), value),
        "set_orthogonal_selection": lambda value: array.set_orthogonal_selection(list(range(6)), value),
        "set_coordinate_selection": lambda value: array.set_coordinate_selection((np.arange(6),), value),
        "set_mask_selection": lambda value: array.set_mask_selection(np.ones(6, bool), value),
        "set_block_selection": lambda value: array.set_block_selection(slice(None), value),
        "blocks": lambda value: array.blocks.__setitem__(slice(0, 2), value),
        "setitem": lambda value: array.setitem(..., value),
        "map_blocks": lambda value: cuzarr.map_blocks(lambda x: value, source, out=array),
    }
    source = cuzarr.create_array({}, shape=6, chunks=4, dtype="u1", device=device)
    for way, write in ways.items():
        array[...] = 0
        write(on(device, values))
        np.testing.assert_array_equal(to_host(array[...]), values, err_msg=way)
    assert array.append(on(device, values)) == (12,)
    np.testing.assert_array_equal(to_host(array[6:]), values)
    created = cuzarr.array(on(device, values), dtype="int16", device=device)
    np.testing.assert_array_equal(to_host(created[...]), values.astype("i2"))


@pytest.mark.parametrize("stored", ["f8", ">f8"])
def test_values_come_from_any_device_to_arrays_of_any(stored: str) -> None:
    require()
    values = np.arange(12).reshape(3, 4)
    for own in ("cpu", NAME):
        for there in ("cpu", NAME):
            array = cuzarr.create_array({}, shape=(3, 4), chunks=(2, 2), dtype=stored, zarr_format=2, device=own)
            array[...] = on(there, values)
            array[1] = on(there, np.float32(7))
            expected = values.astype(stored)
            expected[1] = 7
            np.testing.assert_array_equal(to_host(array[...]), expected)


def test_fields_take_elements_of_other_types(device: str) -> None:
    array = cuzarr.create_array({}, shape=4, chunks=3, dtype=PAIR, device=device)
    array["b"] = on(device, np.arange(4))
    array.vindex["a", [0, 3]] = on(device, np.array([1.5, 2.5]))
    assert to_host(array[...]).tolist() == [(1, 0.0), (0, 1.0), (0, 2.0), (2, 3.0)]


def test_an_imaginary_part_is_lost_with_numpys_warning(device: str) -> None:
    array = cuzarr.create_array({}, shape=2, dtype="f8", device=device)
    values = on(device, np.array([1 + 2j, 3j]))
    with pytest.warns(np.exceptions.ComplexWarning):
        array[...] = values
    np.testing.assert_array_equal(to_host(array[...]), [1, 0])
    if device != "cpu":
        memory = cuzarr.DeviceArray.empty((2,), "f8", device)
        with pytest.warns(np.exceptions.ComplexWarning):
            memory[...] = values
        with pytest.warns(np.exceptions.ComplexWarning):
            cuzarr.DeviceArray.from_host(np.array([1j]), device).astype("i4")


@pytest.mark.parametrize(
    ("given", "stored"), [("S3", "f8"), ("f8", "S3"), ("M8[ms]", "M8[s]"), ("i4", [("a", "i4")]), ("i4", "V4"), ("i8", "string")]
)
def test_a_gpu_refuses_what_it_cannot_convert_by_name(gpu: str, given: Any, stored: Any) -> None:
    array = cuzarr.create_array({}, shape=3, dtype=stored, device=gpu)
    with pytest.raises(DTypeMismatchError, match="got elements of .* the array holds") as raised:
        array[...] = cuzarr.DeviceArray.from_host(np.zeros(3, given), gpu)
    assert "on the host" in str(raised.value.hint)


@pytest.mark.parametrize("value", [[1, 2, 3], (1.5, 2, 3), np.array([[1, 2, 3]]), range(3)])
def test_sequences_of_the_host_go_into_memory_of_a_device(gpu: str, value: Any) -> None:
    array, expected = cuzarr.DeviceArray.from_host(np.zeros((2, 4), "f4"), gpu), np.zeros((2, 4), "f4")
    array[1, 1:] = expected[1, 1:] = value
    np.testing.assert_array_equal(array.cpu(), expected)
    with pytest.raises(ShapeMismatchError, match="do not fit into"):
        array[0] = value


MASKED = np.ma.masked_less(np.arange(4.0), 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda z: z + MASKED,
        lambda z: np.add(z, MASKED),
        lambda z: np.add(z.lazy, MASKED),
        lambda z: cuzarr.xp.add(z * 1, MASKED),
        lambda z: cuzarr.xp.concatenate([z, MASKED]),
        lambda z: np.concatenate([z * 1, MASKED]),
        lambda z: cuzarr.xp.sum(MASKED),
        lambda z: cuzarr.xp.where(z > 1, MASKED, 0),
        lambda z: cuzarr.xp.average(z, weights=MASKED),
        lambda z: cuzarr.xp.asarray(MASKED),
        lambda z: cuzarr.xp.sort(MASKED),
        lambda z: (z * 1).compute(out=MASKED.copy()),
        lambda z: z.__setitem__(..., MASKED),
        lambda z: z.__setitem__(slice(0, 1), MASKED[:1]),
        lambda z: z.lazy[1:].write(MASKED[1:]),
        lambda z: z.vindex.__setitem__([0, 1], MASKED[:2]),
        lambda z: z.append(MASKED),
        lambda z: cuzarr.create_array({}, data=MASKED),
        lambda z: cuzarr.from_array({}, data=MASKED),
        lambda z: cuzarr.array(MASKED),
        lambda z: cuzarr.array([MASKED, MASKED]),
        lambda z: cuzarr.save_array({}, MASKED),
        lambda z: z.oindex[np.ma.masked_equal([0, 1], 1)],
    ],
)
def test_masked_arrays_are_refused_before_their_mask_is_lost(call: Any) -> None:
    z = cuzarr.create_array({}, data=np.arange(4.0), chunks=(2,))
    with pytest.raises(InvalidArgumentError, match="masked array, whose mask would be lost") as raised:
        call(z)
    assert raised.value.hint == "fill it first: x.filled(value)"
    assert z.shape == (4,) and z[:].tolist() == [0, 1, 2, 3]


def test_a_refused_masked_array_replaces_no_array() -> None:
    store: dict[str, Any] = {}
    cuzarr.create_array(store, data=np.arange(4.0))
    for call in (cuzarr.create_array, cuzarr.from_array):
        with pytest.raises(InvalidArgumentError, match="masked array"):
            call(store, data=MASKED, overwrite=True)
    assert cuzarr.open_array(store)[:].tolist() == [0, 1, 2, 3]

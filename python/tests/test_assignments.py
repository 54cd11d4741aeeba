"""What is written by brackets, and what a caller's own memory receives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import on, to_host

import cuzarr
from cuzarr.errors import ConversionError, DTypeMismatchError, ShapeMismatchError


@pytest.mark.parametrize("value", [np.array([b"ab"]), [b"ab"], np.array([[b"ab"]], "S7")])
@pytest.mark.parametrize("selection", [3, (3,), (..., 3)])
def test_one_string_in_an_array_is_written_with_nothing_behind_it(value: Any, selection: Any) -> None:
    for dtype in ("S40", "U40"):
        array = cuzarr.create_array({}, shape=(6,), chunks=(4,), dtype=dtype)
        array[selection] = np.asarray(value).astype(dtype[0])
        assert array[...].tolist() == np.array(["", "", "", "ab", "", ""]).astype(dtype).tolist()


def test_one_element_of_variable_length_may_come_in_an_array() -> None:
    array = cuzarr.create_array({}, shape=(), dtype="string", zarr_format=2)
    array[...] = np.array(["text"], object)
    assert array[()] == "text"


@pytest.mark.parametrize("dtype", [">i4", ">f8", ">U3", ">M8[s]", [("a", ">u2"), ("b", "<f4")]])
def test_results_go_into_memory_of_the_arrays_own_byte_order(dtype: Any) -> None:
    own = np.dtype(dtype)
    array = cuzarr.create_array({}, shape=(4, 3), chunks=(3, 2), dtype=own, zarr_format=2)
    values = np.arange(12).reshape(4, 3).astype(own)
    array[...] = values
    every_other = np.zeros((8, 3), own)
    out = every_other[::2]
    assert array.get_basic_selection(out=out) is out
    np.testing.assert_array_equal(out, values)
    assert not (every_other[1::2] != np.zeros((), own)).any()
    assert array.read(slice(1, 3), out=out[:2]) is not None
    np.testing.assert_array_equal(out[:2], values[1:3])
    several = np.zeros((2, 3), own)
    array.read_many([0, 3], out=several)
    np.testing.assert_array_equal(several, values[[0, 3]])


def test_values_that_do_not_fit_points_are_refused_by_their_shapes() -> None:
    array = cuzarr.create_array({}, shape=(6,), chunks=(4,), dtype="int16")
    with pytest.raises(ShapeMismatchError, match=r"a value of shape \(3,\) does not broadcast to the selection \(2,\)"):
        array.vindex[[0, 1]] = [1, 2, 3]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (3,), (1, 3), (1, 1, 6, 3), (6, 1)])
def test_values_are_broadcast_as_in_numpy(device: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype="i4").reshape(shape) + 1
    expected = np.zeros((8, 6), "i4")
    expected[1:7, 2:5] = values
    for shards in (None, (4, 6)):
        array = cuzarr.create_array({}, shape=(8, 6), chunks=(2, 3), shards=shards, dtype="i4").with_device(device)
        array[1:7, 2:5] = on(device, values) if device != "cpu" else values
        np.testing.assert_array_equal(to_host(array[...]), expected)


@pytest.mark.parametrize(
    "items", [["a", None], ["a", 2.5, True], [b"x", "y"], ["ä\U0001f600", ""], [np.str_("q"), "z"], ["z"] * 7]
)
def test_objects_become_the_strings_that_zarr_python_makes_of_them(items: list[Any]) -> None:
    zarr = pytest.importorskip("zarr")
    written = []
    for library in (cuzarr, zarr):
        array = library.create_array({}, shape=(len(items),), chunks=(2,), dtype="string")
        array[...] = np.array(items, dtype=object)
        written.append(array[...].tolist())
    assert written[0] == written[1]


def test_what_utf_8_cannot_hold_is_refused_and_bytes_take_bytes_alone() -> None:
    array = cuzarr.create_array({}, shape=(2,), chunks=(2,), dtype="string")
    with pytest.raises(ConversionError, match="surrogates"):
        array[...] = np.array(["a", "\udc80"], dtype=object)
    binary = cuzarr.create_array({}, shape=(5,), chunks=(2,), dtype="variable_length_bytes")
    binary[...] = np.array([b"a", bytearray(b"b"), memoryview(b"c"), None, "ü"], dtype=object)
    assert binary[...].tolist() == [b"a", b"b", b"c", b"", "ü".encode()]
    with pytest.raises(DTypeMismatchError, match="element of type float, the array holds bytes"):
        binary[1] = np.array(1.5, dtype=object)

"""The namespace of the array API standard: its functions beside NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import DTypeMismatchError, InvalidArgumentError, ShapeMismatchError, UnsupportedError

STANDARD = """
__array_namespace_info__ e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones
ones_like tril triu zeros zeros_like astype can_cast finfo iinfo isdtype result_type bool int8 int16 int32 int64 uint8 uint16 uint32
uint64 float32 float64 complex64 complex128 abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide
greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not
logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder round sign
signbit sin sinh square sqrt subtract tan tanh trunc take take_along_axis matmul matrix_transpose tensordot vecdot broadcast_arrays
broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack argmax argmin
count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse unique_values argsort sort cumulative_prod
cumulative_sum max mean min prod std sum var all any diff
""".split()
VALUES = np.arange(-3, 9, dtype="i4").reshape(3, 4)


@pytest.fixture(params=["host", "device", "stored", "plan"])
def ours(request: pytest.FixtureRequest) -> Any:
    if request.param == "host":
        return VALUES
    if request.param == "device":
        return cuzarr.DeviceArray.from_host(VALUES, request.getfixturevalue("gpu"))
    stored = cuzarr.create_array({}, data=VALUES, chunks=(2, 3))
    return stored if request.param == "stored" else stored + 0


def host(value: Any) -> Any:
    return tuple(map(host, value)) if isinstance(value, tuple) else cuzarr.xp.asnumpy(value)


def test_the_namespace_has_every_name_of_the_standard(gpu: str) -> None:
    array = cuzarr.DeviceArray.from_host(VALUES, gpu)
    xp = array.__array_namespace__()
    assert xp is cuzarr.xp and array.__array_namespace__(api_version="2024.12") is xp
    assert [name for name in STANDARD if not hasattr(xp, name)] == []
    assert not [name for name in STANDARD if name not in dir(xp) and not hasattr(np, name) and name != "__array_namespace_info__"]
    with pytest.raises(InvalidArgumentError, match="2024.12"):
        array.__array_namespace__(api_version="1999.01")


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("positive", (), {}), ("reciprocal", (), {}), ("repeat", (2,), {"axis": 1}), ("repeat", ([0, 2, 1],), {"axis": 0}),
        ("roll", (2,), {"axis": 0}), ("roll", ((-1, 5),), {"axis": (0, 1)}), ("tile", ((2,),), {}), ("tile", ((2, 1, 3),), {}),
        ("tile", ((0, 2),), {}), ("unstack", (), {"axis": 1}), ("unstack", (), {}), ("vecdot", (VALUES[0].tolist(),), {}),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_functions_give_what_numpys_give(ours: Any, name: str, arguments: Any, options: Any) -> None:
    if name == "vecdot":
        arguments = (
            cuzarr.DeviceArray.from_host(np.array(arguments[0]), ours.device)
            if isinstance(ours, cuzarr.DeviceArray)
            else arguments[0],
        )
        expected = np.sum(VALUES * VALUES[0], axis=-1)
    else:
        expected = getattr(np, name)(VALUES, *arguments, **options)
    got = getattr(cuzarr.xp, name)(ours, *arguments, **options)
    for mine, numpys in zip(*(pair if isinstance(pair, tuple) else (pair,) for pair in (got, expected)), strict=True):
        np.testing.assert_array_equal(host(mine), numpys)
        assert host(mine).dtype == numpys.dtype
        assert isinstance(mine, cuzarr.Expression) == isinstance(ours, cuzarr.Array | cuzarr.Expression)
        assert isinstance(mine, cuzarr.DeviceArray) == isinstance(ours, cuzarr.DeviceArray)


def test_functions_of_memory(gpu: str) -> None:
    xp: Any = cuzarr.xp
    there = cuzarr.DeviceArray.from_host(VALUES, gpu)
    for array in (VALUES, there):
        for shape in (12, (2, -1), (1, 3, 4)):
            np.testing.assert_array_equal(host(xp.reshape(array, shape)), np.reshape(VALUES, shape))
        np.testing.assert_array_equal(host(xp.roll(array, 5)), np.roll(VALUES, 5))
        np.testing.assert_array_equal(host(xp.repeat(array, 2)), np.repeat(VALUES, 2))
        np.testing.assert_array_equal(host(xp.concat([array, array], axis=None)), np.concatenate([VALUES, VALUES], axis=None))
        np.testing.assert_array_equal(host(xp.concat([array, array])), np.concatenate([VALUES, VALUES]))
        for mine, numpys in zip(xp.nonzero(array), np.nonzero(VALUES), strict=True):
            np.testing.assert_array_equal(host(mine), numpys)
            assert isinstance(mine, type(array))
        shapes = [part.shape for part in xp.broadcast_arrays(array, array[:, :1], array[0])]
        assert shapes == [(3, 4)] * 3
        with pytest.raises(InvalidArgumentError, match="without a copy"):
            xp.reshape(array.T, 12, copy=False)
        copied = xp.reshape(array, 12, copy=True)
        copied[0] = 99
        assert host(array)[0, 0] == -3
        with pytest.raises(ShapeMismatchError):
            xp.broadcast_arrays(array, array[:2])
    assert xp.from_dlpack(there) is there and isinstance(xp.from_dlpack(there, device="cpu"), np.ndarray)
    assert xp.from_dlpack(there, copy=True)._buffer.address != there._buffer.address
    with pytest.raises(InvalidArgumentError, match="copy=False"):
        xp.from_dlpack(there, device="cpu", copy=False)
    assert there.to_device("cpu").tolist() == VALUES.tolist() and there.mT.shape == (4, 3)
    for name in ("reshape", "nonzero", "roll"):
        with pytest.raises(UnsupportedError, match=name):
            getattr(xp, name)(cuzarr.zeros((2, 2), store={}), *([1] if name != "nonzero" else []))


def test_types_of_the_standard() -> None:
    xp: Any = cuzarr.xp
    assert xp.result_type(VALUES, xp.float32, 1.0) == np.dtype("f8") and xp.result_type(
        cuzarr.zeros(2, dtype="i2", store={}), "i4"
    ) == np.dtype("i4")
    assert xp.can_cast(VALUES, xp.float64) and not xp.can_cast(xp.int64, xp.int32)
    assert xp.isdtype(xp.bool, "bool") and xp.isdtype("u1", ("signed integer", "integral")) and xp.isdtype(xp.int8, xp.int8)
    assert not xp.isdtype("c8", "real floating") and xp.isdtype("c8", "numeric") and xp.finfo(xp.float32).bits == 32
    info = xp.__array_namespace_info__()
    assert info.devices()[0] == "cpu" and info.default_device() == "cpu" and info.capabilities()["boolean indexing"]
    assert list(info.dtypes(kind="bool")) == ["bool"] and len(info.dtypes()) == 13
    assert info.default_dtypes()["real floating"] == np.dtype("f8")
    with pytest.raises(InvalidArgumentError, match="signed integer"):
        xp.isdtype("i4", "whole")


def test_arguments_of_the_standard_are_taken(device: str) -> None:
    xp: Any = cuzarr.xp
    there = VALUES if device == "cpu" else cuzarr.DeviceArray.from_host(VALUES, device)
    copied = xp.asarray(there, copy=True)
    copied[0, 0] = 99
    assert host(there)[0, 0] == -3 and xp.asarray(there, copy=False) is there
    with pytest.raises(InvalidArgumentError, match="copy=False"):
        xp.asarray(there, "f4", copy=False)
    with pytest.raises(InvalidArgumentError, match="copy=False"):
        xp.asarray([1, 2], copy=False)
    assert xp.astype(there, "i4", copy=False) is there and xp.astype(there, "i4") is not there
    assert isinstance(xp.astype(there, "f4", device="cpu"), np.ndarray)
    for name in ("std", "var"):
        np.testing.assert_allclose(host(getattr(xp, name)(there, axis=0, correction=1)), getattr(np, name)(VALUES, 0, ddof=1))
    for name in ("sum", "prod"):
        for dtype in ("i1", "f4", "f8"):
            got, expected = host(getattr(xp, name)(there, axis=1, dtype=dtype)), getattr(np, name)(VALUES, 1, dtype)
            np.testing.assert_allclose(got, expected, rtol=1e-6)
            assert got.dtype == expected.dtype
    for options in ({"prepend": 5}, {"append": 7.5, "axis": 0}, {"prepend": there[:, :2], "append": there[:, :1], "n": 2}):
        np.testing.assert_array_equal(
            host(xp.diff(there, **options)), np.diff(VALUES, **{name: host(value) for name, value in options.items()})
        )
    assert host(xp.vecdot(there, there)).dtype == "i4" and xp.finfo(there.astype("f4")).bits == 32 and xp.iinfo(there).bits == 32
    assert xp.zeros(2, None).dtype == xp.ones(2, dtype=None).dtype == "f8" and xp.reshape(np.bool_(True), (1,)).tolist() == [True]
    assert xp.__array_api_version__ == "2024.12"
    stored = cuzarr.create_array({}, data=VALUES, chunks=(2, 3))
    assert host(xp.diff(stored, prepend=0).compute(device="cpu")).tolist() == np.diff(VALUES, prepend=0).tolist()
    assert int(xp.sum(stored, dtype="i2").compute(device="cpu")) == VALUES.sum()


def test_what_the_guide_says_is_left_out_is_refused(gpu: str) -> None:
    xp: Any = cuzarr.xp
    there = cuzarr.DeviceArray.from_host(np.ones((2, 2)), gpu)
    parts = cuzarr.DeviceArray.from_host(np.ones((2, 2), "c8"), gpu)
    calls: list[Any] = [
        lambda name=name: getattr(xp, name)(parts) for name in "exp log sqrt sin prod sort argsort unique_all".split()
    ]
    calls += [lambda: xp.searchsorted(parts[0], parts[0])]
    for call in calls:
        with pytest.raises((UnsupportedError, DTypeMismatchError)):
            call()
    assert np.isnan(host(xp.floor_divide(there * np.inf, 2.0))).all()
    assert isinstance(xp.meshgrid(there[0]), tuple) and isinstance(xp.broadcast_arrays(there), tuple)
    assert not hasattr(xp, "linalg") and not hasattr(xp, "fft")

"""The namespace of the array API standard: its functions beside NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError, UnsupportedError

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
        expected = {"positive": lambda x: +x, "reciprocal": lambda x: 1 / x}.get(name, getattr(np, name))(
            VALUES, *arguments, **options
        )
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

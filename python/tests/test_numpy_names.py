"""What arrays have of NumPy's names, and that all else says where it is; memory that is in the wrong place."""

from __future__ import annotations

import copy
import gzip
import operator
import re
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import (
    CuzarrError,
    DTypeMismatchError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    MemorySpaceError,
    ShapeMismatchError,
    UnsupportedError,
)

VALUES = np.arange(-5.0, 7.0).reshape(3, 4) * 1.25


@pytest.fixture(params=["array", "plan", "device"])
def ours(request: pytest.FixtureRequest) -> Any:
    """The same elements in a store, as a plan and in a GPU's memory."""
    if request.param == "device":
        return cuzarr.DeviceArray.from_host(VALUES, request.getfixturevalue("gpu"))
    array = cuzarr.create_array({}, data=VALUES, chunks=(1, 2))
    return array if request.param == "array" else +array * 1


def elements(result: Any) -> Any:
    """A result in host memory."""
    if isinstance(result, tuple):
        return tuple(map(elements, result))
    return cuzarr.xp.asnumpy(result)


def test_methods_that_there_are_as_functions(ours: Any) -> None:
    for name, arguments in [
        ("clip", (-1, 3)), ("clip", (None, 2)), ("round", ()), ("round", (1,)), ("astype", ("float32",)), ("conj", ()), ("conjugate", ()),
        ("any", ()), ("all", ()), ("mean", (0,)), ("argmax", ()),
    ]:  # fmt: skip
        got, expected = elements(getattr(ours, name)(*arguments)), getattr(VALUES, name)(*arguments)
        np.testing.assert_array_equal(got, expected, err_msg=name)
        assert got.dtype == expected.dtype, name
    np.testing.assert_array_equal(elements(divmod(ours, 2)), divmod(VALUES, 2))
    np.testing.assert_array_equal(elements(divmod(2, ours + 100)), divmod(2, VALUES + 100))
    np.testing.assert_array_equal(elements((ours * 1j).imag), VALUES)
    np.testing.assert_array_equal(elements(np.astype(ours * 2, "int8")), (VALUES * 2).astype("int8"))
    if not isinstance(ours, cuzarr.DeviceArray):
        np.testing.assert_array_equal(elements(ours + [1, 2, 3, 4]), VALUES + [1, 2, 3, 4])


NUMPYS: list[Any] = [
    lambda x: np.clip(x, -1, 3), lambda x: np.round(x, 1), lambda x: np.around(x), lambda x: np.where(x > 1, x, 0), lambda x: np.median(x, axis=1),
    lambda x: np.quantile(x, 0.3), lambda x: np.percentile(x, [10, 90]), lambda x: np.histogram(x, 4), lambda x: np.count_nonzero(x, axis=0),
    lambda x: np.nansum(x), lambda x: np.nanmax(x, axis=0, keepdims=True), lambda x: np.real(x),
    lambda x: np.mean(x), lambda x: np.var(x, ddof=1), lambda x: np.amax(x), lambda x: np.shape(x), lambda x: np.abs(x), lambda x: np.zeros_like(x),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(NUMPYS)))
def test_functions_of_numpys_give_what_they_give(ours: Any, number: int) -> None:
    got, expected = NUMPYS[number](ours), NUMPYS[number](VALUES)
    if isinstance(ours, cuzarr.Array):  # as zarr-python's, read at once; functions of elements make plans
        assert number in (3, 16) or not isinstance(got, cuzarr.Expression)
    for mine, numpys in zip(*(one if isinstance(one, tuple) else (one,) for one in (got, expected)), strict=True):
        np.testing.assert_allclose(elements(mine), numpys, rtol=1e-15)


@pytest.mark.parametrize("name", ["dot", "trace", "partition", "diagonal", "compress", "choose"])
def test_methods_that_are_missing_say_where_they_are(ours: Any, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"no '{name}', which CuPy's .*cupy.asarray\(x.*\).{name}, or x.*{name}") as raised:
        getattr(ours, name)
    assert raised.value.name == name and not hasattr(ours, name)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        ours.colour
    assert copy.copy(ours).shape == ours.shape


@pytest.mark.parametrize("name", ["sort", "argsort", "repeat", "searchsorted"])
def test_methods_that_are_functions_here_name_them(ours: Any, name: str) -> None:
    if isinstance(ours, cuzarr.DeviceArray) and hasattr(ours, name):
        return
    with pytest.raises(AttributeError, match=rf"no '{name}': use cuzarr.xp.{name}\(x"):
        getattr(ours, name)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("T", "x.lazy.T"),
        ("transpose", "x.lazy.transpose"),
        ("squeeze", "cuzarr.xp.squeeze(x)"),
        ("real", "cuzarr.xp.real(x)"),
        ("mT", "cuzarr.xp.matrix_transpose(x)"),
    ],
)
def test_methods_that_views_or_functions_have_are_named(name: str, instead: str) -> None:
    stored = cuzarr.create_array({}, data=VALUES)
    with pytest.raises(AttributeError, match=f"no '{name}': use {re.escape(instead)}$"):
        getattr(stored, name)
    assert eval(instead, {"x": stored, "cuzarr": cuzarr}) is not None


def test_every_function_of_xp_is_named_where_the_package_has_none() -> None:
    absent = [name for name in dir(np) if name[0] != "_" and hasattr(cuzarr.xp, name) and not hasattr(cuzarr, name)]
    assert {"sort", "arange", "matmul", "pi"} <= set(absent)
    for name in absent:
        with pytest.raises(AttributeError, match=f"no '{name}': use cuzarr.xp.{name}$"):
            getattr(cuzarr, name)


def test_a_misspelt_function_is_named() -> None:
    for module, name, meant in [
        (cuzarr, "open_grop", "open_group"),
        (cuzarr, "argsrot", "cuzarr.xp.argsort"),
        (cuzarr.xp, "sortt", "sort"),
    ]:
        with pytest.raises(AttributeError, match=f"no attribute '{name}': did you mean '{meant}'"):
            getattr(module, name)
    with pytest.raises(AttributeError, match="has no attribute 'entirely_else'$"):
        cuzarr.entirely_else


def test_functions_that_are_missing_say_where_they_are(ours: Any) -> None:
    for call, kind, name in [
        (lambda: np.heaviside(ours, ours), UnsupportedError, "heaviside"), (lambda: np.add.reduce(ours), UnsupportedError, "add.reduce"),
        (lambda: np.add(ours, 1, out=ours), UnsupportedError, "add"), (lambda: np.partition(ours, 1), CuzarrError, "partition"),
        (lambda: np.fft.fft(ours), CuzarrError, "fft.fft"), (lambda: np.sort(ours, kind="heapsort"), CuzarrError, "sort"),
        (lambda: np.median(ours, out=VALUES[0, 0]), UnsupportedError, "median"),
    ]:  # fmt: skip
        if isinstance(ours, cuzarr.Array):
            continue  # NumPy's functions read it
        with pytest.raises(kind, match=f"CuPy's cupy.{name} on a GPU, or numpy.{name}"):
            call()
    if not isinstance(ours, cuzarr.DeviceArray):  # which has products
        for call in (lambda: ours @ VALUES.T, *([] if isinstance(ours, cuzarr.Array) else [lambda: VALUES.T @ ours])):
            with pytest.raises(UnsupportedError, match=r"there is no numpy.matmul here\nhint: use cuzarr.xp.matmul\(x"):
                call()
    for name in ("fft", "linalg", "degrees", "interp"):
        with pytest.raises(AttributeError, match=f"no '{name}': use CuPy's"):
            getattr(cuzarr, name)


def test_a_refusal_is_no_difference_and_a_plan_is_no_number() -> None:
    plan = cuzarr.create_array({}, data=VALUES, chunks=(1, 2)) * 1
    with pytest.raises(InvalidArgumentError, match="no elements yet"):
        np.array_equiv(VALUES, plan)
    assert np.array_equal(VALUES, plan) and not np.array_equal(plan, VALUES + 1)
    for convert in (float, int, bool):
        with pytest.raises((InvalidArgumentError, DTypeMismatchError), match="compute|any"):
            convert(plan)
    np.testing.assert_array_equal(plan[0, [1, 2]], VALUES[0, [1, 2]])


SIGNS = ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"]


def test_signs_that_change_in_place_change_elements_or_are_refused(gpu: str) -> None:
    for sign in SIGNS:
        expected = np.abs(VALUES)
        x = cuzarr.DeviceArray.from_host(expected, gpu)
        row, same = x[1], x
        getattr(operator, sign)(expected[1], 2.5)
        row = getattr(operator, sign)(row, 2.5)
        np.testing.assert_allclose(same.cpu(), expected, rtol=1e-15)
        np.testing.assert_allclose(row.cpu(), expected[1], rtol=1e-15)
    whole = cuzarr.DeviceArray.from_host(np.arange(6, dtype="int16").reshape(2, 3), gpu)
    whole |= 8
    whole <<= cuzarr.DeviceArray.from_host(np.array([0, 1, 2], "int16"), gpu)
    np.testing.assert_array_equal(whole.cpu(), (np.arange(6).reshape(2, 3) | 8) << [0, 1, 2])
    with pytest.raises(DTypeMismatchError, match="cannot be stored as"):
        whole /= 2
    with pytest.raises(ShapeMismatchError, match="does not fit"):
        whole += cuzarr.DeviceArray.from_host(np.ones((4, 1, 1), "int16"), gpu)
    assert whole.dtype == np.int16


def test_an_array_of_a_store_is_not_changed_by_a_sign() -> None:
    array = cuzarr.create_array({}, data=VALUES, chunks=(1, 2))
    with pytest.raises(UnsupportedError, match=r"z\[\.\.\.\] \+= 1"):
        array += 1
    array[...] += 1
    np.testing.assert_array_equal(array[...], VALUES + 1)
    plan = array * 2
    plan -= 1
    np.testing.assert_array_equal(plan.compute(), (VALUES + 1) * 2 - 1)


def test_memory_in_the_wrong_place_is_named_with_what_to_do(gpu: str) -> None:
    stored = cuzarr.create_array({}, data=VALUES, chunks=(1, 2))
    here, there = VALUES, cuzarr.DeviceArray.from_host(VALUES, gpu)
    on_cpu, on_gpu = stored.with_device("cpu"), stored.with_device(gpu)
    wrong: list[Any] = [
        lambda: there + here, lambda: here + there, lambda: there > here, lambda: there == here, lambda: there + [1, 2, 3, 4],
        lambda: cuzarr.xp.where(here > 1, there, 0), lambda: cuzarr.xp.clip(there, here), lambda: there.clip(here), lambda: divmod(there, here),
        lambda: operator.iadd(there, here), lambda: np.where(there > 1, here, there), lambda: np.copyto(here.copy(), there),
        lambda: np.asarray(there), lambda: np.asarray(on_gpu), lambda: np.array_equal(there, here),
        lambda: cuzarr.xp.quantile(there, there[0]), lambda: cuzarr.xp.histogram(there, there[0]),
        lambda: on_cpu + there, lambda: (on_cpu * 2) / there, lambda: cuzarr.xp.where(on_cpu > 1, there, 0),
        lambda: on_gpu.read(slice(None), out=here.copy()), lambda: on_gpu.get_basic_selection(..., out=here.copy()),
        lambda: on_gpu.read_many([0, 1], out=np.empty((2, 4))),
        lambda: cuzarr.map_blocks(operator.add, on_cpu, there, device="cpu"), lambda: cuzarr.reduce(np.sum, np.add, on_cpu, there),
        lambda: cuzarr.map_blocks(lambda block: block + here, on_gpu), lambda: cuzarr.map_blocks(lambda block: np.asarray(block), on_gpu),
        lambda: cuzarr.buffer.cpu.NDBuffer(there),
        lambda: cuzarr.kernels.ElementwiseKernel("T x", "T y", "y = x")(here),
        lambda: cuzarr.codecs.Decoder(cuzarr.codecs.GzipCodec(), device=gpu).decode([gzip.compress(here.tobytes())], [here]),
        lambda: cuzarr.codecs.Decoder(cuzarr.codecs.GzipCodec(), device="cpu").decode([gzip.compress(here.tobytes())], [there]),
    ]  # fmt: skip
    for number, call in enumerate(wrong):
        with cuzarr.config.set({"array_type": "device"}), pytest.raises(MemorySpaceError) as raised:
            call()
        assert raised.value.hint, (number, raised.value)
    np.testing.assert_array_equal(there.cpu(), VALUES)


def test_memory_that_takes_part_in_a_plan_says_where_it_runs(gpu: str) -> None:
    stored = cuzarr.create_array({}, data=VALUES, chunks=(1, 2))
    there = cuzarr.DeviceArray.from_host(VALUES, gpu)
    with cuzarr.config.set({"device": "cpu", "array_type": "device"}):
        for plan in (stored + there, there + stored, (stored * 1) + there, cuzarr.xp.where(stored > 1e9, 0, there) + stored):
            got = plan.compute()
            assert isinstance(got, cuzarr.DeviceArray)
            np.testing.assert_array_equal(got.cpu(), VALUES * 2)
            assert isinstance(plan.compute(device="cpu"), np.ndarray)
        there[...] = stored * 3
        np.testing.assert_array_equal(there.cpu(), VALUES * 3)
        there[1:] = cuzarr.create_array({}, data=VALUES[:2], chunks=(1, 2))
        np.testing.assert_array_equal(there.cpu()[1:], VALUES[:2])


def test_blocks_of_arrays_in_host_memory_are_moved_to_the_others(gpu: str) -> None:
    stored = cuzarr.create_array({}, data=VALUES, chunks=(1, 2))
    got = cuzarr.map_blocks(cuzarr.xp.multiply, stored, VALUES[0], device=gpu)
    np.testing.assert_array_equal(elements(got), VALUES * VALUES[0])


def test_index_arrays_of_device_arrays(gpu: str) -> None:
    there = cuzarr.DeviceArray.from_host(VALUES, gpu)
    assert there[::-1].tolist() == VALUES[::-1].tolist() and there[1, 1].tolist() == VALUES[1, 1]
    falling = there[::-1]
    falling[0] = 0
    np.testing.assert_array_equal(there.cpu()[2], 0)  # a view
    joined = np.concatenate([there, there[:1]], axis=0)
    assert isinstance(joined, cuzarr.DeviceArray)
    np.testing.assert_array_equal(np.stack([joined, joined]).cpu()[0, :2], there.cpu()[:2])
    with pytest.raises(ImplicitHostCopyError, match="numpy.partition"):
        np.partition(there, 1)

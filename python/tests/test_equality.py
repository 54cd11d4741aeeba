"""``==`` compares elements; ``same_as`` says whether two nodes are the same; plans of one element are numbers."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
from collections.abc import Callable
from typing import Any
from unittest import mock

import devices
import numpy as np
import pytest

import cuzarr
from cuzarr.errors import DTypeMismatchError, InvalidArgumentError, MemorySpaceError, ShapeMismatchError, UnsupportedError

VALUES = np.array([[0, 1, 255], [1, 7, 200]], "uint8")


@pytest.fixture(params=["array", "plan", "device"])
def ours(request: pytest.FixtureRequest) -> Any:
    """The same elements in a store, as a plan and in a GPU's memory."""
    if request.param == "device":
        return cuzarr.DeviceArray.from_host(VALUES, request.getfixturevalue("gpu"))
    array = cuzarr.create_array({}, data=VALUES, chunks=(1, 2))
    return array if request.param == "array" else array * 1


OTHERS: list[Any] = [
    1, 1.0, 1 + 0j, True, -9999, 300, 2**200, np.uint8(1), np.int64(-1), np.float64(7), np.bool_(True), [1, 1, 255], None, "1", b"1", object(), {}, ...,
]  # fmt: skip


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_elements_are_compared_in_both_orders(ours: Any, compare: Any, number: int) -> None:
    other = OTHERS[number]
    if isinstance(ours, cuzarr.DeviceArray) and isinstance(other, list):
        pytest.skip("memory of the host beside that of a device")
    expected = compare(VALUES, other)
    for got in (compare(ours, other), compare(other, ours)):
        assert got.dtype == bool and got.shape == VALUES.shape
        np.testing.assert_array_equal(cuzarr.xp.asnumpy(got), expected)


@pytest.mark.parametrize("number", [-1, 300, 2**70, -(2**70)])
def test_numbers_that_a_type_does_not_hold_are_compared_by_their_value(ours: Any, number: int) -> None:
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        np.testing.assert_array_equal(cuzarr.xp.asnumpy(compare(ours, number)), compare(VALUES, number))
        np.testing.assert_array_equal(cuzarr.xp.asnumpy(compare(number, ours)), compare(number, VALUES))


def test_arrays_of_other_libraries_are_compared_in_both_orders() -> None:
    array = cuzarr.create_array({}, data=VALUES, chunks=(1, 2))
    zarr = pytest.importorskip("zarr")
    for other in (VALUES, zarr.create_array({}, data=VALUES), cuzarr.create_array({}, data=VALUES), array * 1):
        for got in (array == other, other == array):
            np.testing.assert_array_equal(cuzarr.xp.asnumpy(got), VALUES == VALUES)
    with pytest.raises(ShapeMismatchError):
        array == VALUES[:, :2]
    assert (array == mock.ANY) is True and (array != mock.ANY) is False


def test_a_mask_of_missing_values_masks() -> None:
    array = cuzarr.create_array({}, data=np.array([1.5, -9999, 2.5]), chunks=(2,))
    np.testing.assert_array_equal(cuzarr.xp.where(array == -9999, np.nan, array).compute(), [1.5, np.nan, 2.5])
    np.testing.assert_array_equal(np.where(array == -9999, np.nan, array).compute(), [1.5, np.nan, 2.5])
    assert int((array != -9999).sum()) == 2


@pytest.mark.parametrize(
    "data", [np.array(["a", "b"]), np.array([0, 1], "M8[s]"), np.zeros(2, [("x", "i4")])], ids=["text", "times", "structures"]
)
def test_elements_without_arithmetic_are_compared_as_numpy_compares_them(data: Any) -> None:
    array = cuzarr.create_array({}, data=data, chunks=(1,))
    calls: list[Callable[[Any, Any], Any]] = [operator.eq, operator.ne, lambda x, other: other == x]
    for other in (data[0], data, None, "a"):
        for call in calls:
            try:
                expected = call(data, other)
            except TypeError:
                with pytest.raises(TypeError):
                    call(array, other)
            else:
                np.testing.assert_array_equal(call(array, other), expected)
    assert data[1] in array
    assert "c" not in cuzarr.create_array({}, data=np.array(["a", "b"]))


def test_arrays_have_no_hash_and_are_found_as_numpys_are(ours: Any) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(ours)
    assert 255 in ours and 77 not in ours and -1 not in ours
    assert ours in [ours, 3]  # identity goes first
    with pytest.raises(InvalidArgumentError, match="any"):
        assert ours in [3, ours]


def test_dataclasses_with_arrays_compare_as_with_numpys(ours: Any) -> None:
    @dataclasses.dataclass
    class Field:
        elements: Any
        name: str = "t"

    with pytest.raises(InvalidArgumentError, match="any"):
        assert Field(ours) == Field(ours * 1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(dataclasses.make_dataclass("Frozen", ["elements"], frozen=True)(ours))
    assert Field(ours.sum() - ours.sum()) == Field(0)


def test_the_same_nodes_are_told() -> None:
    store: dict[str, Any] = {}
    group = cuzarr.create_group(store, attributes={"a": 1})
    array = group.create_array("x", data=VALUES, chunks=(1, 2))
    other = group.create_array("y", data=VALUES, chunks=(1, 2))
    again = cuzarr.open_array(store, path="x")
    assert array.same_as(array) and array.same_as(again) and not array.same_as(other) and not array.same_as(VALUES)
    assert not array.same_as(array.with_config({"order": "F"})) and not array.same_as(array.async_array)
    assert group.same_as(cuzarr.open_group(store)) and group == cuzarr.open_group(store) and not group.same_as(array)
    assert array.async_array.same_as(again.async_array) and array.async_array == again.async_array
    assert array.async_array != other.async_array and not array.async_array.same_as(array)
    assert group.async_group.same_as(cuzarr.open_group(store).async_group) and group.async_group != None  # noqa: E711
    assert (
        array.metadata.same_as(other.metadata) and array.metadata == other.metadata and not array.metadata.same_as(group.metadata)
    )
    assert group.metadata.same_as(cuzarr.open_group(store).metadata) and not group.metadata.same_as(None)
    with pytest.raises(UnsupportedError, match="await"):
        array.async_array == 1
    array.update_attributes({"unit": "m"})
    assert not array.same_as(again) and not array.metadata.same_as(other.metadata)


def test_nodes_are_the_same_after_pickling(tmp_path: Any) -> None:
    group = cuzarr.create_group(tmp_path)
    array = group.create_array("x", data=VALUES, chunks=(1, 2))
    for node in (group, array, group.async_group, array.async_array, array.metadata, group.metadata):
        assert node.same_as(pickle.loads(pickle.dumps(node)))
    plan = array + 1
    for copied in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        np.testing.assert_array_equal(copied.compute(), VALUES + 1)


def test_dask_names_nodes_that_are_the_same_alike(tmp_path: Any) -> None:
    tokenize = pytest.importorskip("dask.base").tokenize
    group = cuzarr.create_group(tmp_path)
    array = group.create_array("x", data=VALUES, chunks=(1, 2))
    nodes = [group, array, group.async_group, array.async_array]
    tokens = [tokenize(node) for node in nodes]
    assert len(set(tokens)) == 4
    assert tokens == [tokenize(pickle.loads(pickle.dumps(node))) for node in nodes]
    assert tokenize(array + 1) != tokenize(array + 2)
    group.update_attributes({"changed": True})
    assert tokenize(group) != tokens[0]


def test_one_element_is_a_number(ours: Any) -> None:
    total, mean, truth = ours.sum(), ours.mean(), (ours == 7).any()
    if isinstance(ours, cuzarr.Array):
        assert isinstance(total, cuzarr.Expression)
    assert (int(total), total.item(), operator.index(total)) == (464,) * 3 and [0, 1][ours.min() : ours.max()] == [0, 1]
    assert (float(mean), complex(mean), f"{mean:.3f}") == (464 / 6, 464 / 6 + 0j, "77.333")
    assert (
        bool(truth) is True
        and bool((ours == 8).any()) is False
        and (ours[:1, :1] == 0 if isinstance(ours, cuzarr.DeviceArray) else True)
    )
    if mean > 70 and not total < 3:
        truth = None
    assert truth is None
    with pytest.raises(TypeError):
        operator.index(mean)


def test_more_than_one_element_is_no_number(ours: Any) -> None:
    whole = ours * 1
    for convert in (float, int, complex, operator.index):
        with pytest.raises(DTypeMismatchError, match="expected 0 dimensions"):
            convert(whole)
    with pytest.raises(InvalidArgumentError, match="any"):
        bool(whole)
    with pytest.raises(InvalidArgumentError, match="expected 1"):
        whole.item()
    assert repr(whole) == str(whole) == f"{whole}"


def test_an_array_of_one_element_and_no_dimensions_is_a_number() -> None:
    array = cuzarr.create_array({}, data=np.array(3.5))
    assert (float(array), int(array), complex(array), array.item(), bool(array)) == (3.5, 3, 3.5 + 0j, 3.5, True)
    assert not bool(cuzarr.zeros((), store={})) and bool(cuzarr.zeros((2,), store={})) and not bool(cuzarr.zeros((0,), store={}))
    assert cuzarr.create_array({}, data=np.array(["a"])).item() == "a"


# ----------------------------------------------------------------------------------------------- into arrays of NumPy's

SIGNS = ["iadd", "isub", "imul", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift"]


@pytest.fixture(params=["array", "plan"])
def lazy(request: pytest.FixtureRequest) -> Any:
    """Elements that are yet to be read: 1 to 6."""
    array = cuzarr.create_array({}, data=np.arange(1, 7).reshape(2, 3), chunks=(1, 2))
    return array if request.param == "array" else array * 1


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_in_place_writes_into_an_array_of_numpys(lazy: Any, sign: str) -> None:
    x = np.arange(10, 16).reshape(2, 3)
    view, expected = x[:], getattr(operator, sign)(x.copy(), np.arange(1, 7).reshape(2, 3))
    assert getattr(operator, sign)(x, lazy) is x
    np.testing.assert_array_equal(view, expected)


def test_a_quotient_in_place_is_written_and_a_type_that_does_not_fit_refused(lazy: Any) -> None:
    x, row = np.ones((2, 3)), np.ones((2, 3))[0]
    x /= lazy
    np.testing.assert_allclose(x, 1 / np.arange(1, 7).reshape(2, 3))
    row += lazy[1]
    np.testing.assert_array_equal(row, [5, 6, 7])
    whole = np.ones((2, 3), int)
    for change in (lambda: operator.iadd(whole, lazy * 1.5), lambda: operator.itruediv(whole, lazy)):
        with pytest.raises(TypeError, match="same_kind"):
            change()
    with pytest.raises(ValueError, match="broadcast"):
        operator.iadd(np.ones(3), lazy)
    assert (whole == 1).all()


def test_functions_of_numpys_write_into_its_arrays(lazy: Any) -> None:
    values = np.arange(1, 7).reshape(2, 3)

    def both(call: Any) -> None:
        outs = [np.zeros((2, 3)), np.zeros((2, 3))]
        for x, out in zip((lazy, values), outs, strict=True):
            call(x, out)
        np.testing.assert_allclose(*outs)
        assert outs[0].any()

    for call in [
        lambda x, out: np.add(x, 1, out=out), lambda x, out: np.add(1, x, out), lambda x, out: np.sqrt(x, out=(out,)), lambda x, out: np.logaddexp(x, x, out=out),
        lambda x, out: np.add(values, x, out=out, where=np.asarray(values) > 2), lambda x, out: np.add(values, 1, out=out, where=x > 2),
        lambda x, out: np.divmod(7, x, out=(out, None)), lambda x, out: np.add.at(out, (slice(None),), x), lambda x, out: np.add.reduce(x, axis=0, out=out[0]),
        lambda x, out: np.multiply.accumulate(x, axis=1, out=out), lambda x, out: np.sum(x, axis=0, out=out[1]), lambda x, out: np.mean(x, axis=1, out=out[:, 0]),
        lambda x, out: np.clip(x, 2, 4, out=out), lambda x, out: np.round(x / 4, 1, out=out), lambda x, out: np.max(x, axis=0, out=out[0]),
    ]:  # fmt: skip
        both(call)
    with pytest.raises(ShapeMismatchError):
        np.sum(lazy, axis=0, out=np.zeros(4))
    with pytest.raises(DTypeMismatchError):
        np.mean(lazy, axis=0, out=np.zeros(3, int))
    for call in (lambda: np.add(values, 1, out=lazy), lambda: np.add.at(lazy, 0, 1), lambda: np.add(lazy, 1, out=(lazy,))):
        with pytest.raises(UnsupportedError, match="hint"):
            call()


def test_signs_beside_an_array_of_numpys_are_plans_in_both_orders(lazy: Any) -> None:
    values = np.arange(1, 7).reshape(2, 3)
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and_",
        "or_",
        "xor",
        "lshift",
        "rshift",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
    ):
        sign = getattr(operator, name)
        for one, other in ((values, lazy), (lazy, values), (np.int64(3), lazy)):
            got, expected = sign(one, other), sign(np.asarray(one if one is not lazy else values), values)
            assert isinstance(got, cuzarr.Expression), name
            np.testing.assert_array_equal(got.compute(), expected)
    for got, expected in zip(divmod(values, lazy), divmod(values, values), strict=True):
        np.testing.assert_array_equal(got.compute(), expected)


def test_memory_of_a_device_is_not_copied_into_an_array_of_numpys(gpu: str) -> None:
    x, there = np.ones((2, 3)), cuzarr.DeviceArray.from_host(VALUES, gpu)
    stored = cuzarr.create_array({}, data=VALUES, chunks=(1, 2)).with_device(gpu)
    for other in (there, stored, stored * 1, cuzarr.create_array({}, data=VALUES) + there):
        with pytest.raises(MemorySpaceError, match="hint"):
            operator.iadd(x, other)
    assert (x == 1).all()
    for other in (stored, stored * 1):
        changed = cuzarr.DeviceArray.from_host(np.ones((2, 3), "uint8"), gpu)
        view = changed[...]
        changed += other
        np.testing.assert_array_equal(view.cpu(), VALUES + 1)


def test_an_array_on_the_host_is_not_moved_beside_one_of_cupys() -> None:
    array = cuzarr.array(np.arange(6), store={}, chunks=4)
    for operand in (array, array + 1):
        with pytest.raises(MemorySpaceError, match="reads to the host, beside an array of CuPy"):
            operand.__cupy_get_ndarray__()


def test_operators_of_cupy_take_arrays_and_plans_on_the_gpu() -> None:
    cupy = pytest.importorskip("cupy", reason="skipped: CuPy is not installed")
    device = devices.require()
    truth = np.arange(20, dtype="f4").reshape(4, 5)
    array = cuzarr.array(truth, store={}, chunks=(2, 5), device=device)
    left = cupy.asarray(truth)
    for operand, values in ((array, truth), (array * 2, truth * 2)):
        assert bool((left == operand).all()) == bool((truth == values).all())
        for result, expected in (
            (left + operand, truth + values),
            (left < operand, truth < values),
            (cupy.asarray(operand), values),
        ):
            assert isinstance(result, cupy.ndarray)
            np.testing.assert_array_equal(result.get(), expected)
        changed = left.copy()
        changed += operand
        np.testing.assert_array_equal(changed.get(), truth + values)


def test_in_place_operators_of_pytorch_change_the_tensor() -> None:
    torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")
    truth = np.arange(1, 7, dtype="f4")
    array = cuzarr.array(truth, store={}, chunks=4)
    for operand, values in ((array, truth), (array * 2, truth * 2)):
        for change in (
            operator.iadd,
            operator.isub,
            operator.imul,
            operator.itruediv,
            operator.ifloordiv,
            operator.imod,
            operator.ipow,
        ):
            tensor = torch.full((6,), 7.0)
            assert change(tensor, operand) is tensor
            np.testing.assert_allclose(tensor.numpy(), change(np.full(6, 7.0, "f4"), values), rtol=1e-6)
        np.testing.assert_array_equal((torch.ones(6) + operand).compute(), values + 1)
        assert bool((torch.from_numpy(values) == operand).compute().all())
    bits, flags = torch.tensor([6, 7]), cuzarr.array(np.array([3, 5]), store={}, chunks=1)
    before = bits
    bits &= flags
    assert bits is before and bits.tolist() == [2, 5]
    with pytest.raises(UnsupportedError, match="cannot be changed in place"):
        bits += array
    assert bits.tolist() == [2, 5]

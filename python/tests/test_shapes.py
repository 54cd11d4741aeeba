"""Functions that move dimensions and choose elements, beside NumPy's: random programs over arrays in stores, plans and memory."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import (
    BoundsCheckError,
    BudgetExceededError,
    DTypeMismatchError,
    InvalidArgumentError,
    SelectionInvalidError,
    ShapeMismatchError,
    UnsupportedError,
)


def host(value: Any) -> Any:
    value = value.compute() if isinstance(value, cuzarr.Expression) else value
    return value.cpu() if isinstance(value, cuzarr.DeviceArray) else np.asarray(value.get() if hasattr(value, "get") else value)


def a_call(choose: random.Random, shape: tuple[int, ...]) -> tuple[str, tuple[Any, ...]]:
    """A function's name and arguments that fit a shape."""
    ndim = len(shape)
    axis = choose.randrange(-ndim, ndim) if ndim else None
    kind = choose.choice(["transpose", "flip", "squeeze", "expand_dims", "take", "moveaxis", "swapaxes", "diff", "broadcast_to"])
    if kind == "transpose":
        return kind, (choose.choice([None, tuple(choose.sample(range(ndim), ndim))]),)
    if kind == "flip":
        return kind, (choose.choice([None, axis]),)
    if kind == "squeeze":
        ones = [place for place, extent in enumerate(shape) if extent == 1]
        return kind, (choose.choice([None, tuple(ones)]),)
    if kind == "expand_dims" and ndim < 5:
        return kind, (choose.choice([choose.randint(-ndim - 1, ndim), (0, -1)]),)
    if kind == "broadcast_to" and ndim < 5:
        wide = tuple(choose.choice([0, 1, 3]) if extent == 1 else extent for extent in shape)
        return kind, (choose.choice([wide, (2, *wide)]),)
    if axis is not None and kind in ("moveaxis", "swapaxes"):
        return kind, (axis, choose.randrange(-ndim, ndim))
    if axis is not None and kind == "diff":
        return kind, (choose.choice([1, 2, 0]), axis)
    if axis is not None:
        extent = shape[axis]
        if extent and choose.random() < 0.3:
            return "take", (choose.randrange(-extent, extent), axis)
        return "take", ([choose.randrange(-extent, extent) for _ in range(choose.randint(0, 4))] if extent else [], axis)
    return "transpose", (None,)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (9,), (3, 0), (7, 5), (4, 1, 3)])
@pytest.mark.parametrize("seed", range(15))
def test_random_programs_are_numpys(seed: int, shape: tuple[int, ...], device: str) -> None:
    choose = random.Random(seed * 7 + len(shape))
    truth = np.random.default_rng(seed).integers(-99, 99, shape).astype(choose.choice(["i4", "f4", "f8"]))
    array = cuzarr.create_array({}, data=truth, chunks=tuple(max(1, -(-extent // 2)) for extent in shape)).with_device(device)
    row = np.asarray(truth[..., :1] if shape else truth)
    plan, expected = array * 2 + (array if device != "cpu" else row), truth * 2 + (truth if device != "cpu" else row)
    # A reduction in the plan is picked after it was computed.
    plan, expected = (plan - array.max(), expected - truth.max()) if truth.size else (plan, expected)
    memory: Any = truth if device == "cpu" else cuzarr.DeviceArray.from_host(truth, device)
    kept = [("array", array, truth), ("plan", plan, expected), ("memory", memory, truth)]
    for _ in range(choose.randint(1, 4)):
        name, arguments = a_call(choose, kept[0][2].shape)
        made = []
        for kind, x, numpys in kept:
            got, wanted = (
                getattr(cuzarr.xp, name)(x, *arguments),
                getattr(np, name)(numpys, *arguments) if name != "diff" else np.diff(numpys, *arguments),
            )
            assert isinstance(got, cuzarr.Expression) == (kind != "memory"), (name, kind)
            assert tuple(got.shape) == wanted.shape and got.dtype == wanted.dtype, (name, arguments, kind)
            np.testing.assert_array_equal(host(got), wanted, err_msg=f"{name}{arguments} of {kind}")
            made.append((kind, got, wanted))
        kept = made
    _, plan, expected = kept[1]
    if expected.ndim:
        np.testing.assert_allclose(host(plan.sum(axis=0)), expected.sum(axis=0), rtol=1e-6)
        target = cuzarr.create_array(
            {}, shape=expected.shape, chunks=tuple(max(1, e) for e in expected.shape), dtype=expected.dtype
        )
        np.testing.assert_array_equal(host(plan.store(target)[...]), expected)


@pytest.mark.parametrize("seed", range(12))
def test_arrays_one_after_the_other_are_numpys(seed: int, device: str) -> None:
    choose = random.Random(seed)
    ndim = choose.randint(1, 3)
    axis = choose.randrange(-ndim, ndim)
    shape = [choose.randint(1, 6) for _ in range(ndim)]
    truths, lazies = [], []
    for number in range(choose.randint(1, 4)):
        own = [*shape]
        own[axis] = choose.choice([0, 1, 5, 9])
        truth = np.random.default_rng(seed * 9 + number).integers(-9, 9, own).astype(choose.choice(["i2", "f4", "f8", "u1"]))
        array = cuzarr.create_array({}, data=truth, chunks=tuple(max(1, -(-e // 2)) for e in own)).with_device(device)
        kinds = [array, array.lazy, array.lazy[...] if device != "cpu" else truth, array.astype(truth.dtype)]
        truths.append(truth)
        lazies.append(choose.choice(kinds))
    lazies[0] = lazies[0] if not isinstance(lazies[0], np.ndarray) else cuzarr.create_array({}, data=truths[0])
    plan, expected = cuzarr.xp.concatenate(lazies, axis), np.concatenate(truths, axis)
    assert isinstance(plan, cuzarr.Expression) and plan.dtype == expected.dtype and plan.shape == expected.shape
    for memory_limit in ("64 KiB", None):
        np.testing.assert_array_equal(host(plan.compute(memory_limit=memory_limit)), expected)
    np.testing.assert_array_equal(host(cuzarr.xp.flip(plan * 2 + 1, axis)), np.flip(expected * 2 + 1, axis))
    np.testing.assert_array_equal(host((plan - plan).sum()), 0)
    extent = expected.shape[axis]
    rows = [choose.randrange(-extent, extent) for _ in range(4)] if extent else []
    np.testing.assert_array_equal(host(cuzarr.xp.take(plan, rows, axis)), np.take(expected, rows, axis))
    np.testing.assert_array_equal(host(cuzarr.xp.diff(plan, axis=axis)), np.diff(expected, axis=axis))
    place = choose.randrange(-ndim - 1, ndim + 1)
    stacked = cuzarr.xp.stack([lazies[0], lazies[0]], place)
    np.testing.assert_array_equal(host(stacked), np.stack([truths[0]] * 2, place))
    assert host(cuzarr.xp.concatenate([host(plan), expected], axis)).tolist() == np.concatenate([expected] * 2, axis).tolist()


def test_plans_that_turn_and_join_are_pickled(tmp_path: Any) -> None:
    truth = np.arange(24.0).reshape(4, 6)
    array = cuzarr.create_array(tmp_path / "a.zarr", data=truth, chunks=(2, 2), dimension_names=("time", "x"))
    plan = cuzarr.xp.concatenate([cuzarr.xp.take(array, [3, 0], 0) - array.max(axis=0), array.lazy[::-1] * 2], axis="time")
    again = pickle.loads(pickle.dumps(plan))
    np.testing.assert_array_equal(again.compute(), np.concatenate([truth[[3, 0]] - truth.max(axis=0), truth[::-1] * 2]))
    np.testing.assert_array_equal(again.T.mean("time").compute(), plan.compute().mean(axis=0))


def test_arrays_that_do_not_fit_are_not_joined() -> None:
    z = cuzarr.zeros((2, 3), store={})
    for error, call in [
        (InvalidArgumentError, lambda: cuzarr.xp.concatenate([])), (InvalidArgumentError, lambda: cuzarr.xp.concatenate([z, z], 2)),
        (InvalidArgumentError, lambda: cuzarr.xp.concatenate([1, 2])), (ShapeMismatchError, lambda: cuzarr.xp.concatenate([z, z.lazy[:, 1:]])),
        (ShapeMismatchError, lambda: cuzarr.xp.stack([z, z.lazy[:1]])),
        (InvalidArgumentError, lambda: cuzarr.xp.concatenate([z.lazy[:1], z.lazy[1:]]).store(z)), (DTypeMismatchError, lambda: cuzarr.xp.concatenate([z, ["a"]])),
    ]:  # fmt: skip
        with pytest.raises(error):
            call()
    named = cuzarr.create_array({}, data=np.ones((2, 3)), dimension_names=("time", "x"))
    assert cuzarr.xp.concatenate([named, named * 2], "time").sum("x").compute().tolist() == [3, 3, 6, 6]


def test_names_of_dimensions_move_with_them() -> None:
    z = cuzarr.create_array({}, data=np.arange(24.0).reshape(2, 3, 4), chunks=(1, 3, 2), dimension_names=("time", "y", "x"))
    moved = cuzarr.xp.moveaxis(z, "x", 0)
    np.testing.assert_array_equal(moved.mean(axis="time").compute(), z[...].mean(axis=0).T)
    np.testing.assert_array_equal(cuzarr.xp.diff(z, axis="time").max(axis="x").compute(), np.diff(z[...], axis=0).max(axis=-1))
    np.testing.assert_array_equal(cuzarr.xp.take(z, 1, "y").sum("time").compute(), z[...][:, 1].sum(axis=0))
    np.testing.assert_array_equal((z.astype("f4").T).sum("y").compute(), z[...].T.sum(axis=1))
    with pytest.raises(InvalidArgumentError, match="place"):
        cuzarr.xp.flip(z, "place")


def test_what_does_not_fit_is_refused() -> None:
    z = cuzarr.zeros((2, 3), store={})
    for error, call in [
        (InvalidArgumentError, lambda: cuzarr.xp.transpose(z, (0, 0))), (InvalidArgumentError, lambda: cuzarr.xp.transpose(z, (0,))),
        (InvalidArgumentError, lambda: cuzarr.xp.moveaxis(z, (0, 1), 0)), (InvalidArgumentError, lambda: cuzarr.xp.expand_dims(z, (0, 0))),
        (InvalidArgumentError, lambda: cuzarr.xp.swapaxes(z, 0, 2)), (InvalidArgumentError, lambda: cuzarr.xp.diff(z, -1)),
        (ShapeMismatchError, lambda: cuzarr.xp.squeeze(z, 0)), (ShapeMismatchError, lambda: cuzarr.xp.broadcast_to(z, (3, 3))),
        (BoundsCheckError, lambda: cuzarr.xp.take(z, [0, 3], 1)), (UnsupportedError, lambda: cuzarr.xp.take(z, [0])),
        (UnsupportedError, lambda: cuzarr.xp.take(z, [[0]], 0)), (SelectionInvalidError, lambda: cuzarr.xp.take(z, [0.5], 0)),
    ]:  # fmt: skip
        with pytest.raises(error):
            call()


def test_only_what_is_chosen_is_read() -> None:
    store = cuzarr.storage.MemoryStore()
    array = cuzarr.create_array(store, data=np.arange(400.0).reshape(20, 20), chunks=(2, 20))
    for number in range(1, 10):
        store.set(f"c/{number}/0", b"nothing that decodes")
    plan = np.sqrt(array) + 1
    np.testing.assert_array_equal(cuzarr.xp.take(plan, [1, 0], 0).compute(), np.sqrt(np.arange(40.0).reshape(2, 20))[::-1] + 1)


def test_results_go_into_memory_of_the_callers(device: str) -> None:
    truth = np.random.default_rng(3).random((30, 20)).astype("f4")
    array = cuzarr.create_array({}, data=truth, chunks=(4, 5)).with_device(device)
    plan = np.sqrt(array) * 2
    for dtype in ("f4", "f8"):
        room: Any = np.zeros((30, 20), dtype)
        if device != "cpu":
            room = cuzarr.DeviceArray.from_host(room, device)
        assert plan.compute(out=room, memory_limit="64 KiB") is room
        np.testing.assert_array_equal(host(room), (np.sqrt(truth) * 2).astype(dtype))
    if device == "cpu":
        wide = np.zeros((20, 60), "f4")
        plan.compute(out=wide[:, ::2].T)
        np.testing.assert_array_equal(wide[:, ::2].T, np.sqrt(truth) * 2)
        assert not wide[:, 1::2].any()
        # An operand in the same memory, needed after its place was written.
        row = truth.copy()
        (array + row[:1]).compute(out=row, memory_limit="64 KiB")
        np.testing.assert_array_equal(row, truth + truth[:1])
        with cuzarr.config.set({"memory_limit": "2 KiB"}):
            np.testing.assert_array_equal(np.sqrt(array, out=np.zeros((30, 20), "f4")), np.sqrt(truth))
            np.testing.assert_array_equal(np.add(1, array.lazy[::-1], out=np.zeros((30, 20))), truth[::-1] + np.float32(1))
    fixed = np.zeros((30, 20), "f4")
    fixed.flags.writeable = False
    for error, out in [
        (ShapeMismatchError, np.zeros((20, 30), "f4")), (DTypeMismatchError, np.zeros((30, 20), "i4")),
        (DTypeMismatchError, np.zeros((30, 20), ">f4")), (InvalidArgumentError, fixed), (InvalidArgumentError, array), (InvalidArgumentError, [1]),
    ]:  # fmt: skip
        with pytest.raises(error):
            (plan.compute if device == "cpu" else (array.with_device("cpu") * 1).compute)(out=out)


def test_plans_go_into_new_arrays(tmp_path: Any) -> None:
    truth = np.arange(12.0).reshape(3, 4)
    source = cuzarr.create_array(tmp_path / "a.zarr", name="t", data=truth, chunks=(1, 2), dimension_names=("time", "x"))
    made = (source + 1).store(tmp_path / "b.zarr", chunks=(2, 2), compressors=None)
    assert made.metadata.dimension_names == ("time", "x") and made.chunks == (2, 2) and not made.compressors
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "b.zarr")[...], truth + 1)
    with pytest.raises(cuzarr.errors.ContainsArrayError):
        (source + 2).store(tmp_path / "b.zarr")
    (source + 2).store(str(tmp_path / "b.zarr"), overwrite=True, memory_limit="64 KiB")
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "b.zarr")[...], truth + 2)
    assert (source * 1).store({}, zarr_format=2).metadata.zarr_format == 2
    (source + 3).store(tmp_path / "c.zarr", name="deep/er", resume=True)
    again = (source + 3).store(tmp_path / "c.zarr", name="deep/er", resume=True)
    np.testing.assert_array_equal(again[...], truth + 3)
    # The arrays of the plan stay, and what they lie in.
    for place in ({"name": "t"}, {}):
        with pytest.raises(InvalidArgumentError, match="overlaps"):
            (source.lazy[::-1] - source.mean(axis=0)).store(tmp_path / "a.zarr", overwrite=True, **place)
    np.testing.assert_array_equal(source[...], truth)
    for wrong in (np.zeros((3, 4)), None, source.lazy, source + 1):
        with pytest.raises(InvalidArgumentError, match="to store into|overlaps"):
            (source + 1).store(wrong)
    with pytest.raises(TypeError, match="for a new array"):
        (source + 1).store(again, chunks=(1, 1))


def test_plans_go_into_zip_files_whole_or_not_at_all(tmp_path: Any) -> None:
    truth = np.arange(12.0).reshape(3, 4)
    source = cuzarr.create_array({}, data=truth, chunks=(1, 2))
    for name in ("a.zip", "a.ozx"):
        made = (source + 1).store(tmp_path / name)
        np.testing.assert_array_equal(made[...], truth + 1)
        np.testing.assert_array_equal(cuzarr.open_array(tmp_path / name, mode="r")[...], truth + 1)
    archive = cuzarr.storage.ZipStore(tmp_path / "b.zip", mode="w")
    for number in range(2):
        (source + number).store(archive, name=str(number))
    archive.close()
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "b.zip", path="1", mode="r")[...], truth + 1)
    with pytest.raises(BudgetExceededError):
        (source + 1).store(tmp_path / "c.zip", memory_limit=1)
    assert not (tmp_path / "c.zip").exists()
    with pytest.raises(UnsupportedError):
        (source + 1).store(tmp_path / "c.zip", resume=True)
    assert not (tmp_path / "c.zip").exists()


def test_plans_say_what_they_would_do(tmp_path: Any) -> None:
    truth = np.arange(64.0).reshape(8, 8)
    u = cuzarr.create_array(tmp_path / "era5.zarr", name="u10", data=truth, chunks=(2, 8))
    for opened in (u, cuzarr.open_array(tmp_path / "era5.zarr" / "u10"), cuzarr.open_group(tmp_path / "era5.zarr")["u10"]):
        assert repr(opened + 1).startswith("<Expression (era5.zarr/u10 + 1) ")
    assert "(array + 1)" in repr(cuzarr.zeros((2,), store={}) + 1)
    plan = (u.lazy[1:] - u.lazy[:-1]) / u.mean(axis=0)
    text = repr(plan.explain())
    assert "reads era5.zarr/u10[1:8, 0:8]" in text and "mean(era5.zarr/u10, axis=[0])" in text and "on cpu" in text
    first, second = plan.explain(memory_limit="64 KiB").to_dict()["stages"]
    assert (first["shape"], second["shape"], second["operations"]) == ([8], [7, 8], 2)
    assert first["reads"][0]["read"]["chunks"] == 4 and [one["read"]["chunks"] for one in second["reads"]] == [4, 4]
    assert plan.explain().to_dict()["device"] == "cpu" and "<pre>" in plan.explain()._repr_html_()
    assert "era5.zarr/u10" in plan._repr_html_() and "<table>" in plan._repr_html_()
    large = cuzarr.create_array({}, shape=(4000, 1000), chunks=(100, 1000), dtype="f8")
    counts = [(large + 1).explain(memory_limit=limit).to_dict()["stages"][0]["regions"] for limit in ("16 MiB", "256 MiB")]
    assert counts[0] > counts[1] >= 1
    with pytest.raises(BudgetExceededError):
        (large + 1).explain(memory_limit="64 KiB")


def test_no_axis_joins_all_elements_in_a_row() -> None:
    x = np.arange(6).reshape(2, 3)
    z = cuzarr.create_array({}, data=x, chunks=(1, 2))
    for arrays in ([z, z], [z, [7.5]], [z * 2, z.lazy[:, ::-1], 5], [z.T if hasattr(z, "T") else z.lazy.transpose(), z]):
        plain = [one.compute() if hasattr(one, "compute") else np.asarray(one) for one in arrays]
        expected = np.concatenate(plain, axis=None)
        for join in (cuzarr.xp.concatenate, np.concatenate, cuzarr.xp.concat):
            got = host(join(arrays, axis=None))
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda z: np.stack([z, z], axis=None),
        lambda z: np.stack([z * 1, z], axis=None),
        lambda z: cuzarr.xp.stack([z, z], axis=None),
        lambda z: np.diff(z, axis=None),
        lambda z: np.diff(z * 1, axis=None),
        lambda z: cuzarr.xp.diff(z, axis=None),
        lambda z: np.diff(z * 1, n=None),
    ],
)
def test_no_axis_is_refused_where_numpy_refuses_it(call: Any) -> None:
    with pytest.raises(TypeError):
        call(cuzarr.create_array({}, data=np.arange(6).reshape(2, 3), chunks=(1, 2)))

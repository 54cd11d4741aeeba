"""Functions of elements: the values, types and shapes that NumPy gives."""

from __future__ import annotations

import functools
import itertools
import operator
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import gpu_device
from devices import require

import cuzarr
from cuzarr.xp.elementwise import Function

WHOLE = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
DTYPES = ["bool", *WHOLE, *FLOATS, "complex64", "complex128"]
APPROXIMATE = {
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cbrt", "cos", "cosh", "exp", "exp2", "expm1",
    "hypot", "log", "log10", "log1p", "log2", "power", "sin", "sinh", "tan", "tanh",
}  # fmt: skip
FUNCTIONS = {name: f for name, f in vars(cuzarr.xp.elementwise).items() if isinstance(f, Function) and f.__name__ == name}


def values(dtype: str, seed: int, shape: tuple[int, ...] = (6, 40)) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        bounds = np.iinfo(dtype)
        wide = random.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)
        return np.where(random.random(shape) < 0.5, wide, random.integers(0, 9, shape)).astype(dtype)
    numbers = random.normal(size=shape) * random.choice([0.1, 1, 20], shape)
    special = random.choice([0.0, -0.0, 1, -1, 0.5, 2.5, np.inf, -np.inf, np.nan], shape)
    numbers = np.where(random.random(shape) < 0.25, special, numbers)
    if kind == "c":
        numbers = np.stack([numbers, np.roll(numbers, 1)], -1).view("c16").reshape(shape)
    return numbers.astype(dtype)


def ulps(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest distance, in units of the last place; NaN and infinities have to be where they are expected."""
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    if same.all():
        return 0
    got, expected = got[~same], expected[~same]
    if not (np.isfinite(got).all() and np.isfinite(expected).all()):
        return float("inf")
    spacing = np.maximum(np.spacing(np.abs(expected)).astype("f8"), np.finfo(got.dtype).smallest_subnormal.astype("f8"))
    return float(np.max(np.abs(got.astype("f8") - expected.astype("f8")) / spacing))


def check(name: str, operands: list[Any], device: str = "cpu") -> None:
    ufunc = getattr(np, name)
    moved = [cuzarr.xp.asarray(x, device=device) if isinstance(x, np.ndarray) else x for x in operands]
    kinds = [x.dtype.kind if isinstance(x, np.ndarray) else "" for x in operands]
    with np.errstate(all="ignore"):
        try:
            expected = ufunc(*operands)
        except (TypeError, ValueError):
            with pytest.raises((cuzarr.errors.DTypeMismatchError, cuzarr.errors.InvalidArgumentError)):
                FUNCTIONS[name](*moved)
            return
        if "c" in kinds and expected.dtype.kind != "b" and name not in (
            "add", "subtract", "multiply", "divide", "negative", "absolute", "conjugate", "real", "imag", "square", "where"
        ) or "c" in kinds and name in ("less", "less_equal", "greater", "greater_equal"):  # fmt: skip
            with pytest.raises(cuzarr.errors.DTypeMismatchError, match="CuPy"):
                FUNCTIONS[name](*moved)
            return
        got = cuzarr.xp.asnumpy(FUNCTIONS[name](*moved))
    assert got.dtype == expected.dtype, (name, kinds)
    assert got.shape == expected.shape
    if got.dtype.kind == "c":
        # NumPy's vector loops fuse a product with a sum.
        scale = np.finfo(got.dtype).eps * 4
        np.testing.assert_allclose(
            got, expected, rtol=scale, atol=scale * np.nanmax(np.abs(expected[np.isfinite(expected)]), initial=1)
        )
        return
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected, err_msg=name)
        return
    if name in APPROXIMATE and got.dtype.itemsize < 8 and all(kind in "f" for kind in kinds):
        with np.errstate(all="ignore"):
            expected = ufunc(*(x.astype("f8") for x in operands)).astype(got.dtype)
    assert ulps(got, expected) <= (2 if name in APPROXIMATE or "c" in kinds else 0), (name, kinds)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_values_and_types_are_numpys(name: str) -> None:
    arity = getattr(np, name).nin if hasattr(getattr(np, name), "nin") else {"where": 3}.get(name, 1)
    if arity == 1:
        for dtype in DTYPES:
            check(name, [values(dtype, 1)])
    elif arity == 2:
        for first, second in itertools.product(
            DTYPES, ["bool", "int8", "int64", "uint8", "uint64", "float16", "float32", "float64", "complex64"]
        ):
            exponents = (
                np.abs(values(second, 3).astype("f8")).clip(0, 5).astype(second)
                if name == "power" and "int" in second
                else values(second, 3)
            )
            check(name, [values(first, 2), exponents])
    else:
        for first, second in itertools.product(DTYPES, ["bool", "int16", "uint64", "float32"]):
            check(name, [values("float32", 1), values(first, 2), values(second, 3)])


SIGNS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.lt, operator.ge]


@pytest.mark.parametrize("number", [3, 2.5, True, 1j, np.float32(1.5), np.int16(3), np.array(2)], ids=repr)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_beside_arrays_have_numpys_types(dtype: str, number: Any) -> None:
    x = values(dtype, 4, (11,))
    for sign in SIGNS:
        lazy = cuzarr.array(x, store={}, chunks=4)
        with np.errstate(all="ignore"):
            try:
                expected = sign(x, number)
            except TypeError:
                with pytest.raises((cuzarr.errors.DTypeMismatchError, TypeError)):
                    sign(lazy, number)
                continue
            if (
                np.iscomplexobj(expected)
                and sign in (operator.floordiv, operator.mod)
                or expected.dtype == bool
                and (np.iscomplexobj(x) or np.iscomplexobj(number))
            ):
                continue
        plan = sign(lazy, number)
        assert isinstance(plan, cuzarr.Expression)
        assert (plan.dtype, plan.shape) == (expected.dtype, expected.shape), sign
        if expected.dtype.kind == "c":
            np.testing.assert_allclose(plan.compute(), expected, rtol=1e-6)
        else:
            np.testing.assert_array_equal(plan.compute(), expected, err_msg=str(sign))
        other_way = sign(number, lazy)
        assert isinstance(other_way, cuzarr.Expression)


@pytest.mark.parametrize("seed", range(30))
def test_shapes_broadcast_and_strides_may_be_any(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 9, random.integers(0, 5)))

    def operand(number: int) -> np.ndarray[Any, Any]:
        own = [1 if random.random() < 0.3 else extent for extent in shape[random.integers(0, len(shape) + 1) :]]
        steps = random.choice([1, 2, -1], len(own))
        base = values("float64", seed + number, tuple(int(extent * abs(step)) for extent, step in zip(own, steps, strict=True)))
        view = base[tuple(slice(None, None, int(step)) for step in steps)]
        axes = tuple(map(int, random.permutation(len(own))))
        if random.random() < 0.5 or not axes:
            return np.asarray(view)
        return np.ascontiguousarray(view.transpose(axes)).transpose(np.argsort(axes))

    x, y, z = operand(0), operand(1), operand(2)
    with np.errstate(all="ignore"):
        expected = np.where(x < y, x * z, np.minimum(y, z) - x)
        got = cuzarr.xp.where(cuzarr.xp.less(x, y), cuzarr.xp.multiply(x, z), cuzarr.xp.subtract(cuzarr.xp.minimum(y, z), x))
    np.testing.assert_array_equal(got, expected)
    assert got.shape == expected.shape


def test_bfloat16_is_rounded_as_ml_dtypes_rounds_it() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, y = (values("float32", seed).astype(ml_dtypes.bfloat16) for seed in (1, 2))
    with np.errstate(all="ignore"):
        for name in ("add", "subtract", "multiply", "divide", "maximum"):
            expected = getattr(np, name)(x, y)
            got = FUNCTIONS[name](x, y)
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got.astype("f4"), expected.astype("f4"))


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "f2", "f4", "f8"])
@pytest.mark.parametrize("name", ["hypot", "arctan2", "copysign", "logaddexp", "add", "divide", "fmod"])
def test_bfloat16_beside_other_types_has_ml_dtypes_types(name: str, dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, y = np.array([1.5, 2.0, 0.25], ml_dtypes.bfloat16), np.array([1, 0, 1], dtype)
    ours = getattr(cuzarr.xp, name)
    for own, other in ((x, y), (y, x)):
        expected = getattr(np, name)(own, other)
        z = cuzarr.create_array({}, data=own, chunks=(2,))
        for got in (ours(own, other), ours(z, other).compute()):
            assert got.dtype == expected.dtype
            # Functions that approximate may differ in the last bits on a GPU.
            rtol = {"logaddexp": 0.01, "arctan2": 1e-6}.get(name, 0)
            np.testing.assert_allclose(got.astype("f8"), expected.astype("f8"), rtol=rtol)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "u8", "f4"])
def test_whole_numbers_stay_whole_when_they_are_rounded_or_inverted(dtype: str) -> None:
    x = np.array([0, 1, 15, 25, 99] if dtype != "?" else [0, 1, 1, 0, 1]).astype(dtype)
    z = cuzarr.create_array({}, data=x, chunks=(2,))
    for decimals in (-2, -1, 0, 1) if dtype != "?" else (0,):
        expected = np.round(x, decimals)
        for got in (cuzarr.xp.round(x, decimals), cuzarr.xp.round(z, decimals).compute()):
            assert got.dtype == expected.dtype, decimals
            np.testing.assert_array_equal(got, expected)
    with np.errstate(all="ignore"):
        expected = np.reciprocal(x[1:])
        for got in (cuzarr.xp.reciprocal(x[1:]), cuzarr.xp.reciprocal(z.lazy[1:]).compute()):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("ddof", [0, 1, 2, 3, 4.5])
def test_a_variance_of_too_few_elements_is_numpys(ddof: float) -> None:
    x = np.array([[1.0, 2.0, 4.0], [np.nan, 2.0, np.nan], [np.nan] * 3, [3.0, 3.0, np.nan]])
    z = cuzarr.create_array({}, data=x, chunks=(2, 2))
    for name in ("var", "std", "nanvar", "nanstd"):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = getattr(np, name)(x, axis=1, ddof=ddof)
        np.testing.assert_array_equal(np.isinf(getattr(cuzarr.xp, name)(z, axis=1, ddof=ddof).compute()), np.isinf(expected))
        np.testing.assert_allclose(getattr(cuzarr.xp, name)(z, axis=1, ddof=ddof).compute(), expected, rtol=1e-12)


def test_round_and_clip_and_casts_are_numpys() -> None:
    x = values("float64", 5)
    with np.errstate(all="ignore"):
        for decimals in (-1, 0, 2):
            np.testing.assert_array_equal(cuzarr.xp.round(x, decimals), np.round(x, decimals))
        np.testing.assert_array_equal(cuzarr.xp.clip(x, -1, 2), np.clip(x, -1, 2))
        z = cuzarr.array(x, store={}, chunks=(2, 7))
        np.testing.assert_array_equal((z + 1).astype("int32").compute(), (x + 1).astype("int32"))
        np.testing.assert_array_equal(cuzarr.xp.round(z, 1).compute(), np.round(x, 1))


def test_a_plan_reads_nothing_until_it_is_computed() -> None:
    x = np.arange(60.0).reshape(6, 10)
    z = cuzarr.array(x, store={}, chunks=(2, 4))
    plan = cuzarr.xp.sqrt(z) + z[0]
    assert repr(plan) == "<Expression (sqrt(array) + <float64 [10] on cpu>) shape=(6, 10) dtype=float64>"
    expected = np.sqrt(x) + x[0]
    np.testing.assert_allclose(plan.compute(), expected, rtol=1e-15)
    np.testing.assert_allclose(plan[1:5:2, -3], expected[1:5:2, -3], rtol=1e-15)
    np.testing.assert_allclose(plan[2], expected[2], rtol=1e-15)
    assert z.same_as(cuzarr.open_array(z.store_path)) and not z.same_as(x) and (z == x).compute().all()
    np.testing.assert_array_equal(cuzarr.xp.equal(z, 3.0).compute(), x == 3)
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="compute"):
        np.sort(plan)
    with pytest.raises(cuzarr.errors.InvalidArgumentError):
        bool(plan)
    np.testing.assert_array_equal(np.negative(plan).compute(), -expected)


def test_store_writes_within_the_limit_and_tells_of_its_progress() -> None:
    x = np.arange(64 * 50, dtype="int32").reshape(64, 50)
    source = cuzarr.array(x, store={}, chunks=(8, 10))
    target = cuzarr.create_array({}, shape=x.shape, shards=(16, 20), chunks=(4, 10), dtype="float32")
    told: list[tuple[int, int | None]] = []
    (source * 2).store(target, memory_limit="64 KiB", progress=lambda done, total: told.append((done, total)))
    np.testing.assert_array_equal(target[...], (x * 2).astype("float32"))
    assert told[-1] == (12, 12)
    with pytest.raises(cuzarr.errors.BudgetExceededError, match="one chunk"):
        (source * 3).store(target, memory_limit=1000)
    np.testing.assert_array_equal(target[...], (x * 2).astype("float32"))  # Refused before anything was written.
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="overlaps the source"):
        (source * 2).store(source)
    with pytest.raises(cuzarr.errors.ShapeMismatchError):
        (source * 2).store(cuzarr.create_array({}, shape=(3,), dtype="i4"))
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="place of a new one"):
        (source * 2).store(x)


def test_what_has_no_arithmetic_is_refused_by_name() -> None:
    with pytest.raises(cuzarr.errors.ShapeMismatchError, match="broadcast"):
        cuzarr.xp.add(np.zeros(3), np.zeros(4))
    with pytest.raises(cuzarr.errors.DTypeMismatchError, match="datetime64"):
        cuzarr.xp.add(np.zeros(3, "M8[s]"), 1)
    with pytest.raises(cuzarr.errors.DTypeMismatchError, match="str|<U3"):
        cuzarr.xp.add(np.array(["abc"]), 1)
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="300"):
        cuzarr.xp.add(np.zeros(3, "u1"), 300)
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="negative powers"):
        cuzarr.xp.power(np.arange(3), np.array([1, -1, 0]))
    assert cuzarr.xp.less(np.zeros(2, "u1"), 300).all() and not cuzarr.xp.equal(np.zeros(2, "u1"), -1).any()


def test_arithmetic_of_device_arrays_is_numpys() -> None:
    device = require()
    a, b = values("float32", 6), values("float32", 7)
    with cuzarr.config.set({"array_type": "device"}):
        x, y = cuzarr.DeviceArray.from_host(a, device), cuzarr.DeviceArray.from_host(b, device)
        with np.errstate(all="ignore"):
            out = np.abs(x - y[0]) * 2 + (x > y)
            expected = np.abs(a - b[0]) * 2 + (a > b)
        assert isinstance(out, cuzarr.DeviceArray) and out.device.startswith(device) and out.dtype == expected.dtype
        np.testing.assert_array_equal(out.cpu(), expected)
        with pytest.raises(cuzarr.errors.MemorySpaceError, match="asarray"):
            x + b
        with pytest.raises(cuzarr.errors.UnsupportedError, match="CuPy"):
            np.add.reduce(x)
        with pytest.raises(cuzarr.errors.UnsupportedError, match="CuPy"):
            np.heaviside(x, y)
        z = cuzarr.array(a, store={}, chunks=(2, 16))
        plan = (z * 2 + x).compute(device=device)
        np.testing.assert_array_equal(plan.cpu(), a * 2 + a)
        target = cuzarr.create_array({}, shape=a.shape, chunks=(3, 40), dtype="float32")
        (z * 2).store(target, device=device)
        np.testing.assert_array_equal(target[...], a * 2)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_on_a_gpu_are_numpys(name: str) -> None:
    device = require()
    if not device.startswith("cuda"):
        pytest.skip("every function is a kernel: the Rust tests compile them for the CPU by the dozen")
    arity = getattr(np, name).nin if hasattr(getattr(np, name), "nin") else {"where": 3}.get(name, 1)
    for dtype in ("bool", "int8", "int64", "uint16", "float16", "float32", "float64", "complex64"):
        operands = [values(dtype, seed, (33, 7)) for seed in range(arity)]
        if name == "power" and "int" in dtype:
            operands[1] = np.abs(operands[1].astype("f8")).clip(0, 5).astype(dtype)
        check(name, operands, device)


def test_xp_makes_and_moves_arrays() -> None:
    for device in ["cpu", *filter(None, [gpu_device()[0]])]:
        with cuzarr.config.set({"array_type": "device"}):
            x = cuzarr.xp.full((2, 3), 7, "int16", device=device)
            like = [cuzarr.xp.zeros_like(x), cuzarr.xp.ones_like(x), cuzarr.xp.empty_like(x), cuzarr.xp.full_like(x, 3)]
            assert all((one.shape, one.dtype) == ((2, 3), np.dtype("int16")) for one in like)
            numbers = functools.reduce(operator.add, like[:2])
            np.testing.assert_array_equal(cuzarr.xp.asnumpy(numbers), np.ones((2, 3)))
            line = cuzarr.xp.linspace(0, 1, 5, device=device)
            np.testing.assert_array_equal(cuzarr.xp.asnumpy(line), np.linspace(0, 1, 5))
            back = cuzarr.xp.asarray(x, "float32", device="cpu")
            assert isinstance(back, np.ndarray) and back.dtype == "float32"
            z = cuzarr.array(np.arange(5), store={})
            np.testing.assert_array_equal(cuzarr.xp.asnumpy(cuzarr.xp.asarray(z, device=device)), np.arange(5))
            np.testing.assert_array_equal(cuzarr.xp.asnumpy(cuzarr.xp.arange(2, 9, 3, device=device)), [2, 5, 8])


REDUCTIONS = ["sum", "prod", "mean", "std", "var", "min", "max", "argmin", "argmax", "any", "all"]
NAN_TWINS = ["nansum", "nanprod", "nanmean", "nanstd", "nanvar", "nanmin", "nanmax", "nanargmin", "nanargmax"]


def moderate(dtype: str, seed: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    return random.normal(2, 3, shape).astype(dtype) if np.dtype(dtype).kind != "b" else random.random(shape) < 0.5


def check_reduction(name: str, x: np.ndarray[Any, Any], axis: Any, device: str, lazy: bool, **options: Any) -> None:
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, axis=axis, keepdims=True, **options)
        wide = x.astype("f8") if x.dtype.kind == "f" else x
        reference = getattr(np, name)(wide, axis=axis, keepdims=True, **options)
    source = (
        cuzarr.array(x, store={}, chunks=tuple(max(1, extent // 3) for extent in x.shape))
        if lazy
        else cuzarr.xp.asarray(x, device=device)
    )
    got = getattr(cuzarr.xp, name)(source, axis, keepdims=True, **options)
    if lazy:
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        got = got.compute(device=device, memory_limit="64 KiB")
    got = cuzarr.xp.asnumpy(got)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype), name
    if got.dtype.kind in "fc":
        # Made in float64 and rounded once: as the reference in float64.
        tolerance = 1e-12 if got.dtype.itemsize > 4 else 2 * np.finfo(got.dtype).eps
        np.testing.assert_allclose(got, reference, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", [*REDUCTIONS, *NAN_TWINS])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)], ids=str)
def test_reductions_are_numpys(name: str, axis: Any) -> None:
    if "arg" in name and isinstance(axis, tuple):
        with pytest.raises(cuzarr.errors.InvalidArgumentError):
            getattr(cuzarr.xp, name)(np.zeros((2, 3, 4)), axis)
        return
    dtypes = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"] if "nan" not in name else ["float32", "float64"]
    for dtype in dtypes:
        x = moderate(dtype, 3, (9, 20, 7))
        if name in ("prod", "nanprod"):
            x = x % 2 if x.dtype.kind in "iu" else x if x.dtype.kind == "b" else (np.abs(x) % 1 + 0.5)
        if "nan" in name:
            x[np.random.default_rng(1).random(x.shape) < 0.2] = np.nan
        for device in ["cpu", *filter(None, [gpu_device()[0] if gpu_device()[0] != "simt" else None])]:
            check_reduction(name, x, axis, device, lazy=False)
            check_reduction(name, x, axis, device, lazy=True)
            check_reduction(name, x[::2, :, ::-1].transpose(1, 0, 2), axis, device, lazy=False)


def test_numpys_functions_reduce_arrays_plans_and_what_is_in_memory() -> None:
    x = values("float64", 3).clip(-9, 9)
    x[np.isnan(x)] = 0
    z = cuzarr.create_array({}, data=x, chunks=(4, 9))
    names = ["sum", "prod", "mean", "std", "var", "min", "max", "argmin", "argmax", "any", "all", "median", "cumsum"]
    for function in (getattr(np, name) for name in names):
        for axis in (None, 1):
            np.testing.assert_allclose(function(z, axis=axis), function(x, axis=axis), rtol=1e-12)
    np.testing.assert_allclose(np.std(z, 0, ddof=1, keepdims=True), np.std(x, 0, ddof=1, keepdims=True))
    plan = np.mean(z + 1, axis=0)
    assert isinstance(plan, cuzarr.Expression) and np.allclose(plan.compute(), (x + 1).mean(0))
    # Sums of float32 depend on their order.
    for mean, source in ((np.mean(z, dtype="float32"), x), (np.mean(z + 1, dtype="float32").compute(), x + 1)):
        assert mean.dtype == np.float32
        np.testing.assert_allclose(mean, np.mean(source, dtype="float32"), rtol=1e-5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'wher'"):
        z.mean(wher=None)


@pytest.mark.parametrize("module", [cuzarr, cuzarr.xp])
def test_what_is_missing_of_numpy_is_cupys_business(module: Any) -> None:
    for name in ("heaviside", "interp"):
        with pytest.raises(AttributeError, match=f"no '{name}': use CuPy's"):
            getattr(module, name)
    with pytest.raises(AttributeError, match="no attribute 'sinn'"):
        module.sinn  # noqa: B018


def test_reductions_take_part_in_plans() -> None:
    x = moderate("float32", 8, (12, 30))
    z = cuzarr.array(x, store={}, chunks=(5, 8))
    expected = (x - x.mean(axis=0, dtype="f8").astype("f4")) / x.std(axis=0, dtype="f8").astype("f4")
    plan = (z - z.mean(axis=0)) / z.std(axis=0)
    np.testing.assert_allclose(plan.compute(memory_limit="8 KiB"), expected, rtol=1e-6, atol=1e-7)
    target = cuzarr.create_array({}, shape=(30,), chunks=(7,), dtype="float64")
    z.max(axis=0).store(target)
    np.testing.assert_array_equal(target[...], x.max(axis=0))
    np.testing.assert_array_equal(z.max(axis=0)[3:6], x.max(axis=0)[3:6])
    assert repr(z.mean(axis=0)) == "<Expression mean(array, axis=[0]) shape=(30,) dtype=float32>"
    assert float(z.var(ddof=1).compute()) == pytest.approx(x.var(ddof=1, dtype="f8"), rel=1e-6)
    assert z.sum().compute() == z.sum().compute(memory_limit="1 GiB")


def test_reductions_of_nothing_and_of_nan() -> None:
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="no elements"):
        cuzarr.xp.min(np.zeros((0, 3)))
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="nothing but NaN"):
        cuzarr.xp.nanargmin(np.array([np.nan, np.nan]))
    assert np.isnan(cuzarr.xp.nanmin(np.array([np.nan, np.nan])))
    np.testing.assert_array_equal(cuzarr.xp.sum(np.zeros((0, 3)), 0), np.zeros(3))
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="axis 3"):
        cuzarr.xp.sum(np.zeros((2, 3)), 3)
    np.testing.assert_allclose(cuzarr.xp.sum(np.array([1 + 2j, 3 - 1j])), 4 + 1j)
    assert cuzarr.xp.count_nonzero(np.array([0, 3, 0, 1])) == 2


def test_a_variance_far_from_zero_keeps_its_digits() -> None:
    x = 1e9 + np.tile([4.0, 7.0, 13.0, 16.0], 30_000)
    assert cuzarr.xp.var(x) == pytest.approx(22.5, rel=1e-12)
    assert cuzarr.array(x, store={}, chunks=1000).var().compute(memory_limit="100 KiB") == pytest.approx(22.5, rel=1e-12)


def test_reductions_of_device_arrays() -> None:
    device = require()
    a = moderate("float32", 9, (70, 33))
    with cuzarr.config.set({"array_type": "device"}):
        x = cuzarr.DeviceArray.from_host(a, device)
        rows = x.sum(axis=1)
        assert isinstance(rows, cuzarr.DeviceArray)
        np.testing.assert_array_equal(rows.cpu(), a.sum(axis=1, dtype="f8").astype("f4"))
        assert int(x.argmax()) == a.argmax() and bool((x == x).all()) and not (x == 0).any()


def test_arrays_in_stores_are_converted_like_plans() -> None:
    array = cuzarr.array(np.array([1.5, -2.5, 300.0]), store={}, chunks=2)
    plan = cuzarr.xp.astype(array, "int16")
    assert isinstance(plan, cuzarr.Expression) and plan.dtype == np.int16
    assert plan.compute().tolist() == [1, -2, 300]
    assert cuzarr.xp.astype(np.arange(2), "float32").dtype == np.float32

"""Random computations: what they are made of, and how cuzarr is compared with NumPy.

A computation is a tree of functions over small arrays. It runs three times: by NumPy, by cuzarr over the same arrays in memory, and
by cuzarr over arrays in stores and views of them. Type, shape and elements must agree bit for bit. Functions that round (sums of
floats, sines) only stand at the top of a tree, and agree to a stated tolerance. What NumPy refuses, cuzarr must refuse.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cuzarr

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (5,), (17,), (3, 4), (1, 4), (3, 1), (0, 4), (3, 0), (2, 3, 4), (2, 1, 4)]
NUMBERS = [0, 1, 2, 3, -1, -3, 7, 100, 1.0, 0.5, -2.5, 2j, True]

UNARY = [
    "negative", "absolute", "sign", "square", "conjugate", "real", "imag", "sqrt", "floor", "ceil", "trunc", "rint", "isnan", "isinf",
    "isfinite", "signbit", "logical_not", "invert", "positive", "reciprocal",
]  # fmt: skip
BINARY = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "minimum", "maximum", "fmin", "fmax", "copysign",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and",
    "bitwise_or", "bitwise_xor", "left_shift", "right_shift",
]  # fmt: skip
ROUNDING = [
    "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh",
    "tanh", "arcsinh", "arccosh", "arctanh",
]  # fmt: skip
ROUNDING_OF_TWO = ["hypot", "arctan2", "power", "logaddexp"]
EXACT_REDUCTIONS = ["min", "max", "argmin", "argmax", "any", "all", "count_nonzero", "nanmin", "nanmax", "nanargmin", "nanargmax"]
SUMS = ["sum", "prod", "mean", "std", "var", "nansum", "nanprod", "nanmean", "nanstd", "nanvar"]
# Kinds of errors by which cuzarr says that it has no such function, or not of such elements: NumPy may have it.
LACKING = (cuzarr.errors.UnsupportedError, cuzarr.errors.DTypeMismatchError)
# What cuzarr refuses by name where NumPy has a rule of its own: NaN as the median of nothing, and an axis of no dimensions.
REFUSED = ("of no elements have no meaning", "out of range for an array of 0 dimensions")


@dataclass
class Computation:
    """A tree of functions.

    ``run`` takes a namespace of functions, NumPy or ``cuzarr.xp``, and the arrays. ``tolerance`` is in units of the last place of
    the largest magnitude that takes part, times the number of elements; 0 for results that agree bit for bit.
    """

    text: str
    run: Callable[[Any, list[Any]], Any]
    arrays: list[np.ndarray[Any, Any]] = field(default_factory=list)
    tolerance: float = 0


def an_array(choose: random.Random, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> np.ndarray[Any, Any]:
    """Elements of a type: small ones, the ends of the type, NaN and infinities."""
    shape = choose.choice(SHAPES) if shape is None else shape
    kind = np.dtype(choose.choice(DTYPES) if dtype is None else dtype)
    values: list[Any]
    if kind.kind == "b":
        values = [True, False]
    elif kind.kind in "iu":
        ends = np.iinfo(kind)
        values = [0, 1, 2, 3, 5, 7, 10, 100, *([ends.min, ends.max, ends.max - 1] if choose.random() < 0.3 else [])]
        values += [-1, -2, -7] if kind.kind == "i" else []
    else:
        values = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.25, 7.0, 100.0, 1 / 3]
        values += [np.nan, np.inf, -np.inf] if choose.random() < 0.3 else [np.nan] if choose.random() < 0.3 else []
        values = [value * choose.choice([1, 1j, 1 + 2j]) for value in values] if kind.kind == "c" else values
    count = int(np.prod(shape))
    with np.errstate(all="ignore"):
        return np.array([choose.choice(values) for _ in range(count)], object).astype(kind).reshape(shape)


def an_axis(choose: random.Random, ndim: int, *, many: bool = True) -> Any:
    """A dimension, several, or none; now and then one that is not there."""
    if choose.random() < 0.3:
        return None
    if many and ndim > 1 and choose.random() < 0.3:
        return tuple(choose.sample(range(ndim), choose.randint(0, ndim)))
    return choose.randint(-ndim, ndim - 1) if ndim and choose.random() < 0.97 else choose.choice([ndim, -ndim - 1])


def _of_arrays(choose: random.Random, arrays: list[np.ndarray[Any, Any]]) -> Computation:
    """An operand: an array, or a number of Python's."""
    if arrays and choose.random() < 0.35:
        array = choose.choice(arrays)
    else:
        shapes = [shape for shape in SHAPES if not arrays or _fit(shape, arrays[0].shape)]
        array = an_array(choose, choose.choice(shapes))
        arrays.append(array)
    number = next(place for place, one in enumerate(arrays) if one is array)
    return Computation(f"a{number}", lambda xp, given: given[number], arrays)


def _fit(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(shape, other)
    except ValueError:
        return False
    return True


def _applied(name: str, operands: list[Computation], arrays: list[np.ndarray[Any, Any]], **options: Any) -> Computation:
    said = [*(one.text for one in operands), *(f"{option}={value!r}" for option, value in options.items())]

    def run(xp: Any, given: list[Any]) -> Any:
        return getattr(xp, name)(*(one.run(xp, given) for one in operands), **options)

    return Computation(f"{name}({', '.join(said)})", run, arrays)


def a_tree(choose: random.Random, arrays: list[np.ndarray[Any, Any]], depth: int) -> Computation:
    """A computation whose results agree bit for bit."""
    if depth == 0:
        return _of_arrays(choose, arrays)
    kind = choose.random()
    inner = a_tree(choose, arrays, depth - 1)
    if kind < 0.25:
        return _applied(choose.choice(UNARY), [inner], arrays)
    if kind < 0.65:
        other = a_tree(choose, arrays, choose.randint(0, depth - 1))
        if choose.random() < 0.3:
            number = choose.choice(NUMBERS)
            other = Computation(repr(number), lambda xp, given: number, arrays)
        operands = [inner, other] if choose.random() < 0.7 else [other, inner]
        return _applied(choose.choice(BINARY), operands, arrays)
    if kind < 0.75:
        condition, other = (a_tree(choose, arrays, 0) for _ in range(2))
        return _applied("where", [condition, inner, other], arrays)
    if kind < 0.85:
        ends = sorted(choose.sample([-2, 0, 1, 3, 50], 2))
        return _applied("clip", [inner], arrays, min=choose.choice([None, ends[0]]), max=ends[1])
    if kind < 0.95:
        to = choose.choice(DTYPES)
        is_cast = Computation(f"astype({inner.text}, {to!r})", lambda xp, given: _cast(xp, inner.run(xp, given), to), arrays)
        return is_cast
    return _applied("round", [inner], arrays, decimals=choose.choice([0, -1, -2]))


def _cast(xp: Any, value: Any, to: str) -> Any:
    return np.asarray(value).astype(to) if xp is np else cuzarr.xp.astype(value, to)


def _shaped(choose: random.Random, inner: Computation, arrays: list[np.ndarray[Any, Any]]) -> Computation:
    """A function of shapes over a tree."""
    ndim = max((array.ndim for array in arrays), default=0)
    name = choose.choice(["concatenate", "stack", "diff", "flip", "squeeze", "expand_dims", "cumsum", "cumprod", "moveaxis"])
    if name in ("concatenate", "stack"):
        axis = choose.choice([None, *range(-ndim, ndim + 1)]) if name == "concatenate" else choose.randint(-ndim - 1, ndim)

        def join(xp: Any, given: list[Any]) -> Any:
            value = inner.run(xp, given)
            return getattr(xp, name)([value, given[0], value], axis=axis)

        return Computation(f"{name}([{inner.text}, a0, …], axis={axis})", join, arrays)
    if name == "moveaxis":
        ends = (choose.randint(-ndim, max(ndim - 1, 0)) for _ in range(2))
        return _applied(name, [inner], arrays, source=next(ends), destination=next(ends))
    options: dict[str, Any] = {"axis": an_axis(choose, ndim, many=name in ("flip", "squeeze"))}
    if name == "expand_dims":
        options = {"axis": choose.randint(-ndim - 1, ndim)}
    if name == "diff":
        options = {"n": choose.randint(0, 3), "axis": choose.randint(-max(ndim, 1), max(ndim - 1, 0))}
    top = _applied(name, [inner], arrays, **options)
    top.tolerance = 16 if name.startswith("cum") else 0
    return top


def a_computation(choose: random.Random) -> Computation:
    """A computation of any kind."""
    arrays = [an_array(choose)]
    inner = a_tree(choose, arrays, choose.randint(0, 2))
    ndim = max(array.ndim for array in arrays)
    kind = choose.random()
    if kind < 0.35:
        return inner
    if kind < 0.5:
        return _shaped(choose, inner, arrays)
    if kind < 0.6:
        name = choose.choice(ROUNDING + ROUNDING_OF_TWO)
        operands = [inner] if name in ROUNDING else [inner, a_tree(choose, arrays, 0)]
        top = _applied(name, operands, arrays)
        top.tolerance = 8
        return top
    if kind < 0.75:
        name = choose.choice(EXACT_REDUCTIONS)
        options = {"axis": an_axis(choose, ndim, many="arg" not in name), "keepdims": choose.random() < 0.3}
        return _applied(name, [inner], arrays, **options)
    if kind < 0.92:
        name = choose.choice(SUMS)
        options = {"axis": an_axis(choose, ndim), "keepdims": choose.random() < 0.3}
        if name.endswith(("std", "var")) and choose.random() < 0.5:
            options["ddof"] = choose.choice([0, 1, 2, 1.5, 5])
        top = _applied(name, [inner], arrays, **options)
        top.tolerance = 16
        return top
    if kind < 0.96:
        name = choose.choice(["median", "nanmedian"])
        top = _applied(name, [inner], arrays, axis=an_axis(choose, ndim), keepdims=choose.random() < 0.3)
        top.tolerance = 4
        return top
    weights = an_array(choose, arrays[0].shape, choose.choice(["i4", "f4", "f8"]))
    arrays.append(weights)
    place = len(arrays) - 1
    axis = an_axis(choose, ndim)
    text = f"average({inner.text}, axis={axis}, weights=a{place})"
    return Computation(text, lambda xp, given: xp.average(inner.run(xp, given), axis=axis, weights=given[place]), arrays, 64)


# ---------------------------------------------------------------------------------------------- the three ways


def stored(choose: random.Random, array: np.ndarray[Any, Any]) -> Any:
    """The array in a store, or a view of a larger one: turned, backwards, with gaps."""
    turned = choose.random() < 0.2 and array.ndim > 1
    source = array.transpose() if turned else array
    steps = [choose.choice([1, 1, 1, 2, -1]) for _ in source.shape]
    whole = source
    is_view = choose.random() < 0.4 and source.ndim > 0
    if is_view:
        larger = tuple(extent * abs(step) + 2 for extent, step in zip(source.shape, steps, strict=True))
        whole = np.ones(larger, source.dtype)
    chunks = tuple(choose.randint(1, max(extent, 1)) for extent in whole.shape)
    z = cuzarr.create_array({}, shape=whole.shape, chunks=chunks, dtype=whole.dtype, compressors=None)
    if not is_view:
        z[...] = whole
        return z.lazy.transpose() if turned else z
    ahead = tuple(slice(1, 1 + extent * abs(step), abs(step)) for extent, step in zip(source.shape, steps, strict=True))
    back = tuple(slice(None, None, -1) if step < 0 else slice(None) for step in steps)
    whole[ahead] = source[back]
    z[...] = whole
    view = z.lazy[ahead][back]
    return view.transpose() if turned else view


def _value(result: Any) -> Any:
    return result.compute() if hasattr(result, "compute") else result


@dataclass
class Outcome:
    """What a computation gives: its elements, or the error that it raises. ``is_undefined`` is set where NumPy converts floats to whole
    numbers that cannot hold them: its own results differ with the length of the array."""

    result: Any
    is_undefined: bool = False


def outcome(run: Callable[[], Any]) -> Outcome:
    """Runs a computation."""
    with warnings.catch_warnings(record=True) as told, np.errstate(all="ignore", invalid="warn"):
        warnings.simplefilter("always")
        try:
            result = np.asarray(_value(run()))
        except Exception as error:  # noqa: BLE001, each library has its own
            return Outcome(error)
    return Outcome(result, any("encountered in cast" in str(one.message) for one in told))


def difference(ours: Outcome, theirs: Outcome, computation: Computation) -> str | None:
    """How an outcome of cuzarr differs from NumPy's; ``None`` where it may."""
    found, expected = ours.result, theirs.result
    if isinstance(expected, Exception):
        if isinstance(found, Exception):
            return None if isinstance(found, cuzarr.errors.CuzarrError | ZeroDivisionError | TypeError) else f"raises {found!r}"
        if isinstance(expected, ZeroDivisionError) and not np.all(np.isfinite(found)):
            return None  # a plan of weights that are yet to be read
        return f"gives {found!r}, where NumPy raises {expected!r}"
    if isinstance(found, Exception):
        is_refused = isinstance(found, LACKING) or any(reason in str(found) for reason in REFUSED)
        return None if is_refused else f"raises {type(found).__name__}: {found}"
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return f"gives {found.dtype} {found.shape}, NumPy {expected.dtype} {expected.shape}"
    if theirs.is_undefined or _are_equal(found, expected, computation):
        return None
    return f"gives {found.tolist()}, NumPy {expected.tolist()}"


def _are_equal(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], computation: Computation) -> bool:
    if found.dtype.kind in "fc":
        same = (found == expected) & (_signs(found) == _signs(expected)) | (np.isnan(found) & np.isnan(expected))
    else:
        same = found == expected
    if np.all(same) or not computation.tolerance or found.dtype.kind not in "fc":
        return bool(np.all(same))
    with np.errstate(all="ignore"):
        wide = "c16" if found.dtype.kind == "c" else "f8"
        ours, theirs = found.astype(wide), expected.astype(wide)
        magnitudes = [np.abs(array.astype("c16")) for array in computation.arrays]
        finite = [float(np.max(one, initial=1, where=np.isfinite(one))) for one in (*magnitudes, np.abs(theirs))]
        elements = max(array.size for array in computation.arrays)
        scale = np.abs(theirs) + (max(finite) ** 2 * elements if computation.tolerance > 8 else 0)
        near = np.abs(ours - theirs) <= computation.tolerance * float(np.finfo(found.dtype).eps) * scale
        beyond = ~np.isfinite(theirs) | ~np.isfinite(ours)  # where a shorter type overflows on the way
    # NumPy divides infinite complex sums as complex numbers, which gives NaN for a part that is 0.
    is_free = computation.tolerance > 8 and (found.dtype.kind == "c" or found.dtype.itemsize <= 4)
    return bool(np.all(same | near | (beyond & is_free)))


def _signs(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The signs of real numbers; those of zeros in complex products depend on the order of operations."""
    return np.signbit(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)


def check(seed: int) -> str | None:
    """Runs the computation of a seed, and says how its outcomes differ."""
    choose = random.Random(seed)
    computation = a_computation(choose)
    expected = outcome(lambda: computation.run(np, computation.arrays))
    in_stores = [stored(choose, array) for array in computation.arrays]
    for place, arrays in (("memory", computation.arrays), ("stores", in_stores)):
        wrong = difference(outcome(lambda arrays=arrays: computation.run(cuzarr.xp, arrays)), expected, computation)
        if wrong is not None:
            given = ", ".join(f"a{n}: {one.dtype} {one.tolist()}" for n, one in enumerate(computation.arrays))
            return f"seed {seed}: {computation.text} in {place} {wrong}; {given}"
    return None

"""Functions of elements, with NumPy's names, types and broadcasting.

They take arrays of any library where they are (NumPy, CuPy, PyTorch, :class:`cuzarr.DeviceArray`) and compute at once; given
an array in a store, or a plan made of one, they give a plan (:class:`cuzarr.Expression`).

>>> import cuzarr, numpy as np
>>> cuzarr.sqrt(np.array([1.0, 4.0]))
array([1., 2.])
>>> z = cuzarr.array(np.arange(4.0), store={}, chunks=2)
>>> y = cuzarr.sin(z) + 1
>>> y
<Expression (sin(/) + 1) shape=(4,) dtype=float64>
>>> y.compute()
array([1.        , 1.84147098, 1.90929743, 1.14112001])
"""

from __future__ import annotations

import builtins
import inspect
from typing import Any, ClassVar, overload

import numpy as np

from cuzarr import _names
from cuzarr._checks import element_type, whole
from cuzarr._compute.evaluate import apply, plan
from cuzarr._compute.expression import Expression
from cuzarr._memory.foreign import host_array
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import OutOfRangeError

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "asin", "asinh", "astype", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "cbrt", "ceil", "clip", "conj", "conjugate", "copysign", "cos",
    "cosh", "divide", "equal", "exp", "exp2", "expm1", "floor", "floor_divide", "fmax", "fmin", "fmod", "greater",
    "greater_equal", "hypot", "imag", "invert", "isfinite", "isinf", "isnan", "left_shift", "less", "less_equal", "log",
    "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum",
    "mod", "multiply", "negative", "not_equal", "pow", "power", "real", "remainder", "right_shift", "rint",
    "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "true_divide", "trunc",
    "where",
]  # fmt: skip


class Function:
    """One function of elements. In memory they are computed at once; of arrays in stores, and of plans, it makes a plan."""

    _operands: ClassVar[tuple[str, ...]]

    def __init__(self, name: str, meaning: str) -> None:
        self.__name__ = name
        self.__doc__ = meaning
        self.__signature__: inspect.Signature = inspect.Signature([inspect.Parameter(one, _POSITIONAL) for one in self._operands])

    def _apply(self, operands: tuple[Any, ...]) -> Any:
        if len(operands) != len(self._operands):
            raise TypeError(f"{self.__name__} takes {len(self._operands)} operands, got {len(operands)}")
        return apply(self.__name__, *operands)

    def __reduce__(self) -> str:
        return self.__name__  # pickled by its name

    def __repr__(self) -> str:
        return f"<cuzarr.{self.__name__}>"


_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY


class Unary(Function):
    """A function of one operand."""

    _operands = ("x",)

    @overload
    def __call__(self, x: Lazy, /) -> Expression: ...
    @overload
    def __call__(self, x: Any, /) -> Any: ...
    def __call__(self, *operands: Any) -> Any:
        return self._apply(operands)


class Binary(Function):
    """A function of two operands, which are broadcast."""

    _operands = ("x1", "x2")

    @overload
    def __call__(self, x1: Lazy, x2: Any, /) -> Expression: ...
    @overload
    def __call__(self, x1: Any, x2: Lazy, /) -> Expression: ...
    @overload
    def __call__(self, x1: Any, x2: Any, /) -> Any: ...
    def __call__(self, *operands: Any) -> Any:
        return self._apply(operands)


class Ternary(Function):
    """A function of a condition and two operands, which are broadcast."""

    _operands = ("condition", "x", "y")

    @overload
    def __call__(self, condition: Lazy, x: Any, y: Any, /) -> Expression: ...
    @overload
    def __call__(self, condition: Any, x: Lazy, y: Any, /) -> Expression: ...
    @overload
    def __call__(self, condition: Any, x: Any, y: Lazy, /) -> Expression: ...
    @overload
    def __call__(self, condition: Any, x: Any, y: Any, /) -> Any: ...
    def __call__(self, *operands: Any) -> Any:
        return self._apply(operands)


add: Binary = Binary("add", "The sum; of bools, whether one is true.")
subtract: Binary = Binary("subtract", "The difference.")
multiply: Binary = Binary("multiply", "The product; of bools, whether both are true.")
divide: Binary = Binary("divide", "The quotient; of whole numbers, in float64.")
true_divide: Binary = divide
floor_divide: Binary = Binary("floor_divide", "The quotient, rounded down; 0 where whole numbers are divided by 0.")
remainder: Binary = Binary("remainder", "What the rounded-down quotient leaves: it has the divisor's sign.")
mod: Binary = remainder
fmod: Binary = Binary("fmod", "What the truncated quotient leaves: it has the dividend's sign.")
power: Binary = Binary("power", "The power; whole numbers to negative ones are refused.")
pow: Binary = power
minimum: Binary = Binary("minimum", "The smaller one; NaN where one is NaN.")
maximum: Binary = Binary("maximum", "The larger one; NaN where one is NaN.")
fmin: Binary = Binary("fmin", "The smaller one that is not NaN.")
fmax: Binary = Binary("fmax", "The larger one that is not NaN.")
arctan2: Binary = Binary("arctan2", "The angle of the point (second, first).")
atan2: Binary = arctan2
hypot: Binary = Binary("hypot", "The hypotenuse.")
copysign: Binary = Binary("copysign", "The first with the sign of the second.")
equal: Binary = Binary("equal", "Whether elements are equal.")
not_equal: Binary = Binary("not_equal", "Whether elements differ.")
less: Binary = Binary("less", "Whether the first is below the second.")
less_equal: Binary = Binary("less_equal", "Whether the first is not above the second.")
greater: Binary = Binary("greater", "Whether the first is above the second.")
greater_equal: Binary = Binary("greater_equal", "Whether the first is not below the second.")
logical_and: Binary = Binary("logical_and", "Whether both are true.")
logical_or: Binary = Binary("logical_or", "Whether one is true.")
logical_xor: Binary = Binary("logical_xor", "Whether exactly one is true.")
bitwise_and: Binary = Binary("bitwise_and", "Bits that both have.")
bitwise_or: Binary = Binary("bitwise_or", "Bits that one has.")
bitwise_xor: Binary = Binary("bitwise_xor", "Bits that exactly one has.")
left_shift: Binary = Binary("left_shift", "Bits moved up; 0 beyond the type's width.")
bitwise_left_shift: Binary = left_shift
right_shift: Binary = Binary("right_shift", "Bits moved down; only the sign beyond the type's width.")
bitwise_right_shift: Binary = right_shift

negative: Unary = Unary("negative", "The number with the other sign.")
absolute: Unary = Unary("absolute", "The magnitude.")
abs: Unary = absolute
sign: Unary = Unary("sign", "-1, 0 or 1; NaN of NaN.")
square: Unary = Unary("square", "The number times itself.")
conjugate: Unary = Unary("conjugate", "The complex conjugate.")
conj: Unary = conjugate
real: Unary = Unary("real", "The real part.")
imag: Unary = Unary("imag", "The imaginary part.")
sqrt: Unary = Unary("sqrt", "The square root.")
cbrt: Unary = Unary("cbrt", "The cube root.")
exp: Unary = Unary("exp", "e to the power x.")
exp2: Unary = Unary("exp2", "2 to the power x.")
expm1: Unary = Unary("expm1", "e to the power x, minus 1.")
log: Unary = Unary("log", "The natural logarithm.")
log2: Unary = Unary("log2", "The logarithm to the base 2.")
log10: Unary = Unary("log10", "The logarithm to the base 10.")
log1p: Unary = Unary("log1p", "The natural logarithm of 1 + x.")
sin: Unary = Unary("sin", "The sine.")
cos: Unary = Unary("cos", "The cosine.")
tan: Unary = Unary("tan", "The tangent.")
arcsin: Unary = Unary("arcsin", "The inverse sine.")
asin: Unary = arcsin
arccos: Unary = Unary("arccos", "The inverse cosine.")
acos: Unary = arccos
arctan: Unary = Unary("arctan", "The inverse tangent.")
atan: Unary = arctan
sinh: Unary = Unary("sinh", "The hyperbolic sine.")
cosh: Unary = Unary("cosh", "The hyperbolic cosine.")
tanh: Unary = Unary("tanh", "The hyperbolic tangent.")
arcsinh: Unary = Unary("arcsinh", "The inverse hyperbolic sine.")
asinh: Unary = arcsinh
arccosh: Unary = Unary("arccosh", "The inverse hyperbolic cosine.")
acosh: Unary = arccosh
arctanh: Unary = Unary("arctanh", "The inverse hyperbolic tangent.")
atanh: Unary = arctanh
floor: Unary = Unary("floor", "Rounded down.")
ceil: Unary = Unary("ceil", "Rounded up.")
trunc: Unary = Unary("trunc", "Rounded towards 0.")
rint: Unary = Unary("rint", "Rounded to the nearest whole number, ties to even.")
isnan: Unary = Unary("isnan", "Whether it is NaN.")
isinf: Unary = Unary("isinf", "Whether it is infinite.")
isfinite: Unary = Unary("isfinite", "Whether it is neither infinite nor NaN.")
signbit: Unary = Unary("signbit", "Whether the sign bit is set.")
logical_not: Unary = Unary("logical_not", "Whether it is not true.")
invert: Unary = Unary("invert", "Every bit turned over.")
bitwise_invert: Unary = invert

where: Ternary = Ternary("where", "The second operand where the first is true, else the third.")


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Limited to ``min`` and ``max``, each of which may be ``None``. Python's numbers beyond the element type limit nothing."""
    min, max = _within(x, min, max)
    if min is None and max is None:
        return x.copy() if hasattr(x, "copy") else x  # a plan is none, an array in memory is not to be shared
    limited = x if min is None else maximum(x, min)
    return limited if max is None else minimum(limited, max)


def _within(x: Any, min: Any, max: Any) -> tuple[Any, Any]:
    # As NumPy: a bound of Python's that no element can pass is none, where a sum with it would be refused.
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        min = None if type(min) is int and min <= bounds.min else min
        max = None if type(max) is int and max >= bounds.max else max
    return min, max


def round(x: Any, decimals: int = 0) -> Any:
    """Rounded to so many decimals, ties to even, as ``numpy.round`` does it.

    Whole numbers are themselves; to tens and hundreds (negative ``decimals``) only floats are rounded.
    """
    decimals = whole(decimals, "decimals")
    if not -308 <= decimals <= 308:
        raise OutOfRangeError(f"decimals is {decimals}, expected -308 to 308")
    is_whole = isinstance(x, int) or getattr(getattr(x, "dtype", None), "kind", "f") in "biu"
    if is_whole and decimals >= 0:
        return trunc(x)
    if decimals == 0:
        return rint(x)
    scale = 10.0 ** builtins.abs(decimals)
    return divide(rint(multiply(x, scale)), scale) if decimals > 0 else multiply(rint(divide(x, scale)), scale)


def astype(x: Any, dtype: Any) -> Any:
    """Elements converted to another type, as NumPy's ``astype`` does it."""
    wanted = element_type(dtype)
    return plan(x).astype(wanted) if hasattr(x, "dtype") else host_array(x, "astype", wanted)


_names.list_public(globals())

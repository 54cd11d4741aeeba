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
from typing import Any

import numpy as np

from cuzarr._checks import element_type, whole
from cuzarr._compute.evaluate import apply, plan
from cuzarr._memory.foreign import host_array
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
    """One function of elements."""

    def __init__(self, name: str, operands: int, meaning: str) -> None:
        self.__name__ = name
        self.__doc__ = meaning
        self._operands = operands

    def __call__(self, *operands: Any) -> Any:
        if len(operands) != self._operands:
            raise TypeError(f"{self.__name__} takes {self._operands} operands, got {len(operands)}")
        return apply(self.__name__, *operands)

    def __reduce__(self) -> str:
        return self.__name__  # pickled by its name

    def __repr__(self) -> str:
        return f"<cuzarr.{self.__name__}>"


def _unary(name: str, meaning: str) -> Function:
    return Function(name, 1, meaning)


def _binary(name: str, meaning: str) -> Function:
    return Function(name, 2, meaning)


add = _binary("add", "The sum; of bools, whether one is true.")
subtract = _binary("subtract", "The difference.")
multiply = _binary("multiply", "The product; of bools, whether both are true.")
divide = true_divide = _binary("divide", "The quotient; of whole numbers, in float64.")
floor_divide = _binary("floor_divide", "The quotient, rounded down; 0 where whole numbers are divided by 0.")
remainder = mod = _binary("remainder", "What the rounded-down quotient leaves: it has the divisor's sign.")
fmod = _binary("fmod", "What the truncated quotient leaves: it has the dividend's sign.")
power = pow = _binary("power", "The power; whole numbers to negative ones are refused.")
minimum = _binary("minimum", "The smaller one; NaN where one is NaN.")
maximum = _binary("maximum", "The larger one; NaN where one is NaN.")
fmin = _binary("fmin", "The smaller one that is not NaN.")
fmax = _binary("fmax", "The larger one that is not NaN.")
arctan2 = atan2 = _binary("arctan2", "The angle of the point (second, first).")
hypot = _binary("hypot", "The hypotenuse.")
copysign = _binary("copysign", "The first with the sign of the second.")
equal = _binary("equal", "Whether elements are equal.")
not_equal = _binary("not_equal", "Whether elements differ.")
less = _binary("less", "Whether the first is below the second.")
less_equal = _binary("less_equal", "Whether the first is not above the second.")
greater = _binary("greater", "Whether the first is above the second.")
greater_equal = _binary("greater_equal", "Whether the first is not below the second.")
logical_and = _binary("logical_and", "Whether both are true.")
logical_or = _binary("logical_or", "Whether one is true.")
logical_xor = _binary("logical_xor", "Whether exactly one is true.")
bitwise_and = _binary("bitwise_and", "Bits that both have.")
bitwise_or = _binary("bitwise_or", "Bits that one has.")
bitwise_xor = _binary("bitwise_xor", "Bits that exactly one has.")
left_shift = bitwise_left_shift = _binary("left_shift", "Bits moved up; 0 beyond the type's width.")
right_shift = bitwise_right_shift = _binary("right_shift", "Bits moved down; only the sign beyond the type's width.")

negative = _unary("negative", "The number with the other sign.")
absolute = abs = _unary("absolute", "The magnitude.")
sign = _unary("sign", "-1, 0 or 1; NaN of NaN.")
square = _unary("square", "The number times itself.")
conjugate = conj = _unary("conjugate", "The complex conjugate.")
real = _unary("real", "The real part.")
imag = _unary("imag", "The imaginary part.")
sqrt = _unary("sqrt", "The square root.")
cbrt = _unary("cbrt", "The cube root.")
exp = _unary("exp", "e to the power x.")
exp2 = _unary("exp2", "2 to the power x.")
expm1 = _unary("expm1", "e to the power x, minus 1.")
log = _unary("log", "The natural logarithm.")
log2 = _unary("log2", "The logarithm to the base 2.")
log10 = _unary("log10", "The logarithm to the base 10.")
log1p = _unary("log1p", "The natural logarithm of 1 + x.")
sin = _unary("sin", "The sine.")
cos = _unary("cos", "The cosine.")
tan = _unary("tan", "The tangent.")
arcsin = asin = _unary("arcsin", "The inverse sine.")
arccos = acos = _unary("arccos", "The inverse cosine.")
arctan = atan = _unary("arctan", "The inverse tangent.")
sinh = _unary("sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
tanh = _unary("tanh", "The hyperbolic tangent.")
arcsinh = asinh = _unary("arcsinh", "The inverse hyperbolic sine.")
arccosh = acosh = _unary("arccosh", "The inverse hyperbolic cosine.")
arctanh = atanh = _unary("arctanh", "The inverse hyperbolic tangent.")
floor = _unary("floor", "Rounded down.")
ceil = _unary("ceil", "Rounded up.")
trunc = _unary("trunc", "Rounded towards 0.")
rint = _unary("rint", "Rounded to the nearest whole number, ties to even.")
isnan = _unary("isnan", "Whether it is NaN.")
isinf = _unary("isinf", "Whether it is infinite.")
isfinite = _unary("isfinite", "Whether it is neither infinite nor NaN.")
signbit = _unary("signbit", "Whether the sign bit is set.")
logical_not = _unary("logical_not", "Whether it is not true.")
invert = bitwise_invert = _unary("invert", "Every bit turned over.")

where = Function("where", 3, "The second operand where the first is true, else the third.")


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

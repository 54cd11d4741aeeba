"""Functions that are applied to each element, with NumPy's names, types and broadcasting.

Arrays in memory, of any library (NumPy, CuPy, PyTorch, :class:`cuzarr.DeviceArray`), are computed at once on their device. For a
stored array, or a plan made from one, the result is a plan (:class:`cuzarr.Expression`).

>>> import cuzarr, numpy as np
>>> cuzarr.xp.sqrt(np.array([1.0, 4.0]))
array([1., 2.])
>>> z = cuzarr.array(np.arange(4.0), store={}, chunks=2)
>>> y = cuzarr.xp.sin(z) + 1
>>> y
<Expression (sin(array) + 1) shape=(4,) dtype=float64>
>>> y.compute()
array([1.        , 1.84147098, 1.90929743, 1.14112001])
"""

from __future__ import annotations

import builtins
import inspect
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np

from cuzarr import _names
from cuzarr._checks import element_type, whole
from cuzarr._compute.evaluate import apply, plan
from cuzarr._compute.expression import Expression
from cuzarr._memory.foreign import host_array
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import DTypeMismatchError, OutOfRangeError
from cuzarr.xp.arguments import planned
from cuzarr.xp.creation import asarray

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DTypeLike, HeldT, MemoryArray

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
    """A function that is applied to each element of arrays, such as ``sqrt`` or ``add``. It computes arrays in memory at once; for stored
    arrays and plans, it makes a plan."""

    _operands: ClassVar[tuple[str, ...]]

    def __init__(self, name: str, meaning: str, example: str, result: str) -> None:
        self.__name__ = name
        self.__doc__ = _documentation(name, meaning, self._operands, example, result)
        self.__signature__: inspect.Signature = inspect.Signature([inspect.Parameter(one, _POSITIONAL) for one in self._operands])

    def _apply(self, operands: tuple[Any, ...]) -> Any:
        if len(operands) != len(self._operands):
            raise TypeError(f"{self.__name__} takes {len(self._operands)} operands, got {len(operands)}")
        return apply(self.__name__, *operands)

    def __reduce__(self) -> str:
        return self.__name__  # pickled by name

    def __repr__(self) -> str:
        return f"<cuzarr.xp.{self.__name__}>"


_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY


def _documentation(name: str, meaning: str, operands: tuple[str, ...], example: str, result: str) -> str:
    """Makes the docstring of a function: its meaning, followed by the text that all functions share."""
    broadcast = " Shapes are broadcast." if len(operands) > 1 else ""
    return f"""{meaning}

Parameters
----------
{", ".join(operands)} : array or number
    Elements in memory of any device, an array in a store, or a plan.{broadcast}

Returns
-------
array or Expression
    An array on the device of the operands; a plan where one of them is an array in a store, or a plan.

Raises
------
DTypeMismatchError
    The elements have a type that the function is not defined for.
MemorySpaceError
    Operands in memory are on different devices.

Examples
--------
>>> import cuzarr, numpy as np
>>> cuzarr.xp.{name}({example})
{result}
"""


class Unary(Function):
    """A function, such as ``sqrt``, that is applied to each element of one operand."""

    _operands = ("x",)

    @overload
    def __call__(self, x: Lazy, /) -> Expression: ...
    @overload
    def __call__(self, x: HeldT, /) -> HeldT: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, x: ArrayLike, /) -> MemoryArray: ...
    def __call__(self, *operands: Any) -> Any:
        return self._apply(operands)


class Binary(Function):
    """A function, such as ``add``, that is applied to the elements of two operands, which are broadcast."""

    _operands = ("x1", "x2")

    @overload
    def __call__(self, x1: Lazy, x2: ArrayLike, /) -> Expression: ...
    @overload
    def __call__(self, x1: ArrayLike, x2: Lazy, /) -> Expression: ...
    @overload
    def __call__(self, x1: ArrayLike, x2: ArrayLike, /) -> MemoryArray: ...
    def __call__(self, *operands: Any) -> Any:
        return self._apply(operands)


class Ternary(Function):
    """A function, such as ``where``, that is applied to a condition and two operands, which are broadcast."""

    _operands = ("condition", "x", "y")

    @overload
    def __call__(self, condition: Lazy, x: ArrayLike, y: ArrayLike, /) -> Expression: ...
    @overload
    def __call__(self, condition: ArrayLike, x: Lazy, y: ArrayLike, /) -> Expression: ...
    @overload
    def __call__(self, condition: ArrayLike, x: ArrayLike, y: Lazy, /) -> Expression: ...
    @overload
    def __call__(self, condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> MemoryArray: ...
    def __call__(self, *operands: Any) -> Any:
        return self._apply(operands)


add: Binary = Binary(
    "add",
    "The sum of each pair of elements; of bools, whether one of them is true.",
    "np.array([1, 2]), np.array([10, 20])",
    "array([11, 22])",
)
subtract: Binary = Binary(
    "subtract", "The difference of each pair of elements.", "np.array([10, 20]), np.array([1, 2])", "array([ 9, 18])"
)
multiply: Binary = Binary(
    "multiply",
    "The product of each pair of elements; of bools, whether both are true.",
    "np.array([1, 2]), np.array([10, 20])",
    "array([10, 40])",
)
divide: Binary = Binary(
    "divide",
    "The quotient of each pair of elements; whole numbers are divided in float64.",
    "np.array([1, 3]), 2",
    "array([0.5, 1.5])",
)
true_divide: Binary = divide
floor_divide: Binary = Binary(
    "floor_divide",
    "The quotient of each pair, rounded down; 0 where whole numbers are divided by 0.",
    "np.array([7, -7]), 2",
    "array([ 3, -4])",
)
remainder: Binary = Binary(
    "remainder",
    "The remainder of the quotient rounded down; it has the sign of the divisor.",
    "np.array([7, -7]), 3",
    "array([1, 2])",
)
mod: Binary = remainder
fmod: Binary = Binary(
    "fmod", "The remainder of the truncated quotient; it has the sign of the dividend.", "np.array([7, -7]), 3", "array([ 1, -1])"
)
power: Binary = Binary(
    "power",
    "The first element to the power of the second; whole numbers to negative powers are refused.",
    "np.array([2, 3]), 2",
    "array([4, 9])",
)
pow: Binary = power
minimum: Binary = Binary(
    "minimum", "The smaller element of each pair; NaN where one of them is NaN.", "np.array([1, 5]), 3", "array([1, 3])"
)
maximum: Binary = Binary(
    "maximum", "The larger element of each pair; NaN where one of them is NaN.", "np.array([1, 5]), 3", "array([3, 5])"
)
fmin: Binary = Binary(
    "fmin", "The smaller element of each pair, not counting NaN.", "np.array([1, np.nan]), 3.0", "array([1., 3.])"
)
fmax: Binary = Binary(
    "fmax", "The larger element of each pair, not counting NaN.", "np.array([1, np.nan]), 3.0", "array([3., 3.])"
)
arctan2: Binary = Binary(
    "arctan2",
    "The angle, in radians, of the point whose ordinate is `x1` and whose abscissa is `x2`.",
    "np.array([0.0, 1.0]), 1.0",
    "array([0.        , 0.78539816])",
)
atan2: Binary = arctan2
hypot: Binary = Binary(
    "hypot", "The length of the hypotenuse over two sides.", "np.array([3.0, 5.0]), np.array([4.0, 12.0])", "array([ 5., 13.])"
)
copysign: Binary = Binary(
    "copysign", "The first element with the sign of the second.", "np.array([1.0, 2.0]), -1.0", "array([-1., -2.])"
)
equal: Binary = Binary("equal", "Whether the elements of each pair are equal.", "np.array([1, 2]), 2", "array([False,  True])")
not_equal: Binary = Binary(
    "not_equal", "Whether the elements of each pair differ.", "np.array([1, 2]), 2", "array([ True, False])"
)
less: Binary = Binary("less", "Whether the first element is below the second.", "np.array([1, 2]), 2", "array([ True, False])")
less_equal: Binary = Binary(
    "less_equal", "Whether the first element is not above the second.", "np.array([1, 3]), 2", "array([ True, False])"
)
greater: Binary = Binary(
    "greater", "Whether the first element is above the second.", "np.array([1, 3]), 2", "array([False,  True])"
)
greater_equal: Binary = Binary(
    "greater_equal", "Whether the first element is not below the second.", "np.array([1, 2]), 2", "array([False,  True])"
)
logical_and: Binary = Binary("logical_and", "Whether both elements are true.", "np.array([0, 2]), 1", "array([False,  True])")
logical_or: Binary = Binary("logical_or", "Whether one of the elements is true.", "np.array([0, 2]), 0", "array([False,  True])")
logical_xor: Binary = Binary(
    "logical_xor", "Whether exactly one of the elements is true.", "np.array([0, 2]), 1", "array([ True, False])"
)
bitwise_and: Binary = Binary("bitwise_and", "The bits that both elements have.", "np.array([6, 7]), 3", "array([2, 3])")
bitwise_or: Binary = Binary("bitwise_or", "The bits that one of the elements has.", "np.array([6, 8]), 3", "array([ 7, 11])")
bitwise_xor: Binary = Binary(
    "bitwise_xor", "The bits that exactly one of the elements has.", "np.array([6, 7]), 3", "array([5, 4])"
)
left_shift: Binary = Binary(
    "left_shift",
    "The bits of the first element, moved up by the second; 0 beyond the width of the type.",
    "np.array([1, 2]), 3",
    "array([ 8, 16])",
)
bitwise_left_shift: Binary = left_shift
right_shift: Binary = Binary(
    "right_shift",
    "The bits of the first element, moved down by the second; only the sign beyond the width of the type.",
    "np.array([16, 9]), 3",
    "array([2, 1])",
)
bitwise_right_shift: Binary = right_shift

negative: Unary = Unary("negative", "Each element with the other sign.", "np.array([1, -2])", "array([-1,  2])")
absolute: Unary = Unary("absolute", "The magnitude of each element.", "np.array([1, -2])", "array([1, 2])")
abs: Unary = absolute
sign: Unary = Unary("sign", "-1, 0 or 1 by the sign of each element; NaN of NaN.", "np.array([3, 0, -2])", "array([ 1,  0, -1])")
square: Unary = Unary("square", "Each element times itself.", "np.array([3, -2])", "array([9, 4])")
conjugate: Unary = Unary("conjugate", "The complex conjugate of each element.", "np.array([1 + 2j])", "array([1.-2.j])")
conj: Unary = conjugate
real: Unary = Unary("real", "The real part of each element.", "np.array([1 + 2j])", "array([1.])")
imag: Unary = Unary("imag", "The imaginary part of each element.", "np.array([1 + 2j])", "array([2.])")
sqrt: Unary = Unary("sqrt", "The square root of each element.", "np.array([1.0, 4.0])", "array([1., 2.])")
cbrt: Unary = Unary("cbrt", "The cube root of each element.", "np.array([1.0, 8.0])", "array([1., 2.])")
exp: Unary = Unary("exp", "e to the power of each element.", "np.array([0.0, 1.0])", "array([1.        , 2.71828183])")
exp2: Unary = Unary("exp2", "2 to the power of each element.", "np.array([0.0, 3.0])", "array([1., 8.])")
expm1: Unary = Unary(
    "expm1",
    "e to the power of each element, minus 1; exact digits near 0.",
    "np.array([0.0, 1.0])",
    "array([0.        , 1.71828183])",
)
log: Unary = Unary("log", "The natural logarithm of each element.", "np.array([1.0, 10.0])", "array([0.        , 2.30258509])")
log2: Unary = Unary("log2", "The logarithm to the base 2 of each element.", "np.array([1.0, 8.0])", "array([0., 3.])")
log10: Unary = Unary("log10", "The logarithm to the base 10 of each element.", "np.array([1.0, 100.0])", "array([0., 2.])")
log1p: Unary = Unary(
    "log1p",
    "The natural logarithm of 1 + each element; exact digits near 0.",
    "np.array([0.0, 1.0])",
    "array([0.        , 0.69314718])",
)
sin: Unary = Unary("sin", "The sine of each element, in radians.", "np.array([0.0, 1.0])", "array([0.        , 0.84147098])")
cos: Unary = Unary("cos", "The cosine of each element, in radians.", "np.array([0.0, 1.0])", "array([1.        , 0.54030231])")
tan: Unary = Unary("tan", "The tangent of each element, in radians.", "np.array([0.0, 1.0])", "array([0.        , 1.55740772])")
arcsin: Unary = Unary(
    "arcsin", "The inverse sine of each element, in radians.", "np.array([0.0, 1.0])", "array([0.        , 1.57079633])"
)
asin: Unary = arcsin
arccos: Unary = Unary(
    "arccos", "The inverse cosine of each element, in radians.", "np.array([0.0, 1.0])", "array([1.57079633, 0.        ])"
)
acos: Unary = arccos
arctan: Unary = Unary(
    "arctan", "The inverse tangent of each element, in radians.", "np.array([0.0, 1.0])", "array([0.        , 0.78539816])"
)
atan: Unary = arctan
sinh: Unary = Unary("sinh", "The hyperbolic sine of each element.", "np.array([0.0, 1.0])", "array([0.        , 1.17520119])")
cosh: Unary = Unary("cosh", "The hyperbolic cosine of each element.", "np.array([0.0, 1.0])", "array([1.        , 1.54308063])")
tanh: Unary = Unary("tanh", "The hyperbolic tangent of each element.", "np.array([0.0, 1.0])", "array([0.        , 0.76159416])")
arcsinh: Unary = Unary(
    "arcsinh", "The inverse hyperbolic sine of each element.", "np.array([0.0, 1.0])", "array([0.        , 0.88137359])"
)
asinh: Unary = arcsinh
arccosh: Unary = Unary(
    "arccosh", "The inverse hyperbolic cosine of each element.", "np.array([1.0, 2.0])", "array([0.       , 1.3169579])"
)
acosh: Unary = arccosh
arctanh: Unary = Unary(
    "arctanh", "The inverse hyperbolic tangent of each element.", "np.array([0.0, 0.5])", "array([0.        , 0.54930614])"
)
atanh: Unary = arctanh
floor: Unary = Unary("floor", "Each element, rounded down to a whole number.", "np.array([1.5, -1.5])", "array([ 1., -2.])")
ceil: Unary = Unary("ceil", "Each element, rounded up to a whole number.", "np.array([1.5, -1.5])", "array([ 2., -1.])")
trunc: Unary = Unary("trunc", "Each element, rounded towards 0 to a whole number.", "np.array([1.5, -1.5])", "array([ 1., -1.])")
rint: Unary = Unary(
    "rint", "Each element, rounded to the nearest whole number, ties to even.", "np.array([1.5, 2.5])", "array([2., 2.])"
)
isnan: Unary = Unary("isnan", "Whether each element is NaN.", "np.array([1.0, np.nan])", "array([False,  True])")
isinf: Unary = Unary("isinf", "Whether each element is infinite.", "np.array([1.0, np.inf])", "array([False,  True])")
isfinite: Unary = Unary(
    "isfinite", "Whether each element is neither infinite nor NaN.", "np.array([1.0, np.nan])", "array([ True, False])"
)
signbit: Unary = Unary(
    "signbit", "Whether the sign bit of each element is set.", "np.array([1.0, -0.0])", "array([False,  True])"
)
logical_not: Unary = Unary("logical_not", "Whether each element is not true.", "np.array([0, 2])", "array([ True, False])")
invert: Unary = Unary("invert", "Each element with every bit turned over.", "np.array([0, 1])", "array([-1, -2])")
bitwise_invert: Unary = invert

where: Ternary = Ternary(
    "where",
    "The element of `x` where the condition is true, else the element of `y`.",
    "np.array([True, False]), np.array([1, 2]), 0",
    "array([1, 0])",
)


@planned
def clip(x: Any, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Any:
    """Each element, limited to the range from ``min`` to ``max``. Limits of ``None``, or Python numbers beyond the element type, have no
    effect.

    Parameters
    ----------
    x : array or number
        Elements in memory of any device, an array in a store, or a plan.
    min, max : array, number or None
        The limits; ``None`` is no limit.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan if ``x`` is a stored array or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the function is not defined for.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.clip(np.array([1, 5, 9]), 2, 6)
    array([2, 5, 6])
    """
    min, max = _within(x, min, max)
    if min is None and max is None:
        return x.copy() if hasattr(x, "copy") else x  # the result must not share an array's memory; a plan has none
    limited = x if min is None else maximum(x, min)
    return limited if max is None else minimum(limited, max)


def _within(x: Any, min: Any, max: Any) -> tuple[Any, Any]:
    # NumPy ignores a limit that the element type cannot hold. Computing with such a number would be an error.
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        min = None if type(min) is int and min <= bounds.min else min
        max = None if type(max) is int and max >= bounds.max else max
    return min, max


@planned
def round(x: Any, decimals: int = 0) -> Any:
    """Each element, rounded to ``decimals`` digits. Halves go to the even digit, as in ``numpy.round``.

    Integers stay integers, also if they are rounded to tens and hundreds (negative ``decimals``).

    Parameters
    ----------
    x : array or number
        Elements in memory of any device, an array in a store, or a plan.
    decimals : int
        Number of digits to keep behind the decimal point.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan if ``x`` is a stored array or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the function is not defined for.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.round(np.array([1.234, 5.678]), 1)
    array([1.2, 5.7])
    """
    decimals = whole(decimals, "decimals")
    if not -308 <= decimals <= 308:
        raise OutOfRangeError(f"decimals is {decimals}, expected -308 to 308")
    kind = getattr(getattr(x, "dtype", None), "kind", "f")
    is_whole = type(x) is int or kind in "iu"
    if is_whole and decimals >= 0:
        return trunc(x)
    if decimals == 0:
        return rint(x)
    if kind == "b":
        raise DTypeMismatchError(f"round: bools have no digits, got decimals={decimals}", hint="convert with astype first")
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return divide(rint(multiply(x, scale)), scale)
    rounded = multiply(rint(divide(x, scale)), scale)
    # NumPy, too, rounds integers in float64, which holds the digits of most of them.
    return astype(rounded, getattr(x, "dtype", "int64")) if is_whole else rounded


@planned
def astype(x: Any, dtype: DTypeLike, *, copy: bool = True, device: str | None = None) -> Any:
    """Each element, converted to another type, like NumPy's ``astype``.

    Parameters
    ----------
    x : array or number
        Elements in memory of any device, an array in a store, or a plan.
    dtype : dtype-like
        The type of the result.
    copy : bool
        With ``False``, an array in memory that has the type already is returned without a copy.
    device : str, optional
        The device of the result; by default that of ``x``.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan if ``x`` is a stored array or a plan.

    Raises
    ------
    DTypeMismatchError
        There is no conversion between the types.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.astype(np.array([1.5, 2.5]), "int32")
    array([1, 2], dtype=int32)
    """
    wanted = element_type(dtype)
    if isinstance(x, Lazy):
        converted = plan(x).astype(wanted)
    elif not hasattr(x, "dtype"):
        converted = host_array(x, "astype", wanted)
    else:
        converted = x if not copy and x.dtype == wanted else x.astype(wanted)
    return converted if device is None else asarray(converted, device=device)


_names.list_public(globals())

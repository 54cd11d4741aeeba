"""Operators of everything that can be computed with: Python's signs, NumPy's names."""

from __future__ import annotations

import math
from typing import Any

from cuzarr._elsewhere import Methods, array_function, as_numpy_wants, missing


class Operators(Methods):
    """Python's arithmetic and comparison signs, each by the function of NumPy's name."""

    def _apply(self, name: str, *operands: Any) -> Any:
        from cuzarr._computing import apply

        for operand in operands:
            if not _is_known(operand):
                return NotImplemented
        return apply(name, *operands)

    def _change(self, name: str, other: Any) -> Any:
        """What ``x += other`` leaves behind the name ``x``: another plan or, of what has elements, these changed."""
        return self._apply(name, self, other)

    def __add__(self, other: Any) -> Any:
        return self._apply("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._apply("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._apply("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._apply("divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._apply("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._apply("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return self._apply("remainder", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._apply("remainder", other, self)

    def __pow__(self, other: Any) -> Any:
        return self._apply("power", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._apply("power", other, self)

    def __and__(self, other: Any) -> Any:
        return self._apply("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Any:
        return self._apply("bitwise_and", other, self)

    def __or__(self, other: Any) -> Any:
        return self._apply("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Any:
        return self._apply("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Any:
        return self._apply("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return self._apply("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Any:
        return self._apply("left_shift", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return self._apply("left_shift", other, self)

    def __rshift__(self, other: Any) -> Any:
        return self._apply("right_shift", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return self._apply("right_shift", other, self)

    def __lt__(self, other: Any) -> Any:
        return self._apply("less", self, other)

    def __le__(self, other: Any) -> Any:
        return self._apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._apply("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return self._apply("greater_equal", self, other)

    def __neg__(self) -> Any:
        return self._apply("negative", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._apply("absolute", self)

    def __invert__(self) -> Any:
        return self._apply("invert", self)


def _changing(name: str) -> Any:
    def change(self: Operators, other: Any) -> Any:
        return self._change(name, other)

    return change


# Not known to type checkers, for whom `x += y` then is `x = x + y`.
for _sign, _function in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}.items():  # fmt: skip
    setattr(Operators, f"__i{_sign}__", _changing(_function))


class Reductions:
    """Reductions as methods; see :mod:`cuzarr.reductions`. NumPy's functions (``np.mean(z)``) call them, too, with ``out`` and
    ``dtype``, which must be ``None``; of an array in a store they want elements, as all functions of NumPy's do."""

    def sum(self, axis: Any = None, *, keepdims: bool = False, **numpys: Any) -> Any:
        """The sum."""
        return _reduce("sum", self, axis, keepdims, numpys)

    def prod(self, axis: Any = None, *, keepdims: bool = False, **numpys: Any) -> Any:
        """The product."""
        return _reduce("prod", self, axis, keepdims, numpys)

    def mean(self, axis: Any = None, *, keepdims: bool = False, **numpys: Any) -> Any:
        """The mean."""
        return _reduce("mean", self, axis, keepdims, numpys)

    def std(self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False, **numpys: Any) -> Any:
        """The standard deviation."""
        return _reduce("std", self, axis, keepdims, numpys, ddof)

    def var(self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False, **numpys: Any) -> Any:
        """The variance."""
        return _reduce("var", self, axis, keepdims, numpys, ddof)

    def min(self, axis: Any = None, *, keepdims: bool = False, **numpys: Any) -> Any:
        """The least element; NaN where one is NaN."""
        return _reduce("min", self, axis, keepdims, numpys)

    def max(self, axis: Any = None, *, keepdims: bool = False, **numpys: Any) -> Any:
        """The greatest element; NaN where one is NaN."""
        return _reduce("max", self, axis, keepdims, numpys)

    def argmin(self, axis: Any = None, *, keepdims: bool = False, **numpys: Any) -> Any:
        """Where the least element first is."""
        return _reduce("argmin", self, axis, keepdims, numpys)

    def argmax(self, axis: Any = None, *, keepdims: bool = False, **numpys: Any) -> Any:
        """Where the greatest element first is."""
        return _reduce("argmax", self, axis, keepdims, numpys)

    def any(self, axis: Any = None, *, keepdims: bool = False, **numpys: Any) -> Any:
        """Whether one element is not 0."""
        return _reduce("any", self, axis, keepdims, numpys)

    def all(self, axis: Any = None, *, keepdims: bool = False, **numpys: Any) -> Any:
        """Whether no element is 0."""
        return _reduce("all", self, axis, keepdims, numpys)


def _reduce(name: str, x: Any, axis: Any, keepdims: bool, numpys: dict[str, Any], ddof: float = 0) -> Any:
    from cuzarr.reductions import reduce

    return as_numpy_wants(x, reduce(name, x, axis, keepdims, ddof), name, numpys)


class Shaped:
    """What follows from a shape and an element type."""

    shape: Any
    dtype: Any

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the elements fill."""
        return int(self.size * self.dtype.itemsize)


class ElementwiseEquality:
    """Equality element by element, which not everything has: of zarr's arrays it is whether they are the same one. And what else
    NumPy's functions ask for: they read an array of zarr's."""

    @property
    def real(self) -> Any:
        """The real part."""
        from cuzarr.functions import real

        return real(self)

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        from cuzarr.functions import imag

        return imag(self)

    def __eq__(self, other: object) -> Any:
        return _equality("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return _equality("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]  # as of NumPy's arrays

    # Before NumPy's own arrays, which would convert their other operand.
    __array_priority__ = 1000

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions, where this library has them."""
        from cuzarr import functions
        from cuzarr._computing import apply

        if method != "__call__" or ufunc.__name__ not in functions.__all__:
            raise missing(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}", self)
        if said := [option for option, value in options.items() if value is not None]:
            raise missing(ufunc.__name__, self, f" with {', '.join(said)}=")
        return apply(ufunc.__name__, *inputs)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """NumPy's functions, where this library has them, or where NumPy makes them of shapes and methods."""
        return array_function(self, function, arguments, options)


def _equality(name: str, one: Any, other: Any) -> Any:
    from cuzarr._computing import apply

    return apply(name, one, other) if _is_known(other) else NotImplemented


def _is_known(operand: Any) -> bool:
    """Whether an operand is a number or an array of any library."""
    if isinstance(operand, Operators | bool | int | float | complex):
        return True
    return isinstance(operand, list | tuple) or hasattr(operand, "dtype") and hasattr(operand, "shape")

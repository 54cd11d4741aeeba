"""Operators of everything that can be computed with: Python's signs, NumPy's names."""

from __future__ import annotations

import math
from typing import Any

class Operators:
    """Python's arithmetic and comparison signs, each by the function of NumPy's name."""

    def _apply(self, name: str, *operands: Any) -> Any:
        from cuzarr._computing import apply

        for operand in operands:
            if not _is_known(operand):
                return NotImplemented
        return apply(name, *operands)

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
    from cuzarr._array import Array
    from cuzarr.errors import UnsupportedError
    from cuzarr.reductions import reduce

    for option, value in numpys.items():
        if option not in ("dtype", "out"):
            raise TypeError(f"{name}() got an unexpected keyword argument '{option}'")
        if value is not None:
            raise UnsupportedError(f"{name} takes no {option}", hint="convert what goes in or comes out with astype")
    result = reduce(name, x, axis, keepdims, ddof)
    return result.compute() if numpys and isinstance(x, Array) else result


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
    """Equality element by element, which not everything has: of zarr's arrays it is whether they are the same one."""

    def __eq__(self, other: object) -> Any:
        return _equality("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return _equality("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]  # as of NumPy's arrays

    # Before NumPy's own arrays, which would convert their other operand.
    __array_priority__ = 1000

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions, where this library has them."""
        from cuzarr._computing import apply
        from cuzarr.errors import UnsupportedError

        if method != "__call__" or any(value is not None for value in options.values()):
            raise UnsupportedError(
                f"np.{ufunc.__name__}.{method} with {sorted(options)} is not supported",
                hint="use the functions of cuzarr, or CuPy's: they take these arrays without copying",
            )
        return apply(ufunc.__name__, *inputs)


def _equality(name: str, one: Any, other: Any) -> Any:
    from cuzarr._computing import apply

    return apply(name, one, other) if _is_known(other) else NotImplemented


def _is_known(operand: Any) -> bool:
    """Whether an operand is a number or an array of any library."""
    if isinstance(operand, Operators | bool | int | float | complex):
        return True
    return hasattr(operand, "dtype") and hasattr(operand, "shape")

"""Python's operators and NumPy's reductions, for all kinds of arrays and plans."""

from __future__ import annotations

import datetime
import math
import operator
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from cuzarr._checks import Axis
from cuzarr._docstrings import completing
from cuzarr._numpy import check_dtype
from cuzarr._operators import dispatch
from cuzarr._operators.numpy_protocol import Methods, OperandT, ResultT
from cuzarr._operators.numpy_stored import by_numpy, of_elements_alone
from cuzarr.errors import DTypeMismatchError, InvalidArgumentError, MemorySpaceError, UnsupportedError

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DTypeLike, Scalar

# Python types that NumPy can combine with text and dates.
_OF_TEXT_AND_DATES = (str, bytes, datetime.date, datetime.timedelta)
# Methods that PyTorch calls for `&=` and the like. The methods of its other in-place operators end in one underscore.
_IN_PLACE_BITS = frozenset({"__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"})

# Descriptions of the parameters of reductions, which are both functions and methods of arrays.
REDUCTION = {
    "axis": "axis : int, str or tuple of them, optional\n    Dimensions to reduce, by number or name; by default all.",
    "dtype": "dtype : dtype-like, optional\n    The type in which elements are combined, and the type of the result.",
    "out": "out : numpy.ndarray, optional\n    Memory for the result. A plan is computed into it.",
    "ddof": "ddof : float\n    The number that is subtracted from the number of elements before the division.",
    "keepdims": "keepdims : bool\n    Whether reduced dimensions stay, with the extent 1.",
    "initial": "initial : number, optional\n    The value that the reduction begins with.",
    "where": "where : array of bool, optional\n    Which elements count, in memory, in a store or as a plan. It is broadcast.",
    "mean": "mean : array, optional\n    The mean of the elements, with the reduced dimensions, where it is known.",
    "correction": "correction : float, optional\n    The array API's name of ``ddof``, which it replaces.",
}

_reduction = completing(
    REDUCTION,
    "Expression or array\n    A plan for elements in a store, the result for elements in memory.",
    "InvalidArgumentError\n    There is no such axis.",
)


class Operators(Methods[OperandT, ResultT], Generic[OperandT, ResultT]):
    """Base class with Python's arithmetic and comparison operators. Each calls the function with NumPy's name."""

    shape: Any
    dtype: Any

    def _apply(self, name: str, *operands: Any) -> ResultT:
        if not all(map(is_operand, operands)):
            is_plain = all(is_operand(operand) or isinstance(operand, _OF_TEXT_AND_DATES) for operand in operands)
            if not is_plain or not of_elements_alone(operands):
                return NotImplemented  # type: ignore[no-any-return]
        return dispatch.apply(name, *operands)  # type: ignore[no-any-return]

    def _change(self, name: str, other: Any) -> Any:
        """The result of ``x += other`` for this array or plan ``x``: another plan, or the same array with changed elements."""
        return self._apply(name, self, other)

    def __add__(self, other: OperandT) -> ResultT:
        return self._apply("add", self, other)

    def __radd__(self, other: OperandT) -> ResultT:
        return self._apply("add", other, self)

    def __sub__(self, other: OperandT) -> ResultT:
        return self._apply("subtract", self, other)

    def __rsub__(self, other: OperandT) -> ResultT:
        return self._apply("subtract", other, self)

    def __mul__(self, other: OperandT) -> ResultT:
        return self._apply("multiply", self, other)

    def __rmul__(self, other: OperandT) -> ResultT:
        return self._apply("multiply", other, self)

    def __truediv__(self, other: OperandT) -> ResultT:
        return self._apply("divide", self, other)

    def __rtruediv__(self, other: OperandT) -> ResultT:
        return self._apply("divide", other, self)

    def __floordiv__(self, other: OperandT) -> ResultT:
        return self._apply("floor_divide", self, other)

    def __rfloordiv__(self, other: OperandT) -> ResultT:
        return self._apply("floor_divide", other, self)

    def __mod__(self, other: OperandT) -> ResultT:
        return self._apply("remainder", self, other)

    def __rmod__(self, other: OperandT) -> ResultT:
        return self._apply("remainder", other, self)

    def __pow__(self, other: OperandT) -> ResultT:
        return self._apply("power", self, other)

    def __rpow__(self, other: OperandT) -> ResultT:
        return self._apply("power", other, self)

    def __and__(self, other: OperandT) -> ResultT:
        return self._apply("bitwise_and", self, other)

    def __rand__(self, other: OperandT) -> ResultT:
        return self._apply("bitwise_and", other, self)

    def __or__(self, other: OperandT) -> ResultT:
        return self._apply("bitwise_or", self, other)

    def __ror__(self, other: OperandT) -> ResultT:
        return self._apply("bitwise_or", other, self)

    def __xor__(self, other: OperandT) -> ResultT:
        return self._apply("bitwise_xor", self, other)

    def __rxor__(self, other: OperandT) -> ResultT:
        return self._apply("bitwise_xor", other, self)

    def __lshift__(self, other: OperandT) -> ResultT:
        return self._apply("left_shift", self, other)

    def __rlshift__(self, other: OperandT) -> ResultT:
        return self._apply("left_shift", other, self)

    def __rshift__(self, other: OperandT) -> ResultT:
        return self._apply("right_shift", self, other)

    def __rrshift__(self, other: OperandT) -> ResultT:
        return self._apply("right_shift", other, self)

    def __eq__(self, other: object) -> ResultT:  # type: ignore[override]
        return self._compare("equal", "__eq__", other)

    def __ne__(self, other: object) -> ResultT:  # type: ignore[override]
        return self._compare("not_equal", "__ne__", other)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as of NumPy's arrays

    def _compare(self, name: str, reflected: str, other: Any) -> ResultT:
        """Compares element by element with any operand, also with ``None`` or text. Without this, Python would compare identity."""
        if of_elements_alone((self, other)):
            # NumPy's operator instead of its function, because only the operator can compare dates with text.
            return by_numpy(name, getattr(operator, reflected), (self, other))  # type: ignore[no-any-return]
        if is_operand(other):
            return dispatch.apply(name, self, other)  # type: ignore[no-any-return]
        check_dtype(self.dtype, name)
        answer = getattr(type(other), reflected)(other, self)
        if answer is not NotImplemented:
            return answer  # type: ignore[no-any-return]
        # As in NumPy, no number equals None, text and other values.
        return dispatch.apply("logical_and", self, False) if name == "equal" else dispatch.apply("logical_or", self, True)  # type: ignore[no-any-return]

    def __contains__(self, value: object) -> bool:
        return bool((self == value).any())  # type: ignore[attr-defined]

    def __lt__(self, other: OperandT) -> ResultT:
        return self._apply("less", self, other)

    def __le__(self, other: OperandT) -> ResultT:
        return self._apply("less_equal", self, other)

    def __gt__(self, other: OperandT) -> ResultT:
        return self._apply("greater", self, other)

    def __ge__(self, other: OperandT) -> ResultT:
        return self._apply("greater_equal", self, other)

    def __neg__(self) -> ResultT:
        return self._apply("negative", self)

    def __pos__(self) -> ResultT:
        if self.dtype.kind == "b":
            raise DTypeMismatchError("positive is not defined for elements of bool", hint="convert with astype('int8')")
        return self  # type: ignore[return-value]  # of an array in a store too, where it makes no plan

    def __abs__(self) -> ResultT:
        return self._apply("absolute", self)

    def __invert__(self) -> ResultT:
        return self._apply("invert", self)

    def __cupy_get_ndarray__(self) -> Any:
        """All elements as a CuPy array. CuPy's own operators and functions call this, as in ``cupy_array + array``.

        Raises
        ------
        MemorySpaceError
            The elements are read to the host.
        """
        if self.device == "cpu":  # type: ignore[attr-defined]
            raise MemorySpaceError(
                f"{self!r} reads to the host, beside an array of CuPy",
                hint="read it to the GPU: .with_device('cuda:0'); or move the other one: cupy.asnumpy(x)",
            )
        import cupy

        return cupy.asarray(self._elements())  # type: ignore[attr-defined]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Makes PyTorch's in-place operators change the tensor, as in ``tensor += array``. This class handles the
        other operators.

        Raises
        ------
        UnsupportedError
            PyTorch does not support the elements, or cannot put them into the tensor.
        """
        name = getattr(func, "__name__", "")
        if not (name.endswith("_") and (not name.startswith("__") or name in _IN_PLACE_BITS)):
            return NotImplemented
        import torch

        def tensor(x: Any) -> Any:
            if not isinstance(x, Operators):
                return x
            return torch.as_tensor(x if hasattr(x, "__cuda_array_interface__") else x._elements())  # type: ignore[attr-defined]

        try:
            return func(*map(tensor, args), **(kwargs or {}))
        except (TypeError, RuntimeError) as error:  # after a TypeError, Python would compute a new value instead
            raise UnsupportedError(
                f"a tensor cannot be changed in place: {error}",
                hint="convert and move the elements: tensor += torch.as_tensor(x)",
            ) from error


def _changing(name: str) -> Any:
    def change(self: Operators[Any, Any], other: Any) -> Any:
        return self._change(name, other)

    return change


# Hidden from type checkers, for which `x += y` then is `x = x + y`.
for _sign, _function in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}.items():  # fmt: skip
    setattr(Operators, f"__i{_sign}__", _changing(_function))


class Reductions(Generic[ResultT]):
    """Base class with NumPy's reductions as methods, such as ``array.sum()``; see :mod:`cuzarr.xp`."""

    @_reduction
    def sum(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: ArrayLike | None = None,
        keepdims: bool = False,
        initial: Scalar | None = None,
        where: ArrayLike | None = None,
    ) -> ResultT:
        """The sum of the elements.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.sum(axis=0).compute()
        array([3, 5, 7])
        """
        return dispatch.functions["sum"](self, axis, dtype, out, keepdims, initial, where)  # type: ignore[no-any-return]

    @_reduction
    def prod(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: ArrayLike | None = None,
        keepdims: bool = False,
        initial: Scalar | None = None,
        where: ArrayLike | None = None,
    ) -> ResultT:
        """The product of the elements.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.prod(axis=0).compute()
        array([ 0,  4, 10])
        """
        return dispatch.functions["prod"](self, axis, dtype, out, keepdims, initial, where)  # type: ignore[no-any-return]

    @_reduction
    def mean(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: ArrayLike | None = None,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
    ) -> ResultT:
        """The mean of the elements.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.mean(axis=0).compute()
        array([1.5, 2.5, 3.5])
        """
        return dispatch.functions["mean"](self, axis, dtype, out, keepdims, where=where)  # type: ignore[no-any-return]

    @_reduction
    def std(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: ArrayLike | None = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
        mean: ArrayLike | None = None,
        correction: float | None = None,
    ) -> ResultT:
        """The standard deviation of the elements.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.std(axis=0).compute()
        array([1.5, 1.5, 1.5])
        """
        return dispatch.functions["std"](self, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)  # type: ignore[no-any-return]

    @_reduction
    def var(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: ArrayLike | None = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
        mean: ArrayLike | None = None,
        correction: float | None = None,
    ) -> ResultT:
        """The variance of the elements.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.var(axis=0).compute()
        array([2.25, 2.25, 2.25])
        """
        return dispatch.functions["var"](self, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)  # type: ignore[no-any-return]

    @_reduction
    def min(
        self,
        axis: Axis = None,
        out: ArrayLike | None = None,
        keepdims: bool = False,
        initial: Scalar | None = None,
        where: ArrayLike | None = None,
    ) -> ResultT:
        """The smallest element; NaN if an element is NaN.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.min(axis=0).compute()
        array([0, 1, 2])
        """
        return dispatch.functions["min"](self, axis, out, keepdims, initial, where)  # type: ignore[no-any-return]

    @_reduction
    def max(
        self,
        axis: Axis = None,
        out: ArrayLike | None = None,
        keepdims: bool = False,
        initial: Scalar | None = None,
        where: ArrayLike | None = None,
    ) -> ResultT:
        """The largest element; NaN if an element is NaN.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.max(axis=0).compute()
        array([3, 4, 5])
        """
        return dispatch.functions["max"](self, axis, out, keepdims, initial, where)  # type: ignore[no-any-return]

    @_reduction
    def argmin(self, axis: Axis = None, out: ArrayLike | None = None, *, keepdims: bool = False) -> ResultT:
        """The index of the first smallest element.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.argmin(axis=0).compute()
        array([0, 0, 0])
        """
        return dispatch.functions["argmin"](self, axis, out, keepdims=keepdims)  # type: ignore[no-any-return]

    @_reduction
    def argmax(self, axis: Axis = None, out: ArrayLike | None = None, *, keepdims: bool = False) -> ResultT:
        """The index of the first largest element.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.argmax(axis=0).compute()
        array([1, 1, 1])
        """
        return dispatch.functions["argmax"](self, axis, out, keepdims=keepdims)  # type: ignore[no-any-return]

    @_reduction
    def any(
        self, axis: Axis = None, out: ArrayLike | None = None, keepdims: bool = False, *, where: ArrayLike | None = None
    ) -> ResultT:
        """Whether at least one element is not 0.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.any(axis=0).compute()
        array([ True,  True,  True])
        """
        return dispatch.functions["any"](self, axis, out, keepdims, where=where)  # type: ignore[no-any-return]

    @_reduction
    def all(
        self, axis: Axis = None, out: ArrayLike | None = None, keepdims: bool = False, *, where: ArrayLike | None = None
    ) -> ResultT:
        """Whether no element is 0.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.arange(6).reshape(2, 3))
        >>> array.all(axis=0).compute()
        array([False,  True,  True])
        """
        return dispatch.functions["all"](self, axis, out, keepdims, where=where)  # type: ignore[no-any-return]


class Shaped:
    """Base class with the attributes that follow from a shape and an element type: number of dimensions, of elements and of bytes."""

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
        """Size of all elements in bytes."""
        return int(self.size * self.dtype.itemsize)


class OneElement:
    """Base class that converts arrays of one element to Python's numbers, as for NumPy's arrays."""

    shape: Any
    dtype: Any
    size: Any
    _on_host: str

    def _elements(self) -> Any:
        """Reads or computes all elements, into memory of any device."""
        raise NotImplementedError  # each kind of array has its own

    def item(self) -> Any:
        """The only element of this array, as a Python number.

        Returns
        -------
        scalar
            The element.

        Raises
        ------
        InvalidArgumentError
            There is no element, or more than one.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> cuzarr.create_array({}, data=np.array([[7]])).item()
        7
        """
        if self.size != 1:
            message = f"{type(self).__name__} of shape {tuple(self.shape)} has {self.size} elements, expected 1"
            raise InvalidArgumentError(message, hint=f"get all elements: x{self._on_host}")
        return self._elements().item()

    def _number(self, kind: str) -> Any:
        if self.shape:
            message = f"{type(self).__name__} of shape {tuple(self.shape)} is not {kind}, expected 0 dimensions"
            raise DTypeMismatchError(message, hint=f"get its elements: x{self._on_host}")
        return self.item()

    def __bool__(self) -> bool:
        if self.size != 1:
            message = f"{type(self).__name__} of shape {tuple(self.shape)} is neither true nor false: it has {self.size} elements"
            raise InvalidArgumentError(message, hint="use x.any() or x.all(), or compare x.size with 0")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self._number("a whole number"))

    def __float__(self) -> float:
        return float(self._number("a number"))

    def __complex__(self) -> complex:
        return complex(self._number("a number"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise DTypeMismatchError(f"elements of {self.dtype} are not indices, expected integers", hint="convert with astype")
        return int(self._number("an index"))

    def __format__(self, spec: str) -> str:
        return format(self._number("a number"), spec) if spec else str(self)


def is_operand(operand: Any) -> bool:
    """Whether an operand is a number or an array of any library."""
    if isinstance(operand, Operators | bool | int | float | complex):
        return True
    return isinstance(operand, list | tuple) or hasattr(operand, "dtype") and hasattr(operand, "shape")

"""Implements NumPy's functions and methods for arrays of this package. For other functions, an error names the library that has them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from cuzarr._operators import dispatch
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import (
    DTypeMismatchError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    SelectionInvalidError,
    ShapeMismatchError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DTypeLike

# Functions that call the method of the same name, and pass on their arguments.
METHODS = {"reshape", "transpose", "ravel"}
# NumPy's second names of functions that are registered here by their first names.
OTHER_NAMES = {"around": "round", "amin": "min", "amax": "max"}

# NumPy functions that write to their first argument.
WRITING = frozenset({np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis})
# Functions that check whether two arrays share memory. Elements that are not yet read or computed do not share memory.
SHARING = frozenset({np.shares_memory, np.may_share_memory})
# Functions that would take single elements or parts, so that each of them would be computed separately.
_OF_ITEMS = frozenset({np.lexsort, np.histogramdd, np.array_split, np.split, np.hsplit, np.vsplit, np.dsplit}) | {
    getattr(np, "unstack", None)  # since NumPy 2.1
}


inside_numpy: ContextVar[bool] = ContextVar("cuzarr_inside_numpy", default=False)
"""Whether a NumPy function that needs only shapes and methods of a plan is running. It must not get the elements."""

OperandT = TypeVar("OperandT")
"""Type variable for the second operand of an operator such as ``+``, which a class of arrays accepts."""
ResultT = TypeVar("ResultT")
"""Type variable for the result of an operator or a reduction: a plan for stored arrays and plans, an array for arrays in memory."""


class Methods(Generic[OperandT, ResultT]):
    """Base class with methods of NumPy's arrays that cuzarr has as functions. For others, an error names the library that has them.

    These methods never read elements only to pass them to NumPy. :attr:`_in_memory` shows how a caller reads them.
    """

    _in_memory = "[...]"
    """Code to append to an array to get its elements in memory that CuPy accepts, for error messages."""
    _on_host = "[...]"
    """Code to append to an array to get its elements in host memory, for error messages."""

    def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None, out: ArrayLike | None = None) -> ResultT:
        """Limits the elements to the range from ``min`` to ``max``.

        Parameters
        ----------
        min, max : scalar or array, optional
            The smallest and the largest value; ``None`` for no bound. Arrays are broadcast.
        out : numpy.ndarray, optional
            Memory for the result. A plan is computed into it.

        Returns
        -------
        Expression or array
            A plan for stored arrays; the elements for arrays in memory.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.array([0.25, 1.75]))
        >>> array.clip(0.5, 1).compute()
        array([0.5, 1. ])
        """
        return into(out, dispatch.functions["clip"](self, min, max), "clip")  # type: ignore[no-any-return]

    def round(self, decimals: int = 0, out: ArrayLike | None = None) -> ResultT:
        """Rounds each element to ``decimals`` decimal places; halves go to the even digit.

        Parameters
        ----------
        decimals : int
            Number of digits to keep behind the decimal point.
        out : numpy.ndarray, optional
            Memory for the result. A plan is computed into it.

        Returns
        -------
        Expression or array
            A plan for stored arrays; the elements for arrays in memory.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.array([0.25, 1.75]))
        >>> array.round().compute()
        array([0., 2.])
        """
        return into(out, dispatch.functions["round"](self, decimals), "round")  # type: ignore[no-any-return]

    def cumsum(self, axis: int | str | None = None, dtype: DTypeLike | None = None, out: ArrayLike | None = None) -> ResultT:
        """Running sums along a dimension; see :func:`cuzarr.xp.cumsum`.

        Parameters
        ----------
        axis : int, str or None
            The dimension, by number or name; ``None`` takes all elements, in C order.
        dtype : dtype-like, optional
            The type of the elements and of the sums.
        out : numpy.ndarray, optional
            Memory for the result. A plan is computed into it.

        Returns
        -------
        Expression or array
            A plan for stored arrays; the sums for arrays in memory.

        Raises
        ------
        InvalidArgumentError
            There is no such dimension.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.array([1, 2, 3]))
        >>> array.cumsum().compute()
        array([1, 3, 6])
        """
        return into(out, dispatch.functions["cumsum"](self, axis, dtype), "cumsum")  # type: ignore[no-any-return]

    def cumprod(self, axis: int | str | None = None, dtype: DTypeLike | None = None, out: ArrayLike | None = None) -> ResultT:
        """Running products along a dimension; see :func:`cuzarr.xp.cumprod`.

        Parameters
        ----------
        axis : int, str or None
            The dimension, by number or name; ``None`` takes all elements, in C order.
        dtype : dtype-like, optional
            The type of the elements and of the products.
        out : numpy.ndarray, optional
            Memory for the result. A plan is computed into it.

        Returns
        -------
        Expression or array
            A plan for stored arrays; the products for arrays in memory.

        Raises
        ------
        InvalidArgumentError
            There is no such dimension.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> array = cuzarr.create_array({}, data=np.array([1, 2, 3]))
        >>> array.cumprod().compute()
        array([1, 2, 6])
        """
        return into(out, dispatch.functions["cumprod"](self, axis, dtype), "cumprod")  # type: ignore[no-any-return]

    def conj(self) -> ResultT:
        """The complex conjugate of each element.

        Returns
        -------
        Expression or array
            A plan for stored arrays; the elements for arrays in memory.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> cuzarr.create_array({}, data=np.array([1 + 2j])).conj().compute()
        array([1.-2.j])
        """
        return dispatch.functions["conj"](self)  # type: ignore[no-any-return]

    conjugate = conj

    def __divmod__(self, other: OperandT) -> tuple[ResultT, ResultT]:
        return self // other, self % other  # type: ignore[operator]

    def __rdivmod__(self, other: OperandT) -> tuple[ResultT, ResultT]:
        return other // self, other % self  # type: ignore[operator]

    def __matmul__(self, other: OperandT) -> ResultT:
        raise missing("matmul", self)

    __rmatmul__ = __matmul__

    if not TYPE_CHECKING:  # a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or hasattr(type(self), name) or not hasattr(np.ndarray, name):
                return object.__getattribute__(self, name)  # raises
            message = f"'{type(self).__name__}' object x has no '{name}'"
            if own := self._instead_of(name):
                message += f": use {own}"
            else:
                there = f"cupy.asarray(x{self._in_memory}).{name}, or x{self._on_host}.{name}"
                message += f", which CuPy's and NumPy's arrays have: {there}"
            raise AttributeError(message, name=name, obj=self)

    @classmethod
    def _instead_of(cls, name: str) -> str | None:
        """Code for a hint: the call of cuzarr's function in place of a NumPy method that arrays of cuzarr lack."""
        name = {"mT": "matrix_transpose"}.get(name, name)
        return f"cuzarr.xp.{name}(x)" if name in dispatch.functions else _of_elements(name, cls)


def _of_elements(name: str, kind: type[Methods[Any, Any]]) -> str | None:
    """Code for a hint: the call of cuzarr's function for arrays in memory, with the elements of an array of class ``kind``."""
    return f"cuzarr.xp.{name}(x{kind._in_memory})" if hasattr(dispatch.namespace, name) else None


def into(out: Any, result: Any, name: str) -> Any:
    """Copies a result into the caller's ``out`` and returns ``out``. Without ``out``, returns the result.

    Raises
    ------
    UnsupportedError
        ``out`` is not a NumPy array.
    ShapeMismatchError, DTypeMismatchError
        The result does not fit into ``out``.
    """
    if out is None:
        return result
    if not isinstance(out, np.ndarray):
        message = f"{name}: out is {type(out).__name__}, expected an array of NumPy"
        raise UnsupportedError(message, hint="assign the result: out[...] = x; a plan is written by .store(array)")
    elements = host_elements(result)
    if np.shape(elements) != out.shape:
        raise ShapeMismatchError(f"{name}: out has shape {out.shape}, the result {np.shape(elements)}")
    if not np.can_cast(elements.dtype, out.dtype, "same_kind"):
        raise DTypeMismatchError(f"{name}: out has elements of {out.dtype}, the result of {elements.dtype}")
    out[...] = elements
    return out


def host_elements(value: Any) -> Any:
    """Copies the elements of an array of cuzarr to a NumPy array. Any other value is returned unchanged.

    Raises
    ------
    ImplicitHostCopyError
        The array's elements are, or would be, on a GPU.
    """
    if isinstance(value, Lazy) and value._is_plan:
        if value.device != "cpu":
            message = f"this plan is computed on {value.device}, and a copy to the host has to be asked for"
            raise ImplicitHostCopyError(message, hint="call .compute(device='cpu')")
        return value._elements_on(None)
    return np.asarray(value) if isinstance(value, Methods) else value


def targets(method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """The arrays that a call of a NumPy ufunc writes to."""
    return inputs[:1] if method == "at" else tuple(options.get("out") or ())


def cannot_write(name: str, target: Any) -> UnsupportedError:
    """The error for a NumPy function that would write to an array of cuzarr."""
    message = f"numpy.{name} does not write into {type(target).__name__}"
    return UnsupportedError(message, hint="assign the result: z[...] = x + y; or for any size: (x + y).store(z)")


def call_with_elements(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Calls a NumPy ufunc with the elements of cuzarr's arrays among its inputs.

    Raises
    ------
    UnsupportedError
        The ufunc would write into one of our arrays.
    ImplicitHostCopyError
        Elements are on a GPU.
    """
    if into := [target for target in targets(method, inputs, options) if isinstance(target, Methods)]:
        raise cannot_write(ufunc.__name__, into[0])
    given = {name: value if name == "out" else host_elements(value) for name, value in options.items()}
    return getattr(ufunc, method)(*map(host_elements, inputs), **given)


def where_it_is(name: str, x: Any, *, is_here: bool = False) -> str:
    """A hint that names a function for the array ``x``: cuzarr's if ``is_here``, else that of CuPy or NumPy."""
    behind = type(x) if isinstance(x, Methods) else Methods
    if is_here and (own := _of_elements(name, behind)):
        return f"use {own}"
    elements = f"cupy.asarray(x{behind._in_memory}), or x{behind._on_host}"
    return f"use CuPy's cupy.{name} on a GPU, or numpy.{name}, with {elements}, for x"


def missing(name: str, x: Any, beside: str = "") -> UnsupportedError:
    """The error for a NumPy function that cuzarr lacks, or lacks with the arguments that ``beside`` describes."""
    return UnsupportedError(f"there is no numpy.{name} here{beside}", hint=where_it_is(name, x, is_here=not beside))


def function_name(function: Callable[..., Any]) -> str:
    """The name of a NumPy function, without the leading ``numpy.``."""
    return f"{function.__module__}.{function.__name__}".removeprefix("numpy.")


@functools.cache
def own_function(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function of cuzarr that replaces a NumPy function for arrays of cuzarr; ``None`` if there is none."""
    name = getattr(function, "__name__", "")
    if name in METHODS or getattr(np, name, None) is not function:
        return None
    return dispatch.functions.get(OTHER_NAMES.get(name, name))


def _default(function: Callable[..., Any], option: str) -> Any:
    """The default value of a function's option; ``None`` if the function has no such option, or its signature is unknown."""
    try:
        parameter = inspect.signature(function).parameters.get(option)
    except ValueError:  # before version 2.4, NumPy's functions in C have no signature
        return None
    return None if parameter is None or parameter.default is np._NoValue else parameter.default


def said_options(function: Callable[..., Any], own: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options that a caller gave to a NumPy function, without those that NumPy marks as not given, and those that are ``None`` by
    default.

    ``None`` need not be the default: ``axis=None`` joins flattened arrays.
    """

    def is_default(option: str, value: Any) -> bool:
        if value is not None:
            return value is np._NoValue
        return _default(function, option) is None and _default(own, option) is None

    return {option: value for option, value in options.items() if not is_default(option, value)}


def array_function(x: Any, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Carries out a call of a NumPy function that has an array of cuzarr among its arguments.

    It calls this library's function, or NumPy's if that only needs shapes and methods.

    Raises
    ------
    UnsupportedError
        This library's function does not accept the given arguments.
    InvalidArgumentError, ImplicitHostCopyError
        NumPy's function needs the elements.
    """
    name = function_name(function)
    own = own_function(function)
    if own is None and not isinstance(x, Lazy) and getattr(np, name, None) is function:
        own = dispatch.of_memory.get(name)
    # NumPy's `moveaxis` calls `transpose`, which is a view for memory on a device.
    if own is not None and not (function is np.moveaxis and not isinstance(x, Lazy)):
        said = said_options(function, own, options)
        out = said.pop("out") if isinstance(said.get("out"), np.ndarray) else None
        try:
            inspect.signature(own).bind(*arguments, **said)
        except TypeError as error:
            raise missing(name, x, f" with such arguments: {error}") from None
        return into(out, own(*arguments, **said), name)
    if function in WRITING and isinstance(arguments[0] if arguments else None, Methods):
        raise cannot_write(name, arguments[0])
    if function in SHARING and isinstance(x, Lazy):
        return False
    if function in _OF_ITEMS:
        raise missing(name, x)
    has_method = name in METHODS and hasattr(type(x), name)
    token = inside_numpy.set(True)
    try:
        if function is np.array_equiv:
            x.__array__()  # raises an error, which `array_equiv` would take for a difference
        return getattr(function, "_implementation", function)(*arguments, **options)
    except (InvalidArgumentError, ImplicitHostCopyError) as error:
        if not has_method:
            error.hint = where_it_is(name, x)
        raise
    except (AttributeError, SelectionInvalidError, UnsupportedError) as error:
        if has_method:
            raise
        raise missing(name, x) from error
    finally:
        inside_numpy.reset(token)


class NumpyProtocol:
    """Base class of device arrays and plans, by which NumPy's functions call cuzarr's functions of the same names."""

    @property
    def real(self) -> Any:
        """The real part of each element."""
        return dispatch.functions["real"](self)

    @property
    def imag(self) -> Any:
        """The imaginary part of each element."""
        return dispatch.functions["imag"](self)

    # Higher than that of NumPy's own arrays, whose operators would convert our array.
    __array_priority__ = 1000

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Calls the function of cuzarr that replaces a NumPy ufunc for arrays of cuzarr, if there is such a function. NumPy's own is called
        if results go into a NumPy array (``x += plan``)."""
        if any(isinstance(target, np.ndarray) for target in targets(method, inputs, options)):
            return call_with_elements(ufunc, method, inputs, options)
        if ufunc is np.divmod and method == "__call__" and not options:
            return dispatch.apply("floor_divide", *inputs), dispatch.apply("remainder", *inputs)
        if (
            (of_memory := dispatch.of_memory.get(ufunc.__name__))
            and method == "__call__"
            and not options
            and not isinstance(self, Lazy)
        ):
            return of_memory(*inputs)
        if method != "__call__" or ufunc.__name__ not in dispatch.functions:
            raise missing(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}", self)
        if said := [option for option, value in options.items() if value is not None]:
            raise missing(ufunc.__name__, self, f" with {', '.join(said)}=")
        return dispatch.apply(ufunc.__name__, *inputs)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """Calls cuzarr's function for a NumPy function, or NumPy's own if that only needs shapes and methods."""
        return array_function(self, function, arguments, options)


# NumPy functions that Python's operators call: for a NumPy array ``x``, ``x + array`` calls ``numpy.add``.
SIGN_FUNCTIONS = {
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "divmod", "bitwise_and", "bitwise_or",
    "bitwise_xor", "left_shift", "right_shift", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
}  # fmt: skip

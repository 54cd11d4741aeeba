"""Implements NumPy's functions for stored arrays and views. This library's functions stream the elements; NumPy's own get all elements."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np

from cuzarr import _core
from cuzarr._config import config
from cuzarr._config.keys import DEFAULT_MEMORY_LIMIT_BYTES
from cuzarr._numpy import is_computable, is_small
from cuzarr._operators import dispatch
from cuzarr._operators.dispatch import Lazy
from cuzarr._operators.numpy_protocol import (
    OTHER_NAMES,
    SHARING,
    SIGN_FUNCTIONS,
    WRITING,
    Methods,
    call_with_elements,
    cannot_write,
    function_name,
    host_elements,
    into,
    said_options,
)
from cuzarr.errors import BudgetExceededError, DTypeMismatchError, UnsupportedError

# Functions that need only shape and type.
_ABOUT = frozenset(
    {
        np.shape,
        np.ndim,
        np.size,
        np.result_type,
        np.iscomplexobj,
        np.isrealobj,
        np.common_type,
        np.diag_indices_from,
        np.tril_indices_from,
        np.triu_indices_from,
    }
)
# Functions that NumPy implements with slices and ``transpose``. For a view they return a view.
_VIEWING = frozenset({np.transpose, np.moveaxis, np.flip, np.fliplr, np.flipud})
# Functions that return a Python bool.
_PREDICATES = frozenset({"allclose", "array_equal"})


def stored_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Applies a ufunc of NumPy to arrays in stores, or to views of them.

    The result is a plan if this library has the function, else NumPy's own result from all elements. Results that go into an
    array of NumPy (``out=``) are computed.

    Raises
    ------
    UnsupportedError
        The result would be written into a stored array.
    BudgetExceededError
        NumPy's function needs all elements, and they take more than the memory limit.
    """
    is_plain = method == "__call__" and not options
    # Operators with a NumPy array also call this, and NumPy does not distinguish them from functions. They make plans or are refused.
    may_be_sign = (
        is_plain and len(inputs) == 2 and isinstance(inputs[0], np.ndarray | np.generic) and ufunc.__name__ in SIGN_FUNCTIONS
    )
    is_here = is_plain and (ufunc is np.divmod or ufunc.__name__ in dispatch.functions)
    if of_elements_alone(inputs):
        may_be_sign = False
    has_arithmetic = all(is_computable(value.dtype) for value in inputs if isinstance(value, Lazy))
    if has_arithmetic and method == "__call__" and list(options) == ["out"] and ufunc.__name__ in dispatch.functions:
        (out,) = options["out"] if len(options["out"]) == 1 else (None,)
        if out is not None and all(value.device == "cpu" for value in inputs if isinstance(value, Lazy)):
            plan = dispatch.apply(ufunc.__name__, *inputs)
            if _takes(out, plan):
                return plan.compute(out=out)
    if not may_be_sign and not (is_here and has_arithmetic):
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        check_readable(name, [*inputs, *options.values()])
        return call_with_elements(ufunc, method, inputs, options)
    if ufunc is np.divmod:
        return dispatch.apply("floor_divide", *inputs), dispatch.apply("remainder", *inputs)
    return dispatch.apply(ufunc.__name__, *inputs)


def _takes(out: Any, plan: Any) -> bool:
    """Whether a plan can be computed directly into the caller's array ``out``, without a conversion."""
    is_fit = isinstance(out, np.ndarray) and out.flags.writeable and out.dtype.isnative and out.shape == tuple(plan.shape)
    return is_fit and np.can_cast(plan.dtype, out.dtype, "same_kind")


def of_elements_alone(values: Iterable[Any]) -> bool:
    """Whether only NumPy can compute with these values, because one of them is a stored array or a view with dates, text or structures.

    ``False`` if a plan is among them.
    """
    lazy = [value for value in values if isinstance(value, Lazy)]
    has_none = any(not is_computable(value.dtype) and not is_small(value.dtype) for value in lazy)
    return has_none and not any(value._is_plan for value in lazy)


def by_numpy(name: str, function: Callable[..., Any], values: tuple[Any, ...], **options: Any) -> Any:
    """Calls NumPy's own function with the elements of stored arrays, read into memory.

    Raises
    ------
    DTypeMismatchError
        NumPy's function does not support these elements.
    BudgetExceededError
        They take more than the memory limit.
    ImplicitHostCopyError
        Elements are on a GPU.
    """
    check_readable(name, values)
    elements = [host_elements(value) for value in values]
    try:
        return function(*elements, **options)
    except TypeError as error:
        types = " and ".join(str(np.asarray(value).dtype) for value in elements)
        raise DTypeMismatchError(f"{name} is not defined for elements of {types}: {error}") from error


def is_stored(value: Any) -> bool:
    """Whether ``value`` is a stored array, or a view of one."""
    return isinstance(value, Lazy) and not value._is_plan


def stored_inside(value: Any) -> Iterator[Any]:
    """The stored arrays and views among arguments, also inside lists."""
    if is_stored(value):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from stored_inside(one)


def _size_bytes(value: Any) -> int:
    return int(math.prod(value.shape) * value.dtype.itemsize)


def _limit_bytes() -> int:
    limit = config.get("memory_limit")
    return DEFAULT_MEMORY_LIMIT_BYTES if limit is None else int(limit)


def check_readable(name: str, values: Any) -> None:
    """Refuses to read all elements for a NumPy function, if they take more than the memory limit.

    Also refuses an array that was changed in the store after it was opened.

    Raises
    ------
    BudgetExceededError
    ArrayNotFoundError, ShapeMismatchError, DTypeMismatchError, InvalidArgumentError
    """
    found = list(stored_inside(list(values)))
    needed, limit = sum(map(_size_bytes, found)), _limit_bytes()
    if needed > limit:
        raise BudgetExceededError(
            f"numpy.{name} reads all elements of its arrays: {needed} bytes, the memory limit is {limit}",
            hint=f"read them first: numpy.{name} of x{found[0]._on_host}; or raise the limit: cuzarr.config.set(memory_limit=...)",
        )
    _core.check_unchanged([getattr(one, "_array", one)._handle() for one in found])  # for a view, its array


def _in_memory(value: Any, is_among_others: bool) -> Any:
    """Replaces stored arrays in an argument by their elements."""
    if is_stored(value):
        # Arrays of other libraries are among the arguments. They may be on the GPU that this array is read to.
        return value._elements_on(None) if is_among_others and value.device != "cpu" else host_elements(value)
    if isinstance(value, list | tuple):
        inside = [_in_memory(one, is_among_others) for one in value]
        return inside if isinstance(value, list) else tuple(inside)
    return value


def _value(result: Any, name: str) -> Any:
    """Computes a plan, or each plan in a tuple, and returns the elements. Any other value is returned unchanged.

    Raises
    ------
    BudgetExceededError
        They take more than the memory limit.
    """
    if isinstance(result, tuple):
        return tuple(_value(one, name) for one in result)
    if not isinstance(result, Lazy) or not result._is_plan:
        return result
    needed, limit = _size_bytes(result), _limit_bytes()
    if needed > limit:
        raise BudgetExceededError(
            f"numpy.{name} makes an array of {needed} bytes, the memory limit is {limit}",
            hint=f"use cuzarr.{name}, which makes a plan: .store(target) writes it; or raise the limit: cuzarr.config.set(memory_limit=...)",
        )
    return result._elements_on(None)


def _streamed(function: Callable[..., Any], name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Calls cuzarr's function of this name, which reads stored arrays region by region, and returns the value of the result.

    ``NotImplemented`` if there is no function for these arguments.
    """
    own = dispatch.functions.get(OTHER_NAMES.get(name, name))
    if own is None or getattr(np, name, None) is not function:
        return NotImplemented
    said = said_options(function, own, options)
    out = said.pop("out") if isinstance(said.get("out"), np.ndarray) else None
    try:
        inspect.signature(own).bind(*arguments, **said)
    except TypeError:
        return NotImplemented
    try:
        result = _value(own(*arguments, **said), OTHER_NAMES.get(name, name))
    except (UnsupportedError, DTypeMismatchError):
        return NotImplemented  # for strings, or rules that find bins, NumPy's function may work
    if name in _PREDICATES:
        return bool(result)
    return into(out, result, name)


def stored_function(x: Any, function: Any, types: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Applies a NumPy function to stored arrays. The result is computed at once, as for zarr-python's arrays.

    Functions that this library has, such as reductions and predicates, go through the arrays region by region. All others get
    the elements of whole arrays, within the memory limit.

    Raises
    ------
    BudgetExceededError
        NumPy's function needs all elements, and they take more than the memory limit.
    UnsupportedError
        The function writes into one of the arrays.
    ImplicitHostCopyError
        Elements are on a GPU.
    """
    if any(issubclass(kind, Lazy) and kind._is_plan for kind in types):
        return NotImplemented  # a function of plans and arrays gives a plan
    if function in SHARING:
        return False
    if function in _ABOUT:
        return function._implementation(*arguments, **options)
    name = function_name(function)
    targets = [options.get("out"), *(arguments[:1] if function in WRITING else ())]
    if any(True for _ in stored_inside(targets)):
        raise cannot_write(name, x)
    if function in _VIEWING and arguments and hasattr(type(arguments[0]), "transpose"):
        return function._implementation(*arguments, **options)
    others = [kind for kind in types if not issubclass(kind, Methods) and kind is not np.ndarray]
    # dask makes its own plans from its arguments.
    if all(kind.__module__.partition(".")[0] == "cupy" for kind in others):
        result = _streamed(function, name, arguments, options)
        if result is not NotImplemented:
            return result
    values = [*arguments, *options.values()]
    check_readable(name, values)
    read = [_in_memory(value, bool(others)) for value in values]
    return function(*read[: len(arguments)], **dict(zip(options, read[len(arguments) :], strict=True)))


class _OfClass:
    """Descriptor for ``__array_function__`` that gives the attribute to a class, but not to its objects.

    NumPy looks the attribute up in the class. xarray and dask look it up in the object, to find out whether that is an array in memory.
    They do not find it, and so read the elements, as for zarr-python's arrays.
    """

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is not None:
            raise AttributeError("__array_function__")
        return stored_function


class StoredProtocol:
    """Base class of stored arrays and views, by which NumPy's ufuncs and functions accept them."""

    # Gives our operators precedence over those of NumPy arrays, which would read all elements at once.
    __array_priority__ = 1000

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Makes a plan, as operators do, if cuzarr has the ufunc. Otherwise the ufunc gets all elements, as for zarr-python's arrays."""
        return stored_ufunc(ufunc, method, inputs, options)

    __array_function__: ClassVar[_OfClass] = _OfClass()

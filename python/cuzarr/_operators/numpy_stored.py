"""NumPy's functions of arrays in stores and of their views: streamed by this library's functions, or by NumPy's own of all elements."""

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

# Functions that look at shape and type alone.
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
# Functions that NumPy makes of slices and ``transpose``: of a view they are views.
_VIEWING = frozenset({np.transpose, np.moveaxis, np.flip, np.fliplr, np.flipud})
# Functions whose answer is a bool of Python's.
_PREDICATES = frozenset({"allclose", "array_equal"})


def stored_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Applies a ufunc of NumPy to arrays in stores, or to views of them.

    The result is a plan if this library has the function, else NumPy's own result from all elements. Results that go into an
    array of NumPy (``out=``) are computed.

    Raises
    ------
    UnsupportedError
        The result is to go into an array of a store.
    BudgetExceededError
        NumPy's function needs all elements, and they take more than the memory limit.
    """
    is_plain = method == "__call__" and not options
    # Python's signs beside an array of NumPy's come here, too: NumPy does not tell which it was. They make plans or are refused.
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
    """Whether this memory can have a plan's elements as they are computed."""
    is_fit = isinstance(out, np.ndarray) and out.flags.writeable and out.dtype.isnative and out.shape == tuple(plan.shape)
    return is_fit and np.can_cast(plan.dtype, out.dtype, "same_kind")


def of_elements_alone(values: Iterable[Any]) -> bool:
    """Whether one of these is an array in a store, or a view of one, whose elements only NumPy computes with: dates, text, structures. No
    plan may be among them."""
    lazy = [value for value in values if isinstance(value, Lazy)]
    has_none = any(not is_computable(value.dtype) and not is_small(value.dtype) for value in lazy)
    return has_none and not any(value._is_plan for value in lazy)


def by_numpy(name: str, function: Callable[..., Any], values: tuple[Any, ...], **options: Any) -> Any:
    """What a function of NumPy's gives for the elements of arrays in stores.

    Raises
    ------
    DTypeMismatchError
        NumPy has no such function of these elements.
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
    """Whether this is an array in a store, or a view of one."""
    return isinstance(value, Lazy) and not value._is_plan


def stored_inside(value: Any) -> Iterator[Any]:
    """The arrays in stores, and their views, among arguments and in lists of them."""
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
    """Refuses to read all elements of arrays for a function of NumPy's when they take more than the memory limit, or when an array is
    not stored as it was opened.

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
    _core.check_unchanged([getattr(one, "_array", one)._handle() for one in found])  # of a view its array


def _in_memory(value: Any, is_among_others: bool) -> Any:
    """An argument with elements in the place of arrays in stores."""
    if is_stored(value):
        # Arrays of other libraries take part: theirs may be on the GPU that this one reads to.
        return value._elements_on(None) if is_among_others and value.device != "cpu" else host_elements(value)
    if isinstance(value, list | tuple):
        inside = [_in_memory(one, is_among_others) for one in value]
        return inside if isinstance(value, list) else tuple(inside)
    return value


def _value(result: Any, name: str) -> Any:
    """The elements of a plan, and of plans in a tuple.

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
    """The value that this library's function of the name gives, region by region; ``NotImplemented`` where it has none for such arguments."""
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
        return NotImplemented  # strings, rules that find bins: NumPy's function may have them
    if name in _PREDICATES:
        return bool(result)
    return into(out, result, name)


def stored_function(x: Any, function: Any, types: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Applies a function of NumPy to arrays in stores. The result is a value, as it is for arrays of zarr-python.

    Reductions, predicates and others that this library has go through the arrays region by region. All else gets the elements
    of whole arrays, within the memory limit.

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
        return NotImplemented  # functions of plans and arrays are plans
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
    # dask makes plans of its own of what it is given.
    if all(kind.__module__.partition(".")[0] == "cupy" for kind in others):
        result = _streamed(function, name, arguments, options)
        if result is not NotImplemented:
            return result
    values = [*arguments, *options.values()]
    check_readable(name, values)
    read = [_in_memory(value, bool(others)) for value in values]
    return function(*read[: len(arguments)], **dict(zip(options, read[len(arguments) :], strict=True)))


class _OfClass:
    """``__array_function__``, which the class has and its objects have not.

    NumPy asks the class. xarray and dask ask the object whether its functions are those of an array in memory, which it is not:
    they read its elements, as they read those of zarr-python's arrays.
    """

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is not None:
            raise AttributeError("__array_function__")
        return stored_function


class StoredProtocol:
    """How NumPy's functions treat arrays in stores and their views."""

    # Signs make plans, also beside NumPy's arrays, which would read this one at once.
    __array_priority__ = 1000

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions of elements make plans where this library has them, as signs do; all others read the elements, as they read
        arrays of zarr-python."""
        return stored_ufunc(ufunc, method, inputs, options)

    __array_function__: ClassVar[_OfClass] = _OfClass()

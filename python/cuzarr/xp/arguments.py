"""Checks and converts the array arguments of functions, and gives results the array type of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, overload

import numpy as np

from cuzarr._checks import axis_number
from cuzarr._compute.operands import dimension_names
from cuzarr._memory.convert import result_array
from cuzarr._memory.device_array import DeviceArray, device_array
from cuzarr._memory.foreign import host_array, is_on_device, numpy_view
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import UnsupportedError

X = "x : array\n    Elements in memory of any device, an array in a store, or a plan."
"""Description of the parameter ``x``, for docstrings of functions that take arrays of every kind."""

LIKE_X = "array or Expression\n    An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan."
"""Description of what a function returns, for the docstrings of functions that take arrays of every kind."""

NO_DIMENSION = "InvalidArgumentError\n    There is no such dimension."
"""Description of the error for a missing dimension, for docstrings of functions that take arrays of every kind."""

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, Expression, MemoryArray

    Rest = ParamSpec("Rest")

    class Planned(Protocol[Rest]):
        """Type of a function that returns a plan for a stored array or a plan, and computes at once for an array in memory."""

        @overload
        def __call__(self, x: Lazy, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Expression: ...
        @overload
        def __call__(self, x: ArrayLike, /, *args: Rest.args, **kwargs: Rest.kwargs) -> MemoryArray: ...

    class PlannedPair(Protocol[Rest]):
        """Type of a function of two operands, like :class:`Planned` for one: it returns a plan if an operand is a stored array or a
        plan."""

        @overload
        def __call__(self, x1: Lazy, x2: ArrayLike, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Expression: ...
        @overload
        def __call__(self, x1: ArrayLike, x2: Lazy, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Expression: ...
        @overload
        def __call__(self, x1: ArrayLike, x2: ArrayLike, /, *args: Rest.args, **kwargs: Rest.kwargs) -> MemoryArray: ...

    class PlannedList(Protocol[Rest]):
        """Type of a function of a sequence of arrays, like :class:`Planned` for one array: it returns a plan if they are stored arrays or
        plans."""

        @overload
        def __call__(self, arrays: Sequence[Lazy], /, *args: Rest.args, **kwargs: Rest.kwargs) -> Expression: ...
        @overload
        def __call__(self, arrays: Sequence[ArrayLike], /, *args: Rest.args, **kwargs: Rest.kwargs) -> MemoryArray: ...


def planned(function: Callable[Concatenate[ArrayLike, Rest], Any]) -> Planned[Rest]:
    """Tells type checkers that a function returns a plan for a stored array."""
    return function  # type: ignore[return-value]


def planned_pair(function: Callable[Concatenate[ArrayLike, ArrayLike, Rest], Any]) -> PlannedPair[Rest]:
    """Tells type checkers, like :func:`planned`, that a function of two operands returns a plan if one of them is a stored array or a
    plan."""
    return function  # type: ignore[return-value]


def planned_list(function: Callable[Concatenate[Sequence[ArrayLike], Rest], Any]) -> PlannedList[Rest]:
    """Tells type checkers, like :func:`planned`, that a function of several arrays returns a plan if they are stored arrays or plans."""
    return function  # type: ignore[return-value]


def array(x: Any, name: str) -> Any:
    """Returns an array of any kind unchanged, and converts any other value to a NumPy array."""
    return x if hasattr(x, "shape") and not isinstance(x, np.generic) else host_array(x, name)


def refuse_lazy(x: Any, name: str) -> None:
    """Refuses stored arrays and plans.

    Raises
    ------
    UnsupportedError
    """
    if isinstance(x, Lazy):
        elements = "x.compute()" if x._is_plan else "x[...]"
        raise UnsupportedError(f"{name} takes no arrays in stores, and no plans", hint=f"pass the elements: {elements}")


def in_memory(x: Any, name: str) -> np.ndarray[Any, Any] | DeviceArray:
    """Returns the elements of an argument without a copy: a NumPy array on the host, a :class:`DeviceArray` on a GPU.

    Raises
    ------
    UnsupportedError
        The elements are in a store, or yet to be computed.
    """
    refuse_lazy(x, name)
    if not is_on_device(x):
        return host_array(x, name)
    own = device_array(x)
    return numpy_view(own._buffer, own.dtype) if own.device == "cpu" else own


def like(result: np.ndarray[Any, Any] | DeviceArray, x: Any) -> Any:
    """Converts a result to the array type that a caller expects for the argument ``x``.

    For a :class:`DeviceArray`, the result is also a :class:`DeviceArray`. Otherwise it is of the kind that reads return: CuPy's if CuPy
    is installed.
    """
    return (
        result_array(result._buffer, result.dtype)
        if isinstance(result, DeviceArray) and not isinstance(x, DeviceArray)
        else result
    )


def along(x: Any, axis: int | str | None, name: str) -> tuple[np.ndarray[Any, Any] | DeviceArray, int]:
    """Returns the elements of an argument in memory, and the number of the dimension ``axis``. Without ``axis``, the elements are flattened
    in C order."""
    own = in_memory(x, name)
    return (own.reshape(-1), 0) if axis is None else (own, axis_number(axis, own.ndim, dimension_names(x)))

"""Checks arguments of public functions. Errors of Python and NumPy become errors of cuzarr, which name the argument."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from cuzarr._names import did_you_mean
from cuzarr._numpy import parse_type
from cuzarr.errors import (
    ArgumentTypeError,
    CuzarrError,
    InvalidArgumentError,
    OutOfMemoryError,
    OutOfRangeError,
    UnsupportedFeatureError,
)


@contextlib.contextmanager
def refusing(what: str, hint: str | None = None) -> Iterator[None]:
    """Turns errors of Python and NumPy inside the ``with`` block into errors of cuzarr that name the argument ``what``.

    Each new error derives from the built-in class of the error that it replaces.

    Raises
    ------
    ArgumentTypeError, OutOfRangeError, InvalidArgumentError, OutOfMemoryError
    """
    try:
        yield
    except CuzarrError:
        raise
    except (TypeError, AttributeError) as error:
        raise ArgumentTypeError(f"{what}: {error}", hint=hint) from error
    except OverflowError as error:
        raise OutOfRangeError(f"{what}: {error}", hint=hint) from error
    except ValueError as error:
        raise InvalidArgumentError(f"{what}: {error}", hint=hint) from error
    except MemoryError as error:
        raise OutOfMemoryError(f"{what}: {error}", hint=hint) from error


def whole(value: Any, what: str, least: int | None = None, hint: str | None = None) -> int:
    """Converts an argument to an ``int``. Refuses values that are not whole numbers, or below ``least``.

    Raises
    ------
    ArgumentTypeError, InvalidArgumentError
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{what} is {value!r}, expected a whole number", hint=hint) from None
    if least is not None and number < least:
        raise InvalidArgumentError(f"{what} is {number}, expected at least {least}", hint=hint)
    if not -(1 << 63) <= number < 1 << 64:
        raise OutOfRangeError(f"{what} is {number}, expected a number of 64 bits", hint=hint)
    return number


def items(value: Any, what: str, expected: str) -> tuple[Any, ...]:
    """Converts a list or another iterable to a tuple. Refuses text and dictionaries.

    Raises
    ------
    ArgumentTypeError
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ArgumentTypeError(f"{what} is {value!r}, expected {expected}")
    return tuple(value)


def dictionary(value: Any, what: str) -> dict[Any, Any]:
    """Copies a mapping to a dictionary. Refuses other values.

    Raises
    ------
    ArgumentTypeError
    """
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"{what} is {value!r}, expected a dictionary")
    return dict(value)


def function(value: Any, what: str) -> Any:
    """Returns an argument unchanged if it can be called, as a function can; refuses any other value.

    Raises
    ------
    ArgumentTypeError
    """
    if not callable(value):
        raise ArgumentTypeError(f"{what} is {value!r}, expected a function")
    return value


@functools.cache
def parameters(*functions: Callable[..., Any]) -> tuple[str, ...]:
    """The names of all parameters of these functions, except ``self``, ``*args`` and ``**kwargs``."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = (inspect.signature(function).parameters.values() for function in functions)
    names = (parameter.name for each in found for parameter in each if parameter.kind in named)
    return tuple(dict.fromkeys(name for name in names if name != "self"))


def check_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses keyword arguments that a function does not have. Otherwise a misspelt one would be ignored silently.

    Raises
    ------
    ArgumentTypeError
        The hint is the nearest known name.
    """
    known = tuple(known)
    for name in given:
        if name not in known:
            raise ArgumentTypeError(f"{function} has no argument '{name}'", hint=did_you_mean(name, known))


def element_type(dtype: Any, hint: str | None = None) -> np.dtype[Any]:
    """Converts anything that ``numpy.dtype`` accepts to a NumPy dtype. Refuses other values with an error of cuzarr.

    Raises
    ------
    ArgumentTypeError, InvalidArgumentError, DataTypeValidationError
    """
    with refusing("dtype", hint or "name it as NumPy does: 'float32'"):
        return parse_type(dtype)


def extents(shape: Any, what: str = "shape") -> tuple[int, ...]:
    """Converts an argument such as ``shape``, a number or an iterable of numbers, to a tuple. Refuses negative numbers.

    Raises
    ------
    ArgumentTypeError, OutOfRangeError, InvalidArgumentError
    """
    if isinstance(shape, Iterable):
        return tuple(whole(extent, what, 0) for extent in items(shape, what, "whole numbers"))
    return (whole(shape, what, 0),)


def axis_number(axis: Any, ndim: int, names: Sequence[str | None] | None = None) -> int:
    """The number of a dimension that is given by name, or by number (negative numbers count from the end).

    Raises
    ------
    InvalidArgumentError, ArgumentTypeError
        There is no such dimension.
    """
    if isinstance(axis, str):
        if names is None or axis not in names:
            known = ", ".join(repr(name) for name in names or () if name is not None)
            hint = f"its dimensions are {known}" if known else "number its dimensions from 0: it has no dimension names"
            raise InvalidArgumentError(f"no dimension of the array is called {axis!r}", hint=hint)
        return names.index(axis)
    try:
        number = operator.index(axis)
    except TypeError:
        hint = "pass a number, a name, a tuple of them, or None for all dimensions"
        raise ArgumentTypeError(f"axis is {axis!r}, expected a dimension of the array", hint=hint) from None
    if not -ndim <= number < ndim:
        raise InvalidArgumentError(f"axis {number} is out of range for an array of {ndim} dimensions")
    return number % ndim


# Limits of NumPy and Python: dimensions of an array, and the longest extent that can be indexed. The Rust side refuses more, too.
MAX_NDIM = 64 if int(np.__version__.split(".")[0]) >= 2 else 32


MAX_EXTENT = (1 << 63) - 1


def parse_shape(shape: object) -> tuple[int, ...]:
    """Converts an argument such as ``shape``, a number or an iterable of numbers, to a tuple. Refuses negative numbers."""
    # Lists are tested first, because a test for a protocol takes twenty times longer.
    if not isinstance(shape, list | tuple) and isinstance(shape, SupportsIndex) and not hasattr(shape, "__len__"):
        shape = (shape,)
    try:
        extents = tuple(map(operator.index, shape))  # type: ignore[call-overload]
    except TypeError as error:
        raise TypeError(f"shape is {shape!r}, expected an integer or an iterable of integers") from error
    if len(extents) > MAX_NDIM:
        raise UnsupportedFeatureError(
            f"got {len(extents)} dimensions, NumPy {np.__version__} has at most {MAX_NDIM}",
            hint="install NumPy 2" if len(extents) <= 64 else None,
        )
    if min(extents, default=0) < 0:
        raise InvalidArgumentError(f"shape is {extents}, expected no negative extents")
    if max(extents, default=0) > MAX_EXTENT:
        raise InvalidArgumentError("shape has an extent above 2^63 - 1")
    return extents


Axis = int | str | tuple[int | str, ...] | None


def axis_of(axis: Any, ndim: int) -> Any:
    """Returns the argument ``axis`` unchanged. For an array without dimensions, 0 and -1 become ``None`` (all), because many NumPy
    functions accept them."""
    is_first = not ndim and isinstance(axis, int | np.integer) and axis in (0, -1)
    return None if is_first else axis


def axes_of(axis: Axis | Iterable[int | str], ndim: int, names: Sequence[str | None] | None = None) -> list[int] | None:
    """Converts dimensions that are given by number or name to numbers, counted from the first; ``None`` stands for all dimensions.

    Raises
    ------
    InvalidArgumentError
        There is no such dimension.
    """
    if axis is None:
        return None
    several = isinstance(axis, Iterable) and not isinstance(axis, str | bytes)
    return [axis_number(one, ndim, names) for one in (axis if several else (axis,))]  # type: ignore[union-attr]

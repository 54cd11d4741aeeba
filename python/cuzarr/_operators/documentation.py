"""Docstrings of functions that take the same arguments: what they share is written once, and added when they are defined."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_HEADING = re.compile(r"^(Parameters|Returns|Raises|Examples)\n-+\n", re.MULTILINE)
_ENTRY = re.compile(r"\n(?=\S)")

# Parameters of reductions, which are functions and methods of arrays.
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


def completing(parameters: Mapping[str, str], returns: str = "", raises: str = "") -> Callable[[F], F]:
    """A decorator that completes docstrings.

    A function describes in its docstring what is its own. Its other parameters are described by ``parameters``; the sections on what it
    returns and raises are ``returns`` and ``raises`` unless it has its own.

    >>> from cuzarr._operators.documentation import completing
    >>> @completing({"x": "x : int\\n    A number."}, returns="int")
    ... def twice(x):
    ...     '''Two times a number.'''
    >>> print(twice.__doc__)
    Two times a number.
    <BLANKLINE>
    Parameters
    ----------
    x : int
        A number.
    <BLANKLINE>
    Returns
    -------
    int
    """

    def complete(function: F) -> F:
        text = function.__doc__
        if text is None:  # `python -OO`
            return function
        # Since Python 3.13 docstrings are not indented.
        about, *rest = _HEADING.split(text if sys.version_info >= (3, 13) else inspect.cleandoc(text))
        own = {heading: section.strip() for heading, section in zip(rest[::2], rest[1::2], strict=True)}
        described = _by_name(own.pop("Parameters", ""))
        entries = []
        for name in _arguments(function):
            entry = described.get(name) or parameters[name]
            if entry not in entries:
                entries.append(entry)
        sections = {"Parameters": "\n".join(entries), "Returns": returns, "Raises": raises} | own
        parts = (f"{heading}\n{'-' * len(heading)}\n{section}" for heading, section in sections.items() if section)
        function.__doc__ = "\n\n".join((about.strip(), *parts))
        return function

    return complete


def _by_name(section: str) -> dict[str, str]:
    """The entries of a section on parameters, by the names that each describes."""
    entries = _ENTRY.split(section) if section else []
    return {name.strip().lstrip("*"): entry for entry in entries for name in entry.split("\n")[0].split(" :")[0].split(",")}


def _arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters in their order; a method's without its object."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:count] if not code.co_flags & inspect.CO_VARARGS else code.co_varnames[: count + 1]
    return names[1:] if names[:1] == ("self",) else names

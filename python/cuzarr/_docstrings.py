"""Completes docstrings: adds the descriptions of parameters, results and errors that functions and methods share.

Methods of one class take the same parameters, and their examples use the same object. The description of such a parameter, and
the lines that make the object, are written once, above the class. A method's own docstring has only the rest: its meaning, other
parameters, its result if the annotation is not enough, and an example. :func:`documented` adds the rest when the class is defined, so
that ``help`` shows everything for each method.

>>> import cuzarr
>>> text = cuzarr.Group.get_array.__doc__
>>> print(text[text.index("Parameters") :][:63])
Parameters
----------
path : str
    The path below this group,
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Texts = Mapping[str, str]


class _Shared(NamedTuple):
    parameters: Texts
    setup: str
    errors: Texts
    results: Texts


_SECTIONS = ("Parameters", "Returns", "Yields", "Raises", "Attributes", "Notes", "Examples")
_HEADINGS = {name: f"\n\n{name}\n{'-' * len(name)}\n" for name in _SECTIONS}


def documented(shared: str, errors: Texts | None = None, results: Texts | None = None) -> Callable[[T], T]:
    """A decorator that completes the docstrings of a class and its methods. Modules call it with ``globals()`` for their functions.

    Parameters
    ----------
    shared : str
        Descriptions of parameters, written as in a docstring. A method that takes such a parameter and does not describe it gets the
        text. Below the descriptions, lines to put before each example, unless the example begins with an import.
    errors : dict, optional
        The errors that a parameter may cause, written as in a docstring. A method that takes the parameter and lists no errors gets them.
    results : dict, optional
        Descriptions of results, by annotation. For other results that a method does not describe, only the annotation is shown.
    """
    parameters, prompt, setup = inspect.cleandoc(shared).partition(">>> ")
    texts = _Shared(_entries(parameters), prompt + setup, errors or {}, results or {})

    def complete(owner: T) -> T:
        for function in _functions(owner):
            function.__doc__ = _completed(function, owner, texts)
        if isinstance(owner, type):
            complete_class(owner, "", texts.setup.partition("\n")[0])
        return owner

    return complete


def complete_class(cls: type, errors: str, setup: str) -> None:
    """Completes a class's docstring by what it shares with similar classes: the errors that they raise, and the first lines of examples."""
    if ">>> " in (cls.__doc__ or ""):
        sections = {"Raises": errors} | _sections(clean(cls.__doc__))
        cls.__doc__ = _joined(sections | {"Examples": _with_setup(sections.get("Examples", ""), setup)})


def completing(parameters: Texts, returns: str = "", raises: str = "") -> Callable[[F], F]:
    """A decorator that completes a function's docstring by what it shares with similar functions.

    It adds descriptions of the parameters that the function does not describe, and the results and errors that all
    functions of the family share.

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
    <BLANKLINE>
    """

    def complete(function: F) -> F:
        if isinstance(function, FunctionType) and function.__doc__ is not None:  # `python -OO` removes docstrings
            sections = {"Returns": returns, "Raises": raises} | _sections(clean(function.__doc__))
            entries = dict(parameters) | _entries(sections.get("Parameters", ""))
            sections["Parameters"] = "\n".join(dict.fromkeys(entries[name] for name in _names(function)))
            function.__doc__ = _joined(sections)
        return function

    return complete


def clean(text: str | None) -> str:
    """Removes the source's indentation from a docstring, as Python 3.13 does by itself. Empty if docstrings were removed."""
    return text or "" if sys.version_info >= (3, 13) else inspect.cleandoc(text or "")


def _functions(owner: Any) -> Iterator[FunctionType]:
    """Functions and methods of a class or module that users call: those whose docstrings have an example."""
    members = [owner] if isinstance(owner, FunctionType) else (owner if isinstance(owner, dict) else vars(owner)).values()
    for member in list(members):
        function = getattr(member, "__func__", member)
        is_shown = isinstance(function, FunctionType) and ">>> " in (function.__doc__ or "")
        if is_shown and (not isinstance(owner, dict) or function.__module__ == owner["__name__"]):
            yield function


def _completed(function: FunctionType, owner: Any, texts: _Shared) -> str:
    sections = _sections(clean(function.__doc__))
    names = _names(function)
    if not texts.parameters.keys().isdisjoint(names):
        own = _entries(sections["Parameters"]) if "Parameters" in sections else {}
        entries = {(own.get(name) or texts.parameters.get(name)): None for name in names} | dict.fromkeys(own.values())
        entries.pop(None, None)
        sections["Parameters"] = "\n".join(entries)
    result = function.__annotations__.get("return")
    if "Returns" not in sections and "Yields" not in sections and result not in (None, "None"):
        sections["Returns"] = str(result).replace("Self", getattr(owner, "__name__", ""))
        if result in texts.results:
            sections["Returns"] += f"\n    {texts.results[result]}"
    if "Raises" not in sections and (raised := [texts.errors[name] for name in names if name in texts.errors]):
        sections["Raises"] = "\n".join(raised)
    sections["Examples"] = _with_setup(sections["Examples"], texts.setup)
    return _joined(sections)


def _with_setup(example: str, setup: str) -> str:
    is_bare = setup and example.startswith(">>> ") and not example.startswith(">>> import ")
    return f"{setup}\n{example}" if is_bare else example


def follow(twin: Any, original: Any, path: str, place: str, *, errors: tuple[str, str] = ("", "")) -> None:
    """Gives an asynchronous function the docstring of its synchronous form. Sections of its own docstring are kept.

    Parameters
    ----------
    twin, original : function
        The asynchronous function, and the blocking one.
    path : str
        The original's public path.
    place : str
        In examples, the object whose method the twin is; ``{}`` stands for the object of the original's example.
    errors : (str, str)
        The name of an error of the original, and the name of the error that the twin raises instead.
    """
    own, sections = _sections(clean(twin.__doc__)), _sections(clean(original.__doc__))
    is_awaited = bool(twin.__code__.co_flags & inspect.CO_COROUTINE)
    is_listed = bool(twin.__code__.co_flags & inspect.CO_ASYNC_GENERATOR)
    called = "asyncio.run({})" if is_awaited else "asyncio.run(listed({}))" if is_listed else "{}"
    example = sections.get("Examples", "")
    if "asyncio" not in example:
        of = "{}" if "{}" in place else path.rpartition(".")[0]
        example = _calls(example, of, original.__name__, f"{place}.{twin.__name__}", called)
        if is_awaited or is_listed:
            example = example.replace(">>> import ", ">>> import asyncio, ", 1)
    sections["Examples"] = example.replace("\n", _LISTED, 1) if is_listed else example
    sections["Raises"] = sections.get("Raises", "").replace(*errors)
    if "Returns" in sections:
        sections["Returns"] = _result_of_twin(sections["Returns"], is_listed)
    if "Parameters" in own:
        entries = _entries(sections.get("Parameters", "")) | _entries(own["Parameters"])
        own["Parameters"] = "\n".join(dict.fromkeys(entries[name] for name in _names(twin) if name in entries))
    sections |= {name: section for name, section in own.items() if section}
    if is_awaited or is_listed:
        sections[""] += "\n\nThis call is awaited." if is_awaited else "\n\nThe items are listed by ``async for``."
        sections[""] += f" Its synchronous form is :meth:`{path}`."
    twin.__doc__ = _joined(sections)


_LISTED = """
>>> async def listed(items):
...     return [item async for item in items]
"""


def _result_of_twin(section: str, is_listed: bool) -> str:
    result, newline, meaning = section.partition("\n")
    result = re.sub(r"\b(Array|Group|Generator|Iterator)\b", r"Async\1", result)
    if is_listed and result.startswith(("tuple of", "iterator of", "list of")):
        result = f"asynchronous iterator of{result.partition(' of')[2]}"
    return result + newline + meaning


def _calls(example: str, of: str, name: str, path: str, called: str) -> str:
    """Rewrites a docstring's example for the asynchronous form of a method: replaces each call of the method ``name`` by an awaited call.
    Only calls of the object ``of`` are replaced (``"{}"``: any object); ``path`` becomes the function, and ``called`` the code around its
    call."""
    done = ""
    while (dot := example.find(f".{name}(")) >= 0:
        start, stop = _object_start(example, dot), dot + len(name) + 2
        while example.count("(", dot, stop) > example.count(")", dot, stop):
            stop = example.index(")", stop) + 1
        call = example[start:stop]
        if of == example[start:dot] or (of == "{}" and example[start:dot] != "cuzarr"):
            call = called.format(path.format(example[start:dot]) + example[dot + len(name) + 1 : stop])
        done, example = done + example[:start] + call, example[stop:]
    return done + example


def _object_start(example: str, dot: int) -> int:
    """The position in the code ``example`` at which an expression begins, such as ``a[0]`` in ``a[0].get()``, given the position ``dot`` of
    the dot behind it."""
    if example[dot - 1] not in ")]":
        return max(example.rfind(one, 0, dot) for one in " ,=([\n") + 1
    depth = 0
    for place in range(dot - 1, -1, -1):
        depth += (example[place] in ")]}") - (example[place] in "([{")
        if depth < 0 or (not depth and example[place] in " ,=\n"):
            return place + 1
    return 0


def _joined(sections: Mapping[str, str]) -> str:
    text = sections[""]
    for name, heading in _HEADINGS.items():
        if sections.get(name):
            text += heading + sections[name]
    return text + "\n"


def _sections(text: str) -> dict[str, str]:
    """Splits a docstring into sections by heading. The text before the first heading has the key ``""``. An example needs no heading."""
    found, rest = {}, text.rstrip()
    for name in reversed(_SECTIONS):
        before, heading, section = rest.partition(_HEADINGS[name])
        if heading:
            rest, found[name] = before, section
        elif name == "Examples":
            before, heading, section = rest.partition("\n\n>>> ")
            if heading:
                rest, found[name] = before, f">>> {section}"
    return found | {"": rest}


def described(text: str) -> list[str]:
    """Names of the parameters that a docstring describes."""
    return list(_entries(_sections(text).get("Parameters", "")))


def _entries(text: str) -> dict[str, str]:
    """Splits the section ``Parameters`` of a docstring: the description of each parameter, by name. Some parameters share one text."""
    found: dict[str, str] = {}
    for part in text.replace("\n ", "\0").split("\n"):
        entry = part.replace("\0", "\n ")
        for name in entry.partition("\n")[0].partition(" :")[0].split(","):
            found[name.strip(" *")] = entry
    found.pop("", None)
    return found


def _names(function: FunctionType) -> tuple[str, ...]:
    """Names of a function's parameters, without ``self``."""
    code = function.__code__
    positional, keyword = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    behind = keyword + bool(code.co_flags & inspect.CO_VARARGS)
    names = code.co_varnames
    first = 1 if names[:1] in (("self",), ("cls",)) else 0
    end = behind + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return names[first:positional] + names[keyword:behind] + names[positional:keyword] + names[behind:end]

"""Every public callable documents its parameters, its result, its errors and an example. Examples are run by `test_examples.py`, and
those of functions that are made by calls here."""

from __future__ import annotations

import doctest
import enum
import inspect
import pathlib
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import cuzarr
from cuzarr import _docstrings

WEBSITE = pathlib.Path(__file__).parents[2] / "scripts" / "website"
if not WEBSITE.exists():
    pytest.skip("skipped: the lists of public names lie where the sources are", allow_module_level=True)
pytest.importorskip("griffe", reason="skipped: `make docs` installs what reads the sources")
sys.path.insert(0, str(WEBSITE))
import api  # noqa: E402

SECTIONS = ("Parameters", "Returns", "Raises", "Examples")


def is_called(value: Any) -> bool:
    """Whether users call it: not errors, which they catch, nor choices, protocols and aliases of types, which they name."""
    if not inspect.isclass(value):
        return inspect.isroutine(value) or isinstance(value, cuzarr.xp.elementwise.Function)
    return not (issubclass(value, BaseException | enum.Enum) or typing.is_protocol(value) or typing.is_typeddict(value))


def public() -> Iterator[tuple[str, Any]]:
    """Public callables by their path, each once."""
    for page in api.PAGES:
        module = api.load(page.module)
        for name in api.canonical(page) if module is not None else ():
            if is_called(value := getattr(module, name)):
                yield api.path_of(page, name), value


def needed(value: Any) -> list[str]:
    """The sections that a docstring must have."""
    parameters = list(inspect.signature(value).parameters)
    wanted = set(SECTIONS)
    if not parameters:
        wanted.discard("Parameters")
    if inspect.isclass(value):
        wanted.discard("Returns")
    return [section for section in SECTIONS if section in wanted]


def missing(value: Any) -> list[str]:
    text = inspect.getdoc(value) or ""
    return [section for section in needed(value) if f"{section}\n{'-' * len(section)}\n" not in text + "\n"]


def test_every_public_callable_documents_itself() -> None:
    found = dict(public())
    assert len(found) > 250
    assert {path: lacks for path, value in found.items() if (lacks := missing(value))} == {}


def test_first_sentences_name_their_subject() -> None:
    stacked = ("The same", "As ", "What of", "Of ", "As:", "What ")
    assert [path for path, value in public() if (inspect.getdoc(value) or "").startswith(stacked)] == []


def test_examples_of_functions_of_elements_run() -> None:
    runner, parser = doctest.DocTestRunner(), doctest.DocTestParser()
    functions = {
        id(value): value for value in vars(cuzarr.xp.elementwise).values() if isinstance(value, cuzarr.xp.elementwise.Function)
    }
    for function in functions.values():
        runner.run(parser.get_doctest(function.__doc__ or "", {}, function.__name__, None, 0))
    assert len(functions) > 60
    assert runner.summarize(verbose=False).failed == 0


def public_methods() -> Iterator[tuple[str, str]]:
    """Methods and properties of public classes by name, and what their docstrings say. Inherited ones count once."""
    seen = set()
    for _, value in public():
        for name in dir(value) if inspect.isclass(value) else ():
            member = inspect.getattr_static(value, name)
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if name.startswith("_") or not inspect.isfunction(function) or function in seen:
                continue
            if function.__module__.startswith("cuzarr"):
                seen.add(function)
                yield (
                    f"{value.__name__}.{name}",
                    inspect.getdoc(member if isinstance(member, property) else getattr(value, name)) or "",
                )


def test_methods_begin_with_what_they_do() -> None:
    documented = dict(public_methods())
    assert len(documented) > 400
    stacked = ("The same", "As ", "What of", "Of ", "As:", "What ")
    assert [name for name, text in documented.items() if not text or text.startswith(stacked)] == []


# Methods that users call by brackets and parentheses. The site shows those that are documented.
BY_SIGNS = ("__call__", "__getitem__", "__setitem__", "__delitem__", "__contains__")


def methods() -> Iterator[tuple[str, Any]]:
    """Public methods of this package's public classes, each once; properties are named by one sentence."""
    seen = set()
    for owner in (*(value for _, value in public()), type(cuzarr.config)):
        for name in dir(owner) if inspect.isclass(owner) else ():
            member = inspect.getattr_static(owner, name)
            function = getattr(member, "__func__", member)
            is_shown = not name.startswith("_") or (name in BY_SIGNS and member.__doc__)
            if not is_shown or not inspect.isfunction(function) or function in seen:
                continue
            if function.__module__.startswith("cuzarr"):
                seen.add(function)
                yield f"{owner.__module__}.{owner.__name__}.{name}", getattr(owner, name)


def test_methods_document_parameters_and_results_and_show_an_example() -> None:
    found = dict(methods())
    assert len(found) > 320
    lacking = []
    for path, method in found.items():
        text = inspect.getdoc(method) or ""
        takes_arguments = any(name != "self" for name in inspect.signature(method).parameters)
        if takes_arguments and "Parameters\n----------\n" not in text:
            lacking.append(f"{path}: Parameters")
        if inspect.signature(method).return_annotation not in ("None", None) and "Returns\n-------\n" not in text:
            lacking.append(f"{path}: Returns")
        if ">>>" not in text:
            lacking.append(f"{path}: an example")
    assert lacking == []


def test_methods_describe_every_parameter() -> None:
    missing = {}
    for path, method in methods():
        described = _docstrings.described(inspect.getdoc(method) or "")
        names = [name for name in inspect.signature(method).parameters if name not in ("self", *described)]
        if names and "..." not in described:
            missing[path] = names
    assert missing == {}


def test_examples_of_methods_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner, parser, count = doctest.DocTestRunner(), doctest.DocTestParser(), 0
    for path, method in methods():
        examples = parser.get_doctest(inspect.getdoc(method) or "", {}, path, None, 0)
        count += len(examples.examples)
        runner.run(examples)
    assert count > 900
    assert runner.summarize(verbose=False).failed == 0


def test_asynchronous_twins_say_that_they_are_awaited_and_their_examples_await() -> None:
    functions = {name: getattr(cuzarr.api.asynchronous, name) for name in cuzarr.api.asynchronous.__all__}
    for twin in (cuzarr.AsyncArray, cuzarr.AsyncGroup):
        functions |= {f"{twin.__name__}.{name}": getattr(twin, name) for name in dir(twin) if not name.startswith("_")}
    awaited = {name: call for name, call in functions.items() if inspect.iscoroutinefunction(call)}
    listed = {name: call for name, call in functions.items() if inspect.isasyncgenfunction(call)}
    assert len(awaited) > 60
    assert len(listed) > 8
    lacking = [name for name, call in awaited.items() if "awaited." not in (inspect.getdoc(call) or "")]
    lacking += [name for name, call in listed.items() if "by ``async for``" not in (inspect.getdoc(call) or "")]
    for name, call in (awaited | listed).items():
        example = (inspect.getdoc(call) or "").partition("Examples\n--------\n")[2]
        if "asyncio.run(" not in example and "copy_" not in name:
            lacking.append(f"{name}: {example}")
    assert lacking == []

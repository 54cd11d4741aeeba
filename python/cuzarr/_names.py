"""Suggestions for misspelt names, and the public paths of classes and functions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable
from types import ModuleType
from typing import Any

import numpy as np

from cuzarr import _core


def did_you_mean(name: object, known: Iterable[str]) -> str | None:
    """A hint that suggests the known name nearest to a wrong one; ``None`` if no name is similar.

    >>> from cuzarr._names import did_you_mean
    >>> did_you_mean("flaot32", ["float32", "float64"])
    "did you mean 'float32'?"
    """
    near = _core.nearest(name, list(known)) if isinstance(name, str) else None
    return None if near is None else f"did you mean '{near}'?"


def missing_from(module: str, beside: ModuleType | None = None) -> Callable[[str], None]:
    """Makes a module's ``__getattr__``, which raises an error that suggests a similar name for a name that the module lacks.

    For NumPy's functions, the error names the place of the function: the module ``beside`` or another library. For a misspelt name, it
    suggests the right one.

    >>> import cuzarr
    >>> cuzarr.sort
    Traceback (most recent call last):
    AttributeError: module 'cuzarr' has no 'sort': use cuzarr.xp.sort
    >>> cuzarr.degrees
    Traceback (most recent call last):
    AttributeError: module 'cuzarr' has no 'degrees': use CuPy's of arrays on a GPU, which it takes without copying, or NumPy's
    >>> cuzarr.open_grop
    Traceback (most recent call last):
    AttributeError: module 'cuzarr' has no attribute 'open_grop': did you mean 'open_group'?
    """

    def missing(name: str) -> None:
        message = f"module '{module}' has no attribute '{name}'"
        if not name.startswith("_"):
            there = {} if beside is None else {one: f"{beside.__name__}.{one}" for one in beside.__all__}
            if beside is not None and hasattr(beside, name):
                message = f"module '{module}' has no '{name}': use {beside.__name__}.{name}"
            elif hasattr(np, name):
                message = f"module '{module}' has no '{name}': use CuPy's of arrays on a GPU, which it takes without copying, or NumPy's"
            elif near := _core.nearest(name, [*(own := dir(sys.modules[module])), *there.keys() - own]):
                message += f": did you mean '{near if near in own else there[near]}'?"
        raise AttributeError(message, name=name)

    return missing


def importing(module: str, later: Collection[str], beside: ModuleType) -> Callable[[str], Any]:
    """Like :func:`missing_from`, but imports the sub-modules in ``later`` when they are first used.

    If a sub-module needs a missing library, the error says how to install it.
    """
    missing = missing_from(module, beside)

    def find(name: str) -> Any:
        if name not in later:
            return missing(name)
        try:
            return importlib.import_module(f"{module}.{name}")
        except ModuleNotFoundError as error:
            message = f"{module}.{name} needs {error.name}, which is not installed: pip install '{module}[{name}]'"
            raise AttributeError(message, name=name) from error

    return find


def publish(namespace: dict[str, Any], later: Collection[str] = ()) -> None:
    """Sets ``__module__`` of a module's public classes and functions to the module's name, wherever they are defined.

    Error messages, documentation and pickles then show the path that users import from. ``dir`` lists the public names, and the
    sub-modules ``later`` that were imported.
    """
    module, package = namespace["__name__"], f"{__package__}."
    for value in map(namespace.get, namespace["__all__"]):
        home = getattr(value, "__module__", None)
        if callable(value) and home is not None and home.startswith(package) and home not in _PUBLIC:
            value.__module__ = module
    _PUBLIC.add(module)
    list_public(namespace, later)


def list_public(namespace: dict[str, Any], later: Collection[str] = ()) -> None:
    """Makes ``dir`` of a module list its public names only, without its own imports."""
    public = namespace["__all__"]
    namespace["__dir__"] = lambda: sorted({*public, *(name for name in later if name in namespace)})


# Modules whose public classes and functions keep the path at which they are defined.
_PUBLIC = {"cuzarr.errors", "cuzarr.memory", "cuzarr.buffer.cpu", "cuzarr.buffer.gpu", "cuzarr.codecs.numcodecs"}

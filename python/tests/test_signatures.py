"""Names, parameters, kinds and defaults are zarr-python's; the differences are listed in signature_differences.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from signature_differences import ABSENT, ADDED, OTHER

import cuzarr
from cuzarr._metadata.create import DEFAULT_FILL_VALUE

zarr = pytest.importorskip("zarr", minversion="3.4")
asynchronous = pytest.importorskip("zarr.api.asynchronous")

SPECIAL = ["__init__", "__array__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__len__", "__eq__"]


def members(cls: type) -> Iterator[str]:
    for name in dir(cls):
        own = any(name in vars(base) for base in cls.__mro__ if base is not object)
        if (not name.startswith("_") or name in SPECIAL) and own:
            yield name


NAMES = [
    *(name for name in zarr.__all__ if not name.startswith("__")),
    *(f"Array.{name}" for name in members(zarr.Array)),
    *(f"Group.{name}" for name in members(zarr.Group)),
    *(f"AsyncArray.{name}" for name in members(zarr.AsyncArray)),
    *(f"AsyncGroup.{name}" for name in members(zarr.AsyncGroup)),
    *(f"asynchronous.{name}" for name in asynchronous.__all__),
]


def find(module: Any, name: str) -> Any:
    owner, _, member = name.partition(".")
    value = getattr(module.api if owner == "asynchronous" else module, owner)
    return inspect.getattr_static(value, member) if member else value


def parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        default = parameter.default
        if default is DEFAULT_FILL_VALUE or type(default).__name__ in ("DefaultFillValue", "sentinel"):
            default = "DEFAULT_FILL_VALUE"
        found[name] = (parameter.kind, default)
    return found


def plain(value: Any) -> Any:
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


@pytest.mark.parametrize("name", NAMES)
def test_signature(name: str) -> None:
    owner, _, member = name.partition(".")
    if name in ABSENT:
        assert not hasattr(getattr(cuzarr, owner, None), member) if member else not hasattr(cuzarr, owner)
        return
    theirs, ours = find(zarr, name), find(cuzarr, name)
    if isinstance(theirs, property):
        assert isinstance(ours, property)
        assert (theirs.fset is None) <= (ours.fset is None) or name == "Array.shape"
        return
    if name in OTHER or not callable(plain(theirs)) or isinstance(theirs, type):
        return
    expected, got = parameters(plain(theirs)), parameters(plain(ours))
    added = ADDED.get(name, {})
    assert {key: value for key, value in got.items() if key not in added} == expected
    assert list(key for key in got if key not in added) == list(expected)
    assert set(added) <= set(got)


def test_listed_differences_exist() -> None:
    for name in (*ADDED, *OTHER, *ABSENT):
        assert name in NAMES, f"{name} is no name of zarr-python"


@pytest.mark.parametrize(
    "name", [name for name in dir(zarr.codecs) if name.endswith("Codec") or name in ("CastValue", "ScaleOffset")]
)
def test_signature_of_codec(name: str) -> None:
    if not hasattr(zarr.codecs, "__all__") or name not in zarr.codecs.__all__:
        return
    theirs, ours = getattr(zarr.codecs, name), getattr(cuzarr.codecs, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_public_names_are_complete() -> None:
    missing = [name for name in zarr.__all__ if not hasattr(cuzarr, name) and name not in ABSENT]
    assert missing == []

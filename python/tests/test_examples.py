"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import cuzarr

MODULES = ["cuzarr", *(module.name for module in pkgutil.walk_packages(cuzarr.__path__, "cuzarr."))]


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("cuzarr.__main__", "cuzarr._core")])
def test_examples_of(name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    modules = [importlib.import_module(name) for name in MODULES if name not in ("cuzarr.__main__", "cuzarr._core")]
    assert sum(bool(test.examples) for module in modules for test in finder.find(module)) >= 10

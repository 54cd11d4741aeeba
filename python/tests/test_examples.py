"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import cuzarr

MODULES = ["cuzarr", *(module.name for module in pkgutil.walk_packages(cuzarr.__path__, "cuzarr."))]


SKIPPED = {"cuzarr.__main__", "cuzarr._core"}
# Modules that serve a library, which not every machine has.
OF_OTHERS = {
    "cuzarr.dask": "dask.array",
    "cuzarr.jax": "jax",
    "cuzarr.stacks.anndata": "anndata",
    "cuzarr.stacks.physicsnemo": "physicsnemo",
    "cuzarr.storage.adapters.obstore": "obstore",
    "cuzarr.torch": "torch",
    "cuzarr.xarray": "xarray",
}


class Finder(doctest.DocTestFinder):
    """Finds examples where they are defined: the module that public classes name is the one that users import them from."""

    def _from_module(self, module: ModuleType, value: object) -> bool:
        if not inspect.isclass(value):
            return super()._from_module(module, value)
        homes = {method.__globals__["__name__"] for method in vars(value).values() if inspect.isfunction(method)}
        return module.__name__ in (homes or {value.__module__})


def load(name: str) -> ModuleType:
    pytest.importorskip(OF_OTHERS.get(name, "cuzarr"))
    return importlib.import_module(name)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in SKIPPED])
def test_examples_of(name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    runner = doctest.DocTestRunner()
    # Reports name the stages of the host.
    with cuzarr.config.set({"accelerator": "none"}):
        for examples in Finder().find(load(name)):
            runner.run(examples)
    assert runner.failures == 0


def test_there_are_examples() -> None:
    finder = Finder()
    modules = [importlib.import_module(name) for name in MODULES if name not in SKIPPED | OF_OTHERS.keys()]
    assert sum(bool(test.examples) for module in modules for test in finder.find(module)) >= 50

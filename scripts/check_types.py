"""Checks that type checkers know what the package exports: pyright's `--verifytypes`, and the share of `Any` in public signatures.

`--verifytypes` takes `Any` for a type. So the second check reads the sources: a parameter or a result counts as untyped if its
annotation is missing, is `Any`, is a union with `Any`, or is an alias of such. A definition counts once, whatever names it has.

python scripts/check_types.py [--list]
"""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

PYTHON = pathlib.Path(__file__).resolve().parent.parent / "python"
LEAST_KNOWN = 0.95
MOST_UNTYPED = 0.15
UNTYPED_LIBRARIES = ("cupy", "numcodecs", "ml_dtypes", "h5py", "imagecodecs", "kvikio", "nvidia")
"""Their classes are `Any` to a type checker that finds no types of them."""


def main():
    known, untyped = share_known(), share_untyped("--list" in sys.argv)
    return 0 if known >= LEAST_KNOWN and untyped <= MOST_UNTYPED else 1


def share_known():
    """Share of exported symbols that pyright finds a type for; prints the others."""
    command = [pathlib.Path(sys.executable).with_name("basedpyright"), "--pythonpath", sys.executable]
    run = subprocess.run(
        [*command, "--verifytypes", "cuzarr", "--ignoreexternal", "--outputjson"],
        cwd=PYTHON,
        env={**os.environ, "PYTHONPATH": os.fspath(PYTHON)},
        capture_output=True,
        text=True,
    )
    report = json.loads(run.stdout)["typeCompleteness"]
    unknown = [one for one in report["symbols"] if one["isExported"] and (not one["isTypeKnown"] or one["isTypeAmbiguous"])]
    for symbol in unknown:
        print(
            f"{symbol['category']} {symbol['name']}: {' '.join(symbol['diagnostics'][0]['message'].split()) if symbol['diagnostics'] else 'its base'}"
        )
    total, share = sum(report["exportedSymbolCounts"].values()), report["completenessScore"]
    print(f"{total - len(unknown)} of {total} exported symbols have known types: {share:.1%}, at least {LEAST_KNOWN:.0%}")
    return share


def share_untyped(is_listed):
    """Share of the parameters and results of public functions and methods that are `Any` or have no annotation."""
    slots = [slot for definition in Package(PYTHON / "cuzarr").public() for slot in definition.slots()]
    untyped = [slot for slot in slots if slot.is_untyped]
    if is_listed:
        print(*(slot.name for slot in untyped), sep="\n")
    share = len(untyped) / len(slots)
    print(
        f"{len(untyped)} of {len(slots)} public parameters and results are Any or untyped: {share:.1%}, at most {MOST_UNTYPED:.0%}"
    )
    return share


class Slot(NamedTuple):
    """One parameter, or one result."""

    name: str
    is_untyped: bool


@dataclass
class Module:
    """The top level of a source file: what each name is bound to."""

    name: str
    bound: dict[str, ast.AST | tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Definition:
    """A function or method: its path, its node, and the module whose names its annotations use."""

    path: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    module: Module
    package: Package
    is_method: bool

    def slots(self) -> Iterator[Slot]:
        arguments, given = self.node.args, self._given()
        plain = [*arguments.posonlyargs, *arguments.args][len(given) :]
        if self.is_method and not self._is_static:
            plain = plain[1:]
        for argument in [*plain, *arguments.kwonlyargs, *filter(None, (arguments.vararg, arguments.kwarg))]:
            yield Slot(f"{self.path}({argument.arg})", self._is_untyped(argument.annotation))
        if not given:
            yield Slot(f"{self.path}()", self._is_untyped(self.node.returns) and self.node.name != "__init__")

    def _given(self) -> list[ast.arg]:
        """The first parameters if a decorator of the package says what they and the result are: it returns a class with ``__call__``."""
        for decorator in self.node.decorator_list:
            if not isinstance(decorator, ast.Name):
                continue
            function, home = self.package.find(decorator.id, self.module)
            returns = getattr(function, "returns", None) if isinstance(function, ast.FunctionDef) else None
            if isinstance(returns, ast.Subscript) and isinstance(returns.value, ast.Name):
                made, home = self.package.find(returns.value.id, home)
                calls = [one for one in methods(getattr(made, "body", [])) if one.name == "__call__"]
                if calls and not any(
                    slot.is_untyped for call in calls for slot in Definition("", call, home, self.package, True).slots()
                ):
                    return calls[0].args.posonlyargs[1:]
        return []

    @property
    def _is_static(self) -> bool:
        return any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in self.node.decorator_list)

    def _is_untyped(self, annotation: ast.AST | None) -> bool:
        return annotation is None or self.package.is_any(annotation, self.module)


class Package:
    """The sources of the package."""

    def __init__(self, root: pathlib.Path) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.pyi")]):
            parts = path.relative_to(root.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = module = Module(name)
            self._read(ast.parse(path.read_text()).body, module)

    def _read(self, body: list[ast.stmt], module: Module) -> None:
        for node in body:
            match node:
                case ast.If() | ast.Try():
                    if not is_for_programs(node):
                        self._read(node.body, module)
                    if isinstance(node, ast.Try) or "TYPE_CHECKING" not in ast.unparse(node.test) or is_for_programs(node):
                        self._read(node.orelse, module)
                case ast.ImportFrom(module=home, names=names) if home:
                    for alias in names:
                        if alias.name == "*":
                            module.stars.append(home)
                        else:
                            module.bound[alias.asname or alias.name] = (home, alias.name)
                case ast.Import(names=names):
                    for alias in names:
                        module.bound[alias.asname or alias.name.partition(".")[0]] = (alias.name, "")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    earlier = module.bound.get(name)
                    is_overload = isinstance(earlier, ast.FunctionDef) and is_overloaded(earlier)
                    module.bound[name if not is_overload else f"{name} {len(module.bound)}"] = node
                case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                    module.exports = [one.value for one in names if isinstance(one, ast.Constant)]
                case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value):
                    if value is not None:
                        module.bound[name] = value
                case _ if isinstance(node, getattr(ast, "TypeAlias", ())):
                    module.bound[node.name.id] = node.value

    def find(self, name: str, module: Module) -> tuple[ast.AST | str, Module]:
        """What a name in a module is bound to, and where; text for a module or a thing of another library."""
        target = module.bound.get(name)
        if target is None:
            for star in module.stars:
                if star in self.modules and name in self.modules[star].exports:
                    return self.find(name, self.modules[star])
            return name, module
        if isinstance(target, ast.AST):
            return target, module
        home, attribute = target
        inner = f"{home}.{attribute}" if attribute else home
        if inner in self.modules or home not in self.modules:
            return inner, module
        return self.find(attribute, self.modules[home])

    def is_any(self, annotation: ast.AST, module: Module, depth: int = 0) -> bool:
        """Whether an annotation lets everything pass: it is ``Any``, a union with it, or an alias of such."""
        match annotation:
            case ast.Constant(value=str(text)):
                return self.is_any(ast.parse(text, mode="eval").body, module, depth)
            case ast.BinOp(left=left, right=right, op=ast.BitOr()):
                return self.is_any(left, module, depth) or self.is_any(right, module, depth)
            case ast.Subscript(value=outer, slice=inner) if ast.unparse(outer).rpartition(".")[2] in (
                "Optional",
                "Union",
                "Annotated",
                "ClassVar",
            ):
                parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return any(self.is_any(part, module, depth) for part in parts)
            case ast.Name(id=name):
                target, home = self.find(name, module)
            case ast.Attribute(value=ast.Name(id=first), attr=name):
                outer, _ = self.find(first, module)
                if not isinstance(outer, str) or outer not in self.modules:
                    return self._is_foreign_any(f"{outer}.{name}" if isinstance(outer, str) else "")
                target, home = self.find(name, self.modules[outer])
            case _:
                return False
        if isinstance(target, str):
            return self._is_foreign_any(target)
        return not isinstance(target, ast.ClassDef) and depth < 8 and self.is_any(target, home, depth + 1)

    @staticmethod
    def _is_foreign_any(path: str) -> bool:
        return path in ("typing.Any", "_typeshed.Incomplete") or path.partition(".")[0] in UNTYPED_LIBRARIES

    def public(self) -> Iterator[Definition]:
        """Every public function and method, once: what public modules export, and what public classes inherit in the package."""
        found: dict[int, Definition] = {}
        for name, module in self.modules.items():
            if any(part.startswith("_") for part in name.split(".")):
                continue
            for export in module.exports:
                self._add(*self.find(export, module), export, found)
        yield from found.values()

    def _add(
        self, target: ast.AST | str, module: Module, path: str, found: dict[int, Definition], is_method: bool = False
    ) -> None:
        match target:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if id(target) not in found:
                found[id(target)] = Definition(f"{module.name}:{path}", target, module, self, is_method)
                for name, other in module.bound.items():
                    if name.startswith(f"{path} ") and is_overloaded(other):
                        self._add(other, module, path, found)
            case ast.ClassDef(body=body, bases=bases):
                for node in methods(body):
                    self._add(node, module, f"{path}.{node.name}", found, True)
                for base in bases:
                    base = base.value if isinstance(base, ast.Subscript) else base
                    if isinstance(base, ast.Name | ast.Attribute):
                        self._add(*self._of_expression(base, module), path, found)
            case ast.Call(func=ast.Name() as made):
                # An object that is called like a function: the class says how.
                of, home = self.find(made.id, module)
                if isinstance(of, ast.ClassDef) and any(one.name == "__call__" for one in methods(of.body)):
                    self._add(of, home, of.name, found)

    def _of_expression(self, node: ast.Name | ast.Attribute, module: Module) -> tuple[ast.AST | str, Module]:
        if isinstance(node, ast.Name):
            return self.find(node.id, module)
        outer, _ = self.find(node.value.id, module) if isinstance(node.value, ast.Name) else ("", module)
        return self.find(node.attr, self.modules[outer]) if isinstance(outer, str) and outer in self.modules else ("", module)


def is_overloaded(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in getattr(node, "decorator_list", ()))


def is_for_programs(node: ast.stmt) -> bool:
    """Whether type checkers skip this branch."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "not TYPE_CHECKING"


def methods(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Public methods of a class: of an overloaded one the overloads, not the function that carries them out."""
    overloaded = {node.name for node in body if isinstance(node, ast.FunctionDef) and is_overloaded(node)}
    for node in body:
        if isinstance(node, ast.If) and not is_for_programs(node):
            yield from methods(node.body)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_dunder = node.name.startswith("__") and node.name.endswith("__")
            if (is_dunder or not node.name.startswith("_")) and (node.name not in overloaded or is_overloaded(node)):
                yield node


if __name__ == "__main__":
    sys.exit(main())

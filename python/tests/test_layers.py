"""Imports of the package go one way, those inside functions too: each room knows those below it, and no module is in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import cuzarr

# The types of signatures. It names classes of all rooms, for type checkers alone, and imports none of them when a program runs.
TYPES = "typing"

# Rooms from the bottom to the top. A room may import itself and what is in lines above its own; those of one line do not know
# each other.
LAYERS = (
    ("_core",),
    ("_text", "_docstrings", "_locks", TYPES),
    ("errors",),
    ("_names", "_numpy"),
    ("_checks",),
    ("_config",),
    ("_runtime", "_progress"),
    ("_operators",),
    ("_memory",),
    ("buffer", "kernels", "memory"),
    ("storage", "codecs"),
    ("_metadata",),
    ("dtype",),
    ("_compute",),
    ("_node",),
    ("api",),
    ("xp",),
    ("ome", "references", "sparse", "writer"),
    ("loader",),
    ("",),  # `cuzarr` itself
    ("__main__", "zarr", "xarray", "dask", "torch", "jax", "kvikio"),
    ("stacks",),
)

# Imports inside functions, each with its reason.
LAZY = {
    ("storage.resolve", "storage.zarr_form"): "zarr-python is optional",
    ("kvikio", "storage.zarr_form"): "zarr-python is optional",
    ("references.make", "references.table"): "h5py is optional, and importing it takes time",
    ("storage.adapters.choice", "storage.adapters.object"): "few programs give such stores",
    ("storage.adapters.choice", "storage.adapters.fsspec"): "fsspec is optional, and importing asyncio takes time",
    ("storage.adapters.choice", "storage.adapters.obstore"): "obstore is optional, and importing asyncio takes time",
    ("storage.adapters.choice", "storage.adapters.zarr"): "zarr-python is optional, and importing asyncio takes time",
}

# Modules above `cuzarr` that it imports when they are used, and names for type checkers alone.
LATER = {("", name) for name in ("dask", "jax", "kvikio", "torch", "xarray", "zarr")}

PACKAGE = Path(cuzarr.__file__).parent


@dataclass(frozen=True)
class Arrow:
    """One import: by which module, of which, whether inside a function, and whether for type checkers alone."""

    source: str
    target: str
    is_lazy: bool
    is_typing: bool
    line: int

    def __str__(self) -> str:
        return f"{self.source or 'cuzarr'}:{self.line} imports {self.target or 'cuzarr'}"


def modules() -> dict[str, Path]:
    """Every module by its name below the package; packages by that of their folder."""
    found = {"_core": PACKAGE / "_core.pyi"}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def below_the_package(name: str) -> str | None:
    package, _, rest = name.partition(".")
    return rest if package == "cuzarr" else None


def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [below_the_package(alias.name) for alias in node.names]
        yield from (name for name in names if name is not None)
        return
    assert node.level == 0, "imports are absolute"
    module = below_the_package(node.module or "")
    if module is not None:
        for alias in node.names:
            inner = f"{module}.{alias.name}" if module else alias.name
            yield inner if inner in MODULES else module


def arrows() -> Iterator[Arrow]:
    for source, path in MODULES.items():
        if path.suffix != ".py":
            continue

        def visit(node: ast.AST, is_lazy: bool, is_typing: bool, source: str = source) -> Iterator[Arrow]:
            if isinstance(node, ast.Import | ast.ImportFrom):
                found = (target for target in targets(node) if target != source)
                yield from (Arrow(source, target, is_lazy, is_typing, node.lineno) for target in found)
            inside = is_lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                is_checked = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and child in node.body
                yield from visit(child, inside, is_typing or is_checked)

        yield from visit(ast.parse(path.read_text()), False, False)


ALL_ARROWS = list(arrows())
UP = {(arrow.source, arrow.target) for arrow in ALL_ARROWS if arrow.is_typing} & LATER
NAMED = {(arrow.source, arrow.target) for arrow in ALL_ARROWS if arrow.is_typing and arrow.source == TYPES}
ARROWS = [arrow for arrow in ALL_ARROWS if (arrow.source, arrow.target) not in UP | NAMED]


def room(module: str) -> str:
    return module.partition(".")[0]


def level(module: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if room(module) in rooms)


def test_every_module_is_in_a_room() -> None:
    known = {name for rooms in LAYERS for name in rooms}
    assert {room(module) for module in MODULES} == known


def test_rooms_import_those_below_them_alone() -> None:
    wrong = [
        str(arrow) for arrow in ARROWS if room(arrow.source) != room(arrow.target) and level(arrow.source) <= level(arrow.target)
    ]
    assert wrong == []


def test_types_import_nothing_of_the_package() -> None:
    code = (
        "import sys; import cuzarr; assert 'cuzarr.typing' not in sys.modules; before = set(sys.modules); import cuzarr.typing; "
    )
    code += "assert {name for name in sys.modules.keys() - before if name.startswith('cuzarr')} == {'cuzarr.typing'}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_that_are_imported_later_are_named_for_type_checkers() -> None:
    assert UP == LATER


def test_imports_are_at_the_top_of_their_modules() -> None:
    inside = {(arrow.source, arrow.target) for arrow in ARROWS if arrow.is_lazy}
    assert inside == set(LAZY)


def circle(graph: dict[str, set[str]]) -> list[str] | None:
    """A way through a graph that comes back to where it began; ``None`` where there is none."""
    done: set[str] = set()

    def follow(name: str, way: list[str]) -> list[str] | None:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return None
        for target in sorted(graph.get(name, ())):
            if found := follow(target, [*way, name]):
                return found
        done.add(name)
        return None

    return next((found for name in graph if (found := follow(name, []))), None)


def test_no_module_is_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for arrow in ARROWS:
        graph.setdefault(arrow.source, set()).add(arrow.target)
    assert circle(graph) is None


@pytest.mark.parametrize(
    ("graph", "expected"),
    [({"a": {"b"}, "b": {"c"}}, None), ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c", "b"]), ({"a": {"a"}}, ["a", "a"])],
)
def test_circles_are_found(graph: dict[str, set[str]], expected: list[str] | None) -> None:
    assert circle(graph) == expected

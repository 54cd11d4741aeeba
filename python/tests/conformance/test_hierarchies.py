"""Hierarchies: groups, arrays and attributes that one library wrote are what the other one lists, consolidated or not."""

from __future__ import annotations

import pathlib
import random
from typing import Any

import pytest
import zarr

from . import engines
from .test_matrix import OURS, REFERENCE, quiet  # noqa: F401

Tree = dict[str, tuple[str, dict[str, Any], tuple[int, ...] | None]]
CASES = [
    pytest.param(zarr_format, consolidated, seed, id=f"v{zarr_format}-{'consolidated' if consolidated else 'plain'}-{seed}")
    for zarr_format in (2, 3)
    for consolidated in (False, True)
    for seed in range(12)
]


def attributes(choose: random.Random, depth: int = 0) -> dict[str, Any]:
    """Attributes with every kind of JSON value, names of any script, numbers at the edges."""
    names = ["units", "long name", "größe", "名前", "a/b", "", "__init__", "é\u0301", "🦀"]
    return {name: _value(choose, depth) for name in choose.sample(names, choose.randrange(5))}


def _value(choose: random.Random, depth: int) -> Any:
    kinds: list[Any] = [None, True, False, 0, -1, 2**53, -(2**63), 1.5, 1e-300, 0.1, "", 'text\n"quoted" \\ π \u0000 🦀']
    if depth < 2 and choose.random() < 0.3:
        return choose.choice([[_value(choose, depth + 1) for _ in range(3)], attributes(choose, depth + 1), [], {}])
    return choose.choice(kinds)


def random_tree(seed: int) -> Tree:
    """Paths with what is there; every parent is a group of its own."""
    choose = random.Random(seed)
    tree: Tree = {"": ("group", attributes(choose), None)}
    for number in range(choose.randrange(1, 9)):
        parent = choose.choice([path for path, node in tree.items() if node[0] == "group"])
        name = choose.choice(["x", "temperature", "été", "a b", "c.d", "0", "__x"]) + str(number)
        path = f"{parent}/{name}".strip("/")
        if choose.random() < 0.5:
            tree[path] = ("group", attributes(choose), None)
        else:
            tree[path] = ("array", attributes(choose), tuple(choose.randrange(1, 6) for _ in range(choose.randrange(3))))
    return tree


def write(library: engines.Library, path: str, tree: Tree, zarr_format: int, *, consolidated: bool) -> None:
    root = library.module.create_group(store=path, zarr_format=zarr_format, attributes=tree[""][1])
    for name, (kind, found, shape) in tree.items():
        if name and kind == "group":
            root.create_group(name, attributes=found)
        elif name:
            root.create_array(name, shape=shape, chunks=tuple(2 for _ in shape or ()), dtype="int16", attributes=found)
    if consolidated:
        library.module.consolidate_metadata(path)


def listed(library: engines.Library, path: str, *, consolidated: bool) -> Tree:
    root = library.module.open_group(path, mode="r", use_consolidated=consolidated)
    tree: Tree = {"": ("group", dict(root.attrs), None)}
    for name, node in root.members(max_depth=None):
        shape = getattr(node, "shape", None)
        kind = "group" if shape is None else "array"
        tree[name] = (kind, dict(node.attrs), None if shape is None else tuple(shape))
    return tree


@pytest.mark.parametrize(("zarr_format", "consolidated", "seed"), CASES)
def test_lists_what_zarr_python_wrote(zarr_format: int, consolidated: bool, seed: int, tmp_path: pathlib.Path) -> None:
    tree, path = random_tree(seed), str(tmp_path / "tree")
    write(REFERENCE, path, tree, zarr_format, consolidated=consolidated)
    assert listed(REFERENCE, path, consolidated=consolidated) == tree
    assert listed(OURS, path, consolidated=consolidated) == tree


@pytest.mark.parametrize(("zarr_format", "consolidated", "seed"), CASES)
def test_zarr_python_lists_what_we_wrote(zarr_format: int, consolidated: bool, seed: int, tmp_path: pathlib.Path) -> None:
    tree, path = random_tree(seed), str(tmp_path / "tree")
    write(OURS, path, tree, zarr_format, consolidated=consolidated)
    assert listed(REFERENCE, path, consolidated=consolidated) == tree
    if consolidated:
        assert zarr.open_group(path, mode="r").metadata.consolidated_metadata is not None

"""Random programs on hierarchies: cuzarr and zarr-python do the same to a directory each, with the same outcomes and files."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr

zarr = pytest.importorskip("zarr", minversion="3.4")
NAMES = ["a", "b", "é", "c.d", "a/b", "b/x y/0"]
Step = Callable[[Any, Any], Any]


def seen(value: Any) -> Any:
    """What can be compared: nodes as their paths, shapes and attributes, iterators as sorted lists."""
    if hasattr(value, "attrs"):
        return value.path, getattr(value, "shape", None), str(getattr(value, "dtype", "")), value.attrs.asdict()
    if isinstance(value, Iterator | list | tuple):
        return sorted(map(seen, value), key=repr)
    return value


def step(choose: random.Random) -> tuple[str, Step]:
    """A step's name, and what it does to a group of either library."""
    inside, name = choose.choice(["", "", "a", "b"]), choose.choice(NAMES)
    overwrite, depth = choose.random() < 0.3, choose.choice([0, 1, None])
    key, value = choose.choice(["k", "ключ"]), choose.choice([1, [1, {"x": None}], "s", 2**70])
    shape = tuple(choose.randint(0, 4) for _ in range(choose.randint(1, 2)))
    new = {"shape": shape, "dtype": choose.choice(["i4", "f8", "S3", "string"]), "compressors": None, "overwrite": overwrite}

    def at(root: Any) -> Any:
        return root[inside] if inside else root

    steps: dict[str, Step] = {
        "create_group": lambda _, root: at(root).create_group(name, overwrite=overwrite),
        "require_group": lambda _, root: at(root).require_group(name),
        "create_array": lambda _, root: at(root).create_array(name, **new),
        "fill": lambda _, root: at(root)[name].__setitem__(Ellipsis, 7),
        "elements": lambda _, root: np.asarray(at(root)[name][...]).tolist(),
        "resize": lambda _, root: at(root)[name].resize(shape),
        "append": lambda _, root: grow(at(root)[name]),
        "delete": lambda _, root: at(root).__delitem__(name),
        "get": lambda _, root: at(root).get(name),
        "contains": lambda _, root: name in at(root),
        "members": lambda _, root: at(root).members(max_depth=depth),
        "keys": lambda _, root: [*at(root).group_keys(), *at(root).array_keys()],
        "set attribute": lambda _, root: at(root)[name].attrs.__setitem__(key, value),
        "delete attribute": lambda _, root: at(root).attrs.__delitem__(key),
        "update attributes": lambda _, root: at(root).update_attributes({key: value}),
        "consolidate": lambda library, root: library.consolidate_metadata(root.store, path=inside).members(max_depth=None),
        "open": lambda library, root: library.open(root.store, path=name, mode="r"),
        "open_group": lambda library, root: library.open_group(root.store, path=name, mode="r").members(max_depth=depth),
    }
    chosen = choose.choice([*steps, *["create_group", "create_array"] * 3])
    return f"{chosen} {inside!r} {name!r} {new} {key}", steps[chosen]


def grow(array: Any) -> Any:
    return array.append(np.full((2, *array.shape[1:]), 3, "i4").astype(array.dtype))


def files(root: Path) -> dict[str, Any]:
    """The bytes of all files; of documents, what they say without what says nothing of a group below another."""
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def plain(path: str, raw: bytes) -> Any:
        if not path.endswith((".json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")):
            return raw
        document = json.loads(raw)
        below = (document if path.endswith(".zmetadata") else document.get("consolidated_metadata") or {}).get("metadata", {})
        for member in below.values():
            member.pop("consolidated_metadata", None)
        return document

    return {path: plain(path, raw) for path, raw in found.items()}


def copies(root: Path) -> dict[Path, str]:
    """The groups that have a consolidated copy, and the documents that hold it."""
    found = {path.parent: ".zmetadata" for path in root.rglob(".zmetadata")}
    for path in root.rglob("zarr.json"):
        if json.loads(path.read_bytes()).get("consolidated_metadata") is not None:
            found[path.parent] = "zarr.json"
    return found


def truth(group: Path) -> dict[str, Any]:
    """What a consolidated copy of a group should say."""
    said: dict[str, Any] = {}
    for path in sorted(group.rglob("*")):
        name = str(path.relative_to(group).parent).removeprefix(".")
        if path.name == "zarr.json" and name:
            said[name] = {key: value for key, value in json.loads(path.read_bytes()).items() if key != "consolidated_metadata"}
        if path.name in (".zgroup", ".zarray"):
            attributes = path.with_name(".zattrs")
            said[f"{name}/{path.name}".lstrip("/")] = json.loads(path.read_bytes())
            said[f"{name}/.zattrs".lstrip("/")] = json.loads(attributes.read_bytes()) if attributes.exists() else {}
    return said


def consolidated(group: Path, name: str) -> Any:
    document = json.loads((group / name).read_bytes())
    return (document if name == ".zmetadata" else document["consolidated_metadata"])["metadata"]


def mend(root: Path, like: Path) -> None:
    """Gives the groups of zarr-python, which leaves copies stale and drops them, the copies that cuzarr's groups have."""
    for group, name in copies(like).items():
        place = root / group.relative_to(like)
        said = truth(place)
        if name == ".zmetadata":
            (place / name).write_text(json.dumps({"metadata": said, "zarr_consolidated_format": 1}))
            continue
        document = json.loads((place / name).read_bytes())
        kept = {"kind": "inline", "must_understand": False, "metadata": said}
        (place / name).write_text(json.dumps(document | {"consolidated_metadata": kept}))


@pytest.mark.parametrize("seed", range(25))
def test_hierarchies_become_what_zarr_python_makes_of_them(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    zarr_format: Any = choose.choice([2, 3])
    libraries = (zarr, cuzarr)
    roots = {one: one.open_group(tmp_path / one.__name__, mode="w", zarr_format=zarr_format) for one in libraries}
    for _ in range(12):
        name, act = step(choose)
        outcomes = {}
        for library in libraries:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    outcomes[library] = seen(act(library, roots[library]))
                except (LookupError, ValueError, TypeError, FileNotFoundError, AttributeError):
                    outcomes[library] = "refused"
        assert outcomes[cuzarr] == outcomes[zarr], name
        for group, document in copies(tmp_path / "cuzarr").items():
            assert consolidated(group, document) == truth(group), name
        mend(tmp_path / "zarr", tmp_path / "cuzarr")
        assert files(tmp_path / "cuzarr") == files(tmp_path / "zarr"), name

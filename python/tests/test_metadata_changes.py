"""Changes of stored metadata: by several handles, threads and processes, and beside consolidated copies. Nothing gets lost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_group_programs import consolidated as copy_of, copies, truth

import cuzarr
from cuzarr.errors import ArrayNotFoundError, CuzarrError, CuzarrUserWarning, GroupNotFoundError

FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with pytest.MonkeyPatch.context():
        import warnings

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="consolidated metadata is not part")
            yield


def rows(value: int, count: int = 2) -> np.ndarray[Any, Any]:
    return np.full(count, value, "i4")


def consolidated(path: Path, zarr_format: Any = 3) -> Path:
    """A group with a consolidated copy and the array ``deep/t`` without rows."""
    group = cuzarr.open_group(path, mode="w", zarr_format=zarr_format)
    group.create_array("deep/t", shape=(0,), chunks=(2,), dtype="i4")
    cuzarr.consolidate_metadata(path)
    return path


def remembered(path: Path, name: str = "deep/t") -> Any:
    """The array as the consolidated copy says."""
    return cuzarr.open_group(path, mode="r", use_consolidated=True)[name]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@FORMATS
def test_a_job_that_opens_a_consolidated_group_each_month_loses_no_month(tmp_path: Path, zarr_format: Any) -> None:
    path = consolidated(tmp_path / "g", zarr_format)
    for month in range(12):
        group = cuzarr.open_group(path, mode="r+" if month % 2 else "a")
        group["deep/t"].append(rows(month))
        group["deep"]["t"].append(rows(month, 1))
    expected = [month for month in range(12) for _ in range(3)]
    assert cuzarr.open_array(path / "deep/t", mode="r")[:].tolist() == expected
    assert remembered(path)[:].tolist() == expected


@FORMATS
def test_an_array_that_is_opened_by_its_own_path_changes_the_copies_above(tmp_path: Path, zarr_format: Any) -> None:
    path = consolidated(tmp_path / "g", zarr_format)
    cuzarr.consolidate_metadata(path / "deep")
    array = cuzarr.open_array(path / "deep/t", mode="r+")
    array.append(rows(1, 3))
    array.attrs["units"] = "K"
    for seen in (remembered(path), remembered(path / "deep", "t")):
        assert (seen.shape, dict(seen.attrs)) == ((3,), {"units": "K"})
    array.resize((1,))
    assert remembered(path).shape == (1,)


@FORMATS
def test_new_and_deleted_arrays_are_in_the_copy(tmp_path: Path, zarr_format: Any) -> None:
    path = consolidated(tmp_path / "g", zarr_format)
    group = cuzarr.open_group(path, mode="r+")
    group.create_array("new/u", data=np.arange(3))
    cuzarr.create_array(path, name="v", data=np.arange(2), zarr_format=zarr_format)
    assert sorted(cuzarr.open_group(path, mode="r")) == ["deep", "new", "v"] and sorted(group) == ["deep", "new"]
    assert remembered(path, "new/u")[:].tolist() == [0, 1, 2] and "v" in group  # looked up before it is missing
    del group["new"]
    assert sorted(cuzarr.open_group(path, mode="r")) == ["deep", "v"]
    cuzarr.open_group(path, mode="r+")["deep"].attrs["title"] = "x"
    assert dict(cuzarr.open_group(path, mode="r")["deep"].attrs) == {"title": "x"}


@FORMATS
def test_attributes_of_a_group_keep_its_copy(tmp_path: Path, zarr_format: Any) -> None:
    path = consolidated(tmp_path / "g", zarr_format)
    other = cuzarr.open_group(path, mode="r+")
    cuzarr.open_group(path, mode="r+", use_consolidated=False)["deep/t"].append(rows(1))
    other.attrs["title"] = "x"
    other.update_attributes({"year": 2026})
    seen = cuzarr.open_group(path, mode="r", use_consolidated=True)
    assert dict(seen.attrs) == {"title": "x", "year": 2026} and seen["deep/t"].shape == (2,)


@FORMATS
def test_a_copy_that_zarr_python_left_stale_is_seen_through_and_mended(tmp_path: Path, zarr_format: Any) -> None:
    zarr = pytest.importorskip("zarr")
    path = consolidated(tmp_path / "g", zarr_format)
    zarr.open_array(path / "deep/t", mode="r+").append(rows(5))
    assert remembered(path).shape == (0,)
    group = cuzarr.open_group(path, mode="r+")
    assert group["deep/t"].shape == (2,) and dict(group.members(max_depth=None))["deep/t"].shape == (2,)
    with pytest.warns(CuzarrUserWarning, match=r"'deep/t' has shape \[2\], the consolidated metadata says \[0\]"):
        copied = cuzarr.copy(path, tmp_path / "copy")
    assert copied["deep/t"][:].tolist() == [5, 5] and copied.metadata.consolidated_metadata is not None
    group["deep/t"].attrs["units"] = "K"
    assert remembered(path).shape == (2,)


@FORMATS
@pytest.mark.parametrize("kind", ["directory", "memory", "dictionary"])
def test_handles_append_in_turn(tmp_path: Path, zarr_format: Any, kind: str) -> None:
    stores = {"directory": tmp_path / "a", "memory": cuzarr.storage.MemoryStore(), "dictionary": {}}
    store: Any = stores[kind]
    first = cuzarr.create_array(store, shape=(0, 3), chunks=(2, 2), dtype="i4", zarr_format=zarr_format)
    second = cuzarr.open_array(store, mode="r+")
    for number, handle in enumerate([first, second, first, first, second, second, first]):
        handle.append(np.full((1, 3), number, "i4"))
    assert cuzarr.open_array(store, mode="r")[:, 0].tolist() == list(range(7))
    second.resize((3, 3))
    first.append(np.full((1, 3), 9, "i4"))
    assert first.shape == (4, 3) and first[:, 2].tolist() == [0, 1, 2, 9]


@pytest.mark.parametrize("kind", ["directory", "memory", "dictionary"])
def test_threads_lose_no_row_and_no_attribute(tmp_path: Path, kind: str) -> None:
    stores = {"directory": tmp_path / "a", "memory": cuzarr.storage.MemoryStore(), "dictionary": {}}
    store: Any = stores[kind]
    shared = cuzarr.create_array(store, shape=(0,), chunks=(4,), dtype="i4")

    def work(number: int) -> None:
        own = cuzarr.open_array(store, mode="r+")
        for step in range(6):
            (own if number % 2 else cuzarr.open_array(store, mode="r+")).append(rows(10 * number + step, 3))
            shared.attrs[f"{number}-{step}"] = step

    in_threads(4, work)
    array = cuzarr.open_array(store, mode="r")
    found = array[:].reshape(-1, 3)
    assert (found == found[:, :1]).all(), "rows of two appends are mixed"
    assert sorted(found[:, 0].tolist()) == sorted(10 * number + step for number in range(4) for step in range(6))
    assert len(array.attrs) == 24


PROGRAM = """
import sys, numpy as np, cuzarr
path, number = sys.argv[1], int(sys.argv[2])
group = cuzarr.open_group(path, mode="r+")
for step in range(8):
    group["deep/t"].append(np.full(3, 10 * number + step, "i4"))
    group["deep/t"].attrs[f"{number}-{step}"] = step
    group.require_array(f"new-{step}", shape=(4,), dtype="i4")
    cuzarr.open_array(path + f"/made-{step}", mode="a", shape=(4,), dtype="i4")
    cuzarr.open_array(path + "/replaced", mode="w", shape=(number + 1,), dtype="i4")
    cuzarr.open_group(path + f"/group-{step}", mode="a")
"""


def test_processes_lose_no_row_no_attribute_and_no_array(tmp_path: Path) -> None:
    path = consolidated(tmp_path / "g")
    command = [sys.executable, "-c", PROGRAM, str(path)]
    processes = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE, text=True) for number in range(3)]
    outcomes = [(process.communicate()[1], process.returncode) for process in processes]
    assert all(code == 0 for _, code in outcomes), outcomes
    array = remembered(path)
    found = array[:].reshape(-1, 3)
    assert (found == found[:, :1]).all(), "rows of two appends are mixed"
    assert sorted(found[:, 0].tolist()) == sorted(10 * number + step for number in range(3) for step in range(8))
    assert len(array.attrs) == 24
    expected = {"deep", "replaced", *(f"{kind}-{step}" for kind in ("new", "made", "group") for step in range(8))}
    assert set(cuzarr.open_group(path, mode="r")) == expected
    assert cuzarr.open_group(path, mode="r", use_consolidated=False)["replaced"].shape == remembered(path, "replaced").shape


def test_a_node_that_another_program_deleted_is_not_written_back(tmp_path: Path) -> None:
    path = consolidated(tmp_path / "g")
    group, array = cuzarr.open_group(path / "deep"), cuzarr.open_array(path / "deep/t")
    del cuzarr.open_group(path)["deep"]
    for change in (lambda: array.append(rows(1)), lambda: array.resize((4,)), lambda: array.attrs.update(a=1)):
        with pytest.raises(ArrayNotFoundError, match="another program"):
            change()
    with pytest.raises(GroupNotFoundError):
        group.attrs["a"] = 1
    assert sorted(file.name for file in path.rglob("*") if file.is_file()) == ["zarr.json"]


def test_a_group_that_is_only_read_trusts_its_copy(tmp_path: Path) -> None:
    path = consolidated(tmp_path / "g")
    cuzarr.open_group(path, use_consolidated=False)["deep/t"].append(rows(1))
    (path / "deep/t/zarr.json").write_bytes(b"not read")
    assert cuzarr.open_group(path, mode="r")["deep/t"].shape == (2,)
    with pytest.raises(CuzarrError):
        cuzarr.open_group(path, mode="r+")["deep/t"]


def test_validate_names_and_repairs_a_stale_copy(tmp_path: Path) -> None:
    path = consolidated(tmp_path / "g")
    document = json.loads((path / "zarr.json").read_text())
    cuzarr.open_array(path / "deep/t").append(rows(1))
    (path / "zarr.json").write_text(json.dumps(document))  # as a writer stores what it remembers

    def validate(*options: str) -> tuple[int, Any]:
        command = [sys.executable, "-m", "cuzarr", "validate", "--json", str(path), *options]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return run.returncode, json.loads(run.stdout)

    code, found = validate()
    said = ["'deep/t' has shape [2], the consolidated metadata says [0]"]
    assert code != 0 and not found["valid"] and found["stale"] == [{"group": "/", "differences": said, "repaired": False}]
    assert found["stray_keys"] == []
    assert validate("--repair")[0] == 0 and validate()[1]["stale"] == [] and remembered(path).shape == (2,)


class Model:
    """What a hierarchy should hold: rows and attributes of its arrays, and attributes of its groups."""

    def __init__(self, path: Path, zarr_format: Any, choose: random.Random) -> None:
        self.path, self.zarr_format, self.choose = path, zarr_format, choose
        self.arrays: dict[str, tuple[list[int], dict[str, int]]] = {}
        self.groups: dict[str, dict[str, int]] = {"": {}}
        cuzarr.open_group(path, mode="w", zarr_format=zarr_format)
        self.roots = [self.opened() for _ in range(2)]
        self.handles: dict[str, list[Any]] = {}

    def opened(self) -> Any:
        return cuzarr.open_group(self.path, mode=self.choose.choice(["r+", "a"]))

    def handle(self, name: str) -> Any:
        """A handle of an array: an old one, one of an old group, or a new one by its own path."""
        ways = [lambda: self.choose.choice(self.roots)[name], lambda: cuzarr.open_array(self.path / name, mode="r+")]
        ways += [lambda: self.choose.choice(self.handles[name])] * (2 if self.handles.get(name) else 0)
        handle = self.choose.choice(ways)()
        self.handles.setdefault(name, []).append(handle)
        return handle

    def step(self) -> str:
        choose = self.choose
        value, name = choose.randrange(1, 100), choose.choice(["a", "b", "g/a", "g/h/c"])
        if name not in self.arrays:
            array = choose.choice(self.roots).create_array(name, shape=(0,), chunks=(choose.choice([1, 3]),), dtype="i4")
            self.arrays[name], self.handles[name] = ([], {}), [array]
            self.groups |= {
                above: self.groups.get(above, {}) for above in ("", *(["g"] * ("g/" in name)), *(["g/h"] * ("h/" in name)))
            }
            return f"create {name}"
        rows, attributes = self.arrays[name]
        what = choose.choice(
            ["append"] * 4 + ["resize", "attribute", "attribute", "drop", "group", "consolidate", "delete", "reopen"]
        )
        if what == "append":
            count = choose.randrange(5)
            self.handle(name).append(np.full(count, value, "i4"))
            rows += [value] * count
        elif what == "resize":
            size = choose.randrange(len(rows) + 1)
            self.handle(name).resize((size,))
            del rows[size:]
            # What a chunk at the edge keeps would come back when the array grows.
            self.handle(name).append(np.full(3, value, "i4"))
            rows += [value] * 3
        elif what == "attribute":
            key = choose.choice("xyz")
            self.handle(name).attrs[key] = value
            attributes[key] = value
        elif what == "drop":
            self.handle(name).attrs.put({"only": value})
            attributes.clear()
            attributes["only"] = value
        elif what == "group":
            above = choose.choice(sorted(self.groups))
            group = choose.choice(self.roots) if not above else choose.choice(self.roots)[above]
            group.update_attributes({"k": value})
            self.groups[above] = {**self.groups[above], "k": value}
        elif what == "consolidate":
            cuzarr.consolidate_metadata(self.path, path=choose.choice(sorted(self.groups)))
        elif what == "delete":
            choose.choice(self.roots).__delitem__(name)
            del self.arrays[name], self.handles[name]
        else:
            self.roots[choose.randrange(2)] = self.opened()
        return f"{what} {name}"

    def check(self, path: Path, use_consolidated: bool | None) -> None:
        found = dict(cuzarr.open_group(path, mode="r", use_consolidated=use_consolidated).members(max_depth=None))
        arrays = {name: (node[:].tolist(), dict(node.attrs)) for name, node in found.items() if isinstance(node, cuzarr.Array)}
        groups = {name: dict(node.attrs) for name, node in found.items() if not isinstance(node, cuzarr.Array)}
        assert arrays == self.arrays and groups == {name: kept for name, kept in self.groups.items() if name}


@pytest.mark.parametrize("seed", range(16))
def test_random_changes_by_many_handles_are_those_of_a_model(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    model = Model(tmp_path / "g", choose.choice([2, 3]), choose)
    for number in range(40):
        said = model.step()
        try:
            for group, document in copies(model.path).items():
                assert copy_of(group, document) == truth(group)
            model.check(model.path, None)
            model.check(model.path, False)
        except AssertionError as error:
            raise AssertionError(f"step {number}: {said}") from error
    cuzarr.copy(model.path, tmp_path / "copy")
    model.check(tmp_path / "copy", None)


class Computed:
    """Elements that are made when they are asked for, by code that changes the array meanwhile."""

    shape, ndim, dtype = (2,), 1, np.dtype("i4")

    def __init__(self, change: Callable[[], Any]) -> None:
        self.change = change

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.change()
        return np.array([1, 2], "i4")


def test_elements_are_made_before_the_array_is_locked() -> None:
    store: dict[str, Any] = {}
    array = cuzarr.create_array(store, shape=(0,), chunks=(2,), dtype="i4")
    array.append(Computed(lambda: array.attrs.update(a=1)))
    array.append(Computed(lambda: cuzarr.open_array(store, mode="r+").append([7, 8])))
    assert array[:].tolist() == [1, 2, 7, 8, 1, 2]
    assert array.attrs["a"] == 1


def test_appended_lists_are_checked_as_assigned_ones() -> None:
    array = cuzarr.create_array({}, shape=(2,), chunks=(2,), dtype="u1")
    for write in (lambda: array.append([1, 300]), lambda: array.__setitem__(slice(None), [1, 300])):
        with pytest.raises(CuzarrError, match="300"):
            write()
    assert array.shape == (2,)

"""Errors: the same kinds in Rust and Python, the names of zarr-python, the built-ins a caller expects."""

from __future__ import annotations

import builtins
import json
import pathlib
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr import _core, errors


def test_rust_and_python_know_the_same_kinds() -> None:
    assert sorted(errors.KINDS) == sorted(_core.error_kinds())


def test_every_class_is_listed_and_derives_from_a_built_in() -> None:
    classes = {
        name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.CuzarrError)
    }
    assert set(classes) <= set(errors.__all__)
    for name, cls in classes.items():
        bases = [base for base in cls.__mro__ if base.__module__ == "builtins" and base not in (object, BaseException)]
        assert name == "CuzarrError" or len(bases) > 1, f"{name} is only an Exception"


def test_names_of_zarr_python_have_their_bases() -> None:
    theirs = pytest.importorskip("zarr", minversion="3.4").errors
    for name in theirs.__all__:
        assert hasattr(errors, name), name
        cls = getattr(errors, name)
        for base in getattr(theirs, name).__mro__:
            if base.__module__ == "builtins":
                assert issubclass(cls, getattr(builtins, base.__name__)), (name, base)


def test_text_reads_place_message_hint() -> None:
    other = errors.ChunkCorruptError("frame ends early")
    error = errors.from_core("ChunkCorrupt", "bad", ("array '/a'", "chunk 'c/0'"), "write it again", (other,))
    assert isinstance(error, errors.ChunkCorruptError)
    assert str(error) == "array '/a': chunk 'c/0': bad (and 1 more failure)\nhint: write it again"
    assert (error.kind, error.others) == ("ChunkCorrupt", (other,))


def test_errors_survive_pickling() -> None:
    error = errors.BoundsCheckError("index 9", trail=("array '/a'",), hint="count again")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.trail) == (type(error), str(error), error.trail)


def test_errors_of_rust_arrive_with_their_kind() -> None:
    with pytest.raises(ValueError) as caught:
        _core.NdBuffer.empty((1,), "float32", "tpu", "C")
    assert isinstance(caught.value, errors.InvalidArgumentError)
    assert caught.value.kind == "InvalidArgument"


MISTAKES: dict[str, tuple[Callable[[str], Any], str]] = {
    "a path that is not there": (lambda root: cuzarr.open_array("feild.zarr", mode="r"), r"no array in store .*\n.*no 'feild.zarr' in /"),
    "a path of anything that is not there": (lambda root: cuzarr.open("feild.zarr", mode="r"), "no array and no group in store"),
    "a group opened as an array": (lambda root: cuzarr.open_array(root, mode="r"), r"zarr.json'.*\nhint: open it with open_group or open"),
    "an array opened as a group": (lambda root: cuzarr.open_group(f"{root}/x", mode="r"), r"zarr.json'.*\nhint: open it with open_array or open"),
    "a new axis": (lambda root: cuzarr.open(root)["x"][None], "index the result"),
    "one index of many": (lambda root: cuzarr.open(root)["x"].oindex[[0, -4]], "index -4 is out of bounds for a dimension of 3"),
    "a mask of another shape": (lambda root: cuzarr.open(root)["x"].vindex[np.ones((9, 9), bool)], r"mask of shape \(3,\); got bool\[9, 9\]"),
    "a list for results": (lambda root: cuzarr.open(root)["x"].get_basic_selection(out=[0]), "out is list, expected an array"),
    "a URL of nothing": (lambda root: cuzarr.open("s3://", mode="r"), "'s3://' is a URL without a place"),
    "a URL with one slash": (lambda root: cuzarr.open("s3:/b/c", mode="r"), "write 's3://b/c'"),
    "a path inside a ZIP file": (lambda root: cuzarr.open(f"{zipped(root)}/a", mode="r"), "no group .*\nhint: write 'zip://a::file:///"),
    "a path below a file": (lambda root: cuzarr.open(f"{root}/zarr.json/a", mode="r"), "zarr.json' is a file"),
    "a home that no shell put in": (lambda root: cuzarr.open("~/c.zarr", mode="r"), "'~' is not expanded"),
    "a misspelt codec": (lambda root: new(compressors={"name": "zsdt"}), "hint: did you mean 'zstd'"),
    "a misspelt codec of format 2": (lambda root: new(compressors={"id": "blsc"}, zarr_format=2), "hint: did you mean 'blosc'"),
    "a misspelt part of shards": (lambda root: new(shards={"shape": (3,), "index_locaton": "end"}), "index_locaton"),
    "a misspelt method": (lambda root: cuzarr.xp.quantile(new(), 0.5, method="liner"), "did you mean 'linear'"),
    "misspelt metadata": (lambda root: new(dtype={"name": "flaot32"}), "did you mean 'float32'"),
}  # fmt: skip


def zipped(root: str) -> str:
    cuzarr.save_array(f"{root}/a.zip", np.ones(3))
    return f"{root}/a.zip"


def new(**arguments: Any) -> cuzarr.Array:
    return cuzarr.create_array({}, **{"shape": (3,), "dtype": "int16"} | arguments)


def test_mistakes_that_are_no_errors_of_ours_are_told_with_what_helps() -> None:
    with pytest.raises(TypeError, match=r"'flaot32' not understood\nhint: did you mean 'float32'\?"):
        new(dtype="flaot32")
    with pytest.raises(TypeError, match="'quaternion' not understood\nhint: name it as NumPy"):
        new(dtype="quaternion")
    with pytest.raises(TypeError, match=r"ZstdCodec is a class, .* ZstdCodec\(\)"):
        new(compressors=cuzarr.codecs.ZstdCodec)
    with pytest.raises(TypeError, match="hint: pass its store_path"):
        cuzarr.open_group(cuzarr.create_group({}))


def test_a_mode_that_only_creates_is_told_the_modes_that_do_not(tmp_path: pathlib.Path) -> None:
    cuzarr.create_group(tmp_path)
    with pytest.raises(FileExistsError, match="hint: open it with mode='a', or replace it with mode='w'"):
        cuzarr.open_group(tmp_path, mode="w-")


def test_a_misspelt_member_is_told_the_one_beside_it(tmp_path: pathlib.Path) -> None:
    group = cuzarr.create_group(tmp_path, zarr_format=2)
    group.create_array("deep/temperature", shape=(3,), dtype="int16")
    for place in (group, cuzarr.consolidate_metadata(tmp_path, zarr_format=2)):
        with pytest.raises(KeyError) as raised:
            place["deep/temprature"]
        assert raised.value.args == ("deep/temprature",)
        assert raised.value.__notes__ == ["hint: did you mean 'deep/temperature'?"]
        with pytest.raises(KeyError) as raised:
            place["deep/salinity"]
        assert not hasattr(raised.value, "__notes__") and place.get("deep/salinity") is None


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_what_helps(mistake: str, tmp_path: pathlib.Path) -> None:
    group = cuzarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("x", shape=(3,), dtype="int16")
    make, told = MISTAKES[mistake]
    with pytest.raises(cuzarr.errors.CuzarrError) as raised:
        make(str(tmp_path / "g.zarr"))
    assert re.search(told, str(raised.value)), str(raised.value)


@pytest.mark.parametrize("member", ["codecs", "data_type", "chunk_grid", "fill_value", "shape"])
def test_metadata_that_cannot_be_used_is_named_with_its_place(member: str, tmp_path: pathlib.Path) -> None:
    cuzarr.create_array(tmp_path, name="deep/x", shape=(3,), dtype="int16")
    file = tmp_path / "deep/x/zarr.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {member: {"name": "unheard"}}))
    with pytest.raises(cuzarr.errors.CuzarrError, match=r"(?s)^file://.*deep/x"):
        cuzarr.open_array(tmp_path, path="deep/x", mode="r")

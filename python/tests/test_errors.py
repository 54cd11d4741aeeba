"""Errors: the same kinds in Rust and Python, the names of zarr-python, the built-ins a caller expects."""

from __future__ import annotations

import builtins
import pickle

import pytest

from cuzarr import _core, errors


def test_rust_and_python_know_the_same_kinds() -> None:
    assert sorted(errors.KINDS) == sorted(_core.error_kinds())


def test_every_class_is_listed_and_derives_from_a_built_in() -> None:
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.CuzarrError)
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

"""Every registered name works, or is refused by its name; docs/support.md says which."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import cuzarr
from cuzarr import _core
from cuzarr.errors import CuzarrError, UnknownCodecError, UnknownDataTypeError, UnsupportedFeatureError
from cuzarr.references.make import make_references_for_command

from . import registered

NAMES = [(kind, name) for kind in registered.KINDS for name in registered.SNAPSHOT[kind]]
PAGE = (Path(__file__).parents[3] / "docs" / "support.md").read_text("utf-8")


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_registered_name_works_or_is_refused_by_name(kind: str, name: str) -> None:
    error = registered.refusal(kind, name)
    row = re.search(rf"^\| {kind} \| `{re.escape(name)}` \| (\S+) \|$", PAGE, re.MULTILINE)
    assert row, "run scripts/write_docs.py"
    assert row[1] == ("yes" if error is None else "refused")
    if error is not None:
        assert isinstance(error, UnknownCodecError | UnknownDataTypeError | UnsupportedFeatureError), repr(error)
        assert name in str(error)


def test_the_page_lists_the_registered_names_and_no_other() -> None:
    kinds = "|".join(registered.KINDS)
    assert re.findall(rf"^\| ({kinds}) \| `(.+)` \| (?:yes|refused) \|$", PAGE, re.MULTILINE) == NAMES
    assert f"as of {registered.SNAPSHOT['date']} (commit `{registered.SNAPSHOT['commit'][:12]}`)" in PAGE


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_the_command_takes_and_refuses_the_same_names(kind: str, name: str, tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "zarr.json").write_text(json.dumps(registered.document(kind, name)))
    status = _core.cli(["cuzarr", "info", str(tmp_path)], make_references_for_command)
    said = capfd.readouterr().err.replace(str(tmp_path), "")
    assert (status == 0) == (registered.refusal(kind, name) is None), said
    assert status == 0 or name in said


@pytest.mark.parametrize(
    ("member", "error", "found"),
    [
        ({"data_type": "float99"}, UnknownDataTypeError, "float99"),
        ({"data_type": {"name": "posit16", "configuration": {}}}, UnknownDataTypeError, "posit16"),
        ({"codecs": [{"name": "brotli"}]}, UnknownCodecError, r"codecs\[0\]: codec 'brotli'"),
        (
            {"data_type": "uint8", "codecs": ["bytes", {"name": "brotli", "must_understand": False}]},
            UnknownCodecError,
            r"codecs\[1\]: codec 'brotli'",
        ),
        ({"chunk_grid": {"name": "hexagonal", "configuration": {}}}, UnsupportedFeatureError, "'hexagonal'"),
        ({"chunk_key_encoding": {"name": "fanout", "configuration": {}}}, UnsupportedFeatureError, "'fanout'"),
        ({"chunk_key_encoding": "suffix"}, UnsupportedFeatureError, "'suffix'"),
        ({"storage_transformers": [{"name": "mirror"}]}, UnsupportedFeatureError, "'mirror'"),
        ({"newer": {"must_understand": True}}, UnsupportedFeatureError, "'newer'"),
    ],
)
def test_names_that_are_registered_later_are_refused_by_name(member: Any, error: type[CuzarrError], found: str) -> None:
    document = registered.document("codecs", "bytes") | member
    with pytest.raises(error, match=found):
        cuzarr.open_array({"zarr.json": json.dumps(document).encode()}, mode="r")


@pytest.mark.parametrize(
    "member",
    [
        {"data_type": {"name": "float32"}},
        {"data_type": {"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": {"name": "int8"}}]}}, "fill_value": {"a": 0}},
        {"newer": {"must_understand": False}},
    ],
)  # fmt: skip
def test_names_may_be_objects_and_what_need_not_be_understood_is_passed_over(member: Any) -> None:
    document = registered.document("codecs", "bytes") | member
    array = cuzarr.open_array({"zarr.json": json.dumps(document).encode()}, mode="r+")
    array[...] = elements = array[...]
    assert array[...].tolist() == elements.tolist()

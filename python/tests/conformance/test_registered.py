"""Every registered name works, or is refused by its name; docs/support.md says which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cuzarr.errors import UnknownCodecError, UnknownDataTypeError, UnsupportedFeatureError

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

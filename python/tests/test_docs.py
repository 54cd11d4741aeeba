"""The pages that are made: the support matrix is as the tests and the library say, the records have their index, paths exist."""

from __future__ import annotations

import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
if not (ROOT / "scripts" / "write_docs.py").exists():
    pytest.skip("skipped: the pages are made where the sources are", allow_module_level=True)
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "bench")]
import gather  # noqa: E402
import write_docs  # noqa: E402

from cuzarr._config.keys import DEFAULTS  # noqa: E402


def test_the_support_matrix_is_what_the_tests_run() -> None:
    for library in ("cast_value_rs", "pcodec", "zfpy"):
        pytest.importorskip(library)
    pytest.importorskip("zarr", minversion="3.4")
    page = (ROOT / "docs" / "support.md").read_text()
    assert page == write_docs.support(), "run scripts/write_docs.py"


def test_errors_of_the_troubleshooting_page_are_raised_somewhere() -> None:
    titles = re.findall(r"^## `(.*)`$", (ROOT / "docs" / "guide" / "troubleshooting.md").read_text(), re.M)
    files = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("python/src/**/*.rs"), *ROOT.glob("python/cuzarr/**/*.py")]
    # What stands between the parts that vary; texts are broken into lines, or put together from parts.
    sources = re.sub(r'\\\n\s*|"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in files))
    assert len(titles) >= 9
    for title in titles:
        words = [part.strip(" ,:'") for part in re.split(r"…|cuda:0|lib\w+\S*|: ", title)]
        assert all(part in sources for part in words if part), title


def test_every_record_says_its_commit() -> None:
    files = sorted(gather.FOLDER.glob("*/*.json"))
    said = {path.name: text for path in gather.loose() if (text := path.read_text()[:2500])}
    for path in files:
        said.update(
            {
                f"{path.parent.name}/{path.name}: {name}": str(record)[:2500]
                for name, record in json.loads(path.read_text()).items()
            }
        )
    assert len(files) >= 10 and len(said) >= 90
    silent = [name for name, text in said.items() if "commit" not in text and not re.search(r"\b(?=[a-f]*\d)[0-9a-f]{7}\b", text)]
    assert not silent, "say the commit at which these were made"


def test_the_index_of_records_is_current() -> None:
    assert (gather.FOLDER / "README.md").read_text() == gather.index(), "run python bench/gather.py"


def test_every_path_that_contributing_names_is_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:crates|python|docs|scripts|bench|fuzz)/[^` ]+)`", page)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_guide_to_settings_lists_every_setting() -> None:
    page = (ROOT / "docs" / "guide" / "configuration.md").read_text()
    without_effect = ("async.timeout", "codec_pipeline.", "codecs.")
    named = set(re.findall(r"`([\w.]+)`", "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))))
    wanted = {key for key in DEFAULTS if not key.startswith(without_effect)}
    assert named == wanted

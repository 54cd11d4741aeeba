"""Every block of Python in the guides and the README runs. Blocks of one page share their names, and run in a folder of
their own; those marked `python gpu` run where there is a GPU."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

import cuzarr

ROOT = pathlib.Path(__file__).parents[2]
GUIDES = sorted(ROOT.glob("docs/guide/*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "start.md",
    *sorted(ROOT.glob("docs/concepts/*.md")),
    *GUIDES,
]
BLOCK = re.compile(r"^```python( gpu)?\n(.*?)^```", re.M | re.S)


def has_gpu() -> bool:
    try:
        cuzarr.zeros((1,), store={}, device="cuda")[:]
    except cuzarr.CuzarrError:
        if os.environ.get("CUZARR_REQUIRE_GPU") == "1":
            raise
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of(page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = list(BLOCK.finditer(page.read_text()))
    if any(block[1] for block in blocks) and not has_gpu():
        blocks = [block for block in blocks if not block[1]]
        if not blocks:
            pytest.skip("every block of this page needs a GPU")
    for library in ("zarr", "xarray", "dask", "distributed", "torch"):
        if any(re.search(rf"(import|from) (cuzarr\.)?{library}\b", block[2]) for block in blocks):
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        line = page.read_text()[: block.start(2)].count("\n")
        exec(compile("\n" * line + block[2], str(page), "exec"), names)


def test_there_are_guides() -> None:
    assert len(GUIDES) >= 4
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert all(f"guide/{page.name}" in navigation for page in GUIDES), "the navigation in mkdocs.yml names every guide"


def test_every_block_of_a_gpu_compiles() -> None:
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text()):
            compile(block[2], str(page), "exec")

"""Every block of Python in the guides and the README runs, and every line of shell that calls `cuzarr` without a server or a GPU.
Blocks of one page run in their order, share their names, and run in a folder of their own. Those marked `python gpu` run where there
is a GPU. Each section of `stacks.md` needs another program: `test_stacks.py` runs those that are installed."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

import cuzarr

ROOT = pathlib.Path(__file__).parents[2]
GUIDES = sorted(ROOT.glob("docs/guide/*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "start.md",
    *sorted(ROOT.glob("docs/concepts/*.md")),
    *(page for page in GUIDES if page.stem != "stacks"),
]
BLOCK = re.compile(r"^```python( gpu)?\n(.*?)^```", re.M | re.S)
PYTHON_OR_SHELL = re.compile(r"^```(?:(?P<shell>sh)|python(?P<gpu> gpu)?)\n(?P<text>.*?)^```", re.M | re.S)
# Lines of shell that need a server, a GPU, or files that the page does not make.
ELSEWHERE = re.compile(r"(s3|gs|az|https?)://|icechunk|cuda:|…")


def has_gpu() -> bool:
    try:
        cuzarr.zeros((1,), store={}, device="cuda")[:]
    except cuzarr.errors.CuzarrError:
        if os.environ.get("CUZARR_REQUIRE_GPU") == "1":
            raise
        return False
    return True


def commands(text: str) -> list[list[str]]:
    """The calls of `cuzarr` in a block of shell that this machine can carry out."""
    return [shlex.split(line) for line in text.splitlines() if line.startswith("cuzarr ") and not ELSEWHERE.search(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of(page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = list(PYTHON_OR_SHELL.finditer(page.read_text()))
    if any(block["gpu"] for block in blocks) and not has_gpu():
        blocks = [block for block in blocks if not block["gpu"]]
        if not any(commands(block["text"]) if block["shell"] else True for block in blocks):
            pytest.skip("every block of this page needs a GPU")
    for library in ("zarr", "xarray", "dask", "distributed", "torch", "torchdata", "jax", "tensorflow", "h5py", "anndata"):
        if any(re.search(rf"(import|from) (cuzarr\.)?{library}\b", block["text"]) for block in blocks):
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        if block["shell"]:
            for _, *arguments in commands(block["text"]):
                done = subprocess.run([sys.executable, "-m", "cuzarr", *arguments], capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"cuzarr {shlex.join(arguments)}: {done.stderr}"
            continue
        line = page.read_text()[: block.start("text")].count("\n")
        exec(compile("\n" * line + block["text"], str(page), "exec"), names)


def test_there_are_guides() -> None:
    assert len(GUIDES) >= 4
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert all(f"guide/{page.name}" in navigation for page in GUIDES), "the navigation in mkdocs.yml names every guide"


def test_every_block_of_a_gpu_compiles() -> None:
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text()):
            compile(block[2], str(page), "exec")

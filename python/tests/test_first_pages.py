"""The pages that a newcomer meets first make one array, by the same lines, and run one after the other in one folder."""

from __future__ import annotations

import pathlib
import re

import pytest
from conftest import gpu_device
from test_guides import PYTHON_OR_SHELL, ROOT, run_blocks

PAGES = [
    ROOT / name for name in ("README.md", "docs/index.md", "docs/start.md", "docs/guide/first-array.md", "docs/guide/gpu.md")
]
MAKES = re.compile(r"^import cuzarr\nimport numpy as np\n\nvalues = .*\narray = cuzarr\.create_array\(.*\n", re.M)


def test_they_make_one_array_by_the_same_lines() -> None:
    made = [MAKES.findall(page.read_text()) for page in PAGES]
    assert made == [[made[0][0]]] * len(PAGES)


# Each page comes before and after each of its neighbours. Kernels that were built for the CPU encode slowly: there once is enough.
@pytest.mark.parametrize(("device", "pages"), [("cpu", PAGES), ("cpu", PAGES[::-1]), ("gpu", PAGES[2:])])
def test_they_run_in_one_folder_and_again(
    device: str, pages: list[pathlib.Path], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("zarr")
    found, problem = gpu_device()
    if device == "gpu" and found is None:
        pytest.skip(f"skipped: {problem}")
    monkeypatch.chdir(tmp_path)
    for page in [*pages, *pages]:
        blocks = [block for block in PYTHON_OR_SHELL.finditer(page.read_text()) if device == "gpu" or not block["gpu"]]
        run_blocks(page, blocks, found)

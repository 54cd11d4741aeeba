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
from collections.abc import Iterator

import numpy as np
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
# Programs that a page names in their first line, and scripts for bash.
NAMED = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.M | re.S)
SCRIPT = re.compile(r"^```bash\n(#!/bin/bash\n.*?)^```", re.M | re.S)
# Lines of shell that need a server, a GPU, or files that the page does not make.
ELSEWHERE = re.compile(r"(s3|gs|az|https?)://|icechunk|cuda:|…")


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Undoes the settings that a page changes."""
    yield
    cuzarr.config.reset()


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


def run_blocks(page: pathlib.Path, blocks: list[re.Match[str]], device: str | None = None) -> None:
    """Runs blocks of a page in the current folder; `device` takes the place of the GPU that the page names."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        if block["shell"]:
            for _, *arguments in commands(block["text"]):
                done = subprocess.run([sys.executable, "-m", "cuzarr", *arguments], capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"cuzarr {shlex.join(arguments)}: {done.stderr}"
            continue
        line = page.read_text()[: block.start("text")].count("\n")
        text = block["text"].replace("cuda:0", device or "cuda:0")
        exec(compile("\n" * line + text, str(page), "exec"), names)


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
    run_blocks(page, blocks)


def test_there_are_guides() -> None:
    assert len(GUIDES) >= 4
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert all(f"guide/{page.name}" in navigation for page in GUIDES), "the navigation in mkdocs.yml names every guide"


def test_every_block_of_a_gpu_compiles() -> None:
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text()):
            compile(block[2], str(page), "exec")


def test_the_scripts_for_slurm_run_by_bash(tmp_path: pathlib.Path) -> None:
    page = (ROOT / "docs" / "guide" / "slurm.md").read_text()
    for name, text in NAMED.findall(page):
        (tmp_path / name).write_text(text)
    maps = np.random.default_rng(2).normal(280, 5, (120, 40, 60)).astype("float32")
    cuzarr.create_array(tmp_path / "daily.zarr", data=maps, chunks=(1, 40, 60), dimension_names=("time", "lat", "lon"))

    programs = tmp_path / "bin"
    programs.mkdir()
    tasks = 'for task in $(seq 0 $((SLURM_NTASKS - 1))); do SLURM_PROCID=$task "$@" & running+=($!); done'
    for name, text in {
        "python": f'exec {shlex.quote(sys.executable)} "$@"',
        "cuzarr": f'exec {shlex.quote(sys.executable)} -m cuzarr "$@"',
        # The tasks of a step, at the same time on this machine.
        "srun": f'shift\nrunning=()\n{tasks}\nfor one in "${{running[@]}}"; do wait "$one"; done',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\nset -e\n{text}\n")
        (programs / name).chmod(0o755)
    slurm = {"SLURM_NTASKS": "4", "SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_NODE": "2048"}
    path = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(pathlib.Path(cuzarr.__file__).parents[1])}
    scripts = SCRIPT.findall(page)
    assert len(scripts) == 2
    for script in scripts * 2:  # a job may be started again
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=os.environ | slurm | path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    series = cuzarr.open_array(tmp_path / "daily-series.zarr", mode="r")
    assert series.chunks == (120, 10, 10) and np.array_equal(series[:], maps)
    anomaly = cuzarr.open_array(tmp_path / "anomaly.zarr", mode="r")
    np.testing.assert_allclose(anomaly[:], maps - maps.mean(axis=0), atol=1e-3)
    assert anomaly.nchunks_initialized == anomaly.nchunks == 8


def test_the_guide_to_containers_shows_the_containerfile() -> None:
    if not (ROOT / "packaging").exists():
        pytest.skip("skipped: the file lies where the sources are")
    page = (ROOT / "docs" / "guide" / "containers.md").read_text()
    assert f"```dockerfile\n{(ROOT / 'packaging' / 'Containerfile').read_text()}```" in page


def test_the_guide_to_fall_backs_describes_every_line_of_an_explanation(tmp_path: pathlib.Path) -> None:
    page = (ROOT / "docs" / "guide" / "fall-backs.md").read_text()
    array = cuzarr.create_array({}, data=np.arange(100_000, dtype="int32"), chunks=10_000).with_device("cuda:0")
    shown = re.search(r"^```text\n(.*?)^```", page, re.M | re.S)
    assert shown is not None
    # Where codecs run, and how fast, depends on the machine.
    labels = [line[2:22].strip() for line in str(array.explain()).splitlines()[1:]]
    assert [line[2:22].strip() for line in shown[1].splitlines()[1:]] == labels
    cuzarr.create_array(tmp_path / "kept.zarr", shape=(4,), dtype="int32", chunks=2)
    for others in (
        cuzarr.open_array(tmp_path / "kept.zarr", mode="r", chunk_cache=True).explain(),
        array.explain(slice(5), writing=True),
    ):
        labels += [line[2:22].strip() for line in str(others).splitlines()[1:]]
    assert {"chunk cache", "parts of chunks"} <= set(labels)
    assert {label for label in labels if f"`{label}`" not in page} == set()


def test_pages_do_not_use_the_stores_of_others() -> None:
    together = {"README", "index", "start", "first-array", "gpu"}  # test_first_pages.py runs them in one folder
    users: dict[str, set[str]] = {}
    for page in (*PAGES, ROOT / "docs" / "guide" / "stacks.md"):
        blocks = list(PYTHON_OR_SHELL.finditer(page.read_text()))
        python = "\n".join(block["text"] for block in blocks if not block["shell"])
        names = set(re.findall(r'"([\w.-]+\.(?:zarr|zip|nc|json))[/"]', python))
        shell = [word for block in blocks if block["shell"] for command in commands(block["text"]) for word in command]
        names.update(
            found[1] for word in shell if (found := re.search(r"(?:^|[:=])([\w.-]+\.(?:zarr|zip|nc|json))(?:/|$)", word))
        )
        for name in names:
            users.setdefault(name, set()).add("first pages" if page.stem in together else page.stem)
    assert len(users) > 50
    assert {name: pages for name, pages in users.items() if len(pages) > 1} == {}, "a reader may run the pages in one folder"

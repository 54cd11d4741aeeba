"""The programs in ``seeds``: they run, they print what their origins print, and every differing line is in the table."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import cuzarr

SEEDS = pathlib.Path(__file__).parent / "seeds"
# What the program about LZ4 says, by its own words.
LZ4 = f"""\
the GPU reads what it wrote: {[*range(20)]}
the CPU reads what the GPU wrote: {[*range(20)]}
the GPU reads what the CPU wrote over it: {[*range(20, 40)]}
the GPU reads what the CPU wrote uncompressed: {[*range(10)]}
the GPU reads what the CPU compressed: {[*range(10, 20)]}
"""
NAMES = sorted(path.name for path in SEEDS.glob("*.py"))


@functools.cache
def printed(program: str, device: str) -> str:
    # -P: programs that have the name of a library must not stand in for it.
    command = [sys.executable, "-P", str(SEEDS / program), device]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def needs_gpu(name: str) -> bool:
    """Whether a program is about a GPU alone, and says nothing of the CPU."""
    return "sys.argv" not in (SEEDS / name).read_text()


def origin_runs(name: str) -> bool:
    """Whether the origin's packages are there: KvikIO as it was needs a GPU and old versions of others."""
    return "kvikio" not in (SEEDS / "origin" / name).read_text()


def usable_gpu() -> str | None:
    """Why there is no GPU for these programs, which use CuPy."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        cuzarr.DeviceArray.empty((1,), "u1", "cuda").cpu()
    except cuzarr.errors.CuzarrError as error:
        assert os.environ.get("CUZARR_REQUIRE_GPU") != "1", error
        return str(error)
    return None


def differences(name: str) -> list[tuple[str, str]]:
    before, after = ((folder / name).read_text().splitlines() for folder in (SEEDS / "origin", SEEDS))
    assert len(before) == len(after), f"{name} has lines that its origin has not"
    return [(old.strip(), new.strip()) for old, new in zip(before, after, strict=True) if old != new]


def test_every_origin_has_its_program() -> None:
    assert sorted(path.name for path in (SEEDS / "origin").glob("*.py")) == NAMES != []


@pytest.mark.parametrize("name", NAMES)
def test_program_prints_on_the_cpu_what_its_origin_prints(name: str) -> None:
    pytest.importorskip("zarr", minversion="3.4")
    if needs_gpu(name):
        pytest.skip("a program about a GPU alone")
    assert printed(name, "cpu") != ""
    if origin_runs(name):
        assert printed(name, "cpu") == printed(f"origin/{name}", "cpu")


@pytest.mark.parametrize("name", NAMES)
def test_program_prints_on_a_gpu_what_it_prints_on_the_cpu(name: str) -> None:
    if problem := usable_gpu():
        pytest.skip(f"skipped: {problem}")
    assert printed(name, "gpu") == (LZ4 if needs_gpu(name) else printed(name, "cpu"))


def test_every_differing_line_is_in_the_table_and_no_other() -> None:
    rows = [line.split(" | ") for line in (SEEDS / "README.md").read_text().splitlines() if line.startswith("| ")][1:]
    listed = {(old.strip("` "), new.strip("` ")) for _, old, new, _ in rows}
    found = {pair for name in NAMES for pair in differences(name)}
    assert found == listed, "\n".join(difflib.unified_diff(*(sorted(map(str, pairs)) for pairs in (listed, found))))

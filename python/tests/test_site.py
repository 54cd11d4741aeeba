"""The pages of the Python interface: every public name is on one of them, and each program of the cookbook runs."""

from __future__ import annotations

import inspect
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

import cuzarr

ROOT = pathlib.Path(__file__).parents[2]
WEBSITE = ROOT / "scripts" / "website"
if not WEBSITE.exists():
    pytest.skip("skipped: the site is made where the sources are", allow_module_level=True)
pytest.importorskip("griffe", reason="skipped: `make docs` installs what makes the site")
sys.path.insert(0, str(WEBSITE))
import api  # noqa: E402
import gallery  # noqa: E402


def test_every_public_name_is_on_a_page() -> None:
    listed = api.listed()
    assert len(listed) > 350
    assert [f"cuzarr.xp.{name}" for name in api.exports("cuzarr.xp") if f"cuzarr.xp.{name}" not in listed] == []
    modules = {page.module for page in api.PAGES} | {"cuzarr"}
    assert [f"cuzarr.{name}" for name in api.exports("cuzarr") if f"cuzarr.{name}" not in listed] == []
    public = [name for name in dir(cuzarr) if inspect.ismodule(getattr(cuzarr, name))]
    covered = [name for name in public if any(module.startswith(f"cuzarr.{name}") for module in modules)]
    assert set(public) == set(covered)


def test_every_page_has_its_place_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page.slug for page in api.PAGES if f"reference/python/{page.slug}.md" not in navigation] == []


def test_every_program_of_the_cookbook_has_a_page() -> None:
    programs = {path.stem for path in gallery.FOLDER.glob("*.py")}
    assert programs == set(gallery.PROGRAMS)


def test_the_navigation_has_the_programs_by_area() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("  - Cookbook:\n")[2].partition("  - Reference:\n")[0]
    areas: dict[str, list[str]] = {}
    for area, name in re.findall(r"^      - (.+):$|gallery/(\w+)\.md", navigation, re.M):
        if area:
            areas[area] = []
        elif areas:
            areas[list(areas)[-1]].append(name)
    assert areas == {area: list(programs) for area, programs in gallery.AREAS.items()}


def test_figures_of_the_cookbook_come_from_records() -> None:
    shown = {name: program.measured for name, program in gallery.PROGRAMS.items() if program.measured is not None}
    assert len(shown) >= 5
    for name, measured in shown.items():
        rows = measured.rows(gallery.gather.records(measured.machine, measured.bench)[measured.record])
        assert len(rows) >= 2, name
        assert measured.markdown().count("`") >= 4


# For each program: an option with a small or odd value that it takes, and an option with a value that it refuses.
OPTIONS = {
    "weather_training": ("--times=26", "--times=25"),
    "stations": ("--times=1", "--times=0"),
    "climatology": ("--years=2", "--memory-limit=1000"),
    "cmip": ("--years=1", "--years=0"),
    "appends": ("--months=3", "--months=1"),
    "forecast": ("--steps=1", "--steps=0"),
    "netcdf_archive": ("--months=1", "--months=0"),
    "wind": ("--times=1", "--memory-limit=much"),
    "light_sheet": ("--side=65", "--planes=0"),
    "pyramid": ("--size=1", "--size=0"),
    "labels": ("--size=257", "--size=128"),
    "plate": ("--fields=1", "--fields=0"),
    "cells": ("--cells=1", "--epochs=0"),
    "genotypes": ("--variants=121", "--variants=50"),
    "training": ("--size=33", "--size=32"),
    "checkpoints": ("--frames=5", "--frames=1"),
    "overnight": ("--arrays=1", "--arrays=0"),
    "tiles": ("--size=385", "--size=256"),
    "codecs": ("--mib=1", "--device=tpu"),
    "stages": ("--mib=1", "--mib=0"),
}


def need_libraries(name: str) -> None:
    for library in ("matplotlib", "xarray", "h5py"):
        if re.search(rf"^ *(import|from) {library}\b", (gallery.FOLDER / f"{name}.py").read_text(), re.M):
            pytest.importorskip(library, reason=f"skipped: this program needs {library}")


@pytest.mark.parametrize("small", [False, True], ids=["", "small"])
@pytest.mark.parametrize("name", gallery.PROGRAMS)
def test_a_program_of_the_cookbook_makes_its_picture(name: str, small: bool, tmp_path: pathlib.Path) -> None:
    need_libraries(name)
    picture = tmp_path / f"picture.{gallery.PROGRAMS[name].kind}"
    command = [*gallery.arguments(name, picture), *([OPTIONS[name][0]] if small else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() and picture.stat().st_size > (1_000 if small else 5_000)


@pytest.mark.parametrize("name", gallery.PROGRAMS)
def test_a_program_of_the_cookbook_says_which_values_it_takes(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_libraries(name)
    refused = OPTIONS[name][1]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", refused, "--picture", str(tmp_path / "picture.png")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(gallery.FOLDER / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().err
    assert ended.value.code == 2 and f"{name}.py: error: " in said and refused.partition("=")[0] in said

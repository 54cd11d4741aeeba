"""The pages of the Python interface: every public name is on one of them, and each program of the cookbook runs."""

from __future__ import annotations

import inspect
import pathlib
import re
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


@pytest.mark.parametrize("name", gallery.PROGRAMS)
def test_a_program_of_the_cookbook_makes_its_picture(name: str, tmp_path: pathlib.Path) -> None:
    for library in ("matplotlib", "xarray", "h5py"):
        if re.search(rf"^ *(import|from) {library}\b", (gallery.FOLDER / f"{name}.py").read_text(), re.M):
            pytest.importorskip(library, reason=f"skipped: this program needs {library}")
    picture = tmp_path / f"picture.{gallery.PROGRAMS[name].kind}"
    done = subprocess.run(gallery.arguments(name, picture), capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() and picture.stat().st_size > 5_000

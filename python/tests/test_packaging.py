"""What package indexes show and installers run: the page's links, the extras that it names, the message on other systems."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
if not (ROOT / "Cargo.toml").exists():
    pytest.skip("skipped: packages are made where the sources are", allow_module_level=True)
sys.path.insert(0, str(ROOT / "scripts"))
import check_release  # noqa: E402

REPOSITORY = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["repository"]
PROJECT = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("crates/*/README.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_of_packages_link_to_what_is_there(page: pathlib.Path) -> None:
    """Indexes show these pages outside the repository, so every link is complete."""
    text = page.read_text()
    links = [link for pair in re.findall(r"\]\(([^)]+)\)|^\[[^]]+\]: (\S+)$", text, re.M) for link in pair if link]
    assert [link for link in links if not link.startswith("https://")] == []
    inside = [link.removeprefix(f"{REPOSITORY}/blob/main/") for link in links if link.startswith(f"{REPOSITORY}/blob/")]
    assert [path for path in inside if not (ROOT / path).exists()] == []


def test_every_reference_of_the_readme_has_its_address() -> None:
    text = (ROOT / "README.md").read_text()
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    used = set(re.findall(r"(?<!\])\[([^]\n]+)\](?![(:])", prose))
    assert used == set(re.findall(r"^\[([^]]+)\]: ", text, re.M))


def test_the_readme_names_every_extra() -> None:
    named = set(re.findall(r"cuzarr\[(\w+)\]", (ROOT / "README.md").read_text()))
    assert named == set(PROJECT["optional-dependencies"])


def test_addresses_are_those_of_the_repository() -> None:
    site = re.search(r"^site_url: (\S+)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert site is not None and PROJECT["urls"]["Documentation"] == site[1]
    assert all(url.startswith((REPOSITORY, site[1])) for url in PROJECT["urls"].values())


def test_building_on_another_system_says_that_there_is_nothing_to_build() -> None:
    program = "import sys; sys.platform = 'darwin'; import build_backend"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "python", capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("cuzarr runs on Linux only, and this is darwin") and "Traceback" not in run.stderr


def test_building_on_linux_is_maturins() -> None:
    pytest.importorskip("maturin")
    program = "import build_backend, maturin; assert build_backend.build_wheel is maturin.build_wheel"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT / "python", check=True)


def release(changelog: str, tag: str = "v1.2.0", asked: str = "1.2.0") -> list[str]:
    workspace = {"package": {"version": "1.2.0"}, "dependencies": {"cuzarr": {"path": "crates/cuzarr", "version": asked}}}
    return list(check_release.faults(tag, workspace, changelog))


def test_releases_are_refused_until_tag_versions_and_changelog_agree() -> None:
    changelog = "# Changelog\n\n## 1.2.0 (2026-11-23)\n\n- New.\n\n## 1.1.0 (2026-01-01)\n\n- Old.\n"
    assert release(changelog) == []
    assert check_release.section(changelog, "1.2.0") == ("2026-11-23", "- New.")
    assert release(changelog, tag="v1.3.0") == ["the tag is v1.3.0, the version of Cargo.toml is 1.2.0"]
    assert release(changelog, asked="1.1.0") == ["Cargo.toml asks for cuzarr 1.1.0, expected 1.2.0"]
    assert release(changelog.replace("(2026-11-23)", "(unreleased)")) == [
        "CHANGELOG.md says 'unreleased' of 1.2.0, expected the date of the release"
    ]
    assert release(changelog.replace("1.2.0", "1.2.1")) == ["CHANGELOG.md has no section '## 1.2.0'"]


def test_every_published_crate_carries_its_licences_and_page() -> None:
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    manifests = {member: tomllib.loads((ROOT / member / "Cargo.toml").read_text())["package"] for member in members}
    published = [member for member, package in manifests.items() if package.get("publish", True)]
    assert len(published) >= 4
    for member in published:
        assert {"description", "license", "authors", "repository", "include"} <= set(manifests[member]), member
        assert all((ROOT / member / name).exists() for name in ("README.md", "LICENSE-MIT", "LICENSE-APACHE")), member

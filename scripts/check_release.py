"""Checks that a release is complete, and prints its section of the changelog.

    python scripts/check_release.py TAG

The tag must be `v` and the version of the workspace, which all crates that depend on each other ask for; the changelog must have a
section for it, whose heading no longer says that it is unreleased.
"""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def section(changelog, version):
    """The changelog's section of a version: what its heading says beside it, and the text below; ``None`` when it has none."""
    found = re.search(rf"^## {re.escape(version)}\b *(.*)\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    return None if found is None else (found[1].strip(" ()"), found[2].strip())


def faults(tag, workspace, changelog):
    """What is wrong with a release."""
    version = workspace["package"]["version"]
    if tag != f"v{version}":
        yield f"the tag is {tag}, the version of Cargo.toml is {version}"
    for name, dependency in workspace["dependencies"].items():
        if dependency.get("path") and dependency.get("version") != version:
            yield f"Cargo.toml asks for {name} {dependency.get('version')}, expected {version}"
    found = section(changelog, version)
    if found is None or not found[1]:
        yield f"CHANGELOG.md has no section '## {version}'"
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", found[0]):
        yield f"CHANGELOG.md says '{found[0]}' of {version}, expected the date of the release"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    wrong = list(faults(sys.argv[1], workspace, changelog))
    for fault in wrong:
        print(fault, file=sys.stderr)
    if not wrong:
        print(section(changelog, workspace["package"]["version"])[1])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

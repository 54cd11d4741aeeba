"""The pages of the gallery: a program, what it says, and the picture that it makes, here and now.

Each program of `docs/gallery/` runs once for each build of the site, at a small size. Its documentation opens the page.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "gallery"
CACHE = ROOT / "target" / "gallery"
# The programs in the order of the pages, with the arguments of a small run and the kind of picture.
PROGRAMS = {
    "climatology": (["--years", "4", "--memory-limit", "4 MiB"], "png"),
    "wind": (["--times", "40", "--memory-limit", "16 MiB"], "png"),
    "pyramid": (["--size", "1024"], "png"),
    "training": ([], "png"),
    "codecs": (["--mib", "16"], "png"),
    "stages": (["--mib", "64"], "svg"),
}


@dataclass(frozen=True)
class Result:
    """What a run of a program gave."""

    said: str
    picture: bytes


def arguments(name: str, picture: pathlib.Path | str) -> list[str]:
    """The command of a small run."""
    return [sys.executable, str(FOLDER / f"{name}.py"), *PROGRAMS[name][0], "--picture", str(picture)]


@cache
def run(name: str) -> Result:
    """Runs a program, unless a run of this very text is kept."""
    text = (FOLDER / f"{name}.py").read_bytes() + json.dumps(PROGRAMS[name]).encode()
    kept = CACHE / hashlib.sha256(text).hexdigest()[:16]
    picture, said = kept.with_suffix(f".{PROGRAMS[name][1]}"), kept.with_suffix(".txt")
    if not said.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(arguments(name, picture), capture_output=True, text=True, env=os.environ | {"MPLBACKEND": "agg"})
        if done.returncode != 0:
            raise RuntimeError(f"docs/gallery/{name}.py failed:\n{done.stdout}{done.stderr}")
        said.write_text(done.stdout)
    return Result(said.read_text(), picture.read_bytes())


def words(name: str) -> tuple[str, str]:
    """The title of a program and its text."""
    title, _, text = (ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or "").partition("\n")
    return title, text.strip()


def page(name: str) -> str:
    """The page of a program as Markdown."""
    title, text = words(name)
    code = (FOLDER / f"{name}.py").read_text().split('"""', 2)[2].strip()
    command = " ".join(["python", f"docs/gallery/{name}.py", *(f"'{one}'" if " " in one else one for one in PROGRAMS[name][0])])
    return "\n".join([
        f"# {title}", "", text, "",
        f"![The picture that {name}.py makes]({name}-picture.{PROGRAMS[name][1]}){{ .made }}", "",
        "```text", f"$ {command}", run(name).said.rstrip(), "```", "",
        f"[`docs/gallery/{name}.py`](https://github.com/cuzarr/cuzarr/blob/main/docs/gallery/{name}.py):", "",
        "```python", code, "```", "",
    ])  # fmt: skip


def index() -> str:
    """The page that shows all pictures."""
    out = [
        "# Gallery",
        "",
        "Each page is a program that runs as it is, and the picture that it made when this site was built.",
        "",
    ]
    for name in PROGRAMS:
        title, text = words(name)
        first = " ".join(text.split(". ")[0].split()).rstrip(".")
        out += [
            f"## [{title}]({name}.md)",
            "",
            f"{first}.",
            "",
            f"[![{title}]({name}-picture.{PROGRAMS[name][1]}){{ .made }}]({name}.md)",
            "",
        ]
    return "\n".join(out)


def pages() -> dict[str, str]:
    """Every page of the gallery, by its path in `docs/`."""
    return {"gallery/index.md": index(), **{f"gallery/{name}.md": page(name) for name in PROGRAMS}}


def pictures() -> dict[str, bytes]:
    """Every picture of the gallery, by its path in `docs/`."""
    return {f"gallery/{name}-picture.{kind}": run(name).picture for name, (_, kind) in PROGRAMS.items()}

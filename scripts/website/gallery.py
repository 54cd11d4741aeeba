"""The pages of the cookbook: a program, what it says, and the picture that it makes, here and now.

Each program of `docs/gallery/` runs once for each build of the site, at a small size. Its documentation opens the page. A page may also
show figures of `bench/record/`, with the command that measured them.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "gallery"
CACHE = ROOT / "target" / "gallery"
sys.path.insert(0, str(ROOT / "bench"))
import gather  # noqa: E402


@dataclass(frozen=True)
class Measured:
    """Figures of a record: what was measured, the record, and the rows of the table that the page shows."""

    about: str
    machine: str
    bench: str
    record: str
    rows: Callable[[Any], list[tuple[str, str]]]

    def markdown(self) -> str:
        """The table, the machine, the command and the record."""
        record = gather.records(self.machine, self.bench)[self.record]
        run = record["runs"][0] if "runs" in record else record
        return "\n".join([
            "## Measured", "", f"{self.about} Machine: {record['machine']}.", "",
            "| what | measured |", "|---|---|", *(f"| {name} | {figure} |" for name, figure in self.rows(record)), "",
            f"Command: `{run['command']}`. Record: `{self.record}` ([index](../../bench/record/README.md)).", "",
        ])  # fmt: skip


def job(name: str) -> Callable[[Any], list[tuple[str, str]]]:
    """The rows of one job: who did it, and the milliseconds that it took."""
    return lambda record: [
        (f"`{row['by']}`", f"{row['milliseconds']:.3g} ms") for row in record["rows"] if row.get("job") == name
    ]


def forecasts(record: Any) -> list[tuple[str, str]]:
    """The rows of a record of writers that are about many variables."""
    row = next(row for row in record["rows"] if row["chunks"] == "forecast")
    return [("`Group.writer`", f"{row['writer']:.3g} ms"), ("`array[step] = …`", f"{row['assigned']:.4g} ms")]


def archives(record: Any) -> list[tuple[str, str]]:
    """The rows of a record of far stores that are about netCDF."""
    names = {"references": "by references", "zarr": "the same chunks in a Zarr array", "h5py": "by h5py"}
    rows = [row for row in record["rows"] if row["what"] == "netcdf"]
    return [(f"{names[by]}, chunks of {row['chunk_MiB']} MiB", f"{row[by]} GB/s") for row in rows for by in names]


def pyramids(record: Any) -> list[tuple[str, str]]:
    """The rows of a record of pyramids: seconds, and bytes of the image a second."""
    rows = [row for row in record["rows"] if "seconds" in row]
    return [(row["engine"], f"{min(row['seconds']):.3g} s, {row['gigabytes_per_s']:.3g} GB/s") for row in rows]


@dataclass(frozen=True)
class Program:
    """A program: the arguments of a small run, the kind of its picture, and figures of a record."""

    arguments: tuple[str, ...] = ()
    kind: str = "png"
    measured: Measured | None = None


# The programs by area, in the order of the pages.
AREAS = {
    "Weather and climate": {
        "weather_training": Program(
            measured=Measured(
                "24 variables of 8 MiB in zstd, read into the memory of a GPU; `one box` is one array of as many bytes.",
                "nvidia-h200",
                "datasets",
                "2026-11-30-datasets-081123",
                job("24 variables of 8 MiB"),
            )
        ),
        "stations": Program(
            measured=Measured(
                "Selections of an array of 512 MiB in zstd, read into the memory of a GPU.",
                "nvidia-h200",
                "selections",
                "2026-11-28-selections",
                lambda record: [(name, f"{ms:.3g} ms") for name, ms in record["runs"][0]["ms"].items()],
            )
        ),
        "climatology": Program(("--years", "4", "--memory-limit", "4 MiB")),
        "cmip": Program(),
        "appends": Program(),
        "forecast": Program(
            measured=Measured(
                "24 arrays by 40 steps of 4 MiB from the memory of a GPU, in zstd: by `Group.writer`, and by assigning each step.",
                "nvidia-h200",
                "writer",
                "2026-11-30-writer-133036",
                forecasts,
            )
        ),
        "netcdf_archive": Program(
            measured=Measured(
                "256 MiB of a netCDF-4 file with shuffled zlib chunks, read into host memory by two cores, by references and by h5py.",
                "intel-xeon",
                "far",
                "2026-11-27-far",
                archives,
            )
        ),
        "wind": Program(("--times", "40", "--memory-limit", "16 MiB")),
    },
    "Microscopy": {
        "light_sheet": Program(
            measured=Measured(
                "An image of 30 planes of 15,000 x 15,000 pixels becomes a pyramid of seven levels, in files in memory.",
                "nvidia-h100",
                "pyramid",
                "2026-11-27-pyramid",
                pyramids,
            )
        ),
        "pyramid": Program(("--size", "1024")),
        "labels": Program(),
        "plate": Program(
            measured=Measured(
                "1,000 small arrays, read into the memory of a GPU.",
                "nvidia-h200",
                "datasets",
                "2026-11-30-datasets-081123",
                job("1,000 small arrays"),
            )
        ),
    },
    "Single cells and genomes": {
        "cells": Program(
            measured=Measured(
                "An epoch of 200,000 cells with 10⁸ elements, in shuffled batches of 4,096 rows, into the memory of a GPU.",
                "nvidia-h200",
                "sparse",
                "2026-11-30-sparse_rows-2",
                job("epoch"),
            )
        ),
        "genotypes": Program(),
    },
    "Training": {
        "training": Program(
            measured=Measured(
                "256 crops of 48³ elements, read into the memory of a GPU.",
                "nvidia-h200",
                "datasets",
                "2026-11-30-datasets-081123",
                job("256 crops of 48³"),
            )
        ),
    },
    "Simulations": {
        "checkpoints": Program(),
    },
    "Moving and serving data": {
        "overnight": Program(),
        "tiles": Program(),
        "codecs": Program(("--mib", "16")),
        "stages": Program(("--mib", "64"), "svg"),
    },
}
PROGRAMS = {name: program for programs in AREAS.values() for name, program in programs.items()}


@dataclass(frozen=True)
class Result:
    """What a run of a program gave."""

    said: str
    picture: bytes


def arguments(name: str, picture: pathlib.Path | str) -> list[str]:
    """The command of a small run."""
    return [sys.executable, str(FOLDER / f"{name}.py"), *PROGRAMS[name].arguments, "--picture", str(picture)]


@cache
def run(name: str) -> Result:
    """Runs a program, unless a run of this very text is kept."""
    text = (FOLDER / f"{name}.py").read_bytes() + json.dumps([PROGRAMS[name].arguments, PROGRAMS[name].kind]).encode()
    kept = CACHE / hashlib.sha256(text).hexdigest()[:16]
    picture, said = kept.with_suffix(f".{PROGRAMS[name].kind}"), kept.with_suffix(".txt")
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
    command = " ".join(
        ["python", f"docs/gallery/{name}.py", *(f"'{one}'" if " " in one else one for one in PROGRAMS[name].arguments)]
    )
    return "\n".join([
        f"# {title}", "", text, "",
        f"![The picture that {name}.py makes]({name}-picture.{PROGRAMS[name].kind}){{ .made }}", "",
        "```text", f"$ {command}", run(name).said.rstrip(), "```", "",
        *([measured.markdown()] if (measured := PROGRAMS[name].measured) else []),
        "## The program", "",
        f"[`docs/gallery/{name}.py`](https://github.com/cuzarr/cuzarr/blob/main/docs/gallery/{name}.py):", "",
        "```python", code, "```", "",
    ])  # fmt: skip


def index() -> str:
    """The page that shows all pictures, by area."""
    out = [
        "# Cookbook",
        "",
        "Find the job that is like yours. Each page is a program that runs as it is, on small data that it makes, with what it printed and "
        "the picture that it drew when this site was built. Its options make the data larger: `--help` lists them.",
        "",
    ]
    for area, programs in AREAS.items():
        out += [f"## {area}", ""]
        for name in programs:
            title, text = words(name)
            first = " ".join(text.split(". ")[0].split()).rstrip(".")
            out += [
                f"### [{title}]({name}.md)",
                "",
                f"{first}.",
                "",
                f"[![{title}]({name}-picture.{PROGRAMS[name].kind}){{ .made }}]({name}.md)",
                "",
            ]
    return "\n".join(out)


def pages() -> dict[str, str]:
    """Every page of the cookbook, by its path in `docs/`."""
    return {"gallery/index.md": index(), **{f"gallery/{name}.md": page(name) for name in PROGRAMS}}


def pictures() -> dict[str, bytes]:
    """Every picture of the cookbook, by its path in `docs/`."""
    return {f"gallery/{name}-picture.{program.kind}": run(name).picture for name, program in PROGRAMS.items()}

"""The page of the command line, from what the command says of itself: its help is made by clap from the Rust sources."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

COMMAND = [sys.executable, "-m", "cuzarr"]


@cache
def help_of(*words: str) -> str:
    """The long help of a command."""
    done = subprocess.run(
        [*COMMAND, *words, "--help"], capture_output=True, text=True, check=True, env={"COLUMNS": "100", "PATH": ""}
    )
    return done.stdout.rstrip()


def subcommands(*words: str) -> list[tuple[str, str]]:
    """The commands below one, with what each does."""
    found = re.search(r"^Commands:\n((?:  .*\n?)+)", help_of(*words), re.M)
    lines = re.findall(r"^  (\S+)\s+(.*)$", found[1], re.M) if found else []
    return [(name, about) for name, about in lines if name != "help"]


def section(*words: str) -> list[str]:
    name = " ".join(("cuzarr", *words))
    out = [f"{'#' * (len(words) + 1)} `{name}`", "", "```text", help_of(*words), "```", ""]
    for below, _ in subcommands(*words):
        out += section(*words, below)
    return out


def page() -> str:
    """The page as Markdown."""
    out = [
        "# Command line", "",
        "Results go to standard output, as text or with `--json` as one JSON document. Progress, warnings and errors go to standard error.",
        "The exit status is 0 for success, 1 for a failure (wrong data, an error), 2 for wrong arguments (error kinds `InvalidArgument` and",
        "`SelectionInvalid`), and 128 + n for a command that the signal n ended: 130 for Ctrl-C.", "",
        "| command | what it does |", "|---|---|",
    ]  # fmt: skip
    for name, about in subcommands():
        out.append(f"| [`cuzarr {name}`](#cuzarr-{name}) | {about} |")
    out.append("")
    for name, _ in subcommands():
        out += section(name)
    return "\n".join(out)

"""The cases that CORRECTNESS.md excuses: the only list there is, so that nobody finds out later."""

from __future__ import annotations

import dataclasses
import fnmatch
import pathlib

PAGE = pathlib.Path(__file__).parents[3] / "CORRECTNESS.md"
HEADING = "## Excused conformance cases"
DIRECTIONS = ("read", "write", "both")


@dataclasses.dataclass(frozen=True)
class Excuse:
    """One line of the table."""

    direction: str
    pattern: str
    reason: str

    def covers(self, direction: str, name: str) -> bool:
        return self.direction in (direction, "both") and fnmatch.fnmatchcase(name, self.pattern)


def parse(page: str) -> list[Excuse]:
    """The rows of the table below the heading."""
    _, _, section = page.partition(HEADING)
    if not section:
        raise ValueError(f"no section '{HEADING}'")
    section = section.partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    if rows[:1] != [["direction", "pattern", "why"]]:
        raise ValueError(f"the first row is not the table's head: {rows[:1]}")
    excuses = [Excuse(direction, pattern.strip("`"), reason) for direction, pattern, reason in rows[2:]]
    for excuse in excuses:
        if excuse.direction not in DIRECTIONS or not excuse.reason:
            raise ValueError(f"not an excuse: {excuse}")
    return excuses


def load() -> list[Excuse]:
    return parse(PAGE.read_text(encoding="utf-8"))

"""The variables that a caller wants in a table, and those that are left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cuzarr._text import printable
from cuzarr.errors import CuzarrError, InvalidArgumentError


@dataclass
class Choice:
    """Which variables a table of references has, and what happens to those that cannot be made.

    Parameters
    ----------
    strict : bool
        Whether a variable that cannot be made is an error.
    drop : iterable of str
        Paths, in the files, of variables and groups that are not looked at.
    """

    strict: bool = False
    drop: Iterable[str] = ()
    left_out: list[LeftOut] = field(default_factory=list, init=False)
    """What could not be made."""

    def __post_init__(self) -> None:
        drop = [self.drop] if isinstance(self.drop, str) else self.drop
        self._unknown = {name: name.strip("/") for name in drop}
        self._dropped = set(self._unknown.values())

    def is_dropped(self, path: str) -> bool:
        """Whether a path is one of those not to look at. Such a path counts as found."""
        if path not in self._dropped:
            return False
        self._unknown = {name: dropped for name, dropped in self._unknown.items() if dropped != path}
        return True

    def leave_out(self, file: str, path: str, table_path: str, error: CuzarrError) -> None:
        """Notes that a variable is left out; with ``strict`` raises the error instead."""
        error.trail = (file, f"dataset '/{printable(path)}'", *error.trail)
        if self.strict:
            error.hint = error.hint or "leave it out with drop=, on the command line with --drop"
            raise error
        self.left_out.append(LeftOut(file, path, table_path, error))

    def check(self) -> None:
        """Raises an error if a name to drop was never met."""
        for name in self._unknown:
            raise InvalidArgumentError(f"drop names '{printable(name)}', which is in none of the files")


@dataclass
class LeftOut:
    """A variable that is not in the table."""

    file: str
    path: str
    # The path that it would have in the table of its file.
    table_path: str
    error: CuzarrError

    @property
    def reason(self) -> str:
        """Why, in one line."""
        return printable(": ".join((*self.error.trail[2:], self.error.message)))

"""Which variables of the files go into a table of references, and which are left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cuzarr._text import printable
from cuzarr.errors import CuzarrError, InvalidArgumentError


@dataclass
class Choice:
    """The choice of the variables that go into a table of references, with a record of the variables that had to be left out.

    Parameters
    ----------
    strict : bool
        Whether a variable that cannot be in the table is an error.
    drop : iterable of str
        Paths, in the files, of variables and groups to skip.
    """

    strict: bool = False
    drop: Iterable[str] = ()
    left_out: list[LeftOut] = field(default_factory=list, init=False)
    """Variables that were left out of the table of references because of an error."""

    def __post_init__(self) -> None:
        drop = [self.drop] if isinstance(self.drop, str) else self.drop
        self._unknown = {name: name.strip("/") for name in drop}
        self._dropped = set(self._unknown.values())

    def is_dropped(self, path: str) -> bool:
        """Whether the caller wants to skip the variable or group at ``path`` of a file. If so, it is recorded as found in a file."""
        if path not in self._dropped:
            return False
        self._unknown = {name: dropped for name, dropped in self._unknown.items() if dropped != path}
        return True

    def leave_out(self, file: str, path: str, table_path: str, error: CuzarrError) -> None:
        """Records that a variable is left out of the table of references because of ``error``. With ``strict``, raises the error
        instead."""
        error.trail = (file, f"dataset '/{printable(path)}'", *error.trail)
        if self.strict:
            error.hint = error.hint or "leave it out with drop=, on the command line with --drop"
            raise error
        self.left_out.append(LeftOut(file, path, table_path, error))

    def check(self) -> None:
        """Raises an error if a path that the caller wants to skip is in none of the files."""
        for name in self._unknown:
            raise InvalidArgumentError(f"drop names '{printable(name)}', which is in none of the files")


@dataclass
class LeftOut:
    """A variable of a file that is not in the table of references, and the reason."""

    file: str
    path: str
    # The path that the variable would have in the table of its file.
    table_path: str
    error: CuzarrError

    @property
    def reason(self) -> str:
        """The reason why the variable is left out, in one line."""
        return printable(": ".join((*self.error.trail[2:], self.error.message)))

"""Tables of references to several HDF5 files whose variables are one array each, along a dimension."""

from __future__ import annotations

import datetime
import json
import math
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cuzarr._text import printable
from cuzarr.errors import CuzarrError, InvalidArgumentError, UnsupportedError
from cuzarr.storage.hdf5 import Choice, Hdf5, Variable, documents, framed_texts, inline
from cuzarr.storage.hdf5_fill import fill_value
from cuzarr.storage.hdf5_source import Source

HELD_BYTES = 4 << 20
"""A variable of up to this size whose chunks cannot be joined, such as a time axis, is put into the table."""

# What elements mean. Where these differ, joined elements would mean something else.
_MEANINGS = (
    "units",
    "calendar",
    "scale_factor",
    "add_offset",
    "missing_value",
    "_Unsigned",
    "valid_min",
    "valid_max",
    "valid_range",
)

_TIME = re.compile(
    r"(days|hours|minutes|seconds) since (\d{4})-(\d\d?)-(\d\d?)(?:[ T](\d\d?):(\d\d)(?::(\d\d)(?:\.0+)?)?)?(?: ?(?:UTC|Z))?"
)
_SECONDS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
# Times that are changed keep this precision.
_LEAST_SECONDS = 1e-3
# The day after which the calendars of this name are one.
_GREGORIAN = datetime.datetime(1582, 10, 15)


def joined_references(h5py: Any, sources: Sequence[Source], dimension: str, choice: Choice) -> dict[str, Any]:
    """The keys of a table in which the files' variables follow each other along a dimension, in the order of the files.

    Raises
    ------
    InvalidArgumentError
        The files have other variables, shapes or meanings, or no variable has the dimension.
    UnsupportedError
        Chunks end inside a file, and the variable is too large for the table.
    """
    with ExitStack() as stack:
        # Files of which only the references are wanted; HDF5 keeps little of each in memory.
        opened = [stack.enter_context(Hdf5(h5py, source, choice=choice)) for source in sources]
        whole_rows = math.gcd(*(_length(file, dimension) for file in opened))
        groups: dict[str, dict[str, Any]] = {}
        members: list[dict[str, Variable]] = []
        for file in opened:
            nodes = list(file.nodes(whole_rows))
            groups = groups or {node[0]: node[1] for node in nodes if not isinstance(node, Variable)}
            members.append({node.path: node for node in nodes if isinstance(node, Variable)})
        # What is left out of one file is left out of all.
        for left_out in choice.left_out:
            for found in members:
                found.pop(left_out.shown, None)
        _check_names(opened, members)
        refs: dict[str, Any] = {}
        for path, attributes in groups.items():
            refs.update(documents(path, attributes, {"zarr_format": 2}, ".zgroup"))
        parents = _parents(members[0])
        for path in members[0]:
            times = [found.get(parents.get(path, path), found[path]) for found in members]
            column = _Column(dimension, opened, [found[path] for found in members], times)
            try:
                refs.update(column.references())
            except CuzarrError as error:
                error.trail = (f"variable '{printable(path)}'", *error.trail)
                raise
        return refs


def _parents(variables: dict[str, Variable]) -> dict[str, str]:
    """The variables whose units are those of others too, each with that other one: bounds without units of their own have those of
    their variable (CF conventions, 7.1)."""
    found = {}
    for path, variable in variables.items():
        for name in ("bounds", "climatology"):
            bounds = posixpath.join(posixpath.dirname(path), str(variable.attributes.get(name)))
            if bounds in variables and "units" not in variables[bounds].attributes:
                found[bounds] = path
    return found


def _length(opened: Hdf5, dimension: str) -> int:
    """The length of a dimension in a file."""
    found = opened.lengths(dimension)
    if len(found) == 1:
        return found.pop()
    names = sorted(opened.dimensions())
    hint = f"its dimensions: {printable(', '.join(names[:20]))}" if names else None
    what = f"lengths {sorted(found)} of" if found else "no variable with"
    raise InvalidArgumentError(f"'{printable(opened.path)}' has {what} the dimension '{printable(dimension)}'", hint=hint)


def _check_names(files: list[Hdf5], members: list[dict[str, Variable]]) -> None:
    for file, found in zip(files, members, strict=True):
        if odd := sorted(found.keys() ^ members[0].keys()):
            owner, other = (file, files[0]) if odd[0] in found else (files[0], file)
            raise InvalidArgumentError(
                f"'{owner.path}' has the variable '{printable(odd[0])}', and '{other.path}' does not",
                hint="join files that have the same variables",
            )


@dataclass
class _Column:
    """A variable, in each of the files."""

    dimension: str
    files: list[Hdf5]
    variables: list[Variable]
    # The variables that say in what units and calendar the elements are: the same ones, or those whose bounds they are.
    times: list[Variable]
    axis: int | None = field(init=False)

    def __post_init__(self) -> None:
        names = self.variables[0].dimensions
        self.axis = names.index(self.dimension) if self.dimension in names else None

    def references(self) -> Iterator[tuple[str, Any]]:
        """Keys and what they refer to."""
        for number in range(1, len(self.variables)):
            self._check(number)
        if self.axis is None:
            first = self.variables[0]
            self._check_coordinate()
            yield from documents(first.path, first.attributes, first.document())
            yield from self.files[0].chunks(first)
        elif self._fits():
            yield from self._joined()
        else:
            yield from self._held()

    def _refuse(self, number: int, what: str, got: object, expected: object, hint: str) -> None:
        raise InvalidArgumentError(
            f"{what} is {printable(str(got))} in '{self.files[number].path}', expected {printable(str(expected))} "
            f"as in '{self.files[0].path}'",
            hint=hint,
        )

    def _check(self, number: int) -> None:
        """Compares a file with the first."""
        first, other = self.variables[0], self.variables[number]
        hint = "leave the file out, or make a table of each file"
        if other.dimensions != first.dimensions:
            self._refuse(number, "the list of dimensions", other.dimensions, first.dimensions, hint)
        shapes = [[extent for axis, extent in enumerate(one.shape) if axis != self.axis] for one in (first, other)]
        if shapes[0] != shapes[1]:
            self._refuse(number, "the shape", list(other.shape), list(first.shape), hint)
        documents = [one.layout.document(None) for one in (first, other)]
        if documents[0]["dtype"] != documents[1]["dtype"]:
            self._refuse(number, "the data type", documents[1]["dtype"], documents[0]["dtype"], hint)
        for name in _MEANINGS:
            got, expected = other.attributes.get(name), first.attributes.get(name)
            if got != expected and name != "units":
                self._refuse(number, f"the attribute '{name}'", got, expected, hint)
        got, expected = self._units(number), self._units(0)
        if got != expected and (obstacle := self._obstacle(number)) is not None:
            if all(" since " in str(units) for units in (got, expected)):
                hint = f"its times are not moved to the other date: {obstacle}; {hint}"
            self._refuse(number, "the attribute 'units'", got, expected, hint)

    def _units(self, number: int) -> Any:
        """The units of a file's values, which bounds may have from the variable that they belong to."""
        return self.times[number].attributes.get("units")

    def _check_coordinate(self) -> None:
        """Compares the values of a coordinate that is not joined, which place the other variables' elements."""
        first = self.variables[0]
        if first.dimensions != [posixpath.basename(first.path)]:
            return
        expected = first.values()
        for number, variable in enumerate(self.variables[1:], 1):
            if not np.array_equal(variable.values(), expected, equal_nan=expected.dtype.kind == "f"):
                self._refuse(number, "the coordinate", "another one", "the values", "join files of one grid")

    def _obstacle(self, number: int) -> str | None:
        """Why the values of a file cannot become times since the date of the first file; ``None`` when they can."""
        calendars = {str(time.attributes.get("calendar", "standard")) for time in self.times}
        odd = sorted(calendars - {"standard", "gregorian", "proleptic_gregorian"})
        # Stored values that are packed are no times themselves.
        packed = [
            name for one in self.variables for name in ("scale_factor", "add_offset", "_Unsigned") if name in one.attributes
        ]
        if self.axis is None:
            return f"the variable has no dimension '{self.dimension}'"
        if odd:
            return f"the calendar is '{odd[0]}'"
        if self._is_text():
            return "the values are text"
        if packed:
            return f"the values have the attribute '{packed[0]}'"
        try:
            self._ahead(number)
        except ValueError as error:
            return str(error)
        return None

    def _ahead(self, number: int) -> float | int:
        """How much the values of a file grow to be times since the date of the first file.

        Raises
        ------
        ValueError
            The units are no time, or the dates do not differ by a whole number of them.
        """
        units = [_TIME.fullmatch(str(self._units(one))) for one in (0, number)]
        if units[0] is None or units[1] is None:
            raise ValueError(
                "only days, hours, minutes and seconds since a date in UTC are, such as 'days since 2000-01-31 12:00'"
            )
        if units[0][1] != units[1][1]:
            raise ValueError(f"the files count {units[1][1]} and {units[0][1]}")
        dates = [_date(found) for found in (units[0], units[1])]
        calendar = self.times[0].attributes.get("calendar", "standard")
        if calendar != "proleptic_gregorian" and min(dates) < _GREGORIAN:
            raise ValueError("dates before 1582-10-15 have another calendar")
        seconds = round((dates[1] - dates[0]).total_seconds())
        unit = _SECONDS[units[0][1]]
        if self.variables[0].dataset.dtype.kind != "f" and seconds % unit:
            raise ValueError(f"the dates do not differ by whole {units[0][1]}, and the values are whole numbers")
        return seconds // unit if seconds % unit == 0 else seconds / unit

    def _is_text(self) -> bool:
        return self.variables[0].layout.is_text

    def _fits(self) -> bool:
        """Whether each file's chunks follow those of the file before."""
        assert self.axis is not None
        first = self.variables[0].layout
        alike = {json.dumps(_without_level(variable.layout.document(None))) for variable in self.variables}
        units = {self._units(number) for number in range(len(self.variables))}
        lengths = [variable.shape[self.axis] for variable in self.variables[:-1]]
        whole = all(length % first.chunks[self.axis] == 0 for length in lengths)
        return whole and len(alike) == 1 and len(units) == 1 and not any(variable.layout.is_held for variable in self.variables)

    def _fill(self) -> Any:
        """The fill value: of files with chunks that are not stored, where there are some."""
        gaps = [variable for variable in self.variables if variable.layout.has_gaps]
        fills = [fill_value(variable.fill, variable.layout.dtype) for variable in gaps or self.variables]
        for number, fill in enumerate(fills):
            if fill != fills[0]:
                hint = "copy the variable with one fill value"
                self._refuse(self.variables.index((gaps or self.variables)[number]), "the fill value", fill, fills[0], hint)
        return (gaps or self.variables)[0].fill

    def _document(self) -> dict[str, Any]:
        assert self.axis is not None
        document = self.variables[0].layout.document(fill_value(self._fill(), self.variables[0].layout.dtype))
        document["shape"][self.axis] = sum(variable.shape[self.axis] for variable in self.variables)
        return document

    def _joined(self) -> Iterator[tuple[str, Any]]:
        """The chunks of every file, where they lie."""
        assert self.axis is not None
        first = self.variables[0]
        yield from documents(first.path, first.attributes, self._document())
        before = 0
        for file, variable in zip(self.files, self.variables, strict=True):
            yield from file.chunks(variable, (self.axis, before))
            before += -(-variable.shape[self.axis] // first.layout.chunks[self.axis])

    def _held(self) -> Iterator[tuple[str, Any]]:
        """The values of all files as one chunk in the table."""
        assert self.axis is not None
        first = self.variables[0]
        size = sum(math.prod(variable.shape) * variable.dataset.dtype.itemsize for variable in self.variables)
        if size > HELD_BYTES:
            lengths = [variable.shape[self.axis] for variable in self.variables]
            raise UnsupportedError(
                f"chunks of the shape {list(first.layout.chunks)} do not end where the files do ({lengths[:8]} along "
                f"'{printable(self.dimension)}'), or have other filters, and {size} bytes are too many for the table",
                hint=f"rewrite the files by one chunk length that divides each: nccopy -c {self.dimension}/1 FROM TO",
            )
        values = np.concatenate([self._values(number) for number in range(len(self.variables))], axis=self.axis)
        document = self._document() | {"chunks": [max(extent, 1) for extent in values.shape], "compressor": None}
        document["filters"] = [{"id": "vlen-utf8"}] if self._is_text() else None
        yield from documents(first.path, first.attributes, document)
        if values.size:
            whole = framed_texts(values) if self._is_text() else np.ascontiguousarray(values, first.layout.dtype).tobytes()
            yield posixpath.join(first.path, ".".join("0" for _ in values.shape)), inline(whole)

    def _values(self, number: int) -> Any:
        variable = self.variables[number]
        values = variable.values()
        if self._units(number) == self._units(0):
            return values
        ahead = self._ahead(number)
        moved = values + np.asarray(ahead, values.dtype)
        # Marks of missing elements stay.
        marks = variable.attributes.get("missing_value")
        marks = [*(marks if isinstance(marks, list) else [marks]), variable.fill]
        is_marked = np.isin(values, [mark for mark in marks if mark is not None and not isinstance(mark, str)])
        if values.dtype.kind in "iu":
            is_wrong = moved.astype(object) != values.astype(object) + ahead
        else:
            exact = values.astype("f8") + ahead
            is_wrong = abs(moved - exact) * _SECONDS[str(self._units(0)).partition(" ")[0]] > _LEAST_SECONDS
        if np.any(is_wrong & ~is_marked):
            raise InvalidArgumentError(
                f"times of '{printable(self.files[number].path)}' are no {values.dtype} any more after '{printable(str(ahead))}' is added",
                hint="write the files' times since one date",
            )
        return np.where(is_marked, values, moved)


def _date(time: re.Match[str]) -> datetime.datetime:
    """The date of units such as ``days since 2000-01-01``.

    Raises
    ------
    ValueError
        There is no such date.
    """
    year, month, day, hour, minute, second = (int(part or 0) for part in time.groups()[1:])
    return datetime.datetime(year, month, day, hour, minute, second)


def _without_level(document: dict[str, Any]) -> dict[str, Any]:
    """A document without the shape, and without how hard its compressor tried."""
    compressor = document["compressor"] and {name: value for name, value in document["compressor"].items() if name != "level"}
    return {name: value for name, value in document.items() if name != "shape"} | {"compressor": compressor}

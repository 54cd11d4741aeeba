"""Tables of references to several HDF5 files whose variables are one array each, along a dimension."""

from __future__ import annotations

import datetime
import json
import math
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cuzarr._text import printable
from cuzarr.errors import CuzarrError, InvalidArgumentError, UnsupportedError
from cuzarr.storage.hdf5 import Hdf5, Variable, documents, fill_value, framed_texts, inline

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
# The day after which the calendars of this name are one.
_GREGORIAN = datetime.datetime(1582, 10, 15)


def joined_references(h5py: Any, files: Sequence[str | os.PathLike[str]], dimension: str) -> dict[str, Any]:
    """The keys of a table in which the files' variables follow each other along a dimension, in the order of the files.

    Raises
    ------
    InvalidArgumentError
        The files have other variables, shapes or meanings, or no variable has the dimension.
    UnsupportedError
        Chunks end inside a file, and the variable is too large for the table.
    """
    lengths = [_length(h5py, file, dimension) for file in files]
    with ExitStack() as stack:
        # Files of which only the references are wanted; HDF5 keeps little of each in memory.
        opened = [stack.enter_context(Hdf5(h5py, file, whole_rows=math.gcd(*lengths))) for file in files]
        groups: dict[str, dict[str, Any]] = {}
        members: list[dict[str, Variable]] = []
        for file in opened:
            nodes = list(file.nodes())
            groups = groups or {node[0]: node[1] for node in nodes if not isinstance(node, Variable)}
            members.append({node.path: node for node in nodes if isinstance(node, Variable)})
        _check_names(opened, members)
        refs: dict[str, Any] = {}
        for path, attributes in groups.items():
            refs.update(documents(path, attributes, {"zarr_format": 2}, ".zgroup"))
        for path in members[0]:
            column = _Column(dimension, opened, [found[path] for found in members])
            try:
                refs.update(column.references())
            except CuzarrError as error:
                error.trail = (f"variable '{printable(path)}'", *error.trail)
                raise
        return refs


def _length(h5py: Any, file: str | os.PathLike[str], dimension: str) -> int:
    """The length of a dimension in a file."""
    with Hdf5(h5py, file) as opened:
        variables = (node for node in opened.nodes() if isinstance(node, Variable))
        found = {
            variable.dataset.shape[variable.dimensions.index(dimension)]
            for variable in variables
            if dimension in variable.dimensions
        }
        if len(found) == 1:
            return int(found.pop())
        what = f"lengths {sorted(found)} of" if found else "no variable with"
        raise InvalidArgumentError(f"'{opened.path}' has {what} the dimension '{printable(dimension)}'", hint=_hint(opened))


def _hint(opened: Hdf5) -> str | None:
    names = sorted({name for node in opened.nodes() if isinstance(node, Variable) for name in node.dimensions})
    return f"its dimensions: {printable(', '.join(names[:20]))}" if names else None


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
            yield from documents(first.path, first.attributes, first.layout.document(fill_value(first.fill)))
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
        shapes = [[extent for axis, extent in enumerate(one.dataset.shape) if axis != self.axis] for one in (first, other)]
        if shapes[0] != shapes[1]:
            self._refuse(number, "the shape", list(other.dataset.shape), list(first.dataset.shape), hint)
        documents = [one.layout.document(None) for one in (first, other)]
        if documents[0]["dtype"] != documents[1]["dtype"]:
            self._refuse(number, "the data type", documents[1]["dtype"], documents[0]["dtype"], hint)
        for name in _MEANINGS:
            got, expected = other.attributes.get(name), first.attributes.get(name)
            if got != expected and not (name == "units" and self._is_shifted(number)):
                self._refuse(number, f"the attribute '{name}'", got, expected, hint)

    def _check_coordinate(self) -> None:
        """Compares the values of a coordinate that is not joined, which place the other variables' elements."""
        first = self.variables[0]
        if first.dimensions != [posixpath.basename(first.path)]:
            return
        expected = first.dataset[...]
        for number, variable in enumerate(self.variables[1:], 1):
            if not np.array_equal(variable.dataset[...], expected, equal_nan=expected.dtype.kind == "f"):
                self._refuse(number, "the coordinate", "another one", "the values", "join files of one grid")

    def _is_shifted(self, number: int) -> bool:
        """Whether the units are a time since another date than in the first file."""
        calendars = {variable.attributes.get("calendar", "standard") for variable in self.variables}
        if not calendars <= {"standard", "gregorian", "proleptic_gregorian"} or self._is_text():
            return False
        try:
            self._ahead(number)
        except ValueError:
            return False
        return True

    def _ahead(self, number: int) -> float | int:
        """How much the values of a file grow to be times since the date of the first file.

        Raises
        ------
        ValueError
            The units are no time, or the dates do not differ by a whole number of them.
        """
        units = [
            _TIME.fullmatch(str(variable.attributes.get("units"))) for variable in (self.variables[0], self.variables[number])
        ]
        if units[0] is None or units[1] is None or units[0][1] != units[1][1]:
            raise ValueError
        dates = [_date(found) for found in (units[0], units[1])]
        calendar = self.variables[0].attributes.get("calendar", "standard")
        if calendar != "proleptic_gregorian" and min(dates) < _GREGORIAN:
            raise ValueError
        seconds = round((dates[1] - dates[0]).total_seconds())
        unit = _SECONDS[units[0][1]]
        if self.variables[0].dataset.dtype.kind != "f" and seconds % unit:
            raise ValueError
        return seconds // unit if seconds % unit == 0 else seconds / unit

    def _is_text(self) -> bool:
        return self.variables[0].layout.is_text

    def _fits(self) -> bool:
        """Whether each file's chunks follow those of the file before."""
        assert self.axis is not None
        first = self.variables[0].layout
        alike = {json.dumps(_without_level(variable.layout.document(None))) for variable in self.variables}
        units = {variable.attributes.get("units") for variable in self.variables}
        lengths = [variable.dataset.shape[self.axis] for variable in self.variables[:-1]]
        whole = all(length % first.chunks[self.axis] == 0 for length in lengths)
        return whole and len(alike) == 1 and len(units) == 1 and not any(variable.layout.is_held for variable in self.variables)

    def _fill(self) -> Any:
        """The fill value: of files with chunks that are not stored, where there are some."""
        gaps = [variable for variable in self.variables if variable.layout.has_gaps]
        fills = [fill_value(variable.fill) for variable in gaps or self.variables]
        for number, fill in enumerate(fills):
            if fill != fills[0]:
                hint = "copy the variable with one fill value"
                self._refuse(self.variables.index((gaps or self.variables)[number]), "the fill value", fill, fills[0], hint)
        return (gaps or self.variables)[0].fill

    def _document(self) -> dict[str, Any]:
        assert self.axis is not None
        document = self.variables[0].layout.document(fill_value(self._fill()))
        document["shape"][self.axis] = sum(variable.dataset.shape[self.axis] for variable in self.variables)
        return document

    def _joined(self) -> Iterator[tuple[str, Any]]:
        """The chunks of every file, where they lie."""
        assert self.axis is not None
        first = self.variables[0]
        yield from documents(first.path, first.attributes, self._document())
        before = 0
        for file, variable in zip(self.files, self.variables, strict=True):
            yield from file.chunks(variable, (self.axis, before))
            before += -(-variable.dataset.shape[self.axis] // first.layout.chunks[self.axis])

    def _held(self) -> Iterator[tuple[str, Any]]:
        """The values of all files as one chunk in the table."""
        assert self.axis is not None
        first = self.variables[0]
        size = sum(variable.dataset.size * variable.dataset.dtype.itemsize for variable in self.variables)
        if size > HELD_BYTES:
            lengths = [variable.dataset.shape[self.axis] for variable in self.variables]
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
        values = variable.dataset[...]
        if variable.attributes.get("units") == self.variables[0].attributes.get("units"):
            return values
        ahead = self._ahead(number)
        # Marks of missing elements stay.
        moved = values + np.asarray(ahead, values.dtype)
        if values.dtype.kind in "iu" and not np.array_equal(moved.astype(object), values.astype(object) + ahead):
            raise InvalidArgumentError(
                f"times of '{self.files[number].path}' overflow {values.dtype} after '{printable(str(ahead))}'"
            )
        return moved if variable.fill is None else np.where(values == variable.fill, values, moved)


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

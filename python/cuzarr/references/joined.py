"""Joins the parts of variables in several HDF5 files along a dimension, to one array for each variable."""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cuzarr._text import printable
from cuzarr.errors import CuzarrError, InvalidArgumentError, UnsupportedError
from cuzarr.references import layout, times
from cuzarr.references.choice import Choice
from cuzarr.references.entries import Document, Reference, documents, framed_texts, inline
from cuzarr.references.fill import fill_value
from cuzarr.references.hdf5 import Hdf5File
from cuzarr.references.source import Source
from cuzarr.references.variable import Group, Variable

# Attributes that define the meaning of elements. They must be equal in all files, or joined elements would change their meaning.
_MEANINGS = "units calendar scale_factor add_offset missing_value _Unsigned valid_min valid_max valid_range".split()


def joined_references(sources: Sequence[Source], dimension: str, choice: Choice) -> dict[str, Reference]:
    """The entries of a table of references that joins the variables of several files along a dimension, in the order of the files.

    Raises
    ------
    InvalidArgumentError
        The variables, their shapes or their meanings differ between the files, or no variable has the dimension.
    UnsupportedError
        Chunks end inside a file, and the variable is too large for the table.
    """
    with ExitStack() as stack:
        # Only the references of each file are needed; HDF5 keeps little of each file in memory.
        opened = [stack.enter_context(Hdf5File(source, choice)) for source in sources]
        whole_rows = math.gcd(*(_length(file, dimension) for file in opened))
        groups: list[Group] = []
        members: list[dict[str, Variable]] = []
        for file in opened:
            nodes = list(file.nodes(whole_rows))
            groups = groups or [node for node in nodes if isinstance(node, Group)]
            members.append({node.path: node for node in nodes if isinstance(node, Variable)})
        # A variable that is left out of one file is left out of all.
        for left_out in choice.left_out:
            for found in members:
                found.pop(left_out.table_path, None)
        _check_names(opened, members)
        refs: dict[str, Reference] = {}
        for group in groups:
            refs.update(group.references())
        parents = _parents(members[0])
        for path in members[0]:
            timed = [found.get(parents.get(path, path), found[path]) for found in members]
            variable = JoinedVariable(dimension, opened, [found[path] for found in members], timed)
            try:
                refs.update(variable.references())
            except CuzarrError as error:
                error.trail = (f"variable '{printable(path)}'", *error.trail)
                raise
        return refs


def _parents(variables: dict[str, Variable]) -> dict[str, str]:
    """For each variable that takes its units from another one (such as bounds), the path of the other one.

    These are bounds without units, which have the units of their variable (CF conventions, 7.1).
    """
    found = {}
    for path, variable in variables.items():
        for name in ("bounds", "climatology"):
            bounds = posixpath.join(posixpath.dirname(path), str(variable.attributes.get(name)))
            if bounds in variables and "units" not in variables[bounds].attributes:
                found[bounds] = path
    return found


def _length(opened: Hdf5File, dimension: str) -> int:
    """The length that a dimension has in one of the HDF5 files to be joined. Refuses a file in which it has several."""
    found = opened.lengths(dimension)
    if len(found) == 1:
        return found.pop()
    names = sorted(opened.dimensions())
    hint = f"its dimensions: {printable(', '.join(names[:20]))}" if names else None
    what = f"lengths {sorted(found)} of" if found else "no variable with"
    raise InvalidArgumentError(f"'{printable(opened.path)}' has {what} the dimension '{printable(dimension)}'", hint=hint)


def _check_names(files: list[Hdf5File], members: list[dict[str, Variable]]) -> None:
    for file, found in zip(files, members, strict=True):
        if odd := sorted(found.keys() ^ members[0].keys()):
            owner, other = (file, files[0]) if odd[0] in found else (files[0], file)
            raise InvalidArgumentError(
                f"'{owner.path}' has the variable '{printable(odd[0])}', and '{other.path}' does not",
                hint="join files that have the same variables",
            )


@dataclass
class JoinedVariable:
    """A variable whose elements are divided among several HDF5 files, and are read as one Zarr array. The parts follow each other along a
    dimension."""

    dimension: str
    files: list[Hdf5File]
    variables: list[Variable]
    # For each part, the variable with its units and calendar: the part itself or, for bounds, the variable they belong to.
    timed: list[Variable]
    axis: int | None = field(init=False)

    def __post_init__(self) -> None:
        names = self.variables[0].dimensions
        self.axis = names.index(self.dimension) if self.dimension in names else None

    def references(self) -> Iterator[tuple[str, Reference]]:
        """The keys that this variable adds to a table of references, each with its entry."""
        for number in range(1, len(self.variables)):
            self._check(number)
        if self.axis is None:
            first = self.variables[0]
            self._check_coordinate()
            yield from first.references()
        elif self._fits():
            yield from self._joined()
        else:
            yield from self._inline()

    def _refuse(self, number: int, what: str, got: object, expected: object, hint: str) -> None:
        raise InvalidArgumentError(
            f"{what} is {printable(str(got))} in '{self.files[number].path}', expected {printable(str(expected))} "
            f"as in '{self.files[0].path}'",
            hint=hint,
        )

    def _check(self, number: int) -> None:
        """Refuses a file in which the variable differs from that in the first file, for example in type or attributes."""
        first, other = self.variables[0], self.variables[number]
        hint = "leave the file out, or make a table of each file"
        if other.dimensions != first.dimensions:
            self._refuse(number, "the list of dimensions", other.dimensions, first.dimensions, hint)
        shapes = [[extent for axis, extent in enumerate(one.shape) if axis != self.axis] for one in (first, other)]
        if shapes[0] != shapes[1]:
            self._refuse(number, "the shape", list(other.shape), list(first.shape), hint)
        dtypes = [one.layout.document(None)["dtype"] for one in (first, other)]
        if dtypes[0] != dtypes[1]:
            self._refuse(number, "the data type", dtypes[1], dtypes[0], hint)
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
        """The attribute ``units`` that the joined variable has in the file with this number. Bounds may take it from the variable to which
        they belong."""
        return self.timed[number].attributes.get("units")

    def _check_coordinate(self) -> None:
        """Refuses a coordinate that is not joined if its values differ between the files, because the values locate elements of other
        variables."""
        first = self.variables[0]
        if first.dimensions != [posixpath.basename(first.path)]:
            return
        expected = first.layout.values()
        for number, variable in enumerate(self.variables[1:], 1):
            if not np.array_equal(variable.layout.values(), expected, equal_nan=expected.dtype.kind == "f"):
                self._refuse(number, "the coordinate", "another one", "the values", "join files of one grid")

    def _obstacle(self, number: int) -> str | None:
        """The reason why times in one of the joined files cannot be converted to the units of the first file; ``None`` if they can."""
        calendars = {str(time.attributes.get("calendar", "standard")) for time in self.timed}
        odd = sorted(calendars - {"standard", "gregorian", "proleptic_gregorian"})
        # With these attributes, the stored values are not the times themselves.
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
        """The number to add to the times in one of the joined files, to get times since the date in the first file's units
        (``times.difference``)."""
        calendar = self.timed[0].attributes.get("calendar", "standard")
        is_whole = self.variables[0].layout.dataset.dtype.kind != "f"
        return times.difference(str(self._units(0)), str(self._units(number)), calendar, is_whole)

    def _is_text(self) -> bool:
        return self.variables[0].layout.is_text

    def _fits(self) -> bool:
        """Whether the joined variable can refer to the chunks in the files: no chunk crosses the border between two files, and encodings
        and units are equal."""
        assert self.axis is not None
        first = self.variables[0].layout
        alike = {json.dumps(_without_level(variable.layout.document(None))) for variable in self.variables}
        units = {self._units(number) for number in range(len(self.variables))}
        lengths = [variable.shape[self.axis] for variable in self.variables[:-1]]
        whole = all(length % first.chunks[self.axis] == 0 for length in lengths)
        return whole and len(alike) == 1 and len(units) == 1 and not any(variable.layout.is_inline for variable in self.variables)

    def _fill(self) -> Any:
        """The fill value of the joined variable: the one in files that lack some of the variable's chunks, or else the one in all files."""
        gaps = [variable for variable in self.variables if variable.layout.has_gaps]
        fills = [fill_value(variable.fill, variable.layout.dtype) for variable in gaps or self.variables]
        for number, fill in enumerate(fills):
            if fill != fills[0]:
                hint = "copy the variable with one fill value"
                self._refuse(self.variables.index((gaps or self.variables)[number]), "the fill value", fill, fills[0], hint)
        return (gaps or self.variables)[0].fill

    def _document(self) -> Document:
        assert self.axis is not None
        document = self.variables[0].layout.document(fill_value(self._fill(), self.variables[0].layout.dtype))
        document["shape"][self.axis] = sum(variable.shape[self.axis] for variable in self.variables)
        return document

    def _joined(self) -> Iterator[tuple[str, Reference]]:
        """The keys of the joined variable's documents and chunks, with references to the chunks in all files."""
        assert self.axis is not None
        first = self.variables[0]
        yield from documents(first.path, self._document(), first.attributes)
        before = 0
        for variable in self.variables:
            yield from variable.chunk_references(self.axis, before)
            before += -(-variable.shape[self.axis] // first.layout.chunks[self.axis])

    def _inline(self) -> Iterator[tuple[str, Reference]]:
        """The keys of the joined variable's documents and of one chunk, whose bytes (the values of all files) the table of references
        itself holds."""
        assert self.axis is not None
        first = self.variables[0]
        size = sum(math.prod(variable.shape) * variable.layout.dataset.dtype.itemsize for variable in self.variables)
        if size > layout.INLINE_BYTES:
            lengths = [variable.shape[self.axis] for variable in self.variables]
            raise UnsupportedError(
                f"chunks of the shape {list(first.layout.chunks)} do not end where the files do ({lengths[:8]} along "
                f"'{printable(self.dimension)}'), or have other filters, and {size} bytes are too many for the table",
                hint=f"rewrite the files by one chunk length that divides each: nccopy -c {self.dimension}/1 FROM TO",
            )
        values = np.concatenate([self._values(number) for number in range(len(self.variables))], axis=self.axis)
        document = self._document() | {"chunks": [max(extent, 1) for extent in values.shape], "compressor": None}
        document["filters"] = [{"id": "vlen-utf8"}] if self._is_text() else None
        yield from documents(first.path, document, first.attributes)
        if values.size:
            whole = framed_texts(values) if self._is_text() else np.ascontiguousarray(values, first.layout.dtype).tobytes()
            yield posixpath.join(first.path, ".".join("0" for _ in values.shape)), inline(whole)

    def _values(self, number: int) -> Any:
        variable = self.variables[number]
        values = variable.layout.values()
        if self._units(number) == self._units(0):
            return values
        ahead = self._ahead(number)
        # Values that mark missing elements are not changed.
        marks = variable.attributes.get("missing_value")
        marks = [*(marks if isinstance(marks, list) else [marks]), variable.fill]
        marks = [mark for mark in marks if mark is not None and not isinstance(mark, str)]
        moved = times.moved(values, ahead, str(self._units(0)), marks)
        if moved is None:
            raise InvalidArgumentError(
                f"times of '{printable(self.files[number].path)}' are no {values.dtype} any more after '{printable(str(ahead))}' is added",
                hint="write the files' times since one date",
            )
        return moved


def _without_level(document: Document) -> Document:
    """A ``.zarray`` without shape and compression level, in which the files of a joined variable may differ."""
    compressor = document["compressor"] and {name: value for name, value in document["compressor"].items() if name != "level"}
    return {name: value for name, value in document.items() if name != "shape"} | {"compressor": compressor}

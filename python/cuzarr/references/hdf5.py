"""Reads HDF5 files, including netCDF-4: their groups and datasets, with the names that these get in a table of references."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any, Self

import h5py

from cuzarr._text import printable
from cuzarr.errors import CuzarrError, StoreFailedError, UnsupportedError
from cuzarr.references.check import check_elements
from cuzarr.references.choice import Choice
from cuzarr.references.dimensions import Dimensions
from cuzarr.references.entries import Reference
from cuzarr.references.fill import fill_of
from cuzarr.references.layout import Layout
from cuzarr.references.names import H5PY_ERRORS, attributes, is_placeholder, plain_name, unicode_text, why_no_key
from cuzarr.references.source import Source
from cuzarr.references.variable import Group, Variable


class Hdf5File:
    """An HDF5 file that is open for reading inside a ``with`` block. ``above`` is the path that the file's root gets in the table of
    references.

    Raises
    ------
    StoreFailedError
        h5py cannot open the file.
    """

    def __init__(self, source: Source, choice: Choice, above: str = "") -> None:
        self._choice, self._above = choice, above
        self.source: Source = source
        self.path: str = source.name
        self._file: Any = None
        self._members: list[tuple[str, Any]] = []

    def __enter__(self) -> Self:
        try:
            self._file = h5py.File(self.source.open(), "r")
        except H5PY_ERRORS as error:
            raise StoreFailedError(f"'{printable(self.path)}' cannot be opened: {error}") from error
        try:
            self._members = list(self._walk(self._root()))
            self._dimensions = Dimensions((path, node) for path, node in self._members if not _is_group(node))
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._members = []
        self._file.close()

    def _root(self) -> h5py.Group:
        try:
            return self._file["/"]
        except H5PY_ERRORS as error:
            raise StoreFailedError(f"'{printable(self.path)}' cannot be read: {error}") from error

    def _walk(self, root: h5py.Group) -> Iterator[tuple[str, Any]]:
        """Yields path and h5py object of each group and dataset of the HDF5 file. A group comes before its members."""
        waiting = [("", root)]
        groups: dict[Any, str] = {}
        while waiting:
            path, node = waiting.pop()
            if _is_group(node):
                known = groups.setdefault(node.id, path)
                if known != path:
                    self._leave_out(path, UnsupportedError(f"it is the group '/{printable(known)}' by another name"))
                    continue
                waiting += reversed(list(self._members_of(path, node)))
            yield path, node

    def _members_of(self, path: str, group: h5py.Group) -> Iterator[tuple[str, Any]]:
        try:
            names = list(group)
        except H5PY_ERRORS as error:
            self._leave_out(path, _unreadable(error))
            return
        for name in names:
            # h5py returns names in other encodings as bytes.
            text = name.decode(errors="surrogateescape") if isinstance(name, bytes) else name
            below = posixpath.join(path, text)
            if self._choice.is_dropped(below):
                continue
            try:
                if reason := why_no_key(text):
                    raise UnsupportedError(reason)
                link = group.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    raise UnsupportedError(f"it is a link to the file '{printable(unicode_text(link.filename))}'")
                if isinstance(link, h5py.SoftLink):
                    raise UnsupportedError(f"it is a link to '{printable(unicode_text(link.path))}'")
                if isinstance(link, h5py.HardLink):
                    node = group[name]
                    if isinstance(node, h5py.Group | h5py.Dataset):
                        yield below, node
            except CuzarrError as error:
                self._leave_out(below, error)
            except H5PY_ERRORS as error:
                self._leave_out(below, _unreadable(error))

    def _leave_out(self, path: str, error: CuzarrError) -> None:
        self._choice.leave_out(self.path, path, self._table_path(path), error)

    def _table_path(self, path: str) -> str:
        """The path that a dataset gets in a table of references: without the prefix that netCDF gives some names."""
        folder, name = posixpath.split(path)
        shown = posixpath.join(folder, plain_name(name))
        if shown == path:
            return path
        is_taken = any(shown == other and not is_placeholder(node) for other, node in self._members)
        return path if is_taken else shown

    def lengths(self, dimension: str) -> set[int]:
        """The different lengths that a dimension has in the datasets of the file."""
        return {extent for names, shape in self._axes() for name, extent in zip(names, shape, strict=True) if name == dimension}

    def dimensions(self) -> set[str]:
        """The names of all dimensions of the file's datasets."""
        return {name for names, _ in self._axes() for name in names}

    def _axes(self) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        """The names and the lengths of the dimensions of each dataset in the HDF5 file."""
        for path, node in self._members:
            if path in self._dimensions and not is_placeholder(node):
                yield self._dimensions.names(path, node), self._dimensions.shape(path, node)

    def nodes(self, whole_rows: int = 0) -> Iterator[Group | Variable]:
        """Yields the groups and variables of the HDF5 file as objects from which a table of references is made. A group comes before its
        members.

        Parameters
        ----------
        whole_rows : int
            The number of rows in a chunk of contiguous elements must divide this number; 0 allows any.
        """
        for path, node in self._members:
            if _is_group(node):
                yield Group(posixpath.join(self._above, path), attributes(node))
            elif not is_placeholder(node):
                try:
                    yield self._variable(path, node, whole_rows)
                except CuzarrError as error:
                    self._leave_out(path, error)
                except H5PY_ERRORS as error:
                    self._leave_out(path, _unreadable(error))

    def _variable(self, path: str, dataset: h5py.Dataset, whole_rows: int) -> Variable:
        if dataset.shape is None:
            raise UnsupportedError("it has no elements: its dataspace is null")
        layout = Layout(self.source, dataset, self._dimensions.shape(path, dataset), whole_rows)
        described = attributes(dataset)
        described["_ARRAY_DIMENSIONS"] = self._dimensions.names(path, dataset)
        fill = fill_of(dataset, layout.dtype, described, layout.has_gaps)
        variable = Variable(posixpath.join(self._above, self._table_path(path)), layout, described, fill)
        check_elements(layout, variable.document())
        return variable

    def references(self) -> Iterator[tuple[str, Reference]]:
        """The keys that this HDF5 file adds to a table of references, each with its entry."""
        for node in self.nodes():
            yield from node.references()


def _is_group(node: Any) -> bool:
    return isinstance(node, h5py.Group)


def _unreadable(error: BaseException) -> CuzarrError:
    """The error to raise for an HDF5 group or dataset that h5py, or NumPy below it, cannot read."""
    return UnsupportedError(f"h5py does not read it: {error or type(error).__name__}")

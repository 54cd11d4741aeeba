"""``Table``, a table of references to one or several files, and the function that makes one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cuzarr.references.choice import Choice, LeftOut
from cuzarr.references.entries import Document, Reference, documents
from cuzarr.references.hdf5 import Hdf5File
from cuzarr.references.joined import joined_references
from cuzarr.references.source import Source


@dataclass
class Table:
    """A table of references, by which files are read as one Zarr group, in kerchunk's JSON format, version 1."""

    refs: dict[str, Reference]
    left_out: list[LeftOut]
    """Variables of the files that are not in the table of references, with the reasons."""
    urls: list[str]
    """The URLs of the files to which the table of references refers."""

    @property
    def document(self) -> Document:
        """The table of references as a dictionary, which can be written as JSON."""
        return {"version": 1, "refs": self.refs}

    @property
    def text(self) -> str:
        """The table of references as JSON text."""
        return json.dumps(self.document)


def make_table(sources: Sequence[Source], groups: Sequence[str] | None, join: str | None, choice: Choice) -> Table:
    """Makes a table of references to one file, to files that become groups, or to files that are joined along a dimension.

    Raises
    ------
    UnsupportedError
        Variables are left out, and there are no others.
    """
    refs: dict[str, Reference] = {}
    if join is not None:
        refs = joined_references(sources, join, choice)
    elif groups is None:
        refs = _references_of(sources[0], choice, "")
    else:
        refs = dict(documents("", None, {}))
        for name, source in zip(groups, sources, strict=True):
            refs.update(_references_of(source, choice, name))
    choice.check()
    if choice.left_out and not any(key.rpartition("/")[2] == ".zarray" for key in refs):
        raise choice.left_out[0].error
    return Table(refs, choice.left_out, [source.url for source in sources])


def _references_of(source: Source, choice: Choice, above: str) -> dict[str, Reference]:
    with Hdf5File(source, choice, above) as file:
        return dict(file.references())

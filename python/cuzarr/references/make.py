"""The functions that make tables of references, for Python programs and for the command ``cuzarr references make``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cuzarr._text import printable
from cuzarr.errors import CuzarrUserWarning, InvalidArgumentError, LibraryMissingError
from cuzarr.references.choice import Choice
from cuzarr.references.names import why_no_key
from cuzarr.references.source import Source

if TYPE_CHECKING:
    from cuzarr.references.table import Table

File = str | os.PathLike[str]


def make_references(
    files: File | Sequence[File],
    *,
    join: str | None = None,
    drop: Iterable[str] = (),
    strict: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Makes a table of references to the chunks of HDF5 files, such as netCDF-4. It needs h5py.

    The table has kerchunk's JSON format, version 1. ``reference::TABLE.json`` opens it, and chunks are then read from the original files.
    Compressors are deflate, zstd and Blosc; filters are shuffle and fletcher32. Small values are put into the table.

    The file's types are compared with Zarr's types, and a chunk of each variable is decoded and compared with the elements that h5py
    reads. A variable that Zarr cannot read is left out, and a ``CuzarrUserWarning`` names it and the reason.

    Parameters
    ----------
    files : path, URL, or list of them
        One file becomes the root of the hierarchy. Several files become groups, each with the name of its file. URLs are those of
        buckets and web servers: ``s3://bucket/field.nc``.
    join : str, optional
        A dimension, such as ``"time"``, along which the variables of several files are joined, in the order of the files. Other
        variables are taken from the first file. Times since another date, and their bounds, are changed to times since the first file's
        date.
    drop : iterable of str
        Paths, inside the files, of variables and groups to leave out. They are not read.
    strict : bool
        Whether a variable that cannot be read through a table is an error.
    storage_options : dict, optional
        Options for URLs, as for :func:`cuzarr.storage.make_store`.

    Returns
    -------
    dict
        The table, ready for :func:`json.dump`. If the table and its files are in different folders or buckets, open it with the storage
        option ``allow``: ``storage_options={"allow": "file:///data/"}``.

    Raises
    ------
    LibraryMissingError
        h5py is not installed.
    StoreFailedError
        A file cannot be read.
    UnsupportedError
        A file is not an HDF5 file, or no variable (with ``strict``: some variable) can be read through a table. With ``join``: chunks do
        not end at the end of a file, and the variable is larger than 4 MiB.
    InvalidArgumentError
        Two files have the same name, or a path in ``drop`` is in none of the files. With ``join``: variables, shapes, units or
        coordinates differ between the files.

    Examples
    --------
    >>> import cuzarr, json
    >>> table = cuzarr.references.make_references("field.nc")  # doctest: +SKIP
    >>> _ = open("field.json", "w").write(json.dumps(table))  # doctest: +SKIP
    >>> cuzarr.open_group("reference::field.json", mode="r")["t2m"][0]  # doctest: +SKIP
    """
    is_one = isinstance(files, str | os.PathLike)
    listed = [files] if isinstance(files, str | os.PathLike) else list(files)
    made = _make(listed, join, Choice(strict, drop), storage_options, is_one)
    for one in made.left_out:
        message = f"{printable(one.file)}: variable '{printable(one.path)}' is left out: {one.reason}"
        warnings.warn(message, CuzarrUserWarning, stacklevel=2)
    return made.document


def make_references_for_command(
    files: Sequence[str], join: str | None, drop: Sequence[str], strict: bool, storage_options: Mapping[str, str]
) -> Table:
    """Like :func:`make_references`, but for the command line: several files become groups, and omitted variables cause no warning."""
    return _make(files, join, Choice(strict, drop), storage_options or None, len(files) == 1)


def _make(
    files: Sequence[File], join: str | None, choice: Choice, storage_options: Mapping[str, Any] | None, is_one: bool
) -> Table:
    try:
        import h5py  # noqa: F401
    except ImportError as error:
        raise LibraryMissingError(f"references to HDF5 files need h5py: {error}", hint="pip install h5py") from error
    from cuzarr.references.table import make_table

    if join is not None and not files:
        raise InvalidArgumentError("files is empty, expected at least one file to join")
    groups = None if is_one or join is not None else _group_names(files)
    return make_table([Source(file, storage_options) for file in files], groups, join, choice)


def _group_names(files: Sequence[File]) -> list[str]:
    """The names of the groups that files become in a table of references: file names without their extensions."""
    names: list[str] = []
    for file in files:
        name = PurePosixPath(os.fspath(file).partition("?")[0]).stem
        if reason := why_no_key(name):
            raise InvalidArgumentError(f"'{printable(name)}' cannot be a group: {reason}", hint="rename the file")
        if name in names:
            raise InvalidArgumentError(f"two files have the name '{printable(name)}', which is that of their group")
        names.append(name)
    return names

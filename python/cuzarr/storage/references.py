"""Tables of references to the chunks of HDF5 files, netCDF-4 among them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from cuzarr._text import printable
from cuzarr.errors import CuzarrUserWarning, InvalidArgumentError, LibraryMissingError
from cuzarr.storage.hdf5 import Choice, Hdf5, LeftOut
from cuzarr.storage.hdf5_names import why_no_key
from cuzarr.storage.hdf5_source import Source
from cuzarr.storage.joined import joined_references

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

    The table is kerchunk's JSON format, version 1. ``reference::TABLE.json`` opens it, and chunks are then read from the files where they
    are. Compressors are deflate, zstd and Blosc; filters are shuffle and fletcher32. Small values are put into the table.

    The types in the file are compared with Zarr's, and a chunk of each variable is decoded and compared with what h5py reads. A variable
    that Zarr cannot read is left out, and a ``CuzarrUserWarning`` names it and the reason.

    Parameters
    ----------
    files : path, URL, or list of them
        One file becomes the root of the hierarchy. Of several, each becomes a group with the name of the file. URLs are those of buckets
        and web servers: ``s3://bucket/field.nc``.
    join : str, optional
        A dimension, such as ``"time"``, along which the variables of several files follow each other, in the order of the files. Other
        variables are taken from the first file. Times since other dates are changed to be since the date of the first file, and so are
        their bounds.
    drop : iterable of str
        Variables and groups to leave out without looking at them, by their paths in the files.
    strict : bool
        Whether a variable that cannot be read through a table is an error.
    storage_options : dict, optional
        Options for URLs, as for :func:`make_store`.

    Returns
    -------
    dict
        The table, ready for :func:`json.dump`. A table that lies in another folder or bucket than its files is opened with the storage option
        ``allow``: ``storage_options={"allow": "file:///data/"}``.

    Raises
    ------
    LibraryMissingError
        h5py is not installed.
    StoreFailedError
        A file cannot be read.
    UnsupportedError
        A file is no HDF5 file, or no variable can be read through a table; with ``strict``, any variable. With ``join``: chunks do not end
        where a file does, and the variable is larger than 4 MiB.
    InvalidArgumentError
        Two files have one name, or no file has a name of ``drop``. With ``join``: the files have other variables, shapes, units or coordinates.

    Examples
    --------
    >>> import cuzarr, json
    >>> table = cuzarr.storage.make_references("field.nc")  # doctest: +SKIP
    >>> _ = open("field.json", "w").write(json.dumps(table))  # doctest: +SKIP
    >>> cuzarr.open_group("reference::field.json", mode="r")["t2m"][0]  # doctest: +SKIP
    """
    is_one = isinstance(files, str | os.PathLike)
    made = _make(
        [files] if isinstance(files, str | os.PathLike) else list(files), join, Choice(strict, drop), storage_options, is_one
    )
    for one in made.left_out:
        message = f"{printable(one.file)}: variable '{printable(one.path)}' is left out: {one.reason}"
        warnings.warn(message, CuzarrUserWarning, stacklevel=2)
    return made.table


@dataclass
class _Made:
    table: dict[str, Any]
    left_out: list[LeftOut]
    urls: list[str]
    """Those of the files."""


def _make(
    files: Sequence[File], join: str | None, choice: Choice, storage_options: Mapping[str, Any] | None, is_one: bool
) -> _Made:
    try:
        import h5py
    except ImportError as error:
        raise LibraryMissingError(f"references to HDF5 files need h5py: {error}", hint="pip install h5py") from error
    if join is not None and not files:
        raise InvalidArgumentError("files is empty, expected at least one file to join")
    names = [""] if is_one or join is not None else _group_names(files)
    sources = [Source(file, storage_options) for file in files]
    if join is not None:
        refs = joined_references(h5py, sources, join, choice)
    elif is_one:
        refs = _of_file(h5py, sources[0], "", choice)
    else:
        refs = {".zgroup": json.dumps({"zarr_format": 2})}
        for name, source in zip(names, sources, strict=True):
            refs.update(_of_file(h5py, source, name, choice))
    choice.check()
    if choice.left_out and not any(key.rpartition("/")[2] == ".zarray" for key in refs):
        raise choice.left_out[0].error
    return _Made({"version": 1, "refs": refs}, choice.left_out, [source.url for source in sources])


def _group_names(files: Sequence[File]) -> list[str]:
    """The names of the groups of files: those of the files, without their endings."""
    names: list[str] = []
    for file in files:
        name = PurePosixPath(os.fspath(file).partition("?")[0]).stem
        if reason := why_no_key(name):
            raise InvalidArgumentError(f"'{printable(name)}' cannot be a group: {reason}", hint="rename the file")
        if name in names:
            raise InvalidArgumentError(f"two files have the name '{printable(name)}', which is that of their group")
        names.append(name)
    return names


def _of_file(h5py: Any, source: Source, above: str, choice: Choice) -> dict[str, Any]:
    with Hdf5(h5py, source, above, choice) as opened:
        return dict(opened.references())


def references_for_command(
    files: Sequence[str], join: str | None, drop: Sequence[str], strict: bool, storage_options: Mapping[str, str]
) -> tuple[str, list[tuple[str, str, str]], list[str]]:
    """What ``cuzarr references make`` writes: the table of one file, or of several, as JSON.

    Returns
    -------
    tuple
        The table; the file, the path and the reason of each variable that is left out; the files' URLs.
    """
    made = _make(files, join, Choice(strict, drop), storage_options or None, len(files) == 1)
    return json.dumps(made.table), [(one.file, one.path, one.reason) for one in made.left_out], made.urls

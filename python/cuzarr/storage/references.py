"""Tables of references to the chunks of HDF5 files, netCDF-4 among them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuzarr._text import printable
from cuzarr.errors import InvalidArgumentError, LibraryMissingError
from cuzarr.storage.hdf5 import Hdf5
from cuzarr.storage.joined import joined_references


def make_references(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, join: str | None = None
) -> dict[str, Any]:
    """Makes a table of references to the chunks of HDF5 files, such as netCDF-4. It needs h5py.

    The table is kerchunk's JSON format, version 1. ``reference::TABLE.json`` opens it, and chunks are then read from the files where they
    are. Compressors are deflate, zstd and Blosc; filters are shuffle and fletcher32. Small values are put into the table.

    Parameters
    ----------
    files : path or list of paths
        One file becomes the root of the hierarchy. Of several, each becomes a group with the name of the file.
    join : str, optional
        A dimension, such as ``"time"``, along which the variables of several files follow each other, in the order of the files. Other
        variables are taken from the first file. Times since other dates are changed to be since the date of the first file.

    Returns
    -------
    dict
        The table, ready for :func:`json.dump`.

    Raises
    ------
    LibraryMissingError
        h5py is not installed.
    UnsupportedError
        A dataset has a filter or a type of elements that Zarr has not. With ``join``: chunks do not end where a file does, and the variable is
        larger than 4 MiB.
    InvalidArgumentError
        Two files have one name. With ``join``: the files have other variables, shapes, units or coordinates.

    Examples
    --------
    >>> import cuzarr, json
    >>> table = cuzarr.storage.make_references("field.nc")  # doctest: +SKIP
    >>> _ = open("field.json", "w").write(json.dumps(table))  # doctest: +SKIP
    >>> cuzarr.open_group("reference::field.json", mode="r")["t2m"][0]  # doctest: +SKIP
    """
    try:
        import h5py
    except ImportError as error:
        raise LibraryMissingError(f"references to HDF5 files need h5py: {error}", hint="pip install h5py") from error
    if join is not None:
        listed = [files] if isinstance(files, str | os.PathLike) else list(files)
        if not listed:
            raise InvalidArgumentError("files is empty, expected at least one file to join")
        return {"version": 1, "refs": joined_references(h5py, listed, join)}
    if isinstance(files, str | os.PathLike):
        return {"version": 1, "refs": _of_file(h5py, files, "")}
    refs: dict[str, Any] = {".zgroup": json.dumps({"zarr_format": 2})}
    for file in files:
        name = Path(file).stem
        if f"{name}/.zgroup" in refs:
            raise InvalidArgumentError(f"two files have the name '{printable(name)}', which is that of their group")
        refs.update(_of_file(h5py, file, name))
    return {"version": 1, "refs": refs}


def _of_file(h5py: Any, file: str | os.PathLike[str], above: str) -> dict[str, Any]:
    with Hdf5(h5py, file, above) as opened:
        return dict(opened.references())


def references_as_json(files: Sequence[str | os.PathLike[str]], join: str | None = None) -> str:
    """What ``cuzarr references make`` writes: the table of one file, or of several."""
    return json.dumps(make_references(files[0] if len(files) == 1 else files, join=join))

"""Stands in for the classes of ``cuzarr.zarr`` if zarr-python is missing or too old."""

from __future__ import annotations

from typing import Any

from cuzarr.errors import LibraryMissingError


def absent(name: str, cause: Exception) -> type:
    """Makes a class that raises ``LibraryMissingError`` when it is used. The error says why the real class is not available."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise LibraryMissingError(
            f"cuzarr.zarr.{name} needs zarr-python 3.1 or newer: {cause}", hint="pip install 'zarr>=3.1'"
        ) from cause

    members = {"__new__": refuse, "__module__": "cuzarr.zarr", "__doc__": f"Not available: {cause}"}
    for method in ("from_codecs", "from_array_metadata_and_store"):
        members[method] = classmethod(refuse)
    return type(name, (), members)

"""What stands where zarr-python is missing, or is a version without what is needed."""

from __future__ import annotations

from typing import Any

from cuzarr.errors import LibraryMissingError


def absent(name: str, cause: Exception) -> type:
    """A class that says on use why it is not the real thing."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise LibraryMissingError(
            f"cuzarr.zarr.{name} needs zarr-python 3.1 or newer: {cause}", hint="pip install 'zarr>=3.1'"
        ) from cause

    members = {"__new__": refuse, "__module__": "cuzarr.zarr", "__doc__": f"Not available: {cause}"}
    for method in ("from_codecs", "from_array_metadata_and_store"):
        members[method] = classmethod(refuse)
    return type(name, (), members)

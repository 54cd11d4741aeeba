"""Interfaces of stored arrays and groups that computations use, and access to the functions that open and create arrays and groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np

from cuzarr import _core
from cuzarr._memory.box import Box
from cuzarr._metadata.array import AnyArrayMetadata
from cuzarr._metadata.documents import read_array
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._operators.dispatch import Stored
from cuzarr.storage import StorePath, make_store_path


class StoreNode:
    """Base class of cuzarr's stored arrays and groups."""


class StoredArray(Protocol):
    """The part of a stored array's interface that computations need."""

    @property
    def metadata(self) -> AnyArrayMetadata: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def chunks(self) -> tuple[int, ...]: ...
    @property
    def shards(self) -> tuple[int, ...] | None: ...
    @property
    def device(self) -> str: ...
    @property
    def store_path(self) -> StorePath: ...
    def _check_writable(self) -> None: ...
    def _handle(self, device: str | None = None) -> _core.Array: ...
    def _read_box(self, box: Box, device: str) -> Any: ...
    def _write_box(self, box: Box, value: Any) -> None: ...


@dataclass(frozen=True)
class Nodes:
    """The public functions that open and create arrays and groups, for modules that cannot import them."""

    open: Callable[..., Any]
    open_array: Callable[..., Any]
    open_group: Callable[..., Any]
    create_array: Callable[..., Any]


nodes: Nodes
"""The public functions that open and create arrays and groups. The package ``_node``, which imports this module, sets them."""


def is_stored(value: Any) -> TypeGuard[StoredArray]:
    """Whether ``value`` is a stored array of cuzarr."""
    return isinstance(value, Stored)


def is_array(value: Any) -> bool:
    """Whether ``value`` is a stored array, of cuzarr or of zarr-python."""
    return isinstance(value, Stored) or (type(value).__name__ == "Array" and is_node(value))


def is_node(value: Any) -> bool:
    """Whether ``value`` is a stored array or a group, of cuzarr or of zarr-python."""
    return hasattr(value, "store_path") or _is_of_zarr_2(value)


def _is_of_zarr_2(value: Any) -> bool:
    return type(value).__module__ in ("zarr.core", "zarr.hierarchy") and hasattr(value, "chunk_store")


def format_of(value: Any) -> ZarrFormat:
    """The Zarr format of an array or group of cuzarr or zarr-python."""
    return 2 if _is_of_zarr_2(value) else value.metadata.zarr_format  # type: ignore[no-any-return]


def place_of(value: Any) -> StorePath:
    """The store and the path of an array or group of cuzarr or zarr-python."""
    if _is_of_zarr_2(value):
        apart = None if value.chunk_store in (None, value.store) else value.store
        return make_store_path(value.chunk_store or value.store, path=value.path, metadata_store=apart)
    return StorePath(make_store_path(value.store_path.store).store, value.store_path.path)


def metadata_of(value: Any) -> AnyArrayMetadata:
    """The metadata of a stored array of cuzarr or zarr-python, as an object of cuzarr."""
    if is_stored(value):
        return value.metadata
    return read_array(place_of(value), format_of(value))

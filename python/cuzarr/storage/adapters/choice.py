"""Chooses the adapter by which the Rust side uses a store that is written in Python. An adapter for another library is imported when one of
its stores is given."""

from __future__ import annotations

import inspect
import sys
from collections.abc import MutableMapping
from typing import Any

from cuzarr.storage.adapters.base import StoreAdapter, unwrapped
from cuzarr.storage.adapters.mapping import MappingAdapter


def adapt_store(store: Any) -> StoreAdapter:
    """Chooses the adapter for a mapping, a store of zarr-python or obstore, or an object with ``get``, ``set``, ``delete`` and ``list``.

    Raises
    ------
    TypeError
        The store is none of these.
    """
    if type(store).__module__ in ("zarr.core", "zarr.hierarchy"):  # groups of zarr-python 2 are mappings, too
        kind = type(store).__name__
        raise TypeError(f"got {kind} of zarr-python 2, expected a store\nhint: pass its store, and path= with its path")
    if isinstance(store, MutableMapping):
        fs = getattr(store, "fs", None)
        root = getattr(store, "root", None) or getattr(store, "path", "")  # `path` is the attribute of zarr-python 2's FSStore
        return _adapt_fsspec(fs, str(root)) if hasattr(fs, "cat_file") else MappingAdapter(store)
    if type(store).__module__.partition(".")[0] == "obstore":
        return _adapt_obstore(store)
    if _is_zarr_store(store):
        return _adapt_zarr_store(store)
    missing = [name for name in ("get", "set", "delete", "list") if not callable(getattr(store, name, None))]
    if missing:
        hint = "\nhint: pass its store_path" if hasattr(store, "store_path") else ""
        raise TypeError(f"got {type(store).__name__}, expected a store: it has no {', '.join(missing)}{hint}")
    from cuzarr.storage.adapters.object import ObjectAdapter

    return ObjectAdapter(store)


def _is_zarr_store(store: Any) -> bool:
    """Whether a store has zarr-python's interface. In its subclasses, methods may be plain functions that return coroutines."""
    interface = getattr(sys.modules.get("zarr.abc.store"), "Store", ())
    has_coroutines = inspect.iscoroutinefunction(getattr(store, "get", None)) and hasattr(store, "list_prefix")
    return has_coroutines or isinstance(store, interface)


def _adapt_fsspec(fs: Any, root: str) -> StoreAdapter:
    from cuzarr.storage.adapters.fsspec import FsspecAdapter

    return FsspecAdapter(fs, root)


def _adapt_obstore(store: Any) -> StoreAdapter:
    from cuzarr.storage.adapters.obstore import ObstoreAdapter

    return ObstoreAdapter(store)


def _adapt_zarr_store(store: Any) -> StoreAdapter:
    """The adapter for a store with zarr-python's interface."""
    from cuzarr.storage.adapters.fsspec import ZarrFsspecAdapter
    from cuzarr.storage.adapters.zarr import IcechunkAdapter, ZarrStoreAdapter

    inner = unwrapped(store)
    if type(inner).__module__.partition(".")[0] == "icechunk":
        return IcechunkAdapter(store)
    zarr_storage = sys.modules.get("zarr.storage")
    if zarr_storage is not None and type(store) is zarr_storage.ObjectStore:
        return _adapt_obstore(store.store)
    if zarr_storage is not None and type(store) is zarr_storage.FsspecStore:
        return ZarrFsspecAdapter(store)
    return ZarrStoreAdapter(store)

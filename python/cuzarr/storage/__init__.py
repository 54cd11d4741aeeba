"""Stores, which hold the bytes of keys.

A path becomes a :class:`LocalStore`, ``None`` becomes a :class:`MemoryStore`, and a path that ends in ``.zip`` becomes a
:class:`ZipStore`. A store can also be a dictionary, another mutable mapping (such as fsspec's), a store of zarr-python or obstore, a URL
that fsspec knows, or any object with ``get``, ``set``, ``delete`` and ``list``.

>>> from cuzarr.storage import MemoryStore
>>> store = MemoryStore()
>>> store.set("a/b", b"bytes")
>>> store.get("a/b"), store.exists("a/c")
(b'bytes', False)

If zarr-python is installed, ``cuzarr.zarr`` offers these stores as subclasses of zarr-python's ``Store``.
"""

from cuzarr import _names
from cuzarr.storage.foreign import ForeignStore, FsspecStore, ObjectStore
from cuzarr.storage.gds import GDSStore
from cuzarr.storage.local import LocalStore
from cuzarr.storage.memory import GpuMemoryStore, MemoryStore
from cuzarr.storage.resolve import (
    MODES,
    StoreLike,
    StorePath,
    iterate_parents,
    make_store,
    make_store_path,
    normalize_path,
)
from cuzarr.storage.split import SplitStore
from cuzarr.storage.store import Store
from cuzarr.storage.url import UrlStore
from cuzarr.storage.zip import ZipStore

__all__ = [
    "MODES",
    "ForeignStore",
    "FsspecStore",
    "GDSStore",
    "GpuMemoryStore",
    "LocalStore",
    "MemoryStore",
    "ObjectStore",
    "SplitStore",
    "Store",
    "StoreLike",
    "StorePath",
    "UrlStore",
    "ZipStore",
    "iterate_parents",
    "make_store",
    "make_store_path",
    "normalize_path",
]

_names.publish(globals())

"""Zarr arrays straight into and out of GPU memory.

Names and signatures are zarr-python's, so that changing the import is most of a migration; ``device=`` says where an
array is read to.

>>> import cuzarr, numpy as np
>>> store = cuzarr.storage.MemoryStore()
>>> array = cuzarr.create_array(store, name="x", shape=(4,), chunks=(2,), dtype="float32")
>>> array[:] = np.arange(4)
>>> cuzarr.open_array(store, path="x", device="cpu")[1:3]
array([1., 2.], dtype=float32)

Importing initialises no GPU and imports no other array library.
"""

from __future__ import annotations

from cuzarr import _libraries, api, buffer, codecs, errors, kernels, memory, storage
from cuzarr._api import (
    array,
    consolidate_metadata,
    copy_all,
    copy_store,
    create,
    create_array,
    create_group,
    create_hierarchy,
    empty,
    empty_like,
    from_array,
    full,
    full_like,
    group,
    load,
    ones,
    ones_like,
    open,
    open_array,
    open_consolidated,
    open_group,
    open_like,
    print_debug_info,
    save,
    save_array,
    save_group,
    tree,
    zeros,
    zeros_like,
)
from cuzarr._array import Array, ArrayConfig
from cuzarr._async_nodes import AsyncArray, AsyncGroup
from cuzarr._config import config
from cuzarr._copying import copy, pyramid, rechunk
from cuzarr._core import __version__
from cuzarr._group import Group
from cuzarr._map_blocks import map_blocks
from cuzarr._metadata import ArrayV2Metadata, ArrayV3Metadata, ConsolidatedMetadata, GroupMetadata
from cuzarr.device_array import DeviceArray
from cuzarr.errors import CuzarrError
from cuzarr.kernels import ElementwiseKernel, Module

_libraries.announce()

__all__ = [
    "Array",
    "ArrayConfig",
    "ArrayV2Metadata",
    "ArrayV3Metadata",
    "AsyncArray",
    "AsyncGroup",
    "ConsolidatedMetadata",
    "CuzarrError",
    "DeviceArray",
    "ElementwiseKernel",
    "Group",
    "GroupMetadata",
    "Module",
    "__version__",
    "api",
    "array",
    "buffer",
    "codecs",
    "config",
    "consolidate_metadata",
    "copy",
    "copy_all",
    "copy_store",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "empty",
    "empty_like",
    "errors",
    "kernels",
    "from_array",
    "full",
    "full_like",
    "group",
    "load",
    "map_blocks",
    "memory",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_like",
    "print_debug_info",
    "pyramid",
    "rechunk",
    "save",
    "save_array",
    "save_group",
    "storage",
    "tree",
    "zeros",
    "zeros_like",
]

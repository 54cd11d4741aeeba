"""Zarr arrays that are read straight into GPU memory, and written from it.

Names and signatures are zarr-python's, so most programs only need another import. ``device=`` chooses the memory that an array is read to.

>>> import cuzarr, numpy as np
>>> store = cuzarr.storage.MemoryStore()
>>> array = cuzarr.create_array(store, name="x", shape=(4,), chunks=(2,), dtype="float32")
>>> array[:] = np.arange(4)
>>> cuzarr.open_array(store, path="x", device="cpu")[1:3]
array([1., 2.], dtype=float32)

NumPy's functions accept these arrays: ``np.sqrt(array)``. :mod:`cuzarr.xp` has the same functions, for arrays in stores and
for arrays in memory of any device. ``cuzarr.zeros`` and its like store an array; ``cuzarr.xp.zeros`` allocates memory.

Importing cuzarr initialises no GPU and imports no other array library. Modules for other libraries, such as
``cuzarr.xarray``, are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuzarr import (
    _names,
    _runtime,
    api,
    buffer,
    codecs,
    dtype,
    errors,
    memory,
    storage,
    xp,
)
from cuzarr._compute.blocks import BlockInfo
from cuzarr._compute.copy import CopyPlan, copy, rechunk
from cuzarr._compute.expression import Expression
from cuzarr._compute.map_blocks import map_blocks
from cuzarr._compute.pyramid import pyramid
from cuzarr._compute.reduce import reduce
from cuzarr._config import config
from cuzarr._core import __version__
from cuzarr._memory.device_array import DeviceArray
from cuzarr._metadata.array import ArrayV2Metadata, ArrayV3Metadata
from cuzarr._metadata.group import ConsolidatedMetadata, GroupMetadata
from cuzarr._node.array import Array
from cuzarr._node.array_config import ArrayConfig
from cuzarr._node.asynchronous import AsyncArray, AsyncGroup
from cuzarr._node.group import Group
from cuzarr._node.lazy import LazyArray
from cuzarr._node.many import read_many, write_many
from cuzarr.api.synchronous import (
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

_runtime.announce()

_LATER = ("dask", "kernels", "jax", "kvikio", "loader", "ome", "references", "sparse", "torch", "typing", "xarray", "zarr")
if TYPE_CHECKING:
    from cuzarr import (
        dask as dask,
        jax as jax,
        kernels,
        kvikio as kvikio,
        loader as loader,
        ome as ome,
        references,
        sparse as sparse,
        torch as torch,
        typing as typing,
        xarray as xarray,
        zarr as zarr,
    )
else:
    # Modules that few programs use, and modules for other libraries, are imported when they are used.
    __getattr__ = _names.importing(__name__, _LATER, xp)

__all__ = [
    "Array",
    "ArrayConfig",
    "ArrayV2Metadata",
    "ArrayV3Metadata",
    "AsyncArray",
    "AsyncGroup",
    "BlockInfo",
    "ConsolidatedMetadata",
    "CopyPlan",
    "DeviceArray",
    "Expression",
    "Group",
    "GroupMetadata",
    "LazyArray",
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
    "dtype",
    "empty",
    "empty_like",
    "errors",
    "from_array",
    "full",
    "full_like",
    "group",
    "kernels",
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
    "read_many",
    "pyramid",
    "rechunk",
    "reduce",
    "references",
    "save",
    "save_array",
    "save_group",
    "storage",
    "tree",
    "write_many",
    "xp",
    "zeros",
    "zeros_like",
]

_names.publish(globals(), _LATER)

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

import builtins
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
from cuzarr.errors import CuzarrError
from cuzarr.xp import (
    combined as _combined,
    cumulative as _cumulative,
    elementwise as _elementwise,
    reductions as _reductions,
    shapes as _shapes,
    statistics as _statistics,
)
from cuzarr.xp.combined import *  # noqa: F403
from cuzarr.xp.cumulative import *  # noqa: F403
from cuzarr.xp.elementwise import *  # noqa: F403
from cuzarr.xp.reductions import *  # noqa: F403
from cuzarr.xp.shapes import *  # noqa: F403
from cuzarr.xp.statistics import *  # noqa: F403

_runtime.announce()

if TYPE_CHECKING:
    from cuzarr import functions, kernels, reductions, references, selections
    from cuzarr.kernels import ElementwiseKernel, Module
else:
    # What few programs use is imported when it is used. Errors about missing names say where NumPy's are.
    __getattr__ = _names.importing(
        __name__,
        {
            "functions": None,
            "kernels": None,
            "reductions": None,
            "references": None,
            "selections": None,
            "ElementwiseKernel": "kernels",
            "Module": "kernels",
        },
        xp,
    )

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
    "CuzarrError",
    "DeviceArray",
    "ElementwiseKernel",
    "Expression",
    "Group",
    "GroupMetadata",
    "LazyArray",
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
    "dtype",
    "empty",
    "empty_like",
    "errors",
    "functions",
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
    "reduce",
    "reductions",
    "references",
    "selections",
    "save",
    "save_array",
    "save_group",
    "storage",
    "tree",
    "xp",
    "zeros",
    "zeros_like",
]
__all__ += _elementwise.__all__
__all__ += _reductions.__all__
__all__ += _statistics.__all__
__all__ += _combined.__all__
__all__ += _shapes.__all__
__all__ += _cumulative.__all__

_names.publish(globals())

if not TYPE_CHECKING:
    # Importing everything by `*` does not hide Python's own `abs`, `sum` and the like.
    __all__ = [name for name in __all__ if name == "open" or not hasattr(builtins, name)]

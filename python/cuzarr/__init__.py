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

from typing import TYPE_CHECKING

from cuzarr import _runtime
from cuzarr import (
    _names,
    api,
    buffer,
    codecs,
    dtype,
    errors,
    functions,
    kernels,
    memory,
    reductions,
    selections,
    storage,
    xp,
)
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
from cuzarr._node.array import Array
from cuzarr._node.array_config import ArrayConfig
from cuzarr._node.asynchronous import AsyncArray, AsyncGroup
from cuzarr._config import config
from cuzarr._compute.copy import copy, pyramid, rechunk
from cuzarr._core import __version__
from cuzarr._node.group import Group
from cuzarr._metadata.group import ConsolidatedMetadata, GroupMetadata
from cuzarr._compute.map_blocks import map_blocks
from cuzarr._metadata.array import ArrayV2Metadata, ArrayV3Metadata
from cuzarr._compute.reduce import reduce
from cuzarr._memory.device_array import DeviceArray
from cuzarr.errors import CuzarrError
from cuzarr._compute.expression import Expression
from cuzarr.xp.elementwise import (
    abs,  # noqa: A004, NumPy's names
    absolute,
    acos,
    acosh,
    add,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    asin,
    asinh,
    astype,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    cbrt,
    ceil,
    clip,
    conj,
    conjugate,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fmax,
    fmin,
    fmod,
    greater,
    greater_equal,
    hypot,
    imag,
    invert,
    isfinite,
    isinf,
    isnan,
    left_shift,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    negative,
    not_equal,
    pow,  # noqa: A004
    power,
    real,
    remainder,
    right_shift,
    rint,
    round,  # noqa: A004
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    true_divide,
    trunc,
    where,
)
from cuzarr.kernels import ElementwiseKernel, Module

from cuzarr.xp.reductions import (
    all,  # noqa: A004
    any,  # noqa: A004
    argmax,
    argmin,
    count_nonzero,
    max,  # noqa: A004
    mean,
    min,  # noqa: A004
    nanargmax,
    nanargmin,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
    prod,
    std,
    sum,  # noqa: A004
    var,
)
from cuzarr.xp.statistics import (
    histogram,
    histogram_bin_edges,
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)

_runtime.announce()

# Names of NumPy that are missing are told where they are. Hidden from type checkers, which would take any name for one.
if not TYPE_CHECKING:
    __getattr__ = _names.pointing_to_cupy(__name__)

# Functions and reductions are not listed, because some would hide Python's own (`abs`, `sum`) where everything is imported:
# their names are in `cuzarr.functions`, `cuzarr.reductions` and `cuzarr.selections`.
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
    "Expression",
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

_names.publish(globals())

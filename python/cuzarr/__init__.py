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
from cuzarr._compute.copy import copy, pyramid, rechunk
from cuzarr._compute.expression import Expression
from cuzarr._compute.map_blocks import map_blocks
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
from cuzarr.xp.elementwise import (
    abs as abs,
)
from cuzarr.xp.elementwise import (
    absolute as absolute,
)
from cuzarr.xp.elementwise import (
    acos as acos,
)
from cuzarr.xp.elementwise import (
    acosh as acosh,
)
from cuzarr.xp.elementwise import (
    add as add,
)
from cuzarr.xp.elementwise import (
    arccos as arccos,
)
from cuzarr.xp.elementwise import (
    arccosh as arccosh,
)
from cuzarr.xp.elementwise import (
    arcsin as arcsin,
)
from cuzarr.xp.elementwise import (
    arcsinh as arcsinh,
)
from cuzarr.xp.elementwise import (
    arctan as arctan,
)
from cuzarr.xp.elementwise import (
    arctan2 as arctan2,
)
from cuzarr.xp.elementwise import (
    arctanh as arctanh,
)
from cuzarr.xp.elementwise import (
    asin as asin,
)
from cuzarr.xp.elementwise import (
    asinh as asinh,
)
from cuzarr.xp.elementwise import (
    astype as astype,
)
from cuzarr.xp.elementwise import (
    atan as atan,
)
from cuzarr.xp.elementwise import (
    atan2 as atan2,
)
from cuzarr.xp.elementwise import (
    atanh as atanh,
)
from cuzarr.xp.elementwise import (
    bitwise_and as bitwise_and,
)
from cuzarr.xp.elementwise import (
    bitwise_invert as bitwise_invert,
)
from cuzarr.xp.elementwise import (
    bitwise_left_shift as bitwise_left_shift,
)
from cuzarr.xp.elementwise import (
    bitwise_or as bitwise_or,
)
from cuzarr.xp.elementwise import (
    bitwise_right_shift as bitwise_right_shift,
)
from cuzarr.xp.elementwise import (
    bitwise_xor as bitwise_xor,
)
from cuzarr.xp.elementwise import (
    cbrt as cbrt,
)
from cuzarr.xp.elementwise import (
    ceil as ceil,
)
from cuzarr.xp.elementwise import (
    clip as clip,
)
from cuzarr.xp.elementwise import (
    conj as conj,
)
from cuzarr.xp.elementwise import (
    conjugate as conjugate,
)
from cuzarr.xp.elementwise import (
    copysign as copysign,
)
from cuzarr.xp.elementwise import (
    cos as cos,
)
from cuzarr.xp.elementwise import (
    cosh as cosh,
)
from cuzarr.xp.elementwise import (
    divide as divide,
)
from cuzarr.xp.elementwise import (
    equal as equal,
)
from cuzarr.xp.elementwise import (
    exp as exp,
)
from cuzarr.xp.elementwise import (
    exp2 as exp2,
)
from cuzarr.xp.elementwise import (
    expm1 as expm1,
)
from cuzarr.xp.elementwise import (
    floor as floor,
)
from cuzarr.xp.elementwise import (
    floor_divide as floor_divide,
)
from cuzarr.xp.elementwise import (
    fmax as fmax,
)
from cuzarr.xp.elementwise import (
    fmin as fmin,
)
from cuzarr.xp.elementwise import (
    fmod as fmod,
)
from cuzarr.xp.elementwise import (
    greater as greater,
)
from cuzarr.xp.elementwise import (
    greater_equal as greater_equal,
)
from cuzarr.xp.elementwise import (
    hypot as hypot,
)
from cuzarr.xp.elementwise import (
    imag as imag,
)
from cuzarr.xp.elementwise import (
    invert as invert,
)
from cuzarr.xp.elementwise import (
    isfinite as isfinite,
)
from cuzarr.xp.elementwise import (
    isinf as isinf,
)
from cuzarr.xp.elementwise import (
    isnan as isnan,
)
from cuzarr.xp.elementwise import (
    left_shift as left_shift,
)
from cuzarr.xp.elementwise import (
    less as less,
)
from cuzarr.xp.elementwise import (
    less_equal as less_equal,
)
from cuzarr.xp.elementwise import (
    log as log,
)
from cuzarr.xp.elementwise import (
    log1p as log1p,
)
from cuzarr.xp.elementwise import (
    log2 as log2,
)
from cuzarr.xp.elementwise import (
    log10 as log10,
)
from cuzarr.xp.elementwise import (
    logical_and as logical_and,
)
from cuzarr.xp.elementwise import (
    logical_not as logical_not,
)
from cuzarr.xp.elementwise import (
    logical_or as logical_or,
)
from cuzarr.xp.elementwise import (
    logical_xor as logical_xor,
)
from cuzarr.xp.elementwise import (
    maximum as maximum,
)
from cuzarr.xp.elementwise import (
    minimum as minimum,
)
from cuzarr.xp.elementwise import (
    mod as mod,
)
from cuzarr.xp.elementwise import (
    multiply as multiply,
)
from cuzarr.xp.elementwise import (
    negative as negative,
)
from cuzarr.xp.elementwise import (
    not_equal as not_equal,
)
from cuzarr.xp.elementwise import (
    pow as pow,
)
from cuzarr.xp.elementwise import (
    power as power,
)
from cuzarr.xp.elementwise import (
    real as real,
)
from cuzarr.xp.elementwise import (
    remainder as remainder,
)
from cuzarr.xp.elementwise import (
    right_shift as right_shift,
)
from cuzarr.xp.elementwise import (
    rint as rint,
)
from cuzarr.xp.elementwise import (
    round as round,
)
from cuzarr.xp.elementwise import (
    sign as sign,
)
from cuzarr.xp.elementwise import (
    signbit as signbit,
)
from cuzarr.xp.elementwise import (
    sin as sin,
)
from cuzarr.xp.elementwise import (
    sinh as sinh,
)
from cuzarr.xp.elementwise import (
    sqrt as sqrt,
)
from cuzarr.xp.elementwise import (
    square as square,
)
from cuzarr.xp.elementwise import (
    subtract as subtract,
)
from cuzarr.xp.elementwise import (
    tan as tan,
)
from cuzarr.xp.elementwise import (
    tanh as tanh,
)
from cuzarr.xp.elementwise import (
    true_divide as true_divide,
)
from cuzarr.xp.elementwise import (
    trunc as trunc,
)
from cuzarr.xp.elementwise import (
    where as where,
)
from cuzarr.xp.reductions import (
    all as all,
)
from cuzarr.xp.reductions import (
    any as any,
)
from cuzarr.xp.reductions import (
    argmax as argmax,
)
from cuzarr.xp.reductions import (
    argmin as argmin,
)
from cuzarr.xp.reductions import (
    count_nonzero as count_nonzero,
)
from cuzarr.xp.reductions import (
    max as max,
)
from cuzarr.xp.reductions import (
    mean as mean,
)
from cuzarr.xp.reductions import (
    min as min,
)
from cuzarr.xp.reductions import (
    nanargmax as nanargmax,
)
from cuzarr.xp.reductions import (
    nanargmin as nanargmin,
)
from cuzarr.xp.reductions import (
    nanmax as nanmax,
)
from cuzarr.xp.reductions import (
    nanmean as nanmean,
)
from cuzarr.xp.reductions import (
    nanmin as nanmin,
)
from cuzarr.xp.reductions import (
    nanprod as nanprod,
)
from cuzarr.xp.reductions import (
    nanstd as nanstd,
)
from cuzarr.xp.reductions import (
    nansum as nansum,
)
from cuzarr.xp.reductions import (
    nanvar as nanvar,
)
from cuzarr.xp.reductions import (
    prod as prod,
)
from cuzarr.xp.reductions import (
    std as std,
)
from cuzarr.xp.reductions import (
    sum as sum,
)
from cuzarr.xp.reductions import (
    var as var,
)
from cuzarr.xp.statistics import (
    histogram as histogram,
)
from cuzarr.xp.statistics import (
    histogram_bin_edges as histogram_bin_edges,
)
from cuzarr.xp.statistics import (
    median as median,
)
from cuzarr.xp.statistics import (
    nanmedian as nanmedian,
)
from cuzarr.xp.statistics import (
    nanpercentile as nanpercentile,
)
from cuzarr.xp.statistics import (
    nanquantile as nanquantile,
)
from cuzarr.xp.statistics import (
    percentile as percentile,
)
from cuzarr.xp.statistics import (
    quantile as quantile,
)

_runtime.announce()

if TYPE_CHECKING:
    from cuzarr import functions, kernels, reductions, selections
    from cuzarr.kernels import ElementwiseKernel, Module
else:
    # What few programs use is imported when it is used. Names of NumPy that are missing are told where they are.
    __getattr__ = _names.importing(
        __name__,
        {
            "functions": None,
            "kernels": None,
            "reductions": None,
            "selections": None,
            "ElementwiseKernel": "kernels",
            "Module": "kernels",
        },
    )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


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

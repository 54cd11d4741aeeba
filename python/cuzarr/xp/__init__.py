"""NumPy's functions under NumPy's names: creating and moving arrays in memory, functions of elements, reductions, statistics.

New arrays are NumPy's on ``"cpu"``. On a GPU they are CuPy's if CuPy is installed, else :class:`cuzarr.DeviceArray`. The default
``device`` is the configured one. The functions of the same names in ``cuzarr``, such as ``cuzarr.zeros``, create Zarr arrays
instead.

>>> import cuzarr
>>> cuzarr.xp.arange(3, dtype="float32", device="cpu")
array([0., 1., 2.], dtype=float32)
>>> cuzarr.xp.sqrt(cuzarr.xp.full(2, 9.0, device="cpu"))
array([3., 3.])
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _names
from cuzarr._operators import dispatch
from cuzarr.xp import combined, creation, cumulative, elementwise, matrices, order, reductions, shapes, standard, statistics
from cuzarr.xp.combined import *  # noqa: F403
from cuzarr.xp.creation import *  # noqa: F403
from cuzarr.xp.cumulative import *  # noqa: F403
from cuzarr.xp.elementwise import *  # noqa: F403
from cuzarr.xp.matrices import *  # noqa: F403
from cuzarr.xp.order import *  # noqa: F403
from cuzarr.xp.reductions import *  # noqa: F403
from cuzarr.xp.shapes import *  # noqa: F403
from cuzarr.xp.standard import *  # noqa: F403
from cuzarr.xp.standard import __array_namespace_info__ as __array_namespace_info__
from cuzarr.xp.statistics import *  # noqa: F403

__array_api_version__ = "2024.12"

# The array API standard's types and constants are NumPy's. If they were names of this module, `bool` would hide Python's `bool`.
_OF_NUMPY = {
    **{name: getattr(np, name) for name in standard.TYPES},
    **{name: getattr(np, name) for name in ("e", "inf", "nan", "newaxis", "pi")},
    "bool": np.bool_,
}
if TYPE_CHECKING:
    from numpy import (
        bool_ as bool,
        complex64 as complex64,
        complex128 as complex128,
        e as e,
        float32 as float32,
        float64 as float64,
        inf as inf,
        int8 as int8,
        int16 as int16,
        int32 as int32,
        int64 as int64,
        nan as nan,
        newaxis as newaxis,
        pi as pi,
        uint8 as uint8,
        uint16 as uint16,
        uint32 as uint32,
        uint64 as uint64,
    )
else:  # a type checker would accept any name
    _missing = _names.missing_from(__name__)

    def __getattr__(name: str) -> Any:
        return _OF_NUMPY[name] if name in _OF_NUMPY else _missing(name)


# NumPy's functions call these for arrays of this package. From `creation`, only the functions that end in `_like` are called.
for _module in (elementwise, reductions, statistics, combined, shapes, cumulative, creation):
    _names_like = (name for name in _module.__all__ if _module is not creation or name.endswith("_like"))
    dispatch.register((name, getattr(_module, name)) for name in _names_like)
# These functions take elements in memory. For stored arrays, NumPy's own functions get the elements.
for _module in (order, matrices):
    dispatch.of_memory.update((name, getattr(_module, name)) for name in _module.__all__ if name != "eye")
dispatch.of_memory.update((name, getattr(standard, name)) for name in ("logaddexp", "nextafter", "nonzero", "vecdot"))

__all__: list[str] = []
__all__ += creation.__all__
__all__ += elementwise.__all__
__all__ += reductions.__all__
__all__ += statistics.__all__
__all__ += combined.__all__
__all__ += shapes.__all__
__all__ += standard.__all__
__all__ += order.__all__
__all__ += cumulative.__all__
__all__ += matrices.__all__

_names.publish(globals())
dispatch.namespace = sys.modules[__name__]

"""NumPy's functions by NumPy's names: those that make and move arrays in memory, functions of elements, reductions, statistics.

Arrays that are made are NumPy's on ``"cpu"``, and on a GPU what reads give there: CuPy's where CuPy is installed, else
:class:`cuzarr.DeviceArray`. ``device`` is by default what the configuration says. ``cuzarr.zeros`` and its like, beside
these, make arrays of Zarr.

>>> import cuzarr
>>> cuzarr.xp.arange(3, dtype="float32", device="cpu")
array([0., 1., 2.], dtype=float32)
>>> cuzarr.xp.sqrt(cuzarr.xp.full(2, 9.0, device="cpu"))
array([3., 3.])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuzarr import _names
from cuzarr._operators import dispatch
from cuzarr.xp import combined, creation, elementwise, reductions, shapes, statistics
from cuzarr.xp.combined import *  # noqa: F403
from cuzarr.xp.creation import *  # noqa: F403
from cuzarr.xp.elementwise import *  # noqa: F403
from cuzarr.xp.reductions import *  # noqa: F403
from cuzarr.xp.shapes import *  # noqa: F403
from cuzarr.xp.statistics import *  # noqa: F403

if not TYPE_CHECKING:  # it would take any name for one
    __getattr__ = _names.pointing_to_cupy(__name__)

# NumPy's functions call these of arrays of this package; of those that make arrays only what is made like another one.
for _module in (elementwise, reductions, statistics, combined, shapes, creation):
    _names_like = (name for name in _module.__all__ if _module is not creation or name.endswith("_like"))
    dispatch.register((name, getattr(_module, name)) for name in _names_like)

__all__: list[str] = []
__all__ += creation.__all__
__all__ += elementwise.__all__
__all__ += reductions.__all__
__all__ += statistics.__all__
__all__ += combined.__all__
__all__ += shapes.__all__

_names.publish(globals())

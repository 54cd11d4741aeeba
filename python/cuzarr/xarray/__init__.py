"""``engine="cuzarr"`` for xarray: data variables are read to the configured device, coordinates stay on the host.

>>> import cuzarr, numpy as np, xarray
>>> store = cuzarr.storage.MemoryStore()
>>> group = cuzarr.create_group(store)
>>> _ = group.create_array("t", data=np.arange(3.0), dimension_names=("x",))
>>> _ = group.create_array("x", data=np.array([10, 20, 30]), dimension_names=("x",))
>>> float(xarray.open_dataset(store, engine="cuzarr").t.sel(x=20))
1.0

xarray builds indexes from coordinates, which needs host memory, and decodes times and strings with NumPy. Variables of these
kinds stay on the host. On a GPU, xarray computes with CuPy's arrays, so CuPy must be installed. Elements that a fill value marks
as missing are masked on the device.
"""

from __future__ import annotations

from cuzarr import _names
from cuzarr.xarray._accessor import DatasetAccessor
from cuzarr.xarray._engine import CuzarrBackendEntrypoint
from cuzarr.xarray._group import GroupStore
from cuzarr.xarray._reads import LazyArray, MaskedArray

__all__ = ["CuzarrBackendEntrypoint", "DatasetAccessor", "GroupStore", "LazyArray", "MaskedArray"]

_names.publish(globals())

"""Makes zarr-python read and write through cuzarr: a codec pipeline, stores, buffers, and changes to zarr-python itself where these are not
enough.

>>> import cuzarr.zarr, numpy as np, zarr
>>> with cuzarr.zarr.enable():
...     array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="int32")
...     array[:] = np.arange(4)
...     array[1:3]
array([1, 2], dtype=int32)

zarr-python finds the pipeline by its entry point, also in programs that never use it. So importing this module initialises
no GPU, imports no CuPy, and does not fail if zarr-python is missing. In that case, only its use fails.
"""

from __future__ import annotations

from cuzarr import _names
from cuzarr.zarr._fallbacks import FallbackWarning, calls, fallbacks

__all__ = [
    "Buffer",
    "CodecPipeline",
    "Enabled",
    "FallbackWarning",
    "GDSStore",
    "GpuMemoryStore",
    "LocalStore",
    "MemoryStore",
    "NDBuffer",
    "ZipStore",
    "buffer_prototype",
    "calls",
    "enable",
    "fallbacks",
]

try:
    from cuzarr.storage.zarr_form import GDSStore, GpuMemoryStore, LocalStore, MemoryStore, ZipStore
    from cuzarr.zarr._buffers import Buffer, NDBuffer, buffer_prototype
    from cuzarr.zarr._enable import Enabled, enable
    from cuzarr.zarr._pipeline import CodecPipeline
except Exception as _error:  # noqa: BLE001, whatever is wrong with zarr-python is told on use
    from cuzarr.zarr._absent import absent

    globals().update({_name: absent(_name, _error) for _name in __all__ if _name not in globals()})

_names.publish(globals())

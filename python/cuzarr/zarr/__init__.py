"""cuzarr inside zarr-python: a codec pipeline, stores, buffers, and repairs of what a pipeline cannot reach.

>>> import cuzarr.zarr, numpy as np, zarr
>>> with cuzarr.zarr.enable():
...     array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="int32")
...     array[:] = np.arange(4)
...     array[1:3]
array([1, 2], dtype=int32)
>>> cuzarr.zarr.fallbacks()
{}

zarr-python finds the pipeline by its entry point, also for programs that never ask for it; so importing this module
initialises no GPU, imports no CuPy, and does not fail where zarr-python is missing: using it does.
"""

from __future__ import annotations

from cuzarr.zarr._fallbacks import FallbackWarning, calls, fallbacks

try:
    from cuzarr._zarr_stores import GDSStore, GpuMemoryStore, LocalStore, MemoryStore, ZipStore
    from cuzarr.zarr._buffers import Buffer, NDBuffer, buffer_prototype
    from cuzarr.zarr._enable import Enabled, enable
    from cuzarr.zarr._pipeline import CodecPipeline
except Exception as _error:
    from cuzarr.zarr._absent import absent

    Buffer = absent("Buffer", _error)
    CodecPipeline = absent("CodecPipeline", _error)
    Enabled = absent("Enabled", _error)
    GDSStore = absent("GDSStore", _error)
    GpuMemoryStore = absent("GpuMemoryStore", _error)
    LocalStore = absent("LocalStore", _error)
    MemoryStore = absent("MemoryStore", _error)
    NDBuffer = absent("NDBuffer", _error)
    ZipStore = absent("ZipStore", _error)
    buffer_prototype = None
    enable = absent("enable", _error)

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

"""cuzarr inside zarr-python: a codec pipeline, and repairs of what a pipeline cannot reach.

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

from typing import TYPE_CHECKING, Any

from cuzarr.zarr._fallbacks import FallbackWarning, calls, fallbacks

if TYPE_CHECKING:
    from cuzarr.zarr._enable import Enabled, enable
    from cuzarr.zarr._pipeline import CodecPipeline
else:
    try:
        from cuzarr.zarr._enable import Enabled, enable
        from cuzarr.zarr._pipeline import CodecPipeline
    except Exception as _error:
        from cuzarr.zarr._absent import absent

        CodecPipeline = absent("CodecPipeline", _error)
        Enabled = absent("Enabled", _error)
        enable = absent("enable", _error)

__all__ = ["CodecPipeline", "Enabled", "FallbackWarning", "calls", "enable", "fallbacks"]


def __dir__() -> list[str]:
    return __all__

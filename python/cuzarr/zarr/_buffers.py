"""Our buffers of GPU memory as zarr-python's: over CuPy arrays where CuPy is installed, else over ``cuzarr.DeviceArray``."""

from __future__ import annotations

from zarr.core.buffer import core
from zarr.registry import register_buffer, register_ndbuffer

from cuzarr.buffer import gpu


class Buffer(gpu.Buffer, core.Buffer):
    """Bytes in a GPU's memory, for zarr-python: ``zarr.config.set({"buffer": "cuzarr.zarr.Buffer"})``."""

    __hash__ = None  # type: ignore[assignment]


class NDBuffer(gpu.NDBuffer, core.NDBuffer):
    """Elements in a GPU's memory, for zarr-python: ``zarr.config.set({"ndbuffer": "cuzarr.zarr.NDBuffer"})``."""


# zarr-python looks classes up by module and name.
Buffer.__module__ = NDBuffer.__module__ = "cuzarr.zarr"
register_buffer(Buffer)
register_ndbuffer(NDBuffer)

buffer_prototype = core.BufferPrototype(buffer=Buffer, nd_buffer=NDBuffer)
"""A GPU's memory, for ``prototype=``."""

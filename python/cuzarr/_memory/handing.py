"""Takes arrays of other libraries over while work on them may still run, together with the CUDA stream of that work."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._memory.element_types import memory_type
from cuzarr._memory.foreign import OnDevice, device_buffer, is_cupys
from cuzarr._memory.streams import stream_handle


def on_its_stream(value: Any, stream: Any) -> tuple[_core.NdBuffer, int | None]:
    """The memory of a GPU array without copying or waiting, and the ``cudaStream_t`` on which the caller fills and changes it.

    That is ``stream``, else the library's current stream, else the stream that the array's interface names. ``None`` stands for the legacy
    default stream.
    """
    handle = stream_handle(stream)
    if isinstance(value, OnDevice):
        return value._buffer, handle
    if is_cupys(value):
        current = sys.modules["cupy"].cuda.get_current_stream().ptr if handle is None else handle
        return _from_interface(value, f"cuda:{value.device.id}"), int(current)
    if type(value).__module__.partition(".")[0] == "torch":
        plain = value.detach().resolve_conj().resolve_neg()
        current = sys.modules["torch"].cuda.current_stream(value.device).cuda_stream if handle is None else handle
        return _core.NdBuffer.from_dlpack(plain, waits=False), int(current)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        named = interface.get("stream")
        return _from_interface(value, None), named if handle is None else handle
    return device_buffer(value), handle


def _from_interface(value: Any, device: str | None) -> _core.NdBuffer:
    """The memory that an array's ``__cuda_array_interface__`` describes. The stream that it names is left to the caller."""
    buffer = _core.NdBuffer.from_cuda_array_interface({**value.__cuda_array_interface__, "stream": None}, device, value)
    dtype = getattr(value, "dtype", None)
    is_plain = not isinstance(dtype, np.dtype) or dtype.kind in "biufc"
    return buffer if is_plain else buffer.reinterpret(memory_type(np.dtype(dtype)))

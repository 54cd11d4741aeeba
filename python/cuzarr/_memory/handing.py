"""Takes arrays of other libraries over while work on them may still run, together with the CUDA stream of that work."""

from __future__ import annotations

import sys
from typing import Any

from cuzarr import _core
from cuzarr._memory.foreign import OnDevice, device_buffer, is_cupys
from cuzarr._memory.streams import stream_handle


def on_its_stream(value: Any, stream: Any) -> tuple[_core.NdBuffer, int | None]:
    """The memory of a GPU array without copying, and the ``cudaStream_t`` on which the caller fills and changes it.

    That is ``stream``, else the library's current stream, else the stream that the array's interface names. ``None`` stands for the legacy
    default stream. Waits only for arrays of libraries whose streams are not known, such as JAX.
    """
    handle = stream_handle(stream)
    own = None if isinstance(value, OnDevice) else _stream_of(value)
    return device_buffer(value, waits=own is None), own if handle is None else handle


def _stream_of(value: Any) -> int | None:
    """The stream on which the library of an array works; ``None`` if it is not known."""
    if is_cupys(value):
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    if type(value).__module__.partition(".")[0] == "torch":
        # Tensors that mean the conjugate or the negative of their memory are copied first, on PyTorch's stream, whatever the caller names.
        is_copied = value.is_conj() or value.is_neg()
        return None if is_copied else int(sys.modules["torch"].cuda.current_stream(value.device).cuda_stream)
    interface = getattr(value, "__cuda_array_interface__", {})
    return interface.get("stream")

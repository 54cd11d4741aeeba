"""Finds the ``cudaStream_t`` of CUDA streams of other libraries."""

from __future__ import annotations

from typing import Any

from cuzarr.errors import InvalidArgumentError


def stream_handle(stream: Any) -> int | None:
    """The ``cudaStream_t`` of a stream of CuPy, PyTorch, Numba or any library that implements ``__cuda_stream__``."""
    if stream is None or isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, name):
            handle = getattr(stream, name)
            return int(getattr(handle, "value", handle) or 0)
    raise InvalidArgumentError(f"got {type(stream).__name__}, expected a CUDA stream")

"""Reads that begin while zarr-python still lists their chunks.

To read a selection, zarr-python looks up ``read`` of its pipeline, makes five objects for each chunk, and calls it with a
list of them; for chunks of 1 MiB that takes about as long as reading them to a GPU. Where the selection is a box of a
regular grid, the variables of the function that looks ``read`` up say all that a list of its chunks would. So they are
looked at, nothing of zarr-python's is changed, and the read runs on a thread of its own while the list is made. Calling what
was looked up then waits for it. A version of zarr-python's with other variables has its reads begin when they are called.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType, MethodType
from typing import Any

from zarr.core import array as zarr_array

from cuzarr import _core
from cuzarr.zarr import _threads
from cuzarr.zarr._boxes import Box
from cuzarr.zarr._fallbacks import count_native

# Below so many chunks the list is made before a thread has begun.
_FEWEST_CHUNKS = 16

# Variables of zarr-python's function that reads a selection, as they are when it looks `read` up.
_VARIABLES = {
    "store_path", "metadata", "codec_pipeline", "_config", "chunk_grid", "indexer", "prototype", "out_buffer", "fields",
    "indexed_chunks",
}  # fmt: skip


def _reader() -> CodeType | None:
    code = getattr(getattr(zarr_array, "_get_selection", None), "__code__", None)
    if not isinstance(code, CodeType):
        return None
    return code if {*code.co_varnames, *code.co_cellvars} >= _VARIABLES else None


_READER = _reader()


class Ahead:
    """The method ``read`` of a pipeline, whose work may begin when it is looked up."""

    def __init__(self, read: Any) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __get__(self, pipeline: Any, owner: type | None = None) -> Any:
        if pipeline is None:
            return self._read
        frame = sys._getframe(1)
        started = _start(pipeline, frame) if frame.f_code is _READER else None
        return MethodType(self._read, pipeline) if started is None else started


class Started:
    """A read that has begun, to be called as ``read`` is."""

    def __init__(self, request: _core.ChunkRequest, read: _core.StartedRead) -> None:
        self._request = request
        self._read = read
        self._is_called = False

    async def __call__(self, batch_info: Any, out: Any, drop_axes: tuple[int, ...] = ()) -> tuple[Any, ...]:
        """Waits for its end. Which chunks are missing is not said: only who refuses missing ones asks."""
        self._is_called = True
        del batch_info, out  # a list of many small objects, which takes time to free: now, while the read goes on
        await _threads.run(self._read.wait, self._request.cancel)
        count_native("read")
        return ()

    def __del__(self) -> None:
        if not self._is_called:
            self._request.cancel()


def _start(pipeline: Any, frame: FrameType) -> Started | None:
    known = frame.f_locals
    if not all(name in known for name in _VARIABLES):
        return None
    config = known["_config"]
    if known["codec_pipeline"] is not pipeline or len(known["indexed_chunks"]) < _FEWEST_CHUNKS:
        return None
    if known["fields"] or not config.read_missing_chunks:
        return None
    box = Box.of(
        known["store_path"], known["metadata"], pipeline, config, known["chunk_grid"], known["indexer"], known["prototype"]
    )
    started = None if box is None else box.start(known["out_buffer"])
    return None if started is None else Started(*started)

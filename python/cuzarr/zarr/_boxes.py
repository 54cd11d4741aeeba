"""Reads and writes boxes of zarr-python's arrays without a list of their chunks.

zarr-python makes five objects for each chunk of a request before a pipeline sees it. If the selection is a box of a regular
grid, in a store that cuzarr reads itself, the box is all the information needed. zarr-python's own code then runs with an indexer that
lists no chunks. In place of the array's pipeline, it gets a pipeline that knows the box.
"""

from __future__ import annotations

import inspect
import math
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from zarr.core import indexing
from zarr.core.array_spec import ArraySpec
from zarr.core.chunk_key_encodings import DefaultChunkKeyEncoding, V2ChunkKeyEncoding

from cuzarr import _core
from cuzarr.zarr import _threads
from cuzarr.zarr._chunks import Chunks
from cuzarr.zarr._fallbacks import Fallback, count_native
from cuzarr.zarr._memory import is_host, is_native, wrap
from cuzarr.zarr._sources import is_numbered, ready_source
from cuzarr.zarr._work import Work, reading_box, run_options, writing_box

# The first parameters of zarr-python's functions that read and write a selection. Only these are used here.
_PARAMETERS = ("store_path", "metadata", "codec_pipeline", "config", "chunk_grid", "indexer")


def replacement(original: Any, pipeline: type) -> Any:
    """Wraps a zarr-python function that reads or writes a selection, so that it passes a box to pipelines of class ``pipeline`` as a whole,
    not as chunks.

    ``None`` if the function does not have the expected parameters.
    """
    if not isinstance(original, types.FunctionType):
        return None
    names = tuple(inspect.signature(original).parameters)
    if names[: len(_PARAMETERS)] != _PARAMETERS or not inspect.iscoroutinefunction(original):
        return None

    async def call(
        store_path: Any, metadata: Any, codec_pipeline: Any, config: Any, chunk_grid: Any, indexer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        box, is_here = None, calling_thread.take()
        if type(codec_pipeline) is pipeline and config.read_missing_chunks and not kwargs.get("fields"):
            box = Box.of(store_path, metadata, codec_pipeline, config, chunk_grid, indexer, kwargs.get("prototype"))
        if box is None:
            if is_here:
                raise NeedsLoopError
            return await original(store_path, metadata, codec_pipeline, config, chunk_grid, indexer, *args, **kwargs)
        box.is_here = is_here
        return await original(store_path, metadata, box, config, chunk_grid, _without_chunks(indexer), *args, **kwargs)

    call.__name__, call.__doc__ = original.__name__, original.__doc__
    _replacements.add(call)
    return call


_replacements: weakref.WeakSet[Any] = weakref.WeakSet()


def is_replacement(function: Any) -> bool:
    """Whether a function was made by :func:`replacement`."""
    return function in _replacements


class NeedsLoopError(Exception):
    """A coroutine that was to run on the calling thread, without an event loop, would have to wait. It has done nothing yet."""


class _CallingThread(threading.local):
    """Whether the coroutine that this thread begins next must run without an event loop."""

    is_wanted = False

    def take(self) -> bool:
        """Returns whether it must, and forgets it."""
        wanted, self.is_wanted = self.is_wanted, False
        return wanted


calling_thread = _CallingThread()


class Box:
    """A stand-in for a codec pipeline inside zarr-python's functions, which reads or writes one box of an array. It reads or writes the
    whole box, and ignores the chunks in its arguments."""

    def __init__(
        self, store_path: Any, metadata: Any, pipeline: Any, spec: Any, indexer: Any, axes: list[tuple[int, int, int, bool]]
    ) -> None:
        self.is_here = False
        """Whether a read runs on the calling thread, without an event loop."""
        self._store_path = store_path
        self._metadata = metadata
        self._pipeline = pipeline
        self._spec = spec
        self._indexer = indexer
        self._axes = axes

    @classmethod
    def of(
        cls, store_path: Any, metadata: Any, pipeline: Any, config: Any, chunk_grid: Any, indexer: Any, prototype: Any
    ) -> Box | None:
        """Makes the stand-in for the pipeline, if zarr-python's indexer selects a box that the Rust engine can read or write. ``None`` if
        the indexer selects no box, or if the store must be asked for each chunk by name."""
        axes = _axes(indexer)
        if axes is None or prototype is None or not chunk_grid.is_regular or is_numbered([(store_path,)]):
            return None
        if metadata.zarr_format == 2 and config.order != metadata.order:
            config = replace(config, order=metadata.order)
        spec = ArraySpec(
            shape=chunk_grid.chunk_shape,
            dtype=metadata.dtype,
            fill_value=metadata.fill_value,
            config=config,
            prototype=prototype,
        )
        return cls(store_path, metadata, pipeline, spec, indexer, axes)

    async def read(self, batch_info: Any, out: Any, drop_axes: tuple[int, ...] = ()) -> tuple[Any, ...]:
        """Reads this box of the array into ``out``, zarr-python's buffer for the result."""
        if self.is_here:
            self._read_here(out)
            return ()
        started = self.start(out)
        if started is not None:
            request, read = started
            await _threads.until_over(read, request.cancel)
            count_native("read")
            return ()
        work = self._plan(reading_box, out)
        if work is None:
            return tuple(await self._pipeline.read(self._chunks_by_name(), out, drop_axes))
        await work.run()
        return ()

    async def write(self, batch_info: Any, value: Any, drop_axes: tuple[int, ...] = ()) -> None:
        """Writes ``value``, zarr-python's buffer of elements, to this box of the array."""
        work = self._plan(writing_box, value)
        await (self._pipeline.write(self._chunks_by_name(), value, drop_axes) if work is None else work.run())

    def start(self, out: Any) -> tuple[_core.ChunkRequest, _core.StartedRead] | None:
        """Starts to read the box into ``out`` without waiting. ``None`` if it would have to wait first, for example until the store is
        open, or if cuzarr cannot read the box."""
        prepared = self._prepared(out)
        if prepared is None:
            return None
        request, arguments = prepared
        return request, request.start(*arguments)

    def _read_here(self, out: Any) -> None:
        """Reads the box into ``out`` on this thread.

        Raises
        ------
        NeedsLoopError
            It would have to wait first, or cuzarr cannot read the box.
        """
        prepared = self._prepared(out)
        if prepared is None:
            raise NeedsLoopError
        request, arguments = prepared
        request.read(*arguments)
        count_native("read")

    def _prepared(self, out: Any) -> tuple[_core.ChunkRequest, tuple[_core.Chunks, _core.ChunkStore, _core.NdBuffer, Any]] | None:
        source = ready_source(self._store_path.store, here=self.is_here)
        if source is None:
            return None
        ours = self._ours()
        if ours is None:
            return None
        chunks, request = ours
        place = out.as_ndarray_like()
        is_known = isinstance(place, np.ndarray) or not is_host(place)
        if not (is_known and is_native(place, chunks)) or tuple(place.shape) != tuple(request.out_shape):
            return None
        return request, (chunks.core, source, wrap(place, chunks), run_options(self._spec, chunks))

    def _plan(self, plan: Callable[..., Work | None], buffer: Any) -> Work | None:
        ours = self._ours()
        if ours is None:
            return None
        chunks, request = ours
        return plan(chunks, [(self._store_path, self._spec)], buffer.as_ndarray_like(), request)

    def _ours(self) -> tuple[Chunks, _core.ChunkRequest] | None:
        try:
            chunks: Chunks = self._pipeline._chunks_of(self._spec)
        except Fallback:
            return None  # the pipeline notices and reports this itself
        request = self._request(chunks)
        return None if request is None else (chunks, request)

    def _request(self, chunks: Chunks) -> _core.ChunkRequest | None:
        path, encoding = self._store_path.path, _encoding(self._metadata)
        if encoding is None:
            return None
        prefix = f"{path}/" if path else ""
        shape = self._metadata.shape
        return _core.ChunkRequest.of_box(shape, chunks.shape, self._axes, prefix, encoding, chunks.core.is_sharded)

    def _chunks_by_name(self) -> list[Any]:
        key = self._metadata.encode_chunk_key
        return [(self._store_path / key(at), self._spec, *rest) for at, *rest in self._indexer]


def _axes(indexer: Any) -> list[tuple[int, int, int, bool]] | None:
    """For each dimension, the first index, the count and the step of a box, and whether the result drops the dimension. ``None`` if the
    indexer does not select a box."""
    if type(indexer) not in _INDEXERS or indexer.drop_axes:
        return None
    axes = []
    for axis in indexer.dim_indexers:
        if type(axis) is indexing.SliceDimIndexer:
            axes.append((axis.start, axis.nitems, axis.step, False))
        elif type(axis) is indexing.IntDimIndexer:
            axes.append((int(axis.dim_sel), 1, 1, True))
        else:
            return None
    return axes


def count_chunks(indexer: Any, chunk_grid: Any) -> int:
    """The number of chunks that the box selected by ``indexer`` touches; 0 if the indexer selects no box, or the grid is not regular."""
    axes = _axes(indexer)
    if axes is None or not chunk_grid.is_regular:
        return 0
    parts = zip(axes, chunk_grid.chunk_shape, strict=True)
    return math.prod((start + (count - 1) * step) // chunk - start // chunk + 1 for (start, count, step, _), chunk in parts)


def _encoding(metadata: Any) -> tuple[str, str] | None:
    if metadata.zarr_format == 2:
        return "v2", metadata.dimension_separator
    encoding = metadata.chunk_key_encoding
    if type(encoding) is DefaultChunkKeyEncoding:
        return "default", encoding.separator
    return ("v2", encoding.separator) if type(encoding) is V2ChunkKeyEncoding else None


def _nothing(self: Any) -> Any:
    return iter(())


_INDEXERS = {
    cls: type(cls.__name__, (cls,), {"__iter__": _nothing})
    for cls in (indexing.BasicIndexer, indexing.BlockIndexer, indexing.OrthogonalIndexer)
}


def _without_chunks(indexer: Any) -> Any:
    """A copy of an indexer that yields no chunks, so that zarr-python does not list them."""
    found: Any = object.__new__(_INDEXERS[type(indexer)])
    vars(found).update(vars(indexer))
    return found

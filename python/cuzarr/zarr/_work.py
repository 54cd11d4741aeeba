"""Prepares one read or write for zarr-python: of a box by the Rust engine alone, or of other elements with NumPy or CuPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cuzarr import _core
from cuzarr._config import config
from cuzarr.zarr import _fancy, _threads
from cuzarr.zarr._chunks import Chunks
from cuzarr.zarr._fallbacks import count_native
from cuzarr.zarr._memory import box, is_host, read_box, write_box
from cuzarr.zarr._sources import is_numbered, open_source, open_source_sync

ChunksOf = Callable[[Any], Chunks]

# Stands for an extent of the result if the value to write is a single element.
_ANY_EXTENT = 1 << 62


class Work:
    """A read or write that zarr-python asked for, prepared to run on another thread or on this one."""

    def __init__(
        self,
        operation: str,
        batch: list[Any],
        chunks: Chunks,
        array: Any,
        requests: list[_core.ChunkRequest],
        work: Callable[[_core.ChunkStore], Any],
        by_host: str = "",
    ) -> None:
        self.by_host = by_host
        """The reason why the elements of this read or write pass through host memory although the array is on a GPU; empty if they do
        not."""
        self._operation = operation
        self._batch = batch
        self._chunks = chunks
        self._on_device = not is_host(array)
        self._requests = requests
        self._work = work

    async def run(self) -> Any:
        """Runs this prepared read or write on another thread, and awaits the result."""
        is_write = self._operation == "write"
        source = await open_source(self._batch, self._chunks, writing=is_write, on_device=self._on_device)
        result = await _threads.run(lambda: self._work(source), self._cancel)
        count_native(self._operation)
        return result

    def run_sync(self) -> Any:
        """Runs this prepared read or write on the calling thread, which must not be the event loop's."""
        is_write = self._operation == "write"
        source = open_source_sync(self._batch, self._chunks, writing=is_write, on_device=self._on_device)
        result = self._work(source)
        count_native(self._operation)
        return result

    def _cancel(self) -> None:
        cancel_all(self._requests)


def cancel_all(requests: Iterable[_core.ChunkRequest]) -> None:
    """Cancels requests that run on other threads: they end at the next stored object."""
    for request in requests:
        request.cancel()


def reading(chunks_of: ChunksOf, batch: list[Any], place: Any, drop_axes: tuple[int, ...]) -> Work:
    """Prepares to read parts of chunks, which zarr-python passes as one batch, into the array ``place``. Its result is the list of missing
    chunks, by number.

    Raises
    ------
    Fallback
        cuzarr cannot do this work.
    """
    chunks = chunks_of(batch[0][1])
    options = run_options(batch[0][1], chunks)
    numbered = is_numbered(batch)
    request = None if drop_axes else chunks.request(batch, tuple(place.shape), numbered=numbered)
    if request is not None:
        view = box(place, tuple(request.out_start), tuple(request.out_shape))
        return Work("read", batch, chunks, place, [request], lambda source: read_box(request, chunks, source, view, options))
    groups = _fancy.group(batch, chunks_of, numbered=numbered)
    _fancy.check(groups, place)
    requests = [group.request for group in groups]
    return Work(
        "read", batch, chunks, place, requests,
        lambda source: _fancy.read(groups, batch, place, drop_axes, source, options), _fancy.needs_host(place),
    )  # fmt: skip


def reading_box(chunks: Chunks, batch: list[Any], place: Any, request: _core.ChunkRequest) -> Work | None:
    """Prepares to read the box of elements that ``request`` names into the array ``place``. ``None`` if ``place`` has another shape."""
    if tuple(place.shape) != tuple(request.out_shape):
        return None
    options = run_options(batch[0][1], chunks)
    return Work("read", batch, chunks, place, [request], lambda source: read_box(request, chunks, source, place, options))


def writing_box(chunks: Chunks, batch: list[Any], elements: Any, request: _core.ChunkRequest) -> Work | None:
    """Prepares to write the box of elements that ``request`` names: elements of the box's shape, or one element everywhere. ``None`` if the
    shape or type does not fit."""
    fits = chunks.is_variable or elements.dtype.newbyteorder("=") == chunks.native
    if not fits or tuple(elements.shape) not in ((), tuple(request.out_shape)):
        return None
    options = run_options(batch[0][1], chunks)
    return Work("write", batch, chunks, elements, [request], lambda source: write_box(request, chunks, source, elements, options))


def writing(chunks_of: ChunksOf, batch: list[Any], elements: Any, drop_axes: tuple[int, ...]) -> Work:
    """Prepares to write ``elements`` to the batch of chunks that zarr-python passes. A single element is written everywhere.

    Raises
    ------
    Fallback
        cuzarr cannot do this work.
    """
    chunks = chunks_of(batch[0][1])
    options = run_options(batch[0][1], chunks)
    numbered = is_numbered(batch)
    shape = tuple(elements.shape)
    is_scalar = shape == ()
    if is_scalar and isinstance(batch[0][3], tuple):
        shape = (_ANY_EXTENT,) * len(batch[0][3])
    fits = chunks.is_variable or elements.dtype.newbyteorder("=") == chunks.native
    request = chunks.request(batch, shape, numbered=numbered) if fits and not drop_axes else None
    if request is not None:
        value = elements if is_scalar else box(elements, tuple(request.out_start), tuple(request.out_shape))
        return Work(
            "write", batch, chunks, elements, [request], lambda source: write_box(request, chunks, source, value, options)
        )
    groups = _fancy.group(batch, chunks_of, numbered=numbered)
    requests = [group.request for group in groups]
    return Work(
        "write", batch, chunks, elements, requests,
        lambda source: _fancy.write(groups, batch, elements, drop_axes, source, options), _fancy.needs_host(elements),
    )  # fmt: skip


# The Rust side's own limit, if none is configured.
_MEMORY_LIMIT_BYTES = 4 << 30


def run_options(spec: Any, chunks: Chunks) -> dict[str, Any]:
    """The options with which the Rust engine reads and writes chunks: limits, threads and zarr-python's settings."""
    settings = spec.config
    limit = config.get("memory_limit")
    if limit is None and 4 * chunks.nbytes > _MEMORY_LIMIT_BYTES:
        # zarr-python has no limit on the size of chunks. Work on a chunk needs its old, packed and encoded bytes.
        limit = 4 * chunks.nbytes
    return {
        "accelerator": config.get("accelerator"),
        "strict": config.get("strict"),
        "memory_limit_bytes": limit,
        "threads": config.get("threading.max_workers"),
        "write_empty_chunks": settings.write_empty_chunks,
        "coalesce_gap_bytes": getattr(settings, "sharding_coalesce_max_gap_bytes", None),
        "coalesce_max_bytes": getattr(settings, "sharding_coalesce_max_bytes", None),
        "variable_limit_bytes": config.get("array.variable_chunk_max_bytes"),
    }

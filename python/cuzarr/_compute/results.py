"""Puts the results of blocks into one array, in memory or in a store."""

from __future__ import annotations

import contextlib
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from cuzarr import _core
from cuzarr._checks import check_keywords, element_type, parameters
from cuzarr._compute import sources as _sources
from cuzarr._compute.blocks import BlockInfo, Sources, box
from cuzarr._compute.sources import is_stored
from cuzarr._config import config
from cuzarr._memory import convert, foreign
from cuzarr._metadata.chunk_grid import resolve_chunks
from cuzarr._metadata.documents import UNFINISHED
from cuzarr.errors import (
    ArrayNotFoundError,
    CuzarrUserWarning,
    DTypeMismatchError,
    InvalidArgumentError,
    MemorySpaceError,
    ShapeMismatchError,
)
from cuzarr.storage import StorePath, make_store_path
from cuzarr.storage.zip import finishing


def named(settings: dict[str, Any], names: tuple[str | None, ...] | None) -> dict[str, Any]:
    """The settings for a new array, with ``names`` as its dimension names unless the caller chose some.

    Format 2 stores names as xarray does. xarray takes the fill value of such an array as the mark of missing elements, so the array
    gets no fill value unless the caller chose one.
    """
    if names is None or settings.get("dimension_names") is not None:
        return settings
    if (settings.get("zarr_format") or config.get("default_zarr_format")) == 3:
        return {**settings, "dimension_names": names}
    if None in names:
        return settings
    attributes = {"_ARRAY_DIMENSIONS": list(names), **(settings.get("attributes") or {})}
    return {"fill_value": None, **settings, "attributes": attributes}


def marked(settings: dict[str, Any], place: StorePath, work: str) -> dict[str, Any]:
    """The settings for a new array, with an attribute that marks it as unfinished until :func:`completed` removes it.

    In a store whose readers see all writes at once, no mark is needed.
    """
    attributes = settings.get("attributes") or {}
    if not isinstance(attributes, Mapping) or not place.store.supports_deletes or place.store.handle.is_transactional():
        return settings
    return {**settings, "attributes": {**attributes, UNFINISHED: {"work": work}}}


def continued(place: StorePath) -> Any:
    """Opens the array at a path of a store, which an interrupted computation may have begun to write; ``None`` if there is no array."""
    _core.Checkpoint.check_place((place.store.handle, place.path))
    with contextlib.suppress(ArrayNotFoundError), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*: unfinished ", CuzarrUserWarning)
        return _sources.nodes.open_array(place, mode="r+")
    return None


def completed(array: Any) -> None:
    """Removes the attribute that marks an array as unfinished, after all elements are written."""
    if UNFINISHED in array.metadata.attributes:
        # Another program that completes the same array may have removed the mark already.
        with contextlib.suppress(KeyError):
            del array.attrs[UNFINISHED]


class Target:
    """The output array of a computation, to which the results of blocks are written. It exists already, or is created when the type of the
    first result is known.

    Attributes
    ----------
    array : Array or array, optional
        The array, once it exists.
    unit : tuple of int, optional
        Extents of its stored objects; ``None`` for an array in memory, unless the caller gave chunks.

    ``names`` are the names of the dimensions, for an array that is created in a store.

    Raises
    ------
    ShapeMismatchError, InvalidArgumentError
        The target has another shape, is one of the sources, or has no interrupted work to resume.
    """

    def __init__(
        self,
        out: Any,
        shape: tuple[int, ...],
        dtype: Any,
        sources: Sources,
        grid: tuple[Any, Any],
        resume: bool,
        settings: dict[str, Any],
        names: tuple[str | None, ...] | None = None,
    ) -> None:
        if settings and (out is None or is_stored(out)):
            raise TypeError(f"these arguments are for a new array, so pass its place as out= too: {', '.join(settings)}")
        check_keywords("create_array", settings, parameters(_sources.nodes.create_array))
        # The item size decides the size of blocks. It must be the same in resumed work, although the array then already has its type.
        likely = (out if is_stored(out) else sources.stored).dtype if dtype is None else element_type(dtype)
        self.item_bytes = likely.itemsize
        self._given = out
        if out is not None and not is_stored(out):
            place = {name: settings.pop(name, None) for name in ("storage_options", "metadata_store")}
            out = make_store_path(out, path=settings.pop("name", None), mode="a", **place)
            # Compared with None, because an array that is empty, or has a single element 0, counts as false.
            if resume and (begun := continued(out)) is not None:
                out = begun
        if resume and out is None:
            raise InvalidArgumentError("resume=True needs an array to continue", hint="pass it as out=")
        if is_stored(out):
            out._check_writable()
        if out is not None:
            sources.refuse_overlap(out)
        self.array: Any = out if is_stored(out) else None
        if self.array is not None and self.array.shape != shape:
            raise ShapeMismatchError(f"out has shape {out.shape}, the result has {shape}")
        self._place, self._shape, self._work = out, shape, sources.what
        self._dtype = None if dtype is None else likely
        # Without a chosen type, the type of the first result is used.
        self.is_inferred = dtype is None and not is_stored(self._given)
        self._settings = settings if self._place is None else named(settings, names)
        self.unit = self._choose_grid(*grid)

    @classmethod
    def opened(cls, array: Any, is_inferred: bool) -> Self:
        """A target for an array that exists already. Tasks of a cluster use it to write single blocks."""
        target = cls.__new__(cls)
        target.array, target.is_inferred = array, is_inferred
        return target

    def _choose_grid(self, chunks: Any, shards: Any) -> tuple[int, ...] | None:
        if self.array is not None:
            return self.array.metadata._stored_chunks  # type: ignore[no-any-return]
        if chunks is None and self._place is None:
            return None
        inner, outer, index_location = resolve_chunks(self._shape, "auto" if chunks is None else chunks, shards, self.item_bytes)
        self._settings["chunks"] = inner
        self._settings["shards"] = outer and {"shape": outer, "index_location": index_location}
        return outer or inner

    @contextlib.contextmanager
    def finishing(self) -> Iterator[None]:
        """Marks the result as finished when the ``with`` block ends. A ZIP file given by path is closed, or discarded after an error."""
        with finishing(getattr(self._place, "store", None), self._given):
            yield
            if is_stored(self.array):
                completed(self.array)

    def place(self) -> StorePath | None:
        """The store and the path of the result; ``None`` if it is in memory."""
        return self._place.store_path if is_stored(self._place) else self._place

    def open(self, like: Any) -> None:
        """Creates the target array, if it does not exist yet. Unless the caller chose an element type, it gets that of ``like``."""
        if self.array is not None:
            return
        dtype = foreign.element_type(like) if self._dtype is None else self._dtype
        if self._place is None:
            self.array = convert.empty_beside(like, self._shape, dtype)
        else:
            settings = marked(self._settings, self._place, self._work)
            self.array = _sources.nodes.create_array(self._place, shape=self._shape, dtype=dtype, **settings)

    def take(self, place: BlockInfo, result: Any) -> Any:
        """Converts the result of a block to the target's element type, and makes its elements ready for use on every CUDA stream. If the
        target is in memory, the result is put into its place immediately.

        Raises
        ------
        DTypeMismatchError
            The result does not fit the type of the first result.
        MemorySpaceError
            The result is on another device than those before.
        """
        if self.is_inferred and not np.can_cast(own := foreign.element_type(result), self.array.dtype, "safe"):
            message = f"the result of {place} has elements of {own}, which do not all fit {self.array.dtype}, the type of the first result"
            raise DTypeMismatchError(message, hint="pass dtype=, the type of all results")
        if not is_stored(self.array):
            spaces = foreign.device_of(self.array), foreign.device_of(result)
            if (spaces[0] == "cpu") != (spaces[1] == "cpu"):
                hint = "return arrays on one device, or pass out="
                raise MemorySpaceError(f"the result of {place} is on {spaces[1]}, those before on {spaces[0]}", hint=hint)
            self.array[place.slices] = foreign.as_numpy(result) if spaces[1] == "cpu" else result
            return None
        if not foreign.is_on_device(result):
            return foreign.as_numpy(result)
        return convert.device_elements(result, self.array.metadata.data_type)

    def write(self, place: BlockInfo, result: Any) -> None:
        """Writes the result of a block, as :meth:`take` returned it, to the block's region of a stored target array."""
        if not is_stored(self.array):
            return
        where = box(place.start, place.shape)
        if isinstance(result, _core.NdBuffer):
            self.array._handle().write(where.lists, result)
        else:
            self.array._write_box(where, result)


class Results:
    """A writer that writes the results of blocks to the target array while the result of the next block is computed.

    Parameters
    ----------
    target : Target
    unit : sequence of int
        Shape of the largest result.
    origin : str, optional
        Text that identifies the work, if it can be resumed.
    at_once : int
        Number of results that are written at a time.
    written : callable
        Called with the number of results written so far.
    """

    def __init__(
        self,
        target: Target,
        unit: Sequence[int],
        origin: str | None,
        limit: int,
        at_once: int,
        watch: _core.Watch,
        written: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._target, self._unit, self._origin, self._limit, self._watch = target, unit, origin, limit, watch
        self._at_once = at_once
        self._hears = written
        self._noted: _core.Checkpoint | None = None
        self._looked = False
        self._writer = ThreadPoolExecutor(at_once, "cuzarr-write")
        self._writing: deque[Future[None]] = deque()
        self._look_back()
        self._count = self.finished

    @property
    def finished(self) -> int:
        """The number of results that an earlier, interrupted run of this computation wrote."""
        return self._noted.finished if self._noted else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._wait(0)
                if self._noted:
                    self._noted.end()
            else:
                self._watch.cancel()
        except BaseException:
            self._watch.cancel()
            raise
        finally:
            self._writer.shutdown()

    def _look_back(self) -> None:
        """Reads from the target's checkpoint how many results an earlier, interrupted run wrote. The target array must exist."""
        if self._looked or not is_stored(self._target.array):
            return
        self._looked = True
        handle = self._target.array._handle()
        if self._origin:
            self._noted = _core.Checkpoint(handle, self._origin, list(self._unit))
        else:
            _core.Checkpoint.forget(handle)

    def put(self, place: BlockInfo, result: Any) -> None:
        """Starts to write the result of the next block. Waits until there is a thread for it."""
        self._target.open(result)
        self._look_back()
        taken = self._target.take(place, result)
        self._wait(self._at_once - 1)
        before = self._writing[-1] if self._writing else None
        self._writing.append(self._writer.submit(self._write, place, taken, before))

    def _wait(self, most: int) -> None:
        """Waits until at most ``most`` results are left to write."""
        while len(self._writing) > most:
            self._writing.popleft().result()
            self._count += 1
            self._hears(self._count)

    def _write(self, place: BlockInfo, result: Any, before: Future[None] | None) -> None:
        with config.local({"memory_limit": self._limit}), self._watch:
            self._target.write(place, result)
            if self._noted:
                # A result counts as finished when those before it are.
                if before is not None:
                    before.result()
                self._noted.note(place.number + 1)

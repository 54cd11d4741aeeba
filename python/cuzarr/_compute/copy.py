"""Copying arrays and groups to other stores, formats, chunks and codecs."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from cuzarr import _core
from cuzarr._checks import axis_number, dictionary, items, whole
from cuzarr._compute import cluster, sources as _sources, workers
from cuzarr._compute.blocks import naming
from cuzarr._compute.operands import dimension_names
from cuzarr._compute.sources import StoreNode, is_stored, place_of
from cuzarr._config import config, device_name, parse_size
from cuzarr._docstrings import documented
from cuzarr._metadata import create as _create
from cuzarr._metadata.documents import check_zarr_format
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._progress import is_wanted, listener, shown
from cuzarr._text import printable
from cuzarr.errors import CuzarrUserWarning, InvalidArgumentError
from cuzarr.storage import Store, make_store_path, normalize_path
from cuzarr.storage.zip import finishing

if TYPE_CHECKING:
    from cuzarr.typing import (
        Array,
        Client,
        Codecs,
        CopyOptions,
        Group,
        Node,
        NodeT,
        Progress,
        RechunkOptions,
        Shards,
        StoreLike,
        SupportsStorePath,
    )


class CopyPlan:
    """The plan of a copy of arrays: for each array, how often its data are passed over, in which regions, and how often the source is read.

    ``print`` shows it; :meth:`to_dict` returns it as plain values. :func:`cuzarr.copy` and :func:`cuzarr.rechunk` return it with
    ``dry_run=True``.

    Parameters
    ----------
    document
        Internal; use ``dry_run=True``.

    Raises
    ------
    None
        cuzarr makes these objects.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> rows = cuzarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(1, 4))
    >>> plan = cuzarr.rechunk(rows, {}, chunks=(3, 1), dry_run=True)
    >>> plan.to_dict()[0]["passes"][0]["objects"]
    4
    """

    def __init__(self, document: list[dict[str, Any]]) -> None:
        self._document = document

    def to_dict(self) -> list[dict[str, Any]]:
        """The plan of the copy as dictionaries, lists, text and numbers.

        Returns
        -------
        list of dict
            One dictionary for each array: ``source``, ``target``, ``array_bytes``, ``complete`` and ``passes``.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> rows = cuzarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(1, 4))
        >>> cuzarr.copy(rows, {}, dry_run=True).to_dict()[0]["array_bytes"]
        96
        """
        return self._document

    def __repr__(self) -> str:
        lines = []
        for array in self._document:
            lines.append(f"{array['source']} -> {array['target']}: {array['array_bytes']} bytes")
            if array["complete"]:
                lines.append("  complete")
            for number, step in enumerate(array["passes"], 1):
                left = step["regions"] - step["finished"]
                lines.append(
                    f"  pass {number}: {left} regions of {tuple(step['region_shape'])} ({step['region_bytes']} bytes), "
                    f"source read {step['source_reads']:.2f} times, {step['objects']} objects written"
                )
        return "\n".join(map(printable, lines))


def _opened(source: Any, device: str | None) -> Any:
    if isinstance(source, StoreNode):
        return source
    if not _sources.is_node(source):
        return _sources.nodes.open(source, mode="r", device=device)
    if not hasattr(source, "metadata"):  # zarr-python 2 has no attribute ``metadata``
        return _sources.nodes.open(place_of(source), mode="r", zarr_format=2, device=device)
    # An array or group of zarr-python. Its place may hold both formats, so its own format is used.
    place, zarr_format = place_of(source), source.metadata.zarr_format
    if getattr(source.metadata, "node_type", "array") == "array":
        return _sources.nodes.open_array(place, mode="r", zarr_format=zarr_format, device=device)
    use_consolidated = None if source.metadata.consolidated_metadata is not None else False
    return _sources.nodes.open_group(place, mode="r", zarr_format=zarr_format, use_consolidated=use_consolidated, device=device)


def _is_list(extent: Any) -> bool:
    return isinstance(extent, list | tuple)


def _sizes(extents: Any, what: str) -> list[int | None]:
    given = items(extents, what, "whole numbers, one for each dimension, or a dictionary of dimensions")
    hint = f"call cuzarr.from_array(store, data=array, {what}=...) for lists of lengths" if any(map(_is_list, given)) else None
    sizes = [None if extent is None else whole(extent, what, -1, hint) for extent in given]
    return [None if size == -1 else size for size in sizes]


def _extents(extents: Any, source: Any, what: str) -> list[int | None] | dict[str, int | None]:
    """Converts the argument ``chunks`` or ``shards`` of a copy to a list with the extent along each dimension. For a group, a dictionary by
    dimension name stays a dictionary."""
    if isinstance(extents, Mapping):
        if not is_stored(source):
            return dict(zip(map(str, extents), _sizes(extents.values(), what), strict=True))
        own = source.metadata._stored_chunks if what == "shards" else source.metadata._inner_chunks
        names = dimension_names(source)
        named = {axis_number(axis, source.ndim, names): extent for axis, extent in extents.items()}
        extents = [named.get(axis, extent) for axis, extent in enumerate(own)]
    elif isinstance(extents, int):
        if not is_stored(source):
            raise InvalidArgumentError(f"{what} is {extents!r}, expected a tuple, because the source is a group")
        extents = (extents,) * source.ndim
    return _sizes(extents, what)


def _is_by_array(extents: Any, source: Any) -> bool:
    """Whether a dictionary of chunk or shard extents has paths of arrays in a group as keys, not names of dimensions."""
    return not is_stored(source) and isinstance(extents, Mapping) and not all(map(_is_extent, extents.values()))


def _is_extent(value: Any) -> bool:
    return value is None or hasattr(value, "__index__")


def _by_array(group: Any, chunks: Any, shards: Any) -> dict[str, dict[str, Any]]:
    """The chunks and shards that a copy of a group gives to single arrays, by their paths."""
    members: dict[str, dict[str, Any]] = {}
    for what, given in (("chunks", chunks), ("shards", shards)):
        if given is None or isinstance(given, str):
            continue
        if not _is_by_array(given, group):
            hint = "pass a dictionary of arrays for both chunks and shards"
            raise InvalidArgumentError(f"{what} is {given!r}, expected a dictionary of arrays", hint=hint)
        for path, extents in given.items():
            array = group.get(path)
            change = members.setdefault(str(path), {})
            if what == "shards" and extents is None:
                change[what] = False
            elif is_stored(array):
                change[what] = _extents(extents, array, what)
    return members


def changes_of(
    source: Any,
    zarr_format: Any,
    chunks: Any,
    shards: Any,
    compressors: Any,
    codecs: Any,
    *,
    skip_unreadable: bool = False,
    only: Any = None,
    select: Any = None,
) -> str:
    changes: dict[str, Any] = {"zarr_format": check_zarr_format(zarr_format)}
    if skip_unreadable:
        changes["skip_unreadable"] = True
    if only is not None:
        changes["only"] = _paths(only)
    if select is not None:
        changes["select"] = _ranges(select, source)
    if _is_by_array(chunks, source) or _is_by_array(shards, source):
        changes["members"] = _by_array(source, chunks, shards)
    else:
        if chunks is not None:
            changes["chunks"] = _extents(chunks, source, "chunks")
        if not isinstance(shards, str):
            changes["shards"] = False if shards is None else _extents(shards, source, "shards")
    if not (isinstance(compressors, str) and compressors == "keep"):
        changes["compressors"] = [codec.to_dict() for codec in _create.as_codecs(compressors)]
    if codecs is not None:
        changes["codecs"] = [codec.to_dict() for codec in _create.as_codecs(codecs)]
    return json.dumps(changes)


def _paths(only: Any) -> list[str]:
    given = items(only, "only", "paths of arrays and groups")
    if not given or not all(isinstance(path, str) and path.strip("/") for path in given):
        raise InvalidArgumentError(f"only is {only!r}, expected paths of arrays and groups", hint='only=["t2m", "surface/msl"]')
    return [normalize_path(path) for path in given]


def _ranges(select: Any, source: Any) -> dict[str, list[int | None]]:
    """The range to copy along each dimension that ``select`` names: start, stop and step. A single array's dimensions may have numbers."""
    hint = 'select={"time": slice(0, 120)}'
    names = dimension_names(source) if is_stored(source) else None
    ranges: dict[str, list[int | None]] = {}
    for axis, given in dictionary(select, "select").items():
        if not isinstance(given, slice):
            raise InvalidArgumentError(f"select has {given!r} for {axis!r}, expected a slice", hint=hint)
        bounds = [
            None if bound is None else whole(bound, f"select[{axis!r}]", None) for bound in (given.start, given.stop, given.step)
        ]
        name = axis
        if is_stored(source):
            number = axis_number(axis, source.ndim, names)
            name = (names and names[number]) or str(number)
        if name in ranges:
            raise InvalidArgumentError(f"select has {name!r} twice", hint=hint)
        ranges[str(name)] = bounds
    return ranges


class Job:
    """A call of ``copy``, ``rechunk`` or ``pyramid`` with checked arguments: source, target and options of the copy to make."""

    def __init__(
        self,
        source: Any,
        target: Any,
        path: str | None,
        existing: tuple[bool, bool],
        storage_options: dict[str, Any] | None,
        device: str | None,
        memory_limit: int | str | None,
        client: Any,
        what: str,
    ) -> None:
        overwrite, resume = existing
        if overwrite and resume:
            raise InvalidArgumentError("overwrite and resume cannot both be set")
        self.node = node = _opened(source, device)
        self.place = place = make_store_path(target, path=path, mode="a", storage_options=storage_options)
        self.device, self.target = device, target
        self._client, self._what = client, what
        if client is not None:
            cluster.check_client(client)
            cluster.check_out(what, place, "choose a path or URL that every worker reaches")
            cluster.check_sent((node.store_path.store, place.store))
        if node.store_path.store == place.store:
            mine, theirs = f"{node.path}/".lstrip("/"), f"{place.path}/".lstrip("/")
            if mine.startswith(theirs) or theirs.startswith(mine):
                raise InvalidArgumentError(
                    f"the target {place} overlaps the source {node.store_path}", hint="copy to another place"
                )
        consolidated = not is_stored(node) and node.metadata.consolidated_metadata is not None
        opened = node.store_path.store._handle, node.path, node.metadata.zarr_format, consolidated
        self.ends = opened, (place.store._handle, place.path)
        self.existing = "overwrite" if overwrite else "resume" if resume else "refuse"
        self.options = {
            "device": device_name(device or (node.device if is_stored(node) else None)),
            "strict": config.get("strict"),
            "accelerator": config.get("accelerator"),
            "memory_limit_bytes": config.get("memory_limit") if memory_limit is None else parse_size(memory_limit),
            "threads": config.get("threading.max_workers"),
        }

    @property
    def is_on_cluster(self) -> bool:
        """Whether the workers of a cluster do the copying."""
        return self._client is not None

    def run(self, plan: Any, progress: Any, steps: int | None, watch: _core.Watch) -> Any:
        """Carries out the plan of a copy, with progress reports from ``watch``, and opens the copy.

        ``steps`` is the number of objects that the plan writes, or of regions that tasks of a cluster copy.
        """
        self.place.store.check_writable()
        if self._client is None:
            with finishing(self.place.store, self.target), shown(progress, "writing", steps, watch):
                plan.run()
        else:
            workers.check(self._client, self.options["device"], [self.node.store_path], self.place)
            tell = listener(progress, "copying", "regions")
            plan.run(self._carrier(lambda done: tell(done, steps)))
        return _sources.nodes.open(self.place, mode="r+", device=self.device)

    def _carrier(self, tell: Callable[[int], None]) -> Callable[..., Iterator[None]]:
        """Makes the function that lets workers of a dask cluster copy the boxes of an array, in one pass over its data. It yields once for
        each copied box, in their order."""
        count = itertools.count(1)

        def carry(
            ends: tuple[_End, bool, _End], options: dict[str, Any], limit: int, shrink: Any, select: Any, boxes: Sequence[Any]
        ) -> Iterator[None]:
            source, is_own, target = ends
            stores = self.place.store if is_own else self.node.store_path.store, self.place.store
            work = _CopyBox(stores, (source, target), {**self.options, **options}, shrink, select, limit)
            with naming(target[0] or "the root", self._what):
                for _ in cluster.Cluster(self._client, self._what, work, limit).results(boxes):
                    tell(next(count))
                    yield

        return carry


_End = tuple[str, str, bytes]
"""The source or the target of a copied array: its path, and the name and the bytes of its metadata document."""


@dataclass(frozen=True)
class _CopyBox:
    """A function object that copies one box of an array; it is sent to a worker of a dask cluster and called there."""

    stores: tuple[Store, Store]
    ends: tuple[_End, _End]
    options: dict[str, Any]
    shrink: tuple[list[int], str] | None
    select: list[tuple[int, int, int]] | None
    limit: int

    def __call__(self, box: tuple[list[int], list[int]]) -> None:
        options = {**self.options, "threads": config.get("threading.max_workers")}
        arrays = []
        for store, (path, name, text) in zip(self.stores, self.ends, strict=True):
            document = json.loads(text)
            document.pop("attributes", None)
            arrays.append(_core.Array(store._handle, path, {name: document}, options))
        _core.copy_region(arrays[0], arrays[1], box, self.shrink, self.select, self.limit)


def _copy(job: Job, changes: str, progress: Any, dry_run: bool) -> Any:
    with _core.Watch(counts=is_wanted(progress)) as watch:
        plan = _core.Copy(*job.ends, changes, job.existing, job.options)
    for difference in plan.differences():
        message = f"{job.node.store_path}: {difference}; what is stored is copied"
        warnings.warn(printable(message), CuzarrUserWarning, stacklevel=4)
    for name, message in plan.unreadable():
        warnings.warn(printable(f"{name} is left out: {message}"), CuzarrUserWarning, stacklevel=4)
    document = json.loads(plan.plan())
    if dry_run:
        return CopyPlan(document)
    passes = [step for array in document for step in array["passes"]]
    if job.is_on_cluster:
        steps = sum(step["regions"] - step["finished"] for step in passes)
    else:
        steps = sum(step["objects"] for step in passes if not step["finished"])
    return job.run(plan, progress, steps or None, watch)


@overload
def copy(
    source: NodeT,
    target: StoreLike | SupportsStorePath,
    *,
    dry_run: Literal[False] = False,
    **options: Unpack[CopyOptions],
) -> NodeT: ...
@overload
def copy(
    source: Node, target: StoreLike | SupportsStorePath, *, dry_run: Literal[True], **options: Unpack[CopyOptions]
) -> CopyPlan: ...
@overload
def copy(
    source: Node,
    target: StoreLike | SupportsStorePath,
    *,
    dry_run: Literal[False] = False,
    **options: Unpack[CopyOptions],
) -> Array | Group: ...
def copy(
    source: Any,
    target: Any,
    *,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    compressors: Codecs = "keep",
    codecs: Codecs = None,
    overwrite: bool = False,
    resume: bool = False,
    storage_options: dict[str, Any] | None = None,
    device: str | None = None,
    memory_limit: int | str | None = None,
    progress: Progress = None,
    dry_run: bool = False,
    client: Client | None = None,
    skip_unreadable: bool = False,
    only: Sequence[str] | None = None,
    select: Mapping[str | int, slice] | None = None,
) -> Any:
    """Copy an array, or a group and everything below it, to another place. The data may be larger than memory.

    Elements stream through the engine within the memory limit. Each object of the target is written once, and atomically. An incomplete
    array has no metadata, so that no reader finds half of it. After an interruption or a crash, the same call with ``resume=True``
    continues, and does not write finished objects again. The source must not change before the copy is complete.

    Parameters
    ----------
    source : Array, Group or StoreLike
        The array or group to copy.
    target : StoreLike
        The place of the copy: a path, a store, a dictionary.
    path : str, optional
        Path in the target's store.
    zarr_format : {2, 3}, optional
        Format of the copy; by default the source's. Between formats, zstd, gzip and Blosc keep their settings, zstd takes the
        place of other compressors, and filters are left out. xarray opens the copy like the source: names of dimensions and
        ``_FillValue`` are moved to their places in the other format.
    compressors : optional
        The codecs, ``None`` for no codecs, or ``"keep"`` for the source's.
    codecs : optional
        All codecs of chunks, from elements to bytes, as a ``zarr.json`` lists them: filters, a serializer, compressors. They replace
        ``compressors``. For format 3 only.
    overwrite, resume : bool
        Whether to replace an existing node at the target, or to continue an interrupted copy of the same source.
    storage_options : dict, optional
        Options for URLs of remote stores.
    device : str, optional
        The device that decodes and moves elements; by default the source's device, or the ``accelerator`` if there is one.
    memory_limit : int or str, optional
        Memory limit in bytes or as ``"8 GiB"``; by default the configured limit.
    progress : bool, callable or object, optional
        As for :meth:`Array.getitem`, but it counts written objects.
    dry_run : bool
        Return the plan, and copy nothing.
    client : distributed.Client, optional
        Run the copy as tasks of a dask cluster. Each task copies a region of whole objects. ``memory_limit`` applies to one task, and
        ``progress`` counts regions. If a worker dies, its task runs again. An interrupted copy continues with ``resume=True``, here or on a
        cluster. Workers must be able to reach source and target.
    skip_unreadable : bool
        Leave out unreadable nodes of a group, with a warning for each. Otherwise an unreadable node is an error, and nothing is copied.
    only : sequence of str, optional
        Paths of the arrays and groups to copy, below a group. Other nodes are left out.
    select : dict of str to slice, optional
        Elements to copy for each named dimension; for a single array, dimensions may be numbers. Arrays without these dimensions are
        copied whole.

    Returns
    -------
    Array or Group
        The copy, opened; with ``dry_run`` a :class:`CopyPlan`.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        A node exists at the target, and ``overwrite`` is off.
    InvalidArgumentError
        Source and target overlap, chunks and codecs do not fit, or the workers of a cluster cannot write to the target.
    UnsupportedError
        There is a ``client``, and the target is a ZIP file, or a store that commits all writes at once.
    BudgetExceededError
        One object of the target takes more than a sixth of the memory limit.

    >>> source = cuzarr.create_array({}, data=np.arange(6), chunks=(2,), zarr_format=2)
    >>> copied = cuzarr.copy(source, {}, zarr_format=3)
    >>> copied.metadata.zarr_format, copied.shape
    (3, (6,))
    >>> cuzarr.copy(source, {}, select={0: slice(1, None, 2)}).shape
    (3,)
    """
    changes = (zarr_format, None, "keep", compressors, codecs)
    job = Job(source, target, path, (overwrite, resume), storage_options, device, memory_limit, client, "copy")
    return _copy(
        job, changes_of(job.node, *changes, skip_unreadable=skip_unreadable, only=only, select=select), progress, dry_run
    )


@overload
def rechunk(
    source: NodeT,
    target: StoreLike | SupportsStorePath,
    *,
    dry_run: Literal[False] = False,
    **options: Unpack[RechunkOptions],
) -> NodeT: ...
@overload
def rechunk(
    source: Node, target: StoreLike | SupportsStorePath, *, dry_run: Literal[True], **options: Unpack[RechunkOptions]
) -> CopyPlan: ...
@overload
def rechunk(
    source: Node,
    target: StoreLike | SupportsStorePath,
    *,
    dry_run: Literal[False] = False,
    **options: Unpack[RechunkOptions],
) -> Array | Group: ...
def rechunk(
    source: Any,
    target: Any,
    *,
    chunks: Any,
    shards: Shards | Literal["keep"] = "keep",
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    compressors: Codecs = "keep",
    codecs: Codecs = None,
    overwrite: bool = False,
    resume: bool = False,
    storage_options: dict[str, Any] | None = None,
    device: str | None = None,
    memory_limit: int | str | None = None,
    progress: Progress = None,
    dry_run: bool = False,
    client: Client | None = None,
    skip_unreadable: bool = False,
) -> Any:
    """Copy an array or a group to another place, with chunks of another shape.

    In a group, ``chunks`` applies to the arrays that it names, or to all arrays with the same number of dimensions as ``chunks``. Other
    arrays keep their chunks. The source is read as few times as the memory limit allows: in regions that fit both grids, or, if that is
    cheaper, in two passes through a temporary array beside the target.

    Parameters
    ----------
    source, target, path, zarr_format, compressors, codecs, overwrite, resume, storage_options, device, memory_limit, progress
        As for :func:`copy`.
    chunks : int, tuple of int or dict
        Elements of a chunk along each dimension; -1 for a whole dimension. A dictionary has dimension names as keys (for a single array
        also numbers): ``{"time": -1}``. Other dimensions keep their chunks. For a group, the keys of a dictionary may also be paths of
        arrays, each with a tuple or a dictionary of dimensions: ``{"t2m": {"time": -1}, "surface/msl": (10, 10)}``.
    shards : int, tuple of int, dict or None, optional
        Elements of a shard, in the same form as ``chunks``. ``None`` means no shards, and ``"keep"`` the source's shards.
    dry_run, client, skip_unreadable
        As for :func:`copy`.

    Returns
    -------
    Array or Group
        The copy, opened; with ``dry_run`` a :class:`CopyPlan`.

    Raises
    ------
    InvalidArgumentError
        Source and target overlap, the chunks do not fit the array, or ``chunks`` or ``shards`` name an array or dimension that does not
        exist.
    ContainsArrayError, ContainsGroupError
        A node exists at the target, and ``overwrite`` is off.
    BudgetExceededError
        One object of the target takes more than a sixth of the memory limit.

    >>> rows = cuzarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(1, 4))
    >>> columns = cuzarr.rechunk(rows, {}, chunks=(-1, 2))
    >>> columns.chunks, columns[:, 1].tolist()
    ((3, 2), [1, 5, 9])
    >>> named = cuzarr.create_array({}, data=rows, chunks=(1, 4), dimension_names=("time", "place"))
    >>> cuzarr.rechunk(named, {}, chunks={"time": -1, "place": 2}).chunks
    (3, 2)
    >>> group = cuzarr.create_group({})
    >>> for name in ("t2m", "msl"):
    ...     _ = group.create_array(name, data=rows, chunks=(1, 4), dimension_names=("time", "place"))
    >>> copied = cuzarr.rechunk(group, {}, chunks={"t2m": {"time": -1}})
    >>> copied["t2m"].chunks, copied["msl"].chunks
    ((3, 4), (1, 4))
    >>> cuzarr.rechunk(rows, {}, chunks=(3, 1), dry_run=True).to_dict()[0]["passes"][0]["source_reads"]
    1.0
    """
    changes = (zarr_format, chunks, shards, compressors, codecs)
    job = Job(source, target, path, (overwrite, resume), storage_options, device, memory_limit, client, "rechunk")
    return _copy(job, changes_of(job.node, *changes, skip_unreadable=skip_unreadable), progress, dry_run)


documented(
    ">>> import cuzarr, numpy as np",
)(globals())

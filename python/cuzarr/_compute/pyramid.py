"""Image pyramids: one image at several scales, as OME-Zarr stores it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from cuzarr import _core
from cuzarr._checks import axis_number, dictionary, items, refusing, whole
from cuzarr._compute import sources as _sources
from cuzarr._compute.copy import Job, changes_of
from cuzarr._compute.operands import dimension_names
from cuzarr._compute.sources import is_array, is_stored
from cuzarr._memory.foreign import device_of, element_type
from cuzarr._progress import is_wanted
from cuzarr.errors import InvalidArgumentError
from cuzarr.storage import MemoryStore

if TYPE_CHECKING:
    from cuzarr.typing import (
        ArrayLike,
        Client,
        Codecs,
        Group,
        Node,
        Progress,
        PyramidOptions,
        Shards,
        StoreLike,
        SupportsStorePath,
    )


@overload
def pyramid(
    source: Node | ArrayLike,
    target: StoreLike | SupportsStorePath,
    *,
    dry_run: Literal[False] = False,
    **options: Unpack[PyramidOptions],
) -> Group: ...
@overload
def pyramid(
    source: Node | ArrayLike,
    target: StoreLike | SupportsStorePath,
    *,
    dry_run: Literal[True],
    **options: Unpack[PyramidOptions],
) -> dict[str, Any]: ...
def pyramid(
    source: Any,
    target: Any,
    *,
    method: Literal["mean", "gaussian", "max", "nearest", "mode"] | None = None,
    levels: int | None = None,
    axes: Sequence[str] | str | None = None,
    scale: Sequence[float] | Mapping[str, float] | None = None,
    units: Sequence[str | None] | Mapping[str, str | None] | None = None,
    factors: Sequence[int] | Mapping[str, int] | None = None,
    channels: Sequence[str | Mapping[str, Any]] | None = None,
    labels: str | None = None,
    label_metadata: Mapping[str, Any] | None = None,
    name: str | None = None,
    version: Literal["0.4", "0.5", "0.6"] | None = None,
    chunks: Any = None,
    shards: Shards | Literal["keep"] = "keep",
    compressors: Codecs = "keep",
    codecs: Codecs = None,
    path: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    storage_options: dict[str, Any] | None = None,
    device: str | None = None,
    memory_limit: int | str | None = None,
    progress: Progress = None,
    dry_run: bool = False,
    client: Client | None = None,
) -> Any:
    """Make an OME-Zarr image of several scales from an array of any size.

    Level ``0`` is a copy of the array. Every other level is smaller than the one before, along x, y and z. With ``labels=`` the
    array becomes labels of the image at the target.

    Parameters
    ----------
    source : Array, Group, StoreLike, or an array in memory
        An array of 2 to 5 dimensions, or an image: OME-Zarr 0.1 to 0.6, or GeoZarr's ``multiscales``. From an image, the largest level is
        taken, and its axes, scale, units, channels, other attributes and all labels are kept. An array in memory (NumPy's, or one on a
        GPU) is copied to host memory first.
    target : StoreLike
        The place of the new group of levels; for labels, the group of their image.
    method : {"mean", "gaussian", "max", "nearest", "mode"}, optional
        The method that combines elements into one: their mean, a mean with Gaussian weights that includes neighbours, the largest, the
        first, or the most frequent element. The default is the mean, and for labels the most frequent element, so that no new label
        appears.
    levels : int, optional
        Number of levels, including the first. By default, levels are added until no spatial extent is above 256.
    axes : str or sequence of str, optional
        Names of the dimensions, as in ``"tczyx"``. By default the source's names, or the last names of ``"tczyx"``.
    scale, units : sequence or dict, optional
        Size of an element along each dimension, and its unit (``"micrometer"``, ``None`` for none). A dictionary has dimension names as
        keys.
    factors : sequence or dict, optional
        Number of elements that are combined into one along each dimension, from level to level. In a dictionary, dimensions without
        a factor keep their size. By default 2 along x, y and z; a dimension is skipped while its elements are at least twice as large
        as those of another one.
    channels : sequence of str or dict, optional
        The channels' labels, or objects with ``label``, ``color`` (``"00FF00"``) and ``window`` for the attribute ``omero``. Missing
        colours are chosen automatically. Limits of contrast are found in the smallest level.
    labels : str, optional
        Name of the labels. Labels are integers: for each element of the image, the number of the object to which it belongs. They are
        created in the group ``labels`` of the image at the target.
    label_metadata : dict, optional
        Members for the attribute ``image-label``, such as ``colors`` and ``properties``.
    name : str, optional
        The image's name in the attributes.
    version : {"0.4", "0.5", "0.6"}, optional
        Version of OME-Zarr: 0.5 or 0.6 in Zarr format 3, or 0.4 in format 2. By default 0.5, or 0.6 for an image of version 0.6; for
        labels the version of their image. In version 0.6, an image's coordinate systems are kept.
    chunks, shards, compressors, codecs
        Settings of all levels, as for :func:`rechunk`.
    path, overwrite, resume, storage_options, device, memory_limit, progress, client
        As for :func:`copy`.
    dry_run : bool
        Return the plan as a dictionary, and do nothing.

    Returns
    -------
    Group
        The group of the levels, opened; with ``dry_run`` the plan as a dictionary.

    Raises
    ------
    InvalidArgumentError
        The array has fewer than 2 or more than 5 dimensions, the names of its axes do not fit, or the source is a group that is not an
        image.
    GroupNotFoundError
        There is no image at the target to which the labels could belong.
    ContainsArrayError, ContainsGroupError
        A node exists at the target, and ``overwrite`` is off.
    UnsupportedError
        The method does not apply to the elements, or labels are not integers. Or the source is an image of a later version, or its levels
        have several arrays or transformations other than scales and translations. Or coordinate systems, numbers of transformations or
        further images would be lost.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> pixels = np.arange(16, dtype="uint8").reshape(4, 4)
    >>> store = cuzarr.storage.MemoryStore()
    >>> scales = cuzarr.pyramid(pixels, store, levels=2, axes="yx", scale=(0.5, 0.5), units=("micrometer",) * 2)
    >>> scales["1"][...].tolist()
    [[2, 4], [10, 12]]
    >>> scales.attrs["ome"]["multiscales"][0]["datasets"][1]["coordinateTransformations"][0]
    {'type': 'scale', 'scale': [1.0, 1.0]}
    >>> cells = cuzarr.pyramid((pixels > 7).astype("uint8"), store, labels="cells")
    >>> cells.path, cells["1"][...].tolist()
    ('labels/cells', [[0, 0], [1, 1]])
    """
    resumed = (overwrite, resume)
    if not isinstance(source, str) and hasattr(source, "shape") and not is_array(source):
        if resume:
            raise InvalidArgumentError("work on an array in memory cannot be resumed", hint="write it to a store first")
        device = device or device_of(source)
        source, compressors = _stored(source, chunks, compressors, codecs)
    job = Job(source, target, path, resumed, storage_options, device, memory_limit, client, "pyramid")
    names = None if axes is None else [str(axis) for axis in (axes if isinstance(axes, str) else items(axes, "axes", "names"))]
    settings: dict[str, Any] = {
        "method": None if method is None else str(method),
        "levels": None if levels is None else whole(levels, "levels", 1),
        "axes": names,
        "name": None if name is None else str(name),
        "version": None if version is None else str(version),
    }
    own = names or (dimension_names(job.node) if is_stored(job.node) else None)
    with refusing("scale", "pass one number for each dimension"):
        sizes = _by_axis(scale, "scale", own, 1.0)
        settings["scale"] = None if sizes is None else list(map(float, sizes))
        if sizes is not None and not all(map(math.isfinite, settings["scale"])):
            raise InvalidArgumentError(f"scale is {scale!r}, expected finite numbers")
    named_units = _by_axis(units, "units", own, None)
    settings["units"] = None if named_units is None else [str(unit or "") for unit in named_units]
    steps = _by_axis(factors, "factors", own, 1)
    settings["factors"] = None if steps is None else [whole(step, "factors", 1) for step in steps]
    if channels is not None:
        given = items(channels, "channels", "labels or dictionaries")
        settings["channels"] = [one if isinstance(one, str) else dictionary(one, "channels") for one in given]
    if labels is not None:
        metadata = {} if label_metadata is None else dictionary(label_metadata, "label_metadata")
        settings["labels"] = {"name": str(labels), "metadata": metadata}
    elif label_metadata is not None:
        raise InvalidArgumentError("label_metadata is for labels", hint="pass their name as labels= too")
    changes = changes_of(job.node, None, chunks, shards, compressors, codecs)
    with refusing("channels and label_metadata", "pass values that JSON has"):
        text = json.dumps(settings)
    with _core.Watch(counts=is_wanted(progress)) as watch:
        plan = _core.Pyramid(*job.ends, changes, job.existing, text, job.options)
    document = json.loads(plan.plan())
    if dry_run:
        return document
    made = job.run(plan, progress, None, watch)
    return made if labels is None else made[f"labels/{labels}"]


def _stored(array: Any, chunks: Any, compressors: Any, codecs: Any) -> tuple[Any, Any]:
    """Copies an array in memory to a store in memory. Returns the stored array, and the compressors for the levels of the pyramid."""
    asked = "auto" if chunks is None or isinstance(chunks, Mapping) else chunks
    if isinstance(compressors, str) and compressors == "keep":
        likely = _sources.nodes.create_array({}, shape=(1,) * array.ndim, dtype=element_type(array))
        compressors = list(likely.compressors) if codecs is None else "keep"
    return _sources.nodes.create_array(MemoryStore(), data=array, chunks=asked, compressors=None), compressors


def _by_axis(values: Any, what: str, names: Sequence[str | None] | None, missing: Any) -> Any:
    """Converts an argument such as ``scale`` or ``factors`` to a list of one value for each dimension. A dictionary gives them by dimension
    name; dimensions that it lacks get ``missing``."""
    if not isinstance(values, Mapping):
        return None if values is None else items(values, what, "one value for each dimension")
    if names is None:
        raise InvalidArgumentError(f"{what} names dimensions, but the array has no names", hint="pass axes= too, as in 'zyx'")
    given = {axis_number(axis, len(names), names): value for axis, value in values.items()}
    return [given.get(axis, missing) for axis in range(len(names))]

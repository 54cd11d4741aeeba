"""Checks arguments of the functions that create and save arrays, and finds the defaults of those not given."""

from __future__ import annotations

import warnings
from typing import Any

from cuzarr import _core
from cuzarr._compute.operands import is_lazy
from cuzarr._compute.sources import is_array, place_of
from cuzarr._config import config as _global_config
from cuzarr._memory.foreign import device_of, refuse_masked
from cuzarr._metadata.documents import check_zarr_format
from cuzarr._metadata.dtype import ZarrFormat
from cuzarr._names import did_you_mean
from cuzarr._numpy import of_library
from cuzarr.errors import ArgumentTypeError, CuzarrRuntimeWarning, InvalidArgumentError, ShapeMismatchError
from cuzarr.storage import StorePath


def default_format(zarr_format: Any) -> ZarrFormat:
    """The given Zarr format, or else the configured one."""
    return check_zarr_format(zarr_format) or _global_config._values()["default_zarr_format"]  # type: ignore[no-any-return]


def one_format(zarr_format: Any, zarr_version: Any) -> Any:
    """The Zarr format that a caller gave as ``zarr_format``, or as ``zarr_version``, which is the argument's name in zarr-python 2.

    Raises
    ------
    InvalidArgumentError
        The two differ.
    """
    if None not in (zarr_format, zarr_version) and zarr_format != zarr_version:
        message = f"zarr_format is {zarr_format!r}, and zarr_version, its former name, is {zarr_version!r}"
        raise InvalidArgumentError(message, hint="pass zarr_format alone")
    return zarr_version if zarr_format is None else zarr_format


def warn_ignored(**arguments: Any) -> None:
    """Warns for each argument that is not ``None`` that it has no effect."""
    for name, value in arguments.items():
        if value is not None:
            warnings.warn(f"{name} has no effect", CuzarrRuntimeWarning, stacklevel=3)


def device_like(meta_array: Any, device: str | None) -> str | None:
    """The given device, or else the device of ``meta_array``, by which zarr-python 2 chooses the memory of results."""
    return device_of(meta_array) if device is None and meta_array is not None else device


def dtype_of(data: Any) -> Any:
    """The element type of an array of any library, as a NumPy dtype."""
    return of_library(data.dtype)


def shape_and_chunks(a: Any) -> tuple[Any, Any]:
    """Shape and chunk shape of an array of any library; ``None`` in place of an attribute that the array lacks. Chunks that are not one
    length per dimension (dask's) are ignored."""
    shape = tuple(a.shape) if hasattr(a, "shape") else None
    chunks = getattr(a, "chunks", None)
    matches = isinstance(chunks, tuple) and shape is not None and len(chunks) == len(shape)
    return shape, chunks if matches and all(isinstance(size, int) for size in chunks) else None  # type: ignore[union-attr]


def refuse_unfit(data: Any) -> None:
    """Refuses plans of computations and masked arrays as data of a new array. Called before anything is stored.

    Raises
    ------
    InvalidArgumentError
    """
    if is_lazy(data) and data._is_plan:
        hint = "create an array with shape=x.shape and dtype=x.dtype, and call x.store(array)"
        raise InvalidArgumentError("an expression has no elements yet to make an array of", hint=hint)
    refuse_masked(data)


def check_data(data: Any, place: StorePath, replaces: bool) -> None:
    """Refuses data that a new array cannot be filled with: plans, masked arrays, and a stored array that the new one would replace.

    Raises
    ------
    InvalidArgumentError
    """
    refuse_unfit(data)
    if replaces and is_array(data):
        source = place_of(data)
        _core.refuse_overlap((source.store._handle, source.path), (place.store._handle, place.path))


def check_shape(array: Any, shape: tuple[int, ...]) -> None:
    """Refuses an array that was resized since another library, which keeps its shape, received it.

    Raises
    ------
    ShapeMismatchError
    """
    if array.shape != shape:
        message = (
            f"{array.store_path}: the array was resized after it was handed over: its shape was {shape}, and is {array.shape}"
        )
        raise ShapeMismatchError(message, hint="hand it over again")


def require_array(value: Any, name: str = "arr") -> Any:
    """Returns an argument unchanged if it is an array; refuses a value without shape and dtype.

    Raises
    ------
    ArgumentTypeError
    """
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        # Keyword arguments of `save` are names of arrays, so a misspelt option arrives here.
        hint = did_you_mean(name, ("zarr_format", "path", "storage_options")) if name != "arr" else None
        raise ArgumentTypeError(f"{name} is {type(value).__name__}, expected an array", hint=hint)
    return value

"""Changes inside zarr-python, so that its arrays work with GPU memory outside of a pipeline, and accept our stores.

Each change names the module and the attribute that it replaces, and is applied only if it finds what it expects there. All
changes are undone when the last caller reverts them.
"""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.core.buffer import cpu
from zarr.core.buffer.core import default_buffer_prototype

from cuzarr._locks import ProcessLock
from cuzarr.storage import Store
from cuzarr.zarr import _direct
from cuzarr.zarr._boxes import replacement


def _is_device_array(value: Any) -> bool:
    return not isinstance(value, np.ndarray | np.generic) and hasattr(value, "__cuda_array_interface__")


class _NumPy(types.ModuleType):
    """A stand-in for the module ``numpy`` inside zarr-python: its ``array`` returns an array on a GPU unchanged, where NumPy's raises an
    error."""

    def __init__(self) -> None:
        super().__init__("numpy")

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def array(value: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_device_array(value) and not args and not kwargs:
            return value
        return np.array(value, *args, **kwargs)


def _keep_on_device(original: Any, pipeline: type) -> Any:
    return _NumPy() if original is np else None


def _to_host(array: Any) -> np.ndarray[Any, Any]:
    # Our arrays and PyTorch's are copied by `cpu`, CuPy's by `get`.
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array.get())


def _convert_to_host(original: Any, pipeline: type) -> Any:
    if not isinstance(original, types.FunctionType):
        return None

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:  # noqa: N807, it becomes a method
        if copy is False:
            return original(self, dtype, copy)
        elements = self[...]
        if not _is_device_array(elements):
            elements = np.array(elements, dtype=dtype)
            return elements
        host = _to_host(elements)
        return host if dtype is None else host.astype(dtype, copy=False)

    __array__.__doc__ = original.__doc__
    return __array__


def _host_prototype(original: Any, pipeline: type) -> Any:
    return (lambda: cpu.buffer_prototype) if original is default_buffer_prototype else None


def _take_our_stores(original: Any, pipeline: type) -> Any:
    if not inspect.iscoroutinefunction(original) or next(iter(inspect.signature(original).parameters), "") != "store_like":
        return None

    async def make_store(store_like: Any, *args: Any, **kwargs: Any) -> Any:
        return await original(store_like.zarr_store if isinstance(store_like, Store) else store_like, *args, **kwargs)

    make_store.__doc__ = original.__doc__
    return make_store


@dataclass(frozen=True)
class _Repair:
    name: str
    module: str
    attribute: str
    # Makes the new attribute from the old one and the class of our pipelines; None if the old one is not as expected.
    replace: Callable[[Any, type], Any]


_REPAIRS = (
    _Repair("coordinate reads and writes stay on the GPU", "zarr.core.array", "np", _keep_on_device),
    _Repair("numpy.asarray(array) copies to the host", "zarr.core.array", "Array.__array__", _convert_to_host),
    *(
        _Repair(f"metadata stays on the host ({module})", module, "default_buffer_prototype", _host_prototype)
        for module in ("zarr.core.group", "zarr.core.metadata.io", "zarr.core._json")
    ),
    *(
        _Repair(f"boxes are {done} without listing their chunks", "zarr.core.array", attribute, replacement)
        for done, attribute in (("read", "_get_selection"), ("written", "_set_selection"))
    ),
    _Repair("boxes are read on the calling thread", "zarr.core.array", "sync", _direct.replacement),
    _Repair("stores of cuzarr.storage are taken as they are", "zarr.storage._common", "make_store", _take_our_stores),
)

_lock = ProcessLock()
_users = 0
_applied: list[tuple[Any, str, Any, str]] = []


def _owner(repair: _Repair) -> tuple[Any, str] | None:
    try:
        owner: Any = importlib.import_module(repair.module)
    except ImportError:
        return None
    *path, name = repair.attribute.split(".")
    for step in path:
        owner = getattr(owner, step, None)
    return (owner, name) if owner is not None and name in vars(owner) else None


def apply(pipeline: type) -> tuple[str, ...]:
    """Replaces functions inside zarr-python by cuzarr's, where zarr-python's version allows it, unless another caller already did. Returns
    their names."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            for repair in _REPAIRS:
                found = _owner(repair)
                if found is None:
                    continue
                owner, name = found
                original = vars(owner)[name]
                replacement = repair.replace(original, pipeline)
                if replacement is not None:
                    setattr(owner, name, replacement)
                    _applied.append((owner, name, original, repair.name))
        return tuple(name for *_, name in _applied)


def revert() -> None:
    """Restores the functions of zarr-python that ``apply`` replaced, unless another caller still needs the changes."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            while _applied:
                owner, name, original, _ = _applied.pop()
                setattr(owner, name, original)

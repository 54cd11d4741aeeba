"""The GPU that tests use: a real one, or the kernels built for the CPU (``scripts/with-simt``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import gpu_device

import cuzarr

NAME = gpu_device()[0] or "cuda"


def require() -> str:
    """The GPU's name; skips the test when there is none."""
    if gpu_device()[0] is None:
        pytest.skip(f"skipped: {gpu_device()[1]}")
    return NAME


def on(device: str, value: Any) -> Any:
    """A copy of an array on a device: CuPy's where it is installed, else a ``cuzarr.DeviceArray``."""
    host = np.asarray(value)
    return cuzarr.array(host, store={}, chunks=host.shape).with_device(device)[...]


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """A copy of an array in host memory."""
    if isinstance(array, np.ndarray | np.generic | str | bytes):
        return np.asarray(array)
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array.get())


def is_on(device: str, array: Any) -> bool:
    """Whether an array is on a device."""
    if device == "cpu":
        return isinstance(array, np.ndarray | np.generic)
    return isinstance(array, cuzarr.DeviceArray) or type(array).__module__.startswith("cupy")

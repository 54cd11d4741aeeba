"""Buffer classes of GPU memory that zarr-python accepts, over CuPy's arrays if CuPy is installed, else over ``cuzarr.DeviceArray``."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from zarr.core.buffer import core
from zarr.registry import register_buffer, register_ndbuffer

from cuzarr._memory import convert as _convert
from cuzarr._memory.device_array import DeviceArray
from cuzarr.buffer import gpu


class _Nothing(DeviceArray):
    """An empty array of bytes. zarr-python passes it as ``like=`` to create scalars, even of types that CuPy does not have."""

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        made = getattr(function, "_implementation", function)(*arguments, **options)
        return _convert.to_device(made, self.device) if isinstance(made, np.ndarray) else made


class Buffer(gpu.Buffer, core.Buffer):
    """A buffer of flat bytes in a GPU's memory, for zarr-python: ``zarr.config.set({"buffer": "cuzarr.zarr.Buffer"})``.

    Parameters
    ----------
    array_like : ArrayLike
        Flat bytes in a GPU's memory.

    Raises
    ------
    InvalidArgumentError
        The array is in other memory, or has other dimensions or elements.

    Examples
    --------
    >>> import cuzarr.zarr, zarr
    >>> zarr.config.set({"buffer": "cuzarr.zarr.Buffer"})  # doctest: +SKIP
    """

    @classmethod
    def create_zero_length(cls) -> Self:
        return cls(_Nothing.empty((0,), "B", cls.default_device()))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]


class NDBuffer(gpu.NDBuffer, core.NDBuffer):
    """A buffer of N-dimensional elements in a GPU's memory, for zarr-python: ``zarr.config.set({"ndbuffer": "cuzarr.zarr.NDBuffer"})``.

    Parameters
    ----------
    array : NDArrayLike
        Elements in a GPU's memory.

    Raises
    ------
    InvalidArgumentError
        The array is in other memory, or has other dimensions or elements.

    Examples
    --------
    >>> import cuzarr.zarr, zarr
    >>> zarr.config.set({"ndbuffer": "cuzarr.zarr.NDBuffer"})  # doctest: +SKIP
    """


# zarr-python looks up classes by module and name.
Buffer.__module__ = NDBuffer.__module__ = "cuzarr.zarr"
register_buffer(Buffer)
register_ndbuffer(NDBuffer)

buffer_prototype = core.BufferPrototype(buffer=Buffer, nd_buffer=NDBuffer)
"""The pair of zarr-python's buffer classes for a GPU's memory, for the argument ``prototype``."""

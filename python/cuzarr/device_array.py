"""An array in a GPU's memory, for machines without CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr.errors import ImplicitHostCopyError

_ON_HOST = ("cpu", "cuda_host", "cuda_managed")


class DeviceArray:
    """N-dimensional elements in device memory, without arithmetic: hand it to CuPy, PyTorch, JAX or Numba.

    It speaks DLPack (with streams) and the CUDA array interface (version 3), both without copying. It is never copied
    to the host implicitly; :meth:`cpu` does so when asked.

    Attributes
    ----------
    shape : tuple of int
        Extents, in elements.
    strides : tuple of int
        Bytes from one element to the next, per dimension.
    dtype : numpy.dtype
        Element type.
    device : str
        Where it is: ``"cuda:0"``.
    """

    def __init__(self, buffer: _core.NdBuffer, dtype: np.dtype[Any]) -> None:
        self._buffer = buffer
        self.dtype = np.dtype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._buffer.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._buffer.strides

    @property
    def device(self) -> str:
        return self._buffer.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def nbytes(self) -> int:
        """Bytes that the elements fill."""
        return self.size * self.dtype.itemsize

    def cpu(self) -> np.ndarray[Any, Any]:
        """A copy in host memory, as a NumPy array."""
        from cuzarr._convert import host_array

        return host_array(self._buffer.to("cpu"), self.dtype)

    def to(self, device: str) -> DeviceArray | np.ndarray[Any, Any]:
        """This array on another device: itself when it is there already, a NumPy array on ``"cpu"``."""
        if device == "cpu":
            return self.cpu()
        moved = self._buffer.to(device)
        return self if moved is self._buffer else DeviceArray(moved, self.dtype)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Hands the memory to another library; the data is ready on ``stream`` when this returns."""
        return self._buffer.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device type and number."""
        return self._buffer.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the CUDA array interface."""
        typestr = self.dtype.str if self.dtype.names is None else f"|V{self.dtype.itemsize}"
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": typestr,
            "data": (self._buffer.address, False),
            # Results are ready on every stream, so there is none to wait for.
            "stream": None,
        }

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Refuses: a copy to the host has to be asked for, by :meth:`cpu`."""
        raise ImplicitHostCopyError(
            f"this array is on {self.device}, and a copy to the host has to be asked for",
            hint="call .cpu(), or hand it to a GPU library through DLPack",
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of 0 dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray on {self.device} shape={self.shape} dtype={self.dtype}>"

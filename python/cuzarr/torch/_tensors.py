"""Converts elements to PyTorch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cuzarr._memory.foreign import wrap_host
from cuzarr._numpy import OF_TORCH, is_small
from cuzarr.errors import DTypeMismatchError

if TYPE_CHECKING:
    from cuzarr.typing import MemoryArray


def to_tensor(elements: MemoryArray | np.ndarray[Any, Any] | np.generic) -> torch.Tensor:
    """Converts elements that were read to a tensor of PyTorch on the same device. It shares their memory, unless PyTorch has no such byte
    order or strides.

    Parameters
    ----------
    elements : array
        An array of NumPy or CuPy, or a :class:`cuzarr.DeviceArray`.

    Returns
    -------
    torch.Tensor
        The tensor.

    Raises
    ------
    DTypeMismatchError
        PyTorch does not support the elements, such as strings, dates and structures.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.torch.to_tensor(np.array([1, 2], "int16"))
    tensor([1, 2], dtype=torch.int16)
    """
    if not isinstance(elements, np.ndarray | np.generic):
        if is_small(elements.dtype):
            # Not every version of PyTorch takes these by DLPack.
            return torch.from_dlpack(elements.view(_bits(elements.dtype))).view(torch_type(elements.dtype))
        return torch.from_dlpack(elements)
    array = np.asarray(elements)
    wanted = torch_type(array.dtype)
    if is_small(array.dtype):
        return torch.from_numpy(array.view(_bits(array.dtype))).view(wanted)
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    if array.dtype.name == "bfloat16":
        return torch.from_dlpack(wrap_host(array if array.flags.writeable else array.copy()))
    return torch.from_numpy(array)


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The integer type in which elements of ``dtype`` can be viewed, because it has the same size."""
    return np.dtype("u1") if dtype.itemsize == 1 else np.dtype(f"i{dtype.itemsize}")


def torch_type(dtype: np.dtype[Any]) -> torch.dtype:
    """PyTorch's element type for a NumPy type.

    Raises
    ------
    DTypeMismatchError
        PyTorch has no such type.
    """
    found = getattr(torch, dtype.name, None)
    # PyTorch's `int4` has no elements.
    if not isinstance(found, torch.dtype) or is_small(dtype) and dtype.name not in OF_TORCH:
        hint = "read dates as numbers: x.view('int64')" if dtype.kind in "mM" else "convert them first"
        raise DTypeMismatchError(f"PyTorch has no elements of {dtype}", hint=hint)
    return found

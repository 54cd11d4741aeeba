"""NumPy's functions that create arrays in memory, and functions that move arrays between devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core, _names, _numpy
from cuzarr._checks import element_type as _dtype, extents, refusing
from cuzarr._config import device_name
from cuzarr._docstrings import completing
from cuzarr._memory.convert import result_array, to_device
from cuzarr._memory.element_types import memory_type
from cuzarr._memory.foreign import (
    OnDevice,
    device_buffer,
    element_type as _element_type,
    host_array,
    is_cupys,
    is_on_device,
    on_host,
    to_native_host,
)
from cuzarr._operators.dispatch import Lazy, Stored
from cuzarr.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DTypeLike, MemoryArray, Scalar, ShapeLike

__all__ = [
    "arange", "asarray", "asnumpy", "empty", "empty_like", "full", "full_like", "linspace", "ones", "ones_like", "zeros",
    "zeros_like",
]  # fmt: skip

_MEMORY = "array\n    NumPy's on the host; on a GPU CuPy's where it is installed, else a :class:`cuzarr.DeviceArray`."
_NO_DEVICE = "DeviceUnavailableError\n    There is no such device, or it cannot be used."
_made = completing(
    {
        "shape": "shape : int or tuple of int\n    Extents, in elements.",
        "dtype": "dtype : dtype-like\n    Element type.",
        "device": "device : str, optional\n    Where the memory is; by default the device of the configuration.",
    },
    _MEMORY,
    _NO_DEVICE,
)
_made_like = completing(
    {
        "x": "x : array\n    An array whose shape, type and device are taken over.",
        "dtype": "dtype : dtype-like, optional\n    Another element type.",
        "device": "device : str, optional\n    Another device.",
    },
    _MEMORY,
    _NO_DEVICE,
)


@_made
def asarray(x: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None, copy: bool | None = None) -> MemoryArray:
    """Convert elements from any source to an array in the memory of a device. Elements are copied only if they are on another device, and
    converted only if they have another type.

    Without ``device``, an array on a GPU stays there.

    Parameters
    ----------
    x : array, number or nested list
        Elements, in memory of any device.
    dtype : dtype-like, optional
        Element type; by default that of ``x``.
    copy : bool, optional
        ``True`` always copies. With ``False``, a needed copy is an error.

    Raises
    ------
    DeviceUnavailableError
        There is no such device, or it cannot be used.
    InvalidArgumentError
        ``copy=False`` forbids a copy that is needed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.asarray([1, 2], "float32", device="cpu")
    array([1., 2.], dtype=float32)
    """
    placed = _placed(x, dtype, device)
    if copy is None:
        return placed  # type: ignore[no-any-return]
    is_shared = not isinstance(x, Lazy) and placed.size > 0 and _share_memory(x, placed)
    if copy is False and placed.size > 0 and not is_shared:
        raise InvalidArgumentError("asarray: copy=False forbids a copy, and one is needed", hint="leave copy out")
    return placed.copy() if copy and is_shared else placed  # type: ignore[no-any-return]


def _share_memory(x: Any, placed: Any) -> bool:
    if is_on_device(x) or is_on_device(placed):
        return is_on_device(x) and is_on_device(placed) and device_buffer(x).address == device_buffer(placed).address
    return bool(np.may_share_memory(host_array(x, "asarray"), placed))


def _placed(x: Any, dtype: Any, device: str | None) -> Any:
    """The elements as an array in the memory of a device, copied only if necessary."""
    if isinstance(x, Lazy):
        where = device_name(device) if isinstance(x, Stored) else device
        return _placed(x._elements_on(where), dtype, where)
    if not is_on_device(x):
        array = host_array(x, "asarray") if dtype is None else to_native_host(x, _dtype(dtype))
        _numpy.check_type(array.dtype)
        where = device_name(device)
        return array if where == "cpu" else to_device(array, where)
    buffer, own = device_buffer(x), _element_type(x)
    where = buffer.device if device is None else device
    if where == "cpu":
        return _placed(on_host(x), dtype, "cpu")
    if where == "cuda":
        where = "cuda:0"
    wanted = own if dtype is None else _dtype(dtype)
    if wanted == own and buffer.device == where:
        return x if isinstance(x, OnDevice) or is_cupys(x) else result_array(buffer, own)
    moved = buffer.to(where)
    return result_array(moved if wanted == own else moved.astype(memory_type(wanted), "C"), wanted)


def asnumpy(x: ArrayLike) -> np.ndarray[Any, Any]:
    """A NumPy array with the elements of any array. An array on a GPU is copied.

    Parameters
    ----------
    x : array
        Elements, in memory of any device.

    Returns
    -------
    numpy.ndarray
        The elements, in host memory.

    Raises
    ------
    ArgumentTypeError
        ``x`` is not an array.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.asnumpy(cuzarr.xp.ones(2, device="cpu"))
    array([1., 1.])
    """

    if isinstance(x, Lazy):
        x = x._elements_on("cpu" if isinstance(x, Stored) else None)
    return host_array(on_host(x), "asnumpy")


@_made
def empty(shape: ShapeLike, dtype: DTypeLike = float, *, device: str | None = None) -> MemoryArray:
    """Allocate memory whose elements are not set; :func:`cuzarr.empty` stores an array.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.empty((2, 3), device="cpu").shape
    (2, 3)
    """
    where, native = device_name(device), _dtype(dtype)
    if where == "cpu":
        with refusing("empty"):
            return np.empty(extents(shape), native)  # type: ignore[return-value]
    return result_array(_core.NdBuffer.empty(extents(shape), memory_type(native), where, "C"), native)  # type: ignore[no-any-return]


@_made
def full(shape: ShapeLike, fill_value: Scalar, dtype: DTypeLike | None = None, *, device: str | None = None) -> MemoryArray:
    """Allocate memory filled with one value, or with an array that is broadcast; :func:`cuzarr.full` stores an array.

    Parameters
    ----------
    fill_value : scalar or array
        Value of every element; an array is broadcast.
    dtype : dtype-like, optional
        Element type.

    Raises
    ------
    ConversionError
        ``numpy.full`` refuses the value.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.full(2, 7, device="cpu")
    array([7, 7])
    """
    value = host_array(fill_value, "fill_value")
    native = _dtype(value.dtype if dtype is None else dtype)
    where, size = device_name(device), extents(shape)
    if where == "cpu":
        with refusing("full"):
            return _numpy.full(size, fill_value, native)  # type: ignore[return-value]
    if value.ndim:
        return to_device(_numpy.full(size, fill_value, native), where)  # type: ignore[no-any-return]
    buffer = _core.NdBuffer.empty(size, memory_type(native), where, "C")
    buffer.fill(_numpy.full((), fill_value, native).tobytes())
    return result_array(buffer, native)  # type: ignore[no-any-return]


@_made
def zeros(shape: ShapeLike, dtype: DTypeLike = float, *, device: str | None = None) -> MemoryArray:
    """Allocate memory whose elements are 0; :func:`cuzarr.zeros` stores an array.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.zeros(2, device="cpu")
    array([0., 0.])
    """
    return full(shape, 0, float if dtype is None else dtype, device=device)


@_made
def ones(shape: ShapeLike, dtype: DTypeLike = float, *, device: str | None = None) -> MemoryArray:
    """Allocate memory whose elements are 1; :func:`cuzarr.ones` stores an array.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.ones(2, device="cpu")
    array([1., 1.])
    """
    return full(shape, 1, float if dtype is None else dtype, device=device)


def _like(x: Any, dtype: Any, device: str | None) -> tuple[tuple[int, ...], Any, str]:
    own = x.dtype if isinstance(getattr(x, "dtype", None), np.dtype) else _element_type(x)
    there = device_buffer(x).device if is_on_device(x) else getattr(x, "device", "cpu")
    return tuple(x.shape), own if dtype is None else dtype, str(there) if device is None else device


@_made_like
def empty_like(x: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None) -> MemoryArray:
    """Allocate memory with the shape, type and device of an array, without setting the elements. :func:`cuzarr.empty_like` stores an array.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.empty_like(np.ones((2, 3))).shape
    (2, 3)
    """
    shape, dtype, device = _like(x, dtype, device)
    return empty(shape, dtype, device=device)


@_made_like
def full_like(x: ArrayLike, fill_value: Scalar, dtype: DTypeLike | None = None, *, device: str | None = None) -> MemoryArray:
    """Allocate memory with the shape, type and device of an array, filled with one value. :func:`cuzarr.full_like` stores an array.

    Parameters
    ----------
    fill_value : scalar
        Value of every element.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.full_like(np.zeros(2), 7)
    array([7., 7.])
    """
    shape, dtype, device = _like(x, dtype, device)
    return full(shape, fill_value, dtype, device=device)


@_made_like
def zeros_like(x: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None) -> MemoryArray:
    """Allocate memory with the shape, type and device of an array, filled with 0. :func:`cuzarr.zeros_like` stores an array.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.zeros_like(np.ones(2))
    array([0., 0.])
    """
    return full_like(x, 0, dtype, device=device)


@_made_like
def ones_like(x: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None) -> MemoryArray:
    """Allocate memory with the shape, type and device of an array, filled with 1. :func:`cuzarr.ones_like` stores an array.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.ones_like(np.zeros(2))
    array([1., 1.])
    """
    return full_like(x, 1, dtype, device=device)


def _optional(dtype: Any) -> np.dtype[Any] | None:
    return None if dtype is None else _dtype(dtype)


@_made
def arange(
    start: Scalar, stop: Scalar | None = None, step: Scalar = 1, dtype: DTypeLike | None = None, *, device: str | None = None
) -> MemoryArray:
    """Evenly spaced numbers in the memory of a device, like ``numpy.arange``.

    Parameters
    ----------
    start, stop, step : number
        The first number, the end (which is left out), and the step. A single number is ``stop``.
    dtype : dtype-like, optional
        Element type.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.arange(1, 4, device="cpu")
    array([1, 2, 3])
    """
    begin, end = (0, start) if stop is None else (start, stop)
    with refusing("arange"):
        numbers: np.ndarray[Any, Any] = np.arange(begin, end, step, dtype=_optional(dtype))  # type: ignore[call-overload]
    return asarray(numbers, device=device_name(device))


@_made
def linspace(
    start: Scalar,
    stop: Scalar,
    num: int = 50,
    dtype: DTypeLike | None = None,
    *,
    endpoint: bool = True,
    device: str | None = None,
) -> MemoryArray:
    """Evenly spaced numbers from ``start`` to ``stop``, like ``numpy.linspace``.

    Parameters
    ----------
    start, stop : number
        The first number, and the last number (or, without ``endpoint``, the end).
    num : int
        How many numbers.
    dtype : dtype-like, optional
        Element type.
    endpoint : bool
        Whether ``stop`` is the last number.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.linspace(0, 1, 3, device="cpu")
    array([0. , 0.5, 1. ])
    """
    with refusing("linspace"):
        numbers = np.linspace(start, stop, num, endpoint, dtype=_optional(dtype))  # type: ignore[arg-type]
    return asarray(numbers, device=device_name(device))


_names.list_public(globals())

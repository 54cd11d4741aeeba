"""The functions of the array API standard that no other module of :mod:`cuzarr.xp` has. NumPy has them under the same names.

`cuzarr.xp` is the namespace that ``x.__array_namespace__()`` of a :class:`cuzarr.DeviceArray` returns. It has all names of the standard
(2024.12).

>>> import cuzarr, numpy as np
>>> x = cuzarr.DeviceArray.from_host(np.arange(3.0), "cpu")
>>> xp = x.__array_namespace__()
>>> xp.concat([x, xp.roll(x, 1)]).tolist()
[0.0, 1.0, 2.0, 2.0, 0.0, 1.0]
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core, _names
from cuzarr._checks import axis_number, element_type as _dtype, refusing, whole
from cuzarr._compute.evaluate import apply, plan, reduce
from cuzarr._compute.operands import device_among, dimension_names
from cuzarr._config import device_name
from cuzarr._docstrings import completing
from cuzarr._memory.device_array import DeviceArray, device_array
from cuzarr._memory.foreign import device_buffer, device_of, element_type, host_array, is_on_device, numpy_view, on_host
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import CuzarrError, DTypeMismatchError, InvalidArgumentError, ShapeMismatchError
from cuzarr.xp import elementwise
from cuzarr.xp.arguments import LIKE_X, NO_DIMENSION, X, array, like, refuse_lazy
from cuzarr.xp.creation import asarray
from cuzarr.xp.shapes import broadcast_to, concatenate, take

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DTypeLike, MemoryArray

__all__ = [
    "broadcast_arrays", "can_cast", "concat", "finfo", "from_dlpack", "iinfo", "isdtype", "logaddexp", "nextafter", "nonzero", "positive", "reciprocal", "repeat", "reshape",
    "result_type", "roll", "tile", "unstack", "vecdot",
]  # fmt: skip

_documented = completing({"x": X}, LIKE_X, NO_DIMENSION)

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}
TYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split()


class Info:
    """Information about this namespace, as the array API standard requires: its devices, its types and its capabilities."""

    def capabilities(self) -> dict[str, Any]:
        """Which optional features of the array API standard this namespace supports."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device on which new arrays are made if a call names none."""
        return str(device_name(None))

    def devices(self) -> list[str]:
        """The usable devices, the host first."""
        found = ["cpu"]
        with contextlib.suppress(CuzarrError):  # the first device that does not exist raises an error
            for number in itertools.count():
                _core.memory_info(f"cuda:{number}")
                found.append(f"cuda:{number}")
        return found

    def default_dtypes(self, *, device: str | None = None) -> dict[str, np.dtype[Any]]:
        """The element type of new arrays for each kind, if none is given."""
        names = {"real floating": "f8", "complex floating": "c16", "integral": "i8", "indexing": "i8"}
        return {kind: np.dtype(name) for kind, name in names.items()}

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype[Any]]:
        """The supported element types by name: all of them, or those of the given kinds."""
        found = {name: np.dtype(name) for name in ("bool", *TYPES)}
        return found if kind is None else {name: dtype for name, dtype in found.items() if isdtype(dtype, kind)}


def __array_namespace_info__() -> Info:  # noqa: N807, the standard's name
    """Information about the devices, types and capabilities of this namespace, as the array API standard requires."""
    return Info()


def finfo(type: ArrayLike | DTypeLike, /) -> np.finfo[Any]:
    """The limits of a float type.

    Parameters
    ----------
    type : dtype-like or array
        The type, or an array of it. For complex numbers, the limits are those of their parts.

    Returns
    -------
    numpy.finfo

    Raises
    ------
    InvalidArgumentError
        The type is not a float type.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.finfo("float32").bits
    32
    """
    with refusing("finfo"):
        return np.finfo(_dtype(_own_type(type)))


def iinfo(type: ArrayLike | DTypeLike, /) -> np.iinfo[Any]:
    """The limits of an integer type.

    Parameters
    ----------
    type : dtype-like or array
        The type, or an array of it.

    Returns
    -------
    numpy.iinfo

    Raises
    ------
    InvalidArgumentError
        The type is not an integer type.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.iinfo("int8").max
    127
    """
    with refusing("iinfo"):
        return np.iinfo(_dtype(_own_type(type)))


def _own_type(value: Any) -> Any:
    """Returns the element type of an array, and any other value unchanged."""
    return value if isinstance(value, type) else getattr(value, "dtype", value)


def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> bool:
    """Whether an element type belongs to a kind, such as ``"real floating"``.

    Parameters
    ----------
    dtype : dtype-like
        The type.
    kind : str, dtype-like or tuple of them
        A type, or ``"bool"``, ``"signed integer"``, ``"unsigned integer"``, ``"integral"``, ``"real floating"``,
        ``"complex floating"``, ``"numeric"``.

    Returns
    -------
    bool

    Raises
    ------
    InvalidArgumentError, DataTypeValidationError
        There is no such kind or type.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.isdtype("float32", "real floating"), cuzarr.xp.isdtype("int8", ("bool", "unsigned integer"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind not in TYPES:
        if kind not in _KINDS:
            raise InvalidArgumentError(f"kind is {kind!r}, expected one of {', '.join(_KINDS)}")
        return _dtype(dtype).kind in _KINDS[kind]
    return _dtype(dtype) == _dtype(kind)


def result_type(*arrays_and_dtypes: ArrayLike | DTypeLike) -> np.dtype[Any]:
    """The type that the operands are promoted to.

    Parameters
    ----------
    *arrays_and_dtypes : array, number or dtype-like
        Operands. Python numbers take the type of the others.

    Returns
    -------
    numpy.dtype

    Raises
    ------
    InvalidArgumentError, ArgumentTypeError
        There is no such type.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.result_type(cuzarr.xp.ones(2, "float32", device="cpu"), "int8", 1.5)
    dtype('float32')
    """
    given = map(_own_type, arrays_and_dtypes)
    with refusing("result_type"):
        return np.result_type(*given)


def can_cast(from_: ArrayLike | DTypeLike, to: DTypeLike) -> bool:
    """Whether one type can hold the elements of another, by the rules of promotion.

    Parameters
    ----------
    from_ : array or dtype-like
        The elements, or their type.
    to : dtype-like
        The other type.

    Returns
    -------
    bool

    Raises
    ------
    DataTypeValidationError
        There is no such type.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.can_cast("int8", "float32"), cuzarr.xp.can_cast("float64", "int8")
    (True, False)
    """
    return bool(np.can_cast(_dtype(_own_type(from_)), _dtype(to)))


def from_dlpack(x: ArrayLike, /, *, device: str | None = None, copy: bool | None = None) -> MemoryArray:
    """The memory of another library's array, without a copy if possible.

    Parameters
    ----------
    x : array
        An object with ``__dlpack__``.
    device : str, optional
        The wanted device; by default the device where the memory is.
    copy : bool, optional
        ``True`` always copies. With ``False``, a needed copy is an error.

    Returns
    -------
    array
        NumPy's on the host; on a GPU CuPy's if it is installed, else a :class:`cuzarr.DeviceArray`.

    Raises
    ------
    InvalidArgumentError
        ``copy=False`` forbids a copy that is needed.
    ArgumentTypeError
        ``x`` has no method ``__dlpack__``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.from_dlpack(np.arange(3.0))
    array([0., 1., 2.])
    """
    own = getattr(x, "device", None) if is_on_device(x) else "cpu"
    elements = asarray(x, device=("cpu" if own == "cpu" else None) if device is None else device)
    is_copy = device is not None and device_of(elements) != (own if own == "cpu" else device_of(x))
    if copy is False and is_copy:
        raise InvalidArgumentError(f"the array is on {own}, and copy=False forbids to copy it to {device}")
    return elements.copy() if copy and not is_copy else elements


def concat(arrays: Sequence[ArrayLike], /, *, axis: int | str | None = 0) -> MemoryArray:
    """Joins arrays along a dimension.

    Parameters
    ----------
    arrays : sequence of array
        Arrays in memory of any device, stored arrays, or plans. Their extents are equal except along ``axis``.
    axis : int, str or None
        The dimension, by number or name; ``None`` flattens arrays in memory in C order and joins them.

    Returns
    -------
    array or Expression
        As for :func:`cuzarr.xp.concatenate`.

    Raises
    ------
    ShapeMismatchError, InvalidArgumentError
        Extents differ; there are no arrays, or no such dimension.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.concat([cuzarr.xp.ones((1, 2), device="cpu"), cuzarr.xp.zeros((1, 2), device="cpu")])
    array([[1., 1.],
           [0., 0.]])
    """
    return concatenate(arrays, axis)


def reshape(x: ArrayLike, /, shape: int | Sequence[int], *, copy: bool | None = None) -> MemoryArray:
    """An array in memory with another shape. Its elements keep their C order.

    Parameters
    ----------
    x : array
        Elements in memory of any device.
    shape : int or sequence of int
        The new extents. One of them may be -1; it is computed from the others.
    copy : bool, optional
        ``True`` always copies. With ``False``, a needed copy is an error.

    Returns
    -------
    array
        A view if possible.

    Raises
    ------
    InvalidArgumentError
        The shape has another number of elements, or needs a copy that is forbidden.
    UnsupportedError
        The elements are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.reshape(np.arange(6), (2, -1))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    own = _memory(x, "reshape")
    wanted = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    with refusing("reshape"):
        reshaped = own.reshape(wanted)
        is_copy = own.size > 0 and not _share_memory(own, reshaped)
    if copy is False and is_copy:
        raise InvalidArgumentError(f"shape {own.shape} cannot become {wanted} without a copy")
    return reshaped.copy() if copy and not is_copy else reshaped  # type: ignore[no-any-return]


@_documented
def unstack(x: ArrayLike, /, *, axis: int | str = 0) -> tuple[Any, ...]:
    """The slices of an array along one dimension, each without that dimension.

    Parameters
    ----------
    axis : int or str
        The dimension, by number or name.

    Returns
    -------
    tuple of array or Expression

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.unstack(np.arange(4).reshape(2, 2), axis=1)
    (array([0, 2]), array([1, 3]))
    """
    own, place = _with_axis(x, axis, "unstack")
    return tuple(take(own, index, place) for index in range(own.shape[place]))


def broadcast_arrays(*arrays: ArrayLike) -> tuple[Any, ...]:
    """Arrays, each repeated to the shape that all of them broadcast to.

    Parameters
    ----------
    *arrays : array
        Elements in memory of any device, arrays in stores, or plans.

    Returns
    -------
    tuple of array or Expression
        As for :func:`cuzarr.xp.broadcast_to`.

    Raises
    ------
    ShapeMismatchError
        The shapes do not fit together.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> [part.shape for part in cuzarr.xp.broadcast_arrays(np.ones((2, 1)), np.ones(3))]
    [(2, 3), (2, 3)]
    """
    own = [array(x, "broadcast_arrays") for x in arrays]
    shapes = [tuple(x.shape) for x in own]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeMismatchError(f"broadcast_arrays: shapes {shapes} do not fit together") from None
    return tuple(broadcast_to(x, shape) for x in own)


@_documented
def repeat(x: ArrayLike, repeats: int | Sequence[int], /, *, axis: int | str | None = None) -> MemoryArray:
    """The array with each element along a dimension repeated.

    Parameters
    ----------
    repeats : int or sequence of int
        Number of repetitions: one number, or one for each element of the dimension.
    axis : int, str or None
        The dimension, by number or name; ``None`` flattens an array in memory in C order.

    Returns
    -------
    array or Expression
        As for :func:`cuzarr.xp.take`.

    Raises
    ------
    InvalidArgumentError
        There is no such dimension, a number is negative, or there is not one number for each element.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.repeat(np.array([1, 2, 3]), [2, 0, 1])
    array([1, 1, 3])
    """
    own, place = _with_axis(reshape(x, (-1,)) if axis is None else x, 0 if axis is None else axis, "repeat")
    with refusing("repeat"):
        indices = np.repeat(np.arange(own.shape[place]), host_array(on_host(repeats), "repeats"))
    return take(own, indices, place)  # type: ignore[no-any-return]


@_documented
def roll(x: Any, /, shift: int | Sequence[int], *, axis: int | str | Sequence[int | str] | None = None) -> MemoryArray:
    """The elements, shifted cyclically along dimensions. Elements that are shifted beyond one end enter at the other end.

    Parameters
    ----------
    shift : int or sequence of int
        Number of positions, for each of the dimensions.
    axis : int, str, sequence of them or None
        The dimensions, by number or name; ``None`` shifts all elements of an array in memory, in C order.

    Returns
    -------
    array or Expression
        As for :func:`cuzarr.xp.concatenate`.

    Raises
    ------
    InvalidArgumentError
        There is no such dimension; there are more shifts than dimensions.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.roll(np.arange(5), 2)
    array([3, 4, 0, 1, 2])
    """
    if axis is None:
        own = _memory(x, "roll")
        return reshape(roll(reshape(own, (-1,)), shift, axis=0), own.shape)
    axes: list[Any] = list(axis) if isinstance(axis, list | tuple) else [axis]
    shifts = list(shift) if isinstance(shift, list | tuple) else [shift] * len(axes)
    if len(shifts) != len(axes):
        raise InvalidArgumentError(f"roll: got {len(shifts)} shifts for {len(axes)} dimensions")
    for places, one in zip(shifts, axes, strict=True):
        x, place = _with_axis(x, one, "roll")
        extent = x.shape[place]
        moved = whole(places, "shift") % extent if extent else 0
        x = take(x, (np.arange(extent) - moved) % max(extent, 1), place)
    return x  # type: ignore[no-any-return]


@_documented
def tile(x: ArrayLike, repetitions: Sequence[int], /) -> MemoryArray:
    """The array, repeated side by side.

    Parameters
    ----------
    repetitions : sequence of int
        Number of repetitions along each dimension, counted from the last. With more numbers, the array gets new dimensions in front.

    Returns
    -------
    array or Expression
        As for :func:`cuzarr.xp.take`.

    Raises
    ------
    InvalidArgumentError, ArgumentTypeError
        A number is negative, or not a whole number.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.tile(np.array([1, 2]), (2, 2))
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    own = array(x, "tile")
    times = [whole(one, "repetitions", 0) for one in repetitions]
    missing = max(len(times) - len(own.shape), 0)
    own = broadcast_to(own, (1,) * missing + tuple(own.shape)) if missing else own
    for place, one in zip(reversed(range(len(own.shape))), reversed(times), strict=False):
        own = own if one == 1 else take(own, np.tile(np.arange(own.shape[place]), one), place)
    return own  # type: ignore[no-any-return]


def nonzero(x: ArrayLike, /) -> tuple[Any, ...]:
    """The indices of the elements that are not zero: one array for each dimension, in C order.

    Parameters
    ----------
    x : array
        Elements in memory of any device, of one dimension or more.

    Returns
    -------
    tuple of array
        Indices, on the device of ``x``.

    Raises
    ------
    UnsupportedError
        The elements are in a store, or yet to be computed.
    InvalidArgumentError
        There are no dimensions.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.nonzero(np.array([[0, 2], [3, 0]]))
    (array([0, 1]), array([1, 0]))
    """
    own = _memory(x, "nonzero")
    if not own.shape:
        raise InvalidArgumentError("nonzero: the array has no dimensions", hint="reshape it: x.reshape(1)")
    if not is_on_device(own):
        return np.nonzero(host_array(own, "nonzero"))
    numbers = device_array(own != 0)._buffer.nonzero()
    if numbers.device == "cpu":
        return np.unravel_index(numpy_view(numbers, np.dtype("i8")), tuple(own.shape))
    rest, found = DeviceArray(numbers, np.dtype("i8")), []
    for extent in reversed(own.shape[1:]):
        rest, index = rest // extent, rest % extent
        found.append(index)
    return tuple(like(index, own) for index in (rest, *reversed(found)))


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> MemoryArray:
    """The logarithm of the sum of exponentials, ``log(exp(x1) + exp(x2))``, without overflow.

    Parameters
    ----------
    x1, x2 : array or number
        Real numbers in memory of any device, an array in a store, or a plan. Shapes are broadcast.

    Returns
    -------
    array or Expression
        Floats on the device of the operands; a plan if one of them is a stored array or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements are not real numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.logaddexp(np.array([0.0, 1000.0]), 0.0).round(4)
    array([6.931e-01, 1.000e+03])
    """
    first, second = (_as_float(x, other, "logaddexp") for x, other in ((x1, x2), (x2, x1)))
    largest = elementwise.maximum(first, second)
    distance = elementwise.abs(elementwise.subtract(first, second))
    sums = elementwise.add(largest, elementwise.log1p(elementwise.exp(elementwise.negative(distance))))
    # The difference of two infinities of the same sign is NaN.
    return elementwise.where(elementwise.equal(first, second), elementwise.add(largest, math.log(2)), sums)  # type: ignore[no-any-return]


def _as_float(x: Any, beside: Any, name: str) -> Any:
    """Converts an operand of real numbers to elements of a float type. A Python number takes the type of the other operand; integers of 8
    bits become bfloat16 beside bfloat16."""
    if isinstance(x, int | float) and not isinstance(x, bool):
        return float(x)
    x = array(x, name)
    own = element_type(x)
    if own.kind not in "biuf" and own.name != "bfloat16":
        raise DTypeMismatchError(f"{name}: elements of {own} are no real numbers")
    if own.kind not in "biu":
        return x
    other = getattr(beside, "dtype", own)
    is_small = own.itemsize == 1 and isinstance(other, np.dtype) and other.name == "bfloat16"
    return elementwise.astype(x, other if is_small else np.logaddexp.resolve_dtypes((own, own, None))[2])


def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> MemoryArray:
    """The next float after each element of ``x1``, in the direction of ``x2``.

    Parameters
    ----------
    x1, x2 : array or number
        Floats of one type in memory of any device. Shapes are broadcast.

    Returns
    -------
    array
        New memory, on the device of the arrays.

    Raises
    ------
    DTypeMismatchError
        The elements are not floats of 2, 4 or 8 bytes.
    UnsupportedError
        The elements are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.nextafter(np.array([1.0, 0.0]), 2.0) - np.array([1.0, 0.0])
    array([2.22044605e-016, 4.94065646e-324])
    """
    dtype = result_type(*(float(x) if isinstance(x, float | int) else _memory(x, "nextafter") for x in (x1, x2)))
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise DTypeMismatchError(f"nextafter: elements are {dtype}, expected floats of 2, 4 or 8 bytes")
    if not any(is_on_device(x) for x in (x1, x2)):
        with refusing("nextafter"):
            return np.nextafter(host_array(x1, "nextafter"), host_array(x2, "nextafter"), dtype=dtype)  # type: ignore[no-any-return]
    device = device_among((x1, x2))
    given = (DeviceArray.from_host(np.array(x, dtype), device) if isinstance(x, float | int) else x for x in (x1, x2))
    own, other = (device_array(x).astype(dtype, copy=False) for x in broadcast_arrays(*given))
    bits = np.dtype(f"i{dtype.itemsize}")
    # Among floats of one sign, the bits read as integers have the order of the floats.
    is_away = apply("equal", other > own, own > 0)
    next_bits = device_array(own.view(bits) + apply("where", is_away, 1, -1)).astype(bits, copy=False)
    least = DeviceArray.from_host(np.array(1, bits).view(dtype), device)
    from_zero = apply("where", other > 0, least, -least)
    moved = apply("where", own == 0, from_zero, next_bits.view(dtype))
    is_nan = apply("logical_or", apply("isnan", own), apply("isnan", other))
    return like(apply("where", is_nan, own + other, apply("where", own == other, other, moved)), x1 if is_on_device(x1) else x2)  # type: ignore[no-any-return]


@_documented
def positive(x: ArrayLike, /) -> MemoryArray:
    """The elements, unchanged.

    Raises
    ------
    DTypeMismatchError
        The elements have no arithmetic.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.positive(np.array([1, -2]))
    array([ 1, -2])
    """
    own = +array(x, "positive")
    return plan(own) if isinstance(own, Lazy) else own  # type: ignore[no-any-return]


@_documented
def reciprocal(x: ArrayLike, /) -> MemoryArray:
    """One divided by each element.

    Parameters
    ----------
    x : array
        Elements in memory of any device, a stored array, or a plan. For integers, the results are integers, rounded towards 0 as in NumPy.

    Raises
    ------
    DTypeMismatchError
        The elements have no arithmetic.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.reciprocal(np.array([2.0, 4.0]))
    array([0.5 , 0.25])
    """
    own = array(x, "reciprocal")
    quotients, dtype = apply("divide", 1, own), element_type(own)
    if dtype.kind not in "biu":
        return quotients  # type: ignore[no-any-return]
    with np.errstate(invalid="ignore"):  # of 0, as for NumPy's arrays
        return elementwise.astype(quotients, "int8" if dtype.kind == "b" else dtype)  # type: ignore[no-any-return]


def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> MemoryArray:
    """The vector dot product of two arrays: the sum of the products of elements along a dimension. Complex elements of ``x1`` are
    conjugated.

    Parameters
    ----------
    x1, x2 : array
        Elements in memory of any device, arrays in stores, or plans. Shapes are broadcast.
    axis : int
        The dimension as a negative number, counted from the last one.

    Returns
    -------
    array or Expression
        An array on the device of the arrays; a plan if one of them is a stored array or a plan.

    Raises
    ------
    ShapeMismatchError
        Shapes do not fit together.
    InvalidArgumentError
        There is no such dimension.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.vecdot(np.ones((2, 3)), np.arange(3.0))
    array([3., 3.])
    """
    first, second = array(x1, "vecdot"), array(x2, "vecdot")
    extents = first.shape[axis_number(axis, len(first.shape))], second.shape[axis_number(axis, len(second.shape))]
    if extents[0] != extents[1]:
        raise ShapeMismatchError(f"vecdot: dimensions have {extents[0]} and {extents[1]} elements")
    products = apply("multiply", apply("conjugate", first) if first.dtype.kind == "c" else first, second)
    return elementwise.astype(reduce("sum", products, axis), products.dtype, copy=False)  # type: ignore[no-any-return]


def _memory(x: Any, name: str) -> Any:
    refuse_lazy(x, name)
    return array(x, name)


def _with_axis(x: Any, axis: int | str, name: str) -> tuple[Any, int]:
    own = array(x, name)
    return own, axis_number(axis, len(own.shape), dimension_names(own))


def _share_memory(x: Any, y: Any) -> bool:
    if isinstance(x, np.ndarray):
        return np.may_share_memory(x, y)
    return device_buffer(x).address == device_buffer(y).address


_names.list_public(globals())

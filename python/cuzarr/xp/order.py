"""Functions that depend on the order of elements in memory: sorting, sets, searches. On a GPU they use a radix sort.

>>> import cuzarr, numpy as np
>>> cuzarr.xp.sort(np.array([2.0, np.nan, 1.0]))
array([ 1.,  2., nan])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cuzarr import _names
from cuzarr._checks import axis_of, refusing
from cuzarr._compute.evaluate import apply
from cuzarr._docstrings import completing
from cuzarr._memory.device_array import DeviceArray, device_array
from cuzarr._memory.foreign import device_of, is_on_device
from cuzarr.errors import BoundsCheckError, InvalidArgumentError, SelectionInvalidError, ShapeMismatchError, UnsupportedError
from cuzarr.xp.arguments import along, in_memory, like
from cuzarr.xp.cumulative import cumsum
from cuzarr.xp.shapes import concatenate, diff
from cuzarr.xp.standard import result_type

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, MemoryArray

__all__ = [
    "argsort", "searchsorted", "sort", "take_along_axis", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip

_documented = completing(
    {
        "x": "x : array\n    Elements in memory of any device; on a GPU bools, real numbers or dates.",
        "axis": "axis : int, str or None\n    The dimension; ``None`` takes all elements, in C order.",
        "descending": "descending : bool\n    Whether the largest element comes first.",
        "stable": "stable : bool\n    Equal elements always keep their order; the standard has this argument.",
    },
    raises="UnsupportedError\n    The elements are in a store or yet to be computed, or a GPU does not sort their type.",
)


class UniqueAll(NamedTuple):
    """The distinct elements of an array, their first positions, the inverse and the counts: the result of :func:`unique_all`.

    Attributes
    ----------
    values : array
        The distinct elements, sorted.
    indices : array
        Position of the first occurrence of each, counted in C order.
    inverse_indices : array
        For each element of the array, its position in ``values``.
    counts : array
        Number of occurrences of each.
    """

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The distinct elements of an array, and the count of each: the result of :func:`unique_counts`.

    Attributes
    ----------
    values : array
        The distinct elements, sorted.
    counts : array
        Number of occurrences of each.
    """

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The distinct elements of an array, and for every element the index of its value: the result of :func:`unique_inverse`.

    Attributes
    ----------
    values : array
        The distinct elements, sorted.
    inverse_indices : array
        For each element of the array, its position in ``values``.
    """

    values: Any
    inverse_indices: Any


@_documented
def argsort(x: ArrayLike, axis: int | str | None = -1, *, descending: bool = False, stable: bool = True) -> MemoryArray:
    """The indices that sort the elements along a dimension. NaN comes last, or first in descending order.

    Returns
    -------
    array
        Indices of int64, on the device of ``x``.

    Raises
    ------
    UnsupportedError
        The elements are in a store or yet to be computed, or a GPU does not sort their type.
    InvalidArgumentError
        There is no such dimension.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.argsort(np.array([3, 1, 2]))
    array([1, 2, 0])
    """
    own, place = along(x, axis_of(axis, in_memory(x, "argsort").ndim), "argsort")
    return like(_order(own, place, descending), x)  # type: ignore[no-any-return]


@_documented
def sort(x: ArrayLike, axis: int | str | None = -1, *, descending: bool = False, stable: bool = True) -> MemoryArray:
    """The elements, sorted along a dimension, in new memory. NaN comes last, or first in descending order.

    Returns
    -------
    array
        The sorted elements, on the device of ``x``.

    Raises
    ------
    UnsupportedError
        The elements are in a store or yet to be computed, or a GPU does not sort their type.
    InvalidArgumentError
        There is no such dimension.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.sort(np.array([[3, 1, 2]]), descending=True)
    array([[3, 2, 1]])
    """
    own, place = along(x, axis, "sort")
    if isinstance(own, np.ndarray) and not descending:
        return np.sort(own, axis=place, kind="stable")  # type: ignore[return-value]
    return like(_gathered(own, place, _order(own, place, descending)), x)  # type: ignore[no-any-return]


def _order(own: np.ndarray[Any, Any] | DeviceArray, axis: int, is_descending: bool) -> Any:
    if isinstance(own, np.ndarray):
        if not is_descending:
            return np.argsort(own, axis=axis, kind="stable")
        reverse = np.argsort(np.flip(own, axis), axis=axis, kind="stable")
        return own.shape[axis] - 1 - np.flip(reverse, axis)
    kind = own.dtype.kind
    if kind not in "biufmM" and own.dtype.name != "bfloat16" or not own.dtype.isnative:
        raise UnsupportedError(f"a GPU does not sort elements of {own.dtype}", hint="sort them on the host: x.cpu()")
    # NaT, the smallest of all dates as an integer, comes last.
    numbers: DeviceArray = own.view("i8") - 1 if kind in "mM" else own
    return DeviceArray(numbers._buffer.argsort(axis, is_descending), np.dtype("i8"))


def _at(order: DeviceArray, values: DeviceArray) -> DeviceArray:
    """Reorders ``values``, one for each element of a sorted array, to the order that the elements had before sorting. ``order`` has the
    indices that sorted them."""
    places = DeviceArray.empty(values.shape, values.dtype, values.device)
    places._buffer.scatter(0, order._buffer, values._buffer)
    return places


def _gathered(own: np.ndarray[Any, Any] | DeviceArray, axis: int, indices: Any) -> Any:
    return np.take_along_axis(own, indices, axis) if isinstance(own, np.ndarray) else own._gathered(axis, indices)


def take_along_axis(x: ArrayLike, indices: ArrayLike, axis: int | str | None = -1) -> MemoryArray:
    """The elements at given indices along a dimension; each line along the dimension has its own indices.

    Parameters
    ----------
    x : array
        Elements in memory of any device.
    indices : array of int
        Indices, with as many dimensions as ``x``; other extents are broadcast. Negative ones count from the end. For an array on a GPU
        they may be on that GPU or on the host.
    axis : int, str or None
        The dimension; ``None`` flattens ``x`` in C order, and takes indices of one dimension.

    Returns
    -------
    array
        New memory, on the device of ``x``.

    Raises
    ------
    BoundsCheckError
        An index is outside the dimension.
    SelectionInvalidError
        Indices are not whole numbers, or have another number of dimensions.
    ShapeMismatchError
        The extents along the other dimensions do not fit.
    UnsupportedError
        The elements are in a store, or yet to be computed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.take_along_axis(np.array([[5, 7], [6, 8]]), np.array([[1], [0]]), axis=1)
    array([[7],
           [6]])
    """
    own, place = along(x, axis, "take_along_axis")
    by = in_memory(indices, "take_along_axis")
    if by.dtype.kind not in "iu":
        raise SelectionInvalidError(f"take_along_axis: indices have elements of {by.dtype}, expected whole numbers")
    if by.ndim != own.ndim:
        raise SelectionInvalidError(f"take_along_axis: indices have {by.ndim} dimensions, expected {own.ndim}")
    shapes = [(*array.shape[:place], 1, *array.shape[place + 1 :]) for array in (own, by)]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        message = f"take_along_axis: indices of shape {by.shape} do not fit elements of shape {own.shape}"
        raise ShapeMismatchError(message) from None
    if isinstance(own, np.ndarray):
        if not isinstance(by, np.ndarray):
            raise UnsupportedError("take_along_axis: indices are on a GPU, elements on the host", hint="pass indices.cpu()")
        try:
            return np.take_along_axis(own, by, place)  # type: ignore[return-value]
        except IndexError as error:
            raise BoundsCheckError(f"take_along_axis: {error}") from None
    there = by if isinstance(by, DeviceArray) else DeviceArray.from_host(by.astype("i8"), own.device)
    wanted, listed = ((*shape[:place], array.shape[place], *shape[place + 1 :]) for array in (own, there))
    own = _repeated(own, wanted)
    there = there.astype("i8", copy=False)
    there = _repeated(there, listed)
    return like(own._gathered(place, there), x)  # type: ignore[no-any-return]


def _repeated(own: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """Elements of any type, repeated along dimensions of extent 1 to fill ``shape``."""
    if own.shape == shape:
        return own
    repeated = DeviceArray.empty(shape, own.dtype, own.device)
    repeated[...] = own
    return repeated


def _unique(x: Any, name: str) -> tuple[Any, ...]:
    """The distinct values in sorted order, the first position of each, for every element the index of its value, and the count of each
    value."""
    own = in_memory(x, name)
    flat = own.reshape(-1)
    if isinstance(flat, np.ndarray):
        values, first, inverse, counts = np.unique(
            flat, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
        )
        return values, first, inverse.reshape(own.shape), counts
    order = _order(flat, 0, False)
    ordered = flat._gathered(0, order)
    # NaN differs from itself, so each NaN counts separately.
    differ = apply("not_equal", ordered[1:], ordered[:-1])
    begins = concatenate([DeviceArray.from_host(np.ones(min(flat.size, 1), bool), flat.device), differ])
    starts = DeviceArray(begins._buffer.nonzero(), np.dtype("i8"))  # type: ignore[attr-defined]
    counts = diff(concatenate([starts, DeviceArray.from_host(np.array([flat.size]), flat.device)]))  # type: ignore[assignment]
    places = _at(order, cumsum(begins) - 1).reshape(own.shape)  # type: ignore[arg-type]
    return ordered._gathered(0, starts), order._gathered(0, starts), places, counts


@_documented
def unique_all(x: ArrayLike, /) -> UniqueAll:
    """The distinct elements of an array, sorted, with positions and counts. Each NaN counts as a separate element.

    Returns
    -------
    UniqueAll
        ``values``, ``indices``, ``inverse_indices`` and ``counts``, on the device of ``x``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> found = cuzarr.xp.unique_all(np.array([3, 1, 3]))
    >>> found.values, found.indices, found.inverse_indices, found.counts
    (array([1, 3]), array([1, 0]), array([1, 0, 1]), array([1, 2]))
    """
    return UniqueAll(*(like(part, x) for part in _unique(x, "unique_all")))


@_documented
def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct elements of an array, sorted, and the number of occurrences of each. Each NaN counts as a separate element.

    Returns
    -------
    UniqueCounts
        ``values`` and ``counts``, on the device of ``x``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> found = cuzarr.xp.unique_counts(np.array([3, 1, 3]))
    >>> found.values, found.counts
    (array([1, 3]), array([1, 2]))
    """
    values, _, _, counts = _unique(x, "unique_counts")
    return UniqueCounts(like(values, x), like(counts, x))


@_documented
def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct elements of an array, sorted, and for every element of the array its position among them. Each NaN counts as a separate
    element.

    Returns
    -------
    UniqueInverse
        ``values`` and ``inverse_indices``, on the device of ``x``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> found = cuzarr.xp.unique_inverse(np.array([3, 1, 3]))
    >>> found.values[found.inverse_indices]
    array([3, 1, 3])
    """
    values, _, inverse, _ = _unique(x, "unique_inverse")
    return UniqueInverse(like(values, x), like(inverse, x))


@_documented
def unique_values(x: ArrayLike, /) -> MemoryArray:
    """The distinct elements of an array, sorted. Each NaN counts as a separate element.

    Returns
    -------
    array
        One dimension, on the device of ``x``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.unique_values(np.array([3, 1, 3]))
    array([1, 3])
    """
    return like(_unique(x, "unique_values")[0], x)  # type: ignore[no-any-return]


def searchsorted(
    x1: ArrayLike, x2: ArrayLike, side: Literal["left", "right"] = "left", sorter: ArrayLike | None = None
) -> MemoryArray:
    """The positions at which elements can be inserted into a sorted array so that it stays sorted.

    On a GPU, both arrays are sorted together: for few elements and a large array, `numpy.searchsorted` on the host is faster.

    Parameters
    ----------
    x1 : array
        Sorted elements of one dimension, in memory of any device.
    x2 : array or number
        The elements to insert, on the same device.
    side : {"left", "right"}
        Position before (``"left"``) or behind (``"right"``) equal elements.
    sorter : array of int, optional
        Indices that sort ``x1``, if it is not sorted.

    Returns
    -------
    array
        Indices of int64 with the shape of ``x2``, on the device of the arrays.

    Raises
    ------
    InvalidArgumentError
        There is no such side, or ``x1`` has another number of dimensions.
    UnsupportedError
        The elements are in a store or yet to be computed, or a GPU does not sort their type.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.searchsorted(np.array([1, 3, 5]), np.array([0, 3, 9]))
    array([0, 1, 3])
    """
    if side not in ("left", "right"):
        raise InvalidArgumentError(f"side is {side!r}, expected 'left' or 'right'")
    own, asked = in_memory(x1, "searchsorted"), in_memory(x2, "searchsorted")
    if own.ndim != 1:
        raise InvalidArgumentError(f"searchsorted: x1 has {own.ndim} dimensions, expected 1")
    own = own if sorter is None else take_along_axis(own, sorter, 0)  # type: ignore[assignment]
    if isinstance(own, np.ndarray) and isinstance(asked, np.ndarray):
        with refusing("searchsorted"):
            return np.searchsorted(own, asked, side)  # type: ignore[return-value]
    dtype = result_type(own, asked if asked.ndim else x2)
    flat = asked.reshape(-1)
    count = flat.size
    if isinstance(flat, np.ndarray) and not asked.ndim:  # a number of Python's
        flat = DeviceArray.from_host(flat.astype(dtype), device_of(own))
    # The sort is stable. So elements of `x2` come before equal ones of `x1` for "left", and behind them for "right". The position of an
    # element of `x2` is the number of elements of `x1` before it.
    parts = [flat, own] if side == "left" else [own, flat]
    order = _order(device_array(concatenate(parts)).astype(dtype, copy=False), 0, False)
    before = cumsum(apply("greater_equal", order, count) if side == "left" else apply("less", order, own.size))
    places = _at(order, before)
    places = places[:count] if side == "left" else places[own.size :]
    return like(places.reshape(asked.shape), x1 if is_on_device(x1) else x2)  # type: ignore[no-any-return]


_names.list_public(globals())

"""Functions that rearrange dimensions and select elements, with NumPy's names.

For arrays in memory, of any library, they return new elements at once, on the same device. For a stored array, or a plan, they
return a plan, which reads only the selected elements.

>>> import cuzarr, numpy as np
>>> z = cuzarr.array(np.arange(6).reshape(2, 3), store={}, chunks=(1, 3))
>>> cuzarr.xp.flip(z, axis=1).compute()
array([[2, 1, 0],
       [5, 4, 3]])
>>> cuzarr.xp.diff(z).compute()
array([[1, 1],
       [1, 1]])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core, _names
from cuzarr._checks import Axis, axes_of, axis_number, axis_of, extents, items, whole
from cuzarr._compute.evaluate import apply, finished, joined, plan
from cuzarr._compute.operands import device_among, dimension_names, made, operand
from cuzarr._docstrings import completing
from cuzarr._memory.device_array import device_array
from cuzarr._memory.foreign import device_of, element_type, host_array, is_on_device
from cuzarr._operators.dispatch import Lazy
from cuzarr.errors import BoundsCheckError, InvalidArgumentError, SelectionInvalidError, ShapeMismatchError, UnsupportedError
from cuzarr.xp.arguments import LIKE_X, NO_DIMENSION, X, like, planned, planned_list
from cuzarr.xp.creation import asarray

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike

__all__ = [
    "broadcast_to", "concatenate", "diff", "expand_dims", "flip", "matrix_transpose", "moveaxis", "permute_dims", "squeeze", "stack",
    "swapaxes", "take", "transpose",
]  # fmt: skip

_documented = completing({"x": X}, LIKE_X, NO_DIMENSION)

_Along = list[int | tuple[int, int, int] | np.ndarray[Any, np.dtype[np.uint64]]]
_Dims = list[tuple[int | None, int]]


class _Source:
    """An array in memory, stored array or plan, from which a function selects elements and dimensions."""

    def __init__(self, x: Any, name: str) -> None:
        self.x = x if hasattr(x, "shape") else host_array(x, name)
        self.device = device_among((self.x,))
        own = operand(self.x, self.device, name)
        assert isinstance(own, _core.Expr)
        self.expr, self.shape = own, tuple(own.shape)
        self.names = dimension_names(self.x)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def axes(self, axis: Axis | Iterable[int | str]) -> list[int]:
        """Converts dimensions of the source, given by number or name, to numbers; ``None`` stands for all. Refuses a dimension that is
        given twice."""
        found = axes_of(axis, self.ndim, self.names)
        found = list(range(self.ndim)) if found is None else found
        if len(set(found)) != len(found):
            raise InvalidArgumentError(f"axis is {axis!r}, which names a dimension twice")
        return found

    def all(self) -> _Along:
        """Makes selectors, for ``picked``, that take all elements along each dimension of the source."""
        return [(0, extent, 1) for extent in self.shape]

    def same(self) -> _Dims:
        """Describes, for ``picked``, a result that has the dimensions of the source in the same order."""
        return [(axis, 0) for axis in range(self.ndim)]

    def picked(self, along: _Along, dims: _Dims) -> Any:
        """Selects elements and dimensions of the source: returns a plan if the source is a stored array or a plan, else the elements."""
        names = self.names and tuple(None if axis is None else self.names[axis] for axis, _ in dims)
        return finished("picked", (along, dims), self.expr, (self.x, self.device), names)

    def range(self, axis: int, start: int, count: int) -> Any:
        """Selects ``count`` elements of the source along the dimension ``axis``, from the index ``start`` on."""
        along = self.all()
        along[axis] = (start if count else 0, count, 1)
        return self.picked(along, self.same())


@planned
@_documented
def transpose(x: Any, axes: Sequence[int | str] | None = None) -> Any:
    """The array with its dimensions in another order.

    Parameters
    ----------
    axes : sequence of int or str, optional
        For each dimension of the result, the source dimension, by number or name. By default all are reversed.

    Raises
    ------
    InvalidArgumentError
        A dimension is missing or is named twice.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.transpose(cuzarr.zeros((2, 3, 4), store={}), (1, 2, 0)).shape
    (3, 4, 2)
    """
    source = _Source(x, "transpose")
    order = source.axes(axes) if axes is not None else list(range(source.ndim))[::-1]
    if len(order) != source.ndim:
        raise InvalidArgumentError(f"axes {axes!r} do not name each of {source.ndim} dimensions once")
    return source.picked(source.all(), [(axis, 0) for axis in order])


@planned
def permute_dims(x: Any, axes: Sequence[int | str] | None = None) -> Any:
    """The array with its dimensions in another order: the array API standard's name for :func:`transpose`.

    Parameters
    ----------
    x, axes
        As for :func:`transpose`.

    Returns
    -------
    array or Expression
        As for :func:`transpose`.

    Raises
    ------
    InvalidArgumentError
        A dimension is missing or is named twice.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.permute_dims(cuzarr.zeros((2, 3), store={}), (1, 0)).shape
    (3, 2)
    """
    return transpose(x, axes)


@planned
@_documented
def matrix_transpose(x: Any) -> Any:
    """The array with its last two dimensions exchanged.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan; of two dimensions or more.

    Raises
    ------
    InvalidArgumentError
        ``x`` has fewer than two dimensions.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.matrix_transpose(cuzarr.zeros((2, 3, 4), store={})).shape
    (2, 4, 3)
    """
    return swapaxes(x, -1, -2)


@planned
@_documented
def swapaxes(x: Any, axis1: int | str, axis2: int | str) -> Any:
    """The array with two dimensions exchanged.

    Parameters
    ----------
    axis1, axis2 : int or str
        The dimensions, by number or name.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.swapaxes(cuzarr.zeros((2, 3, 4), store={}), 0, 2).shape
    (4, 3, 2)
    """
    source = _Source(x, "swapaxes")
    (first,), (second,) = source.axes(axis1), source.axes(axis2)
    order = list(range(source.ndim))
    order[first], order[second] = second, first
    return source.picked(source.all(), [(axis, 0) for axis in order])


@planned
@_documented
def moveaxis(x: Any, source: int | str | Sequence[int | str], destination: int | Sequence[int]) -> Any:
    """The array with some dimensions moved to other positions; the others keep their order.

    Parameters
    ----------
    source : int, str or sequence of them
        Dimensions to move, by number or name.
    destination : int or sequence of int
        The new position of each.

    Raises
    ------
    InvalidArgumentError
        A dimension or position does not exist or is named twice, or ``source`` and ``destination`` have different lengths.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.moveaxis(cuzarr.zeros((2, 3, 4), store={}), 0, -1).shape
    (3, 4, 2)
    """
    own = _Source(x, "moveaxis")
    moved, places = own.axes(source), own.axes(destination)
    if len(moved) != len(places):
        raise InvalidArgumentError(f"moveaxis: got {len(moved)} dimensions and {len(places)} places")
    order = [axis for axis in range(own.ndim) if axis not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return own.picked(own.all(), [(axis, 0) for axis in order])


@planned
@_documented
def squeeze(x: Any, axis: Axis = None) -> Any:
    """The array without its dimensions of extent 1.

    Parameters
    ----------
    axis : int, str or tuple of them, optional
        Dimensions to leave out; by default all of extent 1.

    Raises
    ------
    ShapeMismatchError
        A dimension has another extent.
    InvalidArgumentError
        There is no such dimension.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.squeeze(cuzarr.zeros((1, 3, 1), store={})).shape
    (3,)
    """
    source = _Source(x, "squeeze")
    axis = axis_of(axis, source.ndim)
    gone = [own for own in source.axes(axis) if axis is not None or source.shape[own] == 1]
    for own in gone:
        if source.shape[own] != 1:
            raise ShapeMismatchError(f"squeeze: dimension {own} has extent {source.shape[own]}, expected 1")
    along: _Along = [0 if own in gone else (0, extent, 1) for own, extent in enumerate(source.shape)]
    return source.picked(along, [dim for dim in source.same() if dim[0] not in gone])


@planned
@_documented
def expand_dims(x: Any, axis: int | Sequence[int]) -> Any:
    """The array with additional dimensions of extent 1.

    Parameters
    ----------
    axis : int or sequence of int
        Positions of the new dimensions in the result.

    Raises
    ------
    InvalidArgumentError
        There is no such position, or it is named twice.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.xp.expand_dims(cuzarr.zeros((3,), store={}), (0, -1)).shape
    (1, 3, 1)
    """
    source = _Source(x, "expand_dims")
    asked = list(axis) if isinstance(axis, Iterable) else [axis]
    places = axes_of(asked, source.ndim + len(asked)) or []
    if len(set(places)) != len(places):
        raise InvalidArgumentError(f"axis is {axis!r}, which names a dimension twice")
    dims = source.same()
    for place in sorted(places):
        dims.insert(place, (None, 1))
    return source.picked(source.all(), dims)


@planned
@_documented
def broadcast_to(x: Any, shape: int | Sequence[int]) -> Any:
    """The elements repeated along new dimensions, and along those of extent 1.

    Parameters
    ----------
    shape : int or sequence of int
        The shape of the result.

    Raises
    ------
    ShapeMismatchError
        The elements do not broadcast to the shape.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.broadcast_to(cuzarr.array(np.array([1, 2]), store={}), (2, 2)).compute()
    array([[1, 2],
           [1, 2]])
    """
    source = _Source(x, "broadcast_to")
    asked = extents(shape)
    fitting = zip(source.shape[::-1], asked[::-1], strict=False)
    if len(asked) < source.ndim or any(own not in (1, extent) for own, extent in fitting):
        raise ShapeMismatchError(f"elements of shape {source.shape} do not broadcast to {asked}")
    missing = len(asked) - source.ndim
    along: _Along = []
    dims: _Dims = [(None, extent) for extent in asked[:missing]]
    for axis, (own, extent) in enumerate(zip(source.shape, asked[missing:], strict=True)):
        along.append(0 if own != extent else (0, own, 1))
        dims.append((None, extent) if own != extent else (axis, 0))
    return source.picked(along, dims)


@planned_list
def concatenate(arrays: Any, axis: int | str | None = 0) -> Any:
    """Joins arrays along an existing dimension. Element types are promoted as in NumPy.

    Parameters
    ----------
    arrays : sequence of array
        Arrays in memory of any device, stored arrays, or plans, also mixed. Their extents are equal except along ``axis``.
    axis : int, str or None
        The dimension, by number or name; ``None`` flattens the arrays in C order and joins them.

    Returns
    -------
    array or Expression
        A plan if one of them is a stored array or a plan; else an array on their device.

    Raises
    ------
    ShapeMismatchError
        Other extents differ.
    InvalidArgumentError
        There are no arrays, or there is no such dimension.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.array(np.arange(3), store={}, chunks=2)
    >>> cuzarr.xp.concatenate([z, [7.5], z * 2]).compute()
    array([0. , 1. , 2. , 7.5, 0. , 2. , 4. ])
    """
    parts = _parts(arrays, "concatenate")
    if axis is None:
        return joined(tuple(_in_a_row(one) for one in parts), 0)
    ndim = len(parts[0].shape)
    if not ndim:
        raise InvalidArgumentError("concatenate: arrays of 0 dimensions have none along which to join", hint="use stack")
    names = next((found for one in parts if (found := dimension_names(one)) is not None), None)
    return joined(parts, axis_number(axis, ndim, names if names and len(names) == ndim else None))


def _in_a_row(x: Any) -> Any:
    """Flattens an array or a plan in C order."""
    if not isinstance(x, Lazy):
        return x.reshape(-1)
    elements = plan(x)
    return finished("flat", (), made("", (elements,), ()), (elements, "cpu"))


@planned_list
def stack(arrays: Any, axis: int = 0) -> Any:
    """Joins arrays of one shape along a new dimension.

    Parameters
    ----------
    arrays : sequence of array
        Elements in memory of any device, arrays in stores, or plans, also mixed.
    axis : int
        Position of the new dimension in the result.

    Returns
    -------
    array or Expression
        A plan if one of them is a stored array or a plan; else an array on their device.

    Raises
    ------
    ShapeMismatchError
        Shapes differ.
    InvalidArgumentError
        There are no arrays, or there is no such position.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.array(np.arange(2), store={})
    >>> cuzarr.xp.stack([z, z + 10], axis=1).compute()
    array([[ 0, 10],
           [ 1, 11]])
    """
    parts = _parts(arrays, "stack")
    shapes = {tuple(one.shape) for one in parts}
    if len(shapes) > 1:
        raise ShapeMismatchError(f"stack: arrays have the shapes {', '.join(map(str, sorted(shapes)))}, expected one")
    place = axis_number(axis, len(parts[0].shape) + 1)
    return joined(tuple(expand_dims(one, place) for one in parts), place)


def _parts(arrays: Any, name: str) -> tuple[Any, ...]:
    given = items(arrays, "arrays", "a sequence of arrays")
    if not given:
        raise InvalidArgumentError(f"{name}: there are no arrays")
    return tuple(one if hasattr(one, "shape") else host_array(one, name) for one in given)


@planned
@_documented
def flip(x: Any, axis: Axis = None) -> Any:
    """The array with its elements in reverse order.

    Parameters
    ----------
    axis : int, str or tuple of them, optional
        Dimensions along which the order is reversed; by default all.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.xp.flip(cuzarr.array(np.arange(3), store={})).compute()
    array([2, 1, 0])
    """
    source = _Source(x, "flip")
    along = source.all()
    for axis_ in source.axes(axis):
        extent = source.shape[axis_]
        along[axis_] = (max(extent - 1, 0), extent, -1)
    return source.picked(along, source.same())


@planned
@_documented
def take(x: Any, indices: ArrayLike, axis: int | str | None = None) -> Any:
    """The elements of an array at the given indices along a dimension.

    Parameters
    ----------
    indices : int, sequence or array of int
        In any order, and possibly repeated; negative ones count from the end. A single number drops the dimension. Indices for an array on
        a GPU may be on that GPU.
    axis : int or str, optional
        The dimension. It may be left out for an array of one dimension.

    Raises
    ------
    BoundsCheckError
        An index is outside the dimension.
    UnsupportedError
        Indices have several dimensions, or ``axis`` is missing.
    SelectionInvalidError
        Indices are not whole numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.array(np.arange(6).reshape(2, 3), store={}, chunks=(1, 3))
    >>> cuzarr.xp.take(z, [2, 0, -1], axis=1).compute()
    array([[2, 0, 2],
           [5, 3, 5]])
    """
    source = _Source(x, "take")
    if not source.ndim and axis_of(axis, 0) is None:
        return take(expand_dims(source.x, 0), indices, 0)
    if axis is None and source.ndim != 1:
        raise UnsupportedError(f"take: x has {source.ndim} dimensions and there is no axis", hint="say along which: axis=0")
    (own,) = source.axes(0 if axis is None else axis)
    if is_on_device(indices) and not isinstance(x, Lazy) and is_on_device(x):
        numbers = device_array(indices)
        if numbers.dtype.kind not in "iu":
            raise SelectionInvalidError(f"take: indices have elements of {numbers.dtype}, expected whole numbers")
        return like(device_array(x)[(*(slice(None),) * own, numbers)], x)
    asked = host_array(indices, "take")
    if asked.dtype.kind not in "iu" and asked.size:
        raise SelectionInvalidError(f"take: indices have elements of {asked.dtype}, expected whole numbers")
    if asked.ndim > 1:
        raise UnsupportedError(f"take: indices have {asked.ndim} dimensions, expected a number or a row of them")
    counted = asked.astype(np.int64)
    extent = source.shape[own]
    outside = counted[(counted < -extent) | (counted >= extent)]
    if outside.size:
        raise BoundsCheckError(f"index {outside.flat[0]} is out of bounds for a dimension of {extent}")
    counted = np.where(counted < 0, counted + extent, counted)
    along, dims = source.all(), source.same()
    if asked.ndim:
        along[own] = counted.astype(np.uint64)
    else:
        along[own] = int(counted)
        del dims[own]
    return source.picked(along, dims)


@planned
@_documented
def diff(x: Any, n: int = 1, axis: int | str = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None) -> Any:
    """Differences of neighbouring elements along a dimension. For bools, whether neighbours differ.

    Parameters
    ----------
    n : int
        How many times differences are taken.
    axis : int or str
        The dimension, by number or name.
    prepend, append : array or number, optional
        Elements before the first and behind the last. A number stands for one element in each line.

    Raises
    ------
    InvalidArgumentError
        There is no such dimension; ``n`` is negative.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> z = cuzarr.array(np.array([1, 4, 9, 16]), store={}, chunks=2)
    >>> cuzarr.xp.diff(z).compute(), cuzarr.xp.diff(z, 2).compute()
    (array([3, 5, 7]), array([2, 2]))
    """
    times = whole(n, "n", 0)
    x = plan(x) if hasattr(x, "shape") else host_array(x, "diff")
    along = _Source(x, "diff")
    own = axis_number(axis, along.ndim, along.names)
    if times and (prepend is not None or append is not None):
        parts = (_beside(prepend, x, own), x, _beside(append, x, own))
        x = concatenate([part for part in parts if part is not None], own)
    function = "not_equal" if element_type(x).kind == "b" else "subtract"
    for _ in range(times):
        source = _Source(x, "diff")
        count = max(source.shape[own] - 1, 0)
        x = apply(function, source.range(own, 1, count), source.range(own, 0, count))
    return x


def _beside(elements: Any, x: Any, axis: int) -> Any:
    """Prepares elements that are to be joined with ``x`` along ``axis``: a number becomes an array on the device of ``x``. A number is
    repeated as often as needed."""
    if elements is None or (hasattr(elements, "shape") and len(elements.shape)):
        return elements
    shape = tuple(1 if at == axis else extent for at, extent in enumerate(x.shape))
    elements = host_array(elements, "diff")
    return broadcast_to(elements if isinstance(x, Lazy) or not is_on_device(x) else asarray(elements, device=device_of(x)), shape)


_names.list_public(globals())

"""Reductions with NumPy's names and types, over all dimensions or some. Arrays in memory give a result at once, stored arrays a plan.

>>> import cuzarr, numpy as np
>>> z = cuzarr.array(np.arange(6.0).reshape(2, 3), store={}, chunks=(1, 3))
>>> z.mean(axis=0)
<Expression mean(array, axis=[0]) shape=(3,) dtype=float64>
>>> z.mean(axis=0).compute()
array([1.5, 2.5, 3.5])
>>> (z - z.mean()).compute()
array([[-2.5, -1.5, -0.5],
       [ 0.5,  1.5,  2.5]])
"""

from __future__ import annotations

from typing import Any

from cuzarr import _names
from cuzarr._checks import Axis
from cuzarr._compute.evaluate import reduce
from cuzarr.xp.elementwise import astype

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min", "nanargmax", "nanargmin", "nanmax",
    "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "std", "sum", "var",
]  # fmt: skip


def sum(x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None) -> Any:
    """The sum of the elements. Bools and whole numbers are summed in 64 bits; sums of floats are made in float64 and rounded once.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.
    dtype : dtype-like, optional
        The type of the elements and of the result.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.sum(np.array([1, 2, 3])))
    6
    >>> z = cuzarr.array(np.array([1, 2, 3]), store={})
    >>> int(cuzarr.sum(z))
    6
    """
    if dtype is None:
        return reduce("sum", x, axis, keepdims)
    return astype(reduce("sum", astype(x, dtype, copy=False), axis, keepdims), dtype, copy=False)


def prod(x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None) -> Any:
    """The product of the elements; bools and whole numbers are multiplied in 64 bits.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.
    dtype : dtype-like, optional
        The type of the elements and of the result.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.prod(np.array([1, 2, 3])))
    6
    >>> z = cuzarr.array(np.array([1, 2, 3]), store={})
    >>> int(cuzarr.prod(z))
    6
    """
    if dtype is None:
        return reduce("prod", x, axis, keepdims)
    return astype(reduce("prod", astype(x, dtype, copy=False), axis, keepdims), dtype, copy=False)


def mean(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The mean of the elements; the mean of whole numbers is in float64.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.mean(np.array([1.0, 2.0, 6.0])))
    3.0
    >>> z = cuzarr.array(np.array([1.0, 2.0, 6.0]), store={})
    >>> float(cuzarr.mean(z))
    3.0
    """
    return reduce("mean", x, axis, keepdims)


def std(x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False, correction: float | None = None) -> Any:
    """The standard deviation of the elements: the root of the sum of squared distances over their number less ``ddof``.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    ddof : float
        The number that is subtracted from the number of elements before the division.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.
    correction : float, optional
        The array API's name of ``ddof``, which it replaces.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.std(np.array([1.0, 3.0])))
    1.0
    >>> z = cuzarr.array(np.array([1.0, 3.0]), store={})
    >>> float(cuzarr.std(z))
    1.0
    """
    return reduce("std", x, axis, keepdims, ddof if correction is None else correction)


def var(x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False, correction: float | None = None) -> Any:
    """The variance of the elements: the sum of squared distances over their number less ``ddof``.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    ddof : float
        The number that is subtracted from the number of elements before the division.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.
    correction : float, optional
        The array API's name of ``ddof``, which it replaces.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.var(np.array([1.0, 5.0])))
    4.0
    >>> z = cuzarr.array(np.array([1.0, 5.0]), store={})
    >>> float(cuzarr.var(z))
    4.0
    """
    return reduce("var", x, axis, keepdims, ddof if correction is None else correction)


def min(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The smallest element; NaN if an element is NaN.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.min(np.array([3, 1, 2])))
    1
    >>> z = cuzarr.array(np.array([3, 1, 2]), store={})
    >>> int(cuzarr.min(z))
    1
    """
    return reduce("min", x, axis, keepdims)


def max(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The largest element; NaN if an element is NaN.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.max(np.array([3, 1, 2])))
    3
    >>> z = cuzarr.array(np.array([3, 1, 2]), store={})
    >>> int(cuzarr.max(z))
    3
    """
    return reduce("max", x, axis, keepdims)


def argmin(x: Any, axis: int | str | None = None, *, keepdims: bool = False) -> Any:
    """The index of the first smallest element, or of the first NaN. Without ``axis``, elements are counted in C order.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.argmin(np.array([3, 1, 2])))
    1
    >>> z = cuzarr.array(np.array([3, 1, 2]), store={})
    >>> int(cuzarr.argmin(z))
    1
    """
    return reduce("argmin", x, axis, keepdims)


def argmax(x: Any, axis: int | str | None = None, *, keepdims: bool = False) -> Any:
    """The index of the first largest element, or of the first NaN. Without ``axis``, elements are counted in C order.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.argmax(np.array([3, 1, 2])))
    0
    >>> z = cuzarr.array(np.array([3, 1, 2]), store={})
    >>> int(cuzarr.argmax(z))
    0
    """
    return reduce("argmax", x, axis, keepdims)


def any(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Whether at least one element is not 0.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> bool(cuzarr.any(np.array([0, 2])))
    True
    >>> z = cuzarr.array(np.array([0, 2]), store={})
    >>> bool(cuzarr.any(z))
    True
    """
    return reduce("any", x, axis, keepdims)


def all(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Whether no element is 0.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> bool(cuzarr.all(np.array([0, 2])))
    False
    >>> z = cuzarr.array(np.array([0, 2]), store={})
    >>> bool(cuzarr.all(z))
    False
    """
    return reduce("all", x, axis, keepdims)


def count_nonzero(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The number of elements that are not 0.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.count_nonzero(np.array([0, 2, 3])))
    2
    >>> z = cuzarr.array(np.array([0, 2, 3]), store={})
    >>> int(cuzarr.count_nonzero(z))
    2
    """
    return reduce("count_nonzero", x, axis, keepdims)


def nansum(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The sum of the elements that are not NaN. Else like :func:`sum`.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.nansum(np.array([1.0, np.nan, 3.0])))
    4.0
    """
    return reduce("sum", x, axis, keepdims, skip_nan=True)


def nanprod(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The product of the elements that are not NaN. Else like :func:`prod`.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.nanprod(np.array([1.0, np.nan, 3.0])))
    3.0
    """
    return reduce("prod", x, axis, keepdims, skip_nan=True)


def nanmean(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The mean of the elements that are not NaN; NaN if all are NaN. Else like :func:`mean`.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.nanmean(np.array([1.0, np.nan, 3.0])))
    2.0
    """
    return reduce("mean", x, axis, keepdims, skip_nan=True)


def nanstd(x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """The standard deviation of the elements that are not NaN; NaN if all are NaN. Else like :func:`std`.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    ddof : float
        The number that is subtracted from the number of elements before the division.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.nanstd(np.array([1.0, np.nan, 3.0])))
    1.0
    """
    return reduce("std", x, axis, keepdims, ddof, True)


def nanvar(x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """The variance of the elements that are not NaN; NaN if all are NaN. Else like :func:`var`.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    ddof : float
        The number that is subtracted from the number of elements before the division.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.nanvar(np.array([1.0, np.nan, 3.0])))
    1.0
    """
    return reduce("var", x, axis, keepdims, ddof, True)


def nanmin(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The smallest element that is not NaN; NaN if all are NaN. Else like :func:`min`.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.nanmin(np.array([1.0, np.nan, 3.0])))
    1.0
    """
    return reduce("min", x, axis, keepdims, skip_nan=True)


def nanmax(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """The largest element that is not NaN; NaN if all are NaN. Else like :func:`max`.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int, tuple of int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> float(cuzarr.nanmax(np.array([1.0, np.nan, 3.0])))
    3.0
    """
    return reduce("max", x, axis, keepdims, skip_nan=True)


def nanargmin(x: Any, axis: int | str | None = None, *, keepdims: bool = False) -> Any:
    """The index of the smallest element that is not NaN. All elements being NaN is an error. Else like :func:`argmin`.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.nanargmin(np.array([1.0, np.nan, 3.0])))
    0
    """
    return reduce("argmin", x, axis, keepdims, skip_nan=True)


def nanargmax(x: Any, axis: int | str | None = None, *, keepdims: bool = False) -> Any:
    """The index of the largest element that is not NaN. All elements being NaN is an error. Else like :func:`argmax`.

    Parameters
    ----------
    x : array
        Elements in memory of any device, an array in a store, or a plan.
    axis : int or str, optional
        Dimensions to reduce, by number or name; by default all.
    keepdims : bool
        Whether reduced dimensions stay, with the extent 1.

    Returns
    -------
    array or Expression
        An array on the device of ``x``; a plan where ``x`` is an array in a store, or a plan.

    Raises
    ------
    DTypeMismatchError
        The elements have a type that the reduction is not defined for.
    InvalidArgumentError
        There is no such dimension, or there are no elements to reduce.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> int(cuzarr.nanargmax(np.array([1.0, np.nan, 3.0])))
    2
    """
    return reduce("argmax", x, axis, keepdims, skip_nan=True)


_names.list_public(globals())

"""Gives ``DeviceArray`` methods of NumPy's arrays. They call cuzarr's functions of the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cuzarr._checks import axis_number
from cuzarr._docstrings import documented
from cuzarr._operators import dispatch

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DeviceArray


@documented(
    """
    axis : int or None
        The dimension; ``None`` takes all elements, in C order.
    >>> import cuzarr, numpy as np
    """,
)
class NumpyMethods:
    """Base class with methods that NumPy's and CuPy's arrays have, for arrays in a GPU's memory."""

    def sort(self, axis: int = -1) -> None:
        """Sort the elements along a dimension in place, as NumPy's method does. NaN comes last; equal elements keep their order.

        Parameters
        ----------
        axis : int
            The dimension.

        Raises
        ------
        UnsupportedError
            A GPU does not sort elements of this type.
        InvalidArgumentError
            There is no such dimension.

        >>> x = cuzarr.DeviceArray.from_host(np.array([3, 1, 2]), "cpu")  # "cuda:0" on a GPU
        >>> x.sort()
        >>> x.tolist()
        [1, 2, 3]
        """
        self[...] = dispatch.of_memory["sort"](self, axis)  # type: ignore[index]

    def argsort(self, axis: int | None = -1) -> DeviceArray:
        """The indices that would sort the elements along a dimension.

        Returns
        -------
        array
            Indices of int64, on the device of this array.

        Raises
        ------
        UnsupportedError
            A GPU does not sort elements of this type.
        InvalidArgumentError
            There is no such dimension.

        >>> cuzarr.DeviceArray.from_host(np.array([3, 1, 2]), "cpu").argsort().tolist()
        [1, 2, 0]
        """
        return dispatch.of_memory["argsort"](self, axis)  # type: ignore[no-any-return]

    def searchsorted(self, v: ArrayLike, side: Literal["left", "right"] = "left", sorter: ArrayLike | None = None) -> DeviceArray:
        """The positions at which ``v`` would be inserted into this sorted array.

        Parameters
        ----------
        v, side, sorter
            As for :func:`cuzarr.xp.searchsorted`.

        Returns
        -------
        array
            Indices of int64 with the shape of ``v``.

        Raises
        ------
        InvalidArgumentError
            There is no such side, or this array does not have exactly one dimension.

        >>> x = cuzarr.DeviceArray.from_host(np.array([1, 3, 5]), "cpu")
        >>> x.searchsorted(np.array([0, 3, 9])).tolist()
        [0, 1, 3]
        """
        return dispatch.of_memory["searchsorted"](self, v, side, sorter)  # type: ignore[no-any-return]

    def nonzero(self) -> tuple[Any, ...]:
        """The indices of the elements that are not 0: one array for each dimension.

        Returns
        -------
        tuple of array
            Indices of int64, on the device of this array.

        >>> cuzarr.DeviceArray.from_host(np.array([0, 3, 0, 4]), "cpu").nonzero()[0].tolist()
        [1, 3]
        """
        return dispatch.of_memory["nonzero"](self)  # type: ignore[no-any-return]

    def take(self, indices: ArrayLike, axis: int | None = None) -> DeviceArray:
        """The elements of this array at the given indices along a dimension.

        Parameters
        ----------
        indices : int, array of int
            Indices; negative ones count from the end.

        Returns
        -------
        array
            New memory, on the device of this array.

        Raises
        ------
        BoundsCheckError
            An index lies outside the dimension.

        >>> cuzarr.DeviceArray.from_host(np.array([5, 6, 7]), "cpu").take([2, 0]).tolist()
        [7, 5]
        """
        own: Any = self
        if axis is None:
            return own.reshape(-1)[indices]  # type: ignore[no-any-return]
        return own[(slice(None),) * axis_number(axis, own.ndim) + (indices,)]  # type: ignore[no-any-return]

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> DeviceArray:
        """This array without its dimensions of extent 1.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Dimensions to leave out; by default all of extent 1.

        Returns
        -------
        array

        Raises
        ------
        ShapeMismatchError
            A dimension has another extent.

        >>> cuzarr.DeviceArray.empty((1, 3, 1), "f4", "cpu").squeeze().shape
        (3,)
        """
        return dispatch.functions["squeeze"](self, axis)  # type: ignore[no-any-return]

    def swapaxes(self, axis1: int, axis2: int) -> DeviceArray:
        """This array with two of its dimensions exchanged.

        Parameters
        ----------
        axis1, axis2 : int
            The dimensions.

        Returns
        -------
        array

        Raises
        ------
        InvalidArgumentError
            There is no such dimension.

        >>> cuzarr.DeviceArray.empty((2, 3, 4), "f4", "cpu").swapaxes(0, 2).shape
        (4, 3, 2)
        """
        return dispatch.functions["swapaxes"](self, axis1, axis2)  # type: ignore[no-any-return]

    def flatten(self, order: Literal["C", "F", "A", "K"] = "C") -> DeviceArray:
        """A copy of this array's elements in one dimension.

        Parameters
        ----------
        order : {"C", "F", "A", "K"}
            In which order elements are counted, as for ``ravel``.

        Returns
        -------
        DeviceArray
            New memory.

        >>> cuzarr.DeviceArray.from_host(np.arange(4).reshape(2, 2), "cpu").flatten("F").tolist()
        [0, 2, 1, 3]
        """
        return self.ravel(order).copy()  # type: ignore[attr-defined,no-any-return]

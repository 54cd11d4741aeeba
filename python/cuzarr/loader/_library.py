"""The arrays that batches are made of: memory for samples, copies into it, and the arithmetic of scaling."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuzarr._memory.convert import result_array
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.foreign import device_buffer
from cuzarr.sparse import Matrix


class Library:
    """The array library of a data set's batches, on one device: NumPy's arrays on the host, :class:`cuzarr.DeviceArray` on a GPU.

    Faces for other frameworks derive from it. Methods that take element types take NumPy's.

    Parameters
    ----------
    device : str
        Where batches are.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_on_host = device == "cpu"

    def check(self, dtype: np.dtype[Any]) -> None:
        """Refuses elements that the library does not have.

        Raises
        ------
        DTypeMismatchError
        """

    # Memory.

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """New memory for samples."""
        return np.empty(shape, dtype) if self.is_on_host else DeviceArray.empty(shape, dtype, self.device)

    def target(self, memory: Any) -> Any:
        """What samples are copied to: memory of :meth:`empty`, or a view of it that is copied to faster."""
        return memory

    def rows(self, memory: Any) -> list[Any]:
        """The parts of memory along its first dimension, which arrays are read into."""
        whole = self.target(memory)
        return [whole[row, ...] for row in range(len(whole))]

    def held(self, elements: Any) -> Any:
        """Elements that were read, as samples are cut out of them."""
        return elements if self.is_on_host else DeviceArray(device_buffer(elements), elements.dtype)

    def delivered(self, memory: Any) -> Any:
        """A finished array, as a caller gets it: CuPy's on a GPU where it is installed."""
        return memory if self.is_on_host else result_array(memory._buffer, memory.dtype)

    def converted(self, elements: Any) -> Any:
        """Elements that were read, as a caller gets them."""
        return elements

    def matrix(self, matrix: Matrix) -> Any:
        """A sparse matrix, as a caller gets it."""
        return matrix

    def of_host(self, numbers: np.ndarray[Any, Any]) -> Any:
        """Numbers about a batch, which stay on the host."""
        return numbers

    # Copies.

    def put(self, target: Any, elements: Any) -> None:
        """Copies elements, and converts them."""
        if isinstance(target, np.ndarray):
            # By one thread: PyTorch's copy starts several, which costs more than so small a copy.
            np.copyto(target, elements, casting="unsafe")
        else:
            target[...] = elements

    def put_rows(self, target: Any, rows: np.ndarray[Any, Any], elements: Any, places: np.ndarray[Any, Any]) -> None:
        """Copies the elements at some places along the first dimension to some rows."""
        target[rows] = elements[places]

    def moved(self, elements: Any, axis: int, place: int) -> Any:
        """A view whose axis is at another place."""
        return np.moveaxis(elements, axis, place)

    # Numbers.

    def view(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """The same memory as elements of another type of the same size."""
        return array.view(dtype)

    def astype(self, array: Any, dtype: np.dtype[Any], *, copy: bool = False) -> Any:
        """Converted elements."""
        return array.astype(dtype, copy=copy)

    def constant(self, value: np.ndarray[Any, Any]) -> Any:
        """A number, or an array of them, as an operand on the device."""
        return value if self.is_on_host else DeviceArray.from_host(value, self.device)

    def mark_missing(self, numbers: Any, stored: Any, mark: Any) -> None:
        """Sets NaN where a stored element is a mark of missing ones."""
        numbers[stored == mark] = np.nan

    # The order of work.

    def working(self) -> contextlib.AbstractContextManager[Any]:
        """Where a thread that makes batches does its work: a stream of its own."""
        return contextlib.nullcontext()

    def settle(self) -> None:
        """Waits for the copies and computations that this library's methods began."""

    def hand_over(self, batch: Any) -> None:
        """Called by the thread that takes a batch, before it uses it."""


def is_run(numbers: Sequence[int] | np.ndarray[Any, Any]) -> bool:
    """Whether each number is one more than the one before it."""
    return len(numbers) == 1 or bool((np.diff(numbers) == 1).all())

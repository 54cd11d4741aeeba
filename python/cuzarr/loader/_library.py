"""The array library that makes batches: it allocates memory for samples, copies into it, and scales elements."""

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

    Subclasses serve other frameworks. Methods with element types as arguments take NumPy's types.

    Parameters
    ----------
    device : str
        The device of the batches.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_on_host = device == "cpu"

    def check(self, dtype: np.dtype[Any]) -> None:
        """Refuses an element type that the array library of the batches does not support.

        Raises
        ------
        DTypeMismatchError
        """

    # Memory.

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Allocates memory for samples of a batch, whose elements are not set."""
        return np.empty(shape, dtype) if self.is_on_host else DeviceArray.empty(shape, dtype, self.device)

    def target(self, memory: Any) -> Any:
        """The array to copy samples into: the memory that :meth:`empty` allocated, or a view of it to which copies are faster."""
        return memory

    def rows(self, memory: Any) -> list[Any]:
        """Views of each row (along the first dimension) of a batch's memory, into which arrays are read."""
        whole = self.target(memory)
        return [whole[row, ...] for row in range(len(whole))]

    def held(self, elements: Any) -> Any:
        """Converts elements that were read from a store to the array type in which they wait in memory until samples are cut from them."""
        return elements if self.is_on_host else DeviceArray(device_buffer(elements), elements.dtype)

    def delivered(self, memory: Any) -> Any:
        """Converts an array of a batch, after samples were copied into it, to the type that the user gets: CuPy's on a GPU if CuPy is
        installed."""
        return memory if self.is_on_host else result_array(memory._buffer, memory.dtype)

    def converted(self, elements: Any) -> Any:
        """Converts elements that were read to the array type that the user gets."""
        return elements

    def matrix(self, matrix: Matrix) -> Any:
        """Converts a sparse matrix to the type that the user gets."""
        return matrix

    def of_host(self, numbers: np.ndarray[Any, Any]) -> Any:
        """Converts a NumPy array about a batch, such as the positions of its samples, to an array on the host of the user's framework."""
        return numbers

    # Copies.

    def put(self, target: Any, elements: Any) -> None:
        """Copies ``elements`` of a sample into the batch memory ``target``, converted to the element type of ``target``."""
        if isinstance(target, np.ndarray):
            # Copied by one thread: PyTorch's copy would start several threads, which takes longer than this small copy.
            np.copyto(target, elements, casting="unsafe")
        else:
            target[...] = elements

    def put_rows(self, target: Any, rows: np.ndarray[Any, Any], elements: Any, places: np.ndarray[Any, Any]) -> None:
        """Copies the rows ``places`` of ``elements`` to the rows ``rows`` of ``target``."""
        target[rows] = elements[places]

    def moved(self, elements: Any, axis: int, place: int) -> Any:
        """A view of ``elements`` with the dimension ``axis`` moved to the position ``place``."""
        return np.moveaxis(elements, axis, place)

    # Numbers.

    def view(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """A view of an array's memory as elements of another type of the same size."""
        return array.view(dtype)

    def astype(self, array: Any, dtype: np.dtype[Any], *, copy: bool = False) -> Any:
        """The elements of ``array``, an array of a batch, converted to the element type ``dtype``."""
        return array.astype(dtype, copy=copy)

    def constant(self, value: np.ndarray[Any, Any]) -> Any:
        """Copies a constant (a number or an array) to the device, for computations with samples."""
        return value if self.is_on_host else DeviceArray.from_host(value, self.device)

    def mark_missing(self, numbers: Any, stored: Any, mark: Any) -> None:
        """Sets ``numbers`` to NaN wherever the stored element equals ``mark``, the value for missing elements."""
        numbers[stored == mark] = np.nan

    # The order of work.

    def working(self) -> contextlib.AbstractContextManager[Any]:
        """The context manager in which a thread makes batches, such as one that selects a separate CUDA stream."""
        return contextlib.nullcontext()

    def settle(self) -> None:
        """Waits until the device has finished the copies and computations that this library's methods began."""

    def hand_over(self, batch: Any) -> None:
        """Prepares a batch for use on another thread's stream; the thread that takes the batch calls this first."""


def is_run(numbers: Sequence[int] | np.ndarray[Any, Any]) -> bool:
    """Whether the numbers of a sequence are consecutive: each is one more than the number before it."""
    return len(numbers) == 1 or bool((np.diff(numbers) == 1).all())

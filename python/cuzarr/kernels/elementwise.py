"""Kernels that compute one expression over whole arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import items
from cuzarr._memory.convert import result_array
from cuzarr._memory.element_types import core_dtype, dtype_of
from cuzarr._memory.foreign import is_on_device
from cuzarr._memory.streams import stream_handle
from cuzarr.errors import InvalidArgumentError, MemorySpaceError
from cuzarr.kernels.module import buffer_on, device_number, is_array

if TYPE_CHECKING:
    from cuzarr.typing import KernelArgument, Stream


def _number(value: Any, name: str) -> tuple[str, bytes]:
    """Converts a number to a kernel's argument: its element type and its bytes."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InvalidArgumentError(f"kernel '{name}' cannot take {value!r}", hint="pass arrays in GPU memory, or real numbers")
    return core_dtype(array.dtype), array.tobytes()


class ElementwiseKernel:
    """A kernel that computes one expression for every element of arrays, with broadcasting, like ``cupy.ElementwiseKernel``.

    Parameters
    ----------
    in_params, out_params : str
        ``"float32 x, T y"``: element types by NumPy's names, or a letter that stands for the type of the argument. ``raw``
        before a parameter passes the whole array, for your own indexing; other parameters are the current element.
    operation : str
        CUDA C++ that is run for each element: ``"z = x * y + 1"``. ``i`` is the number of the element, ``n`` the number of all elements.
    name : str
        Name of the kernel, for messages and profilers.
    preamble : str
        Source text before the kernel: functions that it calls.
    options : sequence of str
        NVRTC's options.

    >>> import cuzarr
    >>> hypot = cuzarr.kernels.ElementwiseKernel("T x, T y", "T z", "z = sqrt(x * x + y * y)", "hypot")
    >>> z = hypot(u, v)    # doctest: +SKIP

    Raises
    ------
    KernelCompileFailedError
        The text does not compile. The message contains the compiler's lines.
    LibraryMissingError
        There is no NVRTC.

    Examples
    --------
    >>> import cuzarr
    >>> hypot = cuzarr.kernels.ElementwiseKernel("T x, T y", "T z", "z = sqrt(x * x + y * y)", "hypot")
    >>> z = hypot(u, v)  # doctest: +SKIP
    """

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "elementwise",
        *,
        preamble: str = "",
        options: Iterable[str] = (),
    ) -> None:
        self._kernel = _core.ElementwiseKernel(
            in_params, out_params, operation, name, preamble, list(items(options, "options", "a list of the compiler's options"))
        )
        self.operation: str = operation
        self.name: str = name

    def __call__(self, *args: KernelArgument, size: int | None = None, stream: Stream = None, block_size: int = 256) -> Any:
        """Launch the kernel and wait for it.

        Parameters
        ----------
        *args
            The inputs, followed by the outputs if the caller has memory for them. Arrays are in one GPU's memory, and are broadcast.
            Numbers are converted to the type of their parameter; a number that would change its value is refused.
        size : int, optional
            Number of elements; needed if every array is ``raw``.
        stream : optional
            A stream of CuPy, PyTorch or Numba, or a handle. The call then returns immediately.
        block_size : int
            Threads of a block.

        Returns
        -------
        array or tuple of arrays
            The outputs: CuPy's arrays or :class:`cuzarr.DeviceArray`, as the setting ``array_type`` says.

        Raises
        ------
        InvalidArgumentError
            The number of arguments, or a number, does not fit the parameters.
        MemorySpaceError
            An array is not in the GPU's memory, or no argument is an array on a GPU.

        Examples
        --------
        >>> import cuzarr
        >>> twice = cuzarr.kernels.ElementwiseKernel("T x", "T y", "y = x * 2", "twice")
        >>> y = twice(x)  # doctest: +SKIP
        """
        inputs, outputs = self._kernel.counts
        if len(args) not in (inputs, inputs + outputs):
            expected = f"{inputs} inputs and {outputs} outputs"
            raise InvalidArgumentError(f"kernel '{self.name}' has {expected}, got {len(args)} arguments")
        device = next((f"cuda:{device_number(value)}" for value in args if is_on_device(value)), None)
        if device is None:
            raise MemorySpaceError(f"no argument of kernel '{self.name}' is in a GPU's memory", hint="read with device='cuda:0'")
        passed = [buffer_on(value, device) if is_array(value) else _number(value, self.name) for value in args[:inputs]]
        given = [buffer_on(value, device) for value in args[inputs:]]
        made = self._kernel.run(passed, given or None, device, size, block_size, stream_handle(stream))
        results = args[inputs:] or tuple(result_array(buffer, dtype_of(buffer.dtype)) for buffer in made)
        return results[0] if len(results) == 1 else results

    def __repr__(self) -> str:
        return f"<cuzarr.kernels.ElementwiseKernel {self.name}: {self.operation}>"

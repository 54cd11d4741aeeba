"""CUDA C++ that is compiled at run time, and launches of its kernels."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import items
from cuzarr._config import config
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.foreign import device_buffer, is_on_device
from cuzarr._memory.streams import stream_handle
from cuzarr.errors import InvalidArgumentError, MemorySpaceError

if TYPE_CHECKING:
    from cuzarr.typing import KernelArgument, Stream


def _gpu(device: str | None) -> str:
    """The GPU to compile for: the given one, else the GPU that arrays are read to, else the first."""
    if device is not None:
        return device
    configured = str(config.get("device"))
    return configured if configured.startswith("cuda") else "cuda:0"


def buffer_on(value: Any, device: str) -> _core.NdBuffer:
    """Wraps the memory of an array on the GPU ``device`` as a buffer, without copying."""
    if not is_on_device(value):
        raise MemorySpaceError(
            f"got {type(value).__name__} in host memory, the kernel runs on {device}",
            hint="move it there first: cupy.asarray(x), torch.as_tensor(x, device='cuda'), or read it with device='cuda:0'",
        )
    buffer = value if isinstance(value, _core.NdBuffer) else device_buffer(value)
    if buffer.device != device:
        raise MemorySpaceError(f"got an array on {buffer.device}, the kernel runs on {device}", hint=f"call .to({device!r})")
    return buffer


_C_NAMES = {
    "char": "i1", "signed char": "i1", "unsigned char": "u1", "short": "i2", "unsigned short": "u2", "int": "i4",
    "signed": "i4", "unsigned": "u4", "unsigned int": "u4", "long": "i8", "unsigned long": "u8", "long long": "i8",
    "unsigned long long": "u8", "long int": "i8", "long long int": "i8", "float": "f4", "double": "f8", "bool": "?",
    "int8_t": "i1", "int16_t": "i2", "int32_t": "i4", "int64_t": "i8", "uint8_t": "u1", "uint16_t": "u2",
    "uint32_t": "u4", "uint64_t": "u8", "size_t": "u8", "ptrdiff_t": "i8",
}  # fmt: skip
_QUALIFIERS = re.compile(r"\b(const|volatile|__restrict__|__restrict|__grid_constant__)\b")


def _signature(source: str, name: str) -> list[np.dtype[Any] | None] | None:
    """Types of a kernel's parameters, each ``None`` if its declared type is not one of C's own names.

    ``None`` in place of the list if the declaration is not found.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S)
    found = re.search(rf"__global__[^;{{}}]*?\b{re.escape(name)}\s*\(([^)]*)\)", text)
    if found is None or not name.isidentifier():
        return None
    types: list[np.dtype[Any] | None] = []
    for parameter in filter(str.strip, found[1].split(",")):
        words = _QUALIFIERS.sub(" ", parameter).split()
        ctype = " ".join(words if len(words) == 1 or " ".join(words) in _C_NAMES else words[:-1])
        types.append(np.dtype(_C_NAMES[ctype]) if ctype in _C_NAMES else None)
    return types


def _value(value: Any, dtype: np.dtype[Any] | None, size_bytes: int | None, where: str) -> bytes:
    """Converts a plain value to the bytes of a kernel's parameter. ``dtype`` is the parameter's type, if it is known."""
    if value is None:
        return bytes(8)  # a null pointer
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, ctypes.Structure | ctypes.Union | ctypes.Array | ctypes._SimpleCData):
        return bytes(memoryview(value).cast("B"))
    if not isinstance(value, bool | int | float):
        raise InvalidArgumentError(
            f"{where}: a kernel cannot take {type(value).__name__}",
            hint="pass arrays in GPU memory, numbers, NumPy scalars, or structures as bytes",
        )
    if dtype is None or size_bytes not in (None, dtype.itemsize):
        raise InvalidArgumentError(
            f"{where}: the kernel's declaration does not tell the type of this number",
            hint=f"use NumPy's types: np.float32({value}), np.int64({value})",
        )
    if isinstance(value, float) and dtype.kind != "f":
        raise InvalidArgumentError(f"{where}: got the float {value}, the parameter is of type {dtype}")
    try:
        return np.array(value, dtype).tobytes()
    except OverflowError:
        raise InvalidArgumentError(f"{where}: {value} does not fit into {dtype}") from None


def _extents(value: int | Sequence[int], what: str) -> tuple[int, int, int]:
    extents = (value,) if isinstance(value, int | np.integer) else tuple(value)
    if not 1 <= len(extents) <= 3 or any(int(extent) < 1 or int(extent) >= 1 << 31 for extent in extents):
        raise InvalidArgumentError(f"got {what}={value!r}, expected one to three positive integers")
    x, y, z = (*map(int, extents), 1, 1)[:3]
    return x, y, z


class Module:
    """CUDA C++ source text of the user's kernels, compiled for one GPU.

    Parameters
    ----------
    source : str
        The text. Declare kernels ``extern "C"`` if possible. Other kernels, and instances of templates, are found by their C++ names
        (``"scale<float>"``), which needs another compilation.
    device : str, optional
        The GPU; by default the one that arrays are read to, else ``"cuda:0"``.
    options : sequence of str
        NVRTC's options: ``("-DN=4", "--use_fast_math", "-I/my/headers")``.
    name : str
        The name of the text in the compiler's messages.

    Raises
    ------
    KernelCompileFailedError
        The text does not compile. The error has the compiler's messages and the lines they refer to.
    LibraryMissingError
        There is no NVRTC.

    Examples
    --------
    >>> import cuzarr
    >>> module = cuzarr.kernels.Module(source, device="cuda:0")  # doctest: +SKIP
    >>> scale = module.get_function("scale")  # doctest: +SKIP
    """

    def __init__(self, source: str, *, device: str | None = None, options: Iterable[str] = (), name: str = "module.cu") -> None:
        self.device: str = _gpu(device)
        self._source = source
        self._module = _core.Module(
            source, self.device, name, list(items(options, "options", "a list of the compiler's options"))
        )

    def get_function(self, name: str) -> Function:
        """The kernel of this module that has the given name.

        Parameters
        ----------
        name : str
            The name of an ``extern "C"`` kernel, or the C++ name of another: ``"scale<float>"``.

        Returns
        -------
        Function
            The kernel, ready to be launched.

        Raises
        ------
        InvalidArgumentError
            The text has no such kernel.

        Examples
        --------
        >>> import cuzarr
        >>> source = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
        >>> module = cuzarr.kernels.Module(source, device="cuda:0")  # doctest: +SKIP
        >>> module.get_function("twice").name  # doctest: +SKIP
        'twice'
        """
        return Function(self._module.function(name), name, self.device, _signature(self._source, name))

    def __repr__(self) -> str:
        return f"<cuzarr.kernels.Module on {self.device}>"


class Function:
    """One kernel of a :class:`Module`.

    Parameters
    ----------
    function, name, device, types
        Internal; use :meth:`Module.get_function`.

    Attributes
    ----------
    max_threads : int
        Largest number of threads of a block, limited by the registers that the kernel needs.
    registers, local_bytes, shared_bytes : int
        Registers and local memory that a thread needs, and shared memory that a block needs.

    Raises
    ------
    InvalidArgumentError
        The arguments do not match the parameters that the kernel declares.
    DeviceFailedError
        The kernel faulted.

    Examples
    --------
    >>> scale(x, 2.0, x.size, grid=(x.size + 255) // 256, block=256)  # doctest: +SKIP
    """

    def __init__(self, function: _core.Function, name: str, device: str, types: list[np.dtype[Any] | None] | None = None) -> None:
        self._function = function
        self._types = types
        self.name = name
        self.device = device
        self.max_threads: int = function.max_threads
        self.registers: int = function.registers
        self.local_bytes: int = function.local_bytes
        self.shared_bytes: int = function.static_shared_bytes

    def __call__(
        self,
        *args: KernelArgument | bytes | ctypes.Structure | None,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int = 0,
        stream: Stream = None,
    ) -> None:
        """Launch this kernel with the given arguments, grid and blocks. Without ``stream`` the call waits for it.

        Parameters
        ----------
        *args
            One argument for each parameter: arrays in this GPU's memory (passed as a pointer to the first element), numbers, NumPy
            scalars, ``None`` (a null pointer), structures as ``bytes`` or ctypes. Python's numbers are converted to the types that the
            kernel declares. If a declared type is not one of C's own, pass a NumPy scalar.
        grid, block : int or sequence of int
            Blocks of the grid, and threads of a block, by x, y and z.
        shared_bytes : int
            Dynamic shared memory of a block, in bytes.
        stream : optional
            A stream of CuPy, PyTorch or Numba, or a handle. The call then returns immediately, and the arrays must be ready on that
            stream. By default the call waits for the kernel, and raises an error if it faulted.

        Raises
        ------
        InvalidArgumentError
            The number or sizes of the arguments do not match the kernel, or a block has too many threads.
        MemorySpaceError
            An array is not in this GPU's memory.
        DeviceFailedError
            The kernel faulted. This process cannot use the GPU any more.

        Examples
        --------
        >>> scale(x, 2.0, x.size, grid=(x.size + 255) // 256, block=256)  # doctest: +SKIP
        """
        sizes = self._function.parameter_bytes
        if sizes is not None and len(sizes) != len(args):
            raise InvalidArgumentError(f"kernel '{self.name}' has {len(sizes)} parameters, got {len(args)} arguments")
        types = self._types if self._types is not None and len(self._types) == len(args) else [None] * len(args)
        arguments: list[_core.NdBuffer | bytes] = []
        for at, (value, dtype) in enumerate(zip(args, types, strict=True)):
            if is_array(value):
                arguments.append(buffer_on(value, self.device))
            else:
                where = f"kernel '{self.name}', argument {at}"
                arguments.append(_value(value, dtype, sizes[at] if sizes else None, where))
        extents = _extents(grid, "grid"), _extents(block, "block")
        self._function.launch(arguments, *extents, shared_bytes, stream_handle(stream))

    def __repr__(self) -> str:
        return f"<cuzarr.Function {self.name} on {self.device}>"


def is_array(value: Any) -> bool:
    return not isinstance(value, np.generic) and (hasattr(value, "shape") or hasattr(value, "__dlpack__"))


def device_number(value: Any) -> int:
    if isinstance(value, DeviceArray | _core.NdBuffer):
        return int(value.device.partition(":")[2] or 0)
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[1])
    return int(getattr(getattr(value, "device", 0), "id", 0))

"""One expression over whole arrays, made into a kernel."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from cuzarr import _core
from cuzarr._convert import core_dtype, is_on_device, result_array
from cuzarr._modules import Function, Module, buffer_on, device_number, is_array
from cuzarr.errors import DTypeMismatchError, InvalidArgumentError, MemorySpaceError, ShapeMismatchError

_C_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}
_MAX_BLOCKS = 1 << 20
# What a thread loads at once.
_VECTOR_BYTES = 16


class _Parameter:
    """One parameter of an element-wise kernel: ``float32 x``, ``T x``, ``raw T x``."""

    _PATTERN = re.compile(r"(raw\s+)?([A-Za-z_]\w*)\s+([A-Za-z_]\w*)$")

    def __init__(self, text: str) -> None:
        found = self._PATTERN.match(text.strip())
        if found is None:
            raise InvalidArgumentError(f"cannot read the parameter {text!r}", hint="write 'float32 x', 'T x' or 'raw T x'")
        self.is_raw, self.type, self.name = found[1] is not None, found[2], found[3]
        self.is_open = len(self.type) == 1
        if not self.is_open and self.type not in _C_TYPES:
            known = ", ".join(_C_TYPES)
            raise DTypeMismatchError(f"no kernel has elements of {self.type!r}", hint=f"use one of {known}, or a letter")
        if self.name in ("i", "n") or self.name.startswith("cuzarr_"):
            raise InvalidArgumentError(f"the name {self.name!r} is taken: i is the element's number, n how many there are")


def _parameters(text: str) -> list[_Parameter]:
    return [_Parameter(part) for part in text.split(",") if part.strip()]


class _Variant(NamedTuple):
    """What a kernel is compiled for."""

    types: tuple[tuple[str, str], ...]
    """What each letter stands for."""
    rank: int | None
    """Dimensions that operands have strides over; ``None`` when all are contiguous."""
    scalars: tuple[bool, ...]
    """Which operands are plain values."""
    in_place: bool
    """Whether an output is an input."""
    lanes: int
    """Elements that a thread takes at once."""


def _walk(rank: int, operands: list[str]) -> list[str]:
    """Lines that find where element ``i`` of each operand lies."""
    lines = ["long long cuzarr_rest = i;", *(f"long long {data}_offset = 0;" for data in operands)]
    if rank:
        lines += [
            "#pragma unroll",
            f"for (int cuzarr_d = {rank - 1}; cuzarr_d >= 0; --cuzarr_d) {{",
            "    long long cuzarr_at = cuzarr_rest % cuzarr_shape.at[cuzarr_d];",
            "    cuzarr_rest /= cuzarr_shape.at[cuzarr_d];",
            *(f"    {data}_offset += cuzarr_at * {data}_strides.at[cuzarr_d];" for data in operands),
            "}",
        ]
    return lines


class ElementwiseKernel:
    """One expression over whole arrays, with broadcasting, in the manner of ``cupy.ElementwiseKernel``.

    Parameters
    ----------
    in_params, out_params : str
        ``"float32 x, T y"``: element types by NumPy's names, or a letter that stands for the type of what is passed. ``raw``
        before a parameter gives the array itself, indexed at will; all others are the element at hand.
    operation : str
        CUDA C++, run for each element: ``"z = x * y + 1"``. ``i`` is the number of the element, ``n`` how many there are.
    name : str
        Name of the kernel, for messages and profilers.
    preamble : str
        Text before the kernel: functions that it calls.
    options : sequence of str
        NVRTC's options.

    >>> import cuzarr
    >>> hypot = cuzarr.ElementwiseKernel("T x, T y", "T z", "z = sqrt(x * x + y * y)", "hypot")
    >>> z = hypot(u, v)    # doctest: +SKIP
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
        self.inputs, self.outputs = _parameters(in_params), _parameters(out_params)
        names = [parameter.name for parameter in self.inputs + self.outputs]
        if not self.outputs or len(set(names)) != len(names):
            raise InvalidArgumentError(f"got the parameters {names}: each needs a name of its own, and one must be an output")
        if not name.isidentifier():
            raise InvalidArgumentError(f"{name!r} is no name for a kernel")
        self.operation, self.name, self.preamble, self.options = operation, name, preamble, tuple(options)
        self._function = functools.lru_cache(maxsize=None)(self._compile)

    def source(self, variant: _Variant) -> str:
        """The text that is compiled for operands of this kind."""
        types, rank, lanes = dict(variant.types), variant.rank, variant.lanes
        restrict = "" if variant.in_place else "__restrict__ "
        lines = [self.preamble, *(f"typedef {_C_TYPES[dtype]} {letter};" for letter, dtype in types.items())]
        if rank is not None:
            lines.append(f"struct cuzarr_extents {{ long long at[{max(rank, 1)}]; }};")
        if lanes > 1:
            lines.append(f"template <typename E> struct alignas({lanes} * sizeof(E)) cuzarr_lanes {{ E at[{lanes}]; }};")
        declared, element, load, lane, store, walked = ["unsigned long long n"], [], [], [], [], []
        if rank is not None:
            declared.append("cuzarr_extents cuzarr_shape")
        for parameter, is_scalar in zip(self.inputs + self.outputs, variant.scalars, strict=True):
            ctype = parameter.type if parameter.is_open else _C_TYPES[parameter.type]
            const = "const " if parameter in self.inputs else ""
            name, data = parameter.name, f"cuzarr_{parameter.name}"
            if is_scalar or parameter.is_raw:
                declared.append(f"{ctype} {name}" if is_scalar else f"{const}{ctype} *{restrict}{name}")
            elif rank is None:
                declared.append(f"{const}{ctype} *{restrict}{data}")
                element.append(f"{const}{ctype} &{name} = {data}[i];")
                load.append(f"cuzarr_lanes<{ctype}> {data}_4 = (({const}cuzarr_lanes<{ctype}> *){data})[cuzarr_j];")
                lane.append(f"{const}{ctype} &{name} = {data}_4.at[cuzarr_k];")
                if parameter in self.outputs:
                    store.append(f"((cuzarr_lanes<{ctype}> *){data})[cuzarr_j] = {data}_4;")
            else:
                declared += [f"{const}char *{restrict}{data}", f"cuzarr_extents {data}_strides"]
                walked.append(data)
                element.append(f"{const}{ctype} &{name} = *({const}{ctype} *)({data} + {data}_offset);")
        if rank is not None:
            element = [*_walk(rank, walked), *element]
        operation = [f'#line 1 "{self.name}"', f"{self.operation};"]
        lines.append(f'extern "C" __global__ void {self.name}({", ".join(declared)}) {{')
        lines.append("unsigned long long cuzarr_start = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;")
        lines.append("unsigned long long cuzarr_stride = (unsigned long long)gridDim.x * blockDim.x;")
        if lanes > 1:
            lines += [
                f"for (unsigned long long cuzarr_j = cuzarr_start; cuzarr_j < n / {lanes}; cuzarr_j += cuzarr_stride) {{",
                *load,
                "#pragma unroll",
                f"for (int cuzarr_k = 0; cuzarr_k < {lanes}; ++cuzarr_k) {{",
                f"unsigned long long i = cuzarr_j * {lanes} + cuzarr_k;",
                *lane,
                *operation,
                "}",
                *store,
                "}",
                f"cuzarr_start += n / {lanes} * {lanes};",
            ]
        lines += ["for (unsigned long long i = cuzarr_start; i < n; i += cuzarr_stride) {", *element, *operation, "}", "}"]
        return "\n".join(lines) + "\n"

    def _compile(self, device: str, variant: _Variant) -> Function:
        name = f"{self.name}.cu"
        return Module(self.source(variant), device=device, options=self.options, name=name).get_function(self.name)

    def __call__(self, *args: Any, size: int | None = None, stream: Any = None, block_size: int = 256) -> Any:
        """Runs it over ``args``: the inputs, then, if the caller has them, the outputs.

        Parameters
        ----------
        *args
            Arrays in one GPU's memory, whose shapes broadcast; numbers for inputs that are not raw.
        size : int, optional
            Number of elements, where every array is raw.
        stream, block_size
            As :meth:`Function.__call__` takes them.

        Returns
        -------
        array or tuple of arrays
            The outputs: CuPy's arrays or :class:`cuzarr.DeviceArray`, as ``array_type`` says.
        """
        parameters = self.inputs + self.outputs
        if len(args) not in (len(self.inputs), len(parameters)):
            expected = f"{len(self.inputs)} inputs and {len(self.outputs)} outputs"
            raise InvalidArgumentError(f"kernel '{self.name}' has {expected}, got {len(args)} arguments")
        device = next((f"cuda:{device_number(value)}" for value in args if is_on_device(value)), None)
        if device is None:
            raise MemorySpaceError(f"no argument of kernel '{self.name}' is in a GPU's memory", hint="read with device='cuda:0'")
        operands: list[Any] = [buffer_on(value, device) if is_array(value) else value for value in args]
        types = self._types(operands)
        walked = [
            tuple(operand.shape)
            for operand, parameter in zip(operands, parameters, strict=False)
            if isinstance(operand, _core.NdBuffer) and not parameter.is_raw
        ]
        shape = self._shape(walked, size)
        results = [args[len(self.inputs) + at] for at in range(len(args) - len(self.inputs))]
        for parameter in parameters[len(args) :]:
            dtype = np.dtype(types.get(parameter.type, parameter.type))
            operands.append(_core.NdBuffer.empty(shape, core_dtype(dtype), device, "C"))
            results.append(result_array(operands[-1], dtype))
        in_place = self._check_outputs(operands, shape)
        count = int(np.prod(shape, dtype=object))
        if count:
            self._launch(device, operands, types, shape, in_place, stream, block_size)
        return results[0] if len(results) == 1 else tuple(results)

    def _shape(self, walked: list[tuple[int, ...]], size: int | None) -> tuple[int, ...]:
        if size is not None:
            if walked and int(np.prod(np.broadcast_shapes(*walked), dtype=object)) != size:
                raise InvalidArgumentError(f"got size={size} beside arrays of shapes {walked}")
            return (size,) if not walked else np.broadcast_shapes(*walked)
        if not walked:
            raise InvalidArgumentError(f"every array of kernel '{self.name}' is raw: say size=")
        try:
            return np.broadcast_shapes(*walked)
        except ValueError:
            raise ShapeMismatchError(f"the shapes {walked} do not broadcast") from None

    def _types(self, operands: list[Any]) -> dict[str, str]:
        """What each letter stands for."""
        types: dict[str, str] = {}
        for parameter, operand in zip(self.inputs + self.outputs, operands, strict=False):
            if isinstance(operand, _core.NdBuffer):
                expected = types.setdefault(parameter.type, operand.dtype) if parameter.is_open else parameter.type
                if operand.dtype != expected or operand.dtype not in _C_TYPES:
                    raise DTypeMismatchError(f"'{parameter.name}' has elements of {operand.dtype}, expected {expected}")
            elif parameter.is_raw or parameter in self.outputs:
                raise MemorySpaceError(f"'{parameter.name}' has to be an array in GPU memory, got {type(operand).__name__}")
        for parameter, operand in zip(self.inputs, operands, strict=False):
            if parameter.is_open and parameter.type not in types:
                types[parameter.type] = np.asarray(operand).dtype.name
        missing = {parameter.type for parameter in self.outputs if parameter.is_open} - types.keys()
        if missing:
            raise DTypeMismatchError(f"nothing says what {', '.join(sorted(missing))} stands for", hint="pass the output")
        return types

    def _check_outputs(self, operands: list[Any], shape: tuple[int, ...]) -> bool:
        """Whether an output is one of the inputs, element by element; any other way of sharing memory is refused."""
        parameters, in_place = self.inputs + self.outputs, False
        for at in range(len(self.inputs), len(parameters)):
            output, parameter = operands[at], parameters[at]
            if not parameter.is_raw and tuple(output.shape) != shape:
                raise ShapeMismatchError(f"'{parameter.name}' has shape {tuple(output.shape)}, the result {shape}")
            for operand, other in zip(operands[:at], parameters[:at], strict=True):
                if not isinstance(operand, _core.NdBuffer) or not _overlap(operand, output):
                    continue
                places = [(buffer.address, tuple(buffer.shape), tuple(buffer.strides)) for buffer in (operand, output)]
                if other.is_raw or parameter.is_raw or other in self.outputs or places[0] != places[1]:
                    message = f"the memory of '{parameter.name}' overlaps that of '{other.name}'"
                    raise InvalidArgumentError(message, hint="write to another array")
                in_place = True
        return in_place

    def _launch(
        self,
        device: str,
        operands: list[Any],
        types: dict[str, str],
        shape: tuple[int, ...],
        in_place: bool,
        stream: Any,
        block: int,
    ) -> None:
        parameters = self.inputs + self.outputs
        scalars = tuple(not isinstance(operand, _core.NdBuffer) for operand in operands)
        walked = [
            operand
            for operand, parameter in zip(operands, parameters, strict=True)
            if isinstance(operand, _core.NdBuffer) and not parameter.is_raw
        ]
        flat = all(tuple(operand.shape) == shape and _is_contiguous(operand) for operand in walked)
        rank = None if flat else len(shape)
        lanes = self._lanes(walked) if flat else 1
        function = self._function(device, _Variant(tuple(sorted(types.items())), rank, scalars, in_place, lanes))
        count = int(np.prod(shape, dtype=object))
        arguments: list[Any] = [np.uint64(count)]
        if rank is not None:
            arguments.append(np.array(shape or (1,), "i8").tobytes())
        for operand, parameter in zip(operands, parameters, strict=True):
            if not isinstance(operand, _core.NdBuffer):
                arguments.append(np.dtype(types.get(parameter.type, parameter.type)).type(operand))
                continue
            arguments.append(operand)
            if rank is not None and not parameter.is_raw:
                arguments.append(np.array(_broadcast_strides(operand, shape), "i8").tobytes())
        blocks = min(-(-count // (block * lanes)), _MAX_BLOCKS)
        function(*arguments, grid=blocks, block=block, stream=stream)

    def _lanes(self, walked: list[_core.NdBuffer]) -> int:
        """How many elements a thread takes at once: as many as 16 bytes hold, where every operand begins at such a place and
        the operation does not leave the loop by itself."""
        widest = max((np.dtype(operand.dtype).itemsize for operand in walked), default=16)
        lanes = max(_VECTOR_BYTES // widest, 1)
        aligned = all(operand.address % (lanes * np.dtype(operand.dtype).itemsize) == 0 for operand in walked)
        leaves = re.search(r"\b(continue|break|return|goto)\b", self.operation)
        return min(lanes, 4) if aligned and leaves is None else 1

    def __repr__(self) -> str:
        return f"<cuzarr.ElementwiseKernel {self.name}: {self.operation}>"


def _is_contiguous(buffer: _core.NdBuffer) -> bool:
    expected = 1
    itemsize = buffer.nbytes // max(int(np.prod(buffer.shape, dtype=object)), 1)
    for extent, stride in zip(reversed(buffer.shape), reversed(buffer.strides), strict=True):
        if extent != 1 and stride != expected * itemsize:
            return False
        expected *= extent
    return True


def _broadcast_strides(buffer: _core.NdBuffer, shape: tuple[int, ...]) -> list[int]:
    missing = len(shape) - len(buffer.shape)
    strides = [0 if extent == 1 else stride for extent, stride in zip(buffer.shape, buffer.strides, strict=True)]
    return [0] * missing + strides or [0]


def _span(buffer: _core.NdBuffer) -> tuple[int, int]:
    reach = [(extent - 1) * stride for extent, stride in zip(buffer.shape, buffer.strides, strict=True)]
    itemsize = buffer.nbytes // max(int(np.prod(buffer.shape, dtype=object)), 1)
    low = buffer.address + sum(step for step in reach if step < 0)
    return low, buffer.address + sum(step for step in reach if step > 0) + itemsize


def _overlap(a: _core.NdBuffer, b: _core.NdBuffer) -> bool:
    if not a.nbytes or not b.nbytes:
        return False
    (a_low, a_high), (b_low, b_high) = _span(a), _span(b)
    return a_low < b_high and b_low < a_high

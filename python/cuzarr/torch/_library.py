"""Makes batches of PyTorch tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from cuzarr._checks import element_type
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.foreign import device_buffer
from cuzarr._numpy import OF_TORCH
from cuzarr.loader._library import Library
from cuzarr.sparse import Matrix
from cuzarr.torch._tensors import to_tensor, torch_type

# PyTorch has few operators for unsigned integers of 2 to 8 bytes: it cannot compare them, and on some devices cannot assign rows of them.
# Older versions do not have these types.
_SIGNED = {getattr(torch, f"u{name}"): getattr(torch, name) for name in ("int16", "int32", "int64") if hasattr(torch, f"u{name}")}


class TensorLibrary(Library):
    """The array library that makes a data set's batches as PyTorch tensors, on one device. On a GPU, the thread that makes batches has a
    stream of its own.

    Parameters
    ----------
    device : str
        Where batches are.
    pin_memory : bool
        Whether batches in host memory are pinned.
    """

    def __init__(self, device: str, pin_memory: bool) -> None:
        super().__init__(device)
        self.pin_memory = pin_memory and self.is_on_host
        self.stream: Any = None

    def check(self, dtype: np.dtype[Any]) -> None:
        torch_type(dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> torch.Tensor:
        return torch.empty(shape, dtype=torch_type(dtype), device=self.device, pin_memory=self.pin_memory)

    def target(self, memory: torch.Tensor) -> Any:
        return _as_array(memory) if self.is_on_host else memory

    def rows(self, memory: torch.Tensor) -> list[Any]:
        if self.is_on_host:
            return super().rows(memory)
        # Taken as one array, because taking the memory of each row separately takes as long as a small read.
        whole = DeviceArray(device_buffer(memory), element_type(memory.dtype))
        return [whole[row] for row in range(len(memory))]

    def held(self, elements: Any) -> Any:
        return np.asarray(elements) if self.is_on_host else to_tensor(elements)

    def delivered(self, memory: torch.Tensor) -> torch.Tensor:
        return memory

    def converted(self, elements: Any) -> torch.Tensor:
        return to_tensor(elements)

    def matrix(self, matrix: Matrix) -> torch.Tensor:
        return matrix.to_torch()

    def of_host(self, numbers: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(numbers)

    def put(self, target: Any, elements: Any) -> None:
        if isinstance(target, torch.Tensor):
            target.copy_(elements, non_blocking=True)
        else:
            super().put(target, elements)

    def put_rows(self, target: Any, rows: np.ndarray[Any, Any], elements: Any, places: np.ndarray[Any, Any]) -> None:
        if isinstance(target, torch.Tensor):
            values = elements[places.tolist()].to(target.dtype)
            same_bits = _SIGNED.get(target.dtype, target.dtype)
            target.view(same_bits)[rows.tolist()] = values.view(same_bits)
        else:
            super().put_rows(target, rows, elements, places)

    def moved(self, elements: Any, axis: int, place: int) -> Any:
        return elements.movedim(axis, place) if isinstance(elements, torch.Tensor) else super().moved(elements, axis, place)

    def view(self, array: torch.Tensor, dtype: np.dtype[Any]) -> torch.Tensor:
        return array.view(torch_type(dtype))

    def astype(self, array: torch.Tensor, dtype: np.dtype[Any], *, copy: bool = False) -> torch.Tensor:
        return array.to(torch_type(dtype), copy=copy)

    def constant(self, value: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.as_tensor(value, device=self.device)

    def mark_missing(self, numbers: torch.Tensor, stored: torch.Tensor, mark: Any) -> None:
        if stored.dtype in _SIGNED:
            bits = 8 * stored.element_size()
            stored = stored.view(_SIGNED[stored.dtype])
            mark = mark - (1 << bits) if mark >= 1 << (bits - 1) else mark
        numbers.masked_fill_(stored == mark, torch.nan)

    def working(self) -> contextlib.AbstractContextManager[Any]:
        if self.is_on_host:
            # PyTorch initialises CUDA even for a missing stream, which a forked worker cannot do.
            return contextlib.nullcontext()
        if self.stream is None:
            self.stream = torch.cuda.Stream(torch.device(self.device))
        on_stream: contextlib.AbstractContextManager[Any] = torch.cuda.stream(self.stream)
        return on_stream

    def settle(self) -> None:
        if self.stream is not None:
            self.stream.synchronize()

    def hand_over(self, batch: Any) -> None:
        if self.stream is not None:
            _record(batch, torch.cuda.current_stream(torch.device(self.device)))


def _as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """NumPy's view of a tensor in host memory."""
    native = element_type(tensor.dtype)
    if native.name in OF_TORCH:
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[native.itemsize]
        array: np.ndarray[Any, Any] = tensor.view(bits).numpy().view(native)
        return array
    return tensor.numpy()  # type: ignore[no-any-return]


def _record(value: Any, stream: Any) -> None:
    """Records which stream uses the tensors of a batch, so that their memory is not reused too early."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.sparse_csr:
            _record([value.crow_indices(), value.col_indices(), value.values()], stream)
        elif value.is_cuda:
            value.record_stream(stream)
    elif isinstance(value, Mapping):
        for one in value.values():
            _record(one, stream)
    elif isinstance(value, list | tuple):
        for one in value:
            _record(one, stream)

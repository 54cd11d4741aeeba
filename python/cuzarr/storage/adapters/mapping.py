"""Adapters for mappings from keys to bytes, or to buffers on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._memory.convert import result_array, to_device
from cuzarr._memory.foreign import device_buffer, is_on_device
from cuzarr.buffer import cpu, gpu
from cuzarr.storage.adapters.base import ListingAdapter, Place, cut, own_identity


class MappingAdapter(ListingAdapter):
    """Adapter for a mapping from keys to bytes. If the mapping holds zarr-python's buffers, new values are such buffers."""

    def __init__(self, mapping: MutableMapping[str, Any]) -> None:
        self.mapping = mapping

    def keys(self) -> Iterable[str]:
        return list(self.mapping)

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        value = self.mapping.get(key)
        return None if value is None else cut(value, start, stop)

    def get_versioned(self, key: str, start: int | None, stop: int | None) -> tuple[Any, int | None]:
        value = self.mapping.get(key)
        is_part = type(value) is bytes and not (start is None and stop is None)
        return None if value is None else cut(value, start, stop), hash(value) if is_part else None

    def set(self, key: str, value: bytes) -> None:
        self.mapping[key] = value

    def delete(self, key: str) -> None:
        self.mapping.pop(key, None)

    def identity(self) -> Place:
        return own_identity(self.mapping)

    def describe(self) -> str:
        return f"{type(self.mapping).__name__} at {id(self.mapping):#x}"


class DeviceMappingAdapter(MappingAdapter):
    """Adapter for a mapping from keys to buffers in a GPU's memory. Values in host memory or on another GPU can be read, too."""

    def __init__(self, mapping: MutableMapping[str, Any], device: str) -> None:
        super().__init__(mapping)
        self.device: str | None = device
        self._buffer = cpu.Buffer if device == "cpu" else gpu.Buffer

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        value: Any = self.mapping.get(key)
        array = value.as_array_like() if hasattr(value, "as_array_like") else value
        if array is None or not is_on_device(array):
            return None if array is None else cut(array, start, stop)
        memory = device_buffer(array)
        if len(memory.shape) != 1 or memory.dtype != "uint8":
            memory = memory.copy("C").reshape((-1,)).reinterpret("uint8")
        first, end, _ = slice(start, stop).indices(memory.nbytes)
        return memory.region([first], [max(0, end - first)], [1], [])

    def get_versioned(self, key: str, start: int | None, stop: int | None) -> tuple[Any, int | None]:
        return self.get(key, start, stop), None

    def getsize(self, key: str) -> int | None:
        value = self.get(key, None, None)
        return None if value is None else value.nbytes if isinstance(value, _core.NdBuffer) else len(value)

    def set(self, key: str, value: bytes) -> None:
        self.mapping[key] = self._buffer.from_array_like(to_device(np.frombuffer(value, "u1"), str(self.device)))

    def set_buffer(self, key: str, value: _core.NdBuffer) -> None:
        self.mapping[key] = self._buffer.from_array_like(result_array(value, np.dtype("u1")))

    def describe(self) -> str:
        return f"gpumemory://{id(self.mapping)}"

"""Strings and bytes of variable length, in the packed form that the Rust side takes and gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr._memory.element_types import DataType
from cuzarr.errors import DTypeMismatchError


def decode_variable(offsets: bytes, data: bytes, shape: tuple[int, ...], data_type: DataType) -> np.ndarray[Any, Any]:
    """Strings or bytes of variable length from their packed form."""
    bounds = np.frombuffer(offsets, "u8").tolist()
    parts: list[Any] = [data[low:high] for low, high in zip(bounds, bounds[1:], strict=False)]
    if data_type.name == "string":
        parts = [part.decode() for part in parts]
    result = np.empty(len(parts), data_type.native)
    if parts:
        result[:] = parts
    return result.reshape(shape)


def encode_variable(values: np.ndarray[Any, Any], data_type: DataType) -> tuple[bytes, bytes]:
    """Strings or bytes of variable length in their packed form: offsets and data.

    Raises
    ------
    DTypeMismatchError
        An element is neither.
    """
    parts = []
    for item in values.reshape(-1).tolist():
        if data_type.name == "string":
            item = ("" if item is None else str(item)).encode()
        elif isinstance(item, str):
            item = item.encode()
        elif not isinstance(item, bytes | bytearray | memoryview) and item not in (None, 0):
            raise DTypeMismatchError(f"got an element of type {type(item).__name__}, the array holds bytes")
        parts.append(bytes(item or b""))
    offsets = np.zeros(len(parts) + 1, "u8")
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return offsets.tobytes(), b"".join(parts)

"""Converts arrays of strings or bytes of variable length to lists in C order, which the Rust side takes and returns."""

from __future__ import annotations

from typing import Any

import numpy as np


def to_array(elements: list[Any], shape: tuple[int, ...], native: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Makes an array of strings or bytes of the elements in a list."""
    result = np.empty(len(elements), native)
    if elements:
        result[:] = elements
    return result.reshape(shape)


def to_list(values: np.ndarray[Any, Any]) -> list[Any]:
    """Lists the elements of an array of strings or bytes, in C order."""
    elements: list[Any] = values.reshape(-1).tolist()
    return elements


def holds_text(values: Any) -> bool:
    """Whether an array holds only Python strings. The Rust side takes these without conversion."""
    return isinstance(values, np.ndarray) and values.dtype == object and set(map(type, values.flat)) <= {str}

"""Checks the weights with which epochs draw samples with replacement."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from cuzarr._memory.foreign import host_array, on_host
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def parse_weights(given: Any) -> Floats:
    """Checks weights, and scales them so that their sum is 1; returns float64 in the same shape.

    Raises
    ------
    InvalidArgumentError
        A weight is negative or not finite, or all weights are 0.
    """
    held = on_host(given)
    if (kind := np.asarray(held).dtype).kind not in "biuf":
        raise InvalidArgumentError(f"weights are {kind}, expected real numbers")
    weights = host_array(held, "weights", np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        worst = weights[~np.isfinite(weights) | (weights < 0)].reshape(-1)[0]
        raise InvalidArgumentError(f"weights has {worst}, expected finite numbers from 0 on")
    if not (largest := weights.max(initial=0)):
        raise InvalidArgumentError("all weights are 0, so no sample can be drawn")
    # Divided by the largest weight first, because the sum of large weights may be too large for a float.
    scaled = weights / largest
    shares: Floats = scaled / scaled.sum()
    return shares


def check_shape(weights: Floats, shape: tuple[int, ...], what: str) -> None:
    """Refuses weights that do not have the shape ``shape``.

    Raises
    ------
    ShapeMismatchError
    """
    if weights.shape != shape:
        raise ShapeMismatchError(f"weights has shape {weights.shape}, expected {shape}: {what}")


def fingerprint(weights: Floats) -> int:
    """A checksum of weights: saved states contain it, to detect that a data set has other weights."""
    return zlib.crc32(np.ascontiguousarray(weights).tobytes())

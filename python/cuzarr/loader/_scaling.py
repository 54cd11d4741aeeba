"""Decodes and scales the samples of a batch, and converts them to the element type that the user asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr._compute.decoded import Decoding
from cuzarr.loader._library import Library
from cuzarr.loader._variables import Part


def gathered_type(part: Part) -> np.dtype[Any]:
    """The element type in which samples are copied to a batch, before they are scaled. Samples that must be scaled are gathered in their
    stored type."""
    return part.dtype if part.is_plain else part.held


def finished(raw: Any, part: Part, library: Library) -> Any:
    """Decodes and scales the samples that one array has in a batch, and converts them to the wanted type."""
    if part.decoding is not None:
        raw = _decoded(raw, part.decoding, library)
    raw = raw.reshape([extent for axis, extent in enumerate(raw.shape, -1) if axis not in part.dropped])
    if not part.scaling.is_plain:
        raw = _scaled(raw, part, library)
    return raw if part.is_plain else library.astype(raw, part.dtype)


def _scaled(raw: Any, part: Part, library: Library) -> Any:
    """Scales the samples that one array has in a batch: ``(x * factor + shift - mean) / std``. Each step is a separate operation, so that
    the CPU and the GPU round alike."""
    scaling = part.scaling
    work = scaling.work_type(part.held if part.decoding is None else part.decoding.dtype, part.dtype)

    def constant(value: Any) -> Any:
        return library.constant(np.asarray(value, np.float64).astype(work))

    values = library.astype(raw, work, copy=True)
    if scaling.is_scaled:
        values *= constant(scaling.factor)
        values += constant(scaling.shift)
    if np.any(scaling.mean):
        # A mean may have more digits than float32 keeps. The remaining digits are subtracted in a second step.
        mean = np.asarray(scaling.mean, np.float64)
        values -= constant(mean)
        values -= constant(mean - mean.astype(work))
    values /= constant(scaling.std)
    return values


def _decoded(raw: Any, decoding: Decoding, library: Library) -> Any:
    """Decodes stored elements by the rule in the array's attributes: applies scale and offset, and sets missing elements to NaN."""
    if decoding.read_as is not None:
        raw = library.view(raw, decoding.read_as)
    if decoding.dtype.kind in "iu":
        return raw
    # Bools are made after the other attributes have been applied.
    work = np.dtype(np.float64) if decoding.dtype.kind == "b" else decoding.dtype
    numbers = library.astype(raw, work, copy=True)
    if decoding.scale is not None:
        numbers *= decoding.scale
    if decoding.offset is not None:
        numbers += decoding.offset
    for mark in decoding.missing:
        library.mark_missing(numbers, raw, mark)
    return numbers != 0 if decoding.dtype.kind == "b" else numbers

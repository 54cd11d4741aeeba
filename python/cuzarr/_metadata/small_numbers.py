"""Small number types that cuzarr reads and writes, but does not compute with, such as ``int4`` and ``float8_e4m3``. They are integers of
less than 8 bits, floats of at most 8 bits, and complex numbers of floats of at most 16 bits. NumPy needs ``ml_dtypes`` for them.

``ml_dtypes`` has no complex numbers of 8-bit floats, so these are structures with the fields ``real`` and ``imag``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuzarr import _numpy

_NATIVE = {ours: theirs for theirs, ours in _numpy.SMALL_NUMBERS.items()}
# zarr-extensions registers neither float8_e4m3fn, which tensorstore writes, nor complex numbers of it.
_PARTS = {f"complex_{name}": name for name in _NATIVE if name.startswith("float") and name != "float8_e4m3fn"}
NAMES = frozenset((*_NATIVE, *_PARTS))
"""Zarr's names of the small number types, such as ``int4``, that cuzarr reads and writes, but does not compute with."""


def native(name: str) -> np.dtype[Any]:
    """The NumPy dtype for the Zarr name of a small number type.

    Raises
    ------
    LibraryMissingError
        ``ml_dtypes`` is not installed, or too old.
    """
    if name in _PARTS:
        part = _numpy.of_ml_dtypes(_PARTS[name])
        return np.dtype([("real", part), ("imag", part)])
    return _numpy.of_ml_dtypes(_NATIVE[name])

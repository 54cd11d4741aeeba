"""A call of each of NumPy's functions that asks its arguments what it shall do: ufuncs and those with ``__array_function__``."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Arrays:
    """Arguments, all of one kind: NumPy's arrays, arrays in a store, views or plans."""

    x: Any
    """A square of positive floats that has a Cholesky decomposition."""
    i: Any
    """A square of 0 and 1."""
    v: Any
    """A row of rising floats, as long as the square."""
    n: Any
    """A row of whole numbers below the extent."""
    b: Any
    """A square of bools."""
    t: Any
    """Three columns of floats."""
    c: Any
    """Three dimensions."""
    u: Any
    """A square of ``uint8``."""
    d: Any
    """Dates."""


def arrays(extent: int) -> Arrays:
    """NumPy's arrays of this extent."""
    choose = np.random.default_rng(7)
    own = choose.random((extent, extent))
    square = own @ own.T + extent * np.eye(extent)
    bits = choose.integers(0, 2, square.shape)
    row = np.sort(choose.random(extent)) + 0.5
    dates = np.arange(extent).astype("M8[D]")
    return Arrays(
        square,
        bits,
        row,
        choose.integers(0, min(extent, 4), extent),
        bits > 0,
        choose.random((extent, 3)),
        choose.random((2, 2, extent * extent)),
        choose.integers(0, 256, square.shape).astype("u1"),
        dates,
    )


Call = Callable[[Any, Arrays], Any]
GROUPS: list[tuple[Call, str]] = [
    (lambda f, a: f(a.x, a.x), """arctan2 atan2 add copysign divide divmod equal float_power floor_divide fmax fmin fmod greater greater_equal
     heaviside hypot less less_equal logaddexp logaddexp2 maximum minimum mod multiply nextafter not_equal pow power remainder
     subtract true_divide logical_and logical_or logical_xor matmul vecdot allclose array_equal array_equiv isclose append kron
     outer inner dot vdot tensordot union1d setdiff1d setxor1d intersect1d isin broadcast_arrays may_share_memory shares_memory
     linalg.matmul linalg.solve linalg.vecdot linalg.tensordot linalg.lstsq"""),
    (lambda f, a: f(a.i, a.i), "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift left_shift right_shift gcd lcm"),
    (lambda f, a: f(a.i), "invert bitwise_count bitwise_not bitwise_invert"),
    (lambda f, a: f(a.x, a.i), "ldexp"),
    (lambda f, a: f(a.d), "isnat is_busday datetime_as_string"),
    (lambda f, a: f(a.d, a.d), "busday_count"),
    (lambda f, a: f(a.d, 0, "forward"), "busday_offset"),
    (lambda f, a: f(a.x, a.v), "matvec linalg.tensorsolve"),
    (lambda f, a: f(a.v, a.x), "vecmat searchsorted"),
    (lambda f, a: f(a.v, a.v), "convolve correlate polyadd polysub polymul polydiv histogram2d meshgrid linalg.outer"),
    (lambda f, a: f(a.t, a.t), "cross linalg.cross"),
    (lambda f, a: f(a.v), "cumulative_prod cumulative_sum roots trim_zeros vander poly polyder polyint"),
    (lambda f, a: f(a.n), "bincount ix_"),
    (lambda f, a: f(a.b), "packbits"),
    (lambda f, a: f(a.u), "unpackbits"),
    (lambda f, a: f(np.sum, 0, a.x), "apply_along_axis"),
    (lambda f, a: f(np.sum, a.x, [0]), "apply_over_axes"),
    (lambda f, a: f(a.x, 1), "argpartition partition pad roll rollaxis vsplit"),
    (lambda f, a: f(a.x, 2), "array_split split hsplit repeat tile linalg.matrix_power"),
    (lambda f, a: f(a.c, 2), "dsplit"),
    (lambda f, a: f([[a.x, a.x]]), "block"),
    (lambda f, a: f([a.x, a.x]), "column_stack concat concatenate hstack vstack dstack stack linalg.multi_dot"),
    (lambda f, a: f(a.x, (2, *a.x.shape)), "broadcast_to"),
    (lambda f, a: f(a.x, "f4"), "astype"),
    (lambda f, a: f(a.x.dtype, a.x.dtype), "can_cast"),
    (lambda f, a: f(a.i, [a.x, a.x]), "choose"),
    (lambda f, a: f(a.x, 1, 2), "clip"),
    (lambda f, a: f([True, False], a.x, 0), "compress"),
    (lambda f, a: f(a.x, 1), "copyto full_like fill_diagonal"),
    (lambda f, a: f(a.x, 0, 1), "put moveaxis swapaxes"),
    (lambda f, a: f(a.x, a.b, [1.0]), "place putmask"),
    (lambda f, a: f(a.x, a.i, 1, 0), "put_along_axis"),
    (lambda f, a: f(a.x, a.i, 0), "take_along_axis"),
    (lambda f, a: f(a.x, 0, 0), "delete"),
    (lambda f, a: f(a.x, [1.0, 2.0]), "digitize"),
    (lambda f, a: f("ij->i", a.x), "einsum einsum_path"),
    (lambda f, a: f(a.x, 0), "expand_dims"),
    (lambda f, a: f(a.b, a.x), "extract"),
    (lambda f, a: f(a.v, a.v, 2), "geomspace linspace logspace"),
    (lambda f, a: f(a.t), "histogramdd"),
    (lambda f, a: f(a.x, 0, 0, 0), "insert"),
    (lambda f, a: f(a.v, a.v, a.v), "interp"),
    (lambda f, a: f(a.x, 30), "percentile nanpercentile"),
    (lambda f, a: f(a.x, 0.3), "quantile nanquantile"),
    (lambda f, a: f(a.x, [a.b], [1.0]), "piecewise"),
    (lambda f, a: f(a.v, a.v, 1), "polyfit"),
    (lambda f, a: f(a.v, 2), "polyval"),
    (lambda f, a: f((a.n, a.n), (9, 9)), "ravel_multi_index"),
    (lambda f, a: f(a.n, (9, 9)), "unravel_index"),
    (lambda f, a: f(a.x, -1), "reshape"),
    (lambda f, a: f(a.x, (2, 2)), "resize"),
    (lambda f, a: f(a.x, 1), "result_type"),
    (lambda f, a: f(io.BytesIO(), a.x), "save savetxt savez savez_compressed"),
    (lambda f, a: f([a.b], [a.x]), "select"),
    (lambda f, a: f(a.x, [0], 0), "take"),
    (lambda f, a: f(a.b, a.x, 0), "where"),
    (lambda f, a: f(a.x, ind=1), "linalg.tensorinv"),
]  # fmt: skip
OTHERS: dict[str, Call] = {name: call for call, names in GROUPS for name in names.split()}


def call_of(name: str) -> Call:
    """A call of a function by its name behind ``numpy.``; most take one array."""
    return OTHERS.get(name, lambda f, a: f(a.x))


def functions() -> dict[str, Any]:
    """NumPy's functions that ask their arguments, by their names behind ``numpy.``."""
    found = {}
    for prefix, module in (("", np), ("linalg.", np.linalg), ("fft.", np.fft)):
        for name in dir(module):
            value = getattr(module, name)
            if isinstance(value, np.ufunc) or hasattr(value, "_implementation"):
                found[prefix + name] = value
    return found

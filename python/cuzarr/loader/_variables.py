"""The variables of a sample: which elements it takes from each array, and how they are scaled."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cuzarr._checks import axis_number, element_type, items, whole
from cuzarr._compute.decoded import Decoding, decoding_of
from cuzarr._compute.operands import dimension_names
from cuzarr._compute.sources import is_array
from cuzarr._metadata.chunk_grid import AxisGrid
from cuzarr._node.array import Array
from cuzarr._node.open import array_of
from cuzarr._numpy import is_number, is_small
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError, ShapeMismatchError, UnsupportedError
from cuzarr.storage import StorePath

if TYPE_CHECKING:
    from cuzarr.typing import StoreLike, SupportsStorePath

    One: TypeAlias = Array | SupportsStorePath | StoreLike | "Variable"

Window = Mapping[int | str, int | tuple[int, int]]
"""The elements that a sample has along each sample axis, given by name or number: how many, or their offsets ``(start, stop)`` from its
position."""


Given: TypeAlias = "One | Sequence[One] | Mapping[str, One]"
"""The arrays of samples: one array, several, or several by name."""


def parse_window(window: Any, what: str) -> dict[int | str, tuple[int, int]]:
    """Converts the argument ``window`` to offsets ``(start, stop)`` for each sample axis.

    Raises
    ------
    ArgumentTypeError, InvalidArgumentError
    """
    if not isinstance(window, Mapping) or not window:
        raise ArgumentTypeError(f"{what} is {window!r}, expected a dictionary of dimensions", hint="as in {'time': 4}")
    return {axis: _offsets(extent, f"{what}[{axis!r}]") for axis, extent in window.items()}


def _offsets(extent: Any, what: str) -> tuple[int, int]:
    if isinstance(extent, Sequence) and not isinstance(extent, str):
        given = items(extent, what, "a number of elements, or their offsets (start, stop)")
        if len(given) != 2:
            raise InvalidArgumentError(f"{what} is {extent!r}, expected a number of elements, or offsets (start, stop)")
        start, stop = (whole(one, what) for one in given)
        if stop <= start:
            raise InvalidArgumentError(f"{what} is {extent!r}, which has no elements", hint="the second offset is the larger one")
        return start, stop
    return 0, whole(extent, what, 1)


@dataclass(frozen=True)
class Variable:
    """An array from which samples are taken, with its own settings, such as another window, type or scaling.

    Parameters
    ----------
    source : array or StoreLike
        The array, or its path, URL or store.
    window : dict, optional
        The extent along sample axes for which it differs from the data set's: a number of elements, or offsets ``(start, stop)`` from the
        sample's position. ``{"time": (1, 3)}`` is the next two time steps.
    at : dict, optional
        One offset along some sample axes, as in ``{"time": 0}``. The sample then does not have these dimensions, for example if it is a
        label.
    dims : sequence of str, optional
        Names of the array's dimensions, if it stores none.
    dtype : dtype, optional
        Element type of samples: PyTorch's or NumPy's. By default the array's type, or float32 if elements are scaled.
    mean, std : float or array, optional
        Samples are ``(x - mean) / std``. Arrays are broadcast to a sample: their shape is ``(channels, 1, 1)`` for samples of channels,
        y, x.
    scale, offset : float or array, optional
        Samples are ``x * scale + offset``, before ``mean`` and ``std``.
    decode : bool
        Whether elements are decoded first, by the rule of :meth:`Array.decoded <cuzarr.Array.decoded>`: packed elements are scaled, and
        missing elements become NaN.

    Raises
    ------
    InvalidArgumentError, UnsupportedError
        The array has no such dimensions, or its elements are not numbers. The data set raises it.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> t2m = cuzarr.create_array({}, data=np.full((6, 2), 300.0), dimension_names=("time", "x"))
    >>> target = cuzarr.loader.Variable(t2m, window={"time": (1, 3)}, mean=280.0, std=20.0)
    >>> next(iter(cuzarr.loader.WindowDataset(target, {"time": 1}, 2)))[0].tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    source: Any
    window: Window | None = None
    at: Mapping[int | str, int] | None = None
    dims: Sequence[str] | None = None
    dtype: Any = None
    mean: Any = None
    std: Any = None
    scale: Any = None
    offset: Any = None
    decode: bool = False


@dataclass(frozen=True)
class Scaling:
    """The formula that computes elements of samples from stored elements: ``(x * factor + shift - mean) / std`` in floats.

    The mean is subtracted before the division, so that elements near a large mean keep their digits.
    """

    factor: Any = 1.0
    shift: Any = 0.0
    mean: Any = 0.0
    std: Any = 1.0

    @property
    def is_scaled(self) -> bool:
        """Whether this formula multiplies elements, or adds a number, before it subtracts the mean."""
        return not (_is_number(self.factor, 1) and _is_number(self.shift, 0))

    @property
    def is_plain(self) -> bool:
        """Whether the formula leaves elements unchanged."""
        return not self.is_scaled and _is_number(self.mean, 0) and _is_number(self.std, 1)

    def work_type(self, held: np.dtype[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The float type in which scaling computes, precise enough for the stored type and the type of the samples. It is float64 if
        ``dtype`` is float64, if elements have more digits than float32 keeps, or if a mean is subtracted from a product that float32 would
        round. Else it is float32."""
        is_exact = held.kind in "fV" and held.itemsize <= 4 or held.itemsize <= 2
        is_rounded = self.is_scaled and not _is_number(self.mean, 0)
        return np.dtype(np.float64 if dtype == np.float64 or not is_exact or is_rounded else np.float32)


def _is_number(value: Any, number: float) -> bool:
    return np.ndim(value) == 0 and bool(value == number)


@dataclass(frozen=True)
class Part:
    """One of the arrays from which samples are taken, opened and checked.

    Attributes
    ----------
    array : Array
        The array.
    axes : tuple of (int or None)
        For each sample axis the dimension of the array; ``None`` if the array does not have it.
    window : tuple of (int, int)
        For each sample axis the offsets of a sample's elements.
    dropped : tuple of int
        Dimensions that samples do not have.
    held : numpy.dtype
        Element type in which cells are held.
    dtype : numpy.dtype
        Element type of samples.
    scaling : Scaling
        The scaling of elements.
    decoding : Decoding, optional
        The decoding that comes before the scaling.
    """

    array: Array
    axes: tuple[int | None, ...]
    window: tuple[tuple[int, int], ...]
    dropped: tuple[int, ...]
    held: np.dtype[Any]
    dtype: np.dtype[Any]
    scaling: Scaling = field(default_factory=Scaling)
    decoding: Decoding | None = None

    @property
    def is_plain(self) -> bool:
        """Whether samples get this array's stored elements unchanged, neither decoded nor scaled."""
        return self.scaling.is_plain and self.decoding is None

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of this array's part of a sample. Dropped dimensions are included, with extent 1."""
        shape = list(self.array.shape)
        for axis, (start, stop) in zip(self.axes, self.window, strict=True):
            if axis is not None:
                shape[axis] = stop - start
        return tuple(shape)

    def region(self, starts: Sequence[int], stops: Sequence[int]) -> tuple[slice, ...]:
        """Converts a box along the sample axes to slices of this array; dimensions that are no sample axes are taken whole."""
        region = [slice(0, extent) for extent in self.array.shape]
        for axis, start, stop in zip(self.axes, starts, stops, strict=True):
            if axis is not None:
                region[axis] = slice(start, stop)
        return tuple(region)

    def region_bytes(self, region: Sequence[slice]) -> int:
        """The size in memory of a region of the array, in bytes."""
        elems: int = math.prod(one.stop - one.start for one in region)
        return elems * self.held.itemsize

    @property
    def grid(self) -> tuple[AxisGrid, ...]:
        """The grid of chunks along each dimension of the array; for a sharded array, of the inner chunks."""
        return self.array._chunk_grid.axes

    def chunk_count(self, region: Sequence[slice]) -> int:
        """The number of chunks that a region of the array touches."""
        pairs = [(one, axis) for one, axis in zip(region, self.grid, strict=True)]
        return math.prod(
            axis.chunk_of(one.stop - 1) - axis.chunk_of(one.start) + 1 for one, axis in pairs if one.stop > one.start
        )


class Form:
    """The form in which the user passed the arrays of a data set, and in which batches are returned: one, several, or several by name.

    Attributes
    ----------
    given : tuple
        The argument for each array.

    Raises
    ------
    InvalidArgumentError
        There is no array.
    """

    def __init__(self, variables: Any) -> None:
        self.names: tuple[str, ...] | None = None
        if _is_named(variables):
            self.names, variables = tuple(variables), list(variables.values())
        self.is_single = not isinstance(variables, list | tuple)
        self.given: tuple[Any, ...] = (variables,) if self.is_single else tuple(variables)
        if not self.given:
            raise InvalidArgumentError("got no variables, expected at least one array")

    def of(self, values: Sequence[Any]) -> Any:
        """Arranges one value for each array as the user passed the arrays: alone, in a tuple, or in a dictionary by name."""
        if self.names is not None:
            return dict(zip(self.names, values, strict=True))
        return values[0] if self.is_single else tuple(values)


class Parts:
    """The arrays of samples: one, several, or several by name.

    Attributes
    ----------
    parts : tuple of Part
        The arrays.
    sample_axes : tuple of (int or str)
        The axes along which samples are chosen.
    extents : tuple of int
        The arrays' extent along each of them.
    sources : tuple of int
        For each part the number of the first part of the same array, so that arrays that are given twice are read once.
    form : Form
        How the arrays were given.

    Raises
    ------
    ShapeMismatchError
        The arrays' extents along a sample axis differ.
    InvalidArgumentError
        No array has a sample axis.
    """

    def __init__(self, variables: Any, window: dict[int | str, tuple[int, int]]) -> None:
        self.form = Form(variables)
        self.sample_axes = tuple(window)
        wanted = [one if isinstance(one, Variable) else Variable(one) for one in self.form.given]
        self.parts = tuple(_opened(one, window) for one in wanted)
        self.extents = tuple(self._extent(number, axis) for number, axis in enumerate(window))
        self.parts, self.sources = _shared(self.parts)
        devices = {part.array.device for part in self.parts}
        if len(devices) > 1:
            hint = "open all arrays with one device="
            raise InvalidArgumentError(f"the arrays read to {', '.join(sorted(devices))}, expected one device", hint=hint)
        self.device = devices.pop()

    def _extent(self, number: int, axis: int | str) -> int:
        found = {part.array.shape[own] for part in self.parts if (own := part.axes[number]) is not None}
        if not found:
            raise InvalidArgumentError(
                f"no array has the dimension {axis!r}", hint="pass dims= to Variable for arrays without names"
            )
        if len(found) > 1:
            raise ShapeMismatchError(f"got extents {sorted(found)} along {axis!r}, expected equal ones")
        return found.pop()

    @property
    def window(self) -> tuple[tuple[int, int], ...]:
        """The smallest range of offsets along each sample axis that contains the windows of all arrays."""
        own = [
            [part.window[number] for part in self.parts if part.axes[number] is not None] for number in range(len(self.extents))
        ]
        return tuple((min(start for start, _ in axis), max(stop for _, stop in axis)) for axis in own)

    @property
    def are_rows(self) -> bool:
        """Whether samples are rows: there is one sample axis, and a sample takes one position along it from each array. Many samples are
        then copied at once."""
        return len(self.extents) == 1 and all(
            stop - start == 1 for part in self.parts for start, stop in part.window if part.axes[0] is not None
        )


def _is_named(variables: Any) -> bool:
    """Whether the argument ``variables`` is a dictionary of arrays by name. Other dictionaries are stores."""
    values = variables.values() if isinstance(variables, Mapping) else ()
    return bool(values) and all(is_array(one) or isinstance(one, Variable | str | os.PathLike | StorePath) for one in values)


def _shared(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], tuple[int, ...]]:
    """Finds arrays that were given twice: returns the parts, and for each part the number of the first part with the same array. Parts of
    one array are held in the same type."""
    firsts = [
        next(number for number, one in enumerate(parts) if one.axes == part.axes and one.array.same_as(part.array))
        for part in parts
    ]
    alike = [len({one.held for one, other in zip(parts, firsts, strict=True) if other == first}) == 1 for first in firsts]
    held = [part.held if same else part.array.dtype.newbyteorder("=") for part, same in zip(parts, alike, strict=True)]
    return tuple(replace(part, held=own) for part, own in zip(parts, held, strict=True)), tuple(firsts)


def _opened(variable: Variable, window: dict[int | str, tuple[int, int]]) -> Part:
    array = array_of(variable.source)
    names = dimension_names(array) if variable.dims is None else items(variable.dims, "dims", "names of dimensions")
    if variable.dims is not None and names is not None and len(names) != array.ndim:
        raise InvalidArgumentError(f"dims is {tuple(names)}, the array has {array.ndim} dimensions")
    if array.metadata.data_type.is_variable or not is_number(array.dtype) and not is_small(array.dtype):
        raise UnsupportedError(f"cannot make samples of elements of {array.dtype}", hint="use arrays of numbers")
    own = parse_window(variable.window, "window") if variable.window else {}
    dropped = {axis: whole(offset, f"at[{axis!r}]") for axis, offset in (variable.at or {}).items()}
    for axis in (*own, *dropped):
        if axis not in window:
            known = ", ".join(map(repr, window))
            raise InvalidArgumentError(f"{axis!r} is no sample axis", hint=f"the sample axes are {known}")
    axes, offsets = [], []
    for axis, common in window.items():
        has_axis = not isinstance(axis, str) or axis in (names or ())
        axes.append(axis_number(axis, array.ndim, names) if has_axis else None)
        offsets.append((dropped[axis], dropped[axis] + 1) if axis in dropped else own.get(axis, common))
    scaling = _scaling(variable)
    decoding = decoding_of(array) if variable.decode else None
    native = array.dtype.newbyteorder("=")
    number = native if decoding is None else decoding.dtype
    # Decoded bools, and integers that decoding only makes signed or unsigned, are not floats.
    is_float = not scaling.is_plain or decoding is not None and number.kind not in "biu"
    if variable.dtype is not None:
        dtype = element_type(variable.dtype)
    else:
        dtype = np.dtype(np.float32) if is_float else number
    is_real = is_number(native) and native.kind != "c"
    is_plain = scaling.is_plain and decoding is None
    if is_float and (dtype.kind not in "fV" or is_small(dtype)) or not (is_plain or is_real):
        raise UnsupportedError(f"cannot scale elements of {native} to {dtype}", hint="scale real numbers, to floats")
    # Elements that must be scaled are held in their stored type. Others are held in the wanted type if that is not larger.
    held = dtype if is_plain and dtype.itemsize <= native.itemsize else native
    lost = tuple(own for axis, own in zip(window, axes, strict=True) if axis in dropped and own is not None)
    part = Part(array, tuple(axes), tuple(offsets), lost, held, dtype, scaling, decoding)
    _check_shapes(part)
    return part


def _check_shapes(part: Part) -> None:
    """Refuses arrays for scaling (such as ``mean``) whose shape does not broadcast to a sample's shape.

    Raises
    ------
    ShapeMismatchError
    """
    shape = tuple(extent for axis, extent in enumerate(part.sample_shape) if axis not in part.dropped)
    for name in ("factor", "shift", "mean", "std"):
        own = np.shape(getattr(part.scaling, name))
        pairs = zip(reversed(own), reversed(shape), strict=False)
        if len(own) > len(shape) or any(one not in (1, extent) for one, extent in pairs):
            what = {"factor": "scale", "shift": "scale or offset"}.get(name, name)
            raise ShapeMismatchError(f"{what} has shape {own}, expected one that broadcasts to a sample of {shape}")


def _scaling(variable: Variable) -> Scaling:
    factor: Any = 1.0
    shift: Any = 0.0
    for value, what in ((variable.scale, "scale"), (variable.offset, "offset"), (variable.mean, "mean"), (variable.std, "std")):
        if value is not None and np.asarray(value).dtype.kind not in "iuf":
            raise ArgumentTypeError(f"{what} is {value!r}, expected a number or an array of numbers")
    if variable.scale is not None:
        factor, shift = _product(factor, variable.scale), _product(shift, variable.scale)
    if variable.offset is not None:
        shift = shift + np.asarray(variable.offset, np.float64)
    mean = 0.0 if variable.mean is None else np.asarray(variable.mean, np.float64)
    std = 1.0 if variable.std is None else np.asarray(variable.std, np.float64)
    if not np.all(std != 0):
        raise InvalidArgumentError("std is 0, expected numbers above 0")
    return Scaling(factor, shift, mean, std)


def _product(left: Any, right: Any) -> Any:
    return np.asarray(left, np.float64) * np.asarray(right, np.float64)

"""``DeviceArray``, an array in a GPU's memory. It does not need CuPy."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np

from cuzarr import _checks, _core, _numpy
from cuzarr._docstrings import documented
from cuzarr._memory import foreign, index_arrays
from cuzarr._memory.box import basic_box, ensure_tuple, expand_ellipsis, is_integer, normalize_index, signed_range, slice_indices
from cuzarr._memory.element_types import ORDERED, are_known_apart, is_opaque, memory_type, reversals
from cuzarr._memory.foreign import OnDevice, host_view, numpy_view
from cuzarr._memory.numpy_methods import NumpyMethods
from cuzarr._numpy import check_dtype
from cuzarr._operators import dispatch
from cuzarr._operators.dispatch import Lazy
from cuzarr._operators.numpy_protocol import NumpyProtocol
from cuzarr._operators.signs import OneElement, Operators, Reductions, Shaped
from cuzarr.errors import (
    BoundsCheckError,
    CuzarrError,
    DTypeMismatchError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    NegativeStepError,
    SelectionInvalidError,
    ShapeMismatchError,
    UnsupportedError,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from cuzarr.typing import ArrayLike, DTypeLike, MemoryOperand, Selection, Stream

Order = Literal["K", "A", "C", "F"]
_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
# Largest number of elements whose values ``repr`` shows.
_MOST_SHOWN = 1000


def _warn_of_lost_parts(own: np.dtype[Any], wanted: np.dtype[Any]) -> None:
    # As in NumPy, only the real part of a complex number can be stored as another type.
    if own.kind == "c" and wanted.kind not in "cb":
        message = "Casting complex values to real discards the imaginary part"
        warnings.warn(message, np.exceptions.ComplexWarning, stacklevel=3)


@documented(
    """
    device : str
        ``"cuda:N"``, or ``"cpu"``.
    >>> import cuzarr, numpy as np
    """,
    errors={"device": "DeviceUnavailableError\n    There is no such GPU."},
)
class DeviceArray(
    OnDevice,
    NumpyProtocol,
    NumpyMethods,
    OneElement,
    Operators["MemoryOperand", "DeviceArray"],
    Reductions["DeviceArray"],
    Shaped,
):
    """An N-dimensional array in GPU memory, with NumPy's arithmetic (see :mod:`cuzarr.xp`).

    CuPy, PyTorch, JAX and Numba take it without copying, by DLPack (with streams) or the CUDA array interface (version 3). It is never
    copied to the host without a call of :meth:`cpu`. Slicing, reshaping and transposing give views, as in NumPy.

    Parameters
    ----------
    buffer, dtype
        Internal; use :meth:`empty`, :meth:`from_host` or :func:`cuzarr.xp.asarray`.

    Attributes
    ----------
    shape : tuple of int
        Extents, in elements.
    strides : tuple of int
        Bytes from one element to the next, per dimension.
    dtype : numpy.dtype
        Element type.
    device : str
        The device that holds the memory: ``"cuda:0"``.

    Raises
    ------
    ImplicitHostCopyError
        From ``numpy.asarray(array)`` of an array on a GPU: use :meth:`cpu`.

    >>> x = cuzarr.DeviceArray.from_host(np.arange(3.0), "cpu")
    >>> x.device, x.shape, x.cpu().tolist()
    ('cpu', (3,), [0.0, 1.0, 2.0])
    """

    _in_memory, _on_host = "", ".cpu()"

    def __init__(self, buffer: _core.NdBuffer, dtype: np.dtype[Any]) -> None:
        self._buffer = buffer
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: DTypeLike, device: str, order: Literal["C", "F"] = "C") -> DeviceArray:
        """A new array whose elements are not set: they hold whatever the memory held.

        Parameters
        ----------
        shape : tuple of int
            Extents, in elements.
        dtype : dtype-like
            Type of the elements.
        order : {"C", "F"}
            Which dimension changes fastest in memory: the last (``"C"``) or the first.

        >>> cuzarr.DeviceArray.empty((2, 3), "float32", "cpu").strides  # "cuda:0" on a GPU
        (12, 4)
        """
        dtype = _checks.element_type(dtype)
        return cls(_core.NdBuffer.empty(_checks.extents(shape), memory_type(dtype), str(device), order), dtype)

    @classmethod
    def from_host(cls, array: ArrayLike, device: str) -> DeviceArray:
        """Copies a NumPy array to a device's memory.

        Parameters
        ----------
        array : array_like
            The array. The copy is in F order if the array is only contiguous in F order; else it is in C order.

        >>> cuzarr.DeviceArray.from_host(np.arange(3), "cpu").cpu().tolist()  # "cuda:0" on a GPU
        [0, 1, 2]
        """
        array = foreign.host_array(array, "array")
        return cls(host_view(array).to(str(device)), array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each dimension."""
        return self._buffer.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each dimension."""
        return self._buffer.strides

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return self.dtype.itemsize

    @property
    def device(self) -> str:
        """Device that holds the memory, such as ``"cuda:0"``."""
        return self._buffer.device

    def cpu(self) -> np.ndarray[Any, Any]:
        """Copies the array to host memory.

        Returns
        -------
        numpy.ndarray
            The copy.

        >>> cuzarr.DeviceArray.from_host(np.arange(3), "cpu").cpu().sum().item()
        3
        """
        return numpy_view(self._buffer.to("cpu"), self.dtype)

    def to(self, device: str) -> DeviceArray | np.ndarray[Any, Any]:
        """This array on another device, or the array itself if it is already there.

        Returns
        -------
        DeviceArray or numpy.ndarray
            A NumPy array for ``"cpu"``.

        >>> cuzarr.DeviceArray.from_host(np.arange(3.0), "cpu").to("cpu")
        array([0., 1., 2.])
        """
        if device == "cpu":
            return self.cpu()
        moved = self._buffer.to(device)
        return self if moved is self._buffer else DeviceArray(moved, self.dtype)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Hands the array's memory to another library, as a DLPack capsule. The elements are ready on ``stream`` when this returns."""
        return self._buffer.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the memory in DLPack's numbers: its type and its number."""
        return self._buffer.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """A dictionary that describes the memory by version 3 of the CUDA array interface."""
        # The memory itself has no information about structures, strings, units of time and byte orders.
        typestr = self.dtype.str if self.dtype.names is None else f"|V{self.dtype.itemsize}"
        return {**self._buffer.cuda_array_interface(), "typestr": typestr}

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """The namespace of the array API standard for this array: :mod:`cuzarr.xp`.

        Parameters
        ----------
        api_version : str, optional
            The version of the standard; versions up to 2024.12 are known.

        Returns
        -------
        module

        Raises
        ------
        InvalidArgumentError
            The version is not known.

        >>> x = cuzarr.DeviceArray.from_host(np.array([4.0, 9.0]), "cpu")
        >>> x.__array_namespace__().sqrt(x).tolist()
        [2.0, 3.0]
        """
        if api_version not in (None, *_API_VERSIONS):
            raise InvalidArgumentError(f"api_version is {api_version!r}, expected one of {', '.join(_API_VERSIONS)}")
        return dispatch.namespace

    def to_device(self, device: str, /, *, stream: Stream = None) -> DeviceArray | np.ndarray[Any, Any]:
        """This array on another device. This is the array API standard's name for :meth:`to`.

        Parameters
        ----------
        stream : optional
            Must be ``None``: the result is ready on every stream.

        Returns
        -------
        DeviceArray or numpy.ndarray
            A NumPy array for ``"cpu"``.

        Raises
        ------
        DeviceUnavailableError
            There is no such GPU.
        InvalidArgumentError
            A stream was given.

        >>> cuzarr.DeviceArray.from_host(np.arange(3.0), "cpu").to_device("cpu")
        array([0., 1., 2.])
        """
        if stream is not None:
            raise InvalidArgumentError("to_device takes no stream", hint="leave it out: the result is ready on every stream")
        return self.to(device)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Always raises an error: a copy to the host must be requested with :meth:`cpu`."""
        raise ImplicitHostCopyError(
            f"this array is on {self.device}, and a copy to the host has to be asked for",
            hint="call .cpu(), or hand it to a GPU library through DLPack",
        )

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """Calls cuzarr's function in place of NumPy's. An array that is created ``like=`` this one is put on this device."""
        made = super().__array_function__(function, types, arguments, options)
        # Only a call with `like=` returns a NumPy array. NumPy's other functions cannot get the elements, because `__array__` refuses.
        return DeviceArray.from_host(made, self.device) if isinstance(made, np.ndarray) else made

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of 0 dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        return (self[place] for place in range(len(self)))

    # --------------------------------------------------------------------------------------------------------- views

    def __getitem__(self, key: Selection) -> DeviceArray:
        """The elements of this array that a key selects, as in NumPy. Integers, slices, an ellipsis and new dimensions give a view; index
        arrays and masks give new memory.

        Parameters
        ----------
        key : int, slice, Ellipsis, None, list of int, array or tuple of them
            Slices have steps of either sign. Index arrays and masks may be on this device or on the host.

        Returns
        -------
        DeviceArray
            The view or copy; an array of no dimensions for a single element.

        Raises
        ------
        SelectionInvalidError
            An index lies outside the array, or the key does not fit the array.

        >>> x = cuzarr.DeviceArray.from_host(np.arange(12).reshape(3, 4), "cpu")
        >>> x[1:, ::2].shape
        (2, 2)
        >>> x[::-1, [0, 3]].tolist()
        [[8, 11], [4, 7], [0, 3]]
        >>> x[x > 8].tolist()
        [9, 10, 11]
        """
        try:
            box = basic_box(key, self.shape)
        except SelectionInvalidError:
            items = _with_arrays(key)
            if items is None:
                return self._view(key)
            named = self._named(items)
            if isinstance(named.numbers, DeviceArray):
                return named.among._gathered(named.axis, named.numbers).reshape(named.shape)
            numbers = foreign.wrap_host(named.numbers.astype(np.uint64))
            return DeviceArray(named.among._buffer.take(named.axis, numbers), self.dtype).reshape(named.shape)
        return DeviceArray(self._buffer.region(box.start, box.count, box.step, box.dropped), self.dtype)

    def _view(self, key: Any) -> DeviceArray:
        """The view of this array that a key of integers, slices, an ellipsis and new dimensions (``None``) selects. Slices may have steps
        of either sign."""
        items = ensure_tuple(key)
        own = expand_ellipsis(tuple(item for item in items if item is not None), self.shape)
        try:
            box = basic_box(own, self.shape)
            view = DeviceArray(self._buffer.region(box.start, box.count, box.step, box.dropped), self.dtype)
        except NegativeStepError:
            view = self._falling(own)
        shape = list(view.shape)
        place = 0
        for item in items:
            if item is None:
                shape.insert(place, 1)
            place += self.ndim - sum(item is not None for item in items) + 1 if item is Ellipsis else not is_integer(item)
        return view.reshape(shape) if len(shape) > view.ndim else view

    def _falling(self, items: tuple[Any, ...]) -> DeviceArray:
        """The elements that ``items`` selects, by an integer or a slice for every dimension of this array. Steps may be negative."""
        along: list[Any] = []
        dims: list[tuple[int | None, int]] = []
        for axis, (item, extent) in enumerate(zip(items, self.shape, strict=True)):
            if is_integer(item):
                along.append(normalize_index(item, extent))
                continue
            along.append(signed_range(range(*slice_indices(item, extent))))
            dims.append((axis, 0))
        check_dtype(self.dtype, "a slice with a negative step")
        memory = _core.Expr.buffer(self._buffer).picked(along, dims).memory()
        assert memory is not None
        return DeviceArray(memory, self.dtype)

    def _gathered(self, axis: int, indices: DeviceArray) -> DeviceArray:
        """A new array with this array's elements at ``indices`` (int64, on this device) along the dimension ``axis``.

        ``indices`` of one dimension apply to every line along ``axis``. Otherwise their other extents are the array's, and each line
        has its own.

        Raises
        ------
        BoundsCheckError
            An index lies outside the array.
        """
        shared = (*(1,) * axis, -1, *(1,) * (self.ndim - axis - 1))
        by = indices if indices.ndim == self.ndim else indices.reshape(shared)
        try:
            return DeviceArray(self._buffer.gather(axis, by._buffer), self.dtype)
        except InvalidArgumentError as error:
            raise BoundsCheckError(str(error)) from None

    def _named(self, items: tuple[Any, ...]) -> _Named:
        """Converts a key with index arrays or masks to indices of this array's elements, for reading or writing them. If an index array or
        a mask is on this device, all are moved to it."""
        if any(isinstance(item, DeviceArray) and item.device == self.device for item in items):
            chosen = index_arrays.parse(tuple(map(self._brought, items)), self.shape, _nonzero, dispatch.functions["where"])
        else:
            on_host = tuple(item.cpu() if isinstance(item, DeviceArray) else item for item in items)
            chosen = index_arrays.parse(on_host, self.shape, np.flatnonzero, np.where)
        turned = self._view(tuple(chosen.basic)).transpose(chosen.order)
        extents, end = turned.shape, chosen.first + chosen.listed
        count = math.prod(extents[chosen.first : end])
        among = turned.reshape((*extents[: chosen.first], count, *extents[end:]))
        return _Named(turned, among, chosen.first, chosen.numbers.reshape(-1), chosen.shape(extents))

    def _brought(self, item: Any) -> Any:
        """Copies one item of an indexing key to this array's device, if it is an index array or a mask."""
        if isinstance(item, np.ndarray):
            return DeviceArray.from_host(item, self.device)
        return (
            DeviceArray.from_host(item.cpu(), self.device)
            if isinstance(item, DeviceArray) and item.device != self.device
            else item
        )

    def _put(self, items: tuple[Any, ...], value: Any) -> None:
        """Writes to the elements that a key with index arrays or masks selects."""
        named = self._named(items)
        values = DeviceArray.empty(named.shape, self.dtype, self.device)
        values[...] = value
        among, axis, numbers = named.among, named.axis, named.numbers
        values = values.reshape((*among.shape[:axis], numbers.shape[0], *among.shape[axis + 1 :]))
        if isinstance(numbers, DeviceArray):
            try:
                among._buffer.scatter(axis, numbers._buffer, values._buffer)
            except InvalidArgumentError as error:
                raise BoundsCheckError(str(error)) from None
        else:
            among._buffer.put(axis, foreign.wrap_host(numbers.astype(np.uint64)), values._buffer)
        if among._buffer.address != named.turned._buffer.address:  # `among` is a copy: no view could join the dimensions
            named.turned[...] = among.reshape(named.turned.shape)

    def tolist(self) -> Any:
        """Copies the elements of this array to the host, as Python numbers in nested lists.

        Returns
        -------
        list or scalar
            Lists as deep as there are dimensions.

        >>> cuzarr.DeviceArray.from_host(np.arange(4).reshape(2, 2), "cpu").tolist()
        [[0, 1], [2, 3]]
        """
        return self.cpu().tolist()

    def reshape(
        self,
        *shape: SupportsIndex | Sequence[SupportsIndex],
        order: Literal["A", "C", "F"] | None = "C",
        copy: bool | None = None,
    ) -> DeviceArray:
        """The elements of this array in another shape: a view if possible, else a copy.

        Parameters
        ----------
        *shape : int, or one tuple of int
            The new extents. One of them may be -1; it is computed from the others.
        order : {"C", "F", "A"}
            In which order elements are counted, as in NumPy.
        copy : bool, optional
            ``True`` always copies; ``False`` never does.

        Raises
        ------
        InvalidArgumentError
            The shape has another number of elements, or needs a copy that ``copy=False`` forbids.

        >>> cuzarr.DeviceArray.from_host(np.arange(6), "cpu").reshape(2, -1).shape
        (2, 3)
        """
        extents = shape[0] if len(shape) == 1 and not hasattr(shape[0], "__index__") else shape
        wanted = _resolve(
            tuple(_checks.whole(extent, "shape", -1) for extent in _checks.items(extents, "shape", "whole numbers")), self.size
        )
        if order not in ("C", None):
            if order == "A" and not self._is_packed("F"):
                return self.reshape(wanted, copy=copy)
            return self.transpose().reshape(wanted[::-1], copy=copy).transpose()
        reshaped = DeviceArray(self._buffer.reshape(wanted), self.dtype)
        if copy is False and reshaped._buffer.address != self._buffer.address:
            raise InvalidArgumentError(f"shape {self.shape} cannot become {wanted} without a copy")
        return reshaped.copy() if copy and reshaped._buffer.address == self._buffer.address else reshaped

    def ravel(self, order: Order = "C") -> DeviceArray:
        """The elements of this array in one dimension: a view if possible, else a copy.

        Parameters
        ----------
        order : {"C", "F", "A", "K"}
            In which order elements are counted, as in NumPy; ``"K"`` means ``"C"``.

        >>> cuzarr.DeviceArray.from_host(np.arange(6).reshape(2, 3), "cpu").ravel("F").cpu().tolist()
        [0, 3, 1, 4, 2, 5]
        """
        return self.reshape((-1,), order="C" if order == "K" else order)

    def transpose(self, *axes: SupportsIndex | Sequence[SupportsIndex] | None) -> DeviceArray:
        """A view of this array with its dimensions in another order.

        Parameters
        ----------
        *axes : int, or one tuple of int
            Dimension ``axes[i]`` becomes dimension ``i``. Without them all dimensions are reversed.

        Raises
        ------
        InvalidArgumentError
            A dimension is missing in ``axes`` or is named twice.

        >>> cuzarr.DeviceArray.empty((2, 3, 4), "int16", "cpu").transpose(2, 0, 1).shape
        (4, 2, 3)
        """
        given = axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else axes
        wanted = () if given is None else _checks.items(given, "axes", "whole numbers")
        chosen = [_checks.axis_number(axis, self.ndim) for axis in wanted] if wanted else range(self.ndim)[::-1]
        return DeviceArray(self._buffer.transpose(list(chosen)), self.dtype)

    @property
    def T(self) -> DeviceArray:  # noqa: N802, NumPy's name
        """A view of this array with its dimensions in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> DeviceArray:  # noqa: N802, the standard's name
        """A view of this array with its last two dimensions exchanged."""
        return self.transpose(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)

    def view(self, dtype: DTypeLike) -> DeviceArray:
        """A view of this array's memory as elements of another type. If the sizes of the types differ, the last dimension becomes longer or
        shorter.

        Parameters
        ----------
        dtype : dtype-like
            The other type.

        Raises
        ------
        InvalidArgumentError
            The last dimension cannot be divided into elements of this type.

        >>> cuzarr.DeviceArray.empty((2, 3), "float32", "cpu").view("uint8").shape
        (2, 12)
        """
        dtype = _checks.element_type(dtype)
        return DeviceArray(self._buffer.reinterpret(memory_type(dtype)), dtype)

    # ---------------------------------------------------------------------------------------------- copies and changes

    def copy(self, order: Order = "C") -> DeviceArray:
        """A contiguous copy of this array on the same device.

        Parameters
        ----------
        order : {"C", "F", "A", "K"}
            Order of the copy in memory, as in NumPy.

        >>> cuzarr.DeviceArray.empty((2, 3), "float32", "cpu").copy("F").strides
        (4, 8)
        """
        return DeviceArray(self._buffer.copy(self._order(order)), self.dtype)

    def astype(self, dtype: DTypeLike, order: Order = "K", *, copy: bool = True) -> DeviceArray:
        """A contiguous copy of this array whose elements are converted on the device, as NumPy converts them.

        Parameters
        ----------
        dtype : dtype-like
            The new type of the elements.
        order : {"K", "A", "C", "F"}
            Order of the copy in memory, as in NumPy.
        copy : bool
            With ``False``, the array itself is returned if it has that type.

        Raises
        ------
        UnsupportedError
            Devices cannot convert strings, structures and some dates. Convert them on the host.

        >>> cuzarr.DeviceArray.from_host(np.array([1.5, 2.5]), "cpu").astype("int16").cpu()
        array([1, 2], dtype=int16)
        """
        dtype = _checks.element_type(dtype)
        if dtype == self.dtype:
            return self.copy(order) if copy else self
        if (found := reversals(self.dtype, dtype)) is not None:
            return self._reordered(dtype, found, order)
        if not (self.dtype.isnative and dtype.isnative) and self.dtype.kind in ORDERED and dtype.kind in ORDERED:
            return (
                self.astype(self.dtype.newbyteorder("=")).astype(dtype.newbyteorder("="), order).astype(dtype, order, copy=False)
            )
        if is_opaque(self.dtype) or is_opaque(dtype):
            raise UnsupportedError(f"devices do not convert {self.dtype} to {dtype}", hint="convert it on the CPU")
        if (self.dtype.kind in "mM" or dtype.kind in "mM") and memory_type(self.dtype) == memory_type(dtype) == "int64":
            if self.dtype.kind == dtype.kind:
                raise UnsupportedError(f"devices do not convert {self.dtype} to {dtype}", hint="convert it on the CPU")
            return self.copy(order).view(dtype)
        _warn_of_lost_parts(self.dtype, dtype)
        return DeviceArray(self._buffer.astype(memory_type(dtype), self._order(order)), dtype)

    def _reordered(self, dtype: np.dtype[Any], reversals: list[tuple[int, int]], order: Order) -> DeviceArray:
        """A contiguous copy of this array for a type with another byte order: in each element, the runs of bytes ``reversals`` are
        reversed."""
        packed = self._order(order)
        result = DeviceArray(self.copy(packed)._buffer.reinterpret(memory_type(dtype)), dtype)
        here, there = (array.reshape((-1,), order=packed).view("u1") for array in (self.copy(packed), result))
        item_bytes = dtype.itemsize
        for start, count in reversals:
            for place in range(count):
                there[start + place :: item_bytes] = here[start + count - 1 - place :: item_bytes]
        return result

    def fill(self, value: ArrayLike) -> None:
        """Set every element of this array to one value, as NumPy's ``fill`` does.

        Parameters
        ----------
        value : scalar
            The value. It must fit the type of the elements.

        Raises
        ------
        ConversionError
            The type of the elements cannot hold the value.

        >>> x = cuzarr.DeviceArray.empty((2,), "int16", "cpu")
        >>> x.fill(7)
        >>> x.cpu()
        array([7, 7], dtype=int16)
        """
        self._buffer.fill(_numpy.element(value, self.dtype).tobytes())

    def __setitem__(self, key: Selection, value: ArrayLike) -> None:
        """Write the elements that a key selects. The new elements may be on any device.

        Parameters
        ----------
        key : int, slice, Ellipsis, None, list of int, array or tuple of them
            As for ``x[key]``. If index arrays name an element several times, it gets the last value.
        value : array or scalar
            The elements. They are broadcast to the selected elements and converted to the array's type.

        Raises
        ------
        SelectionInvalidError
            An index lies outside the array, or the key does not fit the array.
        ShapeMismatchError
            The value cannot be broadcast to the selected elements.
        OutOfRangeError, ConversionError
            The array's type cannot hold the value.

        >>> x = cuzarr.DeviceArray.from_host(np.zeros(3), "cpu")
        >>> x[1:] = 7
        >>> x[x == 0] = 1
        >>> x.cpu()
        array([1., 7., 7.])
        """
        items = _with_arrays(key)
        if items is not None:
            self._put(items, value)
            return
        target = self[key]
        if isinstance(value, Lazy):
            value = value._elements_on(self.device)
        if foreign.is_on_device(value):
            source = foreign.device_buffer(value)
            dtype = foreign.element_type(value)
            if are_known_apart(dtype, self.dtype):
                _warn_of_lost_parts(dtype, self.dtype)
            else:
                source = DeviceArray(source, dtype).astype(self.dtype)._buffer
        else:
            array = foreign.to_native_host(value, self.dtype)
            if array.size == 1:
                target._buffer.fill(array.tobytes())
                return
            source = host_view(array)
        while len(source.shape) > target.ndim and source.shape[0] == 1:
            source = source.reshape(source.shape[1:])
        missing = target.ndim - len(source.shape)
        if missing < 0 or any(own not in (1, extent) for own, extent in zip(source.shape, target.shape[missing:], strict=True)):
            raise ShapeMismatchError(f"elements of shape {source.shape} do not fit into {target.shape}")
        target._buffer.copy_from(source)

    def _change(self, name: str, other: Any) -> Any:
        # As in NumPy, the elements change and keep their type, and views of them show the change.
        changed = self._apply(name, self, other)
        if changed is NotImplemented:
            return changed
        if not np.can_cast(changed.dtype, self.dtype, "same_kind"):
            message = f"{name} in place: elements of {changed.dtype} cannot be stored as {self.dtype}"
            raise DTypeMismatchError(message, hint="convert with astype, or make a new array: x = x + y")
        if changed.shape != self.shape:
            raise ShapeMismatchError(f"{name} in place: a result of shape {changed.shape} does not fit into {self.shape}")
        self[...] = changed
        return self

    def __matmul__(self, other: MemoryOperand) -> DeviceArray:
        return dispatch.of_memory["matmul"](self, other)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: MemoryOperand) -> DeviceArray:
        return dispatch.of_memory["matmul"](other, self)  # type: ignore[no-any-return]

    def _elements(self) -> np.ndarray[Any, Any]:
        return self.cpu()

    def _is_packed(self, order: Literal["C", "F"]) -> bool:
        packed = self.dtype.itemsize
        places = range(self.ndim)
        for place in places if order == "F" else reversed(places):
            if self.shape[place] != 1 and self.strides[place] != packed:
                return False
            packed *= self.shape[place]
        return True

    def _order(self, order: Order) -> Literal["C", "F"]:
        if order == "C" or order == "F":
            return order
        return "F" if self._is_packed("F") and not self._is_packed("C") else "C"

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceArray.from_host, (self.cpu(), self.device)

    def __repr__(self) -> str:
        about = f"dtype={self.dtype}, device={self.device!r}"
        if self.size <= _MOST_SHOWN:
            with contextlib.suppress(CuzarrError):  # no elements are shown for a device that failed
                return f"DeviceArray({np.array2string(self.cpu(), separator=', ', prefix='DeviceArray(')}, {about})"
        return f"<DeviceArray of shape {self.shape}, {about}>"


def device_array(x: Any) -> DeviceArray:
    """An array of any library in a GPU's memory as a :class:`DeviceArray`. Nothing is copied."""
    return x if isinstance(x, DeviceArray) else DeviceArray(foreign.device_buffer(x), foreign.element_type(x))


@dataclass(frozen=True)
class _Named:
    """The elements that a key with index arrays or masks selects, stored as indices ``numbers`` along the dimension ``axis`` of an array
    ``among``.

    ``among`` is ``turned`` in another shape: a view if possible, else a copy. The result has the shape ``shape``.
    """

    turned: DeviceArray
    among: DeviceArray
    axis: int
    numbers: DeviceArray | np.ndarray[Any, np.dtype[np.int64]]
    shape: tuple[int, ...]


def _with_arrays(key: Any) -> tuple[Any, ...] | None:
    """Splits an indexing key into its items, if some of them are index arrays or masks; else ``None``."""
    items = tuple(map(_as_index, key)) if isinstance(key, tuple) else (_as_index(key),)
    return items if any(isinstance(item, np.ndarray | DeviceArray) for item in items) else None


def _as_index(item: Any) -> Any:
    """Converts one item of a key: index arrays and masks become a :class:`DeviceArray` if they are on a GPU, else a NumPy array."""
    if item is None or item is Ellipsis or isinstance(item, slice | Lazy) or is_integer(item):
        return item
    if foreign.is_on_device(item):
        return device_array(item)
    is_array = isinstance(item, list | tuple | bool) or hasattr(item, "__array__")
    return foreign.host_array(item, "index") if is_array else item


def _nonzero(mask: DeviceArray) -> DeviceArray:
    return DeviceArray(mask._buffer.nonzero(), np.dtype("i8"))


def _resolve(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """A shape with -1 replaced by the extent that follows from the number of elements and the other extents."""
    if -1 not in shape:
        return shape
    others = math.prod(extent for extent in shape if extent != -1)
    if shape.count(-1) > 1 or not others or size % others:
        raise InvalidArgumentError(f"{size} elements cannot have shape {shape}")
    return tuple(size // others if extent == -1 else extent for extent in shape)

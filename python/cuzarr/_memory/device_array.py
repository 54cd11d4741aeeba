"""An array in a GPU's memory, for machines without CuPy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from cuzarr import _checks, _core, _numpy
from cuzarr._memory import foreign
from cuzarr._memory.box import basic_box, expand_ellipsis, is_integer, normalize_index, slice_indices
from cuzarr._memory.element_types import ORDERED, are_known_apart, is_opaque, memory_type, reversals
from cuzarr._memory.foreign import OnDevice, host_view, numpy_view
from cuzarr._numpy import is_computable
from cuzarr._operators.dispatch import Lazy
from cuzarr._operators.numpy_protocol import NumpyProtocol
from cuzarr._operators.signs import OneElement, Operators, Reductions, Shaped
from cuzarr.errors import (
    BoundsCheckError,
    DTypeMismatchError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    SelectionInvalidError,
    ShapeMismatchError,
    UnsupportedError,
)

Order = Literal["K", "A", "C", "F"]


def _warn_of_lost_parts(own: np.dtype[Any], wanted: np.dtype[Any]) -> None:
    # As NumPy: of complex numbers only the real part goes into other ones.
    if own.kind == "c" and wanted.kind not in "cb":
        message = "Casting complex values to real discards the imaginary part"
        warnings.warn(message, np.exceptions.ComplexWarning, stacklevel=3)


class DeviceArray(OnDevice, NumpyProtocol, OneElement, Operators, Reductions, Shaped):
    """An N-dimensional array in GPU memory, with NumPy's arithmetic (see :mod:`cuzarr.functions`).

    CuPy, PyTorch, JAX and Numba take it without copying, by DLPack (with streams) or the CUDA array interface (version 3). It is
    never copied to the host unless :meth:`cpu` asks for it. Slicing, reshaping and transposing give views, as in NumPy.

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
        Where it is: ``"cuda:0"``.

    Raises
    ------
    ImplicitHostCopyError
        From ``numpy.asarray(array)`` of an array on a GPU: use :meth:`cpu`.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> x = cuzarr.DeviceArray.from_host(np.arange(3.0), "cpu")
    >>> x.device, x.shape, x.cpu().tolist()
    ('cpu', (3,), [0.0, 1.0, 2.0])
    """

    _in_memory, _on_host = "", ".cpu()"

    def __init__(self, buffer: _core.NdBuffer, dtype: np.dtype[Any]) -> None:
        self._buffer = buffer
        self.dtype = np.dtype(dtype)

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: Any, device: str, order: Literal["C", "F"] = "C") -> DeviceArray:
        """New memory whose elements are not set: they hold whatever the memory held.

        Parameters
        ----------
        shape : tuple of int
            Extents, in elements.
        dtype : dtype-like
            Type of the elements.
        device : str
            ``"cuda:N"``, or ``"cpu"``.
        order : {"C", "F"}
            Which dimension changes fastest in memory: the last (``"C"``) or the first.

        Returns
        -------
        DeviceArray
            The array.

        Raises
        ------
        DeviceUnavailableError
            There is no such GPU.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.DeviceArray.empty((2, 3), "float32", "cpu").strides  # "cuda:0" on a GPU
        (12, 4)
        """
        dtype = _checks.element_type(dtype)
        return cls(_core.NdBuffer.empty(_checks.extents(shape), memory_type(dtype), str(device), order), dtype)

    @classmethod
    def from_host(cls, array: Any, device: str) -> DeviceArray:
        """A copy of a NumPy array in a device's memory.

        Parameters
        ----------
        array : array_like
            The array. A copy is in F order if the array is contiguous in F order alone; else in C order.
        device : str
            ``"cuda:N"``, or ``"cpu"``.

        Returns
        -------
        DeviceArray
            The copy.

        Raises
        ------
        DeviceUnavailableError
            There is no such GPU.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> cuzarr.DeviceArray.from_host(np.arange(3), "cpu").cpu().tolist()  # "cuda:0" on a GPU
        [0, 1, 2]
        """
        array = foreign.host_array(array, "array")
        return cls(host_view(array).to(str(device)), array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent along each dimension."""
        return self._buffer.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each dimension."""
        return self._buffer.strides

    @property
    def device(self) -> str:
        """Device that holds the memory, such as ``"cuda:0"``."""
        return self._buffer.device

    def cpu(self) -> np.ndarray[Any, Any]:
        """A copy in host memory.

        Returns
        -------
        numpy.ndarray
            The copy.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> cuzarr.DeviceArray.from_host(np.arange(3), "cpu").cpu().sum().item()
        3
        """
        return numpy_view(self._buffer.to("cpu"), self.dtype)

    def to(self, device: str) -> DeviceArray | np.ndarray[Any, Any]:
        """This array on another device; the array itself if it is there already.

        Parameters
        ----------
        device : str
            ``"cuda:N"``, or ``"cpu"``.

        Returns
        -------
        DeviceArray or numpy.ndarray
            A NumPy array for ``"cpu"``.

        Raises
        ------
        DeviceUnavailableError
            There is no such GPU.

        Examples
        --------
        >>> import cuzarr, numpy as np
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
        """Hands the memory to another library; the data is ready on ``stream`` when this returns."""
        return self._buffer.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device type and number."""
        return self._buffer.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the CUDA array interface."""
        # The memory itself knows no structures, strings, units of time or byte orders.
        typestr = self.dtype.str if self.dtype.names is None else f"|V{self.dtype.itemsize}"
        return {**self._buffer.cuda_array_interface(), "typestr": typestr}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Refuses: a copy to the host has to be asked for, by :meth:`cpu`."""
        raise ImplicitHostCopyError(
            f"this array is on {self.device}, and a copy to the host has to be asked for",
            hint="call .cpu(), or hand it to a GPU library through DLPack",
        )

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """NumPy's functions, where this library has them; what is made ``like=`` this array is put on its device."""
        made = super().__array_function__(function, types, arguments, options)
        # From arguments of a device NumPy makes no array of its own: `__array__` refuses.
        return DeviceArray.from_host(made, self.device) if isinstance(made, np.ndarray) else made

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of 0 dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        return (self[place] for place in range(len(self)))

    # --------------------------------------------------------------------------------------------------------- views

    def __getitem__(self, key: Any) -> DeviceArray:
        """A view by integers, slices and an ellipsis. It shares memory with the array. One list of indices, or a mask of one
        dimension, gives new memory.

        Parameters
        ----------
        key : int, slice, Ellipsis, list of int or tuple of them
            Slices have steps of either sign. One of the items may be a list of indices or a mask of its dimension.

        Returns
        -------
        DeviceArray
            The view or copy; an array of no dimensions for a single element.

        Raises
        ------
        SelectionInvalidError
            An index lies outside, or the key has several index arrays or a mask of several dimensions: use CuPy or PyTorch for these.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> x = cuzarr.DeviceArray.from_host(np.arange(12).reshape(3, 4), "cpu")
        >>> x[1:, ::2].shape
        (2, 2)
        >>> x[::-1, [0, 3]].tolist()
        [[8, 11], [4, 7], [0, 3]]
        """
        return self._chosen(key, most_lists=1)

    def _chosen(self, key: Any, most_lists: int) -> DeviceArray:
        """The elements by slices with steps of either sign and at most so many lists; a view where there are none."""
        try:
            box = basic_box(key, self.shape)
        except SelectionInvalidError as error:
            picked = self._picked(key, most_lists)
            if picked is not None:
                return picked
            error.hint = "use CuPy for several index arrays and for masks: cupy.asarray(x)[…]"
            raise
        return DeviceArray(self._buffer.region(box.start, box.count, box.step, box.dropped), self.dtype)

    def _picked(self, key: Any, most_lists: int) -> DeviceArray | None:
        """The elements by slices with steps of either sign and lists or masks along a dimension; ``None`` for anything else."""
        if not is_computable(self.dtype):
            return None
        along: list[Any] = []
        dims: list[tuple[int | None, int]] = []
        lists = 0
        for axis, (item, extent) in enumerate(zip(expand_ellipsis(key, self.shape), self.shape, strict=True)):
            if is_integer(item):
                along.append(normalize_index(item, extent))
                continue
            if isinstance(item, slice):
                chosen = range(*slice_indices(item, extent))
                along.append((chosen.start if chosen else 0, len(chosen), chosen.step if len(chosen) > 1 else 1))
            else:
                indices = _indices(item, extent)
                lists += 1
                if indices is None or lists > most_lists:
                    return None
                along.append(foreign.wrap_host(indices))
            dims.append((axis, 0))
        memory = _core.Expr.buffer(self._buffer).picked(along, dims).memory()
        return None if memory is None else DeviceArray(memory, self.dtype)

    def tolist(self) -> Any:
        """The elements as numbers of Python in nested lists: a copy to the host that is asked for.

        Returns
        -------
        list or scalar
            Lists as deep as there are dimensions.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> cuzarr.DeviceArray.from_host(np.arange(4).reshape(2, 2), "cpu").tolist()
        [[0, 1], [2, 3]]
        """
        return self.cpu().tolist()

    def reshape(self, *shape: Any, order: Literal["A", "C", "F"] | None = "C", copy: bool | None = None) -> DeviceArray:
        """The elements in another shape: a view where that is possible, else a copy.

        Parameters
        ----------
        *shape : int, or one tuple of int
            The new extents; one of them may be -1, to be worked out.
        order : {"C", "F", "A"}
            In which order elements are counted, as in NumPy.
        copy : bool, optional
            ``True`` always copies; ``False`` never does.

        Returns
        -------
        DeviceArray
            The view or copy.

        Raises
        ------
        InvalidArgumentError
            The shape has another number of elements, or needs a copy that ``copy=False`` forbids.

        Examples
        --------
        >>> import cuzarr, numpy as np
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
        """The elements in one dimension: a view where that is possible, else a copy.

        Parameters
        ----------
        order : {"C", "F", "A", "K"}
            In which order elements are counted, as in NumPy; ``"K"`` counts as ``"C"``.

        Returns
        -------
        DeviceArray
            An array of one dimension.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> cuzarr.DeviceArray.from_host(np.arange(6).reshape(2, 3), "cpu").ravel("F").cpu().tolist()
        [0, 3, 1, 4, 2, 5]
        """
        return self.reshape((-1,), order="C" if order == "K" else order)

    def transpose(self, *axes: Any) -> DeviceArray:
        """A view with its dimensions in another order.

        Parameters
        ----------
        *axes : int, or one tuple of int
            Dimension ``axes[i]`` becomes dimension ``i``. Without them all dimensions are reversed.

        Returns
        -------
        DeviceArray
            A view.

        Raises
        ------
        InvalidArgumentError
            ``axes`` does not name each dimension once.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.DeviceArray.empty((2, 3, 4), "int16", "cpu").transpose(2, 0, 1).shape
        (4, 2, 3)
        """
        given = axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else axes
        wanted = () if given is None else _checks.items(given, "axes", "whole numbers")
        chosen = [_checks.axis_number(axis, self.ndim) for axis in wanted] if wanted else range(self.ndim)[::-1]
        return DeviceArray(self._buffer.transpose(list(chosen)), self.dtype)

    @property
    def T(self) -> DeviceArray:  # noqa: N802, NumPy's name
        """The view with all dimensions reversed."""
        return self.transpose()

    def view(self, dtype: Any) -> DeviceArray:
        """This memory as elements of another type. If their size differs, the last dimension becomes longer or shorter.

        Parameters
        ----------
        dtype : dtype-like
            The other type.

        Returns
        -------
        DeviceArray
            A view.

        Raises
        ------
        InvalidArgumentError
            The last dimension cannot be divided into such elements.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.DeviceArray.empty((2, 3), "float32", "cpu").view("uint8").shape
        (2, 12)
        """
        dtype = _checks.element_type(dtype)
        return DeviceArray(self._buffer.reinterpret(memory_type(dtype)), dtype)

    # ---------------------------------------------------------------------------------------------- copies and changes

    def copy(self, order: Order = "C") -> DeviceArray:
        """A contiguous copy on the same device.

        Parameters
        ----------
        order : {"C", "F", "A", "K"}
            Order of the copy in memory, as in NumPy.

        Returns
        -------
        DeviceArray
            The copy.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.DeviceArray.empty((2, 3), "float32", "cpu").copy("F").strides
        (4, 8)
        """
        return DeviceArray(self._buffer.copy(self._order(order)), self.dtype)

    def astype(self, dtype: Any, order: Order = "K", *, copy: bool = True) -> DeviceArray:
        """A contiguous copy whose elements are converted on the device, as NumPy converts them.

        Parameters
        ----------
        dtype : dtype-like
            The new type of the elements.
        order : {"K", "A", "C", "F"}
            Order of the copy in memory, as in NumPy.
        copy : bool
            With ``False``, the array itself is returned if it has that type.

        Returns
        -------
        DeviceArray
            The copy.

        Raises
        ------
        UnsupportedError
            Devices have no such conversion: strings, structures, some dates. Convert on the host.

        Examples
        --------
        >>> import cuzarr, numpy as np
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
        """A packed copy of another type, which differs in where bytes are the other way round; byte by byte, all elements at once."""
        packed = self._order(order)
        result = DeviceArray(self.copy(packed)._buffer.reinterpret(memory_type(dtype)), dtype)
        here, there = (array.reshape((-1,), order=packed).view("u1") for array in (self.copy(packed), result))
        item_bytes = dtype.itemsize
        for start, count in reversals:
            for place in range(count):
                there[start + place :: item_bytes] = here[start + count - 1 - place :: item_bytes]
        return result

    def fill(self, value: Any) -> None:
        """Set every element to one value, as NumPy's ``fill`` does.

        Parameters
        ----------
        value : scalar
            The value. It must fit the type of the elements.

        Raises
        ------
        ConversionError
            The type of the elements cannot hold it.

        Examples
        --------
        >>> import cuzarr
        >>> x = cuzarr.DeviceArray.empty((2,), "int16", "cpu")
        >>> x.fill(7)
        >>> x.cpu()
        array([7, 7], dtype=int16)
        """
        self._buffer.fill(_numpy.element(value, self.dtype).tobytes())

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write elements into a box. They may be on any device.

        Parameters
        ----------
        key : int, slice, Ellipsis or tuple of them
            Slices have steps of either sign.
        value : array or scalar
            The elements. They are broadcast to the box and converted to the array's type.

        Raises
        ------
        SelectionInvalidError
            The box lies outside, or the key has an index array or a mask.
        ShapeMismatchError
            The value cannot be broadcast to the box.
        OutOfRangeError, ConversionError
            The array's type cannot hold the value.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> x = cuzarr.DeviceArray.from_host(np.zeros(3), "cpu")
        >>> x[1:] = 7
        >>> x.cpu()
        array([0., 7., 7.])
        """
        target = self._chosen(key, most_lists=0)  # what lists choose would be a copy
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
        target._buffer.copy_from(source)

    def _change(self, name: str, other: Any) -> Any:
        # As NumPy: the elements change, so that views of them show it, and keep their type.
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
        return f"<DeviceArray on {self.device} shape={self.shape} dtype={self.dtype}>"


def _indices(item: Any, extent: int) -> np.ndarray[Any, np.dtype[np.uint64]] | None:
    """Indices counted from the start, of a list of them or of a mask of one dimension; ``None`` for anything else.

    Raises
    ------
    BoundsCheckError
        One is outside.
    """
    if not isinstance(item, list | np.ndarray | DeviceArray):
        return None
    given = item.cpu() if isinstance(item, DeviceArray) else foreign.host_array(item, "index")
    if given.ndim != 1 or (given.dtype.kind == "b" and len(given) != extent):
        return None
    if given.dtype.kind == "b":
        return np.flatnonzero(given).astype(np.uint64)
    if given.dtype.kind not in "iu" and given.size:
        return None
    counted = given.astype(np.int64)
    outside = counted[(counted < -extent) | (counted >= extent)]
    if outside.size:
        raise BoundsCheckError(f"index {outside[0]} is out of bounds for a dimension of {extent}")
    return np.where(counted < 0, counted + extent, counted).astype(np.uint64)


def _resolve(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape with the extent that is -1 worked out."""
    if -1 not in shape:
        return shape
    others = math.prod(extent for extent in shape if extent != -1)
    if shape.count(-1) > 1 or not others or size % others:
        raise InvalidArgumentError(f"{size} elements cannot have shape {shape}")
    return tuple(size // others if extent == -1 else extent for extent in shape)

"""Arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cuzarr import _core
from cuzarr._checks import axis_number
from cuzarr._compute.evaluate import plan
from cuzarr._compute.operands import dimension_names, is_lazy
from cuzarr._memory import convert as _convert
from cuzarr._memory.foreign import host_array
from cuzarr._metadata.array import ArrayV2Metadata, ArrayV3Metadata, encode_document
from cuzarr._metadata.documents import read_array
from cuzarr._metadata.group import parse_node
from cuzarr._node.array_config import ArrayConfig, ArrayConfigLike
from cuzarr._node.display import Info
from cuzarr._node.drawing import chunk_grid_svg
from cuzarr._node.selecting import ArraySelections
from cuzarr._numpy import is_computable
from cuzarr._operators.dispatch import Stored
from cuzarr._operators.numpy_protocol import stored_ufunc
from cuzarr._operators.signs import OneElement, Operators, Reductions
from cuzarr._text import human_bytes, printable
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError, UnsupportedError
from cuzarr.storage import Store, StorePath, make_store_path

if TYPE_CHECKING:
    from cuzarr._compute.expression import Expression
    from cuzarr._node.asynchronous import AsyncArray

_IN_PLACE = "z[...] += 1 changes what memory holds; (z + 1).store(other) computes an array of any size"


class Array(ArraySelections, Operators, OneElement, Reductions, Stored):
    """An array of a store. Elements are read and written by indexing; nothing is read before.

    Parameters
    ----------
    store_path : StorePath
        Where it is.
    metadata : ArrayV2Metadata or ArrayV3Metadata
        What it is.
    config : ArrayConfig or dict, optional
        How it behaves while open.
    device : str, optional
        Where results go: ``"cpu"``, ``"cuda"``, ``"cuda:1"``. What the configuration says when elements are read, unless
        given.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, shape=(4, 6), chunks=(2, 3), dtype="int32")
    >>> array[1:3, ::2] = np.arange(6).reshape(2, 3)
    >>> array[1:3, ::2]
    array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    >>> array.shape, array.chunks, array.nchunks
    ((4, 6), (2, 3), 4)
    """

    @property
    def meta_array(self) -> Any:
        """An empty array where results go, as zarr-python 2 had it: NumPy's, CuPy's or a :class:`cuzarr.DeviceArray`."""
        return _convert.result_array(_core.NdBuffer.empty((), "float64", self.device, "C"), np.dtype("f8"))

    @classmethod
    def from_dict(cls, store_path: StorePath, data: dict[str, Any]) -> Self:
        """The array that a metadata document (attributes inside) describes; reads nothing."""
        metadata = parse_node(data)
        if not isinstance(metadata, ArrayV2Metadata | ArrayV3Metadata):
            raise InvalidArgumentError("the document describes a group, expected an array")
        return cls(store_path, metadata)

    @classmethod
    def open(cls, store: Any, *, config: ArrayConfigLike | None = None) -> Self:
        """Opens the array of format 3 at a store or path.

        Raises
        ------
        ArrayNotFoundError
            There is none.
        """
        place = make_store_path(store)
        return cls(place, read_array(place, 3), config)

    @property
    def async_array(self) -> AsyncArray:
        """The same array, with elements that are awaited."""
        from cuzarr._node.asynchronous import AsyncArray

        return AsyncArray.of(self)

    def append(self, data: Any, axis: int | str = 0) -> tuple[int, ...]:
        """Adds elements behind the last ones along ``axis``; the other extents must agree. Returns the new shape.

        The elements are written before the shape: others see none of them or all.
        """
        if not hasattr(data, "shape"):
            data = host_array(data, "data")
        axis = axis_number(axis, self.ndim, dimension_names(self))
        others = [tuple(extent for place, extent in enumerate(shape) if place != axis) for shape in (self.shape, data.shape)]
        if others[0] != others[1]:
            raise ShapeMismatchError(f"data of shape {tuple(data.shape)} does not fit shape {self.shape} along axis {axis}")
        if is_lazy(data):
            data = data[...]  # while it has the shape that was looked at, should it be this array
        before = self.shape
        after = tuple(extent + (data.shape[axis] if place == axis else 0) for place, extent in enumerate(before))
        self.store.check_writable()
        metadata = self._metadata.update_shape(after)
        self._handle().delete_left_over(after)
        longer = type(self)(self._store_path, metadata, self._config, self._own_device)
        region = tuple(slice(before[axis], after[axis]) if place == axis else slice(None) for place in range(self.ndim))
        is_transactional = self.store._handle.is_transactional()
        if is_transactional:
            self._write_shape(metadata)
        longer[region] = data
        if not is_transactional:
            self._write_shape(metadata)
        return after

    def _repr_html_(self) -> str:
        lines: list[tuple[str, object]] = [
            ("Store", self._store_path),
            ("Data type", self._metadata.data_type),
            ("Shape", self.shape),
            ("Chunks", self.chunks),
            ("Shards", self.shards),
            ("Bytes", human_bytes(self.nbytes)),
            ("Device", self.device),
        ]
        lines += [(f"Codec {name}", place) for name, place in self.placements()]
        drawing = chunk_grid_svg(self.shape, self.chunks, self.shards)
        return f"<table><tr><td>{Info.of(lines)._repr_html_()}</td><td>{drawing}</td></tr></table>"

    def __repr__(self) -> str:
        place = "" if self.device == "cpu" else f" device={self.device}"
        return f"<Array {printable(str(self._store_path))} shape={self.shape} dtype={self.dtype}{place}>"

    # -------------------------------------------------------------------------------------- as an object of Python

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of 0 dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Elements along the first dimension, one stored row of chunks read at a time."""
        if not self.shape:
            raise TypeError("an array of 0 dimensions cannot be iterated")
        rows = self._stored_chunks[0]
        for start in range(0, self.shape[0], rows):
            yield from self[start : start + rows]

    def astype(self, dtype: Any) -> Expression:
        """A plan of the elements converted to another type, as NumPy converts them."""
        return plan(self).astype(dtype)  # type: ignore[no-any-return]

    @property
    def _dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of the dimensions, if they have any; format 2 keeps them as xarray does."""
        if isinstance(self._metadata, ArrayV3Metadata):
            return self._metadata.dimension_names
        names = self._metadata.attributes.get("_ARRAY_DIMENSIONS")
        return tuple(names) if isinstance(names, list | tuple) and len(names) == self.ndim else None

    def _elements_on(self, device: str | None) -> Any:
        return (self if device is None else self.with_device(device))._elements()

    def _change(self, name: str, other: Any) -> Any:
        raise UnsupportedError("an array of a store is not changed in place as a whole", hint=_IN_PLACE)

    # Signs make plans (:class:`cuzarr.Expression`), also beside NumPy's arrays, which would read this one at once.
    __array_priority__ = 1000

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions read it, as they read arrays of zarr-python; signs beside an array of NumPy's make plans."""
        return stored_ufunc(ufunc, method, inputs, options)

    def same_as(self, other: object) -> bool:
        """Whether both are the same array of the same store, with the same metadata, settings and device. ``==`` compares elements.

        >>> import cuzarr
        >>> store = {}
        >>> array = cuzarr.create_array(store, shape=(2,), dtype="int8")
        >>> array.same_as(cuzarr.open_array(store)), (array == 0).compute()
        (True, array([ True,  True]))
        """
        if not isinstance(other, Array):
            return False
        mine = (self._store_path, self._metadata, self._config, self.device)
        return mine == (other._store_path, other._metadata, other._config, other.device)

    def __contains__(self, value: Any) -> bool:
        if is_computable(self.dtype):
            return super().__contains__(value)
        return any(bool(np.any(self[region] == value)) for region in self._iterate_regions())

    def __bool__(self) -> bool:
        # As of a sequence, by its length; without dimensions it has none.
        return len(self) > 0 if self.shape else super().__bool__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.store, self.path, self._metadata.to_dict(), self._config, self._own_device)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # The same for the same array in every process: dask names its tasks by it.
        document = encode_document(self._metadata.to_dict())
        return type(self).__name__, str(self.store), self.path, document, tuple(self._config.to_dict().items()), self.device


def _rebuild(store: Store, path: str, document: dict[str, Any], config: ArrayConfig, device: str | None) -> Array:
    return Array(StorePath(store, path), parse_node(document), config, device)  # type: ignore[arg-type]

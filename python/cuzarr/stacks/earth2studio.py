"""A backend for the output of Earth2Studio: fields go from the GPU of the model into the store, behind the workflow's back.

>>> import numpy as np
>>> from cuzarr.stacks.earth2studio import Backend
>>> coords = {"lead_time": np.arange(4), "lat": np.linspace(90, -90, 3), "lon": np.linspace(0, 270, 4)}
>>> with Backend({}) as backend:
...     backend.add_array(coords, ["t2m"])
...     for step in range(4):
...         backend.write([np.full((1, 3, 4), step, "f4")], coords | {"lead_time": np.array([step])}, ["t2m"])
...     backend["t2m"][:, 0, 0].tolist()
[0.0, 1.0, 2.0, 3.0]
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from cuzarr import _names
from cuzarr._checks import element_type
from cuzarr._node.array import Array
from cuzarr._node.open import open_group
from cuzarr._node.writer import GroupWriter
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, Codecs, DTypeLike, StoreLike

__all__ = ["Backend"]

Coordinates: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"
_Writers: TypeAlias = dict[tuple[str, ...], tuple[tuple[str, tuple[slice, ...]], GroupWriter | None]]
_CHUNKS = {"ensemble": 1, "time": 1, "lead_time": 1, "variable": 1}


class Backend:
    """A backend of Earth2Studio (``IOBackend``): arrays of a group, which take fields from the device where the model made them.

    Fields that come in the order of a dimension are gathered and stored by a thread: see :meth:`cuzarr.Group.writer`. ``flush``, brackets
    and the end of a ``with`` block wait until all are stored. Other fields are stored before ``write`` returns.

    Parameters
    ----------
    store : StoreLike
        The place of the group, which is made if it is missing.
    chunks : mapping of str to int, optional
        The extent of chunks along dimensions; others are whole. By default 1 along ``ensemble``, ``time``, ``lead_time`` and ``variable``.
    compressors : codec or sequence of codecs, optional
        The compressors of new arrays.
    device : str, optional
        The device that encodes fields, and that arrays are read to: ``"cuda"`` for models on a GPU.
    slots : int
        How many blocks of fields of each array are in memory at a time.

    Raises
    ------
    InvalidArgumentError
        An array does not have a coordinate that was given.
    ShapeMismatchError
        The numbers of names and of fields differ, or a field does not fit its coordinates.
    CuzarrError
        Fields could not be stored; a later call may raise it.

    Examples
    --------
    >>> import numpy as np
    >>> from cuzarr.stacks.earth2studio import Backend
    >>> backend = Backend({}, chunks={"lead_time": 2})
    >>> backend.add_array({"lead_time": np.arange(3), "lat": np.arange(4)}, "z500")
    >>> backend["z500"].chunks
    (2, 4)
    """

    def __init__(
        self,
        store: StoreLike,
        *,
        chunks: Mapping[str, int] | None = None,
        compressors: Codecs = "auto",
        device: str | None = None,
        slots: int = 2,
    ) -> None:
        self.root = open_group(store, mode="a", device=device)
        self._chunks = _CHUNKS if chunks is None else dict(chunks)
        self._compressors, self._slots = compressors, slots
        # By the names of arrays that are written together: the region of their writer, and the writer, where there can be one.
        self._writers: _Writers = {}
        self._coordinates: dict[str, np.ndarray[Any, Any]] = {}
        self._dims: dict[str, tuple[str | None, ...]] = {}
        # Workflows do not close a backend, so the end of the program does.
        self._end = weakref.finalize(self, _close, self._writers)

    def add_array(
        self, coords: Coordinates, array_name: str | Sequence[str], *, dtype: DTypeLike = "float32", overwrite: bool = False
    ) -> None:
        """Create arrays of these coordinates. Arrays that exist are left as they are, unless ``overwrite`` is true.

        Parameters
        ----------
        coords : mapping of str to array
            The dimensions in order, each with its coordinates.
        array_name : str or sequence of str
            The names of the arrays.
        dtype : dtype
            The type of elements. Elements that are not written are NaN, or 0 in integers.
        overwrite : bool
            Whether existing arrays of these names are replaced.

        >>> import numpy as np
        >>> from cuzarr.stacks.earth2studio import Backend
        >>> backend = Backend({})
        >>> backend.add_array({"lat": np.arange(2), "lon": np.arange(3)}, ["land", "sea"])
        >>> sorted(backend)
        ['land', 'lat', 'lon', 'sea']
        """
        _close(self._writers)
        self._writers.clear()
        dims, stored = _laid_out(coords)
        for name, (values, across) in stored.items():
            if name not in self.root:
                self.root.create_array(name, data=values, chunks=values.shape, dimension_names=across)
        shape = tuple(len(self._coordinate(dim)) for dim in dims)
        chunks = tuple(min(self._chunks.get(dim, extent), extent) for dim, extent in zip(dims, shape, strict=True))
        fill = np.nan if element_type(dtype).kind == "f" else 0
        for name in _listed(array_name):
            if overwrite or name not in self.root:
                self.root.create_array(
                    name,
                    shape=shape,
                    chunks=chunks,
                    dtype=dtype,
                    dimension_names=list(dims),
                    compressors=self._compressors,
                    fill_value=fill,
                    overwrite=overwrite,
                )
            self._dims[name] = self.root.get_array(name)._dimension_names or ()

    def write(self, x: ArrayLike | Sequence[ArrayLike], coords: Coordinates, array_name: str | Sequence[str]) -> None:
        """Write fields at their coordinates. Arrays that do not exist are created first.

        Parameters
        ----------
        x : array or sequence of array
            A field for each name: tensors of PyTorch, or arrays of any library, in host or device memory.
        coords : mapping of str to array
            The coordinates of the fields, along all dimensions of the arrays.
        array_name : str or sequence of str
            The names of the arrays.

        >>> import numpy as np
        >>> from cuzarr.stacks.earth2studio import Backend
        >>> backend = Backend({})
        >>> coords = {"lat": np.arange(2), "lon": np.arange(3)}
        >>> backend.write(np.ones((2, 3), "f4"), coords, "land")
        >>> backend["land"][0].tolist()
        [1.0, 1.0, 1.0]
        """
        names = _listed(array_name)
        fields: Sequence[Any] = x if isinstance(x, list | tuple) else [x]
        if len(names) != len(fields):
            raise ShapeMismatchError(f"got {len(fields)} fields for {len(names)} names, expected as many")
        if any(name not in self._dims for name in names):
            self.add_array(coords, names)
        places = {dim: _places(dim, self._coordinate(dim), values) for dim, values in _laid_out(coords)[0].items()}
        if wrong := [name for name in names if self._dims[name] != tuple(places)]:
            message = f"the field of {wrong[0]!r} has the dimensions {tuple(places)}, expected {self._dims[wrong[0]]}"
            raise ShapeMismatchError(message)
        by_name = dict(zip(names, fields, strict=True))
        region = {dim: place for dim, place in places.items() if isinstance(place, slice)}
        if len(region) == len(places) and self._add(by_name, region):
            return
        _close(self._writers, names)
        for name, field in by_name.items():
            self.root.get_array(name).oindex[tuple(places.values())] = field

    def _add(self, fields: dict[str, Any], region: dict[str, slice]) -> bool:
        """Hands fields to a writer, if they are rows of one: along the last dimension of which they have a part."""
        parts = [dim for dim, place in region.items() if place != slice(0, len(self._coordinate(dim)))]
        if not parts:
            return False
        axis = parts[-1]
        whole = tuple(slice(None) if dim == axis else place for dim, place in region.items())
        names = tuple(fields)
        try:
            if self._writers.get(names, (None, None))[0] != (axis, whole):
                _close(self._writers, names)
                self._writers[names] = (axis, whole), None
                self._writers[names] = (axis, whole), self.root.writer(names, axis, slots=self._slots, region=whole)
            _, writer = self._writers[names]
            if writer is not None:
                writer.write(region[axis].start, fields)
            return writer is not None
        except (InvalidArgumentError, ShapeMismatchError):
            # The region has parts of chunks, or too many blocks would be incomplete.
            return False

    def flush(self) -> None:
        """Store all fields that were written, and wait until they are stored.

        >>> from cuzarr.stacks.earth2studio import Backend
        >>> Backend({}).flush()
        """
        for _, writer in self._writers.values():
            if writer is not None:
                writer.flush()

    def close(self) -> None:
        """Store all fields that were written, and wait until they are stored. The backend can be used again.

        >>> from cuzarr.stacks.earth2studio import Backend
        >>> Backend({}).close()
        """
        _close(self._writers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __getitem__(self, name: str) -> Array:
        self.flush()
        return self.root.get_array(name)

    def __contains__(self, name: str) -> bool:
        return name in self.root

    def __iter__(self) -> Iterator[str]:
        return iter(self.root)

    def _coordinate(self, dim: str) -> np.ndarray[Any, Any]:
        """The stored coordinates of a dimension, on the host."""
        if dim not in self._coordinates:
            self._coordinates[dim] = np.asarray(self.root.get_array(dim).with_device("cpu")[...])
        return self._coordinates[dim]


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else [str(name) for name in names]


def _close(writers: _Writers, names: Sequence[str] | None = None) -> None:
    """Closes the writers of arrays with these names, by default all."""
    for key, (_, writer) in list(writers.items()):
        if writer is not None and (names is None or not set(key).isdisjoint(names)):
            del writers[key]
            writer.close()


def _laid_out(coords: Coordinates) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, tuple[np.ndarray[Any, Any], list[str]]]]:
    """The dimensions of fields with a coordinate each, and all coordinates with the dimensions along which they run.

    A grid that is not regular has coordinates of several dimensions: ``n`` in a row with one shape. Its dimensions have the names of these,
    after an ``i``, and are numbered. This is Earth2Studio's convention, and so is a name with ``_``, which has no dimension.
    """
    dims: dict[str, np.ndarray[Any, Any]] = {}
    stored: dict[str, tuple[np.ndarray[Any, Any], list[str]]] = {}
    given = [(name, np.asarray(values)) for name, values in coords.items() if not name.startswith("_")]
    while given:
        count = max(given[0][1].ndim, 1)
        together, given = dict(given[:count]), given[count:]
        shapes = {values.shape for values in together.values()}
        if len(together) < count or len(shapes) > 1:
            message = f"{', '.join(together)} have the shapes {sorted(shapes)}, expected {count} coordinates of one shape"
            raise ShapeMismatchError(message)
        (shape,) = shapes
        own = together if count == 1 else {f"i{name}": np.arange(extent) for name, extent in zip(together, shape, strict=True)}
        dims |= own
        stored |= {name: (values, [name]) for name, values in own.items()} | {
            name: (values, [*own]) for name, values in together.items()
        }
    return dims, stored


def _places(dim: str, stored: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> slice | np.ndarray[Any, Any]:
    """Where coordinates are among the stored ones: a slice if they follow each other."""
    order = np.argsort(stored, kind="stable")
    found = order[np.minimum(np.searchsorted(stored, wanted, sorter=order), len(stored) - 1)]
    if (missing := np.flatnonzero(stored[found] != wanted)).size:
        raise InvalidArgumentError(f"dimension {dim!r} has no coordinate {wanted[missing[0]]}")
    start = int(found[0]) if found.size else 0
    return slice(start, start + len(found)) if np.array_equal(found, np.arange(start, start + len(found))) else found


_names.publish(globals())

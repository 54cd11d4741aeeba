"""Selections of elements: brackets, and the method that each kind of selection has beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuzarr._memory.box import basic_box, ensure_tuple
from cuzarr._node import reads as _reads
from cuzarr._node.described import ArrayDescription
from cuzarr._node.elements import ArrayElements, into
from cuzarr._node.indexing import (
    BlockIndex,
    CoordinateSelection,
    Fields,
    OIndex,
    OrthogonalSelection,
    VIndex,
    block_box,
    is_pure_fancy,
    is_pure_orthogonal,
    mask_selection,
    pop_fields,
)
from cuzarr._progress import shown
from cuzarr.errors import ImplicitHostCopyError


class ArraySelections(ArrayElements):
    """Everything that selects elements."""

    def __getitem__(self, selection: Any) -> Any:
        """Elements, selected as NumPy does: integers, slices, an ellipsis, index arrays and masks, field names."""
        return self.getitem(selection)

    def __setitem__(self, selection: Any, value: Any) -> None:
        """Writes elements; ``value`` broadcasts to what is selected, and may be on any device."""
        self.setitem(selection, value)

    def getitem(self, selection: Any, *, prototype: Any = None, progress: Any = None) -> Any:
        """As brackets, with buffers of one's own choice: the prototype decides where the elements go.

        Parameters
        ----------
        selection : optional
            What brackets take.
        prototype : BufferPrototype, optional
            Ours or zarr-python's.
        progress : bool, callable or object, optional
            ``True`` shows a line on the terminal; a function hears of objects read and objects in all (``None`` when that is
            not known); anything with ``update`` is used as tqdm is.

        Examples
        --------
        >>> import cuzarr
        >>> from cuzarr.buffer import cpu
        >>> cuzarr.ones((4,), store={}).getitem(slice(1, 3), prototype=cpu.buffer_prototype)
        array([1., 1.])
        """
        if progress:
            with shown(progress, "reading", self._count_objects(selection)):
                return self.getitem(selection, prototype=prototype)
        selection = _as_index(selection)
        chosen, rest = pop_fields(selection)
        if is_pure_fancy(rest, self.ndim):
            chosen, points, is_mask = VIndex(self).parse(selection)
            get = self.get_mask_selection if is_mask else self.get_coordinate_selection
            return get(points, fields=chosen, prototype=prototype)
        if is_pure_orthogonal(rest, self.ndim):
            return self.get_orthogonal_selection(rest, fields=chosen, prototype=prototype)
        if self.ndim and all(isinstance(item, int | slice) for item in ensure_tuple(rest)):
            # zarr-python counts these to orthogonal selections, whose single elements are arrays of no dimensions.
            return self._get_box(basic_box(rest, self.shape), None, prototype, chosen)
        return self.get_basic_selection(rest, fields=chosen, prototype=prototype)

    def _count_objects(self, selection: Any) -> int | None:
        """Stored objects that a box touches; ``None`` for what is no box."""
        fields, rest = pop_fields(selection)
        try:
            box = basic_box(rest, self.shape)
        except IndexError:
            return None
        if fields is not None or self._metadata.data_type.is_variable:
            return None
        return int(self.explain(rest).to_dict()["objects"]) if all(box.count) else 0

    def setitem(self, selection: Any, value: Any, prototype: Any = None, *, progress: Any = None) -> None:
        """As assigning to brackets. Values are taken from wherever they are; a buffer class of the caller's own is given them first.
        ``progress`` is as in :meth:`getitem`."""
        if progress:
            with shown(progress, "writing", self._count_objects(selection)):
                return self.setitem(selection, value, prototype)
        selection = _as_index(selection)
        chosen, rest = pop_fields(selection)
        if is_pure_fancy(rest, self.ndim):
            chosen, points, is_mask = VIndex(self).parse(selection)
            set_ = self.set_mask_selection if is_mask else self.set_coordinate_selection
            set_(points, value, fields=chosen, prototype=prototype)
        elif is_pure_orthogonal(rest, self.ndim):
            self.set_orthogonal_selection(rest, value, fields=chosen, prototype=prototype)
        else:
            self.set_basic_selection(rest, value, fields=chosen, prototype=prototype)

    def read(
        self,
        selection: Any = Ellipsis,
        *,
        out: Any = None,
        dtype: Any = None,
        prototype: Any = None,
        device: str | Sequence[str] | None = None,
    ) -> Any:
        """A box, as brackets of integers and slices, in another element type, into memory of the caller, or to other devices.

        Elements are converted on the way, as NumPy's ``astype`` does it: to ``dtype``, or to what ``out`` holds. Of several
        devices each gets a part of the first dimension, and all read at once; the result is a list of arrays, whose parts
        begin where chunks do. Reads to devices named here are not in this array's :meth:`last_report`.

        >>> import cuzarr
        >>> cuzarr.full((4,), fill_value=7, dtype="int16", store={}).read(slice(1, 3), dtype="float32")
        array([7., 7.], dtype=float32)
        >>> array = cuzarr.zeros((10, 3), chunks=(4, 3), store={})
        >>> [part.shape for part in array.read(device=["cpu", "cpu"])]
        [(4, 3), (6, 3)]
        """
        if device is None:
            return _reads.read(self, selection, out, dtype, prototype)
        return _reads.read_to(self, selection, out, dtype, prototype, device)

    def read_many(
        self, selections: Sequence[Any], *, out: Any = None, dtype: Any = None, prototype: Any = None
    ) -> Any:
        """Many boxes by one plan and one pipeline, as random crops for training want it.

        Parameters
        ----------
        selections : sequence
            Each as for :meth:`get_basic_selection`.
        out : array, optional
            Where the elements go: a first dimension for the selections, which then have one shape.
        dtype : dtype, optional
            Element type of the results; elements are converted on the way.
        prototype : BufferPrototype, optional
            zarr-python's; decides the device.

        Returns
        -------
        list of arrays, or out
            One for each selection. Those of one shape share memory.

        >>> import cuzarr
        >>> array = cuzarr.ones((8, 8), store={})
        >>> [crop.shape for crop in array.read_many([(slice(0, 3), slice(2, 4)), (slice(5, 8), slice(6, 8))])]
        [(3, 2), (3, 2)]
        """
        return _reads.read_many(self, selections, out, dtype, prototype)

    def get_basic_selection(
        self,
        selection: Any = Ellipsis,
        *,
        out: Any = None,
        prototype: Any = None,
        fields: Fields | None = None,
    ) -> Any:
        """Elements of a box.

        Parameters
        ----------
        selection : int, slice, Ellipsis or tuple of them
            Per dimension; steps of slices are positive.
        out : array, optional
            Where the elements go, of the selection's shape, on the device that reads. NumPy's arrays may hold another type, to which
            the elements are converted.
        prototype : BufferPrototype, optional
            zarr-python's; decides the device.
        fields : str or list of str, optional
            Only these fields of a structured dtype.

        Returns
        -------
        array
            NumPy's on the CPU, CuPy's or :class:`cuzarr.DeviceArray` on a GPU. A single element is a scalar on the CPU, and an
            array of no dimensions on a GPU.

        Raises
        ------
        BoundsCheckError, NegativeStepError, SelectionInvalidError
            The selection does not fit.
        ChunkCorruptError, ChecksumMismatchError
            A chunk cannot be decoded.
        """
        elements = self._get_box(basic_box(selection, self.shape), out, prototype, fields)
        is_scalar = out is None and isinstance(elements, np.ndarray) and not elements.ndim
        return elements[()] if is_scalar else elements

    def set_basic_selection(
        self,
        selection: Any,
        value: Any,
        *,
        fields: Fields | None = None,
        prototype: Any = None,
    ) -> None:
        """Writes elements of a box; ``value`` broadcasts to it and may be on any device."""
        self._set_box(basic_box(selection, self.shape), value, fields, prototype)

    def get_block_selection(
        self, selection: Any, *, out: Any = None, fields: Fields | None = None, prototype: Any = None
    ) -> Any:
        """Whole stored chunks, selected by their places in the grid, by integers and slices."""
        return self._get_box(block_box(selection, self.shape, self._stored_chunks), out, prototype, fields)

    def set_block_selection(
        self, selection: Any, value: Any, *, fields: Fields | None = None, prototype: Any = None
    ) -> None:
        """Writes whole stored chunks, selected by their places in the grid."""
        self._set_box(block_box(selection, self.shape, self._stored_chunks), value, fields, prototype)

    def get_orthogonal_selection(
        self, selection: Any, *, out: Any = None, fields: Fields | None = None, prototype: Any = None
    ) -> Any:
        """The outer product of one selector for each dimension: integers, slices, index arrays, masks."""
        chosen = OrthogonalSelection(selection, self.shape, self.chunks)
        result = self._get_fancy(chosen, chosen.full_shape, prototype, fields).reshape(chosen.shape)
        return self._delivered(result, prototype) if out is None else into(out, result)

    def set_orthogonal_selection(
        self, selection: Any, value: Any, *, fields: Fields | None = None, prototype: Any = None
    ) -> None:
        """Writes the outer product of one selector for each dimension."""
        chosen = OrthogonalSelection(selection, self.shape, self.chunks)
        self._set_fancy(chosen, chosen.shape, chosen.full_shape, value, fields, prototype=prototype)

    def get_coordinate_selection(
        self, selection: Any, *, out: Any = None, fields: Fields | None = None, prototype: Any = None
    ) -> Any:
        """Points, by one index array for each dimension; they broadcast together. ``out`` may have their shape, or be flat."""
        chosen = CoordinateSelection(selection, self.shape, self.chunks)
        result = self._get_fancy(chosen, chosen.shape, prototype, fields)
        if out is None:
            return self._delivered(result, prototype).reshape(chosen.selection_shape)
        is_flat = tuple(getattr(out, "shape", ())) == chosen.shape
        return into(out, result if is_flat else result.reshape(chosen.selection_shape))

    def set_coordinate_selection(
        self, selection: Any, value: Any, *, fields: Fields | None = None, prototype: Any = None
    ) -> None:
        """Writes points, by one index array for each dimension. ``value`` broadcasts to them, or has one element for each."""
        chosen = CoordinateSelection(selection, self.shape, self.chunks)
        self._set_fancy(chosen, chosen.selection_shape, chosen.shape, value, fields, flat=True, prototype=prototype)

    def get_mask_selection(
        self, mask: Any, *, out: Any = None, fields: Fields | None = None, prototype: Any = None
    ) -> Any:
        """The elements where a mask of the array's shape is true, in C order."""
        chosen = mask_selection(mask, self.shape, self.chunks)
        result = self._get_fancy(chosen, chosen.shape, prototype, fields)
        return self._delivered(result, prototype) if out is None else into(out, result)

    def set_mask_selection(
        self, mask: Any, value: Any, *, fields: Fields | None = None, prototype: Any = None
    ) -> None:
        """Writes the elements where a mask of the array's shape is true."""
        chosen = mask_selection(mask, self.shape, self.chunks)
        self._set_fancy(chosen, chosen.shape, chosen.shape, value, fields, prototype=prototype)

    @property
    def oindex(self) -> OIndex:
        """Orthogonal selection by brackets: ``array.oindex[[0, 3], :]``."""
        return OIndex(self)

    @property
    def vindex(self) -> VIndex:
        """Selection of points by brackets: ``array.vindex[[0, 3], [1, 1]]``, or by a mask."""
        return VIndex(self)

    @property
    def blocks(self) -> BlockIndex:
        """Selection of whole chunks by brackets: ``array.blocks[0, 1:3]``."""
        return BlockIndex(self)

    def _elements(self) -> Any:
        """All elements, always as an array."""
        return self._get_box(basic_box(..., self.shape), None, None, None)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """All elements, as a NumPy array.

        Raises
        ------
        ImplicitHostCopyError
            The array reads to a GPU, and a copy to the host has to be asked for.
        """
        if copy is False:
            raise ValueError("copy=False is not possible: the elements are in a store")
        if self.device != "cpu":
            raise ImplicitHostCopyError(
                f"{self!r} reads to {self.device}, and a copy to the host has to be asked for",
                hint="use array.with_device('cpu'), or index it and call .cpu()",
            )
        elements = self._elements()
        return elements if dtype is None else elements.astype(dtype, copy=False)


def _as_index(selection: Any) -> Any:
    if isinstance(selection, ArrayDescription) or (type(selection).__name__ == "Array" and hasattr(selection, "store_path")):
        return np.asarray(selection)
    return selection

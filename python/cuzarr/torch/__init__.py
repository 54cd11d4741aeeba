"""Stored arrays as data sets for PyTorch.

Elements come as tensors on the array's device. A thread of the same process reads ahead, so GPU memory needs no worker
processes: use ``num_workers=0``. With workers, each reads its share. The data sets can be pickled for ``spawn``, the start method
that GPUs need.

    array = cuzarr.open_array("data.zarr", path="images", device="cuda")
    for batch in DataLoader(cuzarr.torch.BatchDataset(array, 256, shuffle=True), batch_size=None):
        ...

:class:`BatchDataset` returns rows, :class:`WindowDataset` returns windows, for example along time, and :class:`CropDataset` returns crops
at random positions. They read each stored chunk once per epoch, within a memory limit. :class:`SparseRows` gives rows of a sparse
matrix and columns of ``obs``, for single-cell data. :class:`SampleStream` gives samples of any arrays in an order that the caller
chooses. All of these are thin layers over :mod:`cuzarr.loader`, which describes them.

If ``torch.distributed`` is initialised, the ranks share the batches. Use PyTorch's ``DistributedSampler`` to divide a
:class:`RowDataset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from cuzarr import _names
from cuzarr._node.open import array_of
from cuzarr.errors import ShapeMismatchError
from cuzarr.loader._variables import Form, Given, Variable
from cuzarr.torch._datasets import BatchDataset, CropDataset, SampleStream, SparseRows, WindowDataset
from cuzarr.torch._tensors import to_tensor

__all__ = ["BatchDataset", "CropDataset", "RowDataset", "SampleStream", "SparseRows", "Variable", "WindowDataset", "to_tensor"]


class RowDataset(Dataset[Any]):  # type: ignore[misc]
    """A data set of rows: item ``i`` is row ``i`` of each array, the elements at position ``i`` along the first dimension. Lists of
    positions are read in one call.

    Parameters
    ----------
    arrays : array, or list, tuple or dictionary of them
        Arrays of equal length, or their paths, URLs or stores. Several give tuples; a dictionary gives dictionaries.

    Raises
    ------
    ShapeMismatchError
        The arrays are not equally long.
    DTypeMismatchError
        PyTorch does not support the elements, such as strings, dates and structures. Raised when an item is read.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(6.0).reshape(3, 2))
    >>> rows = cuzarr.torch.RowDataset(array)
    >>> len(rows), rows[1].tolist()
    (3, [2.0, 3.0])
    """

    def __init__(self, arrays: Given) -> None:
        self._form = Form(arrays)
        self.arrays = tuple(map(array_of, self._form.given))
        if len(lengths := sorted({len(array) for array in self.arrays})) > 1:
            raise ShapeMismatchError(f"got arrays of {lengths} rows, expected equal lengths")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, place: int) -> Any:
        return self._form.of([to_tensor(array[place]) for array in self.arrays])

    def __getitems__(self, places: Sequence[int]) -> list[Any]:
        """Reads the rows at several positions at once. ``DataLoader`` calls this method for a batch."""
        chosen = np.asarray(places, np.intp)
        read = [to_tensor(array.oindex[chosen]) for array in self.arrays]
        return [self._form.of(parts) for parts in zip(*read, strict=True)]


_names.publish(globals())

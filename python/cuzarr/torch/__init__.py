"""Stored arrays as data sets for PyTorch.

Elements come as tensors on the array's device, without a copy (by DLPack). A thread of the same process reads ahead, so GPU
memory needs no worker processes: use ``num_workers=0``. With workers, each reads its share. The data sets can be pickled for
``spawn``, the start method that GPUs need.

    array = cuzarr.open_array("data.zarr", path="images", device="cuda")
    for batch in DataLoader(cuzarr.torch.BatchDataset(array, 256, shuffle=True), batch_size=None):
        ...

:class:`WindowDataset` gives windows, for example along time, and :class:`CropDataset` crops at random positions. Both read each
stored chunk once an epoch, within a limit of memory.

If ``torch.distributed`` is initialised, the ranks share the batches. Use PyTorch's ``DistributedSampler`` to divide a
:class:`RowDataset`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset, get_worker_info

from cuzarr import _names
from cuzarr._node.batches import Batches, Columns, Source
from cuzarr._samples.variables import Variable
from cuzarr.torch._epochs import EpochDataset
from cuzarr.torch._samples import CropDataset, WindowDataset
from cuzarr.torch._tensors import to_tensor

__all__ = ["BatchDataset", "CropDataset", "RowDataset", "Variable", "WindowDataset", "to_tensor"]


class RowDataset(Dataset[Any]):  # type: ignore[misc]
    """A data set of rows: item ``i`` is place ``i`` along the first dimension. Lists of places are read in one call.

    Parameters
    ----------
    arrays : array, or list, tuple or dictionary of them
        Arrays of equal length, or their paths, URLs or stores. Several give tuples; a dictionary gives dictionaries.

    Raises
    ------
    InvalidArgumentError
        The arrays are not equally long.
    DTypeMismatchError
        PyTorch has no such elements: strings, dates, structures. Raised when an item is read.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(6.0).reshape(3, 2))
    >>> rows = cuzarr.torch.RowDataset(array)
    >>> len(rows), rows[1].tolist()
    (3, [2.0, 3.0])
    """

    def __init__(self, arrays: Source | Sequence[Source] | Mapping[str, Source]) -> None:
        self.columns: Columns = Columns(arrays)

    def __len__(self) -> int:
        return self.columns.count

    def __getitem__(self, place: Any) -> Any:
        return self.columns.form([to_tensor(array[place]) for array in self.columns.arrays])

    def __getitems__(self, places: Sequence[int]) -> list[Any]:
        """What ``DataLoader`` asks for a batch with."""
        chosen = np.asarray(places, np.intp)
        read = [to_tensor(array.oindex[chosen]) for array in self.columns.arrays]
        return [self.columns.form(parts) for parts in zip(*read, strict=True)]


class BatchDataset(EpochDataset):
    """Batches of rows along the first dimension of one or several arrays. A thread reads them ahead.

    The ranks of ``torch.distributed`` share the batches: each row comes once, and every rank gets equally many batches, as far as
    there are rows. The last batches may be smaller. With ``shuffle``, :meth:`set_epoch` chooses another order for the next pass.

    Parameters
    ----------
    arrays : array, or list, tuple or dictionary of them
        Arrays of equal length, or their paths, URLs or stores. Several give tuples; a dictionary gives dictionaries.
    size : int
        Rows of a batch.
    rank, world_size : int, optional
        The number of this rank, and how many there are. By default as ``torch.distributed`` says when a pass begins, if it is
        initialised.
    **kwargs
        ``prefetch=2``, batches to read ahead at most; ``shuffle=False``, whether to mix the rows; ``window=8``, how many chunks to
        mix at a time; ``seed=0``, of the order; ``drop_last=False``, whether to leave out rows that do not fill a batch of every
        rank.

    Raises
    ------
    InvalidArgumentError
        The arrays are not equally long, or a number is not allowed.
    DTypeMismatchError
        PyTorch has no such elements: strings, dates, structures. Raised when a batch is read.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(6.0).reshape(3, 2))
    >>> [batch.shape for batch in cuzarr.torch.BatchDataset(array, 2)]
    [torch.Size([2, 2]), torch.Size([1, 2])]
    """

    def __init__(
        self,
        arrays: Source | Sequence[Source] | Mapping[str, Source],
        size: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(rank, world_size)
        self.batches: Batches = Batches(arrays, size, **kwargs)

    def __len__(self) -> int:
        return self.batches.length(*self._place())

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        part, parts = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        rank, world_size = self._place()
        columns = self.batches.columns
        for batch in self.batches.iterate(self.epoch, part, parts, rank=rank, world_size=world_size):
            yield columns.form([to_tensor(one) for one in columns.parts(batch)])


_names.publish(globals())

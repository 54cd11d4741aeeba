"""Arrays of a store as PyTorch's datasets.

Elements come as tensors on the array's device, over DLPack and without a copy. Reading ahead is done by a thread of the same
process, so GPU memory needs no worker processes (``num_workers=0``); with workers, each reads its share, and the datasets
are picklable for ``spawn``, the start method that GPUs need.

    array = cuzarr.open_array("data.zarr", path="images", device="cuda")
    for batch in DataLoader(cuzarr.torch.BatchDataset(array, 256, shuffle=True), batch_size=None):
        ...

Samples that are boxes of arrays come from :class:`WindowDataset` (windows along time, say) and :class:`CropDataset` (crops at
random positions). Both read each stored chunk once an epoch, within a limit of memory.

Where ``torch.distributed`` is initialised, the ranks share the batches; a :class:`RowDataset` is divided by PyTorch's
``DistributedSampler``.
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
    """One item for each place along the first dimension; lists of places are read at once.

    Parameters
    ----------
    arrays : array, or list, tuple or dictionary of them
        Equally long; several give tuples, and by name dictionaries. Instead of an array, where it is: a path, a URL, a store.
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
    """Batches along the first dimension of one or several arrays, read ahead; see :class:`cuzarr._batches.Batches`.

    ``set_epoch`` chooses another order for the next pass when rows are shuffled.

    The ranks of ``torch.distributed`` share the batches: each row comes once, and every rank gets equally many batches, as far as
    there are rows. The last ones are smaller for that.

    Parameters
    ----------
    rank, world_size : int, optional
        Which of how many ranks this is; by default as ``torch.distributed`` says when a pass begins, where it is initialised.
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

"""Arrays of a store as PyTorch's datasets.

Elements come as tensors on the array's device, over DLPack and without a copy. Reading ahead is done by a thread of the same
process, so GPU memory needs no worker processes (``num_workers=0``); with workers, each reads its share, and the datasets
are picklable for ``spawn``, the start method that GPUs need.

    array = cuzarr.open_array("data.zarr", path="images", device="cuda")
    for batch in DataLoader(cuzarr.torch.BatchDataset(array, 256, shuffle=True), batch_size=None):
        ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from cuzarr._array import Array
from cuzarr._batches import Batches
from cuzarr._opening import array_of
from cuzarr.errors import InvalidArgumentError


def to_tensor(elements: Any) -> torch.Tensor:
    """A tensor over the memory of elements that were read, on the device they are on."""
    return torch.from_numpy(elements) if isinstance(elements, np.ndarray) else torch.from_dlpack(elements)


class RowDataset(Dataset[Any]):  # type: ignore[misc]
    """One item for each place along the first dimension of one array, or of several equally long ones, whose items are tuples;
    lists of places are read at once."""

    def __init__(self, arrays: Any) -> None:
        self.is_single = not isinstance(arrays, list | tuple)
        self.arrays = tuple(map(array_of, (arrays,) if self.is_single else arrays))
        if len({len(array) for array in self.arrays}) != 1:
            lengths = [len(array) for array in self.arrays]
            raise InvalidArgumentError(f"the arrays are {lengths} rows long, expected one or several of one length")

    @property
    def array(self) -> Array:
        """The array, or the first one."""
        return self.arrays[0]

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        rows = tuple(to_tensor(array[place]) for array in self.arrays)
        return rows[0] if self.is_single else rows

    def __getitems__(self, places: Sequence[int]) -> list[Any]:
        """What ``DataLoader`` asks for a batch with."""
        indices = np.asarray(places, np.intp)
        batches = [list(to_tensor(array.oindex[indices])) for array in self.arrays]
        return batches[0] if self.is_single else list(zip(*batches, strict=True))


class BatchDataset(IterableDataset[Any]):  # type: ignore[misc]
    """Batches along the first dimension of one or several arrays, read ahead; see :class:`cuzarr._batches.Batches`.

    ``set_epoch`` chooses another order for the next pass when rows are shuffled.
    """

    def __init__(self, arrays: Array | Sequence[Array], size: int, **kwargs: Any) -> None:
        self.batches = Batches(arrays, size, **kwargs)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next pass."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        part, parts = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        for batch in self.batches.iterate(self.epoch, part, parts):
            yield to_tensor(batch) if self.batches.is_single else tuple(map(to_tensor, batch))

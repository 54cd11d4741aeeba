"""Arrays of a store as PyTorch's datasets.

Elements come as tensors on the array's device, over DLPack and without a copy. Reading ahead is done by a thread of the same
process, so GPU memory needs no worker processes (``num_workers=0``); with workers, each reads its share, and the datasets
are picklable for ``spawn``, the start method that GPUs need.

    array = cuzarr.open_array("data.zarr", path="images", device="cuda")
    for batch in DataLoader(cuzarr.torch.BatchDataset(array, 256, shuffle=True), batch_size=None):
        ...

Where ``torch.distributed`` is initialised, the ranks share the batches of a :class:`BatchDataset`; a :class:`RowDataset` is
divided by PyTorch's ``DistributedSampler``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from cuzarr import _names
from cuzarr._memory.foreign import wrap_host
from cuzarr._node.batches import Batches, Columns, Source
from cuzarr.errors import CuzarrRuntimeWarning, DTypeMismatchError, InvalidArgumentError

__all__ = ["BatchDataset", "RowDataset", "to_tensor"]


def to_tensor(elements: Any) -> torch.Tensor:
    """A tensor over the memory of elements that were read, on the device they are on; a copy in host memory where PyTorch has no
    such byte order or strides.

    Raises
    ------
    DTypeMismatchError
        PyTorch has no such elements: strings, dates, structures.
    """
    if not isinstance(elements, np.ndarray | np.generic):
        return torch.from_dlpack(elements)
    array = np.asarray(elements)
    if not isinstance(getattr(torch, array.dtype.name, None), torch.dtype):
        hint = "read dates as numbers: x.view('int64')" if array.dtype.kind in "mM" else "convert them first"
        raise DTypeMismatchError(f"PyTorch has no elements of {array.dtype}", hint=hint)
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    if array.dtype.name == "bfloat16":
        return torch.from_dlpack(wrap_host(array if array.flags.writeable else array.copy()))
    return torch.from_numpy(array)


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


class BatchDataset(IterableDataset[Any]):  # type: ignore[misc]
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
        if (rank is None) != (world_size is None):
            raise InvalidArgumentError("rank and world_size belong together", hint="pass both, or neither")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise InvalidArgumentError(f"rank is {rank}, expected 0 to {world_size - 1}")
        self.batches: Batches = Batches(arrays, size, **kwargs)
        self._rank, self._world_size = rank, world_size
        # Workers that live longer than a pass see another epoch in memory that they share alone.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        """The epoch whose order the next pass has."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next pass, in worker processes, too."""
        self._epoch.fill_(epoch)

    def _place(self) -> tuple[int, int]:
        """Rank and number of ranks."""
        if self._rank is not None and self._world_size is not None:
            return self._rank, self._world_size
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        if get_worker_info() is None and int(os.environ.get("WORLD_SIZE") or 1) > 1:
            message = "WORLD_SIZE is set, but torch.distributed is not initialised: every process reads all batches"
            hint = "call init_process_group first, or pass rank= and world_size="
            warnings.warn(f"{message}\nhint: {hint}", CuzarrRuntimeWarning, stacklevel=4)
        return 0, 1

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes do not know torch.distributed; they belong to the rank that starts them.
        rank, world_size = self._place()
        own = {"_rank": rank, "_world_size": world_size} if world_size > 1 else {}
        return {**self.__dict__, **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._epoch.share_memory_()

    def __len__(self) -> int:
        return self.batches.length(*self._place())

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        part, parts = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        rank, world_size = self._place()
        columns = self.batches.columns
        for batch in self.batches.iterate(self.epoch, part, parts, rank=rank, world_size=world_size):
            yield columns.form([to_tensor(one) for one in columns.parts(batch)])


_names.list_public(globals())

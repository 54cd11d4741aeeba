"""Epochs and ranks: what data sets of batches share."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from cuzarr.errors import CuzarrRuntimeWarning, InvalidArgumentError


class EpochDataset(IterableDataset[Any]):  # type: ignore[misc]
    """A data set of batches, with another order each epoch, that ranks of ``torch.distributed`` share.

    Parameters
    ----------
    rank, world_size : int, optional
        Which of how many ranks this is; by default as ``torch.distributed`` says when a pass begins, where it is initialised.
    """

    def __init__(self, rank: int | None, world_size: int | None) -> None:
        if (rank is None) != (world_size is None):
            raise InvalidArgumentError("rank and world_size belong together", hint="pass both, or neither")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise InvalidArgumentError(f"rank is {rank}, expected 0 to {world_size - 1}")
        self._rank, self._world_size = rank, world_size
        # Workers that live longer than a pass see another epoch in memory that they share: the epoch, the epoch that was
        # resumed, and how many of its batches were taken before.
        self._shared = torch.tensor([0, -1, 0], dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        """The epoch whose order the next pass has."""
        return int(self._shared[0])

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass. Worker processes follow.

        Parameters
        ----------
        epoch : int
            The number of the epoch, from 0 on. An epoch of one seed always has one order.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> from cuzarr.torch import WindowDataset
        >>> array = cuzarr.create_array({}, data=np.arange(8.0), chunks=(4,))
        >>> dataset = WindowDataset(array, {0: 2}, 4)
        >>> dataset.set_epoch(3)
        >>> dataset.epoch
        3
        """
        self._shared[0] = epoch

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
        self._shared.share_memory_()

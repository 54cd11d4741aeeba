"""The data sets of :mod:`cuzarr.loader` as PyTorch's: tensors, ranks of ``torch.distributed``, worker processes of a ``DataLoader``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils.data import IterableDataset, default_collate, get_worker_info

from cuzarr.errors import InvalidArgumentError
from cuzarr.loader import _datasets as datasets, _sparse_rows as sparse_rows, _stream as stream
from cuzarr.loader._epochs import EpochDataset, Worker
from cuzarr.loader._variables import Given, Window
from cuzarr.torch._library import TensorLibrary

if TYPE_CHECKING:
    from typing import Unpack

    from cuzarr._node.group import Group
    from cuzarr.loader._stream import Samples
    from cuzarr.sparse import CSRDataset
    from cuzarr.typing import (
        BatchOptions,
        CropOptions,
        SparseRowOptions,
        StoreLike,
        StreamOptions,
        SupportsStorePath,
        WindowOptions,
    )


class OfTorch(EpochDataset):
    """Base class of this module's data sets: makes batches of tensors, and asks PyTorch for ranks and worker processes."""

    _unranked: ClassVar[tuple[str, str]] = (
        "torch.distributed is not initialised",
        "call init_process_group first, or pass rank= and world_size=",
    )
    pin_memory = False

    def _library(self, device: str) -> TensorLibrary:
        return TensorLibrary(device, self.pin_memory)

    def _worker(self) -> Worker | None:
        info = get_worker_info()
        return None if info is None else Worker(info.id, info.num_workers, int(info.seed - info.id))

    def _ranks(self) -> tuple[int, int] | None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return None

    def _shared_numbers(self, numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int64).share_memory_()

    def __iter__(self) -> Iterator[Any]:
        _refuse_collation(sys._getframe(1))
        return super().__iter__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._shared.share_memory_()


def _refuse_collation(caller: FrameType) -> None:
    """Refuses a ``DataLoader`` that would stack batches into larger batches. A data set does not learn the loader's batch size, but the
    loader's fetcher, which calls ``iter``, has it.

    Raises
    ------
    InvalidArgumentError
    """
    fetcher = caller.f_locals.get("self")
    if getattr(fetcher, "auto_collation", False) and getattr(fetcher, "collate_fn", None) is default_collate:
        raise InvalidArgumentError(
            "this data set gives whole batches, and DataLoader would stack them along another dimension",
            hint="pass batch_size=None to DataLoader; the data set has the number of samples of a batch",
        )


class BatchDataset(OfTorch, datasets.BatchDataset, IterableDataset[Any]):  # type: ignore[misc]
    """A data set of batches of rows, as tensors: :class:`cuzarr.loader.BatchDataset` for PyTorch.

    Hand it to a ``DataLoader`` with ``batch_size=None``, or iterate it. A thread of the same process reads ahead. The ranks of
    ``torch.distributed`` share the rows: each row comes once, every rank gets equally many batches, and the last batches may be
    smaller.

    Parameters
    ----------
    arrays, size
        As for :class:`cuzarr.loader.BatchDataset`.
    pin_memory : bool
        Whether batches in host memory are pinned, so that ``tensor.to("cuda", non_blocking=True)`` does not wait.
    **options
        The other arguments of :class:`cuzarr.loader.BatchDataset`. Rank and number of ranks are those of ``torch.distributed``
        when a pass begins, if it is initialised.

    Raises
    ------
    BudgetExceededError, InvalidArgumentError, ShapeMismatchError, UnsupportedError
        As for the data set of :mod:`cuzarr.loader`.
    DTypeMismatchError
        PyTorch does not support the type of the numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(6.0).reshape(3, 2))
    >>> [batch.shape for batch in cuzarr.torch.BatchDataset(array, 2)]
    [torch.Size([2, 2]), torch.Size([1, 2])]
    """

    def __init__(self, arrays: Given, size: int, *, pin_memory: bool = False, **options: Unpack[BatchOptions]) -> None:
        super().__init__(arrays, size, **options)
        self.pin_memory = bool(pin_memory)


class WindowDataset(OfTorch, datasets.WindowDataset, IterableDataset[Any]):  # type: ignore[misc]
    """A data set of windows, as tensors: :class:`cuzarr.loader.WindowDataset` for PyTorch.

    Hand it to a ``DataLoader`` with ``batch_size=None``, or iterate it. On a GPU a thread of the same process reads ahead, and no
    workers are needed. With ``num_workers``, each worker reads its own cells, within its part of the memory limit.

    Parameters
    ----------
    variables, window, size
        As for :class:`cuzarr.loader.WindowDataset`.
    pin_memory : bool
        Whether batches in host memory are pinned, so that ``tensor.to("cuda", non_blocking=True)`` does not wait.
    **options
        The other arguments of :class:`cuzarr.loader.WindowDataset`. Rank and number of ranks are those of ``torch.distributed``
        when a pass begins, if it is initialised.

    Raises
    ------
    BudgetExceededError, InvalidArgumentError, ShapeMismatchError, UnsupportedError
        As for the data set of :mod:`cuzarr.loader`.
    DTypeMismatchError
        PyTorch does not support the type of the numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> t2m = cuzarr.create_array({}, data=np.arange(24.0).reshape(12, 2), chunks=(3, 2), dimension_names=("time", "x"))
    >>> past, future = t2m, cuzarr.torch.Variable(t2m, window={"time": (1, 3)})
    >>> windows = cuzarr.torch.WindowDataset({"past": past, "future": future}, {"time": (-3, 1)}, size=4, seed=7)
    >>> batch = next(iter(windows))
    >>> batch["past"].shape, batch["future"].shape, windows.samples
    (torch.Size([4, 4, 2]), torch.Size([4, 2, 2]), 7)
    """

    def __init__(
        self, variables: Given, window: Window, size: int, *, pin_memory: bool = False, **options: Unpack[WindowOptions]
    ) -> None:
        super().__init__(variables, window, size, **options)
        self.pin_memory = bool(pin_memory)


class CropDataset(OfTorch, datasets.CropDataset, IterableDataset[Any]):  # type: ignore[misc]
    """A data set of crops at random positions, as tensors: :class:`cuzarr.loader.CropDataset` for PyTorch.

    Hand it to a ``DataLoader`` with ``batch_size=None``, or iterate it.

    Parameters
    ----------
    variables, crop, size
        As for :class:`cuzarr.loader.CropDataset`.
    pin_memory : bool
        Whether batches in host memory are pinned, so that ``tensor.to("cuda", non_blocking=True)`` does not wait.
    **options
        The other arguments of :class:`cuzarr.loader.CropDataset`. Rank and number of ranks are those of ``torch.distributed``
        when a pass begins, if it is initialised.

    Raises
    ------
    BudgetExceededError, InvalidArgumentError, ShapeMismatchError, UnsupportedError
        As for the data set of :mod:`cuzarr.loader`.
    DTypeMismatchError
        PyTorch does not support the type of the numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> volume = cuzarr.create_array({}, data=np.ones((32, 32), "uint8"), chunks=(8, 8), dimension_names=("y", "x"))
    >>> crops = cuzarr.torch.CropDataset(volume, {"y": 4, "x": 4}, size=16)
    >>> len(crops), next(iter(crops)).shape
    (4, torch.Size([16, 4, 4]))
    """

    def __init__(
        self,
        variables: Given,
        crop: Mapping[int | str, int],
        size: int,
        *,
        pin_memory: bool = False,
        **options: Unpack[CropOptions],
    ) -> None:
        super().__init__(variables, crop, size, **options)
        self.pin_memory = bool(pin_memory)


class SparseRows(OfTorch, sparse_rows.SparseRows, IterableDataset[Any]):  # type: ignore[misc]
    """A data set of batches of rows of a stored CSR matrix, as tensors: :class:`cuzarr.loader.SparseRows` for PyTorch.

    Batches have the layout ``torch.sparse_csr``, or are dense with ``dense=True``. Columns of ``obs`` are separate tensors. Hand the data
    set to a ``DataLoader`` with ``batch_size=None``, or iterate it. On a GPU a thread of the same process reads ahead, and no workers are
    needed.

    Parameters
    ----------
    matrix, size
        As for :class:`cuzarr.loader.SparseRows`.
    pin_memory : bool
        Whether dense batches in host memory are pinned, so that ``tensor.to("cuda", non_blocking=True)`` does not wait.
    **options
        The other arguments of :class:`cuzarr.loader.SparseRows`. Rank and number of ranks are those of ``torch.distributed``
        when a pass begins, if it is initialised.

    Raises
    ------
    ArgumentTypeError, UnsupportedFeatureError, EncodingValidationError, ArrayNotFoundError, ShapeMismatchError, UnsupportedError
        As for the data set of :mod:`cuzarr.loader`.
    BudgetExceededError, InvalidArgumentError
        As for the data set of :mod:`cuzarr.loader`.
    DTypeMismatchError
        PyTorch does not support the type of the numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.create_group({}, attributes={"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [3, 3]})
    >>> for name, values in {"data": [1.0, 2.0, 3.0], "indices": [0, 2, 2], "indptr": [0, 2, 2, 3]}.items():
    ...     _ = group.create_array(name, data=np.array(values))
    >>> batch = next(iter(cuzarr.torch.SparseRows(group, 2)))
    >>> batch.layout, batch.shape
    (torch.sparse_csr, torch.Size([2, 3]))
    """

    def __init__(
        self,
        matrix: CSRDataset | Group | SupportsStorePath | StoreLike,
        size: int,
        *,
        pin_memory: bool = False,
        **options: Unpack[SparseRowOptions],
    ) -> None:
        super().__init__(matrix, size, **options)
        self.pin_memory = bool(pin_memory)


class SampleStream(OfTorch, stream.SampleStream, IterableDataset[Any]):  # type: ignore[misc]
    """A stream of samples of any arrays, as tensors: :class:`cuzarr.loader.SampleStream` for PyTorch.

    Hand it to a ``DataLoader`` with ``batch_size=None``, or iterate it. With ``num_workers``, the workers read batches in turn.

    Parameters
    ----------
    samples, batch_size, prefetch
        As for :class:`cuzarr.loader.SampleStream`.
    pin_memory : bool
        Whether stacked parts in host memory are pinned, so that ``tensor.to("cuda", non_blocking=True)`` does not wait.
    **options
        The other arguments of :class:`cuzarr.loader.SampleStream`. Rank and number of ranks are those of ``torch.distributed``
        when a pass begins, if it is initialised.

    Raises
    ------
    ArgumentTypeError, InvalidArgumentError, CuzarrError
        As for :class:`cuzarr.loader.SampleStream`. A sample with elements that PyTorch does not support counts as bad.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> volumes = [cuzarr.create_array({}, data=np.full((8, 8), n), chunks=(4, 4)) for n in range(3)]
    >>> stream = cuzarr.torch.SampleStream([{"image": (volume, np.s_[:2, 2:6])} for volume in volumes], 3)
    >>> next(iter(stream))["image"].shape
    torch.Size([3, 2, 4])
    """

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        prefetch: int = 2,
        *,
        pin_memory: bool = False,
        **options: Unpack[StreamOptions],
    ) -> None:
        super().__init__(samples, batch_size, prefetch, **options)
        self.pin_memory = bool(pin_memory)

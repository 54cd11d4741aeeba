"""Data of stored arrays for PhysicsNeMo's ``DataLoader``: batches in GPU memory, or single samples in host memory.

>>> import cuzarr, numpy as np
>>> from physicsnemo.datapipes import DataLoader
>>> from cuzarr.stacks.physicsnemo import Batches
>>> flow = cuzarr.create_array({}, data=np.arange(12.0).reshape(6, 2))
>>> rows = Batches(cuzarr.torch.BatchDataset({"flow": flow}, 4))
>>> [batch["flow"].shape for batch in DataLoader(rows)]
[torch.Size([4, 2]), torch.Size([2, 2])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from physicsnemo.datapipes import Reader
from physicsnemo.datapipes.protocols import IterableDatasetBase
from tensordict import TensorDict

from cuzarr import _names
from cuzarr._node.open import open_group
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError
from cuzarr.torch import BatchDataset, CropDataset, SampleStream, WindowDataset, to_tensor

if TYPE_CHECKING:
    from cuzarr.typing import StoreLike

__all__ = ["Batches", "GroupReader"]


class Batches(IterableDatasetBase):  # type: ignore[misc]
    """The batches of a data set of :mod:`cuzarr.torch`, for PhysicsNeMo's ``DataLoader``: each is a ``TensorDict``.

    Batches are on the device of the arrays, and a thread reads them ahead. The data set decides the order, the seed and the size of
    batches, so ``DataLoader`` needs no ``shuffle``, ``sampler`` or ``batch_size``.

    Parameters
    ----------
    dataset : BatchDataset, WindowDataset, CropDataset or SampleStream
        A data set of several arrays by name.
    transforms : callable, optional
        A function that gets each batch and returns it changed: a transform of PhysicsNeMo that works on batches, or another one.

    Raises
    ------
    ArgumentTypeError
        The arrays of the data set have no names. Raised at the first batch.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> from cuzarr.stacks.physicsnemo import Batches, GroupReader
    >>> flow = cuzarr.create_array({}, data=np.arange(6.0))
    >>> batch = next(iter(Batches(cuzarr.torch.BatchDataset({"flow": flow}, 4))))
    >>> batch["flow"].tolist(), batch.batch_size
    ([0.0, 1.0, 2.0, 3.0], torch.Size([4]))
    """

    yields_batches = True

    def __init__(
        self,
        dataset: BatchDataset | WindowDataset | CropDataset | SampleStream,
        *,
        transforms: Callable[[TensorDict], TensorDict] | None = None,
    ) -> None:
        self.dataset, self.transforms = dataset, transforms

    def __iter__(self) -> Iterator[TensorDict]:
        for batch in self.dataset:
            if not isinstance(batch, dict):
                hint = "pass its arrays by name, as in BatchDataset({'flow': array}, 16)"
                raise ArgumentTypeError(f"a batch is a {type(batch).__name__}, expected tensors by name", hint=hint)
            first = next(iter(batch.values()))
            data = TensorDict(batch, batch_size=[len(first)], device=first.device)
            yield data if self.transforms is None else self.transforms(data)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next pass reads, and so the order of its samples.

        Parameters
        ----------
        epoch : int
            The number of the epoch, from 0 on.

        >>> import cuzarr, numpy as np
        >>> from cuzarr.stacks.physicsnemo import Batches, GroupReader
        >>> rows = Batches(cuzarr.torch.BatchDataset({"x": cuzarr.create_array({}, data=np.arange(3.0))}, 2))
        >>> rows.set_epoch(1)
        >>> rows.dataset.epoch
        1
        """
        self.dataset.set_epoch(epoch)


class GroupReader(Reader):  # type: ignore[misc]
    """A reader of the arrays of a group, for PhysicsNeMo's ``Dataset`` with its transforms and samplers: sample ``i`` is index ``i`` of a
    dimension. All arrays of a sample are read by one call, into host memory, because PhysicsNeMo uploads samples itself.

    Parameters
    ----------
    group : StoreLike
        The place of the group.
    fields : iterable of str, optional
        The names of arrays. By default all arrays directly in the group.
    axis : str
        The dimension of samples. Arrays that lack it come whole in each sample.
    pin_memory, include_index_in_metadata : bool
        As for PhysicsNeMo's ``Reader``.

    Raises
    ------
    InvalidArgumentError
        No array has the dimension, or its extents differ.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> from cuzarr.stacks.physicsnemo import Batches, GroupReader
    >>> group = cuzarr.create_group({})
    >>> _ = group.create_array("flow", data=np.arange(6.0).reshape(3, 2), dimension_names=("time", "x"))
    >>> reader = GroupReader(group.store)
    >>> len(reader), reader[2][0]["flow"].tolist()
    (3, [4.0, 5.0])
    """

    def __init__(
        self,
        group: StoreLike,
        fields: Iterable[str] | None = None,
        *,
        axis: str = "time",
        pin_memory: bool = False,
        include_index_in_metadata: bool = True,
    ) -> None:
        super().__init__(pin_memory=pin_memory, include_index_in_metadata=include_index_in_metadata)
        self.group, self.axis = open_group(group, mode="r", device="cpu"), axis
        self.fields = sorted(self.group.array_keys()) if fields is None else list(fields)
        arrays = [self.group.get_array(name) for name in self.fields]
        names = [array._dimension_names or () for array in arrays]
        extents = {array.shape[own.index(axis)] for array, own in zip(arrays, names, strict=True) if axis in own}
        if len(extents) != 1:
            found = f"extents {sorted(extents)}" if extents else f"no array with this dimension among {self.fields}"
            raise InvalidArgumentError(f"along dimension {axis!r} there are {found}, expected one extent")
        (self._count,) = extents

    def __len__(self) -> int:
        return self._count

    def _load_sample(self, index: int) -> dict[str, torch.Tensor]:
        return {name: to_tensor(values) for name, values in self.group.read(self.fields, {self.axis: index}).items()}

    def _get_field_names(self) -> list[str]:
        return list(self.fields)

    def _get_sample_metadata(self, index: int) -> dict[str, Any]:
        return {"source": str(self.group.store_path)}


_names.publish(globals())

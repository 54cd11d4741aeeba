"""Data sets for training with any framework: batches of samples from stored arrays, which a thread reads ahead of the training loop.

Batches have the array types of ordinary reads: NumPy's arrays, or on a GPU CuPy's or :class:`cuzarr.DeviceArray`. A thread of the same
process reads ahead. :mod:`cuzarr.torch` and :mod:`cuzarr.jax` have the same data sets with tensors of PyTorch and arrays of JAX.

>>> import cuzarr, numpy as np
>>> array = cuzarr.create_array({}, data=np.arange(12.0).reshape(6, 2), chunks=(2, 2))
>>> for epoch in range(2):
...     rows = cuzarr.loader.BatchDataset(array, 4)
...     rows.set_epoch(epoch)
...     print([batch.shape for batch in rows])
[(4, 2), (2, 2)]
[(4, 2), (2, 2)]

:class:`BatchDataset` returns rows, :class:`WindowDataset` returns windows, for example along time, and :class:`CropDataset` returns crops
at random positions. They read each stored chunk once per epoch, within a memory limit. :class:`SparseRows` returns rows of a sparse
matrix and columns of ``obs``, for single-cell data. :class:`SampleStream` returns samples of any arrays in an order that the caller
chooses.

Pass the rank of each process: ``BatchDataset(array, 4, rank=0, world_size=2)``. The ranks then share the batches.

Take all batches of an iterator in one process. The thread that reads does not exist in a forked child, so an iterator that is continued
there raises :class:`cuzarr.errors.UnsupportedError`. Call ``iter()`` in the child instead.
"""

# `cells` divides the sample axes into cells, `crops` draws positions, `plan` chooses the order of an epoch, `shares` divides an epoch
# among ranks and workers, `progress` records the progress of an epoch, `variables` describes the part of each array in a sample,
# `reading` holds cells in memory, `boxes` and `rows` cut samples out of them, `library` and `scaling` make batches of them, and `ahead`
# runs all this in a thread. `epochs`, `datasets`, `sparse_rows` and `stream` define the public classes.

from __future__ import annotations

from cuzarr import _names
from cuzarr.loader._datasets import BatchDataset, CropDataset, WindowDataset
from cuzarr.loader._sparse_rows import SparseRows
from cuzarr.loader._stream import SampleStream
from cuzarr.loader._variables import Variable

__all__ = ["BatchDataset", "CropDataset", "SampleStream", "SparseRows", "Variable", "WindowDataset"]

_names.publish(globals())

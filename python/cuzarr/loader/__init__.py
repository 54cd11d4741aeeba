"""Samples for training: batches of boxes of stored arrays, read ahead, for any framework.

Batches are what arrays read as: NumPy's arrays, or CuPy's and :class:`cuzarr.DeviceArray` on a GPU. A thread of the same process reads
ahead. :mod:`cuzarr.torch` and :mod:`cuzarr.jax` have the same data sets with tensors of PyTorch and arrays of JAX.

>>> import cuzarr, numpy as np
>>> array = cuzarr.create_array({}, data=np.arange(12.0).reshape(6, 2), chunks=(2, 2))
>>> for epoch in range(2):
...     rows = cuzarr.loader.BatchDataset(array, 4)
...     rows.set_epoch(epoch)
...     print([batch.shape for batch in rows])
[(4, 2), (2, 2)]
[(4, 2), (2, 2)]

:class:`BatchDataset` gives rows, :class:`WindowDataset` windows, for example along time, and :class:`CropDataset` crops at random
positions. They read each stored chunk once an epoch, within a limit of memory. :class:`SparseRows` gives rows of a sparse matrix and
columns of ``obs``, for single-cell data. :class:`SampleStream` gives samples of any arrays in an
order that the caller chooses.

Name the rank of each process: ``BatchDataset(array, 4, rank=0, world_size=2)``. The ranks then share the batches.

Take all batches of an iterator in one process. A forked child does not have the thread that reads: an iterator that goes on there raises
:class:`cuzarr.errors.UnsupportedError`. Call ``iter()`` in the child instead.
"""

# `cells` divides the sample axes into cells, `crops` draws positions, `plan` chooses the order of an epoch, `shares` divides an epoch
# among ranks and workers, `progress` says how far one is, `variables` says what a sample has of each array, `reading` holds cells in
# memory, `boxes` and `rows` cut samples out of them, `library` and `scaling` make batches of them, and `ahead` runs all that in a thread.
# `epochs`, `datasets`, `sparse_rows` and `stream` are what programs see.

from __future__ import annotations

from cuzarr import _names
from cuzarr.loader._datasets import BatchDataset, CropDataset, WindowDataset
from cuzarr.loader._sparse_rows import SparseRows
from cuzarr.loader._stream import SampleStream
from cuzarr.loader._variables import Variable

__all__ = ["BatchDataset", "CropDataset", "SampleStream", "SparseRows", "Variable", "WindowDataset"]

_names.publish(globals())

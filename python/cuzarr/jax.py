"""Reads stored arrays as batches of JAX arrays, and converts single results to JAX arrays.

>>> import cuzarr, numpy as np
>>> images = cuzarr.create_array({}, data=np.arange(12, dtype="float32").reshape(6, 2), chunks=(2, 2))
>>> [batch.shape for batch in cuzarr.jax.BatchDataset(images, 4)]
[(4, 2), (2, 2)]

The data sets are those of :mod:`cuzarr.loader`, which describes their arguments. Batches lie on the device that the arrays are read to,
and are handed over by DLPack, without a copy. The processes of ``jax.distributed`` share the batches of an epoch.

JAX keeps numbers of 64 bits only with ``jax.config.update("jax_enable_x64", True)``. Without it they become numbers of 32 bits, and
large integers lose their upper bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np
from jax.experimental.sparse import BCSR

from cuzarr import _names
from cuzarr._memory.device_array import DeviceArray
from cuzarr._memory.foreign import wrap_host
from cuzarr._numpy import is_number, is_small
from cuzarr.errors import DTypeMismatchError, OutOfRangeError
from cuzarr.loader import _datasets as datasets, _sparse_rows as sparse_rows, _stream as stream
from cuzarr.loader._epochs import EpochDataset
from cuzarr.loader._library import Library
from cuzarr.loader._variables import Variable
from cuzarr.sparse import Matrix

if TYPE_CHECKING:
    from cuzarr.typing import MemoryArray

__all__ = ["BatchDataset", "CropDataset", "SampleStream", "SparseRows", "Variable", "WindowDataset", "to_array"]


def to_array(elements: MemoryArray | np.ndarray[Any, Any] | np.generic) -> jax.Array:
    """Converts elements that were read to an array of JAX on the same device. It shares their memory where JAX can: do not change them
    afterwards.

    Parameters
    ----------
    elements : array
        An array of NumPy or CuPy, or a :class:`cuzarr.DeviceArray`.

    Returns
    -------
    jax.Array
        The array.

    Raises
    ------
    DTypeMismatchError
        JAX does not support the elements, such as strings, dates and structures.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> cuzarr.jax.to_array(np.array([1, 2], "int16")).tolist()
    [1, 2]
    """
    _check_type(elements.dtype)
    shared: Any = elements
    if isinstance(elements, np.ndarray | np.generic):
        # JAX knows no other byte order and no negative strides.
        array = np.ascontiguousarray(elements, elements.dtype.newbyteorder("=")).reshape(elements.shape)
        shared = DeviceArray(wrap_host(array), array.dtype)
    made: jax.Array = jax.dlpack.from_dlpack(shared)
    return made


def _check_type(dtype: np.dtype[Any]) -> None:
    """Raises an error for an element type that JAX does not have.

    Raises
    ------
    DTypeMismatchError
    """
    name = dtype.newbyteorder("=").name
    if not (is_number(dtype) or is_small(dtype) and name.startswith("float8")) or not hasattr(
        jax.numpy, name.replace("bool", "bool_")
    ):
        hint = "read dates as numbers: x.view('int64')" if dtype.kind in "mM" else "convert them first"
        raise DTypeMismatchError(f"JAX has no elements of {dtype}", hint=hint)


class _JaxLibrary(Library):
    """The array library that makes a data set's batches as JAX arrays. An array is made after its elements have been read."""

    def check(self, dtype: np.dtype[Any]) -> None:
        _check_type(dtype)

    def delivered(self, memory: Any) -> jax.Array:
        return to_array(memory)

    def converted(self, elements: Any) -> jax.Array:
        return to_array(elements)

    def matrix(self, matrix: Matrix) -> BCSR:
        if matrix.indices.dtype.itemsize > 4 and not jax.config.jax_enable_x64:
            message = f"a matrix of shape {matrix.shape} with {matrix.nnz} elements has indices of 64 bits"
            raise OutOfRangeError(message, hint="call jax.config.update('jax_enable_x64', True)")
        return BCSR((to_array(matrix.data), to_array(matrix.indices), to_array(matrix.indptr)), shape=matrix.shape)


class OfJax(EpochDataset):
    """Base class of this module's data sets: makes batches of JAX arrays, and asks JAX for the rank of the process."""

    _unranked: ClassVar[tuple[str, str]] = (
        "jax.distributed is not initialised",
        "call jax.distributed.initialize first, or pass rank= and world_size=",
    )

    def _library(self, device: str) -> Library:
        return _JaxLibrary(device)

    def _ranks(self) -> tuple[int, int] | None:
        return (jax.process_index(), jax.process_count()) if jax.process_count() > 1 else None


class BatchDataset(OfJax, datasets.BatchDataset):
    """A data set of batches of rows, as arrays of JAX.

    Parameters
    ----------
    arrays, size, shuffle, seed, memory_limit, drop_last, transform, positions, prefetch, rank, world_size
        As for :class:`cuzarr.loader.BatchDataset`.

    Raises
    ------
    BudgetExceededError, InvalidArgumentError, ShapeMismatchError, UnsupportedError
        As for :class:`cuzarr.loader.BatchDataset`.
    DTypeMismatchError
        JAX does not support the type of the numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> array = cuzarr.create_array({}, data=np.arange(6, dtype="f4").reshape(3, 2))
    >>> [batch.shape for batch in cuzarr.jax.BatchDataset(array, 2)]
    [(2, 2), (1, 2)]
    """


class WindowDataset(OfJax, datasets.WindowDataset):
    """A data set of windows, as arrays of JAX.

    Parameters
    ----------
    variables, window, size, stride, within, shuffle, seed, memory_limit, drop_last, transform, positions, prefetch, rank, world_size
        As for :class:`cuzarr.loader.WindowDataset`.

    Raises
    ------
    BudgetExceededError, InvalidArgumentError, ShapeMismatchError, UnsupportedError
        As for :class:`cuzarr.loader.WindowDataset`.
    DTypeMismatchError
        JAX does not support the type of the numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> t2m = cuzarr.create_array({}, data=np.zeros((12, 2), "f4"), chunks=(3, 2), dimension_names=("time", "x"))
    >>> next(iter(cuzarr.jax.WindowDataset(t2m, {"time": 4}, size=3))).shape
    (3, 4, 2)
    """


class CropDataset(OfJax, datasets.CropDataset):
    """A data set of crops at random positions, as arrays of JAX.

    Parameters
    ----------
    variables, crop, size, samples, block, seed, memory_limit, drop_last, transform, positions, prefetch, rank, world_size
        As for :class:`cuzarr.loader.CropDataset`.

    Raises
    ------
    BudgetExceededError, InvalidArgumentError, ShapeMismatchError, UnsupportedError
        As for :class:`cuzarr.loader.CropDataset`.
    DTypeMismatchError
        JAX does not support the type of the numbers.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> volume = cuzarr.create_array({}, data=np.ones((32, 32), "uint8"), chunks=(8, 8), dimension_names=("y", "x"))
    >>> next(iter(cuzarr.jax.CropDataset(volume, {"y": 4, "x": 4}, size=16))).shape
    (16, 4, 4)
    """


class SparseRows(OfJax, sparse_rows.SparseRows):
    """A data set of batches of rows of a stored CSR matrix, as arrays of JAX.

    A batch is a ``jax.experimental.sparse.BCSR``, or a dense array with ``dense=True``. Columns of ``obs`` are separate arrays. Under
    ``jax.jit`` prefer dense batches: sparse batches have different numbers of elements, and a function is compiled for each number.

    Parameters
    ----------
    matrix, size, obs, columns, dense, dtype, shuffle, weights, samples, seed, memory_limit, drop_last, transform, positions, prefetch
        As for :class:`cuzarr.loader.SparseRows`.
    rank, world_size
        As for :class:`cuzarr.loader.SparseRows`.

    Raises
    ------
    ArgumentTypeError, UnsupportedFeatureError, EncodingValidationError, ArrayNotFoundError, ShapeMismatchError, UnsupportedError
        As for :class:`cuzarr.loader.SparseRows`.
    BudgetExceededError, InvalidArgumentError
        As for :class:`cuzarr.loader.SparseRows`.
    DTypeMismatchError
        JAX does not support the type of the numbers.
    OutOfRangeError
        A batch needs indices of 64 bits, which JAX only has with ``jax_enable_x64``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.create_group({}, attributes={"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [3, 3]})
    >>> for name, values in {"data": np.ones(3, "f4"), "indices": [0, 2, 2], "indptr": [0, 2, 2, 3]}.items():
    ...     _ = group.create_array(name, data=np.array(values))
    >>> next(iter(cuzarr.jax.SparseRows(group, 2))).todense().tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """


class SampleStream(OfJax, stream.SampleStream):
    """A stream of samples of any arrays, as arrays of JAX.

    Parameters
    ----------
    samples, batch_size, prefetch, skip_bad, drop_last, rank, world_size
        As for :class:`cuzarr.loader.SampleStream`.

    Raises
    ------
    ArgumentTypeError, InvalidArgumentError, CuzarrError
        As for :class:`cuzarr.loader.SampleStream`. A sample with elements that JAX does not support counts as bad.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> volumes = [cuzarr.create_array({}, data=np.full((8, 8), n, "f4"), chunks=(4, 4)) for n in range(3)]
    >>> stream = cuzarr.jax.SampleStream([{"image": (volume, np.s_[:2, 2:6])} for volume in volumes], 3)
    >>> next(iter(stream))["image"].shape
    (3, 2, 4)
    """


_names.publish(globals())

"""A data set for training whose samples are rows of a stored sparse matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr._checks import element_type
from cuzarr._node.array_read import converted
from cuzarr._node.group import Group
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError, ShapeMismatchError, UnsupportedError
from cuzarr.loader._datasets import PlacedDataset
from cuzarr.loader._rows import StoredRows
from cuzarr.sparse._columns import StoredColumns, names_of
from cuzarr.sparse._dataset import CompressedDataset, CSRDataset, sparse_dataset
from cuzarr.sparse._encoding import group_of

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, DTypeLike, StoreLike, SupportsStorePath


class SparseRows(PlacedDataset):
    """A data set of batches of rows of a stored CSR matrix in anndata's format, with columns of ``obs``: cells for training.

    Rows are shuffled in blocks. A block has the rows whose elements begin in up to eight neighbouring chunks of ``data`` and ``indices``. Blocks
    are read in random order, and the rows of at least eight of them are mixed; a larger ``memory_limit`` mixes more. Each chunk is read
    and decoded about once per epoch: a chunk at the border of two blocks may be read with both. :meth:`report` counts the reads.

    A batch is a :class:`cuzarr.sparse.Matrix`, or a dense array of shape (rows, columns). With ``columns``, a batch is a pair of the
    matrix and a dictionary of the columns. Elements keep their stored order. Repeated elements are kept in sparse batches, and added up
    in dense ones.

    A thread of the same process reads ahead. Ranks share the rows: each row comes once, every rank gets equally many batches, and
    the last batches may be smaller.

    Parameters
    ----------
    matrix : CSRDataset, Group or StoreLike
        The matrix, its group, or the path of the group. Batches are on its device. The index pointer is read immediately, and kept on the
        host.
    size : int
        Number of rows of a batch.
    obs : Group or StoreLike, optional
        The group of a data frame with a row for each row of the matrix, or its path.
    columns : iterable of str, optional
        Columns of ``obs``. For each column, a batch has the numbers of its rows, or the codes for a categorical column, on the matrix's
        device. For a nullable column, it has a pair of values and mask. A pass reads the columns once and holds them whole. The labels of
        codes are the ``categories`` of :func:`cuzarr.sparse.read_column`.
    dense : bool
        Whether batches are dense. Elements are read in sparse form, and batches become dense on the device.
    dtype : dtype, optional
        The type of elements; by default the stored type, or float32 for dense batches of integers or bools.
    shuffle : bool
        Whether rows come in random order. Otherwise they come in stored order; with several workers, each worker returns its own stretch.
    weights : array_like, optional
        Weights of the rows, not negative. An epoch draws ``samples`` rows with replacement, in proportion to their weights. So some rows
        come several times, and others not at all. Needs ``shuffle=True``.
    samples : int, optional
        Number of rows that an epoch draws by ``weights``, over all ranks; by default the number of rows. All ranks draw the same rows
        from their common seed, and share the draws.
    seed, memory_limit, drop_last, transform, positions, prefetch, rank, world_size
        As for :class:`WindowDataset`. With ``positions=True``, positions are the numbers of rows, of shape (rows, 1).

    Raises
    ------
    UnsupportedFeatureError, ArgumentTypeError
        The group does not hold a CSR matrix, or a column has an encoding that :func:`cuzarr.sparse.read_column` does not read.
    EncodingValidationError
        The matrix or a column is damaged. Indices and codes are checked when they are read.
    ArrayNotFoundError
        There is no such column, or an array of the matrix is missing.
    ShapeMismatchError
        ``obs`` or ``weights`` have another number of rows than the matrix.
    UnsupportedError, DTypeMismatchError
        A column is text, elements cannot be converted to ``dtype``, or the batches' library does not support the type of the numbers.
    BudgetExceededError
        Twelve blocks (four without shuffling) and the columns do not fit into the limit. Raised when a pass begins.
    InvalidArgumentError
        A number is not allowed, or ``obs`` is given without ``columns``.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> group = cuzarr.create_group({}, attributes={"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [3, 3]})
    >>> for name, values in {"data": [1.0, 2.0, 3.0], "indices": [0, 2, 2], "indptr": [0, 2, 2, 3]}.items():
    ...     _ = group.create_array(name, data=np.array(values))
    >>> list(cuzarr.loader.SparseRows(group, 2))
    [<csr matrix of shape (2, 3) with 2 elements of float64 on cpu>, <csr matrix of shape (1, 3) with 1 elements of float64 on cpu>]
    >>> next(iter(cuzarr.loader.SparseRows(group, 2, dense=True, dtype="float32")))
    array([[1., 0., 2.],
           [0., 0., 0.]], dtype=float32)
    """

    def __init__(
        self,
        matrix: CSRDataset | Group | SupportsStorePath | StoreLike,
        size: int,
        *,
        obs: Group | SupportsStorePath | StoreLike | None = None,
        columns: Iterable[str] | None = None,
        dense: bool = False,
        dtype: DTypeLike | None = None,
        shuffle: bool = False,
        weights: ArrayLike | None = None,
        samples: int | None = None,
        seed: int = 0,
        memory_limit: int | str | None = None,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        positions: bool = False,
        prefetch: int = 2,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        opened = _opened(matrix)
        rows = StoredRows(opened, _columns(obs, columns, opened.shape[0]), _element_type(opened, dtype, bool(dense)), bool(dense))
        super().__init__(
            rows,
            size,
            shuffle=shuffle,
            seed=seed,
            memory_limit=memory_limit,
            drop_last=drop_last,
            transform=transform,
            positions=positions,
            prefetch=prefetch,
            rank=rank,
            world_size=world_size,
        )
        self._cells = rows.cells(self.memory_limit)
        self._place_samples([np.arange(opened.shape[0], dtype=np.int64)], opened.shape[:1], weights, samples)


def _opened(matrix: Any) -> CSRDataset:
    dataset = matrix if isinstance(matrix, CompressedDataset) else sparse_dataset(matrix)
    if not isinstance(dataset, CSRDataset):
        message = "the matrix is a csc_matrix, whose rows do not lie together, expected a csr_matrix"
        raise ArgumentTypeError(message, hint="write it again as a CSR matrix, such as with SciPy's tocsr()")
    return dataset


def _element_type(matrix: CSRDataset, given: Any, is_dense: bool) -> np.dtype[Any]:
    stored = matrix.dtype.newbyteorder("=")
    if given is not None:
        return converted(matrix._data, element_type(given))
    return np.dtype(np.float32) if is_dense and stored.kind in "biu" else stored


def _columns(obs: Any, names: Iterable[str] | None, rows: int) -> StoredColumns | None:
    if obs is None and names is None:
        return None
    if obs is None or names is None:
        raise InvalidArgumentError("obs and columns belong together", hint="pass both, or neither")
    stored = StoredColumns(group_of(obs), list(dict.fromkeys(names_of(names))))
    if text := [name for name, column in stored.columns.items() if column.is_text]:
        hint = "read it with cuzarr.sparse.read_column, or store it as a categorical column"
        raise UnsupportedError(f"the column {text[0]!r} is text, which has no numbers for a batch", hint=hint)
    if stored.columns and stored.length != rows:
        raise ShapeMismatchError(f"obs has {stored.length} rows, the matrix has {rows}")
    return stored

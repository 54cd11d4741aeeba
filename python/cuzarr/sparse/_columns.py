"""Columns of stored data frames: anndata's ``obs`` and ``var``."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cuzarr._node.array import Array
from cuzarr._node.array_read import read_ranges
from cuzarr._node.group import Group
from cuzarr.errors import ArgumentTypeError, LibraryMissingError
from cuzarr.sparse._encoding import broken, encoding_of, group_of
from cuzarr.sparse._places import Places, places_of, single_ranges
from cuzarr.xp import asnumpy

if TYPE_CHECKING:
    import pandas

    from cuzarr.typing import MemoryArray, Selection, StoreLike, SupportsStorePath

Encoding = Literal["array", "string-array", "categorical", "nullable-integer", "nullable-boolean", "nullable-string-array"]
_FRAME = {"dataframe": "0.2.0"}
_OF_ARRAYS = {"array": "0.2.0", "string-array": "0.2.0"}
_OF_GROUPS = {
    "categorical": "0.2.0",
    "nullable-integer": "0.1.0",
    "nullable-boolean": "0.1.0",
    "nullable-string-array": "0.1.0",
}

_TEXTS_AT_ONCE = 8


@dataclass(frozen=True, eq=False, repr=False)
class Column:
    """A column of a data frame: numbers or codes on a device, and text on the host.

    Parameters
    ----------
    encoding : str
        The encoding of the stored column: ``"array"``, ``"string-array"``, ``"categorical"``, ``"nullable-integer"``,
        ``"nullable-boolean"`` or ``"nullable-string-array"``.
    values : array
        Numbers or bools, one for each row. For a categorical column, the codes: numbers of categories, or -1 if the value is missing. For
        text, a NumPy array.
    mask : array, optional
        For the three nullable encodings, ``True`` for each missing value. ``values`` are undefined there.
    categories : numpy.ndarray, optional
        The labels of a categorical column, on the host.
    ordered : bool
        Whether the categories have an order.
    na_value : {"NA", "NaN"}
        The value that pandas uses for missing text.

    Raises
    ------
    LibraryMissingError
        From ``to_pandas``, if pandas is not installed.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> column = cuzarr.sparse.Column("categorical", np.array([1, 0, -1], "i1"), categories=np.array(["B", "T"]))
    >>> len(column), column
    (3, <categorical column of 3 rows, 2 categories>)
    """

    encoding: Encoding
    values: MemoryArray
    mask: MemoryArray | None = None
    categories: np.ndarray[Any, Any] | None = None
    ordered: bool = False
    na_value: Literal["NA", "NaN"] = "NA"

    def __len__(self) -> int:
        return len(self.values)

    def to_pandas(self) -> pandas.api.extensions.ExtensionArray | np.ndarray[Any, Any]:
        """This column as the pandas or NumPy array that anndata would read from the store. Data on a GPU are copied to the host.

        Returns
        -------
        pandas.Categorical, pandas array or numpy.ndarray
            A ``Categorical``, ``IntegerArray``, ``BooleanArray`` or string array of pandas; a NumPy array if no value can be missing.

        Raises
        ------
        LibraryMissingError
            pandas is not installed.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> column = cuzarr.sparse.Column("categorical", np.array([1, 0, -1], "i1"), categories=np.array(["B", "T"]))
        >>> list(column.to_pandas())  # doctest: +SKIP
        ['T', 'B', nan]
        """
        values = asnumpy(self.values)
        if self.encoding in _OF_ARRAYS:
            return values
        pandas = _pandas()
        if self.encoding == "categorical":
            return pandas.Categorical.from_codes(values, self.categories, ordered=self.ordered)
        mask = asnumpy(self.mask)  # type: ignore[arg-type]
        if self.encoding == "nullable-string-array":
            missing = pandas.NA if self.na_value == "NA" else np.nan
            text = np.where(mask, missing, values.astype(object))
            return pandas.array(text, dtype=pandas.StringDtype(na_value=missing))
        made = pandas.arrays.IntegerArray if self.encoding == "nullable-integer" else pandas.arrays.BooleanArray
        return made(values, mask)

    def __repr__(self) -> str:
        more = "" if self.categories is None else f", {len(self.categories)} categories"
        return f"<{self.encoding} column of {len(self)} rows{more}>"


@dataclass(frozen=True, eq=False, repr=False)
class Frame(Mapping[str, Column]):
    """A data frame: columns by name, in the order of the stored frame.

    Parameters
    ----------
    index : Column
        The names of the rows.
    columns : dict of str to Column
        The columns.
    index_name : str, optional
        The name of the index, if it has one.

    Raises
    ------
    KeyError
        From ``frame[name]``, if there is no such column.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> names = cuzarr.sparse.Column("string-array", np.array(["cell1", "cell2"]))
    >>> frame = cuzarr.sparse.Frame(names, {"size": cuzarr.sparse.Column("array", np.array([3.0, 4.0]))})
    >>> list(frame), frame["size"].values
    (['size'], array([3., 4.]))
    """

    index: Column
    columns: dict[str, Column]
    index_name: str | None = None

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def to_pandas(self) -> pandas.DataFrame:
        """This frame as a pandas frame, in the form in which anndata reads it. Data on a GPU are copied to the host.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        LibraryMissingError
            pandas is not installed.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> names = cuzarr.sparse.Column("string-array", np.array(["cell1", "cell2"]))
        >>> frame = cuzarr.sparse.Frame(names, {"size": cuzarr.sparse.Column("array", np.array([3.0, 4.0]))})
        >>> frame.to_pandas().loc["cell2", "size"]  # doctest: +SKIP
        np.float64(4.0)
        """
        pandas = _pandas()
        values = {name: column.to_pandas() for name, column in self.columns.items()}
        index = pandas.Index(self.index.to_pandas(), name=self.index_name)
        return pandas.DataFrame(values, index=index, columns=list(self.columns) or None)

    def __repr__(self) -> str:
        return f"<frame of {len(self.index)} rows with columns {', '.join(self.columns) or 'none'}>"


def read_column(
    frame: Group | SupportsStorePath | StoreLike, name: str, rows: Selection = None, *, device: str | None = None
) -> Column:
    """Read one column of a stored data frame: ``read_column(group["obs"], "cell_type")``.

    It reads the encodings ``array``, ``string-array`` and ``categorical`` of version 0.2.0, and ``nullable-integer``,
    ``nullable-boolean`` and ``nullable-string-array`` of version 0.1.0.

    Parameters
    ----------
    frame : Group or StoreLike
        The group of the frame, or its path.
    name : str
        The column.
    rows : int, slice, list of int, array of int or bool, optional
        Rows; by default all.
    device : str, optional
        The device of numbers and codes; by default the group's device. Text and labels are on the host.

    Returns
    -------
    Column
        The column.

    Raises
    ------
    ArrayNotFoundError
        There is no such column.
    UnsupportedFeatureError
        The column has another encoding.
    EncodingValidationError
        The column is damaged: a code is out of bounds, or arrays have different lengths.
    SelectionInvalidError, BoundsCheckError
        ``rows`` do not fit the frame.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> obs = cuzarr.create_group({})
    >>> attributes = {"encoding-type": "array", "encoding-version": "0.2.0"}
    >>> _ = obs.create_array("size", data=np.array([3.0, 4.0, 5.0]), attributes=attributes)
    >>> cuzarr.sparse.read_column(obs, "size", [2, 0]).values
    array([5., 3.])
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name is {name!r}, expected a column's name")
    return _read(group_of(frame), [name], rows, device)[name]


def read_frame(
    frame: Group | SupportsStorePath | StoreLike,
    names: Iterable[str] | None = None,
    rows: Selection = None,
    *,
    device: str | None = None,
) -> Frame:
    """Read a stored data frame: anndata's ``obs`` or ``var``. Numbers and codes of all columns are read together.

    Parameters
    ----------
    frame : Group or StoreLike
        The group of the frame, or its path.
    names : iterable of str, optional
        Columns; by default all.
    rows : int, slice, list of int, array of int or bool, optional
        Rows; by default all.
    device : str, optional
        The device of numbers and codes; by default the group's device. Text and labels are on the host.

    Returns
    -------
    Frame
        The columns, and the names of the rows.

    Raises
    ------
    ArrayNotFoundError
        There is no such column.
    UnsupportedFeatureError
        The group is not a ``dataframe`` of version 0.2.0, or a column has an encoding that :func:`read_column` does not read.
    EncodingValidationError
        The frame is damaged: columns have different lengths, or a code is out of bounds.
    SelectionInvalidError, BoundsCheckError
        ``rows`` do not fit the frame.

    Examples
    --------
    >>> import cuzarr, numpy as np
    >>> attributes = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "column-order": ["size"], "_index": "_index"}
    >>> obs = cuzarr.create_group({}, attributes=attributes)
    >>> attributes = {"encoding-type": "array", "encoding-version": "0.2.0"}
    >>> for name, values in {"_index": [7, 8, 9], "size": [3.0, 4.0, 5.0]}.items():
    ...     _ = obs.create_array(name, data=np.array(values), attributes=attributes)
    >>> frame = cuzarr.sparse.read_frame(obs, rows=slice(1, None))
    >>> frame.index.values, frame["size"].values
    (array([8, 9]), array([4., 5.]))
    """
    group = group_of(frame)
    encoding_of(group, _FRAME)
    order, index = group.attrs.get("column-order"), group.attrs.get("_index")
    if not isinstance(order, list) or not isinstance(index, str) or not all(isinstance(name, str) for name in order):
        raise broken(group, f"column-order is {order!r} and _index {index!r}, expected a list of names and a name")
    wanted = order if names is None else names_of(names)
    found = _read(group, list(dict.fromkeys([index, *wanted])), rows, device)
    return Frame(found[index], {name: found[name] for name in wanted}, None if index == "_index" else index)


def names_of(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise ArgumentTypeError(f"names is {names!r}, expected a list of names", hint=f"pass [{names!r}]")
    return list(names)


# ------------------------------------------------------------------------------------------------------------ reading


@dataclass(frozen=True)
class _Stored:
    """The stored arrays of one column of a data frame, opened but not read.

    Attributes
    ----------
    node : Array or Group
        The node with the attributes of the encoding.
    values : Array
        The values or codes.
    mask : Array, optional
        The mask of missing values.
    categories : _Stored, optional
        The labels that codes stand for.
    """

    node: Array | Group
    encoding: Any
    values: Array
    mask: Array | None = None
    categories: _Stored | None = None

    @property
    def arrays(self) -> list[Array]:
        """The column's arrays with one element for each row: the values or codes, and the mask if there is one."""
        return [self.values] if self.mask is None else [self.values, self.mask]

    @property
    def is_text(self) -> bool:
        """Whether the values are text, which stays on the host."""
        return self.encoding in ("string-array", "nullable-string-array")

    def opened(self, device: str) -> list[Array]:
        """The arrays in :attr:`arrays`, opened so that text is read to the host, and other elements are read to ``device``."""
        return self.arrays if self.is_text else [array.with_device(device) for array in self.arrays]


class StoredColumns:
    """Columns of a stored data frame, opened and checked. Rows of all columns are read together.

    Parameters
    ----------
    group : Group
        The group of the frame.
    names : list of str
        The columns.

    Attributes
    ----------
    columns : dict of str to _Stored
        The columns.
    length : int
        The number of rows.

    Raises
    ------
    ArrayNotFoundError, UnsupportedFeatureError, EncodingValidationError
    """

    def __init__(self, group: Group, names: list[str]) -> None:
        # Text does not go to a GPU, so arrays are opened for a GPU only after their types are known.
        self.columns = _opened(Group(group.store_path, group.metadata, "cpu"), names)
        self.length = _common_length(group, self.columns.values())

    def read(self, rows: Any, device: str) -> dict[str, Column]:
        """Reads the given rows of all columns, and returns the columns by name. The arrays of all columns, labels included, are read by one
        plan."""
        stored = self.columns
        places = places_of(rows, self.length)
        labels = {name: column.categories for name, column in stored.items() if column.categories is not None}
        reads: list[tuple[Array, Places]] = [(array, places) for column in stored.values() for array in column.opened(device)]
        reads += [(array, range(array.shape[0])) for one in labels.values() for array in one.arrays]
        found = iter(_elements(reads))
        elements = {name: [next(found) for _ in column.arrays] for name, column in stored.items()}
        texts = {name: _labels(one, *(next(found) for _ in one.arrays)) for name, one in labels.items()}
        return {name: _column(column, texts.get(name), *elements[name]) for name, column in stored.items()}


def _read(group: Group, names: list[str], rows: Any, device: str | None) -> dict[str, Column]:
    return StoredColumns(group, names).read(rows, device or group.device)


def _opened(group: Group, names: list[str]) -> dict[str, _Stored]:
    """Opens columns of a data frame, and the arrays in which each column is stored, by two rounds of requests."""
    nodes = group._nodes_at(names)
    parts = {name: _parts_of(node) for name, node in nodes.items()}
    inner = group._nodes_at([f"{name}/{part}" for name, own in parts.items() for part in own])
    return {name: _stored(node, [inner[f"{name}/{part}"] for part in parts[name]]) for name, node in nodes.items()}


def _parts_of(node: Array | Group) -> tuple[str, ...]:
    """The names of the nodes below a column that is a group, such as codes and categories; empty for a column that is an array."""
    if isinstance(node, Array):
        return ()
    return ("codes", "categories") if encoding_of(node, _OF_GROUPS) == "categorical" else ("values", "mask")


def _stored(node: Array | Group, parts: list[Array | Group]) -> _Stored:
    if isinstance(node, Array):
        return _Stored(node, encoding_of(node, _OF_ARRAYS), node)
    kind = encoding_of(node, _OF_GROUPS)
    values, other = parts
    if kind == "categorical":
        return _Stored(node, kind, _array(values), categories=_stored_labels(other))
    return _Stored(node, kind, _array(values), _array(other))


def _stored_labels(node: Array | Group) -> _Stored:
    """Opens the categories of a column, which are themselves stored like a column of numbers or text."""
    parts = list(node._nodes_at(list(_parts_of(node))).values()) if isinstance(node, Group) else []
    stored = _stored(node, parts)
    if stored.categories is not None:
        raise broken(node, "the categories are a categorical column")
    _common_length(node, [stored])
    return stored


def _array(node: Array | Group) -> Array:
    if not isinstance(node, Array):
        raise broken(node, "this is a group, expected an array")
    return node


def _common_length(node: Array | Group, columns: Iterable[_Stored]) -> int:
    """Checks that the arrays of all columns have one length, and returns this number of rows.

    Raises
    ------
    EncodingValidationError
        The types or lengths of arrays contradict their encoding.
    """
    extents = {}
    for column in columns:
        for array in column.arrays:
            if array.ndim != 1:
                raise broken(array, f"the shape is {array.shape}, expected one dimension")
            extents[array.name] = array.shape[0]
        _check_types(column)
    if len(set(extents.values())) > 1:
        told = ", ".join(f"{name} {extent}" for name, extent in extents.items())
        raise broken(node, f"arrays have different lengths: {told}")
    return next(iter(extents.values()), 0)


_KINDS = {"categorical": "iu", "nullable-integer": "iu", "nullable-boolean": "b"}


def _check_types(column: _Stored) -> None:
    expected = _KINDS.get(column.encoding)
    if expected is not None and column.values.dtype.kind not in expected:
        raise broken(column.values, f"elements are of {column.values.dtype}, which is none of a {column.encoding} column")
    if column.mask is not None and column.mask.dtype != np.bool_:
        raise broken(column.mask, f"elements are of {column.mask.dtype}, expected bool")


def _elements(reads: list[tuple[Array, Places]]) -> list[Any]:
    """Reads several one-dimensional arrays, each at the indices that are given for it. Elements of fixed size are read by one plan, and
    text by some threads."""
    is_text = [array.metadata.data_type.is_variable for array, _ in reads]
    fixed = [(array, single_ranges(places)) for (array, places), text in zip(reads, is_text, strict=True) if not text]
    texts = [read for read, text in zip(reads, is_text, strict=True) if text]
    numbers = iter(read_ranges([(array, ranges.starts, ranges.lengths, None) for array, ranges in fixed]))
    with ThreadPoolExecutor(_TEXTS_AT_ONCE, thread_name_prefix="cuzarr-text") as pool:
        asked = iter([pool.submit(copy_context().run, _text, array, places) for array, places in texts])
    return [next(asked).result() if text else next(numbers) for text in is_text]


def _text(array: Array, places: Places) -> Any:
    return array.oindex[slice(places.start, places.stop, places.step) if isinstance(places, range) else places]


def _column(stored: _Stored, categories: np.ndarray[Any, Any] | None, values: Any, mask: Any = None) -> Column:
    attributes = stored.node.attrs
    if categories is None:
        return Column(stored.encoding, values, mask, na_value="NaN" if attributes.get("na-value") == "NaN" else "NA")
    if values.size:
        extremes = [int(asnumpy(extreme)) for extreme in (values.min(), values.max())]
        if wrong := [code for code in extremes if not -1 <= code < len(categories)]:
            raise broken(stored.values, f"a code is {wrong[0]}, expected one from -1 to {len(categories) - 1}")
    return Column(stored.encoding, values, None, categories, attributes.get("ordered") is True)


def _labels(stored: _Stored, values: Any, mask: Any = None) -> np.ndarray[Any, Any]:
    if mask is not None and np.asarray(mask).any():
        raise broken(stored.node, "a category is missing")
    labels = np.asarray(values)
    if labels.dtype.kind in "fc" and np.isnan(labels).any():
        raise broken(stored.node, "a category is NaN, which stands for a missing value")
    if len(set(labels.tolist())) < len(labels):
        raise broken(stored.node, "a category occurs twice")
    return labels


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise LibraryMissingError("pandas is not installed", hint="pip install pandas") from error

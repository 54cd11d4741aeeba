"""Sparse matrices and columns of data frames in anndata's format. Each read is what a loop over the stored arrays gives; matrices and frames that
anndata writes are what anndata and SciPy read."""

import dataclasses
import itertools
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from stored_cells import ARRAY, TEXT, put, put_group, rows_of, stored_matrix, text, write

import cuzarr
from cuzarr import sparse
from cuzarr.errors import (
    ArgumentTypeError,
    ArrayNotFoundError,
    BoundsCheckError,
    ChunkCorruptError,
    ContainsGroupError,
    CuzarrError,
    DataTypeValidationError,
    DTypeMismatchError,
    EncodingValidationError,
    InvalidArgumentError,
    MemorySpaceError,
    NegativeStepError,
    OutOfRangeError,
    SelectionInvalidError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from cuzarr.sparse import _dataset, _elements, _places

host = cuzarr.xp.asnumpy


def library(name):
    return pytest.importorskip(name, reason=f"skipped: {name} is not installed")


# ------------------------------------------------------------------------------------------------------------- truth


def columns_of(data, indices, indptr, columns):
    """The elements of some columns in the order in which they are stored; once for each place of their column."""
    kept, places, pointer = [], [], [0]
    for low, high in zip(indptr, indptr[1:]):
        for element, index in zip(data[low:high], indices[low:high]):
            for place in np.flatnonzero(np.asarray(columns) == index):
                kept.append(element)
                places.append(place)
        pointer.append(len(kept))
    return np.array(kept, data.dtype), np.array(places, "i4"), np.array(pointer, "i4")


def check(matrix, expected):
    for got, wanted in zip((matrix.data, matrix.indices, matrix.indptr), expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(host(got), wanted)


def some_places(rng, extent):
    """A selection, and the places that it chooses."""
    kind = rng.integers(6)
    if kind == 0 or not extent:
        return None, list(range(extent))
    if kind == 1:
        selection = slice(*np.sort(rng.integers(-extent, extent + 1, 2)).tolist(), int(rng.integers(1, 4)))
        return selection, list(range(extent))[selection]
    if kind == 2:
        mask = rng.random(extent) < 0.4
        return (mask if rng.random() < 0.5 else mask.tolist()), np.flatnonzero(mask).tolist()
    if kind == 3:
        place = int(rng.integers(-extent, extent))
        return place, [place % extent]
    numbers = rng.integers(-extent, extent, rng.integers(2 * extent + 1))
    if kind == 4:
        numbers = rng.permutation(extent)[: rng.integers(extent + 1)]
    return (numbers if rng.random() < 0.5 else numbers.tolist()), (numbers % extent).tolist()


INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">i8"]
ELEMENTS = ["f4", "f8", "i4", "u1", "bool", "c8", ">f8", "i8"]


def random_stored(rng, store):
    form, zarr_format = ("csr", "csc")[rng.integers(2)], int(rng.integers(2, 4))
    major, minor = (int(rng.integers(0, high)) for high in (40, 25))
    arrays = stored_matrix(rng, major, minor, str(rng.choice(ELEMENTS)))
    written = {
        "data": arrays["data"],
        "indices": arrays["indices"].astype(str(rng.choice(INTEGERS))),
        "indptr": arrays["indptr"].astype(str(rng.choice(INTEGERS[4:]))),
    }
    chunks = int(rng.integers(1, 30))
    shards = chunks * int(rng.integers(1, 5)) if zarr_format == 3 and rng.random() < 0.4 else None
    shape = (major, minor) if form == "csr" else (minor, major)
    return write(store, form, shape, written, zarr_format, chunks, shards), form, arrays, (major, minor)


def native(arrays):
    return arrays | {"data": arrays["data"].astype(arrays["data"].dtype.newbyteorder("="))}


# --------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("seed", range(40))
def test_rows_are_what_a_loop_over_the_stored_arrays_gives(seed, tmp_path, device):
    rng = np.random.default_rng(seed)
    group, form, arrays, (major, minor) = random_stored(rng, tmp_path / "m" if seed % 2 else {})
    dataset = sparse.sparse_dataset(group, device=device)
    for _ in range(6):
        selection, places = some_places(rng, major)
        matrix = sparse.read(dataset, *((selection,) if form == "csr" else (None, selection)))
        check(matrix, rows_of(native(arrays), places))
        assert matrix.shape == ((len(places), minor) if form == "csr" else (minor, len(places)))
        assert (matrix.format, matrix.nnz, matrix.dtype) == (form, len(host(matrix.data)), arrays["data"].dtype.newbyteorder("="))


@pytest.mark.parametrize("block", [1, 3, 50, 1 << 20])
@pytest.mark.parametrize("seed", range(12))
def test_columns_are_chosen_in_the_order_in_which_elements_are_stored(seed, block, device, monkeypatch):
    monkeypatch.setattr(_dataset, "_LARGEST_BLOCK", block)
    rng = np.random.default_rng(100 + seed)
    group, form, arrays, (major, minor) = random_stored(rng, {})
    dataset = sparse.sparse_dataset(group, device=device)
    rows, row_places = some_places(rng, major)
    columns, column_places = some_places(rng, minor)
    matrix = sparse.read(dataset, *((rows, columns) if form == "csr" else (columns, rows)))
    check(matrix, columns_of(*rows_of(native(arrays), row_places), column_places))
    shape = len(row_places), len(column_places)
    assert matrix.shape == (shape if form == "csr" else shape[::-1])


def test_results_are_on_the_device(device):
    group = write({}, "csr", (2, 3), {"data": np.ones(3, "f4"), "indices": np.array([0, 2, 1]), "indptr": np.array([0, 1, 3])})
    for columns in (None, [2, 1, 2], []):
        matrix = sparse.read(group, columns=columns, device=device)
        for array in (matrix.data, matrix.indices, matrix.indptr):
            assert cuzarr._memory.foreign.device_of(array).partition(":")[0] == device.partition(":")[0]
        assert matrix.device.partition(":")[0] == device.partition(":")[0]


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (1, 1), (5, 5)])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_matrices_without_elements(form, shape, device):
    major = shape[form == "csc"]
    arrays = {"data": np.empty(0, "f8"), "indices": np.empty(0, "i4"), "indptr": np.zeros(major + 1, "i4")}
    dataset = sparse.sparse_dataset(write({}, form, shape, arrays), device=device)
    for rows, columns in [(None, None), ([], None), (None, []), (slice(0, 0), slice(1, 0)), (np.zeros(shape[0], bool), None)]:
        matrix = sparse.read(dataset, rows, columns)
        assert matrix.nnz == 0 and matrix.dtype == np.float64 and not host(matrix.indptr).any() and matrix.has_sorted_indices
        assert matrix.shape == tuple(extent if chosen is None else 0 for chosen, extent in zip((rows, columns), shape))


def test_elements_are_converted_on_the_way(device):
    arrays = {"data": np.array([1, 300, 7], "i4"), "indices": np.array([0, 2, 1]), "indptr": np.array([0, 1, 3])}
    dataset = sparse.sparse_dataset(write({}, "csr", (2, 3), arrays), device=device)
    for columns in (None, [1, 2]):
        assert sparse.read(dataset, columns=columns, dtype="f4").dtype == np.float32
    np.testing.assert_array_equal(host(sparse.read(dataset, dtype=np.float64).data), [1.0, 300.0, 7.0])
    with pytest.raises(DTypeMismatchError):
        sparse.read(dataset, dtype="M8[s]")


def test_chunks_are_decoded_once():
    rng = np.random.default_rng(5)
    arrays = stored_matrix(rng, 400, 30)
    dataset = sparse.sparse_dataset(write({}, "csr", (400, 30), arrays, chunks=50))
    with cuzarr.config.set({"accelerator": "none"}):
        sparse.read(dataset, rng.permutation(400))
        # One plan reads both arrays, and the report is that of the whole.
        for array in (dataset._data, dataset._indices):
            decoded = next(stage for stage in array.last_report()["stages"] if stage["stage"] == "decode")
            assert decoded["count"] == dataset._data.nchunks + dataset._indices.nchunks


def test_a_scan_reads_whole_chunks_block_by_block(monkeypatch):
    monkeypatch.setattr(_dataset, "_LARGEST_BLOCK", 25)
    asked = []
    read_ranges = _elements.read_ranges
    monkeypatch.setattr(_elements, "read_ranges", lambda reads: asked.append(reads) or read_ranges(reads))
    arrays = stored_matrix(np.random.default_rng(6), 40, 30)
    count = len(arrays["data"])
    dataset = sparse.sparse_dataset(write({}, "csr", (40, 30), arrays, chunks=7))
    sparse.read(dataset, columns=[3])
    assert len(asked) == dataset.explain(columns=[3]).to_dict()["blocks"] == -(-count // 21) > 3
    for number, reads in enumerate(asked):
        assert [array.basename for array, *_ in reads] == ["data", "indices"]
        for _, starts, lengths, _ in reads:
            assert (starts.tolist(), lengths.tolist()) == ([21 * number], [min(21, count - 21 * number)])


def test_ranges_of_neighbours_are_joined():
    pointer = np.array([0, 3, 3, 8, 10, 10, 11])
    for rows, starts, lengths in [
        (range(6), [0], [11]),
        (range(1, 4), [3], [7]),
        ([0, 2, 3], [0], [10]),
        ([3, 2], [8, 3], [2, 5]),
        ([5, 1, 4, 0], [10, 0], [1, 3]),
        ([2, 2], [3, 3], [5, 5]),
        (range(0, 6, 2), [0], [8]),
        ([], [], []),
        (range(0), [], []),
        ([1, 4], [], []),
    ]:
        ranges = _places.ranges_of(pointer, rows)
        assert (ranges.starts.tolist(), ranges.lengths.tolist()) == (starts, lengths)
        for first in range(ranges.count):
            for stop in range(first, ranges.count + 1):
                whole = np.concatenate([np.arange(low, low + length) for low, length in zip(starts, lengths)])
                got = [np.arange(low, low + length) for low, length in zip(*ranges.part(first, stop))]
                np.testing.assert_array_equal(np.concatenate([np.empty(0, int), *got]), whole[first:stop])


@pytest.mark.parametrize(
    ("selection", "error"),
    [
        (9, BoundsCheckError),
        ([0, -10], BoundsCheckError),
        (slice(None, None, -1), NegativeStepError),
        (np.ones(8, bool), SelectionInvalidError),
        ([0.5], SelectionInvalidError),
        ("a", SelectionInvalidError),
        ([[0, 1]], SelectionInvalidError),
        ((0, 1), SelectionInvalidError),
    ],
)
def test_wrong_selections_are_named(selection, error):
    arrays = stored_matrix(np.random.default_rng(0), 9, 9)
    group = write({}, "csr", (9, 9), arrays)
    with pytest.raises(error):
        sparse.read(group, selection)
    with pytest.raises(error):
        sparse.read(group, None, selection)


# ----------------------------------------------------------------------------------------------------- large matrices


def virtual(store, form, shape, count, indptr, dtype="f4", zarr_format=3):
    """A matrix whose elements are all fill values, without a stored chunk."""
    attributes = {"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": list(shape)}
    group = cuzarr.create_group(store, zarr_format=zarr_format, attributes=attributes)
    group.create_array("data", shape=(count,), chunks=(1 << 20,), dtype=dtype, fill_value=2)
    group.create_array("indices", shape=(count,), chunks=(1 << 20,), dtype="i4", fill_value=3)
    group.create_array("indptr", data=np.asarray(indptr, "i8"))
    return group


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_rows_of_a_matrix_of_many_elements(zarr_format, device):
    count = 5_000_000_000
    indptr = np.concatenate((np.arange(0, count, 1_000_003), [count]))
    shape = len(indptr) - 1, 50
    dataset = sparse.sparse_dataset(virtual({}, "csr", shape, count, indptr, zarr_format=zarr_format), device=device)
    matrix = sparse.read(dataset, [-1, 0])
    assert matrix.nnz == np.diff(indptr)[[-1, 0]].sum() and matrix.indptr.dtype == np.int32
    assert host(matrix.indptr).tolist() == [0, *np.cumsum(np.diff(indptr)[[-1, 0]])]
    assert (host(matrix.data[-3:]) == 2).all() and (host(matrix.indices[:3]) == 3).all()


def test_columns_are_read_block_by_block_within_the_memory_limit():
    count = 40_000_000
    dataset = sparse.sparse_dataset(virtual({}, "csr", (3, 9), count, [0, 5, count - 1, count], "i1"))
    with cuzarr.config.set({"memory_limit": "64 MiB"}):
        assert dataset.explain(columns=[1]).to_dict()["blocks"] == 39
        matrix = sparse.read(dataset, columns=[1, 2])
    assert matrix.nnz == 0 and host(matrix.indptr).tolist() == [0, 0, 0, 0]


def test_indices_are_wide_where_the_matrix_is_wide(device):
    arrays = {"data": np.ones(3), "indices": np.array([2**40 - 1, 5, 2**33]), "indptr": np.array([0, 1, 3], "i4")}
    matrix = sparse.read(write({}, "csr", (2, 2**40), arrays), device=device)
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int64
    assert host(matrix.indices).tolist() == [2**40 - 1, 5, 2**33]


# ------------------------------------------------------------------------------------------------------------- damages


def whole():
    return {
        "data": np.arange(1.0, 7.0),
        "indices": np.array([0, 4, 1, 2, 3, 0], "i8"),
        "indptr": np.array([0, 2, 2, 5, 6], "i8"),
    }


def changed(name, place, value, dtype=None):
    arrays = whole()
    arrays[name] = arrays[name].astype(dtype or arrays[name].dtype)
    arrays[name][place] = value
    return arrays


DAMAGES = {
    "a pointer that descends": (changed("indptr", 2, 1), "descends from 2 to 1 at 2"),
    "a pointer that descends far": (changed("indptr", 3, 0), "descends from 2 to 0 at 3"),
    "a negative pointer": (changed("indptr", 2, -2), "descends from 2 to -2 at 2"),
    "a pointer past the end": (changed("indptr", 4, 7), "points to 7, past the end of 6"),
    "a pointer past any end": (changed("indptr", 4, 2**64 - 1, "u8"), "points to 18446744073709551615, past the end of 6"),
    "a pointer that begins late": (changed("indptr", 0, 1), "begins with 1, expected 0"),
    "a pointer that begins early": (changed("indptr", 0, -1), "begins with -1, expected 0"),
    "a short pointer": (whole() | {"indptr": np.array([0, 2, 6])}, "the length is 3, expected 5"),
    "a long pointer": (whole() | {"indptr": np.array([0, 2, 2, 5, 6, 6])}, "the length is 6, expected 5"),
    "no pointer": (whole() | {"indptr": np.empty(0, "i8")}, "the length is 0, expected 5"),
    "a pointer of floats": (whole() | {"indptr": np.array([0, 2, 2, 5, 6], "f8")}, "elements are of float64, expected integers"),
    "a pointer of two dimensions": (whole() | {"indptr": np.zeros((5, 1), "i8")}, "expected one dimension"),
    "an index out of bounds": (changed("indices", 3, 5), "an index is 5, expected one from 0 to 4"),
    "a negative index": (changed("indices", 3, -1), "an index is -1, expected one from 0 to 4"),
    "a negative index of few bits": (changed("indices", 3, -1, "i1"), "an index is -1, expected one from 0 to 4"),
    "an index that has more bits": (changed("indices", 3, 2**32 + 1), "an index is 4294967297, expected one from 0 to 4"),
    "an index without a sign": (changed("indices", 3, 2**64 - 1, "u8"), "an index is 18446744073709551615, expected"),
    "indices of floats": (changed("indices", 3, 2, "f4"), "elements are of float32, expected integers"),
    "fewer indices": (whole() | {"indices": np.zeros(5, "i4")}, "there are 5 indices for 6 elements of data"),
    "more indices": (whole() | {"indices": np.zeros(7, "i4")}, "there are 7 indices for 6 elements of data"),
    "dates": (whole() | {"data": np.arange(6).astype("M8[s]")}, "expected numbers"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damaged_matrices_are_errors_by_name(what, device):
    arrays, message = DAMAGES[what]
    chunks = arrays["indptr"].shape if arrays["indptr"].ndim > 1 else None
    group = write({}, "csr", (4, 5), {name: one for name, one in arrays.items() if name != "indptr"})
    group.create_array("indptr", data=arrays["indptr"], chunks=chunks or (7,))
    for selection in ((), ([2, 0],), (None, [1, 2]), (2, slice(0, 3))):
        with pytest.raises(EncodingValidationError) as caught:
            sparse.read(group, *selection, device=device)
        assert message in str(caught.value) and str(caught.value).startswith("array '/")
    with pytest.raises(ValueError, match="array '/"):
        sparse.sparse_dataset(group, device=device)[2, 2]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "int4"])
def test_matrices_of_small_numbers_are_not_called_damaged(name):
    group = write({}, "csr", (4, 5), whole() | {"data": np.ones(6, getattr(pytest.importorskip("ml_dtypes"), name))})
    with pytest.raises(UnsupportedError, match=f"array '/data': elements are of {name}"):
        sparse.read(group)


def test_rows_beside_a_wrong_index_are_read():
    group = write({}, "csr", (4, 5), changed("indices", 3, 5))
    assert host(sparse.read(group, [0, 3]).indices).tolist() == [0, 4, 0]


@pytest.mark.parametrize("shape", [None, [4], [4, 5, 6], [4, -5], [4, 2.5], "4x5", [True, 5], [4, 2**64]])
def test_a_wrong_shape_is_an_error_by_name(shape):
    with pytest.raises(EncodingValidationError, match="'shape'"):
        sparse.sparse_dataset(write({}, "csr", (4, 5), whole(), shape=shape))


def test_other_groups_are_refused_by_name():
    with pytest.raises(
        UnsupportedFeatureError, match=r"group '/'.*csr_matrix 0.2.0, expected one of csr_matrix 0.1.0, csc_matrix"
    ):
        sparse.read(write({}, "csr", (4, 5), whole(), **{"encoding-version": "0.2.0"}))
    with pytest.raises(UnsupportedFeatureError, match="coo_matrix"):
        sparse.read(write({}, "coo", (4, 5), whole()))
    with pytest.raises(UnsupportedFeatureError, match="no attribute 'encoding-type'"):
        sparse.sparse_dataset(cuzarr.create_group({}, attributes={"h5sparse_format": "csr"}))
    with pytest.raises(ArgumentTypeError, match="holds a csc_matrix"):
        sparse.CSRDataset(write({}, "csc", (5, 4), whole()))
    for name in ("data", "indices", "indptr"):
        group = write({}, "csr", (4, 5), whole())
        del group[name]
        with pytest.raises(ArrayNotFoundError, match=name):
            sparse.read(group)
    group.create_group("indptr")
    with pytest.raises(ContainsGroupError):
        sparse.read(group)


def test_a_damaged_chunk_is_an_error_by_name(device):
    store = {}
    dataset = sparse.sparse_dataset(write(store, "csr", (4, 5), whole(), chunks=2), device=device)
    key = next(key for key in store if key.startswith("data/c/1"))
    store[key] = b"damaged"
    assert sparse.read(dataset, 0).nnz == 2
    with pytest.raises(ChunkCorruptError, match="data"):
        sparse.read(dataset, [0, 2])


# ------------------------------------------------------------------------------------------------------------ data sets


def test_a_data_set_reads_its_pointer_once():
    store = {}
    dataset = sparse.sparse_dataset(write(store, "csr", (4, 5), whole()))
    assert sparse.read(dataset, 2).nnz == 3
    for key in [key for key in store if key.startswith("indptr/c")]:
        store[key] = b"damaged"
    assert sparse.read(dataset, 3).nnz == 1
    assert sparse.read(dataset.with_device("cpu"), 3).nnz == 1
    with pytest.raises(ChunkCorruptError, match="indptr"):
        sparse.read(pickle.loads(pickle.dumps(dataset)), 3)


def test_threads_share_a_data_set(tmp_path):
    rng = np.random.default_rng(9)
    arrays = stored_matrix(rng, 300, 40)
    dataset = sparse.sparse_dataset(write(tmp_path / "m", "csr", (300, 40), arrays, chunks=40))
    chosen = [rng.integers(0, 300, 100) for _ in range(24)]
    with ThreadPoolExecutor(8) as pool:
        for rows, matrix in zip(chosen, pool.map(lambda rows: sparse.read(dataset, rows), chosen), strict=True):
            check(matrix, rows_of(arrays, rows))


def test_a_data_set_tells_what_it_is(tmp_path, device):
    group = write(tmp_path / "m.zarr", "csc", (5, 4), whole())
    for given in (group, tmp_path / "m.zarr", str(tmp_path / "m.zarr")):
        dataset = sparse.sparse_dataset(given, device=device)
        assert type(dataset) is sparse.CSCDataset and dataset.device == device
        assert (dataset.shape, dataset.dtype, dataset.nnz, dataset.format, dataset.backend) == (
            (5, 4),
            np.float64,
            6,
            "csc",
            "zarr",
        )
        assert repr(dataset) == "CSCDataset: backend zarr, shape (5, 4), data_dtype float64"
        assert dataset.group.path == group.path
        again = pickle.loads(pickle.dumps(dataset))
        assert type(again) is sparse.CSCDataset and again.device == device and again.shape == (5, 4)
        assert b"cuzarr.sparse" in pickle.dumps(dataset) and b"_dataset" not in pickle.dumps(dataset)


def test_a_single_element_is_a_number(device):
    arrays = {"data": np.array([3, 4, 5], "i2"), "indices": np.array([1, 0, 1]), "indptr": np.array([0, 3, 3])}
    dataset = sparse.sparse_dataset(write({}, "csr", (2, 2), arrays), device=device)
    for place, expected in {(0, 1): 8, (0, 0): 4, (1, 1): 0, (-2, -1): 8}.items():
        element = dataset[place]
        assert element.dtype == np.int16 and element.shape == () and int(element) == expected
    for place in ((2, 0), (0, -3)):
        with pytest.raises(BoundsCheckError):
            dataset[place]
    with pytest.raises(SelectionInvalidError):
        dataset[0, 0, 0]


def test_an_explanation_says_what_is_read_and_reads_no_elements():
    store = {}
    dataset = sparse.sparse_dataset(write(store, "csr", (4, 5), whole()))
    for key in [key for key in store if key.startswith(("data/c", "indices/c"))]:
        store[key] = b"damaged"
    rows = dataset.explain([0, 3])
    assert rows.to_dict() == {
        "format": "csr", "shape": [4, 5], "result": [2, 5], "device": "cpu", "ranges": 2, "elements": 3, "stored_elements": 6,
        "scanned": False, "blocks": 1,
    }  # fmt: skip
    assert "2 of data and of indices: 3 of 6 elements" in str(rows) and "scanned" not in str(rows)
    columns = dataset.explain(columns=[0, 3])
    assert columns.to_dict()["scanned"] and columns.to_dict()["elements"] == 6
    assert "columns    all elements of these rows are scanned once, in 1 block, and chosen on cpu" in str(columns)
    group = write({}, "csc", (5, 4), whole())
    assert "rows       all elements of these columns are scanned" in str(sparse.sparse_dataset(group).explain([1]))


# ------------------------------------------------------------------------------------------------- matrices of libraries


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_sorted", [False, True])
def test_matrices_of_scipy(seed, is_sorted, device):
    scipy = library("scipy.sparse")
    rng = np.random.default_rng(200 + seed)
    form = ("csr", "csc")[seed % 2]
    arrays = stored_matrix(rng, 60, 30, rng.choice(["f4", "f8", "i8", "bool", "c16"]), is_sorted)
    shape = (60, 30) if form == "csr" else (30, 60)
    made = scipy.csr_matrix if form == "csr" else scipy.csc_matrix
    truth = made((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
    matrix = sparse.read(write({}, form, shape, arrays), device=device)
    result = matrix.to_scipy()
    assert type(result) is made and result.shape == shape and result.dtype == truth.dtype
    assert result.has_sorted_indices == truth.has_sorted_indices == matrix.has_sorted_indices
    assert result.indices.dtype == result.indptr.dtype == np.int32
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(result, name), getattr(truth, name))
    for _ in range(10):
        (rows, row_places), (columns, column_places) = (some_places(rng, extent) for extent in shape)
        got = sparse.read(write({}, form, shape, arrays), rows, columns, device=device)
        expected = truth[row_places][:, column_places]
        np.testing.assert_array_equal(got.to_scipy().toarray(), expected.toarray())
        again = made(tuple(map(host, (got.data, got.indices, got.indptr))), shape=got.shape)
        assert got.has_sorted_indices == again.has_sorted_indices


def test_elements_that_scipy_does_not_have():
    library("scipy.sparse")
    matrix = sparse.read(write({}, "csr", (4, 5), whole()), dtype="f2")
    with pytest.raises(DTypeMismatchError, match="float16"):
        matrix.to_scipy()
    damaged = whole() | {"data": whole()["data"].astype("f2"), "indices": np.full(6, 99)}
    dataset = sparse.sparse_dataset(write({}, "csr", (4, 5), damaged))
    for call in (dataset.to_memory, lambda: dataset[1:]):  # before anything is read
        with pytest.raises(DTypeMismatchError, match="float16"):
            call()


def test_a_matrix_on_the_host_shares_its_memory_with_scipys():
    library("scipy.sparse")
    matrix = sparse.read(write({}, "csr", (4, 5), whole()))
    made = matrix.to_scipy()
    assert all(np.shares_memory(getattr(made, name), getattr(matrix, name)) for name in ("data", "indices", "indptr"))


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_tensors_of_pytorch(form):
    torch = library("torch")
    arrays = stored_matrix(np.random.default_rng(1), 20, 9, is_sorted=True)
    shape = (20, 9) if form == "csr" else (9, 20)
    matrix = sparse.read(write({}, form, shape, arrays))
    tensor = matrix.to_torch()
    assert tensor.layout == (torch.sparse_csr if form == "csr" else torch.sparse_csc)
    assert tuple(tensor.shape) == shape and tensor.dtype == torch.float32
    pointer, indices = (
        (tensor.crow_indices(), tensor.col_indices()) if form == "csr" else (tensor.ccol_indices(), tensor.row_indices())
    )
    check(sparse.Matrix(form, shape, tensor.values().numpy(), indices.numpy(), pointer.numpy()), rows_of(arrays, range(20)))
    tensor.values()[0] = 77
    assert matrix.data[0] == 77
    for dtype in ("bool", "uint8", "int16", "int64", "float16", "bfloat16", "float64", "complex64"):
        converted = sparse.read(write({}, form, shape, arrays), dtype=dtype).to_torch()
        assert str(converted.dtype) == f"torch.{dtype}"
        torch.testing.assert_close(converted.values(), torch.from_numpy(arrays["data"]).to(converted.dtype), rtol=0.01, atol=1)


def test_what_cupys_matrices_cannot_hold_is_an_error_by_name():
    many = 2**31
    one = np.zeros(1, "i4")
    integers = sparse.Matrix("csr", (1, 3), np.array([1]), one, np.array([0, 1], "i4"))
    with pytest.raises(DTypeMismatchError, match="int64\nhint: read with dtype='float32'"):
        integers.to_cupy()
    long = sparse.Matrix("csr", (1, 3), np.broadcast_to(np.float32(1), (many,)), np.broadcast_to(one[0], (many,)), one)
    wide = sparse.Matrix("csr", (1, many), np.ones(1, "f4"), one, one)
    for matrix in (long, wide):
        with pytest.raises(OutOfRangeError, match="to_torch"):
            matrix.to_cupy()
    for dtype in ("?", "f4", "f8", "c8", "c16"):
        with pytest.raises(MemorySpaceError, match="device='cuda'"):
            sparse.Matrix("csr", (1, 3), np.ones(1, dtype), one, np.array([0, 1], "i4")).to_cupy()


def test_brackets_give_matrices_of_scipy_on_the_host():
    scipy = library("scipy.sparse")
    dataset = sparse.sparse_dataset(write({}, "csr", (4, 5), whole()))
    truth = scipy.csr_matrix(tuple(whole().values()), shape=(4, 5)).toarray()
    for key in (2, slice(1, 3), [3, 0], ([3, 0], [4, 1]), (slice(None), 1), (), ..., truth[:, 0] > 0):
        got = dataset[key]
        rows, columns = (*(key if isinstance(key, tuple) else (key,)), slice(None), slice(None))[:2]
        np.testing.assert_array_equal(got.toarray(), truth[np.atleast_1d(np.r_[:4][rows])][:, np.atleast_1d(np.r_[:5][columns])])
        assert type(got) is scipy.csr_matrix
    np.testing.assert_array_equal(dataset.to_memory().toarray(), truth)


def test_brackets_give_a_matrix_on_a_device_without_cupy(gpu):
    if gpu.startswith("cuda") and cuzarr._memory.convert.cupy_holds(np.dtype("f4")):
        pytest.skip("skipped: CuPy is installed")
    dataset = sparse.sparse_dataset(write({}, "csr", (4, 5), whole()))
    assert isinstance(dataset[1:3], sparse.Matrix) and isinstance(dataset.to_memory(), sparse.Matrix)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_matrices_of_cupy_share_the_memory_of_the_gpu(form, gpu):
    cupyx, scipy = library("cupyx.scipy.sparse"), library("scipy.sparse")
    arrays = stored_matrix(np.random.default_rng(2), 50, 20)
    shape = (50, 20) if form == "csr" else (20, 50)
    dataset = sparse.sparse_dataset(write({}, form, shape, arrays))
    matrix = sparse.read(dataset)
    for made in (matrix.to_cupy(), dataset.to_memory(), dataset[:]):
        assert type(made) is (cupyx.csr_matrix if form == "csr" else cupyx.csc_matrix) and made.shape == shape
        check(sparse.Matrix(form, shape, made.data, made.indices, made.indptr), rows_of(arrays, range(50)))
        assert made.has_sorted_indices == matrix.has_sorted_indices == matrix.to_scipy().has_sorted_indices
    assert (
        cuzarr._memory.foreign.device_buffer(matrix.to_cupy().data).address
        == cuzarr._memory.foreign.device_buffer(matrix.data).address
    )
    vector = np.arange(shape[1], dtype="f4")
    truth = (scipy.csr_matrix if form == "csr" else scipy.csc_matrix)(
        (arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape
    )
    np.testing.assert_allclose((matrix.to_cupy() @ library("cupy").asarray(vector)).get(), truth @ vector, rtol=1e-4)
    store = {}
    counts = sparse.sparse_dataset(write(store, form, shape, arrays | {"data": arrays["data"].astype("i4")}))
    for key in [key for key in store if key.startswith("data/c")]:
        store[key] = b"damaged"  # nothing is read
    with pytest.raises(DTypeMismatchError, match="dtype='float32'"):
        counts.to_memory()


def test_tensors_of_pytorch_share_the_memory_of_the_gpu(gpu):
    torch = library("torch")
    if not torch.cuda.is_available():
        pytest.skip("skipped: PyTorch finds no GPU")
    arrays = stored_matrix(np.random.default_rng(3), 50, 20, "i4", is_sorted=True)
    matrix = sparse.read(write({}, "csr", (50, 20), arrays))
    tensor = matrix.to_torch()
    assert tensor.layout == torch.sparse_csr and tensor.is_cuda
    assert tensor.values().data_ptr() == cuzarr._memory.foreign.device_buffer(matrix.data).address
    np.testing.assert_array_equal(tensor.values().cpu().numpy(), arrays["data"])


# ------------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_is_written_is_read_again(seed, zarr_format, device, tmp_path):
    rng = np.random.default_rng(300 + seed)
    form = ("csr", "csc")[seed % 2]
    major, minor = ((0, 5), (5, 0), (40, 30), (70, 11))[seed // 2]
    arrays = stored_matrix(rng, major, minor, rng.choice(["f4", "f8", "i8", "u2", "bool", "c16", "f2"]))
    shape = (major, minor) if form == "csr" else (minor, major)
    matrix = sparse.read(write({}, form, shape, arrays), device=device)
    gzip = {"name": "gzip", "configuration": {"level": 1}} if zarr_format == 3 else {"id": "gzip", "level": 1}
    options = {"shards": 40} if zarr_format == 3 else {}
    group = cuzarr.create_group(tmp_path / "cells.zarr", zarr_format=zarr_format)
    stored = sparse.write(group, "layers/counts", matrix, chunks=10, compressors=gzip if seed % 3 else None, **options)
    assert stored.format == form and stored.group.path == "layers/counts" and stored.group.metadata.zarr_format == zarr_format
    assert stored.group["data"].chunks == stored.group["indices"].chunks == (10,)
    again = sparse.read(tmp_path / "cells.zarr/layers/counts")
    assert again.shape == shape and again.dtype == matrix.dtype
    check(again, rows_of(arrays, range(major)))


def test_anndata_reads_what_is_written(device, tmp_path):
    anndata, scipy, zarr = library("anndata"), library("scipy.sparse"), library("zarr")
    for made in (scipy.csr_matrix, scipy.csc_matrix, scipy.csr_array, scipy.csc_array):
        truth = made(scipy.random(30, 20, 0.2, dtype="f4", rng=np.random.default_rng(1)))
        sparse.write(tmp_path / "theirs.zarr", "X", truth, overwrite=True)
        on_device = sparse.read(tmp_path / "theirs.zarr/X", device=device)
        sparse.write(tmp_path / "ours.zarr", "X", on_device, overwrite=True)
        for name in ("theirs", "ours"):
            found = anndata.io.read_elem(zarr.open_group(tmp_path / f"{name}.zarr", mode="r")["X"])
            assert found.format == truth.format and (found != truth).nnz == 0


def test_unused_elements_of_a_scipy_matrix_are_not_written():
    scipy = library("scipy.sparse")
    matrix = scipy.csr_matrix(np.eye(3))
    matrix.data, matrix.indices = np.append(matrix.data, [9, 9]), np.append(matrix.indices, [77, -1])
    stored = sparse.write({}, "X", matrix)
    assert stored.nnz == 3
    np.testing.assert_array_equal(stored[:].toarray(), np.eye(3))


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_tensors_of_pytorch_are_written(form):
    torch = library("torch")
    dense = torch.tensor([[0.0, 1, 0], [2, 0, 3]], requires_grad=True)
    stored = sparse.write({}, "X", dense.to_sparse_csr() if form == "csr" else dense.to_sparse_csc())
    assert stored.format == form and stored.shape == (2, 3)
    np.testing.assert_array_equal(sparse.read(stored).to_torch().to_dense(), dense.detach())


def test_matrices_of_cupy_are_written(gpu):
    cupyx = library("cupyx.scipy.sparse")
    truth = cupyx.random(50, 20, 0.3, format="csr", dtype="f4")
    stored = sparse.write({}, "X", truth)
    assert (stored.with_device("cpu")[:] != truth.get()).nnz == 0


def test_what_is_no_compressed_matrix_is_not_written():
    good = sparse.read(write({}, "csr", (4, 5), whole()))
    group = cuzarr.create_group({})

    def other(**parts):
        return sparse.Matrix(
            "csr",
            parts.get("shape", good.shape),
            *(parts.get(name, getattr(good, name)) for name in ("data", "indices", "indptr")),
        )

    falling = good.indptr[::-1]
    for wrong, message in (
        (other(indptr=good.indptr[:-1]), "indptr: the length is 4, expected 5"),
        (other(indptr=falling), "indptr: it begins with 6, expected 0"),
        (other(indptr=good.indptr + 1), "indptr: it begins with 1"),
        (other(shape=(4, 3)), "indices go from 0 to 4, and the matrix has 3 columns"),
        (other(shape=(4, 0)), "has 0 columns"),
        (other(indices=good.indices - 1), "indices go from -1 to"),
        (other(data=good.data[:-1]), "as many indices as data"),
        (other(data=good.data[:-1], indices=good.indices[:-1]), "past the end of 5 elements"),
        (other(indices=good.indices[:, None]), "one dimension each"),
        (other(indptr=good.indptr[None]), "one dimension each"),
        *((other(shape=shape), "expected two numbers") for shape in (None, 4, (4, 5, 1), (4.0, 5.0), (-4, 5), (4, -5))),
        (sparse.Matrix("coo", good.shape, good.data, good.indices, good.indptr), "format 'coo', expected 'csr' or 'csc'"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            sparse.write(group, "X", wrong)
    for name, dtype in itertools.product(("indices", "indptr"), ("f8", "c16", "bool", "U1", "m8[s]", "O")):
        with pytest.raises(DTypeMismatchError, match=f"{name} has elements of .*, expected integers"):
            sparse.write(group, "X", other(**{name: getattr(good, name).astype("i8").astype(dtype)}))
    for dtype in ("U1", "S1", "O", "M8[s]", "V8", [("a", "i4")]):
        with pytest.raises(DTypeMismatchError, match="data has elements of .*, expected numbers"):
            sparse.write(group, "X", other(data=np.zeros(6, dtype)))
    with pytest.raises(DataTypeValidationError, match="no data type for"):
        sparse.write(group, "X", other(data=good.data.astype(np.longdouble)))
    for name in (5, None):
        with pytest.raises(ArgumentTypeError, match="name is .*, expected a path"):
            sparse.write(group, name, good)
    for wrong, message in (
        (np.eye(3), "ndarray.*\n.*csr_matrix"),
        (sparse.sparse_dataset(write({}, "csr", (4, 5), whole())), "in a store.*\n.*cuzarr.copy"),
        (None, "NoneType"),
    ):
        with pytest.raises(ArgumentTypeError, match=message):
            sparse.write(group, "X", wrong)
    assert not list(group)
    sparse.write(group, "X", good)
    with pytest.raises(ContainsGroupError, match="overwrite=True"):
        sparse.write(group, "X", good)
    assert sparse.write(group, "X", good, overwrite=True).nnz == 6


def test_a_matrix_stays_where_its_replacement_is_refused():
    good = sparse.read(write({}, "csr", (4, 5), whole()))
    group = cuzarr.create_group({})
    sparse.write(group, "X", good)
    strings = sparse.Matrix("csr", good.shape, np.array(list("abcdef")), good.indices, good.indptr)
    for matrix, options in (
        (strings, {}),
        (good, {"chunks": 0}),
        (good, {"chunks": (2, 2)}),
        (good, {"chunks": 7, "shards": 13}),
        (good, {"compressors": "no such codec"}),
        (good, {"compressors": {"name": "zstd", "configuration": {"level": 99}}}),
    ):
        for name in ("X", "Y"):
            with pytest.raises(CuzarrError):
                sparse.write(group, name, matrix, overwrite=True, **options)
    assert list(group) == ["X"]
    np.testing.assert_array_equal(sparse.read(group["X"]).data, good.data)


def test_a_zip_file_that_is_named_is_finished(tmp_path):
    good = sparse.read(write({}, "csr", (4, 5), whole()))
    stored = sparse.write(tmp_path / "cells.zip", "X", good)
    assert list(cuzarr.open_group(tmp_path / "cells.zip", mode="r")) == ["X"]
    with pytest.raises(InvalidArgumentError):
        sparse.write(tmp_path / "cells.zip", "Y", good, chunks=0)
    assert sparse.read(stored, [1, 2]).shape == (2, 5)
    sparse.write(tmp_path / "cells.zip", "Y", good)
    assert sorted(cuzarr.open_group(tmp_path / "cells.zip", mode="r")) == ["X", "Y"]


def test_threads_write_layers_of_one_group(tmp_path):
    good = sparse.read(write({}, "csr", (4, 5), whole()))
    group = cuzarr.create_group(tmp_path / "cells.zarr")
    cuzarr.consolidate_metadata(group.store)
    group = cuzarr.open_group(tmp_path / "cells.zarr")

    def written(number):
        for _ in range(2):
            sparse.write(group, f"layers/{number}", dataclasses.replace(good, data=good.data * number), overwrite=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(written, range(8)))
    again = cuzarr.open_group(tmp_path / "cells.zarr", use_consolidated=True)
    for number in range(8):
        np.testing.assert_array_equal(sparse.read(again[f"layers/{number}"]).data, good.data * number)


def test_a_matrix_that_was_not_finished_is_refused():
    good = sparse.read(write({}, "csr", (4, 5), whole()))
    for failing in ("indptr/c/0", "indices/c/0", "data/c/0"):

        class Store(dict):
            def __setitem__(self, key, value):
                if key.endswith(failing):
                    raise OSError("full")
                super().__setitem__(key, value)

        store = Store()
        with pytest.raises(CuzarrError, match="full"):
            sparse.write(store, "X", good)
        assert not list(cuzarr.open_group(store))


def test_a_matrix_that_was_not_finished_in_a_session_is_refused(monkeypatch):
    icechunk = library("icechunk")
    good = sparse.read(write({}, "csr", (4, 5), whole()))
    session = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    sparse.write(session.store, "X", good)
    assert sparse.read(cuzarr.open_group(session.store)["X"]).nnz == 6

    def failing(*arguments):
        raise OSError("full")

    with monkeypatch.context() as patch:
        patch.setattr(cuzarr.Array, "__setitem__", failing)
        with pytest.raises(OSError, match="full"):
            sparse.write(session.store, "X", good, overwrite=True)
    with pytest.raises(UnsupportedFeatureError, match="no attribute 'encoding-type'"):
        sparse.read(cuzarr.open_group(session.store)["X"])


def test_nothing_but_numpy_is_imported():
    program = """
import sys
for name in ("scipy", "pandas", "anndata", "torch", "cupy"):
    sys.modules[name] = None
import cuzarr, numpy as np
assert "cuzarr.sparse" not in sys.modules
attributes = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [1, 1]}
group = cuzarr.create_group({}, attributes=attributes)
for name, values in {"data": [1.0], "indices": [0], "indptr": [0, 1]}.items():
    group.create_array(name, data=np.array(values))
matrix = cuzarr.sparse.read(group)
for call in (matrix.to_scipy, matrix.to_torch, lambda: cuzarr.sparse.sparse_dataset(group)[0]):
    try:
        call()
    except cuzarr.errors.LibraryMissingError as error:
        print(error.hint)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("pip install scipy\npip install torch\npip install scipy\n", 0), done.stderr


# ------------------------------------------------------------------------------------------------------------- columns


def make_frame(store, zarr_format=3):
    order = ["size", "kind", "age", "is_old", "name", "note"]
    attributes = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "column-order": order, "_index": "cell"}
    frame = cuzarr.create_group(store, zarr_format=zarr_format, attributes=attributes)
    put(frame, "cell", text(list("abcdefg")), TEXT)
    put(frame, "size", np.arange(7, dtype="f4") / 2)
    put(frame, "name", text(["", "é", "ccc", "d", "e", "f", "g"]), TEXT)
    kind = put_group(frame, "kind", "categorical", "0.2.0", ordered=True)
    put(kind, "codes", np.array([1, 0, -1, 2, 0, 0, 1], "i1"))
    put(kind, "categories", text(["B", "T", "NK"]), TEXT)
    for name, encoding, values in [
        ("age", "nullable-integer", np.arange(7, dtype="i8")),
        ("is_old", "nullable-boolean", np.arange(7) % 2 > 0),
        ("note", "nullable-string-array", text(list("tuvwxyz"))),
    ]:
        group = put_group(frame, name, encoding)
        put(group, "values", values, TEXT if values.dtype == object else ARRAY)
        put(group, "mask", np.arange(7) % 3 == 0)
    return frame


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_columns_are_on_the_device_and_labels_on_the_host(zarr_format, device):
    frame = sparse.read_frame(make_frame({}, zarr_format), device=device)
    assert (
        list(frame) == ["size", "kind", "age", "is_old", "name", "note"] and frame.index_name == "cell" and len(frame.index) == 7
    )
    np.testing.assert_array_equal(host(frame["size"].values), np.arange(7, dtype="f4") / 2)
    kind = frame["kind"]
    assert host(kind.values).tolist() == [1, 0, -1, 2, 0, 0, 1] and kind.values.dtype == np.int8 and kind.ordered
    assert kind.categories.tolist() == ["B", "T", "NK"] and kind.mask is None
    for name in ("age", "is_old", "note"):
        assert host(frame[name].mask).tolist() == [True, False, False, True, False, False, True]
    assert host(frame["age"].values).tolist() == list(range(7))
    assert frame["name"].values.tolist() == ["", "é", "ccc", "d", "e", "f", "g"] and frame["note"].values.tolist() == list(
        "tuvwxyz"
    )
    for name in ("size", "kind", "age", "is_old"):
        assert cuzarr._memory.foreign.device_of(frame[name].values).partition(":")[0] == device.partition(":")[0]
    for elements in (frame["name"].values, frame["note"].values, frame["note"].mask, frame.index.values, kind.categories):
        assert isinstance(elements, np.ndarray)


@pytest.mark.parametrize("seed", range(15))
def test_rows_of_columns(seed, device):
    rng = np.random.default_rng(seed)
    group = make_frame({}, 2 + seed % 2)
    whole = sparse.read_frame(group)
    selection, places = some_places(rng, 7)
    frame = sparse.read_frame(group, ["note", "kind", "size"], selection, device=device)
    assert list(frame) == ["note", "kind", "size"] and frame.index.values.tolist() == [list("abcdefg")[place] for place in places]
    for name, column in frame.items():
        single = sparse.read_column(group, name, selection, device=device)
        for one in (column, single):
            assert len(one) == len(places) and one.encoding == whole[name].encoding
            assert host(one.values).tolist() == [host(whole[name].values)[place] for place in places]
            if one.mask is not None:
                assert host(one.mask).tolist() == [bool(host(whole[name].mask)[place]) for place in places]


def test_damaged_columns_are_errors_by_name(device):
    def refuses(message, change, names=None, error=EncodingValidationError):
        frame = make_frame({})
        change(frame)
        with pytest.raises(error, match=message):
            sparse.read_frame(frame, names, device=device)

    def codes(values, dtype="i1"):
        return lambda frame: (frame["kind"].__delitem__("codes"), put(frame["kind"], "codes", np.array(values, dtype)))

    def of(path, values, attributes=ARRAY):
        def change(frame):
            parent, _, name = path.rpartition("/")
            group = frame[parent] if parent else frame
            del group[name]
            put(group, name, values, attributes)

        return change

    refuses("a code is 3, expected one from -1 to 2", codes([0, 1, 2, 3, 0, 0, 0]))
    refuses("a category occurs twice", of("kind/categories", np.array([1, 2, 1])))
    refuses("a category is NaN", of("kind/categories", np.array([1, np.nan, 2])))
    refuses("a code is -2, expected one from -1 to 2", codes([0, 1, 2, -2, 0, 0, 0]))
    refuses("elements are of float32, which is none of a categorical column", codes([0] * 7, "f4"))
    refuses("arrays have different lengths: .*/kind/codes 6", codes([0] * 6))
    refuses("arrays have different lengths: .*/size 8", of("size", np.zeros(8)))
    refuses("/age/mask 6", of("age/mask", np.zeros(6, bool)), ["age"])
    refuses("elements are of int8, expected bool", of("age/mask", np.zeros(7, "i1")))
    refuses("elements are of float64, which is none of a nullable-integer", of("age/values", np.zeros(7)))
    refuses("expected one dimension", of("size", np.zeros((7, 2))))
    refuses("expected one dimension", of("kind/categories", np.zeros((7, 2))))
    refuses(
        "the encoding is rec-array 0.2.0",
        of("size", np.zeros(7), ARRAY | {"encoding-type": "rec-array"}),
        None,
        UnsupportedFeatureError,
    )
    refuses(
        "the encoding is array 0.1.0",
        of("size", np.zeros(7), ARRAY | {"encoding-version": "0.1.0"}),
        None,
        UnsupportedFeatureError,
    )
    refuses("no attribute 'encoding-type'", of("size", np.zeros(7), {}), None, UnsupportedFeatureError)
    refuses("kind/codes", lambda frame: frame["kind"].__delitem__("codes"), None, ArrayNotFoundError)
    refuses("salt", lambda frame: None, ["salt"], ArrayNotFoundError)
    refuses("expected a list of names", lambda frame: frame.attrs.__delitem__("column-order"))
    refuses("expected a list of names", lambda frame: frame.attrs.update({"_index": 3}))
    refuses("dataframe 0.1.0", lambda frame: frame.attrs.update({"encoding-version": "0.1.0"}), None, UnsupportedFeatureError)
    refuses("names is 'size'", lambda frame: None, "size", ArgumentTypeError)
    for kind in ("awkward-array", "categorical", "csr_matrix"):
        refuses(
            f"the encoding is {kind}",
            lambda frame: frame["kind"].attrs.update({"encoding-type": kind, "encoding-version": "0.1.0"}),
            None,
            UnsupportedFeatureError,
        )


def test_categories_may_be_numbers_or_nullable_but_not_missing():
    frame = make_frame({})
    del frame["kind"]["categories"]
    put(frame["kind"], "categories", np.array([10, 20, 30]))
    assert sparse.read_column(frame, "kind").categories.tolist() == [10, 20, 30]
    del frame["kind"]["categories"]
    put(frame["kind"], "categories", np.array(["é", "bb", ""]), TEXT)  # text of a fixed length
    assert sparse.read_column(frame, "kind").categories.tolist() == ["é", "bb", ""]
    del frame["kind"]["categories"]
    group = put_group(frame["kind"], "categories", "nullable-string-array")
    put(group, "values", text(list("xyz")), TEXT)
    put(group, "mask", np.zeros(3, bool))
    assert sparse.read_column(frame, "kind").categories.tolist() == list("xyz")
    group["mask"][1] = True
    with pytest.raises(EncodingValidationError, match="a category is missing"):
        sparse.read_column(frame, "kind")


def test_a_frame_without_columns_or_rows(device):
    attributes = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "column-order": [], "_index": "_index"}
    group = cuzarr.create_group({}, attributes=attributes)
    put(group, "_index", text(["a", "b"]), TEXT)
    frame = sparse.read_frame(group, device=device)
    assert len(frame) == 0 and frame.index.values.tolist() == ["a", "b"] and frame.index_name is None
    frame = sparse.read_frame(make_frame({}), rows=[], device=device)
    assert {len(column) for column in frame.values()} == {0} and frame["kind"].categories.tolist() == ["B", "T", "NK"]


# ------------------------------------------------------------------------------------------------------------- anndata


@pytest.fixture(params=[2, 3])
def written(request, tmp_path):
    """A data set that anndata has written, and the same in memory."""
    anndata, scipy, pandas = library("anndata"), library("scipy.sparse"), library("pandas")
    rng = np.random.default_rng(7)
    arrays = stored_matrix(rng, 60, 25, is_sorted=True)
    x = scipy.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(60, 25))
    obs = pandas.DataFrame(
        {
            "kind": pandas.Categorical(rng.choice(["B", "T", None], 60), categories=["T", "NK", "B"], ordered=True),
            "number": pandas.Categorical(rng.choice([10, 20, 30], 60)),
            "age": pandas.array(rng.integers(0, 99, 60), dtype="Int32"),
            "is_old": pandas.array(rng.random(60) < 0.5, dtype="boolean"),
            "name": [f"cell {number % 40}" for number in range(60)],
            "size": rng.random(60),
            "count": rng.integers(0, 9, 60).astype("u2"),
            "note": pandas.array([None, "x", "y", "z"] * 15, dtype="string"),
        },
        index=pandas.Index([f"c{number}" for number in range(60)], name="barcode"),
    )
    obs.loc["c3", ["age", "is_old"]] = pandas.NA
    data = anndata.AnnData(x, obs=obs, layers={"columns": x.tocsc()}, obsp={"near": scipy.random(60, 60, 0.1, "csr")})
    data.strings_to_categoricals = lambda *_: None  # so that text stays text
    with anndata.settings.override(zarr_write_format=request.param, allow_write_nullable_strings=True):
        data.write_zarr(tmp_path / "cells.zarr")
    return tmp_path / "cells.zarr", data


@pytest.mark.filterwarnings("ignore:.*zarr v3 will become the only option.*")
def test_matrices_that_anndata_writes(written, device):
    path, data = written
    anndata, zarr = library("anndata"), library("zarr")
    group, theirs = cuzarr.open_group(path, mode="r", device=device), zarr.open_group(path, mode="r")
    mask = np.arange(60) % 3 == 0
    for name, truth in {"X": data.X, "layers/columns": data.layers["columns"], "obsp/near": data.obsp["near"]}.items():
        dataset, reference = sparse.sparse_dataset(group[name]), anndata.io.sparse_dataset(theirs[name])
        assert (dataset.shape, dataset.dtype, dataset.format, dataset.backend) == (
            reference.shape, reference.dtype, reference.format, reference.backend,
        )  # fmt: skip
        for key in (
            np.s_[:],
            np.s_[3:40],
            np.s_[::2],
            np.s_[[5, 2, 2]],
            np.s_[mask],
            np.s_[:, 3:9],
            np.s_[[4, 1], 3:9],
            np.s_[7],
        ):
            rows, columns = (*(key if isinstance(key, tuple) else (key,)), None)[:2]
            got = sparse.read(dataset, rows, columns).to_scipy()
            expected = reference[np.array(key) if isinstance(key, list) else key]
            assert got.format == expected.format and got.dtype == expected.dtype
            np.testing.assert_array_equal(got.toarray(), expected.toarray())
        assert (sparse.read(theirs[name]).to_scipy() != truth).nnz == 0


@pytest.mark.filterwarnings("ignore:.*zarr v3 will become the only option.*")
def test_frames_that_anndata_writes(written, device):
    path, _ = written
    anndata, pandas, zarr = library("anndata"), library("pandas"), library("zarr")
    group = cuzarr.open_group(path, mode="r", device=device)
    theirs = anndata.io.read_elem(zarr.open_group(path, mode="r")["obs"])
    frame = sparse.read_frame(group["obs"])
    pandas.testing.assert_frame_equal(frame.to_pandas(), theirs)
    encodings = {column.encoding for column in frame.values()}
    assert encodings >= {"array", "categorical", "nullable-integer", "nullable-boolean"}
    for rows in ([40, 2, 2], slice(5, 50, 7), np.arange(60) % 7 == 0):
        pandas.testing.assert_frame_equal(sparse.read_frame(group["obs"], rows=rows).to_pandas(), theirs.iloc[rows])
    pandas.testing.assert_frame_equal(
        sparse.read_frame(path / "var").to_pandas(), anndata.io.read_elem(zarr.open_group(path)["var"])
    )


@pytest.mark.parametrize("values", [list("abc"), ["a", None, "c"]])
@pytest.mark.parametrize("na_value", ["NA", "NaN"])
def test_text_that_anndata_writes(values, na_value, tmp_path):
    anndata, pandas, zarr = library("anndata"), library("pandas"), library("zarr")
    dtype = pandas.StringDtype(na_value=pandas.NA if na_value == "NA" else np.nan)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    with anndata.settings.override(allow_write_nullable_strings=True):
        anndata.io.write_elem(group, "text", pandas.array(values, dtype=dtype))
    anndata.io.write_elem(group, "plain", np.array(["x", "yy", ""], dtype=object))
    column = sparse.read_column(tmp_path / "a.zarr", "text")
    assert column.encoding == "nullable-string-array"
    pandas.testing.assert_extension_array_equal(column.to_pandas(), anndata.io.read_elem(group["text"]))
    plain = sparse.read_column(tmp_path / "a.zarr", "plain")
    assert plain.encoding == "string-array" and plain.to_pandas().tolist() == anndata.io.read_elem(group["plain"]).tolist()


@pytest.mark.filterwarnings("ignore:.*zarr v3 will become the only option.*")
def test_anndata_reads_through_the_pipeline(written):
    path, data = written
    anndata, zarr = library("anndata"), library("zarr")
    library("cuzarr.zarr")
    with cuzarr.zarr.enable():
        before = cuzarr.zarr.fallbacks()
        again = anndata.io.read_elem(zarr.open_group(path, mode="r"))
        assert (again.X != data.X).nnz == 0 and again.obs.equals(anndata.read_zarr(path).obs)
        assert cuzarr.zarr.fallbacks() == before
    with pytest.raises(Exception, match="No read method registered .* from <class 'cuzarr.Group'>"):
        anndata.io.read_elem(cuzarr.open_group(path, mode="r")["X"])


def test_documents_are_those_of_anndata(tmp_path):
    """The groups of these tests are what anndata reads, so that the others mean something."""
    anndata, zarr = library("anndata"), library("zarr")
    arrays = stored_matrix(np.random.default_rng(3), 12, 8)
    write(tmp_path / "m", "csr", (12, 8), arrays, zarr_format=2)
    make_frame(tmp_path / "f", 2)
    matrix = anndata.io.read_elem(zarr.open_group(tmp_path / "m", mode="r"))
    np.testing.assert_array_equal(matrix.toarray(), sparse.read(tmp_path / "m").to_scipy().toarray())
    frame = anndata.io.read_elem(zarr.open_group(tmp_path / "f", mode="r"))
    library("pandas").testing.assert_frame_equal(sparse.read_frame(tmp_path / "f").to_pandas(), frame)
    assert json.loads((tmp_path / "m" / ".zattrs").read_text())["encoding-type"] == "csr_matrix"

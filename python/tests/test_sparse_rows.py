"""Batches of rows of stored sparse matrices, with columns of a data frame beside them. Each row of a batch is what a loop over the stored arrays gives."""

import pickle
import threading

import numpy as np
import pytest
from counting import Counting
from stored_cells import ARRAY, TEXT, put, put_group, rows_of, stored_matrix, text, write

import cuzarr
from cuzarr import sparse
from cuzarr.errors import (
    ArgumentTypeError,
    ArrayNotFoundError,
    BudgetExceededError,
    ChunkCorruptError,
    CuzarrError,
    EncodingValidationError,
    InvalidArgumentError,
    OutOfMemoryError,
    OutOfRangeError,
    ShapeMismatchError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from cuzarr.loader import SparseRows

RANDOM = np.random.default_rng()
host = cuzarr.xp.asnumpy


def canonical(arrays):
    """The matrix with ascending columns in each row, each of them once."""
    data, indices, indptr = [], [], [0]
    for low, high in zip(arrays["indptr"], arrays["indptr"][1:]):
        columns, first = np.unique(arrays["indices"][low:high], return_index=True)
        indices.append(columns)
        data.append(arrays["data"][low:high][first])
        indptr.append(indptr[-1] + len(columns))
    return {"data": np.concatenate(data), "indices": np.concatenate(indices), "indptr": np.array(indptr)}


def shuffled(arrays):
    """The matrix with the elements of each row in another order."""
    order = np.concatenate([low + RANDOM.permutation(high - low) for low, high in zip(arrays["indptr"], arrays["indptr"][1:])])
    return arrays | {"data": arrays["data"][order], "indices": arrays["indices"][order]}


def as_dense(arrays, extents, dtype="f4"):
    """A dense matrix. Elements at one place are added up in their order."""
    dense = np.zeros(extents, dtype)
    rows = np.repeat(np.arange(extents[0]), np.diff(arrays["indptr"].astype("i8")))
    np.add.at(dense, (rows, arrays["indices"]), arrays["data"].astype(dtype))
    return dense


def check(batch, arrays, rows):
    expected = rows_of(arrays, rows)
    assert batch.format == "csr" and batch.shape[0] == len(rows)
    for got, wanted in zip((batch.data, batch.indices, batch.indptr), expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(host(got), wanted)


def make_obs(rows, store=None):
    """A frame with a column of each encoding that has numbers, and what they hold."""
    obs = cuzarr.create_group({} if store is None else store)
    truth = {
        "size": RANDOM.random(rows).astype("f4"),
        "kind": RANDOM.integers(-1, 3, rows).astype("i1"),
        "age": (RANDOM.integers(0, 90, rows), RANDOM.random(rows) < 0.2),
        "is_old": (RANDOM.random(rows) < 0.5, RANDOM.random(rows) < 0.2),
    }
    put(obs, "size", truth["size"])
    kind = put_group(obs, "kind", "categorical", "0.2.0")
    put(kind, "codes", truth["kind"])
    put(kind, "categories", text(["B", "T", "NK"]), TEXT)
    for name, encoding in (("age", "nullable-integer"), ("is_old", "nullable-boolean")):
        group = put_group(obs, name, encoding)
        for part, values in zip(("values", "mask"), truth[name]):
            put(group, part, values)
    put(obs, "name", text([f"cell{row}" for row in range(rows)]), TEXT)
    return obs, truth


# ---------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("zarr_format", "chunks", "shards"), [(2, 7, None), (3, 13, 39), (3, 100_000, None)])
@pytest.mark.parametrize("extents", [(0, 5), (1, 5), (5, 0), (1, 1), (97, 40)])
def test_rows_come_once_with_their_elements(extents, zarr_format, chunks, shards, shuffle, device):
    arrays = stored_matrix(RANDOM, *extents)
    group = write({}, "csr", extents, arrays, zarr_format, chunks, shards)
    dataset = SparseRows(sparse.sparse_dataset(group, device=device), 10, shuffle=shuffle, positions=True)
    seen = []
    for batch, positions in dataset:
        check(batch, arrays, positions[:, 0])
        assert batch.shape[1] == extents[1] and batch.device.partition(":")[0] == device.partition(":")[0]
        seen += positions[:, 0].tolist()
    in_order = list(range(extents[0]))
    assert sorted(seen) == in_order
    if extents[0] > 20:  # fewer rows come in their order by chance
        assert (seen == in_order) == (not shuffle)
    assert len(dataset) == -(-extents[0] // 10)


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f2", "f8", "c8"])
@pytest.mark.parametrize("kinds", [("i8", "u4"), ("u8", "i8"), ("i4", "i2")])
def test_elements_keep_their_type_whatever_the_types_of_indices(kinds, dtype):
    arrays = stored_matrix(RANDOM, 40, 9, dtype)
    stored = arrays | {name: arrays[name].astype(kind) for name, kind in zip(("indices", "indptr"), kinds)}
    group = write({}, "csr", (40, 9), stored)
    for batch, positions in SparseRows(group, 16, shuffle=True, positions=True):
        check(batch, arrays, positions[:, 0])
    (batch,) = SparseRows(group, 40, dtype="c16")
    assert batch.dtype == "c16" and batch.nnz == len(arrays["data"])


def test_rows_longer_than_many_chunks_and_stretches_of_empty_rows(device):
    lengths = np.zeros(300, int)
    lengths[[0, 5, 100, 101, 299]] = 150, 3, 200, 1, 77
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    arrays = {"data": RANDOM.random(indptr[-1]), "indices": RANDOM.integers(0, 250, indptr[-1], "i4"), "indptr": indptr}
    dataset = sparse.sparse_dataset(write({}, "csr", (300, 250), arrays, chunks=4), device=device)
    for shuffle in (False, True):
        seen = []
        for batch, positions in SparseRows(dataset, 64, shuffle=shuffle, positions=True):
            check(batch, arrays, positions[:, 0])
            seen += positions[:, 0].tolist()
        assert sorted(seen) == list(range(300))


def test_matrices_without_elements_have_rows(device):
    arrays = {"data": np.empty(0, "f4"), "indices": np.empty(0, "i4"), "indptr": np.zeros(31, "i8")}
    dataset = sparse.sparse_dataset(write({}, "csr", (30, 4), arrays), device=device)
    for options in ({}, {"dense": True}):
        batches = list(SparseRows(dataset, 8, shuffle=True, **options))
        assert [batch.shape for batch in batches] == [(8, 4)] * 3 + [(6, 4)]
    assert all(not host(batch).any() for batch in batches)


@pytest.mark.parametrize("form", ["canonical", "unsorted", "repeated"])
def test_dense_batches_equal_sums_at_places(form, device):
    arrays = stored_matrix(RANDOM, 60, 11, "i4")
    if form != "repeated":
        arrays = canonical(arrays)
    if form == "unsorted":
        arrays = shuffled(arrays)
    dataset = sparse.sparse_dataset(write({}, "csr", (60, 11), arrays), device=device)
    for dtype, wanted in ((None, "f4"), ("i4", "i4"), ("f8", "f8")):
        truth = as_dense(arrays, (60, 11), wanted)
        for batch, positions in SparseRows(dataset, 25, dense=True, dtype=dtype, shuffle=True, positions=True):
            assert batch.dtype == wanted
            np.testing.assert_array_equal(host(batch), truth[positions[:, 0]])
    stored = write({}, "csr", (60, 11), arrays | {"data": arrays["data"].astype("f2")})
    assert next(iter(SparseRows(stored, 4, dense=True))).dtype == "f2", "floats keep their type"


def test_epochs_equal_scipys_matrix(tmp_path, device):
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.random(500, 60, 0.1, format="csr", dtype="f4", rng=RANDOM)
    arrays = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
    write(tmp_path / "x.zarr", "csr", matrix.shape, arrays, chunks=50)
    with cuzarr.config.set({"device": device}):
        rows = SparseRows(tmp_path / "x.zarr", 64, shuffle=True, seed=4, positions=True)
        dense = SparseRows(tmp_path / "x.zarr", 64, shuffle=True, seed=4, dense=True)
        for epoch in range(2):
            rows.set_epoch(epoch)
            dense.set_epoch(epoch)
            batches = list(rows)
            places = np.concatenate([positions[:, 0] for _, positions in batches])
            again = scipy.vstack([batch.to_scipy() for batch, _ in batches])
            assert (again != matrix[places]).nnz == 0 and again.nnz == matrix.nnz
            np.testing.assert_array_equal(np.concatenate([host(batch) for batch in dense]), matrix.toarray()[places])


# --------------------------------------------------------------------------------------------------------------- order


def test_each_chunk_is_read_about_once_an_epoch_within_the_limit():
    lengths = RANDOM.integers(0, 60, 2000)
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    arrays = {"data": np.arange(indptr[-1], dtype="f4"), "indices": np.ones(indptr[-1], "i4"), "indptr": indptr}
    store = Counting()
    dataset = SparseRows(
        write(store, "csr", (2000, 2), arrays, chunks=64), 100, shuffle=True, memory_limit="300 KiB", positions=True
    )
    starts = dataset._cells.edges[0]
    for epoch in range(2):
        dataset.set_epoch(epoch)
        store.reads.clear()
        batches = [positions[:, 0] for _, positions in dataset]
        assert sorted(np.concatenate(batches)) == list(range(2000))
        assert min(len(set(np.searchsorted(starts, rows, "right"))) for rows in batches) >= 8, "rows of many blocks are mixed"
        report = dataset.report()
        assert report["chunks"] == 2 * -(-indptr[-1] // 64) == len(store.reads)
        assert report["chunk_reads"] == store.reads.total() and 1 <= report["reads_per_chunk"] < 1.25
        assert 0 < report["peak_bytes"] <= report["memory_limit"] and report["samples"] == 2000
        assert report["read_bytes"] == 8 * indptr[-1]


def test_chunks_of_other_lengths_are_read_about_once_too():
    arrays = stored_matrix(RANDOM, 3000, 40)
    store = Counting()
    group = write(store, "csr", (3000, 40), {"indptr": arrays["indptr"]})
    for name, chunk in (("data", 30), ("indices", 75)):
        group.create_array(name, data=arrays[name], chunks=(chunk,))
    dataset = SparseRows(group, 64, shuffle=True, positions=True)
    store.reads.clear()
    for batch, positions in dataset:
        check(batch, arrays, positions[:, 0])
    assert set(store.reads.values()) == {1} and dataset.report()["reads_per_chunk"] == 1, "all blocks fit in one read"


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_ranks_share_the_rows_and_have_equally_many_batches(world_size, drop_last):
    group = write({}, "csr", (83, 20), stored_matrix(RANDOM, 83, 20))
    options = {"shuffle": True, "positions": True, "drop_last": drop_last, "world_size": world_size}
    ranks = [list(SparseRows(group, 6, rank=rank, **options)) for rank in range(world_size)]
    assert len({len(batches) for batches in ranks}) == 1
    seen = [row for batches in ranks for _, positions in batches for row in positions[:, 0].tolist()]
    assert len(seen) == len(set(seen)) == (83 // world_size // 6 * 6 * world_size if drop_last else 83)


def test_epochs_differ_and_come_again_and_data_sets_can_be_pickled():
    obs, _ = make_obs(50)
    group = write({}, "csr", (50, 20), stored_matrix(RANDOM, 50, 20))
    dataset = SparseRows(group, 50, obs=obs, columns=["kind"], shuffle=True, positions=True)

    def order(of, epoch):
        of.set_epoch(epoch)
        ((_, positions),) = of
        return positions[:, 0].tolist()

    first = order(dataset, 0)
    assert order(dataset, 1) != first == order(dataset, 0)
    assert order(pickle.loads(pickle.dumps(dataset)), 0) == first
    assert order(SparseRows(group, 50, shuffle=True, positions=True, seed=1), 0) != first


def test_weighted_rows_are_drawn_on_one_rank_in_proportion():
    weights = np.array([0, 1, 3] * 20)
    arrays = stored_matrix(RANDOM, 60, 8)
    group = write({}, "csr", (60, 8), arrays)
    options = {"shuffle": True, "weights": weights, "samples": 6000, "positions": True}
    drawn = []
    for rank in range(2):
        for batch, positions in SparseRows(group, 500, rank=rank, world_size=2, **options):
            check(batch, arrays, positions[:, 0])
            drawn += positions[:, 0].tolist()
    counts = np.bincount(drawn, minlength=60).reshape(20, 3).sum(axis=0)
    assert counts.sum() == 6000 and counts[0] == 0
    assert abs(counts[2] - 4500) < 6 * np.sqrt(6000 * 0.75 * 0.25)


# ------------------------------------------------------------------------------------------------------------- columns


@pytest.mark.parametrize("dense", [False, True])
def test_columns_of_the_same_rows_are_beside_the_batch(dense, device):
    obs, truth = make_obs(70)
    arrays = stored_matrix(RANDOM, 70, 12)
    dataset = sparse.sparse_dataset(write({}, "csr", (70, 12), arrays), device=device)
    names = ["kind", "age", "size", "is_old", "kind"]
    rows = SparseRows(dataset, 16, obs=obs, columns=names, dense=dense, shuffle=True, positions=True)
    for (batch, columns), positions in rows:
        places = positions[:, 0]
        if dense:
            np.testing.assert_array_equal(host(batch), as_dense(arrays, (70, 12))[places])
        else:
            check(batch, arrays, places)
        assert list(columns) == ["kind", "age", "size", "is_old"]
        for name, got in columns.items():
            pairs = zip(got, truth[name], strict=True) if isinstance(truth[name], tuple) else [(got, truth[name])]
            for own, wanted in pairs:
                assert own.dtype == wanted.dtype and (isinstance(own, np.ndarray) == (device == "cpu"))
                np.testing.assert_array_equal(host(own), wanted[places])
    assert next(iter(SparseRows(dataset, 3, obs=obs, columns=[])))[1] == {}


def test_columns_are_read_once_a_pass_and_count_in_the_limit():
    store = Counting()
    obs, truth = make_obs(700, store)
    group = write({}, "csr", (700, 12), stored_matrix(RANDOM, 700, 12))
    dataset = SparseRows(group, 16, obs=obs, columns=["kind", "size"], shuffle=True)
    store.reads.clear()
    assert len(list(dataset)) == 44
    own = {key: count for key, count in store.reads.items() if "categories" not in key}
    assert set(own.values()) == {1} and set(own) == {key for key in store if key.startswith(("kind/codes/c/", "size/c/"))}
    assert dataset.report()["peak_bytes"] >= 700 * 5
    with pytest.raises(BudgetExceededError, match="3500 bytes of arrays that are held whole"):
        next(iter(SparseRows(group, 16, obs=obs, columns=["kind", "size"], memory_limit="3 KiB")))


def test_columns_that_do_not_fit_are_refused_by_name():
    obs, _ = make_obs(20)
    group = write({}, "csr", (20, 5), stored_matrix(RANDOM, 20, 5))
    for given, error, message in [
        ({"obs": obs}, InvalidArgumentError, "obs and columns belong together"),
        ({"columns": ["kind"]}, InvalidArgumentError, "obs and columns belong together"),
        ({"obs": obs, "columns": "kind"}, ArgumentTypeError, "columns|names is 'kind'"),
        ({"obs": obs, "columns": ["nowhere"]}, ArrayNotFoundError, "nowhere"),
        ({"obs": obs, "columns": ["size", "name"]}, UnsupportedError, "the column 'name' is text"),
        ({"obs": make_obs(19)[0], "columns": ["size"]}, ShapeMismatchError, "obs has 19 rows, the matrix has 20"),
    ]:
        with pytest.raises(error, match=message):
            SparseRows(group, 4, **given)
    obs["kind/codes"][7] = 3
    with pytest.raises(EncodingValidationError, match="a code is 3"):
        list(SparseRows(group, 4, obs=obs, columns=["kind"]))
    put(obs, "wide", np.zeros((20, 2)), ARRAY)
    with pytest.raises(EncodingValidationError, match="expected one dimension"):
        SparseRows(group, 4, obs=obs, columns=["wide"])


# ------------------------------------------------------------------------------------------------------------- refusals


def fails(error, message, dataset):
    """Both the first pass and the next one fail, and leave no thread."""
    before = set(threading.enumerate())
    for _ in range(2):
        with pytest.raises(error, match=message):
            list(dataset)
    assert [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("cuzarr-")] == []


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [(0, 1, "begins with 1"), (5, 10_000, "descends from 10000"), (30, 1 << 40, "past the end"), (9, -1, "descends")],
)
def test_damaged_pointers_are_refused_at_once(place, value, message):
    group = write({}, "csr", (30, 9), stored_matrix(RANDOM, 30, 9))
    group["indptr"][place] = value
    with pytest.raises(EncodingValidationError, match=message):
        SparseRows(group, 4)


@pytest.mark.parametrize("value", [9, -1, 1 << 30])
def test_damaged_indices_are_refused_before_a_batch_has_them(value, device):
    arrays = stored_matrix(RANDOM, 80, 9)
    group = write({}, "csr", (80, 9), arrays)
    group["indices"][len(arrays["data"]) // 2] = value
    for options in ({}, {"dense": True}):
        dataset = SparseRows(sparse.sparse_dataset(group, device=device), 8, shuffle=True, **options)
        fails(EncodingValidationError, f"an index is {value}, expected one from 0 to 8", dataset)


def test_damaged_chunks_are_errors_by_name(device):
    store = {}
    group = write(store, "csr", (80, 9), stored_matrix(RANDOM, 80, 9))
    assert "data/c/2" in store
    store["data/c/2"] = b"damaged"
    fails(ChunkCorruptError, "data", SparseRows(sparse.sparse_dataset(group, device=device), 8, shuffle=True))


def test_what_is_no_csr_matrix_or_does_not_fit_is_refused():
    arrays = stored_matrix(RANDOM, 60, 9)
    group = write({}, "csr", (60, 9), arrays)
    by_column = write({}, "csc", (9, 60), arrays)
    for matrix, error, message in [
        (by_column, ArgumentTypeError, "csc_matrix, whose rows do not lie together"),
        (sparse.sparse_dataset(by_column), ArgumentTypeError, "csc_matrix, whose rows do not lie together"),
        (cuzarr.create_group({}), UnsupportedFeatureError, "encoding-type"),
    ]:
        with pytest.raises(error, match=message):
            SparseRows(matrix, 4)
    for options, error, message in [
        ({"size": 0}, InvalidArgumentError, "size is 0"),
        ({"prefetch": 0}, InvalidArgumentError, "prefetch"),
        ({"weights": np.ones(60)}, InvalidArgumentError, "shuffle is False"),
        ({"weights": np.ones(59), "shuffle": True}, ShapeMismatchError, r"\(59,\), expected \(60,\)"),
        ({"dtype": "M8[s]"}, CuzarrError, "M8|datetime64"),
        ({"rank": 3, "world_size": 2}, InvalidArgumentError, "rank is 3"),
    ]:
        with pytest.raises(error, match=message):
            SparseRows(group, **{"size": 4, **options})
    fails(BudgetExceededError, "expected at least", SparseRows(group, 4, shuffle=True, memory_limit="1 KiB"))


def test_dense_batches_of_absurd_width_are_refused(device):
    arrays = {"data": np.ones(2, "f4"), "indices": np.array([0, 1 << 58]), "indptr": np.array([0, 1, 2])}
    dataset = sparse.sparse_dataset(write({}, "csr", (2, 1 << 59), arrays), device=device)
    fails((InvalidArgumentError, OutOfMemoryError), "dense batch of 2 x|bytes left", SparseRows(dataset, 2, dense=True))
    (batch,) = SparseRows(dataset, 2)
    assert host(batch.indices).tolist() == [0, 1 << 58] and batch.indptr.dtype == "i8"


def test_a_failing_transform_comes_out_and_leaving_early_ends_the_thread():
    group = write({}, "csr", (60, 9), stored_matrix(RANDOM, 60, 9))
    batches = iter(SparseRows(group, 4, transform=lambda batch: batch.nnz))
    assert isinstance(next(batches), int)
    batches.close()
    fails(ZeroDivisionError, "division", SparseRows(group, 4, transform=lambda batch: 1 / 0))


# ------------------------------------------------------------------------------------------------------------- PyTorch


def test_tensors_have_the_rows():
    torch = pytest.importorskip("torch")
    obs, truth = make_obs(70)
    arrays = canonical(stored_matrix(RANDOM, 70, 12))
    group = write({}, "csr", (70, 12), arrays)
    options = {"obs": obs, "columns": ["kind", "age"], "shuffle": True, "positions": True}
    for dense in (False, True):
        for (batch, columns), positions in cuzarr.torch.SparseRows(group, 16, dense=dense, **options):
            assert batch.layout is (torch.strided if dense else torch.sparse_csr) and batch.dtype is torch.float32
            places = positions[:, 0].numpy()
            np.testing.assert_array_equal(batch.to_dense().numpy(), as_dense(arrays, (70, 12))[places])
            assert torch.equal(columns["kind"], torch.from_numpy(truth["kind"][places]))
            assert [torch.equal(own, torch.from_numpy(wanted[places])) for own, wanted in zip(columns["age"], truth["age"])] == [
                True
            ] * 2


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_workers_of_loaders_share_the_rows_and_go_on(workers, dense, tmp_path):
    torch = pytest.importorskip("torch")
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    obs, truth = make_obs(70, tmp_path / "obs")
    arrays = canonical(stored_matrix(RANDOM, 70, 12))
    write(tmp_path / "x", "csr", (70, 12), arrays)

    def loader():
        options = {"obs": tmp_path / "obs", "columns": ["kind"], "shuffle": True, "positions": True, "dense": dense}
        own = cuzarr.torch.SparseRows(tmp_path / "x", 8, **options)
        return torchdata.StatefulDataLoader(own, batch_size=None, num_workers=workers)

    given, states = [], []
    reading = loader()
    for (batch, columns), positions in reading:
        places = positions[:, 0].numpy()
        np.testing.assert_array_equal(batch.to_dense().numpy(), as_dense(arrays, (70, 12))[places])
        assert torch.equal(columns["kind"], torch.from_numpy(truth["kind"][places]))
        given.append(places.tolist())
        states.append(reading.state_dict())
    assert sorted(sum(given, [])) == list(range(70))
    again = loader()
    again.load_state_dict(states[3])
    assert [positions[:, 0].tolist() for _, positions in again] == given[4:]


# ----------------------------------------------------------------------------------------------------------------- JAX


def test_arrays_of_jax_have_the_rows(monkeypatch):
    jax = pytest.importorskip("jax")
    bcsr = pytest.importorskip("jax.experimental.sparse").BCSR
    obs, truth = make_obs(70)
    arrays = stored_matrix(RANDOM, 70, 12)
    group = write({}, "csr", (70, 12), arrays)
    options = {"obs": obs, "columns": ["kind", "age"], "shuffle": True, "positions": True, "dtype": "f4"}
    for dense in (False, True):
        seen = []
        for (batch, columns), positions in cuzarr.jax.SparseRows(group, 16, dense=dense, **options):
            assert isinstance(batch, jax.Array if dense else bcsr) and batch.dtype == "float32"
            places = positions[:, 0]
            np.testing.assert_allclose(batch if dense else batch.todense(), as_dense(arrays, (70, 12))[places], rtol=1e-6)
            assert all(isinstance(one, jax.Array) for one in (columns["kind"], *columns["age"]))
            np.testing.assert_array_equal(columns["kind"], truth["kind"][places])
            for own, wanted in zip(columns["age"], truth["age"]):
                np.testing.assert_array_equal(own, wanted[places])
            seen += places.tolist()
        assert sorted(seen) == list(range(70))
    empty = write({}, "csr", (3, 12), stored_matrix(RANDOM, 0, 12) | {"indptr": np.zeros(4, "i8")})
    (batch,) = cuzarr.jax.SparseRows(empty, 3)
    assert batch.nse == 0 and not np.any(batch.todense())
    wide = write(
        {}, "csr", (3, 1 << 40), {"data": np.ones(2, "f4"), "indices": np.array([7, 1 << 39]), "indptr": np.array([0, 1, 1, 2])}
    )
    with pytest.raises(OutOfRangeError, match=f"shape .3, {1 << 40}. with 2 elements has indices of 64 bits"):
        list(cuzarr.jax.SparseRows(wide, 3))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    assert sum(batch.shape[0] for batch in cuzarr.jax.SparseRows(group, 5)) == 35

"""Calls that touch many objects take few rounds of requests: a store far away costs one wait, not one for each object."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rounds import Rounds

import cuzarr

CHUNKS = 100
TRUTH = np.arange(1, 10 * CHUNKS + 1, dtype="i4")


@pytest.fixture(params=[{"compressors": None}, {}, {"zarr_format": 2}], ids=["plain", "zstd", "format 2"])
def stored(request: pytest.FixtureRequest) -> tuple[Rounds, cuzarr.Array]:
    """A store with an array of 100 chunks, which hold all of its elements."""
    store = Rounds()
    array = cuzarr.create_array(store, shape=TRUTH.shape, chunks=(10,), dtype="i4", **request.param)
    array[...] = TRUTH
    assert array.nchunks_initialized == CHUNKS
    return store, array


def test_lists_of_indices_and_points_are_read_in_one_round(stored: tuple[Rounds, cuzarr.Array]) -> None:
    store, array = stored
    rows = np.random.default_rng(1).permutation(len(TRUTH))[:700]
    for read in (array.oindex, array.vindex):
        found, rounds = store.count(lambda read=read: read[rows])
        assert np.array_equal(found, TRUTH[rows])
        assert rounds <= 2, rounds
    found, rounds = store.count(lambda: array.oindex[TRUTH % 3 == 0])
    assert np.array_equal(found, TRUTH[TRUTH % 3 == 0])
    assert rounds <= 2, rounds


def test_a_write_of_many_chunks_takes_few_rounds(stored: tuple[Rounds, cuzarr.Array]) -> None:
    store, array = stored
    _, rounds = store.count(lambda: array.__setitem__(..., TRUTH[::-1]))
    assert rounds <= 5, rounds
    rows = np.arange(0, len(TRUTH), 5)
    _, rounds = store.count(lambda: array.oindex.__setitem__(rows, -1))
    assert rounds <= 6, rounds  # parts of chunks are read first
    assert np.array_equal(array[...], np.where(np.arange(len(TRUTH)) % 5 == 0, -1, TRUTH[::-1]))


def test_a_resize_deletes_its_chunks_in_few_rounds(stored: tuple[Rounds, cuzarr.Array]) -> None:
    store, array = stored
    _, rounds = store.count(lambda: array.resize((500,)))
    assert rounds <= 4, rounds
    assert array.nchunks_initialized == CHUNKS // 2
    assert np.array_equal(array[...], TRUTH[:500])


def test_samples_of_many_arrays_open_them_in_few_rounds() -> None:
    storage = pytest.importorskip("zarr").storage
    store = Rounds()
    store.wait_seconds = 0
    for number in range(48):
        cuzarr.create_array(store, name=f"v{number}", data=np.full(4, number))
    samples = [{"x": (storage.StorePath(store, f"v{number}"), slice(1, 3))} for number in range(48)]
    store.wait_seconds = 0.1
    [batch], rounds = store.count(lambda: list(cuzarr.loader.SampleStream(samples, 48)))
    assert batch["x"].tolist() == [[number] * 2 for number in range(48)]
    assert rounds <= 5, rounds


def test_thirty_members_are_listed_in_few_rounds() -> None:
    store = Rounds()
    root = cuzarr.create_group(store)
    metadata = cuzarr.create_array({}, shape=(4,), dtype="i1").metadata
    list(root.create_hierarchy({f"a{number}": metadata for number in range(30)}))
    for members in (root.members, lambda: list(root.arrays()), lambda: list(root.array_keys())):
        found, rounds = store.count(members)
        assert len(found) == 30
        assert rounds <= 4, rounds


def test_a_copy_of_a_stored_array_takes_few_rounds(stored: tuple[Rounds, cuzarr.Array]) -> None:
    store, array = stored
    other = Rounds()
    (copied, written), read = store.count(lambda: other.count(lambda: cuzarr.from_array(other, data=array)))
    assert np.array_equal(copied[...], TRUTH)
    assert read + written <= 10, (read, written)


def test_calls_one_after_the_other_are_rounds_of_their_own(stored: tuple[Rounds, cuzarr.Array]) -> None:
    store, array = stored
    _, rounds = store.count(lambda: [array[10 * number] for number in range(5)])
    assert rounds == 5


def test_indices_in_chunks_of_many_lengths_are_read_in_one_round() -> None:
    truth, rows = np.arange(78, dtype="i4"), np.arange(0, 78, 5)
    store = Rounds()
    with cuzarr.config.set({"array.rectilinear_chunks": True}):
        array = cuzarr.create_array(store, data=truth, chunks=[list(range(1, 13))])
        found, rounds = store.count(lambda: array.oindex[rows])
    assert np.array_equal(found, truth[rows])
    assert rounds <= 2, rounds


def dataset_far_away(**options: Any) -> Rounds:
    """A store with 24 variables, and coordinates of which xarray reads the ends, or everything, while it opens them."""
    store = Rounds()
    new = cuzarr.create_group({}, **options)
    hours = {"units": "hours since 2000-01-01"}
    names = [
        ("time", ("time",), (4,), hours),
        ("x", ("x",), (8,), {}),
        ("y", ("y",), (3,), {}),
        ("valid", ("time", "x"), (4, 8), hours),
    ]
    for name, dims, shape, attributes in names + [(f"v{number:02}", ("time", "x"), (4, 8), {}) for number in range(24)]:
        named: dict[str, Any] = {"dimension_names": dims} if options["zarr_format"] == 3 else {}
        attributes = attributes if named else {**attributes, "_ARRAY_DIMENSIONS": dims}
        new.create_array(name, shape=shape, chunks=(2,) * len(shape), dtype="i4", attributes=attributes, **named)
    group = cuzarr.create_group(store, **options)
    arrays = dict(group.create_hierarchy({name: array.metadata for name, array in new.arrays()}))
    cuzarr.write_many((array, ..., np.arange(1, array.size + 1).reshape(array.shape)) for array in arrays.values())  # type: ignore[union-attr,arg-type]
    return store


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_a_data_set_is_opened_and_loaded_in_few_rounds(zarr_format: int, consolidated: bool) -> None:
    xarray = pytest.importorskip("xarray")
    store = dataset_far_away(zarr_format=zarr_format)
    if consolidated:
        cuzarr.consolidate_metadata(store)
    dataset, rounds = store.count(lambda: xarray.open_dataset(store, engine="cuzarr", consolidated=consolidated))
    # The metadata (a listing of zarr-python's stores takes two), the ends of times, and the indexes.
    assert rounds <= (3 + (zarr_format == 2) if consolidated else 6), rounds
    assert dataset.time.values[-1] == np.datetime64("2000-01-01T04") and dataset.indexes["x"].tolist() == list(range(1, 9))
    _, rounds = store.count(dataset.cuzarr.load)
    assert rounds <= 3, rounds
    assert all(dataset[f"v{number:02}"].values.ravel().tolist() == list(range(1, 33)) for number in range(24))
    assert dataset.valid.values[3, 7] == np.datetime64("2000-01-02T08")


def test_coordinates_are_read_when_they_are_asked_for() -> None:
    xarray = pytest.importorskip("xarray", minversion="2025.6")
    store = dataset_far_away(zarr_format=3)
    options = {"engine": "cuzarr", "consolidated": False, "create_default_indexes": False}
    _, rounds = store.count(lambda: xarray.open_dataset(store, decode_times=False, **options))
    dataset, with_times = store.count(lambda: xarray.open_dataset(store, **options))
    assert with_times == rounds + 1
    before = store.reads
    _, rounds = store.count(lambda: dataset.x.values)
    assert rounds == 1 and store.reads == before + 4 + 2 + 2  # the chunks of x, y and time
    _, rounds = store.count(lambda: (dataset.y.values, dataset.time.values))
    assert rounds == 0
    cuzarr.open_group(store)["y"][:] = [7, 8, 9]
    assert dataset.y.values.tolist() == [1, 2, 3]  # which xarray has kept
    assert xarray.open_dataset(store, **options).y.values.tolist() == [7, 8, 9]


def test_one_broken_coordinate_is_named_and_can_be_dropped() -> None:
    xarray = pytest.importorskip("xarray")
    broken = {key: value.to_bytes() for key, value in dataset_far_away(zarr_format=3)._store_dict.items()}
    for name in ("x", "time"):
        whole = broken[f"{name}/c/0"]
        broken[f"{name}/c/0"] = b"no chunk"
        with pytest.raises(cuzarr.errors.CuzarrError, match=f"'/?{name}"):
            xarray.open_dataset(broken, engine="cuzarr", consolidated=False)
        dataset = xarray.open_dataset(broken, engine="cuzarr", consolidated=False, drop_variables=[name])
        assert dataset.y.values.tolist() == [1, 2, 3]
        broken[f"{name}/c/0"] = whole


def test_a_data_set_whose_indexes_are_not_read_yet_can_be_pickled(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray", minversion="2025.6")
    for key, value in dataset_far_away(zarr_format=3)._store_dict.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(value.to_bytes())
    dataset = xarray.open_dataset(tmp_path, engine="cuzarr", consolidated=False, create_default_indexes=False)
    for one in (pickle.loads(pickle.dumps(dataset)), dataset.copy(deep=True), dataset):
        assert one.y.values.tolist() == [1, 2, 3] and one.x.values.tolist() == list(range(1, 9))

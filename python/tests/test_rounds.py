"""Calls that touch many objects take few rounds of requests: a store far away costs one wait, not one for each object."""

from __future__ import annotations

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

"""Index arrays, points and masks: one plan, one round of requests, NumPy's answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from devices import to_host as host

import cuzarr
from cuzarr.errors import BoundsCheckError

SHAPE, CHUNKS = (40, 30), (4, 6)
TRUTH = np.arange(1200, dtype="i4").reshape(SHAPE)
CODECS: list[dict[str, Any]] = [
    {},
    {"compressors": None},
    {"shards": (20, 12)},
    {"shards": (20, 12), "compressors": None},
]


@pytest.fixture(params=CODECS, ids=["zstd", "plain", "shards", "plain-shards"])
def array(request: pytest.FixtureRequest, device: str) -> Any:
    array = cuzarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype="i4", fill_value=-1, **request.param)
    array[...] = TRUTH
    return array.with_device(device)


def random_lists(seed: int) -> Iterator[tuple[Any, Any]]:
    random = np.random.default_rng(seed)
    for count in (0, 1, 3, 17, 200):
        yield random.integers(-40, 40, count), random.integers(-30, 30, count)
    yield np.arange(40), np.arange(30)[::-1]
    yield np.array([7, 7, 3, 7]), np.array([29, 0, 0, 29])


def test_outer_products_are_numpys(array: Any) -> None:
    for rows, columns in random_lists(1):
        assert np.array_equal(host(array.oindex[rows, columns]), TRUTH[np.ix_(rows, columns)])
        assert np.array_equal(host(array.oindex[rows]), TRUTH[rows])
        assert np.array_equal(host(array.oindex[3:39:5, columns]), TRUTH[3:39:5, columns])
        assert np.array_equal(host(array.oindex[-3, columns]), TRUTH[-3, columns])
    mask = TRUTH[:, 0] % 7 == 0
    assert np.array_equal(host(array.oindex[mask, 2:4]), TRUTH[mask, 2:4])


def test_points_are_numpys(array: Any) -> None:
    for rows, columns in random_lists(2):
        if rows.shape == columns.shape:
            assert np.array_equal(host(array.vindex[rows, columns]), TRUTH[rows, columns])
    rows, columns = np.arange(6).reshape(3, 2), np.array([1, 29])
    assert np.array_equal(host(array.vindex[rows, columns]), TRUTH[rows, columns])
    assert np.array_equal(host(array.vindex[TRUTH % 11 == 3]), TRUTH[TRUTH % 11 == 3])


@pytest.mark.parametrize("kind", ["oindex", "vindex"])
def test_the_last_of_repeated_indices_counts(array: Any, kind: str) -> None:
    for seed in range(8):
        truth = TRUTH.copy()
        array[...] = TRUTH
        random = np.random.default_rng(seed)
        rows, columns = random.integers(-40, 40, 60), random.integers(0, 3, 60)
        if kind == "oindex":
            value = random.integers(0, 99, (60, 60), "i4")
            for at, row in enumerate(rows):
                truth[row, columns] = value[at]
            array.oindex[rows, columns] = value
        else:
            value = random.integers(0, 99, 60, "i4")
            for row, column, one in zip(rows, columns, value, strict=True):
                truth[row, column] = one
            array.vindex[rows, columns] = value
        assert np.array_equal(host(array[...]), truth)


def test_repeated_indices_in_order_leave_the_elements_between_them(array: Any) -> None:
    # There are as many indices as rows of a chunk. Because one is repeated, a row is left out.
    rows, columns = [0, 0, 1, 2], [6, 7, 8, 9, 9, 10]
    truth = TRUTH.copy()
    for at in range(4):
        for place in range(6):
            truth[rows[at], columns[place]] = -at * 10 - place
    array.oindex[rows, columns] = -np.arange(4)[:, None] * 10 - np.arange(6)
    assert np.array_equal(host(array[...]), truth)


def test_values_are_broadcast_and_missing_chunks_filled(device: str) -> None:
    array = cuzarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype="f4", fill_value=2.5).with_device(device)
    truth = np.full(SHAPE, 2.5, "f4")
    rows = [1, 39, 17]
    array.oindex[rows, :10] = np.arange(10)
    truth[rows, :10] = np.arange(10)
    array.vindex[rows, [20, 21, 29]] = 7
    truth[rows, [20, 21, 29]] = 7
    assert np.array_equal(host(array.oindex[:, np.arange(29, -1, -1)]), truth[:, ::-1])
    array.oindex[rows] = 2.5
    truth[rows] = 2.5
    assert np.array_equal(host(array[...]), truth)
    assert array.nchunks_initialized == 0


def test_indices_outside_are_named(array: Any) -> None:
    with pytest.raises(BoundsCheckError, match="index 40 is out of bounds for a dimension of 40"):
        array.oindex[[3, 40]]
    with pytest.raises(BoundsCheckError, match="index -31"):
        array.vindex[[0, 1], [0, -31]]


def test_strings_and_structures_are_chosen(tmp_path: Any) -> None:
    words = np.array([f"word {number}" for number in range(30)], object)
    strings = cuzarr.create_array(tmp_path / "s", shape=(30,), chunks=(4,), dtype="string")
    strings[...] = words
    rows = [29, 3, 3, -1, 8]
    assert list(strings.oindex[rows]) == list(words[rows])
    assert list(strings.vindex[rows]) == list(words[rows])
    strings.vindex[[2, 9, 2]] = np.array(["a", "b", "c"], object)
    words[[2, 9, 2]] = ["a", "b", "c"]
    assert list(strings[...]) == list(words)
    kind = np.dtype([("x", "i4"), ("y", "f8")])
    truth = np.zeros(20, kind)
    truth["x"], truth["y"] = np.arange(20), np.arange(20) / 4
    array = cuzarr.create_array(tmp_path / "r", shape=(20,), chunks=(6,), dtype=kind, zarr_format=2)
    array[...] = truth
    assert np.array_equal(array.vindex[[19, 2, 2]], truth[[19, 2, 2]])
    assert np.array_equal(array.get_orthogonal_selection(([5, 1],), fields="y"), truth[[5, 1]]["y"])
    array.set_coordinate_selection(([7, 0],), [70, 1], fields="x")
    truth["x"][[7, 0]] = 70, 1
    assert np.array_equal(array[...], truth)


def test_results_go_into_given_memory(array: Any) -> None:
    if array.device != "cpu":
        pytest.skip("host memory")
    rows, columns = [9, 0, 39], [29, 4]
    out = np.zeros((3, 2), "i4", order="F")
    array.get_orthogonal_selection((rows, columns), out=out)
    assert np.array_equal(out, TRUTH[np.ix_(rows, columns)])
    flat = np.zeros(3, "i8")
    array.get_coordinate_selection((rows, [1, 1, 2]), out=flat)
    assert np.array_equal(flat, TRUTH[rows, [1, 1, 2]])

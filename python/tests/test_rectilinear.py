"""Rectilinear chunk grids: chunks with lengths of their own along each dimension, as zarr-python 3.4 reads and writes them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

zarr = pytest.importorskip("zarr", minversion="3.4")

from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402
from zarr.testing import strategies  # noqa: E402

import cuzarr  # noqa: E402
from cuzarr.errors import InvalidArgumentError, MetadataValidationError, UnsupportedFeatureError  # noqa: E402

SHAPE = (26, 38)
EDGES = [[16, 10], [24, 9, 5]]


@pytest.fixture(autouse=True)
def rectilinear() -> Iterator[None]:
    with cuzarr.config.set({"array.rectilinear_chunks": True}), zarr.config.set({"array.rectilinear_chunks": True}):
        yield


def elements() -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.arange(SHAPE[0] * SHAPE[1], dtype="int32").reshape(SHAPE)


def create(place: Any, **arguments: Any) -> cuzarr.Array:
    array = cuzarr.create_array(place, shape=SHAPE, dtype="int32", **({"chunks": EDGES} | arguments))
    array[...] = elements()
    return array


def same(left: Any, right: Any) -> bool:
    left, right = np.asarray(left), np.asarray(right)
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_arrays_of_zarr_python_are_read_and_written_on(data: st.DataObject) -> None:
    theirs = data.draw(strategies.rectilinear_arrays())
    ours = cuzarr.open_array(theirs.store, mode="r+")
    whole = theirs[...]
    assert same(ours[...], whole)
    assert ours.read_chunk_sizes == theirs.read_chunk_sizes
    assert ours.cdata_shape == theirs.cdata_shape

    def typed(elements: Any) -> Any:  # NumPy makes the text of one element shorter than its type
        return np.asarray(elements, whole.dtype)

    selection = data.draw(strategies.basic_indices(shape=theirs.shape))
    assert same(typed(ours[selection]), typed(whole[selection]))
    orthogonal, index = data.draw(strategies.orthogonal_indices(shape=theirs.shape))
    assert same(typed(ours.oindex[orthogonal]), typed(whole[index]))
    first = tuple(slice(0, max(extent // 2, 1)) for extent in theirs.shape)
    ours[first] = whole[tuple(slice(None, None, -1) for _ in theirs.shape)][first]
    assert same(zarr.open_array(theirs.store, mode="r")[...], ours[...])


@pytest.mark.parametrize("shards", [False, True])
def test_zarr_python_reads_what_is_written(tmp_path: Path, shards: bool) -> None:
    arguments = {"chunks": (8, 1), "shards": [[16, 8, 8], [24, 9, 5]]} if shards else {}
    if shards:
        arguments["shards"][0] = [16, 16]  # type: ignore[index]
    shape = (32, 38) if shards else SHAPE
    ours = cuzarr.create_array(tmp_path, shape=shape, dtype="int32", **({"chunks": EDGES} | arguments))
    if not shards:
        assert ours.metadata.is_rectilinear
    expected = np.arange(shape[0] * shape[1], dtype="int32").reshape(shape)
    ours[...] = expected
    theirs = zarr.open_array(tmp_path, mode="r+")
    assert same(theirs[...], expected)
    assert theirs.write_chunk_sizes == ours.write_chunk_sizes
    assert theirs.read_chunk_sizes == ours.read_chunk_sizes
    theirs[3:20, 5:30] = -1
    expected[3:20, 5:30] = -1
    assert same(ours[...], expected)
    assert same(ours.vindex[[1, 25, 3], [37, 0, 30]], expected[[1, 25, 3], [37, 0, 30]])


def test_documents_are_those_of_zarr_python(tmp_path: Path) -> None:
    for number, (shape, chunks) in enumerate(
        [((6, 6), [[1, 2, 3], [3, 3]]), ((6, 7), [[4, 1, 1], 2]), ((10,), [[4, 4, 2]]), ((7, 2), [[1, 1, 1, 4], [2]])]
    ):
        ours, theirs = tmp_path / f"ours{number}", tmp_path / f"theirs{number}"
        cuzarr.create_array(ours, shape=shape, chunks=chunks, dtype="uint8")
        zarr.create_array(theirs, shape=shape, chunks=chunks, dtype="uint8")
        documents = [json.loads((place / "zarr.json").read_text())["chunk_grid"] for place in (ours, theirs)]
        assert documents[0] == documents[1]


def test_resize_and_append_give_what_zarr_python_gives(tmp_path: Path) -> None:
    ours = create(tmp_path / "ours")
    theirs = zarr.create_array(tmp_path / "theirs", shape=SHAPE, chunks=EDGES, dtype="int32")
    theirs[...] = elements()
    for array in (ours, theirs):
        array.append(np.full((4, 38), 7, "int32"))
        array.resize((45, 50))
        array[40:, 35:] = 9
    assert ours.write_chunk_sizes == theirs.write_chunk_sizes
    assert same(ours[...], theirs[...])
    assert same(zarr.open_array(tmp_path / "ours", mode="r")[...], theirs[...])
    for array in (ours, theirs):
        array.resize((16, 24))
    assert same(ours[...], theirs[...])
    assert ours.nchunks_initialized == 1


def test_blocks_rows_and_members_follow_the_grid(tmp_path: Path) -> None:
    array = create(tmp_path)
    assert same(array.blocks[1, 0:2], elements()[16:26, 0:33])
    array.blocks[0, 2] = 3
    expected = elements()
    expected[:16, 33:] = 3
    assert same(np.stack(list(array)), expected)
    assert 987 in array
    assert array.write_chunk_sizes == ((16, 10), (24, 9, 5))
    assert (array.nchunks, array.nchunks_initialized, array.cdata_shape) == (6, 6, (2, 3))
    with pytest.raises(NotImplementedError, match="rectilinear chunk grid has no 'chunks'"):
        _ = array.chunks
    assert "[16, 10], [24, 9, 5]" in repr(array.info)
    assert "objects" in str(array.explain())
    assert same(array.sum(axis=0).compute(), expected.sum(axis=0))
    assert same((array + 1)[2:20], expected[2:20] + 1)


def test_copies_keep_the_grid_and_go_to_regular_ones(tmp_path: Path) -> None:
    array = create(tmp_path / "source")
    kept = cuzarr.copy(array, tmp_path / "kept")
    assert kept.write_chunk_sizes == array.write_chunk_sizes
    assert same(kept[...], elements())
    regular = cuzarr.rechunk(array, tmp_path / "regular", chunks=(7, 11))
    assert regular.chunks == (7, 11)
    assert same(regular[...], elements())
    back = cuzarr.create_array(tmp_path / "back", shape=SHAPE, chunks=EDGES, dtype="int32")
    back[...] = regular
    assert same(back[...], elements())
    with pytest.raises(TypeError, match="whole number") as refused:
        cuzarr.rechunk(array, tmp_path / "lists", chunks=EDGES)
    assert "from_array" in str(refused.value)
    assert cuzarr.from_array(tmp_path / "lists", data=array, chunks=[[20, 6], [38]]).write_chunk_sizes == ((20, 6), (38,))
    like = cuzarr.from_array(tmp_path / "like", data=array)
    assert like.write_chunk_sizes == array.write_chunk_sizes
    assert same(like[...], elements())
    assert cuzarr.empty_like(array, store=tmp_path / "empty").write_chunk_sizes == array.write_chunk_sizes


def test_text_and_fields_are_elements_too(tmp_path: Path) -> None:
    words = np.array([f"{'x' * (at % 7)}{at}" for at in range(20)], dtype=np.dtypes.StringDType())
    array = cuzarr.create_array(tmp_path / "text", shape=(20,), chunks=[[3, 8, 9]], dtype="string")
    array[...] = words
    assert array[...].tolist() == words.tolist()
    assert zarr.open_array(tmp_path / "text", mode="r")[...].tolist() == words.tolist()


def test_dask_and_xarray_have_the_chunks(tmp_path: Path) -> None:
    dask_array = pytest.importorskip("dask.array")
    cuzarr_dask = pytest.importorskip("cuzarr.dask")
    array = create(tmp_path / "a", dimension_names=("y", "x"))
    lazy = cuzarr_dask.from_cuzarr(array)
    assert lazy.chunks == ((16, 10), (24, 9, 5))
    assert same(lazy.compute(scheduler="threads"), elements())
    other = cuzarr.create_array(tmp_path / "b", shape=SHAPE, chunks=EDGES, dtype="int32")
    cuzarr_dask.to_cuzarr(dask_array.from_array(elements(), chunks=(5, 7)), other, scheduler="threads")
    assert same(other[...], elements())
    xarray = pytest.importorskip("xarray")
    group = cuzarr.create_group(tmp_path / "group")
    variable = group.create_array("v", shape=SHAPE, chunks=EDGES, dtype="int32", dimension_names=("y", "x"))
    variable[...] = elements()
    with xarray.open_dataset(tmp_path / "group", engine="cuzarr", chunks={}) as dataset:
        assert dataset["v"].chunks == ((16, 10), (24, 9, 5))
        assert same(dataset["v"].values, elements())


def test_the_configuration_says_whether_such_grids_are_taken(tmp_path: Path) -> None:
    create(tmp_path / "a")
    with cuzarr.config.set({"array.rectilinear_chunks": False}), zarr.config.set({"array.rectilinear_chunks": False}):
        with pytest.raises(UnsupportedFeatureError, match=r"array\.rectilinear_chunks"):
            cuzarr.open_array(tmp_path / "a")
        with pytest.raises(UnsupportedFeatureError, match=r"array\.rectilinear_chunks"):
            cuzarr.create_array(tmp_path / "b", shape=SHAPE, chunks=EDGES, dtype="int32")


@pytest.mark.parametrize(
    ("chunks", "error"),
    [
        ([[16, 9], [38]], InvalidArgumentError),
        ([[16, 10, 0], [38]], InvalidArgumentError),
        ([[1, 2, 23]], InvalidArgumentError),
        ([[1, 2, 23], "38"], TypeError),
        ([[1, 2.5, 23], [38]], TypeError),
    ],
)
def test_lengths_that_do_not_fit_are_refused(tmp_path: Path, chunks: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        cuzarr.create_array(tmp_path, shape=SHAPE, chunks=chunks, dtype="int32")
    with pytest.raises(InvalidArgumentError, match="format 2 has no rectilinear"):
        cuzarr.create_array(tmp_path, shape=SHAPE, chunks=EDGES, dtype="int32", zarr_format=2)
    with pytest.raises(InvalidArgumentError, match="shards"):
        cuzarr.create_array(tmp_path, shape=SHAPE, chunks=EDGES, shards=(26, 38), dtype="int32")
    with pytest.raises(InvalidArgumentError, match=r"shards \[\[15, 11\], \[38\]\] are not multiples of their chunks \(2, 2\)"):
        cuzarr.create_array(tmp_path, shape=SHAPE, chunks=(2, 2), shards=[[15, 11], [38]], dtype="int32")


@pytest.mark.parametrize(
    "shapes", [[[16], [38]], [[0, 26], [38]], [[[13]], [38]], [[26]], [[[26, 0]], [38]], "ab", [["26"], [38]], [[], [38]]]
)
def test_damaged_grids_are_refused(tmp_path: Path, shapes: Any) -> None:
    create(tmp_path)
    document = json.loads((tmp_path / "zarr.json").read_text())
    document["chunk_grid"]["configuration"]["chunk_shapes"] = shapes
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(MetadataValidationError):
        cuzarr.open_array(tmp_path)


def of_lengths(lengths: list[int]) -> cuzarr.Array:
    return cuzarr.create_array({}, shape=(sum(lengths),), chunks=[lengths], dtype="uint8")


def seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def test_one_chunk_among_many_lengths_is_read_and_written_at_once() -> None:
    array = of_lengths(list(range(1, 40_001)))
    array[5:8] = 7
    assert array[4:9].tolist() == [0, 7, 7, 7, 0]
    # Comparing each length with each takes 800 million steps.
    assert seconds(lambda: [array[place : place + 3] for place in (5, 10**8, 8 * 10**8)]) < 10

"""Random programs on rectilinear arrays: cuzarr, zarr-python, xarray, dask and the zarrs pipeline see the same elements."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

zarr = pytest.importorskip("zarr", minversion="3.4")

from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402
from zarr.buffer import cpu  # noqa: E402
from zarr.testing import strategies  # noqa: E402

import cuzarr  # noqa: E402

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
SHAPES = st.lists(st.integers(0, 12), min_size=1, max_size=3).map(tuple)


@pytest.fixture(autouse=True)
def rectilinear() -> Iterator[None]:
    with cuzarr.config.set({"array.rectilinear_chunks": True}), zarr.config.set({"array.rectilinear_chunks": True}):
        yield


def times(declared: Any, factor: int) -> Any:
    """Lengths of one dimension's chunks, as a document declares them, times a factor."""
    if isinstance(declared, int):
        return declared * factor
    return [[each[0] * factor, each[1]] if isinstance(each, list) else each * factor for each in declared]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Metadata of a rectilinear array of ``int32``, in every form that a grid may be declared; half of them have shards."""
    shape = draw(SHAPES)
    declared, _ = draw(strategies.rectilinear_chunk_shape_declarations(shape=shape))
    codecs: list[Any] = [{"name": "bytes", "configuration": {"endian": draw(st.sampled_from(["little", "big"]))}}]
    codecs += draw(st.sampled_from([[], [{"name": "gzip", "configuration": {"level": 1}}]]))
    if draw(st.booleans(), label="shards"):
        chunks = tuple(draw(st.integers(1, 3)) for _ in shape)
        declared = [times(one, factor) for one, factor in zip(declared, chunks, strict=True)]
        shape = tuple(extent * factor for extent, factor in zip(shape, chunks, strict=True))
        index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        place = draw(st.sampled_from(["start", "end"]))
        configuration = {"chunk_shape": list(chunks), "codecs": codecs, "index_codecs": index, "index_location": place}
        codecs = [{"name": "sharding_indexed", "configuration": configuration}]
    return {
        "zarr_format": 3, "node_type": "array", "shape": list(shape), "data_type": "int32", "fill_value": 7, "codecs": codecs,
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": declared}},
        "chunk_key_encoding": draw(st.sampled_from([{"name": "default"}, {"name": "v2"}])),
    }  # fmt: skip


def inner_chunks(document: dict[str, Any]) -> list[int]:
    """The chunks inside shards; ones without shards."""
    chunks: list[int] = document["codecs"][0]["configuration"].get("chunk_shape", [1] * len(document["shape"]))
    return chunks


KINDS = ("basic", "orthogonal", "coordinate")


def store_of(document: dict[str, Any]) -> Any:
    return zarr.storage.MemoryStore({"zarr.json": cpu.Buffer.from_bytes(json.dumps(document).encode())})


def same(left: Any, right: Any) -> bool:
    left, right = np.asarray(left), np.asarray(right)
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@st.composite
def selections(draw: st.DrawFn, kind: str, shape: tuple[int, ...]) -> Any:
    """A selection of some kind, without repeats: zarr-python keeps any value of an element that is written twice in shards."""
    if kind == "basic":
        return tuple(slice(*sorted((draw(st.integers(0, n)), draw(st.integers(0, n))))) for n in shape)
    lists = [draw(st.lists(st.integers(0, max(n - 1, 0)), max_size=min(n, 6), unique=True).map(np.array)) for n in shape]
    if kind == "orthogonal":
        return tuple(one.astype("i8") if draw(st.booleans()) else slice(0, n) for one, n in zip(lists, shape, strict=True))
    count = min(len(one) for one in lists)
    return tuple(one[:count].astype("i8") for one in lists)


@st.composite
def shapes_after(draw: st.DrawFn, array: Any, unit: list[int]) -> tuple[int, ...]:
    """Shapes that cut no chunk: what was behind the end of one comes back with zarr-python, and with ours only if it was not written."""
    ends = [{0, *itertools.accumulate(sizes)} for sizes in array.write_chunk_sizes]
    larger = [{n + number * one for number in range(5)} for n, one in zip(array.shape, unit, strict=True)]
    return tuple(draw(st.sampled_from(sorted(some | more))) for some, more in zip(ends, larger, strict=True))


@SETTINGS
@given(data=st.data(), document=documents(), seed=st.integers(0, 999))
def test_programs_by_turns_leave_what_zarr_python_leaves(data: st.DataObject, document: dict[str, Any], seed: int) -> None:
    """Both libraries change one array by turns, and each sees every change; zarr-python alone makes the same changes elsewhere."""
    shared, alone = store_of(document), store_of(document)
    random = np.random.default_rng(seed)
    unit = inner_chunks(document)  # zarr-python refuses to grow shards by parts of their chunks
    ours, theirs, oracle = cuzarr.open_array(shared, mode="r+"), zarr.open_array(shared), zarr.open_array(alone)
    assert ours.write_chunk_sizes == theirs.write_chunk_sizes and ours.read_chunk_sizes == theirs.read_chunk_sizes
    for _ in range(data.draw(st.integers(1, 5), label="steps")):
        writer = data.draw(st.sampled_from(["ours", "theirs"]), label="writer")
        turn: list[Any] = [oracle, ours if writer == "ours" else theirs]
        shape = oracle.shape
        match kind := data.draw(st.sampled_from([*KINDS, "append", "resize"]), label="step"):
            case "append":
                axis = data.draw(st.integers(0, len(shape) - 1), label="axis")
                more = list(shape)
                more[axis] = data.draw(st.integers(0, 7), label="rows") * unit[axis]
                value = random.integers(0, 99, more, "i4")
                for array in turn:
                    array.append(value, axis)
            case "resize":
                new = data.draw(shapes_after(oracle, unit), label="shape")
                for array in turn:
                    array.resize(new)
            case _:
                place = data.draw(selections(kind, shape), label=kind)
                value = random.integers(0, 99, np.shape(getattr(oracle, f"get_{kind}_selection")(place)), "i4")
                for array in turn:
                    getattr(array, f"set_{kind}_selection")(place, value)
        ours, theirs = cuzarr.open_array(shared, mode="r+"), zarr.open_array(shared)
        expected = oracle[...]
        assert same(ours[...], expected) and same(theirs[...], expected)
        assert ours.write_chunk_sizes == theirs.write_chunk_sizes == oracle.write_chunk_sizes
        for kind in KINDS:
            place = data.draw(selections(kind, oracle.shape), label=f"read {kind}")
            found = getattr(ours, f"get_{kind}_selection")(place)
            assert same(found, getattr(oracle, f"get_{kind}_selection")(place))
    assert theirs.metadata == oracle.metadata
    assert sorted(shared._store_dict) == sorted(alone._store_dict)


@SETTINGS
@given(data=st.data(), document=documents(), seed=st.integers(0, 999))
def test_zarrs_reads_what_is_written_and_is_read(data: st.DataObject, document: dict[str, Any], seed: int) -> None:
    """The codec pipeline of zarrs, which may not hand work back to zarr-python."""
    if importlib.util.find_spec("zarrs") is None:
        pytest.skip("skipped: zarrs-python is not installed")
    importlib.import_module("zarrs")
    random = np.random.default_rng(seed)
    with TemporaryDirectory() as folder:
        Path(folder, "zarr.json").write_text(json.dumps(document))
        ours = cuzarr.open_array(folder, mode="r+")
        value = random.integers(0, 99, ours.shape, "i4")
        ours[...] = value
        with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}):
            theirs = zarr.open_array(folder)
            assert same(theirs[...], value)
            place = data.draw(selections("basic", ours.shape))
            assert same(theirs[place], value[place])
            value[place] = random.integers(0, 99, value[place].shape, "i4")
            theirs[place] = value[place]
        assert same(ours[...], value)


@SETTINGS
@given(data=st.data(), document=documents(), seed=st.integers(0, 999))
def test_dask_and_xarray_have_the_chunks_and_elements(data: st.DataObject, document: dict[str, Any], seed: int) -> None:
    """dask's blocks and xarray's chunks are the objects of the array, cut off at its end."""
    dask = pytest.importorskip("dask")
    xarray = pytest.importorskip("xarray")
    dask_array, cuzarr_dask = importlib.import_module("dask.array"), importlib.import_module("cuzarr.dask")
    store = cuzarr.storage.MemoryStore()
    names = [f"d{number}" for number in range(len(document["shape"]))]
    store.set("zarr.json", json.dumps({"zarr_format": 3, "node_type": "group"}).encode())
    store.set("v/zarr.json", json.dumps(document | {"dimension_names": names}).encode())
    array = cuzarr.open_array(store, path="v", mode="r+")
    value = np.random.default_rng(seed).integers(0, 99, array.shape, "i4")
    edges = zarr.open_array(store.zarr_store, path="v").write_chunk_sizes
    with dask.config.set(scheduler="threads", num_workers=2):
        blocks = tuple(data.draw(st.integers(1, max(extent, 1))) for extent in array.shape)
        cuzarr_dask.to_cuzarr(dask_array.from_array(value, chunks=blocks), array)
        assert same(array[...], value)
        lazy = cuzarr_dask.from_cuzarr(array)
        place = data.draw(selections("basic", array.shape))
        assert same(lazy.compute(), value) and same(lazy[place].compute(), value[place])
        with xarray.open_dataset(store, engine="cuzarr", chunks={}, mask_and_scale=False) as dataset:
            assert lazy.chunks == dataset["v"].chunks == tuple(sizes or (0,) for sizes in edges)
            assert same(dataset["v"].values, value)
            assert same(dataset["v"][place].values, value[place])


@SETTINGS
@given(data=st.data(), document=documents(), seed=st.integers(0, 999))
def test_copies_go_to_every_grid(data: st.DataObject, document: dict[str, Any], seed: int) -> None:
    """Copies keep the grid, or get a regular or another rectilinear one; zarr-python reads the same elements and chunks."""
    array = cuzarr.open_array(store_of(document), mode="r+")
    array[...] = value = np.random.default_rng(seed).integers(0, 9, array.shape, "i4")
    shape = array.shape
    chunks = data.draw(st.tuples(*(st.integers(1, n + 2) for n in shape)) | strategies.rectilinear_chunks(shape=shape))
    # Each call gets a store of its own.
    calls = [
        lambda store: cuzarr.copy(array, store),
        lambda store: cuzarr.from_array(store, data=array),
        lambda store: cuzarr.from_array(store, data=array, chunks=chunks, shards=None),
    ]
    if isinstance(chunks, tuple):
        calls.append(lambda store: cuzarr.rechunk(array, store, chunks=chunks, shards=None))
    expected = zarr.create_array({}, shape=shape, chunks=chunks, dtype="i4").write_chunk_sizes
    for call in calls:
        store = cuzarr.storage.MemoryStore()
        copied = call(store)
        theirs = zarr.open_array(store.zarr_store)
        assert same(copied[...], value) and same(theirs[...], value)
        assert copied.write_chunk_sizes == theirs.write_chunk_sizes
        assert theirs.write_chunk_sizes == (array.write_chunk_sizes if call in calls[:2] else expected)


def test_a_shard_that_grows_holds_whole_chunks() -> None:
    """A new shard of 4 rows with chunks of 3 becomes one of 6, of which the array has 4: zarr-python refuses to grow so."""
    store = cuzarr.storage.MemoryStore()
    array = cuzarr.create_array(store, shape=(9,), chunks=(3,), shards=[[3, 6]], dtype="i4", fill_value=7)
    array[...] = np.arange(9)
    array.append(np.arange(9, 13, dtype="i4"))
    assert array.shape == (13,)
    theirs = zarr.open_array(store.zarr_store)
    assert theirs.write_chunk_sizes == array.write_chunk_sizes == ((3, 6, 4),)
    assert same(theirs[...], np.arange(13, dtype="i4"))
    theirs[11:] = -1
    assert same(array[...], np.array([*range(11), -1, -1], "i4"))

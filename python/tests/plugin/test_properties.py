"""Any selection of any array: cuzarr's pipeline, with its repairs and without, and zarr-python's own leave the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings, strategies as st

import cuzarr.zarr

DEFAULT = {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}


@st.composite
def grids(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]:
    """Shape, chunks and perhaps shards."""
    shape = tuple(draw(st.lists(st.integers(1, 13), min_size=1, max_size=3)))
    chunks = tuple(draw(st.integers(1, 6)) for _ in shape)
    factors = draw(st.none() | st.tuples(*(st.integers(1, 3) for _ in shape)))
    return shape, chunks, None if factors is None else tuple(a * b for a, b in zip(chunks, factors, strict=True))


def slices(extent: int) -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-extent - 2, extent + 2)
    return st.builds(slice, bound, bound, st.none() | st.integers(1, extent + 2))


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, Any]:
    """How, and what."""
    kind = draw(st.sampled_from(["basic", "basic", "orthogonal", "coordinate", "mask"]))
    index = [st.integers(-extent, extent - 1) for extent in shape]
    if kind == "mask":
        bits = draw(st.integers(0, 2**32))
        return kind, np.random.default_rng(bits).random(shape) < 0.3
    if kind == "coordinate":
        count = draw(st.integers(1, 6))
        return kind, tuple(np.array(draw(st.lists(one, min_size=count, max_size=count))) for one in index)
    axes = []
    for extent, one in zip(shape, index, strict=True):
        choices = [slices(extent), one]
        if kind == "orthogonal":
            choices.append(st.lists(one, min_size=1, max_size=5).map(np.array))
        axes.append(draw(st.one_of(choices)))
    return kind, tuple(axes)


def without_repeats(kind: str, selection: Any, shape: tuple[int, ...]) -> Any:
    """The selection without elements that it names again."""
    if kind == "coordinate":
        places = [axis % extent for axis, extent in zip(selection, shape, strict=True)]
        unique = np.array(list(dict.fromkeys(zip(*(axis.tolist() for axis in places), strict=True))))
        return tuple(unique.T)
    if kind == "orthogonal":
        axes = zip(selection, shape, strict=True)
        return tuple(np.array(list(dict.fromkeys((a % n).tolist()))) if isinstance(a, np.ndarray) else a for a, n in axes)
    return selection


@pytest.mark.skipif(zarr.__version__.startswith("3.1."), reason="zarr-python 3.1 fails on some of these selections itself")
@given(data=st.data(), grid=grids(), zarr_format=st.sampled_from([2, 3]), seed=st.integers(0, 99))
@settings(max_examples=120, deadline=None)
def test_reads_and_writes_as_zarr_python_does(data: st.DataObject, grid: Any, zarr_format: Any, seed: int) -> None:
    shape, chunks, shards = grid
    shards = shards if zarr_format == 3 else None
    values = np.random.default_rng(seed)
    truth = values.integers(0, 3, shape).astype("i4")
    kind, selection = data.draw(selections(shape))
    # Of an element that is named twice zarr-python keeps any value in shards, where NumPy and we keep the last.
    written = selection if shards is None else without_repeats(kind, selection, shape)
    results = []
    for way in (cuzarr.zarr.enable, lambda: cuzarr.zarr.enable(patch=False), lambda: zarr.config.set(DEFAULT)):
        with way():
            store: dict[str, Any] = {}
            array = zarr.create_array(
                store, shape=shape, chunks=chunks, shards=shards, dtype="i4", zarr_format=zarr_format, compressors=None
            )
            array[:] = truth
            found = getattr(array, f"get_{kind}_selection")(selection)
            extents = np.shape(getattr(array, f"get_{kind}_selection")(written))
            value = np.random.default_rng(seed + 1).integers(0, 3, extents).astype("i4")
            getattr(array, f"set_{kind}_selection")(written, value)
            results.append((found, array[...], {key: buffer.to_bytes() for key, buffer in store.items()}))
    *ours, theirs = results
    for found, elements, stored in ours:
        np.testing.assert_array_equal(found, theirs[0])
        np.testing.assert_array_equal(elements, theirs[1])
        assert stored == theirs[2], "what is stored"


def test_the_last_value_of_an_element_stays_in_shards() -> None:
    index = np.array([0, 0, 0, 1])
    expected = np.zeros((2, 2, 1), "i4")
    value = np.array([[1, 1, 2, 2], [0, 0, 2, 3]], "i4")
    expected[:, index, 0] = value
    for patch in (True, False):
        with cuzarr.zarr.enable(patch=patch):
            array = zarr.create_array({}, shape=(2, 2, 1), chunks=(2, 1, 1), shards=(2, 2, 1), dtype="i4")
            array.set_orthogonal_selection((slice(None), index, 0), value)
            np.testing.assert_array_equal(array[...], expected)

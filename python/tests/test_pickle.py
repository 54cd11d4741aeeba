"""Pickled chunks: refused by name, and read and written where that is allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import CuzarrError, PickleCodecDisabledError

zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")


@pytest.mark.parametrize("dtype", ["<i4", ">f8", "<U3"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("place", ["filter", "compressor"])
def test_pickled_chunks_need_permission(tmp_path: Path, dtype: str, order: str, place: str) -> None:
    value = np.arange(20).reshape(4, 5).astype(dtype)
    pickled = {"filters": [numcodecs.Pickle()]} if place == "filter" else {"compressors": numcodecs.Pickle()}
    written = zarr.create_array(
        tmp_path,
        shape=(4, 5),
        chunks=(2, 5),
        dtype=dtype,
        zarr_format=2,
        order=order,
        **{"filters": None, "compressors": None, **pickled},
    )
    written[:] = value
    with pytest.raises(PickleCodecDisabledError, match="pickle"):
        cuzarr.open_array(tmp_path)[:]
    for key in ("allow_pickle", "array.allow_unsafe_pickle_decode"):
        with cuzarr.config.set({key: True}):
            array = cuzarr.open_array(tmp_path)
            np.testing.assert_array_equal(array[:], value)
            array[1:3, 2:] = value[:2, :3]
            value[1:3, 2:] = value[:2, :3].copy()
            np.testing.assert_array_equal(array[:], value)


def test_pickled_objects_have_no_data_type(tmp_path: Path) -> None:
    zarr.create_array(tmp_path, shape=4, chunks=2, dtype=str, zarr_format=2, filters=[numcodecs.Pickle()], compressors=None)
    with cuzarr.config.set({"allow_pickle": True}), pytest.raises(CuzarrError, match="pickle"):
        cuzarr.open_array(tmp_path)

"""``engine="cuzarr"`` with stores that other libraries wrote: NCZarr, Icechunk, stores without consolidated metadata, rectilinear grids."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr

xarray = pytest.importorskip("xarray")


def nczarr(*, in_attributes: bool) -> dict[str, bytes]:
    """What netcdf-c writes: names of dimensions in a member of ``.zarray``, by newer versions in an attribute; and notes for itself."""
    store: dict[str, Any] = {}
    group = cuzarr.create_group(store, zarr_format=2, attributes={"title": "maps", "_NCZARR_ATTR": {"types": {"title": "<S1"}}})
    for name, shape, paths in [("t", (2, 3), ["/y", "/sub/x"]), ("x", (3,), ["/x"])]:
        array = group.create_array(name, shape=shape, dtype="f4", attributes={"units": "K", "_NCProperties": "version=2"})
        array[...] = np.arange(np.prod(shape)).reshape(shape)
        noted = {"dimrefs": paths, "storage": "chunked"}
        if in_attributes:
            array.update_attributes({"_nczarr_array": noted})
        else:
            document = json.loads(store[f"{name}/.zarray"]) | {"_NCZARR_ARRAY": noted}
            store[f"{name}/.zarray"] = json.dumps(document).encode()
    return store


@pytest.mark.parametrize("in_attributes", [False, True])
def test_nczarr_names_its_dimensions_and_hides_its_notes(in_attributes: bool) -> None:
    dataset = xarray.open_dataset(nczarr(in_attributes=in_attributes), engine="cuzarr", consolidated=False)
    assert dataset.t.dims == ("y", "x") and dataset.t.sel(x=2).values.tolist() == [2, 5]
    assert dataset.attrs == {"title": "maps"} and dataset.t.attrs == {"units": "K"} and dataset.x.attrs == {"units": "K"}


def test_nczarr_opens_as_xarrays_own_engine_opens_it(tmp_path: Path) -> None:
    pytest.importorskip("zarr", minversion="3.4")
    for key, value in nczarr(in_attributes=False).items():
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_bytes(value)
    ours, theirs = (xarray.open_dataset(tmp_path, engine=engine, consolidated=False) for engine in ("cuzarr", "zarr"))
    xarray.testing.assert_identical(ours, theirs)


def test_a_store_without_consolidated_metadata_is_warned_of_at_the_users_line(tmp_path: Path) -> None:
    place = tmp_path / "a.zarr"
    cuzarr.create_group(place).create_array("maps/t", data=[1.0], dimension_names=("x",))
    for call in (
        lambda: xarray.open_dataset(place, engine="cuzarr", group="maps"),
        lambda: xarray.open_datatree(place, engine="cuzarr"),
    ):
        with pytest.warns(
            RuntimeWarning, match="^Failed to open Zarr store with consolidated metadata.*non-consolidated metadata"
        ) as caught:
            call()
        assert [one.filename for one in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xarray.open_dataset(place, engine="cuzarr", group="maps", consolidated=False)
        xarray.open_dataset(cuzarr.open_group(place, mode="r"), engine="cuzarr", group="maps")
    with pytest.warns(UserWarning, match="not part of the Zarr format 3"):
        cuzarr.consolidate_metadata(place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xarray.open_dataset(place, engine="cuzarr", group="maps")


@pytest.mark.parametrize("consolidated", [None, True, False])
def test_sessions_of_icechunk_open_whatever_is_said_of_consolidated_metadata(consolidated: bool | None) -> None:
    icechunk = pytest.importorskip("icechunk")
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repository.writable_session("main")
    cuzarr.create_group(session.store).create_array("t", data=[1.0, 2.0], dimension_names=("x",))
    session.commit("maps")
    for store in (session.store, repository.readonly_session("main").store, cuzarr.storage.make_store(session.store)):
        dataset = xarray.open_dataset(store, engine="cuzarr", consolidated=consolidated)
        assert dataset.t.values.tolist() == [1, 2]


def test_one_key_allows_rectilinear_grids_ours_or_that_of_zarr_python(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3.4")
    with cuzarr.config.set({"array.rectilinear_chunks": True}):
        group = cuzarr.create_group(tmp_path / "r.zarr")
        group.create_array("r", data=np.arange(24.0).reshape(4, 6), chunks=(2, [1, 3, 2]), dimension_names=("y", "x"))
    group.create_array("plain", data=[1.0], dimension_names=("z",))

    def opened(**options: Any) -> Any:
        return xarray.open_dataset(tmp_path / "r.zarr", engine="cuzarr", consolidated=False, **options)

    with pytest.raises(cuzarr.errors.UnsupportedFeatureError, match="rectilinear"):
        opened()
    with pytest.warns(UserWarning, match="'r' is left out: rectilinear .*array.rectilinear_chunks"):
        assert list(opened(strict=False)) == ["plain"]
    with zarr.config.set({"array.rectilinear_chunks": True}):
        dataset = opened()
        assert dataset.r.encoding["chunks"] == (2, (1, 3, 2)) == tuple(dataset.r.encoding["preferred_chunks"].values())
        assert dataset.r.values.tolist() == np.arange(24.0).reshape(4, 6).tolist()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore")
def test_strings_have_the_type_with_which_xarray_writes_them_again(tmp_path: Path, zarr_format: Any) -> None:
    pytest.importorskip("zarr", minversion="3.4")
    text = np.dtypes.StringDType()
    group = cuzarr.create_group(tmp_path / "a.zarr", zarr_format=zarr_format)
    for name, values, dims in [("t", ["a", "bb", "c"], ["x"]), ("x", ["u", "v", "w"], ["x"]), ("alone", "a", [])]:
        named: dict[str, Any] = {"attributes": {"_ARRAY_DIMENSIONS": dims}} if zarr_format == 2 else {"dimension_names": dims}
        group.create_array(name, data=np.array(values, text), **named)
    ours, theirs = (xarray.open_dataset(tmp_path / "a.zarr", engine=engine, consolidated=False) for engine in ("cuzarr", "zarr"))
    for name, variable in ours.variables.items():
        assert variable.dtype == variable.values.dtype == (theirs[name].dtype if zarr_format == 3 else object)
    for selection in ({"x": 1}, {"x": [2, 0]}, {"x": slice(None, None, -1)}):
        xarray.testing.assert_identical(ours.isel(selection).load(), theirs.isel(selection).load())
    ours.load().to_zarr(tmp_path / "b.zarr", zarr_format=zarr_format, consolidated=False)
    again = cuzarr.open_group(tmp_path / "b.zarr", mode="r")
    assert again["t"].dtype == text and again["t"][:].tolist() == ["a", "bb", "c"]

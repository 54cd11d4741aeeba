"""Copies between formats open identical in xarray, whatever marks missing elements and names dimensions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr

zarr = pytest.importorskip("zarr", minversion="3.4")
xarray = pytest.importorskip("xarray")

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated metadata:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part:UserWarning"),
]
FORMATS = [2, 3]
TIMES = np.array(["1850-01-01", "1850-01-02", "NaT", "1850-01-05"], "M8[ns]")


def other(zarr_format: int) -> int:
    return 5 - zarr_format


def climate() -> Any:
    """A dataset with what files of climate models hold: packed fields, several marks of missing values, times and text."""
    temperature = np.array([[[263.0, np.nan, 280.5]] * 2] * 4, "float32")
    cells = ("time", "y", "x")
    marked = np.where(np.isnan(temperature), np.nan, temperature)
    packed = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32767}
    encoding: dict[str, dict[str, Any]] = {
        "packed": packed,
        "unsigned": {"dtype": "uint8", "scale_factor": 2.0, "_FillValue": 255},
        "large": {"dtype": "float32", "_FillValue": 1e20},
        "double": {"dtype": "float64", "_FillValue": -999.0},
        "both": {"dtype": "float32", "_FillValue": 1e20, "missing_value": 1e20},
        "zero": {"dtype": "int32", "_FillValue": 0},
        "plain": {"_FillValue": None},
        "span": {"units": "hours", "dtype": "int64"},
        "seen": {"units": "days since 1850-01-01", "dtype": "int64", "_FillValue": -1},
        "time": {"units": "days since 1850-01-01", "dtype": "int64"},
    }
    values = {
        "packed": (cells, marked, {"units": "K", "valid_range": [0, 400]}),
        "unsigned": (cells, marked),
        "large": (cells, marked),
        "double": (cells, marked),
        "nan": (cells, marked),
        "both": (cells, marked),
        "zero": (cells, marked),
        "plain": (cells, np.zeros((4, 2, 3))),
        "complex": (("x",), np.array([1 + 2j, 0, np.nan])),
        "count": (("x",), np.array([0, 5, 0])),
        "mask": (("x",), np.array([True, False, True])),
        "bytes": (("x",), np.array([b"a", b"", b"abc"])),
        "fixed": (("x",), np.array(["é", "", "abc"], "U3")),
        "text": (("x",), np.array(["é", "", "abc"], object)),
        "seen": (("time",), TIMES),
        "span": (("time",), np.arange(4).astype("m8[h]").astype("m8[ns]")),
        "crs": ((), np.int32(7), {"grid_mapping_name": "latitude_longitude"}),
    }
    coordinates = {
        "time": np.datetime64("1850-01-01", "ns") + np.arange(4) * np.timedelta64(1, "D"),
        "x": [0, 1, 2],
        "area": (("y", "x"), np.ones((2, 3))),
    }
    dataset = xarray.Dataset(values, coordinates, {"title": "t", "history": "é"})
    for name, chosen in encoding.items():
        dataset[name].encoding.update(chosen)
    return dataset


def assert_opens_identical(one: Any, two: Any, *, group: str | None = None) -> None:
    """Whatever opens them, xarray's engine or ours, decoded or as stored."""
    for how in ({}, {"mask_and_scale": False, "decode_times": False}):
        for engine in ({"engine": "zarr"}, {"engine": "cuzarr", "device": "cpu"}):
            before, after = (xarray.open_dataset(place, group=group, **engine, **how).load() for place in (one, two))
            for variable in () if not how else (*before.variables.values(), *after.variables.values()):
                # What is not decoded says so in the form of its format.
                variable.attrs.pop("_FillValue", None)
                if variable.dtype.kind in "OTU":
                    variable.attrs.pop("missing_value", None)
            xarray.testing.assert_identical(before, after)


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("zarr_format", FORMATS)
def test_a_dataset_opens_identical_in_the_other_format_and_back(tmp_path: Path, zarr_format: int, consolidated: bool) -> None:
    source, there, back = (tmp_path / name for name in ("source", "there", "back"))
    climate().to_zarr(source, zarr_format=zarr_format, consolidated=consolidated)
    assert np.isnan(xarray.open_zarr(source)["packed"].values[0, 0, 1])
    cuzarr.copy(source, there, zarr_format=other(zarr_format))
    assert_opens_identical(source, there)
    cuzarr.copy(there, back, zarr_format=zarr_format)
    assert_opens_identical(source, back)
    assert zarr.open_group(there).metadata.zarr_format == other(zarr_format)
    assert (zarr.open_group(there).metadata.consolidated_metadata is not None) == consolidated
    for place in (there, back):
        for _, array in zarr.open_group(place).arrays():
            assert ("_ARRAY_DIMENSIONS" in array.attrs) == (array.metadata.zarr_format == 2)


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_trees_of_groups_open_identical(tmp_path: Path, zarr_format: int) -> None:
    tree = xarray.DataTree.from_dict({"/": xarray.Dataset(attrs={"title": "t"}), "/a": climate(), "/a/b": climate()[["packed"]]})
    tree.to_zarr(tmp_path / "source", zarr_format=zarr_format)
    cuzarr.copy(tmp_path / "source", tmp_path / "there", zarr_format=other(zarr_format))
    before, after = (xarray.open_datatree(tmp_path / name, engine="zarr") for name in ("source", "there"))
    xarray.testing.assert_identical(before.load(), after.load())
    assert_opens_identical(tmp_path / "source", tmp_path / "there", group="a/b")


# What programs other than xarray store: fill values of every kind, also those that xarray then takes for missing.
ARRAYS: dict[str, tuple[Any, Any]] = {
    "int16 zero": (np.array([0, 1, 2, 0], "i2"), 0),
    "int16 seven": (np.array([7, 1, 2, 7], "i2"), 7),
    "big-endian": (np.array([0, 1, 2, 0], ">i4"), 1),
    "uint64": (np.array([0, 1, 2**64 - 1, 5], "u8"), 2**64 - 1),
    "bool": (np.array([True, False, True, False]), False),
    "float16": (np.array([0, 1, np.nan, 3], "f2"), 1.0),
    "float32 1e20": (np.array([0, 1e20, np.nan, 3], "f4"), 1e20),
    "float32 zero": (np.array([0, 1, np.nan, 3], "f4"), 0.0),
    "float64 nan": (np.array([0, 1, np.nan, 3]), np.nan),
    "float64 infinity": (np.array([0, np.inf, -np.inf, 3]), -np.inf),
    "complex64": (np.array([0, 1j, np.nan, 3], "c8"), 0j),
    "fixed text": (np.array(["a", "", "é", "b"], "U2"), "a"),
    "text": (np.array(["a", "", "é", "b"], "T"), ""),
    "none": (np.array([0, 1, 2, 0], "i4"), None),
    "none of text": (np.array(["a", "", "é", "b"], "T"), None),
    "none of bytes": (np.array([b"a", b"", b"x", b"b"], "S1"), None),
}


def stored(
    place: Path, zarr_format: int, name: str, *, elements: slice = slice(None), attributes: dict[str, Any] | None = None
) -> Path:
    values, fill_value = ARRAYS[name]
    group = zarr.create_group(place, zarr_format=zarr_format)
    attributes = dict(attributes or {})
    names: dict[str, Any] = {"dimension_names": ("x",)} if zarr_format == 3 else {}
    if zarr_format == 2:
        attributes["_ARRAY_DIMENSIONS"] = ["x"]
    if zarr_format == 3 and fill_value is None:
        fill_value = zarr.core.array.DEFAULT_FILL_VALUE
    array = group.create_array(
        "v", shape=values.shape, chunks=(2,), dtype=values.dtype, fill_value=fill_value, attributes=attributes, **names
    )
    array[elements] = values[elements]
    return place


@pytest.mark.parametrize("elements", [slice(None), slice(0, 2), slice(0, 0)], ids=["all chunks", "one chunk", "no chunk"])
@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("zarr_format", FORMATS)
def test_arrays_of_other_programs_open_identical(tmp_path: Path, zarr_format: int, name: str, elements: slice) -> None:
    source = stored(tmp_path / "source", zarr_format, name, elements=elements)
    cuzarr.copy(source, tmp_path / "there", zarr_format=other(zarr_format))
    assert_opens_identical(source, tmp_path / "there")
    cuzarr.copy(tmp_path / "there", tmp_path / "back", zarr_format=zarr_format)
    assert_opens_identical(source, tmp_path / "back")
    elements_of = [zarr.open_group(tmp_path / place)["v"][:] for place in ("source", "there", "back")]
    for copied in elements_of[1:]:
        np.testing.assert_array_equal(copied, elements_of[0])


@pytest.mark.parametrize(
    ("name", "noted"),
    [("none", 2), ("none", -1.0), ("float64 nan", None), ("none of text", "a")],
)
def test_a_missing_value_among_the_attributes_is_kept(tmp_path: Path, name: str, noted: Any) -> None:
    attributes = {"_FillValue": noted} if noted is not None else {"missing_value": 3.0}
    source = stored(tmp_path / "source", 2, name, attributes=attributes)
    cuzarr.copy(source, tmp_path / "there", zarr_format=3)
    cuzarr.copy(tmp_path / "there", tmp_path / "back", zarr_format=2)
    assert_opens_identical(source, tmp_path / "there")
    assert_opens_identical(source, tmp_path / "back")


def test_every_chunk_is_stored_where_the_fill_value_is_undefined(tmp_path: Path) -> None:
    # Readers do not agree what a chunk is that is not stored: zeros, or whatever memory held.
    source = stored(tmp_path / "source", 3, "int16 seven", elements=slice(0, 2))
    assert not (source / "v" / "c" / "1").exists()
    there = cuzarr.copy(source, tmp_path / "there", zarr_format=2)
    assert there["v"].metadata.to_dict()["fill_value"] is None
    assert there["v"][:].tolist() == [7, 1, 7, 7]
    # The same within format 2: of zeros, that are stored because somebody wrote them.
    zeros = stored(tmp_path / "zeros", 2, "none", elements=slice(0, 0))
    (zeros / "v" / "0").write_bytes((tmp_path / "there" / "v" / "0").read_bytes())
    with zarr.config.set({"array.write_empty_chunks": True}):
        zarr.open_group(zeros)["v"][:] = 0
    copied = tmp_path / "copied"
    cuzarr.rechunk(zeros, copied, chunks=(1,))
    for place in (tmp_path / "there", copied):
        array = zarr.open_group(place)["v"]
        assert array.nchunks_initialized == array.nchunks
    # A value that is missing says what other chunks hold: those need not be stored.
    plain = stored(tmp_path / "plain", 2, "int16 seven", elements=slice(0, 2))
    assert cuzarr.copy(plain, tmp_path / "sparse", zarr_format=3)["v"].nchunks_initialized == 1


def test_arrays_without_named_dimensions_keep_fill_value_and_attributes() -> None:
    array = cuzarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16", fill_value=7, attributes={"a": 1})
    there = cuzarr.copy(array, {}, zarr_format=2)
    assert (there.fill_value, dict(there.attrs), there.nchunks_initialized) == (7, {"a": 1}, 0)
    back = cuzarr.copy(there, {}, zarr_format=3)
    assert (back.fill_value, dict(back.attrs), back.nchunks_initialized) == (7, {"a": 1}, 0)


def test_bytes_and_dates_lose_the_mark_that_format_3_has_no_form_for(tmp_path: Path) -> None:
    # xarray's reader of format 3 opens no dataset that has one; CORRECTNESS.md says so.
    group = zarr.create_group(tmp_path / "source", zarr_format=2)
    for name, values, fill in [("b", np.array([b"a", b""]), b""), ("d", np.array([0, 1], "M8[ns]"), np.datetime64("NaT", "ns"))]:
        attributes = {"_ARRAY_DIMENSIONS": ["x"]}
        group.create_array(name, shape=(2,), dtype=values.dtype, fill_value=fill, attributes=attributes)[:] = values
    cuzarr.copy(tmp_path / "source", tmp_path / "there", zarr_format=3)
    after = xarray.open_zarr(tmp_path / "there").load()
    assert after["b"].values.tolist() == [b"a", b""] and after["d"].values.astype("i8").tolist() == [0, 1]


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_rechunked_and_by_the_command_they_open_identical_too(tmp_path: Path, zarr_format: int) -> None:
    climate().to_zarr(tmp_path / "source", zarr_format=zarr_format)
    cuzarr.rechunk(tmp_path / "source", tmp_path / "rechunked", chunks=(4, 1, 3), zarr_format=other(zarr_format))
    assert_opens_identical(tmp_path / "source", tmp_path / "rechunked")
    words = ["copy", str(tmp_path / "source"), str(tmp_path / "there"), "--zarr-format", str(other(zarr_format)), "--json"]
    done = subprocess.run([sys.executable, "-m", "cuzarr", *words], check=True, capture_output=True)
    assert json.loads(done.stdout)["target"] == str(tmp_path / "there")
    assert_opens_identical(tmp_path / "source", tmp_path / "there")


def test_a_pyramid_of_format_2_keeps_names_and_missing_values(tmp_path: Path) -> None:
    values = np.arange(2 * 4 * 4, dtype="int16").reshape(2, 4, 4)
    attributes = {"_ARRAY_DIMENSIONS": ["t", "y", "x"], "scale_factor": 0.5, "title": "t"}
    source = cuzarr.create_array({}, shape=values.shape, dtype="int16", fill_value=-1, zarr_format=2, attributes=attributes)
    source[...] = values
    scales = cuzarr.pyramid(source, tmp_path / "scales", levels=2, method="nearest")
    assert scales["1"].shape == (2, 2, 2), "time is not space"
    for level in (scales["0"], scales["1"]):
        assert level.metadata.dimension_names == ("t", "y", "x")
        assert level.attrs["_FillValue"] == -1 and level.attrs["scale_factor"] == 0.5
    one = xarray.open_zarr(tmp_path / "scales", drop_variables="0")["1"]
    np.testing.assert_array_equal(one.values, values[:, ::2, ::2] * 0.5)

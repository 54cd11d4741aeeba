"""Tables of references to HDF5 files: what h5py reads, arrays of the table have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import CuzarrError, InvalidArgumentError, LibraryMissingError, UnsupportedError
from cuzarr.storage import hdf5, joined, make_references

h5py = pytest.importorskip("h5py")

FIELD = (np.random.default_rng(0).normal(size=(10, 30, 41)) * 100).astype("i2")

PIPELINES: dict[str, dict[str, Any]] = {
    "shuffle and zlib": {"chunks": (5, 15, 21), "shuffle": True, "compression": "gzip", "compression_opts": 4},
    "shuffle, zlib and fletcher32": {"chunks": (5, 15, 21), "shuffle": True, "compression": "gzip", "fletcher32": True},
    "zlib": {"chunks": (10, 30, 41), "compression": "gzip"},
    "shuffle": {"chunks": (5, 15, 21), "shuffle": True},
    "fletcher32": {"chunks": (5, 15, 21), "fletcher32": True},
    "none": {"chunks": (5, 15, 21)},
    "contiguous": {},
}


def opened(file: Path, **options: Any) -> cuzarr.Group:
    table = file.with_suffix(".json")
    table.write_text(json.dumps(make_references(file)))
    return cuzarr.open_group(f"reference::{table}", mode="r", **options)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("how", PIPELINES)
def test_chunks_are_read_where_they_lie(tmp_path: Path, how: str, libver: str) -> None:
    with h5py.File(tmp_path / "a.nc", "w", libver=libver) as file:
        time = file.create_dataset("time", data=np.arange(10.0))
        time.make_scale("time")
        time.attrs["units"] = "days since 2000-01-01"
        field = file.create_dataset("in/field", data=FIELD, fillvalue=-9, **PIPELINES[how])
        field.attrs["_FillValue"] = np.array([-9], "i2")
        field.dims[0].attach_scale(time)
        file.create_dataset("in/big-endian", data=FIELD.astype(">f4"), **PIPELINES[how])
    group = opened(tmp_path / "a.nc")
    field = group["in/field"]
    np.testing.assert_array_equal(field[...], FIELD)
    np.testing.assert_array_equal(field[2:9, 5, ::3], FIELD[2:9, 5, ::3])
    np.testing.assert_array_equal(group["in/big-endian"][...], FIELD.astype("f4"))
    assert field.fill_value == -9 and field.attrs["_ARRAY_DIMENSIONS"] == ["time", "phony_dim_1", "phony_dim_2"]
    assert group["time"].attrs["units"] == "days since 2000-01-01" and group["time"].dtype == "f8"
    refs = json.loads((tmp_path / "a.json").read_text())["refs"]
    assert [key for key, value in refs.items() if key.startswith("in/field/0") and isinstance(value, list)]


def test_every_kind_of_dataset_has_its_elements(tmp_path: Path) -> None:
    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "scalar": (np.float64(3.25), {}),
        "texts": (np.array(["ab", "é", ""], object), {"dtype": h5py.string_dtype()}),
        "fixed": (np.array([b"ab", b"c"]), {}),
        "empty": (np.zeros((0, 3), "i4"), {}),
        "booleans": (np.array([True, False]), {}),
        "complex": (np.array([1 + 2j, 3]), {}),
        "grows": (FIELD[0], {"chunks": (7, 7), "maxshape": (None, None)}),
        "tall": (np.arange(70_000, dtype="i4").reshape(7, 10_000), {}),
    }
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, (value, options) in made.items():
            file.create_dataset(name, data=value, **options)
        gaps = file.create_dataset("gaps", (10, 10), "i4", chunks=(5, 5), fillvalue=7)
        gaps[:5, :5] = 1
        marked = file.create_dataset("marked", (10, 10), "f8", chunks=(5, 5), fillvalue=7.5)
        marked[:5, :5] = 1
        marked.attrs["_FillValue"] = np.float64("nan")
        file.create_dataset("never", (4,), "i4", fillvalue=5)
        nan = file.create_dataset("nan", data=np.array([1.0, np.nan]), fillvalue=np.nan)
        nan.attrs["_FillValue"] = np.float64("nan")
        placeholder = file.create_dataset("dimension", (4,), "f4")
        placeholder.make_scale("This is a netCDF dimension but not a netCDF variable.         4")
        file.attrs.update({"title": "é", "number": np.float32(1.5), "list": np.arange(3), "names": ["a", "b"]})
        file["alias"] = h5py.SoftLink("/gaps")
    group = opened(tmp_path / "a.h5")
    for name, (value, _) in made.items():
        assert np.asarray(group[name][...]).tolist() == value.tolist(), name
    with h5py.File(tmp_path / "a.h5") as file:
        for name in ("gaps", "marked", "never", "nan"):
            np.testing.assert_array_equal(group[name][...], file[name][...])
    assert group["marked"].fill_value == 7.5 and np.isnan(group["nan"].fill_value)
    assert "alias" not in group and "dimension" not in group
    assert group.attrs.asdict() == {"title": "é", "number": 1.5, "list": [0, 1, 2], "names": ["a", "b"]}


def test_contiguous_elements_are_cut_into_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "LONGEST_PART", 5000)
    value = np.arange(12 * 300, dtype="i4").reshape(12, 300)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=value)
    array = opened(tmp_path / "a.h5")["a"]
    assert array.chunks == (4, 300)
    np.testing.assert_array_equal(array[...], value)


def test_what_zarr_has_not_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "lzf.h5", "w") as file:
        file.create_dataset("in/a", data=FIELD, chunks=(5, 5, 5), compression="lzf")
    with pytest.raises(UnsupportedError, match=r"lzf\.h5: dataset '/in/a': the filter LZF has no codec"):
        make_references(tmp_path / "lzf.h5")
    with h5py.File(tmp_path / "references.h5", "w") as file:
        file.create_dataset("a", data=np.array([file.ref], h5py.ref_dtype), dtype=h5py.ref_dtype)
    with pytest.raises(UnsupportedError, match="have no type in Zarr"):
        make_references(tmp_path / "references.h5")
    with h5py.File(tmp_path / "mask.h5", "w") as file:
        dataset = file.create_dataset("a", (4,), "i4", chunks=(4,), compression="gzip")
        dataset.id.write_direct_chunk((0,), np.arange(4, dtype="i4").tobytes(), filter_mask=1)
    with pytest.raises(UnsupportedError, match="leaves out filters"):
        make_references(tmp_path / "mask.h5")
    (tmp_path / "no.h5").write_bytes(b"no")
    for path in ("no.h5", "none.h5"):
        with pytest.raises((CuzarrError, OSError)):
            make_references(tmp_path / path)


def test_h5py_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(LibraryMissingError) as raised:
        make_references(tmp_path / "a.nc")
    assert raised.value.hint == "pip install h5py"


def test_xarray_opens_a_table_as_it_opens_the_file(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    with h5py.File(tmp_path / "a.nc", "w") as file:
        for name, value in (("y", np.arange(4.0)), ("x", np.arange(6.0))):
            file.create_dataset(name, data=value).make_scale(name)
        packed = file.create_dataset("t", data=np.arange(24, dtype="i2").reshape(4, 6), chunks=(2, 6), compression="gzip")
        packed.attrs.update({"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.array([3], "i2")})
        for axis, name in enumerate("yx"):
            packed.dims[axis].attach_scale(file[name])
    (tmp_path / "a.json").write_text(json.dumps(make_references(tmp_path / "a.nc")))
    dataset = xarray.open_dataset(f"reference::{tmp_path}/a.json", engine="cuzarr")
    expected = np.arange(24.0).reshape(4, 6) * 0.5 + 10
    expected[0, 3] = np.nan
    np.testing.assert_array_equal(dataset.t.values, expected)
    assert dataset.t.dims == ("y", "x") and dataset.x.values.tolist() == list(range(6))


def test_the_command_writes_a_table(tmp_path: Path) -> None:
    for name in ("a.nc", "b.nc"):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("t", data=FIELD, chunks=(5, 30, 41), shuffle=True, compression="gzip")

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "cuzarr", "references", "make", "--json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
        return done.returncode, json.loads(done.stdout)

    status, answer = run("a.nc")
    assert status == 0 and answer["table"] == "a.json" and answer["references"] == 5
    np.testing.assert_array_equal(cuzarr.open_group(f"reference::{tmp_path}/a.json", mode="r")["t"][...], FIELD)
    status, answer = run("a.nc")
    assert status == 1 and answer["error"]["hint"] == "use --overwrite, or -o TABLE"
    assert run("a.nc", "b.nc", "-o", "both.json")[0] == 0 and run("a.nc", "--overwrite")[0] == 0
    both = cuzarr.open_group(f"reference::{tmp_path}/both.json", mode="r")
    np.testing.assert_array_equal(both["b/t"][...], FIELD)
    for number, name in enumerate(("c.nc", "d.nc")):
        write_day(tmp_path / name, number)
    assert run("c.nc", "d.nc", "--join", "time", "-o", "joined.json")[0] == 0
    assert cuzarr.open_group(f"reference::{tmp_path}/joined.json", mode="r")["t"].shape == (7, 20, 30)
    status, answer = run("c.nc", "d.nc", "--join", "depth", "-o", "none.json")
    assert status == 1 and "no variable with the dimension 'depth'" in answer["error"]["message"]
    with pytest.raises(InvalidArgumentError, match="two files have the name 'a'"):
        make_references([tmp_path / "a.nc", tmp_path / "a.json"])
    status, answer = run("none.nc")
    assert status == 1 and "none.nc" in answer["error"]["message"]


# ------------------------------------------------------------------------------------------------- files that are joined

DAYS = (3, 4, 2)


def write_day(path: Path, number: int, days: int = 0, **options: Any) -> np.ndarray[Any, Any]:
    """A file of some days, as a model writes them, and its field."""
    days = days or DAYS[number]
    field = (np.random.default_rng(number).normal(size=(days, 20, 30)) * 100).astype("i2")
    given = {"chunks": (1, 20, 30), "shuffle": True, "compression": "gzip"} | options
    since = given.pop("since", "days since 2000-01-01")
    with h5py.File(path, "w") as file:
        file.attrs["title"] = f"file {number}"
        start = sum(DAYS[:number]) if since == "days since 2000-01-01" else 0
        for name, value in (("time", np.arange(days, dtype="f8") + start), ("y", np.arange(20.0)), ("x", np.arange(30.0))):
            axis = file.create_dataset(name, data=value, **({"chunks": (512,), "maxshape": (None,)} if name == "time" else {}))
            axis.make_scale(name)
        file["time"].attrs.update({"units": since, "calendar": "standard"})
        variable = file.create_dataset("t", data=field, **given)
        variable.attrs.update({"scale_factor": 0.5, "units": "K", "_FillValue": np.array([-999], "i2")})
        mask = file.create_dataset("mask", data=np.arange(600, dtype="i4").reshape(20, 30) + number)
        names = file.create_dataset("label", data=[f"day {at + start}" for at in range(days)], dtype=h5py.string_dtype())
        for dataset, axes in ((variable, ("time", "y", "x")), (mask, ("y", "x")), (names, ("time",))):
            for at, name in enumerate(axes):
                dataset.dims[at].attach_scale(file[name])
    return field


@pytest.mark.parametrize("how", ["chunks", "contiguous", "other dates", "gaps"])
def test_joined_files_have_the_values_of_xarray(tmp_path: Path, how: str) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    options: dict[str, Any] = {"contiguous": {"chunks": None, "shuffle": False, "compression": None}}.get(how, {})
    paths = [tmp_path / f"{number}.nc" for number in range(3)]
    fields = []
    for number, path in enumerate(paths):
        since = {"since": f"days since 2000-01-0{sum(DAYS[:number]) + 1} 00:00:00"} if how == "other dates" and number else {}
        fields.append(write_day(path, number, **options, **since))
    if how == "gaps":
        with h5py.File(paths[1], "r+") as file:
            del file["t"]
            filled = file.create_dataset(
                "t", (4, 20, 30), "i2", chunks=(1, 20, 30), shuffle=True, compression="gzip", fillvalue=-999
            )
            filled[2] = 5
            filled.attrs.update({"scale_factor": 0.5, "units": "K", "_FillValue": np.array([-999], "i2")})
            for at, name in enumerate(("time", "y", "x")):
                filled.dims[at].attach_scale(file[name])
    (tmp_path / "all.json").write_text(json.dumps(make_references(paths, join="time")))
    group = cuzarr.open_group(f"reference::{tmp_path}/all.json", mode="r")
    assert group["t"].shape == (9, 20, 30) and group.attrs["title"] == "file 0"
    if how != "gaps":
        np.testing.assert_array_equal(group["t"][...], np.concatenate(fields))
        assert json.loads((tmp_path / "all.json").read_text())["refs"]["t/3.0.0"][0] == f"file://{paths[1]}"
    ours = xarray.open_dataset(f"reference::{tmp_path}/all.json", engine="cuzarr")
    expected = xarray.open_mfdataset(
        paths, engine="h5netcdf", combine="nested", concat_dim="time", data_vars="minimal", coords="minimal", compat="override"
    )
    assert ours.sizes == expected.sizes == {"time": 9, "y": 20, "x": 30}
    for name in ("t", "time", "y", "x", "mask"):
        np.testing.assert_array_equal(ours[name].values, expected[name].values, err_msg=name)
    assert ours.label.values.tolist() == expected.label.values.tolist()


def test_files_that_do_not_follow_each_other_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_day(tmp_path / "a.nc", 0)

    def refused(error: type[Exception], match: str, change: Any = None, **options: Any) -> None:
        write_day(tmp_path / "b.nc", 1, **options)
        if change is not None:
            with h5py.File(tmp_path / "b.nc", "r+") as file:
                change(file)
        with pytest.raises(error, match=match):
            make_references([tmp_path / "a.nc", tmp_path / "b.nc"], join="time")

    def attribute(name: str, value: Any) -> Any:
        return lambda file: file["t"].attrs.__setitem__(name, value)

    refused(InvalidArgumentError, r"the attribute 'units' is degC in '.*b\.nc', expected K", attribute("units", "degC"))
    refused(InvalidArgumentError, "the attribute 'scale_factor' is 0.25", attribute("scale_factor", 0.25))
    refused(InvalidArgumentError, "the attribute 'units' is hours since", since="hours since 2000-01-01")
    refused(InvalidArgumentError, r"b\.nc' has the variable 'more'", lambda file: file.create_dataset("more", data=[1]))
    refused(InvalidArgumentError, "the coordinate is another one", lambda file: file["x"].write_direct(np.arange(30.0) + 1))

    def other_type(file: Any) -> None:
        del file["mask"]
        file["mask"] = np.zeros((20, 30), "f4")

    refused(InvalidArgumentError, "variable 'mask'.*(dimensions|data type)", other_type)
    with pytest.raises(InvalidArgumentError, match=r"(?s)no variable with the dimension 'z'.*its dimensions: time, x, y"):
        make_references([tmp_path / "a.nc"], join="z")
    with pytest.raises(InvalidArgumentError, match="files is empty"):
        make_references([], join="time")
    # Chunks of two days do not end where a file of three does.
    write_day(tmp_path / "a.nc", 0, chunks=(2, 20, 30))
    table = make_references([tmp_path / "a.nc", tmp_path / "a.nc"], join="time")
    assert table["refs"]["t/0.0.0"].startswith("base64:") and "t/1.0.0" not in table["refs"]
    monkeypatch.setattr(joined, "HELD_BYTES", 1000)
    with pytest.raises(
        UnsupportedError, match=r"(?s)variable 't'.*do not end where the files do \(\[3, 3\] along 'time'\).*nccopy -c time/1"
    ):
        make_references([tmp_path / "a.nc", tmp_path / "a.nc"], join="time")

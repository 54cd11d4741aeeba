"""Tables of references to HDF5 files: what h5py reads, arrays of the table have."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import CuzarrError, CuzarrUserWarning, InvalidArgumentError, LibraryMissingError, UnsupportedError
from cuzarr.references import make_references

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
    monkeypatch.setattr("cuzarr.references.layout.LONGEST_PART", 5000)
    value = np.arange(12 * 300, dtype="i4").reshape(12, 300)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=value)
    array = opened(tmp_path / "a.h5")["a"]
    assert array.chunks == (4, 300)
    np.testing.assert_array_equal(array[...], value)


def test_a_file_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "lzf.h5", "w") as file:
        file.create_dataset("in/a", data=FIELD, chunks=(5, 5, 5), compression="lzf")
    with pytest.raises(UnsupportedError, match=r"lzf\.h5: dataset '/in/a': the filter LZF has no codec"):
        make_references(tmp_path / "lzf.h5")
    with h5py.File(tmp_path / "references.h5", "w") as file:
        file.create_dataset("a", data=np.array([file.ref], h5py.ref_dtype), dtype=h5py.ref_dtype)
    with pytest.raises(UnsupportedError, match="have no type in Zarr"):
        make_references(tmp_path / "references.h5")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"no", "is no netCDF-4 or HDF5 file: it has no signature"),
        (b"CDF\x01" + bytes(100), "is a netCDF-3 file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "cannot be opened"),
        (None, "cannot be read: No such file"),
    ],
)
def test_files_that_are_no_hdf5_files_are_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "odd.nc").write_bytes(content)
    with pytest.raises(CuzarrError, match=rf"odd\.nc' {said}"):
        make_references(tmp_path / "odd.nc")


def test_folders_and_truncated_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CuzarrError, match="is a folder"):
        make_references(tmp_path)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=FIELD)
    whole = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CuzarrError, match=r"a\.h5' cannot be opened"):
        make_references(tmp_path / "a.h5")


def test_a_file_with_a_damaged_root_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file["a"] = FIELD
    damaged = bytearray((tmp_path / "a.h5").read_bytes())
    damaged[damaged.index(b"OHDR") + 10] ^= 255
    (tmp_path / "a.h5").write_bytes(damaged)
    with pytest.raises(CuzarrError, match=r"a\.h5' cannot be read: .*checksum"):
        make_references(tmp_path / "a.h5")


def low_level(file: Any, name: str, stored: Any, values: np.ndarray[Any, Any], memory: Any = None) -> None:
    """A dataset whose type in the file is one of HDF5's low-level interface."""
    space = h5py.h5s.create_simple(values.shape)
    dataset = h5py.h5d.create(file.id, name.encode(), stored, space)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values, memory)


def integer(precision: int = 16, offset: int = 0) -> Any:
    stored = h5py.h5t.STD_I16LE.copy()
    stored.set_precision(precision)
    stored.set_offset(offset)
    return stored


def bfloat16() -> Any:
    stored = h5py.h5t.IEEE_F32LE.copy()
    stored.set_fields(15, 7, 8, 0, 7)
    stored.set_precision(16)
    stored.set_size(2)
    return stored


def write_odd(path: Path) -> dict[str, str]:
    """A file with datasets whose bytes are no elements of Zarr's, and for each a part of the reason."""
    fields = np.dtype({"names": ["hi", "lo"], "formats": ["<i2", "<i2"], "offsets": [2, 0], "itemsize": 4})
    padded = np.dtype({"names": ["a", "b"], "formats": ["i1", "<i4"], "offsets": [0, 4], "itemsize": 8})
    trailing = np.dtype({"names": ["a", "b"], "formats": ["<i4", "<f8"], "offsets": [0, 4], "itemsize": 20})
    with h5py.File(path, "w") as file:
        file.create_dataset("good", data=FIELD, chunks=(5, 15, 21), compression="gzip")
        file.create_dataset("trailing", data=np.array([(1, -10)] * 300, trailing))
        file.create_dataset("reordered", data=np.array([(1, -10)] * 300, fields), chunks=(150,), compression="gzip")
        file.create_dataset("padded", data=np.array([(1, -10)] * 300, padded))
        low_level(file, "precise", integer(12), np.arange(-300, 300, dtype="i2"))
        low_level(file, "moved", integer(12, 4), np.arange(-300, 300, dtype="i2"))
        low_level(file, "bfloat16", bfloat16(), np.linspace(0, 1, 600, dtype="f4"))
        file.create_dataset("lzf", data=FIELD, compression="lzf")
        file.create_dataset("null", data=h5py.Empty("f4"))
        file.create_dataset("outside", (300,), "f4", external=[("raw.bin", 0, h5py.h5f.UNLIMITED)])
        layout = h5py.VirtualLayout((2, *FIELD.shape), "i2")
        layout[0] = h5py.VirtualSource(path, "good", FIELD.shape)
        file.create_virtual_dataset("virtual", layout, fillvalue=-1)
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((301,))
        created.set_fletcher32()
        created.set_shuffle()
        space = h5py.h5s.create_simple((301,))
        h5py.h5d.create(file.id, b"unaligned", h5py.h5t.IEEE_F64LE, space, created).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.arange(301.0)
        )
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/x")
        file["back\\slash"] = [1]
        file[b"latin\xe9"] = [1]
        file["good"].parent["itself"] = file["/"]
    return {
        "reordered": r"fields begin at the bytes \[2, 0\]",
        "padded": r"(fields begin at|elements have)",
        "trailing": "elements have 20 bytes, and their fields 12",
        "precise": "12 bits from bit 0",
        "moved": "12 bits from bit 4",
        "bfloat16": "",
        "lzf": "the filter LZF has no codec",
        "null": "dataspace is null",
        "outside": "in other files",
        "virtual": "virtual dataset",
        "unaligned": "no whole elements",
        "elsewhere": r"link to the file 'other\.h5'",
        r"back\\slash": "its name",
        r"latin\\udce9": "its name",
        "itself": "is the group '/'",
    }


def test_variables_whose_bytes_are_no_elements_are_left_out_by_name(tmp_path: Path) -> None:
    reasons = write_odd(tmp_path / "odd.h5")
    with pytest.warns(CuzarrUserWarning) as warned:
        table = make_references(tmp_path / "odd.h5")
    messages = [str(one.message) for one in warned]
    for name, reason in reasons.items():
        found = [message for message in messages if re.search(rf"odd\.h5: variable '{name}' is left out: .*{reason}", message)]
        assert len(found) == 1, (name, messages)
    assert len(messages) == len(reasons)
    (tmp_path / "odd.json").write_text(json.dumps(table))
    group = cuzarr.open_group(f"reference::{tmp_path}/odd.json", mode="r")
    assert list(group) == ["good"]
    np.testing.assert_array_equal(group["good"][...], FIELD)


def test_strict_refuses_what_would_be_left_out_and_drop_names_it(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = FIELD
        file.create_dataset("in/lzf", data=FIELD, compression="lzf")
    with pytest.raises(UnsupportedError, match="dataset '/in/lzf': the filter LZF has no codec"):
        make_references(tmp_path / "a.h5", strict=True)
    for drop in ("/in/lzf", ["in"]):
        refs = make_references(tmp_path / "a.h5", strict=True, drop=drop)["refs"]
        assert "good/.zarray" in refs and "in/lzf/.zarray" not in refs
    with pytest.raises(InvalidArgumentError, match="drop names 'lzf', which is in none of the files"):
        make_references(tmp_path / "a.h5", drop=["lzf"])


def test_text_in_the_file_is_read_as_hdf5_reads_it(tmp_path: Path) -> None:
    raw = np.array([b"ab      ", b"c\0defghi", b"        "], "S8")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, pad in (
            ("spaces", h5py.h5t.STR_SPACEPAD),
            ("clean", h5py.h5t.STR_NULLTERM),
            ("garbage", h5py.h5t.STR_NULLTERM),
        ):
            stored = h5py.h5t.C_S1.copy()
            stored.set_size(8)
            stored.set_strpad(pad)
            low_level(file, name, stored, np.array([b"ab", b"c", b""], "S8") if name == "clean" else raw, stored)
        file["scalar"] = "text"
        file["scalar"].attrs["long_name"] = "é"
        expected = {name: file[name][...] for name in file}
    with pytest.warns(CuzarrUserWarning, match="variable 'garbage' is left out: its chunk 0 has other elements"):
        group = opened(tmp_path / "a.h5")
    assert sorted(group) == ["clean", "scalar", "spaces"]
    for name in ("spaces", "clean"):
        assert group[name][...].tolist() == expected[name].tolist()
    assert group["scalar"][()] == "text"


def test_a_table_with_a_scalar_text_opens_in_xarray(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scalar"] = "text"
        file["field"] = FIELD
    (tmp_path / "a.json").write_text(json.dumps(make_references(tmp_path / "a.h5")))
    with xarray.open_dataset(f"reference::{tmp_path}/a.json", engine="cuzarr") as dataset:
        assert str(dataset.scalar.values) == "text" and dataset.field.shape == FIELD.shape


def test_fill_values_are_elements(tmp_path: Path) -> None:
    """Among them the text of character variables, as Argo's floats have it."""
    record = np.dtype([("a", "<i2"), ("b", "<f4")])
    made: dict[str, tuple[Any, Any, Any]] = {
        "characters": (np.array([b"A", b" "], "S1"), None, np.bytes_(b" ")),
        "words": (np.array([b"ab", b"c"], "S2"), None, "zz"),
        "complex": (np.zeros(2, "c16"), complex(1, np.nan), None),
        "record": (np.zeros(2, record), np.array((1, 2), record)[()], None),
        "floats": (np.zeros(2, "i2"), None, np.float64(-999)),
        "no number of its own": (np.zeros(2, "i2"), None, np.float64("nan")),
        "several": (np.zeros(2, "i2"), None, np.array([1, 2], "i2")),
        "unsigned": (np.zeros(2, "i1"), None, np.uint8(255)),
    }
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, (value, fill, attribute) in made.items():
            if fill is None:
                file[name] = value
            else:
                file.create_dataset(name, (6,), value.dtype, chunks=(2,), fillvalue=fill)[:2] = value
            if attribute is not None:
                file[name].attrs["_FillValue"] = attribute
        file["unsigned"].attrs["_Unsigned"] = "true"
    group = opened(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        for name in made:
            assert group[name][...].tobytes() == file[name][...].tobytes(), name
    assert group["characters"].fill_value == b" " and group["floats"].fill_value == -999
    assert group["unsigned"].fill_value == -1
    assert np.isnan(group["no number of its own"].attrs["missing_value"]) and group["several"].attrs["missing_value"] == [1, 2]


def masked(file: Any, name: str, masks: list[int], **options: Any) -> np.ndarray[Any, Any]:
    """A variable of chunks that leave out filters: those whose bits are set."""
    value = np.arange(1000 * len(masks), dtype="i4")
    dataset = file.create_dataset(name, value.shape, "i4", chunks=(1000,), **options)
    for number, mask in enumerate(masks):
        chunk = value[1000 * number : 1000 * (number + 1)].tobytes()
        if not mask & 1:
            chunk = np.frombuffer(chunk, "u1").reshape(-1, 4).T.tobytes()
        dataset.id.write_direct_chunk((1000 * number,), chunk if mask & 2 else zlib.compress(chunk), filter_mask=mask)
    return value


def test_chunks_that_leave_out_filters_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"none skips": [0, 0], "all skip": [2, 2, 2], "all skip both": [3, 3], "mixed": [0, 0, 2, 3, 1, 0]}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        values = {name: masked(file, name, masks, shuffle=True, compression="gzip") for name, masks in made.items()}
        skipped = file.create_dataset("lzf", (1000,), "i4", chunks=(1000,), compression="lzf")
        skipped.id.write_direct_chunk((0,), np.arange(1000, dtype="i4").tobytes(), filter_mask=1)
    group = opened(tmp_path / "a.h5")
    for name, value in values.items():
        np.testing.assert_array_equal(group[name][...], value, err_msg=name)
    np.testing.assert_array_equal(group["lzf"][...], np.arange(1000))
    refs = json.loads((tmp_path / "a.json").read_text())["refs"]
    assert all(isinstance(refs[f"all skip/{number}"], list) for number in range(3))
    monkeypatch.setattr("cuzarr.references.layout.INLINE_BYTES", 4000)
    with pytest.warns(CuzarrUserWarning, match="variable 'mixed' is left out: .* leave out other filters than the rest"):
        make_references(tmp_path / "a.h5")


def test_zstd_levels_may_be_negative(tmp_path: Path) -> None:
    numcodecs = pytest.importorskip("numcodecs")
    value = np.arange(5000, dtype="i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((5000,))
        created.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ((1 << 32) - 5,))
        dataset = h5py.h5d.create(file.id, b"a", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((5000,)), created)
        dataset.write_direct_chunk((0,), numcodecs.Zstd(-5).encode(value.tobytes()))
    np.testing.assert_array_equal(opened(tmp_path / "a.h5")["a"][...], value)


def test_a_prime_number_of_rows_is_not_cut_into_single_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuzarr.references.layout.LONGEST_PART", 5000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = np.arange(10_007)
    array = opened(tmp_path / "a.h5")["a"]
    assert array.chunks == (10_007,)
    np.testing.assert_array_equal(array[...], np.arange(10_007))


def test_elements_that_were_never_written_take_no_memory(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("contiguous", (1 << 40, 1 << 20), "f8", fillvalue=2)
        file.create_dataset("chunked", (1 << 40, 1 << 20), "f8", chunks=(10, 10), fillvalue=3)
    refs = make_references(tmp_path / "a.h5")["refs"]
    fills = [json.loads(refs[f"{name}/.zarray"])["fill_value"] for name in ("contiguous", "chunked")]
    assert fills == [2.0, 3.0]


def test_files_behind_other_bytes_are_read_at_their_place(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=1024) as file:
        file.create_dataset("chunked", data=FIELD, chunks=(5, 15, 21), compression="gzip")
        file["contiguous"] = FIELD
    group = opened(tmp_path / "a.h5")
    for name in ("chunked", "contiguous"):
        np.testing.assert_array_equal(group[name][...], FIELD)


def test_files_in_a_store_become_references_to_their_urls(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file.create_dataset("field", data=FIELD, chunks=(5, 15, 21), shuffle=True, compression="gzip")
    bucket = cuzarr.storage.MemoryStore.at("memory://references-bucket")
    bucket.set("in/a.nc", (tmp_path / "a.nc").read_bytes())
    table = make_references("memory://references-bucket/in/a.nc")
    assert table["refs"]["field/0.0.0"][0] == "memory://references-bucket/in/a.nc"
    (tmp_path / "a.json").write_text(json.dumps(table))
    options = {"allow": "memory://references-bucket/"}
    group = cuzarr.open_group(f"reference::{tmp_path}/a.json", mode="r", storage_options=options)
    np.testing.assert_array_equal(group["field"][...], FIELD)
    several = make_references(["memory://references-bucket/in/a.nc", f"file://{tmp_path}/a.nc"][:1])
    assert "a/field/.zarray" in several["refs"]
    with pytest.raises(CuzarrError, match=r"memory://references-bucket/none\.nc' cannot be read: there is no such file"):
        make_references("memory://references-bucket/none.nc")
    with pytest.raises(UnsupportedError, match="a table cannot name 'ftp://host/a.nc'"):
        make_references("ftp://host/a.nc")


# --------------------------------------------------------------------------------------------------- what netCDF-4 means


def test_dimensions_have_the_names_of_netcdf(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        for number, (name, extent) in enumerate((("station", 4), ("letter", 6), ("depth", 3))):
            scale = file.create_dataset(name, (extent,) if name != "station" else (4, 6), "S1" if name == "station" else "f4")
            scale.make_scale(name if name != "depth" else "This is a netCDF dimension but not a netCDF variable.         3")
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
        # A coordinate of two dimensions, and a dimension whose placeholder has the number.
        file["station"].attrs["_Netcdf4Coordinates"] = np.array([0, 1], "i4")
        file["station"].attrs["_Netcdf4Dimid"] = np.int32(0)
        file.create_dataset("_nc4_non_coord_depth", data=np.arange(4.0)).dims[0].attach_scale(file["letter"])
        file.create_dataset("loose", data=np.zeros((3, 5)))
        file.create_dataset("looser", data=np.zeros((7, 5)))
    group = opened(tmp_path / "a.nc")

    def dimensions(name: str) -> Any:
        return group[name].attrs["_ARRAY_DIMENSIONS"]

    assert dimensions("station") == ["station", "letter"]
    assert sorted(group) == ["depth", "letter", "loose", "looser", "station"]
    assert group["depth"][...].tolist() == [0, 1, 2, 3]
    assert dimensions("loose") == ["phony_dim_0", "phony_dim_1"] and dimensions("looser") == ["phony_dim_2", "phony_dim_1"]


@pytest.mark.parametrize("kept", [3, 4])
def test_variables_with_fewer_rows_are_as_long_as_their_dimension(tmp_path: Path, kept: int) -> None:
    xarray = pytest.importorskip("xarray")
    value = np.arange(kept * 300, dtype="i4").reshape(kept, 300)
    with h5py.File(tmp_path / "a.nc", "w") as file:
        for name, extent in (("time", 7), ("x", 300)):
            maxshape = (None,) if name == "time" else None
            file.create_dataset(name, data=np.arange(float(extent)), maxshape=maxshape).make_scale(name)
        options = {"chunks": (2, 300), "maxshape": (None, 300), "fillvalue": -7}
        short = file.create_dataset("short", data=value, compression="gzip", **options)
        odd = file.create_dataset("odd", (kept, 300), "i4", **options)
        # Elements behind the end of the dataset that are no fill values.
        for row in range(0, kept, 2):
            odd.id.write_direct_chunk((row, 0), np.concatenate([value[row : row + 2], np.full((2, 300), 99, "i4")])[:2].tobytes())
        texts = file.create_dataset("texts", (kept,), h5py.string_dtype(), maxshape=(None,))
        texts[:] = ["a"] * kept
        for dataset in (short, odd, texts):
            for axis, name in zip(range(dataset.ndim), ("time", "x"), strict=False):
                dataset.dims[axis].attach_scale(file[name])
            if dataset is not texts:
                dataset.attrs["_FillValue"] = np.int32(-7)
    group = opened(tmp_path / "a.nc")
    for name in ("short", "odd"):
        assert group[name].shape == (7, 300)
        np.testing.assert_array_equal(group[name][:kept], value)
        assert (group[name][kept:] == -7).all()
    assert group["texts"][...].tolist() == ["a"] * kept + [""] * (7 - kept)
    with xarray.open_dataset(f"reference::{tmp_path}/a.json", engine="cuzarr") as dataset:
        assert dataset.sizes == {"time": 7, "x": 300} and int(dataset.short.count()) == kept * 300


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
    assert status == 1 and answer["error"]["hint"] == "use --overwrite, or another name"
    assert run("a.nc", "b.nc", "-o", "both.json")[0] == 0 and run("a.nc", "--overwrite")[0] == 0
    both = cuzarr.open_group(f"reference::{tmp_path}/both.json", mode="r")
    np.testing.assert_array_equal(both["b/t"][...], FIELD)
    for number, name in enumerate(("c.nc", "d.nc")):
        write_day(tmp_path / name, number)
    assert run("c.nc", "d.nc", "--join", "time", "-o", "joined.json")[0] == 0
    assert cuzarr.open_group(f"reference::{tmp_path}/joined.json", mode="r")["t"].shape == (7, 20, 30)
    status, answer = run("c.nc", "d.nc", "--join", "depth", "-o", "none.json")
    assert status == 2 and "no variable with the dimension 'depth'" in answer["error"]["message"]
    with pytest.raises(InvalidArgumentError, match="two files have the name 'a'"):
        make_references([tmp_path / "a.nc", tmp_path / "a.json"])
    status, answer = run("none.nc")
    assert status == 1 and "none.nc" in answer["error"]["message"]


def test_the_command_replaces_no_file_that_it_reads(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["t"] = FIELD
    before = (tmp_path / "a.nc").read_bytes()
    (tmp_path / "other.nc").write_bytes(before)
    cuzarr.create_array(tmp_path / "z.zarr", data=FIELD)
    for kept, what in (("other.nc", "an HDF5 file"), ("z.zarr/zarr.json", "metadata of an array or group")):
        status, answer, _ = command(tmp_path, "a.nc", "-o", kept, "--overwrite")
        assert status == 1 and f"it is {what}" in answer["error"]["message"]
    assert (tmp_path / "other.nc").read_bytes() == before
    assert cuzarr.open_array(tmp_path / "z.zarr", mode="r").shape == FIELD.shape
    (tmp_path / "link.json").symlink_to("a.nc")
    (tmp_path / "hard.json").hardlink_to(tmp_path / "a.nc")
    (tmp_path / "a.json").symlink_to("gone")
    for output in ("a.nc", "link.json", "hard.json"):
        status, answer, _ = command(tmp_path, "a.nc", "-o", output, "--overwrite")
        assert status == 2 and "belongs to what is read" in answer["error"]["message"]
    assert command(tmp_path, "a.nc")[1]["error"]["message"] == "cannot write 'a.json': it exists already"
    assert (tmp_path / "a.nc").read_bytes() == before


def test_the_command_tells_what_it_left_out_and_what_to_allow(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "tables").mkdir()
    with h5py.File(tmp_path / "data/a.nc", "w") as file:
        file["t"] = FIELD
        file.create_dataset("odd", data=FIELD, compression="lzf")
    status, answer, warned = command(tmp_path, "data/a.nc", "-o", "tables/a.json")
    assert status == 0 and answer["allow"] == [f"file://{tmp_path}/data/"]
    assert [(one["variable"], one["reason"]) for one in answer["left_out"]] == [("odd", "the filter LZF has no codec")]
    assert "a.nc: variable 'odd' is left out: the filter LZF has no codec" in warned
    url = f"reference::{tmp_path}/tables/a.json"
    group = cuzarr.open_group(url, mode="r", storage_options={"allow": answer["allow"][0]})
    np.testing.assert_array_equal(group["t"][...], FIELD)
    assert command(tmp_path, "data/a.nc", "--strict", "-o", "b.json")[0] == 1
    status, answer, _ = command(tmp_path, "data/a.nc", "--strict", "--drop", "odd", "-o", "b.json")
    assert status == 0 and answer["left_out"] == [] and answer["allow"] == []


def command(place: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    run = [sys.executable, "-m", "cuzarr", "references", "make", "--json", *arguments]
    done = subprocess.run(run, capture_output=True, text=True, cwd=place, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


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


def test_bounds_of_times_are_moved_with_their_times(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    paths = [tmp_path / f"{number}.nc" for number in range(3)]
    for number, path in enumerate(paths):
        write_day(path, number, since=f"days since 2000-01-0{sum(DAYS[:number]) + 1}" if number else "days since 2000-01-01")
        with h5py.File(path, "r+") as file:
            bounds = file.create_dataset("time_bounds", data=file["time"][:][:, None] + [-0.5, 0.5])
            file["time"].attrs["bounds"] = "time_bounds"
            file["time"].attrs["missing_value"] = -1.0
            file.create_dataset("nv", data=np.arange(2)).make_scale("nv")
            for axis, name in enumerate(("time", "nv")):
                bounds.dims[axis].attach_scale(file[name])
    (tmp_path / "all.json").write_text(json.dumps(make_references(paths, join="time")))
    ours = xarray.open_dataset(f"reference::{tmp_path}/all.json", engine="cuzarr")
    expected = xarray.open_mfdataset(paths, engine="h5netcdf", combine="nested", concat_dim="time", data_vars="minimal",
                                     coords="minimal", compat="override")  # fmt: skip
    for name in ("time", "time_bounds"):
        np.testing.assert_array_equal(ours[name].values, expected[name].values, err_msg=name)


@pytest.mark.parametrize("kind", ["f4", "i2"])
def test_times_that_are_no_times_after_they_are_moved_are_refused(tmp_path: Path, kind: str) -> None:
    for number, since in enumerate(("seconds since 1970-01-01", "seconds since 2000-01-01")):
        with h5py.File(tmp_path / f"{number}.nc", "w") as file:
            time = file.create_dataset("time", data=np.arange(1, 4, dtype=kind))
            time.make_scale("time")
            time.attrs["units"] = since
    paths = [tmp_path / "0.nc", tmp_path / "1.nc"]
    with pytest.raises(InvalidArgumentError, match=f"are no {np.dtype(kind)} any more"):
        make_references(paths, join="time")
    for path in paths:
        with h5py.File(path, "r+") as file:
            file["time"].attrs["scale_factor"] = 60.0
    with pytest.raises(InvalidArgumentError, match="the attribute 'units' is seconds since 2000-01-01"):
        make_references(paths, join="time")


def test_a_variable_that_one_file_leaves_out_is_left_out_of_all(tmp_path: Path) -> None:
    for number in range(2):
        write_day(tmp_path / f"{number}.nc", number)
        with h5py.File(tmp_path / f"{number}.nc", "r+") as file:
            shape = (DAYS[number], 300)
            odd = file.create_dataset("odd", shape, "f4", chunks=(1, 300), compression="lzf" if number else "gzip")
            odd[...] = 1
            odd.dims[0].attach_scale(file["time"])
    with pytest.warns(CuzarrUserWarning, match=r"1\.nc: variable 'odd' is left out"):
        refs = make_references([tmp_path / "0.nc", tmp_path / "1.nc"], join="time")["refs"]
    assert "odd/.zarray" not in refs and "t/6.0.0" in refs


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
    monkeypatch.setattr("cuzarr.references.layout.INLINE_BYTES", 1000)
    with pytest.raises(
        UnsupportedError, match=r"(?s)variable 't'.*do not end where the files do \(\[3, 3\] along 'time'\).*nccopy -c time/1"
    ):
        make_references([tmp_path / "a.nc", tmp_path / "a.nc"], join="time")


@pytest.mark.parametrize(
    ("units", "calendar", "kind", "reason"),
    [
        ("days since 2000-01-05", "standard", "f8", "no dimension 'x'"),
        ("days since 2000-01-05", "noleap", "f8", "calendar is 'noleap'"),
        ("hours since 2000-01-01", "standard", "f8", "count hours and days"),
        ("days since 2000-01-05T00:00:00+02:00", "standard", "f8", "since a date in UTC"),
        ("days since 2000-01-05 12:00", "standard", "i4", "whole days"),
    ],
)
def test_times_that_cannot_be_moved_to_one_date_say_why(
    tmp_path: Path, units: str, calendar: str, kind: str, reason: str
) -> None:
    for name, since in (("a.nc", "days since 2000-01-01"), ("b.nc", units)):
        with h5py.File(tmp_path / name, "w") as file:
            for axis in ("time", "x"):
                file[axis] = np.arange(3).astype(kind)
                file[axis].make_scale(axis)
            file["time"].attrs["units"], file["time"].attrs["calendar"] = since, calendar
            file["v"] = np.zeros((3, 3))
            for number, axis in enumerate(("time", "x")):
                file["v"].dims[number].attach_scale(file[axis])
    along = "x" if "'x'" in reason else "time"
    with pytest.raises(InvalidArgumentError, match=f"(?s)the attribute 'units' is {re.escape(units)}.*not moved.*{reason}"):
        make_references([tmp_path / "a.nc", tmp_path / "b.nc"], join=along)


@pytest.mark.parametrize("kind", ["i2", "u1", "f4", "f8"])
def test_marks_of_the_file_hold_where_fill_values_are_no_marks(tmp_path: Path, kind: str) -> None:
    xr = pytest.importorskip("xarray")
    with h5py.File(tmp_path / "m.nc", "w") as file:
        whole = file.create_dataset("whole", data=np.array([1, 99, 3], kind))
        gaps = file.create_dataset("gaps", shape=(3,), chunks=(2,), dtype=kind, fillvalue=99)
        gaps[:2] = 4
        for one in (whole, gaps):
            one.attrs["_FillValue"] = np.array(99, kind)
        unmarked = file.create_dataset("unmarked", shape=(3,), chunks=(2,), dtype=kind)
        unmarked[:2] = 4
        for one in (whole, gaps, unmarked):
            one.dims[0].label = "x"
    (tmp_path / "m.json").write_text(json.dumps(make_references(tmp_path / "m.nc")))
    for is_mark, expected in ((True, [4, 4, np.nan]), (False, [4, 4, 0])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            opened = xr.open_dataset(
                f"reference::{tmp_path}/m.json", engine="cuzarr", use_zarr_fill_value_as_mask=is_mark, chunks=None
            ).load()
        np.testing.assert_array_equal(opened["whole"], [1, np.nan, 3])
        np.testing.assert_array_equal(opened["gaps"], [4, 4, np.nan])
        np.testing.assert_array_equal(opened["unmarked"], expected)
    decoded = cuzarr.open_group(f"reference::{tmp_path}/m.json", mode="r")["whole"].decoded()
    np.testing.assert_array_equal(decoded.compute(), [1, np.nan, 3])


def test_links_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = np.arange(3)
        file["soft"] = h5py.SoftLink("/v")
        file["broken"] = h5py.SoftLink("/none")
    with pytest.warns(CuzarrUserWarning) as warned:
        refs = make_references(tmp_path / "a.h5")["refs"]
    assert [str(one.message).partition("variable ")[2] for one in warned] == [
        "'broken' is left out: it is a link to '/none'",
        "'soft' is left out: it is a link to '/v'",
    ]
    assert "v/.zarray" in refs and not any(key.startswith("soft") for key in refs)

"""The public names of zarr-python: all but those that docs/guide/from-zarr-python.md lists are here, and mean the same."""

from __future__ import annotations

import fnmatch
import importlib
import json
import pathlib
import pickle
import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr import codecs, dtype, storage

zarr = pytest.importorskip("zarr", minversion="3.4")

MODULES = """
    zarr zarr.api.asynchronous zarr.api.synchronous zarr.abc.buffer zarr.abc.codec zarr.abc.metadata zarr.abc.numcodec
    zarr.abc.store zarr.buffer zarr.buffer.cpu zarr.buffer.gpu zarr.codecs zarr.codecs.numcodecs zarr.dtype zarr.errors
    zarr.experimental zarr.experimental.cache_store zarr.metadata.migrate_v3 zarr.registry zarr.storage zarr.types
    zarr.testing.buffer zarr.testing.store zarr.testing.utils
""".split()
GUIDE = (pathlib.Path(__file__).parents[2] / "docs/guide/from-zarr-python.md").read_text()
LISTED = [name for row in re.findall(r"^\| (`zarr\..*?) \|", GUIDE, re.M) for name in re.findall(r"`(zarr\.[\w.*]+)`", row)]


def names_of(module: ModuleType) -> list[str]:
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


def absent() -> list[str]:
    found = []
    for name in MODULES:
        try:
            ours = importlib.import_module(f"cu{name}")
        except ModuleNotFoundError:
            ours = ModuleType("none")
        found += [f"{name}.{one}" for one in names_of(importlib.import_module(name)) if not hasattr(ours, one)]
    return found


def test_every_name_is_here_or_listed() -> None:
    missing = absent()
    assert [name for name in missing if not any(fnmatch.fnmatchcase(name, pattern) for pattern in LISTED)] == []
    assert [pattern for pattern in LISTED if not fnmatch.filter(missing, pattern)] == [], "listed, but here"


TYPES = [
    *((name, {}) for name in ("Bool", "Int8", "UInt8", "VariableLengthUTF8", "VariableLengthBytes")),
    *(
        (name, {"endianness": order})
        for name in "Int16 Int32 Int64 UInt16 UInt32 UInt64 Float16 Float32 Float64 Complex64 Complex128".split()
        for order in ("little", "big")
    ),
    ("DateTime64", {"unit": "ms", "scale_factor": 10, "endianness": "big"}),
    ("TimeDelta64", {"unit": "D"}),
    ("FixedLengthUTF32", {"length": 3, "endianness": "big"}),
    ("NullTerminatedBytes", {"length": 4}),
    ("RawBytes", {"length": 5}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("name", "settings"), TYPES, ids=str)
def test_types_are_stored_as_zarr_python_stores_them(name: str, settings: dict[str, Any], zarr_format: Any) -> None:
    theirs: dict[str, Any] = {}
    zarr.create_array(theirs, shape=(2,), dtype=getattr(zarr.dtype, name)(**settings), zarr_format=zarr_format)
    ours: dict[str, Any] = {}
    cuzarr.create_array(ours, shape=(2,), dtype=getattr(dtype, name)(**settings), zarr_format=zarr_format)
    document, members = ("zarr.json", ("data_type", "fill_value")) if zarr_format == 3 else (".zarray", ("dtype", "fill_value"))
    expected, got = (
        json.loads(bytes(getattr(store[document], "to_bytes", lambda: store[document])())) for store in (theirs, ours)
    )
    assert [got[member] for member in members] == [expected[member] for member in members]


@pytest.mark.filterwarnings("ignore")
def test_structures_and_whatever_dtype_takes() -> None:
    fields = (("a", "int16"), ("b", zarr.dtype.Float32(endianness="big")), ("c", dtype.Struct(fields=[("d", "uint8")])))
    made = dtype.Struct(fields=fields)
    assert made.native == np.dtype([("a", "<i2"), ("b", ">f4"), ("c", [("d", "u1")])])
    value = np.array([(1, 2.5, (3,))], made.native)
    assert cuzarr.create_array({}, data=value)[0] == value[0]
    for spec in ("int16", "<i2", np.int16, zarr.dtype.Int16()):
        assert dtype.parse_dtype(spec, zarr_format=3) == dtype.Int16()
    with pytest.raises(cuzarr.errors.CuzarrError, match="at least 1"):
        dtype.RawBytes(length=0)
    with pytest.raises(cuzarr.errors.CuzarrError, match="little or big"):
        dtype.Int32(endianness="middle")  # type: ignore[call-arg]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["BloscCname", "BloscShuffle", "Endian", "ShardingCodecIndexLocation"])
def test_choices_are_zarr_pythons(name: str) -> None:
    ours, theirs = getattr(codecs, name), getattr(zarr.codecs, name)
    assert {one.name: one.value for one in ours} == dict(theirs._members)
    assert all(one == one.value and json.dumps(one) == f'"{one.value}"' for one in ours)


def test_choices_are_taken_by_codecs() -> None:
    blosc = codecs.BloscCodec(cname=codecs.BloscCname.lz4, shuffle=codecs.BloscShuffle.from_int(2), typesize=4)
    assert blosc == codecs.BloscCodec(cname="lz4", shuffle="bitshuffle", typesize=4)
    assert codecs.BytesCodec(endian=codecs.Endian.big) == codecs.BytesCodec(endian="big")
    where = codecs.ShardingCodec(chunk_shape=(2,), index_location=codecs.ShardingCodecIndexLocation.start)
    assert where == codecs.ShardingCodec(chunk_shape=(2,), index_location="start")
    with pytest.raises(ValueError, match="between 0 and 2"):
        codecs.BloscShuffle.from_int(3)


def check(store: storage.Store, again: storage.Store) -> None:
    value = np.arange(60).reshape(6, 10)
    cuzarr.create_array(store, name="a", data=value, chunks=(4, 3), overwrite=True)
    assert again == store and (cuzarr.open_array(again, path="a", mode="r")[:] == value).all()
    moved = pickle.loads(pickle.dumps(again))
    assert type(moved) is type(store) and (cuzarr.open_array(moved, path="a", mode="r")[:] == value).all()
    assert again.with_read_only(True).read_only


def test_fsspecs_file_systems_are_stores(tmp_path: pathlib.Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    wrapper = pytest.importorskip("fsspec.implementations.asyn_wrapper").AsyncFileSystemWrapper
    fs = fsspec.filesystem("file", auto_mkdir=True)
    root = str(tmp_path / "a")
    store = storage.FsspecStore(fs, path=root)
    check(store, storage.FsspecStore.from_url(f"file://{root}", {"auto_mkdir": True}))
    check(store, storage.FsspecStore(wrapper(fs, asynchronous=True), path=root))
    check(store, storage.FsspecStore.from_mapper(fs.get_mapper(root)))
    (place := type("Path", (), {})()).fs, place.path = fs, root + "/"
    check(store, storage.FsspecStore.from_upath(place))
    with pytest.raises(cuzarr.errors.CuzarrError, match="must not include scheme"):
        storage.FsspecStore(fs, path="file://a")
    with pytest.raises(cuzarr.errors.CuzarrError, match="reading only"):
        storage.FsspecStore(fs, True, root).set("b", b"")


def test_obstores_stores_are_stores(tmp_path: pathlib.Path) -> None:
    theirs = pytest.importorskip("obstore").store.LocalStore(tmp_path)
    check(storage.ObjectStore(theirs), storage.ObjectStore(theirs))
    assert storage.ObjectStore(theirs, read_only=True).read_only

"""New arrays get the metadata that zarr-python gives them."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr._metadata.create import DEFAULT_FILL_VALUE, legacy_metadata, new_metadata

zarr = pytest.importorskip("zarr", minversion="3.4")

DTYPES: list[Any] = [
    "bool",
    "int8",
    "int16",
    "uint64",
    "float16",
    ">f4",
    "float64",
    "complex64",
    "complex128",
    "S5",
    "U3",
    ">U4",
    "V7",
    "M8[ns]",
    ">m8[10s]",
    "M8",
    np.dtype([("a", "i4"), ("b", ">f8")]),
    np.dtype([("a", "i4"), ("n", [("x", "u1"), ("y", "S3")])]),
    "string",
    str,
    "variable_length_bytes",
]


def zarr_documents(**arguments: Any) -> dict[str, Any]:
    store: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.create_array(zarr.storage.MemoryStore(store), **arguments)
    documents = {key: json.loads(value.to_bytes()) for key, value in store.items()}
    document = documents.get(".zarray") or documents["zarr.json"]
    document.pop("attributes", None)
    return document


def our_document(**arguments: Any) -> dict[str, Any]:
    defaults = dict(
        chunks="auto",
        shards=None,
        filters="auto",
        compressors="auto",
        serializer="auto",
        fill_value=DEFAULT_FILL_VALUE,
        order=None,
        zarr_format=3,
        attributes=None,
        chunk_key_encoding=None,
        dimension_names=None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metadata = new_metadata(**(defaults | arguments))
    return json.loads(json.dumps(metadata.document))


def assert_same(**arguments: Any) -> None:
    theirs, ours = zarr_documents(**arguments), our_document(**arguments)
    theirs.pop("storage_transformers", None), ours.pop("storage_transformers", None)
    assert ours == theirs


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_defaults_of_every_data_type(dtype: Any, zarr_format: int) -> None:
    if dtype == "variable_length_bytes" and zarr_format == 2:
        pytest.skip("zarr-python knows this name in format 3 only")
    assert_same(shape=(30, 7), chunks=(4, 3), dtype=dtype, zarr_format=zarr_format)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("dtype", "fill_value"),
    [
        ("float32", np.nan),
        ("float64", -np.inf),
        ("float32", 1.5),
        ("int16", -3),
        ("bool", True),
        ("complex64", 1 + 2j),
        ("complex64", complex(np.nan, np.inf)),
        ("S4", b"ab"),
        ("U4", "ab"),
        ("M8[D]", np.datetime64("2020-01-02")),
        ("string", "none"),
        (np.dtype([("a", "i4"), ("b", "f8")]), (1, 2.5)),
        ("V3", b"\x01\x02\x03"),
    ],
    ids=str,
)
def test_fill_values(dtype: Any, fill_value: Any, zarr_format: int) -> None:
    assert_same(shape=(5,), chunks=(2,), dtype=dtype, fill_value=fill_value, zarr_format=zarr_format)


@pytest.mark.parametrize(
    "arguments",
    [
        {"compressors": None},
        {"compressors": zarr.codecs.BloscCodec(cname="lz4")},
        {"compressors": [zarr.codecs.GzipCodec(level=3), zarr.codecs.Crc32cCodec()]},
        {"compressors": {"name": "zstd", "configuration": {"level": 3, "checksum": True}}},
        {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
        {"serializer": zarr.codecs.BytesCodec(endian="big")},
        {"shards": (20, 12)},
        {"shards": {"shape": (20, 12), "index_location": "start"}},
        {"shards": -1},
        {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
        {"chunk_key_encoding": {"name": "default", "separator": "."}},
        {"dimension_names": ("y", None)},
        {"chunks": 5},
        {"chunks": (-1, 2)},
        {"chunks": False},
    ],
    # Not their text: processes that share the tests must name them alike, and that of a codec holds a set.
    ids=lambda arguments: next(iter(arguments)),
)
def test_settings_of_format_3(arguments: dict[str, Any]) -> None:
    assert_same(**({"shape": (40, 24), "chunks": (10, 6), "dtype": "int32"} | arguments))


def numcodecs_of_format_2() -> list[dict[str, Any]]:
    numcodecs = pytest.importorskip("numcodecs")
    return [
        {"compressors": None},
        {"compressors": numcodecs.Blosc(cname="zlib", shuffle=2)},
        {"compressors": numcodecs.LZ4()},
        {"compressors": {"id": "gzip", "level": 3}},
        {"filters": [numcodecs.Delta(dtype="i4")]},
        {"filters": [numcodecs.Shuffle(elementsize=4), numcodecs.Zlib()], "compressors": numcodecs.BZ2()},
        {"order": "F"},
        {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
    ]


@pytest.mark.parametrize("arguments", numcodecs_of_format_2(), ids=str)
def test_settings_of_format_2(arguments: dict[str, Any]) -> None:
    assert_same(**({"shape": (40, 24), "chunks": (10, 6), "dtype": "int32", "zarr_format": 2} | arguments))


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("item", ["u1", "i2", "f8", "S100", "c16"])
@pytest.mark.parametrize(
    "shape",
    [(), (0,), (1,), (7,), (10**6,), (10**9,), (1000, 1000), (5, 10**7), (10**5, 10**5), (64, 0, 3), (365, 721, 1440), (2,) * 12],
    ids=str,
)
def test_chosen_chunks_are_zarr_pythons(shape: tuple[int, ...], item: str, sharded: bool) -> None:
    if sharded and not shape:
        pytest.skip("a shard of nothing")
    arguments = {"shards": "auto"} if sharded else {}
    theirs = zarr_documents(shape=shape, dtype=item, **arguments)
    ours = our_document(shape=shape, dtype=item, **arguments)
    assert ours["chunk_grid"] == theirs["chunk_grid"]
    assert ours["codecs"] == theirs["codecs"]


@pytest.mark.parametrize("target", [10**5, 10**6, 10**8])
def test_chosen_shards_follow_their_target(target: int) -> None:
    with zarr.config.set({"array.target_shard_size_bytes": target}):
        theirs = zarr_documents(shape=(1000, 900), chunks=(10, 30), dtype="f4", shards="auto")
    with cuzarr.config.set({"array.target_shard_size_bytes": target}):
        ours = our_document(shape=(1000, 900), chunks=(10, 30), dtype="f4", shards="auto")
    assert ours["chunk_grid"] == theirs["chunk_grid"]


def test_legacy_create_gives_the_same_document() -> None:
    for zarr_format in (2, 3):
        store: dict[str, Any] = {}
        zarr.create((30, 20), store=zarr.storage.MemoryStore(store), zarr_format=zarr_format, fill_value=7, dtype="i2")
        theirs = json.loads(store[".zarray" if zarr_format == 2 else "zarr.json"].to_bytes())
        arguments = dict.fromkeys(
            "chunks filters order dimension_separator chunk_key_encoding codecs dimension_names attributes".split()
        )
        ours = legacy_metadata(
            shape=(30, 20), dtype="i2", compressor="auto", fill_value=7, default_order="C", zarr_format=zarr_format, **arguments
        ).document
        theirs.pop("attributes", None), theirs.pop("storage_transformers", None), ours.pop("storage_transformers", None)
        assert json.loads(json.dumps(ours)) == theirs


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zarr_pythons_data_types_are_accepted(dtype: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = zarr.create_array({}, shape=(3,), dtype=dtype).metadata.data_type
    assert our_document(shape=(3,), dtype=theirs)["data_type"] == our_document(shape=(3,), dtype=dtype)["data_type"]


def test_unknown_members_survive() -> None:
    document = our_document(shape=(3,), dtype="u1") | {"extra": {"must_understand": False, "x": [1]}}
    metadata = cuzarr.ArrayV3Metadata.from_dict(document)
    changed = metadata.update_attributes({"a": 1}).update_shape((5,)).to_dict()
    assert changed["extra"] == {"must_understand": False, "x": [1]}
    assert (changed["shape"], changed["attributes"]) == ([5], {"a": 1})


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_hierarchies_are_made_of_zarr_pythons_own_metadata(zarr_format: Any) -> None:
    zarr = pytest.importorskip("zarr", minversion="3.1")
    theirs = zarr.create_group({}, zarr_format=zarr_format, attributes={"a": 1})
    theirs.create_array("x/y", shape=(4,), chunks=(2,), dtype="<i2", fill_value=7, attributes={"unit": "m"})
    nodes = {path: node.metadata for path, node in theirs.members(max_depth=None)} | {"": theirs.metadata}
    store = cuzarr.storage.MemoryStore()
    made = dict(cuzarr.create_hierarchy(store=store, nodes=nodes))
    assert sorted(made) == ["", "x", "x/y"]
    group = cuzarr.open_group(store, mode="r", zarr_format=zarr_format)
    array = group["x/y"]
    assert (group.attrs.asdict(), array.attrs.asdict(), array[:].tolist(), array.dtype) == (
        {"a": 1},
        {"unit": "m"},
        [7] * 4,
        np.dtype("<i2"),
    )
    root = cuzarr.open_group(store, mode="r+", zarr_format=zarr_format)
    assert list(dict(root.create_hierarchy({"z": theirs["x"].metadata}))) == ["z"] and "z" in root
    with pytest.raises(TypeError, match="metadata of an array or a group"):
        dict(cuzarr.create_hierarchy(store={}, nodes={"a": 5}))


GIVEN: dict[Any, Any] = {
    "list": np.arange(3),
    "table": np.ones((1, 2)),
    "tuple": (1, (2, "a")),
    "number": np.int16(4),
    "real": np.float32(0.5),
    "flag": np.bool_(True),
    "text": np.str_("K"),
    "inside": {"deep": [np.arange(2), {1: (2,)}]},
    5: "five",
    None: True,
}
PLAIN: dict[str, Any] = {
    "list": [0, 1, 2],
    "table": [[1.0, 1.0]],
    "tuple": [1, [2, "a"]],
    "number": 4,
    "real": 0.5,
    "flag": True,
    "text": "K",
    "inside": {"deep": [[0, 1], {"1": [2]}]},
    "5": "five",
    "null": True,
}


def types(value: Any) -> Any:
    """The type of every value in containers."""
    if isinstance(value, dict):
        return {name: types(member) for name, member in value.items()}
    return [list, *map(types, value)] if isinstance(value, list) else type(value)


def set_one_by_one(node: Any) -> None:
    for name, value in GIVEN.items():
        node.attrs[name] = value


SETTERS: dict[str, Any] = {
    "item": set_one_by_one,
    "update": lambda node: node.attrs.update(GIVEN),
    "put": lambda node: node.attrs.put(GIVEN),
    "update_attributes": lambda node: node.update_attributes(GIVEN),
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", ["array", "group"])
@pytest.mark.parametrize("how", SETTERS)
def test_attributes_that_are_set_are_what_is_stored(how: str, kind: str, zarr_format: Any) -> None:
    group = cuzarr.create_group({}, zarr_format=zarr_format)
    node: Any = group if kind == "group" else group.create_array("x", shape=(1,), dtype="i4")
    SETTERS[how](node)
    again = cuzarr.open(node.store_path, mode="r")
    assert node.attrs.asdict() == again.attrs.asdict() == PLAIN
    assert types(node.attrs.asdict()) == types(PLAIN)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_attributes_of_a_new_node_are_what_is_stored(zarr_format: Any) -> None:
    group = cuzarr.create_group({}, attributes=GIVEN, zarr_format=zarr_format)
    new = {
        "create_array": group.create_array("a", shape=(1,), dtype="i4", attributes=GIVEN),
        "create": cuzarr.create((1,), store={}, attributes=GIVEN, zarr_format=zarr_format),
        "from_array": cuzarr.from_array({}, data=np.zeros(1), attributes=GIVEN, zarr_format=zarr_format),
        "group": group,
    }
    for how, node in new.items():
        assert node.attrs.asdict() == PLAIN, how
        assert types(node.attrs.asdict()) == types(PLAIN), how
        assert cuzarr.open(node.store_path, mode="r").attrs.asdict() == PLAIN, how
    made = cuzarr.GroupMetadata(attributes=GIVEN, zarr_format=zarr_format)
    array = type(group["a"].metadata)(group["a"].metadata.document, GIVEN)
    for metadata in (made, array, made.update_attributes(GIVEN), array.update_attributes(GIVEN)):
        assert types(metadata.attributes) == types(PLAIN)


def test_attributes_do_not_change_with_the_list_that_they_were_set_to() -> None:
    given = [1]
    array = cuzarr.create_array({}, shape=(1,), dtype="i4", attributes={"new": given})
    array.attrs["set"] = given
    given.append(2)
    assert array.attrs.asdict() == {"new": [1], "set": [1]}


@pytest.mark.parametrize("value", [object(), b"x", {1, 2}, np.datetime64("2020-01-01")])
def test_attributes_without_a_json_form_change_nothing(value: Any) -> None:
    array = cuzarr.create_array({}, shape=(1,), dtype="i4", attributes={"a": 1})
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="JSON"):
        array.attrs["b"] = value
    assert array.attrs.asdict() == {"a": 1}

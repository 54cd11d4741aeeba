"""Hierarchies are read and made in few rounds of requests, however many nodes they have, and odd nodes do not hide the others."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import zarr
from rounds import Rounds

import cuzarr
from cuzarr._metadata import group as group_module
from cuzarr.errors import ContainsArrayError, ContainsGroupError, InvalidArgumentError, MetadataValidationError, ReadOnlyError
from cuzarr.storage import MemoryStore

FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])
GROUPS, ARRAYS = 6, 10


def nodes(zarr_format: Any) -> dict[str, Any]:
    """Metadata of groups with arrays."""
    array = cuzarr.create_array({}, shape=(4,), dtype="int8", zarr_format=zarr_format).metadata
    groups = {f"g{number}": cuzarr.GroupMetadata({"number": number}, zarr_format) for number in range(GROUPS)}
    return groups | {f"{group}/a{number}": array for group in groups for number in range(ARRAYS)}


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@FORMATS
def test_hierarchies_take_few_rounds_of_requests(zarr_format: Any, quiet: None) -> None:
    store = Rounds()
    root = cuzarr.create_group(store, zarr_format=zarr_format)
    created, rounds = store.count(lambda: dict(root.create_hierarchy(nodes(zarr_format))))
    assert len(created) == GROUPS * (ARRAYS + 1)
    # What is there, left-over chunks, and for each level the documents; zarr-python's stores are asked before they write.
    assert rounds <= 3 + 2 * 3 + 2, rounds
    root, rounds = store.count(lambda: cuzarr.open_group(store, mode="r"))
    assert rounds <= 2, rounds
    found, rounds = store.count(lambda: root.members(max_depth=None))
    assert sorted(path for path, _ in found) == sorted(nodes(zarr_format))
    # Three a level: zarr-python's listings do not say which names are keys. Below the arrays nothing is listed.
    assert rounds <= 2 * 3, rounds
    cuzarr.consolidate_metadata(store)
    group, rounds = store.count(lambda: cuzarr.open_group(store, mode="r"))
    again, more = store.count(lambda: group.members(max_depth=None))
    assert [path for path, _ in again] == [path for path, _ in found] and rounds + more <= 3, (rounds, more)
    assert again[0][1].attrs.asdict() == {"number": 0}


@FORMATS
def test_a_tree_reads_no_more_nodes_than_it_shows(zarr_format: Any) -> None:
    store = Rounds()
    root = cuzarr.create_group(store, zarr_format=zarr_format)
    list(root.create_hierarchy(nodes(zarr_format)))
    store.reads = 0
    shown = str(root.tree(max_nodes=5, plain=True))
    assert all(name in shown for name in ("g0", "a0", "a1", "a2", "a3", "Only 5 nodes")) and "a4" not in shown, shown
    # Two levels, six nodes each: their documents.
    assert store.reads == 2 * 6 * (4 if zarr_format == 2 else 1)


@FORMATS
def test_hierarchies_are_those_of_zarr_python(zarr_format: Any, quiet: None) -> None:
    stores = {library: MemoryStore() for library in (cuzarr, zarr)}
    for library, store in stores.items():
        group = library.create_group(store.zarr_store, zarr_format=zarr_format, attributes={"k": [1, None]})
        group.create_array("b/c", shape=(4,), dtype="int8", compressors=None, attributes={"ü": 1.5})
        group.create_group("a", attributes={"x": float("inf")})
        library.consolidate_metadata(store.zarr_store)
    documents = [{key: json.loads(store.get(key) or b"") for key in store.list()} for store in stores.values()]
    found = [one[".zmetadata"] if zarr_format == 2 else one["zarr.json"]["consolidated_metadata"] for one in documents]
    for below in (below for one in found for below in one["metadata"].values()):
        below.pop("consolidated_metadata", None)  # zarr-python also says that there is nothing below groups inside
    assert documents[0] == documents[1]
    orders = [[path for path in one["metadata"] if not path.endswith(".zattrs")] for one in found]
    assert orders[0] == orders[1]


def test_nodes_that_cannot_be_used_are_consolidated_as_they_are(quiet: None) -> None:
    store = MemoryStore()
    group = cuzarr.create_group(store)
    group.create_array("good", shape=(4,), dtype="int8")
    odd = json.loads(store.get("good/zarr.json") or b"") | {"data_type": "unheard_of"}
    store.set("odd/zarr.json", json.dumps(odd).encode())
    store.set("neither/zarr.json", b'{"zarr_format": 3, "node_type": "table"}')
    cuzarr.consolidate_metadata(store)
    kept = json.loads(store.get("zarr.json") or b"")["consolidated_metadata"]["metadata"]
    assert kept == {"good": json.loads(store.get("good/zarr.json") or b""), "odd": odd}
    store.set("odd/zarr.json", b"{ nothing")
    with pytest.raises(MetadataValidationError, match="node '/odd'.*not JSON"):
        cuzarr.consolidate_metadata(store)


@FORMATS
def test_nothing_is_written_when_one_node_cannot_be_created(zarr_format: Any) -> None:
    store = MemoryStore()
    group = cuzarr.create_group(store, zarr_format=zarr_format)
    array = group.create_array("a/x", shape=(4,), dtype="int8")
    array[...] = 1
    before = {key: store.get(key) for key in store.list()}
    plain, new = cuzarr.GroupMetadata({}, zarr_format), array.metadata
    refused: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"n": plain, "a": plain}, ContainsGroupError),
        ({"n": plain, "a/x": new}, ContainsArrayError),
        ({"n": plain, "a/x/y": new}, ContainsArrayError),
        ({"n": new, "n/y": plain}, ContainsArrayError),
        ({"n": plain, "m": cuzarr.GroupMetadata({}, 5 - zarr_format)}, InvalidArgumentError),
    ]
    with pytest.raises(InvalidArgumentError):
        cuzarr.GroupMetadata({"a": object()}, zarr_format)
    for given, error in refused:
        with pytest.raises(error):
            list(cuzarr.create_hierarchy(store=store, nodes=given))
        assert {key: store.get(key) for key in store.list()} == before, given
    with pytest.raises(ReadOnlyError):
        list(cuzarr.create_hierarchy(store=store.with_read_only(True), nodes={"n": plain}))
    replaced = dict(cuzarr.create_hierarchy(store=store, nodes={"a": plain, "n/m": new}, overwrite=True))
    assert sorted(replaced) == ["a", "n", "n/m"] and "a/x" not in group


@FORMATS
def test_groups_with_consolidated_metadata_of_their_own_bring_it(zarr_format: Any, quiet: None) -> None:
    store = MemoryStore()
    root = cuzarr.create_group(store, zarr_format=zarr_format)
    root.create_group("g/h").create_array("a", shape=(4,), dtype="int8")
    cuzarr.consolidate_metadata(store, path="g")
    name = "zarr.json" if zarr_format == 3 else ".zgroup"
    store.set(f"g/later/{name}", store.get(f"g/h/{name}"))  # by a writer that knows no copies
    assert [path for path, _ in root.members(max_depth=None)] == ["g", "g/h", "g/h/a"]
    assert [path for path, _ in root.members(max_depth=1)] == ["g", "g/h"]
    own = [path for path, _ in root.members(max_depth=None, use_consolidated_for_children=False)]
    assert own == ["g", "g/h", "g/h/a", "g/later"]
    # The groups above are consolidated of what is there, not of what was.
    assert "g/later" in dict(cuzarr.consolidate_metadata(store).members(max_depth=None))


def consolidated_store(zarr_format: Any, keys: dict[str, Any]) -> MemoryStore:
    """A group whose consolidated metadata has documents under keys of v3, such as ``"a"``."""
    store = MemoryStore()
    if zarr_format == 3:
        below = {"kind": "inline", "must_understand": False, "metadata": keys}
        document = {"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata": below}
        store.set("zarr.json", json.dumps(document).encode())
        return store
    entries = {f"{path}/{'.zarray' if 'shape' in node else '.zgroup'}": node for path, node in keys.items()}
    store.set(".zgroup", b'{"zarr_format": 2}')
    store.set(".zmetadata", json.dumps({"zarr_consolidated_format": 1, "metadata": entries}).encode())
    return store


def entry(zarr_format: Any, **members: Any) -> dict[str, Any]:
    return {"zarr_format": 2, **members} if zarr_format == 2 else {"zarr_format": 3, "node_type": "group", **members}


@FORMATS
def test_consolidated_keys_without_a_name_stand_for_the_group_itself(zarr_format: Any) -> None:
    group = entry(zarr_format)
    store = consolidated_store(zarr_format, {"": group, "/": group, "a": group, "a//b/": group})
    root = cuzarr.open_group(store, mode="r")
    assert [path for path, _ in root.members(max_depth=None)] == ["a", "a/b"]
    assert list(root) == ["a"] and "b" in root["a"] and str(root.tree()).count("\n") == 3


def test_keys_without_a_name_are_left_out_of_metadata_from_a_dictionary() -> None:
    group = cuzarr.GroupMetadata()
    below = cuzarr.ConsolidatedMetadata({"": group, "/": group, "a": group, "a//b/": group})
    assert list(below.flattened_metadata) == ["a", "a/b"]
    document = {**group.to_dict(), "consolidated_metadata": {**below.to_dict(), "metadata": {"": 3, "/x": group.to_dict()}}}
    read = cuzarr.GroupMetadata.from_dict(document).consolidated_metadata
    assert read is not None and list(read.metadata) == ["x"]


@FORMATS
def test_names_of_consolidated_nodes_make_no_metadata(zarr_format: Any, monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    store = MemoryStore()
    list(cuzarr.create_group(store, zarr_format=zarr_format).create_hierarchy(nodes(zarr_format)))
    cuzarr.consolidate_metadata(store)
    made: list[Any] = []
    node_of = group_module.node_of
    monkeypatch.setattr(group_module, "node_of", lambda *given: made.append(given) or node_of(*given))
    group = cuzarr.open_group(store, mode="r", use_consolidated=True)
    assert sorted(group) == sorted(group.group_keys()) == [f"g{number}" for number in range(GROUPS)]
    assert list(group.array_keys()) == [] and group.nmembers(max_depth=None) == GROUPS * (ARRAYS + 1)
    assert f"No. arrays  : {GROUPS * ARRAYS}" in str(group.info) and "g0/a3" in group
    assert [found for found in made if found[1:] == ()] == made[:1], "only what was looked up"
    made.clear()
    assert sorted(group["g1"].array_keys()) == sorted(f"a{number}" for number in range(ARRAYS))
    assert len(made) == 1


@FORMATS
def test_an_unreadable_entry_leaves_the_others(zarr_format: Any) -> None:
    array = {"shape": "x"} if zarr_format == 2 else {"shape": "x", "node_type": "array"}
    store = consolidated_store(zarr_format, {"good": entry(zarr_format), "bad": entry(zarr_format, **array)})
    group = cuzarr.open_group(store, mode="r", use_consolidated=True)
    assert sorted(group) == ["bad", "good"] and group["good"].path == "good"
    with pytest.raises(MetadataValidationError, match=r"metadata '.*': consolidated metadata of 'bad'"):
        group["bad"]


@FORMATS
def test_metadata_that_was_found_behaves_like_a_dictionary(zarr_format: Any, quiet: None) -> None:
    store = MemoryStore()
    list(cuzarr.create_group(store, zarr_format=zarr_format).create_hierarchy(nodes(zarr_format)))
    cuzarr.consolidate_metadata(store)

    def found() -> cuzarr.ConsolidatedMetadata:
        below = cuzarr.open_group(store, mode="r", use_consolidated=True).metadata.consolidated_metadata
        assert below is not None
        return below

    plain = cuzarr.ConsolidatedMetadata(dict(found().flattened_metadata))
    assert found().flattened_metadata == plain.flattened_metadata and found().to_dict() == plain.to_dict()
    again = pickle.loads(pickle.dumps(found()))
    assert again.flattened_metadata == plain.flattened_metadata and type(again.flattened_metadata) is dict
    assert [path for path, _ in found().nodes(0)] == [path for path, _ in plain.nodes(0)]
    assert list(found().nodes(None)) == list(plain.nodes(None)) and found().metadata == plain.metadata
    assert found().below("g1") == plain.below("g1")
    assert found().without("g1").to_dict() == plain.without("g1").to_dict()
    changed = found()
    changed.flattened_metadata["new"] = cuzarr.GroupMetadata(zarr_format=zarr_format)
    del changed.flattened_metadata["g0/a0"]
    assert "new" in changed.metadata and "g0/a0" not in changed.to_dict()["metadata"]


@FORMATS
def test_consolidated_entries_are_written_as_they_were(zarr_format: Any) -> None:
    store = consolidated_store(zarr_format, {"a": entry(zarr_format), "b": entry(zarr_format)})
    key = "zarr.json" if zarr_format == 3 else ".zmetadata"
    entries = (store.get(key) or b"").replace(b'": {"zarr_format"', b'" :\t{ "zarr_format"')
    store.set(key, entries)
    metadata = cuzarr.open_group(store, mode="r", use_consolidated=True).metadata
    written = metadata.update_attributes({"k": 1}).documents()[key]
    assert written.count(b'" :\t{ "zarr_format"') == 2, written

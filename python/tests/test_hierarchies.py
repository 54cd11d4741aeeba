"""Hierarchies are read and made in few rounds of requests, however many nodes they have, and odd nodes do not hide the others."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import zarr
from rounds import Rounds

import cuzarr
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
        ({"n": cuzarr.GroupMetadata({"a": object()}, zarr_format)}, InvalidArgumentError),
    ]
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

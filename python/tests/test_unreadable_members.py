"""Groups in which one array cannot be used: it is named, and the others can be had."""

from __future__ import annotations

import collections
import json
from typing import Any

import pytest

import cuzarr
from cuzarr.errors import (
    CuzarrError,
    CuzarrUserWarning,
    MetadataValidationError,
    StoreFailedError,
    UnknownCodecError,
    UnknownDataTypeError,
    UnsupportedFeatureError,
)

BROKEN: dict[str, tuple[dict[str, Any], type[CuzarrError]]] = {
    "codec": ({"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "of_nobody"}]}, UnknownCodecError),
    "type": ({"data_type": "of_nobody"}, UnknownDataTypeError),
    "grid": ({"chunk_grid": {"name": "hexagonal"}}, UnsupportedFeatureError),
    "shape": ({"shape": [-1]}, MetadataValidationError),
}


def store_with(name: str, *, consolidated: bool = False) -> dict[str, bytes]:
    """A store with the arrays ``a/broken`` and ``a/good``, and the group ``a/below``."""
    store: dict[str, Any] = {}
    group = cuzarr.create_group(store)
    group.create_array("a/good", data=[1.0, 2.0, 3.0], dimension_names=("x",))
    group.create_group("a/below")
    store["a/broken/zarr.json"] = json.dumps(json.loads(store["a/good/zarr.json"]) | BROKEN[name][0]).encode()
    if consolidated:
        cuzarr.consolidate_metadata(store)
    return store


@pytest.fixture(params=["listed", "consolidated", "writable"])
def group(request: pytest.FixtureRequest) -> Any:
    """Makes a group: members are found by listing, in the consolidated copy, or by the names in the copy."""

    def make(name: str) -> cuzarr.Group:
        store = store_with(name, consolidated=request.param != "listed")
        return cuzarr.open_group(store, mode="r+" if request.param == "writable" else "r")["a"]  # type: ignore[return-value]

    return make


pytestmark = pytest.mark.filterwarnings("ignore:consolidated metadata is not part")


@pytest.mark.parametrize("name", BROKEN)
def test_members_name_the_one_that_cannot_be_used_and_go_on_if_they_may(group: Any, name: str) -> None:
    opened = group(name)
    with pytest.raises(BROKEN[name][1], match="broken"):
        opened.members()
    with pytest.warns(CuzarrUserWarning, match="^'broken' is left out: ") as caught:
        members = opened.members(strict=False)
    assert [path for path, _ in members] == ["below", "good"] and dict(members)["good"][:].tolist() == [1, 2, 3]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("name", BROKEN)
def test_names_groups_and_trees_need_no_usable_array(group: Any, name: str) -> None:
    opened = group(name)
    assert list(opened) == ["below", "broken", "good"] and opened.nmembers() == 3
    assert [path for path, _ in opened.groups()] == ["below"] and list(opened.array_keys()) == ["broken", "good"]
    tree = str(opened.tree(plain=True))
    assert "good (3,) float64" in tree and "broken" in tree
    assert name == "codec" or "cannot be used: " in tree


@pytest.mark.parametrize("name", BROKEN)
def test_xarray_names_the_array_and_goes_on_if_it_may(group: Any, name: str) -> None:
    xarray = pytest.importorskip("xarray")
    opened = group(name)
    with pytest.raises(BROKEN[name][1], match="broken"):
        xarray.open_dataset(opened, engine="cuzarr")
    with pytest.warns(CuzarrUserWarning, match="'broken' is left out: "):
        dataset = xarray.open_dataset(opened, engine="cuzarr", strict=False)
    assert list(dataset) == ["good"] and dataset.good.values.tolist() == [1, 2, 3]
    assert list(xarray.open_dataset(opened, engine="cuzarr", drop_variables="broken")) == ["good"]


def test_xarray_leaves_out_arrays_whose_dimensions_have_no_names() -> None:
    xarray = pytest.importorskip("xarray")
    group = cuzarr.create_group({})
    group.create_array("good", data=[1.0], dimension_names=("x",))
    group.create_array("nameless", data=[1.0])
    with pytest.warns(CuzarrUserWarning, match="'nameless' is left out: .* does not name its 1 dimensions"):
        assert list(xarray.open_dataset(group, engine="cuzarr", strict=False)) == ["good"]


def test_a_store_that_fails_is_no_array_that_cannot_be_used() -> None:
    class Failing(collections.UserDict[str, bytes]):
        def __getitem__(self, key: str) -> bytes:
            if key.startswith("a/broken"):
                raise OSError("the disk is gone")
            return super().__getitem__(key)

    group = cuzarr.open_group(cuzarr.storage.ForeignStore(Failing(store_with("codec"))), mode="r")
    with pytest.raises(StoreFailedError, match="the disk is gone"):
        group["a"].members(strict=False)  # type: ignore[union-attr]


@pytest.mark.parametrize("document", [b"{", b"", b"[1]", b"\xff\xfe"])
def test_a_document_that_is_no_metadata_affects_no_other_member(document: bytes) -> None:
    store = store_with("shape")
    store["a/broken/zarr.json"] = document
    group = cuzarr.open_group(store, mode="r")["a"]
    assert isinstance(group, cuzarr.Group)
    assert {"good", "below"} <= set(group)
    assert "good" in repr(group.tree()) and "Members" in group._repr_html_()
    with pytest.warns(CuzarrUserWarning, match="broken"):
        assert [name for name, _ in group.members(strict=False)] == ["below", "good"]
    with pytest.raises(CuzarrError, match="broken"):
        group.members()

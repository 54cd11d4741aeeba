"""Images and plates of OME-Zarr, of every version and of other writers: their levels, axes, fields and trees."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import to_host
from rounds import Rounds

import cuzarr
from cuzarr.errors import (
    ArrayNotFoundError,
    BoundsCheckError,
    GroupNotFoundError,
    InvalidArgumentError,
    MetadataValidationError,
    UnsupportedError,
)
from cuzarr.loader import SampleStream
from cuzarr.ome import Axis, Level, open_image, open_plate

VALUES = np.arange(2 * 40 * 24, dtype="u2").reshape(2, 40, 24)
AXES = [
    {"name": "c", "type": "channel"},
    {"name": "y", "type": "space", "unit": "micrometer"},
    {"name": "x", "type": "space", "unit": "micrometer"},
]
SCALE = {"type": "scale", "scale": [1, 0.5, 0.25]}
MOVED = {"type": "translation", "translation": [0, 10, 20]}
VERSIONS = ("0.4", "0.5", "0.6")


def placed(version: str, members: dict[str, Any]) -> dict[str, Any]:
    """Attributes at the place that the version has for them."""
    return members if version == "0.4" else {"ome": {"version": version, **members}}


def group_of(place: Any, version: str, members: dict[str, Any], **options: Any) -> cuzarr.Group:
    attributes = placed(version, members)
    return cuzarr.create_group(place, zarr_format=2 if version == "0.4" else 3, attributes=attributes, **options)


def image_attributes(version: str) -> dict[str, Any]:
    """An image with two levels, as the specification of the version writes it."""
    halved = {"type": "scale", "scale": [1, 1, 0.5]}
    levels: list[dict[str, Any]] = [{"path": path} for path in ("s0", "s1")]
    for level, scale in zip(levels, (SCALE, halved), strict=True):
        level["coordinateTransformations"] = [scale, MOVED]
        if version == "0.6":
            one = {"type": "sequence", "transformations": [scale, MOVED], "input": {"path": level["path"]}}
            level["coordinateTransformations"] = [one | {"output": {"name": "physical"}}]
    image: dict[str, Any] = {"name": "cells", "axes": AXES, "datasets": levels}
    if version == "0.4":
        image["version"] = version
    if version == "0.6":
        # The levels lead to the second system, so its axes are theirs.
        stage = [{"name": f"{axis['name']}_stage", "type": axis["type"]} for axis in AXES]
        systems = [{"name": "stage", "axes": stage}, {"name": "physical", "axes": image.pop("axes")}]
        turned = {"type": "affine", "affine": [[1, 0, 0, 0], [0, 0, 1, 5], [0, -1, 0, 0]]}
        turned |= {"input": {"name": "physical"}, "output": {"name": "stage"}}
        image |= {"coordinateSystems": systems, "coordinateTransformations": [turned]}
    omero = {"channels": [{"label": "DAPI"}, {"label": "GFP"}]}
    return {"multiscales": [image], "omero": omero}


def image_at(place: Any, version: str, path: str = "", shift: int = 0) -> cuzarr.Group:
    group = group_of(place, version, image_attributes(version), path=path)
    group.create_array("s0", data=VALUES + np.uint16(shift), chunks=(1, 16, 16))
    group.create_array("s1", data=VALUES[:, ::2, ::2] + np.uint16(shift), chunks=(1, 16, 16))
    return group


def plate_at(store: Any, version: str = "0.5", wells: tuple[str, ...] = ("A/1", "B/2"), fields: int = 2) -> cuzarr.Group:
    rows, columns = ("A", "B"), ("1", "2", "3")
    plate = {
        "name": "screen",
        "rows": [{"name": name} for name in rows],
        "columns": [{"name": name} for name in columns],
        "acquisitions": [{"id": 0, "name": "first"}, {"id": 3}],
        "wells": [{"path": path, "rowIndex": rows.index(path[0]), "columnIndex": columns.index(path[2])} for path in wells],
    }
    group = group_of(store, version, {"plate": plate})
    for number, path in enumerate(wells):
        images = [{"path": str(field), "acquisition": 3 * (field > 0)} for field in range(fields)]
        group_of(store, version, {"well": {"images": images}}, path=path)
        for field in range(fields):
            image_at(store, version, f"{path}/{field}", shift=100 * number + field)
    return group


def far() -> Rounds:
    """A store that counts rounds, and does not wait yet."""
    store = Rounds()
    store.wait_seconds = 0
    return store


@pytest.mark.parametrize("version", VERSIONS)
def test_an_image_says_its_levels_axes_and_scales(version: str, device: str) -> None:
    store = cuzarr.storage.MemoryStore()
    image_at(store, version)
    image = open_image(cuzarr.open_group(store, device=device))
    assert (image.name, image.version, image.channels) == ("cells", version, ("DAPI", "GFP"))
    assert image.axes == (Axis("c", "channel"), Axis("y", "space", "micrometer"), Axis("x", "space", "micrometer"))
    place = (0.0, 10.0, 20.0)
    assert image.levels == (Level("s0", (1.0, 0.5, 0.25), place), Level("s1", (1.0, 1.0, 0.5), place))
    assert [array.shape for array in image.arrays()] == [(2, 40, 24), (2, 20, 12)]
    assert image.array(-1).device == device
    np.testing.assert_array_equal(to_host(image.array(-1)[...]), VALUES[:, ::2, ::2])
    with pytest.raises(BoundsCheckError, match="level is 2, .* 2 levels"):
        image.array(2)


def test_images_before_axes_had_units_and_scales_are_opened() -> None:
    group = cuzarr.create_group({}, zarr_format=2, attributes={"multiscales": [{"version": "0.1", "datasets": [{"path": "0"}]}]})
    image = open_image(group)
    assert (image.version, image.axes, image.levels, image.name) == ("0.1", (), (Level("0"),), None)
    with pytest.raises(ArrayNotFoundError):
        image.array()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plate_lists_its_fields_for_streams_of_samples(version: str, device: str) -> None:
    store = cuzarr.storage.MemoryStore()
    plate_at(store, version)
    plate = open_plate(cuzarr.open_group(store, device=device), 1)
    assert (plate.name, plate.rows, plate.columns) == ("screen", ("A", "B"), ("1", "2", "3"))
    assert plate.acquisitions == {0: "first", 3: ""}
    assert {well: [field.path for field in fields] for well, fields in plate.wells.items()} == {
        "A/1": ["A/1/0", "A/1/1"],
        "B/2": ["B/2/0", "B/2/1"],
    }
    assert [(field.row, field.column, field.acquisition) for field in plate.fields[1:3]] == [("A", "1", 3), ("B", "2", 0)]
    assert {field.image.levels[1].scale for field in plate.fields} == {(1.0, 1.0, 0.5)}
    samples = [{"image": (field.array, np.s_[:, :8, :8])} for field in plate.fields]
    (batch,) = SampleStream(samples, 4)
    expected = np.stack([VALUES[:, :16:2, :16:2] + shift for shift in (0, 1, 100, 101)])
    np.testing.assert_array_equal(to_host(batch["image"]), expected)


def test_some_wells_of_a_plate_are_opened() -> None:
    store = cuzarr.storage.MemoryStore()
    plate_at(store)
    assert [field.path for field in open_plate(store, wells=["B/2"]).fields] == ["B/2/0", "B/2/1"]
    with pytest.raises(InvalidArgumentError, match="no well 'B/1'"):
        open_plate(store, wells=["B/1"])


def test_wells_before_version_0_4_are_named_by_their_paths() -> None:
    store = cuzarr.storage.MemoryStore()
    group = plate_at(store, "0.4")
    plate = dict(group.attrs["plate"], wells=[{"path": "A/1"}, {"path": "B/2"}])
    group.attrs["plate"] = {name: value for name, value in plate.items() if name != "acquisitions"}
    opened = open_plate(store)
    assert [(field.row, field.column) for field in opened.fields] == [("A", "1"), ("A", "1"), ("B", "2"), ("B", "2")]
    assert opened.acquisitions == {}


def test_a_plate_is_opened_in_three_rounds_however_many_fields_it_has() -> None:
    store = far()
    wells = ("A/1", "A/2", "A/3", "B/1", "B/2", "B/3")
    plate_at(store, wells=wells, fields=3)
    store.wait_seconds = 0.1
    for consolidated in (False, True):
        if consolidated:
            with warnings.catch_warnings(action="ignore"):
                cuzarr.consolidate_metadata(store)
        group = cuzarr.open_group(store, mode="r+")
        plate, rounds = store.count(lambda group=group: open_plate(group))
        assert len(plate.fields) == 18
        assert rounds <= 3, rounds
    group = cuzarr.open_group(store, mode="r")
    plate, rounds = store.count(lambda: open_plate(group))
    assert (len(plate.fields), rounds) == (18, 0), "consolidated metadata has all documents"


def changed(store: Any, path: str, name: str, value: Any) -> None:
    """Replaces one member of the attribute ``plate``, ``well`` or ``multiscales`` of a group."""
    group = cuzarr.open_group(store, path=path)
    ome = dict(group.attrs["ome"])
    kind = next(kind for kind in ("plate", "well", "multiscales") if kind in ome)
    ome[kind] = value if name == kind else ome[kind] | {name: value}
    group.attrs["ome"] = ome


WELL = {"path": "A/1", "rowIndex": 0, "columnIndex": 0}


@pytest.mark.parametrize(
    ("path", "name", "value", "named"),
    [
        ("", "plate", [], "'plate'.*expected an object"),
        ("", "rows", [{"name": "A"}, {"name": "A"}], "'rows'.*no name twice"),
        ("", "columns", [{}], "'columns'"),
        ("", "wells", [], "'wells'.*expected a list of objects"),
        ("", "wells", [{"rowIndex": 0, "columnIndex": 0}], "'path'"),
        ("", "wells", [WELL | {"path": "A/2"}], "'wells'.*A/2.*with the numbers of both"),
        ("", "wells", [WELL | {"rowIndex": 7}], "'wells'.*7"),
        ("", "wells", [WELL | {"columnIndex": -1}], "'columnIndex' is -1"),
        ("", "wells", [WELL, WELL], "'wells'.*each well once"),
        ("", "acquisitions", [{"name": "first"}], "'id'"),
        ("", "acquisitions", [{"id": 1}, {"id": 1}], "'acquisitions'.*each id once"),
        ("A/1", "images", [{"path": "../2"}], "(?s)well 'A/1'.*'path'.*below the group"),
        ("A/1", "images", [{"path": "0"}, {"path": "0/"}], "(?s)well 'A/1'.*a path once"),
        ("A/1", "well", 3, "(?s)well 'A/1'.*'well' is 3"),
        ("A/1", "images", [{"path": "0"}, {"path": "0"}], "(?s)well 'A/1'.*a path once"),
        ("A/1", "images", [{"path": "0", "acquisition": "first"}], "(?s)well 'A/1'.*'acquisition'"),
        ("B/2/0", "multiscales", [], "(?s)image 'B/2/0'.*multiscales"),
        ("B/2/0", "multiscales", None, "(?s)'B/2/0'.*multiscales"),
    ],
)
def test_damaged_attributes_of_a_plate_are_named(path: str, name: str, value: Any, named: str) -> None:
    store = cuzarr.storage.MemoryStore()
    plate_at(store)
    changed(store, path, name, value)
    with pytest.raises(MetadataValidationError, match=named):
        open_plate(store)


def test_an_image_may_lie_deeper_in_its_well() -> None:
    store = cuzarr.storage.MemoryStore()
    plate_at(store)
    image_at(store, "0.5", "A/1/im/0")
    changed(store, "A/1", "images", [{"path": "im/0"}, {"path": "1/"}])
    plate = open_plate(store)
    assert [(field.path, field.well) for field in plate.wells["A/1"]] == [("A/1/im/0", "A/1"), ("A/1/1", "A/1")]
    assert list(plate.wells) == ["A/1", "B/2"]


@pytest.mark.parametrize(
    ("path", "error"), [("A/1", GroupNotFoundError), ("B/2/1", GroupNotFoundError), ("A/1/1/s0", ArrayNotFoundError)]
)
def test_what_a_plate_names_and_does_not_have_is_named(path: str, error: type[Exception]) -> None:
    store = cuzarr.storage.MemoryStore()
    group = plate_at(store)
    del group[path]
    with pytest.raises(error, match=path):
        open_plate(store)


def test_groups_of_other_kinds_are_refused_with_advice() -> None:
    store = cuzarr.storage.MemoryStore()
    plate_at(store)
    with pytest.raises(InvalidArgumentError, match="(?s)no image.*open_plate"):
        open_image(store)
    with pytest.raises(InvalidArgumentError, match="no plate"):
        open_plate(cuzarr.open_group(store, path="A/1/0"))
    with pytest.raises(BoundsCheckError, match=r"level is 2, the image 'A/1/0' has 2 levels"):
        open_plate(store, 2)
    later = group_of({}, "0.7", image_attributes("0.5"))
    with pytest.raises(UnsupportedError, match=r"0\.7"):
        open_image(later)


@pytest.mark.parametrize("version", VERSIONS)
def test_images_and_plates_of_ngff_zarr_are_opened_and_it_reads_pyramids(version: Any, tmp_path: Path) -> None:
    ngff = pytest.importorskip("ngff_zarr", reason="skipped: ngff-zarr is not installed")
    scale, units = {"y": 0.5, "x": 0.25}, {"y": "micrometer", "x": "micrometer"}
    image = ngff.to_ngff_image(VALUES, dims=["c", "y", "x"], scale=scale, translation={"y": 10.0, "x": 20.0}, axes_units=units)
    levels = ngff.to_multiscales(image, scale_factors=[2], method=ngff.Methods.DASK_BIN_SHRINK)
    ngff.to_ngff_zarr(tmp_path / "theirs", levels, version=version)
    opened = open_image(tmp_path / "theirs")
    place = (0.0, 10.0, 20.0)
    assert opened.levels[0] == Level("scale0/image", (1.0, 0.5, 0.25), place) and opened.version == version
    assert opened.axes == (Axis("c", "channel"), Axis("y", "space", "micrometer"), Axis("x", "space", "micrometer"))
    np.testing.assert_array_equal(opened.array()[...], VALUES)

    cuzarr.pyramid(tmp_path / "theirs", tmp_path / "ours", version=version, levels=2, factors=(1, 2, 2))
    read = ngff.from_ngff_zarr(tmp_path / "ours").images
    assert [list(one.dims) for one in read] == [["c", "y", "x"]] * 2
    assert [(one.scale["y"], one.scale["x"]) for one in read] == [(0.5, 0.25), (1.0, 0.5)]
    assert [(one.translation["y"], one.translation["x"]) for one in read] == [(10.0, 20.0), (10.25, 20.125)]
    assert read[1].axes_units["x"] == "micrometer"
    np.testing.assert_array_equal(np.asarray(read[0].data), VALUES)

    if version == "0.6":
        return  # its plates are of versions up to 0.5
    wells = [ngff.PlateWell("A/1", 0, 0), ngff.PlateWell("A/2", 0, 1)]
    columns = [ngff.PlateColumn("1"), ngff.PlateColumn("2")]
    plate = ngff.Plate(columns, [ngff.PlateRow("A")], wells, version=version, name="screen", field_count=1)
    ngff.to_hcs_zarr(ngff.HCSPlate(tmp_path / "plate", plate), str(tmp_path / "plate"))
    for column in ("1", "2"):
        ngff.write_hcs_well_image(str(tmp_path / "plate"), levels, plate, "A", column, version=version)
    fields = open_plate(tmp_path / "plate").fields
    assert [(field.path, field.array.shape) for field in fields] == [("A/1/0", (2, 40, 24)), ("A/2/0", (2, 40, 24))]


@pytest.mark.parametrize("version", VERSIONS)
def test_levels_of_a_tree_of_xarray_have_names_and_places(version: str, device: str) -> None:
    xarray = pytest.importorskip("xarray", reason="skipped: xarray is not installed")
    store = cuzarr.storage.MemoryStore()
    plate_at(store, version)
    tree = xarray.open_datatree(cuzarr.open_group(store, mode="r"), engine="cuzarr", device=device)
    fields = ("/A/1/0", "/A/1/1", "/B/2/0", "/B/2/1")
    levels = {f"{field}/{level}" for field in fields for level in ("s0", "s1")}
    assert set(tree.groups) == {"/", "/A", "/B", "/A/1", "/B/2", *fields, *levels}
    level = tree["B/2/1/s1"]
    assert level["image"].dims == ("c", "y", "x") and level["image"].dtype == "u2", "elements with the fill value are not missing"
    np.testing.assert_array_equal(to_host(level["image"].data), VALUES[:, ::2, ::2] + 101)
    np.testing.assert_array_equal(level["y"], 10 + np.arange(20))
    np.testing.assert_array_equal(level["x"], 20 + 0.5 * np.arange(12))
    assert level["c"].values.tolist() == ["DAPI", "GFP"] and level["y"].attrs == {"units": "micrometer"}
    alone = xarray.open_datatree(cuzarr.open_group(store, path="A/1/0"), engine="cuzarr")
    picked = alone["s0"]["image"].sel(c="GFP").sel(y=11.1, x=20.6, method="nearest")
    assert int(to_host(picked.data)) == VALUES[1, 2, 2]


def test_a_tree_is_opened_in_few_rounds_and_keeps_what_has_no_image() -> None:
    xarray = pytest.importorskip("xarray", reason="skipped: xarray is not installed")
    store = far()
    group = plate_at(store, wells=("A/1", "A/2", "A/3", "B/1", "B/2", "B/3"))
    group.create_array("A/1/0/background", data=np.ones(3), dimension_names=("n",))
    changed(store, "B/2/1", "multiscales", [])
    cuzarr.open_group(store, path="B/2/1").create_array("extra", data=np.ones(2), dimension_names=("n",))
    for level in ("s0", "s1"):
        del cuzarr.open_group(store, path="B/2/1")[level]
    store.wait_seconds = 0.1
    opened = cuzarr.open_group(store)
    tree, rounds = store.count(lambda: xarray.open_datatree(opened, engine="cuzarr", decode_times=False))
    assert rounds <= 12, rounds
    assert list(tree["A/1/0"].data_vars) == ["background"] and list(tree["B/2/1"].data_vars) == ["extra"]


def test_a_tree_of_geozarr_has_levels_that_are_groups_or_arrays(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray", reason="skipped: xarray is not installed")
    layout = [{"asset": "r10m"}, {"asset": "r20m", "derived_from": "r10m", "transform": {"scale": [2.0, 2.0]}}]
    bands = cuzarr.create_group(tmp_path / "bands", attributes={"multiscales": {"layout": layout}, "proj:code": "EPSG:32631"})
    flat = cuzarr.create_group(tmp_path / "flat", attributes={"multiscales": {"layout": layout}})
    for name, step in (("r10m", 1), ("r20m", 2)):
        data = VALUES[0, ::step, ::step]
        flat.create_array(name, data=data, dimension_names=("y", "x"))
        bands.create_array(f"{name}/b02", data=data, dimension_names=("y", "x"))
        bands.create_array(f"{name}/x", data=np.arange(24 // step), dimension_names=("x",))
    tree = xarray.open_datatree(tmp_path / "bands", engine="cuzarr", consolidated=False)
    assert tree["r20m"]["b02"].shape == (20, 12) and "x" in tree["r20m"].coords and tree.attrs["proj:code"] == "EPSG:32631"
    tree = xarray.open_datatree(tmp_path / "flat", engine="cuzarr", consolidated=False)
    assert {name: tree[name]["image"].shape for name in ("r10m", "r20m")} == {"r10m": (40, 24), "r20m": (20, 12)}

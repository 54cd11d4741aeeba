"""Pyramids: their levels are NumPy's reductions of the level before, and OME-Zarr's own models read them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import to_host

import cuzarr
from cuzarr.errors import (
    ContainsGroupError,
    GroupNotFoundError,
    InvalidArgumentError,
    MetadataValidationError,
    UnsupportedError,
)

VALUES = np.random.default_rng(5).integers(0, 40, (2, 12, 50, 36)).astype("uint16")


def halved(values: np.ndarray[Any, Any], method: str) -> np.ndarray[Any, Any]:
    """Half as large along z, y and x; all extents are even."""
    c, z, y, x = values.shape
    boxes = (
        values.reshape(c, z // 2, 2, y // 2, 2, x // 2, 2).transpose(0, 1, 3, 5, 2, 4, 6).reshape(c, z // 2, y // 2, x // 2, 8)
    )
    if method == "mode":
        counts = (boxes[..., :, None] == boxes[..., None, :]).sum(-1)
        return np.where(counts == counts.max(-1, keepdims=True), boxes, 1 << 15).min(-1)  # type: ignore[no-any-return]
    reduced = {"mean": lambda: np.rint(boxes.mean(-1)), "max": lambda: boxes.max(-1), "nearest": lambda: boxes[..., 0]}[method]()
    return np.asarray(reduced, values.dtype)


@pytest.mark.parametrize("method", ["mean", "max", "nearest", "mode"])
def test_levels_are_reductions_and_an_ome_zarr_reader_opens_them(method: Any, device: str, tmp_path: Path) -> None:
    source = cuzarr.create_array(tmp_path / "source", data=VALUES, chunks=(1, 4, 16, 16), dimension_names=["c", "z", "y", "x"])
    group = cuzarr.pyramid(
        source,
        tmp_path / "image.ome.zarr",
        method=method,
        levels=2,
        scale=(1, 0.3, 0.2, 0.2),
        units=(None, "micrometer", "micrometer", "micrometer"),
        device=device,
        memory_limit="512 KiB",
    )
    np.testing.assert_array_equal(cuzarr.open_array(group.store, path="0", device="cpu")[...], VALUES)
    np.testing.assert_array_equal(cuzarr.open_array(group.store, path="1", device="cpu")[...], halved(VALUES, method))
    zarr = pytest.importorskip("zarr", minversion="3")
    models = pytest.importorskip("ome_zarr_models.v05")
    image = models.Image.from_zarr(zarr.open_group(tmp_path / "image.ome.zarr", mode="r"))
    (multiscale,) = image.ome_attributes.multiscales
    assert [axis.name for axis in multiscale.axes] == ["c", "z", "y", "x"]
    assert [dataset.path for dataset in multiscale.datasets] == ["0", "1"]
    assert multiscale.datasets[1].coordinateTransformations[0].scale == [1, 0.6, 0.4, 0.4]


def blurred(values: np.ndarray[Any, Any], axis: int, factor: int) -> np.ndarray[Any, Any]:
    """Means along one dimension with the weights of a Gaussian around the middle of each box."""
    places = np.arange(values.shape[axis])
    middles = np.arange(-(-values.shape[axis] // factor)) * factor + (factor - 1) / 2
    distances = places[None] - middles[:, None]
    weights = np.exp(-((distances * 3 / factor) ** 2) / 2) * (abs(distances) <= 4 / 3 * factor)
    weights /= weights.sum(axis=1, keepdims=True)
    return np.moveaxis(np.tensordot(weights, values, (1, axis)), 0, axis)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_a_gaussian_takes_in_neighbours_of_other_regions(dtype: str, device: str, tmp_path: Path) -> None:
    values = np.random.default_rng(6).integers(0, 4000, (5, 61, 70)).astype(dtype)
    source = cuzarr.create_array(tmp_path / "source", data=values, chunks=(2, 16, 16), dimension_names=["z", "y", "x"])
    options: dict[str, Any] = {"method": "gaussian", "levels": 3, "factors": {"y": 2, "x": 3}, "device": device}
    small = cuzarr.pyramid(source, tmp_path / "small", memory_limit="128 KiB", **options)
    large = cuzarr.pyramid(source, tmp_path / "large", **options)
    above = values
    for level in ("1", "2"):
        got = cuzarr.open_array(large.store, path=level, device="cpu")[...]
        np.testing.assert_array_equal(cuzarr.open_array(small.store, path=level, device="cpu")[...], got)
        expected = blurred(blurred(above.astype("f8"), 1, 2), 2, 3)
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=0.5 + 1e-9 if dtype == "uint16" else 1e-3)
        above = got
    assert small.attrs["ome"]["multiscales"][0]["type"] == "gaussian"
    with pytest.raises(UnsupportedError, match="gaussian does not take int64"):
        cuzarr.pyramid(values.astype("int64"), {}, method="gaussian")


def test_a_pyramid_is_planned_refused_and_resumed(tmp_path: Path) -> None:
    source = cuzarr.create_array({}, data=VALUES[0, 0], chunks=(16, 16))
    plan = cuzarr.pyramid(source, tmp_path / "p", levels=3, dry_run=True)
    assert [level["shape"] for level in plan["levels"]] == [[50, 36], [25, 18], [13, 9]]
    assert not (tmp_path / "p").exists()
    cuzarr.pyramid(source, tmp_path / "p", levels=3)
    with pytest.raises(ContainsGroupError):
        cuzarr.pyramid(source, tmp_path / "p", levels=3)
    again = cuzarr.pyramid(source, tmp_path / "p", levels=3, resume=True)
    assert again["2"].shape == (13, 9)
    with pytest.raises(InvalidArgumentError, match="axes"):
        cuzarr.pyramid(source, {}, axes="xy")
    with pytest.raises(InvalidArgumentError, match="unknown method"):
        cuzarr.pyramid(source, {}, method="median")  # type: ignore[arg-type]
    complex_array = cuzarr.create_array({}, data=VALUES[0, 0].astype("complex64"), chunks=(16, 16))
    with pytest.raises(UnsupportedError, match="nearest"):
        cuzarr.pyramid(complex_array, {})
    assert cuzarr.pyramid(complex_array, {}, method="nearest", levels=2)["1"].dtype == np.complex64


SPACE = (None, "micrometer", "micrometer", "micrometer")


def named(place: Any) -> cuzarr.Array:
    return cuzarr.create_array(place, data=VALUES, chunks=(1, 4, 16, 16), dimension_names=["c", "z", "y", "x"])


def command(*arguments: str) -> str:
    """What the command prints."""
    return subprocess.run([sys.executable, "-m", "cuzarr", *arguments], check=True, capture_output=True, text=True).stdout


def validated(place: Path, version: str) -> Any:
    """The image and its labels as OME-Zarr's own models read them."""
    zarr = pytest.importorskip("zarr", minversion="3")
    models = pytest.importorskip("ome_zarr_models")
    models = models.v04 if version == "0.4" else models.v05
    image = models.image.Image.from_zarr(zarr.open_group(place, mode="r"))
    if (place / "labels").exists():
        group = zarr.open_group(place, mode="r")["labels"]
        labels = models.labels.Labels.from_zarr(group)
        for name in labels.attributes.labels if version == "0.4" else labels.attributes.ome.labels:
            models.image_label.ImageLabel.from_zarr(group[name])
    return image


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_images_with_channels_and_labels_are_valid_ome_zarr(version: Any, device: str, tmp_path: Path) -> None:
    place = tmp_path / "image.zarr"
    image = cuzarr.pyramid(
        named({}),
        place,
        version=version,
        levels=3,
        scale=(1, 2, 0.5, 0.5),
        units=SPACE,
        channels=["DAPI", {"label": "GFP", "color": "FF00FF"}],
    )
    # z is left alone until x and y are as coarse.
    assert [image[str(level)].shape for level in range(3)] == [(2, 12, 50, 36), (2, 12, 25, 18), (2, 12, 13, 9)]
    attributes = image.attrs["ome"] if version == "0.5" else image.attrs
    assert image.metadata.zarr_format == (3 if version == "0.5" else 2)
    smallest = to_host(image["2"][...])
    assert image["2"].device == device
    for number, channel in enumerate(attributes["omero"]["channels"]):
        assert channel["label"] == ["DAPI", "GFP"][number]
        window = {"min": 0, "max": 65535, "start": smallest[number].min(), "end": smallest[number].max()}
        assert channel["window"] == window
    cells = (VALUES[0] > 20).astype("uint8") * 7
    colors = [{"label-value": 7, "rgba": [255, 0, 0, 255]}]
    labels = cuzarr.pyramid(cells, place, labels="cells", label_metadata={"colors": colors})
    assert labels.path == "labels/cells" and [labels[str(level)].shape for level in range(3)] == [
        (12, 50, 36),
        (12, 25, 18),
        (12, 13, 9),
    ]
    assert set(np.unique(to_host(labels["2"][...]))) <= {0, 7}, "no label appears that was not there"
    own = (labels.attrs["ome"] if version == "0.5" else labels.attrs)["image-label"]
    assert own == {"source": {"image": "../../"}, "colors": colors, "version": version}
    cuzarr.pyramid(cells, place, labels="nuclei")
    listed = cuzarr.open_group(place, path="labels").attrs
    assert (listed["ome"] if version == "0.5" else listed)["labels"] == ["cells", "nuclei"]
    read = validated(place, version)
    multiscale = (read.attributes.multiscales if version == "0.4" else read.ome_attributes.multiscales)[0]
    assert [axis.unit for axis in multiscale.axes] == list(SPACE)
    text = command("info", str(place))
    for part in (f"OME-Zarr {version}", "c, z (micrometer)", "1 (2, 12, 25, 18)", "DAPI, GFP", "cells, nuclei"):
        assert part in text, (part, text)
    assert "9 x 13 pixels" in command("preview", str(place), "--dry-run", "--level", "2")
    assert '"array": "/2"' in command("preview", str(place), "--json", "--width", "9")
    assert '"array": "/0"' in command("preview", str(place), "--json", "--width", "9", "--slice", "0,0")


def test_an_image_is_made_anew_in_the_other_version_with_all_that_belongs_to_it(device: str, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    image = cuzarr.pyramid(
        named({}), old, version="0.4", levels=2, scale=(1, 2, 0.5, 0.5), units=SPACE, channels=["a", "b"], name="cells"
    )
    image.attrs["microscope"] = "A1"
    cuzarr.pyramid((VALUES[0] > 20).astype("uint16"), old, labels="nuclei")
    halved = cuzarr.pyramid(old, {}, levels=2, factors=(1, 1, 2, 1))
    assert halved["1"].shape == (2, 12, 25, 36) and halved["labels/nuclei/1"].shape == (12, 25, 36)
    made = cuzarr.pyramid(old, new, levels=3)
    ome = made.attrs["ome"]
    assert made.attrs["microscope"] == "A1" and "multiscales" not in made.attrs
    assert [channel["label"] for channel in ome["omero"]["channels"]] == ["a", "b"]
    assert ome["multiscales"][0]["name"] == "cells"
    assert ome["multiscales"][0]["datasets"][0]["coordinateTransformations"] == [{"type": "scale", "scale": [1, 2, 0.5, 0.5]}]
    np.testing.assert_array_equal(to_host(made["0"][...]), VALUES)
    np.testing.assert_array_equal(to_host(made["labels/nuclei/0"][...]), VALUES[0] > 20)
    validated(new, "0.5")


def test_geozarrs_images_are_read(tmp_path: Path) -> None:
    group = cuzarr.open_group(tmp_path / "geo", mode="w")
    layout = [
        {"asset": "r10m", "transform": {"scale": [10.0, 10.0]}},
        {"asset": "r20m", "derived_from": "r10m", "transform": {"scale": [2.0, 2.0]}},
    ]
    group.attrs.update(
        {
            "multiscales": {"layout": layout},
            "proj:code": "EPSG:32631",
            "zarr_conventions": [{"name": "multiscales"}, {"name": "proj:"}],
        }
    )
    group.create_array("r10m", data=VALUES[0, 0], chunks=(16, 16))
    group.create_array("r20m", data=VALUES[0, 0, ::2, ::2], chunks=(16, 16))
    made = cuzarr.pyramid(group, tmp_path / "image", levels=2)
    datasets = made.attrs["ome"]["multiscales"][0]["datasets"]
    assert datasets[1]["coordinateTransformations"][0]["scale"] == [20, 20] and made.attrs["proj:code"] == "EPSG:32631"
    assert made.attrs["zarr_conventions"] == [{"name": "proj:"}]
    copied = cuzarr.copy(group, tmp_path / "copied")
    assert copied.attrs["multiscales"] == {"layout": layout}


def test_levels_of_geozarr_that_are_groups_are_read(tmp_path: Path) -> None:
    layout = [{"asset": "full"}, {"asset": "half", "derived_from": "full", "transform": {"scale": [2.0, 2.0]}}]
    source = cuzarr.create_group(tmp_path / "geo", attributes={"multiscales": {"layout": layout}})
    for name, step in (("full", 1), ("half", 2)):
        source.create_array(f"{name}/height", data=VALUES[0, 0, ::step, ::step], dimension_names=("y", "x"))
        source.create_array(f"{name}/x", data=np.arange(36 // step), dimension_names=("x",))
    made = cuzarr.pyramid(source, {}, levels=2)
    np.testing.assert_array_equal(to_host(made["0"][...]), VALUES[0, 0])
    assert "half (group)" in command("info", str(tmp_path / "geo"))
    assert '"array": "/half/height"' in command("preview", str(tmp_path / "geo"), "--json", "--level", "1")
    source.create_array("full/slope", data=VALUES[0, 0], dimension_names=("y", "x"))
    with pytest.raises(UnsupportedError, match=r"'full' is a group with the arrays \[\"height\", \"slope\"\]"):
        cuzarr.pyramid(source, {}, levels=2)


@pytest.mark.parametrize("version", ["0.4", "0.5", "0.6"])
def test_further_members_of_axes_are_kept(version: Any) -> None:
    orientation = {"type": "anatomical", "value": "left-to-right"}
    axes = [{"name": "y", "type": "space"}, {"name": "x", "type": "space", "unit": "millimeter", "orientation": orientation}]
    image = {"axes": axes, "datasets": [{"path": "0"}]}
    source = cuzarr.create_group({}, attributes={"ome": {"version": "0.5", "multiscales": [image]}})
    source.create_array("0", data=VALUES[0, 0])
    made = cuzarr.pyramid(source, {}, version=version)
    (kept,) = (made.attrs if version == "0.4" else made.attrs["ome"])["multiscales"]
    assert (kept["coordinateSystems"][0] if version == "0.6" else kept)["axes"] == axes


def test_factors_of_dimensions_are_chosen(device: str) -> None:
    factors = {"y": 2, "x": 3}
    made = cuzarr.pyramid(named({}), {}, levels=2, factors=factors, method="max")
    assert made["1"].shape == (2, 12, 25, 12)
    expected = VALUES.reshape(2, 12, 25, 2, 12, 3).max(axis=(3, 5))
    np.testing.assert_array_equal(to_host(made["1"][...]), expected)
    assert cuzarr.pyramid(named({}), {}, levels=2, factors=(1, 4, 1, 1), dry_run=True)["levels"][1]["shape"] == [2, 3, 50, 36]
    with pytest.raises(InvalidArgumentError, match="product of 2"):
        cuzarr.pyramid(named({}), {}, factors=(1, 1, 1, 1))
    for size in (float("nan"), float("inf")):
        with pytest.raises(InvalidArgumentError, match="expected finite numbers"):
            cuzarr.pyramid(named({}), {}, scale={"x": size})
    with pytest.raises(InvalidArgumentError, match="4, one for each dimension"):
        cuzarr.pyramid(named({}), {}, factors=(2, 2))


def test_arrays_in_memory_are_made_into_images(device: str, tmp_path: Path) -> None:
    pixels = VALUES[0, 0] if device == "cpu" else cuzarr.xp.asarray(VALUES[0, 0], device=device)
    made = cuzarr.pyramid(pixels, tmp_path / "image", levels=2, chunks=(16, 16), axes="yx")
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "image", path="0", device="cpu")[...], VALUES[0, 0])
    assert (
        made["1"].chunks == (16, 16)
        and made["1"].compressors == cuzarr.create_array({}, shape=(9, 9), dtype="uint16").compressors
    )
    with pytest.raises(InvalidArgumentError, match="cannot be resumed"):
        cuzarr.pyramid(VALUES[0, 0], {}, resume=True)


def test_groups_that_are_no_image_and_labels_without_one_are_refused(tmp_path: Path) -> None:
    plate = cuzarr.open_group(tmp_path / "plate", mode="w", attributes={"ome": {"version": "0.5", "plate": {}}})
    with pytest.raises(InvalidArgumentError, match="holds several images"):
        cuzarr.pyramid(plate, {})
    with pytest.raises(InvalidArgumentError, match="or a group that is an image"):
        cuzarr.pyramid(cuzarr.open_group({}, mode="w"), {})
    cells = np.ones((8, 8), "uint8")
    with pytest.raises(GroupNotFoundError, match="no image"):
        cuzarr.pyramid(cells, tmp_path / "nothing", labels="cells")
    cuzarr.pyramid(cells, tmp_path / "image", path="a/0")
    for labels, error, message in [
        (np.ones((4, 8), "uint8"), InvalidArgumentError, "labels have shape"),
        (np.ones((2, 8, 8), "uint8"), InvalidArgumentError, "3 dimensions"),
        (cells.astype("float32"), UnsupportedError, "mode|integers"),
    ]:
        with pytest.raises(error, match=message):
            cuzarr.pyramid(labels, tmp_path / "image", path="a/0", labels="cells")
    with pytest.raises(InvalidArgumentError, match="of version 0.5"):
        cuzarr.pyramid(cells, tmp_path / "image", path="a/0", labels="cells", version="0.4")
    with pytest.raises(InvalidArgumentError, match="got 1 channels"):
        cuzarr.pyramid(named({}), {}, channels=["one"])
    with pytest.raises(InvalidArgumentError, match="hexadecimal"):
        cuzarr.pyramid(cells, {}, channels=[{"label": "one", "color": "red"}])


def test_an_ozx_file_is_a_zip_file_that_lists_documents_first(device: str, tmp_path: Path) -> None:
    values = VALUES[0, 0]
    image = cuzarr.pyramid(values, tmp_path / "image.ozx", levels=2, axes="yx", method="gaussian", device=device)
    assert image["0"].device == device
    np.testing.assert_array_equal(to_host(image["0"][...]), values)
    with zipfile.ZipFile(tmp_path / "image.ozx") as file:
        names = [member.filename for member in file.infolist()]
        assert {member.compress_type for member in file.infolist()} == {zipfile.ZIP_STORED}
        assert json.loads(file.comment) == {"ome": {"version": "0.5", "zipFile": {"centralDirectory": {"jsonFirst": True}}}}
    documents = [name.endswith("zarr.json") for name in names]
    assert names[0] == "zarr.json" and documents == sorted(documents, reverse=True) and len(names) == len(set(names)) > 4
    again = cuzarr.open_group(tmp_path / "image.ozx", mode="r")
    np.testing.assert_array_equal(to_host(again["1"][...]), np.rint(blurred(blurred(values.astype("f8"), 0, 2), 1, 2)))


AXES_06 = [
    {"name": "c", "type": "channel", "discrete": True},
    {"name": "y", "type": "space", "unit": "micrometer", "longName": "rows"},
    {"name": "x", "type": "space", "unit": "micrometer"},
]
CHANNELS = np.broadcast_to(np.array([100, 200, 300, 400], "u2")[:, None, None], (4, 64, 64))


def image_06(place: Any, step: dict[str, Any], output: Any = None, **members: Any) -> cuzarr.Group:
    """An image of OME-Zarr 0.6 with one level."""
    group = cuzarr.create_group(place)
    group.create_array("s0", data=CHANNELS, chunks=(1, 64, 64))
    ends = {"input": {"path": "s0"}, "output": {"name": "physical"} if output is None else output}
    image = {
        "name": "cells",
        "coordinateSystems": [{"name": "physical", "axes": AXES_06}],
        "datasets": [{"path": "s0", "coordinateTransformations": [{**step, **ends}]}],
    }
    group.attrs["ome"] = {"version": members.pop("version", "0.6"), "multiscales": [image | members]}
    return group


SCALE = {"type": "scale", "scale": [1, 0.5, 0.25]}
SEQUENCE = {"type": "sequence", "transformations": [SCALE, {"type": "translation", "translation": [0, 10, 20]}]}


def test_an_image_with_coordinate_systems_keeps_its_channels_axes_and_places(tmp_path: Path) -> None:
    source = image_06(tmp_path / "a.zarr", SEQUENCE)
    made = cuzarr.pyramid(source, tmp_path / "b.zarr", levels=2)
    for path in ("0", "1"):
        assert np.unique(made[path][:]).tolist() == [100, 200, 300, 400] and made[path].shape[0] == 4
    (image,) = made.attrs["ome"]["multiscales"]
    assert made.attrs["ome"]["version"] == "0.6" and "axes" not in image
    assert image["coordinateSystems"] == [{"name": "physical", "axes": AXES_06}]
    ends = {"input": {"path": "1"}, "output": {"name": "physical"}}
    # The level's first element is the middle of a box of two rows and, as columns are half as wide, four would be as high.
    scale, place = [1.0, 0.5, 0.5], [0.0, 10.0, 20.125]
    steps = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": place}]
    assert image["datasets"][1]["coordinateTransformations"] == [{"type": "sequence", "transformations": steps, **ends}]
    again = cuzarr.pyramid(made, tmp_path / "c.zarr", levels=2)
    assert again.attrs["ome"]["multiscales"][0]["datasets"] == image["datasets"]
    shown = (
        str(made.info)
        + subprocess.run(
            [sys.executable, "-m", "cuzarr", "info", str(tmp_path / "b.zarr")], capture_output=True, text=True, check=True
        ).stdout
    )
    assert "OME-Zarr 0.6" in shown and "y (micrometer)" in shown


@pytest.mark.parametrize("step", [SCALE, {"type": "identity"}])
@pytest.mark.parametrize("version", ["0.6", "0.6.dev4", "0.6rc0"])
def test_drafts_and_single_transformations_of_version_0_6_are_read(step: dict[str, Any], version: str) -> None:
    made = cuzarr.pyramid(image_06({}, step, "physical", version=version), {}, levels=2, factors=(1, 2, 2))
    (image,) = made.attrs["ome"]["multiscales"]
    base = np.array(step.get("scale", [1, 1, 1]), "f8")
    (first,) = image["datasets"][0]["coordinateTransformations"]
    (second,) = image["datasets"][1]["coordinateTransformations"]
    assert (first["type"], first["scale"], first["output"]) == ("scale", base.tolist(), {"name": "physical"})
    assert second["transformations"][0]["scale"] == (base * [1, 2, 2]).tolist()


def test_other_coordinate_systems_are_kept_or_the_pyramid_is_refused() -> None:
    systems = [{"name": "physical", "axes": AXES_06}, {"name": "stage", "axes": AXES_06}]
    turned = {
        "type": "affine",
        "affine": [[1, 0, 0, 0], [0, 0, 1, 5], [0, -1, 0, 0]],
        "input": {"name": "physical"},
        "output": {"name": "stage"},
    }
    source = image_06({}, SCALE, coordinateSystems=systems, coordinateTransformations=[turned])
    (image,) = cuzarr.pyramid(source, {}, levels=2).attrs["ome"]["multiscales"]
    assert image["coordinateSystems"] == systems and image["coordinateTransformations"] == [turned]
    for changed in ({"version": "0.5"}, {"scale": (1, 2, 2)}):
        with pytest.raises(UnsupportedError, match="stage"):
            cuzarr.pyramid(source, {}, levels=2, **changed)


def test_an_image_of_version_0_6_becomes_one_of_another_version_and_the_other_way_round() -> None:
    older = cuzarr.pyramid(image_06({}, SEQUENCE), {}, levels=2, version="0.5")
    (image,) = older.attrs["ome"]["multiscales"]
    assert [axis["name"] for axis in image["axes"]] == ["c", "y", "x"] and image["axes"][1]["unit"] == "micrometer"
    assert image["datasets"][0]["coordinateTransformations"] == [SCALE, {"type": "translation", "translation": [0, 10, 20]}]
    newer = cuzarr.pyramid(older, {}, levels=2, version="0.6")
    (image,) = newer.attrs["ome"]["multiscales"]
    assert (
        image["coordinateSystems"][0]["name"] == "intrinsic" and image["coordinateSystems"][0]["axes"][2]["unit"] == "micrometer"
    )


def test_labels_of_an_image_of_version_0_6_have_its_version() -> None:
    store = cuzarr.storage.MemoryStore()
    cuzarr.pyramid(image_06({}, SCALE), store, levels=2)
    labels = cuzarr.pyramid(np.ones((64, 64), "u1"), store, labels="cells")
    assert labels.attrs["ome"]["version"] == labels.attrs["ome"]["image-label"]["version"] == "0.6"
    (image,) = labels.attrs["ome"]["multiscales"]
    assert image["datasets"][0]["coordinateTransformations"][0]["scale"] == [0.5, 0.25]
    again = cuzarr.pyramid(cuzarr.open_group(store), {}, levels=2)
    assert again["labels/cells"].attrs["ome"]["version"] == "0.6"


@pytest.mark.parametrize("kind", ["affine", "rotation", "byDimension", "mapAxis", "displacements", "bijection"])
def test_transformations_of_levels_that_cannot_be_composed_are_refused_by_name(kind: str) -> None:
    for step in ({"type": kind}, {"type": "sequence", "transformations": [SCALE, {"type": kind}]}):
        with pytest.raises(UnsupportedError, match=kind):
            cuzarr.pyramid(image_06({}, step), {}, levels=2)


def test_versions_that_are_not_known_and_broken_coordinate_systems_are_refused_by_name() -> None:
    for version in ("0.7", "0.10", "1.0", "latest", 0.7, []):
        with pytest.raises(UnsupportedError, match=re.escape(str(version))):
            cuzarr.pyramid(image_06({}, SCALE, version=version), {}, levels=2)
    for broken, named in (
        (image_06({}, SCALE, {"name": "elsewhere"}), "elsewhere"),
        (image_06({}, SCALE, coordinateSystems=3), "coordinateSystems"),
        (image_06({}, {"type": "scale", "path": "numbers"}), "numbers"),
    ):
        with pytest.raises((MetadataValidationError, UnsupportedError), match=named):
            cuzarr.pyramid(broken, {}, levels=2)

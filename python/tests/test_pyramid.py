"""Pyramids: their levels are NumPy's reductions of the level before, and OME-Zarr's own models read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import ContainsGroupError, InvalidArgumentError, UnsupportedError

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
        scale=(1, 0.5, 0.2, 0.2),
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
    assert multiscale.datasets[1].coordinateTransformations[0].scale == [1, 1.0, 0.4, 0.4]


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

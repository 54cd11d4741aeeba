"""Adapters and recipes for other programs, each with the program itself where it is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import InvalidArgumentError, ShapeMismatchError
from cuzarr.stacks.earth2studio import Backend

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "stacks.md").read_text()
SECTIONS = {part.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```", part, re.M | re.S) for part in GUIDE.split("\n## ")[1:]}
LIBRARIES = {
    "DALI": "nvidia.dali",
    "PhysicsNeMo": "physicsnemo.datapipes",
    "Earth2Studio": "earth2studio.run",
    "anemoi-datasets": "anemoi.datasets",
}

LATITUDES, LONGITUDES = np.linspace(90, -90, 5), np.linspace(0, 315, 8)
STEPS = np.arange(6) * np.timedelta64(6, "h")
TIMES = np.array(["2026-01-01", "2026-01-02"], "datetime64[ns]")
NAMES = ["t2m", "msl"]


def coords(**parts: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Coordinates of a forecast, some of them changed."""
    return {"time": TIMES, "lead_time": STEPS, "lat": LATITUDES, "lon": LONGITUDES} | parts


def field(values: dict[str, np.ndarray[Any, Any]], seed: int = 1) -> np.ndarray[Any, Any]:
    shape = tuple(map(len, values.values()))
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def host(array: cuzarr.Array) -> np.ndarray[Any, Any]:
    return np.asarray(array.with_device("cpu")[...])


def on(device: str, values: np.ndarray[Any, Any]) -> Any:
    return values if device == "cpu" else cuzarr.DeviceArray.from_host(values, device)


# ------------------------------------------------------------------------------------------------------- Earth2Studio


@pytest.mark.parametrize("chunks", [None, {"lead_time": 4}, {"time": 1, "lead_time": 3, "lat": 2}])
def test_forecasts_are_stored_step_by_step(tmp_path: Path, device: str, chunks: dict[str, int] | None) -> None:
    truth = {name: field(coords(), seed) for seed, name in enumerate(NAMES)}
    with Backend(tmp_path, chunks=chunks, device=device) as backend:
        backend.add_array(coords(), np.array(NAMES))
        for step in range(len(STEPS)):
            part = [on(device, truth[name][:, step : step + 1]) for name in NAMES]
            backend.write(part, coords(lead_time=STEPS[step : step + 1]), np.array(NAMES))
    for name in NAMES:
        assert np.array_equal(host(backend[name]), truth[name])
        assert backend[name].chunks == tuple(
            (chunks or {"time": 1, "lead_time": 1}).get(dim, len(of)) for dim, of in coords().items()
        )
    opened = pytest.importorskip("xarray").open_zarr(tmp_path, consolidated=False)
    assert opened["t2m"].dims == tuple(coords()) and (opened["lead_time"] == STEPS).all() and (opened["time"] == TIMES).all()


def test_members_of_an_ensemble_come_in_batches(device: str) -> None:
    members = {"ensemble": np.arange(5)}
    truth = field(members | coords())
    with Backend({}, chunks={"ensemble": 1, "lead_time": 2}, device=device) as backend:
        backend.add_array(members | coords(), "t2m")
        for batch in (slice(0, 2), slice(2, 4), slice(4, 5)):
            for step in range(len(STEPS)):
                part = {"ensemble": np.arange(5)[batch]} | coords(lead_time=STEPS[step : step + 1])
                backend.write(on(device, np.ascontiguousarray(truth[batch, :, step : step + 1])), part, "t2m")
        assert np.array_equal(host(backend["t2m"]), truth)


def test_fields_may_come_in_any_order_and_any_part(tmp_path: Path) -> None:
    truth = field(coords())
    parts = [
        {"lead_time": [5]}, {"lead_time": [1]}, {"lead_time": [3]}, {"lead_time": [0], "time": [1]}, {"lead_time": [0], "time": [0]},
        {"lead_time": [4, 2], "lat": [3, 0, 1, 2, 4]},
    ]  # fmt: skip
    with Backend(tmp_path, chunks={"lead_time": 4}) as backend:
        for part in parts:
            at = np.ix_(*(np.asarray(part.get(dim, range(len(of)))) for dim, of in coords().items()))
            chosen = {dim: of[part[dim]] if dim in part else of for dim, of in coords().items()}
            backend.add_array(coords(), "t2m")
            backend.write(truth[at], chosen, "t2m")
        assert np.array_equal(backend["t2m"][...], truth)


def test_arrays_that_share_a_writer_are_written_together(tmp_path: Path) -> None:
    with Backend(tmp_path) as backend:
        backend.add_array(coords(), NAMES)
        fields = [field(coords(), seed)[:, :1] for seed in (1, 2)]
        backend.write(fields, coords(lead_time=STEPS[:1]), NAMES)
        backend.write(fields[0] + 1, coords(lead_time=STEPS[:1]), "t2m")
        assert np.array_equal(backend["t2m"][:, :1], fields[0] + 1)
        assert np.array_equal(backend["msl"][:, :1], fields[1]) and np.isnan(backend["msl"][:, 1:]).all()


def test_grids_of_two_dimensions_are_coordinates(tmp_path: Path) -> None:
    lat, lon = np.meshgrid(LATITUDES, LONGITUDES, indexing="ij")
    curved = {"lead_time": STEPS, "lat": lat, "lon": lon, "_lat": lat}
    truth = field(coords())[0]
    with Backend(tmp_path) as backend:
        backend.add_array(curved, "t2m")
        backend.write(truth[2:3], curved | {"lead_time": STEPS[2:3]}, "t2m")
        assert np.array_equal(backend["t2m"][2], truth[2]) and np.array_equal(backend["lat"][...], lat)
    assert backend["t2m"].metadata.dimension_names == ("lead_time", "ilat", "ilon")
    with pytest.raises(ShapeMismatchError, match="expected 2 coordinates of one shape"):
        backend.add_array({"lat": lat, "lon": lon[1:]}, "other")


def test_what_does_not_fit_is_refused() -> None:
    with Backend({}) as backend:
        backend.add_array(coords(), "t2m")
        with pytest.raises(InvalidArgumentError, match="dimension 'lead_time' has no coordinate 99 hours"):
            backend.write(field(coords())[:, :1], coords(lead_time=np.array([np.timedelta64(99, "h")])), "t2m")
        with pytest.raises(ShapeMismatchError, match="1 fields for 2 names"):
            backend.write([field(coords())], coords(), NAMES)
        with pytest.raises(ShapeMismatchError):
            backend.write(field(coords())[:, :2, :3], coords(lead_time=STEPS[:2]), "t2m")
        with pytest.raises(ShapeMismatchError, match="has the dimensions"):
            backend.write(field(coords()), dict(reversed(coords().items())), "t2m")
        assert np.isnan(backend["t2m"][...]).all() and len(list(backend)) == 5 and "t2m" in backend and "msl" not in backend


def test_an_existing_group_is_continued(tmp_path: Path) -> None:
    truth = field(coords())
    for step in range(len(STEPS)):
        backend = Backend(tmp_path)
        backend.add_array(coords(), "t2m")
        backend.write(truth[:, step : step + 1], coords(lead_time=STEPS[step : step + 1]), "t2m")
        del backend  # what was written is stored, and no writer complains
    assert np.array_equal(Backend(tmp_path)["t2m"][...], truth)
    Backend(tmp_path).add_array(coords(), "t2m", dtype="int16", overwrite=True)
    assert not Backend(tmp_path)["t2m"][...].any()


def test_the_end_of_a_program_stores_what_was_written(tmp_path: Path) -> None:
    program = f"""
import numpy as np
from cuzarr.stacks.earth2studio import Backend
coords = {{"lead_time": np.arange(3), "x": np.arange(4)}}
backend = Backend({str(tmp_path)!r}, chunks={{"lead_time": 2}})
backend.add_array(coords, "t2m")
for step in range(3):
    backend.write(np.full((1, 4), step, "f4"), coords | {{"lead_time": np.array([step])}}, "t2m")
"""
    done = subprocess.run([sys.executable, "-Walways", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "ResourceWarning" not in done.stderr, done.stderr
    assert cuzarr.open_array(tmp_path, path="t2m", mode="r")[:, 0].tolist() == [0, 1, 2]


def test_a_workflow_of_earth2studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    io = pytest.importorskip("earth2studio.io", reason="skipped: earth2studio is not installed")
    run, data, models = (pytest.importorskip(f"earth2studio.{name}") for name in ("run", "data", "models.px"))
    axes = {"lat": LATITUDES, "lon": LONGITUDES}
    model, source = models.Persistence(NAMES, axes, history=1), data.Constant(axes, value=3.5)
    backend = Backend(tmp_path)
    assert isinstance(backend, io.IOBackend)
    plain = io.ZarrBackend()
    for one in (backend, plain):
        run.deterministic(["2026-01-01"], 4, model, source, one, device="cpu")
    for name in NAMES:
        assert np.array_equal(backend[name][...], plain[name][...])
        assert backend[name].metadata.dimension_names == plain[name].metadata.dimension_names


# -------------------------------------------------------------------------------------------------------- PhysicsNeMo


def physicsnemo() -> tuple[Any, Any]:
    """PhysicsNeMo's data pipes, and the adapters for it."""
    pytest.importorskip("torch")
    pipes = pytest.importorskip("physicsnemo.datapipes", reason="skipped: physicsnemo is not installed")
    return pipes, pytest.importorskip("cuzarr.stacks.physicsnemo")


def flows() -> cuzarr.Group:
    group = cuzarr.create_group({})
    for number, name in enumerate(("flow", "heat")):
        values = np.arange(60, dtype="f4").reshape(10, 3, 2) + 100 * number
        group.create_array(name, data=values, chunks=(4, 3, 2), dimension_names=("time", "y", "x"))
    group.create_array("height", data=np.arange(6.0).reshape(3, 2), dimension_names=("y", "x"))
    return group


def test_batches_go_through_the_loader_of_physicsnemo() -> None:
    pipes, adapters = physicsnemo()
    group = flows()
    arrays = {name: group[name] for name in ("flow", "heat")}
    rows = adapters.Batches(cuzarr.torch.BatchDataset(arrays, 4, shuffle=True), transforms=lambda batch: batch * 2)
    loader, seen = pipes.DataLoader(rows, seed=3), []
    for epoch in range(2):
        loader.set_epoch(epoch)
        batches = list(loader)
        assert [tuple(batch.batch_size) for batch in batches] == [(4,), (4,), (2,)]
        assert all((batch["heat"] == batch["flow"] + 200).all() for batch in batches)
        seen.append([int(first) for batch in batches for first in batch["flow"][:, 0, 0]])
    assert sorted(seen[0]) == sorted(seen[1]) == list(range(0, 120, 12)) and seen[0] != seen[1]
    with pytest.raises(cuzarr.errors.ArgumentTypeError, match="expected tensors by name"):
        next(iter(adapters.Batches(cuzarr.torch.BatchDataset(group["flow"], 4))))


def test_a_group_is_read_sample_by_sample() -> None:
    pipes, adapters = physicsnemo()
    group = flows()
    reader = adapters.GroupReader(group.store)
    assert reader.field_names == ["flow", "heat", "height"] and len(reader) == 10
    dataset = pipes.Dataset(reader)
    batches = list(pipes.DataLoader(dataset, batch_size=4, shuffle=True, seed=1))
    assert [tuple(batch["flow"].shape) for batch in batches] == [(4, 3, 2), (4, 3, 2), (2, 3, 2)]
    assert sorted(int(first) for batch in batches for first in batch["flow"][:, 0, 0]) == list(range(0, 60, 6))
    assert all((batch["height"] == batch["height"][0]).all() for batch in batches)
    sample, metadata = reader[-1]
    assert sample["heat"][0, 0] == 154 and metadata["index"] == 9
    for wrong in ("z", "time"):
        group.create_array("other", shape=(3,), dtype="f4", dimension_names=("time",), overwrite=True)
        with pytest.raises(InvalidArgumentError, match=f"along dimension '{wrong}'"):
            adapters.GroupReader(group.store, axis=wrong)


# ------------------------------------------------------------------------------------------------ anndata and annbatch


@pytest.fixture
def cells(tmp_path: Path) -> Any:
    """A store of single cells, and what was written there."""
    anndata, pandas, scipy = (pytest.importorskip(name) for name in ("anndata", "pandas", "scipy.sparse"))
    counts = scipy.random(120, 30, 0.2, format="csr", dtype="float32", random_state=1)
    kinds = pandas.Categorical(np.random.default_rng(2).choice(["B", "T"], 120))
    whole = anndata.AnnData(
        counts,
        obs=pandas.DataFrame({"kind": kinds, "age": np.arange(120)}, index=[f"cell{number}" for number in range(120)]),
        obsm={"X_pca": np.random.default_rng(3).normal(size=(120, 4))},
        layers={"by_gene": counts.tocsc(), "dense": counts.toarray()},
        uns={"seed": np.arange(3), "of": {"text": "a"}},
    )
    whole.write_zarr(tmp_path / "cells.zarr")
    return tmp_path / "cells.zarr", whole


@pytest.mark.parametrize("path", ["", "one"])
def test_an_object_of_anndata_is_read_by_its_registry(cells: Any, tmp_path: Path, path: str) -> None:
    zarr = pytest.importorskip("zarr", minversion="3.1")
    read_elem = pytest.importorskip("cuzarr.stacks.anndata").read_elem
    folder, whole = cells
    if path:
        pytest.importorskip("anndata").io.write_elem(zarr.open_group(tmp_path / "outer.zarr", mode="w"), path, whole)
        folder = tmp_path / "outer.zarr"
    group = zarr.open_group(folder, path=path, mode="r")
    again = read_elem(group, device="cpu")
    assert type(again) is type(whole) and (again.X != whole.X).nnz == 0 and again.X.format == "csr"
    assert (again.layers["by_gene"] != whole.X).nnz == 0 and again.layers["by_gene"].format == "csc"
    assert np.array_equal(again.layers["dense"], whole.layers["dense"])
    assert np.array_equal(again.obsm["X_pca"], whole.obsm["X_pca"])
    assert again.obs.equals(whole.obs) and again.uns["seed"].tolist() == [0, 1, 2] and again.uns["of"] == {"text": "a"}
    assert read_elem(group, device="cpu", dtype="float64").X.dtype == "float64"
    assert (read_elem(group["layers/by_gene"]) != whole.X).nnz == 0


def test_batches_of_annbatch_are_read_through_the_pipeline(cells: Any) -> None:
    annbatch = pytest.importorskip("annbatch", reason="skipped: annbatch is not installed")
    anndata, zarr = pytest.importorskip("anndata"), pytest.importorskip("zarr")
    folder, whole = cells
    rows: dict[int, Any] = {}
    with cuzarr.zarr.enable(), warnings.catch_warnings():
        warnings.simplefilter("error", cuzarr.errors.CuzarrUserWarning)
        group = zarr.open_group(folder, mode="r")
        loader = annbatch.Loader(
            batch_size=16, chunk_size=8, preload_nchunks=4, shuffle=True, preload_to_gpu=False, return_index=True
        )
        loader.add_dataset(anndata.io.sparse_dataset(group["X"]))
        for batch in loader:
            rows |= dict(zip(batch["index"].tolist(), batch["X"].toarray(), strict=True))
    assert np.array_equal([rows[row] for row in range(120)], whole.X.toarray())


# -------------------------------------------------------------------------------------------------- anemoi-datasets


def test_a_dataset_of_anemoi_reads_a_group(tmp_path: Path) -> None:
    datasets = pytest.importorskip("anemoi.datasets", reason="skipped: anemoi-datasets is not installed")
    from_group = pytest.importorskip("anemoi.datasets.usage.store").ZarrStore.from_group
    truth = np.random.default_rng(1).normal(size=(8, 3, 1, 20)).astype("float32")
    attributes = {
        "variables": ["t2m", "msl", "tp"], "frequency": "6h", "resolution": "o8", "field_shape": [20], "missing_dates": [],
        "data_request": {}, "constant_fields": [], "flatten_grid": True, "ensemble_dimension": 2, "variables_metadata": {},
    }  # fmt: skip
    group = cuzarr.create_group(tmp_path / "era.zarr", attributes=attributes, zarr_format=2)
    group.create_array("data", data=truth, chunks=(1, 3, 1, 20))
    group.create_array("dates", data=np.datetime64("2026-01-01", "s") + np.arange(8) * np.timedelta64(6, "h"))
    for number, name in enumerate(("latitudes", "longitudes")):
        group.create_array(name, data=np.linspace(0, 90 + 90 * number, 20))
    for name in ("mean", "stdev", "minimum", "maximum"):
        group.create_array(
            name, data=getattr(truth, {"stdev": "std", "minimum": "min", "maximum": "max"}.get(name, name))(axis=(0, 2, 3))
        )
    stored = from_group(cuzarr.open_group(tmp_path / "era.zarr", mode="r"))
    whole = datasets.open_dataset(stored)
    assert np.array_equal(whole[3], truth[3]) and np.array_equal(whole[1:7:2], truth[1:7:2])
    chosen = datasets.open_dataset(stored, select=["tp", "t2m"], start="2026-01-02", frequency="12h")
    assert np.array_equal(chosen[:], truth[4::2][:, [2, 0]]) and chosen.shape == (2, 2, 1, 20)
    assert np.array_equal(chosen.statistics["mean"], truth.mean(axis=(0, 2, 3))[[2, 0]])


# ---------------------------------------------------------------------------------------------------------- the guide


@pytest.mark.parametrize("section", SECTIONS)
def test_the_guide_of(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in (LIBRARIES.get(section, section.lower()), *(["torch"] if section == "PhysicsNeMo" else [])):
        pytest.importorskip(library, reason=f"skipped: {section} is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    assert SECTIONS[section]
    for block in SECTIONS[section]:
        exec(compile(block, section, "exec"), names)

"""``dataset.cuzarr.to_zarr``: what is stored is what xarray stores through zarr-python, wherever the variables are."""

from __future__ import annotations

import inspect
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from rounds import Rounds

import cuzarr
from cuzarr.errors import (
    ArgumentTypeError,
    CuzarrError,
    GroupNotFoundError,
    ImplicitHostCopyError,
    InvalidArgumentError,
    UnsupportedError,
)

xarray = pytest.importorskip("xarray", minversion="2026")
zarr = pytest.importorskip("zarr", minversion="3.4")
pd = pytest.importorskip("pandas")
pytest.importorskip("cuzarr.xarray")

pytestmark = pytest.mark.filterwarnings("ignore")

Dataset = Any

DOCUMENTS = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


def compare(ours: Path, theirs: Path) -> None:
    """Compares two stores: the names of all objects, the documents, and the elements as zarr-python reads them."""
    found = {place: {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()} for place in (ours, theirs)}
    assert found[ours] == found[theirs]
    for name in found[ours]:
        if Path(name).name in DOCUMENTS:
            one, other = (consolidated_alike(json.loads((place / name).read_bytes())) for place in (ours, theirs))
            assert one == other, name
    for (path, one), (_, other) in zip(members(ours), members(theirs), strict=True):
        np.testing.assert_array_equal(one[...], other[...], err_msg=path)


def consolidated_alike(document: Any) -> Any:
    """A document without the empty consolidated metadata that zarr-python puts into the groups inside of its own."""
    inside = document.get("consolidated_metadata", document) if isinstance(document, dict) else {}
    for node in inside.get("metadata", {}).values():
        node.pop("consolidated_metadata", None)
    return document


def members(place: Path) -> list[tuple[str, Any]]:
    found = zarr.open_group(place, mode="r", use_consolidated=False).members(max_depth=None)
    return sorted((path, node) for path, node in found if isinstance(node, zarr.Array))


def moved(dataset: Dataset, device: str, keep: tuple[str, ...] = ()) -> Dataset:
    """The data set with its variables of numbers in the memory of a device."""
    if device == "cpu":
        return dataset
    result = dataset.copy()
    for name in dataset.data_vars:
        variable = dataset[name].variable
        if variable.dtype.kind in "biufc" and variable.dtype.isnative and name not in keep:
            elements = cuzarr.xp.asarray(variable.values, device=device)
            result[name] = (variable.dims, elements, variable.attrs, variable.encoding)
    return result


@pytest.fixture
def from_device(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A device whose elements must not be brought to the host."""

    def refuse(self: Any, *args: Any) -> Any:
        raise ImplicitHostCopyError("a device array was copied to the host")

    if device != "cpu":
        monkeypatch.setattr(cuzarr.DeviceArray, "cpu", refuse)
        monkeypatch.setattr(cuzarr.DeviceArray, "__array__", refuse)
    with cuzarr.config.set({"strict": True}):
        yield device


SIZES = {"time": 5, "y": 4, "x": 7, "none": 0, "one": 1}
DTYPES = ["f4", "f8", "i2", "u1", "i8", "bool", "c8", "U3", "S2", "object", "T", "M8[ns]", "m8[ns]", ">i4", ">f8"]


def elements(dice: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    numbers = np.random.default_rng(dice.randrange(1 << 32)).integers(-50 if dtype.lstrip(">")[0] in "if" else 0, 50, shape)
    if dtype in ("object", "T"):
        words = np.array([f"w{number}" * (number % 3) for number in numbers.ravel()], object).reshape(shape)
        return words if dtype == "object" else words.astype(np.dtypes.StringDType())
    if dtype[0] in "Mm":
        hours = numbers.astype("m8[h]").astype("m8[ns]")
        return hours + np.datetime64("2001-02-03", "ns") if dtype[0] == "M" else hours
    return numbers.astype(dtype)


def encoding_of(dice: random.Random, shape: tuple[int, ...], dtype: str, zarr_format: int) -> dict[str, Any]:
    encoding: dict[str, Any] = {}
    if dtype in ("f4", "f8", "i2", "i8") and dice.random() < 0.6:
        encoding["dtype"] = dice.choice(
            ["i2", "u1", "f4", "i4", *([">i2"] if shape else [])]
        )  # NumPy has no scalars of that order
        if dtype[0] == "f" and dice.random() < 0.6:
            encoding["scale_factor"] = dice.choice([0.5, 0.01, 2.0])
        if dtype[0] == "f" and dice.random() < 0.5:
            encoding["add_offset"] = dice.choice([1.0, -30.0])
        if dice.random() < 0.5:
            encoding["_FillValue"] = 77
    if dtype == "M8[ns]" and dice.random() < 0.7:
        encoding |= {"units": dice.choice(["hours since 1999-01-01", "seconds since 2001-01-01"]), "dtype": "i8"}
    if shape and all(shape) and dice.random() < 0.6:
        chunks = tuple(dice.randrange(1, extent + 1) for extent in shape)
        encoding["chunks"] = chunks
        if zarr_format == 3 and dice.random() < 0.4:
            encoding["shards"] = tuple(chunk * dice.randrange(1, 3) for chunk in chunks)
    if dice.random() < 0.5 and dtype not in ("object", "T"):
        ours = (
            [None, {"id": "zlib", "level": 1}]
            if zarr_format == 2
            else [None, zarr.codecs.GzipCodec(level=1), zarr.codecs.BloscCodec()]
        )
        encoding["compressors"] = dice.choice(ours)
    if zarr_format == 3 and dtype in ("f4", "i2") and "dtype" not in encoding and dice.random() < 0.4:
        encoding["fill_value"] = 3
    if dice.random() < 0.2:
        encoding["write_empty_chunks"] = dice.random() < 0.5
    return encoding


def random_dataset(dice: random.Random, zarr_format: int) -> Dataset:
    variables = {}
    for number in range(dice.randrange(1, 9)):
        dims = tuple(dice.sample(list(SIZES), dice.randrange(4)))
        shape = tuple(SIZES[name] for name in dims)
        dtype = dice.choice([one for one in DTYPES if zarr_format == 3 or one != "T"])
        values = elements(dice, shape, dtype)
        encoding = encoding_of(dice, shape, dtype, zarr_format)
        if dtype[0] == "f" and encoding.get("_FillValue") is not None and values.size:
            values.flat[0] = np.nan
        attributes = dice.choice([{}, {"units_of": "K", "n": np.float32(1.5), "list": np.arange(2), "flag": True}])
        variables[f"v{number}"] = (dims, values, dict(attributes), encoding)
    coordinates: dict[str, Any] = {"time": pd.date_range("2000-01-01", periods=SIZES["time"], freq="6h")}
    if dice.random() < 0.7:
        coordinates |= {"x": np.arange(SIZES["x"]) * 2.5, "label": ("y", np.array(list("abcd")))}
    return xarray.Dataset(variables, coordinates, dice.choice([{}, {"title": "maps", "n": np.int64(3), "odd": [1, None, "ü"]}]))


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_random_data_sets_are_stored_as_xarray_stores_them(tmp_path: Path, from_device: str, seed: int, zarr_format: int) -> None:
    dice = random.Random(seed)
    dataset = random_dataset(dice, zarr_format)
    options: dict[str, Any] = {
        "zarr_format": zarr_format,
        "consolidated": dice.random() < 0.5,
        "group": dice.choice([None, "a/b"]),
    }
    dataset.to_zarr(tmp_path / "theirs", **options)
    written = moved(dataset, from_device).cuzarr.to_zarr(tmp_path / "ours", **options)
    assert written.path == (options["group"] or "") and set(written.array_keys()) == set(dataset.variables)
    compare(tmp_path / "ours", tmp_path / "theirs")
    for place in ("ours", "theirs"):
        opened = xarray.open_zarr(tmp_path / place, group=options["group"], consolidated=options["consolidated"], chunks=None)
        dataset = opened.load() if place == "ours" else dataset
    xarray.testing.assert_identical(dataset, opened.load())


def maps(days: int = 4, first: str = "2000-01-01", seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    shape = (days, 6)
    packed = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 5.0, "_FillValue": -999, "chunks": (2, 3)}
    return xarray.Dataset(
        {
            "t": (("time", "x"), rng.random(shape), {"units": "K"}, dict(packed)),
            "u": (("time", "x"), rng.random(shape).astype("f4"), {}, {"chunks": (2, 3), "shards": (2, 6)}),
            "name": (("time",), np.array([f"day {number}" for number in range(days)], object)),
            "land": (("x",), rng.random(6) < 0.5),
        },
        {"time": pd.date_range(first, periods=days), "x": np.arange(6)},
        {"title": "maps"},
    )


STEPS: dict[str, Callable[[Callable[[Dataset], Callable[..., Any]], Path], None]] = {
    "append": lambda write, place: write(maps(3, "2000-01-05", 1))(place, append_dim="time"),
    "append, other variables left alone": lambda write, place: write(maps(3, "2000-01-05", 1).assign(land=("x", [True] * 6)))(
        place, mode="a-", append_dim="time"
    ),
    "replace elements": lambda write, place: write(maps(4, "2000-01-01", 1))(place, mode="a"),
    "add a variable": lambda write, place: write(maps()[["t"]].rename(t="more"))(place, mode="a"),
    "region": lambda write, place: write(maps(2, "2000-01-03", 1).drop_vars(["x", "land"]))(place, region={"time": slice(2, 4)}),
    "region by coordinates": lambda write, place: write(maps(2, "2000-01-03", 1).drop_vars("land"))(place, region="auto"),
    "region of two dimensions": lambda write, place: write(maps(2, "2000-01-03", 1).isel(x=slice(3, 6))[["t"]])(
        place, region={"time": slice(2, 4), "x": "auto"}
    ),
    "everything anew": lambda write, place: write(maps(2, "2001-01-01", 1)[["t"]])(place, mode="w"),
    "a group beside": lambda write, place: write(maps(2, "2001-01-01", 1))(place, mode="a", group="beside"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("consolidated", [True, False])
def test_stored_data_sets_are_changed_as_xarray_changes_them(
    tmp_path: Path, from_device: str, step: str, consolidated: bool
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"

    def by_us(dataset: Dataset) -> Callable[..., Any]:
        return lambda *args, **options: moved(dataset, from_device).cuzarr.to_zarr(*args, consolidated=consolidated, **options)

    def by_xarray(dataset: Dataset) -> Callable[..., Any]:
        return lambda *args, **options: dataset.to_zarr(*args, consolidated=consolidated, **options)

    for write, place in ((by_us, ours), (by_xarray, theirs)):
        write(maps())(place)
        STEPS[step](write, place)
    compare(ours, theirs)
    opened = [xarray.open_zarr(place, consolidated=False, chunks=None).load() for place in (ours, theirs)]
    xarray.testing.assert_identical(*opened)


def test_unsigned_integers_are_encoded_where_they_are(tmp_path: Path, from_device: str) -> None:
    values = np.array([[0.0, 0.5, 1.27], [2.0, np.nan, 2.54]])
    dataset = xarray.Dataset({"t": (("y", "x"), values)})
    encoding = {"t": {"dtype": "i1", "_Unsigned": "true", "scale_factor": 0.01, "_FillValue": 255}}
    dataset.to_zarr(tmp_path / "theirs", encoding=encoding)
    moved(dataset, from_device).cuzarr.to_zarr(tmp_path / "ours", encoding=encoding)
    compare(tmp_path / "ours", tmp_path / "theirs")
    assert encoding == {"t": {"dtype": "i1", "_Unsigned": "true", "scale_factor": 0.01, "_FillValue": 255}}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many variables each call writes."""
    found: list[int] = []
    write = cuzarr._core.write_many

    def counted(writes: Any) -> None:
        found.append(len(writes))
        write(writes)

    monkeypatch.setattr(cuzarr._core, "write_many", counted)
    return found


def test_all_variables_are_written_by_one_call_within_the_memory_limit(tmp_path: Path, calls: list[int]) -> None:
    maps().cuzarr.to_zarr(tmp_path / "a")
    assert calls == [6]
    calls.clear()
    large = xarray.Dataset({f"v{number:02}": (("time", "x"), np.full((4, 48), float(number))) for number in range(12)})
    with cuzarr.config.set({"memory_limit": 5000}):
        group = large.cuzarr.to_zarr(tmp_path / "b")
    assert [count for count in calls if count] == [4, 4, 4]
    assert all(np.array_equal(group[name][...], large[name]) for name in large)


def test_elements_on_a_gpu_are_written_from_there(tmp_path: Path, gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write, places = cuzarr._core.write_many, []
    monkeypatch.setattr(cuzarr._core, "write_many", lambda writes: places.extend(one[2] for one in writes) or write(writes))
    moved(maps(), gpu).cuzarr.to_zarr(tmp_path / "a")
    on_device = [one for one in places if getattr(one, "device", "cpu") != "cpu"]
    assert len(on_device) == 3  # t, u and land; the coordinates and the names are in host memory
    xarray.testing.assert_identical(
        xarray.open_zarr(tmp_path / "a", chunks=None).load(), xarray.open_zarr(stored(tmp_path), chunks=None).load()
    )


def stored(tmp_path: Path) -> Path:
    maps().to_zarr(tmp_path / "theirs")
    return tmp_path / "theirs"


def test_an_encoding_that_a_gpu_cannot_compute_is_refused(tmp_path: Path, gpu: str) -> None:
    dataset = moved(xarray.Dataset({"t": ("x", np.arange(4))}), gpu)
    with pytest.raises(UnsupportedError, match="convert int64 to <U5"):
        dataset.cuzarr.to_zarr(tmp_path / "a", encoding={"t": {"dtype": "U5"}})
    assert not list(cuzarr.open_group(tmp_path / "a").array_keys())


def test_a_data_set_far_away_is_written_in_few_rounds() -> None:
    dataset = xarray.Dataset(
        {f"v{number}": (("time", "x"), np.full((4, 8), number, "f4")) for number in range(24)},
        {"time": pd.date_range("2000-01-01", periods=4), "x": np.arange(8)},
    )
    store = Rounds()
    _, rounds = store.count(lambda: dataset.cuzarr.to_zarr(store, consolidated=False))
    assert rounds <= 12, rounds
    later = dataset.assign_coords(time=pd.date_range("2000-01-05", periods=4))
    _, rounds = store.count(lambda: later.cuzarr.to_zarr(store, append_dim="time", consolidated=False))
    assert rounds <= 14, rounds
    _, rounds = store.count(lambda: later.cuzarr.to_zarr(store, region="auto", consolidated=False))
    assert rounds <= 9, rounds
    again = xarray.open_dataset(store, engine="cuzarr", consolidated=False)
    xarray.testing.assert_equal(again.load(), xarray.concat([dataset, later], "time", data_vars="minimal"))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_costs_an_append_few_rounds(zarr_format: Literal[2, 3]) -> None:
    dataset = xarray.Dataset({f"v{number}": ("time", np.full(4, number)) for number in range(24)}, {"time": range(4)})
    store = Rounds()
    store.wait_seconds = 0
    dataset.cuzarr.to_zarr(store, consolidated=True, zarr_format=zarr_format)
    store.wait_seconds = 0.1
    later = dataset.assign_coords(time=range(4, 8))
    _, rounds = store.count(lambda: later.cuzarr.to_zarr(store, append_dim="time", consolidated=True))
    assert rounds <= 26, rounds
    group = cuzarr.open_group(store, mode="r", use_consolidated=True)
    assert {array.shape for _, array in group.arrays()} == {(8,)}


def test_appends_of_threads_are_kept_or_refused(tmp_path: Path) -> None:
    def rows(number: int) -> xarray.Dataset:
        return xarray.Dataset({"a": ("t", [number, number])}, {"t": [100 * number, 100 * number + 1]})

    rows(0).cuzarr.to_zarr(tmp_path / "a")

    def append(number: int) -> int | None:
        try:
            rows(number).cuzarr.to_zarr(tmp_path / "a", append_dim="t")
        except cuzarr.errors.ShapeMismatchError as error:
            assert "another writer changed the shape" in str(error)
            return None
        return number

    with ThreadPoolExecutor(4) as pool:
        kept = [number for number in pool.map(append, range(1, 13)) if number is not None]
    stored = xarray.open_dataset(tmp_path / "a", engine="cuzarr").load()
    assert kept and sorted(stored["t"].values.tolist()) == [100 * number + odd for number in (0, *kept) for odd in (0, 1)]
    assert (stored["a"].values == stored["t"].values // 100).all()


def test_blocks_of_dask_are_written_one_by_one(tmp_path: Path, calls: list[int]) -> None:
    pytest.importorskip("dask")
    dataset = maps(8).chunk({"time": 2})
    for variable in dataset.variables.values():
        variable.encoding.clear()
    dataset["empty"] = ("none", np.zeros(0))
    dataset["empty"] = dataset["empty"].chunk()
    dataset.to_zarr(tmp_path / "theirs")
    dataset.cuzarr.to_zarr(tmp_path / "ours")
    assert calls == [3]  # time, x and what has no elements
    compare(tmp_path / "ours", tmp_path / "theirs")


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_is_computed_when_the_caller_says(tmp_path: Path, scheduler: str) -> None:
    dask = pytest.importorskip("dask")
    dataset = maps(4).chunk({"time": 2, "x": 6})
    del dataset["u"]
    waiting = dataset.cuzarr.to_zarr(tmp_path / "a", compute=False)
    before = xarray.open_zarr(tmp_path / "a", chunks=None)
    assert not np.allclose(before.t.values, dataset.t, atol=0.006) and before.x.values.tolist() == list(range(6))
    group = waiting.compute(scheduler=scheduler)
    assert isinstance(group, cuzarr.Group) and set(group.array_keys()) == set(dataset.variables)
    xarray.testing.assert_allclose(xarray.open_zarr(tmp_path / "a", chunks=None).load(), dataset.compute(), atol=0.006)
    nothing = maps()[["land"]].cuzarr.to_zarr(tmp_path / "b", compute=False)
    assert dask.compute(nothing)[0]["land"][:].tolist() == maps().land.values.tolist()


def test_blocks_of_dask_on_a_gpu_are_written_from_there(tmp_path: Path, gpu: str) -> None:
    array = pytest.importorskip("dask.array")
    truth = np.arange(24.0).reshape(4, 6)
    blocks = array.from_array(cuzarr.xp.asarray(truth, device=gpu), chunks=(2, 6), asarray=False)
    xarray.Dataset({"t": (("y", "x"), blocks)}).cuzarr.to_zarr(tmp_path / "a")
    assert np.array_equal(xarray.open_zarr(tmp_path / "a", chunks=None).t.values, truth)


# Calls that neither takes, and what differs from the rest.
WRONG: dict[str, dict[str, Any]] = {
    "an unknown encoding": {"encoding": {"t": {"colour": 1}}, "mode": "w"},
    "the encoding of a variable that is there": {"encoding": {"t": {"dtype": "f4"}}, "mode": "a"},
    "a variable that is not there": {"encoding": {"nothing": {}}, "mode": "w"},
    "a mode that there is not": {"mode": "x"},
    "append while creating": {"mode": "w", "append_dim": "time"},
    "a region while creating": {"mode": "w-", "region": {"time": slice(0, 2)}},
    "a dimension that is not there": {"append_dim": "depth"},
    "a region of another size": {"region": {"time": slice(0, 3)}},
    "a region with steps": {"region": {"time": slice(0, 4, 2)}},
    "both of one dimension": {"append_dim": "time", "region": {"time": slice(0, 2)}},
    "what is there": {"mode": "w-"},
    "rectilinear chunks": {"encoding": {"t": {"chunks": ((1, 3), 6)}}, "mode": "w"},
    "shards that chunks do not divide": {"encoding": {"t": {"chunks": (2, 3), "shards": (3, 6)}}, "mode": "w"},
    "two words on empty chunks": {"encoding": {"u": {"write_empty_chunks": True}}, "write_empty_chunks": False, "mode": "w"},
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_calls_are_refused_as_xarray_refuses_them(tmp_path: Path, what: str) -> None:
    dataset = maps()
    if "region" in WRONG[what]:
        dataset = dataset.drop_vars(["x", "land"])
    errors = []
    for name in ("ours", "theirs"):
        maps().to_zarr(tmp_path / name, consolidated=False)
        write = dataset.cuzarr.to_zarr if name == "ours" else dataset.to_zarr
        with pytest.raises(Exception) as caught:
            write(tmp_path / name, **WRONG[what])
        errors.append(caught.value)
    builtin = next(one for one in type(errors[1]).__mro__ if one.__module__ == "builtins")
    assert isinstance(errors[0], builtin), errors
    if WRONG[what].get("mode") != "w":
        xarray.testing.assert_identical(
            *(xarray.open_zarr(tmp_path / name, consolidated=False, chunks=None).load() for name in ("ours", "theirs"))
        )


def test_wrong_data_sets_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        for _ in range(2):
            maps().cuzarr.to_zarr(tmp_path / "a", mode="w-")
    with pytest.raises(GroupNotFoundError):
        maps().cuzarr.to_zarr(tmp_path / "b", mode="r+")
    with pytest.raises(ArgumentTypeError, match="named 3"):
        xarray.Dataset({3: ("x", [1])}).cuzarr.to_zarr({})
    with pytest.raises(InvalidArgumentError, match="mode is 'r'"):
        maps().cuzarr.to_zarr({}, mode="r")
    with pytest.raises(InvalidArgumentError, match="variable 't'.*JSON"):
        xarray.Dataset({"t": ("x", [1], {"what": object()})}).cuzarr.to_zarr({})
    with pytest.raises(CuzarrError, match="array '/t'.*no such codec"):
        xarray.Dataset({"t": ("x", [1])}).cuzarr.to_zarr({}, encoding={"t": {"compressors": [{"name": "no such codec"}]}})
    with pytest.raises(ValueError, match="overlap multiple Dask chunks|dask chunks|Dask chunks"):
        pytest.importorskip("dask")
        maps(4)[["t"]].chunk({"time": 3}).cuzarr.to_zarr({})


def test_nothing_is_created_when_one_variable_cannot_be_encoded(tmp_path: Path) -> None:
    dataset = maps().assign(bad=("x", [object()] * 6))
    with pytest.raises(ValueError, match="Python objects"):
        dataset.cuzarr.to_zarr(tmp_path / "a", consolidated=False)
    assert list(cuzarr.open_group(tmp_path / "a", mode="r").array_keys()) == []


def test_a_write_that_fails_names_its_array(tmp_path: Path) -> None:
    maps().cuzarr.to_zarr(tmp_path / "a", consolidated=False)
    (tmp_path / "a" / "u" / "c").rename(tmp_path / "chunks")
    (tmp_path / "a" / "u" / "c").write_bytes(b"a file where a folder has to be")
    with pytest.raises(CuzarrError, match="'/?u"):
        maps().cuzarr.to_zarr(tmp_path / "a", mode="a", consolidated=False)


def test_a_data_set_goes_into_other_stores(tmp_path: Path) -> None:
    dataset = maps()
    dataset.cuzarr.to_zarr(tmp_path / "a.zip")
    assert zipfile.is_zipfile(tmp_path / "a.zip")
    group = dataset.cuzarr.to_zarr()
    known: dict[str, bytes] = {}
    dataset.cuzarr.to_zarr(known, group="run/1")
    theirs = zarr.storage.MemoryStore()
    dataset.cuzarr.to_zarr(theirs)
    for place, options in ((tmp_path / "a.zip", {}), (group, {}), (known, {"group": "run/1"}), (theirs, {})):
        opened = xarray.open_dataset(place, engine="cuzarr", consolidated=False, **options)
        xarray.testing.assert_allclose(opened.load(), dataset, atol=0.006)
    icechunk = pytest.importorskip("icechunk")
    session = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    dataset.cuzarr.to_zarr(session.store)
    xarray.testing.assert_allclose(xarray.open_zarr(session.store, consolidated=False, chunks=None).load(), dataset, atol=0.006)


def test_a_zip_file_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Python objects"):
        maps().assign(bad=("x", [object()] * 6)).cuzarr.to_zarr(tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_a_data_set_that_was_opened_is_written_with_its_encodings(tmp_path: Path, device: str) -> None:
    maps().to_zarr(tmp_path / "a")
    for engine in ("zarr", "cuzarr"):
        opened = xarray.open_dataset(tmp_path / "a", engine=engine, **({"device": "cpu"} if engine == "cuzarr" else {}))
        opened.cuzarr.to_zarr(tmp_path / engine)
        xarray.open_dataset(tmp_path / "a", engine=engine, **({"device": "cpu"} if engine == "cuzarr" else {})).to_zarr(
            tmp_path / f"theirs {engine}"
        )
        compare(tmp_path / engine, tmp_path / f"theirs {engine}")


def test_to_zarr_takes_every_argument_of_xarrays() -> None:
    ours = inspect.signature(cuzarr.xarray.DatasetAccessor.to_zarr).parameters
    theirs = inspect.signature(xarray.Dataset.to_zarr).parameters
    assert {name: one.default for name, one in ours.items()} == {name: one.default for name, one in theirs.items()}


def test_an_xarray_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older(xarray.backends.ZarrStore):
        def __init__(self, zarr_group: Any, mode: Any = None) -> None:
            """Without the arguments of later versions."""

    monkeypatch.setattr("cuzarr.xarray._writer.ZarrStore", Older)
    with pytest.raises(UnsupportedError, match="expected 2025.6.1 or newer"):
        maps().cuzarr.to_zarr({})

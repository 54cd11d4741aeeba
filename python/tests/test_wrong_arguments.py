"""What is wrong with an argument is said by an error of the package, and dimensions may be named."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrong_calls import GOOD, GOOD_ON_DEVICE, VALUES, World, calls_of, problem

import cuzarr
from cuzarr.errors import ArgumentTypeError, ArrayNotFoundError, CuzarrError, InvalidArgumentError, ShapeMismatchError


@pytest.mark.parametrize("name", GOOD)
def test_wrong_arguments_are_errors_of_ours(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some of what is wrong is a path that is not there
    assert not problems(name)


@pytest.mark.parametrize("name", GOOD_ON_DEVICE)
def test_wrong_arguments_are_errors_of_ours_on_a_gpu(name: str, gpu: str) -> None:
    with cuzarr.config.set({"array_type": "device"}):
        assert not problems(name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GOOD)
def test_what_wrong_arguments_are_put_into_is_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function, args, kwargs = GOOD[name](World())
    try:
        function(*args, **kwargs)
    except cuzarr.errors.UnsupportedError:
        assert name == "Module"  # compiles for a GPU only


def problems(name: str) -> list[str]:
    """What is wrong with the errors of wrong calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [f"{label}: {what}" for label, call in calls_of(name) if (what := problem(call)) is not None]


FIELD = np.arange(24.0).reshape(2, 3, 4)


@pytest.fixture
def named() -> cuzarr.Array:
    return cuzarr.create_array({}, data=FIELD, chunks=(1, 2, 2), dimension_names=("time", "y", "x"))


def test_dimensions_are_named_where_an_axis_is_taken(named: cuzarr.Array) -> None:
    for name in ("sum", "mean", "std", "min", "argmax", "any"):
        np.testing.assert_array_equal(getattr(named, name)("time").compute(), getattr(FIELD, name)(0))
        np.testing.assert_array_equal(
            getattr(cuzarr.xp, name)(named, "x", keepdims=True).compute(), getattr(FIELD, name)(2, keepdims=True)
        )
    np.testing.assert_array_equal(named.sum(("time", -1)).compute(), FIELD.sum((0, 2)))
    np.testing.assert_array_equal(np.mean(named, axis="y"), FIELD.mean(1))
    np.testing.assert_array_equal(cuzarr.xp.median(named, "y").compute(), np.median(FIELD, 1))
    np.testing.assert_array_equal(
        cuzarr.xp.quantile(named, [0.5, 1], axis=("y", "x")).max("time").compute(), np.quantile(FIELD, [0.5, 1], (1, 2)).max(1)
    )
    np.testing.assert_array_equal(cuzarr.reduce(lambda block: block.sum(1), np.add, named, axis="y"), FIELD.sum(1))
    assert named.append(FIELD[:, :, :1], axis="x") == (2, 3, 5)


def test_plans_keep_the_names_of_dimensions(named: cuzarr.Array) -> None:
    anomaly = named - named.mean("time")
    np.testing.assert_array_equal(anomaly.std("y").compute(), (FIELD - FIELD.mean(0)).std(1))
    np.testing.assert_array_equal((named * 2).astype("f4").max("time").min("x").compute(), (FIELD * 2).max(0).min(1))
    np.testing.assert_array_equal(
        cuzarr.xp.where(named > 3, named, 0).sum("y", keepdims=True).sum("y").compute(), np.where(FIELD > 3, FIELD, 0).sum(1)
    )
    other = cuzarr.create_array({}, data=FIELD, dimension_names=("a", "y", "x"))
    with pytest.raises(InvalidArgumentError, match="no dimension names"):
        (named + other).sum("time")  # which of the two?


def test_format_2_has_the_names_that_xarray_gives_it() -> None:
    array = cuzarr.create_array(
        {}, data=FIELD, chunks=(1, 2, 2), zarr_format=2, attributes={"_ARRAY_DIMENSIONS": ["time", "y", "x"]}
    )
    np.testing.assert_array_equal(array.mean("time").compute(), FIELD.mean(0))


def test_a_dimension_that_is_not_there_is_told_which_there_are(named: cuzarr.Array) -> None:
    for call in (
        lambda: named.mean("tme"),
        lambda: cuzarr.xp.median(named, ("y", "z")),
        lambda: cuzarr.rechunk(named, {}, chunks={"lat": 1}),
    ):
        with pytest.raises(InvalidArgumentError, match="hint: its dimensions are 'time', 'y', 'x'"):
            call()
    for call in (lambda: cuzarr.xp.mean(FIELD, "time"), lambda: cuzarr.zeros((2, 3), store={}).sum("time")):
        with pytest.raises(InvalidArgumentError, match="hint: number its dimensions"):
            call()


def test_chunks_are_named_by_dimension(named: cuzarr.Array) -> None:
    assert cuzarr.rechunk(named, {}, chunks={"time": -1}).chunks == (2, 2, 2)
    assert cuzarr.rechunk(named, {}, chunks={"x": None, 0: 2}).chunks == (2, 2, 4)
    sharded = cuzarr.rechunk(named, {}, chunks={"x": 1}, shards={"time": 2, "x": 4})
    assert (sharded.chunks, sharded.shards) == ((1, 2, 1), (2, 2, 4))
    np.testing.assert_array_equal(sharded[...], FIELD)
    group = cuzarr.create_group({})
    group.create_array("x", data=FIELD)
    with pytest.raises(InvalidArgumentError, match="no array of the group has a dimension 'time'"):
        cuzarr.rechunk(group, {}, chunks={"time": -1})


def test_dask_takes_paths_and_names(named: cuzarr.Array, tmp_path: Path) -> None:
    pytest.importorskip("dask.array")
    import cuzarr.dask

    cuzarr.copy(named, tmp_path / "a")
    lazy = cuzarr.dask.from_cuzarr(str(tmp_path / "a"), chunks={"time": -1, "x": 4})
    assert lazy.chunks == ((2,), (2, 1), (4,))
    np.testing.assert_array_equal(lazy.compute(), FIELD)
    cuzarr.create_array(tmp_path / "b", shape=FIELD.shape, dtype="f8", chunks=(2, 2, 2))
    cuzarr.dask.to_cuzarr(lazy, tmp_path / "b")
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "b")[...], FIELD)
    for call, error in [
        (lambda: cuzarr.dask.to_cuzarr(lazy[lazy[:, 0, 0] > 0], tmp_path / "c"), InvalidArgumentError),
        (lambda: cuzarr.dask.from_cuzarr(tmp_path / "c"), ArrayNotFoundError),
        (lambda: cuzarr.dask.from_cuzarr(FIELD), ArgumentTypeError), (lambda: cuzarr.dask.to_cuzarr(FIELD, named), ArgumentTypeError),
        (lambda: cuzarr.dask.from_cuzarr(named, chunks={"z": 1}), InvalidArgumentError), (lambda: cuzarr.dask.to_cuzarr(lazy[:1], named), ShapeMismatchError),
    ]:  # fmt: skip
        with pytest.raises(error):
            call()
    assert not (tmp_path / "c").exists()
    cuzarr.dask.to_cuzarr(lazy, str(tmp_path / "c"))
    created = cuzarr.open_array(tmp_path / "c")
    np.testing.assert_array_equal(created[...], FIELD)
    assert created.chunks == lazy.chunksize and created.dtype == lazy.dtype


def test_errors_of_arguments_are_of_the_classes_that_python_has_for_them() -> None:
    array = cuzarr.zeros((3,), dtype="i2", store={})
    for call, built_in in [
        (lambda: array.mean(1.5), TypeError), (lambda: cuzarr.xp.zeros(-1), ValueError), (lambda: cuzarr.xp.zeros("3"), TypeError),
        (lambda: cuzarr.xp.full(3, 2**70, "i4"), OverflowError), (lambda: cuzarr.create_array({}, shape=3, dtype="flaot"), TypeError),
        (lambda: cuzarr.xp.zeros(1 << 50), MemoryError), (lambda: array.update_attributes([1]), TypeError),  # type: ignore[arg-type]
    ]:  # fmt: skip
        with pytest.raises(built_in) as raised:
            call()
        assert isinstance(raised.value, CuzarrError)


def takes_any_keyword(name: str) -> bool:
    """Whether a function takes keyword arguments that its signature does not name."""
    function = GOOD[name](World())[0]
    try:
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    except ValueError:  # written in another language
        return False
    return inspect.Parameter.VAR_KEYWORD in kinds


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in GOOD if takes_any_keyword(name) and not name.startswith("numcodecs.")])
def test_unknown_keywords_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function, args, kwargs = GOOD[name](World())
    with pytest.raises((TypeError, CuzarrError), match="devcie"):
        function(*args, **kwargs, devcie="cpu")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_unknown_settings_of_numcodecs_codecs_are_refused_by_a_new_array(zarr_format: Any) -> None:
    with pytest.raises(CuzarrError, match="unknown configuration member 'levl', known are: level"):
        codec = cuzarr.codecs.numcodecs.Zstd(levl=3)
        cuzarr.create_array({}, shape=4, dtype="i2", compressors=[codec], zarr_format=zarr_format)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"Mode": "r"}, "did you mean 'mode'"),
        ({"mod": "r"}, "did you mean 'mode'"),
        ({"devcie": "cpu"}, "did you mean 'device'"),
        ({"storage_option": {}}, "did you mean 'storage_options'"),
        ({"shap": (3,)}, "did you mean 'shape'"),
        ({"read_only": True}, "pass mode='r'"),
        ({"overwrite": True}, "pass mode='w'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("opens", [cuzarr.open_array, cuzarr.open])
def test_misspelt_options_of_an_array_that_exists_are_refused(opens: Any, wrong: dict[str, Any], hint: str) -> None:
    store = cuzarr.zeros((3,), store={}).store
    with pytest.raises(ArgumentTypeError, match=f"(?s){opens.__name__} has no argument '{next(iter(wrong))}'.*{hint}"):
        opens(store, **wrong)


def test_arguments_of_a_new_array_are_accepted_where_it_exists() -> None:
    store = cuzarr.zeros((3,), store={}).store
    given = {"shape": (3,), "chunks": (3,), "dtype": "f8", "fill_value": 0, "attributes": {}, "zarr_version": 3}
    for opened in (cuzarr.open_array(store, **given), cuzarr.open(store, **{**given, "mode": "r+"})):
        assert opened.shape == (3,)
    former = {"synchronizer": 1, "cache_metadata": True, "cache_attrs": True, "object_codec": 1, "partial_decompress": True}
    for name, value in former.items():
        with pytest.warns(cuzarr.errors.CuzarrRuntimeWarning, match=f"{name} has no effect"):
            cuzarr.open_array(store, **{name: value})


def test_a_format_by_its_former_name_counts() -> None:
    store = cuzarr.zeros((3,), store={}).store
    for opens in (cuzarr.open_array, cuzarr.open):
        with pytest.raises(cuzarr.errors.NodeNotFoundError):
            opens(store, mode="r", zarr_version=2)
        with pytest.raises(InvalidArgumentError, match="zarr_version, its former name"):
            opens(store, mode="r", zarr_version=2, zarr_format=3)


def test_misspelt_options_of_members_that_exist_are_refused() -> None:
    group = cuzarr.create_group({})
    group.create_array("x", shape=(3,), dtype="i2")
    group.create_group("g")
    with pytest.raises(ArgumentTypeError, match=r"(?s)Group.require_array has no argument 'exat'.*did you mean 'exact'"):
        group.require_array("x", shape=(3,), dtype="i2", exat=True)
    with pytest.raises(
        ArgumentTypeError, match=r"(?s)Group.require_group has no argument 'atributes'.*did you mean 'attributes'"
    ):
        group.require_group("g", atributes={})
    assert group.require_array("x", shape=(3,), dtype="i2", chunks=(1,), cache_metadata=True).chunks == (3,)


def test_misspelt_options_are_refused_before_blocks_are_computed() -> None:
    array = cuzarr.zeros((4,), store={})
    called: list[int] = []

    def count(block: Any) -> Any:
        called.append(1)
        return block

    with pytest.raises(ArgumentTypeError, match="(?s)has no argument 'compresors'.*did you mean 'compressors'"):
        cuzarr.map_blocks(count, array, out={}, compresors=None)
    with pytest.raises(ArgumentTypeError, match="(?s)has no argument 'overwrit'.*did you mean 'overwrite'"):
        (array * 2).store({}, overwrit=True)
    with pytest.raises(ArgumentTypeError, match="(?s)zarr_fromat is int, expected an array.*did you mean 'zarr_format'"):
        cuzarr.save({}, VALUES, zarr_fromat=2)
    assert not called


def test_masked_fill_values_are_refused() -> None:
    for make in (
        lambda: cuzarr.create_array({}, shape=(2,), dtype="f8", fill_value=np.ma.masked),
        lambda: cuzarr.full((2,), np.ma.masked),
    ):
        with pytest.raises(InvalidArgumentError, match="masked"):
            make()

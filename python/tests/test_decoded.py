"""Packed elements, missing elements and times: what `Array.decoded` makes of them, beside xarray."""

from __future__ import annotations

import base64
import pickle
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import (
    CuzarrUserWarning,
    DTypeMismatchError,
    InvalidArgumentError,
    MetadataValidationError,
    OutOfRangeError,
    UnsupportedError,
)

xarray = pytest.importorskip("xarray")

TYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
TIME_TYPES = ["i2", "i4", "i8", "u2", "u8", "f4", "f8"]
PACKED = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -1}


def packed(**options: Any) -> cuzarr.Array:
    data = np.array([[4, -1, 6], [8, 10, -1]], "i2")
    settings: dict[str, Any] = {"chunks": (1, 2), "attributes": PACKED, "dimension_names": ("y", "x")}
    return cuzarr.create_array({}, data=data, **(settings | options))


def same(got: Any, expected: Any) -> bool:
    """Whether two arrays are one in type and bits."""
    got, expected = np.asarray(got), np.asarray(expected)
    return got.dtype == expected.dtype and got.shape == expected.shape and got.tobytes() == expected.tobytes()


def elements(random: np.random.Generator, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        most = min(int(limits.max), 1 << 52)  # xarray compares larger ones after rounding
        values = [0, 1, 2, 3, 7, 100, most, max(int(limits.min), -most), *([-1, -2, -9] if dtype.kind == "i" else [])]
    else:
        values = [0.0, -0.0, 1.0, 2.5, 7.0, -9.0, 0.1, 1e4, np.nan, np.inf]
    return np.array(random.choice(np.array(values, dtype), 24), dtype)


def marks(random: np.random.Generator, dtype: np.dtype[Any], zarr_format: int) -> dict[str, Any]:
    """Attributes and fill value that mark missing elements, in forms that xarray reads."""
    whole = [0, 1, 7, *([-1, -9, -9999] if dtype.kind == "i" else [100])]
    several: list[Any] = [*whole, 2.5, 1e20, -9999.5, 1.0]
    options: dict[str, Any] = {"attributes": {}}
    count = int(random.integers(0, 4))
    if count and random.random() < 0.6:
        chosen = [several[one] for one in random.integers(0, len(several), count)]
        options["attributes"]["missing_value"] = chosen[0] if count == 1 else chosen
    elif random.random() < 0.2 and dtype.kind == "f":
        options["attributes"]["missing_value"] = float("nan")
    fill = whole[int(random.integers(0, len(whole)))]
    if dtype.kind == "i" and dtype.itemsize == 1 and fill < -128:
        fill = -9
    if zarr_format == 2:
        options["fill_value"] = None if random.random() < 0.4 else fill if random.random() < 0.8 or dtype.kind in "iu" else np.nan
        options["attributes"]["_ARRAY_DIMENSIONS"] = ["x"]
        if options["fill_value"] is None and random.random() < 0.5 and dtype.kind != "c":
            options["attributes"]["_FillValue"] = fill
        return options
    options["dimension_names"] = ("x",)
    if random.random() < 0.5:
        number = float(fill) if random.random() < 0.8 else float("nan")
        double = base64.b64encode(struct.pack("<d", number)).decode()
        zero = base64.b64encode(struct.pack("<d", 0.0)).decode()
        options["attributes"]["_FillValue"] = fill if dtype.kind in "iu" else [double, zero] if dtype.kind == "c" else double
    return options


def scales(random: np.random.Generator, dtype: np.dtype[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if dtype.kind in "iu" and random.random() < 0.3:
        found["_Unsigned"] = ["true", "false"][int(random.integers(0, 2))]
    if dtype.kind == "c" or random.random() < 0.4:
        return found
    if random.random() < 0.8:
        found["scale_factor"] = float(random.choice([0.1, -2.5, 1.0, 0.002]))
    if random.random() < 0.7:
        found["add_offset"] = random.choice([10, 0.0, -0.5, 273.15]).item()
    if "add_offset" in found and "scale_factor" in found and random.random() < 0.2:
        found["scale_factor"] = [found["scale_factor"]]
    if random.random() < 0.3:
        found["valid_range"] = [0, 1]
    return found


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_elements_are_decoded_as_xarray_decodes_them(tmp_path: Path, zarr_format: int) -> None:
    random = np.random.default_rng(zarr_format)
    group = cuzarr.create_group(tmp_path / "g.zarr", zarr_format=zarr_format)
    for number in range(104):
        dtype = np.dtype(TYPES[number % len(TYPES)]).newbyteorder(">" if number % 5 == 0 else "=")
        options = marks(random, dtype, zarr_format)
        options["attributes"] |= scales(random, dtype)
        data = elements(random, dtype.newbyteorder("="))
        group.create_array(f"a{number}", data=data.astype(dtype), chunks=(7,), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = xarray.open_zarr(tmp_path / "g.zarr", consolidated=False, decode_times=False, chunks=None).load()
    wrong = []
    for name, array in group.arrays():
        truth = expected[name].values
        plan = array.decoded()
        got = plan.compute()
        truth = truth.astype(truth.dtype.newbyteorder("="))
        if plan.dtype != truth.dtype or not same(got, truth):
            fill = array.fill_value if zarr_format == 2 else None
            wrong.append(f"{name} {array.dtype} {dict(array.attrs)} {fill}: {got!r}, expected {truth!r}")
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("dtype", TIME_TYPES)
@pytest.mark.parametrize("calendar", [None, "standard", "gregorian", "proleptic_gregorian", "Standard"])
def test_times_are_decoded_as_xarray_decodes_them(dtype: str, calendar: str | None) -> None:
    from xarray.conventions import decode_cf_variable

    attributes_of: list[dict[str, Any]] = [
        {}, {"_FillValue": 7}, {"missing_value": [3, 7]}, {"scale_factor": 0.25, "add_offset": 1.5}, {"_FillValue": 7, "scale_factor": 2.0},
    ]  # fmt: skip
    shift = TIME_TYPES.index(dtype)
    for number, units in enumerate(("days since 2000-01-01", "hours since 1900-01-01 06:30:00", "minutes since 1969-12-31T23:00:00Z",
                  "seconds since 1970-1-1 0:0:0.25", "milliseconds since 2001-02-03 04:05:06 +02:00")):  # fmt: skip
        attributes = attributes_of[(number + shift) % 5]
        own = {"units": units, **attributes, **({} if calendar is None else {"calendar": calendar})}
        values = [0, 3, 7, 100, 30000, *([-5, -7] if dtype[0] != "u" else []), *([1.37, np.nan] if dtype[0] == "f" else [])]
        data = np.array(values, dtype)
        stored = dict(own)
        if dtype[0] == "f" and "_FillValue" in stored:
            stored["_FillValue"] = base64.b64encode(struct.pack("<d", 7.0)).decode()
        z = cuzarr.create_array({}, data=data, chunks=(2,), attributes=stored, dimension_names=("t",))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = decode_cf_variable("t", xarray.Variable(("t",), data, own)).values
        plan = z.decoded(times=True)
        assert plan.dtype == expected.dtype == np.dtype("datetime64[ns]")
        assert same(plan.compute(), expected), (own, plan.compute(), expected)
        assert same(plan[1:4:2], expected[1:4:2])


def test_missing_times_are_nat_and_other_units_are_numbers() -> None:
    stored = np.array([np.iinfo("i8").min, 5, 6])
    z = cuzarr.create_array({}, data=stored, attributes={"units": "days since 1970-01-01", "_FillValue": 5})
    assert np.isnat(z.decoded(times=True).compute()).tolist() == [True, True, False]
    assert z.decoded().dtype == "f8", "times are asked for"
    assert packed().decoded(times=True).dtype == "f8"


DURATIONS: list[dict[str, Any]] = [
    {"units": "days"},
    {"units": "hours", "dtype": "timedelta64[ns]"},
    {"units": "days", "dtype": "timedelta64[ns]", "_FillValue": -1},
    {"units": "milliseconds", "dtype": "timedelta64[ns]", "scale_factor": 0.5},
    {"units": "months", "dtype": "timedelta64[ns]"},
    {"units": "hours since 2000-01-01", "dtype": "timedelta64[ns]"},
    {"units": "K", "dtype": "timedelta64[ns]"},
    {"dtype": "timedelta64[ns]"},
]


@pytest.mark.parametrize("attributes", DURATIONS)
def test_durations_are_those_that_xarray_reads_by_default(attributes: dict[str, Any]) -> None:
    data = np.array([1, 2, -1, 36], "i4")
    variable = xarray.Dataset({"a": ("x", data, dict(attributes))})
    if "since" not in str(attributes.get("units")):
        expected = xarray.decode_cf(variable).a.values
    else:
        expected = xarray.decode_cf(variable.drop_attrs().assign(a=("x", data, {"units": attributes["units"]}))).a.values
    z = cuzarr.create_array({}, data=data, chunks=(3,), attributes=attributes)
    plan = z.decoded(times=True)
    got = plan.compute()
    is_time = expected.dtype.kind in "mM"
    assert plan.dtype == got.dtype and got.dtype.kind == expected.dtype.kind
    assert same(got, expected.astype(got.dtype)) if is_time else got.tolist() == expected.tolist()
    if is_time:
        again = pickle.loads(pickle.dumps(plan))
        assert again.dtype == got.dtype and same(again[::-1], got[::-1])
        stored = plan.store({})
        assert stored.dtype == got.dtype and same(stored[...], got)
        assert z.decoded().dtype.kind in "if", "times are asked for"


def test_durations_of_other_units_are_counted_in_nanoseconds() -> None:
    z = cuzarr.create_array({}, data=np.array([1, 2]), attributes={"units": "seconds", "dtype": "timedelta64[s]"})
    assert z.decoded(times=True).compute().tolist() == np.array([1, 2], "m8[s]").astype("m8[ns]").tolist()
    with pytest.raises(InvalidArgumentError, match=r"times are timedelta64\[ns\]"):
        z.decoded("f8", times=True)


@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ({"units": "days since 2000-01-01", "calendar": "noleap"}, "noleap"),
        ({"units": "days since 2000-01-01", "calendar": "360_day"}, "360_day"),
        ({"units": "months since 2000-01-01"}, "months"),
        ({"units": "days since launch"}, "launch"),
    ],
)
def test_other_calendars_units_and_dates_are_refused_by_name(attributes: dict[str, Any], named: str) -> None:
    z = cuzarr.create_array({}, data=np.arange(3), attributes=attributes)
    with pytest.raises(UnsupportedError, match=named):
        z.decoded(times=True)
    assert z.decoded().compute().tolist() == [0, 1, 2]


def test_a_date_that_does_not_fit_is_an_error_when_it_is_computed() -> None:
    for data, units in (
        (np.array([0, 200_000]), "days since 1970-01-01"),
        (np.array([0.0, -1e9]), "hours since 1970-01-01"),
        (np.array([0, 2**63], "u8"), "nanoseconds since 1970-01-01"),
        (np.array([0.0, np.inf]), "days since 1970-01-01"),
        (np.array([1]), "days since 0001-01-01"),
    ):
        plan = cuzarr.create_array({}, data=data, attributes={"units": units}).decoded(times=True)
        with pytest.raises(OutOfRangeError, match="1677 to 2262"):
            plan.compute()
    marked = {"units": "days since 1970-01-01", "missing_value": 200_000}
    z = cuzarr.create_array({}, data=np.array([1, 200_000]), attributes=marked)
    assert z.decoded(times=True).compute().astype("M8[D]").astype(object)[0].isoformat() == "1970-01-02"


def test_dates_are_counted_from_days_that_do_not_fit_themselves() -> None:
    for dtype in ("i4", "i8", "f8"):
        z = cuzarr.create_array(
            {}, data=np.array([730_119], dtype), attributes={"units": "days since 0001-01-01", "calendar": "proleptic_gregorian"}
        )
        assert z.decoded(times=True).compute().tolist() == np.array(["2000-01-01"], "M8[ns]").tolist()
        z.attrs["calendar"] = "standard"  # which is two days behind in the year 1
        again = cuzarr.open_array(z.store_path)
        assert again.decoded(times=True).compute().tolist() == np.array(["1999-12-30"], "M8[ns]").tolist()


def test_another_type_is_converted_from_the_numbers() -> None:
    numbers = packed().decoded().compute()
    for dtype in ("f2", "f4", "f8"):
        assert same(packed().decoded(dtype).compute(), numbers.astype(dtype))
    with pytest.raises(InvalidArgumentError, match="int16"):
        packed().decoded("i2")
    plain = cuzarr.create_array({}, data=np.arange(3, dtype="u1"))
    assert same(plain.decoded("i4").compute(), np.arange(3, dtype="i4")) and same(
        plain.decoded().compute(), np.arange(3, dtype="u1")
    )


def test_an_integer_scale_makes_floats() -> None:
    z = cuzarr.create_array(
        {}, data=np.array([1, 2], "i2"), attributes={"scale_factor": 2, "_FillValue": 2}, dimension_names=("x",)
    )
    assert same(z.decoded().compute(), np.array([2.0, np.nan]))


def test_truths_are_made_of_integers_that_stand_for_them() -> None:
    z = cuzarr.create_array({}, data=np.array([0, 1, 2], "i1"), attributes={"dtype": "bool"}, dimension_names=("x",))
    assert same(z.decoded().compute(), np.array([False, True, True]))


def test_the_fill_value_of_format_2_marks_missing_elements_only_beside_names_of_dimensions() -> None:
    settings: dict[str, Any] = {"data": np.array([0, 1], "i2"), "zarr_format": 2, "fill_value": 0}
    bare = cuzarr.create_array({}, **settings)
    named = cuzarr.create_array({}, **settings, attributes={"_ARRAY_DIMENSIONS": ["x"]})
    assert same(bare.decoded().compute(), np.array([0, 1], "i2"))
    assert same(named.decoded().compute(), np.array([np.nan, 1], "f4"))


def test_large_integers_are_compared_with_marks_exactly() -> None:
    mark = 2**62 + 1
    z = cuzarr.create_array({}, data=np.array([mark - 1, mark]), attributes={"_FillValue": mark}, dimension_names=("x",))
    assert np.isnan(z.decoded().compute()).tolist() == [False, True]


def test_a_decoded_plan_is_computed_with_stored_and_pickled() -> None:
    plan, truth = packed().decoded(), np.array([[12.0, np.nan, 13.0], [14.0, 15.0, np.nan]])
    assert float(cuzarr.xp.nanmean(plan).compute()) == 13.5
    np.testing.assert_array_equal((plan - 10).max(axis="y").compute(), np.nanmax(truth - 10, axis=0) + 0 * truth.sum(axis=0))
    np.testing.assert_array_equal(plan.store({}, name="numbers")[:], truth)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(plan)).compute(), truth)
    np.testing.assert_array_equal(packed().lazy[1, ::-1].decoded().compute(), truth[1, ::-1])
    assert len(plan.explain().to_dict()["stages"]) == 1
    with pytest.raises(TypeError):
        plan[0] = 1  # type: ignore[index]


def test_dates_are_stored_as_dates_and_not_computed_with() -> None:
    z = cuzarr.create_array({}, data=np.array([1, 2, 7], "i4"), attributes={"units": "days since 2000-01-01", "_FillValue": 7})
    plan = z.decoded(times=True)
    dates = np.array(["2000-01-02", "2000-01-03", "NaT"], "M8[ns]")
    assert same(plan.store({}, name="dates")[:], dates) and same(pickle.loads(pickle.dumps(plan)).compute(), dates)
    room = np.empty(3, "M8[ns]")
    assert same(plan.compute(out=room), dates)
    for call in (
        plan.max,
        lambda: plan + 1,
        lambda: plan.astype("i8"),
        lambda: z.decoded("f4", times=True),
        lambda: plan.decoded(),
    ):
        with pytest.raises((DTypeMismatchError, InvalidArgumentError, AttributeError), match=r"datetime64\[ns\]|decoded"):
            call()
    for other in (np.empty(3, "i8"), np.empty(3, "M8[s]")):
        with pytest.raises(DTypeMismatchError, match="out has elements"):
            plan.compute(out=other)
    with pytest.raises(DTypeMismatchError, match="int64"):
        plan.store(cuzarr.zeros((3,), dtype="i8", store={}))


def test_elements_that_are_no_numbers_and_broken_attributes_are_refused() -> None:
    for data in (np.array(["2000-01-01"], "M8[s]"), np.array(["a"]), np.zeros(2, [("a", "i2")])):
        with pytest.raises(DTypeMismatchError, match="decoded"):
            cuzarr.create_array({}, data=data).decoded()
    with pytest.raises(MetadataValidationError, match="often"):
        cuzarr.create_array({}, data=np.arange(3), attributes={"scale_factor": "often"}).decoded()
    with pytest.raises(UnsupportedError, match="complex"):
        cuzarr.create_array({}, data=np.zeros(2, "c8"), attributes={"scale_factor": 0.5}).decoded()


REDUCTIONS = {
    "method": lambda z: z.mean(),
    "function": lambda z: cuzarr.xp.sum(z, axis=0),
    "namespace": lambda z: cuzarr.xp.max(z),
    "quantile": lambda z: cuzarr.xp.median(z),
    "histogram": lambda z: cuzarr.xp.histogram(z, bins=3),
    "average": lambda z: cuzarr.xp.average(z, weights=np.ones((2, 3))),
    "view": lambda z: z.lazy[1:].std(),
    "converted": lambda z: cuzarr.xp.sum(z, dtype="f8"),
    "without NaN": lambda z: cuzarr.xp.nanmin(z),
    "plan": lambda z: (z * 1).mean(),
    "plan of a view": lambda z: (z.lazy[1:] - z.lazy[:-1]).max(),
    "plan of a whole view": lambda z: z.lazy.mean(),
    "NumPy's function of a plan": lambda z: np.sum(z + 1),
    "some": lambda z: z.sum(where=z > 0),
    "quantile of a plan": lambda z: cuzarr.xp.median(cuzarr.xp.sqrt(z)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_of_packed_numbers_warns_once_for_each_array(tmp_path: Path, name: str) -> None:
    z = packed()
    cuzarr.save_array(tmp_path / "z.zarr", z[:], attributes=PACKED)
    z = cuzarr.open_array(tmp_path / "z.zarr")
    with pytest.warns(CuzarrUserWarning, match=r"scale_factor 0.5, add_offset 10.0.*\n.*decoded\(\)") as told:
        REDUCTIONS[name](z)
        REDUCTIONS[name](cuzarr.open_array(tmp_path / "z.zarr"))
    assert len(told) == 1 and told[0].filename == __file__


def test_decoded_and_plain_arrays_do_not_warn() -> None:
    z = packed()
    plain = cuzarr.create_array({}, data=np.arange(3), attributes={"_FillValue": 1, "units": "K"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        z.decoded().mean(), plain.mean(), cuzarr.xp.mean(np.arange(3)), z + 1, z[:].mean()
        (z.decoded() * 2).mean(), (z.decoded() - plain).max(), z.lazy[1:].decoded().sum()


def test_reading_and_writing_stay_those_of_stored_elements() -> None:
    z = packed()
    z[0, 0] = 5
    assert z[0, 0] == 5 and z.decoded()[0, 0] == 12.5

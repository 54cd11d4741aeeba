"""Reads and writes of many arrays by one call: each gets what a call of its own gives."""

import asyncio
import random
import string
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from rounds import Rounds

import cuzarr
from cuzarr._runtime import run
from cuzarr.errors import (
    ArgumentTypeError,
    ArrayNotFoundError,
    BoundsCheckError,
    ContainsGroupError,
    ConversionError,
    CuzarrError,
    InvalidArgumentError,
    ReadOnlyError,
    SelectionInvalidError,
    ShapeMismatchError,
)

DTYPES = ["uint8", "int16", ">i4", "float32", "float64", "complex64", "bool", "M8[s]", "string"]


def elements(dice, shape, dtype):
    numbers = np.array([dice.randrange(100) for _ in range(int(np.prod(shape)))]).reshape(shape)
    if dtype == "string":
        return np.array(["".join(dice.choices(string.ascii_letters, k=int(one) % 7)) for one in numbers.ravel()], object).reshape(
            shape
        )
    return numbers.astype(dtype)


def make_array(group, name, dice):
    shape = tuple(dice.randrange(9) for _ in range(dice.randrange(4)))
    chunks = tuple(dice.randrange(1, 6) for _ in shape)
    options = {}
    if group.metadata.zarr_format == 3:
        options["dimension_names"] = [dice.choice(["t", "y", "x", None]) for _ in shape]
        if len(set(filter(None, options["dimension_names"]))) < len(list(filter(None, options["dimension_names"]))):
            del options["dimension_names"]
        if shape and dice.random() < 0.3:
            options["shards"] = tuple(2 * chunk for chunk in chunks)
    dtype = dice.choice(DTYPES)
    if dtype == "string" and group.metadata.zarr_format == 2:
        dtype = "int16"
    compressors = dice.choice([None, "auto"])
    array = group.create_array(
        name, shape=shape, chunks=chunks or None or "auto", dtype=dtype, compressors=compressors, **options
    )
    if dice.random() < 0.8 and all(shape):
        array[...] = elements(dice, shape, dtype)
    return array


def selection_of(dice, shape):
    chosen = []
    for extent in shape:
        if extent and dice.random() < 0.3:
            chosen.append(dice.randrange(-extent, extent))
        elif dice.random() < 0.6:
            chosen.append(slice(dice.randrange(extent + 1), dice.randrange(extent + 2), dice.choice([None, 1, 2])))
        else:
            chosen.append(slice(None))
    return tuple(chosen) if dice.random() < 0.8 else Ellipsis


@pytest.mark.parametrize("seed", range(25))
def test_many_reads_are_what_each_is(seed, tmp_path, device):
    dice = random.Random(seed)
    groups = [cuzarr.create_group(place, zarr_format=dice.choice([2, 3])) for place in (tmp_path / "a", {}, tmp_path / "b.zip")]
    arrays = [
        make_array(dice.choice(groups), f"array{number}", dice).with_device(dice.choice(["cpu", device]))
        for number in range(dice.randrange(1, 12))
    ]
    chosen = [dice.choice(arrays) for _ in range(dice.randrange(15))]
    reads = [(array, selection_of(dice, array.shape)) for array in chosen]
    results = cuzarr.read_many(reads)
    assert len(results) == len(reads)
    for (array, selection), result in zip(reads, results, strict=True):
        expected = array.read_many([selection])[0]
        assert type(result) is type(expected)
        np.testing.assert_array_equal(host(result), host(expected))
        np.testing.assert_array_equal(host(result), host(array[selection]))


def host(elements):
    return cuzarr.xp.asnumpy(elements)


@pytest.mark.parametrize("seed", range(10))
def test_a_group_reads_what_its_arrays_are(seed, device):
    dice = random.Random(1000 + seed)
    group = cuzarr.create_group({}, zarr_format=dice.choice([2, 3]))
    for number in range(dice.randrange(8)):
        make_array(group, f"array{number}", dice)
    group.create_group("deeper")
    make_array(group, "deeper/array", dice)
    group = cuzarr.open_group(group.store, device=device)
    found = group.read()
    assert set(found) == set(group.array_keys())
    for name, values in found.items():
        np.testing.assert_array_equal(host(values), host(group[name][...]))
    both = [*list(found)[:2], "deeper/array"]
    assert list(group.read(both)) == both
    names = {name for _, array in group.arrays() for name in array._dimension_names or () if name}
    for name in sorted(names):
        for position in (0, slice(1, 3), slice(None, None, 2)):
            try:
                expected = {path: along(array, name, position) for path, array in group.arrays()}
            except BoundsCheckError:
                with pytest.raises(BoundsCheckError):
                    group.read(selection={name: position})
                continue
            found = group.read(selection={name: position})
            for path, values in found.items():
                np.testing.assert_array_equal(host(values), host(expected[path]))


def along(array, name, position):
    names = array._dimension_names or (None,) * array.ndim
    return array[tuple(position if own == name else slice(None) for own in names)]


@pytest.fixture
def days():
    group = cuzarr.create_group({})
    for number, name in enumerate(("msl", "t2m", "wind")):
        values = np.arange(number, number + 40.0).reshape(5, 8)
        group.create_array(name, data=values, chunks=(2, 3), dimension_names=("time", "x"))
    group.create_array("x", data=np.arange(8), dimension_names=("x",))
    return group


def test_positions_go_by_the_names_of_dimensions(days):
    step = days.read(selection={"time": 2})
    assert {name: values.shape for name, values in step.items()} == {"msl": (8,), "t2m": (8,), "wind": (8,), "x": (8,)}
    np.testing.assert_array_equal(step["t2m"], days["t2m"][2])
    part = days.read(["wind", "x"], {"time": slice(1, 3), "x": slice(None, None, 3)}, dtype="f4")
    np.testing.assert_array_equal(part["wind"], days["wind"][1:3, ::3])
    assert {values.dtype for values in part.values()} == {np.dtype("f4")}
    with pytest.raises(SelectionInvalidError, match="no array has a dimension 'lat'") as caught:
        days.read(selection={"lat": 1})
    assert "'time', 'x'" in str(caught.value.hint)
    with pytest.raises(SelectionInvalidError):
        days.read(["x"], {"time": 1})
    with pytest.raises(BoundsCheckError):
        days.read(selection={"time": 5})
    days.create_group("deeper")
    with pytest.raises(ArrayNotFoundError, match="nothing"):
        days.read(["msl", "nothing"])
    with pytest.raises(ContainsGroupError):
        days.read(["deeper"])
    assert days.read([]) == {}
    consolidated = cuzarr.consolidate_metadata(days.store)
    np.testing.assert_array_equal(consolidated.read(["msl"])["msl"], days["msl"][...])


def test_memory_and_types_are_the_callers(days, device):
    msl, x = days["msl"].with_device(device), days["x"].with_device(device)
    mine = cuzarr.xp.empty((5, 8), "float32", device=device)
    results = cuzarr.read_many([(msl, ...), (x, slice(2, 5)), (msl, 1)], out=[mine, None, None], dtype=[None, "int16", None])
    assert results[0] is mine
    np.testing.assert_array_equal(host(mine), host(days["msl"][...]).astype("f4"))
    np.testing.assert_array_equal(host(results[1]), np.arange(2, 5, dtype="i2"))
    assert results[1].dtype == "int16"
    np.testing.assert_array_equal(host(results[2]), host(days["msl"][1]))


def test_elements_go_to_other_devices_and_byte_orders(days, device):
    there, swapped = cuzarr.xp.empty((5, 8), "float64", device=device), np.zeros((8,), ">i8")
    cuzarr.read_many([(days["wind"], ...), (days["x"], ...)], out=[there, swapped])
    np.testing.assert_array_equal(host(there), host(days["wind"][...]))
    np.testing.assert_array_equal(swapped, np.arange(8))


BIG_ENDIAN = [">i2", ">f4", ">c16", ">M8[s]", ">U3", [("a", ">i4"), ("b", "u1")]]


@pytest.mark.parametrize("dtype", BIG_ENDIAN, ids=str)
def test_results_have_the_byte_order_of_brackets(dtype, device):
    dtype = np.dtype(dtype)
    values = np.zeros((4, 6), dtype)
    values[...] = np.arange(24).reshape(4, 6).astype(dtype) if dtype.names is None else [(number, 1) for number in range(6)]
    array = cuzarr.create_array({}, data=values, chunks=(2, 3), zarr_format=2).with_device("cpu" if dtype.names else device)
    selections = [(slice(1, 3), 2), ..., (slice(1, 3), 2), 3, (slice(0, 2), 5)]
    expected = [array[selection] for selection in selections]
    assert expected[1].dtype == (dtype if array.device == "cpu" else dtype.newbyteorder("="))
    together = cuzarr.read_many([(array, selection) for selection in selections])
    starts, extents = [[0, 1], [2, 3]], [[2, 3], [2, 3]]
    for results in (together, array.read_many(selections)):
        for result, wanted in zip(results, expected, strict=True):
            assert result.dtype == wanted.dtype and type(result) is type(wanted)
            np.testing.assert_array_equal(host(result), host(wanted))
    boxes, (ragged, _) = array.read_boxes(starts, (2, 3)), array.read_ragged(starts, extents)
    assert boxes.dtype == ragged.dtype == expected[1].dtype
    np.testing.assert_array_equal(host(boxes), [values[:2, 1:4], values[2:, 3:]])
    np.testing.assert_array_equal(host(ragged), host(boxes).reshape(-1))
    # A type that is named is one of the machine.
    for named in (dtype, dtype.newbyteorder("<")):
        (result,) = cuzarr.read_many([(array, ...)], dtype=named)
        assert result.dtype.isnative
        np.testing.assert_array_equal(host(result), values)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_variables_that_xarray_cannot_await_are_loaded_too(is_awaited):
    xarray = pytest.importorskip("xarray")
    group = cuzarr.create_group({}, zarr_format=2)
    for name, dtype in {"little": "<f4", "big": ">f4", "count": ">i2", "flag": "i1", "letter": "S1"}.items():
        attributes = {"_ARRAY_DIMENSIONS": ["y", "x"]} | ({"dtype": "bool"} if name == "flag" else {})
        values = (np.arange(12) % 2).reshape(3, 4).astype(dtype)
        group.create_array(name, data=values, attributes=attributes, fill_value=None)
    expected = xarray.open_dataset(group, engine="cuzarr", chunks=None).load()
    dataset = xarray.open_dataset(group, engine="cuzarr", chunks=None)

    async def load():
        return dataset.cuzarr.load()

    loaded = asyncio.run(load()) if is_awaited else dataset.cuzarr.load()
    assert loaded is dataset and loaded.identical(expected) and loaded.flag.dtype == bool


def test_a_failure_beside_variables_that_xarray_cannot_await_is_named():
    xarray = pytest.importorskip("xarray")
    store = {}
    group = cuzarr.create_group(store, zarr_format=2)
    for name in ("big", "other"):
        group.create_array(name, data=np.arange(4).astype(">f4"), attributes={"_ARRAY_DIMENSIONS": ["x"]}, fill_value=None)
    store["other/0"] = b"damaged"
    with pytest.raises(CuzarrError, match="array '/other'"):
        xarray.open_dataset(group, engine="cuzarr", chunks=None).cuzarr.load()


def test_memory_that_overlaps_is_refused(days, device):
    table = cuzarr.xp.zeros((10, 8), "float64", device=device)
    reads = [(days["msl"].with_device(device), ...), (days["t2m"].with_device(device), ...)]
    for wrong in ([table[:5], table[4:9]], [table[:5], table[:5]], [table[0:10:2], table[5:]]):
        with pytest.raises(InvalidArgumentError, match="overlaps"):
            cuzarr.read_many(reads, out=wrong)
    cuzarr.read_many(reads, out=[table[0:10:2], table[1:10:2]])
    np.testing.assert_array_equal(host(table)[0::2], host(days["msl"][...]))
    np.testing.assert_array_equal(host(table)[1::2], host(days["t2m"][...]))


def test_memory_of_the_other_byte_order_that_overlaps_is_refused(days):
    memory = np.zeros((10, 8), ">f8")
    reads = [(days["msl"].with_device("cpu"), ...), (days["t2m"].with_device("cpu"), ...)]
    for wrong in ([memory[:5], memory[4:9]], [memory[4:9], memory.view("<f8")[:5]]):
        with pytest.raises(InvalidArgumentError, match="results 0 and 1 overlaps"):
            cuzarr.read_many(reads, out=wrong)
    cuzarr.read_many(reads, out=[memory[::2], memory[1::2]])
    np.testing.assert_array_equal(memory[1::2], host(days["t2m"][...]))


def test_wrong_reads_are_refused_before_anything_is_read(days):
    array, out = days["msl"], np.zeros((5, 8))
    for wrong in ([array], [(array, 1, 2)], [("msl", 1)], [(np.zeros(3), 0)]):
        with pytest.raises(ArgumentTypeError):
            cuzarr.read_many(wrong)
    with pytest.raises(CuzarrError):
        cuzarr.read_many(array)
    with pytest.raises(InvalidArgumentError, match="2 entries for 1 reads"):
        cuzarr.read_many([(array, ...)], out=[out, out])
    with pytest.raises(InvalidArgumentError, match="1 entries for 2 reads"):
        cuzarr.read_many([(array, ...), (array, 1)], dtype=["f4"])
    with pytest.raises(ShapeMismatchError):
        cuzarr.read_many([(array, ...), (array, 1)], out=[out, out])
    with pytest.raises(BoundsCheckError):
        cuzarr.read_many([(array, ...), (array, 7)], out=[out, None])
    assert not out.any()
    assert cuzarr.read_many([]) == []


def failing(error, call, *args, **kwargs):
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    return str(caught.value).splitlines()[0]


def test_errors_of_one_entry_name_it(days):
    arrays = [days[("msl", "t2m", "wind")[number % 3]] for number in range(24)]
    reads = [(array, number % 5) for number, array in enumerate(arrays)]
    wrong = [*reads[:7], (arrays[7], 9), *reads[8:]]
    assert failing(BoundsCheckError, cuzarr.read_many, wrong).startswith("read 7: array '/t2m': index 9 is out of bounds")
    assert failing(ArgumentTypeError, cuzarr.read_many, [*reads, "no read"]).startswith("read 24: expected a pair")
    for name, given, error, message in [
        ("out", np.zeros(3), ShapeMismatchError, "out has shape (3,)"),
        ("dtype", "nothing", CuzarrError, "dtype: "),
        ("dtype", "U3", CuzarrError, "cannot read float64 as <U3"),
    ]:
        each = [None] * 24
        each[7] = given
        assert failing(error, cuzarr.read_many, reads, **{name: each}).startswith(f"read 7: array '/t2m': {message}")
    words = days.create_array("words", shape=(3,), dtype="string")
    reads[7] = (words, ...)
    message = failing(ShapeMismatchError, cuzarr.read_many, reads, out=[None] * 7 + [np.empty(4, object)] + [None] * 16)
    assert message.startswith("read 7: array '/words': ")
    assert failing(BoundsCheckError, days.read, ["msl", "x"], {"x": 9}).startswith("read 0: array '/msl': index 9")
    assert failing(BoundsCheckError, days["msl"].read_many, [0, 1, (2, 9)]).startswith("selection 2: index 9")
    assert failing(ArgumentTypeError, days["msl"].read_many, "abc").startswith("selections is 'abc'")


def test_errors_of_one_write_name_it(days):
    values = np.zeros(8)
    writes = [(days[name], number, values) for name in ("msl", "t2m", "wind") for number in (0, 2, 4)]
    for wrong, error, message in [
        ((days["t2m"], 9, values), BoundsCheckError, "index 9 is out of bounds"),
        ((days["t2m"], 2, values[:3]), ShapeMismatchError, "a value of shape (3,) does not broadcast"),
        ((days["t2m"], 2, "text"), ConversionError, "the value cannot be converted"),
        ((days["t2m"], None, values), SelectionInvalidError, "basic selection takes no new axes"),
    ]:
        message = f"write 4: array '/t2m': {message}"
        assert failing(error, cuzarr.write_many, [*writes[:4], wrong, *writes[5:]]).startswith(message)
    assert failing(ArgumentTypeError, cuzarr.write_many, [*writes, days["msl"]]).startswith("write 9: expected an array")
    message = failing(ShapeMismatchError, days.write, {"msl": np.zeros((5, 8)), "x": np.zeros(7)})
    assert message.startswith("write 1: array '/x': a value of shape (7,)")
    read_only = cuzarr.open_group(days.store.with_read_only(True), mode="r")
    message = failing(ReadOnlyError, cuzarr.write_many, [writes[0], (read_only["wind"], 0, values)])
    assert message.startswith("write 1: array '/wind': ")
    np.testing.assert_array_equal(host(days["msl"][...]), np.arange(40.0).reshape(5, 8))


def test_the_first_failure_ends_all_and_names_its_array(device):
    values = {}
    days = cuzarr.create_group(values)
    for name in ("msl", "t2m", "wind"):
        days.create_array(name, data=np.arange(40.0).reshape(5, 8), chunks=(2, 3))
    values["t2m/c/1/1"] = b"no chunk"
    reads = [(days[name].with_device(device), ...) for name in ("msl", "t2m", "wind")]
    with pytest.raises(CuzarrError) as caught:
        cuzarr.read_many(reads)
    assert "array '/t2m': chunk 't2m/c/1/1'" in str(caught.value)
    with pytest.raises(type(caught.value)):
        days["t2m"].with_device(device)[...]
    # What is not read is not missed.
    parts = cuzarr.read_many([(array, (slice(0, 2), slice(0, 3))) for array, _ in reads])
    np.testing.assert_array_equal(host(parts[1]), host(days["t2m"][:2, :3]))


def test_the_smallest_limit_counts_and_reports_are_of_the_whole(days):
    with cuzarr.config.set({"memory_limit": 40}):
        small = cuzarr.open_array(days.store, path="wind")
        with pytest.raises(CuzarrError, match="memory limit"):
            cuzarr.read_many([(days["msl"], ...), (small, ...)])
    arrays = [days["msl"], days["t2m"]]
    cuzarr.read_many([(array, ...) for array in arrays])
    first, second = (array.last_report() for array in arrays)
    assert first == second
    assert sum(stage["size_bytes"] for stage in first["stages"] if stage["stage"] == "decode") >= 2 * 5 * 8 * 8


def words_and_numbers(store, words=3, numbers=3):
    group = cuzarr.create_group(store)
    for number in range(words):
        group.create_array(f"words{number}", shape=(6,), chunks=(2,), dtype=str)[:] = np.array(list("abcdef"), object)
    for number in range(numbers):
        group.create_array(f"numbers{number}", data=np.arange(number, number + 6.0), chunks=(2,))
    return [array for _, array in sorted(group.arrays())]


def test_words_are_read_beside_numbers_in_one_round(device):
    store = Rounds()
    arrays = [array.with_device(device) for array in words_and_numbers(store)]
    results, rounds = store.count(lambda: cuzarr.read_many([(array, slice(1, 6)) for array in arrays]))
    assert rounds == 1
    for array, result in zip(arrays, results, strict=True):
        np.testing.assert_array_equal(host(result), host(array[1:6]))
    only_words, rounds = store.count(lambda: cuzarr.read_many([(array, ...) for array in arrays[3:]]))
    assert rounds == 1 and [result.tolist() for result in only_words] == [list("abcdef")] * 3
    text = np.empty(6, object)
    cuzarr.read_many([(arrays[0], ...), (arrays[3], ...)], out=[None, text])
    assert text.tolist() == list("abcdef")


@pytest.mark.parametrize("broken", [("words1",), ("numbers1",), ("words1", "numbers1"), ("words0", "words1", "words2")])
def test_the_first_failure_of_words_or_numbers_ends_all(broken, device):
    values = {}
    arrays = [array.with_device(device) for array in words_and_numbers(values)]
    for name in broken:
        values[f"{name}/c/1"] = b"no chunk"
    before = threading.active_count()
    for _ in range(5):
        with pytest.raises(CuzarrError) as caught:
            cuzarr.read_many([(array, ...) for array in arrays])
        assert any(f"'{name}/c/1'" in str(caught.value) for name in broken)
    assert threading.active_count() <= before


def test_a_failure_of_numbers_ends_the_words_that_are_read_beside():
    endless = cuzarr.create_array({}, shape=(2**34,), chunks=(1,), dtype=str)
    values = {}
    broken = cuzarr.create_array(values, data=np.arange(6.0), chunks=(2,))
    values["c/1"] = b"no chunk"
    with cuzarr.config.set({"memory_limit": 2**36}), pytest.raises(CuzarrError, match="chunk"):
        cuzarr.read_many([(endless, slice(0, 2**26)), (broken, ...)])


@pytest.mark.parametrize("beside", [True, False])
def test_words_that_are_read_beside_end_with_the_awaited_call(beside):
    endless = cuzarr.create_array({}, shape=(2**34,), chunks=(1,), dtype=str)
    numbers = cuzarr.create_array({}, data=np.arange(6.0))
    reads = [(endless, slice(0, 2**26)), *([(numbers, ...)] if beside else [])]
    begun, ended = threading.Event(), threading.Event()

    def read():
        begun.set()
        try:
            cuzarr.read_many(reads)
        finally:
            ended.set()

    async def story():
        reading = asyncio.create_task(run(read))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert ended.is_set()

    with cuzarr.config.set({"memory_limit": 2**36}):
        asyncio.run(story())


def datasets(tmp_path, device):
    xarray = pytest.importorskip("xarray")
    group = cuzarr.create_group(tmp_path)
    for number, name in enumerate(("msl", "t2m", "wind")):
        values = np.arange(number, number + 40).reshape(5, 8).astype(("f8", "i2", ">f4")[number])
        group.create_array(
            name, data=values, chunks=(2, 3), dimension_names=("time", "x"), attributes={"_FillValue": 7} if number == 1 else {}
        )
    group.create_array("words", shape=(8,), dtype="string", dimension_names=("x",))[:] = np.array(list("abcdefgh"), object)
    group.create_array("zero", data=np.array(3.5), dimension_names=())
    group.create_array("x", data=np.arange(8), dimension_names=("x",))
    return xarray.open_dataset(tmp_path, engine="cuzarr", device=device), xarray.open_dataset(
        tmp_path, engine="zarr", consolidated=False
    )


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_is_loaded_by_one_call(tmp_path):
    ours, theirs = datasets(tmp_path, "cpu")
    calls, read = [], cuzarr._core.read_many
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuzarr._core, "read_many", lambda reads: calls.append(len(reads)) or read(reads))
        assert ours.cuzarr.load() is ours
    assert calls == [4]
    theirs.load().identical(ours)
    np.testing.assert_equal({name: one.values for name, one in ours.items()}, {name: one.values for name, one in theirs.items()})
    ours, _ = datasets(tmp_path / "b", "cpu")
    part = ours.isel(time=slice(None, None, -2), x=[0, 2])
    np.testing.assert_array_equal(part.cuzarr.load().msl, ours.msl.values[::-2][:, [0, 2]])


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_is_loaded_inside_of_a_running_loop(tmp_path):
    async def notebook():
        ours, theirs = datasets(tmp_path, "cpu")
        loaded = ours.cuzarr.load()
        again = await datasets(tmp_path / "b", "cpu")[0].load_async()
        for one in (loaded, again):
            np.testing.assert_array_equal(one.wind, theirs.wind)
        one, both = datasets(tmp_path / "c", "cpu")[0], datasets(tmp_path / "d", "cpu")[0]
        await asyncio.gather(one.load_async(), both.load_async())
        np.testing.assert_array_equal(one.t2m, both.t2m)

    asyncio.run(notebook())


@pytest.mark.filterwarnings("ignore")
def test_a_failure_of_one_variable_fails_the_data_set(tmp_path):
    ours, _ = datasets(tmp_path, "cpu")
    (tmp_path / "t2m" / "c" / "1" / "1").write_bytes(b"no chunk")
    with pytest.raises(CuzarrError, match="array '/t2m': chunk"):
        ours.cuzarr.load()
    (tmp_path / "t2m" / "c" / "1" / "1").unlink()
    np.testing.assert_array_equal(ours.cuzarr.load().msl[0], np.arange(8.0))


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_does_not_fail_by_another_one(tmp_path):
    async def both():
        good, bad = datasets(tmp_path / "a", "cpu")[0], datasets(tmp_path / "b", "cpu")[0]
        (tmp_path / "b" / "t2m" / "c" / "1" / "1").write_bytes(b"no chunk")
        return await asyncio.gather(good.load_async(), bad.load_async(), return_exceptions=True)

    good, bad = asyncio.run(both())
    assert good.t2m.shape == (5, 8) and isinstance(bad, CuzarrError)


@pytest.mark.filterwarnings("ignore")
def test_a_load_that_is_cancelled_leaves_nothing_running(tmp_path, monkeypatch):
    xarray_module = pytest.importorskip("cuzarr.xarray._reads")
    begun, ended = threading.Event(), threading.Event()

    def slow(reads):
        begun.set()
        try:
            cuzarr.open_array(tmp_path / "endless")[...]  # a cancellation ends it
        finally:
            ended.set()
        return [None for _ in reads]

    async def story():
        cuzarr.create_array(tmp_path / "endless", shape=(2**34,), chunks=(1,), dtype="u1")
        dataset = datasets(tmp_path / "a", "cpu")[0]
        monkeypatch.setattr(xarray_module, "_read_together", slow)
        loading = asyncio.create_task(dataset.load_async())
        while not begun.is_set():
            await asyncio.sleep(0.01)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        await asyncio.sleep(0.5)
        assert ended.is_set()

    with cuzarr.config.set({"memory_limit": 2**36}):
        asyncio.run(story())


@pytest.mark.parametrize("seed", range(20))
def test_many_writes_are_what_each_is(seed, tmp_path, device):
    """Into copies of the same random arrays: by one call, and one by one."""
    copies = []
    for name in ("many", "single"):
        dice = random.Random(2000 + seed)
        groups = [
            cuzarr.create_group(place, zarr_format=dice.choice([2, 3]))
            for place in (tmp_path / name, {}, tmp_path / f"{name}.zip")
        ]
        copies.append([make_array(dice.choice(groups), f"array{number}", dice) for number in range(dice.randrange(1, 9))])
    writes, expected = [], []
    for many_array, single in zip(*copies, strict=True):
        selection = selection_of(dice, many_array.shape)
        shape = np.shape(host(single[selection]))
        shape = shape[dice.randrange(len(shape) + 1) :] if shape and dice.random() < 0.3 else shape
        dtype = "string" if many_array.dtype.kind in "OT" else many_array.dtype
        value = elements(dice, shape, dtype)
        expected.append((single, selection, value))
        on_device = device != "cpu" and isinstance(value, np.ndarray) and value.dtype.isnative and value.dtype.kind in "iuf"
        writes.append((many_array, selection, cuzarr.xp.asarray(value, device=device) if on_device else value))
    cuzarr.write_many(dice.sample(writes, len(writes)))
    for single, selection, value in expected:
        single[selection] = value
    for many_array, single in zip(*copies, strict=True):
        np.testing.assert_array_equal(host(many_array[...]), host(single[...]))
    if any(np.size(value) for *_, value in writes):
        assert any(array.last_report() is not None for array in copies[0])


def test_nothing_is_written_unless_everything_fits(tmp_path):
    a, b = (cuzarr.create_array(tmp_path / name, shape=(8,), chunks=(4,), dtype="i4") for name in "ab")
    text = cuzarr.create_array({}, shape=(2,), dtype=str)
    read_only = cuzarr.open_array(tmp_path / "b", mode="r")
    cases = [
        (InvalidArgumentError, "writes 1 and 2 touch one stored object", [(b, 0, 1), (a, np.s_[:3], 1), (a, 3, 2)]),
        (InvalidArgumentError, "touch one stored object", [(a, 0, 1), (cuzarr.open_array(tmp_path / "a"), 1, 2)]),
        (ShapeMismatchError, "broadcast", [(a, ..., 1), (b, ..., [1, 2])]),
        (BoundsCheckError, "out of bounds", [(a, ..., 1), (b, 8, 1)]),
        (ReadOnlyError, "read", [(a, ..., 1), (read_only, 0, 1)]),
        (ConversionError, "", [(a, ..., 1), (text, ..., ["x", "\udc80"])]),
        (ArgumentTypeError, "an array, a selection and a value", [(a, ..., 1), (b, ...)]),
    ]
    for error, message, writes in cases:
        with pytest.raises(error, match=message):
            cuzarr.write_many(writes)
        assert not a[...].any() and not b[...].any()
    cuzarr.write_many([(a, np.s_[:4], 3), (text, 1, "y"), (a, np.s_[4:], 4), (b, np.s_[:0], [])])
    assert a[...].tolist() == [3] * 4 + [4] * 4 and text[...].tolist() == ["", "y"]
    cuzarr.write_many([])


def test_a_group_writes_by_the_names_of_dimensions():
    group = cuzarr.create_group({})
    for path, names in (("t", ("time", "x")), ("deep/u", ("x", "time")), ("x", ("x",))):
        group.create_array(path, shape=tuple({"time": 4, "x": 3}[name] for name in names), dtype="i4", dimension_names=names)
    group.write({"t": [1, 2, 3], "deep/u": 7, "x": [4, 5, 6]}, {"time": -1})
    assert group["t"][...].tolist() == [[0] * 3] * 3 + [[1, 2, 3]]
    assert group["deep/u"][...].tolist() == [[0, 0, 0, 7]] * 3 and group["x"][...].tolist() == [4, 5, 6]
    with pytest.raises(ArrayNotFoundError):
        group.write({"t": 9, "nothing": 1})
    with pytest.raises(SelectionInvalidError, match="'depth'"):
        group.write({"t": 9}, {"depth": 0})
    assert group["t"][3].tolist() == [1, 2, 3]


def test_threads_that_write_the_same_arrays_in_other_orders_end(tmp_path):
    arrays = [cuzarr.create_array(tmp_path / str(number), shape=(64,), chunks=(64,), dtype="i4") for number in range(4)]

    def write(number):
        order = np.random.default_rng(number).permutation(4)
        cuzarr.write_many([(cuzarr.open_array(tmp_path / str(at)), number, number + 1) for at in order])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(64)))
    for array in arrays:
        assert array[...].tolist() == list(range(1, 65))


def test_a_dimension_may_have_an_empty_name():
    group = cuzarr.create_group({})
    group.create_array("e", data=np.arange(4), dimension_names=("",))
    group.write({"e": 9}, {"": 1})
    assert group["e"][...].tolist() == [0, 9, 2, 3] and group.read(selection={"": 1})["e"] == 9


def test_names_and_selections_of_other_kinds_are_refused():
    group = cuzarr.create_group({})
    for name in "uv":
        group.create_array(name, data=np.arange(4), dimension_names=("x",))
    for arguments in (("uv",), (["u"], (1,)), (["u"], "x")):
        with pytest.raises(ArgumentTypeError, match="expected"):
            group.read(*arguments)
    with pytest.raises(ArgumentTypeError, match="expected"):
        group.write({"u": 1}, [1])


def test_an_explanation_covers_the_whole_call(days, device):
    group = cuzarr.open_group(days.store, device=device)
    names = [name for name, array in group.arrays() if array.dtype.kind in "fiu"]
    explained = group.explain(names, {"x": slice(0, 2)})
    told = explained.to_dict()
    assert sorted(name for one in told["groups"] for name in one["arrays"]) == sorted(names)
    results = group.read(names, {"x": slice(0, 2)})
    assert sum(one["result_bytes"] for one in told["groups"]) == sum(result.nbytes for result in results.values())
    assert sum(one["chunks"] for one in told["groups"]) == sum(
        group[name]
        .explain(tuple(slice(0, 2) if dim == "x" else slice(None) for dim in group[name].metadata.dimension_names))
        .to_dict()["chunks"]
        for name in names
    )
    assert all(
        one["batches"] == 1 and one["device"].startswith(device if device == "cpu" else ("cuda", "simt"))
        for one in told["groups"]
    )
    assert "arrays:" in str(explained) and "route" in str(explained)
    with pytest.raises(cuzarr.errors.SelectionInvalidError):
        group.explain(names, {"nowhere": 0})

"""Batches of samples without a framework: rows, windows, crops, weighted draws, and streams of samples of any arrays."""

from __future__ import annotations

import collections
import contextlib
import inspect
import os
import pathlib
import pickle
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from counting import Counting
from stored_cells import stored_matrix, write

import cuzarr
from cuzarr.errors import (
    ArgumentTypeError,
    ArrayNotFoundError,
    BoundsCheckError,
    BudgetExceededError,
    ChunkCorruptError,
    CuzarrError,
    CuzarrRuntimeWarning,
    DTypeMismatchError,
    InvalidArgumentError,
    OutOfMemoryError,
    ShapeMismatchError,
    UnsupportedError,
)
from cuzarr.loader import BatchDataset, CropDataset, SampleStream, SparseRows, Variable, WindowDataset
from cuzarr.loader._crops import CropAxis, CropWeights, draw
from cuzarr.loader._handles import Handles
from cuzarr.loader._weights import parse_weights

RANDOM = np.random.default_rng()
FIELD = RANDOM.normal(0, 100, (37, 4, 6)).astype("f4")
CELLS = stored_matrix(RANDOM, 37, 9)
IMAGE = RANDOM.integers(0, 1 << 16, (48, 41), "u2")


def field(store: Any = None, chunks: tuple[int, ...] = (5, 4, 6)) -> cuzarr.Array:
    store = {} if store is None else store
    made = cuzarr.create_array(store, data=FIELD, chunks=chunks, dimension_names=("time", "y", "x"), overwrite=True)
    return cuzarr.open_array(made.store_path, mode="r")


def image(store: Any = None) -> cuzarr.Array:
    made = cuzarr.create_array({} if store is None else store, data=IMAGE, chunks=(8, 10), dimension_names=("y", "x"))
    return cuzarr.open_array(made.store_path, mode="r")


def on_host(batch: Any) -> np.ndarray:
    return np.asarray(cuzarr.xp.asnumpy(batch))


def is_result_of(device: str, batch: Any) -> bool:
    """Whether a batch is of the kind that arrays of this device read as."""
    return isinstance(batch, np.ndarray) == (device == "cpu") and type(batch) is type(field().with_device(device)[:2])


# ------------------------------------------------------------------------------------------------------------------ data sets


@pytest.mark.parametrize("chunk", [1, 5, 36, 37, 100])
@pytest.mark.parametrize("size", [1, 7, 37, 50])
def test_rows_come_once_in_order_or_shuffled(device: str, chunk: int, size: int) -> None:
    array = field(chunks=(chunk, 4, 6))
    for shuffle in (False, True):
        rows = BatchDataset(array, size, shuffle=shuffle, positions=True)
        seen = []
        for batch, places in rows:
            assert is_result_of(device, batch) and places.dtype == np.int64
            np.testing.assert_array_equal(on_host(batch), FIELD[places[:, 0]])
            seen += places[:, 0].tolist()
        assert sorted(seen) == list(range(37)) and (shuffle or seen == sorted(seen)) and len(rows) == -(-37 // size)


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (1,), (2, 0)])
def test_rows_of_arrays_with_few_elements(device: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    array = cuzarr.open_array(cuzarr.create_array({}, data=values, chunks=(1,) * len(shape)).store_path, mode="r")
    batches = [on_host(batch) for batch in BatchDataset(array, 4, shuffle=True)]
    assert len(batches) == (shape[0] > 0)
    for batch in batches:
        np.testing.assert_array_equal(np.sort(batch, axis=0), values)


@pytest.mark.parametrize("chunks", [(5, 4, 6), (2, 2, 3), (37, 4, 6)])
def test_windows_of_history_and_future_equal_slices(device: str, chunks: tuple[int, ...]) -> None:
    array = field(chunks=chunks)
    season = cuzarr.open_array(
        cuzarr.create_array({}, data=np.arange(37), chunks=(7,), dimension_names=("time",)).store_path, mode="r"
    )
    parts = {
        "past": array,
        "next": Variable(array, window={"time": (1, 3)}),
        "season": Variable(season, at={"time": 0}),
    }
    windows = WindowDataset(parts, {"time": (-3, 1)}, 5, positions=True, memory_limit="64 KiB")
    seen = []
    for batch, places in windows:
        for row, (at,) in enumerate(places.tolist()):
            np.testing.assert_array_equal(on_host(batch["past"])[row], FIELD[at - 3 : at + 1])
            np.testing.assert_array_equal(on_host(batch["next"])[row], FIELD[at + 1 : at + 3])
            assert on_host(batch["season"])[row] == at
            seen.append(at)
    assert sorted(seen) == list(range(3, 35))


@pytest.mark.parametrize("kind", ["windows", "crops"])
def test_boxes_along_two_axes_equal_slices(device: str, kind: str) -> None:
    array = image()
    dataset = (
        WindowDataset(array, {"y": 5, "x": 7}, 16, stride={"y": 4, "x": 3}, positions=True, memory_limit="16 KiB")
        if kind == "windows"
        else CropDataset(array, {"y": 5, "x": 7}, 16, samples=77, positions=True)
    )
    count = 0
    for batch, places in dataset:
        for row, (y, x) in enumerate(places.tolist()):
            np.testing.assert_array_equal(on_host(batch)[row], IMAGE[y : y + 5, x : x + 7])
        count += len(places)
    assert count == dataset.samples == (11 * 12 if kind == "windows" else 77)


@pytest.mark.parametrize(
    "name", ["bool", "i1", "u1", "i2", ">u2", "i8", "u8", "f2", ">f4", "f8", "c8", "bfloat16", "float8_e5m2"]
)
def test_samples_keep_their_element_type(device: str, name: str) -> None:
    dtype = cuzarr.create_array({}, shape=(1,), dtype=name).dtype
    bits = RANDOM.integers(0, 100, (21, 3)).astype("u1")
    values = bits.astype(bool) if name == "bool" else bits.astype(dtype)
    made = cuzarr.create_array({}, data=values, chunks=(4, 3))
    array = cuzarr.open_array(made.store_path, mode="r")
    got = np.concatenate([on_host(batch) for batch in BatchDataset(array, 8)])
    assert got.dtype == dtype.newbyteorder("=")
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize(
    "given",
    [
        {"mean": 250.0, "std": 3.0},
        {"scale": 0.1, "offset": -7.0},
        {"scale": 0.3, "offset": 2.0, "mean": 1.5, "std": 7.0, "dtype": "f8"},
        {"mean": np.arange(4.0)[:, None] * 1.1, "std": np.arange(1.0, 7.0)},
        {"mean": 16777217.25, "std": 2.0},
        {"dtype": "f2"},
        {"std": 3.0, "dtype": "f2"},
    ],
)
@pytest.mark.parametrize("name", ["i2", "i4", "f4", "f8"])
def test_scaled_samples_equal_numpys_step_by_step(device: str, given: dict[str, Any], name: str) -> None:
    values = np.round(FIELD).astype(name)
    array = cuzarr.open_array(cuzarr.create_array({}, data=values, chunks=(5, 4, 6)).store_path, mode="r")
    wanted = np.dtype(given.get("dtype", "f4"))
    got = np.concatenate([on_host(batch) for batch in BatchDataset(Variable(array, **given), 8)])
    assert got.dtype == wanted
    exact = values.astype("f8") * given.get("scale", 1) + given.get("offset", 0)
    exact = (exact - given.get("mean", 0)) / given.get("std", 1)
    unit = np.finfo(wanted).eps if wanted == "f2" else np.finfo("f4").eps if wanted == "f4" else np.finfo("f8").eps
    largest = np.abs(values).max() * given.get("scale", 1) + abs(given.get("offset", 0)) + np.abs(given.get("mean", 0)).max()
    np.testing.assert_allclose(got.astype("f8"), exact, rtol=2 * unit, atol=4 * unit * (1 if wanted == "f2" else largest))


def test_decoded_samples_equal_the_arrays_own_rule(device: str) -> None:
    stored = RANDOM.integers(-120, 120, (30, 5)).astype("i2")
    stored[3, 2] = -99
    for attributes in (
        {"scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -99},
        {"missing_value": -99},
        {"_Unsigned": "true"},
    ):
        array = cuzarr.create_array({}, data=stored, chunks=(4, 5), attributes=attributes)
        array = cuzarr.open_array(array.store_path, mode="r")
        got = np.concatenate([on_host(batch) for batch in BatchDataset(Variable(array, decode=True), 7)])
        np.testing.assert_array_equal(got, on_host(array.decoded().compute()).astype(got.dtype))
    unsigned = np.asarray([[1], [2**64 - 1], [7]], "u8")
    array = cuzarr.create_array({}, data=unsigned, attributes={"_FillValue": 2**64 - 1, "scale_factor": 2.0})
    array = cuzarr.open_array(array.store_path, mode="r")
    got = np.concatenate([on_host(batch) for batch in BatchDataset(Variable(array, decode=True), 2)])
    assert np.isnan(got[:, 0]).tolist() == [False, True, False] and got[[0, 2], 0].tolist() == [2, 14]


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("kind", ["rows", "windows", "crops", "stream"])
def test_faces_give_the_same_batches(framework: str, kind: str) -> None:
    pytest.importorskip(framework)
    face = getattr(cuzarr, framework)
    array = field()
    part = Variable(array, scale=0.3, offset=1.0, mean=3.0, std=7.0)

    def made(home: Any) -> Any:
        if kind == "rows":
            return home.BatchDataset({"a": part, "b": array}, 8, shuffle=True, seed=3, weights=np.arange(37))
        if kind == "windows":
            return home.WindowDataset({"a": part, "b": array}, {"time": 3}, 8, seed=3, weights=np.arange(37))
        if kind == "crops":
            return home.CropDataset({"a": part, "b": array}, {"time": 3}, 8, samples=20, seed=3, weights=[1, 2])
        return home.SampleStream([{"a": (array, slice(at, at + 1 + (at > 20))), "b": (array, at)} for at in range(30)], 8)

    ours, theirs = list(made(cuzarr.loader)), list(made(face))
    assert len(ours) == len(theirs) > 2
    for own, other in zip(ours, theirs, strict=True):
        assert set(own) == set(other) == {"a", "b"}
        for name in own:
            assert isinstance(own[name], list) == isinstance(other[name], list)
            pairs = zip(own[name], other[name], strict=True) if isinstance(own[name], list) else [(own[name], other[name])]
            for one, two in pairs:
                assert type(two).__module__.partition(".")[0] in (framework, f"{framework}lib")
                np.testing.assert_array_equal(one, np.asarray(two))


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_the_samples_and_have_equally_many_batches(drop_last: bool, world_size: int) -> None:
    shares = [
        [places[:, 0].tolist() for _, places in dataset]
        for dataset in (
            BatchDataset(field(), 5, shuffle=True, positions=True, drop_last=drop_last, rank=rank, world_size=world_size)
            for rank in range(world_size)
        )
    ]
    assert len({len(own) for own in shares}) == 1
    seen = sum(sum(shares, []), [])
    assert len(set(seen)) == len(seen) == (37 // (5 * world_size) * 5 * world_size if drop_last else 37)


KINDS = ["rows", "windows", "crops", "sparse", "stream"]


def sets(kind: str, **kwargs: Any) -> Any:
    if kind == "rows":
        return BatchDataset(field(), 8, shuffle=True, seed=3, **kwargs)
    if kind == "windows":
        return WindowDataset(field(), {"time": 3}, 8, seed=3, memory_limit="16 KiB", **kwargs)
    if kind == "crops":
        return CropDataset(field(), {"time": 3}, 8, seed=3, samples=60, **kwargs)
    if kind == "sparse":
        return SparseRows(write({}, "csr", (37, 9), CELLS), 8, shuffle=True, seed=3, dense=True, **kwargs)
    array = field()

    def samples(epoch: int) -> Iterator[dict[str, Any]]:
        return ({"x": (array, int(at))} for at in np.random.default_rng(epoch).permutation(37))

    return SampleStream(samples, 8, **kwargs)


def content(batch: Any) -> bytes:
    return on_host(batch["x"] if isinstance(batch, dict) else batch).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_passes_go_on_from_every_place_of_an_epoch(kind: str) -> None:
    dataset = sets(kind)
    dataset.set_epoch(4)
    states, whole = [dataset.state_dict()], []
    for batch in dataset:
        whole.append(content(batch))
        states.append(dataset.state_dict())
    assert len(whole) == len(states) - 1 >= 4
    for taken, state in enumerate(states):
        again = pickle.loads(pickle.dumps(state))
        other = sets(kind)
        other.load_state_dict(again)
        assert [content(batch) for batch in other] == whole[taken:]
        assert [content(batch) for batch in other] == whole, "the pass after it is whole"
    changed = {"batch_size": 9} if kind == "stream" else {"seed": 9}
    with pytest.raises(InvalidArgumentError, match=f"the state has {next(iter(changed))} 9"):
        sets(kind).load_state_dict({**states[1], **changed})
    epochs = sets(kind)
    epochs.set_epoch(5)
    assert [content(batch) for batch in epochs] != whole


def test_each_chunk_is_read_once_an_epoch_within_the_limit() -> None:
    store = Counting()
    rows = np.arange(40 * 256, dtype="i4")
    dataset = BatchDataset(cuzarr.create_array(store, data=rows, chunks=(256,)), 32, shuffle=True, memory_limit="24 KiB")
    for epoch in range(2):
        dataset.set_epoch(epoch)
        store.reads.clear()
        batches = [batch.tolist() for batch in dataset]
        assert sorted(sum(batches, [])) == rows.tolist() and set(store.reads.values()) == {1} and len(store.reads) == 40
        assert min(len({row // 256 for row in batch}) for batch in batches) >= 5
        report = dataset.report()
        assert report is not None and report["reads_per_chunk"] == 1 and report["peak_bytes"] <= report["memory_limit"]


def test_transforms_get_what_the_caller_would_get(device: str) -> None:
    seen = []

    def transform(batch: Any) -> Any:
        seen.append(is_result_of(device, batch))
        return {"twice": batch * 2}

    batches = list(BatchDataset(field(), 10, transform=transform))
    np.testing.assert_array_equal(np.concatenate([on_host(batch["twice"]) for batch in batches]), FIELD * 2)
    assert seen == [True] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_threads_end_when_the_reader_leaves(kind: str) -> None:
    before = set(threading.enumerate())
    batches = iter(sets(kind))
    next(batches)
    assert "cuzarr-samples" in {thread.name for thread in threading.enumerate()}
    batches.close()
    left = set(threading.enumerate()) - before
    assert [thread.name for thread in left if thread.name.startswith("cuzarr-")] == []


def in_child(work: Callable[[], None]) -> str:
    """What ``work`` raises in a forked child of this process; empty if it ends."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        said = ""
        try:
            work()
        except BaseException as error:  # noqa: BLE001, the parent looks at it
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        if not select.select([pipe], [], [], 60)[0]:
            os.kill(child, signal.SIGKILL)
            said = "the child hangs"
        else:
            said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_iterators_do_not_go_on_in_forked_children(kind: str) -> None:
    begun, fresh = iter(sets(kind)), iter(sets(kind))
    next(begun)
    said = in_child(lambda: collections.deque(begun, maxlen=0))
    assert said.startswith(f"UnsupportedError: this iterator of batches belongs to process {os.getpid()}, and cannot go on")
    assert in_child(begun.close) == "", "an iterator can be left there"
    assert in_child(lambda: next(fresh)) == "", "an iterator that was not begun has no thread yet"
    assert list(begun), "the parent goes on"


@pytest.mark.parametrize("is_function", [True, False])
def test_no_sample_is_asked_for_once_the_reader_left(is_function: bool) -> None:
    array, asked = field(), [0]
    is_asked, may_give = threading.Event(), threading.Event()

    def sample() -> dict[str, Any]:
        asked[0] += 1
        if asked[0] > 8:
            is_asked.set()
            may_give.wait(60)
        return {"x": (array, 0)}

    class Samples(collections.abc.Sequence[Any]):
        def __len__(self) -> int:
            return 800

        def __getitem__(self, number: Any) -> Any:
            return sample()

    stream = SampleStream((lambda epoch: (sample() for _ in range(800))) if is_function else Samples(), 8, 1)
    batches = iter(stream)
    assert len(next(batches)["x"]) == 8
    assert is_asked.wait(60)
    leaving = threading.Thread(target=batches.close)  # type: ignore[attr-defined]
    leaving.start()
    leaving.join(0.05)
    assert leaving.is_alive(), "it waits for the sample"
    may_give.set()
    leaving.join(60)
    assert not leaving.is_alive() and asked[0] == 9


@pytest.mark.parametrize("state", [None, 5, [1]])
def test_a_state_that_is_no_dictionary_is_refused(state: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a dictionary"):
        BatchDataset(cuzarr.ones((4,), store={}), 2).load_state_dict(state)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_come_out_where_batches_are_awaited(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(
        CuzarrRuntimeWarning, match="(?s)not told its rank: every process reads all batches.*rank= and world_size="
    ):
        list(sets(kind))
    for wrong in ({"rank": 0}, {"rank": 2, "world_size": 2}, {"prefetch": 0}):
        with pytest.raises(InvalidArgumentError, match="rank|prefetch"):
            sets(kind, **wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(sets(kind, rank=1, world_size=2))


def test_damaged_chunks_small_limits_and_text_are_refused_by_name(device: str) -> None:
    store: dict[str, Any] = {}
    array = field(store)
    store["c/3/0/0"] = b"damaged"
    with pytest.raises(ChunkCorruptError):
        list(WindowDataset(array, {"time": 3}, 4))
    with pytest.raises(BudgetExceededError, match="memory_limit is 1000 bytes, expected at least 1920"):
        list(WindowDataset(field(), {"time": 3}, 4, memory_limit=1000))
    with pytest.raises(UnsupportedError, match="cannot make samples of elements of"):
        BatchDataset(cuzarr.create_array({}, data=np.asarray(["a"])), 4)


@pytest.mark.parametrize(("framework", "name"), [("torch", "M8[s]"), ("jax", "M8[s]"), ("jax", "float4_e2m1fn")])
def test_faces_refuse_elements_that_their_library_lacks(framework: str, name: str) -> None:
    pytest.importorskip(framework)
    array = cuzarr.create_array({}, shape=(8,), chunks=(4,), dtype=name)
    stream = getattr(cuzarr, framework).SampleStream([{"x": (array, slice(2))}], 1)
    with pytest.raises(DTypeMismatchError, match="sample 0: .*has no elements of"):
        list(stream)
    if name != "M8[s]":
        with pytest.raises(DTypeMismatchError, match="has no elements of"):
            getattr(cuzarr, framework).BatchDataset(array, 2)


def test_options_of_faces_are_those_of_the_data_sets() -> None:
    for kind, options in [
        (BatchDataset, cuzarr.typing.BatchOptions),
        (WindowDataset, cuzarr.typing.WindowOptions),
        (CropDataset, cuzarr.typing.CropOptions),
        (SampleStream, cuzarr.typing.StreamOptions),
        (SparseRows, cuzarr.typing.SparseRowOptions),
    ]:
        keywords = [one.name for one in inspect.signature(kind).parameters.values() if one.kind is one.KEYWORD_ONLY]
        assert sorted(keywords) == sorted(options.__optional_keys__), kind


def test_processes_of_jax_share_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    seen: list[int] = []
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    for rank in range(3):
        monkeypatch.setattr(jax, "process_index", lambda rank=rank: rank)
        for _, places in cuzarr.jax.BatchDataset(field(), 5, shuffle=True, positions=True):
            seen += places[:, 0].tolist()
        stream = cuzarr.jax.SampleStream([{"x": (field(), at)} for at in range(9)], 9)
        assert next(iter(stream))["x"].shape == (3, 4, 6)
    assert sorted(seen) == list(range(37))


@pytest.mark.parametrize("name", ["bool", "u1", ">i2", "f2", ">f4", "c8", "bfloat16", "float8_e4m3fn"])
def test_arrays_of_jax_have_the_elements_and_the_type(name: str) -> None:
    jax = pytest.importorskip("jax")
    dtype = cuzarr.create_array({}, shape=(1,), dtype=name).dtype
    values = RANDOM.integers(0, 2, (5, 4)).astype("u1").astype(dtype)
    for given in (values, values.T, values[::-1, ::2], values[:0], values[2, 1]):
        got = cuzarr.jax.to_array(given)
        assert isinstance(got, jax.Array) and got.shape == given.shape and got.dtype == dtype.newbyteorder("=")
        np.testing.assert_array_equal(np.asarray(got).astype("c8"), np.asarray(given).astype("c8"))
    for wrong in (np.zeros(2, "M8[s]"), np.asarray(["a"]), np.zeros(2, [("a", "i4")])):
        with pytest.raises(DTypeMismatchError, match="JAX has no elements of"):
            cuzarr.jax.to_array(wrong)


# -------------------------------------------------------------------------------------------------------------------- weights


def close(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Whether counts are those of a distribution. By chance they are not in 1 of 10,000 runs, or fewer."""
    counts, expected = counts.reshape(-1), expected.reshape(-1)
    assert counts[expected == 0].sum() == 0
    counts, expected = counts[expected > 0], expected[expected > 0]
    expected = expected / expected.sum() * counts.sum()
    statistic, freedom = ((counts - expected) ** 2 / expected).sum(), len(counts) - 1
    return bool(abs(statistic - freedom) < 5 * (2 * freedom) ** 0.5)


def test_weighted_rows_have_numpys_distribution() -> None:
    weights = np.random.default_rng(5).random(37) ** 3
    weights[[0, 7, 36]] = 0
    dataset = BatchDataset(field(), 100, shuffle=True, weights=weights, samples=30_000, positions=True)
    assert len(dataset) == 300
    places = np.concatenate([places[:, 0] for _, places in dataset])
    counts = np.bincount(places, minlength=37)
    assert counts.sum() == 30_000 and close(counts, weights)
    theirs = np.random.default_rng(6).choice(37, 30_000, p=weights / weights.sum())
    assert close(np.bincount(theirs, minlength=37), weights), "the measure holds for NumPy's draws"
    assert not close(counts, np.where(weights > 0, 1, 0)), "and tells other distributions apart"
    assert (np.diff(places) != 0).mean() > 0.5, "draws of one row do not follow each other"


def test_weighted_windows_have_numpys_distribution_along_two_axes() -> None:
    weights = np.random.default_rng(7).random((48, 41))
    weights[:10] = 0
    dataset = WindowDataset(
        image(), {"y": (-1, 2), "x": 3}, 64, stride={"y": 4, "x": 5}, weights=weights, samples=20_000, positions=True
    )
    counts = np.zeros((48, 41))
    for batch, places in dataset:
        np.add.at(counts, tuple(places.T), 1)
        (y, x), first = places[0], batch[0]
        np.testing.assert_array_equal(first, IMAGE[y - 1 : y + 2, x : x + 3])
    allowed = np.zeros((48, 41))
    allowed[np.ix_(range(1, 47, 4), range(0, 39, 5))] = 1
    assert counts.sum() == 20_000 and close(counts, weights * allowed)


def test_positions_outside_of_the_arrays_have_no_weight() -> None:
    windows = WindowDataset(field(), {"time": (2, 4)}, 8, weights=np.ones(37), samples=500, positions=True)
    places = np.concatenate([places[:, 0] for _, places in windows])
    assert set(places.tolist()) == set(range(34)), "-2 and -1 are positions of windows, but not of weights"


def test_batches_of_one_sample_are_not_repeated_on_other_ranks() -> None:
    array = cuzarr.create_array({}, data=np.arange(7))
    with pytest.raises(InvalidArgumentError, match="7 samples in batches of one.*3 ranks(?s:.)*drop_last"):
        BatchDataset(array, 1, rank=0, world_size=3).__len__()
    for options, expected in (({"drop_last": True}, 6), ({}, 7)):
        seen = [
            row
            for rank in range(3)
            for batch in BatchDataset(array, 1 if options else 2, rank=rank, world_size=3, **options)
            for row in batch.tolist()
        ]
        assert len(set(seen)) == len(seen) == expected


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_each_weighted_draw_is_on_one_rank(world_size: int) -> None:
    weights = np.arange(37) % 5

    def drawn(ranks: int) -> collections.Counter[int]:
        found: collections.Counter[int] = collections.Counter()
        sizes = set()
        for rank in range(ranks):
            dataset = BatchDataset(
                field(), 7, shuffle=True, weights=weights, samples=101, positions=True, rank=rank, world_size=ranks, seed=2
            )
            places = [places[:, 0].tolist() for _, places in dataset]
            sizes.add(len(places))
            found.update(sum(places, []))
        assert len(sizes) == 1
        return found

    assert drawn(world_size) == drawn(1) and sum(drawn(world_size).values()) == 101


def test_weighted_epochs_differ_and_come_again_and_states_tell_weights_apart() -> None:
    def made(weights: Any) -> BatchDataset:
        return BatchDataset(field(), 8, shuffle=True, weights=weights, positions=True, seed=4)

    dataset = made(np.arange(37))
    orders = []
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        orders.append([places[:, 0].tolist() for _, places in dataset])
    assert orders[0] == orders[2] != orders[1] and sum(map(len, orders[0])) == 37
    assert len(set(sum(orders[0], []))) < 30, "an epoch does not see every row"
    state = dataset.state_dict(batches=2)
    again = made(np.arange(37) * 2)
    again.load_state_dict(state)
    assert [places[:, 0].tolist() for _, places in again] == orders[0][2:], "only proportions count"
    with pytest.raises(InvalidArgumentError, match="the state has weights"):
        made(np.arange(37) + 1).load_state_dict(state)


@pytest.mark.parametrize("chunks", [(1, 1), (2, 3)])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (6, 9), (50, 41)])
def test_weighted_crops_have_exact_probabilities(shape: tuple[int, int], chunks: tuple[int, int]) -> None:
    """By enumeration of the shifts, told by the edges of blocks alone."""
    random = np.random.default_rng(8)
    lengths = (7, 6)
    axes = [
        CropAxis(np.asarray([*range(0, 50, 8), 50]), lengths[0], chunks[0]),
        CropAxis(np.asarray([*range(0, 41, 4), 41]), lengths[1], chunks[1]),
    ]
    weights = parse_weights(random.random(shape) * (random.random(shape) > 0.2) + 1e-3)
    own = CropWeights(axes, weights)
    middles = [np.arange(len(axis.weights)) + axis.length // 2 for axis in axes]
    parts = [middle * count // axis.extent for middle, count, axis in zip(middles, shape, axes, strict=True)]
    wanted = weights[np.ix_(*parts)]
    total = np.zeros(wanted.shape)
    for number, share in enumerate(own._shift_shares):
        shifts = np.unravel_index(number, own._shifts)
        inside = [axis.position_weights(axis.edges(int(shift))) for axis, shift in zip(axes, shifts, strict=True)]
        mass = wanted * np.multiply.outer(*inside)
        total += share * mass / mass.sum() if share else 0
    np.testing.assert_allclose(total, wanted / wanted.sum(), rtol=1e-9)


def test_weighted_crops_have_numpys_distribution() -> None:
    axes = [CropAxis(np.asarray([*range(0, 50, 8), 50]), 7, 2), CropAxis(np.asarray([*range(0, 41, 4), 41]), 6, 3)]
    weights = parse_weights([[1, 0, 2], [0, 3, 1]])
    own = CropWeights(axes, weights)
    counts = np.zeros((44, 36))
    for epoch in range(4000):  # of one crop, because crops of an epoch have one shift in common
        _, corners = draw(axes, 1, np.random.default_rng((9, epoch)), own)
        counts[tuple(corners[0])] += 1
    middles = np.ix_((np.arange(44) + 3) * 2 // 50, (np.arange(36) + 3) * 3 // 41)
    assert close(counts.sum(axis=1), weights[middles].sum(axis=1)) and close(counts.sum(axis=0), weights[middles].sum(axis=0))
    assert counts[weights[middles] == 0].sum() == 0


def test_weighted_crops_lie_where_weights_are_and_are_read_once() -> None:
    store = Counting()
    weights = np.zeros((6, 5))
    weights[2, 3] = 1
    crops = CropDataset(image(store), {"y": 4, "x": 4}, 10, samples=50, weights=weights, positions=True)
    for batch, places in crops:
        middles = places + 2
        assert ((middles[:, 0] // 8 == 2) & (middles[:, 1] * 5 // 41 == 3)).all()
        for row, (y, x) in enumerate(places.tolist()):
            np.testing.assert_array_equal(batch[row], IMAGE[y : y + 4, x : x + 4])
    assert set(store.reads.values()) == {1}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: BatchDataset(field(), 4, weights=np.ones(37)), InvalidArgumentError, "shuffle is False"),
        (lambda: BatchDataset(field(), 4, shuffle=True, weights=np.ones(36)), ShapeMismatchError, r"shape \(36,\), expected \(37,\)"),
        (lambda: BatchDataset(field(), 4, shuffle=True, weights=-np.ones(37)), InvalidArgumentError, "weights has -1"),
        (lambda: BatchDataset(field(), 4, shuffle=True, weights=[np.nan] * 37), InvalidArgumentError, "weights has nan"),
        (lambda: BatchDataset(field(), 4, shuffle=True, weights=np.zeros(37)), InvalidArgumentError, "all weights are 0"),
        (lambda: BatchDataset(field(), 4, shuffle=True, weights=["a"] * 37), InvalidArgumentError, "weights"),
        (lambda: BatchDataset(field(), 4, shuffle=True, samples=3), InvalidArgumentError, "samples is given without weights"),
        (lambda: BatchDataset(field(), 4, shuffle=True, weights=np.ones(37), samples=0), InvalidArgumentError, "samples is 0"),
        (lambda: WindowDataset(field(), {"time": 3}, 4, weights=np.ones(35)), ShapeMismatchError, "expected"),
        (lambda: CropDataset(field(), {"time": 3}, 4, weights=np.ones((2, 2))), ShapeMismatchError, "2 dimensions for 1 sample"),
        (lambda: CropDataset(field(), {"time": 30}, 4, weights=[1, 0, 0, 0, 0]), InvalidArgumentError, "weights are 0 wherever"),
        (lambda: CropDataset(field(), {"time": 3}, 4, weights=[]), InvalidArgumentError, "all weights are 0"),
    ],
)  # fmt: skip
def test_wrong_weights_are_named(make: Callable[[], Any], error: type[CuzarrError], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_weights_may_be_huge_tiny_or_on_a_device(device: str) -> None:
    values = np.ones(37)
    for weights in (values * 1e308, values * 5e-324, cuzarr.array(values, store={}).with_device(device)[...]):
        assert len(list(BatchDataset(field(), 37, shuffle=True, weights=weights))) == 1


# ------------------------------------------------------------------------------------------------------------ streams of samples


def volumes(count: int, store_of: Callable[[int], Any] = lambda number: {}) -> tuple[list[np.ndarray], list[cuzarr.Array]]:
    """Volumes of unequal shapes, chunks, codecs and stores, of one element type."""
    truths, arrays = [], []
    for number in range(count):
        truths.append(RANDOM.normal(0, 1, (9 + number, 12 + number % 3, 10)).astype("f4"))
        codec = [cuzarr.codecs.ZstdCodec(), cuzarr.codecs.BloscCodec(cname="zstd"), None][number % 3]
        store = store_of(number)
        made = cuzarr.create_array(store, data=truths[-1], chunks=(4, 5, 3 + number % 2), compressors=codec)
        arrays.append(cuzarr.open_array(made.store_path, mode="r"))
    return truths, arrays


def crops(truths: list[np.ndarray], count: int, shape: tuple[int, int, int] = (4, 5, 6)) -> list[tuple[int, tuple[slice, ...]]]:
    found = []
    for _ in range(count):
        number = int(RANDOM.integers(len(truths)))
        starts = [int(RANDOM.integers(extent - own + 1)) for extent, own in zip(truths[number].shape, shape, strict=True)]
        found.append((number, tuple(slice(at, at + own) for at, own in zip(starts, shape, strict=True))))
    return found


def test_streams_of_crops_of_many_stores_equal_slices(device: str, tmp_path: pathlib.Path) -> None:
    truths, arrays = volumes(7, lambda number: tmp_path / str(number) if number % 2 else {})
    wanted = crops(truths, 53)
    samples = [
        {"crop": (str(tmp_path / str(number)) if number % 2 else arrays[number], box), "row": (arrays[number], (0, 1))}
        for number, box in wanted
    ]
    stream = SampleStream(samples, 8, 3)
    at = 0
    for batch in stream:
        assert is_result_of(device, batch["crop"]) and list(batch) == ["crop", "row"]
        for crop, row in zip(on_host(batch["crop"]), on_host(batch["row"]), strict=True):
            number, box = wanted[at]
            np.testing.assert_array_equal(crop, truths[number][box])
            np.testing.assert_array_equal(row, truths[number][0, 1])
            at += 1
    assert at == 53 and len(stream) == 7
    report = stream.report()
    assert (
        report is not None and report["samples"] == 53 and report["read_bytes"] == 53 * (120 + 10) * 4 and report["skipped"] == 0
    )


def some_selection(shape: tuple[int, ...]) -> tuple[Any, ...]:
    found: list[Any] = []
    for extent in shape:
        low, high = sorted(RANDOM.integers(0, extent + 1, 2).tolist())
        kind = RANDOM.integers(4) if extent else 3
        found.append([int(RANDOM.integers(-extent, extent or 1)), slice(low, high), slice(low, None, 3), slice(None)][kind])
    cut = int(RANDOM.integers(len(shape) + 1))
    return (*found[:cut], ...) if RANDOM.integers(2) else tuple(found)


@pytest.mark.parametrize("turn", range(4))
def test_random_samples_of_random_arrays_equal_numpys(device: str, turn: int) -> None:
    truths, arrays = [], []
    for _ in range(5):
        shape = tuple(RANDOM.integers(0, 9, RANDOM.integers(1, 4)).tolist())
        truths.append(RANDOM.integers(0, 100, shape).astype(RANDOM.choice(["u1", ">i4", "f8", "c8", "?"])))
        chunks = tuple(RANDOM.integers(1, 5, len(shape)).tolist())
        made = cuzarr.create_array({}, data=truths[-1], chunks=chunks, zarr_format=int(RANDOM.integers(2, 4)))
        arrays.append(cuzarr.open_array(made.store_path, mode="r"))
    chosen = [{name: int(RANDOM.integers(5)) for name in "ab"} for _ in range(40)]
    boxes = [{name: some_selection(truths[one].shape) for name, one in each.items()} for each in chosen]
    samples = [{name: (arrays[one], box[name]) for name, one in each.items()} for each, box in zip(chosen, boxes, strict=True)]
    size = int(RANDOM.integers(1, 7))
    at = 0
    for batch in SampleStream(samples, size, int(RANDOM.integers(1, 4))):
        for name in "ab":
            wanted = [truths[each[name]][box[name]] for each, box in zip(chosen, boxes, strict=True)][at : at + size]
            forms = {(one.shape, one.dtype.newbyteorder("=")) for one in wanted}
            assert isinstance(batch[name], list) == (len(forms) > 1), "parts are stacked where they can be"
            for one, truth in zip(batch[name], wanted, strict=True):
                np.testing.assert_array_equal(on_host(one), truth)
                assert on_host(one).dtype == truth.dtype.newbyteorder("=")
        at += size
    assert at >= 40


def test_unequal_parts_come_as_lists_and_equal_ones_stacked(device: str) -> None:
    truths, arrays = volumes(4)
    other = cuzarr.open_array(cuzarr.create_array({}, data=np.arange(6, dtype="i2")).store_path, mode="r")
    stream = SampleStream(
        [
            {"whole": (arrays[0], ...), "scalar": (other, 4), "type": (other, slice(2)), "none": (other, slice(0))},
            {
                "whole": (arrays[1], ...),
                "scalar": (other, -1),
                "type": (arrays[0], (0, 0, slice(2))),
                "none": (other, slice(3, 3)),
            },
        ],
        2,
    )
    (batch,) = stream
    assert [type(batch[name]) is list for name in ("whole", "scalar", "type", "none")] == [True, False, True, False]
    for part, truth in zip(batch["whole"], truths, strict=False):
        np.testing.assert_array_equal(on_host(part), truth)
    assert on_host(batch["scalar"]).tolist() == [4, 5] and on_host(batch["none"]).shape == (2, 0)
    assert [on_host(part).dtype.name for part in batch["type"]] == ["int16", "float32"]


@pytest.mark.parametrize("dtype", [">i4", ">f8", ">M8[s]", ">U2"])
def test_parts_have_the_machines_byte_order_stacked_and_listed(dtype: str) -> None:
    values = np.arange(24).reshape(6, 4).astype(dtype)
    array = cuzarr.create_array({}, data=values, chunks=(2, 2), zarr_format=2)
    (batch,) = SampleStream([{"equal": (array, at), "other": (array, slice(at, 3))} for at in range(2)], 2)
    assert batch["equal"].dtype.isnative and all(part.dtype.isnative for part in batch["other"])
    np.testing.assert_array_equal(batch["equal"], values[:2])
    for at, part in enumerate(batch["other"]):
        np.testing.assert_array_equal(part, values[at:3])


def test_text_and_dates_are_parts_too() -> None:
    names = cuzarr.create_array({}, data=np.asarray(["ant", "bee", "cow"]), chunks=(2,))
    days = cuzarr.create_array({}, data=np.asarray(["2020-01-01", "2021-01-01", "2022-01-01"], "M8[D]"))
    (batch,) = SampleStream([{"name": (names, slice(at, at + 1)), "day": (days, at)} for at in range(3)], 3)
    assert [str(one[0]) for one in batch["name"]] == ["ant", "bee", "cow"]
    assert batch["day"].dtype == "M8[D]" and batch["day"].astype("M8[Y]").astype(int).tolist() == [50, 51, 52]


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 11, 12, 13, 24])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_sample_k_comes_on_rank_k_modulo_ranks(count: int, world_size: int, drop_last: bool, is_function: bool) -> None:
    array = cuzarr.create_array({}, data=np.arange(24), chunks=(5,))
    samples = [{"x": (array, at)} for at in range(count)]
    given = (lambda epoch: iter(samples)) if is_function else samples
    shares = []
    for rank in range(world_size):
        stream = SampleStream(given, 4, rank=rank, world_size=world_size, drop_last=drop_last)
        shares.append([batch["x"].tolist() for batch in stream])
        if not is_function:
            assert len(stream) == len(shares[-1])
    assert len({tuple(map(len, own)) for own in shares}) == 1, "ranks are in step, in number and size of batches"
    for rank, own in enumerate(shares):
        wanted = list(range(rank, count // world_size * world_size, world_size))
        assert sum(own, []) == (wanted[: len(wanted) // 4 * 4] if drop_last else wanted)


def test_resuming_reads_nothing_of_what_was_taken() -> None:
    store = Counting()
    array = cuzarr.open_array(cuzarr.create_array(store, data=np.arange(40), chunks=(1,)).store_path, mode="r")
    asked: list[int] = []

    class Lazily(collections.abc.Sequence[Any]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, number: Any) -> Any:
            asked.append(number)
            return {"x": (array, number)}

    for samples in (Lazily(), lambda epoch: ({"x": (array, at)} for at in range(40))):
        stream = SampleStream(samples, 4, rank=1, world_size=2)
        state = stream.state_dict(batches=3)
        store.reads.clear()
        asked.clear()
        again = SampleStream(samples, 4, rank=1, world_size=2)
        again.load_state_dict(state)
        assert [batch["x"].tolist() for batch in again] == [[25, 27, 29, 31], [33, 35, 37, 39]]
        assert set(store.reads) == {f"c/{at}" for at in range(25, 40, 2)} and all(number >= 25 for number in asked)


def test_chunks_that_several_samples_of_a_batch_need_are_decoded_once(tmp_path: pathlib.Path) -> None:
    store = Counting()
    made = cuzarr.create_array(store, name="a/b", data=np.arange(64.0).reshape(8, 8), chunks=(4, 4))

    def opened() -> cuzarr.Array:
        return cuzarr.open_array(store, path="a/b", mode="r")

    for give in (lambda: made, opened, lambda: made.store_path):
        store.reads.clear()
        samples = [{"x": (give(), np.s_[at % 4 : at % 4 + 4, at % 5 : at % 5 + 4])} for at in range(16)]
        (batch,) = SampleStream(samples, 16)
        assert len(store.reads) == 4 and set(store.reads.values()) == {1}
        assert batch["x"].shape == (16, 4, 4)


def test_arrays_have_one_handle_and_other_arrays_another(tmp_path: pathlib.Path) -> None:
    stores: list[Any] = [{}, {}]
    arrays = [cuzarr.create_array(store, data=np.full(3, number)) for number, store in enumerate(stores)]
    cuzarr.create_array(tmp_path / "x", data=np.arange(3))
    handles = Handles()
    assert handles.array(arrays[0]) is handles.array(cuzarr.open_array(stores[0], mode="r+")) is handles.array(arrays[0])
    assert handles.array(arrays[1]) is not handles.array(arrays[0])
    assert handles.array(str(tmp_path / "x")) is handles.array(tmp_path / "x") is handles.array(cuzarr.open_array(tmp_path / "x"))
    assert [int(handles.array(store)[0]) for store in stores] == [0, 1]


def test_a_bad_sample_is_an_error_that_names_it(device: str, tmp_path: pathlib.Path) -> None:
    store: dict[str, Any] = {}
    array = field(store)
    store["c/3/0/0"] = b"damaged"
    good = [{"x": (array, slice(at, at + 2))} for at in range(6)]
    for bad, error, message in [
        ({"x": (array, slice(16, 18))}, ChunkCorruptError, "c/3/0/0"),
        ({"x": (array, (0, 9))}, BoundsCheckError, "9"),
        ({"x": (str(tmp_path / "none"), ...)}, ArrayNotFoundError, "none"),
        ({"x": (np.arange(3), ...)}, ArgumentTypeError, "ndarray, expected an array of a store"),
        ({"x": array}, ArgumentTypeError, "pairs of an array and a selection"),
        ({}, ArgumentTypeError, "pairs of an array and a selection"),
        ({"y": (array, 0)}, InvalidArgumentError, r"parts named \['y'\], the first sample has \['x'\]"),
    ]:
        stream = iter(SampleStream([*good, bad, *good], 4))
        np.testing.assert_array_equal(on_host(next(stream)["x"])[3], FIELD[3:5])
        with pytest.raises(error, match=f"(?s)^sample 6: .*{message}"):
            next(stream)


@pytest.mark.parametrize("world_size", [1, 2])
def test_bad_samples_are_left_out_and_counted_and_ranks_stay_in_step(
    device: str, world_size: int, tmp_path: pathlib.Path
) -> None:
    store: dict[str, Any] = {}
    array = field(store)
    store["c/3/0/0"] = b"damaged"
    bad = {1, 4, 5, 6, 7, 13}
    kinds = [(array, 16), (array, 99), (str(tmp_path / "none"), 0)]
    samples = [{"x": kinds[at % 3] if at in bad else (array, at % 5)} for at in range(18)]
    sizes, skipped = [], 0
    for rank in range(world_size):
        stream = SampleStream(samples, 4 // world_size, skip_bad=True, rank=rank, world_size=world_size)
        with pytest.warns(CuzarrRuntimeWarning, match="sample [14] is left out, and so are others that cannot be read") as warned:
            batches = [on_host(batch["x"]) if len(batch["x"]) else [] for batch in stream]
        assert len([one for one in warned if one.category is CuzarrRuntimeWarning]) == 1
        own = range(rank, 18, world_size)
        parts = [own[at : at + 4 // world_size] for at in range(0, len(own), 4 // world_size)]
        for batch, numbers in zip(batches, parts, strict=True):
            kept = [number for number in numbers if number not in bad]
            assert len(batch) == len(kept)
            for row, number in zip(batch, kept, strict=True):
                np.testing.assert_array_equal(row, FIELD[number % 5])
        report = stream.report()
        assert report is not None
        sizes.append(len(batches))
        skipped += int(report["skipped"])
    assert len(set(sizes)) == 1 and skipped == len(bad)


def test_batches_of_bad_samples_alone_are_empty() -> None:
    array = field()
    stream = SampleStream([{"x": (array, at), "y": (array, 0)} for at in (1, 99, 98)], 1, skip_bad=True)
    with pytest.warns(CuzarrRuntimeWarning, match="sample 1 is left out"):
        batches = list(stream)
    assert batches[1:] == [{"x": [], "y": []}] * 2 and len(batches[0]["x"]) == 1


def test_failures_that_are_no_samples_are_errors_although_bad_samples_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> Any:
        raise OutOfMemoryError("the device is full")

    monkeypatch.setattr("cuzarr.loader._stream.read_parts", full)
    with pytest.raises(OutOfMemoryError, match="the device is full"):
        list(SampleStream([{"x": (field(), 0)}], 1, skip_bad=True))


class Failing(list[Any]):
    """Samples of which all but the first cannot be had."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: Any) -> Any:
        if number:
            raise ZeroDivisionError("mine")
        return super().__getitem__(number)


def test_errors_of_the_callers_own_code_come_out_as_they_are() -> None:
    array = field()

    def samples(epoch: int) -> Iterator[Any]:
        yield {"x": (array, 0)}
        raise KeyError("mine")

    stream = iter(SampleStream(samples, 1, skip_bad=True))
    with pytest.raises(KeyError, match="mine"):
        list(stream)

    class Broken(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise ZeroDivisionError("mine")

        __getitem__ = get

    for given in ([{"x": (array, 0)}, {"x": (Broken(), 0)}], Failing([{"x": (array, 0)}])):
        stream = iter(SampleStream(given, 1))
        assert next(stream)["x"].shape == (1, 4, 6), "batches before the failure come first"
        with pytest.raises(Exception, match="mine"):
            next(stream)
    for wrong, message in [(lambda epoch: 3, "int, expected an iterable"), (lambda epoch: {"x": (array, 0)}, "dict")]:
        with pytest.raises(ArgumentTypeError, match=message):
            list(SampleStream(wrong, 1))
    for wrong in (3, "abc", iter([])):
        with pytest.raises(ArgumentTypeError, match="expected a sequence or a function"):
            SampleStream(wrong, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has no length"):
        len(SampleStream(samples, 1))


def test_arrays_of_several_devices_are_refused_by_the_samples_number(gpu: str) -> None:
    array = field()
    with pytest.raises(InvalidArgumentError, match="sample 1: the array reads to cpu"):
        list(SampleStream([{"x": (array, 0)}, {"x": (array.with_device("cpu"), 0)}], 2))


def test_at_most_prefetch_batches_are_made_ahead() -> None:
    array = cuzarr.create_array({}, data=np.arange(400), chunks=(7,))
    asked: list[int] = []

    def samples(epoch: int) -> Iterator[Any]:
        for at in range(400):
            asked.append(at)
            yield {"x": (array, at)}

    batches = iter(SampleStream(samples, 4, 3))
    next(batches)
    count = -1
    while count != len(asked):  # until the thread has nothing more to do
        count = len(asked)
        time.sleep(0.05)
    # Those that are ready, one that waits for its place, and those that are read at once.
    assert 4 * 3 < len(asked) <= 4 * (1 + 3 + 1 + 2)
    batches.close()  # type: ignore[attr-defined]


def test_streams_can_be_pickled_and_go_on_as_they_were() -> None:
    stream = SampleStream([{"x": (field(), at)} for at in range(9)], 2, rank=0, world_size=1)
    next(iter(stream))
    again = pickle.loads(pickle.dumps(stream))
    assert [content(batch) for batch in again] == [content(batch) for batch in stream]


# ------------------------------------------------------------------------------------------------------------ workers of PyTorch


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (2, False), (2, True), (3, False)])
def test_streams_go_on_after_every_batch_of_stateful_loaders(tmp_path: pathlib.Path, workers: int, persistent: bool) -> None:
    pytest.importorskip("torch")
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    cuzarr.create_array(tmp_path / "a", data=np.arange(37), chunks=(5,))
    samples = [{"x": (str(tmp_path / "a"), at)} for at in range(37)]

    def loader() -> Any:
        return torchdata.StatefulDataLoader(
            cuzarr.torch.SampleStream(samples, 4),
            batch_size=None,
            num_workers=workers,
            persistent_workers=persistent,
            multiprocessing_context="fork" if workers else None,
        )

    own, whole = loader(), []
    states = []
    for batch in own:
        whole += batch["x"].tolist()
        states.append(own.state_dict())
    assert whole == list(range(37)), "workers take batches in turn, so the order is that of one process"
    for taken, state in list(enumerate(states, 1))[:-1]:
        again = loader()
        again.load_state_dict(state)
        assert sum((batch["x"].tolist() for batch in again), []) == whole[4 * taken :]


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_of_loaders_go_on_from_the_number_of_batches(workers: int) -> None:
    torch = pytest.importorskip("torch")
    array = cuzarr.create_array({}, data=np.arange(37), chunks=(5,))
    samples = [{"x": (array, at)} for at in range(37)]
    for taken in range(10):
        stream = cuzarr.torch.SampleStream(samples, 4)
        loader = torch.utils.data.DataLoader(stream, batch_size=None, num_workers=workers)
        if workers:
            next(iter(loader))
        stream.load_state_dict(stream.state_dict(batches=taken))
        assert sum((batch["x"].tolist() for batch in loader), []) == list(range(4 * taken, 37))
    with pytest.raises(InvalidArgumentError, match="batch_size=None"):
        next(iter(torch.utils.data.DataLoader(cuzarr.torch.SampleStream(samples, 4))))


@pytest.mark.parametrize("kind", ["rows", "windows", "crops", "stream"])
def test_tensors_are_filled_as_on_a_gpu(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way by which tensors on a GPU are filled and scaled, here with tensors in host memory."""
    pytest.importorskip("torch")
    from cuzarr.torch import _datasets, _library

    class OnTensors(_library.TensorLibrary):
        def __init__(self, device: str, pin_memory: bool) -> None:
            super().__init__(device, pin_memory)
            self.is_on_host = False

        def working(self) -> Any:
            return contextlib.nullcontext()

    unsigned = RANDOM.integers(0, 1 << 16, (37, 3)).astype("u2")
    unsigned[5] = 65535
    attributes = {"_FillValue": 65535, "scale_factor": 0.5}
    packed = cuzarr.create_array({}, data=unsigned, chunks=(4, 3), attributes=attributes, dimension_names=("time", "z"))
    array = field(chunks=(5, 2, 6))
    parts = {
        "plain": array,
        "scaled": Variable(array, scale=0.3, offset=1.0, mean=np.arange(6.0), std=7.0, at={"time": 0}),
        "half": Variable(array, dtype="f2"),
        "decoded": Variable(packed, decode=True),
    }

    def made() -> list[Any]:
        torch = cuzarr.torch
        if kind == "rows":
            rows = {
                name: Variable(part.source, dtype=part.dtype) if isinstance(part, Variable) else part
                for name, part in parts.items()
            }
            return list(torch.BatchDataset({**rows, "decoded": Variable(packed, decode=True)}, 8, shuffle=True))
        if kind == "windows":
            return list(torch.WindowDataset(parts, {"time": 3}, 8, memory_limit="64 KiB"))
        if kind == "crops":
            return list(torch.CropDataset(parts, {"time": 3}, 8, samples=20))
        boxes = [{"equal": (array, np.s_[at, ::2]), "unequal": (array, slice(at % 4 + 1))} for at in range(20)]
        return list(torch.SampleStream(boxes, 6))

    usual = made()
    monkeypatch.setattr(_datasets, "TensorLibrary", OnTensors)
    for one, other in zip(usual, made(), strict=True):
        assert list(one) == list(other)
        for name in one:
            for left, right in zip(one[name], other[name], strict=True):
                assert left.dtype == right.dtype
                np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_streams_give_text_as_lists(zarr_format: Any) -> None:
    text = cuzarr.create_array({}, data=np.array(["a", "bb", ""], np.dtypes.StringDType()), zarr_format=zarr_format)
    samples = [{"text": (text, number), "part": (text, slice(number))} for number in (1, 0, 2)]
    batches = list(SampleStream(samples, 2))
    assert [[str(one) for one in batch["text"]] for batch in batches] == [["bb", "a"], [""]]
    assert [[one.tolist() for one in batch["part"]] for batch in batches] == [[["a"], []], [["a", "bb"]]]


def test_streams_take_paths_of_numpy(tmp_path: pathlib.Path) -> None:
    for name in "ab":
        cuzarr.save_array(tmp_path / name, np.arange(3.0))
    paths = np.array([str(tmp_path / name) for name in "ab"])
    (batch,) = SampleStream([{"x": (path, 1)} for path in paths], 2)
    assert on_host(batch["x"]).tolist() == [1, 1]


@pytest.mark.parametrize("prefetch", [1, 2])
def test_a_batch_of_bad_samples_has_all_parts(prefetch: int) -> None:
    array = cuzarr.create_array({}, data=np.arange(3.0))
    with pytest.warns(CuzarrRuntimeWarning):
        batches = list(SampleStream([{"x": (array, 9)}, {"x": (array, 0)}], 1, prefetch, skip_bad=True))
    assert [len(batch["x"]) for batch in batches] == [0, 1]


@pytest.mark.parametrize("weights", [np.ones(16) * 1j, np.ones(16, "M8[s]"), ["a"] * 16])
def test_weights_are_real_numbers(weights: Any) -> None:
    array = cuzarr.create_array({}, data=np.arange(16.0), chunks=(4,))
    with pytest.raises(InvalidArgumentError, match="expected real numbers"):
        BatchDataset(array, 4, shuffle=True, weights=weights)

"""Rows, windows and crops of arrays as PyTorch's data sets."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import numpy as np
import pytest
from counting import Counting

import cuzarr

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from cuzarr.torch import BatchDataset, CropDataset, Variable, WindowDataset  # noqa: E402

FIELD = np.arange(60 * 4 * 6, dtype="f4").reshape(60, 4, 6)
IMAGE = np.arange(48 * 40, dtype="u2").reshape(48, 40)


def field(store: Any = None, chunks: tuple[int, ...] = (5, 4, 6), **kwargs: Any) -> cuzarr.Array:
    store = {} if store is None else store
    return cuzarr.create_array(store, data=FIELD, chunks=chunks, dimension_names=("time", "y", "x"), **kwargs)


def image(store: Any = None) -> cuzarr.Array:
    return cuzarr.create_array({} if store is None else store, data=IMAGE, chunks=(8, 8), dimension_names=("y", "x"))


def times(loader: Any) -> list[int]:
    return [int(one) for _, places in loader for one in places[:, 0]]


@pytest.mark.parametrize("limit", ["16 KiB", "1 MiB"])
def test_windows_have_their_elements_and_each_chunk_is_read_once(limit: str) -> None:
    store = Counting()
    past = field(store)
    future = Variable(past, window={"time": (1, 3)})
    windows = WindowDataset({"past": past, "future": future}, {"time": (-3, 1)}, 7, memory_limit=limit, positions=True)
    for epoch in range(2):
        windows.set_epoch(epoch)
        store.reads.clear()
        seen = []
        for batch, places in windows:
            for row, time in enumerate(places[:, 0].tolist()):
                np.testing.assert_array_equal(batch["past"][row], FIELD[time - 3 : time + 1])
                np.testing.assert_array_equal(batch["future"][row], FIELD[time + 1 : time + 3])
                seen.append(time)
        assert sorted(seen) == list(range(3, 58)) != seen
        assert store.reads and set(store.reads.values()) == {1}
        report = windows.report()
        assert report is not None and (report["chunks"], report["chunk_reads"], report["samples"]) == (12, 12, 55)
        assert report["peak_bytes"] <= report["memory_limit"]


def test_orders_come_from_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        windows = WindowDataset(field(), {"time": 2}, 8, seed=seed, positions=True)
        windows.set_epoch(epoch)
        return times(windows)

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(*one)) for one in ((1, 0), (1, 1), (2, 0))}) == 3
    assert times(WindowDataset(field(), {"time": 2}, 8, shuffle=False, positions=True)) == list(range(59))


def test_windows_along_two_axes_come_once_each() -> None:
    windows = WindowDataset(image(), {"y": 5, "x": 7}, 32, stride={"x": 3}, memory_limit="8 KiB", positions=True)
    seen = []
    for batch, places in windows:
        for row, (y, x) in enumerate(places.tolist()):
            np.testing.assert_array_equal(batch[row], IMAGE[y : y + 5, x : x + 7])
            seen.append((y, x))
    assert sorted(seen) == [(y, x) for y in range(44) for x in range(0, 34, 3)]


def test_within_keeps_validation_apart() -> None:
    train = WindowDataset(field(), {"time": 4}, 8, within={"time": (0, 40)}, positions=True)
    valid = WindowDataset(field(), {"time": 4}, 8, within={"time": (40, 60)}, positions=True)
    assert max(times(train)) == 36 and min(times(valid)) == 40


def test_labels_static_fields_scaling_and_types() -> None:
    labels = cuzarr.create_array({}, data=np.arange(60), chunks=(7,), dimension_names=("time",))
    mask = cuzarr.create_array({}, data=np.ones((4, 6), "?"), dimension_names=("y", "x"))
    packed = np.arange(60, dtype="i2").reshape(60, 1, 1).repeat(4, 1).repeat(6, 2)
    attributes = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": 7}
    stored = cuzarr.create_array({}, data=packed, chunks=(4, 4, 6), dimension_names=("time", "y", "x"), attributes=attributes)
    parts = (
        Variable(field(), mean=np.arange(6.0), std=2.0, dtype=torch.float16),
        Variable(labels, at={"time": 1}),
        mask,
        Variable(stored, decode=True),
    )
    for (values, label, ones, decoded), places in WindowDataset(parts, {"time": 2}, 4, positions=True):
        for row, time in enumerate(places[:, 0].tolist()):
            expected = ((FIELD[time : time + 2] - np.arange(6.0, dtype="f4")) / 2).astype("f2")
            np.testing.assert_allclose(values[row], expected, rtol=2e-3)
            assert label[row] == time + 1
            truth = [np.nan if one == 7 else one * 0.5 + 10 for one in (time, time + 1)]
            np.testing.assert_array_equal(decoded[row, :, 0, 0], np.asarray(truth, "f4"))
        assert values.dtype == torch.float16 and label.dtype == torch.int64 and ones.dtype == torch.bool
        assert ones.shape[1:] == (4, 6) and bool(ones.all())


def test_samples_in_other_types() -> None:
    pytest.importorskip("ml_dtypes")
    for dtype in (torch.bfloat16, torch.float64, torch.int16):
        for batch, places in WindowDataset(Variable(field(), dtype=dtype), {"time": 2}, 16, positions=True):
            expected = torch.stack([torch.from_numpy(FIELD[time : time + 2]) for time in places[:, 0].tolist()]).to(dtype)
            assert batch.dtype == dtype and torch.equal(batch, expected)


def test_crops_lie_inside_and_chunks_are_read_once_an_epoch() -> None:
    store = Counting()
    crops = CropDataset(image(store), {"y": 6, "x": 7}, 5, samples=90, memory_limit="16 KiB", positions=True)
    corners = []
    for epoch in range(6):
        crops.set_epoch(epoch)
        store.reads.clear()
        for batch, places in crops:
            for row, (y, x) in enumerate(places.tolist()):
                np.testing.assert_array_equal(batch[row], IMAGE[y : y + 6, x : x + 7])
                corners.append((y, x))
        assert set(store.reads.values()) == {1}
    assert len(corners) == 6 * 90 and len(set(corners)) > 300
    # The blocks move, so crops cross every border of chunks.
    assert {y // 8 for y, _ in corners if y % 8 > 2} == set(range(5))


@pytest.mark.parametrize("mean", [5e5, 500_000.013, 3.25])
def test_elements_near_a_large_mean_keep_their_digits(mean: float) -> None:
    near = (mean + np.linspace(-2, 2, 40)).astype("f4")
    whole = np.round(mean + np.linspace(-9, 9, 40)).astype("i8") + 2**40
    floats, integers = (cuzarr.create_array({}, data=one, chunks=(10,)) for one in (near, whole))
    parts = (
        Variable(floats, mean=mean, std=0.5),
        Variable(integers, mean=float(2**40), std=2.0),
        Variable(floats, scale=3.0, offset=1.0, mean=3 * mean + 1, std=0.5),
    )
    for (first, second, third), places in BatchDataset(parts, 8, positions=True):
        rows = places[:, 0].numpy()
        wide = near[rows].astype("f8")
        np.testing.assert_allclose(first, (wide - mean) / 0.5, rtol=3e-7, atol=1e-12)
        np.testing.assert_allclose(second, (whole[rows] - 2**40) / 2.0, rtol=1e-7)
        np.testing.assert_allclose(third, (wide * 3 + 1 - (3 * mean + 1)) / 0.5, rtol=3e-7, atol=1e-7)
        assert first.dtype == second.dtype == third.dtype == torch.float32


def test_elements_that_equal_the_mean_become_zero() -> None:
    for value in (0.1, 273.15, 123456.7):
        stored = cuzarr.create_array({}, data=np.full(8, value, "f4"))
        (batch,) = BatchDataset(Variable(stored, mean=np.float32(value), std=0.3), 8)
        assert (batch == 0).all()


def test_means_broadcast_to_samples_without_their_dropped_dimension() -> None:
    data = np.arange(3 * 10 * 2, dtype="f4").reshape(3, 10, 2)
    stored = cuzarr.create_array({}, data=data, chunks=(3, 4, 2), dimension_names=("channel", "time", "x"))
    means = np.arange(3.0)[:, None]
    for batch, places in WindowDataset(Variable(stored, at={"time": 0}, mean=means), {"time": 1}, 4, positions=True):
        for row, (time,) in enumerate(places.tolist()):
            np.testing.assert_array_equal(batch[row], data[:, time] - means)


def test_transform_gets_batches_and_makes_other_ones() -> None:
    flipped = CropDataset({"a": image()}, {"y": 4, "x": 4}, 8, transform=lambda batch: batch["a"].float().flip(-1))
    assert next(iter(flipped)).dtype == torch.float32


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_workers_share_an_epoch_and_hear_of_the_next(tmp_path: pathlib.Path, start: str) -> None:
    field(tmp_path / "a")
    windows = WindowDataset(tmp_path / "a", {"time": 3}, 4, positions=True, memory_limit="1 MiB")
    loader = DataLoader(
        windows, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context=start, prefetch_factor=1
    )
    orders = []
    for epoch in (0, 1):
        windows.set_epoch(epoch)
        orders.append(times(loader))
        assert sorted(orders[-1]) == list(range(58))
    assert orders[0] != orders[1]


def test_ranks_share_an_epoch() -> None:
    shares = [WindowDataset(field(), {"time": 3}, 4, positions=True, rank=rank, world_size=3) for rank in range(3)]
    assert {len(share) for share in shares} == {len(list(share)) for share in shares} == {5}
    assert sorted(time for share in shares for time in times(share)) == list(range(58))
    kept = [WindowDataset(field(), {"time": 3}, 4, drop_last=True, rank=rank, world_size=3) for rank in range(3)]
    assert [[len(batch) for batch in share] for share in kept] == [[4] * 4] * 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_goes_on_in_mid_epoch(tmp_path: pathlib.Path, workers: int) -> None:
    field(tmp_path / "a")

    def make() -> tuple[WindowDataset, Any]:
        windows = WindowDataset(str(tmp_path / "a"), {"time": 3}, 4, positions=True, memory_limit="1 MiB")
        return windows, DataLoader(windows, batch_size=None, num_workers=workers)

    windows, loader = make()
    windows.set_epoch(3)
    whole = times(loader)
    first = []
    for number, (_, places) in enumerate(loader, 1):
        first += places[:, 0].tolist()
        if number == 5:
            break
    state = windows.state_dict(5 if workers else None)
    assert state["batches"] == 5 and state["epoch"] == 3 and state["workers"] == (workers or 1)
    windows, loader = make()
    windows.load_state_dict(state)
    assert len(windows) == 10
    assert first + times(loader) == whole
    assert times(loader) == whole, "one pass goes on; the next one is whole"
    windows.set_epoch(4)
    assert len(times(loader)) == 58
    assert windows.state_dict(15 if workers else None)["batches"] == 15
    windows.set_epoch(5)
    assert windows.state_dict()["batches"] == 0, "nothing was taken of the new epoch"
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="seed"):
        windows.load_state_dict({**state, "seed": 1})


def test_persistent_workers_go_on_once_from_each_state(tmp_path: pathlib.Path) -> None:
    field(tmp_path / "a")
    windows = WindowDataset(tmp_path / "a", {"time": 3}, 4, positions=True, memory_limit="1 MiB")
    loader = DataLoader(windows, batch_size=None, num_workers=2, persistent_workers=True)
    whole = times(loader)
    for batches in (3, 8):
        windows.load_state_dict(windows.state_dict(batches))
        rest = times(loader)
        assert len(rest) < 58 and rest == whole[-len(rest) :]
        assert times(loader) == whole


def test_states_of_workers_are_asked_for_and_refused_by_name(tmp_path: pathlib.Path) -> None:
    field(tmp_path / "a")

    def make(**kwargs: Any) -> WindowDataset:
        return WindowDataset(tmp_path / "a", {"time": 3}, 4, positions=True, **{"memory_limit": "1 MiB", **kwargs})

    windows = make()
    list(DataLoader(windows, batch_size=None, num_workers=2))
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="(?s)2 worker processes read this epoch.*batches="):
        windows.state_dict()
    state = windows.state_dict(3)
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="the state has memory_limit 1048576, this data set 2097152"):
        make(memory_limit="2 MiB").load_state_dict(state)
    for workers in (0, 1, 3):
        again = make()
        again.load_state_dict(state)
        with pytest.raises(cuzarr.errors.InvalidArgumentError, match="the state is one of 2 worker processes"):
            list(DataLoader(again, batch_size=None, num_workers=workers))


def sets(kind: str, path: pathlib.Path) -> Any:
    kwargs = {"positions": True, "memory_limit": "1 MiB", "seed": 3}
    if kind == "rows":
        return BatchDataset(path, 8, shuffle=True, **kwargs)
    return (
        WindowDataset(path, {"time": 3}, 8, **kwargs)
        if kind == "windows"
        else CropDataset(path, {"time": 3}, 8, samples=60, **kwargs)
    )


@pytest.mark.parametrize(
    ("workers", "persistent"), [(0, False), (1, False), (1, True), (2, False), (2, True), (3, False), (3, True)]
)
@pytest.mark.parametrize("kind", ["rows", "windows", "crops"])
def test_stateful_loaders_go_on_after_every_batch(tmp_path: pathlib.Path, kind: str, workers: int, persistent: bool) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    field(tmp_path / "a")

    def make() -> tuple[Any, Any]:
        dataset = sets(kind, tmp_path / "a")
        return dataset, torchdata.StatefulDataLoader(
            dataset,
            batch_size=None,
            num_workers=workers,
            persistent_workers=persistent,
            multiprocessing_context="fork" if workers else None,
        )

    dataset, loader = make()
    epochs, states = [], []
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        states.append((epoch, 0, loader.state_dict()))
        batches: list[list[int]] = []
        for _, places in loader:
            batches.append(places[:, 0].tolist())
            states.append((epoch, len(batches), loader.state_dict()))
        epochs.append(batches)
    assert len(epochs[0]) == 8 and epochs[0] != epochs[1]
    # In the second epoch every third one: the first one has all kinds of places.
    for epoch, taken, state in [one for one in states if one[0] == 0 or one[1] % 3 == 0]:
        dataset, loader = make()
        dataset.set_epoch(epoch)
        loader.load_state_dict(state)
        rest = times(loader)
        # After the last batch, the loader begins the next pass.
        expected = epochs[epoch][taken:]
        if taken == len(epochs[epoch]):
            assert rest in ([], sum(epochs[epoch], []))
        else:
            assert rest == sum(expected, [])
        if taken % 4 == 1:
            assert times(loader) == sum(epochs[epoch], []), "the pass after it is whole"
            dataset.set_epoch(1 - epoch)
            assert times(loader) == sum(epochs[1 - epoch], [])


def test_stateful_loaders_refuse_other_workers_and_limits(tmp_path: pathlib.Path) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    field(tmp_path / "a")

    def make(workers: int, limit: str = "1 MiB") -> Any:
        dataset = WindowDataset(tmp_path / "a", {"time": 3}, 8, memory_limit=limit)
        return torchdata.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    loader = make(2)
    next(iter(loader))
    state = loader.state_dict()
    for again, message in [
        (make(3), "the state is one of 2 worker processes, this pass has 3"),
        (make(2, "2 MiB"), "the state has memory_limit 1048576, this data set 2097152"),
    ]:
        again.load_state_dict(state)
        with pytest.raises(cuzarr.errors.InvalidArgumentError, match=message):
            list(again)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["rows", "windows", "crops"])
def test_loaders_that_would_stack_batches_are_refused(tmp_path: pathlib.Path, kind: str, workers: int) -> None:
    field(tmp_path / "a")
    dataset = sets(kind, tmp_path / "a")
    for kwargs in ({}, {"batch_size": 4}):
        with pytest.raises(cuzarr.errors.InvalidArgumentError, match="(?s)along another dimension.*batch_size=None"):
            next(iter(DataLoader(dataset, num_workers=workers, **kwargs)))
    own = DataLoader(dataset, collate_fn=lambda batches: batches[0], num_workers=workers)
    assert sum(len(places) for _, places in own) == dataset.samples


ROWS = np.arange(40 * 256, dtype="i4")


@pytest.mark.parametrize("limit", ["24 KiB", "1 MiB"])
def test_shuffled_rows_come_once_and_each_chunk_is_read_once(limit: str) -> None:
    store = Counting()
    rows = BatchDataset(
        cuzarr.create_array(store, data=ROWS, chunks=(256,)), 32, shuffle=True, memory_limit=limit, positions=True
    )
    orders = []
    for epoch in (0, 1):
        rows.set_epoch(epoch)
        store.reads.clear()
        batches = [batch.tolist() for batch, places in rows if batch.tolist() == places[:, 0].tolist()]
        assert len(batches) == 320 and sorted(sum(batches, [])) == ROWS.tolist()
        assert set(store.reads.values()) == {1} and len(store.reads) == 40
        assert min(len({row // 256 for row in batch}) for batch in batches) >= 5
        orders.append(batches)
        report = rows.report()
        assert report is not None and report["reads_per_chunk"] == 1 and report["peak_bytes"] <= report["memory_limit"]
    assert orders[0] != orders[1]


def test_rows_come_in_their_order_without_shuffling() -> None:
    store = Counting()
    rows = BatchDataset(cuzarr.create_array(store, data=ROWS, chunks=(256,)), 100)
    assert torch.cat(list(rows)).tolist() == ROWS.tolist() and len(rows) == 103
    assert set(store.reads.values()) == {1}


@pytest.mark.parametrize(
    ("size", "drop_last", "sizes"),
    [(5, False, [5, 5, 2]), (5, True, [5, 5]), (12, True, [12]), (20, False, [12]), (1, False, [1] * 12)],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_fill_their_batches(size: int, drop_last: bool, sizes: list[int], shuffle: bool) -> None:
    array = cuzarr.create_array({}, data=ROWS[:12], chunks=(5,))
    rows = BatchDataset(array, size, drop_last=drop_last, shuffle=shuffle)
    got = [batch.tolist() for batch in rows]
    assert [len(batch) for batch in got] == sizes and len(rows) == len(sizes)
    seen = sum(got, [])
    assert len(set(seen)) == len(seen) and set(seen) <= set(range(12))
    assert shuffle or seen == list(range(len(seen)))


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [0, 4, 31, 33])
def test_ranks_share_the_rows(count: int, drop_last: bool, shuffle: bool, world_size: int) -> None:
    array = cuzarr.create_array({}, data=np.arange(count), chunks=(7,))
    kwargs = {"drop_last": drop_last, "shuffle": shuffle, "world_size": world_size}
    shares = [BatchDataset(array, 2, rank=rank, **kwargs) for rank in range(world_size)]
    got = [[batch.tolist() for batch in share] for share in shares]
    assert len({len(own) for own in got}) == 1 and len(got[0]) == len(shares[0])
    seen = sum(sum(got, []), [])
    assert len(set(seen)) == len(seen) == (count // (2 * world_size) * 2 * world_size if drop_last else count)


def test_rows_take_places_and_names(tmp_path: pathlib.Path) -> None:
    array, store = field(tmp_path / "a"), dict[str, Any]()
    cuzarr.create_array(store, data=np.arange(60), chunks=(7,))
    for form in ({"x": array, "y": tmp_path / "a"}, {"x": str(tmp_path / "a"), "y": array}):
        for batch in BatchDataset(form, 25):
            assert list(batch) == ["x", "y"] and torch.equal(batch["x"], batch["y"])
    assert torch.cat(list(BatchDataset(store, 25))).tolist() == list(range(60))
    for left, right in BatchDataset([tmp_path / "a", store], 25):
        assert (left[:, 0, 0] == right * 24).all()
    with pytest.raises(cuzarr.errors.ArgumentTypeError, match="ndarray, expected an array of a store"):
        BatchDataset((array, np.arange(60)), 4)
    for wrong in ((array, image()), (), tmp_path / "b", cuzarr.create_array({}, data=np.asarray(["a"]))):
        with pytest.raises(cuzarr.errors.CuzarrError):
            BatchDataset(wrong, 4)


def test_reading_ends_when_the_reader_leaves() -> None:
    batches = iter(BatchDataset(field(), 2))
    next(batches)
    assert "cuzarr-samples" in {thread.name for thread in threading.enumerate()}
    batches.close()  # type: ignore[attr-defined]
    assert "cuzarr-samples" not in {thread.name for thread in threading.enumerate()}


def test_rows_of_several_arrays_and_chunks() -> None:
    images = np.arange(60 * 2 * 3, dtype="f4").reshape(60, 2, 3)
    with cuzarr.config.set({"array.rectilinear_chunks": True}):
        grids: list[Any] = [(7, 2, 3), [[20, 1, 39], 1, 3]]
        stored = [cuzarr.create_array({}, data=images, chunks=chunks) for chunks in grids]
    labels = cuzarr.create_array({}, data=np.arange(60), chunks=(60,))
    for first in stored:
        parts = {"image": Variable(first, dtype=torch.float64), "label": labels}
        for shuffle in (False, True):
            seen = []
            for batch in BatchDataset(parts, 7, shuffle=shuffle):
                np.testing.assert_array_equal(batch["image"], images[batch["label"].numpy()])
                seen += batch["label"].tolist()
            assert sorted(seen) == list(range(60)) and (seen == sorted(seen)) == (not shuffle)


def test_long_chunks_of_labels_do_not_make_cells_of_images_long() -> None:
    image_store, label_store = Counting(), Counting()
    images = cuzarr.create_array(image_store, data=np.arange(64 * 500).reshape(64, 500), chunks=(1, 500))
    labels = cuzarr.create_array(label_store, data=np.arange(64, dtype="i2"), chunks=(64,))
    for batch, label in BatchDataset((images, labels), 8, shuffle=True, memory_limit="64 KiB"):
        assert (batch[:, 0] == label.long() * 500).all()
    assert set(image_store.reads.values()) == {1} and set(label_store.reads.values()) == {1}


def test_too_few_chunks_in_memory_are_an_error_that_names_the_limit() -> None:
    array = cuzarr.create_array({}, data=ROWS, chunks=(256,))
    with pytest.raises(cuzarr.errors.BudgetExceededError, match="memory_limit is 12287 bytes, expected at least 12288: 12 cells"):
        list(BatchDataset(array, 32, shuffle=True, memory_limit=12287))
    assert len(list(BatchDataset(array, 32, shuffle=True, memory_limit=12288))) == 320
    assert len(list(BatchDataset(array, 32, memory_limit=4096))) == 320


@pytest.mark.parametrize("kind", ["rows", "crops"])
def test_ranks_and_workers_of_sorted_labels_see_all_of_them(kind: str) -> None:
    array = cuzarr.create_array({}, data=ROWS, chunks=(64,))

    def mean(rank: int) -> float:
        kwargs = {"rank": rank, "world_size": 4, "seed": 5}
        if kind == "rows":
            return float(np.mean([batch.float().mean() for batch in BatchDataset(array, 32, shuffle=True, **kwargs)]))
        return float(np.mean([batch.float().mean() for batch in CropDataset(array, {0: 4}, 32, **kwargs)]))

    means = np.asarray([mean(rank) for rank in range(4)]) / len(ROWS)
    assert np.abs(means - 0.5).max() < 0.13, "in stretches of sorted labels they are 0.125, 0.375, 0.625, 0.875"


def test_errors_come_out_where_batches_are_awaited() -> None:
    store: dict[str, Any] = {}
    array = field(store)
    store["c/3/0/0"] = b"damaged"
    with pytest.raises(cuzarr.errors.ChunkCorruptError):
        list(WindowDataset(array, {"time": 3}, 4))
    with pytest.raises(cuzarr.errors.BudgetExceededError, match="memory_limit is 1000 bytes, expected at least 1920"):
        list(WindowDataset(field(), {"time": 3}, 4, memory_limit=1000))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WindowDataset(field(), {"tmie": 3}, 4), "no array has the dimension 'tmie'"),
        (lambda: WindowDataset(field(), {"time": 61}, 4), "no window of"),
        (lambda: WindowDataset(field(), {"time": (2, 2)}, 4), "no elements"),
        (lambda: WindowDataset(field(), {"time": 3}, 4, within={"time": (0, 61)}), "between 0 and 60"),
        (lambda: WindowDataset(field(), {"time": 3}, 4, stride={"y": 2}), "'y', which is no sample axis"),
        (lambda: WindowDataset((field(), image()), {"y": 3}, 4), r"extents \[4, 48\] along 'y'"),
        (lambda: WindowDataset(Variable(field(), std=0), {"time": 3}, 4), "std is 0"),
        (lambda: CropDataset(image(), {"y": 49, "x": 1}, 4), "does not fit in 48"),
    ],
)
def test_wrong_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises(cuzarr.errors.CuzarrError, match=message):
        make()

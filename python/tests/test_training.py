"""Windows and crops of arrays as PyTorch's data sets."""

from __future__ import annotations

import collections
import pathlib
from typing import Any

import numpy as np
import pytest

import cuzarr

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from cuzarr.torch import CropDataset, Variable, WindowDataset  # noqa: E402

FIELD = np.arange(60 * 4 * 6, dtype="f4").reshape(60, 4, 6)
IMAGE = np.arange(48 * 40, dtype="u2").reshape(48, 40)


class Counting(dict[str, Any]):
    """A store in memory that counts reads of chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: collections.Counter[str] = collections.Counter()

    def __getitem__(self, key: str) -> Any:
        if "c/" in key:
            self.reads[key] += 1
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default


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
    assert state["batches"] == 5 and state["epoch"] == 3
    windows, loader = make()
    windows.load_state_dict(state)
    assert len(windows) == 10
    assert first + times(loader) == whole
    windows.set_epoch(4)
    assert len(times(loader)) == 58
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="seed"):
        windows.load_state_dict({**state, "seed": 1})


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
    with pytest.raises(cuzarr.CuzarrError, match=message):
        make()

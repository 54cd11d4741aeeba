"""Orders of epochs: each sample once, each cell read once within what may be held, and shares of ranks and workers; positions of
crops."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.loader._cells import Cells, cells_of, check_limit, chunk_edges, joined
from cuzarr.loader._crops import CropAxis, draw
from cuzarr.loader._plan import EpochPlan, Limits, plan_epoch
from cuzarr.loader._progress import Progress
from cuzarr.loader._shares import batch_count, batch_sizes, in_order, shares_of_workers
from cuzarr.loader._variables import Parts, parse_window

ONE = 100


def windows(extent: int, length: int, cell: int) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    starts = np.arange(extent - length + 1)[:, None]
    return starts // cell, (starts + length - 1) // cell, (-(-extent // cell),)


def planned(extent: int, length: int, cell: int, mixed: int, frontier: int, seed: int | None) -> EpochPlan:
    lowest, highest, grid = windows(extent, length, cell)
    random = None if seed is None else np.random.default_rng(seed)
    return plan_epoch(lowest, highest, grid, np.full(grid, ONE), Limits(mixed * ONE, frontier * ONE), random)


def most_held(plan: EpochPlan) -> int:
    """Cells that are held at once, each from when it must be there to its last sample."""
    changes = np.zeros(len(plan.order) + 1, int)
    np.add.at(changes, plan.first, 1)
    np.add.at(changes, plan.last + 1, -1)
    return int(changes.cumsum().max())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("mixed", "frontier"), [(1, 1), (4, 3), (20, 10), (1000, 1000)])
@pytest.mark.parametrize(("length", "cell"), [(1, 1), (4, 3), (3, 10)])
def test_along_one_axis_each_cell_is_read_once_whatever_the_limit(
    seed: int, mixed: int, frontier: int, length: int, cell: int
) -> None:
    plan = planned(300, length, cell, mixed, frontier, seed)
    assert sorted(plan.order) == list(range(300 - length + 1))
    assert len(set(plan.cells.tolist())) == len(plan.cells) == -(-300 // cell)
    assert most_held(plan) <= mixed + frontier + 3


def test_every_cell_of_a_sample_is_there_when_it_comes() -> None:
    lowest, highest, grid = windows(300, 5, 4)
    plan = planned(300, 5, 4, 6, 3, 1)
    for place, sample in enumerate(plan.order):
        for cell in {int(lowest[sample, 0]), int(highest[sample, 0])}:
            (entry,) = np.flatnonzero(plan.cells == cell)
            assert plan.first[entry] <= place <= plan.last[entry]
    assert (np.diff(plan.first) >= 0).all()


def test_without_shuffling_samples_come_in_their_order() -> None:
    plan = planned(100, 4, 3, 2, 2, None)
    assert plan.order.tolist() == list(range(97)) and plan.cells.tolist() == list(range(34))


def test_orders_mix_many_cells_and_come_again_from_their_seed() -> None:
    first, again, other = (planned(1000, 1, 10, 20, 0, seed).order for seed in (1, 1, 2))
    assert (first == again).all() and (first != other).any()
    # A batch of 50 would have 5 cells in C order.
    cells = [len(set((batch // 10).tolist())) for batch in first.reshape(20, 50)]
    assert np.mean(cells) > 15


def test_along_two_axes_a_frontier_that_grows_too_large_is_read_again() -> None:
    grid = (8, 8)
    lowest = np.stack(np.meshgrid(np.arange(7), np.arange(7), indexing="ij"), -1).reshape(-1, 2)
    sizes = np.full(64, ONE)
    for frontier, rereads in ((64, False), (2, True)):
        plan = plan_epoch(lowest, lowest + 1, grid, sizes, Limits(ONE, frontier * ONE), np.random.default_rng(3))
        assert sorted(plan.order) == list(range(49)) and set(plan.cells) == set(range(64))
        assert (len(plan.cells) > 64) == rereads
        for place, sample in enumerate(plan.order):
            row, column = lowest[sample]
            for cell in (row * 8 + column, row * 8 + column + 1, row * 8 + column + 8, row * 8 + column + 9):
                entries = np.flatnonzero(plan.cells == cell)
                assert ((plan.first[entries] <= place) & (place <= plan.last[entries])).any()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("samples", "size", "ranks"), [(100, 8, 3), (33, 4, 4), (16, 4, 4), (5, 2, 4), (17, 16, 2)])
def test_ranks_get_equally_many_batches_and_each_sample_once(samples: int, size: int, ranks: int, drop_last: bool) -> None:
    count = batch_count(samples, size, ranks, drop_last=drop_last)
    seen: list[int] = []
    for rank in range(ranks):
        start, sizes = batch_sizes(samples, size, ranks, rank, drop_last=drop_last)
        assert len(sizes) == count and all(0 < one <= size for one in sizes)
        seen += range(start, start + sum(sizes))
    assert len(seen) == len(set(seen)) == (count * size * ranks if drop_last else samples)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_workers_go_on_where_the_next_batch_would_have_come_from(workers: int) -> None:
    start, sizes = batch_sizes(75, 4, 1, 0, drop_last=False)

    def delivered(done: int) -> list[tuple[int, int]]:
        """First sample and size of each batch, as PyTorch asks workers for them in turn."""
        queues = []
        for share in shares_of_workers(start, sizes, workers, done):
            ends = np.cumsum((share.start, *share.sizes)).tolist()
            queues.append(list(zip(ends[:-1], share.sizes, strict=True))[share.skipped :])
        found = []
        while any(queues):
            found += [queue.pop(0) for queue in queues if queue]
        return found

    whole = delivered(0)
    assert sorted(whole) == sorted(zip(np.cumsum((0, *sizes)).tolist()[:-1], sizes, strict=True))
    for done in range(len(sizes) + 1):
        assert delivered(done) == whole[done:]


# Where the order of an epoch begins and ends, and how ranks share it.


def test_the_first_and_the_last_batches_mix_cells_too() -> None:
    mixed, held = {}, {}
    for first in (0, 8):
        limits = Limits(8 * ONE, 0, first * ONE)
        lowest, _, grid = windows(64 * 256, 1, 256)
        plan = plan_epoch(lowest, lowest, grid, np.full(grid, ONE), limits, np.random.default_rng(2))
        assert sorted(plan.order) == list(range(64 * 256))
        mixed[first] = [len(set((batch // 256).tolist())) for batch in (plan.order[:32], plan.order[-32:])]
        held[first] = most_held(plan)
    assert mixed[0][0] == 1, "all of the first batch would come from one chunk"
    assert min(mixed[8]) >= 6
    assert held[8] <= held[0] + 1


def test_ranks_get_cells_from_everywhere_and_others_each_epoch() -> None:
    edges = np.arange(0, 1001, 10)
    cells = Cells((edges,), np.full(100, ONE))
    labels = np.arange(1000)  # sorted, as files of one class after the other are

    def means(epoch: int) -> list[float]:
        found = in_order(cells, labels[:, None], ((0, 1),), np.random.default_rng(epoch))
        assert found.are_apart and sorted(found.starts[:, 0]) == labels.tolist()
        assert len(set((found.starts[:250, 0] // 10).tolist())) == 25, "each cell is one rank's"
        return [float(found.part(rank * 250, 250).starts.mean()) for rank in range(4)]

    spread = np.asarray([means(epoch) for epoch in range(40)])
    assert np.abs(spread.mean(axis=0) - 499.5).max() < 40, "in stretches of sorted labels the ranks' means are 125, 375, 625, 875"
    assert len({tuple(one) for one in spread.tolist()}) == 40


def test_samples_that_cross_cells_stay_beside_each_other() -> None:
    cells = Cells((np.arange(0, 101, 10),), np.full(10, ONE))
    found = in_order(cells, np.arange(97)[:, None], ((0, 4),), np.random.default_rng(0))
    steps = np.diff(found.starts[:, 0])
    assert not found.are_apart and sorted(steps)[0] == -96 and (np.delete(steps, steps.argmin()) == 1).all()


# Cells and chunks.


def parts_of(*chunks: Any, extent: int = 24, window: int = 1) -> Parts:
    with cuzarr.config.set({"array.rectilinear_chunks": True}):
        arrays = [cuzarr.create_array({}, data=np.zeros(extent), chunks=one) for one in chunks]
    return Parts(arrays, parse_window({0: window}, "window"))


@pytest.mark.parametrize(
    ("chunks", "edges"),
    [
        (((4,),), [0, 4, 8, 12, 16, 20, 24]),
        (((2,), (4,)), [0, 4, 8, 12, 16, 20, 24]),
        (((5,), (24,)), [0, 24]),
        (([[3, 8, 1, 12]],), [0, 3, 11, 12, 24]),
        (([[3, 8, 1, 12]], (3,)), [0, 3, 12, 24]),
    ],
)
def test_cells_begin_where_chunks_do(chunks: Any, edges: list[int]) -> None:
    assert chunk_edges(parts_of(*chunks), 0).edges[0].tolist() == edges


def test_windows_touch_two_cells_at_most() -> None:
    assert joined(np.asarray([0, 3, 11, 12, 24]), 4).tolist() == [0, 11, 24]
    assert joined(np.asarray([0, 4, 8, 10]), 4).tolist() == [0, 4, 8, 10]
    assert joined(np.asarray([0, 4, 8, 12, 13]), 5).tolist() == [0, 8, 13]


def test_small_arrays_with_long_chunks_are_held_whole() -> None:
    images = cuzarr.create_array({}, shape=(24, 100), chunks=(1, 100), dtype="f8")
    labels = cuzarr.create_array({}, data=np.arange(24), chunks=(24,))
    parts = Parts((images, labels), parse_window({0: 1}, "window"))
    chunks = chunk_edges(parts, 64 * 1000)
    assert chunks.edges[0].tolist() == list(range(25)) and chunks.whole == {1}
    cells = cells_of(parts, chunks.edges, chunks)
    assert set(cells.sizes.tolist()) == {800} and cells.whole_bytes == 24 * 8 and cells.are_chunks
    check_limit(cells, 12 * 800 + 192, 8, 1)
    with pytest.raises(cuzarr.errors.BudgetExceededError, match="memory_limit is 9791 bytes, expected at least 9792: 12 cells"):
        check_limit(cells, 12 * 800 + 191, 8, 1)


# Positions of crops.


def probabilities(axis: CropAxis) -> np.ndarray:
    """The probability of each position over all epochs, by enumeration of the shifts."""
    total = np.zeros(len(axis.weights))
    for shift, share in enumerate(axis.shift_shares):
        edges = axis.edges(shift)
        weights = axis.position_weights(edges)
        # Told by the edges alone.
        inside = [any(a <= p and p + axis.length <= b for a, b in zip(edges, edges[1:], strict=False)) for p in range(len(total))]
        assert ((weights > 0) == inside).all()
        total += share * weights / weights.sum() if share else 0
    return total


@pytest.mark.parametrize("chunks", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 5, 8, 9, 16, 23])
@pytest.mark.parametrize(
    "edges", [np.asarray([*range(0, 50, 8), 50]), np.arange(31), np.asarray([0, 3, 11, 12, 24, 30]), np.asarray([0, 23])]
)
def test_every_position_of_a_crop_has_the_same_probability(edges: np.ndarray, length: int, chunks: int) -> None:
    axis = CropAxis(edges, length, chunks)
    found = probabilities(axis)
    np.testing.assert_allclose(found, 1 / (int(edges[-1]) - length + 1), rtol=1e-12)
    assert axis.shift_shares.sum() == pytest.approx(1)
    assert set(np.concatenate([axis.edges(shift) for shift in range(axis.chunks)]).tolist()) <= set(edges.tolist())


def test_positions_are_uniform_over_the_epochs() -> None:
    axes = [CropAxis(np.asarray([*range(0, 50, 8), 50]), 7, 2), CropAxis(np.arange(0, 41, 4), 6, 3)]
    single = np.zeros((44, 35))
    for epoch in range(3000):
        _, corners = draw(axes, 1, np.random.default_rng((7, epoch)))
        single[tuple(corners[0])] += 1
    # Epochs are independent of each other. By chance the statistic is larger than its mean and four deviations in 1 of 10,000 seeds.
    for counts in (single.sum(axis=1), single.sum(axis=0), single.reshape(-1)):
        expected = counts.sum() / counts.size
        statistic, freedom = ((counts - expected) ** 2 / expected).sum(), counts.size - 1
        assert abs(statistic - freedom) < 4 * (2 * freedom) ** 0.5


def test_ends_get_their_share_of_the_crops() -> None:
    axes = [CropAxis(np.asarray([*range(0, 64, 16), 64]), 32, 4)]
    ends = np.zeros(33)
    for epoch in range(1000):
        edges, corners = draw(axes, 40, np.random.default_rng(epoch))
        blocks = np.searchsorted(edges[0], corners[:, 0], side="right")
        assert (blocks == np.searchsorted(edges[0], corners[:, 0] + 31, side="right")).all(), "no crop crosses a block"
        assert (np.diff(blocks) >= 0).all(), "block by block"
        np.add.at(ends, corners[:, 0], 1)
    np.testing.assert_allclose(ends / ends.sum(), 1 / 33, rtol=0.1)


# Where a program was.


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_worker_goes_on_from_its_own_state(workers: int) -> None:
    start, sizes = batch_sizes(75, 4, 1, 0, drop_last=False)
    for worker in range(workers):
        for batches in range(4):
            share = Progress(2, workers, batches, worker).share(partial(shares_of_workers, start, sizes), 0)
            assert (share.number, share.skipped) == (worker, batches)
            assert share.sizes == shares_of_workers(start, sizes, workers)[worker].sizes


def test_states_of_other_data_sets_and_workers_are_refused_by_name() -> None:
    identity = {"samples": 9, "memory_limit": 100}
    state = {**Progress(1, 2, 3, 0).to_dict(), **identity}
    assert Progress.from_dict(state, identity) == Progress(1, 2, 3, 0)
    for changed, message in [
        ({"memory_limit": 99}, "the state has memory_limit 99, this data set 100"),
        ({"worker": 2}, "worker 2, expected one of 0 to 1"),
        ({"batches": -1}, "batches is -1"),
    ]:
        with pytest.raises(cuzarr.errors.InvalidArgumentError, match=message):
            Progress.from_dict({**state, **changed}, identity)
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match=r"the state has no \['workers'\]"):
        Progress.from_dict({name: value for name, value in state.items() if name != "workers"}, identity)
    with pytest.raises(
        cuzarr.errors.InvalidArgumentError, match="(?s)of 2 worker processes, this pass has 1 process.*num_workers=2"
    ):
        Progress.from_dict(state, identity).check_workers(1)
    Progress(1, 2, 0).check_workers(1)

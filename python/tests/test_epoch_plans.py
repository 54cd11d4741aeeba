"""Orders of epochs: each sample once, each cell read once within what may be held, and shares of ranks and workers."""

from __future__ import annotations

import numpy as np
import pytest

from cuzarr._samples.plan import EpochPlan, Limits, plan_epoch
from cuzarr._samples.shares import batch_count, batch_sizes, shares_of_workers

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

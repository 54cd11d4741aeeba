"""Work on a cluster of dask: the same elements as on one machine, also where a worker dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError

distributed = pytest.importorskip("distributed")

VALUES = np.random.default_rng(8).normal(size=(24, 30, 8)).astype("float32")
LIMIT = "32 KiB"
SMALL = "8 KiB"


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=True)
    with cluster, distributed.Client(cluster) as made:
        yield made


@pytest.fixture
def client(started: Any) -> Any:
    """A client of two workers, both of which answer: a test before may have killed one."""
    while len(started.run(os.getpid, on_error="ignore")) < 2:
        try:
            started.wait_for_workers(2, timeout=60)
        except TimeoutError:  # on a busy machine the one that watches a killed worker may give up
            started.cluster.scale(len(started.cluster.workers) + 1)
    return started


@pytest.fixture
def source(tmp_path: Path) -> cuzarr.Array:
    return cuzarr.create_array(tmp_path / "source", data=VALUES, chunks=(3, 10, 4), dimension_names=("t", "y", "x"))


def smoothed(block: Any, row: Any, block_info: Any) -> Any:
    return np.cumsum(block, axis=0) * row + block_info.number


def test_blocks_of_a_cluster_are_those_of_one_machine(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    row = np.arange(8, dtype="float32")
    options: dict[str, Any] = {"memory_limit": LIMIT, "overlap": (1, 0, 0)}
    expected = cuzarr.map_blocks(smoothed, source, row, out=tmp_path / "one", **options)
    heard: list[tuple[int, int | None]] = []
    got = cuzarr.map_blocks(
        smoothed, source, row, out=tmp_path / "many", client=client, progress=lambda *now: heard.append(now), **options
    )
    np.testing.assert_array_equal(got[...], expected[...])
    assert got.metadata == expected.metadata and got.metadata.dimension_names == ("t", "y", "x")
    count = len(heard)
    assert count > 4 and heard == [(number, count) for number in range(1, count + 1)]
    # An array that is there, and a type that the caller chose.
    again = cuzarr.create_array(tmp_path / "there", shape=VALUES.shape, dtype="float64", chunks=(5, 30, 8))
    cuzarr.map_blocks(np.negative, source, out=again, client=client, memory_limit="128 KiB")
    np.testing.assert_array_equal(again[...], -VALUES)
    bools = cuzarr.map_blocks(lambda block: block > 0, source, out=tmp_path / "bools", dtype="uint8", client=client)
    np.testing.assert_array_equal(bools[...], VALUES > 0)


def test_a_worker_that_dies_costs_nothing_but_time(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    mark = tmp_path / "died"

    def dies_once(block: Any, block_info: Any) -> Any:
        if block_info.number == 3:
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os._exit(1)
        return block * 2

    got = cuzarr.map_blocks(dies_once, source, out=tmp_path / "out", dtype="float32", client=client, memory_limit=LIMIT)
    assert mark.exists()
    np.testing.assert_array_equal(got[...], VALUES * 2)


def test_an_error_of_a_task_comes_as_it_is(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    def fails(block: Any, block_info: Any) -> Any:
        if block_info.number == 2:
            raise RuntimeError("broken block")
        return block

    with pytest.raises(RuntimeError, match="broken block"):
        cuzarr.map_blocks(fails, source, out=tmp_path / "out", client=client, memory_limit=LIMIT)


def test_what_workers_cannot_reach_is_refused(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    for options, error, message in [
        ({"client": client}, InvalidArgumentError, "needs a store"),
        ({"client": client, "out": {}}, InvalidArgumentError, "memory of this process"),
        ({"client": client, "out": cuzarr.zeros(VALUES.shape, store={})}, InvalidArgumentError, "memory of this process"),
        ({"client": client, "out": cuzarr.storage.MemoryStore()}, InvalidArgumentError, "memory of this process"),
        ({"client": client, "out": "memory://blocks"}, InvalidArgumentError, "memory of this process"),
        ({"client": client, "out": str(tmp_path / "out.zip")}, UnsupportedError, "ZIP file"),
        ({"client": client, "out": tmp_path / "out", "resume": True}, UnsupportedError, "cannot be resumed"),
        ({"client": 3, "out": tmp_path / "out"}, ArgumentTypeError, "client is int"),
    ]:
        with pytest.raises(error, match=message):
            cuzarr.map_blocks(np.negative, source, **options)
    assert not (tmp_path / "out").exists()


def spread(block: Any) -> tuple[Any, Any]:
    return block.sum(dtype="float32"), block.max()


def added(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    return one[0] + other[0], max(one[1], other[1])


def test_reductions_of_a_cluster_have_the_bits_of_one_machine(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    # Sums of float32 tell in which order they were added.
    one = cuzarr.reduce(spread, added, source, memory_limit=SMALL)
    heard: list[tuple[int, int | None]] = []
    many = cuzarr.reduce(spread, added, source, memory_limit=SMALL, client=client, progress=lambda *now: heard.append(now))
    assert many == one and one[1] == VALUES.max()
    assert len(heard) > 8 and heard[-1] == (len(heard), len(heard))
    options: dict[str, Any] = {"axis": "t", "finish": np.sqrt, "initial": np.float32(1), "chunks": (10, 4), "memory_limit": SMALL}

    def squares(block: Any) -> Any:
        return np.sum(block**2, axis=0, dtype="float32")

    expected = cuzarr.reduce(squares, np.add, source, out=tmp_path / "one", **options)
    got = cuzarr.reduce(squares, np.add, source, out=tmp_path / "many", client=client, **options)
    np.testing.assert_array_equal(got[...], expected[...])
    assert got.metadata == expected.metadata and got.metadata.dimension_names == ("y", "x")
    np.testing.assert_allclose(got[...], np.sqrt(1 + np.sum(VALUES.astype("float64") ** 2, axis=0)), rtol=1e-5)


def test_a_reduction_survives_a_worker_that_dies(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    mark = tmp_path / "died"

    def dies_once(block: Any, block_info: Any) -> Any:
        if block_info.number == 5:
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os._exit(1)
        return block.sum(dtype="float32")

    expected = cuzarr.reduce(lambda block: block.sum(dtype="float32"), np.add, source, memory_limit=SMALL)
    assert cuzarr.reduce(dies_once, np.add, source, memory_limit=SMALL, client=client) == expected
    assert mark.exists()


def test_reductions_refuse_what_workers_cannot_reach(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    for options, error, message in [
        ({"client": client, "axis": 0}, InvalidArgumentError, "needs a store"),
        ({"client": client, "axis": 0, "out": {}}, InvalidArgumentError, "memory of this process"),
        ({"client": client, "axis": 0, "out": tmp_path / "out", "resume": True}, UnsupportedError, "cannot be resumed"),
        ({"client": 3}, ArgumentTypeError, "client is int"),
    ]:
        with pytest.raises(error, match=message):
            cuzarr.reduce(np.sum, np.add, source, **options)
    assert not (tmp_path / "out").exists()


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by their paths."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_by_a_cluster_has_the_files_of_one_machine(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    # Rows and columns so different that there are two passes.
    rows = cuzarr.create_array(
        tmp_path / "rows",
        data=np.arange(1 << 20, dtype="uint32").astype("uint16").reshape(1024, 1024),
        chunks=(1, 1024),
        compressors=None,
    )
    options: dict[str, Any] = {"chunks": (1024, 1), "memory_limit": "512 KiB", "compressors": None}
    plan = cuzarr.rechunk(rows, tmp_path / "none", dry_run=True, **options).to_dict()[0]
    assert len(plan["passes"]) == 2
    heard: list[tuple[int, int | None]] = []
    cuzarr.rechunk(rows, tmp_path / "one", **options)
    got = cuzarr.rechunk(rows, tmp_path / "many", client=client, progress=lambda *now: heard.append(now), **options)
    np.testing.assert_array_equal(got[...], rows[...])
    count = sum(step["regions"] for step in plan["passes"])
    assert count > 8 and heard == [(number, count) for number in range(1, count + 1)]
    assert tree(tmp_path / "many") == tree(tmp_path / "one")

    group = cuzarr.create_group(tmp_path / "group", attributes={"title": "two"})
    group.create_array("a", data=VALUES, chunks=(3, 10, 4), shards=(6, 30, 8), dimension_names=("t", "y", "x"))
    group.create_array("deep/b", data=np.array(["x", "yy", ""] * 5), chunks=(4,))
    group.create_array("empty", shape=(0, 3), dtype="int8")
    cuzarr.copy(group, tmp_path / "group-one", memory_limit="64 KiB", zarr_format=3)
    copied = cuzarr.copy(group, tmp_path / "group-many", memory_limit="64 KiB", zarr_format=3, client=client)
    assert copied["deep/b"][...].tolist() == ["x", "yy", ""] * 5
    assert tree(tmp_path / "group-many") == tree(tmp_path / "group-one")


def test_a_pyramid_by_a_cluster_has_the_files_of_one_machine(client: Any, tmp_path: Path) -> None:
    pixels = np.random.default_rng(3).integers(0, 4096, (2, 90, 130), dtype="uint16")
    image = cuzarr.create_array(tmp_path / "image", data=pixels, chunks=(1, 16, 16), dimension_names=("c", "y", "x"))
    options: dict[str, Any] = {"levels": 3, "channels": ["one", "two"], "name": "image", "memory_limit": "64 KiB"}
    cuzarr.pyramid(image, tmp_path / "one", **options)
    got = cuzarr.pyramid(image, tmp_path / "many", client=client, **options)
    assert got["2"].shape == (2, 23, 33)
    assert tree(tmp_path / "many") == tree(tmp_path / "one")


def test_a_copy_loses_only_time_when_workers_are_killed(client: Any, tmp_path: Path) -> None:
    values = np.arange(400 * 200, dtype="int32").reshape(400, 200)
    source = cuzarr.create_array(tmp_path / "source", data=values, chunks=(4, 200))
    killed: list[int] = []

    def kill_twice(done: int, of: int | None) -> None:
        if done in (3, 9):
            pids = client.run(os.getpid, on_error="ignore")
            killed.append(min(pids.values()))
            os.kill(killed[-1], signal.SIGKILL)

    got = cuzarr.rechunk(
        source, tmp_path / "out", chunks=(200, 2), memory_limit="64 KiB", client=client, progress=kill_twice, compressors=None
    )
    assert len(killed) == 2 and killed[0] != killed[1]
    np.testing.assert_array_equal(got[...], values)
    assert not (tmp_path / "out" / ".cuzarr-between").exists()


def test_a_copy_that_a_cluster_began_goes_on_here(client: Any, tmp_path: Path) -> None:
    values = np.arange(64 * 64, dtype="int32").reshape(64, 64)
    source = cuzarr.create_array(tmp_path / "source", data=values, chunks=(1, 64))
    options: dict[str, Any] = {"chunks": (4, 64), "memory_limit": "6 KiB"}

    def stops(done: int, of: int | None) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cuzarr.rechunk(source, tmp_path / "out", client=client, progress=stops, **options)
    with pytest.raises(cuzarr.errors.ArrayNotFoundError):
        cuzarr.open_array(tmp_path / "out")
    plan = cuzarr.rechunk(source, tmp_path / "out", resume=True, dry_run=True, **options).to_dict()[0]
    assert (plan["passes"][0]["finished"], plan["passes"][0]["regions"]) == (4, 16)
    heard: list[int] = []
    again = cuzarr.rechunk(
        source, tmp_path / "out", resume=True, client=client, progress=lambda done, of: heard.append(done), **options
    )
    assert 8 <= len(heard) <= 12
    np.testing.assert_array_equal(again[...], values)


@pytest.mark.parametrize("limit", ["1 MiB", "24 KiB"])
def test_tasks_copy_a_part(client: Any, tmp_path: Path, limit: str) -> None:
    values = np.random.default_rng(4).standard_normal((90, 60)).astype("f4")
    source = cuzarr.create_array(tmp_path / "source", data=values, chunks=(90, 1), dimension_names=("y", "x"))
    part = cuzarr.copy(
        source, tmp_path / "part", select={"y": slice(3, 80, 2), "x": slice(7, None)}, memory_limit=limit, client=client
    )
    np.testing.assert_array_equal(part[...], values[3:80:2, 7:])


def test_an_error_of_a_copied_region_names_it(client: Any, tmp_path: Path) -> None:
    source = cuzarr.create_array(tmp_path / "source", data=VALUES, chunks=(3, 10, 4))
    broken = tmp_path / "source" / "c" / "3" / "1" / "1"
    broken.write_bytes(broken.read_bytes()[:-9])
    with pytest.raises(cuzarr.errors.CuzarrError, match="c/3/1/1") as raised:
        cuzarr.copy(source, tmp_path / "out", client=client, memory_limit="64 KiB")
    assert "copy" in " ".join(raised.value.__notes__)


def test_copies_refuse_what_workers_cannot_reach(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    for target, error, message in [
        ({}, InvalidArgumentError, "copy on a cluster cannot write to memory"),
        (cuzarr.storage.MemoryStore(), InvalidArgumentError, "memory of this process"),
        (tmp_path / "out.zip", UnsupportedError, "ZIP"),
    ]:
        with pytest.raises(error, match=message):
            cuzarr.copy(source, target, client=client)
    with pytest.raises(ArgumentTypeError, match="client is int"):
        cuzarr.copy(source, tmp_path / "out", client=3)
    assert not (tmp_path / "out").exists()


def test_plans_that_a_cluster_computes_have_the_bits_of_one_machine(client: Any, source: cuzarr.Array) -> None:
    row = np.arange(8, dtype="float32")
    deviation = source - source.mean("t", keepdims=True)
    heard: list[tuple[int, int | None]] = []
    for plan in (
        (source + 1) * row,
        deviation / cuzarr.xp.std(source, axis=0),
        source.lazy[2:20, :, 1] - 1,
        source.sum(),
        cuzarr.xp.var(deviation * 2, axis=("y", "x")),
        cuzarr.xp.argmax(source, axis=1),
        cuzarr.xp.quantile(source, [0.1, 0.5], axis=0) + source.mean(),
        cuzarr.xp.histogram(source, 7)[0],
        source.mean() - source.max(),
        (source > 0).astype("uint8"),
        source.lazy.oindex[[7, 7, 0], :, ::-2] * 2,
        cuzarr.xp.concatenate([source, source.lazy[::-1] - source.mean(axis=0)]),
        cuzarr.xp.diff(source, axis=0).transpose(2, 0, 1),
        cuzarr.xp.flip(cuzarr.xp.std(source, axis=0), 0),
    ):
        expected = plan.compute(memory_limit=LIMIT)
        heard.clear()
        got = plan.compute(memory_limit=LIMIT, client=client, progress=lambda *now: heard.append(now))
        assert type(got) is type(expected) and got.dtype == expected.dtype and got.shape == expected.shape, plan
        assert got.tobytes() == expected.tobytes(), plan
        assert heard and heard[-1][0] == heard[-1][1] == len(heard), plan
    assert source.sum()._expr.summary_parts(32 << 10) > 2, "several tasks"


def test_plans_are_stored_by_a_cluster(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    plan = (source - source.mean("t", keepdims=True)) * 3
    options: dict[str, Any] = {"shape": VALUES.shape, "dtype": "float64", "chunks": (4, 10, 8), "compressors": None}
    one, many = (cuzarr.create_array(tmp_path / name, **options) for name in ("one", "many"))
    plan.store(one, memory_limit="128 KiB")
    heard: list[tuple[int, int | None]] = []
    plan.store(many, memory_limit="128 KiB", client=client, progress=lambda *now: heard.append(now))
    assert len(heard) > 4
    np.testing.assert_array_equal(many[...], one[...])
    assert tree(tmp_path / "many") == tree(tmp_path / "one")
    made = plan.store(tmp_path / "made", chunks=(4, 10, 8), compressors=None, memory_limit="128 KiB", client=client)
    np.testing.assert_array_equal(made[...], one[...])
    assert made.metadata.dimension_names == source.metadata.dimension_names
    for place, options in [
        ({}, {}),
        (tmp_path / "new", {"resume": True}),
        (tmp_path / "new", {"client": 3}),
        (tmp_path / "new.zip", {}),
        (tmp_path / "many", {"overwrite": True, "resume": True}),
    ]:
        with pytest.raises((InvalidArgumentError, UnsupportedError, ArgumentTypeError)):
            plan.store(place, **{"client": client, **options})
    assert not (tmp_path / "new").exists() and not (tmp_path / "new.zip").exists(), "refused before an array is made"
    np.testing.assert_array_equal(many[...], one[...])
    for target, options, error, message in [
        (cuzarr.zeros(VALUES.shape, store={}), {}, InvalidArgumentError, "memory of this process"),
        (many, {"resume": True}, UnsupportedError, "cannot be resumed"),
        (cuzarr.open_array(tmp_path / "many", mode="r"), {}, cuzarr.errors.ReadOnlyError, "read"),
        (source, {}, InvalidArgumentError, "overlap"),
    ]:
        with pytest.raises(error, match=message):
            plan.store(target, client=client, **options)
    with pytest.raises(ArgumentTypeError, match="client is int"):
        plan.compute(client=3)


def test_a_plan_survives_workers_that_are_killed(client: Any, source: cuzarr.Array) -> None:
    killed: list[int] = []

    def kill_once(done: int, of: int | None) -> None:
        if not killed:
            killed.append(min(client.run(os.getpid, on_error="ignore").values()))
            os.kill(killed[0], signal.SIGKILL)

    plan = cuzarr.xp.std(source * 2, axis=1)
    got = plan.compute(memory_limit=LIMIT, client=client, progress=kill_once)
    assert killed and got.tobytes() == plan.compute(memory_limit=LIMIT).tobytes()


class Elsewhere(cuzarr.storage.LocalStore):
    """A directory that each process has for itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        return cuzarr.storage.LocalStore, (f"{self.root}-of-workers",)


def calls(source: cuzarr.Array, place: Any, client: Any, **options: Any) -> dict[str, Callable[[], Any]]:
    """Each call that takes a client, which is to replace what is at a place or to fill it."""
    target = cuzarr.create_array(place, name="there", shape=source.shape, dtype="float32", overwrite=True)
    target[...] = 7
    new: dict[str, Any] = {"path": "there", "overwrite": True, **options}
    out: dict[str, Any] = {"out": place, "name": "there", "overwrite": True, **options}
    return {
        "copy": lambda: cuzarr.copy(source, place, client=client, **new),
        "rechunk": lambda: cuzarr.rechunk(source, place, chunks=(-1, 2, 2), client=client, **new),
        "pyramid": lambda: cuzarr.pyramid(source, place, client=client, **new),
        "map_blocks": lambda: cuzarr.map_blocks(np.negative, source, client=client, **out),
        "map_blocks into an array": lambda: cuzarr.map_blocks(np.negative, source, out=target, client=client, **options),
        "reduce": lambda: cuzarr.reduce(spread, added, source, axis=0, client=client, **out),
        "store": lambda: (source + 1).store(target, client=client, **options),
    }


def refused(what: str, call: Callable[[], Any], error: Any, message: str, place: Any) -> None:
    """A worker is named, and nothing at the place is gone or new."""
    before = tree(place)
    with pytest.raises(error, match=message) as raised:
        call()
    assert isinstance(raised.value, cuzarr.errors.CuzarrError)
    assert raised.value.trail[0].startswith("worker tcp://"), what
    assert tree(place) == before, what


def test_a_target_that_workers_do_not_see_is_refused_before_it_is_touched(
    client: Any, source: cuzarr.Array, tmp_path: Path
) -> None:
    message = "another place than in the process of the client"
    for what, call in calls(source, Elsewhere(tmp_path / "out"), client).items():
        refused(what, call, InvalidArgumentError, message, tmp_path / "out")
    with pytest.raises(InvalidArgumentError, match="another place"):
        cuzarr.copy(source, Elsewhere(tmp_path / "new" / "deep"), client=client)
    assert not (tmp_path / "new").exists()


def test_a_source_that_workers_do_not_find_is_refused_before_the_target_is_touched(client: Any, tmp_path: Path) -> None:
    source = cuzarr.create_array(Elsewhere(tmp_path / "source"), data=VALUES, chunks=(3, 10, 4))
    for what, call in calls(source, tmp_path / "out", client).items():
        refused(what, call, InvalidArgumentError, "cannot find 'zarr.json' of the source", tmp_path / "out")
    for read in (
        lambda: source.sum().compute(client=client),
        lambda: (source.lazy[1:] - source.lazy[:-1]).compute(client=client),
        lambda: cuzarr.reduce(spread, added, source, client=client),
    ):
        with pytest.raises(InvalidArgumentError, match="cannot find 'zarr.json'"):
            read()


def test_a_worker_of_another_version_is_refused(client: Any, source: cuzarr.Array, tmp_path: Path) -> None:
    worker = min(client.scheduler_info(n_workers=-1)["workers"])
    client.run(claim_version, "0.0.9", workers=[worker])
    try:
        call = calls(source, tmp_path / "out", client)["copy"]
        refused("copy", call, cuzarr.errors.LibraryMissingError, f"{worker}: has cuzarr 0.0.9, expected", tmp_path / "out")
    finally:
        client.run(claim_version, cuzarr.__version__, workers=[worker])


def claim_version(version: str) -> None:
    cuzarr._core.__version__ = version


def test_a_worker_without_cuzarr_is_refused(source: cuzarr.Array, tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        client.run(forget, "cuzarr._compute.workers")
        call = calls(source, tmp_path / "out", client)["rechunk"]
        refused("rechunk", call, cuzarr.errors.LibraryMissingError, "cannot load what cuzarr", tmp_path / "out")


def forget(module: str) -> None:
    sys.modules[module] = None  # type: ignore[assignment]  # so that importing it fails

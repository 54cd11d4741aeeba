"""Functions of the user's over blocks: equal to the function over the whole, in any grid, with errors that name the block."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr._compute.blocks import BlockInfo
from cuzarr._compute.results import Target
from cuzarr.errors import (
    BudgetExceededError,
    CuzarrError,
    DTypeMismatchError,
    InvalidArgumentError,
    ReadOnlyError,
    ShapeMismatchError,
)

VALUES = np.random.default_rng(3).normal(size=(40, 30, 8)).astype("float32")


@pytest.fixture
def source(tmp_path: Path) -> cuzarr.Array:
    array = cuzarr.create_array(tmp_path / "source", shape=VALUES.shape, chunks=(8, 7, 8), dtype="float32")
    array[...] = VALUES
    return array


def doubled(block: Any) -> Any:
    """Twice the block, on whichever device it is."""
    if isinstance(block, np.ndarray):
        return block * 2
    host = block.cpu() if isinstance(block, cuzarr.DeviceArray) else block
    return cuzarr.DeviceArray.from_host(host * 2, block.device) if isinstance(block, cuzarr.DeviceArray) else block * 2


def test_results_are_stored_block_by_block_within_the_limit(source: cuzarr.Array, tmp_path: Path, device: str) -> None:
    seen = []

    def f(block: Any, block_info: Any) -> Any:
        seen.append(block_info)
        return doubled(block)

    out = cuzarr.map_blocks(f, source, out=tmp_path / "out", chunks=(5, 10, 4), device=device, memory_limit="128 KiB")
    assert out.chunks == (5, 10, 4) and out.dtype == np.float32
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "out", device="cpu")[...], VALUES * 2)
    assert len(seen) > 1 and [info.number for info in seen] == list(range(len(seen)))
    assert all(start % chunk == 0 for info in seen for start, chunk in zip(info.start, (5, 10, 4), strict=True))
    assert max(np.prod(info.shape) for info in seen) * 4 * 4 <= 64 << 10


def test_shapes_broadcast_and_numbers_and_arrays_in_memory_are_handed_over(source: cuzarr.Array) -> None:
    plane = cuzarr.create_array({}, data=VALUES[0], chunks=(3, 8))
    column = np.arange(40.0, dtype="float32").reshape(40, 1, 1)
    got = cuzarr.map_blocks(lambda a, b, c, d: a * b + c + d, source, plane, column, 3, memory_limit="64 KiB")
    np.testing.assert_array_equal(got, VALUES * VALUES[0] + column + 3)
    number = cuzarr.create_array({}, data=np.float32(2), chunks=())
    np.testing.assert_array_equal(cuzarr.map_blocks(lambda a, b: a * b, source, number, memory_limit="64 KiB"), VALUES * 2)


def test_a_halo_makes_stencils_independent_of_blocks(source: cuzarr.Array) -> None:
    def smooth(block: np.ndarray) -> np.ndarray:
        padded = np.pad(block, ((1, 1), (0, 0), (0, 0)), mode="edge")
        return padded[:-2] + padded[1:-1] + padded[2:]

    got = cuzarr.map_blocks(smooth, source, overlap=(1, 0, 0), memory_limit="64 KiB", chunks=(4, 30, 8))
    np.testing.assert_array_equal(got, smooth(VALUES))


def test_errors_name_the_block_and_keep_their_type(source: cuzarr.Array) -> None:
    def f(block: Any, block_info: Any) -> Any:
        if block_info.number == 2:
            raise ZeroDivisionError("nothing to divide by")
        return block

    with pytest.raises(ZeroDivisionError) as raised:
        cuzarr.map_blocks(f, source, out={}, memory_limit="64 KiB")
    assert raised.value.__notes__[0].startswith("in block 2 of ")
    with pytest.raises(ShapeMismatchError, match="returned shape"):
        cuzarr.map_blocks(lambda block: block[0], source)
    with pytest.raises(CuzarrError):
        cuzarr.map_blocks(
            lambda block: block, cuzarr.Array(source.store_path / "..nowhere", source.metadata, {"read_missing_chunks": False})
        )


def test_arguments_without_meaning_are_named(source: cuzarr.Array) -> None:
    with pytest.raises(ShapeMismatchError):
        cuzarr.map_blocks(np.add, source, np.zeros(7))
    with pytest.raises(InvalidArgumentError, match="overlap"):
        cuzarr.map_blocks(np.sin, source, overlap=-1)
    with pytest.raises(InvalidArgumentError, match="overlaps the source"):
        cuzarr.map_blocks(np.sin, source, out=source)
    with pytest.raises(InvalidArgumentError, match="needs an array in a store"):
        cuzarr.map_blocks(np.sin, VALUES)
    with pytest.raises(BudgetExceededError):
        cuzarr.map_blocks(np.sin, source, memory_limit=1024)


def test_progress_counts_blocks_and_types_are_converted(source: cuzarr.Array) -> None:
    told: list[tuple[int, int | None]] = []
    out = cuzarr.create_array({}, shape=VALUES.shape, chunks=(8, 7, 8), dtype="int16")
    cuzarr.map_blocks(lambda b: b * 100, source, out=out, memory_limit="64 KiB", progress=lambda *now: told.append(now))
    np.testing.assert_array_equal(out[...], (VALUES * 100).astype("int16"))
    assert told[-1][0] == told[-1][1] == len(told)


def test_an_array_without_elements_maps_to_one() -> None:
    empty = cuzarr.create_array({}, shape=(0, 4), chunks=(1, 4), dtype="int8")
    assert cuzarr.map_blocks(lambda block: block, empty).shape == (0, 4)
    assert cuzarr.map_blocks(lambda block: block, empty, out={}, dtype="int16").dtype == np.int16


def test_kernels_of_ours_and_of_cupy_work_on_blocks(source: cuzarr.Array, gpu: str) -> None:
    if not gpu.startswith("cuda"):
        pytest.skip("skipped: kernels of other libraries need a GPU")
    settings: dict[str, Any] = {"device": gpu, "memory_limit": "256 KiB"}
    square = cuzarr.kernels.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    ours = cuzarr.map_blocks(lambda block: square(block), source, out={}, **settings)
    np.testing.assert_array_equal(ours.with_device("cpu")[...], VALUES * VALUES)
    cupy = pytest.importorskip("cupy")
    theirs = cupy.ElementwiseKernel("T x", "T y", "y = x * x", "squared")
    got = cuzarr.map_blocks(theirs, source, out={}, **settings)
    np.testing.assert_array_equal(got.with_device("cpu")[...], VALUES * VALUES)


def test_kernels_of_numba_work_on_blocks(source: cuzarr.Array, gpu: str, request: pytest.FixtureRequest) -> None:
    if not gpu.startswith("cuda"):
        pytest.skip("skipped: kernels of other libraries need a GPU")
    cupy = pytest.importorskip("cupy")
    numba_cuda = request.getfixturevalue("numba_cuda")

    @numba_cuda.jit  # type: ignore[untyped-decorator]
    def kernel(x: Any, y: Any) -> None:
        at = numba_cuda.grid(1)
        if at < x.size:
            y[at] = x[at] * x[at]

    def by_numba(block: Any) -> Any:
        result = cupy.empty_like(block)
        kernel[(block.size + 255) // 256, 256](block.ravel(), result.ravel())
        return result

    got = cuzarr.map_blocks(by_numba, source, out={}, device=gpu, memory_limit="256 KiB")
    np.testing.assert_array_equal(got.with_device("cpu")[...], VALUES * VALUES)


def test_a_target_that_is_read_is_refused_before_it_is_replaced(tmp_path: Path) -> None:
    values = np.arange(100.0)
    array = cuzarr.create_array(tmp_path / "a", data=values, chunks=(10,))
    memory: dict[str, Any] = {}
    kept = cuzarr.create_array(memory, data=values, chunks=(10,))
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for source, out in [
        (array, tmp_path / "a"),
        (array, tmp_path / "link"),
        (array, tmp_path / "a" / "in"),
        (array, tmp_path),
        (kept, memory),
    ]:
        with pytest.raises(InvalidArgumentError, match="overlaps the source"):
            cuzarr.map_blocks(lambda block: block + 1, source, out=out, overwrite=True, memory_limit=1024)
    with pytest.raises(InvalidArgumentError, match="overlaps the source"):
        (kept * 2).store(cuzarr.open_array(memory))
    np.testing.assert_array_equal(array[...], values)
    np.testing.assert_array_equal(kept[...], values)
    cuzarr.map_blocks(lambda block: block + 1, array, out=tmp_path, name="b", memory_limit=1024)
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "b")[...], values + 1)


def test_work_that_was_interrupted_goes_on_behind_what_is_finished(source: cuzarr.Array, tmp_path: Path) -> None:
    seen: list[int] = []

    def f(block: Any, block_info: Any) -> Any:
        seen.append(block_info.number)
        if broken and block_info.number == 2:
            raise RuntimeError("stop")
        return block.astype("float64") * 2

    def run() -> cuzarr.Array:
        # Results are of another type than the source, which nobody said.
        place = {"out": tmp_path / "out", "chunks": (5, 10, 4), "memory_limit": "128 KiB", "resume": True, "compressors": None}
        return cuzarr.map_blocks(f, source, device="cpu", **place)

    broken = True
    with pytest.raises(RuntimeError, match="stop"):
        run()
    begun, broken = list(seen), False
    seen.clear()
    out = run()
    assert begun == [0, 1, 2] and seen == list(range(4))[-len(seen) :] and len(seen) >= 2, (begun, seen)
    np.testing.assert_array_equal(out[...], VALUES * 2)
    assert not list((tmp_path / "out").glob(".cuzarr*"))
    seen.clear()
    run()
    assert seen[0] == 0, "what is complete begins anew"
    with pytest.raises(InvalidArgumentError, match="resume=True needs an array"):
        cuzarr.map_blocks(f, source, resume=True)


def test_chunks_of_a_new_array_are_chosen_as_create_array_chooses_them() -> None:
    class Counting(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            assert "c/" not in key or key not in self, "each object is written once"
            super().__setitem__(key, value)

    plane = cuzarr.create_array({}, data=VALUES[0], chunks=(3, 8))
    column = np.ones((40, 1, 1), "float32")
    wider = cuzarr.map_blocks(lambda a, b: a * b, plane, column, out=Counting(), memory_limit="1 MiB")
    assert wider.chunks == cuzarr.create_array({}, shape=(40, 30, 8), dtype="float32").chunks
    for chunks, shards, chosen in [
        ("auto", None, (30, 8)),
        (False, None, (30, 8)),
        (-1, None, (30, 8)),
        ((2, 4), {"shape": (10, 8)}, (2, 4)),
    ]:
        got = cuzarr.map_blocks(lambda a: a + 1, plane, out=Counting(), chunks=chunks, shards=shards, memory_limit="16 KiB")
        assert got.chunks == chosen and got.shards == (shards and (10, 8))
        np.testing.assert_array_equal(got[...], VALUES[0] + 1)
    with pytest.raises(InvalidArgumentError, match="3 dimensions"):
        cuzarr.map_blocks(lambda a: a, plane, out={}, chunks=(1, 2, 3))


def test_arrays_of_zarr_python_are_read_by_blocks_and_not_written_over(source: cuzarr.Array) -> None:
    zarr = pytest.importorskip("zarr")
    theirs = zarr.open_array(source.store.root, mode="r")  # type: ignore[attr-defined]
    np.testing.assert_array_equal(cuzarr.map_blocks(np.negative, theirs, memory_limit="128 KiB"), -VALUES)
    assert cuzarr.reduce(np.max, np.maximum, theirs, memory_limit="128 KiB") == VALUES.max()
    with pytest.raises(InvalidArgumentError, match="overlaps the source"):
        cuzarr.map_blocks(np.negative, theirs, out=source.store_path, overwrite=True)
    np.testing.assert_array_equal(source[...], VALUES)


def test_xarray_misses_no_zero_of_a_new_array_of_format_2(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    values = np.arange(-8, 24).reshape(4, 8)
    named = cuzarr.create_array({}, data=values, chunks=(2, 4), dimension_names=("y", "x"))
    cuzarr.create_group(tmp_path, zarr_format=2)
    cuzarr.map_blocks(np.negative, named, out=tmp_path / "a", zarr_format=2)
    found = xarray.open_zarr(tmp_path, consolidated=False)["a"]
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, -values)
    chosen = cuzarr.map_blocks(np.negative, named, out={}, zarr_format=2, fill_value=7)
    assert chosen.fill_value == 7


def test_new_arrays_have_the_names_of_the_dimensions(tmp_path: Path) -> None:
    named = cuzarr.create_array({}, data=VALUES[0], chunks=(3, 8), dimension_names=("time", "x"))
    row = cuzarr.create_array({}, data=VALUES[0, 0], chunks=(8,), dimension_names=("other",))
    assert cuzarr.map_blocks(np.add, row, named, out={}).metadata.dimension_names == ("time", "x")
    assert cuzarr.map_blocks(np.negative, named, out={}, dimension_names=("a", "b")).metadata.dimension_names == ("a", "b")
    renamed = cuzarr.create_array({}, data=VALUES[0], chunks=(3, 8), dimension_names=("time", "y"))
    assert cuzarr.map_blocks(np.add, named, renamed, out={}).metadata.dimension_names is None
    for keepdims, names in [(True, ("time", "x")), (False, ("x",))]:
        sums = cuzarr.reduce(lambda block: block.sum(axis=0), np.add, named, axis="time", keepdims=keepdims, out={})
        assert sums.metadata.dimension_names == names
    older = cuzarr.map_blocks(np.negative, named, out={}, zarr_format=2, attributes={"units": "K"})
    assert older.attrs.asdict() == {"_ARRAY_DIMENSIONS": ["time", "x"], "units": "K"}
    with cuzarr.config.set({"default_zarr_format": 2}):
        assert cuzarr.map_blocks(np.negative, named, out={}).attrs.asdict() == {"_ARRAY_DIMENSIONS": ["time", "x"]}
    cuzarr.save(tmp_path / "saved", named)
    assert cuzarr.open_array(tmp_path / "saved").metadata.dimension_names == ("time", "x")


def test_an_array_that_was_opened_for_reading_is_not_written(tmp_path: Path) -> None:
    source = cuzarr.create_array(tmp_path / "source", data=np.arange(4.0), chunks=(2,))
    cuzarr.create_array(tmp_path / "out", data=np.zeros(4), chunks=(2,))
    cuzarr.create_array(tmp_path / "sum", data=np.zeros(()))
    out, total = (cuzarr.open_array(tmp_path / name, mode="r") for name in ("out", "sum"))
    for write in (
        lambda: (source + 1).store(out),
        lambda: cuzarr.map_blocks(np.negative, source, out=out),
        lambda: cuzarr.reduce(np.sum, np.add, source, axis=0, out=total),
        lambda: cuzarr.map_blocks(np.negative, source, out=out, resume=True),
    ):
        with pytest.raises(ReadOnlyError, match="reading only"):
            write()
    assert out[...].tolist() == [0, 0, 0, 0] and total[()] == 0


def test_a_function_cannot_write_to_the_callers_operands() -> None:
    z = cuzarr.create_array({}, data=np.ones(4), chunks=(2,))
    for operand in (np.ones(4), np.ones(()), np.ones((4,))[::-1]):
        before = operand.copy()
        with pytest.raises(ValueError, match="read-only"):
            cuzarr.map_blocks(lambda block, own: np.add(block, own, out=own) + block, z, operand)
        with pytest.raises(ValueError, match="read-only"):
            cuzarr.reduce(lambda block, own: np.multiply(own, 5, out=own).sum(), np.add, z, operand)
        np.testing.assert_array_equal(operand, before)
        assert operand.flags.writeable


@pytest.mark.parametrize("stores", [False, True], ids=["memory", "store"])
@pytest.mark.parametrize(
    ("later", "kind"),
    [(lambda block: block + 0.5, "float64"), (lambda block: block * 1j, "complex128")],
    ids=["parts", "imaginary"],
)
def test_results_that_do_not_fit_the_type_of_the_first_are_refused(stores: bool, later: Any, kind: str) -> None:
    z = cuzarr.create_array({}, data=np.arange(12), chunks=(2,))

    def f(block: Any, block_info: Any) -> Any:
        return block if block_info.number == 0 else later(block)

    def run(**options: Any) -> Any:
        return cuzarr.map_blocks(f, z, memory_limit=256, **({"out": {}} if stores else {}), **options)

    with pytest.raises(DTypeMismatchError, match=f"elements of {kind}, which do not all fit int64, .* first result") as raised:
        run()
    assert raised.value.hint == "pass dtype=, the type of all results"
    assert run(dtype=kind)[[0, -1]].tolist() == [0, later(11)]
    narrow = cuzarr.map_blocks(lambda block, block_info: block.astype("i2" if block_info.number else "i8"), z, memory_limit=256)
    assert narrow.dtype == np.int64 and narrow.tolist() == list(range(12))


def test_results_along_an_axis_that_do_not_fit_the_first_are_refused() -> None:
    z = cuzarr.create_array({}, data=np.arange(8).reshape(4, 2), chunks=(2, 1))
    with pytest.raises(DTypeMismatchError, match="elements of float64, which do not all fit int64"):
        cuzarr.reduce(
            lambda block: block.sum(0) if block[0, 0] % 2 == 0 else block.sum(0) + 0.5, np.add, z, axis=0, memory_limit=128
        )


def test_masked_operands_and_results_are_refused(tmp_path: Path) -> None:
    z = cuzarr.create_array({}, data=np.arange(4.0), chunks=(2,))
    masked = np.ma.masked_less(np.arange(4.0), 2)
    for call in (
        lambda: cuzarr.map_blocks(np.add, z, masked),
        lambda: cuzarr.map_blocks(lambda block: np.ma.masked_less(block, 2), z),
        lambda: cuzarr.reduce(np.sum, np.add, z, masked),
    ):
        with pytest.raises(InvalidArgumentError, match="masked array, whose mask would be lost") as raised:
            call()
        assert raised.value.hint == "fill it first: x.filled(value)"


def test_results_are_written_two_at_a_time_and_count_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = np.arange(5 << 20, dtype="uint8").reshape(-1, 1 << 10)
    source = cuzarr.create_array({}, data=values, chunks=(64, 1 << 10), compressors=None)
    monkeypatch.setattr(cuzarr._core, "region_shape", lambda *arguments: [512, 1 << 10])
    write, (began, both) = Target.write, (threading.Event(), threading.Event())
    seen: list[int] = []

    def slow(self: Target, place: BlockInfo, result: Any) -> None:
        if place.number == 0:
            began.set()
            both.wait(30)
            if broken:
                raise OSError("full")
        elif place.number == 1 and began.wait(30):
            write(self, place, result)
            both.set()
            return
        write(self, place, result)

    def f(block: Any, block_info: BlockInfo) -> Any:
        seen.append(block_info.number)
        return block + 1

    monkeypatch.setattr(Target, "write", slow)
    broken = True
    with pytest.raises(OSError, match="full"):
        cuzarr.map_blocks(f, source, out=tmp_path, chunks=(64, 1 << 10), dtype="uint8", resume=True)
    assert both.is_set(), "the second result is written while the first one is"
    broken, seen[:] = False, []
    counts: list[int] = []
    out = cuzarr.map_blocks(
        f, source, out=tmp_path, chunks=(64, 1 << 10), dtype="uint8", resume=True, progress=lambda now, _: counts.append(now)
    )
    assert seen == list(range(10)), "the second result does not count without the first"
    assert counts == sorted(counts) and counts[-1] == 10
    np.testing.assert_array_equal(out[...], values + 1)


_LIMITED: dict[str, Callable[[cuzarr.Array, cuzarr.Array, int], Any]] = {
    "map_blocks": lambda a, b, limit: cuzarr.map_blocks(np.negative, a, out={}, chunks=(100, 116), memory_limit=limit)[...],
    "map_blocks of two": lambda a, b, limit: cuzarr.map_blocks(np.add, a, b, memory_limit=limit)[...],
    "reduce": lambda a, b, limit: cuzarr.reduce(np.max, np.maximum, a, memory_limit=limit),
    "reduce along an axis": lambda a, b, limit: cuzarr.reduce(
        lambda x: x.max(0), np.maximum, a, axis=0, out={}, memory_limit=limit
    )[...],
    "store": lambda a, b, limit: (a * 2 + b).store({}, memory_limit=limit)[...],
    "compute": lambda a, b, limit: (a * 2 + b).compute(memory_limit=limit),
    "mean": lambda a, b, limit: (a + b).mean(axis=0).compute(memory_limit=limit),
    "std": lambda a, b, limit: (a * 1).std(axis=0).compute(memory_limit=limit),
    "median": lambda a, b, limit: cuzarr.xp.median(a + b, axis=0).compute(memory_limit=limit),
    "quantile": lambda a, b, limit: cuzarr.xp.quantile(a * 1, 0.3, axis=0).compute(memory_limit=limit),
    "histogram": lambda a, b, limit: cuzarr.xp.histogram(a * 1)[0].compute(memory_limit=limit),
    "cumsum": lambda a, b, limit: (a * 1).cumsum(axis=0).store({}, memory_limit=limit)[...],
    "rechunk": lambda a, b, limit: cuzarr.rechunk(a, {}, chunks=(100, 116), memory_limit=limit)[...],
    "copy": lambda a, b, limit: cuzarr.copy(a, {}, memory_limit=limit)[...],
    "pyramid": lambda a, b, limit: cuzarr.pyramid(a, {}, memory_limit=limit),
}


@pytest.mark.parametrize("chunks", [((300, 350), (100, 116)), ((600, 700), (600, 50)), ((50, 700), (300, 350))])
@pytest.mark.parametrize("work", _LIMITED)
def test_a_limit_that_is_too_small_is_answered_with_one_that_is_enough(work: str, chunks: Any) -> None:
    rng = np.random.default_rng(5)
    one, two = (cuzarr.create_array({}, data=rng.normal(size=(600, 700)), chunks=own, compressors="zstd") for own in chunks)
    limit, tries = 4096.0, 0
    while True:
        try:
            _LIMITED[work](one, two, int(limit))
            break
        except BudgetExceededError as small:
            text = f"{small} {small.hint}"
            assert "`" not in text
            named, times = re.search(r"(?:to at least|to) (\d+) bytes", text), re.search(r"to ([\d.]+) times", text)
            assert named or times, text
            raised = float(named[1]) if named else limit * float(times[1]) + 1  # type: ignore[index]
            assert raised > limit, (limit, text)
            limit, tries = raised, tries + 1
    assert 1 <= tries <= 5 and limit <= 64 << 20

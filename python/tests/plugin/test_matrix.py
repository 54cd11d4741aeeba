"""The conformance matrix through zarr-python: every case, every kind of selection, reading and writing.

What zarr-python's own pipeline reads and writes in host memory is the truth; a GPU's prototypes with cuzarr's pipeline have to
give the same bits. Without a GPU a part of the cases runs with prototypes of the host.
"""

from __future__ import annotations

import contextlib
import random
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import numcodecs.errors
import numpy as np
import pytest

zarr = pytest.importorskip("zarr", minversion="3.4")

from conformance import cases, engines  # noqa: E402
from conformance.cases import Case  # noqa: E402
from plugin.test_zarr_gpu import PROBLEM  # noqa: E402

import cuzarr.zarr  # noqa: E402

# CuPy's element types. What else there is, zarr-python holds in host memory alone.
CASES = [
    case
    for case in cases.all_cases()
    if case.data_type.numpy.kind in "biufc" and case.data_type.numpy.isnative and not case.data_type.is_variable
]
KINDS = ("basic", "orthogonal", "coordinate", "mask", "block")
STORES = zarr.storage.MemoryStore


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """zarr-python warns of every data type and codec without a specification."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def selections(case: Case) -> Iterator[tuple[str, Any]]:
    """Selections of every kind that the shape allows, drawn by the case's own id."""
    choose = random.Random(zlib.crc32(f"selections of {case.id}".encode()))
    shape = case.shape
    yield "basic", ...
    for selection in (*case.selections, cases.selection(shape, choose), cases.selection(shape, choose)):
        yield "basic", selection
    if not shape or 0 in shape:
        return
    for _ in range(2):
        yield "orthogonal", tuple(_along(extent, choose) for extent in shape)
    points = choose.sample(range(int(np.prod(shape))), min(7, int(np.prod(shape))))
    yield "coordinate", tuple(np.asarray(axis) for axis in np.unravel_index(points, shape))
    mask = np.zeros(shape, bool)
    mask[np.unravel_index(points, shape)] = True
    yield "mask", mask
    outer = case.shards or case.chunks
    yield "block", tuple(_block(-(-extent // chunk), choose) for extent, chunk in zip(shape, outer, strict=True))


def _along(extent: int, choose: random.Random) -> Any:
    kind = choose.choice(["list", "list", "mask", "slice", "integer"])
    if kind == "integer":
        return choose.randrange(extent)
    if kind == "slice":
        return slice(choose.randrange(extent), extent, choose.choice([1, 2]))
    places = choose.sample(range(extent), choose.randint(1, extent))
    if kind == "list":
        return places
    mask = np.zeros(extent, bool)
    mask[places] = True
    return mask


def _block(count: int, choose: random.Random) -> Any:
    at = choose.randrange(count)
    return choose.choice([at, slice(at, count), slice(None)])


def to_host(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value.get() if hasattr(value, "get") else value)


def check(case: Case, on_gpu: bool) -> set[str]:
    """Compares all selections of a case. Gives the kinds that were compared."""
    if on_gpu:
        from zarr.buffer.gpu import buffer_prototype as prototype
    else:
        from zarr.buffer.cpu import buffer_prototype as prototype
    store = STORES()
    try:
        truth = engines.Library("zarr").create(store, case)  # type: ignore[arg-type]
    except numcodecs.errors.UnknownCodecError as error:
        pytest.skip(f"skipped: {error}")
    done = set()
    for kind, selection in selections(case):
        expected = np.asarray(getattr(truth, f"get_{kind}_selection")(selection))
        value = np.asarray(case.data()).ravel()[: expected.size].reshape(expected.shape)[...]
        theirs = _copy(store)
        # What a lossy codec makes of an element is compared by the conformance matrix: zarr-python's pipeline rounds some twice.
        with cuzarr.zarr.enable() if case.chain.lossy else contextlib.nullcontext():
            getattr(zarr.open_array(theirs), f"set_{kind}_selection")(selection, value)
            after = np.asarray(zarr.open_array(theirs)[...])
        with cuzarr.zarr.enable():
            ours = _copy(store)
            array = zarr.open_array(ours)
            found = getattr(array, f"get_{kind}_selection")(selection, prototype=prototype)
            # CuPy makes arrays without dimensions by filling them, and takes -0.0 for 0.0.
            given = prototype.nd_buffer.from_numpy_array(value.reshape(-1)).as_ndarray_like().reshape(value.shape)
            getattr(array, f"set_{kind}_selection")(selection, given, prototype=prototype)
        assert to_host(found).tobytes() == expected.tobytes(), f"reading {kind} {selection!r}"
        assert np.asarray(zarr.open_array(ours)[...]).tobytes() == after.tobytes(), f"writing {kind} {selection!r}"
        if on_gpu and expected.ndim:
            assert hasattr(found, "__cuda_array_interface__"), f"reading {kind} {selection!r} left the GPU"
        done.add(kind)
    return done


def _copy(store: Any) -> Any:
    return STORES(dict(store._store_dict))


@pytest.mark.skipif(PROBLEM is not None, reason=f"skipped: {PROBLEM}")
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_every_selection_is_read_and_written_on_a_gpu_as_on_the_host(case: Case) -> None:
    check(case, on_gpu=True)


def test_every_selection_is_read_and_written_as_by_zarr_pythons_pipeline() -> None:
    done: set[str] = set()
    for case in CASES[::40]:
        done |= check(case, on_gpu=False)
    assert done == set(KINDS) and len(CASES) >= 1000

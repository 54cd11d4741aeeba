"""A plan is of arrays as they were when it was made: it is refused by name after they were resized, replaced or deleted."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rounds import Rounds

import cuzarr
from cuzarr.errors import (
    ArrayNotFoundError,
    BoundsCheckError,
    CuzarrError,
    DTypeMismatchError,
    InvalidArgumentError,
    ShapeMismatchError,
)

TRUTH = np.arange(1.0, 13).reshape(6, 2)
PLANS: dict[str, Callable[[cuzarr.Array], Any]] = {
    "elements": lambda z: z * 1,
    "a view": lambda z: z.lazy[1:5] + 1,
    "points": lambda z: z.lazy.vindex[[0, 2], [0, 1]] + 1,
    "a mean": lambda z: z.mean(axis=0),
    "a mean in it": lambda z: z - z.mean(axis=0),
    "a median": lambda z: cuzarr.xp.median(z),
    "a histogram": lambda z: cuzarr.xp.histogram(z, 3)[0],
    "running sums": lambda z: cuzarr.xp.cumsum(z, axis=0),
    "joined": lambda z: cuzarr.xp.concatenate([z, z * 2]),
}


@pytest.fixture(params=[2, 3], ids=["format 2", "format 3"])
def stored(request: pytest.FixtureRequest) -> tuple[Any, cuzarr.Array]:
    store: dict[str, Any] = {}
    return store, cuzarr.create_array(store, name="w", data=TRUTH, chunks=(2, 2), zarr_format=request.param)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("other", [False, True], ids=["own handle", "another handle"])
@pytest.mark.parametrize("shape", [(3, 2), (8, 2)], ids=["shorter", "longer"])
def test_plans_of_a_resized_array_are_refused(
    stored: tuple[Any, cuzarr.Array], plan: Callable[[cuzarr.Array], Any], other: bool, shape: tuple[int, int]
) -> None:
    store, w = stored
    made = plan(w)
    (cuzarr.open_array(store, path="w") if other else w).resize(shape)
    with pytest.raises(ShapeMismatchError, match=rf"'/w' .*its shape was \[6, 2\], and is \[{shape[0]}, 2\]") as raised:
        made.compute()
    assert "make the plan again" in str(raised.value.hint)
    assert np.isfinite(np.asarray(plan(cuzarr.open_array(store, path="w")).compute())).all()


def test_an_append_is_a_change(stored: tuple[Any, cuzarr.Array]) -> None:
    _, w = stored
    total = w.sum()
    w.append(TRUTH[:1])
    with pytest.raises(ShapeMismatchError, match=r"and is \[7, 2\]"):
        total.compute()


def test_a_deleted_array_is_no_array_of_fill_values(stored: tuple[Any, cuzarr.Array]) -> None:
    store, w = stored
    total = w.sum()
    del cuzarr.open_group(store)["w"]
    with pytest.raises(ArrayNotFoundError, match="'/w' .*it was deleted"):
        total.compute()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"dtype": "<i8"}, DTypeMismatchError, "its data type was float64, and is int64"),
        ({"dtype": "<f8", "chunks": (3, 2)}, InvalidArgumentError, r"its chunk shape was \[2, 2\], and is \[3, 2\]"),
        ({"dtype": "<f8", "compressors": None}, InvalidArgumentError, "its list of codecs was .*, and is "),
        ({"dtype": "<f8", "fill_value": 7}, InvalidArgumentError, r"its fill value was 0.0, and is 7.0"),
    ],
)
def test_an_array_that_took_the_place_is_another_one(changes: dict[str, Any], error: type[CuzarrError], words: str) -> None:
    store: dict[str, Any] = {}
    w = cuzarr.create_array(store, name="w", data=TRUTH, chunks=(2, 2))
    total = w.sum()
    cuzarr.create_array(store, name="w", **{"shape": (6, 2), "chunks": (2, 2), "overwrite": True, **changes})
    with pytest.raises(error, match=words):
        total.compute()


def test_a_change_of_attributes_and_of_elements_is_none(stored: tuple[Any, cuzarr.Array]) -> None:
    store, w = stored
    total = w.sum()
    other = cuzarr.open_array(store, path="w")
    other.attrs["units"] = "K"
    other[0] = 100
    assert total.compute() == TRUTH[1:].sum() + 200


CALLS: dict[str, Callable[[Any, Path], Any]] = {
    "compute": lambda plan, _: plan.compute(),
    "compute into": lambda plan, _: plan.compute(out=np.empty((6, 2))),
    "a part": lambda plan, _: plan[1:3],
    "store": lambda plan, place: plan.store(place / "out.zarr", chunks=(2, 2)),
    "resumable store": lambda plan, place: plan.store(place / "out.zarr", chunks=(2, 2), resume=True),
    "explain": lambda plan, _: plan.explain(),
    "another process": lambda plan, _: pickle.loads(pickle.dumps(plan)).compute(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_way_to_run_a_plan_looks_at_its_arrays(call: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    w = cuzarr.create_array(tmp_path / "w.zarr", data=TRUTH, chunks=(2, 2))
    plan = w * 2
    cuzarr.open_array(tmp_path / "w.zarr").resize((3, 2))
    with pytest.raises(ShapeMismatchError, match=r"w.zarr.*its shape was \[6, 2\], and is \[3, 2\]"):
        call(plan, tmp_path)


@pytest.mark.parametrize(
    "call",
    [lambda w: cuzarr.map_blocks(lambda block: block, w), lambda w: cuzarr.reduce(np.sum, np.add, w)],
    ids=["map_blocks", "reduce"],
)
def test_blocks_of_an_array_that_another_handle_changed_are_refused(call: Callable[[cuzarr.Array], Any]) -> None:
    store: dict[str, Any] = {}
    w = cuzarr.create_array(store, data=TRUTH, chunks=(2, 2))
    cuzarr.open_array(store).resize((3, 2))
    with pytest.raises(ShapeMismatchError, match=r"and is \[3, 2\]") as raised:
        call(w)
    assert raised.value.hint == "open the array again"
    call(cuzarr.open_array(store))


def test_a_plan_reads_one_document_for_each_array() -> None:
    store = Rounds()
    group = cuzarr.create_group(store)
    arrays = [group.create_array(name, data=TRUTH, chunks=(6, 2)) for name in "uvw"]
    plan = arrays[0] + arrays[1] * arrays[2].lazy[::-1] + arrays[0].mean()
    store.reads, reads = 0, store.reads
    plan.compute()
    assert store.reads == 3 + 4, f"3 documents, and chunks of 3 arrays, one of them twice; {reads} before"


def test_consolidated_metadata_are_trusted_where_an_array_is_only_read(tmp_path: Path) -> None:
    place = tmp_path / "g.zarr"
    cuzarr.create_group(place).create_array("w", data=TRUTH, chunks=(2, 2))
    cuzarr.consolidate_metadata(place)
    document = (place / "w" / "zarr.json").read_text()
    assert '"shape": [' in document
    # A writer that does not know the copy leaves the documents like this.
    (place / "w" / "zarr.json").write_text(document.replace("6,", "8,", 1))
    read = cuzarr.open_group(place, mode="r")["w"]
    assert read.shape == (6, 2)
    assert float((read * 1).sum().compute()) == TRUTH.sum()


def test_other_libraries_read_no_array_that_was_resized_meanwhile() -> None:
    dask = pytest.importorskip("cuzarr.dask")
    w = cuzarr.create_array({}, data=TRUTH, chunks=(2, 2))
    total = dask.from_cuzarr(w).sum()
    assert total.compute(scheduler="threads") == TRUTH.sum()
    w.resize((3, 2))
    with pytest.raises(ShapeMismatchError, match=r"its shape was \(6, 2\), and is \(3, 2\)"):
        total.compute(scheduler="threads")


def test_a_view_of_an_array_that_was_resized_is_refused(stored: tuple[Any, cuzarr.Array]) -> None:
    _, w = stored
    view = w.lazy[2:6]
    w.resize((3, 2))
    with pytest.raises(CuzarrError):
        view.result()
    with pytest.raises(CuzarrError):
        (view + 1).compute()


@pytest.mark.parametrize(
    "make", [cuzarr.from_array, lambda store, data: cuzarr.create_array(store, data=data)], ids=["from_array", "data="]
)
def test_arrays_are_not_made_of_the_bits_of_another_type(stored: tuple[Any, cuzarr.Array], make: Callable[..., Any]) -> None:
    store, w = stored
    cuzarr.create_array(
        store, name="w", data=TRUTH.astype("i8"), chunks=(2, 2), overwrite=True, zarr_format=w.metadata.zarr_format
    )
    for function in (np.mean, np.median, lambda x: np.mean(x.lazy[1:]), lambda x: make({}, data=x)):
        with pytest.raises(DTypeMismatchError, match="'/w'"):
            function(w)
    assert (make({}, data=cuzarr.open_array(store, path="w"))[:] == TRUTH).all()


def test_a_handle_reads_by_the_shape_that_it_knows(tmp_path: Path) -> None:
    """Reading elements reads no document: `docs/guide/stores.md` says so."""
    first = cuzarr.create_array(tmp_path / "z.zarr", shape=(6,), chunks=(2,), dtype="i4", fill_value=-1)
    first[:] = np.arange(6)
    stale = cuzarr.open_array(tmp_path / "z.zarr", mode="r+")
    first.resize((1,))
    assert stale.shape == (6,) and stale[:].tolist() == [0, 1, -1, -1, -1, -1], "the chunk at the edge keeps an element"
    with pytest.raises(ShapeMismatchError):
        (stale + 0).compute()
    assert cuzarr.open_array(tmp_path / "z.zarr", mode="r")[:].tolist() == [0]
    first.resize((8,))
    with pytest.raises(BoundsCheckError):
        stale[7]
    assert stale.append(np.array([9], "i4")) == (9,)
    assert stale[8] == 9, "an append reads the document"

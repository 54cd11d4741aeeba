"""Random programs: an array is written, resized and read by every kind of selection, beside NumPy and zarr-python.

``RANDOM_PROGRAMS=20000 pytest tests/test_programs.py -k zarr_python`` runs so many programs instead of a few hundred.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import gpu_device
from devices import on, to_host

import cuzarr

zarr = pytest.importorskip("zarr", minversion="3.4")
from programs import (  # noqa: E402
    DTYPES,
    Refusal,
    Step,
    a_slice,
    after,
    edges,
    ends_below,
    grid,
    is_array,
    is_empty_mask,
    numpys,
    outcome,
    parted,
    plain,
    positions,
    program,
    same,
    stored,
    values,
)

DEVICES = ["cpu", *filter(None, [gpu_device()[0]])]


@pytest.fixture(autouse=True)
def rectilinear() -> Iterator[None]:
    with cuzarr.config.set({"array.rectilinear_chunks": True}), zarr.config.set({"array.rectilinear_chunks": True}):
        yield


def created(choose: random.Random, store: Any, device: str) -> cuzarr.Array:
    ndim, zarr_format = choose.choice([1, 2, 2, 3]), choose.choice([2, 3, 3])
    chunks = tuple(choose.randint(1, 5) for _ in range(ndim))
    dtype = choose.choice(DTYPES if device == "cpu" else [name for name in DTYPES if name != "string"])
    options: dict[str, Any] = {"compressors": choose.choice([None, "auto"]), "config": {"order": choose.choice("CF")}}
    options["chunk_key_encoding"] = {"name": "v2" if zarr_format == 2 else "default", "separator": choose.choice("./")}
    if zarr_format == 3:
        order = choose.sample(range(ndim), ndim)
        options["filters"] = choose.choice([None, cuzarr.codecs.TransposeCodec(order=order)]) if dtype != "string" else None
        options["shards"] = choose.choice([None, tuple(choose.randint(1, 3) * chunk for chunk in chunks)])
    else:
        options["order"] = choose.choice("CF")
    shape = tuple(choose.randint(0 if choose.random() < 0.1 else 2, 9) for _ in range(ndim))
    grid: Any = chunks
    if zarr_format == 3 and choose.random() < 0.4:
        lengths = [edges(choose, extent, chunk if options["shards"] else 1) for extent, chunk in zip(shape, chunks, strict=True)]
        shape = tuple(map(sum, lengths))
        if options["shards"]:
            options["shards"] = lengths
        else:
            grid = lengths
    return cuzarr.create_array(store, shape=shape, chunks=grid, dtype=dtype, zarr_format=zarr_format, device=device, **options)


def selected(choose: random.Random, shape: tuple[int, ...]) -> tuple[str, Any, Any]:
    """A kind of selection, what selects, and the same for NumPy."""
    kind = choose.choice(["basic", "orthogonal", "coordinate", "mask"])
    if kind == "mask":
        mask = np.array([choose.random() < 0.4 for _ in range(int(np.prod(shape)))], bool).reshape(shape)
        return kind, mask, mask
    if kind == "basic" or 0 in shape:
        items = tuple(choose.randrange(n) if n and choose.random() < 0.3 else a_slice(choose, n) for n in shape)
        return "basic", items, items
    # No element twice: which value it gets is nobody's promise.
    if kind == "orthogonal":
        indices = tuple(np.array(choose.sample(range(n), choose.randint(1, n))) for n in shape)
        return kind, indices, np.ix_(*indices)
    places = choose.sample(range(int(np.prod(shape))), min(5, int(np.prod(shape))))
    return kind, np.unravel_index(places, shape), np.unravel_index(places, shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(40))
def test_program_does_what_numpy_does(seed: int, device: str) -> None:
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    store = zarr.storage.MemoryStore()
    array = created(choose, store, device)
    expected = np.full(array.shape, array.fill_value, array.dtype)
    for _ in range(8):
        match choose.choice(["write", "write", "read", "append", "resize"]):
            case "write":
                kind, selection, same = selected(choose, array.shape)
                shape = np.shape(expected[same])
                value = values(rng, array.dtype, choose.choice([shape, shape, ()]))
                getattr(array, f"set_{kind}_selection")(selection, value)
                expected[same] = value
            case "read":
                kind, selection, same = selected(choose, array.shape)
                got = to_host(getattr(array, f"get_{kind}_selection")(selection))
                np.testing.assert_array_equal(got, expected[same])
            case "append":
                axis = choose.randrange(array.ndim)
                more = tuple(choose.randrange(4) if place == axis else n for place, n in enumerate(array.shape))
                value = values(rng, array.dtype, more)
                array.append(value, axis=axis)
                expected = np.concatenate([expected, value], axis=axis)
            case "resize":
                # To whole objects: of others a part would stay stored, and come back.
                shape = tuple(
                    choose.choice([*itertools.accumulate(sizes, initial=0), extent + choose.randint(0, 9)])
                    for sizes, extent in zip(array.write_chunk_sizes, array.shape, strict=True)
                )
                resized = np.full(shape, array.fill_value, array.dtype)
                kept = tuple(slice(min(pair)) for pair in zip(resized.shape, expected.shape, strict=True))
                resized[kept] = expected[kept]
                array.resize(resized.shape)
                expected = resized
    np.testing.assert_array_equal(to_host(array[...]), expected)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], expected)


@dataclass
class Case:
    """A step of a program, and what two libraries made of it."""

    step: Step
    array: Any
    theirs: Any
    ours: Any

    @property
    def items(self) -> tuple[Any, ...]:
        """The items of the selection, without names of fields."""
        return parted(self.step)[1]

    @property
    def is_refused(self) -> bool:
        """Whether zarr-python refused it."""
        return isinstance(self.theirs, Refusal)

    def selected(self) -> Any:
        """The places of the elements that are meant."""
        return outcome(lambda: plain(self.step, self.array).run(positions(self.array)))

    def repeats(self) -> bool:
        """Whether an element is written more than once."""
        places = np.asarray(self.selected())
        return self.step.writes and len(np.unique(places)) < places.size

    def changes_shape(self) -> bool:
        """Whether a value is written that has another shape than what is selected."""
        value = outcome(lambda: np.asarray(self.step.value, None if hasattr(self.step.value, "dtype") else self.array.dtype))
        if isinstance(value, Refusal):
            value = outcome(lambda: np.asarray(self.step.value))
        return self.step.writes and (isinstance(value, Refusal) or np.shape(value) not in ((), np.shape(self.selected())))


def has_ellipsis(items: tuple[Any, ...]) -> bool:
    return any(item is Ellipsis for item in items)


# The differences that CORRECTNESS.md lists by these names, and where they are met. There cuzarr does what NumPy does.
EXCUSES: dict[str, Callable[[Case], bool]] = {
    "fields": lambda case: bool(parted(case.step)[0]),
    "empty masks": lambda case: case.is_refused and any(map(is_empty_mask, case.items)),
    "ellipsis beside arrays": lambda case: case.is_refused and has_ellipsis(case.items) and any(map(is_array, case.items)),
    "ends of block slices": lambda case: (
        "block" in case.step.way and any(ends_below(item, min(grid(case.array), default=0)) for item in case.items)
    ),
    "lists for points": lambda case: (
        isinstance(case.step.value, list | tuple) and "block" not in case.step.way and not case.changes_shape()
    ),
    "single values": lambda case: case.step.writes and np.isscalar(case.step.value) and isinstance(case.ours, Refusal),
    "points named twice": lambda case: not case.is_refused and case.repeats() and not case.changes_shape(),
    "memory for points": lambda case: case.is_refused and case.step.out is not None,
    "shapes of values": Case.changes_shape,
}


def excuse(case: Case, before: Any) -> str | None:
    """The name of the excuse for a difference, if there is one and cuzarr did as NumPy does."""
    if not same(case.ours, numpys(case.step, case.array, before)):
        return None
    return next((name for name, holds in EXCUSES.items() if holds(case)), None)


def test_programs_do_what_zarr_python_does() -> None:
    found: list[str] = []
    used: dict[str, int] = dict.fromkeys(EXCUSES, 0)
    for seed in range(int(os.environ.get("RANDOM_PROGRAMS", 350))):
        for step, array, copied in program(seed):
            store = copied()
            before = stored(store)
            case = Case(
                step, zarr.open_array(copied()), after(step, array, array.store), after(step, cuzarr.open_array(store), store)
            )
            if isinstance(case.ours, Refusal):
                if not isinstance(case.ours.error, cuzarr.errors.CuzarrError) or not same(stored(store), before):
                    found.append(f"{seed}: {step}: refused by {case.ours.error!r}, or written in part")
            if same(case.theirs, case.ours) and isinstance(case.theirs, np.ndarray) == isinstance(case.ours, np.ndarray):
                continue  # scalars where zarr-python gives scalars
            if (name := excuse(case, before)) is None:
                found.append(f"{seed}: {array.metadata.to_dict()}: {step}: zarr-python {case.theirs}, cuzarr {case.ours}")
            else:
                used[name] += 1
    print(used)
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:20])
    assert all(used.values()), f"excuses that nothing needs: {used}"


def test_excused_differences_are_in_the_document() -> None:
    text = (Path(__file__).parents[2] / "CORRECTNESS.md").read_text("utf-8").partition("### Selections and writes\n")[2]
    table = text.partition("\n#")[0]
    assert sorted(re.findall(r"^\| ([a-z ]+) \|", table, re.M)) == sorted([*EXCUSES, "name"])


def placed(device: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Numbers that are written to numbers on a device; all else, which devices do not convert, as it is."""
    is_moved = isinstance(value, np.ndarray) and value.dtype.kind in "biufc" and value.dtype.isnative and value.size
    return on(device, value) if is_moved and dtype.kind in "biufc" else value


def native(elements: Any) -> Any:
    if not elements.ndim:
        return elements[()]
    return elements if elements.dtype.kind in "OT" else elements.astype(elements.dtype.newbyteorder("="))


def test_programs_do_on_a_device_what_they_do_on_the_host(gpu: str) -> None:
    found = []
    for seed in range(int(os.environ.get("RANDOM_PROGRAMS", 60))):
        for step, array, copied in program(seed):
            if step.out is not None:
                continue  # memory of the host, which elements of a device do not go to

            stores = [copied(), copied()]
            host = after(step, cuzarr.open_array(stores[0], device="cpu"), stores[0])
            device = after(
                step,
                cuzarr.open_array(stores[1], device=gpu),
                stores[1],
                lambda value, dtype=array.dtype: placed(gpu, value, dtype),
            )
            if not step.writes and not isinstance(host, Refusal) and not isinstance(device, Refusal):
                # Elements on a device are in the machine's byte order.
                host, device = (native(to_host(each)) for each in (host, device))
            if not same(host, device):
                found.append(f"{seed}: {array.metadata.to_dict()}: {step}: host {host}, device {device}")
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:20])

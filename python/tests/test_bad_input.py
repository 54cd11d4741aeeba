"""What cannot be done is refused by name, and leaves what is stored as it is: nothing lost, nothing half-written."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import (
    BudgetExceededError,
    CuzarrError,
    DeviceUnavailableError,
    DTypeMismatchError,
    InvalidArgumentError,
    ShapeMismatchError,
    UnknownCodecError,
    UnsupportedError,
)

VALUES = np.arange(64.0, dtype="float32").reshape(8, 8)
OTHER = -np.arange(16.0, dtype="float32").reshape(4, 4)


class Place:
    """An array ``a`` in a group, another one in memory, a place where something is and one where nothing is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.new = folder, folder / "new"
        self.group = cuzarr.create_group(folder / "group")
        self.a = self.group.create_array("a", data=VALUES, chunks=(4, 4))
        self.there = self.a.store_path
        self.b = cuzarr.create_array({}, data=OTHER, chunks=(2, 2))
        self.dates = cuzarr.create_array({}, data=np.zeros(4, "M8[s]"), chunks=(2,))
        self.text = cuzarr.create_array({}, shape=(3,), dtype=str, chunks=(1,))

    def check(self) -> None:
        np.testing.assert_array_equal(cuzarr.open_array(self.folder / "group" / "a")[...], VALUES)
        assert not self.new.exists() or not [path for path in self.new.rglob("*") if path.is_file()]


def half(block: Any) -> Any:
    return block / 2


REFUSED: dict[str, list[tuple[type[Exception], Callable[[Place], Any]]]] = {
    "shapes that do not broadcast": [
        (ShapeMismatchError, lambda p: p.a + np.zeros(3)), (ShapeMismatchError, lambda p: cuzarr.xp.where(p.a > 0, p.b, 0)),
        (ShapeMismatchError, lambda p: cuzarr.map_blocks(np.add, p.a, p.b, out=p.new)), (ShapeMismatchError, lambda p: (p.a + 1).store(p.b)),
        (ShapeMismatchError, lambda p: cuzarr.reduce(np.add, np.add, p.a, p.b, axis=0, out=p.new)),
        (ShapeMismatchError, lambda p: cuzarr.map_blocks(lambda block: block[0], p.a, out=p.new)),
        (ShapeMismatchError, lambda p: p.a.append(OTHER)),
    ],
    "types without meaning for the function": [
        (DTypeMismatchError, lambda p: cuzarr.xp.sin(p.dates)), (DTypeMismatchError, lambda p: p.dates.mean()), (DTypeMismatchError, lambda p: p.a & 1),
        (DTypeMismatchError, lambda p: cuzarr.xp.median(p.text)), (DTypeMismatchError, lambda p: (p.a * 1j).max()), (DTypeMismatchError, lambda p: p.a + p.text),
        (DTypeMismatchError, lambda p: p.a.astype("U3")), (UnsupportedError, lambda p: cuzarr.map_blocks(half, p.text, out=p.new)),
        (UnsupportedError, lambda p: cuzarr.pyramid(p.text, p.new)), (InvalidArgumentError, lambda p: cuzarr.pyramid(p.dates, p.new)),
        (CuzarrError, lambda p: cuzarr.map_blocks(lambda block: block.astype(object), p.a, out=p.new)),
    ],
    "functions of the user's that fail": [
        (ZeroDivisionError, lambda p: cuzarr.map_blocks(lambda block: 1 // 0, p.a, out=p.new)),
        (ZeroDivisionError, lambda p: cuzarr.map_blocks(lambda block: 1 // 0, p.b, out=p.there, overwrite=True)),
        (ZeroDivisionError, lambda p: cuzarr.reduce(lambda block: 1 // 0, np.add, p.a, axis=0, out=p.new)),
        (TypeError, lambda p: cuzarr.map_blocks(np.hypot, p.a, out=p.new)), (InvalidArgumentError, lambda p: cuzarr.reduce(np.sum, lambda *_: None, p.a, memory_limit=1000)),
    ],
    "targets that overlap their source": [
        (InvalidArgumentError, call) for call in [
            lambda p: cuzarr.copy(p.a, p.there, overwrite=True), lambda p: cuzarr.copy(p.group, p.there, overwrite=True),
            lambda p: cuzarr.copy(p.a, p.group.store_path, overwrite=True), lambda p: cuzarr.rechunk(p.a, p.there, chunks=2, overwrite=True),
            lambda p: cuzarr.pyramid(p.a, p.there, overwrite=True), lambda p: cuzarr.map_blocks(half, p.a, out=p.there, overwrite=True),
            lambda p: cuzarr.map_blocks(half, p.a, out=p.a), lambda p: cuzarr.reduce(np.sum, np.add, p.a, axis=0, out=p.there, overwrite=True),
            lambda p: (p.a + 1).store(p.a), lambda p: (p.a - p.a.mean(axis=0)).store(p.a), lambda p: cuzarr.create_array(p.there, data=p.a, overwrite=True),
            lambda p: cuzarr.from_array(p.there, data=p.a, overwrite=True), lambda p: cuzarr.array(p.a, store=p.there, overwrite=True),
            lambda p: cuzarr.create(store=p.there, data=p.a, shape=p.a.shape, overwrite=True), lambda p: cuzarr.save_array(p.there, p.a, overwrite=True),
            lambda p: cuzarr.save_array(p.there, p.a, mode="w"), lambda p: cuzarr.save(p.there, p.a, p.a), lambda p: cuzarr.save_group(p.group.store_path, b=p.a),
            lambda p: p.group.__setitem__("a", p.a), lambda p: p.group.create_array("a", data=p.a, overwrite=True),
        ]
    ],
    "plans in the place of elements": [
        (InvalidArgumentError, call) for call in [
            lambda p: p.group.__setitem__("a", p.a * 2), lambda p: p.group.__setitem__("b", p.a * 2), lambda p: cuzarr.create_array(p.there, data=p.b * 2, overwrite=True),
            lambda p: cuzarr.create_array(p.new, data=p.a * 2), lambda p: cuzarr.array(p.a * 2, store=p.new), lambda p: cuzarr.save_array(p.there, p.b * 2, mode="w"),
            lambda p: cuzarr.save(p.new, p.a * 2), lambda p: cuzarr.save_group(p.group.store_path, a=p.b * 2),
            lambda p: cuzarr.create(store=p.new, data=p.a * 2, shape=p.a.shape),
        ]
    ] + [
        (UnsupportedError, lambda p: cuzarr.map_blocks(np.add, p.b, p.a * 2, out=p.there, overwrite=True)),
        (UnsupportedError, lambda p: cuzarr.reduce(np.sum, np.add, p.a * 2)),
    ],
    "budgets too small for one chunk": [
        (BudgetExceededError, call) for call in [
            lambda p: (p.a + 1).compute(memory_limit=100), lambda p: p.a.mean(axis=0).compute(memory_limit=100), lambda p: cuzarr.xp.median(p.a, axis=0).compute(memory_limit=100),
            lambda p: cuzarr.xp.histogram(p.a)[0].compute(memory_limit=100), lambda p: cuzarr.map_blocks(half, p.a, out=p.new, memory_limit=100),
            lambda p: cuzarr.map_blocks(half, p.b, out=p.there, overwrite=True, memory_limit=100), lambda p: cuzarr.reduce(np.sum, np.add, p.a, memory_limit=100),
            lambda p: cuzarr.reduce(np.sum, np.add, p.a, axis=0, out=p.new, memory_limit=100), lambda p: cuzarr.copy(p.a, p.new, memory_limit=100),
            lambda p: cuzarr.copy(p.b, p.there, overwrite=True, memory_limit=50), lambda p: cuzarr.copy(p.group, p.new, memory_limit=100),
            lambda p: cuzarr.rechunk(p.a, p.new, chunks=8, memory_limit=500), lambda p: cuzarr.pyramid(p.a, p.new, levels=2, memory_limit=100),
            lambda p: cuzarr.pyramid(p.b, p.there, overwrite=True, memory_limit=50), lambda p: cuzarr.pyramid(p.b, p.group.store_path, overwrite=True, memory_limit=50),
        ]
    ],
    "settings without meaning": [
        (InvalidArgumentError, lambda p: cuzarr.rechunk(p.a, p.new, chunks=(1, 2, 3))), (InvalidArgumentError, lambda p: cuzarr.rechunk(p.a, p.new, chunks=0)),
        (InvalidArgumentError, lambda p: cuzarr.rechunk(p.a, p.new, chunks=2, shards=3)), (UnknownCodecError, lambda p: cuzarr.map_blocks(half, p.a, out=p.new, compressors="nope")),
        (CuzarrError, lambda p: cuzarr.copy(p.a, p.new, compressors="nope")), (InvalidArgumentError, lambda p: cuzarr.pyramid(p.a, p.new, method="median")),  # type: ignore[arg-type]
        (InvalidArgumentError, lambda p: cuzarr.map_blocks(half, p.a, out=p.new, chunks=0)), (TypeError, lambda p: cuzarr.map_blocks(half, p.a, out=p.new, colour=1)),
        (TypeError, lambda p: cuzarr.map_blocks(half, p.a, colour=1)), (TypeError, lambda p: cuzarr.map_blocks(half, p.b, out=p.a, zarr_format=2)),
        (InvalidArgumentError, lambda p: cuzarr.reduce(np.sum, np.add, p.a, resume=True)),
        (InvalidArgumentError, lambda p: cuzarr.copy(p.b, p.there, overwrite=True, resume=True)), (InvalidArgumentError, lambda p: cuzarr.xp.quantile(p.a, 2)),
    ],
    "devices that are not there": [
        (DeviceUnavailableError, call) for call in [
            lambda p: cuzarr.copy(p.a, p.new, device="cuda:99"), lambda p: cuzarr.copy(p.b, p.there, overwrite=True, device="cuda:99"),
            lambda p: cuzarr.copy(p.group, p.new, device="cuda:99"), lambda p: cuzarr.pyramid(p.b, p.there, overwrite=True, device="cuda:99"),
            lambda p: cuzarr.map_blocks(half, p.b, out=p.there, overwrite=True, device="cuda:99"), lambda p: (p.a + 1).compute(device="cuda:99"),
            lambda p: cuzarr.reduce(np.sum, np.add, p.a, device="cuda:99"), lambda p: cuzarr.xp.zeros(3, device="cuda:99"),
        ]
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_is_written_of(what: str, tmp_path: Path) -> None:
    for number, (kind, call) in enumerate(REFUSED[what]):
        place = Place(tmp_path / str(number))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(kind):
                call(place)
        try:
            place.check()
        except BaseException as error:
            error.add_note(f"number {number} of what is refused as {what}")
            raise


def test_what_is_appended_may_be_the_array_itself_or_a_plan_of_it(tmp_path: Path) -> None:
    a = Place(tmp_path).a
    assert a.append(a * 2) == (16, 8)
    assert a.append(a) == (32, 8)
    np.testing.assert_array_equal(a[...], np.concatenate([VALUES, VALUES * 2] * 2))

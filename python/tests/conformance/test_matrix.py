"""The conformance matrix: what zarr-python writes we read, and what we write zarr-python, tensorstore and zarrs read.

A case is an array (format, data type, codec chain, sharding, order, keys, fill value), the edits that fill it and the
selections that read it; `cases.py` makes thousands of them. Every bit is compared. A case that fails is a bug, or a line
in CORRECTNESS.md.

`CUZARR_TEST_ALL=1`, as `make test-all` sets it, runs every case. Without it, those in which any two traits meet are enough.
`CUZARR_CONFORMANCE_ENGINE=zarr` puts zarr-python in cuzarr's place, which checks the generator itself.
`CUZARR_TEST_DEVICE=cuda:0` reads into device memory.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import zarr

from . import cases, engines, excuses
from .cases import Case

ALL = cases.all_cases()
CASES = ALL if os.environ.get("CUZARR_TEST_ALL") == "1" else cases.some_cases()
EXCUSES = excuses.load()
REFERENCE = engines.Library("zarr")
OURS = engines.Library(os.environ.get("CUZARR_CONFORMANCE_ENGINE", "cuzarr"))
IDS = [case.id for case in CASES]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """A folder in memory where there is one: thousands of small files are written."""
    memory = pathlib.Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else tmp_path_factory.getbasetemp()
    folder = base / f"cuzarr-conformance-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def folder(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """A fresh folder for one case."""
    folder = root / "case"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """zarr-python warns of every data type and codec without a v3 specification; the matrix uses them on purpose."""
    with warnings.catch_warnings():
        for category in (zarr.errors.ZarrUserWarning, zarr.errors.UnstableSpecificationWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        yield


def judge(direction: str, case: Case, check: Callable[[], None]) -> None:
    """Runs a check; an excused case must still fail, or its excuse is out of date."""
    excuse = next((excuse for excuse in EXCUSES if excuse.covers(direction, case.id)), None)
    if excuse is None:
        check()
        return
    try:
        check()
    except Exception:
        return
    pytest.fail(f"passes although CORRECTNESS.md excuses it ({excuse.pattern}): narrow or delete that line")


def check_selections(array: object, expected: np.ndarray, case: Case) -> None:
    for selection in case.selections:
        engines.assert_same(array[selection], expected[selection], f"{selection!r}", case)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_reads_what_zarr_python_wrote(case: Case, folder: pathlib.Path) -> None:
    path = str(folder / "array")
    REFERENCE.create(path, case)
    expected = np.asarray(REFERENCE.open(path, case)[...], dtype=case.data_type.numpy)
    if not case.chain.lossy:
        engines.assert_same(expected, case.truth(), "zarr-python itself", case)

    def check() -> None:
        array = OURS.open(path, case)
        assert tuple(array.shape) == case.shape
        engines.assert_same(array[...], expected, "whole array", case)
        check_selections(array, expected, case)

    judge("read", case, check)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_writes_what_others_read(case: Case, folder: pathlib.Path) -> None:
    path, twin = str(folder / "array"), str(folder / "twin")

    def check() -> None:
        # Half of the arrays are asked for with zarr-python's own codec objects, which must be understood as well.
        OURS.create(path, case, own_codecs=len(case.id) % 2 == 0)
        got = REFERENCE.open(path, case)
        if case.chain.lossy:
            REFERENCE.create(twin, case)
            expected = REFERENCE.open(twin, case)[...]
        else:
            expected = case.truth()
        assert (got.chunks, got.shards) == (case.chunks, case.shards) or case.serializer is not None
        engines.assert_same(got[...], expected, "zarr-python", case)
        for name, reader in (("tensorstore", engines.tensorstore_reader(case)), ("zarrs", engines.zarrs_reader(case))):
            if reader:
                engines.assert_same(reader(path), expected, name, case)

    judge("write", case, check)


def test_the_matrix_is_as_large_and_as_ragged_as_promised() -> None:
    assert len(ALL) == len({case.id for case in ALL}) >= 2000
    assert sum(case.is_ragged for case in ALL) >= len(ALL) / 2
    assert sum(bool(case.selections) for case in ALL) >= len(ALL) / 4
    assert {case.zarr_format for case in ALL} == {2, 3}
    assert sum(engines.tensorstore_reader(case) is not None for case in ALL) >= 300
    assert sum(engines.zarrs_reader(case) is not None for case in ALL) >= 300


def test_any_two_traits_meet_in_some_case() -> None:
    some = cases.some_cases()
    assert len(some) < len(ALL) / 3

    def pairs(of: list[Case]) -> set[frozenset[str]]:
        return {frozenset(pair) for case in of for pair in itertools.combinations(cases.traits(case), 2)}

    assert pairs(some) == pairs(ALL)


def test_every_excuse_excuses_something() -> None:
    for excuse in EXCUSES:
        assert any(excuse.covers(direction, name) for name in (case.id for case in ALL) for direction in ("read", "write")), (
            excuse
        )


def test_excuses_are_read_from_the_page() -> None:
    page = f"{excuses.HEADING}\n\n| direction | pattern | why |\n|---|---|---|\n| read | `v3-*-x` | because |\n\n## Next\n| a | b | c |\n"
    [excuse] = excuses.parse(page)
    assert excuse.covers("read", "v3-int8-x")
    assert not excuse.covers("write", "v3-int8-x")
    assert not excuse.covers("read", "v2-int8-x")


def test_a_flipped_bit_is_seen() -> None:
    case = next(case for case in CASES if case.data_type.name == "float32" and case.is_ragged)
    expected = case.truth()
    got = expected.copy()
    engines.assert_same(got, expected, "copy", case)
    got.view("u4").flat[-1] ^= 1
    with pytest.raises(AssertionError, match="differs first at"):
        engines.assert_same(got, expected, "copy", case)


def test_an_excuse_that_no_longer_holds_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.test_matrix.EXCUSES", [excuses.Excuse("read", CASES[0].id, "because")])

    def fails() -> None:
        raise ValueError("as excused")

    judge("read", CASES[0], fails)
    with pytest.raises(pytest.fail.Exception, match="narrow or delete"):
        judge("read", CASES[0], lambda: None)
    with pytest.raises(ValueError, match="as excused"):
        judge("write", CASES[0], fails)

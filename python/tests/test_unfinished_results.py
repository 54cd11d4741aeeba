"""Results that a call did not complete: the array says so until all of it is written."""

import warnings
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import CuzarrUserWarning

MARK = "cuzarr_unfinished"
TRUTH = np.arange(64.0).reshape(8, 8)


class Full(OSError):
    """No space is left."""


def source(path: Any) -> cuzarr.Array:
    return cuzarr.create_array(path / "source.zarr", data=TRUTH, chunks=(2, 4), dimension_names=("y", "x"))


def doubled(block: Any) -> Any:
    return block * 2


def summed(block: Any) -> Any:
    return (block * 2).sum(axis=1)


def failing(block: Any, block_info: Any) -> Any:
    if block_info.number == 2:
        raise Full
    return block * 2


def stored(a: Any, place: Any, **given: Any) -> Any:
    return (a * 2).store(place, name="t", **given)


def mapped(a: Any, place: Any, **given: Any) -> Any:
    return cuzarr.map_blocks(doubled, a, out=place, name="t", **given)


def reduced(a: Any, place: Any, **given: Any) -> Any:
    return cuzarr.reduce(summed, np.add, a, axis=1, out=place, name="t", **given)


def broken_map(a: Any, place: Any) -> Any:
    return cuzarr.map_blocks(failing, a, out=place, name="t", memory_limit=1024)


WORK = [("store", stored), ("map_blocks", mapped), ("reduce", reduced)]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("name", "work"), WORK)
def test_a_complete_result_has_no_mark(tmp_path: Any, name: str, work: Any, zarr_format: int) -> None:
    group = cuzarr.create_group(tmp_path / "g.zarr", zarr_format=zarr_format)
    cuzarr.consolidate_metadata(tmp_path / "g.zarr")
    made = work(source(tmp_path), tmp_path / "g.zarr", zarr_format=zarr_format, attributes={"units": "K"})
    assert made.attrs["units"] == "K" and MARK not in made.attrs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for opened in (
            cuzarr.open_array(tmp_path / "g.zarr", path="t"),
            cuzarr.open_group(tmp_path / "g.zarr", mode="r")["t"],
            group["t"],
        ):
            assert MARK not in opened.attrs and opened.attrs["units"] == "K"
    expected = TRUTH * 2 if name != "reduce" else (TRUTH * 2).sum(axis=1)
    np.testing.assert_array_equal(made[...], expected)


@pytest.mark.parametrize(("name", "work"), WORK)
def test_an_incomplete_result_says_so_until_it_is_resumed(tmp_path: Any, name: str, work: Any) -> None:
    a = source(tmp_path)
    given = {"resume": True, "chunks": (2, 4)[: 1 if name == "reduce" else 2], "memory_limit": 1024}
    # A directory where a chunk belongs stops the call.
    blocked = tmp_path / "g.zarr" / "t" / "c" / "2" / ("" if name == "reduce" else "1")
    blocked.mkdir(parents=True)
    with pytest.raises(cuzarr.errors.CuzarrError, match="c/2"):
        work(a, tmp_path / "g.zarr", **given)
    blocked.rmdir()
    with pytest.warns(CuzarrUserWarning, match=f"unfinished {name}"):
        half = cuzarr.open_array(tmp_path / "g.zarr", path="t")
    assert half.attrs[MARK] == {"work": name}
    group = cuzarr.open_group(tmp_path / "g.zarr")
    assert f"(unfinished {name})" in str(group.tree())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = work(a, tmp_path / "g.zarr", **given)
    assert MARK not in made.attrs and MARK not in cuzarr.open_array(tmp_path / "g.zarr", path="t").attrs
    assert "unfinished" not in str(group.tree())
    expected = TRUTH * 2 if name != "reduce" else (TRUTH * 2).sum(axis=1)
    np.testing.assert_array_equal(made[...], expected)


@pytest.mark.parametrize("shape", [(0, 4), ()])
def test_results_without_elements_and_of_one_zero_are_resumed(tmp_path: Any, shape: tuple[int, ...]) -> None:
    a = cuzarr.create_array(tmp_path / "source.zarr", shape=shape, dtype="f8", chunks=(2, 2)[: len(shape)])
    for work in (stored, mapped):
        for _ in range(2):
            made = work(a, tmp_path / f"{work.__name__}.zarr", resume=True)
            assert made.shape == shape and MARK not in made.attrs


def test_a_function_that_fails_leaves_the_mark(tmp_path: Any) -> None:
    with pytest.raises(Full):
        broken_map(source(tmp_path), tmp_path / "g.zarr")
    with pytest.warns(CuzarrUserWarning, match="unfinished map_blocks"):
        assert cuzarr.open_array(tmp_path / "g.zarr", path="t").attrs[MARK] == {"work": "map_blocks"}


def test_an_archive_that_its_owner_closes_needs_no_mark(tmp_path: Any) -> None:
    with cuzarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as archive:
        assert MARK not in stored(source(tmp_path), archive).attrs
    assert MARK not in cuzarr.open_array(tmp_path / "a.zip", path="t", mode="r").attrs


def test_attributes_that_are_no_dictionary_are_refused_by_name(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match="attributes"):
        stored(source(tmp_path), tmp_path / "g.zarr", attributes=["units"])

"""Arrays of no dimensions and of no elements, as NumPy treats them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import CuzarrError, InvalidArgumentError

# Functions that NumPy lets have an axis 0 or -1 where there are no dimensions, and others.
REDUCING = "sum prod min max argmin argmax any all count_nonzero mean std var median".split()
REDUCING += "nansum nanprod nanmin nanmax nanargmin nanargmax nanmean nanstd nanvar nanmedian".split()
MOVING = "cumsum cumprod nancumsum nancumprod squeeze argsort sort flip".split()
OF_MEMORY = ("argsort", "sort")


def _numpys(name: str, *arguments: Any, **options: Any) -> Any:
    """What NumPy gives, or ``None`` where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(np, name)(*arguments, **options)
        except (ValueError, IndexError, TypeError):
            return None


def _check(got: Any, expected: Any) -> None:
    got = got.compute() if hasattr(got, "compute") else got
    assert np.shape(got) == np.shape(expected)
    assert np.asarray(got).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("axis", [0, -1, 1, (0,)])
@pytest.mark.parametrize("name", REDUCING + MOVING)
def test_axes_of_arrays_without_dimensions_are_numpys(name: str, axis: Any) -> None:
    value = np.array(2.5)
    expected = _numpys(name, value, axis=axis)
    stored = cuzarr.create_array({}, data=value)
    function = getattr(cuzarr.xp, name)
    for own in [value] if name in OF_MEMORY else [value, stored, stored + 0]:
        if expected is None:
            with pytest.raises(CuzarrError):
                function(own, axis=axis)
        else:
            _check(function(own, axis=axis), expected)


def test_elements_of_arrays_without_dimensions_are_taken_along_axis_0() -> None:
    value = np.array(2.5)
    stored = cuzarr.create_array({}, data=value)
    for axis in (0, -1):
        assert cuzarr.xp.take(stored, [0, 0], axis=axis).compute().tolist() == np.take(value, [0, 0], axis=axis).tolist()
    with pytest.raises(InvalidArgumentError):
        cuzarr.xp.take(stored, [0], axis=1)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians_of_no_elements_are_nan(name: str, dtype: str) -> None:
    for shape, axes in (((0,), [None, 0]), ((0, 3), [None, 0, 1, (0, 1)]), ((0, 0), [0])):
        data = np.zeros(shape, dtype)
        stored = cuzarr.create_array({}, data=data, chunks=tuple(extent or 1 for extent in shape))
        for axis in axes:
            for options in ({}, {"keepdims": True}):
                expected = _numpys(name, data, axis=axis, **options)
                for own in (data, stored, stored + 0):
                    _check(getattr(cuzarr.xp, name)(own, axis=axis, **options), expected)


@pytest.mark.parametrize("name", ["nanquantile", "nanpercentile"])
def test_quantiles_without_nan_of_no_elements_are_nan(name: str) -> None:
    data = np.zeros((0, 3), "f4")
    stored = cuzarr.create_array({}, data=data, chunks=(1, 3))
    for axis in (None, 0):
        _check(getattr(cuzarr.xp, name)(stored, 0.5, axis=axis), _numpys(name, data, 0.5, axis=axis))
    several = getattr(cuzarr.xp, name)(stored, [0.5, 0.25], axis=0).compute()
    assert several.shape == (2, 3) and np.isnan(several).all()


def test_quantiles_of_no_elements_are_refused_as_numpy_does() -> None:
    assert _numpys("quantile", np.zeros(0), 0.5) is None
    with pytest.raises(InvalidArgumentError, match="no elements"):
        cuzarr.xp.quantile(np.zeros(0), 0.5)


@pytest.mark.parametrize("beside", [{"prepend": 1}, {"append": 1}, {"prepend": 1, "append": np.array([2, 3])}, {}])
def test_no_differences_are_the_elements_themselves(beside: dict[str, Any]) -> None:
    data = np.arange(3)
    stored = cuzarr.create_array({}, data=data)
    for times in (0, 1):
        _check(cuzarr.xp.diff(data, times, **beside), np.diff(data, times, **beside))
        _check(cuzarr.xp.diff(stored, times, **beside), np.diff(data, times, **beside))

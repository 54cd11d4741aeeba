"""Keys of memory on a device: index arrays, masks, slices and new dimensions, beside NumPy's."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import SelectionInvalidError, ShapeMismatchError

VALUES = np.arange(-5.0, 7.0).reshape(3, 4) * 1.25


def a_key(choose: random.Random, shape: tuple[int, ...], device: str) -> tuple[Any, Any]:
    """A key of any kind for arrays of a shape: NumPy's, and the one with some of its arrays on a device."""
    items: list[Any] = []
    common = choose.choice([(), (3,), (2, 3), (0,)])
    axis = 0
    while axis < len(shape):
        extent, kind = shape[axis], choose.randrange(9)
        if kind == 0:
            items.append(choose.randrange(-extent, extent))
        elif kind in (1, 2):
            items.append(
                slice(choose.choice([None, -2, 1, 9]), choose.choice([None, -1, 3]), choose.choice([None, 1, 2, -1, -3]))
            )
        elif kind in (3, 4, 5):
            size = choose.choice([common, common[-1:], (1,)])
            items.append(np.array([choose.randrange(-extent, extent) for _ in range(math.prod(size))], "i8").reshape(size))
        elif kind == 6 and common == ():
            ndim = choose.randint(1, min(2, len(shape) - axis))
            extents = shape[axis : axis + ndim]
            items.append(np.array([choose.random() < 0.3 for _ in range(math.prod(extents))]).reshape(extents))
            axis += ndim - 1
            common = (1,)  # one mask goes with index arrays of one element
        elif kind == 7:
            items.append(None)
            axis -= 1
        else:
            items.append(
                Ellipsis if Ellipsis not in [item for item in items if not isinstance(item, np.ndarray)] else slice(None)
            )
            axis = len(shape) if items[-1] is Ellipsis and choose.random() < 0.5 else axis
        axis += 1

    def there(item: Any) -> Any:
        if not isinstance(item, np.ndarray):
            return item
        return choose.choice([item.tolist() if item.size else item, item, cuzarr.DeviceArray.from_host(item, device)])

    return tuple(items), tuple(map(there, items))


@pytest.mark.parametrize("seed", range(150))
def test_keys_of_any_kind_choose_what_they_choose_in_numpy(gpu: str, seed: int) -> None:
    choose = random.Random(seed)
    shape = tuple(choose.choice([1, 3, 4, 5]) for _ in range(choose.randint(1, 4)))
    truth = np.arange(math.prod(shape), dtype=choose.choice(["f4", "i2", "c16"])).reshape(shape)
    array = cuzarr.DeviceArray.from_host(truth, gpu)
    if choose.random() < 0.5:
        truth, array = truth.T[::-1], array.T[::-1]
    for _ in range(20):
        key, own = a_key(choose, truth.shape, gpu)
        try:
            expected = truth[key]
        except IndexError:
            with pytest.raises(SelectionInvalidError):
                array[own]
            continue
        got = array[own]
        assert got.shape == expected.shape, key
        np.testing.assert_array_equal(got.cpu(), expected, err_msg=repr(key))
        changed, mine = truth.copy(), array.copy()
        changed[key] = 7
        mine[own] = 7
        np.testing.assert_array_equal(mine.cpu(), changed, err_msg=repr(key))
        values = np.arange(expected.size, dtype="i2").reshape(expected.shape)
        values = (
            np.zeros_like(values) if len(np.unique(np.arange(truth.size).reshape(truth.shape)[key])) < values.size else values
        )
        # A view, whose memory is written.
        changed, mine = np.array(truth), cuzarr.DeviceArray.from_host(np.array(truth), gpu)
        changed[key] = values
        mine[own] = values if choose.random() < 0.5 else cuzarr.DeviceArray.from_host(values, gpu)
        np.testing.assert_array_equal(mine.cpu(), changed, err_msg=repr(key))


def test_masks_and_index_arrays_write_through_views(gpu: str) -> None:
    truth = np.arange(24.0).reshape(2, 3, 4)
    there = cuzarr.DeviceArray.from_host(truth, gpu)
    for array in (truth, there):
        view = array.transpose(2, 0, 1)[::-1]
        view[[0, 3], :, [1, 2]] = -1
        view[view > 20] = -2
        view[1, [0, 0]] = view[2, [1, 1]]
        array[array == 3] += 100
    np.testing.assert_array_equal(there.cpu(), truth)
    text = cuzarr.DeviceArray.from_host(np.array([b"abc", b"de", b"f"]), gpu)
    assert text[[2, 0]].tolist() == [b"f", b"abc"]
    text[np.array([True, False, True])] = b"x"
    assert text.tolist() == [b"x", b"de", b"x"]


def test_keys_that_do_not_fit_are_refused(gpu: str) -> None:
    there = cuzarr.DeviceArray.from_host(VALUES, gpu)
    keys = (
        [0.5],
        [3],
        np.s_[[0, 1], [0, 1, 2]],
        np.s_[0, 0, [0]],
        VALUES[1:] > 0,
        np.s_[..., [0], ...],
        [["a"]],
        there,
        "a",
        1.5,
        np.s_[:, :, None, 0],
    )
    for key in keys:
        before = there.cpu()
        with pytest.raises(SelectionInvalidError):
            there[key]
        with pytest.raises(SelectionInvalidError):
            there[key] = 0
        np.testing.assert_array_equal(there.cpu(), before)
    with pytest.raises(ShapeMismatchError):
        there[[0, 1]] = np.zeros((3, 4), "f4")


def test_device_arrays_show_their_values(gpu: str) -> None:
    small = cuzarr.DeviceArray.from_host(np.array([[1, 2], [3, 4]], "i2"), gpu)
    assert repr(small) == f"DeviceArray([[1, 2],\n             [3, 4]], dtype=int16, device={small.device!r})"
    assert (
        repr(cuzarr.DeviceArray.from_host(np.zeros((2, 900)), gpu))
        == f"<DeviceArray of shape (2, 900), dtype=float64, device={small.device!r}>"
    )

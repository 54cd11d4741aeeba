"""Reading into a caller's memory, with other element types, and many boxes at once."""

import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import cuzarr
from cuzarr._memory.box import basic_box
from cuzarr._node.array_io import get_box
from cuzarr._node.array_read import split
from cuzarr.errors import (
    BoundsCheckError,
    CuzarrError,
    DTypeMismatchError,
    InvalidArgumentError,
    SelectionInvalidError,
    ShapeMismatchError,
    UnsupportedError,
)


@pytest.fixture
def numbers():
    array = cuzarr.create_array({}, shape=(20, 12), chunks=(5, 4), shards=(10, 8), dtype="int16", fill_value=-3)
    array[:15] = np.arange(180, dtype="int16").reshape(15, 12)
    return array


def crops(numbers):
    return [(slice(at, at + 4), slice(at % 5, at % 5 + 6)) for at in (0, 13, 7, 16, 2)]


@pytest.mark.parametrize(
    "selection",
    [
        3,
        -20,
        slice(None),
        (3, 4),
        (slice(2, 19, 5), -1),
        (slice(-3, None), slice(1, 99, 7)),
        (),
        (slice(4, 4), 1),
        (19, slice(None, 0)),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_brackets_of_integers_and_slices_read_what_the_general_way_reads(numbers, selection, order):
    numbers = numbers.with_config({"order": order})
    result, general = numbers[selection], get_box(numbers, basic_box(selection, numbers.shape), None, None, None)
    np.testing.assert_array_equal(result, general)
    assert (type(result), result.dtype, result.shape) == (np.ndarray, general.dtype, general.shape)
    assert (result.strides, result.flags.writeable) == (general.strides, general.flags.writeable)


def test_brackets_of_integers_and_slices_follow_the_configuration_and_the_shape(numbers):
    last = numbers[19]
    with pytest.raises(BoundsCheckError):
        numbers[20]
    numbers.resize((21, 12))
    np.testing.assert_array_equal(numbers[20], np.full(12, -3))
    np.testing.assert_array_equal(numbers[19], last)
    with cuzarr.config.set({"memory_limit": 8}), pytest.raises(CuzarrError):
        numbers[3]
    with cuzarr.config.local({"ndbuffer": Noted}):
        assert isinstance(numbers[3], Noted.Memory)
    assert type(numbers[3]) is np.ndarray
    for wrong, error in [(1.5, IndexError), ((1, 2, 3), IndexError), (slice(9, 1, -1), IndexError), (slice("a"), IndexError)]:
        with pytest.raises(error):
            numbers[wrong]


class Noted(cuzarr.buffer.cpu.NDBuffer):
    """Memory of a caller's own class."""

    class Memory(np.ndarray):
        pass

    @classmethod
    def empty(cls, *, shape, dtype, order="C"):
        return cls(np.empty(shape, dtype, order).view(cls.Memory))


def test_elements_are_converted_on_the_way(numbers):
    everything = numbers[...]
    for dtype in ("float32", "int64", "uint8", ">f8"):
        read = numbers.read((slice(12, 18), 3), dtype=dtype)
        assert read.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(read, everything[12:18, 3].astype(dtype))
    assert numbers.read().dtype == np.int16


def test_the_memory_of_the_caller_decides_the_element_type(numbers):
    out = np.zeros((6, 12), "f4")
    assert numbers.read(slice(0, 6), out=out) is out
    np.testing.assert_array_equal(out, numbers[:6])
    with pytest.raises(ShapeMismatchError):
        numbers.read(slice(0, 5), out=out)
    for nothing in ([[0.0] * 12] * 6, "out"):
        with pytest.raises(InvalidArgumentError):
            numbers.read(slice(0, 6), out=nothing)
    for kind in "<i2", ">i2":
        still = np.zeros((6, 12), kind)
        still.flags.writeable = False
        with pytest.raises(InvalidArgumentError):
            numbers.read(slice(0, 6), out=still)
    with pytest.raises(DTypeMismatchError):
        numbers.read(slice(0, 6), out=out, dtype="f8")
    with pytest.raises(DTypeMismatchError):
        numbers.read(slice(0, 6), dtype="M8[s]")


def test_many_boxes_are_what_each_is(numbers):
    together = numbers.read_many(crops(numbers))
    for one, crop in zip(together, crops(numbers), strict=True):
        np.testing.assert_array_equal(one, numbers[crop])
    mixed = [*crops(numbers), (3, slice(None)), Ellipsis]
    for one, crop in zip(numbers.read_many(mixed, dtype="f8"), mixed, strict=True):
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, numbers[crop])
    assert numbers.read_many([]) == []


def test_many_boxes_fill_one_array(numbers):
    out = np.zeros((5, 4, 6), "f4")
    assert numbers.read_many(crops(numbers), out=out) is out
    np.testing.assert_array_equal(out, np.stack([numbers[crop] for crop in crops(numbers)]))
    with pytest.raises(ShapeMismatchError):
        numbers.read_many([*crops(numbers), (slice(0, 3), slice(0, 6))], out=out)
    with pytest.raises(ShapeMismatchError):
        numbers.read_many(crops(numbers)[:4], out=out)


def test_elements_of_variable_length_have_no_memory_of_their_own():
    words = cuzarr.create_array({}, shape=(3,), chunks=(2,), dtype="string")
    words[...] = np.array(["a", "bc", ""], dtype=object)
    assert [one.tolist() for one in words.read_many([slice(0, 2), slice(2, 3)])] == [["a", "bc"], [""]]
    with pytest.raises(UnsupportedError):
        words.read(out=np.zeros(3))


def test_a_box_is_divided_among_devices_where_chunks_begin(numbers):
    everything = numbers[...]
    for selection in (Ellipsis, slice(3, 18, 2), (slice(None), 5), (slice(12, 19), slice(2, 9))):
        for count in (1, 2, 3, 5):
            parts = numbers.read(selection, device=["cpu"] * count)
            assert len(parts) == count
            np.testing.assert_array_equal(np.concatenate(parts), everything[selection])
    starts = [part.start[0] for part in split(basic_box(Ellipsis, numbers.shape), numbers._metadata._grid, 2)]
    assert starts == [0, 10]
    assert numbers.read(slice(0, 4), device="cpu", dtype="f4").dtype == np.float32
    with pytest.raises(InvalidArgumentError):
        numbers.read(device=[])
    with pytest.raises(SelectionInvalidError):
        numbers.read((3, 3), device=["cpu", "cpu"])


def test_a_signal_ends_a_read_of_files_before_all_of_them_came(tmp_path):
    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    codec = cuzarr.codecs.numcodecs.BZ2(level=1)
    array = cuzarr.create_array(tmp_path / "a", shape=(80, 1 << 18), chunks=(1, 1 << 18), dtype="u1", compressors=codec)
    array[0] = np.random.default_rng(7).integers(0, 64, 1 << 18, dtype="u1")
    for number in range(1, 80):
        shutil.copytree(tmp_path / "a/c/0", tmp_path / f"a/c/{number}")
    with cuzarr.config.set({"threading.max_workers": 1}):
        begun = time.perf_counter()
        whole = array[...]
        taken_s = time.perf_counter() - begun
        before = signal.signal(signal.SIGALRM, stop)
        try:
            begun = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, taken_s / 10)
            with pytest.raises(Stopped):
                array[...]
            assert time.perf_counter() - begun < taken_s * 0.75
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        np.testing.assert_array_equal(array[7], whole[7])


class Waiting(dict):
    """A store whose chunks come when they are allowed to."""

    def __init__(self, of):
        super().__init__(of)
        self.asked, self.allowed = threading.Event(), threading.Event()

    def get(self, key, default=None):
        if "c/" in key:
            self.asked.set()
            assert self.allowed.wait(60)
        return super().get(key, default)

    __getitem__ = get


def test_memory_that_a_read_fills_is_lent_to_no_other_call(tmp_path):
    kept: dict = {}
    cuzarr.create_array(kept, data=np.arange(24, dtype="i4"), chunks=(24,))
    slow = Waiting(kept)
    array, other = cuzarr.open_array(slow, mode="r"), cuzarr.open_array(kept, mode="r+")
    memory = np.zeros(48, "i4")
    out = memory[:24]
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(array.read, out=out)
        assert slow.asked.wait(60)
        for view in (out, out[3:9], memory[20:30], memory[:24][::-1]):
            with pytest.raises(InvalidArgumentError, match="are being written"):
                other.read(slice(0, len(view)), out=view)
        with pytest.raises(InvalidArgumentError, match="are being written"):
            other[:] = out
        other.read(out=memory[24:])
        slow.allowed.set()
        reading.result(timeout=60)
    assert memory.tolist() == [*range(24)] * 2
    assert other.read(out=out) is out, "the memory is free again"


def test_threads_fill_parts_of_one_array():
    array = cuzarr.create_array({}, data=np.arange(4000, dtype="i4"), chunks=(100,))
    out = np.zeros(4000, "i4")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: array.read(slice(at, at + 100), out=out[at : at + 100]), range(0, 4000, 100)))
    np.testing.assert_array_equal(out, np.arange(4000))


@pytest.mark.parametrize("seed", range(12))
def test_boxes_of_integer_arrays_are_what_each_is(seed, device):
    dice = np.random.default_rng(seed)
    shape = tuple(dice.integers(1, 12, dice.integers(1, 4)))
    truth = dice.integers(0, 100, shape).astype("i4")
    array = cuzarr.create_array({}, data=truth, chunks=(4,) * len(shape), compressors="auto" if seed % 2 else None).with_device(
        device
    )
    count = int(dice.integers(0, 20))
    extent = dice.integers(0, np.array(shape) + 1)
    starts = dice.integers(0, np.array(shape) - extent + 1, (count, len(shape)))
    whole = array.read_boxes(starts, extent)
    assert whole.shape == (count, *extent)
    boxes = [tuple(slice(a, a + b) for a, b in zip(start, extent, strict=True)) for start in starts]
    if count:
        np.testing.assert_array_equal(cuzarr.xp.asnumpy(whole), np.stack([truth[box] for box in boxes]))
    extents = dice.integers(0, np.array(shape) + 1, (count, len(shape)))
    starts = dice.integers(0, np.array(shape) - extents + 1)
    values, offsets = array.read_ragged(starts.astype("u2"), extents, dtype="f8")
    assert offsets.tolist() == [0, *np.cumsum(extents.prod(1)).tolist()] and values.dtype == np.float64
    ragged = [
        truth[tuple(slice(a, a + b) for a, b in zip(*box, strict=True))].ravel() for box in zip(starts, extents, strict=True)
    ]
    np.testing.assert_array_equal(cuzarr.xp.asnumpy(values), np.concatenate([np.zeros(0), *ragged]))
    wide = cuzarr.xp.zeros((2 * int(offsets[-1]),), "int32", device=device)
    array.read_ragged(starts, extents, out=wide[::2])
    np.testing.assert_array_equal(cuzarr.xp.asnumpy(wide)[::2], np.concatenate([np.zeros(0, "i4"), *ragged]))


def test_rows_of_one_dimension_are_integers_alone():
    row = cuzarr.create_array({}, data=np.arange(20), chunks=(6,))
    np.testing.assert_array_equal(row.read_boxes([3, 17, 0], 3), [[3, 4, 5], [17, 18, 19], [0, 1, 2]])
    values, offsets = row.read_ragged(np.array([18, 0, 4]), np.array([2, 0, 3]))
    assert (values.tolist(), offsets.tolist()) == ([18, 19, 4, 5, 6], [0, 2, 2, 5])
    out = np.zeros((2, 2), "f4")
    assert row.read_boxes([1, 2], 2, out=out) is out
    assert out.tolist() == [[1, 2], [2, 3]]


def test_boxes_that_are_none_are_refused(numbers):
    for starts, extents in [
        ([[0, 0]], [21, 1]),
        ([[-1, 0]], [1, 1]),
        ([[0, 12]], [1, 1]),
        ([[0, 0], [19, 0]], [2, 1]),
    ]:
        box = len(starts) - 1
        with pytest.raises(BoundsCheckError, match=f"box {box} begins"):
            numbers.read_boxes(starts, extents)
        with pytest.raises(BoundsCheckError, match=f"box {box} begins"):
            numbers.read_ragged(starts, [extents] * len(starts))
    far = np.array([[2**63, 0]], "u8")
    for read in (lambda: numbers.read_boxes(far, [1, 1]), lambda: numbers.read_ragged(far, [[1, 1]])):
        with pytest.raises(BoundsCheckError, match="starts contain 9223372036854775808"):
            read()
    for wrong in ([-1, 1], [1, -(2**62)]):
        for starts in ([[0, 0]], np.zeros((0, 2), int)):
            with pytest.raises(BoundsCheckError, match="cannot extend"):
                numbers.read_boxes(starts, wrong)
    with pytest.raises(BoundsCheckError, match="cannot extend"):
        numbers.read_ragged([[0, 0]], [[-1, 1]])
    for starts, extent in [([0, 1], 3), ([[0.5, 1]], (1, 1)), ([[0, 0, 0]], (1, 1, 1)), ([["a", "b"]], (1, 1)), ([[0, 0]], 1)]:
        with pytest.raises(SelectionInvalidError):
            numbers.read_boxes(starts, extent)
    for starts, extents in [([[0, 0]], [[1, 1], [1, 1]]), ([[0, 0]], [1, 1]), ([0], [1]), ([[0, 0]], [[1.5, 1]])]:
        with pytest.raises(SelectionInvalidError):
            numbers.read_ragged(starts, extents)
    single = cuzarr.create_array({}, data=np.array(5))
    for read in (single.read_boxes, single.read_ragged):
        with pytest.raises(SelectionInvalidError):
            read(np.zeros((3, 0), int), np.zeros((3, 0), int))
    with pytest.raises(UnsupportedError):
        cuzarr.create_array({}, shape=(3,), dtype="string").read_boxes([0], 1)

"""Elements as arrays of Apache Arrow, read through the C data interface as its consumers do."""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import ImplicitHostCopyError, UnsupportedError


class Schema(ctypes.Structure):
    """``struct ArrowSchema``, as far as it is looked at."""


Schema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p), ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("children", ctypes.c_void_p), ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))), ("private_data", ctypes.c_void_p),
]  # fmt: skip


class Array(ctypes.Structure):
    """``struct ArrowArray``."""


Array._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64), ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(ctypes.c_void_p)), ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p), ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))), ("private_data", ctypes.c_void_p),
]  # fmt: skip

pointer: Callable[[Any, bytes], int] = ctypes.pythonapi.PyCapsule_GetPointer
ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def taken(exporter: Any, moves: bool = False) -> tuple[str, list[Any]]:
    """The format and the elements; as a consumer that moves the array out of its capsule, and lets it go itself."""
    first, second = exporter.__arrow_c_array__()
    schema = Schema.from_address(pointer(first, b"arrow_schema"))
    array = Array.from_address(pointer(second, b"arrow_array"))
    assert (array.null_count, array.offset, array.n_children, schema.n_children) == (0, 0, 0, 0)
    if moves:
        own = Array.from_buffer_copy(array)
        ctypes.memset(ctypes.addressof(array) + Array.release.offset, 0, ctypes.sizeof(ctypes.c_void_p))
        del second
        gc.collect()
        array = own
    kind, buffers = schema.format.decode(), [array.buffers[place] for place in range(array.n_buffers)]
    assert buffers[0] is None
    if kind in "UZ":
        offsets = np.ctypeslib.as_array((ctypes.c_int64 * (array.length + 1)).from_address(buffers[1])).tolist()
        data = ctypes.string_at(buffers[2], offsets[-1])
        found = [data[start:end] for start, end in itertools.pairwise(offsets)]
        elements: list[Any] = [one.decode() for one in found] if kind == "U" else found
    elif kind == "b":
        bits = np.frombuffer(ctypes.string_at(buffers[1], -(-array.length // 8)), "u1")
        elements = np.unpackbits(bits, count=array.length, bitorder="little").astype(bool).tolist()
    else:
        dtype = np.dtype(
            {
                "c": "i1",
                "C": "u1",
                "s": "i2",
                "S": "u2",
                "i": "i4",
                "I": "u4",
                "l": "i8",
                "L": "u8",
                "e": "f2",
                "f": "f4",
                "g": "f8",
            }[kind]
        )
        elements = np.frombuffer(ctypes.string_at(buffers[1], array.length * dtype.itemsize), dtype).tolist()
    if moves:
        array.release(ctypes.byref(array))
        assert not array.release
    return kind, elements


WORDS = ["Aare", "", "Zürich 🏔", "a\0b", "x" * 300] * 7


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("layout", [{}, {"shards": (16,)}, {"zarr_format": 2}])
def test_strings_and_bytes_are_handed_over(moves: bool, layout: dict[str, Any]) -> None:
    text = cuzarr.create_array({}, shape=(35,), chunks=(8,), dtype="string", **layout)
    assert taken(text, moves) == ("U", [""] * 35)
    text[...] = np.array(WORDS, object)
    assert taken(text, moves) == ("U", WORDS)
    assert taken(text.lazy[30:2:-3], moves) == ("U", WORDS[30:2:-3])
    assert taken(text.lazy.oindex[[4, 4, -1]], moves) == ("U", [WORDS[4], WORDS[4], WORDS[-1]])
    assert taken(text.lazy[:0], moves) == ("U", [])
    octets = cuzarr.create_array({}, shape=(35,), chunks=(8,), dtype="variable_length_bytes", **layout)
    octets[...] = np.array([word.encode() + b"\xff" for word in WORDS], object)
    assert taken(octets, moves) == ("Z", [word.encode() + b"\xff" for word in WORDS])


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", ">u2", "i4", "u4", ">i8", "u8", "f2", "f4", ">f8"])
def test_numbers_are_handed_over(dtype: str, moves: bool) -> None:
    truth = (np.arange(37) % 3).astype(dtype)
    array = cuzarr.array(np.stack([truth, truth]), store={}, chunks=(1, 8))
    _, elements = taken(array.lazy[1], moves)
    assert elements == truth.tolist()
    assert taken(array.lazy[0, 20:3:-2], moves)[1] == truth[20:3:-2].tolist()


def test_what_arrow_does_not_have_is_refused(gpu: str) -> None:
    table = cuzarr.zeros((3, 4), store={})
    dates = cuzarr.create_array({}, shape=(3,), dtype="<M8[s]")
    for array in (table, dates, cuzarr.zeros((3,), dtype="c8", store={}), cuzarr.zeros((), store={}), table.lazy[1:]):
        with pytest.raises(UnsupportedError):
            array.__arrow_c_array__()
    with pytest.raises(ImplicitHostCopyError):
        cuzarr.zeros((3,), store={}).with_device(gpu).__arrow_c_array__()
    words = cuzarr.create_array({}, shape=(2,), dtype="string").with_device(gpu)
    assert taken(words) == ("U", ["", ""])

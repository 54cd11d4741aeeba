"""The data types of the matrix: how each is asked for, values that try it, fill values worth storing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

STRUCT = np.dtype([("a", "<i2"), ("b", "<f8"), ("c", "S3")])
STRUCT_MIXED = np.dtype([("a", ">u4"), ("b", "<f4"), ("c", "|b1")])


@dataclasses.dataclass(frozen=True)
class DataType:
    """One data type: the name in case ids, what `dtype=` gets, and the NumPy type of one element."""

    name: str
    spec: Any
    numpy: np.dtype
    formats: tuple[int, ...]

    @property
    def kind(self) -> str:
        """NumPy's kind, or `text` and `blob` for elements of variable length."""
        return {"string": "text", "bytes": "blob"}.get(self.name, self.numpy.kind)

    @property
    def is_variable(self) -> bool:
        return self.kind in ("text", "blob")

    @property
    def is_number(self) -> bool:
        return self.kind in "iufc" and not self.is_variable


def _types() -> list[DataType]:
    found = []

    def add(name: str, spec: Any, formats: tuple[int, ...], numpy: Any = None) -> None:
        found.append(DataType(name, spec, np.dtype(spec if numpy is None else numpy), formats))

    for name in ("bool", "int8", "uint8"):
        add(name, name, (2, 3))
    for name in "int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split():
        add(name, name, (2, 3))
        add(f"{name}be", np.dtype(name).newbyteorder(">").str, (2,))
    for name, spec in (("datetime_s", "M8[s]"), ("datetime_ns", "M8[ns]"), ("timedelta_10ms", "m8[10ms]"), ("unicode5", "U5")):
        add(name, f"<{spec}", (2, 3))
        add(f"{name}be", f">{spec}", (2,))
    add("ascii7", "|S7", (2, 3))
    add("raw6", "|V6", (2, 3))
    add("struct", STRUCT, (2, 3))
    add("struct_mixed", STRUCT_MIXED, (2,))
    add("string", "string", (2, 3), object)
    add("bytes", "variable_length_bytes", (2, 3), object)
    return found


DATA_TYPES = {data_type.name: data_type for data_type in _types()}


def values(data_type: DataType, shape: tuple[int, ...], rng: np.random.Generator, *, finite: bool) -> np.ndarray:
    """Elements that a codec can get wrong: smooth runs, noise over all bits, extremes, special values."""
    count, kind = int(np.prod(shape)), data_type.kind
    dtype = data_type.numpy
    if kind == "text":
        flat = np.empty(count, object)
        flat[:] = [_text(rng) for _ in range(count)]
    elif kind == "blob":
        flat = np.empty(count, object)
        flat[:] = [rng.bytes(int(rng.integers(0, 20))) for _ in range(count)]
    elif kind == "b":
        flat = rng.random(count) < 0.5
    elif kind in "iu":
        flat = _integers(dtype, count, rng, finite=finite)
    elif kind == "f":
        flat = _floats(dtype, count, rng, finite=finite)
    elif kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        flat = np.empty(count, dtype.newbyteorder("="))
        flat.real, flat.imag = (_floats(part, count, rng, finite=finite) for _ in range(2))
    elif kind in "mM":
        flat = rng.integers(-(2**62), 2**62, count).astype("i8").view(dtype.newbyteorder("="))
        flat[: count // 7] = np.array("NaT", flat.dtype)
    elif kind == "U":
        flat = np.array([_text(rng)[: dtype.itemsize // 4] for _ in range(count)], dtype)
    elif kind == "S":
        flat = np.array([rng.bytes(int(rng.integers(0, dtype.itemsize))).rstrip(b"\0") for _ in range(count)], dtype)
    elif dtype.names is None:
        flat = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)
    else:
        flat = np.empty(count, dtype)
        for name in dtype.names:
            field = dataclasses.replace(data_type, numpy=dtype[name])
            flat[name] = values(field, (count,), rng, finite=finite)
    return flat.astype(dtype).reshape(shape)


def _text(rng: np.random.Generator) -> str:
    alphabet = "abcxyz0189 äßπЖ中🦀"
    return "".join(rng.choice(list(alphabet), int(rng.integers(0, 9))))


def _integers(dtype: np.dtype, count: int, rng: np.random.Generator, *, finite: bool) -> np.ndarray:
    native = dtype.newbyteorder("=")
    if finite:  # small enough for narrower types and for arithmetic in codecs
        return rng.integers(0, 100, count).astype(native)
    flat = np.frombuffer(rng.bytes(count * dtype.itemsize), native).copy()
    smooth = count // 2
    flat[:smooth] = (np.arange(smooth) // 3).astype(native)
    flat[smooth : smooth + 2] = np.iinfo(native).max
    return flat


def _floats(dtype: np.dtype, count: int, rng: np.random.Generator, *, finite: bool) -> np.ndarray:
    native = dtype.newbyteorder("=")
    flat = (250 + 40 * np.sin(np.arange(count) / 9) + rng.normal(size=count)).round(2).astype(native)
    if finite or not count:
        return flat
    specials = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(native).tiny / 2, np.finfo(native).max], native)
    at = rng.integers(0, count, count // 5)
    flat[at] = rng.choice(specials, at.size)
    # A signalling bit pattern with a payload: codecs move it, they do not normalise it.
    payload = {2: 0x7E11, 4: 0x7FC00011, 8: 0x7FF8000000000011}[native.itemsize]
    flat.view(f"u{native.itemsize}")[rng.integers(0, count)] = payload
    return flat


def fill_values(data_type: DataType) -> list[Any]:
    """Fill values to choose from; the type's own default is always a choice beside them."""
    kind, dtype = data_type.kind, data_type.numpy
    if kind in "iu":
        return [7, int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)]
    if kind in "mM":
        return [np.array(12345, "i8").view(dtype.newbyteorder("="))[()], np.array("NaT", dtype.newbyteorder("="))[()]]
    return {
        "b": [True],
        "f": [1.5, float("nan"), float("-inf"), -0.0],
        "c": [1 + 2j, complex(float("nan"), float("inf"))],
        "U": ["αβ"],
        "S": [b"xy"],
        "V": [],
        "text": ["fill π"],
        "blob": [b"\x00fill"],
    }[kind]

"""Random programs: an array is written, resized and read by every kind of selection, beside NumPy, and read by zarr-python."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from conftest import gpu_device
from devices import to_host

import cuzarr

zarr = pytest.importorskip("zarr", minversion="3.4")

DEVICES = ["cpu", *filter(None, [gpu_device()[0]])]
STRUCTURES: list[Any] = [[("a", "<i4"), ("b", "<f8")], [("t", "<M8[s]"), ("n", "S3"), ("x", [("p", "<f4"), ("q", "u1")])]]
DTYPES = ["bool", "i1", "<i4", "<u8", "<f2", ">f8", "<c8", "<M8[s]", "<m8[25us]", "<U4", "S5", "V3", "string", *STRUCTURES]
WORDS = ["", "a", "é☃", "z" * 40]


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
    return cuzarr.create_array(store, shape=shape, chunks=chunks, dtype=dtype, zarr_format=zarr_format, device=device, **options)


def values(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    if dtype.kind in "OT":
        return np.array([WORDS[place] for place in rng.integers(0, 4, int(np.prod(shape)))], dtype).reshape(shape)
    if dtype.names is not None:
        whole = np.empty(shape, dtype)
        for name in dtype.names:
            whole[name] = values(rng, dtype[name], shape)
        return whole
    if dtype.kind in "US":
        return rng.integers(0, 9999, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    whole = np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)
    return whole if dtype.kind not in "fc" else rng.normal(size=shape).astype(dtype)


def a_slice(choose: random.Random, extent: int) -> slice:
    ends = [choose.choice([None, choose.randint(-extent - 1, extent + 1)]) for _ in range(2)]
    return slice(*ends, choose.choice([None, 1, 2, 3]))


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
                unit = array.shards or array.chunks
                resized = np.full([choose.randint(0, 4) * extent for extent in unit], array.fill_value, array.dtype)
                kept = tuple(slice(min(pair)) for pair in zip(resized.shape, expected.shape, strict=True))
                resized[kept] = expected[kept]
                array.resize(resized.shape)
                expected = resized
    np.testing.assert_array_equal(to_host(array[...]), expected)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], expected)

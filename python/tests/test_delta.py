"""``delta`` for every pair of types: encoded and decoded as numcodecs does it, on the CPU and by kernels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from devices import on, to_host

import cuzarr
from cuzarr.codecs import Decoder, Encoder

numcodecs = pytest.importorskip("numcodecs")

DECODED = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
ENCODED = [*DECODED, "b1", "c8", "c16"]
LENGTH = 300
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}


def chain(decoded: str, encoded: str) -> list[dict[str, Any]]:
    names = {"dtype": np.dtype(decoded).str, "astype": np.dtype(encoded).str}
    return [{"name": "numcodecs.delta", "configuration": names}, ZSTD]


def differences(dtype: str) -> np.ndarray[Any, Any]:
    """Small differences, of floats with digits that rounding loses."""
    random, own = np.random.default_rng(7), np.dtype(dtype)
    if own.kind == "c":
        return (random.random(LENGTH) + 1j * random.random(LENGTH)).astype(own)
    if own.kind == "f":
        return random.random(LENGTH).astype(own)
    return random.integers(0, 2, LENGTH).astype(own)


@pytest.mark.parametrize("decoded", DECODED)
def test_sums_are_those_of_numcodecs(decoded: str, device: str) -> None:
    for encoded in ENCODED:
        stored = differences(encoded)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            expected = numcodecs.Delta(decoded, encoded).decode(stored)
        out = on(device, np.zeros(LENGTH, decoded))
        frame = bytes(numcodecs.Zstd(1).encode(stored))
        batch = Decoder(chain(decoded, encoded), device=device).prepare([frame], [out])
        batch.run()
        assert batch.check() == [None] and (device == "cpu" or batch.via_host is None)
        np.testing.assert_array_equal(to_host(out).view("u1"), expected.view("u1"), err_msg=f"{encoded} to {decoded}")


@pytest.mark.parametrize("decoded", DECODED)
def test_differences_are_those_of_numcodecs(decoded: str, device: str) -> None:
    elements = np.cumsum(differences(decoded)[:100].astype("f8") / 2).astype(decoded)
    for encoded in ENCODED:
        expected = numcodecs.Delta(decoded, encoded).encode(elements)
        encoder = Encoder(chain(decoded, encoded), device=device, strict=device != "cpu")
        frame = to_host(encoder.encode([on(device, elements)])[0]).tobytes()
        stored = np.frombuffer(numcodecs.Zstd().decode(frame), encoded)
        np.testing.assert_array_equal(stored.view("u1"), expected.view("u1"), err_msg=f"{decoded} to {encoded}")


@pytest.mark.parametrize(("decoded", "encoded"), [("f4", "f8"), ("f2", "f4"), ("f4", "i4"), ("i4", "f4")])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_of_zarr_python_have_the_elements_that_it_reads(decoded: str, encoded: str, zarr_format: Any, device: str) -> None:
    zarr = pytest.importorskip("zarr")
    elements = (np.random.default_rng(3).random((40, 20)) * 100).astype(decoded)
    store: dict[str, Any] = {}
    filters: Any = [numcodecs.Delta(decoded, encoded)]
    if zarr_format == 3:
        filters = [pytest.importorskip("zarr.codecs.numcodecs").Delta(dtype=decoded, astype=encoded)]
    theirs = zarr.create_array(
        zarr.storage.MemoryStore(store), shape=(40, 20), chunks=(10, 20), dtype=decoded, filters=filters, zarr_format=zarr_format
    )
    theirs[...] = elements
    ours = cuzarr.open_array({key: value.to_bytes() for key, value in store.items()}, mode="r").with_device(device)
    np.testing.assert_array_equal(to_host(ours[...]), theirs[...])

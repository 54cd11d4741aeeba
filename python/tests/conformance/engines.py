"""The libraries that write and read the cases, behind the same few calls."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import zarr
import zarr.codecs
import zarr.dtype

from . import chains
from .cases import DEFAULT, Case


class Library:
    """zarr-python, or a library with its names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = importlib.import_module(name)
        self.device = os.environ.get("CUZARR_TEST_DEVICE") if name == "cuzarr" else None

    def create(self, path: str, case: Case, *, own_codecs: bool = True) -> Any:
        """Makes the array and applies its edits."""
        codecs = importlib.import_module(f"{self.name}.codecs") if own_codecs else zarr.codecs
        array = self.module.create_array(store=path, **arguments(case, codecs))
        for selection, value in case.steps():
            array[selection] = value
        return array

    def open(self, path: str, case: Case) -> Any:
        on_device = self.device and not case.data_type.is_variable
        return self.module.open_array(path, mode="r", **({"device": self.device} if on_device else {}))


def arguments(case: Case, codecs: Any) -> dict[str, Any]:
    """The keywords of `create_array`."""

    def objects(recipes: tuple[chains.Recipe, ...]) -> list[Any]:
        return [chains.build(recipe, codecs, case.zarr_format) for recipe in recipes]

    dtype = case.data_type.spec
    if case.data_type.kind == "blob":
        dtype = zarr.dtype.VariableLengthBytes()
    found: dict[str, Any] = {
        "shape": case.shape,
        "chunks": case.chunks,
        "dtype": dtype,
        "zarr_format": case.zarr_format,
        "chunk_key_encoding": {"name": case.separator[0], "separator": case.separator[1]},
        "compressors": objects(case.compressors) or None,
        # Left alone, v2 puts the object codec there.
        "filters": "auto" if case.data_type.is_variable and case.zarr_format == 2 else objects(case.filters) or None,
    }
    if case.shards:
        found["shards"] = case.shards
    if case.serializer:
        found["serializer"] = chains.build(case.serializer, codecs, 3)
    if case.fill_value is not DEFAULT:
        found["fill_value"] = case.fill_value
    if case.zarr_format == 2:
        found["order"] = case.order
    if case.dimension_names:
        found["dimension_names"] = case.dimension_names
    return found


def to_host(result: Any) -> np.ndarray:
    """A result as NumPy, whichever device it is on; nothing but `get` moves device memory."""
    # CuPy's arrays and ours name the copy to the host differently.
    for name in ("get", "cpu"):
        if hasattr(result, name):
            return np.asarray(getattr(result, name)())
    return np.asarray(result)


def assert_same(got: Any, expected: np.ndarray, what: str, case: Case) -> None:
    """Shape, type and every bit agree; byte order in memory is nobody's promise."""
    if case.data_type.is_variable:
        got, expected = np.array(got, dtype=object), np.array(expected, dtype=object)
        assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
        assert got.tolist() == expected.tolist(), f"{what}: elements differ"
        return
    got = to_host(got)
    if case.data_type.kind in "US":  # a single element comes as a scalar as long as its text
        got = got if got.ndim else got.astype(case.data_type.numpy)
        expected = np.asarray(expected, dtype=case.data_type.numpy)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    native = expected.dtype.newbyteorder("=")
    assert got.dtype.newbyteorder("=") == native, f"{what}: dtype {got.dtype}, expected {expected.dtype}"
    if got.astype(native).tobytes() != expected.astype(native).tobytes():
        wrong = np.argwhere(_bits(got.astype(native)) != _bits(expected.astype(native)))
        first = tuple(wrong[0, :-1])
        raise AssertionError(f"{what}: differs first at {first}: got {got[first]!r}, expected {expected[first]!r}")


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(*array.shape, 1).view("u1")


#: What both other readers decode; the rest of what zarrs-python 0.2.3 decodes.
COMMON_V3 = {"bytes", "zstd", "gzip", "blosc", "crc32c", "transpose", "sharding_indexed"}
ZARRS = COMMON_V3 | {"numcodecs.zlib", "numcodecs.bz2", "numcodecs.shuffle", "numcodecs.pcodec"}


def tensorstore_reader(case: Case) -> Callable[[str], np.ndarray] | None:
    """Reads by tensorstore, if it knows everything that the case uses."""
    kind, version = case.data_type.kind, case.zarr_format
    if case.data_type.is_variable or kind not in "biufc" or 0 in case.shape:
        return None
    known = {3: COMMON_V3, 2: {"zlib", "bz2", "blosc", "zstd"}}
    if any(name not in known[version] or configuration.get("checksum") for name, configuration in case.recipes):
        return None
    if case.serializer and case.serializer[0] == "sharding_indexed" and case.compressors:
        return None  # it refuses to compress a shard as a whole
    driver = "zarr3" if version == 3 else "zarr"

    def read(path: str) -> np.ndarray:
        import tensorstore

        spec = {"driver": driver, "kvstore": {"driver": "file", "path": path}}
        return tensorstore.open(spec).result().read().result()

    return read


def zarrs_reader(case: Case) -> Callable[[str], np.ndarray] | None:
    """Reads by the zarrs codec pipeline of zarr-python."""
    kind, size = case.data_type.kind, case.data_type.numpy.itemsize
    if case.zarr_format != 3 or case.data_type.is_variable or kind not in "biufc":
        return None
    for name, configuration in case.recipes:
        if name not in ZARRS:
            return None
        if name == "bytes" and configuration["endian"] == "big" and kind == "c":
            return None  # 0.2.3 swaps the whole number, so that real and imaginary part change places
        if name == "blosc" and configuration.get("typesize", size) != size:
            return None  # 0.2.3 reads parts of a frame in units of its type size, and fails when they do not fit

    def read(path: str) -> np.ndarray:
        import zarrs  # noqa: F401

        # Strict: it must not hand the work back to zarr-python.
        with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}):
            return zarr.open_array(path, mode="r")[...]

    return read

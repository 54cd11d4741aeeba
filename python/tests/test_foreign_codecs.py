"""Codecs that a program registered with zarr-python, in arrays that cuzarr reads and writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

zarr = pytest.importorskip("zarr")
from zarr.abc.codec import BytesBytesCodec  # noqa: E402

import cuzarr  # noqa: E402


class Complement(BytesBytesCodec):
    """Every bit inverted."""

    is_fixed_size = True

    @classmethod
    def from_dict(cls, data: Any) -> Complement:
        return cls()

    def to_dict(self) -> Any:
        return {"name": "tests.complement"}

    def compute_encoded_size(self, input_byte_length: int, _spec: Any) -> int:
        return input_byte_length

    async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        return chunk_spec.prototype.buffer.from_array_like(~chunk_data.as_numpy_array())

    _encode_single = _decode_single


def test_codecs_of_zarr_pythons_registry_are_called(tmp_path: Any) -> None:
    zarr.registry.register_codec("tests.complement", Complement)
    with zarr.config.set({"codecs.tests.complement": f"{Complement.__module__}.{Complement.__qualname__}"}):
        truth = np.arange(20, dtype="i4")
        theirs = zarr.create_array(tmp_path, shape=(20,), chunks=(7,), dtype="i4", compressors=Complement())
        theirs[:] = truth
        ours = cuzarr.open_array(tmp_path, mode="r+")
        np.testing.assert_array_equal(ours[:], truth)
        ours[3:9] = -truth[3:9]
        np.testing.assert_array_equal(theirs[3:9], -truth[3:9])

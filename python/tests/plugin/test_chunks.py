"""What one array's chunks were found to be serves the next array of the same kind, and no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, GzipCodec, ZstdCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer.cpu import buffer_prototype
from zarr.core.dtype import Float64, Int32

from cuzarr.zarr._chunks import Chunks, open_chunks
from cuzarr.zarr._fallbacks import Fallback


def spec(fill_value: Any = np.int32(0), shape: tuple[int, ...] = (3, 4), order: Any = "C") -> ArraySpec:
    dtype: Any = Float64() if isinstance(fill_value, np.float64) else Int32()
    return ArraySpec(shape, dtype, fill_value, ArrayConfig(order=order, write_empty_chunks=False), buffer_prototype)


def opened(*codecs: Any, **settings: Any) -> Chunks:
    return open_chunks(codecs or (BytesCodec(), ZstdCodec(level=1)), spec(**settings))


def test_equal_codecs_and_specifications_share_what_was_opened() -> None:
    assert opened() is opened() is opened(BytesCodec(), ZstdCodec(level=1))


@pytest.mark.parametrize("codecs", [(BytesCodec(), ZstdCodec(level=2)), (BytesCodec(), GzipCodec(level=1)), (BytesCodec(),)])
def test_other_codecs_do_not(codecs: Any) -> None:
    assert opened(*codecs) is not opened()


@pytest.mark.parametrize(
    "settings", [{"shape": (4, 3)}, {"order": "F"}, {"fill_value": np.int32(1)}, {"fill_value": np.float64(0)}]
)
def test_other_specifications_do_not(settings: dict[str, Any]) -> None:
    assert opened(**settings) is not opened()


def test_fill_values_are_compared_by_their_bits() -> None:
    quiet, other = np.array([0x7FF8000000000000, 0x7FF8000000000001], "u8").view("f8")
    values = (np.float64(0), np.float64("-0.0"), quiet, other)
    found = [opened(fill_value=value) for value in values]
    assert len({id(chunks) for chunks in found}) == len(values)
    assert [chunks.fill_value.tobytes() for chunks in found] == [value.tobytes() for value in values]
    assert opened(fill_value=np.float64("nan")) is opened(fill_value=np.float64("nan"))


def test_missing_chunks_are_filled_with_each_arrays_own_value() -> None:
    with zarr.config.set({"codec_pipeline.path": "cuzarr.zarr.CodecPipeline"}):
        for value in (0.0, -0.0, 0.0):
            array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="f8", fill_value=value)
            assert np.signbit(array[:]).tolist() == [np.signbit(value)] * 4


def test_a_programs_own_class_is_not_taken_for_the_one_it_derives_from() -> None:
    @dataclass(frozen=True)
    class Mine(ZstdCodec):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    opened()
    with pytest.raises(Fallback, match="a program's own"):
        opened(BytesCodec(), Mine(level=1))

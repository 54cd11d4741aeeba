"""Codecs used directly to encode, on the CPU and on a GPU or the kernels that stand in for it."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import numpy as np
import pytest
from devices import to_host

import cuzarr
from cuzarr.codecs import Decoder, Encoder
from cuzarr.errors import EncodeFailedError, FallbackRefusedError, InvalidArgumentError, MemorySpaceError

ROWS = np.stack([np.arange(n, 4000 + n, dtype="i4") // 3 for n in range(5)])
ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
CHAINS: dict[str, Any] = {
    "zstd": ZSTD,
    "lz4": {"name": "numcodecs.lz4"},
    "zarr's blosc": cuzarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
    "numcodecs' filters": [{"name": "delta", "configuration": {"dtype": "<i4"}}, {"id": "zlib", "level": 1}],
    "sealed": [ZSTD, {"name": "crc32c"}],
    "bz2": {"name": "bz2"},
}


def on(device: str, array: np.ndarray[Any, Any]) -> Any:
    return array if device == "cpu" else cuzarr.DeviceArray.from_host(array, device)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("layout", ["rows", "apart", "columns"])
def test_frames_of_any_chunks_decode(device: str, chain: str, layout: str) -> None:
    chunks: Any = on(device, ROWS)
    if layout == "apart":
        chunks = [on(device, row.copy()) for row in ROWS]
    elif layout == "columns":
        chunks = on(device, np.asfortranarray(ROWS))
    batch = Encoder(CHAINS[chain], device=device).prepare(chunks)
    assert len(batch) == len(ROWS)
    assert batch.scratch_bytes >= 0
    for _ in range(2):
        batch.run()
        assert batch.check() == [None] * len(ROWS)
    frames = [to_host(frame) for frame in batch.frames()]
    assert all(frame.dtype == np.uint8 and frame.ndim == 1 for frame in frames)
    out = np.zeros_like(ROWS)
    Decoder(CHAINS[chain], device="cpu").decode(frames, out)
    np.testing.assert_array_equal(out, ROWS)


def test_frames_are_those_of_the_formats(device: str) -> None:
    for codec, decode in (("zlib", zlib.decompress), ("gzip", gzip.decompress)):
        frames = Encoder({"name": codec, "configuration": {"level": 1}}, device=device).encode(on(device, ROWS))
        for frame, row in zip(frames, ROWS, strict=True):
            np.testing.assert_array_equal(np.frombuffer(decode(to_host(frame).tobytes()), "i4"), row)


def test_frames_are_where_the_chunks_are(device: str) -> None:
    frames = Encoder(ZSTD, device=device).encode(on(device, ROWS))
    kinds = {type(frame) for frame in frames}
    assert kinds == {np.ndarray} if device == "cpu" else np.ndarray not in kinds
    out = on(device, np.zeros_like(ROWS))
    Decoder(ZSTD, device=device).decode(frames, out)
    np.testing.assert_array_equal(to_host(out), ROWS)


def test_strict_refuses_what_the_host_would_encode(device: str) -> None:
    slow = {"name": "zstd", "configuration": {"level": 19, "checksum": False}}
    assert Encoder(slow, device=device).prepare(on(device, ROWS)).via_host is not None
    native = Encoder(ZSTD, device=device, strict=True).prepare(on(device, ROWS))
    assert (native.via_host is None) == (device != "cpu")
    with cuzarr.config.set({"strict": True}):
        encoder = Encoder(slow, device=device)
    if device == "cpu":
        encoder.prepare(ROWS)
    else:
        with pytest.raises(FallbackRefusedError, match="above 9"):
            encoder.prepare(on(device, ROWS))


def test_a_chunk_that_cannot_be_encoded_is_told(device: str) -> None:
    narrow = [{"name": "cast_value", "configuration": {"data_type": "int8"}}, ZSTD]
    batch = Encoder(narrow, device=device).prepare([on(device, np.array(row, "i4")) for row in ([1, 2], [1, 1000])])
    batch.run()
    assert [type(error) for error in batch.check()] == [type(None), EncodeFailedError]
    with pytest.raises(EncodeFailedError, match="chunk 1"):
        batch.frames()


def test_only_what_ran_has_frames(device: str) -> None:
    batch = Encoder(ZSTD, device=device).prepare(on(device, ROWS))
    for wait in (batch.check, batch.frames):
        with pytest.raises(InvalidArgumentError, match="not run"):
            wait()
    assert Encoder(ZSTD, device=device).encode([]) == []


def test_what_is_no_chunk_is_refused(device: str) -> None:
    encoder = Encoder(ZSTD, device=device)
    with pytest.raises(InvalidArgumentError, match="chunks hold"):
        encoder.prepare(["text"])
    with pytest.raises(InvalidArgumentError, match="native"):
        encoder.prepare([np.zeros(3, ">i4")])
    if device == "cpu":
        assert len(encoder.encode([b"x" * 50])) == 1
    else:
        with pytest.raises(MemorySpaceError):
            encoder.prepare([np.zeros(3)])


def test_work_goes_to_the_current_stream_of_the_chunks(gpu: str) -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        chunks = cupy.zeros_like(ROWS)
        batch = Encoder(ZSTD, device=gpu).prepare(chunks)
        chunks[...] = cupy.asarray(ROWS)
        batch.run()
        # On the same stream: the chunks are read before they are changed again.
        chunks[...] = 0
        frames = batch.frames()
    out = np.zeros_like(ROWS)
    Decoder(ZSTD, device="cpu").decode([frame.get() for frame in frames], out)
    np.testing.assert_array_equal(out, ROWS)

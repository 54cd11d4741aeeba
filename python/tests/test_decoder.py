"""Codecs used directly, on the CPU and on a GPU or the kernels that stand in for it."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.codecs import Decoder
from cuzarr.errors import ChecksumMismatchError, ChunkCorruptError, InvalidArgumentError

ROWS = [np.arange(n, 400 + n, dtype="i4") // 3 for n in range(5)]


def crc32(row: np.ndarray[Any, Any]) -> bytes:
    return struct.pack("<I", zlib.crc32(row.tobytes())) + row.tobytes()


def deltas(row: np.ndarray[Any, Any]) -> bytes:
    return zlib.compress(np.diff(row, prepend=np.array([0], row.dtype)).tobytes())


def literals(row: np.ndarray[Any, Any]) -> bytes:
    """A block of LZ4 that repeats nothing."""
    more, rest = divmod(row.nbytes - 15, 255)
    return b"\xf0" + b"\xff" * more + bytes([rest]) + row.tobytes()


CASES = {
    "crc32": ({"name": "crc32"}, crc32),
    "deflate": ({"name": "deflate"}, lambda row: zlib.compress(row.tobytes(), wbits=-15)),
    "zlib": ({"name": "zlib", "configuration": {"level": 1}}, lambda row: zlib.compress(row.tobytes())),
    "lz4_raw": ({"name": "lz4_raw"}, literals),
    "gzip": (cuzarr.codecs.GzipCodec(level=1), lambda row: gzip.compress(row.tobytes())),
    "delta": ([{"name": "delta", "configuration": {"dtype": "<i4"}}, {"id": "zlib", "level": 1}], deltas),
}


def on(device: str, array: np.ndarray[Any, Any]) -> Any:
    return array if device == "cpu" else cuzarr.DeviceArray.from_host(array, device)


def values(array: Any) -> np.ndarray[Any, Any]:
    return array if isinstance(array, np.ndarray) else array.cpu()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("where", ["host", "device", "slab", "host slab"])
def test_frames_from_anywhere_are_decoded(device: str, case: str, where: str) -> None:
    codecs, encode = CASES[case]
    encoded = [encode(row) for row in ROWS]
    frames: Any = encoded
    if where == "device":
        frames = [on(device, np.frombuffer(frame, "u1")) for frame in encoded]
    elif where.endswith("slab"):
        slab = np.frombuffer(b"".join(encoded), "u1")
        sizes = np.array([len(frame) for frame in encoded])
        frames = (on(device if where == "slab" else "cpu", slab), np.cumsum(sizes) - sizes, sizes)
    out = [on(device, np.zeros(400, "i4")) for _ in ROWS]
    batch = Decoder(codecs, device=device).prepare(frames, out)
    assert len(batch) == len(ROWS)
    assert batch.scratch_bytes >= 0
    for _ in range(2):
        batch.run()
        assert batch.check() == [None] * len(ROWS)
    for got, row in zip(out, ROWS, strict=True):
        np.testing.assert_array_equal(values(got), row)


def test_rows_of_one_array_are_outputs(device: str) -> None:
    out = on(device, np.zeros((5, 400), "i4"))
    Decoder({"name": "crc32"}, device=device).decode([crc32(row) for row in ROWS], out)
    np.testing.assert_array_equal(values(out), np.stack(ROWS))


def test_each_damaged_frame_is_told(device: str) -> None:
    frames = [bytearray(crc32(row)) for row in ROWS]
    frames[3][100] ^= 1
    del frames[1][-1]
    out = [on(device, np.zeros(400, "i4")) for _ in ROWS]
    decoder = Decoder({"name": "crc32"}, device=device)
    batch = decoder.prepare(frames, out)
    batch.run()
    errors = batch.check()
    assert [type(error) for error in errors] == [type(None), ChunkCorruptError, type(None), ChecksumMismatchError, type(None)]
    assert "frame 3" in str(errors[3])
    np.testing.assert_array_equal(values(out[2]), ROWS[2])
    with pytest.raises(ChunkCorruptError, match="frame 1"):
        decoder.decode(frames, out)


def test_the_host_says_why_it_decodes(device: str) -> None:
    def via_host(codec: Any) -> str | None:
        return Decoder(codec, device=device).prepare([b"x" * 50], [on(device, np.zeros(3, "i4"))]).via_host

    assert via_host({"name": "bz2"}) is not None
    assert (via_host({"name": "crc32c"}) is None) == (device != "cpu")


def test_what_does_not_belong_together_is_refused(device: str) -> None:
    decoder = Decoder({"name": "crc32"}, device=device)
    row = on(device, np.zeros(4, "i4"))
    with pytest.raises(InvalidArgumentError):
        decoder.prepare([b"x" * 20, b"y" * 20], [row])
    with pytest.raises(InvalidArgumentError):
        decoder.prepare((np.zeros(20, "u1"), [10], [11]), [row])
    with pytest.raises(InvalidArgumentError):
        decoder.prepare([b"x" * 20], [b"not an array"])
    for offsets, sizes in ([-1], [4]), ([2**70], [4]), ([0, 1], [4]):
        with pytest.raises(InvalidArgumentError):
            decoder.prepare((np.zeros(20, "u1"), offsets, sizes), [row])
    assert Decoder({"name": "crc32"}, device=device).prepare([], []).check() == []


def test_three_arrays_of_bytes_are_three_frames(device: str) -> None:
    codecs, encode = CASES["zlib"]
    out = on(device, np.zeros((3, 400), "i4"))
    Decoder(codecs, device=device).decode(tuple(np.frombuffer(encode(row), "u1") for row in ROWS[:3]), out)
    np.testing.assert_array_equal(values(out), np.stack(ROWS[:3]))


@pytest.mark.parametrize("case", ["crc32", "zlib"])
def test_only_what_ran_is_checked(device: str, case: str) -> None:
    codecs, encode = CASES[case]
    batch = Decoder(codecs, device=device).prepare([encode(ROWS[0])[:-3]], [on(device, np.zeros(400, "i4"))])
    with pytest.raises(InvalidArgumentError, match="not run"):
        batch.check()
    for _ in range(2):
        batch.run()
        assert isinstance(batch.check()[0], ChunkCorruptError)
        with pytest.raises(InvalidArgumentError, match="not run"):
            batch.check()


def test_work_goes_to_the_current_stream_of_the_outputs(gpu: str) -> None:
    cupy = pytest.importorskip("cupy")
    frames = [cupy.frombuffer(crc32(row), "u1") for row in ROWS]
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        out = cupy.zeros((5, 400), "i4")
        batch = Decoder({"name": "crc32"}, device=gpu).prepare(frames, out)
        batch.run()
        # On the same stream: copies on others do not wait for it.
        total = int(out.sum())
    assert total == int(np.stack(ROWS).sum())
    assert batch.check() == [None] * 5
    batch.run(stream)
    batch.run(stream.ptr)
    assert batch.check() == [None] * 5


def test_tensors_are_frames_and_outputs(gpu: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("skipped: PyTorch sees no GPU")
    frames = [torch.frombuffer(bytearray(crc32(row)), dtype=torch.uint8).cuda() for row in ROWS]
    out = [torch.zeros(400, dtype=torch.int32, device="cuda") for _ in ROWS]
    Decoder({"name": "crc32"}, device=gpu).decode(frames, out)
    for got, row in zip(out, ROWS, strict=True):
        np.testing.assert_array_equal(got.cpu().numpy(), row)

"""Chunks of random sizes and kinds, encoded and decoded on a device until so many went through: every element is compared.

    python bench/encode_campaign.py [--device cuda:0] [--chunks 10000000] [--seconds 240] [--seed 1] [--formats zstd gzip ...]

A round has one format, one size and up to 100,000 chunks of seven kinds of data. Most rounds have chunks of 1 byte to 8 KiB, every eighth one of
up to 8 MiB. The device decodes all frames. The host's libraries decode 64 of each round, and every fourth round is encoded twice: the frames must be
the same. A difference ends the program with the round's seed, with which `--seed S --rounds 1` repeats it. Prints a line of JSON for each format.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import time
from typing import Any

import numpy as np

import cuzarr
from cuzarr.codecs import Decoder, Encoder

BLOSC = {"clevel": 5, "typesize": 4, "blocksize": 0}
FORMATS: dict[str, Any] = {
    "zstd": {"name": "zstd", "configuration": {"level": 0, "checksum": False}},
    "zstd with checksum": {"name": "zstd", "configuration": {"level": 3, "checksum": True}},
    "gzip": {"name": "gzip", "configuration": {"level": 5}},
    "zlib": {"name": "numcodecs.zlib", "configuration": {"level": 1}},
    "lz4": {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}},
    **{
        f"blosc, {cname}, {shuffle}": {"name": "blosc", "configuration": {**BLOSC, "cname": cname, "shuffle": shuffle}}
        for cname, shuffle in itertools.product(("lz4", "zstd", "zlib"), ("noshuffle", "shuffle", "bitshuffle"))
    },
}
MOST_CHUNKS, MOST_BYTES = 100_000, 256 << 20


def arrays_of(device: str) -> Any:
    """NumPy, or CuPy for a GPU."""
    if device.startswith("cuda"):
        import cupy

        return cupy
    return np


def make(xp: Any, random: np.random.Generator, count: int, size: int) -> Any:
    """Chunks of all kinds, in random order: bytes of shape (count, size)."""
    seed = int(random.integers(1 << 30))
    dice = xp.random.default_rng(seed) if xp is np else xp.random.Generator(xp.random.XORWOW(seed))
    kinds = []
    shares = np.bincount(random.integers(7, size=count), minlength=7)
    words = -(-size // 4)
    for kind, rows in enumerate(shares.tolist()):
        if not rows:
            continue
        if kind == 0:  # noise
            made = dice.integers(0, 256, (rows, size)).astype("u1")
        elif kind == 1:  # few symbols
            made = dice.integers(0, int(random.integers(1, 17)), (rows, size)).astype("u1")
        elif kind == 2:  # runs of a length
            run = int(random.integers(2, 400))
            made = xp.repeat(dice.integers(0, 256, (rows, -(-size // run))).astype("u1"), run, axis=1)[:, :size]
        elif kind == 3:  # a period, with some bytes changed
            period = int(random.integers(1, max(2, size)))
            made = xp.tile(dice.integers(0, 256, (rows, period)).astype("u1"), (1, -(-size // period)))[:, :size].copy()
            made[dice.random((rows, size)) < 10.0 ** -int(random.integers(1, 5))] ^= 1
        elif kind == 4:  # a walk of small steps, as integers
            steps = dice.integers(-3, 4, (rows, words)).astype("i4")
            made = xp.cumsum(steps, axis=1).astype("i4").view("u1").reshape(rows, -1)[:, :size]
        elif kind == 5:  # a smooth field, as floats
            steps = dice.integers(-30, 31, (rows, words)).astype("f4")
            made = (280 + xp.cumsum(steps, axis=1) / 100).astype("f4").view("u1").reshape(rows, -1)[:, :size]
        else:  # almost constant
            made = xp.full((rows, size), int(random.integers(256)), "u1")
            made[dice.random((rows, size)) < 0.001] += 1
        kinds.append(made)
    return xp.ascontiguousarray(xp.concatenate(kinds)[xp.asarray(random.permutation(count))])


def host_bytes(frame: Any) -> bytes:
    return (frame.get() if hasattr(frame, "get") else np.asarray(frame.cpu() if hasattr(frame, "cpu") else frame)).tobytes()


def placed(device: str, array: Any) -> Any:
    """The array in the device's memory; NumPy's and CuPy's arrays are there already."""
    return array if device == "cpu" or device.startswith("cuda") else cuzarr.DeviceArray.from_host(array, device)


def encode(codec: Any, device: str, chunks: Any) -> tuple[list[Any], bool]:
    batch = Encoder(codec, device=device).prepare(placed(device, chunks))
    batch.run()
    return batch.frames(), batch.via_host is not None


def one_round(xp: Any, codec: Any, device: str, random: np.random.Generator, large: bool) -> tuple[int, int, bool]:
    """Chunks, bytes and whether the host encoded; a wrong element raises."""
    octave = int(random.integers(16, 24)) if large else int(random.integers(0, 14))
    size = int(random.integers(1 << octave >> 1, 1 << octave, endpoint=True)) or 1
    count = max(1, min(MOST_CHUNKS, MOST_BYTES // size // (1 if large else 2)))
    chunks = make(xp, random, count, size)
    frames, by_host = encode(codec, device, chunks)
    out = placed(device, xp.full((count, size), 0xA5, "u1"))
    Decoder(codec, device=device).prepare(frames, out).run()
    decoded = np.asarray(out.cpu()) if isinstance(out, cuzarr.DeviceArray) else out
    if not bool((decoded == chunks).all()):
        row = int(xp.argmin((decoded == chunks).all(axis=1)))
        raise AssertionError(f"chunk {row} of {count}, {size} bytes, is wrong on {device}")
    picked = random.choice(count, min(count, 64), replace=False).tolist()
    on_host = [host_bytes(frames[row]) for row in picked]
    outs = np.full((len(picked), size), 0x5A, "u1")
    Decoder(codec, device="cpu").prepare(on_host, outs).run()
    expected = chunks[xp.asarray(picked)]
    np.testing.assert_array_equal(outs, expected if xp is np else expected.get())
    if random.integers(4) == 0:
        again, _ = encode(codec, device, chunks)
        assert [host_bytes(again[row]) for row in picked] == on_host, "frames of a second run differ"
        assert [one.nbytes for one in again] == [one.nbytes for one in frames], "sizes of a second run differ"
    return count, count * size, by_host


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--chunks", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--rounds", type=int, default=1 << 60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    given = parser.parse_args()
    xp, begun = arrays_of(given.device), time.monotonic()
    counts: dict[str, collections.Counter[str]] = {name: collections.Counter() for name in given.formats}
    for number in range(given.rounds):
        name = given.formats[number % len(given.formats)]
        seed = given.seed + number
        try:
            large = number // len(given.formats) % 8 == 7
            chunks, size, by_host = one_round(xp, FORMATS[name], given.device, np.random.default_rng(seed), large)
        except BaseException:
            print(f"format {name!r}, --seed {seed} --rounds 1{' (a large round)' if large else ''}", flush=True)
            raise
        counts[name].update(rounds=1, chunks=chunks, bytes=size, by_host=chunks if by_host else 0)
        done = sum(one["chunks"] for one in counts.values())
        if done >= given.chunks or time.monotonic() - begun > given.seconds:
            break
    for name, one in counts.items():
        print(json.dumps({"format": name, **one}))
    print(json.dumps({"chunks": done, "rounds": number + 1, "seconds": round(time.monotonic() - begun, 1), "failures": 0}))


if __name__ == "__main__":
    main()

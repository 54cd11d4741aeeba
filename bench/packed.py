"""How fast are zfp and `packbits`, which say how many bits each number takes? On a GPU: from chunks in its memory into an array there, and back.

    python bench/packed.py [--device cpu|cuda:0] [--mib 8] [--chunk-side 128] [--repeat 3]

GB/s of elements, the best of the repeats, every array compared. On the CPU processor time is counted, beside the C library `zfpy` for zfp. The
first row is an uncompressed array: on a GPU it says what a read and a write cost beside the codec.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import zfpy

import cuzarr

ZFP: list[dict[str, Any]] = [
    {"mode": "fixed_rate", "rate": 8},
    {"mode": "fixed_rate", "rate": 16},
    {"mode": "reversible"},
]
PACKED: list[tuple[str, dict[str, Any]]] = [
    ("bool", {}),
    ("uint8", {"first_bit": 0, "last_bit": 3}),
    ("uint16", {"first_bit": 0, "last_bit": 11}),
    ("int32", {"first_bit": 0, "last_bit": 18}),
]


def best_of(repeat: int, clock: Callable[[], float], work: Callable[[], Any]) -> float:
    """The shortest time, after a first run that is not counted."""
    best = math.inf
    for turn in range(repeat + 1):
        begun = clock()
        work()
        best = min(best, clock() - begun) if turn else best
    return best


def fields(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A smooth field with noise, and whole numbers of 12 bits."""
    count = math.prod(shape)
    random = np.random.default_rng(1)
    part = min(count, 1 << 24)
    smooth = np.sin(np.arange(part) / 50) * 100 + random.standard_normal(part) * 0.1
    whole = random.integers(0, 1 << 12, part)
    return np.resize(smooth.astype("f4"), shape), np.resize(whole, shape)


def by_library(configuration: dict[str, Any], values: np.ndarray, repeat: int) -> tuple[np.ndarray, str]:
    """What zfpy makes of one chunk, and its GB/s of encoding and decoding."""
    keywords = {name: value for name, value in configuration.items() if name != "mode"}
    stored = zfpy.compress_numpy(values, **keywords)
    encoding = best_of(repeat, time.process_time, lambda: zfpy.compress_numpy(values, **keywords))
    decoding = best_of(repeat, time.process_time, lambda: zfpy.decompress_numpy(stored))
    speeds = "".join(f"{values.nbytes / seconds / 1e9:10.2f}" for seconds in (encoding, decoding))
    return zfpy.decompress_numpy(stored), speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mib", type=int, default=8)
    parser.add_argument("--chunk-side", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    side, on_gpu = chosen.chunk_side, chosen.device != "cpu"
    shape = (side * max((chosen.mib << 20) // (4 * side**3), 1), side, side)
    clock = time.perf_counter if on_gpu else time.process_time
    smooth, whole = fields(shape)
    rows: list[tuple[str, np.ndarray, str, dict[str, Any] | None]] = [("uncompressed float32", smooth, "bytes", None)]
    rows += [(f"zfp {configuration}", smooth, "zfp", configuration) for configuration in ZFP]
    for dtype, bits in PACKED:
        kept = 1 + bits.get("last_bit", 7)
        values = whole % 2 == 1 if dtype == "bool" else (whole % (1 << min(kept, 12))).astype(dtype)
        rows.append(
            (
                f"packbits {dtype} {bits}",
                values,
                "packbits",
                {"padding_encoding": "none", **bits},
            )
        )
    print(f"{chosen.device}, {chosen.mib} MiB, chunks of {side}^3\n{'GB/s':54}{'write':>10}{'read':>10}{'zfpy':>10}")
    for name, values, codec, configuration in rows:
        serializer = None if configuration is None else {"name": codec, "configuration": configuration}
        store = cuzarr.storage.GpuMemoryStore(device=chosen.device) if on_gpu else {}
        array = cuzarr.create_array(
            store,
            shape=shape,
            chunks=(side,) * 3,
            dtype=values.dtype,
            compressors=None,
            serializer=serializer or "auto",
            device=chosen.device,
        )
        source = cuzarr.xp.asarray(values, device=chosen.device) if on_gpu else values
        writing = best_of(
            chosen.repeat,
            clock,
            lambda array=array, source=source: array.__setitem__(..., source),
        )
        reading = best_of(chosen.repeat, clock, lambda array=array: array[...])
        found = np.asarray(cuzarr.xp.asarray(array[...], device="cpu"))
        library = ""
        if codec == "zfp" and configuration:
            first, library = by_library(configuration, values[:side], chosen.repeat)
            assert found[:side].tobytes() == first.tobytes(), name
        else:
            assert np.array_equal(found, values), name
        print(
            f"{name:54}{values.nbytes / writing / 1e9:10.2f}{values.nbytes / reading / 1e9:10.2f}{library}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""zfp on one thread's worth of processor time, beside the C library (`zfpy`): GB/s of float32 in cubes. Every answer is compared.

.venv/bin/python bench/zfp.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import zfpy

import cuzarr

SHAPE = (128, 128, 128)
MODES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"mode": "fixed_rate", "rate": 8}, {"rate": 8}),
    ({"mode": "fixed_rate", "rate": 16}, {"rate": 16}),
    ({"mode": "reversible"}, {}),
]


def speed(work: Callable[[], Any], size_bytes: int) -> float:
    """The best of three, by processor time."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return size_bytes / best / 1e9


def main() -> None:
    count = int(np.prod(SHAPE))
    noise = np.random.default_rng(1).standard_normal(count) * 0.1
    values = (np.sin(np.arange(count) / 50) * 100 + noise).astype("f4").reshape(SHAPE)
    print(f"{'mode':<34} {'encode':>7} {'decode':>7} {'zfpy':>14}")
    for configuration, keywords in MODES:
        serializer = {"name": "zfp", "configuration": configuration}
        array = cuzarr.create_array({}, shape=SHAPE, chunks=SHAPE, dtype="f4", compressors=None, serializer=serializer)
        encoding = speed(lambda array=array: array.__setitem__(..., values), values.nbytes)
        decoding = speed(lambda array=array: array[...], values.nbytes)
        stored = zfpy.compress_numpy(values, **keywords)
        assert array[...].tobytes() == zfpy.decompress_numpy(stored).tobytes(), configuration
        theirs = speed(lambda keywords=keywords: zfpy.compress_numpy(values, **keywords), values.nbytes)
        back = speed(lambda stored=stored: zfpy.decompress_numpy(stored), values.nbytes)
        print(f"{configuration!s:<34} {encoding:7.2f} {decoding:7.2f} {theirs:7.2f}{back:7.2f}")


main()

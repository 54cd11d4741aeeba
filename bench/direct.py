"""How fast does `codecs.Decoder` bring frames that lie in GPU memory to the rows of an array? Every element is compared.

    python bench/direct.py [--device cuda:0] [--repeat 5]

Prints GB/s of elements, the best of `repeat` runs of a batch that is prepared once: chunks that are only byte-shuffled, and zlib
streams, of blocks with codes of their own (level 1) and of blocks with the fixed codes (zlib's strategy `Z_FIXED`); where the
packages zlib-ng and isal are installed, also theirs: of one block with the fixed codes (zlib-ng 1), of one with codes of its own
(igzip 0), and of many (igzip 1).
"""

import argparse
import importlib
import importlib.util
import time
import zlib

import cupy
import numpy as np
from arrays import temperature

from cuzarr.codecs import Decoder

SHUFFLE = {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}
ZLIB = {"name": "zlib", "configuration": {"level": 1}}


def shuffled(row):
    return row.view("u1").reshape(-1, 4).T.tobytes()


def deflated(row, strategy):
    stream = zlib.compressobj(1, zlib.DEFLATED, 15, 8, strategy)
    return stream.compress(row.tobytes()) + stream.flush()


# How many, and KiB of each.
STREAMS = [(1, 8192), (1, 65536), (32, 8192), (64, 8192), (32, 1024), (256, 1024)]
CASES = {
    "shuffle": (
        SHUFFLE,
        shuffled,
        [(4096, 16), (4096, 64), (256, 1024), (64, 4096), (16, 8192)],
    ),
    "zlib level 1": (ZLIB, lambda row: deflated(row, zlib.Z_DEFAULT_STRATEGY), STREAMS),
    "zlib level 1, fixed codes": (
        ZLIB,
        lambda row: deflated(row, zlib.Z_FIXED),
        STREAMS,
    ),
}
for writer, module, level in [
    ("zlib-ng", "zlib_ng.zlib_ng", 1),
    ("igzip", "isal.isal_zlib", 0),
    ("igzip", "isal.isal_zlib", 1),
]:
    if importlib.util.find_spec(module.split(".")[0]):
        compress = importlib.import_module(module).compress
        CASES[f"{writer} {level}"] = (
            ZLIB,
            lambda row, by=compress, at=level: by(row.tobytes(), at),
            STREAMS,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    field = temperature((8, 512, 512), 1).reshape(-1)
    for name, (codecs, encode, sizes) in CASES.items():
        for count, kib in sizes:
            row = np.resize(field, kib * 256)
            frame = np.frombuffer(encode(row), "u1")
            slab, offsets = (
                cupy.tile(cupy.asarray(frame), count),
                np.arange(count) * frame.size,
            )
            out = cupy.zeros((count, row.size), "f4")
            batch = Decoder(codecs, device=args.device).prepare((slab, offsets, np.full(count, frame.size)), out)
            best = float("inf")
            for _ in range(args.repeat):
                cupy.cuda.Device().synchronize()
                began = time.perf_counter()
                batch.run()
                cupy.cuda.Device().synchronize()
                best = min(best, time.perf_counter() - began)
            assert not any(batch.check()), name
            assert bool((out == cupy.asarray(row)).all()), name
            ratio, speed = row.nbytes / frame.size, out.nbytes / best / 1e9
            print(
                f"{name}, {count} x {kib} KiB (ratio {ratio:.2f}): {speed:.2f} GB/s, {best * 1e3:.2f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()

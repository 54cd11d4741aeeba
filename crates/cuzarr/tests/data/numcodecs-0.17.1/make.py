"""Makes blosc_lz4.bin: frames of c-blosc with LZ4 inside, for decoders of batches.

    pip install numcodecs==0.17.1 numpy
    python make.py > blosc_lz4.bin

Each frame follows three little-endian u32: its size, its decoded size, the CRC-32 of its decoded bytes.
"""

import struct
import sys
import zlib

import numcodecs
import numpy as np

random = np.random.default_rng(20261121)


def field(size):
    """A smooth field with noise in its low bits, some constant rows."""
    values = np.cumsum(random.normal(size=size // 4 + 1)).round(1).astype("f4")
    values[: len(values) // 5] = 1.5
    return values.tobytes()[:size]


def emit(size, **options):
    plain = field(size)
    frame = numcodecs.Blosc(**options).encode(plain) if "typesize" not in options else None
    if frame is None:
        # The codec takes the size of types from the array.
        options = dict(options)
        unit = options.pop("typesize")
        array = np.frombuffer(plain[: size // unit * unit], dtype=f"V{unit}")
        frame, plain = numcodecs.Blosc(**options).encode(array), array.tobytes()
    sys.stdout.buffer.write(struct.pack("<III", len(frame), len(plain), zlib.crc32(plain)) + frame)


for level in range(10):
    for shuffle in (0, 1, 2):
        for cname in ("lz4", "lz4hc"):
            unit = int(random.integers(1, 17))
            size = int(random.integers(1, 9000))
            emit(size, cname=cname, clevel=level, shuffle=shuffle, typesize=unit)
for unit in [*range(1, 17), 24, 255]:
    for shuffle in (1, 2):
        blocks = int(random.choice([0, 512, 1024, 4096]))
        emit((7 if unit < 9 else 2) * unit * 97 + 13, cname="lz4", clevel=5, shuffle=shuffle, blocksize=blocks, typesize=unit)
for size in (0, 1, 2, 7, 15, 16, 127, 128, 129, 4096, 70001, 131072):
    emit(size, cname="lz4", clevel=5, shuffle=1, typesize=4 if size >= 4 and size % 4 == 0 else 1)

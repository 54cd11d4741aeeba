"""How fast do arrays with element filters before LZ4 go from a GPU, or from host memory, into a store in memory? What was
written is read back and compared, outside the clock.

    python bench/write_filters.py [--devices cuda:0 cpu] [--mib 512] [--repeat 3]

Prints GB/s of array, the best of `repeat` writes to new stores: chunks of 1 MiB of 32-bit integers that walk at random, or of
booleans made of them.
"""

import argparse
import time

import numcodecs
import numpy as np

import cuzarr

DELTA = numcodecs.Delta(dtype="<i4")
SHUFFLE = numcodecs.Shuffle(elementsize=4)
LZ4 = numcodecs.LZ4()
CASES = {
    "lz4": ("i4", [], LZ4),
    "delta, lz4": ("i4", [DELTA], LZ4),
    "delta, shuffle, lz4": ("i4", [DELTA, SHUFFLE], LZ4),
    "delta, blosc-lz4-shuffle": (
        "i4",
        [DELTA],
        numcodecs.Blosc(cname="lz4", shuffle=numcodecs.Blosc.SHUFFLE),
    ),
    "packbits, lz4": ("bool", [numcodecs.PackBits()], LZ4),
}


def seconds(device, value, filters, compressor, repeat):
    source = value if device == "cpu" else cuzarr.DeviceArray.from_host(value, device)
    best = float("inf")
    for _ in range(repeat):
        array = cuzarr.create_array(
            cuzarr.storage.MemoryStore(), shape=value.shape, chunks=(1 << 18,), dtype=value.dtype, zarr_format=2,
            filters=filters or None, compressors=compressor, device=device,
        )  # fmt: skip
        start = time.perf_counter()
        array[:] = source
        best = min(best, time.perf_counter() - start)
    np.testing.assert_array_equal(array.with_device("cpu")[:], value)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", nargs="+", default=["cuda:0", "cpu"])
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    steps = np.random.default_rng(0).integers(-3, 9, args.mib << 18)
    walk = np.cumsum(steps, dtype="i4")
    for name, (dtype, filters, compressor) in CASES.items():
        value = walk if dtype == "i4" else walk % 7 < 3
        for device in args.devices:
            rate = value.nbytes / seconds(device, value, filters, compressor, args.repeat) / 1e9
            print(f"{name:26} {device:8} {rate:7.2f} GB/s", flush=True)


if __name__ == "__main__":
    main()

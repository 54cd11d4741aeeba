"""How long does one small warm read take, called from Python again and again? An open array of 64 KiB chunks, blosc-lz4 or uncompressed.

    python bench/latency.py [--device cpu cuda:0] [--codec lz4] [--turns 1000] [--limit cpu=60 cuda:0=150] [--json FILE]

`--codec none` also prints the floor: the system's calls that read the chunk's file into a new array of NumPy's.

Microseconds from the call to its return, median and 90th percentile, every answer compared outside the clock. Turn after turn
another chunk is read, so that no answer can come from memory. `--limit` makes a median above so many microseconds a failure.
The first lines are a fresh process: to an open context, and to the first chunk, with kernels that were compiled before.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import arrays
import numpy as np

import cuzarr
from cuzarr.codecs import BloscCodec

CHUNK = 64 * 1024 // 4
CHUNKS = 64
FRESH = """
import sys, time
path, device = sys.argv[1:]
begun = time.perf_counter()
import cuzarr
loaded = time.perf_counter()
if device != "cpu":
    cuzarr.DeviceArray.empty((1,), "u1", device)
context = time.perf_counter()
cuzarr.open_array(path, mode="r", device=device)[:16384]
read = time.perf_counter()
print(loaded - begun, context - loaded, read - context)
"""


def on_host(values):
    """NumPy's of what a read gives: its own, CuPy's, ours."""
    if isinstance(values, np.ndarray):
        return values
    return values.cpu() if isinstance(values, cuzarr.DeviceArray) else values.get()


def measure(read, truth, turns):
    """Seconds of each read, sorted."""
    seconds = []
    for turn in range(turns + CHUNKS):
        at = turn * 37 % CHUNKS * CHUNK
        start = time.perf_counter()
        values = read(at)
        seconds.append(time.perf_counter() - start)
        if not np.array_equal(on_host(values), truth[at : at + CHUNK]):
            raise AssertionError("wrong data")
    return sorted(seconds[CHUNKS:])


def slices(path, device):
    """Reads one chunk by brackets."""
    array = cuzarr.open_array(path, mode="r", device=device)
    return lambda at: array[at : at + CHUNK]


def files(path):
    """Reads one chunk by the system's calls."""

    def read(at):
        file = os.open(f"{path}/c/{at // CHUNK}", os.O_RDONLY)
        values = np.empty(CHUNK, "f4")
        os.preadv(file, [values], 0)
        os.close(file)
        return values

    return read


def fresh(path, device):
    """Seconds of a process that is new: importing, making a context, the first chunk."""
    run = [sys.executable, "-c", FRESH, path, device]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL)  # what is compiled is kept on disk
    answer = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    return [float(part) for part in answer.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", nargs="+", default=["cpu"])
    parser.add_argument("--codec", choices=["lz4", "none"], default="lz4")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--limit", nargs="*", default=[])
    parser.add_argument("--json")
    args = parser.parse_args()
    limits = {name: float(value) for name, value in (limit.split("=") for limit in args.limit)}
    truth = arrays.temperature((4, 512, 512), 1).reshape(-1)[: CHUNK * CHUNKS]
    rows, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "a.zarr")
        codec = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4) if args.codec == "lz4" else None
        cuzarr.create_array(path, shape=truth.shape, chunks=(CHUNK,), dtype="f4", compressors=codec)[...] = truth
        if codec is None:
            print(
                f"the system's calls alone: one chunk in {1e6 * measure(files(path), truth, args.turns)[args.turns // 2]:.1f} µs"
            )
        for device in args.device:
            loaded, context, first = fresh(path, device)
            seconds = measure(slices(path, device), truth, args.turns)
            median, late = (1e6 * seconds[len(seconds) * part // 100] for part in (50, 90))
            rows.append(
                {
                    "device": device,
                    "median_us": round(median, 1),
                    "p90_us": round(late, 1),
                    "first_read_s": round(first, 4),
                }
            )
            print(
                f"{device}: a new process imports in {loaded:.3f} s, has a context in {context:.3f} s, reads first in {first:.3f} s"
            )
            above = median > limits.get(device, float("inf"))
            failed |= above
            print(f"{device}: one chunk in {median:.1f} µs, 90 % within {late:.1f} µs{' : TOO SLOW' if above else ''}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Random crops of a sharded volume, as training wants them: `Array.read_many` beside zarr-python, crop by crop.

    python bench/crops.py [--device cuda:0] [--side 512] [--crop 64] [--count 256] [--chunk 64] [--shard 256] [--repeat 3]

Seconds for all crops into memory of the device, the best of `repeat` with other crops each time, every crop compared with the
truth outside the clock.
"""

import argparse
import contextlib
import sys
import tempfile
import time

import arrays
import numpy as np
import zarr
from zarr.codecs import BloscCodec

import cuzarr


def cuzarr_many(array, boxes):
    return array.read_many(boxes)


def crop_by_crop(array, boxes):
    return [array[box] for box in boxes]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--crop", type=int, default=64)
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--shard", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    truth = arrays.counts((args.side,) * 3, 1).astype("f4")
    on_gpu = args.device != "cpu"
    if on_gpu:
        import cupy
    wait = (lambda: cupy.cuda.Device().synchronize()) if on_gpu else (lambda: None)
    back = (lambda value: cupy.asnumpy(cupy.asarray(value))) if on_gpu else np.asarray
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        codec = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
        layout = {
            "chunks": (args.chunk,) * 3,
            "shards": (args.shard,) * 3,
            "dtype": "f4",
            "compressors": codec,
        }
        zarr.create_array(store=folder, shape=truth.shape, **layout)[...] = truth
        best = {}
        for name, read in {
            "cuzarr read_many": cuzarr_many,
            "cuzarr, crop by crop": crop_by_crop,
            "zarr-python": crop_by_crop,
        }.items():
            with zarr.config.enable_gpu() if on_gpu and name == "zarr-python" else contextlib.nullcontext():
                array = (
                    zarr.open_array(folder, mode="r")
                    if name == "zarr-python"
                    else cuzarr.open_array(folder, mode="r", device=args.device)
                )
                for turn in range(args.repeat + 1):
                    starts = random.integers(0, args.side - args.crop + 1, (args.count, 3))
                    boxes = [tuple(slice(int(at), int(at) + args.crop) for at in start) for start in starts]
                    wait()
                    begun = time.perf_counter()
                    crops = read(array, boxes)
                    wait()
                    seconds = time.perf_counter() - begun
                    if not all(np.array_equal(back(crop), truth[box]) for crop, box in zip(crops, boxes)):
                        raise AssertionError(f"{name}: wrong data")
                    if turn:
                        best[name] = min(seconds, best.get(name, float("inf")))
            gigabytes = args.count * args.crop**3 * 4 / best[name] / 1e9
            print(
                f"{name:24} {best[name] * 1e3:10.2f} ms  {gigabytes:7.2f} GB/s of crops",
                flush=True,
            )
        print(f"cuzarr read_many is {best['zarr-python'] / best['cuzarr read_many']:.1f} times as fast as zarr-python")
    return 0


if __name__ == "__main__":
    sys.exit(main())

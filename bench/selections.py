"""Index arrays, points and masks of a stored field, beside the same chunks read as a box and beside zarr-python.

    python bench/selections.py [--device cuda:0] [--mebibytes 512 | --shape 512 8192 256] [--codec zstd] [--points 1000000] [--rows 300]
                               [--repeat 5]

The field has three dimensions and chunks of 1 MiB. Seconds from local files into memory of the device, the best of `repeat`,
every answer compared with NumPy's outside the clock. Writes of the same selections go to host memory's copy of the field.
"""

import argparse
import contextlib
import sys
import tempfile
import time

import arrays
import numpy as np
import zarr
from zarr.codecs import ZstdCodec

import cuzarr


def selections(shape, rows, points, random):
    """What is read, by name: how, and with what."""
    chosen = np.sort(random.choice(shape[1], min(rows, shape[1]), replace=False))
    coordinates = tuple(random.integers(0, extent, points) for extent in shape)
    mask = np.zeros(shape, bool)
    mask[shape[0] // 2] = random.random(shape[1:]) < 0.5
    return {
        "the whole array as a box": ("box", ...),
        f"oindex[:, {len(chosen)} sorted rows, :]": (
            "oindex",
            (slice(None), chosen, slice(None)),
        ),
        f"oindex[:, {len(chosen)} shuffled rows, :]": (
            "oindex",
            (slice(None), random.permutation(chosen), slice(None)),
        ),
        f"vindex, {points} points": ("vindex", coordinates),
        "a mask of half a plane": ("vindex", mask),
    }


def expected(truth, kind, selection):
    return truth[selection] if kind != "oindex" else truth[:, selection[1], :]


def read(array, kind, selection):
    return array[selection] if kind == "box" else getattr(array, kind)[selection]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--shape", type=int, nargs=3)
    parser.add_argument("--codec", choices=["zstd", "none"], default="zstd")
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    shape = tuple(args.shape or [64 * max(round(args.mebibytes ** (1 / 3)), 1)] * 3)
    on_gpu = args.device != "cpu"
    if on_gpu:
        import cupy
    wait = (lambda: cupy.cuda.Device().synchronize()) if on_gpu else (lambda: None)
    back = (lambda value: cupy.asnumpy(cupy.asarray(value))) if on_gpu else np.asarray
    random = np.random.default_rng(7)
    truth = arrays.counts(shape, 1).astype("f4")
    with tempfile.TemporaryDirectory() as folder:
        codec = ZstdCodec(level=3) if args.codec == "zstd" else None
        layout = {"chunks": (64,) * 3, "dtype": "f4", "compressors": codec}
        zarr.create_array(store=folder, shape=truth.shape, **layout)[...] = truth
        wanted = selections(truth.shape, args.rows, args.points, random)
        print(f"{'ms':36} {'cuzarr':>10} {'zarr-python':>12} {'times the box':>14}")
        box = None
        for what, (kind, selection) in wanted.items():
            best = {}
            for name in ("cuzarr", "zarr-python"):
                is_ours = name == "cuzarr"
                with contextlib.nullcontext() if is_ours or not on_gpu else zarr.config.enable_gpu():
                    opened = (
                        cuzarr.open_array(folder, mode="r", device=args.device) if is_ours else zarr.open_array(folder, mode="r")
                    )
                    # zarr-python makes a NumPy array of such a result, which CuPy refuses.
                    refused = not is_ours and on_gpu and kind == "vindex"
                    for turn in range(0 if refused else (args.repeat if is_ours else 1) + 1):
                        wait()
                        begun = time.perf_counter()
                        result = read(opened, kind, selection)
                        wait()
                        seconds = time.perf_counter() - begun
                        if not turn and not np.array_equal(back(result), expected(truth, kind, selection)):
                            raise AssertionError(f"{name}, {what}: wrong data")
                        if turn:
                            best[name] = min(seconds, best.get(name, float("inf")))
                        del result
            box = box or best["cuzarr"]
            ours, theirs = (
                best["cuzarr"] * 1e3,
                best.get("zarr-python", float("nan")) * 1e3,
            )
            print(
                f"{what:36} {ours:10.1f} {theirs:12.1f} {best['cuzarr'] / box:14.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

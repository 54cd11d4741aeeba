"""Functions and reductions of arrays in GPU memory beside CuPy's, and the mean of a compressed store beside reading it.

    python bench/compute.py [--mib 1024] [--store-gib 8] [--folder /dev/shm]

Answers are compared. Prints milliseconds, the best of several runs; the copy is the bound of everything that reads and writes
each element once.
"""

import argparse
import pathlib
import shutil
import time

import cupy
import numpy as np

import cuzarr


def clock(run, repeat=10):
    best = float("inf")
    for _ in range(repeat + 1):
        start = time.perf_counter()
        run()
        cupy.cuda.Device().synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def fused(u, v, w, x):
    """sqrt(abs(u * v + w - x)) as one kernel: a plan of what is in memory."""
    expr = [cuzarr._core.Expr.buffer(cuzarr._core.NdBuffer.from_dlpack(one)) for one in (u, v, w, x)]
    apply = cuzarr._core.Expr.apply
    difference = apply("subtract", [apply("add", [apply("multiply", expr[:2]), expr[2]]), expr[3]])
    return apply("sqrt", [apply("absolute", [difference])]).evaluate("cuda:0")


def memory(mib):
    u, v, w, x = (cupy.random.rand(mib << 18, dtype="f4") for _ in range(4))
    out = cupy.empty_like(x)
    rows = x.reshape(1 << 10, -1)
    assert bool(cupy.allclose(cuzarr.xp.sin(x), cupy.sin(x), rtol=0, atol=1e-6))
    assert bool(
        cupy.allclose(
            cupy.from_dlpack(fused(u, v, w, x)),
            cupy.sqrt(cupy.abs(u * v + w - x)),
            rtol=1e-6,
        )
    )
    assert float(cuzarr.xp.median(rows)) == float(cupy.median(rows))
    assert bool((cuzarr.xp.histogram(rows, 50, (0, 1))[0] == cupy.histogram(rows, 50, (0, 1))[0]).all())
    assert bool(cupy.allclose(cuzarr.xp.mean(rows, 0), rows.mean(0, dtype="f8"), rtol=1e-6))
    pairs = {
        "sin": (lambda: cupy.sin(x), lambda: cuzarr.xp.sin(x)),
        "five operations, one kernel": (
            lambda: cupy.sqrt(cupy.abs(u * v + w - x)),
            lambda: fused(u, v, w, x),
        ),
        "sum": (lambda: rows.sum(), lambda: cuzarr.xp.sum(rows)),
        "mean over rows": (lambda: rows.mean(0), lambda: cuzarr.xp.mean(rows, 0)),
        "mean over columns": (lambda: rows.mean(1), lambda: cuzarr.xp.mean(rows, 1)),
        "variance": (lambda: rows.var(), lambda: cuzarr.xp.var(rows)),
        "where the greatest is": (
            lambda: rows.argmax(),
            lambda: cuzarr.xp.argmax(rows),
        ),
        "median": (lambda: cupy.median(rows), lambda: cuzarr.xp.median(rows)),
        "histogram of 50 bins": (
            lambda: cupy.histogram(rows, 50, (0, 1)),
            lambda: cuzarr.xp.histogram(rows, 50, (0, 1)),
        ),
    }
    print(f"{mib} MiB of float32{'CuPy':>28} {'cuzarr':>10}")
    print(f"{'copy':36} {clock(lambda: cupy.copyto(out, x)) * 1e3:8.3f}")
    for name, (theirs, ours) in pairs.items():
        print(f"{name:36} {clock(theirs) * 1e3:8.3f} {clock(ours) * 1e3:10.3f}")


def rows(mib):
    """Medians of many rows, whose elements lie side by side (axis 1) or a row apart (axis 0)."""
    x = cupy.random.standard_normal(mib << 18, dtype="f4")
    print(f"medians of {mib} MiB of float32{'CuPy':>17} {'cuzarr':>10}")
    for length in (64, 1 << 10, 1 << 12, 1 << 14, 1 << 16):
        for shape, axis in (((-1, length), 1), ((length, -1), 0)):
            own = x.reshape(shape)
            assert bool((cuzarr.xp.median(own, axis) == cupy.median(own, axis)).all())
            theirs, ours = (clock(lambda: library.median(own, axis), 3) for library in (cupy, cuzarr.xp))
            print(f"{f'{x.size // length} of {length}, axis {axis}':36} {theirs * 1e3:8.3f} {ours * 1e3:10.3f}")


def small():
    """Reductions of so little that calling takes longer than reading it."""
    x = cupy.random.standard_normal(1 << 10, dtype="f4")
    print(f"{'4 KiB of float32, microseconds':36} {'CuPy':>8} {'cuzarr':>10}")
    for name in ("sum", "max", "argmax"):
        theirs, ours = (clock(lambda: getattr(library, name)(x), 50) for library in (cupy, cuzarr.xp))
        print(f"{name:36} {theirs * 1e6:8.1f} {ours * 1e6:10.1f}")


def store(gib, folder):
    root = pathlib.Path(folder) / "cuzarr-bench-compute.zarr"
    rng = np.random.default_rng(0)
    part = (np.cumsum(rng.normal(size=(64, 1024, 1024)).astype("f4"), axis=2) * 64).round() / 64
    try:
        array = cuzarr.create_array(root, shape=(256 * gib, 1024, 1024), chunks=(2, 1024, 1024), dtype="f4")
        for first in range(0, array.shape[0], 64):
            array[first : first + 64] = part
        z = cuzarr.open_array(root, device="cuda:0")
        assert abs(float(z.mean().compute()) - part.mean(dtype="f8")) < 1e-3
        assert float(cuzarr.xp.median(z).compute()) == float(np.median(part))
        for limit in ("2 GiB", "4 GiB"):
            with cuzarr.config.set({"memory_limit": limit}):
                z = cuzarr.open_array(root, device="cuda:0")
                read = clock(lambda: z[:], 3)
                ways = {
                    "mean": lambda: z.mean().compute(),
                    "mean over times": lambda: z.mean(axis=0).compute(),
                    "median": lambda: cuzarr.xp.median(z).compute(),
                }
                print(f"zstd store of {gib} GiB within {limit}: read {read:.3f} s")
                for name, way in ways.items():
                    seconds = clock(way, 3)
                    print(f"  {name}: {seconds:.3f} s, {seconds / read:.2f} times as long")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--store-gib", type=int, default=8)
    parser.add_argument("--folder", default="/dev/shm")
    arguments = parser.parse_args()
    memory(arguments.mib)
    rows(arguments.mib // 4)
    small()
    store(arguments.store_gib, arguments.folder)

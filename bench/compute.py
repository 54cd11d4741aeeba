"""Functions and reductions of arrays beside those of other libraries, on a GPU or on the host.

    python bench/compute.py [--device cuda:0] [--mib 1024] [--store-gib 8] [--folder /dev/shm]
    python bench/compute.py --device cpu [--mib 128] [--repeat 7] [--jobs mean sin ...] [--folder DIR] [--record DIR]

On a GPU, the arrays are in its memory and CuPy computes the same; then the mean of a compressed store is timed beside reading it. It
prints milliseconds, the best of several runs; the copy is the bound of everything that reads and writes each element once.

On the host, expressions of a stored array of float32 (not compressed, chunks of 1 MiB) are timed beside reading the array, reading it by
cuzarr and computing with NumPy or numexpr, computing with dask, and NumPy alone. The array is in `memory://`, and in files in the page
cache. It prints milliseconds, medians of the repeats. `--record DIR` writes a record.

Every answer is compared: with CuPy's on a GPU, with NumPy's on the host.
"""

import argparse
import importlib.util
import itertools
import pathlib
import shutil
import tempfile
import time

import arrays
import numpy as np
from datasets import measured
from read import Place, write_record

import cuzarr

cupy = None
if importlib.util.find_spec("cupy"):
    import cupy


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


# The jobs on the host: what a library computes, and the largest difference from NumPy's answer, as a part of its size. Sums of NumPy
# are in binary32, ours in binary64.
JOBS = {
    "mean": (lambda np, x: np.mean(x), 1e-5),
    "mean(axis=0)": (lambda np, x: np.mean(x, axis=0), 1e-5),
    "mean(axis=2)": (lambda np, x: np.mean(x, axis=2), 1e-5),
    "max": (lambda np, x: np.max(x), 0),
    "max(axis=0)": (lambda np, x: np.max(x, axis=0), 0),
    "std(axis=2)": (lambda np, x: np.std(x, axis=2), 1e-4),
    "argmax(axis=0)": (lambda np, x: np.argmax(x, axis=0), 0),
    "histogram": (lambda np, x: np.histogram(x, bins=64, range=(200, 320))[0], 0),
    "cumsum(axis=0)": (lambda np, x: np.cumsum(x, axis=0), 1e-5),
    "sin": (lambda np, x: np.sin(x), 1e-6),
    "x * 2 + 1": (lambda np, x: x * 2 + 1, 0),
}
NUMEXPR = {"sin": "sin(x)", "x * 2 + 1": "x * 2 + 1"}


def same(result, truth, tolerance, job):
    """Whether an answer is NumPy's. Sines are compared by their distance, other answers by their size."""
    result, truth = np.asarray(result), np.asarray(truth)
    distance = np.abs(result.astype("f8") - truth.astype("f8"))
    scale = 1 if job == "sin" else np.abs(truth.astype("f8"))
    return result.shape == truth.shape and bool((distance <= tolerance * scale).all())


def ways(job, stored, values):
    """What computes a job on the host, by name."""
    compute, _ = JOBS[job]
    yield "cuzarr", lambda: compute(cuzarr.xp, stored).compute()
    yield "read, NumPy", lambda: compute(np, stored[...])
    if job in NUMEXPR and importlib.util.find_spec("numexpr"):
        import numexpr

        yield "read, numexpr", lambda: numexpr.evaluate(NUMEXPR[job], {"x": stored[...]})
    if importlib.util.find_spec("dask"):
        import dask.array

        lazy = dask.array.from_array(stored, chunks=stored.chunks)
        if job != "histogram":
            yield "dask", lambda: compute(dask.array, lazy).compute()
        else:
            yield "dask", lambda: dask.array.histogram(lazy, bins=64, range=(200, 320))[0].compute()
    yield "NumPy alone", lambda: compute(np, values)


def host(mib, jobs, repeat, folder, place):
    values = arrays.temperature((mib // 4, 1024, 1024), 1)
    for name, target in (("memory", "memory://bench-compute"), ("files", folder / "compute.zarr")):
        cuzarr.create_array(target, data=values, chunks=(1, 512, 512), compressors=None, overwrite=True)
        stored = cuzarr.open_array(target, mode="r", device="cpu")
        read, elements = measured(place, repeat, lambda stored=stored: stored[...])
        assert bool((elements == values).all())
        del elements
        yield name, "reading", "cuzarr", read
        for job in jobs:
            truth = JOBS[job][0](np, values)
            for way, work in ways(job, stored, values):
                milliseconds, result = measured(place, repeat, work)
                assert same(result, truth, JOBS[job][1], job), (job, way)
                del result
                yield name, job, way, milliseconds


def little(repeat):
    """A sine of so little that calling takes longer than computing."""
    values = np.linspace(-9, 9, 256, dtype="f4")
    for name, library in (("cuzarr", cuzarr.xp), ("NumPy alone", np)):
        assert same(library.sin(values), np.sin(values), 1e-6, "sin")
        best = float("inf")
        for _ in range(20 * repeat):
            start = time.perf_counter()
            for _ in range(100):
                library.sin(values)
            best = min(best, (time.perf_counter() - start) / 100)
        yield "host memory", "sin of 1 KiB", name, best * 1e3


def on_host(arguments):
    place, rows = Place("cpu"), []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        found = host(arguments.mib or 128, arguments.jobs, arguments.repeat, pathlib.Path(folder), place)
        for where, job, way, milliseconds in itertools.chain(found, little(arguments.repeat)):
            print(f"{where:12} {job:16} {way:14} {milliseconds:10.3f} ms", flush=True)
            rows.append({"where": where, "job": job, "by": way, "milliseconds": round(milliseconds, 4)})
    if arguments.record:
        unit = "milliseconds, medians of the repeats; every answer compared with NumPy's"
        write_record(arguments.record, place, rows, "compute", unit)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--mib", type=int)
    parser.add_argument("--store-gib", type=int, default=8)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--record", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        on_host(arguments)
    else:
        memory(arguments.mib or 1024)
        rows((arguments.mib or 1024) // 4)
        small()
        store(arguments.store_gib, arguments.folder or "/dev/shm")

"""Element-wise kernels on arrays that are in GPU memory: `cuzarr.ElementwiseKernel` beside CuPy, answers compared.

    python bench/elementwise.py [--mib 1024] [--repeat 20]

Prints GB/s of traffic (bytes read and written once), also of a plain copy, which is the bound.
"""

import argparse
import time

import cupy
import cuzarr


def clock(run, repeat):
    run()
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    for _ in range(repeat):
        run()
    cupy.cuda.Device().synchronize()
    return (time.perf_counter() - start) / repeat


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    x = cupy.random.rand(args.mib << 18, dtype="f4")
    out = cupy.empty_like(x)
    sine = cuzarr.ElementwiseKernel("T x", "T y", "y = sin(x)", "sine")
    five = cuzarr.ElementwiseKernel("T x", "T y", "y = sin(x) * 2.0f + x * x - 1.0f", "five")
    assert bool(cupy.allclose(sine(x), cupy.sin(x), rtol=0, atol=1e-6))
    assert bool(cupy.allclose(five(x), cupy.sin(x) * 2 + x * x - 1, rtol=0, atol=1e-5))
    traffic = 2 * x.nbytes / 1e9
    for name, run in {
        "copy": lambda: cupy.copyto(out, x),
        "sin, CuPy": lambda: cupy.sin(x, out=out),
        "sin, cuzarr": lambda: sine(x, out),
        "five operations, CuPy": lambda: cupy.sin(x) * 2 + x * x - 1,
        "five operations, cuzarr": lambda: five(x, out),
    }.items():
        print(f"{name:26} {traffic / clock(run, args.repeat):8.0f} GB/s")


if __name__ == "__main__":
    main()

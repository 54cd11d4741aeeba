"""Element-wise kernels on arrays that are in GPU memory: `cuzarr.kernels.ElementwiseKernel` beside CuPy, answers compared.

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
    sine = cuzarr.kernels.ElementwiseKernel("T x", "T y", "y = sin(x)", "sine")
    five = cuzarr.kernels.ElementwiseKernel("T x", "T y", "y = sin(x) * 2.0f + x * x - 1.0f", "five")
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
    forms(args.mib, args.repeat)


def forms(mib, repeat):
    """One kernel on operands that lie in other ways than the result."""
    text = ("T a, T b, float32 w", "T z", "z = a + w * (b - a)", "blend")
    theirs, ours = (
        cupy.ElementwiseKernel(*text),
        cuzarr.kernels.ElementwiseKernel(*text),
    )
    a, b = (cupy.random.rand(mib << 3, 1 << 15, dtype="f4") for _ in range(2))
    square = 1 << 14 if mib >= 1024 else 1 << 11
    turned = a.reshape(-1)[: square * square].reshape(square, square).T
    few = a[:1, :1000]
    operands = {
        "side by side": (a, b),
        "a row": (a, b[0]),
        "a column": (a, b[:, :1]),
        "transposed": (
            turned,
            b.reshape(-1)[: square * square].reshape(square, square),
        ),
        "parts of rows": (a[:, 1:-3], b[:, 3:-1]),
        "every second": (a[::2, ::2], b[::2, ::2]),
        "1000 elements": (few, few),
    }
    print(f"{f'a blend of two, {mib} MiB, ms':30} {'CuPy':>8} {'cuzarr':>8}")
    for name, (x, y) in operands.items():
        out = theirs(x, y, cupy.float32(0.25))
        assert bool(cupy.allclose(ours(x, y, 0.25), out, rtol=1e-6)), name
        times = (
            clock(lambda: theirs(x, y, cupy.float32(0.25), out), repeat),
            clock(lambda: ours(x, y, 0.25, out), repeat),
        )
        print(f"{name:30} {times[0] * 1e3:8.3f} {times[1] * 1e3:8.3f}")


if __name__ == "__main__":
    main()

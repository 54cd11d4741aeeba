"""The sine of a million numbers: by cuzarr's functions, and by the kernels of others on the same memory, without a copy.

    python examples/sine.py [--device cuda:0]

The numbers are read from a compressed array to the device, and every answer is compared with NumPy's. What is not installed is
left out, and said so; on the CPU there are cuzarr's function and its plan.
"""

import argparse

import numpy as np

import cuzarr

RAW = r"""
extern "C" __global__ void sine(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sinf(x[i]);
}
"""


def with_a_function(array, x):
    return cuzarr.xp.sin(x)


def with_a_plan(array, x):
    return np.sin(array).compute(device=array.device)


def with_an_elementwise_kernel(array, x):
    return cuzarr.kernels.ElementwiseKernel("float32 x", "float32 y", "y = sin(x)", "sine")(x)


def with_a_raw_kernel(array, x):
    y = cuzarr.xp.empty_like(x)
    cuzarr.kernels.Module(RAW).get_function("sine")(x, y, x.size, grid=(x.size + 255) // 256, block=256)
    return y


def with_cupy(array, x):
    import cupy

    return cupy.sin(cupy.from_dlpack(x))


def with_pytorch(array, x):
    import torch

    return torch.sin(torch.from_dlpack(x)).cpu().numpy()


def with_numba(array, x):
    import math

    try:
        from numba import cuda

        @cuda.jit
        def sine(x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] = math.sin(x[i])

        y = cuzarr.xp.empty_like(x)
        sine[(x.size + 255) // 256, 256](cuda.as_cuda_array(x), cuda.as_cuda_array(y))
        cuda.synchronize()
    except AttributeError as error:
        # Numba looks for some names of NumPy's when it is imported, for others when it compiles.
        raise ImportError(f"Numba does not know this NumPy: {error}") from error
    return y


EVERYWHERE = [with_a_function, with_a_plan]
ON_A_GPU = [with_an_elementwise_kernel, with_a_raw_kernel, with_cupy, with_pytorch, with_numba]


def main(device):
    numbers = np.linspace(-10, 10, 1_000_000, dtype="float32")
    expected = np.sin(numbers.astype("float64")).astype("float32")
    # Two units of the last place.
    tolerance = 2 * np.spacing(np.abs(expected))
    array = cuzarr.create_array({}, data=numbers, chunks=100_000, device=device)
    x = array[:]
    for way in EVERYWHERE + (ON_A_GPU if device != "cpu" else []):
        name = way.__name__.replace("_", " ")
        try:
            y = way(array, x)
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        wrong = np.abs(cuzarr.xp.asnumpy(y) - expected) > tolerance
        if wrong.any():
            raise SystemExit(f"{name}: {wrong.sum()} numbers differ from NumPy's")
        print(f"{name}: as NumPy's")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help='"cpu" or "cuda:0"')
    main(parser.parse_args().device)

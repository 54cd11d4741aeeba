"""The user's own kernels, compiled at run time from CUDA C++ source, or from one expression over whole arrays.

>>> import cuzarr
>>> source = 'extern "C" __global__ void scale(float *x, float by, int n) {...}'
>>> scale = cuzarr.kernels.Module(source).get_function("scale")    # doctest: +SKIP
>>> scale(x, 2.0, x.size, grid=(x.size + 255) // 256, block=256)    # doctest: +SKIP

Arguments are arrays of any library in the memory of the module's GPU, and plain numbers. Compiling needs NVRTC: ``pip install
cuzarr[cuda12]`` or ``[cuda13]``, a CUDA toolkit, or any package that contains it (PyTorch does). Compiled kernels are cached on
disk.
"""

from cuzarr import _names
from cuzarr.kernels.elementwise import ElementwiseKernel
from cuzarr.kernels.module import Function, Module

__all__ = ["ElementwiseKernel", "Function", "Module"]

_names.publish(globals())

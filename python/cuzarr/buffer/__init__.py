"""Buffers, the memory of operations: flat bytes (``Buffer``) and N-dimensional elements (``NDBuffer``), on the CPU and on GPUs.

Names and semantics are those of ``zarr.buffer`` and ``zarr.abc.buffer``; neither zarr-python nor CuPy is needed. The pair of
classes that an operation uses is its *prototype*. It decides the device:

>>> import cuzarr
>>> from cuzarr.buffer import cpu
>>> array = cuzarr.ones((2, 3), chunks=(1, 3), dtype="float32", store={})
>>> array.getitem(0, prototype=cpu.buffer_prototype)
array([1., 1., 1.], dtype=float32)
>>> cuzarr.buffer.default_buffer_prototype().buffer
<class 'cuzarr.buffer.cpu.Buffer'>

Programs should check attributes of memory (``device``, ``is_host_accessible``) instead of its class.
"""

from cuzarr import _names
from cuzarr.buffer import cpu, gpu
from cuzarr.buffer._classes import ArrayLike, Buffer, BufferPrototype, NDArrayLike, NDBuffer
from cuzarr.buffer._prototype import default_buffer_prototype

__all__ = [
    "ArrayLike",
    "Buffer",
    "BufferPrototype",
    "NDArrayLike",
    "NDBuffer",
    "cpu",
    "default_buffer_prototype",
    "gpu",
]

_names.publish(globals())

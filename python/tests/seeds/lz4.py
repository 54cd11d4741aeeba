"""LZ4 between the GPU and the CPU: what either of them writes, the other reads."""

import tempfile

import cupy
import numpy
import zarr
from cuzarr.kvikio import CompatCompressor, open_cupy_array

path = tempfile.mkdtemp()
lz4 = CompatCompressor.lz4()

z = open_cupy_array(path, mode="w", shape=(20,), chunks=(5,), dtype=int, compressor=lz4)
z[:10] = numpy.arange(10)
z[10:] = cupy.arange(10, 20)
assert isinstance(z[:], cupy.ndarray)
print("the GPU reads what it wrote:", z[:].tolist())

z = zarr.open_array(path)
assert isinstance(z[:], numpy.ndarray)
print("the CPU reads what the GPU wrote:", z[:].tolist())
z[:] = numpy.arange(20, 40)

z = open_cupy_array(path, mode="r")
assert isinstance(z[:], cupy.ndarray)
print("the GPU reads what the CPU wrote over it:", z[:].tolist())

z = zarr.open_array(path, mode="w", shape=(10,), dtype=int, compressor=None, zarr_format=2)
z[:] = numpy.arange(10)
z = open_cupy_array(path)
assert isinstance(z[:], cupy.ndarray)
print("the GPU reads what the CPU wrote uncompressed:", z[:].tolist())

z = zarr.open_array(path, mode="w", shape=(10,), dtype=int, compressor=lz4.cpu, zarr_format=2)
z[:] = numpy.arange(10, 20)
z = open_cupy_array(path)
assert isinstance(z[:], cupy.ndarray)
print("the GPU reads what the CPU compressed:", z[:].tolist())

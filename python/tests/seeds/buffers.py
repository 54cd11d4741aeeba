"""Memory itself: bytes and elements, on either side."""

import sys

import numpy as np
from cuzarr.buffer import cpu, gpu

memory = gpu if sys.argv[1] == "gpu" else cpu
data = memory.Buffer.from_bytes(b"zarr") + memory.Buffer.from_buffer(cpu.Buffer.from_bytes(b" on a GPU"))
print(len(data), data.to_bytes(), data[5:7].to_bytes(), data == memory.Buffer.from_bytes(b"zarr on a GPU"))
print(memory.Buffer.create_zero_length().combine([data[:4], data[4:]]).to_bytes())
table = memory.NDBuffer.create(shape=(3, 4), dtype="int32", fill_value=5)
table[1:3, ::2] = memory.NDBuffer.from_numpy_array(np.array([[1, 2], [3, 4]], dtype="int32"))
print(table.as_numpy_array().tolist(), table.shape, table.dtype, table.byteorder)
print(table.transpose((1, 0)).reshape((2, 6)).as_numpy_array().tolist())
print(table[0:1].all_equal(5), table.all_equal(5), table[1, 0].as_scalar(), table[0:1].squeeze((0,)).shape)
print(table.astype("float64").dtype, table.copy().as_numpy_array().sum())
text = cpu.as_numpy_array_wrapper(lambda array: array[::-1].tobytes(), data, memory.buffer_prototype)
print(text.to_bytes())

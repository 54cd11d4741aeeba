"""For a while, and for all threads, arrays are read to another kind of memory."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import cuzarr as zarr
from cuzarr.buffer import cpu, gpu

memory = gpu if sys.argv[1] == "gpu" else cpu
z = zarr.create_array(store={}, shape=(6, 6), chunks=(2, 2), dtype="int16")
z[:] = np.arange(36, dtype="int16").reshape(6, 6)
with zarr.config.set({"buffer": memory.Buffer}):
    with ThreadPoolExecutor(3) as pool:
        rows = list(pool.map(lambda row: z[row], range(6)))
    assert zarr.buffer.default_buffer_prototype() == memory.buffer_prototype
    assert all(memory.NDBuffer.from_ndarray_like(row).as_ndarray_like() is row for row in rows)
assert zarr.buffer.default_buffer_prototype() == cpu.buffer_prototype
assert type(z[:]) is np.ndarray
print([int(row.sum()) for row in rows])

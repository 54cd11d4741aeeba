"""One operation has its own prototype; nothing else changes."""

import sys

import numpy as np
import zarr
from zarr.buffer import cpu, gpu

prototype = (gpu if sys.argv[1] == "gpu" else cpu).buffer_prototype
z = zarr.create_array(store={}, shape=(12, 12), chunks=(5, 5), dtype="float32")
z[:] = np.arange(144, dtype="float32").reshape(12, 12)
part = z.get_basic_selection((slice(2, 9), slice(None, None, 3)), prototype=prototype)
assert isinstance(prototype.nd_buffer.from_ndarray_like(part), prototype.nd_buffer)
z.set_basic_selection((slice(0, 7), slice(0, 4)), part, prototype=prototype)
print(part.shape, float(part.sum()))
rows = z.get_orthogonal_selection(([0, 11], slice(0, 3)), prototype=prototype)
print(rows.shape, float(rows.sum()))
print(type(z[:]).__module__, float(z[:].sum()))

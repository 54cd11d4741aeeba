"""Everything is read to one kind of memory: the configuration says which."""

import sys

import zarr

if sys.argv[1] == "gpu":
    import cupy as xp

    zarr.config.set({"buffer": "zarr.buffer.gpu.Buffer", "ndbuffer": "zarr.buffer.gpu.NDBuffer"})
else:
    import numpy as xp

store = zarr.storage.MemoryStore()
z = zarr.create_array(store=store, shape=(100, 100), chunks=(10, 10), dtype="float32", fill_value=-1)
z[:10, :] = xp.arange(1000, dtype="float32").reshape(10, 100)
z[50:60, 20:30] = 7
part = z[5:15, ::2]
assert type(part) is xp.ndarray
print(part.shape, part.dtype, float(part.sum()))
print(float(z[55, 20:30].sum()), float(z[:].min()), float(z[:].max()))

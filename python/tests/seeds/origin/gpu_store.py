"""Chunks live in GPU memory, and slices of it are written and read."""

import sys

import zarr

if sys.argv[1] == "gpu":
    import cupy as xp

    zarr.config.enable_gpu()
    store = zarr.storage.GpuMemoryStore()
else:
    import numpy as xp

    store = zarr.storage.MemoryStore()

z = zarr.create_array(store=store, shape=(100, 100), chunks=(10, 10), dtype="float32", compressors=None)
z[:10, :] = xp.arange(1000, dtype="float32").reshape(10, 100)
z[10:20, 5:25] = xp.full((10, 20), 2, dtype="float32")
part = z[5:15, ::3]
assert type(part) is xp.ndarray
print(part.shape, part.dtype, float(part.sum()))
z[20:30, :34] = part
print(float(z[:].sum()), z.nchunks_initialized)

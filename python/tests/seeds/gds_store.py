"""An array in a directory that is read into GPU memory, and written from it, by cuFile."""

import sys
import tempfile

import cuzarr as zarr
from cuzarr.kvikio import GDSStore

if sys.argv[1] == "gpu":
    import cupy as xp

    zarr.config.enable_gpu()
else:
    import numpy as xp

store = GDSStore(tempfile.mkdtemp())
z = zarr.create_array(store=store, shape=(100, 100), chunks=(25, 50), dtype="float32", overwrite=True)
z[:30, :60] = xp.arange(1800, dtype="float32").reshape(30, 60)
z[90:, 90:] = 5
part = zarr.open_array(store, mode="r")[20:40, ::7]
assert type(part) is xp.ndarray
print(part.shape, part.dtype, float(part.sum()), float(z[:].sum()))

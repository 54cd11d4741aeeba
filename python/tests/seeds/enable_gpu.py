"""One call turns a program to the GPU, for good or for a while."""

import sys

import cuzarr as zarr

z = zarr.create_array(store={}, shape=(8, 8), chunks=(4, 4), dtype="int32")
z[:] = 3
if sys.argv[1] == "gpu":
    import cupy

    with zarr.config.enable_gpu():
        part = z[2:6, 2:6]
        assert type(part) is cupy.ndarray
        z[2:6, 2:6] = part * 2
else:
    part = z[2:6, 2:6]
    z[2:6, 2:6] = part * 2
print(z[:].sum(), z[2, 1], z[2, 2])

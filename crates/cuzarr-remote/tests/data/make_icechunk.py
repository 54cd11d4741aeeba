"""Makes icechunk-1 and icechunk-2 beside this file, by icechunk 2.3.0: python make_icechunk.py FOLDER FORMAT."""

import os
import shutil
import sys

import icechunk
import numpy as np
import zarr

out = sys.argv[1]
shutil.rmtree(out, ignore_errors=True)
config = icechunk.RepositoryConfig.default()
config.inline_chunk_threshold_bytes = 40
config.set_virtual_chunk_container(
    icechunk.VirtualChunkContainer("file:///tmp/cuzarr-icechunk/", icechunk.local_filesystem_store("/tmp/cuzarr-icechunk"))
)
repo = icechunk.Repository.create(icechunk.local_filesystem_storage(out), config=config, spec_version=int(sys.argv[2]))
s = repo.writable_session("main")
g = zarr.create_group(s.store, attributes={"title": "field"})
a = g.create_array("t", shape=(10, 7), chunks=(4, 3), dtype="int32", compressors=None)
a[:] = np.arange(70, dtype="i4").reshape(10, 7)
b = g.create_array("deep/small", shape=(4,), chunks=(2,), dtype="int32", compressors=None)
b[:] = [5, 6, 7, 8]
v = g.create_array("virtual", shape=(8,), chunks=(4,), dtype="uint8", compressors=None)
s.store.set_virtual_ref("virtual/c/0", "file:///tmp/cuzarr-icechunk/a.bin", offset=2, length=4)
s.store.set_virtual_ref("virtual/c/1", "file:///tmp/cuzarr-icechunk/a.bin", offset=6, length=4)
first = s.commit("first")
repo.create_tag("v1", first)
s = repo.writable_session("main")
zarr.open_array(s.store, path="t")[0, 0] = -1
s.commit("second")
shutil.rmtree(os.path.join(out, "overwritten"), ignore_errors=True)
shutil.rmtree(os.path.join(out, "transactions"), ignore_errors=True)

"""Elements are awaited, and a prototype says for each call where they go."""

import asyncio
import sys

import cuzarr as zarr
import cuzarr.api.asynchronous
from cuzarr.buffer import cpu, gpu

prototype = (gpu if sys.argv[1] == "gpu" else cpu).buffer_prototype


async def main():
    z = await zarr.api.asynchronous.create_array(store={}, shape=(20, 30), chunks=(5, 10), dtype="float64")
    ones = cpu.NDBuffer.create(shape=(10, 30), dtype="float64", fill_value=1.5)
    await z.setitem((slice(0, 10), slice(None)), ones.as_ndarray_like())
    parts = await asyncio.gather(*(z.getitem((slice(n, n + 4), slice(3)), prototype=prototype) for n in range(0, 20, 4)))
    for part in parts:
        assert isinstance(prototype.nd_buffer.from_ndarray_like(part), prototype.nd_buffer)
        print(part.shape, float(part.sum()))


asyncio.run(main())

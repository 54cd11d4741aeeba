"""The functions of ``cuzarr``, to be awaited. Arrays and groups are asynchronous, too.

>>> import asyncio
>>> from cuzarr.api import asynchronous
>>> async def main():
...     array = await asynchronous.create_array({}, shape=(4,), chunks=(2,), dtype="int16")
...     await array.setitem(slice(1, 3), 5)
...     return await array.getitem(...)
>>> asyncio.run(main())
array([0, 5, 5, 0], dtype=int16)

Awaiting blocks no loop: calls run in threads (``async.concurrency`` of them), and cancelling one ends its reading or
writing at the next object of the store and waits for that.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable
from typing import Any

from cuzarr import _api
from cuzarr._compute import copy as _copying
from cuzarr._node.asynchronous import AsyncArray, AsyncGroup, run_node, to_async
from cuzarr._runtime import run


def _awaited(function: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await run_node(function, *args, **kwargs)

    return call


array = _awaited(_api.array)
consolidate_metadata = _awaited(_api.consolidate_metadata)
copy = _awaited(_copying.copy)
copy_all = _awaited(_api.copy_all)
copy_store = _awaited(_api.copy_store)
create = _awaited(_api.create)
create_array = _awaited(_api.create_array)
create_group = _awaited(_api.create_group)
empty = _awaited(_api.empty)
empty_like = _awaited(_api.empty_like)
from_array = _awaited(_api.from_array)
full = _awaited(_api.full)
full_like = _awaited(_api.full_like)
group = _awaited(_api.group)
load = _awaited(_api.load)
ones = _awaited(_api.ones)
ones_like = _awaited(_api.ones_like)
open = _awaited(_api.open)
open_array = _awaited(_api.open_array)
open_consolidated = _awaited(_api.open_consolidated)
open_group = _awaited(_api.open_group)
open_like = _awaited(_api.open_like)
save = _awaited(_api.save)
save_array = _awaited(_api.save_array)
save_group = _awaited(_api.save_group)
tree = _awaited(_api.tree)
zeros = _awaited(_api.zeros)
zeros_like = _awaited(_api.zeros_like)


@functools.wraps(_api.create_hierarchy)
async def create_hierarchy(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:  # noqa: D103, documented by what it wraps
    for item in await run(lambda: list(_api.create_hierarchy(*args, **kwargs))):
        yield to_async(item)


__all__ = [
    "AsyncArray",
    "AsyncGroup",
    *(name for name in _api.__all__ if name != "print_debug_info"),
]

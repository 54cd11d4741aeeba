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

from cuzarr import _names
from cuzarr._node.asynchronous import AsyncArray, AsyncGroup, run_node, to_async
from cuzarr._runtime import run
from cuzarr.api import synchronous


def _awaited(function: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await run_node(function, *args, **kwargs)

    call.__module__ = __name__
    return call


array = _awaited(synchronous.array)
consolidate_metadata = _awaited(synchronous.consolidate_metadata)
copy = _awaited(synchronous.copy)
copy_all = _awaited(synchronous.copy_all)
copy_store = _awaited(synchronous.copy_store)
create = _awaited(synchronous.create)
create_array = _awaited(synchronous.create_array)
create_group = _awaited(synchronous.create_group)
empty = _awaited(synchronous.empty)
empty_like = _awaited(synchronous.empty_like)
from_array = _awaited(synchronous.from_array)
full = _awaited(synchronous.full)
full_like = _awaited(synchronous.full_like)
group = _awaited(synchronous.group)
load = _awaited(synchronous.load)
ones = _awaited(synchronous.ones)
ones_like = _awaited(synchronous.ones_like)
open = _awaited(synchronous.open)
open_array = _awaited(synchronous.open_array)
open_consolidated = _awaited(synchronous.open_consolidated)
open_group = _awaited(synchronous.open_group)
open_like = _awaited(synchronous.open_like)
save = _awaited(synchronous.save)
save_array = _awaited(synchronous.save_array)
save_group = _awaited(synchronous.save_group)
tree = _awaited(synchronous.tree)
zeros = _awaited(synchronous.zeros)
zeros_like = _awaited(synchronous.zeros_like)


@functools.wraps(synchronous.create_hierarchy)
async def create_hierarchy(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:  # documented by what it wraps
    for item in await run(lambda: list(synchronous.create_hierarchy(*args, **kwargs))):
        yield to_async(item)


create_hierarchy.__module__ = __name__

__all__ = ["AsyncArray", "AsyncGroup"]
__all__ += [name for name in synchronous.__all__ if name != "print_debug_info"]

_names.list_public(globals())

"""The functions of ``cuzarr`` as awaited functions. They return asynchronous arrays and groups.

>>> import asyncio
>>> from cuzarr.api import asynchronous
>>> async def main():
...     array = await asynchronous.create_array({}, shape=(4,), chunks=(2,), dtype="int16")
...     await array.setitem(slice(1, 3), 5)
...     return await array.getitem(...)
>>> asyncio.run(main())
array([0, 5, 5, 0], dtype=int16)

Awaiting does not block the event loop: calls run in threads, whose number is the setting ``async.concurrency``. A cancelled call stops at
the next stored object, and the cancellation waits until then.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from cuzarr import _docstrings, _names
from cuzarr._node.array import Array
from cuzarr._node.asynchronous import AsyncArray, AsyncGroup, run_node, to_async
from cuzarr._node.group import Group
from cuzarr._runtime import run
from cuzarr.api import synchronous

P = ParamSpec("P")
T = TypeVar("T")


def _twin(function: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await run_node(function, *args, **kwargs)

    return _followed(call, function)


def _followed(call: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    call.__module__, call.__doc__ = __name__, None
    _docstrings.follow(call, function, f"cuzarr.{function.__name__}", __name__)
    return call


def _awaited(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    return _twin(function)  # type: ignore[no-any-return]


# A function that returns nodes returns their asynchronous forms.
def _array(function: Callable[P, Array]) -> Callable[P, Coroutine[Any, Any, AsyncArray]]:
    return _twin(function)  # type: ignore[no-any-return]


def _group(function: Callable[P, Group]) -> Callable[P, Coroutine[Any, Any, AsyncGroup]]:
    return _twin(function)  # type: ignore[no-any-return]


def _node(function: Callable[P, Array | Group]) -> Callable[P, Coroutine[Any, Any, AsyncArray | AsyncGroup]]:
    return _twin(function)  # type: ignore[no-any-return]


array = _array(synchronous.array)
consolidate_metadata = _group(synchronous.consolidate_metadata)
copy = _awaited(synchronous.copy)
copy_all = _awaited(synchronous.copy_all)
copy_store = _awaited(synchronous.copy_store)
create = _array(synchronous.create)
create_array = _array(synchronous.create_array)
create_group = _group(synchronous.create_group)
empty = _array(synchronous.empty)
empty_like = _array(synchronous.empty_like)
from_array = _array(synchronous.from_array)
full = _array(synchronous.full)
full_like = _array(synchronous.full_like)
group = _group(synchronous.group)
load = _awaited(synchronous.load)
ones = _array(synchronous.ones)
ones_like = _array(synchronous.ones_like)
open = _node(synchronous.open)
open_array = _array(synchronous.open_array)
open_consolidated = _group(synchronous.open_consolidated)
open_group = _group(synchronous.open_group)
open_like = _array(synchronous.open_like)
save = _awaited(synchronous.save)
save_array = _awaited(synchronous.save_array)
save_group = _awaited(synchronous.save_group)
tree = _awaited(synchronous.tree)
zeros = _array(synchronous.zeros)
zeros_like = _array(synchronous.zeros_like)


@functools.wraps(synchronous.create_hierarchy)
async def create_hierarchy(*args: Any, **kwargs: Any) -> AsyncGenerator[tuple[str, AsyncArray | AsyncGroup]]:
    for item in await run(lambda: list(synchronous.create_hierarchy(*args, **kwargs))):
        yield to_async(item)


_followed(create_hierarchy, synchronous.create_hierarchy)

__all__: list[str] = []
__all__ += synchronous.__all__
__all__.remove("print_debug_info")

_names.list_public(globals())

"""Reads boxes of zarr-python's arrays on the thread that calls, without zarr-python's event loop.

zarr-python's ``array[...]`` makes a coroutine, gives it to the event loop in another thread, and waits for it. For a box in a store that the
Rust engine reads itself, the coroutine has nothing to await. So the calling thread runs it: four hand-overs from thread to thread are
spared, and threads that read at the same time do not meet in one loop. If the coroutine would have to wait, it ends before it has done
anything, and a second one goes to the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from typing import Any

from zarr.core import array as zarr_array, sync as zarr_sync
from zarr.core.array import AsyncArray

from cuzarr.zarr._boxes import NeedsLoopError, calling_thread, is_replacement
from cuzarr.zarr._sources import ready_source


def replacement(original: Any, pipeline: type) -> Any:
    """Wraps zarr-python's function ``sync``, so that it runs the coroutine of a read on the calling thread where that is possible.

    ``None`` if the function, or the method that makes the coroutine, is not as expected, or if boxes are not read as a whole.
    """
    read = vars(AsyncArray).get("_get_selection")
    if not isinstance(original, types.FunctionType) or not inspect.iscoroutinefunction(read):
        return None
    if next(iter(inspect.signature(read).parameters), "") != "self" or not is_replacement(zarr_array._get_selection):
        return None
    code = read.__code__

    def sync(coro: Any, *args: Any, **kwargs: Any) -> Any:
        frame = getattr(coro, "cr_frame", None)
        if args or kwargs or frame is None or frame.f_code is not code or _is_in_loop():
            return original(coro, *args, **kwargs)
        known = dict(frame.f_locals)
        array = known["self"]
        if type(array.codec_pipeline) is not pipeline or ready_source(array.store_path.store, here=True) is None:
            return original(coro)
        try:
            calling_thread.is_wanted = True
            coro.send(None)
        except StopIteration as over:
            return over.value
        except NeedsLoopError:
            pass
        finally:
            calling_thread.is_wanted = False
        coro.close()
        return original(read(**known))

    sync.__doc__ = original.__doc__
    return sync


def _is_in_loop() -> bool:
    """Whether the calling thread runs zarr-python's event loop. There, zarr-python's function raises an error."""
    running = asyncio._get_running_loop()
    return running is not None and running is zarr_sync.loop[0]

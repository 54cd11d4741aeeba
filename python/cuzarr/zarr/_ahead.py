"""Starts reads of zarr-python's arrays early: before zarr-python has listed the chunks to read.

To read a selection, zarr-python lists its chunks, makes five objects for each, looks up ``read`` of its pipeline, and calls
it with a list of these objects. For chunks of 1 MiB that takes about as long as reading them to a GPU. If the selection is a box of a
regular grid, the local variables of zarr-python's function already contain all information in the list. This module reads these
variables, changes nothing in zarr-python, and starts the read on another thread while the list is made. The call of ``read`` then only
waits.

Python's monitoring (PEP 669) tells when to start. While ``cuzarr.zarr.enable()`` is in force, this module is registered as an optimizer,
for one line of that function. If another optimizer is registered already, or Python is too old, reads start when ``read`` is looked up:
after the list of chunks is made, and before the objects. If zarr-python's variables have other names, reads start when ``read`` is
called.
"""

from __future__ import annotations

import contextlib
import dis
import sys
import threading
from types import CodeType, FrameType, MethodType
from typing import Any

from zarr.core import array as zarr_array

from cuzarr import _core
from cuzarr._locks import ProcessLock
from cuzarr.zarr import _threads
from cuzarr.zarr._boxes import Box, count_chunks
from cuzarr.zarr._fallbacks import count_native

# With fewer chunks, zarr-python finishes its list before a thread could start.
_FEWEST_CHUNKS = 16

# Local variables of zarr-python's function that reads a selection, at the time before it lists the chunks.
_VARIABLES = {"store_path", "metadata", "codec_pipeline", "_config", "chunk_grid", "indexer", "prototype", "out_buffer", "fields"}
_LIST = "indexed_chunks"


def _reader() -> CodeType | None:
    code = getattr(getattr(zarr_array, "_get_selection", None), "__code__", None)
    if not isinstance(code, CodeType):
        return None
    return code if {*code.co_varnames, *code.co_cellvars} >= {*_VARIABLES, _LIST} else None


_READER = _reader()


class Ahead:
    """A descriptor for the method ``read`` of a codec pipeline, which may start the read when the method is looked up, before it is
    called."""

    def __init__(self, read: Any) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __get__(self, pipeline: Any, owner: type | None = None) -> Any:
        if pipeline is None:
            return self._read
        frame = sys._getframe(1)
        started = _started(pipeline, frame.f_locals) if frame.f_code is _READER else None
        return MethodType(self._read, pipeline) if started is None else started


class Started:
    """A read that already runs on another thread; zarr-python calls this object in place of the method ``read``, and so waits for its
    end."""

    def __init__(self, known: dict[str, Any], request: _core.ChunkRequest, read: _core.StartedRead) -> None:
        self._is_for = (known["codec_pipeline"], known["indexer"], known["out_buffer"])
        self._request = request
        self._read = read
        self._is_called = False

    def is_for(self, known: dict[str, Any]) -> bool:
        """Whether this read was started for the call of zarr-python's function whose local variables are ``known``."""
        return all(
            mine is known.get(name) for mine, name in zip(self._is_for, ("codec_pipeline", "indexer", "out_buffer"), strict=True)
        )

    async def __call__(self, batch_info: Any, out: Any, drop_axes: tuple[int, ...] = ()) -> tuple[Any, ...]:
        """Waits until this read, which runs on another thread, has ended. The result does not name missing chunks; only callers that refuse
        missing chunks need that."""
        self._is_called = True
        del batch_info, out  # a list of many small objects: freeing it takes time, so it is done while the read runs
        await _threads.until_over(self._read, self._request.cancel)
        count_native("read")
        return ()

    def __del__(self) -> None:
        # The read was never called: zarr-python's function failed, or its task was cancelled. After this, the caller may use the memory
        # again.
        if not self._is_called:
            self._request.cancel()
            with contextlib.suppress(Exception):
                self._read.wait()


class _Begun(threading.local):
    """The read that this thread started early for zarr-python, and the indexer (zarr-python's object that lists chunks) for which it was
    started. One suffices: nothing is awaited before ``read`` is looked up."""

    indexer: Any = None
    read: Started | None = None


_begun = _Begun()


def _started(pipeline: Any, known: dict[str, Any]) -> Started | None:
    """Returns the early read for a call of zarr-python's function: the one that was started before, or a new one. ``None`` if there can be
    none."""
    indexer, started = _begun.indexer, _begun.read
    _begun.indexer = _begun.read = None
    if indexer is not None and indexer is known.get("indexer"):
        return started if started is not None and started.is_for(known) else None
    return _start(known) if known.get("codec_pipeline") is pipeline else None


def _start(known: dict[str, Any]) -> Started | None:
    if not all(name in known for name in _VARIABLES):
        return None
    if count_chunks(known["indexer"], known["chunk_grid"]) < _FEWEST_CHUNKS:
        return None
    config = known["_config"]
    if known["fields"] or not config.read_missing_chunks:
        return None
    box = Box.of(
        known["store_path"], known["metadata"], known["codec_pipeline"], config, known["chunk_grid"], known["indexer"],
        known["prototype"],
    )  # fmt: skip
    if box is None:
        return None
    started = box.start(known["out_buffer"])
    return None if started is None else Started(known, *started)


# ------------------------------------------------------------------------------------------------------------ monitoring

_lock = ProcessLock()
_users = 0
_is_listening = False


def _line_of_list(reader: CodeType) -> int | None:
    for step in dis.get_instructions(reader):
        if step.opname.startswith("STORE_") and step.argval == _LIST and step.positions is not None:
            return step.positions.lineno
    return None


def listen(pipeline: type) -> None:
    """Turns on early reads for pipelines of this class, where possible, until :func:`leave` is called."""
    global _users, _is_listening
    with _lock:
        _users += 1
        if _users == 1:
            _is_listening = _listen(pipeline)


def leave() -> None:
    """Turns off the early reads that ``listen`` turned on, unless another caller has turned them on as well."""
    global _users, _is_listening
    with _lock:
        _users -= 1
        if _users == 0 and _is_listening:
            monitoring, _is_listening = _monitoring(), False
            monitoring.set_local_events(monitoring.OPTIMIZER_ID, _READER, monitoring.events.NO_EVENTS)
            monitoring.register_callback(monitoring.OPTIMIZER_ID, monitoring.events.LINE, None)
            monitoring.free_tool_id(monitoring.OPTIMIZER_ID)


def _monitoring() -> Any:
    return getattr(sys, "monitoring", None)


def _listen(pipeline: type) -> bool:
    monitoring = _monitoring()
    line = None if _READER is None or monitoring is None else _line_of_list(_READER)
    if line is None or monitoring.get_tool(monitoring.OPTIMIZER_ID) is not None:
        return False

    def at_line(code: CodeType, number: int) -> Any:
        if number != line:
            return monitoring.DISABLE
        _begin(pipeline, sys._getframe(1))
        return None

    tool, event = monitoring.OPTIMIZER_ID, monitoring.events.LINE
    monitoring.use_tool_id(tool, "cuzarr")
    monitoring.register_callback(tool, event, at_line)
    monitoring.set_local_events(tool, _READER, event)
    monitoring.restart_events()  # enables lines again that were disabled before
    return True


def _begin(pipeline: type, frame: FrameType) -> None:
    """Starts a read early, while zarr-python's function is about to list the chunks. The call of ``read`` raises its errors."""
    _begun.indexer = _begun.read = None
    try:
        known = frame.f_locals
        if type(known.get("codec_pipeline")) is pipeline:
            _begun.read = _start(known)
            _begun.indexer = known.get("indexer")
    except Exception:  # noqa: BLE001, zarr-python's function is not to fail here
        _begun.indexer = _begun.read = None

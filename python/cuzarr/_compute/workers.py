"""Checks that every worker of a cluster has what its tasks need: this version of cuzarr, the device, the sources and the target."""

from __future__ import annotations

import asyncio
import os
import pickle
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuzarr import _core
from cuzarr._memory.device_array import DeviceArray
from cuzarr.errors import CuzarrError, InvalidArgumentError, LibraryMissingError, StoreFailedError
from cuzarr.storage import GpuMemoryStore, LocalStore, MemoryStore, Store, StorePath

# Names of metadata documents. Each source has one of them.
_DOCUMENTS = "zarr.json", ".zarray", ".zgroup"


def check(client: Any, device: str, sources: Iterable[StorePath], target: StorePath | None = None) -> None:
    """Refuses a cluster if one of its workers could not do its tasks, before anything is created or deleted.

    A small object beside the target shows whether workers see the same place as this process; it is deleted again. A cluster
    without workers passes, and so does a worker that dies during the check.

    Raises
    ------
    CuzarrError
        The failure of a worker, which its trail names first. Its class is :class:`LibraryMissingError`, :class:`DeviceUnavailableError`,
        :class:`InvalidArgumentError`, or that of the store's error.
    """
    found = tuple((place.store, key) for place in sources if (key := _document(place)))
    with _marked(target) as mark:
        needs = pickle.dumps(_Needs(device, found, mark))
        answers = client.run(_answer, _core.__version__, needs, on_error="return")
    failures = [failure for worker, answer in answers.items() if (failure := _failure(worker, answer)) is not None]
    if failures:
        first, *others = failures
        raise type(first)(first.message, trail=first.trail, hint=first.hint, others=(*first.others, *others))


def _document(place: StorePath) -> str | None:
    """The key of an input array's metadata document, which each worker reads as a test; ``None`` for stores in memory, which are sent with
    the tasks."""
    if isinstance(place.store, MemoryStore | GpuMemoryStore):
        return None
    return next((key for key in map(place.key, _DOCUMENTS) if place.store.exists(key)), None)


@contextmanager
def _marked(target: StorePath | None) -> Iterator[tuple[Store, str] | None]:
    """Writes an empty object below the target's path, by which each worker checks that it reaches the same store. Yields its store and key,
    and deletes it when the block ends."""
    if target is None or not target.store.supports_deletes:
        yield None
        return
    key = target.key(f".cuzarr-workers-{uuid.uuid4().hex}")
    new = _new_folders(target)
    try:
        target.store.set(key, b"")
        yield target.store, key
    finally:
        target.store.delete(key)
        with suppress(OSError):  # another process wrote into the folder
            for path in new:
                path.rmdir()


def _new_folders(target: StorePath) -> list[Path]:
    """The folders that do not exist yet and that writing to the target creates, innermost first."""
    if not isinstance(target.store, LocalStore):
        return []
    place = Path(os.path.abspath(target.store.root), target.path)
    return [path for path in (place, *place.parents) if not path.exists()]


@dataclass(frozen=True)
class _Needs:
    """The device and the stored objects that a worker must be able to use. :meth:`check` runs in the worker's process."""

    device: str
    sources: tuple[tuple[Store, str], ...]
    mark: tuple[Store, str] | None

    def check(self) -> None:
        if self.device != "cpu":
            DeviceArray.empty((1,), "u1", self.device)
        hint = "use a path or URL at which every worker finds the same files"
        for store, key in self.sources:
            if not store.exists(key):
                raise InvalidArgumentError(f"cannot find '{key}' of the source {store}", hint=hint)
        if self.mark is not None:
            store, key = self.mark
            if not store.exists(key):
                raise InvalidArgumentError(f"the target {store} is another place than in the process of the client", hint=hint)
            own = f"{key}-{uuid.uuid4().hex}"
            store.set(own, b"")
            store.delete(own)


async def _answer(version: str, needs: bytes) -> CuzarrError | None:
    """Checks on a worker that it can do its tasks, and returns the error if it cannot. A thread checks this, to keep the worker's loop
    responsive."""
    return await asyncio.to_thread(_found_missing, version, needs)


def _found_missing(version: str, needs: bytes) -> CuzarrError | None:
    if version != _core.__version__:
        return _other_version(f"has cuzarr {_core.__version__}, expected {version}", version)
    try:
        pickle.loads(needs).check()
    except CuzarrError as error:
        return error
    except Exception as error:  # noqa: BLE001, whatever a store or its library raises
        return StoreFailedError(f"{type(error).__name__}: {error}")
    return None


def _other_version(message: str, version: str) -> CuzarrError:
    return LibraryMissingError(message, hint=f"install cuzarr {version} in the environment of every worker")


def _failure(worker: str, answer: Any) -> CuzarrError | None:
    """Converts the result of a worker's check to an error that names the worker; ``None`` if the worker can do its tasks, or has left the
    cluster."""
    if answer is None or (isinstance(answer, OSError) and not isinstance(answer, CuzarrError)):
        return None  # the worker can work; or it is gone, and other workers get its tasks
    if isinstance(answer, CuzarrError):
        error: CuzarrError = answer
    else:  # the function itself does not raise errors, so the worker could not find or load it
        error = _other_version(f"cannot load what cuzarr {_core.__version__} sends: {answer}", _core.__version__)
    return type(error)(error.message, trail=(f"worker {worker}", *error.trail), hint=error.hint, others=error.others)

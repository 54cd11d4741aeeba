"""Adapters for directories of fsspec's file systems."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from cuzarr import _core
from cuzarr.storage.adapters.asynchronous import Asynchronous, gather, raise_first
from cuzarr.storage.adapters.base import ABSENT, Place, Request, file_address, one_by_one, without_secrets
from cuzarr.storage.adapters.zarr import ZarrStoreAdapter


class _Folder:
    """A directory of an fsspec file system that holds a store. Converts keys to paths, and paths to keys."""

    def __init__(self, fs: Any, root: str) -> None:
        self.fs = fs
        self.root = root.rstrip("/") or root
        # Some file systems have their own roots; in others, paths begin with names.
        self._lead = f"{self.root}/" if self.root.rstrip("/") else self.root or str(fs.root_marker)

    def path(self, key: str) -> str:
        return f"{self._lead}{key}" if key else self.root

    def key(self, path: str) -> str:
        # A file system may list paths with a leading slash but expect them without one, or the reverse.
        return str(self.fs._strip_protocol(path)).strip("/").removeprefix(self._stripped_lead)

    @property
    def _stripped_lead(self) -> str:
        lead = str(self.fs._strip_protocol(self.root)).strip("/")
        return f"{lead}/" if lead else ""

    def keys_below(self, paths: Iterable[str], prefix: str) -> list[str]:
        """Keys of the files at ``paths`` that are below a prefix, sorted."""
        lead = f"{prefix}/" if prefix else ""
        return sorted(key for key in map(self.key, paths) if key.startswith(lead))

    def listing(self, entries: Iterable[dict[str, Any]], prefix: str) -> tuple[list[str], list[str]]:
        """Keys and folder prefixes directly below a prefix, from the list of files and folders that the file system returned."""
        lead = f"{prefix}/" if prefix else ""
        found: dict[str, bool] = {}
        for entry in entries:
            key = self.key(entry["name"])
            name = key.removeprefix(lead)
            # Web servers also list links to other pages, and some file systems list a file as its own member.
            if key.startswith(lead) and name not in ("", ".", "..") and not set("/?#") & set(name):
                found[key] = entry["type"] == "directory"
        keys = sorted(key for key, is_directory in found.items() if not is_directory)
        return keys, sorted(key for key, is_directory in found.items() if is_directory)


# Settings of a file system that locate its files.
_WHERE = ("account_name", "account_url", "base_url", "endpoint_url", "host", "org", "port", "repo", "sha")


def place_of(fs: Any, root: str) -> Place:
    """The identity of a directory of an fsspec file system. Two objects for the same directory have equal identities.

    fsspec returns one object for equal settings of a file system.
    """
    while hasattr(fs, "_join") and hasattr(fs, "fs"):  # a view of a directory
        fs, root = fs.fs, fs._join(root)
    fs = getattr(fs, "sync_fs", fs)  # zarr-python puts this wrapper around some file systems
    if type(fs).__name__ == "LocalFileSystem":
        return file_address(fs._strip_protocol(root))
    options = fs.storage_options
    if "fo" in options or "target_protocol" in options or "remote_options" in options:
        return _waiting(fs), root  # the files of another file system, which is named in the settings
    client = options.get("client_kwargs") or {}
    where = {name: str(value) for name in _WHERE if (value := options.get(name) or client.get(name))}
    return f"{fs.unstrip_protocol(root).rstrip('/')} {where or ''}".rstrip()


class ZarrFsspecAdapter(ZarrStoreAdapter):
    """Adapter for zarr-python's ``FsspecStore``. It lists directories by the file system itself, not by the store."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._folder = _Folder(store.fs, store.path.rstrip("/"))

    def _path(self, key: str) -> str:
        root = self._folder.root
        return f"{root}/{key}".strip("/") if not root else f"{root}/{key}".rstrip("/")

    def identity(self) -> Place:
        return place_of(self.store.fs, self._folder.root)

    async def _getsize(self, key: str) -> int | None:
        try:
            found = await self.store.fs._info(self._path(key))
        except self.store.allowed_exceptions:
            return None
        return None if found["type"] == "directory" else await super()._getsize(key)

    async def _exists(self, key: str) -> bool:
        return await self._getsize(key) is not None

    async def _list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        try:
            entries = await self.store.fs._ls(self._path(prefix), detail=True)
        except self.store.allowed_exceptions:
            return [], []
        return self._folder.listing(entries, prefix)

    async def _list_prefix(self, prefix: str) -> list[str]:
        return self._folder.keys_below(await self.store.fs._find(self._path(prefix)), prefix)


def _waiting(fs: Any) -> Any:
    """A copy of an fsspec file system whose methods block, for one that may belong to a program's event loop."""
    fs = getattr(fs, "sync_fs", fs)  # zarr-python puts this wrapper around some file systems
    if not getattr(fs, "asynchronous", False):
        return fs
    # A file system that refers to files of another file system has the other one, or its options, among its settings.
    options = {name: _of_waiting(value) for name, value in fs.storage_options.items()}
    return type(fs)(*map(_of_waiting, fs.storage_args), **{**options, "asynchronous": False})


def _of_waiting(value: Any) -> Any:
    """Converts an argument of an asynchronous file system for the file system's blocking copy: file systems in the argument become
    blocking, too."""
    if isinstance(value, dict) and "asynchronous" in value:
        return {**value, "asynchronous": False}
    if isinstance(value, dict) and any(hasattr(below, "async_impl") for below in value.values()):
        return {name: _of_waiting(below) for name, below in value.items()}
    if hasattr(value, "sync_fs"):
        return type(value)(value.sync_fs, asynchronous=False)
    return _waiting(value) if hasattr(value, "async_impl") else value


class FsspecAdapter(Asynchronous):
    """Adapter for a directory of an fsspec file system."""

    def __init__(self, fs: Any, root: str) -> None:
        super().__init__()
        self.fs: Any = _waiting(fs)
        self._folder = _Folder(self.fs, root)
        # Many requests run at once only if the file system below is asynchronous, too.
        below = getattr(self.fs, "fs", self.fs)  # for a view of a directory, the file system below
        self.is_asynchronous: bool = (
            bool(getattr(self.fs, "async_impl", False) and getattr(below, "async_impl", True)) and self.fs.loop is not None
        )
        archive = sys.modules.get("fsspec.archive")
        self.supports_deletes: bool = archive is None or not isinstance(self.fs, archive.AbstractArchiveFileSystem)
        protocols = (self.fs.protocol,) if isinstance(self.fs.protocol, str) else self.fs.protocol
        self._is_local = type(self.fs).__name__ == "LocalFileSystem" and "file" in protocols

    def _begin(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.fs.loop)

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            return await self.fs._cat_file(self._folder.path(key), start=start, end=stop)
        except ABSENT:
            return None

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        if start is not None and start < 0 and not self.is_asynchronous:
            # fsspec counts from the size of the file, but cached files do not have it.
            start = max(0, (self.getsize(key) or 0) + start)
        try:
            return self.fs.cat_file(self._folder.path(key), start=start, end=stop)
        except ABSENT:
            return None

    def start(self, requests: Sequence[Request], reply: _core.ChunkReply) -> None:
        if self.is_asynchronous:
            super().start(requests, reply)
        else:
            one_by_one(lambda *request: (self.get(*request),), requests, reply)

    def set(self, key: str, value: bytes) -> None:
        path = self._folder.path(key)
        if self.is_asynchronous:
            # fsspec's reference file system drops its cached listing only in the coroutine.
            self._begin(self.fs._pipe_file(path, value)).result()
            return
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        if self._is_local:
            self._replace(str(self.fs._strip_protocol(path)), value)
        else:
            self.fs.pipe_file(path, value)

    @staticmethod
    def _replace(path: str, value: bytes) -> None:
        """Writes a file under another name and renames it. fsspec would overwrite the old file, and a killed process would lose it."""
        partial = os.path.join(os.path.dirname(path), f".cuzarr-{secrets.token_hex(8)}.partial")
        try:
            with open(partial, "xb") as file:
                file.write(value)
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(partial)
            raise

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        if self.getsize(key) is not None:
            return False
        self.set(key, value)
        return True

    def delete(self, key: str) -> None:
        try:
            self.fs.rm_file(self._folder.path(key))
        except ABSENT:
            pass

    def delete_many(self, keys: Sequence[str]) -> None:
        if not self.is_asynchronous:
            for key in keys:
                self.delete(key)
            return
        gone = self._begin(gather(self.fs._rm_file(self._folder.path(key)) for key in keys)).result()
        raise_first(result for result in gone if not isinstance(result, ABSENT))

    def delete_dir(self, prefix: str) -> None:
        path = self._folder.path(prefix)
        if path.strip("/") and self.fs.isdir(path):
            self.fs.rm(path, recursive=True)
            return
        self.delete_many(self.list_prefix(prefix))

    def getsize(self, key: str) -> int | None:
        try:
            found = self.fs.info(self._folder.path(key))
        except ABSENT:
            return None
        if found["type"] == "directory":
            return None
        if found["size"] is None:  # a server may omit the size
            value = self.get(key, None, None)
            return None if value is None else len(value)
        return int(found["size"])

    def list_prefix(self, prefix: str) -> list[str]:
        return self._folder.keys_below(self.fs.find(self._folder.path(prefix)), prefix)

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        try:
            entries = self.fs.ls(self._folder.path(prefix), detail=True)
        except ABSENT:
            return [], []
        return self._folder.listing(entries, prefix)

    def identity(self) -> Place:
        return place_of(self.fs, self._folder.root)

    def describe(self) -> str:
        return without_secrets(self.fs.unstrip_protocol(self._folder.root))

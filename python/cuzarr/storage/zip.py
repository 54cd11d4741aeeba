"""A ZIP file as a store."""

from __future__ import annotations

import os
import threading
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from cuzarr import _core
from cuzarr.errors import UnsupportedError
from cuzarr.storage.adapters.base import ListingAdapter, Place, file_address
from cuzarr.storage.store import Store

ZipMode = Literal["r", "w", "a", "x"]


class ZipStore(Store):
    """A ZIP file as a store. Call :meth:`close`, or use it in a ``with`` block: only then is the file complete.

    Members cannot be deleted. Writing a key again adds a second member with that name, and the last one counts.

    Parameters
    ----------
    path
        The file.
    mode
        ``"r"`` reads, ``"w"`` begins anew, ``"a"`` adds to what is there, ``"x"`` creates.
    read_only
        ``None``: exactly with mode ``"r"``.
    compression
        How new members are stored, as :mod:`zipfile` has it. Chunks are best stored as they are.
    allowZip64
        Whether the file may become larger than 2 GiB.

    Raises
    ------
    FileNotFoundError
        The mode is ``"r"``, and there is no such file.
    UnsupportedError
        From deleting a member.

    Examples
    --------
    >>> import cuzarr
    >>> with cuzarr.storage.ZipStore("values.zip", mode="w") as store:
    ...     store.set("a", b"bytes")
    >>> cuzarr.storage.ZipStore("values.zip").get("a")
    b'bytes'
    """

    supports_deletes = False

    def __init__(
        self,
        path: Path | str,
        *,
        mode: ZipMode = "r",
        read_only: bool | None = None,
        compression: int = zipfile.ZIP_STORED,
        allowZip64: bool = True,  # noqa: N803 (zarr-python's name)
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path is {path!r}, expected a path")
        self.path: Path = Path(path)
        self.compression = compression
        self.allowZip64 = allowZip64
        self._members = _Members(self.path, mode, compression, allowZip64)
        super().__init__(_core.Store.python(self._members), read_only=mode == "r" if read_only is None else read_only)

    def close(self) -> None:
        """Write the list of members and close the file. Using the store again opens the file again.

        Examples
        --------
        >>> import cuzarr, zipfile
        >>> store = cuzarr.storage.ZipStore("closed.zip", mode="w")
        >>> store.set("a", b"bytes")
        >>> store.close()
        >>> zipfile.ZipFile("closed.zip").namelist()
        ['a']
        """
        self._members.close()

    def clear(self) -> None:
        """Delete every member: the file is created anew.

        Raises
        ------
        ReadOnlyError
            The store is read-only.

        Examples
        --------
        >>> import cuzarr
        >>> with cuzarr.storage.ZipStore("cleared.zip", mode="w") as store:
        ...     store.set("a", b"bytes")
        ...     store.clear()
        ...     store.list()
        []
        """
        self.check_writable()
        self._members.clear()

    def __enter__(self) -> ZipStore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __str__(self) -> str:
        return f"zip://{self.path}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZipStore) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        mode = self._members.mode_of_reopening()
        return ZipStore._rebuilt, (str(self.path), mode, self._read_only, self.compression, self.allowZip64)

    @classmethod
    def _rebuilt(cls, path: str, mode: ZipMode, read_only: bool, compression: int, zip64: bool) -> ZipStore:
        return cls(path, mode=mode, read_only=read_only, compression=compression, allowZip64=zip64)


class _Members(ListingAdapter):
    """The file, opened at first use; one operation at a time."""

    supports_deletes = False
    # The file's directory has the sizes; members are decompressed, to no more than they are said to have.
    has_sizes = True

    def __init__(self, path: Path, mode: ZipMode, compression: int, zip64: bool) -> None:
        self.path, self.mode, self.compression, self.zip64 = path, mode, compression, zip64
        self._file: zipfile.ZipFile | None = None
        self._lock = threading.RLock()

    def mode_of_reopening(self) -> ZipMode:
        """As opened now, what was written is kept."""
        with self._lock:
            return self.mode

    def _open(self) -> zipfile.ZipFile:
        if self._file is None:
            self._file = zipfile.ZipFile(self.path, self.mode, self.compression, self.zip64)
            if self.mode in ("w", "x"):
                self.mode = "a"
        return self._file

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                file, self._file = self._file, None
                file.close()

    def clear(self) -> None:
        with self._lock:
            self.close()
            self.path.unlink(missing_ok=True)
            self.mode = "w"
            self._open()

    def keys(self) -> Iterable[str]:
        with self._lock:
            return list(dict.fromkeys(name for name in self._open().namelist() if not name.endswith("/")))

    def get(self, key: str, start: int | None, stop: int | None) -> bytes | None:
        with self._lock:
            try:
                size = self._open().getinfo(key).file_size
                first, end, _ = slice(start, stop).indices(size)
                with self._open().open(key) as member:
                    # Behind the end there are no bytes, and zipfile may raise.
                    member.seek(first)
                    return member.read(max(0, end - first))
            except KeyError:
                return None

    def set(self, key: str, value: bytes) -> None:
        member = zipfile.ZipInfo(key, time.localtime()[:6])
        member.compress_type = self.compression
        member.external_attr = 0o644 << 16
        with self._lock:
            self._open().writestr(member, value)

    def getsize(self, key: str) -> int | None:
        with self._lock:
            try:
                return self._open().getinfo(key).file_size
            except KeyError:
                return None

    def delete(self, key: str) -> None:
        if self.getsize(key) is not None:
            raise UnsupportedError(
                f"members of a ZIP file cannot be deleted: '{key}'",
                hint="to store chunks of fill values, use config={'write_empty_chunks': True}; else write a new file",
            )

    def delete_dir(self, prefix: str) -> None:
        for key in self.list_prefix(prefix):
            self.delete(key)

    def identity(self) -> Place:
        return file_address(self.path)

    def describe(self) -> str:
        return f"zip://{self.path}"

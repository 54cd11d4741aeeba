"""``ZipStore``, a store in a ZIP file."""

from __future__ import annotations

import os
import weakref
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from cuzarr import _core
from cuzarr._checks import whole
from cuzarr._config import config
from cuzarr.errors import InvalidArgumentError, UnsupportedError
from cuzarr.storage.store import Store

ZipMode = Literal["r", "w", "a", "x"]


class ZipStore(Store):
    """A store in a ZIP file. Call :meth:`close`, or use a ``with`` block: the file does not change until the store is closed.

    New members are written to a temporary file beside the ZIP file. :meth:`close` renames it to the real name. Until then, or if the
    process is killed, other readers find the old file, or none. A store that is no longer used closes itself, and so do all stores when
    the interpreter ends. A ``with`` block that ends by an exception closes its store, too; call :meth:`discard` to keep the old file.

    The old bytes of a value that is overwritten or deleted stay in the file, but no reader sees them.

    Parameters
    ----------
    path
        The file.
    mode
        ``"r"`` reads, ``"w"`` starts a new file, ``"a"`` adds to an existing one, ``"x"`` creates. With ``"a"``, the first write copies the
        file.
    read_only
        Whether writing is refused; by default with mode ``"r"`` only.
    compression
        Compression of new members: ``zipfile.ZIP_STORED`` or ``zipfile.ZIP_DEFLATED``. Chunks are usually compressed already, so
        ``ZIP_STORED`` is best.
    allowZip64
        Whether the file may become larger than 2 GiB, or have more than 65,534 members.

    Raises
    ------
    FileNotFoundError
        The mode is ``"r"``, and there is no such file.
    FileExistsError
        The mode is ``"x"``, and the file exists.
    UnsupportedError
        The compression is not supported.
    StoreFailedError
        From :meth:`close`: another program changed the file while the store was open. The file is left unchanged.

    Examples
    --------
    >>> import cuzarr
    >>> with cuzarr.storage.ZipStore("values.zip", mode="w") as store:
    ...     store.set("a", b"bytes")
    >>> cuzarr.storage.ZipStore("values.zip").get("a")
    b'bytes'
    """

    _is_near = True

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
        self._archive = _Archive(self.path, mode, compression, allowZip64)
        self.supports_writes: bool = mode != "r"
        self.supports_deletes: bool = mode != "r"
        super().__init__(self._archive.core.store(), read_only=mode == "r" if read_only is None else read_only)

    def close(self) -> None:
        """Finish the ZIP file with everything that was written, and give it its name. If the store is used again, the file is reopened for
        adding.

        Raises
        ------
        StoreFailedError
            Another program changed the file while the store was open. The file is left unchanged.

        Examples
        --------
        >>> import cuzarr, zipfile
        >>> store = cuzarr.storage.ZipStore("closed.zip", mode="w")
        >>> store.set("a", b"bytes")
        >>> store.close()
        >>> zipfile.ZipFile("closed.zip").namelist()
        ['a']
        """
        self._archive.finish()

    def discard(self) -> None:
        """Discard everything that was written since the store was opened or last closed.

        Examples
        --------
        >>> import cuzarr
        >>> store = cuzarr.storage.ZipStore("discarded.zip", mode="a")
        >>> store.set("a", b"bytes")
        >>> store.discard()
        >>> store.list()
        []
        """
        self._archive.core.discard()

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
        if self._archive.core.is_unfinished():
            raise UnsupportedError(
                f"{self} cannot be pickled: it has values that are not in the file yet", hint="close the store first"
            )
        return ZipStore._rebuilt, (str(self.path), self._archive.mode, self._read_only, self.compression, self.allowZip64)

    @classmethod
    def _rebuilt(cls, path: str, mode: ZipMode, read_only: bool, compression: int, zip64: bool) -> ZipStore:
        return cls(path, mode=mode, read_only=read_only, compression=compression, allowZip64=zip64)


def is_zip_file(path: str | os.PathLike[str]) -> bool:
    """Whether the file at a path is a ZIP file: by its first bytes, or by its extension ``.zip`` or ``.ozx``."""
    return _core.ZipArchive.is_at(path)


@contextmanager
def finishing(store: Store | None, given: object) -> Iterator[None]:
    """A ``with`` block for a call that was given a ZIP file's path: the file gets either all writes of the block, or none.

    A store that the caller opened is left open.
    """
    if not (isinstance(store, ZipStore) and isinstance(given, str | os.PathLike)):
        yield
        return
    try:
        yield
    except BaseException:
        store.discard()
        raise
    store.close()


class _Archive:
    """The open ZIP file that several stores share (one read-only, another writable). It is finished when the last of them is gone."""

    def __init__(self, path: Path, mode: ZipMode, compression: int, zip64: bool) -> None:
        if not isinstance(mode, str) or mode not in ("r", "w", "a", "x"):
            raise InvalidArgumentError(f"mode is {mode!r}, expected 'r', 'w', 'a' or 'x'")
        if mode == "r" and not path.exists():
            raise FileNotFoundError(f"zip://{path}: there is no such file")
        if mode == "x" and path.exists():
            raise FileExistsError(f"zip://{path}: the file exists already")
        self.core = _core.ZipArchive(path, mode, _deflate_level(compression), bool(zip64), config.get("fsync"))
        self.mode: ZipMode = mode
        weakref.finalize(self, self.core.finish)

    def finish(self) -> None:
        if self.core.is_unfinished():
            self.core.finish()
            # A store that is used again keeps the existing members.
            self.mode = "a"


def _deflate_level(compression: int) -> int | None:
    method = whole(compression, "compression", 0)
    if method == zipfile.ZIP_STORED:
        return None
    if method == zipfile.ZIP_DEFLATED:
        return 6
    raise UnsupportedError(
        f"compression {compression} of ZIP files cannot be written", hint="use zipfile.ZIP_STORED or zipfile.ZIP_DEFLATED"
    )

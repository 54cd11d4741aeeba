"""``GDSStore``, a directory with cuFile transfers between files and GPU memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from cuzarr import _core
from cuzarr._config import config
from cuzarr.storage.local import LocalStore


class GDSStore(LocalStore):
    """A directory whose values are transferred between files and GPU memory by cuFile (GPUDirect Storage).

    Arrays on a GPU use cuFile; for arrays on the CPU, the store works like a :class:`LocalStore`. Writes are atomic. The most recently
    used files stay registered with cuFile.

    Parameters
    ----------
    root
        The directory.
    gds
        ``"auto"`` uses cuFile if drives can write to GPU memory (the kernel module ``nvidia-fs`` is loaded). Otherwise it uses pinned
        host memory, which is faster than cuFile's own compatibility mode. ``"on"`` always uses cuFile; without cuFile, reading to a GPU
        fails. ``"off"`` never uses it. ``None`` uses the setting ``gds`` of the configuration.

    Raises
    ------
    LibraryMissingError
        ``gds`` is ``"on"``, and cuFile is not installed or does not start.

    Examples
    --------
    >>> import cuzarr
    >>> store = cuzarr.storage.GDSStore("values", gds="off")
    >>> store.set("a", b"bytes")
    >>> store.get("a")
    b'bytes'
    """

    def __init__(self, root: Path | str, *, read_only: bool = False, gds: Literal["auto", "on", "off"] | None = None) -> None:
        self.gds: str = config.get("gds") if gds is None else gds
        super().__init__(root, read_only=read_only)

    def _open(self, root: str) -> _core.Store:
        return _core.Store.gds(root, self.gds, config.get("fsync"), config.get("direct_io"))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._rebuilt, (self._directory, {"read_only": self._read_only, "gds": self.gds})

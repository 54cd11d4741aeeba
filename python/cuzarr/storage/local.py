"""``LocalStore``, a store in a directory of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

from cuzarr import _core
from cuzarr._config import config
from cuzarr.storage.store import Store


class LocalStore(Store):
    """A store in a directory. Values are replaced atomically, and no key can name a file outside the directory.

    The setting ``fsync``, read when the store is made, decides what a write waits for. With ``"none"``, a write waits for nothing, as in
    zarr-python. With ``"data"``, a power cut after a write leaves the old or the new value; with ``"full"``, it leaves the new one.

    Parameters
    ----------
    root : path
        The directory; it is created on the first write.
    read_only : bool
        Whether writing is refused.

    Raises
    ------
    ReadOnlyError
        From writing to a store that is read-only.

    Examples
    --------
    >>> import cuzarr
    >>> store = cuzarr.storage.LocalStore("values")
    >>> store.set("a/b", b"bytes")
    >>> store.get("a/b"), store.list()
    (b'bytes', ['a/b'])
    """

    _is_near = True

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        if not isinstance(root, str | os.PathLike):
            raise TypeError(f"root is {root!r}, expected a path")
        self.root: Path = Path(root)
        self._directory = os.path.abspath(os.fspath(root))
        super().__init__(self._open(self._directory), read_only=read_only)

    def _open(self, root: str) -> _core.Store:
        values = config._values()
        return _core.Store.local(root, values["fsync"], values["direct_io"])

    def __str__(self) -> str:
        return f"file://{self.root.as_posix()}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, LocalStore) and self._directory == other._directory

    def __hash__(self) -> int:
        return hash(self._directory)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._rebuilt, (self._directory, {"read_only": self._read_only})

    @classmethod
    def _rebuilt(cls, root: str, options: dict[str, Any]) -> Self:
        return cls(root, **options)

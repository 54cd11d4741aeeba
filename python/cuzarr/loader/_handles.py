"""Keeps arrays open that samples name, so that each is opened once."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Hashable, Iterable
from concurrent.futures import Executor, wait
from typing import Any

from cuzarr._locks import ProcessLock
from cuzarr._node.array import Array
from cuzarr._node.open import array_of
from cuzarr.errors import CuzarrError

# Number of arrays that stay open. Arrays beyond this number are opened again when they are used.
_MOST_OPEN = 4096


class Handles:
    """The open arrays of a stream of samples: gives the same :class:`cuzarr.Array` each time that samples name one stored array.

    One call that reads several boxes of one such object decodes each chunk once. Threads may share this object.
    """

    def __init__(self) -> None:
        self._lock = ProcessLock()
        # The caller's object is kept beside the array, so that no other object gets the same identity.
        self._open: dict[Hashable, tuple[Any, Array]] = {}
        self._at: dict[str, list[Array]] = {}

    def open_ahead(self, given: Iterable[Any], pool: Executor) -> None:
        """Opens those of the given arrays that are not open yet, in parallel. Errors are ignored here; :meth:`array` raises them."""
        new = {_key(one): one for one in given if not isinstance(one, Array)}
        new = {key: one for key, one in new.items() if key not in self._open}
        if len(new) > 1:
            # Opened with the caller's settings, which choose the device.
            wait([pool.submit(contextvars.copy_context().run, self._try, one) for one in new.values()])

    def _try(self, given: Any) -> None:
        try:
            self.array(given)
        except CuzarrError:
            pass

    def array(self, given: Any) -> Array:
        """The open array for an argument that may be an array, a path, a URL or a store.

        Raises
        ------
        ArrayNotFoundError, ArgumentTypeError
        """
        key = _key(given)
        if (found := self._open.get(key)) is not None:
            return found[1]
        opened = array_of(given)
        with self._lock:
            if len(self._open) >= _MOST_OPEN:
                self._open.clear()
                self._at.clear()
            alike = self._at.setdefault(f"{opened.device} {opened.store_path}", [])
            own = next((one for one in alike if one.same_as(opened)), None)
            if own is None:
                alike.append(own := opened)
            self._open[key] = given, own
        return own


def _key(given: Any) -> Hashable:
    """The dictionary key for an argument that names an array: the text of a path or URL, else the identity of the object."""
    return os.fspath(given) if isinstance(given, str | os.PathLike) else id(given)

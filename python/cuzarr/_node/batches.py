"""Batches of an array's rows, read while the caller computes with the ones before."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._checks import whole
from cuzarr._compute.sources import is_array
from cuzarr._node.open import array_of
from cuzarr.errors import InvalidArgumentError
from cuzarr.storage import StorePath

Source = Any
"""An array, or where one is: a path, a URL, a store."""


class Columns:
    """Equally long arrays: one, several, or several by name. What is read of them comes in the same form.

    Raises
    ------
    InvalidArgumentError
        They are not equally long.
    """

    def __init__(self, sources: Any) -> None:
        self.names: tuple[str, ...] | None = None
        if _is_named(sources):
            self.names, sources = tuple(sources), tuple(sources.values())
        self.is_single = not isinstance(sources, list | tuple)
        self.arrays = tuple(map(array_of, (sources,) if self.is_single else sources))
        lengths = {len(array) for array in self.arrays}
        if len(lengths) != 1:
            raise InvalidArgumentError(f"got arrays of {sorted(lengths)} rows, expected equal lengths")
        self.count = lengths.pop()

    def form(self, parts: Sequence[Any]) -> Any:
        """One part of each array, in the form that the arrays were given in."""
        if self.names is not None:
            return dict(zip(self.names, parts, strict=True))
        return parts[0] if self.is_single else tuple(parts)

    def parts(self, formed: Any) -> Sequence[Any]:
        """The parts of what :meth:`form` made."""
        if self.names is not None:
            return [formed[name] for name in self.names]
        return (formed,) if self.is_single else formed  # type: ignore[no-any-return]


def _share(rows: int, rank: int, world_size: int) -> int:
    """How many of some rows a rank gets."""
    return rows * (rank + 1) // world_size - rows * rank // world_size


def _is_named(sources: Any) -> bool:
    """Whether these are arrays by name; other dictionaries are stores."""
    values = sources.values() if isinstance(sources, Mapping) else ()
    return bool(values) and all(is_array(value) or isinstance(value, str | os.PathLike | StorePath) for value in values)


class Batches:
    """Batches along the first dimension of one or several arrays, read by a thread of this process while the caller works.

    Parameters
    ----------
    arrays : array, or list, tuple or dictionary of them
        Equally long; several give tuples, and by name dictionaries. Instead of an array, where it is: a path, a URL, a store.
    size : int
        Rows of a batch.
    prefetch : int
        Batches that are read ahead, at most.
    shuffle : bool
        Whether rows come in another order: stored chunks are visited at random, and rows within a window of
        ``window`` chunks are mixed, so that each chunk is read by few batches.
    window : int
        Chunks whose rows are mixed.
    seed : int
        Of the shuffling; :meth:`iterate` takes the epoch beside it.
    drop_last : bool
        Whether rows that do not fill a batch (of every rank) are left out.
    """

    def __init__(
        self,
        arrays: Source | Sequence[Source] | Mapping[str, Source],
        size: int,
        *,
        prefetch: int = 2,
        shuffle: bool = False,
        window: int = 8,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.columns = Columns(arrays)
        size, prefetch, window = whole(size, "size", 1), whole(prefetch, "prefetch", 1), whole(window, "window", 1)
        self.size, self.prefetch, self.shuffle, self.window = size, prefetch, shuffle, window
        self.seed, self.drop_last, self.count = seed, drop_last, self.columns.count

    def __len__(self) -> int:
        return self.length()

    def length(self, rank: int = 0, world_size: int = 1) -> int:
        """Batches that one of several ranks gets."""
        full, ends = self._rounds(world_size)
        return full + sum(_share(rows, rank, world_size) > 0 for rows in ends)

    def _rounds(self, world_size: int) -> tuple[int, tuple[int, ...]]:
        """How many rounds give each rank a full batch, and the rows of the rounds behind these."""
        rows = self.size * world_size
        full, rest = divmod(self.count, rows)
        if self.drop_last or not rest:
            return full, ()
        # Every rank gets equally many batches: those with one more would wait for the others for ever.
        if rest < world_size and full and self.size > 1:
            return full - 1, (rows + rest - world_size, world_size)
        return full, (rest,)

    def _sizes(self, world_size: int) -> Iterator[int]:
        """Rows of each batch, one rank after the other in each round."""
        full, ends = self._rounds(world_size)
        yield from itertools.repeat(self.size, full * world_size)
        yield from (_share(rows, rank, world_size) for rows in ends for rank in range(world_size))

    def _selections(self, epoch: int, part: int, parts: int, rank: int, world_size: int) -> Iterator[Any]:
        """What each batch selects: those of a rank, and of these every ``parts``-th one."""
        own = itertools.islice(self._all_selections(epoch, world_size), rank, None, world_size)
        filled = (selection for size, selection in own if size)
        return itertools.islice(filled, part, None, parts)

    def _all_selections(self, epoch: int, world_size: int) -> Iterator[tuple[int, Any]]:
        """How many rows each batch has, and which."""
        sizes = self._sizes(world_size)
        if not self.shuffle:
            start = 0
            for size in sizes:
                yield size, slice(start, start + size)
                start += size
            return
        mixed = self._mixed_rows(epoch)
        waiting = np.empty(0, np.intp)
        for size in sizes:
            while len(waiting) < size:
                waiting = np.concatenate([waiting, next(mixed)])
            yield size, waiting[:size]
            waiting = waiting[size:]

    def _mixed_rows(self, epoch: int) -> Iterator[np.ndarray[Any, Any]]:
        """The rows of each window, in the order of an epoch."""
        random = np.random.default_rng((self.seed, epoch))
        array = self.columns.arrays[0]
        rows = array.metadata._grid.axes[0]
        order = random.permutation(rows.count(self.count))
        for start in range(0, len(order), self.window):
            chosen = [
                np.arange(rows.start(chunk), min(rows.start(chunk) + rows.size(chunk), self.count))
                for chunk in order[start : start + self.window].tolist()
            ]
            yield random.permutation(np.concatenate(chosen))

    def iterate(self, epoch: int = 0, part: int = 0, parts: int = 1, *, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """The batches of an epoch, those of one of several ranks, or of one of the ``parts`` that share them. Leaving off early
        ends the reading."""
        ready: queue.Queue[Any] = queue.Queue(self.prefetch)
        watch, left = _core.Watch(), threading.Event()

        def put(item: Any) -> bool:
            while not left.is_set():
                try:
                    ready.put(item, timeout=0.1)
                except queue.Full:
                    continue
                return True
            return False

        def read() -> None:
            try:
                with watch:
                    for selection in self._selections(epoch, part, parts, rank, world_size):
                        arrays = self.columns.arrays
                        batch = [array.oindex[selection] if self.shuffle else array[selection] for array in arrays]
                        if not put((self.columns.form(batch), None)):
                            return
                put((None, None))
            except BaseException as error:  # noqa: BLE001, it is raised where the batches are awaited
                put((None, error))

        thread = threading.Thread(target=read, name="cuzarr-prefetch", daemon=True)
        thread.start()
        try:
            while True:
                batch, error = ready.get()
                if error is not None:
                    raise error
                if batch is None:
                    return
                yield batch
        finally:
            left.set()
            watch.cancel()
            thread.join()

    def __iter__(self) -> Iterator[Any]:
        return self.iterate()

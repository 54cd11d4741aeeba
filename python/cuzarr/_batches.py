"""Batches of an array's rows, read ahead of whoever computes with them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cuzarr import _core
from cuzarr._array import Array
from cuzarr._checks import whole
from cuzarr._opening import array_of
from cuzarr.errors import InvalidArgumentError


class Batches:
    """Batches along the first dimension of one or several arrays, read by a thread of this process while the caller works.

    Parameters
    ----------
    arrays : Array or sequence of them
        Equally long; a sequence gives tuples.
    size : int
        Rows of a batch.
    prefetch : int
        Batches that are read ahead, at most.
    shuffle : bool
        Whether rows come in another order: stored chunks are visited at random, and rows within a window of
        ``window`` chunks are mixed, so that each chunk is still read once.
    window : int
        Chunks whose rows are mixed.
    seed : int
        Of the shuffling; :meth:`iterate` takes the epoch beside it.
    drop_last : bool
        Whether a last batch that is not full is left out.
    """

    def __init__(
        self,
        arrays: Array | Sequence[Array],
        size: int,
        *,
        prefetch: int = 2,
        shuffle: bool = False,
        window: int = 8,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.is_single = not isinstance(arrays, list | tuple)
        self.arrays = tuple(map(array_of, (arrays,) if self.is_single else arrays))
        lengths = {len(array) for array in self.arrays}
        if len(lengths) != 1:
            raise InvalidArgumentError(f"the arrays are {sorted(lengths)} rows long, and should be equally long")
        size, prefetch, window = whole(size, "size", 1), whole(prefetch, "prefetch", 1), whole(window, "window", 1)
        self.size, self.prefetch, self.shuffle, self.window = size, prefetch, shuffle, window
        self.seed, self.drop_last, self.count = seed, drop_last, lengths.pop()

    def __len__(self) -> int:
        return self.count // self.size if self.drop_last else -(-self.count // self.size)

    def _selections(self, epoch: int, part: int, parts: int) -> Iterator[Any]:
        """What each batch selects; part ``part`` of ``parts`` gets every ``parts``-th of them."""
        for place, selection in enumerate(self._all_selections(epoch)):
            if place % parts == part:
                yield selection

    def _all_selections(self, epoch: int) -> Iterator[Any]:
        last = self.count - self.count % self.size if self.drop_last else self.count
        if not self.shuffle:
            yield from (slice(start, min(start + self.size, self.count)) for start in range(0, last, self.size))
            return
        random = np.random.default_rng((self.seed, epoch))
        rows = (self.arrays[0].shards or self.arrays[0].chunks)[0]
        order = random.permutation(-(-self.count // rows))
        waiting = np.empty(0, np.intp)
        taken = 0
        for start in range(0, len(order), self.window):
            chosen = [np.arange(chunk * rows, min((chunk + 1) * rows, self.count)) for chunk in order[start : start + self.window]]
            waiting = np.concatenate([waiting, random.permutation(np.concatenate(chosen))])
            is_end = start + self.window >= len(order)
            while len(waiting) >= self.size or (is_end and len(waiting) and taken < last):
                yield np.sort(waiting[: self.size])
                taken += min(self.size, len(waiting))
                waiting = waiting[self.size :]

    def iterate(self, epoch: int = 0, part: int = 0, parts: int = 1) -> Iterator[Any]:
        """The batches of an epoch, or of one of several ``parts`` that share it. Leaving off early ends the reading."""
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
                    for selection in self._selections(epoch, part, parts):
                        batch = tuple(array.oindex[selection] if self.shuffle else array[selection] for array in self.arrays)
                        if not put((batch[0] if self.is_single else batch, None)):
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



"""``SplitStore``, one store made of two: metadata documents are in one, chunks in the other."""

from __future__ import annotations

from typing import Any

from cuzarr import _core
from cuzarr.errors import ArgumentTypeError
from cuzarr.storage.store import Store


class SplitStore(Store):
    """A store made of two: chunks are in the first, metadata documents of arrays and groups in the second.

    Parameters
    ----------
    data : Store
        Where chunks live.
    metadata : Store
        Where the metadata documents live.
    read_only : bool
        Whether writing is refused.

    Raises
    ------
    ReadOnlyError
        From writing to a store that is read-only.

    Examples
    --------
    >>> import cuzarr
    >>> chunks, documents = cuzarr.storage.MemoryStore(), cuzarr.storage.MemoryStore()
    >>> array = cuzarr.create_array(chunks, metadata_store=documents, data=cuzarr.ones((2,), store={})[:])
    >>> chunks.list(), documents.list()
    (['c/0'], ['zarr.json'])
    """

    def __init__(self, data: Store, metadata: Store, *, read_only: bool = False) -> None:
        for store in (data, metadata):
            if not isinstance(store, Store):
                raise ArgumentTypeError(
                    f"got {type(store).__name__}, expected a store", hint="make one: cuzarr.storage.make_store(…)"
                )
        self.data = data
        self.metadata = metadata
        self.supports_deletes: bool = data.supports_deletes and metadata.supports_deletes
        read_only = read_only or data.read_only or metadata.read_only
        super().__init__(_core.Store.split(data.handle, metadata.handle), read_only=read_only)

    def __str__(self) -> str:
        return f"{self.data} with metadata in {self.metadata}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SplitStore) and (self.data, self.metadata) == (other.data, other.metadata)

    def __hash__(self) -> int:
        return hash((self.data, self.metadata))

    def __reduce__(self) -> tuple[Any, ...]:
        return SplitStore._rebuilt, (self.data, self.metadata, self._read_only)

    @classmethod
    def _rebuilt(cls, data: Store, metadata: Store, read_only: bool) -> SplitStore:
        return cls(data, metadata, read_only=read_only)

"""Stores in host memory and in a GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Self

from cuzarr import _core
from cuzarr._config import config
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError
from cuzarr.storage.adapters.choice import adapt_store
from cuzarr.storage.adapters.mapping import DeviceMappingAdapter
from cuzarr.storage.store import Store


class MemoryStore(Store):
    """A store in the memory of this process. With ``store_dict``, its values are in the caller's mapping.

    Parameters
    ----------
    store_dict : mutable mapping of str to bytes, optional
        The caller's mapping, which the store uses; by default a new one.
    read_only : bool
        Whether writing is refused.

    Raises
    ------
    ReadOnlyError
        From writing to a store that is read-only.

    Examples
    --------
    >>> import cuzarr
    >>> store = cuzarr.storage.MemoryStore()
    >>> store.set("a", b"bytes")
    >>> store.list()
    ['a']
    """

    _is_near = True

    _url: str | None = None

    def __init__(self, store_dict: MutableMapping[str, Any] | None = None, *, read_only: bool = False) -> None:
        self._store_dict = store_dict
        handle = _core.Store.memory() if store_dict is None else _core.Store.python(adapt_store(store_dict))
        super().__init__(handle, read_only=read_only)

    @classmethod
    def at(cls, url: str, *, read_only: bool = False) -> Self:
        """The store that a ``memory://`` URL names. In one process, equal URLs name the same store.

        Parameters
        ----------
        url : str
            ``"memory://name"``; ``"memory://name/path"`` is a part of that store.
        read_only : bool
            Whether writing is refused.

        Returns
        -------
        MemoryStore
            The store.

        Raises
        ------
        InvalidArgumentError
            The URL does not begin with ``memory://``.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.storage.MemoryStore.at("memory://shared").set("maps/a", b"bytes")
        >>> cuzarr.storage.MemoryStore.at("memory://shared/maps").list()
        ['a']
        """
        store = object.__new__(cls)
        store._store_dict, store._url = None, url
        handle = _core.Store.open_url(url)
        if handle is None or not url.startswith("memory://"):
            raise InvalidArgumentError(f"got {url!r}, expected a URL like memory://name")
        Store.__init__(store, handle, read_only=read_only)
        return store

    def __str__(self) -> str:
        return self._url or f"memory://{id(self._store_dict if self._store_dict is not None else self._handle)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryStore) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process gets a copy of the values.
        values = self._store_dict if self._store_dict is not None else {key: self.get(key) for key in self.list()}
        return MemoryStore._rebuilt, (values, self._store_dict is not None, self._read_only)

    @classmethod
    def _rebuilt(cls, values: MutableMapping[str, Any], keep: bool, read_only: bool) -> MemoryStore:
        store = cls(values if keep else None)
        for key, value in () if keep else values.items():
            store.set(key, value)
        return store.with_read_only(read_only)


class GpuMemoryStore(Store):
    """A store in a GPU's memory. Values stay on the GPU; keys, listings and metadata documents are in host memory.

    An array on that GPU reads and writes uncompressed chunks without passing through the host. Compressed chunks are decoded
    on the GPU if it has a decoder. :meth:`set` copies to the GPU, or on it; :meth:`get` copies to the host.

    Parameters
    ----------
    store_dict
        The caller's mapping from keys to buffers, which the store uses. Written values, also documents, are
        :class:`cuzarr.buffer.gpu.Buffer` objects in it. :meth:`from_dict` copies instead.
    device
        ``"cuda:N"``. ``None`` means the configured device if that is a GPU, else ``"cuda:0"``. With ``"cpu"``, the store is a
        :class:`MemoryStore`.

    Raises
    ------
    DeviceUnavailableError
        There is no such GPU, or it cannot be used.

    Examples
    --------
    >>> import cuzarr
    >>> store = cuzarr.storage.GpuMemoryStore(device="cpu")  # "cuda:0" on a GPU
    >>> store.set("a", b"bytes")
    >>> store.list()
    ['a']
    """

    _is_near = True

    def __init__(
        self,
        store_dict: MutableMapping[str, Any] | None = None,
        *,
        device: str | None = None,
        read_only: bool = False,
    ) -> None:
        configured = str(config.get("device"))
        self.device: str = device or ("cuda:0" if configured == "cpu" else configured)
        if store_dict is not None and not isinstance(store_dict, MutableMapping):
            hint = "GpuMemoryStore.from_dict copies the values of any mapping"
            raise ArgumentTypeError(f"store_dict is a {type(store_dict).__name__}, expected a mutable mapping", hint=hint)
        self._store_dict = store_dict
        handle = (
            _core.Store.device_memory(self.device)
            if store_dict is None
            else _core.Store.python(DeviceMappingAdapter(store_dict, self.device))
        )
        super().__init__(handle, read_only=read_only)

    @classmethod
    def from_dict(cls, store_dict: Mapping[str, Any], *, device: str | None = None) -> Self:
        """A new store in GPU memory with copies of the values in a mapping, which may be in host or GPU memory.

        Parameters
        ----------
        store_dict : mapping of str to bytes, array or buffer
            The values by their keys.
        device : str, optional
            The GPU that holds the copies; by default as for :class:`GpuMemoryStore`.

        Returns
        -------
        GpuMemoryStore
            The store.

        Raises
        ------
        DeviceUnavailableError
            There is no such GPU.

        Examples
        --------
        >>> import cuzarr
        >>> store = cuzarr.storage.GpuMemoryStore.from_dict({"a": b"bytes"}, device="cpu")  # "cuda:0" on a GPU
        >>> store.get("a")
        b'bytes'
        """
        store = cls(device=device)
        for key, value in store_dict.items():
            store.set(key, value)
        return store

    def __str__(self) -> str:
        return f"gpumemory://{id(self._handle if self._store_dict is None else self._store_dict)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GpuMemoryStore) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {key: self.get(key) for key in self.list()}
        return GpuMemoryStore._rebuilt, (values, self.device, self._read_only)

    @classmethod
    def _rebuilt(cls, values: dict[str, bytes], device: str, read_only: bool) -> GpuMemoryStore:
        return cls.from_dict(values, device=device).with_read_only(read_only)

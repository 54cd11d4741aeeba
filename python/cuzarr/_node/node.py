"""``Node``, the base class of arrays and groups: it has a store and a path, attributes, and a device for elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Self

from cuzarr import _core
from cuzarr._checks import dictionary, refusing
from cuzarr._compute.sources import StoreNode
from cuzarr._config import config as global_config
from cuzarr._metadata.array import AnyArrayMetadata
from cuzarr._metadata.group import GroupMetadata
from cuzarr.storage import Store, StorePath


class Node(StoreNode):
    """Base class of ``Array`` and ``Group``: an array or a group in a store."""

    _store_path: StorePath
    _metadata: AnyArrayMetadata | GroupMetadata
    _own_device: str | None

    @property
    def store(self) -> Store:
        """The store that holds this array or group."""
        return self._store_path.store

    @property
    def store_path(self) -> StorePath:
        """The store that holds this array or group, and the path in that store."""
        return self._store_path

    @property
    def path(self) -> str:
        """The path of this array or group in its store, without a leading ``/``."""
        return self._store_path.path

    @property
    def name(self) -> str:
        """The path of this array or group in its store, with a leading ``/``."""
        return f"/{self.path}"

    @property
    def basename(self) -> str:
        """The last segment of the path of this array or group."""
        return self.path.rpartition("/")[2]

    @property
    def read_only(self) -> bool:
        """Whether this array or group can only be read."""
        return self._store_path.read_only

    @property
    def device(self) -> str:
        """The device that elements are read to: the one given on opening, else the configured one."""
        return global_config.get("device") if self._own_device is None else self._own_device  # type: ignore[no-any-return]

    @property
    def attrs(self) -> Attributes:
        """The attributes of this array or group. Changes to this dictionary are written to the store."""
        return Attributes(self)

    def update_attributes(self, new_attributes: Mapping[str, Any]) -> Self:
        """Add and replace attributes, in one write of the metadata document.

        Parameters
        ----------
        new_attributes : dict
            Values that JSON can hold.

        Returns
        -------
        Array or Group
            This node.

        Raises
        ------
        ReadOnlyError
            The store was opened for reading.

        Examples
        --------
        >>> import cuzarr
        >>> store = {}
        >>> _ = cuzarr.zeros((2,), store=store)
        >>> dict(cuzarr.open(store).update_attributes({"units": "K"}).attrs)
        {'units': 'K'}
        """
        self._change_attributes(dictionary(new_attributes, "attributes"))
        return self

    def _change_attributes(self, attributes: dict[str, Any], *, removed: Sequence[str] = (), is_all: bool = False) -> None:
        """Changes attributes in the store, on top of other writers' changes, and gives this object the resulting attributes."""
        self.store.check_writable()
        given = self._metadata.update_attributes(attributes).attributes
        with self._locked() as node:
            stored = node.update_attributes(given, removed, is_all, global_config.get("json_indent"))
        self._metadata = self._metadata.update_attributes(stored)

    def _locked(self, *, for_shape: bool = False) -> _core.NodeLock:
        """A lock on this node's stored metadata, for a ``with`` block. With ``for_shape``, also on the chunks of an array."""
        is_array = not isinstance(self._metadata, GroupMetadata)
        return _core.NodeLock(self.store.handle, self.path, self._metadata.zarr_format, is_array, for_shape)

    @property
    def _store_kind(self) -> str:
        """Name of the store's class. For a store of another library, the class inside its wrapper."""
        return type(getattr(self.store, "wrapped", self.store)).__name__


class Attributes(MutableMapping[str, Any]):
    """The attributes of one array or group, as a mutable mapping by name. Every change is written to the store."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __getitem__(self, key: str) -> Any:
        return self._node._metadata.attributes[key]

    def __setitem__(self, key: str, value: Any) -> None:
        with refusing("an attribute's name"):
            self._node._change_attributes({key: value})

    def __delitem__(self, key: str) -> None:
        if key not in self._node._metadata.attributes:
            raise KeyError(key)
        self._node._change_attributes({}, removed=[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._node._metadata.attributes)

    def __len__(self) -> int:
        return len(self._node._metadata.attributes)

    def put(self, d: Mapping[str, Any]) -> None:
        """Replaces all attributes, in one write of the metadata document."""
        self._node._change_attributes(dictionary(d, "attributes"), is_all=True)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Adds and replaces attributes, in one write of the metadata document."""
        with refusing("attributes"):
            changes = dict(*args, **kwargs)
        self._node._change_attributes(changes)

    def asdict(self) -> dict[str, Any]:
        """A copy of the attributes, as a dictionary."""
        return dict(self._node._metadata.attributes)

    def __repr__(self) -> str:
        return f"<Attributes {self.asdict()!r}>"

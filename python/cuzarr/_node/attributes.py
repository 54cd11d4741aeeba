"""``array.attrs`` and ``group.attrs``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from cuzarr._checks import dictionary, refusing

if TYPE_CHECKING:
    from cuzarr._node.node import Node


class Attributes(MutableMapping[str, Any]):
    """Attributes of an array or group. Every change is written to the store."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __getitem__(self, key: str) -> Any:
        return self._node._metadata.attributes[key]

    def __setitem__(self, key: str, value: Any) -> None:
        with refusing("an attribute's name"):
            self._node._replace_attributes({**self._node._metadata.attributes, key: value})

    def __delitem__(self, key: str) -> None:
        attributes = dict(self._node._metadata.attributes)
        del attributes[key]
        self._node._replace_attributes(attributes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._node._metadata.attributes)

    def __len__(self) -> int:
        return len(self._node._metadata.attributes)

    def put(self, d: Mapping[str, Any]) -> None:
        """Replaces all attributes, in one write."""
        self._node._replace_attributes(dictionary(d, "attributes"))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Adds and replaces attributes, in one write."""
        with refusing("attributes"):
            changes = dict(*args, **kwargs)
        self._node._replace_attributes({**self._node._metadata.attributes, **changes})

    def asdict(self) -> dict[str, Any]:
        """The attributes as a dictionary of the caller's own."""
        return dict(self._node._metadata.attributes)

    def __repr__(self) -> str:
        return f"<Attributes {self.asdict()!r}>"

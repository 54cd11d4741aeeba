"""Adapter for objects with ``get``, ``set``, ``delete`` and ``list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cuzarr.storage.adapters.base import ListingAdapter, Place, cut, own_identity, without_secrets


class ObjectAdapter(ListingAdapter):
    """Adapter for an object with ``get(key)``, ``set(key, value)``, ``delete(key)`` and ``list()``.

    Its method ``identity()``, if it has one, returns the identity of its values: an address, or an object that all stores of the same
    place share.
    """

    def __init__(self, store: Any) -> None:
        self.store = store

    def keys(self) -> Iterable[str]:
        return list(self.store.list())

    def get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            value = self.store.get(key)
        except KeyError:
            return None
        return None if value is None else cut(value, start, stop)

    def set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)

    def delete(self, key: str) -> None:
        try:
            self.store.delete(key)
        except KeyError:
            pass

    def identity(self) -> Place:
        return own_identity(self.store)

    def describe(self) -> str:
        return without_secrets(str(self.store))

"""Adapter for stores of obstore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError

from cuzarr.storage.adapters.asynchronous import Asynchronous
from cuzarr.storage.adapters.base import Place, file_address, own_identity, without_secrets

# Settings of a store that locate its values.
_WHERE = ("account_name", "bucket", "container_name", "endpoint")


class ObstoreAdapter(Asynchronous):
    """Adapter for a store of obstore."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self.store: Any = store

    async def _get(self, key: str, start: int | None, stop: int | None) -> Any:
        try:
            if stop is not None and stop <= (start or 0):  # obstore refuses empty ranges
                await obstore.head_async(self.store, key)
                return b""
            if stop is not None:
                return await obstore.get_range_async(self.store, key, start=start or 0, end=stop)
            if start is None:
                found = await obstore.get_async(self.store, key)
            elif start < 0:
                found = await obstore.get_async(self.store, key, options={"range": {"suffix": -start}})
            elif start == 0:
                found = await obstore.get_async(self.store, key)
            else:
                found = await obstore.get_async(self.store, key, options={"range": {"offset": start}})
            return await found.bytes_async()
        except FileNotFoundError:
            return None

    def set(self, key: str, value: bytes) -> None:
        obstore.put(self.store, key, value)

    def set_if_not_exists(self, key: str, value: bytes) -> bool:
        try:
            obstore.put(self.store, key, value, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def delete(self, key: str) -> None:
        try:
            obstore.delete(self.store, key)
        except FileNotFoundError:
            pass

    def delete_many(self, keys: Sequence[str]) -> None:
        try:
            obstore.delete(self.store, list(keys))
        except FileNotFoundError:
            # Some stores stop a batch at a missing key.
            for key in keys:
                self.delete(key)

    def delete_dir(self, prefix: str) -> None:
        self.delete_many(self.list_prefix(prefix))

    def getsize(self, key: str) -> int | None:
        try:
            return int(obstore.head(self.store, key)["size"])
        except FileNotFoundError:
            return None

    def list_prefix(self, prefix: str) -> list[str]:
        pages = obstore.list(self.store, prefix=f"{prefix}/" if prefix else None)
        return sorted(entry["path"] for page in pages for entry in page)

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        found = obstore.list_with_delimiter(self.store, prefix=f"{prefix}/" if prefix else None)
        return sorted(entry["path"] for entry in found["objects"]), sorted(found["common_prefixes"])

    def identity(self) -> Place:
        store, prefix = self.store, getattr(self.store, "prefix", None)
        if type(store).__name__ == "LocalStore":
            return file_address(prefix or "/")
        if type(store).__name__ == "HTTPStore":
            return str(store.url)
        config = getattr(store, "config", None)
        if config is None:
            return own_identity(store)
        # Credentials do not change the identity of the place.
        where = sorted((name, str(value)) for name, value in config.items() if name in _WHERE)
        return f"{type(store).__name__}://{where}", str(prefix or "")

    def describe(self) -> str:
        return without_secrets(repr(self.store))

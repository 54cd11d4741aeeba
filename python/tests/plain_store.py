"""A store of a program: as little as a store may have."""

from __future__ import annotations

from typing import Any


class Objects:
    """A store over a dictionary, without a coroutine."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def get(self, key: str) -> Any:
        return self.values[key]

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def delete(self, key: str) -> None:
        del self.values[key]

    def list(self) -> list[str]:
        return list(self.values)

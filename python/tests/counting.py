"""A store that says how often chunks were read."""

from __future__ import annotations

import collections
from typing import Any


class Counting(dict[str, Any]):
    """A store in memory that counts reads of chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: collections.Counter[str] = collections.Counter()

    def __getitem__(self, key: str) -> Any:
        if "c/" in key:
            self.reads[key] += 1
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default

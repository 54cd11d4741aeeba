"""Choices that codecs offer, as enumerations: what older programs for zarr-python pass where it takes their words now."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

SubchunkWriteOrder = Literal["morton", "unordered", "lexicographic", "colexicographic"]


class BloscCname(StrEnum):
    """Compressors inside of Blosc."""

    lz4 = "lz4"
    lz4hc = "lz4hc"
    blosclz = "blosclz"
    snappy = "snappy"
    zstd = "zstd"
    zlib = "zlib"


class BloscShuffle(StrEnum):
    """What Blosc does to bytes or bits before it compresses them."""

    noshuffle = "noshuffle"
    shuffle = "shuffle"
    bitshuffle = "bitshuffle"

    @classmethod
    def from_int(cls, num: int) -> Self:
        """The choice by its number in Zarr format 2.

        Raises
        ------
        ValueError
            It has no such number.
        """
        if num not in range(3):
            raise ValueError(f"Value must be between 0 and 2. Got {num}.")
        return list(cls)[num]


class Endian(StrEnum):
    """Byte orders."""

    little = "little"
    big = "big"


class ShardingCodecIndexLocation(StrEnum):
    """Where in a shard its index is."""

    start = "start"
    end = "end"

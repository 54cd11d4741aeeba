"""Enumerations of the values that settings of codecs can have. Older programs for zarr-python pass them; new programs can pass text."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

SubchunkWriteOrder = Literal["morton", "unordered", "lexicographic", "colexicographic"]


class BloscCname(StrEnum):
    """Names of the compressors that the Blosc codec can use."""

    lz4 = "lz4"
    lz4hc = "lz4hc"
    blosclz = "blosclz"
    snappy = "snappy"
    zstd = "zstd"
    zlib = "zlib"


class BloscShuffle(StrEnum):
    """The ways in which Blosc can shuffle the bytes or bits of elements before it compresses them."""

    noshuffle = "noshuffle"
    shuffle = "shuffle"
    bitshuffle = "bitshuffle"

    @classmethod
    def from_int(cls, num: int) -> Self:
        """The kind of shuffling with this number in Zarr format 2.

        Raises
        ------
        ValueError
            No choice has this number.
        """
        if num not in range(3):
            raise ValueError(f"Value must be between 0 and 2. Got {num}.")
        return list(cls)[num]


class Endian(StrEnum):
    """The byte orders in which elements can be stored."""

    little = "little"
    big = "big"


class ShardingCodecIndexLocation(StrEnum):
    """The location of the index of chunks in a shard."""

    start = "start"
    end = "end"

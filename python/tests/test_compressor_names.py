"""Compressors by the short names of the command line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import CuzarrError

DATA = np.arange(1000.0)
SHUFFLED = {"shuffle": "shuffle", "blocksize": 0, "typesize": 8}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zstd:5", {"name": "zstd", "configuration": {"level": 5, "checksum": False}}),
        ("gzip:1", {"name": "gzip", "configuration": {"level": 1}}),
        ("blosc:lz4:3", {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 3, **SHUFFLED}}),
        ("lz4", {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}),
        ("none", None),
    ],
)
@pytest.mark.parametrize("in_list", [False, True])
def test_short_names_are_those_of_the_command_line(text: str, expected: Any, in_list: bool) -> None:
    array = cuzarr.create_array({}, data=DATA, compressors=[text] if in_list else text)
    assert [codec.to_dict() for codec in array.compressors] == ([] if expected is None else [expected])
    assert array[:].tolist() == DATA.tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zstd:5", {"id": "zstd", "level": 5}),
        ("zstd", {"id": "zstd", "level": 3}),
        ("blosc:zstd:3", {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 1, "blocksize": 0}),
        ("lz4", {"id": "lz4", "acceleration": 1}),
        ("none", None),
    ],
)
def test_format_2_has_its_own_form_of_them(text: str, expected: Any) -> None:
    array = cuzarr.create_array({}, data=DATA, compressors=text, zarr_format=2)
    assert array.metadata.to_dict()["compressor"] == expected and array[:].tolist() == DATA.tolist()
    assert cuzarr.create(DATA.shape, compressor=text, zarr_format=2).metadata.to_dict()["compressor"] == expected


def test_copies_take_them_too() -> None:
    source, target = cuzarr.create_array({}, data=DATA), cuzarr.storage.MemoryStore()
    cuzarr.copy(source, target, compressors="gzip:2")
    assert cuzarr.open_array(target).compressors == (cuzarr.codecs.GzipCodec(level=2),)


@pytest.mark.parametrize("text", ["zstd:high", "zst:5", "blosc:of_nobody"])
def test_a_wrong_short_name_says_which_there_are(text: str) -> None:
    with pytest.raises(CuzarrError, match=f"(?s)unknown compressor '{text}'.*zstd, gzip, lz4, blosc"):
        cuzarr.create_array({}, data=DATA, compressors=text)

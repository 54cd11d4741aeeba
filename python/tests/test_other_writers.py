"""What other programs write: files that are no store, metadata with their spelling; and what the command shows of stores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import CuzarrError

HDF5 = b"\x89HDF\r\n\x1a\n"


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cuzarr", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (HDF5, r"cuzarr references make .*reference::table\.json"),
        (bytes(512) + HDF5, r"cuzarr references make .*reference::table\.json"),
        (b"CDF\x02" + bytes(8), r"nccopy -k nc4 .*cuzarr references make"),
        (b' {"version": 1, "refs": {}}', r"open 'reference::.*/file'"),
        (b"notes", r"a directory that contains zarr\.json"),
    ],
)
def test_a_file_that_is_no_store_says_how_it_is_opened(tmp_path: Path, content: bytes, hint: str) -> None:
    place = tmp_path / "file"
    place.write_bytes(content)
    with pytest.raises(CuzarrError, match=rf"(?s)is a file, expected a directory\nhint: .*{hint}"):
        cuzarr.open_group(place, mode="r")


def test_the_command_and_xarray_say_it_too(tmp_path: Path) -> None:
    (tmp_path / "x.nc").write_bytes(HDF5)
    told = command("info", tmp_path / "x.nc")
    assert told.returncode == 2 and "references make" in told.stderr and "reference::table.json" in told.stderr
    xarray = pytest.importorskip("xarray")
    with pytest.raises(CuzarrError, match="references make"):
        xarray.open_dataset(tmp_path / "x.nc", engine="cuzarr")


@pytest.mark.parametrize(("word", "expected"), [("NO", True), ("YES", True), ("no", True), ("MAYBE", False)])
def test_options_as_gdal_writes_them_are_read(word: str, expected: bool) -> None:
    store: dict[str, Any] = {}
    cuzarr.create_array(store, data=np.arange(6.0), zarr_format=2)
    document = json.loads(store[".zarray"])
    document["compressor"] = {"id": "zstd", "level": 13, "checksum": word}
    store[".zarray"] = json.dumps(document).encode()
    if expected:
        assert cuzarr.open_array(store, mode="r")[:].tolist() == list(range(6))
        cuzarr.open_array(store, mode="r+")[:] = 7.0
        assert cuzarr.open_array(store, mode="r")[:].tolist() == [7.0] * 6
    else:
        with pytest.raises(CuzarrError, match='"MAYBE", expected true or false'):
            cuzarr.open_array(store, mode="r")


def test_info_shows_the_lengths_of_a_rectilinear_grid(tmp_path: Path) -> None:
    with cuzarr.config.set({"array.rectilinear_chunks": True}):
        cuzarr.create_array(tmp_path / "a", shape=(4, 6), chunks=(2, [1, 3, 2]), dtype="f4")
        cuzarr.create_array(tmp_path / "s", shape=(6, 6), chunks=(1, 1), shards=([4, 2], 3), dtype="f4")
    cuzarr.create_array(tmp_path / "r", shape=(4, 6), chunks=(2, 3), dtype="f4")
    info = {name: json.loads(command("info", tmp_path / name, "--json").stdout) for name in ("a", "r", "s")}
    assert info["a"]["chunk_shape"] == [2, [1, 3, 2]] and "[2,[1,3,2]]" in command("info", tmp_path / "a").stdout
    assert info["r"]["chunk_shape"] == [2, 3]
    assert info["s"]["chunk_shape"] == [1, 1] and info["s"]["shard_shape"] == [[4, 2], 3]

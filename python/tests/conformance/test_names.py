"""Every data type and codec that zarr-python and numcodecs register is in the matrix, or refused in CORRECTNESS.md; and
spellings that nobody writes any more, or that zarr-python does not write, are read."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import ml_dtypes
import numcodecs.registry
import numpy as np
import tensorstore
import zarr
import zarr.core.dtype
import zarr.registry

import cuzarr

from . import cases, engines, excuses
from .test_matrix import OURS

CASES = cases.all_cases()
#: Names under which zarr-python registers the data types of the matrix.
DATA_TYPES = {
    "unicode5": "fixed_length_utf32", "ascii7": "null_terminated_bytes", "raw6": "raw_bytes", "struct": "struct",
    "string": "string", "bytes": "variable_length_bytes", "datetime_s": "numpy.datetime64",
    "timedelta_10ms": "numpy.timedelta64",
}  # fmt: skip


def refused() -> set[str]:
    """The names in backticks in the table of refusals."""
    page = excuses.PAGE.read_text(encoding="utf-8")
    section = page.partition("\n## Refused\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def used_codecs(zarr_format: int) -> set[str]:
    names = {name for case in CASES if case.zarr_format == zarr_format for name, _ in case.recipes}
    return names | {"vlen-utf8", "vlen-bytes"}  # put there by the data type, not by a chain


def test_every_registered_v3_codec_is_tried_or_refused() -> None:
    # zarr-python keeps an entry without classes for each unknown name that it was asked for.
    registered = {name for name, known in zarr.registry._codec_registries.items() if known or known.lazy_load_list}
    assert len(registered) > 20
    # `endian` is the old name of `bytes`, tried below.
    assert registered - used_codecs(3) - refused() - {"endian"} == set()


def test_every_registered_v2_codec_is_tried_or_refused() -> None:
    registered = {*numcodecs.registry.codec_registry, *numcodecs.registry.entries}
    assert len(registered) > 15
    assert registered - used_codecs(2) - refused() == set()


def test_every_registered_data_type_is_tried_or_refused() -> None:
    registry = zarr.core.dtype.data_type_registry
    registered = set(registry.contents) | {entry.name for entry in registry._lazy_load_list}
    assert len(registered) > 15
    tried = {DATA_TYPES.get(case.data_type.name, case.data_type.name) for case in CASES}
    assert registered - tried - refused() == set()


def rewritten(path: pathlib.Path, old: str, new: str) -> None:
    """Replaces a part of an array's metadata."""
    text = json.dumps(json.loads(path.read_text()))
    assert old in text
    path.write_text(text.replace(old, new))


def ours(path: pathlib.Path) -> np.ndarray[Any, Any]:
    return engines.to_host(OURS.module.open_array(str(path), mode="r")[...])


def test_reads_bytes_codec_under_its_old_name(tmp_path: pathlib.Path) -> None:
    data = np.arange(20, dtype="i4").reshape(4, 5)
    zarr.create_array(store=str(tmp_path / "a"), shape=data.shape, chunks=(3, 2), dtype="int32")[...] = data
    rewritten(tmp_path / "a" / "zarr.json", '"name": "bytes"', '"name": "endian"')
    np.testing.assert_array_equal(ours(tmp_path / "a"), data)


def test_reads_raw_bits_as_the_specification_spells_them(tmp_path: pathlib.Path) -> None:
    data = np.frombuffer(bytes(range(48)), "V6")
    array = zarr.create_array(store=str(tmp_path / "a"), shape=data.shape, chunks=(3,), dtype=data.dtype)
    array[...] = data
    metadata = json.loads((tmp_path / "a" / "zarr.json").read_text())
    metadata |= {"data_type": "r48", "fill_value": [0] * 6}
    (tmp_path / "a" / "zarr.json").write_text(json.dumps(metadata))
    assert ours(tmp_path / "a").tobytes() == data.tobytes()


def test_writes_bfloat16_as_numbers_with_a_byte_order() -> None:
    data = np.linspace(-3, 3, 35).reshape(5, 7).astype(ml_dtypes.bfloat16)
    array = cuzarr.create_array({}, data=data, chunks=(2, 3))
    assert array[:].tobytes() == data.tobytes() and array[1:4, ::2].tobytes() == data[1:4, ::2].tobytes()
    assert array.metadata.to_dict()["codecs"][0] == {"name": "bytes", "configuration": {"endian": "little"}}


def test_reads_bfloat16_of_tensorstore(tmp_path: pathlib.Path) -> None:
    data = np.linspace(-3, 3, 35).reshape(5, 7).astype(ml_dtypes.bfloat16)
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 1}}]
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(tmp_path / "a")},
        "metadata": {
            "shape": [5, 7],
            "data_type": "bfloat16",
            "codecs": codecs,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        },
    }
    tensorstore.open(spec, create=True).result().write(data).result()
    got = ours(tmp_path / "a")
    assert got.dtype.itemsize == 2
    assert got.tobytes() == data.tobytes()

"""Codecs of zarr-extensions that zarr-python has not: compared with tensorstore's N5 and with zfp's own library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import EncodeFailedError

GZIP = {"name": "gzip", "configuration": {"level": 1}}
N5_COMPRESSIONS = [("raw", None), ("gzip", GZIP), ("zstd", {"name": "zstd", "configuration": {"level": 1, "checksum": False}})]


def n5_default(ndim: int, compressor: Any) -> dict[str, Any]:
    transpose = {"name": "transpose", "configuration": {"order": list(range(ndim))[::-1]}}
    big = {"name": "bytes", "configuration": {"endian": "big"}}
    codecs = [transpose, big, *([compressor] if compressor else [])]
    return {"name": "n5_default", "configuration": {"codecs": codecs}}


@pytest.mark.parametrize(("compression", "compressor"), N5_COMPRESSIONS)
@pytest.mark.parametrize("shape", [(29,), (10, 7), (5, 9, 6)])
def test_tensorstore_reads_and_writes_the_same_blocks(compression: str, compressor: Any, shape: Any, tmp_path: Path) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    chunks, truth = (4, 3, 5)[: len(shape)], np.arange(np.prod(shape), dtype="f8").reshape(shape) - 40
    ours = cuzarr.create_array(
        tmp_path, shape=shape, chunks=chunks, dtype="f8", filters=None, compressors=None, serializer=n5_default(len(shape), compressor),
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )  # fmt: skip
    metadata = {"dimensions": shape, "blockSize": chunks, "dataType": "float64", "compression": {"type": compression}}
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{tmp_path}/"}, "metadata": metadata}
    theirs = tensorstore.open(spec, create=True).result()
    theirs.write(truth).result()
    np.testing.assert_array_equal(ours[...], truth)
    ours[...] = -truth
    np.testing.assert_array_equal(theirs.read().result(), -truth)
    ours[1:] = truth[1:]
    np.testing.assert_array_equal(theirs.read().result()[1:], truth[1:])


def test_blocks_that_end_at_the_edge_are_read(tmp_path: Path) -> None:
    array = cuzarr.create_array(
        tmp_path, shape=(3, 5), chunks=(2, 4), dtype="i2", compressors=None, serializer=n5_default(2, None),
        chunk_key_encoding={"name": "v2", "separator": "/"}, fill_value=9,
    )  # fmt: skip
    # Java's N5 cuts the last block off at the edge.
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "1").write_bytes(bytes.fromhex("0000 0002 00000001 00000001 002a"))
    assert array[...].tolist() == [[9] * 5, [9] * 5, [9, 9, 9, 9, 42]]


MODES = [
    ({"mode": "reversible"}, {}),
    ({"mode": "fixed_rate", "rate": 11.5}, {"rate": 11.5}),
    ({"mode": "fixed_precision", "precision": 17}, {"precision": 17}),
    ({"mode": "fixed_accuracy", "tolerance": 0.01}, {"tolerance": 0.01}),
]


@pytest.mark.parametrize(("configuration", "keywords"), MODES)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(37,), (9, 14), (6, 5, 11), (3, 4, 7, 5)])
def test_the_library_of_zfp_reads_and_writes_the_same_chunks(
    configuration: Any, keywords: Any, dtype: str, shape: Any, tmp_path: Path
) -> None:
    zfpy = pytest.importorskip("zfpy")
    if "tolerance" in keywords and dtype.startswith("int"):
        pytest.skip("only for floats")
    random = np.random.default_rng(len(shape))
    truth = (np.sin(np.arange(np.prod(shape)) / 6) * 900 + random.standard_normal(np.prod(shape))).astype(dtype).reshape(shape)
    serializer = {"name": "zfp", "configuration": configuration}
    array = cuzarr.create_array(tmp_path, shape=shape, chunks=shape, dtype=dtype, compressors=None, serializer=serializer)
    array[...] = truth
    stored = (tmp_path / "c" / "/".join("0" * len(shape))).read_bytes()
    assert stored == zfpy.compress_numpy(truth, write_header=False, **keywords)
    types = {"int32": zfpy.type_int32, "int64": zfpy.type_int64, "float32": zfpy.type_float, "float64": zfpy.type_double}
    theirs = zfpy._decompress(stored, types[dtype], shape, **keywords)
    assert array[...].tobytes() == theirs.tobytes()
    assert configuration["mode"] != "reversible" or array[...].tobytes() == truth.tobytes()


def test_zfp_is_the_codec_of_shards_too(tmp_path: Path) -> None:
    truth = np.linspace(-5, 5, 40 * 24, dtype="f4").reshape(40, 24)
    serializer = {"name": "zfp", "configuration": {"mode": "fixed_accuracy", "tolerance": 1e-3}}
    array = cuzarr.create_array(
        tmp_path, shape=(40, 24), chunks=(5, 8), shards=(20, 8), dtype="f4", compressors=[GZIP], serializer=serializer
    )
    array[...] = truth
    np.testing.assert_allclose(array[3:33, 5:20], truth[3:33, 5:20], atol=1e-3)
    inner = json.loads((tmp_path / "zarr.json").read_text())["codecs"][0]["configuration"]["codecs"]
    assert inner == [serializer, GZIP]


def test_numbers_that_zfp_cannot_hold_are_refused(tmp_path: Path) -> None:
    serializer = {"name": "zfp", "configuration": {"mode": "fixed_rate", "rate": 8}}
    array = cuzarr.create_array(tmp_path, shape=9, dtype="f4", compressors=None, serializer=serializer)
    with pytest.raises(EncodeFailedError, match="element 4 cannot be stored: it is no finite number"):
        array[4] = np.nan


def test_conditional_leaves_out_a_compressor_that_helps_nothing(tmp_path: Path) -> None:
    conditional = {"name": "conditional", "configuration": {"codecs": [GZIP, {"name": "crc32c"}]}}
    array = cuzarr.create_array(tmp_path, shape=2000, chunks=1000, dtype="u1", compressors=[conditional])
    noise = np.random.default_rng(3).integers(0, 256, 1000, dtype="u1")
    array[:1000], array[1000:] = noise, 7
    first, second = ((tmp_path / "c" / name).read_bytes() for name in "01")
    assert (first[0], second[0]) == (0b10, 0b11)
    assert len(first) == 1 + 1000 + 4 and len(second) < 100
    assert array[:1000].tobytes() == noise.tobytes() and (array[1000:] == 7).all()

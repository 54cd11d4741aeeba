"""Frames that kernels and the host make are what any reader reads; where and how they are written is what explain and fsync say."""

from __future__ import annotations

import gzip
import pathlib
import zlib
from typing import Any

import devices
import numpy as np
import pytest
import tensorstore
import zarr
import zarrs  # noqa: F401

import cuzarr

SHAPE = (2, 60, 150)
rng = np.random.default_rng(7)
VALUE = np.round(np.cumsum(rng.standard_normal(SHAPE), axis=2, dtype="f4"), 1)
VALUE[:, 30:40] = 7
VALUE[1, :20] = rng.standard_normal((20, 150))


def read_by_others(path: pathlib.Path, zarr_format: int = 3, *, without: str = "") -> dict[str, Any]:
    """What other libraries read, but for one that lacks the codec."""
    read = {"zarr-python": zarr.open_array(str(path), mode="r")[...]}
    if without != "tensorstore":
        driver = "zarr3" if zarr_format == 3 else "zarr"
        spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}
        read["tensorstore"] = tensorstore.open(spec).result().read().result()
    if without == "zarrs":
        return read
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}):
        read["zarrs"] = zarr.open_array(str(path), mode="r")[...]
    return read


@pytest.mark.parametrize("shards", [None, (2, 50, 140)])
@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
@pytest.mark.parametrize("cname", ["lz4", "zlib", "zstd"])
def test_frames_of_kernels_are_read_by_others(tmp_path: pathlib.Path, cname: Any, shuffle: Any, shards: Any) -> None:
    device = devices.require()
    codec = cuzarr.codecs.BloscCodec(cname=cname, clevel=5, shuffle=shuffle, typesize=4, blocksize=4096)
    array = cuzarr.create_array(
        str(tmp_path / "a"), shape=SHAPE, chunks=(1, 25, 70), shards=shards, dtype="f4", compressors=codec, device=device
    )
    # However few they are, kernels make all frames of whole chunks.
    with cuzarr.config.set({"strict": True}):
        array[:] = devices.on(device, VALUE)
        assert "via host" not in str(array.explain(writing=True))
        np.testing.assert_array_equal(devices.to_host(array[:]), VALUE)
    for reader, read in read_by_others(tmp_path / "a").items():
        np.testing.assert_array_equal(read, VALUE, err_msg=reader)


def test_lz4_of_kernels_is_read_by_zarr_python(tmp_path: pathlib.Path) -> None:
    import numcodecs

    device = devices.require()
    array = cuzarr.create_array(
        str(tmp_path / "a"), shape=SHAPE, chunks=(1, 25, 70), dtype="f4", zarr_format=2, compressors=numcodecs.LZ4(),
        device=device,
    )  # fmt: skip
    with cuzarr.config.set({"strict": True}):
        array[:] = devices.on(device, VALUE)
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "a"), mode="r")[...], VALUE)


@pytest.mark.parametrize(("compressor", "decode"), [("gzip", gzip.decompress), ("zlib", zlib.decompress)])
def test_deflate_of_kernels_is_read_by_others(tmp_path: pathlib.Path, compressor: str, decode: Any) -> None:
    device = devices.require()
    codec = cuzarr.codecs.GzipCodec(level=5) if compressor == "gzip" else cuzarr.codecs.numcodecs.Zlib(level=6)
    # Whole chunks are larger than the encoder's blocks, and the last block is noise, which is stored.
    value = np.zeros((2, 130, 80), "f4")
    value[0], value[1] = np.round(np.arange(80) * 0.31, 1), rng.standard_normal((130, 80))
    array = cuzarr.create_array(
        str(tmp_path / "a"), shape=value.shape, chunks=value.shape, dtype="f4", compressors=codec, device=device
    )
    with cuzarr.config.set({"strict": True}):
        array[:] = devices.on(device, value)
        assert "via host" not in str(array.explain(writing=True))
        np.testing.assert_array_equal(devices.to_host(array[:]), value)
    for reader, read in read_by_others(tmp_path / "a", without="" if compressor == "gzip" else "tensorstore").items():
        np.testing.assert_array_equal(read, value, err_msg=reader)
    assert decode((tmp_path / "a/c/0/0/0").read_bytes()) == value.tobytes()


CNAMES = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
HOST_CODECS: dict[str, Any] = {
    **{f"zstd {level}": cuzarr.codecs.ZstdCodec(level=level) for level in (-7, 1, 3, 7, 13, 19)},
    "zstd with a checksum": cuzarr.codecs.ZstdCodec(level=3, checksum=True),
    **{f"gzip {level}": cuzarr.codecs.GzipCodec(level=level) for level in (0, 1, 5, 9)},
    **{f"blosc {cname}": cuzarr.codecs.BloscCodec(cname=cname, typesize=4, shuffle="bitshuffle") for cname in CNAMES},
    "zlib": cuzarr.codecs.numcodecs.Zlib(level=6),
}


@pytest.mark.parametrize("name", HOST_CODECS)
def test_frames_of_the_host_are_read_by_others(tmp_path: pathlib.Path, name: str) -> None:
    # Several blocks of every compressor: some of little, some of nothing to find.
    value = np.round(np.cumsum(rng.standard_normal((600, 500)), axis=1, dtype="f4"), 1)
    value[100:300], value[400:450] = 7, rng.standard_normal((50, 500))
    array = cuzarr.create_array(
        str(tmp_path / "a"), shape=value.shape, chunks=(500, 500), dtype="f4", compressors=HOST_CODECS[name]
    )
    array[:] = value
    without = "tensorstore" if name in ("zlib", "zstd with a checksum") else ""
    for reader, read in read_by_others(tmp_path / "a", without=without).items():
        np.testing.assert_array_equal(read, value, err_msg=reader)


def test_zlib_of_format_2_is_read_by_others(tmp_path: pathlib.Path) -> None:
    import numcodecs

    path, value = tmp_path / "a", np.arange(300_000, dtype="i4") // 7
    array = cuzarr.create_array(
        str(path), shape=value.shape, chunks=(200_000,), dtype="i4", zarr_format=2, compressors=numcodecs.Zlib(level=6)
    )
    array[:] = value
    for reader, read in read_by_others(path, 2, without="zarrs").items():
        np.testing.assert_array_equal(read, value, err_msg=reader)


def test_chunks_that_several_threads_encode_are_read_by_others(tmp_path: pathlib.Path) -> None:
    value = (np.arange(9 << 20, dtype="u2") ** 2 // 1000).reshape(-1, 1024)
    stored = []
    for threads in (1, 4):
        with cuzarr.config.set({"threading.max_workers": threads}):
            path, codec = tmp_path / str(threads), cuzarr.codecs.ZstdCodec(level=1)
            array = cuzarr.create_array(str(path), shape=value.shape, chunks=value.shape, dtype="u2", compressors=codec)
            array[:] = value
        stored.append((path / "c/0/0").read_bytes())
        for reader, read in read_by_others(path).items():
            np.testing.assert_array_equal(read, value, err_msg=reader)
    assert stored[0] == stored[1]


def _filters() -> dict[str, tuple[str, list[Any]]]:
    import numcodecs

    return {
        "delta": ("i4", [numcodecs.Delta(dtype="<i4")]),
        "delta, smaller": ("i8", [numcodecs.Delta(dtype="<i8", astype="<i4")]),
        "delta of floats": ("f4", [numcodecs.Delta(dtype="<f4")]),
        "delta, shuffle": ("u2", [numcodecs.Delta(dtype="<u2"), numcodecs.Shuffle(elementsize=2)]),
        "packbits": ("bool", [numcodecs.PackBits()]),
        "fixedscaleoffset": ("f8", [numcodecs.FixedScaleOffset(offset=0, scale=10, dtype="<f8", astype="<i2")]),
    }


@pytest.mark.parametrize("name", ["delta", "delta, smaller", "delta of floats", "delta, shuffle", "packbits", "fixedscaleoffset"])
@pytest.mark.parametrize("compressor", ["lz4", "blosc"])
def test_frames_behind_filters_are_read_by_zarr_python(tmp_path: pathlib.Path, name: str, compressor: str) -> None:
    import numcodecs

    device, (dtype, filters) = devices.require(), _filters()[name]
    value = (np.arange(60 * 150).reshape(60, 150) // 7 % (2 if dtype == "bool" else 300)).astype(dtype)
    codec = numcodecs.LZ4() if compressor == "lz4" else numcodecs.Blosc(cname="lz4", shuffle=numcodecs.Blosc.SHUFFLE)
    array = cuzarr.create_array(
        str(tmp_path / "a"), shape=value.shape, chunks=(25, 70), dtype=dtype, zarr_format=2, filters=filters,
        compressors=codec, device=device,
    )  # fmt: skip
    with cuzarr.config.set({"strict": True}):
        array[:] = devices.on(device, value)
        assert "via host" not in str(array.explain(writing=True))
        np.testing.assert_array_equal(devices.to_host(array[:]), value)
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "a"), mode="r")[...], value)


def test_the_host_encodes_what_kernels_would_not_do_faster(tmp_path: pathlib.Path) -> None:
    device = devices.require()
    codec = cuzarr.codecs.BloscCodec(cname="lz4", typesize=4, shuffle="shuffle")
    array = cuzarr.create_array(str(tmp_path / "a"), shape=(8, 8), chunks=(8, 8), dtype="f4", compressors=codec, device=device)
    document = array.explain(writing=True).to_dict()
    assert document["action"] == "write"
    assert document["codecs"][-1] == {
        "codec": "blosc", "placement": "via host", "reason": "the host's threads encode such a small write faster"
    }  # fmt: skip
    assert "zstd" in str(
        cuzarr.create_array({}, shape=(8,), dtype="f4", compressors=cuzarr.codecs.ZstdCodec(), device=device).explain(
            writing=True
        )
    )


def test_fsync_is_what_the_configuration_says_when_a_store_is_made(tmp_path: pathlib.Path) -> None:
    for fsync in ("none", "data", "full"):
        with cuzarr.config.set({"fsync": fsync}):
            array = cuzarr.create_array(str(tmp_path / fsync), shape=(9,), chunks=(4,), dtype="i4")
            array[:] = 5
        np.testing.assert_array_equal(zarr.open_array(str(tmp_path / fsync), mode="r")[...], np.full(9, 5))
    with pytest.raises(ValueError, match="fsync"):
        cuzarr.config.set({"fsync": "sometimes"})

"""The codec chains of the matrix, as recipes: (codec name, configuration). Engines make their own objects of them."""

from __future__ import annotations

import dataclasses
import importlib
import random
from collections.abc import Iterator
from typing import Any

import numcodecs
import zarr.codecs

from .dtypes import DataType

Recipe = tuple[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Chain:
    """What stands before, in the place of, and after the `bytes` codec. `None` leaves the choice to the library."""

    name: str
    filters: tuple[Recipe, ...] = ()
    serializer: Recipe | None = None
    compressors: tuple[Recipe, ...] = ()
    lossy: bool = False
    #: The codec computes with values: no infinities, and integers that fit the narrower type.
    finite: bool = False


V3_CLASSES = {
    "bytes": "BytesCodec",
    "zstd": "ZstdCodec",
    "gzip": "GzipCodec",
    "blosc": "BloscCodec",
    "crc32c": "Crc32cCodec",
    "transpose": "TransposeCodec",
    "sharding_indexed": "ShardingCodec",
    "scale_offset": "ScaleOffset",
    "cast_value": "CastValue",
    "vlen-utf8": "VLenUTF8Codec",
    "vlen-bytes": "VLenBytesCodec",
}
NUMCODECS_CLASSES = {
    "delta": "Delta", "bitround": "BitRound", "fixedscaleoffset": "FixedScaleOffset", "quantize": "Quantize",
    "packbits": "PackBits", "astype": "AsType", "lz4": "LZ4", "zlib": "Zlib", "bz2": "BZ2", "lzma": "LZMA",
    "zstd": "Zstd", "gzip": "GZip", "blosc": "Blosc", "shuffle": "Shuffle", "fletcher32": "Fletcher32",
    "crc32": "CRC32", "crc32c": "CRC32C", "adler32": "Adler32", "jenkins_lookup3": "JenkinsLookup3",
    "pcodec": "PCodec", "zfpy": "ZFPY",
}  # fmt: skip


def build(recipe: Recipe, codecs: Any, zarr_format: int) -> Any:
    """The codec object of a recipe; `codecs` is `zarr.codecs` or a module like it."""
    name, configuration = recipe
    if zarr_format == 2:
        return numcodecs.get_codec({"id": name, **configuration})
    if name.startswith("numcodecs."):
        module = importlib.import_module(f"{codecs.__name__}.numcodecs")
        return getattr(module, NUMCODECS_CLASSES[name.removeprefix("numcodecs.")])(**configuration)
    if name == "sharding_indexed":
        configuration = {
            key: [build(inner, codecs, 3) for inner in value] if key.endswith("codecs") else value
            for key, value in configuration.items()
        }
    return getattr(codecs, V3_CLASSES[name])(**configuration)


def _has(recipe: Recipe) -> bool:
    """Whether this zarr-python and its optional libraries have the codec (an older one runs on Python 3.11)."""
    if recipe[0] in V3_CLASSES and not hasattr(zarr.codecs, V3_CLASSES[recipe[0]]):
        return False
    library = {"numcodecs.pcodec": "pcodec", "numcodecs.zfpy": "zfpy", "cast_value": "cast_value_rs"}.get(recipe[0])
    return library is None or importlib.util.find_spec(library) is not None


def _zstd(level: int = 3, *, checksum: bool = False) -> Recipe:
    return ("zstd", {"level": level, "checksum": checksum})


def _blosc(cname: str, shuffle: str, level: int = 5, **more: Any) -> Recipe:
    return ("blosc", {"cname": cname, "clevel": level, "shuffle": shuffle, **more})


def _n(name: str, **configuration: Any) -> Recipe:
    return (f"numcodecs.{name}", configuration)


def chains_v3(data_type: DataType, ndim: int, choose: random.Random) -> Iterator[Chain]:
    """Every chain that makes sense for the data type."""
    yield from (chain for chain in _all_v3(data_type, ndim, choose) if _usable(chain))


def _usable(chain: Chain) -> bool:
    recipes = (*chain.filters, *chain.compressors, *([chain.serializer] if chain.serializer else []))
    return all(_has(recipe) for recipe in recipes)


def _all_v3(data_type: DataType, ndim: int, choose: random.Random) -> Iterator[Chain]:
    size = 1 if data_type.is_variable else data_type.numpy.itemsize
    order = tuple(choose.sample(range(ndim), ndim))
    transpose = ("transpose", {"order": order})

    for name, recipes in {
        "plain": [],
        "zstd": [_zstd(choose.choice([-3, 0, 1, 5]))],
        "zstd_checksum": [_zstd(checksum=True)],
        "gzip": [("gzip", {"level": choose.choice([0, 1, 5, 9])})],
        "crc32c": [("crc32c", {})],
        "zstd_crc32c": [_zstd(), ("crc32c", {})],
        "gzip_zstd": [("gzip", {"level": 1}), _zstd(1)],
        "blosc_lz4": [_blosc("lz4", "shuffle")],
        "blosc_lz4hc": [_blosc("lz4hc", "noshuffle", blocksize=256)],
        "blosc_blosclz": [_blosc("blosclz", choose.choice(["shuffle", "bitshuffle"]), 9)],
        "blosc_zstd": [_blosc("zstd", "bitshuffle", 1)],
        "blosc_zlib": [_blosc("zlib", "shuffle", choose.choice([0, 3]))],
        "blosc_typesize": [_blosc("lz4", "bitshuffle", typesize=choose.choice([1, 2, 3, 4, 8, 16]))],
        "n_blosc": [_n("blosc", cname="lz4", clevel=5, shuffle=choose.choice([0, 1, 2]))],
        "n_lz4": [_n("lz4", acceleration=choose.choice([1, 4]))],
        "n_zlib": [_n("zlib", level=choose.choice([0, 1, 9]))],
        "n_gzip": [_n("gzip", level=1)],
        "n_bz2": [_n("bz2", level=1)],
        "n_zstd": [_n("zstd", level=1)],
        "n_lzma": [_n("lzma", preset=0)],
        "n_shuffle_zstd": [_n("shuffle", elementsize=size), _zstd(1)],
        "n_shuffle_half": [_n("shuffle", elementsize=size // 2 if size % 2 == 0 else size)],
        "n_fletcher32": [_n("fletcher32")],
        "n_crc32": [_n("crc32")],
        "n_crc32_end": [_n("crc32", location="end")],
        "n_crc32c": [_n("crc32c")],
        "n_adler32": [_n("adler32")],
        "n_jenkins": [_n("jenkins_lookup3")],
    }.items():
        yield Chain(name, compressors=tuple(recipes))
    if data_type.is_variable:
        return
    yield Chain("transpose", (transpose,))
    yield Chain("transpose_blosc", (transpose,), None, (_blosc("lz4", "shuffle"),))
    yield Chain("transpose_twice_gzip", (transpose, ("transpose", {"order": order[::-1]})), None, (("gzip", {"level": 1}),))
    if data_type.numpy.itemsize > 1 and data_type.kind not in "SV":
        yield Chain("big_endian", (), ("bytes", {"endian": "big"}), (_zstd(),))
        yield Chain("big_endian_transpose", (transpose,), ("bytes", {"endian": "big"}))
    yield from _arithmetic_v3(data_type, transpose)


def _arithmetic_v3(data_type: DataType, transpose: Recipe) -> Iterator[Chain]:
    """Chains whose codecs compute with elements."""
    name, kind, size = data_type.name, data_type.kind, data_type.numpy.itemsize
    zstd = (_zstd(1),)
    if kind == "b":
        yield Chain("n_packbits", (_n("packbits"),))
        yield Chain("n_packbits_zstd", (_n("packbits"),), None, zstd)
    if kind in "iu":
        yield Chain("n_delta", (_n("delta", dtype=name),), None, zstd)
        yield Chain("transpose_n_delta", (transpose, _n("delta", dtype=name)), None, zstd)
        wide = _n("astype", encode_dtype="float64", decode_dtype=name)
        # Spelt out, because the default follows the array's data type, and that may have one byte.
        yield Chain("n_astype", (wide,), ("bytes", {"endian": "little"}), zstd, finite=True)
        scale = {"offset": 3 if kind == "i" else 0, "scale": 1 if size == 1 else 2}
        yield Chain("scale_offset", (("scale_offset", scale),), None, zstd, finite=True)
    if kind == "f":
        lossy: dict[str, Any] = {"lossy": True, "finite": True, "compressors": zstd}
        yield Chain("n_delta", (_n("delta", dtype=name),), **lossy)
        yield Chain("n_bitround", (_n("bitround", keepbits={2: 4, 4: 7, 8: 12}[size]),), **lossy)
        yield Chain("n_quantize", (_n("quantize", digits=1, dtype=name),), **lossy)
        fixed = _n("fixedscaleoffset", offset=200, scale=10, dtype=name, astype="int16")
        yield Chain("n_fixedscaleoffset", (fixed,), **lossy)
        yield Chain("n_astype", (_n("astype", encode_dtype="float32", decode_dtype=name),), **lossy)
        yield Chain("scale_offset", (("scale_offset", {"offset": 100.5, "scale": 0.25}),), **lossy)
        cast = ("cast_value", {"data_type": "int16", "rounding": "nearest-even"})
        yield Chain("cast_value", (cast,), **lossy)
        yield Chain("scale_offset_cast_value", (("scale_offset", {"offset": 200, "scale": 10}), cast), **lossy)
    if name in ("float32", "float64", "int32", "int64", "uint32", "uint64"):
        yield Chain("n_pcodec", (), _n("pcodec"))
        if kind == "f":
            yield Chain("n_zfpy", (), _n("zfpy", mode=4, tolerance=0.01), finite=True, lossy=True)


def chains_v2(data_type: DataType, choose: random.Random) -> Iterator[Chain]:
    """Every v2 chain that makes sense for the data type."""
    size = 1 if data_type.is_variable else data_type.numpy.itemsize
    for name, filters, recipe in [
        ("plain", [], None),
        ("zlib", [], ("zlib", {"level": choose.choice([0, 1, 9])})),
        ("gzip", [], ("gzip", {"level": choose.choice([1, 5])})),
        ("bz2", [], ("bz2", {"level": 1})),
        ("lzma", [], ("lzma", {"preset": 0})),
        ("lz4", [], ("lz4", {"acceleration": 1})),
        ("zstd", [], ("zstd", {"level": choose.choice([-1, 1, 9])})),
        ("blosc_lz4", [], ("blosc", {"cname": "lz4", "clevel": 5, "shuffle": 1})),
        ("blosc_zstd", [], ("blosc", {"cname": "zstd", "clevel": 1, "shuffle": 2})),
        ("blosc_auto", [], ("blosc", {"cname": "blosclz", "clevel": 9, "shuffle": -1})),
        ("blosc_lz4hc", [], ("blosc", {"cname": "lz4hc", "clevel": 3, "shuffle": 0, "blocksize": 256})),
        ("blosc_zlib", [], ("blosc", {"cname": "zlib", "clevel": 1, "shuffle": 1})),
        ("base64", [], ("base64", {})),
        ("shuffle_zlib", [("shuffle", {"elementsize": size})], ("zlib", {"level": 1})),
        ("crc32", [("crc32", {})], None),
        ("crc32c_zstd", [("crc32c", {})], ("zstd", {"level": 1})),
        ("adler32", [("adler32", {})], ("lz4", {"acceleration": 1})),
        ("fletcher32", [("fletcher32", {})], None),
        ("jenkins", [("jenkins_lookup3", {})], None),
    ]:
        if not (data_type.is_variable and filters):
            yield Chain(name, tuple(filters), None, (recipe,) if recipe else ())
    yield from _arithmetic_v2(data_type)


def _arithmetic_v2(data_type: DataType) -> Iterator[Chain]:
    kind, dtype, zlib = data_type.kind, data_type.numpy.str, (("zlib", {"level": 1}),)
    if data_type.name in ("float32", "float64", "int32", "int64"):
        yield Chain("pcodec", (), None, (("pcodec", {}),))
        yield Chain("zfpy", (), None, (("zfpy", {"mode": 4, "tolerance": 0.01}),), lossy=True, finite=True)
    if kind == "b":
        yield Chain("packbits", (("packbits", {}),), None, zlib)
    if kind in "iu":
        yield Chain("delta", (("delta", {"dtype": dtype}),), None, zlib)
        if data_type.numpy.itemsize > 1:
            yield Chain("delta_astype", (("delta", {"dtype": dtype, "astype": "<i1"}),), finite=True, lossy=True)
        yield Chain("astype", (("astype", {"encode_dtype": "<f8", "decode_dtype": dtype}),), finite=True)
    if kind == "f":
        lossy: dict[str, Any] = {"lossy": True, "finite": True, "compressors": zlib}
        yield Chain("delta", (("delta", {"dtype": dtype}),), **lossy)
        yield Chain("quantize", (("quantize", {"digits": 2, "dtype": dtype}),), **lossy)
        fixed = {"offset": 200, "scale": 10, "dtype": dtype, "astype": "<u2"}
        yield Chain("fixedscaleoffset", (("fixedscaleoffset", fixed),), **lossy)
        if data_type.numpy.isnative:
            yield Chain("bitround", (("bitround", {"keepbits": 3}),), **lossy)
        yield Chain("astype", (("astype", {"encode_dtype": "<f4", "decode_dtype": dtype}),), **lossy)


def recipes_of(filters: tuple[Recipe, ...], serializer: Recipe | None, compressors: tuple[Recipe, ...]) -> list[Recipe]:
    """All recipes, those inside sharding too."""
    found: list[Recipe] = []
    for recipe in (*filters, *([serializer] if serializer else []), *compressors):
        found.append(recipe)
        if recipe[0] == "sharding_indexed":
            found += recipes_of(tuple(recipe[1]["codecs"]), None, tuple(recipe[1].get("index_codecs", ())))
    return found

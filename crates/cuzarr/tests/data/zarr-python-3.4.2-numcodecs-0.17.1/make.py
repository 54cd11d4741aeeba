"""Makes golden.jsonl: arrays of one chunk as zarr-python and numcodecs store them.

    pip install zarr==3.4.2 numcodecs==0.17.1 cast-value-rs crc32c ml_dtypes
    python make.py > golden.jsonl

Each line has the array's metadata, the stored chunk, what zarr-python reads from it (native byte order, C order), and
what was written where that differs. "exact" says that any encoder must make the same bytes. Bytes that an earlier line
has are the number of that line's "decoded".
"""

import base64
import itertools
import json
import sys
import warnings

import numcodecs
import numpy as np
import zarr
import zarr.codecs as v3
import zarr.codecs.numcodecs as nc

warnings.simplefilter("ignore")
random = np.random.default_rng(20261121)


decoded_lines = {}  # decoded bytes → the first line that has them
names = []


def text(data):
    return base64.b64encode(bytes(data)).decode()


def native(array):
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).tobytes()


def emit(name, array, source, exact):
    store = array.store.store_dict if hasattr(array.store, "store_dict") else array.store._store_dict
    chunks = [key for key in store if not key.startswith(".z") and key != "zarr.json"]
    assert len(chunks) == 1, chunks
    line = {"name": name, "exact": exact}
    for key in ("zarr.json", ".zarray"):
        if key in store:
            line[key] = json.loads(store[key].to_bytes())
    line["stored"] = text(store[chunks[0]].to_bytes())
    result = array[...]
    if result.dtype == object or result.dtype.kind == "T":
        line["elements"] = [text(x.encode() if isinstance(x, str) else x) for x in result.ravel()]
    else:
        known = decoded_lines.get(native(result))
        line["decoded"] = text(native(result)) if known is None else known
        decoded_lines.setdefault(native(result), len(names))
        if native(source) != native(result):
            line["source"] = text(native(source))
    names.append(name)
    print(json.dumps(line, separators=(",", ":")))


def case(name, source, exact=False, **options):
    """One array; what zarr-python itself refuses is named and left out."""
    try:
        make(name, source, exact, **options)
    except Exception as error:
        print(f"left out: {name} {source.dtype}: {type(error).__name__}: {error}"[:300], file=sys.stderr)


def make(name, source, exact, **options):
    options = {"shape": source.shape, "chunks": source.shape, "dtype": source.dtype, "fill_value": 77, **options}
    if source.dtype.kind in "SVUM":
        del options["fill_value"]
    if source.dtype.kind == "b":
        options["fill_value"] = True
    if source.dtype.kind == "m":
        options["fill_value"] = 5
    config = {"write_empty_chunks": True, **options.pop("config", {})}
    array = zarr.create_array(zarr.storage.MemoryStore(), config=config, **options)
    array[...] = source
    emit(name, array, source, exact)


def smooth(shape, dtype):
    dtype = np.dtype(dtype)
    values = np.cumsum(random.integers(-3, 4, int(np.prod(shape)))).reshape(shape)
    if dtype.kind == "b":
        return values % 2 == 0
    if dtype.kind == "f":
        return (values + random.random(shape)).astype(dtype)
    if dtype.kind == "c":
        return (values + 1j * random.random(shape)).astype(dtype)
    if dtype.kind in "SU":
        return np.array([str(x) for x in values.ravel()]).astype(dtype).reshape(shape)
    if dtype.kind == "V" and dtype.names:
        result = np.zeros(shape, dtype)
        for name in dtype.names:
            result[name] = values if result[name].shape == values.shape else values[..., None]
        return result
    if dtype.kind == "V":
        return random.integers(0, 256, (*shape, dtype.itemsize), "u1").view(dtype)[..., 0]
    return values.astype(dtype)


DTYPES = "|b1 |i1 <i2 <i4 <i8 |u1 <u2 <u4 <u8 <f2 <f4 <f8 <c8 <c16".split()
OTHERS = ["|S5", "<U3", "|V7", "<M8[ns]", "<m8[10us]"]
STRUCT = np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "u1"), ("d", "<c8")])
LITTLE_STRUCT = np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "u1")])

# bytes: every data type, both orders of bytes, transposed and not; v2 in both orders of elements.
for dtype in DTYPES + OTHERS:
    data = smooth((3, 5), dtype)
    for endian in ("little", "big"):
        case("bytes", data, True, serializer=v3.BytesCodec(endian=endian), compressors=None, filters=None)
    for order, byteorder in itertools.product("CF", "<>"):
        case(
            "v2",
            smooth((2, 3, 4), np.dtype(dtype).newbyteorder(byteorder)),
            True,
            zarr_format=2,
            order=order,
            compressors=None,
            filters=None,
        )
for order in "CF":
    case("v2 struct", smooth((4, 3), STRUCT), True, zarr_format=2, order=order, compressors=None, filters=None)
for endian in ("little", "big"):
    case("struct", smooth((4, 3), LITTLE_STRUCT), True, serializer=v3.BytesCodec(endian=endian), compressors=None)
case("transpose", smooth((2, 3, 4), "<i4"), True, filters=[v3.TransposeCodec(order=(2, 0, 1))], compressors=None)
case(
    "transpose twice",
    smooth((2, 3, 4), "<i2"),
    True,
    filters=[v3.TransposeCodec(order=(2, 0, 1)), v3.TransposeCodec(order=(0, 2, 1))],
    compressors=None,
)
case("no dimensions", np.array(5, "<i4"), True, compressors=None)

# Compressors, in both formats.
big = smooth((20, 37), "<f4")
small = smooth((7,), "|u1")
both = [
    (nc.Zlib(level=4), numcodecs.Zlib(4)),
    (nc.GZip(level=4), numcodecs.GZip(4)),
    (nc.BZ2(level=9), numcodecs.BZ2(9)),
    (nc.LZ4(acceleration=3), numcodecs.LZ4(3)),
    (nc.Zstd(level=3), numcodecs.Zstd(3)),
    (nc.Zstd(level=1, checksum=True), numcodecs.Zstd(1, checksum=True)),
    (v3.GzipCodec(level=9), numcodecs.GZip(1)),
    (v3.ZstdCodec(level=-5, checksum=True), numcodecs.Zstd(-5)),
]
for codec, old in both:
    for data in (big, small):
        case("compressor", data, compressors=[codec])
        case("v2 compressor", data, zarr_format=2, compressors=old)
blosc_data = [(big, 5, 0), (smooth((33, 7), "<f8"), 9, 640), (smooth((19,), "<i2"), 1, 0)]
for cname, (shuffle, number) in itertools.product(
    ("blosclz", "lz4", "lz4hc", "zlib", "zstd"), (("noshuffle", 0), ("shuffle", 1), ("bitshuffle", 2))
):
    for data, clevel, blocksize in blosc_data:
        case(
            "blosc",
            data,
            compressors=[v3.BloscCodec(cname=cname, shuffle=shuffle, clevel=clevel, blocksize=blocksize, typesize=data.itemsize)],
        )
        case("v2 blosc", data, zarr_format=2, compressors=numcodecs.Blosc(cname, clevel, number, blocksize))
case("blosc of noise", random.integers(0, 256, 300, "u1"), compressors=[v3.BloscCodec(clevel=0, typesize=1)])
case("numcodecs.blosc", big, compressors=[nc.Blosc(cname="lz4", clevel=5, shuffle=-1, blocksize=0)])
case("odd typesize", smooth((50,), "|V7"), compressors=[v3.BloscCodec(typesize=7, shuffle="bitshuffle")])

# Checksums and shuffles.
for codec, old in (
    (v3.Crc32cCodec(), numcodecs.CRC32()),
    (nc.CRC32(), numcodecs.CRC32(location="end")),
    (nc.CRC32(location="end"), numcodecs.Adler32()),
    (nc.CRC32C(location="start"), numcodecs.Adler32(location="end")),
    (nc.CRC32C(), numcodecs.Fletcher32()),
    (nc.Adler32(), numcodecs.CRC32C()),
    (nc.Fletcher32(), numcodecs.CRC32C(location="start")),
):
    for data in (smooth((9,), "<f8"), smooth((7,), "|u1")):
        case("checksum", data, True, compressors=[codec])
        case("v2 checksum", data, True, zarr_format=2, compressors=None, filters=[old])
for size in (1, 2, 3, 4, 8):
    case("shuffle", smooth((24,), "<f4"), True, compressors=[nc.Shuffle(elementsize=size)])
    case("v2 shuffle", smooth((24,), ">f8"), True, zarr_format=2, compressors=None, filters=[numcodecs.Shuffle(elementsize=size)])
case("default shuffle", smooth((24,), "<f8"), True, compressors=[nc.Shuffle()])
case("shuffle, compressed", big, compressors=[nc.Shuffle(elementsize=4), nc.Zlib(level=1), v3.Crc32cCodec()])


# Array filters.
def filters(name, data, codec, old, orders="CF", **options):
    case(name, data, True, filters=[codec], compressors=None, **options)
    for order in orders:
        case("v2 " + name, data, True, filters=[old], compressors=None, zarr_format=2, order=order, **options)


for dtype, astype in (
    ("<i4", "<i2"),
    ("<i8", "<i8"),
    ("|u1", "|u1"),
    ("<f4", "<f4"),
    ("<f8", "<f4"),
    ("<f2", "<f2"),
    ("<i2", "<f4"),
    ("<u2", "|i1"),
    ("<u8", "<u8"),
):
    data = smooth((6, 4), dtype)
    filters("delta", data, nc.Delta(dtype=dtype, astype=astype), numcodecs.Delta(dtype, astype))
case(
    "v2 delta, big endian", smooth((6, 4), ">i4"), True, filters=[numcodecs.Delta(">i4", ">i2")], compressors=None, zarr_format=2
)
case(
    "v2 delta, viewed in the other order",
    smooth((6, 4), ">i4"),
    True,
    filters=[numcodecs.Delta("<i4")],
    compressors=None,
    zarr_format=2,
    order="F",
)
case(
    "v2 delta, viewed in another size",
    smooth((6, 4), "<i4"),
    True,
    filters=[numcodecs.Delta("<i2")],
    compressors=None,
    zarr_format=2,
)
for dtype, astype, offset, scale in (
    ("<f8", "|u1", -20, 3),
    ("<f4", "<i2", 0.5, 10),
    ("<f4", "<f4", 1, 2.5),
    ("<i4", "<i2", 3, 2),
    ("<i4", "<i8", 3, 2.5),
    ("<i2", "<f4", 0.25, 3),
    ("<f2", "<i4", 1, 4),
    ("<u2", "|u1", 1, 0.5),
    ("<f8", "<f8", 1e300, 1e-300),
):
    data = smooth((6, 4), dtype)
    filters(
        "fixedscaleoffset",
        data,
        nc.FixedScaleOffset(offset=offset, scale=scale, dtype=dtype, astype=astype),
        numcodecs.FixedScaleOffset(offset, scale, dtype, astype),
    )
# (In v3 zarr-python cannot read what it writes with another `astype`.)
for digits, dtype, astype in ((1, "<f8", "<f8"), (3, "<f4", "<f4"), (2, "<f8", "<f4"), (0, "<f4", "<f2"), (-1, "<f8", "<f8")):
    filters(
        "quantize",
        smooth((6, 4), dtype),
        nc.Quantize(digits=digits, dtype=dtype, astype=astype),
        numcodecs.Quantize(digits, dtype, astype),
    )
for keep, dtype in ((0, "<f4"), (5, "<f4"), (23, "<f4"), (10, "<f8"), (52, "<f8"), (3, "<f2")):
    # (numcodecs' bitround copies an F-ordered array to C order, so zarr-python reads another array than it wrote.)
    filters("bitround", smooth((6, 4), dtype), nc.BitRound(keepbits=keep), numcodecs.BitRound(keep), "C")
for shape in ((6, 4), (13,), (1,), (5, 3)):
    filters("packbits", smooth(shape, "|b1"), nc.PackBits(), numcodecs.PackBits())
wild = np.array([np.nan, np.inf, -np.inf, 1e40, -1e40, 300.7, -1.5, 2.5, 65519.9, 2.0**31, 2.0**63, -0.0])
for decode, encode in (
    ("<f8", "<f4"),
    ("<f4", "<i2"),
    ("<f8", "|u1"),
    ("<f8", "<i8"),
    ("<f8", "<f2"),
    ("<i8", "<f4"),
    ("<i4", "|b1"),
    ("<f8", "<u8"),
    ("<i4", "<c8"),
    ("<f4", "|i1"),
):
    data = wild.astype(decode) if decode[1] == "f" else smooth((12,), decode)
    filters("astype", data, nc.AsType(encode_dtype=encode, decode_dtype=decode), numcodecs.AsType(encode, decode))
case(
    "v2 filters",
    smooth((9, 5), "<f8"),
    zarr_format=2,
    order="F",
    compressors=numcodecs.Blosc("lz4", 5, 1),
    filters=[numcodecs.FixedScaleOffset(1, 10, "<f8", "<i4"), numcodecs.Delta("<i4", "<i2"), numcodecs.Shuffle(2)],
)
case(
    "filters",
    smooth((9, 5), "<f8"),
    compressors=[v3.ZstdCodec(level=1)],
    filters=[
        v3.TransposeCodec(order=(1, 0)),
        nc.FixedScaleOffset(offset=1, scale=10, dtype="<f8", astype="<i4"),
        nc.Delta(dtype="<i4", astype="<i2"),
    ],
    serializer=v3.BytesCodec(endian="big"),
)
case(
    "v2 zlib as filter",
    smooth((9, 5), ">f8"),
    zarr_format=2,
    compressors=numcodecs.BZ2(1),
    filters=[numcodecs.Shuffle(8), numcodecs.Zlib(1)],
)

# scale_offset and cast_value.
for dtype, offset, scale, fill in (
    ("<f4", 5, 0.5, 1),
    ("<f8", "NaN", 2, 1),
    ("<f2", -1.5, 3, 1),
    ("<i4", 3, 2, 1),
    ("<u8", 0, 7, 1),
    ("|i1", -20, 2, -20),
    ("<i8", 2, -3, 1),
):
    data = smooth((6, 4), dtype) if dtype != "<u8" else np.arange(24, dtype="<u8").reshape(6, 4) * 2**55
    case("scale_offset", data, True, filters=[v3.ScaleOffset(offset=offset, scale=scale)], compressors=None, fill_value=fill)


def steps(dtype):
    return np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4, -2.6, 7, 1 + 2**-24, 16777217, 1e-46, -1e-46, 3.3e-5], dtype)


for rounding in ("nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"):
    for source, target in (("<f8", "int32"), ("<f8", "float32"), ("<f8", "float16"), ("<f4", "float16"), ("<f4", "int64")):
        out_of_range = "clamp" if target == "float16" else None
        case(
            "cast_value",
            steps(source),
            True,
            compressors=None,
            fill_value=0,
            filters=[v3.CastValue(data_type=target, rounding=rounding, out_of_range=out_of_range)],
        )
    ints = np.array([2**24 + 1, -(2**24) - 1, 2**24 + 3, 7, 2**62 + 2**37 + 1, -(2**53) - 1, 2**63 - 1], "<i8")
    for target in ("float32", "float64"):
        # The largest values may round up to what is no longer an int64.
        data = ints[:-1]
        stored = zarr.create_array(
            zarr.storage.MemoryStore(),
            shape=data.shape,
            dtype=data.dtype,
            fill_value=0,
            config={"write_empty_chunks": True},
            compressors=None,
            filters=[v3.CastValue(data_type=target, rounding=rounding, out_of_range="clamp")],
        )
        stored[...] = data
        emit("cast_value", stored, data, True)
for out_of_range, target in (("clamp", "uint8"), ("wrap", "uint8"), ("clamp", "int16"), ("wrap", "int16")):
    case(
        "cast_value",
        np.array([300.7, -1.2, 1e30, -1e30, 255.5, 65535, 12], "<f8"),
        True,
        compressors=None,
        fill_value=0,
        filters=[v3.CastValue(data_type=target, out_of_range=out_of_range)],
    )
case(
    "cast_value",
    np.array([1e40, -1e40, np.inf, 5, 3.4028235677973366e38], "<f8"),
    True,
    compressors=None,
    fill_value=0,
    filters=[v3.CastValue(data_type="float32", out_of_range="clamp")],
)
case(
    "cast_value",
    np.array([np.nan, 3, -7, np.nan], "<f4"),
    True,
    compressors=None,
    fill_value="NaN",
    filters=[v3.CastValue(data_type="int8", scalar_map={"encode": [("NaN", -128), (3, 4)], "decode": [(-128, "NaN"), (4, 3)]})],
)

# Variable lengths.
words = np.array([["a", "", "Zürich"], ["日本", "x" * 300, "end"]], dtype=object)
array = zarr.create_array(zarr.storage.MemoryStore(), shape=(2, 3), dtype="string", compressors=[v3.ZstdCodec()])
array[...] = words
emit("vlen-utf8", array, words, False)
array = zarr.create_array(zarr.storage.MemoryStore(), shape=(2, 3), dtype="string", compressors=None)
array[...] = words
emit("vlen-utf8", array, words, True)
array = zarr.create_array(zarr.storage.MemoryStore(), shape=(2, 3), dtype="string", zarr_format=2, compressors=numcodecs.LZ4())
array[...] = words
emit("v2 vlen-utf8", array, words, False)
array = zarr.create_array(zarr.storage.MemoryStore(), shape=(2, 3), dtype="variable_length_bytes", compressors=None)
array[...] = np.array([[b"a", b"", b"\xff\x00"], [b"z" * 40, b"\x00", b"end"]], dtype=object)
emit("vlen-bytes", array, words, True)

# Shards.
for location, inner in itertools.product(
    ("start", "end"), ([v3.BytesCodec()], [v3.BytesCodec(), v3.ZstdCodec(), v3.Crc32cCodec()])
):
    data = smooth((8, 6), "<i4")
    data[:4] = 77
    case(
        "sharding",
        data,
        compressors=None,
        serializer=v3.ShardingCodec(chunk_shape=(2, 3), codecs=inner, index_location=location),
        config={"write_empty_chunks": False},
    )
nested = v3.ShardingCodec(chunk_shape=(4, 3), codecs=[v3.ShardingCodec(chunk_shape=(2, 3), codecs=[v3.BytesCodec(endian="big")])])
case("nested sharding", smooth((8, 6), "<i4"), compressors=None, serializer=nested)
case(
    "sharding inside codecs",
    smooth((8, 6), "<i4"),
    filters=[v3.TransposeCodec(order=(1, 0))],
    serializer=v3.ShardingCodec(chunk_shape=(2, 2)),
    compressors=[v3.GzipCodec(level=1)],
)

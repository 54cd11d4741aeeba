"""Writes metadata.json: metadata documents as zarr-python 3.4.2 stores them, and what they mean according to NumPy.

    python3.12 -m venv venv && venv/bin/pip install zarr==3.4.2 numpy==2.5.5
    venv/bin/python make.py

Each case has the stored documents (key -> text) and, for arrays, the shape, the chunk shape, NumPy's description of a
native element, the bytes of the fill value as a native little-endian element (hex; null if undefined), the attributes (as
text: they hold NaN), and the keys of some chunks.
"""

import json
import pathlib
import warnings

import numpy as np
import zarr
from zarr.codecs import BytesCodec, GzipCodec, TransposeCodec
from zarr.core.dtype import VariableLengthBytes, VariableLengthUTF8

warnings.simplefilter("ignore")

STRUCT = np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "S3")])
NESTED = np.dtype([("x", "u1"), ("y", [("z", "<c8"), ("w", ">U2")]), ("t", "<M8[ms]")])
DTYPES = [
    ("bool", np.dtype("?"), [False, True]),
    ("int8", np.dtype("i1"), [0, -128]),
    ("int16", np.dtype("<i2"), [0, -32768]),
    ("int16_big", np.dtype(">i2"), [258]),
    ("int32", np.dtype("<i4"), [2147483647]),
    ("int64", np.dtype("<i8"), [-9223372036854775808]),
    ("uint8", np.dtype("u1"), [255]),
    ("uint16", np.dtype("<u2"), [65535]),
    ("uint32", np.dtype("<u4"), [4294967295]),
    ("uint64", np.dtype("<u8"), [18446744073709551615, 9007199254740993]),
    ("uint64_big", np.dtype(">u8"), [1]),
    ("float16", np.dtype("<f2"), [0.1, "NaN", "Infinity"]),
    ("float32", np.dtype("<f4"), [0.1, "NaN", "-Infinity", 9.969209968386869e36, -0.0, 1e300]),
    ("float32_big", np.dtype(">f4"), [1.5, "NaN"]),
    ("float64", np.dtype("<f8"), [0.1, 5e-324, 1e308, "NaN", "Infinity"]),
    ("complex64", np.dtype("<c8"), [0, 1.5 - 2.5j, complex("nan+infj")]),
    ("complex128", np.dtype("<c16"), [0.1 + 0.2j]),
    ("complex128_big", np.dtype(">c16"), [0.1 + 0.2j]),
    ("raw", np.dtype("V5"), [b"\x00\x01\xfe\xff\x00"]),
    ("null_terminated", np.dtype("S4"), [b"", b"ab", b"abcd"]),
    ("utf32", np.dtype("<U4"), ["", "né😀"]),
    ("utf32_big", np.dtype(">U3"), ["ab"]),
    ("datetime", np.dtype("<M8[ns]"), ["NaT", 1234567890123456789]),
    ("datetime_scaled_big", np.dtype(">M8[10us]"), [-5]),
    ("datetime_generic", np.dtype("<M8"), ["NaT"]),
    ("timedelta", np.dtype("<m8[D]"), ["NaT", 7]),
    ("timedelta_generic", np.dtype("<m8"), [3]),
    ("struct", STRUCT, [(0, 0.0, b""), (-2, 1.5, b"xyz")]),
    ("struct_nested", NESTED, [(1, (2 + 3j, "né"), np.datetime64(9, "ms"))]),
]


def native(dtype):
    """The dtype with every field little-endian."""
    return dtype.newbyteorder("<")


def describe(dtype):
    native_dtype = native(dtype)
    return json.loads(json.dumps(native_dtype.descr if native_dtype.names else native_dtype.str))


def to_scalar(dtype, fill):
    if fill in ("NaN", "Infinity", "-Infinity") and dtype.kind == "f":
        fill = float(fill)
    if dtype.kind in "mM" and isinstance(fill, int):
        return np.array([fill], dtype.byteorder + "i8").view(dtype)[0]
    if dtype.kind == "V" and dtype.names is None:
        return np.void(fill)
    return np.array([fill], dtype)[0]


def text_of(store):
    return {key: value.to_bytes().decode() for key, value in sorted(store.items()) if ".z" in key or "zarr.json" in key}


def array_case(name, array, store, fill_hex, dtype):
    shape = array.shape
    indexes = sorted({(0,) * len(shape), tuple(range(len(shape))), tuple(i * 11 for i in range(len(shape)))})
    return {
        "name": name,
        "documents": text_of(store),
        "shape": shape,
        "chunk_shape": array.shards or array.chunks,
        "numpy": None if dtype is None else describe(dtype),
        "fill_hex": fill_hex,
        "attributes": json.dumps(dict(array.attrs)),
        "keys": [[index, array.metadata.encode_chunk_key(index)] for index in indexes],
    }


def fill_hex(dtype, array):
    fill = array.metadata.fill_value
    return None if fill is None else np.array([fill]).astype(native(dtype)).tobytes().hex()


def create(name, dtype, **options):
    store = {}
    memory = zarr.storage.MemoryStore(store)
    options = {"shape": (10, 7), "chunks": (4, 3), **options}
    array = zarr.create_array(memory, dtype=dtype, **options)
    return name, array, store


def typed_cases(zarr_format):
    for name, dtype, fills in DTYPES:
        for index, fill in enumerate(fills):
            case = f"v{zarr_format}_{name}_{index}"
            options = {"compressors": None, "zarr_format": zarr_format, "fill_value": to_scalar(dtype, fill)}
            case, array, store = create(case, dtype, **options)
            yield array_case(case, array, store, fill_hex(dtype, array), dtype)
        case, array, store = create(f"v{zarr_format}_{name}_default", dtype, zarr_format=zarr_format)
        yield array_case(case, array, store, fill_hex(dtype, array), dtype)
    for name, dtype, fills in [
        ("string", VariableLengthUTF8(), ["", "né😀"]),
        ("bytes", VariableLengthBytes(), [b"", b"\x00\xff"]),
    ]:
        for index, fill in enumerate(fills):
            case, array, store = create(f"v{zarr_format}_{name}_{index}", dtype, zarr_format=zarr_format, fill_value=fill)
            encoded = fill if isinstance(fill, bytes) else fill.encode()
            yield array_case(case, array, store, encoded.hex(), None)


def plain_cases(zarr_format):
    attributes = {"_FillValue": float("nan"), "big": 2**70, "list": [1, 1.0, 1e16, None, {"é": "\n"}], "inf": float("-inf")}
    f4 = np.dtype("<f4")
    for name, options in [
        ("scalar", {"shape": (), "chunks": ()}),
        ("empty", {"shape": (0, 5), "chunks": (1, 5)}),
        ("attributes", {"attributes": attributes}),
        ("gzip", {"compressors": GzipCodec() if zarr_format == 3 else "auto"}),
        ("slash", {"chunk_key_encoding": {"name": "v2", "separator": "/"}}),
        ("dot", {"chunk_key_encoding": {"name": "v2" if zarr_format == 2 else "default", "separator": "."}}),
        ("order_f", {"order": "F"}),
        ("no_fill", {"fill_value": None}),
    ]:
        case, array, store = create(f"v{zarr_format}_{name}", f4, zarr_format=zarr_format, **options)
        yield array_case(case, array, store, fill_hex(f4, array), f4)


def v3_cases():
    f4 = np.dtype("<f4")
    for name, options in [
        ("v2_keys", {"chunk_key_encoding": {"name": "v2", "separator": "."}}),
        ("sharded", {"shards": (8, 6)}),
        ("names", {"dimension_names": ["y", None]}),
        ("transposed", {"filters": [TransposeCodec(order=(1, 0))], "serializer": BytesCodec(endian="big")}),
    ]:
        case, array, store = create(f"v3_{name}", f4, zarr_format=3, **options)
        yield array_case(case, array, store, fill_hex(f4, array), f4)


def group_cases():
    for zarr_format in (2, 3):
        store = {}
        memory = zarr.storage.MemoryStore(store)
        root = zarr.create_group(memory, zarr_format=zarr_format, attributes={"title": "é", "nan": float("nan")})
        yield {"name": f"v{zarr_format}_group", "documents": text_of(store), "attributes": json.dumps(dict(root.attrs))}
        for path in ("b/a", "b/c/d", "e"):
            group, _, leaf = path.rpartition("/")
            parent = root.require_group(group) if group else root
            parent.create_array(leaf, shape=(4,), chunks=(2,), dtype="<i4", attributes={"path": path})
        root.create_group("z").create_group("empty")
        zarr.consolidate_metadata(memory, zarr_format=zarr_format)
        documents = text_of(store)
        yield {
            "name": f"v{zarr_format}_consolidated",
            "documents": documents,
            "attributes": json.dumps(dict(root.attrs)),
            "arrays": ["b/a", "b/c/d", "e"],
            "groups": ["b", "b/c", "z", "z/empty"],
        }


def main():
    cases = [case for zarr_format in (2, 3) for case in [*typed_cases(zarr_format), *plain_cases(zarr_format)]]
    cases += [*v3_cases(), *group_cases()]
    assert zarr.__version__ == "3.4.2", zarr.__version__
    path = pathlib.Path(__file__).with_name("metadata.json")
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main()

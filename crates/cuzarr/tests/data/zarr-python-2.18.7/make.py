"""Writes metadata.json: metadata documents as zarr-python 2.18.7 stores them, and what they mean according to NumPy.

    python3.12 -m venv venv && venv/bin/pip install zarr==2.18.7 'numcodecs<0.16' numpy==2.5.5
    venv/bin/python make.py

The same form as beside zarr-python 3.4.2, whose script describes it. Here are the things that only version 2 writes:
fields with a shape, null fill values, filters, keys without `dimension_separator`, `.zmetadata` with indents.
"""

import json
import pathlib
import warnings

import numcodecs
import numpy as np
import zarr

warnings.simplefilter("ignore")

SUBARRAY = np.dtype([("a", "<i4"), ("b", ">f8", (2, 3)), ("c", [("d", "u1"), ("e", ">U2")], 2), ("f", "S3")])


def native(dtype):
    return dtype.newbyteorder("<")


def describe(dtype):
    native_dtype = native(dtype)
    return json.loads(json.dumps(native_dtype.descr if native_dtype.names else native_dtype.str))


def text_of(store):
    return {key: bytes(value).decode() for key, value in sorted(store.items()) if ".z" in key}


def array_case(name, dtype, **options):
    store = {}
    array = zarr.create(store=store, **{"shape": (10, 7), "chunks": (4, 3), "dtype": dtype, **options})
    separator = array._dimension_separator or "."
    fill = array.fill_value
    is_object = array.dtype.hasobject
    fill_hex = None
    if fill is not None:
        fill_hex = (
            str(fill).encode().hex() if is_object else np.array([fill], array.dtype).astype(native(array.dtype)).tobytes().hex()
        )
    return {
        "name": f"zarr2_{name}",
        "documents": text_of(store),
        "shape": array.shape,
        "chunk_shape": array.chunks,
        "numpy": None if is_object else describe(array.dtype),
        "fill_hex": fill_hex,
        "attributes": json.dumps(dict(array.attrs)),
        "keys": [[[1, 11], separator.join(["1", "11"])]] if len(array.shape) == 2 else [[[], "0"]],
    }


def main():
    subarray_fill = np.zeros((), SUBARRAY)
    subarray_fill["a"], subarray_fill["b"], subarray_fill["c"]["e"] = -2, 1.5, "né"
    cases = [
        array_case("float_default", "<f4"),
        array_case("float_undefined", "<f4", fill_value=None),
        array_case("float_nan", ">f8", fill_value=float("nan")),
        array_case("float_infinity", "<f2", fill_value=float("-inf")),
        array_case("complex", "<c16", fill_value=1 - 2.5j),
        array_case("int_big", ">i2", fill_value=258),
        array_case("uint64", "<u8", fill_value=2**64 - 1),
        array_case("bool", "?", fill_value=True),
        array_case("bytes", "S5", fill_value=b"ab"),
        array_case("bytes_default", "S5"),
        array_case("text", "<U3", fill_value="né"),
        array_case("raw", "V3", fill_value=np.void(b"\x01\x02\x03")),
        array_case("datetime", "<M8[10us]", fill_value=np.array([5], "i8").view("M8[10us]")[0]),
        array_case("timedelta", ">m8[D]", fill_value=np.timedelta64("NaT")),
        array_case("struct", SUBARRAY, fill_value=subarray_fill[()]),
        array_case("struct_undefined", SUBARRAY, fill_value=None),
        array_case("object_text", object, object_codec=numcodecs.VLenUTF8(), fill_value=""),
        array_case("object_zero", object, object_codec=numcodecs.VLenUTF8(), fill_value=0),
        array_case("object_undefined", object, object_codec=numcodecs.VLenBytes(), fill_value=None),
        array_case("order_f", "<i4", order="F"),
        array_case("slash", "<i4", dimension_separator="/"),
        array_case("scalar", "<i4", shape=(), chunks=()),
        array_case("filters", "<i4", filters=[numcodecs.Delta("<i4"), numcodecs.Shuffle(4)], compressor=numcodecs.Zlib(1)),
        array_case("uncompressed", "<i4", compressor=None),
    ]
    store = {}
    root = zarr.group(store=store)
    root.attrs["nan"] = float("nan")
    root.create_dataset("b/a", shape=(4,), chunks=(2,), dtype="<i4").attrs["path"] = "b/a"
    root.create_dataset("e", shape=(4,), chunks=(2,), dtype="<i4")
    root.create_group("z/empty").attrs["title"] = "é"
    zarr.consolidate_metadata(store)
    cases.append(
        {
            "name": "zarr2_consolidated",
            "documents": text_of(store),
            "attributes": json.dumps(dict(root.attrs)),
            "arrays": ["b/a", "e"],
            "groups": ["b", "z", "z/empty"],
        }
    )
    assert zarr.__version__ == "2.18.7", zarr.__version__
    path = pathlib.Path(__file__).with_name("metadata.json")
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main()

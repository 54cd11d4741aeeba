"""Makes golden.jsonl: chunks that the C library of zfp, as it is inside of the package zfpy, writes in every mode.

pip install zfpy==1.0.1 numpy
python make.py > golden.jsonl
"""

import base64
import ctypes
import json
import pathlib

import numpy as np
import zfpy  # loads the library

LIBRARY = ctypes.CDLL(str(next((pathlib.Path(zfpy.__file__).parent / "zfpy.libs").glob("libzfp*.so*"))))
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
for name, result, arguments in [
    ("zfp_stream_open", POINTER, [POINTER]),
    ("zfp_stream_set_rate", ctypes.c_double, [POINTER, ctypes.c_double, ctypes.c_int, ctypes.c_uint, ctypes.c_int]),
    ("zfp_stream_set_precision", ctypes.c_uint, [POINTER, ctypes.c_uint]),
    ("zfp_stream_set_accuracy", ctypes.c_double, [POINTER, ctypes.c_double]),
    ("zfp_stream_set_reversible", None, [POINTER]),
    ("zfp_stream_set_params", ctypes.c_int, [POINTER, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_int]),
    ("zfp_stream_set_bit_stream", None, [POINTER, POINTER]),
    ("zfp_stream_maximum_size", SIZE, [POINTER, POINTER]),
    ("zfp_stream_rewind", None, [POINTER]),
    ("zfp_compress", SIZE, [POINTER, POINTER]),
    ("zfp_decompress", SIZE, [POINTER, POINTER]),
    ("stream_open", POINTER, [POINTER, SIZE]),
    *((f"zfp_field_{ndim}d", POINTER, [POINTER, ctypes.c_int, *[SIZE] * ndim]) for ndim in range(1, 5)),
]:
    function = getattr(LIBRARY, name)
    function.restype, function.argtypes = result, arguments
TYPES = {"int32": 1, "int64": 2, "float32": 3, "float64": 4}


def stream_of(configuration, data_type, ndim):
    stream = LIBRARY.zfp_stream_open(None)
    match configuration:
        case {"mode": "reversible"}:
            LIBRARY.zfp_stream_set_reversible(stream)
        case {"mode": "fixed_rate", "rate": rate}:
            LIBRARY.zfp_stream_set_rate(stream, rate, TYPES[data_type], ndim, 0)
        case {"mode": "fixed_precision", "precision": precision}:
            LIBRARY.zfp_stream_set_precision(stream, precision)
        case {"mode": "fixed_accuracy", "tolerance": tolerance}:
            LIBRARY.zfp_stream_set_accuracy(stream, tolerance)
        case {"minbits": least, "maxbits": most, "maxprec": planes, "minexp": exponent}:
            assert LIBRARY.zfp_stream_set_params(stream, least, most, planes, exponent)
    return stream


def field_of(array):
    make = getattr(LIBRARY, f"zfp_field_{max(array.ndim, 1)}d")
    return make(array.ctypes.data, TYPES[array.dtype.name], *(array.shape[::-1] or (1,)))


def compress(array, configuration):
    stream, field = stream_of(configuration, array.dtype.name, max(array.ndim, 1)), field_of(array)
    memory = np.zeros(LIBRARY.zfp_stream_maximum_size(stream, field), "u1")
    LIBRARY.zfp_stream_set_bit_stream(stream, LIBRARY.stream_open(memory.ctypes.data, memory.size))
    LIBRARY.zfp_stream_rewind(stream)
    return memory[: LIBRARY.zfp_compress(stream, field)].tobytes()


def decompress(stored, like, configuration):
    array = np.zeros_like(like)
    stream, field = stream_of(configuration, like.dtype.name, max(like.ndim, 1)), field_of(array)
    memory = np.frombuffer(stored + bytes(4096), "u1").copy()
    LIBRARY.zfp_stream_set_bit_stream(stream, LIBRARY.stream_open(memory.ctypes.data, memory.size))
    LIBRARY.zfp_stream_rewind(stream)
    assert LIBRARY.zfp_decompress(stream, field)
    return array


def text(data):
    return base64.b64encode(data).decode()


def emit(name, array, configuration):
    stored = compress(array, configuration)
    decoded = decompress(stored, array, configuration)
    grid = {"name": "regular", "configuration": {"chunk_shape": array.shape}}
    document = {
        "zarr_format": 3, "node_type": "array", "shape": array.shape, "data_type": array.dtype.name, "chunk_grid": grid,
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "zfp", "configuration": configuration}],
    }  # fmt: skip
    line = {"name": name, "zarr.json": document, "stored": text(stored), "decoded": text(decoded.tobytes()), "exact": True}
    if decoded.tobytes() != array.tobytes():
        line["source"] = text(array.tobytes())
    print(json.dumps(line, separators=(",", ":")))


def expert(least, most, planes, exponent):
    return {"mode": "expert", "minbits": least, "maxbits": most, "maxprec": planes, "minexp": exponent}


def main():
    random = np.random.default_rng(20261127)
    for data_type in TYPES:
        for shape in [(), (1,), (29,), (6, 7), (5, 3, 6), (3, 5, 2, 6)]:
            size = int(np.prod(shape))
            smooth = np.sin(np.arange(size) / 5) * 1000
            noise = random.standard_normal(size) * 10.0 ** random.integers(-20, 9, size)
            values = np.where(random.random(size) < 0.7, smooth, noise)
            if data_type.startswith("float"):
                values[: size // 3] *= random.random() < 0.5
            array = np.ascontiguousarray(values.astype(data_type).reshape(shape))
            modes = [
                {"mode": "reversible"},
                {"mode": "fixed_rate", "rate": 12.5},
                {"mode": "fixed_rate", "rate": 7},
                {"mode": "fixed_precision", "precision": 11},
                expert(30, 200, 24, -6),
                expert(1, 90, 64, -1074),
            ]
            if data_type.startswith("float"):
                modes.append({"mode": "fixed_accuracy", "tolerance": 0.05})
            for configuration in modes:
                emit(f"{data_type} {configuration['mode']} {len(shape)}d", array, configuration)
        if data_type.startswith("float"):
            special = np.array([0, -0.0, np.nan, np.inf, -np.inf, 1, 5e-324, 1e-40] + [0] * 8 + [-0.0] * 4 + [1, 2, 3, 4])
            emit(f"{data_type} special values", special.astype(data_type), {"mode": "reversible"})
            emit(f"{data_type} special values 2d", special.astype(data_type).reshape(6, 4), {"mode": "reversible"})
        else:
            limits = np.iinfo(data_type)
            extremes = random.choice([limits.min, limits.max, 0, -1, 1], 70).astype(data_type).reshape(10, 7)
            for configuration in [{"mode": "reversible"}, {"mode": "fixed_rate", "rate": 9}, expert(5, 5000, 31, -2000)]:
                emit(f"{data_type} extremes {configuration['mode']}", extremes, configuration)


main()

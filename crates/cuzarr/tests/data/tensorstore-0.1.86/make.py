"""Makes golden.jsonl: blocks of N5 that tensorstore writes, as chunks of the codec `n5_default`.

pip install tensorstore==0.1.86 numpy
python make.py > golden.jsonl
"""

import base64
import json

import numpy as np
import tensorstore

# N5's compression, and the codec that reads it.
COMPRESSIONS = [
    ({"type": "raw"}, None),
    ({"type": "gzip", "level": 5}, {"name": "gzip", "configuration": {"level": 5}}),
    ({"type": "bzip2", "blockSize": 1}, {"name": "numcodecs.bz2", "configuration": {"level": 1}}),
    ({"type": "xz", "preset": 1}, {"name": "numcodecs.lzma", "configuration": {"preset": 1}}),
    ({"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}, {"name": "blosc"}),
    ({"type": "zstd", "level": 1}, {"name": "zstd", "configuration": {"level": 1, "checksum": False}}),
]
TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]


def main():
    random = np.random.default_rng(20261127)
    for number, data_type in enumerate(TYPES):
        for ndim, (compression, codec) in enumerate(COMPRESSIONS):
            shape = tuple(int(extent) for extent in random.integers(1, 7, 1 + (number + ndim) % 4))
            array = (random.standard_normal(shape) * 50).astype(data_type)
            metadata = {"dimensions": shape, "blockSize": shape, "dataType": data_type, "compression": compression}
            spec = {"driver": "n5", "kvstore": {"driver": "memory"}, "metadata": metadata}
            opened = tensorstore.open(spec, create=True).result()
            opened.write(array).result()
            stored = opened.kvstore.read("/".join("0" for _ in shape)).result().value
            inner = [
                {"name": "transpose", "configuration": {"order": list(range(len(shape)))[::-1]}},
                {"name": "bytes", "configuration": {"endian": "big"}},
                *([codec] if codec else []),
            ]
            document = {
                "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": 0,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
                "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
                "codecs": [{"name": "n5_default", "configuration": {"codecs": inner}}],
            }  # fmt: skip
            text = [base64.b64encode(data).decode() for data in (stored, array.tobytes())]
            line = {"name": f"n5 {data_type} {compression['type']}", "zarr.json": document, "exact": codec is None}
            print(json.dumps(line | {"stored": text[0], "decoded": text[1]}, separators=(",", ":")))


main()

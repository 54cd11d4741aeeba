"""The names that zarr-extensions registers, and which of them arrays may have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cuzarr
from cuzarr.errors import CuzarrError

SNAPSHOT: dict[str, Any] = json.loads(Path(__file__).with_name("registered.json").read_text())
KINDS = ("chunk-grids", "chunk-key-encodings", "codecs", "data-types")

_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_TIME = {"unit": "s", "scale_factor": 1}
# What a document needs beside the name.
_DATA_TYPES: dict[str, Any] = {
    "numpy.datetime64": {"name": "numpy.datetime64", "configuration": _TIME},
    "numpy.timedelta64": {"name": "numpy.timedelta64", "configuration": _TIME},
    "fixed_length_utf32": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}},
    "r": "r16",
    "struct": {"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": "int8"}]}},
    "structured": {"name": "structured", "configuration": {"fields": [["a", "int8"]]}},
}
_FILLS: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": [],
    "fixed_length_utf32": "",
    "r": [0, 0],
    "struct": {"a": 0},
    "structured": "AA==",
}
_CODECS: dict[str, list[Any]] = {
    "bitround": [{"name": "bitround", "configuration": {"keepbits": 3}}, _BYTES],
    "blosc": [
        _BYTES,
        {
            "name": "blosc",
            "configuration": {"cname": "lz4", "clevel": 1, "shuffle": "shuffle", "typesize": 4, "blocksize": 0},
        },
    ],
    "bytes": [_BYTES],
    "cast_value": [{"name": "cast_value", "configuration": {"data_type": "float64"}}, _BYTES],
    "conditional": [_BYTES, {"name": "conditional", "configuration": {"codecs": [{"name": "crc32c"}]}}],
    "crc32c": [_BYTES, {"name": "crc32c"}],
    "gzip": [_BYTES, {"name": "gzip", "configuration": {"level": 1}}],
    "n5_default": [
        {
            "name": "n5_default",
            "configuration": {
                "codecs": [
                    {"name": "transpose", "configuration": {"order": [0]}},
                    {"name": "bytes", "configuration": {"endian": "big"}},
                ]
            },
        }
    ],
    "packbits": [{"name": "packbits"}],
    "reshape": [{"name": "reshape", "configuration": {"shape": [-1]}}, _BYTES],
    "scale_offset": [{"name": "scale_offset", "configuration": {"offset": 0, "scale": 1}}, _BYTES],
    "sharding_indexed": [
        {
            "name": "sharding_indexed",
            "configuration": {"chunk_shape": [2], "codecs": [_BYTES], "index_codecs": [_BYTES, {"name": "crc32c"}]},
        }
    ],
    "transpose": [{"name": "transpose", "configuration": {"order": [0]}}, _BYTES],
    "vlen-bytes": [{"name": "vlen-bytes"}],
    "vlen-utf8": [{"name": "vlen-utf8"}],
    "zfp": [{"name": "zfp", "configuration": {"mode": "reversible"}}],
    "zstd": [_BYTES, {"name": "zstd", "configuration": {"level": 1, "checksum": False}}],
}
_GRIDS: dict[str, Any] = {
    "regular": {"chunk_shape": [4]},
    "rectilinear": {"kind": "inline", "chunk_shapes": [[4]]},
}


def document(kind: str, name: str) -> dict[str, Any]:
    """The metadata of an array with that extension."""
    data_type: Any = "float32"
    codecs: list[Any] = [_BYTES]
    grid = {"name": "regular", "configuration": _GRIDS["regular"]}
    keys: Any = {"name": "default"}
    fill: Any = 0
    if kind == "data-types":
        data_type = _DATA_TYPES.get(name, name)
        fill = [0, 0] if name.startswith("complex") else _FILLS.get(name, 0)
        codecs = {"string": [{"name": "vlen-utf8"}], "bytes": [{"name": "vlen-bytes"}]}.get(name, codecs)
    elif kind == "codecs":
        codecs = _CODECS[name]
        data_type, fill = {"vlen-utf8": ("string", ""), "vlen-bytes": ("bytes", [])}.get(name, (data_type, fill))
    elif kind == "chunk-grids":
        grid = {"name": name, "configuration": _GRIDS[name]}
    else:
        keys = {"name": name}
    return {
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": data_type, "chunk_grid": grid,
        "chunk_key_encoding": keys, "fill_value": fill, "codecs": codecs,
    }  # fmt: skip


def refusal(kind: str, name: str) -> CuzarrError | None:
    """Why an array with that extension is refused; ``None`` when it is written and read."""
    store: dict[str, Any] = {"zarr.json": json.dumps(document(kind, name)).encode()}
    try:
        with cuzarr.config.set({"array.rectilinear_chunks": True}):
            array = cuzarr.open_array(store, mode="r+")
            array[...] = elements = array[...]
            assert array[...].tolist() == elements.tolist()
    except CuzarrError as error:
        return error
    return None

"""Python and Rust read the same documents, a thousand of them: of arrays and groups of both formats, consolidated, odd and broken."""

from __future__ import annotations

import copy
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr import _core
from cuzarr._memory import strings
from cuzarr._memory.element_types import core_dtype
from cuzarr._memory.foreign import numpy_view
from cuzarr._metadata.array import ArrayV2Metadata, ArrayV3Metadata
from cuzarr._metadata.chunk_grid import ChunkGrid
from cuzarr._metadata.group import parse_node
from cuzarr.errors import CuzarrError
from cuzarr.storage import MemoryStore

Document = dict[str, Any]

ARRAYS = 800
HIERARCHIES = 200

NAMES_V3 = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "string",
]
NAMES_V2 = [
    "|b1",
    "|i1",
    "<u2",
    ">i4",
    "<i8",
    "<u8",
    "<f2",
    ">f4",
    "<f8",
    "<c8",
    ">c16",
    "|S3",
    "<U2",
    "|V4",
    "<M8[s]",
    ">m8[10ms]",
]
CONFIGURED = [
    {"name": "numpy.datetime64", "configuration": {"unit": "ms", "scale_factor": 1}},
    {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}},
    {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}},
    {"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": "int8"}, {"name": "b", "data_type": "float32"}]}},
]
# What is put into the place of a member, to break it or to make it odd.
ODD: list[Any] = [None, 0, -1, 1.5, 2**70, True, "", "x", "NaN", "0x7fc00000", [], [1], [0, 0], {}, {"name": "x"}, [["a", "<i4"]]]


def fill_value(rng: random.Random, name: str) -> Any:
    if name.startswith("complex") or name[1:2] == "c":
        return rng.choice([[0.0, 1.5], ["NaN", "-Infinity"], [0, 0]])
    if name.startswith("float") or name[1:2] == "f":
        return rng.choice([0, 0.5, "NaN", "Infinity", "-Infinity", -1])
    if name in ("bool", "|b1"):
        return rng.choice([True, False])
    return rng.choice([0, 1, 7])


def compressors(rng: random.Random) -> list[Document]:
    return rng.choice(
        [
            [],
            [{"name": "zstd", "configuration": {"level": 3, "checksum": False}}],
            [{"name": "gzip", "configuration": {"level": 5}}],
            [{"name": "crc32c"}],
            [
                {
                    "name": "blosc",
                    "configuration": {"typesize": 2, "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0},
                }
            ],
        ]
    )


def array_v3(rng: random.Random) -> Document:
    ndim = rng.randrange(4)
    shape, chunks = [rng.choice([0, 1, 5, 12]) for _ in range(ndim)], [rng.choice([1, 2, 5, 12]) for _ in range(ndim)]
    data_type: Any = rng.choice([*NAMES_V3, *CONFIGURED])
    name = data_type if isinstance(data_type, str) else data_type["name"]
    serializer: Document = {"name": "bytes", "configuration": {"endian": rng.choice(["little", "big"])}}
    if name == "string":
        serializer = {"name": "vlen-utf8"}
    fill: Any = {"string": "", "fixed_length_utf32": "ab", "null_terminated_bytes": "YWI=", "struct": "AAAAAAA="}.get(name)
    codecs = [serializer, *compressors(rng)]
    if ndim and rng.random() < 0.2 and name != "string":
        codecs.insert(0, {"name": "transpose", "configuration": {"order": list(range(ndim))[::-1]}})
    grid = chunks
    if rng.random() < 0.3:
        inner = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        settings = {
            "chunk_shape": chunks,
            "codecs": codecs,
            "index_codecs": inner,
            "index_location": rng.choice(["start", "end"]),
        }
        grid, codecs = (
            [size * rng.choice([1, 2, 3]) for size in chunks],
            [{"name": "sharding_indexed", "configuration": settings}],
        )
    document: Document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": grid}},
        "chunk_key_encoding": rng.choice([{"name": "default"}, {"name": "v2", "configuration": {"separator": "/"}}]),
        "fill_value": fill_value(rng, name) if fill is None else fill,
        "codecs": codecs,
        "attributes": {"units": "K", "nested": {"a": [1, None]}},
    }
    if rng.random() < 0.3:
        document["dimension_names"] = [rng.choice(["x", None]) for _ in range(ndim)]
    return document


def array_v2(rng: random.Random) -> Document:
    ndim = rng.randrange(4)
    dtype: Any = rng.choice([*NAMES_V2, [["a", "<i4"], ["b", "|u1"]]])
    name = dtype if isinstance(dtype, str) else ""
    fill = {"S": "YWI=", "U": "ab", "V": "AAAAAA=="}.get(name[1:2], fill_value(rng, name))
    return {
        "zarr_format": 2,
        "shape": [rng.choice([0, 1, 5, 12]) for _ in range(ndim)],
        "chunks": [rng.choice([1, 2, 5, 12]) for _ in range(ndim)],
        "dtype": dtype,
        "fill_value": rng.choice([None, fill]) if name else None,
        "order": rng.choice(["C", "F"]),
        "filters": rng.choice([None, [{"id": "shuffle", "elementsize": 2}]]),
        "compressor": rng.choice(
            [
                None,
                {"id": "zlib", "level": 1},
                {"id": "zstd", "level": 0},
                {"id": "blosc", "cname": "zstd", "clevel": 1, "shuffle": 1, "blocksize": 0},
            ]
        ),
        "dimension_separator": rng.choice([".", "/"]),
    }


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every member, however deep."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in pairs:
        yield (*at, key)
        yield from places(value, (*at, key))


def changed(rng: random.Random, document: Document) -> Document:
    """A document with a member that is gone, odd, or one too many."""
    document = copy.deepcopy(document)
    *way, last = rng.choice([place for place in places(document) if place[0] != "attributes"])
    inside: Any = document
    for key in way:
        inside = inside[key]
    kind = rng.choice(["gone", "odd", "odd", "another"])
    if kind == "gone":
        del inside[last]
    elif kind == "odd":
        inside[last] = rng.choice(ODD)
    else:
        document[rng.choice(["must_have", "storage_transformers"])] = rng.choice([{"must_understand": False}, {"name": "x"}, []])
    return document


def documents(make: Callable[[random.Random], Document], count: int, seed: int) -> list[Document]:
    """Some as they should be, the others changed once or twice."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        document = make(rng)
        for _ in range(rng.choice([0, 1, 1, 2])):
            document = changed(rng, document)
        found.append(document)
    return found


@dataclass(frozen=True)
class Said:
    """What one side says of an array."""

    shape: tuple[int, ...]
    dtype: str | None
    codecs: tuple[str, ...]
    objects: int
    chunks: int


OPTIONS = {
    "device": "cpu",
    "strict": False,
    "memory_limit_bytes": None,
    "threads": None,
    "variable_limit_bytes": None,
    "write_empty_chunks": False,
    "read_missing_chunks": True,
    "coalesce_gap_bytes": 1 << 20,
    "coalesce_max_bytes": 16 << 20,
}


def by_rust(document: Document) -> tuple[_core.Array, Said]:
    name = ".zarray" if document.get("zarr_format") == 2 else "zarr.json"
    described = {key: value for key, value in document.items() if key != "attributes"}
    array = _core.Array(MemoryStore().handle, "a", {name: described}, OPTIONS)
    text = repr(array)
    shape = tuple(json.loads(text[text.index("shape=") + 6 : text.index("]", text.index("shape=")) + 1]))
    plan = json.loads(array.explain(((0,) * len(shape), tuple(shape), (1,) * len(shape), ()), False)[1])
    return array, Said(shape, array.dtype, tuple(one["codec"] for one in plan["codecs"]), plan["objects"], plan["chunks"])


def by_python(document: Document) -> tuple[ArrayV2Metadata | ArrayV3Metadata, Said]:
    metadata = parse_node(document)
    assert isinstance(metadata, ArrayV2Metadata | ArrayV3Metadata)
    data_type, codecs = metadata.data_type, ()
    if isinstance(metadata, ArrayV3Metadata):
        outer = (metadata.sharding_codec,) if metadata.sharding_codec else ()
        codecs = tuple(codec.name for codec in (*outer, *metadata.inner_codecs))
    objects, chunks = (
        math.prod(ChunkGrid.regular(size).counts(metadata.shape)) for size in (metadata._stored_chunks, metadata.chunks)
    )
    dtype = None if data_type.is_variable else core_dtype(data_type.native.newbyteorder("="))
    return metadata, Said(metadata.shape, dtype, codecs, objects, chunks)


def refusal(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def first_element(array: _core.Array, metadata: ArrayV2Metadata | ArrayV3Metadata) -> Any:
    """The first element, of which nothing is stored."""
    ndim = metadata.ndim
    selection = [0] * ndim, [1] * ndim, [1] * ndim, list(range(ndim))
    data_type = metadata.data_type
    if data_type.is_variable:
        return strings.to_array(array.read_variable(selection, data_type.is_text), (), data_type.native)[()]
    return numpy_view(array.read(selection), data_type.native.newbyteorder("="))[()]


# What Rust reads like a member that is not there, and Python's values of codecs refuse: such arrays open, but do not say their codecs.
ONLY_PYTHON_REFUSES = ("codec 'blosc' has no such configuration: clevel is a whole number, got None",)

ARRAY_DOCUMENTS = [*documents(array_v3, ARRAYS // 2, 3), *documents(array_v2, ARRAYS // 2, 2)]


def test_both_say_the_same_of_arrays() -> None:
    outcomes: Counter[str] = Counter()
    for document in ARRAY_DOCUMENTS:
        refused = refusal(lambda document=document: by_rust(document))
        if refused is not None:
            outcomes["refused"] += 1
            continue
        array, said = by_rust(document)
        odd = refusal(lambda document=document: by_python(document))
        if odd is not None and any(reason in str(odd) for reason in ONLY_PYTHON_REFUSES):
            outcomes["read as missing"] += 1
            continue
        metadata, said_by_python = by_python(document)
        if metadata.zarr_format == 2:  # names of its codecs are numcodecs', and one of them is the serializer
            said = replace(said, codecs=())
        assert said == said_by_python, document
        outcomes["taken"] += 1
        if said.chunks and metadata.fill_value is not None:
            expected = np.asarray(metadata.fill_value, None if metadata.data_type.is_variable else metadata.data_type.native)
            found = np.asarray(first_element(array, metadata))
            assert found.astype(expected.dtype).tobytes() == expected.tobytes() or found == expected, document
            outcomes["filled"] += 1
    # The documents are of all kinds.
    assert min(outcomes[kind] for kind in ("refused", "taken", "filled")) > 100, outcomes
    assert outcomes["read as missing"] < 10, outcomes


def stored(documents: dict[str, Document]) -> MemoryStore:
    store = MemoryStore()
    for key, document in documents.items():
        store.set(key, json.dumps(document).encode())
    return store


def test_what_one_side_refuses_is_not_opened() -> None:
    for document in ARRAY_DOCUMENTS:
        attributes = document.get("attributes", {})
        old = document.get("zarr_format") == 2
        without = {key: value for key, value in document.items() if key != "attributes"}
        store = stored({"a/.zarray": without, "a/.zattrs": attributes} if old else {"a/zarr.json": document})
        refused = refusal(lambda document=document: by_rust(document))
        error = refusal(lambda store=store: cuzarr.open_array(store, path="a", mode="r"))
        assert (error is None) == (refused is None), (document, error, refused)
        assert error is None or isinstance(error, CuzarrError), (document, error)


def hierarchy(rng: random.Random, zarr_format: int) -> dict[str, Document]:
    """Documents of groups and arrays by their paths."""
    names, nodes = ["a", "b", "ab", "c.d"], {"": {}}
    for _ in range(rng.randrange(7)):
        parent = rng.choice([path for path, node in nodes.items() if "shape" not in node])
        path = f"{parent}/{rng.choice(names)}".lstrip("/")
        if path not in nodes:
            nodes[path] = (array_v3 if zarr_format == 3 else array_v2)(rng) if rng.random() < 0.6 else {}
    for node in nodes.values():
        node.setdefault("zarr_format", zarr_format)
        if zarr_format == 3:
            node.setdefault("node_type", "group")
    return nodes


def consolidated(rng: random.Random, zarr_format: int) -> dict[str, Document]:
    """What a store holds of a hierarchy: its documents, and those of its nodes in one, some of which may be odd."""
    nodes = hierarchy(rng, zarr_format)
    below = {path: node for path, node in nodes.items() if path}
    for path in below:
        if rng.random() < 0.1:
            below[path] = changed(rng, below[path])
    if rng.random() < 0.1 and below:
        below["x/" * rng.choice([1, 140]) + "y"] = next(iter(below.values()))
    if zarr_format == 3:
        documents = {f"{path}/zarr.json".lstrip("/"): node for path, node in nodes.items()}
        inside: Document = {"kind": "inline", "must_understand": False, "metadata": below}
        if rng.random() < 0.2:
            inside = changed(rng, inside)
        return documents | {"zarr.json": nodes[""] | {"consolidated_metadata": inside}}
    documents = {f"{path}/{'.zarray' if 'shape' in node else '.zgroup'}".lstrip("/"): node for path, node in nodes.items()}
    kept: Document = {f"{path}/{'.zarray' if 'shape' in node else '.zgroup'}".lstrip("/"): node for path, node in below.items()}
    kept |= {".zgroup": {"zarr_format": 2}, ".zattrs": {"a": 1}}
    return documents | {".zmetadata": {"metadata": kept, "zarr_consolidated_format": 1}}


def arrays_by_python(store: MemoryStore, zarr_format: Any, use_consolidated: bool) -> set[str]:
    group = cuzarr.open_group(store, mode="r", zarr_format=zarr_format, use_consolidated=use_consolidated)
    return {path for path, node in group.members(max_depth=None) if isinstance(node, cuzarr.Array)}


def arrays_by_zarr(store: MemoryStore, zarr_format: Any, use_consolidated: bool) -> set[str]:
    import zarr

    group = zarr.open_group(store.zarr_store, mode="r", zarr_format=zarr_format, use_consolidated=use_consolidated)
    return {path for path, node in group.members(max_depth=None) if isinstance(node, zarr.Array)}


def arrays_by_rust(store: MemoryStore, zarr_format: int, use_consolidated: bool) -> set[str]:
    options = {"device": "cpu", "strict": False, "memory_limit_bytes": None, "threads": None}
    source = store.handle, "", zarr_format, use_consolidated
    plan = json.loads(_core.Copy(source, (MemoryStore().handle, "to"), "{}", "refuse", options).plan())
    return {array["target"].partition("/to/")[2] for array in plan}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("use_consolidated", [True, False], ids=["consolidated", "listed"])
def test_all_find_the_same_arrays_in_a_group(zarr_format: int, use_consolidated: bool) -> None:
    rng, outcomes = random.Random(zarr_format), Counter[str]()
    for _ in range(HIERARCHIES // 2):
        store = stored(consolidated(rng, zarr_format))
        # A copy of a group reads the nodes' own documents, whatever is consolidated.
        find = arrays_by_python if use_consolidated else arrays_by_rust
        error = refusal(lambda store=store, find=find: find(store, zarr_format, use_consolidated))
        if error is not None:
            outcomes["refused"] += 1
            continue
        outcomes["taken"] += 1
        arrays = arrays_by_python(store, zarr_format, use_consolidated)
        if not use_consolidated:
            assert arrays == arrays_by_rust(store, zarr_format, use_consolidated)
        # zarr-python refuses some of what is odd.
        refused = refusal(lambda store=store: arrays_by_zarr(store, zarr_format, use_consolidated))
        if refused is None:
            outcomes["taken by zarr"] += 1
            assert arrays == arrays_by_zarr(store, zarr_format, use_consolidated)
    assert outcomes["taken"] > 30 and outcomes["taken by zarr"] > 0.9 * outcomes["taken"], outcomes

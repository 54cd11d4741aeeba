"""Stored bytes that ask for much: whatever can be asked of an array, the answer or an error of ours comes within little memory."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
import signal
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr._metadata.chunk_grid import ChunkGrid, regions
from cuzarr._metadata.dtype import MAX_ITEM_BYTES
from cuzarr._metadata.group import ConsolidatedMetadata
from cuzarr.errors import (
    BudgetExceededError,
    ChunkCorruptError,
    CuzarrError,
    DataTypeValidationError,
    InvalidArgumentError,
    MetadataValidationError,
    UnsupportedError,
    UnsupportedFeatureError,
)

MOST_BYTES = 100 << 20
LONGEST = 2**63 - 1
NUMPY_NDIM = 64 if int(np.__version__.split(".")[0]) >= 2 else 32


def document(shape: list[int], chunks: list[int], dtype: Any = "int8", fill: Any = 0, codecs: Any = None) -> dict[str, Any]:
    return {
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype, "fill_value": fill,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}}, "attributes": {},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs or [{"name": "bytes", "configuration": {"endian": "little"}}],
    }  # fmt: skip


def old_document(dtype: Any, shape: list[int], chunks: list[int]) -> dict[str, Any]:
    return {
        "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": None, "order": "C",
        "compressor": None, "filters": None,
    }  # fmt: skip


def shards(chunks: list[int]) -> list[dict[str, Any]]:
    index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    configuration = {"chunk_shape": chunks, "codecs": [{"name": "bytes"}], "index_codecs": index}
    return [{"name": "sharding_indexed", "configuration": configuration}]


def doubled(levels: int) -> Any:
    dtype: Any = "|i1"
    for _ in range(levels):
        dtype = [["a", dtype], ["b", dtype]]
    return dtype


def stored(document: dict[str, Any]) -> dict[str, bytes]:
    return {"zarr.json" if document["zarr_format"] == 3 else ".zarray": json.dumps(document).encode()}


REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "an extent of 2^63": (MetadataValidationError, document([2**63], [1])),
    "an extent of 2^64 - 1": (MetadataValidationError, document([2**64 - 1], [2**64 - 1])),
    "an extent of 10^30": (MetadataValidationError, document([10**30], [10**30])),
    "nothing beside 2^64 - 1": (MetadataValidationError, document([0, 2**64 - 1], [0, 1])),
    "format 2, an extent of 2^63": (MetadataValidationError, old_document("|i1", [2**63], [1])),
    "chunks of no elements": (MetadataValidationError, document([4], [0])),
    "format 2, chunks of no elements": (MetadataValidationError, old_document("|i1", [4], [0])),
    "chunks of no elements in shards": (CuzarrError, document([4], [4], codecs=shards([0]))),
    "too many dimensions": (UnsupportedFeatureError, document([1] * (NUMPY_NDIM + 1), [1] * (NUMPY_NDIM + 1))),
    "100 000 dimensions": (UnsupportedFeatureError, document([1] * 100_000, [1] * 100_000)),
    "format 2, 100 000 dimensions": (UnsupportedFeatureError, old_document("|i1", [1] * 100_000, [1] * 100_000)),
    "elements of 64 MiB": ((DataTypeValidationError, MetadataValidationError), document([4], [4], "r536870912", [0])),
    "elements of 1 GiB": ((DataTypeValidationError, MetadataValidationError), document([4], [4], "r8589934592", [0])),
    "format 2, elements of 64 MiB": ((DataTypeValidationError, MetadataValidationError), old_document("<U16777216", [4], [4])),
    "text of 64 MiB": (
        (DataTypeValidationError, MetadataValidationError),
        document([4], [4], {"name": "fixed_length_utf32", "configuration": {"length_bytes": 1 << 26}}, ""),
    ),
}

HANDLED: dict[str, dict[str, Any]] = {
    "the longest": document([LONGEST], [1]),
    "the longest in one chunk": document([LONGEST], [LONGEST]),
    "more bytes than can be counted": document([LONGEST] * 3, [1, 1, LONGEST]),
    "more bytes than a float holds": document([LONGEST] * 20, [1] * 20, "float64"),
    "nothing beside the longest": document([0, LONGEST], [0, 1]),
    "one beside 2^32": document([1, 2**32], [1, 1]),
    "format 2, nothing beside the longest": old_document("|i1", [0, LONGEST], [0, 1]),
    "33 dimensions": document([2] * min(33, NUMPY_NDIM), [1] * min(33, NUMPY_NDIM)),
    "all dimensions": document([1] * NUMPY_NDIM, [1] * NUMPY_NDIM),
    "the largest elements": document([4], [4], f"r{8 * MAX_ITEM_BYTES}", [0]),
    "shards of 2^40 chunks": document([2**40], [2**40], codecs=shards([1])),
    "a structure that doubles 12 times": old_document(doubled(12), [4], [4]),
    "a structure of 5 000 fields": old_document([[f"f{number}", "|i1"] for number in range(5_000)], [4], [4]),
}


def first(array: cuzarr.Array) -> tuple[slice, ...]:
    return (slice(0, 1),) * array.ndim


ASK: dict[str, Callable[[cuzarr.Array], Any]] = {
    "repr": repr,
    "html": lambda a: a._repr_html_(),
    "info": lambda a: (repr(a.info), a.info._repr_html_(), repr(a.info_complete())),
    "numbers": lambda a: (a.size, a.nbytes, a.nchunks, a.cdata_shape, a.nchunks_initialized, a.nbytes_stored(), a.fill_value),
    "metadata": lambda a: (repr(a.metadata), a.metadata == a.metadata, hash(a.metadata), a.__dask_tokenize__()),
    "chunk sizes": lambda a: (a.read_chunk_sizes, a.write_chunk_sizes),
    "length": len,
    "regions": lambda a: list(itertools.islice(regions(a.metadata._grid, a.shape), 3)),
    "explain": lambda a: (repr(a.explain()), repr(a.explain(first(a)))),
    "first": lambda a: a[first(a)],
    "last": lambda a: a[(-1,) * a.ndim],
    "outside": lambda a: a[(2**70,) * a.ndim],
    "oindex": lambda a: a.oindex[([0],) * a.ndim],
    "vindex": lambda a: a.vindex[([0],) * a.ndim],
    "blocks": lambda a: a.blocks[(2**62,) * a.ndim],
    "set": lambda a: a.__setitem__((0,) * a.ndim, np.zeros((), a.dtype)[()]),
    "plan": lambda a: repr(a + 1),
    "resize": lambda a: a.resize((1,) * a.ndim),
    "resize too far": lambda a: a.resize((2**63,) * a.ndim),
    "append": lambda a: a.append(np.zeros((1,) * a.ndim, a.dtype)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_documents_that_no_array_can_have_are_refused_by_name(what: str) -> None:
    kind, refused = REFUSED[what]
    for opened in (cuzarr.open_array, cuzarr.open):
        with pytest.raises(kind) as caught:
            opened(stored(refused), mode="r")
        assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("what", HANDLED)
def test_whatever_is_asked_of_an_absurd_array_is_answered_or_refused_by_name(what: str) -> None:
    handled = HANDLED[what]
    assert len(json.dumps(handled)) < 1 << 20
    for name, ask in ASK.items():
        tracemalloc.start()
        try:
            ask(cuzarr.open_array(stored(handled)))
        except CuzarrError as error:
            assert len(str(error)) < 10_000
        except Exception as error:
            error.add_note(f"{name} of {what}")
            raise
        finally:
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak_bytes < MOST_BYTES, f"{name} of {what} took {peak_bytes >> 20} MB"


def test_as_many_dimensions_as_numpy_has_are_read_and_written() -> None:
    for ndim in (32, min(33, NUMPY_NDIM), NUMPY_NDIM):
        array = cuzarr.create_array({}, shape=(1,) * (ndim - 1) + (3,), chunks=(1,) * (ndim - 1) + (2,), dtype="i4")
        array[...] = np.arange(3).reshape(array.shape)
        np.testing.assert_array_equal(array[...].ravel(), [0, 1, 2])
        assert array[(0,) * (ndim - 1) + (2,)] == 2
        assert array.nchunks == 2
    with pytest.raises(UnsupportedFeatureError):
        cuzarr.create_array({}, shape=(1,) * (NUMPY_NDIM + 1), chunks=(1,) * (NUMPY_NDIM + 1), dtype="i4")
    with pytest.raises(InvalidArgumentError):
        cuzarr.create_array({}, shape=(2**63,), chunks=(1,), dtype="i1")


def test_chunk_sizes_of_empty_dimensions_are_those_that_are_used() -> None:
    for text in (document([0, 4], [0, 2]), old_document("|i1", [0, 4], [0, 2])):
        store = stored(text)
        array = cuzarr.open_array(store)
        assert (array.chunks, array.cdata_shape, array.nchunks, array.read_chunk_sizes) == ((1, 2), (0, 2), 0, ((), (2, 2)))
        # An array that grows has no chunks of size 0 any more.
        array.resize((3, 4))
        array[...] = np.arange(12, dtype="i1").reshape(3, 4)
        np.testing.assert_array_equal(cuzarr.open_array(store)[...], np.arange(12).reshape(3, 4))


def test_chunk_sizes_are_listed_as_long_as_they_fit_memory() -> None:
    array = cuzarr.open_array(stored(document([10, 7], [4, 7])))
    assert array.read_chunk_sizes == ((4, 4, 2), (7,))
    with pytest.raises(UnsupportedError, match="a dimension has 4294967296 chunks"):
        _ = cuzarr.open_array(stored(document([1, 2**32], [1, 1]))).read_chunk_sizes


def test_regions_come_in_c_order_and_one_by_one() -> None:
    boxes = list(regions(ChunkGrid.regular((2, 3)), (3, 4)))
    assert boxes == list(itertools.product([slice(0, 2), slice(2, 3)], [slice(0, 3), slice(3, 4)]))
    assert list(regions(ChunkGrid.regular(()), ())) == [()]
    assert list(regions(ChunkGrid.regular((1, 1)), (0, 2**62))) == []


def test_an_interrupt_ends_a_read_of_missing_chunks_that_would_take_hours() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    array = cuzarr.open_array(stored(document([2**32], [1])))
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            array[...]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_documents_beyond_the_limit_are_not_read(tmp_path: Path) -> None:
    text = json.dumps({**document([4], [4]), "attributes": {"a": "x" * 4000}})
    (tmp_path / "zarr.json").write_text(text)
    for store in (tmp_path, {"zarr.json": text.encode()}):
        with cuzarr.config.set({"metadata_max_bytes": 4096}):
            for opened in (cuzarr.open, cuzarr.open_array, cuzarr.open_group):
                with pytest.raises(BudgetExceededError, match="raise metadata_max_bytes"):
                    opened(store, mode="r")
        assert cuzarr.open_array(store, mode="r").shape == (4,)


def test_a_chunk_of_text_decodes_to_no_more_than_the_configuration_allows() -> None:
    codecs = [{"name": "vlen-utf8"}, {"name": "gzip", "configuration": {"level": 5}}]
    bomb = gzip.compress(b"\x01\0\0\0" + bytes(64 << 20))
    array = cuzarr.open_array({**stored(document([1], [1], "string", "", codecs)), "c/0": bomb})
    with cuzarr.config.set({"array.variable_chunk_max_bytes": "1 MiB"}):
        with pytest.raises(BudgetExceededError, match=r"raise array\.variable_chunk_max_bytes"):
            array[...]
        with pytest.raises(BudgetExceededError, match=r"use smaller chunks, or raise array\.variable_chunk_max_bytes"):
            array[0] = "x" * (1 << 20)
        array[0] = "x" * 1000
    assert array[0] == "x" * 1000


def group_of(paths: list[str]) -> dict[str, bytes]:
    nodes = {path: {"zarr_format": 3, "node_type": "group", "attributes": {}} for path in paths}
    inline = {"kind": "inline", "must_understand": False, "metadata": nodes}
    document = {"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata": inline}
    return {"zarr.json": json.dumps(document).encode()}


def test_every_path_of_a_hierarchy_is_looked_at_once_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    init = ConsolidatedMetadata.__init__

    def counted(self: ConsolidatedMetadata, nodes: dict[str, Any] | None = None) -> None:
        nonlocal made
        made += len(nodes or {})
        init(self, nodes or {})

    group = cuzarr.open_group(
        group_of([f"a{number}" for number in range(2000)] + ["/".join("b" * depth) for depth in range(1, 100)]), mode="r"
    )
    monkeypatch.setattr(ConsolidatedMetadata, "__init__", counted)
    monkeypatch.setattr(ConsolidatedMetadata, "below", lambda *_: pytest.fail("looks at every path for every group"))
    assert len(group.members(max_depth=None)) == 2099
    assert made == 98 * 99 // 2, "each path once for each group above it"
    assert str(group.tree()).count("\n") > 100


def test_paths_of_very_many_names_are_refused() -> None:
    with pytest.raises(MetadataValidationError, match="a path of 5000 names, expected at most 128"):
        cuzarr.open_group(group_of(["/".join("a" * 5000)]), mode="r")


def test_codecs_of_python_decode_to_no_more_than_a_chunk_can_have() -> None:
    bomb = lzma.compress(b"\x01\0\0\0" + bytes(64 << 20), preset=1)
    codecs = [{"name": "numcodecs.lzma", "configuration": {}}]
    text = cuzarr.open_array({**stored(document([1], [1], "string", "", [{"name": "vlen-utf8"}, *codecs])), "c/0": bomb})
    numbers = cuzarr.open_array({**stored(document([4], [4], "int8", 0, ["bytes", *codecs])), "c/0": bomb})
    with cuzarr.config.set({"array.variable_chunk_max_bytes": "1 MiB"}):
        for array in (text, numbers):
            tracemalloc.start()
            try:
                with pytest.raises(CuzarrError, match=r"decodes to more|got more than|expected"):
                    array[...]
                assert tracemalloc.get_traced_memory()[1] < 16 << 20
            finally:
                tracemalloc.stop()
        # Streams one behind the other, as lzma.decompress takes them, and what follows them.
        numbers.store.set("c/0", lzma.compress(b"\x01\x02") + lzma.compress(b"\x03\x04") + b"rest")
        np.testing.assert_array_equal(numbers[...], [1, 2, 3, 4])


def test_members_of_zip_files_are_decompressed_when_their_size_is_right(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zarr.json", json.dumps(document([4], [4])))
        file.writestr("c/0", bytes(64 << 20))
        file.writestr("large/zarr.json", b" " * (64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ChunkCorruptError, match="67108864 bytes, expected 4"):
            cuzarr.open_array(tmp_path / "a.zip", mode="r")[...]
        with cuzarr.config.set({"metadata_max_bytes": "1 MiB"}), pytest.raises(BudgetExceededError):
            cuzarr.open_array(tmp_path / "a.zip", path="large", mode="r")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_fill_value_may_be_a_list_of_fewer_bytes() -> None:
    array = cuzarr.open_array(stored(document([2], [2], "r24", [1, 2])))
    assert bytes(array.fill_value) == b"\x01\x02\0"
    assert bytes(array[0]) == b"\x01\x02\0"
    assert "Fill value" in repr(array.info)


def test_a_group_that_is_consolidated_into_itself_ends() -> None:
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    inline = {"kind": "inline", "must_understand": False, "metadata": {"": group, "/": group, "b": group}}
    store = {"zarr.json": json.dumps(group | {"consolidated_metadata": inline}).encode()}
    opened = cuzarr.open_group(store, mode="r")
    assert [name for name, _ in opened.members(max_depth=None)] == ["b"]
    assert "b" in str(opened.tree()) and list(opened.metadata.consolidated_metadata.metadata) == ["b"]


def test_a_short_url_with_a_long_template_takes_little_memory(tmp_path: Path) -> None:
    urls = {f"b/{number}": ["{{t}}" * 500 + str(number), 0, 1] for number in range(4)}
    table = {"version": 1, "templates": {"t": "x" * 1_000_000}, "refs": {".zgroup": '{"zarr_format": 2}', **urls}}
    (tmp_path / "bomb.json").write_text(json.dumps(table))
    with pytest.raises(MetadataValidationError, match=r"(?s)more than 16384 characters.*key 'b/0'|key 'b/0'.*more than 16384"):
        cuzarr.open_group(f"reference::{tmp_path}/bomb.json", mode="r")

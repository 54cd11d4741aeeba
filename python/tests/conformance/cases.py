"""The cases of the matrix: every data type with every chain that fits it, over layouts, edits and selections drawn from
a generator that is seeded by the case's own id. So an id always means the same case, and one can be run alone."""

from __future__ import annotations

import dataclasses
import fnmatch
import heapq
import itertools
import random
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import zarr

from . import chains, dtypes
from .chains import Chain, Recipe
from .dtypes import DataType

Box = tuple[int, ...]
#: Leaves the fill value to the library.
DEFAULT = object()
INDEX_CODECS: list[tuple[Recipe, ...]] = [
    (("bytes", {"endian": "little"}), ("crc32c", {})),
    (("bytes", {"endian": "big"}), ("crc32c", {})),
    (("bytes", {"endian": "little"}),),
]
#: What zarr-python 3.1, the newest for Python 3.11, gets wrong by itself; on 3.12 and newer every case runs.
OLDER_ZARR_FAILS = ("v3-raw6-sharded-*", "v?-struct*", "v3-*int8-*-n_astype", "v3-*-transpose_n_delta")
OLDER_ZARR = tuple(int(part) for part in zarr.__version__.split(".")[:2]) < (3, 2)


@dataclasses.dataclass(frozen=True)
class Case:
    """One array, how it is filled, and what is read back."""

    id: str
    zarr_format: int
    data_type: DataType
    shape: Box
    chunks: Box
    shards: Box | None
    filters: tuple[Recipe, ...]
    serializer: Recipe | None
    compressors: tuple[Recipe, ...]
    fill_value: Any
    order: str
    separator: tuple[str, str]
    dimension_names: tuple[str, ...] | None
    chain: Chain
    #: Assignments, in order: a selection, and whether a single value is broadcast over it.
    edits: tuple[tuple[Any, bool], ...]
    #: Basic selections beside the whole array.
    selections: tuple[Any, ...]

    @property
    def is_ragged(self) -> bool:
        """Several chunks, and at least one dimension that they do not divide."""
        outer = self.shards or self.chunks
        several = any(n > c for n, c in zip(self.shape, outer, strict=True))
        return several and any(n % c for n, c in zip(self.shape, outer, strict=True))

    @property
    def recipes(self) -> list[Recipe]:
        return chains.recipes_of(self.filters, self.serializer, self.compressors)

    def data(self) -> np.ndarray:
        """What the edits write from; parts of it are the fill value, as in sparse arrays."""
        rng = np.random.default_rng(zlib.crc32(self.id.encode()))
        data = dtypes.values(self.data_type, self.shape, rng, finite=self.chain.finite)
        if data.dtype.kind in "fc" and np.isnan(self.blank()).any():
            # zarr-python does not store a chunk of NaNs when the fill value is one, whatever their bits.
            data[np.isnan(data)] = 1
        if data.ndim and rng.random() < 0.4:
            data[: data.shape[0] // 2] = self.blank()[: data.shape[0] // 2]
        return data

    def blank(self) -> np.ndarray:
        """The array before the first edit."""
        dtype = self.data_type.numpy
        if self.data_type.is_variable:
            default: Any = "" if self.data_type.kind == "text" else b""
        else:
            default = np.array("NaT", dtype)[()] if dtype.kind in "mM" else np.zeros((), dtype)[()]
        blank = np.empty(self.shape, dtype)
        blank[...] = default if self.fill_value is DEFAULT or self.fill_value is None else self.fill_value
        return blank

    def steps(self) -> Iterator[tuple[Any, Any]]:
        """Each edit as (selection, value)."""
        data = self.data()
        for selection, scalar in self.edits:
            value = data[selection]
            yield selection, (data.flat[0] if scalar and data.size else value)

    def truth(self) -> np.ndarray:
        """The array after the edits, as NumPy makes it."""
        truth = self.blank()
        for selection, value in self.steps():
            truth[selection] = value
        return truth


def all_cases() -> list[Case]:
    """The whole matrix."""
    found = []
    for data_type in dtypes.DATA_TYPES.values():
        for zarr_format in data_type.formats:
            for variant in _variants(zarr_format):
                # A chain's own choices (levels, orders) hang on the combination, not on the case's place in the matrix.
                seed = f"v{zarr_format}-{data_type.name}-{variant}"
                choose = random.Random(zlib.crc32(seed.encode()))
                ndim = choose.choice([1, 1, 2, 2, 2, 3, 3, 4])
                if zarr_format == 3:
                    options = chains.chains_v3(data_type, ndim, choose)
                else:
                    options = chains.chains_v2(data_type, choose)
                for chain in options:
                    found.append(_case(f"{seed}-{chain.name}", zarr_format, data_type, variant, ndim, chain))
    if OLDER_ZARR:
        found = [case for case in found if not any(fnmatch.fnmatchcase(case.id, name) for name in OLDER_ZARR_FAILS)]
    return found


def some_cases() -> list[Case]:
    """So many cases that every two traits that meet in the whole matrix meet in one of them: data types, codecs, formats, shards,
    orders, ragged ends. Few failures need three."""
    found = all_cases()
    pairs = {case.id: set(itertools.combinations(sorted(traits(case)), 2)) for case in found}
    chosen: set[str] = set()
    met: set[tuple[str, str]] = set()
    # Each time the case with the most new pairs. Numbers in the heap may be of an earlier time, and so too high.
    heap = [(-len(own), name) for name, own in pairs.items()]
    heapq.heapify(heap)
    while heap:
        most, name = heapq.heappop(heap)
        new = len(pairs[name] - met)
        if new == -most:
            chosen.add(name)
            met |= pairs[name]
        elif new:
            heapq.heappush(heap, (-new, name))
    return [case for case in found if case.id in chosen]


def traits(case: Case) -> set[str]:
    """What a case tests."""
    codecs = {f"codec {name}" for name, _ in case.recipes}
    sharded = case.shards is not None or "codec sharding_indexed" in codecs
    others = {f"format {case.zarr_format}", f"sharded {sharded}", f"order {case.order}", f"ragged {case.is_ragged}"}
    return codecs | others | {f"type {case.data_type.name}"}


def _variants(zarr_format: int) -> list[str]:
    return ["grid", "small", "sharded"] if zarr_format == 3 else ["grid"]


def _case(name: str, zarr_format: int, data_type: DataType, variant: str, ndim: int, chain: Chain) -> Case:
    choose = random.Random(zlib.crc32(name.encode()))
    if variant == "small" or zarr_format == 2 and choose.random() < 0.1:
        has_axes = any(recipe[0] == "transpose" for recipe in chain.filters)
        # zarr-python fails on a bytes array without dimensions.
        ndim = ndim if has_axes else choose.choice([1, 2, 3] if data_type.kind == "blob" else [0, 1, 2, 3])
        shape, chunks = _small_grid(ndim, choose)
    else:
        shape, chunks = _ragged_grid(ndim, choose)
    placement: dict[str, Any] = {
        "chunks": chunks,
        "shards": None,
        "filters": chain.filters,
        "serializer": chain.serializer,
        "compressors": chain.compressors,
    }
    if variant == "sharded":
        kind = choose.choice(["argument", "start", "end", "nested", "outer", "transposed"])
        shape, sharded = _shard(kind, data_type, shape, chunks, chain, choose)
        placement.update(sharded)
    fill_values = [DEFAULT, *dtypes.fill_values(data_type)]
    if chain.finite:  # the fill value passes through the codecs as well
        fill_values = [DEFAULT, *(v for v in fill_values[1:] if np.isfinite(v) and 0 <= v < 100)]
    if zarr_format == 2:
        fill_values.append(None)
    separators = (
        [("default", "/"), ("default", "."), ("v2", "."), ("v2", "/")] if zarr_format == 3 else [("v2", "."), ("v2", "/")]
    )
    named = zarr_format == 3 and choose.random() < 0.2
    return Case(
        id=name,
        zarr_format=zarr_format,
        data_type=data_type,
        shape=shape,
        fill_value=choose.choice(fill_values),
        order=choose.choice("CF") if zarr_format == 2 and chain.name != "zfpy" else "C",  # zfpy refuses Fortran order
        separator=choose.choice(separators),
        dimension_names=tuple("tzyx"[:ndim]) if named else None,
        chain=chain,
        edits=_edits(data_type, shape, chunks, choose),
        selections=tuple(selection(shape, choose) for _ in range(choose.choice([0, 1, 2, 3]))),
        **placement,
    )


def _ragged_grid(ndim: int, choose: random.Random) -> tuple[Box, Box]:
    """Several chunks along some dimensions, seldom whole ones."""
    most = {1: 40, 2: 12, 3: 7, 4: 5}[ndim]
    chunks = tuple(choose.randint(1, most) for _ in range(ndim))
    counts = [choose.choice([1, 2, 2, 3]) for _ in range(ndim)]
    counts[choose.randrange(ndim)] = choose.choice([2, 3])
    shape = tuple(max(1, c * n - choose.randint(0, c - 1)) for c, n in zip(chunks, counts, strict=True))
    return shape, chunks


def _small_grid(ndim: int, choose: random.Random) -> tuple[Box, Box]:
    """Edges of the definition: no dimension, one element, empty dimensions, chunks larger than the array."""
    shape = tuple(choose.choice([0, 1, 1, 2, 5, 9]) for _ in range(ndim))
    chunks = tuple(choose.choice([1, 2, max(1, n), n + 3]) for n in shape)
    return shape, chunks


def _shard(
    kind: str, data_type: DataType, shape: Box, inner: Box, chain: Chain, choose: random.Random
) -> tuple[Box, dict[str, Any]]:
    """The array's shape and where the chain goes when chunks lie in shards."""
    inner = tuple(max(1, c // 2) for c in inner)
    shards = tuple(c * choose.choice([1, 2, 3]) for c in inner)
    shape = tuple(max(1, s * choose.choice([1, 2]) - choose.randint(0, s - 1)) for s in shards)
    if kind == "argument":
        return shape, {"chunks": inner, "shards": shards}
    serializer = chain.serializer or {
        "text": ("vlen-utf8", {}),
        "blob": ("vlen-bytes", {}),
    }.get(data_type.kind, ("bytes", {"endian": "little"}))
    codecs = (*chain.filters, serializer, *chain.compressors)
    index = choose.choice(INDEX_CODECS)
    location = "start" if kind == "start" else "end" if kind == "end" else choose.choice(["start", "end"])

    def sharding(chunk_shape: Box, codecs: tuple[Recipe, ...], location: str) -> Recipe:
        configuration = {
            "chunk_shape": chunk_shape,
            "codecs": codecs,
            "index_codecs": index,
            "index_location": location,
        }
        return ("sharding_indexed", configuration)

    outer: tuple[Recipe, ...] = ()
    filters: tuple[Recipe, ...] = ()
    if kind == "nested":
        middle = shards
        shards = tuple(c * choose.choice([1, 2]) for c in middle)
        codecs = (sharding(inner, codecs, choose.choice(["start", "end"])),)
        inner = middle
    elif kind == "outer":
        outer = (choose.choice([("gzip", {"level": 1}), ("crc32c", {}), ("zstd", {"level": 1, "checksum": False})]),)
    elif kind == "transposed" and not data_type.is_variable:
        # Sharding then sees the transposed chunk. zarr-python checks its chunk shape against the chunk before that, so
        # only cubes please the specification and zarr-python alike.
        filters = (("transpose", {"order": tuple(choose.sample(range(len(shape)), len(shape)))}),)
        inner = (min(inner),) * len(inner)
        shards = (inner[0] * choose.choice([2, 3]),) * len(inner)
    return shape, {
        "chunks": shards,
        "filters": filters,
        "serializer": sharding(inner, codecs, location),
        "compressors": outer,
    }


def _edits(data_type: DataType, shape: Box, chunks: Box, choose: random.Random) -> tuple[tuple[Any, bool], ...]:
    kind = choose.choice(["whole", "whole", "gaps", "patches"])
    if kind == "patches" and data_type.kind == "blob":
        kind = "gaps"  # zarr-python takes a single bytes value for an array of integers
    if kind == "whole":
        return ((..., False),)
    if kind == "gaps":  # some chunks are never written
        boxes = []
        for _ in range(2):
            starts = [choose.randrange(-(-n // c)) * c if n else 0 for n, c in zip(shape, chunks, strict=True)]
            boxes.append((tuple(slice(s, min(s + c, n)) for s, c, n in zip(starts, chunks, shape, strict=True)), False))
        return tuple(boxes)
    return tuple((selection(shape, choose), choose.random() < 0.3) for _ in range(choose.choice([1, 2, 3])))


def selection(shape: Box, choose: random.Random) -> Any:
    """A basic selection: integers and slices with positive steps, from either end, perhaps fewer than dimensions."""
    items: list[Any] = [_item(n, choose) for n in shape]
    cut = choose.random()
    if items and cut < 0.15:
        items = items[: choose.randrange(len(items) + 1)]
    elif items and cut < 0.35:
        start = choose.randrange(len(items))
        stop = choose.randint(start, len(items))
        items[start:stop] = [...]
    return items[0] if len(items) == 1 and choose.random() < 0.5 else tuple(items)


def _item(n: int, choose: random.Random) -> Any:
    kind = choose.choice(["all", "integer", "span", "span", "step", "open", "beyond", "empty"])
    if kind == "integer" and n:
        return choose.choice([int, np.int64])(choose.randrange(-n, n))
    if kind == "empty" and choose.random() < 0.3:
        return slice(n // 2, n // 2)
    low, high = sorted((choose.randint(0, n), choose.randint(0, n)))
    return {
        "span": slice(low, high),
        "step": slice(low, high, choose.choice([2, 3, n + 1])),
        "open": choose.choice([slice(-(n // 2) or None, None), slice(None, -1), slice(low, None, 2)]),
        "beyond": slice(low, n + 5),
    }.get(kind, slice(None))

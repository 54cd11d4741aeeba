"""What falls off beside the usual read? Layouts, codecs, types, selections, targets, writes, stores and computations, one step from it each.

    python bench/cliffs.py [--device cuda:0] [--shape 32,1024,2048] [--groups layouts codecs ...] [--only TEXT] [--peers zarr fused]
                           [--repeat 3] [--seconds 540] [--record FOLDER]

GB/s of the elements that a call asks for or gives, best of `repeat`, beside zarr-python's default pipeline and its `FusedCodecPipeline` (from
3.3 on), whose results are copied to the device. Every answer is compared with the truth outside the clock. At the end come cases that fail,
are wrong, are slower than a peer, or are five times as slow as the middle of their group.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import arrays
import numcodecs as old
import numpy as np
import read
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.core import codec_pipeline

import cuzarr

xp, ALL, ZSTD = cuzarr.xp, slice(None), ZstdCodec(level=3)
BOX, STEPS, EVERYTHING = (slice(1, -1), slice(99, -77), slice(33, -49)), (ALL, slice(None, None, 3), slice(None, None, 5)), (...,)
CHUNKS = "1,32,32 1,64,64 1,128,128 1,256,256 1,512,512 4,512,1024 16,1024,1024 5,300,700".split()
ROUNDING = ("fixedscaleoffset", "quantize", "bitround")  # zarr-python says what is read of them
PIPELINES = {"zarr": "BatchedCodecPipeline", "fused": "FusedCodecPipeline"}
PEERS = {name: f"zarr.core.codec_pipeline.{one}" for name, one in PIPELINES.items() if hasattr(codec_pipeline, one)}
BLOSCS = ["lz4 noshuffle", "lz4 shuffle", "lz4 bitshuffle", "zstd noshuffle", "zstd shuffle", "zstd bitshuffle", "zlib shuffle"]
BLOSCS += ["lz4hc shuffle", "blosclz shuffle"]
CODECS = {f"blosc {one}": BloscCodec(cname=one.split()[0], clevel=5, shuffle=one.split()[1]) for one in BLOSCS}
CODECS |= {"none": None, "crc32c": [Crc32cCodec()], "zstd 3, crc32c": [ZSTD, Crc32cCodec()]}
CODECS |= {f"zstd {level}": ZstdCodec(level=level) for level in (1, 3, 9)} | {"zstd, checksum": ZstdCodec(level=3, checksum=True)}
CODECS |= {f"gzip {level}": GzipCodec(level=level) for level in (1, 5, 9)}
# Layouts of format 2.
OLD = {one.codec_id: {"compressors": one} for one in (old.LZ4(), old.Zlib(5), old.BZ2(1), old.LZMA(preset=0))}
OLD |= {one.codec_id: {"filters": [one]} for one in (
    old.Delta("f4"), old.Shuffle(4), old.FixedScaleOffset(250, 100, "f4", "i4"), old.Quantize(3, "f4"), old.BitRound(10), old.AsType("f8", "f4"),
    old.Adler32(), old.Fletcher32(),
)}  # fmt: skip


def host(values: Any) -> np.ndarray[Any, Any]:
    return values if isinstance(values, np.ndarray | np.generic) else xp.asnumpy(values)


def same(found: Any, truth: Any) -> bool:
    """Bit for bit."""
    found, truth = host(found), np.asarray(truth)
    if found.dtype.kind in "OT":
        return bool((found == truth).all())
    one, other = (np.ascontiguousarray(values, values.dtype.newbyteorder("=")) for values in (found, truth))
    return (one.shape, one.dtype) == (other.shape, other.dtype) and one.tobytes() == other.tobytes()


@dataclass(frozen=True)
class Engine:
    """cuzarr, or zarr-python with a pipeline."""

    name: str
    pipeline: str | None = None

    def open(self, store: Any, mode: str, device: str) -> Any:
        return zarr.open_array(store, mode=mode) if self.pipeline else cuzarr.open_array(store, mode=mode, device=device)


@dataclass(frozen=True)
class Case:
    """Something to measure. `prepare` opens what it needs by an engine and gives the call; `truth` compares the call's result."""

    name: str
    nbytes: int
    prepare: Callable[[Engine], Callable[[], Any]]
    truth: Callable[[Any], bool]
    is_alone: bool = False


class Bench:
    """The field that most cases read, where arrays are written, and a random generator."""

    def __init__(self, args: argparse.Namespace, folder: str) -> None:
        self.place, self.folder = read.Place(args.device), pathlib.Path(folder)
        self.field, self.random = arrays.temperature(args.shape, 1), np.random.default_rng(7)
        self.module, eighths = self.place.cupy or np, tuple(extent // min(extent, 8) for extent in args.shape)
        self.all_of = lambda array: self.place.hold(array[...])  # what a peer reads, on the device
        self.one_shard = {"chunks": eighths, "shards": args.shape}

    def store(self, name: str, values: np.ndarray[Any, Any], *, is_filled: bool = True, **layout: Any) -> str:
        layout = {"chunks": (1, 512, 512), "compressors": old.Zstd(3) if layout.get("zarr_format") == 2 else ZSTD} | layout
        for name_of in {"chunks", "shards"} & layout.keys():
            layout[name_of] = tuple(min(*pair) for pair in zip(layout[name_of], values.shape))
        path = str(self.folder / name)
        array = zarr.create_array(store=path, shape=values.shape, dtype=values.dtype, overwrite=True, **layout)
        if is_filled:
            array[...] = values
        return path

    def read(
        self, name: str, path: Any, how: Any, truth: Any, peer: Any = None, equal: Any = same, device: Any = None, nbytes: int = 0, is_alone: bool = False
    ) -> Case:  # fmt: skip
        """A case that reads by `how` from an array of cuzarr, and by `peer` from an array of a peer: by default in the same way."""

        def prepare(engine: Engine) -> Callable[[], Any]:
            array = engine.open(path, "r", device or self.place.device)
            if engine.pipeline and peer:
                return lambda: peer(array)
            return lambda: self.place.hold(how(array)) if engine.pipeline and not device else how(array)

        return Case(name, nbytes or np.asarray(truth).nbytes, prepare, lambda found: equal(found, truth), is_alone)

    def whole(self, name: str, values: np.ndarray[Any, Any], truth: Any = None, **layout: Any) -> Case:
        path = self.store("whole", values, **layout)
        return self.read(name, path, lambda array: array[...], values if truth is None else truth)


def layouts(bench: Bench) -> Iterator[Case]:
    field, (depth, rows, columns) = bench.field, bench.field.shape
    for one in [*map(read.box, CHUNKS), field.shape, (depth, 32, 32), (1, 1, columns), (1, rows, columns), (1, rows, 1)]:
        few = field[: max(20_000 * one[1] * one[2] // field[0].size, 1) * one[0]]
        yield bench.whole(f"chunks of {'x'.join(map(str, one))}", few, chunks=one)
    yield bench.whole("shards", field, chunks=(1, 128, 128), shards=(4, 1024, 1024))
    yield bench.whole("one shard", field, **bench.one_shard)
    yield bench.whole("transposed", field, filters=[TransposeCodec(order=(2, 1, 0))])
    yield bench.whole("format 2, order F", field, zarr_format=2, order="F")
    yield bench.whole("1 dimension", field.reshape(-1), chunks=(1 << 18,))
    yield bench.whole("6 dimensions", field.reshape(depth, 8, -1, 8, 8, columns // 64), chunks=(1, 8, 32, 4, 8, 32))
    missing = np.zeros_like(field)
    missing[::8, : rows // 2, : columns // 4] = 1
    yield bench.whole("chunks that are missing", missing)


def codecs(bench: Bench) -> Iterator[Case]:
    yield from (bench.whole(name, bench.field, compressors=compressors) for name, compressors in CODECS.items())
    for name, layout in OLD.items():
        values = bench.field[:4] if name in ("bz2", "lzma") else bench.field
        stored = zarr.open_array(bench.store("stored", values, zarr_format=2, **layout))[...]
        yield bench.whole(f"format 2, {name}", values, stored if name in ROUNDING else None, zarr_format=2, **layout)


def types(bench: Bench) -> Iterator[Case]:
    field, half = bench.field, bench.field[: len(bench.field) // 2]
    counts, labels = arrays.counts(field.shape, 1), arrays.labels(field.shape, 1)
    pairs = np.empty(half.shape, [("a", "f4"), ("b", "i4")])
    pairs["a"], pairs["b"] = half, labels[: len(half)]
    for values in (
        counts, (counts >> 4).astype("u1"), labels, labels[: len(half)].astype("i8"), (field * 10 - 2500).astype("i2"), field.astype("f2"),
        half.astype("f8"), half.astype("c8"), field > 280, labels[: len(half)].astype("i8").view("M8[s]"), pairs,
    ):  # fmt: skip
        yield bench.whole(str(values.dtype), values)
    yield bench.whole("float32, big-endian", field.astype(">f4"), zarr_format=2)
    words, path = np.array([f"station-{number}" for number in range(field.size // 64)], object), str(bench.folder / "words")
    zarr.create_array(store=path, shape=words.shape, chunks=(1 << 14,), dtype="str")[:] = words
    yield bench.read("text, on the host", path, lambda array: array[:], words, device="cpu", nbytes=sum(map(len, words)))


def selections(bench: Bench) -> Iterator[Case]:
    field, random, (depth, rows, columns) = bench.field, bench.random, bench.field.shape
    lines, crop = np.arange(0, rows, 3), (min(depth, 4), 64, 64)
    lists = tuple(np.sort(random.choice(extent, extent // 2, replace=False)) for extent in field.shape)
    points, mask = tuple(random.integers(0, extent, 100_000) for extent in field.shape), np.zeros(field.shape, bool)
    mask[:, ::7, ::11] = True
    corners = random.integers(0, np.array(field.shape) - crop + 1, (200, 3))
    crops = [tuple(slice(a, a + extent) for a, extent in zip(corner, crop)) for corner in corners]
    some = [(int(a) % depth, int(a) % rows, int(a) % columns) for a in range(1000)]
    several = np.stack([field[one] for one in crops])
    boxes = {
        "everything": (ALL,), "a plane": (1,), "a line of x": (1, 5), "a line of time": (ALL, 7, 9), "y = 5": (ALL, 5), "x = 5": (ALL, ALL, 5),
        "an element": (1, 2, 3), "every second plane": (slice(None, None, 2),), "steps of 3 and 5": STEPS,
        "steps of 64": (ALL, ALL, slice(None, None, 64)), "a box beside chunks": BOX,
    }  # fmt: skip
    rows_of = {"sorted": lines, "in any order": random.permutation(lines)}
    for where, layout in {"": {}, ", in a shard": bench.one_shard}.items():
        path = bench.store("selected", field, **layout)
        for name, key in boxes.items():
            yield bench.read(name + where, path, lambda array, key=key: array[key], field[key])
        for name, one in rows_of.items():
            yield bench.read(f"oindex: lines {name}{where}", path, lambda array, one=one: array.oindex[:, one, :], field[:, one])
        yield bench.read(f"oindex: three lists{where}", path, lambda array: array.oindex[lists], field[np.ix_(*lists)])
        yield bench.read(f"vindex: points{where}", path, lambda array: array.vindex[points], field[points])
        yield bench.read(f"a mask{where}", path, lambda array: array.vindex[mask], field[mask])
        yield bench.read(f"blocks[0, 0]{where}", path, lambda array: array.blocks[0, 0], zarr.open_array(path).blocks[0, 0])
        one_by_one = lambda array: bench.module.stack([bench.module.asarray(array[one]) for one in crops])  # noqa: E731
        yield bench.read(f"crops, one by one{where}", path, one_by_one, several)
        stacked = lambda found, truth: same(np.stack([host(one) for one in found]), truth)  # noqa: E731
        yield bench.read(f"read_many{where}", path, lambda array: array.read_many(crops), several, one_by_one, stacked)
        by_element = lambda array: [array[one] for one in some][-1]  # noqa: E731
        yield bench.read(f"elements, one by one{where}", path, by_element, field[some[-1]], nbytes=4000)


def targets(bench: Bench) -> Iterator[Case]:
    field, path, empty = bench.field, bench.store("target", bench.field), bench.module.empty
    outs = {"out=": empty(field.shape, "f4"), "out= with steps": empty((*field.shape[:2], 2 * field.shape[2]), "f4")[..., ::2]}
    outs |= {"out= transposed": empty(field.shape[::-1], "f4").T, "out= of NumPy": np.empty(field.shape, "f4")}
    for name, out in outs.items():
        how = lambda array, out=out: [array.get_basic_selection(..., out=out), out][1]  # noqa: E731
        yield bench.read(name, path, how, field, bench.all_of)
    for dtype in ("f2", "f8"):
        how, peer = lambda x, dtype=dtype: x.read(..., dtype=dtype), lambda x, dtype=dtype: bench.all_of(x).astype(dtype)
        yield bench.read(f"dtype={dtype}", path, how, field.astype(dtype), peer)
    yield bench.read("into host memory", path, lambda array: array[...], field, device="cpu")


def writes(bench: Bench) -> Iterator[Case]:
    field, (depth, rows, _) = bench.field, bench.field.shape
    lines, points = np.arange(0, rows, 3), np.unravel_index(bench.random.permutation(field.size)[:100_000], field.shape)

    def case(name: str, values: Any, key: Any = EVERYTHING, put: Any = None, **layout: Any) -> Case:
        is_part = key is not EVERYTHING
        after = field.copy() if is_part else np.zeros_like(field)
        after[key] = values

        def prepare(engine: Engine) -> Callable[[], Any]:
            array = engine.open(bench.store("written", field, is_filled=is_part, **layout), "r+", bench.place.device)
            given = bench.place.hold(values) if not engine.pipeline and isinstance(values, np.ndarray) else values
            return lambda: put(array, given) if put else array.__setitem__(key, given)

        written = lambda _: same(zarr.open_array(str(bench.folder / "written"))[...], after)  # noqa: E731
        return Case(f"{name}, over old" if is_part else name, after[key].nbytes, prepare, written)

    for name in ("none", "zstd 3", "zstd 9", "gzip 5", "blosc lz4 shuffle", "blosc zstd bitshuffle", "zstd 3, crc32c"):
        yield case(name, field, compressors=CODECS[name])
    for chunks in ((1, 128, 128), (4, 512, 1024), (16, 1024, 1024), (depth, 32, 32)):
        yield case(f"chunks of {'x'.join(map(str, chunks))}", field, chunks=chunks)
    yield case("one shard", field, **bench.one_shard)
    yield case("a scalar", np.float32(3.5))
    yield case("float64 into float32", field.astype("f8"))
    yield case("order F", np.asfortranarray(field))
    yield case("plane by plane", field, put=lambda array, values: [array.__setitem__(z, values[z]) for z in range(depth)])
    for name, key in {"a box beside chunks": BOX, "a plane": (depth // 2,), "steps of 3 and 5": STEPS, "y = 5": (ALL, 5)}.items():
        yield case(name, field[key] + 1, key)
    yield case("oindex: lines", field[:, lines] + 1, (ALL, lines), lambda x, new: x.set_orthogonal_selection((ALL, lines), new))
    yield case("vindex: points", field[points] + 1, points, lambda array, values: array.set_coordinate_selection(points, values))


def stores(bench: Bench) -> Iterator[Case]:
    whole, archive = {"data": bench.field, "chunks": (1, 512, 512)}, bench.folder / "stored.zip"
    with zarr.storage.ZipStore(archive, mode="w") as zipped:
        zarr.create_array(zipped, **whole)
    theirs = [zarr.storage.MemoryStore(), zarr.storage.LocalStore(bench.folder / "stored")]
    for store in [zarr.storage.ZipStore(archive, mode="r"), *(zarr.create_array(store, **whole).store for store in theirs)]:
        yield bench.read(f"zarr-python's {type(store).__name__}", store, lambda array: array[...], bench.field)
    for kind in [cuzarr.storage.MemoryStore, cuzarr.storage.GpuMemoryStore][: 2 if bench.place.cupy else 1]:
        store = cuzarr.create_array(kind(), **whole).store
        yield bench.read(kind.__name__, store, lambda array: array[...], bench.field, is_alone=True)


def computations(bench: Bench) -> Iterator[Case]:
    field, path, wide = bench.field, bench.store("computed", bench.field), bench.field.astype("f8")
    for name, of in {
        "mean": lambda x, m: x.mean(), "mean, axis 0": lambda x, m: x.mean(axis=0), "std, axis 2": lambda x, m: x.std(axis=2), "max": lambda x, m: x.max(),
        "argmax, axis 0": lambda x, m: x.argmax(axis=0), "sqrt(x * x + 1)": lambda x, m: m.sqrt(x * x + 1), "where": lambda x, m: m.where(x > 280, x, 0),
        "cumsum, axis 0": lambda x, m: m.cumsum(x, axis=0), "diff, axis 0": lambda x, m: m.diff(x, axis=0), "median": lambda x, m: m.median(x),
        "map_blocks": lambda x, m: cuzarr.map_blocks(lambda block: block * 2, x, dtype="f4") if m is xp else x * 2,
    }.items():  # fmt: skip
        near = lambda found, truth: np.allclose(host(found), truth, rtol=1e-5)  # noqa: E731
        how = lambda x, of=of: found.compute() if isinstance(found := of(x, xp), cuzarr.Expression) else found  # noqa: E731
        peer = lambda array, of=of: of(bench.all_of(array), bench.module)  # noqa: E731
        yield bench.read(name, path, how, of(wide, np), peer=peer, equal=near, nbytes=field.nbytes)
    made, in_lines = str(bench.folder / "made"), {"chunks": (len(field), 32, 32)}
    for name, copy, layout in (("copy", cuzarr.copy, {"compressors": "blosc:lz4"}), ("rechunk", cuzarr.rechunk, in_lines)):
        how = lambda array, copy=copy, layout=layout: copy(path, made, overwrite=True, **layout)  # noqa: E731
        yield bench.read(name, path, how, field, equal=lambda _, truth: same(zarr.open_array(made)[...], truth), is_alone=True)


GROUPS = {group.__name__: group for group in (layouts, codecs, types, selections, targets, writes, stores, computations)}


def measured(case: Case, engine: Engine, place: read.Place, repeat: int) -> float:
    """The best time of a case after a first one, in seconds. Calls that take long are not repeated."""
    taken: list[float] = []
    with zarr.config.set({"codec_pipeline.path": engine.pipeline} if engine.pipeline else {}):
        call = case.prepare(engine)
        while len(taken) <= repeat and sum(taken) < 4:
            place.wait()
            start = time.perf_counter()
            found = call()
            place.wait()
            taken.append(time.perf_counter() - start)
            if len(taken) == 1 and not case.truth(found):
                raise AssertionError("wrong elements")
            del found
    return min(taken[1:] or taken)


def row_of(case: Case, group: str, engines: list[Engine], place: read.Place, repeat: int) -> dict[str, Any]:
    row: dict[str, Any] = {"group": group, "case": case.name, "MB": round(case.nbytes / 1e6, 3)}
    for engine in engines[:1] if case.is_alone else engines:
        try:
            seconds = measured(case, engine, place, 1 if engine.pipeline else repeat)
            row[engine.name] = float(f"{case.nbytes / seconds / 1e9:.3g}")
            row |= {} if engine.pipeline else {"ms": round(seconds * 1e3, 2)}
        except Exception as error:  # that it cannot is a result as well
            row[engine.name] = f"{type(error).__name__}: {error}"[:100]
        place.free()
    return row


def cliffs(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What is to be looked at, a line for each."""
    for row in rows:
        ours, best = row["cuzarr"], max((row[name] for name in PEERS if isinstance(row.get(name), float)), default=0)
        alike = [one["cuzarr"] for one in rows if one["group"] == row["group"] and isinstance(one["cuzarr"], float)]
        middle = statistics.median(alike or [0])
        if isinstance(ours, str) or ours < best or (row["MB"] > 20 and ours < middle / 5):
            yield f"{row['group']}: {row['case']}: {ours}; a peer {best}, the middle of the group {middle:.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", type=read.box, default=(32, 1024, 2048))
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--only", default="", help="a part of the names of cases")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=540, help="no case begins later")
    parser.add_argument("--record", help="the folder of a record")
    args = parser.parse_args()
    begun, rows = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        engines = [Engine("cuzarr"), *(Engine(name, PEERS[name]) for name in args.peers)]
        print(f"{'GB/s':48} {'MB':>8} {'ms':>9}" + "".join(f" {engine.name:>8}" for engine in engines))
        for group in args.groups:
            for case in GROUPS[group](bench):
                if args.only in case.name and time.perf_counter() - begun < args.seconds:
                    rows.append(row := row_of(case, group, engines, bench.place, args.repeat))
                    figures = (f"{row.get(engine.name, '–')!s:>8.8}" for engine in engines)
                    print(f"{group + ': ' + case.name:48.48} {row['MB']:8} {row.get('ms', '–'):>9}", *figures, flush=True)
    print(f"\n{len(rows)} cases. Look at:", *cliffs(rows), sep="\n  ")
    if args.record:
        read.write_record(
            args.record, bench.place, rows, "cliffs", "GB/s of the elements that a call asks for or gives, best of the repeats"
        )
    return 1 if any("wrong elements" in str(value) for row in rows for value in row.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

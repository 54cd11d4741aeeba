"""The page of performance: charts, each with its table, its command and its record below. Every figure is read from `bench/record/`."""

from __future__ import annotations

import math
import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from charts import INK, Chart

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import gather  # noqa: E402

H200 = "nvidia-h200"
CODECS = {
    "none": "uncompressed",
    "zstd3": "zstd 3",
    "blosc-lz4-shuffle": "Blosc LZ4, shuffle",
    "blosc-zstd-bitshuffle": "Blosc zstd, bitshuffle",
    "gzip5": "gzip 5",
}
CODECS_OF_RANKS = {"none": "uncompressed", "blosc-lz4": "Blosc LZ4", "zstd": "zstd 3"}


@dataclass
class Section:
    """A part of the page. A row of the table is its first cells (words), then a figure for each column; `None` was not measured."""

    title: str
    about: str
    heads: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    command: str
    records: tuple[str, ...]
    chart: Chart | None = None
    notes: str = ""
    smallest_is_best: bool = field(default=False)

    def markdown(self) -> str:
        out = [f"## {self.title}", "", self.about, ""]
        if self.chart is not None:
            out += [self.chart.markdown(), ""]
        out += ["| " + " | ".join(self.heads) + " |", "|" + "---|" * len(self.heads)]
        out += ["| " + " | ".join(self._cells(row)) + " |" for row in self.rows]
        said = "".join(f" `{line}`" if "\n" not in line else "" for line in [self.command])
        named = ", ".join(f"`{name}`" for name in self.records)
        out += ["", f"Command:{said}.", f"Records: {named} ([index](../bench/record/README.md)).", ""]
        if self.notes:
            out += [self.notes, ""]
        return "\n".join(out)

    def _cells(self, row: tuple[Any, ...]) -> list[str]:
        numbers = [value for value in row if isinstance(value, float)]
        best = (min if self.smallest_is_best else max)(numbers) if len(numbers) > 1 else None
        return [_cell(value, value == best) for value in row]


def _cell(value: Any, is_best: bool) -> str:
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return f"**{text}**" if is_best else text


def _size(kib: float) -> str:
    return f"{kib / 1024:g} MiB" if kib >= 1024 else f"{kib:g} KiB"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _rows(record: Any) -> list[dict[str, Any]]:
    rows = record["rows"] if isinstance(record, dict) else record
    for row in rows:
        row.setdefault("chunk_KiB", row.get("chunk_MiB", 0) * 1024)
    return list(rows)


def reading() -> Section:
    series = {
        "cuzarr": "cuzarr",
        "zarr_cuzarr": "zarr-python through cuzarr",
        "kvikio": "KvikIO GDSStore",
        "zarr_fused_gpu": "zarr-python, fused, `enable_gpu`",
        "zarr_gpu": "zarr-python `enable_gpu`",
        "zarrs": "zarrs-python and a copy",
    }
    rows = _rows(gather.record("2026-11-30-peers-2"))
    table = [(_size(row["chunk_KiB"]), CODECS[row["codec"]], *(_number(row.get(key)) for key in series)) for row in rows]
    shown = [row for row in table if row[0] == "8 MiB"]
    names = [name.replace("`", "") for name in series.values()]
    chart = Chart(
        "reading", "GB/s of array into the memory of one H200, chunks of 8 MiB", tuple(row[1] for row in shown),
        {name: tuple(row[2 + number] for row in shown) for number, name in enumerate(names)},
    )  # fmt: skip
    return Section(
        "Reading into GPU memory",
        "A float32 field of 512 MiB is read whole, from files in the page cache. GB/s of decoded array; the bus carries 55 GB/s of bytes, "
        "so compressed arrays can come faster than that.",
        ("chunks", "codec", *series.values()), table,
        "python bench/read.py --device cuda:0 --shape 64,1024,2048 --chunks 1,512,512 1,1024,2048 16,1024,1024 "
        "--codecs none zstd3 blosc-lz4-shuffle blosc-zstd-bitshuffle gzip5 --repeat 5",
        ("2026-11-30-peers-2",), chart,
        "The record has further engines: zarr-python's pipelines, tensorstore and a copy. On other machines of the same kind, cuzarr read "
        "up to a third faster; the peers are the same.",
    )  # fmt: skip


def host() -> Section:
    series = {"cuzarr": "cuzarr", "zarrs": "zarrs-python", "tensorstore": "tensorstore", "zarr": "zarr-python"}
    rows = _rows(gather.records("amd-epyc", "read")["2026-11-22"])
    table = [(_size(row["chunk_KiB"]), CODECS[row["codec"]], *(_number(row.get(key)) for key in series)) for row in rows]
    labels = tuple(f"{row[1]}, {row[0]}" for row in table)
    chart = Chart("host", "GB/s of array into host memory, two cores", labels,
                  {name: tuple(row[2 + number] for row in table) for number, name in enumerate(series.values())})  # fmt: skip
    return Section(
        "Reading into host memory", "A float32 field of 256 MiB is read whole on two cores of an AMD EPYC. GB/s of decoded array.",
        ("chunks", "codec", *series.values()), table, "python bench/read.py --repeat 7", ("amd-epyc: 2026-11-22",), chart,
    )  # fmt: skip


def writing() -> Section:
    ours = dict(_table(gather.record("2026-11-23-write-parts")["lines"]))
    peers = {(row["chunk_KiB"], row["codec"]): row for row in _rows(gather.record("2026-11-22-write"))}
    engines = {
        "zarrs": "zarrs-python",
        "tensorstore": "tensorstore",
        "zarr": "zarr-python",
        "zarr_gpu": "zarr-python `enable_gpu`",
    }
    table: list[tuple[Any, ...]] = []
    for name, value in ours.items():
        size, codec = re.match(r"(\S+ MiB), (\S+)", name).groups()  # type: ignore[union-attr]
        row = peers.get((float(size.split()[0]) * 1024, codec), {})
        table.append((size, CODECS[codec], value, *(_number(row.get(key)) for key in engines)))
    shown = [row for row in table if row[0] == "1 MiB"]
    names = ("cuzarr", *(name.replace("`", "") for name in engines.values()))
    chart = Chart("writing", "GB/s of array from the memory of one H200, chunks of 1 MiB", tuple(row[1] for row in shown),
                  {name: tuple(row[2 + number] for row in shown) for number, name in enumerate(names)})  # fmt: skip
    return Section(
        "Writing from GPU memory",
        "A float32 array is written from the memory of an H200 into new files in memory. cuzarr's kernels encode it; engines that take host "
        "memory get a copy inside the clock. GB/s of array.",
        ("chunks", "codec", "cuzarr", *engines.values()), table,
        "python bench/write.py --device cuda:0 --shape 64,1024,2048 --chunks 1,512,512 4,1024,512 16,1024,1024 --codecs none zstd3 gzip5 "
        "blosc-lz4-shuffle blosc-zstd-bitshuffle --folder /dev/shm",
        ("2026-11-23-write-parts", "2026-11-22-write"), chart,
        "cuzarr's figures are of 512 MiB; the peers' are of an earlier run with 128 MiB on a machine of the same kind.",
    )  # fmt: skip


def _table(lines: list[str]) -> Iterator[tuple[str, float]]:
    """The rows of a table of Markdown in a record: first cell and second."""
    for line in lines:
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if line.startswith("|") and len(cells) > 1 and re.fullmatch(r"[\d.]+", cells[1]):
            yield cells[0], float(cells[1])


def encoding() -> Section:
    table: list[tuple[Any, ...]] = []
    for line in gather.record("2026-11-23-encode")["lines"]:
        cells = dict(re.findall(r"(\S+?)=(\S*(?: x[\d.]+)?)", line))
        if cells.get("array") != "field" or cells.get("shuffle") != "False":
            continue
        host = next((value for key, value in sorted(cells.items(), reverse=True) if key.startswith("host-")), "")
        nvcomp = next((value for key, value in sorted(cells.items()) if key.startswith("nvcomp")), "")
        table.append(
            (cells["codec"], _size(float(cells["chunk_KiB"])), *_rate(cells.get("cuzarr", "")), *_rate(nvcomp), *_rate(host))
        )
    shown = [row for row in table if row[1] == "1 MiB"]
    chart = Chart("encoding", "GB/s of elements encoded, chunks of 1 MiB", tuple(row[0] for row in shown),
                  {name: tuple(row[at] for row in shown) for name, at in (("cuzarr", 2), ("nvCOMP 6.0", 4), ("16 host cores", 6))})  # fmt: skip
    return Section(
        "Encoding alone",
        "Chunks of a float32 field that are in GPU memory are encoded; every frame is decoded by the format's own library. GB/s, and the ratio.",
        ("codec", "chunks", "cuzarr", "ratio", "nvCOMP 6.0", "ratio", "16 host cores", "ratio"), table,
        "Encoder(...).prepare(chunks).run()", ("2026-11-23-encode",), chart,
    )  # fmt: skip


def _rate(text: str) -> tuple[float | None, str]:
    found = re.match(r"([\d.]+) x([\d.]+)", text)
    return (float(found[1]), f"{float(found[2]):.2f}") if found else (None, "–")


def decoding() -> Section:
    later, both = (_rows(gather.record(f"2026-11-22-frames-{number}")) for number in (7, 6))
    ours = {(row["codec"], row["array"], row["frame_KiB"]): row for row in later if row["frames"] > 1}
    table: list[tuple[Any, ...]] = []
    for row in both:
        key = (row["codec"], row["array"], row["frame_KiB"])
        value = ours.get(key, row)["cuzarr"]
        if row.get("frames", 2) > 1:
            table.append((row["codec"], row["array"], _size(row["frame_KiB"]), _number(value), _number(row.get("nvcomp"))))
    shown = [row for row in table if row[2] == "1 MiB" and row[1] == "field"]
    chart = Chart("decoding", "GB/s of elements decoded, frames of 1 MiB", tuple(row[0] for row in shown),
                  {"cuzarr": tuple(row[3] for row in shown), "nvCOMP 6.0": tuple(row[4] for row in shown)})  # fmt: skip
    return Section(
        "Decoding alone", "Frames that are in GPU memory are decoded there. GB/s of output.",
        ("codec", "array", "frames of", "cuzarr", "nvCOMP 6.0"), table, "cuzarr.codecs.Decoder(...).prepare(frames, out).run()",
        ("2026-11-22-frames-6", "2026-11-22-frames-7"), chart,
    )  # fmt: skip


def selections() -> Section:
    table: list[tuple[Any, ...]] = []
    for line in gather.record("2026-11-23-selections")["lines"]:
        found = re.match(r"(\S.*?)\s{2,}([\d.]+)\s+([\d.]+|-)\s+[\d.]+$", line)
        if found:
            table.append(
                (
                    found[1].replace("oindex", "`oindex`").replace("vindex", "`vindex`"),
                    float(found[2]),
                    None if found[3] == "-" else float(found[3]),
                )
            )
    chart = Chart("selections", "milliseconds (logarithmic, less is better)", tuple(row[0].replace("`", "") for row in table),
                  {"cuzarr": tuple(row[1] for row in table), "zarr-python enable_gpu": tuple(row[2] for row in table)}, True)  # fmt: skip
    return Section(
        "Index lists, points and masks",
        "Selections of a field of 512 MiB (zstd, chunks of 1 MiB) are read from local files into the GPU's memory. Milliseconds.",
        ("selection", "cuzarr", "zarr-python `enable_gpu`"), table, "python bench/selections.py --device cuda:0",
        ("2026-11-23-selections",), chart, "zarr-python makes NumPy arrays of points and masks, which CuPy refuses.", smallest_is_best=True,
    )  # fmt: skip


def computing() -> Section:
    table: list[tuple[Any, ...]] = []
    for line in gather.record("2026-11-22-compute-8")["lines"]:
        if "microseconds" in line or "us" in line.split():
            break
        found = re.match(r"(\S.*?)\s{2,}([\d.]+)\s+([\d.]+)$", line)
        if found:
            name = re.sub(r"^(\d+) of (\d+), axis (\d)", r"medians: \1 of \2, axis \3", found[1])
            table.append((name, float(found[3]), float(found[2])))
    shown = [row for row in table if not row[0].startswith("medians")]
    chart = Chart("computing", "milliseconds (logarithmic, less is better)", tuple(row[0] for row in shown),
                  {"cuzarr": tuple(row[1] for row in shown), "CuPy": tuple(row[2] for row in shown)}, True)  # fmt: skip
    return Section(
        "Computing in GPU memory", "1 GiB of float32 (medians of rows: 256 MiB) in the memory of one H200. Milliseconds.",
        ("function", "cuzarr", "CuPy"), table, "python bench/compute.py --store-gib 8", ("2026-11-22-compute-8",), chart, smallest_is_best=True,
    )  # fmt: skip


def rechunking() -> Section:
    record = gather.record("2026-11-22-rechunk")
    runs = record["rows"] if isinstance(record, dict) else record
    first, second = runs[0]["gigabytes_per_second"], runs[1]["runs"]
    table: list[tuple[Any, ...]] = [("cuzarr, one H200, 8 GiB", first["cuzarr"]), ("dask with zarr-python, 1 GiB", first["dask"])]
    table += [
        (f"cuzarr, {run['device']}, 4 GiB within {run['memory_limit']}, passes: {run['passes']}", run["gigabytes_per_second"])
        for run in second
    ]
    return Section(
        "Chunks of another shape",
        "Maps (chunks of one time, zstd) become time series (all times by 32 × 32, zstd), files in memory. GB/s of array.",
        ("by", "GB/s"), table,
        "python bench/rechunk.py --gib 8 --memory-limit '16 GiB' --device cuda:0 --directory /dev/shm/rechunk", ("2026-11-22-rechunk",),
    )  # fmt: skip


def chunk_sizes() -> Section:
    rows = [
        row
        for row in _rows(gather.record("2026-11-30-cliffs-2"))
        if row["group"] == "layouts" and row["case"].startswith("chunks of 1")
    ]
    table = []
    for row in rows:
        shape = [int(extent) for extent in row["case"].split()[-1].split("x")]
        table.append((math.prod(shape) * 4 / 1024, row["case"].split()[-1].replace("x", " × "), row["cuzarr"], row["fused"]))
    table.sort()
    shown = [(f"{shape}, {_size(kib)}", own, peer) for kib, shape, own, peer in table]
    chart = Chart(
        "chunk-sizes", "GB/s of array into the memory of one H200, by the chunk", tuple(label for label, _, _ in shown),
        {"cuzarr": tuple(own for _, own, _ in shown), "zarr-python, fused, and a copy": tuple(peer for _, _, peer in shown)},
        is_logarithmic=True,
    )  # fmt: skip
    return Section(
        "Sizes of chunks",
        "134 MB of float32, or 75 MB of the smallest chunks, are read whole, from files in memory. A chunk is a file, zstd 3.",
        ("chunk", "cuzarr", "zarr-python, fused, and a copy"), list(shown),
        "python bench/cliffs.py --device cuda:0 --shape 16,1024,2048 --groups layouts --peers fused", ("2026-11-30-cliffs-2",), chart,
    )  # fmt: skip


def _of_ranks(anchor: str, title: str, record: str, label: Callable[[Any], str | None]) -> tuple[list[tuple[Any, ...]], Chart]:
    """The table and the chart of those rows of a record of `bench/ranks.py` that have a label."""
    rows = _rows(gather.records("nvidia-h200", "ranks")[record])
    table = [(name, *(_number(row[codec]) for codec in CODECS_OF_RANKS)) for row in rows if (name := label(row))]
    bars = {name: tuple(row[1 + number] for row in table) for number, name in enumerate(CODECS_OF_RANKS.values())}
    return table, Chart(anchor, title, tuple(row[0] for row in table), bars)


def threads() -> Section:
    table, chart = _of_ranks(
        "threads",
        "GB/s of array into the memory of one H200, chunks of 1 MiB",
        "2026-11-30-ranks",
        lambda row: f"{row['threads']} threads",
    )
    return Section(
        "Threads", "2 GiB of float32 are read whole by one process, from files in memory, with a part of the 16 cores.",
        ("`threading.max_workers`", *CODECS_OF_RANKS.values()), table,
        "python bench/ranks.py --ranks 1 --gib 2 --threads 2 4 8 16 --repeat 4 --folder /dev/shm", ("nvidia-h200: 2026-11-30-ranks",), chart,
    )  # fmt: skip


def ranks() -> Section:
    table, chart = _of_ranks(
        "ranks", "GB/s of array into the memory of all GPUs together, chunks of 1 MiB", "2026-11-30-ranks-221516",
        lambda row: f"{row['ranks']} GPUs" if row["threads"] == 16 else None,
    )  # fmt: skip
    return Section(
        "Several GPUs of one host", "Each rank reads 2 GiB of float32 of its own, from files in memory, with 16 threads. All begin together.",
        ("ranks", *CODECS_OF_RANKS.values()), table,
        "python bench/ranks.py --ranks 1 2 4 --gib 2 --threads 4 8 16 --repeat 3 --folder /dev/shm", ("nvidia-h200: 2026-11-30-ranks-221516",), chart,
    )  # fmt: skip


@cache
def sections() -> tuple[Section, ...]:
    """The parts of the page, in order."""
    return (
        reading(),
        chunk_sizes(),
        threads(),
        ranks(),
        host(),
        writing(),
        encoding(),
        decoding(),
        selections(),
        rechunking(),
        computing(),
    )


def pictures() -> dict[str, str]:
    """Every chart of the page, in each theme, by its path in `docs/`."""
    charts = [section.chart for section in sections() if section.chart is not None]
    return {f"charts/{chart.slug}-{theme}.svg": chart.draw(theme) for chart in charts for theme in INK}


def page() -> str:
    """The page as Markdown."""
    out = [
        "# Performance", "",
        "Every answer was compared with the truth, element by element. An engine that answers wrongly has no figure. The best of a row is bold.",
        "Machines: one NVIDIA H200 (PCIe 5 x16) with 16 cores of its host; for host memory, two cores of an AMD EPYC. Files are in the page",
        "cache or in memory, and engines take turns. [Comparison](compare.md) says what else was seen and where peers are ahead.", "",
    ]  # fmt: skip
    return "\n".join(out) + "\n" + "\n".join(section.markdown() for section in sections())

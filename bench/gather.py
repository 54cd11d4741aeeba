"""Gathers records into one file for each bench and machine, and writes their index.

    python bench/gather.py

A bench writes a record as a file of its own, `bench/record/MACHINE-DATE-NAME.json` (or `.jsonl`, `.txt`). This program moves such
files into `bench/record/MACHINE/BENCH.json`, an object that has each record under its name, `DATE-NAME`, and then writes
`bench/record/README.md`. What a record has to say is its commit, its machine and its command; texts become lists of lines.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from typing import Any

FOLDER = pathlib.Path(__file__).parent / "record"
LOOSE = re.compile(r"(?P<machine>.+?)-(?P<name>\d{4}-\d\d-\d\d(?:-.*)?)")
# Which bench a record is of, by its name without date and number; a name that is not here is a bench of its own.
BENCHES = {
    "decode": "decode deflate-fixed filters frames frames-written gzip gzip-frames gzip-sequences lz-links lz4 lz4-frames lz4-guesses one-frame "
    "zstd zstd-frames zstd-segments",
    "read": "cliffs direct engine in-turn large peers peers-shards peers-2-shards peers-turns peers-zstd placement read-engine read-turns rooms roofline shards "
    "slab-series turns zstd-batches zstd-reads",
    "zarr-python": "enabled zarr-python",
    "compute": "compute compute-kernels elementwise mean-axes small-calls",
    "sparse": "sparse sparse_rows",
    "storage": "cold latency storage",
    "write": "encode write write-parts",
}
ABOUT = {
    "cluster": "one and two workers of a cluster, each with a GPU",
    "packed": "zfp and packed bits, from chunks in GPU memory",
    "campaign": "frames by the million: damaged ones give nothing but errors, encoded ones their chunks",
    "compute": "functions, reductions, kernels of users",
    "datasets": "many arrays, crops of volumes, small boxes and streams of samples by one call",
    "decode": "decoders alone, frames in GPU memory",
    "device": "kernels that move elements, and the bus",
    "far": "reads from a server that answers late, and netCDF by references",
    "pyramid": "an image of a microscope at several scales, beside ome-zarr",
    "planes": "random planes of a sharded volume, beside other readers",
    "limits": "memory that the driver counts within a limit",
    "read": "arrays read whole, beside other readers",
    "ranks": "ranks of one host, each with a GPU, that read at the same time",
    "rechunk": "chunks of another shape",
    "remote": "chunks over HTTP from the loopback interface into GPU memory, beside other readers",
    "selections": "index lists, points and masks",
    "writer": "loops of steps on a GPU that write their output",
    "sparse": "rows and columns of sparse matrices into GPU memory",
    "storage": "small files, first reads, cold files, crops",
    "train": "samples for training into GPU memory, beside other readers",
    "two-gpus": "copies from one GPU to another",
    "write": "arrays written, and encoders alone",
    "zarr-python": "reads through zarr-python",
}


def bench_of(name: str) -> str:
    """The bench that a record's name belongs to: `2026-11-22-peers-7` is of `read`."""
    kind = re.sub(r"-\d+$", "", re.sub(r"^\d{4}-\d\d-\d\d-?", "", name)) or "read"
    if re.fullmatch(r"\d*", kind):
        return "read"
    return next((bench for bench, kinds in BENCHES.items() if kind in kinds.split()), kind)


def content(path: pathlib.Path) -> Any:
    """What a file of a record holds: JSON, objects a line, or lines of text."""
    text = path.read_text()
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return {"lines": text.rstrip("\n").splitlines()}


def is_flat(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not any(isinstance(one, dict | list) for one in inner)


def text_of(value: Any, indent: int = 0) -> str:
    """JSON with a line for each row of a table, so that changes are read as lines."""
    pad = " " * (indent + 1)
    if isinstance(value, dict) and value and not (is_flat(value) and indent > 1):
        inner = [f"{pad}{json.dumps(key)}: {text_of(one, indent + 1)}" for key, one in value.items()]
        return "{\n" + ",\n".join(inner) + "\n" + " " * indent + "}"
    if isinstance(value, list) and value and (not is_flat(value) or any(isinstance(one, str) for one in value)):
        return "[\n" + ",\n".join(pad + text_of(one, indent + 1) for one in value) + "\n" + " " * indent + "]"
    return json.dumps(value, ensure_ascii=False)


def records(machine: str, bench: str) -> dict[str, Any]:
    """The records of one file, by name; none where there is no such file."""
    path = FOLDER / machine / f"{bench}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def record(name: str, machine: str = "nvidia-h200") -> Any:
    """One record by its name, `2026-11-22-peers-7`."""
    return records(machine, bench_of(name))[name]


def index() -> str:
    """The text of `bench/record/README.md`."""
    out = [
        "# Records", "",
        "What was measured, a file for each bench and machine. A file is a JSON object: under the name of each record (`DATE-NAME`) stand the",
        "commit, the machine, the command and the figures. `bench/gather.py` writes the files and this page; other documents name a record",
        "without its year and month, `22-peers-7`.", "",
        "| file | what was measured | records |", "|---|---|---|",
    ]  # fmt: skip
    for path in sorted(FOLDER.glob("*/*.json")):
        machine, bench = path.parent.name, path.stem
        names = sorted(records(machine, bench))
        about = ABOUT.get(bench, bench)
        out.append(
            f"| [`{machine}/{bench}.json`]({machine}/{bench}.json) | {about} | {', '.join(f'`{name}`' for name in names)} |"
        )
    return "\n".join(out) + "\n"


def loose() -> list[pathlib.Path]:
    """Records that are still files of their own."""
    return sorted(path for path in FOLDER.iterdir() if path.is_file() and path.name != "README.md")


def main() -> int:
    for path in loose():
        found = LOOSE.fullmatch(path.stem)
        if found is None:
            print(
                f"{path.name}: expected MACHINE-DATE-NAME with an ending .json, .jsonl or .txt",
                file=sys.stderr,
            )
            return 1
        machine, name = found["machine"], found["name"]
        bench = bench_of(name)
        have = records(machine, bench)
        if name in have:
            print(
                f"{path.name}: {machine}/{bench}.json has a record of that name",
                file=sys.stderr,
            )
            return 1
        have[name] = content(path)
        (FOLDER / machine).mkdir(exist_ok=True)
        (FOLDER / machine / f"{bench}.json").write_text(text_of(dict(sorted(have.items()))) + "\n")
        path.unlink()
    (FOLDER / "README.md").write_text(index())
    return 0


if __name__ == "__main__":
    sys.exit(main())

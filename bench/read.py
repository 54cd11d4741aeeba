"""How fast does a whole Zarr array come from the page cache into memory: host memory, or a GPU's? cuzarr and its peers in
one run, in turns, every answer compared with the truth outside the clock.

    python bench/read.py [--device cpu|cuda:0] [--array temperature] [--shape 32,1024,2048] [--chunks 1,512,512 4,512,1024]
                         [--shards 16,1024,1024] [--codecs none zstd3 ...] [--engines cuzarr ...] [--repeat 5] [--folder DIR] [--record DIR]

Prints GB/s of decoded array, the best of `repeat` and the median, and the best as a table for COMPARE.md. With `--record`, a JSON file
named after the machine and the date is written. Two arrays are read in turn, so that no answer can come from memory.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import arrays
import engines
import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

CODECS = {
    "none": None,
    "zstd3": ZstdCodec(level=3),
    "blosc-lz4-shuffle": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
    "blosc-zstd-bitshuffle": BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle"),
    "gzip5": GzipCodec(level=5),
}


class Place:
    """Where results end: how to wait for them, and how to compare them there."""

    def __init__(self, device):
        self.device = device
        self.cupy = None
        if device != "cpu":
            import cupy

            self.cupy = cupy

    def wait(self):
        if self.cupy:
            self.cupy.cuda.Device().synchronize()

    def hold(self, host):
        return self.cupy.asarray(host) if self.cupy else host

    def same(self, result, truth):
        """Bit for bit, where the result is."""
        module = self.cupy or np
        result = module.asarray(result)
        if result.shape != truth.shape or result.dtype != truth.dtype:
            return False
        unsigned = f"u{truth.dtype.itemsize}"
        return bool((result.view(unsigned) == truth.view(unsigned)).all())

    def free(self):
        if self.cupy:
            self.cupy.get_default_memory_pool().free_all_blocks()


def seconds_in_turns(chosen, stores, place, repeat):
    """Each engine's reads, after one of each store that does not count, or why it cannot. Engines take turns."""
    seconds = {name: [] for name in chosen}
    failed = {}
    for turn in range(len(stores) + repeat):
        path, truth = stores[turn % len(stores)]
        for name, engine in chosen.items():
            if name in failed:
                continue
            try:
                place.wait()
                start = time.perf_counter()
                result = engine(path, place.device)
                place.wait()
                taken = time.perf_counter() - start
                if not place.same(result, truth):
                    raise AssertionError("wrong data")
                del result
            except Exception as error:  # a peer that cannot is a result as well
                failed[name] = f"{type(error).__name__}: {error}"[:90]
                place.free()
                continue
            if turn >= len(stores):
                seconds[name].append(taken)
    return seconds | failed


def measure(args, place, chunks, codec, hosts, folder, chosen):
    """One row: the same stores read by every engine."""
    stores = []
    for number, host in enumerate(hosts):
        path = folder / f"{number}.zarr"
        shutil.rmtree(path, ignore_errors=True)
        array = zarr.create_array(
            store=str(path),
            shape=host.shape,
            chunks=chunks,
            shards=args.shards,
            dtype=host.dtype,
            compressors=CODECS[codec],
        )
        array[...] = host
        stores.append((str(path), place.hold(host)))
    stored = sum(file.stat().st_size for file in (folder / "0.zarr").rglob("*") if file.is_file())
    chunk_bytes = int(np.prod(chunks)) * hosts[0].itemsize
    row = {
        "codec": codec,
        "chunk_MiB": chunk_bytes / 2**20,
        "shards": args.shards,
        "ratio": round(hosts[0].nbytes / stored, 2),
    }
    for name, taken in seconds_in_turns(chosen, stores, place, args.repeat).items():
        if isinstance(taken, str):
            row[name] = taken
            continue
        row[name], row[f"{name}_median"] = (
            round(hosts[0].nbytes / one / 1e9, 2) for one in (min(taken), statistics.median(taken))
        )
    place.free()
    return row


def machine(place):
    """The processor's or the GPU's name."""
    if place.cupy:
        return place.cupy.cuda.runtime.getDeviceProperties(place.cupy.cuda.Device().id)["name"].decode()
    with contextlib.suppress(OSError):
        names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        if names:
            return names[0].strip()
    return platform.processor() or platform.machine()


def commit():
    """That of the sources beside this file; of an installed package alone, what `CUZARR_COMMIT` says."""
    asked = [
        "git",
        "-C",
        str(pathlib.Path(__file__).parent),
        "describe",
        "--always",
        "--dirty",
    ]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return os.environ.get("CUZARR_COMMIT")


def write_record(
    folder,
    place,
    rows,
    scenario="read",
    unit="GB/s of decoded array, best of the repeats, and their median; every answer compared with the truth",
):
    now = datetime.datetime.now(datetime.UTC)
    record = {
        "scenario": scenario,
        "commit": commit(),
        "command": " ".join(["python", f"bench/{scenario}.py", *sys.argv[1:]]),
        "device": place.device,
        "machine": machine(place),
        "cores": len(os.sched_getaffinity(0)),
        "date": now.isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **engines.versions()},
        "unit": unit,
        "rows": rows,
    }
    slug = re.sub(r"[^a-z0-9]+", "-", machine(place).lower()).strip("-")
    path = pathlib.Path(folder) / f"{slug}-{now:%Y-%m-%d}-{scenario}-{now:%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"recorded in {path}; bench/gather.py puts it into the file of its bench")


def print_table(rows, names):
    """The rows as Markdown."""
    print("\n| chunks, codec (ratio) | " + " | ".join(names) + " |")
    print("|---" * (1 + len(names)) + "|")
    for row in rows:
        figures = " | ".join(str(row[name]) if isinstance(row[name], float) else "–" for name in names)
        print(f"| {row['chunk_MiB']:g} MiB, {row['codec']} ({row['ratio']}) | {figures} |")


def box(text):
    return tuple(int(part) for part in text.split(","))


def arguments(description, names, repeat):
    """What every scenario over whole arrays is asked."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--array", default="temperature", choices=arrays.ARRAYS)
    parser.add_argument("--shape", type=box, default=(32, 1024, 2048))
    parser.add_argument("--chunks", type=box, nargs="+", default=[(1, 512, 512), (4, 512, 1024)])
    parser.add_argument("--shards", type=box)
    parser.add_argument(
        "--codecs",
        nargs="+",
        default=["none", "zstd3", "blosc-lz4-shuffle"],
        choices=CODECS,
    )
    parser.add_argument("--engines", nargs="+", choices=names)
    parser.add_argument("--repeat", type=int, default=repeat)
    parser.add_argument("--folder", help="where the arrays are written; a temporary folder by default")
    parser.add_argument("--record", help="folder of records")
    return parser


def main():
    args = arguments(__doc__, engines.ON_CUDA, 5).parse_args()

    place = Place(args.device)
    chosen = {
        name: engine for name, engine in engines.available(args.device).items() if name in (args.engines or engines.ON_CUDA)
    }
    hosts = [arrays.ARRAYS[args.array](args.shape, seed) for seed in (1, 2)]
    rows = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for codec in args.codecs:
            for chunks in args.chunks:
                row = {"array": args.array} | measure(args, place, chunks, codec, hosts, pathlib.Path(folder), chosen)
                rows.append(row)
                print(
                    "  ".join(f"{key}={value}" for key, value in row.items() if value is not None),
                    flush=True,
                )
    print_table(rows, list(chosen))
    if args.record:
        write_record(args.record, place, rows)
    wrong = [name for row in rows for name in chosen if "wrong data" in str(row[name])]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

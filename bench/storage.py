"""What the file system gives, and how much of it reads use: thousands of small files, and files that are not in memory.

    python bench/storage.py small [--device cuda:0] [--shape 32,2048,2048] [--chunk 1,128,128] [--repeat 5] [--folder DIR]
    python bench/storage.py cold  [--device cuda:0] [--shape 64,2048,2048] [--chunk 16,1024,1024] [--repeat 5] [--folder DIR] [--direct-io off on]

`small` reads one file a chunk from the page cache, uncompressed and zstd, and gives the best of its reads. `cold` drops the files
from the page cache before each read, and reads them in turns with cuzarr, for each `--direct-io`, and directly (`O_DIRECT`, parts
of 1 MiB, by several threads) as `fio` would: into ordinary pages, its default, and into huge ones, its `--iomem=mmaphuge`. Drives
vary from read to read, so it gives medians, and the least and the greatest. Arrays hold float32, and are opened inside the clock;
every answer is compared outside it. `--record DIR` writes a record. Linux alone.
"""

import argparse
import ctypes
import json
import mmap
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

import arrays
from read import Place, box, write_record

import cuzarr
from cuzarr.codecs import BloscCodec, ZstdCodec

PART = 1 << 20
HUGE_PAGE = 2 << 20
CODECS = {
    "none": None,
    "zstd3": ZstdCodec(level=3),
    "blosc-lz4-shuffle": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
}


def files_of(folder):
    return sorted(file for file in pathlib.Path(folder).rglob("*") if file.is_file() and file.name != "zarr.json")


def drop(files):
    """Out of the page cache."""
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def landing(huge):
    """Memory for a part, in pages of 4 KiB or in one huge page."""
    if not huge:
        return memoryview(mmap.mmap(-1, PART))
    memory = mmap.mmap(-1, 2 * HUGE_PAGE)
    memory.madvise(mmap.MADV_HUGEPAGE)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE_PAGE
    memory[begin] = 1
    return memoryview(memory)[begin : begin + PART]


def direct(files, threads, huge):
    """Seconds of reading all files around the page cache."""
    handles = [os.open(file, os.O_RDONLY | os.O_DIRECT) for file in files]
    parts = ((handle, at) for handle in handles for at in range(0, os.fstat(handle).st_size, PART))
    lock, failed = threading.Lock(), []

    def work():
        memory = [landing(huge)]
        try:
            while True:
                with lock:
                    part = next(parts, None)
                if part is None:
                    return
                os.preadv(part[0], memory, part[1])
        except OSError as error:
            failed.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    begun = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - begun
    for handle in handles:
        os.close(handle)
    if failed:
        raise failed[0]
    return seconds


class Scenario:
    def __init__(self, args):
        self.args = args
        self.place = Place(args.device)
        self.host = arrays.temperature(args.shape, 1)
        self.truth = self.place.hold(self.host)

    def write(self, folder, codec):
        path = str(pathlib.Path(folder) / f"{codec}.zarr")
        layout = {
            "shape": self.host.shape,
            "chunks": self.args.chunk,
            "dtype": "f4",
            "compressors": CODECS[codec],
        }
        cuzarr.create_array(path, **layout)[...] = self.host
        return path, files_of(path)

    def read(self, path, direct_io="auto"):
        """Seconds of a read of everything by an array that was just opened, and what it did meanwhile."""
        self.place.wait()
        begun = time.perf_counter()
        with cuzarr.config.set({"direct_io": direct_io}):
            array = cuzarr.open_array(path, mode="r", device=self.args.device)
            values = array[...]
        self.place.wait()
        seconds = time.perf_counter() - begun
        if not self.place.same(values, self.truth):
            raise AssertionError("wrong data")
        return seconds, array.last_report()

    def small(self, folder, codec):
        path, files = self.write(folder, codec)
        runs = [self.read(path) for _ in range(self.args.repeat + 1)][1:]
        seconds, report = min(runs, key=lambda run: run[0])
        rate = self.host.nbytes / seconds / 1e9
        print(
            f"{codec}: {len(files)} files in {seconds * 1e3:.1f} ms, {seconds / len(files) * 1e6:.2f} µs a file, {rate:.1f} GB/s of array",
            flush=True,
        )
        if self.args.report:
            print(json.dumps(report))
        return {
            "files": len(files),
            "us_per_file": round(seconds / len(files) * 1e6, 2),
            "array_gb_s": round(rate, 2),
        }

    def cold(self, folder, codec):
        path, files = self.write(folder, codec)
        stored = sum(file.stat().st_size for file in files)
        ways = {}
        for way in self.args.direct_io:
            ways[f"cuzarr, {way}"] = lambda way=way: self.read(path, way)[0]
        for threads in self.args.threads:
            for huge in (False, True):
                name = f"direct x{threads}{', huge pages' if huge else ''}"
                ways[name] = lambda threads=threads, huge=huge: direct(files, threads, huge)
        self.read(path)
        rates = {way: [] for way in ways}
        for turn in range(self.args.repeat):
            in_turn = list(ways.items())
            for way, seconds in in_turn[turn % len(ways) :] + in_turn[: turn % len(ways)]:
                drop(files)
                rates[way].append(round(stored / seconds() / 1e9, 2))
        medians = {way: statistics.median(found) for way, found in rates.items()}
        ceilings = {
            huge: max(rate for way, rate in medians.items() if way.startswith("direct") and way.endswith("huge pages") == huge)
            for huge in (False, True)
        }
        print(
            f"{codec}: {stored / 2**20:.0f} MiB in {len(files)} files, cold, GB/s of files, median (least to greatest)",
            flush=True,
        )
        for way, found in rates.items():
            shares = "".join(
                f", {medians[way] / ceilings[huge]:.2f} of direct reads into {'huge' if huge else 'small'} pages"
                for huge in ceilings
            )
            print(
                f"    {way:24} {medians[way]:6.2f}  ({min(found)} to {max(found)}){shares if way.startswith('cuzarr') else ''}",
                flush=True,
            )
        return {
            "stored_MiB": round(stored / 2**20),
            "files": len(files),
            "file_gb_s": medians,
            "all": rates,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=["small", "cold"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--shape", type=box)
    parser.add_argument("--chunk", type=box)
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=["none", "zstd3"])
    parser.add_argument("--threads", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--direct-io", nargs="+", choices=["auto", "on", "off"], default=["off", "on"])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--report",
        action="store_true",
        help="also what the best of the reads of small files did",
    )
    parser.add_argument("--folder", help="where the arrays are written; a temporary folder by default")
    parser.add_argument("--record", help="folder of records")
    args = parser.parse_args()
    small = args.scenario == "small"
    args.shape = args.shape or ((32, 2048, 2048) if small else (64, 2048, 2048))
    args.chunk = args.chunk or ((1, 128, 128) if small else (16, 1024, 1024))
    scenario = Scenario(args)
    rows = []
    for codec in args.codecs:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            rows.append({"codec": codec} | (scenario.small if small else scenario.cold)(folder, codec))
    if args.record:
        unit = (
            "best of the reads; every answer compared with the truth"
            if small
            else "medians of cold reads; every answer compared with the truth"
        )
        write_record(args.record, scenario.place, rows, "storage", unit)
    return 0


if __name__ == "__main__":
    sys.exit(main())

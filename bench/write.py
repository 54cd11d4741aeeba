"""How fast does an array go from memory, the host's or a GPU's, into a Zarr array on disk (as far as the page cache)? cuzarr
and its peers in one run; everything written is read back by another engine and compared, outside the clock.

    python bench/write.py [--device cpu|cuda:0] [--array temperature] [--shape 32,1024,2048] [--chunks 1,512,512 4,512,1024]
                          [--shards 16,1024,1024] [--codecs none zstd3 ...] [--engines cuzarr ...] [--repeat 3] [--folder DIR]
                          [--record DIR] [--report]

Prints GB/s of array, the best of `repeat` writes to new files, and the same as a table for COMPARE.md. From a GPU, engines
that take host memory are given a copy, inside the clock. `--report` prints what each stage of cuzarr's last write took.
"""

import pathlib
import shutil
import sys
import tempfile
import time

import arrays
import engines
import numpy as np
import zarr
from read import CODECS, Place, arguments, print_table, write_record


def on_host(value):
    return value if isinstance(value, np.ndarray) else value.get()


def write_cuzarr(path, value, device):
    import cuzarr

    array = cuzarr.open_array(path, mode="r+", device=device)
    array[...] = value
    return array


def write_zarrs(path, value, device):
    import zarrs  # noqa: F401

    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        zarr.open_array(path, mode="r+")[...] = on_host(value)


def write_tensorstore(path, value, device):
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
    tensorstore.open(spec).result().write(on_host(value)).result()


def write_zarr(path, value, device):
    zarr.open_array(path, mode="r+")[...] = on_host(value)


def write_zarr_gpu(path, value, device):
    with zarr.config.enable_gpu():
        zarr.open_array(path, mode="r+")[...] = value


WRITERS = {
    "cuzarr": write_cuzarr, "zarrs": write_zarrs, "tensorstore": write_tensorstore, "zarr": write_zarr, "zarr_gpu": write_zarr_gpu
}  # fmt: skip


def create(path, args, chunks, codec, host):
    shutil.rmtree(path, ignore_errors=True)
    zarr.create_array(
        store=str(path),
        shape=host.shape,
        chunks=chunks,
        shards=args.shards,
        dtype=host.dtype,
        compressors=CODECS[codec],
    )


def measure(args, place, chunks, codec, hosts, folder, names):
    """One row: the same arrays written by every engine, and read by one that did not write them."""
    chunk_bytes = int(np.prod(chunks)) * hosts[0].itemsize
    row = {
        "codec": codec,
        "chunk_MiB": chunk_bytes / 2**20,
        "shards": args.shards,
        "ratio": 1.0,
    }
    path = folder / "a.zarr"
    for name in names:
        reader = engines.cuzarr if name != "cuzarr" else engines.tensorstore
        best, written = float("inf"), None
        try:
            for turn in range(1 + args.repeat):
                host = hosts[turn % len(hosts)]
                value = place.hold(host)
                create(path, args, chunks, codec, host)
                place.wait()
                start = time.perf_counter()
                written = WRITERS[name](str(path), value, place.device)
                place.wait()
                seconds = time.perf_counter() - start
                if turn == 0 or turn == args.repeat:
                    if not np.array_equal(reader(str(path), "cpu"), host):
                        raise AssertionError("wrong data")
                best = min(best, seconds) if turn else best
                del value
            row[name] = round(hosts[0].nbytes / best / 1e9, 2)
            if name == names[0]:
                stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                row["ratio"] = round(hosts[0].nbytes / stored, 2)
            if args.report and written is not None:
                print(written.last_report())
        except Exception as error:  # a peer that cannot is a result as well
            row[name] = f"{type(error).__name__}: {error}"[:90]
        place.free()
    return row


def main():
    parser = arguments(__doc__, WRITERS, 3)
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()

    place = Place(args.device)
    names = [name for name in WRITERS if name in engines.available(args.device) and name in (args.engines or WRITERS)]
    hosts = [arrays.ARRAYS[args.array](args.shape, seed) for seed in (1, 2)]
    rows = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for codec in args.codecs:
            for chunks in args.chunks:
                row = {"array": args.array} | measure(args, place, chunks, codec, hosts, pathlib.Path(folder), names)
                rows.append(row)
                print(
                    "  ".join(f"{key}={value}" for key, value in row.items() if value is not None),
                    flush=True,
                )
    print_table(rows, names)
    if args.record:
        unit = "GB/s of array, best of the repeats; what was written was read by another engine and compared with the truth"
        write_record(args.record, place, rows, "write", unit)
    wrong = [name for row in rows for name in names if "wrong data" in str(row[name])]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
